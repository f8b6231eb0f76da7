/* verify_suspects.c - the second look at suspects (VERIFY-3, VERIFY-6).
 *
 * A suspect may be an accident of time: a disk let the block go, and another one got it, while the
 * check was reading them. So each round walks all live disks again and lists the users of each
 * suspect. A suspect is settled when its users fit after all, or when they do not fit and no user's
 * record has changed since it was read: then it is a finding. Otherwise the next round looks again.
 * This is no struct plx_reading (record.h): a round reads all disks, and does not ask of each disk
 * whether it moved on, but of each suspect whether one of its users did.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/check/verify.h"

static int suspects_by_addr(const void *a, const void *b)
{
    const struct plx_suspect *x = a, *y = b;

    return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static int uses_by_addr(const void *a, const void *b)
{
    const struct plx_use *x = a, *y = b;

    if (x->addr != y->addr)
        return x->addr < y->addr ? -1 : 1;
    if (x->writable != y->writable)
        return x->writable ? -1 : 1;
    return (int)x->inherited - (int)y->inherited; /* see plx_verify_misfits() */
}

void plx_verify_gather_uses(struct plx_verify *v, void (*each)(struct plx_verify *v, size_t from))
{
    struct plx_slot_scan scan = {0};

    v->use_count = 0;
    plx_verify_list_kin(v);
    qsort(v->suspects, v->suspect_count, sizeof *v->suspects, suspects_by_addr);
    v->mode = PLX_VERIFY_GATHER;
    for (uint32_t slot = 0; !v->error && plx_vdi_next_slot(v->store, &scan, &slot); slot++) {
        struct plx_reading reading = {.store = v->store, .slot = slot};
        size_t from = v->use_count;

        if (v->options->leave_out && v->options->leave_out(v->options->context, slot))
            continue;
        if (!plx_verify_begin(v, &reading) || reading.record.state != PLX_VDI_LIVE)
            continue;
        plx_verify_walk_vdi(v);
        if (each && v->use_count > from)
            each(v, from);
    }
    v->mode = PLX_VERIFY_LIVE;
    v->record = NULL;
    if (v->use_count)
        qsort(v->uses, v->use_count, sizeof *v->uses, uses_by_addr);
}

bool plx_verify_allocated(struct plx_verify *v, uint64_t addr)
{
    uint64_t blocks = v->store->info.extent_blocks, block = addr % blocks;
    struct plx_extent_page page;
    const uint8_t *bits;

    switch (plx_verify_read_page(v, addr / blocks, (uint32_t)(block / PLX_EXTENT_PAGE_BITS), &page,
                                 &bits)) {
    case PLX_PAGE_NONE:
        return false;
    case PLX_PAGE_BAD:
        return true; /* pass 2 has reported it; its bits are unknown */
    case PLX_PAGE_GOOD:
        break;
    }
    block %= PLX_EXTENT_PAGE_BITS;
    return bits[block / 8] >> block % 8 & 1;
}

static void describe(const struct plx_use *use, const char *name, char ret_text[512])
{
    char block[64] = "";

    if (use->vblock != PLX_NO_VBLOCK)
        snprintf(block, sizeof block, " %llu", (unsigned long long)use->vblock);
    snprintf(ret_text, 512, "virtual disk %s (%s%s%s%s%s)", name,
             use->vblock == PLX_NO_VBLOCK ? use->what : "block", block,
             use->snapshot ? ", in a snapshot" : "", use->common ? ", as a common block" : "",
             use->writable ? ", which it may overwrite in place" : "");
}

/* Whether the user's record is unchanged since the block was claimed for it. */
static bool user_stays(struct plx_verify *v, const struct plx_use *use,
                       struct plx_vdi_record *ret_record)
{
    uint8_t which;

    if (plx_vdi_record_read(v->store, use->slot, ret_record, &which, NULL))
        return false;
    plx_verify_name(v, ret_record);
    return ret_record->generation == use->generation;
}

static bool users_stay(struct plx_verify *v, const struct plx_use *uses, size_t count)
{
    struct plx_vdi_record record;
    bool stay = true;

    for (size_t i = 0; i < count && stay; i++)
        stay = user_stays(v, &uses[i], &record);
    return stay;
}

/* VERIFY-3, VERIFY-11. The index of a user that conflicts with the first (sorted) user; 0: no
 * conflict. */
static size_t misfit(const struct plx_verify *v, const struct plx_use *uses, size_t count)
{
    size_t at = 1;

    while (at < count && !plx_verify_misfits(v, &uses[0], &uses[at]))
        at++;
    return at < count ? at : 0;
}

/* The index in v->uses of the first user of a block. */
static size_t first_use(const struct plx_verify *v, uint64_t addr)
{
    size_t low = 0, high = v->use_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (v->uses[middle].addr < addr)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Returns true if the suspect is settled. last: this is the last round, so it is settled as busy if
 * users still change. */
static bool judge_suspect(struct plx_verify *v, const struct plx_suspect *suspect, bool last)
{
    struct plx_vdi_record record, other;
    char first[512], second[512];
    size_t at = first_use(v, suspect->addr), count = 0, odd;
    const struct plx_use *uses = v->uses + at;
    bool shared, missing, named = false, stay;

    for (; at + count < v->use_count && uses[count].addr == suspect->addr; count++)
        named = named || uses[count].named;
    odd = misfit(v, uses, count);
    shared = suspect->shared && odd;
    missing = suspect->missing && count && !named && !plx_verify_allocated(v, suspect->addr);
    if (!shared && !missing)
        return true;
    stay = users_stay(v, uses, plx_min_u64(count, USERS_MAX)) &&
           user_stays(v, &uses[odd], &other) && user_stays(v, &uses[0], &record);
    if (!stay && !last)
        return false;
    if (!stay) {
        plx_verify_find(v, PLX_FINDING_INFO, "busy", suspect->addr, PLX_NO_VBLOCK,
                        "could not check this block: its users keep changing; check again while "
                        "the disks are closed or idle");
        return true;
    }
    v->record = &record;
    describe(&uses[0], record.name, first);
    if (missing)
        plx_verify_find(v, PLX_FINDING_ERROR, "free", suspect->addr, uses[0].vblock,
                        "in use by %s but marked as free", first);
    if (shared) {
        describe(&uses[odd], other.name, second);
        plx_verify_find(v, PLX_FINDING_ERROR, "shared", suspect->addr, uses[0].vblock,
                        "one block is used twice: by %s and by %s", first, second);
        plx_verify_tell_shared(v, uses, count);
    }
    v->record = NULL;
    return true;
}

void plx_verify_look_at_suspects(struct plx_verify *v)
{
    uint64_t errors = v->result.errors;

    for (unsigned round = 0; round < PLX_VERIFY_ROUNDS && v->suspect_count && !v->error; round++) {
        size_t kept = 0;

        plx_verify_gather_uses(v, NULL);
        for (size_t i = 0; i < v->suspect_count && !v->error; i++)
            if (!judge_suspect(v, &v->suspects[i], round + 1 == PLX_VERIFY_ROUNDS))
                v->suspects[kept++] = v->suspects[i];
        v->suspect_count = kept;
    }
    if (v->suspects_dropped)
        plx_verify_find(v, v->result.errors > errors ? PLX_FINDING_ERROR : PLX_FINDING_INFO,
                        "shared", 0, PLX_NO_VBLOCK, "no room to look at %llu further block%s",
                        (unsigned long long)v->suspects_dropped, plx_plural(v->suspects_dropped));
}
