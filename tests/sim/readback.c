/* readback.c - everything of a simulated world read and compared; see parts.h.
 *
 * SIM_READBACK-1  What is read first after a death sticks: the oracle and the views learn it. Once
 *     a flush has dropped writes, what was in doubt stays so until the power is cut.
 * SIM_READBACK-2  A list tells what the log holds, and the log of a disk that stopped, or whose
 *     host died, may end with what was never acknowledged and is not durable. Until recovery has
 *     written that again, a list neither makes it known nor lets anything go; but all that was
 *     acknowledged is in it, and nothing that nobody asked for.
 */
#include <stdio.h>
#include <string.h>

#include "sim/parts.h"

#define CHUNK_SECTORS 1024u

bool plx_sim_sticks(const struct plx_world *w)
{
    return !w->result.failed && !plx_simpower_dropped(&w->power);
}

void plx_sim_check_sectors(struct plx_world *w, const struct plx_view *view, uint64_t first,
                           uint64_t count, const uint8_t *bytes, const char *what, uint32_t slot,
                           uint64_t seq)
{
    for (uint64_t s = first; s < first + count && !w->result.failed; s++, bytes += PLX_SECTOR) {
        uint64_t id;

        w->result.sectors_checked++;
        if (!plx_sector_id(bytes, s, &id))
            plx_sim_fail(w,
                         "%s of VDI %u@%llu, sector %llu: bytes that nobody wrote there (like id "
                         "%llu)",
                         what, slot, (unsigned long long)seq, (unsigned long long)s,
                         (unsigned long long)id);
        else if (s < view->first + view->sectors && !plx_view_allows(view, s, id))
            plx_sim_fail(w, "%s of VDI %u@%llu, sector %llu: write %llu, but %llu would be right",
                         what, slot, (unsigned long long)seq, (unsigned long long)s,
                         (unsigned long long)id, (unsigned long long)plx_view_any(view, s));
        else if (s >= view->first + view->sectors && id)
            plx_sim_fail(w, "%s of VDI %u@%llu, sector %llu: write %llu beyond its end", what, slot,
                         (unsigned long long)seq, (unsigned long long)s, (unsigned long long)id);
    }
}

/* Into the scratch buffer; false: nothing was read, and why is dealt with. */
static bool read_at(struct plx_world *w, struct plx_sim_host *host, struct plx_vdi *vdi,
                    uint32_t slot, uint64_t first, uint64_t count, const char *what)
{
    struct iovec iov = {w->scratch, count * PLX_SECTOR};
    struct plx_request request = {.op = PLX_READ,
                                  .offset = first * PLX_SECTOR,
                                  .length = count * PLX_SECTOR,
                                  .iov = &iov,
                                  .iovcnt = 1};
    int error = plx_vdi_run(vdi, &request);

    if (w->power.off || host->dead)
        return false;
    if (error && !plx_sim_excused(w, host, error))
        plx_sim_fail(w, "%s: read of VDI %u at sector %llu: %s", what, slot,
                     (unsigned long long)first, request.fault.text);
    return !error;
}

static void verify_still(struct plx_world *w, struct plx_sim_disk *disk, bool durable,
                         const char *what)
{
    uint64_t sectors = disk->size / PLX_SECTOR, count;
    enum plx_settled how = plx_simpower_dropped(&w->power) ? PLX_SETTLED_FLEETING
                           : durable                       ? PLX_SETTLED_DURABLE
                                                           : PLX_SETTLED_UNFLUSHED;

    PLX_SIM_TRACE(w, "verify %u (%s)", disk->slot, what);
    for (uint64_t at = 0; at < sectors && !w->result.failed; at += count) {
        count = 8 * (1 + plx_sim_below(w, CHUNK_SECTORS / 8));
        count = count > sectors - at ? sectors - at : count;
        if (!read_at(w, disk->host, disk->vdi, disk->slot, at, count, what))
            return;
        for (uint64_t s = 0; s < count && !w->result.failed; s++) {
            uint64_t id;

            w->result.sectors_checked++;
            if (!plx_sector_id(w->scratch + s * PLX_SECTOR, at + s, &id)) {
                plx_sim_fail(w, "%s: VDI %u, sector %llu: bytes that nobody wrote there (id %llu)",
                             what, disk->slot, (unsigned long long)(at + s),
                             (unsigned long long)id);
            } else if (!plx_oracle_settle(disk->oracle, at + s, id, how)) { /* SIM_READBACK-1 */
                struct plx_view *view = plx_oracle_view_open(disk->oracle, at + s, 1);

                plx_sim_fail(w, "%s: VDI %u, sector %llu: write %llu, but %llu would be right",
                             what, disk->slot, (unsigned long long)(at + s), (unsigned long long)id,
                             (unsigned long long)plx_view_any(view, at + s));
                plx_oracle_view_close(disk->oracle, view);
                plx_view_free(view);
            }
        }
    }
}

