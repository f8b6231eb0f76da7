/* cache.h - the node cache: verified radix nodes in memory, shared by all VDIs of a store.
 *
 * A node is found by its address. A node on the store is never overwritten, so the cache needs no
 * coherency protocol. A block that is freed must be forgotten (plx_cache_forget()) before its
 * address is used again; plx_alloc_free() does that. Eviction is by use (clock), and upper levels
 * get more chances, so that a leaf goes before its parent.
 *
 *     if (task->error)                     of the load that this step waited for
 *         return fail(task->error);
 *     if (plx_cache_get(store->cache, entry, level, task, &node) == PLX_WAIT)
 *         return;                          the step is called again, and makes the same call
 *
 * A node that was returned stays valid until the caller's step function returns, or until the
 * caller runs the loop. Copy what you need longer. All calls come from the store's loop.
 */
#ifndef PLX_CACHE_H
#define PLX_CACHE_H

#include <stdint.h>

struct plx_cache;
struct plx_store;
struct plx_task;

/* bytes: memory for nodes; at least 32 nodes are kept. NULL: out of memory. */
struct plx_cache *plx_cache_new(struct plx_store *store, uint64_t bytes);
void plx_cache_free(struct plx_cache *cache); /* nothing may be being loaded */

/* Gets the node that `entry` (address and checksum) names, at a level (1: leaf). Returns 0 and the
 * node, or PLX_WAIT after it has queued the task until the node is loaded. If the load fails, the
 * waiting task has IO_READ, or CORRUPT if the store holds something else, in task->error. */
int plx_cache_get(struct plx_cache *cache, uint64_t entry, unsigned level, struct plx_task *task,
                  const void **ret_node);
/* For a caller who will soon want the node. Returns the node if it is in memory. Otherwise returns
 * NULL and begins to read it, unless there is no room. The later plx_cache_get() reports an error.
 */
const void *plx_cache_ahead(struct plx_cache *cache, uint64_t entry, unsigned level);
/* The most nodes that one caller should read ahead at once: other callers need room as well. */
unsigned plx_cache_ahead_max(const struct plx_cache *cache);
/* Adds a copy of a node that was just built, under its entry. */
void plx_cache_put(struct plx_cache *cache, uint64_t entry, unsigned level, const void *node);
void plx_cache_forget(struct plx_cache *cache, uint64_t addr);
/* plx_cache_get() that runs the loop while it waits. */
int plx_cache_get_sync(struct plx_cache *cache, uint64_t entry, unsigned level,
                       const void **ret_node);

#endif
