/* witness.c - whether the wall clock is to be believed; see witness.h.
 *
 * Snapshots are let go by their age, and an age is only as good as the wall clock. A clock that
 * jumps ahead makes a whole history look old. Nothing must go for that: when the clock is set back,
 * it would be too late.
 *
 * So every disk has a witness: what the wall clock (W) and the boot clock (B) said when they were
 * last believed, in which run of the machine that was, and the newest snapshot by then. Nobody can
 * set the boot clock, and it goes on while the machine is suspended. The witness is kept with the
 * disk and outlives the process. "Before" means: what the witness says. Slewing changes both clocks
 * alike.
 *
 * Each look at the clocks leads to one of these states: the first whose condition holds, whatever
 * the state was before.
 *
 *   STEPPED  The same run of the machine, and W is more than a minute ahead of or behind where B
 *            says it should be. (W was set, or the machine was paused where B does not count.)
 *   BEHIND   Another run or another machine, and W is more than a minute earlier than before.
 *   GAP      Another run or another machine, and W is more than an hour later than before. Perhaps
 *            nothing ran for so long, perhaps W is wrong. Does not apply where the kernel says that
 *            W follows a time server.
 *   FUTURE   The newest snapshot lies more than a minute in the future.
 *   NONE     Otherwise: W is believed. All other states are doubts.
 *
 * WITNESS-1  In doubt the witness stays as it is. Neither time nor another process nor a restart of
 *     the machine turns a doubt into belief. A doubt ends when a look finds the clock right again,
 *     or by the operator's word, which makes what the clocks say now the new witness.
 * WITNESS-2  Without doubt the witness follows the wall clock, but in one run by at most a
 *     thousandth of the time that has passed. So a host whose clock is corrected a little again and
 *     again stays believed, and a clock that runs away is noticed.
 * WITNESS-3  Nothing is let go by time while there is a doubt, nor while the newest snapshot lies
 *     in the future at all.
 * WITNESS-4  A snapshot's time is later than the time of the snapshot before, so that times and
 *     numbers have one order. In doubt it is later by one nanosecond only. The doubt GAP is the
 *     exception: there the time is that of the wall clock, which is probably right, and only
 *     letting go waits.
 * WITNESS-5  So times written in doubt may be too early. The witness remembers the snapshots that
 *     have such times as stretches, each from one number to another. All snapshots of a stretch
 *     stay until the end of its doubt is old enough to let them go, because nobody can tell which
 *     of them is the first of its hour. If there is no room for another stretch, the two oldest
 *     become one, with all that lies between them.
 * WITNESS-6  A stretch covers every snapshot whose time may be wrong.
 *       Begin   Behind the newest snapshot that a believed look has seen taken. So the stretch also
 *               covers a doubt that began before anybody looked.
 *       End     With the newest snapshot that was ordered, at a look without doubt or by the
 *               operator's word.
 *       Never   On a disk that has stopped: a snapshot that failed may have reached the store, and
 *               whoever opens the disk again finds it there.
 *     A snapshot that was never logged, or that a power cut took, gives its number back. The next
 *     snapshot with that number may be taken in doubt. So a look that finds fewer snapshots than
 *     before moves the begin back.
 *     The operator may say that snapshots in the future keep their times. Then the snapshots that
 *     are taken after them form a stretch until the clock has caught up: their times are a
 *     nanosecond apart (WITNESS-4) and say nothing either.
 * WITNESS-7  The first look at a disk has nothing to compare with. It believes the clock unless the
 *     state is FUTURE. If there may have been another witness which is lost, a stretch covers all
 *     snapshots that are there (REBUILD-15, ATTACH-23).
 *
 * WITNESS-8  A snapshot is dated if its time is beyond doubt:
 *     - no stretch covers it;
 *     - its time is at most a minute after the wall clock;
 *     - while a doubt lasts, its time is also at most a minute after the time that the witness
 *       expects. In the run of the machine in which the witness was kept, that is the witness's
 *       time and what the boot clock has counted since. In any other run it is the witness's time.
 *     Only the times of dated snapshots are compared with anything outside their disk. For example,
 *     whoever deletes a range of snapshots by time (DELETION_CLOCK-2) chooses its ends so. A range
 *     up to time T may end with a snapshot of a stretch only if the doubt of that stretch was over
 *     before T. A range from T on must begin with a dated one. What lies between is as certain,
 *     because numbers follow the order in which snapshots were taken.
 * WITNESS-9  A crash forgets no doubt. Every snapshot makes a look first. As soon as a look finds a
 *     change of the doubt, of the stretches or of the operator's word, whoever keeps the witness is
 *     told. A snapshot does not wait for that (INV-4). So a crash may come after the snapshot and
 *     before the change is kept. Then recovery knows the snapshot by its time: a snapshot taken in
 *     doubt is a nanosecond later than the one before it (WITNESS-4). If the newest snapshots of a
 *     log or ring that is recovered are so, they are put into a stretch, in any case.
 *     Two things are said of that. In the doubt GAP snapshots have the wall clock's time; but that
 *     doubt begins when a disk is opened, and is kept before anybody uses the disk. And two
 *     snapshots may be a nanosecond apart though the clock is right, within its resolution or while
 *     it is set back a little: then they stay longer than they must.
 *
 * Not noticed: a machine that starts with a clock between what was seen last and an hour later, and
 * a machine whose kernel follows a time server that lies.
 * The operator's word on FUTURE means that the wall clock is right and those snapshots are not.
 * They keep their times, so they stay until the clock has come so far. Later snapshots stay as long
 * (WITNESS-4). Another jump is another doubt.
 * Threads: any; the caller lets one thread at a time use a witness.
 * Crash story: the keeper of a witness (ATTACH-23) writes it down when the disk is opened and
 *   closed, before its first snapshot if nothing was written down yet, and every ten minutes while
 *   a handler applies a policy to the disk. What a crash loses of that makes the next GAP or
 *   stretch longer. Each change of a doubt is written down when it happens. What a crash leaves:
 *
 *     after which step                       what is known then
 *     the clock jumps, a look finds it       nothing was taken in doubt yet
 *     a snapshot is ordered, its log batch   the batch is lost, or recovery finds the snapshot a
 *     is on its way; so is the change        nanosecond behind the one before (WITNESS-9)
 *     the change is kept                     the next opening knows the doubt. If the clock is
 *                                            right by then, the stretch ends with the newest
 *                                            snapshot that recovery finds
 *     the clock is right again; that change  the stretch ends at the next opening, with what was
 *     is on its way                          taken by then: it is longer
 *
 *   A key frame between snapshot and change hides the snapshot from recovery. So while the registry
 *   does not answer, a crash may lose the doubt of those that a key frame has passed.
 */
