/* cache.c - see cache.h.
 *
 * CACHE-1  A READY node was built here, or has passed its checksum and the gate of nodes. So a
 *     walk can follow its entries without checking them again.
 * CACHE-2  A node that is being loaded is never evicted, because the device writes into its memory.
 *     Its waiters are woken exactly once.
 * CACHE-3  An address has at most one node, so that forgetting an address forgets its contents.
 * CACHE-4  If a block is freed while its node is being loaded, the result is not looked at. The
 *     block may hold something else by the time the read completes. Waiters are woken and ask
 *     again. This happens to loads ahead whose caller has given up since.
 * CACHE-5  A load that fails fails only for tasks that asked for the same contents, that is, the
 *     same checksum. A reader that follows an older record (a collection, a list of snapshots) may
 *     ask for what the address held before.
 * Loop: the store's loop.
 */
#include "engine/loop/cache.h"

#include <stdlib.h>
#include <string.h>

#include "engine/loop/store.h"

#define NODES_MIN 32u

enum node_state {
    NODE_EMPTY,
    NODE_LOADING,
    NODE_READY,
};

struct cached_node {
    uint64_t addr;
    uint32_t next; /* the next in its hash chain: index + 1 */
    uint8_t state, level;
    bool stale;      /* its block was freed during the load */
    uint8_t chances; /* times that the clock's hand passes it by */
    /* 24 bits of the contents. LOADING: as they should be; 0: unknown. */
    uint32_t checksum;
    struct plx_queue waiters;
};

struct load {
    struct plx_task task;
    struct plx_join join;
    struct plx_xfer xfer;
    struct iovec iov;
    struct plx_cache *cache;
    uint32_t node;
    uint64_t entry;
    struct load *next_free;
};

#define LOADS 64u

struct plx_cache {
    struct plx_store *store;
    uint32_t count, hand, mask;
    uint32_t *chains; /* index + 1 of the first node of each chain */
    struct cached_node *nodes;
    uint8_t *data;
    struct load loads[LOADS];
    struct load *free_loads;
    /* Tasks that wait for a load structure, an evictable node, or the end of another load. */
    struct plx_queue starved;
};

static uint32_t chain_of(const struct plx_cache *cache, uint64_t addr)
{
    return (uint32_t)(addr * 0x9e3779b97f4a7c15ull >> 40) & cache->mask;
}

static uint8_t *data_of(const struct plx_cache *cache, uint32_t node)
{
    return cache->data + (size_t)node * PLX_BLOCK_SIZE;
}

static uint32_t find(const struct plx_cache *cache, uint64_t addr)
{
    uint32_t at = cache->chains[chain_of(cache, addr)];

    while (at && cache->nodes[at - 1].addr != addr)
        at = cache->nodes[at - 1].next;
    return at;
}

static void unlink_node(struct plx_cache *cache, uint32_t node)
{
    uint32_t *link = &cache->chains[chain_of(cache, cache->nodes[node].addr)];

    while (*link != node + 1)
        link = &cache->nodes[*link - 1].next;
    *link = cache->nodes[node].next;
    cache->nodes[node].state = NODE_EMPTY;
    cache->nodes[node].chances = 0;
}

/* Takes a free slot, or evicts a node by the clock; upper levels get more chances. False: every
 * node is being loaded. */
static bool take_slot(struct plx_cache *cache, uint64_t addr, unsigned level, uint32_t *ret_node)
{
    for (uint64_t tries = 0; tries < (uint64_t)cache->count * (2 * PLX_LEVELS_MAX + 2); tries++) {
        uint32_t at = cache->hand;
        struct cached_node *node = &cache->nodes[at];

        cache->hand = (cache->hand + 1) % cache->count;
        if (node->state == NODE_LOADING) /* CACHE-2 */
            continue;
        if (node->state == NODE_READY && node->chances > 0) {
            node->chances--;
            continue;
        }
        if (node->state == NODE_READY)
            unlink_node(cache, at);
        node->addr = addr;
        node->level = (uint8_t)level;
        node->chances = 0;
        node->stale = false;
        node->next = cache->chains[chain_of(cache, addr)];
        cache->chains[chain_of(cache, addr)] = at + 1;
        *ret_node = at;
        return true;
    }
    return false;
}

