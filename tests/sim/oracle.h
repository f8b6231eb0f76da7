/* oracle.h - what a virtual disk may contain: the naive twin of a VDI, one value per sector.
 *
 * Every write carries an id; a sector's 512 bytes follow from id and sector number, so that any
 * sector read tells which write it came from (id 0: zeroes). For each sector the oracle keeps the
 * writes that a read may still return: with writes in flight there are several. It also keeps what
 * a power cut may bring back: everything not yet superseded by something durable.
 *
 * Time is the caller's event number: it grows with every begin and end.
 */
#ifndef PLX_ORACLE_H
#define PLX_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLX_SECTOR 512u

/* ---- Sector contents ---- */

void plx_sector_fill(uint8_t *out, uint64_t id, uint64_t sector, uint64_t count);
/* The id that a sector's bytes carry; false: no write made these bytes for this sector. */
bool plx_sector_id(const uint8_t *bytes, uint64_t sector, uint64_t *ret_id);

/* ---- Views: what may be read of a range or an instant ---- */

/* Sets of ids per sector, in pages of 8 sectors; a page that is absent is all zeroes. */
struct plx_idset {
    uint32_t count;
    union {
        uint64_t one;
        uint64_t *many;
    };
};

struct plx_view {
    struct plx_view *next; /* the oracle's, while open */
    unsigned refs;
    uint64_t first, sectors;
    struct plx_idset **pages; /* of 8 sectors, from first / 8 on */
};

void plx_view_free(struct plx_view *view); /* one reference; NULL is fine */
struct plx_view *plx_view_share(struct plx_view *view);
/* Closed, and a reference of its own. */
struct plx_view *plx_view_copy(const struct plx_view *view);
bool plx_view_allows(const struct plx_view *view, uint64_t sector, uint64_t id);
/* From now on only `id` is right for this sector; other references do not learn of it. */
void plx_view_pin(struct plx_view **view, uint64_t sector, uint64_t id);
/* Some id that the view allows. */
uint64_t plx_view_any(const struct plx_view *view, uint64_t sector);

/* ---- The oracle of one virtual disk ---- */

struct plx_oracle;

struct plx_oracle *plx_oracle_new(uint64_t sectors);
void plx_oracle_free(struct plx_oracle *oracle);
/* A copy that goes its own way; views are not copied. */
struct plx_oracle *plx_oracle_fork(const struct plx_oracle *oracle);
uint64_t plx_oracle_sectors(const struct plx_oracle *oracle);
void plx_oracle_grow(struct plx_oracle *oracle, uint64_t sectors);
/* A clone's oracle starts from a view of the whole parent. */
struct plx_oracle *plx_oracle_clone(const struct plx_view *view, uint64_t sectors);

/* Returns a token for the end. */
uint64_t plx_oracle_write_begin(struct plx_oracle *oracle, uint64_t first, uint64_t count,
                                uint64_t id);
/* failed: the write may have happened in part. */
void plx_oracle_write_end(struct plx_oracle *oracle, uint64_t token, uint64_t first, uint64_t count,
                          bool failed, bool durable);
/* A write that certainly did not happen (a miscompare). */
void plx_oracle_write_cancel(struct plx_oracle *oracle, uint64_t token, uint64_t first,
                             uint64_t count);
/* A flush that began at `begun` has ended well. */
uint64_t plx_oracle_flush_begin(struct plx_oracle *oracle);
void plx_oracle_flush_end(struct plx_oracle *oracle, uint64_t begun);

/* What a read of the range may return, writes that begin until the view is closed included. */
struct plx_view *plx_oracle_view_open(struct plx_oracle *oracle, uint64_t first, uint64_t count);
void plx_oracle_view_close(struct plx_oracle *oracle, struct plx_view *view);
/* The power is failing: a view of an instant that nobody was told is durable may also show what a
 * power cut may bring back. */
void plx_oracle_view_widen(const struct plx_oracle *oracle, struct plx_view *view);
/* The power failed: what a read may return is now all that may have survived. */
void plx_oracle_crash(struct plx_oracle *oracle);
/* The disk holds what the view says, but for the writes that are in flight: they come after. */
void plx_oracle_rewind(struct plx_oracle *oracle, const struct plx_view *view);
/* No write is in flight, and the sector was read: it holds id from now on. */
enum plx_settled {
    PLX_SETTLED_UNFLUSHED, /* until a power cut, unless a flush comes before */
    PLX_SETTLED_DURABLE,   /* a power cut does not change that */
    PLX_SETTLED_FLEETING,  /* a power cut may, flushed or not: one had failed before it was read */
};
bool plx_oracle_settle(struct plx_oracle *oracle, uint64_t sector, uint64_t id,
                       enum plx_settled how);

#endif
