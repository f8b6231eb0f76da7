/* membership.h - what the nodes of a cluster know of a store as a whole, asked before the store is
 * taken, and told when it is released (CLUSTERS-4). A store of no cluster: nothing is asked.
 *
 * Threads: any.
 */
#ifndef PLX_MEMBERSHIP_H
#define PLX_MEMBERSHIP_H

#include "attach/known.h"

/* Before a store is taken: its registry can be looked for here, and a cluster answers. ask: else
 * the import would fail with the store taken. By a word (from) it is taken even so. */
int plx_membership_check(const struct plx_paths *paths, const struct plx_known *known, bool ask,
                         struct plx_fault *fault);
/* Another host may have the rows of a released store (CLUSTERS-4). What fails there is made good by
 * the operator's word that this host is off. */
void plx_membership_let_go(const struct plx_paths *paths, const struct plx_known *known);

#endif
