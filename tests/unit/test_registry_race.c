/* test_registry_race.c - the registry under several at once, and when who uses it is killed. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "registry/sqlite_inside.h"
#include "suite.h"
#include "unit/cluster.h"
#include "unit/fresh_registry.h"

/* A handle must not be open across fork(): children of a process with one would share its locks. */
static pid_t fork_clean(void)
{
    pid_t child;

    fflush(NULL);
    close_registry(reg);
    reg = NULL;
    child = fork();
    CU_ASSERT_FATAL(child >= 0);
    return child;
}

/* Runs work(n) in count processes at once, each with a handle of its own; returns how many of
 * them returned 0. */
static int race(int count, int (*work)(struct plx_registry *own, int n))
{
    int won = 0, status, go[2];
    char byte;

    CU_ASSERT_EQUAL_FATAL(pipe(go), 0);
    for (int i = 0; i < count; i++) {
        if (fork_clean() == 0) {
            struct plx_registry *own;
            int code = open_registry(registry_path, "racer", &own, NULL);

            close(go[1]);
            if (code || read(go[0], &byte, 1))
                _exit(100);
            code = work(own, i);
            close_registry(own);
            _exit(code ? 1 : 0);
        }
    }
    close(go[0]);
    usleep(100000);
    close(go[1]); /* the start signal */
    for (int i = 0; i < count; i++) {
        CU_ASSERT_FATAL(wait(&status) > 0);
        CU_ASSERT_FATAL(WIFEXITED(status) && WEXITSTATUS(status) != 100);
        won += WEXITSTATUS(status) == 0;
    }
    open_here();
    return won;
}

static int make_paths(struct plx_registry *own, int n)
{
    char name[96], path[PLX_PATH_MAX + 160];
    struct plx_paths mine;
    FILE *file;

    snprintf(name, sizeof name, "%s/fresh", directory);
    if (plx_paths_init(&mine, name, NULL))
        return 1;
    snprintf(path, sizeof path, "%s/seen-%s", directory, mine.host);
    file = fopen(path, "w");
    fclose(file);
    return 0;
}

static void test_host_id_race(void)
{
    char command[160];

    CU_ASSERT_EQUAL(race(8, make_paths), 8);
    snprintf(command, sizeof command, "test $(ls %s/seen-* | wc -l) = 1", directory);
    CU_ASSERT_EQUAL(system(command), 0);
}

static int make_instances(struct plx_registry *own, int n)
{
    struct plx_instance instance;
    int code = 0;

    for (int i = 0; i < 200 && !code; i++) {
        code = plx_instance_create(&paths, registry_path, "racer", &instance, NULL);
        if (!code)
            plx_instance_close(&instance);
    }
    return code;
}

/* Many at a time get numbers, and bytes, of their own; what cannot be locked is no instance. */
static void test_instance_bytes(void)
{
    struct plx_instance a = new_instance(), b = new_instance(), none;
    char away[200];

    CU_ASSERT_NOT_EQUAL(a.row.id, b.row.id);
    CU_ASSERT(!is_dead(&a.row) && !is_dead(&b.row));
    plx_instance_close(&a);
    CU_ASSERT(is_dead(&a.row) && !is_dead(&b.row));
    plx_instance_close(&b);
    CU_ASSERT_EQUAL(race(6, make_instances), 6);
    snprintf(away, sizeof away, "%s/none", directory);
    FAILS(NOT_FOUND, plx_instance_create(&paths, away, "handler", &none, &fault));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, away));
}

static struct plx_instance racers;

static int claim_many(struct plx_registry *own, int n)
{
    struct plx_registry_extent extent;
    bool fresh;
    int code = 0;

    for (int i = 0; i < 50 && !code; i++)
        do /* on a slow disk eight of them may keep one waiting until it gives up */
            code = plx_registry_extent_claim(own, store.id, racers.row.id, PLX_EXTENT_DATA, 0,
                                             &extent, &fresh);
        while (code == PLX_ERR_BUSY);
    return code;
}

