/* storage.c - see storage.h.
 *
 * STORAGE-1  A place is a file, by file system and inode, or a block device, by its number. A
 *     volume has places of its own, which are all of it, and places below it, which it lies in or
 *     is built on.
 * STORAGE-2  Two volumes are the same where a place of their own is shared, and overlap where one's
 *     own is below the other. Two that only have something below them in common, such as partitions
 *     of one disk or files of one file system, are apart.
 * STORAGE-3  Nothing is opened for writing: closing such a descriptor makes udev look at a device
 *     anew.
 * STORAGE-4  Each place that is found is asked in turn what it lies in or is built on. So it does
 *     not matter how many layers there are, nor in which order. Only a volume's own places lead to
 *     further ones of its own, and they are a chain of loop devices, so they come first in the
 *     list.
 * STORAGE-5  What a loop device shows it says itself, by file system and inode. The path that the
 *     kernel has for it counts only where the device cannot be opened: the file may have been
 *     deleted, or the path may mean another file in this mount namespace.
 * Threads: any.
 * Crash story: nothing is written here.
 */
#include "device/storage.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/btrfs.h>
#include <linux/loop.h>
#include <linux/major.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "device/bytelock.h"
#include "engine/engine.h"

#define PLACES_MAX 128u /* more, of a device built on so many, are not looked at */
#define BLOCK_DEVICE UINT64_MAX
#define SYS_NUMBER "/sys/dev/block/%u:%u"

struct storage_place { /* STORAGE-1 */
    uint64_t device, inode;
};

struct storage {
    const char *name;                       /* by which it is looked at */
    struct storage_place place[PLACES_MAX]; /* its own come first */
    unsigned own, count;
};

static bool is_same_place(const struct storage_place *one, const struct storage_place *other)
{
    return one->device == other->device && one->inode == other->inode;
}

/* false: it is there already, or there is no room. */
static bool add(struct storage *storage, struct storage_place place, bool own)
{
    for (unsigned i = 0; i < storage->count; i++)
        if (is_same_place(&storage->place[i], &place))
            return false;
    if (storage->count == PLACES_MAX)
        return false;
    storage->place[storage->count++] = place;
    storage->own += own;
    return true;
}

/* ---- Block devices ----------------------------------------------------------------------- */

static struct storage_place numbered(dev_t number)
{
    return (struct storage_place){BLOCK_DEVICE, number};
}

static bool is_partition(dev_t number)
{
    char path[64];

    snprintf(path, sizeof path, SYS_NUMBER "/partition", major(number), minor(number));
    return access(path, F_OK) == 0;
}

/* The number in a file of /sys, as it writes them: MAJOR:MINOR. */
static bool read_number(const char *path, dev_t *ret_number)
{
    FILE *file = fopen(path, "re");
    unsigned high, low;
    bool found = file && fscanf(file, "%u:%u", &high, &low) == 2;

    if (file)
        fclose(file);
    if (found)
        *ret_number = makedev(high, low);
    return found;
}

/* What is below: the block devices in a folder of /sys. */
static void add_each(struct storage *storage, const char *folder)
{
    DIR *entries = opendir(folder);
    struct dirent *entry;
    char path[PATH_MAX];
    dev_t number;

    while (entries && (entry = readdir(entries))) {
        snprintf(path, sizeof path, "%s/%s/dev", folder, entry->d_name);
        if (entry->d_name[0] != '.' && read_number(path, &number))
            add(storage, numbered(number), false);
    }
    if (entries)
        closedir(entries);
}

/* ---- Files ------------------------------------------------------------------------------- */

static bool is_same_file(const struct stat *one, const struct stat *other)
{
    return one->st_dev == other->st_dev && one->st_ino == other->st_ino;
}

/* A file of btrfs has a number that is no block device's, and btrfs may have several of those. */
static void add_btrfs(struct storage *storage, const char *name, const struct stat *file)
{
    int fd = open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* STORAGE-3 */
    struct btrfs_ioctl_fs_info_args info = {0};
    char text[PLX_UUID_TEXT], folder[96];
    struct plx_uuid id;
    struct stat st;

    if (fd < 0)
        return;
    if (!fstat(fd, &st) && is_same_file(&st, file) && !ioctl(fd, BTRFS_IOC_FS_INFO, &info)) {
        memcpy(id.b, info.fsid, sizeof id.b);
        plx_uuid_text(&id, text);
        snprintf(folder, sizeof folder, "/sys/fs/btrfs/%s/devices", text);
        add_each(storage, folder);
    }
    close(fd);
}

/* A file, with the block devices that its file system is on, or a block device. */
static void add_stated(struct storage *storage, const char *name, const struct stat *st, bool own)
{
    if (S_ISBLK(st->st_mode)) {
        add(storage, numbered(st->st_rdev), own);
        return;
    }
    add(storage, (struct storage_place){st->st_dev, st->st_ino}, own);
    if (major(st->st_dev))
        add(storage, numbered(st->st_dev), false);
    else
        add_btrfs(storage, name, st);
}

