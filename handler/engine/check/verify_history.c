/* verify_history.c - what the log since a key frame says of blocks and leaves: a hash table of
 * changes, lists of ranges. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/list.h"
#include "engine/check/verify.h"

static size_t slot_of(const struct plx_history *h, uint64_t vblock)
{
    size_t at = (size_t)(vblock * 0x9e3779b97f4a7c15ull >> 20) & (h->capacity - 1);

    while (h->changes[at].used && h->changes[at].vblock != vblock)
        at = (at + 1) & (h->capacity - 1);
    return at;
}

struct plx_change *plx_history_change_at(const struct plx_history *h, uint64_t vblock)
{
    size_t at = h->capacity ? slot_of(h, vblock) : 0;

    return h->capacity && h->changes[at].used ? &h->changes[at] : NULL;
}

static bool grow(struct plx_history *h, size_t capacity, uint64_t after_seq)
{
    struct plx_history bigger = *h;

    bigger.capacity = capacity;
    bigger.count = 0;
    bigger.changes = calloc(capacity, sizeof *bigger.changes);
    if (!bigger.changes)
        return false;
    for (size_t i = 0; i < h->capacity; i++)
        if (h->changes[i].used && h->changes[i].seq > after_seq) {
            bigger.changes[slot_of(&bigger, h->changes[i].vblock)] = h->changes[i];
            bigger.count++;
        }
    free(h->changes);
    *h = bigger;
    return true;
}

struct plx_change *plx_history_put(struct plx_verify *v, struct plx_history *h, uint64_t vblock)
{
    struct plx_change *change;

    if (h->count * 2 >= h->capacity && !grow(h, h->capacity ? h->capacity * 2 : 1024, 0)) {
        v->error = PLX_ERR_NOMEM;
        return NULL;
    }
    change = &h->changes[slot_of(h, vblock)];
    h->count += !change->used;
    change->used = true;
    change->vblock = vblock;
    return change;
}

void plx_history_push(struct plx_verify *v, struct plx_span **spans, size_t *count,
                      size_t *capacity, struct plx_span span)
{
    if (!PLX_LIST_ROOM(*spans, *count, *capacity, 16)) {
        v->error = PLX_ERR_NOMEM;
        return;
    }
    (*spans)[(*count)++] = span;
}

static bool in_spans(const struct plx_span *spans, size_t count, uint64_t at, uint64_t after_seq)
{
    for (size_t i = 0; i < count; i++)
        if (spans[i].seq > after_seq && at - spans[i].first < spans[i].count)
            return true;
    return false;
}

bool plx_history_excludes(const struct plx_history *h, uint64_t vblock)
{
    return plx_history_change_at(h, vblock) || in_spans(h->unmapped, h->unmapped_count, vblock, 0);
}

bool plx_history_tells(const struct plx_history *h, uint64_t vblock, uint64_t *ret_addr,
                       uint32_t *ret_checksum)
{
    const struct plx_change *change = plx_history_change_at(h, vblock);

    if (!change && !plx_history_excludes(h, vblock))
        return false;
    *ret_addr = change ? change->addr : 0;
    *ret_checksum = change ? change->checksum : 0;
    return true;
}

bool plx_history_voided(const struct plx_history *h, uint64_t leaf, uint64_t after_seq)
{
    return h && in_spans(h->voided, h->voided_count, leaf, after_seq);
}

void plx_history_free(struct plx_history *h)
{
    free(h->changes);
    free(h->unmapped);
    free(h->voided);
    *h = (struct plx_history){0};
}

static void drop_spans(struct plx_span *spans, size_t *count, uint64_t seq)
{
    size_t kept = 0;

    for (size_t i = 0; i < *count; i++)
        if (spans[i].seq > seq)
            spans[kept++] = spans[i];
    *count = kept;
}

/* A key frame includes all batches up to seq: drops their changes. */
void plx_history_forget(struct plx_verify *v, struct plx_history *h, uint64_t seq)
{
    if (h->capacity && !grow(h, h->capacity, seq))
        v->error = PLX_ERR_NOMEM;
    drop_spans(h->unmapped, &h->unmapped_count, seq);
    drop_spans(h->voided, &h->voided_count, seq);
}
