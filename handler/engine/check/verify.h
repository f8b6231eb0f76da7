/* verify.h - inside the checker: what verify.c, verify_tree.c and verify_log.c share. */
#ifndef PLX_VERIFY_H
#define PLX_VERIFY_H

#include "engine/loop/record.h"
#include "engine/loop/store.h"
#include "engine/loop/volume.h"

#define PLX_VERIFY_TRIES 4u
#define PLX_VERIFY_SUSPECTS 4096u /* blocks looked at closely; further ones are counted */
#define PLX_VERIFY_DATA 256u      /* blocks read in one go, at most */
#define PLX_VERIFY_KEPT 1000u     /* findings of one attempt that are kept */

/* What is known of a block: six bits, for each extent that something is found in. */
enum plx_mark {
    PLX_MARK_REACHED,  /* by a tree, or seen by a snapshot: must be allocated */
    PLX_MARK_WRITABLE, /* a live disk may overwrite it in place: nobody else may have it */
    PLX_MARK_NAMED,    /* by a log behind its key frame: need not be allocated yet */
    PLX_MARK_PARTLY,   /* a node that was reached, but not all that it leads to was claimed */
    PLX_MARK_COMMON,   /* reached or named as a common block */
    PLX_MARK_FOREIGN,  /* named, and in no extent of the disk's owner: must be allocated */
    PLX_MARKS,
};

struct plx_marks {
    uint64_t **extents; /* PLX_MARKS bitmaps each; NULL: no mark in this extent */
    uint64_t count;     /* extents; what lies behind has no marks */
};

/* A block that does not fit, and who has it. */
struct plx_suspect {
    uint64_t addr;
    bool shared;  /* one of those who have it may write in place, or it is common to some only */
    bool missing; /* in use but not allocated */
};

struct plx_use {
    uint64_t addr, vblock, generation; /* generation: of the record that was read */
    uint32_t slot;
    const char *what;
    bool common, writable, named, snapshot;
};

/* A data block whose contents are to be read. */
struct plx_expected {
    uint64_t addr, vblock;
    uint32_t checksum;
    bool live; /* from the newest tree or the log behind it: the disk's own affair */
};

/* What a walk is for. */
enum plx_verify_mode {
    PLX_VERIFY_LIVE,
    PLX_VERIFY_CONTENTS, /* data blocks of a disk that is open: nothing else is found */
    PLX_VERIFY_BEHIND,   /* what lies behind a key frame in the log: nothing is found */
    PLX_VERIFY_DELETED,  /* marks: nothing is found */
    PLX_VERIFY_GATHER,   /* who has the suspects: nothing is found */
};

struct plx_verify {
    struct plx_store *store;
    const struct plx_check_options *options;
    struct plx_check_result result;
    int error;        /* ends the check: NOMEM, or interrupted */
    uint64_t extents; /* of the store when it began; those that are added are not checked */
    uint8_t *types;
    uint64_t *owners; /* of extents */
    bool *unguarded;  /* of extents */
    struct plx_marks marks, own,
        deleted; /* of live disks; of the one being read; of deleted ones */
    uint8_t *block, *segment, *pages;
    uint8_t *nodes; /* one per level of a walk */
    uint8_t *data;  /* PLX_VERIFY_DATA blocks */
    uint64_t total_bytes, begun_ns;
    enum plx_verify_mode mode;
    struct plx_leak leak; /* of the extent being compared */
    /* The disk being read. */
    const struct plx_vdi_record *record;
    bool attempting; /* findings are kept until it is known that they count */
    bool read_data;
    struct { /* of the newest tree, as far as it was walked */
        uint64_t mapped, vouched;
        bool partly;
    } live;
    uint64_t attempt_errors;
    struct plx_finding *kept;
    size_t kept_count;
    struct plx_expected *expected;
    size_t expected_count;
    /* The second look. */
    struct plx_suspect *suspects;
    size_t suspect_count;
    uint64_t suspects_dropped;
    struct plx_use *uses;
    size_t use_count, use_capacity;
};

/* What the log says about blocks since a key frame. */
struct plx_change {
    uint64_t vblock, addr, seq; /* addr 0: unmapped; seq: of its batch */
    uint32_t checksum;          /* 0: unknown */
    bool used, seen;            /* seen: by a snapshot */
};

struct plx_span {
    uint64_t first, count, seq;
};

