/* identity.c - see identity.h.
 *
 * The happy path: the directory is locked, its file read and compared with the configuration; a
 * server alone is open at once. Else the others are asked, and when nothing speaks against the
 * directory it takes their cluster's id, its epoch is raised, and the shards begin. The first id is
 * made by the server of shard 0, once it has met all others and none has one.
 *
 * Where nobody answers, the directory is believed, until somebody does: then it may be refused
 * after all. A refused start raises no epoch, so that it is refused again. */
#include "server/identity/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "server/identity/identity_internal.h"
#include "server/log/log.h"

#ifndef IDENTITY_RAISE_S /* tests have a shorter one */
#define IDENTITY_RAISE_S 600u
#endif

#define ADVICE                                                                                     \
    "check data_dir and --server; if it is to begin with this directory, start it once with "      \
    "--accept-empty"

/* ---- what the directory says itself ---- */

static uint64_t random_number(void)
{
    uint64_t number = 0;
    if (getrandom(&number, sizeof number, 0) != sizeof number)
        number = (uint64_t)time(NULL) << 20 ^ (uint64_t)getpid();
    return number + (number == 0);
}

static bool is_alone(const struct identity *identity)
{
    return identity_self(identity)->n_shards == identity->config.n_shards;
}

/* Whether the file is of these shards. A server that has and had all of them may have another
 * number of shards; journals refuse that where there are any. */
static bool is_of_self(const struct identity *identity)
{
    const struct identity_file *file = &identity->file;
    const struct identity_server *self = identity_self(identity);
    if (is_alone(identity) && file->n_shards == file->cluster_shards)
        return true;
    return file->first_shard == self->first_shard && file->n_shards == self->n_shards &&
           file->cluster_shards == identity->config.n_shards;
}

static void check_shards(struct identity *identity, int64_t other_journal)
{
    const struct identity_file *file = &identity->file;
    const struct identity_server *self = identity_self(identity);
    uint32_t last = self->first_shard + self->n_shards - 1;
    if (file->is_there && !is_of_self(identity))
        snprintf(identity->refusal, sizeof identity->refusal,
                 "its data directory is of shards %u to %u of %u, and this server has %u to %u of "
                 "%u; " ADVICE,
                 file->first_shard, file->first_shard + file->n_shards - 1, file->cluster_shards,
                 self->first_shard, last, identity->config.n_shards);
    else if (!file->is_there && other_journal >= 0 && !file->own.has_journal)
        snprintf(identity->refusal, sizeof identity->refusal,
                 "its data directory has a journal of shard %lld, and this server has shards %u to "
                 "%u; " ADVICE,
                 (long long)other_journal, self->first_shard, last);
}

/* Clients are told, see identity_tell_history. 63 bits suit any client. */
static void begin_history(struct identity *identity)
{
    identity->file.history = random_number() >> 1;
    atomic_store(&identity->history, identity->file.history);
}

/* From now on the file is of this server; what is known of others stays where it fits. */
static int take_over(struct identity *identity, struct embd__error *e)
{
    struct identity_file *file = &identity->file;
    const struct identity_server *self = identity_self(identity);
    uint32_t n = identity->config.n_shards;
    if (file->known == NULL || file->cluster_shards != n) {
        free(file->known);
        file->known = calloc(LIMIT_SHARDS, sizeof *file->known);
    }
    if (file->known == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for the servers of the cluster");
    if (file->history == 0)
        begin_history(identity);
    atomic_store(&identity->history, file->history);
    file->first_shard = self->first_shard;
    file->n_shards = self->n_shards;
    file->cluster_shards = n;
    snprintf(file->server, sizeof file->server, "%.63s", self->name);
    return EMBD_OK;
}

/* ---- the state ---- */

static uint64_t now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec;
}

