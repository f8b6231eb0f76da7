/* libcurl.c - see libcurl.h. The library stays loaded. */
#include "registry/libcurl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY "libcurl.so.4"

struct plx_libcurl plx_libcurl;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char missing[160]; /* empty: nothing */

static void load(void)
{
    static const char *const names[] = {
#define NAME(name) "curl_" #name,
        PLX_LIBCURL_CALLS(NAME)
#undef NAME
    };
    void *pointers[sizeof names / sizeof names[0]];
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

    if (!library)
        snprintf(missing, sizeof missing, "%s", dlerror());
    for (size_t i = 0; library && i < sizeof names / sizeof names[0] && !*missing; i++) {
        pointers[i] = dlsym(library, names[i]);
        if (!pointers[i])
            snprintf(missing, sizeof missing, LIBRARY " has no %s", names[i]);
    }
    _Static_assert(sizeof pointers == sizeof plx_libcurl, "one pointer for each call");
    if (!*missing)
        memcpy(&plx_libcurl, pointers, sizeof plx_libcurl);
}

int plx_libcurl_load(struct plx_fault *fault)
{
    pthread_once(&once, load);
    return *missing ? plx_fault_set(fault, PLX_ERR_UNSUPPORTED,
                                    "the registry's nodes are asked by libcurl, which cannot be "
                                    "loaded: %s; install it (on Debian libcurl4)",
                                    missing)
                    : 0;
}
