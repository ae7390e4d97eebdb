/* test_values.c - pulls and pushes through real servers equal the model bit for bit: for every
 * optimizer, combiner, partition and dtype, both plans and the chosen one, every wire, and 1, 2, 3
 * and 5 shards.
 *
 * usage: test_values EMBD|inproc N_SHARDS: servers of that program, or one in this process */
#include "tests/unit/cmocka_all.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "client/call/call.h"
#include "client/io/channel.h"
#include "proto/route.h"
#include "tests/client/batch.h"
#include "tests/client/cluster.h"

#ifndef STRIDE /* under sanitizers not every kind of table */
#define STRIDE 1
#endif

static const char *program;
static uint32_t n_shards;
static struct cluster cluster;
static embd_client *client;

#define DIM_MAX 8u
#define WIRES   (EMBD_DTYPE_I4 + 1)

/* A table, its model, and the arrays of one comparison. */
struct bench {
    embd_table *table;
    struct model *model;
    struct batch batch;
    float values[BATCH_KEYS_MAX * DIM_MAX], expected[BATCH_KEYS_MAX * DIM_MAX];
    uint8_t statuses[BATCH_KEYS_MAX], expected_statuses[BATCH_KEYS_MAX];
};

static struct bench b;
static uint64_t random_state = 1;

static void check(int status)
{
    if (status != EMBD_OK)
        print_error("%s: %s\n", embd_status_text(status), embd_error_text());
    assert_int_equal(status, EMBD_OK);
}

static int connect_all(void **state)
{
    const char *why = embd_error_text();
    (void)state;
    if (strcmp(program, "inproc") == 0)
        snprintf(cluster.address, sizeof cluster.address, "inproc:?shards=%u", n_shards);
    else
        cluster_start(&cluster, program, n_shards, 0);
    int status = embd_connect(cluster.address, NULL, &client);
    if (status != EMBD_OK)
        print_error("%s\n", why);
    return status;
}

static int disconnect_all(void **state)
{
    (void)state;
    embd_close(client);
    if (cluster.pid != 0)
        cluster_stop(&cluster);
    return 0;
}

static void open_bench(const embd_schema *schema)
{
    check(embd_table_create(client, schema));
    check(embd_table_open(client, schema->name, &b.table));
    b.model = model_new(schema);
}

static void close_bench(void)
{
    check(embd_table_drop(client, b.model->schema.name));
    model_free(b.model);
}

static embd_part part_of(bool pooled)
{
    return (embd_part)EMBD_PART(.table = b.table, .n_rows = b.batch.n_rows,
                                .offsets = b.batch.offsets, .n_keys = b.batch.n_keys,
                                .keys = b.batch.keys,
                                .weights = b.batch.has_weights ? b.batch.weights : NULL,
                                .values = b.values, .statuses = b.statuses, .raw = !pooled);
}

static bool is_pooled(bool raw)
{
    return !raw && b.model->schema.combiner != EMBD_COMBINER_CONCAT;
}

static void compare_values(bool pooled)
{
    uint64_t n = (pooled ? b.batch.n_rows : b.batch.n_keys) * b.model->schema.dim;
    for (uint64_t i = 0; i < n; i++)
        if (memcmp(&b.values[i], &b.expected[i], sizeof(float)) != 0)
            fail_msg("table %s: value %llu is %a, the model has %a", b.model->schema.name,
                     (unsigned long long)i, (double)b.values[i], (double)b.expected[i]);
    assert_memory_equal(b.statuses, b.expected_statuses, b.batch.n_keys);
}

static void pull_and_compare(bool raw, embd_plan plan, embd_dtype wire)
{
    bool pooled = is_pooled(raw), zero = batch_random(&random_state) % 4 == 0;
    embd_part part = part_of(pooled);
    embd_call_options options = EMBD_CALL_OPTIONS(.plan = plan, .wire = wire, .zero_missing = zero);
    memset(b.values, 0x55, sizeof b.values);
    check(embd_pull(client, &part, 1, &options));
    batch_expect(b.model, &b.batch, pooled, plan == EMBD_PLAN_ROWS, n_shards, wire, zero,
                 b.expected, b.expected_statuses);
    compare_values(pooled);
}

