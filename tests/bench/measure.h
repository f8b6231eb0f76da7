/* measure.h - clocks, medians and goals for the benchmarks of continuous protection. */
#ifndef PLX_BENCH_MEASURE_H
#define PLX_BENCH_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MEASURE_PATH_MAX 200

uint64_t measure_now_ns(void);
/* Sorts; per cent: 50 is the median. 0 when there are none. */
uint64_t measure_percentile_ns(uint64_t *ns, size_t count, double per_cent);
double measure_median(double *values, size_t count);
/* PLX_BENCH_DIR, else /dev/shm, else /var/tmp: the fastest folder with room for so many bytes. */
bool measure_folder(uint64_t bytes, char ret_folder[MEASURE_PATH_MAX]);
/* A line "goal: WHAT: at most LIMIT UNIT; reached VALUE" for the summary. Only counts fail tests;
 * times never do. */
void measure_goal(const char *what, double limit, double reached, const char *unit);

/* The same numbers in each run, from MEASURE_SEED on: xorshift64. */
uint64_t measure_random(uint64_t *word);
#define MEASURE_SEED 88172645463325252u

#endif
