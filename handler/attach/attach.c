/* attach.c - see attach.h.
 *
 * A1  Nothing is allocated from a dead instance's extents before every VDI that it held has had
 *     the blocks of its log marked.
 * A2  A VDI's registry lock is held from before its record names this instance until after the
 *     record names nobody. When closing fails the lock stays, and the next attach recovers.
 * A3  Order of creating: registry row (locked), record, unlock. Of deleting: record, row. So a
 *     crash in between leaves a locked row, which recovery finishes.
 * A4  Size, labels and protection: the store first, then the registry. What the registry missed it
 *     is told by recovery, when the disk is closed, or before snapshots are let go; until that has
 *     worked the lock stays (A2), and no snapshot goes that only the store knows a label of. (Of an
 *     owner that died, the labels at the last SETTLE_SNAPSHOTS: those before were refused.)
 * A5  An instant is held from before it is opened until after it was closed, the one that a clone
 *     starts from until the clone's record is durable (holds.c). Who reads only has no instance
 *     until there is something to hold.
 * A6  A disk is not deleted while an instant of it is held, for then nothing of it is kept.
 * A7  The store grows before the registry does (volumes.c). What the registry knows, the store
 *     that is open here is told before it gets such an extent, before a disk is opened that may
 *     have some, and when whoever made it larger says so.
 * A8  Nothing is written, to registry or store, without a tenancy (tenancy.h): who opens for
 *     writing begins one first, who reads only before there is something to hold, or a doubt to
 *     note. A tenancy that was lost ends all writing.
 * A9  A record is looked at before it is believed: by its id, and by what was made durable last
 *     (doors.h), which the registry is told when the lock is given up. Another live disk's in its
 *     place is noted as a doubt, whoever meets it; but who has no lock looks at the row again
 *     first, for its disk may have been deleted meanwhile, and the slot been given to that one.
 * A10 An extent whose header is not to be believed (extent.c, E5) is given up at once as
 *     sealed, so that nobody allocates in it, and another one is claimed for the same request. A
 *     dead owner's extent is looked at likewise when it is adopted; there more states than were
 *     told are his, fewer are not. What shows that the registry lost a write is told to it at once,
 *     for a crash would take it along, and nothing more is opened or claimed by it until it is made
 *     anew (plx_registry_doubt).
 * A11 One process of a machine recovers at a time, under the lock on PLX_BYTE_RECOVERY, and lists
 *     the dead once it has that: two would share one's extents between them, and neither would mark
 *     all that its logs name there (A1). Its own death gives the lock up.
 * A12 Who waits for another has changed nothing yet, or nothing but what is only found again. It
 *     waits for those only who need nothing that it holds.
 * A13 A commit of the registry costs four flushes. So registration waits for the first change of
 *     this instance, and a lock that is given up for the next one: the last of a command, or that
 *     which ends a recovery (kept.c). A handler's locks are free at once, for others wait for them,
 *     but those of disks that are closed together are free together.
 * A14 A handler that begins keeps the disks open that a dead one of its kind had open, for they are
 *     asked for next: that each is closed, given up, locked and opened again would take longer than
 *     all the rest. They are held like any other, until they are asked for or let go. Not when
 *     several have died: whose disks would be asked for here?
 *     Disks that their LUNs have left stay open likewise: whoever closes one LUN may be about to
 *     close them all, and all together cost hardly more than one.
 * A15 A superblock that is older than the registry (A7) is one that the device lost a write of. The
 *     registry's word counts then (volume.c, U5): all can be read, and nobody writes before
 *     the operator has had it written again, by "store grow".
 * A16 Who only reads, and cannot write to the volume, enters nothing there, no hold either. What
 *     keeps an instant for it is a lock that who lets go looks for (holds.c, K7), or, where its
 *     locks are not seen, that nobody has the store open when it begins: whoever opens it later,
 *     through another inode, knows nothing of the reader. Else it reads no instants. Who can write
 *     enters holds, as ever (A5).
 * Threads: see attach.h; the claim of an extent runs on the hook's thread with a registry handle
 *   of its own, and its answer is taken in by the loop's next tick.
 */
#include "attach/attach.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "attach/attach_inside.h"
#include "attach/doors.h"
#include "attach/founding.h"
#include "attach/known.h"
#include "attach/volumes.h"
#include "registry/clock.h"
#include "registry/clocks.h"
#include "registry/collections.h"
#include "registry/embedded.h"
#include "registry/holds.h"
#include "registry/instance.h"
#include "registry/labels.h"
#include "registry/policy.h"
#include "registry/spans.h"
#include "registry/tenancy.h"

/* How far back a label may lie that the registry of a dead owner missed: some 10 MB of log to read.
 * One that lies further back was never acknowledged. */
#define SETTLE_SNAPSHOTS 20000u
#define RESERVE_MAX 8u /* unused extents that data leaves to metadata */
#define MOVE_SHARE 16u /* of the store: blocks are moved only while that much is free */

struct held_extent {
    struct plx_registry_extent row;
    struct held_extent *next;
};

struct held_vdi {
    struct plx_vdi *vdi;
    uint64_t behind;               /* A4: since this snapshot; 0: the registry has missed nothing */
    struct plx_registry_lock lock; /* instance 0: a snapshot */
    uint64_t hold;                 /* A5; 0: none */
    struct plx_witness kept;       /* of the clocks: as the registry has it */
    struct held_vdi *next;
};

/* One claim at a time per extent type; under UNUSED, of an extent by its number. */
struct claim {
    struct plx_attach *attach;
    enum plx_extent_type type;
    uint64_t number;
    bool busy; /* deferred, and not through */
    bool answered;
    int error;
    struct plx_registry_extent row;
    bool fresh;
    bool stranded; /* the row is ours and the store could not be told: the next claim tries again */
    struct plx_device *devices[PLX_VOLUMES_MAX]; /* A7: the store takes them over first */
    unsigned device_count;
};

struct plx_attach {
    struct plx_env env;
    struct plx_attach_options options;
    struct plx_paths paths;
    struct plx_known known;
    struct plx_tenancy *tenancy; /* NULL: nothing was written yet */
    struct plx_registry *registry, *claims_registry;
    struct plx_registry_store row;
    struct plx_instance instance;
    bool registered;
    bool unwritable; /* A16 */
    struct plx_store *store;
    pthread_mutex_t claims_lock; /* guards what follows, but for vdis */
    uint64_t extents_known;      /* A7: others are not given to the store */
    uint64_t keep_unused;
    struct claim claims[PLX_EXTENT_META + 1];
    struct held_extent *extents;
    struct held_extent *refused; /* held no more, and not yet given up: they are sealed then */
    char doubt[256];             /* what one of them showed; empty: nothing, or it is told */
    unsigned sealing;            /* of these, deferred and not through */
    struct held_vdi *vdis;
    bool keeps;               /* A14: just now */
    struct held_vdi *unasked; /* A14 */
    uint64_t unasked_changes; /* of that list */
    bool together;            /* A13: disks are being closed */
};

static void lock(struct plx_attach *a)
{
    if (a->options.lock)
        a->options.lock(a->options.context);
}

static void unlock(struct plx_attach *a)
{
    if (a->options.unlock)
        a->options.unlock(a->options.context);
}

/* ---- Waiting for others (A12) ---- */

bool plx_attach_waits(struct plx_attach *a, uint64_t since_ns, const struct plx_fault *why)
{
    return plx_patience_waits(a->options.patience, since_ns, why);
}

bool plx_attach_ends_soon(struct plx_attach *a, uint64_t instance)
{
    struct plx_registry_instance row;
    int error = plx_registry_instance_get(a->registry, instance, &row);

    return error == PLX_ERR_NOT_FOUND ||
           (!error && instance != a->instance.row.id && plx_instance_is_command(&a->paths, &row));
}

/* Another instance than this one, if there is any. */
static int find_other(struct plx_attach *a, bool *ret_found,
                      struct plx_registry_instance *ret_other, struct plx_fault *fault)
{
    struct plx_registry_instance *list;
    size_t count;
    int error = plx_registry_instance_list(a->registry, a->row.id, &list, &count);

    if (error)
        return plx_registry_fault(a->registry, error, fault);
    *ret_found = false;
    for (size_t i = 0; i < count; i++) {
        bool handler = !plx_instance_is_command(&a->paths, &list[i]);

        if (list[i].id == a->instance.row.id || (*ret_found && !handler))
            continue;
        *ret_other = list[i]; /* one that is not waited for, rather */
        *ret_found = true;
    }
    free(list);
    return 0;
}

int plx_attach_alone(struct plx_attach *a, struct plx_fault *fault)
{
    uint64_t since_ns = plx_patience_begin();
    struct plx_registry_instance other;
    struct plx_fault why;
    bool found;
    int error;

    do {
        error = plx_attach_recover(a, fault);
        if (!error)
            error = find_other(a, &found, &other, fault);
        if (error || !found)
            return error;
        plx_fault_set(&why, PLX_ERR_BUSY,
                      "store %s is open in %s (pid %lld) on host %s; stop that first",
                      a->known.name, other.role, (long long)other.pid, other.host_name);
    } while (plx_instance_is_command(&a->paths, &other) && plx_attach_waits(a, since_ns, &why));
    return plx_fault_set(fault, PLX_ERR_BUSY, "%s", why.text);
}

/* ---- How large the store is ---- */

/* Which extents this process can use, and how many of them it leaves to metadata. On the loop. */
static void note_size(struct plx_attach *a)
{
    struct plx_store_info info;

    plx_store_get_info(a->store, &info);
    pthread_mutex_lock(&a->claims_lock);
    a->extents_known = info.extents;
    a->keep_unused = plx_min_u64(RESERVE_MAX, plx_max_u64(1, info.extents / 16));
    pthread_mutex_unlock(&a->claims_lock);
}

static uint64_t extents_known(struct plx_attach *a)
{
    uint64_t known;

    pthread_mutex_lock(&a->claims_lock);
    known = a->extents_known;
    pthread_mutex_unlock(&a->claims_lock);
    return known;
}

static uint64_t keep_unused(struct plx_attach *a)
{
    uint64_t keep;

    pthread_mutex_lock(&a->claims_lock);
    keep = a->keep_unused;
    pthread_mutex_unlock(&a->claims_lock);
    return keep;
}

static int open_volumes(struct plx_attach *a, struct plx_registry *registry,
                        struct plx_device *ret_devices[PLX_VOLUMES_MAX], unsigned *ret_count,
                        struct plx_fault *fault)
{
    struct plx_device_open_options options = {.read_only = a->options.read_only};

    return plx_volumes_open(registry, a->row.id, &a->known, &options, ret_devices, ret_count,
                            fault);
}

/* On the loop. */
static int take_volumes(struct plx_attach *a, struct plx_device **devices, unsigned count,
                        struct plx_fault *fault)
{
    int error = plx_store_volumes_changed(a->store, devices, count, fault);

    if (error)
        return error;
    if (a->options.volumes_changed)
        a->options.volumes_changed(a->options.context);
    note_size(a);
    return 0;
}

/* ---- The environment of the engine ---- */

static struct plx_attach *attach_of(struct plx_env *env)
{
    return (struct plx_attach *)(void *)((char *)env - offsetof(struct plx_attach, env));
}

static uint64_t env_now(struct plx_env *env)
{
    return plx_clock_ns(CLOCK_REALTIME);
}

static uint64_t env_monotonic(struct plx_env *env)
{
    return plx_clock_ns(CLOCK_MONOTONIC);
}

static uint64_t env_boot(struct plx_env *env)
{
    return plx_clock_ns(CLOCK_BOOTTIME);
}

static bool env_disciplined(struct plx_env *env)
{
    return plx_clocks_disciplined();
}

static void env_random(struct plx_env *env, void *bytes, unsigned count)
{
    PLX_ASSERT(getrandom(bytes, count, 0) == (ssize_t)count);
}

static void env_event(struct plx_env *env, int code, const char *text)
{
    const struct plx_attach_options *options = &attach_of(env)->options;

    if (options->event)
        options->event(options->context, code, text);
}

static struct held_extent *pop(struct plx_attach *a, struct held_extent **list)
{
    struct held_extent *held;

    pthread_mutex_lock(&a->claims_lock);
    held = *list;
    if (held)
        *list = held->next;
    pthread_mutex_unlock(&a->claims_lock);
    return held;
}

static void push(struct plx_attach *a, struct held_extent **list, struct held_extent *held)
{
    pthread_mutex_lock(&a->claims_lock);
    held->next = *list;
    *list = held;
    pthread_mutex_unlock(&a->claims_lock);
}

static void remember_extent(struct plx_attach *a, const struct plx_registry_extent *row)
{
    struct held_extent *held = malloc(sizeof *held);

    if (!held)
        return; /* it stays ours in the registry and is taken over like a dead one's */
    held->row = *row;
    push(a, &a->extents, held);
}

/* Out of the list of those that are held. NULL: it was not remembered. */
static struct held_extent *forget_extent(struct plx_attach *a, uint64_t no)
{
    struct held_extent **link = &a->extents, *held;

    pthread_mutex_lock(&a->claims_lock);
    while (*link && (*link)->row.no != no)
        link = &(*link)->next;
    held = *link;
    if (held)
        *link = held->next;
    pthread_mutex_unlock(&a->claims_lock);
    return held;
}

/* A10 */
static void never_believe(struct plx_registry_extent *row)
{
    row->sealed = true;
    row->free_blocks = 0;
    row->states = PLX_STATES_NEVER;
}

static int tell_doubt(struct plx_attach *a, struct plx_registry *registry)
{
    char why[sizeof a->doubt];
    int error;

    pthread_mutex_lock(&a->claims_lock);
    memcpy(why, a->doubt, sizeof why);
    pthread_mutex_unlock(&a->claims_lock);
    error = why[0] ? plx_registry_doubt(registry, a->row.id, why) : 0;
    if (why[0] && !error) {
        pthread_mutex_lock(&a->claims_lock);
        a->doubt[0] = 0;
        pthread_mutex_unlock(&a->claims_lock);
    }
    return error;
}

static int seal_refused(struct plx_attach *a)
{
    struct held_extent *held;
    int error = tell_doubt(a, a->claims_registry);

    while (!error && (held = pop(a, &a->refused))) {
        error = plx_registry_extent_release(a->claims_registry, a->row.id, &held->row);
        if (error && error != PLX_ERR_FENCED && error != PLX_ERR_INVALID) {
            push(a, &a->refused, held);
        } else {
            free(held);
            error = 0;
        }
    }
    return error;
}

