/* seeds.h - random worlds, one seed after the other, for the tests that run them.
 *
 * PLX_SEED=n replays one seed, PLX_RUNS=n runs so many (if they are fewer, others each day),
 * PLX_TRACE=1 says what happens; a failure names its seed.
 */
#ifndef PLX_SEEDS_H
#define PLX_SEEDS_H

#include "sim/world.h"

struct plx_seeds {
    bool deaths;                                      /* power cuts, killed and fenced hosts */
    void (*adapt)(struct plx_world_options *options); /* after the seed has chosen; may be NULL */
};

/* From the first seed on; prints what fails. *sum, unless it is NULL: grows by what was done. */
bool plx_seeds_run(const struct plx_seeds *seeds, uint64_t first, uint64_t runs,
                   struct plx_world_result *sum);
void plx_world_result_add(struct plx_world_result *sum, const struct plx_world_result *result);

#endif
