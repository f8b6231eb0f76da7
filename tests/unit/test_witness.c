/* test_witness.c - the rule of the wall clock's doubt (witness.c), in every direction that a
 * clock can jump, across processes and starts of the machine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/witness.h"
#include "suite.h"

#define S 1000000000ull
#define MINUTE (60 * S)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)
#define START (20000 * DAY)

static struct plx_witness witness;
static struct plx_clocks now;
static struct plx_history_ends ends;

/* A disk with an hour of snapshots, seen by a clock that is right. */
static void begin(void)
{
    witness = (struct plx_witness){0};
    now = (struct plx_clocks){.wall_ns = START, .boot_ns = DAY, .boot_id = 7};
    ends = (struct plx_history_ends){.taken_seq = 100, .newest_seq = 100, .newest_ns = START - S};
    plx_witness_look(&witness, &now, &ends);
}

static enum plx_doubt look(void)
{
    plx_witness_look(&witness, &now, &ends);
    CU_ASSERT(!witness.doubt || !plx_witness_lets_go(&witness, &now, &ends));
    return witness.doubt;
}

/* True time, which both clocks show. */
static enum plx_doubt pass(uint64_t ns)
{
    now.wall_ns += ns;
    now.boot_ns += ns;
    return look();
}

static enum plx_doubt set_clock(int64_t ns)
{
    now.wall_ns += (uint64_t)ns;
    return look();
}

static void take_snapshot(void)
{
    uint64_t time_ns;

    look();
    time_ns = plx_witness_stamp(&witness, now.wall_ns, ends.newest_ns);
    CU_ASSERT(time_ns > ends.newest_ns);
    ends.newest_ns = time_ns;
    ends.taken_seq = ++ends.newest_seq;
}

/* The process has ended; the next one knows what was kept. */
static void restart(void)
{
    char text[PLX_WITNESS_TEXT], again[PLX_WITNESS_TEXT];
    struct plx_witness back;

    CU_ASSERT_FATAL(plx_witness_parse(plx_witness_print(&witness, text), &back));
    CU_ASSERT_STRING_EQUAL(plx_witness_print(&back, again), text);
    witness = back;
}

static void reboot(uint64_t off_for_ns, int64_t clock_off_ns)
{
    restart();
    now.boot_id++;
    now.boot_ns = 30 * S;
    now.wall_ns += off_for_ns + (uint64_t)clock_off_ns;
}

/* ---- The same run of the machine ---- */

static void test_right(void)
{
    begin();
    CU_ASSERT_EQUAL(look(), PLX_DOUBT_NONE);
    CU_ASSERT(plx_witness_lets_go(&witness, &now, &ends));
    CU_ASSERT_EQUAL(pass(400 * DAY), PLX_DOUBT_NONE); /* an idle disk is no doubt */
    CU_ASSERT_EQUAL(set_clock((int64_t)MINUTE), PLX_DOUBT_NONE);
    CU_ASSERT_EQUAL(set_clock(-2 * (int64_t)MINUTE), PLX_DOUBT_NONE);
    CU_ASSERT(plx_witness_lets_go(&witness, &now, &ends));
    CU_ASSERT_EQUAL(witness.undated_count, 0);
}

static void test_stepped(void)
{
    static const int64_t jumps[] = {(int64_t)(MINUTE + S), (int64_t)(3650 * DAY),
                                    -(int64_t)(MINUTE + S), -(int64_t)(3650 * DAY)};

    for (unsigned i = 0; i < sizeof jumps / sizeof jumps[0]; i++) {
        begin();
        pass(MINUTE);
        CU_ASSERT_EQUAL(set_clock(jumps[i]), PLX_DOUBT_STEPPED);
        CU_ASSERT_EQUAL(plx_witness_off_ns(&witness, &now, &ends), jumps[i]);
        for (unsigned k = 0; k < 10; k++) { /* WITNESS-1 */
            CU_ASSERT_EQUAL(pass(DAY), PLX_DOUBT_STEPPED);
            restart();
        }
        CU_ASSERT_EQUAL(set_clock(-jumps[i]), PLX_DOUBT_NONE);
        CU_ASSERT(plx_witness_lets_go(&witness, &now, &ends));
        CU_ASSERT_EQUAL(witness.undated_count, 0); /* none was taken */
    }
}

