/* attach.c - see attach.h. */
#include "fault/attach.h"

#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "attach/compare.h"
#include "attach/founding.h"
#include "attach/rebuild.h"
#include "fault/every.h"
#include "folder.h"
#include "registry/policy.h"
#include "registry/retention.h"
#include "registry/sql.h"
#include "registry/threshold.h"

#define MIB (1ull << 20)
#define LENGTH 65536u
#define CONTENTS 7
#define GROWN (6 * MIB)
#define REGISTRY_GROWS (48 * MIB)
#define K_MAX 1000u
#define WORKERS 8u /* they wait for the kernel most of the time */

struct plx_fault fault_attach_fault;
unsigned fault_attach_mute_events;
bool fault_attach_reopens;
static struct plx_fault *const fault = &fault_attach_fault;

static char directory[FOLDER_MAX], state[FOLDER_MAX + 32], volume[FOLDER_MAX + 32],
    further[FOLDER_MAX + 32];
static struct plx_attach *attach;
static struct plx_vdi *vdi;
static bool label_lost;
/* Letting "gone" go has found no room for it, which is no error (reclaim.c), and said so. */
static bool gone_stays;
static uint8_t buffer[LENGTH];

static int say(int error, const char *text)
{
    return plx_fault_set(fault, error, "%s", text);
}

/* ---- Steps ---- */

static int format(void)
{
    struct plx_format_options options = {.name = "s", .extent_bytes = MIB};
    struct plx_store_info info;
    const char *paths[] = {volume};

    options.force = access(volume, F_OK) == 0;
    if (options.force) /* an earlier try may have come as far as being known */
        plx_founding_forget(state, "s", NULL, NULL);
    return plx_founding_format(state, paths, 1, 8 * MIB, &options, false, NULL, &info, fault);
}

/* What an operator reads: it must say something. */
static void take_event(void *context, int error, const char *text)
{
    if (error && !text[0])
        fault_attach_mute_events++;
}

int fault_attach_open(void)
{
    struct plx_attach_options options = {.store = "s",
                                         .state_dir = state,
                                         .role = "admin",
                                         .brief = true,
                                         .reopens = fault_attach_reopens,
                                         .cache_bytes = MIB,
                                         .event = take_event};
    int error = plx_attach_open(&options, &attach, fault);

    if (error)
        attach = NULL;
    return error;
}

static int close_attach(void)
{
    int error = attach ? plx_attach_close(attach) : 0;

    attach = NULL;
    return error ? say(error, plx_error_text(error)) : 0;
}

static int create(void)
{
    struct plx_vdi_create_options options = {
        .name = "v", .size_bytes = 4 * MIB, .sector_size = 512};
    struct plx_vdi_info info;

    return plx_attach_vdi_create(attach, &options, NULL, NULL, &info, fault);
}

static int clone(void)
{
    struct plx_vdi_create_options options = {.name = "c"};
    struct plx_vdi_info info;

    return plx_attach_vdi_create(attach, &options, "v", "first", &info, fault);
}

static int open_named(const char *name, const char *snapshot)
{
    struct plx_attach_vdi_options options = {.overwrite = -1};
    int error = plx_attach_vdi_open(attach, name, snapshot, &options, &vdi, fault);

    if (error)
        vdi = NULL;
    return error;
}

static int open_vdi(void)
{
    return open_named("v", NULL);
}

static int open_instant(void)
{
    return open_named("v", "first");
}

static int close_vdi(void)
{
    int error = vdi ? plx_attach_vdi_close(attach, vdi) : 0;

    vdi = NULL;
    return error ? say(error, plx_error_text(error)) : 0;
}

/* Where disks are opened again it is closed with the store. */
static int leave(void)
{
    int error = plx_attach_vdi_leave(attach, vdi);

    vdi = NULL;
    return error ? say(error, plx_error_text(error)) : close_attach();
}

static int request(enum plx_request_op op, uint64_t *ret_seq)
{
    struct iovec iov = {buffer, LENGTH};
    struct plx_request r = {.op = op, .length = LENGTH, .iov = &iov, .iovcnt = 1};
    int error = plx_vdi_run(vdi, &r);

    if (error)
        *fault = r.fault;
    if (ret_seq)
        *ret_seq = r.seq;
    return error;
}

static int write_all(void)
{
    memset(buffer, CONTENTS, LENGTH);
    return request(PLX_WRITE, NULL);
}

