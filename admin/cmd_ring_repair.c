/* cmd_ring_repair.c - parallax ring repair: a ring of two goes on with one, or gets another. */
#include <string.h>

#include "attach/host_ring.h"
#include "attach/ring_check.h"
#include "attach/volumes.h"
#include "cmd.h"
#include "output.h"
#include "ring_hints.h"

static void show(void *context, uint64_t done, uint64_t total)
{
    plx_progress_part(context, "copying the ring", total);
    plx_progress_show(context, done);
}

static bool is_stopped(void *context)
{
    return plx_session_stopped();
}

static int read_options(struct plx_cli *cli, struct plx_host_ring_repair *how)
{
    uint64_t size = 0;
    bool made = false;
    int rc = plx_cmd_ring_size(cli, &size);

    how->alone = plx_cli_get(cli, "i-checked-the-other-is-lost");
    how->with = plx_cli_get(cli, "with");
    how->force = plx_cli_get(cli, "force");
    if (!rc && !how->alone && !how->with)
        rc = plx_cli_usage(cli, "give --with PATH or --i-checked-the-other-is-lost");
    if (!rc && how->with && strstr(how->with, "://"))
        rc = plx_cli_usage(cli, "a ring lies on this host's own disks: a file or a block device");
    if (!rc && how->with)
        rc = plx_cmd_volume_look(cli, how->with, size, &made);
    if (!rc && how->with && !made)
        rc = plx_cmd_volume_whole(cli, how->with);
    how->create_bytes = made ? size : 0;
    return rc;
}

/* The member that the problem names: "PATH: why". One path may be the beginning of the other. */
static const char *older_member(const struct plx_ring_members *members,
                                const struct plx_fault *problem)
{
    for (unsigned i = 0; i < members->count; i++) {
        const char *path = members->member[i].path, *found = strstr(problem->text, path);

        if (found && found[strlen(path)] == ':')
            return path;
    }
    return plx_ring_members_sound(members)->path;
}

static bool all_sound(const struct plx_ring_members *members)
{
    unsigned sound = 0;

    for (unsigned i = 0; i < members->count; i++)
        sound += !members->member[i].problem.code;
    return sound == PLX_RING_MEMBERS;
}

/* HOST_RING_REPAIR-5 */
static int fail_older(struct plx_cli *cli, const struct plx_host_ring *ring, const char *store,
                      const struct plx_ring_disk *disk)
{
    const char *older = older_member(&ring->members, &disk->problem);

    if (all_sound(&ring->members))
        return plx_cli_fail(cli, PLX_ERR_RING_AWAY,
                            "%.160s lacks the newest writes of %s, and the other member may have "
                            "them: put the newer one back, or move %.160s away and repeat this",
                            older, disk->name, older);
    return plx_cli_fail(cli, PLX_ERR_RING_AWAY,
                        "%.160s lacks the newest writes of %s: bring the other member back, or "
                        "give these writes up first with 'parallax ring discard %s/%s'",
                        older, disk->name, store, disk->name);
}

/* The ring's member at that path, unless it was left out. */
static const struct plx_ring_member_seen *member_at(const struct plx_host_ring *ring,
                                                    const char *path, unsigned *ret_place)
{
    for (unsigned i = 0; i < ring->members.count; i++) {
        const struct plx_ring_member_seen *member = &ring->members.member[i];

        *ret_place = i;
        if (member->device && plx_storage_compare(path, member->path) == PLX_SAME)
            return member;
    }
    return NULL;
}

/* HOST_RING_REPAIR-8 */
static int look_for_damage(struct plx_cli *cli, const struct plx_host_ring *ring,
                           const struct plx_ring_disks *disks, struct plx_host_ring_repair *how)
{
    struct plx_ring_member_state state, other;
    const struct plx_ring_member_seen *member;
    struct plx_fault damage;
    unsigned place;

    member = how->with ? member_at(ring, how->with, &place) : NULL;
    if (!member || ring->members.count == 1)
        return 0;
    plx_ring_member_weigh(ring, disks, member, &state);
    plx_ring_member_weigh(ring, disks, &ring->members.member[place ^ 1], &other);
    if (!plx_ring_member_damage(&state, member->path, &damage))
        return 0;
    if (other.damaged || other.headers || other.behind)
        return plx_cli_fail(cli, PLX_ERR_CORRUPT,
                            "%.300s, and lacks others itself, so none of them is overwritten; "
                            "'parallax vdi set %s/VDI --ring off' for each virtual disk brings the "
                            "writes to the store, from both",
                            damage.text, ring->way.store);
    how->damaged = true;
    return 0;
}

