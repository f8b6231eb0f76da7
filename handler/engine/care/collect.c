/* collect.c - garbage collection by mark and sweep: finds blocks that nobody uses (Parallax 3.4).
 *
 * Most blocks need no garbage collection. The disk frees a block when it is overwritten and no
 * snapshot sees it. When snapshots are let go, reclaim.c frees the blocks that only those snapshots
 * saw. This file finds the rest: blocks of deleted disks and leaks of crashes. Disks stay at work
 * meanwhile, here and in other instances. One collection, step by step:
 *
 *  no  step    function             what it does
 *   1  begin   plx_collect_begin    notes from now on which blocks are allocated; spares blocks
 *                                   that open disks have in flight
 *   2  mark    plx_collect_mark     reads the metadata of every disk once (reach.c)
 *   3  settle  end of that          flushes; spares once more what is in flight or yet to be freed
 *   4  list    plx_collect_garbage  per extent: allocated, not marked, not allocated since step 1
 *   5  end     plx_collect_end      forgets the notes
 *
 * The caller sweeps: it enters what step 4 lists in the registry and clears the bits extent by
 * extent (attach_collect.c, extent.c). A crash before step 4 leaves nothing; after it, the registry
 * knows what is left to sweep. Garbage is looked for only in extents of this instance and of
 * nobody. These rules make that safe beside disks at work:
 *
 * COLLECT-1  Garbage stays garbage until it is swept. No record leads to such a block, nobody is
 *     about to name it in a record, and no disk frees it (ALLOC-6).
 * COLLECT-2  A block that is allocated and not yet named on the store is never taken for garbage.
 *     Such a block lies in an extent that its instance owns. In extents of other instances this
 *     file looks for nothing. In its own extents it spares two kinds: blocks allocated since step 1
 *     (`born`) and blocks in flight at step 1 (spare_pending). An extent that is claimed after step
 *     1 has no `born` bits. If this instance claims it, step 4 skips it. If another one does, the
 *     caller drops what was found there, for the extent's generation in the registry has changed
 *     (ATTACH_COLLECT-2).
 * COLLECT-3  Reading each disk once, at any time after step 1, is enough. Each block that a disk
 *     uses later is one that it used when it was read, or one that was allocated since step 1. A
 *     block comes to a disk from another disk only by cloning. So the slots are looked through
 *     until no unread disk is left; a clone made after that has only blocks of a disk that was
 *     read.
 * COLLECT-4  While a disk is read, no node or log segment that its record leads to is reused. If
 *     the disk is open in this instance, freed metadata is held back meanwhile (ALLOC-7). Otherwise
 *     its record must be unchanged afterwards, or the disk is read again.
 * COLLECT-5  A dead block that its disk is still going to free is not garbage, because it would be
 *     freed twice. Step 3 therefore asks all disks open here for the blocks that they are yet to
 *     free.
 * COLLECT-6  Every record that was read is durable before anything is swept. Otherwise a power cut
 *     could bring an older record back, which leads to blocks that were swept. So step 3 flushes
 *     the store.
 * COLLECT-7  No block becomes common while a collection is under way. A common block (share.c)
 *     would break COLLECT-3: a disk that was already read may come to name it without being a
 *     clone. Within this instance `disks->sharing` keeps the two apart; between instances the
 *     registry's entry does, which a deduplication makes like a collection.
 *
 * Known gap: another instance's read may hang in its device longer than a whole collection. If the
 * block of that read has died meanwhile in an extent of nobody, the read may return what is written
 * there next.
 *
 * Loop: the store's. The calls are synchronous and run it while they read.
 * Crash story: this file changes nothing on the store; the sweep changes only bitmaps.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/care/reach.h"
#include "engine/disk/vdi.h"

#define READINGS_OF_DAMAGE 3u /* of one disk: damage that this one still finds counts */

struct plx_collect {
    struct plx_store *store;
    struct plx_collect_options options;
    struct plx_turns turns;
    struct plx_reach reach;
    bool *look, *moving;   /* for each extent, what enum plx_collect_extent says */
    struct plx_uuid *read; /* for each slot, the disk that was read */
    uint32_t slots;
    bool marked; /* plx_collect_mark() has succeeded */
};

