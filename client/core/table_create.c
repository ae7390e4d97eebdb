/* table_create.c - tables are created and dropped on every shard, one after the other, also where
 * the cluster gets more of them meanwhile. */
#include "client/core/client.h"
#include "client/core/request.h"
#include "proto/schema_fields.h"

static void clear_error(embd_client *client)
{
    *embd__client_error(client) = (struct embd__error){0};
}

static int create_on(embd_client *client, uint32_t shard, const embd_schema *schema)
{
    struct answer *answer;
    struct msg *m = embd__request_begin(client, METHOD_TABLE_CREATE);
    embd__msg_map(m, 1);
    embd__msg_str(m, "schema");
    embd__schema_write(m, schema);
    int status = embd__request(client, shard, LISTENER_DATA, &answer);
    if (status == EMBD_OK)
        embd__answer_free(answer);
    return status;
}

int embd_table_create(embd_client *client, const embd_schema *schema)
{
    embd_schema own;
    clear_error(client);
    int status = embd__schema_take(&own, schema, &client->error);
    if (status == EMBD_OK)
        status = embd__schema_check(&own, &client->error);
    do {
        for (uint32_t i = 0; i < client->n_shards && status == EMBD_OK; i++)
            status = create_on(client, i, &own);
        if (status != EMBD_OK && embd__client_has_shrunk(client))
            status = EMBD_OK;
    } while (status == EMBD_OK && embd__client_catch_up(client));
    return embd__error_keep(&client->error, status);
}

static int drop_on(embd_client *client, uint32_t shard, const char *name)
{
    struct answer *answer;
    struct msg *m = embd__request_begin(client, METHOD_TABLE_DROP);
    embd__msg_map(m, 1);
    embd__msg_field_str(m, "name", name);
    int status = embd__request(client, shard, LISTENER_DATA, &answer);
    if (status == EMBD_OK)
        embd__answer_free(answer);
    return status;
}

int embd_table_drop(embd_client *client, const char *name)
{
    clear_error(client);
    int status = embd__table_name_check(client, name);
    if (status != EMBD_OK)
        return embd__error_keep(&client->error, status);
    uint32_t n_dropped = 0;
    embd__client_catch_up(client);
    for (uint32_t i = 0; i < client->n_shards; i++) {
        status = drop_on(client, i, name);
        if (status != EMBD_OK && status != EMBD_UNKNOWN_TABLE)
            return embd__error_keep(&client->error, status);
        n_dropped += status == EMBD_OK;
        if (n_dropped > 0)
            clear_error(client);
        else if (i + 1 < client->n_shards)
            client->error.status =
                EMBD_OK; /* the last shard's sentence stays if none has the table */
    }
    return embd__error_keep(&client->error, n_dropped > 0 ? EMBD_OK : status);
}
