/* format.c - checksums, the common part of gates, and radix nodes. Stateless; see format.h. */
#include <isa-l/crc.h>

#include "engine/base/hash.h"
#include "engine/format/format_inside.h"

/* ---- Checksums ---- */

uint32_t plx_crc32c_more(uint32_t crc, const void *bytes, size_t count)
{
    /* ISA-L inverts the sum neither before nor after. It does not change the buffer, though its
     * parameter is not const. */

    return ~crc32_iscsi((unsigned char *)(uintptr_t)bytes, (int)count, ~crc);
}

uint32_t plx_crc32c(const void *bytes, size_t count)
{
    return plx_crc32c_more(0, bytes, count);
}

uint32_t plx_checksum24(uint32_t crc32c)
{
    uint32_t low = crc32c & 0xffffff;

    return low ? low : 1;
}

static uint32_t block_checksum(const void *block)
{
    static const uint8_t zero[4];
    const uint8_t *bytes = block;
    uint32_t crc = plx_crc32c(bytes, CHECKSUM_AT);

    crc = plx_crc32c_more(crc, zero, sizeof zero);
    return plx_crc32c_more(crc, bytes + CHECKSUM_AT + 4, PLX_BLOCK_SIZE - CHECKSUM_AT - 4);
}

void plx_format_seal_block(void *block)
{
    put32((uint8_t *)block + CHECKSUM_AT, block_checksum(block));
}

bool plx_format_all_zero(const void *block)
{
    const uint8_t *bytes = block;

    return bytes[0] == 0 && memcmp(bytes, bytes + 1, PLX_BLOCK_SIZE - 1) == 0;
}

/* The part of a gate that is the same for every one-block structure: magic number and checksum. */
int plx_format_check_block(const void *block, const char *magic, const char *what,
                           struct plx_fault *fault)
{
    const uint8_t *bytes = block;

    if (memcmp(bytes, magic, 8) != 0)
        return plx_fault_set(fault, PLX_ERR_CORRUPT, "%s: no magic number", what);
    if (get32(bytes + CHECKSUM_AT) != block_checksum(block))
        return plx_fault_set(fault, PLX_ERR_CORRUPT, "%s: checksum mismatch", what);
    return 0;
}

/* ---- Nodes ---- */

uint64_t plx_node_entry(const void *node, unsigned index)
{
    return get64((const uint8_t *)node + index * 8);
}

void plx_node_set_entry(void *node, unsigned index, uint64_t entry)
{
    put64((uint8_t *)node + index * 8, entry);
}

void plx_node_set_read_only(void *node)
{
    for (unsigned i = 0; i < PLX_NODE_ENTRIES; i++) {
        uint64_t entry = plx_node_entry(node, i);

        plx_node_set_entry(node, i, plx_entry_addr(entry) ? entry | PLX_ENTRY_READ_ONLY : entry);
    }
}

/* Block 0 holds a superblock, so no entry maps it: address 0 means that nothing is mapped. */
bool plx_format_data_addr_valid(uint64_t addr, uint64_t addr_limit)
{
    return plx_addr_block(addr) && plx_addr_block(addr) < addr_limit;
}

bool plx_format_node_valid(const void *node, unsigned level, uint64_t addr_limit)
{
    for (unsigned i = 0; i < PLX_NODE_ENTRIES; i++) {
        uint64_t entry = plx_node_entry(node, i), addr = plx_entry_addr(entry);
        bool valid =
            level == 1 && addr ? plx_format_data_addr_valid(addr, addr_limit) : addr < addr_limit;

        if (!valid || (entry & PLX_ENTRY_SUPERPAGE))
            return false;
    }
    return true;
}
