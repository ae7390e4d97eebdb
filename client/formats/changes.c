/* changes.c - embd_changes_next: what changed in a table, part by part. The happy path: the shard
 * that the round is at gives its next part, whose number and checksum follow the last one's; after
 * its last part the round goes on with the next shard. What can fail: a part is not the one that
 * follows, or a shard has forgotten this subscriber: then a round with all rows begins. */
#include "proto/changes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/core/client.h"
#include "client/core/request.h"
#include "embd/rows.h"
#include "proto/convert.h"
#include "proto/structs.h"

#define AGAIN_US 20000u /* a table that is frozen for something else is asked for again */
#define EMPTY_US 200u   /* likewise one whose device had nothing yet */

/* The subscription on one shard. */
struct subscription {
    uint64_t id; /* 0: none */
    uint64_t part, chain;
};

struct embd_changes {
    embd_client *client;
    embd_table *table;
    embd_dtype dtype;
    bool from_now;
    bool is_begun;         /* a part of the round was given */
    bool wants_all;        /* the round is one of all rows */
    uint32_t shard;        /* where the round is */
    uint64_t n_bytes;      /* of all parts */
    struct answer *answer; /* of the last part; NULL: none */
    float *values;
    size_t values_bytes;
    uint32_t n_shards;            /* when it was opened: such a one is over where some are added */
    struct subscription shards[]; /* [n_shards] */
};

int embd_changes_open(embd_client *client, embd_table *table, embd_dtype dtype, bool from_now,
                      embd_changes **changes_out)
{
    embd_changes *changes;
    client->error = (struct embd__error){0};
    *changes_out = NULL;
    if (table == NULL || embd_dtype_name(dtype) == NULL)
        return embd__error_keep(&client->error,
                                embd__error_set(&client->error, EMBD_INVALID,
                                                "changes: a table, and a dtype that there is"));
    embd__client_catch_up(client);
    changes = calloc(1, sizeof *changes + client->n_shards * sizeof changes->shards[0]);
    if (changes == NULL)
        return embd__error_keep(&client->error, embd__error_set(&client->error, EMBD_NO_MEMORY,
                                                                "no memory for a subscription"));
    changes->client = client;
    changes->n_shards = client->n_shards;
    changes->table = table;
    changes->dtype = dtype;
    changes->from_now = from_now;
    changes->wants_all = !from_now;
    *changes_out = changes;
    return EMBD_OK;
}

/* ---- one question ---- */

static void pause_us(uint32_t us)
{
    const struct timespec time = {.tv_nsec = (long)us * 1000};
    nanosleep(&time, NULL);
}

static void drop_answer(embd_changes *changes)
{
    if (changes->answer != NULL)
        embd__answer_free(changes->answer);
    changes->answer = NULL;
}

static int ask(embd_changes *changes, bool ends, struct changes_answer *out)
{
    const struct subscription *s = &changes->shards[changes->shard];
    embd_client *client = changes->client;
    struct changes_ask question = {
        .dtype = changes->dtype,
        .from_now = !changes->wants_all,
        .ends = ends,
        .id = s->id,
        .part = s->part,
        .chain = s->chain,
    };
    drop_answer(changes);
    snprintf(question.table, sizeof question.table, "%s", changes->table->schema.s.name);
    embd__changes_ask_write(embd__request_begin(client, METHOD_CHANGES), &question);
    int status = embd__request(client, changes->shard, LISTENER_DATA, &changes->answer);
    if (status == EMBD_OK)
        status = embd__changes_answer_read(&changes->answer->reader, out);
    return status;
}

/* All rows are asked for, of all shards: the table on the servers is not what it was. */
static void begin_anew(embd_changes *changes)
{
    struct changes_answer ignored;
    bool is_silent = false; /* servers find out by themselves */
    for (changes->shard = 0; changes->shard < changes->n_shards; changes->shard++) {
        struct subscription *s = &changes->shards[changes->shard];
        if (s->id != 0 && !is_silent)
            is_silent = ask(changes, true, &ignored) != EMBD_OK;
        *s = (struct subscription){.id = 0};
    }
    if (is_silent)
        changes->client->error = (struct embd__error){0};
    changes->shard = 0;
    changes->wants_all = true;
    changes->is_begun = false;
}

static int check(embd_changes *changes, const struct changes_answer *answer)
{
    const struct subscription *s = &changes->shards[changes->shard];
    const embd_schema *schema = &changes->table->schema.s;
    struct embd__error *e = &changes->client->error;
    if (answer->dim != schema->dim || answer->dtype != changes->dtype ||
        answer->has_slots != (schema->partition == EMBD_PARTITION_SLOT))
        return embd__error_set(e, EMBD_PROTOCOL,
                               "result: rows of table '%s' have dim %u and dtype %s; %u and %s are "
                               "expected",
                               schema->name, answer->dim, embd_dtype_name(answer->dtype),
                               schema->dim, embd_dtype_name(changes->dtype));
    if (answer->part != s->part + 1 || answer->before != s->chain ||
        (s->id != 0 && answer->id != s->id))
        return embd__error_set(e, EMBD_PROTOCOL,
                               "result part: %llu upon %016llx, expected %llu upon %016llx: a part "
                               "was lost, doubled or swapped",
                               (unsigned long long)answer->part, (unsigned long long)answer->before,
                               (unsigned long long)(s->part + 1), (unsigned long long)s->chain);
    if (answer->chain != embd__changes_chain(answer))
        return embd__error_set(e, EMBD_PROTOCOL,
                               "result chain: %016llx, the part has %016llx: it was changed on its "
                               "way",
                               (unsigned long long)answer->chain,
                               (unsigned long long)embd__changes_chain(answer));
    return EMBD_OK;
}

