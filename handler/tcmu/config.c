/* config.c - parses a cfgstring, which comes from an administrator.
 *
 * CONFIG-1  A part that is not understood is refused, never ignored. Otherwise a typo would
 *     silently mean the default.
 * CONFIG-2  On failure *ret_config is unchanged, so a caller never uses half of a configuration.
 *
 * Threads: any; no state.
 */
#include "tcmu/config.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "registry/names.h"
#include "registry/policy.h"

#define FORM "parallax/STORE/VDI[@SNAPSHOT][;option=value...]"
#define OPTIONS "overwrite=in-place|copy, cache=off|on and quiet=TIME|off"
#define RUNNER_TIMEOUT "tcmur_cmd_time_out="

/* Copies a part of the string; false: it does not fit. */
static bool copy_part(char *to, size_t room, const char *from, size_t length)
{
    if (length >= room)
        return false;
    memcpy(to, from, length);
    to[length] = '\0';
    return true;
}

static int parse_name(const char *kind, const char *from, size_t length, char *to, size_t room,
                      struct plx_fault *fault)
{
    char why[200];

    if (length == 0)
        return plx_fault_set(fault, PLX_ERR_INVALID, "the %s name is missing; the form is " FORM,
                             kind);
    if (!copy_part(to, room, from, length))
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "the %s name is %zu characters long; at most %zu are allowed", kind,
                             length, room - 1);
    if (plx_name_check(kind, to, why, sizeof why) < 0)
        return plx_fault_set(fault, PLX_ERR_INVALID, "'%.80s': %s", to, why);
    return 0;
}

static bool all_digits(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (text[i] < '0' || text[i] > '9')
            return false;
    return length > 0;
}

/* Such as 20261121T062000Z or 20261121T062000.010Z, with up to nine digits of a second. */
static bool is_time(const char *text)
{
    size_t length = strlen(text);

    if (length < 16 || !all_digits(text, 8) || text[8] != 'T' || !all_digits(text + 9, 6) ||
        text[length - 1] != 'Z')
        return false;
    return length == 16 || (text[15] == '.' && length <= 26 && all_digits(text + 16, length - 17));
}

static int parse_snapshot(const char *from, size_t length, char *to, size_t room,
                          struct plx_fault *fault)
{
    char why[200];

    if (length == 0)
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "there is no snapshot after '@': give a label, a sequence number or a "
                             "time as 20261121T062000.010Z");
    if (!copy_part(to, room, from, length))
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "the snapshot is %zu characters long; a label has at most %zu", length,
                             room - 1);
    if (all_digits(to, length)) {
        if (length > 18 || strspn(to, "0") == length)
            return plx_fault_set(fault, PLX_ERR_INVALID, "'%s' is no sequence number of a snapshot",
                                 to);
        return 0;
    }
    if (is_time(to) || plx_name_check("label", to, why, sizeof why) == 0)
        return 0;
    if (to[0] >= '0' && to[0] <= '9')
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "'%.80s' is no snapshot: a time has the form 20261121T062000.010Z "
                             "(UTC), a sequence number only digits",
                             to);
    return plx_fault_set(fault, PLX_ERR_INVALID, "'%.80s': %s", to, why);
}

/* STORE/VDI[@SNAPSHOT] */
static int parse_subject(const char *text, size_t length, struct plx_lun_config *config,
                         struct plx_fault *fault)
{
    const char *end = text + length, *slash = memchr(text, '/', length), *vdi, *at;
    int result;

    if (!slash)
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "'%.*s' has no '/' between store and VDI; the form is " FORM,
                             length > 80 ? 80 : (int)length, text);
    vdi = slash + 1;
    at = memchr(vdi, '@', (size_t)(end - vdi));
    result = parse_name("store", text, (size_t)(slash - text), config->store, sizeof config->store,
                        fault);
    if (result == 0)
        result = parse_name("vdi", vdi, (size_t)((at ? at : end) - vdi), config->vdi,
                            sizeof config->vdi, fault);
    if (result == 0 && at)
        result = parse_snapshot(at + 1, (size_t)(end - at - 1), config->snapshot,
                                sizeof config->snapshot, fault);
    return result;
}

