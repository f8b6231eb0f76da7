/* runner.c - see runner.h.
 *
 * Threads: handlers with nr_threads > 0 get that many workers per device, whose return value is the
 * status; others are called on the submitting thread and complete by tcmur_cmd_complete().
 */
#include "runner.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "tcmu/bytes.h"

#define HANDLERS_MAX 8

struct tcmu_device {
    struct tcmur_handler *handler;
    char cfgstring[PATH_MAX];
    _Atomic uint64_t sectors; /* changes under commands, as in the original */
    uint32_t sector_size, max_transfer, max_unmap, unmap_alignment;
    atomic_bool write_cache;
    void *private;
    pthread_mutex_t mutex;
    pthread_cond_t idle, work;
    unsigned under_way;
    struct started *queue, **queue_end;
    bool stop;
    pthread_t *workers;
};

/* A command as tcmu-runner lays it out: everything behind each other, the last at an odd address.
 */
struct started {
    struct tcmulib_cmd lib_cmd;
    struct tcmu_device *device;
    struct runner_command *command;
    struct started *next;
    struct iovec iov[16];
    char odd_place[3 + sizeof(struct tcmur_cmd)];
};

static struct tcmur_handler *handlers[HANDLERS_MAX];
static unsigned handler_count;
static FILE *log_file;
static bool log_chosen;
static char errors[512]; /* since the last opening began, as far as they fit */
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- What handlers call ---- */

#define EXPORT __attribute__((visibility("default")))

EXPORT int tcmur_register_handler(struct tcmur_handler *handler)
{
    if (handler_count == HANDLERS_MAX)
        return -1;
    handlers[handler_count++] = handler;
    return 0;
}

EXPORT void *tcmur_dev_get_private(struct tcmu_device *device)
{
    return device->private;
}

EXPORT void tcmur_dev_set_private(struct tcmu_device *device, void *private)
{
    device->private = private;
}

EXPORT char *tcmu_dev_get_cfgstring(struct tcmu_device *device)
{
    return device->cfgstring;
}

EXPORT const char *tcmu_dev_get_uio_name(struct tcmu_device *device)
{
    return "none";
}

EXPORT uint64_t tcmu_dev_get_num_lbas(struct tcmu_device *device)
{
    return device->sectors;
}

EXPORT uint32_t tcmu_dev_get_block_size(struct tcmu_device *device)
{
    return device->sector_size;
}

EXPORT void tcmu_dev_set_max_xfer_len(struct tcmu_device *device, uint32_t sectors)
{
    device->max_transfer = sectors;
}

EXPORT uint32_t tcmu_dev_get_max_xfer_len(struct tcmu_device *device)
{
    return device->max_transfer;
}

EXPORT void tcmu_dev_set_opt_xcopy_rw_len(struct tcmu_device *device, uint32_t sectors)
{
}

EXPORT void tcmu_dev_set_max_unmap_len(struct tcmu_device *device, uint32_t sectors)
{
    device->max_unmap = sectors;
}

EXPORT uint32_t tcmu_dev_get_max_unmap_len(struct tcmu_device *device)
{
    return device->max_unmap;
}

EXPORT void tcmu_dev_set_opt_unmap_gran(struct tcmu_device *device, uint32_t sectors, bool split)
{
}

EXPORT void tcmu_dev_set_unmap_gran_align(struct tcmu_device *device, uint32_t sectors)
{
    device->unmap_alignment = sectors;
}

EXPORT void tcmu_dev_set_unmap_enabled(struct tcmu_device *device, bool enabled)
{
}

EXPORT void tcmu_dev_set_solid_state_media(struct tcmu_device *device, bool enabled)
{
}

EXPORT void tcmu_dev_set_write_cache_enabled(struct tcmu_device *device, bool enabled)
{
    device->write_cache = enabled;
}

EXPORT uint64_t tcmu_cfgfs_dev_get_info_u64(struct tcmu_device *device, const char *name,
                                            int *ret_error)
{
    *ret_error = 0;
    return device->sectors * device->sector_size; /* "Size" */
}

EXPORT int tcmu_cdb_get_length(uint8_t *cdb)
{
    static const int lengths[] = {6, 10, 10, -EINVAL, 16, 12, -EINVAL, -EINVAL};

    return lengths[cdb[0] >> 5];
}

EXPORT uint64_t tcmu_cdb_get_lba(uint8_t *cdb)
{
    if (cdb[0] >> 5 == 0)
        return plx_get_be(cdb + 1, 3) & 0x1fffff;
    return plx_get_be(cdb + 2, cdb[0] >> 5 == 4 ? 8 : 4);
}