/* Little by little is running away as well; an hour in a month is no clock's drift. */
static void test_drift(void)
{
    begin();
    for (unsigned i = 0; i < 1000; i++) {
        CU_ASSERT_EQUAL(pass(HOUR), PLX_DOUBT_NONE);
        CU_ASSERT_EQUAL(set_clock((int64_t)(3 * S)), PLX_DOUBT_NONE); /* less than a thousandth */
    }
    for (unsigned i = 0; i < 50 && !witness.doubt; i++) {
        pass(MINUTE);
        set_clock((int64_t)(30 * S));
    }
    CU_ASSERT_EQUAL(witness.doubt, PLX_DOUBT_STEPPED);
    /* However often one looks: 80 seconds in a day and two hours, a little at each look. */
    begin();
    for (unsigned i = 0; i < 100000 && !witness.doubt; i++) {
        pass(S * 9 / 10);
        set_clock(800000);
    }
    CU_ASSERT_EQUAL(witness.doubt, PLX_DOUBT_NONE);
}

/* WITNESS-4 */
static void test_stamps(void)
{
    uint64_t last;

    begin();
    take_snapshot();
    CU_ASSERT_EQUAL(ends.newest_ns, now.wall_ns);
    take_snapshot(); /* the clock stands still */
    CU_ASSERT_EQUAL(ends.newest_ns, now.wall_ns + 1);
    pass(S);
    last = ends.newest_ns;
    set_clock((int64_t)(10 * DAY));
    take_snapshot();
    pass(DAY);
    take_snapshot();
    CU_ASSERT_EQUAL(ends.newest_ns, last + 2);
    set_clock(-(int64_t)(10 * DAY));
    take_snapshot();
    CU_ASSERT_EQUAL(ends.newest_ns, now.wall_ns);
    CU_ASSERT_EQUAL(plx_witness_stamp(&witness, 1, PLX_TIME_MAX), PLX_TIME_MAX);
}

/* ---- Another run, or another machine ---- */

static void test_reboot(void)
{
    begin();
    pass(HOUR);
    reboot(5 * MINUTE, 0);
    CU_ASSERT_EQUAL(look(), PLX_DOUBT_NONE);
    CU_ASSERT_EQUAL(witness.boot_id, now.boot_id);
    /* Its clock is behind; the first time server puts that right. */
    reboot(5 * MINUTE, -(int64_t)(2 * HOUR));
    CU_ASSERT_EQUAL(look(), PLX_DOUBT_BEHIND);
    take_snapshot();
    restart();
    CU_ASSERT_EQUAL(pass(MINUTE), PLX_DOUBT_BEHIND);
    CU_ASSERT_EQUAL(set_clock((int64_t)(2 * HOUR)), PLX_DOUBT_NONE);
    CU_ASSERT(plx_witness_is_undated(&witness, 101) && !plx_witness_is_undated(&witness, 100));
    /* It is ahead, and nothing was written: no snapshot tells. */
    reboot(5 * MINUTE, (int64_t)(100 * DAY));
    CU_ASSERT_EQUAL(look(), PLX_DOUBT_GAP);
    restart();
    CU_ASSERT_EQUAL(pass(DAY), PLX_DOUBT_GAP);
    take_snapshot();
    CU_ASSERT_EQUAL(ends.newest_ns, now.wall_ns); /* it is probably right */
    reboot(5 * MINUTE, 0);
    CU_ASSERT_EQUAL(look(), PLX_DOUBT_GAP); /* another start does not make it right */
    now.disciplined = true;
    CU_ASSERT_EQUAL(look(), PLX_DOUBT_NONE);
}

/* The machine jumped, and nobody looked: another process of the same run, then of another. */
static void test_unseen(void)
{
    begin();
    restart();
    now.boot_ns += 3 * DAY; /* suspended, say */
    now.wall_ns += 3 * DAY;
    CU_ASSERT_EQUAL(look(), PLX_DOUBT_NONE);
    restart();
    now.wall_ns += 30 * DAY;
    CU_ASSERT_EQUAL(look(), PLX_DOUBT_STEPPED);
    reboot(MINUTE, 0);
    CU_ASSERT_EQUAL(look(), PLX_DOUBT_GAP);
    CU_ASSERT_EQUAL(set_clock(-30 * (int64_t)DAY), PLX_DOUBT_NONE);
}

/* ---- The newest snapshot in the future ---- */

