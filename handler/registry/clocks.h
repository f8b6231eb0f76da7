/* clocks.h - this machine's clocks, as the engine's environment reads them, and a disk's witness.
 *
 * The witness (engine/base/witness.h) remembers what a disk has seen of the wall clock, and so
 * whether the clock is to be believed. The registry keeps it as the policy "clock" of the disk.
 */
#ifndef PLX_CLOCKS_H
#define PLX_CLOCKS_H

#include "engine/base/witness.h"
#include "registry/paths.h"
#include "registry/registry.h"

/* The registry's key (table policies). */
#define PLX_POLICY_CLOCK "clock"

/* A number that names this boot of this machine; never 0. */
uint64_t plx_clocks_boot_id(const struct plx_paths *paths);
/* Whether the kernel says that its clock follows a time server. */
bool plx_clocks_disciplined(void);
/* All clocks as the engine would read them now. */
struct plx_clocks plx_clocks_here(const struct plx_paths *paths);

/* A missing or unreadable row gives a witness that has seen nothing. Codes as
 * plx_registry_policy_get(), except NOT_FOUND. */
int plx_witness_load(struct plx_registry *registry, const char *vdi,
                     struct plx_witness *ret_witness);
int plx_witness_keep(struct plx_registry *registry, const char *vdi,
                     const struct plx_witness *witness);
/* Whether the witness has changed enough since `kept` to be worth a write (witness.c, crash story):
 * its judgement differs, or ten minutes have passed. */
bool plx_witness_is_news(const struct plx_witness *witness, const struct plx_witness *kept);

#endif
