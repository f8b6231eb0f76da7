/* tenancy_inside.h - what homepage.c and tenancy.c share. The rules TENANCY-1 to TENANCY-6 are in
 * tenancy.c. */
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
#define GAP_NS (2 * SECOND_NS)    /* so long after a look no new look is needed */
#define WATCH_NS (5 * SECOND_NS)  /* a counter that stands still so long: nobody raises it */
#define SETTLE_NS (2 * SECOND_NS) /* TENANCY-3 */
#define LOCK_WAIT_MS 15000u       /* another process may hold the lock to take the store */
#define RAISE_MS 500u             /* raising the counter takes less; patience begins after that */
#define STEP_NS 50000000ull       /* between two reads while watching */
#define LOOK_TRIES 5u             /* TENANCY-6 */
#define LOOK_AGAIN_NS 10000000ull /* between these tries */
#define UNSEEN_NS (5 * SECOND_NS) /* unreadable so long in plx_tenancy_ok(): fenced */

struct page {
    struct plx_home home;
    bool found;
    bool damaged;   /* a slot is neither whole nor unused */
    bool kept_open; /* TENANCY-2: slot A says "open" for the same host, boot and inode */
};

enum slot {
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
    struct page page; /* as last read or written */
    pthread_cond_t stop;
    bool stopping;
    pthread_t thread;
    atomic_uint_least64_t looked_ns; /* when the last look succeeded, boot clock */
    atomic_bool fenced;
    char why[256]; /* under lock; does not change once fenced is set */
};

/* homepage.c */
uint64_t plx_home_boot_ns(void);
void plx_home_rest(uint64_t ns);
int plx_home_read(struct plx_device *device, const struct plx_uuid *store, struct page *ret_page,
                  struct plx_fault *fault);
int plx_home_cannot_write(const struct plx_device *device, int error, struct plx_fault *fault);
int plx_home_write(struct plx_device *device, const struct plx_uuid *store,
                   const struct plx_home *home, enum slot from, struct page *page,
                   struct plx_fault *fault);
void plx_home_identify(const struct plx_paths *paths, struct plx_uuid *ret_host,
                       struct plx_uuid *ret_boot);
int plx_home_refuse_nameless(const struct plx_paths *paths, struct plx_fault *fault);

#endif
