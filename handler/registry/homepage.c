/* homepage.c - reads and writes the home page of a store, which says which host has the store, and
 * the number pages of its further volumes.
 *
 * The home page has two slots. The slot with the higher generation counts. Rules: tenancy.c. A
 * number page has two slots, too. The one with the higher number counts. Rules: attach/numbers.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "registry/tenancy_inside.h"

static bool same_tenant(const struct plx_home *a, const struct plx_home *b)
{
    return plx_uuid_equal(&a->host, &b->host) && plx_uuid_equal(&a->boot, &b->boot) &&
           a->device == b->device && a->inode == b->inode;
}

int plx_home_read(struct plx_device *device, const struct plx_uuid *store, struct page *ret_page,
                  struct plx_fault *fault)
{
    uint8_t block[PLX_BLOCK_SIZE];
    struct plx_home state = {0};
    struct page page = {0};
    struct plx_fault why = {0};
    int error = 0;

    for (unsigned slot = 0; slot < 2; slot++) { /* one by one: a bad sector costs one slot only */
        struct plx_home home;
        int one = plx_volume_io(device, PLX_IO_READ, (PLX_HOME_BLOCK + slot) * PLX_BLOCK_SIZE,
                                block, sizeof block);

        if (one)
            plx_fault_set(&why, one, "%s", plx_error_text(one));
        else
            one = plx_format_home_decode(block, store, &home, &why);
        if (one && one != PLX_ERR_NOT_FOUND)
            error = one;
        page.lost |= one ? 1u << slot : 0;
        if (!one && slot == SLOT_STATE)
            state = home;
        if (one || (page.found && home.generation <= page.home.generation))
            continue;
        page.home = home;
        page.found = true;
    }
    page.damaged = error != 0;
    if (page.damaged) /* NUMBERS-5: the other slot may have had a higher one */
        page.home.number = 0;
    page.kept_open = state.open && same_tenant(&state, &page.home);
    if (!page.found && error)
        return plx_fault_set(fault, error,
                             "%s: the home page is damaged (%.80s), so nobody knows which host has "
                             "the store; when no other has, 'parallax store take-over --volume "
                             "%.200s --any --i-checked-it-is-off' rewrites it",
                             device->name, why.text, device->name);
    *ret_page = page;
    return 0;
}

int plx_home_cannot_write(const struct plx_device *device, int error, struct plx_fault *fault)
{
    return error ? plx_fault_set(fault, error, "%s: cannot write the home page: %s", device->name,
                                 plx_error_text(error))
                 : 0;
}

static int write_slot(struct plx_device *device, const struct plx_uuid *store,
                      struct plx_home *home, enum home_slot slot, bool flush)
{
    uint8_t block[PLX_BLOCK_SIZE];
    int error;

    home->generation++; /* TENANCY-1 */
    plx_format_home_encode(store, home, block);
    error = plx_volume_io(device, PLX_IO_WRITE, (PLX_HOME_BLOCK + slot) * PLX_BLOCK_SIZE, block,
                          sizeof block);
    return error || !flush ? error : plx_volume_io(device, PLX_IO_FLUSH, 0, NULL, 0);
}

/* TENANCY-2. from: SLOT_STATE writes and flushes both slots, SLOT_COUNTER writes slot B alone. The
 * caller flushes slot B where that matters. */
int plx_home_write(struct plx_device *device, const struct plx_uuid *store,
                   const struct plx_home *home, enum home_slot from, struct page *page,
                   struct plx_fault *fault)
{
    bool flush = from == SLOT_STATE;
    struct page next = {
        .home = *home, .found = true, .kept_open = flush ? home->open : page->kept_open};
    int error = flush ? plx_volume_io(device, PLX_IO_FLUSH, 0, NULL, 0) : 0; /* TENANCY-2: slot B */

