/* home.h - open stores: one engine and one loop each, shared by the store's LUNs.
 *
 * The first LUN of a store opens it, the last one closes it. All of this may block and belongs to
 * tcmu-runner's main thread and the control socket's, never to the data path.
 */
#ifndef PLX_HOME_H
#define PLX_HOME_H

#include "attach/attach.h"
#include "tcmu/lun.h"

struct plx_store_home {
    struct plx_store_home *next;
    char name[PLX_STORE_NAME_MAX + 1];
    unsigned entered; /* LUNs inside, or on their way in */
    struct plx_loop *loop;
    struct plx_attach *attach;
    pthread_mutex_t attach_lock;  /* around calls of attach; taken before the loop's mutex */
    struct plx_patience patience; /* of the attach: so long, which is not 0 where a LUN begins. */
    unsigned wait_ms;             /* Under attach_lock, or nobody else knows the attach. */
    struct plx_control_server *control;
    struct plx_service *service; /* lets snapshots go (service.h) */
    struct plx_collector *collector;
    /* Who holds this finds the LUNs of the list open. Taken before attach_lock. */
    pthread_mutex_t luns_lock;
    struct plx_lun *luns;
    /* limits.c, as of its last look: what is left for data, and of that the soft limit, 0: none. */
    _Atomic uint64_t available_bytes, warn_bytes;
    bool warned; /* it is crossed */
};

/* Opens the VDI or snapshot that lun->config names: sets home, loop, vdi and what is known of it.
 * Every call that succeeded is undone by plx_home_leave(). */
int plx_home_enter(struct plx_lun *lun, struct plx_fault *fault);
void plx_home_leave(struct plx_lun *lun);
/* Disks that are open and have no LUN: it has not come yet since they were recovered, or it has
 * left; vdi NULL: all. */
unsigned plx_home_unasked(struct plx_store_home *home, uint64_t *ret_changes); /* attach.h */
void plx_home_let_go(struct plx_store_home *home, const char *vdi);
/* Grows the VDI; nothing to do when it has that size already. Waits; any thread but the loop's. */
int plx_home_resize(struct plx_lun *lun, uint64_t bytes, struct plx_fault *fault);
/* Names a snapshot of the VDI, seq 0: takes the name away. As above. */
int plx_home_label(struct plx_lun *lun, const char *label, uint64_t seq, struct plx_fault *fault);
/* The LUN's contents become those of a snapshot; its initiators are told by a unit attention. */
int plx_home_rewind(struct plx_lun *lun, uint64_t seq, char ret_label[PLX_REWIND_LABEL],
                    struct plx_snapshot_info *ret_before, struct plx_fault *fault);
int plx_home_protect(struct plx_lun *lun, const struct plx_protection *protection,
                     struct plx_fault *fault);
/* The store has become larger, by another process. As above. */
int plx_home_volumes_changed(struct plx_store_home *home, struct plx_fault *fault);
/* plx_attach_thin(): one slice. As above. */
int plx_home_thin(struct plx_lun *lun, const struct plx_thin *thin, struct plx_thinned *ret_thinned,
                  struct plx_fault *fault);
/* plx_attach_look_at_clock(), plx_attach_resume(). As above. */
void plx_home_look_at_clock(struct plx_lun *lun, struct plx_vdi_clock *ret_clock);
int plx_home_resume(struct plx_lun *lun, struct plx_fault *fault);
/* A PLX_MOVE, if the store has room for it. As above. */
int plx_home_move(struct plx_lun *lun, struct plx_request *request);

#endif
