/* allocator_inside.h - the state of this room, and what its files on free blocks share: alloc.c,
 * bitmaps.c, extent.c, extent_list.c and extent_load.c. ALLOC-1 to ALLOC-8 are defined in alloc.c,
 * EXTENT-1 to EXTENT-6 in extent.c. */
#ifndef PLX_ALLOCATOR_INSIDE_H
#define PLX_ALLOCATOR_INSIDE_H

#include "engine/space/allocator.h"

#define PAGE_BYTES (PLX_EXTENT_PAGE_BITS / 8)
#define REBUILD_ADVICE "; 'parallax store rebuild-registry' rebuilds its registry from the store"

struct plx_extent {
    struct plx_extent *next;
    uint64_t number, base; /* base: the address of its first block */
    enum plx_extent_type type;
    enum plx_extent_type asked_as; /* UNUSED: by its number, to free blocks in it */
    bool ready;                    /* header durable: blocks may be allocated */
    bool sealed;
    uint64_t free_blocks;
    uint64_t cursor; /* where to look for a free block next */
    uint64_t *bits;  /* 1: allocated */
    struct plx_extent_page_state {
        uint64_t generation;
        uint64_t durable; /* the newest generation that is durable */
        uint8_t slot;     /* the slot that holds generation */
        bool dirty;       /* the bitmap in memory is newer */
        bool unflushed;   /* maybe not durable: goes to the same slot again */
        bool unmirrored;  /* durable, and its mirror copy is to be written */
    } * pages;
    struct plx_xfer xfer; /* of the load */
    struct plx_join join;
    struct iovec iov;
    void *buffer;
    struct plx_task task;
    struct plx_store *store;
    int state; /* LOAD_* (below); -1: leaving, page 0 is written with owner 0 */
    bool fresh;
    bool unused;                      /* a page of its header was never used (EXTENT-3) */
    uint64_t expected;                /* states, as the grant says; 0: not known */
    uint64_t told;                    /* states that plx_store_extents_risen() told */
    bool again;                       /* the header is to be rewritten as it was read (EXTENT-2) */
    struct plx_flush_mark flush_mark; /* before that */
    uint64_t granted, collections;    /* allocator->grants, ->collections at the grant */
    /* Blocks that were handed out since a collection began. NULL: no collection looks at this
     * extent. */
    uint64_t *born;
};

#define PLX_BITMAP_ROUND 16u

struct plx_bitmap_sync {
    struct plx_store *store;
    struct plx_task task;
    struct plx_join join;
    struct plx_queue joining, running; /* who waits for the next pass; for this one */
    int state, error;
    struct plx_flush_mark flush_mark; /* when the pass began */
    struct plx_extent *extent;        /* where the pass is */
    uint32_t page;
    unsigned count;
    uint8_t *buffer; /* PLX_BITMAP_ROUND blocks */
    struct plx_xfer xfers[PLX_BITMAP_ROUND];
    struct iovec iovs[PLX_BITMAP_ROUND];
    struct plx_extent_page_state *written[PLX_BITMAP_ROUND];
    bool mirroring;
};

struct plx_wanted {
    bool asked;
    uint64_t denied_at_ns; /* monotonic; 0: never */
    int denied;            /* with this error */
    unsigned refused;      /* grants in a row that could not be used */
};

struct plx_allocator {
    struct plx_extent *extents;
    struct plx_extent *dropped; /* no longer owned; a bitmap pass may still use them */
    uint64_t free_blocks[PLX_EXTENT_META + 1]; /* ALLOC-4 */
    struct plx_bitmap_sync bitmap_sync;
    struct plx_foreign { /* freed blocks in extents that this instance does not own (yet) */
        uint64_t *addrs;
        size_t count, capacity;
        bool asked;
        uint64_t extent; /* the extent that was asked for */
    } foreign;
    uint64_t grants;       /* extents that this instance was given so far */
    uint64_t collections;  /* the number that plx_store_set_collections() told */
    struct plx_held_back { /* freed metadata that comes back later (ALLOC-7) */
        uint64_t *addrs;
        size_t count, capacity;
        bool on, broken; /* broken: some came back early, because room was wanted */
    } held_back;
    struct plx_wanted wanted[PLX_EXTENT_META + 1];
    uint64_t promised; /* ALLOC-8 */
    struct { /* metadata blocks that are free in memory and still allocated on the store */
        uint64_t blocks;
        uint64_t before;       /* those freed before the present bitmap pass began */
        uint64_t failed_at_ns; /* monotonic, when the last pass failed; 0: it did not */
    } freed;
    struct plx_queue space_waiters;
    struct plx_queue room_waiters; /* writes that wait until history gives way */
};

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

/* alloc.c */
/* The environment has answered: the blocks are freed, or forgotten if the extent did not come. */
void plx_alloc_foreign_answered(struct plx_store *store, uint64_t extent);
/* No extent came: the next one is asked for only after a while. */
void plx_alloc_denied(struct plx_store *store, enum plx_extent_type type, int error);
/* The extent that came was of no use. Asks for another one, unless there were too many such. */
void plx_alloc_refused(struct plx_store *store, enum plx_extent_type type, int error);

/* bitmaps.c */
void plx_bitmap_sync_step(struct plx_task *task);

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
struct plx_extent *plx_extent_find(const struct plx_store *store, uint64_t number);
/* Makes blocks of the extent available, or no longer so. */
void plx_extent_set_ready(struct plx_extent *extent, bool ready);
struct plx_extent *plx_extent_new(struct plx_store *store, enum plx_extent_type type,
                                  uint64_t number, bool fresh);
void plx_extent_free(struct plx_extent *extent);
void plx_extent_free_list(struct plx_extent **list);
void plx_extent_drop(struct plx_store *store, struct plx_extent *extent);

#endif
