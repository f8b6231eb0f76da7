/* history.c - what is done to the history of a disk that is open: labels, protection, rewinding,
 * letting go (ATTACH-4 to ATTACH-6, ATTACH-11). Invariants, threads and crash story: attach.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/attach_inside.h"
#include "registry/collections.h"
#include "registry/embedded.h"
#include "registry/holds.h"
#include "registry/policy.h"

#define LOW_SHARE 32u      /* space is low below this share of the store ... */
#define LOW_EXTENTS_MAX 32 /* ... or so many extents */
#define MOVE_SHARE 16u     /* of the store: blocks are moved only while that much is free */

/* ---- Labels and size ---- */

static int run_request(struct plx_attach *a, struct plx_vdi *vdi, struct plx_request *request,
                       struct plx_fault *fault)
{
    int error;

    plx_attach_lock(a);
    error = plx_vdi_run(vdi, request);
    plx_attach_unlock(a);
    return error ? plx_fault_set(fault, error, "%s", request->fault.text) : 0;
}

int plx_attach_label(struct plx_attach *a, struct plx_vdi *vdi, const char *label, uint64_t seq,
                     uint64_t time_ns, struct plx_fault *fault)
{
    struct plx_opened_vdi *opened = plx_attach_opened(a, vdi);
    struct plx_request request = {.op = PLX_LABEL, .seq = seq, .remove = seq == 0};
    struct plx_registry_label row;
    struct plx_vdi_info info;
    uint64_t newest;
    char why[200];
    int error = plx_name_check("label", label, why, sizeof why);

    if (error)
        return plx_fault_set(fault, error, "%s", why);
    snprintf(request.label, sizeof request.label, "%s", label);
    plx_attach_lock(a);
    plx_vdi_get_info(vdi, &info);
    plx_attach_unlock(a);
    error = plx_registry_label_get(a->registry, opened->lock.vdi, label, &row);
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
    newest = plx_attach_newest_of(a, opened->vdi);
    error = run_request(a, vdi, &request, fault);
    if (error)
        return error;
    row = (struct plx_registry_label){.seq = seq, .time_ns = time_ns};
    snprintf(row.name, sizeof row.name, "%s", label);
    error = request.remove ? plx_registry_label_remove(a->registry, &opened->lock, label)
                           : plx_registry_label_set(a->registry, &opened->lock, &row);
    plx_attach_note_told(opened, newest, error);
    return error ? plx_registry_fault(a->registry, error, fault) : 0;
}

int plx_attach_resize(struct plx_attach *a, struct plx_vdi *vdi, uint64_t size_bytes,
                      struct plx_fault *fault)
{
    struct plx_request request = {.op = PLX_RESIZE, .length = size_bytes};
    struct plx_opened_vdi *opened = plx_attach_opened(a, vdi);
    int error = run_request(a, vdi, &request, fault);

    if (error)
        return error;
    error = plx_registry_vdi_resize(a->registry, &opened->lock, size_bytes);
    plx_attach_note_told(opened, plx_attach_newest_of(a, opened->vdi), error);
    return error ? plx_registry_fault(a->registry, error, fault) : 0;
}

/* ---- Protection ---- */

