/* narrow_asks.c - the questions of a replica with narrow rows as messages, and what is kept of
 * their answers. Runs on the follower's thread, but for filling the questions in. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/dtype.h"
#include "proto/placement_wire.h"
#include "proto/schema.h"
#include "server/service/narrow_inside.h"

static struct narrow_question *question_of(struct follower_question *question)
{
    return (struct narrow_question *)(void *)question;
}

static void write_nothing(struct follower_question *question, struct msg *m)
{
    (void)question;
    embd__msg_map(m, 0);
}

static void begin(struct narrow_question *q, enum method method,
                  void (*write)(struct follower_question *question, struct msg *m),
                  void (*take)(struct follower_question *question, struct reader *r))
{
    narrow_question_fini(q);
    q->as = (struct follower_question){.method = method, .write = write, .take = take};
}

void narrow_question_fini(struct narrow_question *q)
{
    free(q->listed);
    free(q->part);
    embd__schema_fini(&q->schema);
    q->listed = NULL;
    q->part = NULL;
    q->n_listed = 0;
}

/* ---- cluster ---- */

/* Fields that a later version adds are not looked at. */
static void take_map(struct follower_question *question, struct reader *r)
{
    struct narrow_question *q = question_of(question);
    const msgpack_object *items;
    struct fields f;
    embd__read_fields(&f, r, "cluster");
    uint32_t n = embd__field_list(&f, "shards", UINT16_MAX, &items);
    if (n != q->n_shards)
        embd__error_set(r->error, EMBD_INVALID,
                        "the cluster has %u shards, this server has %u: set shards to as many", n,
                        q->n_shards);
    else
        embd__placement_read(&f, n, &q->map);
}

void narrow_ask_map(struct narrow_question *q, uint32_t n_shards)
{
    begin(q, METHOD_CLUSTER, write_nothing, take_map);
    q->n_shards = n_shards;
}

/* ---- tables ---- */

static void take_list(struct follower_question *question, struct reader *r)
{
    struct narrow_question *q = question_of(question);
    const msgpack_object *items;
    struct fields f, item;
    embd__read_fields(&f, r, "tables");
    uint32_t n = embd__field_list(&f, "tables", LIMIT_TABLES, &items);
    q->listed = calloc(n + 1, sizeof *q->listed);
    if (q->listed == NULL)
        embd__error_set(r->error, EMBD_NO_MEMORY, "no memory for a list of %u tables", n);
    for (uint32_t i = 0; i < n && r->error->status == EMBD_OK; i++) {
        embd__list_map(r, &items[i], &item, "tables");
        embd__field_name(&item, "name", q->listed[i].name, sizeof q->listed[i].name);
        q->listed[i].id = (uint32_t)embd__field_uint(&item, "id", 1, UINT32_MAX, FIELD_REQUIRED);
    }
    q->n_listed = n;
}

void narrow_ask_list(struct narrow_question *q)
{
    begin(q, METHOD_TABLES, write_nothing, take_list);
}

/* ---- table_describe ---- */

static void write_name(struct follower_question *question, struct msg *m)
{
    embd__msg_map(m, 1);
    embd__msg_field_str(m, "name", question_of(question)->name);
}

static void take_schema(struct follower_question *question, struct reader *r)
{
    struct narrow_question *q = question_of(question);
    struct fields f, schema;
    embd__read_fields(&f, r, "table_describe");
    embd__field_map(&f, "schema", &schema, "schema");
    if (embd__schema_read(&schema, &q->schema) != EMBD_OK || embd__reader_end(r) != EMBD_OK)
        return;
    if (strcmp(q->schema.s.name, q->name) != 0)
        embd__error_set(r->error, EMBD_PROTOCOL, "table %s was requested, the answer describes %s",
                        q->name, q->schema.s.name);
}

void narrow_ask_table(struct narrow_question *q, const char *name)
{
    begin(q, METHOD_TABLE_DESCRIBE, write_name, take_schema);
    snprintf(q->name, sizeof q->name, "%s", name);
}

/* ---- changes ---- */

static void write_round(struct follower_question *question, struct msg *m)
{
    embd__changes_ask_write(m, &question_of(question)->ask);
}

