/* cli.h - a command line taken apart after a table, and the context that a command works in.
 *
 * A command is one row of the table in command_table.c: its words, arguments, options, help and
 * function. Parsing, help and completion all read that row, so they cannot disagree. A command
 * function returns 0 or an error code with cli->fault filled; main() prints the fault, maps the
 * code to the exit status and closes the session. Values are looked up by the option's name.
 */
#ifndef PLX_ADMIN_CLI_H
#define PLX_ADMIN_CLI_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "session.h"
#include "text.h"

#define PLX_ARGUMENTS_MAX 64
#define PLX_GIVEN_MAX 128
#define PLX_CHOSEN_MAX 16

/* The wrong words; beyond error.def because only a command line can have them. */
#define PLX_ERR_USAGE (-1000)
/* A signal ended the command; likewise. */
#define PLX_ERR_INTERRUPTED (-1001)

enum plx_exit {
    PLX_EXIT_OK = 0,
    PLX_EXIT_ERROR = 1,
    PLX_EXIT_USAGE = 2,
    PLX_EXIT_NOT_FOUND = 3,
    PLX_EXIT_BUSY = 4, /* something is in the way: in use, there already, or a missing consent */
    PLX_EXIT_CORRUPT = 5,
    PLX_EXIT_NO_SPACE = 6, /* or no volume, where one of a known store is missing */
    PLX_EXIT_SIGNAL = 128, /* and the signal's number, as a shell has it */
};

struct plx_option {
    const char *name;
    const char *value; /* what stands for its value in help, NULL for a switch */
    const char *help;
};

struct plx_cli;

struct plx_command {
    const char *noun, *verb;
    const char *arguments; /* as in help; [X] may be left out; [X...] at the end: any number
                            * of further ones; ends with "-- X...": takes words of any kind
                            * behind "--" */
    const char *summary;   /* one line; NULL: not shown in help */
    const char *details;   /* a further paragraph, may be NULL */
    const char *examples;  /* lines as typed, but for a leading "parallax " before the noun */
    const struct plx_option *options; /* ends with a NULL name; may be NULL */
    int (*run)(struct plx_cli *cli);
};

struct plx_cli {
    const struct plx_command *commands; /* all that there are */
    const struct plx_command *command;
    const char *noun; /* also where only the verb is missing or wrong; NULL: there is none */
    const char *arguments[PLX_ARGUMENTS_MAX];
    unsigned count;
    char *const *rest; /* what stands behind "--", if the command takes that */
    unsigned rest_count;
    struct {
        const struct plx_option *option;
        const char *value;
    } given[PLX_GIVEN_MAX];
    unsigned given_count;
    /* Global options. */
    const char *state_dir; /* NULL: the default */
    bool json, quiet, help;
    uint64_t wait_s;
    struct plx_fault fault;
    /* The store that is or was open last; advice names it (plx_known_name_advice()). */
    char store[PLX_STORE_NAME_MAX + 1];
    /* The store without room in which a collection may free some: plx_session_note_garbage(). */
    char garbage_in[PLX_STORE_NAME_MAX + 1];
    /* Which snapshots times chose (plx_session_tell_chosen()), the first ones. They are printed if
     * the command ends well, because an error is one line. */
    struct {
        struct plx_name name;
        struct plx_snapshot_info snapshot;
    } chosen[PLX_CHOSEN_MAX];
    unsigned chosen_count;
    struct plx_session session;
    struct plx_session_waiting waiting; /* of all sessions of the command */
};

/* Reads the words into cli, by a table that ends with a NULL noun. A word that begins with '-' is
 * an option wherever it stands, "--" ends them. `--help` is taken before anything is checked. */
int plx_cli_parse(struct plx_cli *cli, const struct plx_command *commands, int argc, char **argv);

/* Help on a command, on a noun (verb NULL) or on everything (both NULL); USAGE for unknown words.
 */
int plx_cli_help(struct plx_cli *cli, const char *noun, const char *verb);
/* Prints what may follow the arguments, one a line: for the shell's completion. */
int plx_cli_complete(const struct plx_cli *cli);

/* "; did you mean 'WORD'?", or nothing: of the nouns, or of a noun's verbs; of the options of a
 * command, if there is one, and of all; of a size without its option, where there is one that is
 * not given. Returns text. */
const char *plx_cli_guess_word(const struct plx_cli *cli, const char *noun, const char *typed,
                               char *text, size_t size);
const char *plx_cli_guess_option(const struct plx_command *command,
                                 const struct plx_option *everywhere, const char *typed, char *text,
                                 size_t size);
const char *plx_cli_guess_value(const char *option, const char *typed, char *text, size_t size);

/* The last value given, "" for a switch, NULL when not given. */
const char *plx_cli_get(const struct plx_cli *cli, const char *option);
/* Whether the command has the option at all. */
bool plx_cli_has(const struct plx_cli *cli, const char *option);
/* Every value given, in order; returns how many. */
unsigned plx_cli_all(const struct plx_cli *cli, const char *option, const char **values,
                     unsigned max);
/* Untouched when not given; USAGE when it is no size or number or out of bounds. */
int plx_cli_size(struct plx_cli *cli, const char *option, uint64_t *ret_bytes);
int plx_cli_size_within(struct plx_cli *cli, const char *option, uint64_t min, uint64_t max,
                        uint64_t *ret_bytes);
/* --rate and --memory, which mean the same wherever they are. */
int plx_cli_rate(struct plx_cli *cli, uint64_t *ret_bytes);
int plx_cli_memory(struct plx_cli *cli, uint64_t *ret_bytes);
int plx_cli_number(struct plx_cli *cli, const char *option, uint64_t min, uint64_t max,
                   uint64_t *ret_number);
/* The index of the value in a list of words, untouched when not given. */
int plx_cli_choice(struct plx_cli *cli, const char *option, const char *const *words,
                   unsigned *ret_index);
/* An option that names a snapshot of the virtual disk: fills in name->snapshot. */
int plx_cli_snapshot(struct plx_cli *cli, const char *option, struct plx_name *name);
/* The argument as a name of the given form. */
int plx_cli_name(struct plx_cli *cli, unsigned argument, enum plx_name_form form,
                 struct plx_name *ret_name);

/* The words are wrong: fills the fault and returns USAGE. */
int plx_cli_usage(struct plx_cli *cli, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A signal ended it, with this error or none: fills the fault, in which the command's own words
 * stay, and returns INTERRUPTED. */
int plx_cli_interrupted(struct plx_cli *cli, int rc);
/* Anything else is: fills the fault and returns the code. */
#define plx_cli_fail(cli, ...) plx_fault_set(&(cli)->fault, __VA_ARGS__)

#endif
