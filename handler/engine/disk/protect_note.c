/* protect_note.c - continuous protection, as the data path sees it: changes and snapshots noted,
 * counted, told. See protect.h; PROTECT-1 to PROTECT-8 are at the top of protect.c.
 *
 * Loop: the disk's; never blocks. Crash story: memory only.
 */
#include "engine/disk/protect.h"
#include "engine/disk/vdi.h"

#define SECOND_NS 1000000000ull

/* PROTECT-8 */
void plx_protect_apply_mode(struct plx_vdi *vdi)
{
    enum plx_protection_mode mode = vdi->protect.policy.mode;
    bool marked = plx_ring_is_marked(&vdi->mark) || plx_ring_is_marked(&vdi->record.mark);

    vdi->log.snapshots = plx_protect_copies(vdi) && !marked ? mode : PLX_PROTECT_OFF;
}

bool plx_protect_copies(const struct plx_vdi *vdi)
{
    return vdi->protect.policy.mode >= PLX_PROTECT_BATCH;
}

static void count_taken(struct plx_vdi *vdi)
{
    struct plx_protect *p = &vdi->protect;
    uint64_t now = vdi->store->env->monotonic_ns(vdi->store->env);

    vdi->counters.snapshots_automatic++;
    vdi->store->counters.snapshots_automatic++;
    p->meter_count++;
    if (now - p->meter_ns < SECOND_NS)
        return;
    p->rate = (uint64_t)((unsigned __int128)p->meter_count * SECOND_NS / (now - p->meter_ns));
    p->meter_ns = now;
    p->meter_count = 0;
}

uint64_t plx_protect_rate(const struct plx_vdi *vdi)
{
    const struct plx_protect *p = &vdi->protect;

    return vdi->store->env->monotonic_ns(vdi->store->env) - p->meter_ns > 2 * SECOND_NS ? 0
                                                                                        : p->rate;
}

void plx_protect_tell(struct plx_vdi *vdi, enum plx_automatic what, uint64_t seq, uint64_t time_ns)
{
    struct plx_env *env = vdi->store->env;

    if (what == PLX_AUTOMATIC_TAKEN)
        count_taken(vdi);
    if (env->automatic)
        env->automatic(env, vdi->record.slot, what, seq, time_ns);
}

void plx_protect_note_change(struct plx_vdi *vdi)
{
    struct plx_protect *p = &vdi->protect;

    if (!p->changed && p->policy.mode == PLX_PROTECT_INTERVAL)
        p->changed_ns = vdi->store->env->monotonic_ns(vdi->store->env);
    vdi->changed = p->changed = true;
}

void plx_protect_ordered(struct plx_vdi *vdi, const struct plx_request *request)
{
    struct plx_protect *p = &vdi->protect;

    p->changed = false;
    if (request != &p->request)
        return;
    p->ordered = true;
    plx_protect_tell(vdi, PLX_AUTOMATIC_ORDERED, 0, 0);
}