static int check_shape(const struct narrow_question *q, const struct changes_answer *a,
                       struct embd__error *e)
{
    if (a->dim == q->dim && a->dtype == q->ask.dtype && a->has_slots == q->has_slots)
        return EMBD_OK;
    return embd__error_set(
        e, EMBD_PROTOCOL, "rows of table '%s' came with dim %u and dtype %s, expected %u and %s",
        q->ask.table, a->dim, embd_dtype_name(a->dtype), q->dim, embd_dtype_name(q->ask.dtype));
}

static int check_part(const struct narrow_question *q, const struct changes_answer *a,
                      struct embd__error *e)
{
    const struct changes_ask *ask = &q->ask;
    if (check_shape(q, a, e) != EMBD_OK)
        return e->status;
    if (a->part != ask->part + 1 || a->before != ask->chain || (ask->id != 0 && a->id != ask->id))
        return embd__error_set(e, EMBD_PROTOCOL,
                               "part %llu upon %016llx of table '%s' came, expected %llu upon "
                               "%016llx: a part was lost, doubled or swapped",
                               (unsigned long long)a->part, (unsigned long long)a->before,
                               ask->table, (unsigned long long)(ask->part + 1),
                               (unsigned long long)ask->chain);
    if (a->chain != embd__changes_chain(a))
        return embd__error_set(e, EMBD_PROTOCOL, "part %llu of table '%s' was changed on its way",
                               (unsigned long long)a->part, ask->table);
    return EMBD_OK;
}

static const void *keep(uint8_t **at, const void *from, uint64_t bytes)
{
    uint8_t *to = *at;
    if (bytes > 0)
        memcpy(to, from, bytes);
    *at += (bytes + 7) & ~UINT64_C(7);
    return to;
}

/* Each array begins at a multiple of 8 bytes. NULL: no memory. */
static struct narrow_part *copy_part(const struct changes_answer *a)
{
    uint64_t slot_bytes = a->has_slots ? sizeof *a->slots : 0;
    uint64_t row_bytes = embd__value_bytes(a->dtype, a->dim) * a->n_rows;
    uint64_t bytes = (a->n_rows + a->n_gone) * (sizeof *a->keys + slot_bytes) + row_bytes + 40;
    struct narrow_part *part = malloc(sizeof *part + bytes);
    if (part == NULL)
        return NULL;
    uint8_t *at = (uint8_t *)(part + 1);
    *part = (struct narrow_part){
        .bytes = bytes, .step = a->step, .is_last = a->is_last, .n_gone = a->n_gone};
    part->block.n_rows = a->n_rows;
    part->block.keys = keep(&at, a->keys, a->n_rows * sizeof *a->keys);
    part->gone_keys = keep(&at, a->gone_keys, a->n_gone * sizeof *a->gone_keys);
    part->block.rows = keep(&at, a->rows, row_bytes);
    if (!a->has_slots)
        return part;
    part->block.slots = keep(&at, a->slots, a->n_rows * slot_bytes);
    part->gone_slots = keep(&at, a->gone_slots, a->n_gone * slot_bytes);
    return part;
}

static void take_round(struct follower_question *question, struct reader *r)
{
    struct narrow_question *q = question_of(question);
    struct changes_answer *a = &q->answer;
    if (embd__changes_answer_read(r, a) != EMBD_OK || a->gone[0] != '\0' || a->waits ||
        check_part(q, a, r->error) != EMBD_OK)
        return;
    q->part = copy_part(a);
    if (q->part == NULL)
        embd__error_set(r->error, EMBD_NO_MEMORY, "no memory for rows of table '%s'", q->ask.table);
}

void narrow_ask_round(struct narrow_question *q, const struct narrow_table *t)
{
    const embd_schema *s = &t->schema.s;
    begin(q, METHOD_CHANGES, write_round, take_round);
    q->dim = s->dim;
    q->has_slots = s->partition == EMBD_PARTITION_SLOT;
    q->ask = (struct changes_ask){.dtype = s->dtype,
                                  .ends = t->is_other,
                                  .id = t->subscription,
                                  .part = t->part,
                                  .chain = t->chain};
    snprintf(q->ask.table, sizeof q->ask.table, "%s", t->name);
}
