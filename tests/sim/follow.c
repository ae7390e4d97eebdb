/* follow.c - the model of following: what server/service/following.c, following_records.c,
 * following_anew.c, handle_follow.c and deposing.c do, without sockets, threads and files. Records
 * are checked, read and sealed by the real code.
 *
 * A follower has one question open. The primary answers with records that it has applied, or that
 * the place is not in its journal; then the follower begins anew with a base. With the promise
 * `replicated` the primary notes which followers have all it has acknowledged, and acknowledges
 * nothing more that they all do not have on disk. */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"

enum { ANSWER_MOST = 4, WAIT_MS = 15, QUESTION_MS = 45 };

/* ---- the primary ---- */

bool follow_has(const struct sim *sim, const struct node *node, uint64_t position)
{
    bool all = true, any = node->disk.required == 0;
    for (uint32_t i = 0; i < sim->n_nodes; i++) {
        bool is_required = (node->disk.required >> i & 1) != 0;
        bool has = node->follower_disk[i] >= position;
        all = all && (!is_required || has);
        any = any || (is_required && has);
    }
    return sim->out == OUT_ONE ? any : all;
}

/* Whether the journal has that place; NULL: it has. */
static const char *why_gone(const struct sim *sim, const struct node *node, struct place place)
{
    const struct disk *disk = &node->disk;
    if (place.position > node->applied.position)
        return "it has records that this journal has not";
    if (place.position < disk->begin.position)
        return "a base has taken the place of its next records";
    if (sim->out == OUT_CHAIN)
        return NULL;
    uint64_t chain = place.position == disk->begin.position
                         ? disk->begin.chain
                         : disk_at(disk, place.position - 1)->checksum;
    return chain == place.chain ? NULL : "its records are not those of this journal";
}

static struct message *begin_answer(struct sim *sim, struct node *node, uint32_t to)
{
    struct message *m = sim_send(sim, MESSAGE_ANSWER, node->index, to);
    m->question = node->asked[to].question;
    m->life = node->asked[to].life;
    m->epoch = node->disk.note.epoch;
    node->asked[to].is_there = false;
    return m;
}

static void answer_base(struct sim *sim, struct node *node, uint32_t to)
{
    struct message *m = begin_answer(sim, node, to);
    const struct disk *disk = &node->disk;
    m->is_base = true;
    m->behind = node->applied;
    for (uint32_t i = 0; i < disk->base.n; i++)
        list_add(&m->records, disk->base.list[i]);
    for (uint64_t i = disk->begin.position; i < node->applied.position; i++)
        list_add(&m->records, disk_at(disk, i));
}

static void answer_records(struct sim *sim, struct node *node, uint32_t to)
{
    uint64_t at = node->asked[to].place.position;
    struct message *m = begin_answer(sim, node, to);
    for (uint32_t n = 0; n < ANSWER_MOST && at < node->applied.position; n++, at++)
        list_add(&m->records, disk_at(&node->disk, at));
}

static void answer_one(struct sim *sim, struct node *node, uint32_t to)
{
    struct place place = node->asked[to].place;
    if (node->asked[to].is_base) {
        answer_base(sim, node, to);
    } else if (why_gone(sim, node, place) != NULL) {
        sim_say(sim, "server %u to %u: %s", node->index, to, why_gone(sim, node, place));
        begin_answer(sim, node, to)->is_gone = true;
        sim->seen.gone++;
    } else if (place.position < node->applied.position ||
               sim->now - node->asked[to].at >= WAIT_MS) {
        answer_records(sim, node, to);
    }
}

