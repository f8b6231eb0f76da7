/* session.c - registry, store, one open virtual disk, and whoever else has that one open.
 *
 * SESSION-1  A virtual disk is changed by its lock's holder only: this process, or the instance
 *     that has it open, asked through its control socket. Which of them is looked up anew for each
 *     command.
 * SESSION-2  Whatever a command does, plx_session_close() gives up locks and extents; a killed
 *     command's are taken over by the next one (attach.c).
 * SESSION-3  A request that somebody may have begun with is not made again, whatever comes back.
 *     What is asked for again was refused before anything was changed: a lock that another command
 *     has, a disk that changed hands between looking it up and asking.
 *
 * Requests to a live instance (control/control.h) of one disk, with "vdi": NAME:
 *   snapshot -> {"seq", "time_ns"}       label {"label", "seq"}     unlabel {"label"}
 *   resize {"size_bytes"}                stats -> {counter: value, ...}
 *   protect {"mode", "retention"}
 *   rewind {"seq"} -> {"label", "seq", "time_ns"}
 *   keyframe, resume
 *   move {"offset", "length", "windows", "blocks", "dry_run"} -> struct plx_move, by its names; if
 *     it ended early, with "code" and "message"
 *   thin {"after", "upto", "before_ns", "every_ns", "dry_run", "rewinds_only", "marks": [{"seq",
 *     "label"}]} -> struct plx_thinned, by its names, and "gone": the places of marks that go
 * and of the store:
 *   volumes: it has become larger         stats -> {counter: value, ...}
 *   collect {"dry_run", "memory", "rate"}   collect-status -> collector.h   collect-stop
 *   dedup, dedup-status, dedup-stop: likewise
 */
#include "session.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli.h"
#include "control/control.h"
#include "output.h"
#include "registry/embedded.h"
#include "registry/instance.h"
#include "registry/paths.h"
#include "registry/policy.h"
#include "attach/doors.h"

#define CONNECT_TIMEOUT_MS 5000
#define CALL_TIMEOUT_MS 120000 /* a snapshot waits for its writes, a resize for the log */
#define HANDS_MAX 3u           /* how often a disk may change hands while it is asked for */
#define SECOND_NS 1000000000ull
#define MS_NS 1000000ull
#define TELL_NS SECOND_NS         /* so long nobody needs to be told of */
#define PAUSE_MIN_NS (10 * MS_NS) /* once or twice that, and ever longer, */
#define PAUSE_MAX_NS (200 * MS_NS)

/* ---- Waiting for other commands ---- */

/* All waits of a command together last as long as --wait says. */
static bool wait_for(void *context, uint64_t waited_ms, const struct plx_fault *why)
{
    struct plx_cli *cli = context;
    struct plx_session_waiting *w = &cli->waiting;
    uint64_t begun_ns = plx_out_monotonic_ns(), limit_ns = cli->wait_s * SECOND_NS;
    uint64_t rest_ns = PAUSE_MIN_NS + plx_id_random() % PAUSE_MIN_NS;

    if (plx_session_stopped() || w->waited_ns >= limit_ns)
        return false;
    if (w->waited_ns >= TELL_NS && !w->told) {
        w->told = true;
        plx_out_note(cli, "waiting up to %" PRIu64 " s (--wait): %.*s", cli->wait_s,
                     (int)strcspn(why->text, ";"), why->text);
    }
    rest_ns += plx_min_u64(waited_ms * MS_NS / 8, PAUSE_MAX_NS);
    rest_ns = plx_min_u64(rest_ns, limit_ns - w->waited_ns);
    nanosleep(&(struct timespec){.tv_sec = 0, .tv_nsec = (long)rest_ns}, NULL); /* signals end it */
    w->waited_ns += plx_out_monotonic_ns() - begun_ns;
    return !plx_session_stopped();
}

const struct plx_patience *plx_session_patience(struct plx_cli *cli)
{
    struct plx_session_waiting *w = &cli->waiting;

    w->patience = (struct plx_patience){wait_for, cli};
    return &w->patience;
}

int plx_session_registry_fault(struct plx_cli *cli, int code)
{
    const char *text = plx_registry_error(cli->session.registry);

    return plx_cli_fail(cli, code, "%s", text && *text ? text : plx_error_text(code));
}

static int init_paths(struct plx_cli *cli)
{
    if (cli->session.paths)
        return 0;
    struct plx_paths *paths = malloc(sizeof *paths);
    if (!paths)
        return plx_cli_fail(cli, PLX_ERR_NOMEM, "out of memory");
    int rc = plx_paths_init(paths, cli->state_dir, &cli->fault);
    if (rc)
        free(paths);
    else
        cli->session.paths = paths;
    return rc;
}

int plx_session_paths(struct plx_cli *cli, struct plx_paths **ret_paths)
{
    int rc = init_paths(cli);

    if (!rc)
        *ret_paths = cli->session.paths;
    return rc;
}

