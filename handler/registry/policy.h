/* policy.h - continuous protection as people write it, and as the registry keeps it.
 *
 * Durations: a number and one of ms, s, m, h, d, w, y ("10ms", "90s"; a year has 365 days).
 * Modes: "off", an interval ("10ms"), "batch" (each batch), "write" (each write).
 * Tiers: "all:1h,1s:1d,1m:7d,1h:30d": all snapshots for an hour, then one a second for a day...
 */
#ifndef PLX_POLICY_H
#define PLX_POLICY_H

#include "registry/registry.h"

#define PLX_DURATION_TEXT 24
#define PLX_MODE_TEXT PLX_DURATION_TEXT
#define PLX_TIERS_TEXT (2 * PLX_TIERS_MAX * PLX_DURATION_TEXT)

/* What is kept when nobody says otherwise. */
#define PLX_TIERS_DEFAULT "all:1h,1s:1d,1m:7d,1h:30d"

/* The registry's keys (table policies). */
#define PLX_POLICY_PROTECTION "protection"
#define PLX_POLICY_RETENTION "retention"

bool plx_duration_parse(const char *text, uint64_t *ret_ns);
/* In the largest unit that is exact; "0ms" for less than a millisecond. */
const char *plx_duration_text(uint64_t ns, char ret_text[PLX_DURATION_TEXT]);

/* 0, or INVALID and what was expected. Mode and tiers leave the other alone; "" is no tiers. */
int plx_protection_parse_mode(const char *text, struct plx_protection *protection,
                              struct plx_fault *fault);
int plx_protection_parse_tiers(const char *text, struct plx_protection *protection,
                               struct plx_fault *fault);
const char *plx_protection_mode_text(const struct plx_protection *protection,
                                     char ret_text[PLX_MODE_TEXT]);
const char *plx_protection_tiers_text(const struct plx_protection *protection,
                                      char ret_text[PLX_TIERS_TEXT]);

/* What the registry keeps of a VDI's protection, by its id: a row for each of the keys, none for
 * what is off or empty. Writes only what differs. */
int plx_policy_keep(struct plx_registry *registry, const char *vdi,
                    const struct plx_protection *protection);
int plx_policy_load(struct plx_registry *registry, const char *vdi,
                    struct plx_protection *ret_protection, struct plx_fault *fault);

#endif
