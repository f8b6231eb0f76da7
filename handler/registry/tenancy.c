/* tenancy.c - see tenancy.h.
 *
 * TENANCY-1  A page is written with the next generation, and only while its writer holds the lock
 *     on PLX_BYTE_HOME. So one process of a machine writes at a time. (The first page of a new
 *     store needs no lock: formatting has the volume for itself.)
 * TENANCY-2  At every instant one slot is whole and durable, and says who has the store and that it
 *     may be open. What is written where:
 *
 *       change                          slots           flushed
 *       host, boot or inode             A, then B       before A, after A, after B
 *       number (attach/numbers.c)       A, then B       the same
 *       "open", while A does not say it A, then B       the same
 *       opened, A says "open"           B               after B
 *       closed                          B               no
 *       counter raised                  B               no
 *
 *     The flush before A is there since B's last write may still be volatile: a torn write of A
 *     must not leave both slots unusable. Once A says "open", it goes on saying so. A power cut
 *     that loses "closed" or a counter only makes the next host watch in vain. An opening is
 *     flushed, so that an older "closed" cannot come back under a store that is in use.
 * TENANCY-3  To take a store over means to begin a tenancy from another boot or inode, after a
 *     release, or by the operator's word. A process that does so writes the page, waits SLOW_NS,
 *     and reads the page again before it does anything else. The wait has two reasons: of two
 *     processes that take the store at once, the one whose page was overwritten must notice; and
 *     the former host may still let go of writes for that long (TENANCY-10). The page names no
 *     inode until the wait is over. So if the process is killed in the wait, the next one of this
 *     host takes the store over, too, and waits. From the last reading until the inode is named
 *     less than SLOW_NS passes, else the process waits once more: another host that took the store
 *     after that reading has not ended its own wait then, and notices.
 * TENANCY-4  The counter never goes back while its host lives. A counter that did go back belongs
 *     to an older page: somebody restored the volume beneath us. The tenancy is fenced.
 * TENANCY-5  A counter that stands still proves death only on the same machine. A process that is
 *     stopped there cannot have I/O of its own in flight for that long, and its instance's lock is
 *     looked at afterwards. Between two running machines it proves nothing: the other machine may
 *     only be paused. So another host's store needs the operator's word.
 * TENANCY-6  A page that was read while another process wrote it proves nothing. So a page with a
 *     damaged slot does not fence a tenancy. It is read again some times first, and only if it
 *     stays damaged is that told to people.
 * TENANCY-7  Whoever opens a store writes the page before anything else, even if "open" is set
 *     already. So a reader whose locks are not visible to others can tell by the page's generation
 *     whether the store was opened while it read.
 * TENANCY-8  A tenancy begins only if the page's numbers leave room to count on from them. Else our
 *     own next page would be refused by the gate that reads it. The operator's word begins a new
 *     count.
 * TENANCY-9  A tenancy from another boot or inode begins only when nobody has the store's further
 *     volumes open to write (VOLUMES-6). For volume 0 may have been replaced by a copy while the
 *     store was in use. The copy's counter stands still, and its locks are free. But those who
 *     opened the store before go on writing to the further volumes, which both volumes 0 name.
 * TENANCY-10  A look is one reading of the home page; a good one finds this host there. A write or
 *     flush goes to the store in two cases, by a clock that goes on while the machine sleeps:
 *     (a) the last good look began less than GAP_NS (2 s) ago;
 *     (b) it began less than SLOW_NS (5 s) ago, and after the write came.
 *     Why a write of either case is handed to the device before another host's: a host that takes
 *     the store over writes the page after our last good look has read it; otherwise that look
 *     would have found the other host there. It then waits SLOW_NS before it writes anything else
 *     (TENANCY-3), so that wait ends at least 5 s after our look began. The other host waits also
 *     if it had read the page before we set "open", and so found that nobody had the store.
 *     Why (a) has 2 s and not 5: a write is let go by the clock, and reaches the device later: at
 *     the end of the turn, after other threads, over a network. (a) leaves 3 s for that. With 5 s,
 *     a machine that wakes up 4.9 s after its last look would let go of all that it has, 0.1 s
 *     before the other host may write.
 *     Why (b) exists: a look that takes GAP_NS or longer is too old for (a) when it ends. By (a)
 *     alone no write would ever go to such a device.
 *     Why (b) asks for a look that began after the write came: (b) may leave no time for delays. So
 *     it is only for writes that waited for this very look. What comes later waits for another one.
 *     Nor can (b) be the only rule: each write would wait for a look of its own.
 *     The clock is asked when the write goes: what a thread noted before a pause says nothing
 *     afterwards. A process that is stopped between that and io_submit() still writes the few
 *     blocks that it was about to: only a fence of the device itself rules that out.
 *     What was read counts only after a look that is good by (a), too: in a longer gap another host
 *     may have written over it.
 * TENANCY-11  Only two wait for the page: the tenancy's own thread, and a call that is about to
 *     commit to the registry. While the device hangs nobody knows whose the store is. Then nothing
 *     is fenced, writes wait (TICK-6), and they go on by themselves when a look succeeds again. If
 *     looks that are due return errors for UNSEEN_NS, the tenancy is fenced, so that writes fail as
 *     the device does.
 * Threads: `lock` guards the device and the page in memory, and is held while the page is read. The
 *   tenancy's thread looks once a second, and whenever somebody waits for a look. What the store's
 *   loop asks is atomic, and it takes wake_lock, for an instant, to wake that thread.
 * Crash story: a crash leaves "open" set. The next process of the same boot and inode does not
 *   mind. A process of a new boot watches the counter, which stands still, and takes over. A power
 *   cut soon after the last process closed the store also leaves "open" set.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "registry/tenancy_inside.h"

#include "registry/host_word.h"

/* ---- Beginning ---- */

