/* test_ring_cuts.c - power cuts, killed processes and failing members under the write-back ring.
 *
 * A host appends to the chains of two disks on a ring of one or two simulated members, drains them,
 * opens again, with a new proof each time, loses a member, adds it again. The members share their
 * power. At each event after which other writes are volatile than before, they are forked as a
 * power cut then could leave them: with all of these writes, with none, with every subset of a few,
 * and with chance's choice, torn at sectors. A killed process leaves them as they are, caches and
 * all.
 *
 * Each state is opened with both members, and with each of them alone by the operator's word. A
 * disk's mark and position are the store's, which is never cut here. What must hold:
 *
 *   both          open without anybody's word, and each disk's mark believes them;
 *   who is believed, or opens without a word, has all records that were done behind the position;
 *   each of two that mirror each other is believed;
 *   what is found is what was appended, in order, without a gap: no more, nothing older;
 *   once it was found, it stays: with all that is volatile lost, by each member alone, too;
 *   no member is called damaged;
 *   then the ring can be appended to.
 *
 * Beside some states the store is an older one, put back from when the ring was last closed. Then a
 * disk is refused, or has what was done until then, all of it and no more. And in one life the
 * store is put back while the ring is empty, and gives out epochs and numbers again.
 *
 * Of some states the recovery is cut in turn. PLX_RUNS=n: so many seeds of each life (default 3).
 */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/ring/ring.h"
#include "sim/simdisk.h"
#include "sim/simenv.h"
#include "suite.h"

#define BLOCK PLX_BLOCK_SIZE
#define SEGMENT_BLOCKS 8u
#define SEGMENTS 7u
#define RING_BYTES (PLX_RING_SEGMENTS_AT + SEGMENTS * SEGMENT_BLOCKS * (uint64_t)BLOCK)
#define DISKS 2u /* virtual ones */
#define RECORDS 1024u
#define BLOCKS_MAX 3u
#define SUBSETS_OF 3u /* so many volatile writes have all of their subsets tried */
#define CHOICES 3u
#define LEAST 34000ul /* states of a seed of all lives: 100,000 of three */
#define NESTED 61u    /* of so many states the recovery of one is cut */
#define USED 5u       /* of so many states one is appended to */

/* ---- What was appended, and what the store says ------------------------------------------ */

struct disk {
    struct plx_uuid id;
    uint64_t epoch;
    uint64_t appended, done;           /* newest records */
    uint64_t tag[RECORDS];             /* of each record: no two have the same */
    uint64_t epoch_of[RECORDS];        /* in which it was appended */
    struct plx_ring_position position; /* on the store */
    struct plx_ring_mark mark;         /* on the store */
};

struct world {
    struct disk disks[DISKS];
    unsigned members;
    bool needed[PLX_RING_MEMBERS]; /* each of these must be enough */
};

static struct world world;
static struct plx_simpower power;
static struct plx_simrng chance;
static struct plx_fault fault;
static uint64_t last_tag;
static const char *life_name;
static unsigned long states, kills, cuts, nested_states, wrong;

static bool bad(const char *what, unsigned disk, unsigned long long detail)
{
    if (!wrong++)
        printf("\n  %s, event %llu: %s (disk %u, %llu) | %s", life_name,
               (unsigned long long)power.events, what, disk, detail, fault.text);
    return false;
}

/* ---- A record's contents ----------------------------------------------------------------- */

static unsigned blocks_of(uint64_t tag)
{
    return tag % 7 == 3 ? 0 : 1 + (unsigned)(tag % BLOCKS_MAX); /* 0: an UNMAP */
}

static void fill(uint64_t tag, uint8_t *to)
{
    for (size_t at = 0; at < blocks_of(tag) * BLOCK; at += sizeof tag)
        memcpy(to + at, &tag, sizeof tag);
}

static struct plx_ring_record record_of(uint64_t tag)
{
    unsigned blocks = blocks_of(tag);

    return (struct plx_ring_record){.type = blocks ? PLX_RING_WRITE : PLX_RING_UNMAP,
                                    .block = tag,
                                    .blocks = blocks ? blocks : 9};
}

static bool has_contents(const struct plx_ring_found *found, uint64_t tag)
{
    struct plx_ring_record record = record_of(tag);
    uint8_t expected[BLOCKS_MAX * BLOCK];

    if (found->record.type != record.type || found->record.block != record.block ||
        found->record.blocks != record.blocks)
        return false;
    fill(tag, expected);
    return !blocks_of(tag) || memcmp(found->data, expected, blocks_of(tag) * BLOCK) == 0;
}

/* ---- A ring that is opened --------------------------------------------------------------- */

struct host {
    struct plx_simenv env;
    struct plx_device *devices[PLX_RING_MEMBERS];
    unsigned count;
    struct plx_ring *ring;
    struct plx_ring_chain *chains[DISKS];
    uint64_t last[DISKS]; /* found */
};

struct taking {
    const struct disk *disk;
    unsigned number;
    uint64_t last;
};