#include "engine/base/witness.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/units.h"

#define SECOND_NS 1000000000ull
#define MINUTE_NS (60 * SECOND_NS)
#define GAP_NS (60 * MINUTE_NS)
#define FOLLOWS 1000u /* WITNESS-2 */

struct plx_clocks plx_clocks_read(struct plx_env *env)
{
    return (struct plx_clocks){
        .wall_ns = plx_env_now_ns(env),
        .boot_ns = env->boot_ns(env),
        .boot_id = env->boot_id,
        .disciplined = env->disciplined && env->disciplined(env),
    };
}

/* ---- The state ---- */

/* Whether ns is later than `than` by more than `by`. */
static bool is_later(uint64_t ns, uint64_t than, uint64_t by)
{
    return ns > than && ns - than > by;
}

/* What the wall clock should say now, in the same run of the machine. */
static uint64_t expected_ns(const struct plx_witness *witness, const struct plx_clocks *now)
{
    return witness->wall_ns + (now->boot_ns - witness->boot_ns);
}

static bool is_future(const struct plx_witness *witness, const struct plx_clocks *now,
                      const struct plx_history_ends *ends, uint64_t tolerance_ns)
{
    return is_later(ends->newest_ns, now->wall_ns, tolerance_ns) &&
           is_later(ends->newest_ns, witness->future_ns, MINUTE_NS);
}

static enum plx_doubt judge(const struct plx_witness *witness, const struct plx_clocks *now,
                            const struct plx_history_ends *ends)
{
    uint64_t seen_ns = witness->wall_ns;

    if (witness->boot_id && witness->boot_id == now->boot_id) {
        seen_ns = expected_ns(witness, now);
        if (is_later(now->wall_ns, seen_ns, MINUTE_NS) ||
            is_later(seen_ns, now->wall_ns, MINUTE_NS))
            return PLX_DOUBT_STEPPED;
    } else if (witness->boot_id) {
        if (is_later(seen_ns, now->wall_ns, MINUTE_NS))
            return PLX_DOUBT_BEHIND;
        if (is_later(now->wall_ns, seen_ns, GAP_NS) && !now->disciplined)
            return PLX_DOUBT_GAP;
    }
    return is_future(witness, now, ends, MINUTE_NS) ? PLX_DOUBT_FUTURE : PLX_DOUBT_NONE;
}

