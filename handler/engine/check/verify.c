/* verify.c - an independent checker of a whole store: reads only, believes nothing.
 *
 * It shares the gates of format.c with the code that writes, and nothing else: its own walk of
 * trees (verify_tree.c) and logs (verify_log.c), its own idea of what must be allocated. It proves:
 *
 * VERIFY-1  Superblocks, extent pages and VDI records: at least one copy of each is whole.
 * VERIFY-2  Trees: nodes match their checksums and lie, as their data does, in extents of their
 *     type.
 * VERIFY-3  What a live disk may overwrite in place has no other user: no second place in a tree,
 *     no snapshot, no other disk. A common block (share.c) is common to all its users.
 * VERIFY-4  Logs are chains.
 * VERIFY-5  What retained snapshots are opened through is whole.
 * VERIFY-6  What is in use is allocated. What is allocated and not in use is counted by extent,
 *     apart from what deleted disks still have: space to be collected, nothing lost.
 * VERIFY-7  A record counts its blocks, and those whose checksums are known, as its tree has them.
 *
 * Disks may be open, here or elsewhere, and move on while they are read. Each is read into marks
 * of its own; they and what was found count only if its record is the same afterwards, else it is
 * read again (PLX_VERIFY_TRIES times). Bitmaps are read last: a record flips after its blocks'
 * bits are durable, so they cover it, unless it has moved on since. Whatever does not fit between
 * two disks, or between a disk and a bitmap, is only a suspect at first: in a second look all who
 * have the block are found, and it counts if none of their records has changed since.
 *
 * Synchronous; runs the loop while it reads or, to keep to the rate, waits. Memory: five bits per
 * block of the extents in use, and as much for the disk being read.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/check/verify.h"

/* ---- Reading ---- */

static void report_progress(struct plx_verify *v)
{
    const struct plx_watch *watch = &v->options->watch;

    if (watch->progress)
        watch->progress(watch->context,
                        v->total_bytes ? plx_min_u64(v->result.bytes, v->total_bytes)
                                       : v->result.bytes,
                        v->total_bytes);
}

int plx_verify_read(struct plx_verify *v, enum plx_io_kind kind, uint64_t addr, void *buffer,
                    size_t bytes)
{
    const struct plx_turns turns = {.rate = v->options->rate,
                                    .interrupted = v->options->watch.interrupted,
                                    .context = v->options->watch.context};

    if (v->error)
        return v->error;
    v->result.bytes += bytes;
    if (!plx_store_take_turns(v->store, &turns, v->begun_ns, v->result.bytes))
        return v->error = PLX_ERR_BUSY;
    report_progress(v);
    return plx_store_read_sync(v->store, kind, addr, buffer, bytes);
}

/* ---- Findings ---- */

static void tell(struct plx_verify *v, const struct plx_finding *finding)
{
    v->result.errors += finding->severity == PLX_FINDING_ERROR;
    if (v->options->finding)
        v->options->finding(v->options->context, finding);
}

static void locate(const struct plx_verify *v, uint64_t addr, struct plx_finding *finding)
{
    struct plx_place place;

    if (!plx_store_place(v->store, addr, &place))
        return;
    finding->addr = addr;
    finding->volume = v->store->info.volume[place.volume].name;
    finding->volume_block = place.block;
}

static void keep(struct plx_verify *v, const struct plx_finding *finding)
{
    struct plx_finding *kept = &v->kept[v->kept_count];

    if (v->kept_count == PLX_VERIFY_KEPT)
        return;
    *kept = *finding;
    kept->text = strdup(finding->text);
    kept->vdi = NULL; /* the record's, when it is told */
    kept->id = NULL;
    if (kept->text)
        v->kept_count++;
}

/* The attempt's findings, and how many there were. */
void plx_verify_drop_kept(struct plx_verify *v)
{
    while (v->kept_count)
        free((void *)(uintptr_t)v->kept[--v->kept_count].text);
    v->attempt_errors = 0;
}

void plx_verify_tell_kept(struct plx_verify *v)
{
    uint64_t untold = v->attempt_errors;

    for (size_t i = 0; i < v->kept_count; i++) {
        v->kept[i].vdi = v->record->name;
        v->kept[i].id = &v->record->id;
        tell(v, &v->kept[i]);
        untold -= v->kept[i].severity == PLX_FINDING_ERROR;
    }
    if (untold)
        plx_verify_find(v, PLX_FINDING_ERROR, "more", 0, PLX_NO_VBLOCK,
                        "virtual disk %s: %llu further finding%s", v->record->name,
                        (unsigned long long)untold, plx_plural(untold));
    plx_verify_drop_kept(v);
}

