/* test_iscsi.c - handler/device/iscsi.c against a target that does what the test tells it to.
 *
 * The target is a thread with a disk in memory, on a port of the loopback that the kernel chose. It
 * knows of iSCSI and SCSI what libiscsi asks of it. A second thread waits for and polls the device,
 * as the handler's loop does, and counts: how often wait() returns tells whether it keeps a thread
 * busy. Bounds of counts have slack for a slow machine; what spins exceeds them a hundredfold.
 */
#include <arpa/inet.h>
#include <iscsi/iscsi.h>
#include <math.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "device/credentials.h"
#include "engine/base/device.h"
#include "suite.h"

#define DISK_BYTES (2u << 20)
#define SEGMENT_MAX (64u << 10) /* of one PDU, and of what is written without being asked for */
#define CONNECTIONS 8
#define WRITES 128
#define IN_FLIGHT 24
#define IO_BYTES_MAX (96u << 10)
#define ROUNDS 2000
#define PATIENCE_S 30 /* more than anything here takes */
#define TARGET "iqn.2026-11.org.example:disk"
#define CHAP_CHALLENGE "0x00112233445566778899aabbccddeeff"
#define CHAP_PASSWORD "open-sesame-1"
/* The MD5 sum of the number 1, the password and the challenge. */
#define CHAP_RESPONSE "0x6f83bc90133e3c62ffb0a47a948c2b72"

/* libiscsi 1.19 leaks what belongs to a try to connect that ends before its answer. Visible, or the
 * sanitizer, a shared library, does not find it. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libiscsi.so";
}

static uint64_t seed;

static uint64_t next_random(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}

/* ---- libiscsi, less patient than the device asks it to be ------------------------------------ */

static int tries_max, timeout_max; /* 0: as the device says */

/* The linker sends calls of the device here, and calls of __real_X to X. */
void __real_iscsi_set_reconnect_max_retries(struct iscsi_context *iscsi, int count);
int __real_iscsi_set_timeout(struct iscsi_context *iscsi, int timeout);
void __wrap_iscsi_set_reconnect_max_retries(struct iscsi_context *iscsi, int count);
int __wrap_iscsi_set_timeout(struct iscsi_context *iscsi, int timeout);

void __wrap_iscsi_set_reconnect_max_retries(struct iscsi_context *iscsi, int count)
{
    __real_iscsi_set_reconnect_max_retries(iscsi, tries_max ? tries_max : count);
}

int __wrap_iscsi_set_timeout(struct iscsi_context *iscsi, int timeout)
{
    return __real_iscsi_set_timeout(iscsi, timeout_max ? timeout_max : timeout);
}

/* ---- The target ------------------------------------------------------------------------------ */

struct answer {
    uint8_t status, key;
    uint16_t code; /* additional sense code and qualifier */
};

/* A write of which data is still to come. */
struct writing {
    uint32_t tag, bytes, have;
    uint8_t *to; /* NULL: free */
};

struct connection {
    int fd; /* -1: none */
    uint32_t status_number, expected_command;
    bool proven; /* that the initiator knows the password */
    struct writing writes[WRITES];
};

/* What the test sets, it sets before it starts the target, but for the atomics and answers. */
static struct target {
    uint32_t block_size, transfer_max; /* the latter in blocks */
    int write_cache;                   /* -1: there is no such page */
    bool hides_capacity, wants_chap;
    const char *proof_user, *proof_password; /* it proves itself by these; NULL: it does not */
    atomic_bool must_prove;                  /* the initiator wants the target to know a password */
    atomic_uchar login_status;               /* its class; 0: success */
    atomic_bool mute;                        /* reads get no answer */
    atomic_bool drops_reads;                 /* the connection ends instead */
    atomic_bool sends_away;                  /* the initiator is asked to log out instead, once */
    atomic_uint short_by;                    /* so many bytes less are read, and it says so */
    atomic_uint logins, reads, writes, flushes, longest;
    pthread_mutex_t mutex;
    struct answer answers[8]; /* instead of executing the next commands */
    unsigned answers_left;
    uint8_t disk[DISK_BYTES];
    struct connection connections[CONNECTIONS];
    struct sockaddr_in address;
    int reserved, listener, stop; /* the first holds the port while the target is away */
    pthread_t thread;
} target;

static void put32(uint8_t *to, uint32_t value)
{
    value = htonl(value);
    memcpy(to, &value, 4);
}

static uint32_t get32(const uint8_t *from)
{
    uint32_t value;

    memcpy(&value, from, 4);
    return ntohl(value);
}

static uint64_t get64(const uint8_t *from)
{
    return (uint64_t)get32(from) << 32 | get32(from + 4);
}

