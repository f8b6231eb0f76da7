/* instants.h - two instants on a command line, one of which may be nothing: STORE/VDI@A..B, or
 * STORE/VDI@A STORE/VDI@B, or STORE/VDI@B alone.
 */
#ifndef PLX_ADMIN_INSTANTS_H
#define PLX_ADMIN_INSTANTS_H

#include "cli.h"

struct plx_instants {
    struct plx_name from, to;          /* a snapshot may be none: the newest state */
    bool from_nothing;                 /* all that is mapped counts as changed */
    struct plx_vdi *from_vdi, *to_vdi; /* open; from_vdi NULL: nothing */
};

/* Of `count` arguments from the first on. Every function returns 0 or an error with cli->fault. */
int plx_instants_parse(struct plx_cli *cli, unsigned count, struct plx_instants *ret_instants);
/* The session is open. */
int plx_instants_open(struct plx_cli *cli, struct plx_instants *instants);
/* rc: of what read them; returns it, or why it looks damaged (plx_session_name_moved). */
int plx_instants_close(struct plx_cli *cli, struct plx_instants *instants, int rc);
/* "demo/web@17", "demo/web" */
const char *plx_instants_text(const struct plx_name *name, char *text, size_t size);

#endif
