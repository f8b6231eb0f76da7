/* verify.c - an independent checker of a whole store: reads only, believes nothing.
 *
 * It shares the gates of format.c with the code that writes, and nothing else: its own walk of
 * trees (verify_tree.c) and logs (verify_log.c), its own idea of what must be allocated. It proves:
 *
 * F1  Superblocks, extent pages and VDI records: at least one copy of each is whole.
 * F2  Trees: nodes match their checksums and lie, as their data does, in extents of their type.
 * F3  What a live disk may overwrite in place has no other user: no second place in a tree, no
 *     snapshot, no other disk. A common block (share.c) is common to all its users.
 * F4  Logs are chains.
 * F5  What retained snapshots are opened through is whole.
 * F6  What is in use is allocated. What is allocated and not in use is counted by extent, apart
 *     from what deleted disks still have: space to be collected, nothing lost.
 * F7  A record counts its blocks, and those whose checksums are known, as its tree has them.
 *
 * Disks may be open, here or elsewhere, and move on while they are read. Each is read into marks
 * of its own; they and what was found count only if its record is the same afterwards, else it is
 * read again (PLX_VERIFY_TRIES times). Bitmaps are read last: a record flips after its blocks'
 * bits are durable, so they cover it, unless it has moved on since. Whatever does not fit between
 * two disks, or between a disk and a bitmap, is only a suspect at first: in a second look all who
 * have the block are found, and it counts if none of their records has changed since.
 *
 * Synchronous; runs the loop while it reads or, to keep to the rate, waits. Memory: five bits per
 * block of the extents in use, and as much for the disk being read.
 */
#include "engine/check/verify.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define USERS_MAX 16u     /* of one block, whose records are looked at again */
#define TYPE_DAMAGED 0xff /* its header is, and that was said: anything may be in it */

/* ---- Reading ---- */

static void report_progress(struct plx_verify *v)
{
    const struct plx_watch *watch = &v->options->watch;

    if (watch->progress)
        watch->progress(watch->context,
                        v->total_bytes ? plx_min_u64(v->result.bytes, v->total_bytes)
                                       : v->result.bytes,
                        v->total_bytes);
}

int plx_verify_read(struct plx_verify *v, enum plx_io_kind kind, uint64_t addr, void *buffer,
                    size_t bytes)
{
    const struct plx_turns turns = {.rate = v->options->rate,
                                    .interrupted = v->options->watch.interrupted,
                                    .context = v->options->watch.context};

    if (v->error)
        return v->error;
    v->result.bytes += bytes;
    if (!plx_store_take_turns(v->store, &turns, v->begun_ns, v->result.bytes))
        return v->error = PLX_ERR_BUSY;
    report_progress(v);
    return plx_store_read_sync(v->store, kind, addr, buffer, bytes);
}

/* ---- Findings ---- */

static void tell(struct plx_verify *v, const struct plx_finding *finding)
{
    v->result.errors += finding->severity == PLX_FINDING_ERROR;
    if (v->options->finding)
        v->options->finding(v->options->context, finding);
}

static void locate(const struct plx_verify *v, uint64_t addr, struct plx_finding *finding)
{
    struct plx_place place;

    if (!plx_store_place(v->store, addr, &place))
        return;
    finding->addr = addr;
    finding->volume = v->store->info.volume[place.volume].name;
    finding->volume_block = place.block;
}

static void keep(struct plx_verify *v, const struct plx_finding *finding)
{
    struct plx_finding *kept = &v->kept[v->kept_count];

    if (v->kept_count == PLX_VERIFY_KEPT)
        return;
    *kept = *finding;
    kept->text = strdup(finding->text);
    kept->vdi = NULL; /* the record's, when it is told */
    kept->id = NULL;
    if (kept->text)
        v->kept_count++;
}

/* The attempt's findings, and how many there were. */
static void drop_kept(struct plx_verify *v)
{
    while (v->kept_count)
        free((void *)(uintptr_t)v->kept[--v->kept_count].text);
    v->attempt_errors = 0;
}