static bool receive_all(int fd, void *to, size_t bytes)
{
    return bytes == 0 || recv(fd, to, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

static bool send_all(int fd, const void *from, size_t bytes)
{
    while (bytes > 0) {
        ssize_t sent = send(fd, from, bytes, MSG_NOSIGNAL);

        if (sent <= 0)
            return false;
        from = (const char *)from + sent;
        bytes -= (size_t)sent;
    }
    return true;
}

/* Fills in the numbers and lengths. `final`: it ends the command, so it has a status number. */
static bool send_pdu(struct connection *on, uint8_t *head, bool final, const void *data,
                     uint32_t bytes)
{
    static const uint8_t padding[4];

    put32(head + 4, bytes);
    put32(head + 24, on->status_number);
    if (final)
        on->status_number++;
    put32(head + 28, on->expected_command);
    put32(head + 32, on->expected_command + 64);
    return send_all(on->fd, head, 48) && send_all(on->fd, data, bytes) &&
           send_all(on->fd, padding, -bytes % 4);
}

static bool send_status(struct connection *on, const uint8_t *command, struct answer answer,
                        uint32_t residual)
{
    uint8_t head[48] = {0x21, 0x80 | (residual ? 2 : 0), 0, answer.status};
    uint8_t sense[20] = {0, 18, 0x70, 0, answer.key, 0, 0, 0, 0, 10};

    memcpy(head + 16, command + 16, 4);
    put32(head + 44, residual);
    sense[14] = (uint8_t)(answer.code >> 8);
    sense[15] = (uint8_t)answer.code;
    return send_pdu(on, head, true, sense, answer.status == 2 ? sizeof sense : 0);
}

/* With the status in the last PDU. */
static bool send_data(struct connection *on, const uint8_t *command, const uint8_t *data,
                      uint32_t bytes)
{
    uint32_t wanted = get32(command + 20), at = 0, number = 0;

    if (bytes > wanted)
        bytes = wanted;
    do {
        uint32_t part = bytes - at < SEGMENT_MAX ? bytes - at : SEGMENT_MAX;
        bool last = at + part == bytes;
        uint8_t head[48] = {0x25, last ? 0x81 : 0};

        if (last && bytes < wanted) {
            head[1] |= 2;
            put32(head + 44, wanted - bytes);
        }
        memcpy(head + 16, command + 16, 4);
        put32(head + 20, UINT32_MAX);
        put32(head + 36, number++);
        put32(head + 40, at);
        if (!send_pdu(on, head, last, data + at, part))
            return false;
        at += part;
    } while (at < bytes);
    return true;
}

/* Digits of numbers may be of either case. */
static bool says(const uint8_t *data, uint32_t bytes, const char *text)
{
    size_t length = strlen(text);

    for (uint32_t i = 0; i + length <= bytes; i++)
        if (strncasecmp((const char *)data + i, text, length) == 0)
            return true;
    return false;
}

static bool refuse_login(struct connection *on, uint8_t *head)
{
    head[36] = 2;
    head[37] = 1;
    return send_pdu(on, head, true, NULL, 0);
}

/* ---- Mutual CHAP: what RFC 1994 says of the target's answer ---- */

#define MD5_BYTES 16
#define HASHED_MAX 1024

static uint32_t rotated(uint32_t word, unsigned by)
{
    return word << by | word >> (32 - by);
}

/* Of one block of 64 bytes, as RFC 1321 has it. */
static void md5_block(uint32_t state[4], const uint8_t *block)
{
    static const uint8_t turns[4][4] = {
        {7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3], words[16];

    for (unsigned i = 0; i < 16; i++)
        words[i] = block[4 * i] | block[4 * i + 1] << 8 | block[4 * i + 2] << 16 |
                   (uint32_t)block[4 * i + 3] << 24;
    for (unsigned i = 0; i < 64; i++) {
        uint32_t mixed[4] = {(b & c) | (~b & d), (b & d) | (c & ~d), b ^ c ^ d, c ^ (b | ~d)};
        unsigned places[4] = {i, 5 * i + 1, 3 * i + 5, 7 * i}, round = i / 16;
        uint32_t sum = a + mixed[round] + words[places[round] % 16] +
                       (uint32_t)(4294967296.0 * fabs(sin(i + 1.0)));

        a = d;
        d = c;
        c = b;
        b += rotated(sum, turns[round][i % 4]);
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
}

/* bytes: there is room for 72 more behind them. */
static void md5(uint8_t *bytes, size_t count, uint8_t ret_sum[MD5_BYTES])
{
    uint32_t state[4] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
    size_t whole = (count + 8) / 64 * 64 + 64;

    memset(bytes + count, 0, whole - count);
    bytes[count] = 0x80;
    for (unsigned i = 0; i < 8; i++)
        bytes[whole - 8 + i] = (uint8_t)((uint64_t)count * 8 >> 8 * i);
    for (size_t at = 0; at < whole; at += 64)
        md5_block(state, bytes + at);
    for (unsigned i = 0; i < MD5_BYTES; i++)
        ret_sum[i] = (uint8_t)(state[i / 4] >> 8 * (i % 4));
}

/* The value of a key, of the text that ends with the data. */
static const char *value_of(const uint8_t *data, uint32_t bytes, const char *key)
{
    for (uint32_t i = 0; i < bytes; i += (uint32_t)strlen((const char *)data + i) + 1)
        if (strncmp((const char *)data + i, key, strlen(key)) == 0)
            return (const char *)data + i + strlen(key);
    return "";
}

/* CHAP_N and CHAP_R: of the identifier, the password and the challenge that came. */
static bool send_proof(struct connection *on, uint8_t *head, const uint8_t *data, uint32_t bytes)
{
    const char *challenge = value_of(data, bytes, "CHAP_C=0x");
    uint8_t hashed[HASHED_MAX + 72], sum[MD5_BYTES];
    char text[128];
    unsigned byte;
    size_t count = 0, length;

    hashed[count++] = (uint8_t)strtoul(value_of(data, bytes, "CHAP_I="), NULL, 10);
    count += (size_t)sprintf((char *)hashed + count, "%s", target.proof_password);
    for (; count < HASHED_MAX && sscanf(challenge, "%2x", &byte) == 1; challenge += 2)
        hashed[count++] = (uint8_t)byte;
    md5(hashed, count, sum);
    length = (size_t)sprintf(text, "CHAP_N=%s", target.proof_user) + 1;
    length += (size_t)sprintf(text + length, "CHAP_R=0x");
    for (unsigned i = 0; i < MD5_BYTES; i++)
        length += (size_t)sprintf(text + length, "%02x", sum[i]);
    return send_pdu(on, head, true, text, length + 1);
}

/* The security stage: the method, a challenge, and whether the response is right. */
static bool answer_chap(struct connection *on, uint8_t *head, const uint8_t *data, uint32_t bytes)
{
    static const char method[] = "AuthMethod=CHAP\0TargetPortalGroupTag=1";
    static const char challenge[] = "CHAP_A=5\0CHAP_I=1\0CHAP_C=" CHAP_CHALLENGE;

    head[1] = 0;
    if (says(data, bytes, "CHAP_A="))
        return send_pdu(on, head, true, challenge, sizeof challenge);
    if (!says(data, bytes, "CHAP_R="))
        return send_pdu(on, head, true, method, sizeof method);
    if (!says(data, bytes, "CHAP_N=me") || !says(data, bytes, "CHAP_R=" CHAP_RESPONSE))
        return refuse_login(on, head);
    target.must_prove = says(data, bytes, "CHAP_I=");
    on->proven = true;
    head[1] = 0x81;
    return target.must_prove && target.proof_user ? send_proof(on, head, data, bytes)
                                                  : send_pdu(on, head, true, NULL, 0);
}

static bool answer_login(struct connection *on, const uint8_t *request, const uint8_t *data,
                         uint32_t bytes)
{
    static const char security[] = "AuthMethod=None\0TargetPortalGroupTag=1";
    static const char operational[] =
        "HeaderDigest=None\0DataDigest=None\0MaxRecvDataSegmentLength=65536\0InitialR2T=No\0"
        "ImmediateData=Yes\0FirstBurstLength=65536\0MaxBurstLength=262144\0MaxOutstandingR2T=1\0"
        "MaxConnections=1\0ErrorRecoveryLevel=0\0DataPDUInOrder=Yes\0DataSequenceInOrder=Yes\0"
        "DefaultTime2Wait=2\0DefaultTime2Retain=0";
    uint8_t head[48] = {0x23, request[1] & 0x8f};
    bool first = (request[1] >> 2 & 3) == 0;

    memcpy(head + 8, request + 8, 6);
    head[15] = 1;
    memcpy(head + 16, request + 16, 4);
    head[36] = target.login_status;
    on->expected_command = get32(request + 24);
    if (target.wants_chap && first)
        return answer_chap(on, head, data, bytes);
    if (target.wants_chap && !on->proven)
        return refuse_login(on, head);
    if (!first)
        target.logins++;
    return send_pdu(on, head, true, first ? security : operational,
                    first ? sizeof security : sizeof operational);
}

static bool answer_inquiry(struct connection *on, const uint8_t *command)
{
    uint8_t data[64] = {0};

    if (command[33] & 1) {
        data[1] = command[34];
        data[3] = 60;
        put32(data + 8, target.transfer_max);
        return send_data(on, command, data, 64);
    }
    data[2] = 5;
    data[3] = 2;
    data[4] = 31;
    return send_data(on, command, data, 36);
}

static bool answer_mode_sense(struct connection *on, const uint8_t *command)
{
    uint8_t data[24] = {3};
    uint32_t bytes = 4;

    if (target.write_cache >= 0) {
        bytes += 20;
        data[0] = 23;
        data[4] = 8;
        data[5] = 18;
        data[6] = target.write_cache ? 4 : 0;
    }
    return send_data(on, command, data, bytes);
}

static bool answer_capacity(struct connection *on, const uint8_t *command)
{
    uint8_t data[32] = {0};

    if (target.hides_capacity)
        return send_status(on, command, (struct answer){2, 5, 0x2000}, 0);
    put32(data + 4, DISK_BYTES / target.block_size - 1);
    put32(data + 8, target.block_size);
    return send_data(on, command, data, sizeof data);
}

static bool send_request_to_leave(struct connection *on)
{
    uint8_t head[48] = {0x32, 0x80};

    put32(head + 16, UINT32_MAX);
    head[36] = 1;
    head[43] = 1; /* within a second */
    return send_pdu(on, head, true, NULL, 0);
}

static bool answer_read(struct connection *on, const uint8_t *command, const uint8_t *from,
                        uint32_t bytes)
{
    if (target.drops_reads)
        return false;
    if (atomic_exchange(&target.sends_away, false))
        return send_request_to_leave(on);
    return target.mute || send_data(on, command, from, bytes - target.short_by);
}

/* Asks for the next burst when the last one has ended, or says that all is there. */
static bool go_on_writing(struct connection *on, struct writing *writing, const uint8_t *pdu)
{
    uint32_t left = writing->bytes - writing->have;
    uint8_t head[48] = {0x31, 0x80};

    if (left == 0) {
        writing->to = NULL;
        return send_status(on, pdu, (struct answer){0}, 0);
    }
    if (!(pdu[1] & 0x80))
        return true;
    memcpy(head + 16, pdu + 16, 4);
    put32(head + 20, 1);
    put32(head + 40, writing->have);
    put32(head + 44, left < 4 * SEGMENT_MAX ? left : 4 * SEGMENT_MAX);
    return send_pdu(on, head, false, NULL, 0);
}

static bool answer_write(struct connection *on, const uint8_t *command, uint8_t *to, uint32_t bytes,
                         const uint8_t *data, uint32_t data_bytes)
{
    for (unsigned i = 0; i < WRITES; i++) {
        struct writing *writing = &on->writes[i];

        if (writing->to)
            continue;
        *writing = (struct writing){get32(command + 16), bytes, data_bytes, to};
        memcpy(to, data, data_bytes);
        return go_on_writing(on, writing, command);
    }
    return false;
}

static bool take_data(struct connection *on, const uint8_t *pdu, const uint8_t *data,
                      uint32_t bytes)
{
    uint32_t at = get32(pdu + 40);

    for (unsigned i = 0; i < WRITES; i++) {
        struct writing *writing = &on->writes[i];

        if (!writing->to || writing->tag != get32(pdu + 16))
            continue;
        if (at > writing->bytes || bytes > writing->bytes - at)
            return false;
        memcpy(writing->to + at, data, bytes);
        writing->have += bytes;
        return go_on_writing(on, writing, pdu);
    }
    return true; /* of a command that was answered before */
}

static bool next_answer(struct answer *ret_answer)
{
    bool any;

    pthread_mutex_lock(&target.mutex);
    any = target.answers_left > 0;
    if (any) {
        *ret_answer = target.answers[0];
        memmove(target.answers, target.answers + 1, sizeof target.answers - sizeof *ret_answer);
        target.answers_left--;
    }
    pthread_mutex_unlock(&target.mutex);
    return any;
}

static bool answer_transfer(struct connection *on, const uint8_t *command, const uint8_t *data,
                            uint32_t data_bytes)
{
    bool flushes = command[32] == 0x91;
    uint64_t offset = get64(command + 34) * target.block_size;
    uint32_t blocks = flushes ? 0 : get32(command + 42), bytes = blocks * target.block_size;
    struct answer answer;

    if (offset > DISK_BYTES || bytes > DISK_BYTES - offset || data_bytes > bytes)
        return send_status(on, command, (struct answer){2, 5, 0x2100}, bytes);
    if (blocks > target.longest)
        target.longest = blocks;
    (*(flushes ? &target.flushes : command[32] == 0x88 ? &target.reads : &target.writes))++;
    if (next_answer(&answer))
        return send_status(on, command, answer, bytes);
    if (flushes)
        return send_status(on, command, (struct answer){0}, 0);
    if (command[32] == 0x88)
        return answer_read(on, command, target.disk + offset, bytes);
    return answer_write(on, command, target.disk + offset, bytes, data, data_bytes);
}

static bool answer_command(struct connection *on, const uint8_t *command, const uint8_t *data,
                           uint32_t bytes)
{
    on->expected_command++;
    switch (command[32]) {
    case 0x00: /* TEST UNIT READY */
        return send_status(on, command, (struct answer){0}, 0);
    case 0x12:
        return answer_inquiry(on, command);
    case 0x1a:
        return answer_mode_sense(on, command);
    case 0x9e: /* READ CAPACITY (16) */
        return answer_capacity(on, command);
    case 0x88: /* READ (16) */
    case 0x8a: /* WRITE (16) */
    case 0x91: /* SYNCHRONIZE CACHE (16) */
        return answer_transfer(on, command, data, bytes);
    default:
        return send_status(on, command, (struct answer){2, 5, 0x2000}, 0);
    }
}

/* Returns false when the connection is to end. */
static bool serve(struct connection *on)
{
    static uint8_t data[SEGMENT_MAX]; /* the thread's, of which there is one */
    uint8_t head[48], bye[48] = {0x26, 0x80};
    uint32_t bytes;

    if (!receive_all(on->fd, head, sizeof head))
        return false;
    bytes = get32(head + 4) & 0xffffff;
    if (bytes > SEGMENT_MAX || !receive_all(on->fd, data, (bytes + 3) / 4 * 4))
        return false;
    switch (head[0] & 0x3f) {
    case 0x01:
        return answer_command(on, head, data, bytes);
    case 0x03:
        return answer_login(on, head, data, bytes);
    case 0x05:
        return take_data(on, head, data, bytes);
    case 0x06:
        memcpy(bye + 16, head + 16, 4);
        send_pdu(on, bye, true, NULL, 0);
        return false;
    default:
        return false;
    }
}

static void disconnect(struct connection *on)
{
    if (on->fd >= 0)
        close(on->fd);
    memset(on, 0, sizeof *on);
    on->fd = -1;
}

static void accept_one(void)
{
    struct timeval patience = {.tv_sec = PATIENCE_S};
    int fd = accept(target.listener, NULL, NULL), yes = 1;

    for (unsigned i = 0; i < CONNECTIONS && fd >= 0; i++) {
        if (target.connections[i].fd >= 0)
            continue;
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        target.connections[i].fd = fd;
        return;
    }
    close(fd);
}

static void *target_thread(void *unused)
{
    struct pollfd fds[CONNECTIONS + 2];

    for (;;) {
        for (unsigned i = 0; i < CONNECTIONS; i++)
            fds[i] = (struct pollfd){.fd = target.connections[i].fd, .events = POLLIN};
        fds[CONNECTIONS] = (struct pollfd){.fd = target.listener, .events = POLLIN};
        fds[CONNECTIONS + 1] = (struct pollfd){.fd = target.stop, .events = POLLIN};
        if (poll(fds, CONNECTIONS + 2, -1) < 0)
            continue;
        if (fds[CONNECTIONS + 1].revents)
            break;
        for (unsigned i = 0; i < CONNECTIONS; i++)
            if (fds[i].revents && !serve(&target.connections[i]))
                disconnect(&target.connections[i]);
        if (fds[CONNECTIONS].revents)
            accept_one();
    }
    /* In this order: libiscsi leaks the request for a login that gets no answer. */
    close(target.listener);
    for (unsigned i = 0; i < CONNECTIONS; i++)
        disconnect(&target.connections[i]);
    return unused;
}

static int bound_socket(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;

    CU_ASSERT_FATAL(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    CU_ASSERT_EQUAL_FATAL(bind(fd, (struct sockaddr *)&target.address, sizeof target.address), 0);
    return fd;
}

static void target_comes(void)
{
    for (unsigned i = 0; i < CONNECTIONS; i++)
        target.connections[i].fd = -1;
    target.stop = eventfd(0, EFD_CLOEXEC);
    target.listener = bound_socket();
    CU_ASSERT_EQUAL_FATAL(listen(target.listener, 8), 0);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&target.thread, NULL, target_thread, NULL), 0);
}

static void target_goes(void)
{
    CU_ASSERT_EQUAL(eventfd_write(target.stop, 1), 0);
    pthread_join(target.thread, NULL);
    close(target.stop);
}

/* Before each test. */
static void target_new(void)
{
    socklen_t length = sizeof target.address;

    tries_max = timeout_max = 0;
    memset(&target, 0, sizeof target);
    pthread_mutex_init(&target.mutex, NULL);
    target.block_size = 512;
    target.write_cache = 1;
    target.address.sin_family = AF_INET;
    target.address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    target.reserved = bound_socket();
    getsockname(target.reserved, (struct sockaddr *)&target.address, &length);
}

static void target_delete(void)
{
    close(target.reserved);
}

static void target_answers(const struct answer *answers, unsigned count)
{
    pthread_mutex_lock(&target.mutex);
    memcpy(target.answers, answers, count * sizeof *answers);
    target.answers_left = count;
    pthread_mutex_unlock(&target.mutex);
}

/* ---- The device, and a thread that waits for it ---------------------------------------------- */

struct session {
    struct plx_device *device;
    pthread_mutex_t mutex; /* of the device */
    pthread_cond_t some_done;
    pthread_t watcher;
    atomic_uint waits;
    atomic_bool stop;
};

struct request {
    struct plx_io io;
    struct iovec iov;
    struct session *session;
    bool done;
};

static const char *url_of(const char *user)
{
    static char url[160];

    snprintf(url, sizeof url, "iscsi://%s127.0.0.1:%u/" TARGET "/0", user,
             ntohs(target.address.sin_port));
    return url;
}

static struct plx_device *open_device(bool read_only)
{
    struct plx_device_open_options options = {.queue_depth = 8, .read_only = read_only};
    struct plx_device *device = NULL;
    struct plx_fault fault = {0};

    if (plx_device_open(url_of(""), &options, &device, &fault) != 0)
        printf("  said: %s\n", fault.text);
    CU_ASSERT_PTR_NOT_NULL_FATAL(device);
    return device;
}

/* As a thread of the handler's loop: waits without the mutex, polls with it. */
static void *watch(void *argument)
{
    struct session *session = argument;
    struct plx_device *device = session->device;

    while (!session->stop) {
        device->ops->wait(device);
        session->waits++;
        pthread_mutex_lock(&session->mutex);
        device->ops->poll(device, false);
        pthread_cond_broadcast(&session->some_done);
        pthread_mutex_unlock(&session->mutex);
    }
    return NULL;
}

static void session_open(struct session *session)
{
    target_comes();
    *session =
        (struct session){.mutex = PTHREAD_MUTEX_INITIALIZER, .some_done = PTHREAD_COND_INITIALIZER};
    session->device = open_device(false);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&session->watcher, NULL, watch, session), 0);
}

static void session_close(struct session *session)
{
    session->stop = true;
    session->device->ops->interrupt(session->device);
    pthread_join(session->watcher, NULL);
    plx_device_close(session->device);
}

static void request_done(struct plx_io *io)
{
    ((struct request *)io->owner)->done = true;
}

static void prepare(struct session *session, struct request *request, enum plx_io_op op,
                    uint64_t offset, void *buffer, size_t bytes)
{
    *request = (struct request){.iov = {buffer, bytes}, .session = session};
    request->io = (struct plx_io){.op = op,
                                  .offset = offset,
                                  .bytes = bytes,
                                  .iov = &request->iov,
                                  .iovcnt = bytes ? 1 : 0,
                                  .done = request_done,
                                  .owner = request};
}

/* With the mutex. */
static void submit(struct session *session, struct request *request)
{
    struct plx_device *device = session->device;

    device->ops->submit(device, &request->io);
    while (device->ops->kick(device))
        device->ops->poll(device, false);
}

static void start(struct session *session, struct request *request, enum plx_io_op op,
                  uint64_t offset, void *buffer, size_t bytes)
{
    prepare(session, request, op, offset, buffer, bytes);
    pthread_mutex_lock(&session->mutex);
    submit(session, request);
    pthread_mutex_unlock(&session->mutex);
}

static bool is_done(struct request *request)
{
    bool done;

    pthread_mutex_lock(&request->session->mutex);
    done = request->done;
    pthread_mutex_unlock(&request->session->mutex);
    return done;
}

/* With the mutex. */
static void some_done(struct session *session, time_t until)
{
    struct timespec deadline = {.tv_sec = until};

    CU_ASSERT_EQUAL_FATAL(pthread_cond_timedwait(&session->some_done, &session->mutex, &deadline),
                          0);
}

static int result_of(struct request *request)
{
    struct session *session = request->session;
    time_t until = time(NULL) + PATIENCE_S;

    pthread_mutex_lock(&session->mutex);
    while (!request->done)
        some_done(session, until);
    pthread_mutex_unlock(&session->mutex);
    return request->io.result;
}

static int run(struct session *session, enum plx_io_op op, uint64_t offset, void *buffer,
               size_t bytes)
{
    struct request request;

    start(session, &request, op, offset, buffer, bytes);
    return result_of(&request);
}

static unsigned waits_in(struct session *session, unsigned ms)
{
    unsigned before = session->waits;

    usleep(ms * 1000);
    return session->waits - before;
}

static void at_most(unsigned count, unsigned most)
{
    CU_ASSERT(count <= most);
    if (count > most)
        printf("  wait() returned %u times\n", count);
}

/* ---- Reading and writing --------------------------------------------------------------------- */

struct job {
    struct request request;
    struct iovec iov[3];
    uint8_t memory[IO_BYTES_MAX];
    bool busy;
};

static struct {
    struct session session;
    struct job jobs[IN_FLIGHT];
    uint8_t bytes[DISK_BYTES];
    bool locked[DISK_BYTES / 512];
    unsigned busy, wrong, failed;
} shadow;

static void lock_blocks(const struct plx_io *io, bool locked)
{
    memset(shadow.locked + io->offset / 512, locked, io->bytes / 512);
}

static void job_done(struct plx_io *io)
{
    struct job *job = io->owner;

    if (io->result < 0)
        shadow.failed++;
    else if (io->op == PLX_IO_READ && memcmp(job->memory, shadow.bytes + io->offset, io->bytes))
        shadow.wrong++;
    lock_blocks(io, false);
    job->busy = false;
    shadow.busy--;
}

static bool choose_place(struct plx_io *io)
{
    uint64_t block = target.block_size, count = 1 + next_random() % (IO_BYTES_MAX / block);
    uint64_t first = next_random() % (DISK_BYTES / block);

    if (first + count > DISK_BYTES / block)
        count = DISK_BYTES / block - first;
    io->offset = first * block;
    io->bytes = count * block;
    return !memchr(shadow.locked + io->offset / 512, true, io->bytes / 512);
}

static void job_start(struct job *job)
{
    struct plx_io *io = &job->request.io;
    unsigned dice = next_random() % 100;

    *io = (struct plx_io){.done = job_done, .owner = job, .iov = job->iov};
    io->op = dice < 5 ? PLX_IO_FLUSH : dice < 50 ? PLX_IO_READ : PLX_IO_WRITE;
    if (io->op != PLX_IO_FLUSH) {
        size_t first, second;

        if (!choose_place(io))
            return;
        first = 1 + next_random() % (io->bytes - 2);
        second = 1 + next_random() % (io->bytes - first - 1);
        job->iov[0] = (struct iovec){job->memory, first};
        job->iov[1] = (struct iovec){job->memory + first, second};
        job->iov[2] = (struct iovec){job->memory + first + second, io->bytes - first - second};
        io->iovcnt = 3;
        lock_blocks(io, true);
    }
    if (io->op == PLX_IO_WRITE) {
        for (size_t i = 0; i < io->bytes; i += 512)
            memset(job->memory + i, (int)next_random(), 512);
        memcpy(shadow.bytes + io->offset, job->memory, io->bytes);
    }
    job->busy = true;
    shadow.busy++;
    shadow.session.device->ops->submit(shadow.session.device, io);
}

static void random_rounds(void)
{
    struct plx_device *device = shadow.session.device;
    time_t until = time(NULL) + PATIENCE_S;

    pthread_mutex_lock(&shadow.session.mutex);
    for (int round = 0; round < ROUNDS; round++) {
        struct job *job = &shadow.jobs[next_random() % IN_FLIGHT];

        if (!job->busy)
            job_start(job);
        if (next_random() % 3 == 0)
            device->ops->kick(device);
        if (next_random() % 8 == 0)
            device->ops->poll(device, next_random() % 4 == 0);
        if (next_random() % 8 == 0 && shadow.busy) {
            while (device->ops->kick(device))
                device->ops->poll(device, false);
            if (shadow.busy)
                some_done(&shadow.session, until);
        }
    }
    while (device->ops->kick(device))
        device->ops->poll(device, false);
    while (shadow.busy)
        some_done(&shadow.session, until);
    pthread_mutex_unlock(&shadow.session.mutex);
}

static void random_io(uint32_t block_size, uint32_t transfer_max)
{
    target.block_size = block_size;
    target.transfer_max = transfer_max;
    memset(&shadow, 0, sizeof shadow);
    session_open(&shadow.session);
    CU_ASSERT_EQUAL(shadow.session.device->block_size, block_size);
    CU_ASSERT_EQUAL(shadow.session.device->bytes, DISK_BYTES);
    memset(shadow.bytes, 7, DISK_BYTES);
    CU_ASSERT_EQUAL(run(&shadow.session, PLX_IO_WRITE, 0, shadow.bytes, DISK_BYTES), 0);
    random_rounds();
    CU_ASSERT_EQUAL(shadow.wrong, 0);
    CU_ASSERT_EQUAL(shadow.failed, 0);
    CU_ASSERT(target.flushes > 0);
    CU_ASSERT(!transfer_max || target.longest <= transfer_max);
    session_close(&shadow.session);
    target_goes();
    CU_ASSERT_EQUAL(memcmp(shadow.bytes, target.disk, DISK_BYTES), 0);
    CU_ASSERT_EQUAL(target.logins, 1);
}

static void test_random(void)
{
    random_io(512, 0);
}

static void test_random_pieces(void)
{
    random_io(4096, 3);
}

static void test_pieces(void)
{
    static uint8_t buffer[48 * 512];
    struct session session;

    target.transfer_max = 10;
    session_open(&session);
    CU_ASSERT_EQUAL(run(&session, PLX_IO_READ, 512, buffer, sizeof buffer), 0);
    CU_ASSERT_EQUAL(target.reads, 5);
    CU_ASSERT_EQUAL(run(&session, PLX_IO_WRITE, 512, buffer, sizeof buffer), 0);
    CU_ASSERT_EQUAL(target.writes, 5);
    CU_ASSERT_EQUAL(target.longest, 10);
    session_close(&session);
    target_goes();
}

/* ---- Opening --------------------------------------------------------------------------------- */

static void refused(const char *url, int code, const char *word)
{
    struct plx_device_open_options options = {0};
    struct plx_device *device = NULL;
    struct plx_fault fault = {0};

    CU_ASSERT_EQUAL(plx_device_open(url, &options, &device, &fault), code);
    CU_ASSERT_PTR_NULL(device);
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, word));
    if (!strstr(fault.text, word))
        printf("  said: %s\n", fault.text);
}

