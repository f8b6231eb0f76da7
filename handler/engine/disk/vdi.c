/* vdi.c - virtual disks: records, creating, opening (with recovery), instants, closing.
 *
 * V1  Who may write a record that he has read makes it durable first (record.c, D1).
 * V2  A writer raises the epoch before it logs anything; replay behind the key frame believes only
 *     the record's epoch. So an unclean end is first brought into a key frame; the record that
 *     flips to it carries the new epoch and owner at the same time.
 * V3  A cleanly closed VDI has no log behind its key frame and no owner. A VDI with
 *     such a log is recovered, whatever its record says of an owner.
 * V4  A writer begins only where all counters have room for what it will add (format.h): else what
 *     it writes and acknowledges would be refused by whoever reads it next.
 * Calls are synchronous; the loop runs meanwhile.
 * Crash story: create writes slot A, then slot B; a torn A with an empty B never was. Opening
 *   changes nothing until the record flips: what it writes before are the same bytes in the same
 *   places (V1; replay.c, R4). If they were durable, nothing happens to them however the write is
 *   torn; if not, they were what a power cut could take, and the other slot, or the log up to its
 *   durable mark, is what is left. Nobody else writes there: the owner is this one or dead.
 *   Closing is a key frame whose record names no owner (keyframe.c, K5).
 */
#include "engine/disk/vdi.h"

#include <stdlib.h>
#include <string.h>

#include "engine/disk/reserve.h"
#include "engine/log/replay.h"

#define TRIES 4u /* to read a disk that is open elsewhere and moves on */

static void record_info(const struct plx_vdi_record *record, struct plx_vdi_info *ret)
{
    *ret = (struct plx_vdi_info){
        .id = record->id,
        .parent = record->parent,
        .slot = record->slot,
        .state = record->state,
        .size_bytes = record->keyframe.size_bytes,
        .sector_size = record->sector_size,
        .overwrite = record->overwrite,
        .owner = record->owner,
        .owner_host = record->owner_host,
        .epoch = record->epoch,
        .record_state = (record->generation + 1) / 2,
        .created_ns = record->created_ns,
        .parent_seq = record->parent_seq,
        .snapshots = record->keyframe.snap_seq,
        .forgotten = record->oldest.snap_seq,
        .log_first_segment = record->first_segment,
        .levels = record->keyframe.levels,
        .protection = record->protection,
        .rewinds = record->rewinds_past + record->rewinds,
        .rewinds_held = record->rewinds,
        .mapped_blocks = record->keyframe.mapped,
        .vouched_blocks = record->keyframe.vouched,
        .vouched_ns = record->vouched_ns,
    };
    for (uint32_t i = 0; i < record->rewinds; i++)
        ret->rewound_to[i] = record->rewind[i].seq;
    memcpy(ret->name, record->name, sizeof ret->name);
}

int plx_vdi_read_info(struct plx_store *store, uint32_t slot, struct plx_vdi_info *ret_info,
                      struct plx_fault *fault)
{
    struct plx_vdi_record record;
    uint8_t which;
    int error = plx_vdi_record_read(store, slot, &record, &which, fault);

    if (!error)
        record_info(&record, ret_info);
    return error;
}

/* ---- Creating and deleting ---- */

int plx_vdi_write_whole(struct plx_vdi *instant, uint64_t size_bytes, struct plx_whole *ret_whole)
{
    struct plx_waiter waiter = PLX_WAITER;
    struct plx_map *map = &instant->map;
    struct plx_whole whole = {0};
    struct plx_tree tree;
    int error;

    PLX_ASSERT(instant->snapshot && map->is_frozen);
    error = plx_reserve_obtain(instant, plx_reserve_nodes(instant, map->frozen.leaves));
    if (!error)
        error = plx_tree_begin_map(&tree, map, plx_map_levels_for(size_bytes), &waiter.task, NULL,
                                   NULL); /* the deaths in it are not ours to record */
    if (error)
        return error;
    while ((error = plx_tree_step(&tree, &whole.root)) == PLX_WAIT) {
        error = plx_waiter_wait(map->store, &waiter);
        if (error)
            break;
    }
    if (error) {
        plx_tree_abort(&tree);
        return error;
    }
    whole.levels = tree.result_levels;
    plx_tree_count(&tree, size_bytes, &whole.mapped, &whole.vouched);
    whole.made = tree.made;
    tree.made = (struct plx_deaths){0};
    plx_tree_done(&tree);
    if (plx_entry_addr(whole.root)) /* shared with the snapshot, all of it (INV-3) */
        whole.root |= PLX_ENTRY_READ_ONLY;
    *ret_whole = whole;
    return 0;
}

static int clone_keyframe(struct plx_store *store, const struct plx_vdi_create_options *options,
                          struct plx_vdi_record *record, struct plx_fault *fault)
{
    struct plx_whole whole = {0};
    struct plx_vdi *parent;
    int error = plx_snapshot_open(store, options->parent_slot, options->parent_seq, &parent, fault);

    if (error)
        return error;
    record->parent = parent->record.id;
    record->parent_seq = options->parent_seq;
    record->sector_size = parent->record.sector_size;
    record->keyframe.size_bytes = plx_max_u64(parent->size_bytes, options->size_bytes);
    error = plx_store_flush_others(store); /* another process may have written there */
    if (!error)
        error = plx_vdi_write_whole(parent, record->keyframe.size_bytes, &whole);
    if (error)
        plx_fault_set(fault, error, "cloning %s: %s", parent->record.name, plx_error_text(error));
    record->keyframe.root = record->origin_root = whole.root;
    record->keyframe.levels = record->origin_levels = whole.levels;
    record->keyframe.mapped = whole.mapped;
    record->keyframe.vouched = whole.vouched;
    plx_deaths_free(&whole.made);
    plx_vdi_abandon(parent);
    return error;
}

static int check_create(const struct plx_vdi_create_options *options, struct plx_fault *fault)
{
    uint64_t size = options->size_bytes;

    if (!options->name[0])
        return plx_fault_set(fault, PLX_ERR_INVALID, "a virtual disk needs a name");
    if (options->sector_size != 512 && options->sector_size != 4096)
        return plx_fault_set(fault, PLX_ERR_INVALID, "sector size: 512 or 4096");
    if (options->is_clone && size == 0)
        return 0;
    if (size < PLX_VDI_SIZE_MIN || size > PLX_VDI_SIZE_MAX)
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "size %llu: a virtual disk has 4 KiB to 256 TiB",
                             (unsigned long long)size);
    if (size % options->sector_size)
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "size %llu: not a multiple of the sector size (%u)",
                             (unsigned long long)size, options->sector_size);
    return 0;
}

