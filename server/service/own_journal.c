#include "server/service/own_journal.h"

#include "server/identity/identity.h"
#include "server/service/state.h"

struct journal_config own_journal_config(const struct shard *shard)
{
    struct identity *identity = shard->config.identity;
    return (struct journal_config){
        .data_dir = shard->data_dir,
        .shard = shard->config.index,
        .n_shards = shard->config.n_shards,
        .most_shards = identity != NULL ? identity_most_shards(identity) : 0,
        .has_grown = shard->config.placement != NULL && shard->config.placement->version > 1,
        .is_by_records = moving_is_by_records(shard),
        .accepts_damage = shard->config.accepts_journal_damage,
        .wake = shard->config.wake,
        .wake_arg = shard->config.wake_arg,
        .recent = shard->feeding.recent,
    };
}

int own_journal_open(struct shard *shard, const struct journal_end *end, struct embd__error *e)
{
    const struct journal_config config = own_journal_config(shard);
    return journal_open(&config, end, &shard->commit.journal, e);
}
