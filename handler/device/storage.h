/* storage.h - whether two volumes, by whatever names, end in the same bytes.
 *
 * For who is about to overwrite one, and for who takes one for another's copy. Locks are another
 * matter (bytelock.h): those of a file are not seen through a loop device over it.
 *
 * A volume lies in a disk, in a file, in the file system that has the file, and so on down: through
 * partitions, loop devices, LVM, device mapper and RAID, and the file systems that are on a block
 * device or are btrfs.
 *
 * Caveats: this host only, and what its kernel tells. Two portals of one iSCSI LUN are two volumes,
 * and so are a LUN and the disk that it shows up as. A loop device is all of its file, whatever its
 * offset. The layers below an overlayfs, a ZFS or a network file system are not seen: a file there
 * is itself and lies in nothing. Nor is a loop device's file where the device is not to be found
 * in /dev and the path of its file means another one here, as in some containers.
 */
#ifndef PLX_STORAGE_H
#define PLX_STORAGE_H

enum plx_overlap {
    PLX_APART,       /* also where one of them is not there, or cannot be looked at */
    PLX_OVERLAPPING, /* a part, or what is built on it: a partition and its disk, say */
    PLX_SAME,
};

/* Names as for plx_device_open(). */
enum plx_overlap plx_storage_compare(const char *one, const char *other);

#endif
