/* test_registry_cuts.c - power cuts and I/O errors under a registry that lies in a volume.
 *
 * Real SQLite works on a simulated disk through a script of transactions. At each write and each
 * flush the disk is forked as a power cut then could leave it: with all of the writes that are
 * volatile, with none, with every subset of a few and with chance's choice of many, and with writes
 * torn at 512 bytes. Each fork is opened: it must be sound, and hold what it held before the
 * transaction or what it holds after it. Of some forks the recovery is cut in turn. Many cuts leave
 * the same bytes, a recovery's most of all: they are opened once in a transaction.
 *
 * So does a store that gives its registry more room: there the superblock says where the registry
 * lies, and what it names must be the system's in the registry, at each cut. Of some forks the call
 * is made again.
 *
 * PLX_RUNS=n: so many choices of chance at each cut (default 6).
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "registry/collections.h"
#include "registry/lost.h"
#include "registry/spans.h"
#include "registry/sqlite.h"
#include "attach/volumes.h"
#include "sim/simdisk.h"
#include "sim/simenv.h"
#include "suite.h"

#define DISK_BYTES ((uint64_t)8 << 20)
#define EXTENT ((uint64_t)1 << 20)
#define SUBSETS_OF 3       /* so many volatile writes have all of their subsets tried */
#define RECOVERIES 61      /* of so many forks the recovery of one is cut, */
#define RECOVERIES_GROW 17 /* of those of a store that grows, */
#define RECOVERIES_FEW 3   /* of those with few volatile writes: it is short */
#define STATES_MAX 200000
#define IMAGES_MAX (1u << 18) /* more than STATES_MAX, so that there is a free one */
#define STEPS 3

/* ---- A disk with a registry -------------------------------------------------------------- */

/* One host, one connection at a time: nobody is in its way. */
static int free_set(struct plx_bytelock *lock, uint64_t byte, enum plx_bytelock_mode mode)
{
    return 0;
}

static int free_probe(struct plx_bytelock *lock, uint64_t byte, bool *ret_busy)
{
    *ret_busy = false;
    return 0;
}

static void free_close(struct plx_bytelock *lock)
{
}

static const struct plx_bytelock_ops free_ops = {free_set, free_probe, free_close};
static struct plx_bytelock free_lock = {.ops = &free_ops};

static bool in_store;  /* a superblock says where the region lies */
static unsigned spans; /* of the region else, as the script goes on */
static struct plx_fault fault;

struct host {
    struct plx_region region;
    struct plx_registry *reg;
};

static int look(struct plx_region *region, struct plx_fault *why)
{
    struct plx_superblock_info info;
    int error = in_store ? plx_superblock_probe(region->device, &info, why) : 0;

    region->spans = in_store ? info.registry_spans : spans;
    for (unsigned i = 0; in_store && !error && i < region->spans; i++) {
        region->span[i].offset = info.registry[i].offset;
        region->span[i].bytes = info.registry[i].bytes;
    }
    return error;
}

static int host_open(struct host *host, struct plx_simdisk *disk)
{
    int code;

    host->region = (struct plx_region){
        .device = plx_simdisk_attach(disk, "disk"),
        .locks = &free_lock,
        .look = look,
        .spans = spans,
        .span = {{1 << 20, 1 << 20}, {3 << 20, 1 << 20}, {5 << 20, 512 << 10}, {6 << 20, 3 << 19}}};
    code = look(&host->region, &fault);
    if (!code)
        code = plx_registry_open_region(&host->region, "disk", "crash", &host->reg, &fault);
    if (code)
        plx_device_close(host->region.device);
    return code;
}

static void host_close(struct host *host)
{
    plx_registry_close(host->reg);
    plx_device_close(host->region.device);
}

/* ---- What a registry holds --------------------------------------------------------------- */

static void add(uint64_t *sum, const void *bytes, size_t count)
{
    const uint8_t *next = bytes;

    for (size_t i = 0; i < count; i++)
        *sum = (*sum ^ next[i]) * 0x100000001b3ull;
}

