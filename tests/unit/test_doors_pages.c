/* test_doors_pages.c - a store that lost writes: headers of extents that have more than one page of
 * bitmap, and headers that went back by one state. */
#include <CUnit/Basic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attach/compare.h"
#include "ok.h"
#include "suite.h"
#include "unit/lost_writes.h"

#define PAGES 3u
#define EXTENT_BYTES (256 * MIB)
#define EXTENT_BLOCKS (EXTENT_BYTES / PLX_BLOCK_SIZE)

/* What is found of one extent, as errors. */
struct found {
    char what[32];
    unsigned count;
    char text[256];
};

static void on_finding(void *context, const struct plx_finding *finding)
{
    struct found *found = context;

    if (finding->severity != PLX_FINDING_ERROR || !strstr(finding->text, found->what))
        return;
    found->count++;
    snprintf(found->text, sizeof found->text, "%.255s", finding->text);
}

/* A comparison of registry and store finds this, and nothing else, of the extent. */
static void find(uint64_t extent, const char *text)
{
    struct found found = {0};

    snprintf(found.what, sizeof found.what, "extent %llu", (unsigned long long)extent);
    OK(plx_attach_compare(attach, on_finding, &found, &fault));
    CU_ASSERT_EQUAL(found.count, 1);
    CU_ASSERT_PTR_NOT_NULL(strstr(found.text, text));
}

/* It is sealed, nobody's, and nothing is ever allocated in it again. */
static void never_again(uint64_t extent)
{
    struct plx_registry_extent row = row_of(extent);

    CU_ASSERT(row.sealed && !row.owner);
    CU_ASSERT_EQUAL(row.states, PLX_STATES_NEVER);
}

/* The first unused extent has blocks in one page, and the registry knows nothing of that. */
static uint64_t use_page(unsigned page)
{
    uint64_t unused[64];
    size_t never;

    OK(make_store_of(8, EXTENT_BYTES));
    open_attach();
    create("one");
    list_unused(unused, &never);
    for (unsigned p = 0; p < PAGES; p++)
        make_page(unused[0], p, 0, p == page ? 7 : 0);
    return unused[0];
}

/* It is not given out as unused. */
static void doubt_page(unsigned page)
{
    uint64_t extent = use_page(page);
    struct plx_registry_store store;

    find(extent, "saw it last: the registry lost a write");
    refuse_disk("one", PLX_ERR_REGISTRY);
    plx_store_settle(plx_attach_store(attach));
    store_row(&store);
    CU_ASSERT_PTR_NOT_NULL(strstr(store.doubt, "the registry lost a write"));
    CU_ASSERT(row_of(extent).type == PLX_EXTENT_UNUSED && !row_of(extent).states);
    close_attach();
    rebuild_registry();
    open_attach();
    CU_ASSERT(row_of(extent).type == PLX_EXTENT_DATA && !row_of(extent).sealed);
    fill("one", 0, 1);
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

/* Nor does a new registry take it for unused, or for emptier than it is. */
static void keep_page(unsigned page)
{
    uint64_t extent = use_page(page);

    close_attach();
    rebuild_registry();
    open_attach();
    CU_ASSERT_EQUAL(row_of(extent).type, PLX_EXTENT_DATA);
    CU_ASSERT_EQUAL(row_of(extent).free_blocks, EXTENT_BLOCKS - 2 * PAGES - 7);
    CU_ASSERT_FALSE(row_of(extent).sealed);
    fill("one", 0, 1);
    close_attach();
    open_attach();
    CU_ASSERT_EQUAL(row_of(extent).type, PLX_EXTENT_DATA);
    CU_ASSERT(row_of(extent).free_blocks <= EXTENT_BLOCKS - 2 * PAGES - 7);
    CU_ASSERT(holds("one", 0, 1));
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

static void test_later_pages(void)
{
    for (unsigned page = 0; page < PAGES; page++) {
        doubt_page(page);
        keep_page(page);
    }
}

/* Only a page that nobody else's name is in has lost its last state: the number alone tells. */
static uint64_t lose_page(uint8_t ret_newest[HEADER_BYTES])
{
    uint8_t before[HEADER_BYTES];
    uint64_t extent, states;

    OK(make_store_of(8, EXTENT_BYTES));
    extent = create_two();
    open_attach();
    header_page(extent, PAGES - 1, before, false);
    states = page_states(extent, PAGES - 1);
    fill("one", PART, 2);
    close_attach();
    open_attach();
    CU_ASSERT_EQUAL(page_states(extent, PAGES - 1), states + 1);
    CU_ASSERT(!row_of(extent).owner && !row_of(extent).sealed);
    header_page(extent, PAGES - 1, ret_newest, false);
    header_page(extent, PAGES - 1, before, true);
    return extent;
}

static void end_whole(void)
{
    CU_ASSERT(holds("one", 0, 1) && holds("one", PART, 2) && holds("two", 0, 3));
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

static void test_older_by_one(void)
{
    uint8_t newest[HEADER_BYTES];
    uint64_t extent = lose_page(newest);

    find(extent, "its header is older than what was written last");
    fill("two", 0, 3);
    close_attach();
    open_attach();
    never_again(extent);
    end_whole();
}

/* It is not believed by a new registry either, if the old one can still be read. */
static void test_older_by_one_rebuilt(void)
{
    uint8_t newest[HEADER_BYTES];
    uint64_t extent = lose_page(newest);

    close_attach();
    rebuild_registry();
    open_attach();
    never_again(extent);
    fill("two", 0, 3);
    end_whole();
}

/* The least is lost that there is, and what is whole again is believed again. */
static void test_by_one_and_whole(void)
{
    uint8_t newest[HEADER_BYTES];
    uint64_t extent = lose_page(newest);

    header_page(extent, PAGES - 1, newest, true);
    fill("two", 0, 3);
    close_attach();
    open_attach();
    CU_ASSERT(!row_of(extent).sealed && row_of(extent).states != PLX_STATES_NEVER);
    end_whole();
}

/* Who had the extent has died, and its last state, of which the registry was told, is lost. */
static void dead_by_one(bool lost)
{
    uint8_t before[HEADER_BYTES];
    uint64_t extent, states;
    int status = 0;
    pid_t child;

    OK(make_store());
    extent = create_two();
    child = fork();
    CU_ASSERT_FATAL(child >= 0);
    if (!child) {
        open_attach();
        fill("two", 0, 3);
        header_page(extent, 0, before, false);
        states = page_states(extent, 0);
        fill("two", PART, 4);
        if (page_states(extent, 0) != states + 1)
            _exit(1);
        if (lost)
            header_page(extent, 0, before, true);
        _exit(0);
    }
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT_EQUAL(status, 0);
    open_attach();
    if (lost)
        never_again(extent);
    else
        CU_ASSERT(row_of(extent).states != PLX_STATES_NEVER);
    for (unsigned part = 2; part < 20; part++)
        fill("two", part * PART, 5);
    CU_ASSERT(holds("one", 0, 1) && holds("two", 0, 3) && holds("two", PART, 4));
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

static void test_dead_by_one(void)
{
    dead_by_one(false);
    dead_by_one(true);
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"an unused extent that was used, in a later page", test_later_pages},
        {"a header that went back by one state", test_older_by_one},
        {"a header that went back by one state, and a rebuild", test_older_by_one_rebuilt},
        {"a header that went back by one state, and is whole again", test_by_one_and_whole},
        {"a header that went back by one state, and its owner is dead", test_dead_by_one},
    };

    return SUITE_RUN("doors: pages", tests);
}
