/* session_live.c - whoever else has a virtual disk or the store open, asked through its control
 * socket (SESSION-1, SESSION-3).
 *
 * Requests to a live instance (control/control.h). The answer to one of a disk names that disk as
 * well. Where nothing is written behind an arrow, it says again what was asked for (SESSION-4).
 *
 * Of one disk, with "vdi": NAME:
 *   snapshot -> {"seq", "time_ns"}       label {"label", "seq"}     unlabel {"label"}
 *   resize {"size_bytes"}                stats -> {counter: value, ...}
 *   protect {"mode", "retention"}
 *   rewind {"seq"} -> {"label", "seq", "time_ns"}
 *   keyframe, resume
 *   ring {"use"}                         ring-status -> struct plx_ringed_info, by its names, and
 *     "waits_for" if draining waits: the name of an error
 *   move {"offset", "length", "windows", "blocks", "dry_run"} -> struct plx_move, by its names; if
 *     it ended early, with "code" and "message"
 *   thin {"after", "upto", "before_ns", "every_ns", "dry_run", "rewinds_only", "marks": [{"seq",
 *     "label"}]} -> struct plx_thinned, by its names, and "gone": the places of marks that go
 * and of the store:
 *   volumes: it has become larger         stats -> {counter: value, ...}
 *   collect {"dry_run", "memory", "rate"}   collect-status -> collector.h   collect-stop
 *   dedup, dedup-status, dedup-stop: likewise
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "attach/doors.h"
#include "output.h"
#include "registry/instance.h"
#include "registry/names.h"
#include "registry/paths.h"
#include "ring_way.h"
#include "session_inside.h"

#define CONNECT_TIMEOUT_MS 5000
#define CALL_TIMEOUT_MS 120000 /* a snapshot waits for its writes, a resize for the log */
#define HANDS_MAX 3u           /* how often a disk may change hands while it is asked for */

/* ---- Whoever else has it open ---- */

/* The control socket of an instance. NOT_FOUND: no socket, or the instance is dead. The number
 * alone proves nothing: an instance of the original store may have the same one if this store is a
 * copy. */
static int connect_to(struct plx_cli *cli, uint64_t id, struct plx_control_client **ret_client,
                      struct plx_fault *fault)
{
    struct plx_registry_instance instance;
    char path[PLX_PATH_MAX];
    int rc = plx_registry_instance_get(cli->session.registry, id, &instance);

    if (rc == PLX_ERR_NOT_FOUND || (!rc && plx_session_is_gone(&cli->session, &instance)))
        return PLX_ERR_NOT_FOUND;
    plx_paths_control(cli->session.paths, id, path);
    return plx_control_connect(path, CONNECT_TIMEOUT_MS, ret_client, fault);
}

/* The instance that has the disk open, 0: none, and its control socket; *ret_client stays NULL when
 * nobody has, or nobody who listens on this host. */
static int find_live(struct plx_cli *cli, const struct plx_name *name, uint64_t *ret_owner,
                     struct plx_control_client **ret_client)
{
    struct plx_registry_vdi row;
    int rc = plx_session_vdi_row(cli, name, &row);

    *ret_owner = rc ? 0 : row.owner;
    if (rc || !row.owner)
        return rc;
    rc = connect_to(cli, row.owner, ret_client, &cli->fault);
    return rc == PLX_ERR_NOT_FOUND ? 0 : rc;
}

/* ---- Answers (SESSION-4) ---- */

static int not_understood(struct plx_cli *cli, const char *why)
{
    return plx_cli_fail(
        cli, PLX_ERR_LOST,
        "the handler's answer was not understood (%.60s), so whether it did what it "
        "was asked is not known; is it of this version (%s)?",
        why, PLX_VERSION);
}

/* What was asked for, said again. */
static int check_same(struct plx_cli *cli, json_t *asked, const json_t *answer)
{
    const char *key;
    json_t *value;

    json_object_foreach(asked, key, value)
    {
        const json_t *said = json_object_get(answer, key);
        char why[64];

        snprintf(why, sizeof why, "\"%.40s\" is %s", key, said ? "another one" : "missing");
        if (!said || !json_equal(said, value))
            return not_understood(cli, why);
    }
    return 0;
}

/* Asks the instance that has the disk open once. *ret_asked false: nobody has, do it here.
 * NOT_FOUND: *ret_gone, it has not any more. Takes the reference of arguments (may be NULL).
 * ret_result NULL: the answer has nothing else but what was asked for. */
