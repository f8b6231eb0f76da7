/* stage.h - hosts, with a folder of their own each, and volumes that lie on simulated disks: on
 * them the whole of attach and registry works, real SQLite included, and the power can be cut at
 * any event.
 *
 * A volume has a file, too: it is what is locked and found by its path, and nothing is written to
 * it. The home page's time stands still but for whoever rests for it (stage.c).
 */
#ifndef PLX_CRASH_STAGE_H
#define PLX_CRASH_STAGE_H

#include "registry/tenancy.h"
#include "sim/simdisk.h"

enum stage_host { STAGE_ALPHA, STAGE_BETA, STAGE_GAMMA, STAGE_HOSTS };

/* A moment as a power cut leaves it: volumes, and what hosts know of stores. */
struct stage_cut {
    struct plx_simpower power;
    struct stage_entries *entries[STAGE_HOSTS];
};

/* The folder with everything; false: it cannot be made. */
bool stage_open(void);
void stage_close(void);
/* An empty stage: no volumes, and hosts that know nothing. seed: of what disks decide. */
void stage_clear(uint64_t seed);

/* Which host calls, and what it calls. */
extern enum stage_host stage_host;
const char *stage_name(enum stage_host host);
const char *stage_state(void);
/* All machines are switched on again: they have other boots. */
void stage_reboot(void);
/* The host has lost its state directory. */
void stage_forget(enum stage_host host);

const char *stage_volume(unsigned number); /* its path, whether it exists or not */
void stage_make_volume(unsigned number, uint64_t bytes);
void stage_grow_volume(unsigned number, uint64_t bytes);
unsigned stage_volumes(void); /* how many there are */
/* All volumes, in the order of their numbers. */
struct plx_simpower *stage_power(void);

/* This moment of the stage, which goes on: fates as plx_simpower_fork() takes them, NULL: all
 * writes are kept. */
void stage_cut_now(const uint8_t *fates, uint64_t seed, struct stage_cut *ret_cut);
/* The stage becomes that moment, and the power is back. */
void stage_go_to(const struct stage_cut *cut);
void stage_cut_free(struct stage_cut *cut);
/* Equal for moments that are. */
uint64_t stage_cut_hash(const struct stage_cut *cut);

#endif
