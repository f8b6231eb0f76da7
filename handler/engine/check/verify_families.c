/* verify_families.c - the order in which disks are read: family by family, ancestors first
 * (VERIFY-11). verify_kin.c says what for.
 *
 * Loop: the store's. Crash story: this file only reads.
 */
#include <stdlib.h>

#include "engine/check/verify.h"

static int by_family(const void *a, const void *b)
{
    const struct plx_kin *x = *(const struct plx_kin *const *)a,
                         *y = *(const struct plx_kin *const *)b;

    if (x->strange != y->strange)
        return x->strange ? 1 : -1;
    if (x->root_slot != y->root_slot && !x->strange)
        return x->root_slot < y->root_slot ? -1 : 1;
    if (x->depth != y->depth)
        return x->depth < y->depth ? -1 : 1;
    if (x->created_ns != y->created_ns)
        return x->created_ns < y->created_ns ? -1 : 1;
    return x->slot < y->slot ? -1 : x->slot > y->slot;
}

/* What is not in the list: disks that came meanwhile, and records that cannot be read. */
static void read_others(struct plx_verify *v, const bool *listed, uint32_t slots)
{
    struct plx_slot_scan scan = {0};

    plx_verify_clear_marks(v, &v->family);
    for (uint32_t slot = 0; !v->error && plx_vdi_next_slot(v->store, &scan, &slot); slot++)
        if ((slot >= slots || !listed[slot]) &&
            (!v->options->leave_out || !v->options->leave_out(v->options->context, slot)))
            plx_verify_vdi(v, slot);
}

void plx_verify_families(struct plx_verify *v)
{
    uint32_t slots = plx_vdi_slot_count(v->store);
    const struct plx_kin **order = calloc(v->kin_count + 1, sizeof *order);
    bool *listed = calloc(slots, sizeof *listed);
    size_t count = 0;

    if (!order || !listed)
        v->error = PLX_ERR_NOMEM;
    for (size_t i = 0; i < v->kin_count && !v->error; i++)
        if (v->kin[i].read)
            order[count++] = &v->kin[i];
    if (count)
        qsort(order, count, sizeof *order, by_family);
    for (size_t i = 0; i < count && !v->error; i++) {
        if (i && (order[i]->strange || order[i]->root_slot != order[i - 1]->root_slot))
            plx_verify_clear_marks(v, &v->family);
        listed[order[i]->slot] = true;
        plx_verify_vdi(v, order[i]->slot);
    }
    if (!v->error)
        read_others(v, listed, slots);
    free(order);
    free(listed);
}
