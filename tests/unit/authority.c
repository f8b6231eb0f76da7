/* authority.c - see authority.h. */
#include "authority.h"

#include <stdio.h>
#include <stdlib.h>

#include "suite.h"

#define NEW_KEY "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"

bool authority_is_possible(void)
{
    if (system("openssl version >/dev/null 2>&1") == 0)
        return true;
    PART_SKIPPED("the registry's nodes by TLS: there is no program openssl (tests/install-deps)");
    return false;
}

static bool run(const char *folder, const char *command)
{
    char line[1200];

    snprintf(line, sizeof line,
             "cd '%s' && umask 077 && (%s) >openssl.log 2>&1 || (cat openssl.log; exit 1)", folder,
             command);
    return system(line) == 0;
}

bool authority_make(const char *folder, const char *name, const char *called)
{
    char command[400];

    snprintf(command, sizeof command,
             "openssl req -x509 " NEW_KEY " -keyout %s.key -out %s.pem -days 2 -subj '/CN=%s'",
             name, name, called);
    return run(folder, command);
}

bool certificate_make(const char *folder, const struct certificate *certificate)
{
    const char *name = certificate->name, *by = certificate->authority;
    char command[1000];

    snprintf(command, sizeof command,
             "printf 'subjectAltName=%s\n%s%s\n' >%s.ext && openssl req -new " NEW_KEY
             " -keyout %s.key -out %s.csr -subj '/CN=%s' && openssl x509 -req -in %s.csr -CA %s.pem"
             " -CAkey %s.key -CAcreateserial -days %d -extfile %s.ext -out %s.pem",
             certificate->names, certificate->use ? "extendedKeyUsage=" : "",
             certificate->use ? certificate->use : "", name, name, name, name, name, by, by,
             certificate->expired ? -1 : 2, name, name);
    return run(folder, command);
}
