/* test_config.c - handler/tcmu/config.c: what a cfgstring means, and the reasons of its refusals.
 */
#include <stdio.h>
#include <string.h>

#include "tcmu/config.h"
#include "suite.h"

static struct plx_lun_config parsed(const char *cfgstring)
{
    struct plx_lun_config config = {.overwrite = 99};
    struct plx_fault fault = {0};

    CU_ASSERT_EQUAL(plx_lun_config_parse(cfgstring, &config, &fault), 0);
    if (config.overwrite == 99)
        printf("  %s: %s\n", cfgstring, fault.text);
    return config;
}

static void refused(const char *cfgstring, const char *word)
{
    struct plx_lun_config config, before;
    struct plx_fault fault = {0};

    memset(&config, 0x5a, sizeof config);
    before = config;
    CU_ASSERT_EQUAL(plx_lun_config_parse(cfgstring, &config, &fault), PLX_ERR_INVALID);
    CU_ASSERT_EQUAL(memcmp(&config, &before, sizeof config), 0);
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, word));
    if (!strstr(fault.text, word))
        printf("  %s: said '%s', not '%s'\n", cfgstring, fault.text, word);
}

static void test_plain(void)
{
    struct plx_lun_config config = parsed("parallax/demo/web-1.disk_0");

    CU_ASSERT_STRING_EQUAL(config.store, "demo");
    CU_ASSERT_STRING_EQUAL(config.vdi, "web-1.disk_0");
    CU_ASSERT_STRING_EQUAL(config.snapshot, "");
    CU_ASSERT_EQUAL(config.overwrite, -1);
    CU_ASSERT_FALSE(config.write_back);
}

static void test_options(void)
{
    struct plx_lun_config config = parsed("parallax/s/v;overwrite=copy;cache=on");

    CU_ASSERT_EQUAL(config.overwrite, PLX_OVERWRITE_COPY);
    CU_ASSERT_TRUE(config.write_back);
    CU_ASSERT_EQUAL(config.quiet_ns, 3600000000000ull); /* an hour */
    CU_ASSERT_EQUAL(parsed("parallax/s/v;quiet=90s").quiet_ns, 90000000000ull);
    CU_ASSERT_EQUAL(parsed("parallax/s/v;quiet=off").quiet_ns, 0);
    config = parsed("parallax/s/v@l;cache=off;overwrite=in-place");
    CU_ASSERT_STRING_EQUAL(config.vdi, "v");
    CU_ASSERT_EQUAL(config.overwrite, PLX_OVERWRITE_IN_PLACE);
    CU_ASSERT_FALSE(config.write_back);
    config = parsed("parallax/s/v;cache=on;tcmur_cmd_time_out=30");
    CU_ASSERT_TRUE(config.write_back);
}

static void test_snapshots(void)
{
    const char *good[] = {"before-upgrade",
                          "1",
                          "123456789",
                          "20261121T062000Z",
                          "20261121T062000.010Z",
                          "20261121T062000.123456789Z"};
    char cfgstring[200];

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        snprintf(cfgstring, sizeof cfgstring, "parallax/s/v@%s", good[i]);
        CU_ASSERT_STRING_EQUAL(parsed(cfgstring).snapshot, good[i]);
    }
    refused("parallax/s/v@", "no snapshot after '@'");
    refused("parallax/s/v@0", "no sequence number");
    refused("parallax/s/v@12345678901234567890", "no sequence number");
    refused("parallax/s/v@2026-11-21T06:20:00.010Z", "20261121T062000.010Z");
    refused("parallax/s/v@20261121T0620Z", "20261121T062000.010Z");
    refused("parallax/s/v@20261121T062000.Z", "20261121T062000.010Z");
    refused("parallax/s/v@a b", "'a b'");
}

static void test_refusals(void)
{
    char name[400], cfgstring[500];

    refused("", "does not begin with parallax/");
    refused("par/s/v", "does not begin with parallax/");
    refused("parallaxes/s/v", "does not begin with parallax/");
    refused("parallax/", "no '/' between store and VDI");
    refused("parallax/demo", "no '/' between store and VDI");
    refused("parallax//v", "store name is missing");
    refused("parallax/s/", "vdi name is missing");
    refused("parallax/s/@l", "vdi name is missing");
    refused("parallax/s/v/w", "'v/w'");
    refused("parallax/s/../v", "'../v'");
    refused("parallax/s/v w", "'v w'");
    refused("parallax/s/v;", "no option after ';'");
    refused("parallax/s/v;cache=on;;overwrite=copy", "no option after ';'");
    refused("parallax/s/v;chache=on", "'chache=on' is no option");
    refused("parallax/s/v;cache=yes", "cache is 'off' or 'on'");
    refused("parallax/s/v;cache=onn", "cache is 'off' or 'on'");
    refused("parallax/s/v;quiet=", "quiet is a time");
    refused("parallax/s/v;quiet=0s", "quiet is a time");
    refused("parallax/s/v;quiet=soon", "quiet is a time");
    refused("parallax/s/v;quiet=1111111111111111111111111111111111h", "quiet is a time");
    refused("parallax/s/v;overwrite=", "overwrite is 'in-place' or 'copy'");
    refused("parallax/s/v;tcmur_cmd_time_out=3;cache=on", "must be the last");
    memset(name, 'a', 300);
    name[300] = '\0';
    snprintf(cfgstring, sizeof cfgstring, "parallax/s/%s", name);
    refused(cfgstring, "300 characters long");
    snprintf(cfgstring, sizeof cfgstring, "parallax/%s/v", name);
    refused(cfgstring, "300 characters long");
    name[250] = '\0';
    snprintf(cfgstring, sizeof cfgstring, "parallax/s/%s", name);
    refused(cfgstring, "the kernel takes 254");
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"store and VDI", test_plain},
        {"options", test_options},
        {"snapshots", test_snapshots},
        {"refusals name the part", test_refusals},
    };

    return SUITE_RUN("config", tests);
}
