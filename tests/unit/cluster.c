/* cluster.c - see cluster.h. */
#include "cluster.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "folder.h"
#include "suite.h"

#define READY_TRIES 600 /* of a tenth of a second: a busy machine elects slowly */

static const char *rqlited(void)
{
    const char *given = getenv("PLX_RQLITED");

    return given ? given : "/var/cache/parallax/rqlite/bin/rqlited";
}

unsigned cluster_wanted(void)
{
    const char *nodes = getenv("PLX_REGISTRY_NODES");
    unsigned count = nodes ? (unsigned)atoi(nodes) : 0;

    return count > CLUSTER_NODES ? CLUSTER_NODES : count;
}

bool cluster_is_possible(void)
{
    if (access(rqlited(), X_OK) == 0)
        return true;
    PART_SKIPPED("the registry on rqlite nodes: there is no %s (tests/install-deps builds it, and "
                 "says why if it cannot)",
                 rqlited());
    return false;
}

unsigned cluster_port(void)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof name;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (bind(fd, (struct sockaddr *)&name, size) ||
        getsockname(fd, (struct sockaddr *)&name, &size))
        name.sin_port = 0;
    close(fd);
    return ntohs(name.sin_port);
}

/* ---- HTTP -------------------------------------------------------------------------------- */

static size_t take(char *bytes, size_t one, size_t count, void *context)
{
    json_t *text = context, *more = json_stringn_nocheck(bytes, count);

    json_array_append_new(text, more);
    return count;
}

static void ask_guarded(CURL *curl, const struct cluster *cluster)
{
    curl_easy_setopt(curl, CURLOPT_CAINFO, cluster->ca);
    curl_easy_setopt(curl, CURLOPT_SSLCERT, cluster->certificate);
    curl_easy_setopt(curl, CURLOPT_SSLKEY, cluster->key);
    if (!cluster->guard.user)
        return;
    curl_easy_setopt(curl, CURLOPT_USERNAME, cluster->guard.user);
    curl_easy_setopt(curl, CURLOPT_PASSWORD, cluster->guard.password);
}

/* Returns the status and the answer as JSON, if it is that; body NULL: GET. */
static long ask(const struct cluster *cluster, unsigned node, const char *path, const char *body,
                json_t **ret_answer)
{
    char url[200], *all = calloc(1, 1 << 20);
    struct curl_slist *type = curl_slist_append(NULL, "Content-Type: application/json");
    json_t *pieces = json_array();
    CURL *curl = curl_easy_init();
    long status = 0;
    size_t at = 0;

    snprintf(url, sizeof url, "%s%s", cluster->address[node], path);
    if (cluster->guard.folder)
        ask_guarded(curl, cluster);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, 5000L);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, pieces);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, type);
    if (body)
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    if (curl_easy_perform(curl) == CURLE_OK)
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    for (size_t i = 0; i < json_array_size(pieces); i++)
        at += (size_t)snprintf(all + at, (1 << 20) - at, "%s",
                               json_string_value(json_array_get(pieces, i)));
    *ret_answer = json_loads(all, 0, NULL);
    free(all);
    json_decref(pieces);
    curl_easy_cleanup(curl);
    curl_slist_free_all(type);
    return status;
}

static json_t *first_result(const struct cluster *cluster, const char *path, const char *sql)
{
    json_t *statements = json_pack("[s]", sql), *answer, *result;
    char *body = json_dumps(statements, 0);

    ask(cluster, 0, path, body, &answer);
    result = json_incref(json_array_get(json_object_get(answer, "results"), 0));
    json_decref(answer);
    json_decref(statements);
    free(body);
    return result;
}

bool cluster_sql(const struct cluster *cluster, const char *sql)
{
    json_t *result = first_result(cluster, "/db/execute?noparse", sql);
    bool done = result && !json_object_get(result, "error");

    json_decref(result);
    return done;
}

