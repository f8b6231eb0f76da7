/* ring_check.c - see ring_check.h.
 *
 * RING_CHECK-1  Each batch that a disk's record claims is read whole, with its hash, from each
 *     member (scan.c). So damage to a write that the store lacks is found before the write is
 *     needed.
 * RING_CHECK-2  A disk whose record names another ring than this host's is told of, whether this
 *     host has a ring or not: it can be used only there.
 * RING_CHECK-3  A ring that another process has open changes while it is read, so its records are
 *     not checked. That is told for each disk that may need them.
 * Threads: the caller's. Crash story: nothing is written here.
 */
#include "attach/ring_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "attach/attach_inside.h"
#include "attach/host_ring.h"

struct checking {
    struct plx_attach *attach;
    void (*found)(void *context, const struct plx_finding *finding);
    void *context;
    struct plx_ring_checked *checked;
};

static void find(struct checking *c, enum plx_finding_severity severity, const char *vdi,
                 const char *format, ...) __attribute__((format(printf, 4, 5)));

static void find(struct checking *c, enum plx_finding_severity severity, const char *vdi,
                 const char *format, ...)
{
    struct plx_finding finding = {
        .severity = severity, .kind = "ring", .vdi = vdi, .vblock = UINT64_MAX};
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    finding.text = text;
    c->found(c->context, &finding);
}

/* ---- The ring itself ---- */

/* What is missing is an error where a disk needs it. */
static void check_missing(struct checking *c, bool mirrored, bool needed, const char *why)
{
    const char *store = c->attach->known.name;

    if (mirrored)
        find(c, needed ? PLX_FINDING_ERROR : PLX_FINDING_INFO, NULL,
             "this host's ring: %.300s; bring it back, or see 'parallax ring repair'", why);
    else if (needed)
        find(c, PLX_FINDING_ERROR, NULL,
             "this host's ring: %.250s; bring it back, or, if it lies elsewhere now, say so by "
             "'parallax ring create %s PATH'; if it is lost for good, 'parallax ring discard "
             "%s/VDI' discards its writes",
             why, store, store);
    else
        find(c, PLX_FINDING_INFO, NULL,
             "this host's ring: %.300s; no virtual disk needs it, and 'parallax ring delete %s "
             "--force' forgets it",
             why, store);
}

static void check_members(struct checking *c, const struct plx_host_ring *ring, bool needed)
{
    const enum plx_finding_severity severity = needed ? PLX_FINDING_ERROR : PLX_FINDING_INFO;
    struct plx_ring_info info;

    for (unsigned i = 0; i < ring->members.count; i++)
        if (ring->members.member[i].problem.code)
            check_missing(c, ring->members.count > 1, needed, ring->members.member[i].problem.text);
    if (!ring->ring) {
        if (ring->problem.code && plx_ring_members_sound(&ring->members))
            find(c, severity, NULL, "this host's ring cannot be read: %.300s", ring->problem.text);
        return;
    }
    plx_ring_get_info(ring->ring, &info);
    if (info.bad_segments)
        find(
            c, PLX_FINDING_INFO, NULL,
            "this host's ring: the headers of %u segments are damaged, so these are not used; once "
            "no virtual disk needs the ring, delete it and make it anew",
            info.bad_segments);
}

/* ---- Its disks ---- */

static void check_disk(struct checking *c, const struct plx_ring_disk *disk)
{
    const char *store = c->attach->known.name;
    char id[PLX_UUID_TEXT];
    const char *name = disk->name;

    plx_uuid_text(&disk->id, id);
    c->checked->disks++;
    if (disk->problem.code) {
        c->checked->untold = true;
        find(c, PLX_FINDING_ERROR, name,
             "virtual disk %.120s: its writes on the ring cannot be used: %.300s; the store may "
             "have them already, which the next opening tells; if it does not, and no better copy "
             "of the ring is left, nor a newer one of the store, 'parallax ring discard %s/%.120s' "
             "discards them",
             *name ? name : id, disk->problem.text, store, *name ? name : id);
        return;
    }
    if (!disk->looked) {
        c->checked->untold |= disk->marked;
        if (disk->marked && c->checked->in_use) /* RING_CHECK-3 */
            find(c, PLX_FINDING_INFO, name,
                 "virtual disk %s: its newest writes may lie on this host's ring, which a handler "
                 "or a command has open, so that they were not checked",
                 name);
        return;
    }
    c->checked->records += disk->look.last + 1 - disk->look.first;
    c->checked->bytes += disk->look.bytes;
    if (disk->marked && disk->look.last >= disk->look.first)
        find(c, PLX_FINDING_INFO, name,
             "virtual disk %s: up to %" PRIu64
             " writes are on this host's ring and not on the store yet",
             name, disk->look.last + 1 - disk->look.first);
    if (disk->look.aside)
        find(c, PLX_FINDING_INFO, name,
             "virtual disk %.120s: %" PRIu64
             " writes on this host's ring were set aside; 'parallax "
             "ring discard %s/%.120s --also-set-aside' erases them",
             *name ? name : id, disk->look.aside, store, *name ? name : id);
}

/* RING_CHECK-2 */
static void check_elsewhere(struct checking *c, const struct plx_uuid *own)
{
    struct plx_slot_scan scan = {0};
    char id[PLX_UUID_TEXT];

    for (uint32_t slot = 0; plx_vdi_next_slot(c->attach->store, &scan, &slot); slot++) {
        struct plx_vdi_info info;

        if (plx_vdi_read_info(c->attach->store, slot, &info, NULL) || info.state != PLX_VDI_LIVE ||
            !plx_ring_is_marked(&info.mark) || plx_uuid_equal(&info.mark.ring, own))
            continue;
        plx_uuid_text(&info.mark.ring, id);
        find(c, PLX_FINDING_INFO, info.name,
             "virtual disk %.120s: its newest writes may lie on ring %s, which this host does not "
             "have; if it lies here, 'parallax ring create %s PATH' with its own paths makes it "
             "known again",
             info.name, id, c->attach->known.name);
    }
}

int plx_ring_check(struct plx_attach *attach,
                   void (*found)(void *context, const struct plx_finding *finding), void *context,
                   struct plx_ring_checked *ret_checked, struct plx_fault *fault)
{
    struct checking c = {attach, found, context, ret_checked};
    struct plx_ring_disks disks = {0};
    struct plx_known_ring known;
    struct plx_host_ring ring;
    struct plx_uuid id = {0};
    int error = plx_known_ring_get(&attach->paths, attach->known.identity, &known, fault);

    *ret_checked = (struct plx_ring_checked){0};
    if (error == PLX_ERR_NOT_FOUND) {
        check_elsewhere(&c, &id);
        return 0;
    }
    if (error)
        return error;
    plx_host_ring_look(&attach->paths, &known, &ring);
    plx_uuid_parse(ring.way.ring, &id);
    ret_checked->in_use = ring.in_use;
    /* RING_CHECK-1 */
    error = plx_ring_disks_look(&id, ring.ring, attach->store, ring.in_use, &disks, fault);
    if (!error) {
        check_members(&c, &ring, disks.marked != 0);
        for (size_t i = 0; i < disks.count; i++)
            check_disk(&c, &disks.disk[i]);
        check_elsewhere(&c, &id);
    }
    plx_ring_disks_done(&disks);
    plx_host_ring_close(&ring);
    plx_known_ring_done(&known);
    return error;
}
