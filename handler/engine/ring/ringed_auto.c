/* ringed_auto.c - a disk that uses its ring only while the store is slower than usual: in a burst,
 * or while the store has trouble. The Parallax paper's section on its local log does so, too.
 *
 *    the ring is  it is turned                                                  when that lasts
 *    off          on: the oldest change under way is older than FLOOR_NS and    ABOVE_NS, with
 *                 TIMES the norm, or there are more than CHANGES_FLOOR and      pauses (-4)
 *                 TIMES the norm
 *    on           off: at most 1 MiB waits for the store, and nothing for       CALM_NS
 *                 longer than FLOOR_NS and half of TIMES the norm
 *
 * RINGED_AUTO-1  These are all of the rule and its constants. What is done then is what a user's
 *     word would do (ringed.c): so a crash meets nothing new.
 * RINGED_AUTO-2  The norm is what was usual while the ring was off. It follows the last LEARN
 *     changes or so that a look found to be the oldest. Each counts once, as it was when it was
 *     seen last: one that hangs would teach its own age otherwise. One that was slow then, by the
 *     table, teaches nothing. So trouble that lasts does not become usual before the ring is turned
 *     on. But the first LEARN changes count whatever they are: if the store is always that slow,
 *     its slowness is no reason to turn the ring on.
 * RINGED_AUTO-3  Turning on holds changes up until the store has all that came before. If turning
 *     on fails, it is not tried again for RETRY_NS.
 * RINGED_AUTO-4  When a slow change has ended, the next one is young, and nobody knows yet whether
 *     it will be slow. So a look that finds it so does not end what lasts. A change ends that if it
 *     was not slow when it was seen last, and so does a pause of ABOVE_NS without a slow one.
 *     Otherwise a disk that makes one change after the other would do without the ring while each
 *     takes long, and none takes ABOVE_NS. The ring is turned on only by a look that finds a slow
 *     change.
 * Loop: the store's; a look costs a walk along the disk's operations, every LOOK_NS.
 * Crash story: nothing is written here. What was usual is learned anew.
 */
#include "engine/ring/ringed_inside.h"

#define MS 1000000ull
#define LOOK_NS (20 * MS)
#define FLOOR_NS (10 * MS)
#define CHANGES_FLOOR 16u
#define TIMES 4u
#define ABOVE_NS (200 * MS)
#define CALM_NS (5000 * MS)
#define RETRY_NS (10000 * MS)
#define LEARN 64u
#define PARTS 256u /* of a change, in the norm of how many there are */

static uint64_t above(uint64_t floor, uint64_t norm, unsigned times)
{
    return plx_max_u64(floor, times * norm);
}

static uint64_t nearer(uint64_t norm, uint64_t seen, unsigned looks)
{
    return seen > norm ? norm + (seen - norm) / looks : norm - (norm - seen) / looks;
}

/* RINGED_AUTO-2, RINGED_AUTO-4 */
static void learn(struct plx_ringed_auto *a)
{
    if (a->changes && !a->was_slow)
        a->slow_since_ns = 0;
    if (a->changes && (!a->was_slow || a->learnt < LEARN)) {
        a->learnt += a->learnt < LEARN;
        a->usual_age_ns = nearer(a->usual_age_ns, a->age_ns, a->learnt);
        a->usual_changes = nearer(a->usual_changes, (uint64_t)a->changes * PARTS, a->learnt);
    }
    a->changes = 0;
}

/* Whether the condition has held without a break for `ns`. */
static bool lasts(uint64_t *since_ns, bool is_so, uint64_t now_ns, uint64_t ns)
{
    if (!is_so)
        *since_ns = 0;
    else if (!*since_ns)
        *since_ns = now_ns;
    return is_so && now_ns - *since_ns >= ns;
}

static bool is_slow(struct plx_ringed *ringed, uint64_t now_ns)
{
    struct plx_ringed_auto *a = &ringed->automatic;
    const struct plx_front_load load = plx_front_load(ringed->vdi);

    if (load.waits_for_history) { /* the ring would not help */
        a->slow_since_ns = 0;
        return false;
    }
    if (!load.changes || load.oldest_ns != a->oldest_ns)
        learn(a);
    if (!load.changes)
        return false;
    a->oldest_ns = load.oldest_ns;
    a->age_ns = now_ns - load.oldest_ns;
    a->changes = load.changes;
    a->was_slow = a->age_ns > above(FLOOR_NS, a->usual_age_ns, TIMES) ||
                  a->changes * PARTS > above(CHANGES_FLOOR * PARTS, a->usual_changes, TIMES);
    return a->was_slow && a->learnt == LEARN;
}

/* RINGED_AUTO-4 */
static bool stays_slow(struct plx_ringed *ringed, uint64_t now_ns)
{
    struct plx_ringed_auto *a = &ringed->automatic;

    if (now_ns - a->slow_ns >= ABOVE_NS)
        a->slow_since_ns = 0;
    if (!is_slow(ringed, now_ns))
        return false;
    a->slow_ns = now_ns;
    return lasts(&a->slow_since_ns, true, now_ns, ABOVE_NS);
}

static bool is_calm(const struct plx_ringed *ringed, uint64_t now_ns)
{
    const struct plx_ringed_auto *a = &ringed->automatic;

    return ringed->drain.bytes_left <= PLX_RINGED_LAST_BYTES &&
           (!ringed->drain.records_left ||
            now_ns - ringed->oldest_ns <= above(FLOOR_NS, a->usual_age_ns, TIMES / 2));
}

void plx_ringed_auto_look(struct plx_ringed *ringed)
{
    struct plx_ringed_auto *a = &ringed->automatic;
    uint64_t now_ns;

    if (!a->on || (ringed->state != PLX_RINGED_OFF && ringed->state != PLX_RINGED_ON))
        return;
    now_ns = plx_ringed_now(ringed);
    if (now_ns - a->look_ns < LOOK_NS)
        return;
    a->look_ns = now_ns;
    if (ringed->state == PLX_RINGED_ON) {
        a->slow_since_ns = a->changes = 0;
        if (lasts(&a->calm_since_ns, is_calm(ringed, now_ns), now_ns, CALM_NS))
            plx_ringed_want(ringed, false);
    } else {
        a->calm_since_ns = 0;
        if (stays_slow(ringed, now_ns) && (!ringed->turn_error || now_ns >= a->retry_ns) &&
            !plx_ring_sticky(ringed->host->ring)) {
            a->retry_ns = now_ns + RETRY_NS; /* RINGED_AUTO-3 */
            plx_ringed_want(ringed, true);
        }
    }
}

void plx_ringed_auto(struct plx_ringed *ringed)
{
    ringed->automatic.on = true;
}
