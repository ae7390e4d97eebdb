/* http_status.c - /statusz.json: all figures under their own names, for the status page and for
 * scripts. Counters count from the start of the shard; p50 and p99 are of the last 10 to 20
 * seconds. */
#include <dirent.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "server/net/http/http_pages.h"

static uint64_t count_files(void)
{
    DIR *dir = opendir("/proc/self/fd");
    uint64_t n = 0;
    if (dir == NULL)
        return 0;
    while (readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n > 3 ? n - 3 : 0; /* without ., .. and its own */
}

static uint64_t resident_bytes(void)
{
    unsigned long long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "re");
    if (statm == NULL)
        return 0;
    if (fscanf(statm, "%*u %llu", &pages) != 1)
        pages = 0;
    fclose(statm);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

void process_usage_read(struct process_usage *out)
{
    struct rusage usage = {0};
    getrusage(RUSAGE_SELF, &usage);
    out->cpu_seconds = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    out->resident_bytes = resident_bytes();
    out->open_files = count_files();
}

static void write_figures(struct text *out, const struct figure *figures, uint32_t n)
{
    text_print(out, "{");
    for (uint32_t i = 0; i < n; i++)
        text_print(out, "%s\"%s\":%llu", i > 0 ? "," : "", figures[i].name,
                   (unsigned long long)figures[i].value);
    text_print(out, "}");
}

static void write_methods(struct text *out, const struct shard_report *r)
{
    bool is_first = true;
    text_print(out, "{");
    for (uint32_t m = 0; m < METHOD_COUNT; m++) {
        if (r->requests[m] == 0)
            continue;
        text_print(out, "%s\"%s\":{\"requests\":%llu,\"p50_us\":%.3f,\"p99_us\":%.3f}",
                   is_first ? "" : ",", embd__method_name((enum method)m),
                   (unsigned long long)r->requests[m], (double)r->p50_ns[m] / 1e3,
                   (double)r->p99_ns[m] / 1e3);
        is_first = false;
    }
    text_print(out, "}");
}

static void write_stages(struct text *out, const struct shard_report *r)
{
    text_print(out, "{");
    for (uint32_t m = 0; m < STAGED_METHODS; m++) {
        text_print(out, "%s\"%s\":{", m > 0 ? "," : "", embd__method_name(stages_method(m)));
        for (uint32_t s = 0; s < STAGE_COUNT; s++)
            text_print(out, "%s\"%s_us\":%llu", s > 0 ? "," : "", stage_name((enum stage)s),
                       (unsigned long long)r->stages[m][s].sum_ns / 1000);
        text_print(out, "}");
    }
    text_print(out, "}");
}

static void write_tables(struct text *out, const struct shard_report *r)
{
    text_print(out, "[");
    for (uint32_t i = 0; i < r->n_tables; i++) {
        text_print(out, "%s{\"name\":\"%s\",\"figures\":", i > 0 ? "," : "", r->tables[i].name);
        write_figures(out, r->tables[i].figures, r->tables[i].n_figures);
        text_print(out, "}");
    }
    text_print(out, "]");
}

static void write_shard(struct text *out, const struct http_view *view, uint32_t i)
{
    const struct shard_report *r = view->shards[i].report;
    text_print(out, "%s\n{\"shard\":%u,\"address\":", i > 0 ? "," : "",
               view->process->first_shard + i);
    text_json(out, view->shards[i].address);
    text_print(out, ",\"up\":%s", r != NULL ? "true" : "false");
    if (r != NULL) {
        text_print(out, ",\"store\":\"%s\",\"figures\":", r->store);
        write_figures(out, r->figures, r->n_figures);
        text_print(out, ",\"methods\":");
        write_methods(out, r);
        text_print(out, ",\"stages\":");
        write_stages(out, r);
        text_print(out, ",\"tables\":");
        write_tables(out, r);
    }
    text_print(out, "}");
}

int http_status_write(struct text *out, const struct http_view *view)
{
    struct process_usage usage;
    struct timespec now;
    process_usage_read(&usage);
    clock_gettime(CLOCK_MONOTONIC, &now);
    text_print(out, "{\"server\":\"embd %s\",\"cluster\":", EMBD_VERSION);
    text_json(out, view->process->cluster_name);
    text_print(out,
               ",\"cluster_shards\":%u,\"monotonic_s\":%.3f,\"cpu_s\":%.6f,\"resident_bytes\":%llu,"
               "\"open_files\":%llu,\"shards\":[",
               view->process->n_cluster_shards, (double)now.tv_sec + (double)now.tv_nsec / 1e9,
               usage.cpu_seconds, (unsigned long long)usage.resident_bytes,
               (unsigned long long)usage.open_files);
    for (uint32_t i = 0; i < view->n_shards; i++)
        write_shard(out, view, i);
    text_print(out, "\n]}\n");
    return 200;
}
