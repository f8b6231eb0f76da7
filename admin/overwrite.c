/* overwrite.c - see overwrite.h.
 *
 * OVERWRITE-1  A volume of a store is never written to as a file, whatever --force says. Where the
 *     store is known its place tells, whatever is left there. Where it is not known its superblocks
 *     tell, the spare one as well as the others. Both are asked by the calls that 'store format'
 *     asks (occupied.h), so the answers cannot differ.
 * OVERWRITE-2  An entry of the state directory that cannot be read may be that of a store which has
 *     a volume there. So nothing that holds anything is overwritten then, unless it is known to be
 *     refused anyway, with better words. A new file holds nothing, nor does one that a shell has
 *     just made for standard output: an export under a new name always goes on.
 * OVERWRITE-3  A block device that cannot be read is refused. A file that cannot be read is not:
 *     whoever may replace it in its folder could delete it as well.
 * OVERWRITE-4  Nor is a ring's member ever written to as a file: the ring may hold what a store
 *     lacks. By its place where the ring is this host's, else by its superblock.
 * Threads: the command's.
 * Crash story: nothing is written here.
 */
#include "overwrite.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attach/known_rings.h"
#include "output.h"

#define REFUSED "it is not overwritten, with --force neither: choose another name"

/* OVERWRITE-1: by where it lies. */
static int refuse_place(struct plx_cli *cli, const char *path, bool empty)
{
    char text[PLX_KNOWN_PLACE_TEXT];
    struct plx_known_place place = {0};
    struct plx_known *list = NULL;
    struct plx_paths *paths;
    struct plx_fault why;
    size_t count = 0;
    int rc = plx_session_paths(cli, &paths);

    if (rc)
        return rc;
    rc = plx_known_list(paths, &list, &count, &why);
    if (!rc)
        rc = plx_known_at(list, count, NULL, path, &place, &why);
    if (place.known) {
        plx_known_name_place(&place, path, text);
        rc = plx_cli_fail(cli, PLX_ERR_EXISTS, "%s; " REFUSED, text);
    } else if (rc && empty) { /* OVERWRITE-2 */
        rc = 0;
    } else if (rc) {
        plx_cli_fail(cli, rc,
                     "%.100s may be a volume of a store whose entry cannot be read, so it is not "
                     "overwritten: choose a new name, or mend that: %.300s",
                     path, why.text);
    }
    plx_known_list_free(list, count);
    return rc;
}

/* OVERWRITE-4: by where it lies. */
static int refuse_ring_place(struct plx_cli *cli, const char *path, bool empty)
{
    struct plx_fault why;
    int rc = plx_known_ring_refuse(cli->session.paths, path, &why);

    if (!rc || (rc != PLX_ERR_EXISTS && empty)) /* OVERWRITE-2 */
        return 0;
    if (rc == PLX_ERR_EXISTS)
        return plx_cli_fail(cli, rc, "%.*s; " REFUSED, (int)strcspn(why.text, ";"), why.text);
    return plx_cli_fail(cli, rc,
                        "%.100s may be a member of a ring whose entry cannot be read, so it is not "
                        "overwritten: choose a new name, or mend that: %.300s",
                        path, why.text);
}

/* OVERWRITE-1, OVERWRITE-4: by what it holds. */
static int refuse_superblock(struct plx_cli *cli, const char *path, struct plx_device *device)
{
    struct plx_superblock_info store;
    struct plx_ring_super ring;
    bool is_ring;
    int rc = plx_superblock_probe(device, &store, NULL);

    is_ring = rc == PLX_ERR_NOT_FOUND;
    if (is_ring)
        rc = plx_ring_recognise(device, &ring, NULL);
    if (!rc || rc == PLX_ERR_CORRUPT || rc == PLX_ERR_UNSUPPORTED)
        return plx_cli_fail(cli, PLX_ERR_EXISTS, "%.120s is a %s; " REFUSED, path,
                            is_ring ? "member of a ring" : "volume of a store, or a copy of one");
    return rc;
}

static int refuse_opened(struct plx_cli *cli, const char *path, const char *open_name)
{
    struct plx_device_open_options options = {.read_only = true, .beside = true};
    struct plx_device *device;
    int rc = plx_device_open(open_name, &options, &device, NULL);

    if (!rc) {
        rc = refuse_superblock(cli, path, device);
        plx_device_close(device);
    }
    if (rc == PLX_ERR_NOT_FOUND) /* or it is empty */
        return 0;
    return rc == PLX_ERR_EXISTS
               ? rc
               : plx_cli_fail(cli, rc,
                              "%.120s: cannot be read, so nobody knows whether it is a volume of "
                              "a store: %s",
                              path, plx_error_text(rc));
}

/* The device opens it by its descriptor: a path may be longer than a volume's name. */
static int refuse_contents(struct plx_cli *cli, const char *path, bool must_open)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC), rc;
    char name[64];

    if (fd < 0 && must_open) /* OVERWRITE-3 */
        return plx_out_file_error(cli, path, "open");
    if (fd < 0)
        return 0;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    rc = refuse_opened(cli, path, name);
    close(fd);
    return rc;
}

int plx_overwrite_refuse(struct plx_cli *cli, const char *path)
{
    struct stat st;
    int rc;

    if (stat(path, &st) || (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode)))
        return 0;
    bool empty = S_ISREG(st.st_mode) && st.st_size == 0;
    rc = refuse_place(cli, path, empty);
    if (!rc)
        rc = refuse_ring_place(cli, path, empty);
    return rc ? rc : refuse_contents(cli, path, S_ISBLK(st.st_mode));
}
