/* cmd_ring.c - parallax ring: create, list, info, delete.
 *
 * 'list' and 'info' only look, even while a handler has the ring open, and even if only part of a
 * ring is left. A ring's problems are printed after the list.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "attach/host_ring.h"
#include "attach/ring_check.h"
#include "cmd.h"
#include "output.h"
#include "ring_hints.h"

/* ---- Which store ---- */

/* What the ring's store is called here, or was called. NULL: nobody knows. */
static const char *store_name(const struct plx_host_ring *ring, const struct plx_known *known)
{
    return known->volumes ? known->name : ring->way.store[0] ? ring->way.store : NULL;
}

/* Its store's entry; without volumes: it is not known here. */
static int find_store(struct plx_cli *cli, const struct plx_host_ring *ring,
                      struct plx_known *ret_known)
{
    *ret_known = (struct plx_known){.volumes = 0};
    if (!ring->way.identity[0])
        return plx_cli_fail(cli, PLX_ERR_CORRUPT,
                            "nobody can tell which store the ring belongs to");
    return plx_known_get(cli->session.paths, ring->way.identity, ret_known, &cli->fault);
}

int plx_cmd_ring_disks(struct plx_cli *cli, const struct plx_host_ring *ring,
                       struct plx_known *ret_known, struct plx_ring_disks *ret_disks,
                       struct plx_fault *ret_untold)
{
    struct plx_uuid id = {0};
    int rc = find_store(cli, ring, ret_known);

    if (!rc)
        rc = plx_session_open(cli, ret_known->name, PLX_SESSION_READ);
    *ret_untold = (struct plx_fault){0};
    if (rc)
        *ret_untold = cli->fault;
    plx_uuid_parse(ring->way.ring, &id);
    return plx_ring_disks_look(&id, ring->ring, rc ? NULL : plx_session_store(cli), ring->in_use,
                               ret_disks, &cli->fault);
}

/* What is the matter with a ring that can be used. */
static void note_alone(const struct plx_cli *cli, const struct plx_host_ring *ring,
                       const char *store)
{
    const struct plx_ring_member_seen *alone =
        ring->ring ? plx_ring_members_alone(&ring->members) : NULL;
    const char *name = store ? store : "STORE";

    if (alone && !plx_host_ring_problem(ring))
        plx_out_note(cli,
                     "the ring of store %s runs on one of two members, %.150s; 'parallax ring "
                     "repair %s --with PATH' makes it a mirror again",
                     name, alone->path, name);
}

/* ---- create ---- */

int plx_cmd_ring_size(struct plx_cli *cli, uint64_t *ret_bytes)
{
    int rc = plx_cli_size(cli, "size", ret_bytes);

    if (rc || !plx_cli_get(cli, "size"))
        return rc;
    if (*ret_bytes < PLX_HOST_RING_BYTES_MIN)
        return plx_cli_usage(cli, "--size is too small: a ring's member needs at least %lluM",
                             (unsigned long long)(PLX_HOST_RING_BYTES_MIN >> 20));
    return *ret_bytes % PLX_BLOCK_SIZE
               ? plx_cli_usage(cli, "--size must be a multiple of %u", PLX_BLOCK_SIZE)
               : 0;
}

static int look_at_paths(struct plx_cli *cli, uint64_t size, struct plx_host_ring_options *options)
{
    bool made, any = false;
    int rc = 0;

    options->members = cli->count - 1;
    if (options->other_lost && options->members > 1)
        return plx_cli_usage(cli, "--i-checked-the-other-is-lost goes with one PATH: the member "
                                  "that is left");
    for (unsigned i = 0; i < options->members && !rc; i++) {
        options->path[i] = cli->arguments[i + 1];
        if (strstr(options->path[i], "://"))
            return plx_cli_usage(cli, "a ring lies on this host's own disks: a file or a block "
                                      "device");
        if (i && !strcmp(options->path[0], options->path[i]))
            return plx_cli_usage(cli, "%.150s is given twice", options->path[i]);
        rc = plx_cmd_volume_look(cli, options->path[i], size, &made);
        any |= made;
    }
    for (unsigned i = 0; i < options->members && !rc && !any; i++)
        rc = plx_cmd_volume_whole(cli, options->path[i]);
    options->create_bytes = any ? size : 0;
    return rc;
}

