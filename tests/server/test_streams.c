/* test_streams.c - streams of pushes: how they begin, how many there may be of whom, which one
 * goes, and that a start on the journal ends with the same ones. */
#include "tests/server/rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "server/service/authorize.h"
#include "proto/opening.h"
#include "proto/route.h"
#include "proto/schema.h"
#include "server/service/state.h"
#include "server/engine/pushers.h"
#include "server/access/access.h"

#define SECOND UINT64_C(1000000000)
#define IDLE   (STREAM_IDLE_S * SECOND)

static const char tokens[] =
    "alice trainer * sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n"
    "bob   trainer * sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\n";
static const char tokens_without_bob[] =
    "alice trainer * sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n";

static struct access *access_of(const char *text)
{
    struct access *access;
    struct embd__error e = {.status = EMBD_OK};
    assert_int_equal(access_read(text, strlen(text), "tokens", &access, &e), EMBD_OK);
    return access;
}

/* ---- pushers by themselves ---- */

static struct push_number stream_of(uint64_t number)
{
    return (struct push_number){.high = 7, .low = number >> 32, .stream = (uint32_t)number};
}

/* Decided and opened; *opening_out: what a record would have. */
static int opens(struct pushers *pushers, uint64_t number, uint64_t principal,
                 const struct access *access, uint64_t now_ns, struct stream_opening *opening_out,
                 struct embd__error *e)
{
    *opening_out = (struct stream_opening){.stream = stream_of(number), .principal = principal};
    *e = (struct embd__error){.status = EMBD_OK};
    if (pushers_decide(pushers, opening_out, authorize_is_gone, access, "token 'x'", now_ns, e) !=
        EMBD_OK)
        return e->status;
    return pushers_open(pushers, opening_out, now_ns, e);
}

static void open_many(struct pushers *pushers, uint64_t first, uint64_t n, uint64_t principal,
                      const struct access *access, uint64_t now_ns)
{
    struct stream_opening opening;
    struct embd__error e;
    for (uint64_t i = first; i < first + n; i++)
        assert_int_equal(opens(pushers, i, principal, access, now_ns, &opening, &e), EMBD_OK);
}

static bool knows(const struct pushers *pushers, uint64_t number)
{
    const struct push_number stream = stream_of(number);
    return pushers_know(pushers, &stream);
}

/* Pushes the next of a stream. */
static void push_next(struct pushers *pushers, uint64_t number, uint64_t now_ns)
{
    struct embd__error e = {.status = EMBD_OK};
    struct push_number push = stream_of(number);
    push.sequence = pushers_last(pushers, &push) + 1;
    assert_int_equal(pushers_look(pushers, &push, &e), EMBD_OK);
    pushers_note(pushers, &push, now_ns);
}

static void check_refused(int status, const struct embd__error *e, const char *limit)
{
    assert_int_equal(status, EMBD_FULL);
    assert_non_null(strstr(e->text, limit));
    assert_non_null(strstr(e->text, "idle"));
}

static void without_tokens_only_idle_streams_go_and_the_one_that_pushed_least_lately_first(
    void **state)
{
    (void)state;
    struct pushers pushers = {0};
    struct stream_opening opening;
    struct embd__error e;
    open_many(&pushers, 0, PUSHER_STREAMS_MAX, PRINCIPAL_EVERYBODY, NULL, SECOND);
    int status = opens(&pushers, PUSHER_STREAMS_MAX, PRINCIPAL_EVERYBODY, NULL, IDLE, &opening, &e);
    check_refused(status, &e, "65536");
    assert_int_equal(pushers.n, PUSHER_STREAMS_MAX);
    push_next(&pushers, 0, IDLE);
    assert_int_equal(
        opens(&pushers, PUSHER_STREAMS_MAX, PRINCIPAL_EVERYBODY, NULL, SECOND + IDLE, &opening, &e),
        EMBD_OK);
    assert_true(knows(&pushers, 0));
    assert_false(knows(&pushers, 1));
    assert_true(knows(&pushers, 2));
    assert_int_equal(pushers.n, PUSHER_STREAMS_MAX);
    pushers_fini(&pushers);
}

