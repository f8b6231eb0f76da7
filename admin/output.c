/* output.c - what the command prints. See output.h for what goes where.
 *
 * OUTPUT-1  Errors and notes are printed to stderr here only, and progress in progress.c, so that
 *     -q, --json and a progress bar's line are respected everywhere. A warning is printed in spite
 *     of -q and --json: without it, the output would be taken for more than it is. Two commands
 *     write to stderr themselves: an export lists what it could not read (cmd_transfer.c), and a
 *     deletion asks (cmd_vdi.c). Tables and objects on stdout come from here; help, drawings and
 *     single lines are printed directly.
 * OUTPUT-2  Tables, objects, lines, notes and errors for people pass put_text(), which escapes what
 *     a terminal would obey (plain.h). Names, paths and findings may come from a store or a
 *     command line of somebody who means harm. In JSON, jansson escapes them. In drawings, names
 *     are made plain (plx_name_plain). What is printed directly holds numbers, texts of ours, and
 *     names that were checked when they were given (NAMES-1).
 * OUTPUT-3  Memory does not grow with the number of rows: after the first window, which sets the
 *     widths of the columns, rows are printed as they come.
 * OUTPUT-4  A reader of standard output may stop reading ('| head'). That is not an error, and
 *     nothing is reported.
 */
#include "output.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/plain.h"
#include "registry/clock.h"

#define CELL_MAX 512
#define JSON_ONE_LINE (JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9)) /* OUTPUT-2 */
#define JSON_FLAGS (JSON_INDENT(2) | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9))

/* Of the first write to standard output that failed. */
static int out_errno;

static void keep_out_errno(void)
{
    if (!out_errno)
        out_errno = errno;
}

/* OUTPUT-4. What prints many lines ends, as by any signal that stops it. */
static void look_for_reader(void)
{
    if (!ferror(stdout))
        return;
    keep_out_errno();
    plx_out_write_failed(out_errno);
}

void plx_out_write_failed(int number)
{
    if (number == EPIPE && plx_pipe_ends && !plx_interrupted)
        plx_interrupted = SIGPIPE;
}

uint64_t plx_out_monotonic_ns(void)
{
    return plx_clock_ns(CLOCK_MONOTONIC);
}

/* ---- Text: OUTPUT-2 ---- */

static void put_text(FILE *file, const char *text)
{
    while (*text) {
        const char *from = text;
        unsigned escaped, length = plx_plain_step(&text, &escaped);

        if (!escaped)
            fwrite(from, 1, length, file);
        for (unsigned i = 0; i < escaped; i++)
            fprintf(file, "\\x%02x", (unsigned char)from[i]);
    }
}

/* In columns, as put_text() prints it. */
static unsigned width_of(const char *text)
{
    unsigned width = 0, escaped;

    while (*text) {
        plx_plain_step(&text, &escaped);
        width += escaped ? 4 * escaped : 1;
    }
    return width;
}

void plx_out_put(const char *text)
{
    put_text(stdout, text);
}

static void print_line(FILE *file, const char *format, va_list args)
{
    char *text;

    if (vasprintf(&text, format, args) < 0)
        return;
    put_text(file, text);
    fputc('\n', file);
    free(text);
}

void plx_out_line(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    print_line(stdout, format, args);
    va_end(args);
    look_for_reader();
}

json_t *plx_out_string(const char *text)
{
    json_t *string = json_string(text);
    char *escaped = NULL;
    size_t size;
    FILE *file = string ? NULL : open_memstream(&escaped, &size);

    if (!file)
        return string;
    put_text(file, text);
    if (fclose(file) == 0)
        string = json_string(escaped);
    free(escaped);
    return string;
}

/* ---- Values ---- */

static const char *duration_text(uint64_t ns, char ret_text[64])
{
    if (ns < 10000)
        snprintf(ret_text, 64, "%" PRIu64 " ns", ns);
    else if (ns < 10000000)
        snprintf(ret_text, 64, "%" PRIu64 " us", ns / 1000);
    else
        snprintf(ret_text, 64, "%" PRIu64 " ms", ns / 1000000);
    return ret_text;
}

static const char *join_texts(const json_t *array, char *space, size_t size)
{
    size_t used = 0, i;
    json_t *text;

    *space = 0;
    json_array_foreach(array, i, text)
    {
        if (used < size)
            used += (size_t)snprintf(space + used, size - used, "%s%s", i ? ", " : "",
                                     json_string_value(text));
    }
    return space;
}

