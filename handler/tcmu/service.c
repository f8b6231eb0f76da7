/* service.c - see service.h.
 *
 * SERVICE-1  The service holds luns_lock and attach_lock for one slice at a time, and pauses
 *     between two slices. So closing a disk, a label or an administrator's command waits for one
 *     slice at most.
 * SERVICE-2  The service looks a disk up again for each slice, by its UUID. The disk may have been
 *     closed since, and another disk of the same name may have been opened.
 * SERVICE-3  Only disks with protection and with tiers lose snapshots here. While protection is
 *     off, all snapshots stay.
 * SERVICE-4  If space is short, the disk with the oldest snapshot loses its oldest snapshots, step
 *     by step, until there is room or nothing more can go. Operators are told once each time it
 *     comes to that. The oldest snapshots of a disk are those with the lowest numbers, so no clock
 *     is asked. Which disk has the oldest one is asked only of disks whose time is beyond doubt:
 *     the others take turns with them (turns.c), also from one look to the next.
 * SERVICE-5  No write waits for ever. Each wake leads to a look at space that ends with
 *     plx_store_room_made(), or is put off (SERVICE-9) until one that does. So does the end of the
 *     thread.
 * SERVICE-6  A policy is applied only if a look at the clocks finds them right (witness.c), and
 *     with the time of that look. While a clock is in doubt, snapshots go only for want of space.
 * SERVICE-7  While there is room, policies are applied thriftily (RETENTION-6): some snapshots stay
 *     longer than they must, because letting them go would cost too much. When space is low, all
 *     that policies allow goes at once, before any window is shortened: for each disk and tier up
 *     to the last key frame that is itself old enough. A key frame is never forced for that,
 *     because the log that stays would then be rewritten with every look.
 * SERVICE-8  A disk that is open without a LUN is closed when, for LOOK_AT_SPACE_NS, no LUN has
 *     come for such a disk and none has left one.
 * SERVICE-9  No snapshot goes before its time while a collection may make the room: one that is due
 *     begins when space is low, and writes without room wait for its end. They do so for
 *     COLLECT_WAIT_NS, counted from when space was found low, because initiators give up at some
 *     time. Then history gives way as if no collection were due.
 *
 * Lock order: that of home.c. The service's own lock is taken alone, or within the loop's mutex.
 * Threads: the service's own, except start, stop and wake.
 * Crash story: the service's memory is only a hint. After a restart the service goes on from the
 *   progress that the registry has.
 */
#include "tcmu/service.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/attach.h"
#include "registry/clock.h"
#include "registry/policy.h"
#include "registry/retention.h"
#include "registry/turns.h"
#include "tcmu/collector.h"
#include "tcmu/home.h"
#include "tcmu/limits.h"
#include "tcmu/loop.h"
#include "tcmu/runner.h"
#include "tcmu/say.h"

#define SECOND_NS 1000000000ull
#define LOOK_AT_SPACE_NS (5 * SECOND_NS)
#define LOOK_AGAIN_NS SECOND_NS /* while writes wait for a collection */
#define KEEP_PROGRESS_NS (600 * SECOND_NS)
#define PAUSE_NS 5000000ull
#define COLLECT_WAIT_NS (10 * SECOND_NS) /* a third of the usual patience of an initiator */

/* A disk that was open for writing when the service looked last. */
struct disk {
    struct disk *next;
    struct plx_uuid id;
    uint32_t slot;
    char name[PLX_NAME_MAX + 1];
    struct plx_protection policy;
    bool seen;
    bool failing;    /* letting go failed, and operators were told */
    uint64_t due_ns; /* when its policy is applied next */
    /* The policy's progress; whether it was read from the registry; when it was written there. */
    struct plx_retention retention;
    bool loaded;
    uint64_t kept_ns;
    /* Space. In this look: nothing more of this disk can go. Operators were told that snapshots go
     * before their time. */
    bool stuck, full_told;
    bool may;              /* give way in the next step, */
    struct plx_turn turn;  /* and when */
    uint64_t shortened_ns; /* the oldest snapshot left, if this look shortened history; 0: no */
};

