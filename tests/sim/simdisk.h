/* simdisk.h - a simulated disk: a stable image, and writes that a power cut may keep, lose or tear.
 *
 * The disk outlives the devices that are attached to it, one at a time. A device completes
 * requests from poll() in an order and at times that the seed chooses. A completed write is seen by
 * every later read; it is stable only once a flush submitted after its completion has completed
 * (volatile cache), or at once (write-through).
 *
 * Disks that share a struct plx_simpower lose power together. From then on the attached devices
 * are dead: whatever is under way and whatever comes fails with LOST and changes nothing. The
 * image is then what a new device, attached afterwards, finds.
 */
#ifndef PLX_SIMDISK_H
#define PLX_SIMDISK_H

#include "engine/device.h"
#include "sim/simrng.h"

struct plx_simdisk;

#define PLX_SIMPOWER_DISKS 8

struct plx_simpower {
    struct plx_simdisk *disks[PLX_SIMPOWER_DISKS];
    unsigned count;
    bool off;
    uint64_t events;   /* submissions and completions so far, on all disks */
    uint64_t crash_at; /* power fails with this event; 0: never */
};

/* The power fails now. */
void plx_simpower_cut(struct plx_simpower *power);
/* Power is back; devices may be attached. */
void plx_simpower_restore(struct plx_simpower *power);

struct plx_simdisk_options {
    uint64_t bytes;
    uint32_t block_size; /* 512 or 4096 */
    bool volatile_cache;
    unsigned patience;   /* per cent of polls in which a given request stays pending */
    unsigned tear_bytes; /* smallest unit that is kept or lost whole; 0: block_size */
    uint64_t seed;
};

struct plx_simdisk_counters {
    uint64_t reads, writes, flushes, read_bytes, write_bytes;
    uint64_t kept, lost, torn; /* volatile or pending writes at power cuts */
    uint64_t errors;           /* injected */
};

struct plx_simdisk *plx_simdisk_new(const struct plx_simdisk_options *options,
                                    struct plx_simpower *power);
void plx_simdisk_free(struct plx_simdisk *disk);
/* The disk as a device for the engine, which closes it. */
struct plx_device *plx_simdisk_attach(struct plx_simdisk *disk, const char *name);
void plx_simdisk_resize(struct plx_simdisk *disk, uint64_t bytes);

/* The image as a reader would see it now, and changes behind the engine's back. */
void plx_simdisk_peek(const struct plx_simdisk *disk, uint64_t offset, void *buffer, size_t bytes);
void plx_simdisk_poke(struct plx_simdisk *disk, uint64_t offset, const void *buffer, size_t bytes);
void plx_simdisk_flip(struct plx_simdisk *disk, uint64_t offset, uint8_t mask);
/* A copy of another disk's image; nothing is pending on either. */
void plx_simdisk_copy(struct plx_simdisk *to, const struct plx_simdisk *from);
/* A hash of the image. */
uint64_t plx_simdisk_hash(const struct plx_simdisk *disk);

/* Faults. The k-th I/O from now (1: the next) fails, and `count` in a row; count 0: no more. */
void plx_simdisk_fail_io(struct plx_simdisk *disk, uint64_t k, uint64_t count);
void plx_simdisk_fail_range(struct plx_simdisk *disk, uint64_t offset, uint64_t bytes, bool reads,
                            bool writes);
void plx_simdisk_heal(struct plx_simdisk *disk);

const struct plx_simdisk_counters *plx_simdisk_counters(const struct plx_simdisk *disk);
void plx_simdisk_reset_counters(struct plx_simdisk *disk);

#endif