static int ask_registry(struct plx_attach *a, struct claim *claim)
{
    uint64_t keep = claim->type == PLX_EXTENT_DATA ? keep_unused(a) : 0; /* INV-8 */
    int error = claim->stranded ? 0 : seal_refused(a);

    if (claim->stranded || error)
        return error;
    if (claim->type == PLX_EXTENT_UNUSED)
        return plx_registry_extent_take(a->claims_registry, a->row.id, claim->number, 0,
                                        a->instance.row.id, &claim->row);
    return plx_registry_extent_claim(a->claims_registry, a->row.id, a->instance.row.id, claim->type,
                                     keep, &claim->row, &claim->fresh);
}

static void strand(struct plx_attach *a, struct claim *claim, int error, const char *text)
{
    claim->error = error;
    claim->stranded = true;
    env_event(&a->env, error, text);
}

/* Never with the loop: it may be waiting for the answer in a synchronous call. */
static void claim_extent(void *argument)
{
    struct claim *claim = argument, answer;
    struct plx_attach *a = claim->attach;
    struct plx_fault fault = {0};
    int error;

    pthread_mutex_lock(&a->claims_lock);
    answer = *claim;
    pthread_mutex_unlock(&a->claims_lock);
    answer.error = ask_registry(a, &answer);
    answer.device_count = 0;
    if (!answer.error && answer.row.no >= extents_known(a)) { /* A7 */
        error = open_volumes(a, a->claims_registry, answer.devices, &answer.device_count, &fault);
        if (error)
            strand(a, &answer, error, fault.text);
    } else if (!answer.error) {
        answer.stranded = false;
        remember_extent(a, &answer.row);
    }
    answer.answered = true;
    answer.busy = false;
    pthread_mutex_lock(&a->claims_lock);
    *claim = answer;
    pthread_mutex_unlock(&a->claims_lock);
}

/* A7: the extent lies on a volume, or a part of one, that the store does not know yet. */
static void take_new_extent(struct plx_attach *a, struct claim *answer)
{
    struct plx_fault fault = {0};
    int error = take_volumes(a, answer->devices, answer->device_count, &fault);

    answer->stranded = false;
    if (error)
        strand(a, answer, error, fault.text);
    else
        remember_extent(a, &answer->row);
    pthread_mutex_lock(&a->claims_lock);
    a->claims[answer->type].stranded = answer->stranded;
    pthread_mutex_unlock(&a->claims_lock);
}

static void take_answers(struct plx_attach *a, struct plx_store *store)
{
    for (int type = 0; type <= PLX_EXTENT_META; type++) {
        struct claim answer;

        pthread_mutex_lock(&a->claims_lock);
        answer = a->claims[type];
        a->claims[type].answered = false;
        pthread_mutex_unlock(&a->claims_lock);
        if (!answer.answered)
            continue;
        if (!answer.error && answer.device_count)
            take_new_extent(a, &answer);
        if (!answer.error)
            plx_store_set_collections(store, answer.row.collections);
        plx_store_extent_granted(store, answer.type, answer.error,
                                 &(struct plx_grant){.extent = answer.row.no,
                                                     .fresh = answer.fresh,
                                                     .states = answer.row.states});
    }
}

static void begin_claim(struct plx_attach *a, struct plx_store *store, struct claim *claim)
{
    int error = 0;

    pthread_mutex_lock(&a->claims_lock);
    claim->busy = true;
    pthread_mutex_unlock(&a->claims_lock);
    if (!a->options.defer)
        claim_extent(claim); /* answered at the next tick */
    else
        error = a->options.defer(a->options.context, claim_extent, claim);
    if (!error)
        return;
    pthread_mutex_lock(&a->claims_lock);
    claim->busy = false;
    pthread_mutex_unlock(&a->claims_lock);
    plx_store_extent_granted(store, claim->type, PLX_ERR_BUSY, NULL);
}

/* Until no other thread works on a claim, or seals. */
static void wait_for_claims(struct plx_attach *a)
{
    for (;;) {
        bool busy;

        pthread_mutex_lock(&a->claims_lock);
        busy = a->sealing > 0;
        for (int type = 0; type <= PLX_EXTENT_META; type++)
            busy = busy || a->claims[type].busy;
        pthread_mutex_unlock(&a->claims_lock);
        if (!busy)
            return;
        usleep(1000);
    }
}

static void add_sealing(struct plx_attach *a, int jobs)
{
    pthread_mutex_lock(&a->claims_lock);
    a->sealing += (unsigned)jobs;
    pthread_mutex_unlock(&a->claims_lock);
}

static void seal_deferred(void *argument)
{
    struct plx_attach *a = argument;

    seal_refused(a);
    add_sealing(a, -1);
}

/* What fails here is done with the next claim, or when the attach is closed. */
static void begin_sealing(struct plx_attach *a)
{
    add_sealing(a, 1);
    if (!a->options.defer)
        seal_deferred(a);
    else if (a->options.defer(a->options.context, seal_deferred, a))
        add_sealing(a, -1);
}

/* A10 */
static void env_extent_refused(struct plx_env *env, struct plx_store *store, uint64_t extent,
                               int error, const char *why)
{
    struct plx_attach *a = attach_of(env);
    struct held_extent *held = forget_extent(a, extent);

    if (error == PLX_ERR_REGISTRY) {
        pthread_mutex_lock(&a->claims_lock);
        snprintf(a->doubt, sizeof a->doubt, "%s", why);
        pthread_mutex_unlock(&a->claims_lock);
    }
    if (held) {
        never_believe(&held->row);
        push(a, &a->refused, held);
    }
    begin_sealing(a);
}

static void env_extent_wanted(struct plx_env *env, struct plx_store *store,
                              enum plx_extent_type type)
{
    struct plx_attach *a = attach_of(env);

    begin_claim(a, store, &a->claims[type]);
}

static void env_extent_needed(struct plx_env *env, struct plx_store *store, uint64_t extent)
{
    struct plx_attach *a = attach_of(env);

    a->claims[PLX_EXTENT_UNUSED].number = extent;
    begin_claim(a, store, &a->claims[PLX_EXTENT_UNUSED]);
}

static bool env_room_wanted(struct plx_env *env, struct plx_store *store)
{
    const struct plx_attach_options *options = &attach_of(env)->options;

    return options->room_wanted && options->room_wanted(options->context);
}

static void env_tick(struct plx_env *env)
{
    struct plx_attach *a = attach_of(env);

    if (a->tenancy && a->store && !plx_tenancy_ok(a->tenancy)) /* A8 */
        plx_store_fence(a->store);
    if (a->options.tick)
        a->options.tick(a->options.context);
    if (a->store)
        take_answers(a, a->store);
}

static void env_idle(struct plx_env *env)
{
    struct plx_attach *a = attach_of(env);

    if (a->options.idle)
        a->options.idle(a->options.context);
    else
        usleep(1000);
}

/* Of those that have nobody to tell: what matters, their calls return. */
static void env_unheard(struct plx_env *env, int code, const char *text)
{
}

void plx_attach_init_env(struct plx_env *env)
{
    *env = (struct plx_env){
        .now_ns = env_now,
        .monotonic_ns = env_monotonic,
        .boot_ns = env_boot,
        .boot_id = 1, /* until the paths are known (plx_attach_open) */
        .disciplined = env_disciplined,
        .random = env_random,
        .event = env_unheard,
    };
}

static void init_env(struct plx_env *env)
{
    plx_attach_init_env(env);
    env->extent_wanted = env_extent_wanted;
    env->extent_needed = env_extent_needed;
    env->extent_refused = env_extent_refused;
    env->room_wanted = env_room_wanted;
    env->tick = env_tick;
    env->idle = env_idle;
    env->event = env_event;
}

/* ---- Volumes ---- */

/* A15 */
static int check_behind(struct plx_attach *a, struct plx_fault *fault)
{
    const char *volume = plx_store_behind(a->store);

    if (!volume || a->options.read_only || a->options.grows)
        return 0;
    return plx_fault_set(fault, PLX_ERR_CORRUPT,
                         "%s: its superblock is older than the registry of store %s: the device "
                         "lost a write that it had acknowledged; nothing is written to the store "
                         "until 'parallax store grow %s' has written it again",
                         volume, a->known.name, a->known.name);
}

/* A15. Rows that cannot be true are the check's affair where nothing is written. */
static int open_known(struct plx_attach *a, struct plx_device **devices, unsigned count,
                      struct plx_store_options *options, struct plx_store **ret_store,
                      struct plx_fault *fault)
{
    int error = plx_store_open(devices, count, options, &a->env, ret_store, fault);

    if (error != PLX_ERR_REGISTRY || !a->options.read_only)
        return error;
    options->known_count = 0;
    return plx_store_open(devices, count, options, &a->env, ret_store, fault);
}

/* Locks on one volume prove nothing about another one, even if that is its copy. */
static int open_store(struct plx_attach *a, struct plx_fault *fault)
{
    struct plx_device_open_options device_options = {.read_only = a->options.read_only,
                                                     .patience = a->options.patience};
    struct plx_store_options options = {
        .instance = a->instance.row.id,
        .cache_bytes = a->options.cache_bytes,
    };
    struct plx_device *devices[PLX_VOLUMES_MAX] = {0};
    struct plx_extent_range *known;
    struct plx_store_info info;
    struct plx_store *store;
    char text[37];
    unsigned count;
    int error = plx_volumes_ranges(a->registry, a->row.id, &known, &options.known_count, fault);

    if (error)
        return error;
    options.known = known;
    error = plx_volumes_open(a->registry, a->row.id, &a->known, &device_options, devices, &count,
                             fault);
    if (error) {
        free(known);
        return error;
    }
    plx_uuid_parse(a->paths.host, &options.host);
    error = open_known(a, devices, count, &options, &store, fault);
    free(known);
    if (error) {
        plx_volumes_close(devices, count);
        return error;
    }
    if (!plx_bytelock_same(plx_store_device(store, 0)->used, plx_registry_locks(a->registry))) {
        plx_store_close(store);
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "%s is not the volume that the registry of store %s lies on; name its "
                             "volumes again ('parallax store import')",
                             a->known.volume[0], a->known.name);
    }
    plx_store_get_info(store, &info);
    plx_uuid_text(&info.id, text);
    if (strcmp(text, a->row.uuid) != 0) {
        plx_store_close(store);
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "%s holds store %s, not the one the registry means (%s); check its "
                             "volumes' paths",
                             info.volume[0].name, text, a->row.uuid);
    }
    a->store = store;
    note_size(a);
    error = check_behind(a, fault);
    return error || a->options.read_only /* A7 */
               ? error
               : plx_volumes_register(a->registry, a->row.id, store, NULL, fault);
}

/* ---- A store that grows ---- */

static bool is_member(const struct plx_attach *a, const char *path)
{
    struct plx_bytelock *lock;
    struct plx_device *device;
    bool member = false;

    if (plx_bytelock_open(path, &lock, NULL))
        return false;
    for (unsigned i = 0; (device = plx_store_device(a->store, i)) && !member; i++)
        member = plx_bytelock_same(device->used, lock);
    plx_bytelock_close(lock);
    return member;
}

int plx_attach_volumes_changed(struct plx_attach *a, struct plx_fault *fault)
{
    struct plx_device *devices[PLX_VOLUMES_MAX] = {0};
    unsigned count;
    int error = open_volumes(a, a->registry, devices, &count, fault);

    if (error)
        return error;
    lock(a);
    error = take_volumes(a, devices, count, fault);
    unlock(a);
    return error;
}

/* What others have written from now on may lie in extents that came since this store was opened. */
static int keep_up(struct plx_attach *a, struct plx_fault *fault)
{
    uint64_t extents;
    int error = plx_volumes_registered(a->registry, a->row.id, &extents, fault);

    if (error || extents <= extents_known(a))
        return error;
    return plx_attach_volumes_changed(a, fault);
}

/* That it is no volume of another store that is known here, or that a host may have. Of this one:
 * what an interrupted call left is gone on with, and a volume under the name that it is open by. */
static int check_further(struct plx_attach *a, struct plx_device *device, bool unused,
                         struct plx_fault *fault)
{
    struct plx_superblock_info info;
    struct plx_store_info store;
    char uuid[PLX_UUID_TEXT] = "";

    if (plx_superblock_probe(device, &info, NULL) == 0)
        plx_uuid_text(&info.store, uuid);
    if (strcmp(uuid, a->row.uuid))
        return plx_founding_refuse_used(&a->paths, &device, 1, unused, a->options.patience, fault);
    plx_store_get_info(a->store, &store);
    for (unsigned i = 0; i < store.volumes; i++)
        if (plx_uuid_equal(&info.volume, &store.volume[i].id) && !is_member(a, device->name))
            return plx_fault_set(fault, PLX_ERR_EXISTS,
                                 "%s is a copy of volume %u of store %s (%.100s), or another name "
                                 "of it",
                                 device->name, i, a->known.name, store.volume[i].name);
    return 0;
}

/* The device under the name that others open it by, made if it is to be. Nobody else uses it (a
 * member is open here), and nobody begins to before it is this store's. */
static int open_further(struct plx_attach *a, const struct plx_attach_growth *growth,
                        struct plx_device **ret_device, struct plx_fault *fault)
{
    struct plx_device_open_options options = {.create_bytes = growth->create_bytes,
                                              .exclusive = !is_member(a, growth->path),
                                              .patience = a->options.patience};
    struct plx_device *device = NULL;
    char *path = NULL;
    int error = plx_volumes_absolute(growth->path, &path, fault);

    if (!error)
        error =
            plx_founding_name_living(path, plx_device_open(path, &options, &device, fault), fault);
    free(path);
    if (error)
        return error;
    error = check_further(a, device, growth->unused, fault);
    if (!error)
        error = plx_device_share(device, fault);
    if (error)
        plx_device_close(device);
    else
        *ret_device = device;
    return error;
}

/* The next opening here finds the further volume by the registry; this is for who makes the
 * registry anew. */
static void know_further(struct plx_attach *a)
{
    struct plx_fault why = {0};
    struct plx_store_info info;
    int error = 0;

    plx_store_get_info(a->store, &info);
    for (unsigned i = a->known.volumes; i < info.volumes && !error; i++) {
        a->known.volume[i] = strdup(info.volume[i].name);
        error = a->known.volume[i] ? 0 : PLX_ERR_NOMEM;
        a->known.volumes += !error;
    }
    if (!error)
        error = plx_known_put(&a->paths, &a->known, NULL, &why);
    if (error)
        env_event(&a->env, error, why.text[0] ? why.text : plx_error_text(error));
}

/* With the right to do so, and knowing the store as it is. */
static int grow_by(struct plx_attach *a, const struct plx_attach_growth *growth,
                   struct plx_grown *ret_grown, struct plx_fault *fault)
{
    bool dry_run = growth->how.dry_run, made;
    struct plx_superblock_info info;
    struct plx_device *device;
    int error;

