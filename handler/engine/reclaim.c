/* reclaim.c - see reclaim.h.
 *
 * C1  A stretch of history lies between two key frames that are both kept whole: of one that is
 *     not, the nodes that the next one replaced are free already (keyframe.c, K3). Which those are
 *     follows from the log: no snapshot came between it and the announcement of the next.
 * C2  A block comes back when it died in a stretch that is dropped, and some snapshot had seen it.
 *     What died unseen came back when it died, and may be somebody else's by now.
 * C3  A node comes back where two neighbouring key frames differ.
 * C4  What a clone began with is its parent's, at least in part: never freed here.
 * C5  Nothing is free before a record is durable by which history begins later. Before that record
 *     is written nobody may begin to use what is being dropped.
 * C6  Labels, clones and open instants hold the snapshot they name and all after it.
 * C7  A rewind brought blocks back to life that the snapshot which it went to sees, and the log
 * does not say which. What died before that snapshot is not among them: it is held, and no stretch
 *     reaches behind it. Of the nodes of the key frame that it was read through, the tree of the
 *     rewind shares those that did not change until then, and no key frame from before the snapshot
 *     replaced these.
 *
 * Synchronous; runs the loop while it reads, so the disk goes on. What the log and the trees say
 * below the oldest key frame in the record does not change meanwhile.
 * Crash story: before the record flips nothing has changed; after it, blocks not yet free on the
 *   store are leaks that a sweep finds.
 */
#include "engine/reclaim.h"

#include <stdlib.h>
#include <string.h>

#include "engine/replay.h"
#include "engine/vdi.h"

/* What is mapped within the stretch, by virtual block; open addressing. */
struct version {
    uint64_t vblock, addr; /* addr 0: unmapped */
    uint64_t birth;        /* snapshots taken before */
    bool used;
};

struct versions {
    struct version *slots;
    size_t count, capacity;
};

struct reclaim {
    struct plx_vdi *vdi;
    struct plx_store *store;
    struct plx_vdi_record record; /* as it was at the start */
    uint64_t last_batch;          /* applied by then: an announcement may be that late */
    struct plx_log_reader reader;
    struct plx_keyframe *bases; /* C1, oldest first */
    size_t base_count, base_capacity;
    /* The stretch at hand. */
    const struct plx_keyframe *from, *to;
    struct versions versions;
    uint64_t gen; /* snapshots so far */
    struct plx_history_drop drop;
    struct plx_fault *fault;
};

/* ---- Which key frames are whole (C1) ---- */

static int push_base(struct reclaim *r, const struct plx_keyframe *keyframe)
{
    if (r->base_count == r->base_capacity) {
        size_t bigger = r->base_capacity ? r->base_capacity * 2 : 16;
        struct plx_keyframe *bases = realloc(r->bases, bigger * sizeof *bases);

        if (!bases)
            return plx_fault_set(r->fault, PLX_ERR_NOMEM, "out of memory");
        r->bases = bases;
        r->base_capacity = bigger;
    }
    r->bases[r->base_count++] = *keyframe;
    return 0;
}

/* The log, or the record, names a key frame. */
static int keyframe_appears(struct reclaim *r, const struct plx_keyframe *keyframe)
{
    struct plx_keyframe *last = &r->bases[r->base_count - 1];

    if (keyframe->pos < last->pos || (keyframe->pos == last->pos && keyframe->root == last->root))
        return 0;
    if (r->gen != last->snap_seq)
        return push_base(r, keyframe);
    if (r->base_count == 1) /* then the record would have begun with this one */
        return plx_fault_set(r->fault, PLX_ERR_CORRUPT,
                             "virtual disk %s: history does not begin where its record says",
                             r->record.name);
    *last = *keyframe;
    return 0;
}

/* Calls visit for every record up to the batch `last`, and for the segments' key frames when they
 * are wanted. */