static void add_row(void *context, const struct plx_sql_value *columns, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        add(context, &columns[i].kind, sizeof columns[i].kind);
        add(context, &columns[i].number, sizeof columns[i].number);
        add(context, columns[i].text, strlen(columns[i].text));
    }
}

static int run_plain(struct plx_registry *reg, bool change, const char *text, uint64_t *sum)
{
    struct plx_sql statement = {.text = text};

    return reg->ops->run(reg->driver, change, &statement, 1, add_row, sum, &fault);
}

/* Of every table, and of each all columns but four. What a fork does by itself has times and
 * request ids of its own: it applies migrations that a cut has undone, and a store that grows there
 * goes on. The limit of events is nobody's change: opening sets it, as large as the region is. */
static const char *const texts[] = {
    "SELECT number FROM migrations",
    "SELECT * FROM cluster",
    "SELECT * FROM store",
    "SELECT * FROM store_policies",
    "SELECT * FROM volumes",
    "SELECT * FROM growth",
    "SELECT * FROM hosts",
    "SELECT * FROM instances",
    "SELECT store, no, type, owner, sealed, generation, free_blocks, states FROM extents",
    "SELECT * FROM vdis",
    "SELECT * FROM labels",
    "SELECT * FROM policies",
    "SELECT * FROM holds",
    "SELECT * FROM intents",
    "SELECT * FROM collections",
    "SELECT * FROM garbage",
    "SELECT * FROM lost",
    "SELECT id, who, what, subject, detail FROM events",
    "SELECT id, event_bytes FROM room",
    "SELECT * FROM guard",
};

/* 0: it cannot be read, or is not sound. */
static uint64_t digest(struct plx_registry *reg)
{
    uint64_t sum = 0xcbf29ce484222325ull;
    int code = plx_registry_check(reg);

    for (size_t i = 0; i < sizeof texts / sizeof *texts && !code; i++)
        code = run_plain(reg, false, texts[i], &sum);
    if (code)
        printf("\n  %s | %s", plx_registry_error(reg), fault.text);
    return code ? 0 : sum;
}

/* No table is forgotten above. */
static void find_text(void *context, const struct plx_sql_value *columns, size_t count)
{
    unsigned *missing = context;
    bool found = false;

    for (size_t i = 0; i < sizeof texts / sizeof *texts && !found; i++)
        found = strcmp(strstr(texts[i], "FROM ") + 5, columns[0].text) == 0;
    if (!found)
        printf("\n  nobody looks at %s", columns[0].text);
    *missing += !found;
}

static unsigned missing_texts(struct plx_registry *reg)
{
    struct plx_sql tables = {.text = "SELECT name FROM sqlite_schema WHERE type = 'table'"
                                     " AND name NOT LIKE 'sqlite!_%' ESCAPE '!'"};
    unsigned missing = 0;

    return reg->ops->run(reg->driver, false, &tables, 1, find_text, &missing, &fault) ? ~0u
                                                                                      : missing;
}

/* ---- Cuts -------------------------------------------------------------------------------- */

struct state {
    uint64_t event, digest;
};

static struct plx_simpower power;
static struct plx_simdisk *disk;
static struct plx_simrng chance;
static struct state states[STATES_MAX]; /* of the transaction that runs */
static size_t pending_states;
static struct {
    uint64_t bytes, digest; /* a hash of them, 0: free */
} images[IMAGES_MAX];       /* what was judged of the transaction that runs */
static unsigned last_volatile, choices;
static unsigned long forks, judged, recoveries, cuts;

static void power_free(struct plx_simpower *cut)
{
    for (unsigned i = 0; i < cut->count; i++)
        plx_simdisk_free(cut->disks[i]);
}

static void keep_state(uint64_t event, uint64_t found)
{
    PLX_ASSERT(pending_states < STATES_MAX);
    states[pending_states++] = (struct state){event, found};
    forks++;
}

static struct plx_registry_store store;