/* other: what may stand in a byte instead. */
static int read_all(uint8_t other)
{
    int error = request(PLX_READ, NULL);

    for (unsigned at = 0; !error && at < LENGTH; at++)
        if (buffer[at] != CONTENTS && buffer[at] != other)
            error = plx_fault_set(fault, PLX_ERR_CORRUPT, "byte %u is %u", at, buffer[at]);
    return error;
}

static int label(void)
{
    uint64_t seq;
    int error = request(PLX_SNAPSHOT, &seq);

    return error ? error : plx_attach_label(attach, vdi, "first", seq, 1, fault);
}

static int unlabel(void)
{
    return plx_attach_label(attach, vdi, "first", 0, 0, fault);
}

static int thin_slice(void *context, const struct plx_thin *slice, struct plx_thinned *ret_thinned,
                      struct plx_fault *why)
{
    return plx_attach_thin(attach, vdi, slice, ret_thinned, why);
}

static int thin(void)
{
    const struct plx_retention_work work = {.thin = thin_slice};
    struct plx_thinned sum;

    return plx_retention_thin(&work, &(struct plx_thin){.upto = UINT64_MAX}, &sum, fault);
}

/* And what "gone" names. */
static int thin_marked(uint64_t seq, uint64_t after, uint64_t upto)
{
    const struct plx_retention_work work = {.thin = thin_slice};
    struct plx_thin_mark mark = {.seq = seq, .label = "gone"};
    struct plx_thin range = {.after = after, .upto = upto, .marks = &mark, .mark_count = 1};
    struct plx_thinned sum;
    int error = plx_retention_thin(&work, &range, &sum, fault);

    gone_stays = !error && !mark.gone;
    return error;
}

static int thin_labelled(void)
{
    return thin_marked(1, 0, UINT64_MAX);
}

/* History goes on before it and behind it. */
static int thin_amid(void)
{
    return thin_marked(2, 1, 2);
}

static int resize(void)
{
    return plx_attach_resize(attach, vdi, GROWN, fault);
}

static int rewind_vdi(void)
{
    char way_back[PLX_REWIND_LABEL];
    struct plx_snapshot_info before;
    uint64_t seq;
    int error = plx_attach_snapshot_resolve(attach, "v", "first", &seq, fault);

    return error ? error : plx_attach_rewind(attach, vdi, seq, way_back, &before, fault);
}

static int delete_vdi(void)
{
    return plx_attach_vdi_delete(attach, "v", false, fault);
}

static int rename_as(const char *name, const char *new_name)
{
    return plx_attach_vdi_rename(attach, name, new_name, fault);
}

static int rename_vdi(void)
{
    return rename_as("w", "v");
}

static int rebuild(void)
{
    const char *paths[] = {volume};
    const struct plx_rebuild_options options = {.state_dir = state, .volumes = paths, .count = 1};
    struct plx_rebuilt rebuilt;
    struct plx_known known;
    int error = plx_rebuild(&options, &known, &rebuilt, fault);

    if (!error)
        plx_known_done(&known);
    return error;
}

static int reopen(void)
{
    int error = close_attach();

    return error ? error : fault_attach_open();
}

static int grow_by(const char *path)
{
    const struct plx_attach_growth growth = {.path = path, .create_bytes = 4 * MIB};
    struct plx_grown grown;

    return plx_attach_grow(attach, &growth, &grown, fault);
}

static int grow(void)
{
    return grow_by(NULL);
}

static int add_volume(void)
{
    return grow_by(further);
}

static void difference(void *context, const struct plx_finding *found)
{
    unsigned *count = context;

    if (found->severity != PLX_FINDING_ERROR)
        return;
    ++*count;
    say(PLX_ERR_CORRUPT, found->text);
}

static int compare(void)
{
    unsigned differences = 0;
    int error = plx_attach_compare(attach, difference, &differences, fault);

    return error ? error : differences ? PLX_ERR_CORRUPT : 0;
}

static int protect(void)
{
    struct plx_protection protection = {.mode = PLX_PROTECT_INTERVAL,
                                        .interval_ns = PLX_INTERVAL_MAX_NS};

    return plx_attach_protect(attach, vdi, &protection, fault);
}

/* Runs a step between opening a disk and closing it. */
static int on_disk(const char *name, int (*run)(void))
{
    int error = open_named(name, NULL), closed;

    if (error)
        return error;
    error = run();
    closed = close_vdi();
    return error ? error : closed;
}

