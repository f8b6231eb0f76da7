/* bytelock.c - see bytelock.h.
 *
 * BYTELOCK-1  Locks lie behind the end of any volume: byte n is locked at offset (1 << 62) + n. So
 *     they never meet locks on the volume's contents.
 * BYTELOCK-2  Each owner has an open file description of its own, opened here and used for nothing
 *     else. Locks of one description do not exclude each other.
 * BYTELOCK-3  The lock file of an iSCSI LUN is named only by what the URL says of the LUN. Case, a
 *     user, a password and the default port make no difference, so all URLs of a LUN meet in one
 *     file.
 * BYTELOCK-4  A lock file is made and opened only in a directory that no other user can write to.
 *     Otherwise a user could put a file of his own in its place.
 *
 * Threads: one at a time for each owner.
 * Crash story: the kernel drops the locks of a dead process.
 */
#include "device/bytelock.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_BYTE ((off_t)1 << 62)
#define ISCSI "iscsi://"
#define ISCSI_PORT ":3260"

struct file_lock {
    struct plx_bytelock base;
    int fd;
};

/* ---- Locking ----------------------------------------------------------------------------- */

static struct flock one_byte(uint64_t byte, short type)
{
    return (struct flock){.l_type = type,
                          .l_whence = SEEK_SET,
                          .l_start = FIRST_BYTE + (off_t)byte, /* BYTELOCK-1 */
                          .l_len = 1};
}

static int file_set(struct plx_bytelock *lock, uint64_t byte, enum plx_bytelock_mode mode)
{
    static const short types[] = {F_UNLCK, F_RDLCK, F_WRLCK};
    struct flock wanted = one_byte(byte, types[mode]);

    if (!fcntl(((struct file_lock *)lock)->fd, F_OFD_SETLK, &wanted))
        return 0;
    return errno == EAGAIN || errno == EACCES ? PLX_ERR_BUSY : PLX_ERR_SYSTEM;
}

static int file_probe(struct plx_bytelock *lock, uint64_t byte, bool *ret_busy)
{
    struct flock found = one_byte(byte, F_WRLCK);

    if (fcntl(((struct file_lock *)lock)->fd, F_OFD_GETLK, &found))
        return PLX_ERR_SYSTEM;
    *ret_busy = found.l_type != F_UNLCK;
    return 0;
}

static void file_close(struct plx_bytelock *lock)
{
    close(((struct file_lock *)lock)->fd);
    free(lock);
}

static const struct plx_bytelock_ops file_ops = {file_set, file_probe, file_close};

/* ---- The lock file of a LUN -------------------------------------------------------------- */

bool plx_bytelock_is_lun(const char *name)
{
    return strncmp(name, ISCSI, strlen(ISCSI)) == 0;
}

/* BYTELOCK-3: the lock file's name for iscsi://[user[%password]@]portal/target/lun. */
int plx_bytelock_lun_name(const char *url, char ret_name[NAME_MAX + 1], struct plx_fault *fault)
{
    const char *rest = url + strlen(ISCSI), *end = rest + strcspn(rest, "?"), *slash;
    const char *at = memchr(rest, '@', (size_t)(end - rest));
    size_t portal, used = 0;
    char text[NAME_MAX + 1];
    int length;

    if (at)
        rest = at + 1;
    slash = strchr(rest, '/');
    if (!slash || slash > end || !memchr(slash + 1, '/', (size_t)(end - slash - 1)))
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "an iSCSI volume is named iscsi://PORTAL[:PORT]/TARGET/LUN");
    portal = (size_t)(slash - rest);
    if (portal > strlen(ISCSI_PORT) &&
        !strncmp(slash - strlen(ISCSI_PORT), ISCSI_PORT, strlen(ISCSI_PORT)))
        portal -= strlen(ISCSI_PORT);
    length = snprintf(text, sizeof text, "%.*s%.*s", (int)portal, rest, (int)(end - slash), slash);
    for (int i = 0; i < length && length < (int)sizeof text; i++) {
        unsigned char c = (unsigned char)tolower(text[i]);
        bool plain = isalnum(c) || (c && strchr(".:-_[]", c));

        if (used + 3 >= NAME_MAX)
            length = NAME_MAX + 1;
        else if (plain)
            ret_name[used++] = (char)c;
        else
            used += (size_t)snprintf(ret_name + used, 4, "%%%02x", c);
    }
    ret_name[used] = 0;
    if (length >= (int)sizeof text)
        return plx_fault_set(fault, PLX_ERR_INVALID, "the name of this iSCSI volume is too long");
    return 0;
}

