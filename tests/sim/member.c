/* member.c - the model of what server/member does with etcd (lead.c, elect.c, role.c): a process
 * takes the name under a lease, acknowledges nothing from some time before that may lapse (the
 * fence), and says who is in sync; followers say how far they are, and one that is in sync takes
 * the name when it has lapsed. A primary that ends in order names an heir, which takes the name at
 * once. One request is open at a time, and is given up after a while. */

#include "tests/sim/sim.h"

enum {
    PATIENCE_MS = LEASE_MS / 4,
    TURN_MS = LEASE_MS / 3,
    MOMENT_MS = 6,
    HEIR_MS = 30, /* for an heir to take the name */
    ORDER_MS = 10,
    LIVE_MS = 150
};

static uint64_t clock_of(const struct sim *sim, const struct node *node)
{
    return sim->now * (uint64_t)(1000 + node->rate) / 1000;
}

bool member_is_fenced(const struct sim *sim, const struct node *node)
{
    return sim->is_leased && sim->out != OUT_FENCE &&
           clock_of(sim, node) >= node->member.fenced_from;
}

static void extend(struct node *node)
{
    node->member.fenced_from = node->member.renewed_at + LEASE_MS - LEASE_MS / 10;
}

/* ---- sets of followers ---- */

static uint32_t start_of(uint32_t node, uint32_t life)
{
    return life * NODES + node;
}

static bool has(const struct start_set *set, uint32_t id)
{
    bool found = false;
    for (uint32_t i = 0; i < set->n; i++)
        found = found || set->ids[i] == id;
    return found;
}

static void add(struct start_set *set, uint32_t id)
{
    if (!has(set, id) && set->n < SET_MOST)
        set->ids[set->n++] = id;
}

static void add_all(struct start_set *set, const struct start_set *others)
{
    for (uint32_t i = 0; i < others->n; i++)
        add(set, others->ids[i]);
}

static bool is_same(const struct start_set *a, const struct start_set *b)
{
    bool same = a->n == b->n;
    for (uint32_t i = 0; i < a->n; i++)
        same = same && has(b, a->ids[i]);
    return same;
}

/* ---- asking ---- */

static struct etcd_ask *ask(struct sim *sim, struct node *node, enum etcd_kind kind)
{
    struct member *member = &node->member;
    struct message *m = sim_send(sim, MESSAGE_ETCD_ASK, node->index, ETCD_END);
    m->asker_life = node->life;
    m->question = ++member->question;
    m->etcd_ask = (struct etcd_ask){.kind = kind, .lease = member->lease};
    member->asked = kind;
    member->asked_at = clock_of(sim, node);
    member->is_open = true;
    return &m->etcd_ask;
}

static void pause_for(const struct sim *sim, struct member *member, uint64_t ms,
                      enum etcd_kind next)
{
    member->next_at = sim->now + ms;
    member->next = next;
}

/* ---- a primary ---- */

/* Another process has its place: this one ends, and starts again as a follower. */
static void lose(struct sim *sim, struct node *node)
{
    sim_say(sim, "server %u has lost its name", node->index);
    node->member.fenced_from = 0;
    sim->seen.names_lost++;
    node_crash(sim, node);
}

static bool is_others(const struct node *node, const struct etcd_state *seen)
{
    return (seen->is_held && seen->holder != node->index) || seen->epoch > node->disk.note.epoch ||
           (seen->epoch == node->disk.note.epoch && seen->epoch_node != node->index);
}

static void leave_name(struct sim *sim, struct member *member)
{
    member->state = MEMBER_LEASELESS;
    pause_for(sim, member, 1, ETCD_GRANT);
}

static void begin_to_lead(struct sim *sim, struct node *node)
{
    struct member *member = &node->member;
    member->state = MEMBER_LEADS;
    member->published = member->required = (struct start_set){.n = 0};
    member->is_unsure = false;
    extend(node);
    sim->authority = node->index;
    pause_for(sim, member, 1, ETCD_KEEP);
}

/* The followers that take its records, and those of them that have all that may have been
 * acknowledged before they were required. */
static void look(const struct sim *sim, const struct node *node, struct start_set *live,
                 struct start_set *even)
{
    const struct member *member = &node->member;
    *live = *even = (struct start_set){.n = 0};
    for (uint32_t i = 0; i < sim->n_nodes; i++) {
        uint32_t start = member->fed[i].start;
        if (start == 0 || sim->now - member->fed[i].at > LIVE_MS)
            continue;
        add(live, start);
        bool has_all = has(&member->required, start) && node->follower_disk[i] >= member->floor;
        if (has_all || sim->out == OUT_EVEN)
            add(even, start);
    }
}

static void require(struct node *node, const struct start_set *live)
{
    struct member *member = &node->member;
    struct start_set next = member->published;
    add_all(&next, live);
    if (is_same(&next, &member->required))
        return;
    member->required = next;
    member->floor = node->applied.position;
}

