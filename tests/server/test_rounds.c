/* test_rounds.c - synchronous SGD: whatever the order in which the pushes of a job's workers
 * arrive, the table and every answer have the same bits as those of one push that the test puts
 * together itself; and what becomes of a round when a worker dies, comes back, leaves, or is
 * refused. */
#include "tests/server/batch.h"
#include "tests/server/deferred_store.h"
#include "tests/server/rig.h"

#include <stdio.h>
#include <string.h>

#include "proto/dtype.h"
#include "proto/route.h"

#define WORKERS 4u
#define LEASE   1000u
#define STEPS   5u
#define ORDERS  12u

/* ---- one worker's push ---- */

struct worker {
    struct shard_session session;
    struct exchange *x; /* under way; NULL */
};

static struct exchange *send_round(struct rig *rig, struct shard_session *session,
                                   const struct part *part, uint32_t worker, uint64_t clock)
{
    struct push_extra extra = {.round = {"job", worker, WORKERS, clock, LEASE, 0, 0}};
    struct exchange *x = ask(rig, session, METHOD_PUSH);
    embd__push_write(&x->out, part, 1, &extra);
    ask_send(x);
    return x;
}

static struct push_answer take_answer(struct exchange *x, uint8_t *statuses)
{
    struct push_answer answer;
    ask_ok(x);
    bool again;
    assert_int_equal(embd__push_answer_read(&x->reader, &answer, 1, &again), 1);
    if (answer.statuses != NULL)
        memcpy(statuses, answer.statuses, answer.n_keys);
    ask_free(x);
    return answer;
}

/* ---- the order does not matter ---- */

static const struct shape {
    embd_partition partition;
    embd_combiner combiner;
    embd_optimizer_kind optimizer;
    bool weighted; /* odd workers' pushes have weights */
    bool halves;   /* odd workers' gradients are f16 */
} shapes[] = {
    {EMBD_PARTITION_HASH, EMBD_COMBINER_CONCAT, EMBD_OPTIMIZER_SGD, false, false},
    {EMBD_PARTITION_MODULO, EMBD_COMBINER_SUM, EMBD_OPTIMIZER_ADAGRAD, true, true},
    {EMBD_PARTITION_SLOT, EMBD_COMBINER_MEAN, EMBD_OPTIMIZER_ADAM, true, true},
};

static embd_schema schema_of(const struct shape *shape)
{
    embd_schema schema;
    embd_schema_init(&schema);
    strcpy(schema.name, "items");
    schema.dim = 6;
    schema.partition = shape->partition;
    schema.combiner = shape->combiner;
    schema.slots = shape->partition == EMBD_PARTITION_SLOT ? 3 : 1;
    embd_optimizer_init(&schema.optimizer, shape->optimizer, 0.05f);
    return schema;
}

/* What the workers push in every step, the same for all orders. */
static struct batch batches[WORKERS];

static void make_batches(const embd_schema *schema, uint64_t seed)
{
    for (uint32_t w = 0; w < WORKERS; w++) {
        batches[w].random = seed * WORKERS + w;
        batch_fill(&batches[w], schema);
    }
}

static struct part part_of(const struct shape *shape, const embd_schema *schema, uint32_t w)
{
    return batch_part(&batches[w], schema, shape->halves && w % 2 ? EMBD_DTYPE_F16 : EMBD_DTYPE_F32,
                      shape->weighted && w % 2 && shape->combiner != EMBD_COMBINER_CONCAT);
}

/* The batches one behind another, gradients divided: what a round should be. */
static struct {
    uint64_t keys[WORKERS * BATCH_KEYS];
    uint32_t offsets[WORKERS * BATCH_ROWS + 1];
    uint16_t slots[WORKERS * BATCH_KEYS];
    float weights[WORKERS * BATCH_KEYS], grads[WORKERS * BATCH_KEYS * 64];
} joined;