/* Runs a step between opening the store and closing it. */
static int in_store(int error, int (*run)(void))
{
    int closed;

    if (!error)
        error = fault_attach_open();
    if (error)
        return error;
    error = run();
    closed = close_attach();
    return error ? error : closed;
}

/* ---- What is there before ---- */

static int nothing(void)
{
    return 0;
}

static int created(void)
{
    return in_store(format(), create);
}

static int write_and_label(void)
{
    int error = write_all();

    return error ? error : label();
}

static int first_instant(void)
{
    return on_disk("v", write_and_label);
}

static int labelled(void)
{
    return in_store(created(), first_instant);
}

/* Snapshots 1 to 3, of which one is "gone" (0: none), and 4 with a label. */
static int make_history(unsigned gone)
{
    int error = 0;

    for (unsigned seq = 1; seq <= 3 && !error; seq++) {
        error = write_all();
        if (!error)
            error = request(PLX_SNAPSHOT, NULL);
        if (!error && seq == gone)
            error = plx_attach_label(attach, vdi, "gone", seq, seq, fault);
        if (!error)
            error = request(PLX_KEYFRAME, NULL);
    }
    if (!error)
        error = write_and_label();
    return error ? error : request(PLX_KEYFRAME, NULL);
}

static int make_plain_history(void)
{
    return make_history(0);
}

static int make_labelled_history(void)
{
    return make_history(1);
}

static int make_labelled_amid(void)
{
    return make_history(2);
}

static int plain_history(void)
{
    return on_disk("v", make_plain_history);
}

static int labelled_history(void)
{
    return on_disk("v", make_labelled_history);
}

static int labelled_amid(void)
{
    return on_disk("v", make_labelled_amid);
}

static int with_history(void)
{
    return in_store(created(), plain_history);
}

static int with_labelled_history(void)
{
    return in_store(created(), labelled_history);
}

static int with_labelled_amid(void)
{
    return in_store(created(), labelled_amid);
}

static int rename_away(void)
{
    return rename_as("v", "w");
}

static int other_name(void)
{
    return in_store(labelled(), rename_away);
}

/* Its volume is larger than it knows. */
static int with_room_of(int error, uint64_t bytes)
{
    if (!error && truncate(volume, (off_t)bytes))
        return say(PLX_ERR_SYSTEM, "the volume cannot be made larger");
    return error;
}

static int with_room(void)
{
    return with_room_of(labelled(), 10 * MIB);
}

/* So much that its registry is to get more as well: 2 extents to 1. */
static int with_much_room(void)
{
    return with_room_of(labelled(), REGISTRY_GROWS);
}

/* And is not the last one. */
static int inner(void)
{
    return in_store(labelled(), add_volume);
}

static int inner_with_room(void)
{
    return with_room_of(inner(), 10 * MIB);
}

static int inner_with_much_room(void)
{
    return with_room_of(inner(), REGISTRY_GROWS);
}

static int limit_of_store(bool set)
{
    struct plx_registry *registry = plx_attach_registry(attach);
    char value[PLX_POLICY_VALUE_MAX + 1];
    struct plx_registry_store row;
    int error;

    plx_attach_row(attach, &row);
    error = set ? plx_registry_store_policy_set(registry, row.id, PLX_POLICY_WARN_AT, "80%")
                : plx_registry_store_policy_get(registry, row.id, PLX_POLICY_WARN_AT, value);
    return error ? say(error, plx_registry_error(registry)) : 0;
}

static int set_limit(void)
{
    return limit_of_store(true);
}

/* It has a soft limit, which only the registry knows. */
static int forgotten(void)
{
    int error = in_store(labelled(), set_limit);

    if (!error)
        folder_remove(state);
    return error;
}

/* Another process opened the store and a disk, did something, and was killed. */
static int died_doing(int (*run)(void))
{
    int error = created(), status;
    pid_t child;

    if (error)
        return error;
    fflush(NULL);
    child = fork();
    if (child == 0)
        _exit(fault_attach_open() || open_vdi() || run());
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return say(PLX_ERR_SYSTEM, "the process that was to die failed before");
    return 0;
}

static int died(void)
{
    return died_doing(write_all);
}

