/* compare.h - the registry against the store it describes. Reads only. */
#ifndef PLX_COMPARE_H
#define PLX_COMPARE_H

#include "attach/attach.h"

/* Calls found for each difference between registry and store: extents and their owners, disks,
 * labels, volumes, and instances that only the store names. ERROR: trusting the registry would do
 * damage, or refuse what is there. INFO: the next opening for writing corrects it. The store is the
 * truth. Every text says what to do. */
int plx_attach_compare(struct plx_attach *attach,
                       void (*found)(void *context, const struct plx_finding *finding),
                       void *context, struct plx_fault *fault);

#endif
