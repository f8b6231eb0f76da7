/* test_rqlite.c - the registry on rqlite nodes: answers that are lost, late or wrong, requests that
 * arrive twice or long afterwards, leaders that are killed. What the registry promises anyway is
 * tested by test_registry.c and test_registry_race.c (PLX_REGISTRY_NODES).
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "folder.h"
#include "registry/collections.h"
#include "registry/rqlite_inside.h"
#include "suite.h"
#include "unit/cluster.h"
#include "unit/rqlite_proxy.h"

#define OK(call) CU_ASSERT_EQUAL_FATAL(say(call, __LINE__), 0)
#define FAILS(code, call) CU_ASSERT_EQUAL(call, PLX_ERR_##code)
#define MINE 11u
#define THEIRS 12u

static struct cluster nodes;
static struct proxy *proxy;
static struct plx_registry *reg, *other; /* reg: by way of the proxy */
static struct plx_registry_store store;
static struct plx_fault fault;

static int say(int code, int line)
{
    if (code)
        fprintf(stderr, "\n  line %d: %s: %s | %s\n", line, plx_error_name(code),
                reg ? plx_registry_error(reg) : "", fault.text);
    return code;
}

static int start_nodes(void)
{
    return !cluster_start(&nodes, 1, true);
}

static int stop_nodes(void)
{
    cluster_stop(&nodes);
    return 0;
}

static int open_by_way(struct plx_registry **ret_reg)
{
    const char *address = proxy->address;
    struct plx_registry_nodes access = {.addresses = &address, .count = 1};

    return plx_registry_open_rqlite(&access, "test", ret_reg, &fault);
}

static void begin(void)
{
    struct plx_registry_store spec = {.name = "demo", .extent_blocks = 1024};
    struct plx_registry_volume volume = {.path = "/dev/demo", .extents = 8};

    reg = other = NULL;
    CU_ASSERT_FATAL(cluster_wipe(&nodes));
    proxy = proxy_start(nodes.http[0]);
    CU_ASSERT_PTR_NOT_NULL_FATAL(proxy);
    OK(open_by_way(&reg));
    OK(cluster_open(&nodes, "other", &other, &fault));
    plx_uuid_random(spec.uuid);
    plx_uuid_random(volume.uuid);
    OK(plx_registry_store_create(reg, &spec, &volume, 1, &store));
    for (uint64_t id = MINE; id <= THEIRS; id++) {
        struct plx_registry_instance row = {.id = id, .store = store.id, .role = "handler"};

        OK(plx_registry_import_instances(other, &row, 1));
    }
}

static void end(void)
{
    proxy_plan(proxy, "", PROXY_PASS, 0, 0);
    plx_registry_close(reg);
    plx_registry_close(other);
    proxy_stop(proxy);
}

static struct plx_registry_vdi new_vdi(struct plx_registry *by, const char *name)
{
    struct plx_registry_vdi spec = {.store = store.id, .size_bytes = 1 << 20, .sector_size = 512};
    struct plx_registry_vdi made;

    plx_uuid_random(spec.id);
    snprintf(spec.name, sizeof spec.name, "%s", name);
    OK(plx_registry_vdi_create(by, &spec, 64, &made));
    return made;
}

static unsigned events(const char *what)
{
    struct plx_registry_event *list;
    unsigned found = 0;
    size_t count;

    OK(plx_registry_event_list(other, 100000, &list, &count));
    for (size_t i = 0; i < count; i++)
        found += !strcmp(list[i].what, what);
    free(list);
    return found;
}

static struct plx_registry_vdi row_of(const struct plx_registry_vdi *vdi)
{
    struct plx_registry_vdi row = {0};

    OK(plx_registry_vdi_get_by_id(other, vdi->id, &row));
    return row;
}

/* The present call may take so long. */
static void hurry(uint64_t ms)
{
    ((struct plx_rqlite *)reg->driver)->call_ms = ms;
}

/* ---- Attempts that fail ------------------------------------------------------------------ */

static enum proxy_fate fate;

/* The next change meets the fate. */
static void meet(void)
{
    proxy_plan(proxy, "/db/request", fate, 0, 1);
}

