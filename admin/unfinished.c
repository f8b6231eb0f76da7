/* unfinished.c - a virtual disk that holds a part of what was to be imported. See unfinished.h.
 *
 * UNFINISHED-1  Of an import that was killed after its first write, every later look says that it
 *     is unfinished, until the disk is whole: an import into it has ended well, or it was rewound
 *     to a state from before the import. Another import-diff must not take back then what was
 *     written since, so the label goes as well.
 * UNFINISHED-2  A disk that was rewound away from a part of an import holds a part again when it is
 *     rewound to a snapshot of that time. So the registry remembers these snapshots, until the next
 *     import.
 * Crash story: the row is durable before the first write, and goes after the last flush. Where a
 *   whole disk loses both marks, the label goes first; where it becomes a part again, the row is
 *   durable before the rewind. A kill in between leaves a mark that says too much, never one that
 *   says too little. A registry that is rebuilt from the store alone has lost the row.
 */
#include "unfinished.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "output.h"

#define POLICY "import" /* its key in the registry's table of policies */

/* Its values; without numbers where an earlier version wrote them. */
#define UNFINISHED "unfinished" /* and the newest snapshot from before the import */
#define PART "part"             /* and the newest snapshots from before the import, and of it */

/* What the registry's row says, without the label. */
static int read_row(struct plx_cli *cli, const char *vdi, struct plx_unfinished *ret)
{
    char text[PLX_POLICY_VALUE_MAX + 1];
    int rc = plx_registry_policy_get(cli->session.registry, vdi, POLICY, text);

    *ret = (struct plx_unfinished){.upto = UINT64_MAX};
    if (rc == PLX_ERR_NOT_FOUND)
        return 0;
    if (rc)
        return plx_session_registry_fault(cli, rc);
    ret->now = sscanf(text, PART " %" SCNu64 " %" SCNu64, &ret->before, &ret->upto) != 2;
    ret->part = true;
    ret->dated = !ret->now || sscanf(text, UNFINISHED " %" SCNu64, &ret->before) == 1;
    return 0;
}

int plx_unfinished_read(struct plx_cli *cli, const char *vdi, struct plx_unfinished *ret)
{
    struct plx_registry_label label;
    int rc = read_row(cli, vdi, ret);

    if (rc)
        return rc;
    rc = plx_registry_label_get(cli->session.registry, vdi, PLX_UNFINISHED_LABEL, &label);
    if (rc == PLX_ERR_NOT_FOUND)
        return 0;
    if (rc)
        return plx_session_registry_fault(cli, rc);
    ret->before = ret->now && ret->dated ? plx_min_u64(ret->before, label.seq) : label.seq;
    ret->upto = UINT64_MAX;
    ret->now = ret->part = ret->dated = true;
    ret->label = label.seq;
    return 0;
}

bool plx_unfinished_holds(const struct plx_unfinished *u, uint64_t seq)
{
    return seq ? u->part && u->dated && seq > u->before && seq <= u->upto : u->now;
}

int plx_unfinished_look(struct plx_cli *cli, const char *vdi, bool *ret_unfinished)
{
    struct plx_unfinished u;
    int rc = plx_unfinished_read(cli, vdi, &u);

    *ret_unfinished = !rc && u.now;
    return rc;
}

/* value "": it goes. */
static int set_row(struct plx_cli *cli, const char *vdi, const char *value)
{
    int rc = plx_registry_policy_set(cli->session.registry, vdi, POLICY, *value ? value : NULL);

    return rc ? plx_session_registry_fault(cli, rc) : 0;
}

static int remove_label(struct plx_cli *cli, const struct plx_name *name,
                        const struct plx_unfinished *u)
{
    return u->label ? plx_session_label_remove(cli, name, PLX_UNFINISHED_LABEL) : 0;
}

