/* cli_guess.c - what a word may mean that is none of the command's. See cli.h. */
#include <stdio.h>
#include <string.h>

#include "cli.h"

/* What other programs call it. */
static bool is_synonym(const char *typed, const char *word)
{
    static const struct {
        const char *typed, *word;
    } synonyms[] = {
        {"rm", "delete"},     {"remove", "delete"},  {"destroy", "delete"}, {"rm", "forget"},
        {"remove", "forget"}, {"delete", "forget"},  {"ls", "list"},        {"show", "info"},
        {"new", "create"},    {"mv", "rename"},      {"snapshot", "snap"},  {"rollback", "rewind"},
        {"revert", "rewind"}, {"restore", "rewind"},
    };

    for (size_t i = 0; i < sizeof synonyms / sizeof *synonyms; i++)
        if (!strcmp(typed, synonyms[i].typed) && !strcmp(word, synonyms[i].word))
            return true;
    return false;
}

const char *plx_cli_guess_word(const struct plx_cli *cli, const char *noun, const char *typed,
                               char *text, size_t size)
{
    *text = 0;
    for (const struct plx_command *c = cli->commands; c->noun && !*text; c++) {
        const char *word = noun ? c->verb : c->noun;

        if (c->summary && (!noun || !strcmp(noun, c->noun)) &&
            (plx_text_is_near(typed, word) || is_synonym(typed, word)))
            snprintf(text, size, "; did you mean '%s'?", word);
    }
    for (const struct plx_command *c = cli->commands; c->noun && !*text; c++)
        if (c->summary && noun && !c->verb && is_synonym(typed, c->noun))
            snprintf(text, size, "; did you mean '%s'?", c->noun);
        else if (c->summary && !noun && c->verb && !strcmp(typed, c->verb))
            snprintf(text, size, "; did you mean '%s %s'?", c->noun, c->verb);
    return text;
}

static const char *guess_among(const struct plx_option *options, const char *name, char *text,
                               size_t size)
{
    for (; options && options->name && !*text; options++)
        if (plx_text_is_near(name, options->name))
            snprintf(text, size, "; did you mean '--%s'?", options->name);
    return text;
}

const char *plx_cli_guess_option(const struct plx_command *command,
                                 const struct plx_option *everywhere, const char *typed, char *text,
                                 size_t size)
{
    const char *begin = typed + strspn(typed, "-");
    char name[40];

    *text = 0;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(begin, "="), begin);
    guess_among(command ? command->options : NULL, name, text, size);
    return guess_among(everywhere, name, text, size);
}

const char *plx_cli_guess_value(const char *option, const char *typed, char *text, size_t size)
{
    uint64_t bytes;

    *text = 0;
    if (option && plx_text_size_parse(typed, &bytes))
        snprintf(text, size, "; did you mean '--%s %.20s'?", option, typed);
    return text;
}