void plx_verify_find(struct plx_verify *v, enum plx_finding_severity severity, const char *kind,
                     uint64_t addr, uint64_t vblock, const char *format, ...)
{
    struct plx_finding finding = {.severity = severity, .kind = kind, .vblock = vblock};
    char text[1024];
    size_t used;
    va_list args;

    addr = plx_addr_block(addr);
    if (v->error ||
        (v->mode == PLX_VERIFY_CONTENTS ? strcmp(kind, "data") != 0 : v->mode != PLX_VERIFY_LIVE))
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text - 400, format, args);
    va_end(args);
    if (addr)
        locate(v, addr, &finding);
    used = strlen(text);
    if (finding.volume)
        snprintf(text + used, sizeof text - used, " (store block %llu: block %llu of %s)",
                 (unsigned long long)addr, (unsigned long long)finding.volume_block,
                 finding.volume);
    finding.text = text;
    finding.vdi = v->record ? v->record->name : NULL;
    finding.id = v->record ? &v->record->id : NULL;
    v->attempt_errors += severity == PLX_FINDING_ERROR;
    if (v->attempting)
        keep(v, &finding);
    else
        tell(v, &finding);
}

/* ---- The whole ---- */

static void check_all(struct plx_verify *v)
{
    struct plx_slot_scan scan = {0};

    v->begun_ns = v->store->env->monotonic_ns(v->store->env);
    plx_verify_superblocks(v);
    for (uint64_t number = 0; number < v->extents && !v->error; number++)
        if (v->types[number] != PLX_EXTENT_SYSTEM)
            plx_verify_read_extent(v, number, NULL);
    v->total_bytes += v->result.bytes * 2;
    for (uint32_t slot = 0; !v->error && plx_vdi_next_slot(v->store, &scan, &slot); slot++)
        if (!v->options->leave_out || !v->options->leave_out(v->options->context, slot))
            plx_verify_vdi(v, slot);
    plx_verify_walk_deleted(v);
    plx_verify_bitmaps(v);
    v->result.bytes = plx_max_u64(v->result.bytes, 1);
    v->total_bytes = v->result.bytes;
    report_progress(v);
}

static bool marks_init(const struct plx_verify *v, struct plx_marks *marks)
{
    marks->count = v->extents;
    marks->extents = calloc(v->extents, sizeof *marks->extents);
    return marks->extents != NULL;
}

static void marks_done(struct plx_verify *v, struct plx_marks *marks)
{
    if (marks->extents)
        plx_verify_clear_marks(v, marks);
    free(marks->extents);
}

static bool verify_init(struct plx_verify *v)
{
    bool ready = marks_init(v, &v->marks);

    ready = marks_init(v, &v->own) && ready;
    ready = marks_init(v, &v->deleted) && ready;
    v->types = calloc(v->extents, 1);
    v->owners = calloc(v->extents, sizeof *v->owners);
    v->unguarded = calloc(v->extents, sizeof *v->unguarded);
    v->block = malloc(PLX_BLOCK_SIZE);
    v->pages = malloc(2 * PLX_BLOCK_SIZE);
    v->nodes = malloc(2 * PLX_LEVELS_MAX * PLX_BLOCK_SIZE);
    v->segment = malloc(plx_log_segment_bytes(v->store));
    v->data = malloc(PLX_VERIFY_DATA * PLX_BLOCK_SIZE);
    v->expected = calloc(PLX_VERIFY_DATA, sizeof *v->expected);
    v->kept = calloc(PLX_VERIFY_KEPT, sizeof *v->kept);
    v->suspects = calloc(PLX_VERIFY_SUSPECTS, sizeof *v->suspects);
    return ready && v->types && v->owners && v->unguarded && v->block && v->pages && v->nodes &&
           v->segment && v->data && v->expected && v->kept && v->suspects;
}

static void verify_done(struct plx_verify *v)
{
    plx_verify_drop_kept(v);
    marks_done(v, &v->marks);
    marks_done(v, &v->own);
    marks_done(v, &v->deleted);
    free(v->types);
    free(v->owners);
    free(v->unguarded);
    free(v->block);
    free(v->pages);
    free(v->nodes);
    free(v->segment);
    free(v->data);
    free(v->expected);
    free(v->kept);
    free(v->suspects);
    free(v->uses);
}

int plx_store_check(struct plx_store *store, const struct plx_check_options *options,
                    struct plx_check_result *ret_result, struct plx_fault *fault)
{
    struct plx_verify v = {.store = store, .options = options, .extents = store->info.extents};
    int error = 0;

    if (verify_init(&v))
        check_all(&v);
    else
        v.error = PLX_ERR_NOMEM;
    *ret_result = v.result;
    if (v.error)
        error = plx_fault_set(fault, v.error,
                              v.error == PLX_ERR_NOMEM ? "out of memory"
                                                       : "interrupted; not everything was checked");
    verify_done(&v);
    return error;
}
