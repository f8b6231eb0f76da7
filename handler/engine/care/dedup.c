/* dedup.c - deduplication: finds equal blocks among the disks that are open here, and lets each
 * group share one common block (share.c).
 *
 * The space of checksums is worked on in slices. One slice, step by step:
 *
 *  no  step    function            what is left
 *   1  gather  gather              blocks of all disks whose checksum is in the slice: candidates
 *   2  group   keep_groups         candidates whose checksum is not the only one of its kind
 *   3  hash    run_stage (HASH)    the same, known by a hash of 64 bits of their contents
 *   4  group   keep_groups         candidates whose hash is not the only one of its kind
 *   5  make    run_stage (MAKE)    each group has a common block: a copy of its first block
 *   6  join    run_stage (JOIN)    the others of the group map that common block
 *
 * DEDUP-1  Nothing here can change a disk's contents. A group is only a guess: disks go on, and
 *     different blocks may have equal checksums or hashes. PLX_SHARE compares byte by byte under
 *     the range lock of a write (SHARE-4), so the guess may be wrong, even about which disk has a
 *     slot.
 * DEDUP-2  A block that a snapshot or a clone sees takes no part. It would stay where it is and
 *     could only get a copy. Of k equal blocks that take part, k - 1 come free, or k if there is a
 *     common block already. So the next key frame gives back the space that sharing takes.
 * DEDUP-3  Memory is bounded. When the candidates of a slice fill it, the slice becomes shorter: hi
 *     comes down. Of each common block only one name is kept as a candidate. If a slice of a single
 *     checksum still does not fit, the candidates that are left out wait for the next
 *     deduplication.
 * DEDUP-4  Before anything is written for a candidate, a 64-bit hash of its contents takes the
 *     place of its checksum. With only 24 bits, a large store has many different blocks of the same
 *     checksum.
 * DEDUP-5  The address of a common block stays valid throughout, because no collection runs
 *     meanwhile (SHARE-5).
 * DEDUP-6  Disks at work never wait long. Millions of candidates are sorted in place, in pieces,
 *     with turns of the loop in between. Without turns remains one pass over the candidates, some
 *     10 ms for a million.
 *
 * Loop: the store's. The call is synchronous. Other calls come in at its pauses, so it looks disks
 *   up again after each pause.
 * Crash story: that of each PLX_SHARE by itself. There is no state that would be resumed.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/hash.h"
#include "engine/disk/share.h"

#define MEMORY_DEFAULT (256ull << 20)
#define CANDIDATES_MIN 1024u
#define CHECKSUMS (1u << 24)
#define LOOKUPS 4096u /* mappings looked at between two pauses */
#define SORTED 1024u  /* candidates sorted between two pauses */
#define DEPTH 32u     /* requests in flight */

#define GONE UINT64_MAX /* the key of a candidate that no longer takes part */

struct candidate {
    uint64_t key;    /* its checksum; from step 3 on its hash (DEDUP-4) */
    uint64_t common; /* the address of the common block that it maps; 0: none */
    uint64_t vblock : 36, slot : 28;
};

enum stage {
    STAGE_HASH,
    STAGE_MAKE,
    STAGE_JOIN,
};

struct batch {
    struct plx_request requests[DEPTH];
    struct plx_share shares[DEPTH];
    struct iovec iovs[DEPTH];
    size_t of[DEPTH]; /* the candidate of each request */
    unsigned count, pending;
    uint8_t *buffers; /* PLX_SHARE_BUFFER bytes for each request */
};

struct dedup {
    struct plx_store *store;
    const struct plx_dedup_options *options;
    struct plx_deduped *result;
    struct plx_fault *fault;
    struct candidate *candidates;
    size_t count, capacity;
    bool full;       /* the slice cannot become shorter (DEDUP-3) */
    uint32_t lo, hi; /* the slice: checksums from lo to before hi */
    uint32_t slot;   /* of the disk being gathered */
    uint64_t begun_ns, bytes_read;
    uint64_t steps, steps_total; /* progress in this slice: each candidate counts once a stage */
    struct batch batch;
};

/* ---- Turns ---- */

static int take_turns(struct dedup *d)
{
    const struct plx_dedup_options *options = d->options;
    const struct plx_turns turns = {.rate = options->rate,
                                    .pause = options->pause,
                                    .interrupted = options->interrupted,
                                    .context = options->context};

    if (options->progress)
        options->progress(options->context, d->steps_total != 0, d->steps, d->steps_total);
    return plx_store_take_turns(d->store, &turns, d->begun_ns, d->bytes_read)
               ? 0
               : plx_fault_set(d->fault, PLX_ERR_BUSY,
                               "interrupted; what has become common stays so");
}

