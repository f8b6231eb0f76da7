/* peek.c - what shell tests ask again and again: an interpreter would have to start each time.
 *
 *   peek json FILE KEY...           a value: by these names and numbers, from the outermost one on
 *   peek count FILE                 how many values the array has
 *   peek column FILE KEY            the strings by this name in an array's objects, with commas
 *   peek sql FILE SQL               the first column of the first row; nothing if there is none
 *   peek type ANSWER COMMAND...     the command on a terminal, where ANSWER is typed when it asks
 *                                   "[yes/no]"; what the terminal shows. Its exit status is the
 *                                   command's
 *   peek scramble VOLUME MIB        other bytes in the registry's extents, which are of so many MiB
 *   peek record OLDER VOLUME SLOT   both copies of a record as they are in the older volume
 *   peek number VOLUME...           the number that these volumes have (attach/numbers.h)
 *   peek writes IMAGE               are the five writes of ringwrites.sh there?
 *
 * It is part of no build with sanitizers: it looks at what is tested, and has none of it.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <pty.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1u << 20)

static int fail(const char *what, const char *why)
{
    fprintf(stderr, "peek: %s: %s\n", what, why);
    return 1;
}

/* With as few digits as tell it from its neighbours. */
static void print_real(double real)
{
    char text[40];

    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, real);
        if (strtod(text, NULL) == real)
            break;
    }
    printf("%s%s\n", text, strpbrk(text, ".e") ? "" : ".0");
}

