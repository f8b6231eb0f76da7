/* test_fault.c - the fault loop: in every operation of the engine, the k-th allocation or I/O
 * fails, for k = 1, 2, 3 ... until the operation gets through without meeting the fault.
 *
 * After each fault: what failed said so, and everything that was acknowledged is there; the disks
 * go on, or are opened again and go on; the checker finds nothing; a power cut (in every other
 * case) changes nothing of that.
 *
 * PLX_FAULT=OPERATION:KIND:K runs one case, PLX_FAULT=OPERATION all of one operation.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/disk/vdi.h" /* to stop right before the end of a log segment */
#include "fault/alloc.h"
#include "fault/bench.h"
#include "fault/every.h"
#include "suite.h"

#define K_MAX 4000u
#define HEALS_IN 5000u  /* turns */
#define FAILURES_MAX 8u /* of one operation; then the next one's turn */

/* ---- What is there before ---- */

static void must(struct bench *b, int error, const char *what)
{
    if (!error)
        return;
    printf("\n    prepare: %s: %s: %s\n", what, plx_error_name(error), b->fault.text);
    abort();
}

#define MUST(call) must(b, call, #call)

static void open_both(struct bench *b)
{
    MUST(bench_open_store(b, 1));
    MUST(bench_open(b, 0, false));
    MUST(bench_open(b, 1, false));
}

/* Disk 0: a snapshot, what it shares, what came after. */
static void write_history(struct bench *b)
{
    MUST(bench_write(b, 0, 0, 256 * KIB));
    MUST(bench_snapshot(b, 0));
    MUST(bench_write(b, 0, 64 * KIB, 64 * KIB));
    MUST(bench_write(b, 0, 256 * KIB, 64 * KIB));
    MUST(bench_unmap(b, 0, 192 * KIB, 32 * KIB));
    MUST(bench_write(b, 1, 0, 64 * KIB));
}

static void nothing(struct bench *b)
{
}

static void history(struct bench *b)
{
    open_both(b);
    write_history(b);
}

static void write_back_history(struct bench *b)
{
    b->disks[0].write_back = true;
    history(b);
}

static void base_history(struct bench *b) /* in the tree, and then more */
{
    history(b);
    MUST(bench_keyframe(b, 0));
    MUST(bench_write(b, 0, 300 * KIB, 64 * KIB));
    MUST(bench_write(b, 0, 100 * KIB, 8 * KIB));
}

static void closed_disks(struct bench *b)
{
    history(b);
    MUST(bench_close(b, 0));
    MUST(bench_close(b, 1));
}

static void closed_store(struct bench *b)
{
    closed_disks(b);
    MUST(bench_release(b));
    MUST(bench_close_store(b));
}

#define LARGER_BY 3u /* extents */

static void larger_disk(struct bench *b)
{
    closed_store(b);
    plx_simdisk_resize(b->disk, (b->registry.count + LARGER_BY) * BENCH_EXTENT);
    MUST(bench_open_store(b, 2));
}

static void open_cold(struct bench *b) /* nothing is cached, no extent is owned */
{
    MUST(bench_open_store(b, 2));
    MUST(bench_open(b, 0, false));
    MUST(bench_open(b, 1, false));
}

static void cold(struct bench *b)
{
    closed_store(b);
    open_cold(b);
}

static void first_closed(struct bench *b)
{
    history(b);
    MUST(bench_close(b, 0));
}

static void first_closed_virgin(struct bench *b)
{
    MUST(bench_open_store(b, 1));
    MUST(bench_open(b, 1, false));
}

static void crashed(struct bench *b)
{
    base_history(b);
    for (unsigned i = 0; i < 40; i++) /* into the next log segment */
        MUST(bench_write(b, 0, 1024 * KIB + i * BLOCK, BLOCK));
    bench_crash(b);
    MUST(bench_open_store(b, 2));
}

static void third_closed(struct bench *b)
{
    history(b);
    MUST(bench_create(b, 2, MIB));
    MUST(bench_open(b, 2, false));
    MUST(bench_write(b, 2, 0, 64 * KIB));
    MUST(bench_close(b, 2));
}

static void garbage(struct bench *b)
{
    third_closed(b);
    MUST(bench_delete(b, 2));
}

/* In extents of nobody. */
static void garbage_of_nobody(struct bench *b)
{
    garbage(b);
    MUST(bench_close(b, 0));
    MUST(bench_close(b, 1));
    MUST(bench_release(b));
}

static void written_twice(struct bench *b) /* its checksum is gone */
{
    history(b);
    MUST(bench_write(b, 0, 256 * KIB, 8 * KIB));
}

static void segment_almost_full(struct bench *b)
{
    const struct plx_log *log;

    history(b);
    log = &b->disks[0].vdi->log;
    for (uint64_t at = 0; log->cursor.pos % BENCH_SEGMENT < BENCH_SEGMENT - BLOCK; at += BLOCK)
        MUST(bench_write(b, 0, 1024 * KIB + at, BLOCK));
}

