/* tenancy_inside.h - what homepage.c, tenancy.c and tenancy_words.c share. The rules TENANCY-1 to
 * TENANCY-11 are in tenancy.c. */
#ifndef PLX_TENANCY_INSIDE_H
#define PLX_TENANCY_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>

#include "registry/tenancy.h"
#include "device/bytelock.h"
#include "engine/format/format.h"
#include "engine/loop/volume.h"
#include "registry/clock.h"

#define SECOND_NS 1000000000ull
#define LOOK_NS SECOND_NS         /* the thread looks, and one process raises the counter */
#define GAP_NS (2 * SECOND_NS)    /* so long after a look began no new look is needed */
#define WATCH_NS (5 * SECOND_NS)  /* a counter that stands still so long: nobody raises it */
#define LOCK_WAIT_MS 15000u       /* another process may hold the lock to take the store */
#define RAISE_MS 500u             /* raising the counter takes less; patience begins after that */
#define STEP_NS 50000000ull       /* between two reads while watching */
#define LOOK_TRIES 5u             /* TENANCY-6 */
#define LOOK_AGAIN_NS 10000000ull /* between these tries */
#define UNSEEN_NS (5 * SECOND_NS) /* TENANCY-11: unreadable so long: fenced */
#define SLOW_NS                                                                                    \
    (5 * SECOND_NS) /* TENANCY-10: a look that took longer proves nothing any more.                \
                     * TENANCY-3: so long does the next host wait */

struct page {
    struct plx_home home;
    bool found;
    bool damaged;   /* a slot is neither whole nor unused */
    unsigned lost;  /* bit N: slot N says nothing, for that reason or since it was emptied */
    bool kept_open; /* TENANCY-2: slot A says "open" for the same host, boot and inode */
};

enum home_slot {
    SLOT_STATE,   /* slot A: written with a new host, boot or inode, and with the first "open" */
    SLOT_COUNTER, /* slot B: written together with A, and alone for all else (TENANCY-2) */
};

struct plx_tenancy {
    struct plx_tenancy_options options;
    struct plx_device *device;
    struct plx_bytelock *locks;
    struct plx_uuid host, boot;
    bool open; /* shared lock on PLX_BYTE_OPEN held */

    pthread_mutex_t lock;
    struct page page;   /* as last read or written */
    uint64_t unseen_ns; /* TENANCY-11: since when looks that are due fail; 0: they do not */

    pthread_mutex_t wake_lock; /* guards what follows; never held during I/O */
    pthread_cond_t wake;
    bool stopping;
    bool asked; /* somebody waits for a look */

    pthread_t thread;
    atomic_uint_least64_t looked_ns; /* when the last good look began, boot clock */
    atomic_bool fenced;
    char why[256]; /* under lock; does not change once fenced is set */
};

/* home_clock.c */
uint64_t plx_home_boot_ns(void);
void plx_home_rest(uint64_t ns);

/* tenancy_words.c: refusals. Who has the store, and nobody says that this host is off. */
int plx_tenancy_refuse_other(const struct plx_tenancy *t, const struct plx_home *home,
                             struct plx_fault *fault);
int plx_tenancy_refuse_released(const struct plx_tenancy *t, struct plx_fault *fault);
/* why: behind "the home page". */
int plx_tenancy_refuse_page(const struct plx_tenancy *t, const char *why, struct plx_fault *fault);
/* There is no page at all. A released store has one, so it was lost. */
int plx_tenancy_refuse_lost(const struct plx_tenancy *t, struct plx_fault *fault);
/* The operator says ANY, or another host than the page. */
int plx_tenancy_refuse_any(const struct plx_tenancy *t, const struct plx_home *home,
                           struct plx_fault *fault);
int plx_tenancy_refuse_from(const struct plx_tenancy *t, const struct plx_home *home,
                            struct plx_fault *fault);

/* homepage.c */
int plx_home_read(struct plx_device *device, const struct plx_uuid *store, struct page *ret_page,
                  struct plx_fault *fault);
/* *ret_moved: somebody wrote the page since `before` was read. *ret_now: the page as it is. If
 * `before` stands for a page that was unreadable (the operator's word took its place), the page
 * need not be readable now either. */
int plx_home_moved(struct plx_device *device, const struct plx_uuid *store,
                   const struct page *before, struct page *ret_now, bool *ret_moved,
                   struct plx_fault *fault);
/* Reads the page for ns; *ret_moved: somebody wrote it meanwhile. */
int plx_home_watch(struct plx_device *device, const struct plx_uuid *store, const struct page *page,
                   uint64_t ns, bool *ret_moved, struct plx_fault *fault);
/* Reads again while a copy looks damaged, for somebody may be writing it (TENANCY-6). */
int plx_home_settled(struct plx_device *device, const struct plx_uuid *store, struct page *ret_page,
                     struct plx_fault *fault);
int plx_home_cannot_write(const struct plx_device *device, int error, struct plx_fault *fault);
int plx_home_write(struct plx_device *device, const struct plx_uuid *store,
                   const struct plx_home *home, enum home_slot from, struct page *page,
                   struct plx_fault *fault);
void plx_home_identify(const struct plx_paths *paths, struct plx_uuid *ret_host,
                       struct plx_uuid *ret_boot);
int plx_home_refuse_nameless(const struct plx_paths *paths, struct plx_fault *fault);

#endif