int plx_attach_protect(struct plx_attach *a, struct plx_vdi *vdi,
                       const struct plx_protection *protection, struct plx_fault *fault)
{
    struct plx_opened_vdi *opened = plx_attach_opened(a, vdi);
    int error;

    plx_attach_lock(a);
    error = plx_vdi_set_protection(vdi, protection, fault);
    plx_attach_unlock(a);
    if (error)
        return error;
    error = plx_policy_keep(a->registry, opened->lock.vdi, protection);
    plx_attach_note_told(opened, plx_attach_newest_of(a, opened->vdi), error);
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
    uint64_t now_ns = plx_attach_env_now(&a->env);
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
static int enter_rewind(struct plx_attach *a, struct plx_opened_vdi *opened, uint64_t seq,
                        const char *label, const struct plx_snapshot_info *before)
{
    struct plx_registry_label row = {.seq = before->seq, .time_ns = before->time_ns};
    char detail[128];
    int error;

    snprintf(row.name, sizeof row.name, "%s", label);
    snprintf(detail, sizeof detail, "to snapshot %llu; before: %llu, %s", (unsigned long long)seq,
             (unsigned long long)before->seq, label);
    error = plx_registry_label_set(a->registry, &opened->lock, &row);
    return error ? error
                 : plx_registry_event_add(a->registry, "vdi rewind", opened->lock.vdi, detail);
}

/* The engine's own refusal, with the way out. Some rewinds can be forgotten without all of them,
 * but which depends on what each went to (RECLAIM-9); what is advised here goes whatever they
 * were. */
int plx_attach_rewinds_refuse(const struct plx_attach *a, const struct plx_vdi_info *vdi,
                              uint64_t seq, struct plx_fault *fault)
{
    const char *store = a->known.name;

    if (vdi->rewinds_held < PLX_REWINDS_MAX)
        return 0;
    return plx_fault_set(
        fault, PLX_ERR_INVALID,
        "%s/%.64s was rewound %u times, as often as its record can hold; clone the snapshot "
        "('parallax vdi clone %s/%.64s@%llu %s/NEW') and use the clone, or give up all of its "
        "history: 'parallax snap create %s/%.64s', then 'parallax snap delete %s/%.64s@.. --force'",
        store, vdi->name, PLX_REWINDS_MAX, store, vdi->name, (unsigned long long)seq, store, store,
        vdi->name, store, vdi->name);
}

static int check_rewinds(struct plx_attach *a, struct plx_vdi *vdi, uint64_t seq,
                         struct plx_fault *fault)
{
    struct plx_vdi_info info;

    plx_attach_lock(a);
    plx_vdi_get_info(vdi, &info);
    plx_attach_unlock(a);
    return plx_attach_rewinds_refuse(a, &info, seq, fault);
}

/* The newest snapshot is the state before the rewind now, and would be the answer to "as it was a
 * second ago". So the state behind the rewind becomes a snapshot, too. Without room the rewind has
 * taken place all the same; a disk that stops is told of. */
static int snapshot_behind(struct plx_attach *a, struct plx_vdi *vdi, struct plx_fault *fault)
{
    struct plx_request request = {.op = PLX_SNAPSHOT};
    int error = run_request(a, vdi, &request, fault);

    return error == PLX_ERR_NOSPACE ? 0 : error;
}

static int rewind_on_store(struct plx_attach *a, struct plx_vdi *vdi, uint64_t seq,
                           char ret_label[PLX_REWIND_LABEL], struct plx_snapshot_info *ret_before,
                           struct plx_fault *fault)
{
    struct plx_rewind_options options = {.seq = seq,
                                         .label = ret_label,
                                         .interrupted = a->options.interrupted,
                                         .context = a->options.context};
    struct plx_opened_vdi *opened = plx_attach_opened(a, vdi);
    int error = check_rewinds(a, vdi, seq, fault), stopped;

    *ret_before = (struct plx_snapshot_info){0};
    if (error)
        return error;
    error = choose_label(a, opened->lock.vdi, ret_label);
    if (!error)
        error = plx_registry_has_room(a->registry);
    if (error)
        return plx_registry_fault(a->registry, error, fault);
    plx_attach_lock(a);
    error = plx_vdi_rewind(vdi, &options, ret_before, fault);
    plx_attach_unlock(a);
    if (ret_before->seq) /* the label, perhaps */
        plx_attach_note_told(opened, ret_before->seq, error);
    if (error)
        return error;
    stopped = snapshot_behind(a, vdi, fault);
    error = enter_rewind(a, opened, seq, ret_label, ret_before);
    plx_attach_note_told(opened, ret_before->seq, error);
    return error ? plx_registry_fault(a->registry, error, fault) : stopped;
}

int plx_attach_rewind(struct plx_attach *a, struct plx_vdi *vdi, uint64_t seq,
                      char ret_label[PLX_REWIND_LABEL], struct plx_snapshot_info *ret_before,
                      struct plx_fault *fault)
{
    struct plx_opened_vdi *opened = plx_attach_opened(a, vdi);
    int error = plx_attach_ring_pause(a, opened, fault);

    *ret_before = (struct plx_snapshot_info){0};
    if (!error)
        error = rewind_on_store(a, vdi, seq, ret_label, ret_before, fault);
    plx_attach_ring_resume(a, opened);
    return error;
}

/* ---- Letting snapshots go ---- */

/* A dead instance's holds go with its recovery. */
int plx_attach_release_dead(struct plx_attach *a, const char *vdi, struct plx_fault *fault)
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
        dead = !error && plx_attach_is_dead(a, &row);
        if (error == PLX_ERR_NOT_FOUND) /* it has just ended */
            error = 0;
    }
    free(list);
    if (error)
        return plx_registry_fault(a->registry, error, fault);
    return dead ? plx_attach_recover(a, fault) : 0;
}

