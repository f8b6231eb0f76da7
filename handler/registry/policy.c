/* policy.c - see policy.h.
 *
 * POLICY-1  The parsers read back what the _text() functions write, as the same protection. The
 *     registry keeps the texts, so a disk would otherwise lose its policy on the way.
 * Threads: any. No state, no crash story.
 */
#include "registry/policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_MS 1000000ull
#define NS_PER_S (1000 * NS_PER_MS)

static const struct unit {
    const char *name;
    uint64_t ns;
} units[] = {
    {"y", 365 * 86400 * NS_PER_S},
    {"w", 7 * 86400 * NS_PER_S},
    {"d", 86400 * NS_PER_S},
    {"h", 3600 * NS_PER_S},
    {"m", 60 * NS_PER_S},
    {"s", NS_PER_S},
    {"ms", NS_PER_MS},
};

#define UNITS (sizeof units / sizeof units[0])

/* ---- Durations ---- */

static bool take_duration(const char *text, size_t length, uint64_t *ret_ns)
{
    size_t digits = strspn(text, "0123456789");
    uint64_t number = 0;

    if (digits == 0 || digits > 12 || digits >= length)
        return false;
    for (size_t i = 0; i < digits; i++)
        number = 10 * number + (uint64_t)(text[i] - '0');
    for (size_t i = 0; i < UNITS; i++) {
        if (strlen(units[i].name) != length - digits ||
            memcmp(units[i].name, text + digits, length - digits) != 0)
            continue;
        return !__builtin_mul_overflow(number, units[i].ns, ret_ns);
    }
    return false;
}

bool plx_duration_parse(const char *text, uint64_t *ret_ns)
{
    return take_duration(text, strlen(text), ret_ns);
}

const char *plx_duration_text(uint64_t ns, char ret_text[PLX_DURATION_TEXT])
{
    const struct unit *unit = units;

    while (unit < units + UNITS - 1 && (ns % unit->ns || !ns))
        unit++;
    /* Weeks and years are written in days, as people do. */
    if (unit->ns > 86400 * NS_PER_S)
        unit = &units[2];
    snprintf(ret_text, PLX_DURATION_TEXT, "%llu%s", (unsigned long long)(ns / unit->ns),
             unit->name);
    return ret_text;
}

/* ---- Modes ---- */

int plx_protection_parse_mode(const char *text, struct plx_protection *protection,
                              struct plx_fault *fault)
{
    struct plx_protection p = *protection;
    int error;

    p.interval_ns = 0;
    if (strcmp(text, "off") == 0)
        p.mode = PLX_PROTECT_OFF;
    else if (strcmp(text, "batch") == 0)
        p.mode = PLX_PROTECT_BATCH;
    else if (strcmp(text, "write") == 0)
        p.mode = PLX_PROTECT_WRITE;
    else if (plx_duration_parse(text, &p.interval_ns))
        p.mode = PLX_PROTECT_INTERVAL;
    else
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "'%.40s' is no interval: a number and ms, s, m, h or d, such as 10ms",
                             text);
    error = plx_protection_check(&p, fault);
    if (!error)
        *protection = p;
    return error;
}

/* POLICY-1 */
const char *plx_protection_mode_text(const struct plx_protection *protection,
                                     char ret_text[PLX_MODE_TEXT])
{
    switch (protection->mode) {
    case PLX_PROTECT_INTERVAL:
        return plx_duration_text(protection->interval_ns, ret_text);
    case PLX_PROTECT_BATCH:
        return strcpy(ret_text, "batch");
    case PLX_PROTECT_WRITE:
        return strcpy(ret_text, "write");
    default:
        return strcpy(ret_text, "off");
    }
}

/* ---- Tiers ---- */

static bool take_tier(const char *text, size_t length, bool first, struct plx_tier *ret_tier)
{
    const char *colon = memchr(text, ':', length);
    size_t every = colon ? (size_t)(colon - text) : 0;

    if (!colon)
        return false;
    if (first && every == 3 && memcmp(text, "all", 3) == 0)
        ret_tier->every_ns = 0;
    else if (!take_duration(text, every, &ret_tier->every_ns) || !ret_tier->every_ns)
        return false;
    return take_duration(colon + 1, length - every - 1, &ret_tier->keep_ns);
}

