/* oracle.c - see oracle.h.
 *
 * A candidate of a sector is a write {id, begun, ended, durable}. A reader may see a candidate
 * unless a write that began after the candidate ended has ended too; a power cut may bring a
 * candidate back unless a write that began after it ended is durable. Candidates that neither may
 * happen to are dropped. What could still be read when a flush had failed is fleeting: no flush
 * makes it durable, for a cache may show what it has dropped; and a snapshot that sees it may come
 * to see what was there before.
 */
#include "sim/oracle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEVER UINT64_MAX

struct candidate {
    uint64_t id, token;
    uint64_t begun, ended; /* NEVER: in flight */
    bool durable, failed, fleeting;
};

struct cell {
    uint32_t count, capacity;
    struct candidate *list;
};

/* Shared between an oracle and its forks, copied when it is changed. */
struct page {
    unsigned refs;
    struct cell cells[8];
};

struct plx_oracle {
    uint64_t sectors, page_count;
    struct page **pages; /* NULL: zeroes, durable */
    uint64_t now;
    struct plx_view *views;
};

static void *must(void *memory)
{
    if (!memory) {
        fputs("oracle: out of memory\n", stderr);
        abort();
    }
    return memory;
}

/* ---- Sector contents ---- */

static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

void plx_sector_fill(uint8_t *out, uint64_t id, uint64_t sector, uint64_t count)
{
    for (uint64_t s = sector; s < sector + count; s++, out += PLX_SECTOR) {
        uint64_t word = mix(id * 0x9e3779b97f4a7c15ull ^ s);

        if (!id) {
            memset(out, 0, PLX_SECTOR);
            continue;
        }
        memcpy(out, &id, 8);
        memcpy(out + 8, &s, 8);
        for (unsigned i = 16; i < PLX_SECTOR; i += 8) {
            memcpy(out + i, &word, 8);
            word += 0x9e3779b97f4a7c15ull;
        }
    }
}

/* Most of what is checked is zeroes, so nothing is made to compare with. */
bool plx_sector_id(const uint8_t *bytes, uint64_t sector, uint64_t *ret_id)
{
    uint64_t id, at, word, found, wrong;

    memcpy(&id, bytes, 8);
    *ret_id = id;
    if (!id)
        return memcmp(bytes, bytes + 8, PLX_SECTOR - 8) == 0;
    memcpy(&at, bytes + 8, 8);
    wrong = at ^ sector;
    word = mix(id * 0x9e3779b97f4a7c15ull ^ sector);
    for (unsigned i = 16; i < PLX_SECTOR; i += 8) {
        memcpy(&found, bytes + i, 8);
        wrong |= found ^ word;
        word += 0x9e3779b97f4a7c15ull;
    }
    return !wrong;
}

/* ---- Views ---- */

static const uint64_t *ids_of(const struct plx_idset *set)
{
    return set->count > 1 ? set->many : &set->one;
}

static bool has_id(const struct plx_idset *set, uint64_t id)
{
    const uint64_t *ids = ids_of(set);

    for (uint32_t i = 0; i < set->count; i++)
        if (ids[i] == id)
            return true;
    return false;
}

static void add_id(struct plx_idset *set, uint64_t id)
{
    if (has_id(set, id))
        return;
    if (set->count == 0) {
        set->one = id;
    } else if (set->count == 1) {
        uint64_t *many = must(malloc(2 * sizeof *many));

        many[0] = set->one;
        many[1] = id;
        set->many = many;
    } else {
        set->many = must(realloc(set->many, (set->count + 1) * sizeof *set->many));
        set->many[set->count] = id;
    }
    set->count++;
}

static struct plx_idset *view_page(struct plx_view *view, uint64_t sector)
{
    struct plx_idset **page = &view->pages[sector / 8 - view->first / 8];

    if (!*page) {
        *page = must(calloc(8, sizeof **page));
        for (unsigned i = 0; i < 8; i++)
            add_id(&(*page)[i], 0);
    }
    return *page;
}

void plx_view_free(struct plx_view *view)
{
    uint64_t pages;

    if (!view || --view->refs)
        return;
    pages = (view->first + view->sectors + 7) / 8 - view->first / 8;
    for (uint64_t p = 0; p < pages; p++) {
        if (!view->pages[p])
            continue;
        for (unsigned i = 0; i < 8; i++)
            if (view->pages[p][i].count > 1)
                free(view->pages[p][i].many);
        free(view->pages[p]);
    }
    free(view->pages);
    free(view);
}

struct plx_view *plx_view_share(struct plx_view *view)
{
    view->refs++;
    return view;
}

struct plx_view *plx_view_copy(const struct plx_view *view)
{
    struct plx_view *copy = must(malloc(sizeof *copy));
    uint64_t pages = (view->first + view->sectors + 7) / 8 - view->first / 8;

