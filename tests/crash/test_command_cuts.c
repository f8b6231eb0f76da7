/* test_command_cuts.c - the power fails at every write and flush of whole commands.
 *
 * A command of the admin's is the calls of attach that it makes, from opening the store to closing
 * it. It runs once, with SQLite and the engine on simulated disks (stage.h). At each write and each
 * flush the stage is cut: with all of the volatile writes, with none, and with chance's choice of
 * whole and torn ones. Each state that differs from the others is judged as the same machine sees
 * it after switching it on, and every fifth one also as one that lost its state directory, or as
 * another machine:
 *
 *   1. The store opens, or the refusal names a command, and that command leads on, until it opens.
 *   2. What was acknowledged before is there: both disks and a snapshot. So is what the command
 *      did, if it had ended; then the same machine opens the store at once.
 *   3. If it had not ended, it is done already, or the command can be run again and does it.
 *   4. Store and registry agree, the checker finds nothing, and the store can be written to.
 *
 * PLX_COMMAND=NAME or NAME:STATE runs only that. PLX_RUNS=n: so many choices of chance at each cut
 * (default 1). PLX_FAULT_EVERY=n judges every n-th state, others each day. PLX_TRACE=1 prints what
 * the refusals advise.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crash/commands.h"
#include "fault/every.h"
#include "suite.h"

#define STATES_MAX 20000u
#define STEPS_MAX 8u /* commands until a store opens */
#define WRONG_MAX 8u /* states of one command that are told */

/* ---- Cuts ---- */

enum mode { THE_SAME, STATE_LOST, ANOTHER, MODES };

static struct state {
    struct stage_cut cut;
    uint64_t hash;
    unsigned place, written; /* the cut's number, and what was acknowledged then */
    bool done;
} states[STATES_MAX];
static unsigned state_count, places, last_volatile, choices;
static bool ended;
static struct plx_simrng chance;
static uint64_t all_places, all_states, all_judged;

static void keep_state(const uint8_t *fates)
{
    struct state *state = &states[state_count];

    PLX_ASSERT(state_count < STATES_MAX);
    stage_cut_now(fates, plx_simrng_next(&chance), &state->cut);
    state->hash = stage_cut_hash(&state->cut);
    state->place = places;
    state->written = command_written;
    state->done = ended;
    for (unsigned i = state_count; i-- > 0;)
        if (states[i].hash == state->hash && states[i].done == ended &&
            states[i].written == command_written) {
            stage_cut_free(&state->cut);
            return;
        }
    state_count++;
}

static void cut_here(void *context)
{
    static const uint8_t some[] = {PLX_FATE_LOST, PLX_FATE_KEPT, PLX_FATE_KEPT,
                                   PLX_FATE_ANY,  PLX_FATE_HEAD, PLX_FATE_TAIL};
    unsigned count = plx_simpower_volatile(stage_power());
    uint8_t *fates;

    if (count == last_volatile && !ended) /* neither a new write nor the end of a flush */
        return;
    last_volatile = count;
    places++;
    fates = malloc(count + 1);
    memset(fates, PLX_FATE_LOST, count);
    keep_state(fates);
    keep_state(NULL);
    for (unsigned i = 0; count && i < choices; i++) {
        for (unsigned k = 0; k < count; k++)
            fates[k] = some[plx_simrng_below(&chance, sizeof some)];
        keep_state(fates);
    }
    free(fates);
}

/* Runs the command and keeps all states that a cut may leave of it. */
static int run_and_cut(const struct command *command)
{
    int error;

    stage_clear(1);
    chance = (struct plx_simrng){1};
    state_count = places = command_written = 0;
    ended = false;
    error = command->prepare();
    if (error)
        return error;
    stage_host = command->host;
    last_volatile = plx_simpower_volatile(stage_power());
    stage_power()->on_event = cut_here;
    error = command->run();
    stage_power()->on_event = NULL;
    ended = !error;
    if (!error)
        cut_here(NULL);
    return error;
}

/* ---- Judging ---- */

/* What the text advises; else a format is repeated that had not ended. */
static int follow(const struct command *command, bool done)
{
    const char *text = command_fault.text;
    bool again = command->founds && !done, unused = strstr(text, "--i-checked-nobody-uses-it");

    if (getenv("PLX_TRACE"))
        printf("\n      %s", text);
    if (again && (unused || strstr(text, "--force")))
        return command_format(command, true, unused);
    if (strstr(text, "rebuild-registry"))
        return command_rebuild();
    for (unsigned host = 0; host < STAGE_HOSTS; host++) {
        char from[32];

        snprintf(from, sizeof from, "--from %s", stage_name(host));
        if (strstr(text, from))
            return command_import(stage_name(host));
    }
    if (strstr(text, "store import"))
        return command_import(NULL);
    return again ? command->run() : command_fault.code;
}

/* Of a command that has ended: the same machine needs no advice, but for what it has given up. */
static int opens_as_promised(const struct command *command, int error)
{
    if (!command->releases)
        return error;
    return error && strstr(command_fault.text, "it was released")
               ? 0
               : plx_fault_set(&command_fault, PLX_ERR_CORRUPT, "the store is not released");
}