/* ---- Loop devices ------------------------------------------------------------------------ */

/* The name of a block device as the kernel gave it. */
static void name_device(dev_t number, char ret_name[PATH_MAX])
{
    char path[64], link[PATH_MAX - 8];
    const char *last;
    ssize_t length;

    snprintf(path, sizeof path, SYS_NUMBER, major(number), minor(number));
    length = readlink(path, link, sizeof link - 1);
    link[length < 0 ? 0 : length] = '\0';
    last = strrchr(link, '/');
    snprintf(ret_name, PATH_MAX, "/dev/%s", last ? last + 1 : link);
}

/* The path of the file or device that a loop device shows, as the kernel has it; "": none. */
static void read_backing_file(dev_t number, char ret_path[PATH_MAX])
{
    char path[96];
    size_t length = 0;
    FILE *file;

    snprintf(path, sizeof path, SYS_NUMBER "/loop/backing_file", major(number), minor(number));
    file = fopen(path, "re");
    if (file) {
        length = fread(ret_path, 1, PATH_MAX - 1, file);
        fclose(file);
    }
    ret_path[length ? length - 1 : 0] = '\0'; /* without the end of the line */
}

/* STORAGE-5. false: `name` is not that device, or it cannot be opened, or it shows nothing. */
static bool ask_loop(const char *name, dev_t number, struct stat *ret_shown)
{
    int fd = open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* STORAGE-3 */
    struct loop_info64 loop;
    struct stat st;
    bool told = fd >= 0 && !fstat(fd, &st) && S_ISBLK(st.st_mode) && st.st_rdev == number &&
                !ioctl(fd, LOOP_GET_STATUS64, &loop);

    if (fd >= 0)
        close(fd);
    if (told)
        *ret_shown = (struct stat){.st_mode = loop.lo_rdevice ? S_IFBLK : S_IFREG,
                                   .st_dev = loop.lo_device,
                                   .st_ino = loop.lo_inode,
                                   .st_rdev = loop.lo_rdevice};
    return told;
}

/* What a loop device shows is all of it, whatever its offset. */
static void add_loop(struct storage *storage, unsigned at)
{
    dev_t number = storage->place[at].inode;
    char name[PATH_MAX], file[PATH_MAX];
    struct stat shown;

    if (major(number) != LOOP_MAJOR || is_partition(number))
        return;
    name_device(number, name);
    read_backing_file(number, file);
    if ((at == 0 && ask_loop(storage->name, number, &shown)) || ask_loop(name, number, &shown) ||
        stat(file, &shown) == 0)
        add_stated(storage, file, &shown, at < storage->own);
}

/* ---- Layers ------------------------------------------------------------------------------ */

static void add_below_device(struct storage *storage, unsigned at)
{
    dev_t number = storage->place[at].inode, disk;
    char path[96];

    snprintf(path, sizeof path, SYS_NUMBER "/../dev", major(number), minor(number));
    if (is_partition(number) && read_number(path, &disk))
        add(storage, numbered(disk), false);
    snprintf(path, sizeof path, SYS_NUMBER "/slaves", major(number), minor(number));
    add_each(storage, path);
    add_loop(storage, at);
}

/* STORAGE-4 */
static void find(const char *name, struct storage *ret_storage)
{
    struct stat st;

    ret_storage->name = name;
    ret_storage->own = ret_storage->count = 0;
    if (stat(name, &st))
        return;
    add_stated(ret_storage, name, &st, true);
    for (unsigned at = 0; at < ret_storage->count; at++)
        if (ret_storage->place[at].device == BLOCK_DEVICE)
            add_below_device(ret_storage, at);
}

/* ---- Comparing --------------------------------------------------------------------------- */

/* STORAGE-2. Of the first one's own. */
static enum plx_overlap compare(const struct storage *one, const struct storage *other)
{
    enum plx_overlap found = PLX_APART;

    for (unsigned i = 0; i < one->own; i++)
        for (unsigned j = 0; j < other->count; j++)
            if (is_same_place(&one->place[i], &other->place[j])) {
                if (j < other->own)
                    return PLX_SAME;
                found = PLX_OVERLAPPING;
            }
    return found;
}

enum plx_overlap plx_storage_compare(const char *one, const char *other)
{
    char lun[2][NAME_MAX + 1];
    struct storage here, there;
    enum plx_overlap found;

    if (plx_bytelock_is_lun(one) && plx_bytelock_is_lun(other))
        return !plx_bytelock_lun_name(one, lun[0], NULL) &&
                       !plx_bytelock_lun_name(other, lun[1], NULL) && strcmp(lun[0], lun[1]) == 0
                   ? PLX_SAME
                   : PLX_APART;
    find(one, &here);
    find(other, &there);
    found = compare(&here, &there);
    return found != PLX_APART ? found : compare(&there, &here);
}
