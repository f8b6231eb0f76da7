/* test_full.c - running out of space: soft limits, and a store filled to the last block with
 * snapshots on, driven through handler_parallax.so as tcmu-runner drives it.
 *
 * A model keeps what each block was last acknowledged to hold. Everything is read back against it
 * when the store is full, and again when it has space.
 */
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "lun.h"
#include "suite.h"

#define BLOCK 4096u
#define SECTORS (BLOCK / SECTOR)
#define BLOCKS 6144u /* of the disk: 24 MiB */
#define LOOKS_S 7    /* the handler looks at limits in so many seconds, at least once */

static struct tcmu_device *device;
static uint32_t model[BLOCKS], frozen[BLOCKS]; /* number of the last write; 0: zeroes */
static uint32_t writes;
static uint64_t random_state = 1;

static uint32_t random_below(uint32_t bound)
{
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(random_state >> 33) % bound;
}

static void fill_block(uint32_t *words, uint32_t block, uint32_t number)
{
    for (uint32_t i = 0; i < BLOCK / sizeof *words; i++)
        words[i] = number ? (block + 1) * 2654435761u ^ number * 40503u ^ i : 0;
}

/* One block; the model learns what was acknowledged, and nothing else. */
static int write_block(uint32_t block)
{
    static uint32_t words[BLOCK / sizeof(uint32_t)];
    int status;

    fill_block(words, block, ++writes);
    status = write_on(device, (uint64_t)block * SECTORS, words, BLOCK, 0);
    if (status == TCMU_STS_OK)
        model[block] = writes;
    return status;
}

static bool is_full(int status)
{
    return status == TCMU_STS_PASSTHROUGH_ERR && sense[2] == 0x07 &&
           plx_get_be(sense + 12, 2) == 0x2707;
}

static void verify(struct tcmu_device *on, const uint32_t *expected)
{
    static uint32_t words[BLOCK / sizeof(uint32_t)], read[BLOCK / sizeof(uint32_t)];
    unsigned wrong = 0;

    for (uint32_t block = 0; block < BLOCKS; block++) {
        struct runner_command command = {.iov = {{read, BLOCK}}, .iovcnt = 1};

        runner_read_write(&command, false, (uint64_t)block * SECTORS, SECTORS, 0);
        fill_block(words, block, expected[block]);
        wrong += runner_run(on, &command) != TCMU_STS_OK || memcmp(words, read, BLOCK) != 0;
    }
    CU_ASSERT_EQUAL(wrong, 0);
}

static struct tcmu_device *open_lun(const char *cfgstring)
{
    char reason[600] = "";
    int error = 0;
    struct tcmu_device *opened = runner_open(stand_handler, cfgstring, BLOCKS * BLOCK, SECTOR,
                                             &error, reason, sizeof reason);

    CU_ASSERT_PTR_NOT_NULL_FATAL(opened);
    return opened;
}

static json_int_t free_blocks(void)
{
    return ask(0, "data_free_blocks", "{\"command\": \"stats\"}");
}

static void shell(const char *words)
{
    int status = stand_shell("%s", words);

    CU_ASSERT_EQUAL(status, 0);
    if (status)
        printf("  failed: %s\n", words);
}

static void unmap_blocks(uint32_t first, uint32_t count)
{
    CU_ASSERT_EQUAL(unmap_on(device, (uint64_t)first * SECTORS, count * SECTORS), TCMU_STS_OK);
    memset(model + first, 0, count * sizeof *model);
}

/* ---- Soft limits ---- */

/* Asks until the next look at limits is past; returns how many unit attentions there were. */
static unsigned count_attentions(void)
{
    unsigned count = 0;

    for (unsigned i = 0; i < LOOKS_S * 10; i++, usleep(100000)) {
        if (scsi_on(device, "0 0 0 0 0 0", NULL, 0) == TCMU_STS_NOT_HANDLED)
            continue;
        check_sense(0x06, 0x3807);
        count++;
    }
    return count;
}

