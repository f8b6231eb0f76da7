/* ring_world.c - see ring_world.h. */
#include "ring_world.h"

const struct plx_uuid vdi_a = {"a virtual disk.."}, vdi_b = {"b virtual disk.."};
struct plx_simpower power;
struct plx_simdisk *disks[3];
struct plx_device *devices[3];
uint64_t disk_seed;
unsigned members;
struct plx_simenv env;
struct plx_ring *ring;
struct plx_fault fault;
struct plx_ring_mark marks[2];
struct plx_ring_chain *chain_b;

struct plx_ring_item items[ITEMS];
_Alignas(BLOCK) uint8_t contents[ITEMS][BLOCK];
struct iovec iovs[ITEMS];
unsigned used, done;
uint64_t last_done;
int last_error;

struct plx_ring_found found[ITEMS];
uint8_t found_byte[ITEMS];
unsigned found_count;
unsigned changes;

static int take(void *context, const struct plx_ring_found *record)
{
    found_byte[found_count] = record->data ? *(const uint8_t *)record->data : 0;
    found[found_count++] = *record;
    return 0;
}

void item_done(struct plx_ring_item *item)
{
    done++;
    last_error = item->error;
    if (!item->error) {
        CU_ASSERT(item->seq > last_done || item->owner);
        last_done = item->seq;
    }
}

void attach(unsigned first, unsigned count)
{
    static const char *const names[] = {"first", "second", "third"};

    members = count;
    for (unsigned i = 0; i < count; i++)
        devices[i] = plx_simdisk_attach(disks[first + i], names[first + i]);
}

void detach(void)
{
    for (unsigned i = 0; i < members; i++)
        devices[i]->ops->close(devices[i]);
    members = 0;
}

void make_disks(unsigned count)
{
    memset(&power, 0, sizeof power);
    plx_simenv_init(&env, 7);
    for (unsigned i = 0; i < count; i++)
        disks[i] = plx_simdisk_new(&(struct plx_simdisk_options){.bytes = RING_BYTES,
                                                                 .block_size = 512,
                                                                 .volatile_cache = true,
                                                                 .seed = disk_seed + i + 1},
                                   &power);
    attach(0, count);
    used = done = found_count = 0;
    last_done = 0;
    last_error = 0;
    memset(marks, 0, sizeof marks);
    chain_b = NULL;
}

int try_create(bool replace)
{
    return plx_ring_create(devices, members,
                           &(struct plx_ring_create_options){.env = &env.env,
                                                             .store = vdi_b,
                                                             .host = vdi_a,
                                                             .host_name = "alpha",
                                                             .segment_blocks = SEGMENT_BLOCKS,
                                                             .replace = replace},
                           &fault);
}

int try_open(struct plx_ring_options options)
{
    options.env = &env.env;
    return plx_ring_open(devices, members, &options, &ring, &fault);
}

void open_ring(void)
{
    OK(try_open((struct plx_ring_options){0}));
}

void close_ring(void)
{
    plx_ring_close(ring);
    ring = NULL;
}

void make_ring(unsigned count)
{
    make_disks(count);
    OK(try_create(false));
    open_ring();
}

void end_ring(void)
{
    if (ring)
        close_ring();
    detach();
    while (power.count)
        plx_simdisk_free(power.disks[0]);
}

struct plx_ring_info ring_info(void)
{
    struct plx_ring_info info;

    plx_ring_get_info(ring, &info);
    return info;
}

uint64_t set_of_ring(void)
{
    return ring_info().super.set;
}

struct plx_ring_chain_info chain_info(const struct plx_ring_chain *chain)
{
    struct plx_ring_chain_info info;

    plx_ring_chain_get_info(chain, &info);
    return info;
}

static struct plx_ring_mark *mark_of(struct plx_uuid vdi)
{
    return &marks[plx_uuid_equal(&vdi, &vdi_b)];
}

struct plx_ring_chain_options options_for(struct plx_uuid vdi, uint64_t epoch, uint64_t since,
                                          uint64_t at_epoch, uint64_t at_seq)
{
    found_count = 0;
    if (mark_of(vdi)->proof)
        mark_of(vdi)->since = since;
    return (struct plx_ring_chain_options){
        .vdi = vdi,
        .epoch = epoch,
        .mark = *mark_of(vdi),
        .position = {at_epoch, at_seq},
        .found = take,
    };
}