/* The store's registry has no less than the superblock names (SPANS-1). */
static bool agrees(struct host *host)
{
    struct plx_registry_extent *list;
    uint64_t bytes = 0, found = 0;
    size_t count;

    if (!store.id)
        return true;
    if (plx_registry_extent_system(host->reg, store.id, &list, &count))
        return false;
    for (unsigned i = 0; i < host->region.spans; i++) {
        bytes += host->region.span[i].bytes;
        for (size_t k = 0; k < count; k++)
            if (list[k].no * EXTENT >= host->region.span[i].offset &&
                list[k].no * EXTENT < host->region.span[i].offset + host->region.span[i].bytes)
                found += EXTENT;
    }
    free(list);
    return found == bytes;
}

static int store_open(struct plx_simdisk *on, struct plx_simenv *env, struct plx_store **ret_store)
{
    struct plx_store_options options = {.instance = 7, .cache_bytes = 1u << 20};
    struct plx_device *device = plx_simdisk_attach(on, "disk");

    plx_simenv_init(env, 7);
    return plx_store_open(&device, 1, &options, &env->env, ret_store, &fault);
}

/* As attach.c does it, from the beginning or whatever a cut has left. */
static int grow(struct plx_registry *reg, struct plx_store *grows)
{
    static const char *const paths[] = {"/dev/demo"};
    struct plx_grown grown;
    uint64_t least = 0, most = 0;
    int error = plx_store_grow(grows, &(struct plx_grow){0}, &grown, &fault);

    if (!error)
        error = plx_volumes_register(reg, store.id, grows, paths, &fault);
    if (!error)
        error = plx_spans_grow(reg, store.id, grows, &grown, &fault);
    plx_store_registry_due(grows, &least, &most);
    return error ? error : least || most ? PLX_ERR_INVALID : 0;
}

static bool grows_again(struct plx_simdisk *cut, struct host *host)
{
    struct plx_store *grows;
    struct plx_simenv env;
    int error = store_open(cut, &env, &grows);

    if (!error) {
        error = grow(host->reg, grows);
        plx_store_close(grows);
    }
    if (!error)
        error = look(&host->region, &fault);
    if (error)
        printf("\n  cannot grow: %s", fault.text);
    return !error && host->region.spans == 2 && agrees(host) && !plx_registry_check(host->reg);
}

/* What the fork holds; and it can be changed again. */
static uint64_t judge(struct plx_simdisk *cut)
{
    struct host host;
    uint64_t found, unused;

    if (host_open(&host, cut)) {
        printf("\n  cannot open: %s", fault.text);
        return 0;
    }
    found = digest(host.reg);
    if (found && judged % 5 == 0 &&
        (run_plain(host.reg, true, "UPDATE room SET event_limit = event_limit + 1", &unused) ||
         plx_registry_check(host.reg)))
        found = 0;
    if (found && in_store && !agrees(&host))
        found = 0;
    if (found && in_store && store.id && judged % 3 == 0 && !grows_again(cut, &host))
        found = 0;
    host_close(&host);
    return found;
}

static size_t image_place(uint64_t bytes)
{
    size_t place = bytes % IMAGES_MAX;

    while (images[place].bytes && images[place].bytes != bytes)
        place = (place + 1) % IMAGES_MAX;
    return place;
}

/* The same bytes hold the same. */
static uint64_t judge_once(struct plx_simpower *cut)
{
    uint64_t bytes = plx_simpower_hash(cut) | 1, found;
    size_t place = image_place(bytes);

    if (images[place].bytes)
        return images[place].digest;
    judged++;
    found = judge(cut->disks[0]);
    place = image_place(bytes); /* cuts of its recovery came between */
    images[place].bytes = bytes;
    images[place].digest = found;
    return found;
}

struct nested {
    struct plx_simpower *power;
    unsigned last_volatile;
};

