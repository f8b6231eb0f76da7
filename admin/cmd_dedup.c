/* cmd_dedup.c - parallax dedup: equal blocks of a store's virtual disks share their space. */
#include <inttypes.h>

#include "cmd.h"
#include "output.h"

/* How many blocks there are is not known before they have been looked at. */
static void show(void *context, bool comparing, uint64_t done, uint64_t total)
{
    plx_progress_part(context, comparing ? "comparing" : "reading metadata",
                      total * PLX_BLOCK_SIZE);
    plx_progress_show(context, done * PLX_BLOCK_SIZE);
}

static void print(struct plx_cli *cli, const struct plx_attach_deduped *deduped, bool dry_run)
{
    static const struct plx_column columns[] = {
        {"disks", "Virtual disks", PLX_COLUMN_NUMBER},
        {"mapped_bytes", "Mapped", PLX_COLUMN_SIZE},
        {"common_bytes", "  shared before", PLX_COLUMN_SIZE},
        {"seen_bytes", "  of snapshots or clones", PLX_COLUMN_SIZE},
        {"unknown_bytes", "  without a checksum", PLX_COLUMN_SIZE},
        {"compared_bytes", "Compared", PLX_COLUMN_SIZE},
        {"saved_bytes", "Saved", PLX_COLUMN_SIZE},
        {"unreadable", "Unreadable blocks", PLX_COLUMN_NUMBER},
        {"slices", "Slices", PLX_COLUMN_NUMBER},
        {"duration_ns", "Time", PLX_COLUMN_DURATION},
        {NULL, NULL, 0},
    };
    const struct plx_deduped *d = &deduped->what;

    plx_out_object(cli, columns,
                   json_pack("{s:i,s:i,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:i,s:I,s:b}", "disks",
                             (int)d->disks, "disks_elsewhere", (int)deduped->elsewhere,
                             "mapped_bytes", (json_int_t)(d->mapped * PLX_BLOCK_SIZE),
                             "common_bytes", (json_int_t)(d->common * PLX_BLOCK_SIZE), "seen_bytes",
                             (json_int_t)(d->seen * PLX_BLOCK_SIZE), "unknown_bytes",
                             (json_int_t)(d->unknown * PLX_BLOCK_SIZE), "compared_bytes",
                             (json_int_t)(d->compared * PLX_BLOCK_SIZE), "saved_bytes",
                             (json_int_t)(d->joined * PLX_BLOCK_SIZE), "unreadable",
                             (json_int_t)d->unreadable, "slices", (int)d->slices, "duration_ns",
                             (json_int_t)deduped->nanoseconds, "dry_run", dry_run));
}

/* Where no block could take part, that is no reason to think that none is equal to another. */
static void tell_left_out(struct plx_cli *cli, const struct plx_deduped *d)
{
    uint64_t left = d->mapped - d->common;

    if (left && d->seen + d->unknown == left)
        plx_out_note(cli, "no blocks were compared: all that are not shared yet %s%s%s",
                     d->seen ? "belong to snapshots or clones" : "",
                     d->seen && d->unknown ? ", or " : "",
                     d->unknown ? "have no checksum yet" : "");
}

int plx_cmd_dedup(struct plx_cli *cli)
{
    struct plx_progress progress = {.cli = cli};
    struct plx_session_job how = {
        .dry_run = plx_cli_get(cli, "dry-run") != NULL, .progress = show, .context = &progress};
    struct plx_attach_deduped deduped = {0};
    struct plx_name name;
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_STORE, &name)) ||
        (rc = plx_cli_memory(cli, &how.memory)) || (rc = plx_cli_rate(cli, &how.rate)))
        return rc;
    rc = plx_session_dedup(cli, name.store, &how, &deduped);
    plx_progress_end(&progress);
    if (rc)
        return rc;
    if (how.dry_run)
        plx_out_note(cli, "this is what would be; nothing was changed");
    if (deduped.elsewhere)
        plx_out_note(
            cli,
            "%u virtual disk%s left out: open in another process, closed beside a handler, or "
            "impossible to open",
            deduped.elsewhere, plx_plural(deduped.elsewhere));
    print(cli, &deduped, how.dry_run);
    if (deduped.what.joined && !how.dry_run)
        plx_out_note(cli,
                     "what was saved is free for use after the next collection: 'parallax gc %s'; "
                     "until then the store is rather fuller than before",
                     name.store);
    tell_left_out(cli, &deduped.what);
    return 0;
}
