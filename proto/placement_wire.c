/* placement_wire.c - see placement_wire.h. */
#include "proto/placement_wire.h"

#include "proto/reading.h"

void embd__placement_write(struct msg *m, const struct placement *p)
{
    embd__msg_str(m, "placement");
    embd__msg_map(m, 3);
    embd__msg_field_uint(m, "version", p->version);
    embd__msg_field_uint(m, "base", p->base);
    embd__msg_str(m, "runs");
    embd__msg_array(m, 2 * embd__placement_runs(p));
    for (uint32_t v = 0; v < PLACEMENT_VSHARDS; v += embd__placement_run(p, v)) {
        embd__msg_uint(m, p->of_vshard[v]);
        embd__msg_uint(m, embd__placement_run(p, v));
    }
}

/* 0, which no run has as its count, for what is no unsigned integer. */
static uint64_t count_of(const msgpack_object *item)
{
    return item->type == MSGPACK_OBJECT_POSITIVE_INTEGER ? item->via.u64 : 0;
}

static void read_runs(struct fields *f, struct placement *out)
{
    const msgpack_object *items;
    struct embd__error why = {.status = EMBD_OK}, *e = f->reader->error;
    uint32_t n = embd__field_list_required(f, "runs", 2 * PLACEMENT_VSHARDS, &items);
    for (uint32_t i = 0; i + 1 < n && e->status == EMBD_OK && why.status == EMBD_OK; i += 2)
        if (items[i].type != MSGPACK_OBJECT_POSITIVE_INTEGER)
            embd__error_set(&why, EMBD_INVALID, "the placement has a shard that is not a number");
        else
            embd__placement_add(out, items[i].via.u64, count_of(&items[i + 1]), &why);
    if (e->status == EMBD_OK && why.status == EMBD_OK)
        embd__placement_end(out, &why);
    if (why.status != EMBD_OK)
        embd__error_set(e, embd__reader_fault(f->reader, EMBD_INVALID), "%s", why.text);
}

int embd__placement_read(struct fields *f, uint32_t n_shards, struct placement *out)
{
    struct fields own;
    struct embd__error *e = f->reader->error;
    embd__placement_even(out, 1, n_shards);
    if (!embd__field_has(f, "placement"))
        return e->status;
    embd__field_map(f, "placement", &own, "the placement");
    uint64_t version = embd__field_uint(&own, "version", 1, PLACEMENT_VERSION_MAX, FIELD_REQUIRED);
    uint64_t base = embd__field_uint(&own, "base", 1, PLACEMENT_VSHARDS, FIELD_REQUIRED);
    if (e->status == EMBD_OK && embd__placement_begin(out, version, n_shards, base, e) == EMBD_OK)
        read_runs(&own, out);
    if (e->status != EMBD_OK)
        embd__placement_even(out, 1, n_shards);
    return e->status;
}
