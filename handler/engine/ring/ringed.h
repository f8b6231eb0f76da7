/* ringed.h - a disk with a write-back ring: writes are acknowledged when the ring has them, and
 * drained to the disk in order.
 *
 * This is the disk's front (engine/disk/front.h) over a chain of the ring (ring.h). One host is
 * made for each ring and store, and joins the store's loop:
 *
 *     error = plx_ringed_host_new(store, ring, &host);
 *     error = plx_ringed_open(host, &options, &vdi, &ringed, &fault);   a disk with its ring
 *     error = plx_ringed_new(host, vdi, &ringed, &fault);               or of a disk that is open
 *     error = plx_ringed_on(ringed, &fault);      from now on the ring acknowledges
 *     error = plx_ringed_off(ringed, &fault);     drained: the store has everything
 *     plx_ringed_close(ringed);                   before plx_vdi_close(); what is on the ring stays
 *     plx_ringed_host_free(host);
 *
 * Turning it on and off may be repeated, and plx_ringed_auto() leaves it to the store's speed. A
 * disk whose record has a mark is on once it is open. It stays on when it is closed undrained, and
 * is opened again with its ring, or by `plx_vdi_open()`, which recovers it but refuses to change
 * it.
 *
 * Loop: the store's. Calls are synchronous, but for those that say otherwise. What is done with the
 * disk's requests meanwhile never blocks.
 */
#ifndef PLX_RINGED_H
#define PLX_RINGED_H

#include "engine/engine.h"
#include "engine/ring/ring.h"

struct plx_ringed;
struct plx_ringed_host;

/* ring stays the caller's, is open for writing, and outlives the host. NOMEM. */
int plx_ringed_host_new(struct plx_store *store, struct plx_ring *ring,
                        struct plx_ringed_host **ret_host);
/* No disk may have it any more. */
void plx_ringed_host_free(struct plx_ringed_host *host);

/* plx_vdi_open() with the ring: a disk with a mark gets its records from the ring, and is on.
 * RING_AWAY: its mark names another ring, or a newer state of this one. CORRUPT: ring and store do
 * not fit together. *ret_ringed is set with *ret_vdi. */
int plx_ringed_open(struct plx_ringed_host *host, const struct plx_vdi_open_options *options,
                    struct plx_vdi **ret_vdi, struct plx_ringed **ret_ringed,
                    struct plx_fault *fault);
/* For a disk that is open and has no mark. If it has had the ring since it was opened, the ring has
 * forgotten it since then (RINGED-6). */
int plx_ringed_new(struct plx_ringed_host *host, struct plx_vdi *vdi,
                   struct plx_ringed **ret_ringed, struct plx_fault *fault);
/* Completes with an error what the ring has not acknowledged. The disk is still open, and is closed
 * or abandoned next. */
void plx_ringed_close(struct plx_ringed *ringed);

/* For a disk that plx_vdi_open() opened, and whose record has a mark: gives up what its ring has.
 * The store's state is the disk from now on, and the mark is gone in both copies of the record. */
int plx_ringed_discard(struct plx_vdi *vdi, struct plx_fault *fault);

/* 0: it was on already, or is now. */
int plx_ringed_on(struct plx_ringed *ringed, struct plx_fault *fault);
/* Drains while requests go on, slower and slower; holds them for the last bit. */
int plx_ringed_off(struct plx_ringed *ringed, struct plx_fault *fault);
/* Who watches the draining. Asked before each turn of the loop; left: bytes that are not on the
 * store yet. True ends it. */
struct plx_ringed_watch {
    bool (*interrupted)(void *context, uint64_t left); /* NULL: nothing ends it */
    void *context;
};
/* The same, watched. BUSY: interrupted; it goes on as before, and what is drained stays so. */
int plx_ringed_off_watched(struct plx_ringed *ringed, const struct plx_ringed_watch *watch,
                           struct plx_fault *fault);

struct plx_ringed_info {
    bool on;
    bool automatic;          /* plx_ringed_auto() */
    bool turning;            /* on or off, just now */
    uint64_t records, bytes; /* acknowledged, and not on the store yet */
    uint64_t waited_ns;      /* for how long the oldest of them has waited */
    uint64_t memory;         /* bytes of it that are in memory */
    uint64_t drained_bytes;  /* so far */
    bool full;               /* the ring is: writes wait */
    int waits_for;           /* why draining waits: NOSPACE, NOMEM, IO; 0: it does not */
};
void plx_ringed_get_info(const struct plx_ringed *ringed, struct plx_ringed_info *ret_info);
/* The same without waiting: it goes on with the loop's turns, and plx_ringed_get_info() says how
 * far it is. */
void plx_ringed_turn(struct plx_ringed *ringed, bool on);
/* From now on it is turned on when the store is slower than usual, and off when it no longer is. So
 * it stays until the next call of plx_ringed_turn(), _on() or _off(). */
void plx_ringed_auto(struct plx_ringed *ringed);
/* How much of what is on the ring is kept in memory, too; 0: 64 MiB. */
void plx_ringed_set_memory(struct plx_ringed *ringed, uint64_t bytes);

#endif