static void test_refusals(void)
{
    static const uint32_t odd[] = {520, 1024, 0};

    refused(url_of(""), PLX_ERR_LOST, "cannot reach iscsi://127.0.0.1");
    refused("iscsi://127.0.0.1/", PLX_ERR_INVALID, "is no iSCSI URL");
    target.login_status = 2;
    target_comes();
    refused(url_of(""), PLX_ERR_LOST, "the portal answers: check the target's name");
    target_goes();
    target.login_status = 0;
    target.hides_capacity = true;
    target_comes();
    refused(url_of(""), PLX_ERR_LOST, "cannot read the size");
    target_goes();
    target.hides_capacity = false;
    for (unsigned i = 0; odd[i]; i++) {
        target.block_size = odd[i];
        target_comes();
        refused(url_of(""), PLX_ERR_UNSUPPORTED,
                odd[i] == 520 ? "logical blocks of 520 bytes" : "logical blocks of 1024 bytes");
        target_goes();
    }
}

static void test_write_cache(void)
{
    for (int cache = -1; cache <= 1; cache++) {
        struct plx_device *device;

        target.write_cache = cache;
        target_comes();
        device = open_device(false);
        CU_ASSERT_EQUAL(device->volatile_cache, cache != 0);
        plx_device_close(device);
        target_goes();
    }
}