static void test_pages(void)
{
    static const uint8_t supported[] = {0, 0, 0, 2, 0, 0x0c};
    uint8_t answer[255], inquiry[64];

    CU_ASSERT_EQUAL(scsi_on(device, "12 1 b2 0 40 0", inquiry, sizeof inquiry), TCMU_STS_OK);
    CU_ASSERT_EQUAL(inquiry[4], 11); /* 2^11 sectors: 1 MiB */
    CU_ASSERT_EQUAL(scsi_on(device, "4d 0 40 0 0 0 0 0 ff 0", answer, 255), TCMU_STS_OK);
    CU_ASSERT_EQUAL(memcmp(answer, supported, sizeof supported), 0);
    CU_ASSERT_EQUAL(scsi_on(device, "4d 0 4c 0 0 0 0 0 ff 0", answer, 255), TCMU_STS_OK);
    CU_ASSERT_EQUAL(answer[0], 0x0c);
    CU_ASSERT_EQUAL(plx_get_be(answer + 2, 2), 24);
    CU_ASSERT_EQUAL(plx_get_be(answer + 4, 4), 0x00010308);  /* available */
    CU_ASSERT_EQUAL(plx_get_be(answer + 12, 1), 2);          /* shared with others */
    CU_ASSERT_EQUAL(plx_get_be(answer + 16, 4), 0x00020308); /* used */
    CU_ASSERT_EQUAL(plx_get_be(answer + 24, 1), 1);
    /* Cut, and from the second parameter on. */
    memset(answer, 0xee, sizeof answer);
    CU_ASSERT_EQUAL(scsi_on(device, "4d 0 4c 0 0 0 2 0 8 0", answer, 255), TCMU_STS_OK);
    CU_ASSERT_EQUAL(plx_get_be(answer + 2, 6), 0x000c00020308);
    CU_ASSERT_EQUAL(answer[8], 0);
    CU_ASSERT_EQUAL(scsi_on(device, "4d 0 4c 0 0 0 3 0 ff 0", answer, 255),
                    TCMU_STS_PASSTHROUGH_ERR);
    check_sense(0x05, 0x2400);
    CU_ASSERT_EQUAL(scsi_on(device, "4d 0 42 0 0 0 0 0 ff 0", answer, 255),
                    TCMU_STS_PASSTHROUGH_ERR);
    CU_ASSERT_EQUAL(scsi_on(device, "4d 1 4c 0 0 0 0 0 ff 0", answer, 255),
                    TCMU_STS_PASSTHROUGH_ERR);
    CU_ASSERT_EQUAL(sense[17], 1);
    CU_ASSERT_EQUAL(scsi_on(device, "1a 0 1 0 ff 0", answer, 255), TCMU_STS_OK);
    CU_ASSERT_EQUAL(answer[4 + 7], 0x80); /* LBPERE */
    CU_ASSERT_EQUAL(scsi_on(device, "5a 0 1c 2 0 0 0 0 ff 0", answer, 255), TCMU_STS_OK);
    CU_ASSERT_EQUAL(plx_get_be(answer, 2), 8 + 32 - 2);
    CU_ASSERT_EQUAL(plx_get_be(answer + 8, 4), 0x5c02001c);
    CU_ASSERT_EQUAL(answer[8 + 4], 1);                  /* SITUA */
    CU_ASSERT(all_are((char *)answer + 8 + 16, 16, 0)); /* no limits */
    CU_ASSERT_EQUAL(scsi_on(device, "5a 0 3f ff 0 0 0 0 ff 0", answer, 255), TCMU_STS_OK);
    CU_ASSERT_EQUAL(plx_get_be(answer, 2), 8 + 12 + 20 + 12 + 32 - 2);
    CU_ASSERT_EQUAL(scsi_on(device, "5a 0 1c 1 0 0 0 0 ff 0", answer, 255),
                    TCMU_STS_PASSTHROUGH_ERR);
}

static json_int_t used_megabytes(void)
{
    uint8_t answer[28];

    CU_ASSERT_EQUAL(scsi_on(device, "4d 0 4c 0 0 0 0 0 ff 0", answer, sizeof answer), TCMU_STS_OK);
    return (json_int_t)plx_get_be(answer + 20, 4);
}