#define MET(call)                                                                                  \
    do {                                                                                           \
        meet();                                                                                    \
        OK(call);                                                                                  \
        CU_ASSERT_EQUAL(proxy->met, 1);                                                            \
    } while (0)

/* Each change of a disk's life meets the fate, and yet is made once, and says what it did. */
static void live(const char *name)
{
    struct plx_registry_label label = {"good", 7, 1000};
    struct plx_registry_vdi vdi, spec = {.store = store.id, .size_bytes = 1 << 20};
    struct plx_registry_collection collection;
    struct plx_registry_extent extent;
    struct plx_registry_lock lock, taken;
    uint64_t hold, *kept;
    size_t count;
    bool fresh;

    spec.sector_size = 512;
    plx_uuid_random(spec.id);
    snprintf(spec.name, sizeof spec.name, "%s", name);
    MET(plx_registry_vdi_create(reg, &spec, 64, &vdi));
    CU_ASSERT_STRING_EQUAL(vdi.id, spec.id);
    MET(plx_registry_vdi_lock(reg, vdi.id, MINE, &lock));
    CU_ASSERT_EQUAL(lock.epoch, 1);
    MET(plx_registry_label_set(reg, &lock, &label));
    MET(plx_registry_vdi_resize(reg, &lock, 2 << 20));
    MET(plx_registry_extent_claim(reg, store.id, MINE, PLX_EXTENT_DATA, 0, &extent, &fresh));
    CU_ASSERT(extent.generation > 0 && extent.owner == MINE);
    MET(plx_registry_extent_release(reg, store.id, &extent));
    MET(plx_registry_hold(reg, vdi.id, 5, MINE, &hold));
    MET(plx_registry_intent_begin(reg, &lock, NULL, 0, &kept, &count));
    CU_ASSERT(count == 2 && kept[0] == 5 && kept[1] == 7);
    free(kept);
    MET(plx_registry_intent_end(reg, &lock));
    MET(plx_registry_release(reg, hold));
    MET(plx_registry_collection_begin(reg, store.id, MINE, 0, &collection));
    CU_ASSERT_EQUAL(collection.number % 2, 1);
    MET(plx_registry_collection_end(reg, store.id, MINE, 0, 0));
    MET(plx_registry_vdi_takeover(reg, &lock, THEIRS, &taken));
    CU_ASSERT(taken.epoch == 2 && taken.instance == THEIRS);
    MET(plx_registry_label_remove(reg, &taken, "good"));
    MET(plx_registry_vdi_unlock(reg, &taken, NULL));
    MET(plx_registry_vdi_lock(reg, vdi.id, MINE, &lock));
    CU_ASSERT_EQUAL(lock.epoch, 3);
    MET(plx_registry_vdi_delete(reg, &lock));
}

static void expect_lives(unsigned lives)
{
    static const struct {
        const char *what;
        unsigned times;
    } each[] = {{"vdi create", 1},   {"vdi lock", 2},     {"label set", 1},
                {"vdi resize", 1},   {"extent claim", 1}, {"extent release", 1},
                {"vdi takeover", 1}, {"label remove", 1}, {"vdi unlock", 1},
                {"vdi delete", 1}};

    for (size_t i = 0; i < sizeof each / sizeof each[0]; i++) {
        unsigned found = events(each[i].what);

        if (found != each[i].times * lives)
            printf("\n    '%s': %u times in %u lives", each[i].what, found, lives);
        CU_ASSERT_EQUAL(found, each[i].times * lives);
    }
}

/* RQLITE-2, RQLITE-3, RQLITE-4 */
static void test_lost(void)
{
    static const enum proxy_fate fates[] = {PROXY_DROP, PROXY_CUT, PROXY_TWICE, PROXY_HOLD};
    char name[16];

    for (unsigned i = 0; i < 4; i++) {
        fate = fates[i];
        snprintf(name, sizeof name, "web-%u", i);
        live(name);
        expect_lives(i + 1);
    }
    CU_ASSERT(proxy_release(proxy)); /* long afterwards all that was held arrives */
    expect_lives(4);
    OK(plx_registry_check(reg));
}

