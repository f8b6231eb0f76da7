/* small_files.h - one file in a folder of its own, which a variable of the environment names. */
#ifndef PLX_UNIT_SMALL_FILES_H
#define PLX_UNIT_SMALL_FILES_H

#include <CUnit/Basic.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[] = "/tmp/plx-small-XXXXXX";
static char path[sizeof folder + 16];

static inline int make_named(const char *variable)
{
    if (!mkdtemp(folder))
        return 1;
    snprintf(path, sizeof path, "%s/file", folder);
    return setenv(variable, path, 1);
}

static inline int remove_folder(void)
{
    unlink(path);
    return rmdir(folder);
}

static inline void write_bytes(const void *bytes, size_t count)
{
    int fd;

    unlink(path);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CU_ASSERT_FATAL(fd >= 0);
    CU_ASSERT_EQUAL_FATAL(write(fd, bytes, count), (ssize_t)count);
    close(fd);
}

#endif