/* ---- Disks ---- */

/* The first healthy disk from this slot on that is open for writing. */
static struct plx_vdi *next_disk(const struct plx_store *store, uint64_t slot)
{
    struct plx_vdi *next = NULL;

    for (struct plx_vdi *vdi = store->vdis; vdi; vdi = vdi->next)
        if (!vdi->snapshot && vdi->record.slot >= slot && plx_vdi_health(vdi, NULL) == 0 &&
            (!next || vdi->record.slot < next->record.slot))
            next = vdi;
    return next;
}

static struct plx_vdi *disk_of(const struct dedup *d, const struct candidate *c)
{
    struct plx_vdi *vdi = next_disk(d->store, c->slot);

    return vdi && vdi->record.slot == c->slot ? vdi : NULL;
}

/* ---- Candidates ---- */

static void swap(struct candidate *a, struct candidate *b)
{
    struct candidate c = *a;

    *a = *b;
    *b = c;
}

static int by_key(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    if (x->common != y->common) /* the common ones first */
        return x->common > y->common ? -1 : 1;
    if (x->slot != y->slot)
        return x->slot < y->slot ? -1 : 1;
    return x->vblock < y->vblock ? -1 : x->vblock > y->vblock;
}

/* Quicksort's partition of at least two candidates; returns where the upper part begins. The pivot
 * is random, so that no contents of disks can make sorting slow. */
static size_t partition(struct dedup *d, size_t from, size_t to)
{
    struct candidate *c = d->candidates, pivot;
    size_t low = from, high = to - 1;
    uint64_t random;

    d->store->env->random(d->store->env, &random, sizeof random);
    swap(&c[from], &c[from + random % (to - from)]); /* in front: then neither part is empty */
    pivot = c[from];
    for (;;) {
        while (by_key(&c[low], &pivot) < 0)
            low++;
        while (by_key(&c[high], &pivot) > 0)
            high--;
        if (low >= high)
            return high + 1;
        swap(&c[low++], &c[high--]);
    }
}

/* DEDUP-6. Recursion takes the smaller part and the loop the larger one, so the stack stays small.
 */
static int sort_some(struct dedup *d, size_t from, size_t to)
{
    int error = 0;

    while (!error && to - from > SORTED) {
        size_t middle = partition(d, from, to);
        bool lower = middle - from < to - middle;

        error = lower ? sort_some(d, from, middle) : sort_some(d, middle, to);
        *(lower ? &from : &to) = middle;
    }
    if (error)
        return error;
    qsort(d->candidates + from, to - from, sizeof *d->candidates, by_key);
    return take_turns(d);
}

/* Sorts the candidates and keeps one name of each common block (DEDUP-3). */
static int sort(struct dedup *d)
{
    struct candidate last = {0};
    size_t kept = 0;
    int error = sort_some(d, 0, d->count);

    for (size_t i = 0; i < d->count && !error; i++) {
        const struct candidate *c = &d->candidates[i];

        if (c->common && c->common == last.common)
            continue;
        last = *c;
        d->candidates[kept++] = last;
    }
    d->count = kept;
    return error;
}

/* The end of the group that begins at `first`: the candidates with the same key. */
static size_t group_end(const struct dedup *d, size_t first)
{
    size_t end = first + 1;

    while (end < d->count && d->candidates[end].key == d->candidates[first].key)
        end++;
    return end;
}

/* Keeps the groups of two or more candidates of which at least one is not common yet. */
static int keep_groups(struct dedup *d)
{
    size_t kept = 0;
    int error = sort(d);

    if (error)
        return error;
    for (size_t first = 0, end; first < d->count; first = end) {
        end = group_end(d, first);
        if (d->candidates[first].key == GONE || end - first < 2 || d->candidates[end - 1].common)
            continue;
        memmove(&d->candidates[kept], &d->candidates[first], (end - first) * sizeof *d->candidates);
        kept += end - first;
    }
    d->count = kept;
    return 0;
}

/* DEDUP-3: lowers hi until at least half of the room is free. If that is impossible, `full` says
 * not to try again in this slice. */
static int make_room(struct dedup *d)
{
    size_t kept = 0;
    int error = sort(d);

    if (error || d->count <= d->capacity / 2)
        return error;
    d->hi = (uint32_t)plx_max_u64(d->lo + 1, d->candidates[d->count / 2].key);
    while (kept < d->count && d->candidates[kept].key < d->hi)
        kept++;
    d->count = kept;
    d->full = d->count > d->capacity / 2;
    return 0;
}

