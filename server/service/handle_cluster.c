/* handle_cluster.c - who this is, whether it lives, where the others are, and its end: hello,
 * share, ring, trunk, ping, cluster, drain. */
#include "proto/local/place.h"
#include "proto/placement_wire.h"
#include "proto/shard_entry.h"
#include "server/identity/identity.h"
#include "server/follow/failover.h"
#include "server/service/authorize.h"
#include "server/service/deposing.h"
#include "server/service/following.h"
#include "server/service/recovery.h"
#include "server/service/state.h"
#include "server/access/access.h"

/* Additions to version 1 of the protocol that a peer may rely on. */
static const char *const features[] = {
    "f16",         "bf16",    "weights", "status",     "create_on_pull", "admit_after", "rounds",
    "cuts",        "writers", "streams", "jobs",       "order",          "push_scale",  "push_lr",
    "columns",     "i8",      "i4",      "put_writer", "share",          "ring",        "members",
    "rounds_again"};
#define N_FEATURES (sizeof features / sizeof features[0])

static int check_protocol(struct call *call, uint64_t protocol)
{
    if (protocol == LIMIT_PROTOCOL)
        return EMBD_OK;
    return embd__error_set(&call->error, EMBD_UNSUPPORTED,
                           "hello protocol: %llu, this server supports %u",
                           (unsigned long long)protocol, LIMIT_PROTOCOL);
}

static void write_loading(struct call *call)
{
    char text[RECOVERY_TEXT_BYTES];
    recovery_tell(call, text);
    embd__msg_field_str(call->answer, "loading", text);
}

/* How a client sees that the shard came back with less. Without a data directory each start has
 * less. */
static void write_start(struct call *call)
{
    const struct shard_config *config = &call->shard->config;
    uint64_t history = config->start, epoch = 0;
    if (config->identity != NULL)
        identity_tell_history(config->identity, &history, &epoch);
    embd__msg_field_uint(call->answer, "start", config->start);
    embd__msg_field_uint(call->answer, "history", history);
    embd__msg_field_uint(call->answer, "epoch", epoch);
    if (config->failover == NULL)
        return;
    embd__msg_field_uint(call->answer, "promoted", atomic_load(&config->failover->epoch));
    embd__msg_field_uint(call->answer, "kept", atomic_load(&config->failover->kept));
    embd__msg_field_uint(call->answer, "kept_replicated",
                         atomic_load(&config->failover->kept_replicated));
}

/* Admins may ask a follower for much of what they ask others; others where it serves reads. A
 * server that was deposed says so to each one that was promoted, on all shards. */
static bool is_loading_for(const struct call *call)
{
    const struct shard *shard = call->shard;
    if (call->request->listener == LISTENER_ADMIN)
        return shard->is_loading && !following_serves(shard, METHOD_TABLES) &&
               !deposing_hears(shard, METHOD_FOLLOW);
    return shard->is_loading && !following_serves(shard, METHOD_PULL);
}

int handle_hello(struct call *call)
{
    const struct shard_config *config = &call->shard->config;
    struct fields f;
    char client[128], token[TOKEN_BYTES_MAX + 1], acts_for[GRANT_NAME_MAX + 1];
    embd__read_fields(&f, &call->reader, "hello");
    uint64_t protocol = embd__field_uint(&f, "protocol", 0, UINT64_MAX, FIELD_REQUIRED);
    embd__field_str(&f, "client", client, sizeof client, "");
    embd__field_str(&f, "token", token, sizeof token, "");
    embd__field_str(&f, "for", acts_for, sizeof acts_for, "");
    uint64_t client_id = embd__field_uint(&f, "client_id", 0, UINT64_MAX, 0);
    bool shares = embd__field_bool(&f, "share", false);
    bool rings = embd__field_bool(&f, "ring", false);
    if (call_end(call, &f) != EMBD_OK || check_protocol(call, protocol) != EMBD_OK ||
        authorize_hello(call, token, acts_for) != EMBD_OK)
        return call->error.status;
    struct shard_session *session = call->request->session;
    session->awaits_share = shares && session->share != NULL;
    session->awaits_ring = rings && session->ring != NULL;
    push_progress_name(&call->shard->push_progress, session, client_id);
    struct msg *m = call->answer;
    bool is_loading = is_loading_for(call);
    embd__msg_result(m, call->reader.msgid);
    bool has_trunk = session->trunk_shards > 0;
    uint32_t n_start = config->failover != NULL ? 6 : 3;
    embd__msg_map(m, 10 + (is_loading ? 1 : n_start) + (config->local != NULL) +
                         (session->share != NULL) + has_trunk);
    embd__msg_field_uint(m, "protocol", LIMIT_PROTOCOL);
    embd__msg_field_str(m, "server", "embd " EMBD_VERSION);
    embd__msg_str(m, "features");
    embd__msg_array(m, N_FEATURES);
    for (uint32_t i = 0; i < N_FEATURES; i++)
        embd__msg_str(m, features[i]);
    embd__msg_field_uint(m, "shard", config->index);
    embd__msg_field_uint(m, "shards", config->n_shards);
    embd__msg_field_uint(m, "frame_bytes", LIMIT_FRAME_BYTES);
    embd__msg_field_uint(m, "push_bytes", shard_push_bytes(call->shard));
    embd__msg_field_uint(m, "header_bytes", LIMIT_HEADER_BYTES);
    embd__msg_field_uint(m, "keys", LIMIT_KEYS);
    embd__msg_field_uint(m, "requests", LIMIT_REQUESTS_IN_FLIGHT);
    if (is_loading)
        write_loading(call);
    else
        write_start(call);
    if (config->local != NULL)
        embd__local_write(m, config->local);
    if (session->share != NULL)
        embd__msg_field_uint(m, "share", session->share_most);
    if (has_trunk) {
        embd__msg_str(m, session->is_sealed ? "trunk_tls" : "trunk");
        embd__msg_map(m, 2);
        embd__msg_field_uint(m, "process", config->start);
        embd__msg_field_uint(m, "shards", session->trunk_shards);
    }
    return EMBD_OK;
}

