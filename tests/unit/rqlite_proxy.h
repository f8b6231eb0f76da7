/* rqlite_proxy.h - stands between a registry's driver and a node, and does to requests and answers
 * what networks and stopped machines do. */
#ifndef PLX_UNIT_RQLITE_PROXY_H
#define PLX_UNIT_RQLITE_PROXY_H

#include <stdbool.h>
#include <sys/types.h>

enum proxy_fate {
    PROXY_PASS,
    PROXY_DROP,    /* the answer is lost, the node has done its work */
    PROXY_CUT,     /* half of the answer arrives */
    PROXY_TWICE,   /* the request arrives twice; the second answer is passed on */
    PROXY_HOLD,    /* the connection breaks, and the request arrives when the test says so */
    PROXY_STALL,   /* the request arrives, its answer when nobody waits any more */
    PROXY_ENDLESS, /* the request does not arrive, and the answer has no end */
    PROXY_ANSWER,  /* the request does not arrive: the test's own answer does */
};

/* Shared with the proxy's process. The first `skip` requests to a path that has `path` in it pass,
 * then `times` of them have the fate. */
struct proxy {
    char path[32];
    volatile enum proxy_fate fate;
    volatile unsigned skip, times;
    volatile bool release;            /* what is held goes on */
    volatile unsigned seen, met;      /* such requests, and those with that fate */
    volatile unsigned held, released; /* since the start: held ones, and those that arrived */
    char answer[4096];                /* of PROXY_ANSWER: with status and headers */
    unsigned port, node;
    pid_t pid;
    char address[40];
};

/* Starts a proxy before the node at this port. */
struct proxy *proxy_start(unsigned node);
void proxy_stop(struct proxy *proxy);
/* What happens to the next requests. */
void proxy_plan(struct proxy *proxy, const char *path, enum proxy_fate fate, unsigned skip,
                unsigned times);
/* An answer with status 200 and this body. */
void proxy_answer(struct proxy *proxy, const char *status, const char *body);
/* Lets go on what is held, and waits until it has arrived. */
bool proxy_release(struct proxy *proxy);

#endif