    *copy = *view;
    copy->next = NULL;
    copy->refs = 1;
    copy->pages = must(calloc(pages ? pages : 1, sizeof *copy->pages));
    for (uint64_t p = 0; p < pages; p++) {
        if (!view->pages[p])
            continue;
        copy->pages[p] = must(malloc(8 * sizeof **copy->pages));
        memcpy(copy->pages[p], view->pages[p], 8 * sizeof **copy->pages);
        for (unsigned i = 0; i < 8; i++) {
            struct plx_idset *set = &copy->pages[p][i];

            if (set->count > 1) {
                uint64_t *many = must(malloc(set->count * sizeof *many));

                memcpy(many, set->many, set->count * sizeof *many);
                set->many = many;
            }
        }
    }
    return copy;
}

bool plx_view_allows(const struct plx_view *view, uint64_t sector, uint64_t id)
{
    const struct plx_idset *page = view->pages[sector / 8 - view->first / 8];

    return page ? has_id(&page[sector % 8], id) : id == 0;
}

void plx_view_pin(struct plx_view **view, uint64_t sector, uint64_t id)
{
    const struct plx_idset *page = (*view)->pages[sector / 8 - (*view)->first / 8];
    struct plx_idset *set;

    if (!page || page[sector % 8].count == 1)
        return; /* nothing else was possible */
    if ((*view)->refs > 1) {
        struct plx_view *copy = plx_view_copy(*view);

        plx_view_free(*view);
        *view = copy;
    }
    set = &view_page(*view, sector)[sector % 8];
    if (set->count > 1)
        free(set->many);
    set->count = 1;
    set->one = id;
}

uint64_t plx_view_any(const struct plx_view *view, uint64_t sector)
{
    const struct plx_idset *page = view->pages[sector / 8 - view->first / 8];

    return page ? ids_of(&page[sector % 8])[0] : 0;
}

/* ---- The oracle ---- */

struct plx_oracle *plx_oracle_new(uint64_t sectors)
{
    struct plx_oracle *oracle = must(calloc(1, sizeof *oracle));

    oracle->sectors = sectors;
    oracle->page_count = (sectors + 7) / 8;
    oracle->pages = must(calloc(oracle->page_count, sizeof *oracle->pages));
    oracle->now = 1;
    return oracle;
}

static void page_put(struct page *page)
{
    if (!page || --page->refs)
        return;
    for (unsigned i = 0; i < 8; i++)
        free(page->cells[i].list);
    free(page);
}

void plx_oracle_free(struct plx_oracle *oracle)
{
    if (!oracle)
        return;
    while (oracle->views)
        plx_oracle_view_close(oracle, oracle->views);
    for (uint64_t p = 0; p < oracle->page_count; p++)
        page_put(oracle->pages[p]);
    free(oracle->pages);
    free(oracle);
}

struct plx_oracle *plx_oracle_fork(const struct plx_oracle *oracle)
{
    struct plx_oracle *fork = must(malloc(sizeof *fork));

    *fork = *oracle;
    fork->views = NULL;
    fork->pages = must(malloc(oracle->page_count * sizeof *fork->pages));
    memcpy(fork->pages, oracle->pages, oracle->page_count * sizeof *fork->pages);
    for (uint64_t p = 0; p < fork->page_count; p++)
        if (fork->pages[p])
            fork->pages[p]->refs++;
    return fork;
}

uint64_t plx_oracle_sectors(const struct plx_oracle *oracle)
{
    return oracle->sectors;
}

void plx_oracle_grow(struct plx_oracle *oracle, uint64_t sectors)
{
    uint64_t pages = (sectors + 7) / 8;

    oracle->sectors = sectors;
    oracle->pages = must(realloc(oracle->pages, pages * sizeof *oracle->pages));
    for (; oracle->page_count < pages; oracle->page_count++)
        oracle->pages[oracle->page_count] = NULL;
}

static struct candidate *add_candidate(struct cell *cell)
{
    if (cell->count == cell->capacity) {
        cell->capacity = cell->capacity ? cell->capacity * 2 : 2;
        cell->list = must(realloc(cell->list, cell->capacity * sizeof *cell->list));
    }
    return &cell->list[cell->count++];
}

/* A page that may be changed. */
static struct page *page_own(struct page **at)
{
    struct page *old = *at, *page;

    if (old && old->refs == 1)
        return old;
    page = must(calloc(1, sizeof *page));
    page->refs = 1;
    for (unsigned i = 0; i < 8; i++) {
        struct cell *cell = &page->cells[i];

        if (!old) {
            *add_candidate(cell) = (struct candidate){.durable = true};
            continue;
        }
        *cell = old->cells[i];
        cell->capacity = cell->count;
        cell->list = must(malloc((cell->count + 1) * sizeof *cell->list));
        memcpy(cell->list, old->cells[i].list, cell->count * sizeof *cell->list);
    }
    page_put(old);
    *at = page;
    return page;
}

