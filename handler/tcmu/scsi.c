/* scsi.c - commands that tcmu-runner lacks, checks that it leaves out, and ways around its bugs.
 *
 * What happens to a command:
 *
 *  command                                   here                               then
 *  READ, WRITE, UNMAP, SYNCHRONIZE CACHE     two bytes are checked, or nothing  tcmu-runner, io.c
 *  WRITE SAME, COMPARE AND WRITE, FORMAT,    parameters are checked             tcmu-runner, io.c
 *  EXTENDED COPY
 *  VERIFY, WRITE AND VERIFY (12), ORWRITE,   carried out (SCSI-2)               done
 *  PRE-FETCH, GET LBA STATUS, WRITE SAME
 *  without data
 *  INQUIRY, MODE SENSE, LOG SENSE and other  answers.c, or nothing              done, or
 *  questions about the LUN                                                      tcmu-runner
 *  others                                    nothing                            tcmu-runner
 *
 * SCSI-1  Every command comes here first, and reads and writes leave again after a look at two
 *     bytes, because they are most of the load.
 * SCSI-2  A command that is carried out here blocks its device's command thread until its I/O is
 *     done, because tcmu-runner offers no other way. Commands behind it wait. Commands before it
 *     and other LUNs go on.
 * SCSI-3  ORWRITE is atomic. It writes with COMPARE AND WRITE against the bytes that it read, again
 *     and again until no other write came in between.
 * SCSI-4  A CDB that asks for something that does not exist here (protection information, anchored
 *     blocks) is refused, because ignoring the request would promise it.
 * SCSI-5  The alignment of unmaps is never 0, and tcmu-runner does not split unmaps. It would
 *     divide by the alignment, and it would call the handler once for each 4 KiB. The Block Limits
 *     page that initiators see comes from answers.c.
 *
 * Threads: a device's command thread.
 */
#include "tcmu/scsi.h"

#include <stdlib.h>

#include "tcmu/answers.h"
#include "tcmu/bytes.h"
#include "tcmu/io.h"
#include "tcmu/loop.h"
#include "tcmu/sense.h"

#define TRANSFER_BYTES (1u << 20)
#define STEP_BYTES (1u << 20) /* VERIFY reads and compares so much at a time */
#define STATUS_BYTES_MAX (1ull << 30)
#define STATUS_RUNS_MAX 64

/* The range of a CDB. */
struct cdb_range {
    uint64_t offset, length; /* bytes */
};

/* ---- Looking at the CDB --------------------------------------------------------------------- */

static int get_range(const struct plx_lun *lun, struct tcmulib_cmd *lib_cmd, struct cdb_range *ret)
{
    uint64_t sectors = atomic_load(&lun->size_bytes) / lun->sector_size;
    uint64_t lba = tcmu_cdb_get_lba(lib_cmd->cdb), count = tcmu_cdb_get_xfer_length(lib_cmd->cdb);

    if (lba > sectors || count > sectors - lba)
        return plx_sense_status(lib_cmd, PLX_ERR_RANGE, 0);
    ret->offset = lba * lun->sector_size;
    ret->length = count * lun->sector_size;
    return TCMU_STS_OK;
}

static uint64_t data_bytes(const struct tcmulib_cmd *lib_cmd)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < lib_cmd->iov_cnt; i++)
        sum += lib_cmd->iovec[i].iov_len;
    return sum;
}

/* Copies a part of the data-out buffer. */
static void copy_data(const struct tcmulib_cmd *lib_cmd, uint64_t from, void *to, size_t count)
{
    char *next = to;

    for (size_t i = 0; i < lib_cmd->iov_cnt && count > 0; i++) {
        const struct iovec *iov = &lib_cmd->iovec[i];
        size_t part;

        if (from >= iov->iov_len) {
            from -= iov->iov_len;
            continue;
        }
        part = iov->iov_len - from < count ? iov->iov_len - from : count;
        memcpy(next, (char *)iov->iov_base + from, part);
        next += part;
        count -= part;
        from = 0;
    }
}

