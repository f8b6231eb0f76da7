/* commands.c - the control socket's commands; see commands.h.
 *
 * COMMANDS-1  Every request is checked here. Only root can send one, but it may come from another
 *     version of the program, or be mistyped. Required fields have no defaults: a request without
 *     "dry_run" is refused (MESSAGES-1). A response repeats the disk and what was changed, so that
 *     the client can tell that it answers this request.
 * COMMANDS-2  A LUN stays open while a command works on it, because luns_lock is held. No command
 *     waits for tcmu-runner's main thread while it holds luns_lock, and none waits for that thread
 *     without a limit. That thread may be closing a LUN, and so waiting for luns_lock, or closing
 *     the store, and so waiting for this thread.
 *
 * Threads: the control server's, one request at a time.
 */
#include "tcmu/commands.h"

#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attach/attach.h"
#include "control/messages.h"
#include "registry/names.h"
#include "registry/policy.h"
#include "tcmu/collector.h"
#include "tcmu/home.h"
#include "tcmu/loop.h"
#include "tcmu/runner.h"

#define TELL_KERNEL_MS 10000

struct call {
    struct plx_store_home *home;
    json_t *request;
    struct plx_lun *lun; /* the LUN that "vdi" names; NULL: the request names none */
    json_t *result;
    struct plx_fault fault;
};

static struct plx_lun *find_lun(struct plx_store_home *home, const char *vdi)
{
    for (struct plx_lun *lun = home->luns; lun; lun = lun->next)
        if (!lun->read_only && strcmp(lun->config.vdi, vdi) == 0)
            return lun;
    return NULL;
}

static int run(struct call *call, struct plx_request *request)
{
    int result = plx_loop_run(call->lun->loop, call->lun->vdi, request);

    if (result < 0)
        plx_fault_set(&call->fault, result, "%s/%s: %s", call->home->name, call->lun->config.vdi,
                      request->fault.text[0] ? request->fault.text : plx_error_text(result));
    return result;
}

/* The request's label; NULL and a fault if it is missing or not allowed. given: to a snapshot. */
static const char *get_label(struct call *call, bool given)
{
    const char *label = json_string_value(json_object_get(call->request, "label"));
    char why[200];

    if (!label) {
        plx_fault_set(&call->fault, PLX_ERR_INVALID, "\"label\" is missing");
        return NULL;
    }
    if (given ? plx_label_check(label, why, sizeof why) /* NAMES-2 */
              : plx_name_check("label", label, why, sizeof why)) {
        plx_fault_set(&call->fault, PLX_ERR_INVALID, "%s", why);
        return NULL;
    }
    return label;
}

static int do_snapshot(struct call *call)
{
    bool labelled = json_object_get(call->request, "label");
    const char *label = labelled ? get_label(call, true) : NULL;
    struct plx_request request = {.op = PLX_SNAPSHOT};
    int result;

    if (labelled && !label)
        return call->fault.code;
    result = run(call, &request);
    if (result == 0 && label)
        result = plx_home_label(call->lun, label, request.seq, &call->fault);
    if (result == 0)
        call->result = plx_message_encode(
            plx_message_snapshot,
            &(struct plx_snapshot_info){.seq = request.seq, .time_ns = request.time_ns});
    return result;
}

static int do_label(struct call *call)
{
    const char *label = get_label(call, true);
    json_int_t seq = json_integer_value(json_object_get(call->request, "seq"));

    if (!label)
        return call->fault.code;
    if (seq <= 0)
        return plx_fault_set(&call->fault, PLX_ERR_INVALID,
                             "\"seq\" must be the number of a snapshot");
    call->result = json_pack("{s:s, s:I}", "label", label, "seq", seq);
    return plx_home_label(call->lun, label, (uint64_t)seq, &call->fault);
}

static int do_unlabel(struct call *call)
{
    const char *label = get_label(call, false);

    if (!label)
        return call->fault.code;
    call->result = json_pack("{s:s}", "label", label);
    return plx_home_label(call->lun, label, 0, &call->fault);
}

