/* compaction.c - see compaction.h. */
#include "server/journal/compaction.h"

#include <stdlib.h>
#include <string.h>

#include "server/engine/block.h"
#include "server/engine/foreign.h"
#include "server/engine/joining.h"
#include "server/engine/staged.h"

struct streams {
    uint32_t n;
    struct push_stream *list; /* [n] */
    struct table_set *sets;   /* [n] tables that each has pushed to */
    uint64_t *packed;         /* [n][n_ids / 64 + 1] the same, as the record has it */
};

/* An attempt of a table to join the journal. */
struct joining {
    uint32_t id;
    uint64_t number;
};

/* Owner: the shard's thread. */
struct compaction {
    struct commit *commit;
    uint32_t n, at;         /* tables; whose rows are read next */
    struct table **tables;  /* [n]; staged ones come last: later records may be about them */
    uint64_t *staged;       /* [n] ids of their sets; 0: in use */
    embd_schema *schemas;   /* [n] as they were; their slot_sizes are the tables' */
    uint64_t *steps;        /* [n] */
    struct joining *joined; /* [n_joined] of them */
    uint32_t n_joined;
    struct table **left; /* [n_left] tables that earlier files may have */
    uint32_t n_left, left_at;
    struct streams streams;     /* of journaled tables */
    struct streams foreign;     /* of others, that have pushed to journaled tables */
    bool has_foreign;           /* their record is handed over, or there are none */
    uint32_t n_ids;             /* beyond the last number */
    uint32_t ids[LIMIT_TABLES]; /* of tables by number */
    uint64_t *clients;          /* [n_clients], and how far the pushes of each have come */
    uint32_t *places;
    uint32_t n_clients;
    /* Of the engine, as they were: records while they are not zero. */
    struct prepared prepared;
    uint64_t decided;
    struct engine_placed placed;
    bool is_placed_told;
    bool is_over; /* all is handed over, or given up: no table is touched any more */
    bool is_given_up;
    bool ends; /* the journal's thread knows that all is handed over */
    /* The record of the table at `at`. */
    bool is_made, has_block;
    void *memory;
    struct store_scan scan;
    struct op op; /* the next record */
};

static const struct store_ops *ops_of(const struct compaction *c)
{
    return c->commit->engine->tables.ops;
}

/* ---- records ---- */

/* c->op becomes a record. */
static int add(struct compaction *c, struct embd__error *e)
{
    struct commit *commit = c->commit;
    if (operation_write(&commit->msg, &c->op, &commit->frame, e) != EMBD_OK)
        return e->status;
    return basefile_add(journal_base(commit->journal), &commit->frame, e);
}

static bool is_staged(const struct compaction *c)
{
    return c->staged[c->at] != 0;
}

static int add_create(struct compaction *c, struct embd__error *e)
{
    const struct table_schema schema = {.s = c->schemas[c->at]};
    uint32_t id = c->tables[c->at]->id;
    op_begin(&c->op, c->commit->engine, is_staged(c) ? OP_STAGE : OP_TABLE_CREATE);
    if (is_staged(c))
        c->op.as.stage = (struct op_stage){.id = c->staged[c->at], .schema = schema, .table = id};
    else
        c->op.as.create = (struct op_create){.schema = schema, .id = id};
    c->is_made = true;
    return add(c, e);
}

static int add_block(struct compaction *c, struct embd__error *e)
{
    op_begin(&c->op, c->commit->engine, OP_LOAD);
    c->op.as.load = (struct op_load){
        .table = c->tables[c->at],
        .block = block_of(&c->scan),
        .fields = {.has_step = true, .step = c->steps[c->at], .staged = c->staged[c->at]}};
    c->has_block = true;
    return add(c, e);
}

static struct op_streams streams_of(const struct compaction *c, const struct streams *s)
{
    return (struct op_streams){.list = s->list,
                               .sets = s->sets,
                               .ids = c->ids,
                               .n_ids = c->n_ids,
                               .packed = s->packed,
                               .n = s->n,
                               .is_journaled = s == &c->streams};
}

static int add_streams(struct compaction *c, struct embd__error *e)
{
    op_begin(&c->op, c->commit->engine, OP_STREAMS);
    c->op.as.streams = streams_of(c, &c->streams);
    c->op.as.streams.clients = c->clients;
    c->op.as.streams.places = c->places;
    c->op.as.streams.n_clients = c->n_clients;
    return add(c, e);
}

static int add_foreign(struct compaction *c, struct embd__error *e)
{
    op_begin(&c->op, c->commit->engine, OP_STREAMS);
    c->op.as.streams = streams_of(c, &c->foreign);
    c->has_foreign = true;
    return add(c, e);
}

