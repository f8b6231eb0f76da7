/* kill.c - see kill.h. */
#include "fault/kill.h"

#include <libaio.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

static uint64_t fatal, events;

/* gcov's figures are written when a process exits; what is killed would have no part in them. */
void __gcov_dump(void) __attribute__((weak));

void fault_kill_arm(uint64_t k)
{
    fatal = k;
    events = 0;
}

uint64_t fault_kill_events(void)
{
    return events;
}

_Noreturn void fault_kill(void)
{
    if (__gcov_dump)
        __gcov_dump();
    kill(getpid(), SIGKILL);
    abort();
}

static void event(void)
{
    if (++events == fatal)
        fault_kill();
}

/* The linker sends calls of io_submit here, and calls of __real_io_submit to io_submit. */
int __real_io_submit(io_context_t context, long count, struct iocb **list);
int __real_sqlite3_step(sqlite3_stmt *statement);
int __real_sqlite3_exec(sqlite3 *db, const char *sql, sqlite3_callback row, void *context,
                        char **ret_text);
int __real_flock(int fd, int operation);
int __real_mkdir(const char *path, mode_t mode);
int __real_rename(const char *from, const char *to);
int __real_unlink(const char *path);
int __real_fsync(int fd);

int __wrap_io_submit(io_context_t context, long count, struct iocb **list);
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

/* Requests one by one: death comes between them, too. */
int __wrap_io_submit(io_context_t context, long count, struct iocb **list)
{
    if (!fatal)
        return __real_io_submit(context, count, list);
    if (!only_reads(list[0]))
        event();
    return __real_io_submit(context, 1, list);
}

int __wrap_sqlite3_step(sqlite3_stmt *statement)
{
    if (!sqlite3_stmt_readonly(statement))
        event();
    return __real_sqlite3_step(statement);
}

int __wrap_sqlite3_exec(sqlite3 *db, const char *sql, sqlite3_callback row, void *context,
                        char **ret_text)
{
    event();
    return __real_sqlite3_exec(db, sql, row, context, ret_text);
}

int __wrap_flock(int fd, int operation)
{
    event();
    return __real_flock(fd, operation);
}

int __wrap_mkdir(const char *path, mode_t mode)
{
    event();
    return __real_mkdir(path, mode);
}

int __wrap_rename(const char *from, const char *to)
{
    event();
    return __real_rename(from, to);
}

int __wrap_unlink(const char *path)
{
    event();
    return __real_unlink(path);
}

int __wrap_fsync(int fd)
{
    event();
    return __real_fsync(fd);
}