    if (growth->common)
        return plx_store_allow_common(a->store, fault);
    if (!growth->path)
        return plx_store_grow(a->store, &growth->how, ret_grown, fault);
    error = open_further(a, growth, &device, fault);
    if (error)
        return error;
    made = device->made && plx_superblock_probe(device, &info, NULL) == PLX_ERR_NOT_FOUND;
    error = dry_run ? 0
                    : plx_registry_growth_join(a->registry, a->row.id, a->instance.row.id,
                                               device->name);
    if (error)
        plx_registry_fault(a->registry, error, fault);
    else
        error = plx_store_add_volume(a->store, device, &growth->how, ret_grown, fault);
    if (error || !ret_grown->added || dry_run)
        plx_device_close(device);
    if (made && plx_grow_refused(error))
        unlink(growth->path);
    return error;
}

/* Only commands make stores larger. */
static int begin_growth(struct plx_attach *a, struct plx_fault *fault)
{
    uint64_t since_ns = plx_patience_begin();
    struct plx_fault why;
    int error;

    do {
        error = plx_registry_growth_begin(a->registry, a->row.id, a->instance.row.id);
        if (error)
            plx_registry_fault(a->registry, error, &why);
    } while (error == PLX_ERR_BUSY && plx_attach_waits(a, since_ns, &why));
    return error ? plx_fault_set(fault, error, "%s", why.text) : 0;
}

/* The store has grown. That its registry cannot is no failure of that. */
static int grow_registry(struct plx_attach *a, struct plx_grown *grown, struct plx_fault *fault)
{
    int error = plx_spans_grow(a->registry, a->row.id, a->store, grown, fault);

    grown->registry_stays = plx_store_registry_stays(a->store);
    return error == PLX_ERR_NOT_FOUND ? 0 : error;
}

static int grow_alone(struct plx_attach *a, const struct plx_attach_growth *growth,
                      struct plx_grown *ret_grown, struct plx_fault *fault)
{
    int error = plx_attach_volumes_changed(a, fault); /* somebody may have had the right before */

    if (!error) /* us, and have left the registry behind */
        error = plx_volumes_register(a->registry, a->row.id, a->store, NULL, fault);
    if (!error)
        error = grow_by(a, growth, ret_grown, fault);
    if (!error)
        error = plx_volumes_register(a->registry, a->row.id, a->store, NULL, fault);
    note_size(a);
    if (!error && growth->path)
        know_further(a);
    if (!error && !growth->common)
        error = grow_registry(a, ret_grown, fault);
    return error;
}

/* One process at a time writes superblocks, whatever the registry says (grow.c, G5). */
static int lock_superblocks(struct plx_attach *a, struct plx_fault *fault)
{
    struct plx_bytelock *locks = plx_registry_locks(a->registry);
    uint64_t since_ns = plx_patience_begin();
    const char *name = plx_store_device(a->store, 0)->name;
    struct plx_fault why;
    int error;

    plx_fault_set(&why, PLX_ERR_BUSY,
                  "%s: another process is writing the store's superblocks; try again when it has "
                  "ended",
                  name);
    do
        error = locks->ops->set(locks, PLX_BYTE_SUPER, PLX_BYTE_EXCLUSIVE);
    while (error == PLX_ERR_BUSY && plx_attach_waits(a, since_ns, &why));
    if (error == PLX_ERR_BUSY)
        return plx_fault_set(fault, error, "%s", why.text);
    return error ? plx_fault_set(fault, error, "%s: %s", name, plx_error_text(error)) : 0;
}

static void unlock_superblocks(struct plx_attach *a)
{
    struct plx_bytelock *locks = plx_registry_locks(a->registry);

    locks->ops->set(locks, PLX_BYTE_SUPER, PLX_BYTE_UNLOCKED);
}

int plx_attach_grow(struct plx_attach *a, const struct plx_attach_growth *growth,
                    struct plx_grown *ret_grown, struct plx_fault *fault)
{
    bool behind = plx_store_behind(a->store) != NULL, locked;
    int error, ended;

    plx_attach_let_go(a, NULL); /* no disk is open while superblocks are written */
    if (growth->how.dry_run) {
        error = grow_by(a, growth, ret_grown, fault);
        ret_grown->restored = behind;
        return error;
    }
    error = begin_growth(a, fault);
    if (error)
        return error;
    error = lock_superblocks(a, fault);
    locked = !error;
    if (locked) {
        error = grow_alone(a, growth, ret_grown, fault);
        ret_grown->restored = behind; /* A15 */
        unlock_superblocks(a);
    }
    /* Else the right goes with the instance, and what was being added is remembered. */
    if (error && locked && !plx_grow_refused(error))
        return error;
    ended = plx_registry_growth_end(a->registry, a->row.id, a->instance.row.id);
    return error ? error : ended ? plx_registry_fault(a->registry, ended, fault) : 0;
}

/* ---- For collect.c and dedup.c ---- */

void plx_attach_get_inside(struct plx_attach *a, struct plx_attach_inside *ret_inside)
{
    *ret_inside = (struct plx_attach_inside){
        .registry = a->registry,
        .store = a->store,
        .store_row = a->row.id,
        .instance = a->instance.row.id,
        .paths = &a->paths,
    };
}

void plx_attach_lock(struct plx_attach *a)
{
    lock(a);
}

void plx_attach_unlock(struct plx_attach *a)
{
    unlock(a);
}

/* ---- Recovery of dead instances ---- */

/* Claimed, but its header never got there, so nothing was allocated in it: there is none, or that
 * of who had it before, for blocks of another type, and left it empty. */
static bool never_headed(const struct plx_registry_extent *row, const struct plx_extent_info *info)
{
    return info->type == PLX_EXTENT_UNUSED ||
           (info->type != row->type && !info->owner && info->used_blocks <= info->header_blocks);
}

/* A10. *ret_info: type UNUSED where nothing could be read, or its header never got there. */
static int look_at_dead(struct plx_attach *a, const struct plx_registry_extent *row,
                        struct plx_extent_info *ret_info, struct plx_fault *fault)
{
    int error = plx_store_extent_read(a->store, row->no, ret_info, fault);

    if (!error && ret_info->states < row->states)
        error = plx_fault_set(fault, PLX_ERR_CORRUPT,
                              "extent %llu: its header is older than what was written last: the "
                              "device lost a write that it had acknowledged",
                              (unsigned long long)row->no);
    if (!error && never_headed(row, ret_info))
        ret_info->type = PLX_EXTENT_UNUSED;
    else if (!error)
        error = plx_store_extent_adopt(a->store, row->no, fault);
    return error;
}

static int adopt_extent(struct plx_attach *a, uint64_t no, uint64_t dead, struct plx_fault *fault)
{
    struct plx_extent_info info = {.type = PLX_EXTENT_UNUSED};
    struct plx_registry_extent row;
    int error =
        plx_registry_extent_take(a->registry, a->row.id, no, dead, a->instance.row.id, &row);

    if (error == PLX_ERR_INVALID || error == PLX_ERR_BUSY) /* under A11 nobody was quicker */
        return plx_fault_set(fault, PLX_ERR_CORRUPT,
                             "the registry's row of extent %llu, which a process that died had, "
                             "cannot be true; 'parallax store rebuild-registry' makes it anew from "
                             "the store",
                             (unsigned long long)no);
    if (error)
        return plx_registry_fault(a->registry, error, fault);
    lock(a);
    plx_store_set_collections(a->store, row.collections);
    error = look_at_dead(a, &row, &info, fault);
    unlock(a);
    /* What cannot be read just now may hold blocks that only a log names: it has to be read before
     * that log is gone. */
    if (error && error != PLX_ERR_CORRUPT)
        return error;
    if (!error && info.type != PLX_EXTENT_UNUSED) {
        remember_extent(a, &row);
        return 0;
    }
    if (error) {
        env_event(&a->env, error, fault ? fault->text : plx_error_text(error));
        never_believe(&row);
    } else {
        row.type = PLX_EXTENT_UNUSED;
    }
    error = plx_registry_extent_release(a->registry, a->row.id, &row);
    return error ? plx_registry_fault(a->registry, error, fault) : 0;
}

static int adopt_extents(struct plx_attach *a, uint64_t dead, struct plx_fault *fault)
{
    struct plx_registry_extent *list;
    size_t count;
    int error = plx_registry_extent_list(a->registry, a->row.id, dead, &list, &count);

    if (error)
        return plx_registry_fault(a->registry, error, fault);
    for (size_t i = 0; i < count && !error; i++)
        error = adopt_extent(a, list[i].no, dead, fault);
    free(list);
    return error;
}

/* What has become of labels lately. A log that cannot be read is the check's affair: the disk must
 * not stay locked for it. */
static int read_labels(struct plx_attach *a, const struct plx_vdi_info *info, uint64_t from,
                       struct plx_labels *ret_labels, struct plx_fault *fault)
{
    struct plx_fault why = {0};
    int error;

    *ret_labels = (struct plx_labels){0};
    if (!info->snapshots)
        return 0;
    lock(a);
    error = plx_labels_read(a->store, info->slot, from, ret_labels, &why);
    unlock(a);
    if (error != PLX_ERR_CORRUPT)
        return error ? plx_fault_set(fault, error, "%s", why.text) : 0;
    env_event(&a->env, error, why.text);
    plx_labels_done(ret_labels);
    return 0;
}

static int tell_labels(struct plx_attach *a, const struct plx_registry_lock *held, uint32_t slot,
                       struct plx_labels *labels, struct plx_fault *fault)
{
    int error = plx_labels_drop_known(a->registry, held->vdi, labels);

    if (error)
        return plx_registry_fault(a->registry, error, fault);
    lock(a);
    error = plx_labels_times(a->store, slot, labels, fault);
    unlock(a);
    if (error)
        return error;
    error = plx_labels_tell(a->registry, held, labels);
    return error ? plx_registry_fault(a->registry, error, fault) : 0;
}

/* Labels whose snapshots history has moved past: whoever let them go came no further. */
static int drop_forgotten(struct plx_attach *a, const struct plx_registry_lock *held,
                          const struct plx_vdi_info *info)
{
    struct plx_registry_label *list;
    size_t count;
    int error = plx_registry_label_list(a->registry, held->vdi, &list, &count);

    if (error)
        return error;
    for (size_t i = 0; i < count && !error; i++)
        if (list[i].seq <= info->forgotten)
            error = plx_registry_label_remove(a->registry, held, list[i].name);
    free(list);
    return error;
}

/* A4 */
static int settle(struct plx_attach *a, const struct plx_registry_lock *held,
                  const struct plx_vdi_info *info, uint64_t from, struct plx_fault *fault)
{
    struct plx_registry_vdi row;
    struct plx_labels labels;
    int error = plx_registry_vdi_get_by_id(a->registry, held->vdi, &row);

    if (!error && row.size_bytes != info->size_bytes)
        error = plx_registry_vdi_resize(a->registry, held, info->size_bytes);
    if (!error)
        error = plx_policy_keep(a->registry, held->vdi, &info->protection);
    if (!error)
        error = drop_forgotten(a, held, info);
    if (error)
        return plx_registry_fault(a->registry, error, fault);
    error = read_labels(a, info, from, &labels, fault);
    if (!error)
        error = tell_labels(a, held, info->slot, &labels, fault);
    plx_labels_done(&labels);
    return error;
}

/* Of a disk whose owner died. */
static uint64_t settle_from(uint64_t newest)
{
    return newest > SETTLE_SNAPSHOTS ? newest - SETTLE_SNAPSHOTS : 1;
}

static uint64_t newest_of(struct plx_attach *a, const struct plx_vdi *vdi)
{
    struct plx_vdi_info info;

    lock(a);
    plx_vdi_get_info(vdi, &info);
    unlock(a);
    return info.snapshots;
}

/* A4. newest: the newest snapshot before that of which the registry was to be told. */
static void note_told(struct held_vdi *held, uint64_t newest, int error)
{
    if (error && !held->behind)
        held->behind = plx_max_u64(newest, 1);
}

static int finish_creation(struct plx_attach *a, const struct plx_registry_lock *held,
                           struct plx_fault *fault)
{
    int error = plx_registry_vdi_delete(a->registry, held);

    if (!error)
        error = plx_registry_vdi_unlock(a->registry, held, NULL);
    if (!error)
        error = plx_registry_vdi_purge(a->registry, held->vdi);
    return error ? plx_registry_fault(a->registry, error, fault) : 0;
}

/* A13: when the registry is told of a disk that is closed. */
static enum plx_put_off closings(const struct plx_attach *a)
{
    return a->options.brief || a->together ? PLX_PUT_OFF : PLX_NOW;
}

/* What the disk knows of the clocks, kept when there is news (clocks.h), and which snapshot was the
 * last when it is closed: of disks that take snapshots by themselves, or lose them. If it cannot be
 * kept, then at the next look. */
static void look_at_clock(struct plx_attach *a, struct held_vdi *held, bool closing,
                          struct plx_vdi_clock *ret_clock)
{
    struct plx_vdi_info info;

    lock(a);
    plx_vdi_look_at_clock(held->vdi, ret_clock);
    plx_vdi_get_info(held->vdi, &info);
    unlock(a);
    if ((info.protection.mode != PLX_PROTECT_OFF || info.protection.tiers) &&
        (plx_witness_is_news(&ret_clock->witness, &held->kept) ||
         (closing && ret_clock->witness.seq != held->kept.seq))) {
        plx_registry_put_off(a->registry, closing ? closings(a) : PLX_NOW);
        if (!plx_witness_keep(a->registry, held->lock.vdi, &ret_clock->witness))
            held->kept = ret_clock->witness;
        plx_registry_put_off(a->registry, PLX_NOW);
    }
}

/* Made before the disk is opened: what is open is always held. */
static struct held_vdi *new_held(struct plx_fault *fault)
{
    struct held_vdi *held = calloc(1, sizeof *held);

    if (!held)
        plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    return held;
}

/* What a dead instance had open. */
static int open_dead(struct plx_attach *a, const struct plx_registry_vdi *row,
                     struct held_vdi *held, struct plx_fault *fault)
{
    struct plx_vdi_open_options options = {
        .slot = row->slot, .epoch = held->lock.epoch, .take_over = true, .overwrite = -1};
    int error;

    if (!plx_witness_load(a->registry, row->id, &held->kept))
        options.witness = &held->kept;
    lock(a);
    error = plx_vdi_open(a->store, &options, &held->vdi, fault);
    unlock(a);
    return error;
}