static void a_token_at_its_limit_loses_its_own_streams_alone(void **state)
{
    (void)state;
    struct pushers pushers = {0};
    struct stream_opening opening;
    struct embd__error e;
    struct access *access = access_of(tokens);
    const uint64_t bobs = 1u << 20, old = SECOND, now = 2 * IDLE;
    open_many(&pushers, bobs, 3, 2, access, old); /* long idle */
    open_many(&pushers, 0, STREAMS_PER_PRINCIPAL, 1, access, now);
    int status = opens(&pushers, STREAMS_PER_PRINCIPAL, 1, access, now + SECOND, &opening, &e);
    check_refused(status, &e, "limit is 4096");
    assert_non_null(strstr(e.text, "token 'x'"));
    open_many(&pushers, bobs + 3, 1, 2, access, now);
    for (uint64_t i = 1; i < STREAMS_PER_PRINCIPAL; i++)
        push_next(&pushers, i, now + IDLE);
    assert_int_equal(opens(&pushers, STREAMS_PER_PRINCIPAL, 1, access, now + IDLE, &opening, &e),
                     EMBD_OK);
    assert_false(knows(&pushers, 0));
    for (uint64_t i = bobs; i < bobs + 4; i++)
        assert_true(knows(&pushers, i));
    status = opens(&pushers, STREAMS_PER_PRINCIPAL + 1, 1, access, now + IDLE, &opening, &e);
    check_refused(status, &e, "limit is 4096");
    access_drop(access);
    pushers_fini(&pushers);
}

static uint64_t principal_of(const char *name)
{
    return XXH3_64bits(name, strlen(name));
}

/* Fifteen strangers, bob and alice, who opens the last one. */
static void a_full_shard_gives_up_idle_streams_of_tokens_that_are_gone_and_of_nobody_else(
    void **state)
{
    (void)state;
    char text[4096] = "", line[128];
    struct pushers pushers = {0};
    struct stream_opening opening;
    struct embd__error e;
    const uint64_t n_each = STREAMS_PER_PRINCIPAL, alice = principal_of("alice");
    for (int i = 0; i < 15; i++) {
        snprintf(line, sizeof line, "s%d trainer * sha256:%064d\n", i, i);
        strcat(text, line);
    }
    struct access *less = access_of(strcat(text, tokens_without_bob));
    struct access *all = access_of(strcat(text, strchr(tokens, '\n') + 1));
    open_many(&pushers, 0, n_each, principal_of("bob"), all, 2 * SECOND);
    for (uint64_t i = 0; i < 15; i++) {
        snprintf(line, sizeof line, "s%d", (int)i);
        open_many(&pushers, (i + 1) * n_each, n_each, principal_of(line), all, SECOND);
    }
    assert_int_equal(pushers.n, PUSHER_STREAMS_MAX);
    const uint64_t next = 1u << 20, now = 10 * IDLE;
    int status = opens(&pushers, next, alice, all, now, &opening, &e);
    check_refused(status, &e, "limit is 65536");
    assert_int_equal(opens(&pushers, next, alice, less, now, &opening, &e), EMBD_OK);
    assert_false(knows(&pushers, 0)); /* bob's first */
    assert_true(knows(&pushers, 1));
    assert_true(knows(&pushers, n_each));
    status = opens(&pushers, next + 1, alice, all, now, &opening, &e);
    check_refused(status, &e, "limit is 65536"); /* bob is back, and hers is not idle */
    assert_int_equal(opens(&pushers, next + 1, alice, all, now + IDLE, &opening, &e), EMBD_OK);
    assert_false(knows(&pushers, next));
    access_drop(all);
    access_drop(less);
    pushers_fini(&pushers);
}