static void on_mapping(void *context, uint64_t vblock, const struct plx_mapping *mapping)
{
    struct dedup *d = context;
    uint64_t common = plx_addr_is_common(mapping->addr) ? mapping->addr : 0;
    const struct candidate c = {
        .key = mapping->checksum, .common = common, .vblock = vblock, .slot = d->slot};
    bool takes_part = mapping->checksum && (common || mapping->writable); /* DEDUP-2 */

    if (d->lo == 0) { /* every slice looks at every block; only the first one counts them */
        d->result->mapped++;
        d->result->common += common != 0;
        d->result->seen += !common && !mapping->writable;
        d->result->unknown += !common && mapping->writable && !mapping->checksum;
    }
    if (takes_part && c.key >= d->lo && c.key < d->hi && d->count < d->capacity)
        d->candidates[d->count++] = c;
}

/* How many mappings to look at: no more than there is room for. */
static unsigned lookups(const struct dedup *d)
{
    return d->full ? LOOKUPS : (unsigned)plx_min_u64(LOOKUPS, d->capacity - d->count);
}

static int gather_disk(struct dedup *d, uint32_t slot)
{
    uint64_t vblock = 0;
    int error = 0;

    d->slot = slot;
    while (!error && vblock != UINT64_MAX) {
        struct plx_vdi *vdi = next_disk(d->store, slot);

        if (!vdi || vdi->record.slot != slot)
            return 0;
        error = plx_vdi_each_mapping(vdi, lookups(d), &vblock, on_mapping, d, d->fault);
        if (plx_error_is_unreadable(error)) { /* verify.c reports such damage */
            d->result->unreadable++;
            return 0;
        }
        if (!error)
            error = take_turns(d);
        if (!error && d->count == d->capacity && !d->full)
            error = make_room(d);
    }
    return error;
}

static int gather(struct dedup *d)
{
    struct plx_vdi *vdi;
    int error = 0;

    d->count = d->steps = d->steps_total = 0;
    d->full = false;
    for (uint64_t slot = 0; !error && (vdi = next_disk(d->store, slot)); slot++) {
        slot = vdi->record.slot;
        d->result->disks += d->lo == 0;
        error = gather_disk(d, (uint32_t)slot);
    }
    return error;
}

/* ---- Requests ---- */

static void on_done(struct plx_request *request)
{
    --*(unsigned *)request->owner;
}

static void put(struct dedup *d, enum stage stage, size_t of, uint64_t target)
{
    struct batch *b = &d->batch;
    unsigned i = b->count++;

    b->of[i] = of;
    b->shares[i] = (struct plx_share){.common = target};
    b->iovs[i] = (struct iovec){b->buffers + (size_t)i * PLX_SHARE_BUFFER,
                                stage == STAGE_HASH ? PLX_BLOCK_SIZE : PLX_SHARE_BUFFER};
    b->requests[i] = (struct plx_request){
        .op = stage == STAGE_HASH ? PLX_READ : PLX_SHARE,
        .offset = (uint64_t)d->candidates[of].vblock << PLX_BLOCK_SHIFT,
        .length = PLX_BLOCK_SIZE,
        .iov = &b->iovs[i],
        .iovcnt = 1,
        .share = &b->shares[i],
        .done = on_done,
        .owner = &b->pending,
    };
}

#define CLOSED PLX_ERR_NOT_FOUND /* the result of a request whose disk is not open any more */

/* Whether an error concerns only this block or its disk, so that the others go on. */
static bool is_its_own(int error)
{
    return plx_error_is_unreadable(error) || error == PLX_ERR_STICKY ||
           error == PLX_ERR_RANGE /* another, smaller disk has the slot now */ || error == CLOSED;
}

static void note_result(struct dedup *d, struct candidate *c, const struct plx_share *share)
{
    d->result->made += share->result == PLX_SHARE_MADE;
    d->result->joined += share->result == PLX_SHARE_JOINED;
    if (share->result == PLX_SHARE_ABSENT || share->result == PLX_SHARE_DIFFERS)
        c->key = GONE; /* DEDUP-1 */
    else
        c->common = share->common;
}

static int settle(struct dedup *d, enum stage stage, unsigned i)
{
    const struct batch *b = &d->batch;
    struct candidate *c = &d->candidates[b->of[i]];
    const struct plx_request *request = &b->requests[i];

    d->bytes_read += request->iov->iov_len;
    d->result->compared += stage == STAGE_HASH;
    if (is_its_own(request->result)) {
        d->result->unreadable += plx_error_is_unreadable(request->result);
        c->key = GONE;
        return 0;
    }
    if (request->result)
        return plx_fault_set(d->fault, request->result, "%s; what has become common stays so",
                             request->fault.text);
    if (stage == STAGE_HASH)
        c->key = plx_hash64(request->iov->iov_base, PLX_BLOCK_SIZE) >> 1; /* not GONE */
    else
        note_result(d, c, request->share);
    return 0;
}

