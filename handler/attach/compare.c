/* compare.c - see compare.h.
 *
 * COMPARE-1  A difference is reported only if a second look, a moment later, finds it again. Every
 *     change is made in the registry and the store one after the other, so a difference may just
 *     mean that a change is under way:
 *         an extent or a lock is taken      registry first
 *         an extent or a lock is given up   store first (ATTACH-2, ATTACH-3)
 * COMPARE-2  The comparison does not decide which instance is dead. A registered instance may hold
 *     something in the registry that the store does not show yet, or no longer shows. That is
 *     settled by the instance, or by its recovery.
 * COMPARE-3  The registry may know only the first of the store's extents, because the store grows
 *     first (volumes.c). So the volumes are read again before each comparison. A check that has
 *     read the whole store may have opened it long ago.
 * COMPARE-4  An extent that the store uses for its own structures must be a system extent in the
 *     registry, which knows first (spans.c). An extent that the registry does not know yet
 *     (COMPARE-3) is no such error, because the registry hands out only what it knows.
 * COMPARE-5  No advice in a finding loses anything. If the store lost a disk, or has it in an older
 *     state, what the registry knows of the disk is evidence and is not reported as its mistake.
 * COMPARE-6  If an instance holds a disk, a label that the registry does not know is no error. The
 *     instance tells the registry when it closes the disk, or its recovery does (LABELS-1). Nor is
 *     it an error then if the record has another name: the disk is being renamed, or its recovery
 *     completes that (ATTACH-19).
 * COMPARE-7  The registry's own consistency is checked first. A damaged registry is one finding,
 *     and it is compared as far as it can be read. A page that is older than the others is whole
 *     for SQLite, so what two tables say of one thing is compared, too (EXTENTS-2).
 * COMPARE-8  An owner that the store names and the registry does not know can never be recovered.
 *     So it is an error, unless another instance has taken the disk or extent over in the registry.
 *     That instance, or its recovery, writes its own name into the store. It may have ended before
 *     it could, because the volume had no room below.
 * COMPARE-9  Extents that are older than the registry knows are told volume by volume, too: a whole
 *     volume may have been put back. The advice is to put the newer one back, for every other way
 *     gives up what was written there since. Extents that are never believed again are told as
 *     well, because nothing else says why their room does not come back.
 * COMPARE-10  An extent that is newer than the registry knows (DOORS-4) is told as that and as
 *     nothing else. What else differs follows from it, and its advice would come before the one to
 *     put the newer volume 0 back.
 * COMPARE-11  A deleted disk from which a clone descends is needed: its row leads to the snapshots
 *     that the clone needs (HOLDS-5). That its record is gone from the store loses nothing while
 *     the registry is there, and is told, as is a clone of a disk that has no row (HOLDS-9).
 */
#include "attach/compare.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach/doors.h"
#include "attach/volumes.h"
#include "engine/base/list.h"
#include "registry/labels.h"
#include "registry/lost.h"
#include "registry/policy.h"

#define AGAIN_US 200000
#define REBUILD "; 'parallax store rebuild-registry' takes over what the store says"
#define RENAME "; opening it for writing sets it right, as 'parallax snap create' does"
#define RECOVER "; the next opening of the store for writing sets it right"

struct difference {
    enum plx_finding_severity severity;
    char vdi[PLX_NAME_MAX + 1];
    char text[768];
};

struct compare {
    struct plx_attach *attach;
    struct plx_registry *registry;
    struct plx_store *store;
    struct plx_store_info info;
    struct plx_registry_store row;
    uint64_t registered; /* so many extents the registry knows */
    struct {
        uint64_t older, disbelieved; /* extents */
    } volume[PLX_VOLUMES_MAX];       /* COMPARE-9 */
    struct difference *list;
    size_t count, capacity;
    int error;
    struct plx_fault *fault;
};

__attribute__((format(printf, 4, 5))) static void differs(struct compare *c,
                                                          enum plx_finding_severity severity,
                                                          const char *vdi, const char *format, ...)
{
    va_list args;

    if (!PLX_LIST_ROOM(c->list, c->count, c->capacity, 16)) {
        c->error = plx_fault_set(c->fault, PLX_ERR_NOMEM, "out of memory");
        return;
    }
    c->list[c->count].severity = severity;
    snprintf(c->list[c->count].vdi, sizeof c->list->vdi, "%s", vdi);
    va_start(args, format);
    vsnprintf(c->list[c->count].text, sizeof c->list->text, format, args);
    va_end(args);
    c->count++;
}

