/* extent.c - extents this instance owns: loading, their bitmaps, writing the bitmaps back.
 *
 * E1  The bitmap in memory is the truth while the extent is owned; the store's copy follows at
 *     each plx_bitmap_sync (before a VDI record that relies on it flips).
 * E2  A page's next generation is written only after this one is durable: one pass at a time,
 *     which writes, flushes and then lets the other slots follow (mirrors). So one of the two
 *     slots is always whole, and damage to one that lies there costs nothing: an older bitmap
 *     would call blocks free that are in use. Of what somebody else wrote before, a mirror alone
 *     says that it is durable: his flush may have failed, and a cache goes on showing what it has
 *     dropped. So where there is none the header is written again first, byte for byte as it was
 *     read, both slots at once, and flushed: of the two one is durable by then, and the same bytes
 *     do not harm it.
 * E3  An extent is allocated from only after both slots of all its pages are durable and name its
 *     owner. Slot B is written first; where slot A of some page is zero and slot B is none, torn or
 *     that first one, the extent never came into use. With a later slot B slot A is lost, or the
 *     first flush failed and B was written again: then its bitmap says that nothing is in it.
 * E4  The header pages' own bits are always set.
 * E5  An older bitmap would call blocks free that are in use. So a header is believed only as far
 *     as it agrees with who granted the extent, who knows how many states its pages had when it was
 *     given up (or, of a dead owner, when one of his disks was closed last). Fewer: the device lost
 *     a write. More, or somebody's blocks or name where there should be none: the registry did. An
 *     extent that never came into use (E3) may have a name, its claimer's who died; but blocks in
 *     any page count. Neither is used or written. What can be told is durable: the newest
 *     generation of each page that a flush covered, or that was read and, where no mirror proved
 *     it, written again.
 * E6  Whoever names an extent from outside has its number from a registry, which may say anything:
 *     one that the store has not, or that holds its own structures, is refused before it becomes
 *     an address.
 * Loop: the store's. Crash story: before the pages are durable the extent holds nothing of ours;
 *   blocks marked on the store but referenced by nothing are leaks, which a sweep finds; blocks
 *   referenced but not marked cannot be, because the key frame that refers to them comes after,
 *   and those that only the log names are marked again by replay.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/loop/store.h"

#define PAGE_BYTES (PLX_EXTENT_PAGE_BITS / 8)
#define MAKE_ANEW "; 'parallax store rebuild-registry' makes its registry anew from the store"

static uint32_t page_count(const struct plx_store *store)
{
    return plx_extent_pages(store->info.extent_blocks);
}

static size_t header_bytes(const struct plx_store *store)
{
    return (size_t)page_count(store) * 2 * PLX_BLOCK_SIZE;
}

struct plx_extent *plx_extent_find(const struct plx_store *store, uint64_t number)
{
    struct plx_extent *extent = store->extents;

    while (extent && extent->number != number)
        extent = extent->next;
    return extent;
}

static void extent_free(struct plx_extent *extent)
{
    free(extent->bits);
    free(extent->born);
    free(extent->pages);
    free(extent->buffer);
    free(extent);
}

enum {
    SYNC_IDLE,
    SYNC_ROUND,
    SYNC_WRITTEN,
    SYNC_FLUSHED,
    SYNC_MIRRORED,
};

static void free_list(struct plx_extent **list)
{
    while (*list) {
        struct plx_extent *extent = *list;

        *list = extent->next;
        extent_free(extent);
    }
}

void plx_extent_free_all(struct plx_store *store)
{
    free_list(&store->extents);
    free_list(&store->dropped);
}

/* Takes an extent out of the list and frees it, once no bitmap pass writes its pages. */
static void extent_drop(struct plx_store *store, struct plx_extent *extent)
{
    struct plx_extent **link = &store->extents;
    struct plx_bitmap_sync *sync = &store->bitmap_sync;

    while (*link != extent)
        link = &(*link)->next;
    *link = extent->next;
    if (sync->extent == extent) {
        sync->extent = extent->next;
        sync->page = 0;
    }
    extent->next = store->dropped;
    store->dropped = extent;
    if (sync->state == SYNC_IDLE)
        free_list(&store->dropped);
}

