/* fpregs.c - lets User Mode Linux run on processors whose extended state is larger than it knows.
 *
 * UML saves a guest process's floating point state with ptrace into a buffer of fixed size. The
 * host truncates when reading but, since the state of AMX tiles made it 11 KB, refuses a short
 * buffer when writing: the guest's init dies with "ptrace set fp regs failed, errno = 14".
 * Preloaded into linux.uml, this pads the write with zeroes, which is the initial state of
 * everything UML left out.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

#ifndef NT_X86_XSTATE
#define NT_X86_XSTATE 0x202
#endif

#define STATE_MAX 65536

long ptrace(enum __ptrace_request request, ...)
{
    static long (*next)(enum __ptrace_request, long, void *, void *);
    static size_t state_size;
    static char state[STATE_MAX] __attribute__((aligned(64)));
    va_list args;
    va_start(args, request);
    long pid = va_arg(args, int);
    void *addr = va_arg(args, void *);
    void *data = va_arg(args, void *);
    va_end(args);

    if (!next)
        next = (long (*)(enum __ptrace_request, long, void *, void *))dlsym(RTLD_NEXT, "ptrace");
    long ret = next(request, pid, addr, data);
    if (ret == 0 || request != PTRACE_SETREGSET || (long)addr != NT_X86_XSTATE || errno != EFAULT)
        return ret;

    struct iovec *given = data;
    if (state_size == 0) {
        struct iovec whole = {state, sizeof(state)};
        if (next(PTRACE_GETREGSET, pid, addr, &whole) != 0)
            return -1;
        state_size = whole.iov_len;
    }
    if (given->iov_len >= state_size) {
        errno = EFAULT;
        return -1;
    }
    memcpy(state, given->iov_base, given->iov_len);
    memset(state + given->iov_len, 0, state_size - given->iov_len);
    struct iovec padded = {state, state_size};
    return next(request, pid, addr, &padded);
}
