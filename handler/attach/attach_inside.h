/* attach_inside.h - what the parts of an attach share: attach.c with those that were taken out of
 * it.
 */
#ifndef PLX_ATTACH_INSIDE_H
#define PLX_ATTACH_INSIDE_H

#include "attach/attach.h"

struct plx_attach_inside {
    struct plx_registry *registry;
    struct plx_store *store;
    int64_t store_row;
    uint64_t instance;
    const struct plx_paths *paths;
};

/* The engine's environment where there is no attach: clocks and randomness. */
void plx_attach_init_env(struct plx_env *env);

void plx_attach_get_inside(struct plx_attach *attach, struct plx_attach_inside *ret_inside);
/* Around calls of the engine. */
void plx_attach_lock(struct plx_attach *attach);
void plx_attach_unlock(struct plx_attach *attach);
/* What instances of this host that are proven dead have left. */
int plx_attach_recover(struct plx_attach *attach, struct plx_fault *fault);
/* One process of a machine at a time recovers, or gives up what is lost: until the second call. */
int plx_attach_lock_recovery(struct plx_attach *attach, struct plx_fault *fault);
void plx_attach_unlock_recovery(struct plx_attach *attach);
/* Whether to ask again for what somebody has (struct plx_attach_options, patience). since_ns: when
 * it was asked for first, by the monotonic clock. */
bool plx_attach_waits(struct plx_attach *attach, uint64_t since_ns, const struct plx_fault *why);
/* Whether an instance is another command of this host, or has just ended. */
bool plx_attach_ends_soon(struct plx_attach *attach, uint64_t instance);
/* Waits until no other instance has the store open. BUSY: one has, that is named. */
int plx_attach_alone(struct plx_attach *attach, struct plx_fault *fault);
/* Enters a collection, once nobody else's is under way; *ret_waited: that took a while, in which
 * others came and went. BUSY: it still is. */
struct plx_registry_collection;
int plx_attach_enter_collection(struct plx_attach *attach,
                                struct plx_registry_collection *ret_entered, bool *ret_waited,
                                struct plx_fault *fault);

#endif
