/* registry_edit.h - changes a store's registry behind everybody's back, as damage or an old program
 * would: tests of what is made of it. */
#ifndef PLX_TEST_REGISTRY_EDIT_H
#define PLX_TEST_REGISTRY_EDIT_H

#include "engine/base/error.h"

/* Runs SQL in the registry that lies on volume 0 of a store; *ret_changes rows were changed. */
int plx_registry_edit(const char *volume, const char *sql, int *ret_changes,
                      struct plx_fault *fault);

#endif
