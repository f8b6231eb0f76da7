/* extent_inside.h - what extent.c, extent_list.c, extent_load.c and bitmaps.c share. EXTENT-1 to
 * EXTENT-6 are defined in extent.c. */
#ifndef PLX_EXTENT_INSIDE_H
#define PLX_EXTENT_INSIDE_H

#include "engine/loop/store.h"

#define PAGE_BYTES (PLX_EXTENT_PAGE_BITS / 8)
#define REBUILD_ADVICE "; 'parallax store rebuild-registry' rebuilds its registry from the store"

static inline uint32_t page_count(const struct plx_store *store)
{
    return plx_extent_pages(store->info.extent_blocks);
}

static inline size_t header_bytes(const struct plx_store *store)
{
    return (size_t)page_count(store) * 2 * PLX_BLOCK_SIZE;
}

enum {
    LOAD_READ,
    LOAD_DECODE,
    /* the header is being rewritten as it was read (EXTENT-2) */
    LOAD_AGAIN,
    LOAD_FLUSHED,
    /* fresh extent: the first pass is under way, after which one slot of each page is durable */
    LOAD_ONE_SLOT,
    LOAD_SYNCED,
    /* adopted from a dead instance: its log may name blocks that the bitmap calls free */
    LOAD_ADOPTED,
};

enum {
    SYNC_IDLE,
    SYNC_ROUND,
    SYNC_WRITTEN,
    SYNC_FLUSHED,
    SYNC_MIRRORED,
};

/* extent_load.c */
void plx_extent_mark_header_blocks(struct plx_extent *extent);
void plx_extent_count_free(struct plx_extent *extent);
int plx_extent_decode_pages(struct plx_extent *extent, struct plx_extent_page *ret_first,
                            struct plx_fault *fault);
uint64_t plx_extent_count_states(const struct plx_extent *extent);
int plx_extent_cannot_write_header(const struct plx_extent *extent, int error,
                                   struct plx_fault *fault);
int plx_extent_header_again(struct plx_extent *extent);
void plx_extent_own_pages(struct plx_extent *extent);
void plx_extent_answered(struct plx_store *store, enum plx_extent_type type, uint64_t number);
void plx_extent_load_step(struct plx_task *task);

/* extent_list.c */
struct plx_extent *plx_extent_new(struct plx_store *store, enum plx_extent_type type,
                                  uint64_t number, bool fresh);
void plx_extent_free(struct plx_extent *extent);
void plx_extent_free_list(struct plx_extent **list);
void plx_extent_drop(struct plx_store *store, struct plx_extent *extent);

#endif
