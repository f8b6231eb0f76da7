/* cmd_tree.c - parallax tree: who comes from whom, as text or as a graph for Graphviz.
 *
 * The tree is built once, as JSON: a store has "vdis", each has "snapshots" (labelled ones and
 * parents of clones), each of those has "clones". Text and graph are two ways to print that.
 * A deleted parent of a living clone is shown, marked so.
 */
#include <inttypes.h>
#include <langinfo.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "output.h"
#include "registry/names.h"

struct family {
    struct plx_registry *registry;
    struct plx_attach *attach;
    struct plx_registry_vdi *vdis;
    size_t count;
    bool *wanted; /* live, or the ancestor of a live one */
};

/* ---- Building ---- */

static size_t find_parent(const struct family *family, size_t of)
{
    for (size_t i = 0; *family->vdis[of].parent && i < family->count; i++)
        if (!strcmp(family->vdis[i].id, family->vdis[of].parent))
            return i;
    return SIZE_MAX;
}

static int by_parent_seq(const void *a, const void *b)
{
    const struct plx_registry_vdi *x = a, *y = b;

    return x->parent_seq != y->parent_seq
               ? (x->parent_seq > y->parent_seq) - (x->parent_seq < y->parent_seq)
               : strcmp(x->name, y->name);
}

static json_t *snapshot_of(json_t *snapshots, uint64_t seq)
{
    json_t *snapshot;
    size_t i;

    json_array_foreach(snapshots, i, snapshot)
    {
        uint64_t other = (uint64_t)json_integer_value(json_object_get(snapshot, "seq"));
        if (other == seq)
            return snapshot;
        if (other > seq)
            break;
    }
    snapshot = json_pack("{s:I,s:[],s:[]}", "seq", (json_int_t)seq, "labels", "clones");
    plx_out_set_time(snapshot, "time", 0); /* the label has it, if there is one */
    json_array_insert_new(snapshots, i, snapshot);
    return snapshot;
}

/* A deleted disk's snapshots are shown only where a shown clone descends from them. */
static bool is_shown(const struct family *family, const struct plx_registry_vdi *vdi, uint64_t seq)
{
    bool shown = !vdi->deleted;

    for (size_t i = 0; i < family->count && !shown; i++)
        shown = family->wanted[i] && !strcmp(family->vdis[i].parent, vdi->id) &&
                family->vdis[i].parent_seq == seq;
    return shown;
}

static int build_vdi(const struct family *family, size_t at, json_t **ret_vdi)
{
    const struct plx_registry_vdi *vdi = &family->vdis[at];
    struct plx_registry_label *labels = NULL;
    json_t *snapshots = json_array();
    char id[PLX_UUID_TEXT];
    size_t count = 0;
    int rc = plx_registry_label_list(family->registry, vdi->id, &labels, &count);

    for (size_t i = 0; i < count; i++) {
        json_t *snapshot;

        if (!is_shown(family, vdi, labels[i].seq))
            continue;
        snapshot = snapshot_of(snapshots, labels[i].seq);
        json_array_append_new(json_object_get(snapshot, "labels"), json_string(labels[i].name));
        plx_out_set_time(snapshot, "time", labels[i].time_ns);
    }
    free(labels);
    for (size_t i = 0; i < family->count && !rc; i++) {
        json_t *clone;

        if (!family->wanted[i] || strcmp(family->vdis[i].parent, vdi->id))
            continue;
        if (!(rc = build_vdi(family, i, &clone)))
            json_array_append_new(
                json_object_get(snapshot_of(snapshots, family->vdis[i].parent_seq), "clones"),
                clone);
    }
    plx_attach_shown_id(family->attach, vdi->id, id);
    *ret_vdi =
        json_pack("{s:s,s:s,s:I,s:b,s:o}", "vdi", vdi->name, "uuid", id, "size_bytes",
                  (json_int_t)vdi->size_bytes, "deleted", vdi->deleted, "snapshots", snapshots);
    return rc;
}

