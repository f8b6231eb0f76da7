/* commands.c - see commands.h. */
#include "crash/commands.h"

#include <stdio.h>
#include <string.h>

#include "attach/compare.h"
#include "attach/founding.h"
#include "attach/rebuild.h"

#define MIB ((uint64_t)1 << 20)
#define VOLUME (16 * MIB)
#define FURTHER (8 * MIB)
#define DISK (4 * MIB)
#define PART 65536u
#define PARTS 24u /* more than an extent holds */

struct plx_fault command_fault;
unsigned command_written;

static struct plx_attach *attach;
static struct plx_vdi *vdi;
static uint8_t part[PART];

static int say(int error, const char *text)
{
    return plx_fault_set(&command_fault, error, "%s", text);
}

/* ---- Steps ---- */

static int open_named_store(const char *store)
{
    struct plx_attach_options options = {.store = store,
                                         .state_dir = stage_state(),
                                         .role = "admin",
                                         .grows = true,
                                         .brief = true,
                                         .cache_bytes = MIB};
    int error = plx_attach_open(&options, &attach, &command_fault);

    if (error)
        attach = NULL;
    return error;
}

int command_open(void)
{
    return open_named_store("s");
}

int command_close(void)
{
    int error = attach ? plx_attach_close(attach) : 0;

    attach = NULL;
    return error ? say(error, plx_error_text(error)) : 0;
}

void command_drop(void)
{
    if (attach)
        plx_attach_close(attach);
    attach = NULL;
}

/* One command of the admin's. */
static int in_store(int (*step)(void))
{
    int error = command_open(), closed;

    if (error)
        return error;
    error = step();
    closed = command_close();
    return error ? error : closed;
}

static int open_disk(const char *name, const char *snapshot)
{
    struct plx_attach_vdi_options options = {.overwrite = -1};

    return plx_attach_vdi_open(attach, name, snapshot, &options, &vdi, &command_fault);
}

static int close_disk(void)
{
    int error = plx_attach_vdi_close(attach, vdi);

    return error ? say(error, plx_error_text(error)) : 0;
}

static int on_disk(const char *name, const char *snapshot, int (*step)(void))
{
    int error = open_disk(name, snapshot), closed;

    if (error)
        return error;
    error = step();
    closed = close_disk();
    return error ? error : closed;
}

static int request(enum plx_request_op op, uint64_t offset, uint64_t *ret_seq)
{
    struct iovec iov = {part, PART};
    struct plx_request r = {.op = op, .offset = offset, .length = PART, .iov = &iov, .iovcnt = 1};
    int error = plx_vdi_run(vdi, &r);

    if (error)
        command_fault = r.fault;
    if (ret_seq)
        *ret_seq = r.seq;
    return error;
}

static int write_part(unsigned number, uint8_t with)
{
    memset(part, with, PART);
    return request(PLX_WRITE, (uint64_t)number * PART, NULL);
}

/* maybe: zeroes may be there instead, block for block. */
static int read_part(unsigned number, uint8_t with, bool maybe)
{
    int error = request(PLX_READ, (uint64_t)number * PART, NULL);
    uint8_t whole[PLX_BLOCK_SIZE], zeroes[PLX_BLOCK_SIZE] = {0};

    memset(whole, with, sizeof whole);
    for (unsigned at = 0; !error && at < PART; at += PLX_BLOCK_SIZE)
        if (memcmp(part + at, whole, sizeof whole) != 0 &&
            (!maybe || memcmp(part + at, zeroes, sizeof zeroes) != 0))
            error = plx_fault_set(&command_fault, PLX_ERR_CORRUPT, "part %u, byte %u is %u, not %u",
                                  number, at, part[at], with);
    return error;
}

static int create_named(const char *name, const char *parent)
{
    struct plx_vdi_create_options options = {.size_bytes = parent ? 0 : DISK,
                                             .sector_size = parent ? 0 : 512};
    struct plx_vdi_info info;

    snprintf(options.name, sizeof options.name, "%s", name);
    return plx_attach_vdi_create(attach, &options, parent, parent ? "first" : NULL, &info,
                                 &command_fault);
}

static int label_named(const char *label)
{
    uint64_t seq;
    int error = request(PLX_SNAPSHOT, 0, &seq);

    return error ? error : plx_attach_label(attach, vdi, label, seq, 1, &command_fault);
}

/* ---- The commands ---- */

