/* entries.c - see entries.h.
 *
 * ENTRIES-1  An entry appears under its name as a whole, by rename(), and is durable before the
 *     call returns. So a reader, or a crash, sees the old entry or the new one.
 * ENTRIES-2  Anybody may have edited a file. So whatever it holds, reading it ends with an object
 *     or an error, and takes no more memory than an entry can need.
 * ENTRIES-3  A lock on the folder is held from asking whether an item may be entered until it is.
 *     So when two processes enter one thing at the same time, the second one sees the first one's.
 * Threads: any.
 * Crash story: a crash leaves the old entry or the new one. It may also leave a file ".NAME.PID",
 *   which the next writer with that process number replaces.
 */
#include "attach/entries.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/small_file.h"
#include "engine/base/list.h"

#define SUFFIX ".json"
#define LOCK_WAIT_MS 5000u
#define FOLDER_ROOM (PLX_PATH_MAX + 128)
#define PATH_ROOM (FOLDER_ROOM + sizeof((struct name *)0)->text + 16)
#define BYTES_MAX (2u << 20) /* more than all volumes of a store with the longest paths take */

struct name {
    char text[256];
};

static void folder_path(const struct plx_paths *paths, const struct plx_entries *kind,
                        char ret_path[FOLDER_ROOM])
{
    snprintf(ret_path, FOLDER_ROOM, "%s/%s", paths->state, kind->folder);
}

static void entry_path(const struct plx_paths *paths, const struct plx_entries *kind,
                       const char *name, char ret_path[PATH_ROOM])
{
    snprintf(ret_path, PATH_ROOM, "%s/%s/%s" SUFFIX, paths->state, kind->folder, name);
}

/* ---- Reading ---- */

static int refuse(const struct plx_paths *paths, const struct plx_entries *kind, const char *name,
                  struct plx_fault *fault)
{
    char path[PATH_ROOM];

    entry_path(paths, kind, name, path);
    return plx_fault_set(fault, PLX_ERR_INVALID,
                         "%.200s cannot be read: its contents are not an entry of %s; %s", path,
                         kind->one, kind->again);
}

/* ENTRIES-2 */
static int read_entry(const struct plx_paths *paths, const struct plx_entries *kind,
                      const char *name, json_t **ret_entry, struct plx_fault *fault)
{
    struct plx_fault unopened;
    char path[PATH_ROOM];
    json_error_t why;
    json_t *entry;
    int fd, error;

    entry_path(paths, kind, name, path);
    error = plx_small_file_open(path, BYTES_MAX, PLX_FILE_ANYBODY, &fd, &unopened);
    if (error == PLX_ERR_INVALID)
        return plx_fault_set(fault, error, "%.230s, so it cannot be the entry of %s; %s",
                             unopened.text, kind->one, kind->again);
    if (error)
        return plx_fault_set(fault, error, "%s", unopened.text);
    entry = json_loadfd(fd, JSON_REJECT_DUPLICATES, &why);
    close(fd);
    if (!entry && json_error_code(&why) == json_error_out_of_memory)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory reading %.200s", path);
    if (!entry)
        return plx_fault_set(fault, PLX_ERR_INVALID, "%.200s cannot be read: %s; %s", path,
                             why.text, kind->again);
    *ret_entry = entry;
    return 0;
}

int plx_entry_get(const struct plx_paths *paths, const struct plx_entries *kind, const char *name,
                  void *ret_item, struct plx_fault *fault)
{
    json_t *entry;
    int error = read_entry(paths, kind, name, &entry, fault);

    if (error)
        return error;
    memset(ret_item, 0, kind->size);
    error = kind->take(entry, name, ret_item);
    json_decref(entry);
    if (!error)
        return 0;
    kind->done(ret_item);
    return error == PLX_ERR_NOMEM ? plx_fault_set(fault, error, "out of memory")
                                  : refuse(paths, kind, name, fault);
}

