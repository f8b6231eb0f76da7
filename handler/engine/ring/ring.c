/* ring.c - rings made, opened and closed; turns; records read back.
 *
 * RING-1  A ring that is opened to write has its superblock written anew first, in both slots, on
 *     all its members. So when a member is lost later, the survivor's new set needs one write and
 *     one flush (MEMBER-1).
 * RING-2  One of two members is enough to write only if its superblock says that it is alone, or by
 *     the caller's word: the operator's, or that this member lacks nothing. By that word it gets a
 *     new set, which is durable before anything else is written (member.c). Otherwise the ring is
 *     not opened (MISSING).
 * RING-3  Two members are a mirror only if their sets are equal. If one set is an ancestor of the
 *     other, the member with the ancestor is set aside. If neither is, each member went on without
 *     the other, and the ring is refused: nobody can tell which one counts.
 * RING-4  A turn is never entered twice, and never blocks.
 * RING-5  A member that is joining counts only beside a member with the same set that does not call
 *     itself alone. Writing that one's superblock was the end of the copying (RESILVER-2). By
 *     itself, a member that is joining never counts.
 * RING-6  A ring that is opened to write leaves room to count on from each member's generation
 *     (format.h). The set changes later, when a member is lost or added, and the superblock that is
 *     written then must pass the gate again. A generation without that room begins anew. It only
 *     tells which of a member's two slots is newer. So a ring that was forged or damaged in this
 *     way need not be refused, together with the writes on it.
 * RING-7  A member may fail while the survivor is there. Then the survivor has everything on the
 *     failed member that was acknowledged. But a member may also be missing at an opening, and be
 *     left behind by the operator's word. Then nobody knows what it has. So the superblock says
 *     that a member was left that way, for as long as the ring lasts, because that member may come
 *     back at any time.
 * RING-8  At an opening a ring becomes another host's, by the superblock of one member after the
 *     other. If that is cut off, the members name two hosts. So whoever uses a ring asks each
 *     member whose it is (RING_MEMBERS-3), and takes the ring over again if one names another host.
 * Loop: this is the ring's part of the caller's loop.
 * Crash story: creating a ring erases the old superblocks first and writes the new ones last. A
 *   crash leaves no ring, or a superblock on the first member alone, and such a ring is refused.
 */
#include "engine/ring/ring_inside.h"

/* ---- Made, erased ---- */

static int write_zeroes(struct plx_ring *ring, unsigned member, const uint8_t *zeroes)
{
    int error = plx_ring_transfer_sync(ring, member, PLX_IO_WRITE, 0, (void *)(uintptr_t)zeroes,
                                       (size_t)2 * PLX_BLOCK_SIZE);

    return error ? error : plx_ring_flush_member(ring, 0);
}

int plx_ring_erase(struct plx_device *device, struct plx_fault *fault)
{
    static const uint8_t zeroes[2 * PLX_BLOCK_SIZE];
    struct plx_ring ring = plx_ring_of(device);
    int error = write_zeroes(&ring, 0, zeroes);

    return error ? plx_fault_set(fault, error, "%s: %s", device->name, plx_error_text(error)) : 0;
}

static int write_free_headers(struct plx_ring *ring, const struct plx_ring_super *super)
{
    static const struct plx_ring_segment unused;
    uint64_t segment_bytes = (uint64_t)super->segment_blocks * PLX_BLOCK_SIZE;
    uint8_t *block = malloc(PLX_BLOCK_SIZE);
    int error = block ? 0 : PLX_ERR_NOMEM;

    if (block)
        plx_format_ring_segment_encode(&super->ring, &unused, block);
    for (uint32_t s = 0; s < super->segments && !error; s++)
        error = plx_ring_transfer_sync(
            ring, 0, PLX_IO_WRITE, PLX_RING_SEGMENTS_AT + s * segment_bytes, block, PLX_BLOCK_SIZE);
    free(block);
    return error ? error : plx_ring_flush_member(ring, 0);
}

