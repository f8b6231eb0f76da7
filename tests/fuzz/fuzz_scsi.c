/* fuzz_scsi.c - arbitrary CDBs with arbitrary data, and arbitrary commands of the control socket,
 * to the handler as tcmu-runner drives it (tests/bench/runner.c).
 *
 * The handler is linked in. Three LUNs of one store stay open: 512-byte sectors, 4096-byte sectors
 * with the write cache on, and a snapshot. An input is up to eight commands. Every command must
 * come back, with GOOD or a status; data in is never written outside the buffer (each lies in
 * memory of its own size), and what may only be read is not written.
 */
#include <dirent.h>
#include <libgen.h>
#include <limits.h>
#include <unistd.h>

#include "bench/runner.h"
#include "control/control.h"
#include "fuzz.h"
#include "tcmu/bytes.h"

#define SIZE (2u << 20)
#define DATA_MAX (128u << 10)
#define LUNS 3

static char folder[] = "/var/tmp/plx-fuzz-scsi-XXXXXX", control[PATH_MAX];
static struct tcmu_device *luns[LUNS];
static const uint32_t sector_of[LUNS] = {512, 4096, 512};

static void shell(const char *format, ...)
{
    char command[3 * PATH_MAX];
    va_list args;

    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    FUZZ_CHECK(system(command) == 0);
}

static void clean_up(void)
{
    for (unsigned i = LUNS; i-- > 0;)
        if (luns[i])
            runner_close(luns[i]);
    shell("rm -rf %s", folder);
}

static void find_control(void)
{
    char path[PATH_MAX - 300];
    struct dirent *entry;
    DIR *sockets;

    snprintf(path, sizeof path, "%s/state/run/control", folder);
    sockets = opendir(path);
    while (sockets && (entry = readdir(sockets)))
        if (strstr(entry->d_name, ".sock"))
            snprintf(control, sizeof control, "%s/%s", path, entry->d_name);
    FUZZ_CHECK(control[0]);
    closedir(sockets);
}

PLX_FUZZ_EXPORT int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const char *const subjects[LUNS] = {"parallax/s/v", "parallax/s/w;cache=on",
                                               "parallax/s/v@1"};
    char path[PATH_MAX], *build, reason[600] = "";
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    struct tcmur_handler *handler;
    int error;

    FUZZ_CHECK(length > 0 && mkdtemp(folder));
    atexit(clean_up);
    path[length] = 0;
    build = dirname(path);
    snprintf(reason, sizeof reason, "%s/state", folder);
    setenv("PARALLAX_STATE_DIR", reason, 1);
    shell(
        "cd %s && ./parallax -q store format s --volume %s/volume --size 128M --extent-size 1M && "
        "./parallax -q vdi create s/v --size %u && "
        "./parallax -q vdi create s/w --size %u --sector-size 4096 && "
        "./parallax -q snap create s/v >/dev/null",
        build, folder, SIZE, SIZE);
    runner_set_log(NULL);
    handler = runner_load(NULL);
    FUZZ_CHECK(handler);
    for (unsigned i = 0; i < LUNS; i++) {
        luns[i] =
            runner_open(handler, subjects[i], SIZE, sector_of[i], &error, reason, sizeof reason);
        if (!luns[i])
            fprintf(stderr, "%s: %s\n", subjects[i], reason);
        FUZZ_CHECK(luns[i]);
    }
    find_control();
    return 0;
}

/* How much data a command that means it brings along, as the kernel lays it out. */
static uint64_t data_meant(const uint8_t *cdb, uint32_t sector)
{
    switch (cdb[0]) {
    case 0x89:
        return 2ull * cdb[13] * sector;
    case 0x41:
    case 0x93:
        return sector;
    case 0x42:
        return plx_get_be(cdb + 7, 2);
    case 0x12:
        return plx_get_be(cdb + 3, 2);
    case 0x1a:
    case 0x03:
        return cdb[4];
    case 0x5a:
        return plx_get_be(cdb + 7, 2);
    case 0x9e:
        return plx_get_be(cdb + 10, 4);
    case 0xa3:
        return plx_get_be(cdb + 6, 4);
    default: {
        uint8_t copy[16];

        memcpy(copy, cdb, sizeof copy);
        return (uint64_t)tcmu_cdb_get_xfer_length(copy) * sector;
    }
    }
}

