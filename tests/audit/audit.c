/* audit.c - what becomes of a store with a history when bytes of it change behind the engine's
 * back.
 *
 * One store is made: disks, snapshots, labels, clones, blocks overwritten in place, some of which
 * have their checksums back, a deleted disk. On the way its image is kept a few times, to take old
 * bytes from. What every disk and snapshot holds is known, block by block. Then, for each mutation,
 * a process of its own changes the image, has the checker read everything, reads every block of
 * every state through the engine, opens all disks, writes to them, closes them, and reads all
 * again.
 *
 * AUDIT-1  No crash and no hang.
 * AUDIT-2  What is read is right or is an error, but for blocks that were not vouched for: those
 *     that had no checksum before the mutation; once disks have been written, those that have none
 *     then, for a write in place takes those of its whole leaf away.
 * AUDIT-3  A disk that has nothing of what was changed goes on as if nothing had happened. Damage
 *     of both copies of a record or of an extent page by older ones, each of them valid, cannot be
 *     seen by the engine: they are told apart and counted, and only AUDIT-1 is asked of them.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/care/reach.h"
#include "engine/disk/vdi.h"
#include "ok.h"
#include "suite.h"
#include "unit/fixture.h"

#define STORE_BYTES (20 * MIB)
#define STORE_BLOCKS (STORE_BYTES / BLOCK)
#define DISKS 6u /* the last one is deleted */
#define DISK_BLOCKS 600u
#define DISK_BYTES (DISK_BLOCKS * BLOCK)
#define STATES_MAX 64u
#define IMAGES_MAX 8u
#define QUIET_NS 1000000000ull
#define HANG_SECONDS 60u
#define NEW_BLOCK 7u /* where each disk is written after the mutation */

/* ---- What is known ---- */

/* Of a block: the number that its bytes follow from; 0: zeroes. */
struct state {
    uint32_t slot;
    uint64_t seq; /* 0: the newest state */
    uint64_t ids[DISK_BLOCKS];
    bool unvouched[DISK_BLOCKS];
};

static struct state *states; /* the newest ones first, by slot */
static unsigned state_count;
static uint64_t next_id;
static uint8_t *images[IMAGES_MAX], *image; /* older ones, and the last */
static unsigned image_count;
static struct plx_blockmap used[DISKS];

static void fill(uint8_t *bytes, uint64_t id)
{
    struct plx_simrng rng = {id};

    if (!id)
        memset(bytes, 0, BLOCK);
    for (size_t i = 0; id && i < BLOCK; i += 8) {
        uint64_t word = plx_simrng_next(&rng);

        memcpy(bytes + i, &word, 8);
    }
}

static struct state *live(uint32_t slot)
{
    return &states[slot];
}

static void put(struct plx_vdi *vdi, uint64_t block, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        live(vdi->record.slot)->ids[block + i] = ++next_id;
        fill(buffer + (size_t)i * BLOCK, next_id);
    }
    OK(try_run(vdi, PLX_WRITE, block * BLOCK, (uint64_t)count * BLOCK, NULL));
}

static void drop(struct plx_vdi *vdi, uint64_t block, unsigned count)
{
    memset(live(vdi->record.slot)->ids + block, 0, count * sizeof(uint64_t));
    run(vdi, PLX_UNMAP, block * BLOCK, (uint64_t)count * BLOCK);
}

static uint64_t snapshot(struct plx_vdi *vdi)
{
    struct state *s = &states[state_count++];

    CU_ASSERT_FATAL(state_count <= STATES_MAX);
    *s = *live(vdi->record.slot);
    s->seq = run(vdi, PLX_SNAPSHOT, 0, 0);
    return s->seq;
}

static void keep_image(void)
{
    CU_ASSERT_FATAL(image_count < IMAGES_MAX);
    images[image_count] = malloc(STORE_BYTES);
    plx_simdisk_peek(disk, 0, images[image_count++], STORE_BYTES);
}

/* ---- The store ---- */

static void write_some(struct plx_vdi *vdi, struct plx_simrng *rng, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        unsigned blocks = 1 + (unsigned)plx_simrng_below(rng, 6);

        put(vdi, plx_simrng_below(rng, DISK_BLOCKS - blocks), blocks);
    }
}

