/* space.c - how full a store and its virtual disks are: the space part of parallax store info and
 * vdi info. What an instance's extents hold is asked of the instance; what nobody has open is read
 * from the store. */
#include <inttypes.h>
#include <stdlib.h>

#include "attach/doors.h"
#include "output.h"
#include "registry/collections.h"
#include "session.h"
#include "space.h"

/* ---- How full a store is ---- */

struct space {
    uint64_t size, used, available; /* blocks; what is left is reserved */
    uint64_t system;                /* of what is used: the store's own */
    uint64_t recovery;              /* of what is reserved: what open disks need after a crash */
};

/* An instance that has the store open, and what is free in its extents, if it answers. */
struct owner {
    uint64_t id;
    struct plx_session_room room;
    bool answers;
};

struct owners {
    struct owner *list;
    size_t count;
};

static int ask_owners(struct plx_cli *cli, int64_t store, struct owners *ret_owners)
{
    struct plx_registry_instance *list = NULL;
    size_t count = 0;
    int rc = plx_registry_instance_list(cli->session.registry, store, &list, &count);
    struct owners owners = {.list = calloc(count + 1, sizeof *owners.list), .count = count};

    if (!rc && !owners.list)
        rc = plx_cli_fail(cli, PLX_ERR_NOMEM, "out of memory");
    else if (rc)
        plx_session_registry_fault(cli, rc);
    for (size_t i = 0; i < count && !rc; i++) {
        struct owner *owner = &owners.list[i];

        owner->id = list[i].id;
        owner->answers = plx_session_ask_room(cli, owner->id, &owner->room);
    }
    free(list);
    *ret_owners = owners;
    return rc;
}

static bool owner_answers(const struct owners *owners, uint64_t id)
{
    for (size_t i = 0; i < owners->count; i++)
        if (owners->list[i].id == id)
            return owners->list[i].answers;
    return false;
}

/* What the extents of one that answers hold, is its own business: see add_answers(). */
static int add_extent(struct plx_cli *cli, const struct plx_registry_extent *row,
                      const struct owners *owners, struct space *space)
{
    struct plx_extent_info extent;
    int rc;

    if (owner_answers(owners, row->owner))
        return 0;
    rc = plx_store_extent_read(plx_session_store(cli), row->no, &extent, &cli->fault);
    if (rc)
        return rc;
    space->used += extent.used_blocks;
    if (row->type == PLX_EXTENT_DATA && !extent.sealed)
        space->available += extent.blocks - extent.used_blocks;
    return 0;
}

/* An instance may have got an extent since its extents were listed. */
static void add_answers(const struct owners *owners, uint64_t blocks, struct space *space)
{
    uint64_t free_blocks = 0, data_free = 0;

    for (size_t i = 0; i < owners->count; i++) {
        const struct plx_session_room *room = &owners->list[i].room;

        free_blocks += room->data_free + room->meta_free;
        data_free += room->data_free;
        space->recovery += room->recovery;
    }
    space->used += blocks - plx_min_u64(free_blocks, blocks);
    space->available += plx_min_u64(data_free, blocks);
}

/* Adds up what the touched extents hold; those that were never touched are free. */
static int measure(struct plx_cli *cli, int64_t store, struct space *ret_space)
{
    struct plx_store_info info = {0};
    struct space space = {0};
    uint64_t unused, reserve, answered = 0;
    struct plx_registry_extent *list = NULL;
    struct owners owners;
    size_t count = 0;
    int rc = ask_owners(cli, store, &owners);

    if (!rc && (rc = plx_registry_extent_list(cli->session.registry, store, PLX_REGISTRY_ANY, &list,
                                              &count)))
        plx_session_registry_fault(cli, rc);
    plx_store_get_info(plx_session_store(cli), &info);
    if (!rc && count && list[count - 1].no >= info.extents) { /* perhaps it has just grown */
        rc = plx_attach_volumes_changed(cli->session.attach, &cli->fault);
        plx_store_get_info(plx_session_store(cli), &info);
    }
    space.size = info.extents * info.extent_blocks;
    unused = info.extents;
    reserve = plx_attach_reserve_extents(cli->session.attach);
    for (size_t i = 0; i < count && !rc; i++) {
        if (list[i].type == PLX_EXTENT_UNUSED)
            continue;
        unused--;
        answered += owner_answers(&owners, list[i].owner) ? info.extent_blocks : 0;
        if (list[i].type == PLX_EXTENT_SYSTEM && list[i].no < info.extents)
            space.system += info.extent_blocks;
        else
            rc = add_extent(cli, &list[i], &owners, &space);
    }
    add_answers(&owners, answered, &space);
    space.used += space.system;
    if (unused > reserve)
        space.available += (unused - reserve) * info.extent_blocks;
    free(list);
    free(owners.list);
    *ret_space = space;
    return rc;
}

/* Reclaimable space: 0 if no garbage has arisen since the last collection, otherwise unknown (null)
 * until the next one. */
static json_t *reclaimable(const struct plx_cli *cli, int64_t store, const char *name)
{
    struct plx_registry_collection last;

    if (plx_registry_collection_get(cli->session.registry, store, &last) == 0 && last.ended_ns &&
        !last.wanted && last.number % 2 == 0)
        return json_integer(0);
    return cli->json ? json_null() : json_sprintf("'parallax gc %s --dry-run' counts it", name);
}

