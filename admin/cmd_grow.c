/* cmd_grow.c - parallax store: grow, add-volume.
 *
 * The change is this process's: store, then registry (attach.h). Then the other instances on this
 * host are notified; one that cannot be reached notices the new space when it needs an extent.
 */
#include <inttypes.h>
#include <string.h>

#include "cmd.h"
#include "output.h"

static int tell(struct plx_cli *cli, const char *store, unsigned *ret_told)
{
    struct plx_fault why = {0};
    int rc = plx_session_tell(cli, store, "volumes", ret_told, &why);

    if (!rc && why.code)
        plx_out_note(cli, "%s: it takes the new space into use when it needs it", why.text);
    return rc;
}

/* Long before it is full: that may be years later, in the middle of a write. */
static void tell_stays(struct plx_cli *cli, const char *store, const struct plx_store_info *info,
                       enum plx_registry_stays stays)
{
    if (stays == PLX_REGISTRY_NO_EXTENTS)
        plx_out_note(cli,
                     "its registry has less room than so large a store may need ('parallax store "
                     "info'), and %s has no more for it: make that one larger, then 'parallax "
                     "store grow %s'",
                     info->volume[0].name, store);
    if (stays == PLX_REGISTRY_NO_SPANS)
        plx_out_note(cli,
                     "its registry has less room than so large a store may need ('parallax store "
                     "info'), and was made larger as often as it can be: make a further store "
                     "before that is full");
}

static json_t *sealed_json(const struct plx_grown *grown)
{
    json_t *list = json_array();

    for (unsigned i = 0; i < grown->sealed_count; i++)
        json_array_append_new(list, json_integer((json_int_t)grown->sealed[i]));
    return list;
}

/* Also when it has failed. */
static void tell_sealed(struct plx_cli *cli, const char *store, const struct plx_grown *grown)
{
    for (unsigned i = 0; i < grown->sealed_count; i++)
        plx_out_note(cli,
                     "extent %" PRIu64 " was to be the registry's, was never used, and its header "
                     "is damaged: nothing is lost, nobody uses it from now on; 'parallax store "
                     "check %s' says what it finds there",
                     grown->sealed[i], store);
}

/* path: of 'store add-volume', which the store has already; NULL: of 'store grow'. */
static void tell_nothing_added(struct plx_cli *cli, const char *store, const char *path,
                               const char *size)
{
    struct plx_known_place place = {0};
    struct plx_known known = {0};
    struct plx_paths *paths;
    unsigned v = 0;

    if (path && plx_session_paths(cli, &paths) == 0 &&
        plx_known_get(paths, store, &known, NULL) == 0 &&
        plx_known_at(&known, 1, NULL, path, &place, NULL) == 0 && place.known)
        while (v < known.volumes && strcmp(known.volume[v], place.path) != 0)
            v++;
    if (place.known && v < known.volumes)
        plx_out_note(cli, "%s is volume %u of store %s already (%s); nothing was added", path, v,
                     store, place.path);
    else
        plx_out_note(cli, "%s has all there is already: %s", store, size);
    plx_known_done(&known);
}

static void print_grown(struct plx_cli *cli, const char *store, const char *path,
                        const struct plx_grown *grown, unsigned told)
{
    bool dry = plx_cli_get(cli, "dry-run") != NULL;
    struct plx_store_info info = {0};
    char size[16], added[16];

    plx_store_get_info(plx_session_store(cli), &info);
    uint64_t extent_bytes = info.extent_blocks * info.block_size;
    plx_text_size(grown->added * extent_bytes, added);
    plx_text_size(grown->extents * extent_bytes, size);
    if (grown->restored)
        plx_out_note(cli,
                     "a superblock of %s was older than its registry, for the device lost a write; "
                     "it %s written again",
                     store, dry ? "would be" : "is");
    if (!grown->added)
        tell_nothing_added(cli, store, path, size);
    else
        plx_out_note(cli, "%s %s by %s to %s", store, dry ? "would grow" : "grew", added, size);
    tell_stays(cli, store, &info, grown->registry_stays);
    if (cli->json)
        plx_out_json(json_pack("{s:s,s:b,s:I,s:I,s:I,s:i,s:b,s:b,s:o}", "store", store, "dry_run",
                               dry, "added_bytes", (json_int_t)(grown->added * extent_bytes),
                               "size_bytes", (json_int_t)(grown->extents * extent_bytes),
                               "added_extents", (json_int_t)grown->added, "told", (int)told,
                               "registry_stays", grown->registry_stays != PLX_REGISTRY_FITS,
                               "restored", grown->restored, "sealed_extents", sealed_json(grown)));
}

static int grow(struct plx_cli *cli, const char *store, const struct plx_attach_growth *growth)
{
    struct plx_grown grown = {0};
    unsigned told = 0;
    int rc;

    if ((rc = plx_session_open(cli, store,
                               growth->how.dry_run ? PLX_SESSION_READ : PLX_SESSION_GROW)))
        return rc;
    rc = plx_attach_grow(cli->session.attach, growth, &grown, &cli->fault);
    tell_sealed(cli, store, &grown);
    if (rc || (!growth->how.dry_run && (rc = tell(cli, store, &told))))
        return rc;
    print_grown(cli, store, growth->path, &grown, told);
    return 0;
}

int plx_cmd_store_grow(struct plx_cli *cli)
{
    struct plx_attach_growth growth = {.how.dry_run = plx_cli_get(cli, "dry-run")};
    struct plx_name name;
    int rc = plx_cli_name(cli, 0, PLX_NAME_STORE, &name);

    return rc ? rc : grow(cli, name.store, &growth);
}

int plx_cmd_store_add_volume(struct plx_cli *cli)
{
    struct plx_attach_growth growth = {
        .path = cli->arguments[1],
        .unused = plx_cli_get(cli, "i-checked-nobody-uses-it"),
        .how = {.dry_run = plx_cli_get(cli, "dry-run"), .force = plx_cli_get(cli, "force")},
    };
    struct plx_name name;
    uint64_t size = 0;
    bool made = false;
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_STORE, &name)) ||
        (rc = plx_cli_size(cli, "size", &size)) ||
        (rc = plx_cmd_volume_look(cli, growth.path, size, &made)) ||
        (!made && (rc = plx_cmd_volume_whole(cli, growth.path))))
        return rc;
    if (made && growth.how.dry_run)
        return plx_cli_usage(cli, "--dry-run looks at a volume that exists, and %.150s does not",
                             growth.path);
    growth.create_bytes = made ? size : 0;
    return grow(cli, name.store, &growth);
}