/* An answer that comes when nobody waits for it any more. */
static void test_stalled(void)
{
    struct plx_registry_vdi vdi = new_vdi(other, "web");
    struct plx_registry_lock lock;

    fate = PROXY_STALL;
    MET(plx_registry_vdi_lock(reg, vdi.id, MINE, &lock));
    CU_ASSERT(lock.epoch == 1 && events("vdi lock") == 1);
    proxy_plan(proxy, "/db/query", PROXY_STALL, 0, 1);
    OK(plx_registry_vdi_get_by_id(reg, vdi.id, &vdi)); /* RQLITE-7 */
    CU_ASSERT(proxy->met == 1 && vdi.owner == MINE);
}

/* RQLITE-3: the first attempt is on its way, the second is refused; then the first one arrives. */
static void test_refused_then_arrives(void)
{
    struct plx_registry_vdi vdi = new_vdi(other, "web"), spec, made;
    struct plx_registry_lock theirs, mine;

    OK(plx_registry_vdi_lock(other, vdi.id, THEIRS, &theirs));
    fate = PROXY_HOLD;
    meet();
    FAILS(BUSY, plx_registry_vdi_lock(reg, vdi.id, MINE, &mine));
    CU_ASSERT_EQUAL(proxy->met, 1);
    OK(plx_registry_vdi_unlock(other, &theirs, NULL));
    CU_ASSERT(proxy_release(proxy));
    CU_ASSERT_EQUAL(row_of(&vdi).owner, 0);

    /* A name that is taken, and then is not. */
    spec = vdi;
    plx_uuid_random(spec.id);
    meet();
    FAILS(EXISTS, plx_registry_vdi_create(reg, &spec, 64, &made));
    OK(plx_registry_vdi_lock(other, vdi.id, THEIRS, &theirs));
    OK(plx_registry_vdi_rename(other, &theirs, "www"));
    CU_ASSERT(proxy_release(proxy));
    FAILS(NOT_FOUND, plx_registry_vdi_get(other, store.id, "web", &made));
}

/* RQLITE-3: a call that was given up is over before the next one of its handle. */
static void test_given_up(void)
{
    struct plx_registry_vdi vdi = new_vdi(other, "web"), row;
    struct plx_registry_lock lock;

    OK(plx_registry_vdi_lock(reg, vdi.id, MINE, &lock));
    hurry(300);
    proxy_plan(proxy, "/db/request", PROXY_HOLD, 0, 1000);
    FAILS(REGISTRY, plx_registry_vdi_resize(reg, &lock, 2 << 20));
    CU_ASSERT(plx_registry_error(reg)[0]);
    FAILS(REGISTRY, plx_registry_vdi_get_by_id(reg, vdi.id, &row)); /* nor is it known now */
    proxy_plan(proxy, "", PROXY_PASS, 0, 0);
    hurry(CALL_MS);
    OK(plx_registry_vdi_get_by_id(reg, vdi.id, &row)); /* who looks again sees what stays */
    CU_ASSERT_EQUAL(row.size_bytes, 1 << 20);
    CU_ASSERT(proxy_release(proxy));
    CU_ASSERT_EQUAL(row_of(&vdi).size_bytes, 1 << 20);
    OK(plx_registry_vdi_resize(reg, &lock, 3 << 20));
    CU_ASSERT_EQUAL(events("vdi resize"), 1);

    /* One that was made, of which nobody has heard. */
    hurry(300);
    proxy_plan(proxy, "/db/request", PROXY_DROP, 0, 1000);
    FAILS(REGISTRY, plx_registry_vdi_resize(reg, &lock, 4 << 20));
    proxy_plan(proxy, "", PROXY_PASS, 0, 0);
    hurry(CALL_MS);
    OK(plx_registry_vdi_get_by_id(reg, vdi.id, &row));
    CU_ASSERT(row.size_bytes == 4 << 20 && events("vdi resize") == 2);
}

