/* greeting.c - a server of another protocol version, or another shard than the map of the cluster
 * named at this address, is found out before anything is asked of it. */
#include "client/link/greeting.h"

int embd__greeting_write(struct msg *m, uint32_t msgid, const char *token, uint64_t client_id)
{
    embd__msg_request(m, msgid, METHOD_HELLO);
    embd__msg_map(m, 2u + (token != NULL) + (client_id != 0));
    embd__msg_field_uint(m, "protocol", LIMIT_PROTOCOL);
    embd__msg_field_str(m, "client", "libembd " EMBD_VERSION);
    if (token != NULL)
        embd__msg_field_str(m, "token", token);
    if (client_id != 0)
        embd__msg_field_uint(m, "client_id", client_id);
    return embd__msg_end(m);
}

static void check_shard(struct fields *fields, uint32_t shard, uint32_t n_shards)
{
    struct embd__error *e = fields->reader->error;
    uint64_t n = embd__field_uint(fields, "shards", 1, LIMIT_SHARDS, FIELD_REQUIRED);
    uint64_t own = embd__field_uint(fields, "shard", 0, LIMIT_SHARDS - 1, FIELD_REQUIRED);
    if (shard == SHARD_ANY || (own == shard && n == n_shards))
        return;
    embd__error_set(e, EMBD_PROTOCOL, "is shard %llu of %llu; shard %u of %u is expected",
                    (unsigned long long)own, (unsigned long long)n, shard, n_shards);
}

/* A limit of the server's, or ours where that is less or the server names none. */
static uint64_t read_limit(struct fields *fields, const char *name, uint64_t least, uint64_t ours)
{
    uint64_t theirs = embd__field_uint(fields, name, least, UINT64_MAX - 1, ours);
    return theirs < ours ? theirs : ours;
}

void embd__greeting_read(struct reader *r, uint32_t shard, uint32_t n_shards, struct greeting *out)
{
    struct fields fields;
    embd__read_fields(&fields, r, "hello");
    uint64_t protocol = embd__field_uint(&fields, "protocol", 0, UINT32_MAX, FIELD_REQUIRED);
    if (r->error->status == EMBD_OK && protocol != LIMIT_PROTOCOL)
        embd__error_set(r->error, EMBD_PROTOCOL, "uses version %llu of the protocol; expected %d",
                        (unsigned long long)protocol, LIMIT_PROTOCOL);
    check_shard(&fields, shard, n_shards);
    struct greeting greeting = {
        .frame_bytes = read_limit(&fields, "frame_bytes", 1u << 17, LIMIT_FRAME_BYTES),
        .keys = read_limit(&fields, "keys", 1, LIMIT_KEYS),
        .requests = (uint32_t)read_limit(&fields, "requests", 1, LIMIT_REQUESTS_IN_FLIGHT),
    };
    embd__field_str(&fields, "loading", greeting.loading, sizeof greeting.loading, "");
    if (r->error->status == EMBD_OK)
        *out = greeting;
}
