/* tenancy.h - one host at a time has a store whose registry lies in the store.
 *
 * SQLite's locks and the proof that an instance lives are locks on bytes of volume 0
 * (device/bytelock.h). Two processes see each other's locks only if they run on the same boot of
 * the same machine and open the volume through the same inode. So before a process writes to a
 * store, it begins a tenancy: it makes sure that nobody works on the store whose locks it cannot
 * see.
 *
 * The home page of volume 0 (format.h) says who has the store: the host, its boot, the inode, a
 * flag "open", and a counter. While anybody has the store open, one process raises the counter
 * about once a second. A process that begins a tenancy compares the page with itself:
 *
 *   the page names                begin does
 *   this boot, this inode         goes on at once: locks tell the rest
 *   this boot, another inode      if "open": watches the counter. It moves: BUSY. Else takes over
 *   this host, another boot       the same
 *   another host                  BUSY, unless the operator names it (`from`): then as above
 *   nobody                        BUSY, unless `take` or `from`: 'store import' takes it
 *
 * Lifecycle of a tenancy:
 *
 *   1 begun     plx_tenancy_begin() has written the page where it must; a thread runs
 *   2 live      the thread reads the page once a second and raises the counter. Each commit of the
 *               registry looks first. Writes to the store ask plx_tenancy_waits(), and wait for a
 *               look after a gap without one (a machine that was paused, a device that hangs)
 *   3 fenced    the page names somebody else, or its counter went back, or reading it failed for
 *               seconds: `fenced` is called once; every call returns FENCED from here on
 *   4 ended     plx_tenancy_end(); the host's last process clears "open"
 *               plx_tenancy_release() in place of 4 leaves a page that names nobody
 *
 * A crash in 1 to 3 leaves "open" set. This is a safeguard and no fencing of the device: writes
 * that a paused machine had handed to a device may still arrive when the machine wakes up.
 *
 * Threads: plx_tenancy_look(), _fenced(), _is_fenced() and _waits() from any thread; the others
 * from one thread.
 */
#ifndef PLX_TENANCY_H
#define PLX_TENANCY_H

#include "device/bytelock.h"
#include "device/patience.h"
#include "engine/engine.h"
#include "registry/paths.h"

struct plx_tenancy;

/* Values for `from`. ANY: whichever host has the store, if the page cannot tell which one; one that
 * it names is to be named (INVALID). COPY: the volumes are a copy, so the page is the original's,
 * whatever it says. No host is called so. */
#define PLX_TENANCY_ANY "any"
#define PLX_TENANCY_COPY "(copy)"

struct plx_tenancy_options {
    const struct plx_paths *paths;
    const char *volume; /* volume 0 */
    struct plx_uuid store;
    bool take;    /* take a store that nobody has: released, or new */
    bool dry_run; /* only find out whether a tenancy would be granted; writes nothing */
    /* The operator's word that the host of this name or id is off. NULL: no such word. */
    const char *from;
    /* For error texts, read by plx_tenancy_begin() only: how the command line names this store.
     * which: after 'parallax store take-over'; volumes: after 'parallax store import'.
     * NULL: "--volume" and the path of the volume. */
    const char *which;
    const char *volumes;
    /* Called once when the tenancy is fenced, on the thread that found out, which is in most cases
     * the tenancy's own. It must not call back into the tenancy. NULL: not called. */
    void (*fenced)(void *context, const char *why);
    /* Called when those to whom plx_tenancy_waits() said yes should ask again, on the tenancy's
     * thread. It must not call back into the tenancy. NULL: not called. */
    void (*looked)(void *context);
    void *context;
    /* Called with volumes_known before a page that names another boot or inode is written: whether
     * nobody on this machine has the store's other volumes open to write (TENANCY-9). BUSY if
     * somebody has. NULL: not asked. */
    int (*alone)(const void *volumes_known, struct plx_fault *fault);
    const void *volumes_known;
    /* How long plx_tenancy_begin() waits while another process takes or closes the store. NULL: up
     * to 15 seconds. */
    const struct plx_patience *patience;
};

/* BUSY: another host has the store, or another machine that gives itself this host's id; the text
 * says what the operator can do. *ret_tenancy is NULL after a dry run. */
