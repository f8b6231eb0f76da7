/* cmd_ring_discard.c - parallax ring discard: the operator discards a ring's writes to a virtual
 * disk (ATTACH-21). The command says before how many they are, as far as the ring can be read here,
 * and how many stay, because the disk's mark does not claim them. */
#include <inttypes.h>
#include <string.h>

#include "attach/doors.h"
#include "attach/host_ring.h"
#include "cmd.h"
#include "output.h"

#define BRING_IT                                                                                   \
    "if that ring still exists, bring it back, or say where it lies ('parallax ring create STORE " \
    "PATH'); "

struct given_up {
    bool marked; /* the disk's record names a ring */
    bool known;  /* and what is on it: */
    uint64_t records, bytes, aside;
    uint64_t kept;     /* which a newer state of the store needs: another call discards them */
    uint32_t segments; /* which the disk has taken */
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

/* What cannot be read here is not known; that is no reason to refuse. */
static void look_at_ring(struct plx_cli *cli, const struct plx_name *name,
                         const struct plx_vdi_info *info, struct given_up *given)
{
    struct plx_ring_disks disks = {0};
    struct plx_host_ring ring;
    struct plx_fault why;
    struct plx_uuid id;

    if (plx_host_ring_open(cli->session.paths, name->store, PLX_RING_LOOK, NULL, &ring, &why))
        return;
    plx_uuid_parse(ring.way.ring, &id);
    if (!plx_ring_disks_look(&id, ring.ring, plx_session_store(cli), ring.in_use, &disks, &why))
        take_disk(&disks, &info->id, given);
    plx_ring_disks_done(&disks);
    plx_host_ring_close(&ring);
}

static const char *in_words(const struct given_up *given, char *text, size_t bytes)
{
    char size[16];
    size_t length;

    if (given->known && !given->records && given->aside)
        snprintf(text, bytes, "%" PRIu64 " writes of it were set aside on the ring", given->aside);
    else if (given->known)
        snprintf(text, bytes,
                 "the ring has up to %" PRIu64 " writes of it, %s, that the store lacks",
                 given->records + given->aside, plx_text_size(given->bytes, size));
    else
        snprintf(text, bytes,
                 "its newest writes lie on a ring that cannot be read here, so nobody "
                 "knows how many they are");
    length = strlen(text);
    if (given->kept)
        snprintf(text + length, bytes - length,
                 "; %" PRIu64 " other writes on this host's ring, which this state of the store "
                 "does not know, stay there, until the command is given again",
                 given->kept);
    return text;
}

static int discard(struct plx_cli *cli, const struct plx_name *name, const struct given_up *given)
{
    bool any = given->marked || given->aside, dry_run = plx_cli_get(cli, "dry-run");
    char what[320];
    int rc = 0;

    in_words(given, what, sizeof what);
    if (any && !dry_run && !plx_cli_get(cli, "yes"))
        return plx_cli_fail(cli, PLX_ERR_UNCONFIRMED,
                            "%s/%.100s: %s; %snothing was changed: --yes discards them and returns "
                            "the virtual disk to the state on the store",
                            name->store, name->vdi, what, given->known ? "" : BRING_IT);
    if (any && dry_run)
        plx_out_note(cli, "%s/%s: %s; %swould discard them; nothing was changed", name->store,
                     name->vdi, what, given->known ? "" : BRING_IT);
    else if (any || (given->segments && plx_cli_get(cli, "yes") && !dry_run))
        rc = plx_session_vdi_discard_ring(cli, name);
    if (rc)
        return rc;
    if (any && !dry_run)
        plx_out_note(cli, "%s/%s now has the state on the store; discarded: %s", name->store,
                     name->vdi, what);
    else if (!any)
        plx_out_note(cli, "%s/%s: the store has everything; there is nothing to discard",
                     name->store, name->vdi);
    plx_out_done(
        cli,
        json_pack("{s:o,s:b,s:o,s:o,s:I}", "name", json_sprintf("%s/%s", name->store, name->vdi),
                  "discarded", any && !dry_run, "records",
                  given->known ? json_integer((json_int_t)given->records) : json_null(), "bytes",
                  given->known ? json_integer((json_int_t)given->bytes) : json_null(), "kept",
                  (json_int_t)given->kept));
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
