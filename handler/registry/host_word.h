/* host_word.h - how messages name a host. The name lies on a store or on a ring, so it may be
 * anything.
 *
 * No state, any thread.
 */
#ifndef PLX_HOST_WORD_H
#define PLX_HOST_WORD_H

#include "engine/engine.h"

#define PLX_HOST_WORD 65

/* Behind --from in a command that is advised: the name as one word of a shell, or the id where that
 * word would be empty or too long, could not be typed, or would mean something else. Returns
 * ret_text. */
const char *plx_host_word(const char *name, const struct plx_uuid *id,
                          char ret_text[PLX_HOST_WORD]);
/* In a sentence: the name, or the id where that is empty. Returns one of the two. */
const char *plx_host_called(const char *name, const struct plx_uuid *id,
                            char ret_text[PLX_HOST_WORD]);

#endif
