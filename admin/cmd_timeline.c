/* cmd_timeline.c - parallax cdp timeline: how much was written when, and which instants there are.
 *
 * CMD_TIMELINE-1  Snapshots are counted into columns as they are read, and none is kept. So memory
 *     does not grow with the length of the history.
 */
#include <inttypes.h>
#include <langinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cmd.h"
#include "output.h"
#include "registry/names.h"
#include "registry/policy.h"
#include "transfer.h"

#define COLUMNS_MAX 400
#define COLUMNS_FILE 100 /* where there is no terminal to fill */
#define MARGIN 11        /* "written    " */

struct stretch {
    uint64_t blocks, snapshots;
    uint64_t first_seq, last_seq;
    const char *label; /* the first one in it */
};

struct timeline {
    struct plx_cli *cli;
    struct plx_name name;
    struct plx_snapshot_info oldest, newest; /* shown */
    uint64_t first_seq, total, blocks, most_blocks, most_snapshots;
    unsigned columns;
    uint64_t column_ns;
    struct stretch stretches[COLUMNS_MAX];
    struct plx_registry_label *labels;
    size_t label_count;
};

/* ---- Collecting ---- */

struct ends {
    struct plx_snapshot_info first, last;
    uint64_t since_ns;
};

static bool note_end(void *context, const struct plx_snapshot_info *info)
{
    struct ends *ends = context;

    if (info->time_ns >= ends->since_ns) {
        if (!ends->first.seq)
            ends->first = *info;
        ends->last = *info;
    }
    return !plx_session_stopped();
}

static struct stretch *stretch_at(struct timeline *t, uint64_t time_ns)
{
    uint64_t column = (time_ns - t->oldest.time_ns) / t->column_ns;

    return &t->stretches[plx_min_u64(column, t->columns - 1)];
}

/* CMD_TIMELINE-1 */
static bool count_snapshot(void *context, const struct plx_snapshot_info *info)
{
    struct timeline *t = context;
    struct stretch *s;

    if (info->time_ns < t->oldest.time_ns)
        return true;
    if (info->seq > t->newest.seq)
        return false;
    s = stretch_at(t, info->time_ns);
    if (!s->snapshots)
        s->first_seq = info->seq;
    s->last_seq = info->seq;
    if (!t->total)
        t->first_seq = info->seq;
    s->snapshots++;
    s->blocks += info->new_blocks;
    t->total++;
    t->blocks += info->new_blocks;
    t->most_blocks = plx_max_u64(t->most_blocks, s->blocks);
    t->most_snapshots = plx_max_u64(t->most_snapshots, s->snapshots);
    return !plx_session_stopped();
}

static void place_labels(struct timeline *t)
{
    for (size_t i = t->label_count; i-- > 0;) {
        const struct plx_registry_label *label = &t->labels[i];

        if (label->time_ns >= t->oldest.time_ns && label->time_ns <= t->newest.time_ns)
            stretch_at(t, label->time_ns)->label = label->name;
    }
}

static int collect(struct timeline *t)
{
    struct plx_store *store = plx_session_store(t->cli);
    struct ends ends = {0};
    struct plx_registry_vdi row;
    struct plx_snapshot_info oldest;
    uint64_t last_ns = 0;
    const char *last = plx_cli_get(t->cli, "last");
    int rc;

    if (last && (!plx_duration_parse(last, &last_ns) || !last_ns))
        return plx_cli_usage(t->cli, "--last '%.40s' is no duration; write it as 90s, 15m or 2h",
                             last);
    if ((rc = plx_session_vdi_row(t->cli, &t->name, &row)) ||
        (rc = plx_snapshot_list(store, row.slot, 1, note_end, &ends, &t->cli->fault)))
        return rc;
    if (plx_interrupted) /* not all of them were seen */
        return plx_cli_interrupted(t->cli, 0);
    if (!ends.first.seq)
        return plx_cli_fail(t->cli, PLX_ERR_NOT_FOUND,
                            "%s/%.120s has no snapshots; 'parallax cdp on' makes it take them",
                            t->name.store, t->name.vdi);
    oldest = ends.first;
    if (last_ns && ends.last.time_ns > last_ns)
        oldest.time_ns = plx_max_u64(oldest.time_ns, ends.last.time_ns - last_ns);
    t->oldest = oldest;
    t->newest = ends.last;
    t->column_ns = (t->newest.time_ns - t->oldest.time_ns) / t->columns + 1;
    rc = plx_snapshot_list(store, row.slot, 1, count_snapshot, t, &t->cli->fault);
    if (!rc && plx_interrupted)
        return plx_cli_interrupted(t->cli, 0);
    if (!rc && (rc = plx_registry_label_list(t->cli->session.registry, row.id, &t->labels,
                                             &t->label_count)))
        return plx_session_registry_fault(t->cli, rc);
    place_labels(t);
    return rc;
}

