/* sim.c - the order of things, drawn from the seed: messages, the clock, faults, the operator. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/store/candidates.h"
#include "server/store/slice.h"
#include "tests/sim/sim.h"

enum { FAULTS_MS = 500, LEASED_FAULTS_MS = 1500, LONGEST_MS = 8000 };

const char *const part_names[PARTS_OUT] = {"nothing", "heed",  "client-epoch", "wait",  "chain",
                                           "one-of",  "again", "fence",        "epoch", "insync",
                                           "taken",   "even",  "heir",         "finish"};

uint32_t sim_below(struct sim *sim, uint32_t n)
{
    return dice_below(&sim->dice, n);
}

bool sim_one_in(struct sim *sim, uint32_t n)
{
    return sim_below(sim, n) == 0;
}

/* ---- the schedule as text ---- */

void sim_say(struct sim *sim, const char *format, ...)
{
    va_list args;
    char *line = sim->lines[sim->n_lines++ % LINES];
    int n = snprintf(line, LINE_BYTES, "%6llu ", (unsigned long long)sim->now);
    va_start(args, format);
    vsnprintf(line + n, LINE_BYTES - (size_t)n, format, args);
    va_end(args);
    if (sim->prints)
        puts(line);
}

_Noreturn void sim_fail(struct sim *sim, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(sim->why, sizeof sim->why, format, args);
    va_end(args);
    longjmp(sim->failed, 1);
}

/* ---- messages ---- */

static bool is_node(uint32_t end)
{
    return end < NODES;
}

/* Until when nothing passes between the two. */
static uint64_t *cut_between(struct sim *sim, uint32_t a, uint32_t b)
{
    return is_node(b) && (!is_node(a) || b < a) ? &sim->cut_until[a][b] : &sim->cut_until[b][a];
}

struct message *sim_send(struct sim *sim, enum message_kind kind, uint32_t from, uint32_t to)
{
    struct message *m = calloc(1, sizeof *m);
    uint64_t delay = sim_one_in(sim, 30) && !sim->heals ? sim_below(sim, 120) : sim_below(sim, 4);
    if (m == NULL)
        abort();
    m->kind = kind;
    m->from = from;
    m->to = to;
    m->life = is_node(to) ? sim->nodes[to].life : 0;
    m->at = sim->now + 1 + delay;
    if (m->at < sim->last_at[from][to])
        m->at = sim->last_at[from][to];
    sim->last_at[from][to] = m->at;
    struct message **last = &sim->messages;
    while (*last != NULL)
        last = &(*last)->next;
    *last = m;
    return m;
}

static void free_message(struct message *m)
{
    list_free(&m->records);
    free(m);
}

static void deliver(struct sim *sim, const struct message *m)
{
    sim->seen.events++;
    if (m->to == ETCD_END) {
        etcd_take(sim, m);
        return;
    }
    if (!is_node(m->to)) {
        client_take(sim, &sim->clients[m->client], m);
        return;
    }
    struct node *node = &sim->nodes[m->to];
    if (m->kind == MESSAGE_ETCD_ANSWER && node->is_up && m->life == node->life)
        member_take(sim, node, m);
    if (m->kind == MESSAGE_ETCD_ANSWER)
        return;
    if (m->kind != MESSAGE_ANSWER && (!node->is_up || m->life != node->life)) {
        sim->seen.lost_messages++;
        return;
    }
    if (m->kind == MESSAGE_OPEN)
        node_take_open(sim, node, m);
    else if (m->kind == MESSAGE_PUSH)
        node_take_push(sim, node, m);
    else if (m->kind == MESSAGE_ANSWER && node->is_up && m->life == node->life)
        follow_take_answer(sim, node, m);
    else if (m->kind == MESSAGE_ASK || m->kind == MESSAGE_TELL)
        follow_take_ask(sim, node, m);
    else if (m->kind == MESSAGE_HEARD)
        node->tells = false;
}

/* The first message that is due; one that meets a cut is lost with its connection, or waits. */
static struct message *take_due(struct sim *sim)
{
    for (struct message **at = &sim->messages; *at != NULL; at = &(*at)->next) {
        struct message *m = *at;
        if (m->at > sim->now || (is_node(m->to) && sim->nodes[m->to].stalled_until > sim->now))
            continue;
        uint64_t until = *cut_between(sim, m->from, m->to);
        if (until > sim->now && !sim_one_in(sim, 2)) {
            m->at = until;
            continue;
        }
        *at = m->next;
        if (until <= sim->now)
            return m;
        free_message(m);
        sim->seen.lost_messages++;
        return take_due(sim);
    }
    return NULL;
}

