/* known.c - see known.h.
 *
 * KNOWN-1  An entry is written as entries.h says: as a whole, and durable before the call returns.
 * KNOWN-2  The content of an entry is checked whenever it is read, since anybody may have edited
 *     the file. A password in a URL, which entries of earlier versions had, is left out.
 * KNOWN-3  Whether a name is free is asked under the folder's lock (ENTRIES-3). So when two stores
 *     are given one name at the same time, one of them gets it.
 * KNOWN-4  One entry that cannot be read hides none of the others: what these say counts first.
 * KNOWN-5  Advice can be done as it is written: it has the name that this host calls the store by.
 *     Only where they say nothing is it an error, for the answer may be in that entry.
 * Threads: any.
 * Crash story: a crash leaves the old entry or the new one (ENTRIES-1).
 */
#include "attach/known.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/entries.h"
#include "attach/volumes.h"
#include "device/credentials.h"
#include "engine/base/plain.h"

static const struct plx_entries stores;

void plx_known_done(struct plx_known *known)
{
    for (unsigned i = 0; i < known->volumes; i++)
        free(known->volume[i]);
    known->volumes = 0;
}

void plx_known_list_free(struct plx_known *list, size_t count)
{
    plx_entries_free(&stores, list, count);
}

/* ---- Reading ---- */

static int no_entry(const struct plx_paths *paths, const char *name, struct plx_fault *fault)
{
    return plx_fault_set(
        fault, PLX_ERR_NOT_FOUND,
        "there is no store '%.80s' (looked in %.120s/stores); 'parallax store "
        "list' shows those that are known here, 'parallax store scan' looks for "
        "others on block devices, 'parallax store import --volume PATH' makes one known here",
        name, paths->state);
}

/* KNOWN-2 */
static int take_volumes(const json_t *volumes, struct plx_known *known)
{
    size_t count = json_array_size(volumes);

    if (count < 1 || count > PLX_VOLUMES_MAX)
        return PLX_ERR_INVALID;
    for (size_t i = 0; i < count; i++) {
        const char *path = json_string_value(json_array_get(volumes, i));

        if (!path || !*path || strlen(path) >= PLX_PATH_MAX)
            return PLX_ERR_INVALID;
        known->volume[i] = strdup(path);
        if (!known->volume[i])
            return PLX_ERR_NOMEM;
        plx_url_drop_password(known->volume[i]);
        known->volumes++;
    }
    return 0;
}

static bool is_name(const char *name)
{
    char why[160];

    return plx_name_check("store", name, why, sizeof why) == 0;
}

static int take_entry(const json_t *entry, const char *name, void *item)
{
    struct plx_known *known = item;
    const char *uuid = json_string_value(json_object_get(entry, "uuid"));
    const json_t *own = json_object_get(entry, "identity");
    const char *identity = own ? json_string_value(own) : uuid;

    if (!uuid || !plx_uuid_parse(uuid, NULL) || !identity || !plx_uuid_parse(identity, NULL))
        return PLX_ERR_INVALID;
    snprintf(known->name, sizeof known->name, "%s", name);
    snprintf(known->uuid, sizeof known->uuid, "%s", uuid);
    snprintf(known->identity, sizeof known->identity, "%s", identity);
    return take_volumes(json_object_get(entry, "volumes"), known);
}

static void refuse_entry(const char *name, const struct plx_fault *why, void *item)
{
    struct plx_known *known = item;

    known->problem = *why;
    snprintf(known->name, sizeof known->name, "%s", name);
}

int plx_known_list(const struct plx_paths *paths, struct plx_known **ret_list, size_t *ret_count,
                   struct plx_fault *fault)
{
    return plx_entries_list(paths, &stores, ret_list, ret_count, fault);
}

static int get_by_identity(const struct plx_paths *paths, const char *identity,
                           struct plx_known *ret_known, struct plx_fault *fault)
{
    struct plx_known *list;
    size_t count;
    struct plx_fault why = {0}; /* KNOWN-4 */
    bool found = false;
    int error = plx_known_list(paths, &list, &count, fault);

    if (error)
        return error;
    for (size_t i = 0; i < count && !found; i++) {
        found = strcmp(list[i].identity, identity) == 0;
        if (list[i].problem.code)
            why = list[i].problem;
        if (found) {
            *ret_known = list[i];
            list[i].volumes = 0; /* they went along */
        }
    }
    plx_known_list_free(list, count);
    if (!found && why.code)
        return plx_fault_set(fault, why.code, "%s", why.text);
    return found ? 0 : no_entry(paths, identity, fault);
}

