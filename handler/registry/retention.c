/* retention.c - see retention.h.
 *
 * W1  A level is applied to whole periods of its interval only: the one that is under way waits
 *     until it has passed. So a level's next run never begins within a period, and of each exactly
 *     the first snapshot stays, however often it runs.
 * W2  Coarser levels first; a finer one goes on behind what a coarser one has looked at.
 * W3  Level n, which lets all go, always begins at the oldest: what was kept there for a label or a
 *     reader goes when nothing keeps it any more. The other levels do not look back: such a
 *     snapshot stays until level n comes to it.
 * W4  When in doubt a snapshot stays: a clock that went back lets nothing go, and progress that was
 *     lost is made again with the same result.
 * W5  Where all was let go it is looked through once more: what is left before a rewind goes at
 *     last, when nothing else does (engine/reclaim.c, C9).
 * Threads: the caller's. Crash story: progress is written after what it tells of.
 */
#include "registry/retention.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "registry/policy.h"

#define SECOND_NS 1000000000ull
#define LOOK_MIN_NS SECOND_NS
#define LOOK_MAX_NS (60 * SECOND_NS)
#define LOOKS_PER_TIER 64u
#define SHORTER_BY 16u
#define ATTEMPTS 3u /* what was to go came into use meanwhile */

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
        *retention = (struct plx_retention){0};
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

uint64_t plx_retention_shorter_ns(uint64_t oldest_ns, uint64_t now_ns)
{
    uint64_t window_ns = now_ns > oldest_ns ? now_ns - oldest_ns : 0;

    return oldest_ns + plx_max_u64(window_ns / SHORTER_BY, SECOND_NS);
}

/* W1. Of level n: what its snapshots are apart by then, or as often as anybody looks. */
static uint64_t period_ns(const struct plx_protection *policy, unsigned level)
{
    uint64_t every_ns = policy->tier[plx_min_u64(level, policy->tiers - 1)].every_ns;

    return every_ns ? every_ns : plx_retention_interval_ns(policy);
}

/* Up to when a level applies: whole periods, older than the tier before keeps. 0: to nothing. */
static uint64_t level_before_ns(const struct plx_protection *policy, unsigned level,
                                uint64_t now_ns)
{
    uint64_t age_ns = level ? policy->tier[level - 1].keep_ns : 0;
    uint64_t before_ns = now_ns > age_ns ? now_ns - age_ns : 0;

    return before_ns - before_ns % period_ns(policy, level);
}

unsigned plx_retention_plan(const struct plx_retention *retention, uint64_t now_ns,
                            struct plx_retention_step ret_steps[PLX_TIERS_MAX + 1])
{
    const struct plx_protection *policy = &retention->policy;
    unsigned count = 0, last = policy->tiers;
    uint64_t coarser = 0; /* W2 */

    if (!policy->tiers)
        return 0;
    for (unsigned level = last + 1; level-- > 0;) {
        uint64_t before_ns = level_before_ns(policy, level, now_ns);
        bool all_stay = level == 0 && policy->tier[0].every_ns == 0;

        coarser = plx_max_u64(coarser, retention->level[level].upto);
        if (all_stay || before_ns <= retention->level[level].before_ns) /* W4 */
            continue;
        ret_steps[count++] = (struct plx_retention_step){
            .level = level,
            .thin = {.after = level == last ? 0 : coarser, /* W3 */
                     .upto = UINT64_MAX,
                     .before_ns = before_ns,
                     .every_ns = level == last ? 0 : policy->tier[level].every_ns},
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
}

static int thin_slice(const struct plx_retention_work *work, const struct plx_thin *slice,
                      struct plx_thinned *ret_thinned, struct plx_fault *fault)
{
    int error = PLX_ERR_BUSY;

    for (unsigned i = 0; i < ATTEMPTS && error == PLX_ERR_BUSY; i++)
        error = work->thin(work->context, slice, ret_thinned, fault);
    return error;
}

/* W5 */
static bool worth_a_further_round(const struct plx_thin *thin, const struct plx_thinned *sum,
                                  uint64_t gone_before)
{
    return !thin->dry_run && !thin->every_ns && sum->snapshots > gone_before;
}

int plx_retention_thin(const struct plx_retention_work *work, const struct plx_thin *thin,
                       struct plx_thinned *ret_sum, struct plx_fault *fault)
{
    struct plx_thin slice = *thin;
    struct plx_thinned one;
    uint64_t gone_before = 0;
    bool further = true;
    int error = 0;

    *ret_sum = (struct plx_thinned){.upto = thin->after};
    while (further && !error) {
        error = thin_slice(work, &slice, &one, fault);
        if (error)
            break;
        add(ret_sum, &one);
        further = one.upto > slice.after && one.upto < thin->upto;
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
            steps[i].thin.after = plx_max_u64(steps[i].thin.after, coarser); /* W2 */
        error = plx_retention_thin(work, &steps[i].thin, &sum, fault);
        add(ret_sum, &sum);
        coarser = plx_max_u64(coarser, sum.upto);
        retention->level[level].upto = plx_max_u64(retention->level[level].upto, sum.upto);
        if (!error)
            retention->level[level].before_ns = steps[i].thin.before_ns;
    }
    return error;
}

/* ---- In the registry: TIERS|UPTO:BEFORE,... ---- */

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
    if (error || !parse_progress(text, &retention)) /* W4 */
        retention = (struct plx_retention){.policy = *policy};
    *ret_retention = retention;
    return 0;
}
