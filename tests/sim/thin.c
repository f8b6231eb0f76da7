/* thin.c - the model of letting snapshots go.
 *
 * SIM_THIN-1  A snapshot goes only if it was asked for, and is not labelled, cloned or open; which
 *     of those asked for really went, the list tells, once. What went does not come back.
 * SIM_THIN-2  After an error or a death it is not known whether they went until the list is read
 *     again, of a disk that has not stopped (SIM_READBACK-2).
 * SIM_THIN-3  By time none goes that was not old enough in truth (SIM_CLOCKS-1); while clocks may
 *     be off it may be refused.
 */
#include <stdlib.h>
#include <string.h>

#include "sim/parts.h"

static bool number_gone(const struct plx_sim_disk *disk, uint64_t seq)
{
    return seq < PLX_SIM_NUMBERS && (disk->gone[seq / 64] >> seq % 64 & 1);
}

bool plx_sim_number_gone(const struct plx_sim_disk *disk, uint64_t seq)
{
    return seq <= disk->forgotten || number_gone(disk, seq);
}

static void note_gone(struct plx_sim_disk *disk, uint64_t seq)
{
    if (seq < PLX_SIM_NUMBERS)
        disk->gone[seq / 64] |= 1ull << seq % 64;
}

/* ---- What is known afterwards ---- */

static bool is_listed(const uint64_t *listed, unsigned count, uint64_t seq)
{
    for (unsigned k = 0; k < count; k++)
        if (listed[k] == seq)
            return true;
    return false;
}

void plx_sim_settle_gone(struct plx_world *w, struct plx_sim_disk *disk, const uint64_t *listed,
                         unsigned count, uint64_t newest, uint64_t forgotten, bool stays)
{
    if (forgotten < disk->forgotten)
        plx_sim_fail(w, "history of VDI %u begins behind snapshot %llu, not %llu", disk->slot,
                     (unsigned long long)forgotten, (unsigned long long)disk->forgotten);
    for (unsigned i = 0; i < disk->snapshot_count; i++) {
        struct plx_sim_snapshot *snapshot = &disk->snapshots[i];

        if (!snapshot->acked || snapshot->seq > newest || number_gone(disk, snapshot->seq))
            continue;
        if (is_listed(listed, count, snapshot->seq)) {
            snapshot->going = snapshot->going && !stays;
            continue;
        }
        if (!snapshot->going)
            plx_sim_fail(w, "VDI %u@%llu is not listed", disk->slot,
                         (unsigned long long)snapshot->seq);
        if (stays)
            note_gone(disk, snapshot->seq);
    }
    if (stays)
        disk->forgotten = forgotten;
}

struct listed {
    uint64_t seqs[PLX_SIM_SNAPSHOTS];
    unsigned count;
};

static bool note_listed(void *context, const struct plx_snapshot_info *info)
{
    struct listed *listed = context;

    listed->seqs[listed->count++] = info->seq;
    return listed->count < PLX_SIM_SNAPSHOTS;
}

static void settle(struct plx_world *w, struct plx_sim_disk *disk, uint64_t newest)
{
    struct plx_sim_host *host = disk->host;
    struct listed listed = {.count = 0};
    struct plx_vdi_info info;
    struct plx_fault fault = {0};
    int error = plx_vdi_read_info(host->store, disk->slot, &info, &fault);

    if (!error)
        error = plx_snapshot_list(host->store, disk->slot, 0, note_listed, &listed, &fault);
    if (!error)
        plx_sim_settle_gone(w, disk, listed.seqs, listed.count, newest, info.forgotten, true);
    else if (!plx_sim_excused(w, host, error))
        plx_sim_fail(w, "snapshots of VDI %u cannot be listed: %s", disk->slot, fault.text);
}

/* ---- Asking for it ---- */

struct kept {
    uint64_t seqs[PLX_SIM_LABELS + PLX_SIM_READERS + PLX_SIM_VDIS];
    size_t count;
};

static bool label_stands(const struct plx_sim_disk *disk, unsigned at)
{
    for (unsigned i = at + 1; i < disk->label_count; i++)
        if (strcmp(disk->labels[i].name, disk->labels[at].name) == 0 && disk->labels[i].removed &&
            disk->labels[i].acked)
            return false;
    return !disk->labels[at].removed;
}

/* What the registry would say: labels, readers on other hosts, clones and clones of these. */
static void find_kept(const struct plx_world *w, const struct plx_sim_disk *disk,
                      struct kept *ret_kept)
{
    ret_kept->count = 0;
    for (unsigned i = 0; i < disk->label_count; i++)
        if (label_stands(disk, i))
            ret_kept->seqs[ret_kept->count++] = disk->labels[i].seq;
    for (unsigned i = 0; i < PLX_SIM_READERS; i++)
        if (w->readers[i].vdi && w->readers[i].disk == disk)
            ret_kept->seqs[ret_kept->count++] = w->readers[i].seq;
    for (unsigned i = 0; i < w->options.vdis; i++)
        if (w->vdis[i].parent == disk->slot + 1 &&
            (w->vdis[i].state != PLX_SIM_ABSENT || plx_sim_has_heirs(w, w->vdis[i].slot)))
            ret_kept->seqs[ret_kept->count++] = w->vdis[i].parent_seq;
    qsort(ret_kept->seqs, ret_kept->count, sizeof *ret_kept->seqs, plx_compare_u64);
}

