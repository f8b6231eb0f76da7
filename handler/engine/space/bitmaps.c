/* bitmaps.c - the bitmaps of owned extents are written back (EXTENT-1, EXTENT-2).
 *
 * One bitmap pass at a time serves all extents and everybody who waits:
 *   1. ROUND, WRITTEN   Every dirty page is written to the slot that does not hold its newest
 *                       durable state, at most PLX_BITMAP_ROUND pages at once.
 *   2. FLUSHED          One flush. The new states are durable now.
 *   3. MIRRORED         The other slot of each page gets the mirror copy, without a flush.
 * A crash in step 1 leaves the previous state in the other slot, a crash in step 3 the new state. A
 * caller that asks for a pass while one runs waits for the next one, which sees its changes. */
#include <string.h>

#include "engine/space/allocator_inside.h"

/* After a failed flush nobody knows which pages arrived. They become dirty again, so that the next
 * pass rewrites the same slots (EXTENT-2). */
static void pages_flushed(struct plx_store *store, bool durable)
{
    for (struct plx_extent *extent = store->allocator->extents; extent; extent = extent->next)
        for (uint32_t p = 0; p < page_count(store); p++) {
            struct plx_extent_page_state *page = &extent->pages[p];

            page->dirty = page->dirty || (page->unflushed && !durable);
            page->unmirrored = page->unmirrored || (page->unflushed && durable);
            page->durable = page->unflushed && durable ? page->generation : page->durable;
            page->unflushed = page->unflushed && !durable;
        }
}

static void sync_rewind(struct plx_store *store, bool mirroring)
{
    store->allocator->bitmap_sync.mirroring = mirroring;
    store->allocator->bitmap_sync.extent = store->allocator->extents;
    store->allocator->bitmap_sync.page = 0;
}

static void sync_start(struct plx_store *store)
{
    struct plx_bitmap_sync *sync = &store->allocator->bitmap_sync;

    if (plx_flush_failed_since(store, sync->flush_mark))
        pages_flushed(store, false); /* by an earlier pass that did not get to its flush */
    sync->flush_mark = plx_flush_mark(store);
    store->allocator->freed.before = store->allocator->freed.blocks;
    sync->running = sync->joining;
    sync->joining = (struct plx_queue){0};
    sync->state = SYNC_ROUND;
    sync->error = 0;
    sync_rewind(store, false);
    plx_task_ready(store, &sync->task);
}

/* Chooses the slot that the page goes to now, and the generation it gets. */
static uint8_t take_slot(struct plx_extent_page_state *state, bool mirror, uint64_t *ret_generation)
{
    if (mirror) {
        state->unmirrored = false;
        *ret_generation = state->generation - 1;
        return state->slot ^ 1;
    }
    *ret_generation = state->generation = plx_generation_next(state->generation);
    state->dirty = state->unmirrored = false;
    if (!state->unflushed) /* EXTENT-2: a slot that may not be durable is rewritten */
        state->slot ^= 1;
    state->unflushed = true;
    return state->slot;
}

static void write_page(struct plx_store *store, struct plx_extent *extent, uint32_t p)
{
    struct plx_bitmap_sync *sync = &store->allocator->bitmap_sync;
    struct plx_extent_page_state *state = &extent->pages[p];
    uint8_t *block = sync->buffer + sync->count * PLX_BLOCK_SIZE;
    bool released = extent->state == -1;
    struct plx_extent_page page = {
        .type = extent->type,
        .sealed = extent->sealed,
        .page = (uint16_t)p,
        .pages = page_count(store),
        .extent = extent->number,
        .owner = released ? 0 : store->options.instance,
    };
    uint8_t slot = take_slot(state, sync->mirroring, &page.generation);

    if (!released)
        page.owner_host = store->options.host;
    memset(block, 0, PLX_BLOCK_SIZE);
    memcpy(plx_format_extent_bits(block), (uint8_t *)extent->bits + p * PAGE_BYTES, PAGE_BYTES);
    plx_format_extent_page_encode(&store->info.id, &page, block);
    sync->written[sync->count] = state;
    sync->iovs[sync->count] = (struct iovec){block, PLX_BLOCK_SIZE};
    plx_store_xfer(store, &sync->xfers[sync->count], PLX_IO_WRITE, PLX_KIND_ADMIN,
                   extent->base + 2 * p + slot, 0, PLX_BLOCK_SIZE, &sync->iovs[sync->count], 1,
                   &sync->join);
    sync->count++;
}

