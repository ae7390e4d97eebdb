/* handle_hold.c - hold and release. */
#include "state.h"

int handle_hold(struct call *call)
{
    struct shard *shard = call->shard;
    struct fields f;
    embd__read_fields(&f, &call->reader, "hold");
    uint64_t timeout_ms = embd__field_uint(&f, "timeout_ms", 1, HOLD_MAX_MS, HOLD_DEFAULT_MS);
    if (call_end(call, &f) != EMBD_OK)
        return call->error.status;
    hold_begin(&shard->hold, call->request->session, shard->now_ns + timeout_ms * 1000000u);
    embd__msg_result(call->answer, call->reader.msgid);
    embd__msg_map(call->answer, 0);
    return EMBD_OK;
}

/* What had to wait goes on after the answer to this. */
int handle_release(struct call *call)
{
    struct shard *shard = call->shard;
    struct shard_session *session = call->request->session;
    struct fields f;
    embd__read_fields(&f, &call->reader, "release");
    if (call_end(call, &f) != EMBD_OK)
        return call->error.status;
    if (!session->holds)
        return embd__error_set(
            &call->error, EMBD_INVALID,
            "release: this connection holds nothing; a hold ends by itself after its timeout_ms");
    uint64_t since_ns = shard->hold.waiting_since_ns;
    uint64_t held_us = since_ns == 0 ? 0 : (shard->now_ns - since_ns) / 1000;
    hold_end(&shard->hold, session);
    embd__msg_result(call->answer, call->reader.msgid);
    embd__msg_map(call->answer, 1);
    embd__msg_field_uint(call->answer, "held_us", held_us);
    return EMBD_OK;
}
