/* room.c - room for what an operation writes, and the wait for it. See op.h and reserve.h.
 *
 * What an operation without room tries, in this order (plx_op_wait_for_room()):
 *
 *    1  an extent from the registry is on its way         RETRY, when it arrives
 *    2  a key frame may free blocks that have died        RETRY, when the key frame has ended
 *    3  history may give way, if the environment says so  ROOM, when it has (or will not)
 *    4  nothing helps                                     NOSPACE
 *
 * A move, share or vouch tries 1 only (STEPS-1). An operation that waits holds no addresses: it
 * looks them up again afterwards. request.c says whom it must not hold up (REQUEST-1).
 * Loop: the disk's; never blocks, except plx_vdi_wait_metadata_room(), which is synchronous.
 * Crash story: nothing is written here.
 */
#include "engine/disk/op.h"
#include "engine/disk/reserve.h"

int plx_vdi_metadata_room(struct plx_vdi *vdi, uint64_t blocks)
{
    struct plx_store *store = vdi->store;
    uint64_t leaves = blocks ? (blocks >> PLX_NODE_SHIFT) + PLX_OP_EDGE_LEAVES : 0;
    bool room = plx_reserve_room(vdi, leaves, 2 * (uint64_t)store->info.segment_blocks);

    plx_reserve_ahead(store);
    return room ? plx_log_room(&vdi->log) : PLX_ERR_NOSPACE;
}

int plx_vdi_wait_metadata_room(struct plx_vdi *vdi)
{
    unsigned waits = 0;

    for (;;) {
        struct plx_waiter waiter = PLX_WAITER;
        int error = plx_vdi_metadata_room(vdi, 0);

        if (error == PLX_ERR_NOSPACE)
            error = plx_reserve_wait(vdi->store, &waiter.task, &waits);
        if (error != PLX_WAIT)
            return error;
        plx_waiter_wait(vdi->store, &waiter); /* then look again */
    }
}

static int wait_for_metadata(struct plx_op *op)
{
    return plx_reserve_wait(op->vdi->store, &op->task, &op->room_waits);
}

int plx_op_metadata_room(struct plx_op *op)
{
    int error = plx_vdi_metadata_room(op->vdi, op->blocks);

    return !error || error == PLX_ERR_NOMEM ? error : wait_for_metadata(op);
}

int plx_op_room_for_changes(struct plx_op *op, uint64_t leaves)
{
    int error =
        plx_reserve_room(op->vdi, leaves, 0) ? plx_log_room(&op->vdi->log) : PLX_ERR_NOSPACE;

    return !error || error == PLX_ERR_NOMEM ? error : wait_for_metadata(op);
}

/* A VOID record may have to be logged twice (plx_op_append_void()), and must not fail the second
 * time. With a spare segment at hand it does not. */
int plx_op_room_for_void(struct plx_op *op)
{
    int error = plx_op_room_for_changes(op, op->void_count);

    return error || op->vdi->log.spare_addr ? error : wait_for_metadata(op);
}

/* Asks for a key frame of a disk where something may have died: it frees that, and the operation
 * tries again. */
static int wait_for_deaths(struct plx_op *op)
{
    struct plx_vdi *vdi = op->vdi;

    for (struct plx_vdi *v = vdi->store->vdis; v; v = v->next) {
        if (!v->snapshot && !v->log.sticky && !v->closing &&
            (v->map.deaths.count || v->map.active.count || v->keyframe.running) &&
            op->retries < 4) {
            op->retries++;
            op->state = OP_RETRY;
            plx_keyframe_request(v, &op->task);
            return PLX_WAIT;
        }
    }
    return PLX_ERR_NOSPACE;
}

/* No block is dead but not free yet, so asks for history to give way. Not while the disk is closing
 * or has a barrier: a call waits for it to be idle then, perhaps the one that lets history go. */
static int wait_for_history(struct plx_op *op)
{
    struct plx_store *store = op->vdi->store;

    if (op->vdi->closing || op->vdi->barrier || !store->env->room_wanted ||
        !store->env->room_wanted(store->env, store))
        return PLX_ERR_NOSPACE;
    op->retries = 0;
    op->state = OP_ROOM;
    plx_alloc_wait_for_history(store, &op->task);
    plx_queue_wake(store, &op->vdi->range_waiters, 0); /* REQUEST-1: moves and shares fail */
    return PLX_WAIT;
}

int plx_op_wait_for_room(struct plx_op *op, int error)
{
    if (error == PLX_WAIT) {
        op->vdi->store->counters.registry_calls_on_data_path += plx_alloc_asks(op->vdi->store);
        op->state = OP_RETRY;
    } else if (error == PLX_ERR_NOSPACE && op->kind->effect != PLX_KEEPS) { /* STEPS-1 */
        error = wait_for_deaths(op);
        if (error == PLX_ERR_NOSPACE)
            error = wait_for_history(op);
    }
    if (error == PLX_WAIT) /* the operation holds no address any more */
        plx_queue_wake(op->vdi->store, &op->vdi->ticket_waiters, 0);
    return error;
}
