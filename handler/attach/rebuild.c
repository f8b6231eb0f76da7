/* rebuild.c - see rebuild.h.
 *
 * REBUILD-1  The volumes are open exclusively from before they are read until the new registry has
 *     taken the old one's place: nobody lives whose rows could be wrong, and nobody begins.
 * REBUILD-2  The new registry is made in a file of its own and checked there. It takes the old
 *     one's place in one transaction; where the old one is so damaged that it cannot be opened, the
 *     region is made blank first, which every opening refuses (FOUNDING-2) until that is through.
 *     That it cannot be read or written just now is no damage: the old one stays, and the call
 *     fails.
 * REBUILD-3  What cannot be read costs itself only: a record's slot and a disk's labels are entered
 *     as lost, an extent whose header cannot be read is sealed and nobody's.
 * REBUILD-4  Owners are entered with no boot: no process of this boot is among them (REBUILD-1), so
 *     each is dead, and the next opening recovers what it held.
 * REBUILD-5  What only the registry knew (limits that an operator set) is taken over from the old
 *     one as far as that is not damaged.
 * REBUILD-6  An extent's header that is older than the old registry knows is not believed either,
 *     nor is one that the old registry does not believe: however old it is, it knows too little,
 *     never too much.
 * REBUILD-7  Nor does the store's word alone end a disk. A live one of the old registry whose
 *     record is gone is lost, as if its record could not be read (REBUILD-3), until the operator
 *     gives it up. One whose record went back stays refused (doors.h) until the operator accepts
 *     that, with the labels and the epoch that the old registry knew: numbers of the lost state
 *     must not come again. An old registry may take for live what was deleted since: then this
 *     costs a question.
 * REBUILD-8  Ranges of extents that the old registry knows and the superblocks do not are the
 *     store's all the same (ATTACH-15), unless they cannot be: the volumes have no room for them,
 *     or are no volumes of this store. What lies in them is found; "store grow" writes the
 *     superblocks.
 * REBUILD-9  No bitmap is believed that the disks contradict: page and old registry may have gone
 *     back together, to before the blocks were handed out. So the checker reads what every disk
 *     leads to, its log included, and an extent that would give such a block away is not believed
 *     (REBUILD-6). Disks that are refused (REBUILD-7) do not count: what they lead to may be
 *     others' by now. What a damaged disk does not tell any more is not protected by this.
 * Threads: the caller's.
 * Crash story: REBUILD-2; the file is left behind, and made anew by the next call.
 */
#include "attach/rebuild.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach/attach_inside.h"
#include "attach/doors.h"
#include "attach/founding.h"
#include "attach/occupied.h"
#include "attach/volumes.h"
#include "registry/embedded.h"
#include "registry/labels.h"
#include "registry/lost.h"
#include "registry/policy.h"
#include "registry/region.h"
#include "registry/tenancy.h"
#include "registry/threshold.h"

struct rebuild {
    const struct plx_rebuild_options *options;
    struct plx_fault *fault;
    struct plx_paths paths;
    struct plx_known known;
    struct plx_env env;
    struct plx_store *store; /* REBUILD-1: brings the volumes */
    struct plx_store_info info;
    struct plx_registry *file; /* REBUILD-2 */
    char path[PLX_PATH_MAX + 64], folder[PLX_PATH_MAX + 32];
    int64_t row;              /* of the store in the file */
    struct plx_registry *old; /* NULL: it cannot be opened */
    bool damaged;             /* REBUILD-2, REBUILD-5, REBUILD-6: the old one, where it was read */
    bool knows;               /* what follows, and more: it can be read */
    int64_t old_row;
    struct plx_registry_vdi *old_vdis; /* live ones */
    size_t old_count;
    struct plx_rebuilt rebuilt;
    bool *unbelieved; /* of each extent */
    int extent_error; /* of a callback */
    /* What the store says, for the import calls. */
    struct plx_registry_extent *extents;
    struct plx_registry_vdi *vdis;
    struct plx_registry_instance *instances;
    size_t extent_count, vdi_count, instance_count;
};

