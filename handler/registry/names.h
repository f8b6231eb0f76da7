/* names.h - what stores, VDIs and labels may be called; random identities. Stateless. */
#ifndef PLX_NAMES_H
#define PLX_NAMES_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"

#define PLX_UUID_TEXT 37 /* 36 characters and the 0 */

/* kind: "store", "vdi" or "label". Stores and VDIs: [A-Za-z0-9][A-Za-z0-9._-]*, up to 63 and 255
 * characters; a store's name must not look like a UUID. A label starts with a letter (a digit
 * would read as a sequence number or a time), and ".." is no part of it (that is a range); up to
 * 127 characters. Returns 0, or PLX_ERR_INVALID and why: one sentence that says what is allowed. */
int plx_name_check(const char *kind, const char *name, char *why, size_t size);

/* Whether text is a UUID as we write it: 36 characters, lower case. */
int plx_uuid_check(const char *text);
/* Random version 4 UUID; random number from 1 to 2^63-1. From the kernel; they cannot fail. */
void plx_uuid_random(char ret_text[PLX_UUID_TEXT]);
uint64_t plx_id_random(void);

#endif
