/* asking.c - the thread that asks the other servers, over their data listeners, as any client
 * would: a round asks one shard of each, and closes its connections afterwards.
 *
 * Rounds follow fast until the directory is accepted, and slowly then: a restarted server is
 * noticed at once, since its own request has its new epoch. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/identity/identity_internal.h"
#include "server/log/log.h"
#include "server/peers/peers.h"

enum {
    ASK_MS = 2000,        /* for an answer */
    PAUSE_MS = 500,       /* between rounds, until all is settled */
    SETTLED_MS = 5000,    /* afterwards; in large clusters */
    SETTLED_EACH_MS = 50, /* so much for each server, if that is more */
};

/* ---- a round ---- */

struct round {
    struct identity *identity;
    uint32_t n_servers, n_shards;    /* there may be more in the next round */
    struct identity_answer *answers; /* [n_servers], with room for those that come */
    bool *is_told;                   /* likewise: why it does not answer */
    bool is_none_told;               /* why no server can be asked */
    uint64_t decision;               /* shard 0 is asked about; 0: none */
    enum decision answered;
};

static uint32_t server_of(const struct identity *identity, uint32_t shard)
{
    uint32_t i = 0;
    while (identity->config.servers[i].first_shard != shard)
        i++;
    return i;
}

/* Shard 0 remembers the last decision alone, and others are made without a shard that has left. */
static bool has_left_by_it(const struct identity *identity, const struct identity_answer *answer)
{
    return answer->shards != 0 && answer->shards <= identity_self(identity)->first_shard &&
           answer->placement > identity->current.version && !identity->file.joins;
}

/* Of the server of shard 0, if it is of this cluster. */
static void take_decision(struct round *round, struct fields *f,
                          const struct identity_answer *answer)
{
    const struct identity *identity = round->identity;
    uint64_t decision = embd__field_uint(f, "decision", 0, UINT64_MAX, 0);
    int is = embd__field_enum(f, "decided", decision_names, DECISIONS, DECISION_OPEN);
    pthread_mutex_lock(&round->identity->mutex);
    bool is_own = strcmp(answer->cluster, identity->file.own.cluster) == 0;
    if (is == DECISION_REFUSED && has_left_by_it(identity, answer))
        is = DECISION_MADE;
    pthread_mutex_unlock(&round->identity->mutex);
    if (decision != 0 && decision == round->decision && is_own)
        round->answered = (enum decision)is;
}

static void take(void *arg, uint32_t shard, struct reader *reader)
{
    struct round *round = arg;
    struct fields f;
    struct identity_answer answer = {.is_there = true};
    embd__read_fields(&f, reader, "identity");
    embd__field_str(&f, "cluster", answer.cluster, sizeof answer.cluster, "");
    answer.epoch = embd__field_uint(&f, "epoch", 0, INT64_MAX, 0);
    answer.start = embd__field_uint(&f, "start", 0, UINT64_MAX, 0);
    answer.tables = embd__field_uint(&f, "tables", 0, UINT64_MAX, 0);
    answer.is_loaded = embd__field_bool(&f, "loaded", false);
    answer.cut = embd__field_uint(&f, "cut", 0, UINT64_MAX, 0);
    answer.cut_rows = embd__field_uint(&f, "cut_rows", 0, UINT64_MAX, 0);
    answer.known_epoch = embd__field_uint(&f, "known_epoch", 0, INT64_MAX, 0);
    answer.known_start = embd__field_uint(&f, "known_start", 0, UINT64_MAX, 0);
    answer.placement = embd__field_uint(&f, "placement", 0, UINT64_MAX, 1);
    answer.placement_digest = embd__field_uint(&f, "placement_digest", 0, UINT64_MAX, 0);
    answer.is_moving = embd__field_bool(&f, "moving", false);
    answer.shards = (uint32_t)embd__field_uint(&f, "shards", 0, LIMIT_SHARDS, 0);
    if (shard == 0)
        take_decision(round, &f, &answer);
    if (strspn(answer.cluster, "0123456789abcdef") != strlen(answer.cluster))
        embd__error_set(reader->error, EMBD_PROTOCOL,
                        "identity: the cluster's id is not hexadecimal");
    if (reader->error->status == EMBD_OK)
        round->answers[server_of(round->identity, shard)] = answer;
}

static void add_questions(const struct round *round, struct peers *peers, char *const *addresses)
{
    struct identity *identity = round->identity;
    pthread_mutex_lock(&identity->mutex);
    uint64_t epoch = identity->is_raised ? identity->file.own.epoch : 0;
    pthread_mutex_unlock(&identity->mutex);
    for (uint32_t i = 0; i < round->n_servers; i++) {
        uint32_t shard = identity->config.servers[i].first_shard;
        if (i == identity->config.self || addresses[shard][0] == '\0')
            continue;
        struct msg *m = peers_add(peers, shard, METHOD_IDENTITY, ASK_MS);
        bool asks = shard == 0 && round->decision != 0;
        embd__msg_map(m, 2u + asks);
        embd__msg_field_uint(m, "shard", identity_self(identity)->first_shard);
        embd__msg_field_uint(m, "epoch", epoch);
        if (asks)
            embd__msg_field_uint(m, "decision", round->decision);
    }
}