static struct part join(const struct shape *shape, const embd_schema *schema)
{
    uint32_t key = 0, row = 0;
    for (uint32_t w = 0; w < WORKERS; w++) {
        struct part part = part_of(shape, schema, w);
        memcpy(joined.keys + key, part.keys, 8 * (size_t)part.n_keys);
        for (uint32_t k = 0; k < part.n_keys; k++)
            joined.weights[key + k] = part.weights != NULL ? part.weights[k] : 1;
        for (uint32_t r = 0; r < part.n_rows; r++) {
            if (part.offsets != NULL)
                joined.offsets[row + r + 1] = key + part.offsets[r + 1];
            if (part.slots != NULL)
                joined.slots[row + r] = part.slots[r];
        }
        for (uint32_t i = 0; i < part.n_rows * schema->dim; i++)
            joined.grads[row * schema->dim + i] = batches[w].grads[i] / (float)WORKERS;
        key += part.n_keys;
        row += part.n_rows;
    }
    return (struct part){.table = embd__table_id(schema->name),
                         .n_keys = key,
                         .n_rows = row,
                         .want_status = true,
                         .keys = joined.keys,
                         .offsets = shape->combiner == EMBD_COMBINER_CONCAT ? NULL : joined.offsets,
                         .slots = shape->partition == EMBD_PARTITION_SLOT ? joined.slots : NULL,
                         .weights = shape->weighted ? joined.weights : NULL,
                         .grads = joined.grads,
                         .grads_bytes = 4 * (uint64_t)row * schema->dim};
}

static void shuffle(uint32_t *order, uint64_t *seed)
{
    for (uint32_t i = WORKERS; i > 1; i--) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        uint32_t j = (uint32_t)(*seed >> 33) % i, swapped = order[i - 1];
        order[i - 1] = order[j];
        order[j] = swapped;
    }
}

/* One step; the answers are compared with those to the joined push. */
static void step_in_order(struct rig *rig, struct worker *workers, const uint32_t *order,
                          const struct shape *shape, const embd_schema *schema, uint64_t clock,
                          const struct push_answer *expected, const uint8_t *statuses)
{
    uint8_t own[BATCH_KEYS];
    for (uint32_t i = 0; i < WORKERS; i++) {
        uint32_t w = order[i];
        struct part part = part_of(shape, schema, w);
        workers[w].x = send_round(rig, &workers[w].session, &part, w, clock);
        assert_int_equal(workers[w].x->is_answered, i == WORKERS - 1);
    }
    for (uint32_t w = 0; w < WORKERS; w++) {
        struct push_answer answer = take_answer(workers[w].x, own);
        assert_int_equal(answer.step, expected->step);
        assert_int_equal(answer.n_inserted, expected->n_inserted);
        assert_memory_equal(own, statuses, batches[w].n_keys);
        statuses += batches[w].n_keys;
    }
}

static void every_order_of_arrival_gives_the_bits_of_one_joined_push(void **state)
{
    static uint8_t statuses[WORKERS * BATCH_KEYS];
    (void)state;
    for (uint32_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        embd_schema schema = schema_of(&shapes[s]);
        uint64_t seed = s;
        for (uint32_t o = 0; o < ORDERS; o++) {
            struct rig rig, reference;
            struct worker workers[WORKERS] = {0};
            struct image image;
            uint32_t order[WORKERS] = {0, 1, 2, 3};
            rig_open(&rig, &store_host, 0, 1, NULL);
            rig_open(&reference, &store_host, 0, 1, NULL);
            create_table(&rig, &schema);
            create_table(&reference, &schema);
            for (uint64_t clock = 0; clock < STEPS; clock++) {
                make_batches(&schema, s * STEPS + clock + 1);
                struct part part = join(&shapes[s], &schema);
                struct push_answer expected = push(&reference, &part, statuses);
                shuffle(order, &seed);
                step_in_order(&rig, workers, order, &shapes[s], &schema, clock, &expected,
                              statuses);
            }
            assert_int_equal(figure(&rig, NULL, "round_steps"), STEPS);
            image_take(&reference, "items", &image);
            image_check(&rig, "items", &image);
            image_fini(&image);
            rig_close(&rig);
            rig_close(&reference);
        }
    }
}

