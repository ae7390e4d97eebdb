/* refusals.c - see refusals.h. */
#include "server/shard/refusals.h"

#include "server/log/log.h"
#include "server/shard/state.h"

void refusals_note(struct shard *shard, const char *why)
{
    shard->counters.journal_errors++;
    if (shard->refused++ > 0)
        return;
    shard->refused_since_ns = clock_ns();
    log_event(LOG_ERROR, "journal_refuses", "shard=%u why=\"%s\"", shard->config.index, why);
}

void refusals_over(struct shard *shard)
{
    if (shard->refused == 0)
        return;
    log_event(LOG_INFO, "journal_takes_again", "shard=%u refused=%llu seconds=%.1f",
              shard->config.index, (unsigned long long)shard->refused,
              (double)(clock_ns() - shard->refused_since_ns) / 1e9);
    shard->refused = 0;
}