static bool page_due(const struct plx_bitmap_sync *sync, const struct plx_extent_page_state *state)
{
    return sync->mirroring ? state->unmirrored : state->dirty;
}

/* Submits the next round of pages. False: no page is left. */
static bool sync_round(struct plx_store *store)
{
    struct plx_bitmap_sync *sync = &store->allocator->bitmap_sync;

    sync->count = 0;
    sync->join = (struct plx_join){.task = &sync->task};
    while (sync->extent && sync->count < PLX_BITMAP_ROUND) {
        struct plx_extent *extent = sync->extent;
        bool loading = extent->state >= LOAD_READ && extent->state <= LOAD_FLUSHED;

        if (sync->page == page_count(store) || loading) {
            sync->extent = extent->next;
            sync->page = 0;
            continue;
        }
        if (page_due(sync, &extent->pages[sync->page]))
            write_page(store, extent, sync->page);
        sync->page++;
    }
    return sync->count > 0;
}

static void sync_finish(struct plx_store *store)
{
    struct plx_bitmap_sync *sync = &store->allocator->bitmap_sync;

    sync->state = SYNC_IDLE;
    plx_extent_free_list(&store->allocator->dropped);
    plx_queue_wake(store, &sync->running, sync->error);
    if (sync->joining.head)
        sync_start(store);
}

static void pass_ended(struct plx_store *store, int error)
{
    store->allocator->freed.blocks -= error ? 0 : store->allocator->freed.before;
    store->allocator->freed.failed_at_ns =
        error ? plx_max_u64(1, store->env->monotonic_ns(store->env)) : 0;
}

void plx_bitmap_sync_step(struct plx_task *task)
{
    struct plx_bitmap_sync *sync = PLX_CONTAINER(task, struct plx_bitmap_sync, task);
    struct plx_store *store = sync->store;

    switch (sync->state) {
    case SYNC_WRITTEN:
        if (sync->join.error) {
            for (unsigned i = 0; i < sync->count; i++)
                sync->written[i]->dirty = true;
            sync->error = sync->join.error;
            pass_ended(store, sync->error);
            sync_finish(store);
            return;
        }
        /* fall through */
    case SYNC_ROUND:
        sync->state = SYNC_WRITTEN;
        if (sync_round(store))
            return;
        sync->state = SYNC_FLUSHED;
        plx_store_flush(store, task, sync->flush_mark);
        return;
    case SYNC_FLUSHED:
        sync->error = task->error;
        pages_flushed(store, sync->error == 0);
        pass_ended(store, sync->error);
        sync_rewind(store, true);
        sync->state = SYNC_MIRRORED;
        /* fall through */
    case SYNC_MIRRORED: /* no harm if this fails: the page itself is durable */
        if (!sync->error && sync_round(store))
            return;
        sync_finish(store);
        return;
    }
}

/* EXTENT-1 */
void plx_bitmap_sync(struct plx_store *store, struct plx_task *task)
{
    plx_queue_push(&store->allocator->bitmap_sync.joining, task);
    if (store->allocator->bitmap_sync.state == SYNC_IDLE)
        sync_start(store);
}

int plx_bitmap_sync_run(struct plx_store *store)
{
    struct plx_waiter waiter = PLX_WAITER;

    plx_bitmap_sync(store, &waiter.task);
    return plx_waiter_wait(store, &waiter);
}