static bool is_our_boot(const struct plx_tenancy *t, const struct plx_home *home)
{
    return !plx_uuid_is_zero(&t->boot) && plx_uuid_equal(&home->boot, &t->boot);
}

static bool is_our_inode(const struct plx_tenancy *t, const struct plx_home *home)
{
    return home->device == t->locks->device && home->inode == t->locks->inode;
}

/* Whether the page was written through our boot and inode: its writers and we see each other's
 * locks. */
static bool is_ours(const struct plx_tenancy *t, const struct page *page)
{
    return page->found && is_our_boot(t, &page->home) && is_our_inode(t, &page->home);
}

static int lock_home(struct plx_tenancy *t, const struct plx_patience *patience,
                     struct plx_fault *fault)
{
    unsigned raise_ms = RAISE_MS, wait_ms = LOCK_WAIT_MS;
    const struct plx_patience raises = {plx_patience_fixed, &raise_ms};
    const struct plx_patience some = {plx_patience_fixed, &wait_ms};
    uint64_t since_ns = plx_patience_begin();
    struct plx_fault why;
    int error;

    plx_fault_set(&why, PLX_ERR_BUSY, "%s: another process keeps the home page locked; try again",
                  t->device->name);
    do
        error = t->locks->ops->set(t->locks, PLX_BYTE_HOME, PLX_BYTE_EXCLUSIVE);
    while (error == PLX_ERR_BUSY &&
           (plx_patience_waits(&raises, since_ns, &why) ||
            plx_patience_waits(patience ? patience : &some, since_ns, &why)));
    return error ? plx_fault_set(fault, error, "%s", why.text) : 0;
}

static void unlock_home(struct plx_tenancy *t)
{
    t->locks->ops->set(t->locks, PLX_BYTE_HOME, PLX_BYTE_UNLOCKED);
}

static int watch(struct plx_tenancy *t, const struct page *page, uint64_t ns, bool *ret_moved,
                 struct plx_fault *fault)
{
    return plx_home_watch(t->device, &t->options.store, page, ns, ret_moved, fault);
}

