/* unfinished.c - a virtual disk that holds a part of what was to be imported. See unfinished.h.
 *
 * UNFINISHED-1  Of an import that was killed after its first write, every later look says that it
 *     is unfinished, until an import into the disk has ended well.
 * Crash story: the row is durable before the first write, and goes after the last flush. A kill in
 *   between leaves it. A registry that is rebuilt from the store alone has lost it.
 */
#include "unfinished.h"

#include "output.h"

#define POLICY "import" /* its key in the registry's table of policies */
#define VALUE "unfinished"

int plx_unfinished_look(struct plx_cli *cli, const char *vdi, bool *ret_unfinished)
{
    struct plx_registry *registry = cli->session.registry;
    char text[PLX_POLICY_VALUE_MAX + 1];
    struct plx_registry_label label;
    int rc = plx_registry_policy_get(registry, vdi, POLICY, text);

    if (rc == PLX_ERR_NOT_FOUND)
        rc = plx_registry_label_get(registry, vdi, PLX_UNFINISHED_LABEL, &label);
    if (rc && rc != PLX_ERR_NOT_FOUND)
        return plx_session_registry_fault(cli, rc);
    *ret_unfinished = !rc;
    return 0;
}

int plx_unfinished_set(struct plx_cli *cli, const struct plx_name *name, bool unfinished)
{
    struct plx_registry *registry = cli->session.registry;
    char text[PLX_POLICY_VALUE_MAX + 1];
    struct plx_registry_vdi row;
    int rc = plx_session_vdi_row(cli, name, &row);

    if (rc)
        return rc;
    rc = plx_registry_policy_get(registry, row.id, POLICY, text);
    if (rc == (unfinished ? 0 : PLX_ERR_NOT_FOUND))
        return 0; /* as it is to be */
    if (!rc || rc == PLX_ERR_NOT_FOUND)
        rc = plx_registry_policy_set(registry, row.id, POLICY, unfinished ? VALUE : NULL);
    return rc ? plx_session_registry_fault(cli, rc) : 0;
}

void plx_unfinished_note(struct plx_cli *cli, const struct plx_name *name)
{
    plx_out_note(cli,
                 "%s/%s: an import into it runs or did not finish, so it holds a part; repeat it "
                 "('vdi import' with --force, or 'vdi import-diff'), or delete the disk",
                 name->store, name->vdi);
}