/* Of the disk, then of the store: each crossing is told once, and again after it was left. */
static void test_limits(void)
{
    FILE *log = lun_listen();
    uint8_t answer[64];

    shell("! ./parallax vdi set full/v 2>/dev/null && "
          "! ./parallax vdi set full/v --warn-at 100% 2>/dev/null && "
          "! ./parallax vdi set full/v --warn-at 1T 2>/dev/null && "
          "! ./parallax store set full --warn-at 0 2>/dev/null && "
          "./parallax -q vdi set full/v --warn-at 4M && "
          "./parallax vdi info full/v | grep -q 'Warn at: *4 MiB'");
    CU_ASSERT_EQUAL(count_attentions(), 0);
    CU_ASSERT_EQUAL(scsi_on(device, "5a 0 1c 2 0 0 0 0 ff 0", answer, sizeof answer), TCMU_STS_OK);
    CU_ASSERT_EQUAL(plx_get_be(answer + 8 + 16, 8), 0);
    CU_ASSERT_EQUAL(plx_get_be(answer + 8 + 24, 8), 0x8102000000000004); /* used, rising, 4 MiB */
    for (uint32_t block = 0; block < 1280; block++)
        CU_ASSERT_EQUAL_FATAL(write_block(block), TCMU_STS_OK);
    ask(0, NULL, "{\"command\": \"keyframe\", \"vdi\": \"v\"}");
    CU_ASSERT_EQUAL(used_megabytes(), 5);
    CU_ASSERT_EQUAL(count_attentions(), 1);
    CU_ASSERT_EQUAL(count_attentions(), 0);
    shell("./parallax vdi info full/v --json | grep -q '\"used_bytes\": 5242880' && "
          "./parallax vdi info full/v | grep -q 'Warning: *the soft limit is crossed'");
    unmap_blocks(0, 1024);
    ask(0, NULL, "{\"command\": \"keyframe\", \"vdi\": \"v\"}");
    CU_ASSERT_EQUAL(count_attentions(), 0);
    CU_ASSERT_EQUAL(used_megabytes(), 1);
    shell("./parallax -q vdi set full/v --warn-at none && "
          "./parallax -q store set full --warn-at 1% && "
          "./parallax store info full | grep -q 'Warning: *the soft limit is crossed'");
    CU_ASSERT_EQUAL(count_attentions(), 1);
    shell("./parallax -q store set full --warn-at none && "
          "! ./parallax store info full | grep -q Warn");
    HEARD(log, "full/v: 5242880 bytes used, limit 4194304",
          "full/v is below its soft limit again: 1048576 bytes used", "full: ");
}

/* ---- The end of space ---- */

/* Until a write of a fresh block fails; then every write either succeeds or says why. */
static void fill_up(void)
{
    int status = TCMU_STS_OK;
    unsigned refused = 0;

    for (uint32_t n = 0; status == TCMU_STS_OK; n++) {
        status = write_block(n < BLOCKS ? n : random_below(BLOCKS));
        if (n % 512 == 511)
            ask(0, NULL, "{\"command\": \"snapshot\", \"vdi\": \"v\"}");
    }
    CU_ASSERT(is_full(status));
    for (unsigned i = 0; i < 300; i++) {
        status = write_block(random_below(BLOCKS));
        CU_ASSERT(status == TCMU_STS_OK || is_full(status));
        refused += status != TCMU_STS_OK;
    }
    CU_ASSERT(refused > 0);
}

/* Writes until so many have failed. */
static void fail(unsigned count)
{
    while (count > 0)
        count -= is_full(write_block(random_below(BLOCKS)));
}

/* Writes that fail do not flood the log, and all are told of in the end. */
static void test_log(void)
{
    unsigned told = 0, not_told = 0, more;
    char line[512];
    FILE *log;

    sleep(1);
    fail(1); /* tells of those before */
    log = lun_listen();
    for (unsigned second = 0; second < 3; second++, sleep(1))
        fail(100);
    fail(1);
    runner_set_log(NULL);
    rewind(log);
    while (fgets(line, sizeof line, log)) {
        told += strstr(line, "no space left") != NULL;
        not_told += sscanf(line, "error: full/v: %u more requests failed", &more) == 1 ? more : 0;
    }
    fclose(log);
    CU_ASSERT_EQUAL(told + not_told, 301);
    CU_ASSERT(told <= 8 * 6 + 1); /* each of three bursts may lie in two seconds */
}

/* What needs no space for data goes on. */
static void test_full(void)
{
    json_int_t before;

    fill_up();
    verify(device, model);
    test_log();
    CU_ASSERT_EQUAL(scsi_on(device, "35 0 0 0 0 0 0 0 0 0", NULL, 0), TCMU_STS_OK);
    ask(0, NULL, "{\"command\": \"flush\", \"vdi\": \"v\"}");
    ask(0, NULL, "{\"command\": \"snapshot\", \"vdi\": \"v\", \"label\": \"full\"}");
    memcpy(frozen, model, sizeof frozen);
    for (unsigned i = 0; i < 40; i++) {
        unmap_blocks(i * 64, 16);
        ask(0, NULL, "{\"command\": \"snapshot\", \"vdi\": \"v\"}");
    }
    ask(0, NULL, "{\"command\": \"keyframe\", \"vdi\": \"v\"}");
    verify(device, model);
    shell("./parallax -q vdi delete full/other --yes");
    shell("./parallax store check full --data >/dev/null");
    before = free_blocks();
    CU_ASSERT(is_full(write_block(5000))); /* all of it is in snapshots still */
    shell("./parallax -q snap delete full/v@.. --force");
    CU_ASSERT(free_blocks() > before);
}

