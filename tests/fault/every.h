/* every.h - a share of a fault loop's places instead of all of them, for builds that are slow. */
#ifndef PLX_FAULT_EVERY_H
#define PLX_FAULT_EVERY_H

/* Every how many-th place is tried: PLX_FAULT_EVERY in the environment, or 1. *ret_first is how
 * many are left out before the first: other ones each day. */
unsigned fault_every(unsigned *ret_first);

#endif