int plx_tenancy_begin(const struct plx_tenancy_options *options, struct plx_tenancy **ret_tenancy,
                      struct plx_fault *fault);
/* Ends the tenancy. The host's last process to do so clears the page's "open". NULL is fine. */
void plx_tenancy_end(struct plx_tenancy *tenancy);

/* Reads the page now. FENCED: the store is not this host's any more. Or an error of the device. */
int plx_tenancy_look(struct plx_tenancy *tenancy, struct plx_fault *fault);
/* FENCED when the last look found that somebody else has the store; *fault says who. Reads the page
 * only if that look is no longer good (TENANCY-10, a), or for that text. */
int plx_tenancy_fenced(struct plx_tenancy *tenancy, struct plx_fault *fault);
/* The same without the reason. */
bool plx_tenancy_is_fenced(const struct plx_tenancy *tenancy);
/* Whether a write that came at since_ns, by the boot clock (CLOCK_BOOTTIME), must wait for a look,
 * because the last good one is too old now (TENANCY-10). If so, the tenancy's thread looks at once.
 * Once the tenancy is fenced, all wait: the caller asks for that first, and refuses them. Reads
 * nothing and never blocks. */
bool plx_tenancy_waits(struct plx_tenancy *tenancy, uint64_t since_ns);

/* Gives the store up, so that another host may import it. BUSY while another process of this host
 * has the store open. The tenancy counts as fenced afterwards; end it as usual. */
int plx_tenancy_release(struct plx_tenancy *tenancy, struct plx_fault *fault);

/* ---- The store's number (attach/numbers.c) ---- */

struct plx_number {
    uint64_t number; /* 0: none was written */
    bool damaged;    /* a slot is neither whole nor unused: there may have been a higher one */
};
/* What the home page says. */
int plx_number_home(struct plx_device *device, const struct plx_uuid *store,
                    struct plx_number *ret_number, struct plx_fault *fault);
/* Of a further volume. What plx_number_write() has written is durable when it returns. */
void plx_number_read(struct plx_device *device, const struct plx_uuid *store,
                     struct plx_number *ret_number);
int plx_number_write(struct plx_device *device, const struct plx_uuid *store, uint64_t number,
                     struct plx_fault *fault);
/* Whether plx_number_read() and plx_tenancy_begin() (TENANCY-8) take this number for one. */
bool plx_number_has_room(uint64_t number);
/* Calls `raise` with the home page's number while no other process writes the page. If it returns
 * another number, both slots of the page have that, durably, at the end. FENCED: the store is not
 * this host's any more. */
struct plx_number_raise {
    int (*raise)(void *context, const struct plx_number *home, uint64_t *ret_next,
                 struct plx_fault *fault);
    void *context;
};
int plx_tenancy_number(struct plx_tenancy *tenancy, const struct plx_number_raise *how,
                       struct plx_fault *fault);

/* What the page says, for people. */
struct plx_tenant {
    struct plx_uuid host; /* zero: nobody has the store */
    char host_name[65];
    bool found;          /* false: no page was ever written (a released store has one) */
    bool damaged;        /* so that it cannot be read: for who goes on without it */
    unsigned lost_slots; /* bit N: slot N is lost, and the other one says all that is here */
    bool open;           /* "open" is set: the store is in use, or was not closed in order */
    bool ours;           /* the page has this host's id, or this boot's */
    bool here;           /* this boot and this inode: the byte locks of its users can be seen */
};
int plx_tenancy_read(struct plx_device *device, const struct plx_bytelock *locks,
                     const struct plx_uuid *store, const struct plx_paths *paths,
                     struct plx_tenant *ret_tenant, struct plx_fault *fault);
/* For a reader that cannot write to the volume and whose locks nobody sees. *since 0 begins: nobody
 * may have the store open. If the page says "open", that call watches the counter for up to five
 * seconds. It sets *since for the later calls: nobody may have opened the store since then. */
int plx_tenancy_unopened(struct plx_device *device, const struct plx_uuid *store, uint64_t *since,
                         bool *ret_unopened, struct plx_fault *fault);
/* Writes the first page of a store that was just formatted: this host has it, and it is not open.
 */
int plx_tenancy_found(struct plx_device *device, const struct plx_bytelock *locks,
                      const struct plx_uuid *store, const struct plx_paths *paths,
                      struct plx_fault *fault);

#endif
