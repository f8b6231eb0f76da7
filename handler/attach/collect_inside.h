/* collect_inside.h - what attach_collect.c, collect_mark.c, collect_sweep.c and collect_ground.c
 * share; the rules are attach_collect.c's. */
#ifndef PLX_COLLECT_INSIDE_H
#define PLX_COLLECT_INSIDE_H

#include "attach/attach_inside.h"
#include "attach/doors.h"
#include "registry/clock.h"
#include "registry/collections.h"
#include "registry/embedded.h"
#include "registry/instance.h"

#define MEMORY_DEFAULT (256ull << 20)
#define ROUNDS_MAX 4u /* ATTACH_COLLECT-4 */

struct extents {
    struct plx_registry_extent *rows; /* by number */
    size_t count;
};

struct collect {
    struct plx_attach *attach;
    struct plx_attach_inside in;
    const struct plx_attach_work *work;
    struct plx_collected *result;
    struct plx_fault *fault;
    uint64_t extent_blocks, extent_count;
    uint64_t *living; /* instances */
    size_t living_count;
    struct extents before; /* as the reading at hand begins */
    uint8_t *classes;      /* enum plx_collect_extent of each, in the slice at hand */
    uint8_t *moved;        /* of each: ATTACH_COLLECT-4 */
    uint64_t *bits;        /* of one extent */
    uint64_t metadata_total, metadata_before; /* bytes; read in slices before */
    uint64_t to_sweep;
};

/* collect_mark.c */
void plx_collecting_end_mark(struct collect *c, struct plx_collect *mark);
int plx_collecting_mark_slice(struct collect *c, uint64_t from, uint64_t *ret_next,
                              struct plx_collect **ret_mark);

/* collect_sweep.c */
int plx_collecting_judge_slice(struct collect *c, struct plx_collect *mark);
int plx_collecting_sweep(struct collect *c);

/* collect_ground.c */
int plx_collecting_no_memory(const struct collect *c);
void plx_collecting_on_progress(void *context, uint64_t metadata_bytes);
void plx_collecting_on_pause(void *context);
bool plx_collecting_on_interrupted(void *context);
int plx_collecting_list_living(struct collect *c);
int plx_collecting_list_extents(const struct collect *c, struct extents *ret_extents);
const struct plx_registry_extent *plx_collecting_row_of(const struct extents *extents,
                                                        uint64_t number);
bool plx_collecting_in_use(const struct plx_registry_extent *row);
bool plx_collecting_is_ours(const struct collect *c, const struct plx_registry_extent *row);

#endif
