/* opened_clock.c - what a disk that this attach has locked knows of the clocks (witness.h), kept in
 * the registry (ATTACH-23). Invariants and crash story: attach.c, and witness.c.
 *
 *     thread                  calls                                 with the registry handle
 *     that of the attach      begin, look, resume, end              its own
 *     the loop                env_witness_changed, clocks_tick      none: it defers a job
 *     that of the hook defer  the job                               that of claims
 *
 * Without that hook all is one thread, with the attach's own handle: what was put off there
 * (kept.c) must not come behind what is newer.
 *
 * Locks: clocks_lock, then the loop's, then claims_lock. clocks_lock is held from a look to the end
 * of the commit that keeps what the look found, so what the newest look found is kept last. The
 * loop takes claims_lock only, so it never waits for the registry.
 */
#include <string.h>

#include "attach/attach_inside.h"
#include "registry/clock.h"

#define AGAIN_NS 1000000000ull

/* ---- The list of disks whose clocks are kept ---- */

int plx_attach_clock_begin(struct plx_attach *a, struct plx_opened_vdi *opened,
                           const struct plx_witness **ret_witness, struct plx_fault *fault)
{
    int error = plx_witness_load(a->registry, opened->lock.vdi, &opened->kept);

    if (error && a->options.brief)
        return plx_registry_fault(a->registry, error, fault);
    if (error) {
        opened->kept = (struct plx_witness){0};
        plx_witness_found(&opened->kept, 0, UINT64_MAX);
    }
    pthread_mutex_lock(&a->clocks_lock);
    pthread_mutex_lock(&a->claims_lock);
    opened->next_clock = a->clocks;
    a->clocks = opened;
    pthread_mutex_unlock(&a->claims_lock);
    pthread_mutex_unlock(&a->clocks_lock);
    *ret_witness = &opened->kept;
    return 0;
}

static void unlink_clock(struct plx_attach *a, struct plx_opened_vdi *opened)
{
    struct plx_opened_vdi **link = &a->clocks;

    while (*link && *link != opened)
        link = &(*link)->next_clock;
    if (*link)
        *link = opened->next_clock;
}

/* With clocks_lock. NULL: none waits. */
static struct plx_opened_vdi *next_untold(struct plx_attach *a)
{
    struct plx_opened_vdi *opened;

    pthread_mutex_lock(&a->claims_lock);
    opened = a->clocks;
    while (opened && !opened->untold)
        opened = opened->next_clock;
    pthread_mutex_unlock(&a->claims_lock);
    return opened;
}

/* ---- Keeping ---- */

/* With clocks_lock. What cannot be kept now waits for a later turn of the loop. A disk that the
 * registry does not have is being deleted. */
static int keep(struct plx_attach *a, struct plx_registry *registry, struct plx_opened_vdi *opened,
                const struct plx_witness *witness)
{
    int error = plx_witness_keep(registry, opened->lock.vdi, witness);

    pthread_mutex_lock(&a->claims_lock);
    if (!error) {
        opened->kept = *witness;
    } else if (error != PLX_ERR_NOT_FOUND && !opened->untold) {
        opened->news = *witness;
        opened->untold = true;
        a->clocks_due_ns = plx_clock_ns(CLOCK_MONOTONIC) + AGAIN_NS;
    }
    pthread_mutex_unlock(&a->claims_lock);
    return error;
}

/* With clocks_lock. */
static bool take_news(struct plx_attach *a, struct plx_opened_vdi *opened,
                      struct plx_witness *ret_news)
{
    bool untold;

    pthread_mutex_lock(&a->claims_lock);
    untold = opened->untold;
    *ret_news = opened->news;
    opened->untold = false;
    pthread_mutex_unlock(&a->claims_lock);
    return untold;
}

/* Keeps what waits, until nothing does or it fails. */
static void tell(struct plx_attach *a, struct plx_registry *registry)
{
    struct plx_opened_vdi *opened;
    int error = 0;

    pthread_mutex_lock(&a->clocks_lock);
    while (!error && (opened = next_untold(a))) {
        struct plx_witness news;

        take_news(a, opened, &news);
        error = keep(a, registry, opened, &news);
    }
    pthread_mutex_unlock(&a->clocks_lock);
}

static void told(struct plx_attach *a)
{
    pthread_mutex_lock(&a->claims_lock);
    a->telling = false;
    pthread_mutex_unlock(&a->claims_lock);
}

/* What came too late for it is left to the turn of the loop that follows (plx_attach_options). */
static void tell_deferred(void *argument)
{
    struct plx_attach *a = argument;

    tell(a, a->claims_registry);
    told(a);
}

