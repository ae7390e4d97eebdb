/* config.c - from texts to a checked configuration. A value comes from the flag, else from the
 * server's own entry in the file, else from the top of the file, else from the defaults in
 * settings.h. */
#include "config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "member.h"
#include "settings.h"

struct sources {
    struct settings flags;
    struct settings_file file;
};

/* ---- values ---- */

static int __attribute__((format(printf, 5, 6)))
complain(struct embd__error *e, int status, enum setting_id id, const struct setting *at,
         const char *format, ...)
{
    char text[LIMIT_ERROR_TEXT], flag[32];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(flag, sizeof flag, "--%s", setting_kinds[id].key);
    for (char *c = flag; *c != '\0'; c++)
        *c = *c == '_' ? '-' : *c;
    if (at->file != NULL)
        return embd__error_set(e, status, "%s:%u:%u: %s: %s", at->file, at->line, at->column,
                               setting_kinds[id].key, text);
    return embd__error_set(e, status, "%s: %s", flag, text);
}

/* The setting that counts, for a server of the list or (NULL) the process; its text may be NULL. */
static const struct setting *pick(const struct sources *from, const struct settings *server,
                                  bool with_flags, enum setting_id id)
{
    if (with_flags && from->flags.of[id].text != NULL)
        return &from->flags.of[id];
    if (server != NULL && server->of[id].text != NULL)
        return &server->of[id];
    return &from->file.top.of[id];
}

static int read_count(enum setting_id id, const struct setting *at, uint64_t min, uint64_t max,
                      uint64_t absent, uint64_t *out, struct embd__error *e)
{
    *out = absent;
    if (at->text == NULL)
        return EMBD_OK;
    char *end;
    errno = 0;
    bool is_number = at->text[0] >= '0' && at->text[0] <= '9';
    *out = strtoull(at->text, &end, 10);
    if (!is_number || *end != '\0' || errno != 0)
        return complain(e, EMBD_INVALID, id, at, "'%.60s' is no whole number", at->text);
    if (*out < min || *out > max)
        return complain(e, EMBD_INVALID, id, at, "%s is out of range, expected %llu to %llu",
                        at->text, (unsigned long long)min, (unsigned long long)max);
    return EMBD_OK;
}

static uint64_t ram_bytes(void)
{
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* "1048576", "512K", "64M", "2G", "25%" of RAM. */
static int read_size(enum setting_id id, const struct setting *at, uint64_t min, uint64_t max,
                     uint64_t absent, uint64_t *out, struct embd__error *e)
{
    *out = absent;
    if (at->text == NULL)
        return EMBD_OK;
    char *end;
    errno = 0;
    uint64_t number = strtoull(at->text, &end, 10), unit = 1;
    bool is_part = strcmp(end, "%") == 0;
    bool is_size = at->text[0] >= '0' && at->text[0] <= '9' && errno == 0;
    if (strcmp(end, "K") == 0)
        unit = 1u << 10;
    else if (strcmp(end, "M") == 0)
        unit = 1u << 20;
    else if (strcmp(end, "G") == 0)
        unit = 1u << 30;
    else if (is_part)
        unit = ram_bytes() / 100;
    else if (*end != '\0')
        is_size = false;
    if (!is_size || (is_part && number > 100))
        return complain(e, EMBD_INVALID, id, at,
                        "'%.60s' is no size, expected bytes, 512M, 2G or 25%%", at->text);
    if (__builtin_mul_overflow(number, unit, out) || *out < min || *out > max)
        return complain(e, EMBD_INVALID, id, at,
                        "'%.60s' is out of range, expected %llu to %llu bytes", at->text,
                        (unsigned long long)min, (unsigned long long)max);
    return EMBD_OK;
}

static int read_text(enum setting_id id, const struct setting *at, const char *absent, char *out,
                     size_t out_bytes, struct embd__error *e)
{
    const char *text = at->text != NULL ? at->text : absent;
    if (at->text != NULL && *text == '\0')
        return complain(e, EMBD_INVALID, id, at, "is empty");
    if (strlen(text) >= out_bytes)
        return complain(e, EMBD_INVALID, id, at, "has %zu bytes, the limit is %zu", strlen(text),
                        out_bytes - 1);
    snprintf(out, out_bytes, "%s", text);
    return EMBD_OK;
}

/* ---- servers ---- */

static void default_admin_dir(char *out, size_t out_bytes)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    if (runtime != NULL && runtime[0] == '/')
        snprintf(out, out_bytes, "%s/embd", runtime);
    else
        snprintf(out, out_bytes, "/tmp/embd-%u", (unsigned)geteuid());
}

