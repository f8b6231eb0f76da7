/* keyframe_inside.h - what the keyframe*.c files share. KEYFRAME-1 to KEYFRAME-6 are at
 * the top of keyframe.c, the states in keyframe_steps.c. */
#ifndef PLX_KEYFRAME_INSIDE_H
#define PLX_KEYFRAME_INSIDE_H

#include "engine/disk/keyframe.h"
#include "engine/disk/reserve.h"
#include "engine/disk/vdi.h"

enum {
    KEYFRAME_LOOK,        /* 1: begun */
    KEYFRAME_START,       /* 2: the store's record is being read */
    KEYFRAME_TREE,        /* 3: the tree is being built */
    KEYFRAME_INDEX_START, /* 4: the tree is built */
    KEYFRAME_INDEX,       /* 5: the log's index is being built */
    KEYFRAME_BITMAPS,     /* 6: allocation bitmaps are being written and flushed */
    KEYFRAME_RECORD,      /* 7: the new record is being written */
    KEYFRAME_FLUSHED,     /* 8: the new record is being flushed */
    KEYFRAME_MIRRORED,    /* 9: the record's mirror copy is being written */
    KEYFRAME_MARKED,      /* 10: a mark's mirror copy is being flushed */
    KEYFRAME_ANNOUNCED,   /* 11: the announcement is being logged */
    KEYFRAME_FREE,        /* 12: operations that may read what died have not ended */
};

/* keyframe_steps.c: goes on from the task's state. */
void plx_keyframe_step(struct plx_task *task);

/* A key frame that failed is not tried again at once. */
bool plx_keyframe_may_retry(const struct plx_keyframe_op *op);
/* Begins the tree of the log's index. */
int plx_keyframe_index_begin(struct plx_keyframe_op *op);
/* Ends the key frame; the same after an error before the record is in effect. */
void plx_keyframe_finish(struct plx_keyframe_op *op, int error);
void plx_keyframe_give_up(struct plx_keyframe_op *op, int error);

#endif