/* ---- workers that die, come back and leave ---- */

static const uint64_t key_seven[1] = {7};
static const float gradient[2] = {4, 8};
static const struct part one = {
    .n_keys = 1, .n_rows = 1, .keys = key_seven, .grads = gradient, .grads_bytes = 8};

struct job {
    struct rig rig;
    struct worker workers[WORKERS];
};

static void send_one(struct job *job, uint32_t w, uint64_t clock)
{
    struct part part = one;
    part.table = embd__table_id("items");
    job->workers[w].x = send_round(&job->rig, &job->workers[w].session, &part, w, clock);
}

static void send_to(struct job *job, uint32_t from, uint32_t to, uint64_t clock)
{
    for (uint32_t w = from; w < to; w++)
        send_one(job, w, clock);
}

/* The answers of workers from .. to - 1, to the step of that number. */
static void check_step(struct job *job, uint32_t from, uint32_t to, uint64_t step)
{
    uint8_t none[1];
    for (uint32_t w = from; w < to; w++) {
        assert_true(job->workers[w].x->is_answered);
        assert_int_equal(take_answer(job->workers[w].x, none).step, step);
    }
}

static void check_waiting(const struct job *job, uint32_t from, uint32_t to)
{
    for (uint32_t w = from; w < to; w++)
        assert_false(job->workers[w].x->is_answered);
}

/* As the timer of a shard does; time in one piece would be a shard that slept. */
static void pass(struct job *job, uint64_t ms)
{
    for (uint64_t piece; ms > 0; ms -= piece) {
        piece = ms < 100 ? ms : 100;
        job->rig.now_ns += piece * 1000000;
        shard_tick(job->rig.shard, job->rig.now_ns);
    }
}

/* A worker's clock. EMBD_OK, or the status of the answer. */
static int tick(struct job *job, uint32_t w, uint64_t clock, bool leave)
{
    struct exchange *x = ask(&job->rig, &job->rig.data, METHOD_TICK);
    embd__msg_map(&x->out, 6);
    embd__msg_field_str(&x->out, "job", "job");
    embd__msg_field_uint(&x->out, "worker", w);
    embd__msg_field_uint(&x->out, "workers", WORKERS);
    embd__msg_field_uint(&x->out, "clock", clock);
    embd__msg_field_uint(&x->out, "lease_ms", LEASE);
    embd__msg_field_bool(&x->out, "leave", leave);
    ask_send(x);
    ask_read(x);
    int status = x->reader.answer_status;
    ask_free(x);
    return status;
}

/* With first values 0 and lr 1 the row is minus the sum of the means so far. */
static void check_row(struct job *job, float first)
{
    float row[2];
    struct part part = one;
    part.table = embd__table_id("items");
    pull(&job->rig, &part, row, NULL);
    assert_true(row[0] == first && row[1] == 2 * first);
}

static void the_first_round_waits_until_all_have_been_seen(void **state)
{
    struct job *job = *state;
    send_to(job, 0, 3, 0);
    pass(job, 10 * LEASE);
    check_waiting(job, 0, 3);
    assert_int_equal(figure(&job->rig, NULL, "round_pushes_waiting"), 3);
    send_one(job, 3, 0);
    check_step(job, 0, 4, 1);
    check_row(job, -4);
}

static void a_dead_worker_is_dropped_after_its_lease_and_comes_back(void **state)
{
    struct job *job = *state;
    send_to(job, 0, 4, 0);
    check_step(job, 0, 4, 1);
    send_to(job, 0, 3, 1);
    pass(job, LEASE - 1);
    check_waiting(job, 0, 3);
    pass(job, 12);
    check_step(job, 0, 3, 2);
    check_row(job, -8); /* the mean of three */
    send_one(job, 3, 1);
    ask_error(job->workers[3].x, EMBD_LATE, "worker 3", "passed clock 1 without it", "is at 2",
              NULL);
    send_one(job, 3, 2);
    send_to(job, 0, 2, 2);
    check_waiting(job, 0, 2);
    send_one(job, 2, 2);
    check_step(job, 0, 4, 3);
}

