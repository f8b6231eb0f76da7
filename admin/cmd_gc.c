/* cmd_gc.c - parallax gc: collect what no virtual disk uses any more. */
#include <inttypes.h>

#include "cmd.h"
#include "output.h"

/* Reading first, then freeing: a bar for each. */
static void show(void *context, bool sweeping, uint64_t done, uint64_t total)
{
    if (sweeping)
        plx_progress_part(context, "freeing", total * PLX_BLOCK_SIZE);
    else
        plx_progress_part(context, "reading metadata", done < total ? total : 0);
    plx_progress_show(context, sweeping ? done * PLX_BLOCK_SIZE : done);
}

static void print(struct plx_cli *cli, const struct plx_collected *collected, bool dry_run)
{
    static const struct plx_column columns[] = {
        {"found_bytes", "Found", PLX_COLUMN_SIZE},
        {"freed_bytes", "Freed", PLX_COLUMN_SIZE},
        {"extents_looked_at", "Extents looked at", PLX_COLUMN_NUMBER},
        {"extents_missed", "Left to the next one", PLX_COLUMN_NUMBER},
        {"extents_elsewhere", "Other processes' extents", PLX_COLUMN_NUMBER},
        {"extents_unreadable", "Damaged extents", PLX_COLUMN_NUMBER},
        {"metadata_bytes", "Metadata read", PLX_COLUMN_SIZE},
        {"slices", "Slices", PLX_COLUMN_NUMBER},
        {"duration_ns", "Time", PLX_COLUMN_DURATION},
        {NULL, NULL, 0},
    };

    plx_out_object(
        cli, columns,
        json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:b,s:b}", "found_bytes",
                  (json_int_t)(collected->found * PLX_BLOCK_SIZE), "freed_bytes",
                  (json_int_t)(collected->swept * PLX_BLOCK_SIZE), "extents_looked_at",
                  (json_int_t)collected->looked, "extents_missed", (json_int_t)collected->missed,
                  "extents_elsewhere", (json_int_t)collected->elsewhere, "extents_unreadable",
                  (json_int_t)collected->unreadable, "metadata_bytes",
                  (json_int_t)collected->metadata_bytes, "slices", (json_int_t)collected->slices,
                  "duration_ns", (json_int_t)collected->nanoseconds, "resumed", collected->resumed,
                  "dry_run", dry_run));
}

int plx_cmd_gc(struct plx_cli *cli)
{
    struct plx_progress progress = {.cli = cli};
    struct plx_session_job collecting = {
        .dry_run = plx_cli_get(cli, "dry-run") != NULL, .progress = show, .context = &progress};
    struct plx_collected collected = {0};
    struct plx_name name;
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_STORE, &name)) ||
        (rc = plx_cli_memory(cli, &collecting.memory)) ||
        (rc = plx_cli_rate(cli, &collecting.rate)))
        return rc;
    rc = plx_session_collect(cli, name.store, &collecting, &collected);
    plx_progress_end(&progress);
    if (rc)
        return rc;
    if (collected.resumed)
        plx_out_note(cli, "went on with a collection that had been broken off");
    if (collecting.dry_run)
        plx_out_note(cli, "this is what would be; nothing was freed");
    print(cli, &collected, collecting.dry_run);
    if (collected.missed)
        plx_out_note(cli,
                     "%" PRIu64
                     " extent%s changed hands meanwhile, or the registry had no room for "
                     "what was found there; the next collection looks there again",
                     collected.missed, plx_plural(collected.missed));
    if (collected.unreadable)
        plx_out_note(cli,
                     "%" PRIu64
                     " extent%s %s damaged and left untouched; 'parallax store check' says "
                     "which",
                     collected.unreadable, plx_plural(collected.unreadable),
                     plx_is_or_are(collected.unreadable));
    return 0;
}
