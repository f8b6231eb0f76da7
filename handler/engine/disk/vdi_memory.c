/* vdi_memory.c - a disk in memory, before it is opened and after it was closed; what its record
 * says. See vdi_inside.h.
 *
 * Loop: the store's. Crash story: memory only.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/disk/reserve.h"
#include "engine/disk/vdi_inside.h"

void plx_vdi_record_info(const struct plx_vdi_record *record, struct plx_vdi_info *ret)
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
        .mark = record->mark,
        .position = record->position,
    };
    for (uint32_t i = 0; i < record->rewinds; i++)
        ret->rewound_to[i] = record->rewind[i].seq;
    memcpy(ret->name, record->name, sizeof ret->name);
}

struct plx_vdi *plx_vdi_new(struct plx_store *store, const struct plx_vdi_record *record,
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
    vdi->mark = record->mark;
    vdi->vouch.completed_ns = record->vouched_ns;
    vdi->vouch.doubt = record->doubted || record->owner;
    plx_gather_init(&vdi->gather, store);
    if (plx_ops_init(vdi)) {
        free(vdi);
        return NULL;
    }
    return vdi;
}

void plx_vdi_free(struct plx_vdi *vdi)
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
    free(vdi->past);
    free(vdi);
}

int plx_vdi_cannot_write(const char *name, int error, struct plx_fault *fault)
{
    return plx_fault_set(fault, error, "cannot write the record of %s: %s", name,
                         plx_error_text(error));
}

int plx_disks_init(struct plx_store *store)
{
    store->disks = calloc(1, sizeof *store->disks);
    if (!store->disks)
        return PLX_ERR_NOMEM;
    plx_reserve_init(store);
    return 0;
}

void plx_disks_free(struct plx_store *store)
{
    free(store->disks);
    store->disks = NULL;
}