/* One more that is even, and without those that have gone, as long as enough are left. */
static struct start_set choose(const struct member *member, const struct start_set *live,
                               const struct start_set *even)
{
    struct start_set out = member->published;
    add_all(&out, even);
    for (uint32_t i = out.n; i > 0 && out.n > 1; i--)
        if (!has(live, out.ids[i - 1]))
            out.ids[i - 1] = out.ids[--out.n];
    return out;
}

static void note_insync(struct sim *sim, struct node *node, const struct etcd_state *seen)
{
    struct member *member = &node->member;
    struct start_set live, even;
    if (member->is_unsure) {
        member->published = seen->insync;
        member->insync_revision = seen->insync_revision;
    }
    look(sim, node, &live, &even);
    struct start_set next = choose(member, &live, &even);
    if (!is_same(&next, &member->published) || member->is_unsure) {
        struct etcd_ask *asked = ask(sim, node, ETCD_PUT_INSYNC);
        asked->name_revision = member->name_revision;
        asked->insync_revision = member->insync_revision;
        asked->insync = member->next_insync = next;
        member->is_unsure = true;
        return;
    }
    require(node, &live);
    pause_for(sim, member, TURN_MS, ETCD_KEEP);
}

/* ---- a primary that ends ---- */

/* A follower that is in sync and has all records; its start, 0: there is none. */
static uint32_t choose_heir(const struct sim *sim, const struct node *node)
{
    const struct member *member = &node->member;
    for (uint32_t i = 0; i < sim->n_nodes; i++) {
        uint32_t start = member->fed[i].start;
        bool is_live = start != 0 && sim->now - member->fed[i].at <= LIVE_MS;
        bool has_all = node->follower_disk[i] >= node->applied.position || sim->out == OUT_FINISH;
        bool is_insync = !member->is_unsure && has(&member->published, start);
        if (is_live && (sim->out == OUT_HEIR || (has_all && is_insync)))
            return start;
    }
    return 0;
}

/* False: it goes on as before. */
static bool hand_over(struct sim *sim, struct node *node)
{
    struct member *member = &node->member;
    bool is_finished = node_is_finished(node) || sim->out == OUT_FINISH || sim->out == OUT_HEIR;
    uint32_t heir = node->ends_at != 0 && is_finished ? choose_heir(sim, node) : 0;
    if (heir == 0)
        return false;
    struct etcd_ask *asked = ask(sim, node, ETCD_HAND_OVER);
    asked->start = heir;
    asked->epoch = node->disk.note.epoch;
    asked->name_revision = member->name_revision;
    member->fenced_from = 0;
    sim->handed = node->applied;
    return true;
}

static void lead(struct sim *sim, struct node *node, const struct etcd_answer *answer)
{
    struct member *member = &node->member;
    const struct etcd_state *seen = &answer->seen;
    struct start_set live, even;
    if (member->asked == ETCD_HAND_OVER) {
        member->state = MEMBER_LEAVES;
    } else if (member->asked == ETCD_KEEP && answer->is_done) {
        member->renewed_at = member->asked_at;
        extend(node);
        ask(sim, node, ETCD_READ);
    } else if (member->asked == ETCD_KEEP) {
        leave_name(sim, member);
    } else if (is_others(node, seen)) {
        lose(sim, node);
    } else if (seen->name_revision != member->name_revision) {
        member->fenced_from = 0;
        leave_name(sim, member);
    } else if (member->asked == ETCD_PUT_INSYNC && answer->is_done) {
        member->is_unsure = false;
        member->published = member->next_insync;
        member->insync_revision = seen->insync_revision;
        sim->seen.insync++;
        look(sim, node, &live, &even);
        require(node, &live);
        pause_for(sim, member, TURN_MS, ETCD_KEEP);
    } else {
        note_insync(sim, node, seen);
    }
}

/* It has no name, and had it, or nobody has. */
static void take_own(struct sim *sim, struct node *node, const struct etcd_answer *answer)
{
    struct member *member = &node->member;
    if (member->asked == ETCD_GRANT) {
        member->lease = answer->lease;
        member->renewed_at = member->asked_at;
        member->state = MEMBER_NAMELESS;
        ask(sim, node, ETCD_READ);
    } else if (is_others(node, &answer->seen)) {
        lose(sim, node);
    } else if (member->asked == ETCD_TAKE && answer->is_done) {
        member->name_revision = member->insync_revision = answer->seen.name_revision;
        begin_to_lead(sim, node);
    } else if (member->asked == ETCD_READ) {
        struct etcd_ask *asked = ask(sim, node, ETCD_TAKE);
        asked->epoch = node->disk.note.epoch;
        asked->name_revision = answer->seen.name_revision;
        asked->epoch_revision = answer->seen.epoch_revision;
    } else {
        leave_name(sim, member);
    }
}