/* As many openings may be on their way to the disk as there are idle streams. */
static void openings_under_way_at_once_take_different_streams(void **state)
{
    (void)state;
    struct pushers pushers = {0};
    struct embd__error e = {.status = EMBD_OK};
    struct access *access = access_of(tokens);
    const uint64_t now = 2 * IDLE;
    struct stream_opening waiting[3];
    open_many(&pushers, 0, STREAMS_PER_PRINCIPAL, 1, access, SECOND);
    for (uint64_t i = 2; i < STREAMS_PER_PRINCIPAL; i++)
        push_next(&pushers, i, now);
    for (uint64_t i = 0; i < 3; i++) {
        waiting[i] = (struct stream_opening){.stream = stream_of(10000 + i), .principal = 1};
        int status =
            pushers_decide(&pushers, &waiting[i], authorize_is_gone, access, "token 'x'", now, &e);
        if (i == 2)
            check_refused(status, &e, "4096");
        else
            assert_int_equal(waiting[i].forgotten.stream, i);
    }
    waiting[2].forgets = true; /* as if it had taken one that goes for another */
    waiting[2].forgotten = waiting[1].forgotten;
    e.status = EMBD_OK;
    assert_int_equal(pushers_open(&pushers, &waiting[0], now, &e), EMBD_OK);
    assert_int_equal(pushers_open(&pushers, &waiting[1], now, &e), EMBD_OK);
    assert_int_equal(pushers_open(&pushers, &waiting[1], now, &e), PUSH_AGAIN);
    assert_int_equal(pushers_open(&pushers, &waiting[2], now, &e), EMBD_FULL);
    assert_int_equal(pushers.n, STREAMS_PER_PRINCIPAL);
    access_drop(access);
    pushers_fini(&pushers);
}

/* ---- what is the same after a start ---- */

static void check_same(const struct pushers *a, const struct pushers *b)
{
    assert_int_equal(a->n, b->n);
    struct push_stream *x = malloc((a->n + 1) * sizeof *x), *y = malloc((b->n + 1) * sizeof *y);
    assert_int_equal(pushers_list(a, x, NULL), a->n);
    assert_int_equal(pushers_list(b, y, NULL), b->n);
    assert_memory_equal(x, y, a->n * sizeof *x);
    free(x);
    free(y);
}

struct happened {
    bool is_opening;
    struct stream_opening opening;
    struct push_number push;
};