/* First as deleted: if the second write fails, the slot can be used again. But the second may have
 * got there although it failed; then that is taken back, in the same slot of the record. If that
 * fails as well, whoever creates learns from the record which it was (EXISTS), or deletes it. */
static int write_new_record(struct plx_store *store, struct plx_vdi_record *record, uint8_t *slot)
{
    int error;

    record->state = PLX_VDI_DELETED;
    error = plx_vdi_record_write(store, record, slot);
    if (error)
        return error;
    record->state = PLX_VDI_LIVE;
    error = plx_vdi_record_write(store, record, slot);
    if (error) {
        struct plx_vdi_record undone = *record;

        undone.state = PLX_VDI_DELETED;
        undone.generation = plx_generation_next(undone.generation); /* the one that failed */
        plx_vdi_record_write(store, &undone, slot);
    }
    return error;
}

static int cannot_write(const char *name, int error, struct plx_fault *fault)
{
    return plx_fault_set(fault, error, "cannot write the record of %s: %s", name,
                         plx_error_text(error));
}

static int create_record(struct plx_store *store, const struct plx_vdi_create_options *options,
                         struct plx_vdi_record *record, uint8_t slot, uint64_t flush_mark,
                         struct plx_fault *fault)
{
    int error = options->is_clone ? clone_keyframe(store, options, record, fault) : 0;

    if (error)
        return error;
    record->oldest = record->keyframe;
    error = options->is_clone ? plx_bitmap_sync_run(store) : 0; /* else it names no block */
    if (!error && flush_mark != store->flush_failures)
        error = store->flush_error; /* the clone's nodes may have gone with it */
    if (!error)
        error = write_new_record(store, record, &slot);
    return error ? cannot_write(options->name, error, fault) : 0;
}

int plx_vdi_create(struct plx_store *store, const struct plx_vdi_create_options *options,
                   struct plx_vdi_info *ret_info, struct plx_fault *fault)
{
    struct plx_vdi_record record = {0}, old;
    uint64_t mark = store->flush_failures;
    struct plx_record_slots slots;
    int error = check_create(options, fault);

    if (error)
        return error;
    if (options->slot >= plx_vdi_slot_count(store))
        return plx_fault_set(fault, PLX_ERR_RANGE, "VDI slot %u: the store has %u", options->slot,
                             plx_vdi_slot_count(store));
    error = plx_vdi_record_slots_read(store, options->slot, &slots, &old, fault);
    if (!error && old.state == PLX_VDI_LIVE)
        return plx_fault_set(fault, PLX_ERR_EXISTS, "VDI slot %u holds %s", options->slot,
                             old.name);
    if (error && error != PLX_ERR_NOT_FOUND)
        return error;
    record.generation = error ? 0 : old.generation;
    if (error)
        slots.slot = 1;
    else
        error = plx_vdi_record_write_again(store, options->slot, &slots);
    if (error && error != PLX_ERR_NOT_FOUND)
        return cannot_write(options->name, error, fault);
    record.state = PLX_VDI_LIVE;
    record.id = options->id;
    record.sector_size = options->sector_size;
    record.overwrite = options->overwrite;
    record.slot = options->slot;
    record.created_ns = options->created_ns ? plx_min_u64(options->created_ns, PLX_TIME_MAX)
                                            : plx_env_now_ns(store->env);
    record.index_levels = PLX_INDEX_LEVELS;
    record.keyframe.size_bytes = options->size_bytes;
    record.keyframe.levels = plx_map_levels_for(options->size_bytes);
    record.keyframe.time_ns = record.created_ns;
    memcpy(record.name, options->name, sizeof record.name);
    if (plx_uuid_is_zero(&record.id))
        store->env->random(store->env, record.id.b, sizeof record.id.b);
    store->instants_opening++; /* until everybody can know that this is a clone (reclaim.c, C6) */
    error = create_record(store, options, &record, slots.slot, mark, fault);
    store->instants_opening--;
    store->clones_made += options->is_clone;
    if (error)
        return error;
    if (ret_info)
        record_info(&record, ret_info);
    return 0;
}

int plx_vdi_delete(struct plx_store *store, uint32_t slot, bool owner_dead, struct plx_fault *fault)
{
    struct plx_vdi_record record;
    struct plx_record_slots slots;
    int error = plx_vdi_record_slots_read(store, slot, &slots, &record, fault);

    if (error)
        return error;
    if (record.owner && !owner_dead)
        return plx_fault_set(fault, PLX_ERR_BUSY, "virtual disk %s is open", record.name);
    record.state = PLX_VDI_DELETED;
    record.owner = 0;
    error = plx_vdi_record_write_again(store, slot, &slots);
    if (!error)
        error = plx_vdi_record_write(store, &record, &slots.slot);
    return error ? cannot_write(record.name, error, fault) : 0;
}

/* Cut off, it is damaged still, or was never used (read_slots). */
int plx_vdi_give_up(struct plx_store *store, uint32_t slot, struct plx_fault *fault)
{
    static const uint8_t none[2 * PLX_BLOCK_SIZE];
    struct plx_vdi_record record;
    uint64_t mark = store->flush_failures;
    struct plx_record_slots slots;
    int error;

    if (slot >= plx_vdi_slot_count(store))
        return 0;
    error = plx_vdi_record_slots_read(store, slot, &slots, &record, fault);
    if (!error && record.state == PLX_VDI_LIVE)
        return plx_fault_set(fault, PLX_ERR_EXISTS, "VDI slot %u can be read: it holds %s", slot,
                             record.name);
    if (error != PLX_ERR_CORRUPT)
        return error == PLX_ERR_NOT_FOUND ? 0 : error;
    error = plx_store_write_sync(store, PLX_KIND_ADMIN, plx_vdi_slot_addr(store, slot), none,
                                 sizeof none);
    if (!error)
        error = plx_store_flush_sync(store, mark);
    return error ? plx_fault_set(fault, error, "VDI slot %u: writing it: %s", slot,
                                 plx_error_text(error))
                 : 0;
}

/* ---- Opening ---- */

