/* test_carry.c - a store's rows carried from one registry to another: file to file, to rqlite nodes
 * and back; cut off behind each call and repeated; beside another store; what is refused; what
 * lies.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "folder.h"
#include "registry/carry.h"
#include "registry/sql.h"
#include "suite.h"
#include "unit/cluster.h"
#include "unit/place.h"
#include "unit/rqlite_proxy.h"

#define OK(call) CU_ASSERT_EQUAL_FATAL(say(call, __LINE__), 0)
#define FAILS(code, call) CU_ASSERT_EQUAL(call, PLX_ERR_##code)
#define UUID "aaaaaaaa-1111-4111-8111-111111111111"
#define OTHER "bbbbbbbb-2222-4222-8222-222222222222"
#define IDENTITY "cccccccc-3333-4333-8333-333333333333"
#define STRANGER "dddddddd-4444-4444-8444-444444444444"
#define MAX "9223372036854775807"

static char folder[FOLDER_MAX];
static struct cluster nodes;
static bool possible;                                  /* nodes can be started */
static struct plx_registry *from, *to, *back, *region; /* region: in a volume */
static struct plx_fault fault;

static int say(int code, int line)
{
    if (code)
        fprintf(stderr, "\n  line %d: %s: %s\n", line, plx_error_name(code), fault.text);
    return code;
}

static void says(const char *text)
{
    if (!strstr(fault.text, text))
        printf("\n    '%s' lacks '%s'", fault.text, text);
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, text));
}

/* ---- SQL --------------------------------------------------------------------------------- */

/* text: static, as in sql.h. */
static void change(struct plx_registry *reg, const char *text)
{
    const struct plx_sql batch[] = {{.text = text}};
    int code = plx_sql_change(reg, batch, 1, NULL, NULL);

    if (code)
        printf("\n    %s: %s", text, plx_registry_error(reg));
    CU_ASSERT_EQUAL_FATAL(code, 0);
}

struct sum {
    uint64_t hash;
    size_t rows;
};

static void add(struct sum *sum, const void *bytes, size_t count)
{
    for (const unsigned char *b = bytes; count--; b++)
        sum->hash = (sum->hash ^ *b) * 0x100000001b3ull;
}

static void add_row(void *context, const struct plx_sql_value *columns, size_t count)
{
    struct sum *sum = context;

    sum->rows++;
    for (size_t i = 0; i < count; i++) {
        add(sum, &columns[i].kind, sizeof columns[i].kind);
        if (columns[i].kind == PLX_SQL_INT)
            add(sum, &columns[i].number, sizeof columns[i].number);
        else if (columns[i].kind == PLX_SQL_TEXT)
            add(sum, columns[i].text, strlen(columns[i].text) + 1);
    }
}

/* ---- What there is ----------------------------------------------------------------------- */

enum belongs { BY_ID, BY_STORE, BY_DISK, TO_NOBODY };

/* All tables of the schema, with all columns: the ones that are carried, and the others. */
static const struct {
    const char *name;
    enum belongs belongs;
    const char *carried, *others;
} tables[] = {
    {"store", BY_ID, "uuid, name, extent_blocks, created_ns, doubt", "id, identity, state, host"},
    {"volumes", BY_STORE, "idx, part, uuid, path, first_extent, extents, touched", "store"},
    {"store_policies", BY_STORE, "key, value", "store"},
    {"collections", BY_STORE, "number, instance, phase, begun_ns, ended_ns, collected, wanted",
     "store"},
    {"extents", BY_STORE, "no, type, sealed, generation, free_blocks, states",
     "store, owner, request_id"},
    {"garbage", BY_STORE, "extent, generation, blocks, runs", "store"},
    {"vdis", BY_STORE,
     "slot, id, name, size_bytes, sector_size, epoch, state, parent, parent_seq, created_ns, "
     "written_epoch, written_state",
     "store, owner, request_id"},
    {"policies", BY_DISK, "vdi, key, value", ""},
    {"labels", BY_DISK, "vdi, name, seq, time_ns", "request_id"},
    {"intents", BY_DISK, "vdi, instance, epoch, whole", ""},
    {"lost", BY_STORE, "slot, what, vdi, why", "store"},
    {"instances", BY_STORE, "", "id, store, host, boot, pid, role, started_ns"},
    {"growth", BY_STORE, "", "store, instance, path"},
    {"holds", BY_DISK, "", "id, vdi, seq, instance, since_ns"},
    {"migrations", TO_NOBODY, "", "number, applied_ns"},
    {"cluster", TO_NOBODY, "", "id, uuid, line, created_ns"},
    {"hosts", TO_NOBODY, "", "uuid, name, seen_ns"},
    {"events", TO_NOBODY, "", "id, time_ns, who, what, subject, detail"},
    {"room", TO_NOBODY, "", "id, event_bytes, event_limit"},
    {"guard", TO_NOBODY, "", "changed"},
};
#define TABLES (sizeof tables / sizeof tables[0])

/* The statements have addresses of their own (sql.h). */
static char selects[2][TABLES][500];

static void make_selects(void)
{
    static const char *const of[] = {[BY_ID] = "id = ?1",
                                     [BY_STORE] = "store = ?1",
                                     [BY_DISK] = "vdi IN (SELECT id FROM vdis WHERE store = ?1)",
                                     [TO_NOBODY] = "?1 = 0"};

    for (size_t i = 0; i < TABLES; i++) {
        const char *both = *tables[i].carried && *tables[i].others ? ", " : "";

        snprintf(selects[0][i], sizeof selects[0][i], "SELECT %s FROM %s WHERE %s ORDER BY %s",
                 tables[i].carried, tables[i].name, of[tables[i].belongs], tables[i].carried);
        snprintf(selects[1][i], sizeof selects[1][i], "SELECT %s%s%s FROM %s WHERE %s ORDER BY 1",
                 tables[i].carried, both, tables[i].others, tables[i].name, of[tables[i].belongs]);
    }
}