/* A power cut during the recovery from a power cut. */
static void cut_recovery(void *context)
{
    struct nested *nested = context;
    unsigned count = plx_simpower_volatile(nested->power);
    uint8_t *fates;

    if (count == nested->last_volatile)
        return;
    nested->last_volatile = count;
    fates = calloc(count + 1, 1);
    for (unsigned how = 0; how < (count ? 3 : 1); how++) {
        static const uint8_t all[] = {PLX_FATE_ANY, PLX_FATE_LOST, PLX_FATE_KEPT};
        struct plx_simpower cut;

        memset(fates, all[how], count);
        plx_simpower_fork(nested->power, fates, plx_simrng_next(&chance), &cut);
        plx_simpower_restore(&cut);
        keep_state(power.events, judge_once(&cut));
        recoveries++;
        power_free(&cut);
    }
    free(fates);
}

static void cut_with(const uint8_t *fates, unsigned count)
{
    struct plx_simpower cut;
    struct nested nested = {.power = &cut};
    unsigned every = count <= SUBSETS_OF ? RECOVERIES_FEW : in_store ? RECOVERIES_GROW : RECOVERIES;

    plx_simpower_fork(&power, fates, plx_simrng_next(&chance), &cut);
    plx_simpower_restore(&cut);
    if (judged % every == 0) {
        cut.on_event = cut_recovery;
        cut.context = &nested;
    }
    keep_state(power.events, judge_once(&cut));
    power_free(&cut);
}

static void cut_here(void *context)
{
    static const uint8_t some[] = {PLX_FATE_LOST, PLX_FATE_KEPT, PLX_FATE_KEPT,
                                   PLX_FATE_ANY,  PLX_FATE_HEAD, PLX_FATE_TAIL};
    unsigned count = plx_simpower_volatile(&power);
    uint8_t *fates;

    if (count == last_volatile) /* neither a new write nor the end of a flush */
        return;
    last_volatile = count;
    cuts++;
    fates = calloc(count + 1, 1);
    for (unsigned subset = 0; subset < 1u << (count < SUBSETS_OF ? count : SUBSETS_OF); subset++) {
        bool ends = subset == 0 || subset == (1u << SUBSETS_OF) - 1;

        if (count > SUBSETS_OF && !ends) /* all, or none */
            continue;
        for (unsigned i = 0; i < count; i++)
            fates[i] = subset >> (i < SUBSETS_OF ? i : 0) & 1 ? PLX_FATE_KEPT : PLX_FATE_LOST;
        cut_with(fates, count);
    }
    for (unsigned i = 0; count && i < choices; i++) {
        for (unsigned k = 0; k < count; k++)
            fates[k] = some[plx_simrng_below(&chance, sizeof some)];
        cut_with(fates, count);
    }
    free(fates);
}

/* ---- The script -------------------------------------------------------------------------- */

static struct host host;
static uint64_t before; /* what it holds */
static struct plx_registry_vdi vdi;
static struct plx_registry_lock lock;

#define OK(call) CU_ASSERT_EQUAL_FATAL(say(call), 0)

static int say(int code)
{
    if (code)
        printf("\n  %s: %s | %s\n", plx_error_name(code), plx_registry_error(host.reg), fault.text);
    return code;
}

static void begin(void)
{
    pending_states = 0;
    memset(images, 0, sizeof images);
    last_volatile = plx_simpower_volatile(&power);
    power.on_event = cut_here;
}

/* All forks since begin() hold what was before, or what is now. */
static void end(const char *what)
{
    uint64_t now;
    unsigned wrong = 0;

    power.on_event = NULL;
    now = digest(host.reg);
    CU_ASSERT_NOT_EQUAL_FATAL(now, 0);
    for (size_t i = 0; i < pending_states; i++)
        if (states[i].digest != now && (states[i].digest != before || !before))
            if (!wrong++)
                printf("\n  %s: wrong after a cut at event %llu (and maybe later)", what,
                       (unsigned long long)states[i].event);
    CU_ASSERT_EQUAL(wrong, 0);
    CU_ASSERT(pending_states > 0 || now == before); /* nothing changes where nothing can be cut */
    before = now;
}

