/* extent.c - the extents that this instance owns, from grant or adoption to release.
 *
 * An extent's header is one or more pages of two slots each, A and B (format.h). Page 0 names the
 * type and the owner; every page carries a part of the allocation bitmap. extent_load.c reads and
 * checks a header, bitmaps.c writes it. space/README.md lists the states of a header page and what
 * a crash leaves in each.
 *
 * EXTENT-1  While this instance owns an extent, the bitmap in memory is authoritative.
 *     plx_bitmap_sync() brings the copy on the store up to date. A key frame waits for that before
 *     its VDI record is written, because recovery from that record relies on the bitmap.
 * EXTENT-2  One slot of each page is always whole and durable: a page's next state is written only
 *     after its present state is durable. A bitmap pass therefore writes one slot of each changed
 *     page, flushes, and only then writes the other slot as a mirror copy. So damage to one slot
 *     never brings back an older bitmap, which would call used blocks free.
 *     Of a state that another instance wrote, only its mirror copy proves that it is durable. That
 *     instance's flush may have failed, and a write-back cache may still show what it will drop.
 *     Without a mirror copy the header is rewritten before anything else: the bytes that were read,
 *     both slots at once, then a flush. One of the slots is durable already, and even a torn write
 *     of the same bytes does not harm it.
 * EXTENT-3  Blocks are allocated from an extent only after each of its pages has a durable slot
 *     that names this instance as the owner. An extent that was unused needs that in both slots,
 *     because one alone may still look "never used". A used or adopted extent needs one: its other
 *     slot holds a mirror copy, perhaps not durable yet, or the state before.
 *     The first write to a page goes to slot B. A page is therefore "never used" if its slot A is
 *     zero and its slot B is zero, torn, or of generation 2, the first that is written; an extent
 *     with such a page never came into use. If slot A is zero and slot B has generation 4 or more,
 *     the extent counts as used. There are two such cases. The device lost slot A; or the first
 *     flush failed and slot B was written again, and then the bitmap is empty.
 * EXTENT-4  The bits of the header pages' own blocks are always set, so that nobody allocates them.
 * EXTENT-5  A header is believed only if it agrees with the grant, because an older bitmap would
 *     call used blocks free. The registry remembers how many states the header had when its owner
 *     gave it up (of a dead owner: when one of that owner's disks was last closed).
 *         fewer states than that                   the device lost a write it had acknowledged
 *         more states, or blocks or an owner's     the registry lost a write
 *           name in an extent it calls unused
 *     In both cases the extent is neither allocated from nor written. One thing is allowed: an
 *     extent that never came into use (EXTENT-3) may carry the name of a claimer that died, if
 *     every page's bitmap is empty. Only durable states are reported to the registry. A page's
 *     state is known to be durable if a flush here covered it, if its mirror copy was read, or if
 *     it was read without a mirror copy and rewritten.
 * EXTENT-6  An extent number that comes from outside is checked before it becomes an address: the
 *     store must have that extent, and the extent must not hold the store's own structures. Such
 *     numbers come from a registry, which may be damaged.
 * Loop: the store's loop.
 * Crash story: until its pages are durable, nothing is allocated from an extent. A crash can leak
 *   blocks: marked on the store, but referenced by nothing; a collection finds them. A block that a
 *   key frame refers to is always marked, because its bitmap is durable before the key frame
 *   counts. Blocks that only the log names are marked again by replay.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/space/allocator_inside.h"

/* EXTENT-6 */
static int check_number(const struct plx_store *store, uint64_t number, struct plx_fault *fault)
{
    if (number < store->info.extents && !plx_store_extent_is_system(store, number))
        return 0;
    return plx_fault_set(
        fault, PLX_ERR_CORRUPT,
        number < store->info.extents
            ? "extent %llu of %llu holds the store's own structures" REBUILD_ADVICE
            : "extent %llu is beyond the end of the store, which has %llu" REBUILD_ADVICE,
        (unsigned long long)number, (unsigned long long)store->info.extents);
}