static int no_memory(struct rebuild *r)
{
    return plx_fault_set(r->fault, PLX_ERR_NOMEM, "out of memory");
}

static int registry_fault(struct rebuild *r, struct plx_registry *registry, int error)
{
    return error ? plx_registry_fault(registry, error, r->fault) : 0;
}

__attribute__((format(printf, 2, 3))) static void tell_lost(struct rebuild *r, const char *format,
                                                            ...)
{
    char text[512];
    va_list args;

    if (!r->options->lost)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    r->options->lost(r->options->context, text);
}

/* ---- Reading the store ---- */

static int found_instance(struct rebuild *r, uint64_t id)
{
    struct plx_registry_instance *bigger;

    for (size_t i = 0; i < r->instance_count; i++)
        if (r->instances[i].id == id)
            return 0;
    bigger = realloc(r->instances, (r->instance_count + 1) * sizeof *bigger);
    if (!bigger)
        return no_memory(r);
    r->instances = bigger;
    bigger[r->instance_count++] = (struct plx_registry_instance){
        .id = id, .store = r->row, .role = "lost", .started_ns = 1}; /* REBUILD-4 */
    return 0;
}

/* REBUILD-3 */
static int scan_extent(struct rebuild *r, uint64_t number)
{
    struct plx_registry_extent *row = &r->extents[r->extent_count];
    struct plx_extent_info extent;
    struct plx_fault why;
    int error = plx_store_extent_read(r->store, number, &extent, &why);

    if (error == PLX_ERR_CORRUPT) {
        *row = (struct plx_registry_extent){
            .no = number, .type = PLX_EXTENT_DATA, .sealed = true, .states = PLX_STATES_NEVER};
        r->unbelieved[number] = true;
        r->rebuilt.sealed_extents++;
        tell_lost(r, "%s; nothing is allocated in it any more", why.text);
    } else if (error) {
        return plx_fault_set(r->fault, error, "%s", why.text);
    } else if (extent.type == PLX_EXTENT_UNUSED) {
        return 0;
    } else {
        *row = (struct plx_registry_extent){
            .no = number,
            .type = extent.type,
            .owner = extent.owner,
            .generation = extent.generation,
            .free_blocks = extent.blocks - extent.used_blocks,
            .states = extent.settled ? extent.states : 0,
            .sealed = extent.sealed || (!extent.owner && extent.blocks == extent.used_blocks),
        };
        /* An owner's extent is not sealed in the registry; its recovery seals it. */
        row->sealed = row->sealed && !extent.owner;
    }
    r->extent_count++;
    return row->owner ? found_instance(r, row->owner) : 0;
}

static int scan_extents(struct rebuild *r)
{
    struct plx_extent_range range;
    int error = 0;

    r->extents = calloc(r->info.extents, sizeof *r->extents);
    r->unbelieved = calloc(r->info.extents, sizeof *r->unbelieved);
    if (!r->extents || !r->unbelieved)
        return no_memory(r);
    for (unsigned i = 0; plx_store_range(r->store, i, &range) && !error; i++)
        for (uint64_t no = range.first; no < range.first + range.extents && !error; no++)
            if (plx_store_extent_is_system(r->store, no)) /* SPANS-3 */
                r->extents[r->extent_count++] =
                    (struct plx_registry_extent){.no = no, .type = PLX_EXTENT_SYSTEM};
            else
                error = scan_extent(r, no);
    return error;
}

static int add_lost(struct rebuild *r, uint32_t slot, const char *vdi, const char *why)
{
    struct plx_registry_lost lost = {.slot = slot, .labels = vdi != NULL};

    snprintf(lost.vdi, sizeof lost.vdi, "%s", vdi ? vdi : "");
    snprintf(lost.why, sizeof lost.why, "%s", why);
    return registry_fault(r, r->file, plx_registry_lost_add(r->file, r->row, &lost));
}

