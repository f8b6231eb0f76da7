/* authority.h - authorities, and certificates of theirs, made by the program openssl. */
#ifndef PLX_UNIT_AUTHORITY_H
#define PLX_UNIT_AUTHORITY_H

#include <stdbool.h>

/* false: there is no openssl, and a line that tests/run lists says so. */
bool authority_is_possible(void);
/* Makes NAME.pem and NAME.key in the folder; called: what the certificates name their issuer. */
bool authority_make(const char *folder, const char *name, const char *called);

/* A certificate, which becomes NAME.pem and NAME.key. */
struct certificate {
    const char *name, *authority;
    const char *names; /* as subjectAltName: "IP:127.0.0.1" */
    const char *use;   /* as extendedKeyUsage; NULL: any */
    bool expired;      /* yesterday */
};
bool certificate_make(const char *folder, const struct certificate *certificate);

#endif
