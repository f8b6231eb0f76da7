/* thinning.h - a disk whose snapshots are let go, another process that reads it, and what all of
 * them must hold.
 */
#ifndef PLX_UNIT_THINNING_H
#define PLX_UNIT_THINNING_H

#include "engine/log/replay.h"
#include "engine/disk/vdi.h" /* to see key frames under way */
#include "fault/faultdev.h"
#include "unit/fixture.h"

#define SEGMENT (16u << 10)
#define PLACES 96u /* blocks that are written: more leaves than the reader's cache has nodes */
#define APART 512u
#define SNAPS 400u
#define SECOND_NS 1000000000ull

/* What main() begins with: devices that fail, and let somebody come, as `plan`, `meanwhile` and
 * `on_its_way` say. */
void prepare_thinning(void);

/* A disk in one process, and another process that reads it. */
extern struct plx_simenv reader_env;
extern struct plx_store *reader;
extern struct plx_vdi *vdi;
extern struct fault_plan plan; /* what fails, of the disk's own process */

/* What it holds, and held at each snapshot. */
struct model {
    uint8_t now[PLACES], then[SNAPS][PLACES];
    uint64_t newest;
    unsigned writes;
};
extern struct model model;

/* What somebody else does, once, between two turns of the loop: when it waits for the count-th time
 * while history is let go, or an instant is being opened. */
struct meanwhile {
    void (*act)(void);
    unsigned count;
};
extern struct meanwhile meanwhile;

/* The next segment's header does not get to the disk. */
struct on_its_way {
    bool wanted;
    struct plx_io *io;
};
extern struct on_its_way on_its_way;
extern const struct plx_device_ops *planned_ops;

void open_reader(void);
void make_disk(void);
void end_disk(bool leaks);

int write_place(unsigned place);
/* So many places, one after the other. */
void write_places(unsigned count);
void note_snapshot(uint64_t seq);
uint64_t snapshot(void);
void keyframe(void);
/* A snapshot that is logged after a key frame's position, and before the log announces it. */
uint64_t keyframe_around_snapshot(void);
extern unsigned unmap_between; /* so many blocks, before that snapshot */
bool place_is(struct plx_vdi *v, unsigned place, uint8_t byte);
bool holds(struct plx_vdi *v, const uint8_t *places);
/* Read in the other process. */
void expect_snapshot(uint64_t seq);
void expect_no_snapshot(uint64_t seq);
/* All that is asked for, slice by slice. Returns how many went. */
uint64_t let_go(uint64_t after, uint64_t upto, const uint64_t *kept, size_t kept_count);

/* The naive twin of opening an instant: through which key frame each is read, from the whole log;
 * 0: there is no such snapshot. */
struct order {
    uint64_t root[SNAPS];
    unsigned skips;
};
void read_order(struct order *ret_order);
uint64_t root_of(uint64_t seq);
bool contains(const uint64_t *list, size_t count, uint64_t seq);
void expect_order(const struct order *before, const uint64_t *held, size_t held_count);
/* Right before the end of a log segment. */
void approach_end(void);
/* Key frames of which each is frozen before a snapshot and announced behind it, every other one in
 * the next segment. */
size_t write_history(unsigned rounds, uint64_t *ret_between);

bool allocated(uint64_t addr, uint64_t blocks);
/* Somebody else's bytes in all blocks that are free. */
void write_over_free(void);

#endif
