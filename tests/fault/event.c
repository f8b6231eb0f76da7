/* event.c - see event.h. */
#include "fault/event.h"

#include <errno.h>
#include <libaio.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static uint64_t chosen, events;
static enum fault_event_end end;

/* gcov's figures are written when a process exits; what is killed would have no part in them. */
void __gcov_dump(void) __attribute__((weak));

void fault_event_arm(uint64_t k, enum fault_event_end how)
{
    chosen = k;
    end = how;
    events = 0;
}

uint64_t fault_event_disarm(void)
{
    chosen = 0;
    return events;
}

_Noreturn void fault_event_kill(void)
{
    if (__gcov_dump)
        __gcov_dump();
    kill(getpid(), SIGKILL);
    abort();
}

/* Whether this event is to fail. */
static bool fails(bool only_reads)
{
    if (!chosen || (only_reads && end == FAULT_EVENT_KILLS) || ++events != chosen)
        return false;
    if (end == FAULT_EVENT_KILLS)
        fault_event_kill();
    errno = EIO;
    return true;
}

/* The linker sends calls of io_submit here, and calls of __real_io_submit to io_submit. */
int __real_io_submit(io_context_t context, long count, struct iocb **list);
ssize_t __real_pread64(int fd, void *buffer, size_t bytes, off_t offset);
ssize_t __real_preadv64(int fd, const struct iovec *iov, int count, off_t offset);
ssize_t __real_pwrite64(int fd, const void *buffer, size_t bytes, off_t offset);
ssize_t __real_pwritev64(int fd, const struct iovec *iov, int count, off_t offset);
int __real_fdatasync(int fd);
int __real_sqlite3_step(sqlite3_stmt *statement);
int __real_sqlite3_exec(sqlite3 *db, const char *sql, sqlite3_callback row, void *context,
                        char **ret_text);
int __real_flock(int fd, int operation);
int __real_mkdir(const char *path, mode_t mode);
int __real_rename(const char *from, const char *to);
int __real_unlink(const char *path);
int __real_fsync(int fd);

int __wrap_io_submit(io_context_t context, long count, struct iocb **list);
ssize_t __wrap_pread64(int fd, void *buffer, size_t bytes, off_t offset);
ssize_t __wrap_preadv64(int fd, const struct iovec *iov, int count, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *buffer, size_t bytes, off_t offset);
ssize_t __wrap_pwritev64(int fd, const struct iovec *iov, int count, off_t offset);
int __wrap_fdatasync(int fd);
int __wrap_sqlite3_step(sqlite3_stmt *statement);
int __wrap_sqlite3_exec(sqlite3 *db, const char *sql, sqlite3_callback row, void *context,
                        char **ret_text);
int __wrap_flock(int fd, int operation);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_rename(const char *from, const char *to);
int __wrap_unlink(const char *path);
int __wrap_fsync(int fd);

static bool only_reads(const struct iocb *cb)
{
    return cb->aio_lio_opcode == IO_CMD_PREAD || cb->aio_lio_opcode == IO_CMD_PREADV;
}

/* Requests one by one: an end comes between them, too. */
int __wrap_io_submit(io_context_t context, long count, struct iocb **list)
{
    if (!chosen)
        return __real_io_submit(context, count, list);
    return fails(only_reads(list[0])) ? -EIO : __real_io_submit(context, 1, list);
}

ssize_t __wrap_pread64(int fd, void *buffer, size_t bytes, off_t offset)
{
    return fails(true) ? -1 : __real_pread64(fd, buffer, bytes, offset);
}

ssize_t __wrap_preadv64(int fd, const struct iovec *iov, int count, off_t offset)
{
    return fails(true) ? -1 : __real_preadv64(fd, iov, count, offset);
}

ssize_t __wrap_pwrite64(int fd, const void *buffer, size_t bytes, off_t offset)
{
    return fails(false) ? -1 : __real_pwrite64(fd, buffer, bytes, offset);
}

ssize_t __wrap_pwritev64(int fd, const struct iovec *iov, int count, off_t offset)
{
    return fails(false) ? -1 : __real_pwritev64(fd, iov, count, offset);
}

int __wrap_fdatasync(int fd)
{
    return fails(false) ? -1 : __real_fdatasync(fd);
}

int __wrap_sqlite3_step(sqlite3_stmt *statement)
{
    return fails(sqlite3_stmt_readonly(statement)) ? SQLITE_IOERR : __real_sqlite3_step(statement);
}

/* A transaction ends for certain when it is rolled back. */
int __wrap_sqlite3_exec(sqlite3 *db, const char *sql, sqlite3_callback row, void *context,
                        char **ret_text)
{
    if (strcmp(sql, "ROLLBACK") != 0 && fails(false))
        return SQLITE_FULL;
    return __real_sqlite3_exec(db, sql, row, context, ret_text);
}

int __wrap_flock(int fd, int operation)
{
    return fails(false) ? -1 : __real_flock(fd, operation);
}

int __wrap_mkdir(const char *path, mode_t mode)
{
    return fails(false) ? -1 : __real_mkdir(path, mode);
}

int __wrap_rename(const char *from, const char *to)
{
    return fails(false) ? -1 : __real_rename(from, to);
}

int __wrap_unlink(const char *path)
{
    return fails(false) ? -1 : __real_unlink(path);
}

int __wrap_fsync(int fd)
{
    return fails(false) ? -1 : __real_fsync(fd);
}
