/* ring_way.h - how the writes of a virtual disk get from its ring to the store, for messages. */
#ifndef PLX_RING_WAY_H
#define PLX_RING_WAY_H

#include "engine/engine.h"
#include "registry/paths.h"
#include "text.h"

/* Of a disk whose record names a ring: "'parallax VERB STORE/VDI OPTION' brings them to the store",
 * or why nothing here does. */
#define PLX_RING_WAY 360
const char *plx_ring_way(const struct plx_paths *paths, const struct plx_name *name,
                         const struct plx_vdi_info *info, const char *verb, const char *option,
                         char ret_text[PLX_RING_WAY]);

#endif