static int recover_closed(struct plx_attach *a, const struct plx_registry_vdi *row,
                          const struct plx_registry_lock *ours, struct plx_fault *fault)
{
    struct held_vdi held = {.lock = *ours};
    struct plx_vdi_clock clock;
    struct plx_vdi_info info;
    int error = open_dead(a, row, &held, fault);

    if (error)
        return error;
    look_at_clock(a, &held, true, &clock);
    lock(a);
    plx_vdi_get_info(held.vdi, &info);
    error = plx_vdi_close(held.vdi);
    unlock(a);
    return error ? plx_fault_set(fault, error, "%s: cannot be closed after recovery: %s", row->name,
                                 plx_error_text(error))
                 : settle(a, ours, &info, settle_from(info.snapshots), fault);
}

/* A14 */
static void wait_to_be_asked(struct plx_attach *a, struct held_vdi *held)
{
    held->next = a->unasked;
    a->unasked = held;
    a->unasked_changes++;
}

static int recover_kept(struct plx_attach *a, const struct plx_registry_vdi *row,
                        const struct plx_registry_lock *ours, struct plx_fault *fault)
{
    struct held_vdi *held = new_held(fault);
    struct plx_vdi_clock clock;
    struct plx_vdi_info info;
    int error;

    if (!held)
        return PLX_ERR_NOMEM;
    held->lock = *ours;
    error = open_dead(a, row, held, fault);
    if (error) {
        free(held);
        return error;
    }
    wait_to_be_asked(a, held);
    look_at_clock(a, held, false, &clock);
    lock(a);
    plx_vdi_get_info(held->vdi, &info);
    unlock(a);
    error = settle(a, ours, &info, settle_from(info.snapshots), fault);
    held->behind = error ? settle_from(info.snapshots) : 0;
    return error;
}

/* Created under this lock, and not opened since: its record has no epoch yet. */
static bool is_new(const struct plx_registry_lock *held, const struct plx_vdi_info *info)
{
    return held->epoch == 1 && info->epoch == 0;
}

/* A9: the lock of a disk that was closed. */
static int unlock_closed(struct plx_attach *a, const struct plx_registry_lock *held, uint32_t slot,
                         enum plx_put_off put_off)
{
    struct plx_registry_written written = {0};
    struct plx_registry_extent *rows = NULL;
    struct plx_extent_info *extents;
    struct plx_vdi_info info;
    char id[PLX_UUID_TEXT];
    size_t count;
    int error;

    lock(a);
    if (plx_vdi_read_info(a->store, slot, &info, NULL) == 0) {
        plx_uuid_text(&info.id, id);
        if (strcmp(id, held->vdi) == 0 && (info.epoch == held->epoch || is_new(held, &info)))
            written = (struct plx_registry_written){info.epoch, info.record_state};
    }
    extents = plx_store_extents_risen(a->store, &count); /* A10 */
    unlock(a);
    if (count)
        rows = calloc(count, sizeof *rows);
    for (size_t i = 0; rows && i < count; i++)
        rows[i] =
            (struct plx_registry_extent){.no = extents[i].number, .states = extents[i].states};
    plx_registry_put_off(a->registry, put_off);
    error = plx_registry_vdi_closed(a->registry, held, &written, rows, rows ? count : 0);
    plx_registry_put_off(a->registry, PLX_NOW);
    free(rows);
    free(extents);
    return error;
}

/* A9: what the door said of a disk that is ours, or that is there still. */
static int in_doubt(struct plx_attach *a, int error, const struct plx_fault *fault)
{
    if (error == PLX_ERR_REGISTRY)
        plx_registry_doubt(a->registry, a->row.id,
                           fault ? fault->text : "a record is not as the registry knows it");
    return error;
}

/* A disk whose lock was a dead instance's and is ours now. */
static int recover_vdi(struct plx_attach *a, const struct plx_registry_vdi *row, bool keep,
                       struct plx_fault *fault)
{
    struct plx_registry_lock ours = {.instance = row->owner, .epoch = row->epoch};
    struct plx_vdi_info info;
    int error;

    memcpy(ours.vdi, row->id, sizeof ours.vdi);
    lock(a);
    error = plx_door_read(a->store, row, &info, fault);
    unlock(a);
    if (error == PLX_ERR_NOT_FOUND) /* A3: its record was never written */
        return finish_creation(a, &ours, fault);
    if (error)
        return in_doubt(a, error, fault);
    if (info.state == PLX_VDI_DELETED || row->deleted) {
        if (info.state != PLX_VDI_DELETED) {
            lock(a);
            error = plx_vdi_delete(a->store, row->slot, true, fault);
            unlock(a);
        }
        if (!error && !row->deleted && (error = plx_registry_vdi_delete(a->registry, &ours)))
            plx_registry_fault(a->registry, error, fault);
    } else if (keep) {
        return recover_kept(a, row, &ours, fault);
    } else {
        error = recover_closed(a, row, &ours, fault);
    }
    if (!error && (error = unlock_closed(a, &ours, row->slot, PLX_PUT_OFF_UNSEEN)))
        plx_registry_fault(a->registry, error, fault);
    return error;
}

/* A1. When a log cannot be read, or found by a record that is to be believed (A9), nothing is
 * allocated from the extents it may name. */
static void mark_log(struct plx_attach *a, const struct plx_registry_vdi *row)
{
    struct plx_fault why = {0};
    struct plx_vdi_info info;
    int error;

    lock(a);
    error = plx_door_read(a->store, row, &info, &why);
    if (!error)
        error = plx_vdi_mark(a->store, row->slot, &why);
    if (error == PLX_ERR_NOT_FOUND) /* it was never written to */
        error = 0;
    if (error)
        plx_store_extents_seal(a->store);
    unlock(a);
    if (error)
        env_event(&a->env, error, why.text);
}

/* The VDIs that an instance had locked. */
static int locked_by(struct plx_attach *a, uint64_t instance, struct plx_registry_vdi **ret_list,
                     size_t *ret_count, struct plx_fault *fault)
{
    int error = plx_registry_locks_of(a->registry, instance, ret_list, ret_count);

    return error ? plx_registry_fault(a->registry, error, fault) : 0;
}

static int mark_logs(struct plx_attach *a, uint64_t dead, struct plx_fault *fault)
{
    struct plx_registry_vdi *list;
    size_t count;
    int error = locked_by(a, dead, &list, &count, fault);

    if (error)
        return error;
    for (size_t i = 0; i < count; i++)
        mark_log(a, &list[i]);
    free(list);
    return 0;
}

static bool is_in(const struct held_vdi *list, const char *id)
{
    while (list && strcmp(list->lock.vdi, id) != 0)
        list = list->next;
    return list != NULL;
}

static bool is_held(const struct plx_attach *a, const char *id)
{
    return is_in(a->vdis, id) || is_in(a->unasked, id);
}

/* One after the other; comes back with how many failed. What recovering some gave back others may
 * need: those for which there was no room come again, as long as that helps. One that is kept open
 * is recovered: what its registry rows lack is made good when it is closed. */
static size_t recover_vdis(struct plx_attach *a, struct plx_registry_vdi *list, size_t count,
                           bool keep)
{
    size_t failed = 0, left = count, before;

    do {
        before = left;
        left = 0;
        for (size_t i = 0; i < before; i++) {
            struct plx_fault why = {0};
            int error = recover_vdi(a, &list[i], keep, &why);

            if (error) /* its neighbours are not to suffer from it */
                env_event(&a->env, error, why.text);
            if (error == PLX_ERR_NOSPACE && !is_held(a, list[i].id) &&
                plx_registry_vdi_get_by_id(a->registry, list[i].id, &list[left]) == 0)
                left++;
            else
                failed += error != 0;
        }
    } while (left && left < before);
    return failed + left;
}

static int recover_instance(struct plx_attach *a, const struct plx_registry_instance *dead,
                            bool keep, struct plx_fault *fault)
{
    struct plx_registry_vdi *list;
    size_t count, failed;
    int error =
        plx_registry_vdis_takeover(a->registry, dead->id, a->instance.row.id, &list, &count);

    if (error)
        return plx_registry_fault(a->registry, error, fault);
    failed = recover_vdis(a, list, count, keep);
    free(list);
    /* What could not be recovered is locked by us now: opening it says why. A row that is gone was
     * taken by a program from before A11. */
    error = plx_registry_instance_unregister(a->registry, dead->id);
    if (error && error != PLX_ERR_NOT_FOUND)
        return failed ? 0 : plx_registry_fault(a->registry, error, fault);
    return 0;
}

/* A14 */
static bool is_peer(const struct plx_attach *a, const struct plx_registry_instance *dead)
{
    return strcmp(dead->role, a->options.role) == 0;
}

static size_t count_peers(const struct plx_attach *a, const struct plx_registry_instance *dead,
                          size_t count)
{
    size_t peers = 0;

    for (size_t i = 0; i < count; i++)
        peers += is_peer(a, &dead[i]);
    return peers;
}

/* A1, over all of them at once: one may have died while it recovered another, having taken over
 * its extents and not yet its disks. */
static int recover_all(struct plx_attach *a, const struct plx_registry_instance *dead, size_t count,
                       struct plx_fault *fault)
{
    bool keep = a->keeps && count_peers(a, dead, count) == 1;
    int error = 0;

    for (size_t i = 0; i < count && !error; i++)
        error = adopt_extents(a, dead[i].id, fault);
    for (size_t i = 0; i < count && !error; i++)
        error = mark_logs(a, dead[i].id, fault);
    if (error)
        return error;
    lock(a);
    error = plx_store_extents_adopted(a->store, fault);
    unlock(a);
    for (size_t i = 0; i < count && !error; i++)
        error = recover_instance(a, &dead[i], keep && is_peer(a, &dead[i]), fault);
    return error;
}

/* N3 of instance.c: the row may be of one that has ended since it was read. */
static bool is_dead(struct plx_attach *a, const struct plx_registry_instance *row)
{
    struct plx_registry_instance now;

    return plx_instance_is_dead(&a->paths, plx_registry_locks(a->registry), row, NULL) &&
           plx_registry_instance_get(a->registry, row->id, &now) == 0;
}

/* Those of this host that are proven dead; *ret_list is the caller's to free. */
static int list_dead(struct plx_attach *a, struct plx_registry_instance **ret_list,
                     size_t *ret_count, struct plx_fault *fault)
{
    struct plx_registry_instance *list;
    size_t count, dead = 0;
    int error = plx_registry_instance_list(a->registry, a->row.id, &list, &count);

    if (error)
        return plx_registry_fault(a->registry, error, fault);
    for (size_t i = 0; i < count; i++)
        if (list[i].id != a->instance.row.id && is_dead(a, &list[i]))
            list[dead++] = list[i];
    *ret_list = list;
    *ret_count = dead;
    return 0;
}

/* A11 */
int plx_attach_lock_recovery(struct plx_attach *a, struct plx_fault *fault)
{
    struct plx_bytelock *locks = plx_registry_locks(a->registry);
    uint64_t since_ns = plx_patience_begin();
    struct plx_fault why;
    int error;

    plx_fault_set(&why, PLX_ERR_BUSY,
                  "store %s: another process recovers what one that has died left; try again",
                  a->known.name);
    do
        error = locks->ops->set(locks, PLX_BYTE_RECOVERY, PLX_BYTE_EXCLUSIVE);
    while (error == PLX_ERR_BUSY && plx_attach_waits(a, since_ns, &why));
    if (error == PLX_ERR_BUSY)
        return plx_fault_set(fault, error, "%s", why.text);
    return error ? plx_fault_set(fault, error, "%.200s: cannot be locked for recovery",
                                 a->known.volume[0])
                 : 0;
}

void plx_attach_unlock_recovery(struct plx_attach *a)
{
    struct plx_bytelock *locks = plx_registry_locks(a->registry);

    locks->ops->set(locks, PLX_BYTE_RECOVERY, PLX_BYTE_UNLOCKED);
}

/* Under that lock. The store may have grown while we waited for it. */
static int recover_dead(struct plx_attach *a, struct plx_fault *fault)
{
    struct plx_registry_instance *list;
    size_t count;
    int error = keep_up(a, fault);

    if (!error)
        error = list_dead(a, &list, &count, fault);
    if (error)
        return error;
    if (count) { /* what was under way is left allocated, whoever gets as far as finishing this */
        plx_registry_collection_want(a->registry, a->row.id);
        error = recover_all(a, list, count, fault);
    }
    free(list);
    return error;
}

int plx_attach_recover(struct plx_attach *a, struct plx_fault *fault)
{
    struct plx_registry_instance *list;
    size_t count;
    int error = keep_up(a, fault);

    if (!error)
        error = list_dead(a, &list, &count, fault);
    if (error)
        return error;
    free(list);
    if (!count)
        return 0;
    error = plx_attach_lock_recovery(a, fault);
    if (error)
        return error;
    error = recover_dead(a, fault);
    plx_attach_unlock_recovery(a);
    return error;
}

/* ---- Opening and closing ---- */

static void on_fenced(void *context, const char *why)
{
    struct plx_attach *a = context;

    env_event(&a->env, PLX_ERR_FENCED, why);
}

static int begin_tenancy(struct plx_attach *a, struct plx_fault *fault)
{
    struct plx_tenancy_options options = {
        .paths = &a->paths,
        .volume = a->known.volume[0],
        .which = a->known.name,
        .fenced = on_fenced,
        .context = a,
        .patience = a->options.patience,
    };

    plx_uuid_parse(a->known.uuid, &options.store);
    return plx_tenancy_begin(&options, &a->tenancy, fault);
}

/* A8, before each change of the registry. */
static bool may_write(void *context, struct plx_fault *fault)
{
    struct plx_attach *a = context;

    if (!a->tenancy && begin_tenancy(a, fault))
        return false;
    return plx_tenancy_look(a->tenancy, fault) == 0;
}

int plx_attach_fenced(struct plx_attach *a, struct plx_fault *fault)
{
    return a->tenancy ? plx_tenancy_fenced(a->tenancy, fault) : 0;
}

/* For who only reads: whose is the store? *ret_ours: what a crash left in its registry may be
 * undone, for locks tell who else is at it. */
static int look_at_tenant(struct plx_attach *a, bool *ret_ours, struct plx_fault *fault)
{
    const struct plx_embedded_options options = {
        .volume = a->known.volume[0],
        .uuid = a->known.uuid,
        .identity = a->known.identity,
        .patience = a->options.patience,
    };
    struct plx_tenant tenant;
    int error = plx_embedded_tenant(&options, &a->paths, &tenant, fault);

    if (error)
        return error;
    if (tenant.ours && !tenant.here) /* a new boot, or another name of the volume */
        error = begin_tenancy(a, fault);
    *ret_ours = tenant.here || a->tenancy;
    return error == PLX_ERR_PERMISSION || error == PLX_ERR_READONLY || error == PLX_ERR_BUSY
               ? 0
               : error;
}

