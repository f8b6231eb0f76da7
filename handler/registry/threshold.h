/* threshold.h - soft limits: how full a store or a disk may get before operators and initiators are
 * told.
 *
 *   of        what is compared with the limit
 *   a store   what data cannot be written to any more: the size minus what is free for data
 *   a disk    the blocks that hold data
 *
 * The registry keeps a limit as the policy "warn-at", as "80%" or as a number of bytes. It is kept
 * nowhere else, so a rebuilt registry has it only if the old one could be read.
 */
#ifndef PLX_THRESHOLD_H
#define PLX_THRESHOLD_H

#include "registry/registry.h"

#define PLX_POLICY_WARN_AT "warn-at"

struct plx_threshold {
    unsigned percent; /* 1 to 99, of the size; 0: `bytes` is the limit */
    uint64_t bytes;   /* 0, with percent 0: there is no limit */
};

#define PLX_THRESHOLD_TEXT 24

/* Reads "80%" or a number of bytes. false: the text is neither. */
bool plx_threshold_parse(const char *text, struct plx_threshold *ret_threshold);
const char *plx_threshold_text(const struct plx_threshold *threshold,
                               char ret_text[PLX_THRESHOLD_TEXT]);
/* The limit in bytes, of a store or disk of this size; 0: there is no limit. */
uint64_t plx_threshold_at(const struct plx_threshold *threshold, uint64_t size_bytes);
/* Whether the limit counts as crossed. was: the previous answer. Once crossed, it stays crossed
 * until use is a twentieth below the limit, so that use near the limit causes one warning only. */
bool plx_threshold_is_crossed(uint64_t at_bytes, uint64_t used_bytes, bool was);

/* The limit of a store, and of a disk by its id; all zero if there is none. Codes as
 * plx_registry_policy_get(), except NOT_FOUND. */
int plx_threshold_load_store(struct plx_registry *registry, int64_t store,
                             struct plx_threshold *ret_threshold);
int plx_threshold_load_vdi(struct plx_registry *registry, const char *vdi,
                           struct plx_threshold *ret_threshold);
/* Keeps the limit; one that is all zero removes the row. */
int plx_threshold_keep_store(struct plx_registry *registry, int64_t store,
                             const struct plx_threshold *threshold);
int plx_threshold_keep_vdi(struct plx_registry *registry, const char *vdi,
                           const struct plx_threshold *threshold);

#endif
