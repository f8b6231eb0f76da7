/* collect_sweep.c - what was found entered, and swept (ATTACH_COLLECT-3). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/collect_inside.h"

/* ---- What was found (ATTACH_COLLECT-3) ---- */

static char *runs_text(const struct collect *c)
{
    size_t capacity = 256, used = 0;
    char *text = malloc(capacity);
    uint64_t at = 0;

    while (text && at < c->extent_blocks) {
        uint64_t first = at;

        if (!(c->bits[at / 64] >> at % 64)) { /* nothing in the rest of the word */
            at = (at / 64 + 1) * 64;
            continue;
        }
        while (at < c->extent_blocks && (c->bits[at / 64] >> at % 64 & 1))
            at++;
        if (at == first) {
            at++;
            continue;
        }
        if (capacity - used < 64) {
            char *bigger = realloc(text, capacity *= 2);

            if (!bigger)
                free(text);
            text = bigger;
        }
        if (text)
            used += (size_t)sprintf(text + used, "%" PRIu64 "+%" PRIu64 " ", first, at - first);
    }
    if (text)
        text[used] = 0;
    return text;
}

/* The registry is not the only copy of anything, and not believed: what lies beyond is left out. */
static void read_runs(struct collect *c, const char *text)
{
    memset(c->bits, 0, (size_t)(c->extent_blocks / 8));
    while (*text) {
        char *end;
        uint64_t first = strtoull(text, &end, 10), count;

        if (*end != '+')
            return;
        count = strtoull(end + 1, &end, 10);
        for (uint64_t i = first; i < c->extent_blocks && i - first < count; i++)
            c->bits[i / 64] |= 1ull << i % 64;
        text = *end == ' ' ? end + 1 : "";
    }
}

static int enter(struct collect *c, const struct plx_registry_extent *row, uint64_t blocks)
{
    struct plx_registry_garbage garbage = {
        .extent = row->no, .generation = row->generation, .blocks = blocks, .runs = runs_text(c)};
    int error;

    if (!garbage.runs)
        return plx_collecting_no_memory(c);
    error = plx_registry_garbage_put(c->in.registry, c->in.store_row, &garbage);
    free(garbage.runs);
    /* ATTACH_COLLECT-8 */
    if (error == PLX_ERR_NOT_FOUND || (error == PLX_ERR_NOSPACE && c->to_sweep)) {
        c->result->missed++;
        return 0;
    }
    c->to_sweep += blocks;
    return error ? plx_registry_fault(c->in.registry, error, c->fault) : 0;
}

static int judge_extent(struct collect *c, struct plx_collect *mark,
                        const struct plx_registry_extent *row)
{
    uint64_t count;
    int error;

    plx_attach_lock(c->attach);
    if (row->owner && !plx_store_extent_is_owned(c->in.store, row->no))
        error = PLX_ERR_NOT_FOUND; /* granted, and on its way */
    else
        error = plx_collect_garbage(mark, row->no, c->bits, &count, c->fault);
    plx_attach_unlock(c->attach);
    if (error) { /* a damaged one is the check's affair, and no reason to begin again */
        *(error == PLX_ERR_NOT_FOUND ? &c->result->missed : &c->result->unreadable) += 1;
        return 0;
    }
    c->result->looked++;
    c->result->found += count;
    return count && !c->work->dry_run ? enter(c, row, count) : 0;
}

static int take_turns(struct collect *c)
{
    if (c->work->pause)
        c->work->pause(c->work->context);
    return plx_collecting_on_interrupted(c) ? plx_fault_set(c->fault, PLX_ERR_BUSY, "interrupted")
                                            : 0;
}

int plx_collecting_judge_slice(struct collect *c, struct plx_collect *mark)
{
    int error = 0;

    for (size_t i = 0; i < c->before.count && !error; i++)
        if (c->before.rows[i].no < c->extent_count &&
            c->classes[c->before.rows[i].no] == PLX_COLLECT_LOOK) {
            error = judge_extent(c, mark, &c->before.rows[i]);
            if (!error)
                error = take_turns(c);
        }
    return error;
}

/* ---- Sweeping ---- */

/* An extent of nobody, or of this instance, that is still what it was (ATTACH_COLLECT-2). One of
 * this instance may have been a dead collector's: in its memory blocks were in use that no bitmap
 * on the store had, and they may have been handed out since. *ret_taken: it was nobody's, and is to
 * be given back. */
static int get_extent(struct collect *c, const struct plx_registry_garbage *garbage,
                      struct plx_registry_extent *ret_row, bool *ret_taken, bool *ret_same)
{
    struct extents own = {0};
    int error = plx_registry_extent_take(c->in.registry, c->in.store_row, garbage->extent, 0,
                                         c->in.instance, ret_row);

    *ret_taken = !error;
    *ret_same = !error && ret_row->generation == garbage->generation + 1;
    if (error && error != PLX_ERR_BUSY && error != PLX_ERR_INVALID && error != PLX_ERR_NOT_FOUND)
        return plx_registry_fault(c->in.registry, error, c->fault);
    if (!error)
        return 0;
    error = plx_registry_extent_list(c->in.registry, c->in.store_row, c->in.instance, &own.rows,
                                     &own.count);
    if (error)
        return plx_registry_fault(c->in.registry, error, c->fault);
    for (size_t i = 0; i < own.count; i++)
        if (own.rows[i].no == garbage->extent)
            *ret_same = own.rows[i].generation == garbage->generation;
    free(own.rows);
    return 0;
}