/* In the same opening of the disk. */
static void test_goes_on(void)
{
    for (uint32_t block = 0; block < 1024; block++)
        CU_ASSERT_EQUAL(write_block(block), TCMU_STS_OK);
    verify(device, model);
    ask(0, NULL, "{\"command\": \"snapshot\", \"vdi\": \"v\", \"label\": \"second\"}");
    fill_up();
    memcpy(frozen, model, sizeof frozen);
    ask(0, NULL, "{\"command\": \"snapshot\", \"vdi\": \"v\", \"label\": \"full-again\"}");
    verify(device, model);
    unmap_blocks(0, BLOCKS);
    ask(0, NULL, "{\"command\": \"keyframe\", \"vdi\": \"v\"}");
    verify(device, model);
}

static void test_reopened(void)
{
    struct tcmu_device *snapshot;

    runner_close(device);
    device = open_lun("parallax/full/v");
    verify(device, model);
    snapshot = open_lun("parallax/full/v@full-again");
    verify(snapshot, frozen);
    runner_close(snapshot);
    shell("./parallax -q snap delete full/v@.. --force");
    fill_up();
    verify(device, model);
    runner_close(device);
    shell("./parallax store check full --data >/dev/null");
}

/* ---- Garbage goes before history ---- */

#define PROTECTED_SIZE (8u << 20)

/* A protected disk in a store of 40 MiB, most of which a deleted disk takes: `junk` MiB. */
static struct tcmu_device *open_protected(const char *store, const char *vdi)
{
    char cfgstring[64], reason[600] = "";
    struct tcmu_device *opened;
    int error = 0;

    snprintf(cfgstring, sizeof cfgstring, "parallax/%s/%s", store, vdi);
    opened = runner_open(stand_handler, cfgstring, PROTECTED_SIZE, SECTOR, &error, reason,
                         sizeof reason);
    CU_ASSERT_PTR_NOT_NULL_FATAL(opened);
    return opened;
}

static struct tcmu_device *open_crowded(const char *store, unsigned junk)
{
    CU_ASSERT_EQUAL_FATAL(
        stand_shell("./parallax -q store format %s --volume %s/%s --size 40M --extent-size 1M && "
                    "./parallax -q vdi create %s/v --size %u && "
                    "./parallax -q cdp on %s/v --every 10ms --keep all:1h && "
                    "head -c %uM /dev/urandom | ./parallax -q vdi import - %s/junk --size %uM && "
                    "./parallax -q vdi delete %s/junk --yes",
                    store, stand_folder, store, store, PROTECTED_SIZE, store, junk, store, junk,
                    store),
        0);
    return open_protected(store, "v");
}

/* Writes so many MiB anew, in turn, each to a snapshot of its own. */
static void overwrite(struct tcmu_device *on, unsigned count)
{
    static char data[MIB];

    for (unsigned i = 0; i < count; i++) {
        memset(data, (int)i, sizeof data);
        CU_ASSERT_EQUAL(
            write_on(on, i % (PROTECTED_SIZE / MIB) * (MIB / SECTOR), data, sizeof data, 0),
            TCMU_STS_OK);
        usleep(12000);
    }
}

/* Whether snapshots of it went before their time. */
static bool is_disk_shortened(const char *store, const char *vdi)
{
    return stand_shell("./parallax cdp status %s/%s --json | grep -q '\"shortened\": \"'", store,
                       vdi) == 0;
}

static bool is_shortened(const char *store)
{
    return is_disk_shortened(store, "v");
}

/* What a collection frees is room enough: it begins at once, and no snapshot goes. */
static void test_garbage_first(void)
{
    struct tcmu_device *crowded = open_crowded("garbage", 16);

    overwrite(crowded, 20);
    sleep(LOOKS_S);
    CU_ASSERT_FALSE(is_shortened("garbage"));
    CU_ASSERT(ask(0, "swept", "{\"command\": \"collect-status\"}") >= 16 * (MIB / BLOCK));
    /* Garbage alone is not enough: then history gives way, and writes go on. */
    overwrite(crowded, 24);
    for (unsigned i = 0; i < LOOKS_S && !is_shortened("garbage"); i++)
        sleep(1);
    CU_ASSERT(is_shortened("garbage"));
    runner_close(crowded);
    shell("./parallax store check garbage --data >/dev/null");
}

