/* paths.h - where the state lives, and which host this is.
 *
 * By default the list of known stores (known.h) is /var/lib/parallax/stores and control sockets are
 * in /run/parallax. A state directory (--state-dir, else PARALLAX_STATE_DIR) moves both: DIR and
 * DIR/run. Nothing in them decides anything: who has a store open is told by locks on the store's
 * own volumes. Whoever uses another state directory does not find the sockets of live handlers.
 */
#ifndef PLX_PATHS_H
#define PLX_PATHS_H

#include "registry/registry.h"

struct plx_paths {
    char state[PLX_PATH_MAX]; /* absolute */
    char run[PLX_PATH_MAX];   /* absolute; holds control/ */
    char host[PLX_UUID_TEXT]; /* the machine's, hashed; or state/host-id's; empty: it has none */
    char host_name[PLX_HOST_NAME_MAX + 1];
    char boot[PLX_UUID_TEXT]; /* the kernel's boot id; empty when there is none */
};

/* state_dir NULL: from the environment, else the default. Nothing needs to be there. */
int plx_paths_init(struct plx_paths *paths, const char *state_dir, struct plx_fault *fault);
/* Before something is put into state, or into RUN/control: what is missing is made, mode 0700. */
int plx_paths_make_state(const struct plx_paths *paths, struct plx_fault *fault);
int plx_paths_make_control(const struct plx_paths *paths, struct plx_fault *fault);

/* Opens a file to read it, and waits for nothing: what is no regular file, or has more than max
 * bytes, is INVALID. Else NOT_FOUND, PERMISSION or SYSTEM. */
int plx_paths_open(const char *path, uint64_t max, int *ret_fd, struct plx_fault *fault);

/* The error that an errno stands for: PERMISSION, NOSPACE, else SYSTEM. */
int plx_paths_error(int number);

/* RUN/control/<instance>.sock */
void plx_paths_control(const struct plx_paths *paths, uint64_t instance,
                       char ret_path[PLX_PATH_MAX]);

#endif
