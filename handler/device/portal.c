/* portal.c - see portal.h. Threads: any; waits for ASK_TIMEOUT_S for each address at most. */
#include "device/portal.h"

#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define ASK_TIMEOUT_S 3
#define PORT "3260"

/* 0, or errno. */
static int try_address(const struct addrinfo *address)
{
    const struct timeval limit = {.tv_sec = ASK_TIMEOUT_S};
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), error = 0;

    if (fd < 0)
        return errno;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (connect(fd, address->ai_addr, address->ai_addrlen))
        error = errno == EINPROGRESS ? ETIMEDOUT : errno;
    close(fd);
    return error;
}

const char *plx_portal_fault(const char *portal)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    struct addrinfo *list;
    bool bracketed = portal[0] == '[';
    const char *end = portal + strcspn(portal, bracketed ? "]" : ":"), *port = strrchr(end, ':');
    char host[256];
    int error;

    snprintf(host, sizeof host, "%.*s", (int)(end - portal - bracketed), portal + bracketed);
    error = getaddrinfo(host, port ? port + 1 : PORT, &hints, &list);
    if (error)
        return gai_strerror(error);
    error = ECONNREFUSED;
    for (const struct addrinfo *at = list; at && error; at = at->ai_next)
        error = try_address(at);
    freeaddrinfo(list);
    return error ? strerror(error) : NULL;
}
