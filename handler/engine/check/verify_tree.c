/* verify_tree.c - the checker's own walk of trees, its marks, and the contents of data blocks.
 *
 * VERIFY_TREE-1  Every node matches its checksum and lies in a metadata extent; every block that a
 *     leaf names lies in a data extent.
 * VERIFY_TREE-2  A block that a live disk may overwrite in place has one user. A common block has
 *     any number of users, and each of them calls it common. Claims that do not fit this make the
 *     block a suspect; verify_suspects.c looks again and reports its users.
 *
 * Below a read-only node everything is the same for all who share it, so such a node is walked
 * once. The exception is a node below which a snapshot does not see everything (PLX_MARK_PARTLY):
 * another snapshot may see more.
 *
 * Contents are read in the order of the store, adjacent blocks in one go. An open disk may have
 * overwritten or freed a block since its tree was read. A mismatch therefore counts only if the
 * block is still expected there: by the newest tree and the log behind it, or, for a snapshot's
 * block, if history still begins where it did.
 *
 * Loop: the store's.
 * Crash story: this file only reads.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/list.h"
#include "engine/check/verify.h"

/* ---- Marks ---- */

bool plx_marked(const struct plx_marks *marks, const struct plx_store *store, enum plx_mark mark,
                uint64_t addr)
{
    uint64_t blocks = store->info.extent_blocks;
    const uint64_t *bits;

    addr = plx_addr_block(addr);
    bits = addr / blocks < marks->count ? marks->extents[addr / blocks] : NULL;
    return bits && (bits[(mark * blocks + addr % blocks) / 64] >> addr % 64 & 1);
}

bool plx_mark_set(struct plx_marks *marks, const struct plx_store *store, enum plx_mark mark,
                  uint64_t addr)
{
    uint64_t blocks = store->info.extent_blocks;
    uint64_t **bits;

    addr = plx_addr_block(addr);
    if (addr / blocks >= marks->count)
        return true;
    bits = &marks->extents[addr / blocks];
    if (!*bits)
        *bits = calloc(PLX_MARKS * blocks / 64, sizeof **bits);
    if (*bits)
        (*bits)[(mark * blocks + addr % blocks) / 64] |= 1ull << addr % 64;
    return *bits != NULL;
}

static bool has(const struct plx_verify *v, enum plx_mark mark, uint64_t addr)
{
    return plx_marked(&v->own, v->store, mark, addr) ||
           (v->mode != PLX_VERIFY_GATHER && plx_marked(&v->marks, v->store, mark, addr));
}

static void set(struct plx_verify *v, enum plx_mark mark, uint64_t addr)
{
    if (!plx_mark_set(&v->own, v->store, mark, addr))
        v->error = PLX_ERR_NOMEM;
}

/* ---- Suspects ---- */

void plx_verify_suspect(struct plx_verify *v, uint64_t addr, bool missing)
{
    struct plx_suspect *suspect = NULL;

    for (size_t i = v->suspect_count; i-- > 0 && !suspect;)
        if (v->suspects[i].addr == addr)
            suspect = &v->suspects[i];
    if (!suspect && v->suspect_count == PLX_VERIFY_SUSPECTS) {
        v->suspects_dropped++;
        return;
    }
    if (!suspect) {
        suspect = &v->suspects[v->suspect_count++];
        *suspect = (struct plx_suspect){.addr = addr};
    }
    suspect->missing = suspect->missing || missing;
    suspect->shared = suspect->shared || !missing;
}

static bool is_suspect(const struct plx_verify *v, uint64_t addr)
{
    size_t low = 0, high = v->suspect_count; /* sorted by now */

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (v->suspects[middle].addr < addr)
            low = middle + 1;
        else
            high = middle;
    }
    return low < v->suspect_count && v->suspects[low].addr == addr;
}

static void gather(struct plx_verify *v, const struct plx_use *use)
{
    if (!is_suspect(v, use->addr))
        return;
    if (!PLX_LIST_ROOM(v->uses, v->use_count, v->use_capacity, 64)) {
        v->error = PLX_ERR_NOMEM;
        return;
    }
    v->uses[v->use_count++] = *use;
}

/* Whether the block was claimed before, as a common block (or as one that is not common). */
static bool claimed_as(const struct plx_verify *v, uint64_t addr, bool common)
{
    bool claimed = has(v, PLX_MARK_REACHED, addr) || has(v, PLX_MARK_NAMED, addr);

    return claimed && has(v, PLX_MARK_COMMON, addr) == common;
}

/* Whether recovery of the disk would not mark a block that its log names here, because the disk is
 * closed or its owner does not own the extent. */
static bool is_foreign(const struct plx_verify *v, uint64_t addr)
{
    uint64_t number = plx_addr_block(addr) / v->store->info.extent_blocks;

    return !v->record->owner || number >= v->extents || v->owners[number] != v->record->owner;
}