/* Of a store: the carried columns, or all. */
static struct sum sum_of(struct plx_registry *reg, int64_t store, bool all, size_t table)
{
    const struct plx_sql statement = {.text = selects[all][table], SQL_ARGS(SQL_INT(store))};
    struct sum sum = {0xcbf29ce484222325ull, 0};

    if (all || tables[table].carried[0])
        CU_ASSERT_EQUAL_FATAL(
            reg->ops->run(reg->driver, false, &statement, 1, add_row, &sum, &fault), 0);
    return sum;
}

static uint64_t whole(struct plx_registry *reg, int64_t store)
{
    uint64_t hash = 0;

    for (size_t i = 0; i < TABLES; i++)
        hash = hash * 31 + sum_of(reg, store, true, i).hash;
    return hash;
}

static struct plx_registry_store row_of(struct plx_registry *reg, const char *uuid)
{
    struct plx_registry_store row = {.id = 0};

    if (plx_registry_store_get(reg, uuid, &row))
        row.id = 0;
    return row;
}

static void expect_same(struct plx_registry *a, struct plx_registry *b)
{
    struct plx_registry_store in_a = row_of(a, UUID), in_b = row_of(b, UUID);

    CU_ASSERT_FATAL(in_a.id && in_b.id);
    for (size_t i = 0; i < TABLES; i++) {
        struct sum sum_a = sum_of(a, in_a.id, false, i), sum_b = sum_of(b, in_b.id, false, i);

        if (sum_a.hash != sum_b.hash)
            printf("\n    %s: %zu rows, and %zu", tables[i].name, sum_a.rows, sum_b.rows);
        CU_ASSERT(sum_a.hash == sum_b.hash && sum_a.rows == sum_b.rows);
        if (tables[i].carried[0] && !sum_a.rows)
            printf("\n    %s: empty, so nothing is tested", tables[i].name);
        CU_ASSERT(!tables[i].carried[0] || sum_a.rows);
    }
    OK(plx_registry_check(b));
}

/* ---- Awkward rows ------------------------------------------------------------------------ */

#define DISK "'eeeeeeee-0000-4000-8000-000000000"

static const char *const awkward[] = {
    "UPDATE store SET created_ns = -1 WHERE uuid = '" UUID "'",
    "UPDATE volumes SET path = '/dev/b' || char(246, 115, 101) || ' \"x\" ''y'' ' || char(1, 10, "
    "8364, 128512) || '\\<&>' WHERE uuid LIKE '%a0'",
    "INSERT INTO volumes (store, idx, part, first_extent, extents) SELECT id, 0, 1, 2000, " MAX
    " - 4000 FROM store WHERE uuid = '" UUID "'",
    "INSERT INTO store_policies SELECT id, 'warn-at', '' FROM store WHERE uuid = '" UUID "'",
    "INSERT INTO store_policies SELECT id, char(228), char(9, 127, 65533) FROM store"
    " WHERE uuid = '" UUID "'",
    "WITH RECURSIVE n (i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 450)"
    " INSERT INTO extents (store, no, type, sealed, generation, free_blocks, request_id, states)"
    " SELECT id, i, CASE i % 3 WHEN 0 THEN 'data' WHEN 1 THEN 'meta' ELSE 'unused' END,"
    " i % 6 = 0, i * i, i % 7, i, i * 3 FROM store, n WHERE uuid = '" UUID "'",
    "INSERT INTO extents (store, no, type, sealed, generation, free_blocks, states)"
    " SELECT id, " MAX ", 'data', 1, " MAX ", " MAX ", " MAX " FROM store WHERE uuid = '" UUID "'",
    "INSERT INTO garbage SELECT id, 3, 9, 2, '5+2 ' FROM store WHERE uuid = '" UUID "'",
    "WITH RECURSIVE n (i) AS (SELECT 10 UNION ALL SELECT i + 1 FROM n WHERE i < 16)"
    " INSERT INTO garbage SELECT id, i, " MAX ", i, hex(zeroblob(300000)) FROM store, n"
    " WHERE uuid = '" UUID "'",
    "INSERT INTO collections SELECT id, 17, " MAX ", 'sweep', 1, 2, 3, 4 FROM store"
    " WHERE uuid = '" UUID "'",
    "WITH RECURSIVE n (i) AS (SELECT 10 UNION ALL SELECT i + 1 FROM n WHERE i < 220)"
    " INSERT INTO vdis (id, store, slot, name, size_bytes, sector_size, epoch, created_ns,"
    " request_id, written_epoch) SELECT " DISK
    "' || printf('%03d', i), id, i, 'web-' || i, 512 * i, 512, i, i, i, "
    "i FROM store, n WHERE uuid = '" UUID "'",
    /* A deleted one with a clone, one of the same name, and one whose origin is not known. */
    "INSERT INTO vdis (id, store, slot, name, size_bytes, sector_size, epoch, state, created_ns)"
    " SELECT " DISK "001', id, 1, 'gone', 1, 4096, " MAX ", 'deleted', 0 FROM store"
    " WHERE uuid = '" UUID "'",
    "INSERT INTO vdis (id, store, slot, name, size_bytes, sector_size, state, parent, parent_seq,"
    " created_ns) SELECT " DISK "002', id, 2, 'gone', 1, 4096, 'deleted', " DISK "001', " MAX
    ", 0 FROM store WHERE uuid = '" UUID "'",
    "INSERT INTO vdis (id, store, slot, name, size_bytes, sector_size, parent, parent_seq,"
    " created_ns, written_epoch, written_state) SELECT " DISK "003', id, 4294967294,"
    " substr(replace(hex(zeroblob(128)), '0', char(8364)), 1, 255), " MAX ", 512,"
    " '" STRANGER "', 1, " MAX ", " MAX ", " MAX " FROM store WHERE uuid = '" UUID "'",
    "INSERT INTO policies VALUES (" DISK "001', 'protection', ''), (" DISK "003', char(128512),"
    " hex(zeroblob(500))), (" DISK "003', 'Z', 'z'), (" DISK "003', 'z', 'Z')",
    "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 450)"
    " INSERT INTO labels SELECT " DISK "001', 'label ' || char(0x4e00 + i), i, -i, i FROM n",
    "INSERT INTO labels VALUES (" DISK "003', char(10) || '%s' || char(0x10ffff), " MAX ", " MAX
    ", NULL)",
    "INSERT INTO intents (vdi, instance, epoch, whole) VALUES (" DISK "003', " MAX ", 4, 1)",
    "INSERT INTO lost SELECT id, " MAX ", 'record', NULL, '' FROM store WHERE uuid = '" UUID "'",
    "INSERT INTO lost SELECT id, 1, 'labels', " DISK "001', char(27) || '[31m' FROM store"
    " WHERE uuid = '" UUID "'",
    "UPDATE store SET doubt = 'seen: ' || char(8222) || hex(zeroblob(300)) WHERE uuid = '" UUID "'",
};