static void fill_disk(uint32_t slot, struct plx_simrng *rng)
{
    struct plx_vdi *vdi = open_quiet(slot, 0);

    for (unsigned i = 0; i < 4; i++) {
        write_some(vdi, rng, 25);
        snapshot(vdi);
        if (i == 1) {
            struct plx_request label = {.op = PLX_LABEL, .seq = 1, .label = "kept"};

            OK(plx_vdi_run(vdi, &label));
            run(vdi, PLX_KEYFRAME, 0, 0);
        }
        drop(vdi, plx_simrng_below(rng, DISK_BLOCKS - 40), 40);
    }
    write_some(vdi, rng, 20);
    OK(plx_vdi_close(vdi));
}

static void clone_disk(uint32_t slot, uint32_t parent, uint64_t seq, struct plx_simrng *rng)
{
    struct plx_vdi *vdi;

    OK(clone_vdi(slot, parent, seq));
    for (unsigned i = 0; i < state_count; i++)
        if (states[i].slot == parent && states[i].seq == seq)
            memcpy(live(slot)->ids, states[i].ids, sizeof states[i].ids);
    vdi = open_quiet(slot, 0);
    write_some(vdi, rng, 15);
    snapshot(vdi);
    OK(plx_vdi_close(vdi));
}

/* Blocks without a checksum, half of which get them back, the other half not. */
static void heat(uint32_t slot, struct plx_simrng *rng, bool quiet)
{
    struct plx_vdi *vdi = open_quiet(slot, quiet ? QUIET_NS : 0);

    for (unsigned i = 0; i < 40; i++) {
        uint64_t block = plx_simrng_below(rng, DISK_BLOCKS);

        put(vdi, block, 1);
        put(vdi, block, 1);
    }
    if (quiet)
        pass_time(4 * QUIET_NS);
    snapshot(vdi);
    write_some(vdi, rng, 5);
    OK(plx_vdi_close(vdi));
}

static void note_used(void)
{
    bool *counts = calloc(store->info.extents, sizeof *counts);
    struct plx_turns turns = {0};

    memset(counts, 1, store->info.extents);
    for (uint32_t slot = 0; slot < DISKS; slot++) {
        struct plx_vdi_record record;
        struct plx_reach reach;
        uint8_t which;

        OK(plx_reach_init(&reach, store, counts, NULL, &turns, &fault));
        OK(plx_vdi_record_read(store, slot, &record, &which, &fault));
        OK(plx_reach_vdi(&reach, &record));
        CU_ASSERT_FATAL(
            plx_blockmap_init(&used[slot], store->info.extents, store->info.extent_blocks));
        CU_ASSERT_FATAL(plx_blockmap_add(&used[slot], &reach.used));
        plx_reach_done(&reach);
    }
    free(counts);
}

static bool is_deleted(const struct state *s)
{
    return s->slot == DISKS - 1;
}

static bool is_unvouched(struct plx_vdi *vdi, uint64_t block)
{
    struct plx_waiter waiter = PLX_WAITER;
    struct plx_walk walk = {0};
    struct plx_mapping mapping;

    while (plx_map_lookup(&vdi->map, block, &walk, &waiter.task, &mapping) == PLX_WAIT)
        if (plx_waiter_wait(store, &waiter))
            return false;
    return mapping.addr && !mapping.checksum;
}

static void note_unvouched(void)
{
    uint64_t without = 0, with = 0;

    for (unsigned i = 0; i < state_count; i++) {
        struct state *s = &states[i];
        struct plx_vdi *vdi;

        if (is_deleted(s))
            continue;
        OK(plx_snapshot_open(store, s->slot, s->seq, &vdi, &fault));
        for (uint64_t b = 0; b < DISK_BLOCKS; b++) {
            s->unvouched[b] = is_unvouched(vdi, b);
            without += s->unvouched[b];
            with += s->ids[b] && !s->unvouched[b];
        }
        OK(plx_vdi_close(vdi));
    }
    CU_ASSERT_FATAL(without && with);
    printf("%u states of %u disks: %llu blocks vouched for, %llu not\n", state_count, DISKS - 1,
           (unsigned long long)with, (unsigned long long)without);
}

