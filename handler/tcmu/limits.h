/* limits.h - soft limits (registry/threshold.h) of an open store and of its LUNs. */
#ifndef PLX_LIMITS_H
#define PLX_LIMITS_H

struct plx_store_home;

/* Looks how much is used, and tells operators and initiators what has crossed its limit since the
 * last look. The service's thread; none of the home's locks held. */
void plx_limits_look(struct plx_store_home *home);

#endif