/* A store that is in use, of which nothing may change. */
static const char *const foreign[] = {
    "INSERT INTO hosts VALUES ('" STRANGER "', 'beta', 1)",
    "INSERT INTO instances SELECT 77, id, '" STRANGER "', 'boot', 4711, 'handler', 1 FROM store"
    " WHERE uuid = '" OTHER "'",
    "INSERT INTO vdis (id, store, slot, name, size_bytes, sector_size, owner, epoch, created_ns)"
    " SELECT 'ffffffff-0000-4000-8000-000000000001', id, 1, 'gone', 1, 4096, 77, 3, 0 FROM store"
    " WHERE uuid = '" OTHER "'",
    "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 450)"
    " INSERT INTO labels SELECT 'ffffffff-0000-4000-8000-000000000001', 'l' || i, i, i, i FROM n",
    "INSERT INTO policies VALUES ('ffffffff-0000-4000-8000-000000000001', 'protection', 'x')",
    "INSERT INTO extents (store, no, type, owner, generation) SELECT id, 3, 'data', 77, 5"
    " FROM store WHERE uuid = '" OTHER "'",
    "INSERT INTO garbage SELECT id, 3, 5, 1, '1+1 ' FROM store WHERE uuid = '" OTHER "'",
    "INSERT INTO collections SELECT id, 3, 77, 'mark', 1, 2, 3, 4 FROM store"
    " WHERE uuid = '" OTHER "'",
    "INSERT INTO growth SELECT id, 77, '/dev/new' FROM store WHERE uuid = '" OTHER "'",
    "INSERT INTO holds VALUES (5, 'ffffffff-0000-4000-8000-000000000001', 7, 77, 1)",
    "INSERT INTO lost SELECT id, 9, 'record', NULL, 'why' FROM store WHERE uuid = '" OTHER "'",
};

static void make_store(struct plx_registry *reg, const char *uuid, const char *name, char letter)
{
    struct plx_registry_store spec = {.extent_blocks = 1024};
    struct plx_registry_volume list[2] = {
        {.path = "/dev/x0", .extents = 1000, .system_extents = 2},
        {.index = 1, .path = "/dev/x1", .first_extent = 1000, .extents = 1000},
    };

    snprintf(spec.uuid, sizeof spec.uuid, "%s", uuid);
    snprintf(spec.name, sizeof spec.name, "%s", name);
    for (int i = 0; i < 2; i++)
        snprintf(list[i].uuid, sizeof list[i].uuid, "99999999-0000-4000-8000-0000000000%c%d",
                 letter, i);
    OK(plx_registry_store_create(reg, &spec, list, 2, NULL));
}

static void fill(struct plx_registry *reg)
{
    make_store(reg, UUID, "demo", 'a');
    for (size_t i = 0; i < sizeof awkward / sizeof awkward[0]; i++)
        change(reg, awkward[i]);
}

static void fill_foreign(struct plx_registry *reg)
{
    make_store(reg, OTHER, "foreign", 'b');
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
        change(reg, foreign[i]);
}

static int open_file(const char *name, struct plx_registry **ret_reg)
{
    char path[FOLDER_MAX + 20];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return plx_registry_open(path, "test", ret_reg, &fault);
}

static void begin(void)
{
    from = to = back = region = NULL;
    make_selects();
    CU_ASSERT_FATAL(folder_make("carry", folder));
    OK(open_file("from", &from));
    OK(open_file("to", &to));
    fill(from);
    fill_foreign(to);
}

static void end(void)
{
    char command[FOLDER_MAX + 20];

    plx_registry_close(from);
    plx_registry_close(to);
    plx_registry_close(back);
    place_registry_close(region);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    CU_ASSERT_EQUAL(system(command), 0);
}

/* `to` becomes the nodes. */
static bool begin_nodes(void)
{
    if (!possible)
        return false;
    if (nodes.count)
        CU_ASSERT_FATAL(cluster_wipe(&nodes));
    if (!nodes.count)
        CU_ASSERT_FATAL(cluster_start(&nodes, cluster_wanted() ? cluster_wanted() : 1, true));
    plx_registry_close(to);
    to = NULL;
    OK(cluster_open(&nodes, "test", &to, &fault));
    fill_foreign(to);
    return true;
}

static int look_for_nodes(void)
{
    possible = cluster_is_possible();
    return 0;
}

static int stop_nodes(void)
{
    cluster_stop(&nodes);
    return 0;
}

static int carry(void)
{
    return plx_registry_carry(from, to, UUID, IDENTITY, PLX_STORE_ARRIVING, &fault);
}

static int drop(void)
{
    return plx_registry_drop(to, UUID, IDENTITY, &fault);
}

/* ---- There and back ---------------------------------------------------------------------- */

static void count_column(void *context, const struct plx_sql_value *columns, size_t count)
{
    char *const all = context;

    strcat(strcat(all, columns[0].text), " ");
}

static unsigned words_in(const char *list)
{
    unsigned words = *list != '\0';

    for (; *list; list++)
        words += *list == ',' || (*list == ' ' && list[1] == '\0');
    return words;
}

static bool has_word(const char *list, const char *word, size_t length)
{
    const char *at = list;

    while ((at = strstr(at, word)) && (at[length] != ' ' || (at != list && at[-1] != ' ')))
        at++;
    return at != NULL;
}

