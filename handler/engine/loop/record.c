/* record.c - the records of virtual disks, two slots each: read, scanned and written.
 *
 * RECORD-1  A slot is overwritten only while the other slot is durable. That the other slot can be
 *     read does not prove this: the flush of the instance that wrote it may have failed. Its mirror
 *     copy proves it. Without a mirror copy, plx_vdi_record_write_again() rewrites what was read
 *     where it lies and flushes, and only then the other slot may be written.
 * RECORD-2  Nodes and log that a record leads to are reused only after another record is in force.
 *     So what was read of them without a lock counts if the record is unchanged afterwards: its
 *     generation is the same. Otherwise they may look damaged, or as if the log ended there.
 * Loop: the store's loop. Calls are synchronous; the loop runs while they wait.
 * Crash story: a torn slot leaves the other slot, which holds the state before or the same state.
 *   format.h has the steps ("Two slots").
 */
#include "engine/loop/record.h"

#include <string.h>

#define SCAN_SLOTS 16u /* 128 KiB, on the stack */

static bool block_is_zero(const uint8_t *block)
{
    return block[0] == 0 && memcmp(block, block + 1, PLX_BLOCK_SIZE - 1) == 0;
}

int plx_vdi_record_slots_read(struct plx_store *store, uint32_t slot,
                              struct plx_record_slots *ret_slots, struct plx_vdi_record *ret_record,
                              struct plx_fault *fault)
{
    uint8_t(*blocks)[PLX_BLOCK_SIZE] = ret_slots->blocks;
    struct plx_vdi_record record, best = {0};
    struct plx_fault why = {0};
    struct plx_newest newest = {0};
    int error;

    if (slot >= plx_vdi_slot_count(store))
        return plx_fault_set(fault, PLX_ERR_CORRUPT,
                             "VDI slot %u is beyond the store's table (it has %u); 'parallax store "
                             "rebuild-registry' rebuilds its registry from the store",
                             slot, plx_vdi_slot_count(store));
    error = plx_store_read_sync(store, PLX_KIND_ADMIN, plx_vdi_slot_addr(store, slot), blocks,
                                sizeof ret_slots->blocks);
    if (error)
        return plx_fault_set(fault, error, "VDI slot %u: %s", slot, plx_error_text(error));
    for (uint8_t i = 0; i < 2; i++) {
        if (plx_format_vdi_record_decode(blocks[i], &store->info.id, slot, store->addr_limit,
                                         &record, &why) ||
            !plx_newest_take(&newest, record.generation))
            continue;
        best = record;
        ret_slots->slot = i;
    }
    /* Creation writes slot A first. If slot B is zero, the record was never written, or its first
     * write was torn. */
    if (!newest.found && block_is_zero(blocks[1]))
        return plx_fault_set(fault, PLX_ERR_NOT_FOUND, "VDI slot %u was never used", slot);
    if (!newest.found)
        return plx_fault_set(fault, PLX_ERR_CORRUPT,
                             "VDI slot %u: both copies of the record are damaged (%s)", slot,
                             why.text);
    ret_slots->mirrored = plx_newest_mirrored(&newest);
    *ret_record = best;
    return 0;
}

int plx_vdi_record_read(struct plx_store *store, uint32_t slot, struct plx_vdi_record *ret_record,
                        uint8_t *ret_slot, struct plx_fault *fault)
{
    struct plx_record_slots slots;
    int error = plx_vdi_record_slots_read(store, slot, &slots, ret_record, fault);

    if (!error)
        *ret_slot = slots.slot;
    return error;
}

/* How many records, from this one on, lie side by side on the volume. */
static uint32_t slots_in_a_row(const struct plx_store *store, uint32_t slot)
{
    uint32_t most = (uint32_t)plx_min_u64(SCAN_SLOTS, plx_vdi_slot_count(store) - slot), count = 1;

    while (count < most &&
           plx_vdi_slot_addr(store, slot + count) == plx_vdi_slot_addr(store, slot) + 2 * count)
        count++;
    return count;
}