/* ---- The operations ---- */

static int run_format(struct bench *b)
{
    return bench_format(b, false);
}

static int format_again(struct bench *b)
{
    int error = bench_format(b, true);

    if (!error)
        error = bench_open_store(b, 1);
    if (!error)
        error = bench_create(b, 0, MIB);
    return error ? error : bench_create(b, 1, MIB);
}

static int run_store_open(struct bench *b)
{
    return bench_open_store(b, 2);
}

static int run_create(struct bench *b)
{
    return bench_create(b, 2, MIB);
}

static int create_again(struct bench *b)
{
    int error = b->disks[2].exists == FATE_YES ? 0 : bench_create(b, 2, MIB);

    return error || b->disks[2].vdi ? error : bench_open(b, 2, false);
}

static int run_clone(struct bench *b)
{
    return bench_clone(b, 2, 0, 1);
}

static int clone_again(struct bench *b)
{
    int error = b->disks[2].exists == FATE_YES ? 0 : bench_clone(b, 2, 0, 1);

    return error || b->disks[2].vdi ? error : bench_open(b, 2, false);
}

static int run_open(struct bench *b)
{
    return bench_open(b, 0, false);
}

/* Also what is left to do after it was interrupted. */
static int run_recover(struct bench *b)
{
    int error = bench_adopt(b);

    for (unsigned n = 0; n < 2 && !error; n++)
        if (!b->disks[n].vdi)
            error = bench_open(b, n, true);
    return error;
}

static int run_close(struct bench *b)
{
    return bench_close(b, 0);
}

static int run_delete(struct bench *b)
{
    return bench_delete(b, 2);
}

static int delete_again(struct bench *b)
{
    if (b->disks[2].vdi) {
        int error = bench_close(b, 2);

        if (error)
            return error;
    }
    return b->disks[2].exists == FATE_NO ? 0 : bench_delete(b, 2);
}

static int run_grow(struct bench *b)
{
    struct plx_grown grown;
    int error = plx_store_grow(b->store, &(struct plx_grow){0}, &grown, &b->fault);

    if (!error)
        bench_expect(b, grown.extents == b->registry.count + LARGER_BY, "it grew to %llu extents",
                     (unsigned long long)grown.extents);
    return error;
}

static int run_collect(struct bench *b)
{
    uint64_t blocks;

    return plx_simenv_collect(&b->env, &blocks, &b->fault);
}

/* By then what the first attempt left is swept, and there is nothing more. */
static int collect_again(struct bench *b)
{
    uint64_t blocks = 0;
    int error = run_collect(b);

    if (!error)
        error = plx_simenv_collect(&b->env, &blocks, &b->fault);
    bench_expect(b, error || !blocks, "%" PRIu64 " blocks were left", blocks);
    return error;
}

static int run_usage(struct bench *b)
{
    struct plx_usage usage;
    int error = plx_store_usage(b->store, &(struct plx_usage_options){0}, &usage, &b->fault);

    if (!error)
        plx_usage_done(&usage);
    return error;
}

static int run_release(struct bench *b)
{
    return bench_release(b);
}

static int run_store_close(struct bench *b)
{
    return bench_close_store(b);
}

static void ignore_finding(void *context, const struct plx_finding *finding)
{
}

static int run_check(struct bench *b)
{
    struct plx_check_options options = {.data = true, .finding = ignore_finding};
    struct plx_check_result result;
    int error = bench_open_store(b, 0);

    if (error)
        return error;
    error = plx_store_check(b->store, &options, &result, &b->fault);
    if (!error && result.errors) /* it read on and counted what it could not read */
        error = plx_fault_set(&b->fault, b->plan.kind ? PLX_ERR_IO_READ : PLX_ERR_NOMEM,
                              "%" PRIu64 " errors", result.errors);
    bench_close_store(b);
    b->env.instance = 1;
    return error;
}

static int run_write_first(struct bench *b)
{
    return bench_write(b, 0, 1024 * KIB, 16 * KIB);
}

static int run_write_shared(struct bench *b)
{
    return bench_write(b, 0, 16 * KIB, 16 * KIB);
}

static int run_write_in_place(struct bench *b)
{
    return bench_write(b, 0, 256 * KIB, 8 * KIB);
}

static int run_write_mixed(struct bench *b) /* in place, shared, unmapped, absent */
{
    return bench_write(b, 0, 120 * KIB, 240 * KIB);
}

static int run_write_sub_block(struct bench *b)
{
    int error = bench_write(b, 0, 256 * KIB + 512, 512);

    if (!error)
        error = bench_write(b, 0, 1024, 1024);
    return error ? error : bench_write(b, 0, 1024 * KIB + 512, 512);
}

static int run_write_unaligned(struct bench *b)
{
    return bench_write(b, 0, 250 * KIB + 512, 20 * KIB);
}

static int run_write_large(struct bench *b)
{
    return bench_write(b, 0, 256 * KIB, 1280 * KIB);
}

