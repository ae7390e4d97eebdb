/* oracle.c - the model of a table (tests/model) behind a pipe, for write_vectors.py: words in, a
 * line out for each command. Floats are the eight hex digits of their bits.
 *
 *     table NAME N (FIELD VALUE)*N           id, state floats
 *     push NAME LR BATCH GRADS               error, inserted, full, filtered, evicted, statuses
 *     pull NAME ZERO BATCH                   error, values, statuses
 *     erase NAME BATCH                       erased, statuses
 *     put NAME HAS_STATES BATCH ROWS         inserted; ROWS: of each key its values, and its state
 *     describe NAME                          step, rows, candidates
 *     rows NAME                              of each key: a row?, key, slot, sights, values, state
 *
 * LR is a float, 0 for the table's. BATCH is DIVIDE ASKS_STATUSES N_KEYS N_ROWS HAS_OFFSETS
 * HAS_SLOTS HAS_WEIGHTS, then the arrays: keys, and those that it has. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/route.h"
#include "tests/model/model.h"

#define TABLES 256
#define KEYS   2000u
#define DIM    64u
#define STATE  200u /* floats of a row */

static struct model *tables[TABLES];
static uint32_t ids[TABLES];
static int n_tables;

struct batch {
    struct model_batch in;
    bool divide, asks_statuses;
    uint64_t keys[KEYS];
    uint32_t offsets[KEYS + 1];
    uint16_t slots[KEYS];
    float weights[KEYS], scores[KEYS], values[KEYS * DIM];
    uint8_t statuses[KEYS];
};

/* ---- words ---- */

static void fail(const char *why)
{
    fprintf(stderr, "oracle: %s\n", why);
    exit(1);
}

static void read_word(char word[64])
{
    if (scanf("%63s", word) != 1)
        fail("a word is missing");
}

static uint64_t read_uint(void)
{
    uint64_t value;
    if (scanf("%" SCNu64, &value) != 1)
        fail("a number is missing");
    return value;
}

static void read_floats(float *to, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (scanf("%" SCNx32, (uint32_t *)(void *)&to[i]) != 1)
            fail("a float is missing");
}

static void put_floats(const float *values, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        printf(" %08" PRIx32, bits);
    }
}

static void put_statuses(const struct batch *b)
{
    for (uint32_t i = 0; i < b->in.n_keys && b->asks_statuses; i++)
        printf(" %u", b->statuses[i]);
}

static struct model *read_table(void)
{
    char name[64];
    read_word(name);
    for (int i = 0; i < n_tables; i++)
        if (strcmp(tables[i]->schema.name, name) == 0)
            return tables[i];
    fail("unknown table");
    return NULL;
}

static void read_batch(struct batch *b)
{
    b->divide = read_uint();
    b->asks_statuses = read_uint();
    uint64_t n_keys = read_uint(), n_rows = read_uint();
    bool has_offsets = read_uint(), has_slots = read_uint(), has_weights = read_uint(),
         has_scores = read_uint();
    if (n_keys > KEYS || n_rows > KEYS)
        fail("the batch is too large");
    b->in = (struct model_batch){.n_keys = (uint32_t)n_keys, .n_rows = (uint32_t)n_rows};
    b->in.keys = b->keys;
    b->in.offsets = has_offsets ? b->offsets : NULL;
    b->in.slots = has_slots ? b->slots : NULL;
    b->in.weights = has_weights ? b->weights : NULL;
    b->in.scores = has_scores ? b->scores : NULL;
    for (uint64_t i = 0; i < n_keys; i++)
        b->keys[i] = read_uint();
    for (uint64_t i = 0; has_offsets && i <= n_rows; i++)
        b->offsets[i] = (uint32_t)read_uint();
    for (uint64_t i = 0; has_slots && i < n_rows; i++)
        b->slots[i] = (uint16_t)read_uint();
    read_floats(b->weights, has_weights ? n_keys : 0);
    read_floats(b->scores, has_scores ? n_keys : 0);
}

/* ---- commands ---- */

static bool has_id(uint32_t id)
{
    for (int i = 0; i < n_tables; i++)
        if (ids[i] == id)
            return true;
    return false;
}

/* The first of its name that no table has. */
static uint32_t new_id(const char *name)
{
    uint32_t n = 0;
    while (has_id(embd__table_id_at(name, n)))
        n++;
    return embd__table_id_at(name, n);
}

