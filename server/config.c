/* config.c - from texts to a checked configuration: servers first, then limits and the other
 * settings of the process. */
#include "server/config.h"

#include <stdlib.h>
#include <string.h>

#include "proto/names.h"
#include "proto/tls/secret.h"
#include "server/config_values.h"
#include "server/snapshot/snapshot.h"

static int read_cpus(const struct setting *at, struct config *out, struct embd__error *e)
{
    const char *next = at->text;
    while (next != NULL && *next != '\0') {
        char *end;
        unsigned long cpu = strtoul(next, &end, 10);
        bool is_last = *end == '\0';
        if (*next < '0' || *next > '9' || (!is_last && *end != ',') || cpu >= 1024)
            return config_complain(e, EMBD_INVALID, SETTING_CPUS, at,
                                   "'%.60s' is not a list of CPUs such as 0,2,3", at->text);
        if (out->n_cpus == CONFIG_CPUS_MAX)
            return config_complain(e, EMBD_INVALID, SETTING_CPUS, at, "has more than %d CPUs",
                                   CONFIG_CPUS_MAX);
        out->cpus[out->n_cpus++] = (int)cpu;
        next = is_last ? NULL : end + 1;
    }
    return EMBD_OK;
}

static int read_log_level(const struct setting *at, enum log_level absent, enum log_level *out,
                          struct embd__error *e)
{
    *out = absent;
    if (at->text == NULL || log_level_read(at->text, out))
        return EMBD_OK;
    return config_complain(e, EMBD_INVALID, SETTING_LOG_LEVEL, at,
                           "unknown level '%.60s'; expected debug, info, warn or error", at->text);
}

/* A setting of store nccl only. `words`: its values, the default first. */
static int read_gpu_word(const struct sources *from, const struct config *config,
                         enum setting_id id, const char *const words[], uint32_t n, uint32_t *out,
                         struct embd__error *e)
{
    const struct setting *at = config_pick(from, NULL, true, id);
    *out = 0;
    if (at->text == NULL)
        return EMBD_OK;
    if (strcmp(config->store, "nccl") != 0)
        return config_complain(e, EMBD_INVALID, id, at, "it is for store nccl, and store is %s",
                               config->store);
    for (; *out < n; (*out)++)
        if (strcmp(at->text, words[*out]) == 0)
            return EMBD_OK;
    return config_complain(e, EMBD_INVALID, id, at, "unknown value '%.60s'; expected %s, %s%s%s",
                           at->text, words[0], words[1], n > 2 ? ", " : "", n > 2 ? words[2] : "");
}

static int read_gpus(const struct sources *from, struct config *out, struct embd__error *e)
{
    static const char *const ways[] = {"auto", "peer", "nccl"};
    static const char *const sums[] = {"exact", "partial"};
    static const enum store_way way_of[] = {STORE_WAY_AUTO, STORE_WAY_PEER, STORE_WAY_NCCL};
    uint32_t way, sum;
    int status = read_gpu_word(from, out, SETTING_GPU_WAY, ways, 3, &way, e);
    if (status == EMBD_OK)
        status = read_gpu_word(from, out, SETTING_GPU_SUMS, sums, 2, &sum, e);
    if (status == EMBD_OK)
        out->gpus = (struct store_gpus){.way = way_of[way], .partial_sums = sum == 1};
    return status;
}

/* A size of 0 means no limit; without a setting main.c decides, because it knows the store. */
static int read_memory(const struct sources *from, struct config *out, struct embd__error *e)
{
    const uint64_t least = LIMIT_FRAME_BYTES + (16u << 20), quarter = config_memory_bytes() / 4;
    const struct setting *rows = config_pick(from, NULL, true, SETTING_ROW_MEMORY);
    if (config_size(SETTING_FRAME_MEMORY, config_pick(from, NULL, true, SETTING_FRAME_MEMORY),
                    least, UINT64_MAX, quarter > least ? quarter : least, &out->frame_memory,
                    e) != EMBD_OK ||
        config_size(SETTING_ROW_MEMORY, rows, 0, UINT64_MAX, 0, &out->row_memory, e) != EMBD_OK)
        return e->status;
    out->has_row_memory = rows->text != NULL;
    return EMBD_OK;
}