static void scan_slots(struct plx_store *store, struct plx_slot_scan *scan, uint32_t slot)
{
    uint32_t count = slots_in_a_row(store, slot);
    uint8_t blocks[2 * SCAN_SLOTS][PLX_BLOCK_SIZE];

    *scan = (struct plx_slot_scan){slot, slot + count, UINT64_MAX};
    if (plx_store_read_sync(store, PLX_KIND_ADMIN, plx_vdi_slot_addr(store, slot), blocks,
                            (size_t)count * sizeof blocks[0] * 2))
        return;
    scan->used = 0;
    for (uint32_t i = 0; i < 2 * count; i++)
        if (!block_is_zero(blocks[i]))
            scan->used |= 1ull << i / 2;
}

bool plx_vdi_next_slot(struct plx_store *store, struct plx_slot_scan *scan, uint32_t *slot)
{
    for (; *slot < plx_vdi_slot_count(store); ++*slot) {
        if (*slot >= scan->end)
            scan_slots(store, scan, *slot);
        if (scan->used >> (*slot - scan->first) & 1)
            return true;
    }
    return false;
}

/* RECORD-1 */
int plx_vdi_record_write_again(struct plx_store *store, uint32_t slot,
                               const struct plx_record_slots *slots)
{
    struct plx_flush_mark mark = plx_flush_mark(store);
    int error;

    if (slots->mirrored)
        return 0;
    error =
        plx_store_write_sync(store, PLX_KIND_ADMIN, plx_vdi_slot_addr(store, slot) + slots->slot,
                             slots->blocks[slots->slot], PLX_BLOCK_SIZE);
    return error ? error : plx_store_flush_sync(store, mark);
}

static int write_slot(struct plx_store *store, const struct plx_vdi_record *record, uint8_t slot)
{
    uint8_t block[PLX_BLOCK_SIZE];

    plx_format_vdi_record_encode(&store->info.id, record, block);
    return plx_store_write_sync(store, PLX_KIND_ADMIN,
                                plx_vdi_slot_addr(store, record->slot) + slot, block,
                                PLX_BLOCK_SIZE);
}

int plx_vdi_record_write(struct plx_store *store, struct plx_vdi_record *record, uint8_t *slot)
{
    struct plx_vdi_record next = *record;
    struct plx_flush_mark mark = plx_flush_mark(store);
    int error;

    next.generation = plx_generation_next(next.generation);
    if (next.generation > PLX_COUNTER_MAX)
        return PLX_ERR_CORRUPT;                  /* no program would read it */
    error = write_slot(store, &next, *slot ^ 1); /* RECORD-1 */
    if (!error)
        error = plx_store_flush_sync(store, mark);
    if (error)
        return error;
    *record = next;
    *slot ^= 1;
    next.generation--;
    write_slot(store, &next, *slot ^ 1); /* if this fails, one good copy is left */
    return 0;
}

bool plx_vdi_record_moved(struct plx_store *store, const struct plx_vdi_record *record)
{
    struct plx_vdi_record now;
    uint8_t which;

    return plx_vdi_record_read(store, record->slot, &now, &which, NULL) != 0 ||
           now.generation != record->generation;
}

bool plx_reading_begin(struct plx_reading *reading, struct plx_fault *fault)
{
    if (reading->settled || reading->count == PLX_READINGS_MAX)
        return false;
    reading->count++;
    reading->error = plx_vdi_record_read(reading->store, reading->slot, &reading->record,
                                         &reading->which, fault);
    reading->settled = reading->error != 0;
    return !reading->settled;
}

/* RECORD-2. No other error comes of a disk that moves on. */
bool plx_reading_end(struct plx_reading *reading, int error)
{
    bool doubtful = !error || error == PLX_ERR_CORRUPT || error == PLX_ERR_NOT_FOUND;

    reading->error = error;
    reading->settled = !doubtful || !plx_vdi_record_moved(reading->store, &reading->record);
    return reading->settled;
}