static int load(struct family *family, int64_t store)
{
    struct plx_registry_vdi *live = NULL, *gone = NULL;
    size_t live_count = 0, gone_count = 0;
    int rc;

    if (!(rc =
              plx_registry_vdi_list(family->registry, store, false, NULL, 0, &live, &live_count)) &&
        !(rc = plx_registry_vdi_list(family->registry, store, true, NULL, 0, &gone, &gone_count))) {
        family->vdis = calloc(live_count + gone_count + 1, sizeof *family->vdis);
        family->wanted = calloc(live_count + gone_count + 1, sizeof *family->wanted);
        rc = family->vdis && family->wanted ? 0 : PLX_ERR_NOMEM;
    }
    /* The second list may contain live disks, too; they are skipped below. */
    for (size_t i = 0; !rc && i < live_count; i++)
        family->vdis[family->count++] = live[i];
    for (size_t i = 0; !rc && i < gone_count; i++)
        if (gone[i].deleted)
            family->vdis[family->count++] = gone[i];
    free(live);
    free(gone);
    if (rc)
        return rc;
    qsort(family->vdis, family->count, sizeof *family->vdis, by_parent_seq);
    for (size_t i = 0; i < family->count; i++)
        for (size_t at = i; !family->vdis[i].deleted && at != SIZE_MAX && !family->wanted[at];
             at = find_parent(family, at))
            family->wanted[at] = true;
    return 0;
}

/* name: what the store is called here. */
static int build_store(struct plx_cli *cli, struct plx_registry *registry,
                       const struct plx_registry_store *store, const char *name, json_t *ret_stores)
{
    struct family family = {.registry = registry, .attach = cli->session.attach};
    json_t *vdis = json_array();
    int rc = load(&family, store->id);

    json_array_append_new(ret_stores, json_pack("{s:s,s:o}", "store", name, "vdis", vdis));
    for (size_t i = 0; i < family.count && !rc; i++) {
        json_t *vdi;

        if (family.wanted[i] && find_parent(&family, i) == SIZE_MAX &&
            !(rc = build_vdi(&family, i, &vdi)))
            json_array_append_new(vdis, vdi);
    }
    free(family.vdis);
    free(family.wanted);
    return rc ? plx_session_registry_fault(cli, rc) : 0;
}

/* ---- Text ---- */

struct strokes {
    const char *branch, *last, *pipe;
};

static const struct strokes lines = {"├─ ", "└─ ", "│  "}, ascii = {"|- ", "`- ", "|  "};

static void print_title(const json_t *node)
{
    const char *name = json_string_value(json_object_get(node, "vdi"));
    const json_t *labels = json_object_get(node, "labels");
    const char *time = json_string_value(json_object_get(node, "time"));
    char size[16];
    json_t *label;
    size_t i;

    if (name) {
        uint64_t bytes = (uint64_t)json_integer_value(json_object_get(node, "size_bytes"));
        plx_out_put(name);
        printf("  %s%s\n", plx_text_size(bytes, size),
               json_is_true(json_object_get(node, "deleted")) ? "  (deleted)" : "");
        return;
    }
    printf("@%" PRId64, (int64_t)json_integer_value(json_object_get(node, "seq")));
    json_array_foreach(labels, i, label)
    {
        putchar(' ');
        plx_out_put(json_string_value(label));
    }
    printf("%s%s\n", time ? "  " : "", time ? time : "");
}

static void print_children(const json_t *node, const struct strokes *strokes, const char *indent)
{
    const json_t *children = json_object_get(node, "vdis");
    json_t *child;
    size_t i;

    children = children ? children : json_object_get(node, "snapshots");
    children = children ? children : json_object_get(node, "clones");
    json_array_foreach(children, i, child)
    {
        bool last = i + 1 == json_array_size(children);
        char *deeper;

        printf("%s%s", indent, last ? strokes->last : strokes->branch);
        print_title(child);
        if (asprintf(&deeper, "%s%s", indent, last ? "   " : strokes->pipe) < 0)
            return;
        print_children(child, strokes, deeper);
        free(deeper);
    }
}

