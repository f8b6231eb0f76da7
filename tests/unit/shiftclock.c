/* shiftclock.c - preloaded into a program under test: its wall clock is off by as many seconds as
 * the file $SHIFTCLOCK says, at each look, and where $SHIFTCLOCK.boot is, that holds the boot id.
 * The other clocks are right, and the kernel says that there is no time server.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *ret_time)
{
    const char *path = getenv("SHIFTCLOCK");
    long seconds = 0;
    FILE *file;
    int rc = (int)syscall(SYS_clock_gettime, id, ret_time);

    if (rc || id != CLOCK_REALTIME || !path || !(file = fopen(path, "r")))
        return rc;
    if (fscanf(file, "%ld", &seconds) == 1)
        ret_time->tv_sec += seconds;
    fclose(file);
    return 0;
}

int open(const char *path, int flags, ...)
{
    const char *shift = getenv("SHIFTCLOCK");
    char boot[4096];
    va_list args;
    mode_t mode;

    va_start(args, flags);
    mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    snprintf(boot, sizeof boot, "%s.boot", shift ? shift : "");
    if (strcmp(path, "/proc/sys/kernel/random/boot_id") == 0 && access(boot, R_OK) == 0)
        path = boot;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int adjtimex(struct timex *state)
{
    state->status = STA_UNSYNC;
    return TIME_ERROR;
}
