/* lost_writes.h - a store on a file. Blocks of its volume are put back as they were earlier, both
 * copies of a record at once, as a device would show them that lost what it had acknowledged.
 */
#ifndef PLX_UNIT_LOST_WRITES_H
#define PLX_UNIT_LOST_WRITES_H

#include "attach/attach.h"
#include "attach/rebuild.h"
#include "engine/format/format.h"

#define MIB (1ull << 20)
#define RECORD_BYTES (2 * PLX_BLOCK_SIZE)
#define HEADER_BYTES (2 * PLX_BLOCK_SIZE) /* of one page of an extent's header */
#define PART 40u                          /* blocks: several find room in an extent */

extern char folder[64], volume[96];
extern struct plx_attach *attach;
extern struct plx_fault fault;
extern uint64_t extent_bytes;

int make_store_of(uint64_t extents, uint64_t bytes);
int make_store(void);
int drop_store(void);
void open_attach(void);
void close_attach(void);
void store_row(struct plx_registry_store *ret_store);
/* Of this extent; 0: of the first that holds data. */
struct plx_registry_extent row_of(uint64_t no);

void create(const char *name);
/* Disks "one", whose first part is written, and "two", in a store that was just made; all is
 * closed. Returns the extent with the data. */
uint64_t create_two(void);
int open_disk(const char *name, struct plx_vdi **ret_vdi);
/* Closed again if it is not refused: else whoever closes the attach would end all tests. */
void refuse_disk(const char *name, int code);
void write_disk(const char *name, uint8_t with);
void fill(const char *name, unsigned from, uint8_t with);
bool holds(const char *name, unsigned from, uint8_t with);
/* Writes, and leaves it to its log. */
void write_and_die(const char *name, uint8_t with);

/* Bytes of the volume, read or put back. */
void volume_bytes(uint64_t at, uint8_t *bytes, size_t count, bool put);
/* Both copies of a slot's record. */
void record(uint32_t slot, uint8_t bytes[RECORD_BYTES], bool put);
/* And both copies of one page of an extent's header. */
void header_page(uint64_t extent, unsigned page, uint8_t bytes[HEADER_BYTES], bool put);
/* How many states it has had. */
uint64_t page_states(uint64_t extent, unsigned page);
/* A page as its first state is, with so many blocks in use besides those of the header. */
void make_page(uint64_t extent, unsigned page, uint64_t owner, unsigned blocks);
/* Of the extents that a claim may get as unused, in that order; the ones that are never to be
 * believed again are counted. */
size_t list_unused(uint64_t ret_unused[64], size_t *ret_never);
int is_older(const char *name, struct plx_registry_vdi *ret_row, bool *ret_older);
void accept_older(const struct plx_registry_vdi *row);
/* And its state is what it was. */
void refuse_older(const struct plx_registry_vdi *row, int error);
struct plx_rebuilt rebuild(bool dry_run);
void rebuild_registry(void);

#endif
