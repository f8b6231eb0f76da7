/* verify.c - plx_store_check(): an independent checker of a whole store, which only reads.
 *
 * It shares with the code that writes only the decoders of format.c. It has its own walk of trees
 * (verify_tree.c) and its own log reader (verify_log.c), and computes by itself which blocks must
 * be allocated. So a bug in the code that writes does not hide itself. One check, pass by pass:
 *
 *  no  pass            file               what it reads, and what it leaves
 *   1  superblocks     verify_space.c     which extents hold the store's own structures
 *   2  extents         verify_space.c     each extent's header: type, owner
 *   3  live disks      verify_vdi.c       record, log, trees: marks for each block in use; suspects
 *   4  deleted disks   verify_vdi.c       marks for what they still have
 *   5  bitmaps         verify_space.c     bits against marks: leaks; suspects
 *   6  second look     verify_suspects.c  the users of each suspect: findings, or nothing
 *   7  damaged blocks  verify_damaged.c   the users of each damaged block: findings, disk by disk
 *
 * The check proves the rules up to VERIFY-7:
 *
 * VERIFY-1  At least one copy of each superblock, extent page and VDI record is whole. A damaged
 *     copy of a superblock is reported as well.
 * VERIFY-2  Each node of a tree matches its checksum. Nodes lie in metadata extents and data lies
 *     in data extents.
 * VERIFY-3  A block that a live disk may overwrite in place has no other user: no second place in a
 *     tree, no snapshot, no other disk. A common block (share.c) is common to all its users.
 * VERIFY-4  Each log is a chain of batches, from where history begins to its end (VERIFY_LOG-1).
 * VERIFY-5  Each key frame through which a kept snapshot is read is whole (VERIFY_LOG-2).
 * VERIFY-6  Each block in use is allocated. Allocated blocks that are not in use are leaks: they
 *     are counted by extent, those of deleted disks apart. Leaks lose no data, only space.
 * VERIFY-7  A record's counts of mapped blocks and of known checksums are those of its tree.
 * VERIFY-8  Progress never falls, its total is told once and stays, and the end alone reaches it.
 * VERIFY-9  A block of data or a node of a tree may be damaged, or lie where it may not. That is
 *     reported of each disk that has it, and whether the disk's newest state has it, or only
 *     snapshots do. Blocks that follow each other are one finding.
 * VERIFY-10  Say disks A and B use one block. It speaks against A only if its contents are proven
 *     not to be what A wrote. It proves B right only if they are proven to be what B wrote
 *     (verify_whose.c). What is not known proves nothing. Nor do times: hosts have several clocks,
 *     and clocks jump.
 * VERIFY-11  Of the disks that only read a block, at most one, W, wrote it. Each other disk
 *     descends from W, or all descend from a common ancestor (verify_kin.c). A disk that did not
 *     write the block got it with the tree that it began with (verify_origin.c). That tree must be
 *     what the ancestor's snapshot sees (verify_views.c). All have the block at the same place, and
 *     no two know different checksums of it. Common blocks are exempt: equal contents made them so.
 *     Disks may share a node if they name it at the same place and with the same checksum. Such a
 *     node is walked once for all of them.
 *
 * Disks may be open, here or elsewhere, and change while the check reads them. Three measures keep
 * that from causing false findings:
 * - Each disk is read into marks of its own. Its marks and findings count only if its record is
 *   unchanged afterwards; otherwise it is read again (RECORD-2).
 * - Bitmaps are read last. A disk makes the bits of its blocks durable before its record names
 *   them, so the bitmaps cover each record that has not changed since.
 * - A block that does not fit between two disks, or between a disk and a bitmap, is only a suspect.
 *   It becomes a finding if none of its users' records has changed since.
 *
 * Progress is told in bytes of different blocks (VERIFY-8), so what is read again does not move it.
 *
 * Memory: eight bits for each block of the extents that live disks use, as much for the disk being
 *   read, and as much for the extents that deleted disks use. One more for each block of the family
 *   being read, and one if progress is asked for. 32 bits for each block of metadata extents. Some
 *   100 bytes for each disk, and 1 MiB of nodes if there are clones.
 * Loop: the store's. The call is synchronous; it runs the loop while it reads and while it keeps to
 *   its rate.
 * Crash story: this file only reads.
 */
#include <stdlib.h>

#include "engine/check/verify.h"

