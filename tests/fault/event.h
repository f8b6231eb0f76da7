/* event.h - what a process does to the world around it, counted, so that its k-th event can fail or
 * be its last: requests handed to the kernel, statements of SQLite's, changes of the file system.
 * By link-time wrapping (FAULT_EVENTS in CMakeLists.txt).
 */
#ifndef PLX_FAULT_EVENT_H
#define PLX_FAULT_EVENT_H

#include <stdint.h>

enum fault_event_end {
    FAULT_EVENT_FAILS,
    FAULT_EVENT_KILLS, /* before it happens; what only reads does not count */
};

/* From now on, for the k-th event (0: for none). */
void fault_event_arm(uint64_t k, enum fault_event_end end);
/* Events since then; none will fail any more. */
uint64_t fault_event_disarm(void);
/* As the k-th event would. */
_Noreturn void fault_event_kill(void);

#endif
