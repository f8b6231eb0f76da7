/* test_rqlite_tls.c - the registry on rqlite nodes by TLS: whom this host believes to be a node,
 * whom a node believes, what is said when one of them does not, and answers that are lost inside
 * TLS.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "folder.h"
#include "registry/clock.h"
#include "registry/rqlite_inside.h"
#include "suite.h"
#include "today.h"
#include "unit/authority.h"
#include "unit/cluster.h"
#include "unit/rqlite_proxy.h"

#define OK(call) CU_ASSERT_EQUAL_FATAL(say(call, __LINE__), 0)
#define FAILS(code, call) CU_ASSERT_EQUAL(call, PLX_ERR_##code)
#define MINE 11u
#define PASSWORD "hush-hush"
#define SOON_MS 10000u /* long before CALL_MS: nobody tries until the call's time is over */

static char folder[FOLDER_MAX];
static struct cluster nodes; /* one, which asks for certificate and password */
static struct plx_registry *reg;
static struct plx_fault fault;

static int say(int code, int line)
{
    if (code)
        fprintf(stderr, "\n  line %d: %s: %s | %s\n", line, plx_error_name(code),
                reg ? plx_registry_error(reg) : "", fault.text);
    return code;
}

/* ---- Certificates ------------------------------------------------------------------------ */

static bool make_certificates(void)
{
    static const struct certificate all[] = {
        {"node", "ca", "IP:127.0.0.1", NULL, false},
        {"node-new", "ca", "IP:127.0.0.1", "serverAuth", false},
        {"node-late", "ca", "IP:127.0.0.1", NULL, true},
        {"node-elsewhere", "ca", "DNS:elsewhere,IP:127.0.0.2", NULL, false},
        {"node-client", "ca", "IP:127.0.0.1", "clientAuth", false},
        {"node-other", "other", "IP:127.0.0.1", NULL, false},
        {"node-namesake", "namesake", "IP:127.0.0.1", NULL, false},
        {"host", "ca", "DNS:host", NULL, false},
        {"host-new", "ca", "DNS:host", "clientAuth", false},
        {"host-late", "ca", "DNS:host", NULL, true},
        {"host-server", "ca", "DNS:host", "serverAuth", false},
        {"host-other", "other", "DNS:host", NULL, false},
    };
    bool made = authority_make(folder, "ca", "Registry") &&
                authority_make(folder, "namesake", "Registry") &&
                authority_make(folder, "other", "Other");

    for (size_t i = 0; i < sizeof all / sizeof all[0] && made; i++)
        made = certificate_make(folder, &all[i]);
    return made;
}

/* One certificate takes the place of another, with its key. */
static void install(const char *name, const char *as)
{
    char command[400];

    usleep(20000); /* a later time than that of the one before */
    snprintf(command, sizeof command,
             "cd '%s' && cp --remove-destination %s.key %s.key && "
             "cp --remove-destination %s.pem %s.pem",
             folder, name, as, name, as);
    CU_ASSERT_EQUAL_FATAL(system(command), 0);
}

/* A file's path; the text is good until the eighth call after it. */
static const char *in_folder(const char *name)
{
    static char text[8][100];
    static unsigned turn;
    char *path = text[turn++ % 8];

    snprintf(path, sizeof text[0], "%s/%s", folder, name);
    return path;
}

static int start_nodes(void)
{
    const struct cluster_guard guard = {folder, true, "parallax", PASSWORD};

    if (!folder_make("tls", folder) || !make_certificates())
        return 1;
    return !cluster_start_guarded(&nodes, &guard);
}

static int stop_nodes(void)
{
    char command[100];

    cluster_stop(&nodes);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) != 0;
}

/* ---- Opened and refused ------------------------------------------------------------------ */

static void check_words(const char *text, const char *words)
{
    if (!strstr(text, words))
        printf("\n    '%s' lacks '%s'", text, words);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, words));
    CU_ASSERT_PTR_NULL(strstr(text, "hush"));
}