void plx_sim_verify_live(struct plx_world *w, struct plx_sim_disk *disk, bool durable,
                         const char *what)
{
    bool was_still = disk->still;

    disk->still = true;
    plx_sim_drain_disk(w, disk);
    /* Of a disk that stopped nothing is settled by reading: recovery may find what failed. */
    if (!plx_sim_interrupted(w) && disk->vdi && !plx_vdi_health(disk->vdi, NULL))
        verify_still(w, disk, durable, what);
    disk->still = was_still;
}

/* ---- Instants ---- */

struct plx_sim_snapshot *plx_sim_snapshot_pick(struct plx_world *w, struct plx_sim_disk *disk)
{
    struct plx_sim_snapshot *snapshot;

    if (!disk->snapshot_count)
        return NULL;
    snapshot = &disk->snapshots[plx_sim_below(w, disk->snapshot_count)];
    return plx_sim_snapshot_kept(disk, snapshot) ? snapshot : NULL;
}

struct plx_sim_snapshot *plx_sim_snapshot_pick_drained(struct plx_world *w,
                                                       struct plx_sim_disk *disk)
{
    uint64_t last = plx_sim_ring_drain(w, disk);
    struct plx_sim_snapshot *snapshot = plx_sim_snapshot_pick(w, disk);

    return snapshot && snapshot->seq <= last ? snapshot : NULL;
}

/* Its own host's, or any: an instant needs no lock. */
static struct plx_sim_host *host_for(struct plx_world *w, const struct plx_sim_disk *disk)
{
    return disk->host && !disk->host->dead ? disk->host : plx_sim_live_host(w);
}

static struct plx_vdi *open_instant(struct plx_world *w, struct plx_sim_host *host,
                                    struct plx_sim_disk *disk,
                                    const struct plx_sim_snapshot *snapshot)
{
    struct plx_fault fault = {0};
    struct plx_vdi_info info;
    struct plx_vdi *vdi;
    uint64_t seq = snapshot->seq;
    int error = plx_snapshot_open(host->store, disk->slot, seq, &vdi, &fault);

    if (error) {
        if (!plx_sim_excused_from(w, host, snapshot, error))
            plx_sim_fail(w, "VDI %u@%llu does not open: %s", disk->slot, (unsigned long long)seq,
                         fault.text);
        return NULL;
    }
    plx_vdi_get_info(vdi, &info);
    if (info.size_bytes < snapshot->size_min || info.size_bytes > snapshot->size_max)
        plx_sim_fail(w, "VDI %u@%llu has %llu bytes, not %llu", disk->slot, (unsigned long long)seq,
                     (unsigned long long)info.size_bytes, (unsigned long long)snapshot->size_min);
    return vdi;
}

void plx_sim_verify_snapshot(struct plx_world *w, struct plx_sim_disk *disk,
                             struct plx_sim_snapshot *snapshot)
{
    struct plx_sim_host *host = host_for(w, disk);
    uint64_t seq = snapshot->seq, sectors, count;
    struct plx_vdi_info info;
    struct plx_vdi *vdi;

    PLX_SIM_TRACE(w, "verify %u@%llu", disk->slot, (unsigned long long)seq);
    vdi = host ? open_instant(w, host, disk, snapshot) : NULL;
    if (!vdi)
        return;
    plx_vdi_get_info(vdi, &info);
    sectors = info.size_bytes / PLX_SECTOR;
    for (uint64_t at = 0; at < sectors && !w->result.failed; at += count) {
        count = 8 * (1 + plx_sim_below(w, CHUNK_SECTORS / 8));
        count = count > sectors - at ? sectors - at : count;
        if (!read_at(w, host, vdi, disk->slot, at, count, "whole snapshot"))
            break;
        plx_sim_check_sectors(w, snapshot->view, at, count, w->scratch, "whole snapshot",
                              disk->slot, seq);
        for (uint64_t s = 0; s < count && plx_sim_sticks(w); s++) { /* SIM_MODEL-1 */
            uint64_t id;

            if (at + s < snapshot->view->sectors &&
                plx_sector_id(w->scratch + s * PLX_SECTOR, at + s, &id))
                plx_view_pin(&snapshot->view, at + s, id);
        }
    }
    plx_vdi_abandon(vdi);
}

