/* test_retention.c - the retention plan against its naive twin, over simulated months. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "registry/policy.h"
#include "registry/retention.h"
#include "suite.h"

#define S 1000000000ull
#define MINUTE (60 * S)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)
#define START (20000 * DAY) /* some time in 2024 */
#define SNAPSHOTS 20000u

/* A history, and an engine that lets parts of it go. */
static struct {
    uint64_t time_ns[SNAPSHOTS + 1]; /* by number, from 1 */
    bool gone[SNAPSHOTS + 1], kept[SNAPSHOTS + 1];
    uint64_t newest, looked_at, slices;
    unsigned busy; /* slices to refuse */
    int error;
} history;

static struct plx_protection policy_of(const char *tiers)
{
    struct plx_protection policy = {.mode = PLX_PROTECT_INTERVAL, .interval_ns = S};
    struct plx_fault fault = {0};

    CU_ASSERT_EQUAL_FATAL(plx_protection_parse_tiers(tiers, &policy, &fault), 0);
    return policy;
}

static void take_snapshot(uint64_t time_ns)
{
    CU_ASSERT_FATAL(history.newest < SNAPSHOTS);
    history.time_ns[++history.newest] = time_ns;
}

/* Whether another one of its period, at or after the oldest there ever was, came before it. */
static bool has_company(uint64_t seq, uint64_t every_ns)
{
    return seq > 1 && history.time_ns[seq - 1] / every_ns == history.time_ns[seq] / every_ns;
}

/* As has_company(), among those that are there. */
static bool has_company_now(uint64_t seq, uint64_t every_ns)
{
    uint64_t before = seq - 1;

    while (before && history.gone[before])
        before--;
    return before && history.time_ns[before] / every_ns == history.time_ns[seq] / every_ns;
}

static int thin(void *context, const struct plx_thin *t, struct plx_thinned *ret_thinned,
                struct plx_fault *fault)
{
    struct plx_thinned result = {.upto = t->after};
    uint64_t seq = t->after, left = 1 + (uint64_t)rand() % 300;

    if (history.busy) {
        history.busy--;
        return plx_fault_set(fault, PLX_ERR_BUSY, "in use");
    }
    if (history.error)
        return history.error;
    history.slices++;
    while (seq < history.newest && seq < t->upto && left > 0 &&
           (!t->before_ns || history.time_ns[seq + 1] < t->before_ns)) {
        seq++;
        result.upto = seq;
        if (history.gone[seq])
            continue;
        left--;
        history.looked_at++;
        if (history.kept[seq] || seq == history.newest)
            continue;
        history.gone[seq] = !t->every_ns || has_company_now(seq, t->every_ns);
        result.snapshots += history.gone[seq];
    }
    *ret_thinned = result;
    return 0;
}

static const struct plx_retention_work work = {.thin = thin};

/* The naive twin: what is to be there, from the history as it was taken. */
static bool stays(const struct plx_protection *policy, uint64_t seq, uint64_t now_ns)
{
    uint64_t time_ns = history.time_ns[seq];

    if (seq == history.newest || history.kept[seq])
        return true;
    for (uint32_t level = 0; level <= policy->tiers; level++) {
        uint64_t age_ns = level ? policy->tier[level - 1].keep_ns : 0;
        uint64_t every_ns = level < policy->tiers ? policy->tier[level].every_ns : 0;
        uint64_t period_ns = every_ns ? every_ns : policy->tier[policy->tiers - 1].every_ns;

        if (!period_ns)
            period_ns = plx_retention_interval_ns(policy);
        if ((level == 0 && !every_ns) ||
            time_ns >= (now_ns - age_ns) - (now_ns - age_ns) % period_ns)
            continue;
        if (!every_ns || has_company(seq, every_ns))
            return false;
    }
    return true;
}

static unsigned compare(const struct plx_protection *policy, uint64_t now_ns)
{
    unsigned wrong = 0;

    for (uint64_t seq = 1; seq <= history.newest; seq++)
        if (history.gone[seq] == stays(policy, seq, now_ns) && wrong++ == 0)
            printf("\n  snapshot %llu of %llu is %s", (unsigned long long)seq,
                   (unsigned long long)history.newest, history.gone[seq] ? "gone" : "there");
    return wrong;
}

