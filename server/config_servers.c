/* config_servers.c - the servers of the cluster, as the file lists them or etcd has them, and which
 * of them this process is. */
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/config_values.h"
#include "server/member/member.h"

/* ---- one server ---- */

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
    return config_complain(e, why.status, SETTING_LISTEN, at, "%s", why.text);
}

static bool is_given(const struct sources *from, const struct settings *entry, bool is_self,
                     enum setting_id id)
{
    return config_pick(from, entry, is_self, id)->text != NULL;
}

/* An address that others can reach is guarded; what cannot be connected to has another name. */
static int check_reach(const struct sources *from, const struct settings *entry, bool is_self,
                       const struct config_server *server, struct embd__error *e)
{
    const struct setting *listen = config_pick(from, entry, is_self, SETTING_LISTEN);
    bool has_guard = is_given(from, entry, is_self, SETTING_TLS_CERT) ||
                     is_given(from, entry, is_self, SETTING_TOKENS);
    if (!listen_address_is_loopback(&server->address) && !has_guard)
        return config_complain(
            e, EMBD_UNSUPPORTED, SETTING_LISTEN, listen,
            "'%.100s' can be reached from other machines, and neither TLS (tls_cert) "
            "nor tokens are asked for; without them only loopback addresses are "
            "listened on (127.0.0.1, ::1)",
            listen->text);
    bool is_in_etcd = !is_self && from->file.top.of[SETTING_ETCD].text != NULL;
    if (listen_address_is_any(&server->address) && server->advertise[0] == '\0' && !is_in_etcd)
        return config_complain(
            e, EMBD_INVALID, SETTING_LISTEN, listen,
            "'%.100s' is every address of this machine; advertise has to name the one "
            "that clients connect to",
            listen->text);
    return EMBD_OK;
}

/* Admins on TCP. */
static int read_admin(const struct sources *from, const struct settings *entry, bool is_self,
                      struct config_server *out, struct embd__error *e)
{
    const struct setting *at = config_pick(from, entry, is_self, SETTING_ADMIN_LISTEN);
    struct embd__error why = {0};
    out->has_admin = at->text != NULL;
    if (!out->has_admin)
        return EMBD_OK;
    if (listen_address_read(at->text, &out->admin, &why) != EMBD_OK)
        return config_complain(e, why.status, SETTING_ADMIN_LISTEN, at, "%s", why.text);
    if (!is_given(from, entry, is_self, SETTING_TLS_CERT) ||
        !is_given(from, entry, is_self, SETTING_TOKENS))
        return config_complain(e, EMBD_UNSUPPORTED, SETTING_ADMIN_LISTEN, at,
                               "'%.100s' is for admins: it needs TLS (tls_cert) and tokens",
                               at->text);
    return EMBD_OK;
}

/* The Unix sockets for data; after the admin directory, which is the default. */
static int read_local(const struct sources *from, const struct settings *entry, bool is_self,
                      struct config_server *out, struct embd__error *e)
{
    const struct setting *dir = config_pick(from, entry, is_self, SETTING_LOCAL_SOCKET),
                         *group = config_pick(from, entry, is_self, SETTING_LOCAL_GROUP);
    if (config_text(SETTING_LOCAL_SOCKET, dir, out->admin_dir, out->local_dir,
                    sizeof out->local_dir, e) != EMBD_OK)
        return e->status;
    if (strcmp(out->local_dir, "off") == 0)
        out->local_dir[0] = '\0';
    out->local_group = NO_GROUP;
    if (group->text == NULL)
        return EMBD_OK;
    const struct group *found = is_self ? getgrnam(group->text) : NULL;
    if (is_self && found == NULL)
        return config_complain(e, EMBD_INVALID, SETTING_LOCAL_GROUP, group,
                               "this host has no group '%.60s'", group->text);
    out->local_group = found != NULL ? found->gr_gid : NO_GROUP;
    return EMBD_OK;
}

