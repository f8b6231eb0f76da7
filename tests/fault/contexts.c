/* contexts.c - contexts of libaio, kept for the next device. io_destroy() waits for a grace period
 * of the kernel's, some 20 ms, and a fault loop closes tens of thousands of devices. Nothing of
 * theirs is in the kernel by then (plx_aio_close() asserts it); an event that nobody has taken is
 * dropped.
 *
 * By link-time wrapping (FAULT_EVENTS in CMakeLists.txt).
 */
#include <libaio.h>
#include <pthread.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

#define CONTEXTS_MAX 64u
#define EVENTS_MAX 64

static struct {
    io_context_t context; /* NULL: none */
    int count;
    bool used;
} contexts[CONTEXTS_MAX];
static pid_t owner; /* contexts belong to a process: its child has none of them */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int __real_io_setup(int count, io_context_t *ret_context);
int __real_io_destroy(io_context_t context);

int __wrap_io_setup(int count, io_context_t *ret_context);
int __wrap_io_destroy(io_context_t context);

static int set_up(int count, io_context_t *ret_context)
{
    unsigned free = CONTEXTS_MAX;
    int error;

    for (unsigned i = 0; i < CONTEXTS_MAX; i++) {
        if (owner != getpid())
            contexts[i].context = NULL;
        if (!contexts[i].context) {
            free = i;
        } else if (!contexts[i].used && contexts[i].count == count) {
            contexts[i].used = true;
            *ret_context = contexts[i].context;
            return 0;
        }
    }
    owner = getpid();
    error = __real_io_setup(count, ret_context);
    if (!error && free < CONTEXTS_MAX) {
        contexts[free].context = *ret_context;
        contexts[free].count = count;
        contexts[free].used = true;
    }
    return error;
}

int __wrap_io_setup(int count, io_context_t *ret_context)
{
    int error;

    pthread_mutex_lock(&lock);
    error = set_up(count, ret_context);
    pthread_mutex_unlock(&lock);
    return error;
}

int __wrap_io_destroy(io_context_t context)
{
    struct io_event dropped[EVENTS_MAX];
    bool keep = false;

    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < CONTEXTS_MAX && !keep; i++) {
        keep = contexts[i].context == context && owner == getpid();
        if (keep) {
            while (io_getevents(context, 0, EVENTS_MAX, dropped, &(struct timespec){0}) > 0)
                ;
            contexts[i].used = false;
        }
    }
    pthread_mutex_unlock(&lock);
    return keep ? 0 : __real_io_destroy(context);
}