/* A server of an earlier version has none; what others say is logged once. */
static void take_errors(struct round *round, const struct peers *peers)
{
    const struct identity *identity = round->identity;
    for (uint32_t i = 0; i < round->n_servers; i++) {
        const struct embd__error *e = peers_error(peers, identity->config.servers[i].first_shard);
        bool is_silent = e->status == EMBD_UNREACHABLE || e->status == EMBD_DEADLINE ||
                         e->status == EMBD_CLOSED || e->status == EMBD_OK;
        if (e->status == EMBD_UNKNOWN_METHOD)
            round->answers[i].is_there = true;
        else if (is_silent || round->is_told[i])
            continue;
        else
            log_event(LOG_WARN, "server_not_asked", "server=%s why=\"%s\"",
                      identity->config.servers[i].name, e->text);
        round->is_told[i] = e->status != EMBD_UNKNOWN_METHOD;
    }
}

static void enter_round(struct identity *identity, struct peers *peers)
{
    pthread_mutex_lock(&identity->mutex);
    identity->peers = peers;
    if (peers != NULL && identity->stops)
        peers_stop(peers);
    pthread_mutex_unlock(&identity->mutex);
}

/* What a round shows, and whom it believes. */
static int copy_proof(struct identity *identity, char token[IDENTITY_TOKEN_BYTES],
                      struct peers_proof *out, struct embd__error *e)
{
    const struct peers_proof *ca = &identity->ca;
    *out = (struct peers_proof){.token = NULL};
    pthread_mutex_lock(&identity->mutex);
    memcpy(token, identity->token, IDENTITY_TOKEN_BYTES);
    peers_proof_set_ca(out, ca->ca, ca->ca_bytes, ca->believes_system, e);
    pthread_mutex_unlock(&identity->mutex);
    out->token = token[0] != '\0' ? token : NULL;
    return e->status;
}

static void not_asked(struct round *round, const struct embd__error *why)
{
    if (!round->is_none_told)
        log_event(LOG_WARN, "servers_not_asked", "why=\"%s\"", why->text);
    round->is_none_told = true;
}

static void ask_all(struct round *round, char *const *addresses)
{
    struct identity *identity = round->identity;
    const struct identity_asking *asking = &identity->asking;
    struct embd__error e = {.status = EMBD_OK}, ignored = {.status = EMBD_OK};
    struct peers *peers;
    char token[IDENTITY_TOKEN_BYTES];
    struct peers_proof proof;
    int status = copy_proof(identity, token, &proof, &e);
    const struct peers_config config = {.n_shards = round->n_shards,
                                        .addresses = (const char *const *)addresses,
                                        .proof = &proof,
                                        .cert = asking->cert,
                                        .key = asking->key,
                                        .asks_data = true};
    if (status == EMBD_OK)
        status = peers_open(&config, &peers, &e);
    if (status == EMBD_OK) {
        enter_round(identity, peers);
        add_questions(round, peers, addresses);
        peers_run(peers, take, round, &ignored);
        take_errors(round, peers);
        enter_round(identity, NULL);
        peers_close(peers);
    } else {
        not_asked(round, &e);
    }
    proof.token = NULL; /* it is ours */
    peers_proof_fini(&proof);
}

/* ---- the thread ---- */

/* Until something is new. With the mutex held. */
static void pause_for(struct identity *identity, uint32_t ms, const bool *is_new)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    while (!identity->stops && !*is_new &&
           pthread_cond_timedwait(&identity->news, &identity->mutex, &until) != ETIMEDOUT)
        ;
}

static void free_addresses(char **list)
{
    for (uint32_t i = 0; list != NULL && list[i] != NULL; i++)
        free(list[i]);
    free(list);
}

static char **copy_addresses(const struct identity *identity, const char *const *from)
{
    uint32_t n = identity->config.n_shards;
    char **copy = calloc(n + 1, sizeof *copy);
    for (uint32_t i = 0; copy != NULL && i < n; i++) {
        copy[i] = strdup(from[i]);
        if (copy[i] != NULL)
            continue;
        free_addresses(copy);
        return NULL;
    }
    return copy;
}

static uint32_t pause_ms(const struct identity *identity)
{
    uint32_t each = identity->config.n_servers * SETTLED_EACH_MS;
    bool is_open = identity->asked != 0 && identity->answered == DECISION_OPEN;
    if (!identity->is_settled || is_open || identity->file.own.cluster[0] == '\0')
        return PAUSE_MS > each / 10 ? PAUSE_MS : each / 10;
    return each > SETTLED_MS ? each : SETTLED_MS;
}

static void log_other_cuts(struct identity *identity)
{
    char names[256];
    uint32_t n = identity_other_cuts(identity, names, sizeof names);
    if (n > 0 && n != identity->n_other_cuts)
        log_event(LOG_WARN, "cuts_differ",
                  "why=\"this server began with another snapshot than %s: tables of durability "
                  "snapshot are of different moments; see EmbdShardsAtDifferentCuts in the "
                  "runbook\"",
                  names);
    else if (n == 0 && identity->n_other_cuts > 0)
        log_event(LOG_INFO, "cuts_agree", "servers=%u", identity->config.n_servers);
    pthread_mutex_lock(&identity->mutex);
    identity->n_other_cuts = n;
    pthread_mutex_unlock(&identity->mutex);
}

