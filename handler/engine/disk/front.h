/* front.h - inside the engine: a disk's front, which takes its requests before the disk does, and
 * brings their changes to it later.
 *
 * The write-back ring is a front (engine/ring/). It acknowledges a change when a local device has
 * it, and carries it to the disk when that is convenient: in order, none left out. This header is
 * all that disk/ and log/ know of rings. FRONT-1 to FRONT-5 are at the top of front.c.
 *
 *     plx_front_set(vdi, &front);                   from now on it is asked first
 *     plx_front_mark(vdi, &mark, &task);            when task is ready, the store says so
 *     request = {.op = PLX_WRITE, .carried = {epoch, seq}, .appended = ..., .done = ...};
 *     plx_front_carry(vdi, &request);               a record; the next one when appended was called
 *     plx_front_mark(vdi, &none, &task);            the disk has all records
 *     plx_front_set(vdi, NULL);
 */
#ifndef PLX_FRONT_H
#define PLX_FRONT_H

#include "engine/engine.h"

struct plx_task;

struct plx_front {
    /* Whether the front takes this request, whatever its urgency. If so it completes it, later or
     * at once, or passes it on. It has not been checked yet. */
    bool (*take)(struct plx_front *front, struct plx_request *request);
    void (*pump)(struct plx_front *front); /* once a turn of the disk */
    /* The number of the last record that may have been acknowledged. */
    uint64_t (*last)(const struct plx_front *front);
    /* When to make a turn although nothing has happened; UINT64_MAX: never. May be NULL: never. */
    uint64_t (*due_ns)(const struct plx_front *front);
    /* Whether it has something for this block that the disk lacks, and then whether that is data or
     * nothing. *ret_end: where that ends, or where something begins. May be NULL: it has nothing.
     */
    bool (*covers)(const struct plx_front *front, uint64_t block, uint64_t *ret_end,
                   bool *ret_mapped);
    uint64_t snapshots; /* number of the newest that it has ordered; 0: none */
};

/* Sets or takes away the disk's front. Requests that it has taken stay the front's. */
void plx_front_set(struct plx_vdi *vdi, struct plx_front *front);
/* Changes the disk's mark. The task becomes ready when the record has it, durably in both slots,
 * with the key frame's error; NULL: nobody waits. The store allows rings. */
void plx_front_mark(struct plx_vdi *vdi, const struct plx_ring_mark *mark, struct plx_task *task);
/* Records up to `seq` have been carried or never will be, those of earlier epochs, too. None is
 * under way. The next position says so. */
void plx_front_skip(struct plx_vdi *vdi, uint64_t seq);
/* Submits a carried request: a WRITE or UNMAP of whole blocks (the disk's last one may lie half
 * outside), or a SNAPSHOT with its number and time. done says when it is durable; BUSY: a record
 * before it was not logged. */
void plx_front_carry(struct plx_vdi *vdi, struct plx_request *request);
/* Changes that were passed to the disk and are not finished: their number, and when the oldest
 * arrived. */
struct plx_front_load {
    unsigned changes;
    uint64_t oldest_ns;     /* monotonic; if there is one */
    bool waits_for_history; /* one of them does, or a carried one (REQUEST-1) */
};
struct plx_front_load plx_front_load(const struct plx_vdi *vdi);
/* Validates a request without submitting it: 0, or the error that it would get. */
int plx_front_check(const struct plx_vdi *vdi, const struct plx_request *request);
/* Hands a request to the disk: one that the front has taken, or one of its own. */
void plx_front_pass(struct plx_vdi *vdi, struct plx_request *request);
/* Completes a request that the front has taken. */
void plx_front_complete(struct plx_vdi *vdi, struct plx_request *request, int result);

#endif
