/* overwrite.h - whether a file or block device may be overwritten by what a command writes. */
#ifndef PLX_ADMIN_OVERWRITE_H
#define PLX_ADMIN_OVERWRITE_H

#include "cli.h"

/* EXISTS: what is there is a volume of a store, or may be restored to one, or overlaps one.
 * Another error: nobody can tell. cli->fault has the words, which --force does not change. What
 * does not exist, and what is neither a regular file nor a block device, is no volume. */
int plx_overwrite_refuse(struct plx_cli *cli, const char *path);

#endif
