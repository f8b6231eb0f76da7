/* cmd_lost.c - what other commands say of virtual disks that a rebuild has lost (lost.h).
 *
 * CMD_LOST-1  No list of what there is may pass for whole while a rebuild has lost records, for the
 *     registry has no row of their virtual disks. Who lists, sums up or calls blocks garbage names
 *     what is lost, and ends with 5. Lost labels belong to a disk that is listed: a note.
 */
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "output.h"
#include "registry/lost.h"

/* CMD_LOST-1 */
int plx_cmd_look_at_lost(struct plx_cli *cli, const char *store, const char *more)
{
    struct plx_registry_lost *list = NULL;
    struct plx_registry_store row;
    size_t count = 0, records;
    char text[PLX_LOST_TEXT];
    int rc;

    plx_session_row(cli, &row);
    if ((rc = plx_registry_lost_list(cli->session.registry, row.id, &list, &count)))
        return plx_session_registry_fault(cli, rc);
    records = plx_registry_lost_text(list, count, text);
    if (records)
        rc = plx_cli_fail(cli, PLX_ERR_CORRUPT,
                          "store %s: lost: %s%s; restore the store; only if %s gone for good, "
                          "'parallax vdi forget %s --lost' gives %s up",
                          store, text, more, records == 1 ? "it is" : "they are", store,
                          records == 1 ? "it" : "them");
    else if (count)
        plx_out_note(cli,
                     "store %s: labels are lost: %.200s; no snapshot of that virtual disk goes "
                     "until 'parallax vdi forget %s --lost' gives them up",
                     store, list[0].why, store);
    free(list);
    return rc;
}

/* Whether a rebuild named a lost virtual disk so; what it could not name has a slot only. */
static bool was_called(const struct plx_registry_lost *lost, const char *vdi)
{
    static const char begin[] = "virtual disk ";
    const char *name = lost->why + sizeof begin - 1;

    return !lost->labels && strncmp(lost->why, begin, sizeof begin - 1) == 0 &&
           strncmp(name, vdi, strlen(vdi)) == 0 && name[strlen(vdi)] == ':';
}

void plx_cmd_tell_lost_name(struct plx_cli *cli, const struct plx_name *name)
{
    struct plx_registry_lost *list = NULL;
    struct plx_registry_store row;
    size_t count = 0;

    plx_session_row(cli, &row);
    if (plx_registry_lost_list(cli->session.registry, row.id, &list, &count))
        return;
    for (size_t i = 0; i < count; i++)
        if (was_called(&list[i], name->vdi))
            plx_out_warning("a virtual disk that was called %s/%.100s is lost, and this is another "
                            "one: if the store is restored and its registry rebuilt, the other "
                            "one gets another name",
                            name->store, name->vdi);
    free(list);
}