/* The name that a file of the folder stands for. */
static bool entry_name(const char *file, struct name *ret_name)
{
    size_t length = strlen(file), suffix = strlen(SUFFIX);

    if (file[0] == '.' || length <= suffix || strcmp(file + length - suffix, SUFFIX) != 0)
        return false;
    memcpy(ret_name->text, file, length - suffix);
    ret_name->text[length - suffix] = 0;
    return true;
}

/* The names of all files in the folder that may be entries, in no order. To be freed. */
static int entry_names(const struct plx_paths *paths, const struct plx_entries *kind,
                       struct name **ret_names, size_t *ret_count, struct plx_fault *fault)
{
    struct name *names = NULL;
    size_t count = 0, room = 0;
    char folder[FOLDER_ROOM];
    struct dirent *file;
    DIR *files;
    int error = 0;

    folder_path(paths, kind, folder);
    files = opendir(folder);
    if (!files && errno != ENOENT)
        return plx_fault_set(fault, errno == EACCES ? PLX_ERR_PERMISSION : PLX_ERR_SYSTEM,
                             "cannot read %.200s: %s", folder, strerror(errno));
    while (files && !error && (file = readdir(files))) {
        if (!PLX_LIST_ROOM(names, count, room, 16))
            error = plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
        else
            count += entry_name(file->d_name, &names[count]);
    }
    if (files)
        closedir(files);
    if (error) {
        free(names);
        return error;
    }
    *ret_names = names;
    *ret_count = count;
    return 0;
}

/* Reads the entry of this name, if there is one, into an item of a list. */
static int list_entry(const struct plx_paths *paths, const struct plx_entries *kind,
                      const char *name, void *item, size_t *count, struct plx_fault *fault)
{
    struct plx_fault why;
    int error;

    if (!kind->is_name(name))
        return 0;
    error = plx_entry_get(paths, kind, name, item, &why);
    if (error == PLX_ERR_NOT_FOUND) /* removed meanwhile */
        return 0;
    if (error == PLX_ERR_NOMEM)
        return plx_fault_set(fault, error, "%s", why.text);
    if (error) {
        memset(item, 0, kind->size);
        kind->refuse(name, &why, item);
    }
    ++*count;
    return 0;
}

int plx_entries_list(const struct plx_paths *paths, const struct plx_entries *kind, void *ret_list,
                     size_t *ret_count, struct plx_fault *fault)
{
    struct name *names;
    char *list;
    size_t found, count = 0;
    int error = entry_names(paths, kind, &names, &found, fault);

    if (error)
        return error;
    list = calloc(found + 1, kind->size);
    if (!list)
        error = plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < found && !error; i++)
        error = list_entry(paths, kind, names[i].text, list + count * kind->size, &count, fault);
    free(names);
    if (error) {
        plx_entries_free(kind, list, count);
        return error;
    }
    qsort(list, count, kind->size, kind->compare);
    memcpy(ret_list, &list, sizeof list);
    *ret_count = count;
    return 0;
}

void plx_entries_free(const struct plx_entries *kind, void *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        kind->done((char *)list + i * kind->size);
    free(list);
}

/* ---- Writing ---- */

static int cannot_write(const char *path, struct plx_fault *fault)
{
    int error = plx_paths_error(errno);

    return plx_fault_set(fault, error, "cannot write %.200s: %s%s", path, strerror(errno),
                         error == PLX_ERR_NOSPACE ? "; make room there, or give another --state-dir"
                                                  : "");
}

static int sync_folder(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), failed;

    if (fd < 0)
        return -1;
    failed = fsync(fd);
    close(fd);
    return failed;
}

/* ENTRIES-1. try: it does not get its name. */
static int write_whole(const char *folder, const char *name, const char *text, bool try,
                       struct plx_fault *fault)
{
    char path[PATH_ROOM], hidden[PATH_ROOM];
    size_t length = strlen(text);
    int fd, error = 0;

