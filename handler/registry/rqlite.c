/* rqlite.c - the registry on a cluster of rqlite nodes, by HTTP: the other driver below sql.h.
 *
 * Every answer may be lost, late, from the wrong program or a lie. A request that nobody answered
 * may have been made, or be made later: a stopped node reads it when it goes on.
 *
 * RQLITE-1  A call asks one node at a time, one attempt after the other, the addresses in turn. An
 *     attempt ends after ATTEMPT_MS and a call after CALL_MS: curl's time-outs, beside rqlite's
 *     own (`timeout`). rqlite's `retries` is never asked for.
 * RQLITE-2  A change is made at most once, however often and however late it arrives. A handle has
 *     a session, which is a row of `requests` with a number. Each change has a higher number than
 *     all before it, and its transaction begins by entering that. It is refused where the row is
 *     gone or has the number already. rqlite never gives out a session's number twice
 *     (AUTOINCREMENT), so a session that is gone never comes back.
 * RQLITE-3  What became of a change is never guessed. Without an answer it is sent again as it is.
 *     If its number is there, an earlier attempt has made it. A refusal counts only if no earlier
 *     attempt is still on its way. If one may be, the number is used up first (seal()), or turns
 *     out to be there. A call that ends without knowing returns REGISTRY, and the handle's next
 *     call uses the number up before anything else. So whoever looks again sees what will stay.
 * RQLITE-4  When a change was made and its rows are lost, its SELECTs are asked again (sql.h). A
 *     `must` among them that finds no row means that somebody has changed the same since:
 *     REGISTRY.
 * RQLITE-5  rqlite's transaction does not end when a statement finds nothing to change. So a guard
 *     follows each `must`, which breaks a CHECK then (rqlite_batch.c).
 * RQLITE-6  Nor does it end (8.43.4) at a statement that cannot be prepared, or at one with
 *     RETURNING that breaks a constraint: the rest is committed. So no RETURNING is sent.
 *     changes() is 0 before each `must`, so its guard notices when it was left out. The last
 *     statement always works: an answer for it says that the transaction was committed. With an
 *     error before it a part was left out, which only a damaged schema can bring about: REGISTRY.
 * RQLITE-7  Reads are linearizable. One whose answer is lost is asked again.
 * RQLITE-8  An answer is bounded in size, and checked in form as a whole before anything of it is
 *     used (rqlite_answer.c). What is not rqlite's is REGISTRY, at once when all addresses say so.
 * RQLITE-9  A database is changed only after it was recognised as ours, or empty, as in SQLITE-3
 *     and SQLITE-9, and only where references are enforced (rqlite_open.c). Migrations are one
 *     transaction. Whoever was late with it finds the schema there.
 * RQLITE-10  A session goes with its handle. Those of processes that died go when another session
 *     begins, SESSION_NS after their last change. That is no lock: a handle that was idle for
 *     longer gets a new session, and all requests of the old one are refused.
 * RQLITE-11  Whoever reaches the registry owns all disks. So a node counts as one if its
 *     certificate is of the authority that the caller names, of no other, and for the name in its
 *     address, by TLS 1.2 or later; or if it is on this machine's loopback device, unless the
 *     caller allows more (`plain`). No file of the system and no variable of the environment says
 *     whom to trust or to ask, and no answer leads elsewhere: a redirect is a strange answer, and
 *     rqlite sends none that was not asked for (rqlite_access.c).
 * RQLITE-12  No password is in an address or in a message. The files of key and password are used
 *     only if nobody else can read them.
 * RQLITE-13  What a node or this host finds wrong in the other's certificate it will find again:
 *     that is strange, as in RQLITE-8. A connection that broke, also in a handshake, or whose bytes
 *     were damaged, may be better next time. Both are attempts of which nobody knows what became
 *     (RQLITE-3). The words say what is wrong, where, and what to do (rqlite_refusal.c); those of a
 *     node that is strange stay when others do not answer.
 * RQLITE-14  A handle that was told its cluster believes nodes of that cluster only. Before the
 *     first request to a node, and before the next one after each failure, that node says which
 *     cluster it is of, and in which line. A node of another one is strange. So is one that lost
 *     all it had and began anew, which answers that there is nothing. If the connection was made
 *     anew for a read, the answer counts only if the node says so once more: another program may
 *     listen there now. A change is refused there, for that program does not know the session.
 * Threads: one at a time per handle.
 * Crash story: a change that was sent is made as a whole or not at all, also after its sender's
 *   death. Whoever takes over raises epochs and generations, which all statements compare.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "registry/clock.h"
#include "registry/rqlite_inside.h"

#define SESSION_NS (7 * 86400 * 1000000000ll)

#define READ "/db/query?level=linearizable&timeout=2s&linearizable_timeout=2s"
#define CHANGE "/db/request?transaction&noparse&timeout=2s"

static uint64_t monotonic_ms(void)
{
    return plx_clock_ns(CLOCK_MONOTONIC) / 1000000;
}

/* ---- Asking ------------------------------------------------------------------------------ */