static int format(unsigned volumes, bool force, bool unused)
{
    struct plx_format_options options = {.name = "s", .extent_bytes = MIB, .force = force};
    const char *paths[] = {stage_volume(0), stage_volume(1)};
    struct plx_store_info info;

    return plx_founding_format(stage_state(), paths, volumes, VOLUME, &options, unused, NULL, &info,
                               &command_fault);
}

static int format_one(void)
{
    return format(1, false, false);
}

/* Over what the operator has given up. */
static int format_over(void)
{
    return format(1, true, false);
}

static int format_two(void)
{
    return format(2, false, false);
}

int command_format(const struct command *command, bool force, bool unused)
{
    return format(command->run == format_two ? 2 : 1, force, unused);
}

static int make_new(void)
{
    return create_named("new", NULL);
}

static int create(void)
{
    return in_store(make_new);
}

static int make_clone(void)
{
    return create_named("new", "v");
}

static int clone(void)
{
    return in_store(make_clone);
}

static int label_second(void)
{
    return label_named("second");
}

static int label_disk(void)
{
    return on_disk("v", NULL, label_second);
}

static int label(void)
{
    return in_store(label_disk);
}

static int remove_new(void)
{
    return plx_attach_vdi_delete(attach, "new", false, &command_fault);
}

static int delete (void)
{
    return in_store(remove_new);
}

static int sweep(void)
{
    struct plx_attach_work work = {0};
    struct plx_collected collected;

    return plx_attach_collect(attach, &work, &collected, &command_fault);
}

static int collect(void)
{
    return in_store(sweep);
}

/* More than an extent holds, so several are claimed. */
static int fill_parts(void)
{
    int error = 0;

    for (unsigned i = 0; i < PARTS && !error; i++) {
        error = write_part(8 + i, 5);
        command_written += !error;
    }
    return error;
}

static int fill_disk(void)
{
    return on_disk("w", NULL, fill_parts);
}

static int fill(void)
{
    command_written = 0;
    return in_store(fill_disk);
}

static int nothing(void)
{
    return 0;
}

static int look_at_disk(void)
{
    return on_disk("v", NULL, nothing);
}

static int attach_disk(void)
{
    return in_store(look_at_disk);
}

static int detach(void)
{
    int error = vdi ? close_disk() : 0, closed = command_close();

    vdi = NULL;
    return error ? error : closed;
}

static int grow_by(const char *path, bool force)
{
    const struct plx_attach_growth growth = {
        .path = path, .create_bytes = FURTHER, .how.force = force};
    struct plx_grown grown;

    return plx_attach_grow(attach, &growth, &grown, &command_fault);
}

int command_grow(void)
{
    return grow_by(NULL, false);
}

static int grow(void)
{
    return in_store(command_grow);
}

/* As its refusal asks for. */
static int add_further(void)
{
    int error = grow_by(stage_volume(1), false);

    return error == PLX_ERR_EXISTS && strstr(command_fault.text, "--force")
               ? grow_by(stage_volume(1), true)
               : error;
}

static int add_volume(void)
{
    return in_store(add_further);
}

/* The first one, and those of the others that belong to its store, in order. */
static unsigned name_volumes(const char *ret_paths[])
{
    const struct plx_device_open_options options = {.read_only = true, .beside = true};
    struct plx_superblock_info first = {0}, info;
    unsigned count = 0;

    for (unsigned i = 0; i < stage_volumes(); i++) {
        struct plx_device *device;

        if (plx_device_open(stage_volume(i), &options, &device, NULL))
            break;
        if (plx_superblock_probe(device, &info, NULL) == 0) {
            if (i == 0)
                first = info;
            if (plx_uuid_equal(&info.identity, &first.identity) && info.volume_index == count)
                ret_paths[count++] = stage_volume(i);
        }
        plx_device_close(device);
    }
    if (count == 0)
        ret_paths[count++] = stage_volume(0);
    return count;
}

int command_rebuild(void)
{
    const char *paths[PLX_VOLUMES_MAX];
    const struct plx_rebuild_options options = {
        .state_dir = stage_state(), .volumes = paths, .count = name_volumes(paths)};
    struct plx_rebuilt rebuilt;
    struct plx_known known;
    int error = plx_rebuild(&options, &known, &rebuilt, &command_fault);

    if (!error)
        plx_known_done(&known);
    return error;
}

int command_import(const char *from)
{
    const char *paths[PLX_VOLUMES_MAX];
    const struct plx_founding_import options = {.from = from};
    unsigned count = name_volumes(paths);
    struct plx_known known;
    int error = plx_founding_import(stage_state(), paths, count, &options, &known, &command_fault);

    if (!error)
        plx_known_done(&known);
    return error;
}

