/* loop.h - which thread runs a store's engine, and when.
 *
 * The engine has no threads of its own. Here a mutex takes the place of a loop thread: the thread
 * that holds the mutex is the loop of the store and its VDIs. Any thread brings work through an
 * inbox that never blocks. If the mutex is free, the thread that brings work makes the turn of the
 * engine itself, without a hand-off; otherwise the holder takes the work along. Threads:
 *
 *  thread      how many      what it does
 *  callers     any number    bring work, and make turns if the mutex is free
 *  plx-volume  1 per device  waits for its completions, then makes turns (a watcher)
 *  plx-loop    1 per store   makes turns for timers and for work that was left
 *  plx-worker  1 per store   runs deferred jobs, which may block for long (the registry)
 *
 * The order of calls:
 *
 *   plx_loop_new(), open the store with its environment, plx_loop_start()
 *   plx_loop_post() and plx_loop_run() for requests; plx_loop_lock() and plx_loop_unlock() around
 *   synchronous engine calls
 *   plx_loop_stop(), close the store, plx_loop_free()
 */
#ifndef PLX_LOOP_H
#define PLX_LOOP_H

#include "engine/engine.h"

struct plx_loop;

/* Something to be done on the loop. It belongs to the loop from plx_loop_post() until run is
 * called; the caller owns the memory. */
struct plx_work {
    void (*run)(struct plx_work *work);
    struct plx_work *next; /* the loop's, and so is the rest */
    uint64_t posted_ns;    /* when it was left to others (LOOP-7); or 0 */
};

/* Starts the thread for deferred jobs. NOMEM, SYSTEM. */
int plx_loop_new(struct plx_loop **ret_loop, struct plx_fault *fault);
/* From here on, until plx_loop_stop() has returned, the loop serves the store. SYSTEM: a thread
 * cannot be started. */
int plx_loop_start(struct plx_loop *loop, struct plx_store *store, struct plx_fault *fault);
/* The store has further devices: starts their threads. With the mutex held. Returns 0, or the errno
 * if a device has no thread yet; the loop tries again by itself (LOOP-8). */
int plx_loop_watch(struct plx_loop *loop);
/* Ends the threads of devices that plx_store_any_device() does not name any more, and that are
 * closed next. Without the mutex, one thread at a time. */
void plx_loop_unwatch(struct plx_loop *loop);
void plx_loop_stop(struct plx_loop *loop);
void plx_loop_free(struct plx_loop *loop); /* runs deferred jobs first; NULL is fine */

/* From any thread, also from within the loop (in a completion): run is called soon, on the loop, in
 * the order of posting. For the data path: allocates nothing and never waits. */
void plx_loop_post(struct plx_loop *loop, struct plx_work *work);
/* Submits a request and waits for its result, while the loop serves others. Not from within the
 * loop. */
int plx_loop_run(struct plx_loop *loop, struct plx_vdi *vdi, struct plx_request *request);

/* Around synchronous engine calls. Not nested, and not from within the loop. */
void plx_loop_lock(struct plx_loop *loop);
void plx_loop_unlock(struct plx_loop *loop);

/* Hooks for struct plx_env, called on the loop. tick takes work out of the inbox, so that other
 * disks go on during a long synchronous call. idle waits a few milliseconds for a deferred job. */
void plx_loop_tick(struct plx_loop *loop);
void plx_loop_idle(struct plx_loop *loop);
/* Lets the loop's own thread make a turn soon. From any thread. */
void plx_loop_wake(struct plx_loop *loop);
/* Runs function(argument) on the plx-worker thread, then wakes the loop. Never blocks. BUSY:
 * hundreds of jobs wait already. */
int plx_loop_defer(struct plx_loop *loop, void (*function)(void *argument), void *argument);

#endif
