/* session_vdi.c - what commands do to a virtual disk, or ask of it: here, or where it is open
 * (SESSION-1). */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/doors.h"
#include "output.h"
#include "registry/clocks.h"
#include "registry/policy.h"
#include "ring_way.h"
#include "session_inside.h"

int plx_session_vdi_resize(struct plx_cli *cli, const struct plx_name *name, uint64_t bytes)
{
    bool asked;
    int rc = plx_session_ask_or_open(
        cli, name, "resize", json_pack("{s:I}", "size_bytes", (json_int_t)bytes), &asked, NULL);

    if (rc || asked)
        return rc;
    return plx_attach_resize(cli->session.attach, cli->session.vdi, bytes, &cli->fault);
}

int plx_session_vdi_protect(struct plx_cli *cli, const struct plx_name *name,
                            const struct plx_protection *protection)
{
    char mode[PLX_MODE_TEXT], tiers[PLX_TIERS_TEXT];
    bool asked;
    int rc = plx_session_ask_or_open(
        cli, name, "protect",
        json_pack("{s:s,s:s}", "mode", plx_protection_mode_text(protection, mode), "retention",
                  plx_protection_tiers_text(protection, tiers)),
        &asked, NULL);

    if (rc || asked)
        return rc;
    return plx_attach_protect(cli->session.attach, cli->session.vdi, protection, &cli->fault);
}

static int take_rewound(struct plx_cli *cli, const json_t *result, char ret_label[PLX_REWIND_LABEL],
                        struct plx_snapshot_info *ret_before)
{
    int rc = plx_session_decode(cli, plx_message_snapshot, result, ret_before);

    return rc ? rc : plx_session_decode_label(cli, result, ret_label);
}

int plx_session_vdi_rewind(struct plx_cli *cli, const struct plx_name *name, uint64_t seq,
                           char ret_label[PLX_REWIND_LABEL], struct plx_snapshot_info *ret_before)
{
    json_t *result = NULL;
    bool asked;
    int rc = plx_session_ask_or_open(cli, name, "rewind",
                                     json_pack("{s:I}", "seq", (json_int_t)seq), &asked, &result);

    if (!rc && asked)
        rc = take_rewound(cli, result, ret_label, ret_before);
    json_decref(result);
    if (rc || asked)
        return rc;
    return plx_attach_rewind(cli->session.attach, cli->session.vdi, seq, ret_label, ret_before,
                             &cli->fault);
}

int plx_session_vdi_ring_use(struct plx_cli *cli, const struct plx_name *name,
                             enum plx_ring_setting use, bool *ret_live)
{
    return plx_session_ask_live(
        cli, name, "ring", json_pack("{s:s}", "use", plx_ring_setting_words[use]), ret_live, NULL);
}

int plx_session_vdi_ring(struct plx_cli *cli, const struct plx_name *name,
                         struct plx_session_ring *ret_ring)
{
    json_t *result = NULL;
    const char *waits_for;
    int rc = plx_session_ask_live(cli, name, "ring-status", NULL, &ret_ring->live, &result);

    ret_ring->waits_for[0] = 0;
    if (!rc && ret_ring->live)
        rc = plx_session_decode(cli, plx_message_ring, result, &ret_ring->info);
    waits_for = json_string_value(json_object_get(result, "waits_for"));
    if (!rc && waits_for)
        snprintf(ret_ring->waits_for, sizeof ret_ring->waits_for, "%s", waits_for);
    json_decref(result);
    return rc;
}

int plx_session_vdi_resume(struct plx_cli *cli, const struct plx_name *name)
{
    bool asked;
    int rc = plx_session_ask_or_open(cli, name, "resume", NULL, &asked, NULL);

    if (rc || asked)
        return rc;
    return plx_attach_resume(cli->session.attach, cli->session.vdi, &cli->fault);
}

