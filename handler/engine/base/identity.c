/* identity.c - UUIDs as text, and compared. Stateless. */
#include "engine/base/identity.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/hash.h"

void plx_uuid_text(const struct plx_uuid *id, char ret_text[PLX_UUID_TEXT])
{
    const uint8_t *b = id->b;

    snprintf(ret_text, PLX_UUID_TEXT,
             "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
             b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
             b[15]);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool plx_uuid_parse(const char *text, struct plx_uuid *ret_id)
{
    struct plx_uuid id;
    unsigned count = 0;

    if (strlen(text) != PLX_UUID_TEXT - 1)
        return false;
    for (unsigned i = 0; i < PLX_UUID_TEXT - 1;) {
        int high, low;

        if (i == 8 || i == 13 || i == 18 || i == 23) {
            if (text[i++] != '-')
                return false;
            continue;
        }
        high = hex_digit(text[i]);
        low = hex_digit(text[i + 1]);
        if (high < 0 || low < 0)
            return false;
        id.b[count++] = (uint8_t)(high << 4 | low);
        i += 2;
    }
    if (ret_id)
        *ret_id = id;
    return true;
}

bool plx_uuid_is_zero(const struct plx_uuid *id)
{
    static const struct plx_uuid zero;

    return plx_uuid_equal(id, &zero);
}

bool plx_uuid_equal(const struct plx_uuid *a, const struct plx_uuid *b)
{
    return memcmp(a->b, b->b, sizeof a->b) == 0;
}

/* The bits of a UUID of version 8 are its maker's choice. */
struct plx_uuid plx_uuid_shown(const struct plx_uuid *store, const struct plx_uuid *identity,
                               const struct plx_uuid *vdi)
{
    const struct plx_uuid both[2] = {*identity, *vdi}, turned[2] = {*vdi, *identity};
    const uint64_t halves[2] = {plx_hash64(both, sizeof both), plx_hash64(turned, sizeof turned)};
    struct plx_uuid shown;

    if (plx_uuid_equal(store, identity))
        return *vdi;
    memcpy(shown.b, halves, sizeof shown.b);
    shown.b[6] = (uint8_t)(0x80 | (shown.b[6] & 0x0f));
    shown.b[8] = (uint8_t)(0x80 | (shown.b[8] & 0x3f));
    return shown;
}
