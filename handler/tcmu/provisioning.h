/* provisioning.h - a LUN's answers about its use of space (SBC-3 4.7.3.7): the thresholds in a mode
 * page, and the resources that they watch in a log page. */
#ifndef PLX_PROVISIONING_H
#define PLX_PROVISIONING_H

#include "tcmu/lun.h"

#define PLX_PROVISIONING_MODE_BYTES 32u
#define PLX_PROVISIONING_LOG_BYTES 28u

/* The unit of both pages is a set of 2^exponent LBAs. */
uint8_t plx_provisioning_exponent(const struct plx_lun *lun);
/* Writes the Logical Block Provisioning mode page (1Ch/02h) and returns its length. values false:
 * which values can be changed: none, because limits are the operator's. */
size_t plx_provisioning_mode_page(const struct plx_lun *lun, uint8_t *to, bool values);
/* Writes the Logical Block Provisioning log page (0Ch) with the parameters from `first` on, and
 * returns its length; 0: there is no such parameter. Waits for the loop. */
size_t plx_provisioning_log_page(struct plx_lun *lun, uint8_t *to, unsigned first);

#endif
