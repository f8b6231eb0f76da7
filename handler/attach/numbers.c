/* numbers.c - see numbers.h.
 *
 * NUMBERS-1  The further volumes get a new number first, durably, and then the home page gets it.
 *     So a volume with a lower number than the home page went back to an older state, or its device
 *     lost a write that it had acknowledged. Then the store is opened neither for reading nor for
 *     writing. The registry is told nothing, so the newer volume only has to be put back.
 * NUMBERS-2  A further volume may have a number that is higher than the home page's:
 *
 *       by      it means                            what is done
 *       one     a process died while it wrote that  the home page gets that number, and then the
 *               number (NUMBERS-1)                  next one is written
 *       two or  volume 0 went back                  refused, as in NUMBERS-1
 *       more
 *
 *     Both slots of the home page get each number, durably, before anything else is done. Say that
 *     21 followed 20 in one slot only. That slot may be lost later, or be overwritten by a host
 *     that was paused, when the volumes have 22 already. Then the home page would have 20, and
 *     volume 0 would be refused although it did not go back.
 * NUMBERS-3  A volume without a number is older than the first number of the store, and counts as
 *     one that went back. So a volume that is added must have the home page's number from the
 *     moment in which volume 0 counts it. Four rules see to that:
 *     - Whoever writes numbers holds PLX_BYTE_HOME.
 *     - Numbers are written to all volumes that the store has, or to none. A process that opened
 *       the store before a volume was added does not know that volume, so it writes none.
 *     - A volume that is being added gets the home page's number before volume 0 counts the volume.
 *     - Whoever adds the volume reads that number under PLX_BYTE_HOME, too, and shares
 *       PLX_BYTE_OPEN of volume 1 until volume 0 counts the new one. To raise the number at an
 *       opening or a closing, a process must get that byte exclusively (NUMBERS-4). So the number
 *       does not rise in between.
 * NUMBERS-4  The number rises in three cases:
 *     - A process opens the store, and nobody else has it open.
 *     - The last process closes it.
 *     - A process has grown the store, by a further volume or by one that became larger, whoever
 *       else has it open. So a store gets its first number with its second volume. A store of one
 *       volume has none.
 *     In the first two a process can tell by getting PLX_BYTE_OPEN of volume 1 exclusively
 *     (VOLUMES-6). If it does not get that byte, the number stays.
 * NUMBERS-5  A number that may not be the newest of its volume does not refuse that volume:
 *     - A damaged slot of a further volume may have had the newest number. So a lower number in its
 *       other slot is not held against the volume.
 *     - A home page with a damaged slot, or one that an older program wrote, which left 0 there,
 *       has no number until the next one is written. Until then no volume is compared with it.
 *     The next number that is written is then higher than all that were read.
 * NUMBERS-6  If the operator says so, a rebuild takes the volumes as they are, and gives all of
 *     them a number that none had. So a newer volume that is put back later counts as one that went
 *     back: it does not know what the store did since.
 * NUMBERS-7  The number does not rise while the store is in doubt, or while the registry says that
 *     volume 0 went back (REBUILD-11). The newer volume 0 may still be put back, and must not look
 *     older then. Nor does it rise while a superblock has to be written again (ATTACH-15).
 * NUMBERS-8  A volume's number may have been overwritten together with its superblocks. When the
 *     operator has these restored, the slots without a number are marked as lost, and count as
 *     damaged ones (NUMBERS-5). So the store opens, and gives the volume its number again. Only
 *     that word of the operator does so. Zeroes alone mean a volume from before the first number
 *     (NUMBERS-3).
 * NUMBERS-9  A number that is written leaves room (format.h), so that it can be read again, and
 *     counted on from. Only a forged store has a number that leaves no room for the next. Then all
 *     numbers begin anew:
 *     1. The home page gets no number.
 *     2. Both slots of each further volume get a low number.
 *     3. The home page gets that number.
 *     A crash meanwhile leaves a home page without a number, and the next opening begins anew
 *     again.
 * What numbers do not find: a copy of a volume that was made while the store was open, and put back
 *   after that opening was killed; and a volume 0 that went back by one number only (NUMBERS-2).
 * Threads: as in numbers.h.
 * Crash story: some volumes have the next number, and the home page does not (NUMBERS-2). A torn
 *   write leaves the number before in the other slot, and a damaged slot (NUMBERS-5).
 */
#include "attach/numbers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/attach_inside.h"
#include "attach/volumes.h"
#include "registry/lost.h"

#define ANEW 2u /* NUMBERS-9 */

enum raise_when { AT_OPENING, AT_CLOSING, WHEN_JOINED, AT_REBUILDING };

/* What the volumes say, compared with the home page. */
struct numbers {
    struct plx_device *device[PLX_VOLUMES_MAX];
    unsigned volumes;
    struct plx_uuid id;
    struct plx_number home;
    uint64_t highest;
    bool unknown;     /* NUMBERS-5: of the home page */
    bool interrupted; /* NUMBERS-2 */
    bool back, ahead; /* a further volume went back; volume 0 did */
    unsigned volume;  /* of the former the first, of the latter one that proves it */
};

