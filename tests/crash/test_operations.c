/* test_operations.c - one crash enumeration for each durable operation.
 *
 * An operation runs on a small store with a little history. At every event of the disks while it is
 * under way (each submission, each completion) the world is forked as a power cut would leave it:
 * for every subset of the volatile writes while they are few, else a sample, and with each one
 * torn. Every fork is recovered (now and then with another death in the middle), read back, written
 * to, cut and recovered once more, and checked as a whole (tests/sim/death.c).
 *
 * PLX_OPERATION=name runs one, PLX_SEED=n with one seed; PLX_RUNS=n seeds each (default 20). With
 * PLX_RUNS each day has other seeds, so that a few a day come to many. PLX_FAULT_EVERY=n runs every
 * n-th operation, others each day.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/format/format.h"
#include "sim/parts.h"
#include "suite.h"
#include "fault/every.h"
#include "today.h"

#define BLOCK 8u /* sectors */

struct operation {
    const char *name;
    void (*adapt)(struct plx_world_options *options);                /* may be NULL */
    void (*prepare)(struct plx_world *w, struct plx_sim_disk *disk); /* may be NULL */
    void (*run)(struct plx_world *w, struct plx_sim_disk *disk);
};

static uint64_t total_states, total_events;

/* ---- What most operations begin with ---- */

static void fill(struct plx_world *w, struct plx_sim_disk *disk, uint64_t first, uint64_t blocks)
{
    for (uint64_t b = 0; b < blocks; b++) {
        plx_sim_write(w, disk, first + b * BLOCK, BLOCK, false, false);
        plx_sim_drain(w);
    }
}

static void some_blocks(struct plx_world *w, struct plx_sim_disk *disk)
{
    fill(w, disk, 0, 6);
}

static void blocks_and_snapshot(struct plx_world *w, struct plx_sim_disk *disk)
{
    some_blocks(w, disk);
    plx_sim_snapshot(w, disk);
    plx_sim_drain(w);
}

static void history(struct plx_world *w, struct plx_sim_disk *disk)
{
    blocks_and_snapshot(w, disk);
    fill(w, disk, 2 * BLOCK, 2);
    plx_sim_snapshot(w, disk);
    plx_sim_keyframe(w, disk);
    plx_sim_drain(w);
    fill(w, disk, 3 * BLOCK, 3);
    plx_sim_label(w, disk, false);
    plx_sim_drain(w);
}

/* Blocks that are overwritten in place the next time, in a tree on the store. */
static void written_back(struct plx_world *w, struct plx_sim_disk *disk)
{
    some_blocks(w, disk);
    plx_sim_keyframe(w, disk);
    plx_sim_drain(w);
}

/* Blocks that lie backwards. */
static void scattered(struct plx_world *w, struct plx_sim_disk *disk)
{
    for (uint64_t b = 6; b-- > 0;)
        fill(w, disk, b * BLOCK, 1);
}

static void scattered_in_tree(struct plx_world *w, struct plx_sim_disk *disk)
{
    scattered(w, disk);
    plx_sim_keyframe(w, disk);
    plx_sim_drain(w);
}

static void scattered_partly_shared(struct plx_world *w, struct plx_sim_disk *disk)
{
    scattered_in_tree(w, disk);
    plx_sim_snapshot(w, disk);
    plx_sim_drain(w);
    fill(w, disk, 4 * BLOCK, 1);
    fill(w, disk, 3 * BLOCK, 1);
    fill(w, disk, 0, 1);
}

static void protect(struct plx_world *w, struct plx_sim_disk *disk, enum plx_protection_mode mode)
{
    struct plx_protection protection = {
        .mode = mode, .interval_ns = mode == PLX_PROTECT_INTERVAL ? PLX_INTERVAL_MIN_NS : 0};
    struct plx_fault fault = {0};

    if (plx_vdi_set_protection(disk->vdi, &protection, &fault) && !plx_sim_interrupted(w))
        plx_sim_fail(w, "protection cannot be set: %s", fault.text);
}

static void each_write(struct plx_world *w, struct plx_sim_disk *disk)
{
    written_back(w, disk);
    protect(w, disk, PLX_PROTECT_WRITE);
}

static void each_batch(struct plx_world *w, struct plx_sim_disk *disk)
{
    written_back(w, disk);
    protect(w, disk, PLX_PROTECT_BATCH);
}

static void each_interval(struct plx_world *w, struct plx_sim_disk *disk)
{
    written_back(w, disk);
    protect(w, disk, PLX_PROTECT_INTERVAL);
}

static struct plx_sim_snapshot *newest(struct plx_sim_disk *disk)
{
    return &disk->snapshots[disk->snapshot_count - 1];
}

/* ---- The operations ---- */

static void run_first_write(struct plx_world *w, struct plx_sim_disk *disk)
{
    plx_sim_write(w, disk, 9 * BLOCK, 3 * BLOCK, false, false);
}