static int write_supers(struct plx_ring *ring, const struct plx_ring_super *super)
{
    uint8_t *blocks = malloc((size_t)2 * PLX_BLOCK_SIZE);
    int error;

    if (!blocks)
        return PLX_ERR_NOMEM;
    plx_format_ring_super_encode(super, blocks);
    memcpy(blocks + PLX_BLOCK_SIZE, blocks, PLX_BLOCK_SIZE);
    error = plx_ring_transfer_sync(ring, 0, PLX_IO_WRITE, 0, blocks, (size_t)2 * PLX_BLOCK_SIZE);
    free(blocks);
    return error ? error : plx_ring_flush_member(ring, 0);
}

static int may_create(struct plx_device *device, bool replace, struct plx_fault *fault)
{
    struct plx_ring_super super;
    int error = plx_ring_recognise(device, &super, fault);

    if (error == PLX_ERR_NOT_FOUND)
        return 0;
    if (error && error != PLX_ERR_CORRUPT && error != PLX_ERR_UNSUPPORTED)
        return error;
    return replace ? 0
                   : plx_fault_set(fault, PLX_ERR_EXISTS,
                                   "%s: there is a ring, whose writes may not be on the store yet",
                                   device->name);
}

static int plan_super(struct plx_device *const devices[], unsigned count,
                      const struct plx_ring_create_options *options,
                      struct plx_ring_super *ret_super, struct plx_fault *fault)
{
    uint64_t bytes = devices[0]->bytes, segments;
    struct plx_ring_super super = {
        .store = options->store,
        .host = options->host,
        .generation = 1,
        .members = count,
        .segment_blocks = options->segment_blocks ? options->segment_blocks
                                                  : PLX_RING_SEGMENT_BYTES / PLX_BLOCK_SIZE,
    };

    memcpy(super.host_name, options->host_name, sizeof super.host_name);
    for (unsigned i = 1; i < count; i++)
        bytes = plx_min_u64(bytes, devices[i]->bytes);
    segments = bytes < PLX_RING_SEGMENTS_AT
                   ? 0
                   : (bytes - PLX_RING_SEGMENTS_AT) / PLX_BLOCK_SIZE / super.segment_blocks;
    super.segments = (uint32_t)plx_min_u64(segments, PLX_RING_SEGMENTS_MAX);
    if (super.segments < 2)
        return plx_fault_set(
            fault, PLX_ERR_INVALID, "a ring needs two segments of %u KiB, and %u KiB before them",
            super.segment_blocks * (PLX_BLOCK_SIZE >> 10), (unsigned)(PLX_RING_SEGMENTS_AT >> 10));
    options->env->random(options->env, &super.ring, sizeof super.ring);
    do {
        options->env->random(options->env, &super.set, sizeof super.set);
    } while (!super.set);
    *ret_super = super;
    return 0;
}

int plx_ring_create(struct plx_device *const devices[], unsigned count,
                    const struct plx_ring_create_options *options, struct plx_fault *fault)
{
    struct plx_ring_super super;
    struct plx_ring ring;
    int error = 0;

    PLX_ASSERT(count >= 1 && count <= PLX_RING_MEMBERS);
    for (unsigned i = 0; i < count && !error; i++)
        error = may_create(devices[i], options->replace, fault);
    if (!error)
        error = plan_super(devices, count, options, &super, fault);
    for (unsigned i = 0; i < count && !error; i++)
        error = plx_ring_erase(devices[i], fault);
    for (unsigned i = 0; i < count && !error; i++) {
        ring = plx_ring_of(devices[i]);
        super.member = i;
        error = write_free_headers(&ring, &super);
        if (!error)
            error = write_supers(&ring, &super);
        if (error)
            plx_fault_set(fault, error, "%s: %s", devices[i]->name, plx_error_text(error));
    }
    return error;
}