/* The shard's promise about staged tables, and the last decision. */
static int add_replacing(struct compaction *c, struct embd__error *e)
{
    struct op_replace *replace = &c->op.as.replace;
    op_begin(&c->op, c->commit->engine, OP_PREPARE);
    *replace = (struct op_replace){.decision = c->decided, .step = REPLACE_DECIDED};
    if (c->prepared.id != 0)
        *replace = (struct op_replace){.id = c->prepared.id,
                                       .decision = c->prepared.decision,
                                       .step = REPLACE_PREPARED,
                                       .back = {c->prepared.back[0], c->prepared.back[1]},
                                       .place = c->prepared.place};
    int status = add(c, e);
    if (c->prepared.id == 0)
        c->decided = 0;
    prepared_fini(&c->prepared);
    return status;
}

/* Before all rows: these are of keys that the shard has by it, or of keys on their way. */
static int add_placed(struct compaction *c, struct embd__error *e)
{
    op_begin(&c->op, c->commit->engine, OP_PREPARE);
    c->op.as.replace = (struct op_replace){.decision = c->placed.decision,
                                           .step = REPLACE_PLACED,
                                           .place = &c->placed.map,
                                           .is_moving = c->placed.is_foreign};
    c->is_placed_told = true;
    return add(c, e);
}

/* Journals of shards that never had another map than the even one say nothing of it, as those of
 * earlier versions. */
static bool is_told(const struct engine_placed *placed)
{
    return placed->is_set &&
           (placed->is_foreign || !placed->map.is_even || placed->map.version > 1);
}

/* The table is not in the journal: a start takes it from a snapshot, whatever durability that says.
 */
static int add_left(struct compaction *c, struct embd__error *e)
{
    op_begin(&c->op, c->commit->engine, OP_TABLE_SET);
    struct op_table_set *set = &c->op.as.set;
    set->table = c->left[c->left_at++];
    embd__schema_change_init(&set->change);
    if (embd__schema_change_add(&set->change, "durability", "snapshot", e) != EMBD_OK)
        return e->status;
    return add(c, e);
}

static void next_table(struct compaction *c)
{
    ops_of(c)->thaw(c->tables[c->at]->store);
    free(c->memory);
    c->memory = NULL;
    c->is_made = c->has_block = false;
    c->at++;
}

/* A table without rows gets one block: it has the step. */
static int add_rows(struct compaction *c, struct embd__error *e)
{
    const struct table *table = c->tables[c->at];
    const embd_schema *schema = &table->schema.s;
    uint32_t max_rows = block_rows_in(schema, COMPACTION_BLOCK_BYTES);
    bool is_last;
    max_rows += max_rows == 0;
    if (c->memory == NULL)
        c->memory = block_new(schema, max_rows, &c->scan);
    if (c->memory == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for the base of table '%s'",
                               schema->name);
    if (ops_of(c)->scan_frozen(table->store, max_rows, &c->scan, &is_last, e) != EMBD_OK)
        return e->status;
    bool has_rows = c->scan.n_rows + c->scan.n_candidates > 0;
    if ((has_rows || (is_last && !c->has_block)) && add_block(c, e) != EMBD_OK)
        return e->status;
    if (is_last)
        next_table(c);
    return EMBD_OK;
}

/* ---- beginning ---- */

/* The tables may change again. */
static void let_go(struct compaction *c)
{
    for (; c->at < c->n; c->at++)
        ops_of(c)->thaw(c->tables[c->at]->store);
    c->is_over = true;
}

static bool streams_init(struct streams *s, uint32_t n)
{
    s->list = malloc((n + 1) * sizeof *s->list);
    s->sets = malloc((n + 1) * sizeof *s->sets);
    return s->list != NULL && s->sets != NULL;
}

static void streams_fini(struct streams *s)
{
    free(s->list);
    free(s->sets);
    free(s->packed);
}

static void compaction_free(struct compaction *c)
{
    op_fini(&c->op);
    free(c->memory);
    free(c->tables);
    free(c->schemas);
    free(c->steps);
    free(c->staged);
    free(c->joined);
    free(c->left);
    streams_fini(&c->streams);
    streams_fini(&c->foreign);
    prepared_fini(&c->prepared);
    free(c->clients);
    free(c->places);
    free(c);
}

static uint32_t n_staged(const struct tables *tables)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < STAGED_SETS; i++)
        n += tables->staged[i] != NULL ? tables->staged[i]->n : 0;
    return n;
}

