/* say.h - what this room writes to tcmu-runner's log.
 *
 *     plx_say(error, lun->device, "cannot resize %s: %s", name, fault.text);
 *     plx_say(warn, NULL, "%s: garbage cannot be collected", home->name);    of no device
 *
 * One line each, without a newline in the format. Levels are error, warn and info.
 */
#ifndef PLX_SAY_H
#define PLX_SAY_H

#include "tcmu/runner.h"

/* The largest text, escaped. tcmu-runner itself cuts a line at 255 bytes. */
#define PLX_SAY_MAX 2048u

typedef void plx_say_log(struct tcmu_device *device, const char *function, int line,
                         const char *format, ...);

#define plx_say(level, device, ...)                                                                \
    plx_say_line(plx_say_##level, device, __func__, __LINE__, __VA_ARGS__)
#define plx_say_error tcmu_err_message
#define plx_say_warn tcmu_warn_message
#define plx_say_info tcmu_info_message

void plx_say_line(plx_say_log *log, struct tcmu_device *device, const char *function, int line,
                  const char *format, ...) __attribute__((format(printf, 5, 6)));

#endif