/* A snapshot every so often, some pauses, the service now and then. */
static void run(const char *tiers, uint64_t every_ns, uint64_t look_ns, bool labels)
{
    const struct plx_protection policy = policy_of(tiers);
    struct plx_retention retention = {0};
    struct plx_thinned sum;
    uint64_t now = START, looked = START, then = 0;

    memset(&history, 0, sizeof history);
    while (history.newest < SNAPSHOTS) {
        now += every_ns / 2 + (uint64_t)rand() % every_ns;
        if (rand() % 500 == 0)
            now += 100 * every_ns;
        take_snapshot(now);
        history.kept[history.newest] = labels && rand() % 100 == 0;
        if (now - looked < look_ns)
            continue;
        plx_retention_set(&retention, &policy);
        history.busy = (unsigned)(rand() % 3);
        CU_ASSERT_EQUAL(plx_retention_apply(&retention, now, &work, &sum, NULL), 0);
        looked = now;
        if (!labels && history.newest > then + 500) { /* the twin knows of no labels in company */
            CU_ASSERT_EQUAL_FATAL(compare(&policy, now), 0);
            then = history.newest;
        }
    }
    /* Every snapshot is looked at about once for each level. */
    CU_ASSERT(history.looked_at < (policy.tiers + 2) * (uint64_t)SNAPSHOTS * (labels ? 4 : 2));
    for (uint64_t seq = 1; seq <= history.newest; seq++)
        CU_ASSERT(!history.kept[seq] || !history.gone[seq]);
}

/* ---- Thrift (RETENTION-6) ---- */

static int wait_for_more(void *context, const struct plx_thin *t, struct plx_thinned *ret_thinned,
                         struct plx_fault *fault)
{
    CU_ASSERT(t->thrifty && t->keyframes_ns == DAY / 16);
    ++*(unsigned *)context;
    *ret_thinned = (struct plx_thinned){.upto = t->after, .waits = true};
    return 0;
}

static void test_thrift(void)
{
    const struct plx_protection policy = policy_of("all:1h,1s:1d");
    unsigned asked = 0;
    const struct plx_retention_work waiting = {.context = &asked, .thin = wait_for_more};
    struct plx_retention retention = {.thrifty = true};
    struct plx_retention_step steps[PLX_TIERS_MAX + 1];
    struct plx_thinned sum;

    plx_retention_set(&retention, &policy);
    CU_ASSERT(retention.thrifty);
    CU_ASSERT_EQUAL_FATAL(plx_retention_plan(&retention, START, steps), 2);
    /* The window ends a sixteenth late at most, and never early. */
    CU_ASSERT(steps[0].thin.before_ns <= START - DAY &&
              steps[0].thin.before_ns > START - DAY - DAY / 16);
    CU_ASSERT_EQUAL(steps[1].thin.before_ns, START - HOUR);
    /* Who waits is asked again, and each level once a look. */
    CU_ASSERT_EQUAL(plx_retention_apply(&retention, START, &waiting, &sum, NULL), 0);
    CU_ASSERT_EQUAL(asked, 2);
    CU_ASSERT_EQUAL(plx_retention_plan(&retention, START, steps), 2);
}

static void test_twin(void)
{
    run("all:1h,1s:1d,1m:7d,1h:30d", 20 * S, 40 * S, false);
    run("all:10m,1m:1h,1h:1d", 5 * S, MINUTE, false);
    run("1s:1m,1m:1h,1h:2d", S / 4, 7 * S, false);
    run("all:1h", 3 * S, MINUTE, false);
    run("1h:30d", 10 * MINUTE, 3 * HOUR, false);
    run("all:1h,1s:1d,1m:7d,1h:30d", 20 * S, 40 * S, true);
}

/* ---- Steps ---- */

