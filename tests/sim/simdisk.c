/* simdisk.c - see simdisk.h.
 *
 * SIM_SIMDISK-1  `stable` is what is left after a power cut that loses everything else; `seen` is
 *     what reads return: stable and all completed writes in order of completion.
 * SIM_SIMDISK-2  A flush makes stable what had completed when it was submitted.
 * SIM_SIMDISK-3  At a power cut each write that completed but is not stable, in order of
 *     completion, and then each pending one, in any order, is kept, lost, or torn into units of
 *     tear_bytes.
 * SIM_SIMDISK-4  A flush that drops (plx_simdisk_drop_flush) decides that at once for all that it
 *     was to cover: `stable` and `seen` differ from then on until the power is cut, or what lies
 *     there is written again.
 */
#include "sim/simdisk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 4096u
#define CHUNK_PAGES 256u

/* Pages and chunks are shared between images and copied when they are written to. */
struct page {
    unsigned refs;
    bool hashed;
    uint64_t hash;
    uint8_t data[PAGE];
};

struct chunk {
    unsigned refs;
    struct page *pages[CHUNK_PAGES]; /* NULL: zeroes */
};

struct image {
    struct chunk **chunks; /* NULL: zeroes */
    uint64_t count;
};

struct cached_write {
    struct cached_write *next;
    uint64_t offset, number;
    size_t bytes;
    uint8_t data[];
};

struct pending {
    struct plx_io *io;
    uint64_t stalled; /* until this event */
};

struct sim_device {
    struct plx_device device;
    struct sim_device *next; /* of the disk's, newest first */
    struct plx_simdisk *disk;
    struct pending *pending;
    size_t count, capacity;
    int dead; /* 0, or what everything fails with */
};

struct plx_simdisk {
    struct plx_simdisk_options options;
    struct plx_simpower *power;
    struct plx_simrng rng;
    struct image stable, seen;
    struct cached_write *cached, *last_cached; /* completed, not stable, oldest first */
    uint64_t completions;
    struct sim_device *attached; /* one for each host */
    uint64_t ios, fail_from, fail_to;
    uint64_t bad_offset, bad_bytes;
    bool bad_reads, bad_writes;
    uint64_t drop_in; /* so many flushes, with this one; 0: not to come */
    bool dropped;     /* since the power was cut */
    enum plx_simlie lie;
    struct image before; /* for PLX_LIE_STALE */
    struct plx_simdisk_counters counters;
};

static void *must(void *memory)
{
    if (!memory) {
        fputs("simdisk: out of memory\n", stderr);
        abort();
    }
    return memory;
}

/* ---- Images ---- */

static void image_init(struct image *image, uint64_t bytes)
{
    image->count = bytes / (PAGE * CHUNK_PAGES) + 1;
    image->chunks = must(calloc(image->count, sizeof *image->chunks));
}

static void chunk_put(struct chunk *chunk)
{
    if (!chunk || --chunk->refs)
        return;
    for (unsigned p = 0; p < CHUNK_PAGES; p++)
        if (chunk->pages[p] && --chunk->pages[p]->refs == 0)
            free(chunk->pages[p]);
    free(chunk);
}

static void image_done(struct image *image)
{
    for (uint64_t c = 0; c < image->count; c++)
        chunk_put(image->chunks[c]);
    free(image->chunks);
    *image = (struct image){0};
}

static void image_share(struct image *to, const struct image *from)
{
    to->count = from->count;
    to->chunks = must(malloc(from->count * sizeof *to->chunks));
    memcpy(to->chunks, from->chunks, from->count * sizeof *to->chunks);
    for (uint64_t c = 0; c < to->count; c++)
        if (to->chunks[c])
            to->chunks[c]->refs++;
}

static struct page *page_at(const struct image *image, uint64_t page)
{
    const struct chunk *chunk = image->chunks[page / CHUNK_PAGES];

    return chunk ? chunk->pages[page % CHUNK_PAGES] : NULL;
}

static struct chunk *chunk_make(struct image *image, uint64_t number)
{
    struct chunk *old = image->chunks[number], *chunk;

