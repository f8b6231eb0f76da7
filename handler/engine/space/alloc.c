/* alloc.c - which blocks are free: hands out runs of adjacent blocks, from extents this instance
 * owns, and takes blocks back.
 *
 * ALLOC-1  A block is handed out at most once until it is freed: its bit in memory changes at once,
 *     and set_bits() asserts that it was clear.
 * ALLOC-2  Blocks come only from extents whose ownership is durable (EXTENT-3). Otherwise a crash
 *     would leave blocks in an extent whose header does not name this instance.
 * ALLOC-3  Data comes from data extents, nodes and log segments from metadata extents. Segments are
 *     taken from an extent's end, nodes from its start, so that segments, which need long runs,
 *     keep finding room.
 * ALLOC-4  free_blocks counts the free blocks of ready extents, by type.
 * ALLOC-5  A request waits for the registry only if every owned extent of the type is full. A
 *     further extent is asked for ahead of need, to keep the registry off the data path.
 * ALLOC-6  A dead block is freed either by the instance that owns its extent or by the sweep of a
 *     collection, never by both. The second of the two could free a block that was handed out again
 *     in between. A collection works in extents of its own instance, whose deaths it knows
 *     (collect.c), and in extents of nobody. So an owner frees a dead block in two cases only:
 *         - the extent was its own already when the block died, or
 *         - no collection ran at any time between the block's death and the extent becoming its
 *           own: the number of collections was the same and even, which means that none ran.
 * ALLOC-7  While a collection has blocks held back, a metadata block that was in use stays
 *     allocated, because the collection may still read it. If a request needs room meanwhile, the
 *     blocks come back early and the collection is told so. Data blocks are never held back: a
 *     collection reads no data.
 * ALLOC-8  Promised data blocks are left to the carried writes that they were promised to: a ring
 *     takes a write only when there is room for it. All other allocations see only the remaining
 *     free blocks. A write that is being carried keeps its promise, although it has its blocks
 *     already, until they are durable, because it may fail and be carried again.
 * Loop: the store's loop.
 * Crash story: see extent.c.
 */
#include <stdlib.h>

#include "engine/base/list.h"
#include "engine/space/allocator_inside.h"

#define DENIED_RETRY_NS 1000000000ull
#define REFUSED_MAX 3u  /* as many useless grants in a row: another extent will not help */
#define RUN_BLOCKS 256u /* of a disk's data that lie adjacent, if nothing speaks against it */

static bool bit(const struct plx_extent *extent, uint64_t block)
{
    return extent->bits[block / 64] >> block % 64 & 1;
}

static void set_bits(struct plx_extent *extent, uint64_t block, uint64_t count, bool allocated)
{
    for (uint64_t i = block; i < block + count; i++) {
        PLX_ASSERT(bit(extent, i) != allocated); /* ALLOC-1 */
        extent->bits[i / 64] ^= 1ull << i % 64;
        if (allocated && extent->born)
            extent->born[i / 64] |= 1ull << i % 64;
        extent->pages[i / PLX_EXTENT_PAGE_BITS].dirty = true;
    }
    extent->free_blocks += allocated ? -count : count;
    if (extent->ready) /* ALLOC-4 */
        extent->store->allocator->free_blocks[extent->type] += allocated ? -count : count;
}

/* The first free block at or after `from`, or `end`. */
static uint64_t next_free(const struct plx_extent *extent, uint64_t from, uint64_t end)
{
    while (from < end) {
        uint64_t free_bits = ~extent->bits[from / 64] >> from % 64;

        if (free_bits)
            return plx_min_u64(end, from + (unsigned)__builtin_ctzll(free_bits));
        from = (from / 64 + 1) * 64;
    }
    return end;
}

static uint64_t run_length(const struct plx_extent *extent, uint64_t from, uint64_t want,
                           uint64_t end)
{
    uint64_t length = 0;

    while (length < want && from + length < end && !bit(extent, from + length))
        length++;
    return length;
}

