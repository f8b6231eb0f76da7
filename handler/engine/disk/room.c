/* room.c - room for what an operation writes, and the wait for it.
 *
 * Who waits looks up again afterwards, and holds no address meanwhile. Whom a wait must not hold up
 * request.c says (REQUEST-1).
 * Loop: the VDI's. Crash story: nothing is written here.
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

/* 0, PLX_WAIT or NOSPACE (INV-8). */
int plx_op_metadata_room(struct plx_op *op)
{
    int error = plx_vdi_metadata_room(op->vdi, op->blocks);

    return !error || error == PLX_ERR_NOMEM ? error : wait_for_metadata(op);
}

/* The same, for what changes so many leaves and needs no block: as long as the reserve is left. */
int plx_op_room_for_changes(struct plx_op *op, uint64_t leaves)
{
    int error =
        plx_reserve_room(op->vdi, leaves, 0) ? plx_log_room(&op->vdi->log) : PLX_ERR_NOSPACE;

    return !error || error == PLX_ERR_NOMEM ? error : wait_for_metadata(op);
}

/* A VOID record may have to be logged twice (void_again), and must not fail the second time: with a
 * spare segment at hand it does not. */
int plx_op_room_for_void(struct plx_op *op)
{
    int error = plx_op_room_for_changes(op, op->void_count);

    return error || op->vdi->log.spare_addr ? error : wait_for_metadata(op);
}

/* No space: a key frame frees what has died, if anything has; then the write is tried again. */
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

/* Nothing has died that is not free: perhaps some of the history can go. Not while somebody waits
 * for the disk to be idle: who lets history go may be waiting for him. */
static int wait_for_history(struct plx_op *op)
{
    struct plx_store *store = op->vdi->store;

    if (op->vdi->closing || op->vdi->barrier || !store->env->room_wanted ||
        !store->env->room_wanted(store->env, store))
        return PLX_ERR_NOSPACE;
    op->retries = 0;
    op->state = OP_ROOM;
    plx_queue_push(&store->room_waiters, &op->task);
    plx_op_wake_all(store,
                    &op->vdi->range_waiters); /* moves and shares do not wait for it (REQUEST-1) */
    return PLX_WAIT;
}

/* What issuing came to: PLX_WAIT when the op will be ready again, and looks up anew. */
int plx_op_wait_for_room(struct plx_op *op, int error)
{
    if (error == PLX_WAIT) {
        op->vdi->store->counters.registry_calls_on_data_path += plx_alloc_asks(op->vdi->store);
        op->state = OP_RETRY;
    } else if (error == PLX_ERR_NOSPACE && !plx_op_keeps_contents(op)) { /* STEPS-1 */
        error = wait_for_deaths(op);
        if (error == PLX_ERR_NOSPACE)
            error = wait_for_history(op);
    }
    if (error == PLX_WAIT)
        plx_op_wake_all(op->vdi->store,
                        &op->vdi->ticket_waiters); /* it holds no address any more */
    return error;
}
