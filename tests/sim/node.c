/* node.c - a server: what its disk has on its way into the engine, and the answers to clients. */
#include <stdlib.h>
#include <string.h>

#include "server/engine/apply.h"
#include "server/engine/capacity.h"
#include "server/engine/check.h"
#include "server/engine/unpack.h"
#include "tests/sim/sim.h"

/* ---- starts and ends ---- */

void node_empty_engine(struct node *node)
{
    for (uint32_t i = 0; i < OPS; i++)
        if (node->ops[i].is_there)
            capacity_left(&node->ops[i].op);
    operation_reader_fini(&node->reader);
    memset(&node->reader, 0, sizeof node->reader);
    engine_fini(&node->engine);
    for (uint32_t i = 0; i < OPS; i++)
        op_fini(&node->ops[i].op);
    memset(node->ops, 0, sizeof node->ops);
    memset(node->waiting, 0, sizeof node->waiting);
    memset(node->follower_disk, 0, sizeof node->follower_disk);
    memset(node->asked, 0, sizeof node->asked);
    engine_init(&node->engine, &store_host);
}

void node_open(struct sim *sim, struct node *node, uint32_t index)
{
    memset(node, 0, sizeof *node);
    node->index = index;
    node->skew = (int64_t)sim_below(sim, 9) - 4;
    node->rate = (int)sim_below(sim, 81) - 40;
    disk_open(sim, &node->disk);
    embd__msg_init(&node->msg);
    engine_init(&node->engine, &store_host);
}

void node_close(struct node *node)
{
    node_empty_engine(node);
    engine_fini(&node->engine);
    embd__msg_fini(&node->msg);
    disk_close(&node->disk);
}

void node_crash(struct sim *sim, struct node *node)
{
    sim_say(sim, "server %u dies, with %llu of %llu records synced", node->index,
            (unsigned long long)node->disk.synced,
            (unsigned long long)disk_end(&node->disk).position);
    node->disk.written = disk_end(&node->disk).position > node->disk.written && sim_one_in(sim, 2)
                             ? disk_end(&node->disk).position
                             : node->disk.written;
    disk_crash(sim, &node->disk);
    node_empty_engine(node);
    node->is_up = node->has_next_place = false;
    node->back_at = sim->now + 5 + sim_below(sim, sim->is_leased ? 4 * LEASE_MS : 60);
    sim->seen.crashes++;
}

void node_stop(struct sim *sim, struct node *node)
{
    if (!node_serves(node) || node->ends_at != 0)
        return;
    sim_say(sim, "server %u is to end in order", node->index);
    node->ends_at = sim->now + 20 + sim_below(sim, 2 * LEASE_MS);
}

void node_end(struct sim *sim, struct node *node)
{
    node->disk.written = node->disk.synced = disk_end(&node->disk).position;
    node_crash(sim, node);
}

bool node_is_finished(const struct node *node)
{
    bool is_idle = node->disk.synced == node->applied.position &&
                   disk_end(&node->disk).position == node->applied.position;
    for (uint32_t i = 0; i < OPS; i++)
        is_idle = is_idle && !node->ops[i].is_there;
    for (uint32_t i = 0; i < WAITING; i++)
        is_idle = is_idle && !node->waiting[i].is_there;
    return is_idle;
}

void node_replay(struct sim *sim, struct node *node, struct sim_record *record)
{
    struct embd__error e = {.status = EMBD_OK};
    struct record fields;
    bool is_partly_done;
    record_fields(record->bytes, &fields);
    commit_replay(&node->reader, &node->engine, record->bytes, &fields, 0, &is_partly_done, &e);
    if (!commit_is_replayed(e.status))
        sim_fail(sim, "server %u: record %llu: %s", node->index,
                 (unsigned long long)record->position, e.text);
    while (node->engine.tables.n_swept > 0)
        tables_sweep(&node->engine.tables);
}