void mark(struct plx_ring_chain *chain)
{
    struct plx_ring_mark *to = chain == chain_b ? &marks[1] : &marks[0];

    *to = (struct plx_ring_mark){.ring = ring_info().super.ring,
                                 .set = set_of_ring(),
                                 .proof = chain_info(chain).proof,
                                 .since = to->since ? to->since : 1};
    plx_ring_chain_marked(chain, to);
}

void unmark(struct plx_ring_chain *chain)
{
    struct plx_ring_mark *to = chain == chain_b ? &marks[1] : &marks[0];

    *to = (struct plx_ring_mark){.set = 0};
    plx_ring_chain_marked(chain, to);
}

void prove(struct plx_ring_chain *chain)
{
    bool under_way = done < used || members < power.count;

    plx_ring_chain_prove(chain);
    for (unsigned i = 0; i < 1000 && !chain_info(chain).proof; i++)
        if (!plx_ring_turn(ring))
            plx_ring_wait(ring);
    CU_ASSERT_FATAL(chain_info(chain).proof != 0);
    CU_ASSERT(under_way || plx_simpower_volatile(&power) == 0); /* the proof is durable */
}

struct plx_ring_chain *open_chain(struct plx_uuid vdi, uint64_t epoch, uint64_t since,
                                  uint64_t at_epoch, uint64_t at_seq)
{
    struct plx_ring_chain_options options = options_for(vdi, epoch, since, at_epoch, at_seq);
    struct plx_ring_chain *chain = NULL;

    OK(plx_ring_chain_open(ring, &options, &chain, &fault));
    if (plx_uuid_equal(&vdi, &vdi_b))
        chain_b = chain;
    prove(chain);
    mark(chain);
    return chain;
}

int scan_code(struct plx_uuid vdi, uint64_t epoch, uint64_t since, uint64_t at_epoch,
              uint64_t at_seq)
{
    struct plx_ring_chain_options options = options_for(vdi, epoch, since, at_epoch, at_seq);
    struct plx_ring_chain *chain = NULL;
    int error = plx_ring_chain_open(ring, &options, &chain, &fault);

    if (!error)
        plx_ring_chain_close(chain);
    return error;
}

struct plx_ring_item *append(struct plx_ring_chain *chain, uint8_t byte)
{
    struct plx_ring_item *item = &items[used];

    memset(contents[used], byte, BLOCK);
    iovs[used] = (struct iovec){contents[used], BLOCK};
    *item = (struct plx_ring_item){
        .record = {.type = PLX_RING_WRITE, .block = byte, .blocks = 1},
        .iov = &iovs[used],
        .iovcnt = 1,
        .done = item_done,
    };
    used++;
    plx_ring_append(chain, item);
    return item;
}

void run(void)
{
    for (unsigned i = 0; i < 10000 && done < used; i++)
        if (!plx_ring_turn(ring))
            plx_ring_wait(ring);
}

void append_singly(struct plx_ring_chain *chain, uint8_t first, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        append(chain, (uint8_t)(first + i));
        run();
    }
    CU_ASSERT_EQUAL_FATAL(done, used);
}

void expect_found(uint64_t first_seq, uint8_t first_byte, unsigned count)
{
    CU_ASSERT_EQUAL(found_count, count);
    for (unsigned i = 0; i < found_count; i++) {
        CU_ASSERT_EQUAL(found[i].seq, first_seq + i);
        CU_ASSERT_EQUAL(found[i].record.block, (uint8_t)(first_byte + i));
        CU_ASSERT_EQUAL(found_byte[i], (uint8_t)(first_byte + i));
    }
}

static void set_changed(void *context)
{
    changes++;
}

void make_mirror(void)
{
    make_disks(2);
    OK(try_create(false));
    changes = 0;
    OK(try_open((struct plx_ring_options){.changed = set_changed}));
}

int reopen(unsigned first, unsigned count, bool alone)
{
    if (ring)
        close_ring();
    detach();
    attach(first, count);
    return try_open((struct plx_ring_options){.alone = alone, .changed = set_changed});
}

void append_and_close(void)
{
    struct plx_ring_chain *chain = open_chain(vdi_a, 1, 1, 0, 0);

    append_singly(chain, 1, 10);
    plx_ring_chain_close(chain);
    close_ring();
}

struct plx_ring_chain *open_bare(struct plx_uuid vdi, uint64_t epoch, uint64_t at_epoch,
                                 uint64_t at_seq)
{
    struct plx_ring_chain_options options = options_for(vdi, epoch, 1, at_epoch, at_seq);
    struct plx_ring_chain *chain = NULL;

    OK(plx_ring_chain_open(ring, &options, &chain, &fault));
    return chain;
}
