/* verify.h - inside the checker: the state of one plx_store_check() call (engine_check.h), shared
 * by the verify*.c files.
 *
 * verify.c explains the passes and the rules VERIFY-1 to VERIFY-11. A *claim* says that a disk uses
 * a block. A *suspect* is a block whose claims, or whose bit in the bitmap, do not fit together; it
 * becomes a finding only after a second look (verify_suspects.c), because disks move on meanwhile.
 */
#ifndef PLX_VERIFY_H
#define PLX_VERIFY_H

#include "engine/loop/record.h"
#include "engine/loop/store.h"
#include "engine/loop/volume.h"

#define PLX_VERIFY_ROUNDS 4u         /* of the second look */
#define PLX_VERIFY_SUSPECTS 4096u    /* suspects that get a second look; further ones are counted */
#define PLX_VERIFY_DATA 256u         /* data blocks read in one go, at most */
#define PLX_VERIFY_KEPT 1000u        /* findings kept of one attempt; further ones are counted */
#define PLX_VERIFY_DAMAGED 0x100000u /* damaged blocks that are named; further ones are counted */

/* What is known of a block: one bit each, in memory for each extent with a mark. */
enum plx_mark {
    PLX_MARK_CLAIMED,  /* a disk that was read in one piece uses it, and not as a common block */
    PLX_MARK_OWNED,    /* the same, and the disk has not got it with the tree it began with */
    PLX_MARK_REACHED,  /* a tree leads to it, or a snapshot sees it: must be allocated */
    PLX_MARK_WRITABLE, /* a live disk may overwrite it in place: nobody else may use it */
    PLX_MARK_NAMED,    /* a log behind its key frame names it: recovery marks it as allocated */
    PLX_MARK_PARTLY,   /* a node that was reached, but not everything below it was claimed */
    PLX_MARK_COMMON,   /* it was claimed as a common block */
    PLX_MARK_FOREIGN,  /* named, and not in an extent of the disk's owner: must be allocated */
    PLX_MARKS,
};

struct plx_marks {
    uint64_t **extents; /* `kinds` bitmaps for each extent; NULL: no mark in this extent */
    uint64_t count;     /* extents; blocks of later ones get no marks */
    unsigned kinds;     /* PLX_MARKS, or fewer: the first ones of enum plx_mark */
};

struct plx_suspect {
    uint64_t addr;
    bool shared;  /* its users may be such that do not fit together (plx_verify_misfits()) */
    bool missing; /* in use but not allocated */
};

/* What a user of a block says of its contents. */
enum plx_content {
    PLX_CONTENT_DATA,   /* the user has written it. It may have been written again in place */
    PLX_CONTENT_NODE,   /* the user has written it, and nothing else since */
    PLX_CONTENT_HEADER, /* of a log segment: the same */
    PLX_CONTENT_OPEN,   /* in a log segment: it may not be written yet */
};

/* What is wrong with a block (VERIFY-9). */
enum plx_damage {
    PLX_DAMAGE_NONE,
    PLX_DAMAGE_CHECKSUM, /* it does not match its checksum */
    PLX_DAMAGE_UNREADABLE,
    PLX_DAMAGE_PLACE,  /* it lies in no extent of its type */
    PLX_DAMAGE_BEYOND, /* it is mapped beyond the end of the disk */
};

/* That the disk being read uses a block. */
struct plx_block_claim {
    uint64_t addr;
    uint64_t vblock;        /* block of the disk, or PLX_NO_VBLOCK */
    uint64_t place;         /* all users of a block that fit together have it at the same place */
    uint64_t below;         /* with a level: the first block of the disk to which the node leads */
    unsigned level;         /* of a node of a disk's tree; otherwise 0 */
    enum plx_damage damage; /* PLACE or BEYOND: it is no claim, only named by a tree or a log */
    uint64_t segment;       /* with PLX_CONTENT_HEADER: its number */
    uint32_t checksum;      /* 24 bits; 0: unknown */
    enum plx_content content;
    const char *what;
    bool writable;
    bool inherited; /* data: the tree that the disk began with has it at the same place */
    bool named;     /* by a log record behind the key frame */
    bool snapshot;  /* for a snapshot */
};

#define PLX_NO_KIN SIZE_MAX