/* TENANCY-8 */
static bool has_room(const struct plx_home *home)
{
    return plx_counter_has_room(home->generation) && plx_counter_has_room(home->counter) &&
           plx_counter_has_room(home->number);
}

#define TAKES 3u

/* TENANCY-3: whether the page is still what this process wrote, after the wait; then it names the
 * inode. *ret_again: so much time has passed in between that another host may have taken the store,
 * and waited. */
static int name_inode(struct plx_tenancy *t, const struct plx_home *home, struct page *page,
                      bool *ret_again, struct plx_fault *fault)
{
    uint64_t checked_ns = plx_home_boot_ns();
    struct plx_home named = *home;
    struct page now;
    bool moved;
    int error = plx_home_moved(t->device, &t->options.store, page, &now, &moved, fault);

    if (!error && moved)
        error = plx_fault_set(fault, PLX_ERR_BUSY,
                              "%s: another host has taken the store at the same time; look at "
                              "'parallax store scan'",
                              t->device->name);
    if (error)
        return error;
    named.device = t->locks->device;
    named.inode = t->locks->inode;
    error = plx_home_write(t->device, &t->options.store, &named, SLOT_STATE, page, fault);
    *ret_again = plx_home_boot_ns() - checked_ns >= SLOW_NS;
    return error;
}

/* TENANCY-3: writes the page for this host, waits, makes sure that it is still there, and names the
 * inode. */
static int write_taken(struct plx_tenancy *t, struct page *page, struct plx_fault *fault)
{
    struct plx_home home = {
        .host = t->host,
        .boot = t->boot,
        .open = page->home.open,
        .number = page->home.number,
    };
    bool moved, again = true;
    int error = 0;

    if (!has_room(&page->home)) /* TENANCY-8 */
        page->home.generation = page->home.counter = home.number = 0;
    home.counter = page->home.counter + 1;
    snprintf(home.host_name, sizeof home.host_name, "%s", t->options.paths->host_name);
    for (unsigned i = 0; i < TAKES && !error && again; i++) {
        error = plx_home_write(t->device, &t->options.store, &home, SLOT_STATE, page, fault);
        if (!error)
            error = watch(t, page, SLOW_NS, &moved, fault);
        if (!error)
            error = name_inode(t, &home, page, &again, fault);
    }
    return error || !again
               ? error
               : plx_fault_set(fault, PLX_ERR_BUSY,
                               "%s: its home page cannot be read and written within 5 seconds, so "
                               "nobody can tell whether another host takes the store; try again "
                               "when the device is faster",
                               t->device->name);
}

static bool names_host(const char *from, const struct plx_home *home)
{
    char id[PLX_UUID_TEXT];

    plx_uuid_text(&home->host, id);
    return strcmp(from, home->host_name) == 0 || strcmp(from, id) == 0;
}

/* The operator names no host: ANY, or COPY. */
static bool is_any(const char *from)
{
    return from && (strcmp(from, PLX_TENANCY_ANY) == 0 || strcmp(from, PLX_TENANCY_COPY) == 0);
}

/* Whether what the page says is all that there is to know. A damaged slot may have named another
 * host, and a page without room is forged or damaged (TENANCY-8). */
static bool tells_host(const struct page *page)
{
    return page->found && !page->damaged && has_room(&page->home);
}

/* Applies the table of tenancy.h to a page that is not ours. 0: the store may be taken, after a
 * watch if *ret_watch is set, since somebody may have it open. TENANCY-5: without the operator's
 * word only this machine's own store gets that far. */
static int judge(struct plx_tenancy *t, const struct page *page, bool *ret_watch,
                 struct plx_fault *fault)
{
    const struct plx_home *home = &page->home;
    const char *from = t->options.from;
    bool any = is_any(from);

