/* shard_entry.c - see shard_entry.h. */
#include "proto/shard_entry.h"

int embd__shard_entry_read(struct reader *r, const msgpack_object *item, struct shard_entry *out)
{
    struct fields f;
    embd__list_map(r, item, &f, "a shard of cluster");
    embd__field_str(&f, "address", out->address, sizeof out->address, NULL);
    embd__field_str(&f, "admin", out->admin, sizeof out->admin, "");
    embd__field_str(&f, "admin_tcp", out->admin_tcp, sizeof out->admin_tcp, "");
    return r->error->status;
}

void embd__shard_entry_write(struct msg *m, const char *address, const char *admin,
                             const char *admin_tcp)
{
    bool has_host = admin_tcp != NULL && admin_tcp[0] != '\0';
    embd__msg_map(m, 2u + has_host);
    embd__msg_field_str(m, "address", address);
    embd__msg_field_str(m, "admin", admin);
    if (has_host)
        embd__msg_field_str(m, "admin_tcp", admin_tcp);
}
