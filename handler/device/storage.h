/* storage.h - whether two volumes, whatever their names, share bytes on the same storage.
 *
 * A caller asks before it overwrites a volume, and before it calls one volume a copy of another.
 * Locks cannot answer this (bytelock.h): a lock on a file is not seen through a loop device.
 *
 * The answer looks through the layers below each volume: partitions, loop devices, LVM, device
 * mapper, RAID, and file systems that are on a block device or are btrfs.
 *
 * Caveats:
 * - It knows this host only, and what its kernel tells. Two portals of one iSCSI LUN count as two
 *   volumes, and so do a LUN and the disk that it appears as.
 * - A loop device counts as all of its file, whatever its offset.
 * - Layers below an overlayfs, a ZFS or a network file system are not seen. A file there counts as
 *   storage of its own. Of an overlayfs, /proc/self/mountinfo has the directories as they were
 * named where it was mounted, often in another mount namespace; and a file of a lower directory
 * becomes another one when it is first opened for writing. README.md and the man page warn of it.
 * - A loop device's file is not seen where the device is not in /dev and the path of its file means
 *   another file here, as in some containers.
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
