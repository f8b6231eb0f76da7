/* test_hostile.c - rows of the registry that nobody wrote: numbers beyond all there is, negative
 * ones, words for numbers, references to nothing. Whatever they say, nothing crashes, nothing
 * hangs, no disk shows other bytes than were written, and one that they are not about is read as
 * before.
 *
 * A small store with a disk that was closed, a clone, a deleted disk and one that a killed process
 * had open. Each case changes some rows, behind SQLite's own checks, in a copy of it, and a process
 * of its own does everything with that. Each day has other cases. PLX_SEED and PLX_RUNS choose
 * them; "PLX_RUNS=1 PLX_SEED=n", which a failure prints, replays one.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "attach/compare.h"
#include "folder.h"
#include "registry/embedded.h"
#include "attach/founding.h"
#include "attach/rebuild.h"
#include "registry/sqlite.h"
#include "ok.h"
#include "sim/simrng.h"
#include "suite.h"
#include "today.h"

#define MIB (1ull << 20)
#define RUNS 40
#define SECONDS_MAX 60 /* of one case, which takes half of one */
#define COLUMNS_MAX 20

static char folder[64];
static struct plx_attach *attach;
static struct plx_fault fault;

static const char *path_of(const char *name)
{
    static char path[128];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static bool shell(const char *command)
{
    char words[512];

    snprintf(words, sizeof words, "cd %s && %s", folder, command);
    return system(words) == 0;
}

static int open_attach(bool read_only)
{
    struct plx_attach_options options = {
        .store = "s", .state_dir = folder, .role = "admin", .read_only = read_only};

    return plx_attach_open(&options, &attach, &fault);
}

/* ---- The store ---- */

static uint8_t bytes[64 << 10];

static int run_at(struct plx_vdi *vdi, enum plx_request_op op, uint64_t offset, uint64_t *ret_seq)
{
    struct iovec iov = {bytes, sizeof bytes};
    struct plx_request request = {
        .op = op, .offset = offset, .length = sizeof bytes, .iov = &iov, .iovcnt = 1};
    int error = plx_vdi_run(vdi, &request);

    if (ret_seq)
        *ret_seq = request.seq;
    return error;
}

static int open_disk(const char *name, const char *snapshot, struct plx_vdi **ret_vdi)
{
    struct plx_attach_vdi_options options = {.overwrite = -1};

    return plx_attach_vdi_open(attach, name, snapshot, &options, ret_vdi, &fault);
}

static int create(const char *name, const char *parent)
{
    struct plx_vdi_create_options options = {.size_bytes = parent ? 0 : 4 * MIB,
                                             .sector_size = 512};
    struct plx_vdi_info info;

    snprintf(options.name, sizeof options.name, "%s", name);
    return plx_attach_vdi_create(attach, &options, parent, parent ? "kept" : NULL, &info, &fault);
}

static int fill(const char *name)
{
    struct plx_protection protection = {
        .mode = PLX_PROTECT_INTERVAL, .interval_ns = PLX_INTERVAL_MAX_NS, .tiers = 1};
    struct plx_vdi *vdi;
    uint64_t seq;
    int error = open_disk(name, NULL, &vdi);

    protection.tier[0] = (struct plx_tier){.keep_ns = PLX_INTERVAL_MAX_NS};
    memset(bytes, name[0], sizeof bytes);
    if (!error)
        error = run_at(vdi, PLX_WRITE, 0, NULL);
    if (!error)
        error = plx_attach_protect(attach, vdi, &protection, &fault);
    if (!error)
        error = run_at(vdi, PLX_SNAPSHOT, 0, &seq);
    if (!error)
        error = plx_attach_label(attach, vdi, "kept", seq, 1, &fault);
    return error ? error : plx_attach_vdi_close(attach, vdi);
}

/* And it dies with d open: two extents, a lock, a hold and a growth are its. */
static int make_store(void)
{
    struct plx_format_options options = {.name = "s", .extent_bytes = MIB};
    const char *volume = path_of("volume");
    struct plx_attach_work work = {.dry_run = false};
    struct plx_collected collected;
    struct plx_store_info info;
    struct plx_vdi *vdi;
    int error =
        plx_founding_format(folder, &volume, 1, 24 * MIB, &options, false, NULL, &info, &fault);

    if (!error)
        error = open_attach(false);
    for (const char *name = "v\0w\0d\0"; *name && !error; name += 2)
        error = create(name, NULL);
    if (!error)
        error = fill("v");
    if (!error)
        error = create("c", "v");
    if (!error)
        error = fill("w");
    if (!error)
        error = plx_attach_vdi_delete(attach, "w", false, &fault);
    if (!error)
        error = plx_attach_collect(attach, &work, &collected, &fault);
    if (!error)
        error = fill("d");
    if (!error)
        error = open_disk("v", "kept", &vdi);
    if (!error)
        error = open_disk("d", NULL, &vdi);
    return error ? error : run_at(vdi, PLX_WRITE, MIB, NULL);
}

/* ---- Changing rows ---- */

static uint64_t seed;
static struct plx_simrng rng;
static bool concerned; /* disk v may be hidden */

static uint64_t below(uint64_t limit)
{
    return plx_simrng_below(&rng, limit);
}

/* As SQL. */
static void any_value(char ret_value[64])
{
    static const char *const values[] = {
        "NULL",
        "0",
        "1",
        "-1",
        "2",
        "23",
        "24",
        "25",
        "63",
        "64",
        "4095",
        "2147483647",
        "4294967295",
        "4294967296",
        "72057594037927936",
        "4611686018427387904",
        "9223372036854775806",
        "9223372036854775807",
        "-9223372036854775808",
        "''",
        "'x'",
        "'live'",
        "'deleted'",
        "'data'",
        "'meta'",
        "'system'",
        "'mark'",
        "'sweep'",
        "'1ms'",
        "'all:1s,1s:1h,'",
        "'0+18446744073709551615 '",
        "'255+2 -5+9 '",
        "'00000000-0000-0000-0000-000000000000'",
        "char(1, 10, 255, 65533)",
        "hex(zeroblob(200))",
        "hex(zeroblob(5000))",
        "1e300",
        "x'00ff'",
    };

    snprintf(ret_value, 64, "%s", values[below(sizeof values / sizeof values[0])]);
    if (below(4) == 0)
        snprintf(ret_value, 64, "%" PRIu64, below(40));
}

struct table {
    char name[32], column[COLUMNS_MAX][32];
    unsigned columns;
};

static int read_name(void *context, int count, char **values, char **names)
{
    struct table *table = context;

    if (table->columns < COLUMNS_MAX)
        snprintf(table->column[table->columns++], sizeof table->column[0], "%s", values[0]);
    return 0;
}

/* Those of a table; of none: the tables. */
static void list_names(sqlite3 *db, struct table *table)
{
    char sql[128] = "SELECT name FROM sqlite_schema WHERE type = 'table'"
                    " AND name NOT IN ('migrations', 'sqlite_sequence') ORDER BY name";

    if (table->name[0])
        snprintf(sql, sizeof sql, "SELECT name FROM pragma_table_info('%s')", table->name);
    CU_ASSERT_EQUAL_FATAL(sqlite3_exec(db, sql, read_name, table, NULL), SQLITE_OK);
}

/* A further row, like one that there is but for one column, or all that have something there. */
static void change_sql(const struct table *table, char *sql, size_t size)
{
    const char *column = table->column[below(table->columns)];
    uint64_t row = below(4);
    char value[64];
    size_t at;

    any_value(value);
    if (below(2)) {
        snprintf(sql, size,
                 "UPDATE OR IGNORE %s SET %s = %s WHERE %s IS (SELECT %s FROM %s LIMIT 1 OFFSET "
                 "%" PRIu64 ")",
                 table->name, column, value, column, column, table->name, row);
        return;
    }
    at = (size_t)snprintf(sql, size, "INSERT OR IGNORE INTO %s SELECT ", table->name);
    for (unsigned i = 0; i < table->columns; i++)
        at += (size_t)snprintf(sql + at, size - at, "%s%s", i ? ", " : "",
                               table->column[i] == column ? value : table->column[i]);
    snprintf(sql + at, size - at, " FROM %s LIMIT 1 OFFSET %" PRIu64, table->name, row);
}

static bool is_about_disks(const char *table)
{
    static const char *const names[] = {"store", "volumes", "vdis"};

    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(table, names[i]) == 0)
            return true;
    return false;
}