static int run_compare_write(struct bench *b)
{
    int error = bench_compare_write(b, 0, 256 * KIB, 4 * KIB);

    return error ? error : bench_compare_write(b, 0, 512, 512);
}

static int compare_write_again(struct bench *b) /* what it compares with is read first */
{
    int error = bench_read(b, 0, 0, 512 * KIB);

    return error ? error : run_compare_write(b);
}

static int run_unmap(struct bench *b)
{
    return bench_unmap(b, 0, 60 * KIB + 512, 210 * KIB);
}

static int run_read(struct bench *b)
{
    return bench_read(b, 0, 512, 512 * KIB);
}

static int run_snapshot(struct bench *b)
{
    int error = bench_write(b, 0, 256 * KIB, 8 * KIB);

    return error ? error : bench_snapshot(b, 0);
}

static int run_label(struct bench *b)
{
    return bench_label(b, 0);
}

static int run_keyframe(struct bench *b)
{
    return bench_keyframe(b, 0);
}

static int run_rewind(struct bench *b)
{
    return bench_rewind(b, 0, 1);
}

static void long_history(struct bench *b) /* of several segments, with key frames */
{
    history(b);
    for (unsigned i = 0; i < 5; i++) {
        MUST(bench_write(b, 0, 300 * KIB + i * 8 * KIB, 24 * KIB));
        MUST(bench_snapshot(b, 0));
        MUST(bench_keyframe(b, 0));
    }
}

static int run_thin(struct bench *b)
{
    return bench_thin(b, 0, b->disks[0].snap_count - 2);
}

/* Of everything that there can be in a log, over segments and key frames; the tree grows. */
static void varied_history(struct bench *b)
{
    history(b);
    for (unsigned i = 0; i < 4; i++) {
        MUST(bench_write(b, 0, 300 * KIB + i * 8 * KIB, 40 * KIB));
        MUST(bench_write(b, 0, 304 * KIB + i * 8 * KIB, 8 * KIB)); /* in place: VOID */
        for (unsigned at = 0; at < 6; at++)
            MUST(bench_write(b, 0, 1024 * KIB + at * 64 * KIB, 8 * KIB));
        MUST(bench_snapshot(b, 0));
        if (i == 1)
            MUST(bench_label(b, 0));
        MUST(bench_unmap(b, 0, 1024 * KIB + i * 16 * KIB, 96 * KIB));
        if (i == 2)
            MUST(bench_resize(b, 0, 3 * MIB));
        if (i == 3) {
            MUST(bench_resize(b, 0, 600ull << 30));
            MUST(bench_write_far(b, 0));
        }
        MUST(bench_snapshot(b, 0));
        if (i % 2)
            MUST(bench_keyframe(b, 0));
    }
    MUST(bench_write(b, 0, 0, 16 * KIB));
    MUST(bench_snapshot(b, 0));
    MUST(bench_keyframe(b, 0));
}

static void make_cold(struct bench *b)
{
    MUST(bench_close(b, 0));
    MUST(bench_close(b, 1));
    MUST(bench_release(b));
    MUST(bench_close_store(b));
    open_cold(b);
}

static void varied_cold(struct bench *b) /* its nodes are read */
{
    varied_history(b);
    make_cold(b);
}

/* What history begins with is overwritten. */
static void begun_cold(struct bench *b)
{
    open_both(b);
    MUST(bench_write(b, 0, 0, 64 * KIB));
    MUST(bench_keyframe(b, 0));
    MUST(bench_snapshot(b, 0));
    MUST(bench_write(b, 0, 0, 8 * KIB));
    MUST(bench_snapshot(b, 0));
    MUST(bench_keyframe(b, 0));
    MUST(bench_write(b, 0, 32 * KIB, 8 * KIB));
    MUST(bench_snapshot(b, 0));
    make_cold(b);
}

/* In the middle the tree grows; what goes begins with an UNMAP of what the tree has not. */
static void grown_cold(struct bench *b)
{
    open_both(b);
    MUST(bench_write(b, 0, 0, 64 * KIB));
    MUST(bench_keyframe(b, 0));
    MUST(bench_snapshot(b, 0));
    MUST(bench_unmap(b, 0, 1024 * KIB, 64 * KIB));
    MUST(bench_write(b, 0, 0, 8 * KIB));
    MUST(bench_resize(b, 0, 600ull << 30));
    MUST(bench_write_far(b, 0));
    MUST(bench_snapshot(b, 0));
    MUST(bench_keyframe(b, 0));
    MUST(bench_unmap(b, 0, 0, 16 * KIB));
    MUST(bench_snapshot(b, 0));
    MUST(bench_write(b, 0, 32 * KIB, 8 * KIB));
    MUST(bench_snapshot(b, 0));
    MUST(bench_keyframe(b, 0));
    make_cold(b);
}