struct runs {
    struct plx_world *world;
    const struct plx_view *view;
    uint32_t slot;
    uint64_t expected;
};

static bool runs_visit(void *context, uint64_t offset, uint64_t length, bool mapped)
{
    struct runs *runs = context;

    if (offset != runs->expected)
        plx_sim_fail(runs->world, "map runs of VDI %u: a gap before %llu", runs->slot,
                     (unsigned long long)offset);
    runs->expected = offset + length;
    for (uint64_t s = offset / PLX_SECTOR; !mapped && s < (offset + length) / PLX_SECTOR; s++)
        if (s < runs->view->sectors && !plx_view_allows(runs->view, s, 0))
            plx_sim_fail(runs->world, "map runs of VDI %u: sector %llu is unmapped but holds %llu",
                         runs->slot, (unsigned long long)s,
                         (unsigned long long)plx_view_any(runs->view, s));
    return !runs->world->result.failed;
}

void plx_sim_verify_runs(struct plx_world *w, struct plx_sim_disk *disk,
                         struct plx_sim_snapshot *snapshot)
{
    struct runs runs = {.world = w, .view = snapshot->view, .slot = disk->slot};
    struct plx_sim_host *host = host_for(w, disk);
    struct plx_fault fault = {0};
    struct plx_vdi *vdi = host ? open_instant(w, host, disk, snapshot) : NULL;
    struct plx_vdi_info info;
    int error;

    if (!vdi)
        return;
    plx_vdi_get_info(vdi, &info);
    error = plx_vdi_map_runs(vdi, 0, info.size_bytes, runs_visit, &runs, &fault);
    if (error && !plx_sim_excused(w, host, error))
        plx_sim_fail(w, "map runs of VDI %u: %s", disk->slot, fault.text);
    if (!error && !w->result.failed && runs.expected != info.size_bytes)
        plx_sim_fail(w, "map runs of VDI %u end at %llu", disk->slot,
                     (unsigned long long)runs.expected);
    plx_vdi_abandon(vdi);
}

/* ---- Lists ---- */

struct listing {
    uint64_t seqs[PLX_SIM_SNAPSHOTS + 1], times[PLX_SIM_SNAPSHOTS + 1];
    unsigned count;
};

static bool list_visit(void *context, const struct plx_snapshot_info *info)
{
    struct listing *listing = context;

    listing->seqs[listing->count] = info->seq;
    listing->times[listing->count++] = info->time_ns;
    return listing->count <= PLX_SIM_SNAPSHOTS;
}

/* One that nobody was told of: that which was to have the number, or the first of unknown number.
 */
static struct plx_sim_snapshot *unknown_for(struct plx_sim_disk *disk, uint64_t seq)
{
    struct plx_sim_snapshot *first = NULL;

    for (unsigned i = disk->snapshot_count; i-- > 0;) {
        struct plx_sim_snapshot *snapshot = &disk->snapshots[i];

        if (!snapshot->acked && snapshot->expected_seq == seq)
            return snapshot;
        if (!snapshot->acked && !snapshot->expected_seq && !snapshot->never)
            first = snapshot;
    }
    return first;
}

/* SIM_READBACK-2 */
static bool list_stays(const struct plx_sim_disk *disk)
{
    return disk->vdi ? !disk->host->dead && !plx_vdi_health(disk->vdi, NULL) : !disk->holder;
}

/* Numbers grow, and each is one that was taken; those that were in flight at a death
 * get their number now. */