/* Whether there was such a row. */
static bool change_row(sqlite3 *db, bool show)
{
    struct table tables = {.columns = 0}, table = {.columns = 0};
    char sql[2048];
    int before;

    list_names(db, &tables);
    memcpy(table.name, tables.column[below(tables.columns)], sizeof table.name);
    if (below(4) == 0) /* which has most to say */
        strcpy(table.name, "extents");
    list_names(db, &table);
    change_sql(&table, sql, sizeof sql);
    before = sqlite3_total_changes(db);
    sqlite3_exec(db, sql, NULL, NULL, NULL);
    if (sqlite3_total_changes(db) == before)
        return false;
    if (show)
        printf("    %s;\n", sql);
    concerned = concerned || is_about_disks(table.name);
    return true;
}

/* No CHECK, no reference and no type holds: the page's checksum says only that SQLite wrote it. */
static const char lift[] =
    "PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON; PRAGMA writable_schema = ON;"
    "CREATE TEMP TABLE kept AS SELECT name, sql FROM sqlite_schema WHERE sql LIKE '%STRICT%';"
    "UPDATE sqlite_schema SET sql = replace(replace(sql, ') STRICT, WITHOUT', ') WITHOUT'),"
    " ') STRICT', ')') WHERE type = 'table'; PRAGMA writable_schema = RESET";
