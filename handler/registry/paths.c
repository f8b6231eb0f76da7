/* paths.c - where the state lives, and which host this is.
 *
 * P1  The host's id is that of the machine (/etc/machine-id, hashed, as its manual page asks), so
 *     that all users and state directories of a machine agree on it. Where there is none, or where
 *     somebody has put one there, it is that of STATE/host-id, which never changes once anybody has
 *     read it: it appears whole under its name, by link(), which the first of several makers wins.
 * Threads: any, each on its own struct.
 * Crash story: a crash leaves at most a directory or a host-id.<pid> file too many.
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

#include "engine/format.h"

/* Reads the first line of a small file. */
static int read_line(const char *path, char *line, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got;

    if (fd < 0)
        return -1;
    got = read(fd, line, size - 1);
    close(fd);
    if (got < 0)
        return -1;
    line[got] = 0;
    line[strcspn(line, "\n")] = 0;
    return 0;
}

int plx_paths_error(int number)
{
    return number == EACCES || number == EPERM || number == EROFS ? PLX_ERR_PERMISSION
           : number == ENOSPC || number == EDQUOT                 ? PLX_ERR_NOSPACE
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
    return plx_fault_set(fault, plx_paths_error(errno), "cannot make directory %.150s: %s", path,
                         strerror(errno));
}

static int make_host_id(const char *path, struct plx_fault *fault)
{
    char id[PLX_UUID_TEXT], temporary[PLX_PATH_MAX + 32];
    bool done;
    int fd;

    plx_uuid_random(id);
    snprintf(temporary, sizeof temporary, "%s.%.8s", path, id);
    fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    done = fd >= 0 && dprintf(fd, "%s\n", id) == PLX_UUID_TEXT && !fsync(fd) &&
           (!link(temporary, path) || errno == EEXIST);
    if (!done)
        plx_fault_set(fault, plx_paths_error(errno), "cannot make %.150s: %s", path,
                      strerror(errno));
    if (fd >= 0) {
        close(fd);
        unlink(temporary);
    }
    return done ? 0 : fault && fault->code ? fault->code : PLX_ERR_SYSTEM;
}

/* P1 */
static bool machine_id(char ret_id[PLX_UUID_TEXT])
{
    char salted[64] = "parallax host 0 ", *id = salted + 16;
    struct plx_uuid uuid;
    uint64_t half[2];

    if (read_line("/etc/machine-id", id, sizeof salted - 16) || strlen(id) != 32 ||
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

static int read_host(struct plx_paths *paths, struct plx_fault *fault)
{
    char path[PLX_PATH_MAX + 16], id[PLX_UUID_TEXT + 1];
    int code;

    snprintf(path, sizeof path, "%s/host-id", paths->state);
    if (read_line(path, id, sizeof id) && !(errno == ENOENT && machine_id(id))) {
        if (errno == ENOENT && (code = make_host_id(path, fault)))
            return code;
        if (read_line(path, id, sizeof id))
            return plx_fault_set(fault, PLX_ERR_SYSTEM, "cannot read %.150s: %s", path,
                                 strerror(errno));
    }
    if (plx_uuid_check(id))
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "%.150s does not hold a UUID; restore it "
                             "(deleting it gives this host a new identity)",
                             path);
    memcpy(paths->host, id, sizeof paths->host);
    gethostname(paths->host_name, sizeof paths->host_name - 1);
    if (!read_line("/proc/sys/kernel/random/boot_id", id, sizeof id) && !plx_uuid_check(id))
        memcpy(paths->boot, id, sizeof paths->boot);
    return 0;
}

/* Makes a directory and stores its absolute path. */
static int settle(const char *path, char ret_path[PLX_PATH_MAX], struct plx_fault *fault)
{
    char real[PATH_MAX];
    int code = make_directory(path, fault);

    if (code)
        return code;
    /* Room for what is appended: "/control/<number>.sock" and the like. */
    if (!realpath(path, real) || strlen(real) > PLX_PATH_MAX - 64)
        return plx_fault_set(fault, PLX_ERR_INVALID, "cannot use directory %.150s: %s", path,
                             strlen(path) > PLX_PATH_MAX - 64 ? "path too long" : strerror(errno));
    snprintf(ret_path, PLX_PATH_MAX, "%s", real);
    return 0;
}

int plx_paths_init(struct plx_paths *paths, const char *state_dir, struct plx_fault *fault)
{
    struct plx_paths new = {0};
    char path[PLX_PATH_MAX + 32];
    int code;

    if (!state_dir)
        state_dir = getenv("PARALLAX_STATE_DIR");
    if (state_dir && !*state_dir)
        state_dir = NULL;
    code = settle(state_dir ? state_dir : "/var/lib/parallax", new.state, fault);
    snprintf(path, sizeof path, "%s/run", new.state);
    if (!code)
        code = settle(state_dir ? path : "/run/parallax", new.run, fault);
    snprintf(path, sizeof path, "%s/control", new.run);
    if (!code)
        code = make_directory(path, fault);
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
