/* extent_load.c - an extent that was granted: its header is read, believed or refused, and taken
 * over (EXTENT-2, EXTENT-3, EXTENT-5).
 *
 * The load of one extent, by its state in the order of LOAD_*:
 *   1. READ, DECODE     The header is read. check_grant() compares it with the grant.
 *   2. AGAIN, FLUSHED   Not fresh, and a page has no mirror copy: the header is written as read.
 *   3. ONE_SLOT         Fresh only: a first bitmap pass makes one slot of each page durable.
 *   4. SYNCED           A pass makes one slot of each page durable; if fresh, the other one: ready.
 * Nothing is allocated from the extent before it is ready, so a crash may leave any of these. */
#include <stdlib.h>
#include <string.h>

#include "engine/space/allocator_inside.h"

void plx_extent_mark_header_blocks(struct plx_extent *extent)
{
    uint32_t blocks = page_count(extent->store) * 2;

    for (uint32_t i = 0; i < blocks; i++) /* EXTENT-4 */
        extent->bits[i / 64] |= 1ull << i % 64;
}

void plx_extent_count_free(struct plx_extent *extent)
{
    uint64_t used = 0, blocks = extent->store->info.extent_blocks;

    for (uint64_t i = 0; i < blocks / 64; i++)
        used += (unsigned)__builtin_popcountll(extent->bits[i]);
    extent->free_blocks = blocks - used;
}

/* EXTENT-3. generation: that of the newer whole slot of the page; 0 if neither slot is whole. */
static bool never_used(const struct plx_extent *extent, uint32_t page, uint64_t generation)
{
    const uint8_t *block = (const uint8_t *)extent->buffer + 2 * page * PLX_BLOCK_SIZE;

    return generation <= plx_generation_next(0) && block[0] == 0 &&
           memcmp(block, block + 1, PLX_BLOCK_SIZE - 1) == 0;
}

/* Takes over the newer valid slot of one page. *ret_first receives what page 0 says. */
static int decode_page(struct plx_extent *extent, uint32_t p, struct plx_extent_page *ret_first,
                       struct plx_fault *fault)
{
    struct plx_extent_page_state *state = &extent->pages[p];
    uint32_t pages = page_count(extent->store);
    struct plx_newest newest = {0};

    for (uint8_t slot = 0; slot < 2; slot++) {
        uint8_t *block = (uint8_t *)extent->buffer + (2 * p + slot) * PLX_BLOCK_SIZE;
        struct plx_extent_page page;

        if (plx_format_extent_page_decode(block, &extent->store->info.id, extent->number, p, pages,
                                          &page, NULL) ||
            !plx_newest_take(&newest, page.generation))
            continue;
        state->generation = state->durable = page.generation;
        state->slot = slot;
        memcpy((uint8_t *)extent->bits + p * PAGE_BYTES, plx_format_extent_bits(block), PAGE_BYTES);
        if (p == 0)
            *ret_first = page;
    }
    if (never_used(extent, p, state->generation)) {
        extent->unused = true;
    } else if (!newest.found) {
        return plx_fault_set(fault, PLX_ERR_CORRUPT,
                             "extent %llu: both copies of bitmap page %u are damaged",
                             (unsigned long long)extent->number, p);
    }
    if (!plx_counter_has_room(state->generation))
        return plx_fault_set(fault, PLX_ERR_CORRUPT,
                             "extent %llu: bitmap page %u has an impossible generation",
                             (unsigned long long)extent->number, p);
    extent->again = extent->again || !plx_newest_mirrored(&newest);
    return 0;
}

static uint64_t count_used(const struct plx_extent *extent)
{
    uint64_t used = 0;

    for (uint64_t i = 0; i < extent->store->info.extent_blocks / 64; i++)
        used += (unsigned)__builtin_popcountll(extent->bits[i]);
    return used;
}

int plx_extent_decode_pages(struct plx_extent *extent, struct plx_extent_page *ret_first,
                            struct plx_fault *fault)
{
    int error = 0;