static const char lower[] =
    "PRAGMA writable_schema = ON; UPDATE sqlite_schema AS s SET sql = kept.sql FROM kept"
    " WHERE kept.name = s.name; PRAGMA writable_schema = RESET";

static int change_rows(bool show)
{
    struct plx_embedded_options options = {.volume = path_of("volume"), .who = "test"};
    struct plx_registry *registry;
    struct plx_sqlite *lite;
    uint64_t changes = 1 + below(3);
    int error = plx_embedded_open(&options, &registry, &fault), result;

    if (error)
        return error;
    lite = registry->driver;
    sqlite3_db_config(lite->db, SQLITE_DBCONFIG_DEFENSIVE, 0, NULL);
    result = plx_sqlite_exec(lite, lift);
    while (!result && changes)
        changes -= change_row(lite->db, show);
    if (!result)
        result = plx_sqlite_exec(lite, lower);
    if (result)
        error = plx_fault_set(&fault, PLX_ERR_REGISTRY, "%s", sqlite3_errmsg(lite->db));
    plx_registry_close(registry);
    return error;
}

/* ---- Everything that can be done with it; what fails, fails ---- */

static bool right = true;

static void wrong(const char *what)
{
    printf("  %s: %s\n", what, fault.text);
    right = false;
}

static bool is_all(char byte)
{
    for (size_t i = 0; i < sizeof bytes; i++)
        if (bytes[i] != (uint8_t)byte)
            return false;
    return true;
}

/* 0: it has another name now, so who knows. */
static char byte_of(const char *name)
{
    return strcmp(name, "c") == 0 ? 'v' : strlen(name) == 1 && strchr("vwd", *name) ? *name : 0;
}

/* must: it is one that nothing was changed about. */
static void read_disk(const char *name, const char *snapshot, char byte, bool must)
{
    struct plx_vdi *vdi;
    int error = open_disk(name, snapshot, &vdi);

    if (error && must)
        wrong(name);
    if (error)
        return;
    memset(bytes, 0, sizeof bytes);
    error = run_at(vdi, PLX_READ, 0, NULL);
    if (error ? must : byte && !is_all(byte))
        wrong(error ? "read" : "other bytes");
    plx_attach_vdi_close(attach, vdi);
}

static void on_found(void *context, const struct plx_finding *finding)
{
}

static void look(bool must)
{
    struct plx_registry *registry = plx_attach_registry(attach);
    struct plx_registry_extent *extents = NULL;
    struct plx_registry_vdi *vdis = NULL;
    struct plx_registry_label *labels;
    struct plx_registry_store row;
    struct plx_extent_info extent;
    size_t count = 0, label_count;

    plx_attach_row(attach, &row);
    read_disk("v", "0", 'v', must);
    read_disk("v", "kept", 'v', false);
    read_disk("c", "0", 'v', false);
    plx_registry_extent_list(registry, row.id, PLX_REGISTRY_ANY, &extents, &count);
    for (size_t i = 0; i < count; i++)
        plx_store_extent_read(plx_attach_store(attach), extents[i].no, &extent, &fault);
    free(extents);
    count = 0;
    plx_registry_vdi_list(registry, row.id, false, NULL, 0, &vdis, &count);
    for (size_t i = 0; i < count; i++)
        if (plx_registry_label_list(registry, vdis[i].id, &labels, &label_count) == 0) {
            for (size_t l = 0; l < label_count; l++)
                read_disk(vdis[i].name, labels[l].name, byte_of(vdis[i].name), false);
            free(labels);
        }
    free(vdis);
    plx_attach_compare(attach, on_found, NULL, &fault);
}

static void write_disk(const char *name)
{
    struct plx_thin thin = {.upto = 100};
    struct plx_thinned thinned;
    struct plx_vdi *vdi;
    uint64_t seq = 0;

    if (open_disk(name, NULL, &vdi))
        return;
    memset(bytes, 'n', sizeof bytes);
    for (int i = 1; i < 24; i++)
        run_at(vdi, PLX_WRITE, 2 * MIB + (unsigned)i * sizeof bytes, NULL);
    if (run_at(vdi, PLX_SNAPSHOT, 0, &seq) == 0)
        plx_attach_label(attach, vdi, "new", seq, 1, &fault);
    plx_attach_label(attach, vdi, "kept", 0, 0, &fault);
    plx_attach_thin(attach, vdi, &thin, &thinned, &fault);
    plx_attach_vdi_close(attach, vdi);
}