struct plx_service {
    struct plx_store_home *home;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t cond;
    bool stop, hurry; /* hurry: a write waits for room */
    /* The thread's own. */
    struct disk *disks;
    struct disk *at; /* the disk that is worked on */
    uint64_t space_due_ns, limits_due_ns;
    /* SERVICE-9: since when history waits for a collection, 0: it does not; whether writes do. */
    uint64_t put_off_ns;
    bool writes_wait;
    uint64_t steps;           /* so many times a disk has given way (turns.h) */
    uint64_t unasked_changes; /* plx_home_unasked()'s counter at the last look (SERVICE-8) */
};

static bool is_stopping(struct plx_service *s)
{
    bool stop;

    pthread_mutex_lock(&s->lock);
    stop = s->stop;
    pthread_mutex_unlock(&s->lock);
    return stop;
}

static bool is_hurried(struct plx_service *s)
{
    bool hurry;

    pthread_mutex_lock(&s->lock);
    hurry = s->hurry;
    pthread_mutex_unlock(&s->lock);
    return hurry;
}

/* ---- The disks ---- */

static struct disk *find_disk(struct plx_service *s, const struct plx_uuid *id)
{
    struct disk *disk = s->disks;

    while (disk && !plx_uuid_equal(&disk->id, id))
        disk = disk->next;
    return disk;
}

static void see_disk(struct plx_service *s, const struct plx_vdi_info *info)
{
    struct disk *disk = find_disk(s, &info->id);

    if (!disk) {
        disk = calloc(1, sizeof *disk);
        if (!disk)
            return; /* the next look tries again */
        disk->id = info->id;
        disk->turn.last = s->steps;
        disk->next = s->disks;
        s->disks = disk;
    }
    memcpy(disk->name, info->name, sizeof disk->name);
    disk->slot = info->slot;
    disk->policy = info->protection;
    disk->seen = true;
}

static void forget_unseen(struct plx_service *s)
{
    for (struct disk **link = &s->disks; *link;) {
        struct disk *disk = *link;

        if (disk->seen) {
            link = &disk->next;
            continue;
        }
        *link = disk->next;
        free(disk);
    }
}

/* SERVICE-3 */
static bool is_wanted(const struct plx_vdi_info *info)
{
    return info->protection.mode != PLX_PROTECT_OFF && info->protection.tiers > 0;
}

static void look_at_disks(struct plx_service *s)
{
    struct plx_store_home *home = s->home;
    struct plx_vdi_info info;

    for (struct disk *disk = s->disks; disk; disk = disk->next)
        disk->seen = false;
    pthread_mutex_lock(&home->luns_lock);
    for (struct plx_lun *lun = home->luns; lun; lun = lun->next) {
        if (lun->read_only)
            continue;
        plx_loop_lock(home->loop);
        plx_vdi_get_info(lun->vdi, &info);
        plx_loop_unlock(home->loop);
        if (is_wanted(&info))
            see_disk(s, &info);
    }
    pthread_mutex_unlock(&home->luns_lock);
    forget_unseen(s);
}

/* ---- A slice ---- */

/* SERVICE-2: the LUN of s->at; NULL: it is gone. With luns_lock held. */
static struct plx_lun *find_lun(struct plx_service *s)
{
    struct plx_vdi_info info;

    for (struct plx_lun *lun = s->home->luns; lun; lun = lun->next) {
        if (lun->read_only || strcmp(lun->config.vdi, s->at->name) != 0)
            continue;
        plx_loop_lock(s->home->loop);
        plx_vdi_get_info(lun->vdi, &info);
        plx_loop_unlock(s->home->loop);
        return plx_uuid_equal(&info.id, &s->at->id) ? lun : NULL;
    }
    return NULL;
}

