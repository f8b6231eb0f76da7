/* turns.h - whose history gives way: the order of disks when a store has no room (turns.c).
 *
 *     for each disk that may give way: fill its turn, count it
 *     the disk whose turn comes before all others' (plx_turns_before()) is shortened by one step
 *     its turn's last = ++steps
 *
 * A step lets a share of a disk's history go (plx_retention_shorter()). Pure functions.
 */
#ifndef PLX_TURNS_H
#define PLX_TURNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct plx_turn {
    uint64_t oldest_ns; /* the time of its oldest snapshot */
    bool dated;         /* that time is beyond doubt (WITNESS-8) */
    uint64_t last;      /* how many steps there had been when it gave way, or was seen first */
};

/* Whether a gives way before b. steps: how many there have been; disks: how many may give way. */
bool plx_turns_before(const struct plx_turn *a, const struct plx_turn *b, uint64_t steps,
                      size_t disks);

#endif