    if (old && old->refs == 1)
        return old;
    chunk = must(calloc(1, sizeof *chunk));
    if (old) {
        memcpy(chunk->pages, old->pages, sizeof chunk->pages);
        for (unsigned p = 0; p < CHUNK_PAGES; p++)
            if (chunk->pages[p])
                chunk->pages[p]->refs++;
        chunk_put(old);
    }
    chunk->refs = 1;
    image->chunks[number] = chunk;
    return chunk;
}

static uint8_t *page_make(struct image *image, uint64_t number)
{
    struct page **page = &chunk_make(image, number / CHUNK_PAGES)->pages[number % CHUNK_PAGES];
    struct page *old = *page;

    if (!old || old->refs > 1) {
        *page = must(calloc(1, sizeof **page));
        (*page)->refs = 1;
        if (old) {
            memcpy((*page)->data, old->data, PAGE);
            old->refs--;
        }
    }
    (*page)->hashed = false;
    return (*page)->data;
}

static void image_read(const struct image *image, uint64_t offset, uint8_t *buffer, size_t bytes)
{
    while (bytes) {
        size_t in_page = offset % PAGE, now = PAGE - in_page < bytes ? PAGE - in_page : bytes;
        const struct page *page = page_at(image, offset / PAGE);

        if (page)
            memcpy(buffer, page->data + in_page, now);
        else
            memset(buffer, 0, now);
        buffer += now;
        offset += now;
        bytes -= now;
    }
}

static void image_write(struct image *image, uint64_t offset, const uint8_t *buffer, size_t bytes)
{
    while (bytes) {
        size_t in_page = offset % PAGE, now = PAGE - in_page < bytes ? PAGE - in_page : bytes;

        memcpy(page_make(image, offset / PAGE) + in_page, buffer, now);
        buffer += now;
        offset += now;
        bytes -= now;
    }
}

/* 0 for zeroes, whether the page is there or not. */
static uint64_t page_hash(struct page *page)
{
    uint64_t sum = 0, word;

    if (page->hashed)
        return page->hash;
    for (unsigned i = 0; i < PAGE; i += 8) {
        memcpy(&word, page->data + i, 8);
        sum = (sum ^ word) * 0x100000001b3ull;
        sum ^= sum >> 31;
    }
    page->hash = sum;
    page->hashed = true;
    return sum;
}

static uint64_t image_hash(const struct image *image)
{
    uint64_t h = 0xcbf29ce484222325ull;

    for (uint64_t c = 0; c < image->count; c++)
        for (unsigned p = 0; image->chunks[c] && p < CHUNK_PAGES; p++) {
            struct page *page = image->chunks[c]->pages[p];
            uint64_t sum = page ? page_hash(page) : 0;

            if (sum)
                h = (h ^ sum ^ (c * CHUNK_PAGES + p)) * 0x100000001b3ull;
        }
    return h;
}

/* ---- The volatile cache ---- */

static void forget_cached(struct plx_simdisk *disk)
{
    while (disk->cached) {
        struct cached_write *next = disk->cached->next;

        free(disk->cached);
        disk->cached = next;
    }
    disk->last_cached = NULL;
}

static void harden(struct plx_simdisk *disk, uint64_t up_to)
{
    while (disk->cached && disk->cached->number <= up_to) {
        struct cached_write *w = disk->cached;

        image_write(&disk->stable, w->offset, w->data, w->bytes); /* SIM_SIMDISK-2 */
        disk->cached = w->next;
        free(w);
    }
    if (!disk->cached)
        disk->last_cached = NULL;
}

/* SIM_SIMDISK-1: it is read from now on. It is stable at once only where there is no cache. */
static void complete_write(struct plx_simdisk *disk, uint64_t offset, const uint8_t *data,
                           size_t bytes)
{
    struct cached_write *w;

    if (!bytes) /* a failed one that got nowhere */
        return;
    image_write(&disk->seen, offset, data, bytes);
    if (!disk->options.volatile_cache) {
        image_write(&disk->stable, offset, data, bytes);
        return;
    }
    w = must(malloc(sizeof *w + bytes));
    *w = (struct cached_write){.offset = offset, .number = ++disk->completions, .bytes = bytes};
    memcpy(w->data, data, bytes);
    if (disk->last_cached)
        disk->last_cached->next = w;
    else
        disk->cached = w;
    disk->last_cached = w;
}

