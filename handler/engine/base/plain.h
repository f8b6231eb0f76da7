/* plain.h - text of others made plain: for terminals, logs and messages.
 *
 * Names, paths and findings may come from a store or a command line of somebody who means harm. A
 * name may hold anything but NUL: a newline that begins a forged line of a log, or what a terminal
 * obeys. Where text leaves the process, such bytes become \xNN, and the rest stays as it is. Text
 * that is plain already does not change, so nothing is escaped twice.
 *
 * No state, any thread.
 */
#ifndef PLX_PLAIN_H
#define PLX_PLAIN_H

#include <stddef.h>

/* Steps *at, which is not at the end, over one character, or over bytes that are to be escaped.
 * Returns how many bytes those are; *ret_escaped: as many, or 0. */
unsigned plx_plain_step(const char **at, unsigned *ret_escaped);
/* The text, escaped. Ends before what does not fit as a whole. Returns ret_text. */
char *plx_plain(const char *text, char *ret_text, size_t size);
/* The text as one word of a shell's command line: for a path in a command that is advised. Ends
 * before what does not fit as a whole, and is a word then, too. Returns ret_text. */
#define PLX_WORD_TEXT 320
char *plx_plain_word(const char *text, char *ret_text, size_t size);

#endif
