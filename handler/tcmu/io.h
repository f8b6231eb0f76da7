/* io.h - the data path: tcmu-runner's read, write and so on become requests to the engine.
 *
 * The plx_io_*() functions with a command are callbacks of struct tcmur_handler. A callback that
 * returns 0 has taken the command and completes it exactly once, later or before it returns. Any
 * other value is the command's status; that command is not completed.
 */
#ifndef PLX_IO_H
#define PLX_IO_H

#include "tcmu/lun.h"
#include "tcmu/runner.h"

#define PLX_OPS_PER_LUN 256 /* commands in flight at once */

int plx_io_init(struct plx_lun *lun); /* 0 or NOMEM */
void plx_io_done(struct plx_lun *lun);

int plx_io_read(struct tcmu_device *device, struct tcmur_cmd *cmd, struct iovec *iov, size_t iovcnt,
                size_t length, off_t offset);
int plx_io_write(struct tcmu_device *device, struct tcmur_cmd *cmd, struct iovec *iov,
                 size_t iovcnt, size_t length, off_t offset);
int plx_io_flush(struct tcmu_device *device, struct tcmur_cmd *cmd);
int plx_io_unmap(struct tcmu_device *device, struct tcmur_cmd *cmd, uint64_t offset,
                 uint64_t length);
int plx_io_write_same(struct tcmu_device *device, struct tcmur_cmd *cmd, uint64_t offset,
                      uint64_t length, struct iovec *iov, size_t iovcnt);
int plx_io_compare_write(struct tcmu_device *device, struct tcmur_cmd *cmd, uint64_t offset,
                         uint64_t length, struct iovec *iov, size_t iovcnt);

#endif