int handle_share(struct call *call)
{
    struct shard_session *session = call->request->session;
    struct fields f;
    embd__read_fields(&f, &call->reader, "share");
    uint64_t bytes = embd__field_uint(&f, "bytes", 0, UINT64_MAX - 1, FIELD_REQUIRED);
    if (call_end(call, &f) != EMBD_OK)
        return call->error.status;
    session->awaits_share = false;
    if (session->share == NULL)
        return embd__error_set(&call->error, EMBD_UNSUPPORTED,
                               "share: this connection is not by the data socket, the only one "
                               "that can share memory");
    if (session->share(session, bytes, &call->error) != EMBD_OK)
        return call->error.status;
    embd__msg_result(call->answer, call->reader.msgid);
    embd__msg_map(call->answer, 0);
    return EMBD_OK;
}

int handle_ring(struct call *call)
{
    struct shard_session *session = call->request->session;
    struct fields f;
    embd__read_fields(&f, &call->reader, "ring");
    uint64_t requests = embd__field_uint(&f, "requests", 0, UINT64_MAX - 1, FIELD_REQUIRED);
    uint64_t answers = embd__field_uint(&f, "answers", 0, UINT64_MAX - 1, FIELD_REQUIRED);
    if (call_end(call, &f) != EMBD_OK)
        return call->error.status;
    session->awaits_ring = false;
    if (session->ring == NULL)
        return embd__error_set(&call->error, EMBD_UNSUPPORTED,
                               "ring: this connection is not by the data socket, the only one "
                               "whose bytes can go through shared memory");
    if (session->ring(session, requests, answers, &call->error) != EMBD_OK)
        return call->error.status;
    embd__msg_result(call->answer, call->reader.msgid);
    embd__msg_map(call->answer, 0);
    return EMBD_OK;
}

int handle_trunk(struct call *call)
{
    struct shard_session *session = call->request->session;
    struct fields f;
    embd__read_fields(&f, &call->reader, "trunk");
    if (call_end(call, &f) != EMBD_OK)
        return call->error.status;
    if (session->trunk_shards == 0)
        return embd__error_set(&call->error, EMBD_UNSUPPORTED,
                               "trunk: this connection cannot become one; the answer to hello says "
                               "which can");
    if (session->trunk(session, &call->error) != EMBD_OK)
        return call->error.status;
    embd__msg_result(call->answer, call->reader.msgid);
    embd__msg_map(call->answer, 0);
    return EMBD_OK;
}

int handle_ping(struct call *call)
{
    struct fields f;
    embd__read_fields(&f, &call->reader, "ping");
    if (call_end(call, &f) != EMBD_OK)
        return call->error.status;
    embd__msg_result(call->answer, call->reader.msgid);
    embd__msg_map(call->answer, 0);
    return EMBD_OK;
}

/* The even map of version 1 is not said, as servers of earlier versions have it. */
static bool has_placement(const struct shard_config *config)
{
    const struct placement *p = config->placement;
    return p != NULL && p->version > 0 && (!p->is_even || p->version > 1);
}

