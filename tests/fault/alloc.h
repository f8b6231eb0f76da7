/* alloc.h - allocations that fail on demand, by link-time wrapping (CMakeLists.txt).
 *
 * Only allocations of the thread that armed the counter count, and only while it is armed and not
 * suspended: the simulator's own and the tests' own do not. What a shared library allocates for
 * itself is not wrapped.
 */
#ifndef PLX_FAULT_ALLOC_H
#define PLX_FAULT_ALLOC_H

#include <stdbool.h>
#include <stdint.h>

/* The k-th allocation from now fails (0: none does), with `all` every later one as well. */
void fault_alloc_arm(uint64_t k, bool all);
/* From now on none fails. */
void fault_alloc_heal(void);
/* Allocations counted since. *ret_failed: how many of them failed. */
uint64_t fault_alloc_disarm(uint64_t *ret_failed);
/* Around code that is not under test; nests. */
void fault_alloc_suspend(void);
void fault_alloc_resume(void);

#endif
