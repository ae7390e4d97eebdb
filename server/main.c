/* main.c - the embd server as a program: reads its configuration, opens the process (opening.c),
 * prints the line "listening" for each shard, and waits for a reason to end (running.c).
 */
#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>

#include "server/making_room.h"
#include "server/process.h"

/* ---- descriptors ---- */

enum {
    OWN_DESCRIPTORS = 64 + 2 * HTTP_CONNECTIONS,          /* of the process, and of its HTTP port */
    SHARD_DESCRIPTORS = 32 + 2 * LIMIT_ADMIN_CONNECTIONS, /* listeners, files, admins */
    LEAST_CONNECTIONS = 8,
};

/* Raises the limit of open files as far as allowed, and lowers max_connections where it is still
 * too low, so that a journal or snapshot always finds a descriptor. */
static void fit_descriptors(uint32_t n_shards, struct net_limits *limits)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    uint64_t own = OWN_DESCRIPTORS + (uint64_t)n_shards * SHARD_DESCRIPTORS;
    uint64_t room = limit.rlim_max > own ? (limit.rlim_max - own) / n_shards : 0;
    uint32_t asked = limits->connections;
    if (limit.rlim_max == RLIM_INFINITY || room >= asked)
        return;
    limits->connections = room > LEAST_CONNECTIONS ? (uint32_t)room : LEAST_CONNECTIONS;
    log_event(
        LOG_WARN, "few_descriptors",
        "limit=%llu needed=%llu max_connections=%u asked=%u why=\"the limit of open files "
        "(ulimit -Hn, LimitNOFILE of systemd) is too low for max_connections: raise it, or ask for "
        "fewer\"",
        (unsigned long long)limit.rlim_max, (unsigned long long)(own + (uint64_t)n_shards * asked),
        limits->connections, asked);
}

/* ---- the program ---- */

static void announce(const struct process *p)
{
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t shard = process_self(p)->first_shard + i;
        printf("embd: shard %u listening on %s\n", shard, p->places.addresses[shard]);
        log_event(LOG_INFO, "listening", "shard=%u address=%s admin=%s store=%s", shard,
                  p->places.addresses[shard], p->places.admin_addresses[shard], p->store->name);
    }
    if (process_has_http(p)) {
        char address[80];
        listen_address_write(&p->config.http, http_port(p->http), address, sizeof address);
        printf("embd: http on %s\n", address);
        log_event(LOG_INFO, "http", "address=%s", address);
    }
    fflush(stdout);
}

static enum exit_status check_config(struct process *p, struct embd__error *e)
{
    const struct config *config = &p->config;
    int status = process_open_credentials(p, e);
    credentials_drop(&p->credentials);
    if (status == EMBD_OK && (config->has_etcd || config->follows_etcd))
        status = etcd_place_check(&config->etcd, e);
    if (status != EMBD_OK)
        return process_fail(p, process_exit_status(status, EXIT_USAGE), e);
    printf("%s: the configuration can be used: %u server%s, %u shard%s\n",
           program_invocation_short_name, config->n_servers, config->n_servers == 1 ? "" : "s",
           config->n_shards, config->n_shards == 1 ? "" : "s");
    config_fini(&p->config);
    return EXIT_OK;
}

int main(int argc, char **argv)
{
    static struct process process;
    struct process *p = &process;
    struct embd__error error = {0};
    log_take_assertions();
    int read = config_read(argc, argv, &p->config, &error);
    if (read != EMBD_OK)
        return process_fail(p, process_exit_status(read, EXIT_USAGE), &error);
    if (p->config.is_check)
        return check_config(p, &error);
    log_set_level(p->config.log_level);
    fit_descriptors(process_self(p)->shards, &p->config.limits);
    if (running_open(p, &error) != EMBD_OK)
        return process_fail(p, EXIT_FAILED, &error);
    enum exit_status status = process_open(p, &error);
    if (status == EXIT_OK) {
        announce(p);
        p->look_for_room = making_room_look;
        running_wait(p);
        log_event(LOG_INFO, "ended", "shards=%u", p->n);
        status = p->exit_status;
    } else {
        process_fail(p, status, &error);
        running_drain(p);
    }
    process_close(p);
    return status;
}