/* ---- I/O that the command thread waits for (SCSI-2) ------------------------------------------ */

static int run(struct plx_lun *lun, enum plx_request_op op, uint64_t offset, uint64_t length,
               struct iovec *iov, int iovcnt, uint64_t *ret_miscompare)
{
    struct plx_request request = {
        .op = op,
        .fua = op != PLX_READ,
        .offset = offset,
        .length = length,
        .iov = iov,
        .iovcnt = iovcnt,
    };
    int result = plx_loop_run(lun->loop, lun->vdi, &request);

    if (ret_miscompare)
        *ret_miscompare = request.miscompare_offset;
    return result;
}

static int read_step(struct plx_lun *lun, uint64_t offset, void *buffer, size_t bytes)
{
    struct iovec iov = {buffer, bytes};

    return run(lun, PLX_READ, offset, bytes, &iov, 1, NULL);
}

/* The first offset where two buffers differ; `bytes` if they are equal. */
static size_t first_difference(const char *a, const char *b, size_t bytes)
{
    size_t i = 0;

    if (memcmp(a, b, bytes) == 0)
        return bytes;
    while (a[i] == b[i])
        i++;
    return i;
}

/* Reads a range in steps. compare false: the range only has to be readable. Otherwise compares it
 * with the command's data, or, if period is not 0, with the data repeated every `period` bytes. */
static int verify_range(struct plx_lun *lun, struct tcmulib_cmd *lib_cmd,
                        const struct cdb_range *range, bool compare, size_t period)
{
    char *stored = malloc(STEP_BYTES), *given = malloc(STEP_BYTES);
    int result = stored && given ? 0 : PLX_ERR_NOMEM;
    uint64_t miscompare = 0;

    for (uint64_t at = 0; result == 0 && at < range->length; at += STEP_BYTES) {
        size_t bytes = range->length - at < STEP_BYTES ? range->length - at : STEP_BYTES;

        result = read_step(lun, range->offset + at, stored, bytes);
        if (result < 0 || !compare)
            continue;
        if (period == 0)
            copy_data(lib_cmd, at, given, bytes);
        for (size_t i = 0; period && i < bytes; i += period)
            copy_data(lib_cmd, 0, given + i, period);
        miscompare = first_difference(stored, given, bytes);
        if (miscompare < bytes) {
            miscompare += at;
            result = PLX_ERR_MISCOMPARE;
        }
    }
    free(stored);
    free(given);
    return plx_sense_status(lib_cmd, result, miscompare);
}

/* ---- Commands ------------------------------------------------------------------------------- */

static int verify(struct plx_lun *lun, struct tcmulib_cmd *lib_cmd)
{
    const uint8_t *cdb = lib_cmd->cdb;
    unsigned check = cdb[1] >> 1 & 3; /* BYTCHK */
    struct cdb_range range;
    int status;

    if ((cdb[1] & 0xe0) || check == 2)
        return TCMU_STS_INVALID_CDB;
    status = get_range(lun, lib_cmd, &range);
    if (status != TCMU_STS_OK || range.length == 0)
        return status;
    if ((check == 1 && data_bytes(lib_cmd) != range.length) ||
        (check == 3 && data_bytes(lib_cmd) != lun->sector_size))
        return TCMU_STS_INVALID_CDB;
    return verify_range(lun, lib_cmd, &range, check != 0, check == 3 ? lun->sector_size : 0);
}

static int write_verify_12(struct plx_lun *lun, struct tcmulib_cmd *lib_cmd)
{
    struct cdb_range range;
    int status, result;

    if (lib_cmd->cdb[1] & 0xe0)
        return TCMU_STS_INVALID_CDB;
    status = get_range(lun, lib_cmd, &range);
    if (status != TCMU_STS_OK || range.length == 0)
        return status;
    if (data_bytes(lib_cmd) != range.length)
        return TCMU_STS_INVALID_CDB;
    if (lun->read_only)
        return plx_sense_status(lib_cmd, PLX_ERR_READONLY, 0);
    result = run(lun, PLX_WRITE, range.offset, range.length, lib_cmd->iovec, (int)lib_cmd->iov_cnt,
                 NULL);
    if (result < 0)
        return plx_sense_status(lib_cmd, result, 0);
    return verify_range(lun, lib_cmd, &range, true, 0);
}