static struct plx_vdi *vdi_new(struct plx_store *store, const struct plx_vdi_record *record,
                               uint8_t record_slot)
{
    struct plx_vdi *vdi = calloc(1, sizeof *vdi);

    if (!vdi)
        return NULL;
    vdi->store = store;
    vdi->record = *record;
    vdi->record_slot = record_slot;
    vdi->size_bytes = record->keyframe.size_bytes;
    vdi->protect.policy = vdi->protect.kept = record->protection;
    vdi->vouch.completed_ns = record->vouched_ns;
    vdi->vouch.doubt = record->doubted || record->owner;
    plx_gather_init(&vdi->gather, store);
    if (plx_ops_init(vdi)) {
        free(vdi);
        return NULL;
    }
    return vdi;
}

static void vdi_free(struct plx_vdi *vdi)
{
    struct plx_vdi **link = &vdi->store->vdis;

    while (*link && *link != vdi)
        link = &(*link)->next;
    if (*link)
        *link = vdi->next;
    plx_reserve_forget(vdi);
    plx_keyframe_done(vdi);
    plx_log_done(&vdi->log);
    plx_map_done(&vdi->map);
    plx_ops_done(vdi);
    plx_vouch_done(&vdi->vouch);
    free(vdi->thrift);
    free(vdi);
}

/* The log as replay found it: its cursor and the addresses of its segments. */
static int init_log(struct plx_vdi *vdi, struct plx_log_reader *reader,
                    const struct plx_replay_result *result, struct plx_fault *fault)
{
    uint64_t bytes = plx_log_segment_bytes(vdi->store);
    uint64_t segment = result->end.pos / bytes;
    size_t count = 0;
    struct plx_log_cursor cursor = result->end;
    uint64_t *segments;

    cursor.snap_seq = vdi->map.gen;
    if (vdi->record.segment_addr) {
        count = (size_t)(segment - reader->first_segment) + 1;
        cursor.addr = reader->segments[count - 1];
        cursor.next_addr = vdi->record.next_addr;
        if (segment != vdi->record.keyframe.pos / bytes) {
            uint8_t block[PLX_BLOCK_SIZE];
            struct plx_segment_header header;
            int error =
                plx_store_read_sync(vdi->store, PLX_KIND_LOG, cursor.addr, block, sizeof block);

            if (error)
                return plx_fault_set(fault, error, "virtual disk %s: reading its log: %s",
                                     vdi->record.name, plx_error_text(error));
            error = plx_format_segment_decode(block, &vdi->store->info.id, &vdi->record.id, segment,
                                              vdi->store->addr_limit, &header, fault);
            if (error)
                return error;
            cursor.next_addr = header.next_addr;
        }
    }
    segments = malloc((count + 1) * sizeof *segments);
    if (!segments)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    if (count)
        memcpy(segments, reader->segments, count * sizeof *segments);
    if (cursor.next_addr)
        segments[count++] = cursor.next_addr;
    for (size_t i = 0; i < count; i++)
        if (segments[i])
            plx_alloc_mark(vdi->store, segments[i], vdi->store->info.segment_blocks);
    if (plx_log_init(&vdi->log, &(struct plx_log){.vdi = vdi,
                                                  .disk = &plx_logged,
                                                  .map = &vdi->map,
                                                  .record = &vdi->record,
                                                  .store = vdi->store,
                                                  .cursor = cursor,
                                                  .first_segment = vdi->record.first_segment,
                                                  .segments = segments,
                                                  .segment_count = count}))
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    return 0;
}

static int replay_into(struct plx_vdi *vdi, struct plx_replay_result *ret_result,
                       struct plx_fault *fault)
{
    const struct plx_keyframe *keyframe = &vdi->record.keyframe;
    struct plx_base base = {.root = keyframe->root,
                            .levels = keyframe->levels,
                            .gen = keyframe->snap_seq,
                            .mapped = keyframe->mapped,
                            .vouched = keyframe->vouched};
    uint64_t mark = vdi->store->flush_failures;
    struct plx_log_reader reader;
    int error;

    plx_map_init(&vdi->map, vdi->store, &base);
    error = plx_log_reader_open(vdi->store, &vdi->record, &reader, fault);
    if (error)
        return error;
    error = plx_replay(&reader, keyframe, &vdi->map, 0, true, ret_result, fault);
    if (!error)
        error = init_log(vdi, &reader, ret_result, fault);
    plx_log_reader_close(&reader);
    if (!error && ret_result->written_again) { /* the key frame waits for it to be durable */
        vdi->log.undurable = true;
        vdi->log.flush_mark = mark;
    }
    return error;
}

static void wait_keyframe_ended(struct plx_vdi *vdi)
{
    while (vdi->keyframe.running || vdi->keyframe.wanted)
        if (!plx_store_tick(vdi->store) && vdi->keyframe.running)
            plx_store_wait(vdi->store);
}

/* Ownership on the store (V2). *ret_unwritten: on failure, whether the record surely stayed what it
 * was; a write that failed may have got there. */
static int take_ownership(struct plx_vdi *vdi, const struct plx_vdi_open_options *options,
                          bool unclean, bool *ret_unwritten)
{
    struct plx_store *store = vdi->store;
    int error;

    plx_reserve_count(vdi);
    error = plx_log_ensure_segments(&vdi->log);
    *ret_unwritten = true;
    if (error)
        return error;
    vdi->record.owner = store->options.instance;
    vdi->record.owner_host = store->options.host;
    vdi->record.epoch = options->epoch;
    if (unclean) {
        error = plx_keyframe_run(vdi);
        wait_keyframe_ended(vdi);
        *ret_unwritten = !vdi->log.sticky; /* keyframe.c, record_failed() */
        return error;
    }
    error = plx_reserve_obtain(vdi, 0); /* reserve.c, I3 */
    if (error)
        return error;
    vdi->record.segment_addr = vdi->log.cursor.addr;
    vdi->record.next_addr = vdi->log.cursor.next_addr;
    error = plx_bitmap_sync_run(store);
    if (error)
        return error;
    *ret_unwritten = false;
    error = plx_vdi_record_write(store, &vdi->record, &vdi->record_slot);
    if (!error && plx_keyframe_announce(vdi)) {
        wait_keyframe_ended(vdi);
        error = vdi->keyframe.error;
    }
    return error;
}

static void give_back(struct plx_vdi *vdi);

/* Takes back what an open that failed did: its segments (those the log did not have) are free again
 * unless the record may name them. */
static void undo_open(struct plx_vdi *vdi, bool had_segment, bool had_next, bool unwritten)
{
    uint64_t blocks = vdi->store->info.segment_blocks;
    const struct plx_log_cursor *cursor = &vdi->log.cursor;

    vdi->closing = true;
    plx_log_stop(&vdi->log, PLX_ERR_STICKY, 0);
    plx_vdi_drain(vdi);
    give_back(vdi);
    if (unwritten && !had_segment && cursor->addr)
        plx_alloc_free(vdi->store, cursor->addr, blocks);
    if (unwritten && !had_next && cursor->next_addr)
        plx_alloc_free(vdi->store, cursor->next_addr, blocks);
    vdi_free(vdi);
}