/* ---- On a terminal ---- */

static unsigned terminal_columns(void)
{
    struct winsize size;

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || size.ws_col < MARGIN + 20)
        return 80 - MARGIN - 1;
    return plx_min_u64(size.ws_col - MARGIN - 1, COLUMNS_MAX);
}

static void draw_bars(const struct timeline *t, const char *what, bool snapshots)
{
    static const char *const blocks[] = {/* U+2581 to U+2588 */
                                         " ",      "\u2581", "\u2582", "\u2583", "\u2584",
                                         "\u2585", "\u2586", "\u2587", "\u2588"};
    static const char *const plain[] = {" ", ".", ":", "-", "=", "+", "*", "#", "@"};
    const char *const *bars = strcmp(nl_langinfo(CODESET), "UTF-8") ? plain : blocks;
    uint64_t most = snapshots ? t->most_snapshots : t->most_blocks;

    printf("%-*s", MARGIN, what);
    for (unsigned i = 0; i < t->columns; i++) {
        const struct stretch *s = &t->stretches[i];
        uint64_t value = snapshots ? s->snapshots : s->blocks;

        fputs(bars[value ? 1 + value * 7 / most : 0], stdout);
    }
    puts("");
}

static void draw_labels(const struct timeline *t)
{
    unsigned at = 0;
    bool any = false;

    for (unsigned i = 0; i < t->columns; i++) {
        const char *label = t->stretches[i].label;

        if (!label || i < at)
            continue;
        if (!any)
            printf("%-*s", MARGIN, "labels");
        any = true;
        printf("%*s^", (int)(i - at), "");
        plx_out_put(label);
        at = i + 2 + (unsigned)strlen(label);
        fputs(" ", stdout);
    }
    if (any)
        puts("");
}

static const char *spacing_text(uint64_t ns, char text[32])
{
    if (ns < 1000000)
        snprintf(text, 32, "%.0f us", (double)ns / 1e3);
    else if (ns < 1000000000)
        snprintf(text, 32, "%.1f ms", (double)ns / 1e6);
    else
        snprintf(text, 32, "%.1f s", (double)ns / 1e9);
    return text;
}

static void draw(const struct timeline *t)
{
    char from[48], to[48], size[16], most[16], spacing[32], column[32];
    int gap;

    draw_bars(t, "written", false);
    draw_bars(t, "instants", true);
    draw_labels(t);
    plx_text_time(t->oldest.time_ns, from);
    plx_text_time(t->newest.time_ns, to);
    gap = (int)t->columns - (int)strlen(from) - (int)strlen(to);
    printf("%*s%s%*s%s\n", MARGIN, "", from, gap > 1 ? gap : 1, "", to);
    plx_text_size(t->blocks << 12, size);
    plx_text_size(t->most_blocks << 12, most);
    printf("%s in new blocks, at most %s in a column of %s\n", size, most,
           spacing_text(t->column_ns, column));
    printf("%" PRIu64 " snapshot%s, %" PRIu64 " to %" PRIu64 "; where they are densest one in %s\n",
           t->total, plx_plural(t->total), t->first_seq, t->newest.seq,
           spacing_text(t->column_ns / plx_max_u64(t->most_snapshots, 1), spacing));
}

/* ---- As a drawing, as JSON ---- */

static void svg_row(FILE *file, const struct timeline *t, double top, bool snapshots)
{
    uint64_t most = plx_max_u64(snapshots ? t->most_snapshots : t->most_blocks, 1);

    for (unsigned i = 0; i < t->columns; i++) {
        const struct stretch *s = &t->stretches[i];
        uint64_t value = snapshots ? s->snapshots : s->blocks;
        double height = 100.0 * (double)value / (double)most;

        if (value)
            fprintf(file,
                    "<rect x=\"%u\" y=\"%.1f\" width=\"7\" height=\"%.1f\" fill=\"%s\">"
                    "<title>%" PRIu64 " %s</title></rect>\n",
                    20 + 8 * i, top + 100 - height, height, snapshots ? "#4a7a4a" : "#3465a4",
                    value,
                    snapshots    ? (value == 1 ? "snapshot" : "snapshots")
                    : value == 1 ? "block of 4 KiB"
                                 : "blocks of 4 KiB");
    }
}

