/* folder.h - a folder for the files of a test. */
#ifndef PLX_TESTS_FOLDER_H
#define PLX_TESTS_FOLDER_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define FOLDER_MAX 64u

/* In memory if possible: a busy disk takes its time to flush, which only tests of devices need. */
static inline bool folder_make(const char *name, char ret_folder[FOLDER_MAX])
{
    snprintf(ret_folder, FOLDER_MAX, "/dev/shm/plx-%s-XXXXXX", name);
    if (mkdtemp(ret_folder))
        return true;
    printf("\n    not in memory: ");
    snprintf(ret_folder, FOLDER_MAX, "/tmp/plx-%s-XXXXXX", name);
    return mkdtemp(ret_folder);
}

/* With all that is in it; or a file. (folder.c) */
void folder_remove(const char *path);
/* `to` becomes what `from` is: a file, a folder with all that is in it, or nothing. A file that is
 * there already keeps its inode. (folder.c) */
bool folder_copy(const char *from, const char *to);

#endif
