/* cmd_diff.c - parallax diff and parallax find: what changed between two instants, and when.
 *
 * CMD_DIFF-1  Both commands open the store for reading only, so other processes may have its disks
 *     open meanwhile.
 */
#include <inttypes.h>
#include <string.h>

#include "cmd.h"
#include "instants.h"
#include "output.h"
#include "transfer.h"

/* ---- diff --------------------------------------------------------------------------------- */

static const struct plx_column range_columns[] = {
    {"offset", "OFFSET", PLX_COLUMN_NUMBER},
    {"length", "LENGTH", PLX_COLUMN_NUMBER},
    {"type", "TYPE", PLX_COLUMN_TEXT},
    {NULL, NULL, 0},
};

static const struct plx_column sum_columns[] = {
    {"from", "From", PLX_COLUMN_TEXT},
    {"to", "To", PLX_COLUMN_TEXT},
    {"changed_bytes", "Changed", PLX_COLUMN_SIZE},
    {"data_bytes", "Data", PLX_COLUMN_SIZE},
    {"zero_bytes", "Zeroes", PLX_COLUMN_SIZE},
    {"ranges", "Ranges", PLX_COLUMN_NUMBER},
    {NULL, NULL, 0},
};

static bool print_range(void *context, const struct plx_diff_range *range)
{
    plx_table_row(context,
                  json_pack("{s:I,s:I,s:s}", "offset", (json_int_t)range->offset, "length",
                            (json_int_t)range->length, "type", range->data ? "data" : "zero"));
    return !plx_session_stopped();
}

static int print_ranges(struct plx_cli *cli, const struct plx_instants *instants)
{
    struct plx_table table;
    int rc = plx_table_begin(&table, cli, range_columns);

    if (rc)
        return rc;
    rc = plx_vdi_diff(instants->from_vdi, instants->to_vdi, print_range, &table, &cli->fault);
    plx_table_end(&table);
    if (!rc && !table.rows)
        plx_out_note(cli, "nothing differs");
    return rc;
}

static int print_sum(struct plx_cli *cli, const struct plx_instants *instants)
{
    char from[sizeof(struct plx_name)], to[sizeof from];
    struct plx_diff_sum sum;
    int rc = plx_diff_sum(cli, instants->from_vdi, instants->to_vdi, &sum);

    if (rc)
        return rc;
    json_t *object =
        json_pack("{s:s,s:I,s:I,s:I,s:I}", "to", plx_instants_text(&instants->to, to, sizeof to),
                  "changed_bytes", (json_int_t)(sum.data_bytes + sum.zero_bytes), "data_bytes",
                  (json_int_t)sum.data_bytes, "zero_bytes", (json_int_t)sum.zero_bytes, "ranges",
                  (json_int_t)sum.ranges);
    if (!instants->from_nothing)
        json_object_set_new(object, "from",
                            json_string(plx_instants_text(&instants->from, from, sizeof from)));
    plx_out_object(cli, sum_columns, object);
    return 0;
}

int plx_cmd_diff(struct plx_cli *cli)
{
    bool summary = plx_cli_get(cli, "summary");
    struct plx_instants instants;
    int rc;

    if ((summary && (rc = plx_table_only(cli, "the output of --summary"))) ||
        (rc = plx_instants_parse(cli, cli->count, &instants)) ||
        (rc = plx_session_open(cli, instants.to.store, PLX_SESSION_READ))) /* CMD_DIFF-1 */
        return rc;
    rc = plx_instants_open(cli, &instants);
    if (!rc)
        rc = summary ? print_sum(cli, &instants) : print_ranges(cli, &instants);
    return plx_instants_close(cli, &instants, rc);
}

/* ---- find --------------------------------------------------------------------------------- */

static const struct plx_column change_columns[] = {
    {"after", "AFTER", PLX_COLUMN_TEXT},     {"after_time", "TIME", PLX_COLUMN_TEXT},
    {"by", "CHANGED BY", PLX_COLUMN_TEXT},   {"by_time", "TIME", PLX_COLUMN_TEXT},
    {"certain", "CERTAIN", PLX_COLUMN_TEXT}, {NULL, NULL, 0},
};

struct find_output {
    const struct plx_name *name;
    struct plx_table table;
    uint64_t left; /* rows still wanted */
    bool more, unknown;
};

static void set_instant(json_t *row, const char *key, const char *time_key,
                        const struct plx_name *name, const struct plx_snapshot_info *info,
                        const char *otherwise)
{
    char key_seq[32];

    snprintf(key_seq, sizeof key_seq, "%s_seq", key);
    json_object_set_new(row, key,
                        info->seq
                            ? json_sprintf("%s/%s@%" PRIu64, name->store, name->vdi, info->seq)
                            : json_string(otherwise));
    json_object_set_new(row, key_seq, json_integer((json_int_t)info->seq));
    plx_out_set_time(row, time_key, info->time_ns);
}

