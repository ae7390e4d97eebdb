/* opening.c - see opening.h. */
#include "proto/opening.h"

static void write_stream(struct msg *m, const struct push_number *stream)
{
    embd__msg_field_uint(m, "high", stream->high);
    embd__msg_field_uint(m, "low", stream->low);
    embd__msg_field_uint(m, "stream", stream->stream);
}

static void read_stream(struct fields *f, struct push_number *out)
{
    out->high = embd__field_uint(f, "high", 0, UINT64_MAX, FIELD_REQUIRED);
    out->low = embd__field_uint(f, "low", 0, UINT64_MAX, FIELD_REQUIRED);
    out->stream = embd__field_uint(f, "stream", 0, UINT32_MAX, 0);
}

void embd__opening_write(struct msg *m, const struct stream_opening *opening, bool is_record)
{
    embd__msg_map(m, 4u + is_record + (is_record && opening->forgets));
    write_stream(m, &opening->stream);
    embd__msg_field_bool(m, "journaled", opening->is_journaled);
    if (!is_record)
        return;
    embd__msg_field_uint(m, "principal", opening->principal);
    if (!opening->forgets)
        return;
    embd__msg_str(m, "forgets");
    embd__msg_map(m, 3);
    write_stream(m, &opening->forgotten);
}

static void read_decision(struct fields *f, struct stream_opening *out)
{
    struct fields inner;
    out->principal = embd__field_uint(f, "principal", 0, UINT64_MAX, FIELD_REQUIRED);
    out->forgets = embd__field_has(f, "forgets");
    if (!out->forgets)
        return;
    embd__field_map(f, "forgets", &inner, "the stream that goes");
    read_stream(&inner, &out->forgotten);
    embd__fields_end(&inner);
}

int embd__opening_read(struct reader *r, bool is_record, struct stream_opening *out)
{
    struct fields f;
    *out = (struct stream_opening){.is_journaled = false};
    embd__read_fields(&f, r, "stream_open");
    read_stream(&f, &out->stream);
    out->is_journaled = embd__field_bool(&f, "journaled", true);
    if (is_record)
        read_decision(&f, out);
    embd__fields_end(&f);
    return embd__reader_end(r);
}

void embd__opened_write(struct msg *m, uint64_t last, bool opened)
{
    embd__msg_map(m, 2);
    embd__msg_field_uint(m, "last", last);
    embd__msg_field_bool(m, "opened", opened);
}

int embd__opened_read(struct reader *r, uint64_t *last_out, bool *opened_out)
{
    struct fields f;
    embd__read_fields(&f, r, "stream_open");
    *last_out = embd__field_uint(&f, "last", 0, UINT64_MAX - 1, FIELD_REQUIRED);
    *opened_out = embd__field_bool(&f, "opened", false);
    embd__fields_end(&f);
    return embd__reader_end(r);
}