/* The address keeps its own sentence; here it gets its place. */
static int read_address(const struct setting *at, struct listen_address *out, struct embd__error *e)
{
    struct embd__error why = {0};
    if (listen_address_read(at->text != NULL ? at->text : "127.0.0.1:7700", out, &why) == EMBD_OK)
        return EMBD_OK;
    return complain(e, why.status, SETTING_LISTEN, at, "%s", why.text);
}

static bool is_given(const struct sources *from, const struct settings *entry, bool is_self,
                     enum setting_id id)
{
    return pick(from, entry, is_self, id)->text != NULL;
}

/* An address that others can reach is guarded; what cannot be connected to has another name. */
static int check_reach(const struct sources *from, const struct settings *entry, bool is_self,
                       const struct config_server *server, struct embd__error *e)
{
    const struct setting *listen = pick(from, entry, is_self, SETTING_LISTEN);
    bool has_guard = is_given(from, entry, is_self, SETTING_TLS_CERT) ||
                     is_given(from, entry, is_self, SETTING_TOKENS);
    if (!listen_address_is_loopback(&server->address) && !has_guard)
        return complain(e, EMBD_UNSUPPORTED, SETTING_LISTEN, listen,
                        "'%.100s' can be reached from other machines, and neither TLS (tls_cert) "
                        "nor tokens are asked for; without them only loopback addresses are "
                        "listened on (127.0.0.1, ::1)",
                        listen->text);
    bool is_in_etcd = !is_self && from->file.top.of[SETTING_ETCD].text != NULL;
    if (listen_address_is_any(&server->address) && server->advertise[0] == '\0' && !is_in_etcd)
        return complain(e, EMBD_INVALID, SETTING_LISTEN, listen,
                        "'%.100s' is every address of this machine; advertise has to name the one "
                        "that clients connect to",
                        listen->text);
    return EMBD_OK;
}

/* Admins on TCP. */
static int read_admin(const struct sources *from, const struct settings *entry, bool is_self,
                      struct config_server *out, struct embd__error *e)
{
    const struct setting *at = pick(from, entry, is_self, SETTING_ADMIN_LISTEN);
    struct embd__error why = {0};
    out->has_admin = at->text != NULL;
    if (!out->has_admin)
        return EMBD_OK;
    if (listen_address_read(at->text, &out->admin, &why) != EMBD_OK)
        return complain(e, why.status, SETTING_ADMIN_LISTEN, at, "%s", why.text);
    if (!is_given(from, entry, is_self, SETTING_TLS_CERT) ||
        !is_given(from, entry, is_self, SETTING_TOKENS))
        return complain(e, EMBD_UNSUPPORTED, SETTING_ADMIN_LISTEN, at,
                        "'%.100s' is for admins: it needs TLS (tls_cert) and tokens", at->text);
    return EMBD_OK;
}

