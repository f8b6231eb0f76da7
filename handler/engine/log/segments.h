/* segments.h - private to engine/log: what log.c calls in segments.c. The other functions of
 * segments.c are declared in log.h. */
#ifndef PLX_SEGMENTS_H
#define PLX_SEGMENTS_H

#include "engine/log/log.h"

/* Begins with the retained segments that the log has taken over. There is no spare segment before
 * plx_log_want_spare() allocates one. */
void plx_log_segments_init(struct plx_log *log);
/* Appends a segment's address to the list. Its place was reserved when it became the spare, so this
 * cannot fail (LOG-5). */
void plx_log_segments_push(struct plx_log *log, uint64_t addr);

#endif