static void a_push_of_a_lost_connection_is_not_in_the_step(void **state)
{
    struct job *job = *state;
    send_to(job, 0, 4, 0);
    check_step(job, 0, 4, 1);
    send_to(job, 0, 2, 1);
    ask_free(job->workers[1].x);
    shard_session_end(job->rig.shard, &job->workers[1].session);
    send_to(job, 2, 4, 1);
    check_waiting(job, 2, 4);
    pass(job, LEASE / 2);
    send_one(job, 1, 1); /* connected again within its lease */
    check_step(job, 0, 4, 2);
}

static void a_worker_that_connects_anew_takes_the_place_of_its_old_push(void **state)
{
    struct job *job = *state;
    struct shard_session again = {0};
    struct part part = one;
    send_to(job, 0, 2, 0);
    part.table = embd__table_id("items");
    struct exchange *x = send_round(&job->rig, &again, &part, 1, 0);
    ask_error(job->workers[1].x, EMBD_CLOSED, "pushed for this round again", NULL);
    job->workers[1].x = x;
    send_to(job, 2, 4, 0);
    check_step(job, 0, 4, 1);
    check_row(job, -4);
}

static void a_worker_that_left_or_is_ahead_is_not_waited_for(void **state)
{
    struct job *job = *state;
    send_to(job, 0, 4, 0);
    check_step(job, 0, 4, 1);
    send_one(job, 0, 2); /* has nothing to push for clock 1 */
    send_to(job, 1, 3, 1);
    check_waiting(job, 0, 3);
    assert_int_equal(tick(job, 3, 1, true), EMBD_OK);
    check_step(job, 1, 3, 2);
    check_waiting(job, 0, 1);
    send_to(job, 1, 3, 2);
    check_step(job, 0, 3, 3);
}

/* The lease of one that is dead ends, and so would those of the others, had they not pushed. */
static void workers_whose_pushes_wait_outlive_the_dead_one(void **state)
{
    struct job *job = *state;
    send_to(job, 0, 4, 0);
    check_step(job, 0, 4, 1);
    for (uint64_t clock = 1; clock < 4; clock++) {
        send_to(job, 0, 2, clock);
        pass(job, 3 * LEASE / 4);
        check_waiting(job, 0, 2);
        send_one(job, 2, clock);
        if (clock > 1) {
            check_step(job, 0, 3, clock + 1);
            continue;
        }
        check_waiting(job, 0, 3);
        pass(job, LEASE / 2);
        check_step(job, 0, 3, clock + 1);
    }
    assert_int_equal(figure(&job->rig, "items", "steps"), 4);
}

static void a_tick_is_a_sign_of_life_for_rounds(void **state)
{
    struct job *job = *state;
    send_to(job, 0, 4, 0);
    check_step(job, 0, 4, 1);
    send_to(job, 0, 3, 1);
    for (uint32_t i = 0; i < 6; i++) {
        pass(job, LEASE / 2);
        assert_int_equal(tick(job, 3, 1, false), EMBD_OK);
    }
    check_waiting(job, 0, 3);
    send_one(job, 3, 1);
    check_step(job, 0, 4, 2);
}

static void a_late_worker_is_waited_for_from_the_clock_it_joins_at(void **state)
{
    struct job *job = *state;
    send_to(job, 0, 4, 0);
    check_step(job, 0, 4, 1);
    for (uint64_t clock = 1; clock < 4; clock++) {
        send_to(job, 0, 3, clock);
        pass(job, clock == 1 ? LEASE + 50 : 0);
        check_step(job, 0, 3, clock + 1);
    }
    assert_int_equal(tick(job, 3, 1, false), EMBD_LATE);
    assert_int_equal(tick(job, 3, 5, false), EMBD_OK); /* another shard is there already */
    send_to(job, 0, 3, 4);
    check_step(job, 0, 3, 5);
    send_to(job, 0, 3, 5);
    check_waiting(job, 0, 3);
    send_one(job, 3, 5);
    check_step(job, 0, 4, 6);
    assert_int_equal(figure(&job->rig, "items", "steps"), 6);
}

