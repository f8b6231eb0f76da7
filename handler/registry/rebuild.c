/* rebuild.c - see rebuild.h.
 *
 * B1  The volumes are open exclusively from before they are read until the new registry has taken
 *     the old one's place: nobody lives whose rows could be wrong, and nobody begins.
 * B2  The new registry is made in a file of its own and checked there. It takes the old one's place
 *     in one transaction; where the old one is so damaged that it cannot be opened, the region is
 *     made blank first, which every opening refuses (founding.c, V2) until that is through.
 * B3  What cannot be read costs itself only: a record's slot and a disk's labels are entered as
 *     lost, an extent whose header cannot be read is sealed and nobody's.
 * B4  Owners are entered with no boot: no process of this boot is among them (B1), so each is dead,
 *     and the next opening recovers what it held.
 * B5  What only the registry knew (limits that an operator set) is taken over from the old one as
 *     far as that can be read.
 * B6  An extent's header that is older than the old registry knows is not believed either, nor is
 *     one that the old registry does not believe: however old it is, it knows too little, never
 *     too much.
 * Threads: the caller's. Crash story: B2; the file is left behind, and made anew by the next call.
 */
#include "registry/rebuild.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "registry/attach_inside.h"
#include "registry/embedded.h"
#include "registry/founding.h"
#include "registry/labels.h"
#include "registry/lost.h"
#include "registry/policy.h"
#include "registry/region.h"
#include "registry/tenancy.h"
#include "registry/threshold.h"
#include "registry/volumes.h"

struct rebuild {
    const struct plx_rebuild_options *options;
    struct plx_fault *fault;
    struct plx_paths paths;
    struct plx_known known;
    struct plx_env env;
    struct plx_store *store; /* B1: brings the volumes */
    struct plx_store_info info;
    struct plx_registry *file; /* B2 */
    char path[PLX_PATH_MAX + 64];
    int64_t row; /* of the store in the file */
    struct plx_rebuilt rebuilt;
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
        .id = id, .store = r->row, .role = "lost", .started_ns = 1}; /* B4 */
    return 0;
}

