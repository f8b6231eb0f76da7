/* paths.c - see paths.h.
 *
 * PATHS-1  The host's id is the machine's id (/etc/machine-id), hashed as its manual page asks. So
 *     all users and state directories of a machine agree on it. STATE/host-id takes its place on a
 *     machine without an id, or where an operator has put such a file. That file never changes once
 *     anybody has read it: link() gives it its name when it is complete, and of several makers the
 *     first one wins.
 * PATHS-2  No directory is made before something is to be put into it, so a process that only reads
 *     needs none. A host that has no id and cannot keep one, for want of permission or of room, can
 *     read, but it takes no store.
 * Threads: any, each on its own struct.
 * Crash story: a crash leaves at most an empty directory, or a temporary file host-id.<random>.
 */
#include "registry/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/small_file.h"
#include "engine/base/hash.h"
#include "engine/format/format.h"

/* Reads the first line of a small file. */
static int read_line(const char *path, char *line, size_t size, struct plx_fault *fault)
{
    int fd, error = plx_small_file_open(path, SIZE_MAX, PLX_FILE_ANYBODY, &fd, fault);
    ssize_t got;

    if (error)
        return error;
    got = read(fd, line, size - 1);
    if (got < 0)
        error =
            plx_fault_set(fault, PLX_ERR_SYSTEM, "cannot read %.200s: %s", path, strerror(errno));
    close(fd);
    if (error)
        return error;
    line[got] = 0;
    line[strcspn(line, "\n")] = 0;
    return 0;
}

int plx_paths_error(int number)
{
    return number == EACCES || number == EPERM || number == EROFS    ? PLX_ERR_PERMISSION
           : number == ENOSPC || number == EDQUOT || number == EFBIG ? PLX_ERR_NOSPACE
                                                                     : PLX_ERR_SYSTEM;
}

static int make_directory(const char *path, struct plx_fault *fault)
{
    struct stat st;

    if (!mkdir(path, 0700) || (errno == EEXIST && !stat(path, &st) && S_ISDIR(st.st_mode)))
        return 0;
    if (errno == EACCES || errno == EPERM || errno == EROFS)
        return plx_fault_set(fault, PLX_ERR_PERMISSION,
                             "cannot make %.150s: %s; run as root, or "
                             "give --state-dir",
                             path, strerror(errno));
    return plx_fault_set(
        fault, plx_paths_error(errno), "cannot make directory %.150s: %s%s", path, strerror(errno),
        plx_paths_error(errno) == PLX_ERR_NOSPACE ? "; make room there, or give another --state-dir"
                                                  : "");
}

static int make_host_id(const char *path, struct plx_fault *fault)
{
    char id[PLX_UUID_TEXT], temporary[PLX_PATH_MAX + 32];
    bool done;
    int fd, code = 0;

    plx_uuid_random(id);
    snprintf(temporary, sizeof temporary, "%s.%.8s", path, id);
    fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    done = fd >= 0 && dprintf(fd, "%s\n", id) == PLX_UUID_TEXT && !fsync(fd) &&
           (!link(temporary, path) || errno == EEXIST);
    if (!done)
        code = plx_fault_set(fault, plx_paths_error(errno), "cannot make %.150s: %s", path,
                             strerror(errno));
    if (fd >= 0) {
        close(fd);
        unlink(temporary);
    }
    return code;
}

/* PATHS-1 */
static bool machine_id(char ret_id[PLX_UUID_TEXT])
{
    char salted[64] = "parallax host 0 ", *id = salted + 16;
    struct plx_uuid uuid;
    uint64_t half[2];

    if (read_line("/etc/machine-id", id, sizeof salted - 16, NULL) || strlen(id) != 32 ||
        strspn(id, "0123456789abcdef") != 32)
        return false;
    for (unsigned i = 0; i < 2; i++) {
        salted[14] = (char)('0' + i);
        half[i] = plx_hash64(salted, strlen(salted));
    }
    memcpy(uuid.b, half, sizeof uuid.b);
    plx_uuid_text(&uuid, ret_id);
    return true;
}

/* Makes the file, or reads the one that another process made first. *id is empty if the file cannot
 * be kept here (PATHS-2). */
static int get_host_id(struct plx_paths *paths, const char *path, char *id, size_t size,
                       struct plx_fault *fault)
{
    int code = plx_paths_make_state(paths, fault);

    id[0] = 0;
    if (!code)
        code = make_host_id(path, fault);
    if (!code)
        return read_line(path, id, size, fault);
    paths->host_error = code;
    return plx_error_is_unwritable(code) ? 0 : code;
}

