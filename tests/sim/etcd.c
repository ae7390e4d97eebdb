/* etcd.c - the model of etcd: who has the name, in which epoch, and who is in sync, under leases
 * that lapse by etcd's own clock. Each request is one transaction; it takes effect when it arrives,
 * also where its sender has given it up meanwhile. */
#include "tests/sim/sim.h"

static bool lives(const struct sim *sim, uint32_t node, uint32_t lease)
{
    const struct etcd_state *etcd = &sim->etcd;
    return lease != 0 && etcd->leases[node] == lease && etcd->lapses_at[node] > sim->now;
}

/* What stands under a lease goes with it. */
static void let_lapse(struct sim *sim)
{
    struct etcd_state *etcd = &sim->etcd;
    for (uint32_t i = 0; i < NODES; i++)
        if (!lives(sim, i, etcd->followers[i].lease))
            etcd->followers[i].start = 0;
    if (etcd->is_held && !lives(sim, etcd->holder, etcd->name_lease)) {
        etcd->is_held = false;
        etcd->name_revision = ++etcd->revision;
        sim_say(sim, "etcd: the name of server %u lapses", etcd->holder);
    }
}

static void grant(struct sim *sim, uint32_t node, struct etcd_answer *out)
{
    struct etcd_state *etcd = &sim->etcd;
    out->lease = etcd->leases[node] = ++etcd->n_leases;
    etcd->lapses_at[node] = sim->now + LEASE_MS;
    out->is_done = true;
}

static void keep(struct sim *sim, uint32_t node, const struct etcd_ask *ask,
                 struct etcd_answer *out)
{
    out->is_done = lives(sim, node, ask->lease);
    if (out->is_done)
        sim->etcd.lapses_at[node] = sim->now + LEASE_MS;
}

/* Name, epoch and an empty set at once, where neither name nor epoch has changed meanwhile. */
static void take(struct sim *sim, uint32_t node, const struct etcd_ask *ask,
                 struct etcd_answer *out)
{
    struct etcd_state *etcd = &sim->etcd;
    bool is_free = !etcd->is_held || etcd->holder == node;
    out->is_done = is_free && lives(sim, node, ask->lease) &&
                   etcd->name_revision == ask->name_revision &&
                   (sim->out == OUT_EPOCH || etcd->epoch_revision == ask->epoch_revision);
    if (!out->is_done)
        return;
    etcd->is_heirs = ask->start != 0 && ask->start == etcd->heir && etcd->heir_epoch == etcd->epoch;
    etcd->is_held = true;
    etcd->holder = etcd->epoch_node = node;
    etcd->name_lease = ask->lease;
    etcd->epoch = ask->epoch;
    etcd->insync = (struct start_set){.n = 0};
    etcd->heir = 0;
    etcd->name_revision = etcd->epoch_revision = etcd->insync_revision = ++etcd->revision;
    sim_say(sim, "etcd: server %u has the name, in epoch %llu", node,
            (unsigned long long)ask->epoch);
}

static void put_insync(struct sim *sim, uint32_t node, const struct etcd_ask *ask,
                       struct etcd_answer *out)
{
    struct etcd_state *etcd = &sim->etcd;
    out->is_done = etcd->is_held && etcd->holder == node &&
                   etcd->name_revision == ask->name_revision &&
                   etcd->insync_revision == ask->insync_revision;
    if (!out->is_done)
        return;
    etcd->insync = ask->insync;
    etcd->insync_revision = ++etcd->revision;
}

/* The name goes, and the heir is named. */
static void hand_over(struct sim *sim, uint32_t node, const struct etcd_ask *ask,
                      struct etcd_answer *out)
{
    struct etcd_state *etcd = &sim->etcd;
    out->is_done =
        etcd->is_held && etcd->holder == node && etcd->name_revision == ask->name_revision;
    if (!out->is_done)
        return;
    etcd->is_held = false;
    etcd->heir = ask->start;
    etcd->heir_epoch = ask->epoch;
    etcd->name_revision = ++etcd->revision;
    sim->seen.handed_over++;
    sim_say(sim, "etcd: server %u names server %u", node, ask->start % NODES);
}

static void put_follower(struct sim *sim, uint32_t node, const struct etcd_ask *ask,
                         struct etcd_answer *out)
{
    out->is_done = lives(sim, node, ask->lease);
    if (out->is_done)
        sim->etcd.followers[node] = ask->follower;
}

void etcd_take(struct sim *sim, const struct message *m)
{
    const struct etcd_ask *ask = &m->etcd_ask;
    struct message *answer = sim_send(sim, MESSAGE_ETCD_ANSWER, ETCD_END, m->from);
    struct etcd_answer *out = &answer->etcd_answer;
    let_lapse(sim);
    answer->life = m->asker_life;
    answer->question = m->question;
    switch (ask->kind) {
    case ETCD_GRANT:
        grant(sim, m->from, out);
        break;
    case ETCD_KEEP:
        keep(sim, m->from, ask, out);
        break;
    case ETCD_TAKE:
        take(sim, m->from, ask, out);
        break;
    case ETCD_PUT_INSYNC:
        put_insync(sim, m->from, ask, out);
        break;
    case ETCD_HAND_OVER:
        hand_over(sim, m->from, ask, out);
        break;
    case ETCD_PUT_FOLLOWER:
        put_follower(sim, m->from, ask, out);
        break;
    case ETCD_READ:
        out->is_done = true;
        break;
    }
    out->seen = sim->etcd;
}