/* A collection that takes too long: a write that has no room does not wait for its end. */
static void test_garbage_slow(void)
{
    struct tcmu_device *crowded = open_crowded("slow", 12);

    ask(0, NULL, "{\"command\": \"collect\", \"dry_run\": false, \"memory\": 0, \"rate\": 64}");
    overwrite(crowded, 32);
    for (unsigned i = 0; i < LOOKS_S && !is_shortened("slow"); i++)
        sleep(1);
    CU_ASSERT(is_shortened("slow"));
    CU_ASSERT_EQUAL(ask(0, "swept", "{\"command\": \"collect-status\"}"), 0);
    ask(0, NULL, "{\"command\": \"collect-stop\"}");
    runner_close(crowded);
    shell("./parallax store check slow --data >/dev/null");
}

/* ---- History gives way by number ---- */

static long clock_ahead_s; /* the wall clock that the handler sees */

__attribute__((visibility("default"))) int clock_gettime(clockid_t id, struct timespec *ret_time)
{
    int rc = (int)syscall(SYS_clock_gettime, id, ret_time);

    if (!rc && id == CLOCK_REALTIME)
        ret_time->tv_sec += clock_ahead_s;
    return rc;
}

/* SERVICE-4: while nobody knows the time, the oldest still go when there is no room. */
static void test_doubt(void)
{
    struct tcmu_device *crowded = open_crowded("doubt", 1);
    FILE *log = lun_listen();

    overwrite(crowded, 8);
    clock_ahead_s = 30 * 86400;
    overwrite(crowded, 40);
    for (unsigned i = 0; i < LOOKS_S && !is_shortened("doubt"); i++)
        sleep(1);
    CU_ASSERT(is_shortened("doubt"));
    HEARD(log, "it is 30d 0h ahead of where it was", "no snapshot expires");
    runner_close(crowded);
    clock_ahead_s = 0;
    shell("./parallax store check doubt --data >/dev/null");
}

/* SERVICE-4, TURNS-2: one disk's snapshots lie in the future, by the operator's word. It gives way
 * all the same, long before the other one has lost everything. */
static void test_future(void)
{
    struct tcmu_device *crowded = open_crowded("future", 1), *late;

    CU_ASSERT_EQUAL_FATAL(stand_shell("./parallax -q vdi create future/late --size %u && "
                                      "./parallax -q cdp on future/late --every 10ms --keep all:1h",
                                      PROTECTED_SIZE),
                          0);
    clock_ahead_s = 30 * 86400;
    late = open_protected("future", "late");
    ask(0, NULL, "{\"command\": \"resume\", \"vdi\": \"late\"}");
    overwrite(late, 16);
    clock_ahead_s = 0;
    ask(0, NULL, "{\"command\": \"resume\", \"vdi\": \"late\"}");
    shell("./parallax -q snap delete future/late@..2 && " /* from before the word */
          "! ./parallax snap list future/late --all --json | grep -q '\"future\": false'");
    for (unsigned i = 0; i < 4 * LOOKS_S && !is_disk_shortened("future", "late"); i++)
        overwrite(crowded, 8);
    CU_ASSERT(is_disk_shortened("future", "late"));
    CU_ASSERT(is_shortened("future"));
    runner_close(late);
    runner_close(crowded);
    shell("./parallax store check future --data >/dev/null");
}

static bool set_up(void)
{
    return stand_up() &&
           stand_shell("./parallax -q store format full --volume %s/full --size 40M --extent-size "
                       "1M && ./parallax -q vdi create full/v --size %u && "
                       "./parallax -q vdi create full/other --size 1M",
                       stand_folder, BLOCKS * BLOCK) == 0;
}

static void test_open(void)
{
    device = open_lun("parallax/full/v");
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"opening", test_open},
        {"what is told of limits and of use", test_pages},
        {"soft limits", test_limits},
        {"a full store", test_full},
        {"space comes back", test_goes_on},
        {"opened again", test_reopened},
        {"garbage goes before history", test_garbage_first},
        {"a slow collection holds no write up", test_garbage_slow},
        {"a full store and a clock in doubt", test_doubt},
        {"a full store and snapshots in the future", test_future},
    };
    int failed;

    if (!set_up())
        return 1;
    failed = SUITE_RUN("full", tests);
    stand_down();
    return failed;
}
