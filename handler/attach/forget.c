/* forget.c - the operator gives up what could not be read (lost.h), or what a disk has lost.
 *
 * FORGET-1  A lost slot is rewritten as one that was never used before its row in `lost` is
 *     removed. Until the row is gone, no disk gets the slot. Afterwards neither a collection nor a
 *     rebuild finds the damaged record again.
 * FORGET-2  One process at a time gives up slots, under the recovery lock (ATTACH-11), and it lists
 *     the rows under that lock too. With two, the second might read that a record is damaged and
 *     then overwrite the disk that was created in the slot meanwhile.
 * FORGET-3  A disk that went back to an older state has lost its newest snapshots, and will use
 *     their numbers again. So the transaction that accepts the older state also removes the labels
 *     of those snapshots. Otherwise the labels would name other snapshots.
 * FORGET-4  The older state of a disk uses blocks that the disk has freed since. What happens to
 *     such a block depends on who has it now:
 *         another disk   the older state is refused before anything changes: both disks would
 *                        overwrite and free the block
 *         nobody         its extent is sealed for good (REBUILD-9), so nobody gets the block; then
 *                        the check runs once more, for somebody may have got it meanwhile
 *         an extent that an instance holds
 *                        refused (BUSY) until the instance has ended: such an extent cannot be
 *                        sealed, and that the block is free may be known to its memory only
 * FORGET-5  The older state is also refused if the metadata of another disk cannot be read, since
 *     nobody then knows which blocks that disk uses.
 * FORGET-7  If the metadata of the older state itself cannot be read, blocks that it leads to are
 *     not known, so they are not sealed (FORGET-4). While that stays unreadable the disk neither
 *     overwrites nor frees them, but a state that is better may still come back. So it is refused,
 *     unless the operator takes what can be read of it.
 * FORGET-8  While a record is lost nobody knows which blocks its disk uses, as in FORGET-5.
 * FORGET-6  A collection may have found blocks of the older state and be about to free them. So
 *     accepting is entered as a collection (COLLECTIONS-1), which keeps others out; while a record
 *     is lost, no collection runs at all. What an interrupted collection had left to sweep is
 *     dropped in the transaction of FORGET-3.
 * Threads: as attach.h.
 * Crash story: slots that are given up already look like slots that were never used. The operator
 *   repeats the command, which does the rest.
 */
#include <stdlib.h>
#include <string.h>

#include "attach/attach_inside.h"
#include "attach/doors.h"
#include "registry/collections.h"
#include "registry/lost.h"

/* ---- What is lost ---- */

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
    for (size_t i = 0; i < count && !error; i++) /* FORGET-1 */
        error = give_up(attach, in.store, &list[i], fault);
    free(list);
    if (error)
        return error;
    error = plx_registry_lost_forget(in.registry, in.store_row, ret_count);
    return error ? plx_registry_fault(in.registry, error, fault) : 0;
}

int plx_attach_forget_lost(struct plx_attach *attach, size_t *ret_count, struct plx_fault *fault)
{
    int error = plx_attach_lock_recovery(attach, fault); /* FORGET-2 */

    if (error)
        return error;
    error = forget(attach, ret_count, fault);
    plx_attach_unlock_recovery(attach);
    return error;
}

/* ---- What went back ---- */

/* The newest snapshot; of a disk whose log is damaged, the newest that its record knows of. */
static int find_newest(struct plx_store *store, uint32_t slot, const struct plx_vdi_info *info,
                       uint64_t *ret_newest, struct plx_fault *fault)
{
    struct plx_vdi_info now = *info;
    struct plx_vdi *instant;
    int error = plx_snapshot_open(store, slot, 0, &instant, fault);

    if (error && error != PLX_ERR_CORRUPT)
        return error;
    if (!error) {
        plx_vdi_get_info(instant, &now);
        plx_vdi_close(instant);
    }
    *ret_newest = now.snapshots;
    return 0;
}

static int look(struct plx_store *store, const struct plx_registry_vdi *vdi,
                struct plx_older *ret_older, struct plx_fault *fault)
{
    struct plx_vdi_info info;
    int error = plx_door_is_older(store, vdi, &ret_older->older, fault);

    if (error || !ret_older->older)
        return error;
    error = plx_vdi_read_info(store, vdi->slot, &info, fault);
    if (error)
        return error;
    ret_older->written = (struct plx_registry_written){info.epoch, info.record_state};
    return find_newest(store, vdi->slot, &info, &ret_older->newest, fault);
}

