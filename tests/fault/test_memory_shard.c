/* test_memory_shard.c - each piece of memory that a shard asks for is refused once: while it opens,
 * and while it answers each request. The answer is then an error, or there is none and net closes
 * the connection; the tables are as before, all of them and to the last bit, and again so when the
 * shard starts on its journal, with memory; and the same request works with memory. */
#include "tests/server/rig.h"

#include <string.h>

#include "tests/fault/failing_memory.h"
#include "proto/keyed.h"
#include "proto/route.h"
#include "proto/schema.h"

enum { FEW = 20, MANY = 3000, DIM = 6 };

/* Asked for while a request is handled, and not by the rig. */
void __real_shard_handle(struct shard *shard, struct request *request);
void __wrap_shard_handle(struct shard *shard, struct request *request);

static uint64_t refuse_at; /* 0: none */
static bool was_refused;
static uint32_t n_refused;
static void (*rig_on_answer)(struct request *);

static void on_answer(struct request *request)
{
    memory_pause();
    rig_on_answer(request);
    memory_go_on();
}

void __wrap_shard_handle(struct shard *shard, struct request *request)
{
    rig_on_answer = request->on_answer;
    request->on_answer = on_answer;
    if (refuse_at > 0)
        memory_fail(refuse_at);
    __real_shard_handle(shard, request);
    was_refused = refuse_at > 0 && memory_end();
    n_refused += was_refused;
}

static embd_schema small_schema(const char *name, embd_durability durability)
{
    embd_schema schema;
    embd_schema_init(&schema);
    strcpy(schema.name, name);
    schema.dim = DIM;
    schema.durability = durability;
    schema.admit_after = 2;
    schema.create_on =
        durability == EMBD_DURABILITY_SNAPSHOT ? EMBD_CREATE_ON_PULL : EMBD_CREATE_ON_PUSH;
    embd_optimizer_init(&schema.optimizer, EMBD_OPTIMIZER_ADAGRAD, 0.1f);
    return schema;
}

/* ---- requests, each of which a case makes again and again ---- */

static uint64_t keys[MANY];
static float grads[MANY * DIM];

static struct exchange *ask_push(struct rig *rig, uint32_t n)
{
    struct part part = {.table = embd__table_id("items"),
                        .n_keys = n,
                        .n_rows = n,
                        .keys = keys,
                        .grads = grads,
                        .grads_bytes = n * DIM * sizeof *grads,
                        .want_status = true};
    return ask_parts(rig, METHOD_PUSH, &part, 1);
}

static struct exchange *push_few(struct rig *rig)
{
    return ask_push(rig, FEW);
}

/* Its index and its rows grow. */
static struct exchange *push_many(struct rig *rig)
{
    return ask_push(rig, MANY);
}

static bool was_ok; /* the request before */

/* Of both tables at once, with and without statuses. Where the last one was applied, some keys are
 * new to both. */
static struct exchange *push_both(struct rig *rig)
{
    static uint64_t fresh[MANY];
    static uint64_t n_made;
    struct part parts[2];
    for (uint32_t i = 0; i < MANY; i++)
        fresh[i] = keys[i] + n_made * MANY * (i % 3);
    n_made += was_ok;
    for (int i = 0; i < 2; i++)
        parts[i] = (struct part){.table = embd__table_id(i == 0 ? "items" : "more"),
                                 .n_keys = MANY,
                                 .n_rows = MANY,
                                 .keys = fresh,
                                 .grads = grads,
                                 .grads_bytes = sizeof grads,
                                 .want_status = n_made % 2 == 0};
    return ask_parts(rig, METHOD_PUSH, parts, 2);
}

static struct exchange *pull_many(struct rig *rig)
{
    struct part part = {.table = embd__table_id("items"),
                        .n_keys = MANY,
                        .n_rows = MANY,
                        .keys = keys,
                        .dtype = EMBD_DTYPE_F16,
                        .want_status = true};
    return ask_parts(rig, METHOD_PULL, &part, 1);
}

/* Of both tables, one of them twice: where pulls make rows, that is one insert each. */
static struct exchange *pull_both(struct rig *rig)
{
    static uint64_t fresh[MANY];
    static uint64_t n_made = 1;
    struct part parts[3];
    for (uint32_t i = 0; i < MANY; i++)
        fresh[i] = keys[i] - n_made * MANY * (i % 3);
    n_made += was_ok;
    for (int i = 0; i < 3; i++)
        parts[i] = (struct part){.table = embd__table_id(i == 1 ? "more" : "items"),
                                 .n_keys = MANY - 1,
                                 .n_rows = MANY - 1,
                                 .keys = fresh + i / 2,
                                 .want_status = n_made % 2 == 0};
    return ask_parts(rig, METHOD_PULL, parts, 3);
}

static struct exchange *erase_few(struct rig *rig)
{
    struct part part = {
        .table = embd__table_id("items"), .n_keys = FEW, .n_rows = FEW, .keys = keys};
    return ask_parts(rig, METHOD_ERASE, &part, 1);
}