static void fill(unsigned rows, unsigned size, const char *what)
{
    static const char text[] =
        "INSERT INTO garbage WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n"
        " WHERE i + 1 < ?2) SELECT ?1, i, ?3, 1, hex(zeroblob(?4 + i % 7)) FROM n WHERE true"
        " ON CONFLICT DO UPDATE SET generation = ?3, runs = excluded.runs || excluded.extent";
    static int64_t round;
    struct plx_sql batch[] = {
        SQL(text, SQL_INT(store.id), SQL_INT(rows), SQL_INT(++round), SQL_INT(size))};

    begin();
    OK(plx_sql_change(host.reg, batch, 1, NULL, NULL));
    end(what);
}

static void change(const char *text, const char *what)
{
    uint64_t unused;

    begin();
    OK(run_plain(host.reg, true, text, &unused));
    end(what);
}

static void make_store(void)
{
    struct plx_registry_store spec = {.name = "demo", .extent_blocks = 1024};
    struct plx_registry_volume volume = {.path = "/dev/demo", .extents = 64};
    struct plx_registry_instance me = {.id = 7, .role = "test", .pid = 1};

    plx_uuid_random(spec.uuid);
    plx_uuid_random(volume.uuid);
    begin();
    OK(plx_registry_store_create(host.reg, &spec, &volume, 1, &store));
    end("store create");
    me.store = store.id;
    begin();
    OK(plx_registry_instance_register(host.reg, &me));
    end("instance register");
}

static void make_disk(const char *name)
{
    struct plx_registry_vdi spec = {
        .store = store.id, .size_bytes = 1 << 20, .sector_size = 512, .owner = 0};

    plx_uuid_random(spec.id);
    snprintf(spec.name, sizeof spec.name, "%s", name);
    begin();
    OK(plx_registry_vdi_create(host.reg, &spec, 64, &vdi));
    end("vdi create");
    begin();
    OK(plx_registry_vdi_lock(host.reg, vdi.id, 7, &lock));
    end("vdi lock");
    begin();
    OK(plx_registry_label_set(host.reg, &lock, &(struct plx_registry_label){"first", 1, 1}));
    end("label set");
}

static void let_go(void)
{
    uint64_t *kept, hold;
    size_t count;

    begin();
    OK(plx_registry_hold(host.reg, vdi.id, 1, 7, &hold));
    end("hold");
    begin();
    OK(plx_registry_release(host.reg, hold));
    end("release");
    begin();
    OK(plx_registry_intent_begin(host.reg, &lock, NULL, 0, &kept, &count));
    end("intent begin");
    free(kept);
    begin();
    OK(plx_registry_intent_end(host.reg, &lock));
    end("intent end");
}

static void use_disk(void)
{
    struct plx_registry_extent extent;
    struct plx_registry_lock other;
    bool fresh;

    begin();
    OK(plx_registry_extent_claim(host.reg, store.id, 7, PLX_EXTENT_DATA, 0, &extent, &fresh));
    end("extent claim");
    begin();
    extent.free_blocks = 700;
    extent.states = 3;
    OK(plx_registry_extent_release(host.reg, store.id, &extent));
    end("extent release");
    begin();
    CU_ASSERT_EQUAL(plx_registry_vdi_lock(host.reg, vdi.id, 7, &other), PLX_ERR_BUSY);
    end("a refusal");
    begin();
    OK(plx_registry_policy_set(host.reg, vdi.id, "protection", "all"));
    end("a policy");
    let_go();
    begin();
    OK(plx_registry_extent_claim(host.reg, store.id, 7, PLX_EXTENT_DATA, 0, &extent, &fresh));
    end("extent claim again");
    begin();
    extent.states = 5;
    OK(plx_registry_vdi_closed(host.reg, &lock, &(struct plx_registry_written){1, 41}, &extent, 1));
    end("vdi closed");
    begin();
    extent.type = PLX_EXTENT_UNUSED;
    OK(plx_registry_extent_release(host.reg, store.id, &extent));
    end("extent release as unused");
}

