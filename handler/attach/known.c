/* known.c - see known.h.
 *
 * KNOWN-1  An entry appears under its name as a whole, by rename(), and is durable before the call
 *     returns. So a reader, or a crash, sees the old entry or the new one.
 * KNOWN-2  The content of an entry is checked whenever it is read, since anybody may have edited
 *     the file. A password in a URL, which entries of earlier versions had, is left out.
 * KNOWN-3  A lock on the folder is held from asking whether a name is free until the entry is
 *     written. So when two stores are given one name at the same time, one of them gets it.
 * KNOWN-4  One entry that cannot be read hides none of the others: what these say counts first.
 *     Only where they say nothing is it an error, for the answer may be in that entry.
 * Threads: any.
 * Crash story: a crash leaves the old entry or the new one. It may also leave a file ".NAME.PID",
 *   which the next writer with that process number replaces.
 */
#include "attach/known.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attach/volumes.h"
#include "device/credentials.h"

#define SUFFIX ".json"
#define LOCK_WAIT_MS 5000u
#define ENTRY_MAX (PLX_PATH_MAX + 128)
#define ENTRY_BYTES_MAX (2u << 20) /* more than all volumes with the longest paths take */

static void folder_path(const struct plx_paths *paths, char ret_path[ENTRY_MAX])
{
    snprintf(ret_path, ENTRY_MAX, "%s/stores", paths->state);
}

static void entry_path(const struct plx_paths *paths, const char *name, char ret_path[ENTRY_MAX])
{
    snprintf(ret_path, ENTRY_MAX, "%s/stores/%s" SUFFIX, paths->state, name);
}

void plx_known_done(struct plx_known *known)
{
    for (unsigned i = 0; i < known->volumes; i++)
        free(known->volume[i]);
    known->volumes = 0;
}

void plx_known_list_free(struct plx_known *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        plx_known_done(&list[i]);
    free(list);
}

/* ---- Reading ---- */

static int cannot_read(const char *path, struct plx_fault *fault)
{
    return plx_fault_set(fault, errno == EACCES ? PLX_ERR_PERMISSION : PLX_ERR_SYSTEM,
                         "cannot read %.200s: %s", path, strerror(errno));
}

static int no_entry(const struct plx_paths *paths, const char *name, struct plx_fault *fault)
{
    return plx_fault_set(fault, PLX_ERR_NOT_FOUND,
                         "there is no store '%.80s' (looked in %.120s/stores); 'parallax store "
                         "list' shows those that are known here, 'parallax store import --volume "
                         "PATH' makes one known here",
                         name, paths->state);
}

/* KNOWN-2 */
static int take_volumes(const json_t *volumes, struct plx_known *known)
{
    size_t count = json_array_size(volumes);

    if (count < 1 || count > PLX_VOLUMES_MAX)
        return PLX_ERR_INVALID;
    for (size_t i = 0; i < count; i++) {
        const char *path = json_string_value(json_array_get(volumes, i));

        if (!path || !*path || strlen(path) >= PLX_PATH_MAX)
            return PLX_ERR_INVALID;
        known->volume[i] = strdup(path);
        if (!known->volume[i])
            return PLX_ERR_NOMEM;
        plx_url_drop_password(known->volume[i]);
        known->volumes++;
    }
    return 0;
}

static int take_entry(const json_t *entry, const char *name, struct plx_known *known)
{
    const char *uuid = json_string_value(json_object_get(entry, "uuid"));
    const json_t *own = json_object_get(entry, "identity");
    const char *identity = own ? json_string_value(own) : uuid;

    if (!uuid || plx_uuid_check(uuid) || !identity || plx_uuid_check(identity))
        return PLX_ERR_INVALID;
    snprintf(known->name, sizeof known->name, "%s", name);
    snprintf(known->uuid, sizeof known->uuid, "%s", uuid);
    snprintf(known->identity, sizeof known->identity, "%s", identity);
    return take_volumes(json_object_get(entry, "volumes"), known);
}

static int read_entry(const char *path, const char *name, struct plx_known *ret_known,
                      struct plx_fault *fault)
{
    struct plx_known known = {0};
    struct plx_fault unopened;
    json_error_t why;
    json_t *entry;
    bool room;
    int fd, error = plx_paths_open(path, ENTRY_BYTES_MAX, &fd, &unopened);