/* ---- Volumes and instances ---- */

/* COMPARE-3 */
static int compare_ranges(struct compare *c)
{
    struct plx_registry_range *list;
    struct plx_extent_range range;
    size_t count;
    bool behind = false;
    unsigned i = 0;
    int error = plx_registry_range_list(c->registry, c->row.id, &list, &count);

    if (error)
        return plx_registry_fault(c->registry, error, c->fault);
    c->registered = 0;
    for (size_t j = 0; j < count; j++)
        c->registered += list[j].extents;
    for (; plx_store_range(c->store, i, &range); i++) {
        behind = i >= count || (i == count - 1 && list[i].extents < range.extents);
        if (i < count && (list[i].volume != range.volume || list[i].first != range.first ||
                          (list[i].extents != range.extents && !behind)))
            differs(c, PLX_FINDING_ERROR, "",
                    "the registry has another place for extents %llu to %llu, which volume %u "
                    "holds" REBUILD,
                    (unsigned long long)range.first,
                    (unsigned long long)(range.first + range.extents - 1), range.volume);
    }
    if (count > i)
        differs(c, PLX_FINDING_ERROR, "",
                "the registry knows extents from %llu on, which the store does not have" REBUILD,
                (unsigned long long)list[i].first);
    else if (behind)
        differs(c, PLX_FINDING_INFO, "",
                "the store has become larger, and the registry does not know yet; 'parallax store "
                "grow' tells it");
    free(list);
    return 0;
}

static int compare_volumes(struct compare *c)
{
    struct plx_registry_volume *list;
    struct plx_fault ahead;
    size_t count;
    int error = plx_registry_volume_list(c->registry, c->row.id, &list, &count);

    if (error)
        return plx_registry_fault(c->registry, error, c->fault);
    if (plx_store_behind(c->store))
        differs(c, PLX_FINDING_ERROR, "",
                "%s: its superblock is older than the registry: the device lost a write that it "
                "had acknowledged, or the volume went back to an older state; if there is a newer "
                "one, put it back first; 'parallax store grow' writes it again",
                plx_store_behind(c->store));
    if (plx_store_ahead(c->store) && plx_volumes_tell_ahead(c->store, &ahead))
        differs(c, PLX_FINDING_ERROR, "", "%s", ahead.text);
    if (plx_attach_went_back(c->attach)) /* NUMBERS-1 */
        differs(c, PLX_FINDING_ERROR, "", "%s", plx_attach_went_back(c->attach));
    if (count > c->info.volumes) /* fewer: COMPARE-3 */
        differs(c, PLX_FINDING_ERROR, "",
                "the registry knows %zu volume%s, the store has %u" REBUILD, count,
                plx_plural(count), c->info.volumes);
    for (size_t i = 0; i < count && i < c->info.volumes; i++) {
        const struct plx_volume_info *volume = &c->info.volume[i];
        char id[PLX_UUID_TEXT];

        plx_uuid_text(&volume->id, id);
        if (strcmp(id, list[i].uuid) != 0)
            differs(c, PLX_FINDING_ERROR, "",
                    "volume %zu (%s): the registry has another identity of it" REBUILD, i,
                    volume->name);
    }
    free(list);
    return compare_ranges(c);
}

/* COMPARE-8. named: by the store. holder: by the registry's row, 0: nobody. */
static int check_instance(struct compare *c, uint64_t named, uint64_t holder, const char *vdi,
                          const char *what)
{
    struct plx_registry_instance instance;
    uint64_t id = named && holder ? holder : named;
    int error = id ? plx_registry_instance_get(c->registry, id, &instance) : 0;

    if (error == PLX_ERR_NOT_FOUND)
        differs(c, PLX_FINDING_ERROR, vdi,
                "%s belongs to instance %llu, which the registry does not know" REBUILD, what,
                (unsigned long long)id);
    else if (error)
        return plx_registry_fault(c->registry, error, c->fault);
    return 0;
}

/* ---- Extents ---- */

static const char *type_name(enum plx_extent_type type)
{
    return type == PLX_EXTENT_DATA ? "data" : type == PLX_EXTENT_META ? "metadata" : "unused";
}

