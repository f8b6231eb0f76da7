/* plugin.c - what tcmu-runner loads: handler_init and the life of a LUN.
 *
 * PLUGIN-1  A LUN is opened only if the VDI has the size and sector size that the kernel was told.
 *     A VDI smaller than the kernel believes would lose data; a larger one would hide some.
 * PLUGIN-2  A VDI is open for writing at most once in this process (home.c refuses the second LUN).
 *     Two LUNs would be two initiators' views of one disk, without any locking between them.
 * PLUGIN-3  The reason of a failed open goes to tcmu-runner's log in full, followed by the error's
 *     name, because tcmu-runner passes no reason on; 'lun create' reads both in that log.
 *     check_config refuses a cfgstring that is wrong in itself, and looks nothing up: any local
 *     user may call it by D-Bus, and tcmu-runner's main loop waits for the answer.
 * PLUGIN-4  No mistake of an administrator or initiator aborts the process, because that would take
 *     down every LUN of the host. Such mistakes return errors.
 * PLUGIN-5  A limit on the size of files is an error of the write that meets it. By default the
 *     kernel sends SIGXFSZ as well, which would kill tcmu-runner with every LUN of the host. So
 *     that signal is ignored, unless the program that loads this has its own way with it.
 *
 * Threads: check_config, open, close and reconfig come from tcmu-runner's main thread (open and
 *   close also from its recovery thread). Everything else comes from command threads (io.c,
 *   scsi.c).
 * Crash story: on SIGTERM tcmu-runner calls close(), which writes a key frame (the checkpoint of
 *   the disk's map). After kill -9 there is no such key frame, and the next open replays the log.
 *   The kernel and the initiators hold their commands meanwhile.
 */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/plain.h"
#include "tcmu/config.h"
#include "tcmu/home.h"
#include "tcmu/io.h"
#include "tcmu/loop.h"
#include "tcmu/runner.h"
#include "tcmu/say.h"
#include "tcmu/scsi.h"

int handler_init(void);

static bool check_config(const char *cfgstring, char **reason)
{
    struct plx_lun_config config;
    struct plx_fault fault = {0};
    char plain[PLX_SAY_MAX];

    if (plx_lun_config_parse(cfgstring, &config, &fault) == 0)
        return true;
    *reason = strdup(plx_plain(fault.text, plain, sizeof plain)); /* D-Bus takes UTF-8 only */
    return false;
}

/* PLUGIN-1 */
static int check_size(const struct plx_lun *lun, struct plx_fault *fault)
{
    uint32_t sector_size = tcmu_dev_get_block_size(lun->device);
    uint64_t bytes = tcmu_dev_get_num_lbas(lun->device) * sector_size;

    if (sector_size != lun->sector_size)
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "%s/%s has sectors of %u bytes, the LUN was made with %u: create it "
                             "with control=hw_block_size=%u",
                             lun->config.store, lun->config.vdi, lun->sector_size, sector_size,
                             lun->sector_size);
    if (bytes != atomic_load(&lun->size_bytes))
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "%s/%s has %llu bytes, the LUN was made with %llu: the sizes must be "
                             "the same",
                             lun->config.store, lun->config.vdi,
                             (unsigned long long)atomic_load(&lun->size_bytes),
                             (unsigned long long)bytes);
    return 0;
}

static int errno_of(int result)
{
    switch (plx_error_class(result)) {
    case PLX_CLASS_NOMEM:
        return -ENOMEM;
    case PLX_CLASS_INVALID:
        return -EINVAL;
    case PLX_CLASS_BUSY:
        return -EBUSY;
    case PLX_CLASS_NOSPACE:
        return -ENOSPC;
    default:
        return -EIO;
    }
}

/* Where a text is cut that is longer than `room`: behind a space, if there is one, else between two
 * characters. */
static size_t cut_at(const char *text, size_t room)
{
    size_t cut = room;

    if (strlen(text) <= room)
        return strlen(text);
    while (cut && text[cut - 1] != ' ')
        cut--;
    if (!cut)
        for (cut = room; ((unsigned char)text[cut] & 0xc0) == 0x80;)
            cut--;
    return cut;
}

/* PLUGIN-3. The reason is split into lines, because tcmu-runner cuts a line at 255 bytes, of which
 * its own prefix takes about 40. It is escaped before, as it would be then (SAY-1). */
static void log_failure(struct tcmu_device *device, int error, const char *reason)
{
    char text[PLX_CFGSTRING_MAX + sizeof((struct plx_fault *)0)->text + 32];
    char plain[4 * sizeof text];

    snprintf(text, sizeof text, "%.*s: %s (%s)", PLX_CFGSTRING_MAX, tcmu_dev_get_cfgstring(device),
             reason, plx_error_name(error));
    plx_plain(text, plain, sizeof plain);
    for (const char *at = plain, *how = "cannot open"; *at; how = "which goes on:") {
        size_t length = cut_at(at, 160);

        plx_say(error, device, "%s %.*s", how, (int)length, at);
        at += length;
    }
}

static void free_lun(struct plx_lun *lun)
{
    plx_io_done(lun);
    free(lun);
}