void plx_extent_set_ready(struct plx_extent *extent, bool ready)
{
    PLX_ASSERT(extent->ready != ready);
    extent->ready = ready;
    extent->store->free_blocks[extent->type] += ready ? extent->free_blocks : -extent->free_blocks;
}

static struct plx_extent *extent_new(struct plx_store *store, enum plx_extent_type type,
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
        extent_free(extent);
        return NULL;
    }
    return extent;
}

/* E6 */
static int check_number(const struct plx_store *store, uint64_t number, struct plx_fault *fault)
{
    if (number < store->info.extents && !plx_store_extent_is_system(store, number))
        return 0;
    return plx_fault_set(
        fault, PLX_ERR_CORRUPT,
        number < store->info.extents
            ? "extent %llu of %llu holds the store's own structures" MAKE_ANEW
            : "extent %llu is beyond the end of the store, which has %llu" MAKE_ANEW,
        (unsigned long long)number, (unsigned long long)store->info.extents);
}

/* ---- Loading ---- */

static void mark_header_blocks(struct plx_extent *extent)
{
    uint32_t blocks = page_count(extent->store) * 2;

    for (uint32_t i = 0; i < blocks; i++) /* E4 */
        extent->bits[i / 64] |= 1ull << i % 64;
}

static void count_free(struct plx_extent *extent)
{
    uint64_t used = 0, blocks = extent->store->info.extent_blocks;

    for (uint64_t i = 0; i < blocks / 64; i++)
        used += (unsigned)__builtin_popcountll(extent->bits[i]);
    extent->free_blocks = blocks - used;
}

/* E3. generation: of the newer whole slot of the page, 0: there is none. */
static bool never_used(const struct plx_extent *extent, uint32_t page, uint64_t generation)
{
    const uint8_t *block = (const uint8_t *)extent->buffer + 2 * page * PLX_BLOCK_SIZE;

    return generation <= plx_generation_next(0) && block[0] == 0 &&
           memcmp(block, block + 1, PLX_BLOCK_SIZE - 1) == 0;
}

/* Takes over the newer valid slot of one page. *ret_first: as page 0 says. */
static int decode_page(struct plx_extent *extent, uint32_t p, struct plx_extent_page *ret_first,
                       struct plx_fault *fault)
{
    struct plx_extent_page_state *state = &extent->pages[p];
    uint32_t pages = page_count(extent->store);
    uint64_t other = 0;
    bool found = false;

    for (uint8_t slot = 0; slot < 2; slot++) {
        uint8_t *block = (uint8_t *)extent->buffer + (2 * p + slot) * PLX_BLOCK_SIZE;
        struct plx_extent_page page;

        if (plx_format_extent_page_decode(block, &extent->store->info.id, extent->number, p, pages,
                                          &page, NULL))
            continue;
        if (found && page.generation <= state->generation) {
            other = page.generation;
            continue;
        }
        found = true;
        other = state->generation;
        state->generation = state->durable = page.generation;
        state->slot = slot;
        memcpy((uint8_t *)extent->bits + p * PAGE_BYTES, plx_format_extent_bits(block), PAGE_BYTES);
        if (p == 0)
            *ret_first = page;
    }
    if (never_used(extent, p, state->generation)) {
        extent->unused = true;
    } else if (!found) {
        return plx_fault_set(fault, PLX_ERR_CORRUPT,
                             "extent %llu: both copies of bitmap page %u are damaged",
                             (unsigned long long)extent->number, p);
    }
    if (!plx_counter_has_room(state->generation))
        return plx_fault_set(fault, PLX_ERR_CORRUPT,
                             "extent %llu: bitmap page %u has an impossible generation",
                             (unsigned long long)extent->number, p);
    extent->again = extent->again || !plx_generation_mirrored(state->generation, other);
    return 0;
}

