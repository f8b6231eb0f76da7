/* record.h - the records of virtual disks in a store's table.
 *
 * A record lies in two slots, of which the valid one with the higher generation counts (format.h).
 * All calls are synchronous and run the loop.
 *
 * Order of calls for an owner that finds a record:
 *   1. plx_vdi_record_slots_read()    both slots, and which one counts
 *   2. plx_vdi_record_write_again()   once, before anything is built on it (RECORD-1)
 *   3. plx_vdi_record_write()         for each change, with the caller's record and slot number
 * A reader needs only plx_vdi_record_read(), if it does not read what the record leads to. Else:
 *
 *     struct plx_reading reading = {.store = store, .slot = slot};
 *
 *     while (plx_reading_begin(&reading, fault))
 *         plx_reading_end(&reading, read_disk(&reading.record, fault));
 *     return reading.error;
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

#define PLX_READINGS_MAX 8u

/* What a record leads to is read without a lock, once more whenever the record has changed
 * meanwhile (RECORD-2). The caller sets store and slot; all else is zero at first. */
struct plx_reading {
    struct plx_store *store;
    uint32_t slot;
    struct plx_vdi_record record; /* as this reading found it */
    uint8_t which;                /* the slot that holds it, 0 or 1 */
    unsigned count;               /* readings so far; a caller that gets on may set it to 0 */
    bool settled;                 /* the last reading counts, or a caller knows that it does */
    int error;                    /* of the last reading */
};

/* Reads the record for the next reading. false: the last one is settled, or it was the
 * PLX_READINGS_MAX-th, or the record cannot be read (then that is settled, with this error). */
bool plx_reading_begin(struct plx_reading *reading, struct plx_fault *fault);
/* The disk was read, with this result. Returns reading->settled: whether it counts. A caller whose
 * result counts in any case need not ask. */
bool plx_reading_end(struct plx_reading *reading, int error);

#endif
