/* test_settings.c - handler/registry/settings.c: the configuration file, by its lines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ok.h"
#include "registry/paths.h"
#include "registry/settings.h"
#include "suite.h"
#include "unit/small_files.h"

static struct plx_settings settings;
static struct plx_fault fault;

static int make_folder(void)
{
    return make_named(PLX_SETTINGS_VARIABLE);
}

static void reads(const char *text)
{
    write_bytes(text, strlen(text));
    OK(plx_settings_read(&settings, &fault));
    CU_ASSERT_STRING_EQUAL(settings.file, path);
}

static void refused(int code, const char *words)
{
    memset(&fault, 0, sizeof fault);
    CU_ASSERT_EQUAL(plx_settings_read(&settings, &fault), code);
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, path));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, words));
    if (!strstr(fault.text, words))
        printf("  said: %s\n", fault.text);
}

static void test_values(void)
{
    reads("");
    CU_ASSERT_STRING_EQUAL(settings.state, "");
    reads("# where the state lies\n; on a disk of its own\n\n[paths]\nstate=/srv/parallax");
    CU_ASSERT_STRING_EQUAL(settings.state, "/srv/parallax"); /* no newline */
    reads("[paths]\n  state =  /srv/my parallax \n");
    CU_ASSERT_STRING_EQUAL(settings.state, "/srv/my parallax");
}

static void test_nodes(void)
{
    struct plx_settings_nodes named;

    reads("[paths]\nstate = /x\n");
    plx_settings_nodes(&settings, &named);
    CU_ASSERT_EQUAL(named.nodes.count, 0);
    reads("# a host of three\n"
          "[registry]\n"
          "node = https://10.0.0.1:4001\n"
          "node = https://10.0.0.2:4001\n"
          "ca = /etc/parallax/ca.pem\n"
          "certificate = /etc/parallax/host.pem\n"
          "key = /etc/parallax/host.key\n"
          "user = parallax\n"
          "password-file = /etc/parallax/registry.password\n"
          "plain = no\n");
    plx_settings_nodes(&settings, &named);
    CU_ASSERT_EQUAL_FATAL(named.nodes.count, 2);
    CU_ASSERT_STRING_EQUAL(named.nodes.addresses[0], "https://10.0.0.1:4001");
    CU_ASSERT_STRING_EQUAL(named.nodes.addresses[1], "https://10.0.0.2:4001");
    CU_ASSERT_STRING_EQUAL(named.nodes.ca, "/etc/parallax/ca.pem");
    CU_ASSERT_STRING_EQUAL(named.nodes.certificate, "/etc/parallax/host.pem");
    CU_ASSERT_STRING_EQUAL(named.nodes.key, "/etc/parallax/host.key");
    CU_ASSERT_STRING_EQUAL(named.nodes.user, "parallax");
    CU_ASSERT_STRING_EQUAL(named.nodes.password_file, "/etc/parallax/registry.password");
    CU_ASSERT_FALSE(named.nodes.plain);
    reads("[registry]\nnode = http://10.0.0.1:4001\nplain = yes\n");
    plx_settings_nodes(&settings, &named);
    CU_ASSERT_TRUE(named.nodes.plain);
    CU_ASSERT_PTR_NULL(named.nodes.ca);
    CU_ASSERT_PTR_NULL(named.nodes.user);
}

/* SETTINGS-1, SETTINGS-4 */
static void test_not_understood(void)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"[paths]\nstat = /x\n", "line 2: section [paths] has no key 'stat'"},
        {"\n[registri]\nnode = x\n", "line 3: there is no section [registri]"},
        {"state = /x\n", "line 1: 'state' stands before any [SECTION]"},
        {"[paths]\nstate = /x\n\nstate = /y\n", "line 4: 'state' stands there twice"},
        {"[paths]\nstate = /x\n /y\n", "line 3: 'state' stands there twice"}, /* a line goes on */
        {"[paths]\nstate =\n", "line 2: the value of 'state' is missing"},
        {"[paths]\nstate = here\n", "line 2: 'state' is no absolute path: here"},
        {"[paths]\nstate\n", "line 2: neither [SECTION] nor KEY = VALUE"},
        {"[paths\n", "line 1: neither"},
        {"[registry]\nca = ca.pem\n", "line 2: 'ca' is no absolute path: ca.pem"},
        {"[registry]\nplain = maybe\n", "line 2: 'plain' is yes or no: maybe"},
        {"[registry]\nuser = me\n[paths]\nuser = me\n", "line 4: section [paths] has no key"},
        {"[registry]\nnode=1\nnode=2\nnode=3\nnode=4\nnode=5\nnode=6\nnode=7\nnode=8\nnode=9\n"
         "node=10\n",
         "line 11: 'node' stands there more than 9 times"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_bytes(cases[i].text, strlen(cases[i].text));
        refused(PLX_ERR_INVALID, cases[i].words);
    }
}