static int thin_slice(void *context, const struct plx_thin *thin, struct plx_thinned *ret_thinned,
                      struct plx_fault *fault)
{
    struct plx_service *s = context;
    struct plx_lun *lun;
    int result;

    pthread_mutex_lock(&s->home->luns_lock);
    lun = find_lun(s);
    result = lun ? plx_home_thin(lun, thin, ret_thinned, fault) : PLX_ERR_NOT_FOUND;
    pthread_mutex_unlock(&s->home->luns_lock);
    return result;
}

/* SERVICE-1 */
static int pause_between(void *context, const struct plx_thinned *so_far, struct plx_fault *fault)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};

    nanosleep(&pause, NULL);
    return is_stopping(context) ? PLX_ERR_BUSY : 0;
}

/* Interrupts a policy for a write that waits for room. */
static int pause_or_hurry(void *context, const struct plx_thinned *so_far, struct plx_fault *fault)
{
    return is_hurried(context) ? PLX_ERR_BUSY : pause_between(context, so_far, fault);
}

/* Tells operators of a failure, once. The next look tries again. NOT_FOUND (the disk was closed)
 * and BUSY are no failures. */
static void report(struct plx_service *s, int error, const struct plx_fault *fault)
{
    bool failed = error && error != PLX_ERR_NOT_FOUND && error != PLX_ERR_BUSY &&
                  error != PLX_ERR_CLOCK; /* the disk itself tells operators (SERVICE-6) */

    if (failed && !s->at->failing)
        plx_say(error, NULL, "%s/%s: snapshots could not be let go: %s", s->home->name, s->at->name,
                fault->text[0] ? fault->text : plx_error_text(error));
    s->at->failing = failed;
}

/* ---- The policy ---- */

static int with_registry(struct plx_service *s,
                         int (*call)(struct plx_registry *registry, const char *vdi,
                                     void *argument),
                         void *argument)
{
    char vdi[PLX_UUID_TEXT];
    int result;

    plx_uuid_text(&s->at->id, vdi);
    pthread_mutex_lock(&s->home->attach_lock);
    result = call(plx_attach_registry(s->home->attach), vdi, argument);
    pthread_mutex_unlock(&s->home->attach_lock);
    return result;
}

static int load_progress(struct plx_registry *registry, const char *vdi, void *argument)
{
    struct disk *disk = argument;

    return plx_retention_load(registry, vdi, &disk->policy, &disk->retention);
}

static int keep_progress(struct plx_registry *registry, const char *vdi, void *argument)
{
    return plx_retention_keep(registry, vdi, &((struct disk *)argument)->retention);
}

/* Looks at the clocks for s->at; false: the disk was closed. */
static bool look_at_clock(struct plx_service *s, struct plx_vdi_clock *ret_clock)
{
    struct plx_lun *lun;

    pthread_mutex_lock(&s->home->luns_lock);
    lun = find_lun(s);
    if (lun)
        plx_home_look_at_clock(lun, ret_clock);
    pthread_mutex_unlock(&s->home->luns_lock);
    return lun != NULL;
}

static void apply_policy(struct plx_service *s, struct disk *disk, uint64_t now_ns)
{
    const struct plx_retention_work work = {
        .context = s, .thin = thin_slice, .between = pause_or_hurry};
    struct plx_fault fault = {0};
    struct plx_vdi_clock clock;
    struct plx_thinned sum;

    s->at = disk;
    if (!disk->loaded) {
        disk->loaded = with_registry(s, load_progress, disk) == 0;
        disk->kept_ns = now_ns;
    }
    disk->retention.thrifty = true; /* SERVICE-7 */
    plx_retention_set(&disk->retention, &disk->policy);
    if (look_at_clock(s, &clock) &&
        plx_witness_lets_go(&clock.witness, &clock.now, &clock.ends)) /* SERVICE-6 */
        report(s, plx_retention_apply(&disk->retention, clock.now.wall_ns, &work, &sum, &fault),
               &fault);
    if (now_ns - disk->kept_ns >= KEEP_PROGRESS_NS && with_registry(s, keep_progress, disk) == 0)
        disk->kept_ns = now_ns;
    disk->due_ns = now_ns + plx_retention_interval_ns(&disk->policy);
}