    if (error == PLX_ERR_INVALID)
        return plx_fault_set(
            fault, error,
            "%.230s, so it cannot be the entry of a store; remove it, and enter the "
            "store again with 'parallax store import --volume PATH'",
            unopened.text);
    if (error)
        return plx_fault_set(fault, error, "%s", unopened.text);
    entry = json_loadfd(fd, JSON_REJECT_DUPLICATES, &why);
    close(fd);
    room = entry || json_error_code(&why) != json_error_out_of_memory;
    error = entry ? take_entry(entry, name, &known) : room ? PLX_ERR_INVALID : PLX_ERR_NOMEM;
    if (!error)
        *ret_known = known;
    else
        plx_known_done(&known);
    if (error == PLX_ERR_NOMEM)
        plx_fault_set(fault, error, "out of memory reading %.200s", path);
    else if (error)
        plx_fault_set(fault, error,
                      "%.200s cannot be read: %s; remove it, and enter the store again with "
                      "'parallax store import --volume PATH'",
                      path, entry ? "its contents are not an entry of a store" : why.text);
    json_decref(entry);
    return error;
}

/* The name that a file of the folder stands for. */
static bool entry_name(const char *file, char ret_name[PLX_STORE_NAME_MAX + 1])
{
    size_t length = strlen(file), suffix = strlen(SUFFIX);
    char why[160];

    if (length <= suffix || length - suffix > PLX_STORE_NAME_MAX ||
        strcmp(file + length - suffix, SUFFIX) != 0)
        return false;
    memcpy(ret_name, file, length - suffix);
    ret_name[length - suffix] = 0;
    return plx_name_check("store", ret_name, why, sizeof why) == 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct plx_known *)a)->name, ((const struct plx_known *)b)->name);
}

static struct plx_known unreadable(const char *name, const struct plx_fault *why)
{
    struct plx_known known = {.problem = *why};

    snprintf(known.name, sizeof known.name, "%s", name);
    return known;
}

static int read_folder(const char *folder, DIR *entries, struct plx_known **list, size_t *count,
                       struct plx_fault *fault)
{
    char path[ENTRY_MAX + 256], name[PLX_STORE_NAME_MAX + 1];
    struct dirent *file;
    struct plx_fault why;

    while ((file = readdir(entries))) {
        struct plx_known *bigger;

        if (!entry_name(file->d_name, name))
            continue;
        bigger = realloc(*list, (*count + 1) * sizeof *bigger);
        if (!bigger)
            return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
        *list = bigger;
        snprintf(path, sizeof path, "%s/%s" SUFFIX, folder, name);
        switch (read_entry(path, name, &bigger[*count], &why)) {
        case PLX_ERR_NOT_FOUND: /* forgotten meanwhile */
            continue;
        case PLX_ERR_NOMEM:
            return plx_fault_set(fault, why.code, "%s", why.text);
        case 0:
            break;
        default:
            bigger[*count] = unreadable(name, &why);
        }
        ++*count;
    }
    return 0;
}

int plx_known_list(const struct plx_paths *paths, struct plx_known **ret_list, size_t *ret_count,
                   struct plx_fault *fault)
{
    struct plx_known *list = NULL;
    char folder[ENTRY_MAX];
    size_t count = 0;
    DIR *entries;
    int error;

    folder_path(paths, folder);
    entries = opendir(folder);
    if (!entries && errno != ENOENT)
        return cannot_read(folder, fault);
    error = entries ? read_folder(folder, entries, &list, &count, fault) : 0;
    if (entries)
        closedir(entries);
    if (error) {
        plx_known_list_free(list, count);
        return error;
    }
    if (count)
        qsort(list, count, sizeof *list, compare_names);
    *ret_list = list;
    *ret_count = count;
    return 0;
}

static int get_by_identity(const struct plx_paths *paths, const char *identity,
                           struct plx_known *ret_known, struct plx_fault *fault)
{
    struct plx_known *list;
    size_t count;
    struct plx_fault why = {0}; /* KNOWN-4 */
    bool found = false;
    int error = plx_known_list(paths, &list, &count, fault);