static void tell_others(struct plx_cli *cli, const char *store)
{
    struct plx_fault why = {0};
    unsigned told;

    if (plx_session_tell(cli, store, "volumes", &told, &why))
        why = cli->fault;
    if (why.code)
        plx_out_note(cli, "%s: it learns of the ring when it opens the store again", why.text);
}

/* Of disks that need another ring, which this host may have forgotten, and could not be told of
 * while this one is there. */
static void tell_needing(struct plx_cli *cli, const struct plx_known_ring *ring)
{
    struct plx_known known = {0};

    if (plx_known_get(cli->session.paths, ring->identity, &known, NULL) == 0)
        plx_ring_hint_needed(cli->session.paths, &known, plx_session_store(cli), false);
    plx_known_done(&known);
}

static void tell_one(struct plx_cli *cli, const char *store, const struct plx_ring_disk *disk)
{
    if (disk->problem.code)
        plx_out_warning("%s/%s: %s", store, disk->name, disk->problem.text);
    else
        plx_out_note(cli,
                     "virtual disk %s/%s can be used again: its newest writes are on this ring",
                     store, disk->name);
}

/* Of disks that need the ring which is known again. It may be an older copy. */
static void tell_usable(struct plx_cli *cli, const struct plx_known_ring *entry)
{
    struct plx_ring_disks disks = {0};
    struct plx_host_ring ring;
    struct plx_uuid id;

    if (plx_host_ring_open(cli->session.paths, entry->identity, PLX_RING_LOOK, NULL, &ring, NULL))
        return;
    plx_uuid_parse(entry->ring, &id);
    if (plx_ring_disks_look(&id, ring.ring, plx_session_store(cli), ring.in_use, &disks, NULL) == 0)
        for (size_t i = 0; i < disks.count; i++)
            if (disks.disk[i].marked)
                tell_one(cli, entry->store, &disks.disk[i]);
    plx_ring_disks_done(&disks);
    plx_host_ring_close(&ring);
}

static json_t *paths_json(const struct plx_known_ring *ring)
{
    json_t *paths = json_array();

    for (unsigned i = 0; i < ring->members; i++)
        json_array_append_new(paths, plx_out_string(ring->member[i]));
    return paths;
}

static uint64_t ring_bytes(const struct plx_ring_super *super)
{
    return (uint64_t)super->segments * super->segment_blocks * PLX_BLOCK_SIZE;
}

/* The operator's word about the host whose ring it is. */
static int check_host(struct plx_cli *cli, const char *from)
{
    bool word = plx_cli_get(cli, "i-checked-it-is-off");

    if (word && !from)
        return plx_cli_usage(cli, "--i-checked-it-is-off goes with --from HOST");
    return word || !from
               ? 0
               : plx_cli_fail(cli, PLX_ERR_UNCONFIRMED,
                              "nothing was changed: if host %.64s still runs and sees the ring, "
                              "what it acknowledges there is lost; when you have seen that it is "
                              "off, or if it was this machine, add --i-checked-it-is-off",
                              from);
}

static void say_made(struct plx_cli *cli, const struct plx_host_ring_made *made, const char *from)
{
    const char *store = made->known.store;
    char members[PLX_KNOWN_RING_TEXT], text[16];

    plx_known_ring_name_members(&made->known, members);
    plx_text_size(ring_bytes(&made->super), text);
    if (made->alone)
        plx_out_note(cli,
                     "%s: the ring goes on with this member alone; 'parallax ring repair %s --with "
                     "PATH' gives it another one",
                     store, store);
    if (made->taken_over)
        plx_out_note(cli, "%s: the ring of host %s on %s is this host's now (%s)", store, from,
                     members, text);
    else if (made->taken_up)
        plx_out_note(cli, "%s: this host's ring on %s is known again (%s)", store, members, text);
    else
        plx_out_note(cli,
                     "%s: this host has a ring on %s now (%s for writes); 'parallax vdi set "
                     "STORE/VDI --ring on' has a virtual disk use it",
                     store, members, text);
}

