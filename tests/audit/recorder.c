/* recorder.c - preloaded into the parallax command: what reaches a store's volumes and the list of
 * known stores is appended to one trace, $PLX_TRACE, by any number of processes at once.
 *
 * RECORDER-1  A write and a flush are two records each: one before it is handed over, one when it
 *     has completed. So of a write and a flush that the trace has one after the other, completed
 *     before begun, that is the order in which they happened, whichever processes they are of.
 * RECORDER-2  A record is one write() at the end of the file, which the kernel does one after the
 *     other.
 *
 * Volumes are files whose name ends in .plx, known stores those in .json. Who reads the trace knows
 * struct record (power).
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <libaio.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define PIECES 1024

struct record {
    char kind; /* as below */
    char unused[7];
    uint64_t id; /* the same in both records */
    uint64_t offset;
    uint64_t bytes; /* of a write or file; of what has ended: 0 if it failed */
    uint64_t payload;
    char path[216];
};

enum kind {
    WRITE = 'w', /* its data follow */
    WRITTEN = 'W',
    REFUSED = 'x', /* was not handed over after all */
    FLUSH = 'f',
    FLUSHED = 'F',
    SIZED = 't',
    NAMED = 'r', /* its contents follow */
    UNNAMED = 'u',
};

static int trace = -1;
static atomic_uint_least32_t last;
static ssize_t (*real_pwrite)(int fd, const void *data, size_t bytes, off64_t offset);
static ssize_t (*real_pwritev)(int fd, const struct iovec *iov, int count, off64_t offset);
static int (*real_fdatasync)(int fd);
static int (*real_fsync)(int fd);
static int (*real_ftruncate)(int fd, off64_t bytes);
static int (*real_rename)(const char *from, const char *to);
static int (*real_unlink)(const char *path);
static int (*real_submit)(io_context_t context, long count, struct iocb **list);
static int (*real_getevents)(io_context_t context, long least, long most, struct io_event *events,
                             struct timespec *patience);

#define REAL(function, name) (function = (__typeof__(function))dlsym(RTLD_NEXT, name))