static json_t *list_marks(const struct plx_thin *thin)
{
    json_t *list = json_array();

    for (size_t i = 0; i < thin->mark_count; i++)
        json_array_append_new(list, json_pack("{s:I,s:s*}", "seq", (json_int_t)thin->marks[i].seq,
                                              "label", thin->marks[i].label));
    return list;
}

static void take_marks(const struct plx_thin *thin, const json_t *result)
{
    const json_t *gone = json_object_get(result, "gone");

    for (size_t i = 0; i < json_array_size(gone); i++) {
        uint64_t place = (uint64_t)json_integer_value(json_array_get(gone, i));

        if (place < thin->mark_count)
            thin->marks[place].gone = true;
    }
}

static int thin_slice(void *context, const struct plx_thin *thin, struct plx_thinned *ret_thinned,
                      struct plx_fault *fault)
{
    const struct plx_session_thinning *thinning = context;
    struct plx_cli *cli = thinning->cli;
    const struct plx_name *name = thinning->name;
    json_t *request = plx_message_encode(plx_message_thin, thin), *result = NULL;
    bool asked;
    int rc;

    json_object_set_new(request, "marks", list_marks(thin));
    rc = plx_session_ask_or_open(cli, name, "thin", request, &asked, &result);
    if (!rc && asked) {
        *ret_thinned = (struct plx_thinned){0};
        rc = plx_session_decode(cli, plx_message_thinned, result, ret_thinned);
    }
    if (!rc && asked)
        take_marks(thin, result);
    json_decref(result);
    if (rc || asked)
        return rc;
    return plx_attach_thin(cli->session.attach, cli->session.vdi, thin, ret_thinned, &cli->fault);
}

static int between_slices(void *context, const struct plx_thinned *so_far, struct plx_fault *fault)
{
    const struct plx_session_thinning *thinning = context;

    if (thinning->progress)
        plx_progress_show(thinning->progress,
                          plx_min_u64(thinning->before + so_far->upto - thinning->first,
                                      thinning->progress->total)); /* a slice may reach further */
    return plx_session_stopped()
               ? plx_fault_set(fault, PLX_ERR_SYSTEM,
                               "interrupted; snapshots that were deleted before are gone")
               : 0;
}

struct plx_retention_work plx_session_thin_work(struct plx_session_thinning *thinning)
{
    return (struct plx_retention_work){
        .context = thinning, .thin = thin_slice, .between = between_slices};
}

/* A request to the disk open here. */
static int run_here(struct plx_cli *cli, const struct plx_name *name, struct plx_request *request)
{
    int rc = plx_vdi_run(cli->session.vdi, request);

    if (rc)
        cli->fault = request->fault;
    if (rc && !*request->fault.text)
        plx_cli_fail(cli, rc, "%s/%.120s: %s", name->store, name->vdi, plx_error_text(rc));
    return rc;
}

static int move_here(struct plx_cli *cli, const struct plx_name *name, uint64_t end,
                     struct plx_move *move)
{
    struct iovec iov = {aligned_alloc(PLX_BLOCK_SIZE, PLX_MOVE_BUFFER), PLX_MOVE_BUFFER};
    struct plx_request request = {.op = PLX_MOVE,
                                  .offset = move->upto,
                                  .length = end - move->upto,
                                  .iov = &iov,
                                  .iovcnt = 1,
                                  .move = move};
    int rc = iov.iov_base ? 0 : plx_cli_fail(cli, PLX_ERR_NOMEM, "out of memory");

    if (!rc && !move->dry_run)
        rc = plx_attach_move_room(cli->session.attach, &cli->fault);
    if (!rc)
        rc = run_here(cli, name, &request);
    free(iov.iov_base);
    return rc;
}

int plx_session_vdi_move(struct plx_cli *cli, const struct plx_name *name, uint64_t end,
                         struct plx_move *move)
{
    json_t *request = plx_message_encode(plx_message_move, move), *result = NULL;
    const char *code, *message;
    struct plx_move moved;
    bool asked;
    int rc;