static void gather(const struct plx_io *io, uint8_t *data)
{
    for (int i = 0; i < io->iovcnt; i++) {
        memcpy(data, io->iov[i].iov_base, io->iov[i].iov_len);
        data += io->iov[i].iov_len;
    }
}

static void scatter(const struct plx_io *io, const uint8_t *data)
{
    for (int i = 0; i < io->iovcnt; i++) {
        memcpy(io->iov[i].iov_base, data, io->iov[i].iov_len);
        data += io->iov[i].iov_len;
    }
}

/* ---- Power ---- */

/* What is left of a write, into an image (SIM_SIMDISK-3). */
static void survive(struct plx_simdisk *disk, struct image *image, enum plx_simfate fate,
                    uint64_t offset, const uint8_t *data, size_t bytes)
{
    unsigned unit = disk->options.tear_bytes ? disk->options.tear_bytes : disk->options.block_size;
    size_t units = (bytes + unit - 1) / unit, cut;

    switch (fate) {
    case PLX_FATE_LOST:
        disk->counters.lost++;
        return;
    case PLX_FATE_KEPT:
        image_write(image, offset, data, bytes);
        disk->counters.kept++;
        return;
    case PLX_FATE_HEAD:
    case PLX_FATE_TAIL:
        cut = plx_simrng_below(&disk->rng, units) * unit;
        if (fate == PLX_FATE_HEAD)
            image_write(image, offset, data, cut);
        else
            image_write(image, offset + cut, data + cut, bytes - cut);
        break;
    case PLX_FATE_ANY:
        for (size_t at = 0; at < bytes; at += unit)
            if (plx_simrng_chance(&disk->rng, 50))
                image_write(image, offset + at, data + at, unit < bytes - at ? unit : bytes - at);
    }
    disk->counters.torn++;
}

static enum plx_simfate random_fate(struct plx_simdisk *disk)
{
    static const enum plx_simfate fates[] = {PLX_FATE_LOST, PLX_FATE_LOST, PLX_FATE_KEPT,
                                             PLX_FATE_HEAD, PLX_FATE_ANY};

    return fates[plx_simrng_below(&disk->rng, sizeof fates / sizeof *fates)];
}

static uint8_t *gathered(const struct plx_io *io)
{
    uint8_t *data = must(malloc(io->bytes));

    gather(io, data);
    return data;
}

void plx_simdisk_cut(struct plx_simdisk *disk)
{
    for (struct cached_write *w = disk->cached; w; w = w->next)
        survive(disk, &disk->stable, random_fate(disk), w->offset, w->data, w->bytes);
    for (struct sim_device *sim = disk->attached; sim; sim = sim->next) {
        size_t first = sim->count ? plx_simrng_below(&disk->rng, sim->count) : 0;

        for (size_t i = 0; i < sim->count && !sim->dead; i++) {
            const struct plx_io *io = sim->pending[(first + i) % sim->count].io;
            uint8_t *data;

            if (io->op != PLX_IO_WRITE)
                continue;
            data = gathered(io);
            survive(disk, &disk->stable, random_fate(disk), io->offset, data, io->bytes);
            free(data);
        }
        sim->dead = PLX_ERR_LOST;
    }
    forget_cached(disk);
    disk->drop_in = 0;
    disk->dropped = false;
    image_done(&disk->seen);
    image_share(&disk->seen, &disk->stable);
}

void plx_simpower_cut(struct plx_simpower *power)
{
    if (power->off)
        return;
    power->off = true;
    for (unsigned i = 0; i < power->count; i++)
        plx_simdisk_cut(power->disks[i]);
}

void plx_simpower_restore(struct plx_simpower *power)
{
    power->off = false;
    power->crash_at = 0;
    for (unsigned i = 0; i < power->count; i++)
        power->disks[i]->attached = NULL;
}

