/* insert.c - see insert.h.
 *
 * A pull of one part, or whose other parts make no rows, hands its own arrays to the store, which
 * refuses it before it changes anything. Where several tables make rows, all are asked before the
 * first is changed. Where several parts name one table, their keys are copied together. */
#include "server/engine/insert.h"

#include <stdlib.h>
#include <string.h>

#include "proto/limit.h"
#include "server/engine/capacity.h"
#include "server/engine/engine.h"

bool insert_is_of(const struct op_part *part)
{
    return part->table->schema.s.create_on == EMBD_CREATE_ON_PULL && !part->in.zero_missing &&
           part->in.n_keys > 0;
}

/* The part's keys are inserted with those of `first`, which is the first part of that table that
 * creates rows. */
static bool joins(const struct op_part *part, const struct op_part *first)
{
    return part->table == first->table && insert_is_of(part);
}

/* The keys of all its parts, one behind the other; slots are those of keys. Returns the end of what
 * it took. */
static uint8_t *join_keys(const struct op *op, struct op_part *first, uint8_t *memory)
{
    uint32_t n = first->inserted.n_keys, at = 0;
    uint64_t *keys = (uint64_t *)(void *)memory;
    uint16_t *slots = (uint16_t *)(void *)(keys + n);
    for (const struct op_part *p = first; p < op->parts + op->n_parts; p++) {
        if (!joins(p, first))
            continue;
        memcpy(keys + at, p->in.keys, p->in.n_keys * sizeof *keys);
        for (uint32_t r = 0, k = 0; r < p->in.n_rows && p->in.slots != NULL; r++)
            while (k < (p->in.offsets != NULL ? p->in.offsets[r + 1] : r + 1))
                slots[at + k++] = p->in.slots[r];
        at += p->in.n_keys;
    }
    first->inserted = (struct store_keys){
        .n_keys = n, .n_rows = n, .keys = keys, .slots = first->in.slots != NULL ? slots : NULL};
    first->inserted_statuses = first->wants_statuses ? (uint8_t *)(slots + n) : NULL;
    return memory + n * UINT64_C(16); /* 11 of them are used, and the next begins where keys may */
}

static int join_all(struct op *op, uint64_t n_joined, struct embd__error *e)
{
    uint8_t *memory = op->memory = malloc(n_joined * 16);
    if (memory == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for %llu keys of a pull's parts",
                               (unsigned long long)n_joined);
    for (uint32_t i = 0; i < op->n_parts; i++)
        if (op->parts[i].n_joined > 1)
            memory = join_keys(op, &op->parts[i], memory);
    return EMBD_OK;
}

/* Says of each first part what its table is to insert. *n_joined_out: keys of parts that are not
 * the only ones. */
static int find(struct op *op, uint32_t *n_tables_out, uint64_t *n_joined_out,
                struct embd__error *e)
{
    uint64_t look = op_look(op);
    for (uint32_t i = 0; i < op->n_parts; i++) {
        struct op_part *part = &op->parts[i];
        if (!insert_is_of(part))
            continue;
        struct op_part *first = &op->parts[tables_first(part->table, look, i)];
        uint64_t n = (uint64_t)first->inserted.n_keys + part->in.n_keys;
        if (n > LIMIT_KEYS)
            return embd__error_set(e, EMBD_TOO_LARGE,
                                   "part %u keys: %u, together with earlier parts %llu of table "
                                   "'%s', where pulls create rows; the limit is %u",
                                   i, part->in.n_keys, (unsigned long long)n,
                                   part->table->schema.s.name, LIMIT_KEYS);
        if (first == part) {
            part->inserted = op_keys(&part->in);
            part->inserted_statuses = part->statuses;
            part->may_drop = true;
            ++*n_tables_out;
        }
        first->inserted.n_keys = (uint32_t)n;
        first->may_drop = first->may_drop && part->statuses != NULL;
        first->wants_statuses = first->wants_statuses || part->statuses != NULL;
        if (++first->n_joined > 1)
            *n_joined_out += first->n_joined == 2 ? n : part->in.n_keys;
    }
    return EMBD_OK;
}

struct store_change insert_of(const struct op *op, struct op_part *part)
{
    struct store_change insert = {
        .ticket = part->ticket,
        .kind = STORE_INSERT,
        .in = part->inserted,
        .seconds = op->seconds,
        .statuses = part->inserted_statuses,
        .is_whole = !part->may_drop,
    };
    part->ticket = (struct store_ticket){0};
    return insert;
}

int insert_prepare(struct op *op, struct embd__error *e)
{
    uint32_t n_tables = 0;
    uint64_t n_joined = 0;
    if (find(op, &n_tables, &n_joined, e) != EMBD_OK ||
        (n_joined > 0 && join_all(op, n_joined, e) != EMBD_OK))
        return e->status;
    bool is_asked = n_tables > 1 || n_joined > 0;
    for (uint32_t i = 0; i < op->n_parts && e->status == EMBD_OK; i++) {
        if (op->parts[i].n_joined == 0 || capacity_reserve_insert(op, &op->parts[i], e) != EMBD_OK)
            continue;
        struct store_change insert = {0};
        if (is_asked) {
            insert = insert_of(op, &op->parts[i]);
            capacity_prepare(op, i, &insert, e);
        }
    }
    if (e->status != EMBD_OK)
        capacity_left(op);
    return e->status;
}

void insert_tell(const struct op *op, const struct op_part *first)
{
    const uint8_t *from = first->inserted_statuses;
    for (const struct op_part *p = first; p < op->parts + op->n_parts; p++) {
        if (!joins(p, first))
            continue;
        if (p->statuses != NULL)
            memcpy(p->statuses, from, p->in.n_keys);
        from += p->in.n_keys;
    }
}