static int open_lun(struct plx_lun *lun, struct plx_fault *fault)
{
    int result = plx_lun_config_parse(tcmu_dev_get_cfgstring(lun->device), &lun->config, fault);

    if (result < 0)
        return result;
    if (plx_io_init(lun) < 0)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    result = plx_home_enter(lun, fault);
    if (result < 0)
        return result;
    result = check_size(lun, fault);
    if (result < 0)
        plx_home_leave(lun);
    return result;
}

static int open_device(struct tcmu_device *device, bool reopen)
{
    struct plx_lun *lun = calloc(1, sizeof *lun);
    struct plx_fault fault = {0};
    int result;

    if (!lun)
        return -ENOMEM;
    lun->device = device;
    result = open_lun(lun, &fault);
    if (result < 0) {
        log_failure(device, result, fault.text[0] ? fault.text : plx_error_text(result));
        free_lun(lun);
        return errno_of(result); /* PLUGIN-4 */
    }
    plx_scsi_set_limits(device);
    tcmu_dev_set_write_cache_enabled(device, atomic_load(&lun->write_back));
    tcmur_dev_set_private(device, lun);
    plx_say(info, device, "opened %s, %llu bytes%s", tcmu_dev_get_cfgstring(device),
            (unsigned long long)atomic_load(&lun->size_bytes), lun->read_only ? ", read only" : "");
    return 0;
}

static void close_device(struct tcmu_device *device)
{
    struct plx_lun *lun = tcmur_dev_get_private(device);

    tcmur_dev_set_private(device, NULL);
    plx_home_leave(lun);
    free_lun(lun);
}

/* ---- Changes to a live LUN ------------------------------------------------------------------ */

static int set_write_cache(struct plx_lun *lun, bool enabled)
{
    struct plx_request flush = {.op = PLX_FLUSH};
    int result;

    if (lun->read_only)
        return enabled ? -EROFS : 0;
    plx_loop_lock(lun->loop);
    plx_vdi_set_write_back(lun->vdi, enabled);
    plx_loop_unlock(lun->loop);
    atomic_store(&lun->write_back, enabled);
    tcmu_dev_set_write_cache_enabled(lun->device, enabled);
    if (enabled)
        return 0;
    /* From here on initiators rely on acknowledged writes being durable: flushes the older ones. */
    result = plx_loop_run(lun->loop, lun->vdi, &flush);
    return result < 0 ? errno_of(result) : 0;
}

static int set_size(struct plx_lun *lun, uint64_t bytes)
{
    struct plx_fault fault = {0};
    int result = plx_home_resize(lun, bytes, &fault);

    if (result == 0)
        return 0;
    plx_say(error, lun->device, "cannot resize %s/%s: %s", lun->config.store, lun->config.vdi,
            fault.text);
    return errno_of(result);
}

static int reconfig(struct tcmu_device *device, struct tcmulib_cfg_info *info)
{
    struct plx_lun *lun = tcmur_dev_get_private(device);

    switch (info->type) {
    case TCMULIB_CFG_WRITE_CACHE:
        return set_write_cache(lun, info->data.write_cache);
    case TCMULIB_CFG_DEV_SIZE:
        return set_size(lun, info->data.dev_size);
    case TCMULIB_CFG_DEV_CFGSTR: /* restoring a saved target sets the same string again */
        if (strcmp(info->data.dev_cfgstring, tcmu_dev_get_cfgstring(device)) == 0)
            return 0;
        return -EOPNOTSUPP; /* a LUN cannot change to another VDI */
    default:
        return -EOPNOTSUPP;
    }
}

static struct tcmur_handler handler = {
    .name = "Parallax virtual disks",
    .subtype = "parallax",
    .cfg_desc = "parallax/STORE/VDI[@SNAPSHOT][;overwrite=in-place|copy][;cache=off|on]\n"
                "When a creation fails, tcmu-runner's log (/var/log/tcmu-runner.log) says why.",
    .check_config = check_config,
    .open = open_device,
    .close = close_device,
    .reconfig = reconfig,
    .nr_threads = 0,
    .handle_cmd = plx_scsi_handle,
    .read = plx_io_read,
    .write = plx_io_write,
    .flush = plx_io_flush,
    .unmap = plx_io_unmap,
    .writesame = plx_io_write_same,
    .caw = plx_io_compare_write,
};

/* Each disk has pools for the deepest queue. Most of a pool is never touched and so takes no
 * memory, unless malloc() puts the pool where something large lay before, such as log segments read
 * by a recovery. malloc() reuses such places once the first large block was freed, because it
 * raises its threshold then; a fixed threshold prevents that. */
#define MMAP_THRESHOLD (128 << 10)

/* PLUGIN-5 */
static void survive_file_limits(void)
{
    struct sigaction now, ignore = {.sa_handler = SIG_IGN};

    if (!sigaction(SIGXFSZ, NULL, &now) && now.sa_handler == SIG_DFL)
        sigaction(SIGXFSZ, &ignore, NULL);
}

__attribute__((visibility("default"))) int handler_init(void)
{
    survive_file_limits();
    mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD);
    return tcmur_register_handler(&handler);
}
