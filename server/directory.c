/* directory.c - see directory.h. */
#include "server/directory.h"
#include "server/growing.h"
#include "server/access/access.h"
#include "server/follow/note.h"
#include "server/identity/identity_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

/* Any thread, between the start of the shards and their end. */
static void on_changed(void *arg)
{
    struct process *p = arg;
    atomic_fetch_add_explicit(&p->identity_news, 1, memory_order_release);
    for (uint32_t i = 0; i < p->n_started; i++)
        loop_wake(p->loops[i]);
}

/* Clients compare it. 63 bits suit any client. */
static uint64_t number_of_start(void)
{
    uint64_t number;
    if (getrandom(&number, sizeof number, 0) != sizeof number)
        number = (uint64_t)time(NULL) << 20 ^ (uint64_t)getpid();
    return number >> 1 | 1;
}

/* All shards of a process that follows are its own. */
static bool may_fit(const struct process *p)
{
    const struct config *config = &p->config;
    return config->data_dir[0] != '\0' && config->n_servers == 1 && !config->has_etcd &&
           !p->is_embedded && !config->joins;
}

static void fit(struct config *config, const struct note *note, const struct identity_file *file)
{
    uint32_t *own = &config->servers[0].shards;
    bool is_own = file->is_there && file->first_shard == 0 && file->n_shards > 0;
    bool is_kept = note->state == NOTE_FOLLOWS || note->state == NOTE_PROMOTED;
    if (!is_own || !is_kept || (note->state == NOTE_FOLLOWS && file->n_shards <= *own))
        return;
    *own = file->n_shards;
    config->n_shards = *own;
}

int directory_fit(struct process *p, struct embd__error *e)
{
    struct note note;
    struct identity_file file = {.is_there = false};
    if (!may_fit(p))
        return EMBD_OK;
    int dir = open(p->config.data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 && (errno == ENOENT || errno == ENOTDIR || errno == EACCES))
        return EMBD_OK; /* directory_open makes it, or says why not */
    if (dir < 0)
        return embd__error_set(e, EMBD_IO, "data directory '%s' cannot be opened: %s",
                               p->config.data_dir, strerror(errno));
    if (note_read(dir, 0, &note, e) == EMBD_OK && note.state != NOTE_NONE &&
        identity_file_read(dir, p->config.data_dir, &file, e) == EMBD_OK)
        fit(&p->config, &note, &file);
    identity_file_fini(&file);
    close(dir);
    return e->status;
}

int directory_open(struct process *p, struct embd__error *e)
{
    const struct config *config = &p->config;
    p->start = number_of_start();
    p->identity_news = 1;
    if (!config->has_placement)
        embd__placement_even(&p->config.placement, 1, config->n_shards);
    if (config->data_dir[0] == '\0')
        return EMBD_OK;
    p->identity_servers = calloc(config->n_servers + LIMIT_SHARDS, sizeof *p->identity_servers);
    if (p->identity_servers == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for the list of servers");
    for (uint32_t i = 0; i < config->n_servers; i++)
        p->identity_servers[i] = (struct identity_server){
            config->servers[i].name, config->servers[i].first_shard, config->servers[i].shards};
    const struct identity_config identity = {
        .data_dir = config->data_dir,
        .servers = p->identity_servers,
        .n_servers = config->n_servers,
        .self = config->self,
        .n_shards = config->n_shards,
        .joins = config->joins,
        .accepts = config->accepts_empty,
        .is_by_etcd = config->has_failover,
        .placement = config->has_placement ? &config->placement : NULL,
        .changed = on_changed,
        .arg = p,
    };
    if (identity_open(&identity, &p->identity, e) != EMBD_OK)
        return e->status;
    return growing_begin(p, e);
}

static int take_ca(struct process *p, const struct peer_ca *ca, struct embd__error *e)
{
    if (p->coordinator != NULL)
        coordinator_set_ca(p->coordinator, ca->pem, ca->bytes, ca->is_system, e);
    if (e->status == EMBD_OK && p->identity != NULL)
        identity_set_ca(p->identity, ca->pem, ca->bytes, ca->is_system, e);
    return e->status;
}

int directory_take_credentials(struct process *p, struct embd__error *e)
{
    char token[ACCESS_PEER_BYTES] = "";
    const struct credentials *own = &p->credentials;
    if (own->access != NULL)
        access_peer_token(own->access, token);
    if (p->identity != NULL)
        identity_set_token(p->identity, token);
    return own->tls != NULL && own->peer_ca != NULL ? take_ca(p, own->peer_ca, e) : EMBD_OK;
}

int directory_ask(struct process *p, struct embd__error *e)
{
    bool asks = p->config.has_failover && p->n_placed > p->n; /* it is open already */
    if (p->identity == NULL || (identity_state(p->identity) != IDENTITY_ASKING && !asks))
        return EMBD_OK;
    if (!credential_files_have_tls(&p->config.credential_files) || p->credentials.peer_ca != NULL)
        return growing_ask(p, e);
    log_event(LOG_WARN, "servers_not_asked",
              "why=\"peer_ca is not set: a data directory of another server or cluster, an older "
              "or an empty one is not found out\"");
    identity_believe(p->identity);
    return EMBD_OK;
}
