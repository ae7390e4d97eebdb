/* test_structs.c - public structs of every size: those of older and newer headers are taken, others
 * are refused by name and number; and a thread's last sentence is its own. */
#include "tests/unit/cmocka_all.h"

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "embd/embd.h"

#define AFTER 16u /* bytes of members that this version does not know */

/* A schema as a newer header would have it. */
union newer {
    embd_schema schema;
    unsigned char bytes[sizeof(embd_schema) + AFTER];
};

static void make(union newer *s, uint32_t struct_bytes)
{
    memset(s, 0xee, sizeof *s);
    embd_schema_init_sized(&s->schema, struct_bytes);
    strcpy(s->schema.name, "t");
    s->schema.dim = 4;
}

static void refused(const embd_schema *schema, const char *says)
{
    assert_int_equal(embd_schema_check(schema), EMBD_INVALID);
    if (strstr(embd_error_text(), says) == NULL)
        fail_msg("'%s' does not say '%s'", embd_error_text(), says);
}

static void a_struct_of_this_version_is_taken(void **state)
{
    union newer s;
    (void)state;
    make(&s, sizeof(embd_schema));
    assert_int_equal(s.schema.struct_bytes, sizeof(embd_schema));
    assert_int_equal(embd_schema_check(&s.schema), EMBD_OK);
    assert_int_equal(s.bytes[sizeof(embd_schema)], 0xee);
}

/* Members that an older header lacks keep their defaults, whatever lies behind the struct. */
static void a_smaller_struct_takes_the_defaults(void **state)
{
    union newer s;
    uint64_t sizes[EMBD_SLOTS_MAX];
    const size_t older = offsetof(embd_schema, ttl);
    (void)state;
    make(&s, (uint32_t)older);
    assert_int_equal(s.bytes[older], 0xee);
    assert_int_equal(embd_schema_check(&s.schema), EMBD_OK);
    assert_int_equal(embd_schema_set(&s.schema, "slot_sizes", "5,6", sizes), EMBD_OK);
    assert_int_equal(s.schema.slots, 2);
    assert_int_equal(s.schema.struct_bytes, older);
    assert_int_equal(s.bytes[older], 0xee);
    s.schema.on_full = EMBD_ON_FULL_EVICT_TTL; /* which needs a ttl */
    s.schema.capacity = 8;
    assert_int_equal(embd_schema_check(&s.schema), EMBD_INVALID);
    assert_non_null(strstr(embd_error_text(), "ttl"));
}

static void a_larger_struct_is_taken_while_its_new_members_are_zero(void **state)
{
    union newer s;
    (void)state;
    make(&s, sizeof s);
    assert_int_equal(s.bytes[sizeof s - 1], 0);
    assert_int_equal(embd_schema_check(&s.schema), EMBD_OK);
    s.bytes[sizeof s - 1] = 1;
    refused(&s.schema, "a member is set that libembd " EMBD_VERSION " does not know");
}

static void a_size_of_no_struct_is_refused(void **state)
{
    const uint32_t sizes[] = {
        0, 4, sizeof(embd_schema) - 1, sizeof(embd_schema) + 4, 1u << 20, UINT32_MAX & ~7u};
    union newer s;
    (void)state;
    make(&s, sizeof(embd_schema));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        s.schema.struct_bytes = sizes[i];
        refused(&s.schema, "embd_schema: struct_bytes is ");
        assert_int_equal(embd_schema_set(&s.schema, "dim", "8", NULL), EMBD_INVALID);
        assert_int_equal(s.schema.dim, 4);
    }
}

static void the_version_is_the_librarys(void **state)
{
    char text[32];
    (void)state;
    snprintf(text, sizeof text, "%d.%d.%d", EMBD_VERSION_MAJOR, EMBD_VERSION_MINOR,
             EMBD_VERSION_PATCH);
    assert_string_equal(text, embd_version());
    assert_int_equal(EMBD_VERSION_NUMBER, 200);
}

static void *fail_elsewhere(void *arg)
{
    embd_schema s;
    embd_schema_init(&s);
    bool *was_empty = arg;
    *was_empty = embd_error_text()[0] == '\0';
    embd_schema_set(&s, "nowhere", "", NULL);
    return NULL;
}

static void a_sentence_is_its_threads_and_stays_after_a_success(void **state)
{
    char before[1024];
    bool was_empty = false;
    union newer s;
    pthread_t thread;
    (void)state;
    make(&s, sizeof(embd_schema));
    assert_int_equal(embd_schema_set(&s.schema, "dim", "none", NULL), EMBD_INVALID);
    snprintf(before, sizeof before, "%s", embd_error_text());
    assert_non_null(strstr(before, "dim"));
    assert_int_equal(embd_schema_set(&s.schema, "dim", "8", NULL), EMBD_OK);
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, &was_empty), 0);
    pthread_join(thread, NULL);
    assert_true(was_empty);
    assert_string_equal(embd_error_text(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_struct_of_this_version_is_taken),
        cmocka_unit_test(a_smaller_struct_takes_the_defaults),
        cmocka_unit_test(a_larger_struct_is_taken_while_its_new_members_are_zero),
        cmocka_unit_test(a_size_of_no_struct_is_refused),
        cmocka_unit_test(the_version_is_the_librarys),
        cmocka_unit_test(a_sentence_is_its_threads_and_stays_after_a_success),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
