/* test_thrift.c - where letting go by a policy goes on, what it waits for, and where a stretch ends
 * (thrift.c), at the edges of each rule.
 *
 * The log is made up: segments are there or not, and their headers, which are not read from a
 * device, name key frames.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/history/past.h"
#include "ok.h"
#include "suite.h"

#define SEGMENT (16ull * PLX_BLOCK_SIZE)
#define FIRST 5u /* segment that there is */
#define SEGMENTS 200u
#define FROM 10u  /* segment at which stretches begin */
#define LATE 1000 /* all key frames are older, unless a test says otherwise */

static uint64_t segments[SEGMENTS + 1];             /* what lies behind them is no address */
static struct plx_keyframe named[FIRST + SEGMENTS]; /* by the header of that segment */
static unsigned headers_read;
static uint64_t damaged; /* segment; 0: none */
static struct plx_vdi_record record;
static struct plx_log_reader reader;
static struct plx_store store;
static struct plx_thrift_mark mark;
static struct plx_fault fault;

int __wrap_plx_log_reader_header(struct plx_log_reader *of, uint64_t segment,
                                 struct plx_segment_header *ret_header, struct plx_fault *why);

int __wrap_plx_log_reader_header(struct plx_log_reader *of, uint64_t segment,
                                 struct plx_segment_header *ret_header, struct plx_fault *why)
{
    CU_ASSERT_FATAL(segment >= FIRST && segment < FIRST + SEGMENTS);
    CU_ASSERT(of->segments[segment - FIRST] != 0);
    headers_read++;
    if (segment == damaged)
        return PLX_ERR_CORRUPT;
    *ret_header = (struct plx_segment_header){
        .segment = segment, .time_ns = LATE, .keyframe = named[segment]};
    return 0;
}

static void before(void)
{
    memset(named, 0, sizeof named);
    for (unsigned i = 0; i <= SEGMENTS; i++)
        segments[i] = 1000 + i;
    headers_read = 0;
    damaged = 0;
    store.info.segment_blocks = SEGMENT / PLX_BLOCK_SIZE;
    record = (struct plx_vdi_record){.oldest = {.pos = FIRST * SEGMENT}};
    reader = (struct plx_log_reader){.store = &store,
                                     .record = &record,
                                     .first_segment = FIRST,
                                     .segments = segments,
                                     .count = SEGMENTS};
    mark = (struct plx_thrift_mark){.used = true,
                                    .begin = {.pos = FROM * SEGMENT},
                                    .from = {.pos = FROM * SEGMENT, .levels = 1},
                                    .percent = 0};
}

/* Headers from this segment on name a key frame there, until others do. */
static void name(unsigned segment, uint64_t pos, uint64_t time_ns)
{
    for (unsigned i = segment; i < FIRST + SEGMENTS; i++)
        named[i] = (struct plx_keyframe){.pos = pos, .time_ns = time_ns, .levels = 1};
}

/* Where the stretch ends, 0: nowhere yet. */
static uint64_t end_at(uint64_t limit, uint64_t before_ns)
{
    struct plx_keyframe end = {.pos = 77, .levels = 7};

    OK(plx_thrift_end(&reader, &mark, limit, before_ns, &end, &fault));
    CU_ASSERT_EQUAL(end.levels, end.pos ? 1 : 0);
    return end.pos;
}

/* ---- Where a stretch ends ---- */

/* A stretch of so many bytes, which ends just before the segment that names its end. */
static bool is_worth_it(uint64_t bytes)
{
    uint64_t end = FROM * SEGMENT + bytes;

    memset(named, 0, sizeof named);
    mark.wait_ns = mark.wait_segment = 0;
    name((unsigned)(end / SEGMENT) + 1, end, 1);
    return end_at(end / SEGMENT + 1, LATE) == end;
}

/* THRIFT-1: what stays, and two segments, cost 5/4 of the stretch at most. */
static void test_writing(void)
{
    static const struct {
        unsigned percent;
        uint64_t least; /* segments */
    } edges[] = {{100, 8}, {75, 4}, {25, 2}};

    for (unsigned i = 0; i < sizeof edges / sizeof edges[0]; i++) {
        uint64_t least = edges[i].least * SEGMENT;

        mark.percent = edges[i].percent;
        CU_ASSERT_TRUE(is_worth_it(least));
        CU_ASSERT_FALSE(is_worth_it(least - 1));
        CU_ASSERT_FALSE(is_worth_it(least - SEGMENT));
    }
}

