/* runner.h - a stand-in for tcmu-runner: loads a handler and drives its callbacks as the real one
 * does.
 *
 * No kernel target, so handlers run natively, under sanitizers, anywhere. It exports what
 * tcmu-runner and libtcmu export, as far as handlers here need it. Commands get a CDB and a buffer,
 * go to handle_cmd first and then to the callback, complete from any thread, and lie at odd
 * addresses in memory, all as in the original. ALUA, XCOPY and FORMAT UNIT are left out.
 */
#ifndef PLX_TEST_RUNNER_H
#define PLX_TEST_RUNNER_H

#include <stdbool.h>

#include "tcmu/runner.h"

#define RUNNER_CDB_MAX 16

struct runner_command {
    uint8_t cdb[RUNNER_CDB_MAX];
    unsigned cdb_length;
    struct iovec iov[16]; /* data-in or data-out */
    size_t iovcnt;
    /* Called once, from any thread. */
    void (*done)(struct runner_command *command);
    void *owner;
    int status; /* TCMU_STS_* */
    uint8_t sense[SENSE_BUFFERSIZE];
};

/* Loads the .so and calls handler_init; NULL and a line on stderr on failure. */
struct tcmur_handler *runner_load(const char *path);
/* NULL: nowhere; stderr by default. The file that was set before is not used any more. */
void runner_set_log(FILE *file);

/* Checks the configuration and opens. NULL and *ret_error (errno) on failure; the reason of a
 * refused configuration goes to reason. */
struct tcmu_device *runner_open(struct tcmur_handler *handler, const char *cfgstring,
                                uint64_t bytes, uint32_t sector_size, int *ret_error, char *reason,
                                size_t size);
/* Waits for what is under way, as tcmu-runner does. */
void runner_close(struct tcmu_device *device);
int runner_reconfig(struct tcmu_device *device, struct tcmulib_cfg_info *info);
uint64_t runner_size(struct tcmu_device *device);

/* On the calling thread, which is the device's command thread for that moment. */
void runner_submit(struct tcmu_device *device, struct runner_command *command);
/* Submits and waits. Returns the TCMU status. */
int runner_run(struct tcmu_device *device, struct runner_command *command);

/* Commands put together: the rest of *command is untouched. */
void runner_read_write(struct runner_command *command, bool write, uint64_t lba, uint32_t sectors,
                       uint8_t flags);

#endif