/* ---- a part ---- */

static int widen(embd_changes *changes, const struct changes_answer *answer)
{
    uint64_t row_bytes = embd__value_bytes(answer->dtype, answer->dim);
    size_t bytes = (size_t)answer->n_rows * answer->dim * sizeof *changes->values;
    if (bytes > changes->values_bytes) {
        free(changes->values);
        changes->values = malloc(bytes);
        changes->values_bytes = changes->values != NULL ? bytes : 0;
    }
    if (bytes > changes->values_bytes)
        return embd__error_set(&changes->client->error, EMBD_NO_MEMORY, "no memory for %u rows",
                               answer->n_rows);
    for (uint32_t i = 0; i < answer->n_rows; i++)
        embd__row_to_f32(changes->values + (size_t)i * answer->dim,
                         (const uint8_t *)answer->rows + i * row_bytes, answer->dtype, answer->dim);
    return EMBD_OK;
}

static void count(embd_changes *changes, const struct changes_answer *a)
{
    uint64_t key_bytes = sizeof *a->keys + (a->has_slots ? sizeof *a->slots : 0);
    changes->n_bytes +=
        a->n_rows * (key_bytes + embd__value_bytes(a->dtype, a->dim)) + a->n_gone * key_bytes;
}

/* Sets where the next answer goes on. */
static void give(embd_changes *changes, const struct changes_answer *a, embd_changes_part *part)
{
    struct subscription *s = &changes->shards[changes->shard];
    count(changes, a);
    *part = (embd_changes_part){
        .struct_bytes = part->struct_bytes,
        .shard = changes->shard,
        .n_rows = a->n_rows,
        .n_gone = a->n_gone,
        .keys = a->keys,
        .slots = a->has_slots ? a->slots : NULL,
        .values = changes->values,
        .gone_keys = a->gone_keys,
        .gone_slots = a->has_slots ? a->gone_slots : NULL,
        .step = a->step,
        .wire_bytes = changes->n_bytes,
        .is_first = !changes->is_begun,
        .is_shard_first = a->is_first,
        .has_all = changes->wants_all,
        .is_last = a->is_last && changes->shard + 1 == changes->n_shards,
    };
    *s = (struct subscription){.id = a->id, .part = a->part, .chain = a->chain};
    changes->is_begun = true;
    changes->shard += a->is_last;
    if (!part->is_last)
        return;
    changes->shard = 0;
    changes->is_begun = changes->wants_all = false;
}

/* A part, or whatever else a server may say. *is_part_out: it is in `answer`. */
static int ask_once(embd_changes *changes, struct changes_answer *answer, bool *is_part_out)
{
    struct subscription *s = &changes->shards[changes->shard];
    bool was_none = s->id == 0;
    int status = ask(changes, false, answer);
    *is_part_out = false;
    if (status != EMBD_OK)
        return status;
    if (answer->gone[0] != '\0') {
        *s = (struct subscription){.id = 0};
        begin_anew(changes);
        return EMBD_OK;
    }
    if (answer->waits) {
        s->id = was_none ? answer->id : s->id;
        pause_us(AGAIN_US);
        return EMBD_OK;
    }
    status = check(changes, answer);
    if (status != EMBD_OK) {
        struct embd__error error = changes->client->error;
        begin_anew(changes);
        changes->client->error = error;
        return status;
    }
    *is_part_out = answer->has_all == changes->wants_all;
    if (!*is_part_out) /* the server does not know any more what changed */
        begin_anew(changes);
    return EMBD_OK;
}

static int next(embd_changes *changes, embd_changes_part *part)
{
    struct changes_answer answer;
    uint64_t end_ns = uv_hrtime() + (uint64_t)changes->client->options.deadline_ms * 1000000u;
    bool is_part = false;
    int status = EMBD_OK;
    while (status == EMBD_OK && !is_part) {
        status = ask_once(changes, &answer, &is_part);
        if (status == EMBD_OK && !is_part && uv_hrtime() > end_ns)
            return embd__error_set(&changes->client->error, EMBD_BUSY,
                                   "changes: table '%s' is frozen for a snapshot, a dump, a "
                                   "compaction or another subscriber: call again",
                                   changes->table->schema.s.name);
    }
    if (status == EMBD_OK)
        status = widen(changes, &answer);
    if (status != EMBD_OK)
        return status;
    if (answer.n_rows + answer.n_gone == 0 && !answer.is_last)
        pause_us(EMPTY_US);
    give(changes, &answer, part);
    return EMBD_OK;
}

int embd_changes_next(embd_changes *changes, embd_changes_part *part)
{
    embd_client *client = changes->client;
    embd_changes_part own = {0};
    client->error = (struct embd__error){0};
    int status = embd__take(embd_changes_part, &own, part, &client->error);
    if (status == EMBD_OK)
        status = next(changes, &own);
    if (status == EMBD_OK)
        embd__struct_give(part, part->struct_bytes, &own, sizeof own);
    return embd__error_keep(&client->error, status);
}

void embd_changes_close(embd_changes *changes)
{
    if (changes == NULL)
        return;
    begin_anew(changes); /* ends what there is */
    drop_answer(changes);
    free(changes->values);
    free(changes);
}