/* Whoever adds a table or a column decides here and in carry_tables.c what becomes of it. */
static void test_schema(void)
{
    static char columns[TABLES][80];
    const struct plx_sql names = {.text = "SELECT name FROM sqlite_schema WHERE type = 'table'"
                                          " AND name NOT LIKE 'sqlite!_%' ESCAPE '!'"};
    char all[1000] = "";

    CU_ASSERT_EQUAL_FATAL(from->ops->run(from->driver, false, &names, 1, count_column, all, &fault),
                          0);
    for (size_t i = 0; i < TABLES; i++) {
        char found[1000] = "", known[1000];
        unsigned spaces = 0;

        CU_ASSERT(has_word(all, tables[i].name, strlen(tables[i].name)));
        snprintf(columns[i], sizeof columns[i], "SELECT name FROM pragma_table_info('%s')",
                 tables[i].name);
        CU_ASSERT_EQUAL_FATAL(from->ops->run(from->driver, false,
                                             &(struct plx_sql){.text = columns[i]}, 1, count_column,
                                             found, &fault),
                              0);
        for (const char *c = found; *c; c++)
            spaces += *c == ' ';
        if (spaces != words_in(tables[i].carried) + words_in(tables[i].others))
            printf("\n    %s has: %s", tables[i].name, found);
        CU_ASSERT_EQUAL(spaces, words_in(tables[i].carried) + words_in(tables[i].others));
        snprintf(known, sizeof known, "%s, %s", tables[i].carried, tables[i].others);
        for (char *word = strtok(known, ", "); word; word = strtok(NULL, ", "))
            CU_ASSERT(has_word(found, word, strlen(word)));
    }
    for (char *name = strtok(all, " "); name; name = strtok(NULL, " ")) {
        bool known = false;

        for (size_t i = 0; i < TABLES && !known; i++)
            known = !strcmp(tables[i].name, name);
        if (!known)
            printf("\n    nobody decided about %s", name);
        CU_ASSERT(known);
    }
}

static void there_and_back(void)
{
    int64_t beside = row_of(to, OTHER).id;
    uint64_t before = whole(to, beside), source = whole(from, row_of(from, UUID).id);
    struct plx_registry_store row;

    OK(carry());
    expect_same(from, to);
    row = row_of(to, UUID);
    CU_ASSERT(row.state == PLX_STORE_ARRIVING && !strcmp(row.identity, IDENTITY));
    CU_ASSERT(row.id != row_of(from, UUID).id);
    CU_ASSERT_EQUAL(whole(from, row_of(from, UUID).id), source);
    OK(carry()); /* once more, from the beginning */
    expect_same(from, to);
    CU_ASSERT_NOT_EQUAL(row_of(to, UUID).id, row.id);
    row = row_of(to, UUID);

    OK(open_file("back", &back));
    FAILS(BUSY, plx_registry_carry(to, back, UUID, NULL, PLX_STORE_NORMAL, &fault)); /* CARRY-7 */
    says("may be there in part");
    OK(plx_registry_store_move(to, row.id, PLX_STORE_ARRIVING, PLX_STORE_NORMAL));
    OK(plx_registry_store_move(to, row.id, PLX_STORE_NORMAL, PLX_STORE_LEAVING));
    OK(plx_registry_carry(to, back, UUID, NULL, PLX_STORE_NORMAL, &fault));
    expect_same(from, back);
    row = row_of(back, UUID);
    CU_ASSERT(row.state == PLX_STORE_NORMAL && !row.identity[0]);
    FAILS(EXISTS, plx_registry_carry(to, back, UUID, NULL, PLX_STORE_NORMAL, &fault));

    OK(drop());
    CU_ASSERT_EQUAL(row_of(to, UUID).id, 0);
    OK(drop());
    CU_ASSERT_EQUAL(whole(to, beside), before);
    OK(plx_registry_check(to));
}

/* From where a store's own registry lies, and back there. */
static void region_and_back(void)
{
    char path[FOLDER_MAX + 20];

    snprintf(path, sizeof path, "%s/volume", folder);
    OK(place_registry_open(path, "test", &region, &fault));
    OK(plx_registry_carry(from, region, UUID, NULL, PLX_STORE_NORMAL, &fault));
    expect_same(from, region);
    OK(plx_registry_carry(region, to, UUID, IDENTITY, PLX_STORE_ARRIVING, &fault));
    expect_same(from, to);
    /* Old rows are there: they are replaced as a whole, by way of a file. */
    OK(plx_registry_store_move(to, row_of(to, UUID).id, PLX_STORE_ARRIVING, PLX_STORE_NORMAL));
    FAILS(EXISTS, plx_registry_carry(to, region, UUID, NULL, PLX_STORE_NORMAL, &fault));
    change(region, "UPDATE store SET name = 'old'");
    snprintf(path, sizeof path, "%s/whole", folder);
    plx_registry_close(back);
    OK(open_file("whole", &back));
    OK(plx_registry_carry(to, back, UUID, NULL, PLX_STORE_NORMAL, &fault));
    plx_registry_close(back);
    back = NULL;
    OK(plx_registry_put(region, path, &fault));
    expect_same(from, region);
    change(to, "UPDATE store SET state = 'leaving' WHERE uuid = '" UUID "'");
    OK(drop());
}

/* A volume's registry that is too small. */
static void test_no_room(void)
{
    struct plx_region small = {.spans = 1, .span = {{1 << 20, 2 << 20}}};
    struct plx_registry *full;
    char path[FOLDER_MAX + 20];

    snprintf(path, sizeof path, "%s/small", folder);
    CU_ASSERT_FATAL(place_make(path));
    OK(place_open(path, false, &small, &fault));
    OK(plx_registry_open_region(&small, path, "test", &full, &fault));
    FAILS(NOSPACE, plx_registry_carry(from, full, UUID, NULL, PLX_STORE_NORMAL, &fault));
    CU_ASSERT_EQUAL(row_of(full, UUID).state, PLX_STORE_ARRIVING);
    change(from, "DELETE FROM garbage WHERE blocks > 2");
    OK(plx_registry_carry(from, full, UUID, NULL, PLX_STORE_NORMAL, &fault));
    expect_same(from, full);
    plx_registry_close(full);
    place_close(&small);
}

