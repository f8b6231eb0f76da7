/* cmd_bisect.c - parallax bisect: finds the first bad instant by asking a command.
 *
 * The command gets each instant as an image in a file and answers by its exit status. Each image is
 * made from the one before, by writing what differs between the two instants.
 *
 * CMD_BISECT-1  The two ends are asked first. If one of them has the wrong answer, no answer
 *     between them means anything.
 * CMD_BISECT-2  The command always gets the image as the snapshot holds it. An image that the
 *     command has changed, moved or removed is rebuilt.
 * CMD_BISECT-3  However bisect ends, it removes the file and its folder and ends the command.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd.h"
#include "output.h"
#include "transfer.h"

extern char **environ;

#define STATUS_SKIP 125
#define STATUS_ABORT 128

enum answer {
    GOOD,
    BAD,
    SKIPPED,
};

struct instant {
    uint64_t seq, time_ns;
    bool skipped;
};

struct image {
    char folder[PLX_PATH_MAX], path[PLX_PATH_MAX + 16];
    struct plx_output file;
    struct stat left;    /* as it was handed to the command */
    struct plx_vdi *vdi; /* whose content it has; NULL: none */
};

struct bisect {
    struct plx_cli *cli;
    struct plx_name name;
    struct instant *instants; /* from the good end to the bad one */
    size_t count, capacity, good, bad;
    bool no_memory;
    unsigned tests;
    struct image image;
};

/* ---- The image ---------------------------------------------------------------------------- */

static int image_error(struct bisect *bisect, const char *what)
{
    return plx_out_file_error(bisect->cli, bisect->image.path, what);
}

static int make_folder(struct bisect *bisect)
{
    struct image *image = &bisect->image;
    const char *where = getenv("TMPDIR");

    snprintf(image->folder, sizeof image->folder, "%s/parallax-XXXXXX",
             where && *where ? where : "/tmp");
    image->file = (struct plx_output){.cli = bisect->cli, .path = image->path, .fd = -1};
    if (!mkdtemp(image->folder)) {
        int rc = plx_out_file_error(bisect->cli, image->folder, "create");
        image->folder[0] = 0;
        return rc;
    }
    snprintf(image->path, sizeof image->path, "%s/image", image->folder);
    return 0;
}

static void forget_content(struct bisect *bisect)
{
    plx_session_instant_close(bisect->cli, bisect->image.vdi);
    bisect->image.vdi = NULL;
}

/* CMD_BISECT-3 */
static void remove_image(struct bisect *bisect)
{
    struct image *image = &bisect->image;

    forget_content(bisect);
    if (image->file.fd >= 0)
        close(image->file.fd);
    image->file.fd = -1;
    if (!image->folder[0])
        return;
    unlink(image->path);
    rmdir(image->folder);
}

static bool is_untouched(const struct image *image)
{
    struct stat st;

    return image->file.fd >= 0 && image->vdi && stat(image->path, &st) == 0 &&
           st.st_ino == image->left.st_ino && st.st_size == image->left.st_size &&
           st.st_mtim.tv_sec == image->left.st_mtim.tv_sec &&
           st.st_mtim.tv_nsec == image->left.st_mtim.tv_nsec;
}

static int begin_anew(struct bisect *bisect)
{
    struct image *image = &bisect->image;

    forget_content(bisect);
    if (image->file.fd >= 0)
        close(image->file.fd);
    unlink(image->path);
    image->file.fd = open(image->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0400);
    return image->file.fd < 0 ? image_error(bisect, "create") : 0;
}

static int write_zeroes(struct bisect *bisect, uint64_t offset, uint64_t length)
{
    static const uint8_t zeroes[65536];
    struct plx_output *file = &bisect->image.file;
    int rc = 0;

    if (fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                  (off_t)length) == 0)
        return 0;
    if (errno != EOPNOTSUPP)
        return image_error(bisect, "write");
    for (uint64_t at = 0; at < length && !rc; at += sizeof zeroes)
        rc = plx_output_write(file, zeroes, plx_min_u64(sizeof zeroes, length - at), offset + at);
    return rc;
}