/* One round, and what follows from it. */
static void go_round(struct identity *identity, struct round *round)
{
    pthread_mutex_lock(&identity->mutex);
    identity->is_hinted = false;
    round->decision = identity->answered == DECISION_OPEN ? identity->asked : 0;
    round->answered = DECISION_OPEN;
    round->n_servers = identity->config.n_servers;
    round->n_shards = identity->config.n_shards;
    char **addresses = copy_addresses(identity, (const char *const *)(void *)identity->addresses);
    pthread_mutex_unlock(&identity->mutex);
    memset(round->answers, 0, round->n_servers * sizeof *round->answers);
    if (addresses != NULL)
        ask_all(round, addresses);
    free_addresses(addresses);
    pthread_mutex_lock(&identity->mutex);
    memcpy(identity->answers, round->answers, round->n_servers * sizeof *round->answers);
    bool changed = !identity->stops && identity_decide(identity);
    identity->is_hinted = identity->is_hinted || changed; /* others learn it at once */
    pthread_mutex_unlock(&identity->mutex);
    if (changed)
        identity->config.changed(identity->config.arg);
    identity_tell_decision(identity, round->decision, round->answered);
    log_other_cuts(identity);
}

static void *run(void *arg)
{
    struct identity *identity = arg;
    uint32_t n = identity->config.n_servers + LIMIT_SHARDS;
    struct round round = {.identity = identity,
                          .answers = calloc(n, sizeof *round.answers),
                          .is_told = calloc(n, sizeof(bool))};
    pthread_mutex_lock(&identity->mutex);
    if (identity->asking.wait_ms > 0)
        pause_for(identity, identity->asking.wait_ms, &identity->is_hinted);
    while (round.answers != NULL && round.is_told != NULL && !identity->stops) {
        pthread_mutex_unlock(&identity->mutex);
        go_round(identity, &round);
        pthread_mutex_lock(&identity->mutex);
        pause_for(identity, pause_ms(identity), &identity->is_hinted);
    }
    pthread_mutex_unlock(&identity->mutex);
    free(round.answers);
    free(round.is_told);
    return NULL;
}

/* With the mutex held. */
static int start(struct identity *identity, const struct identity_asking *asking,
                 const char *const *addresses, struct embd__error *e)
{
    if (identity->has_thread || identity->stops)
        return EMBD_OK;
    identity->asking = *asking;
    if (identity->addresses == NULL)
        identity->addresses = copy_addresses(identity, addresses);
    if (identity->addresses == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for the addresses of servers");
    if (pthread_create(&identity->thread, NULL, run, identity) != 0)
        return embd__error_set(e, EMBD_NO_MEMORY, "cannot start the thread that asks servers");
    identity->has_thread = true;
    return EMBD_OK;
}

int identity_ask(struct identity *identity, const struct identity_asking *asking,
                 const char *const *addresses, struct embd__error *e)
{
    pthread_mutex_lock(&identity->mutex);
    start(identity, asking, addresses, e);
    pthread_mutex_unlock(&identity->mutex);
    return e->status;
}

void identity_set_token(struct identity *identity, const char *token)
{
    pthread_mutex_lock(&identity->mutex);
    snprintf(identity->token, sizeof identity->token, "%s", token);
    pthread_mutex_unlock(&identity->mutex);
}

int identity_set_ca(struct identity *identity, const void *ca, uint64_t ca_bytes,
                    bool believes_system, struct embd__error *e)
{
    pthread_mutex_lock(&identity->mutex);
    int status = peers_proof_set_ca(&identity->ca, ca, ca_bytes, believes_system, e);
    pthread_mutex_unlock(&identity->mutex);
    return status;
}

void identity_go_on(struct identity *identity)
{
    pthread_mutex_lock(&identity->mutex);
    identity->is_hinted = true;
    pthread_cond_signal(&identity->news);
    pthread_mutex_unlock(&identity->mutex);
}

void identity_set_addresses(struct identity *identity, const char *const *addresses)
{
    pthread_mutex_lock(&identity->mutex);
    char **copy = copy_addresses(identity, addresses);
    char **before = identity->addresses;
    if (copy != NULL)
        identity->addresses = copy;
    identity->is_hinted = true;
    pthread_cond_signal(&identity->news);
    pthread_mutex_unlock(&identity->mutex);
    if (copy != NULL)
        free_addresses(before);
}

void identity_stop(struct identity *identity)
{
    pthread_mutex_lock(&identity->mutex);
    identity->stops = true;
    if (identity->peers != NULL)
        peers_stop(identity->peers);
    pthread_cond_signal(&identity->news);
    pthread_mutex_unlock(&identity->mutex);
    if (identity->has_thread)
        pthread_join(identity->thread, NULL);
    identity->has_thread = false;
}