static void test_files(void)
{
    there_and_back();
    region_and_back();
}

static void test_nodes(void)
{
    if (begin_nodes()) {
        there_and_back();
        region_and_back();
    }
}

/* ---- Cut off ----------------------------------------------------------------------------- */

static const struct plx_registry_ops *real;
static struct plx_registry_ops hooked;
static unsigned left;       /* so many calls, or changes, work */
static bool only_changes;   /* reads work always */
static bool after;          /* the one that fails was made */
static unsigned met;        /* calls that failed */
static const char *swallow; /* a change with this in a statement is not made, and nobody says so */

static bool has_text(const struct plx_sql *batch, size_t count, const char *text)
{
    for (size_t i = 0; i < count; i++)
        if (strstr(batch[i].text, text))
            return true;
    return false;
}

static int cut_run(void *driver, bool is_change, const struct plx_sql *batch, size_t count,
                   void (*row)(void *, const struct plx_sql_value *, size_t), void *context,
                   struct plx_fault *ret_fault)
{
    if (is_change && swallow && has_text(batch, count, swallow))
        return 0;
    if (is_change || !only_changes) {
        if (!left) {
            if (after && !met++)
                real->run(driver, is_change, batch, count, row, context, ret_fault);
            met++;
            return plx_fault_set(ret_fault, PLX_ERR_REGISTRY, "cut off");
        }
        left--;
    }
    return real->run(driver, is_change, batch, count, row, context, ret_fault);
}

static void hook(struct plx_registry *reg,
                 int (*run)(void *, bool, const struct plx_sql *, size_t,
                            void (*)(void *, const struct plx_sql_value *, size_t), void *,
                            struct plx_fault *))
{
    real = reg->ops;
    hooked = *real;
    hooked.run = run;
    reg->ops = &hooked;
    left = ~0u;
    only_changes = after = false;
    swallow = NULL;
}

static void unhook(struct plx_registry *reg)
{
    reg->ops = real;
}

/* Cut at the k-th call; false: there are not so many. */
static bool cut_at(struct plx_registry *reg, unsigned k, bool changes, bool made, int (*call)(void))
{
    int code;

    hook(reg, cut_run);
    left = k;
    only_changes = changes;
    after = made;
    met = 0;
    code = call();
    unhook(reg);
    CU_ASSERT(met ? code == PLX_ERR_REGISTRY : code == 0);
    return met > 0;
}

/* CARRY-1: nobody takes a part for the whole. */
static void expect_part(void)
{
    struct plx_registry_store row = row_of(to, UUID);

    CU_ASSERT(!row.id || (row.state == PLX_STORE_ARRIVING && !strcmp(row.identity, IDENTITY)));
}

static void cut_everywhere(bool changes, unsigned step)
{
    int64_t beside = row_of(to, OTHER).id;
    uint64_t before = whole(to, beside);
    unsigned cuts = 0;

    for (int made = 0; made < 2; made++)
        for (unsigned k = 0; cut_at(to, k, changes, made, carry); k += step, cuts++) {
            expect_part();
            if (cut_at(to, k * 7 % 23, changes, !made, carry)) /* in the second attempt, too */
                expect_part();
            OK(carry());
            expect_same(from, to);
            for (unsigned j = k % 5; cut_at(to, j, changes, made, drop); j += 5)
                expect_part();
            CU_ASSERT_EQUAL(row_of(to, UUID).id, 0);
            CU_ASSERT_EQUAL(whole(to, beside), before);
        }
    OK(carry());
    for (unsigned k = 0; cut_at(from, k, false, false, carry); k += step) /* the source fails */
        expect_part();
    expect_same(from, to);
    CU_ASSERT_EQUAL(whole(to, beside), before);
    CU_ASSERT(cuts > 10);
    OK(plx_registry_check(to));
}

static void test_cut_files(void)
{
    cut_everywhere(true, 1);
    cut_everywhere(false, 7);
}

static void test_cut_nodes(void)
{
    if (begin_nodes())
        cut_everywhere(true, 3);
}

/* Answers of the node are lost, and requests arrive twice: each change is made once. */
static void test_answers_lost(void)
{
    static const enum proxy_fate fates[] = {PROXY_DROP, PROXY_TWICE};
    struct plx_registry_cluster found;
    const char *address;
    struct plx_registry_nodes access = {.addresses = &address, .count = 1};
    struct proxy *proxy;
    uint64_t before;

    if (!begin_nodes())
        return;
    before = whole(to, row_of(to, OTHER).id);
    plx_registry_close(to);
    to = NULL;
    proxy = proxy_start(nodes.http[0]);
    CU_ASSERT_PTR_NOT_NULL_FATAL(proxy);
    address = proxy->address;
    OK(plx_registry_open_rqlite(&access, "test", &to, &fault));
    for (int i = 0; i < 2; i++)
        for (unsigned k = 0;; k += 4) { /* the second carrying deletes what the first has left */
            proxy_plan(proxy, "/db/request", fates[i], k, 1);
            OK(carry());
            expect_same(from, to);
            if (k % 12 == 0) {
                proxy_plan(proxy, "/db/request", fates[i], k / 2, 1);
                OK(drop());
                CU_ASSERT_EQUAL(row_of(to, UUID).id, 0);
            }
            proxy_plan(proxy, "/db/request", PROXY_PASS, 0, 0);
            if (k > 60)
                break;
        }
    proxy_plan(proxy, "/db/request", PROXY_DROP, 0, 1);
    OK(plx_registry_cluster_found(to, IDENTITY, 5, &found));
    CU_ASSERT(found.line == 5 && !strcmp(found.uuid, IDENTITY));
    OK(drop());
    CU_ASSERT_EQUAL(whole(to, row_of(to, OTHER).id), before);
    OK(plx_registry_check(to));
    plx_registry_close(to);
    to = NULL;
    proxy_stop(proxy);
}