static int do_rewind(struct call *call)
{
    json_int_t seq = json_integer_value(json_object_get(call->request, "seq"));
    char label[PLX_REWIND_LABEL];
    struct plx_snapshot_info before;
    int result;

    if (seq <= 0)
        return plx_fault_set(&call->fault, PLX_ERR_INVALID,
                             "\"seq\" must be the number of a snapshot");
    result = plx_home_rewind(call->lun, (uint64_t)seq, label, &before, &call->fault);
    if (result == 0) {
        call->result = plx_message_encode(plx_message_snapshot, &before);
        json_object_set_new(call->result, "label", json_string(label));
    }
    return result;
}

/* A text of the request; NULL: there is none of that key. */
static const char *text_of(const struct call *call, const char *key)
{
    return json_string_value(json_object_get(call->request, key));
}

static int do_protect(struct call *call)
{
    const char *mode = text_of(call, "mode"), *retention = text_of(call, "retention");
    char mode_set[PLX_MODE_TEXT], tiers_set[PLX_TIERS_TEXT];
    struct plx_protection protection = {0};
    int result;

    if (!mode || !retention)
        return plx_fault_set(&call->fault, PLX_ERR_INVALID, "\"mode\" or \"retention\" is missing");
    result = plx_protection_parse_mode(mode, &protection, &call->fault);
    if (result == 0)
        result = plx_protection_parse_tiers(retention, &protection, &call->fault);
    if (result)
        return result;
    call->result = json_pack("{s:s, s:s}", "mode", plx_protection_mode_text(&protection, mode_set),
                             "retention", plx_protection_tiers_text(&protection, tiers_set));
    return plx_home_protect(call->lun, &protection, &call->fault);
}

static int read_marks(struct call *call, struct plx_thin *thin)
{
    const json_t *marks = json_object_get(call->request, "marks");

    if (!json_is_array(marks))
        return plx_fault_set(&call->fault, PLX_ERR_INVALID, "\"marks\" is missing");
    thin->mark_count = json_array_size(marks);
    if (!thin->mark_count)
        return 0;
    thin->marks = calloc(thin->mark_count, sizeof *thin->marks);
    if (!thin->marks)
        return plx_fault_set(&call->fault, PLX_ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < thin->mark_count; i++) {
        const json_t *mark = json_array_get(marks, i);
        const char *label = json_string_value(json_object_get(mark, "label"));
        json_int_t seq = json_integer_value(json_object_get(mark, "seq"));
        char why[200];

        if (seq <= 0)
            return plx_fault_set(&call->fault, PLX_ERR_INVALID,
                                 "the \"seq\" of a mark must be the number of a snapshot");
        if (label && plx_name_check("label", label, why, sizeof why) < 0)
            return plx_fault_set(&call->fault, PLX_ERR_INVALID, "%s", why);
        thin->marks[i] = (struct plx_thin_mark){.seq = (uint64_t)seq, .label = label};
    }
    return 0;
}

static json_t *list_gone(const struct plx_thin *thin)
{
    json_t *gone = json_array();

    for (size_t i = 0; i < thin->mark_count; i++)
        if (thin->marks[i].gone)
            json_array_append_new(gone, json_integer((json_int_t)i));
    return gone;
}

static int do_thin(struct call *call)
{
    struct plx_thin thin = {0};
    struct plx_thinned thinned;
    int result = plx_message_decode(plx_message_thin, call->request, &thin, &call->fault);

    if (result == 0)
        result = read_marks(call, &thin);
    if (result == 0)
        result = plx_home_thin(call->lun, &thin, &thinned, &call->fault);
    if (result == 0) {
        call->result = plx_message_encode(plx_message_thinned, &thinned);
        json_object_set_new(call->result, "gone", list_gone(&thin));
    }
    free(thin.marks);
    return result;
}

static int do_resume(struct call *call)
{
    return plx_home_resume(call->lun, &call->fault);
}