static bool print_change(void *context, const struct plx_range_change *change)
{
    struct find_output *output = context;
    json_t *row;

    if (!output->left) {
        output->more = true;
        return false;
    }
    output->left--;
    output->unknown |= change->unknown;
    row = json_pack("{s:b}", "certain", !change->unknown);
    set_instant(row, "after", "after_time", output->name, &change->from, "(creation)");
    set_instant(row, "by", "by_time", output->name, &change->to, "(now)");
    plx_table_row(&output->table, row);
    return !plx_session_stopped();
}

/* A..B or A alone. */
static bool parse_blocks(const char *text, uint64_t *ret_first, uint64_t *ret_count)
{
    const char *dots = strstr(text, "..");
    uint64_t first, last;
    char word[32];

    snprintf(word, sizeof word, "%.*s", (int)(dots ? dots - text : (int)strlen(text)), text);
    if (!plx_text_number_parse(word, &first))
        return false;
    last = first;
    if ((dots && !plx_text_number_parse(dots + 2, &last)) || last < first || last > PLX_VBLOCK_MAX)
        return false;
    *ret_first = first;
    *ret_count = last - first + 1;
    return true;
}

/* The range that the options name, in blocks; without one, the whole disk. */
static int take_range(struct plx_cli *cli, uint64_t size_bytes, uint64_t *ret_first,
                      uint64_t *ret_count)
{
    const char *block = plx_cli_get(cli, "block");
    uint64_t offset = 0, length = 0, first = 0, count = plx_div_up(size_bytes, PLX_BLOCK_SIZE);
    int rc;

    if ((rc = plx_cli_size(cli, "offset", &offset)) || (rc = plx_cli_size(cli, "length", &length)))
        return rc;
    if (block && (plx_cli_get(cli, "offset") || plx_cli_get(cli, "length")))
        return plx_cli_usage(cli, "--block, or --offset and --length, not both");
    if (block && !parse_blocks(block, &first, &count))
        return plx_cli_usage(cli, "--block '%.40s' is no range of blocks; write it as 7 or 7..19",
                             block);
    if (!block && plx_cli_get(cli, "offset")) {
        if (!plx_cli_get(cli, "length"))
            length = 1;
        if (!length || length > PLX_VDI_SIZE_MAX)
            return plx_cli_usage(cli, "--length has 1 byte to 256T");
        first = offset / PLX_BLOCK_SIZE;
        count = (offset + length - 1) / PLX_BLOCK_SIZE - first + 1;
    } else if (!block && plx_cli_get(cli, "length")) {
        return plx_cli_usage(cli, "--length needs --offset");
    }
    if (first >= plx_div_up(size_bytes, PLX_BLOCK_SIZE))
        return plx_cli_usage(cli,
                             "the range begins behind the end of the disk, which has %" PRIu64
                             " bytes (%" PRIu64 " block%s)",
                             size_bytes, plx_div_up(size_bytes, PLX_BLOCK_SIZE),
                             plx_plural(plx_div_up(size_bytes, PLX_BLOCK_SIZE)));
    *ret_first = first;
    *ret_count = count;
    return 0;
}

int plx_cmd_find(struct plx_cli *cli)
{
    struct plx_name name;
    struct find_output output = {.name = &name, .left = 100};
    struct plx_registry_vdi row;
    uint64_t first, count;
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_VDI, &name)) ||
        (rc = plx_cli_number(cli, "limit", 1, INT64_MAX, &output.left)) ||
        (rc = plx_session_open(cli, name.store, PLX_SESSION_READ)) ||
        (rc = plx_session_vdi_row(cli, &name, &row)) ||
        (rc = take_range(cli, row.size_bytes, &first, &count)) ||
        (rc = plx_table_begin(&output.table, cli, change_columns)))
        return rc;
    rc = plx_range_change_list(plx_session_store(cli), row.slot, first, count, print_change,
                               &output, &cli->fault);
    plx_table_end(&output.table);
    if (rc)
        return rc;
    if (output.more)
        plx_out_note(cli, "there are earlier changes: --limit shows more");
    else if (output.unknown)
        plx_out_note(cli, "whether it changed before the oldest snapshot is not known: the "
                          "snapshots of that time are gone");
    plx_out_note(cli, output.table.rows ? "a change is known as exactly as snapshots were taken"
                                        : "it never changed");
    return 0;
}