/* ---- Compared ---------------------------------------------------------------------------- */

/* Whatever is missing or different in the copy is noticed. */
static void test_compared(void)
{
    static const char *const inserts[] = {
        "INTO volumes", "INTO store_policies", "INTO collections",      "INTO extents",
        "INTO garbage", "INTO vdis",           "INTO policies",         "INTO labels",
        "INTO intents", "INTO lost",           "UPDATE store SET doubt"};

    for (size_t i = 0; i < sizeof inserts / sizeof inserts[0]; i++) {
        hook(to, cut_run);
        swallow = inserts[i];
        FAILS(REGISTRY, carry());
        says("is not what it was made from");
        unhook(to);
        CU_ASSERT_EQUAL(row_of(to, UUID).state, PLX_STORE_ARRIVING);
    }
    OK(carry());
    expect_same(from, to);
}

/* ---- Lies -------------------------------------------------------------------------------- */

static enum { AGAIN, MORE, NARROW, BACK, KINDS, FEW, LIES, THEIRS } lie;
static char lied_about[20];

struct liar {
    void (*row)(void *, const struct plx_sql_value *, size_t);
    void *context;
};

static void lying_row(void *context, const struct plx_sql_value *columns, size_t count)
{
    const struct liar *liar = context;
    struct plx_sql_value row[20];

    memcpy(row, columns, count * sizeof *row);
    if (lie == KINDS)
        row[0] = (struct plx_sql_value){PLX_SQL_NULL, 0, ""};
    if (lie == BACK && row[0].kind == PLX_SQL_INT)
        row[0].number = INT64_MIN;
    if (lie == THEIRS)
        row[strcmp(lied_about, "FROM lost") ? 0 : 2] =
            (struct plx_sql_value)SQL_TEXT("ffffffff-0000-4000-8000-000000000001");
    liar->row(liar->context, row, lie == NARROW ? count - 1 : count);
}

static int lying_run(void *driver, bool is_change, const struct plx_sql *batch, size_t count,
                     void (*row)(void *, const struct plx_sql_value *, size_t), void *context,
                     struct plx_fault *ret_fault)
{
    struct liar liar = {row, context};
    struct plx_sql_value args[4];
    struct plx_sql lying = *batch;

    if (is_change || count != 1 || !has_text(batch, count, lied_about) || batch->count != 4)
        return real->run(driver, is_change, batch, count, row, context, ret_fault);
    memcpy(args, batch->args, sizeof args);
    if (lie == AGAIN && args[1].kind == PLX_SQL_INT)
        args[1].number = INT64_MIN;
    if (lie == MORE)
        args[3].number = 1000;
    if (lie == FEW)
        args[3].number = 1;
    lying.args = args;
    return real->run(driver, false, &lying, 1, lying_row, &liar, ret_fault);
}

/* CARRY_PAGES-1 */
static void test_lies(void)
{
    static const char *const said[LIES] = {"not in order", "more rows",    "another form",
                                           "not in order", "not in order", "is not what"};

    for (int i = AGAIN; i < LIES; i++) {
        hook(from, lying_run);
        lie = i;
        strcpy(lied_about, "FROM extents");
        if (i == FEW) { /* the copy lacks what was not told, and whoever reads it again says so */
            unhook(from);
            OK(carry());
            hook(to, lying_run);
            lie = FEW;
        }
        FAILS(REGISTRY, carry());
        says(said[i]);
        unhook(i == FEW ? to : from);
    }
    OK(carry());
    expect_same(from, to);
}

/* CARRY-6: what would hang on another store's disk. */
static void test_theirs(void)
{
    static const char *const lying[] = {"FROM intents", "FROM lost"};
    uint64_t before = whole(to, row_of(to, OTHER).id);

    change(from, "DELETE FROM lost WHERE what = 'record'");
    for (int i = 0; i < 2; i++) {
        hook(from, lying_run);
        lie = THEIRS;
        strcpy(lied_about, lying[i]);
        FAILS(REGISTRY, carry());
        says("is not what it was made from");
        unhook(from);
        CU_ASSERT_EQUAL(whole(to, row_of(to, OTHER).id), before);
    }
}

/* ---- Refused ----------------------------------------------------------------------------- */

static void test_used(void)
{
    change(from, "INSERT INTO hosts VALUES ('" STRANGER "', 'alpha', 1)");
    change(from, "INSERT INTO instances SELECT 5, id, '" STRANGER "', '', 4711, 'handler', 1"
                 " FROM store WHERE uuid = '" UUID "'");
    FAILS(BUSY, carry());
    says("handler (pid 4711 on alpha) has store 'demo' open");
    CU_ASSERT_EQUAL(row_of(to, UUID).id, 0);
    change(from, "DELETE FROM instances");
    change(from, "INSERT INTO growth SELECT id, NULL, '/dev/new' FROM store");
    FAILS(BUSY, carry());
    says("/dev/new");
    says("add-volume");
    change(from, "UPDATE growth SET path = '/dev/x1'"); /* which the store has by now */
    OK(carry());
    OK(drop());
    FAILS(NOT_FOUND, plx_registry_carry(from, to, STRANGER, NULL, PLX_STORE_NORMAL, &fault));
    FAILS(NOT_FOUND, plx_registry_carry(from, to, "demo", NULL, PLX_STORE_NORMAL, &fault));
}

static int hiding_run(void *driver, bool is_change, const struct plx_sql *batch, size_t count,
                      void (*row)(void *, const struct plx_sql_value *, size_t), void *context,
                      struct plx_fault *ret_fault)
{
    if (!is_change && has_text(batch, count, "FROM instances i LEFT JOIN"))
        return 0;
    return real->run(driver, is_change, batch, count, row, context, ret_fault);
}