static void count_event(struct plx_simdisk *disk)
{
    struct plx_simpower *power = disk->power;

    if (power->off)
        return;
    power->events++;
    if (power->on_event)
        power->on_event(power->context);
    if (power->events == power->crash_at)
        plx_simpower_cut(power);
}

/* ---- Forks ---- */

unsigned plx_simpower_volatile(const struct plx_simpower *power)
{
    unsigned count = 0;

    for (unsigned i = 0; i < power->count; i++) {
        const struct plx_simdisk *disk = power->disks[i];

        for (const struct cached_write *w = disk->cached; w; w = w->next)
            count++;
        for (const struct sim_device *sim = disk->attached; sim; sim = sim->next)
            for (size_t k = 0; k < sim->count && !sim->dead; k++)
                count += sim->pending[k].io->op == PLX_IO_WRITE;
    }
    return count;
}

static struct plx_simdisk *fork_disk(const struct plx_simdisk *from, const uint8_t **fates,
                                     uint64_t seed, struct plx_simpower *power)
{
    struct plx_simdisk *disk = must(calloc(1, sizeof *disk));

    disk->options = from->options;
    disk->power = power;
    disk->rng.state = seed;
    image_share(&disk->stable, &from->stable);
    for (const struct cached_write *w = from->cached; w; w = w->next)
        survive(disk, &disk->stable, *(*fates)++, w->offset, w->data, w->bytes);
    for (const struct sim_device *sim = from->attached; sim; sim = sim->next)
        for (size_t k = 0; k < sim->count && !sim->dead; k++) {
            const struct plx_io *io = sim->pending[k].io;
            uint8_t *data;

            if (io->op != PLX_IO_WRITE)
                continue;
            data = gathered(io);
            survive(disk, &disk->stable, *(*fates)++, io->offset, data, io->bytes);
            free(data);
        }
    image_share(&disk->seen, &disk->stable);
    return disk;
}

void plx_simpower_fork(const struct plx_simpower *power, const uint8_t *fates, uint64_t seed,
                       struct plx_simpower *ret_power)
{
    *ret_power = (struct plx_simpower){.count = power->count, .off = true};
    for (unsigned i = 0; i < power->count; i++)
        ret_power->disks[i] = fork_disk(power->disks[i], &fates, seed + i, ret_power);
}

uint64_t plx_simpower_hash(const struct plx_simpower *power)
{
    uint64_t h = 0;

    for (unsigned i = 0; i < power->count; i++)
        h = h * 0x9e3779b97f4a7c15ull + image_hash(&power->disks[i]->stable);
    return h;
}

/* ---- The device ---- */

static void sim_submit(struct plx_device *device, struct plx_io *io)
{
    struct sim_device *sim = (struct sim_device *)device;
    struct plx_simdisk *disk = sim->disk;
    size_t sum = 0;

    for (int i = 0; i < io->iovcnt; i++)
        sum += io->iov[i].iov_len;
    if (io->op != PLX_IO_FLUSH &&
        (sum != io->bytes || io->offset % disk->options.block_size || io->bytes == 0 ||
         io->bytes % disk->options.block_size || io->offset + io->bytes > disk->options.bytes)) {
        fprintf(stderr, "simdisk: misshapen request: offset %llu, %zu bytes in iovecs of %zu\n",
                (unsigned long long)io->offset, io->bytes, sum);
        abort();
    }
    if (sim->count == sim->capacity) {
        sim->capacity = sim->capacity ? sim->capacity * 2 : 64;
        sim->pending = must(realloc(sim->pending, sim->capacity * sizeof *sim->pending));
    }
    io->device_word = disk->completions;
    sim->pending[sim->count++] =
        (struct pending){io, plx_simrng_chance(&disk->rng, disk->options.stalls)
                                 ? disk->power->events + plx_simrng_below(&disk->rng, 100)
                                 : 0};
    if (!sim->dead)
        count_event(disk);
}

static bool sim_kick(struct plx_device *device)
{
    return false;
}