/* Enters the intent to let snapshots of the disk go. thin NULL: the disk is to be deleted. BUSY: a
 * process reads snapshots that cannot enter holds (ATTACH-16). */
int plx_attach_begin_intent(struct plx_attach *a, const struct plx_registry_lock *lock,
                            const struct plx_thin *thin, uint64_t **ret_kept, size_t *ret_count,
                            struct plx_fault *fault)
{
    int error;

    *ret_kept = NULL;
    *ret_count = 0;
    error = thin ? plx_registry_intent_begin(a->registry, lock, thin->marks, thin->mark_count,
                                             ret_kept, ret_count)
                 : plx_registry_intent_begin_whole(a->registry, lock);
    if (error)
        return plx_registry_fault(a->registry, error, fault);
    if ((thin && thin->dry_run) || !plx_hold_is_shared(plx_registry_locks(a->registry)))
        return 0;
    free(*ret_kept);
    plx_registry_intent_end(a->registry, lock);
    return plx_fault_set(fault, PLX_ERR_BUSY,
                         "store %s: a process that cannot write to its volume reads snapshots, and "
                         "none goes until it has ended",
                         a->known.name);
}

/* ATTACH-4: a label that the registry does not know would not be kept. */
static int catch_up(struct plx_attach *a, struct plx_opened_vdi *opened, struct plx_fault *fault)
{
    struct plx_vdi_info info;
    int error;

    if (!opened->behind)
        return 0;
    plx_attach_lock(a);
    plx_vdi_get_info(opened->vdi, &info);
    plx_attach_unlock(a);
    error = plx_attach_settle(a, &opened->lock, &info, opened->behind, fault);
    opened->behind = error ? opened->behind : 0;
    return error;
}

/* With their snapshots, and after them: a label that is left over says too much, not too little. */
static int remove_labels(struct plx_attach *a, struct plx_opened_vdi *opened,
                         const struct plx_thin *thin, struct plx_fault *fault)
{
    int error = 0;

    for (size_t i = 0; i < thin->mark_count && !error; i++) {
        const struct plx_thin_mark *mark = &thin->marks[i];
        struct plx_registry_label row;

        if (!mark->gone || !mark->label)
            continue;
        error = plx_registry_label_get(a->registry, opened->lock.vdi, mark->label, &row);
        if (error && error != PLX_ERR_NOT_FOUND)
            plx_registry_fault(a->registry, error, fault);
        else
            error = !error && row.seq == mark->seq
                        ? plx_attach_label(a, opened->vdi, mark->label, 0, 0, fault)
                        : 0;
    }
    plx_attach_note_told(opened, plx_attach_newest_of(a, opened->vdi), error);
    return error;
}

bool plx_attach_history_waits(struct plx_attach *a, const struct plx_vdi *vdi,
                              const struct plx_thin *thin)
{
    bool waits;

    plx_attach_lock(a);
    waits = plx_vdi_thin_waits(vdi, thin);
    plx_attach_unlock(a);
    return waits;
}

int plx_attach_thin(struct plx_attach *a, struct plx_vdi *vdi, const struct plx_thin *thin,
                    struct plx_thinned *ret_thinned, struct plx_fault *fault)
{
    struct plx_opened_vdi *opened = plx_attach_opened(a, vdi);
    struct plx_thin slice = *thin;
    struct plx_vdi_info before, after;
    uint64_t *kept = NULL;
    int error, ended;