static int read_log(struct reclaim *r, uint64_t last_batch, bool headers,
                    int (*visit)(struct reclaim *r, const struct plx_record *record))
{
    struct plx_log_reader *reader = &r->reader;
    uint64_t segment = UINT64_MAX;

    while (reader->cursor.seq <= last_batch) {
        size_t offset = PLX_BATCH_HEADER_BYTES;
        int error = plx_log_reader_next(reader, r->fault);

        if (error)
            return error;
        if (headers && segment != reader->loaded)
            error = keyframe_appears(r, &reader->header.keyframe);
        segment = reader->loaded;
        for (uint32_t i = 0; i < reader->batch_header.records && !error; i++) {
            struct plx_record record;

            error = plx_record_next(reader->batch, &reader->batch_header, &offset,
                                    r->store->addr_limit, &record);
            if (error)
                plx_fault_set(r->fault, error, "virtual disk %s: impossible log record",
                              r->record.name);
            else
                error = visit(r, &record);
        }
        if (error)
            return error;
    }
    return 0;
}

static int visit_for_bases(struct reclaim *r, const struct plx_record *record)
{
    if (record->type == PLX_RECORD_SNAPSHOT)
        r->gen = record->seq;
    return plx_record_announces(record) ? keyframe_appears(r, &record->keyframe) : 0;
}

static int find_bases(struct reclaim *r)
{
    int error = push_base(r, &r->record.oldest);

    r->gen = r->record.oldest.snap_seq;
    plx_log_reader_seek(&r->reader, &r->record.oldest);
    if (!error)
        error = read_log(r, r->last_batch, true, visit_for_bases);
    return error ? error : keyframe_appears(r, &r->record.keyframe);
}

/* ---- Lookups in a tree as it was ---- */

static int get_node(struct reclaim *r, uint64_t entry, unsigned level, const void **ret_node)
{
    int error = plx_cache_get_sync(r->store->cache, entry, level, ret_node);

    return error ? plx_fault_set(r->fault, error, "virtual disk %s: node at block %llu: %s",
                                 r->record.name, (unsigned long long)plx_entry_addr(entry),
                                 plx_error_text(error))
                 : 0;
}

static int lookup(struct reclaim *r, uint64_t root, unsigned levels, uint64_t vblock,
                  uint64_t *ret_entry)
{
    uint64_t entry = root, read_only = root & PLX_ENTRY_READ_ONLY;

    *ret_entry = 0;
    if (levels * PLX_NODE_SHIFT < 64 && vblock >> (levels * PLX_NODE_SHIFT))
        return 0;
    for (unsigned level = levels; level > 0 && plx_entry_addr(entry); level--) {
        const void *node;
        int error = get_node(r, entry, level, &node);

        if (error)
            return error;
        entry =
            plx_node_entry(node, vblock >> ((level - 1) * PLX_NODE_SHIFT) & (PLX_NODE_ENTRIES - 1));
        read_only |= entry & PLX_ENTRY_READ_ONLY;
    }
    if (plx_entry_addr(entry))
        *ret_entry = entry | read_only;
    return 0;
}

/* ---- Data (C2) ---- */

static struct version *version_at(struct versions *v, uint64_t vblock)
{
    size_t at = (size_t)(vblock * 0x9e3779b97f4a7c15ull >> 20) & (v->capacity - 1);

    while (v->slots[at].used && v->slots[at].vblock != vblock)
        at = (at + 1) & (v->capacity - 1);
    return &v->slots[at];
}

static int make_room(struct reclaim *r)
{
    struct versions *v = &r->versions, bigger = {.capacity = v->capacity ? v->capacity * 2 : 1024};

    if (v->count + 1 < v->capacity / 4 * 3)
        return 0;
    bigger.slots = calloc(bigger.capacity, sizeof *bigger.slots);
    if (!bigger.slots)
        return plx_fault_set(r->fault, PLX_ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < v->capacity; i++)
        if (v->slots[i].used)
            *version_at(&bigger, v->slots[i].vblock) = v->slots[i];
    bigger.count = v->count;
    free(v->slots);
    *v = bigger;
    return 0;
}

