/* cmd_superblock.c - parallax store restore-superblock: a volume whose first blocks were
 * overwritten. */
#include "attach/occupied.h"
#include "attach/ring_members.h"
#include "attach/volumes.h"
#include "cmd.h"
#include "output.h"

/* What has become of the device may be, or hold, a volume of another store, or a ring's member. */
static int refuse_others(struct plx_cli *cli, struct plx_device *device,
                         const struct plx_superblock_info *info)
{
    char identity[PLX_UUID_TEXT];
    struct plx_paths *paths;
    int rc = plx_session_paths(cli, &paths);

    plx_uuid_text(&info->identity, identity);
    if (!rc)
        rc = plx_occupied_refuse_place(paths, device, identity, &cli->fault);
    return rc ? rc : plx_ring_members_refuse(device, &cli->fault);
}

static int restore(struct plx_cli *cli, const char *path, bool dry_run,
                   struct plx_superblock_info *ret_info)
{
    struct plx_device_open_options options = {
        .exclusive = true, .read_only = dry_run, .patience = plx_session_patience(cli)};
    struct plx_device *device;
    int rc = plx_occupied_name_living(path, plx_device_open(path, &options, &device, &cli->fault),
                                      &cli->fault);

    if (rc)
        return rc;
    rc = plx_superblock_restore(device, true, ret_info, &cli->fault);
    if (!rc)
        rc = refuse_others(cli, device, ret_info);
    if (!rc && !dry_run)
        rc = plx_superblock_restore(device, false, ret_info, &cli->fault);
    plx_device_close(device);
    return rc;
}

int plx_cmd_store_restore_superblock(struct plx_cli *cli)
{
    bool dry_run = plx_cli_get(cli, "dry-run");
    const char *path = cli->arguments[0];
    struct plx_superblock_info info;
    int rc;

    if (!dry_run && !plx_cli_get(cli, "i-checked-nobody-uses-it"))
        return plx_cli_fail(cli, PLX_ERR_UNCONFIRMED,
                            "what overwrote the superblock may be in use: look what the device "
                            "holds now, and add --i-checked-nobody-uses-it; --dry-run shows which "
                            "volume it was");
    if ((rc = restore(cli, path, dry_run, &info)))
        return rc;
    plx_out_note(cli, "%s %s volume %u of store %s%s", path, dry_run ? "was" : "is again",
                 info.volume_index, info.store_name, dry_run ? "; nothing was changed" : "");
    if (info.number_lost && !cli->json) /* NUMBERS-8 */
        plx_out_warning(
            "%s: what overwrote it took its number, too, so nobody can tell whether its "
            "content is the newest: if it was put back to an older state, put the "
            "newer one back before the store is used",
            path);
    if (!dry_run)
        plx_out_note(cli,
                     info.volume_index
                         ? "next: 'parallax store check %s' shows whether all of the store is there"
                         : "next: 'parallax store info %s' tells whether the page that names its "
                           "host is lost, too, and what rewrites it; then 'parallax store check'",
                     info.store_name);
    plx_out_done(cli, json_pack("{s:o,s:s,s:i,s:b,s:b}", "volume", plx_out_string(path), "store",
                                info.store_name, "index", (int)info.volume_index, "number_lost",
                                info.number_lost, "dry_run", dry_run));
    return 0;
}
