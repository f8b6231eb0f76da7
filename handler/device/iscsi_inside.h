/* iscsi_inside.h - an open iSCSI LUN, shared by iscsi.c and iscsi_open.c; iscsi.c has the rules. */
#ifndef PLX_ISCSI_INSIDE_H
#define PLX_ISCSI_INSIDE_H

#include "device/bytelock.h"
#include "device/credentials.h"
#include "device/drivers.h"
#include "device/portal.h"

#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <poll.h>

#define COMMAND_TIMEOUT_S 30
#define CONNECT_TIMEOUT_S 10
#define RECONNECTS_MAX 10
#define ANSWER_MAX_S 120
#define WAIT_MS 1000
#define TRIES_MAX 20 /* tries after BUSY and the like, one second apart */
#define TRANSFER_MAX (4u << 20)
#define INITIATOR "iqn.2026-11.org.parallax:"

/* The slot of one request. */
struct transfer {
    struct iscsi_device *device;
    struct plx_io *io;
    size_t done, piece;       /* bytes transferred; bytes of the command in flight */
    struct scsi_iovec *slice; /* the piece's part of the request's memory, if not all of it */
    struct scsi_task *task;   /* the command that libiscsi has; NULL: none */
    unsigned tries, seconds;  /* seconds: how long libiscsi has had the command */
    struct transfer *next;    /* in the list `free` or `again` */
};

struct iscsi_device {
    struct plx_device base;
    struct iscsi_context *iscsi; /* NULL: the LUN is lost */
    int lun;
    int epoll_fd, timer_fd;
    struct pollfd watched; /* what epoll was told of the socket */
    bool ended;            /* the socket has ended; looked at again with the timer's next second */
    uint32_t transfer_max;
    struct plx_io_queue waiting, finished;
    struct transfer *transfers, *free, *again;
    unsigned depth, busy;
};

static inline struct iscsi_device *lun(struct plx_device *device)
{
    return (struct iscsi_device *)device;
}

/* iscsi.c */
void plx_iscsi_watch(struct iscsi_device *device, bool anew);
void plx_iscsi_close(struct plx_device *base);

extern const struct plx_device_ops plx_iscsi_ops;

#endif
