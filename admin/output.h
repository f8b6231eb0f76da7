/* output.h - everything that the command prints: data, progress, notes, errors.
 *
 * Data is built once, as JSON objects; with --json they are printed as they are, else as a table
 * or a list after the same columns. So the two cannot disagree. A command that has the options
 * --columns and --bytes prints the columns that the first one chooses, in its order, of its table
 * or of each JSON object; with the second one sizes are exact. Data goes to stdout; notes,
 * progress and errors go to stderr, and -q silences the first two.
 *
 * In JSON sizes are exact bytes, times RFC 3339 with a twin in nanoseconds since 1970. All objects
 * of one kind have the same keys; null is the value of what is not known or does not apply. Tables
 * and plx_out_object() see to it for the keys of their columns, plx_out_keys() for others.
 */
#ifndef PLX_ADMIN_OUTPUT_H
#define PLX_ADMIN_OUTPUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "cli.h"

enum plx_column_kind {
    PLX_COLUMN_TEXT,
    PLX_COLUMN_NUMBER,
    PLX_COLUMN_SIZE,     /* bytes */
    PLX_COLUMN_DURATION, /* nanoseconds */
    PLX_COLUMN_ASKED,    /* text, of a table: only where --columns names it */
};

/* An absent or null value prints as "-" in a table, and as no line of an object. */
struct plx_column {
    const char *key, *title; /* the last one has a NULL key */
    enum plx_column_kind kind;
};

/* ---- Tables ---- */

#define PLX_COLUMNS_MAX 16
#define PLX_TABLE_WINDOW 512 /* rows that the widths are taken from; later ones stream */

struct plx_table {
    const struct plx_cli *cli;
    struct plx_column columns[PLX_COLUMNS_MAX + 1]; /* those that are printed; the last is empty */
    json_t *window;                                 /* rows held back until the widths are known */
    unsigned widths[PLX_COLUMNS_MAX];
    bool chosen; /* by --columns */
    uint64_t rows;
    bool streaming;
    /* Each row reports a change just made, so the command does not stop when the reader of its
     * output has gone. */
    bool changes;
};

/* USAGE: --columns names one that there is not; then there is no table. At most COLUMNS_MAX. */
int plx_table_begin(struct plx_table *table, struct plx_cli *cli, const struct plx_column *columns);
/* For what a command that has --columns prints in place of its list: USAGE, if they are given. */
int plx_table_only(struct plx_cli *cli, const char *what);
void plx_table_row(struct plx_table *table, json_t *row); /* takes the reference */
void plx_table_end(struct plx_table *table);

/* One object: "Title: value" lines. Takes the reference. */
void plx_out_object(const struct plx_cli *cli, const struct plx_column *columns, json_t *object);
/* Gives the object those of these keys that it lacks, with null. The list ends with NULL. */
void plx_out_keys(json_t *object, ...) __attribute__((sentinel));
/* "key": RFC 3339 and "key_ns"; null for time 0. */
void plx_out_set_time(json_t *object, const char *key, uint64_t time_ns);
/* JSON only; takes the reference. */
void plx_out_json(json_t *value);
/* What a command has changed: with --json this object, for people its notes say it. Takes the
 * reference. */
void plx_out_done(const struct plx_cli *cli, json_t *object);
/* Text that nobody has checked, such as a path: what is no UTF-8 in it is escaped. */
json_t *plx_out_string(const char *text);
/* What is neither a table nor an object: a piece of text, a line. What a terminal would obey, a
 * line break too, is escaped, as it is in all that is printed here for people. */
void plx_out_put(const char *text);
void plx_out_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A handler's counters, a line each or as JSON. Takes the reference. */
void plx_out_counters(const struct plx_cli *cli, json_t *counters);

/* ---- People ---- */

/* One line on stderr, unless -q or --json. */
void plx_out_note(const struct plx_cli *cli, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* One line on stderr, with -q and --json, too: the output is less than what was asked for, and
 * neither its form nor the exit status says so. */
void plx_out_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* For a command that succeeded but could not close the store (error rc). Fills the fault with
 * `why`, without its advice. Returns 0 and only prints a note if the cause is a full file system,
 * which does no harm. */
int plx_out_not_closed(struct plx_cli *cli, int rc, const char *why);
/* Call it first in main(). If descriptor 0, 1 or 2 is closed, a volume opened later would get that
 * number and receive the command's output. What stands in their place cannot be used in that
 * direction, so that nothing is lost without a word. */
int plx_out_fill_descriptors(void);
/* Prints cli->fault for a code and returns the exit status. */
int plx_out_error(const struct plx_cli *cli, int code);
/* Asks on the terminal; true when the answer is "yes". */
bool plx_out_confirm(const char *question);

struct plx_progress {
    const struct plx_cli *cli;
    const char *what;
    uint64_t total; /* bytes, 0: not known */
    uint64_t started_ns, shown_ns;
    bool on;    /* stderr is a terminal */
    bool plain; /* not bytes: percent and time left only */
};

void plx_progress_begin(struct plx_progress *progress, const struct plx_cli *cli, const char *what,
                        uint64_t total);
/* Of what has parts: begins, and begins again where it comes to another one. Only progress->cli has
 * to be set before; no part need ever come. */
void plx_progress_part(struct plx_progress *progress, const char *what, uint64_t total);
/* Of what becomes less, and may become more meanwhile: `what` has so many bytes left. */
void plx_progress_left(struct plx_progress *progress, const char *what, uint64_t left);
/* Redraws at most ten times a second: bytes, percent, rate, time left. */
void plx_progress_show(struct plx_progress *progress, uint64_t done);
/* Makes room for another line. */
void plx_progress_clear(struct plx_progress *progress);
void plx_progress_end(struct plx_progress *progress);

uint64_t plx_out_monotonic_ns(void);

/* A write to standard output failed with this errno: if nobody reads it any more, plx_interrupted
 * is SIGPIPE. */
void plx_out_write_failed(int number);
/* The error code of an errno, the same for every file that a command writes, standard output too.
 */
int plx_out_file_code(int number);
/* Fills the fault by errno, with what can be done about it: "PATH: cannot WHAT: ...". */
int plx_out_file_error(struct plx_cli *cli, const char *path, const char *what);
/* Flushes stdout; an error code when something printed did not get through. */
int plx_out_finish(struct plx_cli *cli);

#endif
