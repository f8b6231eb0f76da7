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
        plx_message_decode(tables[i].fields, message, received);
        CU_ASSERT_EQUAL(memcmp(sent, received, tables[i].bytes), 0);
        json_decref(message);
        free(sent);
        free(received);
    }
}

/* What nobody sent, or what makes no sense, is zero; what is too large is as much as there can be.
 */
static void test_strange(void)
{
    struct plx_collected collected;
    json_t *message = json_pack("{s:i,s:s,s:f,s:I,s:i}", "found", -1, "swept", "many", "looked",
                                1.5, "slices", (json_int_t)INT64_MAX, "resumed", 1);

    memset(&collected, 0xff, sizeof collected);
    plx_message_decode(plx_message_collected, message, &collected);
    CU_ASSERT_EQUAL(collected.found, 0);
    CU_ASSERT_EQUAL(collected.swept, 0);
    CU_ASSERT_EQUAL(collected.looked, 0);
    CU_ASSERT_EQUAL(collected.missed, 0);
    CU_ASSERT_EQUAL(collected.slices, UINT32_MAX);
    CU_ASSERT_FALSE(collected.resumed);
    json_decref(message);

    collected.found = UINT64_MAX;
    message = plx_message_encode(plx_message_collected, &collected);
    CU_ASSERT_EQUAL(json_integer_value(json_object_get(message, "found")), INT64_MAX);
    json_decref(message);
    plx_message_decode(plx_message_collected, NULL, &collected);
    CU_ASSERT_EQUAL(collected.found, 0);
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"round trip", test_round_trip},
        {"strange messages", test_strange},
    };

    return SUITE_RUN("messages", tests);
}
