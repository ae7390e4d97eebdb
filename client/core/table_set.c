/* table_set.c - fields of a table are set on all shards. The happy path: each shard checks the
 * fields, then each sets them, one after the other. What can fail: a shard refuses them, and none
 * has set any; or a shard is lost between two, or its journal cannot take the table's rows, and the
 * call is to be repeated. Setting a field to
 * the value that it has changes nothing, so that a repeated call completes the first. */
#include <stdio.h>
#include <string.h>

#include "client/core/client.h"
#include "client/core/request.h"
#include "proto/names.h"
#include "proto/schema_change.h"

/* Of a table on a shard. */
struct standing {
    uint64_t step;
    bool is_pending;            /* the shard's journal does not have the table's rows yet */
    embd_durability durability; /* once it is not pending any more */
};

static int read_fields(const embd_field *fields, uint32_t n, struct schema_change *out,
                       struct embd__error *e)
{
    embd__schema_change_init(out);
    if (n == 0)
        return embd__error_set(e, EMBD_INVALID, "no field is named; name one or more");
    for (uint32_t i = 0; i < n; i++)
        if (embd__schema_change_add(out, fields[i].field, fields[i].value, e) != EMBD_OK)
            return e->status;
    return EMBD_OK;
}

static int set_on(embd_client *client, uint32_t shard, const char *name,
                  const struct schema_change *change, bool only_checks, struct standing *out)
{
    struct answer *answer;
    struct fields f;
    struct msg *m = embd__request_begin(client, METHOD_TABLE_SET);
    embd__msg_map(m, only_checks ? 3 : 2);
    embd__msg_field_str(m, "name", name);
    if (only_checks)
        embd__msg_field_bool(m, "check", true);
    embd__msg_str(m, "set");
    embd__schema_change_write(m, change);
    if (embd__request(client, shard, LISTENER_DATA, &answer) != EMBD_OK)
        return client->error.status;
    embd__read_fields(&f, &answer->reader, "table_set");
    out->step = embd__field_uint(&f, "step", 0, UINT64_MAX, FIELD_REQUIRED);
    out->is_pending = embd__field_bool(&f, "pending", false);
    embd__fields_end(&f);
    int status = answer->reader.error->status;
    embd__answer_free(answer);
    return status;
}

/* Shard `shard` failed, or its answer was lost. A durability is not taken back: what a trainer was
 * told under it meanwhile would not hold. */
static int tell_partly(embd_client *client, uint32_t shard, const embd_durability *asked)
{
    struct embd__error why = client->error;
    if (client->n_shards == 1)
        return why.status;
    client->error.status = EMBD_OK;
    if (asked != NULL)
        return embd__error_set(
            &client->error, why.status,
            "%.250s; %u of %u shards have durability '%s' and keep it, shard %u may have: repeat "
            "the call, or set the durability back",
            why.text, shard, client->n_shards, embd_durability_name(*asked), shard);
    return embd__error_set(
        &client->error, why.status,
        "%.300s; %u of %u shards have set it, shard %u may have: repeat the call", why.text, shard,
        client->n_shards, shard);
}

/* ---- a table that comes into the journal ---- */

#define LEAST_WAIT_MS 2u
#define MOST_WAIT_MS  200u

static int read_standing(struct reader *r, const char *name, struct standing *out)
{
    struct fields f, schema;
    char why[256];
    embd__read_fields(&f, r, "table_describe");
    out->step = embd__field_uint(&f, "step", 0, UINT64_MAX, FIELD_REQUIRED);
    out->is_pending = embd__field_has(&f, "becomes");
    embd__field_str(&f, "failed", why, sizeof why, "");
    embd__field_map(&f, "schema", &schema, "schema");
    out->durability = (embd_durability)embd__field_enum(
        &schema, "durability", embd__durability_names, embd__names_count(embd__durability_names),
        EMBD_DURABILITY_SNAPSHOT);
    if (r->error->status != EMBD_OK || why[0] == '\0')
        return r->error->status;
    return embd__error_set(r->error, EMBD_IO,
                           "table '%s' keeps its durability: the journal could not take its rows: "
                           "%s",
                           name, why);
}