static int write_run(void *context, uint64_t offset, const uint8_t *bytes, uint64_t length)
{
    struct bisect *bisect = context;

    return bytes ? plx_output_write(&bisect->image.file, bytes, length, offset)
                 : write_zeroes(bisect, offset, length);
}

static int give_chunk(void *context, uint64_t offset, const uint8_t *bytes, uint64_t length)
{
    return bytes ? plx_for_runs(offset, bytes, length, write_run, context)
                 : write_zeroes(context, offset, length);
}

/* What differs from the content that the file has. */
static int bring_to(struct bisect *bisect, struct plx_vdi *vdi)
{
    struct image *image = &bisect->image;
    struct plx_vdi_info info;
    struct plx_transfer transfer;
    int rc;

    plx_vdi_get_info(vdi, &info);
    if (ftruncate(image->file.fd, (off_t)info.size_bytes))
        return image_error(bisect, "set the size of");
    if ((rc = plx_transfer_init(&transfer, bisect->cli, vdi)))
        return rc;
    transfer.give = give_chunk;
    transfer.context = bisect;
    rc = plx_transfer_done(&transfer, plx_copy_diff(&transfer, image->vdi));
    /* Long ago: whatever is written from now on shows, however coarse the clock. */
    if (!rc && (futimens(image->file.fd, (struct timespec[]){{.tv_sec = 1}, {.tv_sec = 1}}) ||
                fstat(image->file.fd, &image->left)))
        rc = image_error(bisect, "read");
    return rc;
}

static int make_image(struct bisect *bisect, const struct plx_name *name)
{
    struct plx_vdi *vdi;
    int rc = is_untouched(&bisect->image) ? 0 : begin_anew(bisect); /* CMD_BISECT-2 */

    if (rc || (rc = plx_session_instant_open(bisect->cli, name, &vdi)))
        return rc;
    rc = bring_to(bisect, vdi);
    forget_content(bisect);
    bisect->image.vdi = vdi;
    return rc;
}

/* ---- The command -------------------------------------------------------------------------- */

