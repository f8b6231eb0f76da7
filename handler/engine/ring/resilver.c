/* resilver.c - a member is added to a ring that goes on with one of two.
 *
 * RESILVER-1  A new member has no superblock until it has all that the survivor has. Its first
 *     superblock says that it is joining. That superblock has a set that is new with each attempt,
 *     so what an earlier attempt left is never taken for this one. One flush makes the superblock
 *     and the copied segments durable together. That is enough, because a member that is joining
 *     does not count by itself (RING-5).
 * RESILVER-2  Then the survivor's superblock gets the same set. That write makes the new device a
 *     member. Before it, the ring is the survivor's alone; after it, both have everything (RING-5).
 * RESILVER-3  No batch is written until the new member's superblock no longer says that it is
 *     joining. Otherwise the survivor could be lost after such a batch, and the new member could
 *     not be opened alone (RING-5), although it has every acknowledged record.
 * RESILVER-4  A segment to which a write has ended since its copying began is copied again. When
 *     few such segments are left, no batch is formed and no scan begins until resilvering has
 *     ended.
 * RESILVER-5  If a block of the survivor cannot be read, resilvering fails, except in a free
 *     segment, whose contents are not needed.
 * The marks on the store need not name the new set. They name an ancestor of the new set, and only
 * these two members have sets that descend from that ancestor (compare MEMBER-2).
 * Loop: the ring's; nothing here blocks, but for plx_ring_resilver().
 * Crash story: until the survivor's superblock is written, the new device has no superblock or one
 *   that says joining, and an opening sets the device aside. Afterwards the two are mirrors. No
 *   record is done between these two states.
 */
#include "engine/ring/ring_inside.h"

#define CHUNK_BLOCKS 256u
#define FEW 4u        /* segments that batches wait for */
#define PASSES_MAX 4u /* over segments that change, before batches wait for all of them */

/* ---- Begun, ended ---- */

static int check_device(struct plx_ring *ring, struct plx_device *device, bool replace,
                        struct plx_fault *fault)
{
    const struct plx_ring_super *own = &ring->members[plx_ring_survivor(ring)].super;
    struct plx_ring_super super;
    bool left_behind;
    int error = plx_ring_recognise(device, &super, fault);

    if (error && error != PLX_ERR_NOT_FOUND && error != PLX_ERR_CORRUPT &&
        error != PLX_ERR_UNSUPPORTED)
        return error;
    left_behind = !error && plx_uuid_equal(&super.ring, &own->ring) &&
                  super.member != own->member && super.set != own->set &&
                  (super.joining || plx_ring_set_descends(own, super.set));
    if (error != PLX_ERR_NOT_FOUND && !left_behind && !replace)
        return plx_fault_set(fault, PLX_ERR_EXISTS,
                             "%s: there is a ring, whose writes may not be on the store yet",
                             device->name);
    if (device->bytes < plx_ring_offset(ring, ring->segments))
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "%s: too small: a member of this ring needs %llu bytes", device->name,
                             (unsigned long long)plx_ring_offset(ring, ring->segments));
    return 0;
}

static int may_begin(const struct plx_ring *ring, unsigned *ret_to, struct plx_fault *fault)
{
    const struct plx_ring_member *survivor = &ring->members[plx_ring_survivor(ring)];
    unsigned to = ring->members[0].lost ? 0 : 1;

    PLX_ASSERT(!ring->options.read_only && !ring->in_turn);
    if (ring->sticky)
        return plx_fault_set(fault, PLX_ERR_STICKY, "the ring has stopped: %s",
                             plx_error_text(ring->sticky));
    if (plx_ring_members_left(ring) == survivor->super.members)
        return plx_fault_set(fault, PLX_ERR_INVALID, "the ring has all its members");
    if (plx_ring_resilver_is_running(ring) || ring->reset != PLX_RESET_NONE ||
        ring->members[to].under_way)
        return plx_fault_set(fault, PLX_ERR_BUSY, "a member of the ring is just changing");
    *ret_to = to;
    return 0;
}

static void transfer(struct plx_ring *ring, unsigned member, enum plx_io_op op, uint64_t offset,
                     void *buffer, size_t bytes)
{
    struct plx_ring_resilver *r = &ring->resilver;

    if (op != PLX_IO_FLUSH || ring->members[member].device->volatile_cache)
        plx_ring_submit(ring, &r->xfers[member], member, op, offset, buffer, bytes, &r->join);
}

static void begin(struct plx_ring *ring, struct plx_device *device, unsigned to, uint8_t *buffer)
{
    struct plx_ring_resilver *r = &ring->resilver;

    *r = (struct plx_ring_resilver){
        .state = PLX_RESILVER_ERASING,
        .from = to ^ 1,
        .to = to,
        .left = ring->segments,
        .buffer = buffer,
        .blocks = {buffer, buffer + PLX_BLOCK_SIZE},
    };
    ring->members[to] = (struct plx_ring_member){.device = device, .lost = true};
    ring->count = PLX_RING_MEMBERS;
    for (uint32_t s = 0; s < ring->segments; s++) {
        ring->parts[s].copied = false;
        ring->parts[s].whole[to] = ring->parts[s].settled[to] = false;
    }
    memset(buffer, 0, (size_t)2 * PLX_BLOCK_SIZE);
    transfer(ring, to, PLX_IO_WRITE, 0, buffer, (size_t)2 * PLX_BLOCK_SIZE);
}