static void test_read_only(void)
{
    static uint8_t buffer[512];
    struct session session;

    session_open(&session);
    session.device->read_only = true;
    CU_ASSERT_EQUAL(run(&session, PLX_IO_WRITE, 0, buffer, 512), PLX_ERR_READONLY);
    CU_ASSERT_EQUAL(run(&session, PLX_IO_FLUSH, 0, NULL, 0), 0);
    CU_ASSERT_EQUAL(run(&session, PLX_IO_READ, 0, buffer, 512), 0);
    CU_ASSERT_EQUAL(target.writes + target.flushes, 0);
    session_close(&session);
    target_goes();
}

/* ---- User and password ----------------------------------------------------------------------- */

static char credentials[] = "/tmp/plx-iscsi-XXXXXX"; /* the file */

static void write_credentials(const char *text)
{
    FILE *file = fopen(credentials, "w");

    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    fputs(text, file);
    fclose(file);
}

static void set_variables(const char *user, const char *password)
{
    setenv("LIBISCSI_CHAP_USERNAME", user, 1);
    setenv("LIBISCSI_CHAP_PASSWORD", password, 1);
}

static void unset_variables(void)
{
    unsetenv("LIBISCSI_CHAP_USERNAME");
    unsetenv("LIBISCSI_CHAP_PASSWORD");
}

