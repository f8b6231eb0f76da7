/* io.c - the data path between tcmu-runner and the engine.
 *
 * The life of a command:
 *
 *  no  state      who moves it on     what happens
 *   1  callback   the command thread  op_start checks it and takes an op from the LUN's pool
 *   2  posted     loop.c              op_submit hands the request to the engine
 *   3  in flight  the engine          op_done: the next part of a WRITE SAME, another try, or done
 *   4  completed  op_complete         the op is free; tcmu-runner hears of the completion
 *
 * IO-1  A command that was taken (its callback returned 0) is completed exactly once, from any
 *     thread and in any order. A command that was not taken is never completed.
 * IO-2  An op belongs to its command up to the completion. It returns to the pool before
 *     tcmu-runner hears of the completion, because that call may bring the next command at once.
 * IO-3  The data path allocates no memory, except for the pattern of WRITE SAME. If all ops are
 *     taken, the command fails with TASK SET FULL and the initiator sends it again.
 * IO-4  A read or write of length 0, or one that reaches outside the LUN, never gets to the engine.
 * IO-5  A failed UNMAP is tried again here, because tcmu-runner reports it as GOOD. If it fails for
 *     good, the log says so. Only space is lost: the data reads as before.
 * IO-6  A LUN logs at most COMPLAINTS_MAX failed requests per second, since in a full store every
 *     write fails. The first failure after that second says how many were not logged.
 *
 * Threads: callbacks come from the device's command thread, or, for compound commands, from within
 *   a completion on the thread that holds the loop. ops_lock is held for a few instructions only.
 */
#include "tcmu/io.h"

#include <stdlib.h>

#include "registry/clock.h"
#include "tcmu/loop.h"
#include "tcmu/say.h"
#include "tcmu/sense.h"

#define CDB_FUA 0x08
#define UNMAP_TRIES 3
#define PATTERN_BYTES (64u << 10)
#define PATTERN_REPEATS 16
#define COMPLAINTS_MAX 8

struct plx_lun_io {
    struct plx_work work; /* first */
    struct plx_lun_io *next_free;
    struct plx_lun *lun;
    struct tcmur_cmd *cmd;
    struct plx_request request;
    unsigned tries;
    /* WRITE SAME: the repeated sector, and the bytes to be written after this request. */
    char *pattern;
    uint64_t left;
    struct iovec repeats[PATTERN_REPEATS];
};

/* ---- Ops ------------------------------------------------------------------------------------ */

int plx_io_init(struct plx_lun *lun)
{
    lun->ops = calloc(PLX_OPS_PER_LUN, sizeof *lun->ops);
    if (!lun->ops)
        return PLX_ERR_NOMEM;
    pthread_mutex_init(&lun->ops_lock, NULL);
    for (unsigned i = PLX_OPS_PER_LUN; i-- > 0;) {
        lun->ops[i].lun = lun;
        lun->ops[i].next_free = lun->free_ops;
        lun->free_ops = &lun->ops[i];
    }
    return 0;
}

void plx_io_done(struct plx_lun *lun)
{
    if (!lun->ops)
        return;
    pthread_mutex_destroy(&lun->ops_lock);
    free(lun->ops);
    lun->ops = lun->free_ops = NULL;
}

static struct plx_lun_io *op_take(struct plx_lun *lun)
{
    struct plx_lun_io *op;

    pthread_mutex_lock(&lun->ops_lock);
    op = lun->free_ops;
    if (op)
        lun->free_ops = op->next_free;
    pthread_mutex_unlock(&lun->ops_lock);
    return op;
}

static void op_release(struct plx_lun_io *op)
{
    struct plx_lun *lun = op->lun;

    free(op->pattern);
    op->pattern = NULL;
    pthread_mutex_lock(&lun->ops_lock);
    op->next_free = lun->free_ops;
    lun->free_ops = op;
    pthread_mutex_unlock(&lun->ops_lock);
}

/* ---- Completion ------------------------------------------------------------------------------ */

/* IO-6. Called on the loop. */
static bool may_complain(struct plx_lun *lun)
{
    uint64_t second = plx_clock_ns(CLOCK_MONOTONIC_COARSE) / 1000000000u;

    if (second != lun->complaints_second) {
        if (lun->complaints > COMPLAINTS_MAX)
            plx_say(error, lun->device, "%s/%s: %u more request%s failed, not logged one by one",
                    lun->config.store, lun->config.vdi, lun->complaints - COMPLAINTS_MAX,
                    plx_plural(lun->complaints - COMPLAINTS_MAX));
        lun->complaints_second = second;
        lun->complaints = 0;
    }
    return lun->complaints++ < COMPLAINTS_MAX;
}