static int base_version_died(struct reclaim *r, uint64_t vblock, uint64_t entry)
{
    uint64_t inherited = 0;
    bool seen = (entry & PLX_ENTRY_READ_ONLY) || r->gen != r->from->snap_seq;
    int error = 0;

    if (!plx_entry_addr(entry) || !seen)
        return 0;
    if (r->record.origin_levels)
        error = lookup(r, r->record.origin_root, r->record.origin_levels, vblock, &inherited);
    if (!error && plx_entry_addr(inherited) != plx_entry_addr(entry)) /* C4 */
        plx_deaths_add(&r->drop.blocks, plx_entry_addr(entry));
    return error;
}

/* From now on vblock is mapped to addr, or (0) not at all; base: what the stretch began with, when
 * the caller has looked. */
static int change(struct reclaim *r, uint64_t vblock, uint64_t addr, const uint64_t *base)
{
    struct version *version;
    uint64_t entry = base ? *base : 0;
    int error = make_room(r);

    if (error)
        return error;
    version = version_at(&r->versions, vblock);
    if (version->used) {
        if (version->addr && version->birth != r->gen)
            plx_deaths_add(&r->drop.blocks, version->addr);
    } else {
        if (!base)
            error = lookup(r, r->from->root, r->from->levels, vblock, &entry);
        if (!error)
            error = base_version_died(r, vblock, entry);
        if (error)
            return error;
        r->versions.count++;
    }
    *version_at(&r->versions, vblock) =
        (struct version){.used = true, .vblock = vblock, .addr = addr, .birth = r->gen};
    return 0;
}

/* What the base maps in a range and the stretch has not touched yet. */
static int unmap_base(struct reclaim *r, uint64_t entry, unsigned level, uint64_t first,
                      uint64_t from, uint64_t to)
{
    unsigned shift = (level - 1) * PLX_NODE_SHIFT;
    uint64_t read_only = entry & PLX_ENTRY_READ_ONLY;
    uint8_t *copy;
    const void *node;
    int error;

    if (!plx_entry_addr(entry))
        return 0;
    error = get_node(r, entry, level, &node);
    if (error)
        return error;
    copy = malloc(PLX_BLOCK_SIZE);
    if (!copy)
        return plx_fault_set(r->fault, PLX_ERR_NOMEM, "out of memory");
    memcpy(copy, node, PLX_BLOCK_SIZE); /* the cache's may go while others are read */
    for (unsigned i = 0; i < PLX_NODE_ENTRIES && !error; i++) {
        uint64_t begin = first + ((uint64_t)i << shift), end = begin + (1ull << shift);
        uint64_t child = plx_node_entry(copy, i);

        if (!plx_entry_addr(child) || end <= from || begin >= to)
            continue;
        child |= read_only;
        if (level > 1)
            error = unmap_base(r, child, level - 1, begin, from, to);
        else if (!r->versions.capacity || !version_at(&r->versions, begin)->used)
            error = change(r, begin, 0, &child);
    }
    free(copy);
    return error;
}

static int unmap(struct reclaim *r, uint64_t vblock, uint64_t count)
{
    int error = unmap_base(r, r->from->root, r->from->levels, 0, vblock, vblock + count);
    struct versions *v = &r->versions;

    if (!error)
        error = make_room(r); /* so that the table stays where it is */
    if (error)
        return error;
    for (size_t i = 0; i < v->capacity && count >= v->capacity && !error; i++)
        if (v->slots[i].used && v->slots[i].addr && v->slots[i].vblock - vblock < count)
            error = change(r, v->slots[i].vblock, 0, NULL);
    for (uint64_t i = 0; i < count && count < v->capacity && !error; i++) {
        const struct version *version = version_at(v, vblock + i);

        if (version->used && version->addr)
            error = change(r, vblock + i, 0, NULL);
    }
    return error;
}

