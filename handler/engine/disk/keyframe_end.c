/* keyframe_end.c - how a key frame ends. See keyframe.h; the states are in keyframe_steps.c.
 *
 * Loop: the disk's; never blocks. Crash story: nothing is written here.
 */
#include "engine/disk/keyframe_inside.h"

void plx_keyframe_finish(struct plx_keyframe_op *op, int error)
{
    struct plx_store *store = op->vdi->store;

    op->error = error;
    op->running = op->alone = false;
    if (op->drop) /* the history is not let go after all: its owner offers it once only */
        op->drop = op->next_drop = NULL;
    op->detour = NULL;
    if (error)
        op->failed_at_ns = store->env->monotonic_ns(store->env);
    if (error && error != op->vdi->log.sticky) /* a stopped disk was reported already */
        plx_store_event(store, error, "virtual disk %s: no key frame could be written: %s",
                        op->vdi->record.name, plx_error_text(error));
    plx_reserve_keyframe_ended(op->vdi);
    plx_queue_wake(store, &op->waiters, error);
}

/* Ends a key frame whose record was not written, or may not have been (record_failed()). For this
 * instance the old one stays, and the changes stay frozen for the next attempt. */
void plx_keyframe_give_up(struct plx_keyframe_op *op, int error)
{
    plx_tree_abort(&op->tree);
    plx_deaths_give_back(op->vdi->store, &op->made, NULL);
    /* The next attempt merges the same changes and finds the same deaths again. */
    plx_deaths_free(&op->data_deaths);
    plx_deaths_free(&op->node_deaths);
    plx_deaths_free(&op->index_deaths);
    plx_keyframe_finish(op, error);
}