/* The answer tells what was moved even if the request failed then: code and message say why. */
static int do_move(struct call *call)
{
    struct plx_move move = {0};
    struct iovec iov = {NULL, PLX_MOVE_BUFFER};
    struct plx_request request = {.op = PLX_MOVE, .iov = &iov, .iovcnt = 1, .move = &move};
    json_int_t length = json_integer_value(json_object_get(call->request, "length"));
    int result = plx_message_decode(plx_message_move, call->request, &move, &call->fault);

    if (result)
        return result;
    if (length <= 0)
        return plx_fault_set(&call->fault, PLX_ERR_INVALID, "\"length\" must be a number of bytes");
    iov.iov_base = aligned_alloc(PLX_BLOCK_SIZE, PLX_MOVE_BUFFER);
    if (!iov.iov_base)
        return PLX_ERR_NOMEM;
    request.offset = move.upto;
    request.length = (uint64_t)length;
    result = plx_home_move(call->lun, &request);
    free(iov.iov_base);
    call->result = plx_message_encode(plx_message_moved, &move);
    if (result)
        json_object_update_new(call->result, json_pack("{s:s, s:s}", "code", plx_error_name(result),
                                                       "message", request.fault.text));
    return 0;
}

static int do_ring(struct call *call)
{
    const char *word = json_string_value(json_object_get(call->request, "use"));
    unsigned use = 0;

    while (word && plx_ring_setting_words[use] && strcmp(word, plx_ring_setting_words[use]))
        use++;
    if (!word || !plx_ring_setting_words[use])
        return plx_fault_set(&call->fault, PLX_ERR_INVALID, "\"use\" must be off, on or auto");
    call->result = json_pack("{s:s}", "use", plx_ring_setting_words[use]);
    return plx_home_ring_use(call->lun, use, &call->fault);
}

/* waits_for: the name of an error, for which draining waits. */
static int do_ring_status(struct call *call)
{
    struct plx_ringed_info info;

    plx_home_ring_info(call->lun, &info);
    call->result = plx_message_encode(plx_message_ring, &info);
    if (info.waits_for)
        json_object_set_new(call->result, "waits_for", json_string(plx_error_name(info.waits_for)));
    return call->result ? 0 : PLX_ERR_NOMEM;
}

static int do_flush(struct call *call)
{
    struct plx_request request = {.op = PLX_FLUSH, .fua = true};

    return run(call, &request);
}

static int do_keyframe(struct call *call)
{
    struct plx_request request = {.op = PLX_KEYFRAME};

    return run(call, &request);
}

/* The file through which the kernel learns a new size; false: the device is not the kernel's, as in
 * a test. */
static bool dev_size_path(const struct plx_lun *lun, char *ret_path, size_t size)
{
    const char *uio = tcmu_dev_get_uio_name(lun->device);
    char path[128], name[512] = "", *hba = NULL, *backstore = NULL, *save = NULL;
    FILE *file;

    snprintf(path, sizeof path, "/sys/class/uio/%s/name", uio ? uio : "");
    file = fopen(path, "re");
    if (!file)
        return false;
    if (fgets(name, sizeof name, file) && strtok_r(name, "/", &save)) { /* tcm-user */
        hba = strtok_r(NULL, "/", &save);
        backstore = strtok_r(NULL, "/", &save);
    }
    fclose(file);
    snprintf(ret_path, size, "/sys/kernel/config/target/core/user_%s/%s/attrib/dev_size",
             hba ? hba : "", backstore ? backstore : "");
    return hba && backstore;
}

/* Tells the kernel the new size. The kernel then waits for tcmu-runner's main thread (reconfig), so
 * a child process writes the file, with a time limit (COMMANDS-2). false: it failed, or takes too
 * long. */
static bool write_number(const char *path, uint64_t number)
{
    char text[24];
    char *argv[] = {"sh", "-c", "echo \"$1\" >\"$0\"", (char *)path, text, NULL};
    char *envp[] = {NULL};
    int status = 0;
    pid_t child;

    snprintf(text, sizeof text, "%llu", (unsigned long long)number);
    if (posix_spawn(&child, "/bin/sh", NULL, NULL, argv, envp) != 0)
        return false;
    for (unsigned ms = 0; ms < TELL_KERNEL_MS; ms += 10) {
        if (waitpid(child, &status, WNOHANG) == child)
            return WIFEXITED(status) && WEXITSTATUS(status) == 0;
        usleep(10000);
    }
    return false;
}

