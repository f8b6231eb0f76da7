/* place.h - a registry in a region of a file, with a device and locks of its own. */
#ifndef PLX_PLACE_H
#define PLX_PLACE_H

#include "registry/region.h"
#include "registry/registry.h"

#define PLACE_BYTES ((uint64_t)52 << 20)

/* The region of such a file: two spans, neither at the file's beginning nor one after the other. */
struct plx_region place_spans(void);
/* Makes a file that holds one, of zeros. Returns whether it did. */
bool place_make(const char *path);
/* Opens device and locks of a file; *region has its spans already. */
int place_open(const char *path, bool read_only, struct plx_region *region,
               struct plx_fault *fault);
void place_close(struct plx_region *region);

/* As plx_registry_open() and plx_registry_close(): the file is made when it is missing. */
int place_registry_open(const char *path, const char *who, struct plx_registry **ret_reg,
                        struct plx_fault *fault);
void place_registry_close(struct plx_registry *reg);

#endif