void plx_store_extent_granted(struct plx_store *store, enum plx_extent_type type, int error,
                              const struct plx_grant *grant)
{
    struct plx_extent *extent = NULL;

    if (!error &&
        (check_number(store, grant->extent, NULL) || plx_extent_find(store, grant->extent)))
        error = PLX_ERR_REGISTRY;
    if (!error) {
        extent = plx_extent_new(store, type, grant->extent, grant->fresh);
        error = extent ? 0 : PLX_ERR_NOMEM;
    }
    if (error) {
        plx_extent_answered(store, type, store->allocator->foreign.extent);
        plx_alloc_denied(store, type, error);
        plx_alloc_wake(store);
        return;
    }
    extent->expected = extent->told = grant->states;
    extent->granted = ++store->allocator->grants;
    extent->collections = store->allocator->collections;
    extent->next = store->allocator->extents;
    store->allocator->extents = extent;
    extent->asked_as = type;
    extent->task.step = plx_extent_load_step;
    extent->state = LOAD_READ;
    plx_task_ready(store, &extent->task);
}

int plx_store_extent_adopt(struct plx_store *store, uint64_t number, struct plx_fault *fault)
{
    struct plx_extent *extent;
    struct plx_extent_page first;
    int error = check_number(store, number, fault);

    if (error)
        return error;
    if (plx_extent_find(store, number))
        return 0;
    extent = plx_extent_new(store, PLX_EXTENT_UNUSED, number, false);
    if (!extent)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    error = plx_store_read_sync(store, PLX_KIND_ADMIN, extent->base, extent->buffer,
                                header_bytes(store));
    if (error)
        plx_fault_set(fault, error, "extent %llu: %s", (unsigned long long)number,
                      plx_error_text(error));
    else
        error = plx_extent_decode_pages(extent, &first, fault);
    if (!error) {
        error = plx_extent_header_again(extent);
        if (error)
            plx_extent_cannot_write_header(extent, error, fault);
    }
    if (error) {
        plx_extent_free(extent);
        return error;
    }
    extent->type = first.type;
    extent->sealed = first.sealed;
    extent->state = LOAD_ADOPTED;
    extent->granted = ++store->allocator->grants;
    extent->collections = store->allocator->collections;
    plx_extent_own_pages(extent);
    free(extent->buffer);
    extent->buffer = NULL;
    extent->next = store->allocator->extents;
    store->allocator->extents = extent;
    return 0;
}

int plx_store_extents_adopted(struct plx_store *store, struct plx_fault *fault)
{
    int error = plx_bitmap_sync_run(store); /* EXTENT-3 */

    if (error)
        return plx_fault_set(fault, error, "the headers of adopted extents cannot be written: %s",
                             plx_error_text(error));
    for (struct plx_extent *extent = store->allocator->extents; extent; extent = extent->next) {
        if (extent->state != LOAD_ADOPTED)
            continue;
        extent->state = LOAD_SYNCED;
        if (!extent->sealed)
            plx_extent_set_ready(extent, true);
    }
    plx_alloc_wake(store);
    return 0;
}

static void fill_info(const struct plx_extent *extent, uint64_t owner, struct plx_extent_info *ret)
{
    *ret = (struct plx_extent_info){
        .number = extent->number,
        .type = extent->type,
        .owner = owner,
        .owner_host = extent->store->options.host,
        .generation = extent->pages[0].generation,
        .used_blocks = extent->store->info.extent_blocks - extent->free_blocks,
        .blocks = extent->store->info.extent_blocks,
        .header_blocks = 2 * page_count(extent->store),
        .sealed = extent->sealed,
        .states = plx_extent_count_states(extent),
        .settled = !extent->again,
    };
}

void plx_store_extents_seal(struct plx_store *store)
{
    for (struct plx_extent *extent = store->allocator->extents; extent; extent = extent->next) {
        if (extent->state != LOAD_ADOPTED)
            continue;
        extent->sealed = true;
        extent->pages[0].dirty = true;
    }
}

bool plx_store_extent_is_owned(const struct plx_store *store, uint64_t extent)
{
    return plx_extent_find(store, extent) != NULL;
}

int plx_store_extent_owned(struct plx_store *store, size_t index, struct plx_extent_info *ret_info)
{
    struct plx_extent *extent = store->allocator->extents;

    while (extent && index--)
        extent = extent->next;
    if (!extent)
        return PLX_ERR_NOT_FOUND;
    fill_info(extent, store->options.instance, ret_info);
    return 0;
}

struct plx_extent_info *plx_store_extents_risen(struct plx_store *store, size_t *ret_count)
{
    struct plx_extent_info *list;
    size_t count = 0;