    *ret_watch = any || (page->found && home->open);
    if (!page->found)
        return t->options.take || from ? 0 : plx_tenancy_refuse_lost(t, fault);
    if (plx_uuid_is_zero(&home->host))
        return t->options.take || from ? 0 : plx_tenancy_refuse_released(t, fault);
    if (is_our_boot(t, home) || plx_uuid_equal(&home->host, &t->host))
        return 0;
    if (!from)
        return plx_tenancy_refuse_other(t, home, fault);
    if (strcmp(from, PLX_TENANCY_ANY) == 0 && tells_host(page))
        return plx_tenancy_refuse_any(t, home, fault);
    if (!any && !names_host(from, home))
        return plx_tenancy_refuse_from(t, home, fault);
    *ret_watch = true; /* the machine may not be off after all */
    return 0;
}

/* Watches the page with the home unlocked. A living process that sees our lock could not raise its
 * counter while we hold it, and would look dead. *page: as it is afterwards, locked again. */
static int watch_unlocked(struct plx_tenancy *t, struct page *page, bool *ret_moved,
                          struct plx_fault *fault)
{
    struct page before = *page;
    int error;

    unlock_home(t);
    error = watch(t, &before, WATCH_NS, ret_moved, fault);
    if (!error)
        error = lock_home(t, t->options.patience, fault);
    if (!error && !*ret_moved)
        error = plx_home_moved(t->device, &t->options.store, &before, page, ret_moved, fault);
    else if (!error)
        error = plx_home_read(t->device, &t->options.store, page, fault);
    return error;
}

/* TENANCY-9. Commands that have just begun or are about to end are waited for. */
static int ask_alone(struct plx_tenancy *t, struct plx_fault *fault)
{
    uint64_t since_ns = plx_patience_begin();
    struct plx_fault why;
    int error;

    if (!t->options.alone)
        return 0;
    do
        error = t->options.alone(t->options.volumes_known, &why);
    while (error == PLX_ERR_BUSY && plx_patience_waits(t->options.patience, since_ns, &why));
    return error ? plx_fault_set(fault, error, "%s", why.text) : 0;
}

/* Makes the store ours, or refuses. The caller holds the home's lock. */
static int take(struct plx_tenancy *t, struct plx_fault *fault)
{
    struct page page;
    char called[PLX_HOST_WORD];
    bool any = is_any(t->options.from), watched = false, moved = false;
    int error = plx_home_read(t->device, &t->options.store, &page, fault);

    if (error && any) {
        page = (struct page){0}; /* the operator's word replaces a page that cannot be read */
        error = 0;
    }
    if (!error && !any && !has_room(&page.home))
        error =
            plx_tenancy_refuse_page(t, "has a number that nothing can be counted on from", fault);
    if (!error && is_ours(t, &page) && has_room(&page.home)) {
        t->page = page;
        return 0;
    }
    if (!error)
        error = judge(t, &page, &watched, fault);
    if (!error && watched)
        error = watch_unlocked(t, &page, &moved, fault);
    if (!error && moved && is_ours(t, &page)) { /* another process of this boot has taken it */
        t->page = page;
        return 0;
    }
    if (!error && moved)
        error = plx_fault_set(
            fault, PLX_ERR_BUSY, "%.300s: the store is in use by host %s%s; stop it there first",
            t->device->name, plx_host_called(page.home.host_name, &page.home.host, called),
            is_our_boot(t, &page.home)
                ? ", that is this machine, through another name of the volume"
                : ", which is running");
    if (!error)
        error = ask_alone(t, fault);
    if (!error && !t->options.dry_run)
        error = write_taken(t, &page, fault);
    if (!error)
        t->page = page;
    return error;
}

/* Sets or clears "open", which tells processes of another boot or inode (TENANCY-2). */
static int set_open(struct plx_tenancy *t, bool open, struct plx_fault *fault)
{
    struct plx_home home;
    int error = plx_home_read(t->device, &t->options.store, &t->page, fault);

    if (error)
        return error;
    if (!is_ours(t, &t->page))
        return plx_fault_set(fault, PLX_ERR_FENCED, "another host has taken the store");
    home = t->page.home;
    home.open = open;
    home.counter++;
    if (open && !t->page.kept_open)
        return plx_home_write(t->device, &t->options.store, &home, SLOT_STATE, &t->page, fault);
    if (open || t->page.home.open) /* TENANCY-7 */
        error = plx_home_write(t->device, &t->options.store, &home, SLOT_COUNTER, &t->page, fault);
    if (error || !open)
        return error;
    return plx_home_cannot_write(t->device, plx_volume_io(t->device, PLX_IO_FLUSH, 0, NULL, 0),
                                 fault);
}

