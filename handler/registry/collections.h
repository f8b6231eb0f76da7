/* collections.h - which instance collects garbage in a store, and what it found (collections.c).
 *
 * Order of calls: begin; for each extent with garbage garbage_put; sweep(true); for each entry
 * garbage_next, garbage_drop, then free its blocks; end. A deduplication begins, and leaves.
 * A crash leaves the collection under way: another instance goes on by begin(dead).
 *
 * Results and threads as for registry.h.
 */
#ifndef PLX_COLLECTIONS_H
#define PLX_COLLECTIONS_H

#include "registry/registry.h"

struct plx_registry_collection {
    uint64_t number;             /* odd: a collection is under way */
    uint64_t instance;           /* who runs the present one, or ran the last one */
    bool sweeping;               /* false while garbage is still searched for */
    uint64_t begun_ns, ended_ns; /* ended 0: no collection ever ended */
    uint64_t collected;          /* blocks that the last ended collection freed */
    uint64_t wanted;             /* how often work was left to a collection and not done yet */
};

/* NOT_FOUND: the store never had a collection, and none is wanted. */
int plx_registry_collection_get(struct plx_registry *reg, int64_t store,
                                struct plx_registry_collection *ret_collection);
/* Whether a collection may free something: something was left to one, or one is under way or was
 * broken off. No snapshot goes before its time until it has ended (service.h, cdp apply). *ret_last
 * is the collection then. */
bool plx_registry_collection_is_due(struct plx_registry *reg, int64_t store,
                                    struct plx_registry_collection *ret_last);
/* Notes that something was left to a collection. */
int plx_registry_collection_want(struct plx_registry *reg, int64_t store);
/* Begins a collection, or goes on with the one of instance `dead` (0: none), which the caller has
 * proven dead. BUSY: another collection is under way. */
int plx_registry_collection_begin(struct plx_registry *reg, int64_t store, uint64_t instance,
                                  uint64_t dead, struct plx_registry_collection *ret_collection);
/* sweeping: true when everything that was found is entered; false when all of it was swept and the
 * search goes on. FENCED: the collection is not this instance's any more. */
int plx_registry_collection_sweep(struct plx_registry *reg, int64_t store, uint64_t instance,
                                  bool sweeping);
/* Ends the collection. wanted: the value when it began; what was left since is still wanted. */
int plx_registry_collection_end(struct plx_registry *reg, int64_t store, uint64_t instance,
                                uint64_t collected, uint64_t wanted);

/* Ends what was entered as a collection only to keep collections out: a deduplication (dedup.c). A
 * collection is wanted afterwards. */
int plx_registry_collection_leave(struct plx_registry *reg, int64_t store, uint64_t instance);

struct plx_registry_garbage {
    uint64_t extent, generation, blocks;
    char *runs; /* malloc()ed text, freed by the caller */
};

/* NOT_FOUND: the extent has changed hands since. NOSPACE: the registry has no room for the row. */
int plx_registry_garbage_put(struct plx_registry *reg, int64_t store,
                             const struct plx_registry_garbage *garbage);
/* The garbage of the first extent whose number is at least `from`; NOT_FOUND: none is left. */
int plx_registry_garbage_next(struct plx_registry *reg, int64_t store, uint64_t from,
                              struct plx_registry_garbage *ret_garbage);
int plx_registry_garbage_drop(struct plx_registry *reg, int64_t store, uint64_t extent);

#endif
