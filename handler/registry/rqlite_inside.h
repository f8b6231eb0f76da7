/* rqlite_inside.h - what rqlite*.c share. The rules RQLITE-1 to RQLITE-14 are in rqlite.c. */
#ifndef PLX_RQLITE_INSIDE_H
#define PLX_RQLITE_INSIDE_H

#include <jansson.h>

#include "registry/libcurl.h"
#include "registry/sql.h"

/* RQLITE-1 */
#define CALL_MS 20000u
#define ATTEMPT_MS 4000u
#define CONNECT_MS 1000u
#define CONNECT_TLS_MS 2000u /* with the handshake */
#define PAUSE_MS 100u        /* between two rounds over all addresses */
/* RQLITE-8 */
#define ANSWER_BYTES ((size_t)32 << 20)
#define ROW_COLUMNS 16u
#define ADDRESSES 9u
#define ADDRESS_BYTES 256u
#define CLUSTER_TEXT 64u /* a cluster's id and line */

/* The nodes, as one of them is asked at a time (rqlite_http.c). */
struct plx_nodes {
    CURL *curl;
    struct curl_slist *headers;
    unsigned count, at; /* at: who is asked next */
    bool warm;          /* a connection may be open from an earlier attempt */
    bool tls;
    char address[ADDRESSES][ADDRESS_BYTES];
    char *ca, *certificate, *key, *user, *password_file; /* as in registry.h */
    char said[CURL_ERROR_SIZE];                          /* libcurl's words of the last failure */
};

/* What became of an attempt. */
enum plx_reply {
    PLX_REPLY,         /* an answer, of which the form is good */
    PLX_REPLY_NONE,    /* none, or one that the next attempt may have: no leader, for example */
    PLX_REPLY_STRANGE, /* not rqlite's, or no access: the same node will say the same */
};

/* rqlite_access.c. */
int plx_nodes_open(const struct plx_registry_nodes *from, struct plx_nodes *nodes,
                   struct plx_fault *fault);
void plx_nodes_close(struct plx_nodes *nodes);
/* Whether the files of certificates and key are there, and the key's is nobody else's. */
int plx_nodes_check_files(const struct plx_nodes *nodes, struct plx_fault *fault);
/* How a message names the node that is asked next. */
static inline const char *plx_nodes_name(const struct plx_nodes *nodes)
{
    return nodes->address[nodes->at];
}

/* rqlite_refusal.c: what a failure means, and the words for it. An attempt that libcurl says has
 * failed, and the status of an answer, whose body is a text for people unless it is 200. */
enum plx_reply plx_nodes_failed(const struct plx_nodes *nodes, CURLcode result,
                                struct plx_fault *fault);
enum plx_reply plx_nodes_judge(const struct plx_nodes *nodes, long status, const char *text,
                               struct plx_fault *fault);

/* rqlite_http.c. */
/* Sends body to the node that is asked next, and waits no longer than wait_ms. *ret_again: curl may
 * have sent it twice. The text is the caller's to free. Sets the fault unless it returns
 * PLX_REPLY. */
enum plx_reply plx_nodes_post(struct plx_nodes *nodes, const char *path, const char *body,
                              uint64_t wait_ms, char **ret_text, size_t *ret_size, bool *ret_again,
                              struct plx_fault *fault);

/* Statements on their way to a node (rqlite_batch.c). */
struct plx_sending {
    json_t *list;
    size_t count, room;
    struct plx_sent_as *sent; /* what each of them is */
    bool zero;                /* changes() is 0 before the next one */
    int code;                 /* NOMEM or INVALID: one could not be added */
};

struct plx_sent_as {
    bool guard;       /* it breaks the transaction when a `must` is not met */
    bool rows;        /* its rows are handed up */
    size_t statement; /* of the batch, from 0 */
};

/* Adds a statement of the driver's own. */
void plx_sending_own(struct plx_sending *sending, const char *text,
                     const struct plx_sql_value *args, size_t count);
/* Adds the n-th statement of a batch, with its guard. */
void plx_sending_add(struct plx_sending *sending, const struct plx_sql *sql, size_t n);
/* Adds the n-th statement of a batch if it is a SELECT whose rows are handed up. */
void plx_sending_ask(struct plx_sending *sending, const struct plx_sql *sql, size_t n);
/* Breaks the transaction unless the last statement has changed a row. */
void plx_sending_guard(struct plx_sending *sending, size_t n);
/* The text to post, the caller's to free; NULL: *fault says why there is none. */
char *plx_sending_text(const struct plx_sending *sending, struct plx_fault *fault);
void plx_sending_done(struct plx_sending *sending);

/* An answer whose form is good (rqlite_answer.c). */
struct plx_answer {
    json_t *root;
    json_t *results;   /* one for each statement that was run, at most as many as were sent */
    size_t count;      /* how many */
    size_t bad;        /* the first with an error, or count */
    const char *error; /* its text, or NULL */
};

/* Reads an answer to so many statements. */
enum plx_reply plx_answer_read(const char *text, size_t size, size_t sent, struct plx_answer *ret,
                               struct plx_fault *fault);
void plx_answer_done(struct plx_answer *answer);
/* The rows of a result, none if it has no rows. */
size_t plx_answer_rows(const struct plx_answer *answer, size_t result);
/* The number in the first column of a result's first row; false: there is none. */
bool plx_answer_number(const struct plx_answer *answer, size_t result, int64_t *ret_number);
/* The text in the first column of a result's row; NULL: there is none. */
const char *plx_answer_text(const struct plx_answer *answer, size_t result, size_t row);
/* Where rows go. */
struct plx_rows {
    void (*row)(void *context, const struct plx_sql_value *columns, size_t count);
    void *context;
};
/* Hands up the rows of a result. */
void plx_answer_hand_up(const struct plx_answer *answer, size_t result,
                        const struct plx_rows *rows);
/* Sets the fault for the text of an error of SQLite's, with the codes that sqlite.c gives it. */
int plx_answer_fault(const char *text, struct plx_fault *fault);
/* Copies a text from outside, without what would spoil a terminal or a log. */
void plx_answer_plain(const char *text, char *to, size_t size);

/* A handle's driver (rqlite.c). */
struct plx_rqlite {
    struct plx_nodes nodes;
    uint64_t call_ms;           /* how long a call may take */
    uint64_t until_ms;          /* when the present one ends, monotonic (RQLITE-1) */
    int64_t client, number;     /* the session, and its last change's number; client 0: none yet */
    bool doubt;                 /* the change with that number may still be made (RQLITE-3) */
    char cluster[CLUSTER_TEXT]; /* whose nodes are believed (RQLITE-14); empty: any */
    bool sure;                  /* the node that is asked next is one of them */
    bool lost;                  /* an attempt of the present request may have been made unseen */
};

extern const struct plx_registry_ops plx_rqlite_ops;
/* Asks until there is an answer to all statements, or to those up to an error. */
int plx_rqlite_ask(struct plx_rqlite *rq, const char *path, const struct plx_sending *sending,
                   struct plx_answer *ret_answer, struct plx_fault *fault);
/* Reads. An error of SQLite's is the call's. */
int plx_rqlite_query(struct plx_rqlite *rq, const struct plx_sql *queries, size_t count,
                     struct plx_answer *ret_answer, struct plx_fault *fault);
/* Begins a call's time. */
int plx_rqlite_begin(struct plx_rqlite *rq, struct plx_fault *fault);

#endif
