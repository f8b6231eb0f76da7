/* record.h - the records of virtual disks in a store's table.
 *
 * A record lies in two slots, of which the newer valid one counts (format.h). Read it, change the
 * copy in memory, write it: the next generation goes into the other slot. Synchronous, all of it.
 */
#ifndef PLX_RECORD_H
#define PLX_RECORD_H

#include "engine/format/format.h"
#include "engine/loop/store.h"

/* Both slots of a record as they were read. */
struct plx_record_slots {
    uint8_t blocks[2][PLX_BLOCK_SIZE];
    uint8_t slot;  /* the newer one */
    bool mirrored; /* in the other: it is durable */
};

/* NOT_FOUND: the slot was never used. CORRUPT: neither can be read. */
int plx_vdi_record_slots_read(struct plx_store *store, uint32_t slot,
                              struct plx_record_slots *ret_slots, struct plx_vdi_record *ret_record,
                              struct plx_fault *fault);
int plx_vdi_record_read(struct plx_store *store, uint32_t slot, struct plx_vdi_record *ret_record,
                        uint8_t *ret_slot, struct plx_fault *fault);
/* Makes what was read durable, for who may write the record. */
int plx_vdi_record_write_again(struct plx_store *store, uint32_t slot,
                               const struct plx_record_slots *slots);
/* Writes the record with the next generation into the other slot and flushes. */
int plx_vdi_record_write(struct plx_store *store, struct plx_vdi_record *record, uint8_t *slot);
/* Whether the record on the store is another one by now (or cannot be read). */
bool plx_vdi_record_moved(struct plx_store *store, const struct plx_vdi_record *record);

#endif
