/* copying.c - see copying.h. */
#include "tests/server/copying.h"

#include <string.h>

#include "tests/server/batch.h"

embd_schema copying_slotted(void)
{
    embd_schema schema;
    embd_schema_init(&schema);
    strcpy(schema.name, "slotted");
    schema.durability =
        EMBD_DURABILITY_SNAPSHOT; /* it goes between shards with directories and without */
    schema.dim = 6;
    schema.slots = 4;
    schema.partition = EMBD_PARTITION_SLOT;
    schema.dtype = EMBD_DTYPE_F16;
    schema.admit_after = 2;
    embd_optimizer_init(&schema.optimizer, EMBD_OPTIMIZER_ADAM, 0.01f);
    return schema;
}

embd_schema copying_plain(void)
{
    embd_schema schema;
    embd_schema_init(&schema);
    strcpy(schema.name, "plain");
    schema.durability = EMBD_DURABILITY_SNAPSHOT;
    schema.dim = 16;
    return schema;
}

void copying_fill(struct rig *rig, const embd_schema *schema)
{
    static struct batch batch;
    create_table(rig, schema);
    for (int i = 0; i < 3; i++) {
        batch_fill(&batch, schema);
        struct part part = batch_part(&batch, schema, EMBD_DTYPE_F32, false);
        part.want_status = false;
        push(rig, &part, NULL);
    }
}

void copying_simple(struct rig *rig, enum method method)
{
    struct exchange *x = ask(rig, &rig->admin, method);
    embd__msg_map(&x->out, 0);
    ask_ok(x);
    ask_free(x);
}

void copying_load(struct rig *rig, const embd_schema *schema, const struct row_block *block,
                  uint64_t step)
{
    struct exchange *x = ask(rig, &rig->admin, METHOD_LOAD);
    embd__msg_map(&x->out, 4);
    embd__msg_field_str(&x->out, "table", schema->name);
    embd__msg_field_uint(&x->out, "rows", block->n_rows);
    embd__msg_field_uint(&x->out, "candidates", block->n_candidates);
    embd__msg_field_uint(&x->out, "step", step);
    embd__row_block_write(&x->out, schema, block);
    ask_ok(x);
    ask_free(x);
}

void copying_push_again(struct rig *rig, const embd_schema *schema, uint64_t random)
{
    static struct batch batch;
    batch.random = random;
    batch_fill(&batch, schema);
    struct part part = batch_part(&batch, schema, EMBD_DTYPE_F32, false);
    part.want_status = false;
    push(rig, &part, NULL);
}