static int open_attach(struct plx_cli *cli, const struct plx_attach_options *options)
{
    struct plx_session *s = &cli->session;
    struct plx_attach_options waiting = *options;
    int rc = init_paths(cli);

    PLX_ASSERT(!s->attach && !s->registry);
    waiting.patience = plx_session_patience(cli);
    if (!rc)
        rc = plx_attach_open(&waiting, &s->attach, &cli->fault);
    if (!rc)
        s->registry = plx_attach_registry(s->attach);
    return rc;
}

int plx_session_registry(struct plx_cli *cli, const char *store, struct plx_registry_store *ret_row)
{
    struct plx_attach_options options = {.store = store,
                                         .state_dir = cli->state_dir,
                                         .role = "admin",
                                         .read_only = true,
                                         .registry_only = true};
    int rc = cli->session.attach ? 0 : open_attach(cli, &options);

    if (!rc)
        plx_attach_row(cli->session.attach, ret_row);
    return rc;
}

void plx_session_row(struct plx_cli *cli, struct plx_registry_store *ret_row)
{
    plx_attach_row(cli->session.attach, ret_row);
}

void plx_session_tell_doubt(struct plx_cli *cli)
{
    struct plx_registry_store row;

    plx_session_row(cli, &row);
    if (row.doubt[0])
        plx_out_note(cli, "store %s is in doubt, so nothing new is opened for writing: %s",
                     row.name, row.doubt);
}

json_t *plx_session_doubt(struct plx_cli *cli)
{
    struct plx_registry_store row;

    plx_session_row(cli, &row);
    return row.doubt[0] ? plx_out_string(row.doubt) : json_null();
}

static bool read_tenant(struct plx_session *s, struct plx_tenant *ret_tenant)
{
    struct plx_registry_store row;
    struct plx_uuid store;

    plx_attach_row(s->attach, &row);
    plx_uuid_parse(row.uuid, &store);
    return plx_tenancy_read(plx_registry_device(s->registry), plx_registry_locks(s->registry),
                            &store, s->paths, ret_tenant, NULL) == 0;
}

/* Without a tenancy, which a command that only reads has not: the page says that this boot has one,
 * or had one, so no other machine has the store. */
static bool is_gone(struct plx_session *s, const struct plx_registry_instance *instance)
{
    struct plx_bytelock *locks = plx_registry_locks(s->registry);
    struct plx_tenant tenant;

    return read_tenant(s, &tenant) && tenant.here &&
           plx_instance_is_dead(s->paths, locks, instance, NULL);
}

/* NULL: it is this host's. */
static const char *describe_tenant(const struct plx_tenant *tenant, const struct plx_known *known,
                                   char ret_text[PLX_SESSION_TENANT_TEXT])
{
    char volumes[PLX_KNOWN_VOLUMES_TEXT];

    plx_known_name_volumes(known, volumes);
    if (tenant->ours)
        return NULL;
    if (plx_uuid_is_zero(&tenant->host)) {
        snprintf(ret_text, PLX_SESSION_TENANT_TEXT,
                 "no host has store %s, it was released: here it can only be read until 'parallax "
                 "store import %s' takes it",
                 known->name, volumes);
        return "RELEASED";
    }
    snprintf(ret_text, PLX_SESSION_TENANT_TEXT,
             "host %s has store %s: here it can only be read; if that host is off, 'parallax store "
             "take-over %s --from %s --i-checked-it-is-off' takes it",
             tenant->host_name, known->name, known->name, tenant->host_name);
    return "ELSEWHERE";
}

const char *plx_session_not_ours(struct plx_cli *cli, const struct plx_known *known,
                                 char ret_text[PLX_SESSION_TENANT_TEXT])
{
    struct plx_tenant tenant;

    return read_tenant(&cli->session, &tenant) ? describe_tenant(&tenant, known, ret_text) : NULL;
}

void plx_session_tell_host(struct plx_cli *cli, const char *store, json_t *object)
{
    char text[PLX_SESSION_TENANT_TEXT];
    struct plx_tenant tenant;
    struct plx_known known;

    if (!read_tenant(&cli->session, &tenant))
        return;
    bool free = plx_uuid_is_zero(&tenant.host);
    json_object_set_new(object, "host", free ? json_null() : plx_out_string(tenant.host_name));
    json_object_set_new(object, "ours", json_boolean(tenant.ours));
    if (plx_known_get(cli->session.paths, store, &known, NULL))
        return;
    if (describe_tenant(&tenant, &known, text))
        plx_out_note(cli, "%s", text);
    plx_known_done(&known);
}

json_t *plx_session_instance_text(struct plx_cli *cli, const struct plx_registry_instance *instance)
{
    return json_sprintf("%s %" PRId64 " on %s%s", instance->role, instance->pid,
                        instance->host_name, is_gone(&cli->session, instance) ? ", gone" : "");
}

int plx_session_open(struct plx_cli *cli, const char *store, enum plx_session_mode mode)
{
    struct plx_attach_options options = {.store = store,
                                         .state_dir = cli->state_dir,
                                         .role = "admin",
                                         .read_only = mode == PLX_SESSION_READ,
                                         .grows = mode == PLX_SESSION_GROW,
                                         .brief = true};

    return open_attach(cli, &options);
}