static int run_batch(struct dedup *d, enum stage stage)
{
    struct batch *b = &d->batch;
    int error = 0;

    b->pending = b->count;
    for (unsigned i = 0; i < b->count; i++) {
        struct plx_vdi *vdi = disk_of(d, &d->candidates[b->of[i]]);

        if (vdi) {
            plx_vdi_submit(vdi, &b->requests[i]);
            continue;
        }
        b->requests[i].result = CLOSED;
        b->pending--;
    }
    plx_store_run_until_zero(d->store, &b->pending);
    for (unsigned i = 0; i < b->count; i++) {
        int result = settle(d, stage, i);

        error = error ? error : result;
    }
    b->count = 0;
    return error ? error : take_turns(d);
}

/* Whether this stage has a request for the candidate. *ret_target: the common block to join. */
static bool is_due(const struct dedup *d, enum stage stage, size_t first, size_t i,
                   uint64_t *ret_target)
{
    const struct candidate *c = &d->candidates[i], *head = &d->candidates[first];

    *ret_target = 0;
    if (c->key == GONE)
        return false;
    if (stage == STAGE_JOIN)
        *ret_target = head->common;
    return stage == STAGE_HASH || (!c->common && (stage == STAGE_MAKE) == (i == first) &&
                                   (stage == STAGE_MAKE || head->common));
}

static int run_stage(struct dedup *d, enum stage stage)
{
    size_t first = 0, end = 0;
    int error = 0;

    for (size_t i = 0; i < d->count && !error; i++) {
        uint64_t target;

        if (i == end) { /* now, while all keys of the group are equal: none is GONE or hashed yet */
            first = i;
            end = group_end(d, first);
        }
        d->steps++;
        if (is_due(d, stage, first, i, &target))
            put(d, stage, i, target);
        if (d->batch.count == DEPTH)
            error = run_batch(d, stage);
    }
    return error || !d->batch.count ? error : run_batch(d, stage);
}

/* ---- The whole ---- */

/* A dry run: counts what sharing would do. */
static void count_groups(struct dedup *d)
{
    for (size_t first = 0, end; first < d->count; first = end) {
        size_t i = first;

        end = group_end(d, first);
        while (d->candidates[i].common) /* ends: keep_groups() leaves a last one that is not */
            i++;
        d->result->made += i == first;
        d->result->joined += end - i - (i == first);
    }
}

static int do_slice(struct dedup *d)
{
    int error;

    d->hi = CHECKSUMS;
    error = gather(d);
    if (!error)
        error = keep_groups(d);
    if (error)
        return error;
    d->steps_total = d->count * 3;
    error = run_stage(d, STAGE_HASH);
    if (!error)
        error = keep_groups(d);
    if (error)
        return error;
    d->steps_total = d->steps + d->count * 2;
    if (d->options->dry_run) {
        count_groups(d);
        return 0;
    }
    error = run_stage(d, STAGE_MAKE);
    return error ? error : run_stage(d, STAGE_JOIN);
}

static int do_all(struct dedup *d)
{
    int error = 0;

    for (d->lo = 0; d->lo < CHECKSUMS && !error; d->lo = d->hi) {
        error = do_slice(d);
        d->result->slices++;
    }
    return error;
}

static int dedup_init(struct dedup *d)
{
    uint64_t memory = d->options->memory ? d->options->memory : MEMORY_DEFAULT;

    d->begun_ns = d->store->env->monotonic_ns(d->store->env);
    d->capacity = plx_max_u64(CANDIDATES_MIN, memory / sizeof *d->candidates);
    d->candidates = malloc(d->capacity * sizeof *d->candidates);
    d->batch.buffers = aligned_alloc(PLX_BLOCK_SIZE, DEPTH * PLX_SHARE_BUFFER);
    return d->candidates && d->batch.buffers
               ? 0
               : plx_fault_set(d->fault, PLX_ERR_NOMEM, "out of memory");
}

int plx_store_dedup(struct plx_store *store, const struct plx_dedup_options *options,
                    struct plx_deduped *ret_deduped, struct plx_fault *fault)
{
    struct dedup d = {.store = store, .options = options, .result = ret_deduped, .fault = fault};
    int error;

    *ret_deduped = (struct plx_deduped){0};
    error = options->dry_run ? 0 : plx_share_begin(store, fault); /* DEDUP-5 */
    if (error)
        return error;
    error = dedup_init(&d);
    if (!error)
        error = do_all(&d);
    free(d.candidates);
    free(d.batch.buffers);
    if (!options->dry_run)
        plx_share_end(store);
    return error;
}