static void run_write_in_place(struct plx_world *w, struct plx_sim_disk *disk)
{
    plx_sim_write(w, disk, BLOCK, 2 * BLOCK, false, false);
    plx_sim_drain(w);
    plx_sim_write(w, disk, BLOCK, 2 * BLOCK, false, false); /* nothing to void any more */
}

static void run_write_after_snapshot(struct plx_world *w, struct plx_sim_disk *disk)
{
    plx_sim_write(w, disk, BLOCK, 2 * BLOCK, false, false);
    plx_sim_drain(w);
    plx_sim_write(w, disk, BLOCK, BLOCK, false, true);
}

static void run_sub_block_write(struct plx_world *w, struct plx_sim_disk *disk)
{
    plx_sim_write(w, disk, BLOCK + 3, 2, false, false);
    plx_sim_write(w, disk, 3 * BLOCK - 1, 2 * BLOCK, false, false);
    plx_sim_write(w, disk, 20 * BLOCK + 5, 1, false, false);
}

static void run_overlapping_writes(struct plx_world *w, struct plx_sim_disk *disk)
{
    plx_sim_write(w, disk, BLOCK, 3 * BLOCK, false, false);
    plx_sim_write(w, disk, 2 * BLOCK + 1, 2 * BLOCK, false, false);
    plx_sim_write(w, disk, 0, 2 * BLOCK, true, false);
    plx_sim_write(w, disk, 3 * BLOCK, BLOCK, false, true);
}

static void run_compare_and_write(struct plx_world *w, struct plx_sim_disk *disk)
{
    plx_sim_compare(w, disk, BLOCK, BLOCK);
    plx_sim_compare(w, disk, BLOCK, BLOCK);
}

static void run_unmap(struct plx_world *w, struct plx_sim_disk *disk)
{
    plx_sim_unmap(w, disk, BLOCK, 3 * BLOCK);
    plx_sim_drain(w);
    plx_sim_write(w, disk, 2 * BLOCK, BLOCK, false, false);
    plx_sim_unmap(w, disk, 0, disk->size / PLX_SECTOR);
}

static void run_snapshot(struct plx_world *w, struct plx_sim_disk *disk)
{
    plx_sim_write(w, disk, BLOCK, BLOCK, false, false);
    plx_sim_snapshot(w, disk);
    plx_sim_write(w, disk, BLOCK, BLOCK, false, false);
    plx_sim_snapshot(w, disk);
    plx_sim_write(w, disk, BLOCK, BLOCK, false, false);
}

static void run_protect(struct plx_world *w, struct plx_sim_disk *disk)
{
    plx_sim_write(w, disk, BLOCK, BLOCK, false, false); /* in place */
    protect(w, disk, PLX_PROTECT_BATCH);
    plx_sim_write(w, disk, BLOCK, BLOCK, false, false);
    protect(w, disk, PLX_PROTECT_OFF);
    plx_sim_write(w, disk, BLOCK, BLOCK, false, false);
}

static void run_in_intervals(struct plx_world *w, struct plx_sim_disk *disk)
{
    for (unsigned i = 0; i < 3; i++) {
        disk->host->env.ns += PLX_INTERVAL_MIN_NS;
        plx_sim_write(w, disk, BLOCK, 2 * BLOCK, false, false);
        plx_sim_write(w, disk, 2 * BLOCK, 2 * BLOCK, false, false);
        plx_sim_drain(w);
    }
}

static void run_label(struct plx_world *w, struct plx_sim_disk *disk)
{
    plx_sim_label(w, disk, false);
    plx_sim_drain(w);
    plx_sim_label(w, disk, true);
}

static void run_flush(struct plx_world *w, struct plx_sim_disk *disk)
{
    plx_sim_write(w, disk, BLOCK, BLOCK, false, false);
    plx_sim_write(w, disk, 12 * BLOCK, BLOCK, false, false);
    plx_sim_drain(w);
    plx_sim_flush(w, disk);
    plx_sim_write(w, disk, BLOCK, BLOCK, false, true);
}

static void run_cache_mode(struct plx_world *w, struct plx_sim_disk *disk)
{
    plx_sim_write(w, disk, BLOCK, BLOCK, false, false);
    plx_sim_drain(w);
    plx_sim_set_write_back(w, disk, false);
    plx_sim_write(w, disk, 12 * BLOCK, BLOCK, false, false);
    plx_sim_drain(w);
    plx_sim_set_write_back(w, disk, true);
    plx_sim_write(w, disk, BLOCK, BLOCK, false, false);
}

static void run_move(struct plx_world *w, struct plx_sim_disk *disk)
{
    plx_sim_move(w, disk, 0, 8);
    plx_sim_write(w, disk, 2 * BLOCK + 1, BLOCK, false, false); /* waits, then goes there */
    plx_sim_drain(w);
    plx_sim_write(w, disk, 4 * BLOCK, BLOCK, false, false);
    plx_sim_drain(w);
}

static void run_move_and_snapshot(struct plx_world *w, struct plx_sim_disk *disk)
{
    plx_sim_move(w, disk, 0, 8);
    plx_sim_snapshot(w, disk);
    plx_sim_write(w, disk, 2 * BLOCK, BLOCK, false, false);
    plx_sim_drain(w);
}

