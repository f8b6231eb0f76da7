/* stand.h - where a handler is tried out: a temporary folder with stores in it, and the handler
 * loaded into this process (runner.h). Handler and parallax command are taken from the folder that
 * the program lies in.
 */
#ifndef PLX_TEST_STAND_H
#define PLX_TEST_STAND_H

#include <stdbool.h>

#include "control/control.h"
#include "runner.h"

#define STAND_SHELL_MAX 4096

extern char stand_folder[]; /* temporary; holds the state, and the stores' volumes */
extern struct tcmur_handler *stand_handler;

bool stand_up(void);
void stand_down(void);
/* Runs a shell command in the folder of the build; returns what system() does. */
int stand_shell(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The control socket of the only store that is open; false: there is none. */
bool stand_control(char *ret_path, size_t size);
/* Sends a request (JSON) there. Returns its code; *ret_number is the member `name` of the answer
 * (an array: its length, true: 1), -1 when there is none of that name. name and ret_number may be NULL. */
int stand_ask(const char *path, const char *request, const char *name, json_int_t *ret_number,
              struct plx_fault *fault);

#endif
