/* libcurl.h - libcurl, loaded when a registry on nodes is opened for the first time.
 *
 * The handler and each command have the driver for nodes in them, and most hosts have no nodes.
 * Starting a program that is linked with libcurl, and with the thirty libraries that libcurl needs,
 * takes four times as long as starting the command. So nobody is linked with it.
 *
 * Threads: plx_libcurl_load() from any; the calls as libcurl says.
 */
#ifndef PLX_LIBCURL_H
#define PLX_LIBCURL_H

#include <curl/curl.h>

#include "engine/base/error.h"

/* libcurl's functions by their names without "curl_". Valid once plx_libcurl_load() has returned
 * 0. */
#define PLX_LIBCURL_CALLS(call)                                                                    \
    call(easy_init) call(easy_setopt) call(easy_perform) call(easy_getinfo) call(easy_strerror)    \
        call(easy_cleanup) call(slist_append) call(slist_free_all) call(url) call(url_set)         \
            call(url_get) call(url_cleanup) call(free)

/* Without the macros that check types: they stand in the way of a name without parentheses. */
#undef curl_easy_setopt
#undef curl_easy_getinfo
#define PLX_LIBCURL_POINTER(name) __typeof__(&curl_##name) name;
struct plx_libcurl {
    PLX_LIBCURL_CALLS(PLX_LIBCURL_POINTER)
};
extern struct plx_libcurl plx_libcurl;

/* UNSUPPORTED: the library is not there, or lacks a call; the text says which. */
int plx_libcurl_load(struct plx_fault *fault);

#endif
