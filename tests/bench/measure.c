/* measure.c - see measure.h. */
#include "measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <time.h>

uint64_t measure_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int compare_ns(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

    return (left > right) - (left < right);
}

uint64_t measure_percentile_ns(uint64_t *ns, size_t count, double per_cent)
{
    if (!count)
        return 0;
    qsort(ns, count, sizeof *ns, compare_ns);
    return ns[(size_t)((double)(count - 1) * per_cent / 100)];
}

static int compare_values(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

double measure_median(double *values, size_t count)
{
    if (!count)
        return 0;
    qsort(values, count, sizeof *values, compare_values);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

bool measure_folder(uint64_t bytes, char ret_folder[MEASURE_PATH_MAX])
{
    const char *places[] = {getenv("PLX_BENCH_DIR"), "/dev/shm", "/var/tmp"};

    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        struct statvfs room;

        if (!places[i] || statvfs(places[i], &room) != 0 ||
            (uint64_t)room.f_bavail * room.f_frsize < bytes)
            continue;
        snprintf(ret_folder, MEASURE_PATH_MAX, "%s", places[i]);
        return true;
    }
    return false;
}

void measure_goal(const char *what, double limit, double reached, const char *unit)
{
    printf("goal: %-52s at most %8.2f %-6s reached %8.2f  %s\n", what, limit, unit, reached,
           reached <= limit ? "yes" : "NO");
}

uint64_t measure_random(uint64_t *word)
{
    *word ^= *word << 13;
    *word ^= *word >> 7;
    return *word ^= *word << 17;
}