static void varied_clone(struct bench *b) /* what it began with dies, too */
{
    history(b);
    MUST(bench_clone(b, 2, 0, 1));
    MUST(bench_open(b, 2, false));
    for (unsigned i = 0; i < 4; i++) {
        MUST(bench_write(b, 2, i * 32 * KIB, 48 * KIB));
        MUST(bench_snapshot(b, 2));
        MUST(bench_unmap(b, 2, 128 * KIB + i * 16 * KIB, 16 * KIB));
        MUST(bench_snapshot(b, 2));
        MUST(bench_keyframe(b, 2));
    }
}

/* One after the other but for the labelled one, in the middle and then at the old end: the log was
 * rewritten before. */
static int thin_many(struct bench *b, unsigned n)
{
    const struct bench_disk *d = &b->disks[n];
    int error = 0;

    for (unsigned odd = 0; odd < 2; odd++)
        for (uint64_t seq = 2 - odd; seq < d->snap_count && !error; seq += 2)
            if (seq != d->label_seq)
                error = bench_thin(b, n, seq);
    return error;
}

static int run_thin_varied(struct bench *b)
{
    return thin_many(b, 0);
}

static int run_thin_oldest(struct bench *b)
{
    int error = bench_thin(b, 0, 1);

    return error ? error : bench_thin(b, 0, 5);
}

static int run_thin_first(struct bench *b)
{
    return bench_thin(b, 0, 1);
}

static int run_thin_grown(struct bench *b)
{
    int error = bench_thin(b, 0, 2);

    return error ? error : bench_thin(b, 0, 1);
}

static int run_thin_clone(struct bench *b)
{
    return thin_many(b, 2);
}

static void scattered(struct bench *b) /* backwards, partly in the tree, a little of it shared */
{
    history(b);
    for (unsigned i = 40; i-- > 10;)
        MUST(bench_write(b, 0, i * BLOCK, BLOCK));
    MUST(bench_keyframe(b, 0));
    for (unsigned i = 70; i-- > 30;)
        MUST(bench_write(b, 0, i * BLOCK, BLOCK));
}

static void scattered_cold(struct bench *b)
{
    scattered(b);
    make_cold(b);
}

static int run_move(struct bench *b)
{
    return bench_move(b, 0, 1536 * KIB);
}

static void twins(struct bench *b) /* partly in the tree */
{
    MUST(bench_open_store(b, 1));
    MUST(plx_store_allow_common(b->store, &b->fault));
    MUST(bench_open(b, 0, false));
    MUST(bench_open(b, 1, false));
    write_history(b);
    MUST(bench_write(b, 0, 512 * KIB, 32 * KIB));
    MUST(bench_write_again(b, 1, 512 * KIB, 32 * KIB));
    MUST(bench_keyframe(b, 0));
    MUST(bench_write(b, 0, 640 * KIB, 16 * KIB));
    MUST(bench_write_again(b, 1, 640 * KIB, 16 * KIB));
}

static void twins_cold(struct bench *b)
{
    twins(b);
    make_cold(b);
}

static void go_on(void *context)
{
}

static int run_dedup(struct bench *b)
{
    const struct plx_dedup_options options = {.memory = 1, .pause = go_on};
    struct plx_deduped deduped;

    return plx_store_dedup(b->store, &options, &deduped, &b->fault);
}

static int run_segment(struct bench *b)
{
    int error = 0;

    for (unsigned i = 0; i < 9 && !error; i++)
        error = bench_write(b, 0, 1536 * KIB + i * BLOCK, BLOCK);
    return error;
}

static int run_flush(struct bench *b)
{
    int error = bench_write(b, 0, 1024 * KIB, 16 * KIB);

    if (!error)
        error = bench_write(b, 0, 256 * KIB, 16 * KIB);
    return error ? error : bench_flush(b, 0);
}

static int run_resize(struct bench *b)
{
    int error = bench_resize(b, 0, 3 * MIB);

    return error ? error : bench_write(b, 0, 2560 * KIB, 16 * KIB);
}

static int run_resize_levels(struct bench *b) /* 3 to 4 */
{
    int error = bench_resize(b, 0, 600ull << 30);

    if (!error)
        error = bench_write_far(b, 0);
    return error ? error : bench_keyframe(b, 0);
}

static int run_snapshot_read(struct bench *b)
{
    return bench_read_snapshot(b, 0, 1);
}

static int run_list(struct bench *b)
{
    return bench_list(b, 0);
}

static int run_list_labels(struct bench *b)
{
    return bench_list_labels(b, 0);
}

static int run_find(struct bench *b)
{
    return bench_find(b, 0);
}

static int run_changes(struct bench *b)
{
    return bench_changes(b, 0);
}

static int run_diff(struct bench *b)
{
    int error = bench_diff(b, 0, 3);

    return error ? error : bench_diff(b, 0, 7);
}

static int run_map_runs(struct bench *b)
{
    return bench_map_runs(b, 0);
}

/* ---- Disk 0 has a write-back ring ---- */

