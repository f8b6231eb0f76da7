/* sense.c - puts the sense key and codes of error.def where tcmu-runner wants them.
 *
 * SENSE-1  Every error of the engine gets its sense from error.def and from nowhere else. Two
 *     errors need more than that: NOMEM becomes the status TASK SET FULL, so that the initiator
 *     tries again, and MISCOMPARE carries the offset. A unit attention is no error.
 *
 * Threads: any; the functions touch only the command.
 */
#include "tcmu/sense.h"

/* SENSE-1 */
int plx_sense_status(struct tcmulib_cmd *lib_cmd, int result, uint64_t miscompare_offset)
{
    struct plx_sense sense = plx_error_sense(result);

    switch (result) {
    case PLX_OK:
        return TCMU_STS_OK;
    case PLX_ERR_NOMEM:
        return TCMU_STS_NO_RESOURCE;
    case PLX_ERR_MISCOMPARE:
        tcmu_sense_set_info(lib_cmd->sense_buf, (uint32_t)miscompare_offset);
        return TCMU_STS_MISCOMPARE;
    default:
        return tcmu_sense_set_data(lib_cmd->sense_buf, sense.key,
                                   (uint16_t)(sense.asc << 8 | sense.ascq));
    }
}

int plx_sense_invalid_field(struct tcmulib_cmd *lib_cmd, uint8_t byte)
{
    int status = tcmu_sense_set_data(lib_cmd->sense_buf, 0x05, 0x2400);

    lib_cmd->sense_buf[15] = 0xc0; /* SKSV, of the CDB */
    lib_cmd->sense_buf[17] = byte;
    return status;
}

int plx_sense_attention(struct tcmulib_cmd *lib_cmd, uint16_t codes)
{
    return tcmu_sense_set_data(lib_cmd->sense_buf, 0x06, codes);
}