static int ask_once(struct plx_cli *cli, const struct plx_name *name, const char *command,
                    json_t *arguments, bool *ret_asked, bool *ret_gone, json_t **ret_result)
{
    struct plx_control_client *client = NULL;
    json_t *which = json_pack("{s:s}", "vdi", name->vdi), *request = json_deep_copy(which);
    json_t *result = NULL;
    struct plx_registry_vdi row;
    uint64_t owner;
    int rc = find_live(cli, name, &owner, &client);

    json_object_set_new(request, "command", json_string(command));
    json_object_update(request, arguments);
    *ret_asked = client != NULL;
    if (!rc && client)
        rc = plx_control_call(client, request, CALL_TIMEOUT_MS, &result, &cli->fault);
    if (!rc && client && !(rc = check_same(cli, which, result)))
        rc = ret_result ? json_object_del(result, "vdi") : check_same(cli, arguments, result);
    if (!rc && ret_result)
        *ret_result = json_incref(result);
    *ret_gone = rc == PLX_ERR_NOT_FOUND && client && !plx_session_vdi_row(cli, name, &row) &&
                row.owner != owner;
    plx_control_disconnect(client);
    json_decref(arguments);
    json_decref(which);
    json_decref(result);
    json_decref(request);
    return rc;
}

int plx_session_tell(struct plx_cli *cli, const char *store, const char *command,
                     unsigned *ret_told, struct plx_fault *ret_why)
{
    struct plx_registry_instance *list = NULL;
    struct plx_registry_store row;
    json_t *request = json_pack("{s:s}", "command", command);
    size_t count = 0;
    int rc;

    plx_session_row(cli, &row);
    rc = plx_registry_instance_list(cli->session.registry, row.id, &list, &count);
    *ret_told = 0;
    for (size_t i = 0; i < count; i++) {
        struct plx_control_client *client = NULL;
        json_t *result = NULL;
        struct plx_fault why;
        int told = connect_to(cli, list[i].id, &client, &why);

        if (told == PLX_ERR_NOT_FOUND) /* a command, or dead, or on another host */
            continue;
        if (!told)
            told = plx_control_call(client, request, CALL_TIMEOUT_MS, &result, &why);
        plx_control_disconnect(client);
        json_decref(result);
        *ret_told += told == 0;
        if (told)
            plx_fault_set(ret_why, told, "%s (pid %" PRId64 "): %.200s",
                          plx_instance_kind(list[i].role), list[i].pid, why.text);
    }
    free(list);
    json_decref(request);
    return rc ? plx_session_registry_fault(cli, rc) : 0;
}

int plx_session_ask_live(struct plx_cli *cli, const struct plx_name *name, const char *command,
                         json_t *arguments, bool *ret_asked, json_t **ret_result)
{
    bool gone = true;
    int rc = 0;

    for (unsigned i = 0; i < HANDS_MAX && gone; i++)
        rc = ask_once(cli, name, command, json_incref(arguments), ret_asked, &gone, ret_result);
    json_decref(arguments);
    return rc;
}

/* Asks for the disk before it is opened here. A handler that keeps it open for a LUN that has not
 * come (ATTACH-14) gives it up when it is asked. */
static void ask_for(struct plx_cli *cli, const struct plx_name *name)
{
    bool asked;

    plx_session_ask_live(cli, name, "info", NULL, &asked, NULL);
    cli->fault = (struct plx_fault){0};
}

/* Whether its record names a ring. What is in the way of that, opening it tells. */
static bool needs_ring(struct plx_cli *cli, const struct plx_name *name,
                       struct plx_vdi_info *ret_info)
{
    const struct plx_fault before = cli->fault;
    struct plx_registry_vdi row;
    bool needs = !plx_session_vdi_row(cli, name, &row) &&
                 !plx_door_read(plx_session_store(cli), &row, ret_info, &cli->fault) &&
                 plx_ring_is_marked(&ret_info->mark);

    cli->fault = before;
    return needs;
}

/* What comes in between opens the disk, so what this host's ring has of it is drained first. */
struct draining {
    struct plx_progress progress;
    bool needed;
};

static void begin_draining(struct plx_cli *cli, const struct plx_name *name,
                           struct draining *draining)
{
    struct plx_vdi_info info;