/* Too many for memory that is kept. */
static struct exchange *erase_both(struct rig *rig)
{
    struct part parts[2];
    for (int i = 0; i < 2; i++)
        parts[i] = (struct part){.table = embd__table_id(i == 0 ? "items" : "more"),
                                 .n_keys = MANY,
                                 .n_rows = MANY,
                                 .keys = keys,
                                 .want_status = true};
    return ask_parts(rig, METHOD_ERASE, parts, 2);
}

static struct exchange *ask_keyed(struct rig *rig, enum method method, const uint64_t *of,
                                  bool has_states)
{
    static const float states[MANY * DIM];
    const embd_schema schema = small_schema("items", EMBD_DURABILITY_SNAPSHOT);
    const struct keyed_fields fields = {.table = "items", .n_keys = MANY, .has_states = has_states};
    const struct row_block block = {
        .n_rows = MANY, .keys = of, .rows = grads, .states = has_states ? states : NULL};
    struct exchange *x = ask(rig, &rig->data, method);
    embd__keyed_fields_write(&x->out, &fields);
    if (method == METHOD_PUT)
        embd__put_bins_write(&x->out, &schema, &block);
    else
        embd__get_bins_write(&x->out, &schema, &block);
    return x;
}

/* New rows, and some that there are. */
static struct exchange *put_many(struct rig *rig)
{
    static uint64_t fresh[MANY];
    static uint64_t n_made = 1;
    n_made += was_ok;
    for (uint32_t i = 0; i < MANY; i++)
        fresh[i] = keys[i] + (i % 3) * n_made * 0x51ed270b;
    return ask_keyed(rig, METHOD_PUT, fresh, n_made % 2 == 0);
}

static struct exchange *get_many(struct rig *rig)
{
    return ask_keyed(rig, METHOD_GET, keys, true);
}

static struct exchange *create_other(struct rig *rig)
{
    struct exchange *x = ask(rig, &rig->data, METHOD_TABLE_CREATE);
    embd_schema schema = small_schema("other", EMBD_DURABILITY_SNAPSHOT);
    uint64_t sizes[3] = {7, 8, 9};
    schema.slots = 3;
    schema.slot_sizes = sizes;
    embd__msg_map(&x->out, 1);
    embd__msg_str(&x->out, "schema");
    embd__schema_write(&x->out, &schema);
    return x;
}

static struct exchange *plain(struct rig *rig, struct shard_session *session, enum method method)
{
    struct exchange *x = ask(rig, session, method);
    embd__msg_map(&x->out, 0);
    return x;
}

static struct exchange *list_tables(struct rig *rig)
{
    return plain(rig, &rig->data, METHOD_TABLES);
}

static struct exchange *ask_stats(struct rig *rig)
{
    return plain(rig, &rig->data, METHOD_STATS);
}

static struct exchange *hold(struct rig *rig)
{
    struct exchange *x = ask(rig, &rig->admin, METHOD_HOLD);
    embd__msg_map(&x->out, 1);
    embd__msg_field_uint(&x->out, "timeout_ms", 60000);
    return x;
}

static struct exchange *scan(struct rig *rig)
{
    struct exchange *x = ask(rig, &rig->admin, METHOD_SCAN);
    embd__msg_map(&x->out, 3);
    embd__msg_field_str(&x->out, "table", "items");
    embd__msg_field_uint(&x->out, "cursor", 0);
    embd__msg_field_uint(&x->out, "bytes", 1 << 20);
    return x;
}

static struct exchange *release(struct rig *rig)
{
    return plain(rig, &rig->admin, METHOD_RELEASE);
}

static struct exchange *snapshot(struct rig *rig, const char *phase)
{
    struct exchange *x = ask(rig, &rig->admin, METHOD_SNAPSHOT);
    embd__msg_map(&x->out, 2);
    embd__msg_field_str(&x->out, "name", "copy");
    embd__msg_field_str(&x->out, "phase", phase);
    return x;
}

static struct exchange *snapshot_begin_again(struct rig *rig)
{
    struct exchange *x = snapshot(rig, "abort"); /* what a refused one has left */
    uint64_t before = refuse_at;
    refuse_at = 0;
    ask_ok(x);
    ask_free(x);
    refuse_at = before;
    return snapshot(rig, "begin");
}

static struct exchange *snapshot_abort(struct rig *rig)
{
    return snapshot(rig, "abort");
}

/* ---- refusing ---- */

/* Handles the request with its n-th piece of memory refused. Returns whether it succeeded. */
static bool handle(struct rig *rig, struct exchange *(*request)(struct rig *), uint64_t n)
{
    struct exchange *x = request(rig);
    refuse_at = n;
    ask_send(x);
    refuse_at = 0;
    bool has_answer = x->is_answered && x->request.has_answer, ok = false;
    assert_true(x->is_answered);
    if (has_answer) {
        ask_read(x);
        ok = x->reader.answer_status == EMBD_OK;
        if (!ok)
            assert_int_equal(x->reader.answer_status, EMBD_NO_MEMORY);
        assert_true(ok || x->reader.answer_text_bytes > 10);
    }
    ask_free(x);
    was_ok = ok;
    return ok;
}

