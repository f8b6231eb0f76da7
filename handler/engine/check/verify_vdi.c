/* verify_vdi.c - passes 3 and 4 of verify.c: each virtual disk by itself (VERIFY-1, VERIFY-3 to
 * VERIFY-5, VERIFY-7). */
#include <stdlib.h>
#include <string.h>

#include "engine/check/verify.h"

static void merge_marks(struct plx_verify *v, struct plx_marks *into, bool settled)
{
    size_t words = v->store->info.extent_blocks / 64;

    for (uint64_t extent = 0; extent < v->extents; extent++) {
        const uint64_t *own = v->own.extents[extent];

        if (!own)
            continue;
        if (!into->extents[extent])
            into->extents[extent] = calloc(into->kinds * words, sizeof(uint64_t));
        if (!into->extents[extent]) {
            v->error = PLX_ERR_NOMEM;
            return;
        }
        /* A disk that was not read in one piece claims nothing for certain: all its marks become
         * NAMED, so that its blocks count neither as leaks nor as wrongly free. */
        for (size_t i = 0; i < into->kinds * words; i++)
            into->extents[extent][settled ? i : PLX_MARK_NAMED * words + i % words] |= own[i];
    }
}

static void wrong_count(struct plx_verify *v, const char *what, uint64_t said, uint64_t counted)
{
    plx_verify_find(v, PLX_FINDING_INFO, "count", 0, PLX_NO_VBLOCK,
                    "virtual disk %s: its record says that %llu block%s %s %s, its tree that %llu "
                    "%s",
                    v->record->name, (unsigned long long)said, plx_plural(said),
                    plx_is_or_are(said), what, (unsigned long long)counted, plx_is_or_are(counted));
}

/* VERIFY-7. If the tree shares nodes with others, which are not walked again, the counts are not
 * known. */
static void compare_counts(struct plx_verify *v)
{
    const struct plx_keyframe *said = &v->record->keyframe;

    if (v->live.partly)
        return;
    if (said->mapped != PLX_MAPPED_UNKNOWN && said->mapped != v->live.mapped)
        wrong_count(v, "mapped", said->mapped, v->live.mapped);
    if (said->vouched != PLX_MAPPED_UNKNOWN && said->vouched != v->live.vouched)
        wrong_count(v, "known by checksum", said->vouched, v->live.vouched);
}

/* Walks the index, the log and the trees of v->record; marks go into v->own. */
void plx_verify_walk_vdi(struct plx_verify *v)
{
    const struct plx_vdi_record *record = v->record;
    uint64_t last = record->keyframe.pos / plx_log_segment_bytes(v->store);
    bool begun = record->keyframe.pos % plx_log_segment_bytes(v->store) != 0;
    struct plx_history behind = {0};
    struct plx_tree_walk index = {
        .index = true, .first_segment = record->first_segment, .last_segment = last};
    /* A clone needs only the nodes of the tree it began with, to know what it must not free
     * (RECLAIM-4). The data is claimed by the disks and snapshots that see it. */
    struct plx_tree_walk origin = {.read_only = true, .nodes_only = true};
    struct plx_tree_walk rewound = {
        .blocks = plx_div_up(record->keyframe.size_bytes, PLX_BLOCK_SIZE), .read_only = true};
    struct plx_tree_walk live = {
        .blocks = plx_div_up(record->keyframe.size_bytes, PLX_BLOCK_SIZE),
        .behind = &behind,
        .seq = record->keyframe.batch_seq,
    };

    plx_verify_clear_marks(v, &v->own);
    v->self = plx_verify_find_kin(v);
    plx_verify_list_clones(v);
    plx_verify_tree(v, &index, record->index_root, record->index_levels);
    if (record->segment_addr)
        plx_verify_segment(v, record->segment_addr, begun ? last : PLX_NOT_BEGUN, false);
    if (record->segment_addr && record->next_addr)
        plx_verify_segment(v, record->next_addr, PLX_NOT_BEGUN, false);
    plx_verify_tree(v, &origin, record->origin_root, record->origin_levels);
    for (uint32_t i = 0; i < record->rewinds; i++)
        plx_verify_tree(v, &rewound, record->rewind[i].root, record->rewind[i].levels);
    plx_verify_log(v, &behind);
    live.read_only = behind.snapshots > record->keyframe.snap_seq;
    memset(&v->live, 0, sizeof v->live);
    plx_verify_tree(v, &live, record->keyframe.root, record->keyframe.levels);
    compare_counts(v);
    plx_verify_data_done(v);
    plx_history_free(&behind);
}

/* Compares the contents of an open disk. The walk's marks are thrown away, because the disk may
 * have moved on. */
static void check_contents(struct plx_verify *v)
{
    struct plx_marks own = v->own;

    v->own.extents = calloc(v->extents, sizeof *v->own.extents);
    if (v->own.extents) {
        v->mode = PLX_VERIFY_CONTENTS;
        v->read_data = true;
        plx_verify_walk_vdi(v);
        v->read_data = false;
        v->mode = PLX_VERIFY_LIVE;
        plx_verify_clear_marks(v, &v->own);
    } else {
        v->error = PLX_ERR_NOMEM;
    }
    free(v->own.extents);
    v->own = own;
}