static int take(void *context, const struct plx_ring_found *found)
{
    struct taking *taking = context;
    const struct disk *disk = taking->disk;

    if (found->seq != ++taking->last)
        bad("a gap", taking->number, found->seq);
    else if (found->seq > disk->appended)
        bad("a record that was never appended", taking->number, found->seq);
    else if (found->epoch != disk->epoch_of[found->seq])
        bad("a record of another epoch", taking->number, found->seq);
    else if (!has_contents(found, disk->tag[found->seq]))
        bad("other contents", taking->number, found->seq);
    return 0;
}

/* members: NULL: it is not there. */
static int host_open_members(struct host *host, struct plx_simdisk *const *members, bool alone)
{
    struct plx_ring_options options = {.env = &host->env.env, .alone = alone};
    int error;

    *host = (struct host){.count = 0};
    plx_simenv_init(&host->env, plx_simrng_next(&chance));
    for (unsigned m = 0; m < world.members; m++)
        if (members[m])
            host->devices[host->count++] = plx_simdisk_attach(members[m], m ? "second" : "first");
    error = plx_ring_open(host->devices, host->count, &options, &host->ring, &fault);
    if (error)
        host->ring = NULL;
    return error;
}

/* which: a bit for each member. */
static int host_open(struct host *host, const struct plx_simpower *on, unsigned which, bool alone)
{
    struct plx_simdisk *members[PLX_RING_MEMBERS] = {NULL};

    for (unsigned m = 0; m < world.members; m++)
        members[m] = which >> m & 1 ? on->disks[m] : NULL;
    return host_open_members(host, members, alone);
}

static void host_close(struct host *host)
{
    for (unsigned d = 0; d < DISKS && host->ring; d++)
        if (host->chains[d])
            plx_ring_chain_close(host->chains[d]);
    if (host->ring)
        plx_ring_close(host->ring);
    for (unsigned i = 0; i < host->count; i++)
        plx_device_close(host->devices[i]);
    *host = (struct host){.count = 0};
}

static bool believed(const struct host *host, const struct disk *disk)
{
    return !plx_ring_is_marked(&disk->mark) ||
           plx_ring_check_mark(host->ring, &disk->id, &disk->mark, &fault) == 0;
}

static int chain_open(struct host *host, unsigned d, uint64_t epoch)
{
    const struct disk *disk = &world.disks[d];
    struct taking taking = {disk, d, disk->position.seq};
    struct plx_ring_chain_options options = {
        .vdi = disk->id,
        .epoch = epoch,
        .mark = disk->mark,
        .position = disk->position,
        .found = take,
        .context = &taking,
    };
    int error = plx_ring_chain_open(host->ring, &options, &host->chains[d], &fault);

    host->last[d] = taking.last;
    return error;
}

/* SCAN_JUDGE-7: what a crash leaves on one member only is no damage of the other one. */
static bool is_undamaged(struct host *host)
{
    struct plx_ring_info info;

    plx_ring_get_info(host->ring, &info);
    for (unsigned d = 0; d < DISKS; d++) {
        const struct disk *disk = &world.disks[d];
        const struct plx_ring_chain_options options = {.vdi = disk->id,
                                                       .epoch = disk->epoch + 1,
                                                       .mark = disk->mark,
                                                       .position = disk->position};
        struct plx_ring_look look;

        if (plx_ring_chain_look(host->ring, &options, &look, &fault))
            return bad("cannot be looked at", d, 0);
        for (unsigned m = 0; m < PLX_RING_MEMBERS; m++)
            if (look.damaged[m] || info.bad_headers[m])
                return bad("a member is called damaged", d, m);
    }
    return true;
}

static struct plx_ring_mark mark_for(const struct host *host, unsigned d)
{
    struct plx_ring_chain_info chain;
    struct plx_ring_info info;

    plx_ring_get_info(host->ring, &info);
    plx_ring_chain_get_info(host->chains[d], &chain);
    return (struct plx_ring_mark){
        .ring = info.super.ring, .set = info.super.set, .proof = chain.proof, .since = 1};
}

static bool is_proven(const struct host *host, unsigned d)
{
    struct plx_ring_chain_info info;

    plx_ring_chain_get_info(host->chains[d], &info);
    return info.proof != 0;
}

/* ---- A state is judged ------------------------------------------------------------------- */

static void power_free(struct plx_simpower *cut)
{
    while (cut->count)
        plx_simdisk_free(cut->disks[0]);
}

static void fork_with(const struct plx_simpower *from, enum plx_simfate fate,
                      struct plx_simpower *ret_cut)
{
    unsigned count = plx_simpower_volatile(from);
    uint8_t *fates = malloc(count + 1);

    memset(fates, fate, count);
    plx_simpower_fork(from, fates, plx_simrng_next(&chance), ret_cut);
    plx_simpower_restore(ret_cut);
    free(fates);
}

