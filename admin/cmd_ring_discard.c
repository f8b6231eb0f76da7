/* cmd_ring_discard.c - parallax ring discard: the operator discards a ring's writes to a virtual
 * disk (ATTACH-21). The command says before how many they are, as far as the ring can be read here,
 * and how many stay.
 *
 * CMD_RING_DISCARD-1  What the disk's mark does not claim may be needed by a newer state of the
 *     store. It goes by a word of its own only (--also-set-aside), so that a command line which is
 *     repeated discards nothing more than the first time.
 * CMD_RING_DISCARD-2  A ring that is there and in use is not taken for one that cannot be read: its
 *     writes get to the store without the operator's doing, or by draining it.
 * CMD_RING_DISCARD-3  Before anything is discarded, the command names what would lose nothing. What
 *     one of two members has is not counted while the other is missing: that one may have more.
 */
#include <inttypes.h>
#include <string.h>

#include "attach/doors.h"
#include "attach/host_ring.h"
#include "cmd.h"
#include "output.h"
#include "ring_hints.h"

#define SET_ASIDE                                                                                  \
    "%" PRIu64 " writes of it that were set aside on this host's ring: " PLX_RING_WHY_ASIDE

/* Where the ring is that the disk's record names. */
enum where { ELSEWHERE, UNREADABLE, LACKS_MEMBER, AWAY, USABLE };

struct given_up {
    bool marked; /* the disk's record names a ring */
    enum where where;
    bool gone;                /* UNREADABLE, as a whole: nobody's writes on it can be read */
    struct plx_fault problem; /* code not 0: why this host's ring cannot be used */
    bool known;               /* what is on it: */
    uint64_t records, bytes, aside;
    uint64_t kept;     /* besides, which this state of the store does not know */
    uint32_t segments; /* which the disk has taken */
    /* Somebody has this host's ring open, so nobody looked at what is on it: */
    bool in_use;
    char by[PLX_RING_HINT_OPEN]; /* empty: unknown */
};

static void take_disk(const struct plx_ring_disks *disks, const struct plx_uuid *id,
                      struct given_up *given)
{
    for (size_t i = 0; i < disks->count; i++) {
        const struct plx_ring_disk *disk = &disks->disk[i];

        if (!plx_uuid_equal(&disk->id, id))
            continue;
        given->kept = disk->newer;
        if (given->marked && !disk->marked) /* it needs another ring */
            given->kept = disk->looked ? disk->look.aside : 0;
        if (!disk->looked || (given->marked && !disk->marked))
            continue;
        given->known = true;
        given->records = disk->look.last + 1 - disk->look.first;
        given->bytes = disk->look.bytes;
        given->aside = disk->look.aside;
        given->segments = disk->segments;
    }
}

/* CMD_RING_DISCARD-3. The disk needs this ring. */
static void settle_where(const struct plx_host_ring *ring, struct given_up *given)
{
    given->where = ring->away ? AWAY : given->known ? USABLE : UNREADABLE;
    given->gone = !ring->ring && !ring->away;
    if (!ring->ring || !given->problem.code)
        return;
    given->where = LACKS_MEMBER;
    given->known = false;
}

/* What cannot be read here is not known; that is no reason to refuse. */
static void look_at_ring(struct plx_cli *cli, const struct plx_name *name,
                         const struct plx_vdi_info *info, struct given_up *given)
{
    struct plx_ring_disks disks = {0};
    const struct plx_fault *problem;
    struct plx_host_ring ring;
    struct plx_fault why;
    struct plx_uuid id;
    bool own;

    if (plx_host_ring_open(cli->session.paths, name->store, PLX_RING_LOOK, NULL, &ring, &why))
        return;
    plx_uuid_parse(ring.way.ring, &id);
    own = plx_uuid_equal(&info->mark.ring, &id);
    given->in_use = ring.in_use && (!given->marked || own);
    if (given->in_use)
        plx_ring_hint_open(cli, name->store, given->by);
    if (!plx_ring_disks_look(&id, ring.ring, plx_session_store(cli), ring.in_use, &disks, &why))
        take_disk(&disks, &info->id, given);
    problem = plx_host_ring_problem(&ring);
    if (problem && !plx_ring_members_alone(&ring.members))
        given->problem = *problem;
    if (given->marked && own)
        settle_where(&ring, given);
    plx_ring_disks_done(&disks);
    plx_host_ring_close(&ring);
}

