/* lun.h - one exported virtual disk, and its place in an open store.
 *
 * Made by plugin.c when tcmu-runner opens a device, gone when it closes it. In between nothing in
 * it changes but the size and what is under way.
 */
#ifndef PLX_LUN_H
#define PLX_LUN_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine/engine.h"
#include "tcmu/config.h"

struct tcmu_device;
struct plx_loop;
struct plx_store_home;
struct plx_lun_io;

/* What the next command is told by a unit attention (scsi.c). */
enum plx_attention {
    PLX_ATTENTION_CHANGED = 1,   /* the contents may be others: a rewind */
    PLX_ATTENTION_THRESHOLD = 2, /* a soft limit was crossed */
};

struct plx_lun {
    struct plx_lun *next; /* of the same store */
    struct tcmu_device *device;
    struct plx_lun_config config;
    struct plx_store_home *home;
    struct plx_loop *loop; /* the home's */
    struct plx_vdi *vdi;
    bool read_only;
    uint32_t sector_size;
    _Atomic uint64_t size_bytes;
    atomic_bool write_back;
    atomic_uint attentions; /* enum plx_attention, any of them */
    /* limits.c: the soft limit, 0: none; whether it is crossed. */
    _Atomic uint64_t warn_bytes;
    bool warned;
    /* io.c */
    pthread_mutex_t ops_lock;
    struct plx_lun_io *ops, *free_ops;
    uint64_t complaints_second; /* of failed requests, and how many came in it */
    unsigned complaints;
};

#endif
