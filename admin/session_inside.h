/* session_inside.h - what session.c, session_live.c, session_vdi.c and session_jobs.c share; the
 * rules SESSION-1 to SESSION-4 are session.c's. */
#ifndef PLX_ADMIN_SESSION_INSIDE_H
#define PLX_ADMIN_SESSION_INSIDE_H

#include "cli.h"
#include "control/control.h"
#include "control/messages.h"
#include "session.h"

/* session.c */
/* Whether the instance is proven dead. A command that only reads has no tenancy that would keep
 * other machines out. It believes the home page instead: if the page names this boot, no other
 * machine has the store, and byte locks can prove a death. */
bool plx_session_is_gone(struct plx_session *s, const struct plx_registry_instance *instance);

/* session_live.c */
/* Where the disk is: asked there (*ret_asked), or open here. A handler may have opened it since
 * that was looked up (SESSION-3). Takes the reference of arguments (may be NULL). ret_result
 * NULL: the answer has to say again what was asked for, and LOST if it does not (SESSION-4). */
int plx_session_ask_or_open(struct plx_cli *cli, const struct plx_name *name, const char *command,
                            json_t *arguments, bool *ret_asked, json_t **ret_result);
/* Likewise; only there. */
int plx_session_ask_live(struct plx_cli *cli, const struct plx_name *name, const char *command,
                         json_t *arguments, bool *ret_asked, json_t **ret_result);
/* The control socket of a handler that has the store open; *ret_client stays NULL when none has. */
int plx_session_find_handler(struct plx_cli *cli, const char *store,
                             struct plx_control_client **ret_client);
/* Takes the reference of the request; ret_result may be NULL. */
int plx_session_call_handler(struct plx_cli *cli, struct plx_control_client *client,
                             json_t *request, json_t **ret_result);
uint64_t plx_session_number_of(const json_t *object, const char *key);
/* plx_message_decode() of an answer. LOST: it is not what this version understands (SESSION-4). */
int plx_session_decode(struct plx_cli *cli, const struct plx_message_field *fields,
                       const json_t *answer, void *ret_struct);
/* A text of an answer, which lives as long as the answer. LOST: it has none of that key. */
int plx_session_decode_text(struct plx_cli *cli, const json_t *answer, const char *key,
                            const char **ret_text);
/* The label of a rewind. LOST: there is none, or it is no name. */
int plx_session_decode_label(struct plx_cli *cli, const json_t *answer,
                             char ret_label[PLX_REWIND_LABEL]);

#endif
