/* answers.h - what a LUN says about itself: INQUIRY pages, MODE and LOG SENSE, commands. */
#ifndef PLX_ANSWERS_H
#define PLX_ANSWERS_H

#include "tcmu/lun.h"
#include "tcmu/runner.h"

/* Puts an answer into the initiator's buffer, cut at its end and at allocation_length; what the
 * answer does not fill is zeroed (the ring holds what others left there). */
void plx_answer(struct tcmulib_cmd *lib_cmd, const void *bytes, size_t length,
                size_t allocation_length);

/* Each a TCMU status; NOT_HANDLED leaves the command to tcmu-runner. */
int plx_answer_inquiry(struct plx_lun *lun, struct tcmulib_cmd *lib_cmd);
int plx_answer_mode_sense(struct plx_lun *lun, struct tcmulib_cmd *lib_cmd);
int plx_answer_log_sense(struct plx_lun *lun, struct tcmulib_cmd *lib_cmd);
int plx_answer_request_sense(struct tcmulib_cmd *lib_cmd);
int plx_answer_opcodes(struct tcmulib_cmd *lib_cmd);

#endif
