/* turns.c - whose history gives way when a store has no room; see turns.h.
 *
 * Numbers of snapshots are not comparable across disks, and times are only if they are right. A
 * disk whose oldest snapshot lies in the future would never give way, and all others would lose
 * everything for it. One whose oldest time is too early would lose everything first.
 *
 * TURNS-1  Of the disks that are dated, the one with the oldest snapshot gives way.
 * TURNS-2  A disk that is not dated gives way in one step of as many as there are disks, whatever
 *     its time says: it is due when all others together have had one step each since its own last
 *     one. The one that has waited longest goes first. So a wrong time neither spares a disk nor
 *     sends it first. A step takes the same share of each disk's numbers, so such a disk loses what
 *     its position in the sequence suggests.
 * TURNS-3  If no disk is dated, all take turns.
 *
 * Not noticed: what the witness does not notice, or has the operator's word on (witness.c).
 * Threads: any. No state.
 */
#include "registry/turns.h"

/* TURNS-2 */
static bool is_due(const struct plx_turn *turn, uint64_t steps, size_t disks)
{
    return !turn->dated && steps - turn->last + 1 >= disks;
}

bool plx_turns_before(const struct plx_turn *a, const struct plx_turn *b, uint64_t steps,
                      size_t disks)
{
    bool a_due = is_due(a, steps, disks), b_due = is_due(b, steps, disks);

    if (a_due != b_due)
        return a_due;
    if (!a_due && a->dated != b->dated)
        return a->dated;
    return a->dated ? a->oldest_ns < b->oldest_ns /* TURNS-1 */ : a->last < b->last; /* TURNS-3 */
}