/* ---- Opened, closed ---- */

static void swap_members(struct plx_ring *ring)
{
    struct plx_ring_member first = ring->members[0];

    ring->members[0] = ring->members[1];
    ring->members[1] = first;
}

/* The first member counts, the second one is left out. */
static void set_aside(struct plx_ring *ring)
{
    ring->count = 1;
    plx_ring_event(ring, PLX_ERR_MISSING,
                   "%s: the ring went on without this member, so it is not used any more",
                   ring->members[1].device->name);
}

/* RING-3 */
static int compare_members(struct plx_ring *ring, struct plx_fault *fault)
{
    const struct plx_ring_super *a = &ring->members[0].super, *b = &ring->members[1].super;
    const char *one = ring->members[0].device->name, *two = ring->members[1].device->name;

    if (!plx_uuid_equal(&a->ring, &b->ring) || a->member == b->member ||
        a->segments != b->segments || a->segment_blocks != b->segment_blocks)
        return plx_fault_set(fault, PLX_ERR_INVALID, "%.200s and %.200s are no members of one ring",
                             one, two);
    if (a->set == b->set && !a->alone && !b->alone && !(a->joining && b->joining))
        return 0; /* RING-5 */
    if (a->set == b->set)
        return plx_fault_set(fault, PLX_ERR_CORRUPT,
                             "%.200s or %.200s is an older copy of a member of the ring", one, two);
    if (a->joining || (!b->joining && plx_ring_set_descends(b, a->set)))
        swap_members(ring);
    else if (!b->joining && !plx_ring_set_descends(a, b->set))
        return plx_fault_set(fault, PLX_ERR_CORRUPT,
                             "%.160s and %.160s: each was used without the other, so nobody can "
                             "tell which one has all writes; open the ring with one of them",
                             one, two);
    set_aside(ring);
    return 0;
}

static int may_be_alone(const struct plx_ring *ring, const char *why, struct plx_fault *fault)
{
    const struct plx_ring_super *super = &ring->members[0].super;
    const char *name = ring->members[0].device->name;

    if (super->joining) /* RING-5 */
        return plx_fault_set(fault, PLX_ERR_MISSING,
                             "%.200s: the ring was being copied to it when that was cut off, and "
                             "the other member is missing%s%.200s",
                             name, why[0] ? ": " : "", why);
    if (super->members == 1 || super->alone || ring->options.alone || ring->options.complete ||
        ring->options.read_only) /* RING-2 */
        return 0;
    return plx_fault_set(fault, PLX_ERR_MISSING,
                         "%.200s: the other member of the ring is missing%s%.200s", name,
                         why[0] ? ": " : "", why);
}

/* Reads the superblocks. Who cannot be used is not among the members afterwards. */
static int find_members(struct plx_ring *ring, struct plx_device *const devices[], unsigned count,
                        struct plx_fault *fault)
{
    struct plx_fault why = {0};
    int error = 0, last = 0;

    for (unsigned i = 0; i < count; i++) {
        ring->members[ring->count].device = devices[i];
        ring->count++;
        last = plx_ring_super_read(ring, ring->count - 1, &why);
        if (!last)
            continue;
        ring->count--;
        if (!error || error == PLX_ERR_NOT_FOUND) {
            error = last;
            if (fault)
                *fault = why;
        }
    }
    if (!ring->count)
        return error;
    if (ring->count == 2 && (error = compare_members(ring, fault)) != 0)
        return error;
    return ring->count == 2 ? 0 : may_be_alone(ring, error ? why.text : "", fault);
}

