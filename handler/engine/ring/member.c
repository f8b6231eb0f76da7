/* member.c - a ring's devices: transfers, superblocks in two slots, and sets: who is a member.
 *
 * MEMBER-1  A slot of a superblock is overwritten only while the newer state, in the other slot, is
 *     durable. A mirror copy of that state proves it. Without a mirror copy, the newer slot is
 *     first written again as it was read, and flushed.
 * MEMBER-2  A member whose write or flush failed is out of the set, and nothing is sent to it any
 *     more. The survivor's superblock gets a new set, and the old set as its ancestor. Only when
 *     that is durable is any record done that the lost member may lack (CHAIN-4).
 * MEMBER-3  Without a survivor the ring has stopped for good (`sticky`).
 * Loop: the ring's.
 * Crash story: before the new set is durable, both members have the same set, and the lost member
 *   has all records that were done or called durable (CHAIN-3). Afterwards the lost member's set is
 *   an ancestor of the survivor's, so that member is set aside when it comes back.
 */
#include <stdio.h>

#include "engine/ring/ring_inside.h"

/* ---- Transfers ---- */

static void xfer_done(struct plx_io *io)
{
    struct plx_ring_xfer *xfer = io->owner;

    xfer->ring->members[xfer->member].under_way--;
    if (io->result) {
        xfer->join->failed |= 1u << xfer->member;
        if (!xfer->join->error)
            xfer->join->error = io->result;
    }
    xfer->join->pending--;
}

static void submit(struct plx_ring *ring, struct plx_ring_xfer *xfer, unsigned member,
                   struct plx_io io, struct plx_ring_join *join)
{
    struct plx_device *device = ring->members[member].device;

    PLX_ASSERT(io.op == PLX_IO_READ || !ring->options.read_only);
    xfer->io = io;
    xfer->io.kind = PLX_KIND_LOG;
    xfer->io.done = xfer_done;
    xfer->io.owner = xfer;
    xfer->ring = ring;
    xfer->join = join;
    xfer->member = member;
    join->pending++;
    ring->members[member].under_way++;
    device->ops->submit(device, &xfer->io);
}

void plx_ring_submit(struct plx_ring *ring, struct plx_ring_xfer *xfer, unsigned member,
                     enum plx_io_op op, uint64_t offset, void *buffer, size_t bytes,
                     struct plx_ring_join *join)
{
    xfer->iov = (struct iovec){buffer, bytes};
    submit(ring, xfer, member,
           (struct plx_io){.op = op,
                           .offset = offset,
                           .bytes = bytes,
                           .iov = &xfer->iov,
                           .iovcnt = op != PLX_IO_FLUSH},
           join);
}

void plx_ring_submit_pieces(struct plx_ring *ring, struct plx_ring_xfer *xfer, unsigned member,
                            uint64_t offset, const struct iovec *pieces, unsigned count,
                            struct plx_ring_join *join)
{
    size_t bytes = 0;

    for (unsigned i = 0; i < count; i++)
        bytes += pieces[i].iov_len;
    submit(ring, xfer, member,
           (struct plx_io){.op = PLX_IO_WRITE,
                           .offset = offset,
                           .bytes = bytes,
                           .iov = pieces,
                           .iovcnt = (int)count},
           join);
}

void plx_ring_poll(struct plx_ring *ring)
{
    for (unsigned m = 0; m < ring->count; m++)
        if (ring->members[m].under_way)
            ring->members[m].device->ops->poll(ring->members[m].device, false);
}

bool plx_ring_kick(struct plx_ring *ring)
{
    bool more = false;

    for (unsigned m = 0; m < ring->count; m++)
        if (ring->members[m].under_way)
            more |= ring->members[m].device->ops->kick(ring->members[m].device);
    return more;
}

