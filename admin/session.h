/* session.h - what a command is connected to: registry, store, one open virtual disk.
 *
 * Order of calls: plx_session_open(), or plx_session_registry() if a command needs the registry
 * only; then the calls on disks and snapshots. main() calls plx_session_close().
 *
 * A command works on the store directly, under the disk's lock. If a handler of this host has the
 * disk open, then snapshots, labels, resizing, protection and counters go through the handler's
 * control socket instead, and callers see no difference (SESSION-1). A disk that another command
 * has locked is waited for, as long as --wait says.
 *
 * Errors: all functions return 0 or an error code, with cli->fault filled. Threads: one.
 */
#ifndef PLX_ADMIN_SESSION_H
#define PLX_ADMIN_SESSION_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "attach/attach_ring.h"
#include "attach/known.h"
#include "interrupt.h"
#include "registry/retention.h"
#include "text.h"

struct plx_tenant;

struct plx_cli;
struct plx_progress;

struct plx_session {
    struct plx_paths *paths;
    struct plx_registry *registry; /* the attach's */
    struct plx_attach *attach;
    struct plx_vdi *vdi;
    struct plx_progress *draining; /* of a ring, while a disk is opened; may be NULL */
    bool dry;                      /* the command changes nothing: no ring is drained for it */
    bool no_stores;                /* said by plx_session_each_store() */
};

/* How long a command has waited for others, of all that it may (--wait). */
struct plx_session_waiting {
    struct plx_patience patience;
    uint64_t waited_ns;
    bool told;
};

enum plx_session_mode {
    PLX_SESSION_READ,
    PLX_SESSION_CHECK, /* likewise, also of a store with a volume that went back */
    PLX_SESSION_WRITE,
    PLX_SESSION_GROW,    /* likewise, to make the store larger */
    PLX_SESSION_MEASURE, /* likewise, with its volumes opened as a handler opens them */
};

/* For what is waited for beside an attach, as long as --wait says. */
const struct plx_patience *plx_session_patience(struct plx_cli *cli);
/* Where the state lies; the session's. */
int plx_session_paths(struct plx_cli *cli, struct plx_paths **ret_paths);
/* Calls visit for each store that is known here, ordered by name, or for the named store ("":
 * each). visit opens what it needs. A failure is printed on stderr, the other stores are still
 * visited, and the first failure is returned. If no store is known, a note says where was looked
 * and what to do.
 */
int plx_session_each_store(struct plx_cli *cli, const char *store,
                           int (*visit)(struct plx_cli *cli, const struct plx_known *known,
                                        void *context),
                           void *context);
/* A store's registry, alone if nothing of the store is open yet, and the store's row there. */
int plx_session_registry(struct plx_cli *cli, const char *store,
                         struct plx_registry_store *ret_row);
/* The row of the store that is open. */
void plx_session_row(struct plx_cli *cli, struct plx_registry_store *ret_row);
/* A store and its registry. */
int plx_session_open(struct plx_cli *cli, const char *store, enum plx_session_mode mode);
/* Of the fault: the store's name in what it advises. */
void plx_session_name_advice(struct plx_cli *cli);
/* Whether this host still has the store; asked before the result gets its name, and by
 * plx_session_close(). FENCED: as plx_attach_fenced(). */
int plx_session_fenced(struct plx_cli *cli);
/* If the command failed for want of space in the store, and a collection may free some: the advice
 * will say so. */
void plx_session_note_garbage(struct plx_cli *cli, int error);
/* Closes what is open; called by main() whatever happened. */
int plx_session_close(struct plx_cli *cli);

struct plx_store *plx_session_store(struct plx_cli *cli);
/* Sends a command without arguments to every other instance that listens on this host. *ret_told is
 * the number of instances that obeyed. *ret_why (code 0 before) is the last refusal, if any. */
int plx_session_tell(struct plx_cli *cli, const char *store, const char *command,
                     unsigned *ret_told, struct plx_fault *ret_why);
/* Prints a note if the store is in doubt (registry.h). Only commands that change something are
 * refused for it, so the others print this note. */
void plx_session_tell_doubt(struct plx_cli *cli);
/* Call it with the error of a failed command: one that was refused for what is in doubt, or lost,
 * becomes DOUBT. */
int plx_session_name_doubt(struct plx_cli *cli, int rc);
/* What was seen, for people; null: nothing. */
json_t *plx_session_doubt(struct plx_cli *cli);
#define PLX_SESSION_TENANT_TEXT 512
/* Of the store whose registry is open, when it can only be read here: RELEASED if no host has it,
 * ELSEWHERE if another one has, UNTOLD if nobody knows. ret_text says so, and what comes next.
 * NULL: this host has it, or its home page cannot be read. */