static void make_history(uint64_t seed)
{
    struct plx_simrng rng = {seed};

    states = calloc(STATES_MAX, sizeof *states);
    state_count = DISKS;
    fixture.format.segment_bytes = 32u << 10;
    fixture.open.cache_bytes = 1;
    make_store(STORE_BYTES, MIB);
    for (uint32_t slot = 0; slot < 3; slot++) {
        OK(create_vdi(slot, DISK_BYTES));
        live(slot)->slot = slot;
    }
    for (uint32_t slot = 3; slot < DISKS; slot++)
        live(slot)->slot = slot;
    for (uint32_t slot = 0; slot < 3; slot++) {
        fill_disk(slot, &rng);
        keep_image();
    }
    clone_disk(3, 0, 2, &rng);
    clone_disk(4, 3, 1, &rng);
    keep_image();
    heat(0, &rng, true);
    heat(1, &rng, false);
    keep_image();
    OK(create_vdi(DISKS - 1, DISK_BYTES));
    fill_disk(DISKS - 1, &rng);
    keep_image();
    OK(plx_vdi_delete(store, DISKS - 1, false, &fault));
    heat(3, &rng, false);
    heat(0, &rng, false);
    note_used();
    note_unvouched();
    leave_store();
    image = malloc(STORE_BYTES);
    plx_simdisk_peek(disk, 0, image, STORE_BYTES);
}

/* ---- Mutations ---- */

enum kind {
    BIT,
    SECTOR,
    SWAPPED,
    STALE,
    STALE_SECTOR,
    STALE_COPY, /* one copy of a record, an extent page or a superblock */
    ZEROES,
    SHORTER,
    STALE_COPIES, /* both: needs the registry */
    KINDS,
};

static const char *const kind_names[KINDS] = {
    [BIT] = "a bit flipped",
    [SECTOR] = "a sector of other bytes",
    [SWAPPED] = "two blocks swapped",
    [STALE] = "a block as it was before",
    [STALE_SECTOR] = "a sector as it was before",
    [STALE_COPY] = "a copy as it was before",
    [ZEROES] = "blocks of zeroes",
    [SHORTER] = "the volume cut off",
    [STALE_COPIES] = "rolled back in both copies: needs the registry",
};

struct mutation {
    enum kind kind;
    uint64_t block, other, count;
    bool related[DISKS];
};

static bool is_zero(const uint8_t *bytes)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, BLOCK - 1) == 0;
}

static uint64_t any_block(struct plx_simrng *rng)
{
    uint64_t block;

    do
        block = plx_simrng_below(rng, STORE_BLOCKS);
    while (is_zero(image + block * BLOCK));
    return block;
}

/* One that was something else then. */
static uint64_t any_changed(struct plx_simrng *rng, const uint8_t *older)
{
    uint64_t block;

    do
        block = any_block(rng);
    while (memcmp(older + block * BLOCK, image + block * BLOCK, BLOCK) == 0);
    return block;
}

/* Of a structure of two copies the first, which was another one in some older image. */
static uint64_t any_pair(struct plx_simrng *rng, const uint8_t *older)
{
    uint64_t pages = STORE_BYTES / MIB, block;

    for (unsigned tries = 0; tries < 1000; tries++) {
        bool record = plx_simrng_chance(rng, 50);
        const char *magic = record ? "PLXVDREC" : "PLXEXTNT";

        block = record ? PLX_VDI_TABLE_BLOCK + 2 * plx_simrng_below(rng, DISKS)
                       : (1 + plx_simrng_below(rng, pages - 1)) * (MIB / BLOCK);
        if (memcmp(older + block * BLOCK, magic, 8) == 0 &&
            memcmp(older + (block + 1) * BLOCK, magic, 8) == 0 &&
            memcmp(older + block * BLOCK, image + block * BLOCK, 2 * (size_t)BLOCK) != 0)
            return block;
    }
    return 0; /* the superblock's: they never change */
}

/* Blocks of which a disk has a part; of pairs every copy by itself concerns nobody. */
static void relate(struct mutation *m, uint64_t block)
{
    for (uint32_t slot = 0; slot < DISKS; slot++)
        m->related[slot] = m->related[slot] || plx_blockmap_test(&used[slot], block);
}

static void replace(uint64_t at, const uint8_t *bytes, size_t count)
{
    plx_simdisk_poke(disk, at, bytes, count);
}

