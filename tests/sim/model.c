/* model.c - what each virtual disk is expected to hold; see parts.h.
 *
 * SIM_MODEL-1  A snapshot is remembered as the view that was open from its submission to its
 *     completion; it never changes afterwards, and what was once read of it is right for ever.
 *     Forks share the views of acknowledged snapshots: what one fork reads of them is not known to
 *     the others.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/parts.h"

static void *must(void *memory)
{
    if (!memory) {
        fputs("model: out of memory\n", stderr);
        abort();
    }
    return memory;
}

void plx_sim_disk_forget(struct plx_sim_disk *disk)
{
    plx_sim_disk_doubt(disk);
    for (unsigned i = 0; i < disk->snapshot_count; i++)
        plx_view_free(disk->snapshots[i].view);
    plx_oracle_free(disk->oracle);
    plx_view_free(disk->rewinding);
    free(disk->snapshots);
    free(disk->labels);
    /* The slot remembers its epochs, as the registry does. */
    *disk = (struct plx_sim_disk){
        .slot = disk->slot,
        .epoch = disk->epoch,
        .parent = disk->parent,
        .parent_seq = disk->parent_seq,
    };
}

static void *copy_list(const void *list, unsigned count, unsigned room, size_t size)
{
    void *copy;

    if (!list)
        return NULL;
    copy = must(malloc(room * size));
    memcpy(copy, list, count * size);
    return copy;
}

void plx_sim_disk_fork(const struct plx_sim_disk *disk, struct plx_sim_disk *ret_fork)
{
    struct plx_sim_disk fork = *disk;

    fork.host = NULL;
    fork.vdi = NULL;
    fork.ringed = NULL;
    fork.in_flight = fork.automatic = 0;
    fork.still = false;
    if (disk->oracle)
        fork.oracle = plx_oracle_fork(disk->oracle);
    if (disk->rewinding)
        fork.rewinding = plx_view_share(disk->rewinding);
    fork.snapshots = copy_list(disk->snapshots, disk->snapshot_count, PLX_SIM_SNAPSHOTS,
                               sizeof *disk->snapshots);
    fork.labels = copy_list(disk->labels, disk->label_count, PLX_SIM_LABELS, sizeof *disk->labels);
    for (unsigned i = 0; i < fork.snapshot_count; i++) { /* SIM_MODEL-1 */
        struct plx_sim_snapshot *snapshot = &fork.snapshots[i];

        snapshot->view =
            snapshot->acked ? plx_view_share(snapshot->view) : plx_view_copy(snapshot->view);
        snapshot->exact = NULL;
        snapshot->awaited = false;
    }
    *ret_fork = fork;
}

void plx_sim_disk_doubt(struct plx_sim_disk *disk)
{
    for (unsigned i = 0; i < disk->snapshot_count; i++) {
        struct plx_sim_snapshot *snapshot = &disk->snapshots[i];

        if (snapshot->acked)
            continue;
        plx_oracle_view_close(disk->oracle, snapshot->view);
        plx_view_free(snapshot->exact);
        snapshot->exact = NULL;
        snapshot->awaited = false;
    }
    disk->automatic = 0;
}

void plx_sim_disk_crash(struct plx_sim_disk *disk)
{
    if (!disk->oracle)
        return;
    plx_sim_disk_doubt(disk);
    /* An instant that nobody was told of may have lost what was not durable then. */
    for (unsigned i = 0; i < disk->snapshot_count; i++)
        if (!disk->snapshots[i].acked && (disk->write_back || disk->mode_changes))
            plx_oracle_view_widen(disk->oracle, disk->snapshots[i].view);
    plx_oracle_crash(disk->oracle);
}

bool plx_sim_snapshot_kept(const struct plx_sim_disk *disk, const struct plx_sim_snapshot *snapshot)
{
    return snapshot->acked && !plx_sim_number_gone(disk, snapshot->seq);
}

void plx_sim_snapshot_taken(const struct plx_sim_disk *disk, struct plx_sim_snapshot *snapshot,
                            uint64_t seq, uint64_t time_ns)
{
    snapshot->seq = seq;
    snapshot->time_ns = time_ns;
    snapshot->acked = true;
    snapshot->going = seq <= disk->thinned; /* it may have been before anybody was told of it */
}

struct plx_sim_snapshot *plx_sim_snapshot_add(struct plx_sim_disk *disk)
{
    if (disk->snapshot_count == PLX_SIM_SNAPSHOTS)
        return NULL;
    if (!disk->snapshots)
        disk->snapshots = must(malloc(PLX_SIM_SNAPSHOTS * sizeof *disk->snapshots));
    return &disk->snapshots[disk->snapshot_count++];
}

struct plx_sim_snapshot *plx_sim_snapshot_find(struct plx_sim_disk *disk, uint64_t seq)
{
    for (unsigned i = 0; i < disk->snapshot_count; i++)
        if (plx_sim_snapshot_kept(disk, &disk->snapshots[i]) && disk->snapshots[i].seq == seq)
            return &disk->snapshots[i];
    return NULL;
}

struct plx_sim_label *plx_sim_label_add(struct plx_sim_disk *disk)
{
    if (disk->label_count == PLX_SIM_LABELS)
        return NULL;
    if (!disk->labels)
        disk->labels = must(malloc(PLX_SIM_LABELS * sizeof *disk->labels));
    return &disk->labels[disk->label_count++];
}