void follow_take_ask(struct sim *sim, struct node *node, const struct message *m)
{
    if (node_serves(node) && m->epoch > node->disk.note.epoch)
        node_depose(sim, node, m->epoch);
    if (m->kind == MESSAGE_TELL) {
        if (!node_serves(node) || sim->out == OUT_HEED)
            sim_send(sim, MESSAGE_HEARD, node->index, m->from);
        return;
    }
    if (!node_serves(node))
        return;
    node->asked[m->from].is_there = true;
    node->asked[m->from].is_base = m->is_base;
    node->asked[m->from].life = m->asker_life;
    node->asked[m->from].question = m->question;
    node->asked[m->from].at = sim->now;
    node->asked[m->from].place = m->place;
    if (m->is_base || why_gone(sim, node, m->place) != NULL)
        return;
    node->follower_disk[m->from] = m->disk;
    member_note_fed(sim, node, m);
    if (m->disk >= node->applied.position && !sim->is_leased)
        node->disk.required |= UINT64_C(1) << m->from;
}

/* ---- the follower ---- */

static bool follows(const struct node *node)
{
    return node->disk.note.state == NOTE_FOLLOWING || node->disk.note.state == NOTE_BEGUN;
}

static void store_note(struct node *node)
{
    node->disk.stored_note = node->disk.note;
}

static void begin_anew(struct sim *sim, struct node *node, const char *why)
{
    sim_say(sim, "server %u begins anew: %s", node->index, why);
    node->disk.note.state = NOTE_BEGUN;
    node->disk.note.place = (struct place){0, 0};
    store_note(node);
    disk_clear(&node->disk, (struct place){0, 0});
    node_empty_engine(node);
    node->applied = node->place = (struct place){0, 0};
    node->has_next_place = false;
    sim->seen.anew++;
}

void follow_begin(struct sim *sim, struct node *node, uint32_t target)
{
    sim_say(sim, "server %u is to follow server %u", node->index, target);
    node->target = target;
    node->asked_at = 0;
    node->question++;
    node->tells = false;
    if (follows(node))
        return;
    node->disk.note = (struct sim_note){.state = NOTE_BEGUN, .epoch = 1};
    node->disk.required = 0;
    node->has_heard = false;
    begin_anew(sim, node, "an empty directory");
}

static void take_base(struct sim *sim, struct node *node, const struct message *m)
{
    struct disk *disk = &node->disk;
    for (uint32_t i = 0; i < m->records.n; i++)
        node_replay(sim, node, m->records.list[i]);
    disk_clear(disk, m->behind);
    for (uint32_t i = 0; i < m->records.n; i++)
        list_add(&disk->base, m->records.list[i]);
    node->applied = node->place = m->behind;
    disk->note = (struct sim_note){.state = NOTE_FOLLOWING, .epoch = m->epoch, .place = m->behind};
    store_note(node);
    sim_say(sim, "server %u has the base of server %u, at record %llu", node->index, m->from,
            (unsigned long long)m->behind.position);
    check_note_digest(sim, node, m->behind.chain, check_digest(sim, node));
}

/* Whether the own journal, which was longer than the note says, has the same record there. */
static bool is_own(struct node *node, const struct sim_record *theirs)
{
    if (theirs->position < node->disk.begin.position)
        return false;
    const struct sim_record *own = disk_at(&node->disk, theirs->position);
    uint64_t n = theirs->n_bytes - RECORD_HEADER_BYTES;
    return own->n_bytes == theirs->n_bytes &&
           record_sum(own->bytes + RECORD_HEADER_BYTES, n) ==
               record_sum(theirs->bytes + RECORD_HEADER_BYTES, n);
}

static void take_record(struct sim *sim, struct node *node, struct sim_record *theirs)
{
    struct record fields;
    struct frame_scanner frame;
    if (!record_check(theirs->bytes, theirs->n_bytes, &fields))
        sim_fail(sim, "a record came that is none");
    record_frame(theirs->bytes, &fields, &frame);
    disk_append(sim, &node->disk, &frame)->origin = theirs->checksum;
    node->engine.n_recorded++;
}