static int open_registries(struct plx_attach *a, struct plx_fault *fault)
{
    char who[160];
    bool ours = true;
    struct plx_embedded_options options = {
        .volume = a->known.volume[0],
        .uuid = a->known.uuid,
        .identity = a->known.identity,
        .who = who,
        .may_write = may_write,
        .context = a,
        .patience = a->options.patience,
    };
    int error;

    if (a->options.read_only)
        error = look_at_tenant(a, &ours, fault);
    else if (!(error = plx_embedded_check(&options, fault))) /* else the home page is not its own */
        error = begin_tenancy(a, fault);
    if (error)
        return error;
    options.read_only = !ours;
    snprintf(who, sizeof who, "%s %d on %s", a->options.role, (int)getpid(), a->paths.host_name);
    error = plx_embedded_open(&options, &a->registry, fault);
    if ((error == PLX_ERR_PERMISSION || error == PLX_ERR_READONLY) && a->options.read_only) {
        options.read_only = true;
        error = plx_embedded_open(&options, &a->registry, fault);
    }
    if (!error)
        plx_registry_call_store(a->registry, a->known.name);
    options.patience = NULL; /* that is not its thread's */
    if (!error && !a->options.read_only)
        error = plx_embedded_open(&options, &a->claims_registry, fault);
    if (!error && !a->options.read_only)
        plx_registry_call_store(a->claims_registry, a->known.name);
    return error;
}

/* The store's row, which is there from when its format was through. */
static int find_row(struct plx_attach *a, struct plx_fault *fault)
{
    int error = plx_registry_store_get(a->registry, a->known.uuid, &a->row);

    if (error == PLX_ERR_NOT_FOUND)
        return plx_fault_set(fault, PLX_ERR_REGISTRY,
                             "%s: the registry of store %s is empty: its format or the rebuild of "
                             "its registry was not finished; 'parallax store rebuild-registry "
                             "--volume PATH' makes it anew from the store",
                             a->known.volume[0], a->known.name);
    return error ? plx_registry_fault(a->registry, error, fault) : 0;
}

static int register_instance(struct plx_attach *a, struct plx_fault *fault)
{
    int error;

    if (!a->tenancy && (error = begin_tenancy(a, fault)))
        return error;
    error =
        plx_instance_create(&a->paths, a->known.volume[0], a->options.role, &a->instance, fault);

    if (error)
        return error;
    a->instance.row.store = a->row.id;
    plx_registry_put_off(a->registry, PLX_PUT_OFF_UNSEEN); /* A13 */
    error = plx_registry_instance_register(a->registry, &a->instance.row);
    plx_registry_put_off(a->registry, PLX_NOW);
    if (error) {
        plx_registry_fault(a->registry, error, fault);
        plx_instance_close(&a->instance);
        return error;
    }
    a->registered = true;
    return 0;
}

/* When it fails, the row stays and its byte is free: the next attach recovers it. */
static void unregister_instance(struct plx_attach *a)
{
    if (!a->registered)
        return;
    if (!plx_registry_take_back(a->registry))
        plx_registry_instance_unregister(a->registry, a->instance.row.id);
    plx_instance_close(&a->instance);
    a->registered = false;
}

static void attach_free(struct plx_attach *a)
{
    unregister_instance(a);
    for (struct held_extent *held; (held = pop(a, &a->extents));)
        free(held);
    for (struct held_extent *held; (held = pop(a, &a->refused));)
        free(held);
    plx_registry_close(a->registry);
    plx_registry_close(a->claims_registry);
    plx_tenancy_end(a->tenancy);
    plx_known_done(&a->known);
    pthread_mutex_destroy(&a->claims_lock);
    free(a);
}

int plx_attach_open(const struct plx_attach_options *options, struct plx_attach **ret_attach,
                    struct plx_fault *fault)
{
    struct plx_attach *a = calloc(1, sizeof *a);
    int error;

    if (!a)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    a->options = *options;
    pthread_mutex_init(&a->claims_lock, NULL);
    init_env(&a->env);
    for (int type = 0; type <= PLX_EXTENT_META; type++)
        a->claims[type] = (struct claim){.attach = a, .type = (enum plx_extent_type)type};
    /* Until the caller knows the store, nobody else's loop may be asked. */
    a->options.lock = a->options.unlock = a->options.tick = a->options.idle = NULL;
    a->options.defer = NULL;
    a->options.room_wanted = NULL;
    error = plx_paths_init(&a->paths, options->state_dir, fault);
    a->env.boot_id = plx_clocks_boot_id(&a->paths);
    if (!error)
        error = plx_known_get(&a->paths, options->store, &a->known, fault);
    if (!error)
        error = plx_known_missing(&a->known, open_registries(a, fault), fault);
    if (!error)
        error = find_row(a, fault);
    if (!error && !options->read_only)
        error = register_instance(a, fault);
    if (!error && !options->registry_only)
        error = plx_known_missing(&a->known, open_store(a, fault), fault);
    a->keeps = options->reopens;
    if (!error && !options->read_only)
        error = plx_attach_recover(a, fault);
    a->keeps = false;
    if (error) {
        if (a->store)
            plx_attach_close(a);
        else
            attach_free(a);
        return error;
    }
    a->options = *options;
    *ret_attach = a;
    return 0;
}

/* The held row of an extent, taken off the list. */
/* What is given back when the attach is closed. */
struct returned {
    struct plx_registry_extent *rows;
    size_t count;
};

static int return_row(struct returned *returned, const struct plx_registry_extent *row)
{
    struct plx_registry_extent *rows =
        realloc(returned->rows, (returned->count + 1) * sizeof *rows);

    if (!rows)
        return PLX_ERR_NOMEM;
    returned->rows = rows;
    rows[returned->count++] = *row;
    return 0;
}

/* Which never came to the store. (What blocks are freed in is known to it.) */
static int return_stranded(struct plx_attach *a, struct returned *returned)
{
    int error = 0;

    for (int type = PLX_EXTENT_DATA; type <= PLX_EXTENT_META && !error; type++) {
        struct claim *claim = &a->claims[type];

        if (claim->fresh)
            claim->row.type = PLX_EXTENT_UNUSED;
        if (claim->stranded)
            error = return_row(returned, &claim->row);
    }
    return error;
}

/* The store's part: pages that name nobody. */
static int return_extents(struct plx_attach *a, struct returned *returned)
{
    struct plx_extent_info info;
    int error = return_stranded(a, returned);

    if (!error)
        error = tell_doubt(a, a->registry);
    for (struct held_extent *held; !error && (held = pop(a, &a->refused)); free(held))
        error = return_row(returned, &held->row);
    if (!error)
        plx_store_extents_leave(a->store);
    for (size_t i = 0; !error && plx_store_extent_owned(a->store, i, &info) == 0;) {
        struct plx_registry_extent row;
        struct held_extent *held;

        error = plx_store_extent_release(a->store, info.number, &info, NULL);

        if (error == PLX_ERR_NOT_FOUND) { /* adopted and not yet safe: the next attach goes on */
            i++;
            error = 0;
            continue;
        }
        held = error ? NULL : forget_extent(a, info.number);
        if (!held)
            continue;
        row = held->row;
        free(held);
        row.states = info.states;
        row.free_blocks = info.blocks - info.used_blocks;
        row.sealed = info.sealed || row.free_blocks == 0;
        if (info.used_blocks == info.header_blocks && !info.sealed)
            row.type = PLX_EXTENT_UNUSED;
        error = return_row(returned, &row);
    }
    return error;
}

/* The registry's part, in one commit; when a disk could not be closed (A2), by extents. What fails
 * stays with the instance's row, whose byte is free: the next attach recovers it. */
static int leave(struct plx_attach *a, const struct returned *returned)
{
    int error = 0;

    if (!plx_registry_take_back(a->registry)) /* A13: else nothing was ever changed */
        error = plx_registry_instance_leave(a->registry, a->row.id, a->instance.row.id,
                                            returned->rows, returned->count);
    if (error == PLX_ERR_BUSY) {
        error = 0;
        for (size_t i = 0; i < returned->count && !error; i++)
            error = plx_registry_extent_release(a->registry, a->row.id, &returned->rows[i]);
    }
    plx_instance_close(&a->instance);
    a->registered = false;
    return error;
}

static void let_all_go(struct plx_attach *a);

int plx_attach_close(struct plx_attach *a)
{
    struct returned returned = {0};
    int error = 0, closed;

    PLX_ASSERT(!a->vdis);
    let_all_go(a);
    /* The loop is gone by now; what it was asked is answered here. */
    wait_for_claims(a);
    a->options.lock = a->options.unlock = a->options.tick = a->options.idle = NULL;
    a->options.defer = NULL;
    a->options.room_wanted = NULL;
    if (!a->options.read_only) {
        plx_store_settle(a->store);
        error = return_extents(a, &returned);
    }
    closed = a->store ? plx_store_close(a->store) : 0;
    if (!error && a->registered)
        error = leave(a, &returned);
    free(returned.rows);
    if (error)
        env_event(&a->env, error, "extents could not be given back; the next opening takes them");
    attach_free(a);
    return error ? error : closed;
}

struct plx_store *plx_attach_store(struct plx_attach *attach)
{
    return attach->store;
}

struct plx_registry *plx_attach_registry(struct plx_attach *attach)
{
    return attach->registry;
}

void plx_attach_row(const struct plx_attach *attach, struct plx_registry_store *ret_row)
{
    *ret_row = attach->row;
}

void plx_attach_shown_id(const struct plx_attach *attach, const char *vdi,
                         char ret_text[PLX_UUID_TEXT])
{
    struct plx_uuid store, identity, id;

    plx_uuid_parse(attach->known.uuid, &store);
    plx_uuid_parse(attach->known.identity, &identity);
    if (plx_uuid_parse(vdi, &id))
        id = plx_uuid_shown(&store, &identity, &id);
    else
        memset(&id, 0, sizeof id); /* not of a registry that its checks accept */
    plx_uuid_text(&id, ret_text);
}

int plx_attach_control_path(const struct plx_attach *attach, char ret_path[PLX_PATH_MAX],
                            struct plx_fault *fault)
{
    plx_paths_control(&attach->paths, attach->instance.row.id, ret_path);
    return plx_paths_make_control(&attach->paths, fault);
}

/* ---- Virtual disks ---- */

static int get_vdi(struct plx_attach *a, const char *name, struct plx_registry_vdi *ret_row,
                   struct plx_fault *fault)
{
    int error = plx_registry_vdi_get(a->registry, a->row.id, name, ret_row);

    return error ? plx_registry_fault(a->registry, error, fault) : keep_up(a, fault);
}

/* A14: out of those that wait to be asked for, to those that are open; id NULL: any. NULL: it is
 * not among them. */
static struct held_vdi *ask_for(struct plx_attach *a, const char *id)
{
    struct held_vdi **link = &a->unasked, *held;

    while (*link && id && strcmp((*link)->lock.vdi, id) != 0)
        link = &(*link)->next;
    held = *link;
    if (!held)
        return NULL;
    *link = held->next;
    held->next = a->vdis;
    a->vdis = held;
    a->unasked_changes++;
    return held;
}

/* Whether it is worth waiting for a lock: nobody has it any more, or a command has. */
static bool is_free_soon(struct plx_attach *a, const char *vdi)
{
    struct plx_registry_vdi row;

    return plx_registry_vdi_get_by_id(a->registry, vdi, &row) == 0 &&
           (!row.owner || plx_attach_ends_soon(a, row.owner));
}

/* Of a disk that its holder gives up soon. Holders may have died since we attached. */
static int lock_in_turn(struct plx_attach *a, const char *vdi, struct plx_registry_lock *ret_lock,
                        struct plx_fault *fault)
{
    uint64_t since_ns = plx_patience_begin();
    struct plx_fault why;
    int error, failed;

    do {
        error = plx_registry_vdi_lock(a->registry, vdi, a->instance.row.id, ret_lock);
        if (error != PLX_ERR_BUSY)
            break;
        plx_registry_fault(a->registry, error, &why);
        failed = plx_attach_recover(a, fault);
        if (failed)
            return failed;
        error = plx_registry_vdi_lock(a->registry, vdi, a->instance.row.id, ret_lock);
        if (error)
            plx_registry_fault(a->registry, error, &why);
    } while (error == PLX_ERR_BUSY && is_free_soon(a, vdi) && plx_attach_waits(a, since_ns, &why));
    if (error == PLX_ERR_BUSY)
        return plx_fault_set(fault, error, "%s", why.text);
    return error ? plx_registry_fault(a->registry, error, fault) : 0;
}

/* A lock that is ours from a recovery or a closing that failed: what the record names is dead, and
 * the epoch is raised again. BUSY: it is not. */
static int lock_left(struct plx_attach *a, const char *vdi, struct plx_registry_lock *ret_lock,
                     struct plx_fault *fault)
{
    struct plx_registry_lock ours = {.instance = a->instance.row.id};
    struct plx_registry_vdi row;
    int error = plx_registry_vdi_get_by_id(a->registry, vdi, &row);

    if (error)
        return plx_registry_fault(a->registry, error, fault);
    if (row.owner != ours.instance || is_held(a, vdi))
        return PLX_ERR_BUSY;
    memcpy(ours.vdi, row.id, sizeof ours.vdi);
    ours.epoch = row.epoch;
    error = plx_registry_vdi_takeover(a->registry, &ours, ours.instance, ret_lock);
    return error ? plx_registry_fault(a->registry, error, fault) : 0;
}

/* *ret_recover: it was ours already, perhaps since its holder died while we waited. */
static int lock_vdi(struct plx_attach *a, const struct plx_registry_vdi *row,
                    struct plx_registry_lock *ret_lock, bool *ret_recover, struct plx_fault *fault)
{
    int error = lock_left(a, row->id, ret_lock, fault);

    *ret_recover = error != PLX_ERR_BUSY;
    if (error != PLX_ERR_BUSY)
        return error;
    error = lock_in_turn(a, row->id, ret_lock, fault);
    if (error == PLX_ERR_BUSY) {
        error = lock_left(a, row->id, ret_lock, fault);
        *ret_recover = error != PLX_ERR_BUSY;
    }
    return error;
}

static void hold_vdi(struct plx_attach *a, struct held_vdi *held, struct plx_vdi *vdi)
{
    held->vdi = vdi;
    held->next = a->vdis;
    a->vdis = held;
}

static struct held_vdi *find_vdi(struct plx_attach *a, const struct plx_vdi *vdi)
{
    struct held_vdi *held = a->vdis;

    while (held->vdi != vdi)
        held = held->next;
    return held;
}