    json_object_set_new(request, "length", json_integer((json_int_t)(end - move->upto)));
    rc = plx_session_ask_or_open(cli, name, "move", request, &asked, &result);
    if (!rc && !asked)
        return move_here(cli, name, end, move);
    if (rc)
        return rc;
    if ((rc = plx_session_decode(cli, plx_message_moved, result, &moved))) {
        json_decref(result);
        return rc;
    }
    move->upto = moved.upto;
    move->mapped += moved.mapped;
    move->shared += moved.shared;
    move->moved += moved.moved;
    move->runs_before += moved.runs_before;
    move->runs_after += moved.runs_after;
    code = json_string_value(json_object_get(result, "code"));
    message = json_string_value(json_object_get(result, "message"));
    if (code)
        rc = plx_cli_fail(cli, plx_error_code(code), "%s", message ? message : code);
    json_decref(result);
    return rc;
}

int plx_session_vdi_keyframe(struct plx_cli *cli, const struct plx_name *name)
{
    struct plx_request request = {.op = PLX_KEYFRAME};
    bool asked;
    int rc = plx_session_ask_or_open(cli, name, "keyframe", NULL, &asked, NULL);

    if (rc || asked)
        return rc;
    return run_here(cli, name, &request);
}

static bool keep_last(void *context, const struct plx_snapshot_info *info)
{
    *(struct plx_snapshot_info *)context = *info;
    return !plx_session_stopped();
}

int plx_session_window(struct plx_cli *cli, const struct plx_registry_vdi *row,
                       struct plx_snapshot_info *ret_oldest, struct plx_snapshot_info *ret_newest)
{
    struct plx_store *store = plx_session_store(cli);
    struct plx_vdi_info info;
    int rc;

    *ret_oldest = *ret_newest = (struct plx_snapshot_info){0};
    if ((rc = plx_door_read(store, row, &info, &cli->fault)) ||
        (rc = plx_snapshot_first(store, row->slot, 1, ret_oldest, &cli->fault)) || !ret_oldest->seq)
        return rc;
    /* From the newest key frame on: what came before it need not be read. */
    rc = plx_snapshot_list(store, row->slot, plx_max_u64(info.snapshots, 1), keep_last, ret_newest,
                           &cli->fault);
    return !rc && plx_interrupted ? plx_cli_interrupted(cli, 0) : rc; /* an older one came out */
}

/* CMD_CLOCK-1 */
int plx_session_clock(struct plx_cli *cli, const struct plx_registry_vdi *row,
                      struct plx_vdi_clock *ret_clock)
{
    struct plx_snapshot_info oldest, newest;
    struct plx_vdi_clock clock = {.now = plx_clocks_here(cli->session.paths)};
    int rc = plx_session_window(cli, row, &oldest, &newest);

    if (rc)
        return rc;
    if ((rc = plx_witness_load(cli->session.registry, row->id, &clock.witness)))
        return plx_session_registry_fault(cli, rc);
    clock.ends.forgotten = oldest.seq ? oldest.seq - 1 : 0;
    clock.ends.taken_seq = clock.ends.newest_seq = newest.seq;
    clock.ends.newest_ns = newest.time_ns;
    plx_witness_look(&clock.witness, &clock.now, &clock.ends);
    *ret_clock = clock;
    return 0;
}

const char *plx_session_clock_text(const struct plx_vdi_clock *clock, char ret_text[PLX_DOUBT_TEXT])
{
    bool behind = !clock->witness.doubt && clock->ends.newest_ns > clock->now.wall_ns;

    if (!behind)
        return plx_witness_text(&clock->witness, &clock->now, &clock->ends, ret_text);
    snprintf(ret_text, PLX_DOUBT_TEXT, "the wall clock is behind the newest snapshot");
    return ret_text;
}

