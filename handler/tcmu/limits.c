/* limits.c - see limits.h.
 *
 * LIMITS-1  Each crossing of a limit is told once. Operators get an event and a line in the log;
 *     initiators get a unit attention from each LUN concerned. The store's limit concerns every LUN
 *     that can be written, a disk's limit its own LUN.
 * LIMITS-2  The results of a look stay in the home and in the LUN for LOG SENSE and MODE SENSE,
 *     because these must not wait for the registry.
 * LIMITS-3  Only the service's thread uses `warned`. All fields that other threads read are atomic,
 *     so no lock is needed.
 *
 * Lock order: that of home.c.
 * Threads: the service's.
 * Crash story: nothing is kept. After a restart a limit that is still crossed is told again.
 */
#include "tcmu/limits.h"

#include <inttypes.h>
#include <stdio.h>

#include "attach/attach.h"
#include "registry/threshold.h"
#include "tcmu/home.h"
#include "tcmu/loop.h"
#include "tcmu/runner.h"
#include "tcmu/say.h"

static void add_event(struct plx_store_home *home, const char *what, const char *subject,
                      const char *detail)
{
    pthread_mutex_lock(&home->attach_lock);
    plx_registry_event_add(plx_attach_registry(home->attach), what, subject, detail);
    pthread_mutex_unlock(&home->attach_lock);
}

/* Tells operators. name: the store's, or STORE/VDI. */
static void tell(struct plx_store_home *home, const char *name, const char *subject, bool crossed,
                 uint64_t used_bytes, uint64_t at_bytes)
{
    char detail[96];

    snprintf(detail, sizeof detail, "%" PRIu64 " bytes used, limit %" PRIu64, used_bytes, at_bytes);
    add_event(home, crossed ? "soft limit crossed" : "soft limit left", subject, detail);
    if (crossed)
        plx_say(warn, NULL,
                "%s: %s; add a volume, delete what is not needed, or set another limit with "
                "--warn-at",
                name, detail);
    else
        plx_say(info, NULL, "%s is below its soft limit again: %s", name, detail);
}

/* ---- The store ---- */

struct store_look {
    uint64_t size_bytes, available_bytes, at_bytes;
};

static int measure_store(struct plx_store_home *home, struct store_look *ret)
{
    struct plx_threshold threshold = {0};
    struct plx_registry_store row;
    struct plx_store_info info;
    uint64_t room = 0;
    int error;

    plx_loop_lock(home->loop);
    plx_store_get_info(plx_attach_store(home->attach), &info);
    plx_loop_unlock(home->loop);
    pthread_mutex_lock(&home->attach_lock);
    error = plx_attach_data_room(home->attach, info.extents * info.extent_blocks, &room, NULL);
    plx_attach_row(home->attach, &row);
    if (!error)
        error = plx_threshold_load_store(plx_attach_registry(home->attach), row.id, &threshold);
    pthread_mutex_unlock(&home->attach_lock);
    ret->size_bytes = info.extents * info.extent_blocks * PLX_BLOCK_SIZE;
    ret->available_bytes = room * PLX_BLOCK_SIZE;
    ret->at_bytes = plx_threshold_at(&threshold, ret->size_bytes);
    return error;
}

static void raise_everywhere(struct plx_store_home *home)
{
    pthread_mutex_lock(&home->luns_lock);
    for (struct plx_lun *lun = home->luns; lun; lun = lun->next)
        if (!lun->read_only)
            atomic_fetch_or(&lun->attentions, PLX_ATTENTION_THRESHOLD);
    pthread_mutex_unlock(&home->luns_lock);
}

static void look_at_store(struct plx_store_home *home)
{
    struct store_look look;
    uint64_t used_bytes;
    bool crossed;

    if (measure_store(home, &look))
        return; /* the next look tries again */
    used_bytes = look.size_bytes - look.available_bytes;
    crossed = plx_threshold_is_crossed(look.at_bytes, used_bytes, home->warned);
    atomic_store(&home->available_bytes, look.available_bytes); /* LIMITS-2 */
    atomic_store(&home->warn_bytes, look.at_bytes && look.at_bytes < look.size_bytes
                                        ? look.size_bytes - look.at_bytes
                                        : 0);
    if (crossed && !home->warned) /* LIMITS-1 */
        raise_everywhere(home);
    if (crossed != home->warned)
        tell(home, home->name, home->name, crossed, used_bytes, look.at_bytes);
    home->warned = crossed; /* LIMITS-3 */
}

/* ---- Its LUNs ---- */

static int load_limit(struct plx_store_home *home, const char *vdi,
                      struct plx_threshold *ret_threshold)
{
    int error;

    pthread_mutex_lock(&home->attach_lock);
    error = plx_threshold_load_vdi(plx_attach_registry(home->attach), vdi, ret_threshold);
    pthread_mutex_unlock(&home->attach_lock);
    return error;
}

/* With luns_lock held. */
static void look_at_lun(struct plx_store_home *home, struct plx_lun *lun)
{
    struct plx_threshold threshold = {0};
    struct plx_vdi_info info;
    char vdi[PLX_UUID_TEXT], name[sizeof home->name + sizeof info.name];
    uint64_t used_bytes, at_bytes;
    bool crossed;

    plx_loop_lock(home->loop);
    plx_vdi_get_info(lun->vdi, &info);
    plx_loop_unlock(home->loop);
    plx_uuid_text(&info.id, vdi);
    if (info.mapped_blocks == PLX_MAPPED_UNKNOWN || load_limit(home, vdi, &threshold))
        return;
    used_bytes = info.mapped_blocks * PLX_BLOCK_SIZE;
    at_bytes = plx_threshold_at(&threshold, info.size_bytes);
    crossed = plx_threshold_is_crossed(at_bytes, used_bytes, lun->warned);
    atomic_store(&lun->warn_bytes, at_bytes);
    if (crossed && !lun->warned)
        atomic_fetch_or(&lun->attentions, PLX_ATTENTION_THRESHOLD);
    snprintf(name, sizeof name, "%s/%s", home->name, info.name);
    if (crossed != lun->warned)
        tell(home, name, vdi, crossed, used_bytes, at_bytes);
    lun->warned = crossed;
}

void plx_limits_look(struct plx_store_home *home)
{
    look_at_store(home);
    pthread_mutex_lock(&home->luns_lock);
    for (struct plx_lun *lun = home->luns; lun; lun = lun->next)
        if (!lun->read_only)
            look_at_lun(home, lun);
    pthread_mutex_unlock(&home->luns_lock);
}
