/* volume.h - inside the engine: superblocks, and where a store's extents lie on its volumes. */
#ifndef PLX_VOLUME_H
#define PLX_VOLUME_H

#include "engine/loop/store.h"

/* Device I/O beside the loop: one transfer, polled. */
int plx_volume_io(struct plx_device *device, enum plx_io_op op, uint64_t offset, void *buffer,
                  size_t bytes);

/* The newer superblock of a device. NOT_FOUND: there is none. CORRUPT, with what to do: only the
 * spare one is left. */
int plx_superblock_read(struct plx_device *device, struct plx_volume *ret_volume,
                        struct plx_fault *fault);
/* The spare one, as a block and decoded. */
int plx_superblock_read_spare(struct plx_device *device, uint8_t ret_block[PLX_BLOCK_SIZE],
                              struct plx_superblock *ret_super, struct plx_fault *fault);
void plx_superblock_info(const struct plx_superblock *super, struct plx_superblock_info *ret_info);

/* Reads the superblocks of all volumes and puts each into its place; volumes is zeroed, and of no
 * use after a failure. Of the options: mixed, known and known_count. */
int plx_volumes_read(struct plx_device **devices, unsigned count,
                     const struct plx_store_options *options, struct plx_volume *volumes,
                     struct plx_fault *fault);
/* Memory for the map of so many volumes, to be had before anything is written; to be freed. */
int plx_volumes_room(unsigned count, struct plx_extent_range **ret_room, struct plx_fault *fault);
/* What they say becomes the store's map, in *room, which is NULL then, its info and its address
 * limit; on failure nothing changes. */
int plx_volumes_map(struct plx_store *store, const struct plx_volume *volumes, unsigned count,
                    struct plx_extent_range **room, struct plx_fault *fault);

/* Where a block lies. This is the only way from an address to a volume. */
struct plx_place {
    unsigned volume;
    uint64_t block;  /* of the volume */
    uint64_t blocks; /* that follow each other there, this one included */
};
bool plx_store_place(const struct plx_store *store, uint64_t addr, struct plx_place *ret_place);

#endif
