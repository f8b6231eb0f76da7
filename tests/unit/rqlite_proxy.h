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
    PROXY_DAMAGE,  /* of proxy_relay() only: a bit of the next byte is turned */
    PROXY_MUTE,    /* likewise: the connection stays, and no byte passes any more */
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
    bool relay;                       /* bytes pass as they are: set before the first connection */
    volatile long left, then;         /* so many, and then a relay's fate comes; -1: it does not */
    volatile unsigned asked;          /* what who asks has sent by a relay since its plan */
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
/* For a proxy that relays: when so many more bytes have passed, in both directions and over all
 * connections, PASS, DROP (all that the node says from here on, until the connection ends), CUT,
 * DAMAGE or MUTE comes; and once more behind `then` bytes, unless it is 0. */
void proxy_relay(struct proxy *proxy, enum proxy_fate fate, unsigned bytes, unsigned then);
/* An answer with status 200 and this body. */
void proxy_answer(struct proxy *proxy, const char *status, const char *body);
/* Lets go on what is held, and waits until it has arrived. */
bool proxy_release(struct proxy *proxy);

#endif