static int visit_for_deaths(struct reclaim *r, const struct plx_record *record)
{
    int error = 0;

    switch (record->type) {
    case PLX_RECORD_MAP:
        for (uint64_t i = 0; i < record->count && !error; i++)
            error = change(r, record->vblock + i, record->addr + i, NULL);
        return error;
    case PLX_RECORD_UNMAP:
        return unmap(r, record->vblock, record->count);
    case PLX_RECORD_SNAPSHOT:
        r->gen = record->seq;
        return 0;
    case PLX_RECORD_VOID:
    case PLX_RECORD_LABEL:
    case PLX_RECORD_RESIZE:
    case PLX_RECORD_KEYFRAME:
    case PLX_RECORD_REWIND:
        return 0;
    }
    return 0;
}

/* ---- Nodes (C3) ---- */

/* A tree, as seen on the way down another one that may be higher. */
struct side {
    uint64_t entry;
    unsigned levels; /* of the subtree that entry names */
};

static struct side child_of(const struct side *side, unsigned level, const uint8_t *node,
                            unsigned index)
{
    if (side->levels < level) /* it lies below child 0 */
        return index ? (struct side){0, level - 1} : *side;
    return (struct side){plx_entry_addr(side->entry) ? plx_node_entry(node, index) : 0, level - 1};
}

static bool same_node(const struct side *side, unsigned level, uint64_t addr)
{
    return side->levels == level && plx_entry_addr(side->entry) == addr;
}

static int copy_node(struct reclaim *r, const struct side *side, unsigned level, uint8_t *copy)
{
    const void *node;
    int error;

    if (side->levels != level || !plx_entry_addr(side->entry))
        return 0;
    error = get_node(r, side->entry, level, &node);
    if (error)
        return error;
    memcpy(copy, node, PLX_BLOCK_SIZE);
    return 0;
}

/* The nodes of `old` that are neither in `next` nor in `origin`, at the same place. */
static int free_nodes(struct reclaim *r, const struct side *old, const struct side *next,
                      const struct side *origin)
{
    unsigned level = old->levels;
    uint64_t addr = plx_entry_addr(old->entry);
    uint8_t *nodes;
    int error;

    if (!addr || same_node(next, level, addr) || same_node(origin, level, addr))
        return 0;
    plx_deaths_add(&r->drop.blocks, addr);
    if (level == 1)
        return 0;
    nodes = malloc(3 * PLX_BLOCK_SIZE);
    if (!nodes)
        return plx_fault_set(r->fault, PLX_ERR_NOMEM, "out of memory");
    error = copy_node(r, old, level, nodes);
    if (!error)
        error = copy_node(r, next, level, nodes + PLX_BLOCK_SIZE);
    if (!error)
        error = copy_node(r, origin, level, nodes + 2 * PLX_BLOCK_SIZE);
    for (unsigned i = 0; i < PLX_NODE_ENTRIES && !error; i++) {
        struct side o = child_of(old, level, nodes, i);
        struct side n = child_of(next, level, nodes + PLX_BLOCK_SIZE, i);
        struct side p = child_of(origin, level, nodes + 2 * PLX_BLOCK_SIZE, i);

        error = free_nodes(r, &o, &n, &p);
    }
    free(nodes);
    return error;
}

/* A disk that grew: the old tree lies below child 0 of the new one, if anywhere. */
static int descend(struct reclaim *r, struct side *side, unsigned levels)
{
    while (side->levels > levels) {
        const void *node;
        int error = 0;

        if (plx_entry_addr(side->entry)) {
            error = get_node(r, side->entry, side->levels, &node);
            if (error)
                return error;
            side->entry = plx_node_entry(node, 0);
        }
        side->levels--;
    }
    return 0;
}

static int free_replaced_nodes(struct reclaim *r)
{
    struct side old = {r->from->root, r->from->levels}, next = {r->to->root, r->to->levels};
    struct side origin = {r->record.origin_root, r->record.origin_levels};
    int error = descend(r, &next, old.levels);

    if (!error)
        error = descend(r, &origin, old.levels);
    return error ? error : free_nodes(r, &old, &next, &origin);
}