static int print_json(const char *path, char **keys)
{
    json_error_t error;
    json_t *all = json_load_file(path, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    const json_t *value = all;

    if (!all)
        return fail(path, error.text);
    for (; *keys && value; keys++) {
        if (json_is_array(value)) {
            long at = strtol(*keys, NULL, 10);
            value = json_array_get(value, (size_t)at + (at < 0 ? json_array_size(value) : 0));
        } else {
            value = json_object_get(value, *keys);
        }
    }
    if (!value) {
        json_decref(all);
        return fail(keys[-1], "no such value");
    }
    if (json_is_string(value)) {
        fwrite(json_string_value(value), json_string_length(value), 1, stdout);
        putchar('\n');
    } else if (json_is_real(value)) {
        print_real(json_real_value(value));
    } else {
        json_dumpf(value, stdout, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
        putchar('\n');
    }
    json_decref(all);
    return 0;
}

static int print_count(const char *path)
{
    json_error_t error;
    json_t *all = json_load_file(path, JSON_ALLOW_NUL, &error);
    bool array = json_is_array(all);

    if (array)
        printf("%zu\n", json_array_size(all));
    json_decref(all);
    return array ? 0 : fail(path, "no array");
}

static int print_column(const char *path, const char *key)
{
    json_error_t error;
    json_t *all = json_load_file(path, 0, &error);
    bool good = json_is_array(all);
    const json_t *row;
    size_t at;

    json_array_foreach(all, at, row)
    {
        const json_t *value = json_object_get(row, key);
        good = good && json_is_string(value);
        if (good)
            printf("%s%s", at ? "," : "", json_string_value(value));
    }
    putchar('\n');
    json_decref(all);
    return good ? 0 : fail(path, "not such an array");
}

static int print_sql(const char *path, const char *sql)
{
    sqlite3_stmt *statement = NULL;
    sqlite3 *db;
    int rc = sqlite3_open(path, &db);

    if (rc == SQLITE_OK)
        rc = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(statement);
    if (rc == SQLITE_ROW && sqlite3_column_type(statement, 0) != SQLITE_NULL)
        fwrite(sqlite3_column_text(statement, 0), (size_t)sqlite3_column_bytes(statement, 0), 1,
               stdout);
    if (rc == SQLITE_ROW || rc == SQLITE_DONE)
        putchar('\n');
    else
        fail(sql, sqlite3_errmsg(db));
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return rc != SQLITE_ROW && rc != SQLITE_DONE;
}

/* Passes on what the terminal shows, until nobody has it open any more. */
static void show(int terminal, const char *answer)
{
    static const char question[] = "[yes/no]";
    char shown[65536];
    bool asked = false;
    size_t kept = 0; /* of what came before: the question may come in pieces */
    ssize_t got;

    while ((got = read(terminal, shown + kept, sizeof shown - kept)) > 0) {
        size_t all = kept + (size_t)got;
        fwrite(shown + kept, (size_t)got, 1, stdout);
        fflush(stdout);
        if (!asked && memmem(shown, all, question, sizeof question - 1)) {
            asked = true;
            dprintf(terminal, "%s\n", answer);
        }
        kept = all < sizeof question ? all : sizeof question;
        memmove(shown, shown + all - kept, kept);
    }
}

static int type(const char *answer, char **command)
{
    int terminal, status;
    pid_t child = forkpty(&terminal, NULL, NULL, NULL);

    if (child < 0)
        return fail("a terminal", strerror(errno));
    if (child == 0) {
        execvp(*command, command);
        _exit(127);
    }
    show(terminal, answer);
    close(terminal);
    if (waitpid(child, &status, 0) != child)
        return fail("waitpid", strerror(errno));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static uint64_t number_at(const unsigned char *bytes)
{
    uint64_t number;

    memcpy(&number, bytes, sizeof number);
    return le64toh(number);
}

/* The registry's extents are spans in the home page: byte 196 has how many, byte 2048 the first. */
static int scramble(const char *path, unsigned long mib)
{
    unsigned char *head = malloc(MIB);
    int fd = open(path, O_RDWR), rc = fd < 0 || pread(fd, head, MIB, 0) != MIB;
    unsigned spans = rc ? 0 : (unsigned)(number_at(head + 196) & UINT32_MAX);
    unsigned char block[4096];

    for (unsigned n = 0; n < spans && !rc; n++) {
        const unsigned char *span = head + 2048 + 32 * (size_t)n;
        uint64_t at = number_at(span + 8) * mib * MIB, end = at + number_at(span + 16) * mib * MIB;
        for (; at < end && !rc; at += sizeof block)
            rc = getrandom(block, sizeof block, 0) != sizeof block ||
                 pwrite(fd, block, sizeof block, (off_t)at) != sizeof block;
    }
    free(head);
    rc = (fd >= 0 && close(fd)) || rc;
    return rc || spans == 0 ? fail(path, "no registry, or no room") : 0;
}

/* A home page has its number elsewhere than the page of a further volume; the newer slot counts. */
static int print_numbers(char **paths)
{
    for (int n = 0; paths[n]; n++) {
        int fd = open(paths[n], O_RDONLY);
        uint64_t newest = 0, number = 0;

        if (fd < 0)
            return fail(paths[n], strerror(errno));
        for (int slot = 0; slot < 2; slot++) {
            unsigned char page[4096] = {0};
            bool home, further;

            home = pread(fd, page, sizeof page, 8192 + 4096 * slot) == sizeof page &&
                   memcmp(page, "PLXHOME.", 8) == 0;
            further = memcmp(page, "PLXNUMBR", 8) == 0;
            if ((home || further) && number_at(page + 32) >= newest) {
                newest = number_at(page + 32);
                number = number_at(page + (home ? 168 : 32));
            }
        }
        close(fd);
        printf("%s%" PRIu64, n ? " " : "", number);
    }
    putchar('\n');
    return 0;
}

static int record_back(const char *older, const char *path, unsigned long slot)
{
    enum { COPIES = 8192 };
    char *head = calloc(1, MIB);
    int from = open(older, O_RDONLY), to = open(path, O_RDWR);
    const char *first = NULL;
    size_t at = 0;

    if (from >= 0 && to >= 0 && read(from, head, MIB) > 0 &&
        (first = memmem(head, MIB, "PLXVDREC", 8)))
        at = (size_t)(first - head) + COPIES * slot;
    if (!first || at + COPIES > MIB || pwrite(to, head + at, COPIES, (off_t)at) != COPIES)
        first = NULL;
    free(head);
    close(from);
    close(to);
    return first ? 0 : fail(older, "no such record");
}

static int has_writes(const char *path)
{
    static const char written[] = "a write that was acknowledged";
    int fd = open(path, O_RDONLY), rc = 0;
    char block[sizeof written - 1];

    for (int i = 0; i < 5 && !rc; i++)
        rc = pread(fd, block, sizeof block, 4096 * i) != sizeof block ||
             memcmp(block, written, sizeof block) != 0;
    close(fd);
    return rc ? fail(path, "a write is not there") : 0;
}

int main(int argc, char **argv)
{
    const char *what = argc < 3 ? "" : argv[1];

    if (strcmp(what, "json") == 0)
        return print_json(argv[2], argv + 3);
    if (strcmp(what, "count") == 0 && argc == 3)
        return print_count(argv[2]);
    if (strcmp(what, "sql") == 0 && argc == 4)
        return print_sql(argv[2], argv[3]);
    if (strcmp(what, "type") == 0 && argc > 3)
        return type(argv[2], argv + 3);
    if (strcmp(what, "scramble") == 0 && argc == 4)
        return scramble(argv[2], strtoul(argv[3], NULL, 10));
    if (strcmp(what, "record") == 0 && argc == 5)
        return record_back(argv[2], argv[3], strtoul(argv[4], NULL, 10));
    if (strcmp(what, "column") == 0 && argc == 4)
        return print_column(argv[2], argv[3]);
    if (strcmp(what, "number") == 0)
        return print_numbers(argv + 2);
    if (strcmp(what, "writes") == 0 && argc == 3)
        return has_writes(argv[2]);
    fprintf(stderr,
            "usage: peek json|count|column|sql|type|scramble|record|number|writes WORD...\n");
    return 2;
}