static void mutate(struct plx_simrng *rng, struct mutation *m)
{
    const uint8_t *older = images[plx_simrng_below(rng, image_count)];
    static uint8_t bytes[BLOCK];
    uint64_t at;

    m->kind = (enum kind)plx_simrng_below(rng, KINDS);
    m->block = any_block(rng);
    m->count = 1;
    switch (m->kind) {
    case BIT:
        plx_simdisk_flip(disk, m->block * BLOCK + plx_simrng_below(rng, BLOCK),
                         (uint8_t)(1u << plx_simrng_below(rng, 8)));
        break;
    case SECTOR:
        fill(bytes, plx_simrng_chance(rng, 30) ? 0 : plx_simrng_next(rng));
        replace(m->block * BLOCK + plx_simrng_below(rng, 8) * 512, bytes, 512);
        break;
    case SWAPPED:
        m->other = any_block(rng);
        replace(m->block * BLOCK, image + m->other * BLOCK, BLOCK);
        replace(m->other * BLOCK, image + m->block * BLOCK, BLOCK);
        relate(m, m->other);
        break;
    case STALE:
        m->block = any_changed(rng, older);
        replace(m->block * BLOCK, older + m->block * BLOCK, BLOCK);
        break;
    case STALE_SECTOR:
        m->block = any_changed(rng, older);
        at = m->block * BLOCK + plx_simrng_below(rng, 8) * 512;
        replace(at, older + at, 512);
        break;
    case STALE_COPY:
        m->block = any_pair(rng, older) + plx_simrng_below(rng, 2);
        replace(m->block * BLOCK, older + m->block * BLOCK, BLOCK);
        break;
    case ZEROES: /* one of two copies at most */
        m->count = m->block % 256 < 2 || m->block < 256 ? 1 : 1 + plx_simrng_below(rng, 8);
        memset(bytes, 0, sizeof bytes);
        m->count = plx_min_u64(m->count, 256 - m->block % 256);
        for (uint64_t i = 0; i < m->count; i++)
            replace((m->block + i) * BLOCK, bytes, BLOCK);
        break;
    case SHORTER:
        m->block = STORE_BLOCKS / 2 + plx_simrng_below(rng, STORE_BLOCKS / 2);
        m->count = STORE_BLOCKS - m->block;
        plx_simdisk_resize(disk, m->block * BLOCK);
        memset(m->related, 1, sizeof m->related); /* the store may be refused */
        break;
    default:
        m->block = any_pair(rng, older);
        m->count = 2;
        replace(m->block * BLOCK, older + m->block * BLOCK, 2 * (size_t)BLOCK);
        memset(m->related, 1, sizeof m->related);
        break;
    }
    for (uint64_t i = 0; i < m->count; i++)
        relate(m, m->block + i);
}

/* ---- Judging ---- */

/* In memory that the processes share. */
struct verdict {
    struct mutation mutation;
    uint64_t errors, silent, unvouched, unrelated; /* blocks or calls */
    uint64_t found;                                /* by the checker */
    char first[600];                               /* what is wrong */
    bool written, ended;
};

static struct verdict *verdict;

static void wrong(uint64_t *counter, const struct state *s, uint64_t block, const char *what)
{
    if (!verdict->first[0])
        snprintf(verdict->first, sizeof verdict->first, "disk %u@%llu block %llu: %s", s->slot,
                 (unsigned long long)s->seq, (unsigned long long)block, what);
    ++*counter;
}

/* AUDIT-3: an error is for a disk that has something of what was changed. */
static void failed(const struct state *s, uint64_t block, const char *what)
{
    if (verdict->mutation.related[s->slot])
        verdict->errors++;
    else
        wrong(&verdict->unrelated, s, block, what);
}

/* AUDIT-2 */
static void judge(struct plx_vdi *vdi, const struct state *s, uint64_t block)
{
    static uint8_t expected[BLOCK];

    if (try_run(vdi, PLX_READ, block * BLOCK, BLOCK, NULL)) {
        failed(s, block, fault.text);
        return;
    }
    fill(expected, s->ids[block]);
    if (memcmp(buffer, expected, BLOCK) == 0)
        return;
    if (s->unvouched[block] || (verdict->written && !s->seq && is_unvouched(vdi, block)))
        verdict->unvouched++;
    else
        wrong(&verdict->silent, s, block, "other contents, and no error");
}