static void push_and_compare(bool raw, embd_plan plan)
{
    bool pooled = is_pooled(raw);
    embd_part part = part_of(pooled);
    embd_call_options options = EMBD_CALL_OPTIONS(.plan = plan);
    uint64_t n = (pooled ? b.batch.n_rows : b.batch.n_keys) * b.model->schema.dim;
    for (uint64_t i = 0; i < n; i++)
        b.values[i] = batch_random_float(&random_state);
    check(embd_push(client, &part, 1, &options));
    assert_int_equal(batch_push(b.model, &b.batch, pooled, b.values, b.expected_statuses), EMBD_OK);
    assert_memory_equal(b.statuses, b.expected_statuses, b.batch.n_keys);
}

static void erase_and_compare(void)
{
    embd_part part = part_of(true);
    struct model_batch batch = {
        .n_keys = (uint32_t)b.batch.n_keys,
        .n_rows = (uint32_t)b.batch.n_rows,
        .keys = b.batch.stored,
        .offsets = b.batch.offsets32,
        .slots = b.model->schema.partition == EMBD_PARTITION_SLOT ? b.batch.row_slots : NULL};
    /* Neither means anything here. */
    embd_call_options options =
        EMBD_CALL_OPTIONS(.plan = EMBD_PLAN_ROWS,
                          .wire = (embd_dtype)(batch_random(&random_state) % WIRES));
    part.values = NULL;
    check(embd_erase(client, &part, 1, &options));
    model_erase(b.model, &batch, b.expected_statuses);
    assert_memory_equal(b.statuses, b.expected_statuses, b.batch.n_keys);
}

/* Every row the model has. */
static void compare_table(void)
{
    uint32_t dim = b.model->schema.dim;
    bool has_slots = b.model->schema.partition == EMBD_PARTITION_SLOT;
    for (uint64_t i = 0; i < b.model->n_keys; i++) {
        const struct model_key *key = b.model->keys[i];
        uint64_t offsets[EMBD_SLOTS_MAX + 1] = {0};
        uint32_t slots = b.model->schema.slots;
        uint64_t asked = key->key;
        if (!key->has_row || b.model->schema.slot_sizes != NULL)
            continue;
        for (uint32_t s = 0; s < slots; s++)
            offsets[s + 1] = offsets[s] + (s == (has_slots ? key->slot : 0));
        embd_part part = EMBD_PART(.table = b.table, .n_rows = slots, .offsets = offsets,
                                   .n_keys = 1, .keys = &asked, .values = b.values, .raw = true);
        check(embd_pull(client, &part, 1, NULL));
        assert_memory_equal(b.values, key->w, dim * sizeof(float));
    }
}

static void train(int steps, uint64_t n_distinct)
{
    static unsigned n_pulls;
    for (int step = 0; step < steps; step++) {
        bool has_weights = step % 2 == 1;
        embd_plan plan = step % 3 == 0 ? EMBD_PLAN_ROWS : EMBD_PLAN_POOLED;
        batch_make(&b.batch, &b.model->schema, 7, n_distinct, has_weights, &random_state);
        pull_and_compare(step % 4 == 3, plan, (embd_dtype)(n_pulls++ % WIRES));
        push_and_compare(step % 4 == 2, plan);
        pull_and_compare(false, EMBD_PLAN_ROWS, EMBD_DTYPE_F32);
        pull_and_compare(false, EMBD_PLAN_POOLED, EMBD_DTYPE_F32);
    }
    compare_table();
}

static void base_schema(embd_schema *schema)
{
    embd_schema_init(schema);
    strcpy(schema->name, "t");
    schema->dim = 5;
    schema->slots = 3;
    schema->seed = batch_random(&random_state);
}

