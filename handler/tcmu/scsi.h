/* scsi.h - commands that tcmu-runner lacks, or answers in a way initiators stumble over. */
#ifndef PLX_SCSI_H
#define PLX_SCSI_H

#include "tcmu/runner.h"

/* struct tcmur_handler's handle_cmd: TCMU_STS_NOT_HANDLED leaves the command to tcmu-runner. Runs
 * on the device's command thread; waits for the I/O of the commands it carries out. */
int plx_scsi_handle(struct tcmu_device *device, struct tcmur_cmd *cmd);

/* Sets what tcmu-runner's own answers depend on. */
void plx_scsi_set_limits(struct tcmu_device *device);

#endif