static void test_plan(void)
{
    const struct plx_protection policy = policy_of("all:1h,1s:1d,1m:7d");
    struct plx_retention retention = {0};
    struct plx_retention_step steps[PLX_TIERS_MAX + 1];

    CU_ASSERT_EQUAL(plx_retention_plan(&retention, START, steps), 0); /* nothing is asked */
    plx_retention_set(&retention, &policy);
    CU_ASSERT_EQUAL_FATAL(plx_retention_plan(&retention, START + S / 2, steps), 3);
    CU_ASSERT(steps[0].level == 3 && steps[0].thin.every_ns == 0 &&
              steps[0].thin.before_ns == START - 7 * DAY);
    CU_ASSERT(steps[1].level == 2 && steps[1].thin.every_ns == MINUTE &&
              steps[1].thin.before_ns == START - DAY);
    CU_ASSERT(steps[2].level == 1 && steps[2].thin.every_ns == S &&
              steps[2].thin.before_ns == START - HOUR);
    /* What was done is not done again within its period. */
    for (unsigned i = 0; i < 3; i++) {
        retention.level[steps[i].level].before_ns = steps[i].thin.before_ns;
        retention.level[steps[i].level].upto = 100 * (3 - i);
    }
    CU_ASSERT_EQUAL(plx_retention_plan(&retention, START + S / 2, steps), 0);
    CU_ASSERT_EQUAL_FATAL(plx_retention_plan(&retention, START + S, steps), 1);
    CU_ASSERT(steps[0].level == 1 && steps[0].thin.after == 300);
    CU_ASSERT_EQUAL_FATAL(plx_retention_plan(&retention, START + MINUTE, steps), 3);
    CU_ASSERT(steps[0].thin.after == 0); /* RETENTION-3 */
    CU_ASSERT(steps[1].thin.after == 300);
    CU_ASSERT_EQUAL(plx_retention_plan(&retention, START - DAY, steps), 0); /* RETENTION-4 */
    CU_ASSERT_EQUAL(plx_retention_plan(&retention, 0, steps), 0);
    /* A clock that was years ahead has left progress behind: it does not hold for years. */
    CU_ASSERT_EQUAL(plx_retention_plan(&retention, START - 9 * DAY, steps), 3);
    CU_ASSERT(steps[0].thin.before_ns == START - 16 * DAY && steps[2].thin.after == 0);
    /* Another policy begins again; the same one, in another mode, does not. */
    plx_retention_set(&retention, &(struct plx_protection){
                                      .tiers = policy.tiers,
                                      .tier = {policy.tier[0], policy.tier[1], policy.tier[2]}});
    CU_ASSERT_EQUAL(retention.level[1].upto, 100);
    plx_retention_set(&retention, &(struct plx_protection){.tiers = 1, .tier = {policy.tier[0]}});
    CU_ASSERT_EQUAL(retention.level[1].upto, 0);
    CU_ASSERT_EQUAL(plx_retention_plan(&retention, START, steps), 1);
}

static void test_numbers(void)
{
    struct plx_protection policy = policy_of("all:2s,1s:1d");

    CU_ASSERT_EQUAL(plx_retention_interval_ns(&policy), S);
    CU_ASSERT_EQUAL(plx_retention_window_ns(&policy), DAY);
    policy = policy_of("all:1h");
    CU_ASSERT_EQUAL(plx_retention_interval_ns(&policy), HOUR / 64);
    policy = policy_of("1h:30d");
    CU_ASSERT_EQUAL(plx_retention_interval_ns(&policy), MINUTE);
    policy = policy_of("");
    CU_ASSERT_EQUAL(plx_retention_window_ns(&policy), 0);
    CU_ASSERT_EQUAL(plx_retention_shorter(100, 260), 110);
    CU_ASSERT_EQUAL(plx_retention_shorter(100, 102), 101);
    CU_ASSERT_EQUAL(plx_retention_shorter(100, 100), 101);
}

/* ---- Interruptions ---- */

static int stop_now_and_then(void *context, const struct plx_thinned *so_far,
                             struct plx_fault *fault)
{
    return rand() % 2 ? plx_fault_set(fault, PLX_ERR_SYSTEM, "interrupted") : 0;
}

static int stop_at_once(void *context, const struct plx_thinned *so_far, struct plx_fault *fault)
{
    return plx_fault_set(fault, PLX_ERR_SYSTEM, "interrupted");
}

static void fill(void)
{
    memset(&history, 0, sizeof history);
    for (unsigned i = 0; i < 5000; i++)
        take_snapshot(START + i * S);
}

