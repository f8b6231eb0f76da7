/* cache.h - the node cache: verified radix nodes in memory, shared by all VDIs of a store.
 *
 * A node is found by its address. Nodes never change once written (INV-2), so there is no
 * coherency to keep; an address that is freed and used again is dropped by plx_cache_forget.
 * Eviction is by use (clock), with more chances for upper levels: a leaf goes before its parent.
 * A returned pointer is valid until the caller's step function returns.
 */
#ifndef PLX_CACHE_H
#define PLX_CACHE_H

#include <stdint.h>

struct plx_cache;
struct plx_store;
struct plx_task;

/* bytes: memory for nodes, at least 32 of them. NULL when out of memory. */
struct plx_cache *plx_cache_new(struct plx_store *store, uint64_t bytes);
void plx_cache_free(struct plx_cache *cache); /* nothing is being loaded */

/* The node that `entry` (address and checksum) names, at a level (1: leaf).
 * Returns 0 and the node; PLX_WAIT after queueing the task until it is loaded (call again then);
 * or an error: CORRUPT when the store holds something else, IO_READ. */
int plx_cache_get(struct plx_cache *cache, uint64_t entry, unsigned level, struct plx_task *task,
                  const void **ret_node);
/* The node if it is in memory, else NULL, and it is being read unless there is no room: for who
 * will want it soon. Nobody is told when it has arrived, nor of an error: whoever gets it then is.
 */
const void *plx_cache_ahead(struct plx_cache *cache, uint64_t entry, unsigned level);
/* So many at once at most: others need room as well. */
unsigned plx_cache_ahead_max(const struct plx_cache *cache);
/* Adds a node that was just built, under its entry; copies it. */
void plx_cache_put(struct plx_cache *cache, uint64_t entry, unsigned level, const void *node);
void plx_cache_forget(struct plx_cache *cache, uint64_t addr);
/* Synchronous plx_cache_get: runs the loop. */
int plx_cache_get_sync(struct plx_cache *cache, uint64_t entry, unsigned level,
                       const void **ret_node);

#endif