static void every_kind_of_table_equals_the_model(void **state)
{
    uint32_t n_kinds = n_shards; /* other numbers of shards begin elsewhere */
    (void)state;
    for (int optimizer = EMBD_OPTIMIZER_SGD; optimizer <= EMBD_OPTIMIZER_FTRL; optimizer++)
        for (int combiner = EMBD_COMBINER_CONCAT; combiner <= EMBD_COMBINER_SQRTN; combiner++)
            for (int partition = EMBD_PARTITION_HASH; partition <= EMBD_PARTITION_SLOT; partition++)
                for (int dtype = EMBD_DTYPE_F32; dtype <= EMBD_DTYPE_BF16; dtype++) {
                    embd_schema schema;
                    if (n_kinds++ % STRIDE != 0)
                        continue;
                    base_schema(&schema);
                    embd_optimizer_init(&schema.optimizer, (embd_optimizer_kind)optimizer, 0.05f);
                    schema.combiner = (embd_combiner)combiner;
                    schema.partition = (embd_partition)partition;
                    schema.dtype = (embd_dtype)dtype;
                    open_bench(&schema);
                    train(3, 40); /* with other wires than the table before */
                    close_bench();
                }
}

static void slot_sizes_offset_and_bound_keys(void **state)
{
    static const uint64_t sizes[3] = {10, 3, 25};
    (void)state;
    for (int partition = EMBD_PARTITION_HASH; partition <= EMBD_PARTITION_SLOT; partition++) {
        embd_schema schema;
        base_schema(&schema);
        schema.slot_sizes = sizes;
        schema.partition = (embd_partition)partition;
        schema.initializer.kind = EMBD_INITIALIZER_UNIFORM_SLOT;
        open_bench(&schema);
        train(4, 25);
        b.batch.keys[0] = sizes[b.batch.key_slots[0]];
        embd_part part = part_of(true);
        assert_int_equal(embd_pull(client, &part, 1, NULL), EMBD_INVALID);
        assert_non_null(strstr(embd_error_text(), "keys[0]"));
        close_bench();
    }
}

static void keys_wait_for_their_row_where_the_table_says_so(void **state)
{
    embd_schema schema;
    (void)state;
    base_schema(&schema);
    schema.admit_after = 3;
    open_bench(&schema);
    train(6, 60);
    close_bench();
}

static void erased_keys_start_anew(void **state)
{
    static const uint64_t sizes[3] = {10, 3, 25};
    (void)state;
    for (int partition = EMBD_PARTITION_HASH; partition <= EMBD_PARTITION_SLOT; partition++) {
        embd_schema schema;
        base_schema(&schema);
        schema.partition = (embd_partition)partition;
        schema.slot_sizes = partition == EMBD_PARTITION_MODULO ? sizes : NULL;
        schema.admit_after = partition == EMBD_PARTITION_HASH ? 2 : 0;
        embd_optimizer_init(&schema.optimizer, EMBD_OPTIMIZER_ADAM, 0.05f);
        open_bench(&schema);
        for (int round = 0; round < 5; round++) {
            train(2, 25);
            batch_make(&b.batch, &b.model->schema, 3, 25, false, &random_state);
            erase_and_compare();
            pull_and_compare(false, EMBD_PLAN_POOLED, EMBD_DTYPE_F32);
        }
        train(2, 25);
        close_bench();
    }
}

static void pulls_create_rows_where_the_table_says_so(void **state)
{
    (void)state;
    for (uint32_t admit_after = 0; admit_after < 3; admit_after++) {
        embd_schema schema;
        base_schema(&schema);
        schema.create_on = EMBD_CREATE_ON_PULL;
        schema.admit_after = admit_after;
        open_bench(&schema);
        train(4, 60);
        close_bench();
    }
}

/* Single rows have the same bits by either plan, whichever is chosen. */
static void the_chosen_plan_gives_the_same_bits(void **state)
{
    (void)state;
    for (uint64_t n_distinct = 20; n_distinct <= 100000; n_distinct *= 5000) {
        embd_schema schema;
        base_schema(&schema);
        open_bench(&schema);
        for (int step = 0; step < 70; step++) {
            batch_make(&b.batch, &schema, 200, n_distinct, false, &random_state);
            if (step % 10 == 0)
                push_and_compare(step % 20 == 0, EMBD_PLAN_AUTO);
            pull_and_compare(true, EMBD_PLAN_AUTO, EMBD_DTYPE_F32);
        }
        close_bench();
    }
}