/* Once for each slot. */
static int enter_lost(struct rebuild *r, uint32_t slot, const char *why, const char *more)
{
    int error = add_lost(r, slot, NULL, why);

    if (error)
        return error == PLX_ERR_EXISTS ? 0 : error;
    r->rebuilt.lost_records++;
    tell_lost(r, "%s%s", why, more);
    return 0;
}

static const struct plx_registry_vdi *old_in_slot(const struct rebuild *r, uint32_t slot)
{
    for (size_t i = 0; i < r->old_count; i++)
        if (r->old_vdis[i].slot == slot)
            return &r->old_vdis[i];
    return NULL;
}

/* old: which disk's it was, as far as that is known. */
static int lose_record(struct rebuild *r, uint32_t slot, const struct plx_registry_vdi *old,
                       const char *why)
{
    char text[256];

    snprintf(text, sizeof text, "%s%.64s%s%.160s", old ? "virtual disk " : "", old ? old->name : "",
             old ? ": " : "", why);
    return enter_lost(r, slot, text, old ? "" : ": a virtual disk, or one that was deleted");
}

/* REBUILD-7. One that went back may have a name that was given to another since; it keeps its new
 * one. */
static void free_name(const struct rebuild *r, const struct plx_registry_vdi *old, bool back,
                      struct plx_registry_vdi *row)
{
    char name[sizeof row->name];
    bool taken = false;

    snprintf(name, sizeof name, "%.200s-slot-%u", row->name, row->slot);
    for (size_t i = 0; i < r->old_count && !taken; i++)
        taken =
            strcmp(r->old_vdis[i].name, row->name) == 0 && strcmp(r->old_vdis[i].id, row->id) != 0;
    if (taken && (back || (old && strcmp(old->name, name) == 0)))
        memcpy(row->name, name, sizeof name);
}

/* REBUILD-7. old: what was known of it; NULL: nothing. */
static void keep_known(struct rebuild *r, const struct plx_vdi_info *vdi,
                       const struct plx_registry_vdi *old, struct plx_registry_vdi *row)
{
    const struct plx_registry_vdi *later = old ? NULL : old_in_slot(r, vdi->slot);
    bool gone = old ? old->deleted : later && vdi->created_ns < later->created_ns;
    bool back = gone || (old && plx_door_is_back(old, vdi));

    if (row->deleted)
        return;
    if (old)
        row->epoch = plx_max_u64(row->epoch, old->epoch);
    free_name(r, old, back, row);
    if (!back)
        return;
    row->written = gone ? (struct plx_registry_written){row->epoch + 1, 1} : old->written;
    r->rebuilt.older_records++;
    tell_lost(r,
              "virtual disk %s: its record is older than what was written last; it is refused "
              "until the store is restored, or 'parallax vdi accept-older' accepts that",
              row->name);
}

/* Of a call that reads the old registry: what is damaged is as if it were not there. */
static int read_old(struct rebuild *r, int error)
{
    if (error && error != PLX_ERR_NOT_FOUND && !r->damaged)
        return plx_registry_fault(r->old, error, r->fault);
    r->damaged = false;
    return error ? PLX_ERR_NOT_FOUND : 0;
}