static void ring_made(struct bench *b, unsigned members)
{
    MUST(bench_open_store(b, 1));
    MUST(plx_store_allow_ring(b->store, &b->fault));
    MUST(bench_ring_create(b, members, false));
    MUST(bench_ring_open(b, false));
    MUST(bench_open(b, 0, false));
    MUST(bench_open(b, 1, false));
    write_history(b);
}

static void ring_allowed(struct bench *b)
{
    MUST(bench_open_store(b, 1));
    MUST(plx_store_allow_ring(b->store, &b->fault));
    MUST(bench_open(b, 0, false));
    MUST(bench_open(b, 1, false));
    write_history(b);
    MUST(bench_close(b, 0));
}

static void ring_off(struct bench *b)
{
    ring_made(b, 1);
}

static void ring_at_work(struct bench *b)
{
    ring_made(b, 1);
    MUST(bench_ring_on(b));
    MUST(bench_write(b, 0, 300 * KIB, 64 * KIB));
}

static void mirror_at_work(struct bench *b)
{
    ring_made(b, 2);
    MUST(bench_ring_on(b));
    MUST(bench_write(b, 0, 300 * KIB, 64 * KIB));
}

/* Records are read back from the ring. */
static void ring_without_memory(struct bench *b)
{
    b->ring.memory = 4 * BLOCK;
    ring_at_work(b);
}

/* The store answers only when nothing else is to be waited for: so what is acknowledged lies on the
 * ring, and is not drained yet. */
static void hold_store(struct bench *b, bool hold)
{
    plx_simdisk_set_patience(b->disk, hold ? 100 : 20);
}

static int burst(struct bench *b, unsigned writes)
{
    int error = 0;

    hold_store(b, true);
    for (unsigned i = 0; i < writes && !error; i++)
        error = bench_write(b, 0, (i % 5) * 100 * KIB, 24 * KIB);
    if (!error)
        error = bench_unmap(b, 0, 60 * KIB + 512, 50 * KIB);
    if (!error)
        error = bench_write(b, 0, 512, KIB);
    if (!error)
        error = bench_compare_write(b, 0, 400 * KIB, 4 * KIB);
    if (!error)
        error = bench_read(b, 0, 0, 512 * KIB);
    if (!error)
        error = bench_flush(b, 0);
    hold_store(b, false);
    return error;
}

static int run_ring_burst(struct bench *b)
{
    int error = burst(b, 4);

    return error ? error : bench_snapshot(b, 0);
}

static int ring_burst_again(struct bench *b) /* what it compares with is read first */
{
    int error = bench_read(b, 0, 0, 512 * KIB);

    return error ? error : run_ring_burst(b);
}

static int run_ring_full(struct bench *b)
{
    return burst(b, 30);
}

/* What goes to the disk itself, behind records and before others. */
static int run_ring_resize(struct bench *b)
{
    int error = burst(b, 3);

    if (!error)
        error = bench_resize(b, 0, 3 * MIB);
    return error ? error : bench_write(b, 0, 100 * KIB, 8 * KIB);
}

static int ring_resize_again(struct bench *b)
{
    int error = bench_read(b, 0, 0, 512 * KIB);

    return error ? error : run_ring_resize(b);
}

static int run_ring_create(struct bench *b)
{
    return bench_ring_create(b, 2, false);
}

static int ring_create_again(struct bench *b)
{
    int error = b->ring.made ? 0 : bench_ring_create(b, 2, true);

    if (!error && b->disks[0].vdi && !b->ring.ringed) /* it was brought back without the ring */
        error = bench_close(b, 0);
    if (!error && !b->ring.ring)
        error = bench_ring_open(b, false);
    if (!error && !b->disks[0].vdi)
        error = bench_open(b, 0, false);
    return error ? error : bench_ring_on(b);
}

static int run_ring_on(struct bench *b)
{
    int error = bench_ring_on(b);

    return error ? error : bench_write(b, 0, 100 * KIB, 8 * KIB);
}

static int run_ring_off(struct bench *b)
{
    int error = burst(b, 4);

    return error ? error : bench_ring_off(b);
}

static int ring_off_again(struct bench *b)
{
    int error = bench_read(b, 0, 0, 512 * KIB);

    if (!error)
        error = bench_ring_on(b);
    return error ? error : run_ring_off(b);
}

/* What was acknowledged lies on the ring, and all is closed. */
static void leave_on_ring(struct bench *b)
{
    MUST(burst(b, 4));
    hold_store(b, true);
    MUST(bench_write(b, 0, 100 * KIB, 64 * KIB));
    MUST(bench_write(b, 0, 600 * KIB, 8 * KIB));
    MUST(bench_close(b, 0));
    hold_store(b, false);
    bench_ring_close(b);
}

static void ring_left(struct bench *b)
{
    ring_at_work(b);
    leave_on_ring(b);
}