static int check_open(const struct plx_store *store, const struct plx_vdi_record *record,
                      const struct plx_vdi_open_options *options, struct plx_fault *fault)
{
    if (record->state != PLX_VDI_LIVE)
        return plx_fault_set(fault, PLX_ERR_NOT_FOUND, "virtual disk %s is deleted", record->name);
    if (!store->options.instance)
        return plx_fault_set(fault, PLX_ERR_READONLY, "the store is open read-only");
    if (record->owner && !options->take_over)
        return plx_fault_set(fault, PLX_ERR_BUSY,
                             "virtual disk %s is open in instance %llx (epoch %llu)", record->name,
                             (unsigned long long)record->owner, (unsigned long long)record->epoch);
    if (options->epoch <= record->epoch)
        return plx_fault_set(fault, PLX_ERR_FENCED,
                             "virtual disk %s: epoch %llu was granted, the store has %llu already",
                             record->name, (unsigned long long)options->epoch,
                             (unsigned long long)record->epoch);
    return 0;
}

/* V4. The log's own may be far beyond the record's: a record in it may say where it goes on. */
static int check_counters(const struct plx_vdi *vdi, const struct plx_vdi_open_options *options,
                          struct plx_fault *fault)
{
    const struct plx_log_cursor *cursor = &vdi->log.cursor;
    const char *what = !plx_counter_has_room(vdi->record.generation) ? "generation"
                       : !plx_counter_has_room(options->epoch)       ? "epoch"
                       : !plx_counter_has_room(cursor->pos)          ? "log position"
                       : !plx_counter_has_room(cursor->seq)          ? "batch number"
                       : !plx_counter_has_room(cursor->snap_seq)     ? "snapshot number"
                                                                     : NULL;

    return what
               ? plx_fault_set(fault, PLX_ERR_CORRUPT,
                               "virtual disk %s has an impossible %s; it can be read and exported, "
                               "but not written",
                               vdi->record.name, what)
               : 0;
}

static void set_writing(struct plx_vdi *vdi, const struct plx_vdi_open_options *options)
{
    int overwrite = options->overwrite < 0 ? (int)vdi->record.overwrite : options->overwrite;

    plx_vdi_set_write_back(vdi, options->write_back);
    vdi->copy_always = overwrite == PLX_OVERWRITE_COPY;
}

bool plx_vdi_use(struct plx_vdi *vdi, const struct plx_vdi_open_options *options)
{
    if (vdi->log.sticky || (vdi->vouch.quiet_ns && vdi->vouch.quiet_ns != options->quiet_ns))
        return false;
    set_writing(vdi, options);
    vdi->recovered = false;
    if (!vdi->vouch.quiet_ns)
        plx_vouch_start(vdi, options->quiet_ns);
    return true;
}

int plx_vdi_open(struct plx_store *store, const struct plx_vdi_open_options *options,
                 struct plx_vdi **ret_vdi, struct plx_fault *fault)
{
    struct plx_vdi_record record;
    struct plx_replay_result result = {0};
    struct plx_record_slots slots;
    struct plx_vdi *vdi;
    bool unclean, unwritten = true, had_segment, had_next;
    int error = plx_vdi_record_slots_read(store, options->slot, &slots, &record, fault);

    if (!error)
        error = check_open(store, &record, options, fault);
    if (error)
        return error;
    error = plx_vdi_record_write_again(store, options->slot, &slots);
    if (error)
        return cannot_write(record.name, error, fault);
    vdi = vdi_new(store, &record, slots.slot);
    if (!vdi)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    set_writing(vdi, options);
    error = replay_into(vdi, &result, fault);
    unclean = vdi->recovered = record.owner || result.batches; /* V3 */
    if (!error)
        error = check_counters(vdi, options, fault);
    if (error) {
        vdi_free(vdi);
        return error;
    }
    vdi->size_bytes = result.size_bytes;
    vdi->last_snapshot_ns = plx_max_u64(record.keyframe.time_ns, result.snapshot_ns);
    if (options->witness)
        vdi->witness = *options->witness;
    vdi->changed = true; /* unknown: the next snapshot is taken in any case */
    had_segment = vdi->log.cursor.addr;
    had_next = vdi->log.cursor.next_addr;
    error = plx_keyframe_init(vdi);
    if (!error) {
        vdi->next = store->vdis;
        store->vdis = vdi;
        error = take_ownership(vdi, options, unclean, &unwritten);
    }
    if (error) {
        plx_fault_set(fault, error, "virtual disk %s cannot be opened: %s", record.name,
                      plx_error_text(error));
        undo_open(vdi, had_segment, had_next, unwritten);
        return error;
    }
    vdi->vouch.flush_failures = store->flush_failures;
    plx_vouch_start(vdi, options->quiet_ns);
    plx_protect_start(vdi, unclean && (result.batches || plx_keyframe_rewind(&record)));
    if (unclean)
        plx_store_event(store, 0,
                        "virtual disk %s: recovered, %llu log batch%s replayed, %llu dropped that "
                        "were never acknowledged",
                        record.name, (unsigned long long)result.batches,
                        result.batches == 1 ? "" : "es", (unsigned long long)result.dropped);
    *ret_vdi = vdi;
    return 0;
}

/* ---- After a crash: what the logs name ---- */

static bool mark_record(void *context, const struct plx_record *record)
{
    if (record->type == PLX_RECORD_MAP)
        plx_alloc_mark(context, record->addr, record->count);
    return true;
}

