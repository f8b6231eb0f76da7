/* cli.c - words to commands, and the help that comes from the same table.
 *
 * CLI-1  An unknown option, or one that is given twice and may not be, is an error before anything
 *     is opened or changed.
 * CLI-2  No option can be abbreviated. So a script goes on working when options are added.
 * CLI-3  A word that contains a password is refused before any word is printed or kept. Words that
 *     belong to another program's command line are not looked at.
 */
#include "cli.h"

#include <ctype.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/credentials.h"
#include "registry/settings.h"

#define HELP_COLUMN 28
#define HELP_WIDTH 90
#define WAIT_DEFAULT_S 10 /* as help and the manual say */
#define WAIT_MAX_S 86400

static const struct plx_option everywhere[] = {
    {"state-dir", "DIR",
     "where the list of known stores and the sockets are (default: $PARALLAX_STATE_DIR, else as "
     "the configuration file says, else /var/lib/parallax and /run/parallax)"},
    {"config", "FILE",
     "the configuration file (default: $PARALLAX_CONFIG, else /etc/parallax/parallax.conf, which "
     "need not exist)"},
    {"json", NULL, "print data and errors as JSON"},
    {"quiet", NULL, "-q: no notes, no progress, no table headers"},
    {"wait", "SECONDS",
     "how long to wait for what another command of this host is using; 0: do not wait (default "
     "10)"},
    {"help", NULL, "-h: this help"},
    {NULL, NULL, NULL},
};

int plx_cli_usage(struct plx_cli *cli, const char *format, ...)
{
    va_list args;

    cli->fault.code = PLX_ERR_USAGE;
    va_start(args, format);
    vsnprintf(cli->fault.text, sizeof cli->fault.text, format, args);
    va_end(args);
    return PLX_ERR_USAGE;
}

int plx_cli_interrupted(struct plx_cli *cli, int rc)
{
    struct plx_fault why = cli->fault;

    if (!rc)
        return plx_cli_fail(cli, PLX_ERR_INTERRUPTED,
                            "interrupted; not everything was done or printed");
    if (strncmp(why.text, "interrupted", strlen("interrupted")) == 0)
        cli->fault.code = PLX_ERR_INTERRUPTED;
    else
        plx_cli_fail(cli, PLX_ERR_INTERRUPTED, "interrupted; %.240s",
                     *why.text ? why.text : plx_error_text(rc));
    return PLX_ERR_INTERRUPTED;
}

/* ---- Looking things up ------------------------------------------------------------------- */

static bool is_hidden(const struct plx_command *command)
{
    return !command->summary;
}

static const struct plx_command *find_command(const struct plx_cli *cli, const char *noun,
                                              const char *verb)
{
    for (const struct plx_command *c = cli->commands; c->noun; c++)
        if (!strcmp(c->noun, noun) && (!verb || !c->verb || !strcmp(c->verb, verb)))
            return c;
    return NULL;
}

/* "create, list, delete": the verbs of a noun, or with NULL all nouns. */
static const char *list_words(const struct plx_cli *cli, const char *noun, char *list, size_t size)
{
    const char *previous = "";
    size_t used = 0;

    *list = 0;
    for (const struct plx_command *c = cli->commands; c->noun && used < size; c++) {
        const char *word = noun ? c->verb : c->noun;

        if (is_hidden(c) || (noun && strcmp(noun, c->noun)) || !strcmp(word, previous))
            continue;
        used += (size_t)snprintf(list + used, size - used, "%s%s", used ? ", " : "", word);
        previous = word;
    }
    return list;
}

static int wrong_words(struct plx_cli *cli, const char *noun, const char *verb)
{
    char list[200], nearest[60];

    list_words(cli, cli->noun, list, sizeof list);
    if (!noun)
        return plx_cli_usage(cli, "no command given: %s", list);
    if (!cli->noun)
        return plx_cli_usage(cli, "unknown command '%.80s': there are %s%s", noun, list,
                             plx_cli_guess_word(cli, NULL, noun, nearest, sizeof nearest));
    if (!verb)
        return plx_cli_usage(cli, "'%.40s' needs a verb: %s", noun, list);
    return plx_cli_usage(cli, "unknown command '%.40s %.80s': '%.40s' has %s%s", noun, verb, noun,
                         list, plx_cli_guess_word(cli, noun, verb, nearest, sizeof nearest));
}