static void refuse(int code, const struct plx_registry_nodes *access, const char *words)
{
    uint64_t since = plx_clock_ns(CLOCK_MONOTONIC);
    struct plx_registry *none = NULL;

    fault = (struct plx_fault){0};
    CU_ASSERT_EQUAL(plx_registry_open_rqlite(access, "test", &none, &fault), code);
    CU_ASSERT_PTR_NULL(none);
    check_words(fault.text, words);
    CU_ASSERT((plx_clock_ns(CLOCK_MONOTONIC) - since) / 1000000 < SOON_MS);
}

static void accept_it(const struct plx_registry_nodes *access)
{
    struct plx_registry *opened = NULL;

    OK(plx_registry_open_rqlite(access, "test", &opened, &fault));
    plx_registry_close(opened);
}

static struct plx_registry_nodes at(const char *const *addresses)
{
    struct plx_registry_nodes access = cluster_access(&nodes);

    access.addresses = addresses;
    return access;
}

static struct plx_registry_vdi new_store(void)
{
    struct plx_registry_store spec = {.name = "demo", .extent_blocks = 1024}, store;
    struct plx_registry_volume volume = {.path = "/dev/demo", .extents = 8};
    struct plx_registry_vdi vdi = {.name = "web", .size_bytes = 1 << 20, .sector_size = 512}, made;
    struct plx_registry_instance row = {.id = MINE, .role = "handler"};

    plx_uuid_random(spec.uuid);
    plx_uuid_random(volume.uuid);
    plx_uuid_random(vdi.id);
    OK(plx_registry_store_create(reg, &spec, &volume, 1, &store));
    row.store = vdi.store = store.id;
    OK(plx_registry_import_instances(reg, &row, 1));
    OK(plx_registry_vdi_create(reg, &vdi, 64, &made));
    return made;
}

static unsigned events(const char *what)
{
    struct plx_registry_event *list;
    unsigned found = 0;
    size_t count;

    OK(plx_registry_event_list(reg, 100000, &list, &count));
    for (size_t i = 0; i < count; i++)
        found += !strcmp(list[i].what, what);
    free(list);
    return found;
}

/* ---- Mutual TLS -------------------------------------------------------------------------- */

static void test_works(void)
{
    struct plx_registry_label label = {"good", 7, 1000};
    struct plx_registry_extent extent;
    struct plx_registry_lock lock;
    struct plx_registry_vdi vdi, row;
    bool fresh;

    CU_ASSERT_FATAL(cluster_wipe(&nodes));
    OK(cluster_open(&nodes, "test", &reg, &fault));
    vdi = new_store();
    OK(plx_registry_vdi_lock(reg, vdi.id, MINE, &lock));
    OK(plx_registry_label_set(reg, &lock, &label));
    OK(plx_registry_extent_claim(reg, vdi.store, MINE, PLX_EXTENT_DATA, 0, &extent, &fresh));
    OK(plx_registry_vdi_unlock(reg, &lock, NULL));
    OK(plx_registry_check(reg));
    plx_registry_close(reg);
    OK(cluster_open(&nodes, "test", &reg, &fault));
    OK(plx_registry_vdi_get_by_id(reg, vdi.id, &row));
    CU_ASSERT(row.epoch == 1 && row.owner == 0);
    plx_registry_close(reg);
    reg = NULL;
}

/* Not every node asks for a certificate or a password. */
static void test_one_sided(void)
{
    const struct cluster_guard guard = {.folder = folder};
    struct plx_registry_nodes access;
    struct cluster open;

    CU_ASSERT_FATAL(cluster_start_guarded(&open, &guard));
    access = cluster_access(&open);
    CU_ASSERT(!access.certificate && !access.user);
    accept_it(&access);
    access.certificate = in_folder("host.pem");
    access.key = in_folder("host.key");
    accept_it(&access);
    cluster_stop(&open);
}

/* ---- Who asks ---------------------------------------------------------------------------- */

static void show(struct plx_registry_nodes *access, const char *certificate, const char *key)
{
    access->certificate = in_folder(certificate);
    access->key = in_folder(key);
}

