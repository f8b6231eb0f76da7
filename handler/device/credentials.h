/* credentials.h - user and password for iSCSI targets that ask for them (CHAP).
 *
 * They lie in a file of this host, /etc/parallax/iscsi-credentials, or the one that the environment
 * variable PARALLAX_ISCSI_CREDENTIALS names. A line is
 *
 *     MATCH USER PASSWORD [TARGET-USER TARGET-PASSWORD]
 *
 * MATCH is a target's name (its IQN) or a portal: HOST or HOST:PORT. With the last two fields the
 * target has to prove itself, too (mutual CHAP). Blanks and tabs separate fields, so none is part
 * of one; a line that begins with # is a comment.
 *
 * Threads: any; nothing is kept here.
 */
#ifndef PLX_CREDENTIALS_H
#define PLX_CREDENTIALS_H

#include <stdbool.h>

#include "engine/base/error.h"

#define PLX_CREDENTIALS_FILE "/etc/parallax/iscsi-credentials"
#define PLX_CREDENTIALS_VARIABLE "PARALLAX_ISCSI_CREDENTIALS"
#define PLX_CREDENTIAL_MAX 255 /* bytes of a field; what libiscsi keeps of one */

struct plx_credentials {
    char user[PLX_CREDENTIAL_MAX + 1], password[PLX_CREDENTIAL_MAX + 1];
    char target_user[PLX_CREDENTIAL_MAX + 1], target_password[PLX_CREDENTIAL_MAX + 1]; /* or "" */
    unsigned line; /* of the file; 0: none matches, or there is no file */
};

/* Whom they are for. */
struct plx_credentials_wanted {
    const char *target, *portal; /* the latter as in the URL: HOST[:PORT], [ADDRESS] for IPv6 */
    const char *user;            /* only lines with this user; "": any */
};

/* The file that is read; never NULL. */
const char *plx_credentials_path(void);

/* Reads the file. No file where the default one would be, or one that only root can read, is one
 * without lines. The result is wiped by the caller. */
int plx_credentials_find(const struct plx_credentials_wanted *wanted,
                         struct plx_credentials *ret_credentials, struct plx_fault *fault);
void plx_credentials_wipe(struct plx_credentials *credentials);

/* Whether an iscsi:// URL, alone or at the end of an option, has a password in it. */
bool plx_url_has_password(const char *text);
/* Takes it out, in place. For names that were entered before passwords were refused. */
void plx_url_drop_password(char *url);
/* INVALID for a name with a password, and says where it belongs instead; the name is not said. */
int plx_url_refuse_password(const char *text, struct plx_fault *fault);

#endif