/* The same where a segment lies between the end and who names it: it is copied as well. */
static void test_copied(void)
{
    uint64_t end = (FROM + 10) * SEGMENT + 1;

    mark.percent = 100;
    name(FROM + 11, end, 1);
    CU_ASSERT_EQUAL(end_at(FROM + 12, LATE), end); /* 10 and 2 of 12 */
    before();
    mark.percent = 100;
    name(FROM + 12, end, 1);
    CU_ASSERT_EQUAL(end_at(FROM + 12, LATE), 0); /* 10 and 3 of 12 */
    CU_ASSERT_EQUAL(mark.wait_segment, FROM + 13);
    before();
    mark.percent = 100;
    name(FROM + 12, end, 1);
    segments[FROM + 11 - FIRST] = 0; /* of which there is nothing */
    CU_ASSERT_EQUAL(end_at(FROM + 12, LATE), end);
}

/* THRIFT-1: reading costs half of the stretch more at most. */
static void test_reading(void)
{
    uint64_t end = (FROM + 8) * SEGMENT;

    name(FROM + 9, end, 1); /* one segment behind it */
    mark.begin.pos = (FROM - 3) * SEGMENT;
    CU_ASSERT_EQUAL(end_at(FROM + 9, LATE), end); /* 3 before: 12 of 8 */
    mark.begin.pos--;
    CU_ASSERT_EQUAL(end_at(FROM + 9, LATE), 0);
    mark.wait_segment = 0;
    segments[FROM - 2 - FIRST] = 0; /* of what is gone nothing is read */
    CU_ASSERT_EQUAL(end_at(FROM + 9, LATE), end);
}

/* However dear: behind 64 segments any end will do. */
static void test_any(void)
{
    mark.begin.pos = FIRST * SEGMENT;
    mark.percent = 200;
    name(FROM + 64, (FROM + 64) * SEGMENT - 1, 1);
    CU_ASSERT_EQUAL(end_at(FROM + 70, LATE), 0);
    name(FROM + 71, (FROM + 64) * SEGMENT, 1);
    CU_ASSERT_EQUAL(end_at(FROM + 70, LATE), 0);
    CU_ASSERT_EQUAL(end_at(FROM + 71, LATE), (FROM + 64) * SEGMENT);
}

/* The last one worth it; but none is looked for behind 16 segments. */
static void test_longest(void)
{
    for (unsigned i = 4; i < 40; i += 4)
        name(FROM + i, (FROM + i) * SEGMENT - 1, 1);
    CU_ASSERT_EQUAL(end_at(FROM + 13, LATE), (FROM + 12) * SEGMENT - 1);
    CU_ASSERT_EQUAL(end_at(FROM + 40, LATE), (FROM + 20) * SEGMENT - 1);
    headers_read = 0;
    name(FROM + 16, (FROM + 16) * SEGMENT, 1);
    CU_ASSERT_EQUAL(end_at(FROM + 40, LATE), (FROM + 16) * SEGMENT);
    CU_ASSERT_EQUAL(headers_read, 16); /* THRIFT-3: each header once, and no further */
}

/* Key frames up to the beginning end nothing; nor does a segment beyond the limit. */
static void test_bounds(void)
{
    name(FIRST, FROM * SEGMENT, 1);
    CU_ASSERT_EQUAL(end_at(FROM + 20, LATE), 0);
    CU_ASSERT_EQUAL(headers_read, 20);
    mark.wait_segment = 0;
    name(FROM + 9, (FROM + 8) * SEGMENT, 1);
    CU_ASSERT_EQUAL(end_at(FROM + 8, LATE), 0);
    CU_ASSERT_EQUAL(end_at(FROM + 9, LATE), (FROM + 8) * SEGMENT);
    mark.from.levels = 0; /* it is to be found first */
    headers_read = 0;
    CU_ASSERT_EQUAL(end_at(FROM + 9, LATE), 0);
    CU_ASSERT_EQUAL(headers_read, 0);
}

