/* holds.h - a hold on an instant, waited for. Private to handler/registry. */
#ifndef PLX_HOLDS_H
#define PLX_HOLDS_H

#include "device/bytelock.h"
#include "device/patience.h"
#include "registry/paths.h"
#include "registry/registry.h"

/* plx_registry_hold(), asked again while there is patience and snapshots of the VDI are being let
 * go; at once when whoever does that is proven dead, or is the instance itself, which must not be
 * doing it just now. The registry handle has the error's text. */
int plx_hold_wait(struct plx_registry *registry, const struct plx_paths *paths,
                  struct plx_bytelock *locks, const char *vdi, uint64_t seq, uint64_t instance,
                  const struct plx_patience *patience, uint64_t *ret_hold);
/* In place of a hold, by who cannot write (HOLDS-7); the lock goes with `locks`. */
int plx_hold_share(struct plx_registry *registry, const struct plx_paths *paths,
                   struct plx_bytelock *locks, const char *vdi,
                   const struct plx_patience *patience);
/* Whether somebody does, asked after an intent was entered. */
bool plx_hold_is_shared(struct plx_bytelock *locks);

#endif
