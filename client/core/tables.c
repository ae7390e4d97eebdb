/* tables.c - tables by name, as they are opened. What is asked of every shard is asked of one after
 * the other: these are calls of a start-up, not of a training step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/core/client.h"
#include "client/core/describe.h"
#include "client/core/request.h"
#include "proto/route.h"
#include "proto/schema_change.h"
#include "proto/schema_fields.h"

static void clear_error(embd_client *client)
{
    *embd__client_error(client) = (struct embd__error){0};
}

int embd__table_name_check(embd_client *client, const char *name)
{
    size_t bytes = name == NULL ? 0 : strlen(name);
    if (bytes >= 1 && bytes <= EMBD_NAME_MAX)
        return EMBD_OK;
    return embd__error_set(&client->error, EMBD_INVALID,
                           "a table name of %zu bytes; 1..%d are allowed", bytes, EMBD_NAME_MAX);
}

/* ---- open ---- */

/* As shards describe it. */
struct described {
    struct table_schema schema;
    uint32_t *ids; /* [n_shards] */
};

static int describe(embd_client *client, uint32_t shard, const char *name, struct table_schema *out,
                    uint32_t *id_out)
{
    struct answer *answer;
    struct msg *m = embd__request_begin(client, METHOD_TABLE_DESCRIBE);
    embd__msg_map(m, 1);
    embd__msg_field_str(m, "name", name);
    int status = embd__request(client, shard, LISTENER_DATA, &answer);
    if (status != EMBD_OK)
        return status;
    status = embd__description_read(&answer->reader, name, out, id_out);
    if (status != EMBD_OK && status != EMBD_NO_MEMORY)
        status = client->error.status = EMBD_PROTOCOL; /* a schema no server would have */
    embd__answer_free(answer);
    return status;
}

/* Whether another shard describes the table the same. */
static int compare(embd_client *client, uint32_t shard, const embd_schema *first, uint32_t *id_out)
{
    struct table_schema other;
    int status = describe(client, shard, first->name, &other, id_out);
    if (status != EMBD_OK)
        return status;
    struct schema_difference d;
    char mend[256] = "";
    bool differs = embd__schema_tell_difference(first, &other.s, &d);
    if (differs && embd__schema_fixed_difference(first, &other.s) == NULL)
        snprintf(mend, sizeof mend, "; set it on all: embctl table set %s %s=%s", first->name,
                 d.field, d.b);
    embd__schema_fini(&other);
    if (!differs)
        return EMBD_OK;
    return embd__error_set(&client->error, EMBD_PROTOCOL,
                           "table '%s' has %s %s on shard 0 (%s) and %s on shard %u (%s)%s",
                           first->name, d.field, d.a, client->shards[0].address, d.b, shard,
                           client->shards[shard].address, mend);
}

static embd_table *find_known(const embd_client *client, const embd_schema *schema)
{
    for (embd_table *table = client->tables; table != NULL; table = table->next)
        if (strcmp(table->schema.s.name, schema->name) == 0 &&
            embd__schema_fixed_difference(&table->schema.s, schema) == NULL)
            return table;
    return NULL;
}

static int no_memory(embd_client *client)
{
    return embd__error_set(&client->error, EMBD_NO_MEMORY, "no memory for a table handle");
}

/* Takes the schema over. NULL: no memory. */
static embd_table *new_table(embd_client *client, struct table_schema *schema)
{
    embd_table *table = calloc(1, sizeof *table + LIMIT_SHARDS * sizeof table->ids[0]);
    if (table == NULL) {
        embd__schema_fini(schema);
        return NULL;
    }
    table->client = client;
    table->schema = *schema;
    table->name_id = embd__table_id(schema->s.name);
    table->starts = embd__table_starts(client, table->schema.s.durability);
    table->next = client->tables;
    client->tables = table;
    return table;
}

/* Takes the schema over. */
static int add_table(embd_client *client, struct described *described, embd_table **table_out)
{
    embd_table *table = find_known(client, &described->schema.s);
    if (table != NULL) {
        embd__schema_take_changes(&table->schema.s, &described->schema.s);
        embd__schema_fini(&described->schema);
    } else {
        table = new_table(client, &described->schema);
    }
    if (table == NULL)
        return no_memory(client);
    memcpy(table->ids, described->ids, client->n_shards * sizeof table->ids[0]);
    *table_out = table;
    return EMBD_OK;
}