static void test_damaged(void)
{
    struct plx_keyframe end;

    name(FROM + 9, (FROM + 8) * SEGMENT, 1);
    damaged = FROM + 4;
    FAILS(CORRUPT, plx_thrift_end(&reader, &mark, FROM + 9, LATE, &end, &fault));
    CU_ASSERT_EQUAL(end.levels, 0);
    CU_ASSERT(!plx_thrift_waits(&mark, FROM + 9, LATE)); /* for more log it is not */
}

/* ---- What is waited for ---- */

/* THRIFT-3: of key frames that have not crossed the boundary. */
static void test_boundary(void)
{
    name(FROM + 9, (FROM + 8) * SEGMENT, 500);
    CU_ASSERT_EQUAL(end_at(FROM + 20, 500), 0);
    CU_ASSERT_EQUAL(mark.wait_ns, 500);
    CU_ASSERT_EQUAL(mark.wait_segment, 0);
    headers_read = 0;
    CU_ASSERT_EQUAL(end_at(FROM + 30, 500), 0); /* more log does not help */
    CU_ASSERT_EQUAL(headers_read, 0);
    CU_ASSERT_EQUAL(end_at(FROM + 20, 501), (FROM + 8) * SEGMENT);
    CU_ASSERT_EQUAL(mark.wait_ns, 0);
    /* An earlier one has crossed it: there it ends. */
    name(FROM + 13, (FROM + 12) * SEGMENT, 600);
    CU_ASSERT_EQUAL(end_at(FROM + 20, 600), (FROM + 8) * SEGMENT);
    CU_ASSERT_EQUAL(mark.wait_ns, 0);
    CU_ASSERT_EQUAL(mark.wait_segment, 0);
}

/* THRIFT-2 */
static void test_waits(void)
{
    CU_ASSERT_EQUAL(end_at(FROM + 3, LATE), 0);
    CU_ASSERT_EQUAL(mark.wait_segment, FROM + 4);
    CU_ASSERT_EQUAL(mark.wait_ns, 0);
    CU_ASSERT_TRUE(plx_thrift_waits(&mark, FROM + 3, LATE));
    CU_ASSERT_FALSE(plx_thrift_waits(&mark, FROM + 4, LATE));
    headers_read = 0;
    CU_ASSERT_EQUAL(end_at(FROM + 3, LATE), 0);
    CU_ASSERT_EQUAL(headers_read, 0); /* nobody looks in vain */
    CU_ASSERT_EQUAL(end_at(FROM + 4, LATE), 0);
    CU_ASSERT_EQUAL(headers_read, 4);
    name(FROM + 9, (FROM + 8) * SEGMENT, 1);
    CU_ASSERT_EQUAL(end_at(FROM + 9, LATE), (FROM + 8) * SEGMENT);
    CU_ASSERT_EQUAL(mark.wait_segment, 0);
    mark.wait_ns = 300;
    CU_ASSERT_TRUE(plx_thrift_waits(&mark, FROM, 300));
    CU_ASSERT_FALSE(plx_thrift_waits(&mark, FROM, 301));
}

/* The same from outside, of the disk's own marks, by how far its log is applied. */
static void test_disk_waits(void)
{
    struct plx_vdi *vdi = calloc(1, sizeof *vdi);
    struct plx_past past = {0};
    struct plx_thin thin = {.after = 40, .every_ns = 7, .before_ns = LATE, .thrifty = true};

    CU_ASSERT_PTR_NOT_NULL_FATAL(vdi);
    vdi->log.store = &store;
    vdi->log.applied.pos = (FROM + 1) * SEGMENT - 1;
    mark.every_ns = 7;
    mark.upto = 40;
    mark.wait_segment = FROM + 1;
    CU_ASSERT_FALSE(plx_vdi_thin_waits(vdi, &thin)); /* nobody has thinned it yet */
    vdi->past = &past;
    CU_ASSERT_FALSE(plx_vdi_thin_waits(vdi, &thin));
    plx_thrift_set(&past.thrift, &mark);
    CU_ASSERT_TRUE(plx_vdi_thin_waits(vdi, &thin));
    thin.thrifty = false;
    CU_ASSERT_FALSE(plx_vdi_thin_waits(vdi, &thin));
    thin.thrifty = true;
    thin.every_ns = 8;
    CU_ASSERT_FALSE(plx_vdi_thin_waits(vdi, &thin));
    thin.every_ns = 7;
    vdi->log.applied.pos++;
    CU_ASSERT_FALSE(plx_vdi_thin_waits(vdi, &thin));
    free(vdi);
}

