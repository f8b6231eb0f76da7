/* answers.c - INQUIRY pages, MODE SENSE, LOG SENSE and lists of commands, where tcmu-runner's own
 * answers are not enough.
 *
 * ANSWERS-1  An answer is cut at the allocation length and at the buffer's end, but its length
 *     fields give the full length. So an initiator learns how much room it needs.
 * ANSWERS-2  No byte of the initiator's buffer keeps what the ring held before, because those bytes
 *     may be another initiator's data.
 * ANSWERS-3  Each claim made here is kept elsewhere:
 *
 *        claim                     kept by
 *        DPOFUA and the FUA bits   io.c
 *        pages for MODE SELECT     tcmu-runner, which accepts only pages equal to its own; so the
 *                                  bytes here are the same but for LBPERE
 *        opcodes                   scsi.c, tcmu-runner and the kernel
 *        thresholds                limits.c
 *
 * Threads: a device's command thread; no state.
 */
#include "tcmu/answers.h"

#include <string.h>

#include "tcmu/bytes.h"
#include "tcmu/provisioning.h"
#include "tcmu/sense.h"

#define PROVISIONING_THIN 2
#define OPCODE_BYTES_MAX 16

void plx_answer(struct tcmulib_cmd *lib_cmd, const void *bytes, size_t length,
                size_t allocation_length)
{
    const uint8_t *from = bytes;
    size_t left = length < allocation_length ? length : allocation_length; /* ANSWERS-1 */

    for (size_t i = 0; i < lib_cmd->iov_cnt; i++) {
        struct iovec *iov = &lib_cmd->iovec[i];
        size_t part = iov->iov_len < left ? iov->iov_len : left;

        if (part > 0)
            memcpy(iov->iov_base, from, part);
        memset((char *)iov->iov_base + part, 0, iov->iov_len - part);
        from += part;
        left -= part;
    }
}

/* ---- INQUIRY -------------------------------------------------------------------------------- */

static void block_limits(struct plx_lun *lun, uint8_t page[64])
{
    struct tcmu_device *device = lun->device;
    uint32_t granularity = PLX_BLOCK_SIZE / lun->sector_size;

    page[1] = 0xb0;
    plx_put_be(page + 2, 2, 60);
    page[4] = 0x01;                       /* WSNZ */
    page[5] = 1;                          /* COMPARE AND WRITE: one block, tcmu-runner's limit */
    plx_put_be(page + 6, 2, granularity); /* of transfers: one block of the store */
    plx_put_be(page + 8, 4, tcmu_dev_get_max_xfer_len(device));
    plx_put_be(page + 12, 4, tcmu_dev_get_max_xfer_len(device));
    plx_put_be(page + 20, 4, tcmu_dev_get_max_unmap_len(device));
    plx_put_be(page + 24, 4, VPD_MAX_UNMAP_BLOCK_DESC_COUNT);
    plx_put_be(page + 28, 4, granularity);
    page[32] = 0x80; /* alignment 0, valid */
    plx_put_be(page + 36, 8, VPD_MAX_WRITE_SAME_LENGTH);
}

static void logical_block_provisioning(const struct plx_lun *lun, uint8_t page[64])
{
    page[1] = 0xb2;
    plx_put_be(page + 2, 2, 4);
    page[4] = plx_provisioning_exponent(lun);
    page[5] = 0xe4; /* LBPU, LBPWS, LBPWS10, LBPRZ */
    page[6] = PROVISIONING_THIN;
}

int plx_answer_inquiry(struct plx_lun *lun, struct tcmulib_cmd *lib_cmd)
{
    const uint8_t *cdb = lib_cmd->cdb;
    uint8_t page[64] = {0};
    size_t length = sizeof page;

    if ((cdb[1] & 0x01) && cdb[2] == 0xb0) {
        block_limits(lun, page);
    } else if ((cdb[1] & 0x01) && cdb[2] == 0xb2) {
        logical_block_provisioning(lun, page);
        length = 8;
    } else {
        plx_answer(lib_cmd, page, 0, 0); /* ANSWERS-2: tcmu-runner fills only the beginning */
        return TCMU_STS_NOT_HANDLED;
    }
    plx_answer(lib_cmd, page, length, plx_get_be(cdb + 3, 2));
    return TCMU_STS_OK;
}

/* ---- MODE SENSE ----------------------------------------------------------------------------- */

static size_t put_page(uint8_t *to, uint8_t code, uint8_t length)
{
    memset(to, 0, length + 2u);
    to[0] = code;
    to[1] = length;
    return length + 2u;
}