static void apply_policies(struct plx_service *s, uint64_t now_ns)
{
    for (struct disk *disk = s->disks; disk && !is_stopping(s) && !is_hurried(s); disk = disk->next)
        if (disk->due_ns <= now_ns)
            apply_policy(s, disk, now_ns);
}

/* ---- Space ---- */

/* Whether so many blocks are free for data. If that cannot be found out: yes. */
static bool has_room(struct plx_service *s, uint64_t blocks)
{
    uint64_t room;
    int error;

    pthread_mutex_lock(&s->home->attach_lock);
    error = plx_attach_data_room(s->home->attach, blocks, &room, NULL);
    pthread_mutex_unlock(&s->home->attach_lock);
    return error || room >= blocks;
}

/* The oldest snapshot of s->at; seq 0: there is none, or it cannot be read. */
static struct plx_snapshot_info oldest_of(struct plx_service *s)
{
    struct plx_snapshot_info oldest = {0};

    plx_loop_lock(s->home->loop);
    plx_snapshot_first(plx_attach_store(s->home->attach), s->at->slot, 1, &oldest, NULL);
    plx_loop_unlock(s->home->loop);
    return oldest;
}

static int may_shorten(struct plx_registry *registry, const char *vdi, void *argument)
{
    char text[PLX_POLICY_VALUE_MAX + 1];
    int error = plx_registry_policy_get(registry, vdi, PLX_POLICY_ON_FULL, text);

    *(bool *)argument = error == PLX_ERR_NOT_FOUND || (!error && strcmp(text, "keep") != 0);
    return 0;
}

/* Whether s->at may give way, and when its turn is. */
static bool look_at_turn(struct plx_service *s)
{
    struct plx_vdi_clock clock;
    struct plx_snapshot_info oldest;
    bool may = false;

    if (s->at->stuck)
        return false;
    with_registry(s, may_shorten, &may);
    if (!may || !(oldest = oldest_of(s)).seq || !look_at_clock(s, &clock))
        return false;
    s->at->turn.oldest_ns = oldest.time_ns;
    s->at->turn.dated =
        plx_witness_is_dated(&clock.witness, &clock.now, oldest.seq, oldest.time_ns);
    return true;
}

/* SERVICE-4: the disk that gives way; NULL: none may. */
static struct disk *next_disk(struct plx_service *s)
{
    struct disk *found = NULL;
    size_t count = 0;

    for (s->at = s->disks; s->at; s->at = s->at->next) {
        s->at->may = look_at_turn(s);
        count += s->at->may;
    }
    for (struct disk *disk = s->disks; disk; disk = disk->next)
        if (disk->may && (!found || plx_turns_before(&disk->turn, &found->turn, s->steps, count)))
            found = disk;
    return found;
}

static int note_shortened(struct plx_registry *registry, const char *vdi, void *argument)
{
    return plx_retention_tell_shortened(registry, vdi, *(const uint64_t *)argument);
}

/* Tells of shortened history: the registry, for `parallax cdp status`, and the log once. */
static void tell_shortened(struct plx_service *s, struct disk *disk)
{
    uint64_t oldest_ns = disk->shortened_ns;

    if (!oldest_ns)
        return;
    s->at = disk;
    disk->shortened_ns = 0;
    with_registry(s, note_shortened, &oldest_ns);
    if (disk->full_told)
        return;
    disk->full_told = true;
    plx_say(warn, NULL,
            "%s/%s: the store is nearly full, so its oldest snapshots are let go before their "
            "time; add a volume, delete what is not needed, or ask for less with 'parallax cdp "
            "on --keep'",
            s->home->name, disk->name);
}

