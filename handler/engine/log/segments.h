/* segments.h - what log.c asks of segments.c. Private to engine/log; the rest is in log.h. */
#ifndef PLX_SEGMENTS_H
#define PLX_SEGMENTS_H

#include "engine/log/log.h"

/* Of a log whose retained segments were taken over; the spare comes with plx_log_want_spare(). */
void plx_log_segments_init(struct plx_log *log);
/* Enters the next segment; its place was reserved when it became the spare. */
void plx_log_segments_push(struct plx_log *log, uint64_t addr);

#endif