static bool injected(struct plx_simdisk *disk, const struct plx_io *io)
{
    bool bad = io->op == PLX_IO_READ ? disk->bad_reads : disk->bad_writes;
    uint64_t number = ++disk->ios;

    if (number >= disk->fail_from && number < disk->fail_to)
        return true;
    return bad && io->op != PLX_IO_FLUSH && io->offset < disk->bad_offset + disk->bad_bytes &&
           disk->bad_offset < io->offset + io->bytes;
}

static void read_wrongly(struct plx_simdisk *disk, const struct plx_io *io, uint8_t *data)
{
    uint64_t blocks = (disk->options.bytes - io->bytes) / disk->options.block_size;

    switch (disk->lie) {
    case PLX_LIE_ROT:
        data[plx_simrng_below(&disk->rng, io->bytes)] ^=
            (uint8_t)(1u << plx_simrng_below(&disk->rng, 8));
        break;
    case PLX_LIE_MISDIRECTED:
        image_read(&disk->seen, plx_simrng_below(&disk->rng, blocks) * disk->options.block_size,
                   data, io->bytes);
        break;
    case PLX_LIE_STALE:
        image_read(&disk->before, io->offset, data, io->bytes);
        break;
    case PLX_LIE_NONE:
        break;
    }
    plx_simdisk_lie(disk, PLX_LIE_NONE);
}

/* SIM_SIMDISK-4 */
static void drop(struct plx_simdisk *disk, uint64_t up_to)
{
    struct cached_write *w;

    while ((w = disk->cached) != NULL && w->number <= up_to) {
        survive(disk, &disk->stable, random_fate(disk), w->offset, w->data, w->bytes);
        disk->counters.dropped++;
        disk->dropped = true;
        disk->cached = w->next;
        free(w);
    }
    if (!disk->cached)
        disk->last_cached = NULL;
}

static void perform_read(struct plx_simdisk *disk, struct plx_io *io)
{
    uint64_t offset = io->offset;
    uint8_t *data;

    disk->counters.reads++;
    disk->counters.read_bytes += io->bytes;
    if (!disk->lie || (io->kind != PLX_KIND_DATA && io->kind != PLX_KIND_NODE)) {
        for (int i = 0; i < io->iovcnt; offset += io->iov[i++].iov_len)
            image_read(&disk->seen, offset, io->iov[i].iov_base, io->iov[i].iov_len);
        return;
    }
    data = must(malloc(io->bytes));
    image_read(&disk->seen, offset, data, io->bytes);
    read_wrongly(disk, io, data);
    scatter(io, data);
    free(data);
}

static int perform(struct plx_simdisk *disk, struct plx_io *io)
{
    bool fails = injected(disk, io);
    uint8_t *data;

    disk->counters.errors += fails;
    if (io->op == PLX_IO_FLUSH) {
        disk->counters.flushes++;
        if (disk->drop_in && --disk->drop_in == 0) {
            drop(disk, io->device_word);
            return PLX_ERR_IO_WRITE;
        }
        if (fails)
            return PLX_ERR_IO_WRITE;
        harden(disk, io->device_word);
        return 0;
    }
    if (io->op == PLX_IO_READ) {
        if (!fails)
            perform_read(disk, io);
        return fails ? PLX_ERR_IO_READ : 0;
    }
    data = must(malloc(io->bytes));
    gather(io, data);
    disk->counters.writes++;
    disk->counters.write_bytes += io->bytes;
    if (!fails)
        complete_write(disk, io->offset, data, io->bytes);
    else if (plx_simrng_chance(&disk->rng, 50)) /* a failed write may have got somewhere */
        complete_write(disk, io->offset, data,
                       plx_simrng_below(&disk->rng, io->bytes / disk->options.block_size + 1) *
                           disk->options.block_size);
    free(data);
    return fails ? PLX_ERR_IO_WRITE : 0;
}

static void complete_one(struct sim_device *sim, size_t which)
{
    struct plx_io *io = sim->pending[which].io;

    sim->pending[which] = sim->pending[--sim->count];
    if (!sim->dead) {
        io->result = perform(sim->disk, io);
        count_event(sim->disk);
    } else {
        io->result = sim->dead;
    }
    io->done(io);
}

