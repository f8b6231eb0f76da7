/* numbers.h - a volume that went back to an older state is found when the store is opened.
 *
 * Each further volume of a store has a number, and the home page on volume 0 repeats it. The number
 * rises when the first process opens the store for writing, when the last one closes it, and when
 * the store has grown. The rules NUMBERS-1 to NUMBERS-9 are numbers.c's.
 *
 * Threads: the caller's, on the loop or without one.
 */
#ifndef PLX_NUMBERS_H
#define PLX_NUMBERS_H

#include "attach/known.h"
#include "engine/engine.h"
#include "registry/tenancy.h"

struct plx_attach;

/* Of a store that was just opened. CORRUPT: a volume went back; the fault says which one and what
 * to do. */
int plx_numbers_opened(struct plx_attach *a, struct plx_fault *fault);
/* The same of volumes that nobody has opened as a store, for those who only look at them: volume 0,
 * and further ones, which need not be all. named: as 'store rebuild-registry' takes the store.
 * *ret_volume: the place in `devices` of the one that went back. */
int plx_numbers_look(struct plx_device *const *devices, unsigned count,
                     const struct plx_uuid *store, const char *name, const char *named,
                     unsigned *ret_volume, struct plx_fault *fault);
/* Then, of an opening for writing, before anything else is written; it also shares PLX_BYTE_OPEN of
 * the further volumes (VOLUMES-6). */
int plx_numbers_open(struct plx_attach *a, struct plx_fault *fault);
/* Before the store is closed. What fails is an event. */
void plx_numbers_closing(struct plx_attach *a);
/* For a volume that is about to join (struct plx_grow); then, when volume 0 counts it. */
int plx_numbers_joining(struct plx_attach *a, uint64_t *ret_number, struct plx_fault *fault);
int plx_numbers_joined(struct plx_attach *a, struct plx_fault *fault);

/* For a rebuild, which takes the volumes as they are. The first of those that went back; false:
 * none, or nobody can tell. */
bool plx_numbers_went_back(const struct plx_store *store, unsigned *ret_volume);
/* All get a number that none of them had. */
int plx_numbers_renew(const struct plx_store *store, struct plx_tenancy *tenancy,
                      struct plx_fault *fault);

/* Whether a further volume, which volume 0 (`first`) does not count, has a number that proves that
 * volume 0 went back. */
bool plx_numbers_is_ahead(struct plx_device *first, struct plx_device *further,
                          const struct plx_uuid *store);

#endif