static enum plx_reply post(struct plx_rqlite *rq, const char *path, const char *body, size_t sent,
                           struct plx_answer *ret_answer, bool *ret_again, struct plx_fault *fault)
{
    uint64_t now = monotonic_ms();
    uint64_t wait_ms = now < rq->until_ms ? plx_min_u64(rq->until_ms - now, ATTEMPT_MS) : 1;
    char *text;
    size_t size;
    enum plx_reply reply =
        plx_nodes_post(&rq->nodes, path, body, wait_ms, &text, &size, ret_again, fault);

    if (reply == PLX_REPLY) {
        reply = plx_answer_read(text, size, sent, ret_answer, fault);
        free(text);
    }
    return reply;
}

/* RQLITE-14 */
static enum plx_reply ask_cluster(struct plx_rqlite *rq, struct plx_fault *fault)
{
    struct plx_sending sending = {0};
    struct plx_answer answer;
    enum plx_reply reply = PLX_REPLY_NONE;
    bool again = false;
    const char *text;
    char *body;

    plx_sending_own(&sending, "SELECT uuid || ' ' || line FROM cluster WHERE id = 1", NULL, 0);
    body = plx_sending_text(&sending, fault);
    if (body)
        reply = post(rq, READ, body, sending.count, &answer, &again, fault);
    plx_sending_done(&sending);
    free(body);
    if (reply != PLX_REPLY)
        return reply;
    text = answer.error ? NULL : plx_answer_text(&answer, 0, 0);
    rq->sure = text && strcmp(text, rq->cluster) == 0;
    plx_answer_done(&answer);
    if (rq->sure)
        return PLX_REPLY;
    plx_fault_set(fault, PLX_ERR_REGISTRY,
                  "the registry's node %.100s is not of the store's cluster (any more)",
                  plx_nodes_name(&rq->nodes));
    return PLX_REPLY_STRANGE;
}

/* One attempt, at the node whose turn it is. After a failure it is the next one's. */
static enum plx_reply attempt(struct plx_rqlite *rq, const char *path, const char *body,
                              size_t sent, struct plx_answer *ret_answer, struct plx_fault *fault)
{
    bool pinned = rq->cluster[0], again = false;
    enum plx_reply reply = pinned && !rq->sure ? ask_cluster(rq, fault) : PLX_REPLY;

    if (reply == PLX_REPLY) {
        reply = post(rq, path, body, sent, ret_answer, &again, fault);
        rq->lost = rq->lost || again || reply != PLX_REPLY;
        rq->sure = pinned && !again && reply == PLX_REPLY;
    }
    if (reply == PLX_REPLY && pinned && again && strcmp(path, READ) == 0) { /* RQLITE-14 */
        reply = ask_cluster(rq, fault);
        if (reply != PLX_REPLY)
            plx_answer_done(ret_answer);
    }
    if (reply != PLX_REPLY) {
        rq->nodes.at = (rq->nodes.at + 1) % rq->nodes.count;
        rq->sure = false;
    }
    return reply;
}

static void pause_before(unsigned failed, unsigned nodes)
{
    struct timespec pause = {.tv_nsec = (PAUSE_MS + (long)(plx_id_random() % PAUSE_MS)) * 1000000};

    if (failed % nodes == 0)
        nanosleep(&pause, NULL);
}

int plx_rqlite_ask(struct plx_rqlite *rq, const char *path, const struct plx_sending *sending,
                   struct plx_answer *ret_answer, struct plx_fault *fault)
{
    char *body = plx_sending_text(sending, fault);
    unsigned failed = 0, strange = 0;
    struct plx_fault why = {0};
    enum plx_reply reply;
    bool told = false;

