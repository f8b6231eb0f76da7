/* transfer.h - what commands share that move data: a ring of requests, differences, files.
 *
 * All functions return 0 or an error code with cli->fault filled.
 */
#ifndef PLX_ADMIN_TRANSFER_H
#define PLX_ADMIN_TRANSFER_H

#include "cli.h"

#define PLX_RING_DEPTH 8
#define PLX_RING_CHUNK (1u << 20)

/* ---- A ring of requests: up to PLX_RING_DEPTH chunks are under way ---- */

struct plx_slot {
    struct plx_request request;
    struct iovec iov;
    uint8_t *buffer;
    bool under_way, full; /* full: not yet given out */
    bool zero;            /* a range of zeroes, nothing was read */
};

struct plx_ring {
    struct plx_cli *cli;
    struct plx_vdi *vdi;
    struct plx_slot slots[PLX_RING_DEPTH];
    unsigned next;
    uint8_t *memory;
    /* What to do with a chunk that was read, in order; bytes NULL: zeroes. NULL when writing. */
    int (*give)(void *context, uint64_t offset, const uint8_t *bytes, uint64_t length);
    void *context;
};

int plx_ring_init(struct plx_ring *ring, struct plx_cli *cli, struct plx_vdi *vdi);
/* The next slot in turn, free to be filled. */
int plx_ring_take(struct plx_ring *ring, struct plx_slot **ret_slot);
void plx_ring_submit(struct plx_ring *ring, struct plx_slot *slot, enum plx_request_op op,
                     uint64_t offset, uint64_t length);
/* Writes (bytes NULL: unmaps) up to a chunk. */
int plx_ring_put(struct plx_ring *ring, uint64_t offset, const uint8_t *bytes, uint64_t length);
/* Settles all, oldest first, and frees the memory. Returns rc or the first failure. */
int plx_ring_done(struct plx_ring *ring, int rc);

/* ---- Differences ---- */

struct plx_diff_sum {
    uint64_t ranges, data_bytes, zero_bytes;
};
int plx_diff_sum(struct plx_cli *cli, struct plx_vdi *from, struct plx_vdi *to,
                 struct plx_diff_sum *ret_sum);
/* Gives out what differs: ring->vdi as it is compared with `from` (NULL: nothing mapped). */
int plx_copy_diff(struct plx_ring *ring, struct plx_vdi *from);

/* Gives out a chunk in runs of zero (bytes NULL) and of other blocks. */
int plx_for_runs(uint64_t offset, const uint8_t *bytes, size_t length,
                 int (*give)(void *context, uint64_t offset, const uint8_t *bytes, uint64_t length),
                 void *context);

/* ---- Files ---- */

int plx_file_error(struct plx_cli *cli, const char *path, const char *what);
/* "-" is standard input. */
int plx_file_open_input(struct plx_cli *cli, const char *path, int *ret_fd);
/* Reads until the buffer is full; less only at the end of the file. */
int plx_file_read(struct plx_cli *cli, const char *path, int fd, uint8_t *bytes, size_t length,
                  size_t *ret_got);

struct plx_output {
    struct plx_cli *cli;
    const char *path;
    int fd;
    bool created, regular;
};

/* "-" is standard output, which must not be a terminal. A file that exists needs --force. */
int plx_output_open(struct plx_output *output, struct plx_cli *cli, const char *path);
/* At a place of a regular file, else (offset UINT64_MAX) where it stands. */
int plx_output_write(struct plx_output *output, const uint8_t *bytes, size_t length,
                     uint64_t offset);
/* Makes it durable; what it created is removed when something failed. Returns rc or the first
 * failure. */
int plx_output_close(struct plx_output *output, int rc);

#endif