static int decode_pages(struct plx_extent *extent, struct plx_extent_page *ret_first,
                        struct plx_fault *fault)
{
    int error = 0;

    for (uint32_t p = 0; p < page_count(extent->store) && !error; p++)
        error = decode_page(extent, p, ret_first, fault);
    if (!error && extent->unused && !extent->fresh && !extent->expected)
        return plx_fault_set(fault, PLX_ERR_NOT_FOUND, "extent %llu never came into use",
                             (unsigned long long)extent->number);
    return error;
}

/* E5 */
static uint64_t count_states(const struct plx_extent *extent)
{
    uint64_t states = 0;

    for (uint32_t p = 0; p < page_count(extent->store); p++)
        states += (extent->pages[p].durable + 1) / 2;
    return states;
}

static int cannot_write_header(const struct plx_extent *extent, int error, struct plx_fault *fault)
{
    return plx_fault_set(fault, error, "extent %llu: cannot write its header: %s",
                         (unsigned long long)extent->number, plx_error_text(error));
}

/* E2. Of an extent that was just read, by who may write it. */
static int header_again(struct plx_extent *extent)
{
    struct plx_store *store = extent->store;
    uint64_t mark = store->flush_failures;
    int error;

    if (!extent->again)
        return 0;
    error = plx_store_write_sync(store, PLX_KIND_ADMIN, extent->base, extent->buffer,
                                 header_bytes(store));
    return error ? error : plx_store_flush_sync(store, mark);
}

/* E5, of an extent that nobody owned when it was granted. */
static int check_grant(const struct plx_extent *extent, const struct plx_extent_page *first,
                       struct plx_fault *fault)
{
    uint64_t states = count_states(extent), used = extent->store->info.extent_blocks;
    unsigned long long number = extent->number;

    for (uint64_t i = 0; i < extent->store->info.extent_blocks / 64; i++)
        used -= 64 - (unsigned)__builtin_popcountll(extent->bits[i]);
    if (states < extent->expected || (extent->unused && extent->expected))
        return plx_fault_set(fault, PLX_ERR_CORRUPT,
                             "extent %llu: its header is older than what was written last: the "
                             "device lost a write that it had acknowledged",
                             number);
    if ((extent->expected && states > extent->expected) ||
        (extent->fresh && used > 2 * page_count(extent->store)))
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
    if (first->owner) /* it was given up, but that is not what can be read of it */
        return plx_fault_set(fault, PLX_ERR_CORRUPT,
                             "extent %llu: its header names an owner, and nobody owns it", number);
    return 0;
}

static void own_pages(struct plx_extent *extent)
{
    mark_header_blocks(extent);
    count_free(extent);
    for (uint32_t p = 0; p < page_count(extent->store); p++)
        extent->pages[p].dirty = true;
}

enum {
    LOAD_READ,
    LOAD_DECODE,
    LOAD_AGAIN, /* the header is written again */
    LOAD_FLUSHED,
    LOAD_ONE_SLOT, /* one slot of each page is durable */
    LOAD_SYNCED,
    LOAD_ADOPTED, /* not yet known to be free where its bitmap says so */
};

/* type UNUSED: asked for by number, to free blocks in it. */
static void answered(struct plx_store *store, enum plx_extent_type type, uint64_t number)
{
    if (type == PLX_EXTENT_UNUSED)
        plx_alloc_foreign_answered(store, number);
    else
        store->wanted[type].asked = false;
}

/* The one that was granted is of no use; perhaps another one is. */
static void load_refused(struct plx_extent *extent, int error, const char *why)
{
    struct plx_store *store = extent->store;
    enum plx_extent_type asked_as = extent->asked_as;
    uint64_t number = extent->number;

    plx_store_event(store, error, "%s", why);
    extent_drop(store, extent);
    if (store->env->extent_refused)
        store->env->extent_refused(store->env, store, number, error, why);
    answered(store, asked_as, number);
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
        extent_drop(store, extent);
        plx_alloc_denied(store, asked_as, error); /* or one after the other would be asked for */
    } else {
        store->wanted[asked_as].refused = 0;
        if (!extent->sealed)
            plx_extent_set_ready(extent, true); /* E3 */
    }
    answered(store, asked_as, number);
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
    own_pages(extent);
    extent->state = extent->fresh ? LOAD_ONE_SLOT : LOAD_SYNCED;
    plx_bitmap_sync(extent->store, &extent->task);
}