__attribute__((constructor)) static void set_up(void)
{
    const char *path = getenv("PLX_TRACE");

    REAL(real_pwrite, "pwrite64");
    REAL(real_pwritev, "pwritev64");
    REAL(real_fdatasync, "fdatasync");
    REAL(real_fsync, "fsync");
    REAL(real_ftruncate, "ftruncate64");
    REAL(real_rename, "rename");
    REAL(real_unlink, "unlink");
    REAL(real_submit, "io_submit");
    REAL(real_getevents, "io_getevents");
    if (path)
        trace = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

/* ---- Records ---- */

static bool ends_in(const char *path, const char *suffix)
{
    size_t length = strlen(path), end = strlen(suffix);

    return length >= end && strcmp(path + length - end, suffix) == 0;
}

static uint64_t fresh_id(void)
{
    return (uint64_t)getpid() << 32 | (atomic_fetch_add(&last, 1) + 1);
}

/* RECORDER-2 */
static void append(struct record *record, const struct iovec *iov, int count)
{
    struct iovec all[PIECES + 1];
    size_t bytes = sizeof *record;

    if (count > PIECES)
        abort();
    for (int i = 0; i < count; i++) {
        all[i + 1] = iov[i];
        record->payload += iov[i].iov_len;
    }
    all[0] = (struct iovec){record, sizeof *record};
    bytes += record->payload;
    if (writev(trace, all, count + 1) != (ssize_t)bytes)
        abort();
}

/* False: nobody asks for what happens to this file. */
static bool about(int fd, struct record *ret_record)
{
    char link[64];

    memset(ret_record, 0, sizeof *ret_record);
    if (trace < 0)
        return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return readlink(link, ret_record->path, sizeof ret_record->path - 1) > 0;
}

/* RECORDER-1: before it is handed over. */
static uint64_t begun(enum kind kind, int fd, uint64_t offset, const struct iovec *iov, int count)
{
    struct record record;

    if (!about(fd, &record) || (kind == WRITE && !ends_in(record.path, ".plx")))
        return 0;
    record.kind = (char)kind;
    record.id = fresh_id();
    record.offset = offset;
    append(&record, iov, count);
    return record.id;
}

/* RECORDER-1: when it has completed. */
static void ended(enum kind kind, uint64_t id, long result)
{
    struct record record = {.kind = (char)kind, .id = id, .bytes = result < 0 ? 0 : 1};

    if (id)
        append(&record, NULL, 0);
}

/* ---- What is recorded ---- */

ssize_t pwritev64(int fd, const struct iovec *iov, int count, off64_t offset)
{
    uint64_t id = begun(WRITE, fd, (uint64_t)offset, iov, count);
    ssize_t written = real_pwritev(fd, iov, count, offset);

    ended(WRITTEN, id, written);
    return written;
}

ssize_t pwrite64(int fd, const void *data, size_t bytes, off64_t offset)
{
    struct iovec iov = {(void *)data, bytes};
    uint64_t id = begun(WRITE, fd, (uint64_t)offset, &iov, 1);
    ssize_t written = real_pwrite(fd, data, bytes, offset);

    ended(WRITTEN, id, written);
    return written;
}

static int flush(int (*real)(int fd), int fd)
{
    uint64_t id = begun(FLUSH, fd, 0, NULL, 0);
    int failed = real(fd);

    ended(FLUSHED, id, failed);
    return failed;
}

int fdatasync(int fd)
{
    return flush(real_fdatasync, fd);
}

int fsync(int fd)
{
    return flush(real_fsync, fd);
}

int ftruncate64(int fd, off64_t bytes)
{
    int failed = real_ftruncate(fd, bytes);
    struct record record;

    if (!failed && about(fd, &record) && ends_in(record.path, ".plx")) {
        record.kind = SIZED;
        record.bytes = (uint64_t)bytes;
        append(&record, NULL, 0);
    }
    return failed;
}

int rename(const char *from, const char *to)
{
    char text[65536];
    int fd = open(from, O_RDONLY | O_CLOEXEC), failed = real_rename(from, to);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text);

    if (trace >= 0 && !failed && length >= 0 && ends_in(to, ".json")) {
        struct record record = {.kind = NAMED};
        struct iovec iov = {text, (size_t)length};

        snprintf(record.path, sizeof record.path, "%s", to);
        append(&record, &iov, 1);
    }
    if (fd >= 0)
        close(fd);
    return failed;
}

int unlink(const char *path)
{
    int failed = real_unlink(path);
    struct record record = {.kind = UNNAMED};

    if (trace >= 0 && !failed && (ends_in(path, ".json") || ends_in(path, ".plx"))) {
        snprintf(record.path, sizeof record.path, "%s", path);
        append(&record, NULL, 0);
    }
    return failed;
}

static uint64_t begun_by(const struct iocb *cb)
{
    struct iovec iov = {cb->u.c.buf, cb->u.c.nbytes};

    switch (cb->aio_lio_opcode) {
    case IO_CMD_PWRITE:
        return begun(WRITE, cb->aio_fildes, (uint64_t)cb->u.c.offset, &iov, 1);
    case IO_CMD_PWRITEV:
        return begun(WRITE, cb->aio_fildes, (uint64_t)cb->u.c.offset, cb->u.c.buf,
                     (int)cb->u.c.nbytes);
    case IO_CMD_FDSYNC:
        return begun(FLUSH, cb->aio_fildes, 0, NULL, 0);
    default:
        return 0;
    }
}

int io_submit(io_context_t context, long count, struct iocb **list)
{
    int taken;

    for (long i = 0; i < count; i++)
        list[i]->data = (void *)(uintptr_t)begun_by(list[i]); /* events bring it back */
    taken = real_submit(context, count, list);
    for (long i = taken > 0 ? taken : 0; i < count; i++)
        ended(REFUSED, (uintptr_t)list[i]->data, 0);
    return taken;
}

/* A flush's event does not say that it is one; who reads the trace knows its id. */
int io_getevents(io_context_t context, long least, long most, struct io_event *events,
                 struct timespec *patience)
{
    int got = real_getevents(context, least, most, events, patience);

    for (int i = 0; i < got; i++)
        ended(WRITTEN, (uintptr_t)events[i].data, (long)events[i].res);
    return got;
}
