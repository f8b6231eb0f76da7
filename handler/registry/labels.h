/* labels.h - a disk's labels as its log has them, and the registry brought into line with them. */
#ifndef PLX_LABELS_H
#define PLX_LABELS_H

#include "registry/registry.h"

struct plx_labels {
    struct plx_registry_label *list;
    size_t count;
    bool failed; /* out of memory on the way */
};

/* From snapshot 0: the labels that there are. From another on: what has become of those that were
 * set or removed since the key frame before it, seq 0 for removed. Times are not filled in. An
 * engine call; the list is to be freed whatever is returned. */
int plx_labels_read(struct plx_store *store, uint32_t slot, uint64_t from,
                    struct plx_labels *ret_labels, struct plx_fault *fault);
/* Leaves those that the registry does not know, or not like that. */
int plx_labels_drop_known(struct plx_registry *registry, const char *vdi,
                          struct plx_labels *labels);
/* Fills in the times; an engine call. */
int plx_labels_times(struct plx_store *store, uint32_t slot, struct plx_labels *labels,
                     struct plx_fault *fault);
/* Tells the registry what has become of these. */
int plx_labels_tell(struct plx_registry *registry, const struct plx_registry_lock *lock,
                    const struct plx_labels *labels);
void plx_labels_done(struct plx_labels *labels);

#endif
