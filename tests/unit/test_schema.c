/* test_schema.c - schemas: what is sound, what is refused and how it is called, and that no way of
 * carrying one loses a bit. */
#include "tests/unit/cmocka_all.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/schema.h"
#include "tests/unit/received.h"

static embd_schema sound(void)
{
    embd_schema s;
    embd_schema_init(&s);
    strcpy(s.name, "items");
    s.dim = 8;
    return s;
}

static void refused(const embd_schema *s, int status, const char *text)
{
    const char *why = embd_error_text();
    assert_int_equal(embd_schema_check(s), status);
    if (strstr(why, text) == NULL)
        fail_msg("'%s' does not say '%s'", why, text);
    assert_int_equal(embd_schema_check(s), status);
}

/* ---- checking ---- */

static void defaults_are_sound_but_for_name_and_dim(void **state)
{
    embd_schema s;
    (void)state;
    embd_schema_init(&s);
    refused(&s, EMBD_INVALID, "schema field 'name' is ''");
    strcpy(s.name, "a");
    refused(&s, EMBD_INVALID, "schema field 'dim' is 0, allowed are 1 to 4096");
    s.dim = 1;
    assert_int_equal(embd_schema_check(&s), EMBD_OK);
}

static void names_are_short_and_plain(void **state)
{
    static const char *const bad[] = {"_a", "-a", "A", "a/b", "a.b", "a b", "\xc3\xa4", "a\n"};
    static const char *const good[] = {"a", "0", "a-b_c", "9_"};
    embd_schema s = sound();
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        strcpy(s.name, bad[i]);
        refused(&s, EMBD_INVALID, "schema field 'name' is '");
    }
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        strcpy(s.name, good[i]);
        assert_int_equal(embd_schema_check(&s), EMBD_OK);
    }
    memset(s.name, 'a', sizeof s.name); /* not terminated */
    refused(&s, EMBD_INVALID, "expected 1 to 63 bytes");
    s.name[63] = '\0';
    assert_int_equal(embd_schema_check(&s), EMBD_OK);
}

static void shapes_are_bounded(void **state)
{
    embd_schema s = sound();
    (void)state;
    s.dim = 4097;
    refused(&s, EMBD_INVALID, "schema field 'dim' is 4097, allowed are 1 to 4096");
    s = sound();
    s.slots = 0;
    refused(&s, EMBD_INVALID, "schema field 'slots' is 0, allowed are 1 to 1024");
    s.slots = 1025;
    refused(&s, EMBD_INVALID, "schema field 'slots' is 1025");
    s = sound();
    s.capacity = UINT64_MAX;
    refused(&s, EMBD_INVALID,
            "schema field 'capacity' is 18446744073709551615, allowed are 0 to 4294967294");
}

static void slot_sizes_are_positive_and_their_sum_fits(void **state)
{
    uint64_t sizes[3] = {1, 0, 3};
    embd_schema s = sound();
    (void)state;
    s.slots = 3;
    s.slot_sizes = sizes;
    refused(&s, EMBD_INVALID, "schema field 'slot_sizes[1]' is 0, below the minimum of 1");
    sizes[1] = UINT64_MAX;
    refused(&s, EMBD_INVALID,
            "schema field 'slot_sizes[1]' is 18446744073709551615, which brings the sum over");
    sizes[1] = UINT64_MAX - 4;
    assert_int_equal(embd_schema_check(&s), EMBD_OK);
}