static void tell_kept(struct plx_verify *v)
{
    uint64_t untold = v->attempt_errors;

    for (size_t i = 0; i < v->kept_count; i++) {
        v->kept[i].vdi = v->record->name;
        v->kept[i].id = &v->record->id;
        tell(v, &v->kept[i]);
        untold -= v->kept[i].severity == PLX_FINDING_ERROR;
    }
    if (untold)
        plx_verify_find(v, PLX_FINDING_ERROR, "more", 0, PLX_NO_VBLOCK,
                        "virtual disk %s: %llu further finding%s", v->record->name,
                        (unsigned long long)untold, plx_plural(untold));
    drop_kept(v);
}

void plx_verify_find(struct plx_verify *v, enum plx_finding_severity severity, const char *kind,
                     uint64_t addr, uint64_t vblock, const char *format, ...)
{
    struct plx_finding finding = {.severity = severity, .kind = kind, .vblock = vblock};
    char text[1024];
    size_t used;
    va_list args;

    addr = plx_addr_block(addr);
    if (v->error ||
        (v->mode == PLX_VERIFY_CONTENTS ? strcmp(kind, "data") != 0 : v->mode != PLX_VERIFY_LIVE))
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text - 400, format, args);
    va_end(args);
    if (addr)
        locate(v, addr, &finding);
    used = strlen(text);
    if (finding.volume)
        snprintf(text + used, sizeof text - used, " (store block %llu: block %llu of %s)",
                 (unsigned long long)addr, (unsigned long long)finding.volume_block,
                 finding.volume);
    finding.text = text;
    finding.vdi = v->record ? v->record->name : NULL;
    finding.id = v->record ? &v->record->id : NULL;
    v->attempt_errors += severity == PLX_FINDING_ERROR;
    if (v->attempting)
        keep(v, &finding);
    else
        tell(v, &finding);
}

/* ---- Superblocks and extents ---- */

static void check_superblocks(struct plx_verify *v)
{
    const struct plx_superblock *first = &v->store->volumes[0].super;

    for (uint32_t i = 0; i < first->spans; i++)
        memset(v->types + first->span[i].first, PLX_EXTENT_SYSTEM, first->span[i].extents);
    for (unsigned i = 0; i < v->store->info.volumes; i++) {
        uint64_t extent = v->store->info.volume[i].first_extent;
        uint64_t base = extent * v->store->info.extent_blocks;

        v->types[extent] = PLX_EXTENT_SYSTEM;
        for (unsigned slot = 0; slot < PLX_SUPERBLOCK_SLOTS; slot++) {
            struct plx_superblock super;
            struct plx_fault why;

            if (plx_verify_read(v, PLX_KIND_ADMIN, base + slot, v->block, PLX_BLOCK_SIZE) ||
                plx_format_superblock_decode(v->block, &super, &why)) /* F1 */
                plx_verify_find(v, PLX_FINDING_ERROR, "superblock", base + slot, PLX_NO_VBLOCK,
                                "volume %u: copy %u of the superblock is damaged; 'parallax store "
                                "grow' writes it again",
                                i, slot);
            else if (!plx_uuid_equal(&super.store, &v->store->info.id))
                plx_verify_find(v, PLX_FINDING_ERROR, "superblock", base + slot, PLX_NO_VBLOCK,
                                "volume %u: copy %u of the superblock is another store's", i, slot);
        }
    }
}

static bool is_zero(const uint8_t *bytes, size_t count)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, count - 1) == 0;
}

enum page_state {
    PAGE_NONE, /* the extent never came into use (extent.c, E3) */
    PAGE_GOOD,
    PAGE_BAD,
};

/* The newer whole copy of a bitmap page. */
static enum page_state read_page(struct plx_verify *v, uint64_t number, uint32_t p,
                                 struct plx_extent_page *ret_page, const uint8_t **ret_bits)
{
    uint32_t pages = plx_extent_pages(v->store->info.extent_blocks);
    uint64_t base = number * v->store->info.extent_blocks;
    enum page_state state = PAGE_BAD;
    struct plx_extent_page page;

    if (plx_verify_read(v, PLX_KIND_ADMIN, base + 2 * p, v->pages, 2 * PLX_BLOCK_SIZE))
        return PAGE_BAD;
    for (int slot = 0; slot < 2; slot++) {
        uint8_t *block = v->pages + slot * PLX_BLOCK_SIZE;

        if (plx_format_extent_page_decode(block, &v->store->info.id, number, p, pages, &page,
                                          NULL) ||
            (state == PAGE_GOOD && page.generation <= ret_page->generation))
            continue;
        *ret_page = page;
        *ret_bits = plx_format_extent_bits(block);
        state = PAGE_GOOD;
    }
    /* Slot B of the first pass, or a part of it. */
    if (is_zero(v->pages, PLX_BLOCK_SIZE) &&
        (state == PAGE_BAD || ret_page->generation <= plx_generation_next(0)))
        return PAGE_NONE;
    return state;
}

