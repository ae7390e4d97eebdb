/* cluster_hold.c - see cluster_hold.h.
 *
 * The happy path: hold changes on all shards at once; each answers how far every client's pushes
 * have come on it. A push goes to all shards, under one number that rises with the pushes of its
 * client. So if shards are at different numbers, the highest is the cut. The shards behind it get a
 * hold that lets that client in up to there; they are asked again until all are at the cut.
 *
 * What can fail: a push that does not come to all shards, because its client hangs, or sends no
 * more of it. No client can keep others waiting by that: the hold is tried TRIES times, for a
 * moment each, and pushes go on in between. Who is behind after the last try is left out: the cut
 * has that client's push where it arrived. The log names the client. */
#include "server/coordinator/cluster_hold.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/coordinator/coordinator_inside.h"
#include "server/log/log.h"

/* A hold ends by itself then: a coordinator that hangs does not hold pushes for longer. */
#define HOLD_TIMEOUT_MS 5000u
#define HOLD_ASK_MS     4500u /* to wait for one while others hold already */

/* For pushes on their way to all of their shards. */
#define WAIT_NS      250000000u /* under the hold of a try */
#define WAIT_LAST_NS 1000000000u
#define PAUSE_NS     200000u
#define TRIES        15u        /* 15 s with the pauses between them: */
#define RETRY_NS     100000000u /* the first, which double, */
#define RETRY_MAX_NS 999999999u /* and the longest */

#define CLIENTS_MAX 65536u

struct mark {
    uint64_t id;
    uint32_t pushed;
};

struct marks {
    struct mark *list; /* [n], by id */
    uint32_t n;
};

struct cutting {
    struct peers *peers;
    struct embd__error *e; /* the caller's */
    uint32_t n_shards;
    bool leaves_none;
    uint64_t **bins;       /* [n_shards] of a hold's request; NULL: none yet */
    struct marks *shards;  /* [n_shards] how far the clients have come there */
    struct marks cut;      /* where all shards must come */
    struct marks behind;   /* of the shard being looked at: the marks of `cut` it has not reached */
    uint32_t first_behind; /* a shard that has not reached the cut; n_shards: none */
};

/* ---- marks ---- */

static bool reaches(uint32_t pushed, uint32_t cut)
{
    return (int32_t)(pushed - cut) >= 0;
}

static int by_client(const void *a, const void *b)
{
    const struct mark *x = a, *y = b;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return 0;
}

/* One mark for each client, the highest. */
static void order(struct marks *m)
{
    uint32_t n = 0;
    if (m->n > 0)
        qsort(m->list, m->n, sizeof *m->list, by_client);
    for (uint32_t i = 0; i < m->n; i++) {
        struct mark *last = n > 0 ? &m->list[n - 1] : NULL;
        if (!last || last->id != m->list[i].id)
            m->list[n++] = m->list[i];
        else if (!reaches(last->pushed, m->list[i].pushed))
            last->pushed = m->list[i].pushed;
    }
    m->n = n;
}

static int reserve(struct cutting *c, struct marks *m, uint64_t n)
{
    struct mark *list = realloc(m->list, (n + 1) * sizeof *list);
    if (!list)
        return embd__error_set(c->e, EMBD_NO_MEMORY, "no memory for %" PRIu64 " clients", n);
    m->list = list;
    return EMBD_OK;
}

/* The cut: the furthest any shard has come. */
static int find_cut(struct cutting *c)
{
    uint64_t n = 0;
    for (uint32_t shard = 0; shard < c->n_shards; shard++)
        n += c->shards[shard].n;
    if (reserve(c, &c->cut, n) || reserve(c, &c->behind, n))
        return c->e->status;
    c->cut.n = 0;
    for (uint32_t shard = 0; shard < c->n_shards; shard++) {
        const struct marks *m = &c->shards[shard];
        if (m->n > 0)
            memcpy(c->cut.list + c->cut.n, m->list, m->n * sizeof *m->list);
        c->cut.n += m->n;
    }
    order(&c->cut);
    return EMBD_OK;
}

static void find_behind(struct cutting *c, uint32_t shard)
{
    const struct marks *m = &c->shards[shard];
    c->behind.n = 0;
    for (uint32_t i = 0, at = 0; i < c->cut.n; i++) {
        const struct mark *mark = &c->cut.list[i];
        while (at < m->n && m->list[at].id < mark->id)
            at++;
        bool is_there = at < m->n && m->list[at].id == mark->id;
        if (!is_there || !reaches(m->list[at].pushed, mark->pushed))
            c->behind.list[c->behind.n++] = *mark;
    }
}

