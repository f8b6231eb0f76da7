/* attach.h - a store by name in real files, and the operations on it that faults and kills
 * interrupt (test_fault_attach.c, ../unit/test_attach_crash.c).
 */
#ifndef PLX_FAULT_ATTACH_H
#define PLX_FAULT_ATTACH_H

#include "attach/attach.h"

/* What an operation finds open. */
enum fault_opens { FAULT_OPENS_NOTHING, FAULT_OPENS_STORE, FAULT_OPENS_DISK };

struct fault_operation {
    const char *name;
    int (*prepare)(void); /* what is there before; all is closed */
    enum fault_opens opens;
    int (*run)(void);
    int (*effect)(void);   /* 0: it is there (the store open, the disk not); NULL: nothing to see */
    bool formats, deletes; /* formats: the store may not be there; deletes: the disk may not */
    bool written;          /* the disk's contents were acknowledged before */
    bool on_disk;          /* run works on the open disk */
    bool keyframe;         /* it writes one, which is announced in the log after it has ended */
};

extern struct plx_fault fault_attach_fault; /* of the last step that failed */
extern unsigned fault_attach_mute_events;   /* events of errors that had no text */

extern bool fault_attach_reopens; /* struct plx_attach_options, reopens */

/* What the operation's prepare() makes is there, and nothing else. It is made once, and put back
 * from then on. */
int fault_attach_prepare(const struct fault_operation *operation);
int fault_attach_open(void);
/* Opens what the operation finds open. */
int fault_attach_begin(const struct fault_operation *operation);
/* Closes what the operation left open, whatever comes of it. */
void fault_attach_drop(void);

/* A new process's worth of calls, after the operation was interrupted or not (done): all that was
 * acknowledged is there, the operation can be repeated, and store and registry agree. Returns an
 * error, and *step: what does not work. */
int fault_attach_judge(const struct fault_operation *operation, bool done, const char **step);

/* Runs work in several processes, each with a folder of its own and with its part of the cases: a
 * case waits for the kernel more than it works. Returns what main() is to return. */
int fault_attach_share(int (*work)(unsigned part, unsigned parts));

/* One case: an operation, interrupted at the k-th place. Counts what went wrong in *failures, says
 * it, and returns whether there was such a place. */
typedef bool fault_attach_case(const struct fault_operation *operation, uint64_t k,
                               unsigned *failures);
/* Every k of every operation that falls to `part` of `parts`, or what wanted names, as OPERATION or
 * OPERATION:K (NULL: all). places: what they are called. With PLX_FAULT_EVERY=N in the environment
 * every N-th of them, others each day. Returns false after failures. */
bool fault_attach_loop(const char *wanted, unsigned part, unsigned parts, const char *places,
                       fault_attach_case *run_case);

#endif
