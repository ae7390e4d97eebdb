/* config_placement.c - which shard is to have which keys: "VERSION:even", "VERSION:weights", or
 * "VERSION:SHARD=VSHARDS,SHARD=VSHARDS,..." with the runs of vshards in their order. Before the runs
 * "base=N," may stand, where the cluster began with another number of shards. */
#include <stdlib.h>
#include <string.h>

#include "server/config_values.h"

#define WEIGHT_MAX 1000000u
#define BASE       "base="

/* A number and the character behind it, which *text moves beyond; "" for the end. */
static bool take_number(const char **text, const char *ends, uint64_t *out, char *end_out)
{
    char *end;
    if (**text < '0' || **text > '9')
        return false;
    *out = strtoull(*text, &end, 10);
    *end_out = *end;
    *text = *end == '\0' ? end : end + 1;
    return *end == '\0' ? ends[0] == '\0' || strchr(ends, '$') != NULL : strchr(ends, *end) != NULL;
}

static int read_runs(const char *text, struct placement *out, struct embd__error *e)
{
    char end = ',';
    while (end == ',' && e->status == EMBD_OK) {
        uint64_t shard, count;
        if (!take_number(&text, "=", &shard, &end) || !take_number(&text, ",$", &count, &end))
            return embd__error_set(e, EMBD_INVALID,
                                   "a run is not SHARD=VSHARDS, two numbers; runs are separated by "
                                   "commas");
        embd__placement_add(out, shard, count, e);
    }
    return e->status == EMBD_OK ? embd__placement_end(out, e) : e->status;
}

/* A server's weight is that of each of its shards. */
static int weigh(const struct sources *from, const struct config *config, uint32_t *weights,
                 bool *are_given, struct embd__error *e)
{
    uint64_t total = 0;
    *are_given = false;
    for (uint32_t i = 0; i < config->n_servers; i++) {
        static const struct setting none;
        const struct setting *at =
            from->file.n_servers > 0 ? &from->file.servers[i].of[SETTING_WEIGHT] : &none;
        uint64_t weight;
        if (config_count(SETTING_WEIGHT, at, 0, WEIGHT_MAX, 1, &weight, e) != EMBD_OK)
            return e->status;
        *are_given |= at->text != NULL;
        for (uint32_t s = 0; s < config->servers[i].shards; s++)
            weights[config->servers[i].first_shard + s] = (uint32_t)weight;
        total += weight * config->servers[i].shards;
    }
    if (total == 0)
        return embd__error_set(e, EMBD_INVALID, "the weight of every server is 0");
    return EMBD_OK;
}

/* "base=2,", or nothing. */
static bool take_base(const char **text, uint64_t *out)
{
    char end;
    if (strncmp(*text, BASE, strlen(BASE)) != 0)
        return true;
    *text += strlen(BASE);
    return take_number(text, ",", out, &end);
}

static int read_text(const char *text, const uint32_t *weights, struct config *out,
                     struct embd__error *e)
{
    uint64_t version, base = out->n_shards;
    const char *runs;
    char end;
    struct placement *p = &out->placement;
    if (!take_number(&text, ":", &version, &end))
        return embd__error_set(e, EMBD_INVALID,
                               "it does not begin with a version and a colon, as 2:weights does");
    runs = text;
    if (!take_base(&runs, &base))
        return embd__error_set(e, EMBD_INVALID, "behind base= no number and comma stand");
    if (embd__placement_begin(p, version, out->n_shards, base, e) != EMBD_OK)
        return e->status;
    if (strcmp(text, "even") == 0)
        embd__placement_even(p, version, out->n_shards);
    else if (strcmp(text, "weights") == 0)
        embd__placement_weighted(p, version, out->n_shards, weights);
    else
        read_runs(runs, p, e);
    return e->status;
}

int config_read_placement(const struct sources *from, struct config *out, struct embd__error *e)
{
    uint32_t weights[LIMIT_SHARDS];
    struct embd__error why = {.status = EMBD_OK};
    const struct setting *at = config_pick(from, NULL, true, SETTING_PLACEMENT);
    if (weigh(from, out, weights, &out->has_placement, e) != EMBD_OK)
        return e->status;
    if (out->has_placement)
        embd__placement_weighted(&out->placement, 1, out->n_shards, weights);
    if (at->text == NULL)
        return EMBD_OK;
    out->has_placement = true;
    if (read_text(at->text, weights, out, &why) == EMBD_OK)
        return EMBD_OK;
    return config_complain(e, why.status, SETTING_PLACEMENT, at,
                           "'%.60s' is not a map of %u vshards to %u shards: %s", at->text,
                           PLACEMENT_VSHARDS, out->n_shards, why.text);
}
