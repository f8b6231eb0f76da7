/* cmd_help.c - parallax help, version, and the words for a shell's completion. */
#include <stdio.h>

#include "cmd.h"
#include "output.h"

int plx_cmd_help(struct plx_cli *cli)
{
    return plx_cli_help(cli, cli->count > 0 ? cli->arguments[0] : NULL,
                        cli->count > 1 ? cli->arguments[1] : NULL);
}

int plx_cmd_version(struct plx_cli *cli)
{
    if (cli->json)
        plx_out_json(json_pack("{s:s}", "version", PLX_VERSION));
    else
        puts("parallax " PLX_VERSION);
    return 0;
}

int plx_cmd_complete(struct plx_cli *cli)
{
    return plx_cli_complete(cli);
}
