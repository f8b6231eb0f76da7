/* transfer.h - what commands share that move data: a queue of requests, differences, files.
 *
 * All functions return 0 or an error code with cli->fault filled.
 */
#ifndef PLX_ADMIN_TRANSFER_H
#define PLX_ADMIN_TRANSFER_H

#include "cli.h"

#define PLX_TRANSFER_DEPTH 8
#define PLX_TRANSFER_CHUNK (1u << 20)

/* ---- A ring of requests: up to PLX_TRANSFER_DEPTH chunks are under way ---- */

struct plx_transfer_slot {
    struct plx_request request;
    struct iovec iov;
    uint8_t *buffer;
    bool under_way, full; /* full: not yet given out */
    bool zero;            /* a range of zeroes, nothing was read */
    bool lost;            /* one that cannot be read */
};

struct plx_import_mark {
    uint64_t epoch; /* of the disk's lock; 0: it was not opened */
};

struct plx_transfer {
    struct plx_cli *cli;
    struct plx_vdi *vdi;
    struct plx_transfer_slot slots[PLX_TRANSFER_DEPTH];
    unsigned next;
    uint8_t *memory;
    /* What to do with a chunk that was read, in order; bytes NULL: zeroes. NULL when writing. */
    int (*give)(void *context, uint64_t offset, const uint8_t *bytes, uint64_t length);
    /* What cannot be read, in order, block by block; then it is given as zeroes, if at all. NULL: a
     * failure of the whole. */
    void (*lost)(void *context, uint64_t offset, uint64_t length);
    void *context;
};

int plx_transfer_init(struct plx_transfer *transfer, struct plx_cli *cli, struct plx_vdi *vdi);
/* The next slot in turn, free to be filled. */
int plx_transfer_take(struct plx_transfer *transfer, struct plx_transfer_slot **ret_slot);
void plx_transfer_submit(struct plx_transfer *transfer, struct plx_transfer_slot *slot,
                         enum plx_request_op op, uint64_t offset, uint64_t length);
/* Writes (bytes NULL: unmaps) up to a chunk. */
int plx_transfer_put(struct plx_transfer *transfer, uint64_t offset, const uint8_t *bytes,
                     uint64_t length);
/* Unmaps the range. Takes time proportional to the mapped data, not to the range. No write to the
 * range may be in flight. */
int plx_transfer_clear(struct plx_transfer *transfer, uint64_t offset, uint64_t length);
/* Settles all, oldest first, and frees the memory. Returns rc or the first failure. */
int plx_transfer_done(struct plx_transfer *transfer, int rc);

/* How many bytes of a disk are mapped; stops at the first ones unless `all`. */
int plx_mapped_sum(struct plx_cli *cli, struct plx_vdi *vdi, bool all, uint64_t *ret_bytes);

/* ---- Differences ---- */

struct plx_diff_sum {
    uint64_t ranges, data_bytes, zero_bytes;
};
int plx_diff_sum(struct plx_cli *cli, struct plx_vdi *from, struct plx_vdi *to,
                 struct plx_diff_sum *ret_sum);
/* Gives out what differs: transfer->vdi as it is compared with `from` (NULL: nothing mapped). */
int plx_copy_diff(struct plx_transfer *transfer, struct plx_vdi *from);
/* Gives out all of transfer->vdi that is mapped and can be read; transfer->lost is told of the
 * rest. */
int plx_copy_readable(struct plx_transfer *transfer);

/* Gives out a chunk in runs of zero (bytes NULL) and of other blocks. */
int plx_for_runs(uint64_t offset, const uint8_t *bytes, size_t length,
                 int (*give)(void *context, uint64_t offset, const uint8_t *bytes, uint64_t length),
                 void *context);

/* After an import that failed: deletes the virtual disk again if it was made for that, else says
 * that it holds a part, if it was written to. The fault stays, with what is there now and what to
 * do. */
void plx_import_undo(struct plx_cli *cli, const struct plx_name *name,
                     const struct plx_import_mark *mark, bool created, bool touched);
/* Remembers how often the disk that this command has open was locked so far. If another process
 * locked the disk between its creation and this opening, or after this command closed it, the disk
 * is no longer this command's, and plx_import_undo() leaves it alone. In the first case *created
 * becomes false: the disk counts as one that existed before.
 */
int plx_import_mark(struct plx_cli *cli, const struct plx_name *name, bool *created,
                    struct plx_import_mark *ret_mark);

/* ---- Files ---- */

/* "-" is standard input. */
int plx_file_open_input(struct plx_cli *cli, const char *path, int *ret_fd);
/* Reads until the buffer is full; less only at the end of the file. */
int plx_file_read(struct plx_cli *cli, const char *path, int fd, uint8_t *bytes, size_t length,
                  size_t *ret_got);

/* What a command writes. A regular file is written under another name in the same folder and gets
 * its own at the end: nobody sees a part of it, and one that it replaces is there until then. A
 * block device, a pipe and standard output are written directly. */
struct plx_output {
    struct plx_cli *cli;
    const char *path; /* as it was given */
    int fd;
    bool regular;
    char *partial, *target; /* of a regular file: its name until the end, and then */
};

/* "-" is standard output, which must not be a terminal. What exists needs --force, but for a pipe;
 * a volume of a store is never written. device_ok: a block device may be. */
int plx_output_open(struct plx_output *output, struct plx_cli *cli, const char *path,
                    bool device_ok);
/* Before anything is written, once the number of bytes is known: a full file system, a limit or a
 * device that is too small shows. */
int plx_output_fit(struct plx_output *output, uint64_t bytes);
/* At a place of a regular file, else (offset UINT64_MAX) where it stands. */
int plx_output_write(struct plx_output *output, const uint8_t *bytes, size_t length,
                     uint64_t offset);
/* rc 0: makes it durable, under its name. Else what was written to a file goes again. Returns rc or
 * the first failure. */
int plx_output_close(struct plx_output *output, int rc);

#endif
