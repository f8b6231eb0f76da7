/* vouch_pass.c - passes over a disk that look for blocks without checksums, step by step. See
 * vouch.h; VOUCH-1 to VOUCH-5 are at the top of vouch.c, which has what a step does.
 *
 * Loop: the disk's; never blocks. Crash story: memory only.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/disk/vdi.h"

#define STEP_NS 100000000ull /* between two steps: at most 10 MiB/s are read */
#define STEPS_IN_PERIOD 16u  /* a period has time for at least this many steps */
#define STEP_WINDOWS 64u     /* windows without anything to read that one step looks at */
#define WORDS (PLX_VOUCH_LEAVES / 64)

static uint64_t monotonic(const struct plx_vdi *vdi)
{
    return vdi->store->env->monotonic_ns(vdi->store->env);
}

void plx_vouch_start(struct plx_vdi *vdi, uint64_t quiet_ns)
{
    const struct plx_keyframe *keyframe = &vdi->record.keyframe;
    struct plx_vouch *v = &vdi->vouch;

    if (!quiet_ns)
        return;
    v->leaves = calloc((size_t)4 * WORDS, sizeof *v->leaves);
    v->buffer = aligned_alloc(PLX_BLOCK_SIZE, PLX_WINDOW_BLOCKS * PLX_BLOCK_SIZE);
    if (!v->leaves || !v->buffer) {
        plx_vouch_done(v);
        return;
    }
    v->written = v->leaves;
    v->before = v->leaves + WORDS;
    v->left = v->leaves + (size_t)2 * WORDS;
    v->wanted = v->leaves + (size_t)3 * WORDS;
    v->quiet_ns = quiet_ns;
    v->period_ns = monotonic(vdi);
    if (keyframe->mapped == PLX_MAPPED_UNKNOWN || keyframe->vouched != keyframe->mapped ||
        vdi->map.active.count || vdi->map.is_frozen) {
        memset(v->left, 0xff, WORDS * sizeof *v->left);
        v->any_left = true;
    }
}

void plx_vouch_done(struct plx_vouch *v)
{
    free(v->leaves);
    free(v->buffer);
    v->leaves = NULL;
    v->buffer = NULL;
    v->quiet_ns = 0;
}

static bool may_step(const struct plx_vdi *vdi)
{
    const struct plx_vouch *v = &vdi->vouch;

    return v->quiet_ns && (v->passing || v->any_left) && !v->under_way && !vdi->oldest &&
           !vdi->waiting && !vdi->closing && !vdi->barrier && !vdi->log.sticky &&
           !plx_front_is_away(vdi);
}

static uint64_t step_ns(const struct plx_vouch *v)
{
    return plx_min_u64(STEP_NS, v->quiet_ns / STEPS_IN_PERIOD + 1);
}

uint64_t plx_vouch_due_ns(const struct plx_vdi *vdi)
{
    const struct plx_vouch *v = &vdi->vouch;

    if (!may_step(vdi)) /* VOUCH-5; or what allows the next step makes the loop turn itself */
        return UINT64_MAX;
    return v->passing ? v->due_ns : v->period_ns + v->quiet_ns;
}

/* Begins the next period of quiet_ns, and a pass if none is under way. What was written in this
 * period or the one before is not quiet. */
static void next_period(struct plx_vouch *v, uint64_t now)
{
    uint64_t *written = v->before;

    v->before = v->written;
    v->written = written;
    memset(written, 0, WORDS * sizeof *written);
    v->period_ns = now;
    if (v->passing)
        return;
    written = v->wanted;
    v->wanted = v->left;
    v->left = written;
    memset(written, 0, WORDS * sizeof *written);
    v->any_left = false;
    v->passing = true;
    v->at = v->found = 0;
}

static uint64_t disk_end(const struct plx_vdi *vdi)
{
    return plx_div_up(vdi->size_bytes, PLX_BLOCK_SIZE) << PLX_BLOCK_SHIFT;
}

static void step_done(struct plx_request *request)
{
    struct plx_vdi *vdi = request->owner;
    struct plx_vouch *v = &vdi->vouch;

    v->under_way = false;
    v->tickets = vdi->tickets;
    v->due_ns = monotonic(vdi) + step_ns(v);
    if (v->at < disk_end(vdi))
        return;
    v->passing = false;
    v->completed_ns = plx_env_now_ns(vdi->store->env);
    if (v->found)
        plx_keyframe_request(vdi, NULL);
}

void plx_vouch_pump(struct plx_vdi *vdi)
{
    struct plx_vouch *v = &vdi->vouch;
    uint64_t now;

    if (!may_step(vdi))
        return;
    now = monotonic(vdi);
    if (now - v->period_ns >= v->quiet_ns)
        next_period(v, now);
    if (!v->passing || now < v->due_ns)
        return;
    if (v->tickets != vdi->tickets) { /* VOUCH-4 */
        v->tickets = vdi->tickets;
        v->due_ns = now + step_ns(v);
        return;
    }
    v->windows = STEP_WINDOWS;
    v->iov = (struct iovec){v->buffer, PLX_WINDOW_BLOCKS * PLX_BLOCK_SIZE};
    v->request = (struct plx_request){.op = PLX_VOUCH,
                                      .offset = v->at,
                                      .length = disk_end(vdi) - v->at,
                                      .iov = &v->iov,
                                      .iovcnt = 1,
                                      .done = step_done,
                                      .owner = vdi};
    v->under_way = true;
    plx_vdi_submit(vdi, &v->request);
}
