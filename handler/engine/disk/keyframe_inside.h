/* keyframe_inside.h - what keyframe.c and keyframe_steps.c share; the rules KEYFRAME-1 to
 * KEYFRAME-6 are keyframe.c's. */
#ifndef PLX_KEYFRAME_INSIDE_H
#define PLX_KEYFRAME_INSIDE_H

#include "engine/disk/keyframe.h"
#include "engine/disk/reserve.h"
#include "engine/disk/vdi.h"

enum {
    KEYFRAME_LOOK,
    KEYFRAME_START,
    KEYFRAME_TREE,
    KEYFRAME_INDEX_START,
    KEYFRAME_INDEX,
    KEYFRAME_BITMAPS,
    KEYFRAME_RECORD,
    KEYFRAME_FLUSHED,
    KEYFRAME_MIRRORED,
    KEYFRAME_ANNOUNCED,
    KEYFRAME_FREE,
};

/* keyframe_steps.c */
void plx_keyframe_step(struct plx_task *task);

/* keyframe.c */
int plx_keyframe_index_begin(struct plx_keyframe_op *op);
void plx_keyframe_finish(struct plx_keyframe_op *op, int error);
void plx_keyframe_give_up(struct plx_keyframe_op *op, int error);

#endif