static int make_credentials(void)
{
    int fd = mkstemp(credentials);

    unset_variables();
    return fd < 0 || close(fd) || setenv(PLX_CREDENTIALS_VARIABLE, credentials, 1);
}

static int remove_credentials(void)
{
    return unlink(credentials);
}

static void opens(const char *url)
{
    struct plx_device_open_options options = {0};
    struct plx_device *device = NULL;
    struct plx_fault fault = {0};

    if (plx_device_open(url, &options, &device, &fault) != 0)
        printf("  said: %s\n", fault.text);
    CU_ASSERT_PTR_NOT_NULL_FATAL(device);
    CU_ASSERT_STRING_EQUAL(device->name, url);
    plx_device_close(device);
}

/* Refused before anything is asked of the target, and not said again. */
static void test_password_in_url(void)
{
    static const char *const users[] = {"user%hidden@", "user:hidden@", "user%hid@hidden@",
                                        "user%hid?hidden@", NULL};
    struct plx_device_open_options options = {0};
    struct plx_device *device = NULL;
    struct plx_fault fault = {0};
    char text[256];

    for (unsigned i = 0; users[i]; i++) {
        refused(url_of(users[i]), PLX_ERR_INVALID, credentials);
        CU_ASSERT_EQUAL(plx_device_open(url_of(users[i]), &options, &device, &fault),
                        PLX_ERR_INVALID);
        CU_ASSERT_PTR_NULL(strstr(fault.text, "hid"));
        CU_ASSERT_PTR_NULL(strchr(fault.text, '\n'));
    }
    snprintf(text, sizeof text, "%s?target_user=them&target_password=hidden", url_of(""));
    refused(text, PLX_ERR_INVALID, "no password in a volume's name");
    target_comes();
    opens(url_of("user@"));
    target_goes();
}