static void test_future(void)
{
    begin();
    witness =
        /* WITNESS-7: a clock that was ahead has stamped some, and is right now */
        (struct plx_witness){0};
    ends.newest_ns = now.wall_ns + 3650 * DAY;
    CU_ASSERT_EQUAL(look(), PLX_DOUBT_FUTURE);
    CU_ASSERT_EQUAL(plx_witness_off_ns(&witness, &now, &ends), -(int64_t)(3650 * DAY));
    take_snapshot();
    CU_ASSERT_EQUAL(ends.newest_ns, now.wall_ns + 3650 * DAY + 1);
    plx_witness_resume(&witness, &now, &ends);
    CU_ASSERT(!witness.doubt && plx_witness_lets_go(&witness, &now, &ends));
    restart();
    pass(DAY);
    take_snapshot();
    CU_ASSERT(!look() && plx_witness_lets_go(&witness, &now, &ends));
    ends.newest_ns += HOUR; /* that is another jump */
    CU_ASSERT_EQUAL(look(), PLX_DOUBT_FUTURE);
    ends.newest_ns = now.wall_ns + 1; /* WITNESS-3 */
    witness.future_ns = 0;
    CU_ASSERT(!look() && !plx_witness_lets_go(&witness, &now, &ends));
    CU_ASSERT(!pass(1) && plx_witness_lets_go(&witness, &now, &ends));
}

/* ---- The operator's word ---- */

static void test_resume(void)
{
    begin();
    set_clock((int64_t)(10 * DAY));
    take_snapshot();
    CU_ASSERT_EQUAL(witness.doubt, PLX_DOUBT_STEPPED);
    plx_witness_resume(&witness, &now, &ends);
    CU_ASSERT(!witness.doubt && plx_witness_lets_go(&witness, &now, &ends));
    restart();
    CU_ASSERT_EQUAL(pass(DAY), PLX_DOUBT_NONE);
    CU_ASSERT_EQUAL(set_clock(-(int64_t)(10 * DAY)), PLX_DOUBT_STEPPED);
    plx_witness_resume(&witness, &now, &ends);
    CU_ASSERT(!witness.doubt);
    reboot(DAY, 0);
    CU_ASSERT_EQUAL(look(), PLX_DOUBT_GAP);
    plx_witness_resume(&witness, &now, &ends);
    CU_ASSERT(!witness.doubt && !pass(DAY));
}

/* ---- Stretches without dates ---- */

static void doubtful_snapshots(unsigned count)
{
    set_clock((int64_t)DAY);
    for (unsigned i = 0; i < count; i++)
        take_snapshot();
    pass(HOUR);
    set_clock(-(int64_t)DAY);
}

/* WITNESS-6: the word was given while history lies in the future. */
static void test_resume_ahead(void)
{
    uint64_t newest;

    begin();
    set_clock((int64_t)DAY);
    plx_witness_resume(&witness, &now, &ends);
    take_snapshot();
    pass(S);
    set_clock(-(int64_t)DAY);
    plx_witness_resume(&witness, &now, &ends);
    CU_ASSERT(!witness.doubt && witness.undated_count == 1);
    newest = ends.newest_seq;
    for (unsigned i = 0; i < 3; i++) {
        pass(HOUR);
        take_snapshot();
    }
    CU_ASSERT(!plx_witness_is_undated(&witness, newest));
    CU_ASSERT(plx_witness_is_undated(&witness, newest + 1));
    pass(2 * DAY);
    CU_ASSERT(!witness.doubt && plx_witness_lets_go(&witness, &now, &ends));
    CU_ASSERT(plx_witness_keeps(&witness, newest + 2, now.wall_ns - HOUR, S));
    take_snapshot();
    CU_ASSERT(!plx_witness_is_undated(&witness, ends.newest_seq));
}