static void test_long(void)
{
    static char text[(64 << 10) + 1];

    memset(text, 'p', sizeof text);
    memcpy(text, "[paths]\nstate = /", 17);
    write_bytes(text, 8 + 190);
    OK(plx_settings_read(&settings, &fault));
    CU_ASSERT_EQUAL(strlen(settings.state), 190 - 8);
    write_bytes(text, 8 + 191);
    refused(PLX_ERR_INVALID, "line 2: it has more than 190 bytes");
    write_bytes(text, 600);
    refused(PLX_ERR_INVALID, "line 2: it has more than 190 bytes");
    memset(text, '\n', sizeof text);
    write_bytes(text, 64 << 10);
    OK(plx_settings_read(&settings, &fault));
    write_bytes(text, sizeof text);
    refused(PLX_ERR_INVALID, "has more than 65536 bytes");
    write_bytes("[paths]\n\0state = /x\n", 20);
    refused(PLX_ERR_INVALID, "it has a zero byte");
}

/* SETTINGS-2, SETTINGS-3 */
static void test_file(void)
{
    static const mode_t bad[] = {0664, 0646, 0666};

    reads("");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CU_ASSERT_EQUAL(chmod(path, bad[i]), 0);
        refused(PLX_ERR_PERMISSION, "can be written by others");
    }
    if (geteuid() != 0) {
        PART_SKIPPED("only root can give a file to another user");
    } else {
        CU_ASSERT_EQUAL(chmod(path, 0644), 0);
        CU_ASSERT_EQUAL(chown(path, 12345, 0), 0);
        refused(PLX_ERR_PERMISSION, "belongs to user 12345");
    }
    unlink(path);
    refused(PLX_ERR_NOT_FOUND, "cannot read");
    CU_ASSERT_EQUAL(mkdir(path, 0700), 0);
    refused(PLX_ERR_INVALID, "is no regular file");
    CU_ASSERT_EQUAL(rmdir(path), 0);
    CU_ASSERT_EQUAL(mkfifo(path, 0600), 0);
    refused(PLX_ERR_INVALID, "is no regular file");
}

/* What says first where the state is. */
static void test_precedence(void)
{
    struct plx_paths paths;

    setenv("PARALLAX_STATE_DIR", "", 1);
    reads("[paths]\nstate = /tmp/plx-settings-file\n");
    OK(plx_paths_init(&paths, NULL, &fault));
    CU_ASSERT_STRING_EQUAL(paths.state, "/tmp/plx-settings-file");
    CU_ASSERT_STRING_EQUAL(paths.run, "/tmp/plx-settings-file/run");
    setenv("PARALLAX_STATE_DIR", "/tmp/plx-settings-variable", 1);
    OK(plx_paths_init(&paths, NULL, &fault));
    CU_ASSERT_STRING_EQUAL(paths.state, "/tmp/plx-settings-variable");
    OK(plx_paths_init(&paths, "/tmp/plx-settings-option", &fault));
    CU_ASSERT_STRING_EQUAL(paths.state, "/tmp/plx-settings-option");
    write_bytes("[paths]\nstate\n", 14);
    CU_ASSERT_EQUAL(plx_paths_init(&paths, NULL, &fault), PLX_ERR_INVALID);
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"values", test_values},
        {"nodes", test_nodes},
        {"what is not understood (SETTINGS-1, SETTINGS-4)", test_not_understood},
        {"long ones", test_long},
        {"file (SETTINGS-2, SETTINGS-3)", test_file},
        {"precedence", test_precedence},
    };

    return SUITE_RUN_IN((&(struct suite_frame){make_folder, remove_folder, NULL, NULL}),
                        "configuration file", tests);
}
