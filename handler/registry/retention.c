/* retention.c - see retention.h.
 *
 * RETENTION-1  A level is applied to whole periods of its interval only; the present period waits
 *     until it has passed. So a level's next run never begins inside a period, and of each period
 *     exactly the first snapshot stays, however often the level runs.
 * RETENTION-2  Coarser levels run first. A finer level begins behind what a coarser one has looked
 *     at, so no level reads what another one has thinned.
 * RETENTION-3  Level n, which lets everything go, always begins at the oldest snapshot. So a
 *     snapshot that stayed for a label or a reader goes as soon as nothing keeps it. The other
 *     levels do not look back: such a snapshot stays until level n reaches it.
 * RETENTION-4  In doubt a snapshot stays. A clock in doubt lets nothing go (witness.c has that
 *     rule), nor does a clock that went back. Lost progress is made again, with the same result.
 *     Progress that lies more than a day in the future counts as lost, since otherwise thinning
 *     would stop until then.
 * RETENTION-5  A range in which everything may go is looked through again as long as something
 *     went, unless the work is thrifty. What is left before a rewind goes only when nothing else of
 *     the range goes (RECLAIM-9). In a dry run nothing goes, so it asks for that part first and
 *     counts everything before that rewind as going.
 * RETENTION-6  Thrifty work avoids small rewrites. What would be rewritten in small steps waits
 *     until some MiB of log have gathered (thrift.c), and the window ends up to a sixteenth late.
 *     So each log record is read and rewritten about once for each level that it passes. Key frames
 *     stay at the distance that this sixteenth needs. A level that waits is asked again at the next
 *     look.
 * Threads: the caller's.
 * Crash story: progress is written after the work that it describes, so a crash only repeats work.
 */
#include "registry/retention.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "registry/clock.h"
#include "registry/policy.h"

#define SECOND_NS 1000000000ull
#define DAY_NS (86400 * SECOND_NS)
#define LOOK_MIN_NS SECOND_NS
#define LOOK_MAX_NS (60 * SECOND_NS)
#define LOOKS_PER_TIER 64u
#define LAGS_PER_WINDOW 16u
#define SHORTER_BY 16u
#define ATTEMPTS 3u /* after BUSY: a snapshot that was to go came into use meanwhile */

/* ---- The plan ---- */

static bool same_tiers(const struct plx_protection *a, const struct plx_protection *b)
{
    if (a->tiers != b->tiers)
        return false;
    for (uint32_t i = 0; i < a->tiers; i++)
        if (a->tier[i].every_ns != b->tier[i].every_ns || a->tier[i].keep_ns != b->tier[i].keep_ns)
            return false;
    return true;
}

void plx_retention_set(struct plx_retention *retention, const struct plx_protection *policy)
{
    if (!same_tiers(&retention->policy, policy))
        *retention = (struct plx_retention){.thrifty = retention->thrifty};
    retention->policy = *policy;
}

uint64_t plx_retention_interval_ns(const struct plx_protection *policy)
{
    uint64_t keep_ns = policy->tiers ? policy->tier[0].keep_ns : UINT64_MAX;

    return plx_max_u64(LOOK_MIN_NS, plx_min_u64(keep_ns / LOOKS_PER_TIER, LOOK_MAX_NS));
}

uint64_t plx_retention_window_ns(const struct plx_protection *policy)
{
    return policy->tiers ? policy->tier[policy->tiers - 1].keep_ns : 0;
}

uint64_t plx_retention_shorter(uint64_t oldest, uint64_t newest)
{
    uint64_t numbers = newest > oldest ? newest - oldest : 0;

    return oldest + plx_max_u64(numbers / SHORTER_BY, 1);
}

/* RETENTION-6: how late the window may end. */
static uint64_t lag_ns(const struct plx_retention *retention)
{
    return retention->thrifty ? plx_retention_window_ns(&retention->policy) / LAGS_PER_WINDOW : 0;
}

/* RETENTION-1: the period of a level. Level n has no interval of its own and uses that of the last
 * tier. Where every snapshot stays (interval 0), the period is how often the policy is applied. */
static uint64_t period_ns(const struct plx_retention *retention, unsigned level)
{
    const struct plx_protection *policy = &retention->policy;
    uint64_t every_ns = policy->tier[plx_min_u64(level, policy->tiers - 1)].every_ns;

    every_ns = every_ns ? every_ns : plx_retention_interval_ns(policy);
    return level == policy->tiers ? plx_max_u64(every_ns, lag_ns(retention)) : every_ns;
}

/* The time before which a level applies: what the previous tier keeps is excluded, and the present
 * period. 0: the level applies to nothing yet. */
static uint64_t level_before_ns(const struct plx_retention *retention, unsigned level,
                                uint64_t now_ns)
{
    const struct plx_protection *policy = &retention->policy;
    uint64_t age_ns = level ? policy->tier[level - 1].keep_ns : 0;
    uint64_t before_ns = now_ns > age_ns ? now_ns - age_ns : 0;

    return before_ns - before_ns % period_ns(retention, level);
}

