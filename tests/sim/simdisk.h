/* simdisk.h - a simulated disk: a stable image, and writes that a power cut may keep, lose or tear.
 *
 * The disk outlives the devices that are attached to it, one for each host. A device completes
 * requests from poll() in an order and at times that the seed chooses. A completed write is seen by
 * every later read; it is stable only once a flush submitted after its completion has completed
 * (volatile cache), or at once (write-through).
 *
 * Disks that share a struct plx_simpower lose power together. From then on the attached devices
 * are dead: whatever is under way and whatever comes fails with LOST and changes nothing. The
 * image is then what a new device, attached afterwards, finds. A single device can be stopped, too:
 * its host died, or its reservation was preempted; the others go on.
 *
 * At any event the disks can be forked: copies as a power cut at this moment would leave them, for
 * a chosen fate of each volatile write, while the original goes on. Copies share memory.
 */
#ifndef PLX_SIMDISK_H
#define PLX_SIMDISK_H

#include "engine/base/device.h"
#include "sim/simrng.h"

struct plx_simdisk;

#define PLX_SIMPOWER_DISKS 8

struct plx_simpower {
    struct plx_simdisk *disks[PLX_SIMPOWER_DISKS];
    unsigned count;
    bool off;
    uint64_t events;   /* submissions and completions so far, on all disks */
    uint64_t crash_at; /* power fails with this event; 0: never */
    /* After each event, from inside the device: may fork, must not touch the disks. May be NULL. */
    void (*on_event)(void *context);
    void *context;
};

/* The power fails now. */
void plx_simpower_cut(struct plx_simpower *power);
/* Power is back; devices may be attached. */
/* The power of this disk alone; what had it attached gets nothing from it any more. */
void plx_simdisk_cut(struct plx_simdisk *disk);
void plx_simpower_restore(struct plx_simpower *power);

/* What a power cut does to a volatile write. */
enum plx_simfate {
    PLX_FATE_LOST,
    PLX_FATE_KEPT,
    PLX_FATE_HEAD, /* torn: some of its first units are kept */
    PLX_FATE_TAIL, /* some of its last */
    PLX_FATE_ANY,  /* any of its units */
};

/* Writes that a power cut now may lose: for each disk those completed since its last flush, in
 * order, then those under way. */
unsigned plx_simpower_volatile(const struct plx_simpower *power);
/* Copies of all disks as a power cut now would leave them, in the same order, without power;
 * fates has an enum plx_simfate for each volatile write, the seed chooses where torn ones break. */
void plx_simpower_fork(const struct plx_simpower *power, const uint8_t *fates, uint64_t seed,
                       struct plx_simpower *ret_power);
/* Of all disks' stable images: equal for equal bytes. */
uint64_t plx_simpower_hash(const struct plx_simpower *power);

struct plx_simdisk_options {
    uint64_t bytes;
    uint32_t block_size; /* 512 or 4096 */
    bool volatile_cache;
    unsigned patience;   /* per cent of polls in which a given request stays pending */
    unsigned stalls;     /* per cent of requests that stay pending for up to a hundred events */
    unsigned tear_bytes; /* smallest unit that is kept or lost whole; 0: block_size */
    uint64_t seed;
};

struct plx_simdisk_counters {
    uint64_t reads, writes, flushes, read_bytes, write_bytes;
    uint64_t kept, lost, torn; /* volatile or pending writes at power cuts */
    uint64_t errors;           /* injected */
    uint64_t dropped;          /* writes, by flushes that failed */
};

struct plx_simdisk *plx_simdisk_new(const struct plx_simdisk_options *options,
                                    struct plx_simpower *power);
void plx_simdisk_free(struct plx_simdisk *disk);
/* The disk as a device for a host's engine, which closes it. */
struct plx_device *plx_simdisk_attach(struct plx_simdisk *disk, const char *name);
/* The device's host has died (LOST), or another host has preempted its reservation (FENCED): what
 * is under way is kept, lost or torn, and everything fails with this error from now on. */
void plx_simdisk_stop(struct plx_device *device, int error);
/* 100: nothing completes until that is less. */
void plx_simdisk_set_patience(struct plx_simdisk *disk, unsigned per_cent);
void plx_simdisk_resize(struct plx_simdisk *disk, uint64_t bytes);
uint64_t plx_simdisk_bytes(const struct plx_simdisk *disk);

/* The image as a reader would see it now, and changes behind the engine's back. */
void plx_simdisk_peek(const struct plx_simdisk *disk, uint64_t offset, void *buffer, size_t bytes);
/* What would be left of it if the power failed now and all that is volatile were lost. */
void plx_simdisk_peek_stable(const struct plx_simdisk *disk, uint64_t offset, void *buffer,
                             size_t bytes);
void plx_simdisk_poke(struct plx_simdisk *disk, uint64_t offset, const void *buffer, size_t bytes);
void plx_simdisk_flip(struct plx_simdisk *disk, uint64_t offset, uint8_t mask);
/* A copy of another disk's image; nothing is pending on either. */
void plx_simdisk_copy(struct plx_simdisk *to, const struct plx_simdisk *from);
/* A hash of the image as a reader would see it. */
uint64_t plx_simdisk_hash(const struct plx_simdisk *disk);

/* The k-th flush from now (1: the next; 0: none) fails, and what it was to make stable never will
 * be: each write is kept, lost or torn, readers see all of it until the power is cut, and no later
 * flush covers it. So does a cache that drops what it could not write (a loop device, a file behind
 * a target). */
void plx_simdisk_drop_flush(struct plx_simdisk *disk, uint64_t k);
/* Whether that has happened since the power was last cut. */
bool plx_simpower_dropped(const struct plx_simpower *power);
/* Faults. The k-th I/O from now (1: the next) fails, and `count` in a row; count 0: no more. */
void plx_simdisk_fail_io(struct plx_simdisk *disk, uint64_t k, uint64_t count);
void plx_simdisk_fail_range(struct plx_simdisk *disk, uint64_t offset, uint64_t bytes, bool reads,
                            bool writes);
/* The next read of data or of a node returns success and other bytes. Structures that vouch for
 * themselves only (records, extent pages, log) are left alone: an old one of those is believed. */
enum plx_simlie {
    PLX_LIE_NONE,
    PLX_LIE_ROT,         /* a bit flipped */
    PLX_LIE_MISDIRECTED, /* what lies elsewhere */
    PLX_LIE_STALE,       /* what lay there when this was called */
};
void plx_simdisk_lie(struct plx_simdisk *disk, enum plx_simlie lie);
void plx_simdisk_heal(struct plx_simdisk *disk);

const struct plx_simdisk_counters *plx_simdisk_counters(const struct plx_simdisk *disk);
void plx_simdisk_reset_counters(struct plx_simdisk *disk);

#endif
