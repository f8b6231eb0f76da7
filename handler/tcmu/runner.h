/* runner.h - tcmu-runner's interface, as far as we use it.
 *
 * Its headers are not packaged; they come from its source (CMakeLists.txt) and need others to be
 * included first. We touch no structure that differs between 1.5.4 and 1.6: accessors only.
 */
#ifndef PLX_RUNNER_H
#define PLX_RUNNER_H

#include <limits.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include "tcmu-runner.h"

#include "libtcmu.h"
#include "libtcmu_common.h"
#include "libtcmu_log.h"
#include "tcmur_device.h"
#pragma GCC diagnostic pop

/* tcmu-runner macros that clash with ordinary names. */
#undef min
#undef max

/* tcmu-runner places its commands behind CDBs of any length: they may be misaligned. */
static inline struct tcmulib_cmd *plx_lib_cmd(const struct tcmur_cmd *cmd)
{
    struct tcmulib_cmd *lib_cmd;

    memcpy(&lib_cmd, (const char *)cmd + offsetof(struct tcmur_cmd, lib_cmd), sizeof lib_cmd);
    return lib_cmd;
}

#endif