static void test_chap(void)
{
    char portal[64];

    target.wants_chap = true;
    target_comes();
    write_credentials("other.target me " CHAP_PASSWORD "\n");
    refused(url_of(""), PLX_ERR_PERMISSION, "put a line '" TARGET " USER PASSWORD' into /tmp/plx-");
    write_credentials(TARGET " me " CHAP_PASSWORD "\n");
    opens(url_of(""));
    opens(url_of("me@"));
    CU_ASSERT_FALSE(target.must_prove);
    refused(url_of("you@"), PLX_ERR_PERMISSION, "asks for a user and a password");
    write_credentials("127.0.0.1 me wrong-" CHAP_PASSWORD "\n");
    refused(url_of(""), PLX_ERR_PERMISSION, "no login with line 1 of /tmp/plx-");
    snprintf(portal, sizeof portal, "127.0.0.1 me wrong\n127.0.0.1:%u me " CHAP_PASSWORD,
             ntohs(target.address.sin_port));
    write_credentials(portal);
    opens(url_of(""));
    write_credentials("127.0.0.1 me " CHAP_PASSWORD "\n127.0.0.1 me\n");
    refused(url_of(""), PLX_ERR_INVALID, "line 2: it has not 3 or 5 fields");
    write_credentials("");
    target_goes();
}

/* Without the file, which may have changed or gone by then. */
static void test_chap_comes_back(void)
{
    static uint8_t buffer[512];
    struct session session;

    target.wants_chap = true;
    write_credentials(TARGET " me " CHAP_PASSWORD "\n");
    session_open(&session);
    write_credentials("");
    target_goes();
    target_comes();
    CU_ASSERT_EQUAL(run(&session, PLX_IO_READ, 0, buffer, 512), 0);
    CU_ASSERT_EQUAL(target.logins, 2);
    session_close(&session);
    target_goes();
}

static void test_md5(void)
{
    static const uint8_t expected[MD5_BYTES] = {0x90, 0x01, 0x50, 0x98, 0x3c, 0xd2, 0x4f, 0xb0,
                                                0xd6, 0x96, 0x3f, 0x7d, 0x28, 0xe1, 0x7f, 0x72};
    uint8_t text[3 + 72] = "abc", sum[MD5_BYTES];

    md5(text, 3, sum);
    CU_ASSERT_EQUAL(memcmp(sum, expected, MD5_BYTES), 0);
}

static void refuses_proof(const char *user, const char *password)
{
    target.proof_user = user;
    target.proof_password = password;
    target.must_prove = false;
    refused(url_of(""), PLX_ERR_PERMISSION, "no login with line 1");
    CU_ASSERT(target.must_prove);
    CU_ASSERT_EQUAL(target.logins, 0);
}