/* ---- Marks ---- */

static void test_digest(void)
{
    const uint64_t held[] = {3, 5, 9}, others[] = {3, 6, 9};

    CU_ASSERT_EQUAL(plx_thrift_digest(held, 3, 2), 0);
    CU_ASSERT_EQUAL(plx_thrift_digest(held, 0, 9), 0);
    CU_ASSERT_NOT_EQUAL(plx_thrift_digest(held, 3, 3), 0);
    CU_ASSERT_EQUAL(plx_thrift_digest(held, 3, 4), plx_thrift_digest(others, 3, 5));
    CU_ASSERT_NOT_EQUAL(plx_thrift_digest(held, 3, 5), plx_thrift_digest(held, 3, 4));
    CU_ASSERT_NOT_EQUAL(plx_thrift_digest(held, 3, 9), plx_thrift_digest(others, 3, 9));
    CU_ASSERT_EQUAL(plx_thrift_digest(held, 2, 9), plx_thrift_digest(held, 3, 8));
}

static struct plx_thrift thrift;

static struct plx_thrift_mark *find(uint64_t after, uint64_t every_ns, const uint64_t *held,
                                    size_t count)
{
    struct plx_thin thin = {.after = after, .every_ns = every_ns};

    return plx_thrift_find(&thrift, &thin, held, count, &reader);
}

static void set(uint64_t every_ns, uint64_t upto)
{
    mark.every_ns = every_ns;
    mark.upto = upto;
    mark.used = false; /* it is, once it is set */
    plx_thrift_set(&thrift, &mark);
}

/* One for each interval; the oldest makes room for more. */
static void test_marks(void)
{
    memset(&thrift, 0, sizeof thrift);
    for (unsigned i = 1; i <= PLX_THRIFT_MARKS; i++)
        set(i, 10 * i);
    set(2, 25);
    CU_ASSERT_PTR_NULL(find(20, 2, NULL, 0));
    CU_ASSERT_PTR_NULL(find(25, 3, NULL, 0));
    CU_ASSERT_PTR_NULL(find(0, 2, NULL, 0));
    CU_ASSERT_PTR_NOT_NULL(find(25, 2, NULL, 0));
    for (unsigned i = 3; i <= PLX_THRIFT_MARKS; i++)
        CU_ASSERT_PTR_NOT_NULL(find(10 * i, i, NULL, 0));
    set(PLX_THRIFT_MARKS + 1, 1);
    CU_ASSERT_PTR_NULL(find(10, 1, NULL, 0));
    CU_ASSERT_PTR_NOT_NULL(find(25, 2, NULL, 0));
    set(PLX_THRIFT_MARKS + 2, 2);
    CU_ASSERT_PTR_NULL(find(25, 2, NULL, 0));
    CU_ASSERT_PTR_NOT_NULL(find(1, PLX_THRIFT_MARKS + 1, NULL, 0));
    CU_ASSERT_PTR_NOT_NULL(find(2, PLX_THRIFT_MARKS + 2, NULL, 0));
}

/* Where all go it is found from the beginning, too, unless other ones are held before it. */
static void test_all_go(void)
{
    const uint64_t held[] = {3, 9, 50}, fewer[] = {3, 50}, later[] = {3, 9, 60};

    memset(&thrift, 0, sizeof thrift);
    mark.held = plx_thrift_digest(held, 3, 40);
    set(0, 40);
    CU_ASSERT_PTR_NULL(find(39, 0, held, 3));
    CU_ASSERT_PTR_NOT_NULL(find(40, 0, held, 3));
    CU_ASSERT_PTR_NOT_NULL(find(0, 0, held, 3));
    CU_ASSERT_PTR_NOT_NULL(find(0, 0, later, 3));
    CU_ASSERT_PTR_NULL(find(0, 0, fewer, 2));
    CU_ASSERT_PTR_NULL(find(0, 0, held, 3)); /* it is forgotten */
    set(8, 40);                              /* where some stay nobody looks back */
    CU_ASSERT_PTR_NOT_NULL(find(40, 8, fewer, 2));
}

