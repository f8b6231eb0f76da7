/* instants.c - two instants on a command line. See instants.h. */
#include "instants.h"

#include <stdio.h>
#include <string.h>

/* STORE/VDI@A..B: either end may be left out. */
static int parse_range(struct plx_cli *cli, const char *text, const char *dots,
                       struct plx_instants *instants)
{
    const char *at = strchr(text, '@');
    char word[sizeof(struct plx_name) + 4];
    int rc;

    snprintf(word, sizeof word, "%.*s%s%s", (int)(at - text), text, dots[2] ? "@" : "", dots + 2);
    rc = plx_text_name_parse(word, PLX_NAME_VDI_OR_SNAPSHOT, &instants->to, &cli->fault);
    instants->from = instants->to;
    instants->from_nothing = dots == at + 1;
    if (!rc && !instants->from_nothing) {
        snprintf(word, sizeof word, "%.*s", (int)(dots - text), text);
        rc = plx_text_name_parse(word, PLX_NAME_SNAPSHOT, &instants->from, &cli->fault);
    }
    return rc;
}

int plx_instants_parse(struct plx_cli *cli, unsigned count, struct plx_instants *ret_instants)
{
    struct plx_instants instants = {0};
    const char *first = cli->arguments[0], *at = strchr(first, '@');
    const char *dots = at ? strstr(at, "..") : NULL;
    int rc;

    if (count == 1 && dots) {
        rc = parse_range(cli, first, dots, &instants);
    } else if (count == 1) {
        instants.from_nothing = true;
        rc = plx_text_name_parse(first, PLX_NAME_VDI_OR_SNAPSHOT, &instants.to, &cli->fault);
    } else {
        rc = plx_text_name_parse(first, PLX_NAME_VDI_OR_SNAPSHOT, &instants.from, &cli->fault);
        rc = rc ? rc
                : plx_text_name_parse(cli->arguments[1], PLX_NAME_VDI_OR_SNAPSHOT, &instants.to,
                                      &cli->fault);
        if (!rc && strcmp(instants.from.store, instants.to.store))
            return plx_cli_usage(cli, "%s and %s are two stores; instants of one are compared",
                                 instants.from.store, instants.to.store);
    }
    if (rc)
        return cli->fault.code = PLX_ERR_USAGE;
    *ret_instants = instants;
    return 0;
}

int plx_instants_open(struct plx_cli *cli, struct plx_instants *instants)
{
    int rc = plx_session_settle_time(cli, &instants->to);

    if (!rc && !instants->from_nothing)
        rc = plx_session_settle_time(cli, &instants->from);
    if (!rc)
        rc = plx_session_instant_open(cli, &instants->to, &instants->to_vdi);
    if (!rc && !instants->from_nothing)
        rc = plx_session_instant_open(cli, &instants->from, &instants->from_vdi);
    return rc;
}

int plx_instants_close(struct plx_cli *cli, struct plx_instants *instants, int rc)
{
    rc = plx_session_name_moved(cli, instants->from_vdi, rc);
    rc = plx_session_name_moved(cli, instants->to_vdi, rc);
    plx_session_instant_close(cli, instants->from_vdi);
    plx_session_instant_close(cli, instants->to_vdi);
    return rc;
}

const char *plx_instants_text(const struct plx_name *name, char *text, size_t size)
{
    snprintf(text, size, "%s/%s%s%s", name->store, name->vdi, *name->snapshot ? "@" : "",
             name->snapshot);
    return text;
}
