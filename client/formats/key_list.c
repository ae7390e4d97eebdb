/* key_list.c - embd_list_keys: the keys of a table, one request a call. The happy path: the shard
 * that the list is at gives its next keys; where it has no more, the list goes on with the next
 * shard. What can fail: the list is not one that a call left, or the shard. */
#include <stdio.h>
#include <string.h>

#include "client/core/client.h"
#include "client/core/request.h"
#include "embd/rows.h"
#include "proto/keyed.h"
#include "proto/structs.h"

static int take(embd_client *client, const embd_key_list *list, embd_key_list *own)
{
    struct embd__error *e = &client->error;
    *e = (struct embd__error){0};
    *own = (embd_key_list){0};
    if (embd__take(embd_key_list, own, list, e) != EMBD_OK)
        return e->status;
    if (own->table == NULL || own->keys == NULL || own->capacity == 0)
        return embd__error_set(e, EMBD_INVALID, "key list: table, keys and capacity must be set");
    const embd_schema *s = &own->table->schema.s;
    bool has_slots = s->partition == EMBD_PARTITION_SLOT;
    if ((own->slots != NULL) != has_slots)
        return embd__error_set(
            e, EMBD_INVALID, "key list slots: %s, table '%s' has the partition %s",
            has_slots ? "NULL" : "given", s->name, embd_partition_name(s->partition));
    if (own->shard >= client->n_shards)
        return embd__error_set(e, EMBD_INVALID, "key list shard: %u, the cluster has %u",
                               own->shard, client->n_shards);
    return EMBD_OK;
}

static void write_request(embd_client *client, const embd_key_list *list)
{
    struct msg *m = embd__request_begin(client, METHOD_KEYS);
    struct list_fields fields = {.cursor = list->cursor,
                                 .scan = list->scan,
                                 .n_most = list->capacity < LIST_KEYS_MAX ? list->capacity
                                                                          : LIST_KEYS_MAX};
    snprintf(fields.table, sizeof fields.table, "%s", list->table->schema.s.name);
    embd__list_fields_write(m, &fields);
}

static int take_keys(embd_client *client, embd_key_list *list, struct reader *r)
{
    struct list_answer answer;
    if (embd__list_answer_read(r, list->slots != NULL, &answer) != EMBD_OK)
        return r->error->status;
    if (answer.n_keys > list->capacity || (!answer.is_done && answer.next == 0))
        return embd__error_set(&client->error, EMBD_PROTOCOL,
                               "result keys: %u and next %llu, %u keys were asked for",
                               answer.n_keys, (unsigned long long)answer.next, list->capacity);
    list->n_keys = answer.n_keys;
    memcpy(list->keys, answer.keys, answer.n_keys * sizeof *list->keys);
    if (list->slots != NULL)
        memcpy(list->slots, answer.slots, answer.n_keys * sizeof *list->slots);
    list->shard += answer.is_done;
    list->cursor = answer.is_done ? 0 : answer.next;
    list->scan = answer.is_done ? 0 : answer.scan;
    if (list->shard == client->n_shards)
        embd__client_catch_up(client);
    list->is_done = list->shard == client->n_shards;
    return EMBD_OK;
}

int embd_list_keys(embd_client *client, embd_key_list *list)
{
    struct answer *answer;
    embd_key_list own;
    int status = take(client, list, &own);
    if (status == EMBD_OK) {
        write_request(client, &own);
        status = embd__request(client, own.shard, LISTENER_DATA, &answer);
    }
    if (status == EMBD_OK) {
        status = take_keys(client, &own, &answer->reader);
        embd__answer_free(answer);
    }
    if (status == EMBD_OK)
        embd__struct_give(list, list->struct_bytes, &own, sizeof own);
    return embd__error_keep(&client->error, status);
}
