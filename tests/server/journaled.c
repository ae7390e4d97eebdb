/* journaled.c - see journaled.h. */
#include "tests/server/journaled.h"

#include <stdio.h>
#include <unistd.h>

#include "proto/route.h"

void journaled_new(struct journaled *j)
{
    scratch_new(j->dir);
    journaled_start(j);
}

void journaled_start(struct journaled *j)
{
    rig_open(&j->rig, &store_host, 0, 1, j->dir);
}

void journaled_stop(struct journaled *j)
{
    rig_close(&j->rig);
}

void journaled_end(struct journaled *j)
{
    journaled_stop(j);
    scratch_remove(j->dir);
}

void forget_reached(const char *dir)
{
    char path[128];
    snprintf(path, sizeof path, "%s/journal.0.reached", dir);
    unlink(path);
}

struct part part_of(const char *table, const uint64_t *keys, uint32_t n, const float *grads)
{
    return (struct part){.table = embd__table_id(table),
                         .n_keys = n,
                         .n_rows = n,
                         .keys = keys,
                         .grads = grads,
                         .grads_bytes = n * 4 * sizeof *grads,
                         .dtype = EMBD_DTYPE_F32};
}

embd_schema kept_schema(const char *name, embd_durability durability)
{
    embd_schema schema;
    embd_schema_init(&schema);
    snprintf(schema.name, sizeof schema.name, "%s", name);
    schema.dim = 4;
    schema.durability = durability;
    embd_optimizer_init(&schema.optimizer, EMBD_OPTIMIZER_ADAM, 0.01f);
    return schema;
}

void push_batch(struct rig *rig, const embd_schema *schema)
{
    static struct batch batch;
    batch_fill(&batch, schema);
    struct part part = batch_part(&batch, schema, EMBD_DTYPE_F32, false);
    part.want_status = false;
    push(rig, &part, NULL);
}

void push_two(struct rig *rig, const char *name, float value)
{
    static const uint64_t keys[] = {1, 2};
    const float grads[] = {value, 1, 2, 3, -value, 5, 6, 7};
    struct part part = part_of(name, keys, 2, grads);
    push(rig, &part, NULL);
}

void erase_one(struct rig *rig, const char *name)
{
    static const uint64_t keys[] = {1};
    struct part part = {.table = embd__table_id(name), .n_keys = 1, .n_rows = 1, .keys = keys};
    struct exchange *x = ask_parts(rig, METHOD_ERASE, &part, 1);
    ask_ok(x);
    ask_free(x);
}

void drop_table(struct rig *rig, const char *name)
{
    struct exchange *x = ask(rig, &rig->admin, METHOD_TABLE_DROP);
    embd__msg_map(&x->out, 1);
    embd__msg_field_str(&x->out, "name", name);
    ask_ok(x);
    ask_free(x);
}