/* SIM_THIN-1 */
static void mark_going(struct plx_sim_disk *disk, const struct plx_thin *thin)
{
    for (unsigned i = 0; i < disk->snapshot_count; i++) {
        struct plx_sim_snapshot *snapshot = &disk->snapshots[i];
        uint64_t seq = snapshot->seq;

        if (snapshot->acked && seq > thin->after && seq <= thin->upto &&
            !bsearch(&seq, thin->kept, thin->kept_count, sizeof seq, plx_compare_u64))
            snapshot->going = true;
    }
    disk->thinned = disk->thinned > thin->upto ? disk->thinned : thin->upto;
}

static unsigned held_rewinds(const struct plx_sim_disk *disk)
{
    struct plx_vdi_info info;

    plx_vdi_get_info(disk->vdi, &info);
    return info.rewinds_held;
}

uint64_t plx_sim_thin(struct plx_world *w, struct plx_sim_disk *disk, const struct plx_thin *range)
{
    struct plx_thin thin = *range;
    struct plx_sim_host *host = disk->host;
    struct plx_thinned thinned = {0};
    struct plx_fault fault = {0};
    struct plx_vdi_info info;
    static struct plx_sim_ages ages;
    struct kept kept;
    int error;

    if (!disk->vdi || host->dead)
        return 0;
    find_kept(w, disk, &kept);
    thin.kept = kept.seqs;
    thin.kept_count = kept.count;
    plx_vdi_get_info(disk->vdi, &info);
    plx_sim_ages_before(w, disk, &thin, &ages);
    mark_going(disk, &thin);
    error = plx_vdi_thin(disk->vdi, &thin, &thinned, &fault);
    PLX_SIM_TRACE(w, "thin %u (%llu, %llu] before %llu every %llu: %s, %llu gone up to %llu",
                  disk->slot, (unsigned long long)thin.after, (unsigned long long)thin.upto,
                  (unsigned long long)thin.before_ns, (unsigned long long)thin.every_ns,
                  plx_error_name(error), (unsigned long long)thinned.snapshots,
                  (unsigned long long)thinned.upto);
    if (plx_sim_interrupted(w) || host->dead)
        return 0; /* SIM_THIN-2 */
    if (error && error != PLX_ERR_BUSY && (error != PLX_ERR_CLOCK || !thin.before_ns) &&
        !plx_sim_excused(w, host, error))
        plx_sim_fail(w, "VDI %u does not let snapshots go: %s", disk->slot, fault.text);
    if (error)
        return 0;
    settle(w, disk, info.snapshots);
    plx_sim_ages_after(w, disk, &ages); /* SIM_THIN-3 */
    w->result.rewinds_past += info.rewinds_held - held_rewinds(disk);
    return thinned.upto;
}

/* ---- For want of room ---- */

/* The older half of a disk's history; returns whether any of it went. */
static bool give_way(struct plx_world *w, struct plx_sim_disk *disk)
{
    const struct plx_sim_snapshot *middle = NULL;
    unsigned kept = 0, before = 0;

    for (unsigned i = 0; i < disk->snapshot_count; i++)
        before += plx_sim_snapshot_kept(disk, &disk->snapshots[i]);
    for (unsigned i = 0; i < disk->snapshot_count && kept <= before / 2; i++)
        if (plx_sim_snapshot_kept(disk, &disk->snapshots[i])) {
            middle = &disk->snapshots[i];
            kept++;
        }
    if (middle)
        plx_sim_thin(w, disk, &(struct plx_thin){.upto = middle->seq});
    kept = 0;
    for (unsigned i = 0; i < disk->snapshot_count; i++)
        kept += plx_sim_snapshot_kept(disk, &disk->snapshots[i]);
    return kept < before;
}

void plx_sim_make_room(struct plx_world *w)
{
    for (unsigned h = 0; h < PLX_SIM_HOSTS; h++) {
        struct plx_sim_host *host = &w->hosts[h];
        bool made = false;

        if (!host->env.room_wanted || !host->store)
            continue;
        host->env.room_wanted = false;
        for (unsigned i = 0; i < w->options.vdis && !host->dead && !plx_sim_interrupted(w); i++)
            if (w->vdis[i].host == host && w->vdis[i].vdi)
                made |= give_way(w, &w->vdis[i]);
        if (host->store)
            plx_store_room_made(host->store, made);
    }
}
