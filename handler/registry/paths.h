/* paths.h - where the state lives, and which host this is.
 *
 * By default the registry is /var/lib/parallax/registry.db and sockets and liveness files are in
 * /run/parallax. A state directory (--state-dir, else PARALLAX_STATE_DIR) moves both: DIR and
 * DIR/run. Both belong together: liveness of this host's instances is judged by the run directory,
 * so one registry must never be used with two run directories on one host.
 */
#ifndef PLX_PATHS_H
#define PLX_PATHS_H

#include "registry/registry.h"

struct plx_paths {
    char state[PLX_PATH_MAX];    /* absolute */
    char run[PLX_PATH_MAX];      /* absolute; holds instances/ and control/ */
    char registry[PLX_PATH_MAX]; /* for plx_registry_open() */
    char host[PLX_UUID_TEXT];    /* state/host-id, made once */
    char host_name[PLX_HOST_NAME_MAX + 1];
    char boot[PLX_UUID_TEXT]; /* the kernel's boot id; empty when there is none */
};

/* state_dir NULL: from the environment, else the default. Makes what is missing, mode 0700. */
int plx_paths_init(struct plx_paths *paths, const char *state_dir, struct plx_fault *fault);

/* RUN/control/<instance>.sock */
void plx_paths_control(const struct plx_paths *paths, uint64_t instance,
                       char ret_path[PLX_PATH_MAX]);

#endif