/* Frame memory has room for three: one may be in two bins that are a fifth longer in memory, and
 * large pushes have half of it. */
static int read_push_limit(const struct sources *from, struct config *out, struct embd__error *e)
{
    uint64_t third = out->frame_memory / 3,
             most = third < LIMIT_PUSH_BYTES ? third : LIMIT_PUSH_BYTES;
    most = most > LIMIT_FRAME_BYTES ? most : LIMIT_FRAME_BYTES;
    return config_size(SETTING_PUSH_LIMIT, config_pick(from, NULL, true, SETTING_PUSH_LIMIT),
                       LIMIT_FRAME_BYTES, most, most, &out->limits.push_bytes, e);
}

static int read_limits(const struct sources *from, struct config *out, struct embd__error *e)
{
    enum { DAY = 86400 };
    uint64_t connections, stall = 0, idle = 0, hello = 0, strangers = 0, spin = 0;
    struct net_limits *limits = &out->limits;
    int status = config_count(SETTING_MAX_CONNECTIONS,
                              config_pick(from, NULL, true, SETTING_MAX_CONNECTIONS), 1, 1u << 20,
                              4096, &connections, e);
    if (status == EMBD_OK)
        status = config_count(SETTING_STALL_TIMEOUT,
                              config_pick(from, NULL, true, SETTING_STALL_TIMEOUT), 1, DAY, 30,
                              &stall, e);
    if (status == EMBD_OK)
        status =
            config_count(SETTING_IDLE_TIMEOUT, config_pick(from, NULL, true, SETTING_IDLE_TIMEOUT),
                         0, DAY, 0, &idle, e);
    if (status == EMBD_OK)
        status = config_count(SETTING_HELLO_TIMEOUT,
                              config_pick(from, NULL, true, SETTING_HELLO_TIMEOUT), 1, DAY, 10,
                              &hello, e);
    if (status == EMBD_OK)
        status = config_count(SETTING_MAX_STRANGERS,
                              config_pick(from, NULL, true, SETTING_MAX_STRANGERS), 1, 1u << 20,
                              256, &strangers, e);
    if (status == EMBD_OK)
        status = config_count(SETTING_LOCAL_SPIN, config_pick(from, NULL, true, SETTING_LOCAL_SPIN),
                              0, SPIN_MOST_US, SPIN_DEFAULT_US, &spin, e);
    if (status == EMBD_OK)
        status = read_memory(from, out, e);
    if (status == EMBD_OK)
        status = read_push_limit(from, out, e);
    if (status == EMBD_OK)
        status =
            config_size(SETTING_JOURNAL_LIMIT, config_pick(from, NULL, true, SETTING_JOURNAL_LIMIT),
                        0, UINT64_MAX, (uint64_t)4 << 30, &out->journal_limit, e);
    if (status == EMBD_OK)
        status = config_yes(SETTING_JOURNAL_STRICT,
                            config_pick(from, NULL, true, SETTING_JOURNAL_STRICT),
                            &out->is_journal_strict, e);
    limits->frame_bytes = LIMIT_FRAME_BYTES; /* as in hello */
    limits->connections = (uint32_t)connections;
    limits->stall_ms = (uint32_t)stall * 1000;
    limits->idle_ms = (uint32_t)idle * 1000;
    limits->hello_ms = (uint32_t)hello * 1000;
    limits->unauthenticated = (uint32_t)strangers;
    limits->spin_us = (uint32_t)spin;
    return status;
}

static int read_key_files(const struct sources *from, const struct settings *self,
                          struct credential_files *out, struct embd__error *e)
{
    const struct {
        enum setting_id id;
        char *path;
    } files[] = {{SETTING_TLS_CERT, out->tls_cert},
                 {SETTING_TLS_KEY, out->tls_key},
                 {SETTING_TLS_CLIENT_CA, out->tls_client_ca},
                 {SETTING_TOKENS, out->tokens}};
    int status = EMBD_OK;
    for (size_t i = 0; i < sizeof files / sizeof *files && status == EMBD_OK; i++)
        status = config_text(files[i].id, config_pick(from, self, true, files[i].id), "",
                             files[i].path, sizeof out->tls_cert, e);
    bool has_cert = out->tls_cert[0] != '\0', has_key = out->tls_key[0] != '\0';
    enum setting_id missing = has_cert ? SETTING_TLS_KEY : SETTING_TLS_CERT;
    if (status == EMBD_OK && (has_cert != has_key || (!has_cert && out->tls_client_ca[0] != '\0')))
        return config_complain(e, EMBD_INVALID, missing, config_pick(from, self, true, missing),
                               "is missing; TLS needs a certificate and its key");
    return status;
}