/* RQLITE-4: a lock that was got, and lost to a takeover before its answer was asked for again. */
static void test_taken_meanwhile(void)
{
    struct plx_registry_vdi vdi = new_vdi(other, "web");
    struct plx_registry_lock lock, taken, held = {.instance = MINE, .epoch = 1};

    hurry(300);
    proxy_plan(proxy, "/db/request", PROXY_DROP, 0, 1000);
    FAILS(REGISTRY, plx_registry_vdi_lock(reg, vdi.id, MINE, &lock));
    proxy_plan(proxy, "", PROXY_PASS, 0, 0);
    hurry(CALL_MS);
    strcpy(held.vdi, vdi.id);
    OK(plx_registry_vdi_takeover(other, &held, THEIRS, &taken));
    FAILS(BUSY, plx_registry_vdi_lock(reg, vdi.id, MINE, &lock));
    CU_ASSERT(row_of(&vdi).owner == THEIRS && row_of(&vdi).epoch == 2);
}

/* ---- Answers from outside (RQLITE-8) ----------------------------------------------------- */

static void expect_strange(const char *status, const char *body)
{
    struct plx_registry_store found;
    const char *said;
    int code;

    proxy_answer(proxy, status, body);
    proxy_plan(proxy, "/db/query", PROXY_ANSWER, 0, 1000);
    code = plx_registry_store_get(reg, "demo", &found);
    if (code != PLX_ERR_REGISTRY)
        printf("\n    %s %s: %d", status, body, code);
    CU_ASSERT_EQUAL(code, PLX_ERR_REGISTRY);
    said = plx_registry_error(reg);
    CU_ASSERT(said[0] != 0);
    for (; *said; said++)
        CU_ASSERT((unsigned char)*said >= ' ');
}

static void test_strange(void)
{
    static const char *const bodies[] = {
        "",
        "<html>\x1b[2J</html>",
        "{}",
        "[]",
        "{\"results\":{}}",
        "{\"results\":[]}",
        "{\"results\":[1]}",
        "{\"results\":[{},{}]}",
        "{\"results\":[{\"error\":7}]}",
        "{\"results\":[{\"error\":\"\\u001b[31m\"}]}",
        "{\"results\":[{\"error\":\"x\",\"columns\":[\"a\"],\"values\":[[1]]}]}",
        "{\"results\":[{\"values\":[[1]]}]}",
        "{\"results\":[{\"columns\":[\"a\"],\"values\":{}}]}",
        "{\"results\":[{\"columns\":[\"a\"],\"values\":[1]}]}",
        "{\"results\":[{\"columns\":[\"a\",\"b\"],\"values\":[[1]]}]}",
        "{\"results\":[{\"columns\":[\"a\"],\"values\":[[[1]]]}]}",
        "{\"results\":[{\"columns\":[\"a\"],\"values\":[[true]]}]}",
        "{\"results\":[{\"columns\":[\"a\"],\"values\":[[9223372036854775808]]}]}",
        "{\"results\":[{\"columns\":[\"a\"],\"values\":[[\"\\u0000\"]]}]}",
        "{\"results\":[{\"columns\":[1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7],\"values\":"
        "[[1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7]]}]}",
        "{\"results\":[{\"error\":\"x\"},{}]}",
        "{\"error\":\"\\u001b[2Jleader not found\"}",
    };
    struct plx_registry_vdi vdi = new_vdi(other, "web");
    struct plx_registry_store found;
    struct plx_registry_lock lock;

    hurry(300);
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++)
        expect_strange("200 OK", bodies[i]);
    expect_strange("401 Unauthorized", "no");
    expect_strange("301 Moved", "elsewhere");
    expect_strange("503 Service Unavailable", "leader not found\n");
    proxy_plan(proxy, "/db/query", PROXY_ENDLESS, 0, 1000);
    hurry(CALL_MS);
    FAILS(REGISTRY, plx_registry_store_get(reg, "demo", &found));
    CU_ASSERT_PTR_NOT_NULL(strstr(plx_registry_error(reg), "more than 32 MiB"));

    /* Fewer columns than are read, and more rows than there can be: no harm. */
    proxy_answer(proxy, "200 OK", "{\"results\":[{\"columns\":[\"a\"],\"values\":[[1]]}]}");
    proxy_plan(proxy, "/db/query", PROXY_ANSWER, 0, 1);
    OK(plx_registry_store_get(reg, "demo", &found));
    CU_ASSERT_EQUAL(found.name[0], 0);
    proxy_answer(proxy, "200 OK",
                 "{\"results\":[{},{},{},{},{},{},{},{\"columns\":[\"epoch\"],"
                 "\"values\":[[1],[2]]},{}]}");
    proxy_plan(proxy, "/db/request", PROXY_ANSWER, 0, 1);
    FAILS(REGISTRY, plx_registry_vdi_lock(reg, vdi.id, MINE, &lock));
    CU_ASSERT_PTR_NOT_NULL(strstr(plx_registry_error(reg), "2 rows instead of one"));
    OK(plx_registry_store_get(reg, "demo", &found));
    CU_ASSERT_STRING_EQUAL(found.name, "demo");
}

