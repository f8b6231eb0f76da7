/* thrift.c - see thrift.h.
 *
 * THRIFT-1  A stretch is worked on only if rewriting it writes at most 5/4 of its bytes and reads
 *     at most 3/2 of them, or if it has LOOK_MAX segments. Otherwise its snapshots stay for now,
 *     and the mark says what has to happen first (THRIFT-2). So a stretch has at least 8 segments
 *     if everything stays, and at least 2 if little does. The estimate:
 *
 *        cost     of what
 *        written  the stretch, times the share that stayed of the last stretch (mark->percent)
 *        written  one segment copied at the beginning, and all segments copied behind the end: up
 *                 to the first one whose header names the ending key frame (REWRITE-4)
 *        read     the stretch, and the log behind it up to that same segment
 *        read     the log from the last snapshot that stays up to the beginning (RECLAIM-10)
 *
 * THRIFT-2  A tier waits only until more log has crossed its boundary: until a further segment has
 *     begun, or until a key frame is old enough to end the stretch. So however little a disk
 *     writes, only some MiB of its log are ever left to work on. At the old end of history nothing
 *     is rewritten, so nobody waits for more log there.
 * THRIFT-3  The ends are found in segment headers, each of which names a key frame and its time. A
 *     key frame older than the boundary has only older snapshots before it, so a stretch that ends
 *     there holds nothing too young.
 * THRIFT-4  A mark has positions of the present log. Code that rewrites a stretch must drop the
 *     marks inside it, since their positions may no longer exist. Without a mark the log is
 *     searched once, as after a restart.
 *
 * Loop: the disk's; reading headers runs it.
 * Crash story: marks are in memory only. After a restart reclaim.c searches the log once.
 */
#include "engine/history/thrift.h"

#include "engine/base/hash.h"
#include "engine/history/past.h"

#define STRETCH_MAX 16u /* segments: a stretch this long is taken, and no later end looked for */
#define LOOK_MAX 64u    /* segments: for a stretch this long any end will do */
#define PERCENT_WRITE 125u
#define PERCENT_READ 150u

/* ---- Marks ---- */

uint64_t plx_thrift_digest(const uint64_t *held, size_t count, uint64_t upto)
{
    size_t n = 0;

    while (n < count && held[n] <= upto)
        n++;
    return n ? plx_hash64(held, n * sizeof *held) : 0;
}

static bool is_at(const struct plx_thrift_mark *mark, const struct plx_thin *thin)
{
    return mark->used && mark->every_ns == thin->every_ns &&
           (mark->upto == thin->after || (!thin->after && !thin->every_ns));
}

static bool is_there(const struct plx_log_reader *reader, uint64_t pos)
{
    uint64_t segment = pos / plx_log_segment_bytes(reader->store);

    return segment >= reader->first_segment && segment - reader->first_segment < reader->count &&
           reader->segments[segment - reader->first_segment];
}

struct plx_thrift_mark *plx_thrift_find(struct plx_thrift *thrift, const struct plx_thin *thin,
                                        const uint64_t *held, size_t held_count,
                                        const struct plx_log_reader *reader)
{
    for (unsigned i = 0; i < PLX_THRIFT_MARKS; i++) {
        struct plx_thrift_mark *mark = &thrift->marks[i];

        if (!is_at(mark, thin))
            continue;
        /* At the end of the window every snapshot goes that nobody holds. So when the holds have
         * changed, the snapshots that were left before the mark are looked at again. */
        if ((thin->every_ns || mark->held == plx_thrift_digest(held, held_count, mark->upto)) &&
            mark->begin.pos >= reader->record->oldest.pos && is_there(reader, mark->begin.pos))
            return mark;
        mark->used = false;
    }
    return NULL;
}

void plx_thrift_set(struct plx_thrift *thrift, const struct plx_thrift_mark *mark)
{
    unsigned at = 0;

    while (at < PLX_THRIFT_MARKS && thrift->marks[at].every_ns != mark->every_ns)
        at++;
    if (at == PLX_THRIFT_MARKS)
        at = thrift->next++ % PLX_THRIFT_MARKS;
    thrift->marks[at] = *mark;
    thrift->marks[at].used = true;
}

