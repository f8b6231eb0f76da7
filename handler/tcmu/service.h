/* service.h - the retention service: the thread of an open store that lets snapshots go as each
 * disk's policy says.
 *
 * It has five jobs, some seconds apart:
 *
 *  job            for which disks                    what it does
 *  policies       open for writing, with protection  applies the tiers (registry/retention.h), one
 *                 and tiers                          slice of history at a time
 *  space          the same, unless the policy says   if the store is nearly full, lets the oldest
 *                 to keep snapshots                  snapshots go before their time, but not before
 *                                                    a collection of garbage that is due
 *  soft limits    all                                limits.h
 *  without a LUN  open, but without a LUN            closes them (SERVICE-8)
 *  rings          turned off for good                lets go of the ring
 */
#ifndef PLX_SERVICE_H
#define PLX_SERVICE_H

#include <stdbool.h>

#include "engine/base/error.h"

struct plx_store_home;
struct plx_service;

/* The home must be open, and stay open until plx_retention_stop() has returned. */
int plx_retention_start(struct plx_store_home *home, struct plx_service **ret_service,
                        struct plx_fault *fault);
/* Ends the thread after the slice that it works on. With neither luns_lock nor attach_lock held.
 * NULL is fine. */
void plx_retention_stop(struct plx_service *service);
/* A write has found no room: the service makes room at once, then calls plx_store_room_made().
 * false: there is no service. From any thread, also from within the loop, while a disk is open. */
bool plx_retention_wake(struct plx_store_home *home);

#endif