/* On the loop. */
static void begin_telling(struct plx_attach *a)
{
    bool begins;

    pthread_mutex_lock(&a->claims_lock);
    begins = !a->telling;
    a->telling = true;
    pthread_mutex_unlock(&a->claims_lock);
    if (begins && !a->options.defer)
        tell(a, a->registry);
    if (begins &&
        (!a->options.defer || a->options.defer(a->options.context, tell_deferred, a) != 0))
        told(a);
}

void plx_attach_clocks_tick(struct plx_attach *a)
{
    bool due;

    pthread_mutex_lock(&a->claims_lock);
    due = a->clocks_due_ns && !a->telling && plx_clock_ns(CLOCK_MONOTONIC) >= a->clocks_due_ns;
    if (due)
        a->clocks_due_ns = 0;
    pthread_mutex_unlock(&a->claims_lock);
    if (due)
        begin_telling(a);
}

/* ATTACH-23. On the loop. */
void plx_attach_env_witness_changed(struct plx_env *env, const struct plx_uuid *vdi,
                                    const struct plx_witness *witness)
{
    struct plx_attach *a = plx_attach_of(env);
    struct plx_opened_vdi *opened;
    char id[PLX_UUID_TEXT];
    bool is_news = false;

    plx_uuid_text(vdi, id);
    pthread_mutex_lock(&a->claims_lock);
    opened = a->clocks;
    while (opened && strcmp(opened->lock.vdi, id) != 0)
        opened = opened->next_clock;
    if (opened)
        is_news = opened->untold || a->telling || plx_witness_differs(witness, &opened->kept) ||
                  (!a->options.brief && !opened->kept.boot_id);
    if (is_news) {
        opened->news = *witness;
        opened->untold = true;
        a->clocks_due_ns = 1; /* if a job is under way: when it has ended */
    }
    pthread_mutex_unlock(&a->claims_lock);
    if (is_news && !a->looks)
        begin_telling(a);
}

/* ---- Looks of the attach's own ---- */

/* With clocks_lock. What waited is older than this look. False: nothing waited. */
static bool look(struct plx_attach *a, struct plx_opened_vdi *opened, bool resume,
                 struct plx_vdi_clock *ret_clock, struct plx_vdi_info *ret_info)
{
    struct plx_witness older;
    bool untold;

    plx_attach_lock(a);
    a->looks = true;
    if (resume)
        plx_vdi_resume(opened->vdi, ret_clock);
    else
        plx_vdi_look_at_clock(opened->vdi, ret_clock);
    a->looks = false;
    plx_vdi_get_info(opened->vdi, ret_info);
    untold = take_news(a, opened, &older);
    plx_attach_unlock(a);
    return untold;
}

/* Only disks need it whose snapshots a time may let go, now or later. What says nothing of a doubt
 * waits for the next commit, if a command asks for it and the disk is not protected, or is closed.
 */
void plx_attach_clock_look(struct plx_attach *a, struct plx_opened_vdi *opened, bool closing,
                           struct plx_vdi_clock *ret_clock)
{
    const struct plx_witness *witness = &ret_clock->witness;
    struct plx_vdi_info info;
    bool protected, untold, doubt, news;

    pthread_mutex_lock(&a->clocks_lock);
    untold = look(a, opened, false, ret_clock, &info);
    protected = info.protection.mode != PLX_PROTECT_OFF || info.protection.tiers;
    doubt = plx_witness_differs(witness, &opened->kept);
    news = plx_witness_is_news(witness, &opened->kept) ||
           (closing && witness->seq != opened->kept.seq);
    if (news && (protected || untold || doubt || ret_clock->ends.taken_seq)) {
        plx_registry_put_off(a->registry,
                             !doubt && (closing || !protected) ? plx_attach_closings(a) : PLX_NOW);
        keep(a, a->registry, opened, witness);
        plx_registry_put_off(a->registry, PLX_NOW);
    }
    pthread_mutex_unlock(&a->clocks_lock);
}

int plx_attach_clock_resume(struct plx_attach *a, struct plx_opened_vdi *opened,
                            struct plx_vdi_clock *ret_clock)
{
    struct plx_vdi_info info;
    int error;

    pthread_mutex_lock(&a->clocks_lock);
    look(a, opened, true, ret_clock, &info);
    error = keep(a, a->registry, opened, &ret_clock->witness);
    pthread_mutex_unlock(&a->clocks_lock);
    return error;
}

void plx_attach_clock_end(struct plx_attach *a, struct plx_opened_vdi *opened)
{
    struct plx_witness news;

    pthread_mutex_lock(&a->clocks_lock);
    if (take_news(a, opened, &news)) /* of the last snapshot, which closing takes */
        keep(a, a->registry, opened, &news);
    pthread_mutex_lock(&a->claims_lock);
    unlink_clock(a, opened);
    pthread_mutex_unlock(&a->claims_lock);
    pthread_mutex_unlock(&a->clocks_lock);
}