EXPORT uint32_t tcmu_cdb_get_xfer_length(uint8_t *cdb)
{
    switch (cdb[0] >> 5) {
    case 0:
        return cdb[4];
    case 4:
        return (uint32_t)plx_get_be(cdb + 10, 4);
    case 5:
        return (uint32_t)plx_get_be(cdb + 6, 4);
    default:
        return (uint32_t)plx_get_be(cdb + 7, 2);
    }
}

EXPORT int tcmu_sense_set_data(uint8_t *sense, uint8_t key, uint16_t codes)
{
    memset(sense, 0, SENSE_BUFFERSIZE);
    sense[0] = 0x70;
    sense[2] = key;
    sense[7] = 10;
    plx_put_be(sense + 12, 2, codes);
    return TCMU_STS_PASSTHROUGH_ERR;
}

EXPORT void tcmu_sense_set_info(uint8_t *sense, uint32_t info)
{
    memset(sense, 0, 18);
    plx_put_be(sense + 3, 4, info);
    sense[0] = 0x80;
}

EXPORT size_t tcmu_iovec_length(struct iovec *iov, size_t count)
{
    size_t sum = 0;

    while (count-- > 0)
        sum += iov++->iov_len;
    return sum;
}

EXPORT size_t tcmu_iovec_seek(struct iovec *iov, size_t count)
{
    size_t whole = 0;

    for (; count >= iov->iov_len && count > 0; iov++, whole++) {
        count -= iov->iov_len;
        iov->iov_len = 0;
    }
    if (count > 0) {
        iov->iov_base = (char *)iov->iov_base + count;
        iov->iov_len -= count;
    }
    return whole;
}

EXPORT size_t tcmu_memcpy_into_iovec(struct iovec *iov, size_t count, void *from, size_t length)
{
    size_t copied = 0;

    for (; count > 0 && copied < length; iov++, count--) {
        size_t part = iov->iov_len < length - copied ? iov->iov_len : length - copied;

        memcpy(iov->iov_base, (char *)from + copied, part);
        iov->iov_base = (char *)iov->iov_base + part;
        iov->iov_len -= part;
        copied += part;
    }
    return copied;
}

static void write_log(const char *level, const char *format, va_list args)
{
    char line[512];
    FILE *file;

    vsnprintf(line, sizeof line, format, args);
    pthread_mutex_lock(&log_lock);
    if (strcmp(level, "error") == 0)
        snprintf(errors + strlen(errors), sizeof errors - strlen(errors), "%s", line);
    file = log_chosen ? log_file : stderr;
    if (file)
        fprintf(file, "%s: %s", level, line);
    pthread_mutex_unlock(&log_lock);
}

#define LOG_FUNCTION(function, level)                                                              \
    EXPORT void function(struct tcmu_device *device, const char *name, int line,                   \
                         const char *format, ...)                                                  \
    {                                                                                              \
        va_list args;                                                                              \
        va_start(args, format);                                                                    \
        write_log(level, format, args);                                                            \
        va_end(args);                                                                              \
    }
LOG_FUNCTION(tcmu_crit_message, "critical")
LOG_FUNCTION(tcmu_err_message, "error")
LOG_FUNCTION(tcmu_warn_message, "warning")
LOG_FUNCTION(tcmu_info_message, "info")

EXPORT void tcmu_dbg_message(struct tcmu_device *device, const char *name, int line,
                             const char *format, ...)
{
}

EXPORT void tcmu_dbg_scsi_cmd_message(struct tcmu_device *device, const char *name, int line,
                                      const char *format, ...)
{
}

void runner_set_log(FILE *file)
{
    pthread_mutex_lock(&log_lock);
    log_file = file;
    log_chosen = true;
    pthread_mutex_unlock(&log_lock);
}

/* ---- Commands ---- */

static struct tcmur_cmd *runner_cmd(struct started *started)
{
    return (struct tcmur_cmd *)(void *)(started->odd_place + 3);
}

static void finish(struct started *started, int status)
{
    struct tcmu_device *device = started->device;
    struct runner_command *command = started->command;

    command->status = status;
    memcpy(command->sense, started->lib_cmd.sense_buf, sizeof command->sense);
    free(started);
    command->done(command);
    pthread_mutex_lock(&device->mutex);
    if (--device->under_way == 0)
        pthread_cond_broadcast(&device->idle);
    pthread_mutex_unlock(&device->mutex);
}

EXPORT void tcmur_cmd_complete(struct tcmu_device *device, void *data, int status)
{
    struct tcmulib_cmd *lib_cmd = plx_lib_cmd(data);

    finish((struct started *)lib_cmd, status);
}

/* The parts of UNMAP that a handler's callback does not see. One descriptor only. */
static int call_unmap(struct tcmu_device *device, struct started *started)
{
    const uint8_t *list = started->iov[0].iov_base;

    if (started->lib_cmd.iov_cnt == 0 || started->iov[0].iov_len < 24)
        return TCMU_STS_INVALID_PARAM_LIST_LEN;
    return device->handler->unmap(device, runner_cmd(started),
                                  plx_get_be(list + 8, 8) * device->sector_size,
                                  plx_get_be(list + 16, 4) * device->sector_size);
}

