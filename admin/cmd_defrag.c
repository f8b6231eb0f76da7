/* cmd_defrag.c - parallax defrag: a virtual disk's scattered blocks are brought together.
 *
 * CMD_DEFRAG-1  The work consists of slices (PLX_MOVE) on the disk, which is open here or in a
 *     handler. Each slice is complete in itself. So defrag can be interrupted between any two, and
 *     keeps no state to resume from.
 * CMD_DEFRAG-2  Blocks that cannot be read stay where they are and are counted, and the rest moves.
 *     Every slice ends further on the disk than it began. A slice that does not ends the command
 *     with its error.
 * CMD_DEFRAG-3  When there is no room, a key frame is written, because it frees the old places of
 *     blocks that were moved. If that does not help, the command ends.
 */
#include <inttypes.h>
#include <time.h>

#include "cmd.h"
#include "output.h"
#include "attach/doors.h"

/* A slice: the disk's other requests wait for their turn on the loop while so many windows are
 * looked at, a key frame to end, while so much is moved. */
#define SLICE_WINDOWS 32u
#define SLICE_BLOCKS 256u

struct defrag {
    struct plx_cli *cli;
    struct plx_name name;
    uint64_t end, rate;
    bool clone;
    uint64_t started_ns;
    struct plx_move before, done; /* sums: of measuring, of moving */
    uint64_t unreadable;          /* windows: CMD_DEFRAG-2 */
    struct plx_progress progress;
};

/* ---- Measuring, moving ---- */

static int interrupted(struct defrag *d)
{
    return plx_session_stopped()
               ? plx_cli_fail(d->cli, PLX_ERR_SYSTEM,
                              "interrupted; what has been moved stays so, and the next 'parallax "
                              "defrag' goes on from there")
               : 0;
}

/* CMD_DEFRAG-2: *ret_skipped, a window could not be read and is behind it now. */
static int slice(struct defrag *d, struct plx_move *move, bool *ret_skipped)
{
    uint64_t from = move->upto;
    int rc = plx_session_vdi_move(d->cli, &d->name, d->end, move);
    bool further = move->upto > from;

    *ret_skipped = further && plx_error_is_unreadable(rc);
    if (!rc && !further)
        return plx_cli_fail(d->cli, PLX_ERR_SYSTEM,
                            "%s/%.100s: nothing moves at byte %" PRIu64
                            "; what was moved before stays so",
                            d->name.store, d->name.vdi, from);
    return *ret_skipped ? 0 : rc;
}

static int measure(struct defrag *d)
{
    bool skipped; /* told when it comes to moving */
    int rc = 0;

    d->before = (struct plx_move){.windows = SLICE_WINDOWS, .dry_run = true};
    while (!rc && d->before.upto < d->end && !(rc = interrupted(d)))
        rc = slice(d, &d->before, &skipped);
    return rc;
}

/* So that no more than the rate was moved since the beginning. A signal ends the sleep. */
static void throttle(const struct defrag *d)
{
    uint64_t passed_ns = plx_out_monotonic_ns() - d->started_ns, due_ns;

    if (!d->rate)
        return;
    due_ns = (uint64_t)((double)(d->done.moved * PLX_BLOCK_SIZE) / (double)d->rate * 1e9);
    if (due_ns > passed_ns) {
        const struct timespec left = {.tv_sec = (time_t)((due_ns - passed_ns) / 1000000000),
                                      .tv_nsec = (long)((due_ns - passed_ns) % 1000000000)};

        nanosleep(&left, NULL);
    }
}

static int move_slice(struct defrag *d, uint64_t *room_tried)
{
    bool skipped;
    int rc = slice(d, &d->done, &skipped);

    if (skipped) {
        plx_progress_clear(&d->progress);
        plx_out_note(d->cli, "%s", d->cli->fault.text);
        d->unreadable++;
    }
    if (rc == PLX_ERR_NOSPACE && d->done.moved > *room_tried) { /* CMD_DEFRAG-3 */
        *room_tried = d->done.moved;
        return plx_session_vdi_keyframe(d->cli, &d->name);
    }
    return rc;
}