/* It has joined here at the clock the job is at, and then learnt that another shard went on. */
static void a_late_worker_that_joins_once_more_at_a_later_clock_holds_no_round_before(void **state)
{
    struct job *job = *state;
    send_to(job, 0, 4, 0);
    check_step(job, 0, 4, 1);
    send_to(job, 0, 3, 1);
    pass(job, LEASE + 50);
    check_step(job, 0, 3, 2);
    assert_int_equal(tick(job, 3, 2, false), EMBD_OK);
    send_to(job, 0, 3, 2);
    check_waiting(job, 0, 3);
    assert_int_equal(tick(job, 3, 3, false), EMBD_OK);
    check_step(job, 0, 3, 3);
    send_to(job, 0, 3, 3);
    check_waiting(job, 0, 3);
    send_one(job, 3, 3);
    check_step(job, 0, 4, 4);
}

static void a_connection_that_ends_its_side_leaves_the_round_at_once(void **state)
{
    struct job *job = *state;
    send_to(job, 0, 4, 0);
    check_step(job, 0, 4, 1);
    send_to(job, 0, 2, 1);
    struct shard_session *ended = &job->workers[1].session;
    shard_session_half_end(job->rig.shard, ended);
    assert_int_equal(figure(&job->rig, NULL, "round_pushes_waiting"), 1);
    ask_error(job->workers[1].x, EMBD_CLOSED, "closed its side", NULL);
    send_one(job, 1, 1);
    ask_error(job->workers[1].x, EMBD_CLOSED, "closed its side", NULL);
    send_to(job, 2, 4, 1);
    check_waiting(job, 2, 4);
    pass(job, LEASE / 2);
    struct shard_session again = {0};
    job->workers[1].session = again;
    send_one(job, 1, 1); /* connected again within its lease */
    check_step(job, 0, 4, 2);
}

/* ---- what else waits ---- */

static struct exchange *send_pull(struct job *job, uint32_t w)
{
    struct part part = one;
    struct exchange *x = ask(&job->rig, &job->workers[w].session, METHOD_PULL);
    part.table = embd__table_id("items");
    part.want_status = true;
    embd__parts_write(&x->out, &part, 1, PARTS_PULL);
    ask_send(x);
    return x;
}

static void a_connection_keeps_its_order_and_others_go_on(void **state)
{
    struct job *job = *state;
    struct part_answer answer;
    send_one(job, 0, 0);
    struct exchange *behind = send_pull(job, 0), *other = send_pull(job, 1);
    assert_false(behind->is_answered);
    ask_ok(other);
    assert_int_equal(embd__pull_answer_read(&other->reader, &answer, 1), 1);
    assert_int_equal(answer.statuses[0], EMBD_KEY_MISSING);
    ask_free(other);
    send_to(job, 1, 4, 0);
    check_step(job, 0, 4, 1);
    ask_ok(behind);
    assert_int_equal(embd__pull_answer_read(&behind->reader, &answer, 1), 1);
    assert_int_equal(answer.statuses[0], EMBD_KEY_HIT);
    ask_free(behind);
}

static void what_is_behind_a_lost_push_has_no_effect(void **state)
{
    struct job *job = *state;
    send_one(job, 0, 0);
    struct exchange *first = job->workers[0].x, *behind[3];
    for (int i = 0; i < 3; i++)
        behind[i] = send_pull(job, 0);
    ask_free(behind[1]);
    ask_free(behind[2]);
    ask_free(first);
    ask_free(behind[0]);
    shard_session_end(job->rig.shard, &job->workers[0].session);
    send_to(job, 0, 4, 0);
    check_step(job, 0, 4, 1);
}

static void hold(struct job *job, enum method method)
{
    struct exchange *x = ask(&job->rig, &job->rig.admin, method);
    embd__msg_map(&x->out, 0);
    ask_ok(x);
    ask_free(x);
}