static void test_extent_race(void)
{
    struct plx_registry_extent *list;
    size_t count;

    store = make_store("wide", 2, 300);
    racers = new_instance();
    CU_ASSERT_EQUAL(race(8, claim_many), 8);
    OK(plx_registry_extent_list(reg, store.id, racers.row.id, &list, &count));
    CU_ASSERT_EQUAL(count, 400); /* each claim won an extent of its own */
    free(list);
    CU_ASSERT(race(8, claim_many) < 4); /* 198 are left; who gets how many is chance, */
    OK(plx_registry_extent_list(reg, store.id, racers.row.id, &list, &count));
    CU_ASSERT_EQUAL(count, 598); /* but none is lost or given twice */
    free(list);
    FAILS(NOSPACE, claim_many(reg, 0));
    plx_instance_close(&racers);
}

static struct plx_registry_vdi contested;

static int lock_once(struct plx_registry *own, int n)
{
    struct plx_registry_lock lock;

    return plx_registry_vdi_lock(own, contested.id, racers.row.id, &lock);
}

static struct plx_registry_lock contested_lock;

static int take_once(struct plx_registry *own, int n)
{
    struct plx_registry_lock lock;

    return plx_registry_vdi_takeover(own, &contested_lock, racers.row.id, &lock);
}

/* Counts with the size under the lock: a lost update would show two holders at once. */
static int count_up(struct plx_registry *own, int n)
{
    struct plx_registry_lock lock;
    struct plx_registry_vdi vdi;

    for (int done = 0; done < 10;) {
        int code = plx_registry_vdi_lock(own, contested.id, racers.row.id, &lock);

        if (code == PLX_ERR_BUSY)
            continue;
        if (code || plx_registry_vdi_get_by_id(own, contested.id, &vdi) ||
            plx_registry_vdi_resize(own, &lock, vdi.size_bytes + 1) ||
            plx_registry_vdi_unlock(own, &lock, NULL))
            return 1;
        done++;
    }
    return 0;
}

static void test_lock_race(void)
{
    struct plx_registry_vdi vdi;

    racers = new_instance();
    contested = new_vdi("web", 0);
    CU_ASSERT_EQUAL(race(8, lock_once), 1);
    strcpy(contested_lock.vdi, contested.id);
    contested_lock.instance = racers.row.id;
    contested_lock.epoch = 1;
    CU_ASSERT_EQUAL(race(8, take_once), 1);
    contested_lock.epoch = 2;
    OK(plx_registry_vdi_unlock(reg, &contested_lock, NULL));
    CU_ASSERT_EQUAL(race(4, count_up), 4);
    OK(plx_registry_vdi_get_by_id(reg, contested.id, &vdi));
    CU_ASSERT_EQUAL(vdi.size_bytes, (1 << 20) + 40);
    CU_ASSERT_EQUAL(vdi.epoch, 42);
    plx_instance_close(&racers);
}

/* Whoever lets go notes in the size which snapshot it has let go, under its lock; a reader that
 * holds one finds it not let go at any time before the release. */
static struct plx_registry_lock letting_go;

static int let_go(struct plx_registry *own)
{
    uint64_t *kept, seq;
    size_t count;

    for (int done = 0; done < 100; done++) {
        bool held;

        if (plx_registry_intent_begin(own, &letting_go, NULL, 0, &kept, &count))
            return 1;
        held = count > 0;
        seq = held ? 1 : 7;
        free(kept);
        if (plx_registry_vdi_resize(own, &letting_go, seq) || /* gone, unless it is held */
            plx_registry_vdi_resize(own, &letting_go, 1) ||   /* there again */
            plx_registry_intent_end(own, &letting_go))
            return 1;
    }
    return 0;
}

