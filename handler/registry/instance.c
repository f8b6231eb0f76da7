/* instance.c - proof that a process of this host is alive, or dead.
 *
 * N1  A file appears under its name only when it is locked already, so a file that can be locked
 *     is a dead instance's, never one of an instance that is about to start.
 * N2  A missing file proves nothing by itself (somebody may have cleaned /run). It does after a
 *     reboot, and when no process has the instance's number any more.
 * N3  A file that is not locked yet has a hidden name. Who is killed before it gets its own leaves
 *     it behind; the next who makes one takes it away, and may in doing so take that of another who
 *     is just making his: he makes it once more.
 * Threads: any.
 * Crash story: a crash leaves the file, unlocked. It is the sign of death, and is removed by who
 *   takes the instance's locks over.
 */
#include "registry/instance.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define FILE_PATH_MAX (PLX_PATH_MAX + 64)
#define HIDDEN ".new"
#define TRIES 100

static void file_path(const struct plx_paths *paths, uint64_t id, const char *suffix,
                      char ret_path[FILE_PATH_MAX])
{
    snprintf(ret_path, FILE_PATH_MAX, "%s/instances/%llu%s", paths->run, (unsigned long long)id,
             suffix);
}

/* N3: hidden files that nobody has locked. */
static void sweep(const struct plx_paths *paths)
{
    char folder[FILE_PATH_MAX];
    struct dirent *entry;
    DIR *list;

    snprintf(folder, sizeof folder, "%s/instances", paths->run);
    list = opendir(folder);
    while (list && (entry = readdir(list))) {
        const char *suffix = strchr(entry->d_name, '.');
        int fd = -1;

        if (suffix && strcmp(suffix, HIDDEN) == 0)
            fd = openat(dirfd(list), entry->d_name, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            continue;
        if (!flock(fd, LOCK_SH | LOCK_NB))
            unlinkat(dirfd(list), entry->d_name, 0);
        close(fd);
    }
    if (list)
        closedir(list);
}

/* N1. Returns an errno. */
static int make_locked(const char *hidden, const char *path, int *ret_fd)
{
    int fd = open(hidden, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600), error;

    if (fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB) && !rename(hidden, path)) {
        *ret_fd = fd;
        return 0;
    }
    error = errno;
    if (fd >= 0) {
        close(fd);
        unlink(hidden);
    }
    return error;
}

int plx_instance_create(const struct plx_paths *paths, const char *role,
                        struct plx_instance *ret_instance, struct plx_fault *fault)
{
    struct plx_instance instance = {.row = {.id = plx_id_random(), .pid = getpid()}};
    char path[FILE_PATH_MAX], hidden[FILE_PATH_MAX];
    int error;

    sweep(paths);
    file_path(paths, instance.row.id, "", path);
    file_path(paths, instance.row.id, HIDDEN, hidden);
    error = make_locked(hidden, path, &instance.fd);
    for (int i = 1; i < TRIES && (error == EWOULDBLOCK || error == ENOENT); i++) /* N3 */
        error = make_locked(hidden, path, &instance.fd);
    if (error)
        return plx_fault_set(fault, error == EACCES ? PLX_ERR_PERMISSION : PLX_ERR_SYSTEM,
                             "cannot make %.150s: %s", path, strerror(error));
    memcpy(instance.row.host, paths->host, sizeof instance.row.host);
    memcpy(instance.row.host_name, paths->host_name, sizeof instance.row.host_name);
    memcpy(instance.row.boot, paths->boot, sizeof instance.row.boot);
    snprintf(instance.row.role, sizeof instance.row.role, "%s", role);
    *ret_instance = instance;
    return 0;
}

void plx_instance_close(const struct plx_paths *paths, struct plx_instance *instance,
                        bool unregistered)
{
    if (unregistered)
        plx_instance_bury(paths, &instance->row);
    close(instance->fd);
    instance->fd = -1;
}

void plx_instance_bury(const struct plx_paths *paths, const struct plx_registry_instance *row)
{
    char path[FILE_PATH_MAX];

    file_path(paths, row->id, "", path);
    unlink(path);
}

bool plx_instance_is_dead(const struct plx_paths *paths, const struct plx_registry_instance *row,
                          struct plx_fault *fault)
{
    char path[FILE_PATH_MAX];
    bool dead;
    int fd, error;

    if (strcmp(row->host, paths->host)) {
        plx_fault_set(fault, PLX_ERR_BUSY,
                      "%s (pid %lld) runs on host %s: only that host, or a "
                      "fence, can prove it dead",
                      row->role, (long long)row->pid, row->host_name);
        return false;
    }
    file_path(paths, row->id, "", path);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        dead = !flock(fd, LOCK_SH | LOCK_NB);
        error = errno;
        close(fd);
        if (!dead && error == EWOULDBLOCK)
            plx_fault_set(fault, PLX_ERR_BUSY, "%s (pid %lld) is running", row->role,
                          (long long)row->pid);
        else if (!dead)
            plx_fault_set(fault, PLX_ERR_SYSTEM, "cannot probe %.150s: %s", path, strerror(error));
        return dead;
    }
    error = errno;
    if (error == ENOENT && row->boot[0] && paths->boot[0] && strcmp(row->boot, paths->boot))
        return true;
    if (error == ENOENT && row->pid > 0 && kill((pid_t)row->pid, 0) && errno == ESRCH)
        return true;
    plx_fault_set(fault, PLX_ERR_BUSY, "%s (pid %lld) may be running: %.120s: %s", row->role,
                  (long long)row->pid, path, strerror(error));
    return false;
}
