/* stress.c - everything that tcmu-runner and administrators do to a handler, at the same time.
 *
 *     stress [ROUNDS]    exit 0, or 1 with what went wrong
 *     stress --race      two threads on one variable: what ThreadSanitizer must report
 *
 * Two disks of store s are written, read and unmapped by a command thread each, every block
 * checked; control clients snapshot, label, flush, ask, resize, make the store larger, and turn the
 * write-back ring of both on and off; one of the disks is protected, and the retention service lets
 * its snapshots go; tcmu-runner's main thread and its recovery thread open and close disks, one
 * with the ring, snapshots and a second store, and cancel the command threads of what they close.
 * All end when the openers have made their rounds; then the stores are checked.
 */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "stand.h"
#include "tcmu/bytes.h"

#define DISKS 2u
#define OPENERS 2u
#define CLIENTS 2u
#define DEPTH 8u
#define REGION 64u /* blocks of each command's own */
#define BLOCK 4096u
#define SECTORS_PER_BLOCK 8u
#define SIZE ((uint64_t)DISKS * DEPTH * REGION * BLOCK)
#define GROWTH (1u << 20)

/* One command at a time, on blocks that no other touches. */
struct slot {
    struct runner_command command;
    struct disk *disk;
    struct slot *next_free;
    uint64_t first;
    unsigned at;
    enum { READ, WRITE, TRIM } kind;
    uint8_t version[REGION]; /* 0: zeroes */
    char buffer[BLOCK];
};

struct disk {
    const char *name;
    struct tcmu_device *device;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    struct slot slots[DEPTH], *free;
    unsigned idle; /* slots on the list */
    uint64_t random;
};

static struct disk disks[DISKS];
static char control[PATH_MAX];
static atomic_bool stop;
static atomic_uint failures;
static bool drained;                 /* a ring has had writes; the first client's */
static _Atomic uint64_t wanted_size; /* what the kernel has been told, and reconfig not yet */

