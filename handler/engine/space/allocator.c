/* allocator.c - the room's state (struct plx_allocator), from the opening of a store to its end. */
#include <stdlib.h>

#include "engine/space/allocator_inside.h"

int plx_allocator_init(struct plx_store *store)
{
    struct plx_allocator *allocator = calloc(1, sizeof *allocator);

    if (!allocator)
        return PLX_ERR_NOMEM;
    store->allocator = allocator;
    allocator->bitmap_sync.store = store;
    allocator->bitmap_sync.task.step = plx_bitmap_sync_step;
    allocator->bitmap_sync.buffer = malloc(PLX_BITMAP_ROUND * PLX_BLOCK_SIZE);
    return allocator->bitmap_sync.buffer ? 0 : PLX_ERR_NOMEM;
}

void plx_allocator_free(struct plx_store *store)
{
    struct plx_allocator *allocator = store->allocator;

    if (!allocator)
        return;
    plx_extent_free_list(&allocator->extents);
    plx_extent_free_list(&allocator->dropped);
    free(allocator->foreign.addrs);
    free(allocator->held_back.addrs);
    free(allocator->bitmap_sync.buffer);
    free(allocator);
    store->allocator = NULL;
}