static int sim_poll(struct plx_device *device, bool wait)
{
    struct sim_device *sim = (struct sim_device *)device;
    struct plx_simdisk *disk = sim->disk;
    int completed = 0;

    for (size_t tries = sim->count; tries && sim->count; tries--) {
        size_t which = plx_simrng_below(&disk->rng, sim->count);

        if (sim->dead || (sim->pending[which].stalled <= disk->power->events &&
                          !plx_simrng_chance(&disk->rng, disk->options.patience))) {
            complete_one(sim, which);
            completed++;
        }
    }
    for (size_t tries = sim->count; wait && !completed && tries; tries--) {
        size_t which = plx_simrng_below(&disk->rng, sim->count);

        /* A stalled one only if there is nothing else. */
        if (tries > 1 && sim->pending[which].stalled > disk->power->events)
            continue;
        complete_one(sim, which);
        completed++;
    }
    return completed;
}

static void sim_close(struct plx_device *device)
{
    struct sim_device *sim = (struct sim_device *)device;

    if (sim->count) {
        fputs("simdisk: closed with requests under way\n", stderr);
        abort();
    }
    for (struct sim_device **link = &sim->disk->attached; *link; link = &(*link)->next)
        if (*link == sim) {
            *link = sim->next;
            break;
        }
    free(sim->pending);
    free(sim);
}

struct plx_device *plx_simdisk_attach(struct plx_simdisk *disk, const char *name)
{
    static const struct plx_device_ops ops = {
        .submit = sim_submit, .kick = sim_kick, .poll = sim_poll, .close = sim_close};
    struct sim_device *sim = must(calloc(1, sizeof *sim));

    sim->disk = disk;
    sim->next = disk->attached;
    sim->device = (struct plx_device){
        .ops = &ops,
        .bytes = disk->options.bytes,
        .block_size = disk->options.block_size,
        .volatile_cache = disk->options.volatile_cache,
    };
    snprintf(sim->device.name, sizeof sim->device.name, "%s", name);
    disk->attached = sim;
    return &sim->device;
}

void plx_simdisk_stop(struct plx_device *device, int error)
{
    struct sim_device *sim = (struct sim_device *)device;
    struct plx_simdisk *disk = sim->disk;

    if (sim->dead)
        return;
    sim->dead = error;
    for (size_t i = 0; i < sim->count; i++) {
        const struct plx_io *io = sim->pending[i].io;
        struct image image;
        uint8_t *data;

        if (io->op != PLX_IO_WRITE)
            continue;
        /* Whatever of it arrived, arrived in the disk's cache: over what a reader saw there. */
        data = gathered(io);
        image_share(&image, &disk->seen);
        survive(disk, &image, random_fate(disk), io->offset, data, io->bytes);
        image_read(&image, io->offset, data, io->bytes);
        complete_write(disk, io->offset, data, io->bytes);
        image_done(&image);
        free(data);
    }
}

/* ---- Making, looking, breaking ---- */

struct plx_simdisk *plx_simdisk_new(const struct plx_simdisk_options *options,
                                    struct plx_simpower *power)
{
    struct plx_simdisk *disk = must(calloc(1, sizeof *disk));

    disk->options = *options;
    disk->power = power;
    disk->rng.state = options->seed;
    image_init(&disk->stable, options->bytes);
    image_init(&disk->seen, options->bytes);
    power->disks[power->count++] = disk;
    return disk;
}

void plx_simdisk_free(struct plx_simdisk *disk)
{
    struct plx_simpower *power = disk->power;

    for (unsigned i = 0; i < power->count; i++)
        if (power->disks[i] == disk)
            power->disks[i] = power->disks[--power->count];
    forget_cached(disk);
    image_done(&disk->stable);
    image_done(&disk->seen);
    image_done(&disk->before);
    free(disk);
}

void plx_simdisk_set_patience(struct plx_simdisk *disk, unsigned per_cent)
{
    disk->options.patience = per_cent;
}