unsigned plx_retention_plan(const struct plx_retention *retention, uint64_t now_ns,
                            struct plx_retention_step ret_steps[PLX_TIERS_MAX + 1])
{
    const struct plx_protection *policy = &retention->policy;
    unsigned count = 0, last = policy->tiers;
    uint64_t coarser = 0; /* RETENTION-2 */

    if (!policy->tiers)
        return 0;
    for (unsigned level = last + 1; level-- > 0;) {
        uint64_t before_ns = level_before_ns(retention, level, now_ns);
        bool all_stay = level == 0 && policy->tier[0].every_ns == 0;
        bool known = retention->level[level].before_ns <= now_ns + DAY_NS;

        coarser = plx_max_u64(coarser, known ? retention->level[level].upto : 0);
        if (all_stay || !before_ns ||
            (known && before_ns <= retention->level[level].before_ns)) /* RETENTION-4 */
            continue;
        ret_steps[count++] = (struct plx_retention_step){
            .level = level,
            .thin = {.after = level == last ? 0 : coarser, /* RETENTION-3 */
                     .upto = UINT64_MAX,
                     .before_ns = before_ns,
                     .every_ns = level == last ? 0 : policy->tier[level].every_ns,
                     .thrifty = retention->thrifty,
                     .keyframes_ns = lag_ns(retention)},
        };
    }
    return count;
}

/* ---- Carrying it out ---- */

static void add(struct plx_thinned *sum, const struct plx_thinned *slice)
{
    sum->upto = plx_max_u64(sum->upto, slice->upto);
    sum->snapshots += slice->snapshots;
    sum->blocks += slice->blocks;
    sum->meta_blocks += slice->meta_blocks;
    sum->oldest = plx_max_u64(sum->oldest, slice->oldest);
    sum->waits = slice->waits;
}

static int thin_slice(const struct plx_retention_work *work, const struct plx_thin *slice,
                      struct plx_thinned *ret_thinned, struct plx_fault *fault)
{
    int error = PLX_ERR_BUSY;

    for (unsigned i = 0; i < ATTEMPTS && error == PLX_ERR_BUSY; i++)
        error = work->thin(work->context, slice, ret_thinned, fault);
    return error;
}

/* RETENTION-5 */
static bool worth_a_further_round(const struct plx_thin *thin, const struct plx_thinned *sum,
                                  uint64_t gone_before)
{
    return !thin->dry_run && !thin->thrifty && !thin->every_ns && sum->snapshots > gone_before;
}

/* RETENTION-5, in a dry run: what would go before a rewind. *ret_past: up to where. */
static int count_past(const struct plx_retention_work *work, const struct plx_thin *thin,
                      uint64_t *ret_past, struct plx_thinned *sum, struct plx_fault *fault)
{
    struct plx_thin slice = *thin;
    struct plx_thinned past;
    int error;

    *ret_past = 0;
    if (!thin->dry_run || thin->every_ns)
        return 0;
    slice.rewinds_only = true;
    error = thin_slice(work, &slice, &past, fault);
    if (error || !past.snapshots)
        return error;
    *ret_past = past.upto;
    sum->snapshots = past.snapshots;
    return 0;
}

int plx_retention_thin(const struct plx_retention_work *work, const struct plx_thin *thin,
                       struct plx_thinned *ret_sum, struct plx_fault *fault)
{
    struct plx_thin slice = *thin;
    struct plx_thinned one;
    uint64_t gone_before = 0, past;
    bool further = true;
    int error;

    *ret_sum = (struct plx_thinned){.upto = thin->after};
    error = count_past(work, thin, &past, ret_sum, fault);
    while (further && !error) {
        error = thin_slice(work, &slice, &one, fault);
        if (error)
            break;
        if (one.upto <= past) /* counted in `past`; no slice reaches across a rewind */
            one.snapshots = 0;
        add(ret_sum, &one);
        further = !one.through && one.upto > slice.after && one.upto < thin->upto;
        slice.after = one.upto;
        if (!further && worth_a_further_round(thin, ret_sum, gone_before)) {
            further = true;
            slice.after = thin->after;
            gone_before = ret_sum->snapshots;
        }
        if (further && work->between)
            error = work->between(work->context, ret_sum, fault);
    }
    return error;
}

int plx_retention_apply(struct plx_retention *retention, uint64_t now_ns,
                        const struct plx_retention_work *work, struct plx_thinned *ret_sum,
                        struct plx_fault *fault)
{
    struct plx_retention_step steps[PLX_TIERS_MAX + 1];
    unsigned count = plx_retention_plan(retention, now_ns, steps);
    uint64_t coarser = 0;
    int error = 0;