const char *plx_session_not_ours(struct plx_cli *cli, const struct plx_known *known,
                                 char ret_text[PLX_SESSION_TENANT_TEXT]);
/* What its home page says; false: it cannot be read, and not because it is damaged. */
bool plx_session_read_tenant(struct plx_session *session, struct plx_tenant *ret_tenant);
/* host and ours, as 'store scan' has them; where it is another host, or none, a note says so. */
void plx_session_tell_host(struct plx_cli *cli, const char *store, json_t *object);
/* "handler 802 on web1", or "command 803 on web1" ("admin 803 on web1" in JSON), for people; with
 * ", gone" when it is proven dead: what it had open is recovered by the next command or handler
 * that opens the store for writing. */
json_t *plx_session_instance_text(struct plx_cli *cli,
                                  const struct plx_registry_instance *instance);
/* Who has the disk open and lives, as plx_session_instance_text() says it; NULL: nobody. The
 * caller owns the reference. */
json_t *plx_session_vdi_user(struct plx_cli *cli, const struct plx_registry_vdi *row);
/* The fault of the registry's last call. */
int plx_session_registry_fault(struct plx_cli *cli, int code);

int plx_session_vdi_row(struct plx_cli *cli, const struct plx_name *name,
                        struct plx_registry_vdi *ret_row);
/* Becomes session.vdi, for writing. */
int plx_session_vdi_open(struct plx_cli *cli, const struct plx_name *name);
/* Becomes session.vdi, for who copies it: the snapshot named, or the newest state on the store, of
 * a disk that nobody has open, and which plx_session_fenced() says stood still (ATTACH-26).
 * RING_AWAY: a ring may have newer writes, and a copy must not lack them unknown to who asked for
 * it. without_ring: it may, with a warning. */
int plx_session_image_open(struct plx_cli *cli, const struct plx_name *name, bool without_ring);
int plx_session_vdi_close(struct plx_cli *cli);
/* A further instant, read-only: the snapshot named, or the newest state on the store. Closed before
 * the session is. */
int plx_session_instant_open(struct plx_cli *cli, const struct plx_name *name,
                             struct plx_vdi **ret_vdi);
void plx_session_instant_close(struct plx_cli *cli, struct plx_vdi *vdi); /* NULL is fine */
/* Call it with the error of what read an instant (NULL: none): what looks damaged is BUSY where the
 * newest state was read of a disk that did not stand still (ATTACH-26). */
int plx_session_name_moved(struct plx_cli *cli, struct plx_vdi *vdi, int rc);

/* parent: the snapshot to clone, or NULL. */
int plx_session_vdi_create(struct plx_cli *cli, const struct plx_vdi_create_options *options,
                           const struct plx_name *parent);
/* lost: as plx_attach_vdi_delete(). */
int plx_session_vdi_delete(struct plx_cli *cli, const struct plx_name *name, bool lost);
/* Only here: whoever has it open knows it by its name. */
int plx_session_vdi_rename(struct plx_cli *cli, const struct plx_name *name, const char *new_name);
int plx_session_vdi_resize(struct plx_cli *cli, const struct plx_name *name, uint64_t bytes);
int plx_session_vdi_protect(struct plx_cli *cli, const struct plx_name *name,
                            const struct plx_protection *protection);
/* Has it use its ring so where it is open. *ret_live false: no handler has it open. */
int plx_session_vdi_ring_use(struct plx_cli *cli, const struct plx_name *name,
                             enum plx_ring_setting use, bool *ret_live);
/* Notes where a ring may have newer snapshots than the newest on the store. */
void plx_session_tell_newer(struct plx_cli *cli, const struct plx_name *name);
/* Discards a ring's writes to it. Only here: an instance that has the disk open has the ring,
 * too. */
int plx_session_vdi_discard_ring(struct plx_cli *cli, const struct plx_name *name, bool aside);
struct plx_session_ring {
    bool live; /* a handler has the disk open, and says: */
    struct plx_ringed_info info;
    char waits_for[32]; /* why draining waits, the name of an error; empty: it does not */
};
int plx_session_vdi_ring(struct plx_cli *cli, const struct plx_name *name,
                         struct plx_session_ring *ret_ring);