/* WITNESS-5, WITNESS-6 */
static void test_undated(void)
{
    uint64_t ended_ns;

    begin();
    doubtful_snapshots(10);
    ended_ns = now.wall_ns;
    CU_ASSERT_EQUAL(witness.undated_count, 1);
    restart();
    CU_ASSERT(!plx_witness_is_undated(&witness, 100) && plx_witness_is_undated(&witness, 101) &&
              plx_witness_is_undated(&witness, 110) && !plx_witness_is_undated(&witness, 111));
    CU_ASSERT(plx_witness_keeps(&witness, 105, ended_ns, 0));
    CU_ASSERT(!plx_witness_keeps(&witness, 105, ended_ns + 1, 0));
    CU_ASSERT(
        plx_witness_keeps(&witness, 105, ended_ns + DAY, S)); /* never the first of a period */
    CU_ASSERT(!plx_witness_keeps(&witness, 100, 0, S));
    /* As long as it lasts nobody knows. */
    set_clock((int64_t)DAY);
    take_snapshot();
    CU_ASSERT(plx_witness_keeps(&witness, 111, UINT64_MAX, 0));
    set_clock(-(int64_t)DAY);
    /* What has gone is forgotten. */
    ends.forgotten = 109;
    look();
    CU_ASSERT_EQUAL(witness.undated_count, 2);
    ends.forgotten = 110;
    look();
    CU_ASSERT_EQUAL(witness.undated_count, 1);
    ends.forgotten = 0;
    for (unsigned i = 0; i < 20; i++) {
        pass(DAY);
        take_snapshot();
        doubtful_snapshots(2);
    }
    CU_ASSERT_EQUAL(witness.undated_count, PLX_UNDATED_MAX);
    for (uint64_t seq = 112; seq <= ends.newest_seq; seq++)
        CU_ASSERT((seq - 112) % 3 == 0 || plx_witness_is_undated(&witness, seq));
}

/* A process that died in doubt had told nobody when it began. */
static void test_begins_early(void)
{
    begin();
    restart();
    for (unsigned i = 0; i < 5; i++)
        ends.newest_ns += S, ends.taken_seq = ++ends.newest_seq;
    set_clock((int64_t)DAY);
    CU_ASSERT(plx_witness_is_undated(&witness, 101) && !plx_witness_is_undated(&witness, 100));
}

/* WITNESS-9: what recovery finds joins what is known. */
static void test_found(void)
{
    begin();
    take_snapshot();
    doubtful_snapshots(3); /* 102 to 104 */
    CU_ASSERT_EQUAL(witness.undated_count, 1);
    plx_witness_found(&witness, 101, 104); /* it is known */
    CU_ASSERT_EQUAL(witness.undated_count, 1);
    pass(S);
    ends.newest_seq = ends.taken_seq = 110;
    plx_witness_found(&witness, 103, 107); /* in part */
    CU_ASSERT_EQUAL(witness.undated_count, 2);
    CU_ASSERT_EQUAL(witness.undated[1].after, 104);
    plx_witness_found(&witness, 102, 110); /* it goes on anyway */
    CU_ASSERT_EQUAL(witness.undated_count, 2);
    CU_ASSERT_EQUAL(witness.undated[1].after, 102);
    look();
    CU_ASSERT_EQUAL(witness.undated[1].upto, 110);
    /* Nothing is known of the disk. */
    witness = (struct plx_witness){0};
    plx_witness_found(&witness, 105, 110);
    look();
    CU_ASSERT(!plx_witness_is_undated(&witness, 105) && plx_witness_is_undated(&witness, 106));
    CU_ASSERT(plx_witness_is_undated(&witness, 110) && !plx_witness_is_undated(&witness, 111));
}

/* WITNESS-6: ordered while the clock was right, never logged; the next one has its number. */
static void test_ordered_in_vain(void)
{
    begin();
    ends.newest_seq = 101;
    pass(S);
    ends.newest_seq = 100;
    set_clock((int64_t)DAY);
    take_snapshot();
    CU_ASSERT(plx_witness_is_undated(&witness, 101) && !plx_witness_is_undated(&witness, 100));
}

/* WITNESS-6: power took them away, whether the doubt had begun or not. */
static void test_numbers_again(void)
{
    for (unsigned in_doubt = 0; in_doubt < 2; in_doubt++) {
        begin();
        for (unsigned i = 0; i < 5; i++)
            take_snapshot();
        pass(S);
        if (in_doubt)
            set_clock((int64_t)DAY);
        ends.taken_seq = ends.newest_seq = 102;
        reboot(0, in_doubt ? 0 : 2 * (int64_t)HOUR);
        take_snapshot();
        CU_ASSERT_NOT_EQUAL(witness.doubt, PLX_DOUBT_NONE);
        CU_ASSERT(!plx_witness_is_undated(&witness, 102) && plx_witness_is_undated(&witness, 103));
    }
}

/* ---- As text ---- */

/* WITNESS-8 */
static bool is_dated(uint64_t seq, uint64_t time_ns)
{
    return plx_witness_is_dated(&witness, &now, seq, time_ns);
}