/* The registry was not told any more. */
static int delete_record(void)
{
    struct plx_vdi_info info;
    int error;

    plx_vdi_get_info(vdi, &info);
    error = plx_vdi_close(vdi);
    return error ? error : plx_vdi_delete(plx_attach_store(attach), info.slot, false, fault);
}

static int died_deleting(void)
{
    return died_doing(delete_record);
}

/* ---- What is there afterwards ---- */

static int is_there(void)
{
    return on_disk("v", nothing);
}

static int is_deleted(void)
{
    int error = is_there();

    return error == PLX_ERR_NOT_FOUND ? 0 : error ? error : say(PLX_ERR_EXISTS, "it is there");
}

static int holds_contents(void)
{
    return read_all(CONTENTS);
}

/* In the registry, in the record, and under no other name. */
static int is_renamed(void)
{
    struct plx_vdi_info info = {0};
    int error = open_named("v", "first");

    if (!error)
        error = holds_contents();
    if (vdi)
        plx_vdi_get_info(vdi, &info);
    close_vdi();
    if (!error && strcmp(info.name, "v") != 0)
        error = say(PLX_ERR_CORRUPT, "its record has another name");
    if (error)
        return error;
    error = open_named("w", NULL);
    close_vdi();
    return error == PLX_ERR_NOT_FOUND ? 0 : error ? error : say(PLX_ERR_EXISTS, "it has two names");
}

static int is_written(void)
{
    return on_disk("v", holds_contents);
}

static int is_cloned(void)
{
    return on_disk("c", holds_contents);
}

static int has_grown(void)
{
    struct plx_vdi_info info;

    plx_vdi_get_info(vdi, &info);
    return info.size_bytes == GROWN ? 0 : say(PLX_ERR_INVALID, "it has not grown");
}

static int is_resized(void)
{
    return on_disk("v", has_grown);
}

static int has_protection(void)
{
    struct plx_vdi_info info;

    plx_vdi_get_info(vdi, &info);
    return info.protection.mode == PLX_PROTECT_INTERVAL ? 0 : say(PLX_ERR_INVALID, "it has none");
}

/* On the store, and in the registry, which is told when the disk is closed at the latest. */
static int is_protected(void)
{
    struct plx_registry *registry = plx_attach_registry(attach);
    struct plx_protection copy = {0};
    struct plx_registry_store store;
    struct plx_registry_vdi row;
    int error = on_disk("v", has_protection);

    if (!error)
        error = plx_registry_store_get(registry, "s", &store);
    if (!error)
        error = plx_registry_vdi_get(registry, store.id, "v", &row);
    if (!error)
        error = plx_policy_load(registry, row.id, &copy, fault);
    if (!error && copy.mode != PLX_PROTECT_INTERVAL)
        error = say(PLX_ERR_INVALID, "the registry does not know of it");
    return error;
}

static int was_rewound(void)
{
    struct plx_vdi_info info;

    plx_vdi_get_info(vdi, &info);
    return info.rewinds ? read_all(CONTENTS) : say(PLX_ERR_INVALID, "it was not rewound");
}

/* And the registry knows the way back. */
static int is_rewound(void)
{
    struct plx_registry *registry = plx_attach_registry(attach);
    struct plx_registry_label *labels = NULL;
    struct plx_registry_store store;
    struct plx_registry_vdi row;
    bool known = false;
    size_t count = 0;
    int error = plx_registry_store_get(registry, "s", &store);

    if (!error)
        error = plx_registry_vdi_get(registry, store.id, "v", &row);
    if (!error)
        error = plx_registry_label_list(registry, row.id, &labels, &count);
    for (size_t i = 0; i < count; i++)
        known = known || strncmp(labels[i].name, "before-rewind-", 14) == 0;
    free(labels);
    if (error || !known)
        return say(error ? error : PLX_ERR_NOT_FOUND, "there is no label of the state before");
    return on_disk("v", was_rewound);
}

/* The store and the registry have as many extents. */
static int has_extents(uint64_t extents)
{
    struct plx_registry *registry = plx_attach_registry(attach);
    struct plx_registry_range *ranges = NULL;
    struct plx_registry_store store;
    struct plx_store_info info;
    size_t count = 0;
    int error = plx_registry_store_get(registry, "s", &store);

    if (!error)
        error = plx_registry_range_list(registry, store.id, &ranges, &count);
    if (error)
        return say(error, plx_registry_error(registry));
    plx_store_get_info(plx_attach_store(attach), &info);
    if (info.extents != extents ||
        ranges[count - 1].first + ranges[count - 1].extents != info.extents)
        error = say(PLX_ERR_INVALID, "it has not grown");
    free(ranges);
    return error;
}