static uint64_t draw(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

/* Openings and pushes of several principals, with time going on between them, until many streams
 * have gone; then the same again from what records would have, at no time at all. */
static void what_was_recorded_gives_the_same_streams_again(void **state)
{
    (void)state;
    enum { STEPS = 60000 };
    static struct happened happened[STEPS];
    struct pushers first = {0}, again = {0}, listed = {0};
    struct embd__error e = {.status = EMBD_OK};
    uint64_t seed = 1, now = SECOND, n_gone = 0, n_refused = 0;
    struct access *access = access_of(tokens);
    for (int i = 0; i < STEPS; i++) {
        struct happened *h = &happened[i];
        uint64_t number = draw(&seed) % 9000, principal = 1 + number % 2;
        now += i < STEPS / 2 ? 0 : draw(&seed) % (SECOND / 2);
        h->push = stream_of(number);
        h->is_opening = !pushers_know(&first, &h->push);
        if (!h->is_opening) {
            h->push.sequence = pushers_last(&first, &h->push) + 1;
            push_next(&first, number, now);
        } else if (opens(&first, number, principal, access, now, &h->opening, &e) == EMBD_FULL) {
            n_refused++;
            h->push.sequence = 0;
        }
        n_gone += h->is_opening && h->opening.forgets;
    }
    assert_true(n_gone > 100 && n_refused > 100);
    for (int i = 0; i < STEPS; i++)
        if (happened[i].is_opening) {
            if (happened[i].opening.principal != 0 &&
                pushers_open(&again, &happened[i].opening, 0, &e) == EMBD_FULL)
                e.status = EMBD_OK;
        } else {
            assert_int_equal(pushers_look(&again, &happened[i].push, &e), EMBD_OK);
            pushers_note(&again, &happened[i].push, 0);
        }
    check_same(&first, &again);
    struct push_stream *list = malloc(first.n * sizeof *list);
    pushers_list(&first, list, NULL);
    assert_int_equal(pushers_restore(&listed, list, NULL, first.n, 0, &e), EMBD_OK);
    check_same(&first, &listed);
    free(list);
    access_drop(access);
    pushers_fini(&first);
    pushers_fini(&again);
    pushers_fini(&listed);
}

static void a_list_for_which_there_is_no_room_changes_nothing(void **state)
{
    (void)state;
    struct pushers pushers = {0};
    struct embd__error e = {.status = EMBD_OK};
    open_many(&pushers, 0, PUSHER_STREAMS_MAX - 1, PRINCIPAL_EVERYBODY, NULL, SECOND);
    const struct push_stream list[] = {{7, 0, 9, 1, 0}, {8, 0, 1, 0, 0}, {8, 0, 1, 1, 0}};
    assert_int_equal(pushers_restore(&pushers, list, NULL, 3, SECOND, &e), EMBD_FULL);
    assert_non_null(
        strstr(e.text, "2 push streams more than the shard's 65535 exceed the limit of 65536"));
    e.status = EMBD_OK;
    assert_int_equal(pushers_last(&pushers, &(struct push_number){.high = 7, .stream = 1}), 0);
    assert_int_equal(pushers_restore(&pushers, list, NULL, 2, SECOND, &e), EMBD_OK);
    assert_int_equal(pushers_last(&pushers, &(struct push_number){.high = 7, .stream = 1}), 9);
    pushers_fini(&pushers);
}

static void records_of_earlier_versions_begin_streams_and_forget_the_oldest(void **state)
{
    (void)state;
    struct pushers pushers = {0};
    struct embd__error e = {.status = EMBD_OK};
    for (uint64_t i = 0; i < PUSHER_STREAMS_MAX; i++) {
        struct push_number push = stream_of(i);
        push.sequence = 1;
        assert_int_equal(pushers_begin_old(&pushers, &push, &e), EMBD_OK);
        pushers_note(&pushers, &push, 0);
    }
    push_next(&pushers, 0, 0); /* so that the second is the oldest */
    const struct push_number more = stream_of(PUSHER_STREAMS_MAX);
    assert_int_equal(pushers_begin_old(&pushers, &more, &e), EMBD_OK);
    assert_true(knows(&pushers, 0));
    assert_false(knows(&pushers, 1));
    assert_true(knows(&pushers, PUSHER_STREAMS_MAX));
    pushers_fini(&pushers);
}

/* ---- in a shard ---- */

static void create(struct rig *rig, const char *name, embd_durability durability)
{
    embd_schema schema;
    embd_schema_init(&schema);
    strcpy(schema.name, name);
    schema.dim = 1;
    schema.durability = durability;
    embd_optimizer_init(&schema.optimizer, EMBD_OPTIMIZER_SGD, 1);
    schema.initializer = (embd_initializer){.kind = EMBD_INITIALIZER_CONSTANT};
    create_table(rig, &schema);
}

static struct exchange *ask_push(struct rig *rig, const char *table, uint64_t low,
                                 uint64_t sequence)
{
    static const uint64_t keys[1] = {5};
    static const float grads[1] = {-1};
    struct part part = {.table = embd__table_id(table),
                        .n_keys = 1,
                        .n_rows = 1,
                        .keys = keys,
                        .grads = grads,
                        .grads_bytes = sizeof grads,
                        .dtype = EMBD_DTYPE_F32};
    struct push_extra extra = {.number = {7, low, sequence, 0}};
    struct exchange *x = ask(rig, &rig->data, METHOD_PUSH);
    embd__push_write(&x->out, &part, 1, &extra);
    return x;
}

/* Of no pusher. */
static struct exchange *ask_unnumbered(struct rig *rig, const char *table)
{
    return ask_push(rig, table, 0, 0);
}

static bool applied(struct rig *rig, const char *table, uint64_t low, uint64_t sequence)
{
    struct push_answer answer;
    bool again;
    struct exchange *x = ask_push(rig, table, low, sequence);
    ask_ok(x);
    embd__push_answer_read(&x->reader, &answer, 1, &again);
    ask_free(x);
    return !again;
}

static void check_row(struct rig *rig, const char *table, float expected)
{
    static const uint64_t keys[1] = {5};
    float value;
    struct part part = {.table = embd__table_id(table),
                        .n_keys = 1,
                        .n_rows = 1,
                        .keys = keys,
                        .dtype = EMBD_DTYPE_F32};
    pull(rig, &part, &value, NULL);
    assert_true(value == expected);
}

static bool opened(struct rig *rig, uint64_t low, bool is_journaled)
{
    return open_stream(rig, &(struct push_number){.high = 7, .low = low}, is_journaled);
}

static void a_first_push_of_a_stream_that_is_not_open_is_refused_and_an_opening_changes_no_stream(
    void **state)
{
    (void)state;
    char dir[64];
    struct rig rig;
    scratch_new(dir);
    rig_open(&rig, &store_host, 0, 1, dir);
    for (int i = 0; i < 2; i++) {
        const char *name = i == 0 ? "a" : "b";
        create(&rig, name, i == 0 ? EMBD_DURABILITY_SNAPSHOT : EMBD_DURABILITY_BUFFERED);
        ask_error(ask_push(&rig, name, 1, 1), EMBD_FORGOTTEN, "push 1", "stream_open", NULL);
        check_row(&rig, name, 0);
        assert_true(opened(&rig, 1, i == 1));
        assert_false(opened(&rig, 1, i == 1));
        assert_true(applied(&rig, name, 1, 1));
        assert_false(opened(&rig, 1, i == 1));
        assert_false(applied(&rig, name, 1, 1));
        assert_true(applied(&rig, name, 1, 2));
        check_row(&rig, name, 2);
    }
    assert_int_equal(figure(&rig, NULL, "push_streams"), 2);
    rig_close(&rig);
    rig_open(&rig, &store_host, 0, 1, dir);
    assert_int_equal(figure(&rig, NULL, "push_streams"), 1);
    assert_false(applied(&rig, "b", 1, 2));
    rig_close(&rig);
    scratch_remove(dir);
}

static void an_opening_is_refused_where_no_table_can_be_journaled_and_where_it_says_too_much(
    void **state)
{
    (void)state;
    struct rig rig;
    const struct stream_opening opening = {.stream = {.high = 7}, .principal = 3};
    rig_open(&rig, &store_host, 0, 1, NULL);
    ask_error(ask_opening(&rig, &opening.stream, true), EMBD_UNSUPPORTED, "journaled",
              "no data directory", NULL);
    struct exchange *x = ask(&rig, &rig.data, METHOD_STREAM_OPEN);
    embd__opening_write(&x->out, &opening, true);
    ask_error(x, EMBD_INVALID, "principal", NULL);
    assert_int_equal(figure(&rig, NULL, "push_streams"), 0);
    rig_close(&rig);
}

/* An opening and a push behind it, which are one group of records. */
static void a_push_right_behind_the_opening_of_its_stream_is_applied(void **state)
{
    (void)state;
    char dir[64];
    struct rig rig;
    scratch_new(dir);
    rig_open(&rig, &store_host, 0, 1, dir);
    create(&rig, "b", EMBD_DURABILITY_DURABLE);
    rig_wake(&rig);
    for (uint64_t low = 0; low < 20; low++) {
        struct exchange *opening =
                            ask_opening(&rig, &(struct push_number){.high = 7, .low = low}, true),
                        *push = ask_push(&rig, "b", low, 1);
        ask_send(opening);
        ask_send(push);
        ask_wait(opening);
        ask_wait(push);
        ask_read(opening);
        ask_read(push);
        assert_int_equal(opening->reader.answer_status, EMBD_OK);
        assert_int_equal(push->reader.answer_status, EMBD_OK);
        ask_free(opening);
        ask_free(push);
    }
    check_row(&rig, "b", 20);
    rig_close(&rig);
    rig.config.wake = NULL;
    rig_open(&rig, &store_host, 0, 1, dir);
    check_row(&rig, "b", 20);
    for (uint64_t low = 0; low < 20; low++)
        assert_false(applied(&rig, "b", low, 1));
    check_row(&rig, "b", 20);
    rig_close(&rig);
    scratch_remove(dir);
}

/* Its connection goes while the record is being written: the stream is open all the same. */
static void an_opening_whose_connection_goes_meanwhile_happens(void **state)
{
    (void)state;
    char dir[64];
    struct rig rig;
    scratch_new(dir);
    rig_open(&rig, &store_host, 0, 1, dir);
    create(&rig, "b", EMBD_DURABILITY_DURABLE);
    rig_wake(&rig);
    const struct push_number stream = {.high = 7, .low = 3};
    struct exchange *opening = ask_opening(&rig, &stream, true);
    ask_send(opening);
    ask_free(opening);
    struct exchange *push = ask_push(&rig, "b", 3, 1);
    ask_send(push);
    ask_wait(push);
    ask_read(push);
    assert_int_equal(push->reader.answer_status, EMBD_OK);
    ask_free(push);
    check_row(&rig, "b", 1);
    rig_close(&rig);
    scratch_remove(dir);
}

/* So a full shard does not take it for one that has been idle ever since. */
static void an_opening_whose_connection_goes_meanwhile_is_not_idle(void **state)
{
    (void)state;
    char dir[64];
    struct rig rig;
    struct stream_opening next;
    struct embd__error e = {.status = EMBD_OK};
    scratch_new(dir);
    rig_open(&rig, &store_host, 0, 1, dir);
    create(&rig, "b", EMBD_DURABILITY_DURABLE);
    rig_wake(&rig);
    struct pushers *pushers = &rig.shard->engine.journaled_pushers;
    open_many(pushers, 0, 1, PRINCIPAL_EVERYBODY, NULL, SECOND);
    rig.now_ns = 10 * IDLE;
    struct exchange *opening =
        ask_opening(&rig, &(struct push_number){.high = 7, .low = 3, .stream = 9}, true);
    ask_send(opening);
    ask_free(opening);
    while (rig.shard->engine.n_recorded > 0)
        shard_collect(rig.shard);
    open_many(pushers, 1, PUSHER_STREAMS_MAX - 2, PRINCIPAL_EVERYBODY, NULL, rig.now_ns);
    push_next(pushers, 0, rig.now_ns);
    assert_int_equal(pushers->n, PUSHER_STREAMS_MAX);
    assert_int_equal(opens(pushers, PUSHER_STREAMS_MAX, PRINCIPAL_EVERYBODY, NULL,
                           rig.now_ns + SECOND, &next, &e),
                     EMBD_FULL);
    rig_close(&rig);
    scratch_remove(dir);
}

/* Behind a push that is on its way to the disk the first push of a stream that is not open is
 * recorded too, since an opening might be there: it is refused when its turn comes, and when it is
 * replayed. */
static void a_first_push_that_was_recorded_and_refused_is_refused_again_by_a_start(void **state)
{
    (void)state;
    char dir[64];
    struct rig rig;
    scratch_new(dir);
    rig_open(&rig, &store_host, 0, 1, dir);
    create(&rig, "b", EMBD_DURABILITY_DURABLE);
    rig_wake(&rig);
    struct exchange *before = ask_unnumbered(&rig, "b"), *first = ask_push(&rig, "b", 3, 1);
    ask_send(before);
    ask_send(first);
    ask_wait(before);
    ask_wait(first);
    ask_read(before);
    assert_int_equal(before->reader.answer_status, EMBD_OK);
    ask_free(before);
    ask_read(first);
    assert_int_equal(first->reader.answer_status, EMBD_FORGOTTEN);
    ask_free(first);
    check_row(&rig, "b", 1);
    rig_close(&rig);
    rig_open(&rig, &store_host, 0, 1, dir);
    check_row(&rig, "b", 1);
    assert_int_equal(figure(&rig, NULL, "push_streams"), 0);
    rig_close(&rig);
    scratch_remove(dir);
}

/* Of both kinds of tables: strangers' first pushes, and then their openings until there is no room;
 * beside them a trainer whose first push was not answered, and one that goes on. After a start the
 * same. */
static void a_flood_of_strangers_makes_no_push_count_twice_and_stops_nobody(void **state)
{
    (void)state;
    char dir[64];
    struct rig rig;
    scratch_new(dir);
    rig_open(&rig, &store_host, 0, 1, dir);
    create(&rig, "a", EMBD_DURABILITY_SNAPSHOT);
    create(&rig, "b", EMBD_DURABILITY_DURABLE);
    for (int i = 0; i < 2; i++) {
        const char *name = i == 0 ? "a" : "b";
        assert_true(opened(&rig, 1, i == 1));
        assert_true(opened(&rig, 2, i == 1));
        assert_true(applied(&rig, name, 1, 1));
        assert_true(applied(&rig, name, 2, 1));
        for (uint64_t low = 100; low < 100 + 100; low++)
            ask_error(ask_push(&rig, name, low, 1), EMBD_FORGOTTEN, "stream_open", NULL);
        for (uint64_t low = 100; low < 100 + PUSHER_STREAMS_MAX - 2; low++)
            assert_true(opened(&rig, low, i == 1));
        ask_error(ask_opening(&rig, &(struct push_number){.high = 7, .low = 99}, i == 1), EMBD_FULL,
                  "65536", "idle for 600 s", NULL);
        assert_false(applied(&rig, name, 1, 1));
        assert_true(applied(&rig, name, 2, 2));
        check_row(&rig, name, 3);
    }
    rig_close(&rig);
    rig_open(&rig, &store_host, 0, 1, dir);
    rig.now_ns += 10 * IDLE; /* nobody could push meanwhile */
    ask_error(ask_opening(&rig, &(struct push_number){.high = 7, .low = 99}, true), EMBD_FULL,
              NULL);
    assert_false(applied(&rig, "b", 1, 1));
    assert_true(applied(&rig, "b", 1, 2));
    assert_true(applied(&rig, "b", 2, 3));
    check_row(&rig, "b", 5);
    rig.now_ns += IDLE;
    assert_true(opened(&rig, 99, true)); /* for the flood's first */
    assert_false(applied(&rig, "b", 1, 2));
    assert_false(applied(&rig, "b", 2, 3));
    ask_error(ask_push(&rig, "b", 100, 1), EMBD_FORGOTTEN, NULL);
    rig_close(&rig);
    scratch_remove(dir);
}

static void streams_are_of_the_token_that_opened_them(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, &store_host, 0, 1, NULL);
    create(&rig, "a", EMBD_DURABILITY_SNAPSHOT);
    struct access *access = access_of(tokens);
    struct grant alice = {.name = "alice",
                          .role = ROLE_TRAINER,
                          .n_prefixes = 1,
                          .principal = principal_of("alice")},
                 bob = {.name = "bob",
                        .role = ROLE_TRAINER,
                        .n_prefixes = 1,
                        .principal = principal_of("bob")};
    rig.shard->access = access;
    rig.data.grant = &alice;
    assert_true(opened(&rig, 1, false));
    assert_true(applied(&rig, "a", 1, 1));
    rig.data.grant = &bob;
    for (uint64_t low = 100; low < 100 + STREAMS_PER_PRINCIPAL; low++)
        assert_true(opened(&rig, low, false));
    ask_error(ask_opening(&rig, &(struct push_number){.high = 7, .low = 2}, false), EMBD_FULL,
              "token 'bob' has 4096", "limit is 4096", NULL);
    rig.now_ns += IDLE;
    assert_true(opened(&rig, 2, false)); /* for the first of bob's */
    ask_error(ask_push(&rig, "a", 100, 1), EMBD_FORGOTTEN, NULL);
    rig.data.grant = &alice;
    assert_true(opened(&rig, 3, false));
    assert_false(applied(&rig, "a", 1, 1));
    check_row(&rig, "a", 1);
    rig_close(&rig);
}

