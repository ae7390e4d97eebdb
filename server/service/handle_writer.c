/* handle_writer.c - where a pusher's stream stands, for one that goes on after a restart; and how
 * many streams come back, from a journal or a snapshot. */
#include <stdlib.h>

#include "server/service/state.h"
#include "proto/streamsfile.h"

int handle_writer(struct call *call)
{
    struct fields f;
    struct push_number stream = {0};
    struct msg *m = call->answer;
    embd__read_fields(&f, &call->reader, "writer");
    stream.high = embd__field_uint(&f, "high", 0, UINT64_MAX, FIELD_REQUIRED);
    stream.low = embd__field_uint(&f, "low", 0, UINT64_MAX, FIELD_REQUIRED);
    stream.stream = embd__field_uint(&f, "stream", 0, UINT32_MAX, 0);
    if (call_end(call, &f) != EMBD_OK)
        return call->error.status;
    embd__msg_result(m, call->reader.msgid);
    embd__msg_map(m, 2);
    embd__msg_field_uint(m, "journaled",
                         pushers_last(&call->shard->engine.journaled_pushers, &stream));
    embd__msg_field_uint(m, "other", pushers_last(&call->shard->engine.pushers, &stream));
    return EMBD_OK;
}

/* ---- many ---- */

int handle_writers(struct call *call)
{
    struct op *op = work_op(call->work, OP_STREAMS);
    struct op_streams *streams = &op->as.streams;
    struct fields f;
    embd__read_fields(&f, &call->reader, "writers");
    uint64_t n = embd__field_uint(&f, "writers", 0, PUSHER_STREAMS_MAX, FIELD_REQUIRED);
    bool is_journaled = embd__field_bool(&f, "journaled", true);
    bool has_principals = embd__field_bool(&f, "principals", false);
    if (embd__fields_end(&f) != EMBD_OK)
        return call->error.status;
    const uint8_t *bytes = embd__read_bin(&call->reader, "writers",
                                          n * (has_principals ? STREAM_BYTES : STREAM_BYTES_OLD));
    if (embd__reader_end(&call->reader) != EMBD_OK)
        return call->error.status;
    call->work->memory = embd__streams_take(bytes, n, has_principals, &call->error);
    if (call->error.status != EMBD_OK)
        return call->error.status;
    *streams = (struct op_streams){
        .list = call->work->memory, .n = (uint32_t)n, .is_journaled = is_journaled};
    if (is_journaled && n > 0 && call->shard->commit.journal == NULL)
        return embd__error_set(
            &call->error, EMBD_UNSUPPORTED,
            "writers: this server has no data directory, and %llu streams are of journaled tables",
            (unsigned long long)n);
    return submit(call, submit_result_empty);
}