void plx_ring_wait(struct plx_ring *ring)
{
    for (unsigned m = 0; m < ring->count; m++)
        if (ring->members[m].under_way &&
            ring->members[m].device->ops->poll(ring->members[m].device, true) > 0)
            return;
}

unsigned plx_ring_under_way(const struct plx_ring *ring)
{
    unsigned count = 0;

    for (unsigned m = 0; m < ring->count; m++)
        count += ring->members[m].under_way;
    return count;
}

/* A turn of a ring that is not open. */
static bool transfer_turn(struct plx_ring *ring)
{
    plx_ring_poll(ring);
    return plx_ring_kick(ring);
}

void plx_ring_run(struct plx_ring *ring)
{
    if (ring->wait)
        ring->wait(ring->wait_context);
    else if (!(ring->turn ? ring->turn(ring) : transfer_turn(ring)))
        plx_ring_wait(ring);
}

void plx_ring_run_until_zero(struct plx_ring *ring, const unsigned *pending)
{
    while (*pending)
        plx_ring_run(ring);
}

int plx_ring_transfer_sync(struct plx_ring *ring, unsigned member, enum plx_io_op op,
                           uint64_t offset, void *buffer, size_t bytes)
{
    struct plx_ring_join join = {0};
    struct plx_ring_xfer xfer;

    plx_ring_submit(ring, &xfer, member, op, offset, buffer, bytes, &join);
    plx_ring_run_until_zero(ring, &join.pending);
    return join.error;
}

int plx_ring_flush_member(struct plx_ring *ring, unsigned member)
{
    if (!ring->members[member].device->volatile_cache)
        return 0;
    return plx_ring_transfer_sync(ring, member, PLX_IO_FLUSH, 0, NULL, 0);
}

int plx_ring_flush_members(struct plx_ring *ring)
{
    for (unsigned m = 0; m < ring->count; m++) {
        int error = ring->members[m].lost ? 0 : plx_ring_flush_member(ring, m);

        if (error)
            plx_ring_member_lost(ring, m, error);
    }
    return ring->sticky;
}

/* ---- Superblocks ---- */

int plx_ring_super_read(struct plx_ring *ring, unsigned m, struct plx_fault *fault)
{
    struct plx_ring_member *member = &ring->members[m];
    struct plx_newest newest = {0};
    struct plx_ring_super super;
    struct plx_fault why = {0}, version = {0};
    int error, absent = 0, other = 0;
    uint8_t *blocks = malloc(2 * PLX_BLOCK_SIZE);

    if (!blocks)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "%s", plx_error_text(PLX_ERR_NOMEM));
    error =
        member->device->bytes < PLX_RING_SEGMENTS_AT
            ? 0
            : plx_ring_transfer_sync(ring, m, PLX_IO_READ, 0, blocks, (size_t)2 * PLX_BLOCK_SIZE);
    if (member->device->bytes < PLX_RING_SEGMENTS_AT)
        memset(blocks, 0, (size_t)2 * PLX_BLOCK_SIZE); /* too small for one */
    for (unsigned i = 0; i < 2 && !error; i++) {
        int code = plx_format_ring_super_decode(blocks + i * PLX_BLOCK_SIZE, &super, &why);

        absent += code == PLX_ERR_NOT_FOUND;
        if (code == PLX_ERR_UNSUPPORTED)
            version = why;
        other = code == PLX_ERR_UNSUPPORTED || !other ? code : other;
        if (code || !plx_newest_take(&newest, super.generation))
            continue;
        member->super = super;
        member->slot = i;
    }
    free(blocks);
    if (error)
        return plx_fault_set(fault, error, "%s: %s", member->device->name, plx_error_text(error));
    if (!newest.found && absent == 2)
        return plx_fault_set(fault, PLX_ERR_NOT_FOUND, "%s: there is no ring",
                             member->device->name);
    if (!newest.found && other == PLX_ERR_UNSUPPORTED)
        return plx_fault_set(fault, other, "%s: %s", member->device->name, version.text);
    if (!newest.found)
        return plx_fault_set(fault, PLX_ERR_CORRUPT,
                             "%s: neither copy of the ring's superblock can be used (%s)",
                             member->device->name, why.text);
    if (PLX_RING_SEGMENTS_AT +
            (uint64_t)member->super.segments * member->super.segment_blocks * PLX_BLOCK_SIZE >
        member->device->bytes)
        return plx_fault_set(fault, PLX_ERR_CORRUPT,
                             "%s: the device is smaller than the ring on it", member->device->name);
    member->mirrored = plx_newest_mirrored(&newest);
    return 0;
}