    for (const struct plx_extent *extent = store->allocator->extents; extent; extent = extent->next)
        count++;
    *ret_count = 0;
    list = calloc(count + 1, sizeof *list);
    for (struct plx_extent *extent = store->allocator->extents; list && extent;
         extent = extent->next) {
        /* A fresh extent counts only from its second pass on: before, a crash could leave it "never
         * used" (EXTENT-3). */
        bool loaded = extent->ready || extent->state == LOAD_ADOPTED ||
                      (extent->sealed && extent->state == LOAD_SYNCED);
        uint64_t states = loaded ? plx_extent_count_states(extent) : 0;

        if (states <= extent->told)
            continue;
        extent->told = states;
        fill_info(extent, store->options.instance, &list[(*ret_count)++]);
    }
    return list;
}

/* Marks the extent as leaving. False: this instance does not hold it, or not yet. */
static bool begin_release(struct plx_extent *extent)
{
    if (extent->state == -1)
        return true;
    if (!extent->ready && (!extent->sealed || extent->state == LOAD_ADOPTED))
        return false;
    if (extent->ready)
        plx_extent_set_ready(extent, false);
    extent->pages[0].dirty = true;
    extent->state = -1; /* leaving: page 0 is written with owner 0 */
    return true;
}

/* Undoes begin_release() for all leaving extents after a failed bitmap pass: nobody knows whose
 * page the pass failed to write. The next pass names this instance as their owner again. */
static void take_back(struct plx_store *store)
{
    for (struct plx_extent *extent = store->allocator->extents; extent; extent = extent->next) {
        if (extent->state != -1)
            continue;
        if (!extent->sealed)
            plx_extent_set_ready(extent, true);
        extent->pages[0].dirty = true;
        extent->state = LOAD_SYNCED;
    }
}

void plx_store_extents_leave(struct plx_store *store)
{
    for (struct plx_extent *extent = store->allocator->extents; extent; extent = extent->next)
        begin_release(extent);
}

int plx_store_extent_release(struct plx_store *store, uint64_t number,
                             struct plx_extent_info *ret_info, struct plx_fault *fault)
{
    struct plx_extent *extent = plx_extent_find(store, number);
    uint64_t owner = store->options.instance;
    int error;

    if (!extent || !begin_release(extent))
        return plx_fault_set(fault, PLX_ERR_NOT_FOUND, "extent %llu is not owned here",
                             (unsigned long long)number);
    error = plx_bitmap_sync_run(store);
    if (error) {
        take_back(store);
        return plx_extent_cannot_write_header(extent, error, fault);
    }
    fill_info(extent, owner, ret_info);
    plx_extent_drop(store, extent);
    return 0;
}

/* Reads an extent as it lies on the store, whoever owns it. NOT_FOUND: it never came into use.
 * to_write: the caller may write the extent and will, so what was read is first made durable
 * (EXTENT-2). */
static int read_extent(struct plx_store *store, uint64_t number, bool to_write,
                       struct plx_extent **ret_extent, struct plx_extent_page *ret_first,
                       struct plx_fault *fault)
{
    struct plx_extent *extent;
    int error = check_number(store, number, fault);

    if (error)
        return error;
    extent = plx_extent_new(store, PLX_EXTENT_UNUSED, number, false);
    if (!extent)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    error = plx_store_read_sync(store, PLX_KIND_ADMIN, extent->base, extent->buffer,
                                header_bytes(store));
    if (error)
        plx_fault_set(fault, error, "extent %llu: %s", (unsigned long long)number,
                      plx_error_text(error));
    else
        error = plx_extent_decode_pages(extent, ret_first, fault);
    if (!error && to_write) {
        error = plx_extent_header_again(extent);
        if (error)
            plx_extent_cannot_write_header(extent, error, fault);
    }
    if (error) {
        plx_extent_free(extent);
        return error;
    }
    free(extent->buffer);
    extent->buffer = NULL;
    extent->type = ret_first->type;
    extent->sealed = ret_first->sealed;
    plx_extent_mark_header_blocks(extent);
    plx_extent_count_free(extent);
    *ret_extent = extent;
    return 0;
}

int plx_store_extent_read(struct plx_store *store, uint64_t number,
                          struct plx_extent_info *ret_info, struct plx_fault *fault)
{
    struct plx_extent_page first = {0};
    struct plx_extent *extent;
    int error = read_extent(store, number, false, &extent, &first, fault);

    if (error == PLX_ERR_NOT_FOUND) {
        *ret_info = (struct plx_extent_info){.number = number, .blocks = store->info.extent_blocks};
        return 0;
    }
    if (error)
        return error;
    fill_info(extent, first.owner, ret_info);
    ret_info->owner_host = first.owner_host;
    plx_extent_free(extent);
    return 0;
}

/* ---- For collections (collect.c) ---- */