int plx_cmd_ring_create(struct plx_cli *cli)
{
    struct plx_host_ring_options options = {.force = plx_cli_get(cli, "force"),
                                            .other_lost =
                                                plx_cli_get(cli, "i-checked-the-other-is-lost"),
                                            .from = plx_cli_get(cli, "from")};
    struct plx_host_ring_made made;
    struct plx_name name;
    uint64_t size = 0;
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_STORE, &name)) ||
        (rc = check_host(cli, options.from)) || (rc = plx_cmd_ring_size(cli, &size)) ||
        (rc = look_at_paths(cli, size, &options)) ||
        (rc = plx_session_open(cli, name.store, PLX_SESSION_WRITE)) ||
        (rc = plx_host_ring_create(cli->session.attach, &options, &made, &cli->fault)))
        return rc;
    tell_others(cli, name.store);
    tell_needing(cli, &made.known);
    say_made(cli, &made, options.from);
    if (made.taken_up)
        tell_usable(cli, &made.known);
    plx_ring_hint_users(cli, name.store, PLX_RING_HINT_MADE);
    plx_out_done(cli, json_pack("{s:s,s:s,s:o,s:I,s:b,s:b}", "store", made.known.store, "ring",
                                made.known.ring, "members", paths_json(&made.known), "size_bytes",
                                (json_int_t)ring_bytes(&made.super), "taken_up", made.taken_up,
                                "taken_over", made.taken_over));
    plx_known_ring_done(&made.known);
    return 0;
}

/* ---- What is known of a ring ---- */

static void set_problem(json_t *object, const struct plx_fault *problem)
{
    json_object_set_new(object, "problem", plx_out_string(problem->text));
    json_object_set_new(object, "problem_code", json_string(plx_error_name(problem->code)));
}

/* What only a ring that could be read has, and only one with a problem. */
static void set_keys(json_t *object)
{
    plx_out_keys(object, "host", "size_bytes", "free_bytes", "bad_bytes", "segment_bytes", "alone",
                 "problem", "problem_code", NULL);
}

static void set_number(json_t *object, const char *key, uint64_t number)
{
    json_object_set_new(object, key, json_integer((json_int_t)number));
}

static void describe_sizes(json_t *object, const struct plx_host_ring *ring)
{
    struct plx_ring_info info;

    if (!ring->ring)
        return;
    plx_ring_get_info(ring->ring, &info);
    set_number(object, "size_bytes", info.segments * info.segment_bytes);
    set_number(object, "free_bytes", info.free_segments * info.segment_bytes);
    set_number(object, "bad_bytes", info.bad_segments * info.segment_bytes);
    set_number(object, "segment_bytes", info.segment_bytes);
    json_object_set_new(object, "alone", json_boolean(info.super.alone));
}

/* For people with what JSON has as `alone`. */
static void set_state(const struct plx_cli *cli, json_t *object, const struct plx_host_ring *ring)
{
    bool alone = ring->ring && plx_ring_members_alone(&ring->members);

    json_object_set_new(object, "state",
                        json_sprintf("%s%s",
                                     ring->in_use ? "in use"
                                     : ring->ring ? "idle"
                                                  : "unusable",
                                     alone && !cli->json ? ", on one of two members" : ""));
}

/* As JSON an object each; for people a path, with what is the matter. */
static json_t *describe_members(const struct plx_cli *cli, const struct plx_host_ring *ring)
{
    json_t *list = json_array();

    for (unsigned i = 0; i < ring->members.count; i++) {
        const struct plx_ring_member_seen *member = &ring->members.member[i];
        json_t *object = json_pack("{s:o}", "path", plx_out_string(member->path));

        if (member->problem.code)
            set_problem(object, &member->problem);
        plx_out_keys(object, "problem", "problem_code", NULL);
        if (cli->json) {
            json_array_append(list, object);
        } else {
            const char *word = plx_error_name(member->problem.code);

            json_array_append_new(
                list,
                json_sprintf("%s%s%s%s", json_string_value(json_object_get(object, "path")),
                             member->problem.code ? " (" : "", member->problem.code ? word : "",
                             member->problem.code ? ")" : ""));
        }
        json_decref(object);
    }
    return list;
}

