/* attach_ring.h - virtual disks that use this host's write-back ring (engine/ring/ringed.h).
 *
 * The registry keeps each disk's setting. An attach with options.rings follows it: it opens the
 * ring with the first disk that is to use it, and closes it behind the last one. Every other attach
 * drains a disk's records to the store while it opens the disk, and goes on without the ring.
 *
 *     rc = plx_attach_vdi_open(attach, "web", NULL, &how, &vdi, &fault);    by its setting
 *     rc = plx_attach_ring_use(attach, vdi, PLX_RING_ON, &fault);           or by this call
 *     if (plx_attach_ring_info(attach, vdi, &info)) ...                     how far it is
 *     rc = plx_attach_vdi_close(attach, vdi);           drains; what cannot be drained stays there
 *
 * Threads and errors: those of attach.h.
 */
#ifndef PLX_ATTACH_RING_H
#define PLX_ATTACH_RING_H

#include "attach/attach.h"
#include "engine/ring/ringed.h"

/* A disk's setting. AUTO: while the store is slower than usual (engine/ring/ringed_auto.c). */
enum plx_ring_setting { PLX_RING_OFF, PLX_RING_ON, PLX_RING_AUTO };
extern const char *const plx_ring_setting_words[]; /* by that; ends with NULL */

#define PLX_POLICY_RING "ring" /* the registry's name of it */

/* The setting of a disk, by its id; no row, or a word that is unknown: off. Codes
 * as plx_registry_policy_get(), except NOT_FOUND. */
int plx_ring_setting_load(struct plx_registry *registry, const char *vdi,
                          enum plx_ring_setting *ret_use);
int plx_ring_setting_keep(struct plx_registry *registry, const char *vdi,
                          enum plx_ring_setting use);

/* Has a disk that is open with options.rings use the ring so from now on. ON: the ring acknowledges
 * when it returns. OFF: draining has begun, and goes on with the loop. NOT_FOUND: this host has no
 * ring for the store. */
int plx_attach_ring_use(struct plx_attach *attach, struct plx_vdi *vdi, enum plx_ring_setting use,
                        struct plx_fault *fault);
/* Lets go of the ring if it was turned off for the disk for good, and nothing of it is left there.
 */
void plx_attach_ring_let_go(struct plx_attach *attach, struct plx_vdi *vdi);
/* BUSY: a virtual disk's newest writes may lie on this host's ring. */
int plx_attach_ring_refuse(struct plx_attach *attach, struct plx_fault *fault);
/* False: the disk has no ring. */
bool plx_attach_ring_info(struct plx_attach *attach, struct plx_vdi *vdi,
                          struct plx_ringed_info *ret_info);

#endif