static void read_state(const struct state *s)
{
    static uint8_t expected[DISK_BYTES];
    struct plx_vdi *vdi;

    if (plx_snapshot_open(store, s->slot, s->seq, &vdi, &fault)) {
        failed(s, 0, fault.text);
        return;
    }
    for (uint64_t b = 0; b < DISK_BLOCKS; b++)
        fill(expected + b * BLOCK, s->ids[b]);
    if (vdi->size_bytes != DISK_BYTES)
        wrong(&verdict->silent, s, 0, "another size");
    else if (try_run(vdi, PLX_READ, 0, DISK_BYTES, NULL) ||
             memcmp(buffer, expected, sizeof expected) != 0)
        for (uint64_t b = 0; b < DISK_BLOCKS; b++)
            judge(vdi, s, b);
    plx_vdi_abandon(vdi);
}

static void read_all(void)
{
    for (unsigned i = 0; i < state_count; i++)
        if (!is_deleted(&states[i]))
            read_state(&states[i]);
}

static void count_finding(void *context, const struct plx_finding *finding)
{
    verdict->found += finding->severity == PLX_FINDING_ERROR;
}

/* Whoever cannot be opened stays as he is. */
static void write_all(void)
{
    for (uint32_t slot = 0; slot < DISKS - 1; slot++) {
        struct state *s = live(slot);
        struct plx_vdi_info info;
        struct plx_vdi *vdi;
        bool good = true;

        if (plx_vdi_read_info(store, slot, &info, &fault)) {
            failed(s, 0, fault.text);
            continue;
        }
        epoch = plx_max_u64(epoch, info.epoch);
        if (try_open_vdi(slot, true, &vdi)) {
            failed(s, 0, fault.text);
            continue;
        }
        for (uint64_t b = NEW_BLOCK; b < DISK_BLOCKS && good; b += 97) {
            fill(buffer, ++next_id);
            good = !try_run(vdi, PLX_WRITE, b * BLOCK, BLOCK, NULL);
            s->unvouched[b] = s->unvouched[b] && !good;
            if (good)
                s->ids[b] = next_id;
        }
        good = good && !try_run(vdi, PLX_SNAPSHOT, 0, 0, NULL) &&
               !try_run(vdi, PLX_KEYFRAME, 0, 0, NULL);
        if (!good)
            failed(s, NEW_BLOCK, fault.text);
        for (uint64_t b = 0; b < DISK_BLOCKS; b++)
            judge(vdi, s, b);
        if (plx_vdi_close(vdi))
            failed(s, 0, "it does not close");
    }
}

/* The store itself: nothing but a shorter volume may keep it from being opened. */
static bool reopen(uint64_t instance)
{
    if (store)
        plx_store_close(store);
    store = NULL;
    if (try_open_store(instance) == 0)
        return true;
    if (verdict->mutation.kind == SHORTER)
        verdict->errors++;
    else
        wrong(&verdict->unrelated, live(0), 0, fault.text);
    return false;
}

static void audit(struct plx_simrng *rng)
{
    struct plx_check_options options = {.data = true, .finding = count_finding};
    struct plx_check_result result;

    mutate(rng, &verdict->mutation);
    if (!reopen(0))
        return;
    if (plx_store_check(store, &options, &result, &fault))
        wrong(&verdict->unrelated, live(0), 0, fault.text);
    read_all();
    if (!reopen(77))
        return;
    verdict->written = true;
    write_all();
    read_all();
    if (reopen(0)) {
        plx_store_check(store, &options, &result, &fault);
        read_all();
    }
}

/* ---- Running ---- */

static struct {
    uint64_t seed, count, only;
    bool verbose;
} plan = {.count = 5000, .only = UINT64_MAX};

struct tally {
    uint64_t mutations, harmless, told, unvouched, silent, bad;
};

/* AUDIT-1 */
static const char *judge_child(int status)
{
    static char text[64];

    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        return "it hangs";
    if (WIFSIGNALED(status)) {
        snprintf(text, sizeof text, "it dies of signal %d", WTERMSIG(status));
        return text;
    }
    return WEXITSTATUS(status) || !verdict->ended ? "it ends in error" : NULL;
}