/* SCSI-3, for one part. The old bytes and the new ones follow each other in memory, as
 * COMPARE_WRITE wants them. */
static int or_step(struct plx_lun *lun, struct tcmulib_cmd *lib_cmd, uint64_t at, uint64_t offset,
                   char *old, size_t bytes)
{
    char *new = old + bytes;
    struct iovec iov = {old, 2 * bytes};
    int result;

    do {
        result = read_step(lun, offset, old, bytes);
        if (result < 0)
            return result;
        copy_data(lib_cmd, at, new, bytes);
        for (size_t i = 0; i < bytes; i++)
            new[i] |= old[i];
        result = run(lun, PLX_COMPARE_WRITE, offset, bytes, &iov, 1, NULL);
    } while (result == PLX_ERR_MISCOMPARE);
    return result;
}

static int or_write(struct plx_lun *lun, struct tcmulib_cmd *lib_cmd)
{
    struct cdb_range range;
    char *buffer;
    int status, result = 0;

    if (lib_cmd->cdb[1] & 0xe0)
        return TCMU_STS_INVALID_CDB;
    status = get_range(lun, lib_cmd, &range);
    if (status != TCMU_STS_OK || range.length == 0)
        return status;
    if (data_bytes(lib_cmd) != range.length)
        return TCMU_STS_INVALID_CDB;
    if (lun->read_only)
        return plx_sense_status(lib_cmd, PLX_ERR_READONLY, 0);
    buffer = malloc(2 * PLX_COMPARE_MAX);
    if (!buffer)
        return TCMU_STS_NO_RESOURCE;
    for (uint64_t at = 0; result == 0 && at < range.length; at += PLX_COMPARE_MAX) {
        uint64_t left = range.length - at;
        size_t bytes = left < PLX_COMPARE_MAX ? left : PLX_COMPARE_MAX;

        result = or_step(lun, lib_cmd, at, range.offset + at, buffer, bytes);
    }
    free(buffer);
    return plx_sense_status(lib_cmd, result, 0);
}

static int prefetch(struct plx_lun *lun, struct tcmulib_cmd *lib_cmd)
{
    struct cdb_range range;

    /* PRE-FETCH is a hint and may do nothing; GOOD says that not everything fitted into the cache.
     */
    return get_range(lun, lib_cmd, &range);
}

static int write_same(struct plx_lun *lun, struct tcmulib_cmd *lib_cmd)
{
    const uint8_t *cdb = lib_cmd->cdb;
    bool sixteen = cdb[0] == 0x93, no_data = sixteen && (cdb[1] & 0x01);
    struct cdb_range range;
    int status;

    /* SCSI-4: refuses WRPROTECT and ANCHOR, and in the short form PBDATA and LBDATA. */
    if ((cdb[1] & 0xf0) || (cdb[1] & (sixteen ? 0x06 : 0x07)))
        return TCMU_STS_INVALID_CDB;
    if (!no_data)
        return TCMU_STS_NOT_HANDLED;
    /* NDOB: writes zeroes and brings no data, which tcmu-runner takes for an error. */
    status = get_range(lun, lib_cmd, &range);
    if (status != TCMU_STS_OK)
        return status;
    if (range.length == 0)
        return TCMU_STS_INVALID_CDB; /* WSNZ */
    if (lun->read_only)
        return plx_sense_status(lib_cmd, PLX_ERR_READONLY, 0);
    return plx_sense_status(lib_cmd, run(lun, PLX_UNMAP, range.offset, range.length, NULL, 0, NULL),
                            0);
}