/* A disk, live or deleted, and whom it descends from (verify_kin.c). */
struct plx_kin {
    struct plx_uuid id, parent;
    uint64_t parent_seq, created_ns;
    uint64_t oldest, newest; /* its snapshots, so far as its record tells: from behind oldest on */
    uint64_t origin_root;    /* this and the next one: as in its record */
    uint32_t origin_levels;
    uint32_t slot, root_slot; /* root_slot: of the first of its ancestors */
    uint32_t depth;
    size_t up;    /* index of its parent; PLX_NO_KIN: none, or none that is known */
    bool read;    /* live, and not left out */
    bool strange; /* nobody knows one of its ancestors any more: any disk may be one */
    bool denied;  /* the snapshot that it was made of is another one by now (verify_views.c) */
    size_t link;  /* whose parent is read: this one, or the next one of its ancestors; or none */
};

/* A clone of the disk being read. */
struct plx_clone {
    uint64_t seq; /* of the snapshot */
    size_t kin;   /* index of the clone in v->kin */
};

/* One user of a suspect, found in the second look. */
struct plx_use {
    uint64_t addr, vblock, generation; /* generation: of the record that was read */
    uint64_t place, segment, below;    /* these and the next four: as in struct plx_block_claim */
    unsigned level;
    enum plx_damage damage;
    uint32_t checksum;
    enum plx_content content;
    uint32_t slot;
    size_t kin; /* index of the disk in v->kin, or PLX_NO_KIN */
    const char *what;
    bool common, writable, inherited, named, snapshot;
};

/* A damaged block of a disk: of its data, or a node of its tree. */
struct plx_damaged {
    uint64_t addr, vblock; /* vblock: of a node, the first block to which it leads */
    uint32_t slot;
    uint32_t checksum; /* that it should have; 0: unknown */
    unsigned level;    /* of the node; 0: data */
    enum plx_damage damage;
    bool newest; /* the newest state has it; false: only snapshots do */
    bool also;   /* found at another disk first */
};

/* A data block whose contents will be read and compared with their checksum. */
struct plx_expected {
    uint64_t addr, vblock;
    uint32_t checksum;
    bool live; /* from the newest tree or the log behind it; false: a snapshot's */
};

/* What a walk is for, and which findings it reports. */
enum plx_verify_mode {
    PLX_VERIFY_LIVE,     /* a live disk; reports everything */
    PLX_VERIFY_CONTENTS, /* the contents of an open disk; reports nothing but notes bad data */
    PLX_VERIFY_BEHIND,   /* reads the log behind the key frame once more; reports nothing */
    PLX_VERIFY_DELETED,  /* marks what deleted disks still have; reports nothing */
    PLX_VERIFY_GATHER,   /* finds the users of the suspects; reports nothing */
};

struct plx_verify {
    struct plx_store *store;
    const struct plx_check_options *options;
    struct plx_check_result result;
    int error;        /* ends the check: NOMEM, or BUSY when interrupted */
    uint64_t extents; /* when the check began; extents added later are not checked */
    uint8_t *types;   /* enum plx_extent_type of each extent, or TYPE_DAMAGED */
    uint64_t *owners; /* of each extent */
    bool *unguarded;  /* for each extent, what options->unguarded is to be told */
    /* The marks of live disks; of the disk being read; of deleted disks; of the disks that were
     * read of the family at hand. */
    struct plx_marks marks, own, deleted, family;
    uint32_t **tags; /* for each extent with nodes, of each block what claims said of it; or NULL */
    struct plx_kin *kin; /* by id */
    size_t kin_count;
    const struct plx_kin *self; /* the disk being read; NULL: it is not known yet */
    struct plx_clone *clones;   /* of that disk, by seq; next_clone: the first not compared yet */
    size_t clone_count, clone_capacity, next_clone;
    uint8_t *block, *segment, *pages;
    uint8_t *twins; /* one node per level, of the tree that the disk being read began with */
    bool twin_known[PLX_LEVELS_MAX]; /* of each level's: it was read */
    struct plx_twin_cache *cache;
    uint8_t *nodes; /* one node per level: of a tree, and behind these of the log's index */
    uint8_t *data;  /* PLX_VERIFY_DATA blocks */
    uint64_t begun_ns;
    /* Progress (VERIFY-8). */
    uint64_t **read; /* for each extent, a bit for each block of disks that was read; or NULL */
    uint64_t allocated_bytes, done_bytes, total_bytes; /* total_bytes 0: not known yet */
    bool ended;
    enum plx_verify_mode mode;
    struct plx_leak leak; /* leaks of the extent being compared */
    uint64_t leaks_owned; /* leaked blocks in extents that an instance holds */
    uint64_t leaks_stuck; /* leaked blocks in extents that options->disbelieved names */
    /* The disk being read. */
    const struct plx_vdi_record *record;
    bool attempting; /* findings are kept until the disk is known to have been read in one piece */
    bool read_data;
    struct { /* blocks counted in the newest tree; partly: not all of it was walked */
        uint64_t mapped, vouched;
        bool partly;
    } live;
    uint64_t attempt_errors; /* errors found in this attempt, kept or not */
    struct plx_finding *kept;
    size_t kept_count;
    struct plx_expected *expected;
    size_t expected_count;
    struct plx_damaged *damaged; /* found until now, and at last by whom it is used */
    size_t damaged_count, damaged_capacity;
    size_t damaged_seen; /* when their users are asked for: so many are sorted by address */
    uint64_t damaged_dropped;
    uint64_t blocks; /* of the finding that is reported */
    bool also;       /* likewise: struct plx_finding */
    /* plx_verify_still_expected(): it reads the log again, which is above the contents. */
    bool (*still_expected)(struct plx_verify *v, const struct plx_expected *expected);
    /* The second look. */
    struct plx_suspect *suspects;
    size_t suspect_count;
    uint64_t suspects_dropped;
    struct plx_use *uses;
    size_t use_count, use_capacity;
};

