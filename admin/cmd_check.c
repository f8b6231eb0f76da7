/* cmd_check.c - parallax store check, ring check: what was found, one line each, and counted. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "attach/compare.h"
#include "attach/known_rings.h"
#include "attach/ring_check.h"
#include "cmd.h"
#include "engine/format/format.h"
#include "output.h"
#include "registry/embedded.h"
#include "registry/tenancy.h"

#define FINDINGS_MAX 10000 /* kept for JSON; all are counted */

struct check {
    struct plx_cli *cli;
    struct plx_progress progress;
    uint64_t errors, told_errors, kept; /* told: the finding itself says what to do */
    json_t *findings, *leaks;
    struct plx_registry_extent *extents; /* as the registry has them; NULL: it is damaged */
    size_t extent_count;
    struct plx_registry_vdi *vdis; /* likewise */
    size_t vdi_count;
};

static void set_place(json_t *object, const struct plx_finding *finding)
{
    if (finding->vdi)
        json_object_set_new(object, "vdi", plx_out_string(finding->vdi));
    if (finding->vblock != UINT64_MAX)
        json_object_set_new(object, "vdi_block", json_integer((json_int_t)finding->vblock));
    if (finding->blocks)
        json_object_set_new(object, "blocks", json_integer((json_int_t)finding->blocks));
    if (finding->addr) {
        json_object_set_new(object, "store_block", json_integer((json_int_t)finding->addr));
        json_object_set_new(object, "volume", plx_out_string(finding->volume));
        json_object_set_new(object, "volume_block",
                            json_integer((json_int_t)finding->volume_block));
    }
    plx_out_keys(object, "vdi", "vdi_block", "blocks", "store_block", "volume", "volume_block",
                 NULL);
}

#define FINDING_TEXT 2048

static void on_finding(void *context, const struct plx_finding *finding)
{
    struct check *check = context;
    const char *word = finding->severity == PLX_FINDING_ERROR ? "error" : "info";
    char text[FINDING_TEXT];

    check->errors += finding->severity == PLX_FINDING_ERROR;
    check->told_errors +=
        finding->severity == PLX_FINDING_ERROR &&
        (strcmp(finding->kind, "registry") == 0 || strcmp(finding->kind, "superblock") == 0 ||
         strcmp(finding->kind, "ring") == 0 || strcmp(finding->kind, "home") == 0);
    plx_progress_clear(&check->progress);
    snprintf(text, sizeof text, "%s", finding->text);
    plx_known_name_advice(check->cli->store, text, sizeof text);
    if (!check->cli->json) {
        plx_out_line("%s: %s", word, text);
    } else if (check->kept++ < FINDINGS_MAX) {
        json_t *object = json_pack("{s:s,s:s,s:o}", "severity", word, "kind", finding->kind, "text",
                                   plx_out_string(text));

        set_place(object, finding);
        json_array_append_new(check->findings, object);
    }
}

static void on_leak(void *context, const struct plx_leak *leak)
{
    struct check *check = context;

    if (check->cli->json)
        json_array_append_new(check->leaks,
                              json_pack("{s:I,s:s,s:I,s:I,s:I}", "extent", (json_int_t)leak->extent,
                                        "type", leak->type == PLX_EXTENT_DATA ? "data" : "metadata",
                                        "instance", (json_int_t)leak->owner, "deleted_blocks",
                                        (json_int_t)leak->deleted, "other_blocks",
                                        (json_int_t)leak->other));
}

static int compare_numbers(const void *number, const void *extent)
{
    return plx_compare_u64(number, &((const struct plx_registry_extent *)extent)->no);
}

/* An extent whose header is outdated is sealed when it is next claimed. */
static bool is_disbelieved(void *context, uint64_t number)
{
    struct check *check = context;
    struct plx_extent_info now;
    const struct plx_registry_extent *extent =
        check->extents ? bsearch(&number, check->extents, check->extent_count,
                                 sizeof *check->extents, compare_numbers)
                       : NULL;

    return extent &&
           (extent->states == PLX_STATES_NEVER ||
            (plx_store_extent_read(plx_session_store(check->cli), number, &now, NULL) == 0 &&
             now.states < extent->states));
}

/* The registry decides names (ATTACH-19), and a record may be from before a rename. */
static void name_vdi(void *context, const struct plx_uuid *id, char name[PLX_NAME_MAX + 1])
{
    const struct check *check = context;
    char text[PLX_UUID_TEXT];

    plx_uuid_text(id, text);
    for (size_t i = 0; i < check->vdi_count; i++)
        if (strcmp(check->vdis[i].id, text) == 0)
            memcpy(name, check->vdis[i].name, sizeof check->vdis[i].name);
}

static void on_progress(void *context, uint64_t done, uint64_t total)
{
    struct check *check = context;

    check->progress.total = total;
    plx_progress_show(&check->progress, done);
}

