/* simenv.h - the engine's environment in a simulation: a clock that only the run moves, seeded
 * randomness, a registry that knows nothing but who owns which extent, and the events heard.
 */
#ifndef PLX_SIMENV_H
#define PLX_SIMENV_H

#include "engine/engine.h"
#include "sim/simrng.h"

#define PLX_SIMENV_EVENTS 64

/* Extent ownership; outlives instances, as the real registry does. */
struct plx_simregistry {
    struct {
        uint64_t owner; /* 0: nobody */
        bool system, used;
        enum plx_extent_type type; /* of one that was given up */
        uint64_t generation;       /* raised when it gets an owner */
        uint64_t states;           /* plx_extent_info.states when it was given up; 0: not known */
    } * extents;
    uint64_t count;
    uint64_t limit; /* at most so many are ever granted; 0: all */
    uint64_t granted;
    uint64_t collections, collector; /* odd: under way, by that instance */
    uint64_t reserve;                /* so many unused ones are left to metadata */
};

struct plx_simenv {
    struct plx_env env; /* first */
    struct plx_simrng rng;
    uint64_t ns;      /* the truth */
    int64_t off_ns;   /* how far the wall clock is off */
    bool disciplined; /* where it is not, the kernel says so */
    uint64_t step_ns; /* per look at the clock; 0: 100 */
    struct plx_store *store;
    uint64_t instance;
    struct plx_simregistry *registry;
    bool grant_later; /* answer from a later turn of the loop */
    bool asked[PLX_EXTENT_META + 1];
    unsigned delay[PLX_EXTENT_META + 1]; /* turns */
    bool needed;                         /* extent_needed is to be answered */
    uint64_t needed_extent;
    uint64_t extent_calls, needed_calls;
    bool gives_way, room_wanted;             /* writes without room wait; one does */
    void (*on_tick)(struct plx_simenv *env); /* may be NULL */
    void (*on_automatic)(struct plx_simenv *env, uint32_t slot, enum plx_automatic what,
                         uint64_t seq, uint64_t time_ns); /* may be NULL */
    char events[PLX_SIMENV_EVENTS][256];                  /* the newest, round robin */
    int event_codes[PLX_SIMENV_EVENTS];
    uint64_t event_count;
    bool loud; /* print events */
};

void plx_simenv_init(struct plx_simenv *env, uint64_t seed);
/* What the wall clock says; a look that takes no time. */
uint64_t plx_simenv_wall_ns(const struct plx_simenv *env);
void plx_simregistry_init(struct plx_simregistry *registry, const struct plx_store_info *info);
void plx_simregistry_done(struct plx_simregistry *registry);
/* What is told with an extent. */
void plx_simenv_tell_collections(const struct plx_simenv *env);
void plx_simregistry_own(struct plx_simregistry *registry, uint64_t extent, uint64_t instance);
/* Gives up every extent that the instance owns, as before a clean end. */
int plx_simenv_release_all(struct plx_simenv *env, struct plx_fault *fault);
/* A collection in the extents of this instance and of nobody; whoever has others lives. */
int plx_simenv_collect(struct plx_simenv *env, uint64_t *ret_blocks, struct plx_fault *fault);
/* Events whose text holds `word`. */
unsigned plx_simenv_heard(const struct plx_simenv *env, const char *word);

#endif