static int do_resize(struct call *call)
{
    json_int_t bytes = json_integer_value(json_object_get(call->request, "size_bytes"));
    char path[512];
    bool known;
    int result;

    if (bytes <= 0)
        return plx_fault_set(&call->fault, PLX_ERR_INVALID,
                             "\"size_bytes\" must be a number of bytes");
    result = plx_home_resize(call->lun, (uint64_t)bytes, &call->fault);
    if (result < 0)
        return result;
    known = dev_size_path(call->lun, path, sizeof path);
    pthread_mutex_unlock(&call->home->luns_lock);
    if (known && !write_number(path, (uint64_t)bytes))
        result = plx_fault_set(&call->fault, PLX_ERR_SYSTEM,
                               "the virtual disk has grown, but the kernel did not take the new "
                               "size; write %lld to %s",
                               (long long)bytes, path);
    else
        call->result = json_pack("{s:I, s:b}", "size_bytes", bytes, "exported", known);
    pthread_mutex_lock(&call->home->luns_lock);
    return result;
}

static int do_volumes(struct call *call)
{
    return plx_home_volumes_changed(call->home, &call->fault);
}

static json_t *histogram(const uint64_t buckets[PLX_HISTOGRAM_BUCKETS])
{
    json_t *list = json_array();

    for (unsigned i = 0; i < PLX_HISTOGRAM_BUCKETS; i++)
        json_array_append_new(list, json_integer((json_int_t)buckets[i]));
    return list;
}

/* Writes that are acknowledged but still on the ring are not in the store's counters. */
static void add_ring_stats(const struct call *call)
{
    struct plx_ringed_info info;

    plx_home_ring_info(call->lun, &info);
    json_object_set_new(call->result, "ring_records", json_integer((json_int_t)info.records));
    json_object_set_new(call->result, "ring_bytes", json_integer((json_int_t)info.bytes));
    json_object_set_new(call->result, "ring_memory", json_integer((json_int_t)info.memory));
    json_object_set_new(call->result, "ring_drained_bytes",
                        json_integer((json_int_t)info.drained_bytes));
    json_object_set_new(call->result, "ring_oldest_waits_ns",
                        json_integer((json_int_t)info.waited_ns));
    json_object_set_new(call->result, "ring_full", json_integer(info.full));
}

static int do_stats(struct call *call)
{
    struct plx_counters counters;
    const char *name;
    uint64_t value;

    plx_loop_lock(call->home->loop);
    if (call->lun)
        plx_vdi_counters(call->lun->vdi, &counters);
    else
        plx_store_counters(plx_attach_store(call->home->attach), &counters);
    plx_loop_unlock(call->home->loop);
    call->result = json_object();
    for (unsigned i = 0; plx_counter_at(&counters, i, call->lun != NULL, &name, &value); i++)
        json_object_set_new(call->result, name, json_integer((json_int_t)value));
    if (call->lun)
        add_ring_stats(call);
    json_object_set_new(call->result, "snapshot_latency", histogram(counters.snapshot_latency));
    json_object_set_new(call->result, "read_latency", histogram(counters.read_latency));
    json_object_set_new(call->result, "write_latency", histogram(counters.write_latency));
    return 0;
}

static int do_info(struct call *call)
{
    json_t *list = json_array();

    for (struct plx_lun *lun = call->home->luns; lun; lun = lun->next)
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:I, s:i, s:b, s:b}", "vdi", lun->config.vdi, "snapshot",
                            lun->config.snapshot, "size", (json_int_t)atomic_load(&lun->size_bytes),
                            "sector_size", (int)lun->sector_size, "read_only", lun->read_only,
                            "write_back", (int)atomic_load(&lun->write_back)));
    call->result = json_pack("{s:s, s:o}", "store", call->home->name, "luns", list);
    return 0;
}