/* There is a free block. */
static void take_run(struct plx_extent *extent, uint64_t want, uint64_t *ret_addr,
                     uint64_t *ret_count)
{
    uint64_t blocks = extent->store->info.extent_blocks;
    uint64_t at = next_free(extent, extent->cursor, blocks), count;

    if (at == blocks)
        at = next_free(extent, 0, extent->cursor);
    PLX_ASSERT(!bit(extent, at));
    count = run_length(extent, at, want, blocks);
    set_bits(extent, at, count, true);
    extent->cursor = (at + count) % blocks;
    *ret_addr = extent->base + at;
    *ret_count = count;
}

/* Leaves the cursor alone, so that writes go on where they were. */
static bool take_adjacent(struct plx_extent *extent, uint64_t want, uint64_t *ret_addr)
{
    uint64_t blocks = extent->store->info.extent_blocks, at = next_free(extent, 0, blocks), length;

    for (; at < blocks; at = next_free(extent, at + length, blocks)) {
        length = run_length(extent, at, want, blocks);
        if (length == want) {
            set_bits(extent, at, want, true);
            *ret_addr = extent->base + at;
            return true;
        }
    }
    return false;
}

/* Takes a run that is aligned to the segment size, from the extent's end on (ALLOC-3). */
static bool take_segment(struct plx_extent *extent, uint64_t want, uint64_t *ret_addr)
{
    uint64_t blocks = extent->store->info.extent_blocks;

    if (extent->free_blocks < want)
        return false;
    for (uint64_t at = blocks / want * want; at >= want; at -= want) {
        if (run_length(extent, at - want, want, blocks) == want) {
            set_bits(extent, at - want, want, true);
            *ret_addr = extent->base + at - want;
            return true;
        }
    }
    return false;
}

/* Asks the environment for an extent, unless it refused one less than DENIED_RETRY_NS ago. True: an
 * extent may still come. */
static bool ask(struct plx_store *store, enum plx_extent_type type)
{
    struct plx_wanted *wanted = &store->allocator->wanted[type];

    if (wanted->asked)
        return true;
    if (wanted->denied_at_ns &&
        store->env->monotonic_ns(store->env) - wanted->denied_at_ns < DENIED_RETRY_NS)
        return false;
    wanted->asked = true;
    wanted->denied_at_ns = 0;
    store->env->extent_wanted(store->env, store, type);
    return wanted->asked || !wanted->denied_at_ns;
}

void plx_alloc_denied(struct plx_store *store, enum plx_extent_type type, int error)
{
    store->allocator->wanted[type].denied = error;
    store->allocator->wanted[type].refused = 0;
    store->allocator->wanted[type].denied_at_ns =
        plx_max_u64(1, store->env->monotonic_ns(store->env));
}

void plx_alloc_refused(struct plx_store *store, enum plx_extent_type type, int error)
{
    struct plx_wanted *wanted = &store->allocator->wanted[type];

    if (++wanted->refused < REFUSED_MAX && ask(store, type))
        return;
    plx_alloc_denied(store, type, error);
}

static int denied_error(const struct plx_store *store, enum plx_extent_type type)
{
    int error = store->allocator->wanted[type].denied;

    if (error == PLX_ERR_NOMEM || error == PLX_ERR_REGISTRY || error == PLX_ERR_TURN ||
        error == PLX_ERR_FENCED || plx_error_is_full_below(error))
        return error;
    return plx_error_class(error) == PLX_CLASS_IO || error == PLX_ERR_CORRUPT ? PLX_ERR_IO_WRITE
                                                                              : PLX_ERR_NOSPACE;
}

int plx_alloc_wait(struct plx_store *store, enum plx_extent_type type, struct plx_task *task)
{
    if (!ask(store, type) || !task)
        return denied_error(store, type);
    plx_queue_push(&store->allocator->space_waiters, task);
    return PLX_WAIT;
}

bool plx_alloc_asks_for(const struct plx_store *store, enum plx_extent_type type)
{
    return store->allocator->wanted[type].asked;
}

bool plx_alloc_asks(const struct plx_store *store)
{
    return plx_alloc_asks_for(store, PLX_EXTENT_DATA) || plx_alloc_asks_for(store, PLX_EXTENT_META);
}

static bool usable(const struct plx_extent *extent, enum plx_extent_type type)
{
    return extent->ready && extent->type == type && extent->free_blocks; /* ALLOC-2 */
}

