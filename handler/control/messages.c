/* messages.c - see messages.h.
 *
 * MESSAGES-1  A message is believed only if it has every field that its table requires, each of its
 *     kind. Otherwise an empty answer would be a success with zeroes, and a request in which
 *     "dry_run" was misspelt would be carried out.
 *
 * Threads: any; nothing here is changed. Crash story: none, no state.
 */
#include "control/messages.h"

#include <stdbool.h>
#include <stdint.h>

#include "attach/attach.h"
#include "engine/ring/ringed.h"

#define FIELD(type, member, name, ...)                                                             \
    {                                                                                              \
        .key = name, .offset = offsetof(type, member),                                             \
        .kind = _Generic(((type *)NULL)->member, uint64_t                                          \
                         : PLX_MESSAGE_NUMBER, unsigned                                            \
                         : PLX_MESSAGE_COUNT, bool                                                 \
                         : PLX_MESSAGE_FLAG),                                                      \
        __VA_ARGS__                                                                                \
    }
/* A field that messages of older programs lack; no table has one yet. */
#define LATER(type, member, name) FIELD(type, member, name, .later = true)

/* The number of a snapshot that there is. */
#define SEQ(type, member, name)                                                                    \
    {                                                                                              \
        .key = name, .offset = offsetof(type, member), .kind = PLX_MESSAGE_SEQ                     \
    }

/* clang-format off */
const struct plx_message_field plx_message_work[] = {
    FIELD(struct plx_attach_work, dry_run, "dry_run"),
    FIELD(struct plx_attach_work, memory, "memory"),
    FIELD(struct plx_attach_work, rate, "rate"),
    {0},
};

const struct plx_message_field plx_message_collected[] = {
    FIELD(struct plx_collected, found, "found"),
    FIELD(struct plx_collected, swept, "swept"),
    FIELD(struct plx_collected, looked, "looked"),
    FIELD(struct plx_collected, missed, "missed"),
    FIELD(struct plx_collected, elsewhere, "elsewhere"),
    FIELD(struct plx_collected, unreadable, "unreadable"),
    FIELD(struct plx_collected, metadata_bytes, "metadata_bytes"),
    FIELD(struct plx_collected, nanoseconds, "nanoseconds"),
    FIELD(struct plx_collected, slices, "slices"),
    FIELD(struct plx_collected, resumed, "resumed"),
    {0},
};

const struct plx_message_field plx_message_deduped[] = {
    FIELD(struct plx_attach_deduped, what.mapped, "mapped"),
    FIELD(struct plx_attach_deduped, what.common, "common"),
    FIELD(struct plx_attach_deduped, what.seen, "seen"),
    FIELD(struct plx_attach_deduped, what.unknown, "unknown"),
    FIELD(struct plx_attach_deduped, what.compared, "compared"),
    FIELD(struct plx_attach_deduped, what.unreadable, "unreadable"),
    FIELD(struct plx_attach_deduped, what.joined, "joined"),
    FIELD(struct plx_attach_deduped, what.made, "made"),
    FIELD(struct plx_attach_deduped, what.disks, "disks"),
    FIELD(struct plx_attach_deduped, what.slices, "slices"),
    FIELD(struct plx_attach_deduped, elsewhere, "elsewhere"),
    FIELD(struct plx_attach_deduped, nanoseconds, "nanoseconds"),
    {0},
};

const struct plx_message_field plx_message_thin[] = {
    FIELD(struct plx_thin, after, "after"),
    FIELD(struct plx_thin, upto, "upto"),
    FIELD(struct plx_thin, before_ns, "before_ns"),
    FIELD(struct plx_thin, every_ns, "every_ns"),
    FIELD(struct plx_thin, dry_run, "dry_run"),
    FIELD(struct plx_thin, rewinds_only, "rewinds_only"),
    {0},
};

const struct plx_message_field plx_message_thinned[] = {
    FIELD(struct plx_thinned, upto, "upto"),
    FIELD(struct plx_thinned, snapshots, "snapshots"),
    FIELD(struct plx_thinned, blocks, "blocks"),
    FIELD(struct plx_thinned, meta_blocks, "meta_blocks"),
    FIELD(struct plx_thinned, oldest, "oldest"),
    {0},
};

