/* rebuild_old.c - what the old registry knows, and the store does not say (REBUILD-5 to
 * REBUILD-7). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/attach_ring.h"
#include "attach/doors.h"
#include "attach/rebuild_inside.h"
#include "attach/volumes.h"
#include "registry/clocks.h"
#include "registry/retention.h"
#include "registry/threshold.h"

struct plx_embedded_options plx_rebuilding_embedded(struct rebuild *r)
{
    return (struct plx_embedded_options){
        .volume = r->known.volume[0],
        .uuid = r->known.uuid,
        .who = "parallax store rebuild-registry",
        .in_store = true,
        .beside = true, /* REBUILD-1 */
        .damaged = &r->damaged,
    };
}

/* REBUILD-5. One that is damaged says nothing; what a newer program wrote, or what cannot be read
 * just now, may say much. */
int plx_rebuilding_open_old(struct rebuild *r)
{
    struct plx_embedded_options options = plx_rebuilding_embedded(r);
    struct plx_registry_store row;
    int error;

    if (r->clustered) { /* REBUILD-18 */
        r->rebuilt.unknown = true;
        return 0;
    }
    options.read_only = r->options->dry_run;
    error = plx_embedded_open(&options, &r->old, r->fault);
    if (error && !r->damaged)
        return error;
    if (!error)
        error = plx_rebuilding_read_old(r, plx_registry_store_get(r->old, r->known.uuid, &row),
                                        "the store");
    if (!error)
        error = plx_rebuilding_read_old(
            r, plx_registry_vdi_list(r->old, row.id, false, NULL, 0, &r->old_vdis, &r->old_count),
            "the virtual disks");
    if (error && r->old && error != PLX_ERR_NOT_FOUND)
        return error;
    r->knows = !error;
    r->rebuilt.unknown = !r->knows;
    if (r->knows) {
        r->old_row = row.id;
        r->outdated = r->doubted = row.doubt[0] != 0;
    }
    return 0;
}

/* REBUILD-5. r->unread: it cannot be read. */
static int keep_setting(struct rebuild *r, const char *vdi, const char *name)
{
    char value[PLX_POLICY_VALUE_MAX + 1];
    int error = plx_rebuilding_read_old(r, plx_registry_policy_get(r->old, vdi, name, value), NULL);

    if (!error)
        error = plx_rebuilding_registry_fault(r, r->file,
                                              plx_registry_policy_set(r->file, vdi, name, value));
    return error == PLX_ERR_NOT_FOUND ? 0 : error;
}

static int keep_settings_of(struct rebuild *r, const struct plx_registry_vdi *row)
{
    static const struct {
        const char *key, *name;
    } kept[] = {
        {PLX_POLICY_WARN_AT, "--warn-at"}, {PLX_POLICY_RING, "--ring"},
        {PLX_POLICY_ON_FULL, "--on-full"}, {PLX_POLICY_SHORTENED, "its shortened window"},
        {PLX_POLICY_CLOCK, "its clock"},
    };
    char what[PLX_NAME_MAX + 160], names[120] = "";
    int error = 0;

    for (size_t k = 0; k < sizeof kept / sizeof *kept && !error; k++) {
        error = keep_setting(r, row->id, kept[k].key);
        if (!error && r->unread)
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s",
                     *names ? ", " : "", kept[k].name);
    }
    if (error || !*names)
        return error;
    snprintf(what, sizeof what, "virtual disk %s (%s)", row->name, names);
    plx_rebuilding_tell_unread(r, what);
    return 0;
}

/* Those that the store does not say itself. How far retention has come is left out: it is found
 * again. */
static int keep_settings(struct rebuild *r)
{
    char value[PLX_POLICY_VALUE_MAX + 1];
    int error = plx_rebuilding_read_old(
        r, plx_registry_store_policy_get(r->old, r->old_row, PLX_POLICY_WARN_AT, value),
        "--warn-at of the store");

    if (!error)
        error = plx_rebuilding_registry_fault(
            r, r->file, plx_registry_store_policy_set(r->file, r->row, PLX_POLICY_WARN_AT, value));
    if (error == PLX_ERR_NOT_FOUND)
        error = 0;
    for (size_t i = 0; i < r->vdi_count && !error; i++)
        if (!r->vdis[i].deleted)
            error = keep_settings_of(r, &r->vdis[i]);
    return error;
}