static bool starts(const char *text, size_t length, const char *word)
{
    return length >= strlen(word) && memcmp(text, word, strlen(word)) == 0;
}

static bool equals(const char *text, size_t length, const char *word)
{
    return length == strlen(word) && memcmp(text, word, length) == 0;
}

static int parse_quiet(const char *text, size_t length, struct plx_lun_config *config,
                       struct plx_fault *fault)
{
    char time[32];
    size_t prefix = strlen("quiet=");

    if (equals(text, length, "quiet=off")) {
        config->quiet_ns = 0;
        return 0;
    }
    if (copy_part(time, sizeof time, text + prefix, length - prefix) &&
        plx_duration_parse(time, &config->quiet_ns) && config->quiet_ns)
        return 0;
    return plx_fault_set(fault, PLX_ERR_INVALID, "'%.*s': quiet is a time such as 1h, or 'off'",
                         length > 80 ? 80 : (int)length, text);
}

static int parse_option(const char *text, size_t length, struct plx_lun_config *config,
                        struct plx_fault *fault)
{
    int shown = length > 80 ? 80 : (int)length;

    if (equals(text, length, "overwrite=in-place"))
        config->overwrite = PLX_OVERWRITE_IN_PLACE;
    else if (equals(text, length, "overwrite=copy"))
        config->overwrite = PLX_OVERWRITE_COPY;
    else if (equals(text, length, "cache=off"))
        config->write_back = false;
    else if (equals(text, length, "cache=on"))
        config->write_back = true;
    else if (starts(text, length, "quiet="))
        return parse_quiet(text, length, config, fault);
    else if (starts(text, length, "overwrite="))
        return plx_fault_set(fault, PLX_ERR_INVALID, "'%.*s': overwrite is 'in-place' or 'copy'",
                             shown, text);
    else if (starts(text, length, "cache="))
        return plx_fault_set(fault, PLX_ERR_INVALID, "'%.*s': cache is 'off' or 'on'", shown, text);
    else if (length == 0)
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "there is no option after ';': known are " OPTIONS);
    else /* CONFIG-1 */
        return plx_fault_set(fault, PLX_ERR_INVALID, "'%.*s' is no option: known are " OPTIONS,
                             shown, text);
    return 0;
}

static int parse_options(const char *text, struct plx_lun_config *config, struct plx_fault *fault)
{
    while (*text == ';') {
        const char *option = text + 1;
        size_t length = strcspn(option, ";");
        int result;

        text = option + length;
        /* This option is tcmu-runner's. Before it opens the LUN it cuts the option out with the ';'
         * on either side, so an option behind it would be joined to the text before. */
        if (starts(option, length, RUNNER_TIMEOUT)) {
            if (*text != '\0')
                return plx_fault_set(fault, PLX_ERR_INVALID,
                                     "tcmur_cmd_time_out must be the last option");
            continue;
        }
        result = parse_option(option, length, config, fault);
        if (result < 0)
            return result;
    }
    return 0;
}

int plx_lun_config_parse(const char *cfgstring, struct plx_lun_config *ret_config,
                         struct plx_fault *fault)
{
    struct plx_lun_config config = {.overwrite = -1, .quiet_ns = PLX_QUIET_NS};
    size_t prefix = strlen(PLX_CFGSTRING_PREFIX);
    const char *subject = cfgstring + prefix;
    size_t length;
    int result;

    if (strncmp(cfgstring, PLX_CFGSTRING_PREFIX, prefix) != 0)
        return plx_fault_set(
            fault, PLX_ERR_INVALID,
            "'%.80s' does not begin with " PLX_CFGSTRING_PREFIX "; the form is " FORM, cfgstring);
    length = strcspn(subject, ";");
    result = parse_subject(subject, length, &config, fault);
    if (result == 0)
        result = parse_options(subject + length, &config, fault);
    if (result == 0 && strlen(cfgstring) > PLX_CFGSTRING_MAX)
        result = plx_fault_set(fault, PLX_ERR_INVALID,
                               "the configuration is %zu characters long; the kernel takes %d: "
                               "use shorter names",
                               strlen(cfgstring), PLX_CFGSTRING_MAX);
    if (result < 0)
        return result;
    *ret_config = config; /* CONFIG-2 */
    return 0;
}
