/* ring_hints.c - see ring_hints.h.
 *
 * RING_HINTS-1  Nothing here is an error of the command: what cannot be found out is not said.
 */
#include "ring_hints.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/attach_ring.h"
#include "attach/host_ring.h"
#include "attach/volumes.h"
#include "engine/base/plain.h"
#include "output.h"

#define NAMED_MAX 3u /* virtual disks that have a line of their own */

/* ---- A member ---- */

/* The code of its superblock; 0, CORRUPT, UNSUPPORTED: a ring's. */
static int recognise(const char *path)
{
    struct plx_ring_members members;
    char *const paths[] = {(char *)path};
    int code;

    if (plx_ring_members_open(&members, paths, 1, PLX_RING_LOOK, 0, NULL, NULL))
        return PLX_ERR_NOT_FOUND;
    code = members.member[0].device ? members.member[0].problem.code : PLX_ERR_NOT_FOUND;
    plx_ring_members_close(&members);
    return code;
}

bool plx_ring_hint_holds(const char *path)
{
    int code = recognise(path);

    return !code || code == PLX_ERR_CORRUPT || code == PLX_ERR_UNSUPPORTED;
}

static bool is_empty(const struct plx_host_ring *ring)
{
    struct plx_ring_info info;

    if (!ring->ring)
        return false;
    plx_ring_get_info(ring->ring, &info);
    return info.free_segments == info.segments;
}

/* What comes next. */
static void say_next(const struct plx_host_ring *ring, const struct plx_ring_hint *hint,
                     const char *path, char *text, size_t bytes)
{
    const struct plx_ring_member_seen *sound = plx_ring_members_sound(&ring->members);
    const char *store = hint->name[0] ? hint->name : "STORE";
    bool two = sound->super.members > 1 && !sound->super.alone;
    char word[PLX_WORD_TEXT];

    if (ring->known)
        snprintf(text, bytes, "this host knows it ('parallax ring info %s')", store);
    else if (ring->ours)
        snprintf(text, bytes, "%s'parallax ring create %s %.150s%s' makes it known again",
                 hint->name[0] ? "" : "once that store is known here, ", store,
                 plx_plain_word(path, word, sizeof word), two ? " OTHER-MEMBER" : "");
    else
        snprintf(text, bytes,
                 "'parallax ring create STORE PATH%s' on that host makes it known again there",
                 two ? " OTHER-MEMBER" : "");
}

static void describe(const struct plx_paths *paths, const struct plx_host_ring *ring,
                     const char *path, struct plx_ring_hint *hint)
{
    struct plx_known known = {0};
    char next[320];

    hint->known = ring->known;
    snprintf(hint->ring, sizeof hint->ring, "%s", ring->way.ring);
    snprintf(hint->store, sizeof hint->store, "%s", ring->way.identity);
    snprintf(hint->host, sizeof hint->host, "%s", ring->host_name);
    if (hint->store[0] && plx_known_get(paths, hint->store, &known, NULL) == 0)
        snprintf(hint->name, sizeof hint->name, "%s", known.name);
    plx_known_done(&known);
    if (!plx_ring_members_sound(&ring->members)) {
        snprintf(hint->text, sizeof hint->text,
                 "%.300s; no store, but a member of a write-back ring, which may hold writes that "
                 "were acknowledged and that its store lacks",
                 plx_host_ring_problem(ring)->text);
        return;
    }
    say_next(ring, hint, path, next, sizeof next);
    snprintf(hint->text, sizeof hint->text,
             "%.110s holds no store: it is a member of a write-back ring of store %s, made on host "
             "%s%s; %s",
             path, hint->name[0] ? hint->name : hint->store, hint->host,
             is_empty(ring) ? ", and is empty"
                            : ", and may hold writes that were acknowledged and that the store "
                              "lacks, so do not delete it",
             next);
}

int plx_ring_hint_member(const struct plx_paths *paths, const char *path,
                         struct plx_ring_hint *ret_hint)
{
    struct plx_host_ring ring;
    char *whole;
    int error = 0;