void node_start(struct sim *sim, struct node *node)
{
    struct disk *disk = &node->disk;
    node->life++;
    node->is_up = true;
    node->ends_at = 0;
    node->asked_at = 0;
    node->place = disk->note.place;
    node->tells = disk->note.state == NOTE_MADE_PRIMARY;
    if (disk->note.state == NOTE_BEGUN)
        disk_clear(disk, (struct place){0, 0});
    for (uint32_t i = 0; i < disk->base.n; i++)
        node_replay(sim, node, disk->base.list[i]);
    for (uint32_t i = 0; i < disk->records.n; i++)
        node_replay(sim, node, disk->records.list[i]);
    node->applied = disk_end(disk);
    sim_say(sim, "server %u starts, at record %llu of epoch %llu", node->index,
            (unsigned long long)node->applied.position, (unsigned long long)disk->note.epoch);
    if (node->applied.chain != 0)
        check_note_digest(sim, node, node->applied.chain, check_digest(sim, node));
    member_start(sim, node);
    if (node_serves(node) && node->index == sim->authority)
        check_none_lost(sim, node, "after a start");
}

bool node_serves(const struct node *node)
{
    return node->is_up && !node->is_aside &&
           (node->disk.note.state == NOTE_OWN || node->disk.note.state == NOTE_MADE_PRIMARY);
}

void node_depose(struct sim *sim, struct node *node, uint64_t epoch)
{
    sim_say(sim, "server %u hears of epoch %llu", node->index, (unsigned long long)epoch);
    node->has_heard = true;
    sim->seen.deposed++;
    if (sim->out == OUT_HEED)
        return;
    node->disk.note.state = NOTE_DEPOSED_BY;
    node->disk.note.epoch = epoch;
    node->disk.stored_note = node->disk.note;
    memset(node->waiting, 0, sizeof node->waiting);
    for (uint32_t i = 0; i < OPS; i++)
        node->ops[i].client = CLIENTS; /* nobody hears of it */
}

/* ---- answers ---- */

static void reply(struct sim *sim, const struct node *node, uint32_t client, uint32_t connection,
                  enum reply kind, uint64_t sequence)
{
    if (kind != REPLY_REFUSED && member_is_fenced(sim, node)) {
        sim->seen.fenced++;
        return;
    }
    struct message *m = sim_send(sim, MESSAGE_REPLY, node->index, sim_client_end(client));
    m->client = client;
    m->connection = connection;
    m->reply = kind;
    m->sequence = sequence;
    m->epoch = node->disk.note.epoch;
    m->history = node->history;
    if (kind == REPLY_ACK && sim->is_leased && sim->etcd.epoch > node->disk.note.epoch)
        sim_fail(
            sim,
            "server %u acknowledges push %llu of client %u in epoch %llu, and server %u serves "
            "in epoch %llu",
            node->index, (unsigned long long)sequence, client,
            (unsigned long long)node->disk.note.epoch, sim->etcd.epoch_node,
            (unsigned long long)sim->etcd.epoch);
    if (kind == REPLY_ACK && node->has_heard)
        sim_fail(sim,
                 "server %u acknowledges push %llu of client %u after it heard of its successor",
                 node->index, (unsigned long long)sequence, client);
}

static struct waiting *free_place(struct node *node)
{
    for (uint32_t i = 0; i < WAITING; i++)
        if (!node->waiting[i].is_there)
            return &node->waiting[i];
    return NULL;
}

/* It is answered when the records before `position` are where the promise wants them. */
static void answer(struct sim *sim, struct node *node, uint32_t client, uint32_t connection,
                   uint64_t sequence, uint64_t position)
{
    struct waiting *waiting = free_place(node);
    if (waiting == NULL || client == CLIENTS)
        return; /* the client asks again */
    *waiting = (struct waiting){.is_there = true,
                                .client = client,
                                .connection = connection,
                                .sequence = sequence,
                                .position = position};
    (void)sim;
}

static bool is_promised(const struct sim *sim, struct node *node, uint64_t position)
{
    if (sim->promise == PROMISE_BUFFERED)
        return true;
    if (node->disk.synced < position)
        return false;
    if (sim->is_leased)
        return !member_is_fenced(sim, node) && member_has(sim, node, position);
    return sim->promise == PROMISE_DURABLE || sim->out == OUT_WAIT ||
           follow_has(sim, node, position);
}