static int call_write_same(struct tcmu_device *device, struct started *started, uint64_t offset,
                           uint64_t length)
{
    struct tcmur_handler *handler = device->handler;
    struct tcmulib_cmd *lib_cmd = &started->lib_cmd;

    if (lib_cmd->iov_cnt != 1 || started->iov[0].iov_len != device->sector_size || length == 0)
        return TCMU_STS_INVALID_CDB;
    /* Divides, as the original does. */
    if ((lib_cmd->cdb[1] & 0x08) && handler->unmap &&
        offset / device->sector_size % device->unmap_alignment == 0 &&
        length / device->sector_size % device->unmap_alignment == 0)
        return handler->unmap(device, runner_cmd(started), offset, length);
    if (!handler->writesame)
        return TCMU_STS_NOT_HANDLED;
    return handler->writesame(device, runner_cmd(started), offset, length, lib_cmd->iovec,
                              lib_cmd->iov_cnt);
}

static int call_handler(struct tcmu_device *device, struct started *started)
{
    struct tcmur_handler *handler = device->handler;
    struct tcmur_cmd *cmd = runner_cmd(started);
    struct tcmulib_cmd *lib_cmd = &started->lib_cmd;
    uint8_t *cdb = lib_cmd->cdb;
    uint64_t lba = tcmu_cdb_get_lba(cdb);
    uint64_t length = (uint64_t)tcmu_cdb_get_xfer_length(cdb) * device->sector_size;
    off_t offset = (off_t)(lba * device->sector_size);
    size_t data = tcmu_iovec_length(lib_cmd->iovec, lib_cmd->iov_cnt);

    switch (cdb[0]) {
    case 0x08:
    case 0x28:
    case 0xa8:
    case 0x88:
    case 0x0a:
    case 0x2a:
    case 0xaa:
    case 0x8a:
        if (data != length)
            return TCMU_STS_HW_ERR;
        if (lba + length / device->sector_size > device->sectors)
            return TCMU_STS_RANGE;
        return (cdb[0] & 0x02 ? handler->write : handler->read)(device, cmd, lib_cmd->iovec,
                                                                lib_cmd->iov_cnt, data, offset);
    case 0x35:
    case 0x91:
        return handler->flush ? handler->flush(device, cmd) : TCMU_STS_NOT_HANDLED;
    case 0x42:
        return handler->unmap ? call_unmap(device, started) : TCMU_STS_NOT_HANDLED;
    case 0x41:
    case 0x93:
        return call_write_same(device, started, (uint64_t)offset, length);
    case 0x89:
        if (!handler->caw)
            return TCMU_STS_NOT_HANDLED;
        return handler->caw(device, cmd, (uint64_t)offset, data / 2, lib_cmd->iovec,
                            lib_cmd->iov_cnt);
    default:
        return TCMU_STS_NOT_HANDLED;
    }
}

static void *work(void *argument)
{
    struct tcmu_device *device = argument;

    pthread_mutex_lock(&device->mutex);
    while (!device->stop) {
        struct started *started = device->queue;

        if (!started) {
            pthread_cond_wait(&device->work, &device->mutex);
            continue;
        }
        device->queue = started->next;
        if (!device->queue)
            device->queue_end = &device->queue;
        pthread_mutex_unlock(&device->mutex);
        finish(started, call_handler(device, started));
        pthread_mutex_lock(&device->mutex);
    }
    pthread_mutex_unlock(&device->mutex);
    return NULL;
}

static void enqueue(struct tcmu_device *device, struct started *started)
{
    pthread_mutex_lock(&device->mutex);
    started->next = NULL;
    *device->queue_end = started;
    device->queue_end = &started->next;
    pthread_cond_signal(&device->work);
    pthread_mutex_unlock(&device->mutex);
}

void runner_submit(struct tcmu_device *device, struct runner_command *command)
{
    struct started *started = calloc(1, sizeof *started);
    struct tcmulib_cmd *lib_cmd = &started->lib_cmd;
    int status = TCMU_STS_NOT_HANDLED;

    started->device = device;
    started->command = command;
    memcpy(started->iov, command->iov, sizeof started->iov);
    memset(command->sense, 0, sizeof command->sense);
    lib_cmd->cdb = command->cdb;
    lib_cmd->iovec = started->iov;
    lib_cmd->iov_cnt = command->iovcnt;
    memcpy(started->odd_place + 3 + offsetof(struct tcmur_cmd, lib_cmd), &lib_cmd, sizeof lib_cmd);
    pthread_mutex_lock(&device->mutex);
    device->under_way++;
    pthread_mutex_unlock(&device->mutex);
    if (device->handler->handle_cmd)
        status = device->handler->handle_cmd(device, runner_cmd(started));
    if (status != TCMU_STS_NOT_HANDLED) {
        finish(started, status);
    } else if (device->handler->nr_threads > 0) {
        enqueue(device, started);
    } else {
        status = call_handler(device, started);
        if (status != TCMU_STS_OK)
            finish(started, status);
    }
}