bool plx_verify_begin(struct plx_verify *v, struct plx_reading *reading)
{
    struct plx_fault why;
    bool begun = plx_reading_begin(reading, &why);

    if (!begun && !reading->error)
        return false;
    v->result.bytes += 2 * PLX_BLOCK_SIZE;
    v->record = NULL;
    if (!begun && reading->error != PLX_ERR_NOT_FOUND) /* VERIFY-1 */
        plx_verify_find(v, PLX_FINDING_ERROR, "record", plx_vdi_slot_addr(v->store, reading->slot),
                        PLX_NO_VBLOCK, "%s", why.text);
    v->record = begun ? &reading->record : NULL;
    if (begun)
        plx_verify_name(v, &reading->record);
    return begun;
}

/* A program that knows no rings would use the disk without its records on a ring. */
static void check_ring_allowed(struct plx_verify *v)
{
    const struct plx_vdi_record *record = v->record;

    if ((plx_ring_is_marked(&record->mark) || record->position.seq) &&
        !(v->store->volumes[0].super.incompatible & PLX_INCOMPATIBLE_RING))
        plx_verify_find(v, PLX_FINDING_ERROR, "record", plx_vdi_slot_addr(v->store, record->slot),
                        PLX_NO_VBLOCK,
                        "virtual disk %s: its record names a ring, and the store's superblock does "
                        "not allow rings",
                        record->name);
}

static void tell_vouched(struct plx_verify *v)
{
    const struct plx_keyframe *keyframe = &v->record->keyframe;
    uint64_t unknown;

    if (keyframe->vouched == PLX_MAPPED_UNKNOWN)
        return;
    unknown = keyframe->mapped - keyframe->vouched;
    v->result.mapped_blocks += keyframe->mapped;
    v->result.vouched_blocks += keyframe->vouched;
    if (unknown)
        plx_verify_find(
            v, PLX_FINDING_INFO, "vouched", 0, PLX_NO_VBLOCK,
            "virtual disk %s: %llu of its %llu blocks %s no checksum yet: overwritten in "
            "place, so that damage to them does not show",
            v->record->name, (unsigned long long)unknown, (unsigned long long)keyframe->mapped,
            plx_has_or_have(unknown));
}

void plx_verify_vdi(struct plx_verify *v, uint32_t slot)
{
    struct plx_reading reading = {.store = v->store, .slot = slot};

    while (!v->error && plx_verify_begin(v, &reading) && v->record->state == PLX_VDI_LIVE) {
        struct plx_check_result before = v->result;
        uint64_t suspects_dropped = v->suspects_dropped, damaged_dropped = v->damaged_dropped;
        size_t damaged = v->damaged_count;

        v->attempt_errors = 0;
        v->attempting = true;
        v->read_data = v->options->data && !v->record->owner;
        plx_verify_walk_vdi(v);
        v->read_data = false;
        v->attempting = false;
        if (!plx_reading_end(&reading, 0)) {
            before.bytes = v->result.bytes;
            v->result = before;
            v->suspects_dropped = suspects_dropped;
            v->damaged_dropped = damaged_dropped;
            v->damaged_count = damaged;
            plx_verify_drop_kept(v);
        }
    }
    if (!v->record || v->record->state != PLX_VDI_LIVE) {
        v->record = NULL;
        return;
    }
    plx_verify_tell_kept(v);
    if (!reading.settled && !v->error) {
        v->result.unsettled++;
        plx_verify_find(v, PLX_FINDING_INFO, "busy", 0, PLX_NO_VBLOCK,
                        "virtual disk %s changes faster than it can be read; check again when it "
                        "is closed or quiet",
                        v->record->name);
    }
    if (reading.settled) {
        tell_vouched(v);
        check_ring_allowed(v);
    }
    if (v->options->data && v->record->owner)
        check_contents(v);
    merge_marks(v, &v->marks, reading.settled);
    if (reading.settled)
        merge_marks(v, &v->family, true);
    v->result.vdis++;
    v->record = NULL;
}

/* Marks what deleted disks still have, so that it is told apart from other leaks. */
void plx_verify_walk_deleted(struct plx_verify *v)
{
    struct plx_slot_scan scan = {0};

    v->mode = PLX_VERIFY_DELETED;
    for (uint32_t slot = 0; !v->error && plx_vdi_next_slot(v->store, &scan, &slot); slot++) {
        struct plx_reading reading = {.store = v->store, .slot = slot};

        if (!plx_verify_begin(v, &reading) || reading.record.state != PLX_VDI_DELETED)
            continue;
        plx_verify_walk_vdi(v);
        merge_marks(v, &v->deleted, true);
    }
    v->mode = PLX_VERIFY_LIVE;
    v->record = NULL;
}