/* A target that cannot prove itself is none to read from. */
static void test_mutual_chap(void)
{
    target.wants_chap = true;
    target_comes();
    write_credentials(TARGET " me " CHAP_PASSWORD " them their-password\n");
    refuses_proof(NULL, NULL);
    refuses_proof("them", "their-passwort");
    refuses_proof("them", CHAP_PASSWORD);
    refuses_proof("they", "their-password");
    target.proof_user = "them";
    target.proof_password = "their-password";
    opens(url_of(""));
    CU_ASSERT_EQUAL(target.logins, 1);
    write_credentials("");
    target_goes();
}

/* Nor is one that was gone for a while. */
static void test_mutual_chap_comes_back(void)
{
    static uint8_t buffer[512];
    struct session session;

    target.wants_chap = true;
    target.proof_user = "them";
    target.proof_password = "their-password";
    write_credentials(TARGET " me " CHAP_PASSWORD " them their-password\n");
    session_open(&session);
    write_credentials("");
    target_goes();
    target.must_prove = false;
    target_comes();
    CU_ASSERT_EQUAL(run(&session, PLX_IO_READ, 0, buffer, 512), 0);
    CU_ASSERT(target.must_prove);
    session_close(&session);
    target_goes();
}

/* Those of libiscsi; the file comes before them, all of it. */
static void test_chap_by_variables(void)
{
    target.wants_chap = true;
    target_comes();
    set_variables("me", CHAP_PASSWORD);
    opens(url_of(""));
    write_credentials(TARGET " me wrong-password\n");
    refused(url_of(""), PLX_ERR_PERMISSION, "no login with line 1");
    set_variables("me", "wrong-password");
    setenv("LIBISCSI_CHAP_TARGET_USERNAME", "them", 1);
    setenv("LIBISCSI_CHAP_TARGET_PASSWORD", "their-password", 1);
    write_credentials(TARGET " me " CHAP_PASSWORD "\n");
    opens(url_of(""));
    CU_ASSERT_FALSE(target.must_prove);
    write_credentials("");
    refused(url_of(""), PLX_ERR_PERMISSION, "no login with LIBISCSI_CHAP_USERNAME");
    unsetenv("LIBISCSI_CHAP_TARGET_USERNAME");
    unsetenv("LIBISCSI_CHAP_TARGET_PASSWORD");
    unset_variables();
    target_goes();
}

/* ---- What the target says -------------------------------------------------------------------- */

static void test_errors(void)
{
    static const struct {
        enum plx_io_op op;
        struct answer answer;
        int code;
    } cases[] = {
        {PLX_IO_READ, {2, 3, 0x1100}, PLX_ERR_IO_READ},   /* medium error */
        {PLX_IO_WRITE, {2, 3, 0x0c00}, PLX_ERR_IO_WRITE}, /* the same */
        {PLX_IO_FLUSH, {2, 3, 0x0c00}, PLX_ERR_IO_WRITE},
        {PLX_IO_READ, {2, 5, 0x2100}, PLX_ERR_IO_READ}, /* illegal request */
        {PLX_IO_READ, {2, 4, 0x4400}, PLX_ERR_LOST},    /* hardware error */
        {PLX_IO_WRITE, {2, 7, 0x2700}, PLX_ERR_READONLY},
        {PLX_IO_WRITE, {2, 7, 0x2707}, PLX_ERR_VOLUME_FULL},
        {PLX_IO_READ, {0x18, 0, 0}, PLX_ERR_FENCED}, /* reservation conflict */
        {PLX_IO_WRITE, {0x18, 0, 0}, PLX_ERR_FENCED},
        {PLX_IO_FLUSH, {0x18, 0, 0}, PLX_ERR_FENCED},
        {PLX_IO_READ, {0x30, 0, 0}, PLX_ERR_IO_READ}, /* nothing anyone knows */
    };
    static uint8_t buffer[4096];
    struct session session;

    session_open(&session);
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t bytes = cases[i].op == PLX_IO_FLUSH ? 0 : sizeof buffer;
        int code;

        target_answers(&cases[i].answer, 1);
        code = run(&session, cases[i].op, 0, buffer, bytes);
        CU_ASSERT_EQUAL(code, cases[i].code);
        if (code != cases[i].code)
            printf("  case %u: %d\n", i, code);
    }
    target.short_by = 512;
    CU_ASSERT_EQUAL(run(&session, PLX_IO_READ, 0, buffer, sizeof buffer), PLX_ERR_IO_READ);
    target.short_by = 0;
    CU_ASSERT_EQUAL(run(&session, PLX_IO_READ, 0, buffer, sizeof buffer), 0);
    CU_ASSERT_EQUAL(target.logins, 1);
    session_close(&session);
    target_goes();
}

/* Busy, task set full, unit attention and aborted; then busy again. */
static void test_tried_again(void)
{
    static const struct answer answers[] = {
        {8, 0, 0}, {0x28, 0, 0}, {2, 6, 0x2900}, {2, 11, 0x4b00}, {8, 0, 0},
    };
    static uint8_t buffer[4][512];
    struct request requests[4];
    struct session session;
    unsigned waits;

    session_open(&session);
    target_answers(answers, 5);
    waits = session.waits;
    for (unsigned i = 0; i < 4; i++)
        start(&session, &requests[i], PLX_IO_READ, i * 512, buffer[i], 512);
    for (unsigned i = 0; i < 4; i++)
        CU_ASSERT_EQUAL(result_of(&requests[i]), 0);
    CU_ASSERT_EQUAL(target.reads, 9);
    at_most(session.waits - waits, 60);
    target_answers(answers, 1);
    CU_ASSERT_EQUAL(run(&session, PLX_IO_WRITE, 0, buffer[0], 512), 0);
    CU_ASSERT_EQUAL(target.writes, 2);
    session_close(&session);
    target_goes();
}

/* On a connection that stands. */
static void test_no_answer(void)
{
    static uint8_t buffer[512];
    struct session session;

    timeout_max = 2;
    session_open(&session);
    target.mute = true;
    CU_ASSERT_EQUAL(run(&session, PLX_IO_READ, 0, buffer, 512), PLX_ERR_LOST);
    target.mute = false;
    CU_ASSERT_EQUAL(run(&session, PLX_IO_READ, 0, buffer, 512), 0);
    session_close(&session);
    target_goes();
}

/* ---- Idle, and gone -------------------------------------------------------------------------- */

static void test_idle(void)
{
    static uint8_t buffer[512];
    struct session session;

    session_open(&session);
    at_most(waits_in(&session, 2500), 6);
    CU_ASSERT_EQUAL(run(&session, PLX_IO_READ, 0, buffer, 512), 0);
    session_close(&session);
    target_goes();
}

/* Gone while idle, then for good. */
static void test_gone(void)
{
    static uint8_t buffer[512];
    struct session session;

    tries_max = 2;
    session_open(&session);
    target_goes();
    at_most(waits_in(&session, 3000), 12);
    CU_ASSERT_EQUAL(run(&session, PLX_IO_WRITE, 0, buffer, 512), PLX_ERR_LOST);
    session_close(&session);
}