/* A16 */
static int check_stands_still(struct plx_attach *a, struct plx_fault *fault)
{
    struct plx_device *device = plx_registry_device(a->registry);
    struct plx_tenant tenant;
    struct plx_uuid store;
    bool lives = false;
    int error;

    plx_uuid_parse(a->row.uuid, &store);
    error = plx_tenancy_read(device, plx_registry_locks(a->registry), &store, &a->paths, &tenant,
                             fault);
    if (!error && !tenant.here)
        error = plx_tenancy_lives(device, &store, &lives, fault);
    return lives ? plx_fault_set(fault, PLX_ERR_BUSY,
                                 "%s cannot be written to here, and store %s is open on host %s, "
                                 "where nobody would know that its snapshots are read: read them "
                                 "there, or through the same name of the volume",
                                 device->name, a->known.name, tenant.host_name)
                 : error;
}

/* A16. *ret_hold stays 0. */
static int hold_without_writing(struct plx_attach *a, const char *vdi, struct plx_fault *fault)
{
    int error = a->unwritable ? 0 : check_stands_still(a, fault);

    if (error)
        return error;
    a->unwritable = true;
    error = plx_hold_share(a->registry, &a->paths, plx_registry_locks(a->registry), vdi,
                           a->options.patience);
    return error ? plx_registry_fault(a->registry, error, fault) : 0;
}

/* A5. seq 0, the newest state, is nothing that could be held. */
static int hold_instant(struct plx_attach *a, const char *vdi, uint64_t seq, uint64_t *ret_hold,
                        struct plx_fault *fault)
{
    int error = 0;

    *ret_hold = 0;
    if (!seq)
        return 0;
    if (!a->registered && !a->unwritable)
        error = register_instance(a, fault);
    if (a->unwritable ||
        (a->options.read_only && (error == PLX_ERR_PERMISSION || error == PLX_ERR_READONLY)))
        return hold_without_writing(a, vdi, fault);
    if (error)
        return error;
    error = plx_hold_wait(a->registry, &a->paths, plx_registry_locks(a->registry), vdi, seq,
                          a->instance.row.id, a->options.patience, ret_hold);
    return error ? plx_registry_fault(a->registry, error, fault) : 0;
}

static void release_instant(struct plx_attach *a, uint64_t hold)
{
    int error = hold ? plx_registry_release(a->registry, hold) : 0;

    if (error)
        env_event(&a->env, error, "a snapshot stays held until this process has ended");
}

/* A9. While its row is there no other disk gets the slot, whoever locks this one. */
static int check_door(struct plx_attach *a, const struct plx_registry_vdi *row,
                      struct plx_fault *fault)
{
    struct plx_registry_vdi now;
    struct plx_vdi_info info;
    int error, gone;

    lock(a);
    error = plx_door_read(a->store, row, &info, fault);
    unlock(a);
    if (error != PLX_ERR_REGISTRY)
        return error;
    gone = plx_registry_vdi_get_by_id(a->registry, row->id, &now);
    if (gone == PLX_ERR_NOT_FOUND || (!gone && now.deleted))
        return plx_fault_set(fault, PLX_ERR_NOT_FOUND, "%s/%.200s has just been deleted",
                             a->known.name, row->name);
    return gone ? error : in_doubt(a, error, fault);
}

int plx_attach_explain_missing(struct plx_attach *a, const struct plx_registry_vdi *row,
                               const char *snapshot, uint64_t seq, struct plx_fault *fault)
{
    const char *store = a->known.name;
    struct plx_snapshot_info first = {0}, found = {0};
    int error;

    lock(a);
    error = plx_snapshot_first(a->store, row->slot, 1, &first, NULL);
    if (!error && seq)
        error = plx_snapshot_first(a->store, row->slot, seq, &found, NULL);
    unlock(a);
    if (!error && !first.seq)
        plx_fault_set(fault, PLX_ERR_NOT_FOUND,
                      "%s/%.100s has no snapshots; 'parallax snap create %s/%.100s' takes one",
                      store, row->name, store, row->name);
    else if (!error && seq && found.seq != seq)
        plx_fault_set(fault, PLX_ERR_NOT_FOUND,
                      "%s/%.100s has no snapshot %.100s; 'parallax snap list' shows what there is",
                      store, row->name, snapshot);
    return PLX_ERR_NOT_FOUND;
}

static int open_snapshot(struct plx_attach *a, const struct plx_registry_vdi *row,
                         const char *snapshot, struct plx_vdi **ret_vdi, struct plx_fault *fault)
{
    struct held_vdi *held;
    struct plx_vdi *vdi;
    uint64_t seq;
    int error = plx_attach_snapshot_resolve(a, row->name, snapshot, &seq, fault);

    if (error)
        return error;
    held = new_held(fault);
    if (!held)
        return PLX_ERR_NOMEM;
    error = hold_instant(a, row->id, seq, &held->hold, fault);
    if (!error)
        error = check_door(a, row, fault);
    if (!error) {
        lock(a);
        error = plx_snapshot_open(a->store, row->slot, seq, &vdi, fault);
        unlock(a);
        if (error == PLX_ERR_NOT_FOUND && seq)
            error = plx_attach_explain_missing(a, row, snapshot, seq, fault);
    }
    if (error) {
        release_instant(a, held->hold);
        free(held);
        return error;
    }
    hold_vdi(a, held, vdi);
    *ret_vdi = vdi;
    return 0;
}

void plx_attach_look_at_clock(struct plx_attach *a, struct plx_vdi *vdi,
                              struct plx_vdi_clock *ret_clock)
{
    look_at_clock(a, find_vdi(a, vdi), false, ret_clock);
}

int plx_attach_resume(struct plx_attach *a, struct plx_vdi *vdi, struct plx_fault *fault)
{
    struct held_vdi *held = find_vdi(a, vdi);
    char why[PLX_DOUBT_TEXT];
    struct plx_vdi_clock clock;
    int error;

    look_at_clock(a, held, false, &clock);
    plx_witness_text(&clock.witness, &clock.now, &clock.ends, why);
    lock(a);
    plx_vdi_resume(vdi, &clock);
    unlock(a);
    error = plx_witness_keep(a->registry, held->lock.vdi, &clock.witness);
    if (!error)
        error = plx_registry_event_add(a->registry, "vdi resume", held->lock.vdi, why);
    if (error)
        return plx_registry_fault(a->registry, error, fault);
    held->kept = clock.witness;
    return 0;
}

/* A9: of a disk whose lock we have just got. recovers: nobody closed it. */
static int check_locked(struct plx_attach *a, const struct plx_registry_lock *held, bool recovers,
                        struct plx_fault *fault)
{
    struct plx_registry_vdi row;
    struct plx_vdi_info info;
    int error = plx_registry_vdi_get_by_id(a->registry, held->vdi, &row);

    if (error)
        return plx_registry_fault(a->registry, error, fault);
    if (!recovers) { /* as it was before */
        row.owner = 0;
        row.epoch = held->epoch - 1;
    }
    lock(a);
    error = recovers ? plx_door_read(a->store, &row, &info, fault)
                     : plx_door_read_closed(a->store, &row, &info, fault);
    unlock(a);
    return in_doubt(a, error, fault);
}

static int open_for_writing(struct plx_attach *a, const struct plx_registry_vdi *row,
                            const struct plx_attach_vdi_options *options, struct plx_vdi **ret_vdi,
                            struct plx_fault *fault)
{
    struct plx_vdi_open_options open = {.write_back = options->write_back,
                                        .overwrite = options->overwrite,
                                        .quiet_ns = options->quiet_ns};
    struct plx_vdi_clock clock;
    struct held_vdi *held = ask_for(a, row->id);
    struct plx_vdi *vdi;
    int error;

    if (held) {
        bool suits;

        lock(a);
        suits = plx_vdi_use(held->vdi, &open);
        unlock(a);
        *ret_vdi = held->vdi;
        if (suits)
            return 0;
        plx_attach_vdi_close(a, held->vdi); /* if that fails its lock is left (A2) */
    }
    held = new_held(fault);
    if (!held)
        return PLX_ERR_NOMEM;
    error = lock_vdi(a, row, &held->lock, &open.take_over, fault);
    if (error) {
        free(held);
        return error;
    }
    error = check_locked(a, &held->lock, open.take_over, fault);
    if (error) {
        if (!open.take_over)
            plx_registry_vdi_unlock(a->registry, &held->lock, NULL);
        free(held);
        return error;
    }
    open.slot = row->slot;
    open.epoch = held->lock.epoch;
    if (!plx_witness_load(a->registry, row->id, &held->kept))
        open.witness = &held->kept;
    lock(a);
    error = plx_vdi_open(a->store, &open, &vdi, fault);
    unlock(a);
    if (error) {
        struct plx_registry_store now;
        struct plx_vdi_info info;

        if (error == PLX_ERR_REGISTRY && !plx_registry_store_get(a->registry, a->row.uuid, &now) &&
            now.doubt[0])
            plx_fault_set(fault, error,
                          "%s/%.150s cannot be opened: %.255s; 'parallax store rebuild-registry' "
                          "makes it anew from the store",
                          a->known.name, row->name, now.doubt);
        /* A2: not while the record may name us. */
        lock(a);
        if (plx_vdi_read_info(a->store, row->slot, &info, NULL) == 0 &&
            info.owner != a->instance.row.id && !open.take_over)
            plx_registry_vdi_unlock(a->registry, &held->lock, NULL);
        unlock(a);
        free(held);
        return error;
    }
    hold_vdi(a, held, vdi);
    held->behind = open.take_over ? settle_from(newest_of(a, vdi)) : 0;
    look_at_clock(a, held, false, &clock);
    *ret_vdi = vdi;
    return 0;
}

/* Where there is no room for it, other disks may give some back. */
int plx_attach_vdi_open(struct plx_attach *a, const char *name, const char *snapshot,
                        const struct plx_attach_vdi_options *options, struct plx_vdi **ret_vdi,
                        struct plx_fault *fault)
{
    uint64_t since_ns = plx_patience_begin();
    struct plx_registry_vdi row;
    struct plx_fault why = {0};
    int error;

    do {
        error = get_vdi(a, name, &row, &why);
        if (!error && snapshot)
            return open_snapshot(a, &row, snapshot, ret_vdi, fault);
        if (!error && a->options.read_only)
            return plx_fault_set(fault, PLX_ERR_READONLY, "the store is open read-only");
        if (!error)
            error = open_for_writing(a, &row, options, ret_vdi, &why);
        if (error == PLX_ERR_NOSPACE)
            plx_attach_let_go(a, NULL);
    } while (error == PLX_ERR_NOSPACE && plx_attach_waits(a, since_ns, &why));
    if (error == PLX_ERR_NOSPACE)
        return plx_fault_set(fault, PLX_ERR_BUSY,
                             "%s: there is no room for the metadata that opening it takes; let "
                             "snapshots go or add space, then try again",
                             name);
    return error ? plx_fault_set(fault, error, "%s", why.text) : 0;
}

int plx_attach_vdi_close(struct plx_attach *a, struct plx_vdi *vdi)
{
    struct held_vdi *held = find_vdi(a, vdi), **link = &a->vdis;
    struct plx_vdi_clock clock;
    struct plx_vdi_info info;
    int error;

    if (!plx_vdi_is_snapshot(vdi))
        look_at_clock(a, held, true, &clock);
    lock(a);
    plx_vdi_get_info(vdi, &info);
    error = plx_vdi_close(vdi);
    unlock(a);
    if (!error && held->behind)
        error = settle(a, &held->lock, &info, held->behind, NULL);
    if (!error && held->lock.instance) /* A2 */
        error = unlock_closed(a, &held->lock, info.slot, closings(a));
    release_instant(a, held->hold);
    while (*link != held)
        link = &(*link)->next;
    *link = held->next;
    free(held);
    return error;
}

/* A14 */
int plx_attach_vdi_leave(struct plx_attach *a, struct plx_vdi *vdi)
{
    struct held_vdi *held = find_vdi(a, vdi), **link = &a->vdis;
    int error;

    if (!a->options.reopens || plx_vdi_is_snapshot(vdi))
        return plx_attach_vdi_close(a, vdi);
    lock(a);
    error = plx_vdi_rest(vdi);
    unlock(a);
    if (error)
        return plx_attach_vdi_close(a, vdi);
    while (*link != held)
        link = &(*link)->next;
    *link = held->next;
    wait_to_be_asked(a, held);
    return 0;
}

unsigned plx_attach_unasked(const struct plx_attach *a, uint64_t *ret_changes)
{
    unsigned count = 0;

    for (const struct held_vdi *held = a->unasked; held; held = held->next)
        count++;
    if (ret_changes)
        *ret_changes = a->unasked_changes;
    return count;
}

static void let_go(struct plx_attach *a, const char *id)
{
    struct held_vdi *held = ask_for(a, id);
    struct plx_vdi_info info;
    struct plx_fault why;
    int error;

    if (!held)
        return;
    lock(a);
    plx_vdi_get_info(held->vdi, &info);
    unlock(a);
    error = plx_attach_vdi_close(a, held->vdi);
    if (!error)
        return;
    plx_fault_set(&why, error, "virtual disk %s: cannot be closed; the next opening recovers it",
                  info.name);
    env_event(&a->env, error, why.text);
}

/* All of them, side by side. What the registry is told waits for its next change (A13). */
static void let_all_go(struct plx_attach *a)
{
    for (struct held_vdi *held = a->unasked; held; held = held->next) {
        lock(a);
        plx_vdi_begin_close(held->vdi);
        unlock(a);
    }
    a->together = true;
    while (a->unasked)
        let_go(a, NULL);
    a->together = false;
}

void plx_attach_let_go(struct plx_attach *a, const char *name)
{
    struct plx_registry_vdi row;
    struct plx_fault why;
    int error;

    if (!a->unasked)
        return;
    if (name) {
        if (plx_registry_vdi_get(a->registry, a->row.id, name, &row) == 0)
            let_go(a, row.id);
        return;
    }
    let_all_go(a);
    error = plx_registry_settle(a->registry);
    if (!error)
        return;
    if (plx_registry_is_behind(a->registry))
        plx_fault_set(
            &why, error,
            "virtual disks that were just closed may still be locked, for the registry "
            "could not be told: %.200s; that is tried again whenever this process uses the "
            "registry, at the latest when it ends",
            plx_registry_error(a->registry));
    else
        plx_fault_set(&why, error,
                      "a virtual disk that was just closed was not this process's any more; "
                      "'parallax store check %s' compares registry and store",
                      a->known.name);
    env_event(&a->env, error, why.text);
}