/* From the records, and from a journal that has begun anew. */
static void a_start_knows_whose_streams_are(void **state)
{
    (void)state;
    enum { LOWS = 5 };
    char dir[64];
    struct rig rig;
    struct push_stream before[LOWS], after[LOWS];
    struct embd__error e = {.status = EMBD_OK};
    struct access *access = access_of(tokens);
    struct grant grants[2] = {
        {.role = ROLE_TRAINER, .n_prefixes = 1, .principal = principal_of("alice")},
        {.role = ROLE_TRAINER, .n_prefixes = 1, .principal = principal_of("bob")}};
    scratch_new(dir);
    rig_open(&rig, &store_host, 0, 1, dir);
    create(&rig, "b", EMBD_DURABILITY_BUFFERED);
    rig.shard->access = access_share(access);
    for (uint64_t low = 0; low < LOWS; low++) {
        rig.data.grant = &grants[low % 2];
        assert_true(opened(&rig, low, true));
        if (low > 1)
            assert_true(applied(&rig, "b", low, 1));
    }
    assert_int_equal(pushers_list(&rig.shard->engine.journaled_pushers, before, NULL), LOWS);
    assert_true(before[0].principal != before[LOWS - 1].principal && before[0].last == 0);
    for (int i = 0; i < 3; i++) {
        if (i == 1)
            assert_int_equal(compaction_make_now(&rig.shard->commit, &e), EMBD_OK);
        rig_close(&rig);
        rig_open(&rig, &store_host, 0, 1, dir);
        assert_int_equal(pushers_list(&rig.shard->engine.journaled_pushers, after, NULL), LOWS);
        assert_memory_equal(before, after, sizeof before);
    }
    access_drop(access);
    rig_close(&rig);
    scratch_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            without_tokens_only_idle_streams_go_and_the_one_that_pushed_least_lately_first),
        cmocka_unit_test(a_token_at_its_limit_loses_its_own_streams_alone),
        cmocka_unit_test(
            a_full_shard_gives_up_idle_streams_of_tokens_that_are_gone_and_of_nobody_else),
        cmocka_unit_test(openings_under_way_at_once_take_different_streams),
        cmocka_unit_test(what_was_recorded_gives_the_same_streams_again),
        cmocka_unit_test(a_list_for_which_there_is_no_room_changes_nothing),
        cmocka_unit_test(records_of_earlier_versions_begin_streams_and_forget_the_oldest),
        cmocka_unit_test(
            a_first_push_of_a_stream_that_is_not_open_is_refused_and_an_opening_changes_no_stream),
        cmocka_unit_test(
            an_opening_is_refused_where_no_table_can_be_journaled_and_where_it_says_too_much),
        cmocka_unit_test(a_push_right_behind_the_opening_of_its_stream_is_applied),
        cmocka_unit_test(an_opening_whose_connection_goes_meanwhile_happens),
        cmocka_unit_test(an_opening_whose_connection_goes_meanwhile_is_not_idle),
        cmocka_unit_test(a_first_push_that_was_recorded_and_refused_is_refused_again_by_a_start),
        cmocka_unit_test(a_flood_of_strangers_makes_no_push_count_twice_and_stops_nobody),
        cmocka_unit_test(streams_are_of_the_token_that_opened_them),
        cmocka_unit_test(a_start_knows_whose_streams_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