static void test_gone_under_way(void)
{
    static uint8_t buffer[12][512];
    struct request requests[12]; /* more than the device has slots */
    struct session session;
    unsigned waits;

    tries_max = 1;
    session_open(&session);
    target.mute = true;
    for (unsigned i = 0; i < 12; i++)
        start(&session, &requests[i], PLX_IO_READ, i * 512, buffer[i], 512);
    usleep(200000);
    waits = session.waits;
    target_goes();
    for (unsigned i = 0; i < 12; i++)
        CU_ASSERT_EQUAL(result_of(&requests[i]), PLX_ERR_LOST);
    at_most(session.waits - waits, 40);
    CU_ASSERT_EQUAL(run(&session, PLX_IO_READ, 0, buffer[0], 512), PLX_ERR_LOST);
    CU_ASSERT_EQUAL(run(&session, PLX_IO_WRITE, 0, buffer[0], 512), PLX_ERR_LOST);
    CU_ASSERT_EQUAL(run(&session, PLX_IO_FLUSH, 0, NULL, 0), PLX_ERR_LOST);
    at_most(waits_in(&session, 1000), 6);
    session_close(&session);
}

/* Of a write that follows the end of the connection the head is still sent, and its data are not:
 * a signal that must not end the process. */
static void test_write_behind_the_end(void)
{
    static uint8_t buffer[512];
    struct request request;
    struct session session;

    session_open(&session);
    pthread_mutex_lock(&session.mutex); /* so that nobody notices the end before */
    target_goes();
    prepare(&session, &request, PLX_IO_WRITE, 0, buffer, 512);
    submit(&session, &request);
    pthread_mutex_unlock(&session.mutex);
    target_comes();
    CU_ASSERT_EQUAL(result_of(&request), 0);
    session_close(&session);
    target_goes();
}

static void test_comes_back(void)
{
    static uint8_t buffer[4][512];
    struct request requests[4];
    struct session session;
    unsigned waits;

    session_open(&session);
    memset(target.disk, 9, DISK_BYTES);
    target.mute = true;
    for (unsigned i = 0; i < 3; i++)
        start(&session, &requests[i], PLX_IO_READ, i * 512, buffer[i], 512);
    usleep(200000);
    waits = session.waits;
    target_goes();
    memset(buffer[3], 5, 512);
    start(&session, &requests[3], PLX_IO_WRITE, 4096, buffer[3], 512);
    usleep(300000);
    target.mute = false;
    target_comes();
    for (unsigned i = 0; i < 4; i++)
        CU_ASSERT_EQUAL(result_of(&requests[i]), 0);
    at_most(session.waits - waits, 80);
    CU_ASSERT_EQUAL(memcmp(buffer[0], target.disk, 512), 0);
    CU_ASSERT_EQUAL(memcmp(buffer[3], target.disk + 4096, 512), 0);
    CU_ASSERT_EQUAL(target.logins, 2);
    at_most(waits_in(&session, 1000), 6);
    session_close(&session);
    target_goes();
}

/* Logs in, and hangs up as soon as anything is read. After a while seconds go by quickly: each
 * interruption is one. */
static void test_drops_reads(void)
{
    static uint8_t buffer[512];
    struct request request;
    struct session session;
    unsigned reads;

    session_open(&session);
    target.drops_reads = true;
    start(&session, &request, PLX_IO_READ, 0, buffer, 512);
    at_most(waits_in(&session, 2500), 80);
    CU_ASSERT(target.logins >= 2);
    CU_ASSERT_FALSE(is_done(&request));
    target.mute = true; /* libiscsi leaks when it ends while it connects */
    target.drops_reads = false;
    reads = target.reads;
    for (int i = 0; i < PATIENCE_S * 20 && target.reads == reads; i++)
        usleep(50000);
    for (int i = 0; i < 2000 && !is_done(&request); i++) {
        session.device->ops->interrupt(session.device);
        usleep(5000);
    }
    CU_ASSERT_EQUAL(result_of(&request), PLX_ERR_LOST);
    CU_ASSERT_EQUAL(run(&session, PLX_IO_READ, 0, buffer, 512), PLX_ERR_LOST);
    at_most(waits_in(&session, 1000), 6);
    session_close(&session);
    target_goes();
}

/* As a target does that hands its LUNs to another, and comes back. */
static void test_sends_away(void)
{
    static uint8_t buffer[512];
    struct request request;
    struct session session;

    session_open(&session);
    target.sends_away = true;
    start(&session, &request, PLX_IO_READ, 0, buffer, 512);
    CU_ASSERT_EQUAL(result_of(&request), 0);
    session_close(&session);
    target_goes();
}

/* The session has ended in good order; libiscsi forgets what was under way in such a one. */
static void test_sends_away_for_good(void)
{
    static uint8_t buffer[512];
    struct request request;
    struct session session;

    tries_max = 1;
    session_open(&session);
    target.sends_away = true;
    target.login_status = 2;
    start(&session, &request, PLX_IO_READ, 0, buffer, 512);
    CU_ASSERT_EQUAL(result_of(&request), PLX_ERR_LOST);
    session_close(&session);
    target_goes();
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"random I/O", test_random},
        {"random I/O in pieces", test_random_pieces},
        {"a long request goes in pieces (I3)", test_pieces},
        {"refusals name the reason", test_refusals},
        {"write cache", test_write_cache},
        {"read only", test_read_only},
        {"a password in the URL is refused (device.c, V3)", test_password_in_url},
        {"CHAP by the file (I6)", test_chap},
        {"CHAP when the target comes back", test_chap_comes_back},
        {"the target's MD5", test_md5},
        {"mutual CHAP (I6)", test_mutual_chap},
        {"mutual CHAP when the target comes back", test_mutual_chap_comes_back},
        {"CHAP by libiscsi's variables (I6)", test_chap_by_variables},
        {"the target's errors", test_errors},
        {"what is worth another try", test_tried_again},
        {"no answer (I4)", test_no_answer},
        {"idle (I5)", test_idle},
        {"the target goes while idle (I4, I5)", test_gone},
        {"the target goes with requests under way (I4, I5)", test_gone_under_way},
        {"the target comes back (I4)", test_comes_back},
        {"a write behind the end of a connection", test_write_behind_the_end},
        {"the target asks to log out", test_sends_away},
        {"the target asks to log out, and lets nobody in (I4)", test_sends_away_for_good},
        {"the target hangs up at every read (I4, I5)", test_drops_reads},
    };
    const struct suite_frame frame = {make_credentials, remove_credentials, target_new,
                                      target_delete};
    const char *given = getenv("PLX_TEST_SEED");

    seed = given ? strtoull(given, NULL, 0) : 20261122;
    return SUITE_RUN_IN(&frame, "iscsi", tests);
}