int plx_attach_look_at_older(struct plx_attach *attach, const struct plx_registry_vdi *vdi,
                             struct plx_older *ret_older, struct plx_fault *fault)
{
    struct plx_attach_inside in;
    size_t count = 0, left = 0;
    int error;

    *ret_older = (struct plx_older){0};
    plx_attach_get_inside(attach, &in);
    plx_attach_lock(attach);
    error = look(in.store, vdi, ret_older, fault);
    plx_attach_unlock(attach);
    if (error || !ret_older->older)
        return error;
    error = plx_registry_label_list(in.registry, vdi->id, &ret_older->gone, &count);
    if (error)
        return plx_registry_fault(in.registry, error, fault);
    for (size_t i = 0; i < count; i++)
        if (ret_older->gone[i].seq > ret_older->newest)
            ret_older->gone[left++] = ret_older->gone[i];
    ret_older->gone_count = left;
    return 0;
}

struct accept { /* FORGET-4 */
    struct plx_attach_inside in;
    const struct plx_registry_vdi *vdi;
    const struct plx_older *older;
    struct plx_fault *fault;
    struct plx_fault damage; /* FORGET-7; after all that no word of the operator's changes */
    int error;               /* of a callback */
};

/* One that went back, too: it is asked about this one when it is accepted in its turn. */
static bool went_back(const struct accept *accept, const struct plx_uuid *id)
{
    struct plx_registry_vdi row;
    char text[PLX_UUID_TEXT];
    bool older = false;

    plx_uuid_text(id, text);
    return !plx_registry_vdi_get_by_id(accept->in.registry, text, &row) &&
           !plx_door_is_older(accept->in.store, &row, &older, NULL) && older;
}

/* What else may be damaged leads to no block of a disk. */
static bool leads_to_blocks(const struct plx_finding *finding)
{
    return plx_finding_leads_to_blocks(finding) || strcmp(finding->kind, "record") == 0 ||
           strcmp(finding->kind, "more") == 0;
}

/* FORGET-5. Of damage that several disks have, the first one speaks for all: what it hides of the
 * others, they have in common. */
static bool hides_blocks(const struct accept *accept, const struct plx_finding *finding)
{
    return leads_to_blocks(finding) && !finding->also &&
           (!finding->id || !went_back(accept, finding->id));
}

/* FORGET-7 */
static bool is_damaged_itself(const struct accept *accept, const struct plx_finding *finding)
{
    char text[PLX_UUID_TEXT];

    if (!finding->id || finding->severity != PLX_FINDING_ERROR || !leads_to_blocks(finding))
        return false;
    plx_uuid_text(finding->id, text);
    return strcmp(text, accept->vdi->id) == 0;
}

static void on_finding(void *context, const struct plx_finding *finding)
{
    struct accept *accept = context;

    if (accept->error)
        return;
    if (strcmp(finding->kind, "shared") == 0)
        accept->error = plx_fault_set(accept->fault, PLX_ERR_CORRUPT,
                                      "%.160s: blocks of an older state are in use by others; "
                                      "nothing was changed: restore the store, or give the disk "
                                      "up by 'parallax vdi delete STORE/%.60s --lost'",
                                      finding->text, accept->vdi->name);
    else if (hides_blocks(accept, finding))
        accept->error = plx_fault_set(accept->fault, PLX_ERR_CORRUPT,
                                      "%.200s: nobody knows whether blocks of the older state are "
                                      "in use there; nothing was changed: see 'parallax store "
                                      "check'",
                                      finding->text);
    else if (!accept->older->also_damaged && !accept->damage.code &&
             is_damaged_itself(accept, finding))
        plx_fault_set(&accept->damage, PLX_ERR_CORRUPT,
                      "%.250s: the older state is damaged; nothing was changed: restore the store; "
                      "only if there is no better state, --also-damaged accepts what can be read "
                      "of it",
                      finding->text);
    else if (strcmp(finding->kind, "busy") == 0)
        accept->error = plx_fault_set(accept->fault, PLX_ERR_BUSY, "%.300s; nothing was changed",
                                      finding->text);
}

static bool is_another(void *context, uint32_t slot)
{
    const struct accept *accept = context;

    return slot != accept->vdi->slot;
}

static void seal(void *context, uint64_t extent)
{
    struct accept *accept = context;

    if (accept->error)
        return;
    accept->error = plx_registry_extent_seal(accept->in.registry, accept->in.store_row, extent);
    if (accept->error)
        plx_registry_fault(accept->in.registry, accept->error, accept->fault);
}