    *ret_hint = (struct plx_ring_hint){0};
    if (!plx_ring_hint_holds(path) || plx_volumes_absolute(path, &whole, NULL))
        return PLX_ERR_NOT_FOUND;
    error = plx_host_ring_open(paths, whole, PLX_RING_LOOK, NULL, &ring, NULL);
    if (!error) {
        describe(paths, &ring, whole, ret_hint);
        plx_host_ring_close(&ring);
    }
    free(whole);
    return error ? PLX_ERR_NOT_FOUND : 0;
}

/* ---- Disks that need a ring which is not here ---- */

static void warn(const char *store, const char *vdi, const char *ring, bool has_other, bool copied)
{
    if (copied)
        plx_out_warning("%s/%s: its newest writes may lie on write-back ring %s of the original, "
                        "and it is not used without that ring; 'parallax ring discard %s/%s' gives "
                        "these writes up in the copy",
                        store, vdi, ring, store, vdi);
    else if (has_other)
        plx_out_warning("%s/%s: its newest writes may lie on another ring than this host's, %s, "
                        "and it is not used without that one; if that lies here: 'parallax ring "
                        "delete %s', then 'parallax ring create %s PATH' with its own path makes "
                        "it known again",
                        store, vdi, ring, store, store);
    else
        plx_out_warning("%s/%s: its newest writes may lie on write-back ring %s, which this host "
                        "does not have, and it is not used without that ring; if it lies here, "
                        "'parallax ring create %s PATH' with its own path makes it known again",
                        store, vdi, ring, store);
}

void plx_ring_hint_needed(const struct plx_paths *paths, const struct plx_known *known,
                          struct plx_store *store, bool copied)
{
    struct plx_known_ring own = {0};
    struct plx_slot_scan scan = {0};
    char id[PLX_UUID_TEXT];
    unsigned needing = 0;
    int error = plx_known_ring_get(paths, known->identity, &own, NULL);

    for (uint32_t slot = 0; plx_vdi_next_slot(store, &scan, &slot); slot++) {
        struct plx_vdi_info info;

        if (plx_vdi_read_info(store, slot, &info, NULL) || info.state != PLX_VDI_LIVE ||
            !plx_ring_is_marked(&info.mark))
            continue;
        plx_uuid_text(&info.mark.ring, id);
        if ((!error && !strcmp(id, own.ring)) || needing++ >= NAMED_MAX)
            continue;
        warn(known->name, info.name, id, !error, copied);
    }
    if (needing > NAMED_MAX)
        plx_out_warning("%u further virtual disks of store %s need such a ring; 'parallax store "
                        "check %s' names them",
                        needing - NAMED_MAX, known->name, known->name);
    plx_known_ring_done(&own);
}

void plx_ring_hint_imported(struct plx_cli *cli, const struct plx_known *known, bool copied)
{
    const struct plx_attach_options options = {.store = known->name,
                                               .state_dir = cli->state_dir,
                                               .role = "admin",
                                               .read_only = true,
                                               .patience = plx_session_patience(cli)};
    struct plx_attach *attach;
    struct plx_paths *paths;
    struct plx_fault why; /* RING_HINTS-1 */

    if (plx_session_paths(cli, &paths) || plx_attach_open(&options, &attach, &why))
        return;
    plx_ring_hint_needed(paths, known, plx_attach_store(attach), copied);
    plx_attach_close_why(attach, &why);
}

/* ---- Disks whose ring goes ---- */

void plx_ring_hint_bereft(struct plx_cli *cli, const char *store, bool dry_run)
{
    struct plx_registry_vdi *list = NULL;
    struct plx_registry_store row;
    size_t count = 0;

    plx_session_row(cli, &row);
    if (plx_registry_vdi_list(cli->session.registry, row.id, false, NULL, 0, &list, &count))
        return;
    for (size_t i = 0; i < count; i++) {
        enum plx_ring_setting use;

        if (!plx_ring_setting_load(cli->session.registry, list[i].id, &use) && use != PLX_RING_OFF)
            plx_out_note(cli,
                         "virtual disk %s/%s has --ring %s, and %s without a ring; a new ring of "
                         "the store will be used by it",
                         store, list[i].name, plx_ring_setting_words[use],
                         dry_run ? "would go on" : "goes on");
    }
    free(list);
}