static struct compaction *compaction_new(struct commit *commit, struct embd__error *e)
{
    const struct engine *engine = commit->engine;
    uint32_t n = engine->tables.n + n_staged(&engine->tables) + 1;
    struct compaction *c = calloc(1, sizeof *c);
    if (c != NULL) {
        c->commit = commit;
        c->tables = malloc(n * sizeof *c->tables);
        c->schemas = malloc(n * sizeof *c->schemas);
        c->steps = malloc(n * sizeof *c->steps);
        c->staged = malloc(n * sizeof *c->staged);
        c->joined = malloc(n * sizeof *c->joined);
        c->left = malloc(n * sizeof *c->left);
        c->clients = malloc((engine->journaled_sources.n + 1) * sizeof *c->clients);
        c->places = malloc((engine->journaled_sources.n + 1) * sizeof *c->places);
        if (streams_init(&c->streams, engine->journaled_pushers.n) &&
            streams_init(&c->foreign, engine->pushers.n + engine->n_behind) && c->tables != NULL &&
            c->schemas != NULL && c->steps != NULL && c->staged != NULL && c->joined != NULL &&
            c->left != NULL && c->clients != NULL && c->places != NULL)
            return c;
        compaction_free(c);
    }
    embd__error_set(e, EMBD_NO_MEMORY, "no memory to compact a journal");
    return NULL;
}