static struct cell *cell_make(struct plx_oracle *oracle, uint64_t sector)
{
    return &page_own(&oracle->pages[sector / 8])->cells[sector % 8];
}

struct plx_oracle *plx_oracle_clone(const struct plx_view *view, uint64_t sectors)
{
    struct plx_oracle *oracle = plx_oracle_new(sectors);

    for (uint64_t s = 0; s < view->sectors; s++) {
        const struct plx_idset *page = view->pages[s / 8];

        if (!page)
            continue;
        cell_make(oracle, s)->count = 0;
        for (uint32_t i = 0; i < page[s % 8].count; i++)
            *add_candidate(cell_make(oracle, s)) =
                (struct candidate){.id = ids_of(&page[s % 8])[i], .durable = true};
    }
    return oracle;
}

static bool superseded(const struct cell *cell, const struct candidate *c, bool durably)
{
    for (uint32_t i = 0; i < cell->count; i++) {
        const struct candidate *w = &cell->list[i];

        if (w->begun > c->ended && w->ended != NEVER && !w->failed && (!durably || w->durable))
            return true;
    }
    return false;
}

static void prune(struct cell *cell)
{
    uint32_t kept = 0;

    if (cell->count < 2)
        return;
    /* superseded() is asked of the whole list, so it is compacted afterwards. */
    for (uint32_t i = 0; i < cell->count; i++)
        if (superseded(cell, &cell->list[i], true) && superseded(cell, &cell->list[i], false))
            cell->list[i].token = NEVER;
    for (uint32_t i = 0; i < cell->count; i++)
        if (cell->list[i].token != NEVER)
            cell->list[kept++] = cell->list[i];
    cell->count = kept;
}

uint64_t plx_oracle_write_begin(struct plx_oracle *oracle, uint64_t first, uint64_t count,
                                uint64_t id)
{
    uint64_t token = ++oracle->now;

    for (uint64_t s = first; s < first + count; s++)
        *add_candidate(cell_make(oracle, s)) =
            (struct candidate){.id = id, .token = token, .begun = token, .ended = NEVER};
    for (struct plx_view *view = oracle->views; view; view = view->next)
        for (uint64_t s = first; s < first + count; s++)
            if (s >= view->first && s < view->first + view->sectors)
                add_id(&view_page(view, s)[s % 8], id);
    return token;
}

static struct candidate *candidate_of(struct cell *cell, uint64_t token)
{
    for (uint32_t i = 0; i < cell->count; i++)
        if (cell->list[i].token == token)
            return &cell->list[i];
    fputs("oracle: no such write\n", stderr);
    abort();
}

void plx_oracle_write_end(struct plx_oracle *oracle, uint64_t token, uint64_t first, uint64_t count,
                          bool failed, bool durable)
{
    uint64_t now = ++oracle->now;

    for (uint64_t s = first; s < first + count; s++) {
        struct cell *cell = cell_make(oracle, s);
        struct candidate *c = candidate_of(cell, token);

        c->ended = now;
        c->failed = failed;
        c->durable = durable && !failed;
        prune(cell);
    }
}

void plx_oracle_write_cancel(struct plx_oracle *oracle, uint64_t token, uint64_t first,
                             uint64_t count)
{
    for (uint64_t s = first; s < first + count; s++) {
        struct cell *cell = cell_make(oracle, s);

        *candidate_of(cell, token) = cell->list[cell->count - 1];
        cell->count--;
    }
}

uint64_t plx_oracle_flush_begin(struct plx_oracle *oracle)
{
    return ++oracle->now;
}

void plx_oracle_flush_end(struct plx_oracle *oracle, uint64_t begun)
{
    ++oracle->now;
    for (uint64_t p = 0; p < oracle->page_count; p++) {
        for (unsigned i = 0; oracle->pages[p] && i < 8; i++) {
            struct cell *cell = &page_own(&oracle->pages[p])->cells[i];

            for (uint32_t k = 0; k < cell->count; k++)
                if (cell->list[k].ended < begun && !cell->list[k].failed && !cell->list[k].fleeting)
                    cell->list[k].durable = true;
            prune(cell);
        }
    }
}

static bool is_fleeting(const struct cell *cell)
{
    for (uint32_t i = 0; i < cell->count; i++)
        if (cell->list[i].fleeting)
            return true;
    return false;
}

struct plx_view *plx_oracle_view_open(struct plx_oracle *oracle, uint64_t first, uint64_t count)
{
    struct plx_view *view = must(calloc(1, sizeof *view));
    uint64_t pages = (first + count + 7) / 8 - first / 8;