static void test_certificate_refused(void)
{
    struct plx_registry_nodes access = cluster_access(&nodes);

    access.certificate = access.key = NULL;
    refuse(PLX_ERR_REGISTRY, &access, "asks for a certificate, and none is given");
    show(&access, "host-other.pem", "host-other.key");
    refuse(PLX_ERR_REGISTRY, &access, "host-other.pem: it is not of the authority");
    show(&access, "host-late.pem", "host-late.key");
    refuse(PLX_ERR_REGISTRY, &access, "host-late.pem: it has expired: renew it");
    show(&access, "host-server.pem", "host-server.key");
    refuse(PLX_ERR_REGISTRY, &access, "not for clients");
    show(&access, "host.pem", "host-new.key");
    refuse(PLX_ERR_REGISTRY, &access, "host-new.key is not that of the certificate");
    show(&access, "host-new.pem", "host-new.key");
    accept_it(&access);
}

static void put(const char *name, const char *text, mode_t mode)
{
    int fd = open(in_folder(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    CU_ASSERT_EQUAL_FATAL(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    CU_ASSERT_EQUAL_FATAL(fchmod(fd, mode), 0);
    close(fd);
}

static void test_user_refused(void)
{
    struct plx_registry_nodes access = cluster_access(&nodes);

    access.user = access.password_file = NULL;
    refuse(PLX_ERR_REGISTRY, &access, "asks for a user and a password, and none is given");
    access = cluster_access(&nodes);
    access.user = "somebody";
    refuse(PLX_ERR_REGISTRY, &access, "refuses user 'somebody'");
    access = cluster_access(&nodes);
    put("guess", "hush", 0600);
    access.password_file = in_folder("guess");
    refuse(PLX_ERR_REGISTRY, &access, "/guess is not the user's");
    put("guess", PASSWORD, 0400); /* no newline */
    accept_it(&access);
}

/* ---- Files ------------------------------------------------------------------------------- */

static void test_secrets_open(void)
{
    static const mode_t bad[] = {0640, 0604, 0620, 0610};
    struct plx_registry_nodes access = cluster_access(&nodes);

    install("host", "mine");
    show(&access, "mine.pem", "mine.key");
    accept_it(&access);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CU_ASSERT_EQUAL(chmod(access.key, bad[i]), 0);
        refuse(PLX_ERR_PERMISSION, &access, "has a secret in it and is open to others");
        check_words(fault.text, "chmod 600 /");
    }
    access = cluster_access(&nodes);
    access.password_file = in_folder("guess");
    put("guess", PASSWORD, 0644);
    refuse(PLX_ERR_PERMISSION, &access, "has a secret in it and is open to others");
    put("guess", "\n", 0600);
    refuse(PLX_ERR_INVALID, &access, "should have a password in it");
    put("guess", PASSWORD "\n\n", 0600);
    refuse(PLX_ERR_INVALID, &access, "without control characters");
    access.password_file = in_folder("openssl.log/none");
    refuse(PLX_ERR_SYSTEM, &access, "the file of the password for the registry: cannot read");
}

static void test_files_missing(void)
{
    struct plx_registry_nodes access = cluster_access(&nodes);

    access.ca = in_folder("none.pem");
    refuse(PLX_ERR_NOT_FOUND, &access,
           "the certificates of the registry's authority: cannot read /");
    access.ca = folder;
    refuse(PLX_ERR_INVALID, &access, "is no regular file");
    access.ca = in_folder("host.key");
    refuse(PLX_ERR_REGISTRY, &access, "has no certificates of an authority in PEM form");
    access = cluster_access(&nodes);
    access.certificate = in_folder("none.pem");
    refuse(PLX_ERR_NOT_FOUND, &access, "our certificate for the registry: cannot read /");
    access.certificate = in_folder("host.csr");
    refuse(PLX_ERR_REGISTRY, &access,
           "host.csr has no certificate in PEM form that OpenSSL takes: error:");
    access = cluster_access(&nodes);
    access.key = in_folder("none.key");
    refuse(PLX_ERR_NOT_FOUND, &access,
           "the key of our certificate for the registry: cannot read /");
    access.key = in_folder("host.csr");
    refuse(PLX_ERR_REGISTRY, &access, "or not PEM's form");
}

/* A passphrase is asked for at no terminal: nobody may be there, and who is there waits. */
static void test_passphrase(void)
{
    struct plx_registry_nodes access = cluster_access(&nodes);
    char command[300];

    snprintf(command, sizeof command,
             "cd '%s' && umask 077 && openssl ec -in host.key -aes256 -passout pass:hush "
             "-out locked.key 2>/dev/null",
             folder);
    CU_ASSERT_EQUAL_FATAL(system(command), 0);
    access.key = in_folder("locked.key");
    refuse(PLX_ERR_REGISTRY, &access, "or it has a passphrase");
}

/* ---- Who answers ------------------------------------------------------------------------- */

static void test_node_refused(void)
{
    static const struct {
        const char *name, *words;
    } wrong[] = {
        {"node-late", "shows a certificate that has expired"},
        {"node-elsewhere", "shows a certificate for other names"},
        {"node-client", "is not for servers"},
        {"node-other", "of an authority that is not in /"},
        {"node-namesake", "of an authority that is not in /"},
    };
    struct plx_registry_nodes access = cluster_access(&nodes);

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        install(wrong[i].name, "node");
        refuse(PLX_ERR_REGISTRY, &access, wrong[i].words);
    }
    install("node-new", "node");
    accept_it(&access);
    access.ca = in_folder("other.pem");
    refuse(PLX_ERR_REGISTRY, &access, "of an authority that is not in /");
}

/* RQLITE-11: no variable says whom to trust. */
static void test_environment(void)
{
    struct plx_registry_nodes access = cluster_access(&nodes);

    setenv("SSL_CERT_FILE", in_folder("other.pem"), 1);
    setenv("SSL_CERT_DIR", folder, 1);
    setenv("https_proxy", "http://127.0.0.1:1", 1);
    install("node-other", "node");
    refuse(PLX_ERR_REGISTRY, &access, "of an authority that is not in /");
    install("node-new", "node");
    accept_it(&access);
    unsetenv("SSL_CERT_FILE");
    unsetenv("SSL_CERT_DIR");
    unsetenv("https_proxy");
}

/* ---- Addresses --------------------------------------------------------------------------- */

/* These do not connect. */
static int look_at(const struct plx_registry_nodes *access)
{
    struct plx_nodes kept;
    int code = plx_nodes_open(access, &kept, &fault);

    if (!code)
        plx_nodes_close(&kept);
    return code;
}

static void test_addresses(void)
{
    static const char *const bad[] = {"",
                                      "127.0.0.1:4001",
                                      "ftp://x",
                                      "http://",
                                      "http://127.0.0.1/?y",
                                      "http://127.0.0.1/db",
                                      "http://127.0.0.1:70000",
                                      "http://127.0.0.1 x",
                                      "https://127.0.0.1\n",
                                      "http://user:hush@127.0.0.1",
                                      "https://user:hush@127.0.0.1",
                                      "user:hush@127.0.0.1",
                                      "http://user:hush@x y",
                                      "http://127.0.0.1:4001@192.0.2.1"};
    static const char *const here[] = {"http://127.0.0.1:4001", "http://127.9.9.9",
                                       "http://localhost:4001/", "http://[::1]:4001"};
    static const char *const away[] = {"http://192.0.2.1:4001",
                                       "http://example.org",
                                       "http://127.0.0.1.example.org",
                                       "http://localhost.example.org",
                                       "http://[::2]:4001",
                                       "http://0.0.0.0:4001",
                                       "http://128.0.0.1"};
    static const char *const mixed[] = {"https://127.0.0.1:4001", "http://127.0.0.1:4011"};
    struct plx_registry_nodes access = {.addresses = bad, .count = 1};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++, access.addresses++) {
        FAILS(INVALID, look_at(&access));
        check_words(fault.text, strchr(bad[i], '@') ? "has a user or a password in it"
                                                    : "is no address of an rqlite node");
    }
    access.addresses = here;
    for (size_t i = 0; i < sizeof here / sizeof here[0]; i++, access.addresses++)
        OK(look_at(&access));
    access.addresses = away;
    for (size_t i = 0; i < sizeof away / sizeof away[0]; i++, access.addresses++) {
        access.plain = false;
        FAILS(INVALID, look_at(&access));
        check_words(fault.text, "owns all disks");
        access.plain = true;
        OK(look_at(&access));
    }
    access = cluster_access(&nodes);
    access.addresses = mixed;
    access.count = 2;
    access.plain = true;
    FAILS(INVALID, look_at(&access));
    check_words(fault.text, "give all of them https://");
    access.count = 0;
    FAILS(INVALID, look_at(&access));
    access.count = ADDRESSES + 1;
    FAILS(INVALID, look_at(&access));
}

