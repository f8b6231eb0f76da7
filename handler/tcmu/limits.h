/* limits.h - the soft limits (registry/threshold.h) of an open store and of its LUNs. */
#ifndef PLX_LIMITS_H
#define PLX_LIMITS_H

struct plx_store_home;

/* Measures how much is used, and tells operators and initiators of limits that were crossed since
 * the last look. On the service's thread, with no lock of the home held. */
void plx_limits_look(struct plx_store_home *home);

#endif
