/* alloc.c - see alloc.h. */
#include "fault/alloc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local struct {
    bool armed, all;
    unsigned suspended;
    uint64_t k, counted, failed;
} counter;

void fault_alloc_arm(uint64_t k, bool all)
{
    counter.armed = true;
    counter.all = all;
    counter.suspended = 0;
    counter.k = k;
    counter.counted = counter.failed = 0;
}

void fault_alloc_heal(void)
{
    counter.k = 0;
}

uint64_t fault_alloc_disarm(uint64_t *ret_failed)
{
    counter.armed = false;
    *ret_failed = counter.failed;
    return counter.counted;
}

void fault_alloc_suspend(void)
{
    counter.suspended++;
}

void fault_alloc_resume(void)
{
    counter.suspended--;
}

static bool fails(void)
{
    if (!counter.armed || counter.suspended)
        return false;
    counter.counted++;
    if (!counter.k || (counter.all ? counter.counted < counter.k : counter.counted != counter.k))
        return false;
    counter.failed++;
    errno = ENOMEM;
    return true;
}

/* The linker sends calls of malloc here, and calls of __real_malloc to malloc. */
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
int __real_posix_memalign(void **ret_memory, size_t alignment, size_t bytes);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t bytes);
char *__real_realpath(const char *path, char *resolved);

void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
int __wrap_posix_memalign(void **ret_memory, size_t alignment, size_t bytes);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t bytes);
char *__wrap_realpath(const char *path, char *resolved);

void *__wrap_malloc(size_t bytes)
{
    return fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return fails() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes)
{
    return fails() ? NULL : __real_realloc(memory, bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    return fails() ? NULL : __real_aligned_alloc(alignment, bytes);
}

int __wrap_posix_memalign(void **ret_memory, size_t alignment, size_t bytes)
{
    return fails() ? ENOMEM : __real_posix_memalign(ret_memory, alignment, bytes);
}

char *__wrap_strdup(const char *text)
{
    return fails() ? NULL : __real_strdup(text);
}

char *__wrap_strndup(const char *text, size_t bytes)
{
    return fails() ? NULL : __real_strndup(text, bytes);
}

char *__wrap_realpath(const char *path, char *resolved)
{
    return !resolved && fails() ? NULL : __real_realpath(path, resolved);
}