/* Where it cannot be written the epoch stays, and it is tried again after the next round. */
static void raise_epoch(struct identity *identity, uint64_t greatest)
{
    struct embd__error e = {.status = EMBD_OK};
    struct identity_own *own = &identity->file.own, before = *own;
    own->epoch = (greatest > own->epoch ? greatest : own->epoch) + 1;
    own->start = random_number();
    identity->raised_s = now_s();
    if (identity_file_write(identity->dir, &identity->file, &e) == EMBD_OK) {
        identity->is_raised = true;
        atomic_store(&identity->epoch, own->epoch);
        return;
    }
    *own = before;
    log_event(LOG_WARN, "identity_not_written", "why=\"%s\"", e.text);
}

static void write_file(struct identity *identity)
{
    struct embd__error e = {.status = EMBD_OK};
    if (identity_file_write(identity->dir, &identity->file, &e) != EMBD_OK)
        log_event(LOG_WARN, "identity_not_written", "why=\"%s\"", e.text);
}

static bool enter(struct identity *identity, enum identity_state state)
{
    bool is_other = atomic_load(&identity->state) != (int)state;
    atomic_store(&identity->state, (int)state);
    return is_other;
}

static void record_acceptance(struct identity *identity)
{
    struct tm utc;
    time_t now = time(NULL);
    struct identity_file *file = &identity->file;
    if (file->n_accepted >= IDENTITY_ACCEPTED_MAX)
        memmove(file->accepted, file->accepted + 1,
                (IDENTITY_ACCEPTED_MAX - 1) * sizeof *file->accepted);
    uint32_t at =
        file->n_accepted < IDENTITY_ACCEPTED_MAX ? file->n_accepted : IDENTITY_ACCEPTED_MAX - 1;
    file->n_accepted++;
    struct identity_acceptance *entry = &file->accepted[at];
    strftime(entry->when, sizeof entry->when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    snprintf(entry->why, sizeof entry->why, "%.*s", (int)strcspn(identity->why, ";"),
             identity->why);
    log_event(LOG_ERROR, "directory_accepted", "why=\"--accept-empty, although %s\"", entry->why);
}

/* ---- deciding ---- */

static const char *name_of(const struct identity *identity, uint32_t server, char out[80])
{
    const struct identity_server *at = &identity->config.servers[server];
    if (at->name[0] != '\0')
        snprintf(out, 80, "server '%.63s'", at->name);
    else
        snprintf(out, 80, "the server of shard %u", at->first_shard);
    return out;
}

static void explain(struct identity *identity, const struct verdict *v)
{
    char name[80];
    const struct identity_own *own = &identity->file.own;
    name_of(identity, v->witness, name);
    if (identity->refusal[0] != '\0')
        snprintf(identity->why, sizeof identity->why, "%s", identity->refusal);
    else if (v->judgement == JUDGED_FOREIGN)
        snprintf(identity->why, sizeof identity->why,
                 "its data directory is of the cluster %.8s, and %s is of %.8s; " ADVICE,
                 own->cluster, name, v->cluster);
    else if (v->judgement == JUDGED_OLDER)
        snprintf(identity->why, sizeof identity->why,
                 "its data directory is an older copy, of epoch %" PRIu64 ", and %s knows epoch "
                 "%" PRIu64 "; " ADVICE,
                 own->epoch, name, v->greatest_epoch);
    else
        snprintf(identity->why, sizeof identity->why,
                 "its data directory is empty, and %s knows one of epoch %" PRIu64
                 " with tables; " ADVICE,
                 name, v->greatest_epoch);
}

/* Nobody can accept that: a key would be on two shards. */
static void explain_placement(struct identity *identity, uint32_t other)
{
    char name[80];
    snprintf(identity->why, sizeof identity->why,
             "its placement is version %" PRIu64 ", and %s has version %" PRIu64
             " or another map; start all servers with the same placement",
             identity->current.version, name_of(identity, other, name),
             identity->answers[other].placement);
}

static bool refuse(struct identity *identity)
{
    bool is_news = enter(identity, IDENTITY_REFUSED);
    if (is_news)
        log_event(LOG_ERROR, "directory_refused", "server=%s why=\"%s\"",
                  identity_self(identity)->name, identity->why);
    return is_news;
}

/* The first id of a cluster. */
static void found_cluster(struct identity *identity)
{
    struct identity_own *own = &identity->file.own;
    uint32_t n_met = 0;
    for (uint32_t i = 0; i < identity->config.n_servers; i++)
        n_met += identity->is_met[i];
    if (identity_self(identity)->first_shard != 0 || n_met + 1 < identity->config.n_servers)
        return;
    snprintf(own->cluster, sizeof own->cluster, "%016" PRIx64 "%016" PRIx64, random_number(),
             random_number());
}

static bool take_cluster(struct identity *identity, const struct verdict *v)
{
    struct identity_own *own = &identity->file.own;
    if (own->cluster[0] != '\0')
        return false;
    memcpy(own->cluster, v->cluster, sizeof own->cluster);
    if (own->cluster[0] == '\0')
        found_cluster(identity);
    return own->cluster[0] != '\0';
}

static bool open_up(struct identity *identity, const struct verdict *v)
{
    bool has_cluster = take_cluster(identity, v);
    if (!identity->is_raised)
        raise_epoch(identity, v->greatest_epoch);
    else if (has_cluster)
        write_file(identity);
    identity->is_settled = identity->is_raised && v->is_heard;
    identity->why[0] = '\0';
    if (has_cluster || !identity->was_open)
        log_event(LOG_INFO, "identity", "cluster=%s epoch=%" PRIu64 " settled=%s",
                  identity->file.own.cluster, identity->file.own.epoch,
                  identity->is_settled ? "yes" : "no");
    identity->was_open = true;
    return enter(identity, IDENTITY_OPEN);
}

static void accept_it(struct identity *identity, struct verdict *v)
{
    struct identity_own *own = &identity->file.own;
    record_acceptance(identity);
    if (v->cluster[0] != '\0')
        memcpy(own->cluster, v->cluster, sizeof own->cluster);
    if (v->judgement == JUDGED_FOREIGN)
        memset(identity->file.known, 0, LIMIT_SHARDS * sizeof *identity->file.known);
    identity->refusal[0] = '\0';
    identity->is_raised = false;
    begin_history(identity);
    v->judgement = JUDGED_OWN;
}

/* The answers of others, where their directories are accepted. */
static void learn(struct identity *identity)
{
    bool is_news = false;
    const struct identity_own *own = &identity->file.own;
    for (uint32_t i = 0; i < identity->config.n_servers; i++) {
        const struct identity_answer *answer = &identity->answers[i];
        struct identity_known *known =
            &identity->file.known[identity->config.servers[i].first_shard];
        if (own->cluster[0] == '\0' || strcmp(answer->cluster, own->cluster) != 0 ||
            answer->epoch <= known->epoch)
            continue;
        *known = (struct identity_known){answer->epoch, answer->start};
        is_news = true;
        log_event(LOG_DEBUG, "server_known", "shard=%u epoch=%" PRIu64,
                  identity->config.servers[i].first_shard, answer->epoch);
    }
    if (is_news && identity->is_raised)
        write_file(identity);
}

bool identity_decide(struct identity *identity)
{
    struct verdict v;
    if (identity->file.has_left)
        return false; /* it is nobody's */
    for (uint32_t i = 0; i < identity->config.n_servers; i++)
        identity->is_met[i] = identity->is_met[i] || identity->answers[i].is_there;
    judge(&identity->file.own, identity->answers, identity->config.n_servers, &v);
    if (identity->config.is_by_etcd)
        v.judgement = JUDGED_OWN;
    bool is_wrong = identity->refusal[0] != '\0' || v.judgement != JUDGED_OWN;
    bool changed = false;
    if (is_wrong && !identity->is_settled) {
        explain(identity, &v);
        if (identity->config.accepts)
            accept_it(identity, &v);
        is_wrong = !identity->config.accepts;
    }
    int64_t other = identity_other_placement(identity);
    if (!is_wrong && other >= 0 && !identity->config.is_by_etcd && !identity->is_settled) {
        explain_placement(identity, (uint32_t)other);
        is_wrong = true;
    }
    bool is_late = identity->was_open && atomic_load(&identity->state) == IDENTITY_REFUSED;
    if (!identity->is_settled && !is_late)
        changed = is_wrong ? refuse(identity) : open_up(identity, &v);
    if (atomic_load(&identity->state) == IDENTITY_OPEN)
        learn(identity);
    if (identity->is_settled && now_s() - identity->raised_s >= IDENTITY_RAISE_S)
        raise_epoch(identity, 0); /* a copy from before is older from now on */
    return changed;
}

/* ---- opening ---- */

static int open_dir(struct identity *identity, struct embd__error *e)
{
    const char *path = identity->config.data_dir;
    int64_t other_journal;
    identity->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (identity->dir < 0)
        return embd__error_set(e, EMBD_IO, "data directory '%s' cannot be opened: %s", path,
                               strerror(errno));
    const struct identity_server *self = identity_self(identity);
    struct identity_file *file = &identity->file;
    bool has_journal;
    if (identity_lock(identity->dir, path, &identity->lock, e) != EMBD_OK ||
        identity_file_read(identity->dir, path, file, e) != EMBD_OK ||
        identity_find_journals(identity->dir, self->first_shard, self->n_shards, &has_journal,
                               &other_journal, e) != EMBD_OK)
        return e->status;
    file->own.has_journal = has_journal;
    if (file->has_left)
        return embd__error_set(e, EMBD_INVALID,
                               "data directory '%.160s': its server left the cluster by embctl "
                               "shard retire: end it for good; to make it a member again, start "
                               "it with --join and an empty data_dir",
                               path);
    identity_find_members(identity);
    check_shards(identity, other_journal);
    if (identity_choose_placement(identity, e) != EMBD_OK)
        return e->status;
    return take_over(identity, e);
}

int identity_open(const struct identity_config *config, struct identity **out,
                  struct embd__error *e)
{
    struct identity *identity = calloc(1, sizeof *identity);
    *out = NULL;
    if (identity == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for the identity of a server");
    identity->config = *config;
    identity->dir = identity->lock = -1;
    pthread_mutex_init(&identity->mutex, NULL);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&identity->news, &clock);
    pthread_condattr_destroy(&clock);
    identity->answers = calloc(config->n_servers + LIMIT_SHARDS, sizeof *identity->answers);
    identity->is_met = calloc(config->n_servers + LIMIT_SHARDS, sizeof *identity->is_met);
    if (identity->answers == NULL || identity->is_met == NULL)
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for the identity of a server");
    if (e->status == EMBD_OK)
        open_dir(identity, e);
    if (e->status != EMBD_OK) {
        identity_close(identity);
        return e->status;
    }
    if (is_alone(identity) || config->is_by_etcd)
        identity_decide(identity);
    *out = identity;
    return EMBD_OK;
}

void identity_close(struct identity *identity)
{
    if (identity == NULL)
        return;
    for (uint32_t i = 0; identity->addresses != NULL && identity->addresses[i] != NULL; i++)
        free(identity->addresses[i]);
    free(identity->addresses);
    if (identity->lock >= 0)
        close(identity->lock);
    if (identity->dir >= 0)
        close(identity->dir);
    identity_file_fini(&identity->file);
    free(identity->answers);
    free(identity->is_met);
    pthread_cond_destroy(&identity->news);
    pthread_mutex_destroy(&identity->mutex);
    peers_proof_fini(&identity->ca);
    free(identity);
}

void identity_believe(struct identity *identity)
{
    pthread_mutex_lock(&identity->mutex);
    identity->is_believed = true;
    bool changed = identity_decide(identity);
    pthread_mutex_unlock(&identity->mutex);
    if (changed)
        identity->config.changed(identity->config.arg);
}

/* ---- who asks ---- */

enum identity_state identity_state(const struct identity *identity)
{
    return (enum identity_state)atomic_load_explicit(&identity->state, memory_order_acquire);
}

void identity_why(struct identity *identity, char out[IDENTITY_WHY_BYTES])
{
    static const char asking[] =
        "the other servers are asked whether its data directory is this server's";
    pthread_mutex_lock(&identity->mutex);
    bool asks = atomic_load(&identity->state) == IDENTITY_ASKING;
    snprintf(out, IDENTITY_WHY_BYTES, "%s", asks ? asking : identity->why);
    pthread_mutex_unlock(&identity->mutex);
}

void identity_figures(struct identity *identity, struct identity_figures *out)
{
    pthread_mutex_lock(&identity->mutex);
    *out = (struct identity_figures){
        .is_refused = atomic_load(&identity->state) == IDENTITY_REFUSED,
        .n_accepted = identity->file.n_accepted,
        .n_other_cuts = identity->n_other_cuts,
    };
    pthread_mutex_unlock(&identity->mutex);
}

void identity_set_cut(struct identity *identity, uint64_t cut, uint64_t rows)
{
    pthread_mutex_lock(&identity->mutex);
    identity->is_loaded = true;
    identity->cut = cut;
    identity->cut_rows = rows;
    pthread_mutex_unlock(&identity->mutex);
}

void identity_tell(struct identity *identity, uint64_t first_shard, uint64_t epoch,
                   struct identity_answer *out)
{
    pthread_mutex_lock(&identity->mutex);
    const struct identity_own *own = &identity->file.own;
    const struct identity_known *known = &identity->file.known[first_shard];
    bool is_open = atomic_load(&identity->state) == IDENTITY_OPEN && identity->is_raised;
    *out = (struct identity_answer){.is_there = true,
                                    .epoch = is_open ? own->epoch : 0,
                                    .start = is_open ? own->start : 0,
                                    .is_loaded = identity->is_loaded,
                                    .cut = identity->cut,
                                    .cut_rows = identity->cut_rows,
                                    .known_epoch = known->epoch,
                                    .known_start = known->start};
    memcpy(out->cluster, own->cluster, sizeof out->cluster);
    identity_tell_placement(identity, out);
    identity->is_hinted = identity->is_hinted || epoch > known->epoch;
    if (identity->is_hinted)
        pthread_cond_signal(&identity->news);
    pthread_mutex_unlock(&identity->mutex);
}

void identity_begin_history(struct identity *identity)
{
    pthread_mutex_lock(&identity->mutex);
    begin_history(identity);
    if (identity->is_raised)
        write_file(identity);
    pthread_mutex_unlock(&identity->mutex);
}

void identity_tell_history(const struct identity *identity, uint64_t *history_out,
                           uint64_t *epoch_out)
{
    *history_out = atomic_load(&identity->history);
    *epoch_out = atomic_load(&identity->epoch);
}

static bool is_at_other_cut(const struct identity *identity, const struct identity_answer *answer)
{
    return identity->is_loaded && answer->is_loaded && answer->epoch > 0 &&
           answer->cut != identity->cut && (answer->cut_rows > 0 || identity->cut_rows > 0);
}

uint32_t identity_other_cuts(struct identity *identity, char *names, uint64_t names_bytes)
{
    uint32_t n = 0;
    uint64_t at = 0;
    char name[80];
    names[0] = '\0';
    pthread_mutex_lock(&identity->mutex);
    for (uint32_t i = 0; i < identity->config.n_servers; i++) {
        if (!is_at_other_cut(identity, &identity->answers[i]))
            continue;
        if (at < names_bytes)
            at += (uint64_t)snprintf(names + at, names_bytes - at, "%s%s", n > 0 ? ", " : "",
                                     name_of(identity, i, name));
        n++;
    }
    pthread_mutex_unlock(&identity->mutex);
    return n;
}

uint64_t identity_cluster_number(struct identity *identity)
{
    char half[17];
    pthread_mutex_lock(&identity->mutex);
    snprintf(half, sizeof half, "%.16s", identity->file.own.cluster);
    pthread_mutex_unlock(&identity->mutex);
    return strtoull(half, NULL, 16);
}
