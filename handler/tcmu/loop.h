/* loop.h - who runs a store's engine, and when.
 *
 * A store and its VDIs belong to one loop: whoever holds its mutex. Work comes in from any thread
 * through an inbox that never blocks; the thread that brings it runs the engine itself when nobody
 * else does (no hand-off), otherwise the holder takes it along. A thread for each volume waits for
 * what it completes, one of the loop's own for timers. A further one runs what may block for long
 * (the registry).
 */
#ifndef PLX_LOOP_H
#define PLX_LOOP_H

#include "engine/engine.h"

struct plx_loop;

/* Something to be done on the loop. The caller's until run is called, and again from then on. */
struct plx_work {
    void (*run)(struct plx_work *work);
    struct plx_work *next; /* the loop's */
};

int plx_loop_new(struct plx_loop **ret_loop, struct plx_fault *fault);
/* From here on the loop serves the store; until plx_loop_stop() has returned. */
int plx_loop_start(struct plx_loop *loop, struct plx_store *store, struct plx_fault *fault);
/* The store has further volumes; with the mutex held. Returns the errno for which one of them has
 * no thread yet. */
int plx_loop_watch(struct plx_loop *loop);
void plx_loop_stop(struct plx_loop *loop);
void plx_loop_free(struct plx_loop *loop); /* NULL is fine; runs what was deferred first */

/* Any thread, also from within the loop (a completion): run is called soon, on the loop, in order
 * of arrival. The data path: allocates nothing, waits for nobody. */
void plx_loop_post(struct plx_loop *loop, struct plx_work *work);
/* Submits and waits for the result, while the loop serves everybody. Not from within the loop. */
int plx_loop_run(struct plx_loop *loop, struct plx_vdi *vdi, struct plx_request *request);

/* Around synchronous engine calls. Not nested, not from within the loop. */
void plx_loop_lock(struct plx_loop *loop);
void plx_loop_unlock(struct plx_loop *loop);

/* For struct plx_env, on the loop. tick takes the inbox in, so that neighbours of a long
 * synchronous call go on; idle waits a little for a deferred job to end. */
void plx_loop_tick(struct plx_loop *loop);
void plx_loop_idle(struct plx_loop *loop);
/* The loop makes a turn soon. Any thread. */
void plx_loop_wake(struct plx_loop *loop);
/* Runs function(argument) on the second thread, then wakes the loop. Never blocks. BUSY when far
 * too many wait already. */
int plx_loop_defer(struct plx_loop *loop, void (*function)(void *argument), void *argument);

#endif