__attribute__((format(printf, 1, 2))) static void failed(const char *format, ...)
{
    va_list args;

    atomic_fetch_add(&failures, 1);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

static uint64_t next_random(uint64_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    return *random ^= *random << 17;
}

/* ---- Commands, many at a time --------------------------------------------------------------- */

static void check_read(const struct slot *slot)
{
    for (unsigned i = 0; i < BLOCK; i++) {
        if ((uint8_t)slot->buffer[i] == slot->version[slot->at])
            continue;
        failed("%s: block %llu, byte %u: %u, not %u", slot->disk->name,
               (unsigned long long)(slot->first + slot->at), i, (uint8_t)slot->buffer[i],
               slot->version[slot->at]);
        return;
    }
}

static void slot_done(struct runner_command *command)
{
    struct slot *slot = command->owner;
    struct disk *disk = slot->disk;

    if (command->status != TCMU_STS_OK)
        failed("%s: status %d", disk->name, command->status);
    else if (slot->kind == READ)
        check_read(slot);
    pthread_mutex_lock(&disk->mutex);
    slot->next_free = disk->free;
    disk->free = slot;
    disk->idle++;
    pthread_cond_signal(&disk->cond);
    pthread_mutex_unlock(&disk->mutex);
}

static void put_unmap(struct runner_command *command, char *list, uint64_t lba, uint32_t sectors)
{
    memset(list, 0, 24);
    plx_put_be((uint8_t *)list, 2, 22);
    plx_put_be((uint8_t *)list + 2, 2, 16);
    plx_put_be((uint8_t *)list + 8, 8, lba);
    plx_put_be((uint8_t *)list + 16, 4, sectors);
    memset(command->cdb, 0, sizeof command->cdb);
    command->cdb[0] = 0x42;
    plx_put_be(command->cdb + 7, 2, 24);
    command->iov[0] = (struct iovec){list, 24};
}

static void submit(struct slot *slot)
{
    struct disk *disk = slot->disk;
    struct runner_command *command = &slot->command;
    unsigned dice = next_random(&disk->random) % 100;
    uint64_t lba;

    slot->at = next_random(&disk->random) % REGION;
    slot->kind = dice < 40 ? READ : dice < 90 ? WRITE : TRIM;
    lba = (slot->first + slot->at) * SECTORS_PER_BLOCK;
    command->iov[0] = (struct iovec){slot->buffer, BLOCK};
    command->iovcnt = 1;
    command->done = slot_done;
    command->owner = slot;
    if (slot->kind == TRIM) {
        slot->version[slot->at] = 0;
        put_unmap(command, slot->buffer, lba, SECTORS_PER_BLOCK);
    } else {
        if (slot->kind == WRITE) {
            slot->version[slot->at] = (uint8_t)next_random(&disk->random);
            memset(slot->buffer, slot->version[slot->at], BLOCK);
        }
        runner_read_write(command, slot->kind == WRITE, lba, SECTORS_PER_BLOCK, dice % 8 ? 0 : 8);
    }
    runner_submit(disk->device, command);
}

static struct slot *take_slot(struct disk *disk)
{
    struct slot *slot;

    pthread_mutex_lock(&disk->mutex);
    while (!disk->free)
        pthread_cond_wait(&disk->cond, &disk->mutex);
    slot = disk->free;
    disk->free = slot->next_free;
    disk->idle--;
    pthread_mutex_unlock(&disk->mutex);
    return slot;
}

static void *command_thread(void *argument)
{
    struct disk *disk = argument;

    while (!atomic_load(&stop))
        submit(take_slot(disk));
    pthread_mutex_lock(&disk->mutex);
    while (disk->idle < DEPTH)
        pthread_cond_wait(&disk->cond, &disk->mutex);
    pthread_mutex_unlock(&disk->mutex);
    return NULL;
}

static struct tcmu_device *open_lun(const char *cfgstring, uint64_t size)
{
    char reason[600] = "";
    int error = 0;
    struct tcmu_device *device =
        runner_open(stand_handler, cfgstring, size, 512, &error, reason, sizeof reason);

    if (!device)
        failed("%s: %s (%s)", cfgstring, reason, strerror(-error));
    return device;
}

static bool start_disk(unsigned number)
{
    struct disk *disk = &disks[number];
    char cfgstring[64];

    disk->name = number == 0 ? "v0" : "v1";
    snprintf(cfgstring, sizeof cfgstring, "parallax/s/%s", disk->name);
    disk->random = 88172645463325252u + number;
    pthread_mutex_init(&disk->mutex, NULL);
    pthread_cond_init(&disk->cond, NULL);
    for (unsigned i = 0; i < DEPTH; i++) {
        disk->slots[i].disk = disk;
        disk->slots[i].first = (uint64_t)i * REGION;
        disk->slots[i].next_free = disk->free;
        disk->free = &disk->slots[i];
    }
    disk->idle = DEPTH;
    disk->device = open_lun(cfgstring, SIZE);
    return disk->device != NULL;
}

/* ---- Administrators ------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static json_int_t ask(const char *name, const char *format,
                                                            ...)
{
    struct plx_fault fault = {0};
    json_int_t number = -1;
    char request[256];
    va_list args;

    va_start(args, format);
    vsnprintf(request, sizeof request, format, args);
    va_end(args);
    if (stand_ask(control, request, name, &number, &fault) != 0)
        failed("%s: %s", request, fault.text);
    return number;
}

static void grow(uint64_t *size)
{
    *size += GROWTH;
    ask("size_bytes", "{\"command\": \"resize\", \"vdi\": \"v0\", \"size_bytes\": %llu}",
        (unsigned long long)*size);
    atomic_store(&wanted_size, *size);
}

/* By the command, which tells the handler; which also hears of it when nothing has changed. */
static void grow_store(void)
{
    if (stand_shell("truncate -s +4M %s/s && ./parallax -q store grow s", stand_folder) != 0)
        failed("the store cannot grow");
    ask(NULL, "{\"command\": \"volumes\"}");
}

static void turn_ring(unsigned disk, unsigned round)
{
    static const char *const words[] = {"on", "auto", "off"};

    ask(NULL, "{\"command\": \"ring\", \"vdi\": \"v%u\", \"use\": \"%s\"}", disk, words[round % 3]);
    ask(NULL, "{\"command\": \"ring-status\", \"vdi\": \"v%u\"}", disk);
    drained |= ask("ring_drained_bytes", "{\"command\": \"stats\", \"vdi\": \"v%u\"}", disk) > 0;
}

static void *client_thread(void *argument)
{
    unsigned number = *(const unsigned *)argument;
    uint64_t size = SIZE;

    for (unsigned round = 0; !atomic_load(&stop); round++) {
        unsigned disk = round % DISKS;

        ask("seq", "{\"command\": \"snapshot\", \"vdi\": \"v%u\", \"label\": \"l%u-%u\"}", disk,
            number, round);
        ask("writes", "{\"command\": \"stats\", \"vdi\": \"v%u\"}", disk);
        ask("luns", "{\"command\": \"info\"}");
        ask(NULL, "{\"command\": \"%s\", \"vdi\": \"v%u\"}", round % 4 ? "flush" : "keyframe",
            disk);
        ask(NULL, "{\"command\": \"unlabel\", \"vdi\": \"v%u\", \"label\": \"l%u-%u\"}", disk,
            number, round);
        if (number == 0 && round % 8 == 0)
            grow(&size);
        if (number == 0)
            turn_ring(disk, round / 2);
        if (number == 1 && round % 8 == 0)
            ask("upto",
                "{\"command\": \"thin\", \"vdi\": \"v0\", \"after\": 0, \"upto\": %u, "
                "\"before_ns\": 0, \"every_ns\": 0, \"dry_run\": false, \"rewinds_only\": false, "
                "\"marks\": []}",
                round + 1);
        if (number == 1 && round % 8 == 4)
            grow_store();
        if (number == 1)
            ask("moved",
                "{\"command\": \"move\", \"vdi\": \"v%u\", \"offset\": 0, \"length\": %llu, "
                "\"windows\": 8, \"blocks\": 0, \"dry_run\": false}",
                disk, (unsigned long long)SIZE);
    }
    return NULL;
}

/* ---- tcmu-runner's main and recovery threads ------------------------------------------------ */

/* Commands whose thread may be gone when they complete. */
struct doomed {
    struct tcmu_device *device;
    struct {
        struct runner_command command;
        atomic_bool busy;
        char buffer[BLOCK];
    } commands[DEPTH];
};

static void doomed_done(struct runner_command *command)
{
    if (command->status != TCMU_STS_OK)
        failed("a cancelled thread's command: status %d", command->status);
    atomic_store((atomic_bool *)command->owner, false);
}

static void *doomed_thread(void *argument)
{
    struct doomed *doomed = argument;

    for (unsigned i = 0;; i++) {
        struct runner_command *command = &doomed->commands[i % DEPTH].command;

        if (atomic_exchange(&doomed->commands[i % DEPTH].busy, true)) {
            usleep(100);
            continue;
        }
        command->owner = &doomed->commands[i % DEPTH].busy;
        command->done = doomed_done;
        command->iov[0] = (struct iovec){doomed->commands[i % DEPTH].buffer, BLOCK};
        command->iovcnt = 1;
        runner_read_write(command, true, (uint64_t)(i % 97) * SECTORS_PER_BLOCK, SECTORS_PER_BLOCK,
                          0);
        runner_submit(doomed->device, command);
        pthread_testcancel();
    }
    return NULL;
}

/* Opens a disk, has it written, cancels who writes, closes. */
static void use_disk(const char *cfgstring)
{
    struct doomed *doomed = calloc(1, sizeof *doomed);
    pthread_t thread;

    doomed->device = open_lun(cfgstring, SIZE);
    if (doomed->device) {
        pthread_create(&thread, NULL, doomed_thread, doomed);
        usleep(20000);
        pthread_cancel(thread);
        pthread_join(thread, NULL);
        runner_close(doomed->device);
    }
    free(doomed);
}

static void read_snapshot(const char *cfgstring)
{
    struct tcmu_device *device = open_lun(cfgstring, SIZE);
    char buffer[BLOCK];

    for (unsigned i = 0; device && i < 16; i++) {
        struct runner_command command = {.iov = {{buffer, BLOCK}}, .iovcnt = 1};

        runner_read_write(&command, false, (uint64_t)i * SECTORS_PER_BLOCK, SECTORS_PER_BLOCK, 0);
        if (runner_run(device, &command) != TCMU_STS_OK)
            failed("%s: status %d", cfgstring, command.status);
    }
    if (device)
        runner_close(device);
}

/* What the kernel asks of the main thread while commands run. */
static void reconfigure(bool write_cache)
{
    struct tcmulib_cfg_info info = {.type = TCMULIB_CFG_WRITE_CACHE};
    uint64_t size = atomic_exchange(&wanted_size, 0);

    info.data.write_cache = write_cache;
    if (runner_reconfig(disks[0].device, &info) != 0)
        failed("write cache not set");
    info.type = TCMULIB_CFG_DEV_SIZE;
    info.data.dev_size = size;
    /* It may have grown once more meanwhile, and is then not made smaller. */
    if (size && runner_reconfig(disks[0].device, &info) != 0 && atomic_load(&wanted_size) == 0)
        failed("size %llu not taken", (unsigned long long)size);
}

struct opener {
    pthread_t thread;
    unsigned number, rounds;
};

static void *opener_thread(void *argument)
{
    const struct opener *opener = argument;
    char own[32], other[32];

    snprintf(own, sizeof own, "parallax/s/w%u", opener->number);
    snprintf(other, sizeof other, "parallax/t/w%u", opener->number);
    for (unsigned round = 0; round < opener->rounds; round++) {
        use_disk(own);
        use_disk(other); /* opens the store, and closes it, unless the other thread is there */
        read_snapshot("parallax/s/v1@first");
        if (opener->number == 0)
            reconfigure(round % 2 == 0);
    }
    return NULL;
}

/* ---- The whole ------------------------------------------------------------------------------ */

static bool set_up(void)
{
    return stand_up() &&
           stand_shell("./parallax -q store format s --volume %s/s --size 512M --extent-size 4M && "
                       "./parallax -q store format t --volume %s/t --size 256M --extent-size 4M && "
                       "for v in s/v0 s/v1 s/w0 s/w1 t/w0 t/w1; do "
                       "./parallax -q vdi create $v --size %llu || exit; done && "
                       "./parallax -q ring create s %s/ring --size 256M && "
                       "./parallax -q vdi set s/w0 --ring on",
                       stand_folder, stand_folder, (unsigned long long)SIZE, stand_folder) == 0;
}

static void run_all(unsigned rounds)
{
    static unsigned numbers[CLIENTS];
    struct opener openers[OPENERS];
    pthread_t clients[CLIENTS];

    for (unsigned i = 0; i < DISKS; i++)
        pthread_create(&disks[i].thread, NULL, command_thread, &disks[i]);
    for (unsigned i = 0; i < CLIENTS; i++) {
        numbers[i] = i;
        pthread_create(&clients[i], NULL, client_thread, &numbers[i]);
    }
    for (unsigned i = 0; i < OPENERS; i++) {
        openers[i] = (struct opener){.number = i, .rounds = rounds};
        pthread_create(&openers[i].thread, NULL, opener_thread, &openers[i]);
    }
    for (unsigned i = 0; i < OPENERS; i++)
        pthread_join(openers[i].thread, NULL);
    atomic_store(&stop, true);
    for (unsigned i = 0; i < CLIENTS; i++)
        pthread_join(clients[i], NULL);
    for (unsigned i = 0; i < DISKS; i++)
        pthread_join(disks[i].thread, NULL);
}

static int stress(unsigned rounds)
{
    if (!set_up())
        return 2;
    for (unsigned i = 0; i < DISKS; i++)
        if (!start_disk(i))
            return 1;
    if (!stand_control(control, sizeof control))
        return 2;
    ask("seq", "{\"command\": \"snapshot\", \"vdi\": \"v1\", \"label\": \"first\"}");
    ask(NULL, "{\"command\": \"protect\", \"vdi\": \"v1\", \"mode\": \"10ms\", "
              "\"retention\": \"all:1s,1s:3s\"}");
    run_all(rounds);
    for (unsigned i = 0; i < DISKS; i++)
        runner_close(disks[i].device);
    if (!drained)
        failed("the ring was never used");
    if (stand_shell("./parallax store check s --data >/dev/null && "
                    "./parallax store check t --data >/dev/null") != 0)
        failed("a store is damaged");
    return atomic_load(&failures) ? 1 : 0;
}

static void *count(void *argument)
{
    for (unsigned i = 0; i < 1000; i++)
        ++*(volatile unsigned *)argument;
    return NULL;
}

static int race(void)
{
    volatile unsigned counter = 0;
    pthread_t thread;

    pthread_create(&thread, NULL, count, (void *)&counter);
    count((void *)&counter);
    pthread_join(thread, NULL);
    return 0;
}

int main(int argc, char **argv)
{
    int result;

    if (argc > 1 && strcmp(argv[1], "--race") == 0)
        return race();
    result = stress(argc > 1 ? (unsigned)atoi(argv[1]) : 10);
    stand_down();
    return result;
}