    if (thin->upto <= thin->after)
        return plx_fault_set(fault, PLX_ERR_INVALID, "there is no snapshot after %llu up to %llu",
                             (unsigned long long)thin->after, (unsigned long long)thin->upto);
    if (plx_attach_history_waits(a, vdi, thin)) {
        *ret_thinned = (struct plx_thinned){.upto = thin->after, .waits = true};
        return 0;
    }
    error = catch_up(a, opened, fault);
    if (!error)
        error = plx_attach_release_dead(a, opened->lock.vdi, fault);
    if (error)
        return error;
    error = plx_attach_begin_intent(a, &opened->lock, thin, &kept, &slice.kept_count, fault);
    if (!error) {
        slice.kept = kept;
        plx_attach_lock(a);
        plx_vdi_get_info(vdi, &before);
        error = plx_vdi_thin(vdi, &slice, ret_thinned, fault);
        plx_vdi_get_info(vdi, &after);
        plx_attach_unlock(a);
        free(kept);
        if (after.rewinds_held < before.rewinds_held) /* what only they had is garbage */
            plx_registry_collection_want(a->registry, a->row.id);
    }
    if (!thin->dry_run) {
        struct plx_fault why;
        int left = remove_labels(a, opened, thin, error ? &why : fault);

        error = error ? error : left;
    }
    if (error) /* snapshots may have gone whose labels stay: closing looks (ATTACH-4) */
        plx_attach_note_told(opened, plx_attach_newest_of(a, vdi), error);
    ended = error ? plx_registry_intent_leave(a->registry, &opened->lock) /* HOLDS-8 */
                  : plx_registry_intent_end(a->registry, &opened->lock);
    return ended && !error ? plx_registry_fault(a->registry, ended, fault) : error;
}

/* So much, or all that can be claimed, if that is less. As many extents as would do if they were
 * empty are mostly enough; where they are nearly full, all are counted. */
static int claimable_room(struct plx_attach *a, uint64_t enough, const struct plx_store_info *info,
                          uint64_t *ret_blocks)
{
    uint64_t keep = plx_attach_reserve_extents(a), few = plx_div_up(enough, info->extent_blocks);
    int error = plx_registry_extent_room(a->registry, a->row.id, keep, few, ret_blocks);

    if (!error && *ret_blocks < enough && few < info->extents)
        error = plx_registry_extent_room(a->registry, a->row.id, keep, info->extents, ret_blocks);
    return error;
}

int plx_attach_data_room(struct plx_attach *a, uint64_t enough, uint64_t *ret_blocks,
                         struct plx_fault *fault)
{
    struct plx_counters counters;
    struct plx_store_info info;
    uint64_t claimable = 0;
    int error = 0;

    plx_attach_lock(a);
    plx_store_counters(a->store, &counters);
    plx_store_get_info(a->store, &info);
    plx_attach_unlock(a);
    if (counters.data_free_blocks < enough)
        error = claimable_room(a, enough - counters.data_free_blocks, &info, &claimable);
    if (error)
        return plx_registry_fault(a->registry, error, fault);
    *ret_blocks = plx_min_u64(counters.data_free_blocks + claimable, enough);
    return 0;
}

uint64_t plx_attach_low_blocks(struct plx_attach *a)
{
    struct plx_store_info info;
    uint64_t extents;

    plx_attach_lock(a);
    plx_store_get_info(a->store, &info);
    plx_attach_unlock(a);
    extents = plx_max_u64(1, plx_min_u64(info.extents / LOW_SHARE, LOW_EXTENTS_MAX));
    return extents * info.extent_blocks;
}

int plx_attach_move_room(struct plx_attach *a, struct plx_fault *fault)
{
    uint64_t enough, room = 0;
    struct plx_store_info info;
    int error;

    plx_attach_lock(a);
    plx_store_get_info(a->store, &info);
    plx_attach_unlock(a);
    enough = info.extents * info.extent_blocks / MOVE_SHARE;
    error = plx_attach_data_room(a, enough, &room, fault);
    if (error || room >= enough)
        return error;
    return plx_fault_set(fault, PLX_ERR_NOSPACE,
                         "store %s: less than a sixteenth of it is free, which is left to writes; "
                         "add space, or delete what is not needed",
                         info.name);
}