/* Numbers are exact, and texts are what they were. */
static void test_exact(void)
{
    static const char text[] = "it's \"quoted\", \\ and %s; \n\t\x7f \xc3\xa4\xe2\x82\xac";
    struct plx_registry_vdi vdi = new_vdi(other, "web");
    struct plx_registry_label label = {"good", INT64_MAX, INT64_MAX - 1}, found;
    struct plx_registry_event *list;
    struct plx_registry_lock lock;
    size_t count;

    OK(plx_registry_vdi_lock(reg, vdi.id, MINE, &lock));
    OK(plx_registry_label_set(reg, &lock, &label));
    OK(plx_registry_label_get(reg, vdi.id, "good", &found));
    CU_ASSERT(found.seq == INT64_MAX && found.time_ns == INT64_MAX - 1);
    OK(plx_registry_event_add(reg, "note", "subject", text));
    OK(plx_registry_event_list(reg, 1, &list, &count));
    CU_ASSERT_EQUAL_FATAL(count, 1);
    CU_ASSERT_STRING_EQUAL(list[0].detail, text);
    free(list);
    FAILS(INVALID, plx_registry_event_add(reg, "note", "subject", "\xff"));
    OK(plx_registry_event_add(reg, "note", "subject", "again"));
    CU_ASSERT_EQUAL(events("note"), 2);
}

/* ---- What rqlite's transactions do not do (RQLITE-5, RQLITE-6) --------------------------- */

static void test_whole_or_not(void)
{
    struct plx_registry_vdi vdi = new_vdi(other, "web");
    struct plx_registry_lock lock, none;
    struct plx_registry_vdi *list;
    size_t count;

    /* A reference that is broken, alone and behind a change that was put off. */
    FAILS(NOT_FOUND, plx_registry_vdi_lock(reg, vdi.id, 4711, &none));
    CU_ASSERT_EQUAL(events("vdi lock"), 0);
    OK(plx_registry_vdi_lock(reg, vdi.id, MINE, &lock));
    plx_registry_put_off(reg, PLX_PUT_OFF);
    OK(plx_registry_vdi_resize(reg, &lock, 2 << 20));
    FAILS(NOT_FOUND, plx_registry_vdis_takeover(reg, MINE, 4711, &list, &count));
    CU_ASSERT_EQUAL(events("vdi takeover"), 0);
    CU_ASSERT(row_of(&vdi).owner == MINE && row_of(&vdi).size_bytes == 2 << 20);
    CU_ASSERT_EQUAL(events("vdi resize"), 1);

    /* A `must` that cannot be prepared, behind a statement that has changed a row. */
    CU_ASSERT_FATAL(cluster_sql(&nodes, "ALTER TABLE holds RENAME TO away"));
    FAILS(REGISTRY, plx_registry_vdi_rename(reg, &lock, "www"));
    CU_ASSERT_PTR_NOT_NULL(strstr(plx_registry_error(reg), "the registry is damaged"));
    CU_ASSERT_EQUAL(events("vdi rename"), 0);
    CU_ASSERT_FATAL(cluster_sql(&nodes, "ALTER TABLE away RENAME TO holds"));
    OK(plx_registry_vdi_rename(reg, &lock, "www"));

    /* Anything else that cannot be prepared: it is noticed. */
    CU_ASSERT_FATAL(cluster_sql(&nodes, "ALTER TABLE events RENAME TO away"));
    FAILS(REGISTRY, plx_registry_vdi_resize(reg, &lock, 3 << 20));
    CU_ASSERT_PTR_NOT_NULL(strstr(plx_registry_error(reg), "in part"));
}

