/* paths.h - where a process keeps its state, and which host this is.
 *
 * Both follow from the configuration file (settings.h), if there is one.
 *
 *                              default                        with a state directory DIR
 *   list of known stores       /var/lib/parallax/stores       DIR/stores
 *   control sockets            /run/parallax/control          DIR/run/control
 *   host id, where needed      /var/lib/parallax/host-id      DIR/host-id
 *
 * DIR is --state-dir, else PARALLAX_STATE_DIR, else [paths] state of the configuration file.
 * Nothing in these directories decides anything: who has a store open is told by locks on the
 * store's own volumes. A process with another state directory only does not find the sockets of
 * live handlers.
 *
 * Errors: PERMISSION, NOSPACE, INVALID, NOT_FOUND, else SYSTEM.
 * Threads: any, each on its own struct.
 */
#ifndef PLX_PATHS_H
#define PLX_PATHS_H

#include "registry/settings.h"
#include "registry/registry.h"

struct plx_paths {
    struct plx_settings settings;
    char state[PLX_PATH_MAX]; /* absolute */
    char run[PLX_PATH_MAX];   /* absolute; holds control/ */
    char host[PLX_UUID_TEXT]; /* this host's id (PATHS-1); or empty */
    int host_error;           /* why it has none */
    char host_name[PLX_HOST_NAME_MAX + 1];
    char boot[PLX_UUID_TEXT]; /* the kernel's boot id; empty when there is none */
};

/* state_dir NULL: from the environment, else the configuration file, else the default. The
 * directories need not exist. */
int plx_paths_init(struct plx_paths *paths, const char *state_dir, struct plx_fault *fault);
/* Make the directory that something is about to be put into, state or RUN/control, with mode 0700,
 * if it is missing. */
int plx_paths_make_state(const struct plx_paths *paths, struct plx_fault *fault);
int plx_paths_make_control(const struct plx_paths *paths, struct plx_fault *fault);

/* The error code for an errno: PERMISSION, NOSPACE, else SYSTEM. */
int plx_paths_error(int number);

/* The instance's control socket: RUN/control/<instance>.sock */
void plx_paths_control(const struct plx_paths *paths, uint64_t instance,
                       char ret_path[PLX_PATH_MAX]);

#endif