static int read_held(struct plx_registry *own)
{
    struct plx_registry_vdi vdi;
    uint64_t hold;

    for (int done = 0; done < 30;) {
        int code = plx_registry_hold(own, letting_go.vdi, 7, racers.row.id, &hold);

        if (code == PLX_ERR_BUSY)
            continue;
        if (code || plx_registry_vdi_get_by_id(own, letting_go.vdi, &vdi) || vdi.size_bytes == 7 ||
            plx_registry_vdi_get_by_id(own, letting_go.vdi, &vdi) || vdi.size_bytes == 7 ||
            plx_registry_release(own, hold))
            return 1;
        done++;
    }
    return 0;
}

static int hold_or_let_go(struct plx_registry *own, int n)
{
    return n == 0 ? let_go(own) : read_held(own);
}

static void test_hold_race(void)
{
    struct plx_registry_vdi vdi = new_vdi("web", 0);

    racers = new_instance();
    OK(plx_registry_vdi_lock(reg, vdi.id, racers.row.id, &letting_go));
    CU_ASSERT_EQUAL(race(4, hold_or_let_go), 4);
    plx_instance_close(&racers);
}

/* ---- Crashes ----------------------------------------------------------------------------- */

/* A holder is killed: its lock and extent stay, it is proven dead, and is taken over. */
static void test_killed_holder(void)
{
    struct plx_registry_vdi vdi = new_vdi("web", 0), *list;
    struct plx_registry_instance *instances, row;
    struct plx_registry_extent *extents;
    struct plx_registry_lock lock, mine;
    struct plx_instance me;
    size_t count;
    int ready[2];
    char byte;
    pid_t child;

    CU_ASSERT_EQUAL_FATAL(pipe(ready), 0);
    child = fork_clean();
    if (child == 0) {
        struct plx_registry *own;
        struct plx_registry_extent extent;
        bool fresh, ok;

        close(ready[0]);
        ok = !open_registry(registry_path, "victim", &own, NULL) &&
             !plx_instance_create(&paths, registry_path, "handler", &me, NULL);
        me.row.store = store.id;
        ok = ok && !plx_registry_instance_register(own, &me.row) &&
             !plx_registry_vdi_lock(own, vdi.id, me.row.id, &lock) &&
             !plx_registry_extent_claim(own, store.id, me.row.id, PLX_EXTENT_DATA, 0, &extent,
                                        &fresh);
        if (ok && write(ready[1], "x", 1) == 1)
            pause();
        _exit(1);
    }
    close(ready[1]);
    CU_ASSERT_EQUAL_FATAL(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    open_here();
    OK(plx_registry_instance_list(reg, store.id, &instances, &count));
    CU_ASSERT_EQUAL_FATAL(count, 1);
    row = instances[0];
    free(instances);
    CU_ASSERT_EQUAL(row.pid, child);
    CU_ASSERT(!is_dead(&row));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "is running"));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    CU_ASSERT(is_dead(&row));

    me = new_instance();
    FAILS(BUSY, plx_registry_vdi_lock(reg, vdi.id, me.row.id, &mine));
    OK(plx_registry_locks_of(reg, row.id, &list, &count));
    CU_ASSERT_EQUAL_FATAL(count, 1);
    strcpy(lock.vdi, list[0].id);
    lock.instance = list[0].owner;
    lock.epoch = list[0].epoch;
    free(list);
    OK(plx_registry_vdi_takeover(reg, &lock, me.row.id, &mine));
    FAILS(BUSY, plx_registry_instance_unregister(reg, row.id));
    OK(plx_registry_extent_list(reg, store.id, row.id, &extents, &count));
    CU_ASSERT_EQUAL_FATAL(count, 1);
    OK(plx_registry_extent_take(reg, store.id, extents[0].no, row.id, me.row.id, extents));
    free(extents);
    OK(plx_registry_instance_unregister(reg, row.id));

    /* Only a lock that is free, or another boot, is death. */
    row = me.row;
    CU_ASSERT(!is_dead(&row));
    plx_uuid_random(row.host);
    CU_ASSERT(!is_dead(&row)); /* this machine, whatever it is called */
    strcpy(row.boot, "00000000-0000-4000-8000-000000000000");
    CU_ASSERT(is_dead(&row) == (paths.boot[0] != 0)); /* rebooted */
    plx_instance_close(&me);
    row = me.row;
    CU_ASSERT(is_dead(&row));
}