static void test_interrupted(void)
{
    const struct plx_protection policy = policy_of("all:10m,1m:1h");
    struct plx_retention_work stopping = {.thin = thin, .between = stop_at_once};
    struct plx_thin all = {.upto = UINT64_MAX};
    struct plx_retention retention = {0};
    struct plx_fault fault = {0};
    struct plx_thinned sum;
    uint64_t now = START + 5000 * S;

    fill();
    CU_ASSERT_EQUAL(plx_retention_thin(&stopping, &all, &sum, &fault), PLX_ERR_SYSTEM);
    CU_ASSERT(history.slices == 1 && sum.snapshots > 0 && sum.upto == sum.snapshots);
    history.busy = 3;
    CU_ASSERT_EQUAL(plx_retention_thin(&work, &all, &sum, &fault), PLX_ERR_BUSY);
    CU_ASSERT_EQUAL(sum.snapshots, 0);
    all.upto = 4000;
    CU_ASSERT_EQUAL(plx_retention_thin(&work, &all, &sum, &fault), 0);
    CU_ASSERT(history.gone[4000] && !history.gone[4001] && sum.upto == 4000);

    fill();
    plx_retention_set(&retention, &policy);
    history.error = PLX_ERR_REGISTRY;
    CU_ASSERT_EQUAL(plx_retention_apply(&retention, now, &work, &sum, &fault), PLX_ERR_REGISTRY);
    history.error = 0;
    stopping.between = stop_now_and_then;
    while (plx_retention_apply(&retention, now, &stopping, &sum, &fault))
        ;
    CU_ASSERT_EQUAL(compare(&policy, now), 0);
}

/* ---- In the registry ---- */

static void test_kept(void)
{
    const struct plx_protection policy = policy_of("all:10m,1m:1h"), other = policy_of("all:10m");
    char directory[] = "/tmp/plx-retention-XXXXXX", path[64], command[80];
    struct plx_registry_volume volume = {.extents = 8, .path = "/dev/null"};
    struct plx_registry_store store = {.name = "s", .extent_blocks = 1024};
    struct plx_registry_vdi vdi = {.name = "v", .size_bytes = 4096, .sector_size = 512};
    struct plx_retention retention = {.policy = policy}, back;
    struct plx_registry *reg;

    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/registry", directory);
    CU_ASSERT_EQUAL_FATAL(plx_registry_open(path, "test", &reg, NULL), 0);
    plx_uuid_random(store.uuid);
    plx_uuid_random(volume.uuid);
    plx_uuid_random(vdi.id);
    CU_ASSERT_EQUAL_FATAL(plx_registry_store_create(reg, &store, &volume, 1, &store), 0);
    vdi.store = store.id;
    CU_ASSERT_EQUAL_FATAL(plx_registry_vdi_create(reg, &vdi, 8, &vdi), 0);

    CU_ASSERT_EQUAL(plx_retention_load(reg, vdi.id, &policy, &back), 0);
    CU_ASSERT(back.policy.tiers == 2 && back.level[0].upto == 0);
    for (unsigned i = 0; i <= 2; i++) {
        retention.level[i].upto = UINT64_MAX - i;
        retention.level[i].before_ns = START + i;
    }
    CU_ASSERT_EQUAL(plx_retention_keep(reg, vdi.id, &retention), 0);
    CU_ASSERT_EQUAL(plx_retention_load(reg, vdi.id, &policy, &back), 0);
    CU_ASSERT(!memcmp(back.level, retention.level, sizeof back.level));
    CU_ASSERT_EQUAL(plx_retention_load(reg, vdi.id, &other, &back), 0);
    CU_ASSERT_EQUAL(back.level[0].upto, 0);
    for (unsigned i = 0; i < 4; i++) {
        static const char *const damaged[] = {"", "all:10m,1m:1h|", "all:10m,1m:1h|1:2,3:4",
                                              "all:10m,1m:1h|1:2,3:4,5:x"};

        CU_ASSERT_EQUAL(plx_registry_policy_set(reg, vdi.id, PLX_POLICY_PROGRESS, damaged[i]), 0);
        CU_ASSERT_EQUAL(plx_retention_load(reg, vdi.id, &policy, &back), 0);
        CU_ASSERT(back.level[0].upto == 0 && back.level[1].upto == 0);
    }
    plx_registry_close(reg);
    snprintf(command, sizeof command, "rm -rf '%s'", directory);
    CU_ASSERT_EQUAL(system(command), 0);
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"the plan", test_plan}, {"numbers", test_numbers},
        {"its twin", test_twin}, {"interrupted, refused", test_interrupted},
        {"thrift", test_thrift}, {"progress", test_kept},
    };
    const char *seed = getenv("PLX_SEED");

    srand(seed ? (unsigned)atoi(seed) : 1);
    return SUITE_RUN("retention", tests);
}
