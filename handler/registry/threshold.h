/* threshold.h - soft limits: how full a store or a virtual disk may get before operators and
 * initiators are told.
 *
 * Of a store counts what data cannot be written to any more (its size without what is free for
 * data); of a virtual disk the blocks that hold data. The registry keeps them among the policies,
 * as "80%" or a number of bytes; they are nowhere else, and a rebuilt registry has none.
 */
#ifndef PLX_THRESHOLD_H
#define PLX_THRESHOLD_H

#include "registry/registry.h"

#define PLX_POLICY_WARN_AT "warn-at"

struct plx_threshold {
    unsigned percent; /* 1 to 99, of the size; 0: bytes count */
    uint64_t bytes;   /* 0: there is no limit */
};

#define PLX_THRESHOLD_TEXT 24

/* "80%" or a number of bytes. false: it is neither. */
bool plx_threshold_parse(const char *text, struct plx_threshold *ret_threshold);
const char *plx_threshold_text(const struct plx_threshold *threshold,
                               char ret_text[PLX_THRESHOLD_TEXT]);
/* In bytes, of something so large; 0: there is no limit. */
uint64_t plx_threshold_at(const struct plx_threshold *threshold, uint64_t size_bytes);
/* Whether it is crossed now, when it was or was not before: it counts as left only when a
 * twentieth less is used, so that who stays near it is told once. */
bool plx_threshold_is_crossed(uint64_t at_bytes, uint64_t used_bytes, bool was);

/* Those of a store and of a virtual disk, by its id; none: all zero. Codes as
 * plx_registry_policy_get(), but for NOT_FOUND. */
int plx_threshold_load_store(struct plx_registry *registry, int64_t store,
                             struct plx_threshold *ret_threshold);
int plx_threshold_load_vdi(struct plx_registry *registry, const char *vdi,
                           struct plx_threshold *ret_threshold);
/* None: removes it. */
int plx_threshold_keep_store(struct plx_registry *registry, int64_t store,
                             const struct plx_threshold *threshold);
int plx_threshold_keep_vdi(struct plx_registry *registry, const char *vdi,
                           const struct plx_threshold *threshold);

#endif
