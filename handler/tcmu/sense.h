/* sense.h - turns errors into the status and sense that the initiator sees. */
#ifndef PLX_SENSE_H
#define PLX_SENSE_H

#include "engine/base/error.h"
#include "tcmu/runner.h"

/* Returns the TCMU status for a result (0 or PLX_ERR_*), and puts the sense of error.def into the
 * command. miscompare_offset counts only with MISCOMPARE. */
int plx_sense_status(struct tcmulib_cmd *lib_cmd, int result, uint64_t miscompare_offset);

/* INVALID FIELD IN CDB. byte: which byte of the CDB; without it some initiators take the sense for
 * "command unknown". */
int plx_sense_invalid_field(struct tcmulib_cmd *lib_cmd, uint8_t byte);

/* A unit attention. codes: the additional sense code and its qualifier, as 0x2800. */
int plx_sense_attention(struct tcmulib_cmd *lib_cmd, uint16_t codes);

#endif