int plx_session_snapshot_resolve(struct plx_cli *cli, const struct plx_name *name,
                                 struct plx_snapshot_info *ret_info)
{
    struct plx_store *store = plx_session_store(cli);
    struct plx_snapshot_info info;
    struct plx_registry_vdi row;
    struct plx_vdi_info vdi;
    uint64_t seq;
    int rc;

    if ((rc = plx_session_vdi_row(cli, name, &row)) ||
        (rc = plx_attach_snapshot_resolve(cli->session.attach, name->vdi, name->snapshot, &seq,
                                          &cli->fault)))
        return rc;
    if (!seq)
        return plx_cli_fail(cli, PLX_ERR_NOT_FOUND,
                            "%s/%.100s has no snapshot %.40s; they begin with 1", name->store,
                            name->vdi, name->snapshot);
    if ((rc = plx_snapshot_first(store, row.slot, seq, &info, &cli->fault))) {
        int refused = plx_door_read(store, &row, &vdi, &cli->fault); /* says what to do */

        return refused ? refused : rc;
    }
    if (info.seq != seq)
        return plx_attach_explain_missing(cli->session.attach, &row, name->snapshot, seq,
                                          &cli->fault);
    *ret_info = info;
    return 0;
}

static bool is_time(const char *snapshot)
{
    return *snapshot && !isalpha((unsigned char)*snapshot) &&
           strspn(snapshot, "0123456789") < strlen(snapshot);
}

void plx_session_tell_newer(struct plx_cli *cli, const struct plx_name *name)
{
    const struct plx_fault before = cli->fault;
    struct plx_registry_vdi row;
    char way[PLX_RING_WAY];
    struct plx_vdi_info info;

    if (!plx_session_vdi_row(cli, name, &row) &&
        !plx_door_read(plx_session_store(cli), &row, &info, &cli->fault) &&
        plx_ring_is_marked(&info.mark))
        plx_out_note(cli, "%s/%s: newer snapshots may lie on a ring; %s", name->store, name->vdi,
                     plx_ring_way(cli->session.paths, name, &info, "snap create", "", way));
    cli->fault = before;
}

/* CMD_CLOCK-3 */
static void warn_of_clock(struct plx_cli *cli, const struct plx_name *name,
                          const struct plx_snapshot_info *chosen)
{
    struct plx_fault before = cli->fault;
    struct plx_registry_vdi row;
    struct plx_vdi_clock clock;
    char why[PLX_DOUBT_TEXT];

    if (plx_session_vdi_row(cli, name, &row) || plx_session_clock(cli, &row, &clock)) {
        cli->fault = before; /* the command meets it itself */
        return;
    }
    if (chosen->seq == clock.ends.newest_seq)
        plx_session_tell_newer(cli, name);
    if (*name->snapshot == '-' && !plx_witness_lets_go(&clock.witness, &clock.now, &clock.ends))
        plx_out_warning("%s/%s@%s means snapshot %" PRIu64 " by a clock in doubt: %s", name->store,
                        name->vdi, name->snapshot, chosen->seq,
                        plx_session_clock_text(&clock, why));
    else if (!plx_witness_is_dated(&clock.witness, &clock.now, chosen->seq, chosen->time_ns))
        plx_out_warning("%s/%s@%s means snapshot %" PRIu64 ", whose time is not certain: it was "
                        "taken while the wall clock was in doubt",
                        name->store, name->vdi, name->snapshot, chosen->seq);
}

void plx_session_tell_chosen(struct plx_cli *cli, const struct plx_name *name,
                             const struct plx_snapshot_info *chosen)
{
    if (!is_time(name->snapshot))
        return;
    warn_of_clock(cli, name, chosen);
    if (cli->chosen_count == PLX_CHOSEN_MAX)
        return;
    cli->chosen[cli->chosen_count].name = *name;
    cli->chosen[cli->chosen_count++].snapshot = *chosen;
}