static void test_dated(void)
{
    begin();
    CU_ASSERT(is_dated(100, START - S) && is_dated(1, START + MINUTE));
    CU_ASSERT_FALSE(is_dated(1, START + MINUTE + 1));
    set_clock((int64_t)(10 * DAY)); /* what lies in between is in the future as before */
    take_snapshot();
    CU_ASSERT(is_dated(100, START - S));
    CU_ASSERT_FALSE(is_dated(101, START - S) || is_dated(100, START + DAY));
    set_clock(-(int64_t)(20 * DAY));
    CU_ASSERT_FALSE(is_dated(100, START - S)); /* nobody knows which clock is right */
    CU_ASSERT(is_dated(100, START - 11 * DAY));
    set_clock((int64_t)(10 * DAY));
    CU_ASSERT(!witness.doubt && is_dated(100, START - S) && !is_dated(101, START - S));
    reboot(0, (int64_t)(10 * DAY));
    CU_ASSERT_EQUAL(look(), PLX_DOUBT_GAP);
    CU_ASSERT(is_dated(100, START) && !is_dated(100, START + DAY));
    /* The operator's word on snapshots in the future dates none of them. */
    begin();
    ends.newest_ns = START + 5 * DAY;
    CU_ASSERT_EQUAL(look(), PLX_DOUBT_FUTURE);
    plx_witness_resume(&witness, &now, &ends);
    CU_ASSERT(plx_witness_lets_go(&witness, &now, &ends) && !is_dated(100, ends.newest_ns));
}

static void test_text(void)
{
    static const char *const damaged[] = {
        "",
        "1 2 3 4 5",
        "1 2 3 4 5 ",
        "1 2 3 4 5 never",
        "1 2 3 4 5 none 1",
        "1 2 3 4 5 none 1:2",
        "1 2 3 4 5 none 2:2:3",
        "1 2 3 4 5 none 1:18446744073709551615:0 2:3:4",
        "x 2 3 4 5 none",
        "-1 2 3 4 5 none",
        "1 2 3 4 5 none 1:2:3 1:2:3 1:2:3 1:2:3 1:2:3 1:2:3 1:2:3 1:2:3 1:2:3"};
    struct plx_witness back = {.seq = 42};
    char text[PLX_WITNESS_TEXT], why[PLX_DOUBT_TEXT];

    for (unsigned i = 0; i < sizeof damaged / sizeof damaged[0]; i++)
        CU_ASSERT(!plx_witness_parse(damaged[i], &back) && back.seq == 42);
    memset(&witness, 0xff, sizeof witness); /* the longest there is */
    witness.doubt = PLX_DOUBT_STEPPED;
    witness.undated_count = PLX_UNDATED_MAX;
    for (unsigned i = 0; i < PLX_UNDATED_MAX; i++)
        witness.undated[i] = (struct plx_undated){
            UINT64_MAX - 2, UINT64_MAX - (i < PLX_UNDATED_MAX - 1), UINT64_MAX};
    CU_ASSERT(strlen(plx_witness_print(&witness, text)) < 700);
    CU_ASSERT(plx_witness_parse(text, &back) &&
              !memcmp(back.undated, witness.undated, sizeof back.undated));
    begin();
    CU_ASSERT_STRING_EQUAL(plx_witness_text(&witness, &now, &ends, why), "the wall clock is right");
    set_clock((int64_t)(3 * DAY + 2 * HOUR + S));
    CU_ASSERT_STRING_EQUAL(plx_witness_text(&witness, &now, &ends, why),
                           "the wall clock has jumped: it is 3d 2h ahead of where it was");
    set_clock(-(int64_t)(3 * DAY + 4 * HOUR));
    CU_ASSERT_PTR_NOT_NULL(strstr(plx_witness_text(&witness, &now, &ends, why), "1h 59m behind"));
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"a clock that is right", test_right},
        {"jumps, ahead and behind", test_stepped},
        {"drift", test_drift},
        {"times of snapshots", test_stamps},
        {"machines that start anew", test_reboot},
        {"jumps that nobody sees", test_unseen},
        {"snapshots in the future", test_future},
        {"the operator's word", test_resume},
        {"the operator's word on a history that runs ahead", test_resume_ahead},
        {"snapshots without dates", test_undated},
        {"a doubt that began unseen", test_begins_early},
        {"a doubt that recovery finds", test_found},
        {"a number given out again", test_ordered_in_vain},
        {"numbers that power took away", test_numbers_again},
        {"what is dated", test_dated},
        {"text", test_text},
    };

    return SUITE_RUN("witness", tests);
}