int plx_alloc_run(struct plx_store *store, enum plx_extent_type type, uint64_t want,
                  struct plx_task *task, uint64_t *ret_addr, uint64_t *ret_count)
{
    do {
        for (struct plx_extent *extent = store->allocator->extents; extent; extent = extent->next) {
            if (!usable(extent, type))
                continue;
            take_run(extent, want, ret_addr, ret_count);
            plx_alloc_spare(store, type, store->info.extent_blocks / 4);
            return 0;
        }
    } while (plx_alloc_give_way(store));
    return plx_alloc_wait(store, type, task);
}

/* ALLOC-8 */
static uint64_t unpromised(const struct plx_store *store)
{
    uint64_t free_blocks = plx_alloc_free_blocks(store, PLX_EXTENT_DATA);

    return free_blocks - plx_min_u64(free_blocks, store->allocator->promised);
}

int plx_alloc_data(struct plx_store *store, uint64_t want, bool promised, struct plx_task *task,
                   uint64_t *ret_addr, uint64_t *ret_count)
{
    uint64_t room = store->allocator->promised ? unpromised(store) : UINT64_MAX;

    if (!promised && !room)
        return plx_alloc_wait(store, PLX_EXTENT_DATA, task);
    if (!promised) /* else what is taken for later would be another promise's */
        want = plx_min_u64(plx_max_u64(want, RUN_BLOCKS), room);
    return plx_alloc_run(store, PLX_EXTENT_DATA, want, task, ret_addr, ret_count);
}

bool plx_alloc_may_promise(struct plx_store *store, uint64_t blocks)
{
    return unpromised(store) >= blocks || !ask(store, PLX_EXTENT_DATA);
}

bool plx_alloc_has_unpromised(struct plx_store *store, uint64_t blocks)
{
    bool has = unpromised(store) >= blocks;

    if (!has)
        ask(store, PLX_EXTENT_DATA);
    return has;
}

bool plx_alloc_promise(struct plx_store *store, uint64_t blocks)
{
    if (unpromised(store) < blocks) {
        ask(store, PLX_EXTENT_DATA);
        return false;
    }
    store->allocator->promised += blocks;
    return true;
}

void plx_alloc_owe(struct plx_store *store, uint64_t blocks)
{
    store->allocator->promised += blocks;
}

void plx_alloc_unpromise(struct plx_store *store, uint64_t blocks)
{
    PLX_ASSERT(store->allocator->promised >= blocks);
    store->allocator->promised -= blocks;
    if (blocks)
        plx_alloc_wake(store);
}

int plx_alloc_adjacent(struct plx_store *store, uint64_t want, struct plx_task *task,
                       uint64_t *ret_addr)
{
    uint64_t reserve = store->info.extent_blocks / 4;

    if (unpromised(store) >= want + reserve)
        for (struct plx_extent *extent = store->allocator->extents; extent; extent = extent->next)
            if (usable(extent, PLX_EXTENT_DATA) && extent->free_blocks >= want &&
                take_adjacent(extent, want, ret_addr))
                return 0;
    return task ? plx_alloc_wait(store, PLX_EXTENT_DATA, task) : PLX_ERR_NOSPACE;
}

int plx_alloc_segment(struct plx_store *store, struct plx_task *task, uint64_t *ret_addr)
{
    do {
        for (struct plx_extent *extent = store->allocator->extents; extent; extent = extent->next)
            if (usable(extent, PLX_EXTENT_META) &&
                take_segment(extent, store->info.segment_blocks, ret_addr))
                return 0;
    } while (plx_alloc_give_way(store));
    return plx_alloc_wait(store, PLX_EXTENT_META, task);
}

int plx_alloc_segment_sync(struct plx_store *store, uint64_t *ret_addr)
{
    for (;;) {
        struct plx_waiter waiter = PLX_WAITER;
        int error = plx_alloc_segment(store, &waiter.task, ret_addr);

        if (error != PLX_WAIT)
            return error;
        plx_waiter_wait(store, &waiter);
    }
}

void plx_alloc_spare(struct plx_store *store, enum plx_extent_type type, uint64_t blocks)
{
    uint64_t left =
        type == PLX_EXTENT_DATA ? unpromised(store) : plx_alloc_free_blocks(store, type);

    if (left < blocks)
        ask(store, type); /* ALLOC-5 */
}