int cluster_leader(const struct cluster *cluster)
{
    json_t *nodes, *node;
    const char *name;
    int leader = -1;

    for (unsigned i = 0; i < cluster->count && leader < 0; i++) {
        if (!cluster->pid[i] || ask(cluster, i, "/nodes?timeout=1s", NULL, &nodes) != 200)
            continue;
        json_object_foreach(nodes, name, node) if (json_is_true(json_object_get(node, "leader")))
            leader = atoi(name + 1);
        json_decref(nodes);
    }
    return leader;
}

bool cluster_wipe(const struct cluster *cluster)
{
    for (unsigned round = 0; round < 10; round++) { /* what is referred to goes last */
        json_t *tables = first_result(cluster, "/db/query?level=strong",
                                      "SELECT name FROM sqlite_schema WHERE type IN ('table', "
                                      "'view') AND name NOT LIKE 'sqlite%'");
        const json_t *rows = json_object_get(tables, "values");
        size_t count = json_array_size(rows);
        bool known = tables && !json_object_get(tables, "error");
        char drop[200];

        for (size_t i = 0; i < count; i++) {
            snprintf(drop, sizeof drop, "DROP TABLE %s",
                     json_string_value(json_array_get(json_array_get(rows, i), 0)));
            if (!cluster_sql(cluster, drop)) {
                memcpy(drop, "DROP VIEW ", 10);
                memmove(drop + 10, drop + 11, strlen(drop + 11) + 1);
                cluster_sql(cluster, drop);
            }
        }
        json_decref(tables);
        if (known && !count)
            return true;
    }
    return false;
}

/* ---- Nodes ------------------------------------------------------------------------------- */

struct arguments {
    const char *list[24];
    unsigned count;
};

static void add(struct arguments *to, const char *first, const char *second)
{
    to->list[to->count++] = first;
    if (second)
        to->list[to->count++] = second;
}

struct guard_files {
    char certificate[100], key[100], users[100];
};

static void add_guard(struct arguments *to, const struct cluster *cluster,
                      struct guard_files *files)
{
    const struct cluster_guard *guard = &cluster->guard;

    snprintf(files->certificate, sizeof files->certificate, "%s/node.pem", guard->folder);
    snprintf(files->key, sizeof files->key, "%s/node.key", guard->folder);
    snprintf(files->users, sizeof files->users, "%s/users.json", guard->folder);
    add(to, "-http-cert", files->certificate);
    add(to, "-http-key", files->key);
    add(to, "-http-ca-cert", cluster->ca);
    if (guard->clients)
        add(to, "-http-verify-client", NULL);
    if (guard->user)
        add(to, "-auth", files->users);
}

static void run_node(const struct cluster *cluster, unsigned node)
{
    char id[8], http[40], raft[40], join[40], data[80], log[80];
    struct guard_files files;
    struct arguments all = {0};
    int fd;

    snprintf(id, sizeof id, "n%u", node);
    snprintf(http, sizeof http, "127.0.0.1:%u", cluster->http[node]);
    snprintf(raft, sizeof raft, "127.0.0.1:%u", cluster->raft[node]);
    snprintf(join, sizeof join, "127.0.0.1:%u", cluster->raft[0]);
    snprintf(data, sizeof data, "%s/%s", cluster->folder, id);
    snprintf(log, sizeof log, "%s/%s.log", cluster->folder, id);
    fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    dup2(fd, 1);
    dup2(fd, 2);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* no node outlives its test */
    add(&all, "rqlited", cluster->references ? "-fk" : "-fk=false");
    add(&all, "-node-id", id);
    add(&all, "-http-addr", http);
    add(&all, "-raft-addr", raft);
    if (node)
        add(&all, "-join", join);
    if (cluster->guard.folder)
        add_guard(&all, cluster, &files);
    add(&all, data, NULL);
    execv(rqlited(), (char *const *)all.list);
    _exit(127);
}

