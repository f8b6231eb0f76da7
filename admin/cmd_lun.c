/* cmd_lun.c - parallax lun: create, list, delete. The kernel's target is driven by lun.py, which is
 * built in and run by Debian's own python3 (rtslib lies in its dist-packages); this file collects
 * lun.py's input and prints its output.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd.h"
#include "output.h"
#include "registry/policy.h"

#define PYTHON "/usr/bin/python3"
#define TARGET "/sys/kernel/config/target"
#define LUN_MAX 65535

static const char script[] = {
#include "lun_py.inc"
    , 0};

static const struct plx_column columns[] = {
    {"name", "NAME", PLX_COLUMN_TEXT},
    {"size_bytes", "SIZE", PLX_COLUMN_SIZE},
    {"lun", "LUN", PLX_COLUMN_NUMBER},
    {"read_only", "RO", PLX_COLUMN_TEXT},
    {"protection", "PROTECTION", PLX_COLUMN_TEXT},
    {"ring", "RING", PLX_COLUMN_TEXT},
    {"address", "ADDRESS", PLX_COLUMN_TEXT},
    {"initiators", "LOGGED IN", PLX_COLUMN_TEXT},
    {NULL, NULL, 0},
};

/* ---- Talking to the script ---- */

/* Starts the script with both ends of its standard input and output in our hands. */
static int start(struct plx_cli *cli, pid_t *ret_pid, FILE **ret_in, FILE **ret_out)
{
    extern char **environ;
    char *argv[] = {(char *)PYTHON, (char *)"-I", (char *)"-c", (char *)script, NULL};
    posix_spawn_file_actions_t actions;
    int in[2], out[2];

    if (pipe2(in, O_CLOEXEC))
        return plx_cli_fail(cli, PLX_ERR_SYSTEM, "pipe: %s", strerror(errno));
    if (pipe2(out, O_CLOEXEC)) {
        close(in[0]);
        close(in[1]);
        return plx_cli_fail(cli, PLX_ERR_SYSTEM, "pipe: %s", strerror(errno));
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    int error = posix_spawn(ret_pid, PYTHON, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    if (error) {
        close(in[1]);
        close(out[0]);
        return plx_cli_fail(cli, PLX_ERR_UNSUPPORTED, PYTHON ": %s; install targetcli-fb",
                            strerror(error));
    }
    *ret_in = fdopen(in[1], "w");
    *ret_out = fdopen(out[0], "r");
    return 0;
}

static int code_of(const char *name)
{
    if (!strcmp(name, "USAGE"))
        return PLX_ERR_USAGE;
#define PLX_ERROR(error, number, class, key, asc, ascq, text)                                      \
    if (!strcmp(name, #error))                                                                     \
        return PLX_ERR_##error;
#include "engine/base/error.def"
#undef PLX_ERROR
    return PLX_ERR_SYSTEM;
}

/* Takes the request's reference; *ret_result is a new one. */
static int ask(struct plx_cli *cli, json_t *request, json_t **ret_result)
{
    FILE *in = NULL, *out = NULL;
    pid_t pid = 0;
    int status = 0, rc = start(cli, &pid, &in, &out);

    if (rc) {
        json_decref(request);
        return rc;
    }
    json_dumpf(request, in, JSON_COMPACT);
    json_decref(request);
    fclose(in);
    json_t *answer = json_loadf(out, 0, NULL);
    fclose(out);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    const json_t *error = json_object_get(answer, "error");
    json_t *result = json_object_get(answer, "result");
    if (error)
        rc = plx_cli_fail(cli, code_of(json_string_value(json_object_get(error, "code"))), "%s",
                          json_string_value(json_object_get(error, "message")));
    else if (!result)
        rc = plx_cli_fail(cli, PLX_ERR_SYSTEM,
                          "the script that drives the kernel's target failed "
                          "(status %d); look at its message above",
                          status);
    else
        *ret_result = json_incref(result);
    json_decref(answer);
    return rc;
}

static json_t *texts_of(struct plx_cli *cli, const char *option)
{
    const char *values[PLX_GIVEN_MAX];
    unsigned count = plx_cli_all(cli, option, values, PLX_GIVEN_MAX);
    json_t *array = json_array();

    for (unsigned i = 0; i < count; i++)
        json_array_append_new(array, json_string(values[i]));
    return array;
}

static json_t *name_request(const char *operation, const struct plx_name *name, uint64_t seq)
{
    json_t *request =
        json_pack("{s:s,s:s,s:s}", "op", operation, "store", name->store, "vdi", name->vdi);

    if (seq)
        json_object_set_new(request, "seq", json_integer((json_int_t)seq));
    return request;
}

/* ---- Commands ---- */

/* The registry's row, what the disk is told by, and the snapshot's number (0: none), with its size.
 * The store is closed again: the handler is to open it. */
static int look_up(struct plx_cli *cli, const struct plx_name *name, struct plx_registry_vdi *row,
                   char ret_id[PLX_UUID_TEXT], uint64_t *ret_seq)
{
    struct plx_snapshot_info info = {0};
    int rc;

    if ((rc = plx_session_open(cli, name->store, PLX_SESSION_READ)) ||
        (rc = plx_session_vdi_row(cli, name, row)) ||
        (*name->snapshot && (rc = plx_session_snapshot_resolve(cli, name, &info))))
        return rc;
    if (info.seq)
        plx_session_tell_chosen(cli, name, &info);
    if (info.seq) /* it keeps the size that it was taken with */
        row->size_bytes = info.size_bytes;
    *ret_seq = info.seq;
    plx_attach_shown_id(cli->session.attach, row->id, ret_id);
    return plx_session_close(cli);
}

int plx_cmd_lun_create(struct plx_cli *cli)
{
    struct plx_registry_vdi row;
    struct plx_name name;
    bool any = plx_cli_get(cli, "any-initiator");
    uint64_t seq, lun = 0;
    char id[PLX_UUID_TEXT];
    json_t *result;
    int rc;

    if (any == (plx_cli_get(cli, "initiator") != NULL))
        return plx_cli_usage(cli, "who may log in? Either --initiator IQN (may be repeated) or "
                                  "--any-initiator, for whoever reaches the portal");
    if ((rc = plx_cli_name(cli, 0, PLX_NAME_VDI_OR_SNAPSHOT, &name)) ||
        (rc = plx_cli_number(cli, "lun", 0, LUN_MAX, &lun)) ||
        (rc = look_up(cli, &name, &row, id, &seq)))
        return rc;
    json_t *request = name_request("create", &name, seq);
    json_object_update_new(
        request, json_pack("{s:s,s:I,s:i,s:s?,s:o,s:o,s:b,s:b}", "uuid", id, "size_bytes",
                           (json_int_t)row.size_bytes, "sector_size", (int)row.sector_size,
                           "target", plx_cli_get(cli, "target"), "portals", texts_of(cli, "portal"),
                           "initiators", texts_of(cli, "initiator"), "any_initiator", any,
                           "read_only", plx_cli_get(cli, "read-only") != NULL));
    json_object_set_new(request, "lun",
                        plx_cli_get(cli, "lun") ? json_integer((json_int_t)lun) : json_null());
    if ((rc = ask(cli, request, &result)))
        return rc;
    if (json_is_false(json_object_get(result, "saved")))
        plx_out_note(cli,
                     "%s is not in the saved configuration, so it does not come back after a "
                     "restart; 'targetcli saveconfig' saves it",
                     json_string_value(json_object_get(result, "target")));
    if (cli->json) {
        plx_out_json(result);
        return 0;
    }
    puts(json_string_value(json_object_get(result, "address")));
    json_decref(result);
    return 0;
}

void plx_cmd_lun_refresh(struct plx_cli *cli, const struct plx_name *name)
{
    struct plx_fault before = cli->fault;
    json_t *result;

    if (geteuid() || access(TARGET "/core", F_OK))
        return;
    if (!ask(cli, name_request("refresh", name, 0), &result))
        json_decref(result);
    else
        plx_out_note(
            cli, "the saved LUN has the old size: %s; run 'parallax lun create' again, as before",
            cli->fault.text);
    cli->fault = before;
}

/* A LUN may name the disk's store as it is called here, or by its identity. */
static json_t *exports_request(struct plx_cli *cli, const struct plx_name *name)
{
    struct plx_known known = {0};
    struct plx_paths *paths;
    json_t *request = NULL;

    if (!plx_session_paths(cli, &paths) && !plx_known_get(paths, name->store, &known, &cli->fault))
        request = json_pack("{s:s,s:[s,s],s:s}", "op", "exports", "stores", known.name,
                            known.identity, "vdi", name->vdi);
    plx_known_done(&known);
    return request;
}

int plx_cmd_lun_check_none(struct plx_cli *cli, const struct plx_name *name)
{
    json_t *request, *result, *row;
    size_t i;
    int rc;

    if (geteuid())
        return 0;
    request = exports_request(cli, name);
    if (!request)
        return cli->fault.code;
    rc = ask(cli, request, &result);
    if (rc == PLX_ERR_UNSUPPORTED) { /* nothing here makes LUNs */
        cli->fault = (struct plx_fault){0};
        return 0;
    }
    if (rc)
        return rc;
    json_array_foreach(result, i, row)
    {
        const char *exported = json_string_value(json_object_get(row, "name"));

        rc = json_is_true(json_object_get(row, "running"))
                 ? plx_cli_fail(cli, PLX_ERR_BUSY,
                                "%.200s is exported, and its LUN knows the virtual disk by this "
                                "name; 'parallax lun delete %.200s' first, then 'parallax lun "
                                "create' with the new name",
                                exported, exported)
                 : plx_cli_fail(cli, PLX_ERR_BUSY,
                                "a LUN of %.200s is in the target's saved configuration and comes "
                                "back by this name; 'targetcli restoreconfig' brings it back now, "
                                "then 'parallax lun delete %.200s' removes it",
                                exported, exported);
        break;
    }
    json_decref(result);
    return rc;
}

bool plx_cmd_lun_initiators(struct plx_cli *cli, const struct plx_name *name, char *ret_text,
                            size_t size)
{
    struct plx_fault before = cli->fault;
    char wanted[sizeof *name];
    json_t *result, *row, *initiator;
    size_t i, k, used = 0;

    *ret_text = 0;
    if (access(TARGET "/core", F_OK) && errno == ENOENT)
        return true; /* this kernel exports nothing */
    if (geteuid() ||
        ask(cli, json_pack("{s:s,s:s}", "op", "list", "store", name->store), &result)) {
        cli->fault = before;
        return false;
    }
    snprintf(wanted, sizeof wanted, "%s/%s", name->store, name->vdi);
    json_array_foreach(result, i, row)
    {
        if (strcmp(json_string_value(json_object_get(row, "name")), wanted))
            continue;
        json_array_foreach(json_object_get(row, "initiators"), k, initiator)
        {
            if (used < size)
                used += (size_t)snprintf(ret_text + used, size - used, "%s%s", used ? ", " : "",
                                         json_string_value(initiator));
        }
    }
    json_decref(result);
    return true;
}

/* What the registry says; nothing when it does not know the disk. */
static void add_settings(struct plx_cli *cli, json_t *row)
{
    const char *text = json_string_value(json_object_get(row, "name"));
    struct plx_fault before = cli->fault;
    struct plx_protection protection;
    struct plx_registry_store store;
    struct plx_registry_vdi vdi;
    struct plx_name name;
    enum plx_ring_setting ring;

    if (text && !plx_text_name_parse(text, PLX_NAME_VDI, &name, &cli->fault) &&
        !plx_session_registry(cli, name.store, &store) &&
        !plx_registry_vdi_get(cli->session.registry, store.id, name.vdi, &vdi) &&
        !plx_policy_load(cli->session.registry, vdi.id, &protection, &cli->fault) &&
        !plx_ring_setting_load(cli->session.registry, vdi.id, &ring)) {
        plx_cmd_cdp_describe(row, &protection);
        json_object_set_new(row, "ring", json_string(plx_ring_setting_words[ring]));
    }
    plx_out_keys(row, "protection", "interval_ns", "retention", "ring", NULL);
    plx_session_close(cli); /* the next one may be another store's */
    cli->fault = before;
}

/* What is exported is listed whether its store is known any more or not; where nothing is, the name
 * may be wrong. */
static int check_known(struct plx_cli *cli, const char *store)
{
    struct plx_known known = {0};
    struct plx_paths *paths;
    int rc = plx_session_paths(cli, &paths);

    if (!rc)
        rc = plx_known_get(paths, store, &known, &cli->fault);
    plx_known_done(&known);
    return rc;
}

int plx_cmd_lun_list(struct plx_cli *cli)
{
    json_t *request = json_pack("{s:s}", "op", "list"), *result, *row;
    struct plx_table table;
    struct plx_name name;
    size_t i;
    int rc;

    if (cli->count && (rc = plx_cli_name(cli, 0, PLX_NAME_STORE, &name))) {
        json_decref(request);
        return rc;
    }
    if (cli->count)
        json_object_set_new(request, "store", json_string(name.store));
    if ((rc = ask(cli, request, &result)))
        return rc;
    if (cli->count && !json_array_size(result))
        rc = check_known(cli, name.store);
    if (!rc)
        rc = plx_table_begin(&table, cli, columns);
    if (!rc) {
        json_array_foreach(result, i, row)
        {
            add_settings(cli, row);
            plx_table_row(&table, json_incref(row));
        }
        plx_table_end(&table);
    }
    if (!rc && !table.rows)
        plx_out_note(cli, "nothing is exported; 'parallax lun create' exports a virtual disk");
    json_decref(result);
    return rc;
}

static bool is_number(const char *text)
{
    uint64_t number;

    return plx_text_number_parse(text, &number);
}

/* What a ring has of the disk is drained with progress, not while the kernel waits for the handler.
 * Where a store cannot be opened, or somebody is logged in, the script says what is to be done. The
 * ring is asked first: the script takes longer, and without a ring it is run once. */
static int drain_ring(struct plx_cli *cli, const struct plx_name *name, bool *ret_paused)
{
    struct plx_session_ring ring = {.live = false};
    char initiators[8];
    int rc;

    *ret_paused = false;
    if (*name->snapshot)
        return 0;
    rc = plx_session_open(cli, name->store, PLX_SESSION_READ);
    if (!rc)
        rc = plx_session_vdi_ring(cli, name, &ring);
    if (!rc && plx_cmd_vdi_ring_is_used(&ring) &&
        (plx_cli_get(cli, "force") ||
         (plx_cmd_lun_initiators(cli, name, initiators, sizeof initiators) && !*initiators)))
        rc = plx_cmd_vdi_ring_pause(cli, name, "is exported as before", ret_paused);
    if (!rc || plx_session_stopped())
        return rc;
    cli->fault = (struct plx_fault){0};
    return 0;
}

int plx_cmd_lun_delete(struct plx_cli *cli)
{
    struct plx_registry_vdi row;
    struct plx_name name;
    char id[PLX_UUID_TEXT];
    uint64_t seq = 0;
    json_t *result;
    bool paused;
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_VDI_OR_SNAPSHOT, &name)))
        return rc;
    /* A number needs no store: what is exported can be taken back when the store is lost. */
    if (is_number(name.snapshot))
        plx_text_number_parse(name.snapshot, &seq);
    else if (*name.snapshot && (rc = look_up(cli, &name, &row, id, &seq)))
        return rc;
    if ((rc = drain_ring(cli, &name, &paused)))
        return rc;
    json_t *request = name_request("delete", &name, seq);
    json_object_update_new(request, json_pack("{s:s?,s:b}", "target", plx_cli_get(cli, "target"),
                                              "force", plx_cli_get(cli, "force") != NULL));
    if ((rc = ask(cli, request, &result))) {
        if (paused)
            plx_cmd_vdi_ring_resume(cli, &name);
        return rc;
    }
    plx_out_note(cli, "%s is not exported any more", cli->arguments[0]);
    json_object_set_new(result, "name", plx_out_string(cli->arguments[0]));
    plx_out_done(cli, result);
    return 0;
}
