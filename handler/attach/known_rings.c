/* known_rings.c - see known_rings.h.
 *
 * KNOWN_RINGS-1  Whether there is an entry is asked under the folder's lock (ENTRIES-3). So a host
 *     has one ring a store, and none is replaced.
 * KNOWN_RINGS-2  The content of an entry is checked whenever it is read.
 * KNOWN_RINGS-3  One entry that cannot be read hides none of the others. It is an error only if the
 *     others do not have what is asked for, because the answer may be in that entry.
 * Threads: any.
 * Crash story: a crash leaves the old entry or the new one (ENTRIES-1).
 */
#include "attach/known_rings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/entries.h"

static const struct plx_entries rings;

void plx_known_ring_done(struct plx_known_ring *ring)
{
    for (unsigned i = 0; i < ring->members; i++)
        free(ring->member[i]);
    ring->members = 0;
}

void plx_known_ring_list_free(struct plx_known_ring *list, size_t count)
{
    plx_entries_free(&rings, list, count);
}

void plx_known_ring_name_members(const struct plx_known_ring *ring,
                                 char ret_text[PLX_KNOWN_RING_TEXT])
{
    if (ring->members > 1)
        snprintf(ret_text, PLX_KNOWN_RING_TEXT, "%.150s and %.150s", ring->member[0],
                 ring->member[1]);
    else
        snprintf(ret_text, PLX_KNOWN_RING_TEXT, "%.150s", ring->member[0]);
}

/* ---- Reading ---- */

/* KNOWN_RINGS-2 */
static int take_members(const json_t *members, struct plx_known_ring *ring)
{
    size_t count = json_array_size(members);

    if (count < 1 || count > PLX_RING_MEMBERS)
        return PLX_ERR_INVALID;
    for (size_t i = 0; i < count; i++) {
        const char *path = json_string_value(json_array_get(members, i));

        if (!path || *path != '/' || strlen(path) >= PLX_PATH_MAX)
            return PLX_ERR_INVALID;
        ring->member[i] = strdup(path);
        if (!ring->member[i])
            return PLX_ERR_NOMEM;
        ring->members++;
    }
    return 0;
}

static bool is_identity(const char *name)
{
    return plx_uuid_parse(name, NULL);
}

static int take_entry(const json_t *entry, const char *identity, void *item)
{
    struct plx_known_ring *ring = item;
    const char *id = json_string_value(json_object_get(entry, "ring"));
    const char *store = json_string_value(json_object_get(entry, "store"));
    char why[160];

    if (!id || !plx_uuid_parse(id, NULL) || !store ||
        plx_name_check("store", store, why, sizeof why))
        return PLX_ERR_INVALID;
    snprintf(ring->identity, sizeof ring->identity, "%s", identity);
    snprintf(ring->store, sizeof ring->store, "%s", store);
    snprintf(ring->ring, sizeof ring->ring, "%s", id);
    return take_members(json_object_get(entry, "members"), ring);
}

static void refuse_entry(const char *identity, const struct plx_fault *why, void *item)
{
    struct plx_known_ring *ring = item;

    ring->problem = *why;
    snprintf(ring->identity, sizeof ring->identity, "%s", identity);
}

int plx_known_ring_get(const struct plx_paths *paths, const char *identity,
                       struct plx_known_ring *ret_ring, struct plx_fault *fault)
{
    return plx_entry_get(paths, &rings, identity, ret_ring, fault);
}

int plx_known_ring_list(const struct plx_paths *paths, struct plx_known_ring **ret_list,
                        size_t *ret_count, struct plx_fault *fault)
{
    return plx_entries_list(paths, &rings, ret_list, ret_count, fault);
}

static int no_ring(const char *store, struct plx_fault *fault)
{
    return plx_fault_set(fault, PLX_ERR_NOT_FOUND,
                         "this host has no ring of store '%.80s'; 'parallax ring list' shows its "
                         "rings, 'parallax ring create %.80s PATH' makes one",
                         store, store);
}

static int no_store(const char *store, struct plx_fault *fault)
{
    return plx_fault_set(fault, PLX_ERR_NOT_FOUND,
                         "this host has no ring of store '%.80s', and knows no such store; "
                         "'parallax ring list' shows its rings, 'parallax store list' its stores",
                         store);
}

/* Of a store that is not known here any more. */
static int find_by_old_name(const struct plx_paths *paths, const char *store,
                            struct plx_known_ring *ret_ring, struct plx_fault *fault)
{
    const struct plx_fault *problem = NULL; /* KNOWN_RINGS-3 */
    struct plx_known_ring *list;
    bool found = false;
    size_t count;
    int error = plx_known_ring_list(paths, &list, &count, fault);

    if (error)
        return error;
    for (size_t i = 0; i < count && !found; i++) {
        if (list[i].problem.code)
            problem = &list[i].problem;
        found = strcmp(list[i].store, store) == 0;
        if (found) {
            *ret_ring = list[i];
            list[i].members = 0; /* they went along */
        }
    }
    if (!found)
        error = problem ? plx_fault_set(fault, problem->code, "%s", problem->text)
                        : no_store(store, fault);
    plx_known_ring_list_free(list, count);
    return error;
}