/* What the disk's mark claims. */
static void name_claimed(const struct given_up *given, char *text, size_t bytes)
{
    char size[16];

    if (given->known)
        snprintf(text, bytes,
                 "up to %" PRIu64 " writes, %s, that the ring has and the store lacks (those that "
                 "the store has got by now are not counted any more)",
                 given->records + given->aside, plx_text_size(given->bytes, size));
    else
        snprintf(text, bytes,
                 "its newest writes, on a ring %s, so that nobody knows how many they are",
                 given->where == LACKS_MEMBER ? "of which a member is missing"
                 : given->where == AWAY       ? "of another host"
                                              : "that cannot be read here");
}

/* A sentence, with a space before it; or nothing. CMD_RING_DISCARD-1 */
static const char *say_kept(const struct given_up *given, bool also, char *text, size_t bytes)
{
    text[0] = 0;
    if (given->kept)
        snprintf(text, bytes,
                 " %" PRIu64 " other writes on this host's ring, which this state of the store "
                 "does not know, %s.",
                 given->kept, also ? "go as well" : "stay there; --also-set-aside discards them");
    return text;
}

/* What would lose nothing: sentences with a space before them. */
static const char *say_instead(const struct plx_name *name, const struct given_up *given,
                               char *text, size_t bytes)
{
    switch (given->where) {
    case USABLE:
        snprintf(
            text, bytes,
            " This host's ring can be used: 'parallax vdi set %s/%.60s --ring off' brings them "
            "to the store, and nothing is lost.",
            name->store, name->vdi);
        break;
    case LACKS_MEMBER:
        snprintf(
            text, bytes,
            " Bring that member back (%.120s); if it lies elsewhere now: 'parallax ring create "
            "%s NEW OTHER'; if it is lost for good, 'parallax ring repair %s "
            "--i-checked-the-other-is-lost' goes on with the other one.",
            given->problem.text, name->store, name->store);
        break;
    case AWAY:
        snprintf(text, bytes, " Nothing is lost if it is taken over: %s.", given->problem.text);
        break;
    default:
        snprintf(text, bytes,
                 " If that ring still exists, bring it back instead, or say where it lies "
                 "('parallax ring create %s PATH').",
                 name->store);
    }
    return text;
}

/* CMD_RING_DISCARD-2. With --yes, who opens a disk that needs the ring finds out what is in the
 * way.
 */
static int tell_in_use(struct plx_cli *cli, const struct plx_name *name,
                       const struct given_up *given)
{
    const char *what = given->marked ? "its newest writes are on" : "what was set aside may be on";
    const char *then = given->marked ? "brings them to the store, and nothing is lost"
                                     : "ends that for each virtual disk that uses it";
    char text[700];

    snprintf(text, sizeof text,
             "%s/%.60s: nothing was changed: %s this host's ring, which is there and in use%s%s; "
             "'parallax vdi set %s/%.60s --ring off' %s",
             name->store, name->vdi, what, given->by[0] ? " by " : "", given->by, name->store,
             given->marked ? name->vdi : "VDI", then);
    if (!plx_cli_get(cli, "dry-run"))
        return plx_cli_fail(cli, plx_cli_get(cli, "yes") ? PLX_ERR_BUSY : PLX_ERR_UNCONFIRMED, "%s",
                            text);
    plx_out_note(cli, "%s", text);
    return 0;
}

/* The disk needs a ring. *ret_done: its mark is gone. */
static int discard_claimed(struct plx_cli *cli, const struct plx_name *name,
                           const struct given_up *given, bool also, bool *ret_done)
{
    char claimed[192], kept[160], instead[560];
    int rc;

    name_claimed(given, claimed, sizeof claimed);
    say_kept(given, also, kept, sizeof kept);
    say_instead(name, given, instead, sizeof instead);
    if (plx_cli_get(cli, "dry-run")) {
        plx_out_note(cli, "%s/%s: would discard %s.%s%s Nothing was changed.", name->store,
                     name->vdi, claimed, kept, instead);
        return 0;
    }
    if (!plx_cli_get(cli, "yes"))
        return plx_cli_fail(cli, PLX_ERR_UNCONFIRMED,
                            "%s/%.100s: nothing was changed. --yes discards %s.%s%s", name->store,
                            name->vdi, claimed, kept, instead);
    rc = plx_session_vdi_discard_ring(cli, name, also);
    *ret_done = !rc;
    if (!rc)
        plx_out_note(cli, "%s/%s now has the state on the store. Discarded: %s.%s%s%s%s",
                     name->store, name->vdi, claimed, kept,
                     given->gone ? " 'parallax ring delete " : "", given->gone ? name->store : "",
                     given->gone ? " --force' forgets that ring, if it is lost for good." : "");
    return rc;
}