static const struct plx_option *find_option(const struct plx_option *options, const char *name,
                                            size_t length)
{
    for (; options && options->name; options++)
        if (strlen(options->name) == length && !memcmp(options->name, name, length)) /* CLI-2 */
            return options;
    return NULL;
}

static const struct plx_option *find_any_option(const struct plx_command *command, const char *name,
                                                size_t length)
{
    const struct plx_option *own = command ? find_option(command->options, name, length) : NULL;

    return own ? own : find_option(everywhere, name, length);
}

static bool takes_rest(const struct plx_command *command)
{
    return command->arguments && strstr(command->arguments, " -- ");
}

static bool is_repeated(const char *word)
{
    size_t length = strcspn(word, " ");

    return length > 5 && *word == '[' && !memcmp(word + length - 4, "...]", 4);
}

/* "NAME [FILE]": one required argument, two at most; "[FILE...]": no limit but the room for them.
 * Not what stands behind "--". */
static void count_arguments(const char *arguments, unsigned *ret_min, unsigned *ret_max)
{
    unsigned min = 0, max = 0;
    bool in_word = false;

    for (const char *p = arguments ? arguments : ""; *p && strncmp(p, "-- ", 3); p++) {
        if (*p != ' ' && !in_word) {
            max = is_repeated(p) ? PLX_ARGUMENTS_MAX : max + 1;
            min += *p != '[';
        }
        in_word = *p != ' ';
    }
    *ret_min = min;
    *ret_max = max;
}

static bool is_repeatable(const struct plx_option *option)
{
    return option->value && strstr(option->value, "...");
}

/* ---- Parsing ------------------------------------------------------------------------------- */

static void set_global(struct plx_cli *cli, const char *name, const char *value)
{
    if (!strcmp(name, "config")) /* also for the programs that the command starts */
        setenv(PLX_SETTINGS_VARIABLE, value, 1);
    else if (!strcmp(name, "state-dir"))
        cli->state_dir = value;
    else if (!strcmp(name, "json"))
        cli->json = true;
    else if (!strcmp(name, "quiet"))
        cli->quiet = true;
}

/* The few options that people type all the time; help was seen before. */
static const char *long_name(const char *word)
{
    static const char *const names[][2] = {
        {"-q", "--quiet"}, {"-f", "--force"}, {"-n", "--dry-run"}};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(word, names[i][0]))
            return names[i][1];
    return word;
}

/* Takes the option at argv[*at] and its value; steps *at over both. */
static int take_option(struct plx_cli *cli, int argc, char **argv, int *at)
{
    const char *word = argv[*at];
    char nearest[60];
    const char *name = long_name(word);
    const char *equals = strchr(name, '=');
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    const struct plx_option *option =
        length > 2 && name[1] == '-' ? find_any_option(cli->command, name + 2, length - 2) : NULL;

    if (!option) /* CLI-1 */
        return plx_cli_usage(
            cli, "unknown option '%.80s'%s", word,
            plx_cli_guess_option(cli->command, everywhere, word, nearest, sizeof nearest));
    const char *value = equals ? equals + 1 : "";
    if (!option->value && equals)
        return plx_cli_usage(cli, "--%s takes no value", option->name);
    if (option->value && !equals) {
        if (*at + 1 >= argc)
            return plx_cli_usage(cli, "--%s needs a value: %s", option->name, option->value);
        value = argv[++*at];
    }
    if (option->value && !*value)
        return plx_cli_usage(cli, "--%s has an empty value", option->name);
    if (!is_repeatable(option) && plx_cli_get(cli, option->name))
        return plx_cli_usage(cli, "--%s is given twice", option->name);
    if (cli->given_count == PLX_GIVEN_MAX)
        return plx_cli_usage(cli, "more than %d options", PLX_GIVEN_MAX);
    cli->given[cli->given_count].option = option;
    cli->given[cli->given_count++].value = value;
    set_global(cli, option->name, value);
    return 0;
}