    for (uint32_t p = 0; p < page_count(extent->store) && !error; p++)
        error = decode_page(extent, p, ret_first, fault);
    if (error || !extent->unused || extent->fresh || extent->expected)
        return error;
    if (count_used(extent) > 2 * page_count(extent->store)) /* EXTENT-3: it was in use, then */
        return plx_fault_set(fault, PLX_ERR_CORRUPT,
                             "extent %llu: its bitmap says that blocks are in use, but a page of "
                             "it was never written",
                             (unsigned long long)extent->number);
    return plx_fault_set(fault, PLX_ERR_NOT_FOUND, "extent %llu never came into use",
                         (unsigned long long)extent->number);
}

/* EXTENT-5 */
uint64_t plx_extent_count_states(const struct plx_extent *extent)
{
    uint64_t states = 0;

    for (uint32_t p = 0; p < page_count(extent->store); p++)
        states += (extent->pages[p].durable + 1) / 2;
    return states;
}

int plx_extent_cannot_write_header(const struct plx_extent *extent, int error,
                                   struct plx_fault *fault)
{
    return plx_fault_set(fault, error, "extent %llu: cannot write its header: %s",
                         (unsigned long long)extent->number, plx_error_text(error));
}

/* EXTENT-2. The extent was just read, and the caller is the one who may write it. */
int plx_extent_header_again(struct plx_extent *extent)
{
    struct plx_store *store = extent->store;
    struct plx_flush_mark mark = plx_flush_mark(store);
    int error;

    if (!extent->again)
        return 0;
    error = plx_store_write_sync(store, PLX_KIND_ADMIN, extent->base, extent->buffer,
                                 header_bytes(store));
    return error ? error : plx_store_flush_sync(store, mark);
}

/* EXTENT-5, for an extent that nobody owned when it was granted. */
static int check_grant(const struct plx_extent *extent, const struct plx_extent_page *first,
                       struct plx_fault *fault)
{
    uint64_t states = plx_extent_count_states(extent);
    unsigned long long number = extent->number;

    if (states < extent->expected || (extent->unused && extent->expected))
        return plx_fault_set(fault, PLX_ERR_CORRUPT,
                             "extent %llu: its header is older than what was written last: the "
                             "device lost a write that it had acknowledged",
                             number);
    if ((extent->expected && states > extent->expected) ||
        (extent->fresh && count_used(extent) > 2 * page_count(extent->store)))
        return plx_fault_set(fault, PLX_ERR_REGISTRY,
                             "extent %llu: its header says that it was used since the registry saw "
                             "it last: the registry lost a write",
                             number);
    if (extent->unused)
        return 0;
    if (first->owner && extent->fresh)
        return plx_fault_set(fault, PLX_ERR_REGISTRY,
                             "extent %llu: its header names an owner, and the registry takes it "
                             "for unused: the registry lost a write",
                             number);
    if (first->owner) /* its last owner gave it up: what was read is an older state */
        return plx_fault_set(fault, PLX_ERR_CORRUPT,
                             "extent %llu: its header names an owner, and nobody owns it", number);
    return 0;
}

void plx_extent_own_pages(struct plx_extent *extent)
{
    plx_extent_mark_header_blocks(extent);
    plx_extent_count_free(extent);
    for (uint32_t p = 0; p < page_count(extent->store); p++)
        extent->pages[p].dirty = true;
}

/* Type UNUSED: the extent was asked for by its number, to free blocks in it. */
void plx_extent_answered(struct plx_store *store, enum plx_extent_type type, uint64_t number)
{
    if (type == PLX_EXTENT_UNUSED)
        plx_alloc_foreign_answered(store, number);
    else
        store->allocator->wanted[type].asked = false;
}

/* The granted extent is of no use. The environment is told, and another extent may be asked for. */
static void load_refused(struct plx_extent *extent, int error, const char *why)
{
    struct plx_store *store = extent->store;
    enum plx_extent_type asked_as = extent->asked_as;
    uint64_t number = extent->number;

    plx_store_event(store, error, "%s", why);
    plx_extent_drop(store, extent);
    if (store->env->extent_refused)
        store->env->extent_refused(store->env, store, number, error, why);
    plx_extent_answered(store, asked_as, number);
    if (asked_as != PLX_EXTENT_UNUSED)
        plx_alloc_refused(store, asked_as, error);
    plx_alloc_wake(store);
}