static int read_restore(const struct setting *at, struct config *out, struct embd__error *e)
{
    struct embd__error why = {0};
    if (config_text(SETTING_RESTORE, at, "newest", out->restore, sizeof out->restore, e) != EMBD_OK)
        return e->status;
    out->is_restore_off = strcmp(out->restore, "none") == 0;
    if (out->is_restore_off || strcmp(out->restore, "newest") == 0)
        out->restore[0] = '\0';
    else if (snapshot_check_name(out->restore, &why) != EMBD_OK)
        return config_complain(e, EMBD_INVALID, SETTING_RESTORE, at, "%s, nor newest or none",
                               why.text);
    return EMBD_OK;
}

/* HTTP has neither TLS nor tokens: a non-loopback address needs http_open. */
static int check_http(const struct setting *at, const struct listen_address *address,
                      const struct setting *open, struct embd__error *e)
{
    bool is_open;
    if (config_yes(SETTING_HTTP_OPEN, open, &is_open, e) != EMBD_OK)
        return e->status;
    if (is_open || listen_address_is_loopback(address))
        return EMBD_OK;
    return config_complain(
        e, EMBD_UNSUPPORTED, SETTING_HTTP, at,
        "'%.100s' can be reached from other machines, and its pages have neither TLS nor tokens; "
        "set http_open: yes to allow this",
        at->text);
}

static int read_http(const struct sources *from, const struct settings *self, struct config *out,
                     struct embd__error *e)
{
    struct embd__error why = {0};
    const struct setting *at = config_pick(from, self, true, SETTING_HTTP),
                         *open = config_pick(from, self, true, SETTING_HTTP_OPEN);
    out->http_is = at->text != NULL ? CONFIG_HTTP_ASKED : CONFIG_HTTP_BY_DEFAULT;
    if (at->text != NULL ? strcmp(at->text, "off") == 0 : from->is_embedded)
        out->http_is = CONFIG_HTTP_OFF;
    else if (listen_address_read(at->text != NULL ? at->text : "127.0.0.1:7780", &out->http,
                                 &why) != EMBD_OK)
        return config_complain(e, why.status, SETTING_HTTP, at, "%s, or off", why.text);
    else
        return check_http(at, &out->http, open, e);
    return EMBD_OK;
}

/* It has to be there at the start already; it is read anew for each snapshot. */
static int read_peer_token(const struct setting *at, struct config *out, struct embd__error *e)
{
    struct embd__error why = {0};
    if (config_text(SETTING_PEER_TOKEN, at, "", out->peer_token, sizeof out->peer_token, e) !=
        EMBD_OK)
        return e->status;
    if (out->peer_token[0] != '\0' && embd__secret_check(out->peer_token, "token", &why) != EMBD_OK)
        return config_complain(e, why.status, SETTING_PEER_TOKEN, at, "%s", why.text);
    return EMBD_OK;
}

static bool is_named(const struct config *config, const char *table)
{
    bool is = false;
    for (uint32_t i = 0; i < config->n_dropped; i++)
        is = is || strcmp(config->dropped[i], table) == 0;
    return is;
}