static void numbers_outside_an_enum_are_refused(void **state)
{
    static const struct {
        size_t at;
        const char *text;
    } enums[] = {
        {offsetof(embd_schema, partition), "'partition' is 99, allowed are 0 to 2"},
        {offsetof(embd_schema, combiner), "'combiner' is 99, allowed are 0 to 3"},
        {offsetof(embd_schema, dtype), "'dtype' is 99, allowed are 0 to 5"},
        {offsetof(embd_schema, optimizer.kind), "'optimizer.kind' is 99, allowed are 0 to 11"},
        {offsetof(embd_schema, optimizer.update), "'optimizer.update' is 99, allowed are 0 to 2"},
        {offsetof(embd_schema, initializer.kind), "'initializer.kind' is 99, allowed are 0 to 3"},
        {offsetof(embd_schema, on_full), "'on_full' is 99, allowed are 0 to 5"},
        {offsetof(embd_schema, create_on), "'create_on' is 99, allowed are 0 to 1"},
        {offsetof(embd_schema, durability), "'durability' is 99, allowed are 0 to 5"},
        {offsetof(embd_schema, rounding), "'rounding' is 99, allowed are 0 to 2"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof enums / sizeof enums[0]; i++) {
        embd_schema s = sound();
        *(unsigned *)((char *)&s + enums[i].at) = 99;
        refused(&s, EMBD_INVALID, enums[i].text);
    }
}

static void lazy_global_is_adams_alone_and_has_a_stamp(void **state)
{
    embd_schema s = sound();
    struct embd__error e = {0};
    (void)state;
    s.optimizer.update = EMBD_UPDATE_GLOBAL;
    assert_int_equal(embd__schema_check(&s, &e), EMBD_OK);
    for (int kind = EMBD_OPTIMIZER_SGD; kind <= EMBD_OPTIMIZER_FTRL; kind++) {
        embd_optimizer_init(&s.optimizer, (embd_optimizer_kind)kind, 0.1f);
        uint32_t floats = embd__schema_state_floats(&s);
        s.optimizer.update = EMBD_UPDATE_LAZY_GLOBAL;
        if (kind == EMBD_OPTIMIZER_ADAM) {
            assert_int_equal(embd__schema_check(&s, &e), EMBD_OK);
            assert_int_equal(embd__schema_state_floats(&s), floats + EMBD_STAMP_FLOATS);
            assert_int_equal(embd__schema_optimizer_floats(&s), floats);
        } else {
            refused(&s, EMBD_INVALID,
                    "'optimizer.update' is 'lazy_global', which adam supports and");
            refused(&s, EMBD_INVALID, embd_optimizer_name((embd_optimizer_kind)kind));
        }
    }
}

static void a_stamp_is_exact_among_floats(void **state)
{
    static const uint64_t counts[] = {0, 1, 0xffffff, 0x1000000, 0x123456789abc, 0xffffffffffff};
    float stamp[EMBD_STAMP_FLOATS];
    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        embd__stamp_put(stamp, counts[i]);
        assert_true(embd__stamp_get(stamp) == counts[i]);
    }
    assert_true(embd__stamp_get((const float[]){NAN, -1.0f}) == 0);
    assert_true(embd__stamp_get((const float[]){16777216.0f, INFINITY}) == 0);
}

static void evicting_tables_need_a_capacity_and_remember_use(void **state)
{
    static const embd_on_full evictions[] = {EMBD_ON_FULL_EVICT_LRU, EMBD_ON_FULL_EVICT_LFU,
                                             EMBD_ON_FULL_EVICT_TTL, EMBD_ON_FULL_EVICT_SCORE};
    static const uint32_t floats[] = {2, 3, 2, 3};
    struct embd__error e = {0};
    (void)state;
    for (int i = 0; i < 4; i++) {
        embd_schema s = sound();
        s.on_full = evictions[i];
        s.ttl = 5;
        s.capacity = 0;
        refused(&s, EMBD_INVALID, embd_on_full_name(evictions[i]));
        s.capacity = 10;
        assert_int_equal(embd__schema_check(&s, &e), EMBD_OK);
        uint32_t state_floats = embd__schema_state_floats(&s);
        s.on_full = EMBD_ON_FULL_ERROR;
        assert_int_equal(embd__schema_state_floats(&s) + floats[i], state_floats);
    }
    embd_schema s = sound();
    s.on_full = EMBD_ON_FULL_EVICT_TTL;
    s.capacity = 10;
    refused(&s, EMBD_INVALID, "'ttl' and 'ttl_seconds' are 0 and 0");
    const char *why = embd_error_text();
    assert_int_equal(embd_schema_set(&s, "ttl", "7", NULL), EMBD_OK);
    assert_int_equal(s.ttl, 7);
    assert_int_equal(embd_schema_set(&s, "ttl_seconds", "60", NULL), EMBD_OK);
    refused(&s, EMBD_INVALID, "'ttl' and 'ttl_seconds' are 7 and 60");
    s.ttl = 0;
    assert_int_equal(embd__schema_check(&s, &e), EMBD_OK);
    s.on_full = EMBD_ON_FULL_ERROR;
    assert_int_equal(embd_schema_set(&s, "ttl", "7", NULL), EMBD_INVALID);
    assert_non_null(strstr(why, "'ttl' has no effect with on_full 'error'"));
}

static void what_this_version_does_not_do_is_refused_by_name(void **state)
{
    embd_schema s = sound();
    (void)state;
    s = sound();
    s.create_on = EMBD_CREATE_ON_PULL;
    s.durability = EMBD_DURABILITY_DURABLE;
    refused(&s, EMBD_UNSUPPORTED, "'durability' is 'durable' and 'create_on' is 'pull'");
    s.durability = EMBD_DURABILITY_BUFFERED;
    refused(&s, EMBD_UNSUPPORTED, "'durability' is 'buffered' and 'create_on' is 'pull'");
    s.durability = EMBD_DURABILITY_REPLICATED;
    refused(&s, EMBD_UNSUPPORTED, "'durability' is 'replicated' and 'create_on' is 'pull'");
}