/* Whether a global option's value is the word behind it. */
static bool takes_value(const char *word)
{
    const struct plx_option *option =
        strncmp(word, "--", 2) ? NULL : find_option(everywhere, word + 2, strlen(word + 2));

    return option && option->value;
}

/* The command is known before its options are read: the first one or two words that are neither
 * options nor a global option's value. Their places in argv come back, 0 for none. */
static int find_words(struct plx_cli *cli, int argc, char **argv, int *ret_noun, int *ret_verb)
{
    int places[2] = {0, 0};
    unsigned found = 0;

    for (int i = 1; i < argc && found < 2 && strcmp(argv[i], "--"); i++) {
        if (argv[i][0] != '-')
            places[found++] = i;
        else if (takes_value(argv[i]))
            i++;
    }
    *ret_noun = places[0];
    *ret_verb = places[1];
    if (!found)
        return 0;
    const char *noun = argv[places[0]];
    const struct plx_command *command = find_command(cli, noun, NULL);
    if (!command)
        return wrong_words(cli, noun, NULL);
    cli->noun = command->noun;
    if (!command->verb)
        *ret_verb = 0;
    else if (places[1] && !find_command(cli, noun, argv[places[1]]))
        return wrong_words(cli, noun, argv[places[1]]);
    if (!command->verb || places[1])
        cli->command = find_command(cli, noun, command->verb ? argv[places[1]] : NULL);
    return 0;
}

/* There is no command: what is wrong with an option goes first. */
static int wrong_options(struct plx_cli *cli, int argc, char **argv)
{
    int rc = 0;

    for (int i = 1; i < argc && !rc && strcmp(argv[i], "--"); i++)
        if (argv[i][0] == '-' && argv[i][1])
            rc = take_option(cli, argc, argv, &i);
    return rc ? rc : wrong_words(cli, NULL, NULL);
}

static const char *size_not_given(const struct plx_cli *cli)
{
    return plx_cli_has(cli, "size") && !plx_cli_get(cli, "size") ? "size" : NULL;
}

static bool wants_help(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            return true;
    return false;
}

/* CLI-3 */
static int refuse_password(struct plx_cli *cli, const char *word)
{
    if (!plx_url_refuse_password(word, &cli->fault))
        return 0;
    cli->fault.code = PLX_ERR_USAGE;
    return PLX_ERR_USAGE;
}

int plx_cli_parse(struct plx_cli *cli, const struct plx_command *commands, int argc, char **argv)
{
    unsigned min, max;
    bool options_end = false;
    char nearest[60];
    int noun, verb, rc = 0;

    cli->commands = commands;
    cli->help = wants_help(argc, argv);
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) /* a wrong word is JSON, too */
        cli->json |= !strcmp(argv[i], "--json");
    for (int i = 1; i < argc && !rc && strcmp(argv[i], "--"); i++)
        rc = refuse_password(cli, argv[i]);
    if (rc)
        return rc;
    rc = find_words(cli, argc, argv, &noun, &verb);
    if (rc || cli->help) {
        if (!cli->command && noun && !rc)
            cli->arguments[0] = argv[noun];
        return rc;
    }
    if (!cli->command)
        return noun ? wrong_words(cli, argv[noun], NULL) : wrong_options(cli, argc, argv);
    count_arguments(cli->command->arguments, &min, &max);
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];

        if (i == noun || i == verb)
            continue;
        if (!options_end && !strcmp(word, "--") && takes_rest(cli->command)) {
            cli->rest = argv + i + 1;
            cli->rest_count = (unsigned)(argc - i - 1);
            break;
        } else if (!options_end && !strcmp(word, "--")) {
            options_end = true;
        } else if (!options_end && word[0] == '-' && word[1]) {
            if ((rc = take_option(cli, argc, argv, &i)))
                return rc;
        } else if ((rc = refuse_password(cli, word))) {
            return rc;
        } else if (cli->count == max || cli->count == PLX_ARGUMENTS_MAX) {
            return plx_cli_usage(
                cli, "one argument too many: '%.80s'%s", word,
                plx_cli_guess_value(size_not_given(cli), word, nearest, sizeof nearest));
        } else if (!*word) {
            return plx_cli_usage(cli, "an argument is empty; it takes: %s",
                                 cli->command->arguments);
        } else {
            cli->arguments[cli->count++] = word;
        }
    }
    if (cli->count < min || (takes_rest(cli->command) && !cli->rest_count))
        return plx_cli_usage(cli, "an argument is missing, it takes: %s", cli->command->arguments);
    cli->wait_s = WAIT_DEFAULT_S;
    return plx_cli_number(cli, "wait", 0, WAIT_MAX_S, &cli->wait_s);
}

