/* members.c - shards that become members of a cluster while its servers run, or leave it, and those
 * that a start finds: the directory says where they are, as the configuration may not have them.
 *
 * The happy path: a coordinator names the new shards on all servers, each of which notes them in
 * its directory (identity_members_begin); then the later map, which all have or none, has them
 * (identity_place). A new server begins with no map: it is no member, and has no key, until then.
 *
 * The last shards leave by a later map that does not have them. Their server notes that it has
 * left, and does not start on its directory again.
 *
 * The configuration may list servers that are no members: they are left out. So the file can be
 * changed before they are added or leave, or afterwards. */
#include <stdlib.h>
#include <string.h>

#include "server/identity/identity_internal.h"
#include "server/log/log.h"

uint32_t identity_shards(struct identity *identity)
{
    pthread_mutex_lock(&identity->mutex);
    uint32_t n = identity->config.n_shards;
    pthread_mutex_unlock(&identity->mutex);
    return n;
}

/* NULL: the directory does not have it. */
static const struct shard_entry *find(const struct identity *identity, uint32_t shard)
{
    const struct identity_file *file = &identity->file;
    bool is_there = shard >= file->first_member && shard - file->first_member < file->n_members;
    return is_there ? &file->members[shard - file->first_member] : NULL;
}

bool identity_member(struct identity *identity, uint32_t shard, struct shard_entry *out)
{
    pthread_mutex_lock(&identity->mutex);
    const struct shard_entry *entry = find(identity, shard);
    if (entry != NULL)
        *out = *entry;
    pthread_mutex_unlock(&identity->mutex);
    return entry != NULL;
}

/* ---- naming ---- */

/* Those before `first` that are known stay. */
static struct shard_entry *join_lists(const struct identity_file *file, uint32_t first,
                                      const struct shard_entry *list, uint32_t n,
                                      uint32_t *first_out, uint32_t *n_out)
{
    bool keeps = file->n_members > 0 && file->first_member <= first &&
                 first - file->first_member <= file->n_members;
    uint32_t n_kept = keeps ? first - file->first_member : 0;
    struct shard_entry *joined = calloc(n_kept + n + 1, sizeof *joined);
    if (joined == NULL)
        return NULL;
    if (n_kept > 0)
        memcpy(joined, file->members, n_kept * sizeof *joined);
    memcpy(joined + n_kept, list, n * sizeof *joined);
    *first_out = first - n_kept;
    *n_out = n_kept + n;
    return joined;
}

int identity_members_begin(struct identity *identity, uint32_t first,
                           const struct shard_entry *list, uint32_t n, struct embd__error *e)
{
    pthread_mutex_lock(&identity->mutex);
    struct identity_file *file = &identity->file, before = *file;
    file->members = join_lists(&before, first, list, n, &file->first_member, &file->n_members);
    if (file->members == NULL)
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for the members of the cluster");
    else
        identity_file_write(identity->dir, file, e);
    free(e->status == EMBD_OK ? before.members : file->members);
    if (e->status != EMBD_OK) {
        file->members = before.members;
        file->first_member = before.first_member;
        file->n_members = before.n_members;
    }
    pthread_mutex_unlock(&identity->mutex);
    return e->status;
}

/* ---- growing ---- */

/* The list ends with NULL. False: no memory. */
static bool add_address(struct identity *identity, const char *address)
{
    uint32_t n = identity->config.n_shards;
    if (identity->addresses == NULL)
        return true; /* nobody is asked yet */
    char **grown = realloc(identity->addresses, (n + 2) * sizeof *grown);
    if (grown == NULL)
        return false;
    identity->addresses = grown;
    grown[n] = strdup(address);
    grown[n + 1] = NULL;
    return grown[n] != NULL;
}

/* Each added shard is asked as a server of its own. */
static bool grow(struct identity *identity, uint32_t n)
{
    struct identity_config *config = &identity->config;
    while (config->n_shards < n) {
        const struct shard_entry *entry = find(identity, config->n_shards);
        if (entry == NULL && !config->is_by_etcd)
            return false;
        if (!add_address(identity, entry != NULL ? entry->address : ""))
            return false;
        config->servers[config->n_servers++] =
            (struct identity_server){.name = "", .first_shard = config->n_shards++, .n_shards = 1};
    }
    identity->file.cluster_shards = config->n_shards;
    return true;
}

/* ---- shrinking ---- */