static void stochastic_rounding_needs_a_dtype_to_round_to_and_named_rows(void **state)
{
    embd_schema s = sound();
    struct embd__error e = {0};
    (void)state;
    s.dtype = EMBD_DTYPE_F32;
    s.optimizer.update = EMBD_UPDATE_LOCAL;
    assert_int_equal(embd_schema_set(&s, "rounding", "stochastic", NULL), EMBD_OK);
    refused(&s, EMBD_INVALID,
            "'rounding' is 'stochastic', which needs dtype f16, bf16, i8 or e4m3");
    s.dtype = EMBD_DTYPE_BF16;
    assert_int_equal(embd__schema_check(&s, &e), EMBD_OK);
    s.optimizer.update = EMBD_UPDATE_GLOBAL;
    refused(&s, EMBD_UNSUPPORTED, "'optimizer.update' is 'global'; use local, or lazy_global");
}

static void master_values_need_a_dtype_to_round_to_and_take_dim_more_floats(void **state)
{
    embd_schema s = sound();
    struct embd__error e = {0};
    (void)state;
    s.dtype = EMBD_DTYPE_F32;
    embd_optimizer_init(&s.optimizer, EMBD_OPTIMIZER_ADAM, 0.1f);
    s.optimizer.update = EMBD_UPDATE_LAZY_GLOBAL;
    s.on_full = EMBD_ON_FULL_EVICT_LRU;
    s.capacity = 10;
    uint32_t floats = embd__schema_state_floats(&s);
    assert_int_equal(embd_schema_set(&s, "rounding", "master", NULL), EMBD_OK);
    refused(&s, EMBD_INVALID, "'rounding' is 'master', which needs dtype f16, bf16, i8 or e4m3");
    s.dtype = EMBD_DTYPE_BF16;
    assert_int_equal(embd__schema_check(&s, &e), EMBD_OK);
    assert_int_equal(embd__schema_state_floats(&s), floats + s.dim);
    assert_int_equal(embd__schema_master_at(&s), 2 * s.dim + EMBD_STAMP_FLOATS);
    s.optimizer.update = EMBD_UPDATE_GLOBAL;
    assert_int_equal(embd__schema_check(&s, &e), EMBD_OK);
}

static void rows_of_codes_need_update_local(void **state)
{
    embd_schema s = sound();
    struct embd__error e = {0};
    (void)state;
    assert_int_equal(embd_schema_set(&s, "dtype", "i8", NULL), EMBD_OK);
    embd_optimizer_init(&s.optimizer, EMBD_OPTIMIZER_ADAM, 0.1f);
    assert_int_equal(embd__schema_check(&s, &e), EMBD_OK);
    s.optimizer.update = EMBD_UPDATE_GLOBAL;
    refused(&s, EMBD_INVALID, "'optimizer.update' is 'global', which dtype i8 does not support");
    s.dtype = EMBD_DTYPE_E4M3;
    s.optimizer.update = EMBD_UPDATE_LAZY_GLOBAL;
    refused(&s, EMBD_INVALID,
            "'optimizer.update' is 'lazy_global', which dtype e4m3 does not support; use 'local'");
}

struct f32_case {
    embd_optimizer_kind kind;
    size_t at;
    float value;
    const char *text; /* NULL: sound */
};
#define AT(field) offsetof(embd_schema, optimizer.field)

static const struct f32_case optimizer_cases[] = {
    {EMBD_OPTIMIZER_SGD, AT(lr), NAN, "'optimizer.lr' is nan"},
    {EMBD_OPTIMIZER_SGD, AT(lr), INFINITY, "'optimizer.lr' is inf"},
    {EMBD_OPTIMIZER_SGD, AT(lr), -1, NULL},
    {EMBD_OPTIMIZER_SGD, AT(lr), 0, NULL},
    {EMBD_OPTIMIZER_SGD, AT(scaler), 0, "'optimizer.scaler' is 0; gradients are divided by it"},
    {EMBD_OPTIMIZER_SGD, AT(scaler), -INFINITY, "'optimizer.scaler' is -inf"},
    {EMBD_OPTIMIZER_SGD, AT(momentum), NAN, NULL}, /* no parameter of sgd */
    {EMBD_OPTIMIZER_MOMENTUM, AT(momentum), 1,
     "'optimizer.momentum' is 1, allowed are 0 to 0.99999994"},
    {EMBD_OPTIMIZER_NESTEROV, AT(momentum), -0.1f, "'optimizer.momentum' is -0.1"},
    {EMBD_OPTIMIZER_ADAM, AT(beta1), 1, "'optimizer.beta1' is 1"},
    {EMBD_OPTIMIZER_ADAM, AT(beta1), 0, NULL},
    {EMBD_OPTIMIZER_ADAM, AT(beta2), NAN, "'optimizer.beta2' is nan"},
    {EMBD_OPTIMIZER_RMSPROP, AT(beta2), 1, "'optimizer.beta2' is 1"},
    {EMBD_OPTIMIZER_RMSPROP, AT(beta1), 1, NULL},
    {EMBD_OPTIMIZER_ADAGRAD, AT(eps), -1e-9f, "'optimizer.eps' is -"},
    {EMBD_OPTIMIZER_ADAGRAD, AT(eps), 0, NULL},
    {EMBD_OPTIMIZER_ADAGRAD, AT(initial_accumulator), -1,
     "'optimizer.initial_accumulator' is -1, allowed are 0 to"},
    {EMBD_OPTIMIZER_ROWWISE_ADAGRAD, AT(initial_accumulator), NAN,
     "'optimizer.initial_accumulator' is nan"},
    {EMBD_OPTIMIZER_FTRL, AT(lr), 0, "'optimizer.lr' is 0; ftrl divides by it"},
    {EMBD_OPTIMIZER_FTRL, AT(l1), -1, "'optimizer.l1' is -1"},
    {EMBD_OPTIMIZER_FTRL, AT(l2), INFINITY, "'optimizer.l2' is inf"},
    {EMBD_OPTIMIZER_FTRL, AT(beta), NAN, "'optimizer.beta' is nan"},
};