/* Calls visit with the bitmap of every page; false: the extent is not in use, or damaged. */
static bool read_extent(struct plx_verify *v, uint64_t number,
                        void (*visit)(struct plx_verify *v, uint64_t number, uint64_t first,
                                      uint64_t count, const uint8_t *bits))
{
    uint64_t blocks = v->store->info.extent_blocks;
    uint32_t pages = plx_extent_pages(blocks);

    for (uint32_t p = 0; p < pages && !v->error; p++) {
        uint64_t first = (uint64_t)p * PLX_EXTENT_PAGE_BITS;
        struct plx_extent_page page;
        const uint8_t *bits;

        switch (read_page(v, number, p, &page, &bits)) {
        case PAGE_NONE:
            return false;
        case PAGE_BAD: /* F1; said once */
            if (visit)
                continue;
            plx_verify_find(v, PLX_FINDING_ERROR, "bitmap", number * blocks + 2 * p, PLX_NO_VBLOCK,
                            "extent %llu: both copies of bitmap page %u are damaged",
                            (unsigned long long)number, p);
            if (p == 0)
                v->types[number] = TYPE_DAMAGED;
            continue;
        case PAGE_GOOD:
            break;
        }
        if (p == 0 && (!visit || v->types[number] != TYPE_DAMAGED)) {
            v->types[number] = (uint8_t)page.type;
            v->owners[number] = page.owner;
        }
        if (visit)
            visit(v, number, first, plx_min_u64(PLX_EXTENT_PAGE_BITS, blocks - first), bits);
        else
            for (unsigned i = 0; i < PLX_EXTENT_PAGE_BITS / 8; i++)
                if (page.type == PLX_EXTENT_META || v->options->data)
                    v->total_bytes += (uint64_t)__builtin_popcount(bits[i]) << PLX_BLOCK_SHIFT;
    }
    return true;
}

/* In the store, and behind the bitmap of its extent. */
static bool may_be_a_disks(const struct plx_verify *v, uint64_t addr)
{
    uint64_t blocks = v->store->info.extent_blocks;

    addr = plx_addr_block(addr);
    return addr < v->store->addr_limit && addr % blocks >= 2ull * plx_extent_pages(blocks);
}

bool plx_verify_type_is(struct plx_verify *v, uint64_t addr, enum plx_extent_type type)
{
    uint64_t number = plx_addr_block(addr) / v->store->info.extent_blocks;
    struct plx_extent_page page;
    const uint8_t *bits;
    bool is;

    if (!may_be_a_disks(v, addr))
        return false;
    if (number >= v->extents)
        return true;
    /* It may have come into use since. */
    if (v->types[number] != type && v->types[number] != PLX_EXTENT_SYSTEM &&
        v->types[number] != TYPE_DAMAGED && read_page(v, number, 0, &page, &bits) == PAGE_GOOD)
        v->types[number] = (uint8_t)page.type;
    is = v->types[number] == type || v->types[number] == TYPE_DAMAGED;
    if (v->mode == PLX_VERIFY_LIVE) /* what a deleted disk had may be others' by now */
        v->unguarded[number] = v->unguarded[number] || !is;
    return is;
}

bool plx_verify_is_unused(const struct plx_verify *v, uint64_t addr)
{
    uint64_t number = plx_addr_block(addr) / v->store->info.extent_blocks;

    return may_be_a_disks(v, addr) && number < v->extents && v->types[number] == PLX_EXTENT_UNUSED;
}

/* ---- Virtual disks ---- */

static void clear_marks(struct plx_verify *v, struct plx_marks *marks)
{
    for (uint64_t extent = 0; extent < v->extents; extent++) {
        free(marks->extents[extent]);
        marks->extents[extent] = NULL;
    }
}