int plx_extent_note_born(struct plx_store *store)
{
    for (struct plx_extent *extent = store->allocator->extents; extent; extent = extent->next) {
        extent->born = calloc(store->info.extent_blocks / 64, sizeof *extent->born);
        if (extent->born)
            continue;
        plx_extent_forget_born(store);
        return PLX_ERR_NOMEM;
    }
    return 0;
}

void plx_extent_forget_born(struct plx_store *store)
{
    for (struct plx_extent *extent = store->allocator->extents; extent; extent = extent->next) {
        free(extent->born);
        extent->born = NULL;
    }
}

bool plx_extent_used_again(const struct plx_store *store, uint64_t addr)
{
    const struct plx_extent *extent = plx_extent_find(store, addr / store->info.extent_blocks);
    uint64_t at = addr % store->info.extent_blocks;

    return extent && (!extent->born || (extent->born[at / 64] >> at % 64 & 1));
}

/* The bitmap of an extent that has not changed hands since the collection began, without the blocks
 * that were handed out since. Such a block holds something new, so what the collection knew of its
 * old contents no longer applies. */
int plx_extent_read_bits(struct plx_store *store, uint64_t number, uint64_t *ret_bits,
                         struct plx_fault *fault)
{
    struct plx_extent *extent = plx_extent_find(store, number);
    size_t words = (size_t)(store->info.extent_blocks / 64);
    struct plx_extent_page first;
    int error;

    if (extent && (!extent->born || !extent->ready))
        return plx_fault_set(fault, PLX_ERR_NOT_FOUND, "extent %llu has just changed hands",
                             (unsigned long long)number);
    if (extent) {
        for (size_t i = 0; i < words; i++)
            ret_bits[i] = extent->bits[i] & ~extent->born[i];
    } else {
        error = read_extent(store, number, false, &extent, &first, fault);
        if (error)
            return error;
        memcpy(ret_bits, extent->bits, words * sizeof *ret_bits);
        if (extent->sealed)
            memset(ret_bits, 0, words * sizeof *ret_bits);
        plx_extent_free(extent);
    }
    for (uint32_t i = 0; i < 2 * page_count(store); i++) /* EXTENT-4: headers are no garbage */
        ret_bits[i / 64] &= ~(1ull << i % 64);
    return 0;
}

/* Clears the bits of the garbage. A bit that is clear already stays so: the bitmap knows better
 * than the caller, whose list may be wrong. */
static uint64_t sweep_bits(struct plx_extent *extent, const uint64_t *garbage)
{
    struct plx_store *store = extent->store;
    uint64_t swept = 0;

    for (uint64_t i = 2 * page_count(store); i < store->info.extent_blocks; i++) {
        if (!(garbage[i / 64] >> i % 64 & 1) || !(extent->bits[i / 64] >> i % 64 & 1))
            continue;
        plx_cache_forget(store->cache, extent->base + i);
        extent->bits[i / 64] &= ~(1ull << i % 64);
        extent->pages[i / PLX_EXTENT_PAGE_BITS].dirty = true;
        swept++;
    }
    extent->free_blocks += swept;
    if (extent->ready)
        store->allocator->free_blocks[extent->type] += swept;
    if (extent->ready && extent->type == PLX_EXTENT_META)
        store->allocator->freed.blocks += swept;
    store->counters.blocks_collected += swept;
    return swept;
}

int plx_store_extent_sweep(struct plx_store *store, uint64_t number, const uint64_t *garbage,
                           struct plx_extent_info *ret_info, uint64_t *ret_swept,
                           struct plx_fault *fault)
{
    struct plx_extent *extent = plx_extent_find(store, number);
    struct plx_extent_page first;
    int error;

    *ret_swept = 0;
    if (extent) {
        *ret_swept = sweep_bits(extent, garbage);
        fill_info(extent, store->options.instance, ret_info);
        plx_alloc_wake(store);
        return 0;
    }
    error = read_extent(store, number, true, &extent, &first, fault);
    if (error)
        return error;
    extent->state = -1; /* leaving: nobody's before and after, so page 0 gets owner 0 */
    extent->next = store->allocator->extents;
    store->allocator->extents = extent;
    *ret_swept = sweep_bits(extent, garbage);
    error = plx_bitmap_sync_run(store);
    if (error)
        plx_fault_set(fault, error, "extent %llu: cannot write its bitmap: %s",
                      (unsigned long long)number, plx_error_text(error));
    fill_info(extent, 0, ret_info);
    plx_extent_drop(store, extent);
    return error;
}
