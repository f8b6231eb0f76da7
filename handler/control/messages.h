/* messages.h - the results and requests that the handler and the admin command exchange over the
 * control socket, one table of fields each.
 *
 * One side encodes a struct, the other side decodes it, both by the same table: what one side adds
 * the other side cannot forget. A key that is missing in a message, which an older program has
 * sent, decodes to zero, and so does a number that is negative.
 *
 *     json_t *result = plx_message_encode(plx_message_collected, &collected);
 *     ...
 *     plx_message_decode(plx_message_collected, result, &collected);
 */
#ifndef PLX_CONTROL_MESSAGES_H
#define PLX_CONTROL_MESSAGES_H

#include <jansson.h>
#include <stddef.h>

struct plx_message_field {
    const char *key; /* the last one of a table has none */
    size_t offset;   /* in the struct */
    enum {
        PLX_MESSAGE_NUMBER, /* uint64_t */
        PLX_MESSAGE_COUNT,  /* unsigned */
        PLX_MESSAGE_FLAG,   /* bool */
    } kind;
};

extern const struct plx_message_field plx_message_collected[]; /* struct plx_collected */
extern const struct plx_message_field plx_message_deduped[];   /* struct plx_attach_deduped */
extern const struct plx_message_field plx_message_thin[];      /* struct plx_thin, but its lists */
extern const struct plx_message_field plx_message_thinned[];   /* struct plx_thinned */
extern const struct plx_message_field plx_message_move[];      /* struct plx_move, as it is asked */
extern const struct plx_message_field plx_message_moved[];     /* ... and as it is answered */

/* A new object; NULL: out of memory. */
json_t *plx_message_encode(const struct plx_message_field *fields, const void *from);
/* Sets the members that the table names, and leaves the others as they are. message may be NULL. */
void plx_message_decode(const struct plx_message_field *fields, const json_t *message,
                        void *ret_struct);

#endif