    if (!body)
        return sending->code ? sending->code : PLX_ERR_NOMEM;
    do { /* RQLITE-1 */
        reply = attempt(rq, path, body, sending->count, ret_answer, &why);
        strange = reply == PLX_REPLY_STRANGE ? strange + 1 : 0;
        if (fault && reply != PLX_REPLY && (strange || !told)) /* RQLITE-13 */
            *fault = why;
        told = told || strange;
        if (reply == PLX_REPLY || strange >= rq->nodes.count) /* RQLITE-8 */
            break;
        pause_before(++failed, rq->nodes.count);
    } while (monotonic_ms() < rq->until_ms);
    free(body);
    return reply == PLX_REPLY ? 0 : PLX_ERR_REGISTRY;
}

int plx_rqlite_query(struct plx_rqlite *rq, const struct plx_sql *queries, size_t count,
                     struct plx_answer *ret_answer, struct plx_fault *fault)
{
    struct plx_sending sending = {0};
    int code;

    for (size_t i = 0; i < count; i++)
        plx_sending_own(&sending, queries[i].text, queries[i].args, queries[i].count);
    code = plx_rqlite_ask(rq, READ, &sending, ret_answer, fault); /* RQLITE-7 */
    plx_sending_done(&sending);
    if (!code && ret_answer->error) {
        code = plx_answer_fault(ret_answer->error, fault);
        plx_answer_done(ret_answer);
    }
    return code;
}

/* ---- The session (RQLITE-2) -------------------------------------------------------------- */

static const char session_number[] = "SELECT number FROM requests WHERE client = ?1";

/* RQLITE-10. A session of which the answer was lost is one that nobody uses. */
static int begin_session(struct plx_rqlite *rq, struct plx_fault *fault)
{
    const int64_t now = (int64_t)plx_sql_now();
    const struct plx_sql_value old[] = {SQL_INT(now - SESSION_NS)}, mine[] = {SQL_INT(now)};
    struct plx_sending sending = {0};
    struct plx_answer answer;
    int64_t client = 0;
    int code;

    plx_sending_own(&sending, "DELETE FROM requests WHERE seen_ns < ?1", old, 1);
    plx_sending_own(&sending, "INSERT INTO requests (number, seen_ns) VALUES (0, ?1)", mine, 1);
    plx_sending_own(&sending, "SELECT last_insert_rowid()", NULL, 0);
    code = plx_rqlite_ask(rq, CHANGE, &sending, &answer, fault);
    plx_sending_done(&sending);
    if (code)
        return code;
    if (answer.error)
        code = plx_answer_fault(answer.error, fault);
    else if (!plx_answer_number(&answer, 2, &client) || client <= 0)
        code = plx_fault_set(fault, PLX_ERR_REGISTRY, "the registry began no session");
    plx_answer_done(&answer);
    if (code)
        return code;
    rq->client = client;
    rq->number = 0;
    return 0;
}

/* Only an attempt: a session that stays goes after SESSION_NS. */
static void end_session(struct plx_rqlite *rq)
{
    const struct plx_sql_value client[] = {SQL_INT(rq->client)};
    struct plx_sending sending = {0};
    struct plx_answer answer;
    char *body;

    plx_sending_own(&sending, "DELETE FROM requests WHERE client = ?1", client, 1);
    body = plx_sending_text(&sending, NULL);
    rq->until_ms = monotonic_ms() + CONNECT_MS;
    if (body && attempt(rq, CHANGE, body, sending.count, &answer, NULL) == PLX_REPLY)
        plx_answer_done(&answer);
    plx_sending_done(&sending);
    free(body);
}

/* What is known of the change with the session's present number. */
enum fate {
    FATE_MADE,
    FATE_NEVER, /* it was not made, and will not be */
    FATE_GONE,  /* the session is gone: it will not be made any more, but may have been */
};

static int session_strange(const struct plx_rqlite *rq, struct plx_fault *fault)
{
    return plx_fault_set(fault, PLX_ERR_REGISTRY,
                         "the registry's session %lld is not what this process has made of it",
                         (long long)rq->client);
}

/* What the session's row says, which the first statement read. A seal has the number behind that of
 * its change, so a seal that arrives twice does not take itself for the change. */
