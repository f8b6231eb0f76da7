/* test_libcurl.c - a registry on nodes where libcurl is not installed (handler/registry/libcurl.c).
 */
#include <dlfcn.h>
#include <string.h>

#include "registry/registry.h"
#include "suite.h"

void *__wrap_dlopen(const char *file, int mode);
void *__real_dlopen(const char *file, int mode);

/* As if the library had another name. */
void *__wrap_dlopen(const char *file, int mode)
{
    return __real_dlopen(strcmp(file, "libcurl.so.4") == 0 ? "libcurl-missing.so.4" : file, mode);
}

static void test_missing(void)
{
    const char *const address = "http://127.0.0.1:1";
    const struct plx_registry_nodes nodes = {.addresses = &address, .count = 1};
    struct plx_registry *reg;
    struct plx_fault fault = {0};

    for (unsigned turn = 0; turn < 2; turn++) {
        CU_ASSERT_EQUAL(plx_registry_open_rqlite(&nodes, "test", &reg, &fault),
                        PLX_ERR_UNSUPPORTED);
        CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "libcurl-missing.so.4: cannot open"));
        CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "install it (on Debian libcurl4)"));
    }
}

int main(void)
{
    static const struct suite_test tests[] = {{"libcurl is missing", test_missing}};

    return SUITE_RUN("registry on nodes without libcurl", tests);
}
