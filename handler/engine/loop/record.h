/* record.h - the records of virtual disks in a store's table.
 *
 * A record lies in two slots, of which the valid one with the higher generation counts (format.h).
 * All calls are synchronous and run the loop.
 *
 * Order of calls for an owner that finds a record:
 *   1. plx_vdi_record_slots_read()    both slots, and which one counts
 *   2. plx_vdi_record_write_again()   once, before anything is built on it (RECORD-1)
 *   3. plx_vdi_record_write()         for each change, with the caller's record and slot number
 * A reader needs only plx_vdi_record_read().
 */
#ifndef PLX_RECORD_H
#define PLX_RECORD_H

#include "engine/format/format.h"
#include "engine/loop/store.h"

/* Both slots of a record, as they were read. */
struct plx_record_slots {
    uint8_t blocks[2][PLX_BLOCK_SIZE];
    uint8_t slot;  /* the slot that counts */
    bool mirrored; /* the other slot is its mirror copy: it is durable */
};

/* NOT_FOUND: the slot number was never used. CORRUPT: neither of the two slots can be read. */
int plx_vdi_record_slots_read(struct plx_store *store, uint32_t slot,
                              struct plx_record_slots *ret_slots, struct plx_vdi_record *ret_record,
                              struct plx_fault *fault);
int plx_vdi_record_read(struct plx_store *store, uint32_t slot, struct plx_vdi_record *ret_record,
                        uint8_t *ret_slot, struct plx_fault *fault);
/* Makes durable what was read, unless a mirror copy proves that it is. Only the record's owner may
 * call it. */
int plx_vdi_record_write_again(struct plx_store *store, uint32_t slot,
                               const struct plx_record_slots *slots);
/* Writes the record, with the next generation, to the slot that does not count, flushes, and writes
 * the mirror copy. Afterwards *record and *slot say what counts. After an error they say what
 * counted before, but the new state may be on the medium. */
int plx_vdi_record_write(struct plx_store *store, struct plx_vdi_record *record, uint8_t *slot);
/* Whether the record on the store has another generation by now, or cannot be read. */
bool plx_vdi_record_moved(struct plx_store *store, const struct plx_vdi_record *record);

#endif