static void print_text(const json_t *stores)
{
    const struct strokes *strokes = strcmp(nl_langinfo(CODESET), "UTF-8") ? &ascii : &lines;
    json_t *store;
    size_t i;

    json_array_foreach(stores, i, store)
    {
        plx_out_line("%s", json_string_value(json_object_get(store, "store")));
        print_children(store, strokes, "");
    }
}

/* ---- Graphviz ---- */

static const char *plain(const json_t *name, char ret_text[PLX_NAME_MAX + 1])
{
    return plx_name_plain(json_string_value(name), ret_text, PLX_NAME_MAX + 1);
}

/* Plain names need no escaping in a Graphviz string. */
static void print_dot_vdi(const json_t *vdi)
{
    char id_text[PLX_NAME_MAX + 1], text[PLX_NAME_MAX + 1];
    const char *id = plain(json_object_get(vdi, "uuid"), id_text);
    uint64_t bytes = (uint64_t)json_integer_value(json_object_get(vdi, "size_bytes"));
    json_t *snapshot, *clone, *label;
    size_t i, j;
    char size[16];

    printf("    \"%s\" [shape=box%s,label=\"%s\\n%s\"];\n", id,
           json_is_true(json_object_get(vdi, "deleted")) ? ",style=dashed" : "",
           plain(json_object_get(vdi, "vdi"), text), plx_text_size(bytes, size));
    json_array_foreach(json_object_get(vdi, "snapshots"), i, snapshot)
    {
        int64_t seq = json_integer_value(json_object_get(snapshot, "seq"));

        printf("    \"%s@%" PRId64 "\" [shape=ellipse,label=\"@%" PRId64, id, seq, seq);
        json_array_foreach(json_object_get(snapshot, "labels"), j, label)
            printf("\\n%s", plain(label, text));
        printf("\"];\n    \"%s\" -> \"%s@%" PRId64 "\" [arrowhead=none];\n", id, id, seq);
        json_array_foreach(json_object_get(snapshot, "clones"), j, clone)
        {
            print_dot_vdi(clone);
            printf("    \"%s@%" PRId64 "\" -> \"%s\";\n", id, seq,
                   plain(json_object_get(clone, "uuid"), text));
        }
    }
}

static void print_dot(const json_t *stores)
{
    json_t *store, *vdi;
    size_t i, j;

    puts("digraph parallax {\n    rankdir=LR;\n    node [fontname=\"sans-serif\"];");
    json_array_foreach(stores, i, store)
    {
        printf("    subgraph \"cluster_%s\" {\n    label=\"%s\";\n",
               json_string_value(json_object_get(store, "store")),
               json_string_value(json_object_get(store, "store")));
        json_array_foreach(json_object_get(store, "vdis"), j, vdi) print_dot_vdi(vdi);
        puts("    }");
    }
    puts("}");
}

static int visit_store(struct plx_cli *cli, const struct plx_known *known, void *tree)
{
    struct plx_registry_store store;
    int rc = plx_session_registry(cli, known->name, &store);

    if (!rc)
        rc = build_store(cli, cli->session.registry, &store, known->name, tree);
    return rc ? rc : plx_cmd_look_at_store(cli, known);
}

int plx_cmd_tree(struct plx_cli *cli)
{
    json_t *tree = json_array();
    struct plx_name name = {{0}, {0}, {0}};
    int rc;

    if (cli->count && (rc = plx_cli_name(cli, 0, PLX_NAME_STORE, &name)))
        goto out;
    rc = plx_session_each_store(cli, name.store, visit_store, tree);
    if (rc && !json_array_size(tree)) /* else the other stores are shown */
        goto out;
    if (cli->json)
        plx_out_json(json_incref(tree));
    else if (plx_cli_get(cli, "dot"))
        print_dot(tree);
    else
        print_text(tree);
out:
    json_decref(tree);
    return rc;
}
