/* kept.c - changes that are put off, to be made together with the next one.
 *
 * A commit costs four flushes. So the first change of an instance carries its registration, and its
 * last change carries the release of its locks.
 *
 * KEPT-1  A change that was put off runs before the next change and in the same transaction. So
 *     nobody ever sees the later change without the earlier one.
 * KEPT-2  A read by the same handle sees what was put off: that is made before the read. A change
 *     that was put off as unseen is the exception: reads do not see it.
 * KEPT-3  A refused change is dropped and takes no other change with it. When a transaction of
 *     several changes is refused, each is made in a transaction of its own, in order, and gets its
 *     own answer. After any other failure the changes wait. They are tried again with the next
 *     change, and, unless they are unseen, before the next read. Such a change may have been made
 *     after all. So a refusal in a later attempt is not reported: it may only mean that the first
 *     attempt succeeded.
 * Threads: as registry.c.
 * Crash story: a crash loses what was put off. So only what may be lost is put off: the
 *   registration of an instance that owns nothing yet, and releases, which a takeover from a dead
 *   instance makes up for.
 */
#include <stdlib.h>
#include <string.h>

#include "registry/sql.h"

void plx_registry_put_off(struct plx_registry *reg, enum plx_put_off how)
{
    reg->next = how;
}

/* One allocation holds the arguments, followed by their texts. */
static bool copy_statement(const struct plx_sql *from, struct plx_sql *ret_to)
{
    size_t bytes = from->count * sizeof *from->args, at = bytes;
    struct plx_sql_value *args;

    for (size_t i = 0; i < from->count; i++)
        if (from->args[i].kind == PLX_SQL_TEXT)
            bytes += strlen(from->args[i].text) + 1;
    args = malloc(bytes + 1);
    if (!args)
        return false;
    for (size_t i = 0; i < from->count; i++) {
        args[i] = from->args[i];
        if (args[i].kind == PLX_SQL_TEXT) {
            args[i].text = strcpy((char *)args + at, from->args[i].text);
            at += strlen(args[i].text) + 1;
        }
    }
    *ret_to = *from;
    ret_to->args = args;
    ret_to->quiet = true;
    return true;
}

static void drop(struct plx_sql_kept *kept, size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free((void *)(uintptr_t)kept->batch[first + i].args);
    kept->count -= count;
    memmove(kept->batch + first, kept->batch + first + count,
            (kept->count - first) * sizeof *kept->batch);
    if (kept->count)
        return;
    free(kept->batch);
    *kept = (struct plx_sql_kept){0};
}

void plx_sql_drop_kept(struct plx_registry *reg, size_t count)
{
    if (!count)
        return;
    reg->kept.tried -= plx_min_u64(reg->kept.tried, count);
    drop(&reg->kept, 0, count);
}

size_t plx_sql_next_kept(const struct plx_sql_kept *kept, size_t at)
{
    do
        at++;
    while (at < kept->count && kept->batch[at].joined);
    return at;
}

bool plx_sql_keep(struct plx_registry *reg, const struct plx_sql *batch, size_t count)
{
    struct plx_sql_kept *kept = &reg->kept;
    size_t before = kept->count;
    struct plx_sql *longer = realloc(kept->batch, (before + count) * sizeof *longer);

    if (!longer)
        return false;
    kept->batch = longer;
    for (size_t i = 0; i < count; i++) {
        if (!copy_statement(&batch[i], &longer[before + i])) {
            drop(kept, before, kept->count - before);
            return false;
        }
        longer[before + i].joined = i > 0;
        kept->count++;
    }
    kept->seen = kept->seen || reg->next == PLX_PUT_OFF;
    return true;
}

bool plx_registry_take_back(struct plx_registry *reg)
{
    if (!reg->kept.count || reg->kept.seen)
        return false;
    plx_sql_drop_kept(reg, reg->kept.count);
    return true;
}

bool plx_registry_is_behind(const struct plx_registry *reg)
{
    return reg->kept.tried > 0;
}