/* ---- holding ---- */

/* The hold, with the pushes to let in: those of c->behind. Their numbers are kept for as long as
 * the request is on its way: [n] clients, then [n] msgids. */
static int add_hold(struct cutting *c, uint32_t shard)
{
    uint32_t n = c->behind.n;
    uint64_t *bins = realloc(c->bins[shard], (n + 1) * (sizeof(uint64_t) + sizeof(uint32_t)));
    if (!bins)
        return embd__error_set(c->e, EMBD_NO_MEMORY, "no memory for %" PRIu32 " clients", n);
    c->bins[shard] = bins;
    uint32_t *pushed = (uint32_t *)(bins + n);
    for (uint32_t i = 0; i < n; i++) {
        bins[i] = c->behind.list[i].id;
        pushed[i] = c->behind.list[i].pushed;
    }
    struct msg *m = peers_add(c->peers, shard, METHOD_HOLD, HOLD_ASK_MS);
    embd__msg_map(m, 2);
    embd__msg_field_uint(m, "timeout_ms", HOLD_TIMEOUT_MS);
    embd__msg_field_uint(m, "clients", n);
    if (n > 0) {
        embd__msg_bin(m, bins, n * sizeof *bins);
        embd__msg_bin(m, pushed, n * sizeof *pushed);
    }
    return EMBD_OK;
}

static void take_hold(void *arg, uint32_t shard, struct reader *reader)
{
    struct cutting *c = arg;
    struct fields f;
    struct marks *m = &c->shards[shard];
    embd__read_fields(&f, reader, "hold");
    uint32_t n = (uint32_t)embd__field_uint(&f, "clients", 0, CLIENTS_MAX, FIELD_REQUIRED);
    embd__fields_end(&f);
    const uint64_t *clients = embd__read_bin(reader, "clients", n * sizeof *clients);
    const uint32_t *pushed = embd__read_bin(reader, "pushed", n * sizeof *pushed);
    if (reader->error->status != EMBD_OK || reserve(c, m, n) != EMBD_OK)
        return;
    for (uint32_t i = 0; i < n; i++)
        m->list[i] = (struct mark){clients[i], pushed[i]};
    m->n = n;
    order(m);
}

/* ---- all shards ---- */

/* Asks the shards that are behind once more, all at once. The last of them, or n_shards: none is.
 */
static int ask_behind(struct cutting *c, uint32_t *behind_out)
{
    *behind_out = c->n_shards;
    if (find_cut(c))
        return c->e->status;
    for (uint32_t shard = 0; shard < c->n_shards; shard++) {
        find_behind(c, shard);
        if (c->behind.n == 0)
            continue;
        *behind_out = shard;
        if (add_hold(c, shard))
            return c->e->status;
    }
    return peers_run(c->peers, take_hold, c, c->e);
}

/* After the last try. */
static void leave_out(struct cutting *c)
{
    for (uint32_t shard = 0; shard < c->n_shards; shard++) {
        find_behind(c, shard);
        for (uint32_t i = 0; i < c->behind.n; i++)
            log_event(LOG_WARN, "client_left_out",
                      "shard=%u client=%016" PRIx64 " why=\"other shards have a push of this "
                      "client; the snapshot or dump has it only there\"",
                      shard, c->behind.list[i].id);
    }
}

static int refuse(struct cutting *c)
{
    find_behind(c, c->first_behind);
    return embd__error_set(c->e, EMBD_BUSY,
                           "client %016" PRIx64 " has left a push half sent: other shards have it, "
                           "and shard %" PRIu32 " does not; stop that client, or try again",
                           c->behind.list[0].id, c->first_behind);
}

/* Until all are at the cut, or the time is over: c->first_behind. */
static int reach_cut(struct cutting *c, uint64_t wait_ns)
{
    static const struct timespec pause = {0, PAUSE_NS};
    uint64_t end_ns = monotonic_ns() + wait_ns;
    while (ask_behind(c, &c->first_behind) == EMBD_OK && c->first_behind < c->n_shards &&
           monotonic_ns() < end_ns)
        nanosleep(&pause, NULL);
    return c->e->status;
}

