/* home.h - homes: the stores that are open in this process, one engine and one loop each.
 *
 * All LUNs of a store share its home. The first LUN opens the store, and the last one closes it.
 * The order of calls for a LUN:
 *
 *   plx_home_enter()        opens the VDI or snapshot, and the store before the first LUN
 *   plx_home_resize(), plx_home_label() and so on
 *   plx_home_leave()        closes it, and the store after the last LUN
 *
 * These calls may block, on the registry and on devices. They belong to tcmu-runner's main thread
 * and to the threads of a home, never to the data path or the loop. Unless it says otherwise, a
 * call returns 0 or an error, with a sentence in *fault.
 */
#ifndef PLX_HOME_H
#define PLX_HOME_H

#include "attach/attach_ring.h"
#include "tcmu/lun.h"

struct plx_store_home {
    struct plx_store_home *next;
    char name[PLX_STORE_NAME_MAX + 1];
    unsigned entered; /* LUNs that are open or being opened */
    struct plx_loop *loop;
    struct plx_attach *attach;
    pthread_mutex_t attach_lock; /* around calls of attach; taken before the loop's mutex */
    /* How long attach calls wait for other processes: wait_ms, which is not 0 only while a LUN
     * opens. Guarded by attach_lock once other threads know the attach. */
    struct plx_patience patience;
    unsigned wait_ms;
    struct plx_control_server *control;
    struct plx_service *service; /* lets snapshots go (service.h) */
    struct plx_collector *collector;
    /* Guards the list; a LUN in it stays open while a thread holds this lock. Taken before
     * attach_lock. */
    pthread_mutex_t luns_lock;
    struct plx_lun *luns;
    /* limits.c's last look: the bytes left for data; the soft limit, as bytes left, 0: none;
     * whether it is crossed. */
    _Atomic uint64_t available_bytes, warn_bytes;
    bool warned;
};

/* Opens the VDI or snapshot that lun->config names: sets home, loop, vdi and the properties of the
 * disk. plx_home_leave() undoes each call that succeeded. */
int plx_home_enter(struct plx_lun *lun, struct plx_fault *fault);
void plx_home_leave(struct plx_lun *lun);
/* Disks that are open without a LUN: recovery left them open for a LUN that has not come yet, or
 * their LUN has left. How many, and a counter of changes (attach.h). */
unsigned plx_home_unasked(struct plx_store_home *home, uint64_t *ret_changes);
/* Closes such a disk; vdi NULL: all of them. */
void plx_home_let_go(struct plx_store_home *home, const char *vdi);
/* Grows the VDI; does nothing if it has that size already. */
int plx_home_resize(struct plx_lun *lun, uint64_t bytes, struct plx_fault *fault);
/* Labels a snapshot of the VDI; seq 0: removes the label. */
int plx_home_label(struct plx_lun *lun, const char *label, uint64_t seq, struct plx_fault *fault);
/* Gives the LUN the contents of a snapshot. A unit attention tells its initiators. */
int plx_home_rewind(struct plx_lun *lun, uint64_t seq, char ret_label[PLX_REWIND_LABEL],
                    struct plx_snapshot_info *ret_before, struct plx_fault *fault);
int plx_home_protect(struct plx_lun *lun, const struct plx_protection *protection,
                     struct plx_fault *fault);
/* Another process has made the store larger. */
int plx_home_volumes_changed(struct plx_store_home *home, struct plx_fault *fault);
/* Lets snapshots go, one slice of history: plx_attach_thin(). */
int plx_home_thin(struct plx_lun *lun, const struct plx_thin *thin, struct plx_thinned *ret_thinned,
                  struct plx_fault *fault);
/* plx_attach_look_at_clock(), plx_attach_resume(). */
void plx_home_look_at_clock(struct plx_lun *lun, struct plx_vdi_clock *ret_clock);
int plx_home_resume(struct plx_lun *lun, struct plx_fault *fault);
/* plx_attach_ring_use(); plx_attach_ring_let_go(), then plx_attach_ring_info(). */
int plx_home_ring_use(struct plx_lun *lun, enum plx_ring_setting use, struct plx_fault *fault);
void plx_home_ring_info(struct plx_lun *lun, struct plx_ringed_info *ret_info);
/* plx_attach_ring_let_go() of all disks that have a LUN. */
void plx_home_let_rings_go(struct plx_store_home *home);
/* Runs a PLX_MOVE request, if the store has room for it. */
int plx_home_move(struct plx_lun *lun, struct plx_request *request);

#endif