static void test_together(void)
{
    struct plx_registry_nodes access = cluster_access(&nodes);
    const char *plain = "http://127.0.0.1:4001";

    access.ca = NULL;
    FAILS(INVALID, look_at(&access));
    check_words(fault.text, "the certificates of their authority (ca) is missing");
    access = cluster_access(&nodes);
    access.key = NULL;
    FAILS(INVALID, look_at(&access));
    check_words(fault.text, "and its key go together");
    access = cluster_access(&nodes);
    access.certificate = NULL;
    FAILS(INVALID, look_at(&access));
    access = cluster_access(&nodes);
    access.user = NULL;
    FAILS(INVALID, look_at(&access));
    check_words(fault.text, "the file of its password go together");
    access.user = "a:b";
    FAILS(INVALID, look_at(&access));
    access.user = "";
    FAILS(INVALID, look_at(&access));
    access = cluster_access(&nodes);
    access.password_file = NULL;
    FAILS(INVALID, look_at(&access));
    access = cluster_access(&nodes);
    access.addresses = &plain;
    FAILS(INVALID, look_at(&access));
    check_words(fault.text, "are for https://");
    access.ca = access.certificate = access.key = NULL;
    OK(look_at(&access));
}

/* ---- Nodes of another kind --------------------------------------------------------------- */

