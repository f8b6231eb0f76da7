/* forget.c - the operator gives up what could not be read (lost.h).
 *
 * F1  A slot is made one that was never used before its row in `lost` goes: until then it is given
 *     to nobody, and afterwards neither a collection nor a rebuild meets the damaged record again.
 * F2  One process at a time does it: another one, having read that a record is damaged, might write
 *     over the disk that was created there meanwhile. So rows are listed under the lock, too.
 * Threads: as attach.h. Crash story: what is given up already cannot be told from what never was;
 *   the command does the rest when it comes again.
 */
#include "registry/attach_inside.h"
#include "registry/lost.h"

#include <stdlib.h>

static int give_up(struct plx_attach *attach, struct plx_store *store,
                   const struct plx_registry_lost *lost, struct plx_fault *fault)
{
    struct plx_fault why;
    int error;

    if (lost->labels)
        return 0;
    plx_attach_lock(attach);
    error = plx_vdi_give_up(store, lost->slot, &why);
    plx_attach_unlock(attach);
    if (error == PLX_ERR_EXISTS)
        return plx_fault_set(fault, error,
                             "%s; nothing was given up: 'parallax store rebuild-registry' brings "
                             "it back",
                             why.text);
    return error ? plx_fault_set(fault, error, "%s", why.text) : 0;
}

static int forget(struct plx_attach *attach, size_t *ret_count, struct plx_fault *fault)
{
    struct plx_registry_lost *list = NULL;
    struct plx_attach_inside in;
    size_t count = 0;
    int error;

    plx_attach_get_inside(attach, &in);
    error = plx_registry_lost_list(in.registry, in.store_row, &list, &count);
    if (error)
        return plx_registry_fault(in.registry, error, fault);
    for (size_t i = 0; i < count && !error; i++) /* F1 */
        error = give_up(attach, in.store, &list[i], fault);
    free(list);
    if (error)
        return error;
    error = plx_registry_lost_forget(in.registry, in.store_row, ret_count);
    return error ? plx_registry_fault(in.registry, error, fault) : 0;
}

int plx_attach_forget_lost(struct plx_attach *attach, size_t *ret_count, struct plx_fault *fault)
{
    int error = plx_attach_lock_recovery(attach, fault); /* F2 */

    if (error)
        return error;
    error = forget(attach, ret_count, fault);
    plx_attach_unlock_recovery(attach);
    return error;
}