static int check(struct plx_attach *attach, struct accept *accept,
                 const struct plx_check_options *options)
{
    struct plx_check_result result;
    int error;

    plx_attach_lock(attach);
    error = plx_store_check(accept->in.store, options, &result, accept->fault);
    plx_attach_unlock(attach);
    if (error == PLX_ERR_BUSY) /* interrupted: no lock is in the way */
        error = accept->fault->code = PLX_ERR_SYSTEM;
    return error ? error : accept->error;
}

static int accept_alone(struct plx_attach *attach, struct accept *accept,
                        const struct plx_older *older, const struct plx_watch *watch)
{
    const struct plx_check_options whose = {
        .finding = on_finding, .context = accept, .watch = *watch};
    const struct plx_check_options unguarded = {.unguarded = seal,
                                                .owned = true,
                                                .leave_out = is_another,
                                                .context = accept,
                                                .watch = *watch};
    int error = check(attach, accept, &whose); /* FORGET-4, FORGET-5 */

    if (!error && accept->damage.code)
        error = plx_fault_set(accept->fault, accept->damage.code, "%s", accept->damage.text);
    if (!error)
        error = check(attach, accept, &unguarded);
    if (!error)
        error = check(attach, accept, &whose);
    if (error)
        return error;
    error = plx_registry_vdi_accept(accept->in.registry, accept->vdi->id, accept->in.instance,
                                    &older->written, older->newest); /* FORGET-3, FORGET-6 */
    return error ? plx_registry_fault(accept->in.registry, error, accept->fault) : 0;
}

/* FORGET-6 */
static int keep_collections_out(struct plx_attach *attach, const struct accept *accept)
{
    const struct plx_attach_inside *in = &accept->in;
    struct plx_registry_collection entered;
    bool waited;
    int error = plx_attach_enter_collection(attach, &entered, &waited, accept->fault);

    if (error || !entered.sweeping)
        return error;
    error = plx_registry_collection_sweep(in->registry, in->store_row, in->instance, false);
    if (error) {
        plx_registry_fault(in->registry, error, accept->fault);
        plx_registry_collection_leave(in->registry, in->store_row, in->instance);
    }
    return error;
}

/* FORGET-8. The trigger that keeps collections out would refuse, too, and cannot say what for. */
static int refuse_beside_lost(const struct plx_attach *attach, const struct accept *accept)
{
    struct plx_registry_lost *list = NULL;
    const char *store = attach->known.name;
    char text[PLX_LOST_TEXT];
    size_t count = 0, records;
    int error = plx_registry_lost_list(accept->in.registry, accept->in.store_row, &list, &count);

    if (error)
        return plx_registry_fault(accept->in.registry, error, accept->fault);
    records = plx_registry_lost_text(list, count, text);
    free(list);
    return records ? plx_fault_set(accept->fault, PLX_ERR_DOUBT,
                                   "%s/%.60s was not accepted, for what is lost may have its "
                                   "blocks: %s; restore the store; only if that is gone for good, "
                                   "'parallax vdi forget %s --lost' gives it up",
                                   store, accept->vdi->name, text, store)
                   : 0;
}

/* ATTACH-24 */
static void give_up_ring(struct plx_attach *attach, const struct plx_registry_vdi *vdi)
{
    struct plx_registry_written written;
    struct plx_uuid id;

    if (plx_attach_ring_saw(attach, vdi, vdi->epoch, &written) && plx_uuid_parse(vdi->id, &id))
        plx_attach_ring_forget(attach, &id);
}

int plx_attach_accept_older(struct plx_attach *attach, const struct plx_registry_vdi *vdi,
                            const struct plx_older *older, const struct plx_watch *watch,
                            struct plx_fault *fault)
{
    struct accept accept = {.vdi = vdi, .older = older, .fault = fault};
    int error, left;

    plx_attach_get_inside(attach, &accept.in);
    error = refuse_beside_lost(attach, &accept);
    if (!error)
        error = keep_collections_out(attach, &accept);
    if (error)
        return error;
    error = accept_alone(attach, &accept, older, watch);
    if (!error)
        give_up_ring(attach, vdi);
    left =
        plx_registry_collection_leave(accept.in.registry, accept.in.store_row, accept.in.instance);
    return error ? error : left ? plx_registry_fault(accept.in.registry, left, fault) : 0;
}
