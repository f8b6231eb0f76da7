/* stand.c - see stand.h. */
#include "stand.h"

#include <glob.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PATIENCE_MS 300000 /* a busy disk takes its time to flush */

char stand_folder[] = "/var/tmp/plx-stand-XXXXXX";
struct tcmur_handler *stand_handler;
static char build[PATH_MAX];

int stand_shell(const char *format, ...)
{
    char words[STAND_SHELL_MAX], command[STAND_SHELL_MAX + sizeof build + 16];
    va_list args;

    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    snprintf(command, sizeof command, "cd '%s' && %s", build, words);
    return system(command);
}

bool stand_up(void)
{
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);

    if (length <= 0 || !mkdtemp(stand_folder))
        return false;
    path[length] = '\0';
    snprintf(build, sizeof build, "%s", dirname(path));
    snprintf(path, sizeof path, "%s/state", stand_folder);
    setenv("PARALLAX_STATE_DIR", path, 1);
    runner_set_log(NULL);
    snprintf(path, sizeof path, "%.4000s/handler_parallax.so", build);
    stand_handler = runner_load(path);
    return stand_handler != NULL;
}

void stand_down(void)
{
    if (stand_shell("rm -rf %s", stand_folder) != 0)
        printf("left behind: %s\n", stand_folder);
}

bool stand_control(char *ret_path, size_t size)
{
    char pattern[PATH_MAX];
    glob_t found = {0};
    bool only;

    snprintf(pattern, sizeof pattern, "%s/state/run/control/*.sock", stand_folder);
    only = glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc == 1;
    if (only)
        snprintf(ret_path, size, "%s", found.gl_pathv[0]);
    globfree(&found);
    return only;
}

static json_int_t number_of(const json_t *member)
{
    if (json_is_integer(member))
        return json_integer_value(member);
    if (json_is_boolean(member))
        return json_boolean_value(member);
    return json_is_array(member) ? (json_int_t)json_array_size(member) : -1;
}

int stand_ask(const char *path, const char *request, const char *name, json_int_t *ret_number,
              struct plx_fault *fault)
{
    json_t *message = json_loads(request, 0, NULL), *result = NULL;
    struct plx_control_client *client;
    int code = plx_control_connect(path, 5000, &client, fault);

    if (code == 0) {
        code = plx_control_call(client, message, PATIENCE_MS, &result, fault);
        plx_control_disconnect(client);
    }
    if (name)
        *ret_number = number_of(json_object_get(result, name));
    json_decref(result);
    json_decref(message);
    return code;
}
