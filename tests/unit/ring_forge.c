/* ring_forge.c - rings as a handler leaves them, for shell tests.
 *
 *   ring-forge append VDI EPOCH COUNT PATH [PATH]
 *       opens the ring, gives the disk a new proof, appends so many one-block writes of it
 *   ring-forge mark VOLUME VDI PATH
 *       the disk's record, in both copies, names the ring and the disk's newest proof there, since
 *       the disk's first epoch
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach/attach_inside.h"
#include "engine/ring/ring.h"

static struct plx_fault fault;

static int say(const char *what, int error)
{
    fprintf(stderr, "ring-forge: %s: %s\n", what, fault.code ? fault.text : plx_error_text(error));
    return 1;
}

static void appended(struct plx_ring_item *item)
{
    ++*(unsigned *)item->owner;
}

static int append_records(struct plx_ring *ring, struct plx_ring_chain *chain, unsigned count)
{
    static uint8_t block[PLX_BLOCK_SIZE] = "a write that was acknowledged";
    struct iovec iov = {block, sizeof block};
    unsigned done = 0;

    for (unsigned i = 0; i < count; i++) {
        struct plx_ring_item item = {
            .record = {.type = PLX_RING_WRITE, .block = i, .blocks = 1},
            .iov = &iov,
            .iovcnt = 1,
            .done = appended,
            .owner = &done,
        };

        plx_ring_append(chain, &item);
        while (done == i)
            if (!plx_ring_turn(ring))
                plx_ring_wait(ring);
        if (item.error)
            return item.error;
    }
    return 0;
}

struct forged {
    struct plx_device *devices[PLX_RING_MEMBERS];
    unsigned members;
    struct plx_env env;
    struct plx_ring *ring;
    struct plx_ring_chain *chain;
};

/* The disk's chain, with a proof that nobody's record names yet. */
static int open_chain(struct forged *f, char **paths, unsigned members, const char *vdi,
                      uint64_t epoch)
{
    struct plx_ring_chain_options options = {.epoch = epoch};
    struct plx_ring_chain_info chain = {0};
    struct plx_ring_info info;
    int error = 0;

    *f = (struct forged){.members = members};
    plx_attach_init_env(&f->env);
    plx_uuid_parse(vdi, &options.vdi);
    for (unsigned i = 0; i < members && !error; i++)
        error = plx_device_open(paths[i], NULL, &f->devices[i], &fault);
    if (!error)
        error = plx_ring_open(f->devices, members, &(struct plx_ring_options){.env = &f->env},
                              &f->ring, &fault);
    if (!error)
        error = plx_ring_chain_open(f->ring, &options, &f->chain, &fault);
    if (error)
        return error;
    plx_ring_chain_prove(f->chain);
    for (; !chain.proof; plx_ring_chain_get_info(f->chain, &chain))
        if (!plx_ring_turn(f->ring))
            plx_ring_wait(f->ring);
    plx_ring_get_info(f->ring, &info);
    plx_ring_chain_marked(f->chain, &(struct plx_ring_mark){.ring = info.super.ring,
                                                            .set = info.super.set,
                                                            .proof = chain.proof,
                                                            .since = 1});
    return 0;
}

static void close_chain(struct forged *f)
{
    plx_ring_chain_close(f->chain);
    plx_ring_close(f->ring);
    for (unsigned i = 0; i < f->members; i++)
        plx_device_close(f->devices[i]);
}

static int append(char **argv, unsigned members)
{
    struct forged f;
    int error = open_chain(&f, argv + 3, members, argv[0], strtoull(argv[1], NULL, 10));

    if (!error)
        error = append_records(f.ring, f.chain, (unsigned)strtoul(argv[2], NULL, 10));
    if (error)
        return say(argv[3], error);
    close_chain(&f);
    return 0;
}

/* Of the newest segment of the disk; 0: it has none. */
static uint64_t newest_proof(int fd, const struct plx_ring_super *super, const struct plx_uuid *vdi)
{
    uint64_t segment_bytes = (uint64_t)super->segment_blocks * PLX_BLOCK_SIZE;
    struct plx_ring_segment head, newest = {.epoch = 0};
    uint8_t block[PLX_BLOCK_SIZE];

    for (uint32_t s = 0; s < super->segments; s++)
        if (pread(fd, block, sizeof block, (off_t)(PLX_RING_SEGMENTS_AT + s * segment_bytes)) ==
                sizeof block &&
            plx_format_ring_segment_decode(block, &super->ring, &head, NULL) == 0 &&
            plx_uuid_equal(&head.vdi, vdi) && head.epoch >= newest.epoch)
            newest = head;
    return newest.proof;
}

/* The disk's newest proof on the ring, or a new one. */
static int get_mark(char *path, const char *vdi, uint64_t epoch, struct plx_ring_mark *ret_mark)
{
    struct plx_ring_super super;
    struct plx_device *device;
    struct plx_uuid id;
    struct forged f;
    int fd, error = plx_device_open(path, NULL, &device, &fault);

    if (!error)
        error = plx_ring_recognise(device, &super, &fault);
    if (error)
        return error;
    plx_device_close(device);
    plx_uuid_parse(vdi, &id);
    *ret_mark = (struct plx_ring_mark){.ring = super.ring, .set = super.set, .since = 1};
    fd = open(path, O_RDONLY);
    ret_mark->proof = newest_proof(fd, &super, &id);
    if (!ret_mark->proof && (error = open_chain(&f, &path, 1, vdi, epoch)) == 0) {
        close_chain(&f);
        ret_mark->proof = newest_proof(fd, &super, &id);
    }
    close(fd);
    return error;
}

/* Marks the record if there is one of this disk in the block. */
static bool mark_block(uint8_t *block, const char *vdi, char *path, int *ret_error)
{
    struct plx_vdi_record record;
    struct plx_uuid store;
    char id[PLX_UUID_TEXT];
    uint32_t slot;

    if (memcmp(block, "PLXVDREC", 8) != 0)
        return false;
    memcpy(&store, block + 16, sizeof store);
    memcpy(&slot, block + 120, sizeof slot);
    if (plx_format_vdi_record_decode(block, &store, slot, PLX_BLOCK_MAX, &record, &fault))
        return false;
    plx_uuid_text(&record.id, id);
    if (strcmp(id, vdi) != 0 || !record.epoch)
        return false;
    *ret_error = get_mark(path, vdi, record.epoch, &record.mark);
    plx_format_vdi_record_encode(&store, &record, block);
    return *ret_error == 0;
}

static int mark(char **argv)
{
    uint8_t block[PLX_BLOCK_SIZE];
    unsigned marked = 0;
    int fd = open(argv[0], O_RDWR), error = 0;

    for (off_t at = 0; !error && pread(fd, block, sizeof block, at) == sizeof block;
         at += sizeof block)
        if (mark_block(block, argv[1], argv[2], &error))
            marked += pwrite(fd, block, sizeof block, at) == sizeof block;
    close(fd);
    return marked == 2 ? 0 : say(argv[0], error ? error : PLX_ERR_NOT_FOUND);
}

int main(int argc, char **argv)
{
    if ((argc == 6 || argc == 7) && strcmp(argv[1], "append") == 0)
        return append(argv + 2, (unsigned)argc - 5);
    if (argc == 5 && strcmp(argv[1], "mark") == 0)
        return mark(argv + 2);
    fprintf(stderr, "usage: ring-forge append VDI EPOCH COUNT PATH [PATH]\n"
                    "       ring-forge mark VOLUME VDI PATH\n");
    return 2;
}