static int read_server(const struct sources *from, const struct settings *entry, bool is_self,
                       uint32_t first_shard, struct config_server *out, struct embd__error *e)
{
    static const struct setting none;
    char admin_dir[sizeof out->admin_dir];
    uint64_t shards = 1;
    const struct setting *listen = pick(from, entry, is_self, SETTING_LISTEN);
    default_admin_dir(admin_dir, sizeof admin_dir);
    int status = read_address(listen, &out->address, e);
    if (status == EMBD_OK)
        status = read_count(SETTING_SHARDS, pick(from, entry, is_self, SETTING_SHARDS), 1,
                            LIMIT_SHARDS - first_shard, 1, &shards, e);
    if (status == EMBD_OK)
        status = read_text(SETTING_ADMIN_DIR, pick(from, entry, is_self, SETTING_ADMIN_DIR),
                           admin_dir, out->admin_dir, sizeof out->admin_dir, e);
    if (status == EMBD_OK)
        status =
            read_text(SETTING_SERVER_NAME, entry != NULL ? &entry->of[SETTING_SERVER_NAME] : &none,
                      "", out->name, sizeof out->name, e);
    if (status == EMBD_OK)
        status = read_text(SETTING_ADVERTISE, pick(from, entry, is_self, SETTING_ADVERTISE), "",
                           out->advertise, sizeof out->advertise, e);
    if (status == EMBD_OK)
        status = check_reach(from, entry, is_self, out, e);
    if (status == EMBD_OK)
        status = read_admin(from, entry, is_self, out, e);
    if (status != EMBD_OK)
        return status;
    out->shards = (uint32_t)shards;
    out->first_shard = first_shard;
    out->is_listed =
        listen->text != NULL && out->address.port != 0 &&
        (!listen_address_is_any(&out->address) || out->advertise[0] != '\0');
    if (out->address.port != 0 && out->address.port + shards - 1 > 65535)
        return complain(e, EMBD_INVALID, SETTING_LISTEN, listen,
                        "%u shards from port %u on pass port 65535", out->shards,
                        out->address.port);
    return EMBD_OK;
}

/* Servers that go by different names are on different machines, where each may have every address. */
static bool overlap(const struct config_server *a, const struct config_server *b)
{
    return strcmp(a->advertise, b->advertise) == 0 &&
           strcmp(a->address.host, b->address.host) == 0 &&
           a->address.port < b->address.port + b->shards &&
           b->address.port < a->address.port + a->shards;
}

/* What only a list of servers can get wrong. */
static int check_servers(const struct sources *from, const struct config *config,
                         struct embd__error *e)
{
    static const enum setting_id shared[] = {SETTING_LISTEN, SETTING_SHARDS};
    if (config->n_servers == 1)
        return EMBD_OK;
    for (size_t i = config->has_etcd ? 1 : 0; i < sizeof shared / sizeof *shared; i++)
        if (from->flags.of[shared[i]].text != NULL)
            return complain(e, EMBD_INVALID, shared[i], &from->flags.of[shared[i]],
                            "the other servers of %s read it from there; set it in the file",
                            from->file.path);
    for (uint32_t i = 0; i < config->n_servers && !config->has_etcd; i++) {
        const struct setting *listen = pick(from, &from->file.servers[i], false, SETTING_LISTEN);
        if (config->servers[i].address.port == 0)
            return complain(e, EMBD_INVALID, SETTING_LISTEN, listen,
                            "the port is 0, but the other servers have to know it");
        for (uint32_t j = 0; j < i; j++)
            if (overlap(&config->servers[i], &config->servers[j]))
                return complain(e, EMBD_INVALID, SETTING_LISTEN, listen,
                                "ports %u to %u are also those of server %u",
                                config->servers[i].address.port,
                                config->servers[i].address.port + config->servers[i].shards - 1, j);
    }
    return EMBD_OK;
}

/* Which entry of the file this process is. */
static int find_self(const struct sources *from, uint32_t *out, struct embd__error *e)
{
    const struct setting *at = pick(from, NULL, true, SETTING_SERVER);
    uint32_t n = from->file.n_servers;
    char *end;
    *out = 0;
    if (at->text == NULL)
        return n <= 1 || from->flags.of[SETTING_CHECK].text != NULL
                   ? EMBD_OK
                   : complain(
                         e, EMBD_INVALID, SETTING_SERVER, &from->flags.of[SETTING_SERVER],
                         "%s lists %u servers; say which one this is, by name or number from 0",
                         from->file.path, n);
    for (uint32_t i = 0; i < n; i++) {
        const char *name = from->file.servers[i].of[SETTING_SERVER_NAME].text;
        *out = i;
        if (name != NULL && strcmp(name, at->text) == 0)
            return EMBD_OK;
    }
    unsigned long number = strtoul(at->text, &end, 10);
    if (at->text[0] < '0' || at->text[0] > '9' || *end != '\0' || number >= n)
        return complain(e, EMBD_INVALID, SETTING_SERVER, at,
                        "'%.60s' is none of the %u servers listed%s%s", at->text, n,
                        from->file.path != NULL ? " in " : "",
                        from->file.path != NULL ? from->file.path : "");
    *out = (uint32_t)number;
    return EMBD_OK;
}