static void optimizer_parameters_are_finite_and_in_range(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof optimizer_cases / sizeof optimizer_cases[0]; i++) {
        const struct f32_case *c = &optimizer_cases[i];
        embd_schema s = sound();
        embd_optimizer_init(&s.optimizer, c->kind, 0.01f);
        assert_int_equal(embd_schema_check(&s), EMBD_OK);
        memcpy((char *)&s + c->at, &c->value, sizeof c->value);
        if (c->text != NULL)
            refused(&s, EMBD_INVALID, c->text);
        else
            assert_int_equal(embd_schema_check(&s), EMBD_OK);
    }
}

static void initializer_parameters_make_sense(void **state)
{
    embd_schema s = sound();
    (void)state;
    s.initializer = (embd_initializer){EMBD_INITIALIZER_UNIFORM, 1, 0};
    refused(&s, EMBD_INVALID, "'initializer.a' is 1, above initializer.b, 0");
    s.initializer = (embd_initializer){EMBD_INITIALIZER_UNIFORM, -FLT_MAX, FLT_MAX};
    refused(&s, EMBD_INVALID, "more than the largest f32 above");
    s.initializer = (embd_initializer){EMBD_INITIALIZER_UNIFORM, NAN, 0};
    refused(&s, EMBD_INVALID, "'initializer.a' is nan");
    s.initializer = (embd_initializer){EMBD_INITIALIZER_NORMAL, 0, -1};
    refused(&s, EMBD_INVALID, "'initializer.b', the standard deviation, is -1, below 0");
    s.initializer = (embd_initializer){EMBD_INITIALIZER_UNIFORM_SLOT, 0, 0};
    refused(&s, EMBD_INVALID, "'uniform_slot', which needs slot_sizes");
    s.initializer = (embd_initializer){EMBD_INITIALIZER_CONSTANT, 1, NAN};
    assert_int_equal(embd_schema_check(&s), EMBD_OK);
}

/* ---- comparing ---- */

static void the_first_field_that_differs_is_named(void **state)
{
    static uint64_t sizes[1] = {5}, others[1] = {6};
    const embd_schema a = sound();
    embd_schema b = a;
    (void)state;
    assert_null(embd__schema_difference(&a, &b));
    b.dim = 9;
    assert_string_equal(embd__schema_difference(&a, &b), "dim");
    b = a;
    b.optimizer.lr = 0.02f;
    assert_string_equal(embd__schema_difference(&a, &b), "optimizer.lr");
    b = a;
    b.optimizer.beta1 = 0.5f; /* no parameter of sgd */
    assert_null(embd__schema_difference(&a, &b));
    b = a;
    b.initializer.b = 1;
    assert_string_equal(embd__schema_difference(&a, &b), "initializer.b");
    b = a;
    b.seed = 1ull << 63;
    assert_string_equal(embd__schema_difference(&a, &b), "seed");
    b = a;
    b.admit_nonfinite = true;
    assert_string_equal(embd__schema_difference(&a, &b), "admit_nonfinite");
    b = a;
    b.slot_sizes = sizes;
    assert_string_equal(embd__schema_difference(&a, &b), "slot_sizes");
    embd_schema c = b;
    c.slot_sizes = others;
    assert_string_equal(embd__schema_difference(&b, &c), "slot_sizes");
    strcpy(c.name, "other");
    assert_string_equal(embd__schema_difference(&b, &c), "name");
}

static void both_values_of_it_are_told(void **state)
{
    static uint64_t sizes[1] = {5}, others[1] = {6};
    const embd_schema a = sound();
    embd_schema b = a, c = a;
    struct schema_difference d;
    (void)state;
    assert_false(embd__schema_tell_difference(&a, &b, &d));
    b.optimizer.lr = 0.02f;
    assert_true(embd__schema_tell_difference(&a, &b, &d));
    assert_string_equal(d.field, "optimizer.lr");
    assert_string_equal(d.a, "0.01");
    assert_string_equal(d.b, "0.02");
    b = a;
    b.partition = EMBD_PARTITION_MODULO;
    assert_true(embd__schema_tell_difference(&a, &b, &d));
    assert_string_equal(d.a, "hash");
    assert_string_equal(d.b, "modulo");
    b = a;
    b.seed = UINT64_MAX;
    assert_true(embd__schema_tell_difference(&b, &a, &d));
    assert_string_equal(d.a, "18446744073709551615");
    b = a;
    b.slot_sizes = sizes;
    assert_true(embd__schema_tell_difference(&a, &b, &d));
    assert_string_equal(d.field, "slot_sizes");
    assert_string_equal(d.a, "none");
    c.slot_sizes = others;
    assert_true(embd__schema_tell_difference(&b, &c, &d));
    assert_string_equal(d.field, "slot_sizes[0]");
    assert_string_equal(d.a, "5");
    assert_string_equal(d.b, "6");
}