    *draining = (struct draining){.progress.cli = cli, .needed = needs_ring(cli, name, &info)};
    cli->session.draining = &draining->progress;
}

/* One line, for where there is no terminal nobody has seen the progress. */
static int end_draining(struct plx_cli *cli, const struct plx_name *name, struct draining *draining,
                        int rc)
{
    uint64_t brought = draining->progress.total;
    char size[16];

    cli->session.draining = NULL;
    plx_progress_end(&draining->progress);
    if (!rc && brought)
        plx_out_note(cli,
                     "%s/%s: brought %s of writes from this host's ring to the store, all that it "
                     "lacked",
                     name->store, name->vdi, plx_text_size(brought, size));
    else if (!rc && draining->needed)
        plx_out_note(cli, "%s/%s: the store had all writes of this host's ring already",
                     name->store, name->vdi);
    return rc;
}

/* Becomes session.vdi. What this host's ring has of it is drained first. */
static int open_drained(struct plx_cli *cli, const struct plx_name *name,
                        const struct plx_attach_vdi_options *options)
{
    struct plx_session *s = &cli->session;
    struct draining draining;

    begin_draining(cli, name, &draining);
    return end_draining(
        cli, name, &draining,
        plx_attach_vdi_open(s->attach, name->vdi, NULL, options, &s->vdi, &cli->fault));
}

int plx_session_vdi_open(struct plx_cli *cli, const struct plx_name *name)
{
    PLX_ASSERT(!cli->session.vdi);
    ask_for(cli, name);
    return open_drained(cli, name, &(struct plx_attach_vdi_options){.overwrite = -1});
}

/* ---- Instants ---- */

static int open_instant(struct plx_cli *cli, const struct plx_name *name, bool stands,
                        struct plx_vdi **ret_vdi)
{
    const struct plx_attach_vdi_options options = {.overwrite = -1, .stands = stands};

    return plx_attach_vdi_open(cli->session.attach, name->vdi,
                               *name->snapshot ? name->snapshot : "0", &options, ret_vdi,
                               &cli->fault);
}

/* Of the newest state: what a ring has, the store does not have yet. */
static bool lacks_writes(const struct plx_name *name, const struct plx_vdi *vdi,
                         struct plx_vdi_info *ret_info)
{
    plx_vdi_get_info(vdi, ret_info);
    return !*name->snapshot && plx_ring_is_marked(&ret_info->mark);
}

static void tell_ring(struct plx_cli *cli, const struct plx_name *name,
                      const struct plx_vdi_info *info)
{
    char way[PLX_RING_WAY];

    plx_out_warning("%s/%s: its newest writes may lie on a write-back ring only; what is read "
                    "is the state that the store has, from before them; %s",
                    name->store, name->vdi,
                    plx_ring_way(cli->session.paths, name, info, "vdi set", " --ring off", way));
}

int plx_session_instant_open(struct plx_cli *cli, const struct plx_name *name,
                             struct plx_vdi **ret_vdi)
{
    struct plx_vdi_info info;
    int rc = open_instant(cli, name, false, ret_vdi);

    if (!rc && lacks_writes(name, *ret_vdi, &info))
        tell_ring(cli, name, &info);
    return rc;
}

int plx_session_image_open(struct plx_cli *cli, const struct plx_name *name, bool without_ring)
{
    struct plx_session *s = &cli->session;
    char way[PLX_RING_WAY];
    struct plx_vdi_info info;
    int rc;

    PLX_ASSERT(!s->vdi);
    if (!*name->snapshot)
        ask_for(cli, name);
    rc = open_instant(cli, name, true, &s->vdi);
    if (rc || !lacks_writes(name, s->vdi, &info))
        return rc;
    if (without_ring) {
        tell_ring(cli, name, &info);
        return 0;
    }
    plx_session_vdi_close(cli);
    return plx_cli_fail(cli, PLX_ERR_RING_AWAY,
                        "%s/%.80s: its newest writes may lie on a write-back ring only, and the "
                        "image would lack them; %s; --without-ring exports the state from before "
                        "them",
                        name->store, name->vdi,
                        plx_ring_way(cli->session.paths, name, &info, "snap create", "", way));
}

/* ---- Deleting, discarding, renaming ---- */

