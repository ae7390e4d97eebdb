/* stages.c - see stages.h. */
#include "server/service/metrics/stages.h"

#include <string.h>

const char *stage_name(enum stage stage)
{
    static const char *const names[STAGE_COUNT] = {"queue", "decode", "store", "encode", "send"};
    return names[stage];
}

enum method stages_method(uint32_t index)
{
    return index == 0 ? METHOD_PULL : METHOD_PUSH;
}

static void remember(struct stages *stages, const struct stage_times *times, uint64_t now_ns)
{
    struct trace *trace = &stages->traces[stages->n_traces++ % STAGES_TRACES];
    *trace = (struct trace){.method = times->method, .sent_ns = now_ns, .bytes = times->bytes};
    memcpy(trace->ns, times->ns, sizeof trace->ns);
}

void stages_add(struct stages *stages, struct stage_times *times, uint64_t now_ns)
{
    int index = stages_index(times->method);
    if (index < 0)
        return;
    stage_end(times, STAGE_SEND, now_ns);
    times->ns[STAGE_SEND] -=
        times->made_ns < times->ns[STAGE_SEND] ? times->made_ns : times->ns[STAGE_SEND];
    for (uint32_t i = 0; i < STAGE_COUNT; i++)
        histogram_add(&stages->of[index][i], times->ns[i], times->weight);
    remember(stages, times, now_ns);
}

void stages_tick(struct stages *stages, uint64_t now_ns)
{
    if (!stages_is_due(stages, now_ns))
        return;
    memcpy(stages->before[1], stages->before[0], sizeof stages->before[0]);
    memcpy(stages->before[0], stages->methods, sizeof stages->methods);
    stages->turned_ns = now_ns;
}

uint64_t stages_recent_ns(const struct stages *stages, enum method method, double quantile)
{
    return histogram_quantile(&stages->methods[method], &stages->before[1][method], quantile);
}