/* Without the numbers that no table has. */
static int pack(const struct compaction *c, struct streams *s, struct embd__error *e)
{
    uint32_t n_words = c->n_ids / 64;
    s->packed = malloc((uint64_t)s->n * (n_words + 1) * sizeof *s->packed + 1);
    if (s->packed == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory to compact a journal");
    for (uint32_t i = 0; i < s->n; i++) {
        uint64_t *to = s->packed + (uint64_t)i * (n_words + 1);
        if (n_words > 0)
            memcpy(to, s->sets[i].words, n_words * sizeof *to);
        to[n_words] = s->sets[i].may_have_others;
    }
    return EMBD_OK;
}

static struct table_set journaled_of(const struct compaction *c)
{
    struct table_set journaled = {.may_have_others = 0};
    for (uint32_t i = 0; i < c->n; i++)
        if (c->staged[i] == 0)
            table_set_add(&journaled, c->tables[i]->number);
    return journaled;
}

static void list_streams(struct compaction *c)
{
    struct streams *s = &c->streams;
    const struct table_set journaled = journaled_of(c);
    s->n = pushers_list(&c->commit->engine->journaled_pushers, s->list, s->sets);
    for (uint32_t i = 0; i < s->n; i++)
        foreign_mark(&s->sets[i], &journaled, c->n_left > 0);
}

/* Of the streams of other tables, those that have pushed to these as well. */
static void choose_foreign(struct compaction *c)
{
    struct streams *s = &c->foreign;
    const struct table_set journaled = journaled_of(c);
    uint32_t n = pushers_list(&c->commit->engine->pushers, s->list, s->sets);
    for (uint32_t i = 0; i < n; i++) {
        struct table_set set = s->sets[i];
        if (!table_set_meets(&set, &journaled))
            continue;
        foreign_mark(&set, &journaled, c->n_left > 0);
        s->list[s->n] = s->list[i];
        s->sets[s->n++] = set;
    }
    s->n += foreign_list_behind(c->commit->engine, PUSHER_STREAMS_MAX - s->n, s->list + s->n,
                                s->sets + s->n);
    c->has_foreign = s->n == 0;
}

static void note_joining(struct compaction *c, const struct table *table)
{
    if (table->joins != EMBD_DURABILITY_SNAPSHOT)
        c->joined[c->n_joined++] = (struct joining){table->id, table->joining};
}

static int freeze_table(struct compaction *c, struct table *table, uint64_t staged,
                        struct embd__error *e)
{
    struct store_cut cut = {.id = 0};
    struct store_stats stats;
    if (!table_is_journaled(table))
        return EMBD_OK;
    note_joining(c, table);
    if (tables_freeze(&c->commit->engine->tables, table, &cut, e) != EMBD_OK)
        return e->status;
    ops_of(c)->stats(table->store, &stats);
    c->steps[c->n] = stats.steps;
    c->staged[c->n] = staged;
    c->schemas[c->n] = joining_schema(table);
    c->tables[c->n++] = table;
    return EMBD_OK;
}

static void note_left(struct compaction *c)
{
    const struct tables *tables = &c->commit->engine->tables;
    for (uint32_t i = 0; i < tables->n; i++)
        if (joining_is_left(tables->by_name[i]))
            c->left[c->n_left++] = tables->by_name[i];
}

static void note_number(struct compaction *c, const struct table *table)
{
    c->ids[table->number] = table->id;
    c->n_ids = table->number >= c->n_ids ? (table->number / 64 + 1) * 64 : c->n_ids;
}

static int freeze_tables(struct compaction *c, struct embd__error *e)
{
    const struct tables *tables = &c->commit->engine->tables;
    for (uint32_t i = 0; i < tables->n && e->status == EMBD_OK; i++)
        freeze_table(c, tables->by_name[i], 0, e);
    for (uint32_t i = 0; i < c->n; i++)
        note_number(c, c->tables[i]);
    for (uint32_t i = 0; i < STAGED_SETS; i++) {
        const struct staged *set = tables->staged[i];
        for (uint32_t k = 0; set != NULL && k < set->n && e->status == EMBD_OK; k++)
            freeze_table(c, set->list[k], set->id, e);
    }
    return e->status;
}

/* Tables that no journal has do not outlive a start. */
static int freeze_prepared(struct compaction *c, struct embd__error *e)
{
    const struct engine *engine = c->commit->engine;
    if (engine->prepared.place == NULL &&
        !staged_is_journaled(&engine->tables, engine->prepared.id))
        return EMBD_OK;
    return prepared_copy(&engine->prepared, &c->prepared, e);
}

static int freeze(struct compaction *c, struct embd__error *e)
{
    const struct engine *engine = c->commit->engine;
    if (freeze_tables(c, e) != EMBD_OK || freeze_prepared(c, e) != EMBD_OK)
        return e->status;
    note_left(c);
    list_streams(c);
    choose_foreign(c);
    c->decided = engine->decided;
    c->placed = engine->placed;
    c->is_placed_told = !is_told(&c->placed);
    c->n_clients = engine->journaled_sources.n;
    sources_list(&engine->journaled_sources, c->clients, c->places);
    return pack(c, &c->streams, e) == EMBD_OK ? pack(c, &c->foreign, e) : e->status;
}

int compaction_begin(struct commit *commit, struct compaction **out, struct embd__error *e)
{
    struct compaction *c = compaction_new(commit, e);
    if (c == NULL)
        return e->status;
    if (freeze(c, e) == EMBD_OK && journal_base_begin(commit->journal, e) == EMBD_OK) {
        *out = c;
        return EMBD_OK;
    }
    let_go(c);
    compaction_free(c);
    return e->status;
}

/* ---- going on, and the end ---- */

void compaction_give_up(struct compaction *c)
{
    if (c->is_over)
        return;
    c->is_given_up = true;
    basefile_stop(journal_base(c->commit->journal));
    let_go(c);
}

/* After the last record the tables may change again. */
static int hand_over(struct compaction *c, struct embd__error *e)
{
    if (!c->is_placed_told)
        add_placed(c, e);
    else if (c->at < c->n && !c->is_made)
        add_create(c, e);
    else if (c->at < c->n)
        add_rows(c, e);
    else if (c->left_at < c->n_left)
        add_left(c, e);
    else if (!c->has_foreign)
        add_foreign(c, e);
    else if (c->prepared.id != 0 || c->decided != 0)
        add_replacing(c, e);
    else if (add_streams(c, e) == EMBD_OK)
        let_go(c);
    if (e->status != EMBD_OK)
        compaction_give_up(c);
    return e->status;
}

/* The base takes the place of the earlier files. */
static void finish(struct compaction *c)
{
    if (c->is_over && !c->is_given_up && !c->ends)
        basefile_end(journal_base(c->commit->journal));
    c->ends = c->is_over;
}

int compaction_step(struct compaction *c, bool is_read, bool *has_more_out, struct embd__error *e)
{
    *has_more_out = false;
    if (c->is_over && !is_read)
        finish(c);
    if (c->is_over || !basefile_has_room(journal_base(c->commit->journal)))
        return EMBD_OK;
    *has_more_out = true;
    return hand_over(c, e);
}

bool compaction_is_over(const struct compaction *c)
{
    return basefile_is_over(journal_base(c->commit->journal));
}

int compaction_end(struct compaction *c, bool *again_out, struct embd__error *e)
{
    struct tables *tables = &c->commit->engine->tables;
    finish(c);
    let_go(c);
    int status = journal_base_take(c->commit->journal, e);
    for (uint32_t i = 0; i < c->n_joined && status == EMBD_OK; i++)
        joining_end(tables, tables_by_id(tables, c->joined[i].id), c->joined[i].number);
    *again_out = c->is_given_up;
    compaction_free(c);
    return status;
}

/* ---- at once ---- */

int compaction_make_now(struct commit *commit, struct embd__error *e)
{
    struct embd__error own = {.status = EMBD_OK}, closed = {.status = EMBD_OK};
    struct compaction *c;
    bool again, has_more;
    if (compaction_begin(commit, &c, e) != EMBD_OK)
        return e->status;
    while (!compaction_is_over(c)) {
        compaction_step(c, false, &has_more, &own);
        if (!has_more)
            basefile_wait(journal_base(commit->journal));
    }
    if (compaction_end(c, &again, &closed) == EMBD_OK)
        return EMBD_OK;
    *e = own.status != EMBD_OK ? own : closed;
    return e->status;
}