/* Until nothing is refused. A request that `changes` tables does so when it says that it did. */
static void refuse_each(struct rig *rig, struct exchange *(*request)(struct rig *), bool changes)
{
    struct image before, more_before;
    bool refused = true;
    image_take(rig, "items", &before);
    image_take(rig, "more", &more_before);
    for (uint64_t n = 1; refused; n++) {
        bool ok = handle(rig, request, n);
        refused = was_refused;
        assert_true(ok || refused);
        if (changes && ok) {
            image_fini(&before);
            image_fini(&more_before);
            image_take(rig, "items", &before);
            image_take(rig, "more", &more_before);
        } else {
            image_check(rig, "items", &before);
            image_check(rig, "more", &more_before);
        }
    }
    image_fini(&before);
    image_fini(&more_before);
}

static void each_request_is_refused_memory(struct rig *rig, bool pulls_create)
{
    refuse_each(rig, push_few, true);
    refuse_each(rig, push_few, true);
    refuse_each(rig, push_many, true);
    refuse_each(rig, push_many, true);
    for (int i = 0; i < 5; i++)
        refuse_each(rig, push_both, true);
    refuse_each(rig, pull_many, pulls_create);
    for (int i = 0; i < 4; i++)
        refuse_each(rig, pull_both, pulls_create);
    for (int i = 0; i < 4; i++)
        refuse_each(rig, put_many, true);
    refuse_each(rig, get_many, false);
    refuse_each(rig, erase_few, true);
    refuse_each(rig, erase_both, true);
    refuse_each(rig, create_other, false);
    refuse_each(rig, list_tables, false);
    refuse_each(rig, ask_stats, false);
    refuse_each(rig, snapshot_begin_again, false);
    refuse_each(rig, snapshot_abort, false);
}

static void each_request_survives_each_refusal(void **state)
{
    static const embd_durability durabilities[] = {EMBD_DURABILITY_SNAPSHOT,
                                                   EMBD_DURABILITY_DURABLE};
    struct embd__error e = {.status = EMBD_OK};
    const struct store_ops *host = store_find("host", &e);
    (void)state;
    for (uint32_t i = 0; i < MANY; i++)
        keys[i] = i % 7 == 0 ? i : i * 0x9e3779b97f4a7c15;
    for (uint32_t i = 0; i < MANY * DIM; i++)
        grads[i] = (float)(i % 11);
    for (int i = 0; i < 2; i++) {
        struct rig rig;
        struct image image, more;
        char dir[64];
        embd_schema schema = small_schema("items", durabilities[i]),
                    another = small_schema("more", durabilities[i]);
        another.admit_after = 0;
        scratch_new(dir);
        rig_open(&rig, host, 0, 1, dir);
        create_table(&rig, &schema);
        create_table(&rig, &another);
        n_refused = 0;
        each_request_is_refused_memory(&rig, durabilities[i] == EMBD_DURABILITY_SNAPSHOT);
        assert_true(n_refused > 20);
        print_message("%u refusals\n", n_refused);
        image_take(&rig, "items", &image);
        image_take(&rig, "more", &more);
        rig_close(&rig);
        if (durabilities[i] == EMBD_DURABILITY_DURABLE) {
            rig_open(&rig, host, 0, 1, dir);
            image_check(&rig, "items", &image);
            image_check(&rig, "more", &more);
            rig_close(&rig);
        }
        image_fini(&image);
        image_fini(&more);
        scratch_remove(dir);
    }
}

static void a_scan_under_a_hold_survives_each_refusal(void **state)
{
    struct rig rig;
    struct embd__error e = {.status = EMBD_OK};
    embd_schema schema = small_schema("items", EMBD_DURABILITY_SNAPSHOT);
    (void)state;
    rig_open(&rig, store_find("host", &e), 0, 1, NULL);
    create_table(&rig, &schema);
    struct exchange *x = push_many(&rig);
    ask_ok(x);
    ask_free(x);
    static struct exchange *(*const requests[])(struct rig *) = {hold, scan, release};
    for (size_t i = 0; i < 3; i++) {
        bool refused = true;
        for (uint64_t n = 1; refused; n++) {
            bool ok = handle(&rig, requests[i], n);
            refused = was_refused;
            assert_true(ok || refused);
        }
    }
    rig_close(&rig);
}

static void opening_survives_each_refusal(void **state)
{
    struct rig rig;
    struct embd__error found = {.status = EMBD_OK};
    char dir[64];
    (void)state;
    scratch_new(dir);
    rig_open(&rig, store_find("host", &found), 0, 1, dir);
    bool refused = true;
    for (uint64_t n = 1; refused; n++) {
        struct embd__error e = {.status = EMBD_OK};
        struct shard *shard = NULL;
        memory_fail(n);
        int status = shard_open(&rig.config, &shard, &e);
        refused = memory_end();
        if (status == EMBD_OK)
            shard_close(shard);
        else
            assert_true(refused && status == EMBD_NO_MEMORY && strlen(e.text) > 5);
    }
    rig_close(&rig);
    scratch_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_survives_each_refusal),
        cmocka_unit_test(each_request_survives_each_refusal),
        cmocka_unit_test(a_scan_under_a_hold_survives_each_refusal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
