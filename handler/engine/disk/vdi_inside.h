/* vdi_inside.h - what vdi.c, vdi_create.c, instant.c and listing.c share. Synchronous. */
#ifndef PLX_VDI_INSIDE_H
#define PLX_VDI_INSIDE_H

#include "engine/disk/vdi.h"
#include "engine/log/replay.h"

/* Fills in the fault for a record that could not be written; returns the error. */
int plx_vdi_cannot_write(const char *name, int error, struct plx_fault *fault);

/* instant.c: the key frame that the log names, or the oldest one that is kept (KEYFRAME-3). */
struct plx_keyframe plx_vdi_kept_keyframe(const struct plx_vdi_record *record,
                                          const struct plx_keyframe *named);

/* A disk in memory that is not opened yet (NULL: out of memory), and its end. */
void plx_vdi_record_info(const struct plx_vdi_record *record, struct plx_vdi_info *ret);
struct plx_vdi *plx_vdi_new(struct plx_store *store, const struct plx_vdi_record *record,
                            uint8_t record_slot);
void plx_vdi_free(struct plx_vdi *vdi);

#endif