static void a_full_table_says_which_keys_had_no_room(void **state)
{
    embd_schema schema;
    (void)state;
    if (n_shards != 1)
        return; /* the bound is a shard's, the model is one table */
    base_schema(&schema);
    schema.on_full = EMBD_ON_FULL_ERROR;
    schema.capacity = 20;
    open_bench(&schema);
    train(6, 60);
    batch_make(&b.batch, &schema, 30, 400, false, &random_state);
    embd_part part = part_of(true);
    part.statuses = NULL;
    memset(b.values, 0, sizeof b.values);
    assert_int_equal(embd_push(client, &part, 1, NULL), EMBD_FULL);
    close_bench();
}

/* More than 256 occurrences of one key: runs of sums. */
static void often_repeated_keys_are_summed_in_the_same_shape_by_both_plans(void **state)
{
    (void)state;
    for (int plan = EMBD_PLAN_POOLED; plan <= EMBD_PLAN_ROWS; plan++) {
        embd_schema schema;
        base_schema(&schema);
        schema.slots = 1;
        schema.combiner = EMBD_COMBINER_MEAN;
        open_bench(&schema);
        batch_make(&b.batch, &schema, 800, 3, false, &random_state);
        assert_true(b.batch.n_keys > 3 * 2 * 256);
        push_and_compare(false, (embd_plan)plan);
        batch_make(&b.batch, &schema, 800, 3, true, &random_state);
        push_and_compare(false, (embd_plan)plan);
        batch_make(&b.batch, &schema, 800, 3, true, &random_state);
        push_and_compare(true, (embd_plan)plan);
        compare_table();
        close_bench();
    }
}

/* One key a row, each once, whose gradients are thirds: what comes there is what the wire's dtype
 * holds of them. */
static void push_thirds(embd_plan plan, embd_dtype wire, const embd_pusher *pusher,
                        uint64_t sequence)
{
    static float rounded[sizeof b.values / sizeof *b.values];
    uint32_t dim = b.model->schema.dim;
    struct model_chance chance = {.table = embd__table_id(b.model->schema.name)};
    if (pusher != NULL)
        chance = (struct model_chance){pusher->high ^ pusher->low,
                                       sequence ^ (uint64_t)pusher->stream << 32, chance.table};
    b.batch.n_rows = b.batch.n_keys = 30;
    b.batch.has_weights = false;
    for (uint32_t i = 0; i <= 30; i++) {
        b.batch.offsets[i] = b.batch.offsets32[i] = i;
        b.batch.keys[i] = b.batch.stored[i] = 1000 + i;
        b.batch.row_slots[i] = b.batch.key_slots[i] = (uint16_t)(i % b.model->schema.slots);
        b.batch.key_rows[i] = i;
    }
    for (uint32_t i = 0; i < 30 * dim; i++)
        rounded[i] = b.values[i] = (float)(i + 1) / 3.0f;
    for (uint32_t i = 0; i < 30; i++)
        model_round_row(rounded + i * dim, dim, wire, pusher != NULL ? &chance : NULL, i);
    assert_memory_not_equal(rounded, b.values, 30 * dim * sizeof *rounded);
    embd_part part = part_of(true);
    embd_call_options options =
        EMBD_CALL_OPTIONS(.plan = plan, .wire = wire, .pusher = pusher, .sequence = sequence);
    check(embd_push(client, &part, 1, &options));
    assert_int_equal(batch_push(b.model, &b.batch, true, rounded, NULL), EMBD_OK);
}

static void gradients_travel_in_half_precision(void **state)
{
    (void)state;
    for (int wire = EMBD_DTYPE_F16; wire <= EMBD_DTYPE_BF16; wire++)
        for (int plan = EMBD_PLAN_AUTO; plan <= EMBD_PLAN_ROWS; plan++) {
            embd_schema schema;
            base_schema(&schema);
            open_bench(&schema);
            batch_make(&b.batch, &schema, 10, 30, false, &random_state);
            embd_part part = part_of(true);
            embd_call_options options =
                EMBD_CALL_OPTIONS(.plan = (embd_plan)plan, .wire = (embd_dtype)wire);
            for (uint64_t i = 0; i < b.batch.n_rows * schema.dim; i++)
                b.values[i] = (float)(batch_random(&random_state) % 9) - 4;
            check(embd_push(client, &part, 1, &options));
            assert_int_equal(batch_push(b.model, &b.batch, true, b.values, NULL), EMBD_OK);
            push_thirds((embd_plan)plan, (embd_dtype)wire, NULL, 0);
            compare_table();
            close_bench();
        }
}

