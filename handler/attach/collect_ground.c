/* collect_ground.c - what the parts of a collection stand on: how it is told and stopped, and which
 * instances and extents there are. */
#include <stdlib.h>

#include "attach/collect_inside.h"

int plx_collecting_no_memory(const struct collect *c)
{
    return plx_fault_set(c->fault, PLX_ERR_NOMEM, "out of memory");
}

void plx_collecting_on_progress(void *context, uint64_t metadata_bytes)
{
    struct collect *c = context;

    c->result->metadata_bytes = c->metadata_before + metadata_bytes;
    if (c->work->progress)
        c->work->progress(c->work->context, false, metadata_bytes, c->metadata_total);
}

void plx_collecting_on_pause(void *context)
{
    struct collect *c = context;

    plx_attach_unlock(c->attach);
    c->work->pause(c->work->context);
    plx_attach_lock(c->attach);
}

bool plx_collecting_on_interrupted(void *context)
{
    struct collect *c = context;

    return c->work->interrupted && c->work->interrupted(c->work->context);
}

/* Other instances than this one, all of which may be at work: the dead of this host are recovered.
 */
int plx_collecting_list_living(struct collect *c)
{
    struct plx_registry_instance *list;
    size_t count;
    int error = plx_registry_instance_list(c->in.registry, c->in.store_row, &list, &count);

    if (error)
        return plx_registry_fault(c->in.registry, error, c->fault);
    c->living_count = 0;
    free(c->living);
    c->living = calloc(count + 1, sizeof *c->living);
    for (size_t i = 0; c->living && i < count; i++)
        if (list[i].id != c->in.instance &&
            !plx_instance_is_dead(c->in.paths, plx_registry_locks(c->in.registry), &list[i], NULL))
            c->living[c->living_count++] = list[i].id;
    free(list);
    return c->living ? 0 : plx_collecting_no_memory(c);
}

int plx_collecting_list_extents(const struct collect *c, struct extents *ret_extents)
{
    int error;

    free(ret_extents->rows);
    *ret_extents = (struct extents){0};
    error = plx_registry_extent_list(c->in.registry, c->in.store_row, PLX_REGISTRY_ANY,
                                     &ret_extents->rows, &ret_extents->count);

    return error ? plx_registry_fault(c->in.registry, error, c->fault) : 0;
}

const struct plx_registry_extent *plx_collecting_row_of(const struct extents *extents,
                                                        uint64_t number)
{
    size_t low = 0, high = extents->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (extents->rows[middle].no < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < extents->count && extents->rows[low].no == number ? &extents->rows[low] : NULL;
}

bool plx_collecting_in_use(const struct plx_registry_extent *row)
{
    return row->type != PLX_EXTENT_UNUSED && row->type != PLX_EXTENT_SYSTEM;
}

bool plx_collecting_is_ours(const struct collect *c, const struct plx_registry_extent *row)
{
    return row->owner == 0 || row->owner == c->in.instance;
}