/* The old places are free, and written by somebody else. */
static void run_move_and_reuse(struct plx_world *w, struct plx_sim_disk *disk)
{
    plx_sim_move(w, disk, 0, 8);
    plx_sim_drain(w);
    plx_sim_keyframe(w, disk);
    plx_sim_drain(w);
    plx_sim_write(w, disk, 20 * BLOCK, 8 * BLOCK, false, false);
    plx_sim_drain(w);
}

static void run_keyframe(struct plx_world *w, struct plx_sim_disk *disk)
{
    plx_sim_keyframe(w, disk);
    plx_sim_write(w, disk, BLOCK, BLOCK, false, false);
    plx_sim_drain(w);
}

static void run_segment_change(struct plx_world *w, struct plx_sim_disk *disk)
{
    for (unsigned i = 0; i < 24; i++) { /* one sector or block of log each */
        plx_sim_write(w, disk, (40 + i) * BLOCK, BLOCK, false, false);
        plx_sim_drain(w);
    }
}

static void run_extent_claim(struct plx_world *w, struct plx_sim_disk *disk)
{
    for (unsigned i = 0; i < 3; i++) { /* more than an extent has */
        plx_sim_write(w, disk, i * 120 * BLOCK, 120 * BLOCK, false, false);
        plx_sim_drain(w);
    }
}

static void run_resize(struct plx_world *w, struct plx_sim_disk *disk)
{
    plx_sim_resize(w, disk, disk->size + 4096 * 5);
    plx_sim_drain(w);
    plx_sim_write(w, disk, disk->size / PLX_SECTOR - BLOCK, BLOCK, false, false);
}

static void run_create(struct plx_world *w, struct plx_sim_disk *disk)
{
    plx_sim_create(w, disk->host, &w->vdis[1], NULL, NULL);
    plx_sim_open(w, disk->host, &w->vdis[1]);
    plx_sim_write(w, &w->vdis[1], 0, BLOCK, false, false);
}

static void run_clone(struct plx_world *w, struct plx_sim_disk *disk)
{
    plx_sim_create(w, disk->host, &w->vdis[1], disk, newest(disk));
    plx_sim_open(w, disk->host, &w->vdis[1]);
    plx_sim_write(w, &w->vdis[1], 2 * BLOCK, BLOCK, false, false);
}

static void clone_made(struct plx_world *w, struct plx_sim_disk *disk)
{
    blocks_and_snapshot(w, disk);
    run_clone(w, disk);
    plx_sim_drain(w);
}

static void run_delete(struct plx_world *w, struct plx_sim_disk *disk)
{
    plx_sim_delete(w, disk);
    plx_sim_write(w, &w->vdis[1], 0, 4 * BLOCK, false, false);
}

/* ---- Common blocks ---- */

/* Two disks that are equal. */
static void twins(struct plx_world *w, struct plx_sim_disk *disk)
{
    struct plx_sim_disk *twin = &w->vdis[1];

    plx_sim_create(w, disk->host, twin, NULL, NULL);
    plx_sim_open(w, disk->host, twin);
    for (uint64_t b = 0; b < 6; b++)
        plx_sim_write_both(w, disk, twin, b * BLOCK, BLOCK);
    plx_sim_drain(w);
}

static void twins_with_history(struct plx_world *w, struct plx_sim_disk *disk)
{
    twins(w, disk);
    plx_sim_keyframe(w, disk);
    plx_sim_drain(w);
    plx_sim_snapshot(w, disk);
    plx_sim_snapshot(w, &w->vdis[1]);
    plx_sim_drain(w);
    plx_sim_write_both(w, disk, &w->vdis[1], BLOCK, BLOCK);
    plx_sim_drain(w);
}

static void run_share(struct plx_world *w, struct plx_sim_disk *disk)
{
    struct plx_sim_disk *twin = &w->vdis[1];

    plx_sim_share(w, disk, 1, twin, 1);
    plx_sim_share(w, disk, 2, twin, 2);
    plx_sim_write(w, disk, 2 * BLOCK + 1, 1, false, false); /* waits, then goes elsewhere */
    plx_sim_drain(w);
    plx_sim_write(w, twin, BLOCK, BLOCK, false, false);
    plx_sim_drain(w);
}

static void run_share_and_keyframes(struct plx_world *w, struct plx_sim_disk *disk)
{
    struct plx_sim_disk *twin = &w->vdis[1];

    plx_sim_share(w, disk, 1, twin, 1);
    plx_sim_snapshot(w, twin);
    plx_sim_drain(w);
    plx_sim_keyframe(w, disk);
    plx_sim_keyframe(w, twin);
    plx_sim_write(w, disk, BLOCK, BLOCK, false, false);
    plx_sim_drain(w);
}