static int ask_collector(struct call *call, enum plx_job_kind kind)
{
    struct plx_attach_work asked = {0};
    int result = plx_message_decode(plx_message_work, call->request, &asked, &call->fault);
    const struct plx_job job = {
        .kind = kind, .dry_run = asked.dry_run, .memory = asked.memory, .rate = asked.rate};

    return result ? result : plx_collector_ask(call->home->collector, &job, &call->fault);
}

static int tell_status(struct call *call, enum plx_job_kind kind)
{
    call->result = plx_collector_status(call->home->collector, kind);
    return call->result ? 0 : PLX_ERR_NOMEM;
}

static int do_collect(struct call *call)
{
    return ask_collector(call, PLX_JOB_COLLECT);
}

static int do_collect_status(struct call *call)
{
    return tell_status(call, PLX_JOB_COLLECT);
}

static int do_dedup(struct call *call)
{
    return ask_collector(call, PLX_JOB_DEDUP);
}

static int do_dedup_status(struct call *call)
{
    return tell_status(call, PLX_JOB_DEDUP);
}

static int do_stop(struct call *call)
{
    plx_collector_interrupt(call->home->collector);
    return 0;
}

static const struct command {
    const char *name;
    int (*run)(struct call *call);
    bool needs_vdi;
} commands[] = {
    {"info", do_info, false},
    {"snapshot", do_snapshot, true},
    {"label", do_label, true},
    {"flush", do_flush, true},
    {"keyframe", do_keyframe, true},
    {"resize", do_resize, true},
    {"stats", do_stats, false},
    {"unlabel", do_unlabel, true},
    {"protect", do_protect, true},
    {"rewind", do_rewind, true},
    {"thin", do_thin, true},
    {"resume", do_resume, true},
    {"collect", do_collect, false},
    {"collect-status", do_collect_status, false},
    {"collect-stop", do_stop, false},
    {"dedup", do_dedup, false},
    {"dedup-status", do_dedup_status, false},
    {"dedup-stop", do_stop, false},
    {"volumes", do_volumes, false},
    {"move", do_move, true},
    {"ring", do_ring, true},
    {"ring-status", do_ring_status, true},
};

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; name && i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

static int dispatch(struct call *call)
{
    const char *name = json_string_value(json_object_get(call->request, "command"));
    const char *vdi = json_string_value(json_object_get(call->request, "vdi"));
    const struct command *command = find_command(name);
    int result;

    if (!command) /* COMMANDS-1 */
        return plx_fault_set(&call->fault, PLX_ERR_UNSUPPORTED,
                             "this handler (%s) knows no command '%.60s'", PLX_VERSION,
                             name ? name : "");
    if (command->needs_vdi && !vdi)
        return plx_fault_set(&call->fault, PLX_ERR_INVALID, "\"vdi\" is missing");
    if (vdi) {
        call->lun = find_lun(call->home, vdi);
        if (!call->lun) {
            plx_home_let_go(call->home, vdi); /* then the command can open the disk itself */
            return plx_fault_set(&call->fault, PLX_ERR_NOT_FOUND,
                                 "%s/%.100s is not exported by this handler", call->home->name,
                                 vdi);
        }
    }
    result = command->run(call);
    if (result < 0 || !vdi)
        return result;
    if (!call->result)
        call->result = json_object();
    return json_object_set_new(call->result, "vdi", json_string(vdi)) ? PLX_ERR_NOMEM : 0;
}

int plx_commands_handle(void *context, json_t *request, json_t **ret_result, char *message,
                        size_t size)
{
    struct call call = {.home = context, .request = request};
    int result;

    pthread_mutex_lock(&call.home->luns_lock);
    result = dispatch(&call);
    pthread_mutex_unlock(&call.home->luns_lock);
    if (result < 0) {
        json_decref(call.result);
        snprintf(message, size, "%s",
                 call.fault.text[0] ? call.fault.text : plx_error_text(result));
    } else {
        *ret_result = call.result;
    }
    return result;
}
