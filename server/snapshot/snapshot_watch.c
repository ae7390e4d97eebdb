/* snapshot_watch.c - see snapshot_watch.h. */
#include "server/snapshot/snapshot_watch.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "server/coordinator/coordinator.h"
#include "server/snapshot/snapshot_select.h"
#include "server/log/log.h"
#include "server/service/state.h"

void snapshot_watch_begin(struct shard *shard)
{
    char manifest[SNAPSHOT_NAME_MAX + 16];
    struct stat st;
    if (!shard->config.is_first || shard->config.chosen == NULL)
        return;
    const struct snapshot_list *all = snapshot_select_list(shard->config.chosen);
    uint32_t i = 0;
    snapshot_use_take(&shard->snapshot_use, all);
    while (i < all->n && !embd__scope_is_all(&all->list[i].scope))
        i++;
    if (i == all->n)
        return;
    snprintf(manifest, sizeof manifest, "%s/manifest.json", all->list[i].name);
    if (fstatat(shard->data_dir, manifest, &st, AT_SYMLINK_NOFOLLOW) == 0)
        shard->snapshot_made_s = (uint64_t)st.st_mtim.tv_sec;
}

void snapshot_watch_committed(struct shard *shard)
{
    shard->counters.snapshots++;
    if (embd__scope_is_all(&shard->snapshot.scope))
        shard->snapshot_made_s = (uint64_t)time(NULL);
}

void snapshot_watch_failed(struct shard *shard, const char *phase, const char *name,
                           const struct embd__error *why)
{
    shard->counters.snapshot_errors++;
    log_event(LOG_WARN, "snapshot_failed", "shard=%u snapshot=%s phase=%s why=\"%s\"",
              shard->config.index, name, phase, why->text);
}

uint64_t snapshot_watch_jobs_failed(const struct shard *shard)
{
    return shard->config.is_first ? coordinator_failures(shard->config.coordinator) : 0;
}

/* At least a second, also if the clock was set back: 0 means none. */
uint64_t snapshot_watch_age_us(const struct shard *shard)
{
    uint64_t now_s = (uint64_t)time(NULL), made_s = shard->snapshot_made_s;
    if (made_s == 0)
        return 0;
    return now_s > made_s ? (now_s - made_s) * 1000000u : 1000000u;
}