    view->refs = 1;
    view->first = first;
    view->sectors = count;
    view->pages = must(calloc(pages ? pages : 1, sizeof *view->pages));
    for (uint64_t s = first; s < first + count; s++) {
        const struct page *page = oracle->pages[s / 8];
        const struct cell *cell;
        struct plx_idset *set;

        if (!page)
            continue;
        cell = &page->cells[s % 8];
        set = &view_page(view, s)[s % 8];
        set->count = 0;
        for (uint32_t i = 0; i < cell->count; i++)
            if (!superseded(cell, &cell->list[i], is_fleeting(cell)))
                add_id(set, cell->list[i].id);
    }
    view->next = oracle->views;
    oracle->views = view;
    return view;
}

void plx_oracle_view_close(struct plx_oracle *oracle, struct plx_view *view)
{
    struct plx_view **link = &oracle->views;

    while (*link && *link != view)
        link = &(*link)->next;
    if (*link)
        *link = view->next;
    view->next = NULL;
}

void plx_oracle_view_widen(const struct plx_oracle *oracle, struct plx_view *view)
{
    for (uint64_t s = view->first; s < view->first + view->sectors; s++) {
        const struct page *page = oracle->pages[s / 8];
        const struct cell *cell = page ? &page->cells[s % 8] : NULL;

        for (uint32_t i = 0; cell && i < cell->count; i++)
            if (!superseded(cell, &cell->list[i], true))
                add_id(&view_page(view, s)[s % 8], cell->list[i].id);
    }
}

void plx_oracle_crash(struct plx_oracle *oracle)
{
    uint64_t now = ++oracle->now;

    for (uint64_t p = 0; p < oracle->page_count; p++) {
        for (unsigned i = 0; oracle->pages[p] && i < 8; i++) {
            struct cell *cell = &oracle->pages[p]->cells[i];
            uint32_t kept = 0;

            if (cell->count == 1) /* nothing else can come back */
                continue;
            cell = cell_make(oracle, p * 8 + i);
            for (uint32_t k = 0; k < cell->count; k++)
                if (superseded(cell, &cell->list[k], true))
                    cell->list[k].token = NEVER;
            for (uint32_t k = 0; k < cell->count; k++)
                if (cell->list[k].token != NEVER)
                    cell->list[kept++] = cell->list[k];
            cell->count = kept;
            /* Any of them is what the sector holds; which, the first read tells. */
            for (uint32_t k = 0; k < cell->count; k++) {
                cell->list[k].begun = 0;
                cell->list[k].ended = now;
                cell->list[k].durable = cell->list[k].failed = cell->list[k].fleeting = false;
            }
        }
    }
}

static void drop_ended(struct cell *cell)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < cell->count; i++)
        if (cell->list[i].ended == NEVER)
            cell->list[kept++] = cell->list[i];
    cell->count = kept;
}

void plx_oracle_rewind(struct plx_oracle *oracle, const struct plx_view *view)
{
    const struct plx_idset zero = {.count = 1};

    for (uint64_t s = 0; s < oracle->sectors; s++) {
        const struct plx_idset *page = s < view->sectors ? view->pages[s / 8] : NULL;
        const struct plx_idset *set = page ? &page[s % 8] : &zero;

        if (!oracle->pages[s / 8] && !page)
            continue;
        drop_ended(cell_make(oracle, s));
        for (uint32_t i = 0; i < set->count; i++) {
            *add_candidate(cell_make(oracle, s)) =
                (struct candidate){.id = ids_of(set)[i], .durable = true};
            for (struct plx_view *open = oracle->views; open; open = open->next)
                if (s >= open->first && s < open->first + open->sectors)
                    add_id(&view_page(open, s)[s % 8], ids_of(set)[i]);
        }
    }
}

bool plx_oracle_settle(struct plx_oracle *oracle, uint64_t sector, uint64_t id,
                       enum plx_settled how)
{
    bool durable = how == PLX_SETTLED_DURABLE;
    struct cell *cell;
    bool found = false;
    uint32_t kept = 0;

    if (!oracle->pages[sector / 8])
        return id == 0;
    cell = &oracle->pages[sector / 8]->cells[sector % 8];
    for (uint32_t i = 0; i < cell->count; i++)
        found = found || (cell->list[i].id == id && !superseded(cell, &cell->list[i], false));
    if (!found || cell->count == 1)
        return found;
    cell = cell_make(oracle, sector);
    /* Others stay as what a power cut may bring back, unless this is durable. */
    for (uint32_t i = 0; i < cell->count; i++)
        if (!durable && cell->list[i].id != id) {
            cell->list[i].begun = 0;
            cell->list[kept++] = cell->list[i];
        }
    cell->count = kept;
    ++oracle->now;
    *add_candidate(cell) = (struct candidate){
        .id = id,
        .begun = oracle->now,
        .ended = oracle->now,
        .durable = durable,
        .fleeting = how == PLX_SETTLED_FLEETING,
    };
    return true;
}