/* REBUILD-7 */
int plx_rebuilding_keep_labels(struct rebuild *r, const char *vdi)
{
    struct plx_registry_label *list = NULL;
    size_t count = 0, kept = 0;
    char why[200];
    int error = r->knows ? plx_rebuilding_read_old(
                               r, plx_registry_label_list(r->old, vdi, &list, &count), "labels")
                         : 0;

    for (size_t i = 0; i < count; i++) /* another word is damage: nobody made that label */
        if (!plx_name_check("label", list[i].name, why, sizeof why))
            list[kept++] = list[i];
    if (!error)
        error = plx_rebuilding_registry_fault(r, r->file,
                                              plx_registry_import_labels(r->file, vdi, list, kept));
    free(list);
    return error == PLX_ERR_NOT_FOUND ? 0 : error;
}

int plx_rebuilding_never_believe(struct rebuild *r, uint64_t number, const char *why)
{
    const struct plx_registry_extent row = {
        .no = number, .type = PLX_EXTENT_DATA, .sealed = true, .states = PLX_STATES_NEVER};

    if (r->unbelieved[number])
        return 0;
    r->unbelieved[number] = true;
    r->rebuilt.sealed_extents++;
    plx_rebuilding_tell_lost(r, "extent %" PRIu64 ": %s; nothing is allocated in it any more",
                             number, why);
    return plx_rebuilding_registry_fault(r, r->file,
                                         plx_registry_import_extents(r->file, r->row, &row, 1));
}

/* REBUILD-11. old: without a row, what was never used. */
static void look_for_newer(struct rebuild *r, const struct plx_registry_extent *old,
                           const struct plx_registry_extent *here)
{
    if (here->states == PLX_STATES_NEVER || !plx_door_extent_is_newer(old, here->states))
        return;
    if (plx_volumes_index_of(r->store, here->no))
        r->rebuilt.newer_extents++;
    else
        r->newer_first = true;
}

/* REBUILD-6 */
static int keep_seals(struct rebuild *r)
{
    static const struct plx_registry_extent none = {0}; /* unused */
    struct plx_registry_extent *list = NULL;
    size_t count = 0, at = 0;
    int error = plx_rebuilding_read_old(
        r, plx_registry_extent_list(r->old, r->old_row, PLX_REGISTRY_ANY, &list, &count),
        "extents");

    r->outdated = r->outdated || r->unread; /* nobody can tell */
    if (error)
        return error == PLX_ERR_NOT_FOUND ? 0 : error;
    for (size_t i = 0; i < count && !error; i++) { /* both by their numbers */
        const struct plx_registry_extent *here = &none;

        if (list[i].no >= r->info.extents) /* what it knows of these is wrong */
            break;
        while (at < r->extent_count && r->extents[at].no < list[i].no)
            look_for_newer(r, &none, &r->extents[at++]);
        if (at < r->extent_count && r->extents[at].no == list[i].no)
            here = &r->extents[at++];
        look_for_newer(r, &list[i], here);
        if (list[i].states == PLX_STATES_NEVER
                ? here->states != PLX_STATES_NEVER
                : list[i].states > here->states && (here == &none || here->states))
            error = plx_rebuilding_never_believe(
                r, list[i].no,
                list[i].states == PLX_STATES_NEVER
                    ? "the registry knows that its header is not to be believed"
                    : "its header is older than what was written last");
    }
    while (at < r->extent_count)
        look_for_newer(r, &none, &r->extents[at++]);
    free(list);
    return error;
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
        return plx_rebuilding_registry_fault(r, r->file, error);
    error = plx_vdi_read_info(r->store, old->slot, &vdi, &why);
    if (error && error != PLX_ERR_NOT_FOUND)
        return error == PLX_ERR_CORRUPT ? 0 : plx_fault_set(r->fault, error, "%s", why.text);
    taken = !error && vdi.state == PLX_VDI_LIVE;
    if (old->owner && !old->written.state && !taken) /* it was being made (doors.c) */
        return 0;
    snprintf(text, sizeof text, "slot %u of the store does not hold it", old->slot);
    /* One whose slot is another disk's is lost in a slot that there is not. */
    return plx_rebuilding_lose_record(r, old->slot + (taken ? r->info.vdi_slots : 0), old, text);
}

static int keep_vdis(struct rebuild *r)
{
    int error = 0;

    for (size_t i = 0; i < r->old_count && !error; i++)
        error = keep_vdi(r, &r->old_vdis[i]);
    return error;
}