static int fill_parent(struct plx_attach *a, const char *parent, const char *snapshot,
                       struct plx_vdi_create_options *options, struct plx_registry_vdi *row,
                       struct plx_fault *fault)
{
    struct plx_registry_vdi from;
    int error = get_vdi(a, parent, &from, fault);

    if (error)
        return error;
    if (!snapshot)
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "a clone starts from a snapshot: %s/%s@SNAPSHOT", a->known.name,
                             parent);
    error = plx_attach_snapshot_resolve(a, parent, snapshot, &options->parent_seq, fault);
    if (error)
        return error;
    if (!options->parent_seq)
        return plx_fault_set(fault, PLX_ERR_INVALID, "%s/%s has no snapshot 0; they begin with 1",
                             a->known.name, parent);
    error = check_door(a, &from, fault);
    if (error)
        return error;
    options->is_clone = true;
    options->parent_slot = from.slot;
    options->sector_size = from.sector_size;
    if (!options->size_bytes)
        row->size_bytes = from.size_bytes; /* corrected when the snapshot's is known */
    memcpy(row->parent, from.id, sizeof row->parent);
    row->parent_seq = options->parent_seq;
    return 0;
}

/* A3 */
static int create_filled(struct plx_attach *a, struct plx_vdi_create_options *options,
                         struct plx_registry_vdi *row, struct plx_vdi_info *ret_info,
                         struct plx_fault *fault)
{
    struct plx_registry_lock held = {.instance = a->instance.row.id, .epoch = 1};
    struct plx_store_info info;
    int error;

    plx_store_get_info(a->store, &info);
    error = plx_registry_vdi_create(a->registry, row, info.vdi_slots, row);
    if (error)
        return plx_registry_fault(a->registry, error, fault);
    memcpy(held.vdi, row->id, sizeof held.vdi);
    options->slot = row->slot;
    lock(a);
    error = plx_vdi_create(a->store, options, ret_info, fault);
    unlock(a);
    if (error) {
        struct plx_vdi_info now;
        struct plx_fault why = {0};
        int undone;

        lock(a); /* A9: nothing but a record of our own is undone */
        undone = plx_door_read(a->store, row, &now, &why);
        if (!undone)
            undone = plx_vdi_delete(a->store, row->slot, false, NULL);
        unlock(a);
        /* Else it stays locked, and recovery finds out what the record says. EXISTS: nothing was
         * written, and a row would say that the one in the slot has gone. */
        if (!undone || undone == PLX_ERR_NOT_FOUND || error == PLX_ERR_EXISTS)
            finish_creation(a, &held, NULL);
        in_doubt(a, undone, &why);
        return error;
    }
    if (ret_info->size_bytes != row->size_bytes)
        error = plx_registry_vdi_resize(a->registry, &held, ret_info->size_bytes);
    if (!error)
        error = unlock_closed(a, &held, row->slot, closings(a));
    return error ? plx_registry_fault(a->registry, error, fault) : 0;
}

int plx_attach_vdi_create(struct plx_attach *a, const struct plx_vdi_create_options *options,
                          const char *parent, const char *snapshot, struct plx_vdi_info *ret_info,
                          struct plx_fault *fault)
{
    struct plx_vdi_create_options filled = *options;
    struct plx_registry_vdi row = {
        .store = a->row.id, .size_bytes = options->size_bytes, .owner = a->instance.row.id};
    struct plx_registry_vdi from;
    uint64_t hold = 0;
    int error = 0;

    filled.created_ns = row.created_ns = env_now(&a->env);
    if (plx_uuid_is_zero(&filled.id))
        env_random(&a->env, filled.id.b, sizeof filled.id.b);
    filled.id.b[6] = (filled.id.b[6] & 0x0f) | 0x40; /* a random UUID (RFC 9562) */
    filled.id.b[8] = (filled.id.b[8] & 0x3f) | 0x80;
    plx_uuid_text(&filled.id, row.id);
    snprintf(row.name, sizeof row.name, "%s", options->name);
    if (parent)
        error = fill_parent(a, parent, snapshot, &filled, &row, fault);
    row.sector_size = filled.sector_size;
    if (error)
        return error;
    if (!parent && (row.size_bytes < PLX_VDI_SIZE_MIN || row.size_bytes > PLX_VDI_SIZE_MAX))
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "size %llu: a virtual disk has 4 KiB to 256 TiB",
                             (unsigned long long)row.size_bytes);
    if (parent)
        error = hold_instant(a, row.parent, row.parent_seq, &hold, fault); /* A5 */
    if (!error)
        error = create_filled(a, &filled, &row, ret_info, fault);
    if (error == PLX_ERR_NOT_FOUND && parent && get_vdi(a, parent, &from, NULL) == 0)
        error = plx_attach_explain_missing(a, &from, snapshot, filled.parent_seq, fault);
    release_instant(a, hold);
    return error;
}

/* A6. What dead readers hold is held by nobody. */
static int release_dead(struct plx_attach *a, const char *vdi, struct plx_fault *fault);

/* *ret_soon: all who read it are commands of this host. */
static int refuse_read(struct plx_attach *a, const struct plx_registry_vdi *row,
                       const struct plx_registry_hold *holds, size_t count, bool *ret_soon,
                       struct plx_fault *fault)
{
    struct plx_registry_instance reader;
    char who[160] = "";

    if (plx_registry_instance_get(a->registry, holds[0].instance, &reader) == 0)
        snprintf(who, sizeof who, " by %s (pid %lld) on host %s", reader.role,
                 (long long)reader.pid, reader.host_name);
    *ret_soon = true;
    for (size_t i = 0; i < count; i++)
        *ret_soon = *ret_soon && plx_attach_ends_soon(a, holds[i].instance);
    return plx_fault_set(fault, PLX_ERR_BUSY,
                         "%s/%.200s@%llu is being read or cloned%s; close it first", a->known.name,
                         row->name, (unsigned long long)holds[0].seq, who);
}

/* Whose history is to go. thin NULL: all of it. BUSY: somebody reads who enters no holds (A16). */
static int begin_intent(struct plx_attach *a, const struct plx_registry_lock *held,
                        const struct plx_thin *thin, uint64_t **ret_kept, size_t *ret_count,
                        struct plx_fault *fault)
{
    int error = plx_registry_intent_begin(a->registry, held, thin ? thin->marks : NULL,
                                          thin ? thin->mark_count : 0, ret_kept, ret_count);

    if (error)
        return plx_registry_fault(a->registry, error, fault);
    if ((thin && thin->dry_run) || !plx_hold_is_shared(plx_registry_locks(a->registry)))
        return 0;
    free(*ret_kept);
    plx_registry_intent_end(a->registry, held);
    return plx_fault_set(fault, PLX_ERR_BUSY,
                         "store %s: a process that cannot write to its volume reads snapshots, and "
                         "none goes until it has ended",
                         a->known.name);
}

static int check_unread(struct plx_attach *a, const struct plx_registry_vdi *row,
                        const struct plx_registry_lock *held, bool *ret_soon,
                        struct plx_fault *fault)
{
    struct plx_registry_hold *holds = NULL;
    uint64_t *kept = NULL;
    size_t count = 0;
    int error = release_dead(a, row->id, fault);

    if (error)
        return error;
    error = begin_intent(a, held, NULL, &kept, &count, fault);
    if (error)
        return error;
    error = plx_registry_hold_list(a->registry, row->id, &holds, &count);
    if (error)
        plx_registry_fault(a->registry, error, fault);
    else if (count)
        error = refuse_read(a, row, holds, count, ret_soon, fault);
    free(kept);
    free(holds);
    if (error)
        plx_registry_intent_end(a->registry, held);
    return error;
}

/* A9: of a disk that is ours. */
static int check_gone(struct plx_attach *a, const struct plx_registry_vdi *row, bool *ret_back,
                      struct plx_fault *fault)
{
    int error;

    lock(a);
    error = plx_door_is_gone(a->store, row, ret_back, fault);
    unlock(a);
    return in_doubt(a, error, fault);
}

/* *ret_soon: BUSY, nothing is held, and it is worth asking again. */
static int delete_once(struct plx_attach *a, const char *name, bool lost, bool *ret_soon,
                       struct plx_fault *fault)
{
    struct plx_registry_lock held;
    struct plx_registry_vdi row;
    struct plx_vdi_info info;
    bool recover, lives, back = false;
    int error = get_vdi(a, name, &row, fault);

    *ret_soon = false;
    if (!error)
        error = lock_vdi(a, &row, &held, &recover, fault);
    if (error)
        return error;
    error = lost ? check_gone(a, &row, &back, fault) : check_locked(a, &held, recover, fault);
    if (!error)
        error = check_unread(a, &row, &held, ret_soon, fault);
    if (error) {
        if (!recover)
            plx_registry_vdi_unlock(a->registry, &held, NULL);
        return error;
    }
    lock(a);
    error = lost && !back ? plx_vdi_give_up(a->store, row.slot, fault)
                          : plx_vdi_delete(a->store, row.slot, recover || back, fault);
    lives = error && plx_vdi_read_info(a->store, row.slot, &info, NULL) == 0 &&
            info.state == PLX_VDI_LIVE;
    unlock(a);
    if (error) {
        if (lives && !recover) /* else the record may be gone: A3, as below */
            plx_registry_vdi_unlock(a->registry, &held, NULL);
        return error;
    }
    error = plx_registry_vdi_delete(a->registry, &held);
    if (error) /* A3: it stays locked, for the record is gone; recovery finishes it, or a repetition
                */
        return plx_registry_fault(a->registry, error, fault);
    plx_registry_put_off(a->registry, PLX_PUT_OFF);
    plx_registry_vdi_unlock(a->registry, &held, NULL);
    plx_registry_put_off(a->registry, PLX_NOW);
    plx_registry_collection_want(a->registry, a->row.id); /* if not: somebody will ask */
    return 0;
}

/* Who reads is waited for without the disk's lock, which he may want. */
int plx_attach_vdi_delete(struct plx_attach *a, const char *name, bool lost,
                          struct plx_fault *fault)
{
    uint64_t since_ns = plx_patience_begin();
    struct plx_fault why = {0};
    bool soon;
    int error;

    do
        error = delete_once(a, name, lost, &soon, &why);
    while (soon && plx_attach_waits(a, since_ns, &why));
    return error ? plx_fault_set(fault, error, "%s", why.text) : 0;
}

/* ---- Labels and size ---- */

static int run_request(struct plx_attach *a, struct plx_vdi *vdi, struct plx_request *request,
                       struct plx_fault *fault)
{
    int error;

    lock(a);
    error = plx_vdi_run(vdi, request);
    unlock(a);
    return error ? plx_fault_set(fault, error, "%s", request->fault.text) : 0;
}

int plx_attach_label(struct plx_attach *a, struct plx_vdi *vdi, const char *label, uint64_t seq,
                     uint64_t time_ns, struct plx_fault *fault)
{
    struct held_vdi *held = find_vdi(a, vdi);
    struct plx_request request = {.op = PLX_LABEL, .seq = seq, .remove = seq == 0};
    struct plx_registry_label row;
    struct plx_vdi_info info;
    uint64_t newest;
    char why[200];
    int error = plx_name_check("label", label, why, sizeof why);

    if (error)
        return plx_fault_set(fault, error, "%s", why);
    snprintf(request.label, sizeof request.label, "%s", label);
    lock(a);
    plx_vdi_get_info(vdi, &info);
    unlock(a);
    error = plx_registry_label_get(a->registry, held->lock.vdi, label, &row);
    if (error && error != PLX_ERR_NOT_FOUND)
        return plx_registry_fault(a->registry, error, fault);
    if (request.remove) {
        if (error)
            return plx_fault_set(fault, error, "%s/%.200s has no label %s", a->known.name,
                                 info.name, label);
        request.seq = row.seq;
    } else if (!error) {
        return row.seq == seq
                   ? 0
                   : plx_fault_set(fault, PLX_ERR_EXISTS,
                                   "label %s names %s/%.150s@%llu already; remove it first", label,
                                   a->known.name, info.name, (unsigned long long)row.seq);
    } else if ((error = plx_registry_has_room(a->registry))) { /* before the log hears of it */
        return plx_registry_fault(a->registry, error, fault);
    }
    newest = newest_of(a, held->vdi);
    error = run_request(a, vdi, &request, fault);
    if (error)
        return error;
    row = (struct plx_registry_label){.seq = seq, .time_ns = time_ns};
    snprintf(row.name, sizeof row.name, "%s", label);
    error = request.remove ? plx_registry_label_remove(a->registry, &held->lock, label)
                           : plx_registry_label_set(a->registry, &held->lock, &row);
    note_told(held, newest, error);
    return error ? plx_registry_fault(a->registry, error, fault) : 0;
}

int plx_attach_resize(struct plx_attach *a, struct plx_vdi *vdi, uint64_t size_bytes,
                      struct plx_fault *fault)
{
    struct plx_request request = {.op = PLX_RESIZE, .length = size_bytes};
    struct held_vdi *held = find_vdi(a, vdi);
    int error = run_request(a, vdi, &request, fault);

    if (error)
        return error;
    error = plx_registry_vdi_resize(a->registry, &held->lock, size_bytes);
    note_told(held, newest_of(a, held->vdi), error);
    return error ? plx_registry_fault(a->registry, error, fault) : 0;
}

/* ---- Protection ---- */

int plx_attach_protect(struct plx_attach *a, struct plx_vdi *vdi,
                       const struct plx_protection *protection, struct plx_fault *fault)
{
    struct held_vdi *held = find_vdi(a, vdi);
    int error;

    lock(a);
    error = plx_vdi_set_protection(vdi, protection, fault);
    unlock(a);
    if (error)
        return error;
    error = plx_policy_keep(a->registry, held->lock.vdi, protection);
    note_told(held, newest_of(a, held->vdi), error);
    return error ? plx_registry_fault(a->registry, error, fault) : 0;
}

/* ---- Rewinding ---- */

/* "before-rewind-20261121T062000.010Z" */
static void rewind_label(uint64_t now_ns, char ret_label[PLX_REWIND_LABEL])
{
    time_t seconds = (time_t)(now_ns / 1000000000);
    char date[20];
    struct tm tm;

    gmtime_r(&seconds, &tm);
    strftime(date, sizeof date, "%Y%m%dT%H%M%S", &tm);
    snprintf(ret_label, PLX_REWIND_LABEL, "before-rewind-%s.%03uZ", date,
             (unsigned)(now_ns / 1000000 % 1000));
}

