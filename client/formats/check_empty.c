/* check_empty.c - whether a table may be filled from files: it must not exist, or be empty. */
#include <inttypes.h>

#include "client/formats/admin.h"
#include "client/formats/check_empty.h"

/* embd__check_empty for one shard. */
static int look_at(embd_client *client, const embd_schema *schema, const char *source,
                   uint32_t shard)
{
    struct description found;
    struct embd__error *e = embd__client_error(client);
    int status = embd__admin_describe(client, shard, schema->name, &found);
    if (status == EMBD_UNKNOWN_TABLE) {
        *e = (struct embd__error){0};
        return 1;
    }
    if (status)
        return status;
    struct schema_difference differs;
    bool is_other = embd__schema_tell_asked(&found.schema.s, schema, &differs);
    uint64_t rows = found.rows + found.candidates;
    embd__schema_fini(&found.schema);
    if (is_other)
        return embd__error_set(e, EMBD_EXISTS, "%s: table '%s' has %s %s, %s has %s; drop it first",
                               embd_shard_address(client, shard), schema->name, differs.field,
                               differs.a, source, differs.b);
    if (rows)
        return embd__error_set(e, EMBD_EXISTS,
                               "%s: table '%s' holds %" PRIu64
                               " rows; only an empty table is loaded, drop it first",
                               embd_shard_address(client, shard), schema->name, rows);
    return 0;
}

int embd__check_empty(embd_client *client, const embd_schema *schema, const char *source)
{
    int is_new = 1;
    for (uint32_t shard = 0; shard < embd_shard_count(client); shard++) {
        int found = look_at(client, schema, source, shard);
        if (found < 0)
            return found;
        is_new = is_new && found;
    }
    return is_new;
}