void plx_verify_claim(struct plx_verify *v, uint64_t addr, uint64_t vblock, const char *what,
                      bool writable, bool named, bool snapshot)
{
    bool read = has(v, PLX_MARK_REACHED, addr), written = has(v, PLX_MARK_WRITABLE, addr);
    bool common = plx_addr_is_common(addr), mixed = claimed_as(v, addr, !common);

    writable = writable && !common;
    if (v->mode == PLX_VERIFY_GATHER) {
        struct plx_use use = {.addr = plx_addr_block(addr),
                              .vblock = vblock,
                              .generation = v->record->generation,
                              .slot = v->record->slot,
                              .what = what,
                              .common = common,
                              .writable = writable,
                              .named = named,
                              .snapshot = snapshot};

        gather(v, &use);
        /* VERIFY_TREE-2 */
    } else if (v->mode == PLX_VERIFY_LIVE && (written || (writable && read) || mixed)) {
        plx_verify_suspect(v, plx_addr_block(addr), false);
    }
    if (!named)
        set(v, PLX_MARK_REACHED, addr);
    else
        set(v, PLX_MARK_NAMED, addr);
    if (named && is_foreign(v, addr))
        set(v, PLX_MARK_FOREIGN, addr);
    if (writable)
        set(v, PLX_MARK_WRITABLE, addr);
    if (common)
        set(v, PLX_MARK_COMMON, addr);
}

void plx_verify_segment(struct plx_verify *v, uint64_t addr, bool named)
{
    uint64_t blocks = v->store->info.segment_blocks;

    if (addr + blocks > v->store->addr_limit ||
        (!named && !plx_verify_type_is(v, addr, PLX_EXTENT_META))) {
        plx_verify_find(v, PLX_FINDING_ERROR, "address", addr, PLX_NO_VBLOCK,
                        "virtual disk %s: a log segment lies in no metadata extent",
                        v->record->name);
        return;
    }
    for (uint64_t i = 0; i < blocks; i++)
        plx_verify_claim(v, addr + i, PLX_NO_VBLOCK, "log segment", true, named, false);
}

/* ---- Contents ---- */

static int by_addr(const void *a, const void *b)
{
    const struct plx_expected *x = a, *y = b;

    return x->addr < y->addr ? -1 : x->addr > y->addr;
}

/* Looks a block up in the record's newest tree: its entry, or 0 if it is absent. */
static int look_up(struct plx_verify *v, const struct plx_vdi_record *record, uint64_t vblock,
                   uint64_t *ret_entry)
{
    uint64_t entry = record->keyframe.root;
    uint8_t node[PLX_BLOCK_SIZE];

    for (unsigned level = record->keyframe.levels; level > 0 && plx_entry_addr(entry); level--) {
        uint32_t known = plx_entry_checksum(entry);

        if (plx_entry_addr(entry) >= v->store->addr_limit ||
            plx_verify_read(v, PLX_KIND_NODE, plx_entry_addr(entry), node, sizeof node) ||
            (known && plx_checksum24(plx_crc32c(node, sizeof node)) != known))
            return PLX_ERR_CORRUPT;
        entry =
            plx_node_entry(node, vblock >> ((level - 1) * PLX_NODE_SHIFT) & (PLX_NODE_ENTRIES - 1));
    }
    *ret_entry = entry;
    return 0;
}

/* Whether the record's newest tree and the log behind it still name the same place and checksum. */
static bool says_the_same(struct plx_verify *v, const struct plx_vdi_record *record,
                          const struct plx_expected *expected)
{
    const struct plx_vdi_record *read = v->record;
    enum plx_verify_mode mode = v->mode;
    struct plx_history behind = {0};
    uint64_t addr = expected->addr, entry;
    uint32_t checksum = expected->checksum;

    v->record = record;
    v->mode = PLX_VERIFY_BEHIND;
    plx_verify_log(v, &behind);
    v->mode = mode;
    v->record = read;
    if (plx_history_tells(&behind, expected->vblock, &addr, &checksum)) {
        /* The log is newer than any tree. */
    } else if (!plx_addr_is_common(addr) &&
               plx_history_voided(&behind, expected->vblock >> PLX_NODE_SHIFT, 0)) {
        checksum = 0;
    } else if (look_up(v, record, expected->vblock, &entry) == 0) {
        addr = plx_entry_addr(entry);
        checksum = plx_entry_checksum(entry);
    }
    plx_history_free(&behind);
    return addr == expected->addr && checksum == expected->checksum;
}

/* Whether an open disk still has the block where it was expected. A record that can no longer be
 * read excuses nothing. For live blocks the log is read again; its buffer is free by then, because
 * the walk compares live blocks after the log. */