static void tell_older(struct compare *c, uint64_t no)
{
    c->volume[plx_volumes_index_of(c->store, no)].older++;
    differs(c, PLX_FINDING_ERROR, "",
            "extent %llu (%.200s): its header is older than what was written last: the device lost "
            "a write that it had acknowledged",
            (unsigned long long)no, plx_volumes_name_of(c->store, no));
}

/* COMPARE-10 */
static void tell_newer(struct compare *c, uint64_t no)
{
    struct plx_fault why;

    plx_door_refuse_newer_extent(c->store, no, &why);
    differs(c, PLX_FINDING_ERROR, "", "%s", why.text);
}

/* COMPARE-9 */
static void tell_volumes(struct compare *c)
{
    for (unsigned i = 0; i < c->info.volumes; i++) {
        unsigned long long older = c->volume[i].older, disbelieved = c->volume[i].disbelieved;

        if (older)
            differs(c, PLX_FINDING_ERROR, "",
                    "volume %u (%.200s): %llu of its extents %s older than what was written there "
                    "last: it went back to an older state, or lost writes; put the newer one back; "
                    "only if there is none, 'parallax store rebuild-registry' sees to it that "
                    "nothing is allocated in older extents any more",
                    i, c->info.volume[i].name, older, plx_is_or_are(older));
        if (disbelieved)
            differs(c, PLX_FINDING_INFO, "",
                    "volume %u (%.200s): %llu of its extents %s damaged or went back to an older "
                    "state: what disks have there is read as far as it is whole, and nothing else "
                    "is allocated or freed there",
                    i, c->info.volume[i].name, disbelieved, disbelieved == 1 ? "was" : "were");
    }
}

static int compare_extent(struct compare *c, const struct plx_registry_extent *row)
{
    struct plx_extent_info extent;
    struct plx_fault why;
    unsigned long long no = row->no;
    char what[64];
    int error = plx_store_extent_read(c->store, row->no, &extent, &why);
    bool empty, newer;

    if (row->states == PLX_STATES_NEVER) { /* and a rebuild keeps that */
        c->volume[plx_volumes_index_of(c->store, no)].disbelieved++;
        return 0;
    }
    if (error == PLX_ERR_CORRUPT) /* the store's own check says so */
        return 0;
    if (error)
        return plx_fault_set(c->fault, error, "%s", why.text);
    snprintf(what, sizeof what, "extent %llu", no);
    newer = plx_door_extent_is_newer(row, extent.settled ? extent.states : 0);
    empty = extent.type == PLX_EXTENT_UNUSED || extent.used_blocks <= extent.header_blocks;
    error = check_instance(c, extent.owner, row->owner, "", what);
    if (error)
        return error;
    if (extent.states < row->states)
        tell_older(c, no);
    else if (newer)
        tell_newer(c, no);
    else if (row->type == PLX_EXTENT_UNUSED && !empty)
        differs(c, PLX_FINDING_ERROR, "",
                "extent %llu is unused in the registry, and holds %llu %s block%s, which would be "
                "overwritten" REBUILD,
                no, (unsigned long long)(extent.used_blocks - extent.header_blocks),
                type_name(extent.type), plx_plural(extent.used_blocks - extent.header_blocks));
    else if (row->type != PLX_EXTENT_UNUSED && extent.type != PLX_EXTENT_UNUSED && !empty &&
             row->type != extent.type)
        differs(c, PLX_FINDING_ERROR, "",
                "extent %llu is a %s extent in the registry and a %s extent on the store" REBUILD,
                no, type_name(row->type), type_name(extent.type));
    else if (row->type != PLX_EXTENT_UNUSED && empty && !extent.owner && !row->owner &&
             extent.type == PLX_EXTENT_UNUSED)
        differs(c, PLX_FINDING_ERROR, "",
                "extent %llu is a %s extent in the registry and never came into use on the "
                "store" REBUILD,
                no, type_name(row->type));
    if (extent.owner && !row->owner && !newer)
        differs(c, PLX_FINDING_ERROR, "",
                "extent %llu belongs to instance %llu on the store and to nobody in the registry: "
                "two could allocate from it" REBUILD,
                no, (unsigned long long)extent.owner);
    /* Claimed or adopted and not yet written (COMPARE-2), or another's. */
    if (row->owner && extent.owner && row->owner != extent.owner)
        differs(c, PLX_FINDING_INFO, "",
                "extent %llu belongs to instance %llu in the registry and still to %llu on the "
                "store" RECOVER,
                no, (unsigned long long)row->owner, (unsigned long long)extent.owner);
    if (row->sealed != extent.sealed && extent.sealed && !row->owner)
        differs(c, PLX_FINDING_INFO, "",
                "extent %llu is sealed on the store and not in the registry" RECOVER, no);
    return 0;
}

