/* pusher_last.c - how far each shard is with a pusher's stream. */
#include "client/core/client.h"
#include "client/core/request.h"

/* A stream is of journaled tables or of others; of the two one is 0. */
static int read_last(struct reader *r, uint64_t *last_out)
{
    struct fields f;
    embd__read_fields(&f, r, "writer");
    uint64_t journaled = embd__field_uint(&f, "journaled", 0, UINT64_MAX - 1, FIELD_REQUIRED),
             other = embd__field_uint(&f, "other", 0, UINT64_MAX - 1, FIELD_REQUIRED);
    *last_out = journaled > other ? journaled : other;
    return embd__fields_end(&f);
}

static int message(embd_client *client, uint32_t shard, const embd_pusher *pusher,
                   uint64_t *last_out)
{
    struct answer *answer;
    struct msg *m = embd__request_begin(client, METHOD_WRITER);
    embd__msg_map(m, 3);
    embd__msg_field_uint(m, "high", pusher->high);
    embd__msg_field_uint(m, "low", pusher->low);
    embd__msg_field_uint(m, "stream", pusher->stream);
    int status = embd__request(client, shard, LISTENER_DATA, &answer);
    if (status != EMBD_OK)
        return status;
    status = read_last(&answer->reader, last_out);
    embd__answer_free(answer);
    return status;
}

int embd_pusher_last(embd_client *client, const embd_pusher *pusher, uint64_t *least_out,
                     uint64_t *greatest_out)
{
    uint64_t least = UINT64_MAX, greatest = 0;
    client->error = (struct embd__error){0};
    for (uint32_t shard = 0; shard < client->n_shards; shard++) {
        uint64_t last = 0;
        int status = message(client, shard, pusher, &last);
        if (status != EMBD_OK && embd__client_has_shrunk(client))
            break;
        if (status != EMBD_OK)
            return embd__error_keep(&client->error, status);
        least = last < least ? last : least;
        greatest = last > greatest ? last : greatest;
    }
    *least_out = least;
    *greatest_out = greatest;
    return EMBD_OK;
}