struct waiter {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool done;
};

static void wake_waiter(struct runner_command *command)
{
    struct waiter *waiter = command->owner;

    pthread_mutex_lock(&waiter->mutex);
    waiter->done = true;
    pthread_cond_signal(&waiter->cond);
    pthread_mutex_unlock(&waiter->mutex);
}

int runner_run(struct tcmu_device *device, struct runner_command *command)
{
    struct waiter waiter = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};

    command->done = wake_waiter;
    command->owner = &waiter;
    runner_submit(device, command);
    pthread_mutex_lock(&waiter.mutex);
    while (!waiter.done)
        pthread_cond_wait(&waiter.cond, &waiter.mutex);
    pthread_mutex_unlock(&waiter.mutex);
    return command->status;
}

void runner_read_write(struct runner_command *command, bool write, uint64_t lba, uint32_t sectors,
                       uint8_t flags)
{
    command->cdb_length = 16;
    memset(command->cdb, 0, sizeof command->cdb);
    command->cdb[0] = write ? 0x8a : 0x88;
    command->cdb[1] = flags;
    plx_put_be(command->cdb + 2, 8, lba);
    plx_put_be(command->cdb + 10, 4, sectors);
}

/* ---- Devices ---- */

struct tcmur_handler *runner_load(const char *path)
{
    unsigned before = handler_count;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    int (*init)(void) = NULL;

    if (library)
        *(void **)&init = dlsym(library, "handler_init");
    if (!init) {
        fprintf(stderr, "cannot load %s: %s\n", path, dlerror());
        return NULL;
    }
    if (init() != 0 || handler_count == before) {
        fprintf(stderr, "%s registered no handler\n", path);
        return NULL;
    }
    return handlers[before];
}

static void start_workers(struct tcmu_device *device)
{
    int count = device->handler->nr_threads;

    if (count == 0)
        return;
    device->workers = calloc((size_t)count, sizeof *device->workers);
    for (int i = 0; i < count; i++)
        pthread_create(&device->workers[i], NULL, work, device);
}

struct tcmu_device *runner_open(struct tcmur_handler *handler, const char *cfgstring,
                                uint64_t bytes, uint32_t sector_size, int *ret_error, char *reason,
                                size_t size)
{
    struct tcmu_device *device;
    char *why = NULL;

    if (handler->check_config && !handler->check_config(cfgstring, &why)) {
        snprintf(reason, size, "%s", why ? why : "");
        free(why);
        *ret_error = -EINVAL;
        return NULL;
    }
    device = calloc(1, sizeof *device);
    device->handler = handler;
    device->sector_size = sector_size;
    device->sectors = bytes / sector_size;
    device->max_transfer = 128;
    device->queue_end = &device->queue;
    snprintf(device->cfgstring, sizeof device->cfgstring, "%s", cfgstring);
    pthread_mutex_init(&device->mutex, NULL);
    pthread_cond_init(&device->idle, NULL);
    pthread_cond_init(&device->work, NULL);
    pthread_mutex_lock(&log_lock);
    errors[0] = '\0';
    pthread_mutex_unlock(&log_lock);
    *ret_error = handler->open(device, false);
    if (*ret_error) {
        pthread_mutex_lock(&log_lock);
        snprintf(reason, size, "%s", errors);
        pthread_mutex_unlock(&log_lock);
        free(device);
        return NULL;
    }
    start_workers(device);
    return device;
}

void runner_close(struct tcmu_device *device)
{
    pthread_mutex_lock(&device->mutex);
    while (device->under_way)
        pthread_cond_wait(&device->idle, &device->mutex);
    device->stop = true;
    pthread_cond_broadcast(&device->work);
    pthread_mutex_unlock(&device->mutex);
    for (int i = 0; i < device->handler->nr_threads; i++)
        pthread_join(device->workers[i], NULL);
    device->handler->close(device);
    free(device->workers);
    free(device);
}

int runner_reconfig(struct tcmu_device *device, struct tcmulib_cfg_info *info)
{
    int error = device->handler->reconfig ? device->handler->reconfig(device, info) : -EOPNOTSUPP;

    if (error == 0 && info->type == TCMULIB_CFG_DEV_SIZE)
        device->sectors = info->data.dev_size / device->sector_size;
    return error;
}

uint64_t runner_size(struct tcmu_device *device)
{
    return device->sectors * device->sector_size;
}