/* ---- Blocks in extents of nobody ---- */

static void remember_foreign(struct plx_store *store, uint64_t addr)
{
    struct plx_foreign *foreign = &store->allocator->foreign;

    if (store->env->extent_needed &&
        PLX_LIST_ROOM(foreign->addrs, foreign->count, foreign->capacity, 64))
        foreign->addrs[foreign->count++] = addr;
    else
        store->counters.blocks_foreign++;
}

void plx_alloc_foreign_pump(struct plx_store *store)
{
    struct plx_foreign *foreign = &store->allocator->foreign;
    const struct plx_extent *extent;

    if (!foreign->count || foreign->asked)
        return;
    foreign->extent = foreign->addrs[foreign->count - 1] / store->info.extent_blocks;
    extent = plx_extent_find(store, foreign->extent);
    if (extent && !extent->ready && !extent->sealed)
        return; /* was asked for to allocate from it; will soon be ready */
    foreign->asked = true;
    if (extent)
        plx_alloc_foreign_answered(store, foreign->extent);
    else
        store->env->extent_needed(store->env, store, foreign->extent);
}

bool plx_alloc_foreign_waits(const struct plx_store *store)
{
    return store->allocator->foreign.count || store->allocator->foreign.asked;
}

void plx_alloc_foreign_answered(struct plx_store *store, uint64_t number)
{
    struct plx_foreign *foreign = &store->allocator->foreign;
    const struct plx_extent *extent = plx_extent_find(store, number);
    bool coming = extent && !extent->ready && !extent->sealed; /* granted to allocate from it */
    size_t kept = 0, count = foreign->count;

    foreign->asked = false;
    for (size_t i = 0; i < count; i++) {
        uint64_t addr = foreign->addrs[i];

        if (addr / store->info.extent_blocks != number || coming)
            foreign->addrs[kept++] = addr;
        else if (extent && extent->ready) /* no collection since: ALLOC-6 */
            plx_alloc_free(store, addr, 1);
        else
            store->counters.blocks_foreign++;
    }
    foreign->count = kept;
    plx_alloc_wake(store);
}

static void free_in(struct plx_extent *extent, uint64_t addr)
{
    struct plx_store *store = extent->store;

    if (!bit(extent, addr - extent->base)) { /* a damaged store may say so */
        plx_store_event(store, PLX_ERR_CORRUPT, "block %llu was to be freed but is free",
                        (unsigned long long)addr);
        return;
    }
    set_bits(extent, addr - extent->base, 1, false);
    store->allocator->freed.blocks += extent->type == PLX_EXTENT_META;
    store->counters.blocks_freed++;
}

/* ALLOC-7. Out of memory for the list: the block stays allocated, and a later collection finds it.
 */
static bool hold_back(const struct plx_extent *extent, uint64_t addr)
{
    struct plx_held_back *back = &extent->store->allocator->held_back;

    if (!back->on || extent->type != PLX_EXTENT_META)
        return false;
    if (PLX_LIST_ROOM(back->addrs, back->count, back->capacity, 1024))
        back->addrs[back->count++] = addr;
    return true;
}

void plx_alloc_free(struct plx_store *store, uint64_t addr, uint64_t count)
{
    struct plx_extent *extent = plx_extent_find(store, addr / store->info.extent_blocks);

    for (uint64_t i = 0; i < count; i++) {
        plx_cache_forget(store->cache, addr + i);
        if (!extent || !extent->ready)
            store->counters.blocks_foreign++;
        else if (!hold_back(extent, addr + i))
            free_in(extent, addr + i);
    }
}

int plx_alloc_each_pending(const struct plx_store *store,
                           int (*visit)(void *context, const uint64_t *addrs, size_t count),
                           void *context)
{
    const struct plx_allocator *space = store->allocator;
    int error = visit(context, space->foreign.addrs, space->foreign.count);

    return error ? error : visit(context, space->held_back.addrs, space->held_back.count);
}

uint64_t plx_alloc_freed_blocks(const struct plx_store *store)
{
    return store->allocator->freed.blocks;
}

