/* deletion.c - parallax snap delete: why snapshots may stay. */
#include "deletion.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/doors.h"
#include "registry/embedded.h"
#include "registry/instance.h"

const struct target *plx_deletion_target(const struct deletion *d, uint64_t seq)
{
    for (unsigned i = 0; i < d->count; i++)
        if (seq >= d->targets[i].first && seq <= d->targets[i].last)
            return &d->targets[i];
    return NULL;
}

/* There is room for them. */
static struct reason *add_reason(struct deletion *d, uint64_t seq)
{
    struct reason *reason = &d->reasons[d->reason_count];

    if (!plx_deletion_target(d, seq))
        return NULL;
    d->reason_count++;
    reason->seq = seq;
    return reason;
}

static int make_room(struct deletion *d, size_t more)
{
    struct reason *bigger = realloc(d->reasons, (d->reason_count + more + 1) * sizeof *bigger);

    if (!bigger)
        return plx_cli_fail(d->cli, PLX_ERR_NOMEM, "out of memory");
    d->reasons = bigger;
    memset(bigger + d->reason_count, 0, (more + 1) * sizeof *bigger);
    return 0;
}

/* Those who read now. *ret_soon: something that was given by itself is read by commands alone. */
static int list_readers(struct deletion *d, bool *ret_soon, struct plx_fault *ret_why)
{
    struct plx_registry *registry = d->cli->session.registry;
    struct plx_registry_hold *holds = NULL;
    bool stays = false;
    size_t count = 0;
    int rc = plx_registry_hold_list(registry, d->row.id, &holds, &count);

    *ret_soon = false;
    if (rc)
        return plx_session_registry_fault(d->cli, rc);
    rc = make_room(d, count);
    for (size_t i = 0; i < count && !rc; i++) {
        struct plx_registry_instance instance;
        struct reason *reason;

        if (plx_registry_instance_get(registry, holds[i].instance, &instance) ||
            plx_instance_is_dead(d->cli->session.paths, plx_registry_locks(registry), &instance,
                                 NULL))
            continue; /* it has just ended, and holds nothing when snapshots are let go */
        if (!(reason = add_reason(d, holds[i].seq)))
            continue;
        snprintf(reason->text, sizeof reason->text,
                 "it is being read by %s (pid %lld) on host %.120s",
                 plx_instance_kind(instance.role), (long long)instance.pid, instance.host_name);
        if (!plx_deletion_target(d, reason->seq)->single)
            continue;
        stays |= !plx_instance_is_command(d->cli->session.paths, &instance);
        *ret_soon = !stays;
        plx_fault_set(ret_why, PLX_ERR_BUSY, "%s: %s", plx_deletion_target(d, reason->seq)->text,
                      reason->text);
    }
    free(holds);
    return rc;
}

/* Who reads a single one is waited for if that ends soon. */
static int find_readers(struct deletion *d)
{
    uint64_t since_ns = plx_patience_begin();
    struct plx_fault why;
    bool soon;
    int rc;

    do {
        d->reason_count = 0; /* these are the first ones */
        rc = list_readers(d, &soon, &why);
    } while (!rc && soon && !d->dry_run &&
             plx_patience_waits(plx_session_patience(d->cli), since_ns, &why));
    return rc;
}

static int find_clones(struct deletion *d)
{
    struct plx_registry_heir *heirs = NULL;
    size_t count = 0;
    int rc = plx_registry_heir_list(d->cli->session.registry, d->row.id, &heirs, &count);

    if (rc)
        return plx_session_registry_fault(d->cli, rc);
    rc = make_room(d, count);
    for (size_t i = 0; i < count && !rc; i++) {
        struct reason *reason = add_reason(d, heirs[i].seq);

        if (reason)
            snprintf(reason->text, sizeof reason->text,
                     "%s/%s was cloned from it; it can go when that is deleted", d->name.store,
                     heirs[i].name);
    }
    free(heirs);
    return rc;
}

static int find_rewinds(struct deletion *d)
{
    struct plx_vdi_info info;
    int rc = plx_door_read(plx_session_store(d->cli), &d->row, &info, &d->cli->fault);

    if (!rc)
        rc = make_room(d, info.rewinds_held);
    for (unsigned i = 0; !rc && i < info.rewinds_held; i++) {
        struct reason *reason = add_reason(d, info.rewound_to[i]);

        if (!reason)
            continue;
        reason->rewind = true;
        snprintf(
            reason->text, sizeof reason->text,
            "the disk went back to it by a rewind; it goes with all others before that rewind");
    }
    return rc;
}

const char *plx_deletion_why(const struct deletion *d, uint64_t seq)
{
    for (size_t i = 0; i < d->reason_count; i++)
        if (d->reasons[i].seq == seq)
            return d->reasons[i].text;
    return "it is from before a rewind and is deleted only together with all others from before "
           "it, or a reader has just opened it";
}

int plx_deletion_find_reasons(struct deletion *d)
{
    int rc = find_readers(d);

    if (!rc)
        rc = find_clones(d);
    return rc ? rc : find_rewinds(d);
}
