/* bench.h - one store on one simulated disk, its virtual disks, and what they must contain.
 *
 * Everything a test does to a virtual disk goes through here, so that the model (sim/oracle.h)
 * hears of it. What fails leaves the model undecided between before and after; bench_verify()
 * reads, accepts either, and from then on insists.
 */
#ifndef PLX_FAULT_BENCH_H
#define PLX_FAULT_BENCH_H

#include "engine/engine.h"
#include "engine/ring/ringed.h"
#include "fault/faultdev.h"
#include "sim/oracle.h"
#include "sim/simenv.h"

#define KIB 1024ull
#define MIB (1024ull * KIB)
#define BLOCK 4096u
#define BENCH_DISKS 4u
#define BENCH_SNAPS 24u
#define BENCH_EXTENT MIB
#define BENCH_SEGMENT (16 * KIB)

/* Something that a failed call may or may not have done. */
enum fate {
    FATE_NO,
    FATE_YES,
    FATE_MAYBE,
};

struct bench_disk {
    uint32_t slot;
    enum fate exists, labelled; /* labelled: "two" names the newest snapshot */
    bool write_back;
    uint64_t size, maybe_size; /* maybe_size 0: size is certain */
    uint64_t labels, label_seq;
    struct plx_vdi *vdi;
    struct plx_oracle *oracle;
    struct {
        struct plx_view *view;
        uint64_t size;
        enum fate stays;
    } snaps[BENCH_SNAPS]; /* of sequence number index + 1 */
    unsigned snap_count;
    bool last_maybe; /* whether the newest of them exists is not known */
    unsigned rewinds;
    uint64_t rewinding; /* to this snapshot, or not: it failed; 0: all is known */
    enum fate far;      /* far_id is written far behind what the oracle covers */
    uint64_t far_id;
};

struct bench {
    struct plx_simpower power;
    struct plx_simdisk *disk;
    struct fault_plan plan;
    struct plx_simenv env;
    struct plx_simregistry registry;
    struct plx_store *store;
    struct plx_fault fault;
    struct bench_disk disks[BENCH_DISKS];
    uint64_t epoch, ids, turns;
    struct {
        struct plx_request request;
        struct iovec iov;
        uint8_t *buffer;
        uint64_t token;
        unsigned done;
        bool submitted;
    } neighbour;
    /* Of disk 0; bench_ring.c. */
    struct {
        struct plx_simdisk *disks[PLX_RING_MEMBERS];
        struct plx_device *devices[PLX_RING_MEMBERS]; /* attached */
        unsigned members;                             /* that it is opened with */
        bool made;                                    /* whatever is opened is opened with it */
        uint64_t memory;                              /* of its records; 0: the default */
        struct plx_ring *ring;
        struct plx_ringed_host *host;
        struct plx_ringed *ringed; /* disk 0 is open with it */
    } ring;
    uint64_t heals_in; /* turns; then nothing fails any more; 0: not by itself */
    uint8_t *buffer;
    unsigned failures;
};

/* Prints a failure. Returns whether the condition holds. */
bool bench_expect(struct bench *b, bool condition, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A blank disk; or one with an empty store and virtual disks 0 and 1 on it. */
void bench_init(struct bench *b, bool formatted, uint64_t seed);
/* Everything open is dropped. */
void bench_done(struct bench *b);

int bench_format(struct bench *b, bool force);
int bench_open_store(struct bench *b, uint64_t instance); /* 0: read-only */
/* Takes over what other instances hold: adopts, marks, and makes the extents usable. */
int bench_adopt(struct bench *b);
int bench_create(struct bench *b, unsigned n, uint64_t size);
int bench_clone(struct bench *b, unsigned n, unsigned parent, uint64_t seq);
int bench_delete(struct bench *b, unsigned n);
int bench_open(struct bench *b, unsigned n, bool take_over);
int bench_close(struct bench *b, unsigned n);
int bench_release(struct bench *b);     /* all extents */
int bench_close_store(struct bench *b); /* the store is closed, whatever is returned */
/* Closes everything as a power cut would, and turns the power on again. */
void bench_crash(struct bench *b);

int bench_write(struct bench *b, unsigned n, uint64_t offset, uint64_t length);
/* What the write before wrote: on another disk, at the same place, its blocks are equal. */
int bench_write_again(struct bench *b, unsigned n, uint64_t offset, uint64_t length);
int bench_compare_write(struct bench *b, unsigned n, uint64_t offset, uint64_t length);
/* From the disk's beginning. */
int bench_move(struct bench *b, unsigned n, uint64_t length);
int bench_unmap(struct bench *b, unsigned n, uint64_t offset, uint64_t length);
int bench_snapshot(struct bench *b, unsigned n);
int bench_label(struct bench *b, unsigned n); /* "two" */
int bench_flush(struct bench *b, unsigned n);
int bench_keyframe(struct bench *b, unsigned n);
int bench_resize(struct bench *b, unsigned n, uint64_t size);
int bench_rewind(struct bench *b, unsigned n, uint64_t seq);
/* Lets one snapshot go. */
int bench_thin(struct bench *b, unsigned n, uint64_t seq);
int bench_write_far(struct bench *b, unsigned n);
/* Reads and compares. Not read: the error; wrong: a failure. */
int bench_read(struct bench *b, unsigned n, uint64_t offset, uint64_t length);
int bench_read_snapshot(struct bench *b, unsigned n, uint64_t seq); /* 0: newest */
int bench_list(struct bench *b, unsigned n);
int bench_list_labels(struct bench *b, unsigned n);
/* The newest snapshot by time; when the first blocks were changed; what differs from snapshot seq.
 */
int bench_find(struct bench *b, unsigned n);
int bench_changes(struct bench *b, unsigned n);
int bench_diff(struct bench *b, unsigned n, uint64_t seq);
int bench_map_runs(struct bench *b, unsigned n);

/* The ring; while it is open, disk 0 is opened with it. Changes need no store to be acknowledged
 * while that is held. */
int bench_ring_create(struct bench *b, unsigned members, bool replace);
int bench_ring_open(struct bench *b, bool alone);
void bench_ring_close(struct bench *b);
void bench_ring_done(struct bench *b);
int bench_ring_open_disk(struct bench *b, const struct plx_vdi_open_options *options);
void bench_ring_leave_disk(struct bench *b);
int bench_ring_on(struct bench *b);
int bench_ring_off(struct bench *b);
int bench_ring_repair(struct bench *b);
struct plx_ring_info bench_ring_info(const struct bench *b);
void bench_ring_bring_back(struct bench *b);

/* A write to disk 1, in flight during whatever comes; done exactly once when all has settled. */
void bench_neighbour_begin(struct bench *b);
void bench_neighbour_end(struct bench *b);
/* Until nothing is under way. */
void bench_settle(struct bench *b);

/* After a fault: everything is open again, stopped disks are opened again, what was undecided is
 * decided; all must succeed. */
void bench_bring_back(struct bench *b);
void bench_verify(struct bench *b);
/* Closes all, and has the checker look at the store. */
void bench_finish(struct bench *b, uint64_t *ret_leaked);

#endif
