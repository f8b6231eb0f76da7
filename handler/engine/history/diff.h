/* diff.h - inside the engine: whether a part of two maps differs. */
#ifndef PLX_DIFF_H
#define PLX_DIFF_H

#include "engine/map/map.h"

/* Whether an instant maps any block from `first` to before `end` to another address than a map
 * does, whose changes are all frozen; NULL: nothing was mapped. Synchronous. */
int plx_diff_any(const struct plx_map *from, struct plx_vdi *to, uint64_t first, uint64_t end,
                 bool *ret_differs, struct plx_fault *fault);

#endif
