/* credentials.h - users and passwords for iSCSI targets that ask for them (CHAP).
 *
 * They are in a file of this host: /etc/parallax/iscsi-credentials, or the file that the
 * environment variable PARALLAX_ISCSI_CREDENTIALS names. A line has the form
 *
 *     MATCH USER PASSWORD [TARGET-USER TARGET-PASSWORD]
 *
 * MATCH is a target's name (its IQN) or a portal: HOST or HOST:PORT. With the last two fields the
 * target has to prove its identity as well (mutual CHAP). Blanks and tabs separate fields, so no
 * field contains one. A line that begins with # is a comment.
 *
 * Threads: any; nothing is kept here.
 */
#ifndef PLX_CREDENTIALS_H
#define PLX_CREDENTIALS_H

#include <stdbool.h>

#include "engine/base/error.h"

#define PLX_CREDENTIALS_FILE "/etc/parallax/iscsi-credentials"
#define PLX_CREDENTIALS_VARIABLE "PARALLAX_ISCSI_CREDENTIALS"
#define PLX_CREDENTIAL_MAX 255 /* bytes of a field: as many as libiscsi keeps */

struct plx_credentials {
    char user[PLX_CREDENTIAL_MAX + 1], password[PLX_CREDENTIAL_MAX + 1];
    char target_user[PLX_CREDENTIAL_MAX + 1], target_password[PLX_CREDENTIAL_MAX + 1]; /* or "" */
    unsigned line; /* the line of the file; 0: no line matches, or there is no file */
};

/* What a login is for. */
struct plx_credentials_wanted {
    const char *target, *portal; /* portal: as in the URL, HOST[:PORT]; [ADDRESS] for IPv6 */
    const char *user;            /* only lines with this user; "": any */
};

/* The path of the file that is read; never NULL. */
const char *plx_credentials_path(void);

/* Reads the file and finds the line for a login. If the default file does not exist, or this user
 * cannot read it, it counts as empty. The caller wipes the result. */
int plx_credentials_find(const struct plx_credentials_wanted *wanted,
                         struct plx_credentials *ret_credentials, struct plx_fault *fault);
void plx_credentials_wipe(struct plx_credentials *credentials);

/* Whether an iscsi:// URL, alone or at the end of an option, has a password in it. */
bool plx_url_has_password(const char *text);
/* Removes the password from a URL, in place. For names from before passwords were refused. */
void plx_url_drop_password(char *url);
/* INVALID for a name with a password. The message says where the password belongs, and does not
 * repeat the name. */
int plx_url_refuse_password(const char *text, struct plx_fault *fault);

#endif