/* Opened: every disk that is believed has all that was done; `all`: each is believed. */
static bool has_all(struct host *host, bool all, uint64_t epochs)
{
    for (unsigned d = 0; d < DISKS; d++) {
        const struct disk *disk = &world.disks[d];

        if (!believed(host, disk)) {
            if (all)
                return bad("not believed", d, 0);
            continue;
        }
        if (chain_open(host, d, disk->epoch + epochs))
            return bad("the chain does not open", d, 0);
        if (host->last[d] < disk->done)
            return bad("records that were done are missing, from", d, host->last[d] + 1);
    }
    return wrong == 0;
}

/* What one member says alone, by the operator's word and without. */
static bool judge_member(const struct plx_simpower *state, unsigned m, bool all,
                         const uint64_t *last)
{
    struct plx_simpower copy;
    struct host host;
    bool good = true;
    int error;

    fork_with(state, PLX_FATE_LOST, &copy);
    error = host_open(&host, &copy, 1u << m, false);
    if (!error) {
        all = true; /* it does not even need the word */
    } else {
        host_close(&host);
        error = host_open(&host, &copy, 1u << m, true);
        if (error && all)
            good = bad("a member by itself does not open", 9, m);
    }
    if (!error)
        good = has_all(&host, all, 4);
    for (unsigned d = 0; d < DISKS && !error && good && last; d++)
        if (host.chains[d] && host.last[d] != last[d])
            good = bad("what was found has changed", d, host.last[d]);
    host_close(&host);
    power_free(&copy);
    return good;
}

struct use {
    struct plx_ring_item item;
    bool done;
};

static void use_done(struct plx_ring_item *item)
{
    ((struct use *)item->owner)->done = true;
}

/* A full ring has room for a proof when no mark keeps the old one. */
static bool judge_proof(struct host *host, unsigned d)
{
    struct plx_ring_mark to = {.set = 0};

    for (unsigned i = 0; i < 2000 && !is_proven(host, d); i++) {
        if (i == 1000)
            plx_ring_chain_marked(host->chains[d], &to);
        plx_ring_chain_prove(host->chains[d]);
        if (!plx_ring_turn(host->ring))
            plx_ring_wait(host->ring);
    }
    if (!is_proven(host, d))
        return bad("gets no proof", d, 0);
    to = mark_for(host, d);
    plx_ring_chain_marked(host->chains[d], &to);
    return true;
}

/* One more record. It is not what was appended, so nobody looks at this state any more. */
static bool judge_use(struct host *host)
{
    for (unsigned d = 0; d < DISKS; d++) {
        struct use use = {.item = {.record = {.type = PLX_RING_UNMAP, .block = 1, .blocks = 1},
                                   .done = use_done,
                                   .owner = &use}};

        plx_ring_release(host->chains[d], host->last[d]);
        if (!judge_proof(host, d))
            return false;
        plx_ring_append(host->chains[d], &use.item);
        for (unsigned i = 0; i < 10000 && !use.done; i++)
            if (!plx_ring_turn(host->ring))
                plx_ring_wait(host->ring);
        if (!use.done || use.item.error || use.item.seq != host->last[d] + 1)
            return bad("cannot be appended to", d, use.item.seq);
    }
    return true;
}

/* As the next process finds them, which has all members. */
static void judge_both(struct plx_simpower *state, bool use)
{
    struct plx_ring_info info;
    struct host host;

    if (host_open(&host, state, (1u << world.members) - 1, false))
        bad("does not open", 9, 0);
    else if (is_undamaged(&host) && has_all(&host, true, 1)) {
        plx_ring_get_info(host.ring, &info);
        for (unsigned m = 0; m < world.members && !wrong; m++)
            if (info.members == world.members || m == info.super.member)
                judge_member(state, m, true, host.last);
        if (use && !wrong)
            judge_use(&host);
    }
    host_close(&host);
}

static void judge_members(const struct plx_simpower *state)
{
    for (unsigned m = 0; m < world.members && !wrong; m++)
        judge_member(state, m, world.needed[m], NULL);
}

/* ---- Older copies ---- */

static struct plx_simpower older; /* a copy of the ring; no disks: there is none */
static uint64_t older_proof[DISKS];
static struct world older_world; /* the store of then */
static unsigned long put_backs, put_back_opened;

static void copy_ring(void)
{
    power_free(&older);
    fork_with(&power, PLX_FATE_KEPT, &older);
    for (unsigned d = 0; d < DISKS; d++)
        older_proof[d] = world.disks[d].mark.proof;
    older_world = world;
}

/* No disk believes it whose mark was set since, together with the ring's other member or not. */
static void judge_mixed(struct plx_simdisk *const *members)
{
    struct host host;
    int error = host_open_members(&host, members, true);

    for (unsigned d = 0; d < DISKS && !error; d++)
        if (plx_ring_is_marked(&world.disks[d].mark) &&
            world.disks[d].mark.proof != older_proof[d] && believed(&host, &world.disks[d]))
            bad("an older copy is believed", d, world.disks[d].mark.proof);
    host_close(&host);
}

