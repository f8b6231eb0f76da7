/* clocks.h - this machine's clocks for the engine's environment, and the witness of a disk
 * (witness.h) as the registry keeps it.
 */
#ifndef PLX_CLOCKS_H
#define PLX_CLOCKS_H

#include "engine/base/witness.h"
#include "registry/paths.h"
#include "registry/registry.h"

/* The registry's key (table policies). */
#define PLX_POLICY_CLOCK "clock"

/* Never 0. */
uint64_t plx_clocks_boot_id(const struct plx_paths *paths);
/* The kernel says that its clock follows a time server. */
bool plx_clocks_disciplined(void);
/* As the engine would read them. */
struct plx_clocks plx_clocks_here(const struct plx_paths *paths);

/* No row, or one that cannot be read, is a witness that has seen nothing. Codes as
 * plx_registry_policy_get(). */
int plx_witness_load(struct plx_registry *registry, const char *vdi,
                     struct plx_witness *ret_witness);
int plx_witness_keep(struct plx_registry *registry, const char *vdi,
                     const struct plx_witness *witness);
/* Whether it knows so much more than what was kept that it is to be kept (witness.c, crash story).
 */
bool plx_witness_is_news(const struct plx_witness *witness, const struct plx_witness *kept);

#endif
