/* ring_disks.c - see ring_disks.h.
 *
 * RING_DISKS-1  Whether a disk needs a ring, only the disk's record on the store says, by its mark
 *     (FRONT-2). A segment of the disk on the ring proves nothing: its records may be on the store
 *     by now, or discarded. And a ring that cannot be read is needed all the same.
 * RING_DISKS-2  If a disk has no mark, its records on a ring behind its position were discarded, or
 *     were never acknowledged. They are counted as set aside.
 * RING_DISKS-3  A ring that does not match a disk's mark is another ring, an old copy, or a member
 *     left behind; its records of that disk are ignored.
 * RING_DISKS-4  The records on a ring that is in use are not looked at. They change meanwhile, and
 *     the positions in the disks' records on the store lag behind.
 * Threads: the caller's.
 * Crash story: nothing is written here.
 */
#include "attach/ring_disks.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/list.h"

struct lookup {
    const struct plx_uuid *ring;
    struct plx_ring *loaded;
    struct plx_store *store;
    bool in_use;
    struct plx_ring_disks *disks;
    bool no_memory;
};

static struct plx_ring_disk *find(struct plx_ring_disks *disks, const struct plx_uuid *id)
{
    for (size_t i = 0; i < disks->count; i++)
        if (plx_uuid_equal(&disks->disk[i].id, id))
            return &disks->disk[i];
    return NULL;
}

static struct plx_ring_disk *add(struct lookup *l, const struct plx_uuid *id)
{
    struct plx_ring_disks *disks = l->disks;

    if (!PLX_LIST_ROOM(disks->disk, disks->count, disks->capacity, 16)) {
        l->no_memory = true;
        return NULL;
    }
    disks->disk[disks->count] = (struct plx_ring_disk){.id = *id};
    return &disks->disk[disks->count++];
}

static void add_of_ring(void *context, const struct plx_uuid *vdi, uint32_t segments)
{
    struct plx_ring_disk *disk = add(context, vdi);

    if (disk)
        disk->segments = segments;
}

static void look_at_chain(struct lookup *l, struct plx_ring_disk *disk,
                          const struct plx_vdi_info *info)
{
    const struct plx_ring_chain_options options = {
        .vdi = disk->id,
        .epoch = info->epoch + 1,
        .mark = disk->marked ? info->mark : (struct plx_ring_mark){.set = 0}, /* RING_DISKS-2 */
        .position = info->position,
    };

    if (!l->loaded || l->in_use) /* RING_DISKS-4 */
        return;
    /* RING_DISKS-3 */
    disk->looked = plx_ring_chain_look(l->loaded, &options, &disk->look, &disk->problem) == 0;
    if (disk->marked && plx_ring_count_newer(l->loaded, &options, &disk->newer, NULL))
        disk->newer = 0;
}

/* RING_DISKS-1. A disk of the store. */
static void take_record(struct lookup *l, const struct plx_vdi_info *info)
{
    bool marked = plx_uuid_equal(&info->mark.ring, l->ring);
    struct plx_ring_disk *disk = find(l->disks, &info->id);

    if (!disk && marked)
        disk = add(l, &info->id);
    if (!disk)
        return;
    memcpy(disk->name, info->name, sizeof disk->name);
    disk->marked = marked;
    disk->position = info->position;
    l->disks->marked += marked;
    look_at_chain(l, disk, info);
}

static void look_at_records(struct lookup *l)
{
    struct plx_slot_scan scan = {0};

    for (uint32_t slot = 0; plx_vdi_next_slot(l->store, &scan, &slot) && !l->no_memory; slot++) {
        struct plx_vdi_info info;
        int error = plx_vdi_read_info(l->store, slot, &info, NULL);

        if (!error && info.state == PLX_VDI_LIVE)
            take_record(l, &info);
        l->disks->untold += error && error != PLX_ERR_NOT_FOUND;
    }
}

static int compare_names(const void *a, const void *b)
{
    const struct plx_ring_disk *one = a, *other = b;

    if (!*one->name != !*other->name)
        return *one->name ? -1 : 1;
    return *one->name ? strcmp(one->name, other->name)
                      : memcmp(&one->id, &other->id, sizeof one->id);
}

int plx_ring_disks_look(const struct plx_uuid *ring, struct plx_ring *loaded,
                        struct plx_store *store, bool in_use, struct plx_ring_disks *ret_disks,
                        struct plx_fault *fault)
{
    struct plx_ring_disks disks = {0};
    struct lookup l = {ring, loaded, store, in_use, &disks, false};

    if (loaded)
        plx_ring_each_disk(loaded, add_of_ring, &l);
    if (store && !l.no_memory)
        look_at_records(&l);
    if (l.no_memory) {
        plx_ring_disks_done(&disks);
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    }
    if (disks.count)
        qsort(disks.disk, disks.count, sizeof *disks.disk, compare_names);
    *ret_disks = disks;
    return 0;
}

void plx_ring_disks_done(struct plx_ring_disks *disks)
{
    free(disks->disk);
    *disks = (struct plx_ring_disks){0};
}