    if (error)
        return error;
    for (size_t i = 0; i < count && !found; i++) {
        found = strcmp(list[i].identity, identity) == 0;
        if (list[i].problem.code)
            why = list[i].problem;
        if (found) {
            *ret_known = list[i];
            list[i].volumes = 0; /* they went along */
        }
    }
    plx_known_list_free(list, count);
    if (!found && why.code)
        return plx_fault_set(fault, why.code, "%s", why.text);
    return found ? 0 : no_entry(paths, identity, fault);
}

int plx_known_get(const struct plx_paths *paths, const char *name, struct plx_known *ret_known,
                  struct plx_fault *fault)
{
    char path[ENTRY_MAX], why[160];
    int error;

    if (plx_uuid_check(name) == 0)
        return get_by_identity(paths, name, ret_known, fault);
    if (plx_name_check("store", name, why, sizeof why))
        return no_entry(paths, name, fault);
    entry_path(paths, name, path);
    error = read_entry(path, name, ret_known, fault);
    return error == PLX_ERR_NOT_FOUND ? no_entry(paths, name, fault) : error;
}

int plx_known_missing(const struct plx_known *known, int error, struct plx_fault *fault)
{
    char volumes[PLX_KNOWN_VOLUMES_TEXT];
    struct plx_fault why = {0};

    if (error != PLX_ERR_NOT_FOUND)
        return error;
    if (fault)
        why = *fault;
    plx_known_count_volumes(known, volumes);
    return plx_fault_set(fault, PLX_ERR_MISSING,
                         "store %s: %s; connect or restore the volume, or 'parallax store "
                         "import %s' tells where it lies now",
                         known->name, why.text, volumes);
}

int plx_known_add_volumes(struct plx_known *known, const char *const *paths, unsigned count,
                          struct plx_fault *fault)
{
    for (unsigned i = 0; i < count; i++) {
        int error = plx_volumes_absolute(paths[i], &known->volume[known->volumes], fault);

        if (error)
            return error;
        known->volumes++;
    }
    return 0;
}

int plx_known_free_name(const struct plx_paths *paths, const char *name, struct plx_fault *fault)
{
    struct plx_known known;
    int error = plx_known_get(paths, name, &known, fault);

    if (error)
        return error == PLX_ERR_NOT_FOUND ? 0 : error;
    plx_known_done(&known);
    return plx_fault_set(
        fault, PLX_ERR_EXISTS,
        "a store named %s exists already; 'parallax store forget %s' drops it from "
        "the list of known stores",
        name, name);
}

int plx_known_at(const struct plx_known *list, size_t count, const char *but, const char *volume,
                 struct plx_known_place *ret_place, struct plx_fault *fault)
{
    const struct plx_fault *problem = NULL;

    *ret_place = (struct plx_known_place){.overlap = PLX_APART};
    for (size_t i = 0; i < count && ret_place->overlap != PLX_SAME; i++) {
        if (list[i].problem.code)
            problem = &list[i].problem; /* KNOWN-4 */
        if (but && strcmp(list[i].identity, but) == 0)
            continue;
        for (unsigned v = 0; v < list[i].volumes && ret_place->overlap != PLX_SAME; v++) {
            enum plx_overlap overlap = plx_storage_compare(volume, list[i].volume[v]);

            if (overlap > ret_place->overlap)
                *ret_place = (struct plx_known_place){&list[i], list[i].volume[v], overlap};
        }
    }
    return problem && !ret_place->known ? plx_fault_set(fault, problem->code, "%s", problem->text)
                                        : 0;
}

void plx_known_name_place(const struct plx_known_place *place, const char *volume,
                          char ret_text[PLX_KNOWN_PLACE_TEXT])
{
    if (place->overlap == PLX_SAME)
        snprintf(ret_text, PLX_KNOWN_PLACE_TEXT, "%.200s is a volume of store %s", volume,
                 place->known->name);
    else
        snprintf(ret_text, PLX_KNOWN_PLACE_TEXT,
                 "%.100s overlaps %.100s, which is a volume of store %s", volume, place->path,
                 place->known->name);
}

void plx_known_name_volumes(const struct plx_known *known, char ret_text[PLX_KNOWN_VOLUMES_TEXT])
{
    const size_t size = PLX_KNOWN_VOLUMES_TEXT;
    size_t at = 0;

    for (unsigned i = 0; i < known->volumes && at < size; i++)
        at += (size_t)snprintf(ret_text + at, size - at, "%s--volume %s", i ? " " : "",
                               known->volume[i]);
    if (at >= size)
        snprintf(ret_text, size, "--volume PATH...");
}

