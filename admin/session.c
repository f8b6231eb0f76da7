/* session.c - registry, store, one open virtual disk.
 *
 * SESSION-1  Only the holder of a disk's lock changes the disk. That is this process, or the
 *     instance that has the disk open, which the command asks through its control socket. Which of
 *     the two it is, each command looks up anew.
 * SESSION-2  Whatever a command did, plx_session_close() gives up its locks and extents before the
 *     process ends. Those of a command that was killed are recovered by the next opening for
 *     writing (recovery.c).
 * SESSION-3  A request that its receiver may have begun is never sent again, whatever answer comes.
 *     A request is repeated only if it was refused before anything changed: another command has the
 *     lock, or the disk changed hands between the look-up and the request.
 * SESSION-4  An answer counts only if it says what this version expects of it (MESSAGES-1). Nobody
 *     is told of a snapshot @0 because a handler answered with nothing.
 */
#include "session_inside.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "output.h"
#include "registry/collections.h"
#include "registry/embedded.h"
#include "registry/host_word.h"
#include "registry/instance.h"
#include "registry/lost.h"
#include "registry/paths.h"

#define SECOND_NS 1000000000ull
#define MS_NS 1000000ull
#define TELL_NS SECOND_NS         /* shorter waits are not reported */
#define PAUSE_MIN_NS (10 * MS_NS) /* first pause: once or twice that; later ones grow */
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
    const struct plx_fault *busy =
        cli->session.attach ? plx_attach_in_the_way(cli->session.attach) : NULL;

    if (code == PLX_ERR_READONLY && busy)
        return plx_cli_fail(cli, busy->code, "%s", busy->text);
    if (code == PLX_ERR_READONLY && cli->session.attach) {
        int whose = plx_attach_whose(cli->session.attach, &cli->fault);

        if (whose)
            return whose;
    }
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

/* A disk's ring is drained, which may take long. */
static bool on_draining(void *context, uint64_t left)
{
    struct plx_cli *cli = context;

    if (cli->session.draining)
        plx_progress_left(cli->session.draining, "draining the ring", left);
    return plx_session_stopped();
}

static bool on_interrupted(void *context)
{
    return plx_session_stopped();
}

static int open_attach(struct plx_cli *cli, const struct plx_attach_options *options)
{
    struct plx_session *s = &cli->session;
    struct plx_attach_options waiting = *options;
    int rc = init_paths(cli);

    PLX_ASSERT(!s->attach && !s->registry);
    snprintf(cli->store, sizeof cli->store, "%s", options->store);
    waiting.patience = plx_session_patience(cli);
    waiting.draining = on_draining;
    waiting.interrupted = on_interrupted;
    waiting.context = cli;
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

static void tell_doubt(struct plx_cli *cli, const struct plx_registry_store *row)
{
    if (row->doubt[0])
        plx_out_note(cli, "store %s is in doubt, so nothing new is opened for writing: %s",
                     row->name, row->doubt);
}

void plx_session_tell_doubt(struct plx_cli *cli)
{
    struct plx_registry_store row;

    plx_session_row(cli, &row);
    tell_doubt(cli, &row);
}

json_t *plx_session_doubt(struct plx_cli *cli)
{
    struct plx_registry_store row;

    plx_session_row(cli, &row);
    return row.doubt[0] ? plx_out_string(row.doubt) : json_null();
}

/* What the schema says of clones whose origin is not known (0008_origins.sql). */
#define SCHEMA_ON_ORIGIN "the origin of a clone is not known"

/* Refused by what is noted in the registry. What a command saw that succeeded is said as well. */
int plx_session_name_doubt(struct plx_cli *cli, int rc)
{
    const struct plx_session *s = &cli->session;
    struct plx_registry_lost *lost = NULL;
    struct plx_registry_store row;
    size_t count = 0;
    char said[sizeof cli->fault.text];

    if (!s->attach || !s->registry ||
        (rc != PLX_ERR_REGISTRY && (rc || !plx_attach_found_doubt(s->attach))))
        return rc;
    plx_session_row(cli, &row);
    if (plx_registry_store_get(s->registry, row.uuid, &row))
        return rc;
    if (!rc) {
        tell_doubt(cli, &row);
        return 0;
    }
    memcpy(said, cli->fault.text, sizeof said);
    if (!row.doubt[0] && !strstr(said, SCHEMA_ON_ORIGIN) &&
        (plx_registry_lost_list(s->registry, row.id, &lost, &count) || !count))
        return rc;
    free(lost);
    if (plx_attach_name_doubt(s->attach, rc, &cli->fault) == PLX_ERR_DOUBT)
        return PLX_ERR_DOUBT;
    if (row.doubt[0] && strstr(said, plx_error_text(rc)))
        return plx_cli_fail(cli, PLX_ERR_DOUBT, "store %s is in doubt: %s%s%.100s", row.name,
                            row.doubt, plx_registry_doubt_advice(&row), said + strcspn(said, ";"));
    return plx_cli_fail(cli, PLX_ERR_DOUBT, "%s", said);
}

bool plx_session_read_tenant(struct plx_session *s, struct plx_tenant *ret_tenant)
{
    struct plx_registry_store row;
    struct plx_uuid store;
    int error;

    plx_attach_row(s->attach, &row);
    plx_uuid_parse(row.uuid, &store);
    error = plx_tenancy_read(plx_registry_device(s->registry), plx_registry_locks(s->registry),
                             &store, s->paths, ret_tenant, NULL);
    if (error == PLX_ERR_CORRUPT)
        *ret_tenant = (struct plx_tenant){.damaged = true};
    return !error || error == PLX_ERR_CORRUPT;
}

bool plx_session_is_gone(struct plx_session *s, const struct plx_registry_instance *instance)
{
    struct plx_bytelock *locks = plx_registry_locks(s->registry);
    struct plx_tenant tenant;

    return plx_session_read_tenant(s, &tenant) && tenant.here &&
           plx_instance_is_dead(s->paths, locks, instance, NULL);
}

/* NULL: it is this host's. */
static const char *describe_tenant(const struct plx_tenant *tenant, const struct plx_known *known,
                                   char ret_text[PLX_SESSION_TENANT_TEXT])
{
    char volumes[PLX_KNOWN_VOLUMES_TEXT], called[PLX_HOST_WORD], word[PLX_HOST_WORD];

    plx_known_name_volumes(known, volumes);
    if (tenant->ours)
        return NULL;
    if (!tenant->found) {
        snprintf(ret_text, PLX_SESSION_TENANT_TEXT,
                 "the home page of store %s is %s, so nobody knows which host has it: here it can "
                 "only be read; when no other has, 'parallax store take-over %s --any "
                 "--i-checked-it-is-off' rewrites the page",
                 known->name, tenant->damaged ? "damaged" : "lost", known->name);
        return "UNTOLD";
    }
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
             plx_host_called(tenant->host_name, &tenant->host, called), known->name, known->name,
             plx_host_word(tenant->host_name, &tenant->host, word));
    return "ELSEWHERE";
}