struct raising {
    struct plx_attach *attach; /* NULL: AT_REBUILDING */
    const struct plx_store *store;
    enum raise_when when;
    bool waits; /* NUMBERS-7: nothing is written */
    bool again;
};

static unsigned count_volumes(const struct plx_store *store)
{
    struct plx_store_info info;

    plx_store_get_info(store, &info);
    return info.volumes;
}

static void of_store(const struct plx_store *store, struct numbers *ret)
{
    struct plx_store_info info;

    plx_store_get_info(store, &info);
    *ret = (struct numbers){.volumes = info.volumes, .id = info.id};
    for (unsigned i = 0; i < info.volumes; i++)
        ret->device[i] = plx_store_device(store, i);
}

static void compare(struct numbers *n, const struct plx_number *home)
{
    n->home = *home;
    n->highest = home->number;
    n->unknown = home->damaged || !home->number;
    for (unsigned i = 1; i < n->volumes; i++) {
        struct plx_number number;

        plx_number_read(n->device[i], &n->id, &number);
        n->highest = plx_max_u64(n->highest, number.number);
        if (n->unknown)
            continue;
        if (number.number < home->number && !number.damaged && !n->back) {
            n->back = true;
            n->volume = i;
        }
        if (number.number > home->number + 1 && !n->ahead && !n->back) {
            n->ahead = true;
            n->volume = i;
        }
        n->interrupted = n->interrupted || number.number == home->number + 1;
    }
}

/* NUMBERS-1, NUMBERS-2. named: as 'store rebuild-registry' takes it. */
static int judge(const struct numbers *n, const char *store, const char *named,
                 struct plx_fault *fault)
{
    const char *name = n->device[n->back ? n->volume : 0]->name;
    char witness[100] = "";

    if (!n->back && !n->ahead)
        return 0;
    if (n->ahead && !n->back)
        snprintf(witness, sizeof witness, ", for %.80s is newer", n->device[n->volume]->name);
    return plx_fault_set(fault, PLX_ERR_CORRUPT,
                         "%.120s went back to an older state%s: it lacks what was written to store "
                         "%s since; put the newer one back; only if there is none, 'parallax store "
                         "rebuild-registry %s --i-checked-there-is-no-newer-one' goes on with what "
                         "is there, and then it is too late for the newer one",
                         name, witness, store, named);
}

static int write_all(const struct numbers *n, uint64_t next, struct plx_fault *fault)
{
    int error = 0;

    for (unsigned i = 1; i < n->volumes && !error; i++)
        error = plx_number_write(n->device[i], &n->id, next, fault);
    return error;
}

/* NUMBERS-9. *ret_next: what the home page gets; ANEW after 0. */
static int write_next(const struct numbers *n, uint64_t *ret_next, struct plx_fault *fault)
{
    uint64_t next = *ret_next;
    int error;

    if (plx_number_has_room(next))
        return write_all(n, next, fault);
    *ret_next = n->home.number ? 0 : ANEW;
    if (n->home.number)
        return 0;
    error = write_all(n, ANEW - 1, fault); /* in the other slot */
    return error ? error : write_all(n, ANEW, fault);
}

/* NUMBERS-3. Another process may have added volumes since the store was opened here. */
static bool knows_all(const struct plx_store *store)
{
    struct plx_superblock_info info;

    return !plx_superblock_probe(plx_store_device(store, 0), &info, NULL) &&
           info.volumes == count_volumes(store);
}

/* NUMBERS-4. And then, VOLUMES-6. */
static int ask_alone(const struct plx_store *store, enum raise_when when, bool *ret_alone,
                     struct plx_fault *fault)
{
    struct plx_bytelock *locks = plx_store_device(store, 1)->used;

    if (when == AT_REBUILDING) {
        *ret_alone = true;
        return 0;
    }
    *ret_alone = when == WHEN_JOINED ||
                 (locks && !locks->ops->set(locks, PLX_BYTE_OPEN, PLX_BYTE_EXCLUSIVE) &&
                  knows_all(store));
    return plx_volumes_share_open(store, fault);
}

/* NUMBERS-7. The registry may ask the tenancy, so it is not asked while that raises. */
static bool waits_for_newer(struct plx_attach *a)
{
    struct plx_registry_lost *list;
    struct plx_registry_store row;
    struct plx_store_info info;
    bool waits;
    size_t count;

    plx_store_get_info(a->store, &info);
    waits = !plx_registry_store_get(a->registry, a->known.uuid, &row) && row.doubt[0];
    if (waits || plx_registry_lost_list(a->registry, a->row.id, &list, &count))
        return waits;
    for (size_t i = 0; i < count; i++)
        waits = waits || list[i].slot == 2 * info.vdi_slots;
    free(list);
    return waits;
}

/* A number that cannot be written is no reason not to use the store: the home page keeps the one
 * that all have (NUMBERS-2). */
static int raise(void *context, const struct plx_number *home, uint64_t *ret_next,
                 struct plx_fault *fault)
{
    struct raising *r = context;
    struct plx_fault why;
    struct numbers n;
    uint64_t next;
    bool alone;
    int error = ask_alone(r->store, r->when, &alone, fault);

