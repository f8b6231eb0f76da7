/* env.h - the engine's other seam to the world: clocks, randomness, extents, events.
 *
 * The engine makes no call of time(), rand() or the registry. The simulator hands in deterministic
 * functions; the handler and the admin command hand in the real ones (attach.c). The engine calls
 * these functions from its loop. They must not make synchronous engine calls. The struct is the
 * caller's and outlives the store.
 *
 * How an extent is asked for:
 *   1. The engine calls extent_wanted(type), or extent_needed(number), once until it is answered.
 *   2. The caller claims an extent in the registry, on another thread if that may block.
 *   3. It answers with plx_store_extent_granted(), from the loop's thread.
 *   4. The engine reads the header. If the header contradicts the grant: extent_refused().
 */
#ifndef PLX_ENV_H
#define PLX_ENV_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/base/units.h"

struct plx_store;
struct plx_uuid;
struct plx_witness;

/* The fate of an automatic snapshot, which protection takes (engine.h). */
enum plx_automatic {
    PLX_AUTOMATIC_ORDERED, /* later requests are not in it */
    PLX_AUTOMATIC_TAKEN,   /* it is durable and complete */
    PLX_AUTOMATIC_DROPPED, /* it failed; if it was ordered, it may exist all the same */
};

enum plx_extent_type {
    PLX_EXTENT_UNUSED = 0,
    PLX_EXTENT_SYSTEM = 1,
    PLX_EXTENT_DATA = 2,
    PLX_EXTENT_META = 3,
};

struct plx_env {
    uint64_t (*now_ns)(struct plx_env *env);       /* wall clock, ns since 1970 UTC */
    uint64_t (*monotonic_ns)(struct plx_env *env); /* for durations */
    /* Time since the machine started, suspension included; nobody can set it. boot_id tells one
     * start from another and is never 0. */
    uint64_t (*boot_ns)(struct plx_env *env);
    uint64_t boot_id;
    /* Whether the wall clock follows a time server, as far as the kernel says. NULL: it does not.
     */
    bool (*disciplined)(struct plx_env *env);
    void (*random)(struct plx_env *env, void *bytes, unsigned count);
    /* Asks for one more extent of a type for this instance. Must not block. The answer is
     * plx_store_extent_granted(), from within this call (one host, a test) or later. */
    void (*extent_wanted)(struct plx_env *env, struct plx_store *store, enum plx_extent_type type);
    /* The header of a granted extent is not to be believed: nobody may ever allocate from it again,
     * and nobody owns it. With error REGISTRY, the store knows more of the extent than the registry
     * does, so the registry's other grants are in doubt as well. Must not block. May be NULL. */
    void (*extent_refused)(struct plx_env *env, struct plx_store *store, uint64_t extent, int error,
                           const char *why);
    /* Asks for one extent that nobody owns, in order to free blocks in it. Answered in the same
     * way, with type UNUSED. NULL: such blocks are left to a collection. */
    void (*extent_needed)(struct plx_env *env, struct plx_store *store, uint64_t extent);
    /* A write found no room. True: the write waits while the caller lets history go
     * (plx_vdi_thin(), from elsewhere), until plx_store_room_made(). Must not block. May be NULL.
     */
    bool (*room_wanted)(struct plx_env *env, struct plx_store *store);
    /* Whether a write or flush that came at since_ns, by boot_ns, must not go to a device of the
     * store yet (TICK-6). Asked for each of them just before it goes, so what it says is true of
     * that moment: the process may have been paused since it was asked last. Must not block. NULL:
     * all go. */
    bool (*writes_wait)(struct plx_env *env, uint64_t since_ns);
    /* Called first in every turn of the loop. May submit requests and grant extents. May be NULL.
     */
    void (*tick)(struct plx_env *env);
    /* Called by a waiting synchronous call where it must not sleep on a device: none has anything
     * under way, because the call waits for an extent; what is to be written waits (TICK-6); or a
     * device hangs (TICK-7). Should block for a moment. May be NULL. */
    void (*idle)(struct plx_env *env);
    /* Reports each automatic snapshot, by VDI slot; for tests. seq 0: not known yet, or there is
     * none. In write-back mode, the snapshot of a batch or write is only as durable as that batch
     * or write, so TAKEN is not reported for it. May be NULL. */
    void (*automatic)(struct plx_env *env, uint32_t slot, enum plx_automatic what, uint64_t seq,
                      uint64_t time_ns);
    /* What a disk knows of the clocks has changed, or its first snapshot is about to be taken:
     * whoever keeps its witness has to keep it before a crash comes (WITNESS-9). Must not block for
     * long. NULL: nobody keeps it. */
    void (*witness_changed)(struct plx_env *env, const struct plx_uuid *vdi,
                            const struct plx_witness *witness);
    /* Something an operator should know. text: a complete sentence without a newline. */
    void (*event)(struct plx_env *env, int error_code, const char *text);
};

/* The wall clock, at most PLX_TIME_MAX: the next reader of a later time would refuse it as damage.
 */
static inline uint64_t plx_env_now_ns(struct plx_env *env)
{
    return plx_min_u64(env->now_ns(env), PLX_TIME_MAX);
}

#endif