int plx_vdi_mark(struct plx_store *store, uint32_t slot, struct plx_fault *fault)
{
    struct plx_vdi_record record;
    struct plx_log_reader reader;
    uint64_t bytes = plx_log_segment_bytes(store);
    uint8_t which;
    int error = plx_vdi_record_read(store, slot, &record, &which, fault);

    if (error)
        return error == PLX_ERR_NOT_FOUND ? 0 : error;
    if (record.state != PLX_VDI_LIVE || !record.segment_addr)
        return 0;
    error = plx_log_reader_open(store, &record, &reader, fault);
    if (error)
        return error;
    /* Those before are in bitmaps that were durable before the record was (keyframe.c, K1). */
    for (size_t i = (size_t)(record.keyframe.pos / bytes - reader.first_segment); i < reader.count;
         i++) {
        struct plx_segment_header header;

        plx_alloc_mark(store, reader.segments[i], bytes >> PLX_BLOCK_SHIFT);
        if (plx_store_read_sync(store, PLX_KIND_LOG, reader.segments[i], reader.buffer,
                                PLX_SEGMENT_HEADER_BYTES) == 0 &&
            plx_format_segment_decode(reader.buffer, &store->info.id, &record.id,
                                      reader.first_segment + i, store->addr_limit, &header,
                                      NULL) == 0)
            plx_alloc_mark(store, header.next_addr, bytes >> PLX_BLOCK_SHIFT);
    }
    plx_alloc_mark(store, record.next_addr, bytes >> PLX_BLOCK_SHIFT);
    reader.loaded = UINT64_MAX;
    error = plx_log_each_record(&reader, mark_record, store, fault);
    plx_log_reader_close(&reader);
    return error;
}

/* ---- Instants ---- */

/* The newest key frame before snapshot seq. */
static int no_snapshot(const struct plx_log_reader *reader, uint64_t seq, struct plx_fault *fault)
{
    return plx_fault_set(fault, PLX_ERR_NOT_FOUND, "virtual disk %s has no snapshot %llu",
                         reader->record->name, (unsigned long long)seq);
}

/* What the log names may be older than what is kept (keyframe.c, K3). */
static struct plx_keyframe kept_keyframe(const struct plx_vdi_record *record,
                                         const struct plx_keyframe *named)
{
    return plx_keyframe_is_past(record, named) ? record->oldest : *named;
}

struct keyframe_search {
    const struct plx_vdi_record *record;
    uint64_t seq;
    struct plx_keyframe best;
    bool found; /* the snapshot */
};

static bool search_keyframe(void *context, const struct plx_record *record)
{
    struct keyframe_search *search = context;

    if (plx_record_announces(record) && record->keyframe.snap_seq < search->seq &&
        record->keyframe.pos >= search->best.pos &&
        !plx_keyframe_is_past(search->record, &record->keyframe))
        search->best = record->keyframe;
    if (record->type != PLX_RECORD_SNAPSHOT)
        return true;
    search->found = record->seq == search->seq;
    return record->seq < search->seq;
}

/* The last one that the log announces before the snapshot: not the record's, though it may be
 * nearer, as long as the log does not say so. Which one it is must not depend on when one asks: it
 * is kept for those who read through it (reclaim.c, C6). */
static int find_keyframe(struct plx_log_reader *reader, uint64_t seq,
                         struct plx_keyframe *ret_keyframe, struct plx_fault *fault)
{
    struct keyframe_search search = {.record = reader->record, .seq = seq};
    int error;

    if (!seq) {
        *ret_keyframe = reader->record->keyframe;
        return 0;
    }
    if (seq <= reader->record->oldest.snap_seq)
        return no_snapshot(reader, seq, fault);
    error = plx_log_reader_seek_snapshot(reader, seq, fault);
    if (error)
        return error;
    search.best = kept_keyframe(reader->record, &reader->header.keyframe);
    error = plx_log_each_record(reader, search_keyframe, &search, fault);
    if (error)
        return error;
    if (!search.found)
        return no_snapshot(reader, seq, fault);
    *ret_keyframe = search.best;
    return 0;
}

static int replay_instant(struct plx_vdi *vdi, uint64_t seq, struct plx_fault *fault)
{
    struct plx_replay_result result;
    struct plx_log_reader reader;
    struct plx_keyframe keyframe;
    struct plx_base base;
    int error = plx_log_reader_open(vdi->store, &vdi->record, &reader, fault);

    if (error)
        return error;
    error = find_keyframe(&reader, seq, &keyframe, fault);
    if (!error) {
        base = (struct plx_base){.root = keyframe.root,
                                 .levels = keyframe.levels,
                                 .gen = keyframe.snap_seq,
                                 .mapped = keyframe.mapped,
                                 .vouched = keyframe.vouched};
        plx_map_init(&vdi->map, vdi->store, &base);
        error = plx_replay(&reader, &keyframe, &vdi->map, seq, false, &result, fault);
    }
    plx_log_reader_close(&reader);
    if (error)
        return error;
    vdi->size_bytes = result.size_bytes;
    vdi->last_snapshot_ns = result.snapshot_ns;
    if (!plx_map_freeze(&vdi->map)) /* sorted: plx_vdi_map_runs skips by it */
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    plx_overlay_sort(&vdi->map.frozen);
    return 0;
}

static int open_instant(struct plx_store *store, const struct plx_vdi_record *record, uint8_t which,
                        uint64_t seq, struct plx_vdi **ret_vdi, struct plx_fault *fault)
{
    struct plx_vdi *vdi = vdi_new(store, record, which);
    int error;

    if (!vdi)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    vdi->snapshot = true;
    store->instants_opening++;
    error = replay_instant(vdi, seq, fault);
    store->instants_opening--;
    if (error) {
        vdi_free(vdi);
        return error;
    }
    vdi->next = store->vdis;
    store->vdis = vdi;
    *ret_vdi = vdi;
    return 0;
}

bool plx_vdi_lets_go(const struct plx_store *store, uint32_t slot, uint64_t seq)
{
    for (const struct plx_vdi *vdi = store->vdis; vdi; vdi = vdi->next) {
        const struct plx_history_drop *drop =
            vdi->keyframe.drop ? vdi->keyframe.drop : vdi->keyframe.next_drop;

        if (!vdi->snapshot && vdi->record.slot == slot && drop && drop->snapshot_count &&
            bsearch(&seq, drop->snapshots, drop->snapshot_count, sizeof seq, plx_compare_u64))
            return true;
    }
    return false;
}

static int open_instant_once(struct plx_store *store, uint32_t slot, uint64_t seq,
                             struct plx_vdi **ret_vdi, bool *ret_moved, struct plx_fault *fault)
{
    struct plx_vdi_record record;
    uint8_t which;
    int error = plx_vdi_record_read(store, slot, &record, &which, fault);

    *ret_moved = false;
    if (error)
        return error;
    if (record.state != PLX_VDI_LIVE)
        return plx_fault_set(fault, PLX_ERR_NOT_FOUND, "virtual disk %s is deleted", record.name);
    if (seq && plx_vdi_lets_go(store, slot, seq))
        return plx_fault_set(fault, PLX_ERR_NOT_FOUND, "virtual disk %s lets snapshot %llu go",
                             record.name, (unsigned long long)seq);
    error = open_instant(store, &record, which, seq, ret_vdi, fault);
    *ret_moved = (error == PLX_ERR_CORRUPT || error == PLX_ERR_NOT_FOUND) &&
                 plx_vdi_record_moved(store, &record);
    return error;
}