/* Among several. */
static void name_store(const char *store, struct plx_fault *fault)
{
    struct plx_fault what = *fault;
    char prefix[PLX_STORE_NAME_MAX + 16];

    snprintf(prefix, sizeof prefix, "store %s: ", store);
    if (strncmp(what.text, prefix, strlen(prefix)) != 0)
        plx_fault_set(fault, what.code, "%s%.430s", prefix, what.text);
}

int plx_session_each_store(struct plx_cli *cli, const char *store,
                           int (*visit)(struct plx_cli *cli, const struct plx_known *known,
                                        void *context),
                           void *context)
{
    struct plx_known *list;
    struct plx_fault first = {0};
    bool found = false;
    size_t count;
    int rc = init_paths(cli);

    if (rc || (rc = plx_known_list(cli->session.paths, &list, &count, &cli->fault)))
        return rc;
    if (!count && !*store)
        plx_out_note(
            cli,
            "no store is known in %s/stores; 'parallax store format' makes one, 'parallax "
            "store import --volume PATH' makes an existing one known here, --state-dir looks "
            "elsewhere",
            cli->session.paths->state);
    for (size_t i = 0; i < count && !plx_session_stopped(); i++) {
        if (*store && strcmp(store, list[i].name) != 0 && strcmp(store, list[i].identity) != 0)
            continue;
        found = true;
        rc = visit(cli, &list[i], context);
        rc = plx_attach_name_damage(cli->session.attach, rc, &cli->fault);
        if (rc && !*store)
            name_store(list[i].name, &cli->fault);
        if (rc && first.code)
            plx_out_note(cli, "%s", cli->fault.text);
        else if (rc)
            first = cli->fault;
        plx_session_close(cli);
        if ((rc = init_paths(cli)))
            break;
    }
    if (!rc && *store && !found && !plx_interrupted) { /* says so, and what comes next */
        struct plx_known late = {0};
        rc = plx_known_get(cli->session.paths, store, &late, &cli->fault);
        plx_known_done(&late);
    }
    plx_known_list_free(list, count);
    cli->session.no_stores = !count;
    if (rc || !first.code)
        return rc;
    cli->fault = first;
    return first.code;
}

int plx_session_close(struct plx_cli *cli)
{
    struct plx_session *s = &cli->session;
    struct plx_fault fenced = {0};
    int rc = plx_session_vdi_close(cli);

    if (s->attach) {
        int lost = plx_attach_fenced(s->attach, &fenced);
        int closed = plx_attach_close(s->attach);
        if (lost) /* everything else that went wrong follows from it */
            rc = plx_cli_fail(cli, lost, "%s; what this command had not done by then was not done",
                              fenced.text);
        else if (!rc && closed)
            rc = plx_out_not_closed(cli, closed);
    }
    free(s->paths);
    *s = (struct plx_session){0};
    return rc;
}

struct plx_store *plx_session_store(struct plx_cli *cli)
{
    return plx_attach_store(cli->session.attach);
}

/* ---- Virtual disks ---- */

int plx_session_vdi_row(struct plx_cli *cli, const struct plx_name *name,
                        struct plx_registry_vdi *ret_row)
{
    struct plx_registry_store store;
    int rc;

    plx_session_row(cli, &store);
    rc = plx_registry_vdi_get(cli->session.registry, store.id, name->vdi, ret_row);
    return rc ? plx_session_registry_fault(cli, rc) : 0;
}

static const struct plx_attach_vdi_options as_it_is = {.overwrite = -1};

int plx_session_instant_open(struct plx_cli *cli, const struct plx_name *name,
                             struct plx_vdi **ret_vdi)
{
    return plx_attach_vdi_open(cli->session.attach, name->vdi,
                               *name->snapshot ? name->snapshot : "0", &as_it_is, ret_vdi,
                               &cli->fault);
}

void plx_session_instant_close(struct plx_cli *cli, struct plx_vdi *vdi)
{
    if (vdi)
        plx_attach_vdi_close(cli->session.attach, vdi);
}

int plx_session_vdi_close(struct plx_cli *cli)
{
    struct plx_session *s = &cli->session;
    struct plx_vdi *vdi = s->vdi;

    if (!vdi)
        return 0;
    s->vdi = NULL;
    int rc = plx_attach_vdi_close(s->attach, vdi);
    return rc ? plx_cli_fail(cli, rc,
                             "closing the virtual disk: %s; what was acknowledged is kept "
                             "and the next open recovers it",
                             plx_error_text(rc))
              : 0;
}

int plx_session_vdi_create(struct plx_cli *cli, const struct plx_vdi_create_options *options,
                           const struct plx_name *parent)
{
    struct plx_vdi_info info;

    return plx_attach_vdi_create(cli->session.attach, options, parent ? parent->vdi : NULL,
                                 parent ? parent->snapshot : NULL, &info, &cli->fault);
}

/* ---- Whoever else has it open ---- */

/* The control socket of an instance. NOT_FOUND: it has none, or is gone: its number alone may be
 * that of somebody who has the store open that this one is a copy of. */
static int connect_to(struct plx_cli *cli, uint64_t id, struct plx_control_client **ret_client,
                      struct plx_fault *fault)
{
    struct plx_registry_instance instance;
    char path[PLX_PATH_MAX];
    int rc = plx_registry_instance_get(cli->session.registry, id, &instance);