static void make_table(void)
{
    char name[64], field[64], value[64];
    static uint64_t sizes[TABLES][EMBD_SLOTS_MAX];
    embd_schema schema;
    embd_schema_init(&schema);
    read_word(name);
    strcpy(schema.name, name);
    for (uint64_t n = read_uint(); n > 0; n--) {
        read_word(field);
        read_word(value);
        if (embd_schema_set(&schema, field, value, sizes[n_tables]) != EMBD_OK)
            fail(embd_error_text());
    }
    if (n_tables == TABLES || schema.dim > DIM || embd_schema_check(&schema) != EMBD_OK)
        fail("the table is not allowed, or one too many");
    tables[n_tables] = model_new(&schema);
    if (tables[n_tables]->state_floats > STATE)
        fail("a row has too many states");
    ids[n_tables] = new_id(name);
    printf("%" PRIu32 " %" PRIu32, ids[n_tables], tables[n_tables]->state_floats);
    n_tables++;
}

static void push(struct batch *b)
{
    struct model *model = read_table();
    struct model_counts counts;
    read_floats(&model->lr, 1);
    read_batch(b);
    read_floats(b->values, (uint64_t)b->in.n_rows * model->schema.dim);
    int status = model_push(model, &b->in, b->values, b->divide,
                            b->asks_statuses ? b->statuses : NULL, &counts);
    printf("%d %u %u %u %u", -status, counts.n_inserted, counts.n_full, counts.n_filtered,
           counts.n_evicted);
    put_statuses(b);
}

static void pull(struct batch *b)
{
    struct model *model = read_table();
    bool is_zero = read_uint();
    int status = EMBD_OK;
    read_batch(b);
    uint8_t *statuses = b->asks_statuses ? b->statuses : NULL;
    bool creates = model->schema.create_on == EMBD_CREATE_ON_PULL && !is_zero;
    if (creates)
        status = model_insert(model, &b->in, statuses, NULL);
    printf("%d", -status);
    if (status != EMBD_OK)
        return;
    model_pull(model, &b->in, is_zero, b->divide, b->values, creates ? NULL : statuses);
    put_floats(b->values, (uint64_t)b->in.n_rows * model->schema.dim);
    put_statuses(b);
}

static void erase(struct batch *b)
{
    struct model *model = read_table();
    read_batch(b);
    printf("%u", model_erase(model, &b->in, b->asks_statuses ? b->statuses : NULL));
    put_statuses(b);
}

/* Of a key that occurs more than once the last row counts. */
static void put(struct batch *b)
{
    struct model *model = read_table();
    uint64_t before = model->n_rows;
    bool has_states = read_uint();
    float w[DIM], state[STATE];
    read_batch(b);
    for (uint32_t i = 0; i < b->in.n_keys; i++) {
        uint32_t slot = b->in.slots == NULL ? 0 : b->slots[i];
        read_floats(w, model->schema.dim);
        read_floats(state, has_states ? model->state_floats : 0);
        if (has_states)
            model_set_row(model, b->keys[i], slot, w, state);
        else
            model_put_row(model, b->keys[i], slot, w);
    }
    printf("%" PRIu64, model->n_rows - before);
}

static void describe(void)
{
    const struct model *model = read_table();
    printf("%" PRIu64 " %" PRIu64 " %" PRIu64, model->step, model->n_rows, model->n_candidates);
}

static void put_rows(void)
{
    const struct model *model = read_table();
    for (uint64_t i = 0; i < model->n_keys; i++) {
        const struct model_key *k = model->keys[i];
        if (!k->has_row && k->sights == 0)
            continue;
        printf(" %d %" PRIu64 " %u %u", k->has_row, k->key, k->slot, k->sights);
        if (!k->has_row)
            continue;
        put_floats(k->w, model->schema.dim);
        put_floats(k->state, model->state_floats);
    }
}

static void run(const char *command, struct batch *b)
{
    if (strcmp(command, "table") == 0)
        make_table();
    else if (strcmp(command, "push") == 0)
        push(b);
    else if (strcmp(command, "pull") == 0)
        pull(b);
    else if (strcmp(command, "erase") == 0)
        erase(b);
    else if (strcmp(command, "put") == 0)
        put(b);
    else if (strcmp(command, "describe") == 0)
        describe();
    else if (strcmp(command, "rows") == 0)
        put_rows();
    else
        fail("unknown command");
}

int main(void)
{
    static struct batch batch;
    char command[64];
    while (scanf("%63s", command) == 1) {
        run(command, &batch);
        puts("");
        fflush(stdout);
    }
    for (int i = 0; i < n_tables; i++)
        model_free(tables[i]);
    return 0;
}