    *ret_sum = (struct plx_thinned){0};
    for (unsigned i = 0; i < count && !error; i++) {
        unsigned level = steps[i].level;
        struct plx_thinned sum;

        if (level < retention->policy.tiers)
            steps[i].thin.after = plx_max_u64(steps[i].thin.after, coarser); /* RETENTION-2 */
        error = plx_retention_thin(work, &steps[i].thin, &sum, fault);
        add(ret_sum, &sum);
        coarser = plx_max_u64(coarser, sum.upto);
        retention->level[level].upto = plx_max_u64(retention->level[level].upto, sum.upto);
        if (!error && !sum.waits) /* RETENTION-6 */
            retention->level[level].before_ns = steps[i].thin.before_ns;
    }
    return error;
}

int plx_retention_shorten(const struct plx_retention_work *work, uint64_t oldest, uint64_t newest,
                          struct plx_thinned *ret_sum, struct plx_fault *fault)
{
    struct plx_thin thin = {.upto = oldest};
    int error = 0;

    *ret_sum = (struct plx_thinned){0};
    while (!error && !ret_sum->snapshots && thin.upto < newest) {
        thin.after = ret_sum->upto; /* skips what is held at the beginning */
        thin.upto = plx_retention_shorter(thin.upto, newest);
        error = plx_retention_thin(work, &thin, ret_sum, fault);
    }
    return error;
}

/* A preview begins at the oldest snapshot: the progress of the levels must not matter. */
int plx_retention_preview(const struct plx_protection *policy, uint64_t now_ns,
                          const struct plx_retention_work *work, struct plx_thinned *ret_sum,
                          struct plx_fault *fault)
{
    const struct plx_retention retention = {.policy = *policy};
    struct plx_retention_step steps[PLX_TIERS_MAX + 1];
    unsigned count = plx_retention_plan(&retention, now_ns, steps);
    uint64_t coarser = 0;
    int error = 0;

    *ret_sum = (struct plx_thinned){0};
    for (unsigned i = 0; i < count && !error; i++) {
        struct plx_thinned sum;

        steps[i].thin.dry_run = true;
        steps[i].thin.after = coarser;
        error = plx_retention_thin(work, &steps[i].thin, &sum, fault);
        add(ret_sum, &sum);
        coarser = plx_max_u64(coarser, sum.upto); /* RETENTION-2 */
    }
    return error;
}

/* ---- In the registry, as TIERS|UPTO:BEFORE,... with one pair for each level ---- */

int plx_retention_keep(struct plx_registry *registry, const char *vdi,
                       const struct plx_retention *retention)
{
    char text[PLX_POLICY_VALUE_MAX + 1], tiers[PLX_TIERS_TEXT];
    size_t at;

    at = (size_t)snprintf(text, sizeof text, "%s|",
                          plx_protection_tiers_text(&retention->policy, tiers));
    for (uint32_t i = 0; i <= retention->policy.tiers; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%" PRIu64 ":%" PRIu64, i ? "," : "",
                               retention->level[i].upto, retention->level[i].before_ns);
    return plx_registry_policy_set(registry, vdi, PLX_POLICY_PROGRESS, text);
}

int plx_retention_tell_shortened(struct plx_registry *registry, const char *vdi, uint64_t oldest_ns)
{
    char text[64];

    snprintf(text, sizeof text, "%" PRIu64 " %" PRIu64, plx_clock_ns(CLOCK_REALTIME), oldest_ns);
    return plx_registry_policy_set(registry, vdi, PLX_POLICY_SHORTENED, text);
}

static bool take_number(const char **at, char end, uint64_t *ret_number)
{
    char *stop;

    *ret_number = strtoull(*at, &stop, 10);
    if (stop == *at || *stop != end)
        return false;
    *at = stop + (end != 0);
    return true;
}

static bool parse_progress(const char *text, struct plx_retention *retention)
{
    const char *at = strchr(text, '|');
    char tiers[PLX_TIERS_TEXT];
    uint32_t last = retention->policy.tiers;

    plx_protection_tiers_text(&retention->policy, tiers);
    if (!at || strlen(tiers) != (size_t)(at - text) || memcmp(text, tiers, strlen(tiers)) != 0)
        return false;
    at++;
    for (uint32_t i = 0; i <= last; i++)
        if (!take_number(&at, ':', &retention->level[i].upto) ||
            !take_number(&at, i < last ? ',' : 0, &retention->level[i].before_ns))
            return false;
    return true;
}

int plx_retention_load(struct plx_registry *registry, const char *vdi,
                       const struct plx_protection *policy, struct plx_retention *ret_retention)
{
    struct plx_retention retention = {.policy = *policy};
    char text[PLX_POLICY_VALUE_MAX + 1];
    int error = plx_registry_policy_get(registry, vdi, PLX_POLICY_PROGRESS, text);

    if (error && error != PLX_ERR_NOT_FOUND)
        return error;
    if (error || !parse_progress(text, &retention)) /* RETENTION-4 */
        retention = (struct plx_retention){.policy = *policy};
    *ret_retention = retention;
    return 0;
}