/* Twice: that it was refused changes nothing. Members that were lost since are set aside. */
static void judge_older(const struct plx_simpower *state)
{
    for (unsigned mix = 0; mix < 3 && older.count && !wrong; mix++) {
        struct plx_simpower old, now;
        struct plx_simdisk *members[PLX_RING_MEMBERS] = {NULL};
        bool all = true;

        fork_with(&older, PLX_FATE_KEPT, &old);
        fork_with(state, PLX_FATE_LOST, &now);
        for (unsigned m = 0; m < world.members; m++) {
            members[m] = mix == 2 || mix == m ? old.disks[m] : now.disks[m];
            all &= world.needed[m];
        }
        if (mix == 2 || (all && world.members > 1)) {
            judge_mixed(members);
            judge_mixed(members);
        }
        power_free(&old);
        power_free(&now);
    }
}

/* The ring is as it is, and the store an older one, which gives out epochs again. */
static void judge_put_back(const struct plx_simpower *state)
{
    struct plx_simpower now;
    struct host host;

    if (!older.count || wrong)
        return;
    fork_with(state, PLX_FATE_LOST, &now);
    if (host_open(&host, &now, (1u << world.members) - 1, true) == 0)
        for (unsigned d = 0; d < DISKS; d++) {
            const struct disk *then = &older_world.disks[d];
            struct disk *disk = &world.disks[d], now_of = *disk;

            disk->mark = then->mark;
            disk->position = then->position;
            put_backs++;
            if (believed(&host, disk) && chain_open(&host, d, then->epoch + 1) == 0) {
                put_back_opened++;
                if (host.last[d] != then->done)
                    bad("a store that was put back has other records than it had", d, host.last[d]);
            }
            *disk = now_of;
        }
    host_close(&host);
    power_free(&now);
}

/* ---- Cuts -------------------------------------------------------------------------------- */

struct nested {
    struct plx_simpower *power;
    unsigned last_volatile;
    bool busy;
};

/* A power cut during the recovery from a power cut. */
static void cut_recovery(void *context)
{
    static const enum plx_simfate how[] = {PLX_FATE_LOST, PLX_FATE_KEPT, PLX_FATE_ANY};
    struct nested *nested = context;
    unsigned count = plx_simpower_volatile(nested->power);

    if (count == nested->last_volatile || wrong)
        return;
    nested->last_volatile = count;
    for (unsigned i = 0; i < (count ? 3 : 1); i++) {
        struct plx_simpower cut;

        fork_with(nested->power, how[i], &cut);
        judge_members(&cut);
        judge_both(&cut, false);
        power_free(&cut);
        states++;
        nested_states++;
    }
}

static void cut_with(const uint8_t *fates)
{
    struct plx_simpower cut;
    struct nested nested = {.power = &cut};

    plx_simpower_fork(&power, fates, plx_simrng_next(&chance), &cut);
    plx_simpower_restore(&cut);
    judge_members(&cut);
    if (states % 7 == 0)
        judge_older(&cut);
    if (states % 3 == 0)
        judge_put_back(&cut);
    if (states++ % NESTED == 0) {
        cut.on_event = cut_recovery;
        cut.context = &nested;
    }
    judge_both(&cut, states % USED == 0 && !cut.on_event);
    cut.on_event = NULL;
    power_free(&cut);
}

static unsigned last_volatile;

static void cut_here(void *context)
{
    static const uint8_t some[] = {PLX_FATE_LOST, PLX_FATE_KEPT, PLX_FATE_KEPT,
                                   PLX_FATE_ANY,  PLX_FATE_HEAD, PLX_FATE_TAIL};
    unsigned count = plx_simpower_volatile(&power);
    uint8_t *fates;

    if (count == last_volatile || wrong)
        return;
    last_volatile = count;
    cuts++;
    fates = calloc(count + 1, 1);
    for (unsigned subset = 0; subset < 1u << (count < SUBSETS_OF ? count : SUBSETS_OF); subset++) {
        bool ends = subset == 0 || subset == (1u << SUBSETS_OF) - 1;

        if (count > SUBSETS_OF && !ends) /* all, or none */
            continue;
        for (unsigned i = 0; i < count; i++)
            fates[i] = subset >> (i < SUBSETS_OF ? i : 0) & 1 ? PLX_FATE_KEPT : PLX_FATE_LOST;
        cut_with(fates);
    }
    for (unsigned i = 0; count && i < CHOICES; i++) {
        for (unsigned k = 0; k < count; k++)
            fates[k] = some[plx_simrng_below(&chance, sizeof some)];
        cut_with(fates);
    }
    free(fates);
}

/* ---- The host that lives ----------------------------------------------------------------- */