/* What the log since a key frame says of a block. */
struct plx_change {
    uint64_t vblock, addr, seq; /* addr 0: unmapped; seq: the number of its batch */
    uint32_t checksum;          /* 0: unknown */
    bool used, seen;            /* seen: a snapshot sees the block as it is here */
};

struct plx_span {
    uint64_t first, count, seq;
};

struct plx_history {
    struct plx_change *changes; /* a hash table by vblock */
    size_t count, capacity;
    struct plx_span *unmapped, *voided; /* ranges of blocks; ranges of leaves */
    size_t unmapped_count, unmapped_capacity, voided_count, voided_capacity;
    uint64_t snapshots; /* the last snapshot so far */
    uint64_t durable;   /* the newest durable mark */
};

/* Whether the changes say anything of a block, so that the tree before them does not count. */
bool plx_history_excludes(const struct plx_history *history, uint64_t vblock);
/* Where the changes leave a block: addr 0 is unmapped, checksum 0 unknown. false: the changes say
 * nothing of it. */
bool plx_history_tells(const struct plx_history *history, uint64_t vblock, uint64_t *ret_addr,
                       uint32_t *ret_checksum);
/* Whether a VOID record after batch after_seq voided the checksums of a leaf. */
bool plx_history_voided(const struct plx_history *history, uint64_t leaf, uint64_t after_seq);
/* NULL: the changes say nothing of the block. */
struct plx_change *plx_history_change_at(const struct plx_history *history, uint64_t vblock);
/* NULL: out of memory, which v->error says. */
struct plx_change *plx_history_put(struct plx_verify *v, struct plx_history *history,
                                   uint64_t vblock);
void plx_history_push(struct plx_verify *v, struct plx_span **spans, size_t *count,
                      size_t *capacity, struct plx_span span);
/* Drops what batches up to seq said: the key frame at hand includes it. */
void plx_history_forget(struct plx_verify *v, struct plx_history *history, uint64_t seq);
void plx_history_free(struct plx_history *history);

/* ---- verify_findings.c ---- */

/* Reads from the store, counts the bytes and keeps to options->rate. */
int plx_verify_read(struct plx_verify *v, enum plx_io_kind kind, uint64_t addr, void *buffer,
                    size_t bytes);