/* CARRY-5: owners of which no instance is told. */
static void test_owned(void)
{
    change(from, "UPDATE store SET doubt = NULL");
    change(from, "INSERT INTO instances SELECT 5, id, NULL, '', 4711, 'handler', 1 FROM store");
    change(from, "UPDATE extents SET owner = 5 WHERE no = 7");
    hook(from, hiding_run);
    FAILS(BUSY, carry());
    says("extent 7 belongs to instance 5");
    unhook(from);
    change(from, "UPDATE extents SET owner = NULL");
    change(from, "UPDATE vdis SET owner = 5 WHERE slot = 20");
    hook(from, hiding_run);
    FAILS(BUSY, carry());
    says("virtual disk web-20 is locked by instance 5");
    unhook(from);
    CU_ASSERT_EQUAL(row_of(to, UUID).id, 0);
    change(from, "UPDATE vdis SET owner = NULL");
    change(from, "DELETE FROM instances");
    OK(carry());
}

static void test_taken(void)
{
    uint64_t before = whole(to, row_of(to, OTHER).id);
    struct plx_registry_store row;

    OK(carry());
    row = row_of(to, UUID);
    FAILS(EXISTS, plx_registry_carry(from, to, UUID, STRANGER, PLX_STORE_ARRIVING, &fault));
    says("another copy of store 'demo'");
    FAILS(EXISTS, plx_registry_carry(from, to, UUID, NULL, PLX_STORE_ARRIVING, &fault));
    FAILS(BUSY, plx_registry_drop(to, UUID, STRANGER, &fault));
    FAILS(BUSY, plx_registry_drop(to, UUID, NULL, &fault));
    expect_same(from, to);
    OK(plx_registry_store_move(to, row.id, PLX_STORE_ARRIVING, PLX_STORE_NORMAL));
    FAILS(EXISTS, carry());
    says("is 'normal'");
    FAILS(BUSY, drop());
    says("is 'normal'");
    expect_same(from, to);
    CU_ASSERT_EQUAL(row_of(to, UUID).id, row.id);
    OK(plx_registry_store_move(to, row.id, PLX_STORE_NORMAL, PLX_STORE_LEAVING));
    FAILS(EXISTS, carry());
    expect_same(from, to);
    OK(drop());

    /* What another store has: the name, a volume, a disk. */
    change(to, "UPDATE store SET name = 'demo'");
    FAILS(EXISTS, carry());
    says("another store is called 'demo'");
    change(to, "UPDATE store SET name = 'foreign'");
    change(from, "UPDATE volumes SET uuid = '99999999-0000-4000-8000-0000000000b1'"
                 " WHERE uuid LIKE '%a1'");
    FAILS(EXISTS, carry());
    says("'volumes'");
    change(from, "UPDATE volumes SET uuid = '99999999-0000-4000-8000-0000000000a1'"
                 " WHERE uuid LIKE '%b1'");
    change(from, "UPDATE vdis SET id = 'ffffffff-0000-4000-8000-000000000001' WHERE slot = 215");
    FAILS(EXISTS, carry());
    says("'vdis'");
    OK(drop());
    CU_ASSERT_EQUAL(whole(to, row_of(to, OTHER).id), before);
    FAILS(BUSY, plx_registry_drop(to, OTHER, NULL, &fault));
    CU_ASSERT_EQUAL(whole(to, row_of(to, OTHER).id), before);
}

static struct plx_registry *beside;

/* Between two tables, somebody else takes the store's rows there in use, or carries it anew. */
static int overtaking_run(void *driver, bool is_change, const struct plx_sql *batch, size_t count,
                          void (*row)(void *, const struct plx_sql_value *, size_t), void *context,
                          struct plx_fault *ret_fault)
{
    if (is_change && has_text(batch, count, swallow) && !met++) {
        int code = after
                       ? plx_registry_carry(from, beside, UUID, IDENTITY, PLX_STORE_NORMAL, &fault)
                       : plx_registry_store_move(beside, row_of(beside, UUID).id,
                                                 PLX_STORE_ARRIVING, PLX_STORE_NORMAL);
        OK(code);
    }
    return real->run(driver, is_change, batch, count, row, context, ret_fault);
}

/* CARRY-2 */
static void test_overtaken(void)
{
    for (int anew = 0; anew < 2; anew++) {
        OK(open_file("to", &beside));
        hook(to, overtaking_run);
        swallow = "INTO labels";
        after = anew;
        met = 0;
        FAILS(BUSY, carry());
        says("look again");
        unhook(to);
        CU_ASSERT_EQUAL(row_of(to, UUID).state, PLX_STORE_NORMAL);
        if (anew)
            expect_same(from, to);
        else
            CU_ASSERT_EQUAL(sum_of(to, row_of(to, UUID).id, true, 8).rows, 0);
        plx_registry_close(beside);
        change(to, "UPDATE store SET state = 'leaving' WHERE uuid = '" UUID "'");
        OK(drop());
    }
}

static int bogus_path(void)
{
    change(from, "UPDATE volumes SET path = '/dev/' || CAST(x'ff' AS TEXT) WHERE idx = 1");
    return carry();
}

static void test_not_utf8(void)
{
    if (begin_nodes()) {
        FAILS(INVALID, bogus_path());
        says("not UTF-8");
        OK(drop());
    }
}

/* ---- States and clusters ----------------------------------------------------------------- */