static void check_all(struct plx_verify *v)
{
    v->begun_ns = v->store->env->monotonic_ns(v->store->env);
    plx_verify_superblocks(v);
    for (uint64_t number = 0; number < v->extents && !v->error; number++)
        if (v->types[number] != PLX_EXTENT_SYSTEM)
            plx_verify_read_extent(v, number, NULL);
    v->total_bytes = v->allocated_bytes + v->done_bytes * 2; /* pass 5 reads the pages again */
    plx_verify_list_kin(v);
    plx_verify_families(v);
    plx_verify_walk_deleted(v);
    plx_verify_bitmaps(v);
    plx_verify_look_at_suspects(v);
    plx_verify_tell_damaged(v);
    plx_verify_tell_leaks(v);
    v->ended = !v->error;
    plx_verify_report_progress(v);
}

static bool marks_init(const struct plx_verify *v, struct plx_marks *marks, unsigned kinds)
{
    marks->count = v->extents;
    marks->kinds = kinds;
    marks->extents = calloc(v->extents, sizeof *marks->extents);
    return marks->extents != NULL;
}

static void marks_done(struct plx_verify *v, struct plx_marks *marks)
{
    if (marks->extents)
        plx_verify_clear_marks(v, marks);
    free(marks->extents);
}

static bool verify_init(struct plx_verify *v)
{
    bool ready = marks_init(v, &v->marks, PLX_MARKS);

    ready = marks_init(v, &v->own, PLX_MARKS) && ready;
    ready = marks_init(v, &v->deleted, PLX_MARKS) && ready;
    ready = marks_init(v, &v->family, PLX_MARK_CLAIMED + 1) && ready;
    v->tags = calloc(v->extents, sizeof *v->tags);
    v->twins = malloc(PLX_LEVELS_MAX * PLX_BLOCK_SIZE);
    ready = ready && v->tags && v->twins;
    v->types = calloc(v->extents, 1);
    v->owners = calloc(v->extents, sizeof *v->owners);
    v->unguarded = calloc(v->extents, sizeof *v->unguarded);
    v->block = malloc(PLX_BLOCK_SIZE);
    v->pages = malloc(2 * PLX_BLOCK_SIZE);
    v->nodes = malloc(2 * PLX_LEVELS_MAX * PLX_BLOCK_SIZE);
    v->segment = malloc(plx_log_segment_bytes(v->store));
    v->data = malloc(PLX_VERIFY_DATA * PLX_BLOCK_SIZE);
    v->expected = calloc(PLX_VERIFY_DATA, sizeof *v->expected);
    v->read = calloc(v->extents, sizeof *v->read);
    v->kept = calloc(PLX_VERIFY_KEPT, sizeof *v->kept);
    v->suspects = calloc(PLX_VERIFY_SUSPECTS, sizeof *v->suspects);
    return ready && v->types && v->owners && v->unguarded && v->block && v->pages && v->nodes &&
           v->segment && v->data && v->expected && v->read && v->kept && v->suspects;
}

static void verify_done(struct plx_verify *v)
{
    plx_verify_drop_kept(v);
    marks_done(v, &v->marks);
    marks_done(v, &v->own);
    marks_done(v, &v->deleted);
    marks_done(v, &v->family);
    for (uint64_t extent = 0; v->tags && extent < v->extents; extent++)
        free(v->tags[extent]);
    free(v->tags);
    free(v->twins);
    plx_verify_twin_done(v);
    free(v->kin);
    free(v->clones);
    free(v->types);
    free(v->owners);
    free(v->unguarded);
    free(v->block);
    free(v->pages);
    free(v->nodes);
    free(v->segment);
    free(v->data);
    free(v->expected);
    for (uint64_t extent = 0; v->read && extent < v->extents; extent++)
        free(v->read[extent]);
    free(v->read);
    free(v->kept);
    free(v->suspects);
    free(v->uses);
    free(v->damaged);
}

int plx_store_check(struct plx_store *store, const struct plx_check_options *options,
                    struct plx_check_result *ret_result, struct plx_fault *fault)
{
    struct plx_verify v = {.store = store,
                           .options = options,
                           .extents = store->info.extents,
                           .still_expected = plx_verify_still_expected};
    int error = 0;

    if (verify_init(&v))
        check_all(&v);
    else
        v.error = PLX_ERR_NOMEM;
    *ret_result = v.result;
    if (v.error)
        error = plx_fault_set(fault, v.error,
                              v.error == PLX_ERR_NOMEM ? "out of memory"
                                                       : "interrupted; not everything was checked");
    verify_done(&v);
    return error;
}