int plx_known_get(const struct plx_paths *paths, const char *name, struct plx_known *ret_known,
                  struct plx_fault *fault)
{
    int error;

    if (plx_uuid_parse(name, NULL))
        return get_by_identity(paths, name, ret_known, fault);
    if (!is_name(name))
        return no_entry(paths, name, fault);
    error = plx_entry_get(paths, &stores, name, ret_known, fault);
    return error == PLX_ERR_NOT_FOUND ? no_entry(paths, name, fault) : error;
}

int plx_known_missing(const struct plx_known *known, int error, struct plx_fault *fault)
{
    char volumes[PLX_KNOWN_VOLUMES_TEXT];
    struct plx_fault why = {0};

    if (error != PLX_ERR_NOT_FOUND)
        return error;
    if (fault)
        why = *fault;
    plx_known_count_volumes(known, volumes);
    return plx_fault_set(fault, PLX_ERR_MISSING,
                         "store %s: %s; connect or restore the volume, or 'parallax store "
                         "import %s' tells where it lies now",
                         known->name, why.text, volumes);
}

int plx_known_add_volumes(struct plx_known *known, const char *const *paths, unsigned count,
                          struct plx_fault *fault)
{
    for (unsigned i = 0; i < count; i++) {
        int error = plx_volumes_absolute(paths[i], &known->volume[known->volumes], fault);

        if (error)
            return error;
        known->volumes++;
    }
    return 0;
}

int plx_known_free_name(const struct plx_paths *paths, const char *name, struct plx_fault *fault)
{
    struct plx_known known;
    int error = plx_known_get(paths, name, &known, fault);

    if (error)
        return error == PLX_ERR_NOT_FOUND ? 0 : error;
    plx_known_done(&known);
    return plx_fault_set(
        fault, PLX_ERR_EXISTS,
        "a store named %s is known here already; give this one another name; only if this host is "
        "not to use that one again, 'parallax store forget %s' drops it from the list of known "
        "stores, and its volumes are no longer protected here",
        name, name);
}

int plx_known_at(const struct plx_known *list, size_t count, const char *but, const char *volume,
                 struct plx_known_place *ret_place, struct plx_fault *fault)
{
    const struct plx_fault *problem = NULL;

    *ret_place = (struct plx_known_place){.overlap = PLX_APART};
    for (size_t i = 0; i < count && ret_place->overlap != PLX_SAME; i++) {
        if (list[i].problem.code)
            problem = &list[i].problem; /* KNOWN-4 */
        if (but && strcmp(list[i].identity, but) == 0)
            continue;
        for (unsigned v = 0; v < list[i].volumes && ret_place->overlap != PLX_SAME; v++) {
            enum plx_overlap overlap = plx_storage_compare(volume, list[i].volume[v]);

            if (overlap > ret_place->overlap)
                *ret_place = (struct plx_known_place){&list[i], list[i].volume[v], overlap};
        }
    }
    return problem && !ret_place->known ? plx_fault_set(fault, problem->code, "%s", problem->text)
                                        : 0;
}

void plx_known_name_place(const struct plx_known_place *place, const char *volume,
                          char ret_text[PLX_KNOWN_PLACE_TEXT])
{
    if (place->overlap == PLX_SAME)
        snprintf(ret_text, PLX_KNOWN_PLACE_TEXT, "%.200s is a volume of store %s", volume,
                 place->known->name);
    else
        snprintf(ret_text, PLX_KNOWN_PLACE_TEXT,
                 "%.100s overlaps %.100s, which is a volume of store %s", volume, place->path,
                 place->known->name);
}

void plx_known_name_volumes(const struct plx_known *known, char ret_text[PLX_KNOWN_VOLUMES_TEXT])
{
    const size_t size = PLX_KNOWN_VOLUMES_TEXT;
    char word[PLX_WORD_TEXT];
    size_t at = 0;

    for (unsigned i = 0; i < known->volumes && at < size; i++)
        at += (size_t)snprintf(ret_text + at, size - at, "%s--volume %s", i ? " " : "",
                               plx_plain_word(known->volume[i], word, sizeof word));
    if (at >= size)
        snprintf(ret_text, size, "--volume PATH...");
}