/* ---- Sessions (RQLITE-10) ---------------------------------------------------------------- */

static unsigned sessions(void)
{
    static const struct plx_sql count = {.text = "SELECT count(*) FROM requests"};
    struct plx_rqlite *rq = other->driver;
    struct plx_answer answer;
    int64_t number = -1;

    OK(plx_rqlite_begin(rq, &fault));
    OK(plx_rqlite_query(rq, &count, 1, &answer, &fault));
    plx_answer_number(&answer, 0, &number);
    plx_answer_done(&answer);
    return (unsigned)number;
}

static void test_sessions(void)
{
    struct plx_registry_vdi vdi = new_vdi(other, "web");
    struct plx_registry_lock lock;
    struct plx_registry *third;

    CU_ASSERT_EQUAL(sessions(), 2);
    OK(cluster_open(&nodes, "third", &third, &fault));
    OK(plx_registry_check(third));
    CU_ASSERT_EQUAL(sessions(), 2); /* who only reads has none */
    CU_ASSERT_FATAL(cluster_sql(&nodes, "INSERT INTO requests (number, seen_ns) VALUES (8, 1)"));
    OK(plx_registry_event_add(third, "note", "", ""));
    CU_ASSERT_EQUAL(sessions(), 3); /* and the old one is gone */
    plx_registry_close(third);
    CU_ASSERT_EQUAL(sessions(), 2);

    /* Gone under a handle: it begins a new one, unless something was lost. */
    CU_ASSERT_FATAL(cluster_sql(&nodes, "DELETE FROM requests"));
    OK(plx_registry_vdi_lock(reg, vdi.id, MINE, &lock));
    CU_ASSERT_EQUAL(lock.epoch, 1);
    fate = PROXY_HOLD;
    meet();
    CU_ASSERT_FATAL(cluster_sql(&nodes, "DELETE FROM requests"));
    FAILS(REGISTRY, plx_registry_vdi_resize(reg, &lock, 2 << 20));
    CU_ASSERT(proxy_release(proxy));
    CU_ASSERT_EQUAL(row_of(&vdi).size_bytes, 1 << 20); /* nor is it made in any other session */
    OK(plx_registry_vdi_resize(reg, &lock, 2 << 20));
    CU_ASSERT_EQUAL(events("vdi resize"), 1);
}

/* ---- Opening (RQLITE-9) ------------------------------------------------------------------ */

static void refuse_open(int code, const char *text)
{
    struct plx_registry *none = NULL;

    CU_ASSERT_EQUAL(cluster_open(&nodes, "test", &none, &fault), code);
    CU_ASSERT_PTR_NULL(none);
    if (!strstr(fault.text, text))
        printf("\n    '%s' lacks '%s'", fault.text, text);
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, text));
}

static void test_opening(void)
{
    const char *list[2] = {"http://127.0.0.1:1", nodes.addresses[0]};
    struct plx_registry_nodes access = {.addresses = list, .count = 2};
    struct plx_registry *none = NULL;
    struct cluster loose;

    OK(plx_registry_open_rqlite(&access, "test", &none, &fault)); /* one of them works */
    plx_registry_close(none);
    none = NULL;
    FAILS(UNSUPPORTED, plx_registry_get(reg, "/nonexistent", &fault));

    CU_ASSERT_FATAL(cluster_sql(&nodes, "CREATE VIEW v AS SELECT * FROM vdis"));
    refuse_open(PLX_ERR_REGISTRY, "that Parallax has not made");
    CU_ASSERT_FATAL(cluster_sql(&nodes, "DROP VIEW v"));
    CU_ASSERT_FATAL(cluster_sql(&nodes, "INSERT INTO migrations VALUES (4711, 1)"));
    refuse_open(PLX_ERR_UNSUPPORTED, "use a newer Parallax");
    CU_ASSERT_FATAL(cluster_wipe(&nodes));
    CU_ASSERT_FATAL(cluster_sql(&nodes, "CREATE TABLE bookmarks (id)"));
    refuse_open(PLX_ERR_REGISTRY, "not a Parallax registry");
    CU_ASSERT_FATAL(cluster_sql(&nodes, "INSERT INTO bookmarks VALUES (1)"));

    if (cluster_start(&loose, 1, false)) {
        FAILS(REGISTRY, cluster_open(&loose, "test", &none, &fault));
        CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "-fk"));
    }
    cluster_stop(&loose);
}