static void ring_crashed(struct bench *b)
{
    ring_at_work(b);
    MUST(burst(b, 4));
    hold_store(b, true);
    MUST(bench_write(b, 0, 100 * KIB, 64 * KIB));
    MUST(bench_write(b, 0, 600 * KIB, 8 * KIB));
    bench_crash(b);
    hold_store(b, false);
    MUST(bench_open_store(b, 2));
}

static int run_ring_open(struct bench *b)
{
    int error = b->ring.ring ? 0 : bench_ring_open(b, false);

    return error || b->disks[0].vdi ? error : bench_open(b, 0, false);
}

static int run_ring_recover(struct bench *b)
{
    int error;

    if (b->ring.ring && !b->ring.ringed && plx_ring_sticky(b->ring.ring))
        bench_ring_close(b);
    error = b->ring.ring ? 0 : bench_ring_open(b, false);
    return error ? error : run_recover(b);
}

/* One of two members was away, and records were left on the other one. */
static void ring_of_one(struct bench *b)
{
    mirror_at_work(b);
    leave_on_ring(b);
    b->ring.members = 1;
    MUST(bench_ring_open(b, true));
    MUST(bench_open(b, 0, false));
}

static int run_ring_repair(struct bench *b)
{
    int error = bench_ring_repair(b);

    return error ? error : burst(b, 2);
}

static int ring_repair_again(struct bench *b)
{
    int error = bench_read(b, 0, 0, 512 * KIB);

    return error ? error : run_ring_repair(b);
}

/* The disk has a mark, and its ring nothing that the store lacks. */
static void ring_drained(struct bench *b)
{
    ring_at_work(b);
    bench_settle(b);
    MUST(bench_close(b, 0));
    bench_ring_close(b);
    b->ring.made = false;
}

static int run_ring_discard(struct bench *b)
{
    int error = b->disks[0].vdi ? 0 : bench_open(b, 0, false);

    return error ? error : plx_ringed_discard(b->disks[0].vdi, &b->fault);
}

enum {
    FIRST = 1,     /* `again` comes before the disks are brought back */
    NEIGHBOUR = 2, /* disk 1 is written meanwhile */
    BLANK = 4,     /* the disk is not formatted */
};

static const struct operation {
    const char *name;
    void (*prepare)(struct bench *b);
    int (*run)(struct bench *b);
    int (*again)(struct bench *b); /* must succeed once the fault is gone; may be NULL */
    unsigned flags;
} operations[] = {
    {"format", nothing, run_format, format_again, FIRST | BLANK},
    {"store-open", closed_store, run_store_open, NULL, 0},
    {"extent-fresh", open_both, run_write_first, run_write_first, NEIGHBOUR},
    {"extent-known", cold, run_write_first, run_write_first, NEIGHBOUR},
    {"create", history, run_create, create_again, NEIGHBOUR},
    {"clone", base_history, run_clone, clone_again, NEIGHBOUR},
    {"open-virgin", first_closed_virgin, run_open, NULL, NEIGHBOUR},
    {"open", first_closed, run_open, NULL, NEIGHBOUR},
    {"recover", crashed, run_recover, run_recover, FIRST},
    {"write-first", history, run_write_first, run_write_first, NEIGHBOUR},
    {"write-shared", base_history, run_write_shared, run_write_shared, NEIGHBOUR},
    {"write-in-place", history, run_write_in_place, run_write_in_place, NEIGHBOUR},
    {"write-in-place-again", written_twice, run_write_in_place, run_write_in_place, NEIGHBOUR},
    {"write-mixed", base_history, run_write_mixed, run_write_mixed, NEIGHBOUR},
    {"write-sub-block", base_history, run_write_sub_block, run_write_sub_block, 0},
    {"write-unaligned", cold, run_write_unaligned, run_write_unaligned, 0},
    {"write-large", history, run_write_large, run_write_large, NEIGHBOUR},
    {"compare-write", base_history, run_compare_write, compare_write_again, 0},
    {"unmap", base_history, run_unmap, run_unmap, NEIGHBOUR},
    {"read", cold, run_read, run_read, 0},
    {"snapshot", history, run_snapshot, run_snapshot, NEIGHBOUR},
    {"label", history, run_label, run_label, 0},
    {"keyframe", base_history, run_keyframe, run_keyframe, NEIGHBOUR},
    {"rewind", base_history, run_rewind, run_rewind, NEIGHBOUR},
    {"thin", long_history, run_thin, NULL, NEIGHBOUR},
    {"thin-varied", varied_history, run_thin_varied, NULL, 0},
    {"thin-cold", varied_cold, run_thin_oldest, NULL, 0},
    {"thin-first", begun_cold, run_thin_first, NULL, 0},
    {"thin-grown", grown_cold, run_thin_grown, NULL, 0},
    {"thin-clone", varied_clone, run_thin_clone, NULL, 0},
    {"find", varied_history, run_find, run_find, 0},
    {"changes", varied_history, run_changes, run_changes, 0},
    {"diff", varied_history, run_diff, run_diff, 0},
    {"move", scattered, run_move, run_move, NEIGHBOUR},
    {"move-cold", scattered_cold, run_move, run_move, 0},
    {"dedup", twins, run_dedup, run_dedup, NEIGHBOUR},
    {"dedup-cold", twins_cold, run_dedup, run_dedup, 0},
    {"rewind-write-back", write_back_history, run_rewind, run_rewind, 0},
    {"segment", segment_almost_full, run_segment, NULL, 0},
    {"flush", write_back_history, run_flush, run_flush, NEIGHBOUR},
    {"snapshot-write-back", write_back_history, run_snapshot, run_snapshot, 0},
    {"keyframe-write-back", write_back_history, run_keyframe, run_keyframe, 0},
    {"resize", history, run_resize, run_resize, 0},
    {"resize-levels", base_history, run_resize_levels, run_resize_levels, 0},
    {"snapshot-read", cold, run_snapshot_read, run_snapshot_read, 0},
    {"snapshot-list", cold, run_list, run_list, 0},
    {"label-list", history, run_list_labels, run_list_labels, 0},
    {"map-runs", cold, run_map_runs, run_map_runs, 0},
    {"close", history, run_close, NULL, 0},
    {"delete", third_closed, run_delete, delete_again, 0},
    {"extent-release", closed_disks, run_release, NULL, 0},
    {"store-close", closed_disks, run_store_close, NULL, 0},
    {"check", closed_store, run_check, run_check, FIRST},
    {"grow", larger_disk, run_grow, run_grow, FIRST},
    {"collect", garbage, run_collect, collect_again, 0},
    {"collect-of-nobody", garbage_of_nobody, run_collect, collect_again, 0},
    {"usage", garbage, run_usage, run_usage, 0},
    {"usage-of-nobody", garbage_of_nobody, run_usage, run_usage, 0},
    {"ring-create", ring_allowed, run_ring_create, ring_create_again, 0},
    {"ring-on", ring_off, run_ring_on, run_ring_on, NEIGHBOUR},
    {"ring-burst", ring_at_work, run_ring_burst, ring_burst_again, NEIGHBOUR},
    {"ring-read-back", ring_without_memory, run_ring_burst, ring_burst_again, 0},
    {"ring-full", ring_at_work, run_ring_full, ring_burst_again, 0},
    {"ring-resize", ring_at_work, run_ring_resize, ring_resize_again, 0},
    {"ring-off", ring_at_work, run_ring_off, ring_off_again, 0},
    {"ring-open", ring_left, run_ring_open, NULL, 0},
    {"ring-recover", ring_crashed, run_ring_recover, run_ring_recover, FIRST},
    {"ring-mirror", mirror_at_work, run_ring_burst, ring_burst_again, 0},
    {"ring-repair", ring_of_one, run_ring_repair, ring_repair_again, 0},
    {"ring-discard", ring_drained, run_ring_discard, run_ring_discard, 0},
};
#define OPERATIONS (sizeof operations / sizeof operations[0])