static int look(embd_client *client, uint32_t shard, const char *name, struct standing *out)
{
    struct answer *answer;
    struct msg *m = embd__request_begin(client, METHOD_TABLE_DESCRIBE);
    embd__msg_map(m, 1);
    embd__msg_field_str(m, "name", name);
    if (embd__request(client, shard, LISTENER_DATA, &answer) != EMBD_OK)
        return client->error.status;
    int status = read_standing(&answer->reader, name, out);
    embd__answer_free(answer);
    return status;
}

/* A server that was started again meanwhile knows nothing of the attempt. */
static int check_durability(embd_client *client, const char *name, embd_durability now,
                            const embd_durability *asked)
{
    if (asked == NULL || now == *asked)
        return EMBD_OK;
    return embd__error_set(&client->error, EMBD_IO,
                           "table '%s' has durability '%s': its server was started again before "
                           "the journal had its rows, or the durability was set again; repeat the "
                           "call",
                           name, embd_durability_name(now));
}

/* `asked`: the durability; NULL: it is not what is set. */
static int await(embd_client *client, uint32_t shard, const char *name,
                 const embd_durability *asked, struct standing *standing)
{
    uint32_t wait_ms = LEAST_WAIT_MS;
    if (!standing->is_pending)
        return EMBD_OK;
    while (standing->is_pending) {
        uv_sleep(wait_ms);
        wait_ms = wait_ms < MOST_WAIT_MS ? 2 * wait_ms : MOST_WAIT_MS;
        if (look(client, shard, name, standing) != EMBD_OK)
            return client->error.status;
    }
    return check_durability(client, name, standing->durability, asked);
}

/* ---- all shards ---- */

/* The definitions that this client's handles show. */
static void note(embd_client *client, const char *name, const struct schema_change *change)
{
    struct embd__error ignored = {.status = EMBD_OK};
    embd_schema changed;
    for (embd_table *table = client->tables; table != NULL; table = table->next)
        if (strcmp(table->schema.s.name, name) == 0 &&
            embd__schema_change_make(change, &table->schema.s, &changed, &ignored) == EMBD_OK)
            embd__schema_take_changes(&table->schema.s, &changed);
}

static int set_on_all(embd_client *client, const char *name, const struct schema_change *change,
                      uint64_t *steps_out)
{
    const embd_durability *asked = embd__schema_change_durability(change);
    struct standing standing;
    for (uint32_t i = 0; i < client->n_shards; i++)
        if (set_on(client, i, name, change, true, &standing) != EMBD_OK)
            return client->error.status;
    for (uint32_t i = 0; i < client->n_shards; i++) {
        if (set_on(client, i, name, change, false, &standing) != EMBD_OK ||
            await(client, i, name, asked, &standing) != EMBD_OK)
            return tell_partly(client, i, asked);
        if (steps_out != NULL)
            steps_out[i] = standing.step;
    }
    note(client, name, change);
    return EMBD_OK;
}

int embd_table_set(embd_client *client, const char *name, const embd_field *fields,
                   uint32_t n_fields, uint64_t *steps_out)
{
    struct schema_change change;
    embd__client_clear_error(client);
    int status = embd__table_name_check(client, name);
    if (status == EMBD_OK)
        status = read_fields(fields, n_fields, &change, &client->error);
    if (status == EMBD_OK)
        status = set_on_all(client, name, &change, steps_out);
    if (status != EMBD_OK && embd__client_has_shrunk(client))
        status = set_on_all(client, name, &change, steps_out);
    while (status == EMBD_OK && embd__client_catch_up(client))
        status = set_on_all(client, name, &change, NULL);
    return embd__error_keep(&client->error, status);
}
