/* opening.c - a process of shards opens, step by step, and closes.
 *
 * The happy path: the store, credentials, listeners of all shards (so that all ports are known),
 * the data directory, then shards and their threads. What was opened before a step that fails is
 * closed by process_close. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/assert.h"
#include "server/directory.h"
#include "server/files/thread.h"
#include "server/in_etcd.h"
#include "server/member/map.h"
#include "server/growing.h"
#include "server/net/trunks.h"
#include "server/process.h"
#include "server/rank.h"
#include "server/service/deposing.h"
#include "server/wanting_room.h"

/* ---- opening ---- */

static int prepare_socket_dirs(const struct config_server *server, struct embd__error *e)
{
    if (server->is_private || socket_dir_prepare(server->admin_dir, NO_GROUP, e) != EMBD_OK ||
        server->local_dir[0] == '\0')
        return e->status;
    return socket_dir_prepare(server->local_dir, server->local_group, e);
}

/* A shard that looks at memory instead of sleeping takes a processor: as many are for others. A
 * process that is pinned leaves those of the machine to them that it may not use. */
static uint32_t spin_us(const struct process *p)
{
    uint32_t n_allowed = p->n_allowed;
    bool is_pinned = n_allowed < (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    return n_allowed >= (is_pinned ? 1 : 2) * p->n ? p->config.limits.spin_us : 0;
}

/* Of a trunk, on its thread. */
static int adopt_stream(void *arg, uint32_t shard, int fd, const struct adopted_peer *peer,
                        struct embd__error *e)
{
    struct process *p = arg;
    uint32_t first = process_self(p)->first_shard;
    if (shard < first || shard - first >= atomic_load(&p->n_own))
        return embd__error_set(e, EMBD_INVALID, "shard %u is not of this process", shard);
    return loop_adopt_stream(p->loops[shard - first], fd, peer, e);
}

static int open_trunks(struct process *p, struct embd__error *e)
{
    const struct trunks_config config = {
        .most = p->config.limits.connections,
        .stall_ms = p->config.limits.stall_ms,
        .quota = &p->quota,
        .adopt = adopt_stream,
        .arg = p,
    };
    return trunks_open(&config, &p->trunks, e);
}

int process_open_loop(struct process *p, uint32_t i, struct embd__error *e)
{
    const struct config_server *server = process_self(p);
    const struct config *config = &p->config;
    struct loop_config loop = {
        .doors = {.is_private = server->is_private,
                  .address = server->address,
                  .admin_dir = server->admin_dir,
                  .local_dir = server->local_dir[0] != '\0' ? server->local_dir : NULL,
                  .local_group = server->local_group},
        .credentials = &p->credentials,
        .limits = config->limits,
        .quota = &p->quota,
        .trunks = p->trunks,
        .cpu = config->n_cpus > 0 ? config->cpus[i % config->n_cpus] : -1,
        .on_loaded = running_on_loaded,
        .on_end = running_on_end,
        .arg = p,
    };
    struct listen_address admin = server->admin;
    loop.limits.spin_us = spin_us(p);
    if (server->address.port != 0)
        listen_address_move(&loop.doors.address, i);
    if (admin.port != 0)
        listen_address_move(&admin, i);
    if (server->has_admin)
        loop.doors.admin_address = &admin;
    return loop_open(&loop, &p->loops[i], e);
}

static int open_listeners(struct process *p, struct embd__error *e)
{
    if (prepare_socket_dirs(process_self(p), e) != EMBD_OK)
        return e->status;
    for (uint32_t i = 0; i < p->n; i++)
        if (process_open_loop(p, i, e) != EMBD_OK)
            return e->status;
    return EMBD_OK;
}

/* If no port is configured, another process may have the default one: then there is no HTTP. */
static int open_http(struct process *p, struct embd__error *e)
{
    const struct config *config = &p->config;
    if (config->http_is == CONFIG_HTTP_OFF ||
        http_open(&p->uv, &config->http, &p->quota, &p->http, e) == EMBD_OK)
        return EMBD_OK;
    if (config->http_is == CONFIG_HTTP_ASKED)
        return e->status;
    log_event(LOG_INFO, "no_http", "why=\"%s\"", e->text);
    http_stop(p->http);
    *e = (struct embd__error){0};
    return EMBD_OK;
}

bool process_has_http(const struct process *p)
{
    return p->http != NULL && http_port(p->http) != 0;
}

static int start_http(struct process *p, struct embd__error *e)
{
    if (!process_has_http(p))
        return EMBD_OK;
    uv_mutex_lock(&p->growing); /* shards are running, and may find more in their journals */
    p->http_process = (struct http_process){
        .cluster_name = p->config.cluster_name,
        .n_shards = p->n,
        .first_shard = process_self(p)->first_shard,
        .n_cluster_shards = p->n_placed > 0 ? p->n_placed : p->config.n_shards,
        .quota = &p->quota,
        .certificate_expires = credentials_expire(&p->credentials),
        .max_connections = p->config.limits.connections,
        .data_dir = p->config.data_dir[0] != '\0' ? p->config.data_dir : NULL,
        .identity = p->identity,
        .etcd_silent = p->config.has_etcd ? &p->etcd_silent : NULL,
    };
    uv_mutex_unlock(&p->growing);
    return http_start(p->http, &p->http_process, p->loops,
                      p->places.addresses + process_self(p)->first_shard, e);
}

/* ---- the snapshot to begin with ---- */

/* The other servers of the file that have a data directory. None with etcd: a server may have
 * moved, and its directory here may be old. Returns their number. */
static uint32_t list_peers(struct process *p)
{
    const struct config *config = &p->config;
    const struct config_server *self = process_self(p);
    uint32_t n = 0;
    p->peers = calloc(config->n_servers, sizeof *p->peers);
    for (uint32_t i = 0; p->peers != NULL && !config->has_etcd && i < config->n_servers; i++) {
        const struct config_server *other = &config->servers[i];
        bool is_here = strcmp(other->address.host, self->address.host) == 0 &&
                       strcmp(other->advertise, self->advertise) == 0;
        if (other != self && other->data_dir[0] != '\0')
            p->peers[n++] = (struct peer_share){other->name, other->data_dir, is_here};
    }
    return n;
}

static int list_snapshots(struct process *p, struct embd__error *e)
{
    const struct config *config = &p->config;
    uint32_t n_peers = list_peers(p);
    const struct snapshot_select_config chosen = {
        .data_dir = config->data_dir,
        .name = config->restore[0] != '\0' ? config->restore : NULL,
        .is_off = config->is_restore_off,
        .first_shard = process_self(p)->first_shard,
        .shards = p->n,
        .n_shards = config->n_shards,
        .placement = process_placement(p),
        .peers = p->peers,
        .n_peers = n_peers,
    };
    if (config->data_dir[0] == '\0')
        return EMBD_OK;
    p->written = written_new(process_self(p)->first_shard, p->room);
    if (p->written != NULL)
        written_set_shards(p->written, p->n);
    if (p->written == NULL)
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for the list of snapshot files");
    else
        snapshot_select_open(&chosen, &p->chosen, e);
    return e->status;
}

/* A thread's. */
static void choose(void *arg)
{
    struct process *p = arg;
    snapshot_select_find(p->chosen);
    for (uint32_t i = 0; i < p->n_started; i++)
        loop_wake(p->loops[i]);
}

static int start_choosing(struct process *p, struct embd__error *e)
{
    if (snapshot_select_state(p->chosen) != SNAPSHOT_SELECT_LOOKING)
        return EMBD_OK;
    p->has_chooser = uv_thread_create(&p->chooser, choose, p) == 0;
    if (p->has_chooser)
        return EMBD_OK;
    return embd__error_set(e, EMBD_NO_MEMORY, "cannot start the thread that reads snapshots");
}

static void end_choosing(struct process *p)
{
    if (!p->has_chooser)
        return;
    snapshot_select_stop(p->chosen);
    uv_thread_join(&p->chooser);
}

static const char *path_or_null(const char *path)
{
    return path[0] != '\0' ? path : NULL;
}

static int open_coordinator(struct process *p, struct embd__error *e)
{
    const struct credential_files *files = &p->config.credential_files;
    bool has_cert = files->tls_cert[0] != '\0';
    const struct coordinator_config config = {
        .n_shards = p->config.n_shards,
        .first_own = process_self(p)->first_shard,
        .n_own = p->n,
        .cert = has_cert ? files->tls_cert : NULL,
        .key = has_cert ? files->tls_key : NULL,
        .peer_token = path_or_null(p->config.peer_token),
        .dialer = p->dialer,
    };
    if (coordinator_open(&config, &p->coordinator, e) != EMBD_OK)
        return e->status;
    return directory_take_credentials(p, e);
}

/* ---- shards ---- */

static int find_followed(void *process, char *admin_out, size_t bytes, struct embd__error *e)
{
    struct process *p = process;
    return member_find_first(&p->followed, &p->config.etcd, admin_out, bytes, e);
}

static void set_follow(struct process *p)
{
    const struct credential_files *files = &p->config.credential_files;
    const struct peer_ca *ca = p->credentials.peer_ca;
    bool has_cert = files->tls_cert[0] != '\0';
    p->follow = (struct follower_config){
        .address = p->config.follow,
        .failover = p->failover,
        .find = p->config.follows_etcd ? find_followed : NULL,
        .find_arg = p,
        .token_file = path_or_null(p->config.follow_token),
        .ca = ca != NULL ? ca->pem : NULL,
        .ca_bytes = ca != NULL ? ca->bytes : 0,
        .n_loaded = &p->n_loaded,
        .believes_system = ca != NULL && ca->is_system,
        .cert = has_cert ? files->tls_cert : NULL,
        .key = has_cert ? files->tls_key : NULL,
    };
}

/* Records say which keys a shard has. */
static int check_follow(const struct process *p, struct embd__error *e)
{
    const struct placement *own = &p->config.placement;
    if (p->config.follows_etcd && etcd_place_check(&p->config.etcd, e) != EMBD_OK)
        return e->status;
    if (p->config.follow[0] == '\0' || !p->config.has_placement || own->is_even)
        return EMBD_OK;
    return embd__error_set(e, EMBD_INVALID,
                           "follow: the configuration has version %llu of the placement, and a "
                           "follower takes that of its server: leave out placement and weights",
                           (unsigned long long)own->version);
}

/* A promotion that was interrupted between two shards is finished. */
static int open_promotion(struct process *p, struct embd__error *e)
{
    if ((p->config.follow[0] == '\0' && !p->config.promotes) || p->config.is_narrow)
        return EMBD_OK;
    p->maps =
        follow_maps_new(process_self(p)->first_shard, p->n, p->failover != NULL, running_wake, p);
    if (p->maps == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory to follow a server");
    if (p->config.follow[0] == '\0')
        return EMBD_OK;
    if (!p->config.promotes &&
        deposing_is_half(p->config.data_dir, process_self(p)->first_shard, p->n))
        p->config.promotes = true;
    p->promotion = promotion_new(p->n, running_wake, p);
    return p->promotion != NULL ? EMBD_OK
                                : embd__error_set(e, EMBD_NO_MEMORY, "no memory for a promotion");
}

bool process_can_resize(const struct process *p)
{
    return p->identity != NULL && !p->is_embedded;
}

int process_start_shard(struct process *p, uint32_t i, struct embd__error *e)
{
    struct shard_config shard = {
        .index = process_self(p)->first_shard + i,
        .n_shards = p->config.n_shards,
        .cluster_name = p->config.cluster_name,
        .start = p->start,
        .map_version = SHARD_MAP_OF_FILE, /* those of etcd are greater */
        .placement = process_placement(p),
        .addresses = (const char *const *)p->places.addresses,
        .admin_addresses = (const char *const *)p->places.admin_addresses,
        .admin_hosts = (const char *const *)p->places.admin_hosts,
        .store = p->store,
        .data_dir = p->config.data_dir[0] != '\0' ? p->config.data_dir : NULL,
        .follow = p->config.follow[0] != '\0' ? &p->follow : NULL,
        .serves = p->config.serves,
        .is_narrow = p->config.is_narrow,
        .serve_dtype = p->config.serve_dtype,
        .digest_interval_s = p->config.digest_interval_s,
        .promotes = p->config.promotes,
        .promotion = p->promotion,
        .maps = p->maps,
        .failover = p->failover,
        .own_map = p->failover != NULL ? &p->own_map : NULL,
        .chosen = p->chosen,
        .written = p->written,
        .coordinator = p->coordinator,
        .identity = p->identity,
        .identity_news = &p->identity_news,
        .dropped_tables = p->config.dropped,
        .dropped_found = p->dropped_found,
        .n_dropped_tables = p->config.n_dropped,
        .accepts_journal_damage = p->config.accepts_journal_damage,
        .journal_limit = p->config.journal_limit,
        .is_journal_strict = p->config.is_journal_strict,
        .replicas = p->config.replicas,
        .is_first = i == 0,
        .is_alone = p->n == p->config.n_shards,
        .own_first = process_self(p)->first_shard,
        .own_n = p->n,
        .resize = process_can_resize(p) ? in_etcd_take : NULL,
        .resize_own = process_can_resize(p) && p->failover == NULL ? growing_take_own : NULL,
        .make_room = wanting_room_may(p) ? wanting_room_ask : NULL,
        .resize_arg = p,
        .row_memory = p->row_memory,
        .drain = running_on_drain,
        .drain_arg = p,
    };
    if (loop_start(p->loops[i], &shard, e) == EMBD_OK)
        atomic_fetch_add(&p->n_started, 1);
    return e->status;
}

static int start_shards(struct process *p, struct embd__error *e)
{
    if (check_follow(p, e) != EMBD_OK)
        return e->status;
    set_follow(p);
    if (p->config.promotes &&
        deposing_check(p->config.data_dir, process_self(p)->first_shard, p->n, e) != EMBD_OK)
        return e->status;
    if (open_promotion(p, e) != EMBD_OK)
        return e->status;
    for (uint32_t i = 0; i < p->n; i++)
        if (process_start_shard(p, i, e) != EMBD_OK)
            return e->status;
    trunks_allow(p->trunks, p->n);
    return EMBD_OK;
}

/* ---- what is worth a warning ---- */

/* Allowed, but probably a mistake. */
static void warn_of_open_ports(const struct process *p)
{
    const struct credential_files *files = &p->config.credential_files;
    if (listen_address_is_loopback(&process_self(p)->address))
        return;
    if (!credential_files_have_tls(files))
        log_event(LOG_WARN, "tokens_in_the_clear",
                  "why=\"TLS is off: tokens and rows are sent unencrypted; set tls_cert\"");
    else if (!credential_files_have_tokens(files) && files->tls_client_ca[0] == '\0')
        log_event(
            LOG_WARN, "open_to_strangers",
            "why=\"neither tokens nor tls_client_ca are set: anyone who can reach the port can "
            "read and change tables\"");
}

static void warn_of_memory(const struct process *p)
{
    if (p->config.data_dir[0] == '\0' && !p->config.is_narrow)
        log_event(p->is_embedded ? LOG_INFO : LOG_WARN, "memory_only", /* which "inproc:" says */
                  "why=\"data_dir is not set: tables are kept in memory only and lost when the "
                  "server ends\"");
}

/* ---- opening, step by step ---- */

static int open_store(struct process *p, struct embd__error *e)
{
    store_gpus = p->config.gpus;
    p->store = store_find(p->config.store, e);
    if (p->store == NULL)
        return e->status;
    if (e->text[0] != '\0')
        log_event(LOG_INFO, "store", "name=%s why=\"%s\"", p->store->name, e->text);
    *e = (struct embd__error){0};
    row_limit_set(p);
    p->room = wanting_room_may(p) ? LIMIT_SHARDS : p->n;
    p->loops = calloc(p->room, sizeof *p->loops);
    return p->loops != NULL ? EMBD_OK : embd__error_set(e, EMBD_NO_MEMORY, "no memory for shards");
}

int process_open_credentials(struct process *p, struct embd__error *e)
{
    p->credentials_stamp = credential_files_stamp(&p->config.credential_files);
    return credentials_open(&p->config.credential_files, &p->credentials, e);
}

static int warn(struct process *p, struct embd__error *e)
{
    (void)e;
    warn_of_open_ports(p);
    warn_of_memory(p);
    return EMBD_OK;
}

static int open_places(struct process *p, struct embd__error *e)
{
    return places_init(&p->places, &p->config, p->loops, e);
}

/* The program's first thread, and all that it starts from now on. */
static int keep_off_cpus(struct process *p, struct embd__error *e)
{
    uint32_t n = p->config.n_cpus < p->n ? p->config.n_cpus : p->n;
    if (!p->is_embedded)
        thread_keep_off(p->config.cpus, n);
    return e->status;
}

struct opening_step {
    int (*take)(struct process *p, struct embd__error *e); /* EMBD_OK or e->status */
    enum exit_status if_not;
};
static const struct opening_step opening_steps[] = {
    {keep_off_cpus, EXIT_OK},
    {open_store, EXIT_USAGE},
    {process_open_credentials, EXIT_USAGE},
    {warn, EXIT_OK},
    {open_trunks, EXIT_FAILED},
    {open_listeners, EXIT_CANNOT_BIND},
    {open_http, EXIT_CANNOT_BIND},
    {open_places, EXIT_USAGE},
    {directory_open, EXIT_FAILED},
    {rank_find, EXIT_FAILED},
    {list_snapshots, EXIT_FAILED},
    {open_coordinator, EXIT_FAILED},
    {start_shards, EXIT_FAILED},
    {start_choosing, EXIT_FAILED},
    {start_http, EXIT_FAILED},
    {directory_ask, EXIT_FAILED},
    {in_etcd_open, EXIT_FAILED},
};

enum exit_status process_exit_status(int status, enum exit_status if_not)
{
    if (status == EMBD_OK)
        return EXIT_OK;
    return status == EMBD_NO_MEMORY ? EXIT_FAILED : if_not;
}

static enum exit_status take_step(const struct opening_step *step, struct process *p,
                                  struct embd__error *e)
{
    int status = step->take(p, e);
    bool is_config = status == EMBD_UNSUPPORTED || status == EMBD_INVALID;
    bool is_usage = step->take == in_etcd_open && is_config;
    return process_exit_status(status, is_usage ? EXIT_USAGE : step->if_not);
}

enum exit_status process_open(struct process *p, struct embd__error *e)
{
    enum exit_status ending = EXIT_OK;
    if (directory_fit(p, e) != EMBD_OK)
        return process_exit_status(e->status, EXIT_FAILED);
    p->n = process_self(p)->shards;
    p->n_allowed = uv_available_parallelism();
    atomic_init(&p->n_own, p->n);
    uv_mutex_init(&p->growing);
    pthread_mutex_init(&p->followed.lock, NULL);
    atomic_init(&p->etcd_silent, p->config.has_etcd); /* until it has answered */
    p->quota.limit = p->config.frame_memory;
    for (size_t i = 0; i < sizeof opening_steps / sizeof *opening_steps && ending == EXIT_OK; i++)
        ending = take_step(&opening_steps[i], p, e);
    return ending;
}

void process_close(struct process *p)
{
    in_etcd_close(p);
    if (p->identity != NULL)
        identity_stop(p->identity);
    end_choosing(p);
    coordinator_close(p->coordinator);
    trunks_refuse(p->trunks);
    for (uint32_t i = 0; p->loops != NULL && i < p->n; i++)
        loop_close(p->loops[i]);
    trunks_close(p->trunks);
    promotion_free(p->promotion);
    follow_maps_free(p->maps);
    failover_free(p->failover);
    identity_close(p->identity);
    free(p->identity_servers);
    snapshot_select_free(p->chosen);
    written_free(p->written);
    places_fini(&p->places);
    map_fini(&p->etcd_map);
    uv_mutex_destroy(&p->growing);
    pthread_mutex_destroy(&p->followed.lock);
    free(p->loops);
    free(p->member_servers);
    free(p->peers);
    credentials_drop(&p->credentials);
    config_fini(&p->config);
    http_stop(p->http);
    running_close(p);
    http_free(p->http);
    EMBD_ASSERT(atomic_load(&p->quota.used) == 0 && atomic_load(&p->quota.connections) == 0);
    uv_loop_close(&p->uv);
}
