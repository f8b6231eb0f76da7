/* libaio_open.c - opens a file or block device: makes it if wanted, checks that nobody has claimed
 * it, measures it, sets up its queue. */
#include "device/libaio_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <libaio.h>
#include <limits.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* ---- Opening ---------------------------------------------------------------------------- */

/* Makes a new file durable: its size, and its name in the folder. */
static int sync_new_file(const char *path, int fd)
{
    char folder[PATH_MAX];
    char *slash;
    int folder_fd, failed;

    snprintf(folder, sizeof folder, "%s", path);
    slash = strrchr(folder, '/');
    if (!slash)
        strcpy(folder, ".");
    else
        slash[slash == folder] = '\0';
    folder_fd = fsync(fd) == 0 ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (folder_fd < 0)
        return -1;
    failed = fsync(folder_fd);
    close(folder_fd);
    return failed;
}

static int create_file(const char *path, uint64_t bytes, struct plx_fault *fault)
{
    int fd, error = 0;

    if (bytes % 4096 || bytes > INT64_MAX)
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "cannot create %s: its size must be a multiple of 4096", path);
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno == ENOENT)
        return plx_fault_set(fault, PLX_ERR_NOT_FOUND,
                             "cannot create %s: its folder does not exist", path);
    if (fd < 0)
        return plx_aio_open_error(path, "create", errno, fault);
    if (ftruncate(fd, (off_t)bytes) != 0 || sync_new_file(path, fd) != 0)
        error = errno;
    close(fd);
    if (error == 0)
        return 0;
    unlink(path);
    return plx_aio_open_error(path, "create", error, fault);
}

/* Refuses a block device that the kernel has claimed: it is mounted, or belongs to RAID or LVM.
 * Parallax keeps no claim of its own, because processes share a store. Only the short claim of
 * another such check can be in the way, so the check is repeated. */
static int check_unclaimed(const char *path, struct plx_fault *fault)
{
    for (int i = 0; i < CLAIM_TRIES; i++) {
        int fd = open(path, O_RDWR | O_EXCL | O_CLOEXEC);

        if (fd >= 0) {
            close(fd);
            return 0;
        }
        if (errno != EBUSY)
            return 0; /* the caller's own open() reports what is wrong */
        usleep(CLAIM_DELAY_US);
    }
    return plx_fault_set(fault, PLX_ERR_BUSY,
                         "%s is in use: mounted, or part of a RAID, LVM or multipath device", path);
}

static bool direct_works(int fd, size_t block)
{
    _Alignas(BUFFER_ALIGN) char buffer[2 * BUFFER_ALIGN];

    /* Uses an address that is aligned to the block size and to nothing larger. */
    return pread(fd, buffer + block % BUFFER_ALIGN, block, 0) >= 0;
}

static bool write_cache_is_volatile(dev_t number)
{
    char path[128], text[32] = "";
    FILE *file;

    /* A partition has no queue of its own; its disk has one. */
    snprintf(path, sizeof path, "/sys/dev/block/%u:%u/queue/write_cache", major(number),
             minor(number));
    file = fopen(path, "re");
    if (!file) {
        snprintf(path, sizeof path, "/sys/dev/block/%u:%u/../queue/write_cache", major(number),
                 minor(number));
        file = fopen(path, "re");
    }
    if (!file)
        return true;
    if (!fgets(text, sizeof text, file))
        text[0] = '\0';
    fclose(file);
    return strncmp(text, "write through", 13) != 0;
}

static int measure_block_device(struct aio_device *device, const struct stat *st,
                                struct plx_fault *fault)
{
    const char *path = device->base.name;
    uint64_t bytes;
    int block, read_only = 0;

    if (!device->base.read_only && ioctl(device->fd, BLKROGET, &read_only) == 0 && read_only)
        return plx_aio_open_error(path, "open for writing", EROFS, fault); /* blockdev --setro */
    if (ioctl(device->fd, BLKGETSIZE64, &bytes) != 0 || ioctl(device->fd, BLKSSZGET, &block) != 0)
        return plx_aio_open_error(path, "measure", errno, fault);
    if (block != 512 && block != 4096)
        return plx_fault_set(fault, PLX_ERR_UNSUPPORTED,
                             "%s has logical blocks of %d bytes; 512 and 4096 are supported", path,
                             block);
    device->base.bytes = bytes;
    device->base.block_size = (uint32_t)block;
    device->base.volatile_cache = !device->direct || write_cache_is_volatile(st->st_rdev);
    return 0;
}

