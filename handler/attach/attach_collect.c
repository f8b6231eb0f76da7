/* attach_collect.c - a collection of a store's garbage: where the engine's mark and sweep
 * (collect.c) and the registry (collections.c) meet.
 *
 * W1  It is entered in the registry before it begins and until all that was found is swept, so no
 *     other begins, and who frees in an extent that was nobody's knows of it (alloc.c, A6).
 * W2  Extents of this instance and of nobody are looked at. What was found in one counts only if it
 *     did not change hands between the beginning and the sweep: its generation is the same.
 * W3  What was found is entered in the registry before any of it is freed, and taken out, extent by
 *     extent, before that one is. After a crash the sweep goes on with what is left.
 * W4  Whatever moved to other instances while the disks were read makes the reading start again:
 *     nodes there may be other ones by now.
 * W5  Deleted disks are forgotten when all slices are through: nothing of them is left, but in
 *     extents of other processes, which need no record to be found.
 * W6  The records of all live disks are what the registry means (doors.h), before a slice is read
 *     and after: a store that has forgotten a disk would give its blocks away.
 * W7  An extent of nobody is swept only where its header is as it was when it was given up. Another
 *     one is older, or whoever wrote it is not known to the registry: it is never believed again
 *     (attach.c, A10), nor looked at by the next collection.
 * W8  Only as much is entered as the registry has room for, if that is anything at all. The next
 *     one finds the rest, and the room of what was swept.
 * Threads: one call at a time on an attach; inside pause() others may use it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/attach_inside.h"
#include "attach/doors.h"
#include "registry/clock.h"
#include "registry/collections.h"
#include "registry/embedded.h"
#include "registry/instance.h"

#define MEMORY_DEFAULT (256ull << 20)
#define ROUNDS_MAX 4u /* W4 */

struct extents {
    struct plx_registry_extent *rows; /* by number */
    size_t count;
};

struct collect {
    struct plx_attach *attach;
    struct plx_attach_inside in;
    const struct plx_attach_work *work;
    struct plx_collected *result;
    struct plx_fault *fault;
    uint64_t extent_blocks, extent_count;
    uint64_t *living; /* instances */
    size_t living_count;
    struct extents before; /* as the reading at hand begins */
    uint8_t *classes;      /* enum plx_collect_extent of each, in the slice at hand */
    uint8_t *moved;        /* of each: W4 */
    uint64_t *bits;        /* of one extent */
    uint64_t metadata_total, metadata_before; /* bytes; read in slices before */
    uint64_t to_sweep;
};

static int no_memory(const struct collect *c)
{
    return plx_fault_set(c->fault, PLX_ERR_NOMEM, "out of memory");
}

/* ---- Hooks ---- */

static void on_progress(void *context, uint64_t metadata_bytes)
{
    struct collect *c = context;

    c->result->metadata_bytes = c->metadata_before + metadata_bytes;
    if (c->work->progress)
        c->work->progress(c->work->context, false, metadata_bytes, c->metadata_total);
}

static void on_pause(void *context)
{
    struct collect *c = context;

    plx_attach_unlock(c->attach);
    c->work->pause(c->work->context);
    plx_attach_lock(c->attach);
}

static bool on_interrupted(void *context)
{
    struct collect *c = context;

    return c->work->interrupted && c->work->interrupted(c->work->context);
}

/* ---- Who and what there is ---- */

/* Other instances than this one, all of which may be at work: the dead of this host are recovered.
 */
static int list_living(struct collect *c)
{
    struct plx_registry_instance *list;
    size_t count;
    int error = plx_registry_instance_list(c->in.registry, c->in.store_row, &list, &count);

    if (error)
        return plx_registry_fault(c->in.registry, error, c->fault);
    c->living_count = 0;
    free(c->living);
    c->living = calloc(count + 1, sizeof *c->living);
    for (size_t i = 0; c->living && i < count; i++)
        if (list[i].id != c->in.instance &&
            !plx_instance_is_dead(c->in.paths, plx_registry_locks(c->in.registry), &list[i], NULL))
            c->living[c->living_count++] = list[i].id;
    free(list);
    return c->living ? 0 : no_memory(c);
}