struct plx_cache *plx_cache_new(struct plx_store *store, uint64_t bytes)
{
    struct plx_cache *cache = calloc(1, sizeof *cache);
    uint64_t count = plx_max_u64(bytes >> PLX_BLOCK_SHIFT, NODES_MIN);
    uint64_t chains = 64;

    if (!cache)
        return NULL;
    while (chains < count)
        chains <<= 1;
    cache->store = store;
    cache->count = (uint32_t)count;
    cache->mask = (uint32_t)(chains - 1);
    cache->chains = calloc(chains, sizeof *cache->chains);
    cache->nodes = calloc(count, sizeof *cache->nodes);
    cache->data = aligned_alloc(PLX_BLOCK_SIZE, count * PLX_BLOCK_SIZE);
    for (uint32_t i = 0; i < LOADS; i++) {
        cache->loads[i].next_free = cache->free_loads;
        cache->free_loads = &cache->loads[i];
    }
    if (!cache->chains || !cache->nodes || !cache->data) {
        plx_cache_free(cache);
        return NULL;
    }
    return cache;
}

void plx_cache_free(struct plx_cache *cache)
{
    if (!cache)
        return;
    free(cache->chains);
    free(cache->nodes);
    free(cache->data);
    free(cache);
}

/* INV-7, CACHE-1: checksum first, then the gate. */
static int check_loaded(const struct load *load, uint32_t *ret_checksum)
{
    struct plx_cache *cache = load->cache;
    const uint8_t *data = data_of(cache, load->node);
    uint32_t known = plx_entry_checksum(load->entry);
    uint32_t actual = plx_checksum24(plx_crc32c(data, PLX_BLOCK_SIZE));
    const char *why = NULL;

    if (known && actual != known)
        why = "checksum mismatch";
    else if (!plx_format_node_valid(data, cache->nodes[load->node].level, cache->store->addr_limit))
        why = "impossible address";
    if (why) {
        plx_store_event(cache->store, PLX_ERR_CORRUPT, "radix node at block %llu: %s",
                        (unsigned long long)plx_entry_addr(load->entry), why);
        return PLX_ERR_CORRUPT;
    }
    *ret_checksum = actual;
    return 0;
}

static void load_done(struct plx_task *task)
{
    struct load *load = PLX_CONTAINER(task, struct load, task);
    struct plx_cache *cache = load->cache;
    struct cached_node *node = &cache->nodes[load->node];
    struct plx_queue waiters = node->waiters;
    int error = node->stale ? 0 : load->join.error;

    node->waiters = (struct plx_queue){0};
    if (!error && !node->stale)
        error = check_loaded(load, &node->checksum);
    if (error || node->stale) { /* CACHE-4: waiters ask again */
        unlink_node(cache, load->node);
    } else {
        node->state = NODE_READY;
        node->chances = (uint8_t)(2 * node->level - 1);
    }
    load->next_free = cache->free_loads;
    cache->free_loads = load;
    plx_queue_wake(cache->store, &waiters, error);
    plx_queue_wake(cache->store, &cache->starved, 0);
}

static void load_start(struct plx_cache *cache, struct load *load, uint32_t at, uint64_t entry)
{
    load->cache = cache;
    load->node = at;
    load->entry = entry;
    load->task = (struct plx_task){.step = load_done};
    load->join = (struct plx_join){.task = &load->task};
    load->iov = (struct iovec){data_of(cache, at), PLX_BLOCK_SIZE};
    cache->nodes[at].state = NODE_LOADING;
    cache->nodes[at].checksum = plx_entry_checksum(entry);
    plx_store_xfer(cache->store, &load->xfer, PLX_IO_READ, PLX_KIND_NODE, plx_entry_addr(entry), 0,
                   PLX_BLOCK_SIZE, &load->iov, 1, &load->join);
}