/* ---- Three nodes ------------------------------------------------------------------------- */

static void kill_soon(struct cluster *three, int node, unsigned after_us)
{
    fflush(NULL);
    if (fork() == 0) {
        usleep(after_us);
        kill(three->pid[node], SIGKILL);
        _exit(0);
    }
}

/* Whose locks and sizes count up while leaders die: each change is made once. */
static void test_leader_killed(void)
{
    enum { KILLS = 3 };
    struct plx_registry_vdi vdi, row;
    struct plx_registry_lock lock;
    struct cluster three;
    unsigned rounds = 0;

    CU_ASSERT_FATAL(cluster_start(&three, 3, true));
    plx_registry_close(other);
    plx_registry_close(reg);
    OK(cluster_open(&three, "test", &reg, &fault));
    OK(cluster_open(&three, "other", &other, &fault));
    OK(plx_registry_store_create(
        reg, &store,
        &(struct plx_registry_volume){
            .uuid = "12345678-1234-4234-8234-123456789abc", .path = "/x", .extents = 4},
        1, &store));
    OK(plx_registry_import_instances(
        reg, &(struct plx_registry_instance){.id = MINE, .store = store.id, .role = "handler"}, 1));
    vdi = new_vdi(reg, "web");
    for (unsigned kills = 0; kills < KILLS; kills++) {
        int leader = cluster_leader(&three);

        CU_ASSERT_FATAL(leader >= 0);
        kill_soon(&three, leader, 100000 + 40000 * kills);
        for (unsigned i = 0; i < 100; i++, rounds++) {
            OK(plx_registry_vdi_lock(reg, vdi.id, MINE, &lock));
            CU_ASSERT_EQUAL(lock.epoch, rounds + 1);
            OK(plx_registry_vdi_get_by_id(reg, vdi.id, &row));
            OK(plx_registry_vdi_resize(reg, &lock, row.size_bytes + 1));
            OK(plx_registry_vdi_unlock(reg, &lock, NULL));
        }
        cluster_kill(&three, (unsigned)leader);
        CU_ASSERT_FATAL(cluster_start_node(&three, (unsigned)leader));
        wait(NULL);
    }
    row = row_of(&vdi);
    CU_ASSERT(row.epoch == rounds && row.size_bytes == (1 << 20) + rounds);
    CU_ASSERT_EQUAL(events("vdi lock"), rounds);
    CU_ASSERT_EQUAL(events("vdi resize"), rounds);
    CU_ASSERT_EQUAL(events("vdi unlock"), rounds);
    OK(plx_registry_check(reg));
    plx_registry_close(other);
    plx_registry_close(reg);
    cluster_stop(&three);
    OK(open_by_way(&reg));
    OK(cluster_open(&nodes, "other", &other, &fault));
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"answers lost, requests twice", test_lost},
        {"answers too late", test_stalled},
        {"refused, then arrives", test_refused_then_arrives},
        {"given up", test_given_up},
        {"taken over unheard", test_taken_meanwhile},
        {"answers that are not rqlite's", test_strange},
        {"numbers and texts", test_exact},
        {"whole or not at all", test_whole_or_not},
        {"sessions", test_sessions},
        {"opening", test_opening},
        {"leaders killed", test_leader_killed},
    };
    const struct suite_frame frame = {start_nodes, stop_nodes, begin, end};

    return cluster_is_possible() ? SUITE_RUN_IN(&frame, "registry on rqlite", tests) : 77;
}
