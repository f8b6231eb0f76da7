/* provisioning.c - see provisioning.h.
 *
 * PROVISIONING-1  "Available" is the space that the store has left for data, as limits.c saw it
 *     last. "Used" is the space that this LUN maps, as the engine counted it at the last key frame
 *     (the checkpoint of the disk's map). Both may be seconds old, so that nobody waits for the
 *     registry here.
 * PROVISIONING-2  There are two thresholds: the store's, on available space, and the disk's, on
 *     used space. limits.c notices when one is crossed, and scsi.c reports the unit attention.
 *
 * Threads: a device's command thread.
 */
#include "tcmu/provisioning.h"

#include <string.h>

#include "tcmu/bytes.h"
#include "tcmu/home.h"
#include "tcmu/loop.h"

#define SET_BYTES (1u << 20)

/* Parameters of the log page; a threshold names the one that it watches. */
#define AVAILABLE 1u
#define USED 2u

#define ARMED_INCREASING 1u
#define ARMED_DECREASING 2u

#define SCOPE_THIS_LUN 1u
#define SCOPE_SHARED 2u

uint8_t plx_provisioning_exponent(const struct plx_lun *lun)
{
    return (uint8_t)__builtin_ctz(SET_BYTES / lun->sector_size);
}

/* ---- Mode page 1Ch/02h ---- */

static void put_threshold(uint8_t to[8], uint8_t arming, uint8_t resource, uint64_t bytes)
{
    if (!bytes)
        return;
    to[0] = 0x80 | arming; /* ENABLED; the threshold is a number of sets, not a percentage */
    to[1] = resource;
    plx_put_be(to + 4, 4, bytes / SET_BYTES);
}

size_t plx_provisioning_mode_page(const struct plx_lun *lun, uint8_t *to, bool values)
{
    memset(to, 0, PLX_PROVISIONING_MODE_BYTES);
    to[0] = 0x40 | 0x1c; /* SPF */
    to[1] = 0x02;
    plx_put_be(to + 2, 2, PLX_PROVISIONING_MODE_BYTES - 4);
    if (values) {
        to[4] = 0x01; /* SITUA: only one initiator is told, the first to come */
        /* PROVISIONING-2 */
        put_threshold(to + 16, ARMED_DECREASING, AVAILABLE, atomic_load(&lun->home->warn_bytes));
        put_threshold(to + 24, ARMED_INCREASING, USED, atomic_load(&lun->warn_bytes));
    }
    return PLX_PROVISIONING_MODE_BYTES;
}

/* ---- Log page 0Ch ---- */

static size_t put_resource(uint8_t to[12], unsigned resource, uint64_t bytes, uint8_t scope)
{
    memset(to, 0, 12);
    plx_put_be(to, 2, resource);
    to[2] = 0x03; /* a binary list */
    to[3] = 8;
    plx_put_be(to + 4, 4, bytes / SET_BYTES);
    to[8] = scope;
    return 12;
}

size_t plx_provisioning_log_page(struct plx_lun *lun, uint8_t *to, unsigned first)
{
    struct plx_vdi_info info;
    size_t length = 4;

    plx_loop_lock(lun->loop);
    plx_vdi_get_info(lun->vdi, &info);
    plx_loop_unlock(lun->loop);
    memset(to, 0, length);
    to[0] = 0x0c;
    if (first <= AVAILABLE) /* PROVISIONING-1 */
        length += put_resource(to + length, AVAILABLE, atomic_load(&lun->home->available_bytes),
                               SCOPE_SHARED);
    if (first <= USED && info.mapped_blocks != PLX_MAPPED_UNKNOWN)
        length +=
            put_resource(to + length, USED, info.mapped_blocks * PLX_BLOCK_SIZE, SCOPE_THIS_LUN);
    plx_put_be(to + 2, 2, length - 4);
    return first <= USED ? length : 0;
}