static int scan_vdi(struct rebuild *r, uint32_t slot)
{
    struct plx_registry_vdi *row = &r->vdis[r->vdi_count], old;
    struct plx_vdi_info vdi;
    struct plx_fault why;
    int error = plx_vdi_read_info(r->store, slot, &vdi, &why);
    bool known = false;

    if (error == PLX_ERR_NOT_FOUND)
        return 0;
    if (error == PLX_ERR_CORRUPT) /* REBUILD-3 */
        return lose_record(r, slot, old_in_slot(r, slot), why.text);
    if (error)
        return plx_fault_set(r->fault, error, "%s", why.text);
    *row = (struct plx_registry_vdi){
        .store = r->row,
        .slot = slot,
        .size_bytes = vdi.size_bytes,
        .sector_size = vdi.sector_size,
        .owner = vdi.owner,
        .epoch = plx_max_u64(vdi.epoch, 1),
        .deleted = vdi.state == PLX_VDI_DELETED,
        .parent_seq = vdi.parent_seq,
        .created_ns = vdi.created_ns,
        .written = {vdi.epoch, vdi.record_state}, /* an owner's, too: it was made (DOORS-3) */
    };
    plx_uuid_text(&vdi.id, row->id);
    memcpy(row->name, vdi.name, sizeof row->name);
    if (vdi.parent_seq)
        plx_uuid_text(&vdi.parent, row->parent);
    if (r->knows) {
        error = read_old(r, plx_registry_vdi_get_by_id(r->old, row->id, &old));
        if (error && error != PLX_ERR_NOT_FOUND)
            return error;
        known = !error;
    }
    keep_known(r, &vdi, known ? &old : NULL, row);
    r->vdi_count++;
    r->rebuilt.disks += !row->deleted;
    r->rebuilt.deleted += row->deleted;
    return row->owner ? found_instance(r, row->owner) : 0;
}

static int scan_vdis(struct rebuild *r)
{
    struct plx_slot_scan scan = {0};
    int error = 0;

    r->vdis = calloc(r->info.vdi_slots, sizeof *r->vdis);
    if (!r->vdis)
        return no_memory(r);
    for (uint32_t slot = 0; !error && plx_vdi_next_slot(r->store, &scan, &slot); slot++)
        error = scan_vdi(r, slot);
    return error;
}

/* ---- Making the new registry ---- */

static int enter_store(struct rebuild *r)
{
    struct plx_registry_volume *volumes = calloc(r->info.volumes, sizeof *volumes);
    struct plx_registry_store row, created;
    struct plx_extent_range first;
    int error;

    if (!volumes)
        return no_memory(r);
    plx_founding_rows(&r->info, &r->known, &row, volumes);
    plx_store_range(r->store, 0, &first);
    volumes[0].extents = first.extents; /* the others follow by their numbers */
    error =
        registry_fault(r, r->file, plx_registry_store_create(r->file, &row, volumes, 1, &created));
    free(volumes);
    if (error)
        return error;
    r->row = created.id;
    return plx_volumes_register(r->file, r->row, r->store, (const char *const *)r->known.volume,
                                r->fault);
}

/* REBUILD-3 */
static int import_labels(struct rebuild *r, const struct plx_registry_vdi *row)
{
    struct plx_labels labels;
    struct plx_fault why;
    int error = plx_labels_read(r->store, row->slot, 0, &labels, &why);

    if (!error)
        error = plx_labels_times(r->store, row->slot, &labels, &why);
    if (error == PLX_ERR_CORRUPT) {
        r->rebuilt.lost_labels++;
        tell_lost(r, "labels of %s: %s; none of its snapshots goes", row->name, why.text);
        error = add_lost(r, row->slot, row->id, why.text);
    } else if (error) {
        plx_fault_set(r->fault, error, "%s", why.text);
    } else if (labels.count) {
        error = registry_fault(
            r, r->file, plx_registry_import_labels(r->file, row->id, labels.list, labels.count));
    }
    plx_labels_done(&labels);
    return error;
}

/* REBUILD-7 */
static int keep_labels(struct rebuild *r, const char *vdi)
{
    struct plx_registry_label *list = NULL;
    size_t count = 0, kept = 0;
    char why[200];
    int error = r->knows ? read_old(r, plx_registry_label_list(r->old, vdi, &list, &count)) : 0;

    for (size_t i = 0; i < count; i++) /* another word is damage: nobody made that label */
        if (!plx_name_check("label", list[i].name, why, sizeof why))
            list[kept++] = list[i];
    if (!error)
        error = registry_fault(r, r->file, plx_registry_import_labels(r->file, vdi, list, kept));
    free(list);
    return error == PLX_ERR_NOT_FOUND ? 0 : error;
}

