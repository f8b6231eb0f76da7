/* labels.c - see labels.h.
 *
 * LABELS-1  The log is the truth: a label is written to the log first and to the registry
 *     afterwards. What the registry missed in between, because of a crash, it is told by the next
 *     process that closes or recovers the disk, under the disk's lock.
 * LABELS-2  Only the end of the log has to be read for that. One label is set at a time, and the
 *     next one waits until the registry has answered. So what the registry misses stands at the
 *     end of the log.
 * LABELS-3  A label in the log whose snapshot went from amid history does not count: whoever let
 *     the snapshot go died before the log said that the label went, too (HOLDS-8). A label of a
 *     snapshot that is newer than all that history has counts: the device lost a write, and that
 *     label tells.
 * Threads: the caller's.
 * Crash story: telling is repeated until the registry knows all.
 */
#include "registry/labels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/list.h"

static void take(void *context, const char *name, uint64_t seq, bool removed)
{
    struct plx_labels *labels = context;
    size_t i = 0;

    while (i < labels->count && strcmp(labels->list[i].name, name) != 0)
        i++;
    if (i == labels->count) {
        if (!PLX_LIST_ROOM(labels->list, labels->count, labels->capacity, 16)) {
            labels->failed = true;
            return;
        }
        labels->count++;
    }
    labels->list[i] = (struct plx_registry_label){.seq = removed ? 0 : seq};
    snprintf(labels->list[i].name, sizeof labels->list[i].name, "%s", name);
}

static void drop_removed(struct plx_labels *labels)
{
    size_t kept = 0;

    for (size_t i = 0; i < labels->count; i++)
        if (labels->list[i].seq)
            labels->list[kept++] = labels->list[i];
    labels->count = kept;
}

int plx_labels_read(struct plx_store *store, uint32_t slot, uint64_t from,
                    struct plx_labels *ret_labels, struct plx_fault *fault)
{
    int error;

    *ret_labels = (struct plx_labels){0};
    error = plx_label_list(store, slot, from, take, ret_labels, fault); /* LABELS-2: the end */
    if (!error && ret_labels->failed)
        error = plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    if (!from)
        drop_removed(ret_labels);
    return error;
}

int plx_labels_times(struct plx_store *store, uint32_t slot, struct plx_labels *labels,
                     struct plx_fault *fault)
{
    size_t kept = 0;
    int error = 0;

    for (size_t i = 0; i < labels->count && !error; i++) {
        struct plx_registry_label label = labels->list[i];
        struct plx_snapshot_info first = {0};

        if (label.seq)
            error = plx_snapshot_first(store, slot, label.seq, &first, fault);
        if (first.seq > label.seq) /* LABELS-3 */
            continue;
        if (first.seq)
            label.time_ns = first.time_ns;
        labels->list[kept++] = label;
    }
    if (!error)
        labels->count = kept;
    return error;
}

int plx_labels_drop_known(struct plx_registry *registry, const char *vdi, struct plx_labels *labels)
{
    size_t kept = 0;
    int error = 0;

    for (size_t i = 0; i < labels->count && !error; i++) {
        const struct plx_registry_label label = labels->list[i];
        struct plx_registry_label row = {0}; /* seq 0: there is none */

        error = plx_registry_label_get(registry, vdi, label.name, &row);
        if (error == PLX_ERR_NOT_FOUND)
            error = 0;
        if (row.seq != label.seq)
            labels->list[kept++] = label;
    }
    labels->count = kept;
    return error;
}

int plx_labels_tell(struct plx_registry *registry, const struct plx_registry_lock *lock,
                    const struct plx_labels *labels)
{
    int error = 0;

    for (size_t i = 0; i < labels->count && !error; i++) {
        const struct plx_registry_label *label = &labels->list[i];

        error = plx_registry_label_remove(registry, lock, label->name);
        if (error == PLX_ERR_NOT_FOUND)
            error = 0;
        if (!error && label->seq)
            error = plx_registry_label_set(registry, lock, label);
    }
    return error;
}

void plx_labels_done(struct plx_labels *labels)
{
    free(labels->list);
    *labels = (struct plx_labels){0};
}