static json_t *describe(struct plx_cli *cli, const struct plx_host_ring *ring,
                        const struct plx_known *known)
{
    const char *store = store_name(ring, known);
    json_t *object = json_pack(
        "{s:o,s:o,s:o,s:o,s:b}", "store", store ? json_string(store) : json_null(), "store_uuid",
        ring->way.identity[0] ? json_string(ring->way.identity) : json_null(), "ring",
        ring->way.ring[0] ? json_string(ring->way.ring) : json_null(), "members",
        describe_members(cli, ring), "ours", ring->ours);

    if (ring->host_name[0])
        json_object_set_new(object, "host", plx_out_string(ring->host_name));
    set_state(cli, object, ring);
    describe_sizes(object, ring);
    if (plx_host_ring_problem(ring))
        set_problem(object, plx_host_ring_problem(ring));
    set_keys(object);
    return object;
}

/* What to do about a member that is not there, behind that problem; or nothing. */
static const char *advise(const struct plx_host_ring *ring, const struct plx_fault *problem,
                          char advice[PLX_HOST_RING_ADVICE])
{
    return ring->known && problem->code == PLX_ERR_NOT_FOUND &&
                   !plx_ring_members_alone(&ring->members)
               ? plx_host_ring_advise(&ring->members, ring->way.store, advice)
               : "";
}

/* By the word that was given. One without a '/' is a store; where this host has no ring of such a
 * store, a file of that name may be meant. `looks`: then it is taken. */
static int open_ring(struct plx_cli *cli, enum plx_ring_hold hold, bool looks,
                     struct plx_host_ring *ret_ring)
{
    const char *what = cli->arguments[0];
    char path[PLX_PATH_MAX];
    struct plx_paths *paths;
    int rc = plx_session_paths(cli, &paths);

    if (!rc)
        rc =
            plx_host_ring_open(paths, what, hold, plx_session_patience(cli), ret_ring, &cli->fault);
    if (rc != PLX_ERR_NOT_FOUND || strchr(what, '/') || strlen(what) + 3 > sizeof path)
        return rc;
    snprintf(path, sizeof path, "./%s", what);
    if (!plx_ring_hint_holds(path))
        return rc;
    return looks ? plx_host_ring_open(paths, path, hold, plx_session_patience(cli), ret_ring,
                                      &cli->fault)
                 : plx_cli_fail(cli, rc,
                                "this host has no ring of store '%.80s'; if the ring in the file "
                                "of that name is meant, give './%.80s'",
                                what, what);
}

/* ---- list ---- */

/* The error of one ring; 0: it is as it should be. */
static int list_ring(struct plx_cli *cli, struct plx_table *table, struct plx_known_ring *entry)
{
    char advice[PLX_HOST_RING_ADVICE];
    const struct plx_fault *problem;
    struct plx_host_ring ring;
    struct plx_known known;
    json_t *row;
    int rc = 0;

    if (entry->problem.code) {
        row = json_pack("{s:n,s:s}", "store", "store_uuid", entry->identity);
        set_problem(row, &entry->problem);
        plx_out_keys(row, "ring", "members", "ours", "state", NULL);
        set_keys(row);
        plx_table_row(table, row);
        return plx_cli_fail(cli, entry->problem.code, "%s", entry->problem.text);
    }
    plx_host_ring_look(cli->session.paths, entry, &ring);
    find_store(cli, &ring, &known); /* a name, if there is one */
    plx_table_row(table, describe(cli, &ring, &known));
    note_alone(cli, &ring, store_name(&ring, &known));
    problem = plx_host_ring_problem(&ring);
    if (problem)
        rc = plx_cli_fail(cli, problem->code, "ring of store %s: %s%s", ring.way.store,
                          problem->text, advise(&ring, problem, advice));
    plx_known_done(&known);
    plx_host_ring_close(&ring);
    return rc;
}