static int is_larger(void)
{
    return has_extents(10);
}

static int has_further(void)
{
    return has_extents(12);
}

static int is_larger_inside(void)
{
    return has_extents(14);
}

static int change_registry(const char *text)
{
    struct plx_registry *registry = plx_attach_registry(attach);
    const struct plx_sql batch[] = {{.text = text}};
    int error = plx_sql_change(registry, batch, 1, NULL, NULL);

    return error ? say(error, plx_registry_error(registry)) : 0;
}

/* And the registry has all the room that such a store's is to have, and it can be used. */
static int has_registry_room(int error)
{
    static const char fill[] =
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200)"
        " INSERT INTO policies SELECT id, 'k' || i, hex(zeroblob(1500)) FROM n, vdis LIMIT 200";
    struct plx_registry *registry = plx_attach_registry(attach);
    uint64_t used, pages, least, most;

    plx_store_registry_due(plx_attach_store(attach), &least, &most);
    if (!error && most)
        error = say(PLX_ERR_INVALID, "the registry has not grown");
    if (!error)
        error = change_registry(fill);
    if (error)
        return error;
    error = plx_registry_room(registry, &used, &pages);
    if (!error)
        error = plx_registry_check(registry);
    if (error)
        return say(error, plx_registry_error(registry));
    if (used < 200 || pages < 370)
        return say(PLX_ERR_INVALID, "the registry uses no more than it had");
    return change_registry("DELETE FROM policies WHERE key LIKE 'k%'");
}

static int is_much_larger(void)
{
    return has_registry_room(has_extents(48));
}

static int is_much_larger_inside(void)
{
    return has_registry_room(has_extents(52));
}

static int is_labelled(void)
{
    uint64_t seq;

    return plx_attach_snapshot_resolve(attach, "v", "first", &seq, fault);
}

static int is_rebuilt(void)
{
    int error = is_labelled();

    return error ? error : limit_of_store(false);
}

static int is_unlabelled(void)
{
    int error = is_labelled();

    return error == PLX_ERR_NOT_FOUND ? 0 : error ? error : say(PLX_ERR_EXISTS, "it is there");
}

/* Of four snapshots the one with a label is left. */
static int is_thinned(void)
{
    int error = open_named("v", "1");

    if (error != PLX_ERR_NOT_FOUND) {
        close_vdi();
        return error ? error : say(PLX_ERR_EXISTS, "snapshot 1 is there");
    }
    error = open_named("v", "first");
    if (!error)
        error = holds_contents();
    if (!error)
        error = close_vdi();
    return error;
}

/* The label "gone" as long as its snapshot, at least. */
static int is_thinned_labelled(void)
{
    uint64_t seq;
    int labelled = plx_attach_snapshot_resolve(attach, "v", "gone", &seq, fault);
    int error = labelled && labelled != PLX_ERR_NOT_FOUND ? labelled : is_thinned();

    label_lost = label_lost || (error == PLX_ERR_EXISTS && labelled);
    if (label_lost)
        return say(PLX_ERR_CORRUPT, "snapshot 1 has lost its label and stays");
    return error || labelled ? error : say(PLX_ERR_EXISTS, "its label is there");
}

/* As long as its snapshot is there, "gone" names it. */
static int is_thinned_amid(void)
{
    uint64_t seq;
    int labelled = plx_attach_snapshot_resolve(attach, "v", "gone", &seq, fault);
    int error = labelled && labelled != PLX_ERR_NOT_FOUND ? labelled : open_named("v", "2");

    close_vdi();
    if (error && error != PLX_ERR_NOT_FOUND)
        return error;
    if (!error && labelled)
        return say(PLX_ERR_CORRUPT, "snapshot 2 has lost its label and stays");
    if (error && !labelled)
        return say(PLX_ERR_CORRUPT, "snapshot 2 is gone and its label stays");
    return error || gone_stays ? 0 : say(PLX_ERR_EXISTS, "snapshot 2 is there");
}