/* Of the collection that was entered last: its instance, which may be dead. */
static int dead_collector(const struct plx_attach_inside *in, uint64_t *ret_last,
                          uint64_t *ret_dead, struct plx_fault *fault)
{
    struct plx_registry_collection last = {0};
    struct plx_registry_instance *list;
    size_t count;
    int error;

    plx_registry_collection_get(in->registry, in->store_row, &last); /* there may be none */
    error = plx_registry_instance_list(in->registry, in->store_row, &list, &count);
    if (error)
        return plx_registry_fault(in->registry, error, fault);
    *ret_last = *ret_dead = last.instance;
    for (size_t i = 0; i < count; i++)
        if (list[i].id == last.instance &&
            !plx_instance_is_dead(in->paths, plx_registry_locks(in->registry), &list[i], NULL))
            *ret_dead = 0;
    free(list);
    return 0;
}

int plx_attach_enter_collection(struct plx_attach *attach,
                                struct plx_registry_collection *ret_entered, bool *ret_waited,
                                struct plx_fault *fault)
{
    uint64_t since_ns = plx_clock_ns(CLOCK_MONOTONIC), last, dead;
    struct plx_attach_inside in;
    struct plx_fault why;
    int error;

    plx_attach_get_inside(attach, &in);
    for (*ret_waited = false;; *ret_waited = true) {
        error = dead_collector(&in, &last, &dead, fault);
        if (error)
            return error;
        error = plx_registry_collection_begin(in.registry, in.store_row, in.instance, dead,
                                              ret_entered);
        if (!error)
            return 0;
        plx_registry_fault(in.registry, error, &why);
        if (error != PLX_ERR_BUSY || !plx_attach_ends_soon(attach, last) ||
            !plx_attach_waits(attach, since_ns, &why))
            return plx_fault_set(fault, error, "%s", why.text);
    }
}

static int list_extents(const struct collect *c, struct extents *ret_extents)
{
    int error;

    free(ret_extents->rows);
    *ret_extents = (struct extents){0};
    error = plx_registry_extent_list(c->in.registry, c->in.store_row, PLX_REGISTRY_ANY,
                                     &ret_extents->rows, &ret_extents->count);

    return error ? plx_registry_fault(c->in.registry, error, c->fault) : 0;
}