bool plx_alloc_may_pass(const struct plx_store *store, uint64_t retry_ns)
{
    uint64_t failed_at_ns = store->allocator->freed.failed_at_ns;

    return store->allocator->freed.blocks &&
           (!failed_at_ns || store->env->monotonic_ns(store->env) - failed_at_ns > retry_ns);
}

struct plx_since plx_store_since(const struct plx_store *store)
{
    return (struct plx_since){.grants = store->allocator->grants,
                              .collections = store->allocator->collections};
}

/* ALLOC-6 */
static bool no_collection_between(const struct plx_since *since, uint64_t collections)
{
    return since->collections == collections && collections % 2 == 0;
}

void plx_alloc_free_dead(struct plx_store *store, uint64_t addr, const struct plx_since *since)
{
    const struct plx_extent *extent = plx_extent_find(store, addr / store->info.extent_blocks);
    bool mine = extent && extent->ready;

    if (mine &&
        (extent->granted <= since->grants || no_collection_between(since, extent->collections))) {
        plx_alloc_free(store, addr, 1);
        return;
    }
    plx_cache_forget(store->cache, addr);
    if (!mine && no_collection_between(since, store->allocator->collections))
        remember_foreign(store, addr);
    else
        store->counters.blocks_foreign++;
}

void plx_store_set_collections(struct plx_store *store, uint64_t collections)
{
    if (collections <= store->allocator->collections)
        return;
    store->allocator->collections = collections;
    store->counters.blocks_foreign += store->allocator->foreign.count;
    store->allocator->foreign.count = 0;
}

void plx_alloc_hold_back(struct plx_store *store)
{
    PLX_ASSERT(!store->allocator->held_back.on);
    store->allocator->held_back.on = true;
    store->allocator->held_back.broken = false;
}

static void free_held_back(struct plx_store *store)
{
    struct plx_held_back *back = &store->allocator->held_back;

    /* Their extents are still owned: none is given up before the store closes. */
    for (size_t i = 0; i < back->count; i++)
        free_in(plx_extent_find(store, back->addrs[i] / store->info.extent_blocks), back->addrs[i]);
    free(back->addrs);
    back->addrs = NULL;
    back->count = back->capacity = 0;
}

bool plx_alloc_let_go(struct plx_store *store)
{
    bool freed = store->allocator->held_back.count != 0;

    free_held_back(store);
    store->allocator->held_back.on = false;
    if (freed)
        plx_alloc_wake(store);
    return !store->allocator->held_back.broken;
}

bool plx_alloc_give_way(struct plx_store *store)
{
    if (!store->allocator->held_back.count)
        return false;
    store->allocator->held_back.broken = true;
    free_held_back(store);
    return true;
}

void plx_alloc_wait_for_space(struct plx_store *store, struct plx_task *task)
{
    plx_queue_push(&store->allocator->space_waiters, task);
}

void plx_alloc_wait_for_history(struct plx_store *store, struct plx_task *task)
{
    plx_queue_push(&store->allocator->room_waiters, task);
}

bool plx_alloc_history_is_awaited(const struct plx_store *store)
{
    return store->allocator->room_waiters.head != NULL;
}

void plx_alloc_wake(struct plx_store *store)
{
    plx_queue_wake(store, &store->allocator->space_waiters, 0);
}

void plx_store_room_made(struct plx_store *store, bool made)
{
    plx_queue_wake(store, &store->allocator->room_waiters, made ? 0 : PLX_ERR_NOSPACE);
}

void plx_alloc_grown(struct plx_store *store)
{
    for (int type = 0; type <= PLX_EXTENT_META; type++)
        store->allocator->wanted[type].denied_at_ns = 0;
    plx_alloc_wake(store);
    plx_store_room_made(store, true);
}

void plx_alloc_mark(struct plx_store *store, uint64_t addr, uint64_t count)
{
    struct plx_extent *extent;

    addr = plx_addr_block(addr);
    extent = plx_extent_find(store, addr / store->info.extent_blocks);
    if (!extent)
        return;
    for (uint64_t at = addr - extent->base; count-- && at < store->info.extent_blocks; at++)
        if (!bit(extent, at))
            set_bits(extent, at, 1, true);
}

uint64_t plx_alloc_free_blocks(const struct plx_store *store, enum plx_extent_type type)
{
    return store->allocator->free_blocks[type];
}
