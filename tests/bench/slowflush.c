/* slowflush.c - preloaded: every flush takes $PLX_FLUSH_MS milliseconds longer, and is counted in
 * the first eight bytes of the file $PLX_FLUSH_COUNT. With $PLX_FLUSH_OF: of that file or device
 * only.
 *
 * A flush through libaio is handed to the kernel when its time is over, so nobody waits for it who
 * has other things to do.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <libaio.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct late {
    io_context_t context;
    struct iocb *cb;
};

static atomic_ulong uncounted, *flushes = &uncounted;
static struct timespec delay;
static const char *slow; /* $PLX_FLUSH_OF; NULL: all are */
static int (*real_fdatasync)(int fd);
static int (*real_submit)(io_context_t context, long count, struct iocb **list);

int fdatasync(int fd);
int io_submit(io_context_t context, long count, struct iocb **list);

__attribute__((constructor)) static void set_up(void)
{
    const char *ms = getenv("PLX_FLUSH_MS"), *path = getenv("PLX_FLUSH_COUNT");
    double ns = ms ? strtod(ms, NULL) * 1e6 : 0;
    int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    void *map;

    slow = getenv("PLX_FLUSH_OF");
    delay = (struct timespec){(time_t)(ns / 1e9), (long)ns % 1000000000};
    real_fdatasync = (__typeof__(real_fdatasync))dlsym(RTLD_NEXT, "fdatasync");
    real_submit = (__typeof__(real_submit))dlsym(RTLD_NEXT, "io_submit");
    if (fd < 0 || ftruncate(fd, sizeof *flushes))
        return;
    map = mmap(NULL, sizeof *flushes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map != MAP_FAILED)
        flushes = map;
    close(fd);
}

static int is_slow(int fd)
{
    char link[64], path[4096];
    ssize_t length;

    if (!slow)
        return 1;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return strcmp(path, slow) == 0;
}

__attribute__((visibility("default"))) int fdatasync(int fd)
{
    if (!is_slow(fd))
        return real_fdatasync(fd);
    atomic_fetch_add(flushes, 1);
    nanosleep(&delay, NULL);
    return real_fdatasync(fd);
}

static void *submit_late(void *argument)
{
    struct late *late = argument;

    nanosleep(&delay, NULL);
    if (real_submit(late->context, 1, &late->cb) != 1)
        abort();
    free(late);
    return NULL;
}

static int submit_flush(io_context_t context, struct iocb *cb)
{
    struct late *late = malloc(sizeof *late);
    pthread_t thread;

    if (!late)
        abort();
    *late = (struct late){context, cb};
    atomic_fetch_add(flushes, 1);
    if (pthread_create(&thread, NULL, submit_late, late))
        abort();
    pthread_detach(thread);
    return 1;
}

__attribute__((visibility("default"))) int io_submit(io_context_t context, long count,
                                                     struct iocb **list)
{
    long others = 0;

    while (others < count &&
           (list[others]->aio_lio_opcode != IO_CMD_FDSYNC || !is_slow(list[others]->aio_fildes)))
        others++;
    return count && !others ? submit_flush(context, list[0]) : real_submit(context, others, list);
}