static void test_other_kind(void)
{
    char by_tls[40], by_http[40];
    const char *list[2] = {by_tls, nodes.addresses[0]}, *one = by_http;
    struct plx_registry_nodes access;
    struct cluster plain;

    CU_ASSERT_FATAL(cluster_start(&plain, 1, true));
    snprintf(by_tls, sizeof by_tls, "https://127.0.0.1:%u", plain.http[0]);
    access = at(list);
    refuse(PLX_ERR_REGISTRY, &access, "does not speak TLS: start it with -http-cert");
    access.count = 2; /* the others are asked all the same */
    accept_it(&access);
    cluster_stop(&plain);
    snprintf(by_http, sizeof by_http, "http://127.0.0.1:%u", nodes.http[0]);
    access = (struct plx_registry_nodes){.addresses = &one, .count = 1};
    refuse(PLX_ERR_REGISTRY, &access, "speaks TLS: address all nodes by https://");
}

/* One whose TLS is of another time. */
static void test_old_tls(void)
{
    char where[32], address[48];
    const char *list[1] = {address};
    struct plx_registry_nodes access = at(list);
    unsigned port = cluster_port();
    pid_t server;

    snprintf(where, sizeof where, "127.0.0.1:%u", port);
    snprintf(address, sizeof address, "https://%s", where);
    fflush(NULL);
    server = fork();
    if (server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), 2);
        execlp("openssl", "openssl", "s_server", "-quiet", "-accept", where, "-cert",
               in_folder("host.pem"), "-key", in_folder("host.key"), "-tls1_1", "-cipher",
               "DEFAULT@SECLEVEL=0", NULL);
        _exit(127);
    }
    refuse(PLX_ERR_REGISTRY, &access, "no version or cipher of TLS in common");
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
}

