/* retention.h - which snapshots a policy's tiers let go, and when.
 *
 * A policy has tiers t[0], ..., t[n-1], each {every, keep}. They make n + 1 levels of thinning:
 *
 *   level 0           newer than t[0].keep       one snapshot every t[0].every ("all": no level)
 *   level i (1..n-1)  older than t[i-1].keep     one snapshot every t[i].every
 *   level n           older than t[n-1].keep     none: the window ends here
 *
 * Example "all:1h,1m:1d": level 1 leaves one snapshot a minute of what is older than an hour, level
 * 2 lets go what is older than a day. Each level remembers how far it has come, so that no stretch
 * of history is read again and again.
 *
 * Use: plx_retention_load(), then plx_retention_apply() every plx_retention_interval_ns(), and
 * plx_retention_keep() after it. When space is low: plx_retention_shorten().
 *
 * Except for the calls that take a registry, these are pure functions. The caller does the work:
 * work->thin is plx_attach_thin(), or a request to the handler that has the disk open.
 */
#ifndef PLX_RETENTION_H
#define PLX_RETENTION_H

#include "registry/registry.h"

/* The registry's keys (table policies), beside policy.h's. */
#define PLX_POLICY_PROGRESS "retention-progress"
#define PLX_POLICY_ON_FULL "on-full"            /* "keep"; no row: shorten the window */
#define PLX_POLICY_SHORTENED "window-shortened" /* two times in ns: when, and the new oldest */

struct plx_retention {
    struct plx_protection policy; /* the policy that the levels belong to */
    /* For a caller that applies the policy often: work that costs more than it is worth waits
     * (RETENTION-6). false: everything that is to go goes at once. */
    bool thrifty;
    struct {
        uint64_t upto;      /* the level has thinned up to this snapshot, */
        uint64_t before_ns; /* that is, all snapshots taken before this time */
    } level[PLX_TIERS_MAX + 1];
};

struct plx_retention_step {
    unsigned level;
    struct plx_thin thin;
};

/* Sets the policy. The levels begin again if its tiers differ from those they belong to. */
void plx_retention_set(struct plx_retention *retention, const struct plx_protection *policy);
/* What is to be done now, coarsest level first; returns the number of steps. */
unsigned plx_retention_plan(const struct plx_retention *retention, uint64_t now_ns,
                            struct plx_retention_step ret_steps[PLX_TIERS_MAX + 1]);
/* How often to apply the policy: a 64th of the first tier's keep, within 1 s to 1 min. */
uint64_t plx_retention_interval_ns(const struct plx_protection *policy);
/* How long the policy keeps any snapshot; 0: for ever. */
uint64_t plx_retention_window_ns(const struct plx_protection *policy);
/* The snapshot up to which history goes when the oldest has to make room: a sixteenth of the range
 * of numbers, at least one number. */
uint64_t plx_retention_shorter(uint64_t oldest, uint64_t newest);

struct plx_retention_work {
    void *context;
    /* Lets snapshots of one slice of the range go. */
    int (*thin)(void *context, const struct plx_thin *thin, struct plx_thinned *ret_thinned,
                struct plx_fault *fault);
    /* Called between two slices; any result but 0 ends the work with that result. May be NULL. */
    int (*between)(void *context, const struct plx_thinned *so_far, struct plx_fault *fault);
};

/* Works through all slices of a range. *ret_sum: what went, also after a failure. */
int plx_retention_thin(const struct plx_retention_work *work, const struct plx_thin *thin,
                       struct plx_thinned *ret_sum, struct plx_fault *fault);
/* Carries out the whole plan. *ret_sum as above. */
int plx_retention_apply(struct plx_retention *retention, uint64_t now_ns,
                        const struct plx_retention_work *work, struct plx_thinned *ret_sum,
                        struct plx_fault *fault);

/* One step for want of space: the oldest snapshots go, at least one if any may go. */
int plx_retention_shorten(const struct plx_retention_work *work, uint64_t oldest, uint64_t newest,
                          struct plx_thinned *ret_sum, struct plx_fault *fault);
/* Notes for 'parallax cdp status' that the window was shortened just now, and the time of the
 * oldest snapshot since. Codes as plx_registry_policy_set(). */
int plx_retention_tell_shortened(struct plx_registry *registry, const char *vdi,
                                 uint64_t oldest_ns);

/* What the first plx_retention_apply() of this policy would let go; nothing changes. */
int plx_retention_preview(const struct plx_protection *policy, uint64_t now_ns,
                          const struct plx_retention_work *work, struct plx_thinned *ret_sum,
                          struct plx_fault *fault);

/* How far the levels have come, kept in the registry so that a restart goes on there. It is a hint:
 * progress that is old or missing only costs reading. Codes as plx_registry_policy_set(). */
int plx_retention_load(struct plx_registry *registry, const char *vdi,
                       const struct plx_protection *policy, struct plx_retention *ret_retention);
int plx_retention_keep(struct plx_registry *registry, const char *vdi,
                       const struct plx_retention *retention);

#endif