static void measure_file(struct aio_device *device, const struct stat *st)
{
    if (device->direct && direct_works(device->fd, 512)) {
        device->base.block_size = 512;
    } else {
        device->base.block_size = 4096;
        if (device->direct && !direct_works(device->fd, 4096)) {
            fcntl(device->fd, F_SETFL, fcntl(device->fd, F_GETFL) & ~O_DIRECT);
            device->direct = false;
        }
    }
    device->base.bytes = (uint64_t)st->st_size;
    device->base.volatile_cache = true;
}

static int open_path(struct aio_device *device, struct plx_fault *fault)
{
    const char *path = device->base.name;
    int flags = (device->base.read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC;
    struct stat st;
    int result = 0;

    device->direct = true;
    device->fd = open(path, flags | O_DIRECT);
    if (device->fd < 0 && errno == EINVAL) {
        device->direct = false;
        device->fd = open(path, flags);
    }
    if (device->fd < 0)
        return plx_aio_open_error(path, device->base.read_only ? "open" : "open for writing", errno,
                                  fault);
    if (fstat(device->fd, &st) != 0)
        return plx_aio_open_error(path, "examine", errno, fault);
    device->named = S_ISREG(st.st_mode) && st.st_nlink > 0;
    if (S_ISBLK(st.st_mode))
        result = measure_block_device(device, &st, fault);
    else
        measure_file(device, &st);
    if (result < 0)
        return result;
    device->base.bytes -= device->base.bytes % device->base.block_size;
    if (device->base.bytes == 0)
        return plx_fault_set(fault, PLX_ERR_NOT_FOUND, "%s is empty", path);
    return 0;
}

static int set_up_queue(struct aio_device *device, bool waits, struct plx_fault *fault)
{
    int error = 0;

    device->slots = calloc(device->depth, sizeof *device->slots);
    device->ready = calloc(device->depth, sizeof *device->ready);
    if (!device->slots || !device->ready)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory opening %s", device->base.name);
    for (unsigned i = device->depth; i-- > 0;)
        plx_aio_slot_release(device, &device->slots[i]);
    if (waits) /* LIBAIO-6 */
        error = -plx_aio_set_up(device);
    if (error == EAGAIN)
        return plx_fault_set(fault, PLX_ERR_SYSTEM,
                             "cannot open %s: no AIO contexts left; raise the sysctl fs.aio-max-nr",
                             device->base.name);
    return error ? plx_aio_open_error(device->base.name, "set up AIO for", error, fault) : 0;
}

/* Looks at the kind of file before opening it: opening a pipe would hang, and some devices act when
 * they are opened. */
static int check_kind(const char *path, const struct plx_device_open_options *options,
                      struct plx_fault *fault)
{
    struct stat st;

    if (stat(path, &st) != 0)
        return plx_aio_open_error(path, "open", errno, fault);
    if (S_ISDIR(st.st_mode))
        return plx_fault_set(fault, PLX_ERR_INVALID, "%s is a folder, not a file or block device",
                             path);
    if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
        return plx_fault_set(fault, PLX_ERR_INVALID, "%s is neither a file nor a block device",
                             path);
    if (S_ISBLK(st.st_mode) && !options->read_only)
        return check_unclaimed(path, fault);
    return 0;
}

int plx_libaio_open(const char *path, const struct plx_device_open_options *options,
                    struct plx_device **ret_device, struct plx_fault *fault)
{
    struct aio_device *device = calloc(1, sizeof *device);
    struct stat st;
    bool absent = options->create_bytes > 0 && stat(path, &st) != 0 && errno == ENOENT;
    int result;

    if (!device)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory opening %s", path);
    device->base.ops = &plx_aio_ops;
    device->base.read_only = options->read_only;
    device->depth = options->queue_depth ? options->queue_depth : PLX_DEVICE_QUEUE_DEPTH;
    device->fd = -1;
    pthread_mutex_init(&device->lock, NULL);
    pthread_cond_init(&device->got, NULL);
    snprintf(device->base.name, sizeof device->base.name, "%s", path);
    if (absent)
        result = create_file(path, options->create_bytes, fault);
    else
        result = check_kind(path, options, fault);
    device->base.made = absent && result == 0;
    if (result == 0)
        result = open_path(device, fault);
    if (result == 0)
        result = set_up_queue(device, options->waits, fault);
    if (result < 0) {
        if (device->base.made)
            unlink(path);
        plx_aio_close(&device->base);
        return result;
    }
    *ret_device = &device->base;
    return 0;
}