const struct plx_message_field plx_message_move[] = {
    FIELD(struct plx_move, upto, "offset"),
    FIELD(struct plx_move, windows, "windows"),
    FIELD(struct plx_move, blocks, "blocks"),
    FIELD(struct plx_move, dry_run, "dry_run"),
    {0},
};

const struct plx_message_field plx_message_moved[] = {
    FIELD(struct plx_move, upto, "upto"),
    FIELD(struct plx_move, mapped, "mapped"),
    FIELD(struct plx_move, shared, "shared"),
    FIELD(struct plx_move, moved, "moved"),
    FIELD(struct plx_move, runs_before, "runs_before"),
    FIELD(struct plx_move, runs_after, "runs_after"),
    {0},
};

const struct plx_message_field plx_message_ring[] = {
    FIELD(struct plx_ringed_info, on, "on"),
    FIELD(struct plx_ringed_info, automatic, "automatic"),
    FIELD(struct plx_ringed_info, turning, "turning"),
    FIELD(struct plx_ringed_info, records, "records"),
    FIELD(struct plx_ringed_info, bytes, "bytes"),
    FIELD(struct plx_ringed_info, waited_ns, "waited_ns"),
    FIELD(struct plx_ringed_info, memory, "memory"),
    FIELD(struct plx_ringed_info, drained_bytes, "drained_bytes"),
    FIELD(struct plx_ringed_info, full, "full"),
    {0},
};

const struct plx_message_field plx_message_snapshot[] = {
    SEQ(struct plx_snapshot_info, seq, "seq"),
    FIELD(struct plx_snapshot_info, time_ns, "time_ns"),
    {0},
};
/* clang-format on */

static json_t *encode_field(const struct plx_message_field *field, const void *member)
{
    switch (field->kind) {
    case PLX_MESSAGE_NUMBER:
    case PLX_MESSAGE_SEQ:
        return json_integer((json_int_t)plx_min_u64(*(const uint64_t *)member, INT64_MAX));
    case PLX_MESSAGE_COUNT:
        return json_integer(*(const unsigned *)member);
    default:
        return json_boolean(*(const bool *)member);
    }
}

json_t *plx_message_encode(const struct plx_message_field *fields, const void *from)
{
    json_t *message = json_object();

    for (; message && fields->key; fields++) {
        json_t *value = encode_field(fields, (const char *)from + fields->offset);

        if (json_object_set_new(message, fields->key, value)) {
            json_decref(message);
            return NULL;
        }
    }
    return message;
}

static bool is_valid(const struct plx_message_field *field, const json_t *value)
{
    return field->kind == PLX_MESSAGE_FLAG
               ? json_is_boolean(value)
               : json_is_integer(value) &&
                     json_integer_value(value) >= (field->kind == PLX_MESSAGE_SEQ);
}

static const char *wanted(const struct plx_message_field *field)
{
    return field->kind == PLX_MESSAGE_FLAG  ? "flag (true or false)"
           : field->kind == PLX_MESSAGE_SEQ ? "number of a snapshot"
                                            : "number from 0 on";
}

/* MESSAGES-1 */
static int check(const struct plx_message_field *fields, const json_t *message,
                 struct plx_fault *fault)
{
    for (; fields->key; fields++) {
        const json_t *value = json_object_get(message, fields->key);

        if (!value && !fields->later)
            return plx_fault_set(fault, PLX_ERR_INVALID, "\"%s\" is missing", fields->key);
        if (value && !is_valid(fields, value))
            return plx_fault_set(fault, PLX_ERR_INVALID, "\"%s\" is no %s", fields->key,
                                 wanted(fields));
    }
    return 0;
}

static void decode_field(const struct plx_message_field *field, const json_t *value, void *member)
{
    uint64_t number = (uint64_t)json_integer_value(value);

    switch (field->kind) {
    case PLX_MESSAGE_NUMBER:
    case PLX_MESSAGE_SEQ:
        *(uint64_t *)member = number;
        break;
    case PLX_MESSAGE_COUNT:
        *(unsigned *)member = (unsigned)plx_min_u64(number, UINT32_MAX);
        break;
    default:
        *(bool *)member = json_is_true(value);
    }
}

int plx_message_decode(const struct plx_message_field *fields, const json_t *message,
                       void *ret_struct, struct plx_fault *fault)
{
    int error = check(fields, message, fault);

    for (; !error && fields->key; fields++)
        decode_field(fields, json_object_get(message, fields->key),
                     (char *)ret_struct + fields->offset);
    return error;
}