static void merge_marks(struct plx_verify *v, struct plx_marks *into, bool settled)
{
    size_t words = v->store->info.extent_blocks / 64;

    for (uint64_t extent = 0; extent < v->extents; extent++) {
        const uint64_t *own = v->own.extents[extent];

        if (!own)
            continue;
        if (!into->extents[extent])
            into->extents[extent] = calloc(PLX_MARKS * words, sizeof(uint64_t));
        if (!into->extents[extent]) {
            v->error = PLX_ERR_NOMEM;
            return;
        }
        /* Of a disk that cannot be read in one piece nothing is claimed. */
        for (size_t i = 0; i < PLX_MARKS * words; i++)
            into->extents[extent][settled ? i : PLX_MARK_NAMED * words + i % words] |= own[i];
    }
}

static void wrong_count(struct plx_verify *v, const char *what, uint64_t said, uint64_t counted)
{
    plx_verify_find(v, PLX_FINDING_INFO, "count", 0, PLX_NO_VBLOCK,
                    "virtual disk %s: its record says that %llu block%s %s %s, its tree that %llu "
                    "%s",
                    v->record->name, (unsigned long long)said, plx_plural(said),
                    plx_is_or_are(said), what, (unsigned long long)counted, plx_is_or_are(counted));
}

/* What others have as well was not walked again, and not counted. */
static void compare_counts(struct plx_verify *v)
{
    const struct plx_keyframe *said = &v->record->keyframe;

    if (v->live.partly)
        return;
    if (said->mapped != PLX_MAPPED_UNKNOWN && said->mapped != v->live.mapped)
        wrong_count(v, "mapped", said->mapped, v->live.mapped);
    if (said->vouched != PLX_MAPPED_UNKNOWN && said->vouched != v->live.vouched)
        wrong_count(v, "known by checksum", said->vouched, v->live.vouched);
}

/* Log, trees and index of v->record, into v->own. */
static void walk_vdi(struct plx_verify *v)
{
    const struct plx_vdi_record *record = v->record;
    uint64_t last = record->keyframe.pos / plx_log_segment_bytes(v->store);
    struct plx_history behind = {0};
    struct plx_tree_walk index = {
        .index = true, .first_segment = record->first_segment, .last_segment = last};
    /* It tells what is not the clone's to free; its data is for those who see it to claim. */
    struct plx_tree_walk origin = {.read_only = true, .nodes_only = true};
    struct plx_tree_walk rewound = {
        .blocks = plx_div_up(record->keyframe.size_bytes, PLX_BLOCK_SIZE), .read_only = true};
    struct plx_tree_walk live = {
        .blocks = plx_div_up(record->keyframe.size_bytes, PLX_BLOCK_SIZE),
        .behind = &behind,
        .seq = record->keyframe.batch_seq,
    };

    clear_marks(v, &v->own);
    plx_verify_tree(v, &index, record->index_root, record->index_levels);
    if (record->segment_addr)
        plx_verify_segment(v, record->segment_addr, false);
    if (record->segment_addr && record->next_addr)
        plx_verify_segment(v, record->next_addr, false);
    plx_verify_tree(v, &origin, record->origin_root, record->origin_levels);
    for (uint32_t i = 0; i < record->rewinds; i++)
        plx_verify_tree(v, &rewound, record->rewind[i].root, record->rewind[i].levels);
    plx_verify_log(v, &behind);
    live.read_only = behind.snapshots > record->keyframe.snap_seq;
    memset(&v->live, 0, sizeof v->live);
    plx_verify_tree(v, &live, record->keyframe.root, record->keyframe.levels);
    compare_counts(v);
    plx_verify_data_done(v);
    plx_history_free(&behind);
}

/* Contents of a disk that is open: what it reads of the trees counts for nothing else. */
static void check_contents(struct plx_verify *v)
{
    struct plx_marks own = v->own;

    v->own.extents = calloc(v->extents, sizeof *v->own.extents);
    if (v->own.extents) {
        v->mode = PLX_VERIFY_CONTENTS;
        v->read_data = true;
        walk_vdi(v);
        v->read_data = false;
        v->mode = PLX_VERIFY_LIVE;
        clear_marks(v, &v->own);
    } else {
        v->error = PLX_ERR_NOMEM;
    }
    free(v->own.extents);
    v->own = own;
}