static int import_vdi(struct rebuild *r, const struct plx_registry_vdi *row)
{
    struct plx_vdi_info info;
    int error = row->deleted ? 0 : plx_vdi_read_info(r->store, row->slot, &info, r->fault);

    if (error || row->deleted)
        return error;
    error = registry_fault(r, r->file, plx_policy_keep(r->file, row->id, &info.protection));
    if (!error)
        error = import_labels(r, row);
    if (!error && plx_door_is_back(row, &info))
        error = keep_labels(r, row->id);
    return error;
}

static int import_found(struct rebuild *r)
{
    int error = plx_registry_import_instances(r->file, r->instances, r->instance_count);

    if (!error)
        error = plx_registry_import_extents(r->file, r->row, r->extents, r->extent_count);
    if (!error)
        error = plx_registry_import_vdis(r->file, r->vdis, r->vdi_count);
    error = registry_fault(r, r->file, error);
    for (size_t i = 0; i < r->vdi_count && !error; i++)
        error = import_vdi(r, &r->vdis[i]);
    return error;
}

/* ---- What the old registry knows ---- */

static struct plx_embedded_options embedded(struct rebuild *r)
{
    return (struct plx_embedded_options){
        .volume = r->known.volume[0],
        .uuid = r->known.uuid,
        .who = "parallax store rebuild-registry",
        .beside = true, /* REBUILD-1 */
        .damaged = &r->damaged,
    };
}

/* REBUILD-5. One that is damaged says nothing; what a newer program wrote, or what cannot be read
 * just now, may say much. */
static int open_old(struct rebuild *r)
{
    struct plx_embedded_options options = embedded(r);
    struct plx_registry_store row;
    int error;

    options.read_only = r->options->dry_run;
    error = plx_embedded_open(&options, &r->old, r->fault);
    if (error && !r->damaged)
        return error;
    if (!error)
        error = read_old(r, plx_registry_store_get(r->old, r->known.uuid, &row));
    if (!error)
        error = read_old(
            r, plx_registry_vdi_list(r->old, row.id, false, NULL, 0, &r->old_vdis, &r->old_count));
    if (error && r->old && error != PLX_ERR_NOT_FOUND)
        return error;
    r->knows = !error;
    r->rebuilt.unknown = !r->knows;
    if (r->knows)
        r->old_row = row.id;
    return 0;
}

/* REBUILD-5 */
static int keep_limit(struct rebuild *r, const char *vdi)
{
    char value[PLX_POLICY_VALUE_MAX + 1];
    int error = read_old(r, plx_registry_policy_get(r->old, vdi, PLX_POLICY_WARN_AT, value));

    if (!error)
        error = registry_fault(r, r->file,
                               plx_registry_policy_set(r->file, vdi, PLX_POLICY_WARN_AT, value));
    return error == PLX_ERR_NOT_FOUND ? 0 : error;
}

static int keep_limits(struct rebuild *r)
{
    char value[PLX_POLICY_VALUE_MAX + 1];
    int error =
        read_old(r, plx_registry_store_policy_get(r->old, r->old_row, PLX_POLICY_WARN_AT, value));

    if (!error)
        error = registry_fault(
            r, r->file, plx_registry_store_policy_set(r->file, r->row, PLX_POLICY_WARN_AT, value));
    if (error == PLX_ERR_NOT_FOUND)
        error = 0;
    for (size_t i = 0; i < r->vdi_count && !error; i++)
        if (!r->vdis[i].deleted)
            error = keep_limit(r, r->vdis[i].id);
    return error;
}

static int never_believe(struct rebuild *r, uint64_t number, const char *why)
{
    const struct plx_registry_extent row = {
        .no = number, .type = PLX_EXTENT_DATA, .sealed = true, .states = PLX_STATES_NEVER};

    if (r->unbelieved[number])
        return 0;
    r->unbelieved[number] = true;
    r->rebuilt.sealed_extents++;
    tell_lost(r, "extent %" PRIu64 ": %s; nothing is allocated in it any more", number, why);
    return registry_fault(r, r->file, plx_registry_import_extents(r->file, r->row, &row, 1));
}