/* THRIFT-4 */
void plx_thrift_forget(struct plx_thrift *thrift, uint64_t from, uint64_t to)
{
    for (unsigned i = 0; i < PLX_THRIFT_MARKS; i++) {
        struct plx_thrift_mark *mark = &thrift->marks[i];

        if ((mark->begin.pos >= from && mark->begin.pos < to) ||
            (mark->from.pos >= from && mark->from.pos < to) ||
            (mark->before.levels && mark->before.pos >= from && mark->before.pos < to))
            mark->used = false;
    }
}

/* THRIFT-2 */
bool plx_thrift_waits(const struct plx_thrift_mark *mark, uint64_t limit, uint64_t before_ns)
{
    return before_ns <= mark->wait_ns || limit < mark->wait_segment;
}

bool plx_vdi_thin_waits(const struct plx_vdi *vdi, const struct plx_thin *thin)
{
    uint64_t limit = plx_log_segment_of(&vdi->log, vdi->log.applied.pos);
    const struct plx_thrift_mark *marks = vdi->past ? vdi->past->thrift.marks : NULL;

    for (unsigned i = 0; i < PLX_THRIFT_MARKS && thin->thrifty && marks; i++)
        if (is_at(&marks[i], thin) && plx_thrift_waits(&marks[i], limit, thin->before_ns))
            return true;
    return false;
}

/* ---- Where a stretch ends ---- */

uint64_t plx_thrift_bytes(const struct plx_log_reader *reader, uint64_t from, uint64_t to)
{
    uint64_t bytes = plx_log_segment_bytes(reader->store), sum = 0;

    for (uint64_t pos = from; pos < to; pos = (pos / bytes + 1) * bytes)
        if (is_there(reader, pos))
            sum += plx_min_u64(to, (pos / bytes + 1) * bytes) - pos;
    return sum;
}

/* THRIFT-1. named: the first segment whose header names the ending key frame. */
static bool is_worth_it(const struct plx_log_reader *reader, const struct plx_thrift_mark *mark,
                        const struct plx_keyframe *end, uint64_t named)
{
    uint64_t bytes = plx_log_segment_bytes(reader->store);
    uint64_t from = mark->from.pos, stretch = plx_thrift_bytes(reader, from, end->pos);
    uint64_t behind = plx_thrift_bytes(reader, end->pos, named * bytes);
    uint64_t copied = (plx_div_up(behind, bytes) + 1) * bytes;
    uint64_t before = plx_thrift_bytes(reader, mark->begin.pos, from);

    if (stretch >= LOOK_MAX * bytes)
        return true;
    return (stretch * mark->percent + copied * 100) <= stretch * PERCENT_WRITE &&
           (stretch + behind + before) * 100 <= stretch * PERCENT_READ;
}

int plx_thrift_end(struct plx_log_reader *reader, struct plx_thrift_mark *mark, uint64_t limit,
                   uint64_t before_ns, struct plx_keyframe *ret_end, struct plx_fault *fault)
{
    uint64_t bytes = plx_log_segment_bytes(reader->store), from = mark->from.pos;
    struct plx_segment_header header;
    struct plx_keyframe end = {0};
    int error = 0;

    *ret_end = end;
    if (plx_thrift_waits(mark, limit, before_ns) || !mark->from.levels)
        return 0;
    mark->wait_ns = mark->wait_segment = 0;
    for (uint64_t n = from / bytes + 1; n <= limit; n++) {
        if (!is_there(reader, n * bytes))
            continue;
        error = plx_log_reader_header(reader, n, &header, fault);
        if (error)
            return error;
        if (header.keyframe.pos <= from || !is_worth_it(reader, mark, &header.keyframe, n))
            continue;
        /* THRIFT-3: the key frame's time counts; the header's own time may be any clock's. */
        if (header.keyframe.time_ns >= before_ns) {
            mark->wait_ns = end.levels ? 0 : header.keyframe.time_ns;
            *ret_end = end;
            return 0;
        }
        end = header.keyframe;
        if (plx_thrift_bytes(reader, from, end.pos) >= STRETCH_MAX * bytes)
            break;
    }
    if (!end.levels)
        mark->wait_segment = limit + 1;
    *ret_end = end;
    return 0;
}