static bool on_interrupted(void *context)
{
    return plx_session_stopped();
}

static void print_check(struct check *check, const char *store,
                        const struct plx_check_result *result)
{
    static const struct plx_column columns[] = {
        {"errors", "Errors", PLX_COLUMN_NUMBER},
        {"leaked_blocks", "Leaked blocks", PLX_COLUMN_NUMBER},
        {"deleted_blocks", "  of deleted disks", PLX_COLUMN_NUMBER},
        {"used_blocks", "Used blocks", PLX_COLUMN_NUMBER},
        {"free_blocks", "Free blocks", PLX_COLUMN_NUMBER},
        {"vdis", "Virtual disks", PLX_COLUMN_NUMBER},
        {"unsettled", "  too busy to check", PLX_COLUMN_NUMBER},
        {"snapshots", "Snapshots", PLX_COLUMN_NUMBER},
        {"nodes", "Nodes", PLX_COLUMN_NUMBER},
        {"batches", "Log batches", PLX_COLUMN_NUMBER},
        {"data_verified", "Data blocks verified", PLX_COLUMN_NUMBER},
        {"mapped_blocks", "Blocks of newest states", PLX_COLUMN_NUMBER},
        {"vouched_blocks", "  with checksum", PLX_COLUMN_NUMBER},
        {"bytes_read", "Read", PLX_COLUMN_SIZE},
        {NULL, NULL, 0},
    };
    json_t *object = json_pack("{s:s,s:b,s:I,s:I,s:I,s:I,s:I,s:I}", "store", store, "clean",
                               check->errors == 0, "errors", (json_int_t)check->errors,
                               "leaked_blocks", (json_int_t)result->leaked_blocks, "deleted_blocks",
                               (json_int_t)result->deleted_blocks, "used_blocks",
                               (json_int_t)result->used_blocks, "free_blocks",
                               (json_int_t)result->free_blocks, "vdis", (json_int_t)result->vdis);

    json_object_update_new(
        object,
        json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:O,s:O}", "mapped_blocks",
                  (json_int_t)result->mapped_blocks, "vouched_blocks",
                  (json_int_t)result->vouched_blocks, "unsettled", (json_int_t)result->unsettled,
                  "snapshots", (json_int_t)result->snapshots, "nodes", (json_int_t)result->nodes,
                  "batches", (json_int_t)result->batches, "data_verified",
                  (json_int_t)result->data_verified, "bytes_read", (json_int_t)result->bytes,
                  "findings", check->findings, "leaks", check->leaks));
    json_object_set_new(
        object, "findings_left_out",
        json_integer(check->kept > FINDINGS_MAX ? (json_int_t)(check->kept - FINDINGS_MAX) : 0));
    plx_out_object(check->cli, columns, object);
}

/* One copy of the home page is whole, so the store works, and the next loss would end that. Who has
 * the store writes both anew when he opens it (TENANCY-2). */
static void check_home_copies(struct check *check, const char *store, bool ours)
{
    struct plx_device *device = plx_registry_device(check->cli->session.registry);
    struct plx_tenant tenant;
    char text[FINDING_TEXT], mends[PLX_STORE_NAME_MAX + 64];

    if (!plx_session_read_tenant(&check->cli->session, &tenant))
        return;
    snprintf(mends, sizeof mends, "'parallax store grow %s' writes it again", store);
    for (unsigned slot = 0; slot < 2; slot++) {
        struct plx_finding finding = {.severity = PLX_FINDING_ERROR,
                                      .kind = "home",
                                      .text = text,
                                      .vblock = UINT64_MAX,
                                      .addr = PLX_HOME_BLOCK + slot,
                                      .volume = device->name,
                                      .volume_block = PLX_HOME_BLOCK + slot};

        if (!(tenant.lost_slots & 1u << slot))
            continue;
        snprintf(text, sizeof text,
                 "volume 0, %s: copy %u of the home page, block %u, is damaged or cannot be read; "
                 "the other one is whole; %s",
                 device->name, slot, PLX_HOME_BLOCK + slot,
                 ours ? mends : "the host that has the store writes it again");
        on_finding(check, &finding);
    }
}

/* Without its home page a store can be read, and not be written to. */
static void check_home(struct check *check, const char *store)
{
    char text[PLX_SESSION_TENANT_TEXT];
    struct plx_known known;
    const char *word;

    if (plx_known_get(check->cli->session.paths, store, &known, NULL))
        return;
    word = plx_session_not_ours(check->cli, &known, text);
    if (word && strcmp(word, "UNTOLD") == 0)
        on_finding(check, &(struct plx_finding){.severity = PLX_FINDING_ERROR,
                                                .kind = "home",
                                                .text = text,
                                                .vblock = UINT64_MAX});
    check_home_copies(check, store, !word);
    plx_known_done(&known);
}