/* RING-1, RING-2, RING-6, RING-8 */
static int begin_writing(struct plx_ring *ring, struct plx_fault *fault)
{
    int error = 0;

    for (unsigned m = 0; m < ring->count && !error; m++) {
        struct plx_ring_super super = ring->members[m].super;

        super.joining = false;
        if (!plx_uuid_is_zero(&ring->options.host)) {
            super.host = ring->options.host;
            memcpy(super.host_name, ring->options.host_name, sizeof super.host_name);
        }
        if (ring->count < super.members && !super.alone) {
            plx_ring_super_leave_set(ring, &super);
            super.alone = true;
            if (!ring->options.complete)
                super.compatible |= PLX_RING_LEFT_BY_WORD; /* RING-7 */
        }
        if (!plx_counter_has_room(super.generation)) /* RING-6 */
            error = plx_ring_super_count_anew(ring, m);
        if (!error)
            error = plx_ring_super_write(ring, m, &super);
        if (error)
            plx_fault_set(fault, error, "%s: %s", ring->members[m].device->name,
                          plx_error_text(error));
    }
    return error;
}

static int allocate(struct plx_ring *ring)
{
    size_t flight = PLX_BLOCK_SIZE + plx_ring_batch_limit(ring);

    ring->memory = aligned_alloc(PLX_BLOCK_SIZE, PLX_BLOCK_SIZE + PLX_RING_FLIGHTS * flight);
    if (!ring->memory)
        return PLX_ERR_NOMEM;
    ring->reset_block = ring->memory;
    for (unsigned i = 0; i < PLX_RING_FLIGHTS; i++)
        ring->flights[i].buffer = ring->memory + PLX_BLOCK_SIZE + i * flight;
    return 0;
}

int plx_ring_open(struct plx_device *const devices[], unsigned count,
                  const struct plx_ring_options *options, struct plx_ring **ret_ring,
                  struct plx_fault *fault)
{
    struct plx_ring *ring = calloc(1, sizeof *ring);
    const struct plx_ring_super *super;
    int error;

    PLX_ASSERT(count >= 1 && count <= PLX_RING_MEMBERS);
    if (!ring)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "%s", plx_error_text(PLX_ERR_NOMEM));
    ring->options = *options;
    ring->turn = plx_ring_turn;
    error = find_members(ring, devices, count, fault);
    super = &ring->members[0].super;
    if (!error) {
        ring->id = super->ring;
        ring->segments = super->segments;
        ring->segment_bytes = (uint64_t)super->segment_blocks * PLX_BLOCK_SIZE;
        error = options->read_only ? 0 : begin_writing(ring, fault);
        ring->set = super->set;
    }
    if (!error && !options->read_only && (error = allocate(ring)) != 0)
        plx_fault_set(fault, error, "%s", plx_error_text(error));
    if (!error)
        error = plx_ring_load_parts(ring, fault);
    if (error)
        plx_ring_close(ring);
    else
        *ret_ring = ring;
    return error;
}

void plx_ring_set_wait(struct plx_ring *ring, void (*wait)(void *context), void *context)
{
    ring->wait = wait;
    ring->wait_context = context;
}

void plx_ring_close(struct plx_ring *ring)
{
    unsigned under_way;

    PLX_ASSERT(!ring->chains);
    ring->resilver.stop = true;
    while ((under_way = plx_ring_under_way(ring)) != 0)
        if (!plx_ring_turn(ring) && plx_ring_under_way(ring))
            plx_ring_wait(ring);
    free(ring->resilver.buffer);
    free(ring->parts);
    free(ring->memory);
    free(ring);
}

