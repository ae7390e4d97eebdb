/* golden_tick.c - the messages of a worker's clock, as golden_messages.c has the others. */
#include "tests/unit/golden_tick.h"
#include "embd/sync.h"

void build_tick_request(struct msg *m)
{
    embd__msg_request(m, 20, METHOD_TICK);
    embd__msg_map(m, 10);
    embd__msg_field_str(m, "job", "dlrm");
    embd__msg_field_uint(m, "worker", 1);
    embd__msg_field_uint(m, "workers", 4);
    embd__msg_field_uint(m, "clock", 300);
    embd__msg_field_uint(m, "lease_ms", 10000);
    embd__msg_field_bool(m, "leave", false);
    embd__msg_field_uint(m, "incarnation", 0x1122334455667788);
    embd__msg_field_uint(m, "epoch", 2);
    embd__msg_field_bool(m, "beat", false);
    embd__msg_field_bool(m, "asynchronous", false);
    embd__msg_end(m);
}

void read_tick_request(struct reader *r)
{
    struct fields f;
    char job[EMBD_NAME_MAX + 1];
    embd__read_fields(&f, r, "tick");
    embd__field_str(&f, "job", job, sizeof job, NULL);
    embd__field_uint(&f, "worker", 1, 1, FIELD_REQUIRED);
    embd__field_uint(&f, "workers", 4, 4, FIELD_REQUIRED);
    embd__field_uint(&f, "clock", 300, 300, FIELD_REQUIRED);
    embd__field_uint(&f, "lease_ms", 10000, 10000, FIELD_REQUIRED);
    embd__field_bool(&f, "leave", true);
    embd__field_uint(&f, "incarnation", 0x1122334455667788, 0x1122334455667788, FIELD_REQUIRED);
    embd__field_uint(&f, "epoch", 2, 2, FIELD_REQUIRED);
    embd__field_bool(&f, "beat", true);
    embd__field_bool(&f, "asynchronous", true);
    embd__fields_end(&f);
    embd__reader_end(r);
}

void build_tick_result(struct msg *m)
{
    embd__msg_result(m, 20);
    embd__msg_map(m, 7);
    embd__msg_field_uint(m, "slowest", 298);
    embd__msg_field_uint(m, "live", 3);
    embd__msg_field_uint(m, "n_dropped", 1);
    embd__msg_str(m, "dropped");
    embd__msg_array(m, 1);
    embd__msg_uint(m, 3);
    embd__msg_field_uint(m, "epoch", 2);
    embd__msg_field_uint(m, "clock", 299);
    embd__msg_str(m, "awaited");
    embd__msg_map(m, 3);
    embd__msg_field_uint(m, "worker", 2);
    embd__msg_field_uint(m, "clock", 298);
    embd__msg_field_uint(m, "seen_ms", 412);
    embd__msg_end(m);
}

void read_tick_result(struct reader *r)
{
    struct fields f, awaited;
    const msgpack_object *dropped;
    embd__read_fields(&f, r, "tick");
    embd__field_uint(&f, "slowest", 298, 298, FIELD_REQUIRED);
    embd__field_uint(&f, "live", 3, 3, FIELD_REQUIRED);
    embd__field_uint(&f, "n_dropped", 1, 1, FIELD_REQUIRED);
    embd__field_list(&f, "dropped", EMBD_DROPPED_MAX, &dropped);
    embd__field_uint(&f, "epoch", 2, 2, FIELD_REQUIRED);
    embd__field_uint(&f, "clock", 299, 299, FIELD_REQUIRED);
    embd__field_map(&f, "awaited", &awaited, "the worker that is awaited");
    embd__field_uint(&awaited, "worker", 2, 2, FIELD_REQUIRED);
    embd__field_uint(&awaited, "clock", 298, 298, FIELD_REQUIRED);
    embd__field_uint(&awaited, "seen_ms", 412, 412, FIELD_REQUIRED);
    embd__fields_end(&awaited);
    embd__fields_end(&f);
    embd__reader_end(r);
}
