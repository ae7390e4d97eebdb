/* golden_shared.c - memory that a client shares with its server, keys that lie there, and rows that
 * go there. As golden_messages.c has the others. */
#include "tests/unit/golden_shared.h"

#define MEMORY_BYTES (16u << 20)

void build_share_request(struct msg *m)
{
    embd__msg_request(m, 2, METHOD_SHARE);
    embd__msg_map(m, 1);
    embd__msg_field_uint(m, "bytes", MEMORY_BYTES);
    embd__msg_end(m);
}

void read_share_request(struct reader *r)
{
    struct fields f;
    embd__read_fields(&f, r, "share");
    embd__field_uint(&f, "bytes", MEMORY_BYTES, MEMORY_BYTES, FIELD_REQUIRED);
    embd__fields_end(&f);
    embd__reader_end(r);
}

void build_ring_request(struct msg *m)
{
    embd__msg_request(m, 2, METHOD_RING);
    embd__msg_map(m, 2);
    embd__msg_field_uint(m, "requests", 256u << 10);
    embd__msg_field_uint(m, "answers", 1u << 20);
    embd__msg_end(m);
}

void read_ring_request(struct reader *r)
{
    struct fields f;
    embd__read_fields(&f, r, "ring");
    embd__field_uint(&f, "requests", 256u << 10, 256u << 10, FIELD_REQUIRED);
    embd__field_uint(&f, "answers", 1u << 20, 1u << 20, FIELD_REQUIRED);
    embd__fields_end(&f);
    embd__reader_end(r);
}

/* Of one connection for many shards. */
void build_trunk_request(struct msg *m)
{
    embd__msg_request(m, 2, METHOD_TRUNK);
    embd__msg_map(m, 0);
    embd__msg_end(m);
}

void read_trunk_request(struct reader *r)
{
    struct fields f;
    embd__read_fields(&f, r, "trunk");
    embd__fields_end(&f);
    embd__reader_end(r);
}

/* Keys of 1 KiB, which the client's library names by itself. */
void build_pull_shared_request(struct msg *m)
{
    static const uint64_t memory[1024];
    struct part part = {
        .table = 0x12345678, .n_keys = 128, .n_rows = 128, .into = 65536, .keys = memory + 512};
    const struct shared_range range = {(const uint8_t *)memory, sizeof memory};
    embd__msg_request(m, 7, METHOD_PULL);
    embd__msg_share(m, &range);
    embd__parts_write(m, &part, 1, PARTS_PULL);
    embd__msg_end(m);
}

void read_pull_shared_request(struct reader *r)
{
    struct part part;
    if (embd__parts_read(r, &part, 1, PARTS_PULL) == 1 && part.into != 65536)
        embd__error_set(r->error, EMBD_INVALID, "into is %llu", (unsigned long long)part.into);
}

void build_pull_shared_result(struct msg *m)
{
    const struct part_answer answer = {
        .n_rows = 128, .dim = 2, .dtype = EMBD_DTYPE_F32, .into = 65536};
    embd__msg_result(m, 7);
    embd__pull_answer_write(m, &answer, 1, 0, NULL);
    embd__msg_end(m);
}

void read_pull_shared_result(struct reader *r)
{
    struct part_answer answer;
    embd__pull_answer_read(r, &answer, 1);
}
