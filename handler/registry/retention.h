/* retention.h - what a policy's tiers let go of, and when.
 *
 * Tiers t[0..n-1] of {every, keep} make n + 1 levels: snapshots older than t[i-1].keep come down to
 * one every t[i].every (level i), those older than the last keep go (level n); level 0 is there
 * when the first tier has an interval of its own. Each level remembers how far it has come, so
 * that no stretch of history is read again and again.
 *
 * Pure functions, but for those that take a registry. Who lets go is the caller: thin is
 * plx_attach_thin(), or a request to the handler that has the disk open.
 */
#ifndef PLX_RETENTION_H
#define PLX_RETENTION_H

#include "registry/registry.h"

/* The registry's keys (table policies), beside policy.h's. */
#define PLX_POLICY_PROGRESS "retention-progress"
#define PLX_POLICY_ON_FULL "on-full"            /* "keep"; none: shorten the window */
#define PLX_POLICY_SHORTENED "window-shortened" /* when and to which time, in nanoseconds */

struct plx_retention {
    struct plx_protection policy; /* that the levels belong to */
    /* It is applied often, and what costs more than it is worth waits (RETENTION-6). Else all goes
     * at once that is to go. */
    bool thrifty;
    struct {
        uint64_t upto;      /* thinned up to this snapshot */
        uint64_t before_ns; /* which are those taken before */
    } level[PLX_TIERS_MAX + 1];
};

struct plx_retention_step {
    unsigned level;
    struct plx_thin thin;
};

/* Begins anew, unless the levels belong to this policy already. */
void plx_retention_set(struct plx_retention *retention, const struct plx_protection *policy);
/* What is to be done now, coarsest first; returns how many steps. */
unsigned plx_retention_plan(const struct plx_retention *retention, uint64_t now_ns,
                            struct plx_retention_step ret_steps[PLX_TIERS_MAX + 1]);
/* How often to look: fine enough for the shortest tier, 1 s to 1 min. */
uint64_t plx_retention_interval_ns(const struct plx_protection *policy);
/* How long the policy asks for; 0: for ever. */
uint64_t plx_retention_window_ns(const struct plx_protection *policy);
/* Up to which snapshot they go when the oldest have to make room: a sixteenth of their numbers. */
uint64_t plx_retention_shorter(uint64_t oldest, uint64_t newest);

struct plx_retention_work {
    void *context;
    /* Lets one slice go. */
    int (*thin)(void *context, const struct plx_thin *thin, struct plx_thinned *ret_thinned,
                struct plx_fault *fault);
    /* Between two slices: anything but 0 ends it with that. May be NULL. */
    int (*between)(void *context, const struct plx_thinned *so_far, struct plx_fault *fault);
};

/* All slices of a range. *ret_sum: what is gone, also after a failure. */
int plx_retention_thin(const struct plx_retention_work *work, const struct plx_thin *thin,
                       struct plx_thinned *ret_sum, struct plx_fault *fault);
/* All that the plan says. *ret_sum as above. */
int plx_retention_apply(struct plx_retention *retention, uint64_t now_ns,
                        const struct plx_retention_work *work, struct plx_thinned *ret_sum,
                        struct plx_fault *fault);

/* One step for want of space: the oldest go, at least one if any may. */
int plx_retention_shorten(const struct plx_retention_work *work, uint64_t oldest, uint64_t newest,
                          struct plx_thinned *ret_sum, struct plx_fault *fault);
/* That this was done, and the time of the oldest snapshot since, for 'parallax cdp status'. Codes
 * as plx_registry_policy_set(). */
int plx_retention_tell_shortened(struct plx_registry *registry, const char *vdi,
                                 uint64_t oldest_ns);

/* What plx_retention_apply() would let go, the first time; nothing changes. */
int plx_retention_preview(const struct plx_protection *policy, uint64_t now_ns,
                          const struct plx_retention_work *work, struct plx_thinned *ret_sum,
                          struct plx_fault *fault);

/* How far the levels have come, kept in the registry so that a restart goes on there. A hint: what
 * is older or missing costs reading. Codes as plx_registry_policy_set(). */
int plx_retention_load(struct plx_registry *registry, const char *vdi,
                       const struct plx_protection *policy, struct plx_retention *ret_retention);
int plx_retention_keep(struct plx_registry *registry, const char *vdi,
                       const struct plx_retention *retention);

#endif