/* ---- By way of a proxy ------------------------------------------------------------------- */

static struct proxy *proxy;
static char by_way[40];

static void open_by_way(void)
{
    static const char *const list[1] = {by_way};
    struct plx_registry_nodes access = at(list);

    proxy = proxy_start(nodes.http[0]);
    CU_ASSERT_PTR_NOT_NULL_FATAL(proxy);
    proxy_relay(proxy, PROXY_PASS, 0, 0);
    snprintf(by_way, sizeof by_way, "https://127.0.0.1:%u", proxy->port);
    CU_ASSERT_FATAL(cluster_wipe(&nodes));
    OK(plx_registry_open_rqlite(&access, "test", &reg, &fault));
}

static void close_by_way(void)
{
    proxy_relay(proxy, PROXY_PASS, 0, 0);
    plx_registry_close(reg);
    proxy_stop(proxy);
    reg = NULL;
}

static void hurry(uint64_t ms)
{
    ((struct plx_rqlite *)reg->driver)->call_ms = ms;
}

/* RQLITE-3: wherever in TLS a connection ends, each change is made once, and says what it did. */
static void test_lost(void)
{
    enum { ROUNDS = 60 };
    struct plx_registry_vdi vdi, row = {0};
    struct plx_registry_lock lock;
    unsigned met = 0;
    uint64_t number;

    open_by_way();
    vdi = new_store();
    srandom((unsigned)plx_today());
    for (number = 1; number <= ROUNDS; number++) {
        enum proxy_fate fate = number % 3 ? PROXY_DROP : PROXY_CUT;

        /* The second time in the next connection's handshake, most often. */
        proxy_relay(proxy, fate, (unsigned)random() % 6000, 1 + (unsigned)random() % 4000);
        OK(plx_registry_vdi_lock(reg, vdi.id, MINE, &lock));
        CU_ASSERT_EQUAL(lock.epoch, number);
        OK(plx_registry_vdi_resize(reg, &lock, (1 << 20) + number));
        OK(plx_registry_vdi_unlock(reg, &lock, NULL));
        met += proxy->met;
    }
    proxy_relay(proxy, PROXY_PASS, 0, 0);
    OK(plx_registry_vdi_get_by_id(reg, vdi.id, &row));
    CU_ASSERT(row.epoch == ROUNDS && row.size_bytes == (1 << 20) + ROUNDS);
    CU_ASSERT(events("vdi lock") == ROUNDS && events("vdi resize") == ROUNDS);
    CU_ASSERT_EQUAL(events("vdi unlock"), ROUNDS);
    CU_ASSERT(met >= ROUNDS / 2);
    OK(plx_registry_check(reg));
    close_by_way();
}

/* Bytes that are not what was sent are no answer, and no node that has no TLS either (RQLITE-13).
 */
static void test_damaged(void)
{
    enum { ROUNDS = 12 };
    struct plx_registry_store found;
    struct plx_registry_lock lock;
    unsigned asked;
    struct plx_registry_vdi vdi;

    open_by_way();
    vdi = new_store();
    srandom((unsigned)plx_today());
    for (unsigned i = 1; i <= ROUNDS; i++) {
        /* In what is asked, from the version on, which is the second byte. */
        proxy_relay(proxy, PROXY_DAMAGE, i < 3 ? i : 5 + (unsigned)random() % 900, 0);
        OK(plx_registry_vdi_lock(reg, vdi.id, MINE, &lock));
        CU_ASSERT_EQUAL(proxy->met, 1);
        CU_ASSERT_EQUAL(lock.epoch, i);
        proxy_relay(proxy, PROXY_PASS, 0, 0);
        OK(plx_registry_vdi_unlock(reg, &lock, NULL));
    }
    CU_ASSERT(events("vdi lock") == ROUNDS && events("vdi unlock") == ROUNDS);

    /* In the answer: kind and version of its first record. */
    proxy_relay(proxy, PROXY_PASS, 0, 0);
    OK(plx_registry_store_get(reg, "demo", &found));
    asked = proxy->asked;
    for (unsigned i = 0; i < 3; i++) {
        proxy_relay(proxy, PROXY_DAMAGE, asked + i, 0);
        OK(plx_registry_store_get(reg, "demo", &found));
        CU_ASSERT_EQUAL(proxy->met, 1);
        OK(plx_registry_store_get(reg, "demo", &found)); /* a connection of its own */
    }
    close_by_way();
}

