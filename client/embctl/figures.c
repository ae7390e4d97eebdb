/* figures.c - the figures of all shards at one moment. */
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/embctl/embctl.h"
#include "client/embctl/figures.h"
#include "embd/admin.h"

/* ---- reading ---- */

/* Figures of a shard itself come first: no table has an empty name. */
static const char *owner(const struct figure *figure)
{
    return figure->table ? figure->table : "";
}

static int by_name(const void *left, const void *right)
{
    const struct figure *a = left, *b = right;
    int tables = strcmp(owner(a), owner(b));
    return tables != 0 ? tables : strcmp(a->name, b->name);
}

static struct figure *find(const struct figures *f, const char *table, const char *name)
{
    struct figure wanted = {.table = (char *)table, .name = (char *)name};
    struct figure *const *found = tfind(&wanted, &f->index, by_name);
    return found ? *found : NULL;
}

static void free_figure(void *pointer)
{
    struct figure *figure = pointer;
    free(figure->table);
    free(figure->name);
    free(figure->values);
    free(figure->known);
    free(figure);
}

static struct figure *new_figure(const char *table, const char *name, uint32_t n_shards)
{
    struct figure *figure = calloc(1, sizeof *figure);
    if (!figure)
        return NULL;
    *figure = (struct figure){.table = table ? strdup(table) : NULL,
                              .name = strdup(name),
                              .values = calloc(n_shards, sizeof *figure->values),
                              .known = calloc(n_shards, sizeof *figure->known)};
    if ((!table || figure->table) && figure->name && figure->values && figure->known)
        return figure;
    free_figure(figure);
    return NULL;
}

static struct figure *add(struct figures *f, const char *table, const char *name)
{
    struct figure **grown = reallocarray(f->list, f->n + 1, sizeof(struct figure *));
    if (!grown)
        return NULL;
    f->list = grown;
    struct figure *figure = new_figure(table, name, f->n_shards);
    if (figure && !tsearch(figure, &f->index, by_name)) {
        free_figure(figure);
        return NULL;
    }
    if (figure)
        f->list[f->n++] = figure;
    return figure;
}

static int on_figure(void *arg, const char *table, const char *name, uint64_t value)
{
    struct figures *f = arg;
    if (f->only_table && (!table || strcmp(table, f->only_table)))
        return 0;
    struct figure *figure = find(f, table, name);
    if (!figure)
        figure = add(f, table, name);
    if (!figure)
        return EMBD_NO_MEMORY;
    figure->values[f->shard] = value;
    figure->known[f->shard] = true;
    return 0;
}

int figures_open(embd_client *client, const char *only_table, struct figures *out)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *out = (struct figures){.n_shards = embd_shard_count(client), .only_table = only_table};
    out->at = (double)now.tv_sec + (double)now.tv_nsec / 1e9;
    out->is_up = calloc(out->n_shards, sizeof *out->is_up);
    return out->is_up ? EMBD_OK : EMBD_NO_MEMORY;
}

int figures_read_shard(embd_client *client, uint32_t shard, struct figures *f)
{
    f->shard = shard;
    int status = embd_stats(client, shard, on_figure, f);
    f->is_up[shard] = status == EMBD_OK;
    return status;
}

int figures_read(embd_client *client, const char *only_table, struct figures *out)
{
    int status = figures_open(client, only_table, out);
    for (uint32_t shard = 0; shard < out->n_shards && status == EMBD_OK; shard++)
        status = figures_read_shard(client, shard, out);
    return status;
}

int figures_read_some(embd_client *client, const char *only_table, struct figures *out)
{
    int result = figures_open(client, only_table, out);
    for (uint32_t shard = 0; shard < out->n_shards && result != EMBD_NO_MEMORY; shard++) {
        int status = figures_read_shard(client, shard, out);
        if (status != EMBD_OK)
            result = status == EMBD_NO_MEMORY ? status : end_silent();
    }
    return result;
}

void figures_free(struct figures *f)
{
    tdestroy(f->index, free_figure);
    free(f->list);
    free(f->is_up);
    *f = (struct figures){0};
}

/* ---- asking ---- */

const struct figure *figures_find(const struct figures *f, const char *table, const char *name)
{
    return find(f, table, name);
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

bool figures_is_momentary(const char *name)
{
    return ends_with(name, "_p50_us") || ends_with(name, "_p99_us") || ends_with(name, "_age_us") ||
           ends_with(name, "_longest_us");
}

static bool adds_up(const char *name)
{
    static const char *const others[] = {"uptime_us",   "draining", "loading",
                                         "tables",      "steps",    "index_bytes_per_key",
                                         "restored_cut"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(others[i], name))
            return false;
    return !figures_is_momentary(name);
}

struct sums figures_sum(const struct figures *f, const struct figure *figure)
{
    struct sums s = {.least = UINT64_MAX};
    if (!figure)
        return (struct sums){0};
    for (uint32_t shard = 0; shard < f->n_shards; shard++) {
        uint64_t value = figure->values[shard];
        if (!figure->known[shard])
            continue;
        s.total += value;
        s.least = value < s.least ? value : s.least;
        s.most = value > s.most ? value : s.most;
    }
    if (s.least == UINT64_MAX)
        s.least = 0;
    if (!adds_up(figure->name))
        s.total = s.most;
    return s;
}

uint64_t figures_get(const struct figures *f, uint32_t shard, const char *name)
{
    const struct figure *figure = figures_find(f, NULL, name);
    return figure ? figure->values[shard] : 0;
}

uint64_t figures_of_tables(const struct figures *f, uint32_t shard, const char *name)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < f->n; i++)
        if (f->list[i]->table && !strcmp(f->list[i]->name, name))
            sum += f->list[i]->values[shard];
    return sum;
}

uint64_t figures_table_memory(const struct figures *f, const char *table)
{
    return figures_sum(f, find(f, table, "row_bytes")).total +
           figures_sum(f, find(f, table, "index_bytes")).total;
}

uint64_t figures_shard_memory(const struct figures *f, uint32_t shard)
{
    return figures_of_tables(f, shard, "row_bytes") + figures_of_tables(f, shard, "index_bytes");
}

/* Every table has one figure of this name. */
const char *figures_next_table(const struct figures *f, size_t *at)
{
    while (*at < f->n) {
        const struct figure *figure = f->list[(*at)++];
        if (figure->table && !strcmp(figure->name, "rows"))
            return figure->table;
    }
    return NULL;
}

const char *figures_state(const struct figures *f, uint32_t shard)
{
    if (!f->is_up[shard])
        return "silent";
    if (figures_get(f, shard, "directory_refused"))
        return "refused";
    if (figures_get(f, shard, "deposed"))
        return "deposed";
    if (figures_get(f, shard, "follows"))
        return "follows";
    if (figures_get(f, shard, "loading"))
        return "loading";
    return figures_get(f, shard, "draining") ? "draining" : "ready";
}

uint64_t figures_rate(uint64_t now, uint64_t before, double seconds)
{
    return now > before && seconds > 0 ? (uint64_t)((double)(now - before) / seconds + 0.5) : 0;
}
