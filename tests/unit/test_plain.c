/* test_plain.c - engine/base/plain.c: what is escaped, and what is not. */
#include <stdio.h>
#include <string.h>

#include "engine/base/plain.h"
#include "suite.h"

static const struct {
    const char *text, *plain;
} cases[] = {
    {"", ""},
    {"web-1.old", "web-1.old"},
    {"B\xc3\xa4r \xe2\x82\xac \xf0\x9f\x90\xbb", "B\xc3\xa4r \xe2\x82\xac \xf0\x9f\x90\xbb"},
    {"a\nb\r\tc", "a\\x0ab\\x0d\\x09c"},
    {"\x1b]0;owned\x07", "\\x1b]0;owned\\x07"},
    {"\x7f", "\\x7f"},
    {"\xc2\x9b", "\\xc2\\x9b"},                                     /* C1 */
    {"\xe2\x80\xae\xe2\x80\xa8", "\\xe2\\x80\\xae\\xe2\\x80\\xa8"}, /* turns; a line's end */
    {"\xff\x80z", "\\xff\\x80z"},                                   /* no UTF-8 */
    {"\xc3", "\\xc3"},                                              /* cut off */
    {"\xc3(", "\\xc3("},
    {"\xc0\x8a", "\\xc0\\x8a"},                   /* a newline, written too long */
    {"\xed\xa0\x80", "\\xed\\xa0\\x80"},          /* half a pair */
    {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"}, /* behind the last */
    {"C:\\x0a", "C:\\x0a"},
};

static void test_escaped(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char once[100], twice[100];

        CU_ASSERT_STRING_EQUAL(plx_plain(cases[i].text, once, sizeof once), cases[i].plain);
        CU_ASSERT_STRING_EQUAL(plx_plain(once, twice, sizeof twice), once);
    }
}

/* What does not fit as a whole is left out, and nothing is written behind the end. */
static void test_cut(void)
{
    static const char text[] = "a\xc3\xa4\n\xc2\x9b";
    static const size_t lengths[] = {0, 1, 1, 3, 3, 3, 3, 7, 7, 7, 7, 7, 7, 7, 7, 15, 15};

    for (size_t size = 1; size <= sizeof lengths / sizeof lengths[0]; size++) {
        char room[32];

        memset(room, '#', sizeof room);
        CU_ASSERT_PTR_EQUAL(plx_plain(text, room, size), room);
        CU_ASSERT_EQUAL(strlen(room), lengths[size - 1]);
        CU_ASSERT(strncmp(room, "a\xc3\xa4\\x0a\\xc2\\x9b", strlen(room)) == 0);
        CU_ASSERT_EQUAL(room[size], '#');
    }
}

static void test_steps(void)
{
    const char *text = "x\xc3\xa4\n", *at = text;
    unsigned escaped;

    CU_ASSERT(plx_plain_step(&at, &escaped) == 1 && escaped == 0);
    CU_ASSERT(plx_plain_step(&at, &escaped) == 2 && escaped == 0);
    CU_ASSERT(plx_plain_step(&at, &escaped) == 1 && escaped == 1);
    CU_ASSERT(at == text + 4);
}

/* PLAIN-2 */
static void test_words(void)
{
    static const struct {
        const char *text, *word;
    } words[] = {
        {"/srv/demo-1.plx", "/srv/demo-1.plx"},
        {"iscsi://u@h:3260/iqn.2026-11.x:y/0", "iscsi://u@h:3260/iqn.2026-11.x:y/0"},
        {"/srv/my disk", "/srv/my\\ disk"},
        {"a'b\"c", "a\\'b\\\"c"},
        {"$(rm x)`y`;!&|<>*?[]{}~#\\",
         "\\$\\(rm\\ x\\)\\`y\\`\\;\\!\\&\\|\\<\\>\\*\\?\\[\\]\\{\\}\\~\\#\\\\"},
        {"B\xc3\xa4r", "B\xc3\xa4r"},
    };
    char text[128];

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        CU_ASSERT_STRING_EQUAL(plx_plain_word(words[i].text, text, sizeof text), words[i].word);
    CU_ASSERT_STRING_EQUAL(plx_plain_word("ab c", text, 4), "ab"); /* no backslash alone */
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"what is escaped", test_escaped},
        {"cut", test_cut},
        {"steps", test_steps},
        {"words", test_words},
    };

    return SUITE_RUN("plain", tests);
}