static void states_of(struct plx_registry *reg)
{
    enum plx_registry_state states[] = {PLX_STORE_NORMAL, PLX_STORE_ARRIVING, PLX_STORE_LEAVING,
                                        PLX_STORE_UNKNOWN};
    struct plx_registry_instance instance = {.id = 5, .pid = 12, .role = "admin"};
    int64_t id;

    OK(carry());
    id = instance.store = row_of(reg, UUID).id;
    FAILS(REGISTRY, plx_registry_instance_register(reg, &instance));
    CU_ASSERT_PTR_NOT_NULL(strstr(plx_registry_error(reg), "'parallax cluster init' goes on"));
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < 4; b++) {
            int code = plx_registry_store_move(reg, id, states[a], states[b]);

            if (a == 1 && b == 0)
                OK(plx_registry_instance_register(reg, &instance)); /* it is normal now */
            CU_ASSERT(code == (a == 1 && b == 0   ? 0
                               : a == 0 && b == 2 ? PLX_ERR_BUSY
                               : a == 2 && b == 0 ? PLX_ERR_BUSY
                                                  : PLX_ERR_INVALID));
        }
    FAILS(BUSY, plx_registry_store_move(reg, id, PLX_STORE_ARRIVING, PLX_STORE_NORMAL));
    CU_ASSERT_PTR_NOT_NULL(strstr(plx_registry_error(reg), "is 'normal'"));
    FAILS(BUSY, plx_registry_store_move(reg, id, PLX_STORE_NORMAL, PLX_STORE_LEAVING));
    CU_ASSERT_PTR_NOT_NULL(strstr(plx_registry_error(reg), "(pid 12) has store 'demo' open"));
    OK(plx_registry_instance_unregister(reg, instance.id));
    OK(plx_registry_store_move(reg, id, PLX_STORE_NORMAL, PLX_STORE_LEAVING));
    FAILS(REGISTRY, plx_registry_instance_register(reg, &instance));
    CU_ASSERT_PTR_NOT_NULL(strstr(plx_registry_error(reg), "'parallax cluster leave' goes on"));
    OK(plx_registry_store_move(reg, id, PLX_STORE_LEAVING, PLX_STORE_NORMAL));
    FAILS(NOT_FOUND, plx_registry_store_move(reg, 4711, PLX_STORE_LEAVING, PLX_STORE_NORMAL));
}

static void clusters_of(struct plx_registry *reg)
{
    struct plx_registry_cluster cluster = {.line = 1}, again;

    FAILS(NOT_FOUND, plx_registry_cluster_get(reg, &cluster));
    FAILS(INVALID, plx_registry_cluster_found(reg, "x", 5, &cluster));
    FAILS(INVALID, plx_registry_cluster_found(reg, IDENTITY, 0, &cluster));
    FAILS(INVALID, plx_registry_cluster_found(reg, IDENTITY, 1ull << 63, &cluster));
    CU_ASSERT_EQUAL(cluster.line, 1);
    OK(plx_registry_cluster_found(reg, IDENTITY, INT64_MAX, &cluster));
    CU_ASSERT(!strcmp(cluster.uuid, IDENTITY) && cluster.line == INT64_MAX);
    OK(plx_registry_cluster_found(reg, STRANGER, 7, &again)); /* CLUSTERS-1 */
    CU_ASSERT(!strcmp(again.uuid, IDENTITY) && again.line == cluster.line);
    CU_ASSERT_EQUAL(again.created_ns, cluster.created_ns);
    OK(plx_registry_cluster_get(reg, &again));
    CU_ASSERT(!memcmp(&again, &cluster, sizeof again));
    change(reg, "UPDATE cluster SET uuid = replace(uuid, 'c', 'x')");
    FAILS(REGISTRY, plx_registry_cluster_get(reg, &again));
    FAILS(REGISTRY, plx_registry_cluster_found(reg, IDENTITY, 7, &again));
}

static void test_states(void)
{
    states_of(to);
    clusters_of(to);
}

static void test_states_nodes(void)
{
    if (begin_nodes()) {
        states_of(to);
        clusters_of(to);
    }
}

/* ---- Many ---- */

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static long most_kb(void)
{
    struct rusage usage;

    return getrusage(RUSAGE_SELF, &usage) ? 0 : usage.ru_maxrss;
}

/* PLX_CARRY_EXTENTS asks for more than a test needs: how long it takes. */
static void test_many(void)
{
    const char *asked = getenv("PLX_CARRY_EXTENTS");
    const struct plx_sql statement = {
        .text = "WITH RECURSIVE n (i) AS (SELECT 100000 UNION ALL SELECT i + 1 FROM n"
                " WHERE i < 100000 + ?1)"
                " INSERT INTO extents (store, no, type, generation, states)"
                " SELECT id, i, 'data', i, i FROM store, n WHERE uuid = '" UUID "'",
        SQL_ARGS(SQL_INT(asked ? atoll(asked) : 5000))};
    bool on_nodes = begin_nodes();
    long before;
    uint64_t at;

    OK(plx_sql_change(from, &statement, 1, NULL, NULL));
    before = most_kb();
    at = now_ms();
    OK(carry());
    if (asked)
        printf("\n    %s extents to %s in %" PRIu64 " ms, %ld KiB more", asked,
               on_nodes ? "a node" : "a file", now_ms() - at, most_kb() - before);
    expect_same(from, to);
    OK(open_file("back", &back));
    OK(plx_registry_store_move(to, row_of(to, UUID).id, PLX_STORE_ARRIVING, PLX_STORE_NORMAL));
    OK(plx_registry_store_move(to, row_of(to, UUID).id, PLX_STORE_NORMAL, PLX_STORE_LEAVING));
    at = now_ms();
    OK(plx_registry_carry(to, back, UUID, NULL, PLX_STORE_NORMAL, &fault));
    if (asked)
        printf("\n    back to a file in %" PRIu64 " ms", now_ms() - at);
    expect_same(from, back);
    at = now_ms();
    OK(drop());
    if (asked)
        printf("\n    deleted in %" PRIu64 " ms", now_ms() - at);
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"all tables and columns", test_schema},
        {"file to file and back", test_files},
        {"cut off, file to file", test_cut_files},
        {"compared", test_compared},
        {"lies", test_lies},
        {"another store's disk", test_theirs},
        {"in use", test_used},
        {"owned", test_owned},
        {"there already", test_taken},
        {"overtaken", test_overtaken},
        {"no room", test_no_room},
        {"states", test_states},
        {"file to nodes and back", test_nodes},
        {"cut off, file to nodes", test_cut_nodes},
        {"answers lost", test_answers_lost},
        {"not UTF-8", test_not_utf8},
        {"states on nodes", test_states_nodes},
        {"many", test_many},
    };
    const struct suite_frame frame = {
        .init = look_for_nodes, .clean = stop_nodes, .before = begin, .after = end};

    return SUITE_RUN_IN(&frame, "rows of a store carried", tests);
}