static void take_release(void *arg, uint32_t shard, struct reader *reader)
{
    uint64_t *pause_us = arg;
    struct fields f;
    (void)shard;
    embd__read_fields(&f, reader, "release");
    uint64_t held_us = embd__field_uint(&f, "held_us", 0, UINT64_MAX, FIELD_REQUIRED);
    if (embd__fields_end(&f) == EMBD_OK && held_us > *pause_us)
        *pause_us = held_us;
}

void cluster_release(struct peers *peers, uint32_t n_shards, uint64_t *pause_us)
{
    struct embd__error ignored = {.status = EMBD_OK};
    for (uint32_t shard = 0; shard < n_shards; shard++)
        embd__msg_map(peers_add(peers, shard, METHOD_RELEASE, CLUSTER_ASK_MS), 0);
    peers_run(peers, take_release, pause_us, &ignored);
}

static int hold_all(struct cutting *c, uint64_t wait_ns)
{
    c->behind.n = 0;
    for (uint32_t shard = 0; shard < c->n_shards; shard++)
        if (add_hold(c, shard))
            return c->e->status;
    if (peers_run(c->peers, take_hold, c, c->e) == EMBD_OK)
        reach_cut(c, wait_ns);
    return c->e->status;
}

/* EMBD_OK: all is held, and all shards are at the cut but for the clients left out. */
static int try_often(struct cutting *c, uint64_t *pause_us)
{
    uint64_t retry_ns = RETRY_NS;
    for (uint32_t tries = 1; tries < TRIES; tries++) {
        if (hold_all(c, WAIT_NS) != EMBD_OK || c->first_behind == c->n_shards)
            return c->e->status;
        cluster_release(c->peers, c->n_shards, pause_us);
        nanosleep(&(struct timespec){0, (long)retry_ns}, NULL);
        retry_ns = 2 * retry_ns < RETRY_MAX_NS ? 2 * retry_ns : RETRY_MAX_NS;
    }
    if (hold_all(c, WAIT_LAST_NS) != EMBD_OK || c->first_behind == c->n_shards)
        return c->e->status;
    if (c->leaves_none)
        return refuse(c);
    leave_out(c);
    return EMBD_OK;
}

static void fini(struct cutting *c)
{
    for (uint32_t shard = 0; c->shards && shard < c->n_shards; shard++)
        free(c->shards[shard].list);
    for (uint32_t shard = 0; c->bins && shard < c->n_shards; shard++)
        free(c->bins[shard]);
    free(c->shards);
    free(c->bins);
    free(c->cut.list);
    free(c->behind.list);
}

static void give_marks(struct cutting *c, struct cluster_marks *out)
{
    uint32_t n = c->cut.n;
    out->clients = malloc((n + 1) * sizeof *out->clients);
    out->pushed = malloc((n + 1) * sizeof *out->pushed);
    if (out->clients == NULL || out->pushed == NULL) {
        embd__error_set(c->e, EMBD_NO_MEMORY, "no memory for %" PRIu32 " clients", n);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        out->clients[i] = c->cut.list[i].id;
        out->pushed[i] = c->cut.list[i].pushed;
    }
    out->n = n;
}

void cluster_marks_fini(struct cluster_marks *marks)
{
    free(marks->clients);
    free(marks->pushed);
    *marks = (struct cluster_marks){.n = 0};
}

static int hold(struct cutting c, struct cluster_marks *marks, uint64_t *pause_us)
{
    uint32_t n_shards = c.n_shards;
    struct embd__error *e = c.e;
    c.shards = calloc(n_shards, sizeof *c.shards);
    c.bins = calloc(n_shards, sizeof *c.bins);
    if (c.shards && c.bins)
        try_often(&c, pause_us);
    else
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for a cut of %" PRIu32 " shards", n_shards);
    if (marks != NULL && e->status == EMBD_OK)
        give_marks(&c, marks);
    fini(&c);
    if (e->status)
        cluster_release(c.peers, n_shards, pause_us);
    return e->status;
}

int cluster_hold(struct peers *peers, uint32_t n_shards, bool leaves_none, uint64_t *pause_us,
                 struct embd__error *e)
{
    const struct cutting c = {
        .peers = peers, .e = e, .n_shards = n_shards, .leaves_none = leaves_none};
    return hold(c, NULL, pause_us);
}

int cluster_hold_marks(struct peers *peers, uint32_t n_shards, struct cluster_marks *out,
                       uint64_t *pause_us, struct embd__error *e)
{
    const struct cutting c = {.peers = peers, .e = e, .n_shards = n_shards, .leaves_none = true};
    return hold(c, out, pause_us);
}
