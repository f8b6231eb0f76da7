/* unfinished.h - a virtual disk that holds a part of what was to be imported.
 *
 * An import says so before it writes, and takes it back when everything is durable. import-diff
 * labels the state before, which it needs to take changes back. A raw image replaces what was
 * there, and a label needs a snapshot, which would stay. So vdi import uses a row of the registry
 * instead. plx_unfinished_look() checks both.
 */
#ifndef PLX_ADMIN_UNFINISHED_H
#define PLX_ADMIN_UNFINISHED_H

#include "cli.h"

#define PLX_UNFINISHED_LABEL "import-unfinished"

/* Of the virtual disk with this id. */
int plx_unfinished_look(struct plx_cli *cli, const char *vdi, bool *ret_unfinished);
/* Of the disk that this command has open, for vdi import. */
int plx_unfinished_set(struct plx_cli *cli, const struct plx_name *name, bool unfinished);
/* For people: what it is and how to go on. */
void plx_unfinished_note(struct plx_cli *cli, const struct plx_name *name);

#endif
