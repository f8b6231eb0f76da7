/* labels.h - the labels of a disk as its log has them, and how the registry catches up with them.
 *
 * Order of calls, by whoever closes or recovers the disk, under its lock: plx_labels_read(),
 * plx_labels_drop_known(), plx_labels_times(), plx_labels_tell(), plx_labels_done().
 */
#ifndef PLX_LABELS_H
#define PLX_LABELS_H

#include "registry/registry.h"

struct plx_labels {
    struct plx_registry_label *list;
    size_t count, capacity;
    bool failed; /* out of memory while reading */
};

/* from 0: reads all labels that the disk has. Another from: reads the labels that were set or
 * removed since the key frame before that snapshot; a removed one has seq 0. Times are not filled
 * in. An engine call. Call plx_labels_done() whatever it returns. */
int plx_labels_read(struct plx_store *store, uint32_t slot, uint64_t from,
                    struct plx_labels *ret_labels, struct plx_fault *fault);
/* Drops the changes that the registry already reflects. */
int plx_labels_drop_known(struct plx_registry *registry, const char *vdi,
                          struct plx_labels *labels);
/* Fills in the times of the labelled snapshots, and drops labels whose snapshots have gone
 * (LABELS-3). An engine call. */
int plx_labels_times(struct plx_store *store, uint32_t slot, struct plx_labels *labels,
                     struct plx_fault *fault);
/* Sets or removes these labels in the registry. */
int plx_labels_tell(struct plx_registry *registry, const struct plx_registry_lock *lock,
                    const struct plx_labels *labels);
void plx_labels_done(struct plx_labels *labels);

#endif