/* ---- Looking ---- */

/* The caller holds t->lock. */
static int fence(struct plx_tenancy *t, struct plx_fault *fault, const char *why)
{
    bool before = atomic_exchange(&t->fenced, true);

    if (!before) {
        snprintf(t->why, sizeof t->why, "%s", why);
        if (t->options.fenced)
            t->options.fenced(t->options.context, why);
    }
    return plx_fault_set(fault, PLX_ERR_FENCED, "%s", t->why);
}

static int look(struct plx_tenancy *t, struct plx_fault *fault)
{
    uint64_t begun_ns = plx_home_boot_ns();
    char why[256], called[PLX_HOST_WORD];
    struct page page;
    int error;

    if (atomic_load(&t->fenced))
        return plx_fault_set(fault, PLX_ERR_FENCED, "%s", t->why);
    error = plx_home_settled(t->device, &t->options.store, &page, fault);
    if (error)
        return error; /* an unreadable page proves nothing; looked_ns stays as it is */
    if (page.damaged && (!is_ours(t, &page) || page.home.counter < t->page.home.counter))
        return plx_fault_set(fault, PLX_ERR_CORRUPT, "%s: a copy of the home page is damaged",
                             t->device->name);
    if (!is_ours(t, &page)) {
        snprintf(why, sizeof why, "host %s has taken the store over",
                 !page.found || plx_uuid_is_zero(&page.home.host)
                     ? "(nobody)"
                     : plx_host_called(page.home.host_name, &page.home.host, called));
        return fence(t, fault, why);
    }
    if (page.home.counter < t->page.home.counter) /* TENANCY-4 */
        return fence(t, fault,
                     "the volume went back to an older state while it was in use (a snapshot of "
                     "the array restored?)");
    t->page = page;
    atomic_store(&t->looked_ns, begun_ns); /* TENANCY-10 */
    return 0;
}

int plx_tenancy_look(struct plx_tenancy *t, struct plx_fault *fault)
{
    int error;

    pthread_mutex_lock(&t->lock);
    error = look(t, fault);
    pthread_mutex_unlock(&t->lock);
    return error;
}

/* Whether no look is good any more, whoever asks (TENANCY-10). */
static bool is_due(const struct plx_tenancy *t)
{
    return plx_home_boot_ns() - atomic_load(&t->looked_ns) >= GAP_NS;
}

int plx_tenancy_fenced(struct plx_tenancy *t, struct plx_fault *fault)
{
    return atomic_load(&t->fenced) || is_due(t) ? plx_tenancy_look(t, fault) : 0;
}

bool plx_tenancy_is_fenced(const struct plx_tenancy *t)
{
    return atomic_load(&t->fenced);
}

static void ask_for_look(struct plx_tenancy *t)
{
    pthread_mutex_lock(&t->wake_lock);
    if (!t->asked)
        pthread_cond_signal(&t->wake);
    t->asked = true;
    pthread_mutex_unlock(&t->wake_lock);
}

bool plx_tenancy_waits(struct plx_tenancy *t, uint64_t since_ns)
{
    uint64_t looked_ns = atomic_load(&t->looked_ns), age_ns = plx_home_boot_ns() - looked_ns;

    if (atomic_load(&t->fenced))
        return true;
    if (age_ns < GAP_NS || (looked_ns >= since_ns && age_ns < SLOW_NS)) /* TENANCY-10 */
        return false;
    ask_for_look(t);
    return true;
}