/* ---- on the wire ---- */

/* Through a message and back; returns the status of reading. */
static int travel(const embd_schema *s, struct table_schema *out, struct embd__error *e)
{
    struct msg m;
    struct received r;
    struct reader reader;
    struct fields f, map;
    size_t bytes;
    embd__msg_init(&m);
    embd__msg_request(&m, 1, METHOD_TABLE_CREATE);
    embd__msg_map(&m, 1);
    embd__msg_str(&m, "schema");
    embd__schema_write(&m, s);
    assert_int_equal(embd__msg_end(&m), EMBD_OK);
    uint8_t *flat = flatten(&m, &bytes);
    received_init(&r, LIMIT_HEADER_BYTES, LIMIT_FRAME_BYTES);
    assert_int_equal(received_feed(&r, flat, bytes, 0), FRAME_DONE);
    assert_int_equal(received_read(&r, &reader), EMBD_OK);
    embd__read_fields(&f, &reader, "table_create");
    embd__field_map(&f, "schema", &map, "schema");
    embd__schema_read(&map, out);
    embd__fields_end(&f);
    embd__reader_end(&reader);
    *e = r.error;
    received_fini(&r);
    free(flat);
    embd__msg_fini(&m);
    return e->status;
}

static void travels_unchanged(const embd_schema *s)
{
    struct table_schema out;
    struct embd__error e;
    if (travel(s, &out, &e) != EMBD_OK)
        fail_msg("%s", e.text);
    assert_null(embd__schema_difference(s, &out.s));
    embd__schema_fini(&out);
}

static void every_choice_travels_unchanged(void **state)
{
    static uint64_t sizes[2] = {1ull << 63, 1};
    (void)state;
    for (int kind = EMBD_OPTIMIZER_SGD; kind <= EMBD_OPTIMIZER_COUNTER_ADAGRAD; kind++)
        for (int partition = EMBD_PARTITION_HASH; partition <= EMBD_PARTITION_SLOT; partition++)
            for (int combiner = EMBD_COMBINER_CONCAT; combiner <= EMBD_COMBINER_SQRTN; combiner++)
                for (int initializer = EMBD_INITIALIZER_UNIFORM;
                     initializer <= EMBD_INITIALIZER_CONSTANT; initializer++) {
                    embd_schema s = sound();
                    embd_optimizer_init(&s.optimizer, (embd_optimizer_kind)kind, 0.1f);
                    s.optimizer.eps = 1e-38f;
                    s.partition = (embd_partition)partition;
                    s.combiner = (embd_combiner)combiner;
                    s.initializer = (embd_initializer){(embd_initializer_kind)initializer, -0.0f,
                                                       0x1.fffffep-2f};
                    s.dtype = (embd_dtype)(kind % 3);
                    s.rounding = (embd_rounding)(s.dtype != EMBD_DTYPE_F32 ? combiner % 3 : 0);
                    s.slots = 2;
                    s.slot_sizes = initializer == EMBD_INITIALIZER_UNIFORM_SLOT ? sizes : NULL;
                    s.seed = UINT64_MAX;
                    s.capacity = 4294967294u;
                    s.on_full = EMBD_ON_FULL_ERROR;
                    s.admit_after = UINT32_MAX;
                    s.create_on = EMBD_CREATE_ON_PULL;
                    s.admit_nonfinite = true;
                    travels_unchanged(&s);
                }
}

static void regularization_travels_unchanged(void **state)
{
    (void)state;
    for (int kind = EMBD_OPTIMIZER_SGD; kind <= EMBD_OPTIMIZER_COUNTER_ADAGRAD; kind++) {
        embd_schema s = sound();
        embd_optimizer_init(&s.optimizer, (embd_optimizer_kind)kind, 0.1f);
        s.regularization = (embd_regularization){.clip_value = 0.5f,
                                                 .clip_norm = 1e-38f,
                                                 .weight_decay = 0.25f,
                                                 .decay = (embd_decay)(kind % 7 == 5),
                                                 .max_norm = FLT_MAX,
                                                 .weight_min = -1.0f,
                                                 .weight_max = -0.0f,
                                                 .lr_decay = 0.125f,
                                                 .counter_halflife = 2.5f};
        travels_unchanged(&s);
    }
}