/* ---- Values ---------------------------------------------------------------------------------- */

unsigned plx_cli_all(const struct plx_cli *cli, const char *option, const char **values,
                     unsigned max)
{
    unsigned count = 0;

    PLX_ASSERT(plx_cli_has(cli, option));
    for (unsigned i = 0; i < cli->given_count && count < max; i++)
        if (!strcmp(cli->given[i].option->name, option))
            values[count++] = cli->given[i].value;
    return count;
}

bool plx_cli_has(const struct plx_cli *cli, const char *option)
{
    return find_any_option(cli->command, option, strlen(option)) != NULL;
}

const char *plx_cli_get(const struct plx_cli *cli, const char *option)
{
    const char *value = NULL;

    plx_cli_all(cli, option, &value, 1);
    return value;
}

/* More than any store holds, and still a number of JSON's. */
#define SIZE_MAX_BYTES (1ull << 60)
/* A block a second: less is a unit that was forgotten. */
#define RATE_MIN_BYTES PLX_BLOCK_SIZE
/* Likewise; what has to be in memory at least is more. */
#define MEMORY_MIN_BYTES 512

int plx_cli_size_within(struct plx_cli *cli, const char *option, uint64_t min, uint64_t max,
                        uint64_t *ret_bytes)
{
    const char *value = plx_cli_get(cli, option);
    char least[16], most[16];
    uint64_t bytes;

    if (!value)
        return 0;
    if (!plx_text_size_parse(value, &bytes))
        return plx_cli_usage(cli,
                             "--%s '%.40s' is no size; write it as 4k, 64M, 1G or 2T, which are "
                             "KiB, MiB, GiB and TiB",
                             option, value);
    if (bytes < min || bytes > max)
        return plx_cli_usage(cli,
                             "--%s '%.40s' is %" PRIu64 " byte%s; write a size from %s to %s, such "
                             "as 64M",
                             option, value, bytes, plx_plural(bytes), plx_text_size(min, least),
                             plx_text_size(max, most));
    *ret_bytes = bytes;
    return 0;
}

int plx_cli_size(struct plx_cli *cli, const char *option, uint64_t *ret_bytes)
{
    return plx_cli_size_within(cli, option, 0, SIZE_MAX_BYTES, ret_bytes);
}

int plx_cli_rate(struct plx_cli *cli, uint64_t *ret_bytes)
{
    return plx_cli_size_within(cli, "rate", RATE_MIN_BYTES, SIZE_MAX_BYTES, ret_bytes);
}

int plx_cli_memory(struct plx_cli *cli, uint64_t *ret_bytes)
{
    return plx_cli_size_within(cli, "memory", MEMORY_MIN_BYTES, SIZE_MAX_BYTES, ret_bytes);
}

int plx_cli_number(struct plx_cli *cli, const char *option, uint64_t min, uint64_t max,
                   uint64_t *ret_number)
{
    const char *value = plx_cli_get(cli, option);
    uint64_t number;

    if (!value)
        return 0;
    if (!plx_text_number_parse(value, &number) || number < min || number > max)
        return plx_cli_usage(cli, "--%s '%.40s' is no number from %" PRIu64 " to %" PRIu64, option,
                             value, min, max);
    *ret_number = number;
    return 0;
}

int plx_cli_choice(struct plx_cli *cli, const char *option, const char *const *words,
                   unsigned *ret_index)
{
    const char *value = plx_cli_get(cli, option);
    char list[120] = "";

    if (!value)
        return 0;
    for (unsigned i = 0; words[i]; i++) {
        if (!strcmp(words[i], value)) {
            *ret_index = i;
            return 0;
        }
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", words[i]);
    }
    return plx_cli_usage(cli, "--%s '%.40s' is none of: %s", option, value, list);
}