/* COMPARE-4. Whether it is the system's on the store. One that is kept for it is as good as
 * unused. */
static bool compare_system(struct compare *c, struct plx_registry_extent *row)
{
    bool system = plx_store_extent_is_system(c->store, row->no);
    unsigned long long no = row->no;

    if (system && row->type != PLX_EXTENT_SYSTEM && no < c->registered)
        differs(c, PLX_FINDING_ERROR, "",
                "extent %llu holds the store's own structures and is a%s %s extent in the "
                "registry: they would be overwritten" REBUILD,
                no, row->type == PLX_EXTENT_UNUSED ? "n" : "", type_name(row->type));
    if (!system && row->type == PLX_EXTENT_SYSTEM) {
        differs(c, PLX_FINDING_INFO, "",
                "extent %llu is kept for the registry, which does not use it yet; 'parallax store "
                "grow' goes on with that",
                no);
        row->type = PLX_EXTENT_UNUSED;
    }
    return system;
}

static int compare_extents(struct compare *c)
{
    struct plx_registry_extent *list;
    struct plx_extent_range range;
    size_t count, at = 0;
    uint64_t torn;
    int error = plx_registry_extent_torn_ranges(c->registry, c->row.id, &torn);

    if (!error)
        error = plx_registry_extent_list(c->registry, c->row.id, PLX_REGISTRY_ANY, &list, &count);
    if (error)
        return plx_registry_fault(c->registry, error, c->fault);
    if (torn) /* COMPARE-7 */
        differs(c, PLX_FINDING_ERROR, "",
                "the registry contradicts itself on which extents were ever used" REBUILD);
    for (unsigned r = 0; plx_store_range(c->store, r, &range) && !error; r++) {
        for (uint64_t no = range.first; no < range.first + range.extents && !error; no++) {
            struct plx_registry_extent row = {.no = no}; /* one without a row is unused */

            while (at < count && list[at].no < no)
                at++;
            if (at < count && list[at].no == no)
                row = list[at];
            if (!compare_system(c, &row))
                error = compare_extent(c, &row);
        }
    }
    tell_volumes(c);
    while (at < count && list[at].no < c->info.extents)
        at++;
    if (!error && at < count)
        differs(c, PLX_FINDING_ERROR, "",
                "the registry has extent %llu, beyond the end of the store, which has %llu" REBUILD,
                (unsigned long long)list[at].no, (unsigned long long)c->info.extents);
    free(list);
    return error;
}

/* ---- Virtual disks ---- */

static void compare_live(struct compare *c, const struct plx_registry_vdi *row,
                         const struct plx_vdi_info *vdi)
{
    const char *name = row->name;
    char parent[PLX_UUID_TEXT] = "";

    if (vdi->parent_seq)
        plx_uuid_text(&vdi->parent, parent);
    if (strcmp(vdi->name, name) != 0) /* with an owner: COMPARE-6 */
        differs(c, row->owner ? PLX_FINDING_INFO : PLX_FINDING_ERROR, name,
                "virtual disk %s is called %s by its record%s", name, vdi->name,
                row->owner ? RECOVER : RENAME);
    if (row->slot != vdi->slot)
        differs(c, PLX_FINDING_ERROR, name,
                "virtual disk %s has slot %u on the store and %u in the registry" REBUILD, name,
                vdi->slot, row->slot);
    if (row->sector_size != vdi->sector_size || row->parent_seq != vdi->parent_seq ||
        strcmp(row->parent, parent) != 0)
        differs(c, PLX_FINDING_ERROR, name,
                "virtual disk %s: sector size or parent differ in the registry" REBUILD, name);
    /* While somebody has it open, its log knows better than its record. */
    if (row->size_bytes != vdi->size_bytes && !vdi->owner && !row->owner)
        differs(c, PLX_FINDING_ERROR, name,
                "virtual disk %s has %llu bytes on the store and %llu in the registry" REBUILD,
                name, (unsigned long long)vdi->size_bytes, (unsigned long long)row->size_bytes);
    if (row->epoch < vdi->epoch)
        differs(c, PLX_FINDING_ERROR, name,
                "virtual disk %s: epoch %llu on the store, %llu in the registry: it cannot be "
                "opened" REBUILD,
                name, (unsigned long long)vdi->epoch, (unsigned long long)row->epoch);
    if (vdi->owner && !row->owner)
        differs(c, PLX_FINDING_ERROR, name,
                "virtual disk %s is open in instance %llu on the store and by nobody in the "
                "registry" REBUILD,
                name, (unsigned long long)vdi->owner);
    if (vdi->owner && row->owner && vdi->owner != row->owner)
        differs(c, PLX_FINDING_INFO, name,
                "virtual disk %s belongs to instance %llu in the registry and still to %llu on "
                "the store" RECOVER,
                name, (unsigned long long)row->owner, (unsigned long long)vdi->owner);
    if (row->deleted)
        differs(c, PLX_FINDING_ERROR, name,
                "virtual disk %s is deleted in the registry and alive on the store" REBUILD, name);
}