/* ---- Stretches without dates (WITNESS-5) ---- */

static struct plx_undated *last_undated(struct plx_witness *witness)
{
    return witness->undated_count ? &witness->undated[witness->undated_count - 1] : NULL;
}

static bool is_open(const struct plx_undated *undated)
{
    return undated && undated->upto == UINT64_MAX;
}

static void remove_first(struct plx_witness *witness)
{
    witness->undated_count--;
    memmove(witness->undated, witness->undated + 1,
            witness->undated_count * sizeof *witness->undated);
}

/* WITNESS-6. One that goes on covers what another beginning would. */
static void begin_undated(struct plx_witness *witness, uint64_t after)
{
    struct plx_undated *last = last_undated(witness);

    if (is_open(last)) {
        last->after = plx_min_u64(last->after, after);
        return;
    }
    if (witness->undated_count == PLX_UNDATED_MAX) {
        uint64_t first = witness->undated[0].after;

        remove_first(witness);
        witness->undated[0].after = first;
    }
    witness->undated[witness->undated_count++] =
        (struct plx_undated){.after = after, .upto = UINT64_MAX};
}

/* WITNESS-9 */
void plx_witness_found(struct plx_witness *witness, uint64_t after, uint64_t upto)
{
    const struct plx_undated *last = last_undated(witness);

    if (!last || last->upto < upto)
        begin_undated(witness, last ? plx_max_u64(after, last->upto) : after);
    else if (is_open(last))
        begin_undated(witness, after);
}

static void end_undated(struct plx_witness *witness, const struct plx_clocks *now,
                        const struct plx_history_ends *ends)
{
    struct plx_undated *last = last_undated(witness);

    if (!is_open(last) || ends->unsettled)
        return;
    last->upto = ends->newest_seq;
    last->ended_ns = now->wall_ns;
    if (last->upto <= last->after)
        witness->undated_count--;
}

bool plx_witness_is_undated(const struct plx_witness *witness, uint64_t seq)
{
    bool undated = false;

    for (unsigned i = 0; i < witness->undated_count && !undated; i++)
        undated = seq > witness->undated[i].after && seq <= witness->undated[i].upto;
    return undated;
}

bool plx_witness_keeps(const struct plx_witness *witness, uint64_t seq, uint64_t before_ns,
                       uint64_t every_ns)
{
    bool keeps = false;

    for (unsigned i = 0; i < witness->undated_count && !keeps; i++) {
        const struct plx_undated *undated = &witness->undated[i];

        keeps = seq > undated->after && seq <= undated->upto &&
                (every_ns || is_open(undated) || before_ns <= undated->ended_ns);
    }
    return keeps;
}

/* WITNESS-8 */
bool plx_witness_is_dated(const struct plx_witness *witness, const struct plx_clocks *now,
                          uint64_t seq, uint64_t time_ns)
{
    uint64_t latest_ns = now->wall_ns;

    if (witness->doubt && witness->boot_id)
        latest_ns =
            plx_min_u64(latest_ns, witness->boot_id == now->boot_id ? expected_ns(witness, now)
                                                                    : witness->wall_ns);
    return !plx_witness_is_undated(witness, seq) && !is_later(time_ns, latest_ns, MINUTE_NS);
}

/* ---- Looking ---- */

/* WITNESS-6: whether history runs ahead of the clock, so that a snapshot taken now gets a time that
 * is too late. This begins when the newest snapshot lies more than a minute in the future, and ends
 * when it does not lie in the future at all. */
static bool runs_ahead(struct plx_witness *witness, const struct plx_clocks *now,
                       const struct plx_history_ends *ends)
{
    bool open = is_open(last_undated(witness));

    return is_later(ends->newest_ns, now->wall_ns, open ? 0 : MINUTE_NS);
}