int plx_snapshot_open(struct plx_store *store, uint32_t slot, uint64_t seq,
                      struct plx_vdi **ret_vdi, struct plx_fault *fault)
{
    bool moved = true;
    int error = 0;

    for (unsigned tries = 0; moved && tries < TRIES; tries++)
        error = open_instant_once(store, slot, seq, ret_vdi, &moved, fault);
    return error;
}

/* ---- Closing ---- */

void plx_vdi_drain(struct plx_vdi *vdi)
{
    plx_store_room_made(vdi->store, true); /* its own writes wait no longer */
    while (!plx_vdi_idle(vdi))
        if (!plx_store_tick(vdi->store) && !plx_vdi_idle(vdi))
            plx_store_wait(vdi->store);
}

static void give_back(struct plx_vdi *vdi)
{
    if (vdi->run.count)
        plx_alloc_free(vdi->store, vdi->run.addr, vdi->run.count);
    if (vdi->log.spare_addr)
        plx_alloc_free(vdi->store, vdi->log.spare_addr, vdi->store->info.segment_blocks);
    vdi->run.count = 0;
    vdi->log.spare_addr = 0;
}

int plx_vdi_rest(struct plx_vdi *vdi)
{
    struct plx_request flush = {.op = PLX_FLUSH};

    vdi->closing = true; /* what waits for room, or for company, does so no longer */
    plx_vdi_drain(vdi);
    vdi->closing = false;
    return vdi->log.sticky ? vdi->log.sticky : plx_vdi_run(vdi, &flush);
}

void plx_vdi_begin_close(struct plx_vdi *vdi)
{
    if (vdi->snapshot || vdi->closing)
        return;
    vdi->closing = true;
    plx_vdi_drain(vdi);
    plx_protect_last(vdi);
    vdi->keyframe.quiet = true;
    plx_keyframe_request(vdi, NULL);
}

int plx_vdi_close(struct plx_vdi *vdi)
{
    const struct plx_keyframe_op *last = &vdi->keyframe;
    int error;

    if (vdi->snapshot) {
        plx_vdi_abandon(vdi);
        return 0;
    }
    plx_vdi_begin_close(vdi);
    plx_vdi_drain(vdi);
    /* What an earlier one had failed to write may have gone first; and where others that were
     * closed at the same time had the room, they have given some back. */
    for (unsigned i = 0; vdi->record.owner && !vdi->log.sticky && i < 3 &&
                         (!last->error || last->error == PLX_ERR_NOSPACE);
         i++) {
        plx_keyframe_run(vdi);
        plx_vdi_drain(vdi);
    }
    error = vdi->log.sticky ? vdi->log.sticky : last->error;
    if (!error && vdi->record.owner)
        error = PLX_ERR_BUSY;
    if (!error)
        give_back(vdi);
    plx_vdi_abandon(vdi);
    return error;
}

void plx_vdi_abandon(struct plx_vdi *vdi)
{
    vdi->closing = true;
    plx_log_stop(&vdi->log, PLX_ERR_STICKY, 0);
    plx_vdi_drain(vdi);
    if (vdi->run.count) /* no record names them; of the spare segment a stale header may */
        plx_alloc_free(vdi->store, vdi->run.addr, vdi->run.count);
    vdi_free(vdi);
}

/* ---- Questions ---- */

void plx_vdi_get_info(const struct plx_vdi *vdi, struct plx_vdi_info *ret_info)
{
    record_info(&vdi->record, ret_info);
    ret_info->size_bytes = vdi->size_bytes;
    ret_info->snapshots = vdi->map.gen;
    for (size_t i = 0; i < vdi->log.segment_count; i++)
        ret_info->log_segments += vdi->log.segments[i] != 0;
}

bool plx_vdi_is_snapshot(const struct plx_vdi *vdi)
{
    return vdi->snapshot;
}

void plx_vdi_set_write_back(struct plx_vdi *vdi, bool write_back)
{
    vdi->log.write_back = write_back;
    vdi->cache_changes++;
    if (write_back)
        plx_vdi_set_unflushed(vdi);
}

int plx_vdi_health(const struct plx_vdi *vdi, struct plx_fault *ret_fault)
{
    return vdi->log.sticky ? plx_vdi_fault(vdi, vdi->log.sticky, ret_fault) : 0;
}

void plx_vdi_counters(const struct plx_vdi *vdi, struct plx_counters *ret_counters)
{
    *ret_counters = vdi->counters;
    ret_counters->snapshot_rate = plx_protect_rate(vdi);
}

/* ---- Listing ---- */

/* What is read of a log: again from somewhere before, when the disk has moved on meanwhile. */
struct log_visit {
    uint64_t from; /* the snapshot that is looked for; the next one, when one was found */
    bool (*visit)(void *context, const struct plx_record *record);
    void *context;
    bool stopped;
    /* Of where reading began, and as far as it came: */
    uint64_t size_bytes, new_blocks;
    uint64_t forgotten; /* snapshots up to this one are */
};

static bool visit_record(void *context, const struct plx_record *record)
{
    struct log_visit *v = context;

    if (record->type == PLX_RECORD_RESIZE)
        v->size_bytes = record->size_bytes;
    else if (record->type == PLX_RECORD_MAP)
        v->new_blocks += record->count;
    v->stopped = !v->visit(v->context, record);
    if (record->type == PLX_RECORD_SNAPSHOT) {
        v->from = plx_max_u64(v->from, record->seq + 1);
        v->new_blocks = 0;
    }
    return !v->stopped;
}

/* After an error the reader is closed already. */
static int open_log_at(struct plx_store *store, const struct plx_vdi_record *record, uint64_t seq,
                       struct plx_log_reader *ret_reader, bool *ret_empty, struct plx_fault *fault)
{
    int error = plx_log_reader_open(store, record, ret_reader, fault);

    if (error)
        return error;
    error = plx_log_reader_seek_snapshot(ret_reader, plx_max_u64(seq, record->oldest.snap_seq + 1),
                                         fault);
    *ret_empty = error == PLX_ERR_NOT_FOUND;
    if (error && !*ret_empty)
        plx_log_reader_close(ret_reader);
    return *ret_empty ? 0 : error;
}

/* From the key frame in effect before the snapshot before v->from, or from the start of what is
 * kept. */