/* Lets writes that wait for room try again (made), or fail. */
static void tell_room(struct plx_service *s, bool made)
{
    plx_loop_lock(s->home->loop);
    plx_store_room_made(plx_attach_store(s->home->attach), made);
    plx_loop_unlock(s->home->loop);
}

/* SERVICE-4: shortens the history of s->at by one step. false: nothing went, and this look leaves
 * the disk alone from here on. */
static bool shorten(struct plx_service *s)
{
    const struct plx_retention_work work = {
        .context = s, .thin = thin_slice, .between = pause_between};
    struct plx_vdi_clock clock = {.ends = {.newest_seq = 0}};
    struct plx_fault fault = {0};
    struct plx_thinned sum;

    look_at_clock(s, &clock);
    report(s, plx_retention_shorten(&work, oldest_of(s).seq, clock.ends.newest_seq, &sum, &fault),
           &fault);
    s->at->stuck = !sum.snapshots;
    if (!sum.snapshots)
        return false;
    s->at->turn.last = ++s->steps;
    s->at->shortened_ns = oldest_of(s).time_ns;
    tell_room(s, true);
    return true;
}

/* SERVICE-7, SERVICE-6: lets go what the policy of s->at allows and thrift has left. */
static bool hasten(struct plx_service *s)
{
    const struct plx_retention_work work = {
        .context = s, .thin = thin_slice, .between = pause_between};
    struct plx_retention all = {0};
    struct plx_fault fault = {0};
    struct plx_vdi_clock clock;
    struct plx_thinned sum;

    if (!look_at_clock(s, &clock) || !plx_witness_lets_go(&clock.witness, &clock.now, &clock.ends))
        return false;
    plx_retention_set(&all, &s->at->policy);
    for (unsigned i = 0; i < PLX_TIERS_MAX; i++)
        all.level[i].upto = s->at->retention.level[i].upto;
    report(s, plx_retention_apply(&all, clock.now.wall_ns, &work, &sum, &fault), &fault);
    if (!sum.snapshots)
        return false;
    tell_room(s, true);
    return true;
}

/* SERVICE-9. hurry: writes wait for room. */
static bool is_put_off(struct plx_service *s, bool hurry)
{
    uint64_t now_ns = plx_clock_ns(CLOCK_MONOTONIC);

    if (!plx_collector_goes_first(s->home->collector)) {
        s->put_off_ns = 0;
        return false;
    }
    if (!s->put_off_ns)
        s->put_off_ns = now_ns;
    s->writes_wait = hurry && now_ns - s->put_off_ns < COLLECT_WAIT_NS;
    return s->writes_wait || !hurry;
}

static void shorten_windows(struct plx_service *s, uint64_t enough, bool hurry)
{
    struct disk *disk;
    bool made = false;

    for (s->at = s->disks; s->at && !is_stopping(s) && !has_room(s, enough); s->at = s->at->next)
        made = hasten(s) || made;
    if ((made && has_room(s, enough)) || is_put_off(s, hurry))
        return;
    for (disk = s->disks; disk; disk = disk->next)
        disk->stuck = false;
    do {
        disk = next_disk(s);
        s->at = disk;
        made = (disk && shorten(s)) || made;
    } while (disk && !is_stopping(s) && !has_room(s, enough));
    tell_room(s, made); /* SERVICE-5; a write that still finds no room wakes the service again */
    for (disk = s->disks; disk; disk = disk->next)
        tell_shortened(s, disk);
}

/* The look at space. hurry: a write has found no room, whatever the numbers say. */
static void make_room(struct plx_service *s, bool hurry)
{
    uint64_t low = plx_attach_low_blocks(s->home->attach);
    bool is_low = !has_room(s, low), waited = s->writes_wait;

    if (waited && !is_low)
        tell_room(s, true); /* by the collection */
    hurry = hurry || (waited && is_low);
    s->writes_wait = false;
    if (hurry || is_low)
        shorten_windows(s, 2 * low, hurry);
    else if (has_room(s, 2 * low))
        for (struct disk *disk = s->disks; disk; disk = disk->next)
            disk->full_told = false;
    if (!is_low && !hurry && !waited) /* a write that was told may find no room all the same */
        s->put_off_ns = 0;
}