/* ---- What this instance has in flight, or is yet to free (COLLECT-2, COLLECT-5) ---- */

static int spare_list(void *context, const uint64_t *addrs, size_t count)
{
    struct plx_collect *c = context;
    int error = 0;

    for (size_t i = 0; i < count && !error; i++)
        error = plx_reach_mark(&c->reach, addrs[i], 1);
    return error;
}

static int spare_deaths(struct plx_collect *c, const struct plx_deaths *deaths)
{
    return spare_list(c, deaths->addrs, deaths->count);
}

static int spare_segment(struct plx_collect *c, uint64_t addr)
{
    return addr ? plx_reach_mark(&c->reach, addr, c->store->info.segment_blocks) : 0;
}

static int spare_log(struct plx_collect *c, const struct plx_log *log)
{
    const uint64_t named[] = {log->cursor.addr, log->cursor.next_addr, log->spare_addr};
    int error = 0;

    for (size_t i = 0; i < log->segment_count && !error; i++)
        error = spare_segment(c, log->segments[i]);
    for (size_t i = 0; i < sizeof named / sizeof named[0] && !error; i++)
        error = spare_segment(c, named[i]);
    return error;
}

static int spare_keyframe(struct plx_collect *c, const struct plx_keyframe_op *op)
{
    const struct plx_deaths *lists[] = {&op->data_deaths,    &op->node_deaths, &op->index_deaths,
                                        &op->segment_deaths, &op->made,        &op->tree.made};
    int error = op->detour ? spare_deaths(c, &op->detour->made) : 0;

    if (op->made.lost || op->tree.made.lost || (op->detour && op->detour->made.lost))
        return plx_fault_set(c->reach.fault, PLX_ERR_BUSY,
                             "a key frame has forgotten nodes for want of memory; try again");
    for (size_t i = 0; i < sizeof lists / sizeof lists[0] && !error; i++)
        error = spare_deaths(c, lists[i]);
    return error;
}

static int spare_ops(struct plx_collect *c, const struct plx_vdi *vdi)
{
    int error = 0;

    for (const struct plx_op *op = vdi->oldest; op && !error; op = op->next)
        for (unsigned i = 0; i < op->piece_count && !error; i++)
            if (op->pieces[i].addr)
                error = plx_reach_mark(&c->reach, op->pieces[i].addr, op->pieces[i].count);
    return error;
}

static int spare_vdi(struct plx_collect *c, const struct plx_vdi *vdi)
{
    int error = vdi->run.count ? plx_reach_mark(&c->reach, vdi->run.addr, vdi->run.count) : 0;

    if (!error)
        error = spare_ops(c, vdi);
    if (!error)
        error = spare_log(c, &vdi->log);
    if (!error)
        error = spare_keyframe(c, &vdi->keyframe);
    if (!error)
        error = spare_deaths(c, &vdi->map.deaths);
    return error ? error : spare_deaths(c, &vdi->map.frozen_deaths);
}

static int check_vdi(const struct plx_vdi *vdi, struct plx_fault *fault)
{
    const char *why = NULL;

    if (vdi->log.sticky)
        why = "has stopped; close it, so that it is recovered when it is opened again";
    else if (plx_vdi_history_changes(vdi))
        why = "is being rewound, or its snapshots are being let go; try again";
    return why ? plx_fault_set(fault, PLX_ERR_BUSY, "virtual disk %s %s", vdi->record.name, why)
               : 0;
}

static int spare_pending(struct plx_collect *c)
{
    const struct plx_store *store = c->store;
    int error = plx_alloc_each_pending(store, spare_list, c);

    for (const struct plx_vdi *vdi = store->vdis; vdi && !error; vdi = vdi->next) {
        if (vdi->snapshot)
            continue;
        error = check_vdi(vdi, c->reach.fault);
        if (!error)
            error = spare_vdi(c, vdi);
    }
    return error;
}

/* ---- Beginning and ending ---- */

static void collect_free(struct plx_collect *c)
{
    plx_reach_done(&c->reach);
    free(c->look);
    free(c->moving);
    free(c->read);
    free(c);
}

