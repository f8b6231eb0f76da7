/* interrupt.h - whether the command has been asked to end.
 *
 * Long loops ask plx_session_stopped() between two steps, and end in order. Threads: one. */
#ifndef PLX_ADMIN_INTERRUPT_H
#define PLX_ADMIN_INTERRUPT_H

#include <signal.h>
#include <stdbool.h>

/* From now on signals set the flag instead of killing. A second one kills. */
void plx_interrupt_watch(void);
/* The signal that asks the command to end, SIGINT or SIGTERM, or the SIGPIPE that it would have
 * got; 0: none. */
extern volatile sig_atomic_t plx_interrupted;
extern bool plx_pipe_ends; /* SIGPIPE is not ignored */
/* Asked between two steps: true ends the work there. Once it has returned true, main() reports an
 * error even if the command returns 0, so that partial output does not pass for complete
 * (MAIN-2). */
bool plx_session_stopped(void);
/* Whether it was ever true. */
bool plx_interrupt_cut_short(void);

#endif