static void load_finish(struct plx_extent *extent, int error)
{
    struct plx_store *store = extent->store;
    enum plx_extent_type asked_as = extent->asked_as;
    uint64_t number = extent->number;

    free(extent->buffer);
    extent->buffer = NULL;
    if (error) {
        plx_store_event(store, error, "extent %llu cannot be used: %s",
                        (unsigned long long)extent->number, plx_error_text(error));
        plx_extent_drop(store, extent);
        plx_alloc_denied(store, asked_as, error); /* not one extent after the other */
    } else {
        store->allocator->wanted[asked_as].refused = 0;
        if (!extent->sealed)
            plx_extent_set_ready(extent, true); /* EXTENT-3 */
    }
    plx_extent_answered(store, asked_as, number);
    plx_alloc_wake(store);
}

static void load_xfer(struct plx_extent *extent, enum plx_io_op op)
{
    struct plx_store *store = extent->store;
    size_t bytes = header_bytes(store);

    extent->iov = (struct iovec){extent->buffer, bytes};
    extent->join = (struct plx_join){.task = &extent->task};
    plx_store_xfer(store, &extent->xfer, op, PLX_KIND_ADMIN, extent->base, 0, bytes, &extent->iov,
                   1, &extent->join);
}

static void load_own(struct plx_extent *extent)
{
    plx_extent_own_pages(extent);
    extent->state = extent->fresh ? LOAD_ONE_SLOT : LOAD_SYNCED;
    plx_bitmap_sync(extent->store, &extent->task);
}

static void load_decoded(struct plx_extent *extent)
{
    struct plx_extent_page first = {0};
    struct plx_fault why;
    int error = extent->join.error;

    if (!error) {
        error = plx_extent_decode_pages(extent, &first, &why);
        if (!error)
            error = check_grant(extent, &first, &why);
    }
    if (error == PLX_ERR_CORRUPT || error == PLX_ERR_REGISTRY) {
        load_refused(extent, error, why.text);
        return;
    }
    if (error) {
        load_finish(extent, error);
        return;
    }
    if (extent->fresh) {
        memset(extent->bits, 0, (size_t)page_count(extent->store) * PAGE_BYTES);
    } else {
        if (first.type == PLX_EXTENT_DATA || first.type == PLX_EXTENT_META)
            extent->type = first.type;
        extent->sealed = first.sealed;
        if (extent->again) {
            extent->state = LOAD_AGAIN;
            extent->flush_mark = plx_flush_mark(extent->store);
            load_xfer(extent, PLX_IO_WRITE);
            return;
        }
    }
    load_own(extent);
}

void plx_extent_load_step(struct plx_task *task)
{
    struct plx_extent *extent = PLX_CONTAINER(task, struct plx_extent, task);
    struct plx_store *store = extent->store;

    switch (extent->state) {
    case LOAD_READ:
        extent->state = LOAD_DECODE;
        load_xfer(extent, PLX_IO_READ);
        return;
    case LOAD_DECODE:
        load_decoded(extent);
        return;
    case LOAD_AGAIN:
        if (extent->join.error) {
            load_finish(extent, extent->join.error);
            return;
        }
        extent->state = LOAD_FLUSHED;
        plx_store_flush(store, task, extent->flush_mark);
        return;
    case LOAD_FLUSHED:
        if (task->error)
            load_finish(extent, task->error);
        else
            load_own(extent);
        return;
    case LOAD_ONE_SLOT:
        if (task->error) {
            load_finish(extent, task->error);
            return;
        }
        plx_extent_own_pages(extent); /* now the other slot (EXTENT-3) */
        extent->state = LOAD_SYNCED;
        plx_bitmap_sync(store, task);
        return;
    case LOAD_SYNCED:
        load_finish(extent, task->error);
        return;
    }
}
