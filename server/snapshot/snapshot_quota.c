/* snapshot_quota.c - see snapshot_quota.h. */
#include "server/snapshot/snapshot_quota.h"

#include <stdlib.h>
#include <string.h>

#include "server/access/access.h"
#include "server/snapshot/snapshot.h"

static int refuse_bytes(const struct snapshot_quota *quota, uint64_t bytes, struct embd__error *e)
{
    return embd__error_set(
        e, EMBD_FULL,
        "snapshot: those of token '%s' would take %llu bytes in this data directory, the limit is "
        "%llu (snapshot_bytes in the list of tokens): keep fewer, or raise the limit",
        quota->token, (unsigned long long)bytes, (unsigned long long)quota->most_bytes);
}

static int check_begin(const struct snapshot_quota *quota, struct embd__error *e)
{
    if (quota->n >= quota->most)
        return embd__error_set(
            e, EMBD_FULL,
            "snapshot: there are %llu of token '%s' in this data directory, the limit is %llu "
            "(snapshots in the list of tokens): keep fewer, or raise the limit",
            (unsigned long long)quota->n, quota->token, (unsigned long long)quota->most);
    return quota->bytes < quota->most_bytes ? EMBD_OK : refuse_bytes(quota, quota->bytes, e);
}

int snapshot_quota_begin(int data_dir, const struct grant *grant, struct snapshot_quota *out,
                         struct embd__error *e)
{
    struct snapshot_list all = {.n = 0};
    *out = (struct snapshot_quota){.most = grant->most_snapshots,
                                   .most_bytes = grant->most_snapshot_bytes};
    memcpy(out->token, grant->name, sizeof out->token);
    snapshot_list(data_dir, &all, e);
    for (uint32_t i = 0; i < all.n; i++) {
        const char *job = all.list[i].scope.job;
        bool counts = job[0] != '\0' && grant_covers(grant, job);
        out->n += counts;
        out->bytes += counts ? all.list[i].bytes : 0;
    }
    free(all.list);
    return e->status == EMBD_OK ? check_begin(out, e) : e->status;
}

uint64_t snapshot_quota_own(const struct snapshot_parts *parts)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < parts->n_tables; i++)
        for (uint32_t k = 0; k < parts->tables[i].n_parts; k++)
            bytes += parts->tables[i].parts[k].bytes;
    for (uint32_t i = 0; i < parts->n_streams; i++)
        bytes += parts->streams[i].bytes;
    for (uint32_t i = 0; i < parts->n_blobs; i++)
        bytes += parts->blobs[i].bytes;
    return bytes;
}

int snapshot_quota_check(const struct snapshot_parts *parts, uint64_t more, struct embd__error *e)
{
    uint64_t bytes =
        parts->quota.token[0] != '\0' ? parts->quota.bytes + snapshot_quota_own(parts) + more : 0;
    return bytes <= parts->quota.most_bytes || bytes == 0 ? EMBD_OK
                                                          : refuse_bytes(&parts->quota, bytes, e);
}