static void collect(void)
{
    struct plx_registry_collection collection;

    begin();
    OK(plx_registry_collection_want(host.reg, store.id));
    end("collection want");
    begin();
    OK(plx_registry_collection_begin(host.reg, store.id, 7, 0, &collection));
    end("collection begin");
    begin();
    OK(plx_registry_collection_end(host.reg, store.id, 7, 12, collection.wanted));
    end("collection end");
}

static void lose(void)
{
    struct plx_registry_lost lost = {.slot = 9, .why = "both copies are damaged"};
    size_t count;

    begin();
    OK(plx_registry_lost_add(host.reg, store.id, &lost));
    end("lost add");
    begin();
    OK(plx_registry_lost_forget(host.reg, store.id, &count));
    end("lost forget");
}

/* More pages than SQLite's cache, so that it writes some before the commit. */
static void spill(bool on)
{
    uint64_t unused;

    OK(run_plain(host.reg, false, on ? "PRAGMA cache_spill = 10" : "PRAGMA cache_spill = 0",
                 &unused));
    OK(run_plain(host.reg, false, on ? "PRAGMA cache_size = 10" : "PRAGMA cache_size = 500",
                 &unused));
}

static void change_much(void)
{
    fill(80, 300, "large insert");
    fill(90, 200, "large update");
    spill(true);
    fill(80, 280, "large update that spills");
    change("DELETE FROM garbage WHERE extent % 3 = 1", "large delete that spills");
    spill(false);
    change("DELETE FROM garbage", "all deleted");
    fill(30, 300, "what was free is used again");
}

/* A whole registry goes out, and comes back in place of another. */
static void put_back(void)
{
    char directory[] = "/tmp/plx-crash-XXXXXX", small[64], large[64];

    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(directory));
    snprintf(small, sizeof small, "%s/small.db", directory);
    snprintf(large, sizeof large, "%s/large.db", directory);
    OK(plx_registry_get(host.reg, small, &fault));
    fill(60, 400, "more");
    OK(plx_registry_get(host.reg, large, &fault));
    begin();
    OK(plx_registry_put(host.reg, small, &fault));
    end("a smaller registry put in");
    begin();
    OK(plx_registry_put(host.reg, large, &fault));
    end("a larger registry put in");
    unlink(small);
    unlink(large);
    rmdir(directory);
}

static void new_disk(uint64_t bytes)
{
    const char *runs = getenv("PLX_RUNS");

    choices = runs ? (unsigned)strtoul(runs, NULL, 0) : 6;
    chance = (struct plx_simrng){1};
    power = (struct plx_simpower){0};
    disk = plx_simdisk_new(&(struct plx_simdisk_options){.bytes = bytes,
                                                         .block_size = 512,
                                                         .volatile_cache = true,
                                                         .tear_bytes = 512,
                                                         .seed = 1},
                           &power);
    spans = 2;
    in_store = false;
    store = (struct plx_registry_store){0};
}

static void test_cuts(void)
{
    uint64_t used, pages, more;

    new_disk(DISK_BYTES);
    before = 0;
    begin();
    OK(host_open(&host, disk));
    end("an empty region filled");
    CU_ASSERT_EQUAL(missing_texts(host.reg), 0);
    make_store();
    make_disk("web");
    use_disk();
    collect();
    lose();
    change_much();
    put_back();
    host_close(&host);
    spans = 3;
    begin();
    OK(host_open(&host, disk));
    end("opened with one span more");
    fill(60, 500, "written to the longer region");
    OK(plx_registry_room(host.reg, &used, &pages));
    spans = 4;
    fill(300, 900, "written to a region that got longer while it was open");
    OK(plx_registry_room(host.reg, &used, &more));
    CU_ASSERT(used > pages && more > used);
    begin();
    OK(plx_registry_doubt(host.reg, store.id, "something newer was seen"));
    end("doubt");
    host_close(&host);
    printf("\n    %lu cuts, %lu states judged, %lu of them cuts of a recovery; %lu were different ",
           cuts, forks, recoveries, judged);
    plx_simdisk_free(disk);
}