/* By chance, of the pusher's id and number alone: the same push has the same bytes whoever makes it
 * again. */
static void gradients_travel_as_i8_and_i4(void **state)
{
    embd_client *first = client, *other;
    (void)state;
    check(embd_connect(cluster.address, NULL, &other));
    for (int wire = EMBD_DTYPE_I8; wire <= EMBD_DTYPE_I4; wire++)
        for (int plan = EMBD_PLAN_POOLED; plan <= EMBD_PLAN_ROWS; plan++) {
            /* Rows of distinct keys are counted in the order of the shards. */
            if (plan == EMBD_PLAN_ROWS && n_shards > 1)
                continue;
            embd_pusher pusher = {.stream = 3};
            embd_schema schema;
            check(embd_pusher_new(&pusher));
            base_schema(&schema);
            open_bench(&schema);
            push_thirds((embd_plan)plan, (embd_dtype)wire, &pusher, 1);
            push_thirds((embd_plan)plan, (embd_dtype)wire, &pusher, 2);
            compare_table();
            client = other;
            check(embd_table_open(client, schema.name, &b.table));
            push_thirds((embd_plan)plan, (embd_dtype)wire, &pusher, 3);
            compare_table();
            client = first;
            close_bench();
        }
    embd_close(other);
}

/* A gradient that is not finite has no code: its row's scale says so. */
static void an_infinite_gradient_is_refused_on_every_wire(void **state)
{
    embd_schema schema;
    (void)state;
    base_schema(&schema);
    schema.admit_nonfinite = true;
    open_bench(&schema);
    for (int wire = EMBD_DTYPE_I8; wire <= EMBD_DTYPE_I4; wire++) {
        const uint64_t key = 77;
        float grad[DIM_MAX] = {1, 2, INFINITY};
        embd_part part =
            EMBD_PART(.table = b.table, .n_keys = 1, .keys = &key, .values = grad, .raw = true);
        embd_call_options options = EMBD_CALL_OPTIONS(.wire = (embd_dtype)wire);
        assert_int_equal(embd_push(client, &part, 1, &options), EMBD_NOT_FINITE);
        assert_non_null(strstr(embd_error_text(), "the scale is nan"));
    }
    close_bench();
}

static void one_call_carries_many_parts_and_several_calls_are_in_flight(void **state)
{
    enum { N_CALLS = 6, N_PARTS = 50 };
    static float values[N_CALLS][N_PARTS][BATCH_KEYS_MAX];
    embd_part parts[N_CALLS][N_PARTS];
    embd_call *calls[N_CALLS];
    embd_schema schema;
    (void)state;
    base_schema(&schema);
    open_bench(&schema);
    batch_make(&b.batch, &schema, 20, 50, true, &random_state);
    push_and_compare(false, EMBD_PLAN_AUTO);
    for (int c = 0; c < N_CALLS; c++) {
        embd_call_options options =
            EMBD_CALL_OPTIONS(.plan = c % 2 ? EMBD_PLAN_POOLED : EMBD_PLAN_ROWS);
        for (int p = 0; p < N_PARTS; p++) {
            parts[c][p] = part_of(true);
            parts[c][p].values = values[c][p];
            parts[c][p].statuses = p % 2 ? b.statuses : NULL;
        }
        check(embd_pull_start(client, parts[c], N_PARTS, &options, &calls[c]));
    }
    while (!embd_is_done(calls[N_CALLS - 1]))
        continue;
    for (int c = N_CALLS - 1; c >= 0; c--) {
        check(embd_wait(calls[c]));
        batch_expect(b.model, &b.batch, true, c % 2 == 0, n_shards, EMBD_DTYPE_F32, false,
                     b.expected, b.expected_statuses);
        for (int p = 0; p < N_PARTS; p++)
            assert_memory_equal(values[c][p], b.expected,
                                b.batch.n_rows * schema.dim * sizeof(float));
    }
    close_bench();
}