const char *plx_session_not_ours(struct plx_cli *cli, const struct plx_known *known,
                                 char ret_text[PLX_SESSION_TENANT_TEXT])
{
    struct plx_tenant tenant;

    return plx_session_read_tenant(&cli->session, &tenant)
               ? describe_tenant(&tenant, known, ret_text)
               : NULL;
}

void plx_session_tell_host(struct plx_cli *cli, const char *store, json_t *object)
{
    char text[PLX_SESSION_TENANT_TEXT];
    struct plx_tenant tenant;
    struct plx_known known;

    if (!plx_session_read_tenant(&cli->session, &tenant)) {
        plx_out_keys(object, "host", "ours", NULL);
        return;
    }
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
    bool command = !cli->json && plx_instance_is_command(cli->session.paths, instance);

    return json_sprintf("%s %" PRId64 " on %s%s", command ? "command" : instance->role,
                        instance->pid, instance->host_name,
                        plx_session_is_gone(&cli->session, instance) ? ", gone" : "");
}

json_t *plx_session_vdi_user(struct plx_cli *cli, const struct plx_registry_vdi *row)
{
    struct plx_registry_instance owner;

    if (!row->owner || plx_registry_instance_get(cli->session.registry, row->owner, &owner) ||
        plx_session_is_gone(&cli->session, &owner))
        return NULL;
    return plx_session_instance_text(cli, &owner);
}

int plx_session_open(struct plx_cli *cli, const char *store, enum plx_session_mode mode)
{
    struct plx_attach_options options = {.store = store,
                                         .state_dir = cli->state_dir,
                                         .role = "admin",
                                         .read_only = mode <= PLX_SESSION_CHECK,
                                         .checks = mode == PLX_SESSION_CHECK,
                                         .grows = mode == PLX_SESSION_GROW,
                                         .rings = mode == PLX_SESSION_MEASURE,
                                         .brief = mode != PLX_SESSION_MEASURE};

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
            "no store is known in %s/stores; 'parallax store format' makes one, 'parallax store "
            "scan' looks for existing ones on block devices, 'parallax store import --volume PATH' "
            "makes one of those known here, --state-dir looks elsewhere",
            cli->session.paths->state);
    for (size_t i = 0; i < count && !plx_session_stopped(); i++) {
        if (*store && strcmp(store, list[i].name) != 0 && strcmp(store, list[i].identity) != 0)
            continue;
        found = true;
        rc = visit(cli, &list[i], context);
        rc = plx_attach_name_damage(cli->session.attach, rc, &cli->fault);
        plx_session_name_advice(cli);
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

void plx_session_name_advice(struct plx_cli *cli)
{
    if (*cli->store)
        plx_known_name_advice(cli->store, cli->fault.text, sizeof cli->fault.text);
}

int plx_session_fenced(struct plx_cli *cli)
{
    return cli->session.attach ? plx_attach_fenced(cli->session.attach, &cli->fault) : 0;
}

void plx_session_note_garbage(struct plx_cli *cli, int error)
{
    struct plx_registry_collection last;
    struct plx_registry_store row;

    if (error != PLX_ERR_NOSPACE || !cli->session.attach)
        return;
    plx_session_row(cli, &row);
    if (plx_registry_collection_is_due(cli->session.registry, row.id, &last))
        snprintf(cli->garbage_in, sizeof cli->garbage_in, "%s", row.name);
}

/* SESSION-2 */
int plx_session_close(struct plx_cli *cli)
{
    struct plx_session *s = &cli->session;
    struct plx_fault fenced = {0}, why = {0};
    int rc = plx_session_vdi_close(cli);

    if (s->attach) {
        int lost = plx_attach_fenced(s->attach, &fenced);
        int closed = plx_attach_close_why(s->attach, &why);
        if (lost) /* everything else that went wrong follows from it */
            rc = plx_cli_fail(cli, lost, "%s", fenced.text);
        else if (!rc && closed)
            rc = plx_out_not_closed(cli, closed, why.text);
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

int plx_session_name_moved(struct plx_cli *cli, struct plx_vdi *vdi, int rc)
{
    const struct plx_fault damage = cli->fault;
    int moved = rc == PLX_ERR_CORRUPT && vdi
                    ? plx_attach_vdi_stood_still(cli->session.attach, vdi, &cli->fault)
                    : 0;

    if (moved == PLX_ERR_BUSY)
        return moved;
    cli->fault = damage;
    return rc;
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