static bool read_record(struct plx_verify *v, uint32_t slot, struct plx_vdi_record *ret_record)
{
    struct plx_fault why;
    uint8_t which;
    int error = plx_vdi_record_read(v->store, slot, ret_record, &which, &why);

    v->result.bytes += 2 * PLX_BLOCK_SIZE;
    v->record = NULL;
    if (error && error != PLX_ERR_NOT_FOUND) /* F1 */
        plx_verify_find(v, PLX_FINDING_ERROR, "record", plx_vdi_slot_addr(v->store, slot),
                        PLX_NO_VBLOCK, "%s", why.text);
    v->record = error ? NULL : ret_record;
    return !error;
}

static void tell_vouched(struct plx_verify *v)
{
    const struct plx_keyframe *keyframe = &v->record->keyframe;
    uint64_t unknown;

    if (keyframe->vouched == PLX_MAPPED_UNKNOWN)
        return;
    unknown = keyframe->mapped - keyframe->vouched;
    v->result.mapped_blocks += keyframe->mapped;
    v->result.vouched_blocks += keyframe->vouched;
    if (unknown)
        plx_verify_find(
            v, PLX_FINDING_INFO, "vouched", 0, PLX_NO_VBLOCK,
            "virtual disk %s: %llu of its %llu blocks %s no checksum yet: overwritten in "
            "place, so that damage to them does not show",
            v->record->name, (unsigned long long)unknown, (unsigned long long)keyframe->mapped,
            plx_has_or_have(unknown));
}

static void check_vdi(struct plx_verify *v, uint32_t slot)
{
    struct plx_vdi_record record;
    bool settled = false;

    for (unsigned attempt = 0; attempt < PLX_VERIFY_TRIES && !settled && !v->error; attempt++) {
        struct plx_check_result before = v->result;
        uint64_t suspects_dropped = v->suspects_dropped;

        if (!read_record(v, slot, &record) || record.state != PLX_VDI_LIVE) {
            v->record = NULL;
            return;
        }
        v->attempt_errors = 0;
        v->attempting = true;
        v->read_data = v->options->data && !record.owner;
        walk_vdi(v);
        v->read_data = false;
        v->attempting = false;
        settled = !plx_vdi_record_moved(v->store, &record);
        if (!settled) {
            before.bytes = v->result.bytes;
            v->result = before;
            v->suspects_dropped = suspects_dropped;
            drop_kept(v);
        }
    }
    tell_kept(v);
    if (!settled && !v->error) {
        v->result.unsettled++;
        plx_verify_find(v, PLX_FINDING_INFO, "busy", 0, PLX_NO_VBLOCK,
                        "virtual disk %s changes faster than it can be read; check again when it "
                        "is closed or quiet",
                        record.name);
    }
    if (settled)
        tell_vouched(v);
    if (v->options->data && record.owner)
        check_contents(v);
    merge_marks(v, &v->marks, settled);
    v->result.vdis++;
    v->record = NULL;
}

/* What deleted disks still have, and nobody else. */
static void walk_deleted(struct plx_verify *v)
{
    struct plx_slot_scan scan = {0};
    struct plx_vdi_record record;

    v->mode = PLX_VERIFY_DELETED;
    for (uint32_t slot = 0; !v->error && plx_vdi_next_slot(v->store, &scan, &slot); slot++) {
        if (!read_record(v, slot, &record) || record.state != PLX_VDI_DELETED)
            continue;
        walk_vdi(v);
        merge_marks(v, &v->deleted, true);
    }
    v->mode = PLX_VERIFY_LIVE;
    v->record = NULL;
}

/* ---- The second look at suspects ---- */