static int fate_of(const struct plx_rqlite *rq, const struct plx_answer *answer,
                   enum fate *ret_fate, struct plx_fault *fault)
{
    int64_t there;

    if (!plx_answer_rows(answer, 0)) {
        *ret_fate = FATE_GONE;
        return 0;
    }
    if (!plx_answer_number(answer, 0, &there) || there > rq->number + 1)
        return session_strange(rq, fault);
    *ret_fate = there == rq->number ? FATE_MADE : FATE_NEVER;
    return 0;
}

/* RQLITE-3: from here on the change with the present number can not be made any more, unless it was
 * made before. */
static int seal(struct plx_rqlite *rq, enum fate *ret_fate, struct plx_fault *fault)
{
    static const char use_up[] = "UPDATE requests SET number = ?2 + 1 WHERE client = ?1"
                                 " AND number < ?2";
    const struct plx_sql_value args[] = {SQL_INT(rq->client), SQL_INT(rq->number)};
    struct plx_sending sending = {0};
    struct plx_answer answer;
    int code;

    plx_sending_own(&sending, session_number, args, 1);
    plx_sending_own(&sending, use_up, args, 2);
    code = plx_rqlite_ask(rq, CHANGE, &sending, &answer, fault);
    plx_sending_done(&sending);
    if (code)
        return code;
    code = answer.error ? plx_answer_fault(answer.error, fault)
                        : fate_of(rq, &answer, ret_fate, fault);
    plx_answer_done(&answer);
    if (code)
        return PLX_ERR_REGISTRY;
    rq->doubt = false;
    if (*ret_fate == FATE_GONE)
        rq->client = 0;
    return 0;
}

/* ---- Changes ----------------------------------------------------------------------------- */

static int made_unseen(struct plx_fault *fault)
{
    return plx_fault_set(fault, PLX_ERR_REGISTRY,
                         "the registry has made a change, but its answer was lost, and somebody "
                         "has changed the same since; look again");
}

/* RQLITE-4 */
static int ask_again(struct plx_rqlite *rq, const struct plx_sql *batch, size_t count,
                     const struct plx_rows *rows, struct plx_fault *fault)
{
    struct plx_sending sending = {0};
    struct plx_answer answer;
    int code = 0;

    for (size_t i = 0; i < count; i++)
        plx_sending_ask(&sending, &batch[i], i);
    if (!sending.count && !sending.code) {
        plx_sending_done(&sending);
        return 0;
    }
    code = plx_rqlite_ask(rq, READ, &sending, &answer, fault);
    if (!code) {
        if (answer.error) {
            plx_answer_fault(answer.error, fault);
            code = PLX_ERR_REGISTRY;
        }
        for (size_t i = 0; i < answer.count && !code; i++)
            if (batch[sending.sent[i].statement].must && !plx_answer_rows(&answer, i))
                code = made_unseen(fault);
        for (size_t i = 0; i < answer.count && !code; i++)
            plx_answer_hand_up(&answer, i, rows);
        plx_answer_done(&answer);
    }
    plx_sending_done(&sending);
    return code;
}

/* The index of the first statement of the batch, and of the guard behind the session's number. */
#define SESSION_GUARD 2u

static void prepare(const struct plx_rqlite *rq, const struct plx_sql *batch, size_t count,
                    struct plx_sending *sending)
{
    static const char enter[] =
        "UPDATE requests SET number = ?2, seen_ns = ?3 WHERE client = ?1 AND number < ?2";
    const struct plx_sql_value args[] = {SQL_INT(rq->client), SQL_INT(rq->number),
                                         SQL_INT(plx_sql_now())};

    plx_sending_own(sending, session_number, args, 1);
    plx_sending_own(sending, enter, args, 3);
    plx_sending_guard(sending, 0);
    for (size_t i = 0; i < count; i++)
        plx_sending_add(sending, &batch[i], i);
    plx_sending_own(sending, "DELETE FROM guard", NULL, 0); /* RQLITE-6 */
}

/* What an answer says of a change. */
enum verdict {
    VERDICT_MADE,
    VERDICT_REFUSED,
    VERDICT_OLD,  /* its number was there already, or its session is gone */
    VERDICT_PART, /* a part of it was left out (RQLITE-6) */
};