/* WITNESS-2 */
static void follow(struct plx_witness *witness, const struct plx_clocks *now)
{
    uint64_t passed_ns = now->boot_ns - witness->boot_ns, most_ns = passed_ns / FOLLOWS;
    uint64_t should_ns = expected_ns(witness, now), wall_ns = now->wall_ns;

    if (witness->boot_id == now->boot_id) {
        if (now->boot_ns < witness->boot_ns || passed_ns < SECOND_NS)
            return;
        wall_ns = plx_max_u64(should_ns - most_ns, plx_min_u64(wall_ns, should_ns + most_ns));
    }
    witness->boot_id = now->boot_id;
    witness->boot_ns = now->boot_ns;
    witness->wall_ns = wall_ns;
}

/* WITNESS-6: numbers above taken_seq are given out again. */
static void go_back_to(struct plx_witness *witness, uint64_t taken_seq)
{
    struct plx_undated *last = last_undated(witness);

    witness->seq = plx_min_u64(witness->seq, taken_seq);
    if (is_open(last))
        last->after = plx_min_u64(last->after, taken_seq);
}

void plx_witness_look(struct plx_witness *witness, const struct plx_clocks *now,
                      const struct plx_history_ends *ends)
{
    if (!witness->boot_id)
        witness->seq = ends->taken_seq;
    go_back_to(witness, ends->taken_seq);
    witness->doubt = judge(witness, now, ends);
    if (witness->doubt || runs_ahead(witness, now, ends))
        begin_undated(witness, witness->seq);
    else
        end_undated(witness, now, ends);
    if (!witness->doubt) {
        follow(witness, now);
        witness->seq = ends->taken_seq;
    }
    while (witness->undated_count && witness->undated[0].upto <= ends->forgotten)
        remove_first(witness);
}

void plx_witness_resume(struct plx_witness *witness, const struct plx_clocks *now,
                        const struct plx_history_ends *ends)
{
    witness->boot_id = now->boot_id;
    witness->boot_ns = now->boot_ns;
    witness->wall_ns = now->wall_ns;
    if (is_later(ends->newest_ns, now->wall_ns, 0))
        witness->future_ns = ends->newest_ns;
    end_undated(witness, now, ends);
    witness->seq = ends->taken_seq;
    plx_witness_look(witness, now, ends);
}

bool plx_witness_differs(const struct plx_witness *witness, const struct plx_witness *other)
{
    return witness->doubt != other->doubt || witness->future_ns != other->future_ns ||
           witness->undated_count != other->undated_count ||
           memcmp(witness->undated, other->undated,
                  witness->undated_count * sizeof *witness->undated) != 0;
}

/* WITNESS-3 */
bool plx_witness_lets_go(const struct plx_witness *witness, const struct plx_clocks *now,
                         const struct plx_history_ends *ends)
{
    return !witness->doubt && !is_future(witness, now, ends, 0);
}

/* WITNESS-4 */
uint64_t plx_witness_stamp(const struct plx_witness *witness, uint64_t wall_ns, uint64_t newest_ns)
{
    bool believed = !witness->doubt || witness->doubt == PLX_DOUBT_GAP;
    uint64_t next_ns = plx_min_u64(newest_ns + 1, PLX_TIME_MAX); /* at the end of time: equal */

    return believed ? plx_max_u64(wall_ns, next_ns) : next_ns;
}

/* ---- For people ---- */

int64_t plx_witness_off_ns(const struct plx_witness *witness, const struct plx_clocks *now,
                           const struct plx_history_ends *ends)
{
    switch (witness->doubt) {
    case PLX_DOUBT_STEPPED:
        return (int64_t)(now->wall_ns - expected_ns(witness, now));
    case PLX_DOUBT_BEHIND:
    case PLX_DOUBT_GAP:
        return (int64_t)(now->wall_ns - witness->wall_ns);
    case PLX_DOUBT_FUTURE:
        return (int64_t)(now->wall_ns - ends->newest_ns);
    default:
        return 0;
    }
}

/* "3d 4h": the two largest units are enough. */
static void print_span(int64_t ns, char *text, size_t size)
{
    uint64_t seconds = ((ns < 0 ? -(uint64_t)ns : (uint64_t)ns) + SECOND_NS / 2) / SECOND_NS;

    if (seconds >= 86400)
        snprintf(text, size, "%" PRIu64 "d %" PRIu64 "h", seconds / 86400, seconds / 3600 % 24);
    else if (seconds >= 3600)
        snprintf(text, size, "%" PRIu64 "h %" PRIu64 "m", seconds / 3600, seconds / 60 % 60);
    else
        snprintf(text, size, "%" PRIu64 "m %" PRIu64 "s", seconds / 60, seconds % 60);
}

