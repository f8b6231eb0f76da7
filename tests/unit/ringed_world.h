/* ringed_world.h - what tests of a disk with a ring begin with: a store with one disk, and a ring
 * of one or two members. Store and ring have devices, caches and power of their own.
 *
 *     make(seed);
 *     OK(plx_ringed_on(ringed, &fault));
 *     OK(write_byte(vdi, 0, BLOCK, 1));
 *     close_disk();
 *     end(false);
 */
#ifndef PLX_RINGED_WORLD_H
#define PLX_RINGED_WORLD_H

#include <stdlib.h>
#include <string.h>

#include "engine/disk/vdi.h"
#include "engine/ring/ringed.h"
#include "unit/fixture.h"

#define SIZE (MIB + 512) /* the last block is there in part only */
#define BLOCKS 257u
#define SECTOR 512u
#define SEGMENT_BLOCKS 16u
#define SEGMENTS 12u
#define RING_BYTES (PLX_RING_SEGMENTS_AT + ring_segments * SEGMENT_BLOCKS * (uint64_t)BLOCK)

extern struct plx_simpower ring_power;
extern struct plx_simdisk *ring_disk, *mirror_disk; /* the second one of a mirror; NULL: none */
extern struct plx_ring *ring;
extern struct plx_ringed_host *host;
extern struct plx_ringed *ringed;
extern struct plx_vdi *vdi;
extern struct plx_simrng rng;
extern int overwrite;
extern bool mirrored;          /* rings that are made are */
extern unsigned ring_segments; /* that they have */
extern unsigned turns_left;    /* of a test: nothing goes on for ever */
extern uint64_t memory_limit;  /* of the records; 0: the default */

/* A store with a disk, and a ring; off. */
void make(uint64_t seed);
void open_ring(void);
void close_ring(void);
int try_open(bool take_over);
void close_disk(void);
void end(bool leaks);
struct plx_ringed_info info_of(void);
struct plx_vdi_info vdi_info(void);
bool is_marked(void);
void turn(void);
void some_turns(unsigned turns);
/* The store answers only when nothing else is to be waited for. */
void hold_store(bool hold);
/* No key frame can be written, because its nodes cannot; data and log can. */
void fail_nodes(void);
/* The host's process dies, or closes a disk that has stopped; caches keep what they have. */
void die(void);
uint64_t below(uint64_t n); /* random */

struct sent {
    struct plx_request request;
    struct iovec iov[3];
    uint8_t *memory;
    bool under_way;
    int expected;
};
/* bytes: of its memory. */
void submit(struct sent *sent, enum plx_request_op op, uint64_t offset, uint64_t length,
            size_t bytes);
/* A WRITE of whole blocks; its memory is the caller's to free. */
void submit_byte(struct sent *sent, uint64_t block, uint64_t blocks, int byte);

#endif