/* NAME,NAME,... A name that stands twice is one. */
static int read_dropped(const struct setting *at, struct config *out, struct embd__error *e)
{
    if (config_text(SETTING_DROP_TABLE, at, "", out->dropped_text, sizeof out->dropped_text, e) !=
        EMBD_OK)
        return e->status;
    for (char *rest = out->dropped_text, *name; at->text && (name = strsep(&rest, ",")) != NULL;) {
        if (is_named(out, name))
            continue;
        if (name[0] == '\0')
            return config_complain(e, EMBD_INVALID, SETTING_DROP_TABLE, at,
                                   "a table's name is empty");
        if (out->n_dropped == CONFIG_DROPPED_MAX)
            return config_complain(e, EMBD_INVALID, SETTING_DROP_TABLE, at,
                                   "one start drops %d tables at most", CONFIG_DROPPED_MAX);
        out->dropped[out->n_dropped++] = name;
    }
    return EMBD_OK;
}

/* NULL: nothing does. */
static const char *what_hinders_narrow(const struct sources *from, const struct config *config)
{
    if (config->follow[0] == '\0' || !config->serves)
        return "is for a replica: set follow and serve, too";
    if (config->data_dir[0] != '\0')
        return "is for a replica that keeps nothing on disk: leave out data_dir";
    if (from->flags.of[SETTING_PROMOTE].text != NULL)
        return "is for a replica without optimizer state, which cannot be promoted";
    return config->digest_interval_s > 0
               ? "rounds rows, which then have other digests: leave out digest_interval"
               : NULL;
}

static int read_narrow(const struct sources *from, struct config *out, struct embd__error *e)
{
    const struct setting *at = config_pick(from, NULL, true, SETTING_SERVE_DTYPE);
    out->is_narrow = at->text != NULL;
    if (!out->is_narrow)
        return EMBD_OK;
    int dtype = embd__names_count(embd__dtype_names) - 1;
    while (dtype >= 0 &&
           (strcmp(at->text, embd__dtype_names[dtype]) != 0 || dtype == EMBD_DTYPE_I4))
        dtype--;
    if (dtype < 0)
        return config_complain(e, EMBD_INVALID, SETTING_SERVE_DTYPE, at,
                               "is '%s', expected f32, f16, bf16, i8 or e4m3", at->text);
    out->serve_dtype = (embd_dtype)dtype;
    const char *why = what_hinders_narrow(from, out);
    return why == NULL ? EMBD_OK
                       : config_complain(e, EMBD_INVALID, SETTING_SERVE_DTYPE, at, "%s", why);
}

static const char *what_hinders_following(const struct sources *from, const struct config *config)
{
    const struct settings *flags = &from->flags;
    if (config->data_dir[0] == '\0' && !config->is_narrow)
        return "needs a data_dir, where its journals are";
    if (config->n_servers > 1 || config->has_etcd)
        return "is for a server that has all shards of its configuration: give it one without a "
               "list of servers";
    if (flags->of[SETTING_DROP_TABLE].text != NULL ||
        flags->of[SETTING_ACCEPT_JOURNAL_DAMAGE].text != NULL)
        return "has the records of another server: a follower with damage begins anew with an "
               "empty data_dir, and tables are dropped there";
    return NULL;
}

enum { DIGEST_INTERVAL_MAX = 30 * 86400 };

static int check_failover(const struct sources *from, const struct config *config,
                          struct embd__error *e)
{
    const struct setting *at = &from->file.top.of[SETTING_FAILOVER];
    const char *why = NULL;
    if (config->data_dir[0] == '\0')
        why = "needs a data_dir, where the journals are";
    else if (config->has_placement)
        why = "begins with the even placement, which embctl rebalance changes: leave out placement "
              "and weights";
    return why == NULL ? EMBD_OK
                       : config_complain(e, EMBD_INVALID, SETTING_FAILOVER, at, "%s", why);
}