/* ---- a follower ---- */

static bool is_ready(const struct node *node)
{
    return node->disk.note.state == NOTE_FOLLOWING;
}

static bool may_lead(const struct sim *sim, const struct etcd_state *seen, uint32_t i)
{
    const struct etcd_follower *f = &seen->followers[i];
    return f->start != 0 && f->is_ready && (sim->out == OUT_INSYNC || has(&seen->insync, f->start));
}

static bool is_named(const struct etcd_state *seen)
{
    return seen->heir != 0 && seen->heir_epoch == seen->epoch;
}

static bool is_heir_of(const struct node *node, const struct etcd_state *seen)
{
    return is_named(seen) && seen->heir == start_of(node->index, node->life);
}

/* How many go first; NODES: it may not. */
static uint32_t rank_of(const struct sim *sim, const struct node *node,
                        const struct etcd_state *seen)
{
    uint32_t rank = 0, own = node->index;
    bool was_last = seen->epoch_node == own && seen->insync.n == 0 && sim->out != OUT_TAKEN;
    bool is_heir = is_heir_of(node, seen), may = was_last || may_lead(sim, seen, own);
    if (!is_ready(node) || seen->followers[own].start != start_of(own, node->life) ||
        !(may || (is_heir && sim->out == OUT_HEIR)))
        return NODES;
    for (uint32_t i = 0; i < sim->n_nodes && !is_heir; i++) {
        uint64_t theirs = seen->followers[i].position, ours = seen->followers[own].position;
        if (i != own && may_lead(sim, seen, i))
            rank += theirs > ours || (theirs == ours && i < own);
    }
    return rank;
}

static void elect(struct sim *sim, struct node *node, const struct etcd_state *seen)
{
    struct member *member = &node->member;
    member->absent_since = member->absent_since != 0 ? member->absent_since : sim->now;
    uint32_t rank = rank_of(sim, node, seen);
    uint64_t moment = is_heir_of(node, seen) ? 0 : is_named(seen) ? HEIR_MS : MOMENT_MS;
    if (seen->epoch == 0 || rank == NODES ||
        sim->now < member->absent_since + moment + rank * ORDER_MS) {
        pause_for(sim, member, 3, ETCD_KEEP);
        return;
    }
    struct etcd_ask *asked = ask(sim, node, ETCD_TAKE);
    asked->start = start_of(node->index, node->life);
    asked->epoch = seen->epoch + (sim->out != OUT_EPOCH);
    asked->name_revision = seen->name_revision;
    asked->epoch_revision = seen->epoch_revision;
}

/* An heir has all records, also those that nobody waited for. */
static void check_heir(struct sim *sim, const struct node *node)
{
    const struct place *own = &node->place, *all = &sim->handed;
    sim->seen.heirs++;
    if (own->position != all->position || own->chain != all->chain)
        sim_fail(sim, "server %u was named, and is at record %llu of the primary's %llu",
                 node->index, (unsigned long long)own->position, (unsigned long long)all->position);
}

static void rise(struct sim *sim, struct node *node, uint64_t epoch)
{
    struct member *member = &node->member;
    if (sim->etcd.is_heirs && sim->etcd.epoch == epoch)
        check_heir(sim, node);
    follow_promote(sim, node, epoch);
    node->is_aside = false;
    member->absent_since = 0;
    member->state = MEMBER_NAMELESS;
    sim->authority = node->index;
    sim->seen.names_taken++;
    check_none_lost(sim, node, "after it took the name");
    pause_for(sim, member, 0, ETCD_READ);
}

static void go_with(struct sim *sim, struct node *node, uint32_t holder)
{
    node->member.absent_since = 0;
    if (node->target != holder ||
        (node->disk.note.state != NOTE_FOLLOWING && node->disk.note.state != NOTE_BEGUN))
        follow_begin(sim, node, holder);
    pause_for(sim, &node->member, TURN_MS, ETCD_KEEP);
}

static void say_how_far(struct sim *sim, struct node *node)
{
    struct etcd_ask *asked = ask(sim, node, ETCD_PUT_FOLLOWER);
    asked->follower = (struct etcd_follower){.start = start_of(node->index, node->life),
                                             .lease = node->member.lease,
                                             .position = node->applied.position,
                                             .is_ready = is_ready(node)};
}