static void write_svg(FILE *file, const struct timeline *t)
{
    char from[48], to[48], label[PLX_LABEL_MAX + 1];
    unsigned width = 8 * t->columns + 40;

    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%u\" height=\"330\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n"
            "<text x=\"20\" y=\"20\">%s/%s: written to new blocks</text>\n"
            "<text x=\"20\" y=\"155\">snapshots</text>\n",
            width, t->name.store, t->name.vdi);
    svg_row(file, t, 30, false);
    svg_row(file, t, 165, true);
    for (unsigned i = 0; i < t->columns; i++)
        if (t->stretches[i].label)
            fprintf(file,
                    "<line x1=\"%u\" x2=\"%u\" y1=\"30\" y2=\"275\" stroke=\"#a40000\"/>"
                    "<text x=\"%u\" y=\"288\" fill=\"#a40000\">%s</text>\n",
                    23 + 8 * i, 23 + 8 * i, 20 + 8 * i,
                    plx_name_plain(t->stretches[i].label, label, sizeof label));
    fprintf(file,
            "<text x=\"20\" y=\"310\">%s</text>"
            "<text x=\"%u\" y=\"310\" text-anchor=\"end\">%s</text>\n</svg>\n",
            plx_text_time(t->oldest.time_ns, from), width - 20,
            plx_text_time(t->newest.time_ns, to));
}

/* A drawing is small: it is made in memory and written as any other file. */
static int save_svg(struct timeline *t, const char *path)
{
    struct plx_output output;
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    bool failed;
    int rc;

    if (!file)
        return plx_cli_fail(t->cli, PLX_ERR_NOMEM, "out of memory");
    write_svg(file, t);
    failed = ferror(file) != 0;
    if (fclose(file) || failed) {
        free(text);
        return plx_cli_fail(t->cli, PLX_ERR_NOMEM, "out of memory");
    }
    rc = plx_output_open(&output, t->cli, path, false);
    rc = rc ? rc : plx_output_write(&output, (const uint8_t *)text, size, UINT64_MAX);
    rc = plx_output_close(&output, rc);
    free(text);
    if (!rc && strcmp(path, "-"))
        plx_out_note(t->cli, "drawn in %s", path);
    return rc;
}

static void print_json(const struct timeline *t)
{
    json_t *columns = json_array();
    json_t *object =
        json_pack("{s:o,s:I,s:I,s:I}", "name", json_sprintf("%s/%s", t->name.store, t->name.vdi),
                  "snapshots", (json_int_t)t->total, "new_bytes", (json_int_t)(t->blocks << 12),
                  "column_ns", (json_int_t)t->column_ns);

    plx_out_set_time(object, "from", t->oldest.time_ns);
    plx_out_set_time(object, "to", t->newest.time_ns);
    for (unsigned i = 0; i < t->columns; i++) {
        const struct stretch *s = &t->stretches[i];
        json_t *row = json_pack("{s:I,s:I}", "snapshots", (json_int_t)s->snapshots, "new_bytes",
                                (json_int_t)(s->blocks << 12));

        plx_out_set_time(row, "from", t->oldest.time_ns + i * t->column_ns);
        if (s->snapshots) {
            json_object_set_new(row, "first_seq", json_integer((json_int_t)s->first_seq));
            json_object_set_new(row, "last_seq", json_integer((json_int_t)s->last_seq));
        }
        if (s->label)
            json_object_set_new(row, "label", json_string(s->label));
        plx_out_keys(row, "first_seq", "last_seq", "label", NULL);
        json_array_append_new(columns, row);
    }
    json_object_set_new(object, "columns", columns);
    plx_out_json(object);
}

int plx_cmd_cdp_timeline(struct plx_cli *cli)
{
    struct timeline t = {0};
    const char *svg = plx_cli_get(cli, "svg");
    int rc;

    t = (struct timeline){.cli = cli,
                          .columns = svg || cli->json ? COLUMNS_FILE : terminal_columns()};
    if ((rc = plx_cli_name(cli, 0, PLX_NAME_VDI, &t.name)) ||
        (rc = plx_session_open(cli, t.name.store, PLX_SESSION_READ)))
        return rc;
    if (!(rc = collect(&t))) {
        plx_session_tell_newer(cli, &t.name);
        if (svg)
            rc = save_svg(&t, svg);
        if (!rc && cli->json && (!svg || strcmp(svg, "-")))
            print_json(&t);
        else if (!svg)
            draw(&t);
    }
    free(t.labels);
    return rc;
}