static int visit_from(struct plx_store *store, const struct plx_vdi_record *record,
                      struct log_visit *v, struct plx_fault *fault)
{
    struct plx_log_reader reader;
    bool empty;
    int error = open_log_at(store, record, v->from ? v->from - 1 : 0, &reader, &empty, fault);

    if (error)
        return error;
    if (!empty) {
        struct plx_keyframe keyframe = kept_keyframe(record, &reader.header.keyframe);

        v->size_bytes = keyframe.size_bytes;
        v->new_blocks = 0;
        v->forgotten = record->oldest.snap_seq;
        plx_log_reader_seek(&reader, &keyframe);
        error = plx_log_each_record(&reader, visit_record, v, fault);
    }
    plx_log_reader_close(&reader);
    return error;
}

/* A disk that is open elsewhere moves on, and lets go of what is being read: that looks like
 * damage, or like the end of the log. */
static int visit_log(struct plx_store *store, uint32_t slot, struct log_visit *v,
                     struct plx_fault *fault)
{
    bool again = true;
    int error = 0;

    for (unsigned tries = 0; again && tries < TRIES; tries++) {
        struct plx_vdi_record record;
        uint64_t from = v->from;
        uint8_t which;

        error = plx_vdi_record_read(store, slot, &record, &which, fault);
        if (error)
            return error;
        error = visit_from(store, &record, v, fault);
        again = !v->stopped && (!error || error == PLX_ERR_CORRUPT) &&
                plx_vdi_record_moved(store, &record);
        if (error && v->from > from)
            tries = 0;
    }
    return error;
}

struct snapshot_visit {
    struct log_visit log;
    bool (*visit)(void *context, const struct plx_snapshot_info *info);
    void *context;
};

static bool visit_snapshot(void *context, const struct plx_record *record)
{
    struct snapshot_visit *v = context;
    struct plx_snapshot_info info = {.seq = record->seq,
                                     .time_ns = record->time_ns,
                                     .size_bytes = v->log.size_bytes,
                                     .new_blocks = v->log.new_blocks};

    if (record->type != PLX_RECORD_SNAPSHOT || record->seq < v->log.from)
        return true;
    return v->visit(v->context, &info);
}

int plx_snapshot_list(struct plx_store *store, uint32_t slot, uint64_t from,
                      bool (*visit)(void *context, const struct plx_snapshot_info *info),
                      void *context, struct plx_fault *fault)
{
    struct snapshot_visit v = {.visit = visit, .context = context};

    v.log =
        (struct log_visit){.from = plx_max_u64(from, 1), .visit = visit_snapshot, .context = &v};
    return visit_log(store, slot, &v.log, fault);
}

static bool take_first(void *context, const struct plx_snapshot_info *info)
{
    *(struct plx_snapshot_info *)context = *info;
    return false;
}

int plx_snapshot_first(struct plx_store *store, uint32_t slot, uint64_t from,
                       struct plx_snapshot_info *ret_info, struct plx_fault *fault)
{
    struct plx_snapshot_info first = {0};
    int error = plx_snapshot_list(store, slot, from, take_first, &first, fault);

    if (!error)
        *ret_info = first;
    return error;
}

struct time_search {
    const struct plx_log_reader *reader;
    uint64_t segment, forgotten, time_ns;
    struct plx_snapshot_info best; /* seq 0: none yet */
};

static bool note_if_before(void *context, const struct plx_record *record)
{
    struct time_search *search = context;

    if (record->type == PLX_RECORD_SNAPSHOT && record->time_ns > search->time_ns)
        return false;
    if (record->type == PLX_RECORD_SNAPSHOT && record->seq > search->forgotten)
        search->best = (struct plx_snapshot_info){.seq = record->seq, .time_ns = record->time_ns};
    /* Whatever was taken in a later segment was taken later than that. */
    return search->reader->cursor.pos / plx_log_segment_bytes(search->reader->store) ==
           search->segment;
}

static int search_time(struct plx_store *store, const struct plx_vdi_record *record,
                       uint64_t time_ns, struct plx_snapshot_info *ret_info,
                       struct plx_fault *fault)
{
    struct time_search search = {.time_ns = time_ns, .forgotten = record->oldest.snap_seq};
    struct plx_log_reader reader;
    bool empty;
    int error = open_log_at(store, record, 0, &reader, &empty, fault);

    if (error)
        return error;
    if (!empty)
        error = plx_log_reader_seek_time(&reader, time_ns, fault);
    if (!empty && !error) {
        search.reader = &reader;
        search.segment = reader.cursor.pos / plx_log_segment_bytes(store);
        error = plx_log_each_record(&reader, note_if_before, &search, fault);
    }
    plx_log_reader_close(&reader);
    if (error)
        return error;
    if (!search.best.seq)
        return plx_fault_set(fault, PLX_ERR_NOT_FOUND, "virtual disk %s has no snapshot that old",
                             record->name);
    *ret_info = search.best;
    return 0;
}

int plx_snapshot_at(struct plx_store *store, uint32_t slot, uint64_t time_ns,
                    struct plx_snapshot_info *ret_info, struct plx_fault *fault)
{
    bool again = true;
    int error = 0;

    for (unsigned tries = 0; again && tries < TRIES; tries++) {
        struct plx_vdi_record record;
        uint8_t which;

        error = plx_vdi_record_read(store, slot, &record, &which, fault);
        if (error)
            return error;
        error = search_time(store, &record, time_ns, ret_info, fault);
        again = (!error || error == PLX_ERR_CORRUPT || error == PLX_ERR_NOT_FOUND) &&
                plx_vdi_record_moved(store, &record);
    }
    return error;
}

struct label_visit {
    struct log_visit log;
    void (*visit)(void *context, const char *label, uint64_t seq, bool removed);
    void *context;
};

static bool visit_label(void *context, const struct plx_record *record)
{
    struct label_visit *v = context;

    if (record->type == PLX_RECORD_LABEL && record->seq > v->log.forgotten)
        v->visit(v->context, record->label, record->seq, record->flag);
    return true;
}

int plx_label_list(struct plx_store *store, uint32_t slot, uint64_t from,
                   void (*visit)(void *context, const char *label, uint64_t seq, bool removed),
                   void *context, struct plx_fault *fault)
{
    struct label_visit v = {.visit = visit, .context = context};

    v.log = (struct log_visit){.from = from, .visit = visit_label, .context = &v};
    return visit_log(store, slot, &v.log, fault);
}

/* ---- What is mapped ---- */