/* A process that follows as etcd says shows trainers the one that serves. False: it does not know
 * that yet. */
static bool find_map(const struct call *call, struct shard_map *out)
{
    const struct shard *shard = call->shard;
    *out = shard_map_of_admins(shard);
    if (shard->following == NULL || shard->config.own_map == NULL ||
        call->request->listener == LISTENER_ADMIN)
        return true;
    *out = (struct shard_map){shard->config.map_version, shard->config.addresses,
                              shard->config.admin_addresses, shard->config.admin_hosts};
    return out->version != SHARD_MAP_OF_FILE;
}

/* A server that is to become a member shows its shards to the one who adds them alone. */
static int check_member(struct call *call, bool joins)
{
    if (shard_joins(call->shard) == joins)
        return EMBD_OK;
    return joins ? embd__error_set(&call->error, EMBD_INVALID,
                                   "cluster: shard %u is a member of its cluster already",
                                   call->shard->config.index)
                 : embd__error_set(&call->error, EMBD_BUSY,
                                   "cluster: shard %u is not a member of the cluster yet; embctl "
                                   "shard add makes it one",
                                   call->shard->config.index);
}

/* Shards that are being added, for followers, which take their records from the first. */
static uint32_t count_joining(const struct call *call)
{
    const struct shard *shard = call->shard;
    const struct moving *moving = &shard->moving;
    bool is_on = moving->mover != NULL && moving->next.n_shards > shard->config.n_shards &&
                 shard->config.identity != NULL && call->request->listener == LISTENER_ADMIN;
    return is_on ? moving->next.n_shards - shard->config.n_shards : 0;
}

static void write_joining(struct call *call, uint32_t n)
{
    struct shard_entry entry;
    embd__msg_str(call->answer, "joining");
    embd__msg_array(call->answer, n);
    for (uint32_t i = 0; i < n; i++) {
        if (!identity_member(call->shard->config.identity, call->shard->config.n_shards + i,
                             &entry))
            entry = (struct shard_entry){.address = ""};
        embd__shard_entry_write(call->answer, entry.address, entry.admin, entry.admin_tcp);
    }
}

int handle_cluster(struct call *call)
{
    const struct shard_config *config = &call->shard->config;
    struct fields f;
    embd__read_fields(&f, &call->reader, "cluster");
    bool joins = embd__field_bool(&f, "joins", false);
    if (call_end(call, &f) != EMBD_OK || check_member(call, joins) != EMBD_OK)
        return call->error.status;
    struct shard_map map;
    bool is_known = find_map(call, &map);
    for (uint32_t i = 0; i < config->n_shards; i++)
        if (!is_known || map.addresses[i][0] == '\0')
            return embd__error_set(&call->error, EMBD_BUSY,
                                   "cluster: the address of shard %u is not known yet; try again",
                                   i);
    struct msg *m = call->answer;
    embd__msg_result(m, call->reader.msgid);
    uint64_t next = moving_next_version(call->shard);
    bool says_next = next != moving_version(call->shard) + 1;
    uint32_t n_joining = count_joining(call);
    embd__msg_map(m, 4u + has_placement(config) + says_next + (n_joining > 0));
    embd__msg_field_str(m, "name", config->cluster_name);
    embd__msg_field_uint(m, "version", map.version);
    embd__msg_field_uint(m, "shard", config->index);
    embd__msg_str(m, "shards");
    embd__msg_array(m, config->n_shards);
    for (uint32_t i = 0; i < config->n_shards; i++)
        embd__shard_entry_write(m, map.addresses[i], map.admin_addresses[i],
                                map.admin_hosts != NULL ? map.admin_hosts[i] : NULL);
    if (has_placement(config))
        embd__placement_write(m, config->placement);
    if (says_next)
        embd__msg_field_uint(m, "next_placement", next);
    if (n_joining > 0)
        write_joining(call, n_joining);
    return EMBD_OK;
}

int handle_drain(struct call *call)
{
    const struct shard_config *config = &call->shard->config;
    struct fields f;
    embd__read_fields(&f, &call->reader, "drain");
    if (call_end(call, &f) != EMBD_OK)
        return call->error.status;
    if (config->drain == NULL)
        return embd__error_set(&call->error, EMBD_UNSUPPORTED,
                               "drain: this process cannot be drained");
    embd__msg_result(call->answer, call->reader.msgid);
    embd__msg_map(call->answer, 0);
    config->drain(config->drain_arg);
    return EMBD_OK;
}
