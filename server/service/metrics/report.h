/* report.h - all figures of a shard at one moment, copied for those who show them: the answer to
 * `stats` (stats.c), the metrics and the status page (server/net/http/).
 *
 * All use one list of names; the end of a name is its unit. Taken on the shard's thread; the copy
 * belongs to the taker and points to nothing of the shard. */
#ifndef EMBD_SERVICE_REPORT_H
#define EMBD_SERVICE_REPORT_H

#include <stdbool.h>

#include "embd/embd.h"
#include "proto/limit.h"
#include "server/service/shard.h"
#include "server/service/token_use.h"
#include "server/service/metrics/stages.h"

struct figure {
    const char *name; /* static */
    uint64_t value;
};

#define REPORT_SHARD_FIGURES 96
#define REPORT_TABLE_FIGURES 24
#define REPORT_TOKENS        256 /* the first of the list */

struct table_report {
    char name[EMBD_NAME_MAX + 1];
    struct figure figures[REPORT_TABLE_FIGURES];
    uint32_t n_figures;
};

/* About 1.5 MiB: allocate it once, zeroed. */
struct shard_report {
    uint32_t shard;
    bool is_draining, is_loading, is_in_doubt, is_deposed, follows, lacks_replicas;
    const char *store; /* static */
    struct figure figures[REPORT_SHARD_FIGURES];
    uint32_t n_figures;
    uint64_t requests[METHOD_COUNT];
    struct histogram methods[METHOD_COUNT];
    struct histogram freshness; /* of a shard that follows */
    struct histogram stages[STAGED_METHODS][STAGE_COUNT];
    uint64_t p50_ns[METHOD_COUNT], p99_ns[METHOD_COUNT]; /* of the last 10 to 20 seconds */
    struct table_report tables[LIMIT_TABLES];
    uint32_t n_tables;
    struct token_use tokens[REPORT_TOKENS]; /* with limits */
    uint32_t n_tokens;
};

/* On the shard's thread. */
void shard_report(const struct shard *shard, struct shard_report *out);

#endif
