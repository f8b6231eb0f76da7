/* home_calls.c - what is asked of an open home and its LUNs: each call takes the attach's lock, and
 * the loop's where it looks at the engine (HOME-3). */
#include <stdatomic.h>

#include "attach/attach.h"
#include "tcmu/home.h"
#include "tcmu/loop.h"

unsigned plx_home_unasked(struct plx_store_home *home, uint64_t *ret_changes)
{
    unsigned count;

    pthread_mutex_lock(&home->attach_lock);
    count = plx_attach_unasked(home->attach, ret_changes);
    pthread_mutex_unlock(&home->attach_lock);
    return count;
}

void plx_home_let_go(struct plx_store_home *home, const char *vdi)
{
    pthread_mutex_lock(&home->attach_lock);
    plx_attach_let_go(home->attach, vdi);
    pthread_mutex_unlock(&home->attach_lock);
}

int plx_home_resize(struct plx_lun *lun, uint64_t bytes, struct plx_fault *fault)
{
    uint64_t now = atomic_load(&lun->size_bytes);
    int result;

    if (bytes == now)
        return 0;
    if (lun->read_only)
        return plx_fault_set(fault, PLX_ERR_READONLY, "a snapshot keeps its size");
    if (bytes < now)
        return plx_fault_set(fault, PLX_ERR_INVALID, "it has %llu bytes and cannot be made smaller",
                             (unsigned long long)now);
    if (bytes % lun->sector_size || bytes > PLX_VDI_SIZE_MAX)
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "%llu bytes are not a multiple of %u, or more than 256 TiB",
                             (unsigned long long)bytes, lun->sector_size);
    pthread_mutex_lock(&lun->home->attach_lock);
    result = plx_attach_resize(lun->home->attach, lun->vdi, bytes, fault);
    pthread_mutex_unlock(&lun->home->attach_lock);
    if (result == 0)
        atomic_store(&lun->size_bytes, bytes);
    return result;
}

/* Finds the time of a snapshot, which the registry needs for a label. NOT_FOUND: there is no such
 * snapshot. */
static int find_snapshot(struct plx_lun *lun, uint64_t seq, uint64_t *ret_time_ns,
                         struct plx_fault *fault)
{
    struct plx_snapshot_info found;
    struct plx_vdi_info info;
    int result;

    plx_loop_lock(lun->loop);
    plx_vdi_get_info(lun->vdi, &info);
    result = plx_snapshot_first(plx_attach_store(lun->home->attach), info.slot, seq, &found, fault);
    plx_loop_unlock(lun->loop);
    if (result < 0)
        return result;
    if (found.seq != seq)
        return plx_fault_set(fault, PLX_ERR_NOT_FOUND, "%s/%.120s has no snapshot %llu",
                             lun->config.store, lun->config.vdi, (unsigned long long)seq);
    *ret_time_ns = found.time_ns;
    return 0;
}

int plx_home_label(struct plx_lun *lun, const char *label, uint64_t seq, struct plx_fault *fault)
{
    uint64_t time_ns = 0;
    int result = seq ? find_snapshot(lun, seq, &time_ns, fault) : 0;

    if (result < 0)
        return result;
    pthread_mutex_lock(&lun->home->attach_lock);
    result = plx_attach_label(lun->home->attach, lun->vdi, label, seq, time_ns, fault);
    pthread_mutex_unlock(&lun->home->attach_lock);
    return result;
}

int plx_home_rewind(struct plx_lun *lun, uint64_t seq, char ret_label[PLX_REWIND_LABEL],
                    struct plx_snapshot_info *ret_before, struct plx_fault *fault)
{
    int result;

    pthread_mutex_lock(&lun->home->attach_lock);
    result = plx_attach_rewind(lun->home->attach, lun->vdi, seq, ret_label, ret_before, fault);
    pthread_mutex_unlock(&lun->home->attach_lock);
    if (result == 0)
        atomic_fetch_or(&lun->attentions, PLX_ATTENTION_CHANGED);
    return result;
}

int plx_home_protect(struct plx_lun *lun, const struct plx_protection *protection,
                     struct plx_fault *fault)
{
    int result;

    pthread_mutex_lock(&lun->home->attach_lock);
    result = plx_attach_protect(lun->home->attach, lun->vdi, protection, fault);
    pthread_mutex_unlock(&lun->home->attach_lock);
    return result;
}

int plx_home_volumes_changed(struct plx_store_home *home, struct plx_fault *fault)
{
    int result;

    pthread_mutex_lock(&home->attach_lock);
    result = plx_attach_volumes_changed(home->attach, fault);
    pthread_mutex_unlock(&home->attach_lock);
    return result;
}

int plx_home_thin(struct plx_lun *lun, const struct plx_thin *thin, struct plx_thinned *ret_thinned,
                  struct plx_fault *fault)
{
    int result;

    pthread_mutex_lock(&lun->home->attach_lock);
    result = plx_attach_thin(lun->home->attach, lun->vdi, thin, ret_thinned, fault);
    pthread_mutex_unlock(&lun->home->attach_lock);
    return result;
}

void plx_home_look_at_clock(struct plx_lun *lun, struct plx_vdi_clock *ret_clock)
{
    pthread_mutex_lock(&lun->home->attach_lock);
    plx_attach_look_at_clock(lun->home->attach, lun->vdi, ret_clock);
    pthread_mutex_unlock(&lun->home->attach_lock);
}

int plx_home_resume(struct plx_lun *lun, struct plx_fault *fault)
{
    int result;

    pthread_mutex_lock(&lun->home->attach_lock);
    result = plx_attach_resume(lun->home->attach, lun->vdi, fault);
    pthread_mutex_unlock(&lun->home->attach_lock);
    return result;
}

int plx_home_ring_use(struct plx_lun *lun, enum plx_ring_setting use, struct plx_fault *fault)
{
    int result;

    pthread_mutex_lock(&lun->home->attach_lock);
    result = plx_attach_ring_use(lun->home->attach, lun->vdi, use, fault);
    pthread_mutex_unlock(&lun->home->attach_lock);
    return result;
}

void plx_home_let_rings_go(struct plx_store_home *home)
{
    pthread_mutex_lock(&home->luns_lock);
    pthread_mutex_lock(&home->attach_lock);
    for (struct plx_lun *lun = home->luns; lun; lun = lun->next)
        if (!lun->read_only)
            plx_attach_ring_let_go(home->attach, lun->vdi);
    pthread_mutex_unlock(&home->attach_lock);
    pthread_mutex_unlock(&home->luns_lock);
}

void plx_home_ring_info(struct plx_lun *lun, struct plx_ringed_info *ret_info)
{
    pthread_mutex_lock(&lun->home->attach_lock);
    plx_attach_ring_let_go(lun->home->attach, lun->vdi);
    plx_attach_ring_info(lun->home->attach, lun->vdi, ret_info);
    pthread_mutex_unlock(&lun->home->attach_lock);
}

int plx_home_move(struct plx_lun *lun, struct plx_request *request)
{
    int result = 0;

    if (!request->move->dry_run) {
        pthread_mutex_lock(&lun->home->attach_lock);
        result = plx_attach_move_room(lun->home->attach, &request->fault);
        pthread_mutex_unlock(&lun->home->attach_lock);
    }
    return result ? result : plx_loop_run(lun->loop, lun->vdi, request);
}
