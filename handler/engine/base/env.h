/* env.h - the engine's other seam to the world: clock, randomness, extents, events.
 *
 * The engine never calls time(), rand() or the registry. The simulator hands in deterministic
 * functions; the handler and the admin command hand in the real ones (attach.c).
 */
#ifndef PLX_ENV_H
#define PLX_ENV_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/base/units.h"

struct plx_store;

/* What becomes of a snapshot that protection takes (engine.h). */
enum plx_automatic {
    PLX_AUTOMATIC_ORDERED, /* what is submitted from now on is not in it */
    PLX_AUTOMATIC_TAKEN,   /* durable, and whole */
    PLX_AUTOMATIC_DROPPED, /* it failed; if it was ordered, it may have been taken all the same */
};

enum plx_extent_type {
    PLX_EXTENT_UNUSED = 0,
    PLX_EXTENT_SYSTEM = 1,
    PLX_EXTENT_DATA = 2,
    PLX_EXTENT_META = 3,
};

struct plx_env {
    uint64_t (*now_ns)(struct plx_env *env);       /* wall clock, ns since 1970 UTC */
    uint64_t (*monotonic_ns)(struct plx_env *env); /* for latencies */
    /* Since the machine started, suspension included: nobody can set it. boot_id: which start that
     * was, never 0. */
    uint64_t (*boot_ns)(struct plx_env *env);
    uint64_t boot_id;
    /* Whether the wall clock follows a time server, as far as is known. May be NULL: it does not.
     */
    bool (*disciplined)(struct plx_env *env);
    void (*random)(struct plx_env *env, void *bytes, unsigned count);
    /* Asks for one more extent of a type for this host. Must not block: the answer comes through
     * plx_store_extent_granted(), which may be called from inside (one host, a test) or later. */
    void (*extent_wanted)(struct plx_env *env, struct plx_store *store, enum plx_extent_type type);
    /* The header of an extent that was granted is not to be believed: nothing is ever to be
     * allocated in it again, and it is nobody's. error REGISTRY: the store knows more of it than
     * who granted it, whose other grants are in doubt, too. Must not block. May be NULL. */
    void (*extent_refused)(struct plx_env *env, struct plx_store *store, uint64_t extent, int error,
                           const char *why);
    /* Asks for one extent that nobody owns, to free blocks in it; answered in the same way, with
     * type UNUSED. May be NULL: such blocks are left to the collector. */
    void (*extent_needed)(struct plx_env *env, struct plx_store *store, uint64_t extent);
    /* A write found no room. true: it waits while history gives way (plx_vdi_thin(), from
     * elsewhere), until plx_store_room_made(). Must not block. May be NULL. */
    bool (*room_wanted)(struct plx_env *env, struct plx_store *store);
    /* Called first in every turn of the loop; may submit requests and grant extents. May be NULL.
     */
    void (*tick)(struct plx_env *env);
    /* Called by synchronous calls when they wait and no device has anything under way (an extent
     * is being asked for elsewhere). Should block a little. May be NULL. */
    void (*idle)(struct plx_env *env);
    /* Each automatic snapshot, by VDI slot; a test's. seq 0: not known yet, or never. In write-back
     * mode those of batches and writes are as durable as these, and not reported as taken. May be
     * NULL. */
    void (*automatic)(struct plx_env *env, uint32_t slot, enum plx_automatic what, uint64_t seq,
                      uint64_t time_ns);
    /* Something an operator should know. Complete sentence, no newline. */
    void (*event)(struct plx_env *env, int error_code, const char *text);
};

/* The wall clock; never more than what is written may say, for the next who reads it refuses that.
 */
static inline uint64_t plx_env_now_ns(struct plx_env *env)
{
    return plx_min_u64(env->now_ns(env), PLX_TIME_MAX);
}

#endif
