/* host_word.c - see host_word.h. Stateless. */
#include "registry/host_word.h"

#include <string.h>

#include "engine/base/plain.h"
#include "registry/tenancy.h"

const char *plx_host_word(const char *name, const struct plx_uuid *id, char ret_text[PLX_HOST_WORD])
{
    char plain[4 * PLX_HOST_WORD], word[2 * PLX_HOST_WORD];

    plx_plain(name, plain, sizeof plain);
    plx_plain_word(name, word, sizeof word);
    if (!*name || *name == '-' || strcmp(plain, name) != 0 || strlen(word) >= PLX_HOST_WORD ||
        !strcmp(name, PLX_TENANCY_ANY) || !strcmp(name, PLX_TENANCY_COPY))
        plx_uuid_text(id, ret_text);
    else
        memcpy(ret_text, word, strlen(word) + 1);
    return ret_text;
}

const char *plx_host_called(const char *name, const struct plx_uuid *id,
                            char ret_text[PLX_HOST_WORD])
{
    if (*name)
        return name;
    plx_uuid_text(id, ret_text);
    return ret_text;
}
