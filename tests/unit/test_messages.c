/* test_messages.c - what one side of the control socket encodes the other side decodes. */
#include <CUnit/CUnit.h>
#include <stdlib.h>
#include <string.h>

#include "attach/attach.h"
#include "control/messages.h"
#include "suite.h"

static const struct table {
    const struct plx_message_field *fields;
    size_t bytes;
} tables[] = {
    {plx_message_collected, sizeof(struct plx_collected)},
    {plx_message_deduped, sizeof(struct plx_attach_deduped)},
    {plx_message_thin, sizeof(struct plx_thin)},
    {plx_message_thinned, sizeof(struct plx_thinned)},
    {plx_message_move, sizeof(struct plx_move)},
    {plx_message_moved, sizeof(struct plx_move)},
    {plx_message_work, sizeof(struct plx_attach_work)},
    {plx_message_snapshot, sizeof(struct plx_snapshot_info)},
};

/* Another value for each member that the table names. */
static void fill(const struct table *table, void *ret_struct)
{
    unsigned number = 1000;

    memset(ret_struct, 0, table->bytes);
    for (const struct plx_message_field *f = table->fields; f->key; f++) {
        void *member = (char *)ret_struct + f->offset;

        CU_ASSERT(f->offset < table->bytes);
        number++;
        if (f->kind == PLX_MESSAGE_NUMBER)
            *(uint64_t *)member = (uint64_t)number << 40;
        else if (f->kind == PLX_MESSAGE_COUNT)
            *(unsigned *)member = number;
        else
            *(bool *)member = true;
    }
}

static void test_round_trip(void)
{
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        void *sent = malloc(tables[i].bytes), *received = calloc(1, tables[i].bytes);
        json_t *message;

        fill(&tables[i], sent);
        message = plx_message_encode(tables[i].fields, sent);
        CU_ASSERT_PTR_NOT_NULL_FATAL(message);
        CU_ASSERT_EQUAL(plx_message_decode(tables[i].fields, message, received, NULL), 0);
        CU_ASSERT_EQUAL(memcmp(sent, received, tables[i].bytes), 0);
        json_decref(message);
        free(sent);
        free(received);
    }
}

/* Without any one of its fields, or with something else in its place, a message is refused, and
 * nothing of it is believed (MESSAGES-1). */
static void test_lacking(void)
{
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        void *sent = malloc(tables[i].bytes), *received = calloc(1, tables[i].bytes);
        void *untouched = calloc(1, tables[i].bytes);
        json_t *message;

        fill(&tables[i], sent);
        message = plx_message_encode(tables[i].fields, sent);
        for (const struct plx_message_field *f = tables[i].fields; f->key; f++) {
            json_t *value = json_incref(json_object_get(message, f->key));
            struct plx_fault fault = {0};

            json_object_del(message, f->key);
            CU_ASSERT_EQUAL(plx_message_decode(tables[i].fields, message, received, &fault),
                            PLX_ERR_INVALID);
            CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, f->key));
            json_object_set_new(message, f->key, json_string("1"));
            CU_ASSERT_EQUAL(plx_message_decode(tables[i].fields, message, received, &fault),
                            PLX_ERR_INVALID);
            CU_ASSERT_EQUAL(memcmp(untouched, received, tables[i].bytes), 0);
            json_object_set_new(message, f->key, value);
        }
        CU_ASSERT_EQUAL(plx_message_decode(tables[i].fields, NULL, received, NULL),
                        PLX_ERR_INVALID);
        json_decref(message);
        free(sent);
        free(received);
        free(untouched);
    }
}

/* A field that older programs do not know is zero where it is missing. */
static void test_later(void)
{
    struct plx_move move = {.upto = 1, .windows = 1};
    const struct plx_message_field fields[] = {
        {"offset", offsetof(struct plx_move, upto), PLX_MESSAGE_NUMBER, false},
        {"windows", offsetof(struct plx_move, windows), PLX_MESSAGE_COUNT, true},
        {0},
    };
    json_t *message = json_pack("{s:i}", "offset", 4096);

    CU_ASSERT_EQUAL(plx_message_decode(fields, message, &move, NULL), 0);
    CU_ASSERT_EQUAL(move.upto, 4096);
    CU_ASSERT_EQUAL(move.windows, 0);
    json_object_set_new(message, "windows", json_integer(-1));
    CU_ASSERT_EQUAL(plx_message_decode(fields, message, &move, NULL), PLX_ERR_INVALID);
    json_decref(message);
}

/* What is too large is as much as there can be; what is unknown is ignored. */
static void test_large(void)
{
    struct plx_collected collected = {.found = UINT64_MAX};
    json_t *message = plx_message_encode(plx_message_collected, &collected);

    CU_ASSERT_EQUAL(json_integer_value(json_object_get(message, "found")), INT64_MAX);
    json_object_set_new(message, "slices", json_integer(INT64_MAX));
    json_object_set_new(message, "unheard of", json_true());
    CU_ASSERT_EQUAL(plx_message_decode(plx_message_collected, message, &collected, NULL), 0);
    CU_ASSERT_EQUAL(collected.slices, UINT32_MAX);
    json_decref(message);
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"round trip", test_round_trip},
        {"a field that is missing", test_lacking},
        {"a field that came later", test_later},
        {"numbers that are too large", test_large},
    };

    return SUITE_RUN("messages", tests);
}