int plx_ring_recognise(struct plx_device *device, struct plx_ring_super *ret_super,
                       struct plx_fault *fault)
{
    struct plx_ring ring = plx_ring_of(device);
    int error = plx_ring_super_read(&ring, 0, fault);

    if (!error)
        *ret_super = ring.members[0].super;
    return error;
}

static int write_slot(struct plx_ring *ring, unsigned member, const struct plx_ring_super *super,
                      unsigned slot)
{
    uint8_t *block = malloc(PLX_BLOCK_SIZE);
    int error;

    if (!block)
        return PLX_ERR_NOMEM;
    plx_format_ring_super_encode(super, block);
    error = plx_ring_transfer_sync(ring, member, PLX_IO_WRITE, slot * (uint64_t)PLX_BLOCK_SIZE,
                                   block, PLX_BLOCK_SIZE);
    free(block);
    return error;
}

/* MEMBER-1: the slot that counts is durable, so that the other one may be overwritten. */
static int secure_slot(struct plx_ring *ring, unsigned m)
{
    struct plx_ring_member *member = &ring->members[m];
    int error = member->mirrored ? 0 : write_slot(ring, m, &member->super, member->slot);

    if (!error && !member->mirrored)
        error = plx_ring_flush_member(ring, m);
    return error;
}

int plx_ring_super_write(struct plx_ring *ring, unsigned m, const struct plx_ring_super *super)
{
    struct plx_ring_member *member = &ring->members[m];
    struct plx_ring_super next = *super, copy;
    int error = secure_slot(ring, m);

    next.generation = plx_generation_next(member->super.generation); /* RING-6 */
    if (!error)
        error = write_slot(ring, m, &next, member->slot ^ 1);
    if (!error)
        error = plx_ring_flush_member(ring, m);
    if (error)
        return error;
    member->super = copy = next;
    member->slot ^= 1;
    copy.generation--;
    error = write_slot(ring, m, &copy, member->slot ^ 1);
    member->mirrored = !error;
    return error;
}

/* The slot with the high number counts until it is overwritten, and says the same. So both steps
 * end in a flush. */
int plx_ring_super_count_anew(struct plx_ring *ring, unsigned m)
{
    struct plx_ring_member *member = &ring->members[m];
    struct plx_ring_super low = member->super;
    int error = secure_slot(ring, m);

    for (low.generation = 2; low.generation && !error; low.generation--) {
        member->slot ^= 1;
        error = write_slot(ring, m, &low, member->slot);
        if (!error)
            error = plx_ring_flush_member(ring, m);
    }
    if (error)
        return error;
    member->slot ^= 1;
    member->super.generation = 2;
    member->mirrored = true;
    return 0;
}

/* ---- Sets ---- */

void plx_ring_super_leave_set(struct plx_ring *ring, struct plx_ring_super *super)
{
    if (super->ancestors == PLX_RING_ANCESTORS_MAX) {
        memmove(super->ancestor, super->ancestor + 1,
                (PLX_RING_ANCESTORS_MAX - 1) * sizeof super->ancestor[0]);
        super->ancestors--;
    }
    super->ancestor[super->ancestors++] = super->set;
    do {
        ring->options.env->random(ring->options.env, &super->set, sizeof super->set);
    } while (!super->set || super->set == super->ancestor[super->ancestors - 1]);
}

