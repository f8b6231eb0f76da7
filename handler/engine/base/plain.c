/* plain.c - see plain.h.
 *
 * PLAIN-1  What is not escaped is UTF-8 of characters that neither move the cursor, begin a line
 *     nor turn the direction of writing. Bytes that are no UTF-8 are escaped one by one, so what is
 *     behind them is still recognised.
 * PLAIN-2  A word has a backslash before each byte of ASCII that a shell might not take as it is.
 *     Quotes would end in the quotes that a command stands in, and a shell obeys `!` in them.
 * Threads: any. No state, no crash story.
 */
#include "engine/base/plain.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* The bytes of the character of UTF-8 at the beginning; 0: it is none. */
static unsigned read_character(const char *text, uint32_t *ret_code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char first = (unsigned char)*text;
    unsigned length = first < 0x80             ? 1
                      : (first & 0xe0) == 0xc0 ? 2
                      : (first & 0xf0) == 0xe0 ? 3
                      : (first & 0xf8) == 0xf0 ? 4
                                               : 0;
    uint32_t code = length == 1 ? first : first & (0x7fu >> length);

    for (unsigned i = 1; i < length; i++) {
        if (((unsigned char)text[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | ((unsigned char)text[i] & 0x3f);
    }
    if (!length || code < least[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return 0;
    *ret_code = code;
    return length;
}

/* PLAIN-1 */
static bool is_harmless(uint32_t code)
{
    return !(code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x200e && code <= 0x200f) ||
             (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069));
}

unsigned plx_plain_step(const char **at, unsigned *ret_escaped)
{
    uint32_t code = 0;
    unsigned length = read_character(*at, &code), bytes = length ? length : 1;

    *ret_escaped = length && is_harmless(code) ? 0 : bytes;
    *at += bytes;
    return bytes;
}

char *plx_plain(const char *text, char *ret_text, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    char *to = ret_text, *end = ret_text + size - 1;

    while (*text) {
        const char *from = text;
        unsigned escaped, length = plx_plain_step(&text, &escaped);

        if ((size_t)(end - to) < (escaped ? 4 * escaped : length))
            break;
        if (!escaped) {
            memcpy(to, from, length);
            to += length;
        }
        for (unsigned i = 0; i < escaped; i++) {
            unsigned char byte = (unsigned char)from[i];

            *to++ = '\\';
            *to++ = 'x';
            *to++ = digits[byte >> 4];
            *to++ = digits[byte & 15];
        }
    }
    *to = 0;
    return ret_text;
}

/* PLAIN-2 */
char *plx_plain_word(const char *text, char *ret_text, size_t size)
{
    static const char as_it_is[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                   "_./:@%+=,-";
    char *to = ret_text, *end = ret_text + size - 1;

    for (; *text; text++) {
        bool plain = (unsigned char)*text >= 0x80 || strchr(as_it_is, *text);

        if (end - to < (plain ? 1 : 2))
            break;
        if (!plain)
            *to++ = '\\';
        *to++ = *text;
    }
    *to = 0;
    return ret_text;
}
