/* test_credentials.c - handler/device/credentials.c: the file of users and passwords, by its lines.
 *
 * What is wrong is said with the file's name and the line's number, and never with what stands
 * there: every refusal is searched for the word that all passwords here have in them.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/credentials.h"
#include "suite.h"
#include "unit/small_files.h"

#define SECRET "hush"
#define TARGET "iqn.2026-11.org.example:disk"

static int make_folder(void)
{
    return make_named(PLX_CREDENTIALS_VARIABLE);
}

static void write_text(const char *text)
{
    write_bytes(text, strlen(text));
}

static struct plx_credentials find(const char *portal, const char *user)
{
    struct plx_credentials_wanted wanted = {TARGET, portal, user};
    struct plx_credentials found;
    struct plx_fault fault = {0};

    if (plx_credentials_find(&wanted, &found, &fault) != 0)
        printf("  said: %s\n", fault.text);
    CU_ASSERT_EQUAL_FATAL(fault.code, 0);
    return found;
}

static void finds(const char *portal, unsigned line)
{
    struct plx_credentials found = find(portal, "");

    CU_ASSERT_EQUAL(found.line, line);
    if (found.line != line)
        printf("  %s: line %u\n", portal, found.line);
}

static void refused(int code, const char *words)
{
    struct plx_credentials_wanted wanted = {TARGET, "san", ""};
    struct plx_credentials found;
    struct plx_fault fault = {0};

    CU_ASSERT_EQUAL(plx_credentials_find(&wanted, &found, &fault), code);
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, path));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, words));
    CU_ASSERT_PTR_NULL(strstr(fault.text, SECRET));
    if (!strstr(fault.text, words))
        printf("  said: %s\n", fault.text);
}

/* ---- Lines ------------------------------------------------------------------------------- */

static void test_fields(void)
{
    struct plx_credentials found;

    write_text("# a comment " SECRET "\n\n \t \n\t" TARGET "\tme  " SECRET "#1 \n");
    found = find("san", "");
    CU_ASSERT_EQUAL(found.line, 4);
    CU_ASSERT_STRING_EQUAL(found.user, "me");
    CU_ASSERT_STRING_EQUAL(found.password, SECRET "#1");
    CU_ASSERT_STRING_EQUAL(found.target_user, "");
    CU_ASSERT_STRING_EQUAL(found.target_password, "");
    write_text("other me " SECRET "\n" TARGET " me " SECRET " them " SECRET "-2"); /* no newline */
    found = find("san", "");
    CU_ASSERT_EQUAL(found.line, 2);
    CU_ASSERT_STRING_EQUAL(found.target_user, "them");
    CU_ASSERT_STRING_EQUAL(found.target_password, SECRET "-2");
    plx_credentials_wipe(&found);
    CU_ASSERT_EQUAL(found.password[0] | found.target_password[3], 0);
    write_text("");
    finds("san", 0);
}

/* CREDENTIALS-3: whether the line is the one that is wanted or not. */
static void test_bad_lines(void)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"x\n", "line 1: it has not 3 or 5 fields"},
        {TARGET " me " SECRET "\nx " SECRET "\n", "line 2: it has not 3 or 5 fields"},
        {"x me " SECRET " them", "line 1: it has not 3 or 5 fields"},
        {"x me " SECRET " them " SECRET " more", "MATCH USER PASSWORD"},
        {"x me " SECRET " # our " SECRET, "line 1: it has not 3 or 5 fields"},
        {"x me " SECRET " # " SECRET, "line 1: a comment has a line of its own"},
        {"#\nx me " SECRET "\r\n", "line 2: it ends with a carriage return"},
        {"x me\x01 " SECRET, "line 1: there is a control character"},
        {"x me " SECRET "\x7f", "line 1: there is a control character"},
    };

    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text(cases[i].text);
        refused(PLX_ERR_INVALID, cases[i].words);
    }
    write_bytes("x me " SECRET "\0n\n", 5 + strlen(SECRET) + 3);
    refused(PLX_ERR_INVALID, "line 1: there is a control character");
}