static void a_complete_round_waits_for_a_hold(void **state)
{
    struct job *job = *state;
    send_to(job, 0, 3, 0);
    hold(job, METHOD_HOLD);
    send_one(job, 3, 0);
    pass(job, 100);
    check_waiting(job, 0, 4);
    assert_int_equal(figure(&job->rig, "items", "steps"), 0);
    hold(job, METHOD_RELEASE);
    check_step(job, 0, 4, 1);
}

/* Pushes up to any msgid of the first n workers are let in, because other shards have them. */
static void hold_letting_in(struct job *job, uint32_t n)
{
    uint64_t clients[WORKERS];
    uint32_t pushed[WORKERS];
    struct exchange *x = ask(&job->rig, &job->rig.admin, METHOD_HOLD);
    for (uint32_t i = 0; i < n; i++) {
        clients[i] = i + 1;
        pushed[i] = 1u << 30;
    }
    embd__msg_map(&x->out, 1);
    embd__msg_field_uint(&x->out, "clients", n);
    embd__msg_bin(&x->out, clients, n * sizeof *clients);
    embd__msg_bin(&x->out, pushed, n * sizeof *pushed);
    ask_ok(x);
    ask_free(x);
}

static void a_step_that_other_shards_have_made_is_made_under_a_hold(void **state)
{
    struct job *job = *state;
    for (uint32_t w = 0; w < WORKERS; w++)
        job->workers[w].session.client = w + 1;
    send_to(job, 0, 3, 0);
    hold_letting_in(job, 4);
    send_one(job, 3, 0);
    check_step(job, 0, 4, 1);
    hold(job, METHOD_RELEASE);
    send_to(job, 0, 3, 1);
    hold_letting_in(job, 3); /* no shard can have made it without the fourth */
    send_one(job, 3, 1);
    check_waiting(job, 0, 4);
    hold(job, METHOD_RELEASE);
    check_step(job, 0, 4, 2);
}

static void a_drain_refuses_what_waits(void **state)
{
    struct job *job = *state;
    send_to(job, 0, 3, 0);
    struct exchange *behind = send_pull(job, 0);
    shard_drain(job->rig.shard);
    for (uint32_t w = 0; w < 3; w++)
        ask_error(job->workers[w].x, EMBD_DRAINING, "round", NULL);
    ask_error(behind, EMBD_DRAINING, "pull", NULL);
}

static void a_table_that_goes_takes_the_round_with_it(void **state)
{
    struct job *job = *state;
    send_to(job, 0, 3, 0);
    struct exchange *x = ask(&job->rig, &job->rig.data, METHOD_TABLE_DROP);
    embd__msg_map(&x->out, 1);
    embd__msg_field_str(&x->out, "name", "items");
    ask_ok(x);
    ask_free(x);
    embd_schema schema;
    embd_schema_init(&schema);
    strcpy(schema.name, "items");
    schema.dim = 1; /* the gradients that wait are of two columns */
    schema.combiner = EMBD_COMBINER_CONCAT;
    create_table(&job->rig, &schema);
    struct part part = one;
    part.table = embd__table_id("items");
    part.grads_bytes = 4;
    job->workers[3].x = send_round(&job->rig, &job->workers[3].session, &part, 3, 0);
    for (uint32_t w = 0; w < 4; w++)
        ask_error(job->workers[w].x, EMBD_MALFORMED, "grads", "8 bytes", NULL);
    assert_int_equal(figure(&job->rig, "items", "steps"), 0);
}