void plx_simdisk_resize(struct plx_simdisk *disk, uint64_t bytes)
{
    struct plx_simdisk_options options = disk->options;
    struct plx_simpower scratch = {0};
    struct plx_simdisk *other;
    uint64_t kept = bytes < options.bytes ? bytes : options.bytes;
    uint8_t page[PAGE];

    options.bytes = bytes;
    other = plx_simdisk_new(&options, &scratch);
    for (uint64_t at = 0; at + PAGE <= kept; at += PAGE) {
        if (!page_at(&disk->seen, at / PAGE))
            continue;
        plx_simdisk_peek(disk, at, page, PAGE);
        plx_simdisk_poke(other, at, page, PAGE);
    }
    forget_cached(disk);
    image_done(&disk->stable);
    image_done(&disk->seen);
    disk->stable = other->stable;
    disk->seen = other->seen;
    disk->options.bytes = bytes;
    free(other);
}

uint64_t plx_simdisk_bytes(const struct plx_simdisk *disk)
{
    return disk->options.bytes;
}

void plx_simdisk_peek(const struct plx_simdisk *disk, uint64_t offset, void *buffer, size_t bytes)
{
    image_read(&disk->seen, offset, buffer, bytes);
}

void plx_simdisk_peek_stable(const struct plx_simdisk *disk, uint64_t offset, void *buffer,
                             size_t bytes)
{
    image_read(&disk->stable, offset, buffer, bytes);
}

void plx_simdisk_poke(struct plx_simdisk *disk, uint64_t offset, const void *buffer, size_t bytes)
{
    image_write(&disk->seen, offset, buffer, bytes);
    image_write(&disk->stable, offset, buffer, bytes);
}

void plx_simdisk_flip(struct plx_simdisk *disk, uint64_t offset, uint8_t mask)
{
    uint8_t byte;

    plx_simdisk_peek(disk, offset, &byte, 1);
    byte ^= mask;
    plx_simdisk_poke(disk, offset, &byte, 1);
}

void plx_simdisk_copy(struct plx_simdisk *to, const struct plx_simdisk *from)
{
    forget_cached(to);
    image_done(&to->stable);
    image_done(&to->seen);
    image_share(&to->stable, &from->seen);
    image_share(&to->seen, &from->seen);
}

uint64_t plx_simdisk_hash(const struct plx_simdisk *disk)
{
    return image_hash(&disk->seen);
}

void plx_simdisk_fail_io(struct plx_simdisk *disk, uint64_t k, uint64_t count)
{
    disk->fail_from = disk->ios + k;
    disk->fail_to = disk->fail_from + count;
}

void plx_simdisk_drop_flush(struct plx_simdisk *disk, uint64_t k)
{
    disk->drop_in = k;
}

bool plx_simpower_dropped(const struct plx_simpower *power)
{
    for (unsigned i = 0; i < power->count; i++)
        if (power->disks[i]->dropped)
            return true;
    return false;
}

void plx_simdisk_fail_range(struct plx_simdisk *disk, uint64_t offset, uint64_t bytes, bool reads,
                            bool writes)
{
    disk->bad_offset = offset;
    disk->bad_bytes = bytes;
    disk->bad_reads = reads;
    disk->bad_writes = writes;
}

void plx_simdisk_lie(struct plx_simdisk *disk, enum plx_simlie lie)
{
    image_done(&disk->before);
    disk->lie = lie;
    if (lie == PLX_LIE_STALE)
        image_share(&disk->before, &disk->seen);
}

void plx_simdisk_heal(struct plx_simdisk *disk)
{
    plx_simdisk_lie(disk, PLX_LIE_NONE);
    plx_simdisk_fail_io(disk, 0, 0);
    disk->drop_in = 0;
    disk->bad_reads = disk->bad_writes = false;
}

const struct plx_simdisk_counters *plx_simdisk_counters(const struct plx_simdisk *disk)
{
    return &disk->counters;
}

void plx_simdisk_reset_counters(struct plx_simdisk *disk)
{
    disk->counters = (struct plx_simdisk_counters){0};
}