/* TENANCY-11. The caller holds t->lock. */
static void note_unseen(struct plx_tenancy *t, int error)
{
    uint64_t now_ns = plx_home_boot_ns();

    if (!error || !is_due(t))
        t->unseen_ns = 0;
    else if (!t->unseen_ns)
        t->unseen_ns = now_ns;
    else if (now_ns - t->unseen_ns >= UNSEEN_NS)
        fence(t, NULL, "the home page cannot be read, so nobody knows whose the store is");
}

/* Every process looks. The one that gets the home's lock at this moment also raises the counter. */
static int look_and_raise(struct plx_tenancy *t)
{
    bool raises = !atomic_load(&t->fenced) &&
                  t->locks->ops->set(t->locks, PLX_BYTE_HOME, PLX_BYTE_EXCLUSIVE) == 0;
    int error = look(t, NULL);

    note_unseen(t, error);
    if (error == 0 && raises) {
        struct plx_home home = t->page.home;

        home.counter++;
        plx_home_write(t->device, &t->options.store, &home, SLOT_COUNTER, &t->page, NULL);
    }
    if (raises)
        unlock_home(t);
    return error;
}

/* Sleeps until the monotonic clock says until_ns, or somebody waits for a look. False: the tenancy
 * ends. */
static bool sleep_until(struct plx_tenancy *t, uint64_t until_ns)
{
    const struct timespec until = {(time_t)(until_ns / SECOND_NS), (long)(until_ns % SECOND_NS)};
    int result = 0;
    bool stopping;

    pthread_mutex_lock(&t->wake_lock);
    while (!t->stopping && !t->asked && result == 0)
        result = pthread_cond_timedwait(&t->wake, &t->wake_lock, &until);
    t->asked = false;
    stopping = t->stopping;
    pthread_mutex_unlock(&t->wake_lock);
    return !stopping;
}

static void *run(void *argument)
{
    struct plx_tenancy *t = argument;
    uint64_t begun_ns = plx_clock_ns(CLOCK_MONOTONIC);

    while (sleep_until(t, begun_ns + LOOK_NS)) {
        int error;

        begun_ns = plx_clock_ns(CLOCK_MONOTONIC);
        pthread_mutex_lock(&t->lock);
        error = look_and_raise(t);
        pthread_mutex_unlock(&t->lock);
        if (t->options.looked)
            t->options.looked(t->options.context);
        if (error)
            plx_home_rest(STEP_NS); /* whoever waits asks again at once */
    }
    return NULL;
}

/* ---- Opening and closing ---- */

