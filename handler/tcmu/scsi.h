/* scsi.h - SCSI commands that tcmu-runner lacks, or answers in a way that initiators stumble over.
 */
#ifndef PLX_SCSI_H
#define PLX_SCSI_H

#include "tcmu/runner.h"

/* The handle_cmd of struct tcmur_handler. Returns a TCMU status; NOT_HANDLED leaves the command to
 * tcmu-runner. Runs on the device's command thread, and waits there for the command's I/O. */
int plx_scsi_handle(struct tcmu_device *device, struct tcmur_cmd *cmd);

/* Sets the device's limits, on which tcmu-runner's own answers depend. */
void plx_scsi_set_limits(struct tcmu_device *device);

#endif
