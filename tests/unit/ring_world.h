/* ring_world.h - what tests of a ring's device part begin with: simulated devices that share their
 * power, a ring of one or two of them, chains of two disks, and what the store says of these.
 *
 *     make_ring(1);
 *     chain = open_chain(vdi_a, 1, 1, 0, 0);
 *     append_singly(chain, 1, 3);
 *     plx_ring_chain_close(chain);
 *     OK(reopen(0, 1, false));
 *     OK(scan_code(vdi_a, 2, 1, 0, 0));
 *     expect_found(1, 1, 3);
 *     end_ring();
 */
#ifndef PLX_RING_WORLD_H
#define PLX_RING_WORLD_H

#include <stdlib.h>
#include <string.h>

#include "engine/ring/ring.h"
#include "ok.h"
#include "sim/simdisk.h"
#include "sim/simenv.h"
#include "suite.h"

#define BLOCK PLX_BLOCK_SIZE
#define SEGMENT_BLOCKS 16u
#define SEGMENTS 8u
#define SEGMENT_BYTES (SEGMENT_BLOCKS * (uint64_t)BLOCK)
#define RING_BYTES (PLX_RING_SEGMENTS_AT + SEGMENTS * SEGMENT_BYTES)
#define ITEMS 4096u

extern const struct plx_uuid vdi_a, vdi_b;
extern struct plx_simpower power;
extern struct plx_simdisk *disks[3]; /* the third one is no member at first */
extern struct plx_device *devices[3];
extern uint64_t disk_seed; /* in which order requests end */
extern unsigned members;   /* that are attached */
extern struct plx_simenv env;
extern struct plx_ring *ring;
extern struct plx_fault fault;
/* The marks of both disks on the store; the first epoch that they claim is each test's. */
extern struct plx_ring_mark marks[2];
extern struct plx_ring_chain *chain_b; /* of vdi_b; all others are vdi_a's */

/* What was appended: record i of a disk is a WRITE of block i with this byte, unless it says other.
 */
extern struct plx_ring_item items[ITEMS];
extern _Alignas(BLOCK) uint8_t contents[ITEMS][BLOCK];
extern struct iovec iovs[ITEMS];
extern unsigned used, done;
extern uint64_t last_done;
extern int last_error;

/* What was found. */
extern struct plx_ring_found found[ITEMS];
extern uint8_t found_byte[ITEMS];
extern unsigned found_count;

extern unsigned changes; /* of the set, that the ring has told */

void attach(unsigned first, unsigned count);
void detach(void);
void make_disks(unsigned count);
int try_create(bool replace);
int try_open(struct plx_ring_options options);
void open_ring(void);
void close_ring(void);
void make_ring(unsigned count);
void end_ring(void);
struct plx_ring_info ring_info(void);
uint64_t set_of_ring(void);
struct plx_ring_chain_info chain_info(const struct plx_ring_chain *chain);
struct plx_ring_chain_options options_for(struct plx_uuid vdi, uint64_t epoch, uint64_t since,
                                          uint64_t at_epoch, uint64_t at_seq);
/* The store's mark is the ring's, as it is now, and the chain learns that. */
void mark(struct plx_ring_chain *chain);
void unmark(struct plx_ring_chain *chain);
void prove(struct plx_ring_chain *chain);
struct plx_ring_chain *open_chain(struct plx_uuid vdi, uint64_t epoch, uint64_t since,
                                  uint64_t at_epoch, uint64_t at_seq);
int scan_code(struct plx_uuid vdi, uint64_t epoch, uint64_t since, uint64_t at_epoch,
              uint64_t at_seq);
void item_done(struct plx_ring_item *item);
struct plx_ring_item *append(struct plx_ring_chain *chain, uint8_t byte);
void run(void);
/* One by one, so that each is a batch. */
void append_singly(struct plx_ring_chain *chain, uint8_t first, unsigned count);
/* Records first_seq and so on were found, with these bytes. */
void expect_found(uint64_t first_seq, uint8_t first_byte, unsigned count);
/* A ring of two. */
void make_mirror(void);
/* The ring is opened with some of its members, in this order. */
int reopen(unsigned first, unsigned count, bool alone);
/* 10 records, one by one; the ring is closed. */
void append_and_close(void);
struct plx_ring_chain *open_bare(struct plx_uuid vdi, uint64_t epoch, uint64_t at_epoch,
                                 uint64_t at_seq);

#endif
