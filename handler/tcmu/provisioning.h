/* provisioning.h - what a LUN says about how much of its space is used (SBC-3 4.7.3.7): the
 * thresholds in a mode page, the resources behind them in a log page. */
#ifndef PLX_PROVISIONING_H
#define PLX_PROVISIONING_H

#include "tcmu/lun.h"

#define PLX_PROVISIONING_MODE_BYTES 32u
#define PLX_PROVISIONING_LOG_BYTES 28u

/* Everything below is counted in sets of 2 to so many LBAs. */
uint8_t plx_provisioning_exponent(const struct plx_lun *lun);
/* Logical Block Provisioning mode page (1Ch/02h). values false: which of it can be changed (nothing
 * can: limits are the operator's). Returns its length. */
size_t plx_provisioning_mode_page(const struct plx_lun *lun, uint8_t *to, bool values);
/* Logical Block Provisioning log page (0Ch), with the parameters from `first` on; 0: there is none.
 * Waits for the loop. */
size_t plx_provisioning_log_page(struct plx_lun *lun, uint8_t *to, unsigned first);

#endif