/* BYTELOCK-4. Opens a directory, and makes it if it is missing. Returns a descriptor, or -1 with
 * errno. */
static int own_directory(const char *path)
{
    struct stat st;
    int fd;

    if (mkdir(path, 0700) && errno != EEXIST)
        return -1;
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (!fstat(fd, &st) && st.st_uid == geteuid() && !(st.st_mode & (S_IWGRP | S_IWOTH)))
        return fd;
    close(fd);
    errno = EPERM;
    return -1;
}

static int locks_below(const char *base)
{
    char path[PATH_MAX];
    int fd = own_directory(base);

    if (fd < 0)
        return -1;
    close(fd);
    if (snprintf(path, sizeof path, "%s/locks", base) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return own_directory(path);
}

static int open_stand_in(const char *url, struct plx_fault *fault, int *ret_fd)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    char name[NAME_MAX + 1], base[PATH_MAX];
    int code = plx_bytelock_lun_name(url, name, fault), folder, fd;

    if (code)
        return code;
    folder = locks_below("/run/parallax");
    if (folder < 0) {
        if (runtime && *runtime)
            snprintf(base, sizeof base, "%.*s/parallax", PATH_MAX - 16, runtime);
        else
            snprintf(base, sizeof base, "/tmp/parallax-%u", (unsigned)geteuid());
        folder = locks_below(base);
    }
    if (folder < 0)
        return plx_fault_set(fault, PLX_ERR_SYSTEM,
                             "cannot make a directory for locks, /run/parallax or %.120s: %s", base,
                             strerror(errno));
    fd = openat(folder, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    code = fd < 0 ? errno : 0;
    close(folder);
    if (fd < 0)
        return plx_fault_set(fault, PLX_ERR_SYSTEM, "cannot make the lock file %.150s: %s", name,
                             strerror(code));
    *ret_fd = fd;
    return 0;
}

/* ---- Opening ----------------------------------------------------------------------------- */

static int open_itself(const char *name, struct plx_fault *fault, int *ret_fd)
{
    int fd = open(name, O_RDWR | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0 && (errno == EACCES || errno == EPERM || errno == EROFS))
        fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return plx_fault_set(fault,
                             errno == ENOENT   ? PLX_ERR_NOT_FOUND
                             : errno == EACCES ? PLX_ERR_PERMISSION
                                               : PLX_ERR_SYSTEM,
                             "cannot open %.180s to lock it: %s", name, strerror(errno));
    *ret_fd = fd;
    return 0;
}

int plx_bytelock_open(const char *name, struct plx_bytelock **ret_lock, struct plx_fault *fault)
{
    bool lun = plx_bytelock_is_lun(name);
    struct file_lock *lock = malloc(sizeof *lock);
    struct stat st;
    int code;

    if (!lock)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    /* BYTELOCK-2 */
    code = lun ? open_stand_in(name, fault, &lock->fd) : open_itself(name, fault, &lock->fd);
    if (!code && fstat(lock->fd, &st)) {
        code = plx_fault_set(fault, PLX_ERR_SYSTEM, "%.180s: %s", name, strerror(errno));
        close(lock->fd);
    }
    if (code) {
        free(lock);
        return code;
    }
    lock->base = (struct plx_bytelock){.ops = &file_ops, .device = st.st_dev, .inode = st.st_ino};
    *ret_lock = &lock->base;
    return 0;
}

void plx_bytelock_close(struct plx_bytelock *lock)
{
    if (lock)
        lock->ops->close(lock);
}

bool plx_bytelock_same(const struct plx_bytelock *one, const struct plx_bytelock *other)
{
    return one && other && one->device == other->device && one->inode == other->inode;
}