static void deliver_due(struct sim *sim)
{
    struct message *m;
    while ((m = take_due(sim)) != NULL) {
        struct message copy = *m;
        m->records = (struct record_list){.n = 0};
        free_message(m);
        list_free(&sim->in_hand);
        sim->in_hand = copy.records; /* freed also where the run fails */
        deliver(sim, &copy);
    }
}

/* ---- faults ---- */

static void draw_faults(struct sim *sim)
{
    uint32_t i = sim_below(sim, sim->n_nodes);
    if (sim_one_in(sim, sim->is_leased ? 120 : 60) && sim->nodes[i].is_up)
        node_crash(sim, &sim->nodes[i]);
    if (sim->is_leased && sim_one_in(sim, 300) && sim->nodes[sim->authority].is_up)
        node_stop(sim, &sim->nodes[sim->authority]);
    if (sim_one_in(sim, 40)) {
        uint32_t ends = sim->is_leased ? ENDS : ETCD_END;
        uint32_t a = sim_below(sim, ends), b = sim_below(sim, sim->n_nodes);
        uint64_t until = sim->now + sim_below(sim, 150);
        *cut_between(sim, a, b) = until;
        sim_say(sim, "nothing passes between %s %u and server %u until %llu",
                is_node(a) ? "server" : (a == ETCD_END ? "etcd" : "client"),
                is_node(a) ? a : a - NODES, b, (unsigned long long)until);
    }
    if (sim->is_leased && sim_one_in(sim, 80)) {
        sim->nodes[i].stalled_until = sim->now + sim_below(sim, 3 * LEASE_MS);
        sim_say(sim, "server %u stands still until %llu", i,
                (unsigned long long)sim->nodes[i].stalled_until);
        sim->seen.stalls++;
    }
}

/* ---- the operator ---- */

static void promote(struct sim *sim, struct node *node)
{
    if (node->is_up && sim_one_in(sim, 2))
        node_crash(sim, node);
    if (!node->is_up)
        node_start(sim, node);
    if (!follow_is_ready(sim, node)) /* the start has an older note, without its primary's epoch */
        return;
    uint32_t before = sim->authority;
    follow_promote(sim, node, node->disk.note.epoch + 1);
    sim->authority = node->index;
    check_none_lost(sim, node, "after a promotion");
    for (uint32_t i = 0; i < sim->n_nodes && sim->is_rash; i++) {
        struct node *other = &sim->nodes[i];
        if (other->is_up && other->target == before && other->disk.note.state == NOTE_FOLLOWING &&
            other != node) {
            follow_promote(sim, other, other->disk.note.epoch + 1);
            sim->seen.doubles++;
        }
    }
}

/* Servers that are not the primary are told to follow it, each at its time; one with a journal of
 * its own begins with an empty directory. */
static void point(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->n_nodes; i++) {
        struct node *node = &sim->nodes[i];
        bool is_own = node->disk.note.state == NOTE_OWN ||
                      node->disk.note.state == NOTE_MADE_PRIMARY ||
                      node->disk.note.state == NOTE_DEPOSED_BY;
        if (i != sim->authority && node->is_up && (is_own || node->target != sim->authority) &&
            sim_one_in(sim, sim->heals ? 10 : 150))
            follow_begin(sim, node, sim->authority);
    }
}

static void operate(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->n_nodes; i++)
        if (!sim->nodes[i].is_up && sim->now >= sim->nodes[i].back_at)
            node_start(sim, &sim->nodes[i]);
    if (sim->is_leased)
        return;
    point(sim);
    if (sim->heals || sim->now < sim->promote_at)
        return;
    uint32_t i = sim_below(sim, sim->n_nodes);
    if (i == sim->authority || !follow_is_ready(sim, &sim->nodes[i]))
        return;
    promote(sim, &sim->nodes[i]);
    sim->promote_at = sim->now + 60 + sim_below(sim, 300);
}

/* ---- a run ---- */

static void draw_schemas(struct sim *sim)
{
    static const embd_optimizer_kind kinds[] = {EMBD_OPTIMIZER_SGD, EMBD_OPTIMIZER_ADAGRAD,
                                                EMBD_OPTIMIZER_ADAM, EMBD_OPTIMIZER_FTRL};
    for (uint32_t i = 0; i < 2; i++) {
        embd_schema *s = &sim->schemas[i];
        embd_schema_init(s);
        snprintf(s->name, sizeof s->name, "%s", i == 0 ? "counters" : "shared");
        s->dim = DIM;
        s->durability =
            sim->promise == PROMISE_BUFFERED ? EMBD_DURABILITY_BUFFERED : EMBD_DURABILITY_DURABLE;
        embd_optimizer_init(&s->optimizer, EMBD_OPTIMIZER_SGD, 1.0f);
        s->initializer.kind = EMBD_INITIALIZER_CONSTANT;
        s->initializer.a = s->initializer.b = 0.0f;
    }
    embd_schema *s = &sim->schemas[1];
    embd_optimizer_init(&s->optimizer, kinds[sim_below(sim, 4)], 0.05f);
    s->initializer.kind = EMBD_INITIALIZER_UNIFORM;
    s->initializer.a = -0.05f, s->initializer.b = 0.05f;
    s->admit_after = sim_below(sim, 3);
    if (sim_one_in(sim, 3))
        return;
    s->capacity = 5 + sim_below(sim, 4);
    s->on_full = sim_one_in(sim, 2) ? EMBD_ON_FULL_EVICT_LRU : EMBD_ON_FULL_EVICT_TTL;
    if (s->on_full == EMBD_ON_FULL_EVICT_TTL)
        s->ttl_seconds = 4 + sim_below(sim, 8);
}