static void change(void)
{
    struct plx_attach_growth growth = {.how.dry_run = false};
    struct plx_attach_work work = {.dry_run = true};
    struct plx_collected collected;
    struct plx_grown grown;
    uint64_t room;

    create("fresh", NULL);
    write_disk("fresh");
    write_disk("d");
    write_disk("c");
    plx_attach_data_room(attach, 1u << 20, &room, &fault);
    plx_attach_collect(attach, &work, &collected, &fault);
    work.dry_run = false;
    plx_attach_collect(attach, &work, &collected, &fault);
    plx_attach_vdi_delete(attach, "c", false, &fault);
    plx_attach_collect(attach, &work, &collected, &fault);
    plx_attach_grow(attach, &growth, &grown, &fault);
}

/* What every message advises in the end. must: v cannot have been deleted. */
static void make_anew(bool must)
{
    const char *volume = path_of("volume");
    struct plx_rebuild_options options = {.state_dir = folder, .volumes = &volume, .count = 1};
    struct plx_rebuilt rebuilt;
    struct plx_known known;
    int error = plx_rebuild(&options, &known, &rebuilt, &fault);

    if (error) {
        wrong("the registry cannot be made anew");
        return;
    }
    plx_known_done(&known);
    if (open_attach(false)) {
        wrong("opening, with a new registry");
        return;
    }
    if (must)
        read_disk("v", "0", 'v', true);
    plx_attach_close(attach);
}

/* A number may be a size. */
static void bound_memory(void)
{
#ifndef __SANITIZE_ADDRESS__ /* it reserves far more */
    const struct rlimit memory = {2ull << 30, 2ull << 30};

    setrlimit(RLIMIT_AS, &memory);
#endif
}

/* In a process of its own. */
static int use_store(bool must)
{
    bound_memory();
    alarm(SECONDS_MAX);
    if (!open_attach(true)) {
        look(must);
        plx_attach_close(attach);
    } else if (must) {
        wrong("opening");
    }
    if (!open_attach(false)) {
        change();
        plx_attach_close(attach);
    }
    if (!open_attach(true)) {
        if (must)
            read_disk("v", "0", 'v', true);
        plx_attach_close(attach);
    }
    make_anew(must);
    return right ? 0 : 1;
}

static bool in_child(int (*work)(bool), bool argument)
{
    int status;
    pid_t child;

    fflush(NULL);
    child = fork();
    if (child == 0) {
        int error = work(argument);

        fflush(NULL);
        _exit(error != 0);
    }
    if (waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return true;
    if (WIFSIGNALED(status))
        printf("  ended by signal %d%s\n", WTERMSIG(status),
               WTERMSIG(status) == SIGALRM ? ": it hangs" : "");
    return false;
}

static int make_in_child(bool unused)
{
    int error = make_store();

    if (error)
        printf("%s: %s\n", plx_error_name(error), fault.text);
    return error;
}

/* ---- Tests ---- */

static int make(void)
{
    return folder_make("hostile", folder) && in_child(make_in_child, false) &&
                   shell("cp volume volume-kept")
               ? 0
               : -1;
}

static int clean(void)
{
    return shell("rm -r $PWD") ? 0 : -1;
}

static int change_and_use(bool show)
{
    int error = change_rows(show);

    if (error)
        printf("  %s\n", fault.text);
    return error ? error : use_store(!concerned);
}

static bool run_case(bool show)
{
    rng = (struct plx_simrng){seed};
    CU_ASSERT_FATAL(shell("cp --sparse=always volume-kept volume"));
    return in_child(change_and_use, show);
}

static void test_no_change(void)
{
    CU_ASSERT_FATAL(shell("cp --sparse=always volume-kept volume"));
    CU_ASSERT(in_child(use_store, true));
}

static void test_rows(void)
{
    const char *runs = getenv("PLX_RUNS"), *first = getenv("PLX_SEED");
    uint64_t count = runs ? strtoull(runs, NULL, 10) : RUNS;
    unsigned failed = 0;

    seed = first ? strtoull(first, NULL, 10) : plx_today() * RUNS;
    printf("  %" PRIu64 " cases from seed %" PRIu64 " on\n", count, seed);
    for (uint64_t i = 0; i < count; i++, seed++) {
        if (run_case(false))
            continue;
        failed++;
        printf("  seed %" PRIu64 " failed; to repeat it: PLX_RUNS=1 PLX_SEED=%" PRIu64
               " test_hostile\n",
               seed, seed);
        run_case(true);
    }
    CU_ASSERT_EQUAL(failed, 0);
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"rows as they were", test_no_change},
        {"rows changed at random", test_rows},
    };
    const struct suite_frame store = {.init = make, .clean = clean};

    return SUITE_RUN_IN(&store, "hostile rows", tests);
}
