/* attach_inside.h - what the parts of an attach share: attach.c with those that were taken out of
 * it.
 */
#ifndef PLX_ATTACH_INSIDE_H
#define PLX_ATTACH_INSIDE_H

#include "registry/attach.h"

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
/* Of a collection that is under way (collect.c): its instance, if that is dead; else 0. */
int plx_attach_dead_collector(const struct plx_attach_inside *in, uint64_t *ret_dead,
                              struct plx_fault *fault);

#endif