static int move_all(struct defrag *d)
{
    uint64_t room_tried = 0;
    int rc = 0;

    d->started_ns = plx_out_monotonic_ns();
    d->done = (struct plx_move){.windows = SLICE_WINDOWS, .blocks = SLICE_BLOCKS};
    plx_progress_begin(&d->progress, d->cli, "defrag", d->before.mapped * PLX_BLOCK_SIZE);
    while (!rc && d->done.upto < d->end && !(rc = interrupted(d))) { /* CMD_DEFRAG-1 */
        rc = move_slice(d, &room_tried);
        plx_progress_show(&d->progress, d->done.mapped * PLX_BLOCK_SIZE);
        throttle(d);
    }
    plx_progress_end(&d->progress);
    return rc;
}

/* ---- Telling ---- */

static uint64_t average(const struct plx_move *move, uint64_t runs)
{
    return runs ? move->mapped * PLX_BLOCK_SIZE / runs : 0;
}

static void print(struct defrag *d, bool dry_run)
{
    static const struct plx_column columns[] = {
        {"name", "Name", PLX_COLUMN_TEXT},
        {"mapped_bytes", "Mapped", PLX_COLUMN_SIZE},
        {"shared_bytes", "  of snapshots or clones", PLX_COLUMN_SIZE},
        {"fragments_before", "Fragments before", PLX_COLUMN_NUMBER},
        {"run_bytes_before", "  on average", PLX_COLUMN_SIZE},
        {"fragments_after", "Fragments after", PLX_COLUMN_NUMBER},
        {"run_bytes_after", "  on average", PLX_COLUMN_SIZE},
        {"moved_bytes", "Moved", PLX_COLUMN_SIZE},
        {"unreadable", "Unreadable places", PLX_COLUMN_NUMBER},
        {NULL, NULL, 0},
    };
    const struct plx_move *before = &d->before, *after = dry_run ? &d->before : &d->done;
    json_t *object = json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:b}", "mapped_bytes",
                               (json_int_t)(before->mapped * PLX_BLOCK_SIZE), "shared_bytes",
                               (json_int_t)(before->shared * PLX_BLOCK_SIZE), "fragments_before",
                               (json_int_t)before->runs_before, "run_bytes_before",
                               (json_int_t)average(before, before->runs_before), "fragments_after",
                               (json_int_t)after->runs_after, "run_bytes_after",
                               (json_int_t)average(after, after->runs_after), "moved_bytes",
                               (json_int_t)(after->moved * PLX_BLOCK_SIZE), "unreadable",
                               (json_int_t)d->unreadable, "dry_run", dry_run);

    json_object_set_new(object, "name", json_sprintf("%s/%s", d->name.store, d->name.vdi));
    if (dry_run)
        plx_out_note(d->cli, "this is what would be; nothing was moved");
    plx_out_object(d->cli, columns, object);
    if (before->mapped && before->shared == before->mapped)
        plx_out_note(d->cli,
                     "snapshots, clones or other disks have all blocks of %s/%s as well%s, so none "
                     "of them can be moved",
                     d->name.store, d->name.vdi,
                     d->clone ? ", or its origin had them when it was cloned" : "");
}

int plx_cmd_defrag(struct plx_cli *cli)
{
    struct defrag d = {.cli = cli};
    bool dry_run = plx_cli_get(cli, "dry-run");
    struct plx_registry_vdi row;
    struct plx_vdi_info info;
    int rc;

    cli->session.dry = dry_run;
    if ((rc = plx_cli_name(cli, 0, PLX_NAME_VDI, &d.name)) || (rc = plx_cli_rate(cli, &d.rate)) ||
        (rc = plx_session_open(cli, d.name.store, PLX_SESSION_WRITE)) ||
        (rc = plx_session_vdi_row(cli, &d.name, &row)) ||
        (rc = plx_door_read(plx_session_store(cli), &row, &info, &cli->fault)))
        return rc;
    d.clone = *row.parent;
    d.end = info.size_bytes / PLX_BLOCK_SIZE * PLX_BLOCK_SIZE;
    if ((rc = measure(&d)))
        return rc;
    if (dry_run) {
        print(&d, true);
        return 0;
    }
    if (!(rc = move_all(&d)) && d.done.moved) /* the old places are free then */
        rc = plx_session_vdi_keyframe(cli, &d.name);
    if (!rc)
        print(&d, false);
    return rc;
}