int plx_unfinished_begin(struct plx_cli *cli, const struct plx_name *name)
{
    struct plx_unfinished u;
    struct plx_registry_vdi row;
    struct plx_vdi_info info;
    char value[64];
    int rc = plx_session_vdi_row(cli, name, &row);

    if (rc || (rc = read_row(cli, row.id, &u)) || u.now)
        return rc;
    plx_vdi_get_info(cli->session.vdi, &info);
    snprintf(value, sizeof value, UNFINISHED " %" PRIu64, info.snapshots);
    return set_row(cli, row.id, value);
}

int plx_unfinished_end(struct plx_cli *cli, const struct plx_name *name, uint64_t before,
                       bool whole)
{
    struct plx_unfinished u;
    struct plx_registry_vdi row;
    int rc = plx_session_vdi_row(cli, name, &row);

    if (rc || (rc = plx_unfinished_read(cli, row.id, &u)))
        return rc;
    rc = u.label < before ? remove_label(cli, name, &u) : 0;
    if (!rc)
        rc = read_row(cli, row.id, &u);
    return rc || !whole || !u.now ? rc : set_row(cli, row.id, "");
}

int plx_unfinished_clone(struct plx_cli *cli, const struct plx_name *name)
{
    struct plx_registry_vdi row;
    int rc = plx_session_vdi_row(cli, name, &row);

    return rc ? rc : set_row(cli, row.id, UNFINISHED " 0");
}

int plx_unfinished_rewinding(struct plx_cli *cli, const struct plx_name *name, uint64_t seq,
                             struct plx_unfinished *ret)
{
    struct plx_registry_vdi row;
    char value[64];
    int rc = plx_session_vdi_row(cli, name, &row);

    if (rc || (rc = plx_unfinished_read(cli, row.id, ret)) || ret->now ||
        !plx_unfinished_holds(ret, seq))
        return rc;
    snprintf(value, sizeof value, UNFINISHED " %" PRIu64, ret->before);
    return set_row(cli, row.id, value);
}

int plx_unfinished_rewound(struct plx_cli *cli, const struct plx_name *name, uint64_t seq,
                           uint64_t before, const struct plx_unfinished *u)
{
    struct plx_registry_vdi row;
    char value[64];
    /* From a part to what is none, or it was to be the other way round. */
    bool away =
        before ? u->now && u->dated && seq <= u->before : !u->now && plx_unfinished_holds(u, seq);
    int rc = away ? plx_session_vdi_row(cli, name, &row) : 0;

    if (rc || !away)
        return rc;
    snprintf(value, sizeof value, PART " %" PRIu64 " %" PRIu64, u->before,
             before ? before : u->upto);
    rc = remove_label(cli, name, u);
    return rc ? rc : set_row(cli, row.id, value);
}

void plx_unfinished_note(struct plx_cli *cli, const struct plx_name *name)
{
    plx_out_note(cli,
                 "%s/%s: an import into it runs or did not finish, so it holds a part; repeat it "
                 "('vdi import' with --force, or 'vdi import-diff'), or delete the disk",
                 name->store, name->vdi);
}

bool plx_unfinished_tell(struct plx_cli *cli, const struct plx_name *name)
{
    const struct plx_fault before = cli->fault;
    struct plx_snapshot_info info = {0};
    struct plx_registry_vdi row;
    struct plx_unfinished u = {0};
    bool holds;

    holds = !plx_session_vdi_row(cli, name, &row) && !plx_unfinished_read(cli, row.id, &u) &&
            u.part && (!*name->snapshot || !plx_session_snapshot_resolve(cli, name, &info)) &&
            plx_unfinished_holds(&u, info.seq);
    cli->fault = before; /* the command meets it itself */
    if (holds && *name->snapshot)
        plx_out_note(cli, "%s/%s@%s is from amid an import that did not finish: it holds a part",
                     name->store, name->vdi, name->snapshot);
    else if (holds)
        plx_unfinished_note(cli, name);
    return holds;
}
