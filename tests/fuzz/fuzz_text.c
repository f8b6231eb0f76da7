/* fuzz_text.c - what people and configurations type: cfgstrings, names, sizes, times, identities,
 * command lines.
 *
 * The first byte says which parser. Properties: what is accepted and written again means the same.
 */
#include <time.h>

#include "../../admin/cli.h"
#include "fuzz.h"
#include "attach/attach.h"
#include "registry/names.h"
#include "tcmu/config.h"

#define WORDS_MAX 200

/* A table as the command has one, with every kind of option and argument. */
static const struct plx_option some_options[] = {
    {"size", "SIZE", "a size"},
    {"count", "N", "a number"},
    {"force", NULL, "a switch"},
    {NULL, NULL, NULL},
};
static const struct plx_command commands[] = {
    {"vdi", "create", "STORE/VDI", "one", NULL, NULL, some_options, NULL},
    {"vdi", "list", "[STORE]", "none or one", NULL, NULL, NULL, NULL},
    {"stats", NULL, "A B [C]", "no verb", NULL, NULL, some_options, NULL},
    {NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL},
};

PLX_FUZZ_EXPORT int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    setenv("TZ", "UTC", 1);
    tzset();
    return 0;
}

static void config(const char *text)
{
    struct plx_lun_config parsed, again;
    struct plx_fault fault;
    char back[1024], why[300];

    if (plx_lun_config_parse(text, &parsed, &fault)) {
        FUZZ_CHECK(fault.text[0]);
        return;
    }
    FUZZ_CHECK(plx_name_check("store", parsed.store, why, sizeof why) == 0);
    FUZZ_CHECK(plx_name_check("vdi", parsed.vdi, why, sizeof why) == 0);
    snprintf(back, sizeof back, PLX_CFGSTRING_PREFIX "%s/%s%s%s;cache=%s%s", parsed.store,
             parsed.vdi, parsed.snapshot[0] ? "@" : "", parsed.snapshot,
             parsed.write_back ? "on" : "off",
             parsed.overwrite < 0                     ? ""
             : parsed.overwrite == PLX_OVERWRITE_COPY ? ";overwrite=copy"
                                                      : ";overwrite=in-place");
    if (strlen(back) > PLX_CFGSTRING_MAX || plx_lun_config_parse(back, &again, &fault))
        return; /* options that contradict a snapshot, or one that was left out */
    FUZZ_CHECK(strcmp(parsed.store, again.store) == 0 && strcmp(parsed.vdi, again.vdi) == 0 &&
               strcmp(parsed.snapshot, again.snapshot) == 0 &&
               parsed.overwrite == again.overwrite && parsed.write_back == again.write_back);
}

static void size(const char *text)
{
    uint64_t bytes, again;
    char back[32];

    if (plx_text_number_parse(text, &bytes)) {
        snprintf(back, sizeof back, "%llu", (unsigned long long)bytes);
        FUZZ_CHECK(plx_text_number_parse(back, &again) && again == bytes);
    }
    if (!plx_text_size_parse(text, &bytes))
        return;
    snprintf(back, sizeof back, "%llu", (unsigned long long)bytes);
    FUZZ_CHECK(plx_text_size_parse(back, &again) && again == bytes);
    FUZZ_CHECK(strlen(plx_text_size(bytes, back)) < 16);
    FUZZ_CHECK(strlen(plx_text_duration(bytes, back)) < 32);
}

static void time_text(const char *text)
{
    uint64_t ns, again;
    char back[48];

    if (!plx_time_parse(text, &ns))
        return;
    /* Nothing comes before 1970, and what is written begins with the same year, but for zones. */
    plx_text_time(ns, back);
    FUZZ_CHECK(plx_time_parse(back, &again) && again == ns);
    FUZZ_CHECK(labs(strtol(text, NULL, 10) / (strlen(text) > 4 && text[4] == '-' ? 1 : 10000) -
                    strtol(back, NULL, 10)) <= 1);
}

static void name(const char *text, unsigned form)
{
    struct plx_name parsed;
    struct plx_fault fault;
    char back[sizeof parsed + 3];

    if (plx_text_name_parse(text, form, &parsed, &fault)) {
        FUZZ_CHECK(fault.text[0]);
        return;
    }
    snprintf(back, sizeof back, "%s%s%s%s%s", parsed.store, parsed.vdi[0] ? "/" : "", parsed.vdi,
             parsed.snapshot[0] ? "@" : "", parsed.snapshot);
    FUZZ_CHECK(strcmp(text, back) == 0);
}

static void identity(const char *text)
{
    struct plx_uuid id;
    char back[PLX_UUID_TEXT], why[300];

    if (plx_uuid_parse(text, &id)) {
        plx_uuid_text(&id, back);
        FUZZ_CHECK(strcmp(text, back) == 0);
        FUZZ_CHECK(plx_name_check("store", text, why, sizeof why) != 0);
    }
    plx_name_check("vdi", text, why, sizeof why);
    plx_name_check("label", text, why, sizeof why);
}

static void command_line(char *text)
{
    static struct plx_cli cli;
    char *argv[WORDS_MAX + 2] = {(char *)"parallax"};
    uint64_t number = 0;
    int argc = 1;

    for (char *word = text; word && argc < WORDS_MAX; argc++) {
        argv[argc] = word;
        word = strchr(word, '\n');
        if (word)
            *word++ = 0;
    }
    memset(&cli, 0, sizeof cli);
    if (plx_cli_parse(&cli, commands, argc, argv)) {
        FUZZ_CHECK(cli.fault.text[0]);
        return;
    }
    if (cli.help)
        return;
    FUZZ_CHECK(cli.command && cli.count <= PLX_ARGUMENTS_MAX && cli.given_count <= PLX_GIVEN_MAX);
    if (cli.command->options) {
        plx_cli_size(&cli, "size", &number);
        if (plx_cli_number(&cli, "count", 3, 9, &number) == 0 && plx_cli_get(&cli, "count"))
            FUZZ_CHECK(number >= 3 && number <= 9);
    }
}

PLX_FUZZ_EXPORT int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct fuzz_input input = {bytes, count};
    unsigned which = (unsigned)fuzz_take(&input, 1);
    char *text = malloc(input.left + 1);

    memcpy(text, input.at, input.left);
    text[input.left] = 0;
    switch (which % 6) {
    case 0:
        config(text);
        break;
    case 1:
        size(text);
        break;
    case 2:
        time_text(text);
        break;
    case 3:
        name(text, which / 6 % 4);
        break;
    case 4:
        identity(text);
        break;
    default:
        command_line(text);
        break;
    }
    free(text);
    return 0;
}
