/* engine_history.h - snapshots and labels listed and compared; disks rewound. Letting snapshots go
 * is plx_vdi_thin() in engine.h.
 *
 * Part of engine.h, which says how calls are made; include that. All calls are synchronous. "Needs
 * no lock": the disk may be open, here or elsewhere.
 */
#ifndef PLX_ENGINE_HISTORY_H
#define PLX_ENGINE_HISTORY_H

#include "engine/engine.h"

struct plx_snapshot_info {
    uint64_t seq;
    uint64_t time_ns;
    uint64_t size_bytes;
    uint64_t new_blocks; /* written since the last one; not in place */
};

/* Calls visit for each snapshot from number `from` on, oldest first, until visit returns false.
 * Needs no lock. The log is read as it is: its newest snapshots may not be acknowledged yet. Of a
 * disk that stopped, or whose host died, a power cut may still take those, until the disk is opened
 * again. */
int plx_snapshot_list(struct plx_store *store, uint32_t slot, uint64_t from,
                      bool (*visit)(void *context, const struct plx_snapshot_info *info),
                      void *context, struct plx_fault *fault);
/* The first snapshot from number `from` on. seq 0: there is none. */
int plx_snapshot_first(struct plx_store *store, uint32_t slot, uint64_t from,
                       struct plx_snapshot_info *ret_info, struct plx_fault *fault);
/* Gives the disk the contents of snapshot seq. The size stays; what lies behind the snapshot's size
 * reads as zeroes. The state before becomes a snapshot, with the label if one is given. *ret_before
 * tells it, even if the rewind fails afterwards. Requests wait no longer than for a key frame, and
 * none fails.
 *
 * All snapshots stay, those after seq, too. seq is held as long as any snapshot from before the
 * rewind exists: they go together, in one call of plx_vdi_thin() that names them all. INVALID:
 * PLX_REWINDS_MAX rewinds are held, among others. NOSPACE: the store is full. STICKY: the next open
 * shows whether the rewind took place. After any other error nothing has changed. */
struct plx_rewind_options {
    uint64_t seq;
    const char *label; /* NULL: none */
    /* Asked until something changes: true ends the call (SYSTEM). NULL: nothing ends it. */
    bool (*interrupted)(void *context);
    void *context;
};
int plx_vdi_rewind(struct plx_vdi *vdi, const struct plx_rewind_options *options,
                   struct plx_snapshot_info *ret_before, struct plx_fault *fault);
/* Whether plx_vdi_thin() or plx_vdi_rewind() is under way, of which there is one at a time. */
bool plx_vdi_history_changes(const struct plx_vdi *vdi);

/* The newest snapshot that was taken at or before a time, found by reading a few segments of the
 * log. Sets seq and time_ns, and the rest to 0. NOT_FOUND: none is that old. Needs no lock. */
int plx_snapshot_at(struct plx_store *store, uint32_t slot, uint64_t time_ns,
                    struct plx_snapshot_info *ret_info, struct plx_fault *fault);
/* Labels as they were set and removed, oldest first, so that later ones win: since the key frame
 * before snapshot `from`, or all (0). If the disk moves on meanwhile, visit may get some again,
 * together with all that came after them. Needs no lock. */
int plx_label_list(struct plx_store *store, uint32_t slot, uint64_t from,
                   void (*visit)(void *context, const char *label, uint64_t seq, bool removed),
                   void *context, struct plx_fault *fault);

enum plx_map_run {
    PLX_RUN_ABSENT,
    PLX_RUN_MAPPED,
    PLX_RUN_UNREADABLE, /* the node that would tell cannot be read */
};

/* Like plx_vdi_map_runs(), but goes on behind what cannot be read. */
int plx_vdi_readable_runs(struct plx_vdi *vdi, uint64_t offset, uint64_t length,
                          bool (*visit)(void *context, uint64_t offset, uint64_t length,
                                        enum plx_map_run run),
                          void *context, struct plx_fault *fault);
/* Which parts of [offset, offset + length) of an open VDI or snapshot are mapped: calls visit with
 * runs of equal state, in order. For export, GET LBA STATUS and diff. */
int plx_vdi_map_runs(struct plx_vdi *vdi, uint64_t offset, uint64_t length,
                     bool (*visit)(void *context, uint64_t offset, uint64_t length, bool mapped),
                     void *context, struct plx_fault *fault);

/* The ranges that differ between two instants, in order. Calls visit until it returns false; visit
 * may make requests. Both instants come from plx_snapshot_open() of one store: snapshots of one
 * disk, of a clone and its ancestors, or a disk's newest state. from NULL: all that `to` maps.
 *
 * Tells all that differs, and only what was written or unmapped between the two (diff.c). Ends
 * where `to` ends. If the sizes differ, what lies behind the smaller counts as absent. */
struct plx_diff_range {
    uint64_t offset, length;
    bool data; /* `to` holds data there, else it reads as zeroes */
};
int plx_vdi_diff(struct plx_vdi *from, struct plx_vdi *to,
                 bool (*visit)(void *context, const struct plx_diff_range *range), void *context,
                 struct plx_fault *fault);

/* When a range of blocks changed: each pair of neighbouring snapshots between which it did
 * (plx_vdi_diff()), newest first. Calls visit until it returns false. Needs no lock. If snapshots
 * go meanwhile, a pair may reach into the one that was told before it. BUSY: the disk changes
 * faster than it can be read. */
struct plx_range_change {
    struct plx_snapshot_info from; /* seq 0: the creation of the disk */
    struct plx_snapshot_info to;   /* seq 0: the state now */
    bool unknown;                  /* last: it may have changed, but its snapshots are gone */
};
int plx_range_change_list(struct plx_store *store, uint32_t slot, uint64_t vblock, uint64_t count,
                          bool (*visit)(void *context, const struct plx_range_change *change),
                          void *context, struct plx_fault *fault);

#endif