int plx_ring_resilver(struct plx_ring *ring, struct plx_device *device, bool replace,
                      struct plx_fault *fault)
{
    uint8_t *buffer;
    unsigned to;
    int error = may_begin(ring, &to, fault);

    if (!error)
        error = check_device(ring, device, replace, fault);
    if (error)
        return error;
    buffer = malloc((size_t)CHUNK_BLOCKS * PLX_BLOCK_SIZE);
    if (!buffer)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "%s", plx_error_text(PLX_ERR_NOMEM));
    begin(ring, device, to, buffer);
    return 0;
}

static void end(struct plx_ring *ring, int error)
{
    struct plx_ring_resilver *r = &ring->resilver;

    free(r->buffer);
    r->buffer = NULL;
    r->paused = false;
    r->error = error;
    r->state = PLX_RESILVER_NONE;
    if (error)
        plx_ring_event(ring, error, "%s: %s; it was not made a member of the ring",
                       ring->members[r->to].device->name, plx_error_text(error));
}

/* ---- Superblocks ---- */

static void write_super(struct plx_ring *ring, unsigned m)
{
    struct plx_ring_resilver *r = &ring->resilver;
    struct plx_ring_super *super = &r->super[m];

    super->generation = plx_generation_next(ring->members[m].super.generation);
    plx_format_ring_super_encode(super, r->blocks[m]);
    transfer(ring, m, PLX_IO_WRITE, (ring->members[m].slot ^ 1) * (uint64_t)PLX_BLOCK_SIZE,
             r->blocks[m], PLX_BLOCK_SIZE);
}

static void super_is_durable(struct plx_ring *ring, unsigned m)
{
    ring->members[m].super = ring->resilver.super[m];
    ring->members[m].slot ^= 1;
}

/* MEMBER-1: it says that the newest one is durable. */
static void write_copy(struct plx_ring *ring, unsigned m)
{
    struct plx_ring_super copy = ring->members[m].super;

    copy.generation--;
    plx_format_ring_super_encode(&copy, ring->resilver.blocks[m]);
    transfer(ring, m, PLX_IO_WRITE, (ring->members[m].slot ^ 1) * (uint64_t)PLX_BLOCK_SIZE,
             ring->resilver.blocks[m], PLX_BLOCK_SIZE);
}

/* RESILVER-1 */
static void join(struct plx_ring *ring)
{
    struct plx_ring_resilver *r = &ring->resilver;
    struct plx_ring_super *super = &r->super[r->to];

    *super = ring->members[r->from].super;
    plx_ring_super_leave_set(ring, super);
    super->alone = false;
    super->joining = true;
    super->member ^= 1;
    write_super(ring, r->to);
}

/* RESILVER-2 */
static void commit(struct plx_ring *ring)
{
    struct plx_ring_resilver *r = &ring->resilver;

    r->super[r->from] = r->super[r->to];
    r->super[r->from].joining = false;
    r->super[r->from].member ^= 1;
    write_super(ring, r->from);
}

/* Both are members. What a disk's mark names is an ancestor of both, or was none before. */
static void committed(struct plx_ring *ring)
{
    struct plx_ring_resilver *r = &ring->resilver;
    uint64_t before = ring->set;

    super_is_durable(ring, r->from);
    ring->set = ring->members[r->from].super.set;
    ring->members[r->to].lost = false;
    for (struct plx_ring_chain *c = ring->chains; c; c = c->next)
        if (c->set == before)
            c->set = ring->set;
    for (uint32_t s = 0; s < ring->segments; s++) {
        struct plx_ring_part *part = &ring->parts[s];

        part->head[r->to] = part->head[r->from];
        part->whole[r->to] = part->whole[r->from];
        part->settled[r->to] = part->settled[r->from];
    }
    r->super[r->to].joining = false; /* RESILVER-3 */
    write_super(ring, r->to);
}

/* ---- Segments ---- */

static bool is_quiet(const struct plx_ring *ring)
{
    for (unsigned i = 0; i < PLX_RING_FLIGHTS; i++)
        if (ring->flights[i].state != PLX_FLIGHT_IDLE)
            return false;
    return !ring->scans;
}

static void read_chunk(struct plx_ring *ring)
{
    struct plx_ring_resilver *r = &ring->resilver;

    r->bytes =
        (size_t)plx_min_u64((uint64_t)CHUNK_BLOCKS * PLX_BLOCK_SIZE, ring->segment_bytes - r->at);
    r->state = PLX_RESILVER_READING;
    transfer(ring, r->from, PLX_IO_READ, plx_ring_offset(ring, r->segment) + r->at, r->buffer,
             r->bytes);
}

