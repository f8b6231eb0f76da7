/* fixture.h - what tests of the engine begin with: a store on a simulated disk, and one instance
 * that has it open. A test makes its own and ends it; what fails that must not ends the test.
 */
#ifndef PLX_UNIT_FIXTURE_H
#define PLX_UNIT_FIXTURE_H

#include "engine/engine.h"
#include "sim/simdisk.h"
#include "sim/simenv.h"

#define MIB (1ull << 20)
#define BLOCK 4096u

/* How stores are made and opened. */
struct fixture {
    struct plx_simdisk_options disk; /* its seed is the environment's, too */
    struct plx_format_options format;
    struct plx_store_options open;
    struct plx_device *(*attach)(void); /* the disk to be opened; NULL: as it is */
};
extern struct fixture fixture;

extern struct plx_simpower power;
extern struct plx_simdisk *disk;
/* A store with a second volume is opened with this one, too; NULL: it has one volume. */
extern struct plx_simdisk *second_disk;
extern struct plx_simenv env;
extern struct plx_simregistry registry;
extern struct plx_store *store;   /* NULL: closed */
extern struct plx_device *opened; /* the device that it has */
extern struct plx_fault fault;    /* why the last call failed */
extern uint64_t epoch;            /* with which a virtual disk was opened last */
extern uint8_t buffer[4 * MIB];   /* what is written and read */

/* A new disk, formatted, and opened by instance 1. */
void make_store(uint64_t bytes, uint64_t extent_bytes);
int try_open_store(uint64_t instance); /* 0: read-only */
void open_store(uint64_t instance);
void close_store(void);
/* Closes it as the last instance does: nobody has an extent any more. */
void leave_store(void);
/* A power cut: what is open is abandoned, and the next instance opens the store. */
void lose_power(void);
/* What other instances had, before it is known what the logs name. */
void adopt_extents(void);
/* All of that: the next instance takes all over. */
void crash_store(void);
/* The same, but what the disk caches stays. */
void kill_store(void);
/* Everything is closed; gives all extents up, and has the checker read everything. leaks: there may
 * be some. */
void check_store(bool leaks);
/* For a check of one's own: errors only. */
void print_finding(void *context, const struct plx_finding *finding);
/* Closes the store if it is open. The disk is gone. */
void end_store(void);
/* Of a closed store, which is opened for it and left: how many blocks came back. */
uint64_t collect_closed(void);
struct plx_counters counters(void);
/* Blocks in use in data extents, but for the extents' own pages. */
uint64_t data_used(void);
/* Another process makes the store larger by what the disk was made larger by: to so many extents.
 */
void grow_elsewhere(uint64_t extents);

/* No segment of a log can be allocated any more; until they are given back. */
void eat_segments(void);
void give_segments_back(void);
extern uint64_t eaten[4096]; /* what was taken for that */
extern size_t eaten_count;

/* Named v0, v1 and so on. */
int create_vdi(uint32_t slot, uint64_t bytes);
int clone_vdi(uint32_t slot, uint32_t parent, uint64_t seq);
int try_open_vdi(uint32_t slot, bool take_over, struct plx_vdi **ret_vdi);
struct plx_vdi *open_vdi(uint32_t slot);
/* What many tests begin with: a new store, and in it one disk of so many bytes, open. */
struct plx_vdi *make_with_vdi(uint64_t bytes, uint64_t extent_bytes, uint64_t vdi_bytes);
/* What was overwritten in place and has been quiet for so long gets its checksums back. */
struct plx_vdi *open_quiet(uint32_t slot, uint64_t quiet_ns);
/* With a turn whenever one is due. */
void pass_time(uint64_t ns);

/* A request that takes or fills `buffer`. ret_seq, which may be NULL: as it is even after an error.
 */
int try_run(struct plx_vdi *vdi, enum plx_request_op op, uint64_t offset, uint64_t length,
            uint64_t *ret_seq);
uint64_t run(struct plx_vdi *vdi, enum plx_request_op op, uint64_t offset, uint64_t length);
int write_byte(struct plx_vdi *vdi, uint64_t offset, uint64_t length, int byte);
bool reads_as(struct plx_vdi *vdi, uint64_t offset, uint64_t length, int byte);
/* One block, between plx_share_begin() and plx_share_end(). */
int try_share(struct plx_vdi *vdi, uint64_t block, struct plx_share *share);

#endif