/* REBUILD-6 */
static int keep_seals(struct rebuild *r)
{
    struct plx_registry_extent *list = NULL;
    size_t count = 0, at = 0;
    int error =
        read_old(r, plx_registry_extent_list(r->old, r->old_row, PLX_REGISTRY_ANY, &list, &count));

    if (error)
        return error == PLX_ERR_NOT_FOUND ? 0 : error;
    for (size_t i = 0; i < count && !error; i++) { /* both by their numbers */
        const struct plx_registry_extent none = {0}, *here = &none;

        if (list[i].no >= r->info.extents) /* what it knows of these is wrong */
            break;
        while (at < r->extent_count && r->extents[at].no < list[i].no)
            at++;
        if (at < r->extent_count && r->extents[at].no == list[i].no)
            here = &r->extents[at];
        if (list[i].states == PLX_STATES_NEVER
                ? here->states != PLX_STATES_NEVER
                : list[i].states > here->states && (here == &none || here->states))
            error = never_believe(r, list[i].no, "its header is older than what was written last");
    }
    free(list);
    return error;
}

/* ---- What the disks know ---- */

static void contradicted(void *context, uint64_t extent)
{
    struct rebuild *r = context;

    if (!r->extent_error)
        r->extent_error =
            never_believe(r, extent, "a disk has blocks in it that its bitmap calls free");
}

static bool is_refused(void *context, uint32_t slot)
{
    struct rebuild *r = context;
    struct plx_vdi_info vdi;

    for (size_t i = 0; i < r->vdi_count; i++)
        if (r->vdis[i].slot == slot && !r->vdis[i].deleted)
            return plx_vdi_read_info(r->store, slot, &vdi, NULL) == 0 &&
                   plx_door_is_back(&r->vdis[i], &vdi);
    return false;
}

/* REBUILD-9. "store check" tells what else is found. */
static int ask_disks(struct rebuild *r)
{
    const struct plx_check_options options = {.unguarded = contradicted,
                                              .leave_out = is_refused,
                                              .context = r,
                                              .watch = r->options->watch};
    struct plx_check_result result;
    int error = plx_store_check(r->store, &options, &result, r->fault);

    if (error == PLX_ERR_BUSY) /* interrupted: no lock is in the way */
        error = r->fault->code = PLX_ERR_SYSTEM;
    return error ? error : r->extent_error;
}

/* REBUILD-7. What cannot be read is lost anyway. */
static int keep_vdi(struct rebuild *r, const struct plx_registry_vdi *old)
{
    struct plx_registry_vdi here;
    struct plx_vdi_info vdi;
    struct plx_fault why;
    char text[64];
    bool taken;
    int error = plx_registry_vdi_get_by_id(r->file, old->id, &here);

    if (error != PLX_ERR_NOT_FOUND)
        return registry_fault(r, r->file, error);
    error = plx_vdi_read_info(r->store, old->slot, &vdi, &why);
    if (error && error != PLX_ERR_NOT_FOUND)
        return error == PLX_ERR_CORRUPT ? 0 : plx_fault_set(r->fault, error, "%s", why.text);
    taken = !error && vdi.state == PLX_VDI_LIVE;
    if (old->owner && !old->written.state && !taken) /* it was being made (doors.c) */
        return 0;
    snprintf(text, sizeof text, "slot %u of the store does not hold it", old->slot);
    /* One whose slot is another disk's is lost in a slot that there is not. */
    return lose_record(r, old->slot + (taken ? r->info.vdi_slots : 0), old, text);
}

static int keep_vdis(struct rebuild *r)
{
    int error = 0;

    for (size_t i = 0; i < r->old_count && !error; i++)
        error = keep_vdi(r, &r->old_vdis[i]);
    return error;
}