static int read_follow(const struct sources *from, struct config *out, struct embd__error *e)
{
    const struct setting *at = config_pick(from, NULL, true, SETTING_FOLLOW);
    const struct setting *token = config_pick(from, NULL, true, SETTING_FOLLOW_TOKEN);
    const struct setting *serve = config_pick(from, NULL, true, SETTING_SERVE);
    const struct setting *digests = config_pick(from, NULL, true, SETTING_DIGEST_INTERVAL);
    if (config_text(SETTING_FOLLOW, at, "", out->follow, sizeof out->follow, e) != EMBD_OK ||
        config_text(SETTING_FOLLOW_TOKEN, token, "", out->follow_token, sizeof out->follow_token,
                    e) != EMBD_OK ||
        config_yes(SETTING_SERVE, serve, &out->serves, e) != EMBD_OK ||
        config_count(SETTING_DIGEST_INTERVAL, digests, 0, DIGEST_INTERVAL_MAX, 0,
                     &out->digest_interval_s, e) != EMBD_OK ||
        read_narrow(from, out, e) != EMBD_OK)
        return e->status;
    if (out->has_failover)
        return check_failover(from, out, e);
    if (out->digest_interval_s > 0 && out->follow[0] == '\0')
        return config_complain(e, EMBD_INVALID, SETTING_DIGEST_INTERVAL, digests,
                               "is for a server that follows another one: set follow, too");
    if (out->serves && out->follow[0] == '\0')
        return config_complain(e, EMBD_INVALID, SETTING_SERVE, serve,
                               "is for a server that follows another one: set follow, too");
    if (out->follow[0] == '\0' && from->flags.of[SETTING_PROMOTE].text == NULL)
        return EMBD_OK;
    const char *why = what_hinders_following(from, out);
    return why == NULL ? config_read_followed(from, at, out, e)
                       : config_complain(e, EMBD_INVALID, SETTING_FOLLOW, at, "%s", why);
}

#define ARCHIVE_EVERY_MAX 86400u
#define ARCHIVE_DAYS_MAX  36500u

/* NULL: nothing does. */
static const char *what_hinders_archive(const struct sources *from, const struct config *config)
{
    if (from->is_embedded)
        return "is for a server of its own: run embctl backup --every, or embd";
    return config->data_dir[0] == '\0' ? "needs a data_dir, where snapshots are" : NULL;
}

static int read_archive(const struct sources *from, struct config *out, struct embd__error *e)
{
    const struct setting *at = config_pick(from, NULL, true, SETTING_ARCHIVE);
    if (config_text(SETTING_ARCHIVE, at, "", out->archive, sizeof out->archive, e) != EMBD_OK ||
        config_text(SETTING_ARCHIVE_TOKEN, config_pick(from, NULL, true, SETTING_ARCHIVE_TOKEN), "",
                    out->archive_token, sizeof out->archive_token, e) != EMBD_OK ||
        config_count(SETTING_ARCHIVE_EVERY, config_pick(from, NULL, true, SETTING_ARCHIVE_EVERY), 1,
                     ARCHIVE_EVERY_MAX, 60, &out->archive_every_s, e) != EMBD_OK ||
        config_count(SETTING_ARCHIVE_DAYS, config_pick(from, NULL, true, SETTING_ARCHIVE_DAYS), 1,
                     ARCHIVE_DAYS_MAX, 7, &out->archive_days, e) != EMBD_OK)
        return e->status;
    const char *why = out->archive[0] == '\0' ? NULL : what_hinders_archive(from, out);
    return why == NULL ? EMBD_OK : config_complain(e, EMBD_INVALID, SETTING_ARCHIVE, at, "%s", why);
}

static int read_replicas(const struct setting *at, struct config *out, struct embd__error *e)
{
    uint64_t replicas = 1;
    int status = config_count(SETTING_REPLICAS, at, 0, REPLICAS_MAX, 1, &replicas, e);
    out->replicas = (uint32_t)replicas;
    return status;
}