/* As all shards describe it; with the option `partly`, as those that answer do. A shard that does
 * not answer has most likely given it the first id of its name. */
static int describe_alike(embd_client *client, const char *name, struct described *d)
{
    struct table_schema *out = &d->schema;
    bool is_known = false;
    int status = EMBD_OK, silence = EMBD_OK;
    for (uint32_t i = 0; i < client->n_shards && status == EMBD_OK; i++) {
        d->ids[i] = embd__table_id(name);
        status = is_known ? compare(client, i, &out->s, &d->ids[i])
                          : describe(client, i, name, out, &d->ids[i]);
        is_known = is_known || status == EMBD_OK;
        if (!client->options.partly || !embd__is_silence(status))
            continue;
        silence = status;
        status = EMBD_OK;
    }
    if (is_known && status != EMBD_OK)
        embd__schema_fini(out);
    return !is_known && status == EMBD_OK ? silence : status;
}

static int open_named(embd_client *client, const char *name, embd_table **table_out)
{
    struct described described = {.ids = malloc(client->n_shards * sizeof *described.ids)};
    int status = described.ids == NULL ? no_memory(client) : EMBD_OK;
    if (status == EMBD_OK)
        status = describe_alike(client, name, &described);
    if (status != EMBD_OK && embd__client_has_shrunk(client))
        status = describe_alike(client, name, &described);
    if (status == EMBD_OK) {
        clear_error(client);
        status = add_table(client, &described, table_out);
    }
    free(described.ids);
    return status;
}

int embd_table_open(embd_client *client, const char *name, embd_table **table_out)
{
    clear_error(client);
    int status = embd__table_name_check(client, name);
    if (status == EMBD_OK)
        status = open_named(client, name, table_out);
    return embd__error_keep(&client->error, status);
}

const embd_schema *embd_table_schema(const embd_table *table)
{
    return &table->schema.s;
}

void embd__tables_fini(struct embd_client *client)
{
    while (client->tables != NULL) {
        embd_table *table = client->tables;
        client->tables = table->next;
        embd__schema_fini(&table->schema);
        free(table);
    }
}

/* ---- list ---- */

struct names {
    char (*names)[EMBD_NAME_MAX + 1];
    uint32_t n;
};

static int read_names(struct reader *r, struct names *out)
{
    struct fields fields, item;
    const msgpack_object *items;
    embd__read_fields(&fields, r, "tables");
    uint32_t n = embd__field_list(&fields, "tables", LIMIT_TABLES, &items);
    void *grown = realloc(out->names, (out->n + n + 1) * sizeof *out->names);
    if (grown == NULL)
        return embd__error_set(r->error, EMBD_NO_MEMORY, "no memory for %u table names",
                               out->n + n);
    out->names = grown;
    for (uint32_t i = 0; i < n; i++) {
        embd__list_map(r, &items[i], &item, "a table of tables");
        embd__field_str(&item, "name", out->names[out->n++], sizeof out->names[0], NULL);
    }
    return r->error->status;
}

static int ask_names(embd_client *client, uint32_t shard, struct names *out)
{
    struct answer *answer;
    struct msg *m = embd__request_begin(client, METHOD_TABLES);
    embd__msg_map(m, 0);
    int status = embd__request(client, shard, LISTENER_DATA, &answer);
    if (status != EMBD_OK)
        return status;
    status = read_names(&answer->reader, out);
    embd__answer_free(answer);
    return status;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

int embd_table_list(embd_client *client, int (*visit)(void *arg, const char *name), void *arg)
{
    struct names all = {0};
    int status = EMBD_OK;
    clear_error(client);
    for (uint32_t i = 0; i < client->n_shards && status == EMBD_OK; i++)
        status = ask_names(client, i, &all);
    if (status != EMBD_OK && embd__client_has_shrunk(client))
        status = EMBD_OK; /* it was the first that has left: the others have said theirs */
    if (status == EMBD_OK && all.n > 0)
        qsort(all.names, all.n, sizeof *all.names, compare_names);
    for (uint32_t i = 0; i < all.n && status == EMBD_OK; i++)
        if (i == 0 || strcmp(all.names[i], all.names[i - 1]) != 0)
            status = visit(arg, all.names[i]);
    free(all.names);
    return embd__error_keep(&client->error, status);
}