static struct host host;
static struct plx_simdisk *disks[PLX_RING_MEMBERS];
static struct plx_ring_item items[RECORDS];
static struct iovec iovs[RECORDS];
/* A batch is written from there if all of its records' blocks are aligned; some are not. */
static _Alignas(BLOCK) uint8_t contents[RECORDS][(BLOCKS_MAX + 1) * BLOCK];
static unsigned used;
static unsigned mark_in; /* steps until the store has the marks */
static uint64_t kill_at; /* an event; 0: never */
static jmp_buf killed;
static bool dead;

static void item_done(struct plx_ring_item *item)
{
    struct disk *disk = item->owner;

    if (item->iovcnt) /* nobody reads it any more */
        memset(item->iov[0].iov_base, 0xdd, item->iov[0].iov_len);
    if (item->error || dead)
        return;
    if (item->seq != disk->done + 1)
        bad("done out of order", 9, item->seq);
    disk->done = item->seq;
}

/* The process dies: what is under way is in the members' caches, whole or not. What the ring calls
 * done from now on is not. */
static void die(void)
{
    struct plx_ring_chain_info info;

    dead = true;
    for (unsigned i = 0; i < host.count; i++)
        plx_simdisk_stop(host.devices[i], PLX_ERR_LOST);
    for (unsigned i = 0; i < 200 && host.ring; i++) {
        for (unsigned d = 0; d < DISKS && host.chains[d]; d++) { /* what waits shall end, too */
            struct plx_ring_mark to = mark_for(&host, d);

            plx_ring_chain_get_info(host.chains[d], &info);
            if (to.proof)
                plx_ring_chain_marked(host.chains[d], &to);
            plx_ring_release(host.chains[d], info.done_seq);
        }
        if (!plx_ring_turn(host.ring))
            plx_ring_wait(host.ring);
    }
}

static void maybe_die(void)
{
    if (kill_at && power.events >= kill_at && host.ring)
        longjmp(killed, 1);
}

/* The store has the marks, durably; then the ring is told. */
static void mark(void)
{
    for (unsigned d = 0; d < DISKS; d++) {
        world.disks[d].mark = mark_for(&host, d);
        plx_ring_chain_marked(host.chains[d], &world.disks[d].mark);
    }
}

static void step(void)
{
    struct plx_ring_chain_info info;

    if (!plx_ring_turn(host.ring))
        plx_ring_wait(host.ring);
    plx_ring_chain_get_info(host.chains[0], &info);
    if (!info.unmarked)
        mark_in = 5;
    else if (--mark_in == 0)
        mark();
    maybe_die();
}

static void run(unsigned steps)
{
    for (unsigned i = 0; i < steps && !wrong; i++)
        step();
}

static bool is_done(void)
{
    for (unsigned d = 0; d < DISKS; d++)
        if (world.disks[d].done < world.disks[d].appended)
            return false;
    return true;
}

/* The store has all but `left` of what was done. */
static void drain(unsigned d, uint64_t left)
{
    struct disk *disk = &world.disks[d];

    if (disk->done < disk->position.seq + left)
        return;
    disk->position.seq = disk->done - left;
    disk->position.epoch = disk->epoch_of[disk->position.seq];
    plx_ring_release(host.chains[d], disk->position.seq);
}

/* A full ring waits for what is drained. */
static void run_until_done(void)
{
    for (unsigned i = 1; i <= 20000 && !is_done() && !wrong; i++) {
        step();
        for (unsigned d = 0; d < DISKS && i % 50 == 0; d++)
            drain(d, 1);
    }
    if (!is_done())
        bad("it does not end", 9, 0);
}

static void append(unsigned d, unsigned count)
{
    struct disk *disk = &world.disks[d];

    for (unsigned i = 0; i < count; i++) {
        unsigned slot = used++ % RECORDS;
        uint64_t tag = ++last_tag;
        uint8_t *blocks = contents[slot] + (tag / 16 % 3 == 0 ? sizeof tag : 0);

        fill(tag, blocks);
        iovs[slot] = (struct iovec){blocks, blocks_of(tag) * BLOCK};
        items[slot] = (struct plx_ring_item){.record = record_of(tag),
                                             .iov = &iovs[slot],
                                             .iovcnt = blocks_of(tag) != 0,
                                             .done = item_done,
                                             .owner = disk};
        disk->tag[++disk->appended] = tag;
        disk->epoch_of[disk->appended] = disk->epoch;
        plx_ring_append(host.chains[d], &items[slot]);
    }
}

/* Without room for a proof the disk is drained; if that is not enough, its mark goes first. */
static void prove(unsigned d)
{
    static const struct plx_ring_mark none;

    for (unsigned i = 1; i <= 1000 && !wrong && !is_proven(&host, d); i++) {
        if (i % 50 == 0)
            drain(d, 0);
        if (i % 200 == 0) {
            world.disks[d].mark = none;
            plx_ring_chain_marked(host.chains[d], &none);
        }
        plx_ring_chain_prove(host.chains[d]);
        if (!plx_ring_turn(host.ring))
            plx_ring_wait(host.ring);
        maybe_die();
    }
    if (!wrong && !is_proven(&host, d))
        bad("gets no proof", d, 0);
}