static int list_all(struct plx_cli *cli, struct plx_table *table)
{
    struct plx_known_ring *list;
    struct plx_fault first = {0};
    size_t count;
    int rc = plx_known_ring_list(cli->session.paths, &list, &count, &cli->fault);

    if (rc)
        return rc;
    if (!count)
        plx_out_note(cli, "this host has no ring; 'parallax ring create STORE PATH' makes one");
    for (size_t i = 0; i < count && !plx_session_stopped(); i++) {
        rc = list_ring(cli, table, &list[i]);
        if (rc && first.code)
            plx_out_note(cli, "%s", cli->fault.text);
        else if (rc)
            first = cli->fault;
    }
    plx_known_ring_list_free(list, count);
    if (!first.code)
        return 0;
    cli->fault = first;
    return first.code;
}

static int list_one(struct plx_cli *cli, struct plx_table *table, const char *store)
{
    struct plx_known_ring entry;
    int rc = plx_known_ring_find(cli->session.paths, store, &entry, &cli->fault);

    return rc ? rc : list_ring(cli, table, &entry);
}

int plx_cmd_ring_list(struct plx_cli *cli)
{
    static const struct plx_column columns[] = {
        {"store", "STORE", PLX_COLUMN_TEXT},
        {"members", "MEMBERS", PLX_COLUMN_TEXT},
        {"size_bytes", "SIZE", PLX_COLUMN_SIZE},
        {"free_bytes", "FREE", PLX_COLUMN_SIZE},
        {"state", "STATE", PLX_COLUMN_TEXT},
        {"problem_code", "PROBLEM", PLX_COLUMN_TEXT},
        {"ring", "RING", PLX_COLUMN_ASKED},
        {"host", "HOST", PLX_COLUMN_ASKED},
        {"store_uuid", "STORE UUID", PLX_COLUMN_ASKED},
        {NULL, NULL, 0},
    };
    struct plx_paths *paths;
    struct plx_table table;
    struct plx_name name;
    int rc = cli->count ? plx_cli_name(cli, 0, PLX_NAME_STORE, &name) : 0;

    if (rc || (rc = plx_session_paths(cli, &paths)) || (rc = plx_table_begin(&table, cli, columns)))
        return rc;
    rc = cli->count ? list_one(cli, &table, name.store) : list_all(cli, &table);
    plx_table_end(&table);
    return rc;
}

/* ---- info ---- */

static json_t *describe_disk(const struct plx_ring_disk *disk, bool told)
{
    json_t *object = json_object();
    char id[PLX_UUID_TEXT];

    plx_uuid_text(&disk->id, id);
    json_object_set_new(object, "vdi", disk->name[0] ? plx_out_string(disk->name) : json_null());
    json_object_set_new(object, "uuid", json_string(id));
    json_object_set_new(object, "needed", told ? json_boolean(disk->marked) : json_null());
    set_number(object, "segments", disk->segments);
    if (disk->looked) {
        set_number(object, "records", disk->look.last + 1 - disk->look.first);
        set_number(object, "bytes", disk->look.bytes);
        set_number(object, "aside", disk->look.aside);
        plx_out_set_time(object, "aside_from", disk->look.aside_from_ns);
        plx_out_set_time(object, "aside_to", disk->look.aside_to_ns);
    }
    if (disk->problem.code)
        set_problem(object, &disk->problem);
    plx_out_keys(object, "records", "bytes", "aside", "aside_from", "aside_from_ns", "aside_to",
                 "aside_to_ns", "problem", "problem_code", NULL);
    return object;
}

/* told: the store was asked. */
static json_t *describe_disks(const struct plx_ring_disks *disks, bool told)
{
    json_t *list = json_array();

    for (size_t i = 0; i < disks->count; i++)
        json_array_append_new(list, describe_disk(&disks->disk[i], told));
    return list;
}