int plx_known_ring_find(const struct plx_paths *paths, const char *store,
                        struct plx_known_ring *ret_ring, struct plx_fault *fault)
{
    struct plx_known known = {.volumes = 0};
    struct plx_fault why;
    bool is_known = plx_known_get(paths, store, &known, &why) == 0;
    const char *identity = is_known ? known.identity : plx_uuid_parse(store, NULL) ? store : NULL;
    int error = identity ? plx_known_ring_get(paths, identity, ret_ring, fault)
                         : find_by_old_name(paths, store, ret_ring, fault);

    if (identity && error == PLX_ERR_NOT_FOUND)
        error = is_known ? no_ring(store, fault) : no_store(store, fault);
    plx_known_done(&known);
    return error;
}

int plx_known_ring_at(const struct plx_known_ring *list, size_t count, const char *volume,
                      enum plx_overlap least, const struct plx_known_ring **ret_ring,
                      struct plx_fault *fault)
{
    const struct plx_fault *problem = NULL; /* KNOWN_RINGS-3 */

    *ret_ring = NULL;
    for (size_t i = 0; i < count && !*ret_ring; i++) {
        if (list[i].problem.code)
            problem = &list[i].problem;
        for (unsigned m = 0; m < list[i].members; m++)
            if (plx_storage_compare(volume, list[i].member[m]) >= least)
                *ret_ring = &list[i];
    }
    return problem && !*ret_ring ? plx_fault_set(fault, problem->code, "%s", problem->text) : 0;
}

int plx_known_ring_refuse(const struct plx_paths *paths, const char *volume,
                          struct plx_fault *fault)
{
    const struct plx_known_ring *ring;
    char members[PLX_KNOWN_RING_TEXT];
    struct plx_known_ring *list;
    size_t count;
    int error = plx_known_ring_list(paths, &list, &count, fault);

    if (error)
        return error;
    error = plx_known_ring_at(list, count, volume, PLX_OVERLAPPING, &ring, fault);
    if (!error && ring) {
        plx_known_ring_name_members(ring, members);
        error = plx_fault_set(fault, PLX_ERR_EXISTS,
                              "%.100s is, or overlaps, a member of this host's ring of store %s "
                              "(%.200s); 'parallax ring delete %s' ends that ring, if no virtual "
                              "disk needs it",
                              volume, ring->store, members, ring->store);
    }
    plx_known_ring_list_free(list, count);
    return error;
}

/* ---- Writing ---- */

static json_t *make_entry(const void *item)
{
    const struct plx_known_ring *ring = item;
    json_t *members = json_array();

    for (unsigned i = 0; i < ring->members; i++)
        if (json_array_append_new(members, json_string(ring->member[i]))) {
            json_decref(members);
            return NULL;
        }
    return json_pack("{s:s,s:s,s:o}", "ring", ring->ring, "store", ring->store, "members", members);
}

/* KNOWN_RINGS-1 */
static int check_free(const struct plx_paths *paths, const void *item, struct plx_fault *fault)
{
    const struct plx_known_ring *ring = item;
    char members[PLX_KNOWN_RING_TEXT];
    struct plx_known_ring other;
    int error = plx_known_ring_get(paths, ring->identity, &other, fault);

    bool same = !error && strcmp(other.ring, ring->ring) == 0;

    if (error)
        return error == PLX_ERR_NOT_FOUND ? 0 : error;
    plx_known_ring_name_members(&other, members);
    plx_known_ring_done(&other);
    if (same) /* on other members now */
        return 0;
    return plx_fault_set(fault, PLX_ERR_EXISTS,
                         "this host has a ring of store %s already, on %s; 'parallax ring delete "
                         "%s' ends that one",
                         ring->store, members, ring->store);
}

static int compare_stores(const void *a, const void *b)
{
    const struct plx_known_ring *one = a, *other = b;
    int order = strcmp(one->store, other->store);

    return order ? order : strcmp(one->identity, other->identity);
}

static void done(void *item)
{
    plx_known_ring_done(item);
}

static const struct plx_entries rings = {
    .folder = "rings",
    .one = "a ring",
    .all = "the list of rings",
    .again = "remove it, and enter the ring again with 'parallax ring create STORE PATH'",
    .size = sizeof(struct plx_known_ring),
    .is_name = is_identity,
    .take = take_entry,
    .refuse = refuse_entry,
    .make = make_entry,
    .check = check_free,
    .compare = compare_stores,
    .done = done,
};

int plx_known_ring_try(const struct plx_paths *paths, const struct plx_known_ring *ring,
                       const struct plx_patience *patience, struct plx_fault *fault)
{
    return plx_entry_put(paths, &rings, ring->identity, ring, true, patience, fault);
}

int plx_known_ring_put(const struct plx_paths *paths, const struct plx_known_ring *ring,
                       const struct plx_patience *patience, struct plx_fault *fault)
{
    return plx_entry_put(paths, &rings, ring->identity, ring, false, patience, fault);
}

int plx_known_ring_remove(const struct plx_paths *paths, const char *identity,
                          struct plx_fault *fault)
{
    int error = plx_entry_remove(paths, &rings, identity, fault);

    return error == PLX_ERR_NOT_FOUND ? 0 : error;
}
