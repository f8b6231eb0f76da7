/* kill.h - a process that is killed before its k-th event: a write or flush handed to
 * the kernel, a changing statement of SQLite's, a change of the file system. By link-time wrapping
 * (../unit/CMakeLists.txt).
 */
#ifndef PLX_FAULT_KILL_H
#define PLX_FAULT_KILL_H

#include <stdint.h>

/* From now on; the k-th event does not happen any more (0: all do). */
void fault_kill_arm(uint64_t k);
/* Events since. */
uint64_t fault_kill_events(void);
/* As the k-th event would. */
_Noreturn void fault_kill(void);

#endif
