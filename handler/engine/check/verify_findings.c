/* verify_findings.c - what the checker reads, and what it reports. See verify.h.
 *
 * Loop: the store's. Crash story: this file only reads.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/check/verify.h"

void plx_verify_report_progress(struct plx_verify *v)
{
    const struct plx_watch *watch = &v->options->watch;
    uint64_t done = v->done_bytes;

    if (!watch->progress)
        return;
    if (v->total_bytes) /* an open disk may have more by now, and nobody reads what is leaked */
        done = v->ended ? v->total_bytes : plx_min_u64(done, v->total_bytes - 1);
    watch->progress(watch->context, done, v->total_bytes);
}

/* VERIFY-8: whether the block was read before. Without memory it counts as read. */
static bool first_read(struct plx_verify *v, uint64_t addr)
{
    uint64_t blocks = v->store->info.extent_blocks, extent = addr / blocks, at = addr % blocks;
    bool first;

    if (extent >= v->extents)
        return false;
    if (!v->read[extent])
        v->read[extent] = calloc(plx_div_up(blocks, 64), sizeof(uint64_t));
    if (!v->read[extent])
        return false;
    first = !(v->read[extent][at / 64] >> at % 64 & 1);
    v->read[extent][at / 64] |= 1ull << at % 64;
    return first;
}

static void advance(struct plx_verify *v, enum plx_io_kind kind, uint64_t addr, size_t bytes)
{
    if (kind == PLX_KIND_ADMIN)
        v->done_bytes += bytes;
    else if (v->options->watch.progress)
        for (uint64_t i = 0; i < bytes / PLX_BLOCK_SIZE; i++)
            v->done_bytes += first_read(v, plx_addr_block(addr) + i) ? PLX_BLOCK_SIZE : 0;
    plx_verify_report_progress(v);
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
    advance(v, kind, addr, bytes);
    return plx_store_read_sync(v->store, kind, addr, buffer, bytes);
}

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
    struct plx_finding finding = {
        .severity = severity, .kind = kind, .vblock = vblock, .blocks = v->blocks, .also = v->also};
    char text[1024];
    size_t used;
    va_list args;

    addr = plx_addr_block(addr);
    if (v->error || v->mode != PLX_VERIFY_LIVE)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text - 400, format, args);
    va_end(args);
    if (addr)
        locate(v, addr, &finding);
    used = strlen(text);
    if (finding.volume && v->blocks > 1)
        snprintf(text + used, sizeof text - used,
                 " (store blocks %llu to %llu: blocks %llu to %llu of %s)",
                 (unsigned long long)addr, (unsigned long long)(addr + v->blocks - 1),
                 (unsigned long long)finding.volume_block,
                 (unsigned long long)(finding.volume_block + v->blocks - 1), finding.volume);
    else if (finding.volume)
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

void plx_verify_name(const struct plx_verify *v, struct plx_vdi_record *record)
{
    if (v->options->name)
        v->options->name(v->options->context, &record->id, record->name);
}

bool plx_finding_leads_to_blocks(const struct plx_finding *finding)
{
    static const char *const kinds[] = {"node", "log", "keyframe", "address"};

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(finding->kind, kinds[i]) == 0)
            return true;
    return false;
}
