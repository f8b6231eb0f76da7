/* grow_inside.h - what superblock.c, newstore.c and grow.c share. GROW-1 to GROW-12 are defined in
 * grow.c.
 */
#ifndef PLX_GROW_INSIDE_H
#define PLX_GROW_INSIDE_H

#include "engine/loop/volume.h"

#define SWEEP_BYTES (1u << 20)
#define EXTENTS_MIN 4u /* extents of a volume */
#define REGISTRY_BYTES_MIN (4ull << 20)
#define REGISTRY_BYTES_EXTENT 512ull /* for each extent of the store */
#define REGISTRY_SHARE 16u           /* of volume 0, at most (twice as much by GROW-7) */

/* A call that is under way. It tries out the next state of the store, which becomes the store's
 * only when that state is durable. */
struct growth {
    struct plx_store *store;
    const struct plx_grow *options;
    uint8_t *buffer;
    /* Memory for the store's new map, allocated first: once the change is durable it must not fail.
     */
    struct plx_extent_range *room;
    uint64_t extents; /* the store's, with those added so far */
    struct plx_fault *fault;
};

/* superblock.c */
int plx_grow_holds_data(struct plx_device *device, uint8_t *buffer, bool *ret_holds);
int plx_grow_zero_headers(struct plx_device *device, const struct plx_superblock *super,
                          uint64_t at, uint64_t extents, uint64_t number, uint8_t *buffer);
int plx_grow_zero_volume(struct plx_device *device, const struct plx_superblock *super,
                         uint8_t *buffer);
int plx_superblock_write_first(struct plx_device *device, const struct plx_superblock *super,
                               uint8_t *buffer);
int plx_grow_flush_failed(struct growth *g, int error);
int plx_superblock_write(struct growth *g, struct plx_volume *volume,
                         const struct plx_superblock *super);
int plx_grow_settle(struct growth *g);

/* newstore.c */
/* Whether a volume has room for as many extents as it needs; the advice ends the text. */
int plx_grow_check_extents(const struct plx_device *device, uint64_t extent_bytes,
                           const char *advice, struct plx_fault *fault);
int plx_grow_refuse_data(struct plx_device *device, bool force, uint8_t *buffer,
                         struct plx_fault *fault);
uint64_t plx_grow_registry_extents(const struct plx_superblock *super, uint64_t extents);

#endif
