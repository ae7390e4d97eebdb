/* golden_identity.c - what servers ask each other about their data directories. As
 * golden_messages.c has the others. */
#include "tests/unit/golden_identity.h"

#include <string.h>

#define CLUSTER "00112233445566778899aabbccddeeff"
#define START   UINT64_C(0x0123456789abcdef)
#define LINEAGE UINT64_C(0x0011223344556677)

void build_identity_request(struct msg *m)
{
    embd__msg_request(m, 27, METHOD_IDENTITY);
    embd__msg_map(m, 2);
    embd__msg_field_uint(m, "shard", 2);
    embd__msg_field_uint(m, "epoch", 5);
    embd__msg_end(m);
}

void read_identity_request(struct reader *r)
{
    struct fields f;
    embd__read_fields(&f, r, "identity");
    embd__field_uint(&f, "shard", 2, 2, FIELD_REQUIRED);
    embd__field_uint(&f, "epoch", 5, 5, FIELD_REQUIRED);
    embd__fields_end(&f);
    embd__reader_end(r);
}

static void build_result(struct msg *m, uint32_t msgid, uint32_t n_fields)
{
    embd__msg_result(m, msgid);
    embd__msg_map(m, n_fields);
    embd__msg_field_str(m, "cluster", CLUSTER);
    embd__msg_field_uint(m, "epoch", 7);
    embd__msg_field_uint(m, "start", START);
    embd__msg_field_uint(m, "tables", 3);
    embd__msg_field_bool(m, "loaded", true);
    embd__msg_field_uint(m, "cut", 99);
    embd__msg_field_uint(m, "cut_rows", 1000);
    embd__msg_field_uint(m, "known_epoch", 4);
    embd__msg_field_uint(m, "known_start", 17);
}

void build_identity_result(struct msg *m)
{
    build_result(m, 27, 10);
    embd__msg_field_uint(m, "lineage", LINEAGE);
    embd__msg_end(m);
}

static void read_result(struct reader *r, bool is_decided)
{
    static const char *const names[] = {"made"};
    struct fields f;
    char cluster[64];
    embd__read_fields(&f, r, "identity");
    if (is_decided) {
        embd__field_uint(&f, "decision", 5, 5, FIELD_REQUIRED);
        embd__field_enum(&f, "decided", names, 1, -1);
    } else {
        embd__field_uint(&f, "lineage", LINEAGE, LINEAGE, FIELD_REQUIRED);
    }
    embd__field_str(&f, "cluster", cluster, sizeof cluster, NULL);
    embd__field_uint(&f, "epoch", 7, 7, FIELD_REQUIRED);
    embd__field_uint(&f, "start", START, START, FIELD_REQUIRED);
    embd__field_uint(&f, "tables", 3, 3, FIELD_REQUIRED);
    bool is_loaded = embd__field_bool(&f, "loaded", false);
    embd__field_uint(&f, "cut", 99, 99, FIELD_REQUIRED);
    embd__field_uint(&f, "cut_rows", 1000, 1000, FIELD_REQUIRED);
    embd__field_uint(&f, "known_epoch", 4, 4, FIELD_REQUIRED);
    embd__field_uint(&f, "known_start", 17, 17, FIELD_REQUIRED);
    embd__fields_end(&f);
    if (r->error->status == EMBD_OK && (!is_loaded || strcmp(cluster, CLUSTER) != 0))
        embd__error_set(r->error, EMBD_INVALID, "the identity is another");
    embd__reader_end(r);
}

void read_identity_result(struct reader *r)
{
    read_result(r, false);
}

/* ---- about a replacement of tables ---- */

void build_identity_decision_request(struct msg *m)
{
    embd__msg_request(m, 28, METHOD_IDENTITY);
    embd__msg_map(m, 3);
    embd__msg_field_uint(m, "shard", 2);
    embd__msg_field_uint(m, "epoch", 5);
    embd__msg_field_uint(m, "decision", 5);
    embd__msg_end(m);
}

void read_identity_decision_request(struct reader *r)
{
    struct fields f;
    embd__read_fields(&f, r, "identity");
    embd__field_uint(&f, "shard", 2, 2, FIELD_REQUIRED);
    embd__field_uint(&f, "epoch", 5, 5, FIELD_REQUIRED);
    embd__field_uint(&f, "decision", 5, 5, FIELD_REQUIRED);
    embd__fields_end(&f);
    embd__reader_end(r);
}

void build_identity_decision_result(struct msg *m)
{
    build_result(m, 28, 11);
    embd__msg_field_uint(m, "decision", 5);
    embd__msg_field_str(m, "decided", "made");
    embd__msg_end(m);
}

void read_identity_decision_result(struct reader *r)
{
    read_result(r, true);
}