/* ---- Ancestors ---- */

/* Whether the old registry's disk leads to one that the new registry has, and is not there itself.
 */
static bool is_missed(const struct plx_registry_vdi *rows, size_t count,
                      const struct plx_registry_vdi *old)
{
    bool known = false, has_clone = false;

    for (size_t i = 0; i < count; i++) {
        known |= strcmp(rows[i].id, old->id) == 0;
        has_clone |= strcmp(rows[i].parent, old->id) == 0;
    }
    return has_clone && !known;
}

/* A deleted disk has a slot of its own. If that is another disk's by now, the old registry is an
 * outdated one, and a live disk is entered as lost already (keep_vdi()). */
static int keep_ancestor(struct rebuild *r, bool live, struct plx_registry_vdi *row)
{
    for (size_t i = 0; i < r->vdi_count; i++)
        if (r->vdis[i].slot == row->slot)
            return live ? 0
                        : plx_rebuilding_lose_record(r, row->slot + r->info.vdi_slots, row,
                                                     "clones descend from it, and its slot is "
                                                     "another disk's");
    row->store = r->row;
    row->owner = 0;
    row->deleted = true;
    return plx_rebuilding_registry_fault(r, r->file, plx_registry_import_vdis(r->file, row, 1));
}

/* REBUILD-13: of the live ones and of the deleted ones that the old registry knew. */
static int keep_ancestors(struct rebuild *r)
{
    struct plx_registry_vdi *gone = NULL, *rows;
    size_t gone_count = 0, count = r->vdi_count, before;
    int error = plx_rebuilding_read_old(
        r, plx_registry_vdi_list(r->old, r->old_row, true, NULL, 0, &gone, &gone_count),
        "deleted virtual disks");

    if (error)
        return error == PLX_ERR_NOT_FOUND ? 0 : error;
    rows = calloc(count + r->old_count + gone_count + 1, sizeof *rows);
    if (!rows) {
        free(gone);
        return plx_fault_set(r->fault, PLX_ERR_NOMEM, "out of memory");
    }
    if (count)
        memcpy(rows, r->vdis, count * sizeof *rows);
    do {
        before = count;
        for (size_t i = 0; i < r->old_count + gone_count && !error; i++) {
            bool live = i < r->old_count;
            const struct plx_registry_vdi *old = live ? &r->old_vdis[i] : &gone[i - r->old_count];

            if (!is_missed(rows, count, old))
                continue;
            rows[count] = *old;
            error = keep_ancestor(r, live, &rows[count++]);
        }
    } while (!error && count > before);
    free(rows);
    free(gone);
    return error;
}

/* REBUILD-7. What an earlier rebuild lost, unless its slot has a live record again. */
static int keep_lost(struct rebuild *r)
{
    struct plx_registry_lost *list = NULL;
    struct plx_vdi_info vdi;
    size_t count = 0;
    int error =
        plx_rebuilding_read_old(r, plx_registry_lost_list(r->old, r->old_row, &list, &count),
                                "records that an earlier rebuild had lost");

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
            error = plx_rebuilding_enter_lost(r, list[i].slot, list[i].why, "");
    }
    free(list);
    return error;
}

int plx_rebuilding_keep_old(struct rebuild *r)
{
    int error = keep_seals(r);

    if (!error)
        error = keep_settings(r);
    if (!error)
        error = keep_vdis(r);
    return error ? error : keep_ancestors(r);
}

/* What is gone may be records; the slot is one that there is not. */
int plx_rebuilding_tell_newer(struct rebuild *r)
{
    uint64_t *newer = &r->rebuilt.newer_extents;
    char text[256], extents[80] = "";
    int error = 0;

    if (r->newer_first)
        *newer = 0;
    if (*newer)
        snprintf(extents, sizeof extents, ", for %" PRIu64 " extent%s of further volumes %s newer",
                 *newer, plx_plural(*newer), plx_is_or_are(*newer));
    if (*newer || r->rebuilt.first_back) {
        snprintf(text, sizeof text,
                 "%.80s went back to an older state%s; what disks have there without a checksum "
                 "may be another's by now",
                 r->known.volume[0], extents);
        plx_rebuilding_tell_lost(r, "%s", text);
        error = plx_rebuilding_add_lost(r, 2 * r->info.vdi_slots, NULL, text);
    }
    return error || !r->knows ? error : keep_lost(r);
}