static void test_long(void)
{
    static char text[(64 << 10) + 2], line[600];
    struct plx_credentials found;

    memset(text, 'p', sizeof text);
    snprintf(line, sizeof line, TARGET " %.255s %.255s\n", text, text);
    write_text(line);
    found = find("san", "");
    CU_ASSERT_EQUAL(strlen(found.user), 255);
    CU_ASSERT_EQUAL(strlen(found.password), 255);
    snprintf(line, sizeof line, "#\nx %.256s " SECRET "\n", text);
    write_text(line);
    refused(PLX_ERR_INVALID, "line 2: a field has more than 255 bytes");
    write_bytes(text, 64 << 10); /* one line, and as much as there may be */
    refused(PLX_ERR_INVALID, "line 1: a field has more than 255 bytes");
    memset(text, '#', sizeof text);
    write_bytes(text, 64 << 10);
    finds("san", 0);
    write_bytes(text, (64 << 10) + 1);
    refused(PLX_ERR_INVALID, "more than 65536 bytes");
}

/* ---- What matches ------------------------------------------------------------------------ */

/* CREDENTIALS-4 */
static void test_precedence(void)
{
    write_text("san a " SECRET "\n"                             /* 1 */
               "SAN:3260 b " SECRET "\n"                        /* 2 */
               "iqn.2026-11.org.EXAMPLE:disk c " SECRET "\n"    /* 3 */
               "iqn.2026-11.org.example:disk d " SECRET "\n"    /* 4 */
               "iqn.2026-11.org.example:disk2 e " SECRET "\n"); /* 5 */
    finds("san", 3);
    finds("elsewhere:99", 3);
    CU_ASSERT_EQUAL(find("san", "d").line, 4);
    CU_ASSERT_EQUAL(find("san", "b").line, 2);
    CU_ASSERT_EQUAL(find("san:3261", "b").line, 0);
    CU_ASSERT_EQUAL(find("san:3261", "a").line, 1);
    CU_ASSERT_EQUAL(find("san", "e").line, 0);
    CU_ASSERT_EQUAL(find("san", "A").line, 0); /* users have case */
}

static void test_portals(void)
{
    write_text("10.0.0.1:3261 a " SECRET "\n"  /* 1 */
               "10.0.0.1 b " SECRET "\n"       /* 2 */
               "10.0.0.2:3260 c " SECRET "\n"  /* 3 */
               "[fe80::1]:3261 d " SECRET "\n" /* 4 */
               "fe80::1 e " SECRET "\n"        /* 5 */
               "[fe80::2] f " SECRET "\n"      /* 6 */
               "[fe80::3 g " SECRET "\n");     /* 7: of no use, and of no harm */
    finds("10.0.0.1", 2);
    finds("10.0.0.1:3261", 1);
    finds("10.0.0.1:3262", 2);
    finds("10.0.0.2", 3);
    finds("10.0.0.2:3260", 3);
    finds("10.0.0.2:3261", 0);
    finds("10.0.0.22:3260", 0);
    finds("10.0.0", 0);
    finds("[fe80::1]", 5);
    finds("[fe80::1]:3261", 4);
    finds("[FE80::2]:3261", 6);
    finds("[fe80::3]", 0);
    finds("", 0);
}

/* ---- The file ---------------------------------------------------------------------------- */

/* CREDENTIALS-2 */
static void test_modes(void)
{
    static const mode_t bad[] = {0640, 0604, 0620, 0602, 0610, 0644, 0777};

    write_text(TARGET " me " SECRET "\n");
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        char words[32];

        snprintf(words, sizeof words, "(mode %03o): chmod 600", (unsigned)bad[i]);
        CU_ASSERT_EQUAL(chmod(path, bad[i]), 0);
        refused(PLX_ERR_PERMISSION, words);
    }
    CU_ASSERT_EQUAL(chmod(path, 0400), 0);
    finds("san", 1);
    if (geteuid() != 0) {
        PART_SKIPPED("only root can give a file to another user");
        return;
    }
    CU_ASSERT_EQUAL(chown(path, 12345, 0), 0);
    refused(PLX_ERR_PERMISSION, "belongs to user 12345");
}

