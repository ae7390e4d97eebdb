/* client.c - the model of a client: it opens its stream, numbers its pushes, keeps some in flight,
 * and repeats what was not acknowledged, there or at another server.
 *
 * It believes the server of the greatest epoch that it has heard of, and of two with the same epoch
 * the first. */
#include <string.h>

#include "tests/sim/sim.h"

enum { SILENCE_MS = 50 };

struct push_number client_stream(uint32_t client, uint64_t sequence)
{
    return (struct push_number){
        .high = 7, .low = 100 + client, .stream = client, .sequence = sequence};
}

/* The first table counts pushes; in the other one clients meet. */
void client_fill(const struct sim *sim, struct sim_op *o, uint32_t client, uint64_t sequence)
{
    struct dice dice = {sim->seed * 1000003 + client * 1009 + sequence};
    o->keys[0][0] = client;
    o->grads[0][0] = -1.0f;
    o->grads[0][1] = -(float)sequence;
    for (uint32_t i = 0; i < SHARED_KEYS; i++)
        o->keys[1][i] = 1000 + dice_below(&dice, 12);
    for (uint32_t i = 0; i < SHARED_KEYS * DIM; i++)
        o->grads[1][i] = dice_float(&dice);
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t n = i == 0 ? 1 : SHARED_KEYS;
        o->op.parts[i].in = (struct part){.dtype = EMBD_DTYPE_F32,
                                          .n_keys = n,
                                          .n_rows = n,
                                          .want_status = true,
                                          .keys = o->keys[i],
                                          .grads = o->grads[i],
                                          .grads_bytes = n * DIM * sizeof(float)};
    }
}

static struct message *post(struct sim *sim, const struct client *client, enum message_kind kind)
{
    struct message *m = sim_send(sim, kind, sim_client_end(client->index), client->node);
    m->client = client->index;
    m->connection = client->connection;
    return m;
}

/* Messages of the connection before may still be on their way, and come behind the new one's. */
static void connect_again(struct sim *sim, struct client *client)
{
    client->node = sim_below(sim, sim->n_nodes);
    client->connection++;
    client->is_open = false;
    client->heard_at = sim->now;
    sim->last_at[sim_client_end(client->index)][client->node] = 0;
    post(sim, client, MESSAGE_OPEN);
}

static void push_more(struct sim *sim, struct client *client)
{
    while (client->sent < client->acked + IN_FLIGHT && client->sent < PUSHES)
        post(sim, client, MESSAGE_PUSH)->sequence = ++client->sent;
}

void client_tick(struct sim *sim, struct client *client)
{
    bool is_silent = sim->now - client->heard_at > SILENCE_MS;
    bool leaves = !sim->heals && sim_one_in(sim, 150);
    if (client->acked == PUSHES)
        return;
    if (client->connection == 0 || is_silent || leaves)
        connect_again(sim, client);
    else if (client->is_open && sim_one_in(sim, 4))
        push_more(sim, client);
}

/* False: another server has taken that one's place. */
static bool believes(struct sim *sim, struct client *client, const struct message *m)
{
    if (sim->out == OUT_CLIENT_EPOCH)
        return true;
    if (m->epoch < client->epoch || (m->epoch == client->epoch && m->from != client->epoch_node))
        return false;
    client->epoch = m->epoch;
    client->epoch_node = m->from;
    return true;
}

static void note_history(struct sim *sim, struct client *client, const struct message *m)
{
    if ((client->left >> m->history % 64 & 1) != 0)
        sim_fail(sim,
                 "client %u takes acknowledgements of server %u, and had those of its successor",
                 client->index, m->from);
    if (m->history != client->history)
        client->left |= UINT64_C(1) << client->history % 64;
    client->history = m->history;
}

static void take_opened(struct sim *sim, struct client *client, const struct message *m)
{
    client->is_open = true;
    if (m->sequence < client->acked && !check_may_lose(sim))
        sim_fail(sim, "client %u is told of push %llu as its last, and %llu was acknowledged",
                 client->index, (unsigned long long)m->sequence, (unsigned long long)client->acked);
    if (m->sequence < client->acked)
        client->acked = m->sequence;
    client->sent = client->acked;
    push_more(sim, client);
}

void client_take(struct sim *sim, struct client *client, const struct message *m)
{
    bool serves = m->reply != REPLY_REFUSED;
    if (m->connection != client->connection || (serves && !believes(sim, client, m)))
        return;
    if (m->reply == REPLY_REFUSED || m->reply == REPLY_GAP) {
        client->heard_at = sim->now > SILENCE_MS ? sim->now - SILENCE_MS + 5 : 0; /* soon */
        return;
    }
    client->heard_at = sim->now;
    if (m->reply == REPLY_OPENED) {
        take_opened(sim, client, m);
    } else if (m->sequence > client->acked && client->is_open) {
        note_history(sim, client, m);
        client->acked = m->sequence;
        sim->seen.acks++;
        sim_say(sim, "client %u: push %llu is acknowledged by server %u", client->index,
                (unsigned long long)m->sequence, m->from);
    }
}
