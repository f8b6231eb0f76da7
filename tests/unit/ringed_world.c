/* ringed_world.c - see ringed_world.h. */
#include "unit/ringed_world.h"

#include "ok.h"

struct plx_simpower ring_power;
struct plx_simdisk *ring_disk, *mirror_disk;
struct plx_ring *ring;
struct plx_ringed_host *host;
struct plx_ringed *ringed;
struct plx_vdi *vdi;
struct plx_simrng rng;
int overwrite = -1;
bool mirrored;
unsigned ring_segments = SEGMENTS;
unsigned turns_left;
uint64_t memory_limit;
static struct plx_device *ring_devices[2];
static unsigned members; /* attached */

/* ---- The ring ---- */

static void attach_members(void)
{
    members = mirror_disk ? 2 : 1;
    ring_devices[0] = plx_simdisk_attach(ring_disk, "ring");
    if (mirror_disk)
        ring_devices[1] = plx_simdisk_attach(mirror_disk, "mirror");
}

static void detach_members(void)
{
    for (unsigned m = 0; m < members; m++)
        ring_devices[m]->ops->close(ring_devices[m]);
}

void open_ring(void)
{
    attach_members();
    OK(plx_ring_open(ring_devices, members, &(struct plx_ring_options){.env = &env.env}, &ring,
                     &fault));
    OK(plx_ringed_host_new(store, ring, &host));
}

void close_ring(void)
{
    plx_ringed_host_free(host);
    plx_ring_close(ring);
    detach_members();
    host = NULL;
    ring = NULL;
}

static struct plx_simdisk *make_ring_disk(uint64_t seed)
{
    return plx_simdisk_new(&(struct plx_simdisk_options){.bytes = RING_BYTES,
                                                         .block_size = 512,
                                                         .volatile_cache = true,
                                                         .patience = 20,
                                                         .seed = seed},
                           &ring_power);
}

static void make_ring(void)
{
    memset(&ring_power, 0, sizeof ring_power);
    ring_disk = make_ring_disk(fixture.disk.seed);
    mirror_disk = mirrored ? make_ring_disk(fixture.disk.seed + 1) : NULL;
    attach_members();
    OK(plx_ring_create(ring_devices, members,
                       &(struct plx_ring_create_options){
                           .env = &env.env, .host_name = "alpha", .segment_blocks = SEGMENT_BLOCKS},
                       &fault));
    detach_members();
    open_ring();
}

int try_open(bool take_over)
{
    struct plx_vdi_open_options options = {
        .slot = 0, .epoch = ++epoch, .take_over = take_over, .overwrite = overwrite};
    int error = plx_ringed_open(host, &options, &vdi, &ringed, &fault);

    if (!error && memory_limit)
        plx_ringed_set_memory(ringed, memory_limit);
    return error;
}

/* A store with a disk, and a ring; off. */
void make(uint64_t seed)
{
    fixture.disk.seed = seed;
    rng = (struct plx_simrng){seed};
    turns_left = 200000;
    vdi = make_with_vdi(64 * MIB, MIB, SIZE);
    OK(plx_vdi_close(vdi));
    OK(plx_store_allow_ring(store, &fault));
    make_ring();
    OK(try_open(false));
}

void close_disk(void)
{
    plx_ringed_close(ringed);
    OK(plx_vdi_close(vdi));
}

void end(bool leaks)
{
    close_ring();
    check_store(leaks);
    end_store();
    plx_simdisk_free(ring_disk);
    if (mirror_disk)
        plx_simdisk_free(mirror_disk);
}

struct plx_ringed_info info_of(void)
{
    struct plx_ringed_info info;

    plx_ringed_get_info(ringed, &info);
    return info;
}

void turn(void)
{
    CU_ASSERT_FATAL(turns_left-- > 0);
    if (!plx_store_tick(store))
        plx_store_wait(store);
}

void some_turns(unsigned turns)
{
    while (turns--)
        turn();
}

struct plx_vdi_info vdi_info(void)
{
    struct plx_vdi_info info;

    plx_vdi_get_info(vdi, &info);
    return info;
}

bool is_marked(void)
{
    struct plx_vdi_info info = vdi_info();

    return plx_ring_is_marked(&info.mark);
}

/* The store answers only when nothing else is to be waited for. */
void hold_store(bool hold)
{
    plx_simdisk_set_patience(disk, hold ? 100 : 20);
}

/* They lie at the beginning of the extent at whose end the log's segments are. */
void fail_nodes(void)
{
    uint64_t extent = vdi->log.cursor.addr * BLOCK / MIB;

    plx_simdisk_fail_range(disk, extent * MIB + (uint64_t)2 * BLOCK, MIB / 4, false, true);
}

/* The host's process dies, or closes a disk that has stopped; caches keep what they have. */
void die(void)
{
    plx_ringed_close(ringed);
    plx_vdi_abandon(vdi);
    close_ring();
    kill_store();
}

/* ---- Requests ---- */

static void sent_done(struct plx_request *request)
{
    struct sent *sent = request->owner;

    sent->under_way = false;
}

uint64_t below(uint64_t n)
{
    return plx_simrng_below(&rng, n);
}

void submit(struct sent *sent, enum plx_request_op op, uint64_t offset, uint64_t length,
            size_t bytes)
{
    size_t first = bytes ? below(bytes) : 0, second = first + (bytes ? below(bytes - first) : 0);

    sent->iov[0] = (struct iovec){sent->memory, first};
    sent->iov[1] = (struct iovec){sent->memory + first, second - first};
    sent->iov[2] = (struct iovec){sent->memory + second, bytes - second};
    sent->request = (struct plx_request){.op = op,
                                         .offset = offset,
                                         .length = length,
                                         .iov = sent->iov,
                                         .iovcnt = 3,
                                         .done = sent_done,
                                         .owner = sent};
    sent->under_way = true;
    sent->expected = 0;
    plx_vdi_submit(vdi, &sent->request);
}

void submit_byte(struct sent *sent, uint64_t block, uint64_t blocks, int byte)
{
    sent->memory = malloc(blocks * BLOCK);
    memset(sent->memory, byte, blocks * BLOCK);
    submit(sent, PLX_WRITE, block * BLOCK, blocks * BLOCK, blocks * BLOCK);
}