static void take_records(struct sim *sim, struct node *node, const struct message *m)
{
    for (uint32_t i = 0; i < m->records.n; i++) {
        struct sim_record *theirs = m->records.list[i];
        bool is_next =
            theirs->position == node->place.position && theirs->chain == node->place.chain;
        if (!is_next && sim->out != OUT_CHAIN)
            return; /* it is asked for again */
        bool has = theirs->position < disk_end(&node->disk).position;
        if (has && sim->out != OUT_CHAIN && !is_own(node, theirs)) {
            sim->seen.other++;
            begin_anew(sim, node, "its journal has another record in the place of one there");
            return;
        }
        sim->seen.compared += has;
        if (!has)
            take_record(sim, node, theirs);
        node->place = (struct place){theirs->position + 1, theirs->checksum};
    }
}

void follow_take_answer(struct sim *sim, struct node *node, const struct message *m)
{
    if (m->question != node->question || node->asked_at == 0 || !follows(node))
        return;
    node->asked_at = 0;
    if (m->epoch < node->disk.note.epoch)
        return;
    node->disk.note.epoch = m->epoch;
    if (m->is_gone)
        begin_anew(sim, node, "its place is gone");
    else if (m->is_base && node->disk.note.state == NOTE_BEGUN)
        take_base(sim, node, m);
    else if (!m->is_base && node->disk.note.state == NOTE_FOLLOWING)
        take_records(sim, node, m);
}

/* Where both journals are the same, once the one here has that on disk. */
static void note_place(struct sim *sim, struct node *node)
{
    struct sim_note *note = &node->disk.note;
    if (node->has_next_place && node->disk.synced >= node->next_place.position) {
        note->place = node->next_place;
        node->has_next_place = false;
    } else if (!node->has_next_place && node->place.position > note->place.position) {
        node->next_place = node->place;
        node->has_next_place = true;
    } else if (sim_one_in(sim, 20)) {
        store_note(node);
    }
}

static void ask(struct sim *sim, struct node *node)
{
    struct message *m = sim_send(sim, MESSAGE_ASK, node->index, node->target);
    bool is_behind = node->disk.synced < node->place.position;
    m->question = ++node->question;
    m->asker_life = node->life;
    m->epoch = node->disk.note.epoch;
    m->is_base = node->disk.note.state == NOTE_BEGUN;
    m->place = node->place;
    m->disk = is_behind ? node->disk.synced : node->place.position;
    node->asked_at = sim->now;
}

static void tell(struct sim *sim, struct node *node)
{
    struct message *m = sim_send(sim, MESSAGE_TELL, node->index, node->target);
    m->epoch = node->disk.note.epoch;
}

void follow_tick(struct sim *sim, struct node *node)
{
    if (node_serves(node)) {
        for (uint32_t i = 0; i < sim->n_nodes; i++)
            if (node->asked[i].is_there)
                answer_one(sim, node, i);
        if (node->tells && sim_one_in(sim, 20))
            tell(sim, node);
    } else if (follows(node)) {
        if (node->disk.note.state == NOTE_FOLLOWING)
            note_place(sim, node);
        if (node->asked_at == 0 || sim->now - node->asked_at > QUESTION_MS)
            ask(sim, node);
    }
}

/* ---- promotion ---- */

/* A follower that has not heard of its primary's epoch would be promoted to that one once more, and
 * no client could tell the two apart. */

bool follow_is_ready(const struct sim *sim, const struct node *node)
{
    const struct node *primary = &sim->nodes[sim->authority];
    return node->disk.note.state == NOTE_FOLLOWING && node->target == sim->authority &&
           node->disk.note.epoch == primary->disk.note.epoch &&
           (sim->promise != PROMISE_REPLICATED || (primary->disk.required >> node->index & 1) != 0);
}

void follow_promote(struct sim *sim, struct node *node, uint64_t epoch)
{
    struct disk *disk = &node->disk;
    disk->written = disk->synced = disk_end(disk).position;
    node_tick(sim, node);
    disk->note.state = NOTE_MADE_PRIMARY;
    disk->note.epoch = epoch;
    disk->required = 0;
    store_note(node);
    node->history = ++sim->n_histories;
    node->tells = true;
    sim_say(sim, "server %u is promoted, at record %llu, in epoch %llu", node->index,
            (unsigned long long)node->applied.position, (unsigned long long)disk->note.epoch);
    sim->seen.promotions++;
}
