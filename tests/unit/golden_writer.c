/* golden_writer.c - the messages of pushes that are applied once. As golden_messages.c has the
 * others. */
#include "tests/unit/golden_writer.h"

#include <string.h>

#include "proto/opening.h"

#define HIGH UINT64_C(0x0123456789abcdef)
#define LOW  UINT64_C(0xfedcba9876543210)

static const uint64_t push_keys[1] = {5};
static const float push_grads[2] = {0.25f, -1};

void build_push_writer_request(struct msg *m)
{
    const struct part part = {.table = 0x12345678,
                              .n_keys = 1,
                              .n_rows = 1,
                              .keys = push_keys,
                              .grads = push_grads,
                              .grads_bytes = sizeof push_grads};
    const struct push_extra extra = {.number = {HIGH, LOW, 300, 3}};
    embd__msg_request(m, 24, METHOD_PUSH);
    embd__push_write(m, &part, 1, &extra);
    embd__msg_end(m);
}

void read_push_writer_request(struct reader *r)
{
    static struct part parts[LIMIT_PARTS];
    struct push_extra extra;
    int n = embd__push_read(r, parts, LIMIT_PARTS, &extra);
    const struct push_number *w = &extra.number;
    if (n != 1 || parts[0].grads_bytes != sizeof push_grads ||
        memcmp(parts[0].grads, push_grads, sizeof push_grads) || extra.round.n_workers ||
        w->high != HIGH || w->low != LOW || w->stream != 3 || w->sequence != 300)
        embd__error_set(r->error, EMBD_INVALID, "the push or its writer is another");
}

void build_push_again_result(struct msg *m)
{
    embd__msg_result(m, 24);
    embd__push_again_write(m, 0);
    embd__msg_end(m);
}

void read_push_again_result(struct reader *r)
{
    struct push_answer answers[LIMIT_PARTS];
    bool again;
    if (embd__push_answer_read(r, answers, LIMIT_PARTS, &again) != 0 || !again)
        embd__error_set(r->error, EMBD_INVALID, "the answer is another");
}

void build_writer_request(struct msg *m)
{
    embd__msg_request(m, 25, METHOD_WRITER);
    embd__msg_map(m, 3);
    embd__msg_field_uint(m, "high", HIGH);
    embd__msg_field_uint(m, "low", LOW);
    embd__msg_field_uint(m, "stream", 3);
    embd__msg_end(m);
}

void read_writer_request(struct reader *r)
{
    struct fields f;
    embd__read_fields(&f, r, "writer");
    embd__field_uint(&f, "high", HIGH, HIGH, FIELD_REQUIRED);
    embd__field_uint(&f, "low", LOW, LOW, FIELD_REQUIRED);
    embd__field_uint(&f, "stream", 3, 3, FIELD_REQUIRED);
    embd__fields_end(&f);
    embd__reader_end(r);
}

void build_writer_result(struct msg *m)
{
    embd__msg_result(m, 25);
    embd__msg_map(m, 2);
    embd__msg_field_uint(m, "journaled", 300);
    embd__msg_field_uint(m, "other", 0);
    embd__msg_end(m);
}

void read_writer_result(struct reader *r)
{
    struct fields f;
    embd__read_fields(&f, r, "writer");
    embd__field_uint(&f, "journaled", 300, 300, FIELD_REQUIRED);
    embd__field_uint(&f, "other", 0, 0, FIELD_REQUIRED);
    embd__fields_end(&f);
    embd__reader_end(r);
}

void build_stream_open_request(struct msg *m)
{
    const struct stream_opening opening = {.stream = {HIGH, LOW, 0, 3}, .is_journaled = true};
    embd__msg_request(m, 26, METHOD_STREAM_OPEN);
    embd__opening_write(m, &opening, false);
    embd__msg_end(m);
}

void read_stream_open_request(struct reader *r)
{
    struct stream_opening opening;
    if (embd__opening_read(r, false, &opening) == EMBD_OK &&
        (opening.stream.high != HIGH || opening.stream.low != LOW || opening.stream.stream != 3 ||
         !opening.is_journaled || opening.principal != 0 || opening.forgets))
        embd__error_set(r->error, EMBD_INVALID, "the opening is another");
}

void build_stream_open_result(struct msg *m)
{
    embd__msg_result(m, 26);
    embd__opened_write(m, 0, true);
    embd__msg_end(m);
}

void read_stream_open_result(struct reader *r)
{
    uint64_t last;
    bool opened;
    if (embd__opened_read(r, &last, &opened) == EMBD_OK && (last != 0 || !opened))
        embd__error_set(r->error, EMBD_INVALID, "the answer is another");
}