/* ---- A store that grows ------------------------------------------------------------------ */

static void format_store(void)
{
    struct plx_format_options options = {.name = "demo", .extent_bytes = EXTENT, .registry = true};
    struct plx_device *device = plx_simdisk_attach(disk, "disk");
    struct plx_simenv env;

    plx_simenv_init(&env, 7);
    OK(plx_store_format(&device, 1, &options, &env.env, NULL, &fault));
    plx_device_close(device);
}

static void enter_store(void)
{
    struct plx_registry_store spec = {.name = "demo", .extent_blocks = EXTENT / 4096};
    struct plx_registry_volume volume = {.path = "/dev/demo", .extents = 16, .system_extents = 2};

    plx_uuid_random(spec.uuid);
    plx_uuid_random(volume.uuid);
    OK(plx_registry_store_create(host.reg, &spec, &volume, 1, &store));
}

static struct step {
    uint64_t digest; /* as it began */
    size_t states;   /* so many were judged before */
} steps[STEPS + 1];
static unsigned step;

static void next_step(void)
{
    power.on_event = NULL;
    PLX_ASSERT(step < STEPS);
    steps[++step] = (struct step){digest(host.reg), pending_states};
    power.on_event = cut_here;
}

/* A fork holds what was there before the step that was cut, or what is there after that one or a
 * later one, since it may have gone on by itself and been cut again. */
static void end_steps(void)
{
    unsigned wrong = 0;

    power.on_event = NULL;
    for (unsigned at = 0; at < step; at++)
        for (size_t i = steps[at].states; i < steps[at + 1].states; i++) {
            bool known = false;

            for (unsigned k = at; k <= step; k++)
                known = known || states[i].digest == steps[k].digest;
            if (!known && !wrong++)
                printf("\n  growing: wrong after a cut in step %u, at event %llu", at + 1,
                       (unsigned long long)states[i].event);
        }
    CU_ASSERT_EQUAL(wrong, 0);
    before = steps[step].digest;
}

static void test_growth(void)
{
    static const char *const paths[] = {"/dev/demo"};
    struct plx_store *grows;
    struct plx_simenv env;
    struct plx_grown grown;
    uint64_t used, pages, more;

    new_disk(16 * EXTENT);
    in_store = true;
    format_store();
    OK(host_open(&host, disk));
    enter_store();
    step = 0;
    steps[0] = (struct step){digest(host.reg), 0};
    OK(plx_registry_room(host.reg, &used, &pages));
    plx_simdisk_resize(disk, 40 * EXTENT);
    OK(store_open(disk, &env, &grows));
    begin();
    OK(plx_store_grow(grows, &(struct plx_grow){0}, &grown, &fault));
    next_step();
    OK(plx_volumes_register(host.reg, store.id, grows, paths, &fault));
    next_step();
    OK(plx_spans_grow(host.reg, store.id, grows, &grown, &fault));
    next_step();
    end_steps();
    fill(150, 2000, "written to it");
    OK(plx_registry_room(host.reg, &used, &more));
    CU_ASSERT(more > pages + pages / 2 && used > pages);
    OK(plx_store_close(grows));
    host_close(&host);
    printf("\n    %lu cuts, %lu states judged, %lu were different ", cuts, forks, judged);
    plx_simdisk_free(disk);
}

/* ---- I/O errors -------------------------------------------------------------------------- */

/* How many I/Os have failed. A change may not care: the table of stamps that cannot be read. */
static uint64_t errors(void)
{
    return plx_simdisk_counters(disk)->errors;
}

/* The k-th I/O of a transaction fails, for each k: its outcome is one of the two, and the next
 * opener finds a sound registry. */