static const struct plx_registry_label *find_label(const struct plx_registry_label *list,
                                                   size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i].name, name) == 0)
            return &list[i];
    return NULL;
}

/* locked: COMPARE-6 */
static int compare_labels(struct compare *c, const struct plx_vdi_info *vdi, const char *id,
                          bool locked)
{
    enum plx_finding_severity severity = locked ? PLX_FINDING_INFO : PLX_FINDING_ERROR;
    struct plx_labels labels;
    struct plx_registry_label *rows = NULL;
    struct plx_fault why;
    size_t count = 0;
    int error = plx_labels_read(c->store, vdi->slot, 0, &labels, &why);

    if (error == PLX_ERR_CORRUPT) { /* the store's own check says where */
        plx_labels_done(&labels);
        return 0;
    }
    if (error)
        plx_fault_set(c->fault, error, "%s", why.text);
    else if ((error = plx_registry_label_list(c->registry, id, &rows, &count)))
        plx_registry_fault(c->registry, error, c->fault);
    for (size_t i = 0; i < labels.count && !error; i++) {
        const struct plx_registry_label *row = find_label(rows, count, labels.list[i].name);

        if (!row || row->seq != labels.list[i].seq)
            differs(c, severity, vdi->name,
                    "virtual disk %s: label %s names snapshot %llu on the store and %s in the "
                    "registry%s",
                    vdi->name, labels.list[i].name, (unsigned long long)labels.list[i].seq,
                    row ? "another" : "none", locked ? RECOVER : REBUILD);
    }
    for (size_t i = 0; i < count && !error; i++)
        if (!find_label(labels.list, labels.count, rows[i].name))
            differs(c, severity, vdi->name, "virtual disk %s: label %s is only in the registry%s",
                    vdi->name, rows[i].name,
                    locked ? RECOVER : "; 'parallax snap unlabel' removes it");
    plx_labels_done(&labels);
    free(rows);
    return error;
}

static int compare_protection(struct compare *c, const struct plx_vdi_info *vdi, const char *id)
{
    char store[2][PLX_TIERS_TEXT], registry[2][PLX_TIERS_TEXT];
    struct plx_protection kept;
    int error = plx_policy_load(c->registry, id, &kept, c->fault);

    if (error && error != PLX_ERR_INVALID)
        return error;
    plx_protection_mode_text(&vdi->protection, store[0]);
    plx_protection_tiers_text(&vdi->protection, store[1]);
    if (error) {
        differs(c, PLX_FINDING_INFO, vdi->name,
                "virtual disk %s: protection is %s (keeps '%s') on the store, the registry's copy "
                "is none" REBUILD,
                vdi->name, store[0], store[1]);
        return 0;
    }
    plx_protection_mode_text(&kept, registry[0]);
    plx_protection_tiers_text(&kept, registry[1]);
    if (strcmp(store[0], registry[0]) || strcmp(store[1], registry[1]))
        differs(c, PLX_FINDING_INFO, vdi->name,
                "virtual disk %s: protection is %s (keeps '%s') on the store and %s ('%s') in the "
                "registry" REBUILD,
                vdi->name, store[0], store[1], registry[0], registry[1]);
    return 0;
}