    next.home.generation = page->home.generation;
    for (unsigned slot = from; slot <= SLOT_COUNTER && !error; slot++)
        error = write_slot(device, store, &next.home, (enum home_slot)slot, flush);
    if (!error)
        *page = next;
    return plx_home_cannot_write(device, error, fault);
}

void plx_home_identify(const struct plx_paths *paths, struct plx_uuid *ret_host,
                       struct plx_uuid *ret_boot)
{
    *ret_host = *ret_boot = (struct plx_uuid){0};
    plx_uuid_parse(paths->host, ret_host);
    plx_uuid_parse(paths->boot, ret_boot);
}

/* PATHS-2 */
int plx_home_refuse_nameless(const struct plx_paths *paths, struct plx_fault *fault)
{
    bool full = paths->host_error == PLX_ERR_NOSPACE;

    return plx_fault_set(fault, full ? PLX_ERR_NOSPACE : PLX_ERR_PERMISSION,
                         "nothing tells this host from others: it has no /etc/machine-id, and "
                         "%.150s/host-id cannot be made: %s",
                         paths->state,
                         full ? "no room is left there; free some" : "that takes permission there");
}

/* ---- Watched ---- */

int plx_home_moved(struct plx_device *device, const struct plx_uuid *store,
                   const struct page *before, struct page *ret_now, bool *ret_moved,
                   struct plx_fault *fault)
{
    struct page now = {0};
    int error = plx_home_read(device, store, &now, fault);

    if (error && !before->found)
        error = 0;
    *ret_moved = !error && !now.damaged && /* TENANCY-6 */
                 (now.found != before->found || now.home.generation != before->home.generation);
    *ret_now = now;
    return error;
}

int plx_home_watch(struct plx_device *device, const struct plx_uuid *store, const struct page *page,
                   uint64_t ns, bool *ret_moved, struct plx_fault *fault)
{
    uint64_t since = plx_home_boot_ns();
    struct page now;
    int error = 0;

    *ret_moved = false;
    while (!error && !*ret_moved && plx_home_boot_ns() - since < ns) {
        plx_home_rest(STEP_NS);
        error = plx_home_moved(device, store, page, &now, ret_moved, fault);
    }
    return error;
}

/* TENANCY-6 */
int plx_home_settled(struct plx_device *device, const struct plx_uuid *store, struct page *ret_page,
                     struct plx_fault *fault)
{
    int error = 0;

    *ret_page = (struct page){.damaged = true};
    for (unsigned i = 0; i < LOOK_TRIES && ret_page->damaged && !error; i++) {
        if (i)
            plx_home_rest(LOOK_AGAIN_NS);
        error = plx_home_read(device, store, ret_page, fault);
    }
    return error;
}

/* Whether somebody makes a page whole that is damaged in both slots, as who has the store open does
 * with his counter. */
static bool is_mended(struct plx_device *device, const struct plx_uuid *store)
{
    uint64_t since = plx_home_boot_ns();
    bool mended = false;
    struct page now;

    while (!mended && plx_home_boot_ns() - since < WATCH_NS) {
        plx_home_rest(STEP_NS);
        mended = plx_home_read(device, store, &now, NULL) == 0;
    }
    return mended;
}

/* TENANCY-7 */
int plx_tenancy_unopened(struct plx_device *device, const struct plx_uuid *store, uint64_t *since,
                         bool *ret_unopened, struct plx_fault *fault)
{
    struct page page;
    bool begins = !*since, moved = false;
    int error = plx_home_settled(device, store, &page, fault);

    if (error == PLX_ERR_CORRUPT) {
        page = (struct page){0};
        error = 0;
        moved = begins && is_mended(device, store);
    }
    if (error)
        return error;
    if (begins && page.home.open)
        error = plx_home_watch(device, store, &page, WATCH_NS, &moved, fault);
    if (begins)
        *since = page.home.generation + 1;
    *ret_unopened = !moved && page.home.generation + 1 == *since;
    return error;
}