    if (rc == PLX_ERR_NOT_FOUND || (!rc && is_gone(&cli->session, &instance)))
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

/* Asks the instance that has the disk open once. *ret_asked false: nobody has, do it here.
 * NOT_FOUND: *ret_gone, it has not any more. Takes the reference of arguments (may be NULL);
 * ret_result may be NULL. */
static int ask_once(struct plx_cli *cli, const struct plx_name *name, const char *command,
                    json_t *arguments, bool *ret_asked, bool *ret_gone, json_t **ret_result)
{
    struct plx_control_client *client = NULL;
    json_t *request = json_pack("{s:s,s:s}", "command", command, "vdi", name->vdi), *result = NULL;
    struct plx_registry_vdi row;
    uint64_t owner;
    int rc = find_live(cli, name, &owner, &client);

    json_object_update(request, arguments);
    json_decref(arguments);
    *ret_asked = client != NULL;
    if (!rc && client)
        rc = plx_control_call(client, request, CALL_TIMEOUT_MS, &result, &cli->fault);
    if (!rc && ret_result)
        *ret_result = json_incref(result);
    *ret_gone = rc == PLX_ERR_NOT_FOUND && client && !plx_session_vdi_row(cli, name, &row) &&
                row.owner != owner;
    plx_control_disconnect(client);
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
            plx_fault_set(ret_why, told, "%s (pid %" PRId64 "): %.200s", list[i].role, list[i].pid,
                          why.text);
    }
    free(list);
    json_decref(request);
    return rc ? plx_session_registry_fault(cli, rc) : 0;
}

static int ask_live(struct plx_cli *cli, const struct plx_name *name, const char *command,
                    json_t *arguments, bool *ret_asked, json_t **ret_result)
{
    bool gone = true;
    int rc = 0;

    for (unsigned i = 0; i < HANDS_MAX && gone; i++)
        rc = ask_once(cli, name, command, json_incref(arguments), ret_asked, &gone, ret_result);
    json_decref(arguments);
    return rc;
}

/* A handler that has recovered it for a LUN that has not come gives it up when it is asked. */
static void ask_for(struct plx_cli *cli, const struct plx_name *name)
{
    bool asked;

    ask_live(cli, name, "info", NULL, &asked, NULL);
    cli->fault = (struct plx_fault){0};
}

int plx_session_vdi_open(struct plx_cli *cli, const struct plx_name *name, bool write)
{
    struct plx_session *s = &cli->session;

    PLX_ASSERT(!s->vdi);
    if (!write)
        return plx_session_instant_open(cli, name, &s->vdi);
    ask_for(cli, name);
    return plx_attach_vdi_open(s->attach, name->vdi, NULL, &as_it_is, &s->vdi, &cli->fault);
}

int plx_session_vdi_delete(struct plx_cli *cli, const struct plx_name *name, bool lost)
{
    ask_for(cli, name);
    return plx_attach_vdi_delete(cli->session.attach, name->vdi, lost, &cli->fault);
}

/* Opens the disk in this process, unless it is open already. */
static int open_here(struct plx_cli *cli, const struct plx_name *name)
{
    return cli->session.vdi ? 0 : plx_session_vdi_open(cli, name, true);
}

/* Where the disk is: asked there (*ret_asked), or open here. A handler may have opened it since
 * that was looked up (SESSION-3). Otherwise as ask_once(). */
static int ask_or_open(struct plx_cli *cli, const struct plx_name *name, const char *command,
                       json_t *arguments, bool *ret_asked, json_t **ret_result)
{
    struct plx_fault why;
    bool live = true;
    int rc = 0;

    for (unsigned i = 0; i < HANDS_MAX && live; i++) {
        rc = ask_live(cli, name, command, json_incref(arguments), ret_asked, ret_result);
        if (!rc && !*ret_asked)
            rc = open_here(cli, name);
        if (rc != PLX_ERR_BUSY || *ret_asked)
            break;
        why = cli->fault;
        if (plx_session_vdi_is_live(cli, name, &live))
            break;
        cli->fault = why;
    }
    json_decref(arguments);
    return rc;
}

int plx_session_vdi_resize(struct plx_cli *cli, const struct plx_name *name, uint64_t bytes)
{
    bool asked;
    int rc = ask_or_open(cli, name, "resize", json_pack("{s:I}", "size_bytes", (json_int_t)bytes),
                         &asked, NULL);

    if (rc || asked)
        return rc;
    return plx_attach_resize(cli->session.attach, cli->session.vdi, bytes, &cli->fault);
}