/* RESILVER-4. True: something was begun. */
static bool choose(struct plx_ring *ring)
{
    struct plx_ring_resilver *r = &ring->resilver;

    if (!r->paused && !ring->scans &&
        (!r->left || (r->passes && r->left <= FEW) || r->passes >= PASSES_MAX))
        r->paused = true;
    if (r->paused && !is_quiet(ring))
        return false;
    if (!r->left && r->paused) {
        r->state = PLX_RESILVER_JOINING;
        join(ring);
        return true;
    }
    if (!r->left) /* a scan is under way */
        return false;
    while (ring->parts[r->segment].copied) {
        r->segment = (r->segment + 1) % ring->segments;
        r->passes += !r->segment;
    }
    ring->parts[r->segment].copied = true;
    r->left--;
    r->at = 0;
    read_chunk(ring);
    return true;
}

/* RESILVER-5. Another member's header of a free segment says nothing of what is durable. */
static void chunk_was_read(struct plx_ring *ring)
{
    struct plx_ring_resilver *r = &ring->resilver;
    int error = r->join.error;

    r->join = (struct plx_ring_join){0};
    if (error && (error != PLX_ERR_IO_READ || ring->parts[r->segment].use != PLX_RING_FREE)) {
        end(ring, error);
        return;
    }
    if (error) {
        static const struct plx_ring_segment unused;

        memset(r->buffer, 0, r->bytes);
        if (!r->at)
            plx_format_ring_segment_encode(&ring->id, &unused, r->buffer);
    }
    r->state = PLX_RESILVER_WRITING;
    transfer(ring, r->to, PLX_IO_WRITE, plx_ring_offset(ring, r->segment) + r->at, r->buffer,
             r->bytes);
}

static void chunk_was_written(struct plx_ring *ring)
{
    struct plx_ring_resilver *r = &ring->resilver;

    r->at += r->bytes;
    if (r->at < ring->segment_bytes)
        read_chunk(ring);
    else
        r->state = PLX_RESILVER_CHOOSING;
}

/* ---- Steps ---- */

/* A transfer that was not a read of a segment has failed. */
static void failed(struct plx_ring *ring)
{
    struct plx_ring_resilver *r = &ring->resilver;
    struct plx_ring_join failure = r->join;

    r->join = (struct plx_ring_join){0};
    plx_ring_members_lost(ring, &failure); /* one that has not joined yet is lost anyway */
    end(ring, failure.error);
}

static void next_step(struct plx_ring *ring)
{
    struct plx_ring_resilver *r = &ring->resilver;

    switch (r->state) {
    case PLX_RESILVER_ERASING:
        transfer(ring, r->to, PLX_IO_FLUSH, 0, NULL, 0);
        r->state = PLX_RESILVER_ERASED;
        break;
    case PLX_RESILVER_ERASED:
        r->state = PLX_RESILVER_CHOOSING;
        break;
    case PLX_RESILVER_WRITING:
        chunk_was_written(ring);
        break;
    case PLX_RESILVER_JOINING:
        transfer(ring, r->to, PLX_IO_FLUSH, 0, NULL, 0);
        r->state = PLX_RESILVER_JOINED;
        break;
    case PLX_RESILVER_JOINED:
        super_is_durable(ring, r->to);
        commit(ring);
        r->state = PLX_RESILVER_COMMITTING;
        break;
    case PLX_RESILVER_COMMITTING:
        transfer(ring, r->from, PLX_IO_FLUSH, 0, NULL, 0);
        r->state = PLX_RESILVER_COMMITTED;
        break;
    case PLX_RESILVER_COMMITTED:
        committed(ring);
        r->state = PLX_RESILVER_ADMITTING;
        break;
    case PLX_RESILVER_ADMITTING:
        transfer(ring, r->to, PLX_IO_FLUSH, 0, NULL, 0);
        r->state = PLX_RESILVER_ADMITTED;
        break;
    case PLX_RESILVER_ADMITTED:
        super_is_durable(ring, r->to);
        write_copy(ring, r->from);
        write_copy(ring, r->to);
        r->state = PLX_RESILVER_MIRRORING;
        break;
    case PLX_RESILVER_MIRRORING:
        plx_ring_event(ring, 0, "%s: it is a member of the ring again",
                       ring->members[r->to].device->name);
        end(ring, 0);
        break;
    default:
        break;
    }
}

bool plx_ring_resilver_step(struct plx_ring *ring)
{
    struct plx_ring_resilver *r = &ring->resilver;

    if (!plx_ring_resilver_is_running(ring) || r->join.pending)
        return false;
    if (ring->sticky || r->stop) {
        r->join = (struct plx_ring_join){0};
        end(ring, ring->sticky);
        return true;
    }
    if (r->state == PLX_RESILVER_CHOOSING)
        return choose(ring);
    if (r->state == PLX_RESILVER_READING)
        chunk_was_read(ring);
    else if (r->join.error)
        failed(ring);
    else
        next_step(ring);
    return true;
}
