/* staged.c - the parallax command on a stage: clock, host and signals are chosen. Linked with all
 * of the command's own objects; what it asks of them passes through here.
 *
 * $PLX_STAGE_SHIFT: seconds that the wall clock is ahead. $PLX_STAGE_NOW: where it stands still, in
 * milliseconds since 1970. $PLX_STAGE_HOST: the host's name.
 * $PLX_STAGE_BOOT: a file that has the boot's id, of another machine say.
 * $PLX_STAGE_SIGNAL: a signal's number; $PLX_STAGE_AT: with which call that hands something to a
 * device or file it comes, counted from 1.
 * $PLX_STAGE_COUNT: a file that gets the number of these calls when the command ends.
 * $PLX_STAGE_FLUSHES: a file that gets the number of flushes of devices and files then.
 * $PLX_STAGE_LOCK: before which locking of a virtual disk the signal comes, counted from 1.
 * $PLX_STAGE_SYNC: before which call of fsync() the signal comes, counted from 1.
 * $PLX_STAGE_OPENED: a file that gets a line for each file or device that is opened: its path, and
 * how many calls that hand something to a device or file have gone before.
 * $PLX_STAGE_OPEN: before the first opening of which path the signal comes.
 * $PLX_STAGE_SYNC_FAILS: which call of fsync() fails, counted from 1.
 * $PLX_STAGE_WRITE_FAILS: which call of pwrite() fails, counted from 1.
 * $PLX_STAGE_INITIATORS: who is logged in to the LUN of whatever virtual disk.
 */
#include <errno.h>
#include <fcntl.h>
#include <libaio.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "registry/registry.h"

int __real_clock_gettime(clockid_t id, struct timespec *ret_time);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret_time);
int __real_gethostname(char *ret_name, size_t size);
int __wrap_gethostname(char *ret_name, size_t size);
int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __real_io_submit(io_context_t context, long count, struct iocb **list);
int __wrap_io_submit(io_context_t context, long count, struct iocb **list);
int __real_plx_registry_vdi_lock(struct plx_registry *reg, const char *id, uint64_t instance,
                                 struct plx_registry_lock *ret_lock);
int __wrap_plx_registry_vdi_lock(struct plx_registry *reg, const char *id, uint64_t instance,
                                 struct plx_registry_lock *ret_lock);
struct plx_cli;
struct plx_name;
bool __real_plx_cmd_lun_initiators(struct plx_cli *cli, const struct plx_name *name, char *ret_text,
                                   size_t size);
bool __wrap_plx_cmd_lun_initiators(struct plx_cli *cli, const struct plx_name *name, char *ret_text,
                                   size_t size);
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __real_fsync(int fd);
int __wrap_fsync(int fd);
ssize_t __real_pread64(int fd, void *buffer, size_t bytes, off_t offset);
ssize_t __wrap_pread64(int fd, void *buffer, size_t bytes, off_t offset);
ssize_t __real_preadv64(int fd, const struct iovec *iov, int count, off_t offset);
ssize_t __wrap_preadv64(int fd, const struct iovec *iov, int count, off_t offset);
ssize_t __real_pwrite64(int fd, const void *buffer, size_t bytes, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *buffer, size_t bytes, off_t offset);
ssize_t __real_pwritev64(int fd, const struct iovec *iov, int count, off_t offset);
ssize_t __wrap_pwritev64(int fd, const struct iovec *iov, int count, off_t offset);

static long number_of(const char *variable)
{
    const char *text = getenv(variable);

    return text ? strtol(text, NULL, 10) : 0;
}

int __wrap_clock_gettime(clockid_t id, struct timespec *ret_time)
{
    int failed = __real_clock_gettime(id, ret_time);
    long now = number_of("PLX_STAGE_NOW");

    if (!failed && id == CLOCK_REALTIME)
        ret_time->tv_sec += number_of("PLX_STAGE_SHIFT");
    if (!failed && id == CLOCK_REALTIME && now)
        *ret_time = (struct timespec){.tv_sec = now / 1000, .tv_nsec = now % 1000 * 1000000};
    return failed;
}

int __wrap_gethostname(char *ret_name, size_t size)
{
    const char *name = getenv("PLX_STAGE_HOST");

    return name ? -(snprintf(ret_name, size, "%s", name) >= (int)size)
                : __real_gethostname(ret_name, size);
}

