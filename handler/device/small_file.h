/* small_file.h - reads a small file of this host: settings, passwords, entries of a list.
 *
 * Such a file is untrusted until it was looked at. The opened file is judged and not its name,
 * which may mean another file a moment later. Opening never waits, not even for a pipe.
 *
 * Errors: NOT_FOUND, PERMISSION, INVALID (no regular file, or too many bytes), NOMEM, else SYSTEM.
 * Threads: any.
 */
#ifndef PLX_SMALL_FILE_H
#define PLX_SMALL_FILE_H

#include <stddef.h>

#include "engine/base/error.h"

/* Who else may have access. PERMISSION where it is more: the text says which chown or chmod. */
enum plx_small_file_trust {
    PLX_FILE_ANYBODY, /* what is in the file is checked by other means */
    PLX_FILE_OURS,    /* only root and this user write it */
    PLX_FILE_SECRET,  /* and only they read it */
};

/* The file as a descriptor, to be closed. */
int plx_small_file_open(const char *path, size_t bytes_max, enum plx_small_file_trust trust,
                        int *ret_fd, struct plx_fault *fault);
/* The file in memory, with a zero byte behind it. Hand it to plx_small_file_done(). */
int plx_small_file_read(const char *path, size_t bytes_max, enum plx_small_file_trust trust,
                        char **ret_text, size_t *ret_bytes, struct plx_fault *fault);
/* Wipes and frees what was read. NULL is fine. */
void plx_small_file_done(char *text, size_t bytes);

#endif
