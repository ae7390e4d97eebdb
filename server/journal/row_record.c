/* row_record.c - see row_record.h. */
#include "server/journal/row_record.h"

#include <stdio.h>

#include "proto/keyed.h"
#include "server/engine/check.h"
#include "server/engine/engine.h"
#include "server/engine/joining.h"
#include "server/engine/staged.h"

bool row_record_is_left_out(struct op *op, const char *name)
{
    struct left_out *left_out = tables_left_out_name(&op->engine->tables, name);
    if (left_out == NULL)
        return false;
    left_out->is_found = true;
    op->kind = OP_PULL;
    return true;
}

bool row_record_is_skipped(struct op *op, const char *name)
{
    if (!tables_skip_name(&op->engine->tables, name))
        return false;
    op->kind = OP_PULL;
    return true;
}

void row_record_load_write(struct msg *m, const struct op_load *load)
{
    const embd_schema *schema = &load->table->schema.s;
    struct load_fields fields = load->fields;
    snprintf(fields.table, sizeof fields.table, "%s", schema->name);
    fields.n_rows = load->block.n_rows;
    fields.n_candidates = load->block.n_candidates;
    embd__load_fields_write(m, &fields);
    embd__row_block_write(m, schema, &load->block);
}

/* Of a table that is left out: how many it had. */
static void count_rows(struct op *op, const struct load_fields *fields)
{
    struct left_out *left_out = tables_left_out_name(&op->engine->tables, fields->table);
    if (left_out != NULL && !fields->is_gone)
        left_out->rows += fields->n_rows;
}

/* A journal holds accepted operations, whatever the limits of steps were then. */
int row_record_load_read(struct op *op, struct reader *r)
{
    const struct routed_place anywhere = {.n_shards = 1};
    struct op_load *load = &op->as.load;
    if (embd__load_fields_read(r, UINT64_MAX, &load->fields) != EMBD_OK)
        return r->error->status;
    bool is_left_out = load->fields.staged == 0 ? row_record_is_skipped(op, load->fields.table)
                                                : row_record_is_left_out(op, load->fields.table);
    if (is_left_out) {
        count_rows(op, &load->fields);
        return EMBD_OK;
    }
    load->table =
        load->fields.staged == 0
            ? tables_find(&op->engine->tables, load->fields.table, r->error)
            : staged_find(&op->engine->tables, load->fields.staged, load->fields.table, r->error);
    if (load->table == NULL ||
        embd__row_block_read(r, &load->table->schema.s, load->fields.n_rows,
                             load->fields.n_candidates, &load->block) != EMBD_OK)
        return r->error->status;
    return check_block(load->table, &load->block, load->fields.is_gone, &anywhere, r->error);
}

/* ---- puts ---- */

void row_record_put_write(struct msg *m, const struct op *op)
{
    const struct op_put *put = &op->as.put;
    const embd_schema *schema = &put->table->schema.s;
    struct keyed_fields fields = {
        .n_keys = put->block.n_rows, .has_states = put->block.states != NULL, .number = op->number};
    fields.step = put->step;
    fields.seconds = op->seconds;
    fields.is_foreign = op->is_foreign;
    snprintf(fields.table, sizeof fields.table, "%s", schema->name);
    embd__keyed_fields_write(m, &fields);
    embd__put_bins_write(m, schema, &put->block);
}

/* Later pushes of its stream are not left out. */
static void leave_out_but_number(struct op *op)
{
    op->is_left_out = true;
    if (op->number.sequence > 0)
        op->kind = OP_PUSH;
}

int row_record_put_read(struct op *op, struct reader *r)
{
    const struct routed_place anywhere = {.n_shards = 1};
    struct op_put *put = &op->as.put;
    struct keyed_fields fields;
    put->n_inserted = 0;
    if (embd__put_record_read(r, &fields) != EMBD_OK)
        return r->error->status;
    op->number = fields.number;
    op->is_foreign = fields.is_foreign;
    put->step = fields.step;
    if (row_record_is_skipped(op, fields.table)) {
        op->is_number_alone = joining_is_apart(&op->engine->tables, fields.table);
        leave_out_but_number(op);
        return EMBD_OK;
    }
    op->seconds = fields.seconds;
    put->table = tables_find(&op->engine->tables, fields.table, r->error);
    if (put->table == NULL || embd__put_bins_read(r, &put->table->schema.s, fields.n_keys,
                                                  fields.has_states, &put->block) != EMBD_OK)
        return r->error->status;
    return check_keyed(put->table, &put->block, "put", &anywhere, r->error);
}
