/* threshold.c - see threshold.h.
 *
 * THRESHOLD-1  plx_threshold_parse() reads back what plx_threshold_text() writes.
 * THRESHOLD-2  A row that cannot be read (written by a later version, or edited by hand) is no
 *     limit. A warning is lost, and nothing else.
 * Threads: any. No state, no crash story.
 */
#include "registry/threshold.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS_MAX 18

bool plx_threshold_parse(const char *text, struct plx_threshold *ret_threshold)
{
    size_t digits = strspn(text, "0123456789");
    uint64_t number = strtoull(text, NULL, 10);

    if (!digits || digits > DIGITS_MAX || !number)
        return false;
    if (strcmp(text + digits, "%") == 0 && number < 100)
        *ret_threshold = (struct plx_threshold){.percent = (unsigned)number};
    else if (!text[digits])
        *ret_threshold = (struct plx_threshold){.bytes = number};
    else
        return false;
    return true;
}

/* THRESHOLD-1 */
const char *plx_threshold_text(const struct plx_threshold *threshold,
                               char ret_text[PLX_THRESHOLD_TEXT])
{
    if (threshold->percent)
        snprintf(ret_text, PLX_THRESHOLD_TEXT, "%u%%", threshold->percent);
    else
        snprintf(ret_text, PLX_THRESHOLD_TEXT, "%" PRIu64, threshold->bytes);
    return ret_text;
}

uint64_t plx_threshold_at(const struct plx_threshold *threshold, uint64_t size_bytes)
{
    /* A hundred times the largest possible size does not overflow (PLX_ADDR_BITS). */
    return threshold->percent ? size_bytes * threshold->percent / 100 : threshold->bytes;
}

bool plx_threshold_is_crossed(uint64_t at_bytes, uint64_t used_bytes, bool was)
{
    if (!at_bytes)
        return false;
    return used_bytes >= (was ? at_bytes - at_bytes / 20 : at_bytes);
}

/* ---- In the registry ---- */

/* THRESHOLD-2 */
static int take(int error, const char *text, struct plx_threshold *ret_threshold)
{
    *ret_threshold = (struct plx_threshold){0};
    if (!error)
        plx_threshold_parse(text, ret_threshold);
    return error == PLX_ERR_NOT_FOUND ? 0 : error;
}

int plx_threshold_load_store(struct plx_registry *registry, int64_t store,
                             struct plx_threshold *ret_threshold)
{
    char text[PLX_POLICY_VALUE_MAX + 1] = "";
    int error = plx_registry_store_policy_get(registry, store, PLX_POLICY_WARN_AT, text);

    return take(error, text, ret_threshold);
}

int plx_threshold_load_vdi(struct plx_registry *registry, const char *vdi,
                           struct plx_threshold *ret_threshold)
{
    char text[PLX_POLICY_VALUE_MAX + 1] = "";
    int error = plx_registry_policy_get(registry, vdi, PLX_POLICY_WARN_AT, text);

    return take(error, text, ret_threshold);
}

/* The row's text; NULL: no limit, so no row. */
static const char *row_of(const struct plx_threshold *threshold, char text[PLX_THRESHOLD_TEXT])
{
    return threshold->percent || threshold->bytes ? plx_threshold_text(threshold, text) : NULL;
}

int plx_threshold_keep_store(struct plx_registry *registry, int64_t store,
                             const struct plx_threshold *threshold)
{
    char text[PLX_THRESHOLD_TEXT];
    const char *row = row_of(threshold, text);
    int error = plx_registry_store_policy_set(registry, store, PLX_POLICY_WARN_AT, row);

    return !row && error == PLX_ERR_NOT_FOUND ? 0 : error;
}

int plx_threshold_keep_vdi(struct plx_registry *registry, const char *vdi,
                           const struct plx_threshold *threshold)
{
    char text[PLX_THRESHOLD_TEXT];
    const char *row = row_of(threshold, text);
    int error = plx_registry_policy_set(registry, vdi, PLX_POLICY_WARN_AT, row);

    return !row && error == PLX_ERR_NOT_FOUND ? 0 : error;
}