/* tcmu-runner knows only parameter lists with LIST ID USAGE 11b (ESXi's). It answers other lists as
 * wrong parameters. INVALID CMD tells their senders instead that this kind of copy does not exist
 * here, so that they copy by themselves. */
static int check_extended_copy(struct tcmulib_cmd *lib_cmd)
{
    uint8_t header[2] = {0};

    copy_data(lib_cmd, 0, header, sizeof header);
    return (header[1] & 0x18) == 0x18 ? TCMU_STS_NOT_HANDLED : TCMU_STS_INVALID_CMD;
}

/* tcmu-runner formats by writing zeroes. If the first write fails at once, it answers TASK SET
 * FULL, and the initiator would repeat the command for ever. So a read-only LUN is refused here. */
static int check_format(struct plx_lun *lun, struct tcmulib_cmd *lib_cmd)
{
    return lun->read_only ? plx_sense_status(lib_cmd, PLX_ERR_READONLY, 0) : TCMU_STS_NOT_HANDLED;
}

static int check_compare_and_write(struct plx_lun *lun, struct tcmulib_cmd *lib_cmd)
{
    const uint8_t *cdb = lib_cmd->cdb;

    if ((cdb[1] & 0xe0) || cdb[13] > 1 || data_bytes(lib_cmd) != 2ull * cdb[13] * lun->sector_size)
        return TCMU_STS_INVALID_CDB;
    return TCMU_STS_NOT_HANDLED;
}

/* ---- GET LBA STATUS ------------------------------------------------------------------------- */

struct status_answer {
    uint8_t bytes[8 + 16 * STATUS_RUNS_MAX];
    unsigned runs, runs_max;
    uint32_t sector_size;
};

static bool put_run(void *context, uint64_t offset, uint64_t length, bool mapped)
{
    struct status_answer *answer = context;
    uint8_t *to = answer->bytes + 8 + 16 * answer->runs;

    plx_put_be(to, 8, offset / answer->sector_size);
    plx_put_be(to + 8, 4, length / answer->sector_size);
    to[12] = mapped ? 0 : 1;
    return ++answer->runs < answer->runs_max;
}

static int get_lba_status(struct plx_lun *lun, struct tcmulib_cmd *lib_cmd)
{
    struct status_answer answer = {.sector_size = lun->sector_size};
    uint64_t size = atomic_load(&lun->size_bytes), lba = plx_get_be(lib_cmd->cdb + 2, 8), length;
    uint64_t room = plx_get_be(lib_cmd->cdb + 10, 4);
    int result = 0;

    if (lba >= size / lun->sector_size)
        return plx_sense_status(lib_cmd, PLX_ERR_RANGE, 0);
    length = plx_min_u64(size - lba * lun->sector_size, STATUS_BYTES_MAX);
    answer.runs_max = room < 24 ? 1 : (unsigned)plx_min_u64((room - 8) / 16, STATUS_RUNS_MAX);
    plx_loop_lock(lun->loop);
    result = plx_vdi_map_runs(lun->vdi, lba * lun->sector_size, length, put_run, &answer, NULL);
    plx_loop_unlock(lun->loop);
    if (result < 0)
        return plx_sense_status(lib_cmd, result, 0);
    plx_put_be(answer.bytes, 4, 4 + 16 * answer.runs);
    plx_answer(lib_cmd, answer.bytes, 8 + 16 * answer.runs, room);
    return TCMU_STS_OK;
}

/* ---- Dispatch ------------------------------------------------------------------------------- */

/* SCSI-4 */
static int check_protection(const uint8_t *cdb)
{
    return cdb[1] & 0xe0 ? TCMU_STS_INVALID_CDB : TCMU_STS_NOT_HANDLED;
}

/* Takes a unit attention that this command reports; returns its codes, 0: none. The kernel does not
 * tell which initiator sends a command, so only the first initiator to come is told. After a rewind
 * the attention is 28h/00h, because it says that data read before may have changed; REPORTED LUNS
 * DATA HAS CHANGED would make initiators look for other LUNs. */