static int import(void)
{
    return command_import(NULL);
}

static int take_over(void)
{
    return command_import("alpha");
}

static int release(void)
{
    return plx_founding_release(stage_state(), "s", false, NULL, &command_fault);
}

static int import_copy(void)
{
    const char *path = stage_volume(1);
    const struct plx_founding_import options = {
        .name = "copy", .copy = true, .is_copy = stage_host != STAGE_ALPHA};
    struct plx_known known;
    int error = plx_founding_import(stage_state(), &path, 1, &options, &known, &command_fault);

    if (!error)
        plx_known_done(&known);
    return error;
}

/* ---- What is there before ---- */

static int blank(void)
{
    stage_make_volume(0, VOLUME);
    return 0;
}

static int write_first(void)
{
    int error = write_part(0, 7);

    if (!error)
        error = label_named("first");
    return error ? error : write_part(0, 8);
}

static int write_other(void)
{
    return write_part(0, 9);
}

static int make_disks(void)
{
    int error = create_named("v", NULL);

    if (!error)
        error = create_named("w", NULL);
    if (!error)
        error = on_disk("v", NULL, write_first);
    return error ? error : on_disk("w", NULL, write_other);
}

/* Store s has disk v, with a snapshot, and disk w; all is closed. */
static int stored(void)
{
    int error = blank();

    if (!error)
        error = format_one();
    return error ? error : in_store(make_disks);
}

static int with_third(void)
{
    int error = stored();

    return error ? error : create();
}

static int fill_new(void)
{
    return on_disk("new", NULL, write_other);
}

static int with_garbage(void)
{
    int error = with_third();

    if (!error)
        error = in_store(fill_new);
    return error ? error : delete ();
}

/* Disk v is open, with changes that only its log has. */
static int opened(void)
{
    int error = stored();

    if (!error)
        error = command_open();
    if (!error)
        error = open_disk("v", NULL);
    return error ? error : write_part(1, 6);
}

/* The machine died then. */
static int died(void)
{
    struct stage_cut cut;
    int error = opened();

    if (error)
        return error;
    stage_cut_now(NULL, 1, &cut);
    error = detach();
    stage_go_to(&cut);
    stage_cut_free(&cut);
    return error;
}

static int forgotten(void)
{
    int error = stored();

    stage_forget(STAGE_ALPHA);
    return error;
}

/* And nothing of the registry can be read. */
static int ruined(void)
{
    struct plx_simdisk *disk = stage_power()->disks[0];
    struct plx_superblock_info info;
    struct plx_device *device;
    uint8_t junk[4096];
    int error = stored();

    disk = stage_power()->disks[0];
    device = plx_simdisk_attach(disk, "disk");
    if (!error)
        error = plx_superblock_probe(device, &info, &command_fault);
    plx_device_close(device);
    memset(junk, 0x5a, sizeof junk);
    for (uint64_t at = 0; !error && at < info.registry[0].bytes; at += sizeof junk)
        plx_simdisk_poke(disk, info.registry[0].offset + at, junk, sizeof junk);
    return error;
}

static int with_room(void)
{
    int error = stored();

    stage_grow_volume(0, VOLUME + 4 * MIB);
    return error;
}

/* So much that the registry is to have more, too. */
static int with_much_room(void)
{
    int error = stored();

    stage_grow_volume(0, 48 * MIB);
    return error;
}

static int released(void)
{
    int error = stored();

    return error ? error : release();
}

static int given_up(void)
{
    int error = released();

    return error ? error : plx_founding_forget(stage_state(), "s", NULL, &command_fault);
}

static int copied(void)
{
    int error = stored();

    stage_make_volume(1, VOLUME);
    plx_simdisk_copy(stage_power()->disks[1], stage_power()->disks[0]);
    return error;
}

/* ---- What is there afterwards ---- */

static int is_created(void)
{
    return on_disk("new", NULL, nothing);
}

static int holds_first(void)
{
    return read_part(0, 7, false);
}

static int is_cloned(void)
{
    return on_disk("new", NULL, holds_first);
}

static int is_labelled(void)
{
    uint64_t seq;

    return plx_attach_snapshot_resolve(attach, "v", "second", &seq, &command_fault);
}

static int is_deleted(void)
{
    int error = is_created();

    return error == PLX_ERR_NOT_FOUND ? 0 : error ? error : say(PLX_ERR_EXISTS, "it is there");
}

static int has_extents(uint64_t extents)
{
    struct plx_store_info info;

    plx_store_get_info(plx_attach_store(attach), &info);
    return info.extents == extents ? 0 : say(PLX_ERR_INVALID, "it has not grown");
}