/* What was found is what was appended from now on, and all of it counts. */
static void open_chains(void)
{
    for (unsigned d = 0; d < DISKS && !wrong; d++) {
        struct disk *disk = &world.disks[d];

        if (chain_open(&host, d, disk->epoch + 1))
            bad("the chain does not open", d, 0);
        if (host.last[d] < disk->done)
            bad("records that were done are missing, from", d, host.last[d] + 1);
        disk->epoch++;
        disk->appended = disk->done = host.last[d];
        maybe_die();
    }
    for (unsigned d = 0; d < DISKS && !wrong; d++)
        prove(d);
    for (unsigned i = 0; i < 5 && !wrong; i++) { /* while the store gets the marks */
        plx_ring_turn(host.ring);
        maybe_die();
    }
    if (!wrong)
        mark();
}

static void open_host(unsigned which, bool alone)
{
    if (wrong)
        return;
    if (host_open(&host, &power, which, alone)) {
        bad("does not open", 9, which);
        return;
    }
    open_chains();
}

static void begin_life(unsigned members, uint64_t seed)
{
    struct plx_ring_create_options create = {.env = &host.env.env,
                                             .segment_blocks = SEGMENT_BLOCKS};

    memset(&world, 0, sizeof world);
    memset(&power, 0, sizeof power);
    chance.state = seed * 77 + 1;
    used = 0;
    dead = false;
    mark_in = 5;
    world.members = members;
    plx_simenv_init(&host.env, seed);
    for (unsigned m = 0; m < members; m++) {
        disks[m] = plx_simdisk_new(&(struct plx_simdisk_options){.bytes = RING_BYTES,
                                                                 .block_size = 512,
                                                                 .volatile_cache = true,
                                                                 .patience = 40,
                                                                 .seed = seed * 10 + m},
                                   &power);
        host.devices[m] = plx_simdisk_attach(disks[m], m ? "second" : "first");
        world.needed[m] = true;
    }
    host.count = members;
    CU_ASSERT_EQUAL_FATAL(plx_ring_create(host.devices, members, &create, &fault), 0);
    host_close(&host);
    for (unsigned d = 0; d < DISKS; d++)
        memset(&world.disks[d].id, 'a' + (int)d, sizeof world.disks[d].id);
    host_open(&host, &power, (1u << members) - 1, false);
    open_chains();
    last_volatile = plx_simpower_volatile(&power);
    power.on_event = kill_at ? NULL : cut_here;
}

static void end_life(void)
{
    power.on_event = NULL;
    if (wrong)
        die(); /* whatever waits */
    host_close(&host);
    power_free(&power);
    power_free(&older);
}

static void reopen(unsigned which, bool alone)
{
    if (wrong)
        return;
    run_until_done();
    host_close(&host);
    copy_ring();
    open_host(which, alone);
}

/* ---- Lives ------------------------------------------------------------------------------- */

static void life_append(void)
{
    for (unsigned i = 0; i < 6; i++) {
        append(i % 2, 3);
        run(3);
    }
    run_until_done();
}

/* More than the ring holds, some of it undrained; opened again in between. */
static void life_wrap(void)
{
    for (unsigned i = 0; i < 14; i++) {
        append(i % 3 == 0, 1 + i % 4);
        run(6);
        drain(i % 3 == 0, 2);
        if (i % 5 == 4) {
            reopen((1u << world.members) - 1, false);
            drain(0, 1);
        }
    }
    run_until_done();
    drain(0, 0);
    drain(1, 0);
    append(0, 2);
    run_until_done();
}

/* The ring is full, and one of the disks cannot drain. */
static void life_full(void)
{
    append(0, 24);
    run(120);
    append(1, 2);
    run(60);
    while (!is_done() && !wrong) {
        drain(0, 3);
        run(4);
    }
}

/* A disk goes on in one segment, because the other one has all others and cannot drain. */
static void life_own(void)
{
    reopen((1u << world.members) - 1, false);
    append(1, 60);
    run(400);
    for (unsigned i = 0; i < 12 && !wrong; i++) {
        append(0, 1);
        for (unsigned k = 0; k < 200 && world.disks[0].done < world.disks[0].appended; k++)
            step();
        if (world.disks[0].done < world.disks[0].appended)
            bad("it does not go on", 0, i);
        drain(0, 0);
    }
    while (!is_done() && !wrong) {
        drain(1, 3);
        run(4);
    }
}

/* The disks are closed in order: the store has everything, and the ring forgets them. */
static void end_in_order(void)
{
    static const struct plx_ring_mark none;

    run_until_done();
    for (unsigned d = 0; d < DISKS && !wrong; d++) {
        drain(d, 0);
        world.disks[d].mark = none;
        plx_ring_chain_marked(host.chains[d], &none);
        plx_ring_chain_close(host.chains[d]);
        host.chains[d] = NULL;
        if (plx_ring_forget(host.ring, &world.disks[d].id, &fault))
            bad("is not forgotten", d, 0);
        maybe_die();
    }
    if (wrong)
        return;
    host_close(&host);
    older_world = world;
}