static const struct kind {
    const char *name;
    enum fault_io io;
    bool alloc, all; /* all: every later one fails as well */
} kinds[] = {
    {"alloc", FAULT_IO_NONE, true, false}, {"nomem", FAULT_IO_NONE, true, true},
    {"io", FAULT_IO_ONCE, false, false},   {"torn", FAULT_IO_TORN, false, false},
    {"lost", FAULT_IO_LOST, false, false}, {"flush", FAULT_IO_FLUSH, false, false},
    {"drop", FAULT_IO_DROP, false, false},
};
#define KINDS (sizeof kinds / sizeof kinds[0])

/* ---- One case ---- */

static char current[96]; /* for PLX_FAULT */

static void on_abort(int signal_number)
{
    static const char text[] = "\n  aborted in PLX_FAULT=";

    if (write(STDOUT_FILENO, text, sizeof text - 1) < 0 ||
        write(STDOUT_FILENO, current, strlen(current)) < 0 || write(STDOUT_FILENO, "\n", 1) < 0)
        _exit(2);
}

static void check_result(struct bench *b, const struct kind *kind, int error, bool met)
{
    enum plx_error_class class = kind->alloc ? PLX_CLASS_NOMEM : PLX_CLASS_IO;

    if (!error)
        return;
    bench_expect(b, met, "it failed although nothing did: %s: %s", plx_error_name(error),
                 b->fault.text);
    bench_expect(b, plx_error_class(error) == class, "it failed with %s: %s", plx_error_name(error),
                 b->fault.text);
    bench_expect(b, b->fault.text[0] != 0, "%s, without a word", plx_error_name(error));
}

static void exercise(struct bench *b)
{
    for (unsigned n = 0; n < BENCH_DISKS; n++) {
        if (!b->disks[n].vdi)
            continue;
        if (bench_write(b, n, 200 * KIB, 8 * KIB) || bench_write(b, n, 201 * KIB, KIB) ||
            bench_read(b, n, 192 * KIB, 64 * KIB) || bench_flush(b, n) || bench_snapshot(b, n))
            bench_expect(b, false, "disk %u does not go on: %s", n, b->fault.text);
    }
}