static void one_command(struct fuzz_input *input)
{
    unsigned flags = (unsigned)fuzz_take(input, 1), which = flags % LUNS;
    unsigned head = (unsigned)fuzz_take(input, 2);
    struct runner_command command = {.cdb_length = 16};
    size_t bytes, given;
    uint8_t *data, *second;

    for (unsigned i = 0; i < 16; i++)
        command.cdb[i] = (uint8_t)fuzz_take(input, 1);
    bytes = flags & 0x80 ? head : data_meant(command.cdb, sector_of[which]);
    bytes = plx_min_u64(bytes, DATA_MAX);
    data = malloc(bytes ? bytes : 1);
    given = plx_min_u64(flags & 0x40 ? 32 : 0, plx_min_u64(bytes, input->left));
    memset(data, (int)head, bytes);
    memcpy(data, input->at, given);
    input->at += given;
    input->left -= given;
    /* In two pieces, of memory of their own: reads and writes behind one are found. */
    head = (unsigned)(bytes ? head % bytes : 0) & ~511u;
    second = malloc(bytes - head + 1);
    memcpy(second, data + head, bytes - head);
    data = realloc(data, head ? head : 1);
    if (bytes) {
        command.iov[0] = (struct iovec){data, head};
        command.iov[1] = (struct iovec){second, bytes - head};
        command.iovcnt = 2;
        if (!head) {
            command.iov[0] = command.iov[1];
            command.iovcnt = 1;
        }
    }
    runner_run(luns[which], &command);
    free(data);
    free(second);
}

/* A request of the control socket: JSON if the bytes are, or one put together from them. */
static void ask(struct fuzz_input *input)
{
    static const char *const names[] = {"info",     "snapshot", "label",   "flush",
                                        "keyframe", "stats",    "unlabel", "resize"};
    static const char *const disks[] = {"v", "w", "x", ""};
    unsigned flags = (unsigned)fuzz_take(input, 1);
    struct plx_control_client *client;
    struct plx_fault fault;
    json_t *request, *result = NULL;

    if (flags & 1) {
        size_t count = fuzz_take(input, 1);

        count = plx_min_u64(count, input->left);
        request = json_loadb((const char *)input->at, count, 0, NULL);
        input->at += count;
        input->left -= count;
    } else {
        char label[4] = {(char)(flags ^ 'a'), (char)fuzz_take(input, 1) & 0x7f, 0};

        request = json_pack("{s:s, s:s, s:I}", "command", names[flags >> 1 & 7], "vdi",
                            disks[flags >> 4 & 3], "seq", (json_int_t)fuzz_take(input, 2));
        if (request && (flags & 0x40))
            json_object_set_new(request, "label", json_string(label));
        /* Never larger: the LUNs' size is told to the runner elsewhere. */
        if (request && (flags & 0x80))
            json_object_set_new(request, "size_bytes",
                                json_integer((json_int_t)fuzz_take(input, 3) % SIZE));
    }
    if (!request || !json_is_object(request)) {
        json_decref(request);
        return;
    }
    FUZZ_CHECK(plx_control_connect(control, 5000, &client, &fault) == 0);
    if (plx_control_call(client, request, 20000, &result, &fault) == 0)
        json_decref(result);
    plx_control_disconnect(client);
    json_decref(request);
}

PLX_FUZZ_EXPORT int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct fuzz_input input = {bytes, count};

    for (unsigned i = 0; i < 8 && input.left; i++) {
        if (fuzz_take(&input, 1) % 8 == 7)
            ask(&input);
        else
            one_command(&input);
    }
    return 0;
}