static int compare_slot(struct compare *c, uint32_t slot, struct plx_vdi_info *ret_vdi,
                        bool *ret_live)
{
    struct plx_registry_vdi row;
    struct plx_fault why;
    char id[PLX_UUID_TEXT], what[PLX_NAME_MAX + 16], advice[PLX_OLDER_TEXT];
    int error = plx_vdi_read_info(c->store, slot, ret_vdi, &why);

    *ret_live = false;
    if (error == PLX_ERR_NOT_FOUND || error == PLX_ERR_CORRUPT)
        return 0;
    if (error)
        return plx_fault_set(c->fault, error, "%s", why.text);
    *ret_live = ret_vdi->state == PLX_VDI_LIVE;
    plx_uuid_text(&ret_vdi->id, id);
    error = plx_registry_vdi_get_by_id(c->registry, id, &row);
    if (error == PLX_ERR_NOT_FOUND) {
        if (*ret_live)
            differs(c, PLX_FINDING_ERROR, ret_vdi->name,
                    "virtual disk %s (slot %u) is not in the registry" REBUILD, ret_vdi->name,
                    slot);
        return 0;
    }
    if (error)
        return plx_registry_fault(c->registry, error, c->fault);
    if (!*ret_live) {
        if (!row.deleted && !row.owner)
            differs(c, PLX_FINDING_ERROR, row.name,
                    "virtual disk %s is deleted on the store and alive in the registry" REBUILD,
                    row.name);
        return 0;
    }
    /* COMPARE-5; read again, for it may have been closed since. */
    if (plx_door_is_back(&row, ret_vdi) && plx_vdi_read_info(c->store, slot, ret_vdi, NULL) == 0 &&
        plx_door_is_back(&row, ret_vdi)) {
        differs(c, PLX_FINDING_ERROR, row.name,
                "virtual disk %s: its record is older than what was written last: %s", row.name,
                plx_door_older_advice(&row, advice));
        return 0;
    }
    compare_live(c, &row, ret_vdi);
    memcpy(ret_vdi->name, row.name, sizeof ret_vdi->name); /* ATTACH-19 */
    snprintf(what, sizeof what, "virtual disk %s", row.name);
    error = check_instance(c, ret_vdi->owner, row.owner, row.name, what);
    if (!error)
        error = compare_labels(c, ret_vdi, id, row.owner != 0);
    return error ? error : compare_protection(c, ret_vdi, id);
}

/* COMPARE-11 */
static void compare_origin(struct compare *c, const struct plx_registry_vdi *origin,
                           const struct plx_registry_vdi *live, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(live[i].parent, origin->id) == 0 && !plx_door_is_there(c->store, origin))
            differs(c, PLX_FINDING_INFO, live[i].name,
                    "virtual disk %s is a clone of %s, which was deleted and whose record in slot "
                    "%u of the store is gone: only the registry knows whose snapshots the clone "
                    "needs",
                    live[i].name, origin->name, origin->slot);
}

static int compare_origins(struct compare *c, const struct plx_registry_vdi *live, size_t count)
{
    struct plx_registry_vdi *gone = NULL, *strays = NULL;
    size_t gone_count = 0, stray_count = 0;
    char text[PLX_STRAY_TEXT];
    int error = plx_registry_vdi_list(c->registry, c->row.id, true, NULL, 0, &gone, &gone_count);

    if (!error)
        error = plx_registry_vdi_strays(c->registry, c->row.id, &strays, &stray_count);
    for (size_t i = 0; i < gone_count && !error; i++)
        compare_origin(c, &gone[i], live, count);
    for (size_t i = 0; i < stray_count && !error; i++) {
        plx_door_tell_stray(&strays[i], text);
        differs(c, PLX_FINDING_INFO, strays[i].name, "%s", text);
    }
    free(gone);
    free(strays);
    return error ? plx_registry_fault(c->registry, error, c->fault) : 0;
}

