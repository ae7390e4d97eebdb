/* operate.c - ping, figures and the end of a cluster. */
#include <string.h>

#include "client/client.h"
#include "client/request.h"

static int ask(embd_client *client, uint32_t shard, enum listener listener, enum method method,
               struct answer **answer_out)
{
    struct msg *m = embd__request_begin(client, method);
    embd__msg_map(m, 0);
    return embd__request(client, shard, listener, answer_out);
}

int embd_ping(embd_client *client, uint32_t shard, uint64_t *microseconds_out)
{
    struct answer *answer;
    client->error = (struct embd__error){0};
    uint64_t begin = uv_hrtime();
    int status = ask(client, shard, LISTENER_DATA, METHOD_PING, &answer);
    if (status != EMBD_OK)
        return status;
    if (microseconds_out != NULL)
        *microseconds_out = (uv_hrtime() - begin) / 1000;
    embd__answer_free(answer);
    return EMBD_OK;
}

/* ---- figures ---- */

#define STAT_NAME_MAX 63u

struct visitor {
    int (*visit)(void *arg, const char *table, const char *name, uint64_t value);
    void *arg;
};

/* The map `stats` of `fields`: names and unsigned integers, whatever the server counts. */
static int visit_map(struct fields *fields, const char *table, const struct visitor *visitor)
{
    struct fields stats;
    embd__field_map(fields, "stats", &stats, "stats");
    for (uint32_t i = 0; stats.map != NULL && i < stats.map->size; i++) {
        const msgpack_object_kv *kv = &stats.map->ptr[i];
        char name[STAT_NAME_MAX + 1];
        if (kv->key.type != MSGPACK_OBJECT_STR || kv->key.via.str.size > STAT_NAME_MAX ||
            kv->val.type != MSGPACK_OBJECT_POSITIVE_INTEGER)
            return embd__error_set(
                fields->reader->error, EMBD_PROTOCOL,
                "figure %u of stats is not a name of up to %u bytes with an unsigned integer", i,
                STAT_NAME_MAX);
        memcpy(name, kv->key.via.str.ptr, kv->key.via.str.size);
        name[kv->key.via.str.size] = '\0';
        int status = visitor->visit(visitor->arg, table, name, kv->val.via.u64);
        if (status != 0)
            return status;
    }
    return fields->reader->error->status;
}

static int visit_answer(struct reader *r, const struct visitor *visitor)
{
    struct fields fields, table;
    const msgpack_object *items;
    embd__read_fields(&fields, r, "stats");
    int status = visit_map(&fields, NULL, visitor);
    uint32_t n = status == EMBD_OK ? embd__field_list(&fields, "tables", LIMIT_TABLES, &items) : 0;
    for (uint32_t i = 0; i < n && status == EMBD_OK; i++) {
        char name[EMBD_NAME_MAX + 1];
        embd__list_map(r, &items[i], &table, "a table of stats");
        embd__field_str(&table, "table", name, sizeof name, NULL);
        if (r->error->status != EMBD_OK)
            return r->error->status;
        status = visit_map(&table, name, visitor);
    }
    return status != EMBD_OK ? status : r->error->status;
}

int embd_stats(embd_client *client, uint32_t shard,
               int (*visit)(void *arg, const char *table, const char *name, uint64_t value),
               void *arg)
{
    struct answer *answer;
    struct visitor visitor = {visit, arg};
    client->error = (struct embd__error){0};
    int status = ask(client, shard, LISTENER_DATA, METHOD_STATS, &answer);
    if (status != EMBD_OK)
        return status;
    status = visit_answer(&answer->reader, &visitor);
    embd__answer_free(answer);
    return status;
}

/* ---- drain ---- */

/* Every admin socket must be there before the first process is told to go. Then a shard whose
 * process was already told through another of its shards may be gone, or say that it is going. */
int embd_drain(embd_client *client)
{
    struct answer *answer;
    int status = EMBD_OK;
    client->error = (struct embd__error){0};
    for (uint32_t i = 0; i < client->n_shards && status == EMBD_OK; i++) {
        status = ask(client, i, LISTENER_ADMIN, METHOD_PING, &answer);
        if (status == EMBD_OK)
            embd__answer_free(answer);
    }
    for (uint32_t i = 0; i < client->n_shards && status == EMBD_OK; i++) {
        status = ask(client, i, LISTENER_ADMIN, METHOD_DRAIN, &answer);
        if (status == EMBD_OK)
            embd__answer_free(answer);
        bool is_going =
            status == EMBD_CLOSED || status == EMBD_DRAINING || status == EMBD_UNREACHABLE;
        if (i > 0 && is_going) {
            client->error = (struct embd__error){0};
            status = EMBD_OK;
        }
    }
    return status;
}

int embd_drain_shard(embd_client *client, uint32_t shard)
{
    struct answer *answer;
    client->error = (struct embd__error){0};
    int status = ask(client, shard, LISTENER_ADMIN, METHOD_DRAIN, &answer);
    if (status == EMBD_OK)
        embd__answer_free(answer);
    return status;
}