/* *ret_code: of a refusal, what run() returns. */
static enum verdict judge(const struct plx_sending *sending, const struct plx_answer *answer,
                          int *ret_code, struct plx_fault *fault)
{
    size_t last = answer->count - 1;
    bool guarded = answer->bad == last && sending->sent[last].guard &&
                   plx_answer_fault(answer->error, fault) == PLX_ERR_INVALID; /* its CHECK */

    if (!answer->error)
        return VERDICT_MADE;
    if (answer->count == sending->count) {
        *ret_code = plx_fault_set(fault, PLX_ERR_REGISTRY,
                                  "the registry is damaged, and a change was made in part");
        return VERDICT_PART;
    }
    if (guarded && last == SESSION_GUARD)
        return VERDICT_OLD;
    if (guarded) /* RQLITE-5 */
        *ret_code = (int)sending->sent[last].statement + 1;
    else
        *ret_code = plx_answer_fault(answer->error, fault);
    return VERDICT_REFUSED;
}

static void hand_up(const struct plx_sending *sending, const struct plx_answer *answer,
                    const struct plx_rows *rows)
{
    for (size_t i = 0; i < answer->count; i++)
        if (sending->sent[i].rows)
            plx_answer_hand_up(answer, i, rows);
}

static int not_known(struct plx_fault *fault)
{
    return plx_fault_set(fault, PLX_ERR_REGISTRY,
                         "the registry's answers were lost, and whether it has made a change is "
                         "not known; look again");
}

/* RQLITE-3: a refusal of which an earlier attempt may know nothing. Returns 0 if that one has made
 * the change. */
static int confirm(struct plx_rqlite *rq, int refusal, struct plx_fault *fault)
{
    enum fate fate = FATE_NEVER;

    if (!rq->lost) {
        rq->doubt = false;
        return refusal;
    }
    if (seal(rq, &fate, NULL) || fate == FATE_GONE)
        return not_known(fault);
    return fate == FATE_MADE ? 0 : refusal;
}

/* The session's guard has refused a change: an earlier attempt has made it, or the session is gone.
 * *ret_over: nothing was made, and a new session will do. */
static int look_back(struct plx_rqlite *rq, const struct plx_answer *answer, bool *ret_over,
                     struct plx_fault *fault)
{
    enum fate fate;
    int code = fate_of(rq, answer, &fate, fault);

    if (code)
        return code;
    if (fate == FATE_NEVER) /* nothing that this program sends leads here */
        return session_strange(rq, fault);
    rq->doubt = false;
    if (fate == FATE_MADE)
        return 0;
    rq->client = 0;
    *ret_over = !rq->lost;
    return *ret_over ? 0 : not_known(fault);
}

/* Sends a change until it is known what became of it. *ret_over: it must be sent in a new session.
 */
static int send_change(struct plx_rqlite *rq, const struct plx_sql *batch, size_t count,
                       const struct plx_rows *rows, bool *ret_over, struct plx_fault *fault)
{
    struct plx_sending sending = {0};
    struct plx_answer answer;
    enum verdict verdict;
    int code;

    rq->number += 2; /* the one between is a seal's */
    prepare(rq, batch, count, &sending);
    rq->lost = false;
    rq->doubt = !sending.code;
    code = plx_rqlite_ask(rq, CHANGE, &sending, &answer, fault);
    if (code) {
        plx_sending_done(&sending);
        return code;
    }
    verdict = judge(&sending, &answer, &code, fault);
    if (verdict == VERDICT_OLD) {
        code = look_back(rq, &answer, ret_over, fault);
    } else if (verdict == VERDICT_REFUSED) {
        code = confirm(rq, code, fault);
    } else if (verdict == VERDICT_MADE) {
        rq->doubt = false;
        hand_up(&sending, &answer, rows);
    }
    plx_answer_done(&answer);
    plx_sending_done(&sending);
    if (code || *ret_over || verdict == VERDICT_MADE)
        return code;
    return ask_again(rq, batch, count, rows, fault); /* an earlier attempt has made it */
}

static int change_rows(struct plx_rqlite *rq, const struct plx_sql *batch, size_t count,
                       const struct plx_rows *rows, struct plx_fault *fault)
{
    bool over;
    int code;

    do {
        over = false;
        code = rq->client ? 0 : begin_session(rq, fault);
        if (!code)
            code = send_change(rq, batch, count, rows, &over, fault);
    } while (over && monotonic_ms() < rq->until_ms);
    return over ? not_known(fault) : code;
}

