/* properties.c - see properties.h. */
#include "unit/properties.h"

#include <CUnit/Basic.h>
#include <stdlib.h>
#include <string.h>

#include "ok.h"

void adopt_all(void)
{
    struct plx_fault why;

    for (uint64_t e = 0; e < registry.count; e++)
        if (registry.extents[e].owner)
            CU_ASSERT_EQUAL(plx_store_extent_adopt(store, e, &why), 0);
    CU_ASSERT_EQUAL(plx_store_extents_adopted(store, &why), 0);
}

uint64_t all_writes(const struct plx_counters *c)
{
    return c->device_writes[PLX_KIND_DATA] + c->device_writes[PLX_KIND_LOG] +
           c->device_writes[PLX_KIND_NODE] + c->device_writes[PLX_KIND_ADMIN];
}

uint64_t all_reads(const struct plx_counters *c)
{
    return c->device_reads[PLX_KIND_DATA] + c->device_reads[PLX_KIND_LOG] +
           c->device_reads[PLX_KIND_NODE] + c->device_reads[PLX_KIND_ADMIN];
}

void settle(void)
{
    while (plx_store_busy(store))
        if (!plx_store_tick(store))
            plx_store_wait(store);
}

uint64_t find_block(int byte)
{
    uint8_t *page = malloc(BLOCK), *wanted = malloc(BLOCK);
    uint64_t found = 0;

    memset(wanted, byte, BLOCK);
    for (uint64_t at = 0; at < 64 * MIB && !found; at += BLOCK) {
        plx_simdisk_peek(disk, at, page, BLOCK);
        if (memcmp(page, wanted, BLOCK) == 0)
            found = at;
    }
    free(page);
    free(wanted);
    return found;
}

void count_mapping(void *context, uint64_t vblock, const struct plx_mapping *mapping)
{
    ++*(uint64_t *)context;
}

bool count_snapshot(void *context, const struct plx_snapshot_info *info)
{
    ++*(unsigned *)context;
    return true;
}

size_t owned_extents(void)
{
    struct plx_extent_info info;
    size_t count = 0;

    while (plx_store_extent_owned(store, count, &info) == 0)
        count++;
    return count;
}

int byte_at(struct plx_vdi *vdi, uint64_t offset)
{
    run(vdi, PLX_READ, offset, BLOCK);
    return buffer[0];
}

void expect_instant(uint64_t seq, int byte)
{
    struct plx_vdi *instant = NULL;

    OK(plx_snapshot_open(store, 0, seq, &instant, &fault));
    if (!instant)
        return;
    CU_ASSERT_EQUAL(byte_at(instant, 0), byte);
    OK(plx_vdi_close(instant));
}