static const char *cell_text(const struct plx_column *column, const json_t *row, char *space,
                             size_t size)
{
    const json_t *value = json_object_get(row, column->key);
    uint64_t number = json_is_integer(value) ? (uint64_t)json_integer_value(value) : 0;

    if (json_is_string(value))
        return json_string_value(value);
    if (json_is_array(value))
        return join_texts(value, space, size);
    if (json_is_boolean(value))
        return json_is_true(value) ? "yes" : "no";
    if (json_is_real(value))
        snprintf(space, size, "%.2f", json_real_value(value));
    else if (!json_is_integer(value))
        return "";
    else if (column->kind == PLX_COLUMN_SIZE)
        plx_text_size(number, space);
    else if (column->kind == PLX_COLUMN_DURATION)
        duration_text(number, space);
    else
        snprintf(space, size, "%" PRIu64, number);
    return space;
}

static void give_key(json_t *object, const char *key)
{
    if (!json_object_get(object, key))
        json_object_set_new(object, key, json_null());
}

void plx_out_keys(json_t *object, ...)
{
    const char *key;
    va_list keys;

    va_start(keys, object);
    while ((key = va_arg(keys, const char *)))
        give_key(object, key);
    va_end(keys);
}

static void give_columns(json_t *object, const struct plx_column *columns)
{
    for (const struct plx_column *c = columns; c->key; c++)
        give_key(object, c->key);
}

void plx_out_set_time(json_t *object, const char *key, uint64_t time_ns)
{
    char text[48], twin[64];

    snprintf(twin, sizeof twin, "%s_ns", key);
    json_object_set_new(object, key,
                        time_ns ? json_string(plx_text_time(time_ns, text)) : json_null());
    json_object_set_new(object, twin, time_ns ? json_integer((json_int_t)time_ns) : json_null());
}

void plx_out_json(json_t *value)
{
    json_dumpf(value, stdout, JSON_FLAGS);
    putchar('\n');
    json_decref(value);
}

void plx_out_done(const struct plx_cli *cli, json_t *object)
{
    if (cli->json)
        plx_out_json(object);
    else
        json_decref(object);
}

void plx_out_counters(const struct plx_cli *cli, json_t *counters)
{
    const char *key;
    json_t *value;

    if (cli->json) {
        plx_out_json(counters);
        return;
    }
    json_object_foreach(counters, key, value)
    {
        if (json_is_integer(value))
            plx_out_line("%-32s %" PRId64, key, (int64_t)json_integer_value(value));
    }
    json_decref(counters);
}

/* ---- Tables ---- */

/* A cell is never empty: who takes a line apart at its blanks finds each column. */
static const char *table_text(const struct plx_column *column, const json_t *row, char *space,
                              size_t size)
{
    const char *text = cell_text(column, row, space, size);

    return *text ? text : "-";
}

static void print_cell(const char *text, enum plx_column_kind kind, unsigned width, bool last)
{
    int padding = (int)(width > width_of(text) ? width - width_of(text) : 0);

    if (kind != PLX_COLUMN_TEXT)
        printf("%*s", padding, "");
    put_text(stdout, text);
    if (kind == PLX_COLUMN_TEXT && !last)
        printf("%*s", padding, "");
    fputs(last ? "\n" : "  ", stdout);
}

static void print_row(const struct plx_table *table, const json_t *row)
{
    char space[CELL_MAX];

    for (const struct plx_column *c = table->columns; c->key; c++)
        print_cell(row ? table_text(c, row, space, sizeof space) : c->title, c->kind,
                   table->widths[c - table->columns], !c[1].key);
}

/* OUTPUT-3. Fixes the widths, and prints the header and the rows that were held back. */
static void start_streaming(struct plx_table *table)
{
    size_t i;
    json_t *row;
    char space[CELL_MAX];

    table->streaming = true;
    for (const struct plx_column *c = table->columns; c->key; c++) {
        unsigned *width = &table->widths[c - table->columns];

        *width = width_of(c->title);
        json_array_foreach(table->window, i, row)
        {
            unsigned needs = width_of(table_text(c, row, space, sizeof space));
            *width = needs > *width ? needs : *width;
        }
    }
    if (json_array_size(table->window) && !table->cli->quiet)
        print_row(table, NULL);
    json_array_foreach(table->window, i, row) print_row(table, row);
    json_array_clear(table->window);
}