/* SERVICE-8 */
static void let_go_unasked(struct plx_service *s)
{
    uint64_t changes;

    if (plx_home_unasked(s->home, &changes) && changes == s->unasked_changes)
        plx_home_let_go(s->home, NULL);
    s->unasked_changes = changes;
}

/* ---- The thread ---- */

static uint64_t next_look_ns(const struct plx_service *s)
{
    uint64_t due_ns = plx_min_u64(s->space_due_ns, s->limits_due_ns);

    for (const struct disk *disk = s->disks; disk; disk = disk->next)
        due_ns = plx_min_u64(due_ns, disk->due_ns);
    return due_ns;
}

/* Waits until a job is due or a write wants room; false: the thread has to end. */
static bool wait_for_work(struct plx_service *s, uint64_t due_ns, bool *ret_hurry)
{
    const struct timespec due = {.tv_sec = (time_t)(due_ns / SECOND_NS),
                                 .tv_nsec = (long)(due_ns % SECOND_NS)};
    int timeout = 0;
    bool stop;

    pthread_mutex_lock(&s->lock);
    while (!s->stop && !s->hurry && timeout == 0)
        timeout = pthread_cond_timedwait(&s->cond, &s->lock, &due);
    *ret_hurry = s->hurry;
    s->hurry = false;
    stop = s->stop;
    pthread_mutex_unlock(&s->lock);
    return !stop;
}

static void *serve(void *argument)
{
    struct plx_service *s = argument;
    bool hurry;

    pthread_setname_np(pthread_self(), "plx-retention");
    while (wait_for_work(s, next_look_ns(s), &hurry)) {
        uint64_t now_ns = plx_clock_ns(CLOCK_MONOTONIC);

        if (s->limits_due_ns <= now_ns) {
            plx_limits_look(s->home);
            let_go_unasked(s);
            plx_home_let_rings_go(s->home); /* after a --ring off that nobody waited for */
            s->limits_due_ns = now_ns + LOOK_AT_SPACE_NS;
        }
        look_at_disks(s);
        if (hurry || s->space_due_ns <= now_ns) {
            make_room(s, hurry);
            s->space_due_ns = now_ns + (s->writes_wait ? LOOK_AGAIN_NS : LOOK_AT_SPACE_NS);
        }
        apply_policies(s, now_ns);
    }
    tell_room(s, false); /* SERVICE-5 */
    return NULL;
}

int plx_retention_start(struct plx_store_home *home, struct plx_service **ret_service,
                        struct plx_fault *fault)
{
    struct plx_service *s = calloc(1, sizeof *s);
    pthread_condattr_t attributes;
    int error;

    if (!s)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    s->home = home;
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&s->cond, &attributes);
    pthread_condattr_destroy(&attributes);
    error = pthread_create(&s->thread, NULL, serve, s);
    if (error) {
        pthread_cond_destroy(&s->cond);
        pthread_mutex_destroy(&s->lock);
        free(s);
        return plx_fault_set(fault, PLX_ERR_SYSTEM, "cannot start the retention service: %s",
                             strerror(error));
    }
    *ret_service = s;
    return 0;
}

void plx_retention_stop(struct plx_service *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_signal(&s->cond);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    for (struct disk *disk = s->disks; disk; disk = disk->next)
        disk->seen = false;
    forget_unseen(s);
    pthread_cond_destroy(&s->cond);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

bool plx_retention_wake(struct plx_store_home *home)
{
    struct plx_service *s = home->service;

    if (!s)
        return false;
    pthread_mutex_lock(&s->lock);
    s->hurry = true;
    pthread_cond_signal(&s->cond);
    pthread_mutex_unlock(&s->lock);
    return true;
}