static size_t put_recovery_page(uint8_t *to, bool values)
{
    size_t length = put_page(to, 0x01, 0x0a);

    if (values)
        to[7] = 0x80; /* LBPERE: crossed thresholds raise a unit attention */
    return length;
}

static size_t put_caching_page(uint8_t *to, bool values, bool write_back)
{
    size_t length = put_page(to, 0x08, 0x12);

    if (values && write_back)
        to[2] = 0x04; /* WCE */
    return length;
}

static size_t put_control_page(uint8_t *to, bool values)
{
    size_t length = put_page(to, 0x0a, 0x0a);

    if (values) {
        to[2] = 0x02;                      /* GLTSD */
        to[5] = 0x40;                      /* TAS */
        plx_put_be(to + 8, 2, UINT16_MAX); /* BUSY TIMEOUT PERIOD: no limit */
    }
    return length;
}

struct page_wanted {
    uint8_t code, subcode;
};

static bool wants(struct page_wanted wanted, uint8_t code, uint8_t subcode)
{
    return (wanted.code == code || wanted.code == 0x3f) &&
           (wanted.subcode == subcode || wanted.subcode == 0xff);
}

/* Returns the length of the pages that are wanted; 0: there is no such page. */
static size_t put_pages(const struct plx_lun *lun, uint8_t *to, struct page_wanted wanted,
                        bool values)
{
    size_t length = 0;

    if (wants(wanted, 0x01, 0))
        length += put_recovery_page(to + length, values);
    if (wants(wanted, 0x08, 0))
        length += put_caching_page(to + length, values, atomic_load(&lun->write_back));
    if (wants(wanted, 0x0a, 0))
        length += put_control_page(to + length, values);
    if (wants(wanted, 0x1c, 0x02))
        length += plx_provisioning_mode_page(lun, to + length, values);
    return length;
}

int plx_answer_mode_sense(struct plx_lun *lun, struct tcmulib_cmd *lib_cmd)
{
    const uint8_t *cdb = lib_cmd->cdb;
    bool ten = cdb[0] == 0x5a;
    size_t header = ten ? 8 : 4, length;
    uint8_t control = cdb[2] >> 6, answer[112] = {0};
    uint8_t specific = (lun->read_only ? 0x80 : 0) | 0x10; /* WP, DPOFUA (ANSWERS-3) */

    if (control == 3)
        return TCMU_STS_NOTSUPP_SAVE_PARAMS;
    /* Page control 1 asks which values can be changed: none. */
    length =
        put_pages(lun, answer + header, (struct page_wanted){cdb[2] & 0x3f, cdb[3]}, control != 1);
    if (length == 0)
        return plx_sense_invalid_field(lib_cmd, 2);
    length += header;
    if (ten) {
        plx_put_be(answer, 2, length - 2);
        answer[3] = specific;
    } else {
        answer[0] = (uint8_t)(length - 1);
        answer[2] = specific;
    }
    plx_answer(lib_cmd, answer, length, ten ? plx_get_be(cdb + 7, 2) : cdb[4]);
    return TCMU_STS_OK;
}

/* ---- LOG SENSE ---- */

int plx_answer_log_sense(struct plx_lun *lun, struct tcmulib_cmd *lib_cmd)
{
    static const uint8_t supported[] = {0x00, 0x00, 0x00, 0x02, 0x00, 0x0c};
    uint8_t page[PLX_PROVISIONING_LOG_BYTES];
    const uint8_t *cdb = lib_cmd->cdb;
    unsigned first = (unsigned)plx_get_be(cdb + 5, 2);
    size_t room = plx_get_be(cdb + 7, 2), length;

    if (cdb[1] & 0x01) /* SP asks to save parameters, which is not possible */
        return plx_sense_invalid_field(lib_cmd, 1);
    if (cdb[3])
        return plx_sense_invalid_field(lib_cmd, 3);
    switch (cdb[2] & 0x3f) {
    case 0x00:
        if (first)
            return plx_sense_invalid_field(lib_cmd, 5);
        plx_answer(lib_cmd, supported, sizeof supported, room);
        return TCMU_STS_OK;
    case 0x0c:
        length = plx_provisioning_log_page(lun, page, first);
        if (!length)
            return plx_sense_invalid_field(lib_cmd, 5);
        plx_answer(lib_cmd, page, length, room);
        return TCMU_STS_OK;
    default:
        return plx_sense_invalid_field(lib_cmd, 2);
    }
}

/* ---- REQUEST SENSE -------------------------------------------------------------------------- */