static const struct fault_operation operations[] = {
    {.name = "format", .prepare = nothing, .run = format, .formats = true, .deletes = true},
    {.name = "open", .prepare = format, .run = fault_attach_open, .deletes = true},
    {.name = "recover",
     .prepare = died,
     .run = fault_attach_open,
     .effect = is_written,
     .written = true},
    {.name = "recover-deleted",
     .prepare = died_deleting,
     .run = fault_attach_open,
     .effect = is_deleted,
     .deletes = true},
    {.name = "create",
     .prepare = format,
     .opens = FAULT_OPENS_STORE,
     .run = create,
     .effect = is_there,
     .deletes = true},
    {.name = "clone",
     .prepare = labelled,
     .opens = FAULT_OPENS_STORE,
     .run = clone,
     .effect = is_cloned,
     .written = true},
    {.name = "open-disk",
     .prepare = created,
     .opens = FAULT_OPENS_STORE,
     .run = open_vdi,
     .effect = is_there},
    {.name = "write",
     .prepare = created,
     .opens = FAULT_OPENS_DISK,
     .run = write_all,
     .effect = is_written,
     .on_disk = true},
    {.name = "label",
     .prepare = created,
     .opens = FAULT_OPENS_DISK,
     .run = label,
     .effect = is_labelled,
     .on_disk = true},
    {.name = "unlabel",
     .prepare = labelled,
     .opens = FAULT_OPENS_DISK,
     .run = unlabel,
     .effect = is_unlabelled,
     .written = true,
     .on_disk = true},
    {.name = "thin",
     .prepare = with_history,
     .opens = FAULT_OPENS_DISK,
     .run = thin,
     .effect = is_thinned,
     .written = true,
     .on_disk = true,
     .keyframe = true},
    {.name = "thin-labelled",
     .prepare = with_labelled_history,
     .opens = FAULT_OPENS_DISK,
     .run = thin_labelled,
     .effect = is_thinned_labelled,
     .written = true,
     .on_disk = true,
     .keyframe = true},
    {.name = "thin-amid",
     .prepare = with_labelled_amid,
     .opens = FAULT_OPENS_DISK,
     .run = thin_amid,
     .effect = is_thinned_amid,
     .written = true,
     .on_disk = true,
     .keyframe = true},
    {.name = "resize",
     .prepare = created,
     .opens = FAULT_OPENS_DISK,
     .run = resize,
     .effect = is_resized,
     .on_disk = true},
    {.name = "protect",
     .prepare = created,
     .opens = FAULT_OPENS_DISK,
     .run = protect,
     .effect = is_protected,
     .on_disk = true,
     .keyframe = true},
    {.name = "compare",
     .prepare = labelled,
     .opens = FAULT_OPENS_STORE,
     .run = compare,
     .effect = is_labelled,
     .written = true},
    {.name = "rewind",
     .prepare = labelled,
     .opens = FAULT_OPENS_DISK,
     .run = rewind_vdi,
     .effect = is_rewound,
     .written = true,
     .on_disk = true},
    {.name = "close-disk",
     .prepare = created,
     .opens = FAULT_OPENS_DISK,
     .run = close_vdi,
     .effect = is_there},
    {.name = "leave-disk",
     .prepare = labelled,
     .opens = FAULT_OPENS_DISK,
     .run = leave,
     .effect = is_labelled,
     .written = true},
    {.name = "open-snapshot",
     .prepare = labelled,
     .opens = FAULT_OPENS_STORE,
     .run = open_instant,
     .effect = is_labelled,
     .written = true},
    {.name = "delete",
     .prepare = labelled,
     .opens = FAULT_OPENS_STORE,
     .run = delete_vdi,
     .effect = is_deleted,
     .deletes = true,
     .written = true},
    {.name = "rename",
     .prepare = other_name,
     .opens = FAULT_OPENS_STORE,
     .run = rename_vdi,
     .effect = is_renamed,
     .written = true},
    {.name = "close",
     .prepare = labelled,
     .opens = FAULT_OPENS_STORE,
     .run = close_attach,
     .effect = is_labelled,
     .written = true},
    {.name = "reopen",
     .prepare = labelled,
     .opens = FAULT_OPENS_STORE,
     .run = reopen,
     .effect = is_labelled,
     .written = true},
    {.name = "grow",
     .prepare = with_room,
     .opens = FAULT_OPENS_STORE,
     .run = grow,
     .effect = is_larger,
     .written = true},
    {.name = "grow-inner",
     .prepare = inner_with_room,
     .opens = FAULT_OPENS_STORE,
     .run = grow,
     .effect = is_larger_inside,
     .written = true},
    {.name = "grow-registry",
     .prepare = with_much_room,
     .opens = FAULT_OPENS_STORE,
     .run = grow,
     .effect = is_much_larger,
     .written = true},
    {.name = "grow-registry-inner",
     .prepare = inner_with_much_room,
     .opens = FAULT_OPENS_STORE,
     .run = grow,
     .effect = is_much_larger_inside,
     .written = true},
    {.name = "add-volume",
     .prepare = labelled,
     .opens = FAULT_OPENS_STORE,
     .run = add_volume,
     .effect = has_further,
     .written = true},
    {.name = "rebuild",
     .prepare = forgotten,
     .run = rebuild,
     .effect = is_rebuilt,
     .written = true},
};
#define OPERATIONS (sizeof operations / sizeof operations[0])