static void name_listed(struct plx_world *w, struct plx_sim_disk *disk,
                        const struct listing *listing, bool stays)
{
    for (unsigned k = 0; k < listing->count; k++) {
        struct plx_sim_snapshot *unknown;

        if (k && listing->seqs[k] <= listing->seqs[k - 1])
            plx_sim_fail(w, "VDI %u: snapshot %llu is listed after %llu", disk->slot,
                         (unsigned long long)listing->seqs[k],
                         (unsigned long long)listing->seqs[k - 1]);
        if (k && listing->times[k] <= listing->times[k - 1])
            plx_sim_fail(w, "VDI %u: snapshot %llu is no later than the one before", disk->slot,
                         (unsigned long long)listing->seqs[k]);
        if (disk->in_flight || disk->automatic || plx_sim_snapshot_find(disk, listing->seqs[k]))
            continue;
        unknown = unknown_for(disk, listing->seqs[k]);
        if (!unknown) {
            plx_sim_fail(w, "VDI %u@%llu is listed but was never taken", disk->slot,
                         (unsigned long long)listing->seqs[k]);
            return;
        }
        if (!stays)
            continue;
        plx_oracle_view_close(disk->oracle, unknown->view);
        if (plx_simpower_dropped(&w->power))
            plx_oracle_view_widen(disk->oracle, unknown->view);
        plx_sim_snapshot_taken(disk, unknown, listing->seqs[k], listing->times[k]);
        unknown->going = false;
    }
}

static void forget_unlisted(struct plx_sim_disk *disk)
{
    for (unsigned i = disk->snapshot_count; i-- > 0;)
        if (!plx_sim_snapshot_kept(disk, &disk->snapshots[i])) {
            if (!disk->snapshots[i].acked)
                plx_oracle_view_close(disk->oracle, disk->snapshots[i].view);
            plx_view_free(disk->snapshots[i].view);
            disk->snapshots[i] = disk->snapshots[--disk->snapshot_count];
        }
}

/* last: of those that the store has, if that is known; all that have a greater number are on a ring
 * perhaps. */
static void verify_list(struct plx_world *w, struct plx_sim_host *host, struct plx_sim_disk *disk,
                        uint64_t last)
{
    struct listing listing = {0};
    struct plx_vdi_info info = {0};
    struct plx_fault fault = {0};
    uint64_t before = 0; /* what is acknowledged from now on may be missing */
    bool stays;
    int error;

    for (unsigned i = 0; i < disk->snapshot_count; i++)
        if (plx_sim_snapshot_kept(disk, &disk->snapshots[i]) && disk->snapshots[i].seq > before &&
            disk->snapshots[i].seq <= last)
            before = disk->snapshots[i].seq;
    error = plx_vdi_read_info(host->store, disk->slot, &info, &fault);
    if (!error)
        error = plx_snapshot_list(host->store, disk->slot, 0, list_visit, &listing, &fault);
    if (error) {
        if (!plx_sim_excused(w, host, error))
            plx_sim_fail(w, "snapshots of VDI %u cannot be listed: %s", disk->slot, fault.text);
        return;
    }
    stays = list_stays(disk);
    plx_sim_settle_gone(w, disk, listing.seqs, listing.count, before, info.forgotten, stays);
    for (unsigned i = 0; i < disk->snapshot_count; i++) {
        struct plx_sim_snapshot *snapshot = &disk->snapshots[i];

        for (unsigned k = 0; plx_sim_snapshot_kept(disk, snapshot) && k < listing.count; k++) {
            if (listing.seqs[k] != snapshot->seq)
                continue;
            if (!snapshot->time_ns)
                snapshot->time_ns = listing.times[k];
            if (listing.times[k] != snapshot->time_ns)
                plx_sim_fail(w, "VDI %u@%llu is listed with another time", disk->slot,
                             (unsigned long long)snapshot->seq);
        }
    }
    name_listed(w, disk, &listing, stays);
    /* What a ring still has may be listed later, though nobody was told that it was taken. */
    if (stays && last == UINT64_MAX && !disk->in_flight && !disk->automatic)
        forget_unlisted(disk);
}

struct label_listing {
    struct plx_sim_label labels[PLX_SIM_LABELS + PLX_SIM_SNAPSHOTS]; /* a rewind sets one, too */
    unsigned count;
};

static void label_visit(void *context, const char *label, uint64_t seq, bool removed)
{
    struct label_listing *listing = context;

    if (listing->count < PLX_SIM_LABELS + PLX_SIM_SNAPSHOTS) {
        snprintf(listing->labels[listing->count].name, sizeof listing->labels[0].name, "%s", label);
        listing->labels[listing->count].seq = seq;
        listing->labels[listing->count++].removed = removed;
    }
}