void node_answer_waiting(struct sim *sim, struct node *node)
{
    for (uint32_t i = 0; i < WAITING; i++) {
        struct waiting *w = &node->waiting[i];
        if (!w->is_there || !is_promised(sim, node, w->position))
            continue;
        w->is_there = false;
        reply(sim, node, w->client, w->connection, REPLY_ACK, w->sequence);
    }
}

/* ---- requests ---- */

static struct sim_op *free_op(struct node *node)
{
    for (uint32_t i = 0; i < OPS; i++)
        if (!node->ops[i].is_there)
            return &node->ops[i];
    return NULL;
}

static void record(struct sim *sim, struct node *node, struct sim_op *o, const struct message *m)
{
    struct frame_scanner frame;
    struct embd__error e = {.status = EMBD_OK};
    if (operation_write(&node->msg, &o->op, &frame, &e) != EMBD_OK)
        sim_fail(sim, "operation_write: %s", e.text);
    o->position = disk_append(sim, &node->disk, &frame)->position;
    o->is_there = true;
    o->client = m->client;
    o->connection = m->connection;
    o->sequence = m->sequence;
    node->engine.n_recorded++;
}

static void set_time(const struct sim *sim, const struct node *node, struct op *op)
{
    op->now_ns = sim->now * 1000000 + 1;
    op->seconds = (uint64_t)((int64_t)(1000 + sim->now / 8) + node->skew);
}

void node_take_open(struct sim *sim, struct node *node, const struct message *m)
{
    const struct push_number stream = client_stream(m->client, 0);
    struct sim_op *o = free_op(node);
    if (!node_serves(node) || o == NULL || node->ends_at != 0) {
        reply(sim, node, m->client, m->connection, REPLY_REFUSED, 0);
        return;
    }
    if (pushers_know(&node->engine.journaled_pushers, &stream)) {
        reply(sim, node, m->client, m->connection, REPLY_OPENED,
              pushers_last(&node->engine.journaled_pushers, &stream));
        return;
    }
    op_begin(&o->op, &node->engine, OP_STREAM_OPEN);
    o->op.as.opening = (struct stream_opening){.stream = stream, .is_journaled = true};
    set_time(sim, node, &o->op);
    if (engine_admit(&o->op) != EMBD_OK)
        sim_fail(sim, "an opening is refused: %s", o->op.error.text);
    record(sim, node, o, m);
}

static bool admit_push(struct sim *sim, struct node *node, struct sim_op *o,
                       const struct message *m)
{
    struct embd__error e = {.status = EMBD_OK};
    struct op *op = &o->op;
    op_begin(op, &node->engine, OP_PUSH);
    if (op_size_parts(op, 2, &e) != EMBD_OK)
        sim_fail(sim, "%s", e.text);
    client_fill(sim, o, m->client, m->sequence);
    for (uint32_t i = 0; i < 2; i++) {
        op->parts[i].in.table = tables_find(&node->engine.tables, sim->schemas[i].name, &e)->id;
        if (check_part(&node->engine.tables, &op->parts[i].in, i, &op->parts[i].table, &e) !=
                EMBD_OK ||
            check_grads(op->parts[i].table, &op->parts[i].in, i, 0, &e) != EMBD_OK)
            sim_fail(sim, "%s", e.text);
    }
    if (op_size_statuses(op, &e) != EMBD_OK)
        sim_fail(sim, "%s", e.text);
    op->number = client_stream(m->client, m->sequence);
    set_time(sim, node, op);
    return engine_admit(op) == EMBD_OK && !op->is_again;
}

void node_take_push(struct sim *sim, struct node *node, const struct message *m)
{
    struct sim_op *o = free_op(node);
    if (!node_serves(node) || o == NULL || free_place(node) == NULL || node->ends_at != 0) {
        reply(sim, node, m->client, m->connection, REPLY_REFUSED, m->sequence);
        sim->seen.refused++;
        return;
    }
    if (admit_push(sim, node, o, m)) {
        record(sim, node, o, m);
    } else if (o->op.is_again) {
        /* It was applied; its record may wait for a follower all the same. */
        uint64_t position = sim->out == OUT_AGAIN ? 0 : disk_end(&node->disk).position;
        sim->seen.again++;
        answer(sim, node, m->client, m->connection, m->sequence, position);
    } else {
        sim->seen.gaps++;
        reply(sim, node, m->client, m->connection, REPLY_GAP, m->sequence);
    }
}