int plx_session_vdi_delete(struct plx_cli *cli, const struct plx_name *name, bool lost)
{
    ask_for(cli, name);
    return plx_attach_vdi_delete(cli->session.attach, name->vdi, lost, &cli->fault);
}

int plx_session_vdi_discard_ring(struct plx_cli *cli, const struct plx_name *name, bool aside)
{
    const struct plx_attach_vdi_options options = {
        .overwrite = -1, .discard_ring = true, .discard_aside = aside};
    struct plx_session *s = &cli->session;
    int rc;

    PLX_ASSERT(!s->vdi);
    ask_for(cli, name);
    rc = plx_attach_vdi_open(s->attach, name->vdi, NULL, &options, &s->vdi, &cli->fault);
    return rc ? rc : plx_session_vdi_close(cli);
}

int plx_session_vdi_rename(struct plx_cli *cli, const struct plx_name *name, const char *new_name)
{
    struct draining draining;

    ask_for(cli, name);
    begin_draining(cli, name, &draining);
    return end_draining(
        cli, name, &draining,
        plx_attach_vdi_rename(cli->session.attach, name->vdi, new_name, &cli->fault));
}

/* Opening the disk drains its ring first. */
static int refuse_dry(struct plx_cli *cli, const struct plx_name *name)
{
    char way[PLX_RING_WAY];
    struct plx_vdi_info info;

    return needs_ring(cli, name, &info)
               ? plx_cli_fail(cli, PLX_ERR_BUSY,
                              "%s/%.80s: a ring may have its newest writes, and a command that "
                              "changes nothing does not bring them to the store; %s",
                              name->store, name->vdi,
                              plx_ring_way(cli->session.paths, name, &info, "snap create", "", way))
               : 0;
}

/* Opens the disk in this process, unless it is open already. */
static int open_here(struct plx_cli *cli, const struct plx_name *name, const char *command)
{
    const struct plx_attach_vdi_options options = {.overwrite = -1,
                                                   .only_thins = strcmp(command, "thin") == 0};
    struct plx_session *s = &cli->session;

    int rc = 0;

    if (s->vdi)
        return 0;
    ask_for(cli, name);
    if (s->dry)
        rc = refuse_dry(cli, name);
    return rc ? rc : open_drained(cli, name, &options);
}

/* SESSION-1 */
int plx_session_ask_or_open(struct plx_cli *cli, const struct plx_name *name, const char *command,
                            json_t *arguments, bool *ret_asked, json_t **ret_result)
{
    struct plx_fault why;
    bool live = true;
    int rc = 0;

    for (unsigned i = 0; i < HANDS_MAX && live; i++) {
        rc =
            plx_session_ask_live(cli, name, command, json_incref(arguments), ret_asked, ret_result);
        if (!rc && !*ret_asked)
            rc = open_here(cli, name, command);
        if (rc != PLX_ERR_BUSY || *ret_asked) /* SESSION-3 */
            break;
        why = cli->fault;
        if (plx_session_vdi_is_live(cli, name, &live))
            break;
        cli->fault = why;
    }
    json_decref(arguments);
    return rc;
}

int plx_session_vdi_is_live(struct plx_cli *cli, const struct plx_name *name, bool *ret_live)
{
    struct plx_control_client *client = NULL;
    uint64_t owner;
    int rc = find_live(cli, name, &owner, &client);

    *ret_live = client != NULL;
    plx_control_disconnect(client);
    return rc;
}