int plx_cli_snapshot(struct plx_cli *cli, const char *option, struct plx_name *name)
{
    const char *text = plx_cli_get(cli, option);
    struct plx_fault why;

    if (plx_text_snapshot_check(text, &why))
        return plx_cli_usage(cli, "--%s %s", option, why.text);
    snprintf(name->snapshot, sizeof name->snapshot, "%s", text);
    return 0;
}

int plx_cli_name(struct plx_cli *cli, unsigned argument, enum plx_name_form form,
                 struct plx_name *ret_name)
{
    PLX_ASSERT(argument < cli->count);
    int rc = plx_text_name_parse(cli->arguments[argument], form, ret_name, &cli->fault);
    if (rc)
        cli->fault.code = PLX_ERR_USAGE;
    return rc ? PLX_ERR_USAGE : 0;
}

/* ---- Help ---- */

/* Breaks text at spaces; lines after the first begin at the column. */
static void print_wrapped(const char *text, unsigned column)
{
    unsigned at = column;

    while (*text) {
        unsigned length = (unsigned)strcspn(text, " ");

        if (at > column && at + 1 + length > HELP_WIDTH) {
            printf("\n%*s", (int)column, "");
            at = column;
        } else if (at > column) {
            putchar(' ');
            at++;
        }
        printf("%.*s", (int)length, text);
        at += length;
        text += length + (text[length] == ' ');
    }
    putchar('\n');
}

static void print_options(const char *title, const struct plx_option *options)
{
    if (!options || !options->name)
        return;
    printf("\n%s:\n", title);
    for (; options->name; options++) {
        char left[80];

        snprintf(left, sizeof left, "  --%s%s%s", options->name, options->value ? " " : "",
                 options->value ? options->value : "");
        printf("%-*s", HELP_COLUMN, left);
        if (strlen(left) >= HELP_COLUMN)
            printf("\n%*s", HELP_COLUMN, "");
        print_wrapped(options->help, HELP_COLUMN);
    }
}

static void print_exit_statuses(void)
{
    puts("\nExit status: 0 done, 1 error, 2 wrong usage, 3 not found, 4 refused: in use, locked,\n"
         "there already, or an option such as --yes or --force is missing that confirms it,\n"
         "5 corruption found, 6 no space, or a volume of a known store is missing,\n"
         "130 interrupted (143 by SIGTERM).");
}

/* An example begins with the command's own words, unless another program is what it begins with. */
static bool is_command_line(const struct plx_command *c, const char *line)
{
    size_t length = strlen(c->noun);

    return !strncmp(line, c->noun, length) && strchr(" \n", line[length]);
}

static void print_command_help(const struct plx_command *c)
{
    const char *arguments = c->arguments ? c->arguments : "";
    const char *rest = takes_rest(c) ? strstr(arguments, " -- ") : "";

    printf("Usage: parallax %s%s%s%s%.*s%s%s\n\n%s\n", c->noun, c->verb ? " " : "",
           c->verb ? c->verb : "", *arguments ? " " : "", (int)(strlen(arguments) - strlen(rest)),
           arguments, c->options ? " [OPTIONS]" : "", rest, c->summary);
    if (c->details) {
        putchar('\n');
        print_wrapped(c->details, 0);
    }
    print_options("Options", c->options);
    print_options("Everywhere", everywhere);
    if (c->examples) {
        printf("\nExamples:\n");
        for (const char *line = c->examples; *line;) {
            size_t length = strcspn(line, "\n");

            printf("  %s%.*s\n", is_command_line(c, line) ? "parallax " : "", (int)length, line);
            line += length + (line[length] == '\n');
        }
    }
    print_exit_statuses();
}

