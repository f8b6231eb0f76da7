/* home.c - opens a store with its first LUN and closes it with its last. What is asked of an open
 * home: home_calls.c.
 *
 * The life of a home, under homes_lock:
 *
 *  no  state    entered by                      what happens
 *   1  listed   get_home, for the first LUN     -
 *   2  opening  open_home                       starts attach, loop, collector, control socket and
 *                                               service, in this order
 *   3  open     open_home has succeeded         LUNs come and go
 *   4  closing  close_home, after the last LUN  ends control socket, service, collector, loop and
 *               or if opening fails             attach, in this order; then off the list
 *
 * HOME-1  There is one home for each store. Two engines of one process on one store would each
 *     believe that they own its extents.
 * HOME-2  No thread ever meets a home that is half open. A home is listed before its store is
 *     opened and until its store is closed, and homes_lock is held while either happens.
 * HOME-3  Engine calls are made with the loop's mutex held, and registry calls without it (INV-4).
 *     So a slow registry delays the LUN that is being opened and no other.
 *
 * Lock order: homes_lock, luns_lock, attach_lock, the loop's mutex.
 * Threads: tcmu-runner's main and recovery threads, those of the control server, the retention
 *   service and the collector.
 */
#include "tcmu/home.h"

#include <stdlib.h>
#include <string.h>

#include "attach/attach.h"
#include "control/control.h"
#include "tcmu/collector.h"
#include "tcmu/commands.h"
#include "tcmu/loop.h"
#include "tcmu/runner.h"
#include "tcmu/say.h"
#include "tcmu/service.h"

/* Only the opening of a LUN waits for other processes. A LUN must not be missing after a start just
 * because a command had its disk, or recovered the store, at that moment. Other calls fail with
 * BUSY and are tried again later. While a LUN waits, tcmu-runner's main loop waits with it: other
 * LUNs go on, but none is opened or closed. */
#define STORE_WAIT_MS 15000u /* a recovery by another process, for example, may take that long */
#define OPEN_WAIT_MS 3000u

static pthread_mutex_t homes_lock = PTHREAD_MUTEX_INITIALIZER;
static struct plx_store_home *homes;

/* ---- Hooks for attach.c (HOME-3) ------------------------------------------------------------ */

static void lock_loop(void *context)
{
    plx_loop_lock(((struct plx_store_home *)context)->loop);
}

static void unlock_loop(void *context)
{
    plx_loop_unlock(((struct plx_store_home *)context)->loop);
}

static void tick_loop(void *context)
{
    plx_loop_tick(((struct plx_store_home *)context)->loop);
}

static void idle_loop(void *context)
{
    plx_loop_idle(((struct plx_store_home *)context)->loop);
}

static void wake_loop(void *context)
{
    plx_loop_wake(((struct plx_store_home *)context)->loop);
}

static int defer_job(void *context, void (*function)(void *argument), void *argument)
{
    return plx_loop_defer(((struct plx_store_home *)context)->loop, function, argument);
}

static void log_event(void *context, int error_code, const char *text)
{
    struct plx_store_home *home = context;

    if (error_code == 0)
        plx_say(info, NULL, "%s: %s", home->name, text);
    else
        plx_say(error, NULL, "%s: %s (%s)", home->name, text, plx_error_name(error_code));
}

static bool want_room(void *context)
{
    return plx_retention_wake(context);
}

static void watch_devices(void *context)
{
    struct plx_store_home *home = context;
    int error = plx_loop_watch(home->loop);

    if (error)
        plx_say(warn, NULL, "%s: a further device's completions are noticed late: %s", home->name,
                strerror(error));
}

static void unwatch_devices(void *context)
{
    plx_loop_unwatch(((struct plx_store_home *)context)->loop);
}

/* ---- Homes ---------------------------------------------------------------------------------- */

static void remove_home(struct plx_store_home *home)
{
    struct plx_store_home **link = &homes;

    while (*link != home)
        link = &(*link)->next;
    *link = home->next;
}

static int start_control(struct plx_store_home *home, struct plx_fault *fault)
{
    char path[PLX_PATH_MAX];
    struct plx_control_options options = {
        .path = path,
        .handle = plx_commands_handle,
        .context = home,
    };
    int error = plx_attach_control_path(home->attach, path, fault);

    return error ? error : plx_control_start(&options, &home->control, fault);
}

/* Closing a disk may want room and wake the service. So `service` is cleared under the loop's mutex
 * before the thread ends: later wakes find no service. */
static void stop_service(struct plx_store_home *home)
{
    struct plx_service *service = home->service;

    if (!service)
        return;
    plx_loop_lock(home->loop);
    home->service = NULL;
    plx_loop_unlock(home->loop);
    plx_retention_stop(service);
}

static void close_home(struct plx_store_home *home)
{
    int result = 0;

    plx_control_stop(home->control);
    stop_service(home);
    plx_collector_stop(home->collector);
    if (home->attach) {
        plx_loop_stop(home->loop);
        result = plx_attach_close(home->attach);
    }
    if (result < 0)
        plx_say(error, NULL, "closing store %s: %s", home->name, plx_error_text(result));
    plx_loop_free(home->loop);
    pthread_mutex_destroy(&home->attach_lock);
    pthread_mutex_destroy(&home->luns_lock);
    remove_home(home);
    free(home);
}