static int read_host(struct plx_paths *paths, struct plx_fault *fault)
{
    char path[PLX_PATH_MAX + 16], id[PLX_UUID_TEXT + 1];
    bool kept = true; /* false: a host without an id (PATHS-2) */
    int code;

    snprintf(path, sizeof path, "%s/host-id", paths->state);
    code = read_line(path, id, sizeof id, fault);
    if (code == PLX_ERR_NOT_FOUND && machine_id(id)) {
        code = 0;
    } else if (code == PLX_ERR_NOT_FOUND) {
        code = get_host_id(paths, path, id, sizeof id, fault);
        kept = id[0];
    }
    if (code == PLX_ERR_INVALID)
        return plx_fault_set(fault, code,
                             "%.150s is no regular file; restore it (deleting it gives this host a "
                             "new identity)",
                             path);
    if (code)
        return code;
    if (kept && !plx_uuid_parse(id, NULL))
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "%.150s does not hold a UUID; restore it "
                             "(deleting it gives this host a new identity)",
                             path);
    memcpy(paths->host, id, sizeof paths->host);
    gethostname(paths->host_name, sizeof paths->host_name - 1);
    if (!read_line("/proc/sys/kernel/random/boot_id", id, sizeof id, NULL) &&
        plx_uuid_parse(id, NULL))
        memcpy(paths->boot, id, sizeof paths->boot);
    return 0;
}

static int cannot_use(const char *path, int code, const char *why, struct plx_fault *fault)
{
    return plx_fault_set(fault, code, "cannot use directory %.150s: %s", path, why);
}

/* The absolute path of a directory that does not exist yet (PATHS-2). */
static bool absolute(const char *path, char ret_path[PATH_MAX])
{
    char folder[PATH_MAX] = "";

    return (path[0] == '/' || getcwd(folder, sizeof folder)) &&
           snprintf(ret_path, PATH_MAX, "%s%s%s", folder, folder[0] ? "/" : "", path) < PATH_MAX;
}

/* The absolute path of a directory that may not exist yet. */
static int settle(const char *path, char ret_path[PLX_PATH_MAX], struct plx_fault *fault)
{
    char real[PATH_MAX];
    struct stat st;

    if (!stat(path, &st) && !S_ISDIR(st.st_mode))
        return cannot_use(path, PLX_ERR_SYSTEM, strerror(ENOTDIR), fault);
    if (!realpath(path, real) && (errno != ENOENT || !absolute(path, real)))
        return cannot_use(path, errno == EACCES ? PLX_ERR_PERMISSION : PLX_ERR_INVALID,
                          strerror(errno), fault);
    /* Leave room for what is appended, such as "/control/<number>.sock". */
    if (strlen(real) > PLX_PATH_MAX - 64)
        return cannot_use(path, PLX_ERR_INVALID, "path too long", fault);
    snprintf(ret_path, PLX_PATH_MAX, "%s", real);
    return 0;
}

int plx_paths_make_state(const struct plx_paths *paths, struct plx_fault *fault)
{
    return make_directory(paths->state, fault);
}

int plx_paths_make_control(const struct plx_paths *paths, struct plx_fault *fault)
{
    char path[PLX_PATH_MAX + 16];
    /* By default the run directory is not below the state directory. */
    bool inside = strncmp(paths->run, paths->state, strlen(paths->state)) == 0;
    int code = inside ? make_directory(paths->state, fault) : 0;

    snprintf(path, sizeof path, "%s/control", paths->run);
    if (!code)
        code = make_directory(paths->run, fault);
    return code ? code : make_directory(path, fault);
}

int plx_paths_init(struct plx_paths *paths, const char *state_dir, struct plx_fault *fault)
{
    struct plx_paths new = {0};
    char path[PLX_PATH_MAX + 32];
    int code = plx_settings_read(&new.settings, fault);

    if (code)
        return code;
    if (!state_dir)
        state_dir = getenv("PARALLAX_STATE_DIR");
    if (!state_dir || !*state_dir)
        state_dir = *new.settings.state ? new.settings.state : NULL;
    code = settle(state_dir ? state_dir : "/var/lib/parallax", new.state, fault);
    snprintf(path, sizeof path, "%s/run", new.state);
    if (!code)
        code = settle(state_dir ? path : "/run/parallax", new.run, fault);
    if (!code)
        code = read_host(&new, fault);
    if (code)
        return code;
    *paths = new;
    return 0;
}

void plx_paths_control(const struct plx_paths *paths, uint64_t instance,
                       char ret_path[PLX_PATH_MAX])
{
    snprintf(ret_path, PLX_PATH_MAX, "%.*s/control/%llu.sock", PLX_PATH_MAX - 64, paths->run,
             (unsigned long long)instance);
}