static void test_errors(void)
{
    unsigned failed = 0;
    bool done = false;
    uint64_t now, first;

    new_disk(DISK_BYTES);
    OK(host_open(&host, disk));
    before = digest(host.reg);
    make_store();
    for (unsigned k = 1; !done; k++) {
        uint64_t unused;
        int code;

        before = digest(host.reg);
        first = errors();
        plx_simdisk_fail_io(disk, k, k % 3 ? 1 : 1000);
        code = run_plain(host.reg, true,
                         "INSERT INTO events (time_ns, who, what, subject, detail)"
                         " VALUES (1, 'a', 'b', 'c', hex(zeroblob(20000)))",
                         &unused);
        plx_simdisk_heal(disk);
        done = errors() == first;
        failed += code != 0;
        CU_ASSERT(code == PLX_ERR_REGISTRY || (!code && (done || k % 3)));
        if (k % 2) {
            host_close(&host);
            OK(host_open(&host, disk));
        }
        now = digest(host.reg);
        CU_ASSERT_FATAL(now != 0);
        if (!done && now != before) { /* the end of the commit failed: known to nobody */
            OK(run_plain(host.reg, true, "DELETE FROM events WHERE what = 'b'", &unused));
            OK(run_plain(host.reg, true, "UPDATE sqlite_sequence SET seq = seq - 1", &unused));
        }
    }
    CU_ASSERT(failed > 10);
    printf("\n    %u I/O errors ", failed);
    host_close(&host);
    plx_simdisk_free(disk);
}

/* ---- An end that is not durable ---------------------------------------------------------- */

static uint64_t older; /* what it held before that */

/* All forks since begin() hold one of three. */
static void end_of_three(void)
{
    uint64_t now;
    unsigned wrong = 0;

    power.on_event = NULL;
    now = digest(host.reg);
    CU_ASSERT_NOT_EQUAL_FATAL(now, 0);
    for (size_t i = 0; i < pending_states; i++) {
        uint64_t found = states[i].digest;

        wrong += found != now && found != before && found != older;
    }
    if (wrong)
        printf("\n  %u of %zu forks hold none of the three", wrong, pending_states);
    CU_ASSERT_EQUAL(wrong, 0);
}

static int put_garbage(unsigned rows, unsigned size, unsigned round)
{
    static const char text[] =
        "INSERT INTO garbage WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n"
        " WHERE i + 1 < ?2) SELECT ?1, i, ?3, 1, hex(zeroblob(?4 + i % 7)) FROM n WHERE true"
        " ON CONFLICT DO UPDATE SET generation = ?3";
    struct plx_sql batch[] = {
        SQL(text, SQL_INT(store.id), SQL_INT(rows), SQL_INT(round), SQL_INT(size))};

    return plx_sql_change(host.reg, batch, 1, NULL, NULL);
}

/* Of a commit everything is durable but that its journal has ended: who made it was killed before
 * its last flush. The next one writes over that journal, and power fails. */
static void test_killed_at_end(void)
{
    unsigned seen = 0;
    bool done = false;

    for (unsigned k = 1; !done; k++) {
        uint64_t now, first;
        bool failed;

        new_disk(DISK_BYTES);
        OK(host_open(&host, disk));
        enter_store();
        OK(put_garbage(60, 300, 1));
        older = digest(host.reg);
        first = errors();
        plx_simdisk_fail_io(disk, k, 1);
        failed = put_garbage(60, 300, 2) != 0;
        done = errors() == first;
        plx_simdisk_heal(disk);
        host_close(&host);
        OK(host_open(&host, disk));
        now = digest(host.reg);
        if (failed && now != older) {
            seen++;
            before = now;
            begin();
            OK(put_garbage(20, 300, 3));
            end_of_three();
        }
        host_close(&host);
        plx_simdisk_free(disk);
    }
    CU_ASSERT(seen > 0);
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"power cuts", test_cuts},
        {"a store that grows", test_growth},
        {"I/O errors", test_errors},
        {"killed at the end of a commit", test_killed_at_end},
    };

    /* Pages of a fork that was judged go to the next fork, not to the kernel in between. */
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    return SUITE_RUN("registry in a region", tests);
}