/* One that is not taken: two rewinds may share a millisecond. */
static int choose_label(struct plx_attach *a, const char *vdi, char ret_label[PLX_REWIND_LABEL])
{
    uint64_t now_ns = env_now(&a->env);
    struct plx_registry_label row;
    int error;

    do {
        rewind_label(now_ns, ret_label);
        now_ns += 1000000;
        error = plx_registry_label_get(a->registry, vdi, ret_label, &row);
    } while (!error);
    return error == PLX_ERR_NOT_FOUND ? 0 : error;
}

/* What the registry is to know of it. */
static int enter_rewind(struct plx_attach *a, struct held_vdi *held, uint64_t seq,
                        const char *label, const struct plx_snapshot_info *before)
{
    struct plx_registry_label row = {.seq = before->seq, .time_ns = before->time_ns};
    char detail[128];
    int error;

    snprintf(row.name, sizeof row.name, "%s", label);
    snprintf(detail, sizeof detail, "to snapshot %llu; before: %llu, %s", (unsigned long long)seq,
             (unsigned long long)before->seq, label);
    error = plx_registry_label_set(a->registry, &held->lock, &row);
    return error ? error
                 : plx_registry_event_add(a->registry, "vdi rewind", held->lock.vdi, detail);
}

int plx_attach_rewind(struct plx_attach *a, struct plx_vdi *vdi, uint64_t seq,
                      char ret_label[PLX_REWIND_LABEL], struct plx_snapshot_info *ret_before,
                      struct plx_fault *fault)
{
    struct plx_rewind_options options = {.seq = seq, .label = ret_label};
    struct held_vdi *held = find_vdi(a, vdi);
    int error = choose_label(a, held->lock.vdi, ret_label);

    *ret_before = (struct plx_snapshot_info){0};
    if (!error)
        error = plx_registry_has_room(a->registry);
    if (error)
        return plx_registry_fault(a->registry, error, fault);
    lock(a);
    error = plx_vdi_rewind(vdi, &options, ret_before, fault);
    unlock(a);
    if (ret_before->seq) /* the label, perhaps */
        note_told(held, ret_before->seq, error);
    if (error)
        return error;
    error = enter_rewind(a, held, seq, ret_label, ret_before);
    note_told(held, ret_before->seq, error);
    return error ? plx_registry_fault(a->registry, error, fault) : 0;
}

/* ---- Letting snapshots go ---- */

/* What dead readers hold is held by nobody. */
static int release_dead(struct plx_attach *a, const char *vdi, struct plx_fault *fault)
{
    struct plx_registry_instance row;
    struct plx_registry_hold *list = NULL;
    size_t count = 0;
    bool dead = false;
    int error = plx_registry_hold_list(a->registry, vdi, &list, &count);

    for (size_t i = 0; i < count && !error && !dead; i++) {
        if (list[i].instance == a->instance.row.id)
            continue;
        error = plx_registry_instance_get(a->registry, list[i].instance, &row);
        dead = !error && is_dead(a, &row);
        if (error == PLX_ERR_NOT_FOUND) /* it has just ended */
            error = 0;
    }
    free(list);
    if (error)
        return plx_registry_fault(a->registry, error, fault);
    return dead ? plx_attach_recover(a, fault) : 0;
}

/* A4: a label that the registry does not know would not be kept. */
static int catch_up(struct plx_attach *a, struct held_vdi *held, struct plx_fault *fault)
{
    struct plx_vdi_info info;
    int error;

    if (!held->behind)
        return 0;
    lock(a);
    plx_vdi_get_info(held->vdi, &info);
    unlock(a);
    error = settle(a, &held->lock, &info, held->behind, fault);
    held->behind = error ? held->behind : 0;
    return error;
}

/* With their snapshots, and after them: a label that is left over says too much, not too little. */
static int remove_labels(struct plx_attach *a, struct held_vdi *held, const struct plx_thin *thin,
                         struct plx_fault *fault)
{
    int error = 0;

    for (size_t i = 0; i < thin->mark_count && !error; i++) {
        const struct plx_thin_mark *mark = &thin->marks[i];
        struct plx_registry_label row;

        if (!mark->gone || !mark->label)
            continue;
        error = plx_registry_label_get(a->registry, held->lock.vdi, mark->label, &row);
        if (error && error != PLX_ERR_NOT_FOUND)
            plx_registry_fault(a->registry, error, fault);
        else
            error = !error && row.seq == mark->seq
                        ? plx_attach_label(a, held->vdi, mark->label, 0, 0, fault)
                        : 0;
    }
    note_told(held, newest_of(a, held->vdi), error);
    return error;
}

static bool waits(struct plx_attach *a, const struct plx_vdi *vdi, const struct plx_thin *thin)
{
    bool waits;

    lock(a);
    waits = plx_vdi_thin_waits(vdi, thin);
    unlock(a);
    return waits;
}

int plx_attach_thin(struct plx_attach *a, struct plx_vdi *vdi, const struct plx_thin *thin,
                    struct plx_thinned *ret_thinned, struct plx_fault *fault)
{
    struct held_vdi *held = find_vdi(a, vdi);
    struct plx_thin slice = *thin;
    struct plx_vdi_info before, after;
    uint64_t *kept = NULL;
    int error, ended;

    if (thin->upto <= thin->after)
        return plx_fault_set(fault, PLX_ERR_INVALID, "there is no snapshot after %llu up to %llu",
                             (unsigned long long)thin->after, (unsigned long long)thin->upto);
    if (waits(a, vdi, thin)) {
        *ret_thinned = (struct plx_thinned){.upto = thin->after, .waits = true};
        return 0;
    }
    error = catch_up(a, held, fault);
    if (!error)
        error = release_dead(a, held->lock.vdi, fault);
    if (error)
        return error;
    error = begin_intent(a, &held->lock, thin, &kept, &slice.kept_count, fault);
    if (!error) {
        slice.kept = kept;
        lock(a);
        plx_vdi_get_info(vdi, &before);
        error = plx_vdi_thin(vdi, &slice, ret_thinned, fault);
        plx_vdi_get_info(vdi, &after);
        unlock(a);
        free(kept);
        if (after.rewinds_held < before.rewinds_held) /* what only they had is garbage */
            plx_registry_collection_want(a->registry, a->row.id);
    }
    ended = plx_registry_intent_end(a->registry, &held->lock);
    if (ended && !error)
        error = plx_registry_fault(a->registry, ended, fault);
    if (!thin->dry_run) {
        struct plx_fault why;
        int left = remove_labels(a, held, thin, error ? &why : fault);

        error = error ? error : left;
    }
    return error;
}

int plx_attach_data_room(struct plx_attach *a, uint64_t enough, uint64_t *ret_blocks,
                         struct plx_fault *fault)
{
    struct plx_counters counters;
    struct plx_store_info info;
    uint64_t claimable = 0;
    int error = 0;

    lock(a);
    plx_store_counters(a->store, &counters);
    plx_store_get_info(a->store, &info);
    unlock(a);
    if (counters.data_free_blocks < enough)
        error = plx_registry_extent_room(a->registry, a->row.id, keep_unused(a),
                                         plx_div_up(enough, info.extent_blocks), &claimable);
    if (error)
        return plx_registry_fault(a->registry, error, fault);
    *ret_blocks = plx_min_u64(counters.data_free_blocks + claimable, enough);
    return 0;
}

uint64_t plx_attach_reserve_extents(struct plx_attach *a)
{
    return keep_unused(a);
}

int plx_attach_move_room(struct plx_attach *a, struct plx_fault *fault)
{
    uint64_t enough, room = 0;
    struct plx_store_info info;
    int error;

    lock(a);
    plx_store_get_info(a->store, &info);
    unlock(a);
    enough = info.extents * info.extent_blocks / MOVE_SHARE;
    error = plx_attach_data_room(a, enough, &room, fault);
    if (error || room >= enough)
        return error;
    return plx_fault_set(fault, PLX_ERR_NOSPACE,
                         "store %s: less than a sixteenth of it is free, which is left to writes; "
                         "add space, or delete what is not needed",
                         info.name);
}

/* ---- Which snapshot is meant ---- */

static bool take_digits(const char **at, unsigned count, unsigned *ret)
{
    unsigned value = 0;

    for (; count; count--, ++*at) {
        if (!isdigit((unsigned char)**at))
            return false;
        value = value * 10 + (unsigned)(**at - '0');
    }
    *ret = value;
    return true;
}

static bool take_fraction(const char **at, uint64_t *ret_ns)
{
    uint64_t scale = 100000000;

    *ret_ns = 0;
    if (**at != '.')
        return true;
    ++*at;
    if (!isdigit((unsigned char)**at))
        return false;
    for (; isdigit((unsigned char)**at); ++*at, scale /= 10)
        *ret_ns += scale * (unsigned)(**at - '0');
    return true;
}

static bool take_zone(const char *at, long *ret_seconds)
{
    unsigned hours, minutes;
    int sign = *at == '-' ? -1 : 1;

    *ret_seconds = 0;
    if (strcmp(at, "Z") == 0 || strcmp(at, "z") == 0)
        return true;
    if (*at != '+' && *at != '-')
        return false;
    at++;
    if (!take_digits(&at, 2, &hours))
        return false;
    at += *at == ':';
    if (!take_digits(&at, 2, &minutes) || *at || hours > 23 || minutes > 59)
        return false;
    *ret_seconds = sign * (long)(hours * 3600 + minutes * 60);
    return true;
}

bool plx_time_parse(const char *text, uint64_t *ret_time_ns)
{
    unsigned year, month, day, hour, minute, second;
    const char *at = text;
    struct tm tm = {0};
    uint64_t fraction;
    bool dashes, local;
    long zone = 0;
    time_t seconds;

    if (!take_digits(&at, 4, &year))
        return false;
    dashes = *at == '-';
    at += dashes;
    if (!take_digits(&at, 2, &month) || (dashes && *at++ != '-') || !take_digits(&at, 2, &day) ||
        (*at != 'T' && *at != 't' && *at != ' '))
        return false;
    at++;
    if (!take_digits(&at, 2, &hour) || (dashes && *at++ != ':') || !take_digits(&at, 2, &minute) ||
        (dashes && *at++ != ':') || !take_digits(&at, 2, &second) || !take_fraction(&at, &fraction))
        return false;
    local = *at == 0;
    if ((!local && !take_zone(at, &zone)) || year < 1970 || month < 1 || month > 12 || day < 1 ||
        day > 31 || hour > 23 || minute > 59 || second > 60)
        return false;
    tm = (struct tm){.tm_year = (int)year - 1900,
                     .tm_mon = (int)month - 1,
                     .tm_mday = (int)day,
                     .tm_hour = (int)hour,
                     .tm_min = (int)minute,
                     .tm_sec = (int)second,
                     .tm_isdst = -1};
    seconds = local ? mktime(&tm) : timegm(&tm) - zone;
    if (seconds < 0 || (uint64_t)seconds >= UINT64_MAX / 1000000000u) /* until 2554 */
        return false;
    *ret_time_ns = (uint64_t)seconds * 1000000000u + fraction;
    return true;
}

bool plx_instant_parse(const char *text, uint64_t now_ns, uint64_t *ret_time_ns)
{
    uint64_t ago_ns;

    if (text[0] != '-')
        return plx_time_parse(text, ret_time_ns);
    if (!plx_duration_parse(text + 1, &ago_ns) || ago_ns > now_ns)
        return false;
    *ret_time_ns = now_ns - ago_ns;
    return true;
}

#define TIME_TEXT 32

static const char *time_text(uint64_t time_ns, char ret_text[TIME_TEXT])
{
    time_t seconds = (time_t)(time_ns / 1000000000);
    char date[24];
    struct tm tm;

    gmtime_r(&seconds, &tm);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(ret_text, TIME_TEXT, "%s.%03uZ", date, (unsigned)(time_ns / 1000000 % 1000));
    return ret_text;
}

/* Nobody knows yet which snapshot that will be; the newest one is `newest`, for none is later. */
static int in_future(struct plx_attach *a, const struct plx_registry_vdi *row, const char *text,
                     const struct plx_snapshot_info *newest, struct plx_fault *fault)
{
    char time[TIME_TEXT];

    return plx_fault_set(
        fault, PLX_ERR_NOT_FOUND,
        "%s/%.100s: %.40s lies in the future; its newest snapshot is %llu, of %s: give "
        "that number, or an earlier time",
        a->known.name, row->name, text, (unsigned long long)newest->seq,
        time_text(newest->time_ns, time));
}

static int resolve_time(struct plx_attach *a, const struct plx_registry_vdi *row, const char *text,
                        uint64_t *ret_seq, struct plx_fault *fault)
{
    struct plx_snapshot_info info;
    uint64_t time_ns, now_ns = env_now(&a->env);
    int error;

    if (!plx_instant_parse(text, now_ns, &time_ns)) {
        if (isalpha((unsigned char)text[0]))
            plx_fault_set(fault, PLX_ERR_NOT_FOUND,
                          "%s/%s has no snapshot with the label %s; 'parallax snap list' shows "
                          "what there is",
                          a->known.name, row->name, text);
        else
            plx_fault_set(
                fault, PLX_ERR_NOT_FOUND,
                "%s/%s: %.40s is no time, and no label begins like that; a time is written "
                "2026-11-21T06:20:00Z, or -90s for 90 seconds ago",
                a->known.name, row->name, text);
        return plx_attach_explain_missing(a, row, text, 0, fault);
    }
    error = check_door(a, row, fault);
    if (error)
        return error;
    lock(a);
    error = plx_snapshot_at(a->store, row->slot, time_ns, &info, fault);
    unlock(a);
    if (!error && time_ns > now_ns && time_ns > info.time_ns)
        return in_future(a, row, text, &info, fault);
    if (error == PLX_ERR_NOT_FOUND) {
        plx_fault_set(fault, error, "%s/%s has no snapshot at or before %s", a->known.name,
                      row->name, text);
        return plx_attach_explain_missing(a, row, text, 0, fault);
    }
    if (!error)
        *ret_seq = info.seq;
    return error;
}

int plx_attach_snapshot_resolve(struct plx_attach *a, const char *name, const char *snapshot,
                                uint64_t *ret_seq, struct plx_fault *fault)
{
    struct plx_registry_label label;
    struct plx_registry_vdi row;
    char *end;
    int error = get_vdi(a, name, &row, fault);

    if (error)
        return error;
    if (snapshot[0] && strspn(snapshot, "0123456789") == strlen(snapshot)) {
        *ret_seq = strtoull(snapshot, &end, 10);
        return 0;
    }
    error = plx_registry_label_get(a->registry, row.id, snapshot, &label);
    if (!error)
        *ret_seq = label.seq;
    else if (error == PLX_ERR_NOT_FOUND || error == PLX_ERR_INVALID)
        return resolve_time(a, &row, snapshot, ret_seq, fault);
    return error ? plx_registry_fault(a->registry, error, fault) : 0;
}