static void tenancy_free(struct plx_tenancy *t)
{
    plx_bytelock_close(t->locks);
    plx_device_close(t->device);
    pthread_cond_destroy(&t->wake);
    pthread_mutex_destroy(&t->wake_lock);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

static int begin(struct plx_tenancy *t, struct plx_fault *fault)
{
    int error = lock_home(t, t->options.patience, fault);

    if (error)
        return error;
    error = take(t, fault);
    if (!error && !t->options.dry_run) {
        atomic_store(&t->looked_ns, plx_home_boot_ns());
        error = set_open(t, true, fault);
    }
    if (!error && !t->options.dry_run) {
        error = t->locks->ops->set(t->locks, PLX_BYTE_OPEN, PLX_BYTE_SHARED);
        if (error)
            plx_fault_set(fault, error, "%s: cannot be locked", t->device->name);
    }
    unlock_home(t);
    return error;
}

int plx_tenancy_begin(const struct plx_tenancy_options *options, struct plx_tenancy **ret_tenancy,
                      struct plx_fault *fault)
{
    struct plx_device_open_options device_options = {
        .queue_depth = 1, .beside = true, .read_only = options->dry_run};
    struct plx_tenancy *t = calloc(1, sizeof *t);
    struct plx_superblock_info info;
    pthread_condattr_t attributes;
    int error, result;

    if (!options->paths->host[0]) {
        free(t);
        return plx_home_refuse_nameless(options->paths, fault);
    }
    if (!t)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    t->options = *options;
    plx_home_identify(options->paths, &t->host, &t->boot);
    if (plx_uuid_is_zero(&t->boot)) {
        free(t);
        return plx_fault_set(
            fault, PLX_ERR_SYSTEM,
            "/proc/sys/kernel/random/boot_id cannot be read; without it nobody could "
            "tell whether a store is in use");
    }
    pthread_mutex_init(&t->lock, NULL);
    pthread_mutex_init(&t->wake_lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&t->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    error = plx_device_open(options->volume, &device_options, &t->device, fault);
    if (!error)
        error = plx_bytelock_open(options->volume, &t->locks, fault);
    if (!error && plx_superblock_probe(t->device, &info, NULL) == 0) /* every writer passes here */
        error = plx_superblock_check_known(t->device, info.unknown, fault);
    if (!error)
        error = begin(t, fault);
    if (!error && !options->dry_run) {
        result = pthread_create(&t->thread, NULL, run, t);
        if (result)
            error =
                plx_fault_set(fault, PLX_ERR_SYSTEM, "cannot start a thread: %s", strerror(result));
    }
    if (error || options->dry_run) {
        tenancy_free(t);
        t = NULL;
    }
    if (!error)
        *ret_tenancy = t;
    return error;
}

/* Clears "open" if this is the host's last process: then the lock on PLX_BYTE_OPEN, shared by all
 * that have the store open, can be had exclusively. */
static void close_page(struct plx_tenancy *t)
{
    if (atomic_load(&t->fenced) || lock_home(t, NULL, NULL))
        return;
    if (t->locks->ops->set(t->locks, PLX_BYTE_OPEN, PLX_BYTE_EXCLUSIVE) == 0)
        set_open(t, false, NULL);
    unlock_home(t);
}

void plx_tenancy_end(struct plx_tenancy *t)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->wake_lock);
    t->stopping = true;
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->wake_lock);
    pthread_join(t->thread, NULL);
    close_page(t);
    tenancy_free(t);
}

static int raise_number(struct plx_tenancy *t, const struct plx_number_raise *how,
                        struct plx_fault *fault)
{
    struct plx_number now;
    struct plx_home home;
    int error = look(t, fault);

    if (error)
        return error;
    home = t->page.home;
    now = (struct plx_number){.number = home.number, .damaged = t->page.damaged};
    error = how->raise(how->context, &now, &home.number, fault);
    if (error || home.number == now.number)
        return error;
    return plx_home_write(t->device, &t->options.store, &home, SLOT_STATE, &t->page, fault);
}

int plx_tenancy_number(struct plx_tenancy *t, const struct plx_number_raise *how,
                       struct plx_fault *fault)
{
    int error;

    pthread_mutex_lock(&t->lock);
    error = lock_home(t, t->options.patience, fault);
    if (!error) {
        error = raise_number(t, how, fault);
        unlock_home(t);
    }
    pthread_mutex_unlock(&t->lock);
    return error;
}

int plx_tenancy_release(struct plx_tenancy *t, struct plx_fault *fault)
{
    struct plx_home home;
    int error;

    pthread_mutex_lock(&t->lock);
    error = lock_home(t, NULL, fault);
    if (!error) {
        error = look(t, fault);
        if (!error && t->locks->ops->set(t->locks, PLX_BYTE_OPEN, PLX_BYTE_EXCLUSIVE))
            error = plx_fault_set(fault, PLX_ERR_BUSY,
                                  "%s: another process has the store open; stop it first",
                                  t->device->name);
        if (!error) {
            home = (struct plx_home){.counter = t->page.home.counter + 1,
                                     .number = t->page.home.number};
            error =
                plx_home_write(t->device, &t->options.store, &home, SLOT_STATE, &t->page, fault);
        }
        unlock_home(t);
    }
    if (!error)
        atomic_store(&t->fenced, true); /* the store is nobody's now, so not ours either */
    pthread_mutex_unlock(&t->lock);
    return error;
}
