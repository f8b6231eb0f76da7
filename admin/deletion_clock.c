/* deletion_clock.c - parallax snap delete: times, and a wall clock that is not to be believed
 * (engine/base/witness.c).
 *
 * DELETION_CLOCK-1  While the wall clock is in doubt, nothing is deleted by a time that is relative
 *     to now, whatever the other options are. "In doubt" is what 'cdp apply' takes for it. The
 *     clocks are looked at before such a time is read, so that the reason is told first, and again
 *     afterwards, because a clock may jump in between.
 * DELETION_CLOCK-2  A time of either kind deletes no snapshot whose own time is not certain,
 *     whether the doubt goes on or is over. What goes up to a time ends with a snapshot that was
 *     certainly taken by then. What goes from a time on begins with a dated one, and a single one
 *     is dated (WITNESS-5, WITNESS-8). What lies between is as certain, because numbers follow the
 *     order in which snapshots were taken.
 * DELETION_CLOCK-3  Numbers and labels ask no clock.
 */
#include <inttypes.h>
#include <string.h>

#include "cmd.h"
#include "deletion.h"
#include "registry/clock.h"

/* DELETION_CLOCK-3 */
bool plx_deletion_is_time(const struct deletion *d, const char *snapshot, uint64_t *ret_ns)
{
    if (strspn(snapshot, "0123456789") == strlen(snapshot))
        return false;
    for (size_t i = 0; i < d->label_count; i++)
        if (strcmp(d->labels[i].name, snapshot) == 0)
            return false;
    return plx_instant_parse(snapshot, plx_clock_ns(CLOCK_REALTIME), ret_ns);
}

/* DELETION_CLOCK-1 */
int plx_deletion_check_now(struct deletion *d, const struct plx_name *firsts,
                           const struct plx_name *lasts)
{
    const char *relative = NULL;
    char why[PLX_DOUBT_TEXT];
    struct plx_vdi_clock clock;
    int rc;

    for (unsigned i = 0; i < d->count && !relative; i++)
        if (*firsts[i].snapshot == '-' || (!d->targets[i].single && *lasts[i].snapshot == '-'))
            relative = d->targets[i].text;
    if (!relative)
        return 0;
    if ((rc = plx_session_clock(d->cli, &d->row, &clock)))
        return rc;
    if (plx_witness_lets_go(&clock.witness, &clock.now, &clock.ends))
        return 0;
    return plx_cli_fail(d->cli, PLX_ERR_CLOCK,
                        "%.160s: nothing is deleted by a time that is relative to now: %s; set the "
                        "clock right, or confirm it with 'parallax cdp resume %s/%.80s', or give "
                        "numbers or labels",
                        relative, plx_session_clock_text(&clock, why), d->name.store, d->name.vdi);
}

static int refuse_undated(struct deletion *d, const struct target *target, uint64_t seq)
{
    return plx_cli_fail(d->cli, PLX_ERR_CLOCK,
                        "%.160s: snapshot %" PRIu64 " was taken while the wall clock was in doubt, "
                        "so nobody can say whether that includes it ('parallax cdp status %s/%.80s "
                        "--json' lists such snapshots); give numbers or labels",
                        target->text, seq, d->name.store, d->name.vdi);
}

/* Whether the snapshot that the target begins with is dated. */
static int check_first(struct deletion *d, const struct target *target,
                       const struct plx_vdi_clock *clock)
{
    struct plx_snapshot_info first = {0};
    int rc = plx_snapshot_first(plx_session_store(d->cli), d->row.slot, target->first, &first,
                                &d->cli->fault);

    if (rc || !first.seq ||
        plx_witness_is_dated(&clock->witness, &clock->now, first.seq, first.time_ns))
        return rc;
    return refuse_undated(d, target, first.seq);
}

static int check_target(struct deletion *d, const struct target *target,
                        const struct plx_name *first, const struct plx_name *last,
                        const struct plx_vdi_clock *clock)
{
    uint64_t ns;
    int rc = 0;

    if (target->first > target->last)
        return 0;
    if (plx_deletion_is_time(d, first->snapshot, &ns))
        rc = check_first(d, target, clock);
    if (!rc && !target->single && plx_deletion_is_time(d, last->snapshot, &ns) &&
        plx_witness_keeps(&clock->witness, target->last, ns, 0))
        return refuse_undated(d, target, target->last);
    return rc;
}

static bool has_time(const struct deletion *d, const struct plx_name *firsts,
                     const struct plx_name *lasts)
{
    bool any = false;
    uint64_t ns;

    for (unsigned i = 0; i < d->count && !any; i++)
        any = plx_deletion_is_time(d, firsts[i].snapshot, &ns) ||
              (!d->targets[i].single && plx_deletion_is_time(d, lasts[i].snapshot, &ns));
    return any;
}

/* DELETION_CLOCK-2 */
int plx_deletion_check_times(struct deletion *d, const struct plx_name *firsts,
                             const struct plx_name *lasts)
{
    struct plx_vdi_clock clock;
    int rc;

    if (!has_time(d, firsts, lasts))
        return 0;
    if ((rc = plx_deletion_check_now(d, firsts, lasts)) ||
        (rc = plx_session_clock(d->cli, &d->row, &clock)))
        return rc;
    for (unsigned i = 0; i < d->count && !rc; i++)
        rc = check_target(d, &d->targets[i], &firsts[i], &lasts[i], &clock);
    return rc;
}
