/* iscsi_target.c - see iscsi_target.h. */
#include "unit/iscsi_target.h"

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
#include <unistd.h>

#include <CUnit/Basic.h>

#define SEGMENT_MAX (64u << 10) /* of one PDU, and of what is written without being asked for */
#define CHAP_CHALLENGE "0x00112233445566778899aabbccddeeff"
/* The MD5 sum of the number 1, the password and the challenge. */
#define CHAP_RESPONSE "0x6f83bc90133e3c62ffb0a47a948c2b72"

int tries_max, timeout_max;
struct target target;

/* ---- libiscsi, less patient than the device asks it to be ------------------------------------ */

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

void md5(uint8_t *bytes, size_t count, uint8_t ret_sum[MD5_BYTES])
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

void target_comes(void)
{
    for (unsigned i = 0; i < CONNECTIONS; i++)
        target.connections[i].fd = -1;
    target.stop = eventfd(0, EFD_CLOEXEC);
    target.listener = bound_socket();
    CU_ASSERT_EQUAL_FATAL(listen(target.listener, 8), 0);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&target.thread, NULL, target_thread, NULL), 0);
}

void target_goes(void)
{
    CU_ASSERT_EQUAL(eventfd_write(target.stop, 1), 0);
    pthread_join(target.thread, NULL);
    close(target.stop);
}

void target_new(void)
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

void target_delete(void)
{
    close(target.reserved);
}

void target_answers(const struct answer *answers, unsigned count)
{
    pthread_mutex_lock(&target.mutex);
    memcpy(target.answers, answers, count * sizeof *answers);
    target.answers_left = count;
    pthread_mutex_unlock(&target.mutex);
}
