/* handle_identity.c - whose the data directory is, for another server that compares it with its
 * own: identity. */
#include "server/identity/identity.h"
#include "server/service/deposing.h"
#include "server/service/doubt.h"
#include "server/service/state.h"

/* `decision`: shard 0 is asked about; 0: none. */
static void write_answer(struct call *call, const struct identity_answer *answer, uint64_t decision)
{
    struct msg *m = call->answer;
    bool decides = decision != 0 && call->shard->config.index == 0;
    embd__msg_result(m, call->reader.msgid);
    bool is_placed = call->shard->config.placement != NULL && answer->placement > 0;
    uint64_t lineage = deposing_lineage(call->shard);
    embd__msg_map(m, 9u + (lineage != 0) + 2u * decides + 2u * is_placed + answer->is_moving +
                         (answer->shards != 0));
    embd__msg_field_str(m, "cluster", answer->cluster);
    embd__msg_field_uint(m, "epoch", answer->epoch);
    embd__msg_field_uint(m, "start", answer->start);
    embd__msg_field_uint(m, "tables", call->shard->engine.tables.n);
    embd__msg_field_bool(m, "loaded", answer->is_loaded);
    embd__msg_field_uint(m, "cut", answer->cut);
    embd__msg_field_uint(m, "cut_rows", answer->cut_rows);
    embd__msg_field_uint(m, "known_epoch", answer->known_epoch);
    embd__msg_field_uint(m, "known_start", answer->known_start);
    if (lineage != 0)
        embd__msg_field_uint(m, "lineage", lineage);
    if (is_placed) {
        embd__msg_field_uint(m, "placement", answer->placement);
        embd__msg_field_uint(m, "placement_digest", answer->placement_digest);
    }
    if (answer->is_moving)
        embd__msg_field_bool(m, "moving", true);
    if (answer->shards != 0)
        embd__msg_field_uint(m, "shards", answer->shards);
    if (!decides)
        return;
    embd__msg_field_uint(m, "decision", decision);
    embd__msg_field_str(m, "decided", decision_names[staging_decide(call->shard, decision)]);
}

int handle_identity(struct call *call)
{
    struct fields f;
    struct identity_answer answer = {.is_there = true};
    const struct shard_config *config = &call->shard->config;
    embd__read_fields(&f, &call->reader, "identity");
    uint64_t shard = embd__field_uint(&f, "shard", 0, LIMIT_SHARDS - 1, FIELD_REQUIRED);
    uint64_t epoch = embd__field_uint(&f, "epoch", 0, INT64_MAX, 0);
    uint64_t decision = embd__field_uint(&f, "decision", 0, UINT64_MAX, 0);
    if (call_end(call, &f) != EMBD_OK)
        return call->error.status;
    if (config->identity != NULL)
        identity_tell(config->identity, shard, epoch, &answer);
    write_answer(call, &answer, decision);
    return EMBD_OK;
}
