/* verify_expected.c - whether an open disk still has a block where it was when its tree was read.
 * For a block of the newest state, the newest tree and the log behind it tell. A snapshot's block
 * counts as still there if history begins where it did.
 *
 * Loop: the store's. Crash story: this file only reads.
 */
#include "engine/check/verify.h"

int plx_verify_look_up(struct plx_verify *v, const struct plx_vdi_record *record, uint64_t vblock,
                       unsigned level, uint64_t *ret_entry)
{
    uint64_t entry = record->keyframe.root;
    uint8_t node[PLX_BLOCK_SIZE];

    for (unsigned at = record->keyframe.levels; at > level && plx_entry_addr(entry); at--) {
        uint32_t known = plx_entry_checksum(entry);

        if (plx_entry_addr(entry) >= v->store->addr_limit ||
            plx_verify_read(v, PLX_KIND_NODE, plx_entry_addr(entry), node, sizeof node) ||
            (known && plx_checksum24(plx_crc32c(node, sizeof node)) != known))
            return PLX_ERR_CORRUPT;
        entry =
            plx_node_entry(node, vblock >> ((at - 1) * PLX_NODE_SHIFT) & (PLX_NODE_ENTRIES - 1));
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
    } else if (plx_verify_look_up(v, record, expected->vblock, 0, &entry) == 0) {
        addr = plx_entry_addr(entry);
        checksum = plx_entry_checksum(entry);
    }
    plx_history_free(&behind);
    return addr == expected->addr && checksum == expected->checksum;
}

bool plx_verify_still_expected(struct plx_verify *v, const struct plx_expected *expected)
{
    struct plx_reading reading = {.store = v->store, .slot = v->record->slot};
    const struct plx_vdi_record *record = &reading.record;
    bool holds = true;

    while (holds && plx_reading_begin(&reading, NULL)) {
        holds = record->state == PLX_VDI_LIVE && plx_uuid_equal(&record->id, &v->record->id);
        if (holds && expected->live)
            holds = says_the_same(v, record, expected);
        else if (holds) /* a snapshot that went may have freed the block */
            holds = record->oldest.batch_seq == v->record->oldest.batch_seq;
        plx_reading_end(&reading, 0);
    }
    return holds;
}