static void complain(const struct plx_lun_io *op)
{
    const struct plx_request *request = &op->request;
    struct tcmu_device *device = op->lun->device;
    const char *why =
        request->fault.text[0] ? request->fault.text : plx_error_text(request->result);

    plx_say(error, device, "%s/%s: request at %llu, %llu bytes: %s", op->lun->config.store,
            op->lun->config.vdi, (unsigned long long)request->offset,
            (unsigned long long)request->length, why);
}

static void op_complete(struct plx_lun_io *op)
{
    struct tcmu_device *device = op->lun->device;
    struct tcmur_cmd *cmd = op->cmd;
    int result = op->request.result, status;

    if (result < 0 && plx_error_class(result) != PLX_CLASS_INVALID && may_complain(op->lun))
        complain(op);
    status = plx_sense_status(plx_lib_cmd(cmd), result, op->request.miscompare_offset);
    op_release(op);                          /* IO-2 */
    tcmur_cmd_complete(device, cmd, status); /* IO-1 */
}

static void op_submit(struct plx_work *work)
{
    struct plx_lun_io *op = (struct plx_lun_io *)work;

    plx_vdi_submit(op->lun->vdi, &op->request);
}

static void op_post(struct plx_lun_io *op)
{
    op->work.run = op_submit;
    plx_loop_post(op->lun->loop, &op->work);
}

/* Posts the next part of a WRITE SAME. */
static void write_same_next(struct plx_lun_io *op)
{
    struct plx_request *request = &op->request;
    uint64_t bytes = op->left;
    int count = 0;

    request->offset += request->length;
    if (bytes > PATTERN_BYTES * PATTERN_REPEATS)
        bytes = PATTERN_BYTES * PATTERN_REPEATS;
    op->left -= bytes;
    request->length = bytes;
    while (bytes > 0) {
        size_t part = bytes < PATTERN_BYTES ? (size_t)bytes : PATTERN_BYTES;

        op->repeats[count++] = (struct iovec){op->pattern, part};
        bytes -= part;
    }
    request->iov = op->repeats;
    request->iovcnt = count;
    op_post(op);
}

/* IO-5 */
static bool worth_another_try(const struct plx_lun_io *op)
{
    enum plx_error_class class = plx_error_class(op->request.result);

    return op->request.op == PLX_UNMAP && op->tries < UNMAP_TRIES &&
           (class == PLX_CLASS_BUSY || class == PLX_CLASS_NOMEM || class == PLX_CLASS_IO);
}

static void op_done(struct plx_request *request)
{
    struct plx_lun_io *op = request->owner;

    if (request->result == 0 && op->left > 0) {
        write_same_next(op);
    } else if (request->result < 0 && worth_another_try(op)) {
        op->tries++;
        op_post(op);
    } else {
        op_complete(op);
    }
}

/* ---- Callbacks ------------------------------------------------------------------------------- */

static bool has_fua(const uint8_t *cdb)
{
    switch (cdb[0]) {
    case 0x0a: /* READ (6) and WRITE (6): there the bit is a part of the address */
    case 0x08:
        return false;
    case 0x2e: /* WRITE AND VERIFY: verified data must be durable */
    case 0x8e:
        return true;
    case 0x28: /* READ and WRITE (10), (12), (16); COMPARE AND WRITE */
    case 0x2a:
    case 0xa8:
    case 0xaa:
    case 0x88:
    case 0x8a:
    case 0x89:
        return cdb[1] & CDB_FUA;
    default:
        return false;
    }
}