void plx_known_count_volumes(const struct plx_known *known, char ret_text[PLX_KNOWN_VOLUMES_TEXT])
{
    static char path[] = "PATH";
    struct plx_known unknown = {.volumes = known->volumes};

    for (unsigned i = 0; i < known->volumes; i++)
        unknown.volume[i] = path;
    plx_known_name_volumes(&unknown, ret_text);
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

/* KNOWN-1. try: it does not get its name. */
static int write_whole(const char *folder, const char *name, const char *text, bool try,
                       struct plx_fault *fault)
{
    char path[ENTRY_MAX + 128], hidden[ENTRY_MAX + 128];
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

static int check_name_free(const struct plx_paths *paths, const struct plx_known *known,
                           struct plx_fault *fault)
{
    struct plx_known other;
    bool same;
    int error = plx_known_get(paths, known->name, &other, fault);

    if (error)
        return error == PLX_ERR_NOT_FOUND || error == PLX_ERR_INVALID ? 0 : error;
    same = strcmp(other.identity, known->identity) == 0;
    plx_known_done(&other);
    return same ? 0
                : plx_fault_set(fault, PLX_ERR_EXISTS,
                                "another store named %s is known here already; 'parallax store "
                                "forget %s' drops it from the list of those, and touches nothing "
                                "of it",
                                known->name, known->name);
}

/* KNOWN-3. Another one has it as long as it takes to write an entry. */
static int lock_folder(const char *folder, const struct plx_patience *patience, int *ret_fd,
                       struct plx_fault *fault)
{
    static unsigned wait_ms = LOCK_WAIT_MS;
    static const struct plx_patience some = {plx_patience_fixed, &wait_ms};
    uint64_t since_ns = plx_patience_begin();
    struct plx_fault why;
    int fd, failed;

    if (mkdir(folder, 0700) && errno != EEXIST)
        return cannot_write(folder, fault);
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return cannot_write(folder, fault);
    plx_fault_set(&why, PLX_ERR_BUSY,
                  "%.200s: another command changes the list of stores; try again", folder);
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

static char *entry_text(const struct plx_known *known)
{
    json_t *volumes = json_array(), *entry;
    char *text;

    for (unsigned i = 0; i < known->volumes; i++)
        json_array_append_new(volumes, json_string(known->volume[i]));
    entry = json_pack("{s:s,s:s,s:o}", "uuid", known->uuid, "identity", known->identity, "volumes",
                      volumes);
    text = entry ? json_dumps(entry, JSON_INDENT(2)) : NULL;
    json_decref(entry);
    return text;
}

static int enter(const struct plx_paths *paths, const struct plx_known *known, bool try,
                 const struct plx_patience *patience, struct plx_fault *fault)
{
    char folder[ENTRY_MAX];
    char *text = entry_text(known);
    int error, fd = -1;

    if (!text)
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "the path of a volume of store %s is not valid UTF-8", known->name);
    folder_path(paths, folder);
    error = plx_paths_make_state(paths, fault);
    if (!error)
        error = lock_folder(folder, patience, &fd, fault);
    if (!error)
        error = check_name_free(paths, known, fault);
    if (!error)
        error = write_whole(folder, known->name, text, try, fault);
    if (fd >= 0)
        close(fd);
    free(text);
    return error;
}

int plx_known_try(const struct plx_paths *paths, const struct plx_known *known,
                  const struct plx_patience *patience, struct plx_fault *fault)
{
    return enter(paths, known, true, patience, fault);
}

int plx_known_put(const struct plx_paths *paths, const struct plx_known *known,
                  const struct plx_patience *patience, struct plx_fault *fault)
{
    return enter(paths, known, false, patience, fault);
}

int plx_known_remove(const struct plx_paths *paths, const char *name, struct plx_fault *fault)
{
    char path[ENTRY_MAX], folder[ENTRY_MAX];

    entry_path(paths, name, path);
    folder_path(paths, folder);
    if (unlink(path) == 0)
        return sync_folder(folder) ? cannot_write(path, fault) : 0;
    return errno == ENOENT ? no_entry(paths, name, fault) : cannot_write(path, fault);
}
