/* deletion.h - parallax snap delete: what was asked for, and why some of it may stay. The rules are
 * in cmd_snap_delete.c. */
#ifndef PLX_ADMIN_DELETION_H
#define PLX_ADMIN_DELETION_H

#include <jansson.h>

#include "cli.h"

/* One argument: a snapshot, or all from first to last. */
struct target {
    const char *text;
    uint64_t first, last;
    bool single;
    struct plx_snapshot_info found; /* the single one */
    const char *named[2];           /* the words it was given by; NULL: none */
};

/* Why a snapshot may stay. */
struct reason {
    uint64_t seq;
    bool rewind; /* it may go all the same */
    char text[PLX_STORE_NAME_MAX + PLX_NAME_MAX + 64];
};

struct deletion {
    struct plx_cli *cli;
    struct plx_name name; /* the disk */
    struct plx_registry_vdi row;
    bool force, dry_run, newest_stays;
    struct plx_snapshot_info oldest, newest;
    struct target targets[PLX_ARGUMENTS_MAX];
    struct target ranges[PLX_ARGUMENTS_MAX]; /* the same, ascending, without overlap */
    unsigned count, range_count;
    struct plx_registry_label *labels; /* of the disk */
    size_t label_count;
    struct reason *reasons;
    size_t reason_count;
    /* Snapshots whose fate is reported, ascending: named singly, labelled, or possibly needed. */
    struct plx_thin_mark *marks;
    size_t mark_count;
    struct plx_thinned sum;
    json_t *labels_gone, *stays;
};

/* What has asked for this snapshot; NULL: nothing has. */
const struct target *plx_deletion_target(const struct deletion *deletion, uint64_t seq);
/* Who reads, was cloned or went back to what is to go. */
int plx_deletion_find_reasons(struct deletion *deletion);
/* Whether an end of a range, or a single one, is given by a time: not by a number or a label. */
bool plx_deletion_is_time(const struct deletion *deletion, const char *snapshot, uint64_t *ret_ns);
/* CLOCK if the wall clock, or a snapshot's time, is not certain enough to delete by
 * (deletion_clock.c). _now: before times are read; _times: when all targets are known. */
int plx_deletion_check_now(struct deletion *deletion, const struct plx_name *firsts,
                           const struct plx_name *lasts);
int plx_deletion_check_times(struct deletion *deletion, const struct plx_name *firsts,
                             const struct plx_name *lasts);
/* Of one that has stayed. */
const char *plx_deletion_why(const struct deletion *deletion, uint64_t seq);

#endif