/* The checks for all commands, then takes an op. Another status than OK is the command's result. */
static int op_start(struct tcmu_device *device, struct tcmur_cmd *cmd, enum plx_request_op kind,
                    uint64_t offset, uint64_t length, struct plx_lun_io **ret_op)
{
    struct plx_lun *lun = tcmur_dev_get_private(device);
    struct tcmulib_cmd *lib_cmd = plx_lib_cmd(cmd);
    uint64_t size = atomic_load(&lun->size_bytes);
    struct plx_lun_io *op;

    if (offset > size || length > size - offset) /* IO-4 */
        return plx_sense_status(lib_cmd, PLX_ERR_RANGE, 0);
    if (lun->read_only && kind != PLX_READ && kind != PLX_FLUSH)
        return plx_sense_status(lib_cmd, PLX_ERR_READONLY, 0);
    op = op_take(lun);
    if (!op) /* IO-3 */
        return TCMU_STS_NO_RESOURCE;
    op->cmd = cmd;
    op->tries = 0;
    op->left = 0;
    memset(&op->request, 0, offsetof(struct plx_request, label));
    op->request.label[0] = '\0';
    op->request.fault.text[0] = '\0';
    op->request.result = 0;
    op->request.miscompare_offset = 0;
    op->request.op = kind;
    op->request.fua = has_fua(lib_cmd->cdb);
    op->request.offset = offset;
    op->request.length = length;
    op->request.done = op_done;
    op->request.owner = op;
    *ret_op = op;
    return TCMU_STS_OK;
}

static int transfer(struct tcmu_device *device, struct tcmur_cmd *cmd, enum plx_request_op kind,
                    struct iovec *iov, size_t iovcnt, uint64_t length, uint64_t offset)
{
    struct plx_lun_io *op;
    int status = op_start(device, cmd, kind, offset, length, &op);

    if (status != TCMU_STS_OK)
        return status;
    op->request.iov = iov;
    op->request.iovcnt = (int)iovcnt;
    if (length == 0)
        op_complete(op);
    else
        op_post(op);
    return TCMU_STS_OK;
}

int plx_io_read(struct tcmu_device *device, struct tcmur_cmd *cmd, struct iovec *iov, size_t iovcnt,
                size_t length, off_t offset)
{
    return transfer(device, cmd, PLX_READ, iov, iovcnt, length, (uint64_t)offset);
}

int plx_io_write(struct tcmu_device *device, struct tcmur_cmd *cmd, struct iovec *iov,
                 size_t iovcnt, size_t length, off_t offset)
{
    return transfer(device, cmd, PLX_WRITE, iov, iovcnt, length, (uint64_t)offset);
}

int plx_io_flush(struct tcmu_device *device, struct tcmur_cmd *cmd)
{
    struct plx_lun_io *op;
    int status = op_start(device, cmd, PLX_FLUSH, 0, 0, &op);

    if (status != TCMU_STS_OK)
        return status;
    if (op->lun->read_only)
        op_complete(op);
    else
        op_post(op);
    return TCMU_STS_OK;
}

int plx_io_unmap(struct tcmu_device *device, struct tcmur_cmd *cmd, uint64_t offset,
                 uint64_t length)
{
    return transfer(device, cmd, PLX_UNMAP, NULL, 0, length, offset);
}

static bool is_zero(const char *bytes, size_t length)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, length - 1) == 0;
}

int plx_io_write_same(struct tcmu_device *device, struct tcmur_cmd *cmd, uint64_t offset,
                      uint64_t length, struct iovec *iov, size_t iovcnt)
{
    struct plx_lun_io *op;
    size_t sector = iov[0].iov_len;
    int status;

    /* tcmu-runner has checked that the data is one sector in one piece, and that the length is not
     * 0. The store holds no blocks of zeroes, so zeroes become an UNMAP. */
    if (is_zero(iov[0].iov_base, sector))
        return transfer(device, cmd, PLX_UNMAP, NULL, 0, length, offset);
    status = op_start(device, cmd, PLX_WRITE, offset, length, &op);
    if (status != TCMU_STS_OK)
        return status;
    op->pattern = malloc(PATTERN_BYTES);
    if (!op->pattern) {
        op_release(op);
        return TCMU_STS_NO_RESOURCE;
    }
    for (size_t at = 0; at < PATTERN_BYTES; at += sector)
        memcpy(op->pattern + at, iov[0].iov_base, sector);
    op->left = length;
    op->request.length = 0;
    write_same_next(op);
    return TCMU_STS_OK;
}

int plx_io_compare_write(struct tcmu_device *device, struct tcmur_cmd *cmd, uint64_t offset,
                         uint64_t length, struct iovec *iov, size_t iovcnt)
{
    return transfer(device, cmd, PLX_COMPARE_WRITE, iov, iovcnt, length, offset);
}