static void test_kinds(void)
{
    unlink(path);
    refused(PLX_ERR_NOT_FOUND, "the file of iSCSI credentials: cannot read");
    CU_ASSERT_EQUAL(mkdir(path, 0700), 0);
    refused(PLX_ERR_INVALID, "is no regular file");
    CU_ASSERT_EQUAL(rmdir(path), 0);
    CU_ASSERT_EQUAL(mkfifo(path, 0600), 0);
    refused(PLX_ERR_INVALID, "is no regular file");
    setenv(PLX_CREDENTIALS_VARIABLE, "", 1);
    CU_ASSERT_STRING_EQUAL(plx_credentials_path(), PLX_CREDENTIALS_FILE);
    setenv(PLX_CREDENTIALS_VARIABLE, path, 1);
    CU_ASSERT_STRING_EQUAL(plx_credentials_path(), path);
}

/* ---- URLs -------------------------------------------------------------------------------- */

/* CREDENTIALS-1 */
static void test_urls(void)
{
    static const char *const cases[][2] = {
        {"iscsi://san/iqn.x:y/0", NULL},
        {"iscsi://san:3260/iqn.x:y/0?header_digest=crc32c", NULL},
        {"iscsi://san:3260/iqn.x%3Ay/0", NULL},
        {"iscsi://me@san:3260/iqn.x%3Ay/0", NULL},
        {"/srv/me%hush@san", NULL},
        {"iscsi://me%hush@san/iqn.x:y/0", "iscsi://me@san/iqn.x:y/0"},
        {"iscsi://me:hush@san/iqn.x:y/0", "iscsi://me@san/iqn.x:y/0"},
        {"iscsi://me%hush@hush@san/iqn.x/0", "iscsi://me@san/iqn.x/0"},
        {"iscsi://me%hu?hu/hush@san/iqn.x/0", "iscsi://me@san/iqn.x/0"},
        {"iscsi://san/x/0?target_user=a&target_password=hush&b",
         "iscsi://san/x/0?target_user=a&&b"},
        {"iscsi://me%hush@san/x/0?target_password=hush", "iscsi://me@san/x/0?"},
    };
    struct plx_fault fault = {0};

    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *url = cases[i][0], *clean = cases[i][1];
        char text[128], option[128];

        snprintf(option, sizeof option, "--volume=%s", url);
        CU_ASSERT_EQUAL(plx_url_has_password(url), clean != NULL);
        CU_ASSERT_EQUAL(plx_url_has_password(option), clean != NULL);
        CU_ASSERT_EQUAL(plx_url_refuse_password(url, &fault), clean ? PLX_ERR_INVALID : 0);
        snprintf(text, sizeof text, "%s", url);
        plx_url_drop_password(text);
        CU_ASSERT_STRING_EQUAL(text, clean ? clean : url);
        CU_ASSERT_FALSE(plx_url_has_password(text));
    }
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, path));
    CU_ASSERT_PTR_NULL(strstr(fault.text, SECRET));
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"fields", test_fields},
        {"bad lines (CREDENTIALS-3)", test_bad_lines},
        {"long lines and files", test_long},
        {"precedence (CREDENTIALS-4)", test_precedence},
        {"portals (CREDENTIALS-4)", test_portals},
        {"modes and owners (CREDENTIALS-2)", test_modes},
        {"no regular file (CREDENTIALS-2)", test_kinds},
        {"passwords in URLs (CREDENTIALS-1)", test_urls},
    };
    const struct suite_frame frame = {.init = make_folder, .clean = remove_folder};

    return SUITE_RUN_IN(&frame, "credentials", tests);
}
