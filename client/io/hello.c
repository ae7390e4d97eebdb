/* hello.c - see hello.h. */
#include "client/io/hello.h"

#include <string.h>

#include "client/io/credentials.h"
#include "client/io/link.h"
#include "proto/limit.h"

#define FEATURES_MOST 64u

int embd__hello_write(struct msg *m, const struct credentials *who, uint64_t client_id, bool shares,
                      bool rings)
{
    const char *token = who != NULL ? who->token : NULL;
    const char *acts_for = who != NULL ? who->acts_for : NULL;
    embd__msg_request(m, HELLO_MSGID, METHOD_HELLO);
    embd__msg_map(m, 2u + (token != NULL) + (acts_for != NULL) + (client_id != 0) + shares + rings);
    embd__msg_field_uint(m, "protocol", LIMIT_PROTOCOL);
    embd__msg_field_str(m, "client", "libembd " EMBD_VERSION);
    if (token != NULL)
        embd__msg_field_str(m, "token", token);
    if (acts_for != NULL)
        embd__msg_field_str(m, "for", acts_for);
    if (client_id != 0)
        embd__msg_field_uint(m, "client_id", client_id);
    if (shares)
        embd__msg_field_bool(m, "share", true);
    if (rings)
        embd__msg_field_bool(m, "ring", true);
    return embd__msg_end(m);
}

static bool has_feature(struct fields *fields, const char *name)
{
    const msgpack_object *items;
    uint32_t n = embd__field_list(fields, "features", FEATURES_MOST, &items);
    for (uint32_t i = 0; i < n; i++)
        if (items[i].type == MSGPACK_OBJECT_STR && items[i].via.str.size == strlen(name) &&
            memcmp(items[i].via.str.ptr, name, items[i].via.str.size) == 0)
            return true;
    return false;
}

/* In a cluster that can grow one knows of more shards than another; what was split for other ones
 * is answered EMBD_MOVED. */
static void check_shard(struct fields *fields, uint32_t shard, uint32_t n_shards)
{
    struct embd__error *e = fields->reader->error;
    uint64_t n = embd__field_uint(fields, "shards", 1, LIMIT_SHARDS, FIELD_REQUIRED);
    uint64_t own = embd__field_uint(fields, "shard", 0, LIMIT_SHARDS - 1, FIELD_REQUIRED);
    if (shard == SHARD_ANY || (own == shard && (n == n_shards || has_feature(fields, "members"))))
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

/* Servers of earlier versions name none, and take pushes no longer than other frames. */
static uint64_t read_push_limit(struct fields *fields, uint64_t frame_bytes)
{
    uint64_t theirs = embd__field_uint(fields, "push_bytes", 1, UINT64_MAX - 1, frame_bytes);
    if (theirs < frame_bytes)
        return frame_bytes;
    return theirs < LIMIT_PUSH_BYTES ? theirs : LIMIT_PUSH_BYTES;
}

/* By the name that the way to the server has. */
static void read_process(struct fields *hello, struct trunk_process *out)
{
    struct fields f;
    const char *name = embd__field_has(hello, "trunk") ? "trunk" : "trunk_tls";
    *out = (struct trunk_process){0};
    if (!embd__field_has(hello, name))
        return;
    embd__field_map(hello, name, &f, name);
    out->process = embd__field_uint(&f, "process", 0, UINT64_MAX - 1, FIELD_REQUIRED);
    out->shards = (uint32_t)embd__field_uint(&f, "shards", 1, LIMIT_SHARDS, FIELD_REQUIRED);
}

/* "embd 0.1.0" without the name. It gets into errors, so it has harmless characters only. */
static void read_version(struct fields *fields, char out[VERSION_BYTES])
{
    static const char name[] = "embd ";
    static const char allowed[] =
        "0123456789.+-~abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    char server[LIMIT_HEADER_BYTES];
    embd__field_str(fields, "server", server, sizeof server, "");
    const char *version = server + sizeof name - 1;
    bool is_embd = strncmp(server, name, sizeof name - 1) == 0;
    out[0] = '\0';
    if (is_embd && strlen(version) < VERSION_BYTES && version[strspn(version, allowed)] == '\0')
        strcpy(out, version);
}

void embd__hello_read(struct reader *r, uint32_t shard, uint32_t n_shards,
                      struct server_limits *out)
{
    struct fields fields;
    embd__read_fields(&fields, r, "hello");
    uint64_t protocol = embd__field_uint(&fields, "protocol", 0, UINT32_MAX, FIELD_REQUIRED);
    if (r->error->status == EMBD_OK && protocol != LIMIT_PROTOCOL)
        embd__error_set(r->error, EMBD_PROTOCOL, "uses version %llu of the protocol; expected %d",
                        (unsigned long long)protocol, LIMIT_PROTOCOL);
    check_shard(&fields, shard, n_shards);
    struct server_limits limits = {
        .frame_bytes = read_limit(&fields, "frame_bytes", 1u << 17, LIMIT_FRAME_BYTES),
        .keys = read_limit(&fields, "keys", 1, LIMIT_KEYS),
        .requests = (uint32_t)read_limit(&fields, "requests", 1, LIMIT_REQUESTS_IN_FLIGHT),
        .takes_order = has_feature(&fields, "order"),
        .takes_columns = has_feature(&fields, "columns"),
        .takes_packed = has_feature(&fields, "i8") && has_feature(&fields, "i4"),
        .takes_put_numbers = has_feature(&fields, "put_writer"),
        .takes_rounds_again = has_feature(&fields, "rounds_again"),
        .takes_share = has_feature(&fields, "share"),
        .takes_ring = has_feature(&fields, "ring"),
        .share_most = embd__field_uint(&fields, "share", 0, UINT64_MAX - 1, 0),
    };
    limits.push_bytes = read_push_limit(&fields, limits.frame_bytes);
    embd__field_str(&fields, "loading", limits.loading, sizeof limits.loading, "");
    limits.start = (struct server_start){
        .start = embd__field_uint(&fields, "start", 0, UINT64_MAX - 1, 0),
        .history = embd__field_uint(&fields, "history", 0, UINT64_MAX - 1, 0),
        .epoch = embd__field_uint(&fields, "epoch", 0, UINT64_MAX - 1, 0),
        .promoted = embd__field_uint(&fields, "promoted", 0, UINT64_MAX - 1, 0),
        .kept = embd__field_uint(&fields, "kept", 0, UINT64_MAX - 1, 0),
        .kept_replicated = embd__field_uint(&fields, "kept_replicated", 0, UINT64_MAX - 1, 0),
    };
    read_version(&fields, limits.version);
    embd__local_read(&fields, &limits.place);
    read_process(&fields, &limits.process);
    if (r->error->status == EMBD_OK)
        *out = limits;
}