int plx_protection_parse_tiers(const char *text, struct plx_protection *protection,
                               struct plx_fault *fault)
{
    struct plx_protection p = {.mode = protection->mode, .interval_ns = protection->interval_ns};
    int error;

    for (const char *at = text; *at;) {
        size_t length = strcspn(at, ",");

        if (p.tiers == PLX_TIERS_MAX)
            return plx_fault_set(fault, PLX_ERR_INVALID, "at most %d tiers can be kept",
                                 PLX_TIERS_MAX);
        if (!take_tier(at, length, p.tiers == 0, &p.tier[p.tiers]) ||
            (at[length] && !at[length + 1]))
            return plx_fault_set(fault, PLX_ERR_INVALID,
                                 "'%.*s' is no tier: EVERY:FOR, the first one also all:FOR, as in "
                                 "%s",
                                 (int)(length < 40 ? length : 40), at, PLX_TIERS_DEFAULT);
        p.tiers++;
        at += length + (at[length] != 0);
    }
    error = plx_protection_check(&p, fault);
    if (!error)
        *protection = p;
    return error;
}

/* POLICY-1 */
const char *plx_protection_tiers_text(const struct plx_protection *protection,
                                      char ret_text[PLX_TIERS_TEXT])
{
    char every[PLX_DURATION_TEXT], keep[PLX_DURATION_TEXT];
    size_t at = 0;

    ret_text[0] = 0;
    for (uint32_t i = 0; i < protection->tiers; i++) {
        const struct plx_tier *tier = &protection->tier[i];

        at += (size_t)snprintf(ret_text + at, PLX_TIERS_TEXT - at, "%s%s:%s", i ? "," : "",
                               tier->every_ns ? plx_duration_text(tier->every_ns, every) : "all",
                               plx_duration_text(tier->keep_ns, keep));
    }
    return ret_text;
}

/* ---- In the registry ---- */

/* Keeps a row with this value; "" removes the row. */
static int keep_policy(struct plx_registry *registry, const char *vdi, const char *key,
                       const char *value)
{
    char now[PLX_POLICY_VALUE_MAX + 1] = "";
    int error = plx_registry_policy_get(registry, vdi, key, now);

    if (error && error != PLX_ERR_NOT_FOUND)
        return error;
    if (strcmp(now, value) == 0)
        return 0;
    return plx_registry_policy_set(registry, vdi, key, *value ? value : NULL);
}

int plx_policy_keep(struct plx_registry *registry, const char *vdi,
                    const struct plx_protection *protection)
{
    char mode[PLX_MODE_TEXT], tiers[PLX_TIERS_TEXT];
    bool off = protection->mode == PLX_PROTECT_OFF;
    int error = keep_policy(registry, vdi, PLX_POLICY_PROTECTION,
                            off ? "" : plx_protection_mode_text(protection, mode));

    return error ? error
                 : keep_policy(registry, vdi, PLX_POLICY_RETENTION,
                               plx_protection_tiers_text(protection, tiers));
}

/* Without a row, *protection stays as it is. */
static int load_policy(struct plx_registry *registry, const char *vdi, const char *key,
                       int (*parse)(const char *text, struct plx_protection *protection,
                                    struct plx_fault *fault),
                       struct plx_protection *protection, struct plx_fault *fault)
{
    char text[PLX_POLICY_VALUE_MAX + 1];
    int error = plx_registry_policy_get(registry, vdi, key, text);

    if (error == PLX_ERR_NOT_FOUND)
        return 0;
    if (error)
        return plx_registry_fault(registry, error, fault);
    return parse(text, protection, fault);
}

int plx_policy_load(struct plx_registry *registry, const char *vdi,
                    struct plx_protection *ret_protection, struct plx_fault *fault)
{
    struct plx_protection protection = {0};
    int error = load_policy(registry, vdi, PLX_POLICY_PROTECTION, plx_protection_parse_mode,
                            &protection, fault);

    if (!error)
        error = load_policy(registry, vdi, PLX_POLICY_RETENTION, plx_protection_parse_tiers,
                            &protection, fault);
    if (!error)
        *ret_protection = protection;
    return error;
}