/* It needs none, and the ring has writes of it. */
static int discard_aside(struct plx_cli *cli, const struct plx_name *name,
                         const struct given_up *given, bool also, bool *ret_done)
{
    bool dry_run = plx_cli_get(cli, "dry-run");
    int rc = 0;

    if (!also)
        plx_out_note(cli,
                     "%s/%s does not need a ring, so nothing was discarded. There are " SET_ASIDE
                     "; 'parallax ring discard %s/%s --also-set-aside' erases them.",
                     name->store, name->vdi, given->aside, name->store, name->vdi);
    else if (!dry_run && !plx_cli_get(cli, "yes"))
        return plx_cli_fail(cli, PLX_ERR_UNCONFIRMED,
                            "%s/%.100s: nothing was changed. --yes erases " SET_ASIDE ".",
                            name->store, name->vdi, given->aside);
    else if (!dry_run)
        rc = plx_session_vdi_discard_ring(cli, name, true);
    if (!rc && also) {
        *ret_done = !dry_run;
        plx_out_note(cli, "%s/%s: %s " SET_ASIDE "%s", name->store, name->vdi,
                     dry_run ? "would erase" : "erased", given->aside,
                     dry_run ? ". Nothing was changed." : "");
    }
    return rc;
}

/* Nobody erases what was set aside on a ring that this host may not write to. */
static bool keeps_aside(const struct given_up *given)
{
    return given->problem.code == PLX_ERR_RING_AWAY ||
           (given->problem.code && !given->marked && given->aside);
}

static int refuse_aside(struct plx_cli *cli, const struct plx_name *name,
                        const struct given_up *given)
{
    return plx_cli_fail(cli, given->problem.code,
                        "%s/%.60s: nothing was changed, for what was set aside cannot be erased "
                        "here: %s",
                        name->store, name->vdi, given->problem.text);
}

/* Why the numbers are not known, or there is nothing to discard; null: neither. */
static json_t *reason(const struct given_up *given, bool busy)
{
    static const char *const words[] = {[ELSEWHERE] = "elsewhere",
                                        [UNREADABLE] = "unreadable",
                                        [LACKS_MEMBER] = "member-missing",
                                        [AWAY] = "other-host"};

    if (busy)
        return json_string("in-use");
    if (!given->marked)
        return json_string("not-needed");
    return given->where == USABLE ? json_null() : json_string(words[given->where]);
}

static int discard(struct plx_cli *cli, const struct plx_name *name, const struct given_up *given)
{
    bool also = plx_cli_get(cli, "also-set-aside"), done = false;
    bool yes = plx_cli_get(cli, "yes") && !plx_cli_get(cli, "dry-run");
    uint64_t kept = also ? 0 : given->marked ? given->kept : given->aside;
    bool busy = given->in_use && (given->marked ? !yes : also);
    int rc = 0;

    if (also && keeps_aside(given))
        rc = refuse_aside(cli, name, given);
    else if (busy)
        rc = tell_in_use(cli, name, given);
    else if (given->marked)
        rc = discard_claimed(cli, name, given, also, &done);
    else if (given->aside)
        rc = discard_aside(cli, name, given, also, &done);
    else if (given->segments && yes)
        rc = plx_session_vdi_discard_ring(cli, name, false); /* segments that hold nothing */
    if (rc)
        return rc;
    if (!given->marked && !given->aside && !busy)
        plx_out_note(cli, "%s/%s: the store has everything; there is nothing to discard",
                     name->store, name->vdi);
    plx_out_done(
        cli, json_pack("{s:o,s:b,s:b,s:o,s:o,s:o,s:I}", "name",
                       json_sprintf("%s/%s", name->store, name->vdi), "discarded", done, "needed",
                       given->marked, "reason", reason(given, busy), "records",
                       given->known ? json_integer((json_int_t)given->records) : json_null(),
                       "bytes", given->known ? json_integer((json_int_t)given->bytes) : json_null(),
                       "kept", (json_int_t)kept));
    return 0;
}

int plx_cmd_ring_discard(struct plx_cli *cli)
{
    struct plx_vdi_info info = {0};
    struct given_up given = {.known = false};
    struct plx_registry_vdi row;
    struct plx_name name;
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_VDI, &name)) ||
        (rc = plx_session_open(cli, name.store,
                               plx_cli_get(cli, "yes") ? PLX_SESSION_WRITE : PLX_SESSION_READ)) ||
        (rc = plx_session_vdi_row(cli, &name, &row)) ||
        (rc = plx_door_read(plx_session_store(cli), &row, &info, &cli->fault)))
        return rc;
    given.marked = plx_ring_is_marked(&info.mark);
    look_at_ring(cli, &name, &info, &given);
    return discard(cli, &name, &given);
}