/* Its standard output is our standard error: ours holds the result alone. */
static int start(struct bisect *bisect, pid_t *ret_pid)
{
    const struct plx_cli *cli = bisect->cli;
    char **words = calloc(cli->rest_count + 2, sizeof *words);
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t defaults;
    int error;

    if (!words)
        return plx_cli_fail(bisect->cli, PLX_ERR_NOMEM, "out of memory");
    memcpy(words, cli->rest, cli->rest_count * sizeof *words);
    words[cli->rest_count] = bisect->image.path;
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    sigaddset(&defaults, SIGXFSZ);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
    error = posix_spawnp(ret_pid, words[0], &files, &attributes, words, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    free(words);
    errno = error; /* for the message */
    return error ? plx_out_file_error(bisect->cli, cli->rest[0], "run") : 0;
}

static int wait_for(struct bisect *bisect, pid_t pid, int *ret_status)
{
    bool told = false;

    do {
        if (plx_interrupted && !told)
            told = kill(pid, SIGTERM) == 0; /* CMD_BISECT-3 */
        errno = 0;
    } while (waitpid(pid, ret_status, 0) < 0 && errno == EINTR);
    if (errno)
        return plx_out_file_error(bisect->cli, bisect->cli->rest[0], "wait for");
    return plx_interrupted ? plx_cli_fail(bisect->cli, PLX_ERR_SYSTEM, "interrupted") : 0;
}

static int take_answer(struct bisect *bisect, const char *instant, int status,
                       enum answer *ret_answer)
{
    static const char *const words[] = {"good", "bad", "skipped"};

    if (WIFSIGNALED(status))
        return plx_cli_fail(bisect->cli, PLX_ERR_SYSTEM,
                            "%.60s ended by signal %d at %.100s; that is no answer",
                            bisect->cli->rest[0], WTERMSIG(status), instant);
    if (WEXITSTATUS(status) >= STATUS_ABORT)
        return plx_cli_fail(bisect->cli, PLX_ERR_SYSTEM,
                            "%.60s ended with status %d at %.100s; 0 says good, 1 to 127 bad, 125 "
                            "cannot tell",
                            bisect->cli->rest[0], WEXITSTATUS(status), instant);
    *ret_answer = WEXITSTATUS(status) == STATUS_SKIP ? SKIPPED : WEXITSTATUS(status) ? BAD : GOOD;
    plx_out_note(bisect->cli, "%s: %s", instant, words[*ret_answer]);
    return 0;
}

static int ask(struct bisect *bisect, size_t i, enum answer *ret_answer)
{
    struct plx_name name = bisect->name;
    char text[sizeof name];
    int status, rc;
    pid_t pid;

    snprintf(name.snapshot, sizeof name.snapshot, "%" PRIu64, bisect->instants[i].seq);
    snprintf(text, sizeof text, "%s/%s@%s", name.store, name.vdi, name.snapshot);
    rc = make_image(bisect, &name);
    if (rc == PLX_ERR_NOT_FOUND) { /* the others do not wait for it to be read */
        plx_out_note(bisect->cli, "%s: skipped, it was deleted meanwhile", text);
        *ret_answer = SKIPPED;
        return 0;
    }
    if (rc)
        return rc;
    if (setenv("PARALLAX_IMAGE", bisect->image.path, 1) || setenv("PARALLAX_INSTANT", text, 1))
        return plx_cli_fail(bisect->cli, PLX_ERR_NOMEM, "out of memory");
    bisect->tests++;
    if ((rc = start(bisect, &pid)) || (rc = wait_for(bisect, pid, &status)))
        return rc;
    return take_answer(bisect, text, status, ret_answer);
}

/* ---- The search --------------------------------------------------------------------------- */

static bool add_instant(void *context, const struct plx_snapshot_info *info)
{
    struct bisect *bisect = context;
    uint64_t last = bisect->bad;

    if (info->seq > last)
        return false;
    if (bisect->count == bisect->capacity) {
        size_t capacity = bisect->capacity ? 2 * bisect->capacity : 256;
        struct instant *bigger = reallocarray(bisect->instants, capacity, sizeof *bigger);

        bisect->no_memory = !bigger;
        if (!bigger)
            return false;
        bisect->instants = bigger;
        bisect->capacity = capacity;
    }
    bisect->instants[bisect->count++] =
        (struct instant){.seq = info->seq, .time_ns = info->time_ns};
    return !plx_session_stopped();
}

static int resolve_end(struct bisect *bisect, const char *option, uint64_t *ret_seq)
{
    struct plx_name name = bisect->name;
    struct plx_snapshot_info info;
    int rc;

    if ((rc = plx_cli_snapshot(bisect->cli, option, &name)) ||
        (rc = plx_session_snapshot_resolve(bisect->cli, &name, &info)))
        return rc;
    plx_session_tell_chosen(bisect->cli, &name, &info);
    *ret_seq = info.seq;
    return 0;
}

static int list_instants(struct bisect *bisect)
{
    struct plx_cli *cli = bisect->cli;
    struct plx_registry_vdi row;
    uint64_t good, bad;
    int rc;

    if ((rc = resolve_end(bisect, "good", &good)) || (rc = resolve_end(bisect, "bad", &bad)) ||
        (rc = plx_session_vdi_row(cli, &bisect->name, &row)))
        return rc;
    if (good >= bad)
        return plx_cli_usage(cli,
                             "--good is snapshot %" PRIu64 ", --bad %" PRIu64
                             ": the good one must be the older one",
                             good, bad);
    bisect->bad = bad;
    rc =
        plx_snapshot_list(plx_session_store(cli), row.slot, good, add_instant, bisect, &cli->fault);
    if (!rc && (bisect->no_memory || plx_interrupted))
        rc = bisect->no_memory ? plx_cli_fail(cli, PLX_ERR_NOMEM, "out of memory")
                               : plx_cli_fail(cli, PLX_ERR_SYSTEM, "interrupted");
    bisect->good = 0;
    bisect->bad = bisect->count - 1;
    return rc;
}

/* CMD_BISECT-1 */
static int check_end(struct bisect *bisect, size_t i, enum answer expected)
{
    enum answer answer;
    int rc = ask(bisect, i, &answer);

    if (!rc && answer != expected)
        rc = plx_cli_fail(bisect->cli, PLX_ERR_INVALID,
                          "%s/%.80s@%" PRIu64 ", given as --%s, %s by the command; "
                          "choose another instant, or try the command on an export of it",
                          bisect->name.store, bisect->name.vdi, bisect->instants[i].seq,
                          expected == GOOD ? "good" : "bad",
                          answer == SKIPPED ? "is skipped"
                          : answer == GOOD  ? "is called good"
                                            : "is called bad");
    return rc;
}

/* The instant nearest to the middle that was not skipped; false: none is left. */
static bool choose(const struct bisect *bisect, size_t *ret_i)
{
    size_t middle = bisect->good + (bisect->bad - bisect->good) / 2, best = SIZE_MAX;

    for (size_t i = bisect->good + 1; i < bisect->bad; i++) {
        size_t distance = i > middle ? i - middle : middle - i;

        if (!bisect->instants[i].skipped && distance < best) {
            best = distance;
            *ret_i = i;
        }
    }
    return best != SIZE_MAX;
}

static int search(struct bisect *bisect)
{
    enum answer answer;
    size_t i;
    int rc;

    if ((rc = check_end(bisect, bisect->good, GOOD)) || (rc = check_end(bisect, bisect->bad, BAD)))
        return rc;
    while (choose(bisect, &i)) {
        size_t left = bisect->bad - bisect->good - 1;

        plx_out_note(bisect->cli, "%zu snapshot%s left", left, plx_plural(left));
        if ((rc = ask(bisect, i, &answer)))
            return rc;
        bisect->instants[i].skipped = answer == SKIPPED;
        if (answer == GOOD)
            bisect->good = i;
        else if (answer == BAD)
            bisect->bad = i;
    }
    return 0;
}

static void set_instant(const struct bisect *bisect, json_t *object, const char *key, size_t i)
{
    char words[32];

    json_object_set_new(object, key,
                        json_sprintf("%s/%s@%" PRIu64, bisect->name.store, bisect->name.vdi,
                                     bisect->instants[i].seq));
    snprintf(words, sizeof words, "%s_seq", key);
    json_object_set_new(object, words, json_integer((json_int_t)bisect->instants[i].seq));
    snprintf(words, sizeof words, "%s_time", key);
    plx_out_set_time(object, words, bisect->instants[i].time_ns);
}

static void print_result(const struct bisect *bisect)
{
    static const struct plx_column columns[] = {
        {"last_good", "Last good", PLX_COLUMN_TEXT},
        {"last_good_time", "Taken", PLX_COLUMN_TEXT},
        {"first_bad", "First bad", PLX_COLUMN_TEXT},
        {"first_bad_time", "Taken", PLX_COLUMN_TEXT},
        {"skipped", "Skipped between", PLX_COLUMN_NUMBER},
        {"tests", "Tests", PLX_COLUMN_NUMBER},
        {NULL, NULL, 0},
    };
    json_t *object = json_pack("{s:I,s:I}", "skipped", (json_int_t)(bisect->bad - bisect->good - 1),
                               "tests", (json_int_t)bisect->tests);

    set_instant(bisect, object, "last_good", bisect->good);
    set_instant(bisect, object, "first_bad", bisect->bad);
    plx_out_object(bisect->cli, columns, object);
}

int plx_cmd_bisect(struct plx_cli *cli)
{
    struct bisect bisect = {.cli = cli};
    int rc;

    if (!plx_cli_get(cli, "good") || !plx_cli_get(cli, "bad"))
        return plx_cli_usage(cli, "give both ends, --good and --bad");
    if ((rc = plx_cli_name(cli, 0, PLX_NAME_VDI, &bisect.name)) ||
        (rc = plx_session_open(cli, bisect.name.store, PLX_SESSION_READ)))
        return rc;
    if (!(rc = list_instants(&bisect)) && !(rc = make_folder(&bisect)))
        rc = search(&bisect);
    remove_image(&bisect);
    if (!rc)
        print_result(&bisect);
    free(bisect.instants);
    return rc;
}