static bool still_expected(struct plx_verify *v, const struct plx_expected *expected)
{
    struct plx_vdi_record record;
    bool holds = true;
    uint8_t which;

    for (unsigned i = 0; holds && i < PLX_VERIFY_TRIES; i++) {
        if (plx_vdi_record_read(v->store, v->record->slot, &record, &which, NULL))
            break;
        holds = record.state == PLX_VDI_LIVE && plx_uuid_equal(&record.id, &v->record->id);
        if (holds && expected->live)
            holds = says_the_same(v, &record, expected);
        else if (holds) /* a snapshot that went may have freed the block */
            holds = record.oldest.batch_seq == v->record->oldest.batch_seq;
        if (!plx_vdi_record_moved(v->store, &record))
            break;
    }
    return holds;
}

static void judge(struct plx_verify *v, const struct plx_expected *expected)
{
    const char *what = "does not match its checksum";
    int error = plx_verify_read(v, PLX_KIND_DATA, expected->addr, v->block, PLX_BLOCK_SIZE);

    if (error)
        what = "cannot be read";
    else if (plx_checksum24(plx_crc32c(v->block, PLX_BLOCK_SIZE)) == expected->checksum)
        return;
    if (v->record->owner && !still_expected(v, expected))
        return;
    plx_verify_find(v, PLX_FINDING_ERROR, "data", expected->addr, expected->vblock,
                    "virtual disk %s: block %llu %s", v->record->name,
                    (unsigned long long)expected->vblock, what);
}

static void read_run(struct plx_verify *v, const struct plx_expected *run, size_t count)
{
    size_t blocks = (size_t)(run[count - 1].addr - run->addr) + 1;
    int error = plx_verify_read(v, PLX_KIND_DATA, run->addr, v->data, blocks << PLX_BLOCK_SHIFT);

    for (size_t i = 0; i < count; i++) {
        const uint8_t *bytes = v->data + ((run[i].addr - run->addr) << PLX_BLOCK_SHIFT);

        v->result.data_verified++;
        if (error || plx_checksum24(plx_crc32c(bytes, PLX_BLOCK_SIZE)) != run[i].checksum)
            judge(v, &run[i]);
    }
}

void plx_verify_data_done(struct plx_verify *v)
{
    uint64_t extent_blocks = v->store->info.extent_blocks;
    size_t count = v->expected_count;

    v->expected_count = 0;
    qsort(v->expected, count, sizeof *v->expected, by_addr);
    for (size_t i = 0; i < count && !v->error;) {
        size_t end = i + 1;

        while (end < count && v->expected[end].addr - v->expected[end - 1].addr <= 1 &&
               v->expected[end].addr - v->expected[i].addr < PLX_VERIFY_DATA &&
               v->expected[end].addr / extent_blocks == v->expected[i].addr / extent_blocks)
            end++;
        read_run(v, v->expected + i, end - i);
        i = end;
    }
}

void plx_verify_data(struct plx_verify *v, uint64_t addr, uint64_t vblock, uint32_t checksum,
                     bool live)
{
    if (!v->read_data || !checksum)
        return;
    v->expected[v->expected_count++] =
        (struct plx_expected){.addr = addr, .vblock = vblock, .checksum = checksum, .live = live};
    if (v->expected_count == PLX_VERIFY_DATA)
        plx_verify_data_done(v);
}

/* ---- Trees ---- */

static void bad_address(struct plx_verify *v, uint64_t addr, uint64_t vblock, const char *what,
                        const char *type)
{
    plx_verify_find(v, PLX_FINDING_ERROR, "address", addr, vblock,
                    "virtual disk %s: %s at block %llu of the store, which is in no %s extent",
                    v->record->name, what, (unsigned long long)plx_addr_block(addr), type);
}

/* Returns false if the entry was not claimed, because this walk's snapshot does not see it. */
static bool leaf_entry(struct plx_verify *v, const struct plx_tree_walk *walk, uint64_t entry,
                       uint64_t at, bool read_only)
{
    uint64_t addr = plx_entry_addr(entry);
    bool common = plx_addr_is_common(addr), shared = read_only || walk->read_only || common;
    bool snapshot = walk->exclude != NULL, known;

    if (walk->index) {
        if (at >= walk->first_segment && at < walk->last_segment)
            plx_verify_segment(v, addr, false);
        return true; /* older segments are given up; later ones the record names */
    }
    if (!walk->nodes_only && at >= walk->blocks) {
        plx_verify_find(v, PLX_FINDING_ERROR, "address", addr, at,
                        "virtual disk %s: block %llu is mapped beyond the end", v->record->name,
                        (unsigned long long)at);
        return true;
    }
    if (walk->nodes_only || (walk->exclude && plx_history_excludes(walk->exclude, at)))
        return false;
    if ((entry & PLX_ENTRY_SUPERPAGE) || !plx_verify_type_is(v, addr, PLX_EXTENT_DATA)) {
        bad_address(v, addr, at, "data", "data");
        return true;
    }
    if (walk->behind) {
        v->live.mapped++;
        v->live.vouched += plx_entry_checksum(entry) != 0;
    }
    known = shared && has(v, PLX_MARK_REACHED, addr);
    plx_verify_claim(v, addr, at, "data", !shared, false, snapshot);
    if (known || (!read_only && !common &&
                  plx_history_voided(snapshot ? walk->exclude : walk->behind, at >> PLX_NODE_SHIFT,
                                     walk->seq)))
        return true; /* its contents were compared already, or its checksum no longer holds */
    plx_verify_data(v, addr, at, plx_entry_checksum(entry), walk->behind != NULL);
    return true;
}