static int suspects_by_addr(const void *a, const void *b)
{
    const struct plx_suspect *x = a, *y = b;

    return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static int uses_by_addr(const void *a, const void *b)
{
    const struct plx_use *x = a, *y = b;

    if (x->addr != y->addr)
        return x->addr < y->addr ? -1 : 1;
    return (int)y->writable - (int)x->writable; /* who may write comes first */
}

static void gather_uses(struct plx_verify *v)
{
    struct plx_slot_scan scan = {0};
    struct plx_vdi_record record;

    v->use_count = 0;
    qsort(v->suspects, v->suspect_count, sizeof *v->suspects, suspects_by_addr);
    v->mode = PLX_VERIFY_GATHER;
    for (uint32_t slot = 0; !v->error && plx_vdi_next_slot(v->store, &scan, &slot); slot++)
        if (read_record(v, slot, &record) && record.state == PLX_VDI_LIVE)
            walk_vdi(v);
    v->mode = PLX_VERIFY_LIVE;
    v->record = NULL;
    if (v->use_count)
        qsort(v->uses, v->use_count, sizeof *v->uses, uses_by_addr);
}

static bool allocated(struct plx_verify *v, uint64_t addr)
{
    uint64_t blocks = v->store->info.extent_blocks, block = addr % blocks;
    struct plx_extent_page page;
    const uint8_t *bits;

    switch (read_page(v, addr / blocks, (uint32_t)(block / PLX_EXTENT_PAGE_BITS), &page, &bits)) {
    case PAGE_NONE:
        return false;
    case PAGE_BAD:
        return true; /* said before */
    case PAGE_GOOD:
        break;
    }
    block %= PLX_EXTENT_PAGE_BITS;
    return bits[block / 8] >> block % 8 & 1;
}

static void describe(const struct plx_use *use, const char *name, char ret_text[512])
{
    char block[64] = "";

    if (use->vblock != PLX_NO_VBLOCK)
        snprintf(block, sizeof block, " %llu", (unsigned long long)use->vblock);
    snprintf(ret_text, 512, "virtual disk %s (%s%s%s%s%s)", name,
             use->vblock == PLX_NO_VBLOCK ? use->what : "block", block,
             use->snapshot ? ", in a snapshot" : "", use->common ? ", as a common block" : "",
             use->writable ? ", which it may overwrite in place" : "");
}

/* Whether who has the block still is what it was when it was read. */
static bool user_stays(struct plx_verify *v, const struct plx_use *use,
                       struct plx_vdi_record *ret_record)
{
    uint8_t which;

    return plx_vdi_record_read(v->store, use->slot, ret_record, &which, NULL) == 0 &&
           ret_record->generation == use->generation;
}

static bool users_stay(struct plx_verify *v, const struct plx_use *uses, size_t count)
{
    struct plx_vdi_record record;
    bool stay = true;

    for (size_t i = 0; i < count && stay; i++)
        stay = user_stays(v, &uses[i], &record);
    return stay;
}

/* Of those who have a block, ordered: one who does not fit the first; 0: all do. */
static size_t misfit(const struct plx_use *uses, size_t count)
{
    size_t at = 1;

    if (count > 1 && uses[0].writable)
        return 1;
    while (at < count && uses[at].common == uses[0].common)
        at++;
    return at < count ? at : 0;
}

/* The first of those who have a block, in v->uses. */
static size_t first_use(const struct plx_verify *v, uint64_t addr)
{
    size_t low = 0, high = v->use_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (v->uses[middle].addr < addr)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* True when it is settled, one way or the other. */
static bool judge_suspect(struct plx_verify *v, const struct plx_suspect *suspect, bool last)
{
    struct plx_vdi_record record, other;
    char first[512], second[512];
    size_t at = first_use(v, suspect->addr), count = 0, odd;
    const struct plx_use *uses = v->uses + at;
    bool shared, missing, named = false, stay;

    for (; at + count < v->use_count && uses[count].addr == suspect->addr; count++)
        named = named || uses[count].named;
    odd = misfit(uses, count);
    shared = suspect->shared && odd;
    missing = suspect->missing && count && !named && !allocated(v, suspect->addr);
    if (!shared && !missing)
        return true;
    stay = users_stay(v, uses, plx_min_u64(count, USERS_MAX)) &&
           user_stays(v, &uses[odd], &other) && user_stays(v, &uses[0], &record);
    if (!stay && !last)
        return false;
    if (!stay) {
        plx_verify_find(v, PLX_FINDING_INFO, "busy", suspect->addr, PLX_NO_VBLOCK,
                        "a block that does not fit changes hands faster than it can be read; check "
                        "again when the disks are closed or quiet");
        return true;
    }
    v->record = &record;
    describe(&uses[0], record.name, first);
    if (missing)
        plx_verify_find(v, PLX_FINDING_ERROR, "free", suspect->addr, uses[0].vblock,
                        "in use by %s but marked as free", first);
    if (shared) {
        describe(&uses[odd], other.name, second);
        plx_verify_find(v, PLX_FINDING_ERROR, "shared", suspect->addr, uses[0].vblock,
                        "two have one block: %s and %s", first, second);
    }
    v->record = NULL;
    return true;
}

static void look_at_suspects(struct plx_verify *v)
{
    uint64_t errors = v->result.errors;

    for (unsigned round = 0; round < PLX_VERIFY_TRIES && v->suspect_count && !v->error; round++) {
        size_t kept = 0;

        gather_uses(v);
        for (size_t i = 0; i < v->suspect_count && !v->error; i++)
            if (!judge_suspect(v, &v->suspects[i], round + 1 == PLX_VERIFY_TRIES))
                v->suspects[kept++] = v->suspects[i];
        v->suspect_count = kept;
    }
    if (v->suspects_dropped)
        plx_verify_find(v, v->result.errors > errors ? PLX_FINDING_ERROR : PLX_FINDING_INFO,
                        "shared", 0, PLX_NO_VBLOCK, "no room to look at %llu further block%s",
                        (unsigned long long)v->suspects_dropped, plx_plural(v->suspects_dropped));
}

/* ---- Bitmaps against marks ---- */

static void compare_page(struct plx_verify *v, uint64_t number, uint64_t first, uint64_t count,
                         const uint8_t *bits)
{
    uint64_t base = number * v->store->info.extent_blocks;
    uint64_t header = 2ull * plx_extent_pages(v->store->info.extent_blocks);

    for (uint64_t i = 0; i < count; i++) {
        uint64_t addr = base + first + i;
        bool set = bits[i / 8] >> i % 8 & 1;
        bool reached = plx_marked(&v->marks, v->store, PLX_MARK_REACHED, addr);
        bool named = plx_marked(&v->marks, v->store, PLX_MARK_NAMED, addr);

        v->result.used_blocks += set || first + i < header;
        v->result.free_blocks += !set && first + i >= header;
        if (!set && (reached || plx_marked(&v->marks, v->store, PLX_MARK_FOREIGN, addr)))
            v->unguarded[number] = true;
        if (first + i < header || (reached || named) == set || named)
            continue;
        if (set) {
            if (plx_marked(&v->deleted, v->store, PLX_MARK_REACHED, addr) ||
                plx_marked(&v->deleted, v->store, PLX_MARK_NAMED, addr))
                v->leak.deleted++;
            else
                v->leak.other++;
        } else {
            plx_verify_suspect(v, addr, true);
        }
    }
}

/* A block that is in use in an extent that is not. */
static void compare_unused(struct plx_verify *v, uint64_t number)
{
    uint64_t blocks = v->store->info.extent_blocks;

    v->result.free_blocks += blocks;
    v->unguarded[number] = v->unguarded[number] || v->marks.extents[number];
    for (uint64_t i = 0; v->marks.extents[number] && i < blocks; i++)
        if (plx_marked(&v->marks, v->store, PLX_MARK_REACHED, number * blocks + i))
            plx_verify_suspect(v, number * blocks + i, true);
}

static void tell_leaks(struct plx_verify *v, uint64_t held, uint64_t left)
{
    if (v->result.deleted_blocks)
        plx_verify_find(v, PLX_FINDING_INFO, "leak", 0, PLX_NO_VBLOCK,
                        "%llu block%s of deleted disks: to be collected",
                        (unsigned long long)v->result.deleted_blocks,
                        plx_plural(v->result.deleted_blocks));
    if (held)
        plx_verify_find(v, PLX_FINDING_INFO, "leak", 0, PLX_NO_VBLOCK,
                        "%llu block%s %s allocated but unused in extents that an instance holds: "
                        "its reserves, what it left when it died, or common blocks that nobody "
                        "maps any more",
                        (unsigned long long)held, plx_plural(held), plx_is_or_are(held));
    if (left)
        plx_verify_find(v, PLX_FINDING_INFO, "leak", 0, PLX_NO_VBLOCK,
                        "%llu block%s %s allocated but unused in extents that nobody holds: left "
                        "by a crash, common and mapped by nobody any more, or of a disk that the "
                        "store does not hold any more",
                        (unsigned long long)left, plx_plural(left), plx_is_or_are(left));
}

static void compare(struct plx_verify *v)
{
    uint64_t held = 0, left = 0;

    for (uint64_t number = 0; number < v->extents && !v->error; number++) {
        if (v->types[number] == PLX_EXTENT_SYSTEM)
            continue;
        v->leak = (struct plx_leak){.extent = number};
        if (!read_extent(v, number, compare_page))
            compare_unused(v, number);
        v->leak.type = (enum plx_extent_type)v->types[number];
        v->leak.owner = v->owners[number];
        v->result.deleted_blocks += v->leak.deleted;
        v->result.leaked_blocks += v->leak.deleted + v->leak.other;
        held += v->leak.owner ? v->leak.other : 0;
        left += v->leak.owner ? 0 : v->leak.other;
        if (v->options->leak && v->leak.deleted + v->leak.other)
            v->options->leak(v->options->context, &v->leak);
        if (v->options->unguarded &&
            (v->unguarded[number] ||
             (v->options->held && v->owners[number] && v->marks.extents[number])))
            v->options->unguarded(v->options->context, number);
    }
    look_at_suspects(v);
    tell_leaks(v, held, left);
}

/* ---- The whole ---- */

static void check_all(struct plx_verify *v)
{
    struct plx_slot_scan scan = {0};

    v->begun_ns = v->store->env->monotonic_ns(v->store->env);
    check_superblocks(v);
    for (uint64_t number = 0; number < v->extents && !v->error; number++)
        if (v->types[number] != PLX_EXTENT_SYSTEM)
            read_extent(v, number, NULL);
    v->total_bytes += v->result.bytes * 2;
    for (uint32_t slot = 0; !v->error && plx_vdi_next_slot(v->store, &scan, &slot); slot++)
        if (!v->options->leave_out || !v->options->leave_out(v->options->context, slot))
            check_vdi(v, slot);
    walk_deleted(v);
    compare(v);
    v->result.bytes = plx_max_u64(v->result.bytes, 1);
    v->total_bytes = v->result.bytes;
    report_progress(v);
}

static bool marks_init(const struct plx_verify *v, struct plx_marks *marks)
{
    marks->count = v->extents;
    marks->extents = calloc(v->extents, sizeof *marks->extents);
    return marks->extents != NULL;
}

static void marks_done(struct plx_verify *v, struct plx_marks *marks)
{
    if (marks->extents)
        clear_marks(v, marks);
    free(marks->extents);
}

static bool verify_init(struct plx_verify *v)
{
    bool ready = marks_init(v, &v->marks);

    ready = marks_init(v, &v->own) && ready;
    ready = marks_init(v, &v->deleted) && ready;
    v->types = calloc(v->extents, 1);
    v->owners = calloc(v->extents, sizeof *v->owners);
    v->unguarded = calloc(v->extents, sizeof *v->unguarded);
    v->block = malloc(PLX_BLOCK_SIZE);
    v->pages = malloc(2 * PLX_BLOCK_SIZE);
    v->nodes = malloc(2 * PLX_LEVELS_MAX * PLX_BLOCK_SIZE);
    v->segment = malloc(plx_log_segment_bytes(v->store));
    v->data = malloc(PLX_VERIFY_DATA * PLX_BLOCK_SIZE);
    v->expected = calloc(PLX_VERIFY_DATA, sizeof *v->expected);
    v->kept = calloc(PLX_VERIFY_KEPT, sizeof *v->kept);
    v->suspects = calloc(PLX_VERIFY_SUSPECTS, sizeof *v->suspects);
    return ready && v->types && v->owners && v->unguarded && v->block && v->pages && v->nodes &&
           v->segment && v->data && v->expected && v->kept && v->suspects;
}

static void verify_done(struct plx_verify *v)
{
    drop_kept(v);
    marks_done(v, &v->marks);
    marks_done(v, &v->own);
    marks_done(v, &v->deleted);
    free(v->types);
    free(v->owners);
    free(v->unguarded);
    free(v->block);
    free(v->pages);
    free(v->nodes);
    free(v->segment);
    free(v->data);
    free(v->expected);
    free(v->kept);
    free(v->suspects);
    free(v->uses);
}

int plx_store_check(struct plx_store *store, const struct plx_check_options *options,
                    struct plx_check_result *ret_result, struct plx_fault *fault)
{
    struct plx_verify v = {.store = store, .options = options, .extents = store->info.extents};
    int error = 0;

    if (verify_init(&v))
        check_all(&v);
    else
        v.error = PLX_ERR_NOMEM;
    *ret_result = v.result;
    if (v.error)
        error = plx_fault_set(fault, v.error,
                              v.error == PLX_ERR_NOMEM ? "out of memory"
                                                       : "interrupted; not everything was checked");
    verify_done(&v);
    return error;
}