int plx_session_settle_time(struct plx_cli *cli, struct plx_name *name)
{
    struct plx_snapshot_info chosen;
    int rc = is_time(name->snapshot) ? plx_session_snapshot_resolve(cli, name, &chosen) : 0;

    if (rc || !is_time(name->snapshot))
        return rc;
    plx_session_tell_chosen(cli, name, &chosen);
    snprintf(name->snapshot, sizeof name->snapshot, "%" PRIu64, chosen.seq);
    return 0;
}

int plx_session_label_unused(struct plx_cli *cli, const struct plx_name *name, const char *label)
{
    struct plx_registry_label there;
    struct plx_registry_vdi row;
    int rc = plx_session_vdi_row(cli, name, &row);

    if (rc)
        return rc;
    rc = plx_registry_label_get(cli->session.registry, row.id, label, &there);
    if (!rc)
        return plx_cli_fail(cli, PLX_ERR_EXISTS,
                            "label %.80s names %s/%.100s@%" PRIu64
                            " already, and no snapshot was taken; 'parallax snap unlabel "
                            "%s/%.100s@%.80s' frees the label",
                            label, name->store, name->vdi, there.seq, name->store, name->vdi,
                            label);
    return rc == PLX_ERR_NOT_FOUND ? 0 : plx_session_registry_fault(cli, rc);
}

/* Another command took the label, after it was looked at. */
static int tell_unlabelled(struct plx_cli *cli, const struct plx_name *name, uint64_t seq)
{
    struct plx_fault why = cli->fault;

    return plx_cli_fail(cli, why.code,
                        "%.*s; snapshot %" PRIu64 " was taken and has no label: 'parallax snap "
                        "label %s/%.80s@%" PRIu64 " LABEL' gives it one",
                        (int)strcspn(why.text, ";"), why.text, seq, name->store, name->vdi, seq);
}

int plx_session_snapshot_create(struct plx_cli *cli, const struct plx_name *name, const char *label,
                                uint64_t *ret_seq, uint64_t *ret_time_ns)
{
    struct plx_request request = {.op = PLX_SNAPSHOT};
    struct plx_snapshot_info taken;
    json_t *result = NULL;
    bool asked;
    int rc = plx_session_ask_or_open(cli, name, "snapshot", NULL, &asked, &result);

    if (!rc && asked)
        rc = plx_session_decode(cli, plx_message_snapshot, result, &taken);
    else if (!rc && !(*label && (rc = plx_session_label_unused(cli, name, label))) &&
             !(rc = run_here(cli, name, &request)))
        taken = (struct plx_snapshot_info){.seq = request.seq, .time_ns = request.time_ns};
    json_decref(result);
    if (!rc && *label && (rc = plx_session_label_set(cli, name, label, taken.seq, taken.time_ns)))
        tell_unlabelled(cli, name, taken.seq);
    if (rc)
        return rc;
    *ret_seq = taken.seq;
    *ret_time_ns = taken.time_ns;
    return 0;
}

int plx_session_label_set(struct plx_cli *cli, const struct plx_name *name, const char *label,
                          uint64_t seq, uint64_t time_ns)
{
    bool asked;
    int rc = plx_session_ask_or_open(cli, name, "label",
                                     json_pack("{s:s,s:I}", "label", label, "seq", (json_int_t)seq),
                                     &asked, NULL);

    if (rc || asked)
        return rc;
    return plx_attach_label(cli->session.attach, cli->session.vdi, label, seq, time_ns,
                            &cli->fault);
}

int plx_session_label_remove(struct plx_cli *cli, const struct plx_name *name, const char *label)
{
    bool asked;
    int rc = plx_session_ask_or_open(cli, name, "unlabel", json_pack("{s:s}", "label", label),
                                     &asked, NULL);

    if (rc || asked)
        return rc;
    return plx_attach_label(cli->session.attach, cli->session.vdi, label, 0, 0, &cli->fault);
}
