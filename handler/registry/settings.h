/* settings.h - the configuration file of a host, /etc/parallax/parallax.conf.
 *
 * A host without the file has all defaults, which is what a single host needs. The format is that
 * of .ini files, read by inih: sections, `key = value`, comments behind '#' or ';' at the start of
 * a line.
 *
 *   [paths]
 *   state = /var/lib/parallax           the state directory (paths.h)
 *
 *   [registry]                          a cluster's rqlite nodes (struct plx_registry_nodes)
 *   node = https://n1.example:4001      a line for each of them, up to nine
 *   ca = /etc/parallax/ca.pem
 *   certificate = /etc/parallax/host.pem
 *   key = /etc/parallax/host.key
 *   user = parallax
 *   password-file = /etc/parallax/password
 *   plain = yes                         http:// may lead to other machines; the default is no
 *
 * A host that names nodes still keeps the registry of each store in the store itself, unless the
 * store's superblock says that the store belongs to a cluster.
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
#define PLX_SETTING_MAX 200 /* of a value, with the end */
#define PLX_SETTING_NODES 9u

/* An empty text: the file does not say it. */
struct plx_settings {
    char file[PLX_PATH_MAX]; /* what was read; empty: no file */
    char state[PLX_SETTING_MAX];
    char node[PLX_SETTING_NODES][PLX_SETTING_MAX]; /* as many as are not empty */
    char ca[PLX_SETTING_MAX], certificate[PLX_SETTING_MAX], key[PLX_SETTING_MAX];
    char user[PLX_SETTING_MAX], password_file[PLX_SETTING_MAX];
    char plain[PLX_SETTING_MAX];
};

/* The nodes that the file names, for plx_registry_open_rqlite(). The texts are those of `settings`,
 * as long as these stay. */
struct plx_settings_nodes {
    const char *address[PLX_SETTING_NODES];
    struct plx_registry_nodes nodes; /* count 0: the file names none */
};
void plx_settings_nodes(const struct plx_settings *settings, struct plx_settings_nodes *ret_nodes);

/* Reads the file that the environment names, else the default one, which need not exist. */
int plx_settings_read(struct plx_settings *settings, struct plx_fault *fault);

#endif