static void what_does_not_fit_is_refused_by_name(void **state)
{
    struct job *job = *state;
    struct shard_session other = {0};
    struct part part = one;
    part.table = embd__table_id("items");
    send_to(job, 0, 4, 5);
    check_step(job, 0, 4, 1);
    const struct {
        struct push_round round;
        const char *word;
    } cases[] = {
        {{"job", 0, WORKERS, 5, LEASE, 0, 0}, "up to 5"},
        {{"job", 0, WORKERS - 1, 6, LEASE, 0, 0}, "has 4"},
        {{"job", 4, WORKERS, 6, LEASE, 0, 0}, "worker is 4"},
        {{"job", 0, WORKERS, 6, 99, 0, 0}, "lease_ms"},
        {{"job", 0, 1025, 6, LEASE, 0, 0}, "1025"},
        {{"", 0, WORKERS, 6, LEASE, 0, 0}, "0 bytes"},
        {{"job", 0, WORKERS, 6, LEASE, 5, 1}, "another process"},
    };
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct exchange *x = ask(&job->rig, &other, METHOD_PUSH);
        struct push_extra extra = {.round = cases[i].round};
        embd__push_write(&x->out, &part, 1, &extra);
        ask_error(x, EMBD_INVALID, cases[i].word, NULL);
    }
    struct push_extra extra = {.round = {"job", 0, WORKERS, 6, LEASE, 0, 0}};
    struct exchange *x = ask(&job->rig, &other, METHOD_PULL);
    embd__push_write(&x->out, &part, 1, &extra);
    ask_error(x, EMBD_INVALID, "round", NULL);
}

/* ---- a device ---- */

static void a_worker_may_go_while_a_device_makes_the_step(void **state)
{
    struct job *job = *state;
    send_to(job, 0, 4, 0);
    check_waiting(job, 0, 4);
    ask_free(job->workers[0].x);
    shard_session_end(job->rig.shard, &job->workers[0].session);
    ask_free(job->workers[2].x);
    assert_true(deferred_run());
    check_step(job, 1, 2, 1);
    check_step(job, 3, 4, 1);
    send_to(job, 0, 4, 1);
    for (uint32_t w = 0; w < 4; w++)
        ask_free(job->workers[w].x); /* and the shard is closed over it */
}

static int open_job(void **state, const struct store_ops *ops)
{
    static struct job job;
    memset(&job, 0, sizeof job);
    rig_open(&job.rig, ops, 0, 1, NULL);
    embd_schema schema;
    embd_schema_init(&schema);
    strcpy(schema.name, "items");
    schema.dim = 2;
    schema.combiner = EMBD_COMBINER_CONCAT;
    schema.initializer = (embd_initializer){EMBD_INITIALIZER_CONSTANT, 0, 0};
    embd_optimizer_init(&schema.optimizer, EMBD_OPTIMIZER_SGD, 1);
    create_table(&job.rig, &schema);
    *state = &job;
    return 0;
}

static int setup(void **state)
{
    return open_job(state, &store_host);
}

static int setup_device(void **state)
{
    deferred_open();
    return open_job(state, &store_deferred);
}

static int teardown(void **state)
{
    struct job *job = *state;
    rig_close(&job->rig);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_order_of_arrival_gives_the_bits_of_one_joined_push),
        TEST(the_first_round_waits_until_all_have_been_seen),
        TEST(a_dead_worker_is_dropped_after_its_lease_and_comes_back),
        TEST(a_push_of_a_lost_connection_is_not_in_the_step),
        TEST(a_worker_that_connects_anew_takes_the_place_of_its_old_push),
        TEST(a_worker_that_left_or_is_ahead_is_not_waited_for),
        TEST(workers_whose_pushes_wait_outlive_the_dead_one),
        TEST(a_tick_is_a_sign_of_life_for_rounds),
        TEST(a_late_worker_is_waited_for_from_the_clock_it_joins_at),
        TEST(a_late_worker_that_joins_once_more_at_a_later_clock_holds_no_round_before),
        TEST(a_connection_that_ends_its_side_leaves_the_round_at_once),
        TEST(a_connection_keeps_its_order_and_others_go_on),
        TEST(what_is_behind_a_lost_push_has_no_effect),
        TEST(a_complete_round_waits_for_a_hold),
        TEST(a_step_that_other_shards_have_made_is_made_under_a_hold),
        TEST(a_drain_refuses_what_waits),
        TEST(a_table_that_goes_takes_the_round_with_it),
        TEST(what_does_not_fit_is_refused_by_name),
        cmocka_unit_test_setup_teardown(a_worker_may_go_while_a_device_makes_the_step, setup_device,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
