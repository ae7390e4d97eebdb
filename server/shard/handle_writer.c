/* handle_writer.c - where a writer's stream stands, for one that goes on after a restart; and how
 * many streams come back, from a journal or a snapshot. */
#include <stdlib.h>

#include "server/shard/commit.h"
#include "server/shard/state.h"
#include "proto/writersfile.h"

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

/* ---- many ---- */

/* The list, malloc'd: what it was sent as need not be aligned, and may be of an earlier version. */
static struct push_stream *read_streams(struct call *call, const uint8_t *bytes, uint64_t n,
                                        bool has_principals)
{
    struct push_stream *list = malloc((n + 1) * sizeof *list);
    if (list == NULL)
        embd__error_set(&call->error, EMBD_NO_MEMORY, "no memory for %llu streams",
                        (unsigned long long)n);
    for (uint64_t i = 0; i < n && call->error.status == EMBD_OK; i++) {
        list[i] = embd__stream_read(bytes, has_principals, i);
        embd__stream_check(&list[i], has_principals, &call->error);
    }
    return list;
}

/* From a snapshot: they have to outlive the server as the tables do. */
static int record(struct call *call, uint64_t n)
{
    if (n == 0 || call->shard->is_replaying)
        return EMBD_OK;
    if (call->shard->journal == NULL)
        return embd__error_set(
            &call->error, EMBD_UNSUPPORTED,
            "writers: this server has no data directory, and %llu streams are of "
            "journaled tables",
            (unsigned long long)n);
    return commit_now(call, EMBD_DURABILITY_DURABLE);
}

/* As a record of an earlier version has them: for want of room others go. */
static int set_old(struct writers *writers, const struct push_stream *list, uint64_t n,
                   struct embd__error *e)
{
    for (uint64_t i = 0; i < n && e->status == EMBD_OK; i++) {
        const struct push_writer id = {
            .high = list[i].high, .low = list[i].low, .stream = list[i].stream};
        if (writers_know(writers, &id) || writers_begin_old(writers, &id, e) == EMBD_OK)
            writers_restore(writers, &list[i], 1, 0, e);
    }
    return e->status;
}

static int set(struct call *call, const struct push_stream *list, uint64_t n, bool is_journaled)
{
    struct shard *shard = call->shard;
    struct writers *writers = is_journaled ? &shard->journaled_writers : &shard->writers;
    if (shard->replays_old)
        return set_old(writers, list, n, &call->error);
    if (writers_check_room(writers, list, (uint32_t)n, &call->error) != EMBD_OK ||
        (is_journaled && record(call, n) != EMBD_OK))
        return call->error.status;
    if (writers_restore(writers, list, (uint32_t)n, shard_seen_ns(shard), &call->error) != EMBD_OK)
        commit_withdraw(call->work, false, &call->error);
    return call->error.status;
}

int handle_writers(struct call *call)
{
    struct fields f;
    embd__read_fields(&f, &call->reader, "writers");
    uint64_t n = embd__field_uint(&f, "writers", 0, WRITERS_MAX, FIELD_REQUIRED);
    bool is_journaled = embd__field_bool(&f, "journaled", true);
    bool has_principals = embd__field_bool(&f, "principals", false);
    if (embd__fields_end(&f) != EMBD_OK)
        return call->error.status;
    const uint8_t *bytes = embd__read_bin(&call->reader, "writers",
                                          n * (has_principals ? STREAM_BYTES : STREAM_BYTES_OLD));
    if (embd__reader_end(&call->reader) != EMBD_OK)
        return call->error.status;
    struct push_stream *list = read_streams(call, bytes, n, has_principals);
    if (call->error.status == EMBD_OK)
        set(call, list, n, is_journaled);
    free(list);
    if (call->error.status != EMBD_OK)
        return call->error.status;
    embd__msg_result(call->answer, call->reader.msgid);
    embd__msg_map(call->answer, 0);
    return EMBD_OK;
}
