/* properties.h - what tests of single properties of the engine ask of the fixture's store. */
#ifndef PLX_UNIT_PROPERTIES_H
#define PLX_UNIT_PROPERTIES_H

#include "engine/disk/vdi.h"
#include "unit/fixture.h"

#define MS 1000000ull

/* All extents that somebody has are this instance's now. */
void adopt_all(void);
uint64_t all_writes(const struct plx_counters *c);
uint64_t all_reads(const struct plx_counters *c);
/* Until nothing is under way any more. */
void settle(void);
/* The disk's place of the only block that holds this byte throughout; 0: none. */
uint64_t find_block(int byte);
/* Callbacks that count in a uint64_t and in an unsigned. */
void count_mapping(void *context, uint64_t vblock, const struct plx_mapping *mapping);
bool count_snapshot(void *context, const struct plx_snapshot_info *info);
/* Of this instance. */
size_t owned_extents(void);
/* The first of the block that begins there. */
int byte_at(struct plx_vdi *vdi, uint64_t offset);
/* Block 0 of v0 begins with it. */
void expect_instant(uint64_t seq, int byte);

#endif
