/* extent_list.c - the list of extents that this instance has, or is getting (EXTENT-3). */
#include <stdlib.h>

#include "engine/space/allocator_inside.h"

struct plx_extent *plx_extent_find(const struct plx_store *store, uint64_t number)
{
    struct plx_extent *extent = store->allocator->extents;

    while (extent && extent->number != number)
        extent = extent->next;
    return extent;
}

void plx_extent_free(struct plx_extent *extent)
{
    free(extent->bits);
    free(extent->born);
    free(extent->pages);
    free(extent->buffer);
    free(extent);
}

struct plx_extent *plx_extent_new(struct plx_store *store, enum plx_extent_type type,
                                  uint64_t number, bool fresh)
{
    struct plx_extent *extent = calloc(1, sizeof *extent);
    uint32_t pages = page_count(store);

    if (!extent)
        return NULL;
    extent->store = store;
    extent->number = number;
    extent->base = number * store->info.extent_blocks;
    extent->type = type;
    extent->fresh = fresh;
    extent->bits = calloc(pages, PAGE_BYTES);
    extent->pages = calloc(pages, sizeof *extent->pages);
    extent->buffer = malloc((size_t)pages * 2 * PLX_BLOCK_SIZE);
    if (!extent->bits || !extent->pages || !extent->buffer) {
        plx_extent_free(extent);
        return NULL;
    }
    return extent;
}

void plx_extent_free_list(struct plx_extent **list)
{
    while (*list) {
        struct plx_extent *extent = *list;

        *list = extent->next;
        plx_extent_free(extent);
    }
}

/* Takes the extent out of the list. It is freed once no bitmap pass can still write its pages. */
void plx_extent_drop(struct plx_store *store, struct plx_extent *extent)
{
    struct plx_extent **link = &store->allocator->extents;
    struct plx_bitmap_sync *sync = &store->allocator->bitmap_sync;

    while (*link != extent)
        link = &(*link)->next;
    *link = extent->next;
    if (sync->extent == extent) {
        sync->extent = extent->next;
        sync->page = 0;
    }
    extent->next = store->allocator->dropped;
    store->allocator->dropped = extent;
    if (sync->state == SYNC_IDLE)
        plx_extent_free_list(&store->allocator->dropped);
}

void plx_extent_set_ready(struct plx_extent *extent, bool ready)
{
    PLX_ASSERT(extent->ready != ready);
    extent->ready = ready;
    extent->store->allocator->free_blocks[extent->type] +=
        ready ? extent->free_blocks : -extent->free_blocks;
}
