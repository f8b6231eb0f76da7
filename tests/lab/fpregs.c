/* fpregs.c - lets User Mode Linux run on processors whose extended state is larger than it knows.
 *
 * UML saves a guest process's floating point state with ptrace into a buffer of fixed size. The
 * host truncates when reading but, since the state of AMX tiles made it 11 KB, refuses a short
 * buffer when writing: the guest's init dies with "ptrace set fp regs failed, errno = 14".
 * Preloaded into linux.uml, this pads the write with zeroes, which is the initial state of
 * everything UML left out.
 *
 * The kernel's answer is taken from the register and not from errno, which UML's signal handlers
 * change: a timer that came in between made the refusal look like another error (errno = 11),
 * nothing was padded, and UML killed whatever ran in the guest, under load every few minutes.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#ifndef NT_X86_XSTATE
#define NT_X86_XSTATE 0x202
#endif

#define STATE_MAX 65536

/* 0 or a negative errno. */
static long kernel(long request, long pid, struct iovec *data)
{
    register struct iovec *fourth __asm__("r10") = data;
    long answer;

    __asm__ volatile("syscall"
                     : "=a"(answer)
                     : "a"(SYS_ptrace), "D"(request), "S"(pid), "d"((long)NT_X86_XSTATE),
                       "r"(fourth)
                     : "rcx", "r11", "memory");
    return answer;
}

static long write_state(long pid, struct iovec *given)
{
    static size_t state_size;
    static char state[STATE_MAX] __attribute__((aligned(64)));
    struct iovec whole = {state, sizeof state};
    long answer = kernel(PTRACE_SETREGSET, pid, given);

    if (answer != -EFAULT)
        return answer;
    if (state_size == 0) {
        answer = kernel(PTRACE_GETREGSET, pid, &whole);
        if (answer)
            return answer;
        state_size = whole.iov_len;
    }
    if (given->iov_len >= state_size)
        return -EFAULT;
    memcpy(state, given->iov_base, given->iov_len);
    memset(state + given->iov_len, 0, state_size - given->iov_len);
    whole.iov_len = state_size;
    return kernel(PTRACE_SETREGSET, pid, &whole);
}

long ptrace(enum __ptrace_request request, ...)
{
    static long (*next)(enum __ptrace_request, long, void *, void *);
    va_list args;
    va_start(args, request);
    long pid = va_arg(args, int);
    void *addr = va_arg(args, void *);
    void *data = va_arg(args, void *);
    va_end(args);

    if (request == PTRACE_SETREGSET && (long)addr == NT_X86_XSTATE) {
        long answer = write_state(pid, data);

        if (answer == 0)
            return 0;
        errno = (int)-answer;
        return -1;
    }
    if (!next)
        next = (long (*)(enum __ptrace_request, long, void *, void *))dlsym(RTLD_NEXT, "ptrace");
    return next(request, pid, addr, data);
}