/* Another server may have these shards later: nothing of those that had them is to stay. */
static void forget_from(struct identity *identity, uint32_t n)
{
    struct identity_file *file = &identity->file;
    memset(file->known + n, 0, (LIMIT_SHARDS - n) * sizeof *file->known);
    if (file->n_members > 0 && file->first_member + file->n_members > n)
        file->n_members = n > file->first_member ? n - file->first_member : 0;
    for (uint32_t i = n; identity->addresses != NULL && identity->addresses[i] != NULL; i++) {
        free(identity->addresses[i]);
        identity->addresses[i] = NULL;
    }
}

static void shrink(struct identity *identity, uint32_t n)
{
    struct identity_config *config = &identity->config;
    struct identity_file *file = &identity->file;
    while (config->servers[config->n_servers - 1].first_shard >= n) {
        config->n_servers--;
        identity->is_met[config->n_servers] = false;
        identity->answers[config->n_servers] = (struct identity_answer){.is_there = false};
    }
    if (file->most_shards < config->n_shards)
        file->most_shards = config->n_shards;
    config->n_shards = file->cluster_shards = n;
    forget_from(identity, n);
}

/* Of a server that followed: all are its own. Its journals may be of more. */
static void resize_own(struct identity *identity, uint32_t n)
{
    struct identity_config *config = &identity->config;
    struct identity_file *file = &identity->file;
    if (n < config->n_shards && file->most_shards < config->n_shards)
        file->most_shards = config->n_shards;
    config->servers[config->self].n_shards = file->n_shards = n;
    config->n_shards = file->cluster_shards = n;
}

int identity_set_room(struct identity *identity, uint32_t n, struct embd__error *e)
{
    pthread_mutex_lock(&identity->mutex);
    resize_own(identity, n);
    embd__placement_even(&identity->current, 1, n);
    identity_file_write(identity->dir, &identity->file, e);
    pthread_mutex_unlock(&identity->mutex);
    return e->status;
}

bool identity_resize(struct identity *identity, uint32_t n)
{
    if (identity->is_by_records && !identity->config.is_by_etcd) {
        resize_own(identity, n);
        return true;
    }
    if (n >= identity->config.n_shards)
        return grow(identity, n);
    shrink(identity, n);
    return true;
}

uint32_t identity_most_shards(struct identity *identity)
{
    pthread_mutex_lock(&identity->mutex);
    uint32_t n = identity->file.most_shards;
    pthread_mutex_unlock(&identity->mutex);
    return n;
}

int identity_leave(struct identity *identity, struct embd__error *e)
{
    pthread_mutex_lock(&identity->mutex);
    bool is_news = !identity->file.has_left;
    identity->file.has_left = true;
    if (is_news && identity_file_write(identity->dir, &identity->file, e) != EMBD_OK)
        identity->file.has_left = false;
    pthread_mutex_unlock(&identity->mutex);
    return e->status;
}

/* ---- at the start ---- */

/* The servers behind this one, and behind the members, are none yet. False: the number is not that
 * of whole servers. */
static bool leave_out(struct identity *identity, uint32_t n_shards)
{
    struct identity_config *config = &identity->config;
    uint32_t n = config->n_servers;
    while (n > 0 && config->servers[n - 1].first_shard >= n_shards)
        n--;
    if (n <= config->self ||
        config->servers[n - 1].first_shard + config->servers[n - 1].n_shards != n_shards)
        return false;
    log_event(LOG_INFO, "servers_not_added",
              "servers=%u why=\"the configuration lists them, and they are not members of the "
              "cluster: embctl shard add makes them members\"",
              config->n_servers - n);
    config->n_servers = n;
    config->n_shards = n_shards;
    config->placement = NULL; /* it is of all of them */
    return true;
}

void identity_find_members(struct identity *identity)
{
    struct identity_config *config = &identity->config;
    struct identity_file *file = &identity->file;
    const struct identity_server *self = identity_self(identity);
    uint32_t end = self->first_shard + self->n_shards, n = file->cluster_shards;
    bool is_own = file->is_there && file->first_shard == self->first_shard &&
                  file->n_shards == self->n_shards;
    file->joins |= config->joins && !file->is_there && !file->own.has_journal;
    if (file->joins) {
        if (config->n_shards > end)
            leave_out(identity, end);
        config->placement = NULL;
    } else if (is_own && n > config->n_shards) {
        config->placement = NULL;
        grow(identity, n);
    } else if (is_own && n < config->n_shards) {
        leave_out(identity, n);
    }
}