/* Enough gradients that the keys are sent before they are made, and that the shard looks ahead. */
static void large_pushes_whose_keys_go_first_equal_the_model(void **state)
{
    enum { KEYS = 20000, DISTINCT = 6000, DIM = 64 };
    static uint64_t keys[KEYS], all[DISTINCT];
    static float grads[KEYS * DIM], rounded[KEYS * DIM], values[DISTINCT * DIM],
        expected[DISTINCT * DIM];
    embd_schema schema;
    (void)state;
    base_schema(&schema);
    schema.dim = DIM;
    schema.combiner = EMBD_COMBINER_CONCAT;
    open_bench(&schema);
    for (uint64_t i = 0; i < DISTINCT; i++)
        all[i] = i * 0x9e3779b97f4a7c15u;
    for (int round = 0; round < 6; round++) {
        embd_call_options options =
            EMBD_CALL_OPTIONS(.plan = round % 2 ? EMBD_PLAN_ROWS : EMBD_PLAN_POOLED,
                              .wire = round < 4 ? EMBD_DTYPE_F32 : EMBD_DTYPE_BF16);
        for (uint32_t i = 0; i < KEYS; i++)
            keys[i] = all[batch_random(&random_state) % DISTINCT];
        for (uint32_t i = 0; i < KEYS * DIM; i++) /* sums of these are exact in every dtype */
            rounded[i] = grads[i] = (float)(batch_random(&random_state) % 8);
        struct model_batch batch = {.n_keys = KEYS, .n_rows = KEYS, .keys = keys};
        assert_int_equal(model_push(b.model, &batch, rounded, false, NULL, NULL), EMBD_OK);
        embd_part part = EMBD_PART(.table = b.table, .n_keys = KEYS, .keys = keys, .values = grads);
        check(embd_push(client, &part, 1, &options));
        struct model_batch every = {.n_keys = DISTINCT, .n_rows = DISTINCT, .keys = all};
        model_pull(b.model, &every, false, false, expected, NULL);
        part = (embd_part)EMBD_PART(.table = b.table, .n_keys = DISTINCT, .keys = all,
                                    .values = values);
        memset(values, 0x55, sizeof values);
        options = (embd_call_options)
            EMBD_CALL_OPTIONS(.plan = EMBD_PLAN_POOLED); /* more than a receive buffer */
        check(embd_pull(client, &part, 1, &options));
        assert_memory_equal(values, expected, sizeof values);
    }
    close_bench();
}

static uint32_t n_sends, n_pulls;

/* One send of a link, by its socket or its ring. */
static void count_send(const struct iovec *iov)
{
    static const char method[] = "\xa4pull"; /* behind a request's kind and number */
    size_t head = iov[0].iov_len < 16 ? iov[0].iov_len : 16;
    const uint8_t *first = iov[0].iov_base;
    n_sends++;
    n_pulls += head > 0 && first[0] == 0x94 && memmem(first, head, method, sizeof method - 1);
}

ssize_t __real_embd__socket_send(int fd, struct iovec *iov, size_t n);
ssize_t __wrap_embd__socket_send(int fd, struct iovec *iov, size_t n);

ssize_t __wrap_embd__socket_send(int fd, struct iovec *iov, size_t n)
{
    static const uint8_t of_trunk[4] = {2}; /* DATA */
    bool is_chunk = iov[0].iov_len > 4 && memcmp(iov[0].iov_base, of_trunk, 4) == 0;
    if (!is_chunk)
        count_send(iov);
    return __real_embd__socket_send(fd, iov, n);
}

/* With trunks: messages that a link begins, in place of what goes by the trunk's socket. A chunk
 * has 64 KiB at most. */
ssize_t __real_embd__trunk_send(struct trunk_line *line, const struct iovec *iov, size_t n);
ssize_t __wrap_embd__trunk_send(struct trunk_line *line, const struct iovec *iov, size_t n);

ssize_t __wrap_embd__trunk_send(struct trunk_line *line, const struct iovec *iov, size_t n)
{
    ssize_t sent = __real_embd__trunk_send(line, iov, n);
    if (sent > 0 && *(const uint8_t *)iov[0].iov_base == 0x94)
        count_send(iov);
    return sent;
}

ssize_t __real_embd__channel_put(struct channel *ch, const struct iovec *iov, size_t n);
ssize_t __wrap_embd__channel_put(struct channel *ch, const struct iovec *iov, size_t n);

