/* staged.c - the parallax command on a stage: clock, host and signals are chosen. Linked with all
 * of the command's own objects; what it asks of them passes through here.
 *
 * $PLX_STAGE_SHIFT: seconds that the wall clock is ahead. $PLX_STAGE_HOST: the host's name.
 * $PLX_STAGE_SIGNAL: a signal's number; $PLX_STAGE_AT: with which submission to the device it
 * comes, counted from 1.
 */
#include <libaio.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int __real_clock_gettime(clockid_t id, struct timespec *ret_time);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret_time);
int __real_gethostname(char *ret_name, size_t size);
int __wrap_gethostname(char *ret_name, size_t size);
int __real_io_submit(io_context_t context, long count, struct iocb **list);
int __wrap_io_submit(io_context_t context, long count, struct iocb **list);

static long number_of(const char *variable)
{
    const char *text = getenv(variable);

    return text ? strtol(text, NULL, 10) : 0;
}

int __wrap_clock_gettime(clockid_t id, struct timespec *ret_time)
{
    int failed = __real_clock_gettime(id, ret_time);

    if (!failed && id == CLOCK_REALTIME)
        ret_time->tv_sec += number_of("PLX_STAGE_SHIFT");
    return failed;
}

int __wrap_gethostname(char *ret_name, size_t size)
{
    const char *name = getenv("PLX_STAGE_HOST");

    return name ? -(snprintf(ret_name, size, "%s", name) >= (int)size)
                : __real_gethostname(ret_name, size);
}

int __wrap_io_submit(io_context_t context, long count, struct iocb **list)
{
    static long calls;

    if (++calls == number_of("PLX_STAGE_AT"))
        raise((int)number_of("PLX_STAGE_SIGNAL"));
    return __real_io_submit(context, count, list);
}
