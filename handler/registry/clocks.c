/* clocks.c - see clocks.h.
 *
 * CLOCKS-1  A witness whose row is lost or damaged counts as one that has seen nothing. The next
 *     look at the clocks begins again (WITNESS-7). A rebuild knows better (REBUILD-15), and whoever
 *     opens a disk does not take a page that cannot be read for a lost row (ATTACH-23).
 * Threads: any. No state.
 * Crash story: that of witness.c.
 */
#include "registry/clocks.h"

#include <string.h>
#include <sys/timex.h>

#include "registry/clock.h"

#define KEEP_NS (600 * 1000000000ull)

uint64_t plx_clocks_boot_id(const struct plx_paths *paths)
{
    struct plx_uuid boot;
    uint64_t id = 0;

    if (plx_uuid_parse(paths->boot, &boot))
        memcpy(&id, boot.b, sizeof id);
    return id ? id : 1;
}

bool plx_clocks_disciplined(void)
{
    struct timex state = {0};
    int answer = adjtimex(&state);

    return answer >= 0 && answer != TIME_ERROR && !(state.status & STA_UNSYNC);
}

struct plx_clocks plx_clocks_here(const struct plx_paths *paths)
{
    return (struct plx_clocks){
        .wall_ns = plx_clock_ns(CLOCK_REALTIME),
        .boot_ns = plx_clock_ns(CLOCK_BOOTTIME),
        .boot_id = plx_clocks_boot_id(paths),
        .disciplined = plx_clocks_disciplined(),
    };
}

int plx_witness_load(struct plx_registry *registry, const char *vdi,
                     struct plx_witness *ret_witness)
{
    char text[PLX_POLICY_VALUE_MAX + 1];
    struct plx_witness witness = {0};
    int error = plx_registry_policy_get(registry, vdi, PLX_POLICY_CLOCK, text);

    if (error && error != PLX_ERR_NOT_FOUND)
        return error;
    if (error || !plx_witness_parse(text, &witness)) /* CLOCKS-1 */
        witness = (struct plx_witness){0};
    *ret_witness = witness;
    return 0;
}

int plx_witness_keep(struct plx_registry *registry, const char *vdi,
                     const struct plx_witness *witness)
{
    char text[PLX_WITNESS_TEXT];

    return plx_registry_policy_set(registry, vdi, PLX_POLICY_CLOCK,
                                   plx_witness_print(witness, text));
}

bool plx_witness_is_news(const struct plx_witness *witness, const struct plx_witness *kept)
{
    return witness->boot_id != kept->boot_id || plx_witness_differs(witness, kept) ||
           witness->wall_ns < kept->wall_ns || witness->wall_ns - kept->wall_ns >= KEEP_NS;
}