static void use_some(unsigned records)
{
    for (unsigned i = 0; i < records && !wrong; i++) {
        append(i % 3 == 2, 1 + i % 4);
        run(6);
    }
    run_until_done();
}

/* The store is put back twice; what is lost by that is not found again. */
static void life_put_back(void)
{
    const unsigned which = (1u << world.members) - 1;
    static struct world before;

    use_some(3);
    end_in_order();
    before = world;
    power_free(&older);
    for (unsigned future = 0; future < 3 && !wrong; future++) {
        unsigned parts = future == 0 ? 9 : 1 + future;

        world = before;
        open_host(which, false);
        use_some(parts);
        if (future < 2)
            end_in_order();
    }
}

static unsigned fails_at;
static bool drops; /* by a flush that drops, else by all I/O */

/* The first member fails, for good. */
static void fail_first(void)
{
    world.needed[0] = false;
    if (drops)
        plx_simdisk_drop_flush(disks[0], 1 + fails_at / 4);
    else
        plx_simdisk_fail_io(disks[0], 1 + fails_at, 1000000);
}

static void life_loss(void)
{
    append(0, 3);
    append(1, 1);
    run(4);
    fail_first();
    for (unsigned i = 0; i < 5; i++) {
        append(i % 2, 2);
        run(5);
    }
    run_until_done();
    drain(0, 2);
    append(0, 3);
    run_until_done();
}

/* The first member fails while batch follows batch: some are formed, and are on the members, before
 * the survivor has its new set. */
static void life_loss_in_haste(void)
{
    append(0, 2);
    run(3);
    fail_first();
    for (unsigned i = 0; i < 14; i++) {
        append(0, 1);
        run(1);
    }
    run_until_done();
}

/* The first member fails while what was found is written again: in some segments, or by a flush
 * that drops. Had its reads failed, nobody could tell what it has. */
static void life_loss_in_scan(void)
{
    append(0, 3);
    append(1, 4);
    run_until_done();
    host_close(&host);
    if (host_open(&host, &power, 3, false))
        bad("does not open", 9, 0);
    world.needed[0] = false;
    if (drops)
        plx_simdisk_drop_flush(disks[0], 1 + fails_at / 4);
    else
        plx_simdisk_fail_range(
            disks[0], PLX_RING_SEGMENTS_AT + fails_at % SEGMENTS * SEGMENT_BLOCKS * (uint64_t)BLOCK,
            RING_BYTES, false, true);
    open_chains();
    if (wrong)
        return;
    append(0, 2);
    append(1, 2);
    run_until_done();
}

static bool is_resilvering(void)
{
    struct plx_ring_info info;

    plx_ring_get_info(host.ring, &info);
    return info.resilvering;
}

static void resilver(void)
{
    unsigned i = 0;

    plx_simdisk_heal(disks[0]);
    world.needed[0] = false;
    for (i = 0; i < 2000 && plx_ring_resilver(host.ring, host.devices[0], false, &fault) && !wrong;
         i++)
        step();
    for (i = 0; is_resilvering() && !wrong; i++) {
        if (i % 9 == 0 && i < 90) {
            append(i / 9 % 2, 1);
            drain(0, 2);
            drain(1, 2);
        }
        step();
    }
    run_until_done();
    world.needed[0] = true;
}

/* A member fails, is added again while the ring goes on, and then the other one fails. */
static void life_resilver(void)
{
    struct plx_ring_info info;

    append(0, 4);
    append(1, 3);
    run(3);
    plx_simdisk_fail_io(disks[0], 1 + fails_at, 1000000);
    world.needed[0] = false;
    append(0, 2);
    run_until_done();
    append(1, 2);
    run_until_done();
    if (wrong)
        return;
    resilver();
    plx_ring_get_info(host.ring, &info);
    if (info.members != 2)
        bad("it did not become a member", 9, info.members);
    append(0, 2);
    run_until_done();
    world.needed[1] = false;
    plx_simdisk_fail_io(disks[1], 3, 1000000);
    append(1, 2);
    append(0, 2);
    run_until_done();
}

/* A device fails while it is being copied to, or the survivor while it is copied. */
static void life_resilver_fails(void)
{
    append(0, 4);
    append(1, 3);
    run_until_done();
    plx_simdisk_fail_io(disks[0], 1, 1000000);
    world.needed[0] = false;
    append(0, 1);
    run_until_done();
    for (unsigned i = 0; i < 100 && !wrong; i++)
        step();
    plx_simdisk_heal(disks[0]);
    if (plx_ring_resilver(host.ring, host.devices[0], false, &fault))
        bad("it is not added", 9, 0);
    run(2);
    plx_simdisk_fail_io(disks[0], 1 + fails_at * 2, 1000000);
    while (is_resilvering() && !wrong)
        step();
    append(1, 2);
    run_until_done();
    plx_simdisk_heal(disks[0]);
    run(50);
    resilver();
    append(0, 1);
    run_until_done();
}