/* What the store tells of the members, if it can be asked. */
static int look_at_members(struct plx_cli *cli, const struct plx_host_ring *ring,
                           struct plx_host_ring_repair *how)
{
    struct plx_ring_disks disks = {0};
    struct plx_fault untold;
    struct plx_known known;
    int rc = plx_cmd_ring_disks(cli, ring, &known, &disks, &untold);

    for (size_t i = 0; i < disks.count && !rc; i++) {
        const struct plx_ring_disk *disk = &disks.disk[i];

        if (disk->marked && disk->problem.code == PLX_ERR_RING_AWAY)
            rc = fail_older(cli, ring, known.name, disk);
        else if (disk->marked && disk->problem.code && how->alone)
            plx_out_warning("%s/%s: this member by itself cannot be used for it, and the other one "
                            "may have what is damaged here, so keep that one, if it is found: "
                            "%.300s",
                            known.name, disk->name, disk->problem.text);
    }
    if (!rc && !untold.code)
        rc = look_for_damage(cli, ring, &disks, how);
    if (!rc && how->with && !how->force) /* HOST_RING_REPAIR-9 */
        rc = plx_ring_check_left(ring, untold.code ? NULL : plx_session_store(cli), how->with,
                                 &cli->fault);
    plx_ring_disks_done(&disks);
    plx_known_done(&known);
    return rc;
}

static void print(struct plx_cli *cli, const struct plx_host_ring *ring, bool with)
{
    const struct plx_ring_member_seen *alone = plx_ring_members_alone(&ring->members);
    char members[PLX_KNOWN_RING_TEXT];

    if (!alone) /* until now */
        alone = plx_ring_members_sound(&ring->members);

    plx_known_ring_name_members(&ring->way, members);
    if (with)
        plx_out_note(cli, "%s: the ring lies on %s", ring->way.store, members);
    else
        plx_out_note(cli,
                     "%s: the ring goes on with %s alone; 'parallax ring repair %s --with PATH' "
                     "gives it another member",
                     ring->way.store, alone->path, ring->way.store);
    plx_out_done(cli, json_pack("{s:s,s:s,s:i,s:b}", "store", ring->way.store, "ring",
                                ring->way.ring, "members", with ? 2 : 1, "alone", !with));
}

int plx_cmd_ring_repair(struct plx_cli *cli)
{
    struct plx_progress progress = {.cli = cli};
    struct plx_host_ring_repair how = {
        .progress = show, .interrupted = is_stopped, .context = &progress};
    struct plx_host_ring ring;
    struct plx_paths *paths;
    struct plx_name name;
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_STORE, &name)) || (rc = read_options(cli, &how)) ||
        (rc = plx_session_paths(cli, &paths)))
        return rc;
    how.patience = plx_session_patience(cli); /* HOST_RING_REPAIR-4 */
    rc = plx_host_ring_open(paths, name.store, PLX_RING_ALONE, how.patience, &ring, &cli->fault);
    if (rc == PLX_ERR_BUSY)
        plx_ring_hint_busy(cli, name.store);
    if (rc == PLX_ERR_NOT_FOUND)
        rc = plx_cli_fail(cli, rc,
                          "this host knows no ring of store '%.80s'; if a member is left, "
                          "'parallax ring create %.80s MEMBER --i-checked-the-other-is-lost' goes "
                          "on with it",
                          name.store, name.store);
    if (rc)
        return rc;
    if (plx_ring_members_sound(&ring.members))
        rc = look_at_members(cli, &ring, &how);
    if (!rc)
        rc = plx_host_ring_repair(paths, &ring, &how, &cli->fault);
    plx_progress_end(&progress);
    if (!rc)
        print(cli, &ring, how.with);
    plx_host_ring_close(&ring);
    return rc;
}
