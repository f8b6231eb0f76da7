/* collections.h - which instance collects garbage in a store, and what it found (collections.c).
 *
 * Results and threads as for registry.h.
 */
#ifndef PLX_COLLECTIONS_H
#define PLX_COLLECTIONS_H

#include "registry/registry.h"

struct plx_registry_collection {
    uint64_t number;             /* odd: one is under way */
    uint64_t instance;           /* whose the last one is or was */
    bool sweeping;               /* under way, and what was found is being swept */
    uint64_t begun_ns, ended_ns; /* 0: none ever ended */
    uint64_t collected;          /* blocks, by the last one that ended */
    uint64_t wanted;             /* how often something was left for a collection since */
};

/* NOT_FOUND: there was none, and none is wanted. */
int plx_registry_collection_get(struct plx_registry *reg, int64_t store,
                                struct plx_registry_collection *ret_collection);
/* Something was left: there should be one. */
int plx_registry_collection_want(struct plx_registry *reg, int64_t store);
/* Begins one, or goes on with one of `dead` (0: none), which cannot. BUSY: another one is under
 * way. */
int plx_registry_collection_begin(struct plx_registry *reg, int64_t store, uint64_t instance,
                                  uint64_t dead, struct plx_registry_collection *ret_collection);
/* All that was found is entered, or all of it swept. FENCED: it is not this instance's. */
int plx_registry_collection_sweep(struct plx_registry *reg, int64_t store, uint64_t instance,
                                  bool sweeping);
/* wanted: what it was when it began. */
int plx_registry_collection_end(struct plx_registry *reg, int64_t store, uint64_t instance,
                                uint64_t collected, uint64_t wanted);

/* It was none, but somebody who keeps them out meanwhile: a deduplication (dedup.c). There should
 * be one now. */
int plx_registry_collection_leave(struct plx_registry *reg, int64_t store, uint64_t instance);

struct plx_registry_garbage {
    uint64_t extent, generation, blocks;
    char *runs; /* to be freed */
};

/* NOT_FOUND: the extent has changed hands meanwhile. NOSPACE: the registry has no room for it. */
int plx_registry_garbage_put(struct plx_registry *reg, int64_t store,
                             const struct plx_registry_garbage *garbage);
/* That of the first extent from `from` on; NOT_FOUND: none is left. */
int plx_registry_garbage_next(struct plx_registry *reg, int64_t store, uint64_t from,
                              struct plx_registry_garbage *ret_garbage);
int plx_registry_garbage_drop(struct plx_registry *reg, int64_t store, uint64_t extent);

#endif