struct regularization_case {
    size_t at;
    float value;
    const char *text;
};
#define MORE(field) offsetof(embd_schema, regularization.field)

static void regularization_is_finite_and_in_range(void **state)
{
    static const struct regularization_case cases[] = {
        {MORE(clip_value), -1, "'optimizer.clip_value' is -1, allowed are 0 to"},
        {MORE(clip_norm), NAN, "'optimizer.clip_norm' is nan"},
        {MORE(weight_decay), INFINITY, "'optimizer.weight_decay' is inf"},
        {MORE(max_norm), -0.5f, "'optimizer.max_norm' is -0.5"},
        {MORE(weight_min), INFINITY, "'optimizer.weight_min' is inf"},
        {MORE(weight_max), NAN, "'optimizer.weight_max' is nan"},
        {MORE(weight_max), -2, "'optimizer.weight_min' is -1, above optimizer.weight_max, -2"},
        {MORE(lr_decay), -1, "'optimizer.lr_decay' is -1"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        embd_schema s = sound();
        embd_optimizer_init(&s.optimizer, EMBD_OPTIMIZER_ADAGRAD, 0.01f);
        s.regularization.weight_min = -1;
        assert_int_equal(embd_schema_check(&s), EMBD_OK);
        memcpy((char *)&s + cases[i].at, &cases[i].value, sizeof cases[i].value);
        refused(&s, EMBD_INVALID, cases[i].text);
    }
}

static void the_largest_schema_fits_a_request(void **state)
{
    static uint64_t sizes[EMBD_SLOTS_MAX];
    embd_schema s = sound();
    (void)state;
    memset(s.name, 'z', EMBD_NAME_MAX);
    for (uint32_t i = 0; i < EMBD_SLOTS_MAX; i++)
        sizes[i] = i + 1;
    s.slots = EMBD_SLOTS_MAX;
    s.slot_sizes = sizes;
    embd_optimizer_init(&s.optimizer, EMBD_OPTIMIZER_FTRL, 0.1f);
    travels_unchanged(&s);
}

static void an_unsound_schema_is_refused_where_it_arrives(void **state)
{
    struct table_schema out, zero;
    struct embd__error e;
    embd_schema s = sound();
    (void)state;
    memset(&zero, 0, sizeof zero);
    s.optimizer.scaler = 0;
    assert_int_equal(travel(&s, &out, &e), EMBD_INVALID);
    assert_string_equal(e.text,
                        "schema field 'optimizer.scaler' is 0; gradients are divided by it");
    assert_memory_equal(&out, &zero, sizeof out);
    s = sound();
    s.durability = EMBD_DURABILITY_DURABLE;
    s.create_on = EMBD_CREATE_ON_PULL;
    assert_int_equal(travel(&s, &out, &e), EMBD_UNSUPPORTED);
    s = sound();
    s.dim = 5000;
    assert_int_equal(travel(&s, &out, &e), EMBD_INVALID);
    assert_string_equal(e.text, "schema field 'dim' is 5000, the limit is 4096");
}

/* A schema of only the fields given; the rest takes defaults. */
static void absent_fields_take_the_defaults_of_the_kind(void **state)
{
    static const char bytes[] = "\x94\0\1\xactable_create\x91\x81\xa6schema\x83\xa4name\xa1"
                                "a\xa3"
                                "dim\2\xa9optimizer\x81\xa4kind\xa7rmsprop";
    struct received r;
    struct reader reader;
    struct fields f, map;
    struct table_schema out;
    embd_schema expected;
    (void)state;
    received_init(&r, 4096, 4096);
    assert_int_equal(received_feed(&r, (const uint8_t *)bytes, sizeof bytes - 1, 0), FRAME_DONE);
    assert_int_equal(received_read(&r, &reader), EMBD_OK);
    embd__read_fields(&f, &reader, "table_create");
    embd__field_map(&f, "schema", &map, "schema");
    assert_int_equal(embd__schema_read(&map, &out), EMBD_OK);
    embd_schema_init(&expected);
    strcpy(expected.name, "a");
    expected.dim = 2;
    embd_optimizer_init(&expected.optimizer, EMBD_OPTIMIZER_RMSPROP, 0.01f);
    assert_null(embd__schema_difference(&out.s, &expected));
    assert_true(out.s.optimizer.beta2 == 0.9f);
    embd__schema_fini(&out);
    received_fini(&r);
}

/* ---- from text ---- */

static void set(embd_schema *s, const char *field, const char *value)
{
    const char *why = embd_error_text();
    if (embd_schema_set(s, field, value, NULL) != EMBD_OK)
        fail_msg("%s", why);
}

static void fields_are_set_from_text(void **state)
{
    embd_schema s;
    (void)state;
    embd_schema_init(&s);
    set(&s, "name", "items");
    set(&s, "dim", "64");
    set(&s, "slots", "3");
    set(&s, "partition", "modulo");
    set(&s, "combiner", "sqrtn");
    set(&s, "dtype", "bf16");
    set(&s, "optimizer.lr", "0.5");
    set(&s, "optimizer", "adam");
    set(&s, "optimizer.beta1", "0.8");
    set(&s, "optimizer.update", "local");
    set(&s, "initializer", "normal");
    set(&s, "initializer.b", "2e-3");
    set(&s, "seed", "18446744073709551615");
    set(&s, "capacity", "1000");
    set(&s, "on_full", "error");
    set(&s, "admit_after", "3");
    set(&s, "create_on", "pull");
    set(&s, "admit_nonfinite", "true");
    set(&s, "durability", "snapshot");
    assert_int_equal(embd_schema_check(&s), EMBD_OK);
    assert_true(s.optimizer.lr == 0.5f && s.optimizer.beta1 == 0.8f && s.optimizer.beta2 == 0.999f);
    assert_true(s.initializer.a == 0 && s.initializer.b == 2e-3f);
    assert_true(s.seed == UINT64_MAX && s.admit_nonfinite && s.dim == 64 &&
                s.create_on == EMBD_CREATE_ON_PULL);
}

static void setting_the_optimizer_resets_its_parameters(void **state)
{
    embd_schema s;
    (void)state;
    embd_schema_init(&s);
    set(&s, "optimizer", "adam");
    set(&s, "optimizer.beta2", "0.5");
    set(&s, "optimizer", "rmsprop");
    assert_true(s.optimizer.beta2 == 0.9f && s.optimizer.lr == 0.01f);
}

static void slot_sizes_are_read_into_the_callers_storage(void **state)
{
    static uint64_t storage[EMBD_SLOTS_MAX];
    embd_schema s = sound();
    const char *why = embd_error_text();
    (void)state;
    assert_int_equal(embd_schema_set(&s, "slot_sizes", "10,20,18446744073709551580", storage), 0);
    assert_int_equal(s.slots, 3);
    assert_ptr_equal(s.slot_sizes, storage);
    assert_true(storage[2] == 18446744073709551580ull);
    assert_int_equal(embd_schema_set(&s, "slots", "4", storage), EMBD_INVALID);
    assert_string_equal(why, "schema field 'slots' is 4, but slot_sizes has 3");
    assert_int_equal(embd_schema_set(&s, "slot_sizes", "1,2", storage), 0);
    assert_int_equal(s.slots, 2);
    s = sound();
    s.slots = 3;
    assert_int_equal(embd_schema_set(&s, "slot_sizes", "1,2", storage), EMBD_INVALID);
    assert_string_equal(why, "schema field 'slot_sizes' has 2 values, but slots is 3");
    assert_true(s.slots == 3 && s.slot_sizes == NULL);
}

static void text_that_is_no_value_is_refused(void **state)
{
    static const struct {
        const char *field, *value, *why;
    } cases[] = {
        {"color", "red", "unknown schema field 'color'"},
        {"optimizer.color", "red", "unknown schema field 'optimizer.color'"},
        {"dim", "x", "schema field 'dim' is 'x', expected an unsigned integer"},
        {"dim", "", "expected an unsigned integer"},
        {"dim", "-1", "expected an unsigned integer"},
        {"dim", "8 ", "expected an unsigned integer"},
        {"dim", "4097", "schema field 'dim' is 4097, allowed are 1 to 4096"},
        {"seed", "18446744073709551616", "expected an unsigned integer"},
        {"optimizer", "adamw",
         "schema field 'optimizer' is 'adamw', expected one of sgd, momentum, nesterov"},
        {"optimizer.lr", "fast", "schema field 'optimizer.lr' is 'fast', expected a finite number"},
        {"optimizer.lr", "inf", "expected a finite number"},
        {"optimizer.lr", "1e39", "expected a finite number"},
        {"optimizer.beta1", "0.9",
         "schema field 'optimizer.beta1' is not a parameter of the optimizer 'sgd'"},
        {"admit_nonfinite", "yes", "expected true or false"},
        {"slot_sizes", "1,2", "schema field 'slot_sizes' cannot be set here"},
        {"name", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
         "schema field 'name' has 64 bytes, the limit is 63"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        embd_schema s = sound();
        const char *why = embd_error_text();
        assert_int_equal(embd_schema_set(&s, cases[i].field, cases[i].value, NULL), EMBD_INVALID);
        if (strstr(why, cases[i].why) == NULL)
            fail_msg("'%s' does not say '%s'", why, cases[i].why);
        const embd_schema before = sound();
        assert_null(embd__schema_difference(&s, &before));
    }
}

static void bad_lists_of_slot_sizes_are_refused(void **state)
{
    static const char *const bad[] = {
        "", ",", "1,", ",1", "1,,2", "1 2", "1;2", "-1", "1,18446744073709551616"};
    static uint64_t storage[EMBD_SLOTS_MAX];
    static char many[4 * EMBD_SLOTS_MAX];
    embd_schema s = sound();
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(embd_schema_set(&s, "slot_sizes", bad[i], storage), EMBD_INVALID);
    for (uint32_t i = 0; i <= EMBD_SLOTS_MAX; i++)
        strcpy(many + 2 * i, i < EMBD_SLOTS_MAX ? "1," : "1");
    assert_int_equal(embd_schema_set(&s, "slot_sizes", many, storage), EMBD_INVALID);
    assert_null(s.slot_sizes);
}

/* ---- what follows from a schema ---- */

static void a_stored_key_tells_its_slot(void **state)
{
    static const uint64_t sizes[5] = {10, 1, 5, 1000000, 7};
    struct table_schema t;
    struct embd__error e = {0};
    embd_schema s = sound();
    (void)state;
    s.slots = 5;
    s.slot_sizes = sizes;
    assert_int_equal(embd__schema_copy(&t, &s, &e), EMBD_OK);
    assert_ptr_not_equal(t.s.slot_sizes, sizes);
    uint64_t start = 0;
    for (uint32_t slot = 0; slot < 5; slot++) {
        assert_true(t.slot_starts[slot] == start);
        assert_int_equal(embd__schema_slot_of(&t, start), slot);
        assert_int_equal(embd__schema_slot_of(&t, start + sizes[slot] - 1), slot);
        start += sizes[slot];
    }
    assert_int_equal(embd__schema_slot_of(&t, start), 5);
    assert_int_equal(embd__schema_slot_of(&t, UINT64_MAX), 5);
    embd__schema_fini(&t);
}

static void optimizer_state_has_its_size(void **state)
{
    static const uint32_t expected[12] = {0, 8, 8, 8, 1, 16, 8, 16, 24, 9, 16, 4};
    (void)state;
    for (int kind = EMBD_OPTIMIZER_SGD; kind <= EMBD_OPTIMIZER_COUNTER_ADAGRAD; kind++) {
        embd_schema s = sound();
        s.optimizer.kind = (embd_optimizer_kind)kind;
        assert_int_equal(embd__schema_state_floats(&s), expected[kind]);
    }
}

static void names_end_where_their_enums_do(void **state)
{
    (void)state;
    assert_string_equal(embd_optimizer_name(EMBD_OPTIMIZER_ROWWISE_ADAGRAD), "rowwise_adagrad");
    assert_null(embd_optimizer_name((embd_optimizer_kind)12));
    assert_null(embd_partition_name((embd_partition)-1));
    assert_string_equal(embd_status_text(EMBD_FULL), "table is full");
    assert_string_equal(embd_status_text(-999), "unknown status");
    assert_string_equal(embd_status_text(1), "unknown status");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_sound_but_for_name_and_dim),
        cmocka_unit_test(names_are_short_and_plain),
        cmocka_unit_test(shapes_are_bounded),
        cmocka_unit_test(slot_sizes_are_positive_and_their_sum_fits),
        cmocka_unit_test(numbers_outside_an_enum_are_refused),
        cmocka_unit_test(lazy_global_is_adams_alone_and_has_a_stamp),
        cmocka_unit_test(a_stamp_is_exact_among_floats),
        cmocka_unit_test(evicting_tables_need_a_capacity_and_remember_use),
        cmocka_unit_test(stochastic_rounding_needs_a_dtype_to_round_to_and_named_rows),
        cmocka_unit_test(master_values_need_a_dtype_to_round_to_and_take_dim_more_floats),
        cmocka_unit_test(rows_of_codes_need_update_local),
        cmocka_unit_test(what_this_version_does_not_do_is_refused_by_name),
        cmocka_unit_test(optimizer_parameters_are_finite_and_in_range),
        cmocka_unit_test(initializer_parameters_make_sense),
        cmocka_unit_test(the_first_field_that_differs_is_named),
        cmocka_unit_test(both_values_of_it_are_told),
        {"S2.4 every choice of a schema travels unchanged", every_choice_travels_unchanged, NULL,
         NULL, NULL},
        cmocka_unit_test(the_largest_schema_fits_a_request),
        cmocka_unit_test(regularization_travels_unchanged),
        cmocka_unit_test(regularization_is_finite_and_in_range),
        cmocka_unit_test(an_unsound_schema_is_refused_where_it_arrives),
        cmocka_unit_test(absent_fields_take_the_defaults_of_the_kind),
        cmocka_unit_test(fields_are_set_from_text),
        cmocka_unit_test(setting_the_optimizer_resets_its_parameters),
        {"S0.8 slot sizes are read into the caller's storage, as many as there are slots",
         slot_sizes_are_read_into_the_callers_storage, NULL, NULL, NULL},
        cmocka_unit_test(text_that_is_no_value_is_refused),
        cmocka_unit_test(bad_lists_of_slot_sizes_are_refused),
        cmocka_unit_test(a_stored_key_tells_its_slot),
        cmocka_unit_test(optimizer_state_has_its_size),
        cmocka_unit_test(names_end_where_their_enums_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