/* ---- A stretch ---- */

static int drop_stretch(struct reclaim *r)
{
    int error;

    if (r->versions.count)
        memset(r->versions.slots, 0, r->versions.capacity * sizeof *r->versions.slots);
    r->versions.count = 0;
    r->gen = r->from->snap_seq;
    plx_log_reader_seek(&r->reader, r->from);
    error = read_log(r, r->to->batch_seq, false, visit_for_deaths);
    return error ? error : free_replaced_nodes(r);
}

/* ---- What holds snapshots (C6) ---- */

struct labels {
    uint64_t *seqs;
    size_t count, capacity;
    char (*names)[PLX_LABEL_MAX + 1];
    bool failed;
};

static void visit_label(void *context, const char *label, uint64_t seq, bool removed)
{
    struct labels *l = context;
    size_t at = 0;

    while (at < l->count && strcmp(l->names[at], label))
        at++;
    if (at == l->count && l->count == l->capacity) {
        size_t bigger = l->capacity ? l->capacity * 2 : 16;
        uint64_t *seqs = realloc(l->seqs, bigger * sizeof *seqs);
        char(*names)[PLX_LABEL_MAX + 1];

        l->seqs = seqs ? seqs : l->seqs;
        names = seqs ? realloc(l->names, bigger * sizeof *names) : NULL;
        l->names = names ? names : l->names;
        l->failed = l->failed || !names;
        if (!names)
            return;
        l->capacity = bigger;
    }
    strcpy(l->names[at], label);
    l->seqs[at] = removed ? UINT64_MAX : seq;
    l->count += at == l->count;
}

static int held_by_labels(struct reclaim *r, uint64_t *first)
{
    struct labels l = {0};
    int error = plx_label_list(r->store, r->record.slot, 0, visit_label, &l, r->fault);

    if (!error && l.failed)
        error = plx_fault_set(r->fault, PLX_ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < l.count; i++)
        *first = plx_min_u64(*first, l.seqs[i]);
    free(l.seqs);
    free(l.names);
    return error;
}

static int held_by_clones(struct reclaim *r, uint64_t *first)
{
    for (uint32_t slot = 0; slot < plx_vdi_slot_count(r->store); slot++) {
        struct plx_vdi_record record;
        uint8_t which;
        int error = plx_vdi_record_read(r->store, slot, &record, &which, r->fault);

        if (error == PLX_ERR_NOT_FOUND)
            continue;
        if (error)
            return error;
        if (record.state == PLX_VDI_LIVE && plx_uuid_equal(&record.parent, &r->record.id))
            *first = plx_min_u64(*first, record.parent_seq);
    }
    return 0;
}

/* An instant that is open also reads the nodes of the key frame through which it was opened. */
static void held_by_readers(const struct reclaim *r, uint64_t *first)
{
    for (const struct plx_vdi *vdi = r->store->vdis; vdi; vdi = vdi->next)
        if (vdi->snapshot && vdi->record.slot == r->record.slot)
            *first = plx_min_u64(*first, vdi->map.base.gen);
}

/* C7 */
static void held_by_rewinds(const struct reclaim *r, uint64_t *first)
{
    for (uint32_t i = 0; i < r->record.rewinds; i++)
        *first = plx_min_u64(*first, r->record.rewind[i].seq);
}

/* ---- All of it ---- */

static int begin(struct reclaim *r, struct plx_vdi *vdi, struct plx_fault *fault)
{
    *r = (struct reclaim){
        .vdi = vdi,
        .store = vdi->store,
        .record = vdi->record,
        .last_batch = vdi->log.applied.seq - 1,
        .fault = fault,
    };
    return plx_log_reader_of(r->store, &r->record, vdi->log.segments, vdi->log.segment_count,
                             &r->reader, fault);
}

static void end(struct reclaim *r)
{
    plx_log_reader_close(&r->reader);
    plx_deaths_free(&r->drop.blocks);
    free(r->versions.slots);
    free(r->bases);
}