/* Acknowledged labels, in order, are a subsequence of those listed. */
static void verify_labels(struct plx_world *w, struct plx_sim_host *host, struct plx_sim_disk *disk)
{
    struct label_listing listing = {0};
    struct plx_fault fault = {0};
    bool before[PLX_SIM_LABELS] = {0};
    unsigned at = 0;
    int error;

    for (unsigned i = 0; i < disk->label_count; i++)
        before[i] = disk->labels[i].acked && !plx_sim_number_gone(disk, disk->labels[i].seq);
    error = plx_label_list(host->store, disk->slot, 0, label_visit, &listing, &fault);
    if (error) {
        if (!plx_sim_excused(w, host, error))
            plx_sim_fail(w, "labels of VDI %u cannot be listed: %s", disk->slot, fault.text);
        return;
    }
    for (unsigned i = 0; i < PLX_SIM_LABELS && i < disk->label_count; i++) {
        const struct plx_sim_label *label = &disk->labels[i];

        if (!before[i])
            continue;
        while (at < listing.count && (strcmp(listing.labels[at].name, label->name) ||
                                      listing.labels[at].seq != label->seq ||
                                      listing.labels[at].removed != label->removed))
            at++;
        if (at++ >= listing.count)
            plx_sim_fail(w, "VDI %u: label %s of %llu is not listed", disk->slot, label->name,
                         (unsigned long long)label->seq);
    }
}

void plx_sim_verify_lists(struct plx_world *w, struct plx_sim_disk *disk)
{
    struct plx_sim_host *host = host_for(w, disk);
    uint64_t last = plx_sim_ring_drain(w, disk);

    if (host && !host->dead)
        verify_list(w, host, disk, last);
    if (host && !plx_sim_interrupted(w) && !host->dead)
        verify_labels(w, host, disk);
}

/* ---- The whole store ---- */

static void check_finding(void *context, const struct plx_finding *finding)
{
    struct plx_world *w = context;

    PLX_SIM_TRACE(w, "check: %s", finding->text);
    if (finding->severity == PLX_FINDING_ERROR || strstr(finding->text, "its record says that"))
        plx_sim_fail(w, "check: %s", finding->text);
}

/* Only deaths, errors, deletions, common blocks, and blocks that died while another host held their
 * extent may leave blocks behind that nothing names. (Nodes: a snapshot taken while a key frame is
 * being announced leaves the old one's.) */
static bool leaks_explained(const struct plx_world *w)
{
    const struct plx_world_options *o = &w->options;

    for (unsigned i = 0; i < o->vdis; i++)
        if (w->vdis[i].thinned) /* what is being let go may end up nowhere */
            return true;
    return !w->ended || o->hosts > 1 || w->deletions || w->result.crashes || w->result.kills ||
           plx_sim_faulty(w) || o->lies || o->tight || o->share_weight;
}

static void check_leak(void *context, const struct plx_leak *leak)
{
    struct plx_world *w = context;

    if (leak->other && leak->type == PLX_EXTENT_DATA && !leaks_explained(w))
        plx_sim_fail(w, "check: %llu blocks of extent %llu are lost",
                     (unsigned long long)leak->other, (unsigned long long)leak->extent);
}

void plx_sim_check_store(struct plx_world *w)
{
    struct plx_check_options options = {
        .data = true, .finding = check_finding, .leak = check_leak, .context = w};
    struct plx_check_result result = {0};
    struct plx_fault fault = {0};
    struct plx_sim_host *host = plx_sim_live_host(w);
    int error = plx_store_check(host->store, &options, &result, &fault);

    if (error || result.errors)
        plx_sim_fail(w, "check: %s, %llu errors", error ? fault.text : "",
                     (unsigned long long)result.errors);
}