static int no_column(struct plx_cli *cli, const char *key, size_t length,
                     const struct plx_column *columns)
{
    char keys[256];
    size_t used = 0;

    for (; columns->key && used < sizeof keys; columns++)
        used += (size_t)snprintf(keys + used, sizeof keys - used, "%s%s", used ? ", " : "",
                                 columns->key);
    return plx_cli_usage(cli, "--columns: there is no '%.*s', but %s", (int)plx_min_u64(length, 40),
                         key, keys);
}

/* The columns that are printed: the words of --columns, or all. */
static int choose_columns(struct plx_table *table, struct plx_cli *cli,
                          const struct plx_column *columns)
{
    const char *wanted = plx_cli_has(cli, "columns") ? plx_cli_get(cli, "columns") : NULL;
    unsigned count = 0;

    if (!wanted) {
        for (; columns->key && count < PLX_COLUMNS_MAX; columns++)
            if (columns->kind != PLX_COLUMN_ASKED)
                table->columns[count++] = *columns;
        return 0;
    }
    table->chosen = true;
    for (bool more = true; more;) {
        const struct plx_column *c = columns;
        size_t length = strcspn(wanted, ",");

        if (!length)
            return plx_cli_usage(cli,
                                 "--columns: each comma needs the key of a column on both "
                                 "sides, as in %s,%s",
                                 columns[0].key, columns[1].key);
        while (c->key && (strlen(c->key) != length || memcmp(c->key, wanted, length)))
            c++;
        if (!c->key)
            return no_column(cli, wanted, length, columns);
        if (count == PLX_COLUMNS_MAX)
            return plx_cli_usage(cli, "--columns: more than %d columns", PLX_COLUMNS_MAX);
        table->columns[count] = *c;
        if (c->kind == PLX_COLUMN_ASKED)
            table->columns[count].kind = PLX_COLUMN_TEXT;
        count++;
        more = wanted[length] == ',';
        wanted += length + more;
    }
    return 0;
}

int plx_table_only(struct plx_cli *cli, const char *what)
{
    return plx_cli_get(cli, "columns") || plx_cli_get(cli, "bytes")
               ? plx_cli_usage(cli, "--columns and --bytes are for lists, and %s is none", what)
               : 0;
}

int plx_table_begin(struct plx_table *table, struct plx_cli *cli, const struct plx_column *columns)
{
    *table = (struct plx_table){.cli = cli};
    if (choose_columns(table, cli, columns))
        return PLX_ERR_USAGE;
    if (plx_cli_has(cli, "bytes") && plx_cli_get(cli, "bytes"))
        for (struct plx_column *c = table->columns; c->key; c++)
            c->kind = c->kind == PLX_COLUMN_SIZE ? PLX_COLUMN_NUMBER : c->kind;
    table->window = json_array();
    if (cli->json)
        fputs("[", stdout);
    return 0;
}

/* With --columns, what they say and no more. */
static void print_json_row(const struct plx_table *table, const json_t *row)
{
    json_t *some = table->chosen ? json_object() : NULL;

    for (const struct plx_column *c = table->columns; some && c->key; c++)
        json_object_set(some, c->key, json_object_get(row, c->key));
    json_dumpf(some ? some : row, stdout, JSON_ONE_LINE);
    json_decref(some);
}

void plx_table_row(struct plx_table *table, json_t *row)
{
    table->rows++;
    give_columns(row, table->columns);
    if (table->cli->json) {
        fputs(table->rows > 1 ? ",\n " : "\n ", stdout);
        print_json_row(table, row);
    } else if (table->streaming) {
        print_row(table, row);
    } else {
        json_array_append(table->window, row);
        if (json_array_size(table->window) == PLX_TABLE_WINDOW)
            start_streaming(table);
    }
    json_decref(row);
    if (!table->changes)
        look_for_reader();
}

void plx_table_end(struct plx_table *table)
{
    if (table->cli->json)
        fputs(table->rows ? "\n]\n" : "]\n", stdout);
    else if (!table->streaming)
        start_streaming(table);
    json_decref(table->window);
}

void plx_out_object(const struct plx_cli *cli, const struct plx_column *columns, json_t *object)
{
    unsigned width = 0;
    char space[CELL_MAX];

    give_columns(object, columns);
    if (cli->json) {
        plx_out_json(object);
        return;
    }
    for (const struct plx_column *c = columns; c->key; c++)
        width = strlen(c->title) > width ? (unsigned)strlen(c->title) : width;
    for (const struct plx_column *c = columns; c->key; c++) {
        const char *text = cell_text(c, object, space, sizeof space);

        if (*text)
            plx_out_line("%s:%*s %s", c->title, (int)(width - strlen(c->title)), "", text);
    }
    json_decref(object);
}

