/* policy.h - continuous protection of a disk, as people write it and as the registry keeps it.
 *
 *   duration   a number and one of ms, s, m, h, d, w, y: "10ms", "90s"; a year has 365 days
 *   mode       when the disk takes snapshots by itself: "off", an interval ("10ms"), "batch" (with
 *              each batch of the log), "write" (with each write)
 *   tiers      what is kept for how long: "all:1h,1s:1d,1m:7d,1h:30d" keeps all snapshots for an
 *              hour, one a second for a day, one a minute for 7 days, one an hour for 30 days
 *
 * Stateless; any thread.
 */
#ifndef PLX_POLICY_H
#define PLX_POLICY_H

#include "registry/registry.h"

#define PLX_DURATION_TEXT 24
#define PLX_MODE_TEXT PLX_DURATION_TEXT
#define PLX_TIERS_TEXT (2 * PLX_TIERS_MAX * PLX_DURATION_TEXT)

/* The tiers of a disk whose operator gave none. */
#define PLX_TIERS_DEFAULT "all:1h,1s:1d,1m:7d,1h:30d"

/* The registry's keys (table policies). */
#define PLX_POLICY_PROTECTION "protection"
#define PLX_POLICY_RETENTION "retention"

bool plx_duration_parse(const char *text, uint64_t *ret_ns);
/* Writes the duration in the largest unit from days down that is exact; "0ms" for less than a
 * millisecond. */
const char *plx_duration_text(uint64_t ns, char ret_text[PLX_DURATION_TEXT]);

/* Return 0, or INVALID and in *fault what was expected. Each changes only its part of *protection:
 * the mode, or the tiers. An empty text is no tiers. */
int plx_protection_parse_mode(const char *text, struct plx_protection *protection,
                              struct plx_fault *fault);
int plx_protection_parse_tiers(const char *text, struct plx_protection *protection,
                               struct plx_fault *fault);
const char *plx_protection_mode_text(const struct plx_protection *protection,
                                     char ret_text[PLX_MODE_TEXT]);
const char *plx_protection_tiers_text(const struct plx_protection *protection,
                                      char ret_text[PLX_TIERS_TEXT]);

/* The protection of the VDI with this id in the registry: a row for each of the two keys, and no
 * row for a mode that is off or for empty tiers. plx_policy_keep() writes only what differs. */
int plx_policy_keep(struct plx_registry *registry, const char *vdi,
                    const struct plx_protection *protection);
int plx_policy_load(struct plx_registry *registry, const char *vdi,
                    struct plx_protection *ret_protection, struct plx_fault *fault);

#endif