static int open_home(struct plx_store_home *home, struct plx_fault *fault)
{
    struct plx_attach_options options = {
        .store = home->name,
        .role = "handler",
        .reopens = true,
        .rings = true,
        .context = home,
        .lock = lock_loop,
        .unlock = unlock_loop,
        .tick = tick_loop,
        .idle = idle_loop,
        .wake = wake_loop,
        .defer = defer_job,
        .event = log_event,
        .room_wanted = want_room,
        .devices_changed = watch_devices,
        .devices_gone = unwatch_devices,
        .patience = &home->patience,
    };
    int result = plx_loop_new(&home->loop, fault);

    home->patience = (struct plx_patience){plx_patience_fixed, &home->wait_ms};
    home->wait_ms = STORE_WAIT_MS;
    if (result == 0)
        result = plx_attach_open(&options, &home->attach, fault);
    home->wait_ms = 0;
    if (result == 0)
        result = plx_loop_start(home->loop, plx_attach_store(home->attach), fault);
    if (result == 0)
        result = plx_collector_start(home, &home->collector, fault);
    if (result == 0)
        result = start_control(home, fault);
    if (result == 0)
        result = plx_retention_start(home, &home->service, fault);
    return result;
}

/* HOME-1 */
static struct plx_store_home *find_home(const char *name)
{
    for (struct plx_store_home *home = homes; home; home = home->next)
        if (strcmp(home->name, name) == 0)
            return home;
    return NULL;
}

static int get_home(const char *name, struct plx_store_home **ret_home, struct plx_fault *fault)
{
    struct plx_store_home *home = find_home(name);
    int result;

    if (!home) {
        home = calloc(1, sizeof *home);
        if (!home)
            return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
        strcpy(home->name, name); /* fits: it comes from config.store, of the same size */
        pthread_mutex_init(&home->luns_lock, NULL);
        pthread_mutex_init(&home->attach_lock, NULL);
        home->next = homes; /* HOME-2 */
        homes = home;
        result = open_home(home, fault);
        if (result < 0) {
            close_home(home);
            return result;
        }
    }
    home->entered++;
    *ret_home = home;
    return 0;
}

static void put_home(struct plx_store_home *home)
{
    if (--home->entered == 0)
        close_home(home);
}

/* ---- LUNs ----------------------------------------------------------------------------------- */

/* PLUGIN-2 */
static bool is_open_for_writing(const struct plx_store_home *home, const char *vdi)
{
    for (struct plx_lun *lun = home->luns; lun; lun = lun->next)
        if (!lun->read_only && strcmp(lun->config.vdi, vdi) == 0)
            return true;
    return false;
}

static void add_lun(struct plx_store_home *home, struct plx_lun *lun)
{
    pthread_mutex_lock(&home->luns_lock);
    lun->next = home->luns;
    home->luns = lun;
    pthread_mutex_unlock(&home->luns_lock);
}

static void remove_lun(struct plx_store_home *home, struct plx_lun *lun)
{
    struct plx_lun **link = &home->luns;

    pthread_mutex_lock(&home->luns_lock);
    while (*link != lun)
        link = &(*link)->next;
    *link = lun->next;
    pthread_mutex_unlock(&home->luns_lock);
}

static int open_vdi(struct plx_lun *lun, struct plx_fault *fault)
{
    struct plx_attach_vdi_options options = {
        .write_back = lun->config.write_back,
        .quiet_ns = lun->config.quiet_ns,
        .overwrite = lun->config.overwrite,
    };
    const char *snapshot = lun->config.snapshot[0] ? lun->config.snapshot : NULL;
    struct plx_vdi_info info;
    int result;

    if (!snapshot && is_open_for_writing(lun->home, lun->config.vdi))
        return plx_fault_set(fault, PLX_ERR_BUSY,
                             "%s/%.120s is exported by another LUN of this host already; export a "
                             "snapshot or a clone instead",
                             lun->config.store, lun->config.vdi);
    pthread_mutex_lock(&lun->home->attach_lock);
    lun->home->wait_ms = OPEN_WAIT_MS;
    result = plx_attach_vdi_open(lun->home->attach, lun->config.vdi, snapshot, &options, &lun->vdi,
                                 fault);
    lun->home->wait_ms = 0;
    pthread_mutex_unlock(&lun->home->attach_lock);
    if (result < 0)
        return result;
    plx_loop_lock(lun->loop);
    plx_vdi_get_info(lun->vdi, &info);
    lun->read_only = plx_vdi_is_snapshot(lun->vdi);
    plx_loop_unlock(lun->loop);
    lun->sector_size = info.sector_size;
    atomic_store(&lun->size_bytes, info.size_bytes);
    atomic_store(&lun->write_back, lun->config.write_back && !lun->read_only);
    return 0;
}

int plx_home_enter(struct plx_lun *lun, struct plx_fault *fault)
{
    int result;

    pthread_mutex_lock(&homes_lock);
    result = get_home(lun->config.store, &lun->home, fault);
    if (result == 0) {
        lun->loop = lun->home->loop;
        result = open_vdi(lun, fault);
        if (result == 0)
            add_lun(lun->home, lun);
        else
            put_home(lun->home);
    }
    pthread_mutex_unlock(&homes_lock);
    return result;
}

void plx_home_leave(struct plx_lun *lun)
{
    int result;

    pthread_mutex_lock(&homes_lock);
    remove_lun(lun->home, lun);
    pthread_mutex_lock(&lun->home->attach_lock);
    result = plx_attach_vdi_leave(lun->home->attach, lun->vdi);
    pthread_mutex_unlock(&lun->home->attach_lock);
    if (result < 0)
        plx_say(error, NULL, "closing %s/%s: %s; the next open recovers it", lun->config.store,
                lun->config.vdi, plx_error_text(result));
    put_home(lun->home);
    pthread_mutex_unlock(&homes_lock);
}