/* ATTACH_COLLECT-7. CORRUPT: older than was told. REGISTRY: newer. *ret_info: as it lies on the
 * store. */
static int look_at_nobodys(const struct collect *c, const struct plx_registry_extent *row,
                           struct plx_extent_info *ret_info, struct plx_fault *newer)
{
    int error = plx_store_extent_read(c->in.store, row->no, ret_info, NULL);

    if (error || !row->states || ret_info->states == row->states)
        return error;
    return ret_info->states < row->states
               ? PLX_ERR_CORRUPT
               : plx_door_refuse_newer_extent(c->in.store, row->no, newer);
}

/* Taking it has unsealed the row. info: what is in it by now; row->states: of that, 0: not known.
 */
static int give_back(const struct collect *c, struct plx_registry_extent *row,
                     const struct plx_extent_info *info)
{
    int error;

    row->free_blocks = info->blocks - info->used_blocks;
    row->sealed = info->sealed || row->free_blocks == 0;
    if (info->used_blocks == info->header_blocks && !info->sealed && row->states)
        row->type = PLX_EXTENT_UNUSED;
    error = plx_registry_extent_release(c->in.registry, c->in.store_row, row);
    return error ? plx_registry_fault(c->in.registry, error, c->fault) : 0;
}

static int give_up(const struct collect *c, struct plx_registry_extent *row)
{
    int error;

    row->sealed = true;
    row->free_blocks = 0;
    row->states = PLX_STATES_NEVER;
    error = plx_registry_extent_release(c->in.registry, c->in.store_row, row);
    return error ? plx_registry_fault(c->in.registry, error, c->fault) : 0;
}

/* ATTACH_COLLECT-7: its row is as it was, but for the seal. */
static int leave_newer(const struct collect *c, struct plx_registry_extent *row,
                       const struct plx_fault *newer)
{
    int error = plx_registry_doubt(c->in.registry, c->in.store_row, newer->text);

    row->sealed = true;
    if (!error)
        error = plx_registry_extent_release(c->in.registry, c->in.store_row, row);
    return error ? plx_registry_fault(c->in.registry, error, c->fault)
                 : plx_fault_set(c->fault, PLX_ERR_REGISTRY, "%s", newer->text);
}

/* What was taken and cannot be read now is kept: whoever recovers this instance looks again. */
static int sweep_taken(struct collect *c, struct plx_registry_extent *row, bool same)
{
    struct plx_extent_info info;
    struct plx_fault newer;
    uint64_t swept = 0;
    int seen, error = 0;

    plx_attach_lock(c->attach);
    seen = look_at_nobodys(c, row, &info, &newer);
    if (!seen && same) {
        error = plx_store_extent_sweep(c->in.store, row->no, c->bits, &info, &swept, c->fault);
        row->states = error ? 0 : info.states; /* nobody knows which of its pages are durable */
        seen = error ? plx_store_extent_read(c->in.store, row->no, &info, NULL) : 0;
    }
    plx_attach_unlock(c->attach);
    if (seen == PLX_ERR_REGISTRY)
        return leave_newer(c, row, &newer);
    c->result->missed += !same || error;
    c->result->unreadable += seen != 0;
    c->result->swept += swept;
    if (seen == PLX_ERR_CORRUPT)
        return give_up(c, row);
    return seen ? 0 : give_back(c, row, &info);
}

static void sweep_own(struct collect *c, uint64_t extent, bool same)
{
    struct plx_extent_info info;
    uint64_t swept = 0;
    int error = PLX_ERR_NOT_FOUND;

    plx_attach_lock(c->attach);
    if (same && plx_store_extent_is_owned(c->in.store, extent)) /* or not here yet */
        error = plx_store_extent_sweep(c->in.store, extent, c->bits, &info, &swept, c->fault);
    plx_attach_unlock(c->attach);
    c->result->missed += error != 0;
    c->result->swept += swept;
}

static int sweep_extent(struct collect *c, const struct plx_registry_garbage *garbage)
{
    struct plx_registry_extent row;
    bool taken, same;
    int error =
        /* ATTACH_COLLECT-3 */
        plx_registry_garbage_drop(c->in.registry, c->in.store_row, garbage->extent);

    if (error)
        return plx_registry_fault(c->in.registry, error, c->fault);
    error = get_extent(c, garbage, &row, &taken, &same);
    if (error)
        return error;
    read_runs(c, garbage->runs);
    if (taken)
        return sweep_taken(c, &row, same);
    sweep_own(c, garbage->extent, same);
    return 0;
}

int plx_collecting_sweep(struct collect *c)
{
    uint64_t from = 0, done = 0;
    int error =
        plx_registry_collection_sweep(c->in.registry, c->in.store_row, c->in.instance, true);

    while (!error) {
        struct plx_registry_garbage garbage = {0};

        error = plx_registry_garbage_next(c->in.registry, c->in.store_row, from, &garbage);
        if (error)
            break;
        from = garbage.extent + 1;
        error = sweep_extent(c, &garbage);
        free(garbage.runs);
        if (error)
            return error;
        done += garbage.blocks;
        if (c->work->progress)
            c->work->progress(c->work->context, true, done, c->to_sweep);
        if (take_turns(c))
            return PLX_ERR_BUSY;
    }
    if (error == PLX_ERR_NOT_FOUND)
        error =
            plx_registry_collection_sweep(c->in.registry, c->in.store_row, c->in.instance, false);
    c->to_sweep = 0;
    return error ? plx_registry_fault(c->in.registry, error, c->fault) : 0;
}