static void twins_sharing(struct plx_world *w, struct plx_sim_disk *disk)
{
    struct plx_sim_disk *twin = &w->vdis[1];

    twins(w, disk);
    for (uint64_t b = 0; b < 4; b++)
        plx_sim_share(w, disk, b, twin, b);
    plx_sim_drain(w);
    plx_sim_write(w, disk, 0, BLOCK, false, false);
    plx_sim_write(w, twin, 0, 2 * BLOCK, false, false); /* nobody has the first any more */
    plx_sim_keyframe(w, twin);
    plx_sim_drain(w);
}

/* What comes back is written by the other disk, which has what was common to both. */
static void run_delete_and_collect(struct plx_world *w, struct plx_sim_disk *disk)
{
    struct plx_sim_disk *twin = &w->vdis[1];

    plx_sim_delete(w, disk);
    plx_sim_drain(w);
    if (plx_sim_interrupted(w))
        return;
    plx_sim_collect(w, twin->host, NULL);
    plx_sim_write(w, twin, 8 * BLOCK, 8 * BLOCK, false, false);
    plx_sim_keyframe(w, twin);
    plx_sim_drain(w);
}

/* ---- Collections ---- */

/* A clone, its clone, and the disk between the two gone, with blocks of its own. */
static void inner_deleted(struct plx_world *w, struct plx_sim_disk *disk)
{
    struct plx_sim_disk *inner = &w->vdis[1], *outer = &w->vdis[2];

    clone_made(w, disk);
    if (plx_sim_interrupted(w))
        return;
    fill(w, inner, 0, 3);
    plx_sim_snapshot(w, inner);
    plx_sim_drain(w);
    plx_sim_create(w, inner->host, outer, inner, &inner->snapshots[inner->snapshot_count - 1]);
    if (!plx_sim_interrupted(w))
        plx_sim_open(w, disk->host, outer);
    fill(w, inner, 4 * BLOCK, 2);
    plx_sim_delete(w, inner);
}

/* And the one that all of it came from; what they had lies in extents of nobody. */
static void family_of_one(struct plx_world *w, struct plx_sim_disk *disk)
{
    inner_deleted(w, disk);
    plx_sim_delete(w, disk);
    plx_sim_restart(w, &w->hosts[0]);
}

static void collect_and_write(struct plx_world *w, struct plx_sim_disk *left,
                              void (*meanwhile)(struct plx_world *w))
{
    plx_sim_collect(w, &w->hosts[0], meanwhile);
    plx_sim_write(w, left, 0, 6 * BLOCK, false, false); /* to what came back */
    plx_sim_keyframe(w, left);
    plx_sim_drain(w);
}

static void run_collection(struct plx_world *w, struct plx_sim_disk *disk)
{
    collect_and_write(w, &w->vdis[2], NULL);
}

static void write_meanwhile(struct plx_world *w)
{
    struct plx_sim_disk *disk = &w->vdis[2];

    if (!disk->vdi || disk->host->dead)
        return;
    plx_sim_write(w, disk, BLOCK * plx_sim_below(w, 8), 2 * BLOCK, false, false);
    if (plx_sim_chance(w, 30))
        plx_sim_snapshot(w, disk);
    if (plx_sim_chance(w, 30))
        plx_sim_keyframe(w, disk);
}

static void run_collection_beside_writes(struct plx_world *w, struct plx_sim_disk *disk)
{
    write_meanwhile(w);
    collect_and_write(w, &w->vdis[2], write_meanwhile);
}

static void run_open_close(struct plx_world *w, struct plx_sim_disk *disk)
{
    struct plx_sim_host *host = disk->host;

    plx_sim_close(w, disk);
    plx_sim_open(w, host, disk);
    plx_sim_write(w, disk, BLOCK, BLOCK, false, false);
    plx_sim_drain(w);
    plx_sim_close(w, disk);
}

/* Their key frames go side by side, and share flushes. */
static void run_close_together(struct plx_world *w, struct plx_sim_disk *disk)
{
    for (unsigned i = 0; i < w->options.vdis; i++)
        if (w->vdis[i].vdi)
            plx_sim_write(w, &w->vdis[i], BLOCK * i, 2 * BLOCK, false, false);
    plx_sim_drain(w);
    for (unsigned i = 0; i < w->options.vdis; i++)
        if (w->vdis[i].vdi && !w->vdis[i].host->dead && !plx_sim_interrupted(w))
            plx_vdi_begin_close(w->vdis[i].vdi);
    for (unsigned i = 0; i < w->options.vdis; i++)
        if (w->vdis[i].vdi)
            plx_sim_close(w, &w->vdis[i]);
}

static void run_restart(struct plx_world *w, struct plx_sim_disk *disk)
{
    plx_sim_restart(w, disk->host);
    plx_sim_write(w, disk, BLOCK, BLOCK, false, false);
}

/* A crash in the middle of writes; what is enumerated is what follows. */
static void run_recovery(struct plx_world *w, struct plx_sim_disk *disk)
{
    w->forks_on = false;
    for (unsigned i = 0; i < 5; i++)
        plx_sim_write(w, disk, (i + 1) * BLOCK, 2 * BLOCK, false, false);
    plx_sim_snapshot(w, disk);
    for (unsigned i = 0; i < 3; i++)
        plx_sim_turn(w);
    plx_simpower_cut(&w->power);
    w->forks_on = true;
    plx_sim_recover(w);
}