static bool load_node(struct plx_verify *v, uint64_t entry, unsigned level, uint8_t *node)
{
    uint64_t addr = plx_entry_addr(entry);
    uint32_t known = plx_entry_checksum(entry);
    const char *wrong = NULL;

    if (plx_verify_read(v, PLX_KIND_NODE, addr, node, PLX_BLOCK_SIZE))
        wrong = "cannot be read";
    else if (known && plx_checksum24(plx_crc32c(node, PLX_BLOCK_SIZE)) != known) /* VERIFY_TREE-1 */
        wrong = "does not match its checksum";
    if (wrong)
        plx_verify_find(v, PLX_FINDING_ERROR, "node", addr, PLX_NO_VBLOCK,
                        "virtual disk %s: node of level %u %s", v->record->name, level, wrong);
    return !wrong;
}

/* Whether an earlier walk has claimed everything below a node. */
static bool walked(const struct plx_verify *v, const struct plx_tree_walk *walk, uint64_t addr,
                   bool shared)
{
    /* A walk of nodes only leaves NAMED: data below was not claimed, but nodes were. */
    if (walk->nodes_only && has(v, PLX_MARK_NAMED, addr))
        return true;
    return !has(v, PLX_MARK_PARTLY, addr) &&
           ((shared && has(v, PLX_MARK_REACHED, addr)) ||
            plx_marked(&v->own, v->store, PLX_MARK_REACHED, addr));
}

/* Returns whether everything below the node is claimed. */
static bool walk_node(struct plx_verify *v, const struct plx_tree_walk *walk, uint64_t entry,
                      unsigned level, uint64_t index, bool read_only)
{
    uint64_t addr = plx_entry_addr(entry);
    uint8_t *node =
        v->nodes + (size_t)(level - 1 + (walk->index ? PLX_LEVELS_MAX : 0)) * PLX_BLOCK_SIZE;
    bool shared = read_only || walk->read_only, known, all = true;

    if (v->error)
        return true;
    if ((entry & PLX_ENTRY_SUPERPAGE) || plx_addr_is_common(addr) ||
        !plx_verify_type_is(v, addr, PLX_EXTENT_META)) { /* VERIFY-2 */
        bad_address(v, addr, PLX_NO_VBLOCK, "a node", "metadata");
        if ((entry & PLX_ENTRY_SUPERPAGE) || plx_addr_is_common(addr) ||
            !plx_verify_is_unused(v, addr) || !plx_entry_checksum(entry))
            return true;
        /* The extent's header may be an older state, because the device lost a write. If the node
         * matches its checksum, everything below it is the disk's all the same. */
    }
    known = walked(v, walk, addr, shared);
    plx_verify_claim(v, addr, PLX_NO_VBLOCK, walk->index ? "node of the log's index" : "node",
                     !shared, walk->nodes_only, walk->exclude != NULL);
    if (known || !load_node(v, entry, level, node)) {
        v->live.partly = v->live.partly || walk->behind;
        return true;
    }
    v->result.nodes += v->mode == PLX_VERIFY_LIVE;
    for (unsigned i = 0; i < PLX_NODE_ENTRIES; i++) {
        uint64_t child = plx_node_entry(node, i), at = index << PLX_NODE_SHIFT | i;
        bool child_read_only = read_only || (child & PLX_ENTRY_READ_ONLY);

        if (!plx_entry_addr(child))
            continue;
        if (!(level > 1 ? walk_node(v, walk, child, level - 1, at, child_read_only)
                        : leaf_entry(v, walk, child, at, child_read_only)))
            all = false;
    }
    if (!all && !walk->nodes_only)
        set(v, PLX_MARK_PARTLY, addr);
    return all;
}

void plx_verify_tree(struct plx_verify *v, const struct plx_tree_walk *walk, uint64_t root,
                     unsigned levels)
{
    if (plx_entry_addr(root))
        walk_node(v, walk, root, levels, 0, (root & PLX_ENTRY_READ_ONLY) != 0);
}
