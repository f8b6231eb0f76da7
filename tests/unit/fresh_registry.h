/* fresh_registry.h - a directory, a registry and a store for each test of the registry. */
#ifndef PLX_UNIT_FRESH_REGISTRY_H
#define PLX_UNIT_FRESH_REGISTRY_H

#include <CUnit/Basic.h>

#include "registry/instance.h"
#include "registry/paths.h"
#include "registry/registry.h"

extern char directory[64];
extern struct plx_paths paths;
extern struct plx_registry *reg;
extern struct plx_registry_store store;
extern struct plx_fault fault;
extern bool in_region; /* the registry is in a region of the file */
extern bool on_nodes;  /* it is on rqlite nodes, and the file is empty */
extern char registry_path[160];

#define OK(call) CU_ASSERT_EQUAL_FATAL(say(call), 0)
#define FAILS(code, call) CU_ASSERT_EQUAL(call, PLX_ERR_##code)

int say(int code);
int open_registry(const char *path, const char *who, struct plx_registry **ret_reg,
                  struct plx_fault *ret_fault);
void close_registry(struct plx_registry *opened);
void open_here(void);
struct plx_registry_store make_store(const char *name, unsigned volumes, uint64_t extents);
/* Around a suite on rqlite nodes, of which there are cluster_wanted(). */
int start_nodes(void);
int stop_nodes(void);
void empty_nodes(void);
/* Around each test. */
void setup(void);
void teardown(void);

/* Through locks of its own: who asks is not the one who is asked about. */
bool is_dead(const struct plx_registry_instance *row);
struct plx_instance new_instance(void);
struct plx_registry_vdi vdi_spec(const char *name, uint64_t owner);
struct plx_registry_vdi new_vdi(const char *name, uint64_t owner);
void expect_kept(const struct plx_registry_lock *lock, const uint64_t *expected, size_t count);
/* A test that a registry passes after its migration, too. */
void test_holds(void);

#endif