const char *plx_witness_text(const struct plx_witness *witness, const struct plx_clocks *now,
                             const struct plx_history_ends *ends, char ret_text[PLX_DOUBT_TEXT])
{
    int64_t off_ns = plx_witness_off_ns(witness, now, ends);
    char span[40];

    print_span(off_ns, span, sizeof span);
    switch (witness->doubt) {
    case PLX_DOUBT_STEPPED:
        snprintf(ret_text, PLX_DOUBT_TEXT, "the wall clock has jumped: it is %s %s of where it was",
                 span, off_ns < 0 ? "behind" : "ahead");
        break;
    case PLX_DOUBT_BEHIND:
        snprintf(ret_text, PLX_DOUBT_TEXT,
                 "the wall clock is %s behind the time that was last seen here", span);
        break;
    case PLX_DOUBT_GAP:
        snprintf(ret_text, PLX_DOUBT_TEXT,
                 "the machine has restarted, and nobody has seen the last %s pass", span);
        break;
    case PLX_DOUBT_FUTURE:
        snprintf(ret_text, PLX_DOUBT_TEXT, "the newest snapshot lies %s in the future", span);
        break;
    default:
        snprintf(ret_text, PLX_DOUBT_TEXT, "the wall clock is right");
    }
    return ret_text;
}

static const char *const names[PLX_DOUBTS] = {"none", "stepped", "behind", "gap", "future"};

const char *plx_doubt_name(enum plx_doubt doubt)
{
    return names[doubt];
}

/* ---- As text: BOOT BOOT_NS WALL_NS SEQ FUTURE_NS DOUBT[ AFTER:UPTO:ENDED_NS]... ---- */

const char *plx_witness_print(const struct plx_witness *witness, char ret_text[PLX_WITNESS_TEXT])
{
    size_t at = (size_t)snprintf(ret_text, PLX_WITNESS_TEXT,
                                 "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %s",
                                 witness->boot_id, witness->boot_ns, witness->wall_ns, witness->seq,
                                 witness->future_ns, plx_doubt_name(witness->doubt));

    for (unsigned i = 0; i < witness->undated_count; i++)
        at += (size_t)snprintf(ret_text + at, PLX_WITNESS_TEXT - at,
                               " %" PRIu64 ":%" PRIu64 ":%" PRIu64, witness->undated[i].after,
                               witness->undated[i].upto, witness->undated[i].ended_ns);
    return ret_text;
}

static bool take_number(const char **at, char end, uint64_t *ret_number)
{
    size_t digits = strspn(*at, "0123456789");

    if (!digits || digits > 20 || ((*at)[digits] != end && (end != ' ' || (*at)[digits])))
        return false;
    *ret_number = strtoull(*at, NULL, 10);
    *at += digits + ((*at)[digits] != 0);
    return true;
}

static bool take_doubt(const char **at, enum plx_doubt *ret_doubt)
{
    size_t length = strcspn(*at, " ");

    for (unsigned i = 0; i < PLX_DOUBTS; i++) {
        if (strlen(names[i]) != length || memcmp(names[i], *at, length) != 0)
            continue;
        *ret_doubt = (enum plx_doubt)i;
        *at += length + ((*at)[length] != 0);
        return true;
    }
    return false;
}

static bool take_undated(const char **at, const struct plx_undated *before,
                         struct plx_undated *ret_undated)
{
    return (!before || before->upto != UINT64_MAX) && take_number(at, ':', &ret_undated->after) &&
           take_number(at, ':', &ret_undated->upto) &&
           take_number(at, ' ', &ret_undated->ended_ns) && ret_undated->upto > ret_undated->after;
}

bool plx_witness_parse(const char *text, struct plx_witness *ret_witness)
{
    struct plx_witness w = {0};
    const char *at = text;

    if (!take_number(&at, ' ', &w.boot_id) || !take_number(&at, ' ', &w.boot_ns) ||
        !take_number(&at, ' ', &w.wall_ns) || !take_number(&at, ' ', &w.seq) ||
        !take_number(&at, ' ', &w.future_ns) || !take_doubt(&at, &w.doubt))
        return false;
    while (*at) {
        if (w.undated_count == PLX_UNDATED_MAX ||
            !take_undated(&at, last_undated(&w), &w.undated[w.undated_count]))
            return false;
        w.undated_count++;
    }
    *ret_witness = w;
    return true;
}