    if (error)
        return error;
    of_store(r->store, &n);
    compare(&n, home);
    if (r->when != AT_REBUILDING)
        error = judge(&n, r->attach->known.name, r->attach->known.name, fault);
    if (error || !alone || r->waits)
        return error;
    /* NUMBERS-5, NUMBERS-6 */
    next = n.unknown || r->when == AT_REBUILDING ? n.highest + 1 : home->number + 1;
    error = write_next(&n, &next, &why);
    if (error && r->when == AT_REBUILDING)
        return plx_fault_set(fault, error, "%s", why.text);
    if (error) {
        plx_attach_env_event(&r->attach->env, error, why.text);
        return 0;
    }
    r->again = n.interrupted || !next; /* NUMBERS-2, NUMBERS-9 */
    *ret_next = next;
    return 0;
}

static int raise_by(struct raising *r, struct plx_tenancy *tenancy, struct plx_fault *fault)
{
    const struct plx_number_raise how = {.raise = raise, .context = r};
    int error;

    r->waits = r->attach && (plx_store_behind(r->store) || waits_for_newer(r->attach));
    do {
        r->again = false;
        error = plx_tenancy_number(tenancy, &how, fault);
    } while (!error && r->again);
    return error;
}

/* Others may write numbers meanwhile. So none that was read after the home page counts as lower
 * than that, and none that was read before it as higher; unless all begin anew (NUMBERS-9), which
 * nobody does where a volume went back. */
static int look(struct numbers *n, const char *store, const char *named, struct plx_fault *fault)
{
    struct plx_number home, then;

    if (plx_number_home(n->device[0], &n->id, &home, NULL))
        return 0; /* whose the store is, others ask */
    compare(n, &home);
    if ((n->ahead || n->back) &&
        (plx_number_home(n->device[0], &n->id, &then, NULL) || then.number != home.number))
        n->ahead = n->back = false;
    return judge(n, store, named, fault);
}

int plx_numbers_look(struct plx_device *const *devices, unsigned count,
                     const struct plx_uuid *store, const char *name, const char *named,
                     unsigned *ret_volume, struct plx_fault *fault)
{
    struct numbers n = {.volumes = count, .id = *store};
    int error;

    memcpy(n.device, devices, count * sizeof *devices);
    error = look(&n, name, named, fault);
    *ret_volume = n.back ? n.volume : 0;
    return error;
}

int plx_numbers_opened(struct plx_attach *a, struct plx_fault *fault)
{
    struct numbers n;

    of_store(a->store, &n);
    return n.volumes < 2 ? 0 : look(&n, a->known.name, a->known.name, fault);
}

int plx_numbers_open(struct plx_attach *a, struct plx_fault *fault)
{
    struct raising r = {.attach = a, .store = a->store, .when = AT_OPENING};

    int error = count_volumes(a->store) < 2 ? 0 : raise_by(&r, a->tenancy, fault);

    a->numbered = !error;
    return error;
}

void plx_numbers_closing(struct plx_attach *a)
{
    struct raising r = {.attach = a, .store = a->store, .when = AT_CLOSING};

    if (a->numbered && a->tenancy && count_volumes(a->store) > 1 &&
        !plx_tenancy_fenced(a->tenancy, NULL))
        raise_by(&r, a->tenancy, NULL); /* else as after a crash */
}

/* Raises nothing. */
static int note(void *context, const struct plx_number *home, uint64_t *ret_next,
                struct plx_fault *fault)
{
    uint64_t *number = context;

    *number = home->number;
    return 0;
}

int plx_numbers_joining(struct plx_attach *a, uint64_t *ret_number, struct plx_fault *fault)
{
    const struct plx_number_raise how = {.raise = note, .context = ret_number};

    return plx_tenancy_number(a->tenancy, &how, fault);
}

int plx_numbers_joined(struct plx_attach *a, struct plx_fault *fault)
{
    struct raising r = {.attach = a, .store = a->store, .when = WHEN_JOINED};

    return count_volumes(a->store) < 2 ? 0 : raise_by(&r, a->tenancy, fault);
}

bool plx_numbers_went_back(const struct plx_store *store, unsigned *ret_volume)
{
    struct plx_number home;
    struct numbers n;

    of_store(store, &n);
    if (plx_number_home(n.device[0], &n.id, &home, NULL))
        return false;
    compare(&n, &home);
    *ret_volume = n.back ? n.volume : 0;
    return n.back || n.ahead;
}

int plx_numbers_renew(const struct plx_store *store, struct plx_tenancy *tenancy,
                      struct plx_fault *fault)
{
    struct raising r = {.store = store, .when = AT_REBUILDING};

    return count_volumes(store) < 2 ? 0 : raise_by(&r, tenancy, fault);
}

bool plx_numbers_is_ahead(struct plx_device *first, struct plx_device *further,
                          const struct plx_uuid *store)
{
    struct plx_number home, number;

    if (plx_number_home(first, store, &home, NULL) || home.damaged)
        return false;
    plx_number_read(further, store, &number);
    return number.number > home.number + 1;
}