static void load_decoded(struct plx_extent *extent)
{
    struct plx_extent_page first = {0};
    struct plx_fault why;
    int error = extent->join.error;

    if (!error) {
        error = decode_pages(extent, &first, &why);
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
            extent->flush_mark = extent->store->flush_failures;
            load_xfer(extent, PLX_IO_WRITE);
            return;
        }
    }
    load_own(extent);
}

static void load_step(struct plx_task *task)
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
        own_pages(extent); /* and now the other one (E3) */
        extent->state = LOAD_SYNCED;
        plx_bitmap_sync(store, task);
        return;
    case LOAD_SYNCED:
        load_finish(extent, task->error);
        return;
    }
}

void plx_store_extent_granted(struct plx_store *store, enum plx_extent_type type, int error,
                              const struct plx_grant *grant)
{
    struct plx_extent *extent = NULL;

    if (!error &&
        (check_number(store, grant->extent, NULL) || plx_extent_find(store, grant->extent)))
        error = PLX_ERR_REGISTRY;
    if (!error) {
        extent = extent_new(store, type, grant->extent, grant->fresh);
        error = extent ? 0 : PLX_ERR_NOMEM;
    }
    if (error) {
        answered(store, type, store->foreign.extent);
        plx_alloc_denied(store, type, error);
        plx_alloc_wake(store);
        return;
    }
    extent->expected = extent->told = grant->states;
    extent->granted = ++store->grants;
    extent->collections = store->collections;
    extent->next = store->extents;
    store->extents = extent;
    extent->asked_as = type;
    extent->task.step = load_step;
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
    extent = extent_new(store, PLX_EXTENT_UNUSED, number, false);
    if (!extent)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    error = plx_store_read_sync(store, PLX_KIND_ADMIN, extent->base, extent->buffer,
                                header_bytes(store));
    if (error)
        plx_fault_set(fault, error, "extent %llu: %s", (unsigned long long)number,
                      plx_error_text(error));
    else
        error = decode_pages(extent, &first, fault);
    if (!error) {
        error = header_again(extent);
        if (error)
            cannot_write_header(extent, error, fault);
    }
    if (error) {
        extent_free(extent);
        return error;
    }
    extent->type = first.type;
    extent->sealed = first.sealed;
    extent->state = LOAD_ADOPTED;
    extent->granted = ++store->grants;
    extent->collections = store->collections;
    own_pages(extent);
    free(extent->buffer);
    extent->buffer = NULL;
    extent->next = store->extents;
    store->extents = extent;
    return 0;
}

int plx_store_extents_adopted(struct plx_store *store, struct plx_fault *fault)
{
    int error = plx_bitmap_sync_run(store); /* E3 */

    if (error)
        return plx_fault_set(fault, error, "the headers of adopted extents cannot be written: %s",
                             plx_error_text(error));
    for (struct plx_extent *extent = store->extents; extent; extent = extent->next) {
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
        .states = count_states(extent),
        .settled = !extent->again,
    };
}