static int read_process(const struct sources *from, struct config *out, struct embd__error *e)
{
    const struct settings *self = from->file.n_servers > 0 ? &from->file.servers[out->self] : NULL;
    const struct setting *flag = &from->flags.of[SETTING_CLUSTER_NAME_FLAG],
                         *fd = &from->flags.of[SETTING_READY_FD],
                         *drop = &from->flags.of[SETTING_DROP_TABLE];
    uint64_t ready_fd = 0;
    int status = flag->text != NULL
                     ? config_text(SETTING_CLUSTER_NAME_FLAG, flag, "", out->cluster_name,
                                   sizeof out->cluster_name, e)
                     : config_text(SETTING_CLUSTER_NAME, &from->file.top.of[SETTING_CLUSTER_NAME],
                                   "embd", out->cluster_name, sizeof out->cluster_name, e);
    if (status == EMBD_OK)
        status = config_text(SETTING_STORE, config_pick(from, NULL, true, SETTING_STORE), "auto",
                             out->store, sizeof out->store, e);
    if (status == EMBD_OK)
        status = read_gpus(from, out, e);
    if (status == EMBD_OK)
        status = config_text(SETTING_DATA_DIR, config_pick(from, self, true, SETTING_DATA_DIR), "",
                             out->data_dir, sizeof out->data_dir, e);
    if (status == EMBD_OK)
        status = read_follow(from, out, e);
    if (status == EMBD_OK)
        status = read_archive(from, out, e);
    if (status == EMBD_OK)
        status = read_replicas(config_pick(from, NULL, true, SETTING_REPLICAS), out, e);
    if (status == EMBD_OK)
        status = read_restore(config_pick(from, NULL, true, SETTING_RESTORE), out, e);
    if (status == EMBD_OK)
        status = read_http(from, self, out, e);
    if (status == EMBD_OK)
        status = read_key_files(from, self, &out->credential_files, e);
    if (status == EMBD_OK)
        status = config_text(SETTING_PEER_CA, config_pick(from, self, true, SETTING_PEER_CA),
                             out->credential_files.tls_client_ca, out->credential_files.peer_ca,
                             sizeof out->credential_files.peer_ca, e);
    if (status == EMBD_OK)
        status = read_peer_token(config_pick(from, self, true, SETTING_PEER_TOKEN), out, e);
    if (status == EMBD_OK)
        status = read_cpus(config_pick(from, NULL, true, SETTING_CPUS), out, e);
    if (status == EMBD_OK)
        status = read_log_level(config_pick(from, NULL, true, SETTING_LOG_LEVEL),
                                from->is_embedded ? LOG_WARN : LOG_INFO, &out->log_level, e);
    if (status == EMBD_OK)
        status = config_count(SETTING_READY_FD, fd, 1, 1u << 20, 0, &ready_fd, e);
    if (status == EMBD_OK)
        status = read_dropped(drop, out, e);
    if (status == EMBD_OK && drop->text != NULL && out->data_dir[0] == '\0')
        status = config_complain(e, EMBD_INVALID, SETTING_DROP_TABLE, drop,
                                 "there is no data_dir, and so no table to drop");
    out->accepts_journal_damage = from->flags.of[SETTING_ACCEPT_JOURNAL_DAMAGE].text != NULL;
    out->promotes = from->flags.of[SETTING_PROMOTE].text != NULL;
    out->accepts_empty = from->flags.of[SETTING_ACCEPT_EMPTY].text != NULL;
    out->joins = from->flags.of[SETTING_JOIN].text != NULL;
    if (status == EMBD_OK && out->joins && out->data_dir[0] == '\0')
        status = config_complain(e, EMBD_INVALID, SETTING_JOIN, &from->flags.of[SETTING_JOIN],
                                 "needs a data_dir: a member without one would forget at its end "
                                 "who the members are");
    out->is_check = from->flags.of[SETTING_CHECK].text != NULL;
    out->ready_fd = fd->text != NULL ? (int)ready_fd : -1;
    return status;
}

int config_read_from(const struct sources *from, struct config *out, struct embd__error *e)
{
    *out = (struct config){0};
    int status = config_read_servers(from, out, e);
    if (status == EMBD_OK)
        status = config_read_placement(from, out, e);
    if (status == EMBD_OK)
        status = read_limits(from, out, e);
    if (status == EMBD_OK)
        status = read_process(from, out, e);
    if (status != EMBD_OK)
        config_fini(out);
    return status;
}

int config_read(int argc, char **argv, struct config *out, struct embd__error *e)
{
    struct sources from = {0};
    const char *path = NULL;
    *out = (struct config){0};
    int status = settings_flags_read(argc, argv, &from.flags, &path, e);
    if (status == EMBD_OK && path != NULL)
        status = settings_file_read(path, &from.file, e);
    if (status == EMBD_OK)
        status = config_read_from(&from, out, e);
    settings_fini(&from.flags);
    settings_file_fini(&from.file);
    return status;
}

void config_fini(struct config *config)
{
    free(config->servers);
    *config = (struct config){0};
}
