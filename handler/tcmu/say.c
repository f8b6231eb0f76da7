/* say.c - see say.h.
 *
 * SAY-1  All that goes to tcmu-runner's log passes plx_say_line(), which escapes what a terminal
 *     would obey or what would begin another line. Names and faults may come from a store of
 *     somebody who means harm, and 'lun create' believes what that log says of a LUN (PLUGIN-3).
 *     runner.h takes tcmu-runner's own macros away, so that the compiler finds who forgets.
 * Threads: any. Crash story: none.
 */
#include "tcmu/say.h"

#include <stdarg.h>
#include <stdio.h>

#include "engine/base/plain.h"

/* SAY-1 */
void plx_say_line(plx_say_log *log, struct tcmu_device *device, const char *function, int line,
                  const char *format, ...)
{
    char text[PLX_SAY_MAX], plain[PLX_SAY_MAX];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    log(device, function, line, "%s\n", plx_plain(text, plain, sizeof plain));
}