void plx_store_extents_seal(struct plx_store *store)
{
    for (struct plx_extent *extent = store->extents; extent; extent = extent->next) {
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
    struct plx_extent *extent = store->extents;

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

    for (const struct plx_extent *extent = store->extents; extent; extent = extent->next)
        count++;
    *ret_count = 0;
    list = calloc(count + 1, sizeof *list);
    for (struct plx_extent *extent = store->extents; list && extent; extent = extent->next) {
        /* Of a fresh one a crash may leave what was never used (E3). */
        bool loaded = extent->ready || extent->state == LOAD_ADOPTED ||
                      (extent->sealed && extent->state == LOAD_SYNCED);
        uint64_t states = loaded ? count_states(extent) : 0;

        if (states <= extent->told)
            continue;
        extent->told = states;
        fill_info(extent, store->options.instance, &list[(*ret_count)++]);
    }
    return list;
}

/* false: it is not held yet. */
static bool begin_release(struct plx_extent *extent)
{
    if (extent->state == -1)
        return true;
    if (!extent->ready && (!extent->sealed || extent->state == LOAD_ADOPTED))
        return false;
    if (extent->ready)
        plx_extent_set_ready(extent, false);
    extent->pages[0].dirty = true;
    extent->state = -1; /* page 0 is written with owner 0 */
    return true;
}

/* Of all that are on their way out, for what one pass failed to write may be any of them: they name
 * this instance again with the next one. */
static void take_back(struct plx_store *store)
{
    for (struct plx_extent *extent = store->extents; extent; extent = extent->next) {
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
    for (struct plx_extent *extent = store->extents; extent; extent = extent->next)
        begin_release(extent);
}

int plx_store_extent_release(struct plx_store *store, uint64_t number,
                             struct plx_extent_info *ret_info, struct plx_fault *fault)
{
    struct plx_extent *extent = plx_extent_find(store, number);
    uint64_t owner = store->options.instance;
    int error;

    if (!extent || !begin_release(extent))
        return plx_fault_set(fault, PLX_ERR_NOT_FOUND, "extent %llu is not held here",
                             (unsigned long long)number);
    error = plx_bitmap_sync_run(store);
    if (error) {
        take_back(store);
        return cannot_write_header(extent, error, fault);
    }
    fill_info(extent, owner, ret_info);
    extent_drop(store, extent);
    return 0;
}

/* As it lies on the store, whoever owns it; NOT_FOUND: it never came into use. to_write: by who may
 * write it, and will. */
static int read_extent(struct plx_store *store, uint64_t number, bool to_write,
                       struct plx_extent **ret_extent, struct plx_extent_page *ret_first,
                       struct plx_fault *fault)
{
    struct plx_extent *extent;
    int error = check_number(store, number, fault);

    if (error)
        return error;
    extent = extent_new(store, PLX_EXTENT_UNUSED, number, false);
    if (!extent)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    error = plx_store_read_sync(store, PLX_KIND_ADMIN, extent->base, extent->buffer,
                                header_bytes(store));
    if (error)
        plx_fault_set(fault, error, "extent %llu: %s", (unsigned long long)number,
                      plx_error_text(error));
    else
        error = decode_pages(extent, ret_first, fault);
    if (!error && to_write) {
        error = header_again(extent);
        if (error)
            cannot_write_header(extent, error, fault);
    }
    if (error) {
        extent_free(extent);
        return error;
    }
    free(extent->buffer);
    extent->buffer = NULL;
    extent->type = ret_first->type;
    extent->sealed = ret_first->sealed;
    mark_header_blocks(extent);
    count_free(extent);
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
    extent_free(extent);
    return 0;
}

/* ---- For collections (collect.c) ---- */

int plx_extent_note_born(struct plx_store *store)
{
    for (struct plx_extent *extent = store->extents; extent; extent = extent->next) {
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
    for (struct plx_extent *extent = store->extents; extent; extent = extent->next) {
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

/* Of an extent that was here all the time, without what was handed out since: whatever the
 * collection knows of that block, it is another one now. */
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
        extent_free(extent);
    }
    for (uint32_t i = 0; i < 2 * page_count(store); i++) /* E4 */
        ret_bits[i / 64] &= ~(1ull << i % 64);
    return 0;
}

/* Takes the garbage's bits away; what is free already the store knows better (INV-7). */
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
        store->free_blocks[extent->type] += swept;
    if (extent->ready && extent->type == PLX_EXTENT_META)
        store->freed.blocks += swept;
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
    extent->state = -1; /* nobody's, before and after */
    extent->next = store->extents;
    store->extents = extent;
    *ret_swept = sweep_bits(extent, garbage);
    error = plx_bitmap_sync_run(store);
    if (error)
        plx_fault_set(fault, error, "extent %llu: cannot write its bitmap: %s",
                      (unsigned long long)number, plx_error_text(error));
    fill_info(extent, 0, ret_info);
    extent_drop(store, extent);
    return error;
}

/* ---- Writing bitmaps back ---- */

/* After a failed flush nobody knows what arrived: the pages are written again (E2). */
static void pages_flushed(struct plx_store *store, bool durable)
{
    for (struct plx_extent *extent = store->extents; extent; extent = extent->next)
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
    store->bitmap_sync.mirroring = mirroring;
    store->bitmap_sync.extent = store->extents;
    store->bitmap_sync.page = 0;
}

static void sync_start(struct plx_store *store)
{
    struct plx_bitmap_sync *sync = &store->bitmap_sync;

    if (sync->flush_mark != store->flush_failures)
        pages_flushed(store, false); /* an earlier pass's pages, if it did not get to its flush */
    sync->flush_mark = store->flush_failures;
    store->freed.before = store->freed.blocks;
    sync->running = sync->joining;
    sync->joining = (struct plx_queue){0};
    sync->state = SYNC_ROUND;
    sync->error = 0;
    sync_rewind(store, false);
    plx_task_ready(store, &sync->task);
}

/* Which slot a page goes to now, and as which generation. */
static uint8_t take_slot(struct plx_extent_page_state *state, bool mirror, uint64_t *ret_generation)
{
    if (mirror) {
        state->unmirrored = false;
        *ret_generation = state->generation - 1;
        return state->slot ^ 1;
    }
    *ret_generation = state->generation = plx_generation_next(state->generation);
    state->dirty = state->unmirrored = false;
    if (!state->unflushed) /* E2 */
        state->slot ^= 1;
    state->unflushed = true;
    return state->slot;
}

static void write_page(struct plx_store *store, struct plx_extent *extent, uint32_t p)
{
    struct plx_bitmap_sync *sync = &store->bitmap_sync;
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

/* Submits the next round of pages; false when the pass is through. */
static bool sync_round(struct plx_store *store)
{
    struct plx_bitmap_sync *sync = &store->bitmap_sync;

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
    struct plx_bitmap_sync *sync = &store->bitmap_sync;
    struct plx_task *task;

    sync->state = SYNC_IDLE;
    free_list(&store->dropped);
    while ((task = plx_queue_pop(&sync->running)) != NULL) {
        task->error = sync->error;
        plx_task_ready(store, task);
    }
    if (sync->joining.head)
        sync_start(store);
}

static void pass_ended(struct plx_store *store, int error)
{
    store->freed.blocks -= error ? 0 : store->freed.before;
    store->freed.failed_at_ns = error ? plx_max_u64(1, store->env->monotonic_ns(store->env)) : 0;
}

static void sync_step(struct plx_task *task)
{
    struct plx_bitmap_sync *sync = PLX_CONTAINER(task, struct plx_bitmap_sync, task);
    struct plx_store *store = PLX_CONTAINER(sync, struct plx_store, bitmap_sync);

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
    case SYNC_MIRRORED: /* a mirror that cannot be written is no harm: the page itself is durable */
        if (!sync->error && sync_round(store))
            return;
        sync_finish(store);
        return;
    }
}

void plx_bitmap_sync_init(struct plx_store *store)
{
    store->bitmap_sync.task.step = sync_step;
}

void plx_bitmap_sync(struct plx_store *store, struct plx_task *task)
{
    plx_queue_push(&store->bitmap_sync.joining, task);
    if (store->bitmap_sync.state == SYNC_IDLE)
        sync_start(store);
}

int plx_bitmap_sync_run(struct plx_store *store)
{
    struct plx_waiter waiter = PLX_WAITER;

    plx_bitmap_sync(store, &waiter.task);
    return plx_waiter_wait(store, &waiter);
}
