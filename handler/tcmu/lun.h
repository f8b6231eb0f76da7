/* lun.h - a LUN: one exported virtual disk or snapshot, and its place in an open store.
 *
 * plugin.c makes it when tcmu-runner opens a device and frees it when tcmu-runner closes the
 * device. In between only the atomic fields, the ops of io.c and the fields of limits.c change.
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

/* Unit attentions that the next command reports (scsi.c). */
enum plx_attention {
    PLX_ATTENTION_CHANGED = 1,   /* a rewind has changed the contents */
    PLX_ATTENTION_THRESHOLD = 2, /* a soft limit was crossed */
};

struct plx_lun {
    struct plx_lun *next; /* of the same store */
    struct tcmu_device *device;
    struct plx_lun_config config;
    struct plx_store_home *home;
    struct plx_loop *loop; /* the same as home->loop */
    struct plx_vdi *vdi;
    bool read_only;
    uint32_t sector_size;
    _Atomic uint64_t size_bytes;
    atomic_bool write_back;
    atomic_uint attentions; /* a set of enum plx_attention */
    /* limits.c: the soft limit in bytes, 0: none; whether it is crossed. */
    _Atomic uint64_t warn_bytes;
    bool warned;
    /* io.c */
    pthread_mutex_t ops_lock;
    struct plx_lun_io *ops, *free_ops;
    /* IO-6: the last second in which a request failed, and how many did. */
    uint64_t complaints_second;
    unsigned complaints;
};

#endif