static void run_one(uint64_t number, struct tally *tallies)
{
    struct plx_simrng rng = {plan.seed + number * 0x9e3779b97f4a7c15ull};
    const char *crash;
    struct tally *tally;
    int status = 0;
    bool bad;
    pid_t child;

    memset(verdict, 0, sizeof *verdict);
    fflush(NULL);
    child = fork();
    if (child == 0) {
        alarm(HANG_SECONDS);
        audit(&rng);
        verdict->ended = true;
        _exit(0);
    }
    CU_ASSERT_FATAL(child > 0 && waitpid(child, &status, 0) == child);
    crash = judge_child(status);
    tally = &tallies[verdict->mutation.kind];
    bad = crash ||
          (verdict->mutation.kind != STALE_COPIES && (verdict->silent || verdict->unrelated));
    tally->mutations++;
    tally->bad += bad;
    tally->silent += verdict->silent || (verdict->mutation.kind == STALE_COPIES &&
                                         !verdict->errors && !verdict->found);
    tally->unvouched += verdict->unvouched > 0;
    tally->told += verdict->errors || verdict->found;
    tally->harmless +=
        !verdict->errors && !verdict->found && !verdict->silent && !verdict->unvouched;
    if (bad || plan.verbose)
        printf("%s --seed %llu --only %llu: %s, block %llu: %s%s%s\n", bad ? "BAD" : "   ",
               (unsigned long long)plan.seed, (unsigned long long)number,
               kind_names[verdict->mutation.kind], (unsigned long long)verdict->mutation.block,
               crash ? crash : "", crash && verdict->first[0] ? "; " : "", verdict->first);
    CU_ASSERT(!bad);
}

/* What it says of one kind must not be taken for what all were judged by. */
static void show_judged(const struct tally *tallies)
{
    uint64_t cut = tallies[SHORTER].mutations, rolled = tallies[STALE_COPIES].mutations, all = 0;

    for (unsigned k = 0; k < KINDS; k++)
        all += tallies[k].mutations;
    printf(
        "judged: %llu of %llu by AUDIT-1 to AUDIT-3\n"
        "        %llu by AUDIT-1 and AUDIT-2 only: of a volume that was cut off all disks may be "
        "refused\n"
        "        %llu by AUDIT-1 only: both copies are valid, so only the registry can tell, "
        "which is not here; tests/audit/doors judges such, with it\n",
        (unsigned long long)(all - cut - rolled), (unsigned long long)all, (unsigned long long)cut,
        (unsigned long long)rolled);
}

static void show(const struct tally *tallies)
{
    printf("%-48s %9s %9s %9s %9s %9s %9s\n", "", "mutations", "harmless", "told", "unvouched",
           "silent", "BAD");
    for (unsigned k = 0; k < KINDS; k++)
        printf("%-48s %9llu %9llu %9llu %9llu %9llu %9llu\n", kind_names[k],
               (unsigned long long)tallies[k].mutations, (unsigned long long)tallies[k].harmless,
               (unsigned long long)tallies[k].told, (unsigned long long)tallies[k].unvouched,
               (unsigned long long)tallies[k].silent, (unsigned long long)tallies[k].bad);
    show_judged(tallies);
}

static void run_all(void)
{
    struct tally tallies[KINDS] = {0};

    verdict =
        mmap(NULL, sizeof *verdict, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CU_ASSERT_FATAL(verdict != MAP_FAILED);
    printf("\nseed %llu\n", (unsigned long long)plan.seed);
    make_history(plan.seed);
    for (uint64_t i = 0; i < plan.count; i++)
        if (plan.only == UINT64_MAX || plan.only == i)
            run_one(i, tallies);
    show(tallies);
    end_store();
    for (unsigned i = 0; i < image_count; i++)
        free(images[i]);
    for (uint32_t slot = 0; slot < DISKS; slot++)
        plx_blockmap_done(&used[slot]);
    free(image);
    free(states);
    munmap(verdict, sizeof *verdict);
}

int main(int argc, char **argv)
{
    static const struct suite_test tests[] = {{"mutations", run_all}};

    plan.seed = (uint64_t)time(NULL);
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--verbose"))
            plan.verbose = true;
        else if (i + 1 < argc && !strcmp(argv[i], "--seed"))
            plan.seed = strtoull(argv[++i], NULL, 0);
        else if (i + 1 < argc && !strcmp(argv[i], "--count"))
            plan.count = strtoull(argv[++i], NULL, 0);
        else if (i + 1 < argc && !strcmp(argv[i], "--only"))
            plan.only = strtoull(argv[++i], NULL, 0);
        else {
            fprintf(stderr, "usage: audit [--seed N] [--count N] [--only NUMBER] [--verbose]\n");
            return 2;
        }
    }
    if (plan.only != UINT64_MAX && plan.count <= plan.only)
        plan.count = plan.only + 1;
    return SUITE_RUN("audit", tests);
}