/* With no snapshot kept, history moves on with every key frame, and its log is used again. */
static bool history_moved(const struct reclaim *r)
{
    return r->vdi->record.oldest.pos != r->record.oldest.pos ||
           r->vdi->record.oldest.root != r->record.oldest.root;
}

/* C5: whether somebody came meanwhile who may use what is to be dropped. */
static bool disturbed(const struct reclaim *r, uint64_t labels_ended)
{
    uint64_t first = UINT64_MAX;

    held_by_readers(r, &first);
    return r->vdi->labels_begun != labels_ended || r->store->instants_opening || history_moved(r) ||
           first <= r->drop.oldest.snap_seq;
}

static int commit(struct reclaim *r)
{
    struct plx_waiter waiter = PLX_WAITER;
    struct plx_keyframe_op *op = &r->vdi->keyframe;
    int error;

    op->next_drop = &r->drop;
    plx_keyframe_request(r->vdi, &waiter.task);
    error = plx_waiter_wait(r->store, &waiter);
    op->next_drop = NULL;
    return error ? plx_fault_set(r->fault, error, "virtual disk %s: %s", r->record.name,
                                 plx_error_text(error))
                 : 0;
}

static int forget(struct reclaim *r, uint64_t upto)
{
    uint64_t labels_ended = r->vdi->labels_ended, held = UINT64_MAX;
    int error = held_by_labels(r, &held);

    if (!error)
        error = held_by_clones(r, &held);
    if (error)
        return error;
    held_by_readers(r, &held);
    held_by_rewinds(r, &held);
    upto = plx_min_u64(upto, held ? held - 1 : 0);
    error = find_bases(r);
    /* Of the newest it is not decided yet whether it stays whole. */
    for (size_t i = 1; i + 1 < r->base_count && r->bases[i].snap_seq <= upto && !error; i++) {
        r->from = &r->bases[i - 1];
        r->to = &r->bases[i];
        error = drop_stretch(r);
        if (!error)
            r->drop.oldest = *r->to;
    }
    if (error || !r->drop.oldest.levels)
        return error;
    if (disturbed(r, labels_ended))
        return plx_fault_set(r->fault, PLX_ERR_BUSY,
                             "virtual disk %s: its snapshots came into use meanwhile; try again",
                             r->record.name);
    return commit(r);
}

int plx_vdi_forget(struct plx_vdi *vdi, uint64_t upto, uint64_t *ret_forgotten,
                   struct plx_fault *fault)
{
    struct reclaim r;
    int error;

    if (vdi->snapshot)
        return plx_fault_set(fault, PLX_ERR_READONLY, "this is a snapshot");
    if (vdi->forgetting || vdi->rewinding)
        return plx_fault_set(fault, PLX_ERR_BUSY,
                             "virtual disk %s: this, or a rewind, is under way already; try again",
                             vdi->record.name);
    error = begin(&r, vdi, fault);
    if (error)
        return error;
    vdi->forgetting = true;
    error = forget(&r, upto);
    if (error == PLX_ERR_CORRUPT && history_moved(&r)) /* it read what is somebody else's now */
        error = plx_fault_set(fault, PLX_ERR_BUSY,
                              "virtual disk %s: its history moved on; try again", vdi->record.name);
    vdi->forgetting = false;
    end(&r);
    *ret_forgotten = vdi->record.oldest.snap_seq;
    return error;
}

bool plx_vdi_forgets(const struct plx_store *store, uint32_t slot, uint64_t seq)
{
    for (const struct plx_vdi *vdi = store->vdis; vdi; vdi = vdi->next) {
        const struct plx_history_drop *drop =
            vdi->keyframe.drop ? vdi->keyframe.drop : vdi->keyframe.next_drop;

        if (!vdi->snapshot && vdi->record.slot == slot && drop && seq <= drop->oldest.snap_seq)
            return true;
    }
    return false;
}