/* One of two is opened by the operator's word, then both are there again. */
static void life_word(void)
{
    append(0, 3);
    append(1, 2);
    run(2);
    reopen(2, true);
    world.needed[0] = false;
    append(0, 2);
    run_until_done();
    reopen(3, false);
    append(1, 3);
    run_until_done();
    drain(1, 1);
    if (wrong)
        return;
    reopen(3, false);
    append(0, 2);
    run_until_done();
}

/* ---- Lived ------------------------------------------------------------------------------- */

static unsigned seeds(void)
{
    const char *text = getenv("PLX_RUNS");

    return text ? (unsigned)strtoul(text, NULL, 10) : 3;
}

static void live(void (*life)(void), unsigned members, uint64_t seed)
{
    begin_life(members, seed);
    if (!wrong)
        life();
    end_life();
}

/* The process is killed at this event; the next one finds the members as they are. False: it had
 * ended before. */
static bool live_and_die(void (*life)(void), unsigned members, uint64_t seed, uint64_t at)
{
    volatile bool died = false;

    kill_at = at;
    if (setjmp(killed) == 0) {
        begin_life(members, seed);
        if (!wrong)
            life();
    } else {
        died = true;
        die();
        host_close(&host);
        for (unsigned m = 0; m < members; m++)
            plx_simdisk_heal(disks[m]);
        states++;
        kills++;
        judge_both(&power, false);
    }
    kill_at = 0;
    end_life();
    return died;
}

/* least: states of each seed, half as many as there were when it was written. */
static void live_all(const char *name, void (*life)(void), unsigned members, unsigned every,
                     unsigned long least)
{
    unsigned long before = states;

    life_name = name;
    for (uint64_t seed = 1; seed <= seeds() && !wrong; seed++) {
        live(life, members, seed);
        for (uint64_t at = 1; !wrong && live_and_die(life, members, seed, at); at += every)
            ;
    }
    printf("\n    %-32s %6lu states", name, states - before);
    CU_ASSERT_EQUAL(wrong, 0);
    CU_ASSERT(wrong || states - before >= least * seeds());
}

static void live_failing(const char *name, void (*life)(void), unsigned every, unsigned long least)
{
    for (fails_at = 0; fails_at < 12 && !wrong; fails_at += 1 + fails_at / 3)
        live_all(name, life, 2, every, least);
    fails_at = 0;
}

static void test_append(void)
{
    live_all("one member", life_append, 1, 3, 30);
    live_all("two members", life_append, 2, 3, 370);
}

static void test_wrap(void)
{
    live_all("one member, wrapped", life_wrap, 1, 7, 180);
    live_all("two members, wrapped", life_wrap, 2, 7, 1850);
}

static void test_put_back(void)
{
    live_all("a store put back", life_put_back, 1, 7, 200);
    live_all("a store put back, two members", life_put_back, 2, 7, 1110);
}

static void test_full(void)
{
    live_all("full", life_full, 2, 7, 180);
    live_all("full but for one segment", life_own, 2, 7, 960);
}

static void test_loss(void)
{
    live_failing("a member fails", life_loss, 5, 200);
}

static void test_dropped(void)
{
    drops = true;
    live_failing("a member drops a flush", life_loss, 2, 170);
    live_failing("it drops a flush in haste", life_loss_in_haste, 1, 310);
    drops = false;
}

static void test_loss_in_scan(void)
{
    live_failing("a member fails in recovery", life_loss_in_scan, 3, 350);
    drops = true;
    live_failing("it drops a flush in recovery", life_loss_in_scan, 1, 410);
    drops = false;
}

static void test_resilver(void)
{
    live_failing("a member is added", life_resilver, 5, 590);
}

static void test_resilver_fails(void)
{
    live_failing("adding a member fails", life_resilver_fails, 11, 330);
}

static void test_word(void)
{
    live_all("one member by word", life_word, 2, 3, 230);
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"append", test_append},
        {"wrap", test_wrap},
        {"a store put back", test_put_back},
        {"full", test_full},
        {"a member fails", test_loss},
        {"a flush drops", test_dropped},
        {"a member fails in recovery", test_loss_in_scan},
        {"a member is added", test_resilver},
        {"adding fails", test_resilver_fails},
        {"one by word", test_word},
    };
    int failed = SUITE_RUN("ring cuts", tests);

    printf(
        "%lu crash states: %lu of %lu power cuts, %lu of cuts in recovery, %lu killed processes\n",
        states, states - nested_states - kills, cuts, nested_states, kills);
    printf("%lu disks of older stores beside them, %lu opened\n", put_backs, put_back_opened);
    if (failed || states >= LEAST * seeds())
        return failed;
    printf("these are fewer than %lu crash states\n", LEAST * seeds());
    return 1;
}
