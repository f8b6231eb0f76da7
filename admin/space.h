/* space.h - how full a store and its virtual disks are, as commands print it.
 *
 * Errors: 0 or an error code, with cli->fault filled. Threads: one. */
#ifndef PLX_ADMIN_SPACE_H
#define PLX_ADMIN_SPACE_H

#include <jansson.h>

#include "cli.h"
#include "engine/engine.h"
#include "registry/threshold.h"

/* Add how full it is and its soft limit to what is printed of a store or a virtual disk. */
int plx_space_of_store(struct plx_cli *cli, const struct plx_registry_store *store, json_t *object);
int plx_space_of_vdi(struct plx_cli *cli, const char *vdi, const struct plx_vdi_info *info,
                     json_t *object);
/* Adds the oldest snapshot of these disks, and how long policies keep theirs. */
int plx_space_history(struct plx_cli *cli, const char *store, const struct plx_registry_vdi *vdis,
                      size_t count, json_t *object);
/* Adds a soft limit, and a warning if what is used crosses it; nothing where there is none. */
void plx_space_put_limit(json_t *object, const struct plx_threshold *limit, uint64_t size_bytes,
                         uint64_t used_bytes);

#endif