static void begin(struct sim *sim)
{
    sim->promise = (enum promise)sim_below(sim, PROMISES);
    if (sim->out >= OUT_FENCE)
        sim->promise = PROMISE_REPLICATED;
    sim->is_leased =
        sim->promise == PROMISE_REPLICATED && (sim_one_in(sim, 2) || sim->out >= OUT_FENCE);
    sim->is_rash = !sim->is_leased && sim_one_in(sim, 8);
    sim->n_nodes = 2 + sim_below(sim, NODES - 1);
    sim->promote_at = 50 + sim_below(sim, 400);
    draw_schemas(sim);
    for (uint32_t i = 0; i < NODES; i++)
        node_open(sim, &sim->nodes[i], i);
    node_create_tables(sim, &sim->nodes[0]);
    for (uint32_t i = 0; i < sim->n_nodes; i++) {
        sim->nodes[i].is_up = true;
        sim->nodes[i].life = 1;
        if (i > 0)
            follow_begin(sim, &sim->nodes[i], 0);
        member_start(sim, &sim->nodes[i]);
    }
    for (uint32_t i = 0; i < CLIENTS; i++)
        sim->clients[i].index = i;
}

/* A follower whose journal is longer than what it has compared, and than the primary's, keeps its
 * last records until the primary writes others. */
static bool is_over(const struct sim *sim)
{
    const struct node *primary = &sim->nodes[sim->authority];
    for (uint32_t i = 0; i < CLIENTS; i++)
        if (sim->clients[i].acked < PUSHES && !sim->is_rash)
            return false;
    for (uint32_t i = 0; i < sim->n_nodes; i++) {
        const struct node *node = &sim->nodes[i];
        if (!node->is_up || (sim->is_leased && primary->member.state != MEMBER_LEADS) ||
            (i != sim->authority && (node->disk.note.state != NOTE_FOLLOWING ||
                                     node->place.position != primary->applied.position ||
                                     node->applied.position < node->place.position)))
            return false;
    }
    return true;
}

static void tick(struct sim *sim, struct node *node)
{
    node_tick(sim, node);
    follow_tick(sim, node);
    if (sim->is_leased)
        member_tick(sim, node);
}

static void run(struct sim *sim)
{
    begin(sim);
    while (!(sim->heals && is_over(sim))) {
        if (sim->now++ == LONGEST_MS)
            sim_fail(sim, "it goes on and on without faults");
        sim->heals = sim->now > (sim->is_leased ? LEASED_FAULTS_MS : FAULTS_MS);
        if (!sim->heals)
            draw_faults(sim);
        operate(sim);
        deliver_due(sim);
        for (uint32_t i = 0; i < sim->n_nodes; i++)
            if (sim->nodes[i].is_up && sim->nodes[i].stalled_until <= sim->now)
                tick(sim, &sim->nodes[i]);
        for (uint32_t i = 0; i < CLIENTS; i++)
            client_tick(sim, &sim->clients[i]);
    }
    check_none_lost(sim, &sim->nodes[sim->authority], "at the end");
}

static void end(struct sim *sim)
{
    for (uint32_t i = 0; i < NODES; i++)
        node_close(&sim->nodes[i]);
    for (struct message *m = sim->messages, *next; m != NULL; m = next) {
        next = m->next;
        free_message(m);
    }
    list_free(&sim->in_hand);
    for (struct sim_record *r = sim->records, *next; r != NULL; r = next) {
        next = r->next;
        free(r);
    }
}

const char *sim_run(struct sim *sim, uint64_t seed, enum part_out out, bool prints)
{
    struct seen seen = sim->seen;
    memset(sim, 0, sizeof *sim);
    *sim = (struct sim){.seed = seed, .dice = {seed}, .out = out, .prints = prints, .seen = seen};
    store_slice = 16;
    if (setjmp(sim->failed) == 0)
        run(sim);
    end(sim);
    return sim->why[0] != '\0' ? sim->why : NULL;
}