static int read_server(const struct sources *from, const struct settings *entry, bool is_self,
                       uint32_t first_shard, struct config_server *out, struct embd__error *e)
{
    static const struct setting none;
    char admin_dir[sizeof out->admin_dir];
    uint64_t shards = 1;
    const struct setting *listen = config_pick(from, entry, is_self, SETTING_LISTEN);
    default_admin_dir(admin_dir, sizeof admin_dir);
    int status = read_address(listen, &out->address, e);
    if (status == EMBD_OK)
        status = config_count(SETTING_SHARDS, config_pick(from, entry, is_self, SETTING_SHARDS), 1,
                              LIMIT_SHARDS - first_shard, 1, &shards, e);
    if (status == EMBD_OK)
        status =
            config_text(SETTING_ADMIN_DIR, config_pick(from, entry, is_self, SETTING_ADMIN_DIR),
                        admin_dir, out->admin_dir, sizeof out->admin_dir, e);
    if (status == EMBD_OK)
        status = read_local(from, entry, is_self, out, e);
    if (status == EMBD_OK)
        status = config_text(SETTING_SERVER_NAME,
                             entry != NULL ? &entry->of[SETTING_SERVER_NAME] : &none, "", out->name,
                             sizeof out->name, e);
    if (status == EMBD_OK)
        status =
            config_text(SETTING_ADVERTISE, config_pick(from, entry, is_self, SETTING_ADVERTISE), "",
                        out->advertise, sizeof out->advertise, e);
    if (status == EMBD_OK)
        status = config_text(SETTING_DATA_DIR, config_pick(from, entry, is_self, SETTING_DATA_DIR),
                             "", out->data_dir, sizeof out->data_dir, e);
    if (status == EMBD_OK)
        status = check_reach(from, entry, is_self, out, e);
    if (status == EMBD_OK)
        status = read_admin(from, entry, is_self, out, e);
    if (status != EMBD_OK)
        return status;
    out->shards = (uint32_t)shards;
    out->first_shard = first_shard;
    out->is_private = from->is_embedded && listen->text == NULL;
    out->is_listed = listen->text != NULL && out->address.port != 0 &&
                     (!listen_address_is_any(&out->address) || out->advertise[0] != '\0');
    if (out->address.port != 0 && out->address.port + shards - 1 > 65535)
        return config_complain(e, EMBD_INVALID, SETTING_LISTEN, listen,
                               "%u shards from port %u on pass port 65535", out->shards,
                               out->address.port);
    return EMBD_OK;
}

/* ---- all of them ---- */

/* Servers that go by different names are on different machines, where each may have every address.
 */
static bool overlap(const struct config_server *a, const struct config_server *b)
{
    return strcmp(a->advertise, b->advertise) == 0 &&
           strcmp(a->address.host, b->address.host) == 0 &&
           a->address.port < b->address.port + b->shards &&
           b->address.port < a->address.port + a->shards;
}

/* Checks that concern a list of several servers only. */
static int check_servers(const struct sources *from, const struct config *config,
                         struct embd__error *e)
{
    static const enum setting_id shared[] = {SETTING_LISTEN, SETTING_SHARDS};
    if (config->n_servers == 1)
        return EMBD_OK;
    for (size_t i = config->has_etcd ? 1 : 0; i < sizeof shared / sizeof *shared; i++)
        if (from->flags.of[shared[i]].text != NULL)
            return config_complain(e, EMBD_INVALID, shared[i], &from->flags.of[shared[i]],
                                   "the other servers of %s read it from there; set it in the file",
                                   from->file.path);
    for (uint32_t i = 0; i < config->n_servers && !config->has_etcd; i++) {
        const struct setting *listen =
            config_pick(from, &from->file.servers[i], false, SETTING_LISTEN);
        if (config->servers[i].address.port == 0)
            return config_complain(
                e, EMBD_INVALID, SETTING_LISTEN, listen,
                "port 0 is not allowed: the other servers need to know the port");
        for (uint32_t j = 0; j < i; j++)
            if (overlap(&config->servers[i], &config->servers[j]))
                return config_complain(
                    e, EMBD_INVALID, SETTING_LISTEN, listen,
                    "ports %u to %u are also those of server %u", config->servers[i].address.port,
                    config->servers[i].address.port + config->servers[i].shards - 1, j);
    }
    return EMBD_OK;
}