static void put_blocks(json_t *object, const char *what, uint64_t blocks)
{
    char key[32];

    snprintf(key, sizeof key, "%s_bytes", what);
    json_object_set_new(object, key, json_integer((json_int_t)(blocks * PLX_BLOCK_SIZE)));
    snprintf(key, sizeof key, "%s_blocks", what);
    json_object_set_new(object, key, json_integer((json_int_t)blocks));
}

void plx_space_put_limit(json_t *object, const struct plx_threshold *limit, uint64_t size_bytes,
                         uint64_t used_bytes)
{
    uint64_t at_bytes = plx_threshold_at(limit, size_bytes);
    char text[PLX_THRESHOLD_TEXT], size[16];

    if (!at_bytes) {
        plx_out_keys(object, "warn_at_bytes", "warn_at", "warning", NULL);
        return;
    }
    json_object_set_new(object, "warn_at_bytes", json_integer((json_int_t)at_bytes));
    plx_text_size(at_bytes, size);
    json_object_set_new(object, "warn_at",
                        limit->percent
                            ? json_sprintf("%s (%s)", plx_threshold_text(limit, text), size)
                            : json_string(size));
    json_object_set_new(object, "warning",
                        used_bytes >= at_bytes ? json_string("the soft limit is crossed")
                                               : json_null());
}

int plx_space_of_store(struct plx_cli *cli, const struct plx_registry_store *store, json_t *object)
{
    struct plx_threshold limit;
    struct space space;
    int rc = measure(cli, store->id, &space);

    if (rc)
        return rc;
    put_blocks(object, "size", space.size);
    put_blocks(object, "used", space.used);
    put_blocks(object, "system", space.system);
    put_blocks(object, "free", space.size - space.used);
    put_blocks(object, "available", space.available);
    put_blocks(object, "reserved", space.size - space.used - space.available);
    put_blocks(object, "recovery", space.recovery);
    json_object_set_new(
        object, "reclaimable_bytes",
        reclaimable(cli, store->id, json_string_value(json_object_get(object, "name"))));
    if ((rc = plx_threshold_load_store(cli->session.registry, store->id, &limit)))
        return plx_session_registry_fault(cli, rc);
    plx_space_put_limit(object, &limit, space.size * PLX_BLOCK_SIZE,
                        (space.size - space.available) * PLX_BLOCK_SIZE);
    return 0;
}

/* ---- What history keeps of it ---- */

/* The oldest snapshot of all, and for how long policies ask to go back. */
int plx_space_history(struct plx_cli *cli, const char *store, const struct plx_registry_vdi *vdis,
                      size_t count, json_t *object)
{
    uint64_t oldest_ns = UINT64_MAX, window_ns = 0;
    struct plx_vdi_info info = {0};
    struct plx_fault fault;
    char text[32];
    int rc = 0;

    for (size_t i = 0; i < count && !plx_session_stopped(); i++) {
        struct plx_snapshot_info first;
        int error;

        if ((error = plx_door_read(plx_session_store(cli), &vdis[i], &info, &fault)) ||
            (error = plx_snapshot_first(plx_session_store(cli), vdis[i].slot, 1, &first, &fault))) {
            if (error == PLX_ERR_NOT_FOUND)
                continue;
            cli->fault = rc ? cli->fault : fault; /* the first one's, and the others count */
            rc = rc ? rc : error;
            continue;
        }
        if (info.protection.mode != PLX_PROTECT_OFF)
            window_ns = plx_max_u64(window_ns, plx_retention_window_ns(&info.protection));
        if (!first.seq || first.time_ns >= oldest_ns)
            continue;
        oldest_ns = first.time_ns;
        json_object_set_new(object, "oldest_snapshot",
                            json_sprintf("%s/%s@%" PRIu64, store, vdis[i].name, first.seq));
        plx_out_set_time(object, "oldest", oldest_ns);
    }
    plx_out_keys(object, "oldest_snapshot", "oldest", "oldest_ns", NULL);
    if (!window_ns) {
        plx_out_keys(object, "policy_window_ns", "policy_window", NULL);
        return rc;
    }
    json_object_set_new(object, "policy_window_ns", json_integer((json_int_t)window_ns));
    json_object_set_new(object, "policy_window",
                        json_string(plx_text_duration(window_ns / 1000000000, text)));
    return rc;
}

/* ---- A virtual disk ---- */

int plx_space_of_vdi(struct plx_cli *cli, const char *vdi, const struct plx_vdi_info *info,
                     json_t *object)
{
    struct plx_threshold limit;
    bool known = info->mapped_blocks != PLX_MAPPED_UNKNOWN;
    int rc = plx_threshold_load_vdi(cli->session.registry, vdi, &limit);

    if (rc)
        return plx_session_registry_fault(cli, rc);
    if (known)
        put_blocks(object, "used", info->mapped_blocks);
    plx_out_keys(object, "used_bytes", "used_blocks", NULL);
    plx_space_put_limit(object, &limit, info->size_bytes,
                        known ? info->mapped_blocks * PLX_BLOCK_SIZE : 0);
    return 0;
}