/* The first block at or after vblock that the sorted overlay says something about. */
static uint64_t next_change(const struct plx_overlay *overlay, uint64_t vblock)
{
    size_t low = 0, high = overlay->count;
    uint64_t leaf = vblock >> PLX_NODE_SHIFT;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (plx_slot_leaf(&overlay->sorted[middle]) < leaf)
            low = middle + 1;
        else
            high = middle;
    }
    return low < overlay->count ? plx_slot_leaf(&overlay->sorted[low]) << PLX_NODE_SHIFT
                                : UINT64_MAX;
}

/* Of the subtree of a level that holds vblock, as far as the overlays say nothing either. */
static uint64_t subtree_end(const struct plx_vdi *vdi, unsigned level, uint64_t vblock)
{
    const struct plx_map *map = &vdi->map;
    unsigned shift = level * PLX_NODE_SHIFT;
    uint64_t end = ((vblock >> shift) + 1) << shift, change;

    if (vdi->snapshot)
        change = next_change(&map->frozen, vblock);
    else
        change = plx_min_u64(plx_overlay_next_block(&map->active, vblock + 1),
                             map->is_frozen ? plx_overlay_next_block(&map->frozen, vblock + 1)
                                            : UINT64_MAX);
    return change <= vblock ? vblock + 1 : plx_min_u64(end, change);
}

uint64_t plx_vdi_absent_end(const struct plx_vdi *vdi, const struct plx_walk *walk, uint64_t vblock)
{
    return walk->under_way || walk->vblock != vblock || walk->level == 0 ||
                   walk->base_changes != vdi->map.base_changes
               ? vblock + 1
               : subtree_end(vdi, walk->level, vblock);
}

/* A lookup has failed at the node of this level. */
static uint64_t unreadable_end(const struct plx_vdi *vdi, const struct plx_walk *walk,
                               uint64_t vblock)
{
    return !walk->under_way || walk->vblock != vblock || walk->level == 0
               ? vblock + 1
               : subtree_end(vdi, walk->level, vblock);
}

/* Waits for the nodes that it takes. */
static int look_up(struct plx_vdi *vdi, uint64_t vblock, struct plx_walk *walk,
                   struct plx_mapping *ret_mapping, struct plx_fault *fault)
{
    struct plx_waiter waiter = PLX_WAITER;
    int error;

    plx_walk_resume(walk);
    while ((error = plx_map_lookup(&vdi->map, vblock, walk, &waiter.task, ret_mapping)) ==
           PLX_WAIT) {
        error = plx_waiter_wait(vdi->store, &waiter);
        plx_walk_resume(walk);
        if (error)
            break;
    }
    return error ? plx_fault_set(fault, error, "virtual disk %s, block %llu: %s", vdi->record.name,
                                 (unsigned long long)vblock, plx_error_text(error))
                 : 0;
}

int plx_vdi_each_mapping(struct plx_vdi *vdi, unsigned lookups, uint64_t *vblock,
                         void (*visit)(void *context, uint64_t vblock,
                                       const struct plx_mapping *mapping),
                         void *context, struct plx_fault *fault)
{
    uint64_t end = vdi->size_bytes >> PLX_BLOCK_SHIFT;
    struct plx_walk walk = {0};

    for (; lookups > 0 && *vblock < end; lookups--) {
        struct plx_mapping mapping;
        int error = look_up(vdi, *vblock, &walk, &mapping, fault);

        if (error)
            return error;
        if (mapping.addr)
            visit(context, *vblock, &mapping);
        *vblock = mapping.addr ? *vblock + 1 : plx_vdi_absent_end(vdi, &walk, *vblock);
    }
    if (*vblock >= end)
        *vblock = UINT64_MAX;
    return 0;
}

struct run_visit {
    bool skips; /* what cannot be read */
    bool (*visit)(void *context, uint64_t offset, uint64_t length, enum plx_map_run run);
    bool (*visit_mapped)(void *context, uint64_t offset, uint64_t length, bool mapped);
    void *context;
};

static bool visit_run(const struct run_visit *v, uint64_t offset, uint64_t length,
                      enum plx_map_run run)
{
    return v->skips ? v->visit(v->context, offset, length, run)
                    : v->visit_mapped(v->context, offset, length, run == PLX_RUN_MAPPED);
}

static int each_run(struct plx_vdi *vdi, uint64_t offset, uint64_t length,
                    const struct run_visit *v, struct plx_fault *fault)
{
    uint64_t end = offset + length, run_start = offset, at = offset;
    enum plx_map_run run = PLX_RUN_ABSENT, here;
    struct plx_walk walk = {0};

    if (end > vdi->size_bytes || end < offset)
        return plx_fault_set(fault, PLX_ERR_RANGE, "beyond the end of the disk");
    while (at < end) {
        uint64_t vblock = at >> PLX_BLOCK_SHIFT, next;
        struct plx_mapping mapping = {0};
        int error = look_up(vdi, vblock, &walk, &mapping, fault);

        if (error && !(v->skips && plx_error_is_unreadable(error)))
            return error;
        here = error ? PLX_RUN_UNREADABLE : mapping.addr ? PLX_RUN_MAPPED : PLX_RUN_ABSENT;
        if (here != run) {
            if (at > run_start && !visit_run(v, run_start, at - run_start, run))
                return 0;
            run_start = at;
            run = here;
        }
        next = here == PLX_RUN_MAPPED   ? vblock + 1
               : here == PLX_RUN_ABSENT ? plx_vdi_absent_end(vdi, &walk, vblock)
                                        : unreadable_end(vdi, &walk, vblock);
        at = plx_min_u64(end, next << PLX_BLOCK_SHIFT);
    }
    if (end > run_start)
        visit_run(v, run_start, end - run_start, run);
    return 0;
}

int plx_vdi_map_runs(struct plx_vdi *vdi, uint64_t offset, uint64_t length,
                     bool (*visit)(void *context, uint64_t offset, uint64_t length, bool mapped),
                     void *context, struct plx_fault *fault)
{
    const struct run_visit v = {.visit_mapped = visit, .context = context};

    return each_run(vdi, offset, length, &v, fault);
}

int plx_vdi_readable_runs(struct plx_vdi *vdi, uint64_t offset, uint64_t length,
                          bool (*visit)(void *context, uint64_t offset, uint64_t length,
                                        enum plx_map_run run),
                          void *context, struct plx_fault *fault)
{
    const struct run_visit v = {.skips = true, .visit = visit, .context = context};

    return each_run(vdi, offset, length, &v, fault);
}