static void crash_and_recover(struct bench *b)
{
    bench_crash(b);
    bench_bring_back(b);
    bench_verify(b);
}

/* Whether the fault was met; *ret_leaked: blocks that nobody knows any more. */
static bool run_case(const struct operation *op, const struct kind *kind, uint64_t k,
                     unsigned *failures, uint64_t *ret_counted, uint64_t *ret_leaked)
{
    static struct bench bench;
    struct bench *b = &bench;
    uint64_t failed = 0;
    bool met;
    int error;

    snprintf(current, sizeof current, "%s:%s:%" PRIu64, op->name, kind->name, k);
    bench_init(b, !(op->flags & BLANK), 42);
    op->prepare(b);
    bench_settle(b);
    b->fault.text[0] = 0;
    fault_plan_arm(&b->plan, kind->io, k);
    if (kind->alloc)
        fault_alloc_arm(k, kind->all);
    b->heals_in = b->ring.made ? HEALS_IN : 0; /* what has a ring may wait for that */
    if (op->flags & NEIGHBOUR)
        bench_neighbour_begin(b);
    error = op->run(b);
    bench_neighbour_end(b);
    bench_settle(b);
    *ret_counted = fault_alloc_disarm(&failed);
    met = fault_plan_heal(&b->plan) || failed;
    check_result(b, kind, error, met);
    if (kind->io == FAULT_IO_DROP) /* what nobody was promised may be gone */
        for (unsigned n = 0; n < BENCH_DISKS; n++)
            if (b->disks[n].oracle && b->disks[n].write_back)
                plx_oracle_crash(b->disks[n].oracle);
    b->env.ns += 5000000000u;
    if (op->again && (op->flags & FIRST))
        bench_expect(b, op->again(b) == 0, "not even afterwards: %s", b->fault.text);
    bench_bring_back(b);
    if (op->again && !(op->flags & FIRST))
        bench_expect(b, op->again(b) == 0, "not even afterwards: %s", b->fault.text);
    exercise(b);
    bench_verify(b);
    if (k % 2 == 1)
        crash_and_recover(b);
    bench_finish(b, ret_leaked);
    if (b->failures) {
        printf("\n  replay: PLX_FAULT=%s\n", current);
        ++*failures;
    }
    bench_done(b);
    return met;
}

/* ---- The loop ---- */

static const struct operation *chosen;
static const struct kind *chosen_kind;
static uint64_t chosen_k;

static void loop(const struct operation *op)
{
    const struct kind none = {"none", FAULT_IO_NONE, true, false};
    uint64_t allocations = 0, usual = 0;
    unsigned failures = 0, offset, every = fault_every(&offset);

    run_case(op, &none, 0, &failures, &allocations, &usual);
    printf("\n    %-21s %" PRIu64 " allocations;", op->name, allocations);
    for (const struct kind *kind = kinds; kind < kinds + KINDS; kind++) {
        uint64_t counted = 0, leaked = 0, sum = 0, k = chosen_k ? chosen_k : 1 + offset;

        if (chosen_kind && kind != chosen_kind)
            continue;
        while (run_case(op, kind, k, &failures, &counted, &leaked) && !chosen_k && k < K_MAX &&
               failures < FAILURES_MAX) {
            if (kind->alloc && k % 2 == 0 && leaked > usual) /* no crash made it */
                sum += leaked - usual;
            k += every;
        }
        printf(" %s %" PRIu64, kind->name, k - 1);
        if (kind->alloc && sum)
            printf(" (%" PRIu64 " blocks leaked)", sum);
        fflush(stdout);
        if (k >= K_MAX)
            failures++;
    }
    CU_ASSERT_EQUAL(failures, 0);
}

static void test_operation(void)
{
    loop(chosen);
}

static bool choose(const char *text)
{
    char name[64], kind[16];
    int fields = sscanf(text, "%63[^:]:%15[^:]:%" SCNu64, name, kind, &chosen_k);

    for (size_t i = 0; i < OPERATIONS; i++)
        if (fields >= 1 && strcmp(operations[i].name, name) == 0)
            chosen = &operations[i];
    for (size_t i = 0; i < KINDS; i++)
        if (fields >= 2 && strcmp(kinds[i].name, kind) == 0)
            chosen_kind = &kinds[i];
    return chosen && (fields < 2 || chosen_kind);
}

static void test_all(void)
{
    for (size_t i = 0; i < OPERATIONS; i++)
        loop(&operations[i]);
}

int main(void)
{
    const char *wanted = getenv("PLX_FAULT");
    const struct suite_test tests[] = {
        {"every operation, every fault", wanted ? test_operation : test_all},
    };

    signal(SIGABRT, on_abort);
    if (wanted && !choose(wanted)) {
        fprintf(stderr, "PLX_FAULT=%s: no such operation or kind\n", wanted);
        return 2;
    }
    return SUITE_RUN("faults", tests);
}
