/* cmd.h - the table of all commands, and the functions behind it; one file for each noun. */
#ifndef PLX_ADMIN_CMD_H
#define PLX_ADMIN_CMD_H

#include "cli.h"

/* Ends with a NULL noun. */
extern const struct plx_command plx_commands[];

int plx_cmd_store_format(struct plx_cli *cli);
int plx_cmd_store_list(struct plx_cli *cli);
int plx_cmd_store_info(struct plx_cli *cli);
int plx_cmd_store_stats(struct plx_cli *cli);
int plx_cmd_store_check(struct plx_cli *cli);
int plx_cmd_store_scan(struct plx_cli *cli);
int plx_cmd_store_import(struct plx_cli *cli);
int plx_cmd_store_take_over(struct plx_cli *cli);
int plx_cmd_store_release(struct plx_cli *cli);
int plx_cmd_store_restore_superblock(struct plx_cli *cli);
int plx_cmd_store_forget(struct plx_cli *cli);
int plx_cmd_store_rebuild(struct plx_cli *cli);
int plx_cmd_store_export_registry(struct plx_cli *cli);
int plx_cmd_vdi_accept(struct plx_cli *cli);
int plx_cmd_vdi_forget(struct plx_cli *cli);
/* The values of --volume. */
struct plx_volumes_given {
    const char *path[PLX_VOLUMES_MAX + 1];
    unsigned count;
};
int plx_cmd_volumes_given(struct plx_cli *cli, struct plx_volumes_given *volumes);
/* Of a command that takes [STORE] or --volume: one of them, and not both. */
int plx_cmd_store_or_volumes(struct plx_cli *cli, struct plx_name *ret_name,
                             struct plx_volumes_given *ret_volumes);
/* Whether a path can be the volume that is asked for; *ret_made: a file that is still to be made.
 */
int plx_cmd_volume_look(struct plx_cli *cli, const char *path, uint64_t size, bool *ret_made);
/* Refuses --size for a path that is no file, where no file is made. */
int plx_cmd_volume_whole(struct plx_cli *cli, const char *path);
/* The fault of a volume with fewer bytes than the store has there. */
int plx_cmd_volume_cut_off(struct plx_cli *cli, const char *path, uint64_t bytes,
                           uint64_t store_bytes);
int plx_cmd_store_grow(struct plx_cli *cli);
int plx_cmd_store_add_volume(struct plx_cli *cli);
int plx_cmd_store_set(struct plx_cli *cli);

extern const char *const plx_sector_sizes[]; /* "512", "4096" */
int plx_cmd_check_size(struct plx_cli *cli, uint64_t bytes, uint32_t sector_size);
/* Whether each volume is there and a volume of that store, as every use of it would ask: for who
 * lists what the registry knows, which lies on volume 0 alone. */
int plx_cmd_look_at_volumes(struct plx_cli *cli, const struct plx_known *known);
/* CORRUPT: a rebuild has lost virtual disks (lost.h), which are named (CMD_LOST-1). more: what
 * that means for what was printed, or "". */
int plx_cmd_look_at_lost(struct plx_cli *cli, const char *store, const char *more);
/* Both, for who lists what the registry knows. */
int plx_cmd_look_at_store(struct plx_cli *cli, const struct plx_known *known);
/* A warning, if a lost virtual disk was called so. */
void plx_cmd_tell_lost_name(struct plx_cli *cli, const struct plx_name *name);
/* Prints one virtual disk's properties. */
int plx_cmd_vdi_print(struct plx_cli *cli, const struct plx_name *name);

int plx_cmd_vdi_create(struct plx_cli *cli);
int plx_cmd_vdi_list(struct plx_cli *cli);
int plx_cmd_vdi_info(struct plx_cli *cli);
int plx_cmd_vdi_rename(struct plx_cli *cli);
int plx_cmd_vdi_resize(struct plx_cli *cli);
int plx_cmd_vdi_delete(struct plx_cli *cli);
int plx_cmd_vdi_clone(struct plx_cli *cli);
int plx_cmd_vdi_import(struct plx_cli *cli);
int plx_cmd_vdi_export(struct plx_cli *cli);
int plx_cmd_vdi_export_diff(struct plx_cli *cli);
int plx_cmd_vdi_import_diff(struct plx_cli *cli);
int plx_cmd_vdi_bench(struct plx_cli *cli);
int plx_cmd_vdi_stats(struct plx_cli *cli);
int plx_cmd_vdi_set(struct plx_cli *cli);
/* The --ring of vdi set: the store is open for writing. Checked before anything is set. */
int plx_cmd_vdi_check_ring(struct plx_cli *cli, const struct plx_name *name,
                           enum plx_ring_setting use);
int plx_cmd_vdi_set_ring(struct plx_cli *cli, const struct plx_name *name,
                         const struct plx_registry_vdi *row, enum plx_ring_setting use);
