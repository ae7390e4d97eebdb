/* records.c - see records.h.
 *
 * The happy path: one question to each shard, as a follower asks, all sent together; the answers in
 * the shards' order. What can fail: a shard, or an answer that is not what was sent. */
#include "client/formats/records.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "client/core/client.h"
#include "client/formats/admin.h"
#include "client/formats/snapshot_files.h"

EMBD_API int embd__copy_records_whose(embd_client *client, struct records_whose *out)
{
    struct embd__error *e = embd__client_error(client);
    struct answer *answer;
    struct fields f;
    *e = (struct embd__error){0};
    struct msg *m = embd__admin_begin(client, METHOD_CLUSTER);
    embd__msg_map(m, 0);
    if (embd__request(client, 0, LISTENER_ADMIN, &answer) != EMBD_OK)
        return e->status;
    embd__read_fields(&f, &answer->reader, "cluster");
    embd__field_str(&f, "name", out->cluster, sizeof out->cluster, NULL);
    if (embd__admin_end(client, 0, METHOD_CLUSTER, answer) != EMBD_OK)
        return e->status;
    return embd__copy_lineage(client, &out->lineage);
}

/* ---- asking ---- */

struct taking {
    embd_client *client;
    records_take *take;
    void *arg;
};

static void take_answer(void *arg, uint32_t shard, struct answer *answer)
{
    struct taking *t = arg;
    struct records_came came = {.shard = shard};
    struct embd__error *e = embd__client_error(t->client);
    const struct follow_answer *a = &came.answer;
    embd__follow_answer_read(&answer->reader, &came.answer);
    if (e->status == EMBD_OK && XXH3_64bits(a->bytes, (size_t)a->n_bytes) != a->sum &&
        a->n_bytes > 0)
        embd__error_set(e, EMBD_PROTOCOL, "records came with another checksum");
    if (e->status == EMBD_OK)
        t->take(t->arg, &came);
    embd__admin_end(t->client, shard, METHOD_FOLLOW, answer);
}

static void write_ask(struct msg *m, const struct records_whose *whose,
                      const struct records_place *place, uint32_t wait_ms)
{
    struct follow_ask ask = {.lineage = whose->lineage,
                             .position = place->position,
                             .chain = place->chain,
                             .offset = place->offset,
                             .file = place->file,
                             .at = place->at,
                             .wait_ms = wait_ms,
                             .reads = true};
    snprintf(ask.name, sizeof ask.name, "%s", whose->reader);
    snprintf(ask.cluster, sizeof ask.cluster, "%s", whose->cluster);
    embd__follow_ask_write(m, &ask);
}

EMBD_API int embd__copy_records(embd_client *client, const struct records_whose *whose,
                                const struct records_place *places, uint32_t wait_ms,
                                records_take *take, void *arg)
{
    struct taking t = {.client = client, .take = take, .arg = arg};
    struct embd__error *e = embd__client_error(client);
    struct requests *requests;
    *e = (struct embd__error){0};
    if (embd__requests_new(client, &requests) != EMBD_OK)
        return e->status;
    for (uint32_t shard = 0; shard < client->n_shards; shard++)
        write_ask(embd__requests_add(requests, shard, METHOD_FOLLOW, 0), whose, &places[shard],
                  wait_ms);
    embd__requests_run(requests, take_answer, &t);
    embd__requests_free(requests);
    return e->status;
}