int plx_answer_request_sense(struct tcmulib_cmd *lib_cmd)
{
    uint8_t fixed[18] = {0x70, [7] = 10}, descriptors[8] = {0x72};
    bool wants_descriptors = lib_cmd->cdb[1] & 0x01;

    /* Every error was reported together with its sense, so no sense is pending. */
    if (wants_descriptors)
        plx_answer(lib_cmd, descriptors, sizeof descriptors, lib_cmd->cdb[4]);
    else
        plx_answer(lib_cmd, fixed, sizeof fixed, lib_cmd->cdb[4]);
    return TCMU_STS_OK;
}

/* ---- REPORT SUPPORTED OPERATION CODES -------------------------------------------------------- */

struct opcode {
    uint8_t code;
    int service_action; /* -1: none */
    uint8_t length;
    uint8_t usage[OPCODE_BYTES_MAX];
};

static const struct opcode opcodes[] = {
#define PLX_OPCODE(code, service_action, length, ...) {code, service_action, length, {__VA_ARGS__}},
#include "tcmu/opcodes.def"
#undef PLX_OPCODE
};
#define OPCODES (sizeof opcodes / sizeof opcodes[0])
#define DESCRIPTOR_BYTES 8
#define TIMEOUTS_BYTES 12 /* no timeout is given: all zero but for the length */

static size_t put_timeouts(uint8_t *to)
{
    memset(to, 0, TIMEOUTS_BYTES);
    plx_put_be(to, 2, TIMEOUTS_BYTES - 2);
    return TIMEOUTS_BYTES;
}

static int answer_all_opcodes(struct tcmulib_cmd *lib_cmd, bool timeouts)
{
    uint8_t answer[4 + OPCODES * (DESCRIPTOR_BYTES + TIMEOUTS_BYTES)] = {0};
    size_t length = 4;

    for (size_t i = 0; i < OPCODES; i++) {
        uint8_t *to = answer + length;

        to[0] = opcodes[i].code;
        if (opcodes[i].service_action >= 0) {
            plx_put_be(to + 2, 2, (uint64_t)opcodes[i].service_action);
            to[5] |= 0x01; /* SERVACTV */
        }
        plx_put_be(to + 6, 2, opcodes[i].length);
        length += DESCRIPTOR_BYTES;
        if (timeouts) {
            to[5] |= 0x02; /* CTDP */
            length += put_timeouts(answer + length);
        }
    }
    plx_put_be(answer, 4, length - 4);
    plx_answer(lib_cmd, answer, length, plx_get_be(lib_cmd->cdb + 6, 4));
    return TCMU_STS_OK;
}

static int answer_one_opcode(struct tcmulib_cmd *lib_cmd, const struct opcode *opcode,
                             bool timeouts)
{
    uint8_t answer[4 + OPCODE_BYTES_MAX + TIMEOUTS_BYTES] = {0};
    size_t length = 4;

    answer[1] = opcode ? 0x03 : 0x01; /* supported as the standard says; not supported */
    if (opcode) {
        plx_put_be(answer + 2, 2, opcode->length);
        memcpy(answer + 4, opcode->usage, opcode->length);
        length += opcode->length;
        if (timeouts) {
            answer[1] |= 0x80;
            length += put_timeouts(answer + length);
        }
    }
    plx_answer(lib_cmd, answer, length, plx_get_be(lib_cmd->cdb + 6, 4));
    return TCMU_STS_OK;
}

int plx_answer_opcodes(struct tcmulib_cmd *lib_cmd)
{
    const uint8_t *cdb = lib_cmd->cdb;
    unsigned option = cdb[2] & 0x07;
    int wanted = (int)plx_get_be(cdb + 4, 2);
    bool timeouts = cdb[2] & 0x80, has_actions = false;
    const struct opcode *plain = NULL, *action = NULL;

    for (size_t i = 0; i < OPCODES; i++) {
        if (opcodes[i].code != cdb[3])
            continue;
        if (opcodes[i].service_action < 0)
            plain = &opcodes[i];
        else
            has_actions = true;
        if (opcodes[i].service_action == wanted)
            action = &opcodes[i];
    }
    switch (option) {
    case 0:
        return answer_all_opcodes(lib_cmd, timeouts);
    case 1: /* a command without service actions */
        return has_actions ? plx_sense_invalid_field(lib_cmd, 2)
                           : answer_one_opcode(lib_cmd, plain, timeouts);
    case 2: /* a command with service actions */
        return plain ? plx_sense_invalid_field(lib_cmd, 2)
                     : answer_one_opcode(lib_cmd, action, timeouts);
    case 3: /* either */
        return answer_one_opcode(lib_cmd,
                                 has_actions   ? action
                                 : wanted == 0 ? plain
                                               : NULL,
                                 timeouts);
    default:
        return plx_sense_invalid_field(lib_cmd, 2);
    }
}