void plx_ring_event(struct plx_ring *ring, int code, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ring->options.env->event(ring->options.env, code, text);
}

void plx_ring_member_lost(struct plx_ring *ring, unsigned member, int error)
{
    if (ring->members[member].lost)
        return;
    ring->members[member].lost = true; /* MEMBER-2 */
    if (plx_ring_members_left(ring)) {
        plx_ring_event(ring, error, "%s: %s; the ring goes on with its other member alone",
                       ring->members[member].device->name, plx_error_text(error));
        ring->reset = PLX_RESET_BEGIN;
    } else {
        plx_ring_event(ring, error, "%s: %s; the ring has stopped, and writes go to the store",
                       ring->members[member].device->name, plx_error_text(error));
        ring->sticky = error; /* MEMBER-3 */
        ring->reset = PLX_RESET_NONE;
    }
}

void plx_ring_members_lost(struct plx_ring *ring, const struct plx_ring_join *join)
{
    for (unsigned m = 0; m < ring->count; m++)
        if (join->failed >> m & 1)
            plx_ring_member_lost(ring, m, join->error);
}

static void write_reset(struct plx_ring *ring, const struct plx_ring_super *super, unsigned slot)
{
    plx_format_ring_super_encode(super, ring->reset_block);
    plx_ring_submit(ring, &ring->reset_xfer, plx_ring_survivor(ring), PLX_IO_WRITE,
                    slot * (uint64_t)PLX_BLOCK_SIZE, ring->reset_block, PLX_BLOCK_SIZE,
                    &ring->reset_join);
}

void plx_ring_settle_set(struct plx_ring *ring)
{
    while (plx_ring_set_is_changing(ring))
        plx_ring_run(ring);
}

/* The new set is durable on the survivor. */
static void set_changed(struct plx_ring *ring, struct plx_ring_member *member)
{
    struct plx_ring_super copy = ring->next_super;

    member->super = ring->next_super;
    member->slot ^= 1;
    ring->set = member->super.set;
    copy.generation--;
    write_reset(ring, &copy, member->slot ^ 1);
    ring->reset = PLX_RESET_MIRRORING;
    if (ring->options.changed)
        ring->options.changed(ring->options.context);
}

bool plx_ring_reset_step(struct plx_ring *ring)
{
    struct plx_ring_member *member = &ring->members[plx_ring_survivor(ring)];

    if (ring->reset == PLX_RESET_NONE || ring->reset_join.pending ||
        plx_ring_resilver_is_running(ring)) /* which writes superblocks: it ends first */
        return false;
    if (ring->reset_join.failed) {
        plx_ring_members_lost(ring, &ring->reset_join);
        return true;
    }
    ring->reset_join = (struct plx_ring_join){0};
    switch (ring->reset) {
    case PLX_RESET_NONE:
        break;
    case PLX_RESET_BEGIN: /* opening has left a mirror copy: MEMBER-1 */
        ring->next_super = member->super;
        ring->next_super.generation = plx_generation_next(member->super.generation); /* RING-6 */
        plx_ring_super_leave_set(ring, &ring->next_super);
        ring->next_super.alone = true;
        ring->next_super.joining = false;
        write_reset(ring, &ring->next_super, member->slot ^ 1);
        ring->reset = PLX_RESET_WRITING;
        break;
    case PLX_RESET_WRITING:
        if (member->device->volatile_cache)
            plx_ring_submit(ring, &ring->reset_xfer, plx_ring_survivor(ring), PLX_IO_FLUSH, 0, NULL,
                            0, &ring->reset_join);
        ring->reset = PLX_RESET_FLUSHING;
        break;
    case PLX_RESET_FLUSHING:
        set_changed(ring, member);
        break;
    case PLX_RESET_MIRRORING:
        ring->reset = PLX_RESET_NONE;
        break;
    }
    return true;
}