ssize_t __wrap_embd__channel_put(struct channel *ch, const struct iovec *iov, size_t n)
{
    count_send(iov);
    return __real_embd__channel_put(ch, iov, n);
}

/* However many they are in all: keys go first only where the gradients of each shard are many. */
static void small_shares_of_a_push_are_sent_in_one_piece(void **state)
{
    enum { KEYS = 9000, DIM = 8 }; /* 288 KB */
    static uint64_t keys[KEYS];
    static float grads[KEYS * DIM];
    embd_schema schema;
    (void)state;
    if (n_shards == 1)
        skip();
    base_schema(&schema);
    schema.dim = DIM;
    schema.combiner = EMBD_COMBINER_CONCAT;
    open_bench(&schema);
    for (uint64_t i = 0; i < KEYS; i++)
        keys[i] = i * 0x9e3779b97f4a7c15u;
    embd_part part = EMBD_PART(.table = b.table, .n_keys = KEYS, .keys = keys, .values = grads);
    embd_call_options options = EMBD_CALL_OPTIONS(.plan = EMBD_PLAN_POOLED);
    check(embd_push(client, &part, 1, &options)); /* also opens a stream on each shard */
    n_sends = 0;
    check(embd_push(client, &part, 1, &options));
    assert_int_equal(n_sends, n_shards);
    close_bench();
}

/* However wide the rows are: they are put in their places as they come. */
static void a_pull_keeps_no_rows_in_memory_of_the_client(void **state)
{
    enum { KEYS = 20000, DIM = 67, KEY_BYTES = 32, SHARD_BYTES = 16 << 10 };
    static uint64_t keys[KEYS];
    static float values[KEYS * DIM], expected[KEYS * DIM];
    embd_schema schema;
    embd_client *own;
    embd_table *table;
    (void)state;
    base_schema(&schema);
    schema.dim = DIM;
    schema.combiner = EMBD_COMBINER_CONCAT;
    open_bench(&schema);
    check(embd_connect(cluster.address, NULL, &own));
    check(embd_table_open(own, schema.name, &table));
    for (uint64_t i = 0; i < KEYS; i++)
        keys[i] = i * 0x9e3779b97f4a7c15u;
    struct model_batch batch = {.n_keys = KEYS, .n_rows = KEYS, .keys = keys};
    model_pull(b.model, &batch, false, false, expected, NULL);
    embd_part part = EMBD_PART(.table = table, .n_keys = KEYS, .keys = keys, .values = values);
    for (int wire = EMBD_DTYPE_F32; wire < WIRES; wire++) {
        embd_call_options options =
            EMBD_CALL_OPTIONS(.plan = EMBD_PLAN_POOLED, .wire = (embd_dtype)wire);
        memset(values, 0x55, sizeof values);
        for (int again = 0; again < 2; again++) /* the arena has its size after the first */
            check(embd_pull(own, &part, 1, &options));
        if (wire == EMBD_DTYPE_F32)
            assert_memory_equal(values, expected, sizeof values);
        for (const struct embd_call *call = own->calls; call != NULL; call = call->next)
            assert_in_range(call->arena.capacity, 1, KEYS * KEY_BYTES + n_shards * SHARD_BYTES);
    }
    embd_close(own);
    close_bench();
}

static void stop_server(void)
{
    int status;
    assert_int_equal(kill(cluster.pid, SIGSTOP), 0);
    assert_int_equal(waitpid(cluster.pid, &status, WUNTRACED), cluster.pid);
    assert_true(WIFSTOPPED(status));
}

/* Other calls wait, where a shard still has much to answer: their answers would only fill the
 * buffers of the kernel. */
