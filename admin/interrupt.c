/* interrupt.c - signals set a flag, which loops ask for (MAIN-2, MAIN-3). */
#include "interrupt.h"

volatile sig_atomic_t plx_interrupted;
bool plx_pipe_ends;
static bool was_cut_short;

bool plx_interrupt_cut_short(void)
{
    return was_cut_short;
}

/* MAIN-2 */
static void on_signal(int number)
{
    plx_interrupted = number;
}

bool plx_session_stopped(void)
{
    was_cut_short |= plx_interrupted != 0;
    return plx_interrupted != 0;
}

void plx_interrupt_watch(void)
{
    struct sigaction stop = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    struct sigaction ignore = {.sa_handler = SIG_IGN}, pipe;

    /* No SA_RESTART: a read from a terminal or pipe ends, too. A second signal kills. */
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGXFSZ, &ignore, NULL); /* a write beyond a limit fails, as one without room does */
    sigaction(SIGPIPE, &ignore, &pipe);
    plx_pipe_ends = pipe.sa_handler != SIG_IGN;
}
