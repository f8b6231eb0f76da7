/* volume.h - inside the engine: superblocks are read; where a store's extents lie on its volumes.
 *
 * To open a store: plx_volumes_read(), plx_volumes_room(), plx_volumes_map(). From then on
 * plx_store_place() finds the place of each block. All calls are synchronous and do not run the
 * loop: plx_volume_io() polls its device, on which no other I/O may be under way. */
#ifndef PLX_VOLUME_H
#define PLX_VOLUME_H

#include "engine/loop/store.h"

/* One transfer or flush that bypasses the loop. Returns when it is done. */
int plx_volume_io(struct plx_device *device, enum plx_io_op op, uint64_t offset, void *buffer,
                  size_t bytes);

/* Reads the superblock that counts. NOT_FOUND: the device has none, and no spare one that somebody
 * might restore it from. CORRUPT: only the spare one is left, and *fault says what the operator can
 * do. */
int plx_superblock_read(struct plx_device *device, struct plx_volume *ret_volume,
                        struct plx_fault *fault);
/* Reads the spare superblock, as bytes and decoded. */
int plx_superblock_read_spare(struct plx_device *device, uint8_t ret_block[PLX_BLOCK_SIZE],
                              struct plx_superblock *ret_super, struct plx_fault *fault);
void plx_superblock_info(const struct plx_superblock *super, struct plx_superblock_info *ret_info);

/* Reads the superblocks of all volumes and puts each volume at its index. The caller zeroes
 * `volumes` before, and must not use it after an error. Of the options it uses mixed, known and
 * known_count. */
int plx_volumes_read(struct plx_device **devices, unsigned count,
                     const struct plx_store_options *options, struct plx_volume *volumes,
                     struct plx_fault *fault);
/* Allocates memory for the map of `count` volumes, so that nothing can fail once superblocks are
 * written. The caller frees what plx_volumes_map() left in it. */
int plx_volumes_room(unsigned count, struct plx_extent_range **ret_room, struct plx_fault *fault);
/* Makes what the volumes say the store's map, info and address limit. *room becomes the map and is
 * NULL afterwards. After an error nothing has changed. */
int plx_volumes_map(struct plx_store *store, const struct plx_volume *volumes, unsigned count,
                    struct plx_extent_range **room, struct plx_fault *fault);

/* The place of a block. Only plx_store_place() leads from an address to a volume. */
struct plx_place {
    unsigned volume;
    uint64_t block;  /* the block's number on the volume */
    uint64_t blocks; /* adjacent blocks there from this one on, this one included */
};
bool plx_store_place(const struct plx_store *store, uint64_t addr, struct plx_place *ret_place);

#endif