static void calls_in_flight_are_asked_for_as_answers_come(void **state)
{
    enum { KEYS = 640, CALLS = 5 }; /* 10 MiB each */
    static uint64_t keys[KEYS];
    static float values[CALLS][KEYS * EMBD_DIM_MAX];
    embd_schema schema;
    embd_call *calls[CALLS];
    if (cluster.pid == 0)
        skip(); /* this process cannot stop its own server */
    embd_call_options options = EMBD_CALL_OPTIONS(.plan = EMBD_PLAN_POOLED);
    (void)state;
    base_schema(&schema);
    schema.dim = EMBD_DIM_MAX;
    schema.combiner = EMBD_COMBINER_CONCAT;
    open_bench(&schema);
    for (uint64_t i = 0; i < KEYS; i++)
        keys[i] = i;
    stop_server();
    n_pulls = 0;
    for (uint32_t c = 0; c < CALLS; c++) {
        embd_part part =
            EMBD_PART(.table = b.table, .n_keys = KEYS, .keys = keys, .values = values[c]);
        check(embd_pull_start(client, &part, 1, &options, &calls[c]));
    }
    for (int i = 0; i < 10; i++)
        assert_false(embd_is_done(calls[0]));
    assert_in_range(n_pulls, n_shards, 3 * n_shards);
    assert_int_equal(kill(cluster.pid, SIGCONT), 0);
    struct model_batch batch = {.n_keys = KEYS, .n_rows = KEYS, .keys = keys};
    static float expected[KEYS * EMBD_DIM_MAX];
    model_pull(b.model, &batch, false, false, expected, NULL);
    for (uint32_t c = 0; c < CALLS; c++) {
        check(embd_wait(calls[c]));
        assert_memory_equal(values[c], expected, sizeof expected);
    }
    /* One may be asked for again, where a busy host made the connection look lost. */
    assert_in_range(n_pulls, CALLS * n_shards, 2 * CALLS * n_shards);
    close_bench();
}

static void batches_without_keys_and_without_rows_are_fine(void **state)
{
    static const uint64_t offsets[4] = {0};
    embd_schema schema;
    (void)state;
    base_schema(&schema);
    open_bench(&schema);
    embd_part part =
        EMBD_PART(.table = b.table, .n_rows = 3, .offsets = offsets, .values = b.values);
    for (int plan = EMBD_PLAN_AUTO; plan <= EMBD_PLAN_ROWS; plan++) {
        embd_call_options options = EMBD_CALL_OPTIONS(.plan = (embd_plan)plan);
        memset(b.values, 0x55, sizeof b.values);
        check(embd_pull(client, &part, 1, &options));
        for (uint32_t i = 0; i < 3 * schema.dim; i++)
            assert_memory_equal(&b.values[i], &(float){0}, sizeof(float));
        check(embd_push(client, &part, 1, &options));
        embd_part nothing = EMBD_PART(.table = b.table);
        check(embd_pull(client, &nothing, 1, &options));
        check(embd_push(client, &nothing, 1, &options));
        check(embd_pull(client, NULL, 0, &options));
        check(embd_push(client, NULL, 0, &options));
    }
    close_bench();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_table_equals_the_model),
        cmocka_unit_test(slot_sizes_offset_and_bound_keys),
        cmocka_unit_test(keys_wait_for_their_row_where_the_table_says_so),
        cmocka_unit_test(erased_keys_start_anew),
        cmocka_unit_test(pulls_create_rows_where_the_table_says_so),
        cmocka_unit_test(the_chosen_plan_gives_the_same_bits),
        cmocka_unit_test(a_full_table_says_which_keys_had_no_room),
        cmocka_unit_test(often_repeated_keys_are_summed_in_the_same_shape_by_both_plans),
        {"S3.11 gradients travel in half precision, tagged with their dtype",
         gradients_travel_in_half_precision, NULL, NULL, NULL},
        cmocka_unit_test(gradients_travel_as_i8_and_i4),
        cmocka_unit_test(an_infinite_gradient_is_refused_on_every_wire),
        cmocka_unit_test(one_call_carries_many_parts_and_several_calls_are_in_flight),
        cmocka_unit_test(large_pushes_whose_keys_go_first_equal_the_model),
        cmocka_unit_test(small_shares_of_a_push_are_sent_in_one_piece),
        cmocka_unit_test(a_pull_keeps_no_rows_in_memory_of_the_client),
        cmocka_unit_test(calls_in_flight_are_asked_for_as_answers_come),
        cmocka_unit_test(batches_without_keys_and_without_rows_are_fine),
    };
    if (argc != 3)
        return 2;
    program = argv[1];
    n_shards = (uint32_t)strtoul(argv[2], NULL, 10);
    return cmocka_run_group_tests(tests, connect_all, disconnect_all);
}
