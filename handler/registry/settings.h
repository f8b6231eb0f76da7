/* settings.h - the configuration file of a host, /etc/parallax/parallax.conf.
 *
 * A host without the file has all defaults, which is what a single host needs. The format is that
 * of .ini files, read by inih: sections, `key = value`, comments behind '#' or ';' at the start of
 * a line.
 *
 *   [paths]
 *   state = /var/lib/parallax           the state directory (paths.h)
 *
 * Order of precedence, the first that says something: an option of the command line, a variable of
 * the environment, the file, the default. --config is PLX_SETTINGS_VARIABLE for one command.
 *
 * Errors: NOT_FOUND, PERMISSION, INVALID, NOMEM, else SYSTEM. The text names file and line.
 * Threads: any.
 */
#ifndef PLX_SETTINGS_H
#define PLX_SETTINGS_H

#include "registry/registry.h"

#define PLX_SETTINGS_FILE "/etc/parallax/parallax.conf"
#define PLX_SETTINGS_VARIABLE "PARALLAX_CONFIG"
#define PLX_SETTING_MAX 256 /* of a value, with the end */

/* An empty text: the file does not say it. */
struct plx_settings {
    char file[PLX_PATH_MAX]; /* what was read; empty: no file */
    char state[PLX_SETTING_MAX];
};

/* Reads the file that the environment names, else the default one, which need not exist. */
int plx_settings_read(struct plx_settings *settings, struct plx_fault *fault);

#endif
