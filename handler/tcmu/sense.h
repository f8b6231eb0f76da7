/* sense.h - from our errors to what the initiator sees. */
#ifndef PLX_SENSE_H
#define PLX_SENSE_H

#include "engine/base/error.h"
#include "tcmu/runner.h"

/* The TCMU status for a result (0 or PLX_ERR_*), with the sense bytes of error.def put into the
 * command where SCSI wants some. miscompare_offset matters for MISCOMPARE only. */
int plx_sense_status(struct tcmulib_cmd *lib_cmd, int result, uint64_t miscompare_offset);

/* INVALID FIELD IN CDB, and which byte of it. (Some initiators take it for "command unknown" when
 * it does not say.) */
int plx_sense_invalid_field(struct tcmulib_cmd *lib_cmd, uint8_t byte);

/* A unit attention with this additional sense code and qualifier. */
int plx_sense_attention(struct tcmulib_cmd *lib_cmd, uint16_t codes);

#endif