static void churn(struct plx_registry *own)
{
    for (;;) {
        struct plx_registry_extent extent;
        struct plx_registry_lock lock;
        bool fresh;

        if (!plx_registry_vdi_lock(own, contested.id, racers.row.id, &lock))
            plx_registry_vdi_unlock(own, &lock, NULL);
        if (!plx_registry_extent_claim(own, store.id, racers.row.id, PLX_EXTENT_DATA, 0, &extent,
                                       &fresh)) {
            extent.type = PLX_EXTENT_UNUSED;
            plx_registry_extent_release(own, store.id, &extent);
        }
    }
}

/* Writers killed in the middle: the registry stays whole and usable. */
static void test_killed_writers(void)
{
    racers = new_instance();
    contested = new_vdi("web", 0);
    for (int round = 0; round < 10; round++) {
        pid_t children[3];
        uint64_t epoch;
        struct plx_registry_vdi vdi;

        for (int i = 0; i < 3; i++) {
            children[i] = fork_clean();
            if (children[i] == 0) {
                struct plx_registry *own;

                if (!open_registry(registry_path, "churn", &own, NULL))
                    churn(own);
                _exit(1);
            }
        }
        usleep(20000 + 7000 * (useconds_t)round);
        for (int i = 0; i < 3; i++) {
            kill(children[i], SIGKILL);
            waitpid(children[i], NULL, 0);
        }
        open_here(); /* the first one since: recovers the log of the dead */
        OK(plx_registry_check(reg));
        OK(plx_registry_vdi_get_by_id(reg, contested.id, &vdi));
        epoch = vdi.epoch;
        if (vdi.owner) {
            struct plx_registry_lock held = {.instance = vdi.owner, .epoch = epoch};

            strcpy(held.vdi, vdi.id);
            OK(plx_registry_vdi_unlock(reg, &held, NULL));
        }
    }
    plx_instance_close(&racers);
}

static int open_fresh(struct plx_registry *own, int n)
{
    struct plx_registry *fresh;
    char path[128];
    int code;

    snprintf(path, sizeof path, "%s/race.db", directory);
    code = open_registry(path, "racer", &fresh, &fault);
    if (!code) {
        code = plx_registry_event_add(fresh, "hello", "world", "");
        close_registry(fresh);
    }
    return code;
}

static void test_create_race(void)
{
    if (on_nodes)
        empty_nodes();
    CU_ASSERT_EQUAL(race(12, open_fresh), 12);
}

/* SQLITE-8: who has given up waiting still outlasts an ordinary commit of another process. */
static void test_given_up_waits(void)
{
    struct plx_sqlite lite = {.given_up = true};

    CU_ASSERT_EQUAL(plx_sqlite_wait_turn(&lite, 0), 1);
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"host id made by several at once", test_host_id_race},
        {"files of instances", test_instance_bytes},
        {"extents claimed by several at once", test_extent_race},
        {"one lock wanted by several at once", test_lock_race},
        {"instants held and let go at once", test_hold_race},
        {"holder killed, taken over (INV-5)", test_killed_holder},
        {"writers killed", test_killed_writers},
        {"made by several at once", test_create_race},
        {"a turn after giving up", test_given_up_waits},
    };
    const struct suite_frame frame = {.before = setup, .after = teardown};
    const struct suite_frame cluster = {start_nodes, stop_nodes, setup, teardown};

    on_nodes = cluster_wanted() > 0;
    if (on_nodes)
        return cluster_is_possible()
                   ? SUITE_RUN_IN(&cluster, "registry on nodes, several at once", tests)
                   : 77;

    int failed = SUITE_RUN_IN(&frame, "registry, several at once", tests);

    in_region = true;
    return failed | SUITE_RUN_IN(&frame, "registry in a region, several at once", tests);
}