/* Whom we believe to be etcd, and who we are to it. */
static int read_etcd_files(const struct settings *top, struct etcd_place *out,
                           struct embd__error *e)
{
    const struct {
        enum setting_id id;
        char *path;
    } files[] = {{SETTING_ETCD_CA, out->ca},
                 {SETTING_ETCD_CERT, out->cert},
                 {SETTING_ETCD_KEY, out->key},
                 {SETTING_ETCD_LOGIN, out->login}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (read_text(files[i].id, &top->of[files[i].id], "", files[i].path, ETCD_PATH_BYTES, e) !=
            EMBD_OK)
            return e->status;
    if ((out->cert[0] != '\0') != (out->key[0] != '\0'))
        return complain(e, EMBD_INVALID, SETTING_ETCD_CERT,
                        &top->of[out->cert[0] != '\0' ? SETTING_ETCD_CERT : SETTING_ETCD_KEY],
                        "etcd_cert and etcd_key go together");
    for (size_t i = 1; i < sizeof files / sizeof *files && out->ca[0] == '\0'; i++)
        if (files[i].path[0] != '\0')
            return complain(e, EMBD_INVALID, files[i].id, &top->of[files[i].id],
                            "it is for etcd with TLS, and etcd_ca is missing");
    return EMBD_OK;
}

/* A cluster in etcd: its servers are known by their names. */
static int read_etcd(const struct sources *from, struct config *out, struct embd__error *e)
{
    const struct setting *at = &from->file.top.of[SETTING_ETCD];
    struct embd__error why = {0};
    uint64_t lease_s;
    if (read_count(SETTING_ETCD_LEASE, &from->file.top.of[SETTING_ETCD_LEASE], 1, 3600,
                   MEMBER_LEASE_S, &lease_s, e) != EMBD_OK)
        return e->status;
    out->has_etcd = at->text != NULL;
    out->etcd_lease_s = (uint32_t)lease_s;
    if (!out->has_etcd)
        return EMBD_OK;
    if (etcd_place_read(at->text, &out->etcd, &why) != EMBD_OK)
        return complain(e, why.status, SETTING_ETCD, at, "%s", why.text);
    if (read_etcd_files(&from->file.top, &out->etcd, e) != EMBD_OK)
        return e->status;
    for (uint32_t i = 0; i < from->file.n_servers; i++) {
        const char *name = from->file.servers[i].of[SETTING_SERVER_NAME].text;
        bool is_plain =
            name != NULL && name[0] != '\0' &&
            strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") ==
                strlen(name);
        if (!is_plain)
            return complain(e, EMBD_INVALID, SETTING_ETCD, at,
                            "server %u has no name of letters, digits and _-.", i);
        for (uint32_t j = 0; j < i; j++)
            if (strcmp(name, from->file.servers[j].of[SETTING_SERVER_NAME].text) == 0)
                return complain(e, EMBD_INVALID, SETTING_ETCD, at, "two servers are called '%.60s'",
                                name);
    }
    if (from->file.n_servers == 0)
        return complain(e, EMBD_INVALID, SETTING_ETCD, at, "there is no list of servers");
    return EMBD_OK;
}

static int read_servers(const struct sources *from, struct config *out, struct embd__error *e)
{
    int status = read_etcd(from, out, e);
    if (status == EMBD_OK)
        status = find_self(from, &out->self, e);
    if (status != EMBD_OK)
        return status;
    uint32_t n = from->file.n_servers > 0 ? from->file.n_servers : 1;
    out->servers = calloc(n, sizeof *out->servers);
    if (out->servers == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "out of memory");
    out->n_servers = n;
    for (uint32_t i = 0; i < n && status == EMBD_OK; i++) {
        const struct settings *entry = from->file.n_servers > 0 ? &from->file.servers[i] : NULL;
        if (out->n_shards == LIMIT_SHARDS)
            return embd__error_set(e, EMBD_TOO_LARGE,
                                   "%s: the servers have more than %u shards together",
                                   from->file.path, LIMIT_SHARDS);
        status = read_server(from, entry, i == out->self, out->n_shards, &out->servers[i], e);
        out->n_shards += out->servers[i].shards;
    }
    return status != EMBD_OK ? status : check_servers(from, out, e);
}

/* ---- the process ---- */

static int read_cpus(const struct setting *at, struct config *out, struct embd__error *e)
{
    const char *next = at->text;
    while (next != NULL && *next != '\0') {
        char *end;
        unsigned long cpu = strtoul(next, &end, 10);
        bool is_last = *end == '\0';
        if (*next < '0' || *next > '9' || (!is_last && *end != ',') || cpu >= 1024)
            return complain(e, EMBD_INVALID, SETTING_CPUS, at,
                            "'%.60s' is no list of CPUs such as 0,2,3", at->text);
        if (out->n_cpus == CONFIG_CPUS_MAX)
            return complain(e, EMBD_INVALID, SETTING_CPUS, at, "has more than %d CPUs",
                            CONFIG_CPUS_MAX);
        out->cpus[out->n_cpus++] = (int)cpu;
        next = is_last ? NULL : end + 1;
    }
    return EMBD_OK;
}

static int read_log_level(const struct setting *at, enum log_level *out, struct embd__error *e)
{
    *out = LOG_INFO;
    if (at->text == NULL || log_level_read(at->text, out))
        return EMBD_OK;
    return complain(e, EMBD_INVALID, SETTING_LOG_LEVEL, at,
                    "'%.60s' is none of debug, info, warn, error", at->text);
}

/* What store nccl alone makes sense of. `words`: its values, the first one that of nothing said. */
static int read_gpu_word(const struct sources *from, const struct config *config,
                         enum setting_id id, const char *const words[], uint32_t n, uint32_t *out,
                         struct embd__error *e)
{
    const struct setting *at = pick(from, NULL, true, id);
    *out = 0;
    if (at->text == NULL)
        return EMBD_OK;
    if (strcmp(config->store, "nccl") != 0)
        return complain(e, EMBD_INVALID, id, at, "it is for store nccl, and store is %s",
                        config->store);
    for (; *out < n; (*out)++)
        if (strcmp(at->text, words[*out]) == 0)
            return EMBD_OK;
    return complain(e, EMBD_INVALID, id, at, "'%.60s' is none of %s, %s%s%s", at->text, words[0],
                    words[1], n > 2 ? ", " : "", n > 2 ? words[2] : "");
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

static int read_limits(const struct sources *from, struct config *out, struct embd__error *e)
{
    enum { DAY = 86400 };
    uint64_t connections, stall = 0, idle = 0, hello = 0, strangers = 0;
    struct net_limits *limits = &out->limits;
    int status =
        read_count(SETTING_MAX_CONNECTIONS, pick(from, NULL, true, SETTING_MAX_CONNECTIONS), 1,
                   1u << 20, 4096, &connections, e);
    if (status == EMBD_OK)
        status = read_count(SETTING_STALL_TIMEOUT, pick(from, NULL, true, SETTING_STALL_TIMEOUT), 1,
                            DAY, 30, &stall, e);
    if (status == EMBD_OK)
        status = read_count(SETTING_IDLE_TIMEOUT, pick(from, NULL, true, SETTING_IDLE_TIMEOUT), 0,
                            DAY, 0, &idle, e);
    if (status == EMBD_OK)
        status = read_count(SETTING_HELLO_TIMEOUT, pick(from, NULL, true, SETTING_HELLO_TIMEOUT), 1,
                            DAY, 10, &hello, e);
    if (status == EMBD_OK)
        status = read_count(SETTING_MAX_STRANGERS, pick(from, NULL, true, SETTING_MAX_STRANGERS), 1,
                            1u << 20, 256, &strangers, e);
    if (status == EMBD_OK)
        status = read_size(SETTING_FRAME_MEMORY, pick(from, NULL, true, SETTING_FRAME_MEMORY),
                           LIMIT_FRAME_BYTES + (16u << 20), UINT64_MAX, ram_bytes() / 4,
                           &out->frame_memory, e);
    limits->frame_bytes = LIMIT_FRAME_BYTES; /* as hello tells */
    limits->connections = (uint32_t)connections;
    limits->stall_ms = (uint32_t)stall * 1000;
    limits->idle_ms = (uint32_t)idle * 1000;
    limits->hello_ms = (uint32_t)hello * 1000;
    limits->strangers = (uint32_t)strangers;
    return status;
}

static int read_key_files(const struct sources *from, const struct settings *self,
                          struct key_files *out, struct embd__error *e)
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
        status = read_text(files[i].id, pick(from, self, true, files[i].id), "", files[i].path,
                           sizeof out->tls_cert, e);
    bool has_cert = out->tls_cert[0] != '\0', has_key = out->tls_key[0] != '\0';
    enum setting_id missing = has_cert ? SETTING_TLS_KEY : SETTING_TLS_CERT;
    if (status == EMBD_OK && (has_cert != has_key || (!has_cert && out->tls_client_ca[0] != '\0')))
        return complain(e, EMBD_INVALID, missing, pick(from, self, true, missing),
                        "is missing; TLS needs a certificate and its key");
    return status;
}

static int read_http(const struct setting *at, struct config *out, struct embd__error *e)
{
    struct embd__error why = {0};
    out->http_is = at->text != NULL ? CONFIG_HTTP_ASKED : CONFIG_HTTP_BY_DEFAULT;
    if (at->text != NULL && strcmp(at->text, "off") == 0)
        out->http_is = CONFIG_HTTP_OFF;
    else if (listen_address_read(at->text != NULL ? at->text : "127.0.0.1:7780", &out->http,
                                 &why) != EMBD_OK)
        return complain(e, why.status, SETTING_HTTP, at, "%s, or off", why.text);
    return EMBD_OK;
}

static int read_process(const struct sources *from, struct config *out, struct embd__error *e)
{
    const struct settings *self = from->file.n_servers > 0 ? &from->file.servers[out->self] : NULL;
    const struct setting *flag = &from->flags.of[SETTING_CLUSTER_NAME_FLAG],
                         *fd = &from->flags.of[SETTING_READY_FD];
    uint64_t ready_fd = 0;
    int status = flag->text != NULL
                     ? read_text(SETTING_CLUSTER_NAME_FLAG, flag, "", out->cluster_name,
                                 sizeof out->cluster_name, e)
                     : read_text(SETTING_CLUSTER_NAME, &from->file.top.of[SETTING_CLUSTER_NAME],
                                 "embd", out->cluster_name, sizeof out->cluster_name, e);
    if (status == EMBD_OK)
        status = read_text(SETTING_STORE, pick(from, NULL, true, SETTING_STORE), "auto", out->store,
                           sizeof out->store, e);
    if (status == EMBD_OK)
        status = read_gpus(from, out, e);
    if (status == EMBD_OK)
        status = read_text(SETTING_DATA_DIR, pick(from, self, true, SETTING_DATA_DIR), "",
                           out->data_dir, sizeof out->data_dir, e);
    if (status == EMBD_OK)
        status = read_http(pick(from, self, true, SETTING_HTTP), out, e);
    if (status == EMBD_OK)
        status = read_key_files(from, self, &out->key_files, e);
    if (status == EMBD_OK)
        status = read_cpus(pick(from, NULL, true, SETTING_CPUS), out, e);
    if (status == EMBD_OK)
        status = read_log_level(pick(from, NULL, true, SETTING_LOG_LEVEL), &out->log_level, e);
    if (status == EMBD_OK)
        status = read_count(SETTING_READY_FD, fd, 1, 1u << 20, 0, &ready_fd, e);
    out->accepts_journal_damage = from->flags.of[SETTING_ACCEPT_JOURNAL_DAMAGE].text != NULL;
    out->is_check = from->flags.of[SETTING_CHECK].text != NULL;
    out->ready_fd = fd->text != NULL ? (int)ready_fd : -1;
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
        status = read_servers(&from, out, e);
    if (status == EMBD_OK)
        status = read_limits(&from, out, e);
    if (status == EMBD_OK)
        status = read_process(&from, out, e);
    settings_fini(&from.flags);
    settings_file_fini(&from.file);
    if (status != EMBD_OK)
        config_fini(out);
    return status;
}

void config_fini(struct config *config)
{
    free(config->servers);
    *config = (struct config){0};
}