static struct plx_collect *collect_new(struct plx_store *store,
                                       const struct plx_collect_options *options)
{
    struct plx_collect *c = calloc(1, sizeof *c);
    uint64_t extents = store->info.extents;

    if (!c)
        return NULL;
    c->store = store;
    c->options = *options;
    c->turns = (struct plx_turns){.rate = options->rate,
                                  .pause = options->pause,
                                  .interrupted = options->interrupted,
                                  .context = options->context};
    c->slots = plx_vdi_slot_count(store);
    c->look = calloc(extents, sizeof *c->look);
    c->moving = calloc(extents, sizeof *c->moving);
    c->read = calloc(c->slots, sizeof *c->read);
    if (!c->look || !c->moving || !c->read) {
        collect_free(c);
        return NULL;
    }
    for (uint64_t i = 0; i < extents; i++) {
        c->look[i] = options->extents[i] == PLX_COLLECT_LOOK;
        c->moving[i] = options->extents[i] == PLX_COLLECT_MOVING;
    }
    return c;
}

static int has_grown(struct plx_fault *fault)
{
    return plx_fault_set(fault, PLX_ERR_BUSY,
                         "the store has become larger, and may hold what was not looked at; try "
                         "again");
}

int plx_collect_begin(struct plx_store *store, const struct plx_collect_options *options,
                      struct plx_collect **ret_collect, struct plx_fault *fault)
{
    struct plx_collect *c;
    int error;

    if (store->disks->collecting || store->disks->sharing) /* COLLECT-7 */
        return plx_fault_set(fault, PLX_ERR_BUSY,
                             "a collection or a deduplication is under way; try again after it");
    if (options->extent_count != store->info.extents)
        return has_grown(fault);
    c = collect_new(store, options);
    if (!c)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    error = plx_reach_init(&c->reach, store, c->look, c->moving, &c->turns, fault);
    if (!error && plx_extent_note_born(store))
        error = plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    if (!error)
        error = spare_pending(c);
    if (error) {
        plx_extent_forget_born(store);
        collect_free(c);
        return error;
    }
    store->disks->collecting = true;
    *ret_collect = c;
    return 0;
}

void plx_collect_end(struct plx_collect *c)
{
    if (!c)
        return;
    c->store->disks->collecting = false;
    plx_extent_forget_born(c->store);
    collect_free(c);
}

/* ---- Marking ---- */

static const struct plx_vdi *open_here(const struct plx_store *store, uint32_t slot)
{
    const struct plx_vdi *vdi = store->vdis;

    while (vdi && (vdi->snapshot || vdi->record.slot != slot))
        vdi = vdi->next;
    return vdi;
}

/* Refuses a disk that a dead instance left open: it has to be recovered first. */
static int check_owner(const struct plx_collect *c, const struct plx_vdi_record *record,
                       struct plx_fault *fault)
{
    bool lives = !record->owner;

    for (size_t i = 0; i < c->options.living_count && !lives; i++)
        lives = c->options.living[i] == record->owner;
    return lives ? 0
                 : plx_fault_set(fault, PLX_ERR_BUSY,
                                 "virtual disk %s was not closed and could not be recovered: "
                                 "nothing is collected before it is, or is deleted",
                                 record->name);
}

/* The record in force: the one in memory if the disk is open here, else the one on the store. */
static int current_record(struct plx_collect *c, uint32_t slot, struct plx_vdi_record *ret_record,
                          struct plx_fault *fault)
{
    const struct plx_vdi *vdi = open_here(c->store, slot);
    uint8_t which;
    int error;

    if (vdi) {
        *ret_record = vdi->record;
        return check_vdi(vdi, fault);
    }
    error = plx_vdi_record_read(c->store, slot, ret_record, &which, fault);
    if (error || ret_record->state != PLX_VDI_LIVE)
        return error;
    return check_owner(c, ret_record, fault);
}

/* Reads one disk. *ret_whole: nothing that its record leads to was reused meanwhile (COLLECT-4). */
static int try_disk(struct plx_collect *c, const struct plx_vdi_record *record, bool *ret_whole)
{
    const struct plx_vdi *vdi = open_here(c->store, record->slot);
    bool here = vdi != NULL, undisturbed;
    int error, kept;

    plx_alloc_hold_back(c->store);
    error = plx_reach_vdi(&c->reach, record);
    undisturbed = plx_alloc_let_go(c->store);
    /* If the disk was open elsewhere in between, its epoch has changed. */
    vdi = open_here(c->store, record->slot);
    *ret_whole = here ? undisturbed && vdi && vdi->record.epoch == record->epoch
                      : !plx_vdi_record_moved(c->store, record);
    kept = plx_reach_believe(&c->reach, !error && *ret_whole);
    /* A node that was reused while it was read may look damaged: then the disk is read again. */
    return error == PLX_ERR_CORRUPT && !*ret_whole ? kept : error ? error : kept;
}