/* REBUILD-7. What an earlier rebuild lost, unless its slot has a live record again. */
static int keep_lost(struct rebuild *r)
{
    struct plx_registry_lost *list = NULL;
    struct plx_vdi_info vdi;
    size_t count = 0;
    int error = read_old(r, plx_registry_lost_list(r->old, r->old_row, &list, &count));

    if (error)
        return error == PLX_ERR_NOT_FOUND ? 0 : error;
    for (size_t i = 0; i < count && !error; i++) {
        if (list[i].labels)
            continue;
        error = list[i].slot < r->info.vdi_slots
                    ? plx_vdi_read_info(r->store, list[i].slot, &vdi, NULL)
                    : PLX_ERR_NOT_FOUND;
        if (error == PLX_ERR_CORRUPT || (!error && vdi.state == PLX_VDI_LIVE))
            error = 0;
        else if (!error || error == PLX_ERR_NOT_FOUND)
            error = enter_lost(r, list[i].slot, list[i].why, "");
    }
    free(list);
    return error;
}

static int keep_old(struct rebuild *r)
{
    int error = keep_seals(r);

    if (!error)
        error = keep_limits(r);
    if (!error)
        error = keep_vdis(r);
    return error ? error : keep_lost(r);
}

/* ---- Making the file ---- */

/* Of a dry run it lies in a folder of its own: the state directory need not be there. */
static int place_file(struct rebuild *r)
{
    const char *temporary = getenv("TMPDIR");

    if (!r->options->dry_run) {
        snprintf(r->path, sizeof r->path, "%s/rebuild.%d.db", r->paths.state, (int)getpid());
        return 0;
    }
    if (!temporary || !*temporary)
        temporary = "/tmp";
    snprintf(r->folder, sizeof r->folder, "%s/parallax-XXXXXX", temporary);
    if (!mkdtemp(r->folder)) {
        r->folder[0] = 0;
        return plx_fault_set(r->fault, PLX_ERR_SYSTEM, "cannot make a folder in %.200s: %s",
                             temporary, strerror(errno));
    }
    snprintf(r->path, sizeof r->path, "%s/rebuild.db", r->folder);
    return 0;
}

static void remove_file(struct rebuild *r)
{
    if (r->path[0])
        plx_registry_remove(r->path);
    if (r->folder[0])
        rmdir(r->folder);
}

/* REBUILD-2. The file has the store and its volumes when the store is scanned, for what is lost. */
static int make_file(struct rebuild *r)
{
    int error;

    error = place_file(r);
    if (error)
        return error;
    plx_registry_remove(r->path);
    error = plx_registry_open(r->path, "parallax store rebuild-registry", &r->file, r->fault);
    if (!error)
        error = enter_store(r);
    if (!error)
        error = scan_extents(r);
    if (!error)
        error = scan_vdis(r);
    if (!error)
        error = import_found(r);
    if (!error && r->knows)
        error = keep_old(r);
    if (!error)
        error = ask_disks(r);
    if (!error)
        error = registry_fault(r, r->file, plx_registry_check(r->file));
    return error;
}

/* ---- Putting it in ---- */

/* REBUILD-2 */
static int put_file(struct rebuild *r)
{
    const struct plx_embedded_options options = embedded(r);
    int error = r->old ? 0 : plx_embedded_create(&options, &r->old, r->fault);

    plx_registry_close(r->file); /* whole, and nobody else's */
    r->file = NULL;
    return error ? error : plx_registry_put(r->old, r->path, r->fault);
}

/* ---- The whole ---- */