/* ---- Judging ---- */

static void finding(void *context, const struct plx_finding *finding)
{
    if (finding->severity == PLX_FINDING_ERROR)
        say(PLX_ERR_CORRUPT, finding->text);
}

/* The store in itself, the registry against it, and no instance but this one. */
static int check(void)
{
    struct plx_check_options options = {.finding = finding};
    struct plx_check_result result = {0};
    struct plx_registry *registry = plx_attach_registry(attach);
    struct plx_registry_instance *instances;
    struct plx_registry_hold *holds;
    struct plx_registry_store row;
    struct plx_registry_vdi disk;
    size_t count, held;
    int error = plx_store_check(plx_attach_store(attach), &options, &result, fault);

    if (!error)
        error = result.errors ? PLX_ERR_CORRUPT : compare();
    if (error)
        return error;
    error = plx_registry_store_get(registry, "s", &row);
    if (!error)
        error = plx_registry_instance_list(registry, row.id, &instances, &count);
    if (!error) {
        free(instances);
        error = plx_registry_vdi_get(registry, row.id, "v", &disk);
    }
    if (!error)
        error = plx_registry_hold_list(registry, disk.id, &holds, &held);
    if (error)
        return say(error, plx_registry_error(registry));
    free(holds);
    if (held)
        return say(PLX_ERR_BUSY, "a snapshot is held and not open");
    return count == 1 ? 0 : say(PLX_ERR_BUSY, "an instance is left over");
}

static int open_again(const struct fault_operation *operation, bool done)
{
    int error = operation->run == rebuild && !done ? rebuild() : 0;

    if (!error)
        error = fault_attach_open();
    if (!error || done || !operation->formats)
        return error;
    error = format();
    return error ? error : fault_attach_open();
}

/* What an operation was to do is done, or can be done now. */
static int finish(const struct fault_operation *operation, bool done)
{
    int error = operation->effect ? operation->effect() : 0;

    if (!error || done)
        return error;
    error = operation->on_disk ? on_disk("v", operation->run) : operation->run();
    return error ? error : operation->effect();
}

static int open_disk(const struct fault_operation *operation)
{
    int error = open_vdi();

    if (error != PLX_ERR_NOT_FOUND || !operation->deletes)
        return error;
    error = create();
    return error ? error : open_vdi();
}

static int use_disk(void)
{
    int error = write_all();

    if (!error)
        error = request(PLX_SNAPSHOT, NULL);
    return error ? error : close_vdi();
}

int fault_attach_judge(const struct fault_operation *operation, bool done, const char **step)
{
    int error;

    *step = "closing what is open";
    error = close_vdi();
    if (error == PLX_ERR_STICKY && (!done || operation->keyframe))
        error = 0; /* it stays locked, and the next opening recovers it */
    if (!error)
        error = close_attach();
    if (error)
        return error;
    *step = "opening the store";
    error = open_again(operation, done);
    if (error)
        return error;
    *step = "comparing with the registry";
    error = compare();
    if (error)
        return error;
    *step = "finding it done, or doing it";
    error = finish(operation, done);
    if (error)
        return error;
    *step = "opening the disk";
    error = open_disk(operation);
    if (error)
        return error;
    *step = "reading";
    error = read_all(operation->written && operation->run != delete_vdi ? CONTENTS : 0);
    if (error)
        return error;
    *step = "writing and closing";
    error = use_disk();
    if (error)
        return error;
    *step = "checking";
    error = check();
    return error ? error : close_attach();
}

void fault_attach_drop(void)
{
    close_vdi();
    close_attach();
}