static uint16_t take_attention(struct plx_lun *lun, uint8_t opcode)
{
    static const struct {
        enum plx_attention what;
        uint16_t codes;
    } all[] = {
        {PLX_ATTENTION_CHANGED, 0x2800},   /* NOT READY TO READY CHANGE, MEDIUM MAY HAVE CHANGED */
        {PLX_ATTENTION_THRESHOLD, 0x3807}, /* THIN PROVISIONING SOFT THRESHOLD REACHED */
    };
    bool exempt =
        opcode == 0x12 || opcode == 0xa0 || opcode == 0x03; /* SPC: never report attentions */

    if (exempt || !atomic_load(&lun->attentions))
        return 0;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (atomic_fetch_and(&lun->attentions, ~(unsigned)all[i].what) & all[i].what)
            return all[i].codes;
    return 0;
}

/* SCSI-1 */
int plx_scsi_handle(struct tcmu_device *device, struct tcmur_cmd *cmd)
{
    struct plx_lun *lun = tcmur_dev_get_private(device);
    struct tcmulib_cmd *lib_cmd = plx_lib_cmd(cmd);
    const uint8_t *cdb = lib_cmd->cdb;
    uint16_t attention = take_attention(lun, cdb[0]);

    if (attention)
        return plx_sense_attention(lib_cmd, attention);
    switch (cdb[0]) {
    case 0x28: /* READ (10), WRITE (10), WRITE AND VERIFY (10), and their long forms */
    case 0x2a:
    case 0x2e:
    case 0xa8:
    case 0xaa:
    case 0x88:
    case 0x8a:
    case 0x8e:
        return check_protection(cdb);
    case 0x89:
        return check_compare_and_write(lun, lib_cmd);
    case 0x04:
        return check_format(lun, lib_cmd);
    case 0x83:
        return check_extended_copy(lib_cmd);
    case 0x41:
    case 0x93:
        return write_same(lun, lib_cmd);
    case 0x2f:
    case 0xaf:
    case 0x8f:
        return verify(lun, lib_cmd);
    case 0xae:
        return write_verify_12(lun, lib_cmd);
    case 0x8b:
        return or_write(lun, lib_cmd);
    case 0x34:
    case 0x90:
        return prefetch(lun, lib_cmd);
    case 0x12:
        return plx_answer_inquiry(lun, lib_cmd);
    case 0x1a:
    case 0x5a:
        return plx_answer_mode_sense(lun, lib_cmd);
    case 0x4d:
        return plx_answer_log_sense(lun, lib_cmd);
    case 0x03:
        return plx_answer_request_sense(lib_cmd);
    case 0x9e:
        return (cdb[1] & 0x1f) == 0x12 ? get_lba_status(lun, lib_cmd) : TCMU_STS_NOT_HANDLED;
    case 0xa3:
        return (cdb[1] & 0x1f) == 0x0c ? plx_answer_opcodes(lib_cmd) : TCMU_STS_NOT_HANDLED;
    default:
        return TCMU_STS_NOT_HANDLED;
    }
}

void plx_scsi_set_limits(struct tcmu_device *device)
{
    uint32_t sector_size = tcmu_dev_get_block_size(device);
    uint32_t granularity = PLX_BLOCK_SIZE / sector_size;

    tcmu_dev_set_max_xfer_len(device, TRANSFER_BYTES / sector_size);
    tcmu_dev_set_opt_xcopy_rw_len(device, TRANSFER_BYTES / sector_size);
    tcmu_dev_set_max_unmap_len(device, VPD_MAX_UNMAP_LBA_COUNT);
    tcmu_dev_set_opt_unmap_gran(device, granularity, false); /* SCSI-5 */
    tcmu_dev_set_unmap_gran_align(device, granularity);
    tcmu_dev_set_unmap_enabled(device, true);
    tcmu_dev_set_solid_state_media(device, true);
}