/* No struct plx_reading (record.h), which knows only records on the store: of a disk that is open
 * here, the record in memory is in force, and freed metadata is held back while it is read. */
static int mark_disk(struct plx_collect *c, uint32_t slot, struct plx_vdi_record *record,
                     struct plx_fault *fault)
{
    bool whole = false;
    int error = 0;

    for (unsigned i = 0; i < PLX_READINGS_MAX && !error && !whole; i++) {
        error = current_record(c, slot, record, fault);
        if (error || record->state != PLX_VDI_LIVE)
            return error == PLX_ERR_NOT_FOUND ? 0 : error;
        error = try_disk(c, record, &whole);
        if (error == PLX_ERR_CORRUPT && i + 1 < READINGS_OF_DAMAGE) {
            whole = false; /* a writer may have been writing there just then: read again */
            error = 0;
        }
    }
    if (error || whole)
        return error;
    return plx_fault_set(fault, PLX_ERR_BUSY,
                         "virtual disk %s changes faster than it can be read; collect when it is "
                         "quiet, or where it is open",
                         record->name);
}

/* COLLECT-3: reads all disks that were not read yet. */
static int mark_new_disks(struct plx_collect *c, bool *ret_found, struct plx_fault *fault)
{
    struct plx_slot_scan scan = {0};
    struct plx_vdi_record record;
    int error = 0;

    *ret_found = false;
    for (uint32_t slot = 0; !error && plx_vdi_next_slot(c->store, &scan, &slot) && slot < c->slots;
         slot++) {
        error = current_record(c, slot, &record, fault);
        if (error == PLX_ERR_NOT_FOUND) {
            error = 0;
            continue;
        }
        if (error || record.state != PLX_VDI_LIVE || plx_uuid_equal(&record.id, &c->read[slot]))
            continue;
        error = mark_disk(c, slot, &record, fault);
        c->read[slot] = record.id;
        *ret_found = true;
        if (c->options.progress)
            c->options.progress(c->options.context,
                                (c->reach.nodes << PLX_BLOCK_SHIFT) + c->reach.log_bytes);
    }
    return error;
}

int plx_collect_mark(struct plx_collect *c, struct plx_fault *fault)
{
    bool found = true;
    int error = 0;

    c->reach.fault = fault;
    /* At least two passes: during the first one the only disk may have been cloned into a slot that
     * the pass had left behind, and then deleted. */
    for (unsigned pass = 0; (found || pass < 2) && !error; pass++)
        error = mark_new_disks(c, &found, fault);
    if (!error && c->options.extent_count != c->store->info.extents)
        error = has_grown(fault);
    if (!error) {
        error = plx_store_flush_others(c->store); /* COLLECT-6 */
        if (error)
            plx_fault_set(fault, error, "cannot flush the store: %s", plx_error_text(error));
    }
    if (!error)
        error = spare_pending(c); /* COLLECT-5 */
    c->marked = !error;
    return error;
}

/* ---- Garbage ---- */

int plx_collect_garbage(struct plx_collect *c, uint64_t extent, uint64_t *ret_bits,
                        uint64_t *ret_count, struct plx_fault *fault)
{
    uint64_t words = c->store->info.extent_blocks / 64;
    const uint64_t *used = c->reach.used.bits[extent];
    int error;

    PLX_ASSERT(c->marked && c->look[extent]);
    *ret_count = 0;
    error = plx_extent_read_bits(c->store, extent, ret_bits, fault);
    if (error)
        return error;
    for (uint64_t i = 0; i < words; i++) {
        ret_bits[i] &= used ? ~used[i] : ~0ull; /* COLLECT-1 */
        *ret_count += (unsigned)__builtin_popcountll(ret_bits[i]);
    }
    return 0;
}