/* ---- The driver's calls ------------------------------------------------------------------ */

/* Begins a call. RQLITE-3: the last change may still be on its way. */
int plx_rqlite_begin(struct plx_rqlite *rq, struct plx_fault *fault)
{
    enum fate fate;

    rq->until_ms = monotonic_ms() + rq->call_ms;
    return rq->doubt ? seal(rq, &fate, fault) : 0;
}

static int run(void *driver, bool change, const struct plx_sql *batch, size_t count,
               void (*row)(void *, const struct plx_sql_value *, size_t), void *context,
               struct plx_fault *ret_fault)
{
    struct plx_rqlite *rq = driver;
    const struct plx_rows rows = {row, context};
    struct plx_answer answer;
    int code = plx_rqlite_begin(rq, ret_fault);

    PLX_ASSERT(change || count == 1);
    if (code)
        return code;
    if (change)
        return change_rows(rq, batch, count, &rows, ret_fault);
    code = plx_rqlite_query(rq, batch, count, &answer, ret_fault);
    if (code)
        return code;
    plx_answer_hand_up(&answer, 0, &rows);
    plx_answer_done(&answer);
    return 0;
}

static int check_whole(void *driver, struct plx_fault *fault)
{
    static const struct plx_sql check = {.text = "PRAGMA integrity_check(1)"};
    struct plx_rqlite *rq = driver;
    struct plx_answer answer;
    const char *text;
    char plain[120];
    int code = plx_rqlite_begin(rq, fault);

    if (!code)
        code = plx_rqlite_query(rq, &check, 1, &answer, fault);
    if (code)
        return code;
    text = plx_answer_text(&answer, 0, 0);
    if (!text || strcmp(text, "ok") != 0) {
        plx_answer_plain(text ? text : "no answer", plain, sizeof plain);
        code = plx_fault_set(fault, PLX_ERR_REGISTRY, "the registry is damaged: %s", plain);
    }
    plx_answer_done(&answer);
    return code;
}

static int not_as_a_file(void *driver, const char *file, struct plx_fault *fault)
{
    return plx_fault_set(fault, PLX_ERR_UNSUPPORTED,
                         "this registry is a cluster's: rqlite's own backup copies it");
}

static int room(void *driver, uint64_t *ret_used, uint64_t *ret_pages, struct plx_fault *fault)
{
    static const struct plx_sql used = {.text =
                                            "SELECT page_count - freelist_count"
                                            " FROM pragma_page_count(), pragma_freelist_count()"};
    struct plx_rqlite *rq = driver;
    struct plx_answer answer;
    int64_t number = 0;
    int code = plx_rqlite_begin(rq, fault);

    if (!code)
        code = plx_rqlite_query(rq, &used, 1, &answer, fault);
    if (code)
        return code;
    if (!plx_answer_number(&answer, 0, &number) || number < 0)
        code = plx_fault_set(fault, PLX_ERR_REGISTRY, "the registry does not say how large it is");
    plx_answer_done(&answer);
    if (code)
        return code;
    *ret_used = (uint64_t)number;
    *ret_pages = 0;
    return 0;
}

/* No process has the database in the store open: it counts for nothing (CLUSTERED-1). */
static int alone(void *driver, int (*work)(void *context, struct plx_fault *fault), void *context,
                 struct plx_fault *fault)
{
    return work(context, fault);
}

/* RQLITE-14 */
static void pin(void *driver, const char *uuid, uint64_t line)
{
    struct plx_rqlite *rq = driver;

    snprintf(rq->cluster, sizeof rq->cluster, "%s %llu", uuid, (unsigned long long)line);
    rq->sure = false;
}

static void close_registry(void *driver)
{
    struct plx_rqlite *rq = driver;

    if (rq->client)
        end_session(rq);
    plx_nodes_close(&rq->nodes);
    free(rq);
}

const struct plx_registry_ops plx_rqlite_ops = {.run = run,
                                                .check = check_whole,
                                                .put = not_as_a_file,
                                                .get = not_as_a_file,
                                                .room = room,
                                                .alone = alone,
                                                .pin = pin,
                                                .close = close_registry};