static bool is_found(uint64_t begin)
{
    memset(&thrift, 0, sizeof thrift);
    mark.begin.pos = begin;
    set(8, 40);
    return find(40, 8, NULL, 0) != NULL && thrift.marks[0].used;
}

/* A mark where there is no log any more is none. */
static void test_gone(void)
{
    CU_ASSERT_TRUE(is_found(FIRST * SEGMENT));
    CU_ASSERT_FALSE(is_found(FIRST * SEGMENT - 1));
    CU_ASSERT_TRUE(is_found((FIRST + SEGMENTS) * SEGMENT - 1));
    CU_ASSERT_FALSE(is_found((FIRST + SEGMENTS) * SEGMENT));
    segments[2] = 0;
    CU_ASSERT_FALSE(is_found((FIRST + 2) * SEGMENT));
    CU_ASSERT_FALSE(thrift.marks[0].used);
    CU_ASSERT_TRUE(is_found((FIRST + 3) * SEGMENT));
    record.oldest.pos = (FIRST + 3) * SEGMENT + 1;
    CU_ASSERT_FALSE(is_found((FIRST + 3) * SEGMENT));
    CU_ASSERT_TRUE(is_found((FIRST + 3) * SEGMENT + 1));
}

static bool is_left(uint64_t begin, uint64_t from, uint64_t kept, uint8_t levels)
{
    memset(&thrift, 0, sizeof thrift);
    mark.begin.pos = begin;
    mark.from.pos = from;
    mark.before = (struct plx_keyframe){.pos = kept, .levels = levels};
    set(8, 40);
    plx_thrift_forget(&thrift, 100, 200);
    return thrift.marks[0].used;
}

/* THRIFT-4 */
static void test_forget(void)
{
    CU_ASSERT_TRUE(is_left(99, 200, 99, 1));
    CU_ASSERT_TRUE(is_left(200, 200, 200, 1));
    CU_ASSERT_FALSE(is_left(100, 200, 99, 1));
    CU_ASSERT_FALSE(is_left(199, 200, 99, 1));
    CU_ASSERT_FALSE(is_left(99, 100, 99, 1));
    CU_ASSERT_FALSE(is_left(99, 199, 99, 1));
    CU_ASSERT_FALSE(is_left(99, 200, 100, 1));
    CU_ASSERT_FALSE(is_left(99, 200, 199, 1));
    CU_ASSERT_TRUE(is_left(99, 200, 150, 0)); /* there is none */
}

/* Of segments that are partly in it, that part. */
static void test_bytes(void)
{
    uint64_t at = FROM * SEGMENT;

    CU_ASSERT_EQUAL(plx_thrift_bytes(&reader, at, at), 0);
    CU_ASSERT_EQUAL(plx_thrift_bytes(&reader, at + 5, at + 9), 4);
    CU_ASSERT_EQUAL(plx_thrift_bytes(&reader, at + 5, at + 3 * SEGMENT + 9), 3 * SEGMENT + 4);
    segments[FROM + 1 - FIRST] = 0;
    CU_ASSERT_EQUAL(plx_thrift_bytes(&reader, at + 5, at + 3 * SEGMENT + 9), 2 * SEGMENT + 4);
    CU_ASSERT_EQUAL(plx_thrift_bytes(&reader, 0, (FIRST + 1) * SEGMENT), SEGMENT);
}

int main(void)
{
    static const struct suite_frame frame = {.before = before};
    static const struct suite_test tests[] = {
        {"what writing may cost", test_writing},
        {"what is copied at the end", test_copied},
        {"what reading may cost", test_reading},
        {"any end, far behind", test_any},
        {"the longest stretch", test_longest},
        {"bounds", test_bounds},
        {"a damaged header", test_damaged},
        {"the boundary", test_boundary},
        {"waiting for more log", test_waits},
        {"a disk that waits", test_disk_waits},
        {"digests", test_digest},
        {"marks", test_marks},
        {"where all go", test_all_go},
        {"where there is no log", test_gone},
        {"where it was rewritten", test_forget},
        {"bytes of log", test_bytes},
    };

    return SUITE_RUN_IN(&frame, "thrift", tests);
}