    snprintf(path, sizeof path, "%s/%s" SUFFIX, folder, name);
    snprintf(hidden, sizeof hidden, "%s/.%s.%d", folder, name, (int)getpid());
    fd = open(hidden, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST && !unlink(hidden)) /* a crash left it */
        fd = open(hidden, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0)
        errno = ENOSPC; /* of a write that is cut short */
    if (fd < 0 || write(fd, text, length) != (ssize_t)length || fsync(fd) ||
        (!try && rename(hidden, path)) || sync_folder(folder))
        error = cannot_write(path, fault);
    if (try || error)
        unlink(hidden);
    if (fd >= 0)
        close(fd);
    return error;
}

/* Makes the folder, and locks it; *ret_fd is to be closed. */
static int lock_folder(const struct plx_paths *paths, const struct plx_entries *kind,
                       const struct plx_patience *patience, int *ret_fd, struct plx_fault *fault)
{
    unsigned wait_ms = LOCK_WAIT_MS;
    const struct plx_patience some = {plx_patience_fixed, &wait_ms};
    uint64_t since_ns = plx_patience_begin();
    char folder[FOLDER_ROOM];
    struct plx_fault why;
    int fd, failed = plx_paths_make_state(paths, fault);

    if (failed)
        return failed;
    folder_path(paths, kind, folder);
    if (mkdir(folder, 0700) ? errno != EEXIST : sync_folder(paths->state) != 0)
        return cannot_write(folder, fault);
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return cannot_write(folder, fault);
    plx_fault_set(&why, PLX_ERR_BUSY, "%.200s: another command changes %s; try again", folder,
                  kind->all);
    do
        failed = flock(fd, LOCK_EX | LOCK_NB);
    while (failed &&
           (errno == EINTR || (errno == EWOULDBLOCK &&
                               plx_patience_waits(patience ? patience : &some, since_ns, &why))));
    if (!failed) {
        *ret_fd = fd;
        return 0;
    }
    failed = errno == EWOULDBLOCK ? plx_fault_set(fault, PLX_ERR_BUSY, "%s", why.text)
                                  : cannot_write(folder, fault);
    close(fd);
    return failed;
}

/* ENTRIES-3 */
static int enter(const struct plx_paths *paths, const struct plx_entries *kind, const char *name,
                 const void *item, const char *text, bool try, const struct plx_patience *patience,
                 struct plx_fault *fault)
{
    char folder[FOLDER_ROOM];
    int fd, error = lock_folder(paths, kind, patience, &fd, fault);

    if (error)
        return error;
    error = kind->check(paths, item, fault);
    folder_path(paths, kind, folder);
    if (!error)
        error = write_whole(folder, name, text, try, fault);
    close(fd);
    return error;
}

int plx_entry_put(const struct plx_paths *paths, const struct plx_entries *kind, const char *name,
                  const void *item, bool try, const struct plx_patience *patience,
                  struct plx_fault *fault)
{
    json_t *entry = kind->make(item);
    char *text = entry ? json_dumps(entry, JSON_INDENT(2)) : NULL;
    int error;

    if (!entry)
        error =
            plx_fault_set(fault, PLX_ERR_INVALID,
                          "a path in the entry of %s (%.120s) is not valid UTF-8", kind->one, name);
    else if (!text)
        error = plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    else
        error = enter(paths, kind, name, item, text, try, patience, fault);
    free(text);
    json_decref(entry);
    return error;
}

int plx_entry_remove(const struct plx_paths *paths, const struct plx_entries *kind,
                     const char *name, struct plx_fault *fault)
{
    char path[PATH_ROOM], folder[FOLDER_ROOM];

    entry_path(paths, kind, name, path);
    folder_path(paths, kind, folder);
    if (unlink(path) == 0)
        return sync_folder(folder) ? cannot_write(path, fault) : 0;
    return errno == ENOENT ? PLX_ERR_NOT_FOUND : cannot_write(path, fault);
}
