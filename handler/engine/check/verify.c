/* verify.c - plx_store_check(): an independent checker of a whole store, which only reads.
 *
 * It shares with the code that writes only the decoders of format.c. It has its own walk of trees
 * (verify_tree.c), its own reading of logs (verify_log.c), and its own idea of what must be
 * allocated. So a bug in the code that writes does not hide itself. One check, pass by pass:
 *
 *  no  pass            file               what it reads, and what it leaves
 *   1  superblocks     verify_space.c     which extents hold the store's own structures
 *   2  extents         verify_space.c     each extent's header: type, owner
 *   3  live disks      verify_vdi.c       record, log, trees: marks for each block in use; suspects
 *   4  deleted disks   verify_vdi.c       marks for what they still have
 *   5  bitmaps         verify_space.c     bits against marks: leaks; suspects
 *   6  second look     verify_suspects.c  the users of each suspect: findings, or nothing
 *
 * The check proves these rules:
 *
 * VERIFY-1  At least one copy of each superblock, extent page and VDI record is whole. A damaged
 *     copy of a superblock is reported as well.
 * VERIFY-2  Each node of a tree matches its checksum. Nodes lie in metadata extents and data lies
 *     in data extents.
 * VERIFY-3  A block that a live disk may overwrite in place has no other user: no second place in a
 *     tree, no snapshot, no other disk. A common block (share.c) is common to all its users.
 * VERIFY-4  Each log is a chain of batches, from where history begins to its end (VERIFY_LOG-1).
 * VERIFY-5  Each key frame through which a kept snapshot is read is whole (VERIFY_LOG-2).
 * VERIFY-6  Each block in use is allocated. Allocated blocks that are not in use are leaks: they
 *     are counted by extent, those of deleted disks apart. Leaks lose no data, only space.
 * VERIFY-7  A record's counts of mapped blocks and of known checksums are those of its tree.
 *
 * Disks may be open, here or elsewhere, and change while the check reads them. Three measures keep
 * that from causing false findings:
 * - Each disk is read into marks of its own. Its marks and findings count only if its record is
 *   unchanged afterwards; otherwise it is read again, PLX_VERIFY_TRIES times at most.
 * - Bitmaps are read last. A disk makes the bits of its blocks durable before its record names
 *   them, so the bitmaps cover each record that has not changed since.
 * - A block that does not fit between two disks, or between a disk and a bitmap, is only a suspect.
 *   It becomes a finding if none of its users' records has changed since.
 *
 * Memory: six bits for each block of the extents that live disks use, as much for the disk being
 *   read, and as much for the extents that deleted disks use.
 * Loop: the store's. The call is synchronous; it runs the loop while it reads and while it keeps to
 *   its rate.
 * Crash story: this file only reads.
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
    kept->vdi = NULL; /* plx_verify_tell_kept() fills in the record's name and id */
    kept->id = NULL;
    if (kept->text)
        v->kept_count++;
}

/* Forgets the findings of an attempt. */
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

/* ---- The passes ---- */

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