static int is_larger(void)
{
    return has_extents(20);
}

static int is_much_larger(void)
{
    uint64_t least, most;
    int error = has_extents(48);

    plx_store_registry_due(plx_attach_store(attach), &least, &most);
    return error || !most ? error : say(PLX_ERR_INVALID, "its registry has not grown");
}

static int has_further(void)
{
    return has_extents(24);
}

static int holds_second(void)
{
    return read_part(0, 8, false);
}

static int holds_log(void)
{
    return read_part(1, 6, false);
}

static int has_log(void)
{
    return on_disk("v", NULL, holds_log);
}

/* The copy is a store of its own. */
static int is_copied(void)
{
    int error = command_close(), closed;

    if (!error)
        error = open_named_store("copy");
    if (!error) {
        error = on_disk("v", NULL, holds_second);
        closed = command_close();
        error = error ? error : closed;
    }
    closed = command_open();
    return error ? error : closed;
}

static int holds_other(void)
{
    int error = read_part(0, 9, false);

    for (unsigned i = 0; !error && i < PARTS; i++)
        error = read_part(8 + i, 5, i >= command_written);
    return error;
}

int command_find_disks(void)
{
    int error = on_disk("v", NULL, holds_second);

    if (!error)
        error = on_disk("v", "first", holds_first);
    return error ? error : on_disk("w", NULL, holds_other);
}

static int write_more(void)
{
    return write_part(4, 3);
}

int command_use(const struct command *command)
{
    int error = create_named("used", NULL);

    return error ? error : on_disk(command->founds ? "used" : "w", NULL, write_more);
}

static void on_finding(void *context, const struct plx_finding *finding)
{
    unsigned *count = context;

    if (finding->severity != PLX_FINDING_ERROR)
        return;
    ++*count;
    say(PLX_ERR_CORRUPT, finding->text);
}

int command_check(void)
{
    unsigned findings = 0;
    struct plx_check_options options = {.finding = on_finding, .context = &findings};
    struct plx_check_result result = {0};
    int error = plx_attach_compare(attach, on_finding, &findings, &command_fault);

    if (!error)
        error = plx_store_check(plx_attach_store(attach), &options, &result, &command_fault);
    return error ? error : findings ? PLX_ERR_CORRUPT : 0;
}

const struct command commands[] = {
    {.name = "store format", .prepare = blank, .run = format_one, .founds = true, .once = true},
    {.name = "store format, two volumes",
     .prepare = blank,
     .run = format_two,
     .founds = true,
     .once = true},
    {.name = "store format over another one",
     .prepare = given_up,
     .run = format_over,
     .founds = true,
     .once = true},
    {.name = "vdi create", .prepare = stored, .run = create, .effect = is_created},
    {.name = "vdi clone", .prepare = stored, .run = clone, .effect = is_cloned},
    {.name = "snap create", .prepare = stored, .run = label, .effect = is_labelled},
    {.name = "vdi delete", .prepare = with_third, .run = delete, .effect = is_deleted},
    {.name = "gc", .prepare = with_garbage, .run = collect},
    {.name = "attach, and extents are claimed", .prepare = stored, .run = fill},
    {.name = "attach after a crash", .prepare = died, .run = attach_disk, .effect = has_log},
    {.name = "detach", .prepare = opened, .run = detach, .effect = has_log, .once = true},
    {.name = "store grow", .prepare = with_room, .run = grow, .effect = is_larger},
    {.name = "store grow, its registry, too",
     .prepare = with_much_room,
     .run = grow,
     .effect = is_much_larger},
    {.name = "store add-volume", .prepare = stored, .run = add_volume, .effect = has_further},
    {.name = "store rebuild-registry", .prepare = forgotten, .run = command_rebuild},
    {.name = "store rebuild-registry of a ruined one", .prepare = ruined, .run = command_rebuild},
    {.name = "store release", .prepare = stored, .run = release, .releases = true},
    {.name = "store take-over", .prepare = stored, .run = take_over, .host = STAGE_BETA},
    {.name = "store take-over after a crash",
     .prepare = died,
     .run = take_over,
     .effect = has_log,
     .host = STAGE_BETA},
    {.name = "store import", .prepare = released, .run = import, .host = STAGE_BETA},
    {.name = "store import of a copy",
     .prepare = copied,
     .run = import_copy,
     .effect = is_copied,
     .local = true},
};
const unsigned command_count = sizeof commands / sizeof commands[0];