uint64_t plx_session_number_of(const json_t *object, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

int plx_session_decode(struct plx_cli *cli, const struct plx_message_field *fields,
                       const json_t *answer, void *ret_struct)
{
    struct plx_fault why;

    return plx_message_decode(fields, answer, ret_struct, &why) ? not_understood(cli, why.text) : 0;
}

int plx_session_decode_text(struct plx_cli *cli, const json_t *answer, const char *key,
                            const char **ret_text)
{
    const char *text = json_string_value(json_object_get(answer, key));
    char why[64];

    snprintf(why, sizeof why, "\"%s\" is missing", key);
    if (!text)
        return not_understood(cli, why);
    *ret_text = text;
    return 0;
}

int plx_session_decode_label(struct plx_cli *cli, const json_t *answer,
                             char ret_label[PLX_REWIND_LABEL])
{
    const char *label;
    char why[200];
    int rc = plx_session_decode_text(cli, answer, "label", &label);

    if (rc)
        return rc;
    if (plx_name_check("label", label, why, sizeof why) || strlen(label) >= PLX_REWIND_LABEL)
        return not_understood(cli, "\"label\" is no name");
    strcpy(ret_label, label);
    return 0;
}

/* Counters of an answer; of those that every handler has, one stands for all. */
static int check_stats(struct plx_cli *cli, const json_t *stats)
{
    return json_is_array(json_object_get(stats, "snapshot_latency"))
               ? 0
               : not_understood(cli, "\"snapshot_latency\" is missing");
}

int plx_session_find_handler(struct plx_cli *cli, const char *store,
                             struct plx_control_client **ret_client)
{
    struct plx_registry_instance *list = NULL;
    struct plx_registry_store row;
    size_t count = 0;
    int rc = plx_session_registry(cli, store, &row);

    if (rc)
        return rc;
    if ((rc = plx_registry_instance_list(cli->session.registry, row.id, &list, &count)))
        return plx_session_registry_fault(cli, rc);
    for (size_t i = 0; i < count && !rc && !*ret_client; i++) {
        if (strcmp(list[i].role, "handler") != 0)
            continue;
        rc = connect_to(cli, list[i].id, ret_client, &cli->fault);
        if (rc == PLX_ERR_NOT_FOUND) /* a dead one, or another host's */
            rc = 0;
    }
    free(list);
    return rc;
}

int plx_session_call_handler(struct plx_cli *cli, struct plx_control_client *client,
                             json_t *request, json_t **ret_result)
{
    json_t *result = NULL;
    int rc = request ? plx_control_call(client, request, CALL_TIMEOUT_MS, &result, &cli->fault)
                     : plx_cli_fail(cli, PLX_ERR_NOMEM, "out of memory");

    json_decref(request);
    if (!rc && ret_result)
        *ret_result = result;
    else
        json_decref(result);
    return rc;
}

int plx_session_store_stats(struct plx_cli *cli, const char *store, json_t **ret_stats)
{
    struct plx_control_client *client = NULL;
    int rc = plx_session_find_handler(cli, store, &client);

    if (!rc && !client)
        rc = plx_cli_fail(cli, PLX_ERR_NOT_FOUND,
                          "no handler of this host has store %s open, so there are no counters; "
                          "'parallax lun create' opens a disk of it",
                          store);
    if (!rc)
        rc = plx_session_call_handler(cli, client, json_pack("{s:s}", "command", "stats"),
                                      ret_stats);
    plx_control_disconnect(client);
    if (!rc && (rc = check_stats(cli, *ret_stats)))
        json_decref(*ret_stats);
    return rc;
}

int plx_session_vdi_stats(struct plx_cli *cli, const struct plx_name *name, json_t **ret_stats)
{
    bool asked;
    int rc = plx_session_ask_live(cli, name, "stats", NULL, &asked, ret_stats);

    if (!rc && !asked)
        return plx_cli_fail(cli, PLX_ERR_NOT_FOUND,
                            "no handler of this host has %s/%.120s open, so there are no counters; "
                            "'parallax lun create' opens it",
                            name->store, name->vdi);
    if (!rc && (rc = check_stats(cli, *ret_stats)))
        json_decref(*ret_stats);
    return rc;
}

/* What "stats" says of a store's room. */
static const struct plx_message_field room_fields[] = {
    {"data_free_blocks", offsetof(struct plx_session_room, data_free), PLX_MESSAGE_NUMBER, false},
    {"meta_free_blocks", offsetof(struct plx_session_room, meta_free), PLX_MESSAGE_NUMBER, false},
    {"recovery_blocks", offsetof(struct plx_session_room, recovery), PLX_MESSAGE_NUMBER, false},
    {0},
};

bool plx_session_ask_room(struct plx_cli *cli, uint64_t instance, struct plx_session_room *ret_room)
{
    json_t *request = json_pack("{s:s}", "command", "stats"), *result = NULL;
    struct plx_control_client *client = NULL;
    struct plx_fault none = {0}; /* who does not answer is nothing wrong */
    bool answered = !connect_to(cli, instance, &client, &none) &&
                    !plx_control_call(client, request, CALL_TIMEOUT_MS, &result, &none) &&
                    !plx_message_decode(room_fields, result, ret_room, NULL);

    plx_control_disconnect(client);
    json_decref(result);
    json_decref(request);
    return answered;
}