/* A host dies beside another one that goes on and recovers its disk. */
static void run_takeover(struct plx_world *w, struct plx_sim_disk *disk)
{
    plx_sim_create(w, &w->hosts[1], &w->vdis[1], NULL, NULL);
    plx_sim_open(w, &w->hosts[1], &w->vdis[1]);
    plx_sim_write(w, disk, BLOCK, 3 * BLOCK, false, false);
    plx_sim_write(w, &w->vdis[1], 0, 4 * BLOCK, false, false);
    for (unsigned i = 0; i < 2; i++)
        plx_sim_turn(w);
    plx_sim_kill(w, &w->hosts[0], plx_sim_chance(w, 50));
    w->meanwhile = 20;
    plx_sim_recover(w);
    w->meanwhile = 0;
}

static void long_history(struct plx_world *w, struct plx_sim_disk *disk)
{
    for (unsigned i = 0; i < 4; i++) {
        blocks_and_snapshot(w, disk);
        fill(w, disk, 2 * BLOCK, i);
        plx_sim_snapshot(w, disk);
        plx_sim_keyframe(w, disk);
        plx_sim_drain(w);
    }
}

static void run_forget(struct plx_world *w, struct plx_sim_disk *disk)
{
    plx_sim_write(w, disk, BLOCK, 2 * BLOCK, false, false);
    plx_sim_thin(w, disk, &(struct plx_thin){.upto = 6});
    plx_sim_write(w, disk, 0, 3 * BLOCK, false, false);
}

/* One in the middle, then all but a few: the log is rewritten, and what was rewritten is. */
static void run_thin(struct plx_world *w, struct plx_sim_disk *disk)
{
    plx_sim_write(w, disk, BLOCK, 2 * BLOCK, false, false);
    plx_sim_thin(w, disk, &(struct plx_thin){.after = 3, .upto = 4});
    plx_sim_write(w, disk, 0, 3 * BLOCK, false, false);
    w->meanwhile = 3;
    plx_sim_thin(w, disk, &(struct plx_thin){.after = 2, .upto = 7});
    w->meanwhile = 0;
}

/* To the oldest instant and on from there, then back to where it came from. Requests come
 * meanwhile. */
static void run_rewind(struct plx_world *w, struct plx_sim_disk *disk)
{
    uint64_t before;

    plx_sim_write(w, disk, BLOCK, 2 * BLOCK, false, false);
    w->meanwhile = 3;
    plx_sim_rewind(w, disk, &disk->snapshots[0]);
    w->meanwhile = 0;
    before = disk->snapshot_count - 1;
    plx_sim_write(w, disk, BLOCK, BLOCK, false, false);
    plx_sim_snapshot(w, disk);
    plx_sim_drain(w);
    plx_sim_rewind(w, disk, &disk->snapshots[before]);
    plx_sim_write(w, disk, 2 * BLOCK, BLOCK, false, false);
}

/* A rewind, and a snapshot since. */
static void rewound(struct plx_world *w, struct plx_sim_disk *disk)
{
    blocks_and_snapshot(w, disk);
    fill(w, disk, 2 * BLOCK, 3);
    plx_sim_snapshot(w, disk);
    plx_sim_keyframe(w, disk);
    plx_sim_drain(w);
    fill(w, disk, 3 * BLOCK, 3);
    plx_sim_rewind(w, disk, &disk->snapshots[0]);
    fill(w, disk, 4 * BLOCK, 2);
    plx_sim_snapshot(w, disk);
    plx_sim_drain(w);
}

/* All before the rewind goes, and what is left of it is swept and written to. */
static void run_begin_with_rewind(struct plx_world *w, struct plx_sim_disk *disk)
{
    uint64_t past = w->result.rewinds_past, newest;

    newest = disk->snapshots[disk->snapshot_count - 1].seq;
    plx_sim_write(w, disk, BLOCK, 2 * BLOCK, false, false);
    w->meanwhile = 3;
    for (unsigned i = 0; i < 3; i++)
        plx_sim_thin(w, disk, &(struct plx_thin){.upto = newest});
    w->meanwhile = 0;
    /* Unless a label came meanwhile, which keeps what is before the rewind. */
    if (w->result.rewinds_past == past && !disk->label_count)
        plx_sim_fail(w, "history does not begin with the rewind");
    plx_sim_drain(w);
    collect_and_write(w, disk, NULL);
}

/* Header pages that were not zeroed would be believed, or called damaged. */
static void litter(struct plx_simdisk *disk, uint64_t from, uint64_t bytes)
{
    uint8_t junk[2 * 4096];

    memset(junk, 0x5a, sizeof junk);
    for (uint64_t at = from; at < from + bytes; at += 1u << 20)
        plx_simdisk_poke(disk, at, junk, sizeof junk);
}

