/* names.h - what stores, VDIs and labels may be called; random identities. No state, any thread.
 *
 *   kind     allowed                                             at most
 *   store    [A-Za-z0-9][A-Za-z0-9._-]*, must not look like a    63 characters
 *            UUID
 *   vdi      [A-Za-z0-9][A-Za-z0-9._-]*                          255
 *   label    [A-Za-z][A-Za-z0-9._-]*, without ".."               127
 *
 * Labels that begin with "import-" or "before-rewind-" are the program's own: plx_label_check().
 *
 * A label begins with a letter, since a digit would read as a sequence number or a time. It has no
 * "..", since that reads as a range.
 */
#ifndef PLX_NAMES_H
#define PLX_NAMES_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "engine/base/identity.h"

/* kind: "store", "vdi" or "label". Returns 0, or PLX_ERR_INVALID and in `why` one sentence that
 * says what is allowed. */
int plx_name_check(const char *kind, const char *name, char *why, size_t size);
/* The same of a label that somebody gives to a snapshot. Those that the program gives itself, and
 * means something by, are refused (NAMES-2). */
int plx_label_check(const char *label, char *why, size_t size);
/* Makes an untrusted name safe for a drawing or another program's syntax: characters that no valid
 * name has become '?'. Returns ret_text. */
const char *plx_name_plain(const char *name, char *ret_text, size_t size);

/* A random version 4 UUID, and a random number from 1 to 2^63-1, from the kernel. Neither fails. */
void plx_uuid_random(char ret_text[PLX_UUID_TEXT]);
uint64_t plx_id_random(void);

#endif
