/* storage.c - see storage.h.
 *
 * STORAGE-1  A place is a file, by file system and inode, or a block device, by its number. A
 *     volume has places of its own, which are all of it, and places below it, which it lies in or
 *     is built on.
 * STORAGE-2  Two volumes are the same where a place of their own is shared, and overlap where one's
 *     own is below the other. Two that only have something below them in common, such as partitions
 *     of one disk, are apart.
 * STORAGE-3  Nothing is opened for writing: closing such a descriptor makes udev look at a device
 *     anew.
 * Threads: any.
 * Crash story: nothing is written here.
 */
#include "device/storage.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/loop.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "device/bytelock.h"

#define PLACES_MAX 128u /* more, of a device built on so many, are not looked at */
#define BLOCK_DEVICE UINT64_MAX
#define SYS_NUMBER "/sys/dev/block/%u:%u"

struct place { /* STORAGE-1 */
    uint64_t device, inode;
};

struct storage {
    struct place place[PLACES_MAX]; /* its own come first */
    unsigned own, count;
};

static bool is_same_place(const struct place *one, const struct place *other)
{
    return one->device == other->device && one->inode == other->inode;
}

/* false: it is there already, or there is no room. */
static bool add(struct storage *storage, struct place place, bool own)
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

static struct place numbered(dev_t number)
{
    return (struct place){BLOCK_DEVICE, number};
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

/* From `at` on: for each block device in the list what it lies in or is built on follows. */
static void add_below(struct storage *storage, unsigned at)
{
    for (; at < storage->count; at++) {
        const struct place *place = &storage->place[at];
        dev_t number = place->inode, below;
        struct dirent *entry;
        char path[PATH_MAX];
        DIR *folder;

        if (place->device != BLOCK_DEVICE)
            continue;
        snprintf(path, sizeof path, SYS_NUMBER "/../dev", major(number), minor(number));
        if (is_partition(number) && read_number(path, &below))
            add(storage, numbered(below), false);
        snprintf(path, sizeof path, SYS_NUMBER "/slaves", major(number), minor(number));
        folder = opendir(path);
        while (folder && (entry = readdir(folder))) {
            snprintf(path, sizeof path, SYS_NUMBER "/slaves/%s/dev", major(number), minor(number),
                     entry->d_name);
            if (entry->d_name[0] != '.' && read_number(path, &below))
                add(storage, numbered(below), false);
        }
        if (folder)
            closedir(folder);
    }
}

/* What a loop device shows is its own; a partition of one lies in that. */
static void add_loop(struct storage *storage, int fd, bool own)
{
    struct loop_info64 loop;

    if (ioctl(fd, LOOP_GET_STATUS64, &loop))
        return;
    if (loop.lo_rdevice)
        add(storage, numbered(loop.lo_rdevice), own);
    else
        add(storage, (struct place){loop.lo_device, loop.lo_inode}, own);
}

static void find_block_device(const char *name, dev_t number, struct storage *ret_storage)
{
    int fd = open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* STORAGE-3 */

    add(ret_storage, numbered(number), true);
    if (fd >= 0) {
        add_loop(ret_storage, fd, !is_partition(number));
        close(fd);
    }
    add_below(ret_storage, 0);
}

/* ---- Comparing --------------------------------------------------------------------------- */

static void find(const char *name, struct storage *ret_storage)
{
    struct stat st;

    ret_storage->own = ret_storage->count = 0;
    if (stat(name, &st))
        return;
    if (S_ISBLK(st.st_mode))
        find_block_device(name, st.st_rdev, ret_storage);
    else
        add(ret_storage, (struct place){st.st_dev, st.st_ino}, true);
}

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