/* REBUILD-8. Volumes that were not named, and are there. */
static int find_unnamed(struct rebuild *r)
{
    const struct plx_device_open_options open = {.read_only = true, .queue_depth = 1};
    struct plx_registry_volume *list = NULL;
    struct plx_superblock_info info;
    struct plx_device *device;
    char uuid[PLX_UUID_TEXT];
    size_t count = 0;
    int error = read_old(r, plx_registry_volume_list(r->old, r->old_row, &list, &count));

    for (size_t i = r->known.volumes; i < count && !error; i++) {
        if (plx_device_open(list[i].path, &open, &device, NULL))
            continue;
        if (plx_superblock_probe(device, &info, NULL) == 0 && info.volume_index == i) {
            plx_uuid_text(&info.store, uuid);
            if (strcmp(uuid, r->known.uuid) == 0)
                error = plx_fault_set(r->fault, PLX_ERR_INVALID,
                                      "%s is volume %zu of store %s, as its registry knows; name "
                                      "all volumes",
                                      list[i].path, i, r->known.name);
        }
        plx_device_close(device);
    }
    free(list);
    return error == PLX_ERR_NOT_FOUND ? 0 : error;
}

/* REBUILD-8. As far as what is known can be true. */
static int open_known(struct rebuild *r, struct plx_device **devices)
{
    struct plx_extent_range *list = NULL;
    struct plx_store_options options = {0};
    unsigned count = 0;
    int error = r->knows ? find_unnamed(r) : 0;

    if (!error && r->knows)
        error = plx_volumes_ranges(r->old, r->old_row, &list, &count, r->fault);
    if (error == PLX_ERR_CORRUPT) /* they cannot be */
        error = 0;
    options.known = list;
    while (options.known_count < count && list[options.known_count].volume < r->known.volumes)
        options.known_count++;
    while (!error) {
        error = plx_store_open(devices, r->known.volumes, &options, &r->env, &r->store, r->fault);
        if (!error || !options.known_count)
            break;
        options.known_count = 0;
        error = 0;
    }
    free(list);
    return error;
}

static int open_store(struct rebuild *r)
{
    struct plx_device_open_options open = {
        .exclusive = true, .read_only = r->options->dry_run, .patience = r->options->patience};
    struct plx_device *devices[PLX_VOLUMES_MAX];
    int error = plx_volumes_open_paths((const char *const *)r->known.volume, r->known.volumes,
                                       &open, devices, r->fault);

    if (error)
        return plx_occupied_name_living(r->known.volume[0], error, r->fault);
    error = open_old(r);
    if (!error)
        error = open_known(r, devices);
    if (error)
        plx_volumes_close(devices, r->known.volumes);
    else
        plx_store_get_info(r->store, &r->info);
    return error;
}

static int run(struct rebuild *r)
{
    struct plx_tenancy *tenancy = NULL;
    const struct plx_patience *patience = r->options->patience;
    bool writes = !r->options->dry_run;
    int error = writes ? plx_known_try(&r->paths, &r->known, patience, r->fault) : 0;

    if (!error && writes)
        error = plx_founding_take(&r->paths, &r->known, NULL, patience, &tenancy, r->fault);
    if (!error)
        error = open_store(r);
    if (!error)
        error = make_file(r);
    if (!error && writes)
        error = put_file(r);
    if (!error && writes)
        error = plx_founding_enter(&r->paths, &r->known, patience, r->fault);
    plx_registry_close(r->file);
    plx_registry_close(r->old);
    remove_file(r);
    if (r->store)
        plx_store_close(r->store);
    plx_tenancy_end(tenancy);
    return error;
}

int plx_rebuild(const struct plx_rebuild_options *options, struct plx_known *ret_known,
                struct plx_rebuilt *ret_rebuilt, struct plx_fault *fault)
{
    struct rebuild *r = calloc(1, sizeof *r);
    int error;

    if (!r)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    r->options = options;
    r->fault = fault;
    plx_attach_init_env(&r->env);
    error = plx_paths_init(&r->paths, options->state_dir, fault);
    if (!error)
        error = plx_founding_identify(&r->paths, options->volumes, options->count,
                                      options->patience, &r->known, fault);
    if (!error)
        error = run(r);
    if (error) {
        plx_known_done(&r->known);
    } else {
        *ret_known = r->known;
        *ret_rebuilt = r->rebuilt;
    }
    free(r->extents);
    free(r->unbelieved);
    free(r->vdis);
    free(r->old_vdis);
    free(r->instances);
    free(r);
    return error;
}