/* Which entry of the file this process is. */
static int find_self(const struct sources *from, uint32_t *out, struct embd__error *e)
{
    const struct setting *at = config_pick(from, NULL, true, SETTING_SERVER);
    uint32_t n = from->file.n_servers;
    char *end;
    *out = 0;
    if (at->text == NULL)
        return n <= 1 || from->flags.of[SETTING_CHECK].text != NULL
                   ? EMBD_OK
                   : config_complain(
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
        return config_complain(e, EMBD_INVALID, SETTING_SERVER, at,
                               "'%.60s' is not one of the %u servers listed%s%s", at->text, n,
                               from->file.path != NULL ? " in " : "",
                               from->file.path != NULL ? from->file.path : "");
    *out = (uint32_t)number;
    return EMBD_OK;
}

/* Credentials for etcd: its authorities, our certificate, our login. */
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
        if (config_text(files[i].id, &top->of[files[i].id], "", files[i].path, ETCD_PATH_BYTES,
                        e) != EMBD_OK)
            return e->status;
    if ((out->cert[0] != '\0') != (out->key[0] != '\0'))
        return config_complain(
            e, EMBD_INVALID, SETTING_ETCD_CERT,
            &top->of[out->cert[0] != '\0' ? SETTING_ETCD_CERT : SETTING_ETCD_KEY],
            "etcd_cert and etcd_key go together");
    for (size_t i = 1; i < sizeof files / sizeof *files && out->ca[0] == '\0'; i++)
        if (files[i].path[0] != '\0')
            return config_complain(e, EMBD_INVALID, files[i].id, &top->of[files[i].id],
                                   "it needs TLS to etcd; set etcd_ca as well");
    return EMBD_OK;
}

static int read_failover(const struct sources *from, struct config *out, struct embd__error *e)
{
    const struct setting *at = &from->file.top.of[SETTING_FAILOVER];
    if (config_yes(SETTING_FAILOVER, at, &out->has_failover, e) != EMBD_OK || !out->has_failover)
        return e->status;
    const struct settings *flags = &from->flags;
    const char *why = NULL;
    if (from->file.top.of[SETTING_ETCD].text == NULL)
        why = "needs etcd, which says who serves";
    else if (flags->of[SETTING_FOLLOW].text != NULL || flags->of[SETTING_PROMOTE].text != NULL ||
             from->file.top.of[SETTING_FOLLOW].text != NULL)
        why = "says who follows and who is promoted: leave out follow and promote";
    return why == NULL ? EMBD_OK
                       : config_complain(e, EMBD_INVALID, SETTING_FAILOVER, at, "%s", why);
}

int config_read_followed(const struct sources *from, const struct setting *at, struct config *out,
                         struct embd__error *e)
{
    struct embd__error why = {0};
    out->follows_etcd = strncmp(out->follow, "etcd://", strlen("etcd://")) == 0;
    if (!out->follows_etcd)
        return EMBD_OK;
    if (etcd_place_read(out->follow, &out->etcd, &why) != EMBD_OK)
        return config_complain(e, why.status, SETTING_FOLLOW, at, "%s", why.text);
    return read_etcd_files(&from->file.top, &out->etcd, e);
}

/* A cluster in etcd: its servers are known by their names. */
static int read_etcd(const struct sources *from, struct config *out, struct embd__error *e)
{
    const struct setting *at = &from->file.top.of[SETTING_ETCD];
    struct embd__error why = {0};
    uint64_t lease_s;
    if (read_failover(from, out, e) != EMBD_OK ||
        config_count(SETTING_ETCD_LEASE, &from->file.top.of[SETTING_ETCD_LEASE], 1, 3600,
                     out->has_failover ? MEMBER_FAILOVER_LEASE_S : MEMBER_LEASE_S, &lease_s,
                     e) != EMBD_OK)
        return e->status;
    out->has_etcd = at->text != NULL;
    out->etcd_lease_s = (uint32_t)lease_s;
    if (!out->has_etcd)
        return EMBD_OK;
    if (etcd_place_read(at->text, &out->etcd, &why) != EMBD_OK)
        return config_complain(e, why.status, SETTING_ETCD, at, "%s", why.text);
    if (read_etcd_files(&from->file.top, &out->etcd, e) != EMBD_OK)
        return e->status;
    for (uint32_t i = 0; i < from->file.n_servers; i++) {
        const char *name = from->file.servers[i].of[SETTING_SERVER_NAME].text;
        bool is_plain =
            name != NULL && name[0] != '\0' &&
            strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") ==
                strlen(name);
        if (!is_plain)
            return config_complain(e, EMBD_INVALID, SETTING_ETCD, at,
                                   "server %u needs a name of letters, digits and _-.", i);
        for (uint32_t j = 0; j < i; j++)
            if (strcmp(name, from->file.servers[j].of[SETTING_SERVER_NAME].text) == 0)
                return config_complain(e, EMBD_INVALID, SETTING_ETCD, at,
                                       "duplicate server name '%.60s'", name);
    }
    if (from->file.n_servers == 0)
        return config_complain(e, EMBD_INVALID, SETTING_ETCD, at, "a list of servers is required");
    return EMBD_OK;
}

int config_read_servers(const struct sources *from, struct config *out, struct embd__error *e)
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