static void verify_instants(struct plx_world *w, unsigned snapshots)
{
    for (unsigned i = 0; i < w->options.vdis && !plx_sim_interrupted(w); i++) {
        struct plx_sim_disk *disk = &w->vdis[i];

        if (disk->state != PLX_SIM_LIVE)
            continue;
        plx_sim_verify_lists(w, disk);
        for (unsigned s = 0; s < disk->snapshot_count && !plx_sim_interrupted(w); s++)
            if (plx_sim_snapshot_kept(disk, &disk->snapshots[s]) &&
                plx_sim_below(w, disk->snapshot_count) < snapshots &&
                plx_sim_ring_drain(w, disk) >= disk->snapshots[s].seq) /* it may be a new one */
                plx_sim_verify_snapshot(w, disk, &disk->snapshots[s]);
    }
}

static void verify_read_only(struct plx_world *w, struct plx_sim_disk *disk)
{
    struct plx_sim_host *host = plx_sim_live_host(w);
    struct plx_fault fault = {0};

    if (plx_snapshot_open(host->store, disk->slot, 0, &disk->vdi, &fault)) {
        plx_sim_fail(w, "VDI %u does not open read-only: %s", disk->slot, fault.text);
        return;
    }
    disk->host = host;
    plx_sim_verify_live(w, disk, false, "read-only");
    plx_vdi_abandon(disk->vdi);
    disk->vdi = NULL;
    disk->host = NULL;
}

static void trace_leak(void *context, const struct plx_leak *leak)
{
    struct plx_world *w = context;

    PLX_SIM_TRACE(w, "left in extent %llu of type %d: %llu blocks, %llu of deleted disks",
                  (unsigned long long)leak->extent, (int)leak->type,
                  (unsigned long long)leak->other, (unsigned long long)leak->deleted);
}

/* Not one that found no room to close or to be recovered in: then nothing is collected. */
static bool all_closed(const struct plx_world *w)
{
    for (unsigned i = 0; i < w->options.vdis; i++)
        if (w->vdis[i].state == PLX_SIM_LIVE && w->vdis[i].holder)
            return false;
    return true;
}

/* Everything that is used is still there (SIM_COLLECT-1), and nothing is allocated that nobody uses
 * (SIM_COLLECT-2). */
static void collect_at_the_end(struct plx_world *w, unsigned snapshots)
{
    struct plx_check_options options = {
        .data = true, .finding = check_finding, .leak = trace_leak, .context = w};
    struct plx_check_result result = {0};
    struct plx_sim_host *host = &w->hosts[0];
    struct plx_fault fault = {0};
    int error;

    plx_sim_host_drop(w, host);
    if (plx_sim_host_start(w, host, false))
        return;
    plx_sim_collect(w, host, NULL);
    verify_instants(w, snapshots);
    if (w->result.failed)
        return;
    error = plx_store_check(host->store, &options, &result, &fault);
    if (error || result.errors)
        plx_sim_fail(w, "check after the collection: %s, %llu errors", error ? fault.text : "",
                     (unsigned long long)result.errors);
    if (result.leaked_blocks && !plx_sim_faulty(w) && !w->options.lies && all_closed(w))
        plx_sim_fail(w, "%llu blocks are left after the collection",
                     (unsigned long long)result.leaked_blocks);
}

void plx_sim_finish(struct plx_world *w, unsigned snapshots)
{
    plx_sim_drain(w);
    plx_sim_ring_make_room(w);
    for (unsigned i = 0; i < w->options.vdis && !w->result.failed; i++)
        if (w->vdis[i].vdi)
            plx_sim_verify_live(w, &w->vdis[i], false, "at the end");
    verify_instants(w, snapshots);
    for (unsigned i = 0; i < PLX_SIM_READERS; i++)
        plx_sim_reader_close(w, &w->readers[i]);
    w->rings_off = true;
    w->ended = plx_sim_stop_all(w);
    for (unsigned i = 0; i < PLX_SIM_HOSTS; i++)
        plx_sim_host_drop(w, &w->hosts[i]);
    if (w->result.failed || plx_sim_host_start(w, &w->hosts[0], true))
        return;
    verify_instants(w, snapshots);
    for (unsigned i = 0; i < w->options.vdis && !w->result.failed; i++)
        if (w->vdis[i].state == PLX_SIM_LIVE && !w->vdis[i].holder)
            verify_read_only(w, &w->vdis[i]);
    if (!w->result.failed)
        plx_sim_check_store(w);
    if (!w->result.failed && w->ended && (!w->is_fork || plx_sim_chance(w, 25)))
        collect_at_the_end(w, snapshots);
}