/* The extents that nobody has yet go to nobody: what comes now is written to new ones. */
static void use_new_extents(struct plx_world *w)
{
    for (uint64_t e = 0; e < w->registry.count; e++)
        if (!w->registry.extents[e].used)
            w->registry.extents[e].system = true;
}

static void volume_larger(struct plx_world *w, struct plx_sim_disk *disk)
{
    history(w, disk);
    plx_simdisk_resize(w->power.disks[0], w->options.volume_bytes + (3u << 20) + 4096);
    litter(w->power.disks[0], w->options.volume_bytes, 3u << 20);
    w->growing = PLX_SIM_GROWS_VOLUME;
    w->growing_to = w->registry.count + 3;
    use_new_extents(w);
}

static void volume_there(struct plx_world *w, struct plx_sim_disk *disk)
{
    struct plx_simdisk *further;

    history(w, disk);
    further = plx_sim_new_disk(w);
    litter(further, 1u << 20, w->options.volume_bytes - (2u << 20));
    w->growing = PLX_SIM_GROWS_BY_ANOTHER;
    w->growing_to = w->registry.count + w->options.volume_bytes / w->options.extent_bytes;
    use_new_extents(w);
}

static void run_grow(struct plx_world *w, struct plx_sim_disk *disk)
{
    uint64_t before = w->registry.count, used = 0;

    plx_sim_write(w, disk, BLOCK, 2 * BLOCK, false, false);
    plx_sim_grow(w);
    w->options.fork_every = 8;
    for (unsigned i = 0; i < 6; i++) { /* more than two extents have */
        plx_sim_write(w, disk, i * 120 * BLOCK, 120 * BLOCK, false, false);
        plx_sim_drain(w);
    }
    for (uint64_t e = before; e < w->registry.count; e++)
        used += w->registry.extents[e].used;
    if (!used)
        plx_sim_fail(w, "nothing was written to the new extents");
}

static bool is_stable(const struct plx_world *w, uint64_t block)
{
    uint8_t seen[4096], stable[4096];

    plx_simdisk_peek(w->power.disks[0], block * sizeof seen, seen, sizeof seen);
    plx_simdisk_peek_stable(w->power.disks[0], block * sizeof stable, stable, sizeof stable);
    return memcmp(seen, stable, sizeof seen) == 0;
}

/* Of two slots one is what it seems at any time, also when a flush has dropped the other one
 * (VDI-1; EXTENT-2). */
static void on_event_of_slots(void *world)
{
    struct plx_world *w = world;
    uint64_t blocks = w->options.extent_bytes / 4096, record = PLX_VDI_TABLE_BLOCK;

    plx_sim_on_event(w);
    if (w->forking || w->result.failed)
        return;
    if (!is_stable(w, record) && !is_stable(w, record + 1))
        plx_sim_fail(w, "neither slot of the record is stable");
    for (uint64_t e = 1; e < w->registry.count; e++)
        for (uint64_t at = e * blocks; at < e * blocks + 2 * plx_extent_pages(blocks); at += 2)
            if (!is_stable(w, at) && !is_stable(w, at + 1))
                plx_sim_fail(w, "neither slot of a page of extent %llu is stable",
                             (unsigned long long)e);
}

/* A flush fails and drops what it was to cover, that of data and log, of bitmaps or of a record. */
static void lose_a_flush(struct plx_world *w, struct plx_sim_disk *disk)
{
    w->power.on_event = on_event_of_slots;
    plx_simdisk_drop_flush(w->power.disks[0], 1 + plx_sim_below(w, 8));
    plx_sim_write(w, disk, BLOCK, 2 * BLOCK, false, false);
    plx_sim_write(w, disk, 9 * BLOCK, 3 * BLOCK, false, false);
    plx_sim_drain(w);
    plx_sim_snapshot(w, disk);
    plx_sim_keyframe(w, disk);
    plx_sim_drain(w);
    plx_sim_verify_lists(w, disk); /* what it tells of a disk that stopped need not last */
    plx_sim_fork_now(w);
}

static void run_open_after_drop(struct plx_world *w, struct plx_sim_disk *disk)
{
    lose_a_flush(w, disk);
    plx_sim_close(w, disk);
    plx_sim_revive(w);
    if (disk->vdi && !w->result.failed)
        fill(w, disk, 3 * BLOCK, 2);
}

static void run_adopt_after_drop(struct plx_world *w, struct plx_sim_disk *disk)
{
    lose_a_flush(w, disk);
    plx_sim_kill(w, disk->host, false);
    plx_sim_recover(w);
    plx_sim_revive(w);
    if (disk->vdi && !w->result.failed)
        fill(w, disk, 3 * BLOCK, 2);
}

/* The flush of the record that says so, behind that of data and log and that of bitmaps. */
static void run_thin_and_drop(struct plx_world *w, struct plx_sim_disk *disk)
{
    plx_simdisk_drop_flush(w->power.disks[0], 3);
    plx_sim_write(w, disk, BLOCK, 2 * BLOCK, false, false);
    plx_sim_thin(w, disk, &(struct plx_thin){.upto = 6});
    plx_sim_drain(w);
    plx_sim_verify_lists(w, disk);
    plx_sim_fork_now(w);
    plx_sim_revive(w);
    if (disk->vdi && !w->result.failed)
        fill(w, disk, 3 * BLOCK, 2);
}