/* Whether an instance that answers on this host has it open. */
int plx_session_vdi_is_live(struct plx_cli *cli, const struct plx_name *name, bool *ret_live);
/* Back to snapshot seq; of the state before: its label and snapshot. */
int plx_session_vdi_rewind(struct plx_cli *cli, const struct plx_name *name, uint64_t seq,
                           char ret_label[PLX_REWIND_LABEL], struct plx_snapshot_info *ret_before);
/* The operator's word that the wall clock is right. */
int plx_session_vdi_resume(struct plx_cli *cli, const struct plx_name *name);
/* How retention.h lets snapshots of a disk go; a signal ends it. */
struct plx_session_thinning {
    struct plx_cli *cli;
    const struct plx_name *name;
    struct plx_progress *progress; /* in snapshots, all before `first` are through; NULL: none */
    uint64_t first, before;        /* before: those of earlier ranges */
};
struct plx_retention_work plx_session_thin_work(struct plx_session_thinning *thinning);
/* What is long and done by the handler of this host that has the store open, if there is one, else
 * here. A signal ends it. progress may be NULL. */
struct plx_session_job {
    bool dry_run;
    uint64_t memory, rate;
    void (*progress)(void *context, bool second, uint64_t done, uint64_t total);
    void *context;
};
/* plx_attach_collect(): not all garbage can be seen from outside a handler. */
int plx_session_collect(struct plx_cli *cli, const char *store, const struct plx_session_job *how,
                        struct plx_collected *ret_collected);
/* plx_attach_dedup(), of the disks that the handler has open; here of all. */
int plx_session_dedup(struct plx_cli *cli, const char *store, const struct plx_session_job *how,
                      struct plx_attach_deduped *ret_deduped);
/* A PLX_MOVE of what lies at or after move->upto, by a slice. move grows however it ended. */
int plx_session_vdi_move(struct plx_cli *cli, const struct plx_name *name, uint64_t end,
                         struct plx_move *move);
/* Writes a key frame: what has died comes back. */
int plx_session_vdi_keyframe(struct plx_cli *cli, const struct plx_name *name);
/* The ends of what can be opened; seq 0: there is no snapshot. */
int plx_session_window(struct plx_cli *cli, const struct plx_registry_vdi *row,
                       struct plx_snapshot_info *ret_oldest, struct plx_snapshot_info *ret_newest);
/* Whether the wall clock is in doubt for a disk. _text: why snapshots do not go by time. */
int plx_session_clock(struct plx_cli *cli, const struct plx_registry_vdi *row,
                      struct plx_vdi_clock *ret_clock);
const char *plx_session_clock_text(const struct plx_vdi_clock *clock,
                                   char ret_text[PLX_DOUBT_TEXT]);
/* The counters of a store or a disk that a handler has open; NOT_FOUND when none has. */
int plx_session_store_stats(struct plx_cli *cli, const char *store, json_t **ret_stats);
int plx_session_vdi_stats(struct plx_cli *cli, const struct plx_name *name, json_t **ret_stats);
/* What an instance has: free blocks in its extents, and how many of them recovering the disks that
 * are open there needs. false: none of that number answers on this host. */
struct plx_session_room {
    uint64_t data_free, meta_free, recovery;
};
bool plx_session_ask_room(struct plx_cli *cli, uint64_t instance,
                          struct plx_session_room *ret_room);

/* What name->snapshot stands for; NOT_FOUND when there is no such snapshot. */
int plx_session_snapshot_resolve(struct plx_cli *cli, const struct plx_name *name,
                                 struct plx_snapshot_info *ret_info);
/* If it is a time, the command says at its end which snapshot it chose, and warns at once if the
 * clock or the snapshot's own time is in doubt. */
void plx_session_tell_chosen(struct plx_cli *cli, const struct plx_name *name,
                             const struct plx_snapshot_info *chosen);
/* If name->snapshot is a time: says which snapshot that is, and name has its number from then on.
 */
int plx_session_settle_time(struct plx_cli *cli, struct plx_name *name);
/* EXISTS if a snapshot has the label: before one is taken that would have none then. */
int plx_session_label_unused(struct plx_cli *cli, const struct plx_name *name, const char *label);
/* label may be empty. Under the disk's lock it is looked at once more, so that of several commands
 * for one label one takes a snapshot. */
int plx_session_snapshot_create(struct plx_cli *cli, const struct plx_name *name, const char *label,
                                uint64_t *ret_seq, uint64_t *ret_time_ns);
int plx_session_label_set(struct plx_cli *cli, const struct plx_name *name, const char *label,
                          uint64_t seq, uint64_t time_ns);
int plx_session_label_remove(struct plx_cli *cli, const struct plx_name *name, const char *label);

#endif