bool cluster_start_node(struct cluster *cluster, unsigned node)
{
    pid_t child;

    fflush(NULL);
    child = fork();
    if (child == 0)
        run_node(cluster, node);
    cluster->pid[node] = child;
    for (unsigned i = 0; i < READY_TRIES; i++) {
        json_t *answer;
        long status = ask(cluster, node, "/readyz", NULL, &answer);

        json_decref(answer);
        if (status == 200)
            return true;
        usleep(100000);
    }
    printf("\n    node %u does not become ready; its log is in %s\n", node, cluster->folder);
    return false;
}

void cluster_kill(struct cluster *cluster, unsigned node)
{
    if (!cluster->pid[node])
        return;
    kill(cluster->pid[node], SIGKILL);
    waitpid(cluster->pid[node], NULL, 0);
    cluster->pid[node] = 0;
}

static bool start(struct cluster *cluster)
{
    bool started = true;

    if (!folder_make("rqlite", cluster->folder))
        return false;
    for (unsigned i = 0; i < cluster->count; i++) {
        cluster->http[i] = cluster_port();
        cluster->raft[i] = cluster_port();
        snprintf(cluster->address[i], sizeof cluster->address[i], "%s://127.0.0.1:%u",
                 cluster->guard.folder ? "https" : "http", cluster->http[i]);
        cluster->addresses[i] = cluster->address[i];
    }
    for (unsigned i = 0; i < cluster->count && started; i++)
        started = cluster_start_node(cluster, i);
    return started;
}

bool cluster_start(struct cluster *cluster, unsigned nodes, bool references)
{
    *cluster = (struct cluster){.count = nodes, .references = references};
    return start(cluster);
}

static bool put_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool put = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

    close(fd);
    return put;
}

static bool put_users(struct cluster *cluster)
{
    char path[100], text[300];

    snprintf(path, sizeof path, "%s/users.json", cluster->guard.folder);
    snprintf(text, sizeof text,
             "[{\"username\": \"%s\", \"password\": \"%s\", \"perms\": [\"all\"]}]\n",
             cluster->guard.user, cluster->guard.password);
    if (!put_file(path, text))
        return false;
    snprintf(cluster->password_file, sizeof cluster->password_file, "%s/password",
             cluster->guard.folder);
    snprintf(text, sizeof text, "%s\n", cluster->guard.password);
    return put_file(cluster->password_file, text);
}

bool cluster_start_guarded(struct cluster *cluster, const struct cluster_guard *guard)
{
    *cluster = (struct cluster){.count = 1, .references = true, .guard = *guard};
    snprintf(cluster->ca, sizeof cluster->ca, "%s/ca.pem", guard->folder);
    snprintf(cluster->certificate, sizeof cluster->certificate, "%s/host.pem", guard->folder);
    snprintf(cluster->key, sizeof cluster->key, "%s/host.key", guard->folder);
    return (!guard->user || put_users(cluster)) && start(cluster);
}

void cluster_stop(struct cluster *cluster)
{
    char command[100];

    for (unsigned i = 0; i < cluster->count; i++)
        cluster_kill(cluster, i);
    if (!cluster->folder[0])
        return;
    snprintf(command, sizeof command, "rm -rf '%s'", cluster->folder);
    if (system(command))
        printf("\n    %s stays behind\n", cluster->folder);
}

struct plx_registry_nodes cluster_access(const struct cluster *cluster)
{
    struct plx_registry_nodes access = {.addresses = cluster->addresses, .count = cluster->count};

    if (!cluster->guard.folder)
        return access;
    access.ca = cluster->ca;
    access.certificate = cluster->guard.clients ? cluster->certificate : NULL;
    access.key = cluster->guard.clients ? cluster->key : NULL;
    access.user = cluster->guard.user;
    access.password_file = cluster->guard.user ? cluster->password_file : NULL;
    return access;
}

int cluster_open(const struct cluster *cluster, const char *who, struct plx_registry **ret_reg,
                 struct plx_fault *fault)
{
    struct plx_registry_nodes access = cluster_access(cluster);

    return plx_registry_open_rqlite(&access, who, ret_reg, fault);
}