/* ---- Options ---- */

static void in_write_back(struct plx_world_options *options)
{
    options->write_back = options->volatile_cache = true;
}

/* Many events. */
static void sparsely(struct plx_world_options *options)
{
    options->fork_every = 5;
}

static void sparsely_in_write_back(struct plx_world_options *options)
{
    in_write_back(options);
    sparsely(options);
}

static void in_copy(struct plx_world_options *options)
{
    options->copy = true;
}

static void with_big_disk(struct plx_world_options *options)
{
    options->vdi_bytes = 4u << 20;
    options->fork_every = 3;
    options->forks = 6;
}

static void with_sharing(struct plx_world_options *options)
{
    options->vdis = 2;
    options->share_weight = 20;
}

static void with_sharing_in_write_back(struct plx_world_options *options)
{
    with_sharing(options);
    in_write_back(options);
}

static void with_two_disks(struct plx_world_options *options)
{
    options->vdis = 2;
}

static void with_three_disks(struct plx_world_options *options)
{
    options->vdis = 3;
}

static void with_two_hosts(struct plx_world_options *options)
{
    options->vdis = options->hosts = 2;
}

static void dropping(struct plx_world_options *options)
{
    options->volatile_cache = true;
    options->drops = 1;
    options->fork_every = 2;
    options->forks = 24;
}

static void dropping_in_write_back(struct plx_world_options *options)
{
    in_write_back(options);
    dropping(options);
}

static void growing(struct plx_world_options *options)
{
    options->vdi_bytes = 4u << 20;
    options->forks = 8;
}

static void growing_of_two(struct plx_world_options *options)
{
    growing(options);
    options->volumes = 2;
}

static const struct operation operations[] = {
    {"first write", NULL, NULL, run_first_write},
    {"overwrite in place", NULL, written_back, run_write_in_place},
    {"overwrite in place, write-back", in_write_back, written_back, run_write_in_place},
    {"overwrite of what is only in the log", NULL, some_blocks, run_write_in_place},
    {"overwrite=copy", in_copy, written_back, run_write_in_place},
    {"write after a snapshot", NULL, blocks_and_snapshot, run_write_after_snapshot},
    {"sub-block writes", NULL, written_back, run_sub_block_write},
    {"overlapping writes", NULL, written_back, run_overlapping_writes},
    {"overlapping writes, write-back", in_write_back, history, run_overlapping_writes},
    {"compare and write", NULL, some_blocks, run_compare_and_write},
    {"unmap", NULL, history, run_unmap},
    {"snapshot", NULL, written_back, run_snapshot},
    {"snapshot, write-back", in_write_back, written_back, run_snapshot},
    {"protection set and unset", NULL, written_back, run_protect},
    {"writes, each an instant", NULL, each_write, run_overlapping_writes},
    {"unmaps, each an instant", NULL, each_write, run_unmap},
    {"batches, each an instant", NULL, each_batch, run_overlapping_writes},
    {"writes with an interval", NULL, each_interval, run_in_intervals},
    {"close and open, with an interval", NULL, each_interval, run_open_close},
    {"label", NULL, history, run_label},
    {"letting old snapshots go", NULL, long_history, run_forget},
    {"letting snapshots go in the middle", NULL, long_history, run_thin},
    {"rewind", NULL, history, run_rewind},
    {"rewind, write-back", in_write_back, history, run_rewind},
    {"rewind, each batch an instant", NULL, each_batch, run_rewind},
    {"rewind, with an interval", NULL, each_interval, run_rewind},
    {"history begins with a rewind", sparsely, rewound, run_begin_with_rewind},
    {"history begins with a rewind, write-back", sparsely_in_write_back, rewound,
     run_begin_with_rewind},
    {"flush", in_write_back, written_back, run_flush},
    {"cache mode", in_write_back, written_back, run_cache_mode},
    {"move", NULL, scattered_in_tree, run_move},
    {"move, write-back", in_write_back, scattered_in_tree, run_move},
    {"move of what is only in the log", NULL, scattered, run_move},
    {"move between what is shared", NULL, scattered_partly_shared, run_move},
    {"move and a snapshot", NULL, scattered_in_tree, run_move_and_snapshot},
    {"move, and the old places are used again", NULL, scattered_in_tree, run_move_and_reuse},
    {"blocks become common", with_sharing, twins, run_share},
    {"blocks become common, write-back", with_sharing_in_write_back, twins, run_share},
    {"blocks that snapshots see become common", with_sharing, twins_with_history, run_share},
    {"common blocks and key frames", with_sharing, twins_with_history, run_share_and_keyframes},
    {"common blocks and a collection", with_sharing, twins_sharing, run_delete_and_collect},
    {"key frame", NULL, some_blocks, run_keyframe},
    {"key frame, write-back", in_write_back, some_blocks, run_keyframe},
    {"key frame after snapshots", NULL, history, run_keyframe},
    {"log segment change", NULL, NULL, run_segment_change},
    {"extent claim", with_big_disk, NULL, run_extent_claim},
    {"resize", NULL, history, run_resize},
    {"create", with_two_disks, some_blocks, run_create},
    {"clone", with_two_disks, blocks_and_snapshot, run_clone},
    {"delete of a parent", with_two_disks, clone_made, run_delete},
    {"collection of an inner disk", with_three_disks, inner_deleted, run_collection},
    {"collection of a parent", with_three_disks, family_of_one, run_collection},
    {"collection beside writes", with_three_disks, family_of_one, run_collection_beside_writes},
    {"close and open", NULL, history, run_open_close},
    {"close together", NULL, history, run_close_together},
    {"a host leaves", NULL, history, run_restart},
    {"recovery", NULL, history, run_recovery},
    {"recovery, write-back", in_write_back, history, run_recovery},
    {"takeover beside a live host", with_two_hosts, history, run_takeover},
    {"the last volume becomes larger", growing, volume_larger, run_grow},
    {"an inner volume becomes larger", growing_of_two, volume_larger, run_grow},
    {"a further volume", growing, volume_there, run_grow},
    {"a further volume of two", growing_of_two, volume_there, run_grow},
    {"opening after a flush that dropped", dropping, history, run_open_after_drop},
    {"opening after a flush that dropped, write-back", dropping_in_write_back, history,
     run_open_after_drop},
    {"adoption after a flush that dropped", dropping, history, run_adopt_after_drop},
    {"adoption after a flush that dropped, write-back", dropping_in_write_back, history,
     run_adopt_after_drop},
    {"letting snapshots go, and a flush that drops", dropping, long_history, run_thin_and_drop},
};