void plx_known_count_volumes(const struct plx_known *known, char ret_text[PLX_KNOWN_VOLUMES_TEXT])
{
    char path[] = "PATH";
    struct plx_known unknown = {.volumes = known->volumes};

    for (unsigned i = 0; i < known->volumes; i++)
        unknown.volume[i] = path;
    plx_known_name_volumes(&unknown, ret_text);
}

/* Engine, registry and schema do not know what this host calls a store. KNOWN-5 */
void plx_known_name_advice(const char *store, char *text, size_t size)
{
    static const struct {
        const char *before, *behind; /* of the name */
        size_t cut;                  /* of `behind`: what stands for the name */
    } advice[] = {
        {"'parallax vdi forget", " --lost'", 0},
        {"'parallax store rebuild-registry", "'", 0},
        {"'parallax store grow", "'", 0},
        {"'parallax store add-volume", "'", 0},
        {"'parallax gc", "'", 0},
        {"'parallax store check", "'", 0},
        {"'parallax store check", " --data'", 0},
        {"'parallax store info", "'", 0},
        {"'parallax vdi accept-older", " STORE/", 6},
        {"'parallax vdi delete", " STORE/", 6},
        {"'parallax vdi export", " STORE/", 6},
    };

    for (size_t i = 0; i < sizeof advice / sizeof advice[0]; i++) {
        size_t begin = strlen(advice[i].before), behind = strlen(advice[i].behind);
        size_t more = strlen(store) + 1;
        char *at = text;

        while ((at = strstr(at, advice[i].before)) && (at += begin)) {
            if (strncmp(at, advice[i].behind, behind) != 0 ||
                strlen(text) + more - advice[i].cut >= size)
                continue;
            memmove(at + more, at + advice[i].cut, strlen(at + advice[i].cut) + 1);
            *at = ' ';
            memcpy(at + 1, store, more - 1);
        }
    }
}

/* ---- Writing ---- */

/* KNOWN-3 */
static int check_name_free(const struct plx_paths *paths, const void *item, struct plx_fault *fault)
{
    const struct plx_known *known = item;
    struct plx_known other;
    bool same;
    int error = plx_known_get(paths, known->name, &other, fault);

    if (error)
        return error == PLX_ERR_NOT_FOUND || error == PLX_ERR_INVALID ? 0 : error;
    same = strcmp(other.identity, known->identity) == 0;
    plx_known_done(&other);
    return same ? 0
                : plx_fault_set(fault, PLX_ERR_EXISTS,
                                "another store named %s is known here already; 'parallax store "
                                "import NAME --volume PATH...' gives this one another name here; "
                                "only if this host is not to use the other one again, 'parallax "
                                "store forget %s' drops that from the list, and its volumes are no "
                                "longer protected here",
                                known->name, known->name);
}

static json_t *make_entry(const void *item)
{
    const struct plx_known *known = item;
    json_t *volumes = json_array();

    for (unsigned i = 0; i < known->volumes; i++)
        if (json_array_append_new(volumes, json_string(known->volume[i]))) {
            json_decref(volumes);
            return NULL;
        }
    return json_pack("{s:s,s:s,s:o}", "uuid", known->uuid, "identity", known->identity, "volumes",
                     volumes);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct plx_known *)a)->name, ((const struct plx_known *)b)->name);
}

static void done(void *item)
{
    plx_known_done(item);
}

/* KNOWN-1 */
static const struct plx_entries stores = {
    .folder = "stores",
    .one = "a store",
    .all = "the list of stores",
    .again = "remove it, and enter the store again with 'parallax store import --volume PATH'",
    .size = sizeof(struct plx_known),
    .is_name = is_name,
    .take = take_entry,
    .refuse = refuse_entry,
    .make = make_entry,
    .check = check_name_free,
    .compare = compare_names,
    .done = done,
};

int plx_known_try(const struct plx_paths *paths, const struct plx_known *known,
                  const struct plx_patience *patience, struct plx_fault *fault)
{
    return plx_entry_put(paths, &stores, known->name, known, true, patience, fault);
}

int plx_known_put(const struct plx_paths *paths, const struct plx_known *known,
                  const struct plx_patience *patience, struct plx_fault *fault)
{
    return plx_entry_put(paths, &stores, known->name, known, false, patience, fault);
}

int plx_known_remove(const struct plx_paths *paths, const char *name, struct plx_fault *fault)
{
    int error = plx_entry_remove(paths, &stores, name, fault);

    return error == PLX_ERR_NOT_FOUND ? no_entry(paths, name, fault) : error;
}
