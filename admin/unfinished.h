/* unfinished.h - a virtual disk that holds a part of what was to be imported.
 *
 * An import says so before it writes, and takes it back when everything is durable. import-diff
 * labels the state before, which it needs to take changes back. A raw image replaces what was
 * there, and a label needs a snapshot, which would stay. So vdi import uses a row of the registry
 * instead, and so does import-diff while it takes changes back. plx_unfinished_read() reads both.
 */
#ifndef PLX_ADMIN_UNFINISHED_H
#define PLX_ADMIN_UNFINISHED_H

#include "cli.h"

#define PLX_UNFINISHED_LABEL "import-unfinished"

struct plx_unfinished {
    bool now;      /* the newest state is a part */
    bool part;     /* so are the snapshots after `before`, up to `upto` */
    bool dated;    /* and these numbers are known */
    uint64_t before, upto;
    uint64_t label; /* the snapshot with import-diff's label; 0: none */
};

/* Of the virtual disk with this id. */
int plx_unfinished_read(struct plx_cli *cli, const char *vdi, struct plx_unfinished *ret);
/* Whether a snapshot is a part; seq 0: the newest state. */
bool plx_unfinished_holds(const struct plx_unfinished *unfinished, uint64_t seq);
int plx_unfinished_look(struct plx_cli *cli, const char *vdi, bool *ret_unfinished);
/* Of the disk that this command has open, and is about to write to. */
int plx_unfinished_begin(struct plx_cli *cli, const struct plx_name *name);
/* All is durable. The label goes if its snapshot is older than `before`; whole: then the row goes,
 * too. */
int plx_unfinished_end(struct plx_cli *cli, const struct plx_name *name, uint64_t before,
                       bool whole);
/* A clone that was made of a part. */
int plx_unfinished_clone(struct plx_cli *cli, const struct plx_name *name);
/* Before a rewind to snapshot seq, and after it: `before` is the snapshot of the state before, 0 if
 * the disk was not rewound. */
int plx_unfinished_rewinding(struct plx_cli *cli, const struct plx_name *name, uint64_t seq,
                             struct plx_unfinished *ret);
int plx_unfinished_rewound(struct plx_cli *cli, const struct plx_name *name, uint64_t seq,
                           uint64_t before, const struct plx_unfinished *unfinished);
/* For people: what it is and how to go on. */
void plx_unfinished_note(struct plx_cli *cli, const struct plx_name *name);
/* A note if what the name names (a disk, or a snapshot) is a part, for what makes something of it.
 */
bool plx_unfinished_tell(struct plx_cli *cli, const struct plx_name *name);

#endif
