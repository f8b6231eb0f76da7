/* cluster.h - rqlite nodes for a test: started in a folder of their own, killed, emptied. */
#ifndef PLX_UNIT_CLUSTER_H
#define PLX_UNIT_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "registry/registry.h"

#define CLUSTER_NODES 3u

/* Files of a folder: ca.pem, node.pem and node.key of the nodes, host.pem and host.key of who asks.
 * The nodes read node.pem again when it changes. */
struct cluster_guard {
    const char *folder;
    bool clients;                /* who asks needs a certificate */
    const char *user, *password; /* who asks needs them; NULL: nobody does */
};

struct cluster {
    unsigned count;
    bool references;            /* -fk */
    struct cluster_guard guard; /* folder NULL: plain HTTP for everybody */
    pid_t pid[CLUSTER_NODES];
    unsigned http[CLUSTER_NODES], raft[CLUSTER_NODES];
    char folder[64];
    char address[CLUSTER_NODES][40];
    const char *addresses[CLUSTER_NODES];
    char ca[100], certificate[100], key[100], password_file[100];
};

/* How many nodes PLX_REGISTRY_NODES asks for; 0: none. */
unsigned cluster_wanted(void);
/* The program: PLX_RQLITED, or where tests/install-deps puts it. false: it is not there, and a line
 * that tests/run lists says so. */
bool cluster_is_possible(void);
bool cluster_start(struct cluster *cluster, unsigned nodes, bool references);
/* One node that speaks TLS. Puts users.json and `password` into the folder, if they are asked for.
 */
bool cluster_start_guarded(struct cluster *cluster, const struct cluster_guard *guard);
/* What cluster_open() opens the registry by. The texts are in *cluster. */
struct plx_registry_nodes cluster_access(const struct cluster *cluster);
void cluster_stop(struct cluster *cluster);
/* Starts a node, which joins the first one; waits until it is ready. */
bool cluster_start_node(struct cluster *cluster, unsigned node);
void cluster_kill(struct cluster *cluster, unsigned node);
/* The number of the leader; -1: there is none. */
int cluster_leader(const struct cluster *cluster);
/* Makes the database empty. */
bool cluster_wipe(const struct cluster *cluster);
/* Runs a statement as nobody of ours would; false: it failed. */
bool cluster_sql(const struct cluster *cluster, const char *sql);
int cluster_open(const struct cluster *cluster, const char *who, struct plx_registry **ret_reg,
                 struct plx_fault *fault);
/* A port of the loopback device that nobody uses. */
unsigned cluster_port(void);

#endif