struct plx_history {
    struct plx_change *changes; /* a hash table by vblock */
    size_t count, capacity;
    struct plx_span *unmapped, *voided; /* blocks; leaves */
    size_t unmapped_count, unmapped_capacity, voided_count, voided_capacity;
    uint64_t snapshots; /* taken so far */
    uint64_t durable;   /* newest mark */
};

bool plx_history_excludes(const struct plx_history *history, uint64_t vblock);
/* What the changes leave in a block's place: addr 0 is nothing, checksum 0 unknown. False: they do
 * not speak of it. */
bool plx_history_tells(const struct plx_history *history, uint64_t vblock, uint64_t *ret_addr,
                       uint32_t *ret_checksum);
bool plx_history_voided(const struct plx_history *history, uint64_t leaf, uint64_t after_seq);
void plx_history_free(struct plx_history *history);

/* ---- verify.c ---- */

/* Reads, counts, keeps to the rate. */
int plx_verify_read(struct plx_verify *v, enum plx_io_kind kind, uint64_t addr, void *buffer,
                    size_t bytes);
#define PLX_NO_VBLOCK UINT64_MAX
void plx_verify_find(struct plx_verify *v, enum plx_finding_severity severity, const char *kind,
                     uint64_t addr, uint64_t vblock, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
bool plx_verify_type_is(struct plx_verify *v, uint64_t addr, enum plx_extent_type type);
/* Whether it would be a block of a disk if its extent were one in use. */
bool plx_verify_is_unused(const struct plx_verify *v, uint64_t addr);

/* ---- verify_tree.c ---- */

struct plx_tree_walk {
    uint64_t blocks; /* virtual blocks of the disk: what lies beyond is an error */
    bool index;      /* leaves name log segments */
    uint64_t first_segment, last_segment;
    bool read_only;                    /* a snapshot sees all of it */
    bool nodes_only;                   /* nobody reads data through it */
    const struct plx_history *exclude; /* of a snapshot: what had changed before it */
    const struct plx_history *behind;  /* of the live tree: what was voided since */
    uint64_t seq;                      /* its last batch */
};

/* One user of a block; a second one that does not fit makes it a suspect. */
void plx_verify_claim(struct plx_verify *v, uint64_t addr, uint64_t vblock, const char *what,
                      bool writable, bool named, bool snapshot);
void plx_verify_suspect(struct plx_verify *v, uint64_t addr, bool missing);
void plx_verify_segment(struct plx_verify *v, uint64_t addr, bool named);
void plx_verify_tree(struct plx_verify *v, const struct plx_tree_walk *walk, uint64_t root,
                     unsigned levels);
/* Has the contents of a block compared, some time before plx_verify_data_done(). */
void plx_verify_data(struct plx_verify *v, uint64_t addr, uint64_t vblock, uint32_t checksum,
                     bool live);
void plx_verify_data_done(struct plx_verify *v);
bool plx_marked(const struct plx_marks *marks, const struct plx_store *store, enum plx_mark mark,
                uint64_t addr);
bool plx_mark_set(struct plx_marks *marks, const struct plx_store *store, enum plx_mark mark,
                  uint64_t addr);

/* ---- verify_log.c ---- */

/* Reads the log; what its snapshots see is claimed. On return *history holds what lies behind the
 * record's key frame. */
void plx_verify_log(struct plx_verify *v, struct plx_history *history);

#define USERS_MAX 16u     /* of one block, whose records are looked at again */
#define TYPE_DAMAGED 0xff /* its header is, and that was said: anything may be in it */

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

/* verify_vdi.c */
void plx_verify_clear_marks(struct plx_verify *v, struct plx_marks *marks);
void plx_verify_walk_vdi(struct plx_verify *v);
bool plx_verify_read_record(struct plx_verify *v, uint32_t slot, struct plx_vdi_record *ret_record);
void plx_verify_vdi(struct plx_verify *v, uint32_t slot);
void plx_verify_walk_deleted(struct plx_verify *v);

/* verify_suspects.c */
bool plx_verify_allocated(struct plx_verify *v, uint64_t addr);
void plx_verify_look_at_suspects(struct plx_verify *v);

/* verify.c */
void plx_verify_drop_kept(struct plx_verify *v);
void plx_verify_tell_kept(struct plx_verify *v);

#endif
