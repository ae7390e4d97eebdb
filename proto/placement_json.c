/* placement_json.c - see placement_json.h. */
#include "proto/placement_json.h"

json_t *embd__placement_to_json(const struct placement *p)
{
    json_t *runs = json_array();
    int failed = runs == NULL;
    for (uint32_t v = 0; v < PLACEMENT_VSHARDS && !failed; v += embd__placement_run(p, v)) {
        failed |= json_array_append_new(runs, json_integer(p->of_vshard[v]));
        failed |= json_array_append_new(runs, json_integer(embd__placement_run(p, v)));
    }
    if (!failed)
        return json_pack("{s:I, s:i, s:o}", "version", (json_int_t)p->version, "base", (int)p->base,
                         "runs", runs);
    json_decref(runs);
    return NULL;
}

/* 0 for what is no number above it: no version, base or count is. */
static uint64_t number(const json_t *value)
{
    return json_integer_value(value) > 0 ? (uint64_t)json_integer_value(value) : 0;
}

static void read_runs(const json_t *runs, struct placement *out, struct embd__error *e)
{
    for (size_t i = 0; i + 1 < json_array_size(runs) && e->status == EMBD_OK; i += 2) {
        const json_t *shard = json_array_get(runs, i);
        if (!json_is_integer(shard) || json_integer_value(shard) < 0)
            embd__error_set(e, EMBD_INVALID, "the placement has a shard that is not a number");
        else
            embd__placement_add(out, number(shard), number(json_array_get(runs, i + 1)), e);
    }
    if (e->status == EMBD_OK)
        embd__placement_end(out, e);
}

int embd__placement_from_json(const json_t *object, uint32_t n_shards, struct placement *out,
                              struct embd__error *e)
{
    if (embd__placement_begin(out, number(json_object_get(object, "version")), n_shards,
                              number(json_object_get(object, "base")), e) == EMBD_OK)
        read_runs(json_object_get(object, "runs"), out, e);
    if (e->status == EMBD_INVALID)
        e->status = EMBD_CORRUPT;
    if (e->status != EMBD_OK)
        embd__placement_even(out, 1, n_shards);
    return e->status;
}
