/* messages.h - the results and requests that the handler and the admin command exchange over the
 * control socket, one table of fields each.
 *
 * One side encodes a struct, the other side decodes it, both by the same table: what one side adds
 * the other side cannot forget.
 *
 *     json_t *result = plx_message_encode(plx_message_collected, &collected);
 *     ...
 *     rc = plx_message_decode(plx_message_collected, result, &collected, &fault);
 *
 * Handler and command may be of different versions. Every field is required unless its table says
 * LATER. A message that lacks a required field is refused, and nothing is done or believed by it: a
 * request without "dry_run" is no request to do it. Keys that no table names are ignored.
 *
 * Who adds a field, after a version without it is in use, has two ways:
 *     LATER(...)   a message without it is of an older program. The field decodes to zero, so zero
 *                  has to mean what older programs mean.
 *     FIELD(...)   older programs are refused, because there is no such meaning.
 */
#ifndef PLX_CONTROL_MESSAGES_H
#define PLX_CONTROL_MESSAGES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "engine/base/error.h"

struct plx_message_field {
    const char *key; /* the last one of a table has none */
    size_t offset;   /* in the struct */
    enum {
        PLX_MESSAGE_NUMBER, /* uint64_t */
        PLX_MESSAGE_COUNT,  /* unsigned */
        PLX_MESSAGE_FLAG,   /* bool */
        PLX_MESSAGE_SEQ,    /* uint64_t, the number of a snapshot: from 1 on */
    } kind;
    bool later; /* may be missing */
};

extern const struct plx_message_field plx_message_work[];      /* struct plx_attach_work's limits */
extern const struct plx_message_field plx_message_collected[]; /* struct plx_collected */
extern const struct plx_message_field plx_message_deduped[];   /* struct plx_attach_deduped */
extern const struct plx_message_field plx_message_thin[];      /* struct plx_thin, but its lists */
extern const struct plx_message_field plx_message_thinned[];   /* struct plx_thinned */
extern const struct plx_message_field plx_message_move[];      /* struct plx_move, as it is asked */
extern const struct plx_message_field plx_message_moved[];     /* ... and as it is answered */
extern const struct plx_message_field plx_message_ring[];      /* struct plx_ringed_info */
extern const struct plx_message_field plx_message_snapshot[];  /* struct plx_snapshot_info: which */

/* A new object; NULL: out of memory. */
json_t *plx_message_encode(const struct plx_message_field *fields, const void *from);
/* Sets the members that the table names, and leaves the others as they are. INVALID: a field is
 * missing, or is no such number or flag; nothing is set then. message may be NULL or no object. A
 * number beyond the member's type becomes the largest one. */
int plx_message_decode(const struct plx_message_field *fields, const json_t *message,
                       void *ret_struct, struct plx_fault *fault);

#endif