/* Whether a handler has the disk open with its ring on, or has records of it there. */
bool plx_cmd_vdi_ring_is_used(const struct plx_session_ring *ring);
/* Before a handler that has the disk open does what needs all of it on the store: drains its ring,
 * with progress. *ret_paused: the store acknowledges from then on, until plx_cmd_vdi_ring_resume().
 * After an error it is resumed. undone: what an interrupt keeps from being done. */
int plx_cmd_vdi_ring_pause(struct plx_cli *cli, const struct plx_name *name, const char *undone,
                           bool *ret_paused);
void plx_cmd_vdi_ring_resume(struct plx_cli *cli, const struct plx_name *name);
/* Adds what vdi info says of the ring. */
int plx_cmd_vdi_ring_describe(struct plx_cli *cli, const struct plx_name *name,
                              const struct plx_registry_vdi *row, const struct plx_vdi_info *info,
                              json_t *object);

int plx_cmd_snap_create(struct plx_cli *cli);
int plx_cmd_snap_list(struct plx_cli *cli);
int plx_cmd_snap_label(struct plx_cli *cli);
int plx_cmd_snap_unlabel(struct plx_cli *cli);
int plx_cmd_snap_delete(struct plx_cli *cli);
/* Shows what `snap delete --force` would free, and deletes nothing. */
int plx_cmd_snap_weigh(struct plx_cli *cli);

int plx_cmd_diff(struct plx_cli *cli);
int plx_cmd_find(struct plx_cli *cli);
int plx_cmd_bisect(struct plx_cli *cli);
int plx_cmd_rewind(struct plx_cli *cli);
int plx_cmd_defrag(struct plx_cli *cli);

/* Adds "protection" and "retention" to a virtual disk's properties. */
void plx_cmd_cdp_describe(json_t *object, const struct plx_protection *protection);
int plx_cmd_cdp_on(struct plx_cli *cli);
int plx_cmd_cdp_off(struct plx_cli *cli);
int plx_cmd_cdp_status(struct plx_cli *cli);
int plx_cmd_cdp_apply(struct plx_cli *cli);
int plx_cmd_cdp_resume(struct plx_cli *cli);
/* Of whether the wall clock is in doubt for a disk. _describe: adds that to the disk's properties.
 * _note: prints a note after a list of its snapshots. _mark: flags a row of that list. */
void plx_cmd_clock_describe(json_t *object, const struct plx_vdi_clock *clock);
void plx_cmd_clock_note(struct plx_cli *cli, const struct plx_name *name,
                        const struct plx_vdi_clock *clock);
void plx_cmd_clock_mark(json_t *row, const struct plx_vdi_clock *clock,
                        const struct plx_snapshot_info *snapshot);
int plx_cmd_cdp_timeline(struct plx_cli *cli);

struct plx_host_ring;
struct plx_known;
struct plx_ring_disks;
/* What the records of a ring's disks say, if the store can be opened. *ret_untold: why it cannot;
 * code 0: it was. */
int plx_cmd_ring_disks(struct plx_cli *cli, const struct plx_host_ring *ring,
                       struct plx_known *ret_known, struct plx_ring_disks *ret_disks,
                       struct plx_fault *ret_untold);
/* The --size of a ring's member: USAGE, if none can have it. */
int plx_cmd_ring_size(struct plx_cli *cli, uint64_t *ret_bytes);
int plx_cmd_ring_create(struct plx_cli *cli);
int plx_cmd_ring_list(struct plx_cli *cli);
int plx_cmd_ring_info(struct plx_cli *cli);
int plx_cmd_ring_delete(struct plx_cli *cli);
int plx_cmd_ring_check(struct plx_cli *cli);
int plx_cmd_ring_discard(struct plx_cli *cli);
int plx_cmd_ring_repair(struct plx_cli *cli);

int plx_cmd_help(struct plx_cli *cli);
int plx_cmd_version(struct plx_cli *cli);
int plx_cmd_complete(struct plx_cli *cli);
int plx_cmd_tree(struct plx_cli *cli);
int plx_cmd_gc(struct plx_cli *cli);
int plx_cmd_dedup(struct plx_cli *cli);
int plx_cmd_du(struct plx_cli *cli);

/* After a resize: the target's saved configuration follows, if there is one. */
void plx_cmd_lun_refresh(struct plx_cli *cli, const struct plx_name *name);
/* Before a disk gets another name: refused while a LUN, running or saved, exports it or one of its
 * snapshots. Only root can see that. */
int plx_cmd_lun_check_none(struct plx_cli *cli, const struct plx_name *name);
/* Who is logged in to the virtual disk's LUNs, by name; false: nobody may ask here. */
bool plx_cmd_lun_initiators(struct plx_cli *cli, const struct plx_name *name, char *ret_text,
                            size_t size);
int plx_cmd_cluster_init(struct plx_cli *cli);
int plx_cmd_cluster_leave(struct plx_cli *cli);
int plx_cmd_cluster_status(struct plx_cli *cli);
int plx_cmd_lun_create(struct plx_cli *cli);
int plx_cmd_lun_list(struct plx_cli *cli);
int plx_cmd_lun_delete(struct plx_cli *cli);

#endif