static int compare_vdis(struct compare *c)
{
    struct plx_slot_scan scan = {0};
    struct plx_registry_vdi *list;
    struct plx_vdi_info vdi;
    size_t count = 0;
    bool live;
    int error = 0;

    for (uint32_t slot = 0; !error && plx_vdi_next_slot(c->store, &scan, &slot); slot++)
        error = compare_slot(c, slot, &vdi, &live);
    if (error)
        return error;
    error = plx_registry_vdi_list(c->registry, c->row.id, false, NULL, 0, &list, &count);
    if (error)
        return plx_registry_fault(c->registry, error, c->fault);
    for (size_t i = 0; i < count; i++)
        if (!list[i].owner &&
            !plx_door_is_there(c->store, &list[i])) /* else it is being made (ATTACH-3) */
            differs(c, PLX_FINDING_ERROR, list[i].name,
                    "virtual disk %s is in the registry, and slot %u of the store does not hold "
                    "it: the device lost a write that it had acknowledged; restore the store, or "
                    "give the disk up by 'parallax vdi delete STORE/%s --lost'; until then nothing "
                    "of it is freed",
                    list[i].name, list[i].slot, list[i].name);
    error = compare_origins(c, list, count);
    free(list);
    return error;
}

/* ---- What is known to be wrong ---- */

static int compare_lost(struct compare *c)
{
    struct plx_registry_lost *list;
    size_t count;
    int error = plx_registry_lost_list(c->registry, c->row.id, &list, &count);

    if (error)
        return plx_registry_fault(c->registry, error, c->fault);
    for (size_t i = 0; i < count; i++)
        differs(c, PLX_FINDING_ERROR, "",
                "lost: %s; restore the store, or give it up by 'parallax vdi forget --lost'",
                list[i].why);
    free(list);
    return 0;
}

/* ---- The whole ---- */

static int compare_once(struct compare *c)
{
    struct plx_fault why;
    int error;

    if (c->row.doubt[0])
        differs(c, PLX_FINDING_ERROR, "",
                "the store is in doubt, so nothing new is opened for writing: %s%s", c->row.doubt,
                plx_registry_doubt_advice(&c->row));

    plx_attach_volumes_changed(c->attach, &why); /* COMPARE-3; if it cannot be, the old ones stay */
    plx_store_get_info(c->store, &c->info);
    error = compare_volumes(c);
    if (!error)
        error = compare_extents(c);
    if (!error)
        error = compare_vdis(c);
    if (!error)
        error = compare_lost(c);
    return error ? error : c->error;
}

/* COMPARE-7 */
static int check_registry(struct compare *c, void (*found)(void *, const struct plx_finding *),
                          void *context, bool *ret_damaged)
{
    struct plx_finding finding = {
        .severity = PLX_FINDING_ERROR, .kind = "registry", .vblock = UINT64_MAX};
    struct plx_fault why;
    int error = plx_registry_check(c->registry);

    *ret_damaged = error == PLX_ERR_REGISTRY;
    if (!error)
        return 0;
    plx_registry_fault(c->registry, error, &why);
    if (!*ret_damaged)
        return plx_fault_set(c->fault, error, "%s", why.text);
    finding.text = why.text;
    found(context, &finding);
    return 0;
}

int plx_attach_compare(struct plx_attach *attach,
                       void (*found)(void *context, const struct plx_finding *finding),
                       void *context, struct plx_fault *fault)
{
    struct compare first = {.attach = attach, .fault = fault}, again;
    bool damaged;
    char id[PLX_UUID_TEXT];
    int error;

    first.registry = plx_attach_registry(attach);
    first.store = plx_attach_store(attach);
    error = check_registry(&first, found, context, &damaged);
    if (error)
        return error;
    plx_store_get_info(first.store, &first.info);
    plx_uuid_text(&first.info.id, id);
    error = plx_registry_store_get(first.registry, id, &first.row);
    if (error)
        return damaged ? 0 : plx_registry_fault(first.registry, error, fault);
    again = first;
    error = compare_once(&first);
    if (!error && first.count) { /* COMPARE-1 */
        usleep(AGAIN_US);
        error = compare_once(&again);
    }
    for (size_t i = 0; i < again.count && !error; i++) {
        const struct difference *d = &again.list[i];
        struct plx_finding finding = {.severity = d->severity,
                                      .kind = "registry",
                                      .text = d->text,
                                      .vdi = d->vdi[0] ? d->vdi : NULL,
                                      .vblock = UINT64_MAX};
        bool stays = false;

        for (size_t j = 0; j < first.count && !stays; j++)
            stays = strcmp(first.list[j].text, d->text) == 0;
        if (stays)
            found(context, &finding);
    }
    free(first.list);
    free(again.list);
    return damaged ? 0 : error;
}