void plx_ring_get_info(const struct plx_ring *ring, struct plx_ring_info *ret_info)
{
    struct plx_ring_info info = {
        .super = ring->members[plx_ring_survivor(ring)].super,
        .members = plx_ring_members_left(ring),
        .sticky = ring->sticky,
        .segments = ring->segments,
        .free_segments = ring->free_parts,
        .segment_bytes = ring->segment_bytes,
        .resilvering = plx_ring_resilver_is_running(ring),
        .uncopied_segments = ring->resilver.left,
        .resilver_error = ring->resilver.error,
        .write_blocks_max = (uint32_t)plx_min_u64(
            PLX_RING_WRITE_MAX,
            (plx_ring_batch_limit(ring) - plx_ring_batch_data_at(1)) / PLX_BLOCK_SIZE),
    };

    for (uint32_t s = 0; s < ring->segments; s++) {
        info.bad_segments += ring->parts[s].use == PLX_RING_BAD;
        info.unknown_segments += ring->parts[s].use == PLX_RING_UNKNOWN;
        for (unsigned m = 0; m < ring->count && ring->parts[s].use != PLX_RING_BAD; m++)
            info.bad_headers[m] += !ring->members[m].lost && !ring->parts[s].whole[m];
    }
    *ret_info = info;
}

int plx_ring_sticky(const struct plx_ring *ring)
{
    return ring->sticky;
}

/* ---- Records read back ---- */

static void read_done(struct plx_io *io)
{
    struct plx_ring_read *read = io->owner;

    read->ring->members[read->member].under_way--;
    read->io.next = read->ring->reads ? &read->ring->reads->io : NULL;
    read->ring->reads = read;
}

static void submit_read(struct plx_ring *ring, struct plx_ring_read *read)
{
    struct plx_device *device = ring->members[read->member].device;
    size_t bytes = (size_t)read->place.blocks * PLX_BLOCK_SIZE;

    read->iov = (struct iovec){read->buffer, bytes};
    read->io = (struct plx_io){
        .op = PLX_IO_READ,
        .kind = PLX_KIND_LOG,
        .offset = read->place.offset,
        .bytes = bytes,
        .iov = &read->iov,
        .iovcnt = 1,
        .done = read_done,
        .owner = read,
    };
    ring->members[read->member].under_way++;
    device->ops->submit(device, &read->io);
}

void plx_ring_read(struct plx_ring *ring, struct plx_ring_read *read)
{
    PLX_ASSERT(read->place.offset && read->place.blocks);
    read->ring = ring;
    read->member = plx_ring_survivor(ring);
    read->error = 0;
    submit_read(ring, read);
}

static bool is_intact(const struct plx_ring_read *read)
{
    const struct plx_uuid *id = &read->ring->id;
    const uint8_t *blocks = read->buffer;

    if (!read->sums)
        return plx_ring_blocks_hash(id, blocks, read->place.blocks, NULL) == read->place.hash;
    for (uint32_t i = 0; i < read->place.blocks; i++)
        if (plx_ring_blocks_hash(id, blocks + i * PLX_BLOCK_SIZE, 1, NULL) != read->sums[i])
            return false;
    return true;
}

static bool reads_end(struct plx_ring *ring)
{
    struct plx_ring_read *read = ring->reads, *next;
    bool any = read != NULL;

    ring->reads = NULL;
    for (; read; read = next) {
        int error = read->io.result;

        next = read->io.next ? read->io.next->owner : NULL;
        if (!error && !is_intact(read))
            error = PLX_ERR_CORRUPT;
        if (error && !read->error && ring->count > 1) { /* the other one may have it */
            read->error = error;
            read->member ^= 1;
            submit_read(ring, read);
            continue;
        }
        read->error = error;
        read->done(read);
    }
    return any;
}

/* ---- Turns ---- */

bool plx_ring_turn(struct plx_ring *ring)
{
    bool more, any = true;

    PLX_ASSERT(!ring->in_turn); /* RING-4 */
    ring->in_turn = true;
    plx_ring_poll(ring);
    while (any) {
        any = reads_end(ring);
        any |= plx_ring_chains_step(ring);
        any |= plx_ring_resilver_step(ring);
        any |= plx_ring_reset_step(ring);
        any |= plx_ring_flush_begin(ring);
    }
    more = plx_ring_kick(ring);
    ring->in_turn = false;
    return more;
}

struct plx_device *plx_ring_device(const struct plx_ring *ring, unsigned index)
{
    return index < ring->count ? ring->members[index].device : NULL;
}