int plx_cmd_store_check(struct plx_cli *cli)
{
    struct check check = {.cli = cli, .findings = json_array(), .leaks = json_array()};
    struct plx_check_options options = {.data = plx_cli_get(cli, "data"),
                                        .finding = on_finding,
                                        .leak = on_leak,
                                        .disbelieved = is_disbelieved,
                                        .name = name_vdi,
                                        .context = &check,
                                        .watch = {on_progress, on_interrupted, &check}};
    struct plx_check_result result = {0};
    struct plx_ring_checked rings;
    struct plx_registry_store row;
    struct plx_name name;
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_STORE, &name)) ||
        (rc = plx_cli_rate(cli, &options.rate)) ||
        (rc = plx_session_open(cli, name.store, PLX_SESSION_CHECK)))
        goto out;
    plx_session_row(cli, &row);
    plx_registry_extent_list(cli->session.registry, row.id, PLX_REGISTRY_ANY, &check.extents,
                             &check.extent_count);
    plx_registry_vdi_list(cli->session.registry, row.id, false, NULL, 0, &check.vdis,
                          &check.vdi_count);
    plx_progress_begin(&check.progress, cli, "check", 0);
    rc = plx_store_check(plx_session_store(cli), &options, &result, &cli->fault);
    if (rc == PLX_ERR_BUSY) /* not a lock's */
        rc = cli->fault.code = PLX_ERR_SYSTEM;
    if (!rc)
        rc = plx_attach_compare(cli->session.attach, on_finding, &check, &cli->fault);
    if (!rc)
        rc = plx_ring_check(cli->session.attach, on_finding, &check, &rings, &cli->fault);
    plx_progress_end(&check.progress);
    if (rc)
        goto out;
    check_home(&check, name.store);
    check.errors = plx_max_u64(check.errors, result.errors);
    print_check(&check, name.store, &result);
    if (check.errors && check.errors == check.told_errors)
        rc = plx_cli_fail(cli, PLX_ERR_CORRUPT,
                          "store %s: %" PRIu64 " error%s found; each finding says what to do",
                          name.store, check.errors, plx_plural(check.errors));
    else if (check.errors)
        rc = plx_cli_fail(cli, PLX_ERR_CORRUPT,
                          "store %s: %" PRIu64 " error%s found; export what is readable "
                          "('vdi export --skip-errors') and restore what is not",
                          name.store, check.errors, plx_plural(check.errors));
out:
    json_decref(check.findings);
    json_decref(check.leaks);
    free(check.extents);
    free(check.vdis);
    return rc;
}

/* ---- ring check ---- */

static void print_ring_check(struct check *check, const char *store,
                             const struct plx_ring_checked *rings)
{
    static const struct plx_column columns[] = {
        {"errors", "Errors", PLX_COLUMN_NUMBER},
        {"vdis", "Virtual disks", PLX_COLUMN_NUMBER},
        {"records", "Writes that the store may lack", PLX_COLUMN_NUMBER},
        {"bytes", "  bytes", PLX_COLUMN_SIZE},
        {NULL, NULL, 0},
    };
    bool untold = rings->in_use || rings->untold;

    plx_out_object(check->cli, columns,
                   json_pack("{s:s,s:b,s:I,s:i,s:o,s:o,s:b,s:O}", "store", store, "clean",
                             check->errors == 0, "errors", (json_int_t)check->errors, "vdis",
                             (int)rings->disks, "records",
                             untold ? json_null() : json_integer((json_int_t)rings->records),
                             "bytes", untold ? json_null() : json_integer((json_int_t)rings->bytes),
                             "in_use", rings->in_use, "findings", check->findings));
}

int plx_cmd_ring_check(struct plx_cli *cli)
{
    struct check check = {.cli = cli, .findings = json_array()};
    struct plx_ring_checked rings;
    struct plx_known_ring known;
    struct plx_name name;
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_STORE, &name)) ||
        (rc = plx_session_open(cli, name.store, PLX_SESSION_READ)) ||
        (rc = plx_known_ring_find(cli->session.paths, name.store, &known, &cli->fault)))
        goto out;
    plx_known_ring_done(&known);
    rc = plx_ring_check(cli->session.attach, on_finding, &check, &rings, &cli->fault);
    if (rc)
        goto out;
    if (rings.in_use)
        plx_out_note(cli,
                     "a handler or a command has the ring open, so its records were not checked");
    print_ring_check(&check, name.store, &rings);
    if (check.errors)
        rc = plx_cli_fail(cli, PLX_ERR_CORRUPT,
                          "ring of store %s: %" PRIu64 " error%s found; each finding says what to "
                          "do",
                          name.store, check.errors, plx_plural(check.errors));
out:
    json_decref(check.findings);
    return rc;
}