/* ---- The loop ---- */

static bool every_k(const struct fault_operation *operation, uint64_t first, uint64_t step,
                    uint64_t *cases, fault_attach_case *run_case)
{
    unsigned failures = 0;
    uint64_t k = first;

    for (; run_case(operation, k, &failures) && step && k < K_MAX && failures < 8; k += step)
        ++*cases;
    return failures == 0 && k < K_MAX;
}

bool fault_attach_loop(const char *wanted, unsigned part, unsigned parts, const char *places,
                       fault_attach_case *run_case)
{
    unsigned offset, every = fault_every(&offset);
    uint64_t only = 0, cases = 0, first, step;
    char name[32] = "";
    bool good = true;

    if (wanted)
        sscanf(wanted, "%31[^:]:%" SCNu64, name, &only);
    first = only ? only : 1 + offset + part * every;
    step = only ? 0 : (uint64_t)parts * every;
    for (unsigned i = 0; i < OPERATIONS && !(only && part); i++)
        if (!wanted || strcmp(name, operations[i].name) == 0)
            good = every_k(&operations[i], first, step, &cases, run_case) && good;
    printf("\n    part %u: %" PRIu64 " cases (%s %" PRIu64 ", then every %" PRIu64 "th)", part,
           cases, places, first, step);
    fflush(stdout);
    return good;
}

/* ---- What was prepared is put back ---- */

/* Each preparation has a folder of its own, since the home page of a store names the inode of its
 * volume. What it made is copied into "kept" there. */
static int (*prepared[OPERATIONS])(void);

static void go_to(unsigned number, char ret_kept[FOLDER_MAX + 32])
{
    snprintf(state, sizeof state, "%s/%u/state", directory, number);
    snprintf(volume, sizeof volume, "%s/%u/volume", directory, number);
    snprintf(further, sizeof further, "%s/%u/further", directory, number);
    snprintf(ret_kept, FOLDER_MAX + 32, "%s/%u/kept", directory, number);
}

static bool copy_all(const char *kept, bool back)
{
    const char *places[] = {state, volume, further};
    bool good = true;

    for (unsigned i = 0; i < sizeof places / sizeof places[0]; i++) {
        char copy[FOLDER_MAX + 64];

        snprintf(copy, sizeof copy, "%s%s", kept, strrchr(places[i], '/'));
        good = good && folder_copy(back ? copy : places[i], back ? places[i] : copy);
    }
    return good;
}

static bool make_folders(unsigned number, const char *kept)
{
    char path[FOLDER_MAX + 32];

    snprintf(path, sizeof path, "%s/%u", directory, number);
    return mkdir(path, 0700) == 0 && mkdir(kept, 0700) == 0;
}

int fault_attach_prepare(const struct fault_operation *operation)
{
    char kept[FOLDER_MAX + 32];
    unsigned number = 0;
    int error;

    label_lost = gone_stays = false;
    while (prepared[number] && prepared[number] != operation->prepare)
        number++;
    go_to(number, kept);
    if (prepared[number])
        return copy_all(kept, true) ? 0 : say(PLX_ERR_SYSTEM, "it cannot be put back");
    prepared[number] = operation->prepare;
    error = make_folders(number, kept) ? operation->prepare() : PLX_ERR_SYSTEM;
    return error || copy_all(kept, false) ? error : say(PLX_ERR_SYSTEM, "it cannot be kept");
}

int fault_attach_begin(const struct fault_operation *operation)
{
    int error = operation->opens >= FAULT_OPENS_STORE ? fault_attach_open() : 0;

    return !error && operation->opens == FAULT_OPENS_DISK ? open_vdi() : error;
}

/* ---- The processes ---- */

static int worker(unsigned part, int (*work)(unsigned part, unsigned parts))
{
    int result;

    if (!folder_make("attach", directory))
        return 2;
    result = work(part, WORKERS);
    folder_remove(directory);
    return result;
}

int fault_attach_share(int (*work)(unsigned part, unsigned parts))
{
    bool good = true;
    int status;

    /* Nobody asks how much memory SQLite has, and to count it locks a mutex for each allocation. */
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    for (unsigned part = 0; part < WORKERS; part++)
        if (fork() == 0)
            exit(worker(part, work));
    for (unsigned part = 0; part < WORKERS; part++)
        good = wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 && good;
    putchar('\n');
    return good ? 0 : 1;
}