/* A node that says nothing, in the handshake as well. */
static void test_mute(void)
{
    struct plx_registry_store found;
    uint64_t since;

    open_by_way();
    new_store();
    hurry(1500);
    for (unsigned bytes = 0; bytes <= 600; bytes += 600) { /* the open connection; the next one */
        proxy_relay(proxy, PROXY_MUTE, bytes, 0);
        since = plx_clock_ns(CLOCK_MONOTONIC);
        FAILS(REGISTRY, plx_registry_store_get(reg, "demo", &found));
        CU_ASSERT_EQUAL(proxy->met, 1);
        check_words(plx_registry_error(reg), "does not answer: Timeout was reached");
        CU_ASSERT((plx_clock_ns(CLOCK_MONOTONIC) - since) / 1000000 < SOON_MS);
    }
    hurry(CALL_MS);
    proxy_relay(proxy, PROXY_PASS, 0, 0);
    OK(plx_registry_store_get(reg, "demo", &found));
    close_by_way();
}

/* A new connection reads the files anew: what was renewed counts, for the same handle. */
static void test_renewed(void)
{
    struct plx_registry_store found;
    struct plx_registry_nodes access;
    const char *list[ADDRESSES] = {by_way};

    open_by_way();
    new_store();
    plx_registry_close(reg);
    install("host", "mine");
    for (unsigned i = 1; i < ADDRESSES; i++)
        list[i] = "https://127.0.0.1:1"; /* nobody is there */
    access = at(list);
    access.count = ADDRESSES;
    show(&access, "mine.pem", "mine.key");
    OK(plx_registry_open_rqlite(&access, "test", &reg, &fault));
    install("host-late", "mine");
    OK(plx_registry_store_get(reg, "demo", &found)); /* on the connection that is open */
    proxy_relay(proxy, PROXY_CUT, 0, 0);
    hurry(1500); /* the others may come back, for all that is known */
    FAILS(REGISTRY, plx_registry_store_get(reg, "demo", &found));
    check_words(plx_registry_error(reg), "mine.pem: it has expired: renew it");
    CU_ASSERT_EQUAL(unlink(in_folder("mine.key")), 0);
    FAILS(REGISTRY, plx_registry_store_get(reg, "demo", &found));
    check_words(plx_registry_error(reg), "cannot read /");
    install("host-new", "mine");
    hurry(CALL_MS);
    OK(plx_registry_store_get(reg, "demo", &found));
    CU_ASSERT_STRING_EQUAL(found.name, "demo");
    close_by_way();
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"mutual TLS and a user", test_works},
        {"nodes that ask for nothing", test_one_sided},
        {"a certificate that a node refuses", test_certificate_refused},
        {"a user that a node refuses", test_user_refused},
        {"secrets open to others", test_secrets_open},
        {"files that are not there", test_files_missing},
        {"a key with a passphrase", test_passphrase},
        {"a node's certificate that is wrong", test_node_refused},
        {"the environment", test_environment},
        {"addresses", test_addresses},
        {"what goes together", test_together},
        {"nodes of another kind", test_other_kind},
        {"old TLS", test_old_tls},
        {"answers lost in TLS", test_lost},
        {"bytes damaged", test_damaged},
        {"a node that is mute", test_mute},
        {"files renewed", test_renewed},
    };
    const struct suite_frame frame = {start_nodes, stop_nodes, NULL, NULL};

    if (!cluster_is_possible() || !authority_is_possible())
        return 77;
    return SUITE_RUN_IN(&frame, "registry on rqlite by TLS", tests);
}
