/* collect_mark.c - a slice of the store marked: what is in use (ATTACH_COLLECT-2,
 * ATTACH_COLLECT-4). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/collect_inside.h"

/* The classes of a slice that begins at the extent `from`; returns where the next one does. */
static uint64_t choose_slice(struct collect *c, uint64_t from)
{
    uint64_t memory = c->work->memory ? c->work->memory : MEMORY_DEFAULT;
    uint64_t room = plx_max_u64(1, memory / (c->extent_blocks / 8));
    uint64_t next = c->extent_count;

    memset(c->classes, PLX_COLLECT_IGNORE, c->extent_count);
    for (size_t i = 0; i < c->before.count; i++) {
        const struct plx_registry_extent *row = &c->before.rows[i];

        if (!plx_collecting_in_use(row) || row->no >= c->extent_count ||
            row->states == PLX_STATES_NEVER)
            continue;
        if (c->moved[row->no] || !plx_collecting_is_ours(c, row))
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
    const struct plx_registry_extent *then = plx_collecting_row_of(&c->before, now->no);
    uint64_t generation = then ? then->generation : 0;

    return now->generation != generation &&
           (now->owner != c->in.instance || now->generation != generation + 1);
}

static int look_who_moved(struct collect *c, bool *ret_moved)
{
    struct extents now = {0};
    int error = plx_collecting_list_extents(c, &now);

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
        .progress = plx_collecting_on_progress,
        .pause = c->work->pause ? plx_collecting_on_pause : NULL,
        .interrupted = plx_collecting_on_interrupted,
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

void plx_collecting_end_mark(struct collect *c, struct plx_collect *mark)
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

/* ATTACH_COLLECT-4. After a round of which nothing came (BUSY, and the fault): others came, went or
 * died during it. 0: another one. */
static int begin_again(struct collect *c, unsigned round, uint64_t since_ns)
{
    int error = plx_attach_unrecovered(c->attach, c->fault);

    if (error)
        return error; /* nobody else has to end first */
    if (plx_collecting_on_interrupted(c) || has_grown(c) ||
        (round + 1 >= ROUNDS_MAX && !plx_attach_waits(c->attach, since_ns, c->fault)))
        return PLX_ERR_BUSY;
    error = c->in.instance ? plx_attach_recover(c->attach, c->fault) : 0;
    return error ? error : plx_collecting_list_living(c);
}

int plx_collecting_mark_slice(struct collect *c, uint64_t from, uint64_t *ret_next,
                              struct plx_collect **ret_mark)
{
    uint64_t since_ns = plx_clock_ns(CLOCK_MONOTONIC);
    bool moved = true;
    int error = 0;

    for (unsigned round = 0; moved && !error; round++) {
        /* ATTACH_COLLECT-2: as it is before it begins */
        error = plx_collecting_list_extents(c, &c->before);
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
            plx_collecting_end_mark(c, *ret_mark);
        if (error || !moved)
            continue;
        plx_fault_set(c->fault, PLX_ERR_BUSY,
                      "extents change hands faster than disks can be read; try again");
        error = begin_again(c, round, since_ns);
    }
    return error;
}
