/* load.c - see load.h. */
#include "proto/load.h"

void embd__load_fields_write(struct msg *m, const struct load_fields *load)
{
    embd__msg_map(m, 3u + load->has_step + load->is_gone + (load->staged != 0));
    embd__msg_field_str(m, "table", load->table);
    embd__msg_field_uint(m, "rows", load->n_rows);
    embd__msg_field_uint(m, "candidates", load->n_candidates);
    if (load->has_step)
        embd__msg_field_uint(m, "step", load->step);
    if (load->is_gone)
        embd__msg_field_bool(m, "gone", true);
    if (load->staged != 0)
        embd__msg_field_uint(m, "staged", load->staged);
}

int embd__load_fields_read(struct reader *r, uint64_t max_step, struct load_fields *out)
{
    struct fields f;
    embd__read_fields(&f, r, "load");
    embd__field_str(&f, "table", out->table, sizeof out->table, NULL);
    out->n_rows = (uint32_t)embd__field_uint(&f, "rows", 0, LIMIT_ROWS, FIELD_REQUIRED);
    out->n_candidates = (uint32_t)embd__field_uint(&f, "candidates", 0, LIMIT_ROWS, FIELD_REQUIRED);
    out->has_step = embd__field_has(&f, "step");
    out->step = embd__field_uint(&f, "step", 0, max_step, 0);
    out->is_gone = embd__field_bool(&f, "gone", false);
    out->staged = embd__field_uint(&f, "staged", 1, UINT64_MAX, 0);
    return embd__fields_end(&f);
}
