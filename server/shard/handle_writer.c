/* handle_writer.c - where a writer's stream stands, for one that goes on after a restart; and how many
 * streams come back, from a journal or a snapshot. */
#include "commit.h"
#include "state.h"
#include "writersfile.h"

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

static int check_streams(struct call *call, const struct push_writer *list, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (embd__writer_check(&list[i], &call->error) != EMBD_OK)
            break;
    return call->error.status;
}

/* From a snapshot: they have to outlive the server as the tables do. */
static int record(struct call *call, uint64_t n)
{
    if (n == 0 || call->shard->is_replaying)
        return EMBD_OK;
    if (call->shard->journal == NULL)
        return embd__error_set(&call->error, EMBD_UNSUPPORTED,
                               "writers: this server has no data directory, and %llu streams are of "
                               "journaled tables",
                               (unsigned long long)n);
    return commit_now(call, EMBD_DURABLE);
}

int handle_writers(struct call *call)
{
    struct fields f;
    struct shard *shard = call->shard;
    embd__read_fields(&f, &call->reader, "writers");
    uint64_t n = embd__field_uint(&f, "writers", 0, WRITERS_MAX, FIELD_REQUIRED);
    bool is_journaled = embd__field_bool(&f, "journaled", true);
    if (embd__fields_end(&f) != EMBD_OK)
        return call->error.status;
    const struct push_writer *list =
        embd__read_bin(&call->reader, "writers", n * sizeof *list);
    if (embd__reader_end(&call->reader) != EMBD_OK || check_streams(call, list, n) != EMBD_OK ||
        (is_journaled && record(call, n) != EMBD_OK))
        return call->error.status;
    if (writers_restore(is_journaled ? &shard->journaled_writers : &shard->writers, list,
                        (uint32_t)n, &call->error) != EMBD_OK) {
        commit_withdraw(call->work, false, &call->error);
        return call->error.status;
    }
    embd__msg_result(call->answer, call->reader.msgid);
    embd__msg_map(call->answer, 0);
    return EMBD_OK;
}