/* Returns the node's index + 1; it is READY or LOADING. 0: the cache does not have it. */
static uint32_t find_entry(struct plx_cache *cache, uint64_t entry)
{
    uint32_t at = find(cache, plx_entry_addr(entry)), known = plx_entry_checksum(entry);

    if (!at || cache->nodes[at - 1].state != NODE_READY || !known ||
        cache->nodes[at - 1].checksum == known)
        return at;
    /* The address was freed and used again. */
    unlink_node(cache, at - 1);
    return 0;
}

/* Returns the node's index + 1. 0: there is no room for it now. */
static uint32_t load_entry(struct plx_cache *cache, uint64_t entry, unsigned level)
{
    struct load *load = cache->free_loads;
    uint32_t at;

    cache->store->counters.cache_misses++;
    if (!load || !take_slot(cache, plx_entry_addr(entry), level, &at))
        return 0;
    cache->free_loads = load->next_free;
    load_start(cache, load, at, entry);
    return at + 1;
}

int plx_cache_get(struct plx_cache *cache, uint64_t entry, unsigned level, struct plx_task *task,
                  const void **ret_node)
{
    uint32_t at = find_entry(cache, entry);

    if (at && cache->nodes[at - 1].state == NODE_READY) {
        cache->store->counters.cache_hits++;
        cache->nodes[at - 1].chances = (uint8_t)(2 * cache->nodes[at - 1].level);
        *ret_node = data_of(cache, at - 1);
        return 0;
    }
    if (!at)
        at = load_entry(cache, entry, level);
    if (at && cache->nodes[at - 1].checksum == plx_entry_checksum(entry))
        plx_queue_push(&cache->nodes[at - 1].waiters, task);
    else
        plx_queue_push(&cache->starved, task); /* CACHE-5: asks again after that load */
    return PLX_WAIT;
}

unsigned plx_cache_ahead_max(const struct plx_cache *cache)
{
    return (unsigned)plx_min_u64(cache->count / 8, LOADS / 2);
}

const void *plx_cache_ahead(struct plx_cache *cache, uint64_t entry, unsigned level)
{
    uint32_t at = find_entry(cache, entry);

    if (!at)
        load_entry(cache, entry, level);
    return at && cache->nodes[at - 1].state == NODE_READY ? data_of(cache, at - 1) : NULL;
}

void plx_cache_put(struct plx_cache *cache, uint64_t entry, unsigned level, const void *node)
{
    uint64_t addr = plx_entry_addr(entry);
    uint32_t at;

    plx_cache_forget(cache, addr);
    if (find(cache, addr) || !take_slot(cache, addr, level, &at))
        return; /* it will be read when it is needed */
    cache->nodes[at].state = NODE_READY;
    cache->nodes[at].checksum = plx_entry_checksum(entry);
    cache->nodes[at].chances = (uint8_t)(2 * level - 1);
    memcpy(data_of(cache, at), node, PLX_BLOCK_SIZE);
}

void plx_cache_forget(struct plx_cache *cache, uint64_t addr)
{
    uint32_t at = find(cache, addr);

    if (at && cache->nodes[at - 1].state == NODE_READY)
        unlink_node(cache, at - 1);
    else if (at)
        cache->nodes[at - 1].stale = true;
}

int plx_cache_get_sync(struct plx_cache *cache, uint64_t entry, unsigned level,
                       const void **ret_node)
{
    for (;;) {
        struct plx_waiter waiter = PLX_WAITER;
        int error = plx_cache_get(cache, entry, level, &waiter.task, ret_node);

        if (error != PLX_WAIT)
            return error;
        error = plx_waiter_wait(cache->store, &waiter);
        if (error)
            return error;
    }
}
