/* spans.c - see spans.h.
 *
 * How the registry gets a span, and what a crash leaves:
 *
 *   step                                              a crash afterwards leaves
 *   1 one transaction makes never used extents the    system extents that no superblock names; the
 *     system's (SPANS-1)                              next growth takes them
 *   2 their headers are read (SPANS-4)                the same
 *   3 under SQLite's EXCLUSIVE lock the superblock    one of its two slots counts (GROW-2), and all
 *     gets the span (SPANS-2)                         readers agree which
 *
 * Nothing in the new span becomes durable before the superblock that names the span: each process
 * that begins to use the span flushes the device first (REGION-9).
 *
 * SPANS-1  Extents become the system's in the registry, durably, before the superblock names them.
 *     From then on no claim gets them. They were never used before (EXTENTS-2), so nothing refers
 *     to them and nobody writes there.
 * SPANS-2  The superblock gets its span while this process alone has the registry, under SQLite's
 *     EXCLUSIVE lock. So nobody works with the old spans, and no journal waits to be rolled back.
 *     Every later connection reads the superblock under a lock of its own (REGION-9), whichever
 *     program it is and however long it has had the registry open.
 * SPANS-3  A registry that is rebuilt (rebuild.c) has as system extents what the superblock
 *     names, and no others. So SPANS-1 holds there, too.
 * SPANS-4  That the extents were never used is only what the registry says, and the registry may
 *     have lost a write. So their headers are read before the superblock names them. A header that
 *     was ever written puts the store in doubt. An extent whose header cannot be believed is
 *     sealed, as where extents are claimed (ATTACH-10), and the extents around it are taken. One
 *     call does so at most three times.
 * SPANS-5  One step takes at most as many extents as the registry has room for rows in its present
 *     spans. A growth by at least half of the present size (GROW-7) always has that room, except
 *     for what SPANS-4 or a crash has left.
 * Threads: the caller's, who has the right to grow (GROWTH-1).
 * Crash story: the table above.
 */
#include "registry/spans.h"

#include <stdlib.h>

#define ROWS_PER_PAGE 16 /* extents per page, in table and indexes; twice as many would fit */

struct addition {
    struct plx_store *store;
    struct plx_registry_range run;
};

/* The first consecutive system extents that the superblock does not name, left by a crash or by
 * SPANS-4. 0 extents: there are none. */
static int find_left(struct plx_registry *registry, int64_t store_row,
                     const struct plx_store *store, struct plx_registry_range *ret_run)
{
    struct plx_registry_extent *list;
    size_t count;
    int error = plx_registry_extent_system(registry, store_row, &list, &count);

    if (error)
        return error;
    *ret_run = (struct plx_registry_range){0};
    for (size_t i = 0; i < count; i++) {
        if (plx_store_extent_is_system(store, list[i].no))
            continue;
        if (ret_run->extents && list[i].no != ret_run->first + ret_run->extents)
            break;
        if (!ret_run->extents++)
            ret_run->first = list[i].no;
    }
    free(list);
    return 0;
}

static int doubt(struct plx_registry *registry, int64_t store_row, uint64_t no,
                 struct plx_fault *fault)
{
    int error = plx_fault_set(fault, PLX_ERR_REGISTRY,
                              "extent %llu was used, and the registry does not know: the registry "
                              "lost a write; 'parallax store rebuild-registry' rebuilds it from "
                              "the store",
                              (unsigned long long)no);

    plx_registry_doubt(registry, store_row, fault ? fault->text : plx_error_text(error));
    return error;
}

/* SPANS-4. *ret_no: after CORRUPT, the extent whose header cannot be believed. */
static int check_unused(struct plx_registry *registry, int64_t store_row, struct plx_store *store,
                        const struct plx_registry_range *run, uint64_t *ret_no,
                        struct plx_fault *fault)
{
    struct plx_extent_info info;
    struct plx_fault why;

    for (uint64_t no = run->first; no < run->first + run->extents; no++) {
        int error = plx_store_extent_read(store, no, &info, &why);

        *ret_no = no;
        if (error)
            return plx_fault_set(fault, error, "%.200s; the registry's space stays as it was",
                                 why.text);
        if (info.type != PLX_EXTENT_UNUSED)
            return doubt(registry, store_row, no, fault);
    }
    return 0;
}

/* SPANS-2 */
static int add_span(void *context, struct plx_fault *fault)
{
    const struct addition *addition = context;

    return plx_store_add_registry_span(addition->store, addition->run.first, addition->run.extents,
                                       fault);
}

/* SPANS-5: lowers *most, but not below `least`. */
static int limit(struct plx_registry *registry, uint64_t least, uint64_t *most)
{
    uint64_t used, pages;
    int error = plx_registry_room(registry, &used, &pages);

    if (!error && pages) /* else the rows lie elsewhere */
        *most = plx_min_u64(*most, plx_max_u64(least, (pages - used) * ROWS_PER_PAGE));
    return error;
}

/* SPANS-1 */
static int find_run(struct plx_registry *registry, int64_t store_row, const struct plx_store *store,
                    uint64_t least, uint64_t most, struct plx_registry_range *ret_run)
{
    int error = limit(registry, least, &most);

    if (!error)
        error = find_left(registry, store_row, store, ret_run);
    if (!error && !ret_run->extents)
        error = plx_registry_extent_reserve(registry, store_row, least, most, ret_run);
    return error;
}

int plx_spans_grow(struct plx_registry *registry, int64_t store_row, struct plx_store *store,
                   struct plx_grown *grown, struct plx_fault *fault)
{
    struct addition addition = {.store = store};
    uint64_t least, most, no;
    int error = 0;

    plx_store_registry_due(store, &least, &most);
    while (!error && most) {
        error = find_run(registry, store_row, store, least, most, &addition.run);
        if (error)
            return plx_registry_fault(registry, error, fault);
        error = check_unused(registry, store_row, store, &addition.run, &no, fault);
        if (error == PLX_ERR_CORRUPT && grown->sealed_count < PLX_GROWN_SEALED_MAX) {
            error = plx_registry_extent_seal(registry, store_row, no);
            if (error)
                return plx_registry_fault(registry, error, fault);
            grown->sealed[grown->sealed_count++] = no;
            continue;
        }
        if (!error)
            error = plx_registry_alone(registry, add_span, &addition, fault);
        plx_store_registry_due(store, &least, &most);
    }
    return error;
}
