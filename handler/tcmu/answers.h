/* answers.h - a LUN's answers about itself: INQUIRY pages, MODE SENSE, LOG SENSE, lists of
 * commands.
 */
#ifndef PLX_ANSWERS_H
#define PLX_ANSWERS_H

#include "tcmu/lun.h"
#include "tcmu/runner.h"

/* Copies an answer into the initiator's buffer, cut at the buffer's end and at allocation_length.
 * Zeroes the rest of the buffer, because the ring holds bytes of earlier commands there. */
void plx_answer(struct tcmulib_cmd *lib_cmd, const void *bytes, size_t length,
                size_t allocation_length);

/* Each returns a TCMU status; NOT_HANDLED leaves the command to tcmu-runner. */
int plx_answer_inquiry(struct plx_lun *lun, struct tcmulib_cmd *lib_cmd);
int plx_answer_mode_sense(struct plx_lun *lun, struct tcmulib_cmd *lib_cmd);
int plx_answer_log_sense(struct plx_lun *lun, struct tcmulib_cmd *lib_cmd);
int plx_answer_request_sense(struct tcmulib_cmd *lib_cmd);
int plx_answer_opcodes(struct tcmulib_cmd *lib_cmd);

#endif