/* ---- One enumeration ---- */

static void options_for(const struct operation *operation, uint64_t seed,
                        struct plx_world_options *ret)
{
    plx_world_options_states(seed, ret);
    ret->hosts = 1;
    ret->vdis = 1;
    ret->vdi_bytes = 256u << 10;
    ret->block_size = 512;
    ret->tear_bytes = seed % 3 ? 0 : 4096;
    ret->volatile_cache = seed % 4 != 0;
    ret->write_back = ret->copy = ret->toggle_cache = false;
    ret->drops = 0;
    ret->share_weight = 0;
    ret->sector_size = 512;
    ret->in_flight = 8;
    ret->keyframe_mappings = 1000; /* only when asked for */
    ret->fork_every = 1;
    ret->forks = 128;
    if (operation->adapt)
        operation->adapt(ret);
}

static uint64_t enumerate(const struct operation *operation, uint64_t seed)
{
    struct plx_world_options options;
    struct plx_world_result result;
    struct plx_sim_disk *disk;
    struct plx_world *w;
    uint64_t begun;

    options_for(operation, seed, &options);
    options.trace = getenv("PLX_TRACE") != NULL;
    w = plx_sim_new(&options);
    disk = &w->vdis[0];
    if (!w->result.failed && operation->prepare)
        operation->prepare(w, disk);
    begun = w->power.events;
    w->forks_on = true;
    if (!w->result.failed)
        operation->run(w, disk);
    if (!w->result.failed)
        plx_sim_drain(w);
    if (!w->result.failed)
        plx_sim_fork_now(w); /* all acknowledged */
    w->forks_on = false;
    total_events += w->power.events - begun;
    if (!w->result.failed)
        plx_sim_finish(w, 20);
    plx_sim_free(w, &result);
    if (result.failed)
        printf("\n  %s, seed %llu: %s\n", operation->name, (unsigned long long)seed,
               result.failure);
    CU_ASSERT(!result.failed);
    CU_ASSERT(result.states > 0);
    return result.states;
}

static void test_operations(void)
{
    const char *name = getenv("PLX_OPERATION"), *seed = getenv("PLX_SEED"),
               *count = getenv("PLX_RUNS");
    uint64_t states, runs = count ? strtoull(count, NULL, 0) : 20;
    uint64_t first = count ? plx_today() * runs : 0;
    unsigned offset, every = fault_every(&offset);

    for (size_t i = name ? 0 : offset; i < sizeof operations / sizeof *operations;
         i += name ? 1 : every) {
        if (name && strcmp(name, operations[i].name))
            continue;
        states = 0;
        if (seed)
            states = enumerate(&operations[i], strtoull(seed, NULL, 0));
        for (uint64_t s = 0; s < runs && !seed; s++)
            states += enumerate(&operations[i], 1000 * i + (first + s) % 1000);
        printf("\n    %s: %llu", operations[i].name, (unsigned long long)states);
        total_states += states;
    }
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"every fate at every event", test_operations},
    };
    int failed = SUITE_RUN("crash", tests);

    printf("%llu crash states at %llu events of %zu operations\n", (unsigned long long)total_states,
           (unsigned long long)total_events, sizeof operations / sizeof *operations);
    return failed;
}