static void print_overview(const struct plx_cli *cli, const char *noun)
{
    printf("Usage: parallax %s%s\n", noun ? noun : "NOUN", " VERB [ARGUMENTS] [OPTIONS]");
    if (!noun)
        puts("\nVirtual disks with cheap snapshots on a shared store, exported over iSCSI.\n"
             "A disk is named STORE/VDI, an instant of it STORE/VDI@SNAPSHOT, where SNAPSHOT is a\n"
             "label, a sequence number or a time (the newest snapshot at or before it).");
    const char *previous = "";
    for (const struct plx_command *c = cli->commands; c->noun; c++) {
        char left[64];

        if (is_hidden(c) || (noun && strcmp(noun, c->noun)))
            continue;
        if (strcmp(previous, c->verb ? c->noun : "-"))
            putchar('\n');
        previous = c->verb ? c->noun : "-";
        snprintf(left, sizeof left, "  %s %s", c->noun, c->verb ? c->verb : "");
        printf("%-*s%s\n", HELP_COLUMN, left, c->summary);
    }
    print_options("Everywhere", everywhere);
    print_exit_statuses();
    puts("\n'parallax NOUN VERB --help' has options and examples.");
}

/* The table itself. */
static json_t *list_options(const struct plx_option *options)
{
    json_t *list = json_array();

    for (; options && options->name; options++)
        json_array_append_new(list, json_pack("{s:s,s:s?,s:s}", "name", options->name, "value",
                                              options->value, "help", options->help));
    return list;
}

static void print_json_help(const struct plx_cli *cli, const struct plx_command *only,
                            const char *noun)
{
    json_t *list = json_array();

    for (const struct plx_command *c = cli->commands; c->noun; c++)
        if (!is_hidden(c) && (only ? c == only : !noun || !strcmp(noun, c->noun)))
            json_array_append_new(list,
                                  json_pack("{s:s,s:s?,s:s?,s:s,s:s?,s:s?,s:o}", "noun", c->noun,
                                            "verb", c->verb, "arguments", c->arguments, "summary",
                                            c->summary, "details", c->details, "examples",
                                            c->examples, "options", list_options(c->options)));
    json_t *help = json_pack("{s:o,s:o}", "commands", list, "everywhere", list_options(everywhere));
    json_dumpf(help, stdout, JSON_INDENT(2)); /* output.c is not where the parser is fuzzed */
    putchar('\n');
    json_decref(help);
}

int plx_cli_help(struct plx_cli *cli, const char *noun, const char *verb)
{
    const struct plx_command *command = noun ? find_command(cli, noun, verb) : NULL;
    char list[200];

    if (noun && !command)
        return plx_cli_usage(
            cli, "no help on '%.40s%s%.40s': there are %s", noun, verb ? " " : "", verb ? verb : "",
            list_words(cli, find_command(cli, noun, NULL) ? noun : NULL, list, sizeof list));
    bool one = command && (verb || !command->verb);
    if (cli->json)
        print_json_help(cli, one ? command : NULL, noun);
    else if (one)
        print_command_help(command);
    else
        print_overview(cli, noun);
    return 0;
}

/* ---- Completion ---- */

static void print_values(const struct plx_option *options)
{
    for (; options && options->name; options++)
        if (options->value)
            printf("--%s %s\n", options->name, options->value);
}

/* What the words behind the command are: how many words it has itself, its arguments, and the
 * options that take a value. */
static void print_usage(const struct plx_command *command)
{
    printf("%d\n%s\n", command->verb ? 2 : 1, command->arguments ? command->arguments : "");
    print_values(command->options);
    print_values(everywhere);
}

int plx_cli_complete(const struct plx_cli *cli)
{
    const char *const *words = cli->arguments;
    unsigned count = cli->count;
    const struct plx_command *command = NULL;

    if (count)
        command = find_command(cli, words[0], count > 1 ? words[1] : NULL);
    if (plx_cli_get(cli, "usage")) {
        if (command && (count > 1 || !command->verb))
            print_usage(command);
        return 0;
    }
    if (!count || (count == 1 && command && command->verb)) {
        const char *previous = "";
        for (const struct plx_command *c = cli->commands; c->noun; c++) {
            if (is_hidden(c) || (count && strcmp(c->noun, words[0])))
                continue;
            if (count || strcmp(previous, c->noun))
                puts(count ? c->verb : c->noun);
            previous = c->noun;
        }
        return 0;
    }
    for (const struct plx_option *o = command ? command->options : NULL; o && o->name; o++)
        printf("--%s%s\n", o->name, o->value ? "=" : "");
    for (const struct plx_option *o = everywhere; o->name; o++)
        printf("--%s%s\n", o->name, o->value ? "=" : "");
    return 0;
}