#define PLX_NO_VBLOCK UINT64_MAX
/* Reports a finding, unless the mode reports none; within an attempt it is kept first. */
/* Gives the record, as it was read, the name that findings use (plx_check_options). */
void plx_verify_name(const struct plx_verify *v, struct plx_vdi_record *record);
void plx_verify_find(struct plx_verify *v, enum plx_finding_severity severity, const char *kind,
                     uint64_t addr, uint64_t vblock, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
/* Forgets the findings of an attempt. */
void plx_verify_drop_kept(struct plx_verify *v);
void plx_verify_tell_kept(struct plx_verify *v);
void plx_verify_report_progress(struct plx_verify *v);

/* ---- verify_marks.c ---- */

bool plx_marked(const struct plx_marks *marks, const struct plx_store *store, enum plx_mark mark,
                uint64_t addr);
bool plx_mark_set(struct plx_marks *marks, const struct plx_store *store, enum plx_mark mark,
                  uint64_t addr);
void plx_verify_clear_marks(struct plx_verify *v, struct plx_marks *marks);
/* Whether the disk being read has the mark, or one that was read before. */
bool plx_verify_has(const struct plx_verify *v, enum plx_mark mark, uint64_t addr);
/* Marks a block for the disk being read. */
void plx_verify_mark(struct plx_verify *v, enum plx_mark mark, uint64_t addr);
void plx_verify_suspect(struct plx_verify *v, uint64_t addr, bool missing);
/* Whether the node fits what was claimed of it before: the same place in trees, and no other
 * checksum. true also if nothing was. */
bool plx_verify_tag_fits(const struct plx_verify *v, const struct plx_block_claim *claim);
void plx_verify_tag(struct plx_verify *v, const struct plx_block_claim *claim);

/* ---- verify_kin.c ---- */

/* Lists all disks with their ancestors in v->kin. */
void plx_verify_list_kin(struct plx_verify *v);
/* The disk of v->record in that list, or NULL. */
const struct plx_kin *plx_verify_find_kin(const struct plx_verify *v);
/* Whether an ancestor that is read has the snapshot which the disk descends from. */
bool plx_verify_is_linked(const struct plx_verify *v, const struct plx_kin *kin);
/* Whether two users of data fit, as far as ancestors tell: one disk's own block may be inherited by
 * its descendants. */
bool plx_verify_related(const struct plx_verify *v, const struct plx_use *first,
                        const struct plx_use *other);

/* ---- verify_families.c ---- */

/* Reads all live disks, family by family, ancestors first. */
void plx_verify_families(struct plx_verify *v);

/* ---- verify_views.c ---- */

/* Lists the clones of the disk that will be read. */
void plx_verify_list_clones(struct plx_verify *v);
/* Compares what a snapshot of that disk sees with what the clones began with that were made of it.
 * Snapshots come in ascending order. keyframe, history: what the snapshot sees, or NULL. */
void plx_verify_clones(struct plx_verify *v, uint64_t seq, const struct plx_keyframe *keyframe,
                       const struct plx_history *history);

/* ---- verify_origin.c ---- */

/* Reads a node, without a finding if it is damaged. */
bool plx_verify_quiet_node(struct plx_verify *v, uint64_t entry, uint8_t *node);

/* The entry that the tree which the disk being read began with has where its tree has `entry`, a
 * child of a node of this level (1: a leaf); 0: none. twin: the same for that node, whose entry is
 * `node`. at: the child's index in its level. */
uint64_t plx_verify_twin(struct plx_verify *v, unsigned level, uint64_t node, uint64_t twin,
                         uint64_t entry, uint64_t at);
/* Loads the node of a twin, whose children are asked for next; level: its own. */
void plx_verify_twin_load(struct plx_verify *v, unsigned level, uint64_t node, uint64_t twin);
void plx_verify_twin_done(struct plx_verify *v);

/* ---- verify_space.c ---- */

/* Whether a disk may have a block there: it lies behind the header pages of an extent of this type.
 * A damaged extent, or one added since the check began, is of any type. */
bool plx_verify_type_is(struct plx_verify *v, uint64_t addr, enum plx_extent_type type);
/* Whether only the extent's type is wrong: its header says that the extent is not in use. */
bool plx_verify_is_unused(const struct plx_verify *v, uint64_t addr);

/* ---- verify_claims.c ---- */

/* Claims a block for v->record. A claim that does not fit the earlier ones makes it a suspect. */
void plx_verify_claim(struct plx_verify *v, const struct plx_block_claim *claim);
/* Lists a use of a suspect, in the second look; it claims nothing. */
void plx_verify_use(struct plx_verify *v, const struct plx_block_claim *claim);
/* Whether the claim fits what disks that were read before say of the block (VERIFY-11). */
bool plx_verify_fits_others(const struct plx_verify *v, const struct plx_block_claim *claim);
#define PLX_NOT_BEGUN UINT64_MAX
/* number: the segment's; PLX_NOT_BEGUN: its header may not be written yet. */
void plx_verify_segment(struct plx_verify *v, uint64_t addr, uint64_t number, bool named);

/* ---- verify_tree.c ---- */

struct plx_tree_walk {
    uint64_t blocks; /* size of the disk in blocks; an entry beyond is an error */
    bool index;      /* it is the log's index: leaves name segments, of which these count */
    uint64_t first_segment, last_segment;
    bool read_only;                    /* a snapshot sees all of the tree */
    bool nodes_only;                   /* only the nodes are used: nobody reads data through them */
    const struct plx_history *exclude; /* a snapshot's tree: blocks replaced before the snapshot */
    const struct plx_history *behind;  /* the newest tree: the log behind it */
    uint64_t seq;                      /* the last batch that the tree includes */
};

void plx_verify_tree(struct plx_verify *v, const struct plx_tree_walk *walk, uint64_t root,
                     unsigned levels);

/* ---- verify_contents.c, verify_expected.c ---- */

/* Queues a block for comparing its contents with a checksum; plx_verify_data_done() compares what
 * is left in the queue. live: see struct plx_expected. */
void plx_verify_data(struct plx_verify *v, uint64_t addr, uint64_t vblock, uint32_t checksum,
                     bool live);
void plx_verify_data_done(struct plx_verify *v);
/* A damaged block to be reported; of more than PLX_VERIFY_DAMAGED it is counted only. */
void plx_verify_add_damaged(struct plx_verify *v, const struct plx_damaged *damaged);
/* A block that is damaged as claim->damage says: noted when it is seen first, listed as a use of
 * the disk when its users are asked for. newest: the walk is of the newest state. */
void plx_verify_damage(struct plx_verify *v, const struct plx_block_claim *claim, bool newest);
/* What the newest tree of the record says of a block: its entry, or 0 if it is absent. With a
 * level, the entry of the node of that level that leads to the block. */
int plx_verify_look_up(struct plx_verify *v, const struct plx_vdi_record *record, uint64_t vblock,
                       unsigned level, uint64_t *ret_entry);
/* Whether an open disk still has the block where it was expected. A record that can no longer be
 * read excuses nothing. For live blocks the log is read again; its buffer is free by then, because
 * the walk compares live blocks after the log. */
bool plx_verify_still_expected(struct plx_verify *v, const struct plx_expected *expected);

/* ---- verify_log.c ---- */

/* Reads v->record's log and claims what its snapshots see. On return *history holds the changes
 * behind the record's key frame. */
void plx_verify_log(struct plx_verify *v, struct plx_history *history);

/* ---- verify_damaged.c ---- */

/* Reports all that were found, disk by disk. */
void plx_verify_tell_damaged(struct plx_verify *v);

#define USERS_MAX 16u     /* users of one suspect whose records are read again, at most */
#define TYPE_DAMAGED 0xff /* the header is damaged, as was reported: it may hold anything */

enum plx_page_state {
    PLX_PAGE_NONE, /* the extent never came into use (EXTENT-3) */
    PLX_PAGE_GOOD,
    PLX_PAGE_BAD,
};

/* verify_space.c */
void plx_verify_superblocks(struct plx_verify *v);
enum plx_page_state plx_verify_read_page(struct plx_verify *v, uint64_t number, uint32_t p,
                                         struct plx_extent_page *ret_page,
                                         const uint8_t **ret_bits);
bool plx_verify_read_extent(struct plx_verify *v, uint64_t number,
                            void (*visit)(struct plx_verify *v, uint64_t number, uint64_t first,
                                          uint64_t count, const uint8_t *bits));
void plx_verify_bitmaps(struct plx_verify *v);
void plx_verify_tell_leaks(struct plx_verify *v);

/* verify_vdi.c */
void plx_verify_walk_vdi(struct plx_verify *v);
/* Begins a reading, the record of which becomes v->record. One that cannot be read is reported. */
bool plx_verify_begin(struct plx_verify *v, struct plx_reading *reading);
void plx_verify_vdi(struct plx_verify *v, uint32_t slot);
void plx_verify_walk_deleted(struct plx_verify *v);

/* verify_suspects.c */
bool plx_verify_allocated(struct plx_verify *v, uint64_t addr);
/* Lists in v->uses, by address, who uses the suspects. each, if not NULL, is called behind the walk
 * of each disk, for its uses from v->uses[from] on. */
void plx_verify_gather_uses(struct plx_verify *v, void (*each)(struct plx_verify *v, size_t from));
void plx_verify_look_at_suspects(struct plx_verify *v);

/* verify_whose.c */
/* Whether two users of a block do not fit together (VERIFY-3, VERIFY-11). The first one is of those
 * that may overwrite it in place, if there are any; else of those that have not inherited it. */
bool plx_verify_misfits(const struct plx_verify *v, const struct plx_use *first,
                        const struct plx_use *other);
/* Tells options->shared of the users of a block that do not fit the first one. */
void plx_verify_tell_shared(struct plx_verify *v, const struct plx_use *uses, size_t count);

#endif