/* ---- People ---- */

static void flush_out(void)
{
    if (fflush(stdout))
        keep_out_errno();
}

#define NOTE_TEXT 1024

static void print_note(const struct plx_cli *cli, const char *format, va_list args)
{
    char text[NOTE_TEXT];
    va_list again;

    va_copy(again, args);
    if (!*cli->store || vsnprintf(text, sizeof text, format, args) >= (int)sizeof text) {
        print_line(stderr, format, again);
    } else {
        plx_known_name_advice(cli->store, text, sizeof text);
        put_text(stderr, text);
        fputc('\n', stderr);
    }
    va_end(again);
}

/* Flushes stdout first, so that a note follows the output it refers to. */
/* OUTPUT-1 */
void plx_out_note(const struct plx_cli *cli, const char *format, ...)
{
    va_list args;

    if (cli->quiet || cli->json)
        return;
    flush_out();
    va_start(args, format);
    print_note(cli, format, args);
    va_end(args);
}

/* OUTPUT-1 */
void plx_out_warning(const char *format, ...)
{
    va_list args;

    flush_out();
    va_start(args, format);
    print_line(stderr, format, args);
    va_end(args);
}

static int exit_status(int code)
{
    if (code == PLX_ERR_USAGE)
        return PLX_EXIT_USAGE;
    if (code == PLX_ERR_INTERRUPTED)
        return PLX_EXIT_SIGNAL + plx_interrupted;
    if (code == PLX_ERR_NOT_FOUND)
        return PLX_EXIT_NOT_FOUND;
    if (code == PLX_ERR_MISSING)
        return PLX_EXIT_NO_SPACE;
    if (code == PLX_ERR_EXISTS)
        return PLX_EXIT_BUSY;
    switch (plx_error_class(code)) {
    case PLX_CLASS_OK:
        return PLX_EXIT_OK;
    case PLX_CLASS_BUSY:
    case PLX_CLASS_FENCED:
        return PLX_EXIT_BUSY;
    case PLX_CLASS_CORRUPT:
        return PLX_EXIT_CORRUPT;
    case PLX_CLASS_NOSPACE:
        return PLX_EXIT_NO_SPACE;
    default:
        return PLX_EXIT_ERROR;
    }
}

static const char *name_help(const struct plx_cli *cli, char *text, size_t size)
{
    const char *verb = cli->command ? cli->command->verb : NULL;

    snprintf(text, size, "see 'parallax %s%s%s%s--help'", cli->noun ? cli->noun : "",
             verb ? " " : "", verb ? verb : "", cli->noun ? " " : "");
    return text;
}

#define ADVICE_TEXT 400

static const char *advise_on_space(const struct plx_cli *cli, char ret_text[ADVICE_TEXT])
{
    static const char otherwise[] =
        "delete what is not needed, or make the store larger ('parallax store grow', "
        "'store add-volume'); old snapshots of a protected disk go by themselves only where "
        "a handler has it open: elsewhere 'parallax cdp apply' lets them go";

    if (!cli->garbage_in[0])
        return otherwise;
    snprintf(
        ret_text, ADVICE_TEXT,
        "'parallax gc %s' may free what was deleted or shared and has not come back yet; if that "
        "is not enough, %s",
        cli->garbage_in, otherwise);
    return ret_text;
}

/* With the store's name. */
static const char *name_advice(const struct plx_cli *cli, const char *todo,
                               char ret_text[ADVICE_TEXT])
{
    if (!todo || !*cli->store)
        return todo;
    if (todo != ret_text)
        snprintf(ret_text, ADVICE_TEXT, "%s", todo);
    plx_known_name_advice(cli->store, ret_text, ADVICE_TEXT);
    return ret_text;
}

