/* device_sending.c - see device_sending.h.
 *
 * The happy path: the sets are those of the client's map, which all servers have too. A cluster of
 * one shard gets no set. What can fail: keys have moved since, and the shards refuse a set by
 * another map, all of them and before any effect (EMBD_MOVED); embd__follow_map reads the map
 * then. A cluster of one shard that has got more refuses a request without a set. */
#include "client/core/device_sending.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/core/client.h"

/* ---- the legs ---- */

void embd__device_sending_fini(struct device_sending *s)
{
    for (uint32_t i = 0; i < s->capacity; i++)
        embd__started_free(s->legs[i].request);
    free(s->legs);
    s->legs = NULL;
    s->n = s->capacity = 0;
}

static int make_room(struct device_sending *s, uint32_t n)
{
    struct embd__error *e = &s->client->error;
    if (n <= s->capacity)
        return EMBD_OK;
    struct device_leg *legs = realloc(s->legs, n * sizeof *legs);
    if (legs == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for requests to %u shards", n);
    s->legs = legs;
    for (; s->capacity < n; s->capacity++) {
        legs[s->capacity] = (struct device_leg){.shard = s->capacity};
        if (embd__started_new(s->client, &legs[s->capacity].request) != EMBD_OK)
            return e->status;
    }
    return EMBD_OK;
}

/* ---- sets ---- */

/* Of all shards, by the client's map: made once for each map. */
struct device_sets {
    struct sets_of {
        uint64_t made; /* for the map of that number, from 1; 0: not yet */
        uint8_t *sets; /* [n_shards][PLACEMENT_SET_BYTES] */
    } vshards, residues;
};

void embd__device_sets_fini(embd_client *client)
{
    if (client->device_sets == NULL)
        return;
    free(client->device_sets->vshards.sets);
    free(client->device_sets->residues.sets);
    free(client->device_sets);
}

/* NULL: no memory. */
static const uint8_t *sets_of(embd_client *client, embd_partition partition)
{
    if (client->device_sets == NULL)
        client->device_sets = calloc(1, sizeof *client->device_sets);
    if (client->device_sets == NULL)
        return NULL;
    struct sets_of *of = partition == EMBD_PARTITION_HASH ? &client->device_sets->vshards
                                                          : &client->device_sets->residues;
    if (of->made == client->n_placements + 1)
        return of->sets;
    uint8_t *sets = realloc(of->sets, client->n_shards * (size_t)PLACEMENT_SET_BYTES);
    if (sets == NULL)
        return NULL;
    of->sets = sets;
    of->made = client->n_placements + 1;
    for (uint32_t i = 0; i < client->n_shards; i++)
        embd__placement_set(&client->placement, partition, i,
                            sets + i * (size_t)PLACEMENT_SET_BYTES);
    return sets;
}

int embd__device_split(struct device_sending *s, const embd_device_part *part)
{
    embd_client *client = s->client;
    if (make_room(s, client->n_shards) != EMBD_OK)
        return client->error.status;
    s->n = client->n_shards;
    s->own = s->n > 1 ? sets_of(client, part->table->schema.s.partition) : NULL;
    if (s->n > 1 && s->own == NULL)
        return embd__error_set(&client->error, EMBD_NO_MEMORY, "no memory for sets of vshards");
    s->placement = embd__placement_told(client);
    s->order = s->method == METHOD_DEVICE_PUSH ? ++s->client->last_order : 0;
    for (uint32_t i = 0; i < s->n; i++) {
        struct device_leg *leg = &s->legs[i];
        leg->sending = s;
        leg->is_due = true;
        leg->was_sent = false;
        leg->error = (struct embd__error){0};
        leg->outcome = (struct shard_outcome){i, NOT_SENT, EMBD_OK};
    }
    return EMBD_OK;
}

/* ---- sending ---- */

static int write_leg(struct device_sending *s, struct device_leg *leg, const embd_device_part *part,
                     const struct device_gate *gate)
{
    struct device_batch batch = embd__device_batch_of(part, leg->shard);
    if (gate->number != 0) {
        batch.gate = *gate;
        batch.gate.at += leg->shard * (uint64_t)GATE_BYTES;
        batch.gate.all_at = gate->at;
        batch.gate.n_all = s->n > 1 && gate->needs != 0 ? s->n : 0;
    }
    if (s->own != NULL) {
        batch.own = s->own + leg->shard * (size_t)PLACEMENT_SET_BYTES;
        batch.order = s->order;
        batch.placement = s->placement;
    }
    bool waits = gate->number == 0; /* no stream has gone on, or waits */
    struct msg *m = embd__started_begin(leg->request, s->method, s->deadline_ns, waits);
    embd__device_batch_write(m, &batch);
    return embd__msg_end(m);
}

int embd__device_write(struct device_sending *s, const embd_device_part *part,
                       const struct device_gate *gate)
{
    for (uint32_t i = 0; i < s->n; i++) {
        int status = s->legs[i].is_due ? write_leg(s, &s->legs[i], part, gate) : EMBD_OK;
        if (status != EMBD_OK)
            return embd__error_set(&s->client->error, status, "a request could not be built: %s",
                                   embd_status_text(status));
    }
    return EMBD_OK;
}

int embd__device_send(struct device_sending *s, void (*on_end)(void *leg))
{
    for (uint32_t i = 0; i < s->n; i++) {
        struct device_leg *leg = &s->legs[i];
        if (!leg->is_due)
            continue;
        if (embd__started_send(leg->request, i, on_end, leg) != EMBD_OK)
            return s->client->error.status; /* the first one: the shards are the client's */
        leg->is_due = false;
        leg->was_sent = true;
    }
    return EMBD_OK;
}

/* ---- the answers ---- */

static void read_answer(struct device_sending *s, struct answer *answer)
{
    struct fields f;
    struct push_answer pushed;
    bool again;
    if (s->method == METHOD_DEVICE_PULL) {
        embd__read_fields(&f, &answer->reader, "the answer");
        embd__fields_end(&f);
    } else {
        embd__push_answer_read(&answer->reader, &pushed, 1, &again);
    }
    embd__answer_free(answer);
}

static void await_leg(struct device_sending *s, struct device_leg *leg)
{
    struct embd__error *e = &s->client->error;
    struct answer *answer;
    *e = (struct embd__error){0};
    if (embd__started_wait(leg->request, &answer) == EMBD_OK)
        read_answer(s, answer);
    leg->was_sent = false;
    leg->error = *e;
    leg->outcome = embd__outcome_of(leg->shard, embd__started_exchange(leg->request));
    if (e->status != EMBD_OK && leg->outcome.outcome == APPLIED) /* it was not what it should be */
        leg->outcome = (struct shard_outcome){leg->shard, UNKNOWN, EMBD_OK};
}

void embd__device_await(struct device_sending *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->legs[i].was_sent)
            await_leg(s, &s->legs[i]);
    s->client->error = (struct embd__error){0};
}

