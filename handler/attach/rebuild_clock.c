/* rebuild_clock.c - what a rebuild lets the new registry know of the clocks (REBUILD-15). */
#include "attach/rebuild_inside.h"
#include "registry/clocks.h"

static bool keep_newest(void *context, const struct plx_snapshot_info *info)
{
    *(struct plx_snapshot_info *)context = *info;
    return true;
}

/* *ret_open: whoever opens the disk may find further ones, or they cannot be read. */
static int read_ends(struct rebuild *r, const struct plx_registry_vdi *row,
                     struct plx_history_ends *ret_ends, bool *ret_open)
{
    struct plx_snapshot_info oldest = {0}, newest = {0};
    struct plx_vdi_info info = {0};
    struct plx_fault why = {0};
    int error = plx_vdi_read_info(r->store, row->slot, &info, &why);

    if (!error)
        error = plx_snapshot_first(r->store, row->slot, 1, &oldest, &why);
    if (!error && oldest.seq) /* from the newest key frame on */
        error = plx_snapshot_list(r->store, row->slot, plx_max_u64(info.snapshots, 1), keep_newest,
                                  &newest, &why);
    if (error && error != PLX_ERR_CORRUPT)
        return plx_fault_set(r->fault, error, "%s", why.text);
    *ret_open = error || row->owner || plx_ring_is_marked(&info.mark);
    *ret_ends = (struct plx_history_ends){
        .forgotten = oldest.seq ? oldest.seq - 1 : 0,
        .taken_seq = newest.seq,
        .newest_seq = newest.seq,
        .newest_ns = newest.time_ns,
        .unsettled = error != 0,
    };
    return 0;
}

/* REBUILD-15. false: there is nothing that was not known. */
static bool take_for_undated(const struct rebuild *r, bool open,
                             const struct plx_history_ends *ends, struct plx_witness *witness)
{
    const struct plx_clocks now = plx_clocks_here(&r->paths);
    uint64_t seen = witness->boot_id ? witness->seq : 0;

    if (!open && ends->newest_seq <= seen)
        return false;
    plx_witness_found(witness, seen, open ? UINT64_MAX : ends->newest_seq);
    if (!open)
        plx_witness_look(witness, &now, ends);
    return true;
}

static void tell_undated(struct rebuild *r, const struct plx_registry_vdi *row)
{
    r->rebuilt.undated++;
    if (r->options->undated)
        r->options->undated(r->options->context, row->name);
}

/* What the old registry had of it is in the new one already (rebuild_old.c). */
static int keep_clock(struct rebuild *r, const struct plx_registry_vdi *row)
{
    struct plx_history_ends ends = {0};
    struct plx_witness witness = {0};
    bool open = false;
    int error =
        plx_rebuilding_registry_fault(r, r->file, plx_witness_load(r->file, row->id, &witness));

    if (error || ((witness.boot_id || witness.undated_count) && !r->outdated))
        return error;
    error = read_ends(r, row, &ends, &open);
    if (error || !take_for_undated(r, open, &ends, &witness))
        return error;
    if (ends.newest_seq || ends.unsettled)
        tell_undated(r, row);
    return plx_rebuilding_registry_fault(r, r->file, plx_witness_keep(r->file, row->id, &witness));
}

int plx_rebuilding_keep_clocks(struct rebuild *r)
{
    int error = 0;

    r->outdated =
        r->outdated || r->newer_first || r->rebuilt.newer_extents || r->rebuilt.first_back;
    for (size_t i = 0; i < r->vdi_count && !error; i++)
        if (!r->vdis[i].deleted)
            error = keep_clock(r, &r->vdis[i]);
    return error;
}
