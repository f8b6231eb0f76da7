/* runner.h - tcmu-runner's interface, as far as this plugin uses it.
 *
 * Distributions do not package tcmu-runner's headers. They come from its source (CMakeLists.txt),
 * and need other headers to be included first. The plugin uses accessors only, because structures
 * differ between versions 1.5.4 and 1.6.
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

/* Its log is written through say.h only (SAY-1). */
#undef tcmu_crit
#undef tcmu_err
#undef tcmu_warn
#undef tcmu_info
#undef tcmu_dev_crit
#undef tcmu_dev_err
#undef tcmu_dev_warn
#undef tcmu_dev_info

/* tcmu-runner places a command behind a CDB of any length, so the command may be misaligned. */
static inline struct tcmulib_cmd *plx_lib_cmd(const struct tcmur_cmd *cmd)
{
    struct tcmulib_cmd *lib_cmd;

    memcpy(&lib_cmd, (const char *)cmd + offsetof(struct tcmur_cmd, lib_cmd), sizeof lib_cmd);
    return lib_cmd;
}

#endif