/* ---- Numbers ---- */

int plx_number_home(struct plx_device *device, const struct plx_uuid *store,
                    struct plx_number *ret_number, struct plx_fault *fault)
{
    struct page page;
    int error = plx_home_read(device, store, &page, fault);

    if (!error)
        *ret_number = (struct plx_number){.number = page.home.number, .damaged = page.damaged};
    return error;
}

bool plx_number_has_room(uint64_t number)
{
    return plx_counter_has_room(number);
}

void plx_number_read(struct plx_device *device, const struct plx_uuid *store,
                     struct plx_number *ret_number)
{
    uint8_t blocks[2 * PLX_BLOCK_SIZE];
    int failed = plx_volume_io(device, PLX_IO_READ, PLX_NUMBER_BLOCK * PLX_BLOCK_SIZE, blocks,
                               sizeof blocks);

    *ret_number = (struct plx_number){.damaged = failed != 0};
    for (unsigned slot = 0; slot < 2 && !failed; slot++) {
        uint64_t found = 0;
        int error = plx_format_number_decode(blocks + slot * PLX_BLOCK_SIZE, store, &found, NULL);

        if (error == PLX_ERR_NOT_FOUND)
            continue;
        if (error || !plx_number_has_room(found))
            ret_number->damaged = true;
        else
            ret_number->number = plx_max_u64(ret_number->number, found);
    }
}

int plx_number_write(struct plx_device *device, const struct plx_uuid *store, uint64_t number,
                     struct plx_fault *fault)
{
    uint8_t block[PLX_BLOCK_SIZE];
    int error;

    plx_format_number_encode(store, number, block);
    error = plx_volume_io(device, PLX_IO_WRITE, (PLX_NUMBER_BLOCK + number % 2) * PLX_BLOCK_SIZE,
                          block, sizeof block);
    if (!error)
        error = plx_volume_io(device, PLX_IO_FLUSH, 0, NULL, 0);
    return error ? plx_fault_set(fault, error, "%s: cannot write the volume's number: %s",
                                 device->name, plx_error_text(error))
                 : 0;
}

int plx_tenancy_found(struct plx_device *device, const struct plx_bytelock *locks,
                      const struct plx_uuid *store, const struct plx_paths *paths,
                      struct plx_fault *fault)
{
    struct plx_home home = {.device = locks->device, .inode = locks->inode};
    struct page page = {0};

    if (!paths->host[0])
        return plx_home_refuse_nameless(paths, fault);
    plx_home_identify(paths, &home.host, &home.boot);
    snprintf(home.host_name, sizeof home.host_name, "%s", paths->host_name);
    return plx_home_write(device, store, &home, SLOT_STATE, &page, fault);
}

int plx_tenancy_read(struct plx_device *device, const struct plx_bytelock *locks,
                     const struct plx_uuid *store, const struct plx_paths *paths,
                     struct plx_tenant *ret_tenant, struct plx_fault *fault)
{
    struct plx_uuid host, boot;
    struct page page;
    int error = plx_home_settled(device, store, &page, fault); /* TENANCY-6 */

    if (error)
        return error;
    plx_home_identify(paths, &host, &boot);
    *ret_tenant = (struct plx_tenant){
        .host = page.home.host,
        .found = page.found,
        .lost_slots = page.found ? page.lost : 0,
        .open = page.home.open,
        .ours = (!plx_uuid_is_zero(&host) && plx_uuid_equal(&page.home.host, &host)) ||
                (!plx_uuid_is_zero(&boot) && plx_uuid_equal(&page.home.boot, &boot)),
        .here = page.found && !plx_uuid_is_zero(&boot) && plx_uuid_equal(&page.home.boot, &boot) &&
                page.home.device == locks->device && page.home.inode == locks->inode,
    };
    memcpy(ret_tenant->host_name, page.home.host_name, sizeof ret_tenant->host_name);
    return 0;
}
