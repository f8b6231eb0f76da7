/* progress.c - how far long work is: a line on a terminal that is written over (OUTPUT-1). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "output.h"

#define SHOW_INTERVAL_NS 100000000ull
#define RATE_MIN_NS 1000000000ull /* before that a rate, and what is left by it, are guesses */

void plx_progress_begin(struct plx_progress *progress, const struct plx_cli *cli, const char *what,
                        uint64_t total)
{
    *progress = (struct plx_progress){.cli = cli, .what = what, .total = total};
    progress->on = !cli->quiet && !cli->json && isatty(STDERR_FILENO);
    progress->started_ns = plx_out_monotonic_ns();
}

void plx_progress_part(struct plx_progress *progress, const char *what, uint64_t total)
{
    if (!progress->what || strcmp(progress->what, what) != 0) {
        plx_progress_end(progress);
        plx_progress_begin(progress, progress->cli, what, total);
    }
    progress->total = total;
}

void plx_progress_show(struct plx_progress *progress, uint64_t done)
{
    char size[16], rate[16], left[32], total[16];
    uint64_t now;

    if (!progress->on || (now = plx_out_monotonic_ns()) - progress->shown_ns < SHOW_INTERVAL_NS)
        return;
    progress->shown_ns = now;
    double seconds = (double)(now - progress->started_ns) / 1e9;
    double per_second = seconds > 0 ? (double)done / seconds : 0;
    bool rated = now - progress->started_ns >= RATE_MIN_NS;
    fprintf(stderr, "\r%s:", progress->what);
    if (!progress->plain)
        fprintf(stderr, " %s%s%s", plx_text_size(done, size), progress->total ? " of " : "",
                progress->total ? plx_text_size(progress->total, total) : "");
    if (!progress->plain && rated)
        fprintf(stderr, ", %s/s", plx_text_size((uint64_t)per_second, rate));
    if (progress->total)
        fprintf(stderr, "%s %u %%", progress->plain ? "" : ",",
                (unsigned)(100.0 * (double)done / (double)progress->total));
    if (progress->total >= done && progress->total && rated && per_second >= 1)
        fprintf(stderr, ", %s left",
                plx_text_duration((uint64_t)((double)(progress->total - done) / per_second), left));
    fputs("\033[K", stderr);
    fflush(stderr);
}

void plx_progress_left(struct plx_progress *progress, const char *what, uint64_t left)
{
    if (left > progress->total || !progress->total)
        plx_progress_part(progress, what, left);
    plx_progress_show(progress, progress->total - plx_min_u64(left, progress->total));
}

void plx_progress_clear(struct plx_progress *progress)
{
    if (progress->on && progress->shown_ns) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
    progress->shown_ns = 0;
}

void plx_progress_end(struct plx_progress *progress)
{
    plx_progress_clear(progress);
    progress->on = false;
}
