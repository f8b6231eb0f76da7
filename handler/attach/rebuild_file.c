/* rebuild_file.c - where the new registry is made, and what killed rebuilds left there.
 *
 * REBUILD_FILE-1  The file of a rebuild has a lock beside it, which its process holds from before
 *     the file is made until it is gone. Only that lock tells that a file is nobody's: another
 *     process may have the number in its name by now.
 * REBUILD_FILE-2  A process that removes a lock file holds its lock. So a process that got a lock
 *     compares: if that file no longer has the name, it begins again.
 * Threads: the caller's.
 * Crash story: a crash leaves files whose lock is free; the next rebuild removes them.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attach/rebuild_inside.h"

#define LOCK ".owner"
#define FILE_TEXT (PLX_PATH_MAX + 64)

/* The lock beside a file, or -1: another process has it, or it cannot be made (errno). */
static int lock_beside(const char *path)
{
    char name[FILE_TEXT + sizeof LOCK];
    struct stat locked, there;
    int fd;

    snprintf(name, sizeof name, "%s" LOCK, path);
    for (;;) {
        fd = open(name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
            return -1;
        if (flock(fd, LOCK_EX | LOCK_NB) || fstat(fd, &locked)) {
            close(fd);
            return -1;
        }
        if (stat(name, &there) == 0 && there.st_ino == locked.st_ino)
            return fd;
        close(fd); /* REBUILD_FILE-2 */
    }
}

static void remove_locked(const char *path, int lock)
{
    char name[FILE_TEXT + sizeof LOCK];

    plx_registry_remove(path);
    snprintf(name, sizeof name, "%s" LOCK, path);
    unlink(name);
    close(lock);
}

/* The file that a name in the state directory belongs to; false: to none. */
static bool find_owner(const struct rebuild *r, const char *name, char ret_path[FILE_TEXT])
{
    int pid = 0, length = 0;

    if (sscanf(name, "rebuild.%9d.db%n", &pid, &length) != 1 || !length || pid <= 0)
        return false;
    snprintf(ret_path, FILE_TEXT, "%s/rebuild.%d.db", r->paths.state, pid);
    return true;
}

/* REBUILD_FILE-1. What cannot be removed is left to the next one. */
static void remove_left(const struct rebuild *r)
{
    DIR *folder = opendir(r->paths.state);
    const struct dirent *entry;

    while (folder && (entry = readdir(folder))) {
        char path[FILE_TEXT];
        int lock = find_owner(r, entry->d_name, path) ? lock_beside(path) : -1;

        if (lock >= 0)
            remove_locked(path, lock);
    }
    if (folder)
        closedir(folder);
}

/* Of a dry run it lies in a folder of its own: the state directory need not be there. */
static int place_aside(struct rebuild *r)
{
    const char *temporary = getenv("TMPDIR");

    if (!temporary || !*temporary)
        temporary = "/tmp";
    snprintf(r->folder, sizeof r->folder, "%s/parallax-XXXXXX", temporary);
    if (!mkdtemp(r->folder)) {
        r->folder[0] = 0;
        return plx_fault_set(r->fault, PLX_ERR_SYSTEM, "cannot make a folder in %.200s: %s",
                             temporary, strerror(errno));
    }
    snprintf(r->path, sizeof r->path, "%s/rebuild.db", r->folder);
    return 0;
}

int plx_rebuilding_place_file(struct rebuild *r)
{
    r->lock = -1;
    if (r->options->dry_run)
        return place_aside(r);
    remove_left(r);
    snprintf(r->path, sizeof r->path, "%s/rebuild.%d.db", r->paths.state, (int)getpid());
    r->lock = lock_beside(r->path);
    if (r->lock >= 0) {
        plx_registry_remove(r->path);
        return 0;
    }
    plx_fault_set(r->fault, plx_paths_error(errno), "cannot make %.200s" LOCK ": %s", r->path,
                  strerror(errno));
    r->path[0] = 0;
    return r->fault->code;
}

void plx_rebuilding_remove_file(struct rebuild *r)
{
    if (r->path[0] && r->lock >= 0)
        remove_locked(r->path, r->lock);
    else if (r->path[0])
        plx_registry_remove(r->path);
    if (r->folder[0])
        rmdir(r->folder);
}
