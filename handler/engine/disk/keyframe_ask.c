/* keyframe_ask.c - key frames asked for, and questions about them and their records. See
 * keyframe.h; KEYFRAME-1 to KEYFRAME-6 are at the top of keyframe.c.
 *
 * Loop: the disk's; never blocks. Crash story: nothing is written here.
 */
#include <stdlib.h>

#include "engine/disk/keyframe_inside.h"

#define RETRY_NS 1000000000ull

void plx_keyframe_request(struct plx_vdi *vdi, struct plx_task *task)
{
    if (task)
        plx_queue_push(&vdi->keyframe.next_waiters, task);
    vdi->keyframe.wanted = true;
}

bool plx_keyframe_may_retry(const struct plx_keyframe_op *op)
{
    struct plx_env *env = op->vdi->store->env;

    return !op->vdi->log.sticky && env->monotonic_ns(env) - op->failed_at_ns > RETRY_NS;
}

bool plx_keyframe_would_help(const struct plx_vdi *vdi)
{
    const struct plx_keyframe_op *op = &vdi->keyframe;

    if (vdi->snapshot || vdi->log.sticky)
        return false;
    return op->running || (!vdi->closing && (vdi->map.active.count || vdi->map.is_frozen) &&
                           (!op->error || plx_keyframe_may_retry(op)));
}

bool plx_keyframe_goes_on(const struct plx_vdi *vdi)
{
    return vdi->keyframe.running && vdi->keyframe.state >= KEYFRAME_ANNOUNCED;
}

bool plx_keyframe_is_past(const struct plx_vdi_record *record, const struct plx_keyframe *keyframe)
{
    return keyframe->pos < record->oldest.pos ||
           (keyframe->pos == record->oldest.pos && keyframe->root != record->oldest.root);
}

bool plx_keyframe_goes_first(const struct plx_vdi *vdi)
{
    const struct plx_keyframe_op *op = &vdi->keyframe;

    return op->alone && op->state != KEYFRAME_ANNOUNCED && op->state != KEYFRAME_FREE;
}

const struct plx_rewind *plx_keyframe_rewind(const struct plx_vdi_record *record)
{
    const struct plx_rewind *last = record->rewinds ? &record->rewind[record->rewinds - 1] : NULL;

    return last && last->pos == record->keyframe.pos ? last : NULL;
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