/* B3 */
static int scan_extent(struct rebuild *r, uint64_t number)
{
    struct plx_registry_extent *row = &r->extents[r->extent_count];
    struct plx_extent_info extent;
    struct plx_fault why;
    int error = plx_store_extent_read(r->store, number, &extent, &why);

    if (error == PLX_ERR_CORRUPT) {
        *row = (struct plx_registry_extent){
            .no = number, .type = PLX_EXTENT_DATA, .sealed = true, .states = PLX_STATES_NEVER};
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
    if (!r->extents)
        return no_memory(r);
    for (unsigned i = 0; plx_store_range(r->store, i, &range) && !error; i++)
        for (uint64_t no = range.first; no < range.first + range.extents && !error; no++)
            if (plx_store_extent_is_system(r->store, no)) /* spans.c, P3 */
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

static int scan_vdi(struct rebuild *r, uint32_t slot)
{
    struct plx_registry_vdi *row = &r->vdis[r->vdi_count];
    struct plx_vdi_info vdi;
    struct plx_fault why;
    int error = plx_vdi_read_info(r->store, slot, &vdi, &why);

    if (error == PLX_ERR_NOT_FOUND)
        return 0;
    if (error == PLX_ERR_CORRUPT) { /* B3 */
        r->rebuilt.lost_records++;
        tell_lost(r, "%s: a virtual disk, or one that was deleted", why.text);
        return add_lost(r, slot, NULL, why.text);
    }
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
    };
    if (!vdi.owner)
        row->written = (struct plx_registry_written){vdi.epoch, vdi.record_state};
    plx_uuid_text(&vdi.id, row->id);
    memcpy(row->name, vdi.name, sizeof row->name);
    if (vdi.parent_seq)
        plx_uuid_text(&vdi.parent, row->parent);
    r->vdi_count++;
    r->rebuilt.disks += !row->deleted;
    r->rebuilt.deleted += row->deleted;
    return row->owner ? found_instance(r, row->owner) : 0;
}

static int scan_vdis(struct rebuild *r)
{
    int error = 0;

    r->vdis = calloc(r->info.vdi_slots, sizeof *r->vdis);
    if (!r->vdis)
        return no_memory(r);
    for (uint32_t slot = 0; slot < r->info.vdi_slots && !error; slot++)
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

/* B3 */
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

static int import_vdi(struct rebuild *r, const struct plx_registry_vdi *row)
{
    struct plx_vdi_info info;
    int error = row->deleted ? 0 : plx_vdi_read_info(r->store, row->slot, &info, r->fault);

    if (error || row->deleted)
        return error;
    error = registry_fault(r, r->file, plx_policy_keep(r->file, row->id, &info.protection));
    return error ? error : import_labels(r, row);
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

/* B2. The file has the store and its volumes when the store is scanned, for what is lost. */
static int make_file(struct rebuild *r)
{
    int error;

    snprintf(r->path, sizeof r->path, "%s/rebuild.%d.db", r->paths.state, (int)getpid());
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
    if (!error)
        error = registry_fault(r, r->file, plx_registry_check(r->file));
    return error;
}

/* ---- Putting it in ---- */

/* B5 */
static void keep_limits(struct rebuild *r, struct plx_registry *old)
{
    char value[PLX_POLICY_VALUE_MAX + 1];
    struct plx_registry_store row;

    if (plx_registry_store_get(old, r->known.uuid, &row) == 0 &&
        plx_registry_store_policy_get(old, row.id, PLX_POLICY_WARN_AT, value) == 0)
        plx_registry_store_policy_set(r->file, r->row, PLX_POLICY_WARN_AT, value);
    for (size_t i = 0; i < r->vdi_count; i++)
        if (!r->vdis[i].deleted &&
            plx_registry_policy_get(old, r->vdis[i].id, PLX_POLICY_WARN_AT, value) == 0)
            plx_registry_policy_set(r->file, r->vdis[i].id, PLX_POLICY_WARN_AT, value);
}

static int never_believe(struct rebuild *r, uint64_t number)
{
    const struct plx_registry_extent row = {
        .no = number, .type = PLX_EXTENT_DATA, .sealed = true, .states = PLX_STATES_NEVER};

    r->rebuilt.sealed_extents++;
    tell_lost(r,
              "extent %" PRIu64 ": its header is older than what was written last; nothing is "
              "allocated in it any more",
              number);
    return registry_fault(r, r->file, plx_registry_import_extents(r->file, r->row, &row, 1));
}

/* B6 */
static int keep_seals(struct rebuild *r, struct plx_registry *old)
{
    struct plx_registry_extent *list = NULL;
    struct plx_registry_store row;
    size_t count = 0, at = 0;
    int error = 0;

    if (plx_registry_store_get(old, r->known.uuid, &row) == 0)
        plx_registry_extent_list(old, row.id, PLX_REGISTRY_ANY, &list, &count);
    for (size_t i = 0; i < count && !error; i++) { /* both by their numbers */
        const struct plx_registry_extent none = {0}, *here = &none;

        while (at < r->extent_count && r->extents[at].no < list[i].no)
            at++;
        if (at < r->extent_count && r->extents[at].no == list[i].no)
            here = &r->extents[at];
        if (list[i].states == PLX_STATES_NEVER
                ? here->states != PLX_STATES_NEVER
                : list[i].states > here->states && (here == &none || here->states))
            error = never_believe(r, list[i].no);
    }
    free(list);
    return error;
}

/* B2 */
static int put_file(struct rebuild *r)
{
    struct plx_embedded_options options = {
        .volume = r->known.volume[0],
        .uuid = r->known.uuid,
        .who = "parallax store rebuild-registry",
        .beside = true, /* B1 */
    };
    struct plx_registry *old;
    int error = plx_embedded_open(&options, &old, r->fault), kept = 0;

    if (!error) {
        keep_limits(r, old);
        kept = keep_seals(r, old);
    } else if (error == PLX_ERR_REGISTRY || error == PLX_ERR_NOSPACE) { /* not what a newer program
                                                                          wrote, nor what cannot be
                                                                          read */
        error = plx_embedded_create(&options, &old, r->fault);
    }
    plx_registry_close(r->file); /* whole, and nobody else's */
    r->file = NULL;
    if (error)
        return error;
    error = kept ? kept : plx_registry_put(old, r->path, r->fault);
    plx_registry_close(old);
    return error;
}

/* ---- The whole ---- */

static int open_store(struct rebuild *r)
{
    struct plx_device_open_options open = {
        .exclusive = true, .read_only = r->options->dry_run, .patience = r->options->patience};
    struct plx_store_options options = {0};
    struct plx_device *devices[PLX_VOLUMES_MAX];
    int error = plx_volumes_open_paths((const char *const *)r->known.volume, r->known.volumes,
                                       &open, devices, r->fault);

    if (error)
        return error;
    error = plx_store_open(devices, r->known.volumes, &options, &r->env, &r->store, r->fault);
    if (error)
        plx_volumes_close(devices, r->known.volumes);
    else
        plx_store_get_info(r->store, &r->info);
    return error;
}

static int run(struct rebuild *r)
{
    struct plx_tenancy *tenancy = NULL;
    int error = r->options->dry_run
                    ? 0
                    : plx_known_try(&r->paths, &r->known, r->options->patience, r->fault);

    if (!error && !r->options->dry_run)
        error =
            plx_founding_take(&r->paths, &r->known, NULL, r->options->patience, &tenancy, r->fault);
    if (!error)
        error = open_store(r);
    if (!error)
        error = make_file(r);
    if (!error && !r->options->dry_run)
        error = put_file(r);
    if (!error && !r->options->dry_run)
        error = plx_founding_enter(&r->paths, &r->known, r->options->patience, r->fault);
    plx_registry_close(r->file);
    if (r->path[0])
        plx_registry_remove(r->path);
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
    free(r->vdis);
    free(r->instances);
    free(r);
    return error;
}