/* ---- the map ---- */

bool embd__device_is_untaken(const struct device_sending *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->legs[i].error.status != EMBD_MOVED)
            return false;
    return true;
}

/* The first leg that was refused for its map, by a server if there is one. NULL: none was. */
static struct device_leg *find_moved(struct device_sending *s)
{
    struct device_leg *found = NULL;
    for (uint32_t i = 0; i < s->n; i++) {
        struct device_leg *leg = &s->legs[i];
        if (leg->error.status == EMBD_MOVED &&
            (found == NULL ||
             (found->outcome.outcome != REFUSED && leg->outcome.outcome == REFUSED)))
            found = leg;
    }
    return found;
}

static bool is_of_another_map(const struct device_sending *s)
{
    const embd_client *client = s->client;
    return s->n != client->n_shards || s->placement != embd__placement_told(client);
}

/* Asks for the map, until there is another one. */
static bool follow(struct device_sending *s, struct device_leg *moved)
{
    embd_client *client = s->client;
    bool follows = false;
    uint32_t asked = moved->outcome.outcome == REFUSED && moved->shard < client->n_shards
                         ? moved->shard
                         : 0; /* which never leaves */
    if (embd__follow_map(client, asked, s->deadline_ns, &follows) != EMBD_OK) {
        size_t at = strlen(moved->error.text);
        snprintf(moved->error.text + at, sizeof moved->error.text - at, "; asked for it: %.200s",
                 client->error.text);
        client->error = (struct embd__error){0};
    }
    return follows;
}

bool embd__device_learn(struct device_sending *s)
{
    struct device_leg *moved = find_moved(s);
    s->client->error = (struct embd__error){0};
    if (moved != NULL)
        return is_of_another_map(s) || follow(s, moved);
    return s->n == 1 && s->legs[0].error.status == EMBD_UNSUPPORTED &&
           (is_of_another_map(s) || embd__client_catch_up(s->client));
}

/* ---- the end ---- */

/* A caller takes `status` for a push that nobody has made, and makes it by the host. */
static bool is_of_fallback(int status)
{
    return status == EMBD_UNSUPPORTED || status == EMBD_UNKNOWN_METHOD;
}

/* A push whose first failure is `first`. */
static int say_push(struct embd__error *e, const struct embd__error *first,
                    const struct shard_outcome *list, uint32_t n)
{
    const char *parted = NULL;
    if (embd__outcomes_are_parted(list, n))
        parted = PARTED_MOVED;
    else if (is_of_fallback(first->status) && embd__outcomes_are_taken(list, n))
        parted = PARTED_UNSUPPORTED;
    return embd__outcomes_say(e, first, list, n, parted);
}

int embd__device_outcome(struct device_sending *s)
{
    struct embd__error *e = &s->client->error;
    const struct embd__error *first = NULL;
    struct shard_outcome list[LIMIT_SHARDS];
    for (uint32_t i = 0; i < s->n; i++) {
        list[i] = s->legs[i].outcome;
        if (first == NULL && s->legs[i].error.status != EMBD_OK)
            first = &s->legs[i].error;
    }
    *e = (struct embd__error){0};
    if (first == NULL)
        return EMBD_OK;
    if (s->method == METHOD_DEVICE_PULL)
        return embd__error_set(e, first->status, "%s", first->text);
    return say_push(e, first, list, s->n);
}
