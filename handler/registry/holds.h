/* holds.h - a hold on an instant, waited for. Private to handler/registry.
 *
 * A reader that can write to the store calls plx_hold_wait(), and plx_registry_release() when it is
 * done. A reader that cannot write calls plx_hold_share() and closes `locks` when it is done. The
 * process that lets snapshots go enters its intent and then asks plx_hold_is_shared(). Protocol:
 * holds.c.
 */
#ifndef PLX_HOLDS_H
#define PLX_HOLDS_H

#include "device/bytelock.h"
#include "device/patience.h"
#include "registry/paths.h"
#include "registry/registry.h"

/* As plx_registry_hold(). While an intent of another process is in the way, it tries again as long
 * as the patience lasts. It ends an intent whose instance is proven dead. It also ends one of the
 * reader's own instance, which therefore must not be letting snapshots go just now. The
 * registry handle has the error's text. */
int plx_hold_wait(struct plx_registry *registry, const struct plx_paths *paths,
                  struct plx_bytelock *locks, const char *vdi, uint64_t seq, uint64_t instance,
                  const struct plx_patience *patience, uint64_t *ret_hold);
/* In place of a hold, for a reader that cannot write (HOLDS-7): takes the shared lock, and waits
 * while an intent is in the way. The lock ends when `locks` is closed. */
int plx_hold_share(struct plx_registry *registry, const struct plx_paths *paths,
                   struct plx_bytelock *locks, const char *vdi,
                   const struct plx_patience *patience);
/* Whether such a reader exists; asked after an intent was entered. true also when that cannot be
 * found out. */
bool plx_hold_is_shared(struct plx_bytelock *locks);

#endif
