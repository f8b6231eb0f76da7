/* attach_dedup.c - a store's deduplication: where the engine's (dedup.c) and the registry meet.
 *
 * ATTACH_DEDUP-1  No collection runs anywhere in the store while a deduplication does. It is
 *     entered in the registry as a collection from before it learns the first address of a common
 *     block until after it has used the last (SHARE-5). If its process dies, the next collection or
 *     deduplication takes the entry over.
 * ATTACH_DEDUP-2  A deduplication does not end a collection that was interrupted while it swept.
 *     The entry stays as it is, and the next collection goes on with it.
 * ATTACH_DEDUP-3  A process that shares blocks first makes sure that the store allows common
 *     blocks: unless it knows that already, it reads the superblocks again. No other process has to
 *     be told, since every process that can open the store can read common blocks, and keeps them.
 * Threads: one call at a time on an attach; others may use the attach inside pause().
 */
#include <stdlib.h>

#include "attach/attach_inside.h"
#include "registry/clock.h"
#include "registry/collections.h"

struct attach_dedup {
    struct plx_attach *attach;
    struct plx_attach_inside in;
    const struct plx_attach_work *work;
    struct plx_attach_deduped *result;
    struct plx_fault *fault;
    struct plx_registry_vdi *rows;
    struct plx_vdi **opened; /* of each row: by this; NULL: not */
    size_t count;
};

/* ---- Keeping collections out (ATTACH_DEDUP-1) ---- */

static int enter(const struct attach_dedup *d)
{
    struct plx_registry_collection entered;
    bool waited;
    int error = plx_attach_enter_collection(d->attach, &entered, &waited, d->fault);

    if (error)
        return error;
    return entered.sweeping ? plx_fault_set(d->fault, PLX_ERR_BUSY, /* ATTACH_DEDUP-2 */
                                            "a collection was broken off; 'parallax gc' goes on "
                                            "with it, then try again")
                            : 0;
}

static int leave(const struct attach_dedup *d, int error)
{
    int left = plx_registry_collection_leave(d->in.registry, d->in.store_row, d->in.instance);

    return error ? error : left ? plx_registry_fault(d->in.registry, left, d->fault) : 0;
}

/* ATTACH_DEDUP-3 */
static int look_whether_allowed(const struct attach_dedup *d)
{
    bool allowed;

    plx_attach_lock(d->attach);
    allowed = plx_store_allows_common(d->in.store);
    plx_attach_unlock(d->attach);
    return allowed ? 0 : plx_attach_volumes_changed(d->attach, d->fault);
}

/* ---- Disks ---- */

static bool is_open_here(const struct attach_dedup *d, const struct plx_registry_vdi *row)
{
    return row->owner == d->in.instance;
}

static int open_disks(struct attach_dedup *d, bool wanted)
{
    const struct plx_attach_vdi_options as_it_is = {.overwrite = -1};
    int error =
        plx_registry_vdi_list(d->in.registry, d->in.store_row, false, NULL, 0, &d->rows, &d->count);

    if (error)
        return plx_registry_fault(d->in.registry, error, d->fault);
    d->opened = calloc(d->count + 1, sizeof *d->opened);
    if (!d->opened)
        return plx_fault_set(d->fault, PLX_ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < d->count; i++) {
        struct plx_fault why; /* it is left out, and can be opened by itself to learn it */

        if (!is_open_here(d, &d->rows[i]) &&
            (!wanted ||
             plx_attach_vdi_open(d->attach, d->rows[i].name, NULL, &as_it_is, &d->opened[i], &why)))
            d->result->elsewhere++;
    }
    return 0;
}

/* Their key frames free what was let go of. */
static int close_disks(struct attach_dedup *d, int error)
{
    for (size_t i = 0; d->opened && i < d->count; i++) {
        int closed = d->opened[i] ? plx_attach_vdi_close(d->attach, d->opened[i]) : 0;

        if (closed && !error)
            error = plx_fault_set(d->fault, closed, "closing %s: %s; the next open recovers it",
                                  d->rows[i].name, plx_error_text(closed));
    }
    free(d->opened);
    free(d->rows);
    return error;
}

/* ---- Hooks ---- */

static void on_progress(void *context, bool comparing, uint64_t done, uint64_t total)
{
    const struct attach_dedup *d = context;

    if (d->work->progress)
        d->work->progress(d->work->context, comparing, done, total);
}

static void on_pause(void *context)
{
    const struct attach_dedup *d = context;

    plx_attach_unlock(d->attach);
    d->work->pause(d->work->context);
    plx_attach_lock(d->attach);
}

static bool on_interrupted(void *context)
{
    const struct attach_dedup *d = context;

    return d->work->interrupted && d->work->interrupted(d->work->context);
}

/* ---- The whole ---- */

static int share(struct attach_dedup *d)
{
    const struct plx_dedup_options options = {
        .dry_run = d->work->dry_run,
        .memory = d->work->memory,
        .rate = d->work->rate,
        .pause = d->work->pause ? on_pause : NULL,
        .interrupted = on_interrupted,
        .progress = on_progress,
        .context = d,
    };
    int error;

    plx_attach_lock(d->attach);
    error = plx_store_dedup(d->in.store, &options, &d->result->what, d->fault);
    plx_attach_unlock(d->attach);
    return error;
}

static int open_and_share(struct attach_dedup *d, bool open)
{
    int error = open_disks(d, open);

    return close_disks(d, error ? error : share(d));
}

int plx_attach_dedup(struct plx_attach *attach, bool open, const struct plx_attach_work *work,
                     struct plx_attach_deduped *ret_deduped, struct plx_fault *fault)
{
    struct attach_dedup d = {.attach = attach, .work = work, .result = ret_deduped, .fault = fault};
    uint64_t begun_ns = plx_clock_ns(CLOCK_MONOTONIC);
    int error = 0;

    *ret_deduped = (struct plx_attach_deduped){0};
    plx_attach_get_inside(attach, &d.in);
    if (work->dry_run) {
        error = open_and_share(&d, open);
    } else {
        error = look_whether_allowed(&d);
        if (!error)
            error = enter(&d);
        if (!error) /* closed before it leaves: a number that changes leaves more to collections */
            error = leave(&d, open_and_share(&d, open));
    }
    ret_deduped->nanoseconds = plx_clock_ns(CLOCK_MONOTONIC) - begun_ns;
    return error;
}