int plx_session_vdi_protect(struct plx_cli *cli, const struct plx_name *name,
                            const struct plx_protection *protection)
{
    char mode[PLX_MODE_TEXT], tiers[PLX_TIERS_TEXT];
    bool asked;
    int rc = ask_or_open(cli, name, "protect",
                         json_pack("{s:s,s:s}", "mode", plx_protection_mode_text(protection, mode),
                                   "retention", plx_protection_tiers_text(protection, tiers)),
                         &asked, NULL);

    if (rc || asked)
        return rc;
    return plx_attach_protect(cli->session.attach, cli->session.vdi, protection, &cli->fault);
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

int plx_session_vdi_rewind(struct plx_cli *cli, const struct plx_name *name, uint64_t seq,
                           char ret_label[PLX_REWIND_LABEL], struct plx_snapshot_info *ret_before)
{
    json_t *result = NULL;
    bool asked;
    int rc = ask_or_open(cli, name, "rewind", json_pack("{s:I}", "seq", (json_int_t)seq), &asked,
                         &result);

    if (!rc && asked) {
        const char *label = json_string_value(json_object_get(result, "label"));

        snprintf(ret_label, PLX_REWIND_LABEL, "%s", label ? label : "");
        ret_before->seq = (uint64_t)json_integer_value(json_object_get(result, "seq"));
        ret_before->time_ns = (uint64_t)json_integer_value(json_object_get(result, "time_ns"));
        json_decref(result);
    }
    if (rc || asked)
        return rc;
    return plx_attach_rewind(cli->session.attach, cli->session.vdi, seq, ret_label, ret_before,
                             &cli->fault);
}

int plx_session_vdi_resume(struct plx_cli *cli, const struct plx_name *name)
{
    bool asked;
    int rc = ask_or_open(cli, name, "resume", NULL, &asked, NULL);

    if (rc || asked)
        return rc;
    return plx_attach_resume(cli->session.attach, cli->session.vdi, &cli->fault);
}

static uint64_t number_of(const json_t *object, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

static json_t *list_marks(const struct plx_thin *thin)
{
    json_t *list = json_array();

    for (size_t i = 0; i < thin->mark_count; i++)
        json_array_append_new(list, json_pack("{s:I,s:s*}", "seq", (json_int_t)thin->marks[i].seq,
                                              "label", thin->marks[i].label));
    return list;
}

static void take_marks(const struct plx_thin *thin, const json_t *result)
{
    const json_t *gone = json_object_get(result, "gone");

    for (size_t i = 0; i < json_array_size(gone); i++) {
        uint64_t place = (uint64_t)json_integer_value(json_array_get(gone, i));

        if (place < thin->mark_count)
            thin->marks[place].gone = true;
    }
}

static int thin_slice(void *context, const struct plx_thin *thin, struct plx_thinned *ret_thinned,
                      struct plx_fault *fault)
{
    const struct plx_session_thinning *thinning = context;
    struct plx_cli *cli = thinning->cli;
    const struct plx_name *name = thinning->name;
    json_t *result = NULL;
    bool asked;
    int rc = ask_or_open(
        cli, name, "thin",
        json_pack("{s:I,s:I,s:I,s:I,s:b,s:b,s:o}", "after", (json_int_t)thin->after, "upto",
                  (json_int_t)plx_min_u64(thin->upto, INT64_MAX), "before_ns",
                  (json_int_t)thin->before_ns, "every_ns", (json_int_t)thin->every_ns, "dry_run",
                  thin->dry_run, "rewinds_only", thin->rewinds_only, "marks", list_marks(thin)),
        &asked, &result);

    if (!rc && asked) {
        take_marks(thin, result);
        *ret_thinned = (struct plx_thinned){
            .upto = number_of(result, "upto"),
            .snapshots = number_of(result, "snapshots"),
            .blocks = number_of(result, "blocks"),
            .meta_blocks = number_of(result, "meta_blocks"),
            .oldest = number_of(result, "oldest"),
        };
    }
    json_decref(result);
    if (rc || asked)
        return rc;
    return plx_attach_thin(cli->session.attach, cli->session.vdi, thin, ret_thinned, &cli->fault);
}

static int stop_when_interrupted(void *context, const struct plx_thinned *so_far,
                                 struct plx_fault *fault)
{
    return plx_session_stopped() ? plx_fault_set(fault, PLX_ERR_SYSTEM,
                                                 "interrupted; what was let go by then is gone")
                                 : 0;
}

struct plx_retention_work plx_session_thin_work(struct plx_session_thinning *thinning)
{
    return (struct plx_retention_work){
        .context = thinning, .thin = thin_slice, .between = stop_when_interrupted};
}

/* ---- Collecting ---- */

/* The control socket of a handler that has the store open; *ret_client stays NULL when none has. */
static int find_handler(struct plx_cli *cli, const char *store,
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

/* Takes the reference of the request; ret_result may be NULL. */
static int call_handler(struct plx_cli *cli, struct plx_control_client *client, json_t *request,
                        json_t **ret_result)
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

static bool says(const json_t *status, const char *state)
{
    const char *word = json_string_value(json_object_get(status, "state"));

    return word && strcmp(word, state) == 0;
}

/* A job of a handler's background thread (tcmu/collector.h). */
struct job {
    const char *command, *status, *stop; /* commands */
    const char *first, *second;          /* states in which it is under way */
};

static const struct job collection = {"collect", "collect-status", "collect-stop", "mark", "sweep"};
static const struct job deduplication = {"dedup", "dedup-status", "dedup-stop", "look", "compare"};

/* Until it has ended; *ret_status is its last word. */
static int follow_job(struct plx_cli *cli, struct plx_control_client *client, const struct job *job,
                      const struct plx_session_job *how, json_t **ret_status)
{
    const struct timespec pause = {.tv_nsec = 100000000};
    bool stopped = false;

    for (;;) {
        json_t *status = NULL;
        int rc = call_handler(cli, client, json_pack("{s:s}", "command", job->status), &status);

        if (rc)
            return rc;
        if (!says(status, job->first) && !says(status, job->second)) {
            *ret_status = status;
            return 0;
        }
        if (how->progress)
            how->progress(how->context, says(status, job->second), number_of(status, "done"),
                          number_of(status, "total"));
        json_decref(status);
        if (plx_session_stopped() && !stopped) {
            stopped = true;
            rc = call_handler(cli, client, json_pack("{s:s}", "command", job->stop), NULL);
            if (rc)
                return rc;
        }
        nanosleep(&pause, NULL);
    }
}

/* *ret_status comes back unless the handler could not be asked. */
static int run_job(struct plx_cli *cli, struct plx_control_client *client, const struct job *job,
                   const struct plx_session_job *how, json_t **ret_status)
{
    int rc = call_handler(cli, client,
                          json_pack("{s:s,s:b,s:I,s:I}", "command", job->command, "dry_run",
                                    how->dry_run, "memory", (json_int_t)how->memory, "rate",
                                    (json_int_t)how->rate),
                          NULL);

    if (!rc)
        rc = follow_job(cli, client, job, how, ret_status);
    if (!rc && says(*ret_status, "failed"))
        rc = plx_cli_fail(cli,
                          plx_error_code(json_string_value(json_object_get(*ret_status, "code"))),
                          "%.400s", json_string_value(json_object_get(*ret_status, "error")));
    return rc;
}

static int collect_there(struct plx_cli *cli, struct plx_control_client *client,
                         const struct plx_session_job *how, struct plx_collected *ret_collected)
{
    json_t *status = NULL;
    int rc = run_job(cli, client, &collection, how, &status);

    *ret_collected = (struct plx_collected){
        .found = number_of(status, "found"),
        .swept = number_of(status, "swept"),
        .looked = number_of(status, "looked"),
        .missed = number_of(status, "missed"),
        .elsewhere = number_of(status, "elsewhere"),
        .unreadable = number_of(status, "unreadable"),
        .metadata_bytes = number_of(status, "metadata_bytes"),
        .nanoseconds = number_of(status, "nanoseconds"),
        .slices = (unsigned)number_of(status, "slices"),
        .resumed = json_is_true(json_object_get(status, "resumed")),
    };
    json_decref(status);
    return rc;
}

static bool is_interrupted(void *context)
{
    return plx_session_stopped();
}

static struct plx_attach_work work_here(const struct plx_session_job *how)
{
    return (struct plx_attach_work){
        .dry_run = how->dry_run,
        .memory = how->memory,
        .rate = how->rate,
        .progress = how->progress,
        .interrupted = is_interrupted,
        .context = how->context,
    };
}

static int collect_here(struct plx_cli *cli, const char *store, const struct plx_session_job *how,
                        struct plx_collected *ret_collected)
{
    const struct plx_attach_work work = work_here(how);
    int rc = plx_session_close(cli); /* which had the registry alone */

    if (!rc)
        rc = plx_session_open(cli, store, PLX_SESSION_WRITE);
    if (how->dry_run && (rc == PLX_ERR_PERMISSION || rc == PLX_ERR_READONLY)) /* then it counts what
                                                                               * is there */
        rc = plx_session_open(cli, store, PLX_SESSION_READ);
    return rc ? rc : plx_attach_collect(cli->session.attach, &work, ret_collected, &cli->fault);
}

int plx_session_collect(struct plx_cli *cli, const char *store, const struct plx_session_job *how,
                        struct plx_collected *ret_collected)
{
    struct plx_control_client *client = NULL;
    int rc = find_handler(cli, store, &client);

    /* Left in the middle of a change: opening it for writing mends that, or says whose it is. */
    if (rc == PLX_ERR_REGISTRY)
        rc = 0;
    if (!rc)
        rc = client ? collect_there(cli, client, how, ret_collected)
                    : collect_here(cli, store, how, ret_collected);
    plx_control_disconnect(client);
    return rc;
}

/* ---- Deduplicating ---- */

static int dedup_there(struct plx_cli *cli, struct plx_control_client *client,
                       const struct plx_session_job *how, struct plx_attach_deduped *ret_deduped)
{
    json_t *status = NULL;
    int rc = run_job(cli, client, &deduplication, how, &status);

    *ret_deduped = (struct plx_attach_deduped){
        .what = {.mapped = number_of(status, "mapped"),
                 .common = number_of(status, "common"),
                 .seen = number_of(status, "seen"),
                 .unknown = number_of(status, "unknown"),
                 .compared = number_of(status, "compared"),
                 .unreadable = number_of(status, "unreadable"),
                 .joined = number_of(status, "joined"),
                 .made = number_of(status, "made"),
                 .disks = (unsigned)number_of(status, "disks"),
                 .slices = (unsigned)number_of(status, "slices")},
        .elsewhere = (unsigned)number_of(status, "elsewhere"),
        .nanoseconds = number_of(status, "nanoseconds"),
    };
    json_decref(status);
    return rc;
}

static int dedup_here(struct plx_cli *cli, const struct plx_session_job *how,
                      struct plx_attach_deduped *ret_deduped)
{
    const struct plx_attach_work work = work_here(how);

    return plx_attach_dedup(cli->session.attach, true, &work, ret_deduped, &cli->fault);
}

/* This process's affair even if a handler shares: the loop stands still, no disk is open. */
static int allow_common(struct plx_cli *cli)
{
    const struct plx_attach_growth growth = {.common = true};
    struct plx_grown grown;

    return plx_store_allows_common(plx_session_store(cli))
               ? 0
               : plx_attach_grow(cli->session.attach, &growth, &grown, &cli->fault);
}

int plx_session_dedup(struct plx_cli *cli, const char *store, const struct plx_session_job *how,
                      struct plx_attach_deduped *ret_deduped)
{
    struct plx_control_client *client = NULL;
    int rc = plx_session_open(cli, store, PLX_SESSION_WRITE);

    if (!rc && !how->dry_run)
        rc = allow_common(cli);
    if (!rc)
        rc = find_handler(cli, store, &client);
    if (!rc)
        rc =
            client ? dedup_there(cli, client, how, ret_deduped) : dedup_here(cli, how, ret_deduped);
    plx_control_disconnect(client);
    return rc;
}

int plx_session_store_stats(struct plx_cli *cli, const char *store, json_t **ret_stats)
{
    struct plx_control_client *client = NULL;
    int rc = find_handler(cli, store, &client);

    if (!rc && !client)
        rc = plx_cli_fail(cli, PLX_ERR_NOT_FOUND,
                          "no handler of this host has store %s open, so there are no counters; "
                          "'parallax lun create' opens a disk of it",
                          store);
    if (!rc)
        rc = call_handler(cli, client, json_pack("{s:s}", "command", "stats"), ret_stats);
    plx_control_disconnect(client);
    return rc;
}

bool plx_session_ask_room(struct plx_cli *cli, uint64_t instance, struct plx_session_room *ret_room)
{
    json_t *request = json_pack("{s:s}", "command", "stats"), *result = NULL;
    struct plx_control_client *client = NULL;
    struct plx_fault none = {0}; /* who does not answer is nothing wrong */
    bool answered = !connect_to(cli, instance, &client, &none) &&
                    !plx_control_call(client, request, CALL_TIMEOUT_MS, &result, &none);
    if (answered)
        *ret_room = (struct plx_session_room){
            .data_free = number_of(result, "data_free_blocks"),
            .meta_free = number_of(result, "meta_free_blocks"),
            .recovery = number_of(result, "recovery_blocks"),
        };
    plx_control_disconnect(client);
    json_decref(result);
    json_decref(request);
    return answered;
}

/* A request to the disk open here. */
static int run_here(struct plx_cli *cli, const struct plx_name *name, struct plx_request *request)
{
    int rc = plx_vdi_run(cli->session.vdi, request);

    if (rc)
        cli->fault = request->fault;
    if (rc && !*request->fault.text)
        plx_cli_fail(cli, rc, "%s/%.120s: %s", name->store, name->vdi, plx_error_text(rc));
    return rc;
}

static int move_here(struct plx_cli *cli, const struct plx_name *name, uint64_t end,
                     struct plx_move *move)
{
    struct iovec iov = {aligned_alloc(PLX_BLOCK_SIZE, PLX_MOVE_BUFFER), PLX_MOVE_BUFFER};
    struct plx_request request = {.op = PLX_MOVE,
                                  .offset = move->upto,
                                  .length = end - move->upto,
                                  .iov = &iov,
                                  .iovcnt = 1,
                                  .move = move};
    int rc = iov.iov_base ? 0 : plx_cli_fail(cli, PLX_ERR_NOMEM, "out of memory");

    if (!rc && !move->dry_run)
        rc = plx_attach_move_room(cli->session.attach, &cli->fault);
    if (!rc)
        rc = run_here(cli, name, &request);
    free(iov.iov_base);
    return rc;
}

int plx_session_vdi_move(struct plx_cli *cli, const struct plx_name *name, uint64_t end,
                         struct plx_move *move)
{
    json_t *result = NULL;
    const char *code, *message;
    bool asked;
    int rc =
        ask_or_open(cli, name, "move",
                    json_pack("{s:I,s:I,s:I,s:I,s:b}", "offset", (json_int_t)move->upto, "length",
                              (json_int_t)(end - move->upto), "windows", (json_int_t)move->windows,
                              "blocks", (json_int_t)move->blocks, "dry_run", move->dry_run),
                    &asked, &result);

    if (!rc && !asked)
        return move_here(cli, name, end, move);
    if (rc)
        return rc;
    move->upto = number_of(result, "upto");
    move->mapped += number_of(result, "mapped");
    move->shared += number_of(result, "shared");
    move->moved += number_of(result, "moved");
    move->runs_before += number_of(result, "runs_before");
    move->runs_after += number_of(result, "runs_after");
    code = json_string_value(json_object_get(result, "code"));
    message = json_string_value(json_object_get(result, "message"));
    if (code)
        rc = plx_cli_fail(cli, plx_error_code(code), "%s", message ? message : code);
    json_decref(result);
    return rc;
}

int plx_session_vdi_keyframe(struct plx_cli *cli, const struct plx_name *name)
{
    struct plx_request request = {.op = PLX_KEYFRAME};
    bool asked;
    int rc = ask_or_open(cli, name, "keyframe", NULL, &asked, NULL);

    if (rc || asked)
        return rc;
    return run_here(cli, name, &request);
}

int plx_session_vdi_stats(struct plx_cli *cli, const struct plx_name *name, json_t **ret_stats)
{
    bool asked;
    int rc = ask_live(cli, name, "stats", NULL, &asked, ret_stats);

    if (!rc && !asked)
        rc = plx_cli_fail(cli, PLX_ERR_NOT_FOUND,
                          "no handler of this host has %s/%.120s open, so there are no counters; "
                          "'parallax lun create' opens it",
                          name->store, name->vdi);
    return rc;
}

static bool keep_last(void *context, const struct plx_snapshot_info *info)
{
    *(struct plx_snapshot_info *)context = *info;
    return !plx_session_stopped();
}

int plx_session_window(struct plx_cli *cli, const struct plx_registry_vdi *row,
                       struct plx_snapshot_info *ret_oldest, struct plx_snapshot_info *ret_newest)
{
    struct plx_store *store = plx_session_store(cli);
    struct plx_vdi_info info;
    int rc;

    *ret_oldest = *ret_newest = (struct plx_snapshot_info){0};
    if ((rc = plx_door_read(store, row, &info, &cli->fault)) ||
        (rc = plx_snapshot_first(store, row->slot, 1, ret_oldest, &cli->fault)) || !ret_oldest->seq)
        return rc;
    /* From the newest key frame on: what came before it need not be read. */
    rc = plx_snapshot_list(store, row->slot, plx_max_u64(info.snapshots, 1), keep_last, ret_newest,
                           &cli->fault);
    return !rc && plx_interrupted ? plx_cli_interrupted(cli, 0) : rc; /* an older one came out */
}

int plx_session_snapshot_resolve(struct plx_cli *cli, const struct plx_name *name,
                                 struct plx_snapshot_info *ret_info)
{
    struct plx_snapshot_info info;
    struct plx_registry_vdi row;
    uint64_t seq;
    int rc;

    if ((rc = plx_session_vdi_row(cli, name, &row)) ||
        (rc = plx_attach_snapshot_resolve(cli->session.attach, name->vdi, name->snapshot, &seq,
                                          &cli->fault)))
        return rc;
    if (!seq)
        return plx_cli_fail(cli, PLX_ERR_NOT_FOUND,
                            "%s/%.100s has no snapshot %.40s; they begin with 1", name->store,
                            name->vdi, name->snapshot);
    if ((rc = plx_snapshot_first(plx_session_store(cli), row.slot, seq, &info, &cli->fault)))
        return rc;
    if (info.seq != seq)
        return plx_attach_explain_missing(cli->session.attach, &row, name->snapshot, seq,
                                          &cli->fault);
    *ret_info = info;
    return 0;
}

int plx_session_snapshot_create(struct plx_cli *cli, const struct plx_name *name, const char *label,
                                uint64_t *ret_seq, uint64_t *ret_time_ns)
{
    struct plx_request request = {.op = PLX_SNAPSHOT};
    json_t *result = NULL;
    bool asked;
    int rc = ask_or_open(cli, name, "snapshot", NULL, &asked, &result);

    if (!rc && asked) {
        request.seq = (uint64_t)json_integer_value(json_object_get(result, "seq"));
        request.time_ns = (uint64_t)json_integer_value(json_object_get(result, "time_ns"));
        json_decref(result);
    } else if (!rc) {
        rc = run_here(cli, name, &request);
    }
    if (!rc && *label)
        rc = plx_session_label_set(cli, name, label, request.seq, request.time_ns);
    if (rc)
        return rc;
    *ret_seq = request.seq;
    *ret_time_ns = request.time_ns;
    return 0;
}

int plx_session_label_set(struct plx_cli *cli, const struct plx_name *name, const char *label,
                          uint64_t seq, uint64_t time_ns)
{
    bool asked;
    int rc =
        ask_or_open(cli, name, "label",
                    json_pack("{s:s,s:I}", "label", label, "seq", (json_int_t)seq), &asked, NULL);

    if (rc || asked)
        return rc;
    return plx_attach_label(cli->session.attach, cli->session.vdi, label, seq, time_ns,
                            &cli->fault);
}

int plx_session_label_remove(struct plx_cli *cli, const struct plx_name *name, const char *label)
{
    bool asked;
    int rc = ask_or_open(cli, name, "unlabel", json_pack("{s:s}", "label", label), &asked, NULL);

    if (rc || asked)
        return rc;
    return plx_attach_label(cli->session.attach, cli->session.vdi, label, 0, 0, &cli->fault);
}