/* What to do about it, where the fault itself does not say. */
static const char *advice(const struct plx_cli *cli, int code, char ret_text[ADVICE_TEXT])
{
    switch (code) {
    case PLX_ERR_BUSY:
        return "wait for it or close it there, then try again";
    case PLX_ERR_NOSPACE:
        return advise_on_space(cli, ret_text);
    case PLX_ERR_CORRUPT:
    case PLX_ERR_REGISTRY:
        return strstr(cli->fault.text, "the registry's node ")
                   ? "'parallax cluster status' shows which nodes answer"
                   : "run 'parallax store check' (with --data it reads all data, too)";
    case PLX_ERR_DOUBT:
        return strstr(cli->fault.text, "'parallax ") ? NULL
                                                     : "'parallax store rebuild-registry' rebuilds "
                                                       "its registry from the store";
    case PLX_ERR_STICKY:
    case PLX_ERR_FENCED:
        return "nothing was lost that was acknowledged; try again";
    case PLX_ERR_PERMISSION:
        return "run it as root, or choose your own --state-dir and files";
    default:
        return NULL;
    }
}

static const char *error_name(int code)
{
    return code == PLX_ERR_USAGE         ? "USAGE"
           : code == PLX_ERR_INTERRUPTED ? "INTERRUPTED"
                                         : plx_error_name(code);
}

int plx_out_fill_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 &&
            open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            return -1;
    return 0;
}

int plx_out_not_closed(struct plx_cli *cli, int rc, const char *why)
{
    int bytes = (int)plx_min_u64(strcspn(why, ";"), 200);
    bool full = plx_error_class(rc) == PLX_CLASS_NOSPACE;

    if (!full)
        return plx_cli_fail(cli, rc,
                            "closing the store: %.*s; what was done is done, and the next command "
                            "that changes the store puts the rest in order",
                            bytes, why);
    plx_out_note(cli,
                 "what this command had reserved of the store could not be given back (%.*s): the "
                 "next command that finds room does so",
                 bytes, why);
    return 0;
}

int plx_out_error(const struct plx_cli *cli, int code)
{
    const char *text = *cli->fault.text ? cli->fault.text : plx_error_text(code);
    const char *todo;
    char help[100], text_of_advice[ADVICE_TEXT];

    if (code == PLX_ERR_STICKY && plx_error_class(cli->fault.code) == PLX_CLASS_NOSPACE)
        code = cli->fault.code; /* why it stopped */
    todo = code == PLX_ERR_USAGE ? name_help(cli, help, sizeof help)
           : strchr(text, ';')
               ? NULL
               : name_advice(cli, advice(cli, code, text_of_advice), text_of_advice);
    if (cli->json) {
        json_t *error = json_pack("{s:{s:s,s:i,s:o,s:s?}}", "error", "code", error_name(code),
                                  "number", -code, "message", plx_out_string(text), "advice", todo);
        json_dumpf(error, stderr, JSON_ONE_LINE);
        fputc('\n', stderr);
        json_decref(error);
    } else {
        fputs("parallax: ", stderr);
        put_text(stderr, text);
        fprintf(stderr, "%s%s\n", todo ? "; " : "", todo ? todo : "");
    }
    return exit_status(code);
}

bool plx_out_confirm(const char *question)
{
    char answer[16];

    fprintf(stderr, "%s [yes/no] ", question);
    fflush(stderr);
    return fgets(answer, sizeof answer, stdin) && !strcmp(answer, "yes\n");
}

/* ---- Files, standard output too ---- */

int plx_out_file_code(int number)
{
    return number == ENOENT                                          ? PLX_ERR_NOT_FOUND
           : number == ENOSPC || number == EDQUOT || number == EFBIG ? PLX_ERR_NOSPACE
           : number == EACCES || number == EPERM                     ? PLX_ERR_PERMISSION
           : number == EEXIST                                        ? PLX_ERR_EXISTS
                                                                     : PLX_ERR_SYSTEM;
}

int plx_out_file_error(struct plx_cli *cli, const char *path, const char *what)
{
    int code = plx_out_file_code(errno);

    return plx_cli_fail(cli, code, "%.120s: cannot %s: %s%s", path, what, strerror(errno),
                        errno == EFBIG               ? "; a limit (ulimit -f) or the file system "
                                                       "allows no more"
                        : code == PLX_ERR_NOSPACE    ? "; free some there or choose another place"
                        : code == PLX_ERR_EXISTS     ? "; give --force to overwrite it"
                        : code == PLX_ERR_PERMISSION ? "; check its permissions"
                                                     : "");
}

int plx_out_finish(struct plx_cli *cli)
{
    flush_out();
    if (!out_errno && !ferror(stdout))
        return 0;
    keep_out_errno();
    plx_out_write_failed(out_errno);
    return plx_cli_fail(cli, plx_out_file_code(out_errno),
                        "standard output: %s; not everything was written", strerror(out_errno));
}