static long passed; /* calls that hand something to a device or file */
static atomic_long flushes;

static void note_opened(const char *path)
{
    const char *list = getenv("PLX_STAGE_OPENED");
    int fd = list ? __real_open64(list, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;

    if (fd < 0)
        return;
    dprintf(fd, "%s %ld\n", path, passed);
    close(fd);
}

static void signal_opening(const char *path)
{
    static bool came;
    const char *which = getenv("PLX_STAGE_OPEN");

    if (came || !which || strcmp(path, which) != 0)
        return;
    came = true;
    raise((int)number_of("PLX_STAGE_SIGNAL"));
}

int __wrap_open64(const char *path, int flags, ...)
{
    const char *boot = getenv("PLX_STAGE_BOOT");
    va_list rest;
    mode_t mode;

    va_start(rest, flags);
    mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if (boot && strcmp(path, "/proc/sys/kernel/random/boot_id") == 0)
        path = boot;
    note_opened(path);
    signal_opening(path);
    return __real_open64(path, flags, mode);
}

static void pass(void)
{
    if (++passed == number_of("PLX_STAGE_AT"))
        raise((int)number_of("PLX_STAGE_SIGNAL"));
}

static void tell(const char *variable, long count)
{
    const char *path = getenv(variable);
    FILE *file = path ? fopen(path, "w") : NULL;

    if (!file)
        return;
    fprintf(file, "%ld\n", count);
    fclose(file);
}

__attribute__((destructor)) static void tell_all(void)
{
    tell("PLX_STAGE_COUNT", passed);
    tell("PLX_STAGE_FLUSHES", flushes);
}

int __wrap_io_submit(io_context_t context, long count, struct iocb **list)
{
    int taken;

    pass();
    for (long i = 0; i < count; i++) /* counted as it is asked for: afterwards it may be done */
        flushes += list[i]->aio_lio_opcode == IO_CMD_FDSYNC;
    taken = __real_io_submit(context, count, list);
    for (long i = taken < 0 ? 0 : taken; i < count; i++)
        flushes -= list[i]->aio_lio_opcode == IO_CMD_FDSYNC;
    return taken;
}

int __wrap_fdatasync(int fd)
{
    flushes++;
    return __real_fdatasync(fd);
}

ssize_t __wrap_pread64(int fd, void *buffer, size_t bytes, off_t offset)
{
    pass();
    return __real_pread64(fd, buffer, bytes, offset);
}

ssize_t __wrap_preadv64(int fd, const struct iovec *iov, int count, off_t offset)
{
    pass();
    return __real_preadv64(fd, iov, count, offset);
}

ssize_t __wrap_pwrite64(int fd, const void *buffer, size_t bytes, off_t offset)
{
    static long calls;

    pass();
    if (++calls == number_of("PLX_STAGE_WRITE_FAILS")) {
        errno = EIO;
        return -1;
    }
    return __real_pwrite64(fd, buffer, bytes, offset);
}

ssize_t __wrap_pwritev64(int fd, const struct iovec *iov, int count, off_t offset)
{
    pass();
    return __real_pwritev64(fd, iov, count, offset);
}

int __wrap_plx_registry_vdi_lock(struct plx_registry *reg, const char *id, uint64_t instance,
                                 struct plx_registry_lock *ret_lock)
{
    static long calls;

    if (++calls == number_of("PLX_STAGE_LOCK"))
        raise((int)number_of("PLX_STAGE_SIGNAL"));
    return __real_plx_registry_vdi_lock(reg, id, instance, ret_lock);
}

bool __wrap_plx_cmd_lun_initiators(struct plx_cli *cli, const struct plx_name *name, char *ret_text,
                                   size_t size)
{
    const char *staged = getenv("PLX_STAGE_INITIATORS");

    if (!staged)
        return __real_plx_cmd_lun_initiators(cli, name, ret_text, size);
    snprintf(ret_text, size, "%s", staged);
    return true;
}

int __wrap_fsync(int fd)
{
    static long calls;

    if (++calls == number_of("PLX_STAGE_SYNC"))
        raise((int)number_of("PLX_STAGE_SIGNAL"));
    if (calls != number_of("PLX_STAGE_SYNC_FAILS"))
        return __real_fsync(fd);
    errno = EIO;
    return -1;
}
