/* spans.h - the registry's region grows with its store. Private to handler/registry. */
#ifndef PLX_SPANS_H
#define PLX_SPANS_H

#include "engine/engine.h"
#include "registry/registry.h"

/* Gives the registry another span of volume 0 if the store has outgrown what it has (engine.h:
 * plx_store_registry_due()), and finishes what a crash left of an earlier attempt. Call it under
 * the conditions of plx_store_grow(). Adds to `grown` the extents that had to be sealed.
 * NOT_FOUND: volume 0 has no extents left for it; the store is as good as before. */
int plx_spans_grow(struct plx_registry *registry, int64_t store_row, struct plx_store *store,
                   struct plx_grown *grown, struct plx_fault *fault);

#endif