static const struct plx_column info_columns[] = {
    {"store", "Store", PLX_COLUMN_TEXT},
    {"store_uuid", "  its UUID", PLX_COLUMN_TEXT},
    {"ring", "Ring", PLX_COLUMN_TEXT},
    {"host", "Host", PLX_COLUMN_TEXT},
    {"members", "Members", PLX_COLUMN_TEXT},
    {"state", "State", PLX_COLUMN_TEXT},
    {"size_bytes", "Size", PLX_COLUMN_SIZE},
    {"free_bytes", "  free", PLX_COLUMN_SIZE},
    {"bad_bytes", "  damaged", PLX_COLUMN_SIZE},
    {"segment_bytes", "Segment size", PLX_COLUMN_SIZE},
    {NULL, NULL, 0},
};

/* For people, behind what is known of the ring. */
static void print_disks(struct plx_cli *cli, json_t *list)
{
    static const struct plx_column columns[] = {
        {"vdi", "VDI", PLX_COLUMN_TEXT},
        {"uuid", "UUID", PLX_COLUMN_TEXT},
        {"segments", "SEGMENTS", PLX_COLUMN_NUMBER},
        {"needed", "NEEDED", PLX_COLUMN_TEXT},
        {"records", "RECORDS", PLX_COLUMN_NUMBER},
        {"bytes", "BYTES", PLX_COLUMN_SIZE},
        {"aside", "ASIDE", PLX_COLUMN_NUMBER},
        {"aside_from", "FROM", PLX_COLUMN_TEXT},
        {"aside_to", "TO", PLX_COLUMN_TEXT},
        {"problem_code", "PROBLEM", PLX_COLUMN_TEXT},
        {NULL, NULL, 0},
    };
    struct plx_table table;
    json_t *row;
    size_t i;

    if (!json_array_size(list))
        return;
    plx_out_line("%s", "");
    plx_table_begin(&table, cli, columns);
    json_array_foreach(list, i, row) plx_table_row(&table, json_incref(row));
    plx_table_end(&table);
}

/* A member of a mirror that lacks what the other one has has a problem, too. */
static void find_damage(struct plx_host_ring *ring, const struct plx_ring_disks *disks,
                        const char *store)
{
    struct plx_ring_member_state state[PLX_RING_MEMBERS] = {0};

    for (unsigned i = 0; i < ring->members.count; i++)
        plx_ring_member_weigh(ring, disks, &ring->members.member[i], &state[i]);
    for (unsigned i = 0; i < ring->members.count; i++) {
        struct plx_ring_member_seen *member = &ring->members.member[i];

        plx_ring_member_explain(&state[i], &state[i ^ 1], member->path, store ? store : "STORE",
                                &member->problem);
    }
}

/* Behind what could be printed: the ring's own problem, else a disk's, else the store's. */
static int fail_info(struct plx_cli *cli, const struct plx_host_ring *ring,
                     const struct plx_ring_disks *disks, const struct plx_fault *untold)
{
    const struct plx_fault *problem = plx_host_ring_problem(ring);
    char advice[PLX_HOST_RING_ADVICE];

    if (problem)
        return plx_cli_fail(cli, problem->code, "%s%s", problem->text,
                            advise(ring, problem, advice));
    for (size_t i = 0; i < disks->count && !problem; i++)
        if (disks->disk[i].problem.code)
            problem = &disks->disk[i].problem;
    if (!problem && untold->code)
        problem = untold;
    return problem ? plx_cli_fail(cli, problem->code, "%s", problem->text) : 0;
}

int plx_cmd_ring_info(struct plx_cli *cli)
{
    struct plx_ring_disks disks = {0};
    struct plx_host_ring ring;
    struct plx_known known = {0};
    struct plx_fault untold;
    json_t *object, *list;
    int rc = open_ring(cli, PLX_RING_LOOK, true, &ring);

    if (rc)
        return rc;
    rc = plx_cmd_ring_disks(cli, &ring, &known, &disks, &untold);
    if (!rc) {
        find_damage(&ring, &disks, store_name(&ring, &known));
        object = describe(cli, &ring, &known);
        list = describe_disks(&disks, !untold.code);
        if (cli->json)
            json_object_set(object, "disks", list);
        plx_out_object(cli, info_columns, object);
        if (!cli->json)
            print_disks(cli, list);
        json_decref(list);
        note_alone(cli, &ring, store_name(&ring, &known));
        rc = fail_info(cli, &ring, &disks, &untold);
    }
    plx_ring_disks_done(&disks);
    plx_known_done(&known);
    plx_host_ring_close(&ring);
    return rc;
}

