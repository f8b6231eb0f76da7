/* main.c - the parallax command: runs one command of the table (command_table.c).
 *
 * MAIN-1  Every way out of a command leads through main(). It closes the session, flushes standard
 *     output, and prints at most one error line. The exit status follows the error's class.
 * MAIN-2  SIGINT and SIGTERM only set a flag (plx_interrupted). Loops stop at the flag, and open
 *     disks are closed as usual. If the command then failed or was cut short, it exits with 128
 *     plus the signal's number. If it had done all its work by then, it has succeeded.
 * MAIN-3  A command whose output goes to a pipe that nobody reads any more stops, and dies of
 *     SIGPIPE at the end without a message. If it changes something, it finishes the change first.
 *     Where SIGPIPE is ignored, the closed pipe is an ordinary write error.
 */
#include <inttypes.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd.h"
#include "output.h"

/* MAIN-3 */
static int die_of_pipe(void)
{
    signal(SIGPIPE, SIG_DFL);
    raise(SIGPIPE);
    return PLX_EXIT_SIGNAL + SIGPIPE; /* it is blocked */
}

static int run(struct plx_cli *cli, int argc, char **argv)
{
    int rc = plx_cli_parse(cli, plx_commands, argc, argv);

    if (rc)
        return rc;
    if (cli->help)
        return plx_cli_help(cli, cli->command ? cli->command->noun : cli->arguments[0],
                            cli->command ? cli->command->verb : NULL);
    rc = cli->command->run(cli);
    rc = plx_attach_name_damage(cli->session.attach, rc, &cli->fault);
    rc = plx_session_name_doubt(cli, rc);
    plx_session_name_advice(cli);
    plx_attach_name_unclaimed(cli->session.attach, rc, &cli->fault);
    plx_session_note_garbage(cli, rc);
    struct plx_fault said = cli->fault;
    int closed = plx_session_close(cli);
    if (!rc || closed == PLX_ERR_FENCED)
        return closed;
    cli->fault = said;
    return rc;
}

static void tell_chosen(const struct plx_cli *cli)
{
    char time[48];

    for (unsigned i = 0; i < cli->chosen_count; i++) {
        const struct plx_name *name = &cli->chosen[i].name;
        const struct plx_snapshot_info *snapshot = &cli->chosen[i].snapshot;

        plx_out_note(cli, "%s/%s@%s was snapshot %" PRIu64 ", of %s", name->store, name->vdi,
                     name->snapshot, snapshot->seq, plx_text_time(snapshot->time_ns, time));
    }
}

int main(int argc, char **argv)
{
    struct plx_cli cli = {0};
    char *const version[] = {NULL, "version", NULL};

    if (plx_out_fill_descriptors())
        return PLX_EXIT_ERROR;
    setvbuf(stderr, NULL, _IOLBF, BUFSIZ); /* whole lines, for others may write there, too */
    setlocale(LC_CTYPE, "");               /* tree asks for the character set; numbers stay plain */
    plx_interrupt_watch();
    if (argc == 2 && !strcmp(argv[1], "--version"))
        argv = (char **)version;
    int rc = run(&cli, argc, argv);
    struct plx_fault said = cli.fault;
    bool cut_short = plx_interrupted == SIGPIPE;
    int finished = plx_out_finish(&cli); /* MAIN-1 */
    if (plx_interrupted == SIGPIPE && (cut_short || !rc))
        return die_of_pipe();
    if (rc)
        cli.fault = said;
    rc = rc ? rc : finished;
    if (plx_interrupted && (rc || plx_interrupt_cut_short()))
        rc = plx_cli_interrupted(&cli, rc);
    if (rc)
        return plx_out_error(&cli, rc);
    tell_chosen(&cli);
    return PLX_EXIT_OK;
}