static void follow(struct sim *sim, struct node *node, const struct etcd_answer *answer)
{
    struct member *member = &node->member;
    const struct etcd_state *seen = &answer->seen;
    if (member->asked == ETCD_GRANT)
        member->lease = answer->lease;
    if (!answer->is_done && member->asked != ETCD_TAKE) {
        pause_for(sim, member, 1, ETCD_GRANT);
    } else if (member->asked == ETCD_GRANT || member->asked == ETCD_KEEP) {
        member->renewed_at = member->asked_at;
        say_how_far(sim, node);
    } else if (member->asked == ETCD_PUT_FOLLOWER) {
        ask(sim, node, ETCD_READ);
    } else if (seen->is_held && seen->holder != node->index) {
        go_with(sim, node, seen->holder);
    } else if (seen->is_held && is_ready(node)) {
        rise(sim, node, seen->epoch); /* now, or by an attempt whose answer was lost */
    } else {
        elect(sim, node, seen);
    }
}

/* ---- a start ---- */

static bool has_heir(const struct sim *sim, const struct etcd_state *seen)
{
    bool is_there = false;
    for (uint32_t i = 0; i < sim->n_nodes; i++)
        is_there = is_there || may_lead(sim, seen, i);
    return is_there;
}

static void find_role(struct sim *sim, struct node *node, const struct etcd_state *seen)
{
    struct member *member = &node->member;
    const struct sim_note *note = &node->disk.note;
    bool is_primarys = note->state == NOTE_OWN || note->state == NOTE_MADE_PRIMARY;
    bool was_last = seen->epoch == 0
                        ? note->state == NOTE_OWN
                        : seen->epoch_node == node->index &&
                              (is_primarys ? seen->epoch <= note->epoch : is_ready(node));
    if (seen->is_held && seen->holder == node->index) {
        pause_for(sim, member, 5, ETCD_READ); /* by its earlier life */
    } else if (!seen->is_held && was_last && has_heir(sim, seen)) {
        pause_for(sim, member, 5, ETCD_READ);
    } else if (!seen->is_held && was_last) {
        if (!is_primarys) /* it took the name, and died before its tables were promoted */
            rise(sim, node, seen->epoch);
        node->is_aside = false;
        member->state = MEMBER_LEASELESS;
        ask(sim, node, ETCD_GRANT);
    } else {
        member->state = MEMBER_FOLLOWS;
        if (seen->is_held)
            go_with(sim, node, seen->holder);
        pause_for(sim, member, 0, ETCD_GRANT);
    }
}

/* ---- turns ---- */

void member_start(const struct sim *sim, struct node *node)
{
    node->member = (struct member){.question = node->member.question};
    node->is_aside = sim->is_leased;
    pause_for(sim, &node->member, 1, ETCD_READ);
}

void member_tick(struct sim *sim, struct node *node)
{
    struct member *member = &node->member;
    if (member->is_open && clock_of(sim, node) - member->asked_at > PATIENCE_MS) {
        member->is_open = false; /* it may take effect later */
        member->question++;
        pause_for(sim, member, 2,
                  member->state == MEMBER_LEADS || member->state == MEMBER_FOLLOWS
                      ? (member->lease != 0 ? ETCD_KEEP : ETCD_GRANT)
                  : member->state == MEMBER_LEASELESS ? ETCD_GRANT
                                                      : ETCD_READ);
    }
    if (node->ends_at != 0 && (sim->now >= node->ends_at || member->state == MEMBER_LEAVES)) {
        node_end(sim, node);
        return;
    }
    if (member->is_open || sim->now < member->next_at)
        return;
    if (member->state != MEMBER_LEADS || member->next != ETCD_KEEP || !hand_over(sim, node))
        ask(sim, node, member->next);
}

void member_take(struct sim *sim, struct node *node, const struct message *m)
{
    static void (*const steps[])(struct sim *, struct node *, const struct etcd_answer *) = {
        [MEMBER_LEASELESS] = take_own,
        [MEMBER_NAMELESS] = take_own,
        [MEMBER_LEADS] = lead,
        [MEMBER_FOLLOWS] = follow,
    };
    struct member *member = &node->member;
    if (!member->is_open || m->question != member->question)
        return;
    member->is_open = false;
    if (member->state == MEMBER_STARTS)
        find_role(sim, node, &m->etcd_answer.seen);
    else
        steps[member->state](sim, node, &m->etcd_answer);
}

void member_note_fed(const struct sim *sim, struct node *node, const struct message *m)
{
    node->member.fed[m->from].start = start_of(m->from, m->asker_life);
    node->member.fed[m->from].at = sim->now;
}

bool member_has(const struct sim *sim, struct node *node, uint64_t position)
{
    struct member *member = &node->member;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < member->required.n; i++) {
        uint32_t start = member->required.ids[i], from = start % NODES;
        bool is_fed =
            member->fed[from].start == start && sim->now - member->fed[from].at <= LIVE_MS;
        uint64_t theirs = is_fed ? node->follower_disk[from] : 0;
        least = theirs < least ? theirs : least;
    }
    if (member->required.n > 0 && least > member->reached)
        member->reached = least;
    return member->reached >= position;
}