/* ---- applying ---- */

static struct sim_op *op_of(struct node *node, uint64_t position)
{
    for (uint32_t i = 0; i < OPS; i++)
        if (node->ops[i].is_there && node->ops[i].position == position)
            return &node->ops[i];
    return NULL;
}

static void apply_op(struct sim *sim, struct node *node, struct sim_op *o)
{
    struct op *op = &o->op;
    engine_apply(op);
    op_wait(op);
    while (node->engine.tables.n_swept > 0)
        tables_sweep(&node->engine.tables);
    o->is_there = false;
    if (o->client == CLIENTS)
        return;
    if (!commit_is_replayed(op->error.status))
        sim_fail(sim, "server %u: %s", node->index, op->error.text);
    if (op->kind == OP_STREAM_OPEN)
        reply(sim, node, o->client, o->connection, REPLY_OPENED, op->last);
    else if (op->error.status == EMBD_OK)
        answer(sim, node, o->client, o->connection, o->sequence, o->position + 1);
    else
        reply(sim, node, o->client, o->connection, REPLY_GAP, o->sequence);
}

static void apply_next(struct sim *sim, struct node *node)
{
    struct sim_record *next = disk_at(&node->disk, node->applied.position);
    struct sim_op *o = op_of(node, next->position);
    node->engine.n_recorded--;
    if (o != NULL)
        apply_op(sim, node, o);
    else
        node_replay(sim, node, next);
    node->applied = (struct place){next->position + 1, next->checksum};
    uint64_t digest = check_digest(sim, node);
    check_note_digest(sim, node, next->checksum, digest);
    if (next->origin != 0)
        check_note_digest(sim, node, next->origin, digest);
    check_once(sim, node);
    sim->seen.applied++;
}

void node_tick(struct sim *sim, struct node *node)
{
    struct disk *disk = &node->disk;
    uint64_t end = disk_end(disk).position;
    if (disk->written < end && sim_one_in(sim, 3))
        disk->written = end;
    else if (disk->synced < disk->written && sim_one_in(sim, 3))
        disk->synced = disk->written;
    bool is_synced_first = node_serves(node) && sim->promise != PROMISE_BUFFERED;
    while (node->applied.position < (is_synced_first ? disk->synced : disk->written))
        apply_next(sim, node);
    bool is_noted =
        disk->note.state != NOTE_FOLLOWING || disk->stored_note.place.position >= disk->synced;
    if (is_noted && disk->synced <= node->applied.position && sim_one_in(sim, 200)) {
        disk_compact(disk);
        sim->seen.compactions++;
    }
    if (node_serves(node))
        node_answer_waiting(sim, node);
}

/* ---- tables ---- */

void node_create_tables(struct sim *sim, struct node *node)
{
    for (uint32_t i = 0; i < 2; i++) {
        struct op op = {.engine = NULL};
        struct embd__error e = {.status = EMBD_OK};
        struct frame_scanner frame;
        op_begin(&op, &node->engine, OP_TABLE_CREATE);
        set_time(sim, node, &op);
        if (embd__schema_copy(&op.as.create.schema, &sim->schemas[i], &e) != EMBD_OK ||
            embd__schema_check(&op.as.create.schema.s, &e) != EMBD_OK ||
            engine_admit(&op) != EMBD_OK || apply_prepare(&op, &e) != EMBD_OK ||
            operation_write(&node->msg, &op, &frame, &e) != EMBD_OK)
            sim_fail(sim, "table %u: %s%s", i, e.text, op.error.text);
        struct sim_record *record = disk_append(sim, &node->disk, &frame);
        engine_apply(&op);
        node->applied = (struct place){record->position + 1, record->checksum};
        check_note_digest(sim, node, record->checksum, check_digest(sim, node));
        embd__schema_fini(&op.as.create.schema);
        op_fini(&op);
    }
    node->disk.written = node->disk.synced = node->applied.position;
}