/* 1. Until the store is open. */
static int reach(const struct command *command, bool done, enum mode mode)
{
    char before[sizeof command_fault.text] = "";
    int error = command_open();

    if (done && mode == THE_SAME && opens_as_promised(command, error))
        return command_fault.code;
    for (unsigned i = 0; error && i < STEPS_MAX && strcmp(before, command_fault.text) != 0; i++) {
        snprintf(before, sizeof before, "%s", command_fault.text);
        error = follow(command, done);
        if (!error)
            error = command_open();
    }
    return error;
}

static int again(const struct command *command)
{
    int error = command_close();

    if (!error)
        error = command->run();
    if (!error)
        error = command->releases ? reach(command, true, THE_SAME) : command_open();
    return error;
}

/* 3. */
static int find_effect(const struct command *command, bool done, enum mode mode)
{
    bool must = done && (mode == THE_SAME || !command->local);
    int error = command->effect ? command->effect() : must || command->once ? 0 : PLX_ERR_NOT_FOUND;

    if (!error || must || command->once)
        return error;
    error = again(command);
    return error || !command->effect ? error : command->effect();
}

/* 4. A superblock of which one copy was torn is written again by the command that the finding
 * names. */
static int use(const struct command *command)
{
    int error = command_use(command);

    if (!error)
        error = command_check();
    if (error == PLX_ERR_CORRUPT && strstr(command_fault.text, "'parallax store grow'")) {
        error = command_grow();
        if (!error)
            error = command_check();
    }
    return error;
}

static int judge(const struct command *command, const struct state *state, enum mode mode,
                 const char **ret_step)
{
    int error;

    stage_go_to(&state->cut);
    stage_host = mode == ANOTHER ? STAGE_GAMMA : command->host;
    if (mode == STATE_LOST)
        stage_forget(stage_host);
    command_written = state->written;
    *ret_step = "opening the store";
    error = reach(command, state->done, mode);
    if (error)
        return error;
    *ret_step = "reading the disks";
    error = command->founds ? 0 : command_find_disks();
    if (error)
        return error;
    *ret_step = "finding it done, or doing it";
    error = find_effect(command, state->done, mode);
    if (error)
        return error;
    *ret_step = "using the store";
    error = use(command);
    return error ? error : command_close();
}

static unsigned judge_state(const struct command *command, unsigned number, enum mode mode)
{
    static const char *const seen_by[MODES] = {"the same machine", "one that lost its state",
                                               "another machine"};
    const struct state *state = &states[number];
    const char *step = "";
    int error = judge(command, state, mode, &step);

    all_judged++;
    if (!error)
        return 0;
    printf("\n    %s:%u (cut %u, %s), %s, %s: %s: %s", command->name, number, state->place,
           state->done ? "ended" : "under way", seen_by[mode], step, plx_error_name(error),
           command_fault.text);
    command_drop();
    return 1;
}

static unsigned judge_states(const struct command *command, const char *only)
{
    unsigned offset, every = fault_every(&offset), wrong = 0;

    for (unsigned i = 0; i < state_count && wrong < WRONG_MAX; i++) {
        if (only ? strtoul(only, NULL, 10) != i : i % every != offset)
            continue;
        wrong += judge_state(command, i, THE_SAME);
        if (only || i % 5 == 0)
            wrong += judge_state(command, i, STATE_LOST);
        if (only || i % 5 == 1)
            wrong += judge_state(command, i, ANOTHER);
    }
    for (unsigned i = 0; i < state_count; i++)
        stage_cut_free(&states[i].cut);
    return wrong;
}

static void test_command(const struct command *command, const char *only)
{
    uint64_t judged = all_judged;
    int error = run_and_cut(command);

    if (error)
        printf("\n    %s: %s: %s", command->name, plx_error_name(error), command_fault.text);
    CU_ASSERT_EQUAL_FATAL(error, 0);
    CU_ASSERT(state_count > 0);
    all_places += places;
    all_states += state_count;
    CU_ASSERT_EQUAL(judge_states(command, only), 0);
    printf("\n    %s: %u cuts, %u states, %" PRIu64 " judged", command->name, places, state_count,
           all_judged - judged);
}

static void test_commands(void)
{
    const char *wanted = getenv("PLX_COMMAND"), *runs = getenv("PLX_RUNS");
    size_t length = wanted ? strcspn(wanted, ":") : 0;

    choices = runs ? (unsigned)strtoul(runs, NULL, 10) : 1;
    for (unsigned i = 0; i < command_count; i++)
        if (!wanted ||
            (strncmp(wanted, commands[i].name, length) == 0 && !commands[i].name[length]))
            test_command(&commands[i], wanted && wanted[length] ? wanted + length + 1 : NULL);
}

static int set_up(void)
{
    return stage_open() ? 0 : 1;
}

static int tear_down(void)
{
    stage_close();
    return 0;
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"every cut of every command", test_commands},
    };
    static const struct suite_frame frame = {.init = set_up, .clean = tear_down};
    int failed = SUITE_RUN_IN(&frame, "commands", tests);

    printf("%" PRIu64 " crash states at %" PRIu64 " cuts of %u commands, judged %" PRIu64
           " times\n",
           all_states, all_places, command_count, all_judged);
    return failed;
}
