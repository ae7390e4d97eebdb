/* handle_writer.c - where a writer's stream stands, for one that goes on after a restart. */
#include "state.h"

int handle_writer(struct call *call)
{
    struct fields f;
    struct push_writer stream = {0};
    struct msg *m = call->answer;
    embd__read_fields(&f, &call->reader, "writer");
    stream.high = embd__field_uint(&f, "high", 0, UINT64_MAX, FIELD_REQUIRED);
    stream.low = embd__field_uint(&f, "low", 0, UINT64_MAX, FIELD_REQUIRED);
    stream.stream = embd__field_uint(&f, "stream", 0, UINT32_MAX, 0);
    if (call_end(call, &f) != EMBD_OK)
        return call->error.status;
    embd__msg_result(m, call->reader.msgid);
    embd__msg_map(m, 2);
    embd__msg_field_uint(m, "journaled", writers_last(&call->shard->journaled_writers, &stream));
    embd__msg_field_uint(m, "other", writers_last(&call->shard->writers, &stream));
    return EMBD_OK;
}
