/* engine_history.h - snapshots and labels listed, let go, compared; disks rewound.
 *
 * Part of engine.h, which says how calls are made; include that. */
#ifndef PLX_ENGINE_HISTORY_H
#define PLX_ENGINE_HISTORY_H

#include "engine/engine.h"

struct plx_snapshot_info {
    uint64_t seq;
    uint64_t time_ns;
    uint64_t size_bytes;
    uint64_t new_blocks; /* written since the one before; without those written in place */
};

/* Calls visit for each snapshot from seq `from` (inclusive) on, oldest first, until visit returns
 * false. Needs no lock. It tells what the log holds: the newest may not be acknowledged, and of a
 * disk that stopped, or whose host died, a power cut may take those until it is opened again. */
int plx_snapshot_list(struct plx_store *store, uint32_t slot, uint64_t from,
                      bool (*visit)(void *context, const struct plx_snapshot_info *info),
                      void *context, struct plx_fault *fault);
/* The first one from seq `from` on; seq 0: there is none. */
int plx_snapshot_first(struct plx_store *store, uint32_t slot, uint64_t from,
                       struct plx_snapshot_info *ret_info, struct plx_fault *fault);
/* The disk's contents become those of snapshot seq; its size stays, what lies behind the snapshot's
 * reads as zeroes. The state before becomes a snapshot, with the label if one is given; it comes
 * back in *ret_before also when the rewind fails after that. Requests wait meanwhile, for no
 * longer than a key frame takes; none fails. Snapshots stay, later ones than seq, too; seq itself
 * is held as long as any snapshot from before the rewind is there: these go together, in one call
 * of plx_vdi_thin() that names them all. NOSPACE: PLX_REWINDS_MAX rewinds are held, or the store is
 * full. STICKY: whether it took place shows when the disk is opened again. After all other errors
 * nothing has changed. Synchronous. */
struct plx_rewind_options {
    uint64_t seq;
    const char *label; /* NULL: none */
};
int plx_vdi_rewind(struct plx_vdi *vdi, const struct plx_rewind_options *options,
                   struct plx_snapshot_info *ret_before, struct plx_fault *fault);

/* The newest snapshot taken at or before a time (seq and time_ns; the rest is 0), by reading a few
 * segments of the log. NOT_FOUND: there is none that old. Needs no lock. */
int plx_snapshot_at(struct plx_store *store, uint32_t slot, uint64_t time_ns,
                    struct plx_snapshot_info *ret_info, struct plx_fault *fault);
/* Labels set and removed, oldest first, so that later ones win: since the key frame before snapshot
 * `from`, or (0) all. Beside a disk that moves on some may be told again, with all that came after
 * them. Needs no lock. */
int plx_label_list(struct plx_store *store, uint32_t slot, uint64_t from,
                   void (*visit)(void *context, const char *label, uint64_t seq, bool removed),
                   void *context, struct plx_fault *fault);

enum plx_map_run {
    PLX_RUN_ABSENT,
    PLX_RUN_MAPPED,
    PLX_RUN_UNREADABLE, /* the node that would say is damaged, or cannot be read */
};

/* As plx_vdi_map_runs(), and goes on behind what cannot be read. */
int plx_vdi_readable_runs(struct plx_vdi *vdi, uint64_t offset, uint64_t length,
                          bool (*visit)(void *context, uint64_t offset, uint64_t length,
                                        enum plx_map_run run),
                          void *context, struct plx_fault *fault);
/* Whether [offset, offset+length) of an open VDI or snapshot is mapped: calls visit with runs of
 * equal state in order. Synchronous. Serves export, GET LBA STATUS and diff. */
int plx_vdi_map_runs(struct plx_vdi *vdi, uint64_t offset, uint64_t length,
                     bool (*visit)(void *context, uint64_t offset, uint64_t length, bool mapped),
                     void *context, struct plx_fault *fault);

/* The ranges that differ between two instants, in order: calls visit until it returns false, which
 * may make requests. Both are opened with plx_snapshot_open() from one store: snapshots of one
 * disk, of a clone and its ancestors, or a disk's newest state; from NULL: all that `to` maps.
 * Whatever differs is told, and nothing that was not written or unmapped between the two (diff.c).
 * Ends where `to` ends; between disks of different size what lies behind the smaller counts as
 * absent. */
struct plx_diff_range {
    uint64_t offset, length;
    bool data; /* at `to`: holds data, else reads as zeroes */
};
int plx_vdi_diff(struct plx_vdi *from, struct plx_vdi *to,
                 bool (*visit)(void *context, const struct plx_diff_range *range), void *context,
                 struct plx_fault *fault);

/* When a range of blocks was changed, newest first: which two snapshots that follow each other
 * differ there (plx_vdi_diff()). Calls visit until it returns false. Needs no lock. */
struct plx_range_change {
    struct plx_snapshot_info from; /* seq 0: the disk was created */
    struct plx_snapshot_info to;   /* seq 0: not in a snapshot yet */
    bool unknown;                  /* the last one: it may have, snapshots of that time are gone */
};
int plx_range_change_list(struct plx_store *store, uint32_t slot, uint64_t vblock, uint64_t count,
                          bool (*visit)(void *context, const struct plx_range_change *change),
                          void *context, struct plx_fault *fault);

#endif
