/* bench_ring.c - disk 0's write-back ring on the bench: its devices fail, or fail to be opened, as
 * the store's do, and lose power with it. See bench.h.
 */
#include <string.h>

#include "engine/ring/ring_inside.h" /* to tell which member was lost */
#include "fault/alloc.h"
#include "fault/bench.h"

#define RING_SEGMENT_BLOCKS 16u
#define RING_SEGMENTS 8u
#define RING_BYTES (PLX_RING_SEGMENTS_AT + RING_SEGMENTS * RING_SEGMENT_BLOCKS * (uint64_t)BLOCK)

static struct plx_device *attach(struct bench *b, unsigned m)
{
    struct plx_device *device;

    fault_alloc_suspend();
    if (!b->ring.disks[m])
        b->ring.disks[m] = plx_simdisk_new(&(struct plx_simdisk_options){.bytes = RING_BYTES,
                                                                         .block_size = 512,
                                                                         .volatile_cache = true,
                                                                         .patience = 20,
                                                                         .seed = 100 + m},
                                           &b->power);
    device = fault_device_attach(b->ring.disks[m], &b->plan);
    fault_alloc_resume();
    return device;
}

static void attach_members(struct bench *b)
{
    for (unsigned m = 0; m < b->ring.members; m++)
        b->ring.devices[m] = attach(b, m);
}

static void detach(struct bench *b)
{
    for (unsigned m = 0; m < PLX_RING_MEMBERS; m++)
        if (b->ring.devices[m])
            b->ring.devices[m]->ops->close(b->ring.devices[m]);
    memset(b->ring.devices, 0, sizeof b->ring.devices);
}

int bench_ring_create(struct bench *b, unsigned members, bool replace)
{
    int error;

    b->ring.members = members;
    attach_members(b);
    error = plx_ring_create(b->ring.devices, members,
                            &(struct plx_ring_create_options){.env = &b->env.env,
                                                              .host_name = "alpha",
                                                              .segment_blocks = RING_SEGMENT_BLOCKS,
                                                              .replace = replace},
                            &b->fault);
    b->ring.made = !error;
    detach(b);
    return error;
}

int bench_ring_open(struct bench *b, bool alone)
{
    int error;

    attach_members(b);
    error = plx_ring_open(b->ring.devices, b->ring.members,
                          &(struct plx_ring_options){.env = &b->env.env, .alone = alone},
                          &b->ring.ring, &b->fault);
    if (!error && (error = plx_ringed_host_new(b->store, b->ring.ring, &b->ring.host)) != 0)
        plx_fault_set(&b->fault, error, "%s", plx_error_text(error));
    if (error)
        bench_ring_close(b);
    return error;
}

/* Disk 0 is closed. */
void bench_ring_close(struct bench *b)
{
    if (b->ring.host)
        plx_ringed_host_free(b->ring.host);
    if (b->ring.ring)
        plx_ring_close(b->ring.ring);
    b->ring.host = NULL;
    b->ring.ring = NULL;
    detach(b);
}

void bench_ring_done(struct bench *b)
{
    for (unsigned m = 0; m < PLX_RING_MEMBERS; m++)
        if (b->ring.disks[m])
            plx_simdisk_free(b->ring.disks[m]);
}

int bench_ring_open_disk(struct bench *b, const struct plx_vdi_open_options *options)
{
    int error =
        plx_ringed_open(b->ring.host, options, &b->disks[0].vdi, &b->ring.ringed, &b->fault);

    if (!error && b->ring.memory)
        plx_ringed_set_memory(b->ring.ringed, b->ring.memory);
    return error;
}

void bench_ring_leave_disk(struct bench *b)
{
    if (b->ring.ringed)
        plx_ringed_close(b->ring.ringed);
    b->ring.ringed = NULL;
}

int bench_ring_on(struct bench *b)
{
    return plx_ringed_on(b->ring.ringed, &b->fault);
}

int bench_ring_off(struct bench *b)
{
    return plx_ringed_off(b->ring.ringed, &b->fault);
}

struct plx_ring_info bench_ring_info(const struct bench *b)
{
    struct plx_ring_info info;

    plx_ring_get_info(b->ring.ring, &info);
    return info;
}

static bool is_survivor(const struct plx_ring *ring, const struct plx_device *device)
{
    for (unsigned i = 0; i < PLX_RING_MEMBERS; i++)
        if (device && ring->members[i].device == device && !ring->members[i].lost)
            return true;
    return false;
}

/* The member that was lost, or was away, comes back; until it is a member. */
int bench_ring_repair(struct bench *b)
{
    unsigned m = is_survivor(b->ring.ring, b->ring.devices[0]) ? 1 : 0;
    int error;

    if (bench_ring_info(b).members == PLX_RING_MEMBERS)
        return 0;
    if (!b->ring.devices[m])
        b->ring.devices[m] = attach(b, m);
    error = plx_ring_resilver(b->ring.ring, b->ring.devices[m], true, &b->fault);
    while (!error && bench_ring_info(b).resilvering)
        if (!plx_store_tick(b->store))
            plx_store_wait(b->store);
    if (!error)
        error = bench_ring_info(b).resilver_error;
    if (error) {
        plx_fault_set(&b->fault, error, "%s", plx_error_text(error));
        return error;
    }
    b->ring.members = PLX_RING_MEMBERS;
    return 0;
}

/* With one member; or with both, if the other one has become one. */
static void open_again(struct bench *b)
{
    int error = bench_ring_open(b, false);

    if (error == PLX_ERR_MISSING && b->ring.members < PLX_RING_MEMBERS) {
        b->ring.members = PLX_RING_MEMBERS;
        error = bench_ring_open(b, false);
    }
    bench_expect(b, error == 0, "opening the ring: %s", b->fault.text);
}

/* A ring that has stopped is opened again. */
void bench_ring_bring_back(struct bench *b)
{
    struct bench_disk *d = &b->disks[0];

    if (!b->ring.made)
        return;
    if (b->ring.ring && plx_ring_sticky(b->ring.ring)) {
        if (d->vdi && b->ring.ringed && plx_vdi_health(d->vdi, NULL)) {
            bench_ring_leave_disk(b);
            plx_vdi_abandon(d->vdi);
            d->vdi = NULL;
        } else if (d->vdi && b->ring.ringed) {
            bench_expect(b, bench_close(b, 0) == 0, "closing: %s", b->fault.text);
        }
        bench_ring_close(b);
    }
    if (!b->ring.ring)
        open_again(b);
}