static const struct plx_registry_extent *row_of(const struct extents *extents, uint64_t number)
{
    size_t low = 0, high = extents->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (extents->rows[middle].no < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < extents->count && extents->rows[low].no == number ? &extents->rows[low] : NULL;
}

static bool in_use(const struct plx_registry_extent *row)
{
    return row->type != PLX_EXTENT_UNUSED && row->type != PLX_EXTENT_SYSTEM;
}

static bool is_ours(const struct collect *c, const struct plx_registry_extent *row)
{
    return row->owner == 0 || row->owner == c->in.instance;
}

/* ---- Marking (W2, W4) ---- */

/* The classes of a slice that begins at the extent `from`; returns where the next one does. */
static uint64_t choose_slice(struct collect *c, uint64_t from)
{
    uint64_t memory = c->work->memory ? c->work->memory : MEMORY_DEFAULT;
    uint64_t room = plx_max_u64(1, memory / (c->extent_blocks / 8));
    uint64_t next = c->extent_count;

    memset(c->classes, PLX_COLLECT_IGNORE, c->extent_count);
    for (size_t i = 0; i < c->before.count; i++) {
        const struct plx_registry_extent *row = &c->before.rows[i];

        if (!in_use(row) || row->no >= c->extent_count || row->states == PLX_STATES_NEVER)
            continue;
        if (c->moved[row->no] || !is_ours(c, row))
            c->classes[row->no] = PLX_COLLECT_MOVING;
        else if (row->no >= from && room)
            c->classes[row->no] = PLX_COLLECT_LOOK;
        else if (row->no >= from)
            next = plx_min_u64(next, row->no);
        room -= c->classes[row->no] == PLX_COLLECT_LOOK;
    }
    return next;
}

/* Whether another instance had the extent since the beginning. */
static bool has_moved(const struct collect *c, const struct plx_registry_extent *now)
{
    const struct plx_registry_extent *then = row_of(&c->before, now->no);
    uint64_t generation = then ? then->generation : 0;

    return now->generation != generation &&
           (now->owner != c->in.instance || now->generation != generation + 1);
}

static int look_who_moved(struct collect *c, bool *ret_moved)
{
    struct extents now = {0};
    int error = list_extents(c, &now);

    *ret_moved = false;
    if (error)
        return error;
    for (size_t i = 0; i < now.count; i++) {
        uint64_t number = now.rows[i].no;

        if (number >= c->extent_count || c->moved[number] || !has_moved(c, &now.rows[i]))
            continue;
        c->moved[number] = true;
        *ret_moved = true;
    }
    free(now.rows);
    return 0;
}

static int mark_once(struct collect *c, struct plx_collect **ret_mark)
{
    const struct plx_collect_options options = {
        .extents = c->classes,
        .extent_count = c->extent_count,
        .living = c->living,
        .living_count = c->living_count,
        .rate = c->work->rate,
        .progress = on_progress,
        .pause = c->work->pause ? on_pause : NULL,
        .interrupted = on_interrupted,
        .context = c,
    };
    int error;

    plx_attach_lock(c->attach);
    error = plx_collect_begin(c->in.store, &options, ret_mark, c->fault);
    if (!error) {
        error = plx_collect_mark(*ret_mark, c->fault);
        if (error)
            plx_collect_end(*ret_mark);
    }
    plx_attach_unlock(c->attach);
    return error;
}

static void end_mark(struct collect *c, struct plx_collect *mark)
{
    plx_attach_lock(c->attach);
    plx_collect_end(mark);
    plx_attach_unlock(c->attach);
}

static bool has_grown(const struct collect *c)
{
    struct plx_store_info info;

    plx_attach_lock(c->attach);
    plx_store_get_info(c->in.store, &info);
    plx_attach_unlock(c->attach);
    return info.extents != c->extent_count;
}

/* W4. After a round of which nothing came (BUSY, and the fault): others came, went or died during
 * it. 0: another one. */
static int begin_again(struct collect *c, unsigned round, uint64_t since_ns)
{
    int error;

    if (on_interrupted(c) || has_grown(c) ||
        (round + 1 >= ROUNDS_MAX && !plx_attach_waits(c->attach, since_ns, c->fault)))
        return PLX_ERR_BUSY;
    error = c->in.instance ? plx_attach_recover(c->attach, c->fault) : 0;
    return error ? error : list_living(c);
}

static int mark_slice(struct collect *c, uint64_t from, uint64_t *ret_next,
                      struct plx_collect **ret_mark)
{
    uint64_t since_ns = plx_clock_ns(CLOCK_MONOTONIC);
    bool moved = true;
    int error = 0;

    for (unsigned round = 0; moved && !error; round++) {
        error = list_extents(c, &c->before); /* W2: as it is before it begins */
        if (error)
            return error;
        *ret_next = choose_slice(c, from);
        error = mark_once(c, ret_mark);
        if (error == PLX_ERR_BUSY) { /* somebody came who may have what seemed to be nobody's */
            error = begin_again(c, round, since_ns);
            continue;
        }
        if (error)
            return error;
        error = look_who_moved(c, &moved);
        if (error || moved)
            end_mark(c, *ret_mark);
        if (error || !moved)
            continue;
        plx_fault_set(c->fault, PLX_ERR_BUSY,
                      "extents change hands faster than disks can be read; try again");
        error = begin_again(c, round, since_ns);
    }
    return error;
}

/* ---- What was found (W3) ---- */

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
        return no_memory(c);
    error = plx_registry_garbage_put(c->in.registry, c->in.store_row, &garbage);
    free(garbage.runs);
    if (error == PLX_ERR_NOT_FOUND || (error == PLX_ERR_NOSPACE && c->to_sweep)) { /* W8 */
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
    return on_interrupted(c) ? plx_fault_set(c->fault, PLX_ERR_BUSY, "interrupted") : 0;
}

static int judge_slice(struct collect *c, struct plx_collect *mark)
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

/* An extent of nobody, or of this instance, that is still what it was. *ret_taken: it was nobody's,
 * and is to be given back. */
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

/* W7. CORRUPT: not as it was told. *ret_info: as it lies on the store. */
static int look_at_nobodys(const struct collect *c, const struct plx_registry_extent *row,
                           struct plx_extent_info *ret_info)
{
    int error = plx_store_extent_read(c->in.store, row->no, ret_info, NULL);

    return !error && row->states && ret_info->states != row->states ? PLX_ERR_CORRUPT : error;
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

/* What was taken and cannot be read now is kept: whoever recovers this instance looks again. */
static int sweep_taken(struct collect *c, struct plx_registry_extent *row, bool same)
{
    struct plx_extent_info info;
    uint64_t swept = 0;
    int seen, error = 0;

    plx_attach_lock(c->attach);
    seen = look_at_nobodys(c, row, &info);
    if (!seen && same) {
        error = plx_store_extent_sweep(c->in.store, row->no, c->bits, &info, &swept, c->fault);
        row->states = error ? 0 : info.states; /* nobody knows which of its pages are durable */
        seen = error ? plx_store_extent_read(c->in.store, row->no, &info, NULL) : 0;
    }
    plx_attach_unlock(c->attach);
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
        plx_registry_garbage_drop(c->in.registry, c->in.store_row, garbage->extent); /* W3 */

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

static int sweep(struct collect *c)
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

/* ---- The whole ---- */

/* Whether the row is still as it was read: then its record should be, too. */
static bool unchanged(const struct collect *c, const struct plx_registry_vdi *row)
{
    struct plx_registry_vdi now;

    return plx_registry_vdi_get_by_id(c->in.registry, row->id, &now) == 0 && !now.deleted &&
           now.owner == row->owner && now.epoch == row->epoch;
}

/* W6: a store that has forgotten a live disk would give its blocks away. */
static int check_record(struct collect *c, const struct plx_registry_vdi *row)
{
    struct plx_vdi_info info;
    struct plx_fault why = {0};
    int error;

    plx_attach_lock(c->attach);
    error = plx_door_read(c->in.store, row, &info, &why);
    plx_attach_unlock(c->attach);
    if (error == PLX_ERR_NOT_FOUND || (!error && info.state != PLX_VDI_LIVE && row->owner))
        return 0; /* being made, or deleted */
    if (!error && info.state != PLX_VDI_LIVE)
        error = plx_fault_set(
            &why, PLX_ERR_CORRUPT,
            "virtual disk %.80s is deleted on the store, and the registry does not know of it: it "
            "lost a write; 'parallax store rebuild-registry' makes it anew from the store",
            row->name);
    if (!error || !unchanged(c, row))
        return 0;
    if (error == PLX_ERR_REGISTRY && !c->work->dry_run) /* doors.c, G2 */
        plx_registry_doubt(c->in.registry, c->in.store_row, why.text);
    return plx_fault_set(c->fault, error, "%s", why.text);
}

static int check_records(struct collect *c)
{
    struct plx_registry_vdi *list = NULL;
    size_t count = 0;
    int error =
        plx_registry_vdi_list(c->in.registry, c->in.store_row, false, NULL, 0, &list, &count);

    if (error)
        return plx_registry_fault(c->in.registry, error, c->fault);
    for (size_t i = 0; i < count && !error; i++)
        error = check_record(c, &list[i]);
    free(list);
    return error;
}

static int collect_slice(struct collect *c, uint64_t from, uint64_t *ret_next)
{
    struct plx_collect *mark;
    int error = check_records(c);

    if (!error)
        error = mark_slice(c, from, ret_next, &mark);
    if (error)
        return error;
    error = check_records(c);
    if (!error)
        error = judge_slice(c, mark);
    end_mark(c, mark);
    c->result->slices++;
    c->metadata_before = c->result->metadata_bytes;
    return error || c->work->dry_run ? error : sweep(c);
}

/* W5: clones before those they came from. */
static int forget_deleted(const struct collect *c, const struct plx_registry_vdi *deleted,
                          size_t count)
{
    bool some = true;

    while (some) {
        some = false;
        for (size_t i = 0; i < count; i++) {
            int error = plx_registry_vdi_purge(c->in.registry, deleted[i].id);

            some = some || !error;
            if (error && error != PLX_ERR_BUSY && error != PLX_ERR_NOT_FOUND)
                return plx_registry_fault(c->in.registry, error, c->fault);
        }
    }
    return 0;
}

static int collect_all(struct collect *c)
{
    struct plx_registry_vdi *deleted = NULL;
    uint64_t from = 0;
    size_t count = 0;
    int error =
        plx_registry_vdi_list(c->in.registry, c->in.store_row, true, NULL, 0, &deleted, &count);

    if (error)
        return plx_registry_fault(c->in.registry, error, c->fault);
    error = list_extents(c, &c->before);
    for (size_t i = 0; i < c->before.count && !error; i++) {
        const struct plx_registry_extent *row = &c->before.rows[i];

        c->result->elsewhere += in_use(row) && !is_ours(c, row);
        if (row->type == PLX_EXTENT_META)
            c->metadata_total += (c->extent_blocks - row->free_blocks) << PLX_BLOCK_SHIFT;
    }
    /* An estimate: free_blocks is that of the last release. */
    while (!error && from < c->extent_count)
        error = collect_slice(c, from, &from);
    for (uint64_t e = 0; e < c->extent_count; e++)
        c->result->missed += c->moved[e];
    if (!error && !c->work->dry_run)
        error = forget_deleted(c, deleted, count);
    free(deleted);
    return error;
}

static int collect_init(struct collect *c)
{
    struct plx_store_info info;

    plx_attach_get_inside(c->attach, &c->in);
    plx_attach_lock(c->attach);
    plx_store_get_info(c->in.store, &info);
    plx_attach_unlock(c->attach);
    c->extent_blocks = info.extent_blocks;
    c->extent_count = info.extents;
    c->classes = calloc(c->extent_count, 1);
    c->moved = calloc(c->extent_count, 1);
    c->bits = malloc((size_t)(c->extent_blocks / 8));
    return c->classes && c->moved && c->bits ? 0 : no_memory(c);
}

static void collect_done(struct collect *c)
{
    free(c->living);
    free(c->before.rows);
    free(c->classes);
    free(c->moved);
    free(c->bits);
}

/* W1 */
static int collect_entered(struct collect *c)
{
    struct plx_registry_collection entered;
    bool waited;
    int error = plx_attach_enter_collection(c->attach, &entered, &waited, c->fault);

    if (error)
        return error;
    if (waited)
        error = list_living(c);
    if (!error && entered.sweeping) {
        c->result->resumed = true;
        error = sweep(c);
    }
    if (!error)
        error = collect_all(c);
    if (error && (c->result->resumed || c->result->found > c->result->swept))
        return error; /* the next one goes on with it */
    if (c->result->missed)
        plx_registry_collection_want(c->in.registry, c->in.store_row);
    if (plx_registry_collection_end(c->in.registry, c->in.store_row, c->in.instance,
                                    c->result->swept, error ? 0 : entered.wanted) &&
        !error)
        error = plx_registry_fault(c->in.registry, PLX_ERR_REGISTRY, c->fault);
    return error;
}

int plx_attach_collect(struct plx_attach *attach, const struct plx_attach_work *work,
                       struct plx_collected *ret_collected, struct plx_fault *fault)
{
    struct collect c = {.attach = attach, .work = work, .result = ret_collected, .fault = fault};
    uint64_t begun_ns = plx_clock_ns(CLOCK_MONOTONIC);
    int error;

    *ret_collected = (struct plx_collected){0};
    error = collect_init(&c);
    if (!error && c.in.instance) /* else it is open for reading */
        error = plx_attach_recover(attach, fault);
    if (!error)
        error = list_living(&c);
    if (!error)
        error = work->dry_run ? collect_all(&c) : collect_entered(&c);
    collect_done(&c);
    ret_collected->nanoseconds = plx_clock_ns(CLOCK_MONOTONIC) - begun_ns;
    return error;
}
