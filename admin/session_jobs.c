/* session_jobs.c - collecting and deduplicating, by the handler that has the store open, or here
 * (SESSION-1). */
#include <string.h>
#include <time.h>

#include "session_inside.h"

static bool says(const json_t *status, const char *state)
{
    const char *word = json_string_value(json_object_get(status, "state"));

    return word && strcmp(word, state) == 0;
}

/* A job of a handler's background thread (tcmu/collector.h). */
struct handler_job {
    const char *command, *status, *stop; /* commands */
    const char *first, *second;          /* states in which it is under way */
    const struct plx_message_field *result;
};

static const struct handler_job collection = {
    "collect", "collect-status", "collect-stop", "mark", "sweep", plx_message_collected,
};
static const struct handler_job deduplication = {
    "dedup", "dedup-status", "dedup-stop", "look", "compare", plx_message_deduped,
};

/* Until it has ended; *ret_status is its last word. */
static int follow_job(struct plx_cli *cli, struct plx_control_client *client,
                      const struct handler_job *job, const struct plx_session_job *how,
                      json_t **ret_status)
{
    const struct timespec pause = {.tv_nsec = 100000000};
    bool stopped = false;

    for (;;) {
        json_t *status = NULL;
        const char *state;
        int rc = plx_session_call_handler(cli, client, json_pack("{s:s}", "command", job->status),
                                          &status);

        if (!rc)
            rc = plx_session_decode_text(cli, status, "state", &state);
        if (rc) {
            json_decref(status);
            return rc;
        }
        if (!says(status, job->first) && !says(status, job->second)) {
            *ret_status = status;
            return 0;
        }
        if (how->progress)
            how->progress(how->context, says(status, job->second),
                          plx_session_number_of(status, "done"),
                          plx_session_number_of(status, "total"));
        json_decref(status);
        if (plx_session_stopped() && !stopped) {
            stopped = true;
            rc = plx_session_call_handler(cli, client, json_pack("{s:s}", "command", job->stop),
                                          NULL);
            if (rc)
                return rc;
        }
        nanosleep(&pause, NULL);
    }
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

static int tell_failure(struct plx_cli *cli, const json_t *status)
{
    const char *code, *text;
    int rc = plx_session_decode_text(cli, status, "code", &code);

    if (!rc && !(rc = plx_session_decode_text(cli, status, "error", &text)))
        rc = plx_cli_fail(cli, plx_error_code(code), "%.400s", text);
    return rc;
}

static int run_there(struct plx_cli *cli, struct plx_control_client *client,
                     const struct handler_job *job, const struct plx_session_job *how,
                     void *ret_result)
{
    const struct plx_attach_work work = work_here(how);
    json_t *request = plx_message_encode(plx_message_work, &work), *status = NULL;
    int rc;

    json_object_set_new(request, "command", json_string(job->command));
    rc = plx_session_call_handler(cli, client, request, NULL);
    if (!rc)
        rc = follow_job(cli, client, job, how, &status);
    if (!rc && says(status, "failed"))
        rc = tell_failure(cli, status);
    if (!rc)
        rc = plx_session_decode(cli, job->result, status, ret_result);
    json_decref(status);
    return rc;
}

/* ---- Collecting ---- */

static int collect_here(struct plx_cli *cli, const char *store, const struct plx_session_job *how,
                        struct plx_collected *ret_collected)
{
    const struct plx_attach_work work = work_here(how);
    int rc = plx_session_close(cli); /* which had the registry alone */

    if (!rc)
        rc = plx_session_open(cli, store, PLX_SESSION_WRITE);
    if (how->dry_run && plx_error_is_unwritable(rc)) /* then it counts what is there */
        rc = plx_session_open(cli, store, PLX_SESSION_READ);
    return rc ? rc : plx_attach_collect(cli->session.attach, &work, ret_collected, &cli->fault);
}

int plx_session_collect(struct plx_cli *cli, const char *store, const struct plx_session_job *how,
                        struct plx_collected *ret_collected)
{
    struct plx_control_client *client = NULL;
    int rc = plx_session_find_handler(cli, store, &client);

    /* Left in the middle of a change: opening it for writing mends that, or says whose it is. */
    if (rc == PLX_ERR_REGISTRY)
        rc = 0;
    if (!rc)
        rc = client ? run_there(cli, client, &collection, how, ret_collected)
                    : collect_here(cli, store, how, ret_collected);
    plx_control_disconnect(client);
    return rc;
}

/* ---- Deduplicating ---- */

static int dedup_here(struct plx_cli *cli, const struct plx_session_job *how,
                      struct plx_attach_deduped *ret_deduped)
{
    const struct plx_attach_work work = work_here(how);

    return plx_attach_dedup(cli->session.attach, true, &work, ret_deduped, &cli->fault);
}

/* This process's affair even if a handler shares: the loop stands still, no disk is open. */
static int allow_common(struct plx_cli *cli)
{
    const struct plx_attach_growth growth = {.allow = plx_store_allow_common};
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
        rc = plx_session_find_handler(cli, store, &client);
    if (!rc)
        rc = client ? run_there(cli, client, &deduplication, how, ret_deduped)
                    : dedup_here(cli, how, ret_deduped);
    plx_control_disconnect(client);
    return rc;
}