/* ---- delete ---- */

/* " with up to 16 MiB of writes to web"; or nothing. */
static void name_held(const struct plx_host_ring *ring, const struct plx_ring_disks *disks,
                      char *text, size_t bytes)
{
    char names[PLX_HOST_RING_NAMES], size[16];
    uint32_t segments = plx_host_ring_held(disks, names);
    struct plx_ring_info info;

    text[0] = 0;
    if (!ring->ring || !segments)
        return;
    plx_ring_get_info(ring->ring, &info);
    snprintf(text, bytes, " with up to %s of writes to %s",
             plx_text_size(segments * info.segment_bytes, size), names);
}

static void print_deleted(struct plx_cli *cli, const struct plx_host_ring *ring, const char *store,
                          const char *held, bool there, bool dry_run)
{
    const struct plx_known_ring *way = &ring->way;
    char members[PLX_KNOWN_RING_TEXT];

    plx_known_ring_name_members(way, members);
    if (ring->away)
        plx_out_note(cli,
                     "%s the ring on %s here; it belongs to host %s by now, so nothing is erased",
                     dry_run ? "would forget" : "forgot", members, ring->host_name);
    else if (!there)
        plx_out_note(cli, "%s the ring on %s; it does not lie there, so nothing is erased",
                     dry_run ? "would forget" : "forgot", members);
    else if (dry_run)
        plx_out_note(cli, "would erase the ring on %s%s; nothing was changed", members, held);
    else
        plx_out_note(cli, "erased the ring on %s%s; files that it lay in were not removed", members,
                     held);
    plx_out_done(cli, json_pack("{s:o,s:o,s:o,s:b,s:b}", "store",
                                store ? json_string(store) : json_null(), "ring",
                                way->ring[0] ? json_string(way->ring) : json_null(), "members",
                                paths_json(way), "deleted", !dry_run, "dry_run", dry_run));
}

/* Its members are locked already (HOST_RING-3). */
static int delete_ring(struct plx_cli *cli, struct plx_host_ring *ring, bool dry_run)
{
    const struct plx_host_ring_word word = {
        .force = plx_cli_get(cli, "force"),
        .unneeded = plx_cli_get(cli, "i-checked-nobody-needs-it"),
    };
    struct plx_ring_disks disks = {0};
    struct plx_known known = {0};
    struct plx_fault untold;
    bool there = plx_host_ring_is_there(ring);
    char held[PLX_HOST_RING_NAMES + 48] = "";
    int rc = plx_cmd_ring_disks(cli, ring, &known, &disks, &untold);

    if (!rc)
        rc = plx_host_ring_may_go(ring, &disks, untold.code ? &untold : NULL, &word, &cli->fault);
    if (!rc && !untold.code && ring->known) /* before: the command ends with the deletion */
        plx_ring_hint_users(cli, known.name, dry_run ? PLX_RING_HINT_WOULD_GO : PLX_RING_HINT_GOES);
    if (!rc)
        name_held(ring, &disks, held, sizeof held);
    if (!rc && !dry_run)
        rc = plx_host_ring_delete(cli->session.paths, ring, &cli->fault);
    if (!rc)
        print_deleted(cli, ring, store_name(ring, &known), held, there, dry_run);
    plx_ring_disks_done(&disks);
    plx_known_done(&known);
    return rc;
}

int plx_cmd_ring_delete(struct plx_cli *cli)
{
    bool dry_run = plx_cli_get(cli, "dry-run");
    struct plx_host_ring ring;
    int rc = open_ring(cli, dry_run ? PLX_RING_LOOK_ALONE : PLX_RING_ALONE, false, &ring);

    if (rc == PLX_ERR_BUSY && !strchr(cli->arguments[0], '/'))
        plx_ring_hint_busy(cli, cli->arguments[0]);
    if (rc)
        return rc;
    rc = delete_ring(cli, &ring, dry_run);
    plx_host_ring_close(&ring);
    return rc;
}
