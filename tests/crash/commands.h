/* commands.h - commands of the admin's on the stage (stage.h), each as the calls of attach that it
 * makes from opening the store to closing it; what is there before, and what to find afterwards.
 *
 * Store s has disk v, with a snapshot of an earlier state, and disk w.
 */
#ifndef PLX_CRASH_COMMANDS_H
#define PLX_CRASH_COMMANDS_H

#include "crash/stage.h"

struct command {
    const char *name;
    int (*prepare)(void);
    int (*run)(void);
    int (*effect)(void);  /* with the store open, 0: it is there; NULL: opening the store tells */
    enum stage_host host; /* on which it is run; prepared is everything on alpha */
    bool founds;          /* there is no store before */
    bool once;            /* it cannot be run again by itself */
    bool releases;        /* nobody has the store afterwards */
    bool local;           /* the effect is the host's, too: one that lost its state has lost it */
};

extern const struct command commands[];
extern const unsigned command_count;
extern struct plx_fault command_fault; /* why the last call failed */
extern unsigned command_written;       /* so many parts of w are acknowledged */

/* Store s; all of these return an error, and its text in command_fault. */
int command_open(void);
int command_close(void);
/* Whatever is open. */
void command_drop(void);

/* What a refusal may ask for. */
int command_format(const struct command *command, bool force, bool unused);
int command_rebuild(void);
int command_import(const char *from); /* NULL: from nobody */
int command_grow(void);               /* in the open store */

/* In the open store. What was acknowledged before the command is there, and the parts of w. */
int command_find_disks(void);
/* A further disk is made, and a disk written to. */
int command_use(const struct command *command);
/* Findings of the checker's, of the store and of the registry against it: CORRUPT, with the last.
 */
int command_check(void);

#endif
