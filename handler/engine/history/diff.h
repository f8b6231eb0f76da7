/* diff.h - inside the engine: whether two maps differ within a range of blocks. plx_vdi_diff(),
 * which lists the ranges that differ, is in engine_history.h. */
#ifndef PLX_DIFF_H
#define PLX_DIFF_H

#include "engine/map/map.h"

/* *ret_differs: whether the instant `to` maps any block of [first, end) to another address than the
 * map `from` does. from: all its changes must be frozen; NULL: it maps nothing. Synchronous. */
int plx_diff_any(const struct plx_map *from, struct plx_vdi *to, uint64_t first, uint64_t end,
                 bool *ret_differs, struct plx_fault *fault);

#endif
