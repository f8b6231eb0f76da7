/* test_fpregs.c - fpregs.c, on any processor: writes of a state that is shorter than the host's, as
 * UML's is where there are AMX tiles, while signal handlers change errno, as UML's do.
 */
#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef NT_X86_XSTATE
#define NT_X86_XSTATE 0x202
#endif

#define WRITES 100000
#define SKIPPED 77

static volatile sig_atomic_t signals;

static void spoil(int number)
{
    signals++;
    errno = EAGAIN;
}

static pid_t stopped_child(void)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        _exit(1);
    }
    waitpid(pid, &status, 0);
    return pid;
}

int main(void)
{
    static char before[65536], after[65536];
    struct itimerval often = {{0, 20}, {0, 20}}, never = {{0, 0}, {0, 0}};
    struct iovec whole = {before, sizeof before}, again = {after, sizeof after};
    pid_t pid = stopped_child();
    unsigned failed = 0;
    int differs = 0;

    if (ptrace(PTRACE_GETREGSET, pid, (void *)NT_X86_XSTATE, &whole)) {
        puts("SKIPPED: this processor has no extended state");
        kill(pid, SIGKILL);
        return SKIPPED;
    }
    signal(SIGALRM, spoil);
    setitimer(ITIMER_REAL, &often, NULL);
    for (unsigned i = 0; i < WRITES; i++) {
        struct iovec shorter = {before, whole.iov_len - 8};

        failed += ptrace(PTRACE_SETREGSET, pid, (void *)NT_X86_XSTATE, &shorter) != 0;
    }
    setitimer(ITIMER_REAL, &never, NULL);
    if (ptrace(PTRACE_GETREGSET, pid, (void *)NT_X86_XSTATE, &again) == 0)
        differs = memcmp(before, after, whole.iov_len - 8) != 0;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    printf("%u of %d writes failed, %d signals%s\n", failed, WRITES, (int)signals,
           differs ? "; the state is another" : "");
    return failed || differs || !signals;
}
