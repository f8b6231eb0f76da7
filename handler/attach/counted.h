/* counted.h - does volume 0 still count all volumes that this host knows of a store? */
#ifndef PLX_COUNTED_H
#define PLX_COUNTED_H

#include "attach/known.h"
#include "registry/registry.h"

/* The first known volume behind the first `counted` that is in use; 0: there is none. */
int plx_counted_further(const struct plx_known *known, unsigned counted, unsigned *ret_index,
                        struct plx_fault *fault);
/* COUNTED-1: CORRUPT if volume 0 went back. entered: the store is known here by this entry, and the
 * advice says how it is known by fewer volumes. */
int plx_counted_check(struct plx_registry *registry, int64_t store, const struct plx_known *known,
                      bool entered, struct plx_fault *fault);

#endif
