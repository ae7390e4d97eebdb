/* deed_push.c - pushes and erases, and input that is refused before it becomes one.
 *
 * Where pushes are recorded together, each is admitted before the one before it is applied. What is
 * refused then must be what the models refuse at that moment, and would refuse at its turn too; of
 * the others each ends as the models say at its turn. */
#include "tests/engine/deeds.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "server/engine/check.h"
#include "tests/engine/request.h"

enum { TOGETHER = 3 };

static struct request requests[TOGETHER];

void deeds_fini(void)
{
    for (uint32_t i = 0; i < TOGETHER; i++)
        request_fini(&requests[i]);
}

/* ---- what the models say ---- */

static struct stream *stream_of(struct world *w, const struct request *r)
{
    return &w->streams[world_is_journaled(w, r->tables[0])][r->stream];
}

/* As pushers_look. */
static int look(struct world *w, const struct request *r)
{
    const struct stream *stream = stream_of(w, r);
    uint64_t number = r->op.number.sequence;
    if (number == 0)
        return EMBD_OK;
    if (!stream->is_open)
        return EMBD_FORGOTTEN;
    return number <= stream->last ? PUSH_AGAIN : number == stream->last + 1 ? EMBD_OK : EMBD_GAP;
}

static int find_room(struct world *w, const struct request *r)
{
    world_tell_time(w, &r->op);
    for (uint32_t i = 0; i < r->n_parts; i++)
        if (!r->op.parts[i].in.want_status &&
            model_foresee(w->tables[r->tables[i]].model, &r->batches[i].in) != EMBD_OK)
            return EMBD_FULL;
    return EMBD_OK;
}

static void compare_part(struct world *w, const struct request *r, uint32_t i)
{
    struct model *model = w->tables[r->tables[i]].model;
    const struct op_part *part = &r->op.parts[i];
    uint8_t statuses[KEYS_MOST];
    struct model_counts counts;
    model->lr = part->in.lr;
    world_tell_time(w, &r->op);
    int status = model_push(model, &r->batches[i].in, r->grads[i], false,
                            part->in.want_status ? statuses : NULL, &counts);
    assert_int_equal(status, EMBD_OK);
    assert_int_equal(part->step, model->step);
    assert_int_equal(part->n_inserted, counts.n_inserted);
    assert_int_equal(part->n_full, counts.n_full);
    assert_int_equal(part->n_filtered, counts.n_filtered);
    assert_int_equal(part->n_evicted, counts.n_evicted);
    request_compare_statuses(r, i, statuses);
    seen.evicted += counts.n_evicted;
    seen.filtered += counts.n_filtered;
}

static void count_refusal(const struct request *r, int status)
{
    seen.full += status == EMBD_FULL;
    seen.full_of_several += status == EMBD_FULL && r->n_parts > 1;
    seen.gaps += status == EMBD_GAP;
    seen.forgotten += status == EMBD_FORGOTTEN;
    seen.again += status == PUSH_AGAIN;
}

/* ---- a push ---- */

static void compare_refused(struct world *w, const struct request *r, bool is_behind_others)
{
    int status = look(w, r);
    assert_int_equal(r->op.is_again, status == PUSH_AGAIN);
    /* Behind others a gap may close, so that room is looked at. */
    if (status == EMBD_OK || (is_behind_others && r->op.error.status == EMBD_FULL))
        status = find_room(w, r);
    count_refusal(r, status);
    assert_int_not_equal(status, EMBD_OK);
    if (status != PUSH_AGAIN)
        assert_int_equal(r->op.error.status, status);
}

/* Whether the candidates that those before it leave may be so many that it would forget them: then
 * its keys would need no rows. */
static bool may_forget(const struct world *w, const struct request *r)
{
    for (uint32_t i = 0; i < r->n_parts; i++)
        if (w->tables[r->tables[i]].model->schema.admit_after > 1)
            return true;
    return false;
}

/* Behind pushes that were recorded before it and are applied now: it would have been refused. */
static void compare_refused_in_turn(struct world *w, const struct request *r)
{
    if (r->op.error.status == EMBD_FULL && look(w, r) == EMBD_OK && !may_forget(w, r))
        assert_int_equal(find_room(w, r), EMBD_FULL);
}

static void compare_applied(struct world *w, const struct request *r, bool is_together)
{
    int status = look(w, r);
    assert_int_equal(r->op.is_again, status == PUSH_AGAIN);
    seen.again_in_turn += is_together && status == PUSH_AGAIN;
    seen.gaps_in_turn += is_together && status == EMBD_GAP;
    if (status == EMBD_OK)
        status = find_room(w, r);
    count_refusal(r, status);
    assert_int_equal(r->op.error.status, status == PUSH_AGAIN ? EMBD_OK : status);
    for (uint32_t i = 0; i < r->n_parts && status == EMBD_OK; i++)
        compare_part(w, r, i);
    for (uint32_t i = 0; i < r->n_parts && status == EMBD_OK && r->op.number.sequence > 0; i++)
        stream_of(w, r)->tables |= 1u << r->tables[i];
    if (status == EMBD_OK && r->op.number.sequence > 0)
        stream_of(w, r)->last++;
}

/* The next of its stream, one that was, or one too early. `n_before`: numbered pushes drawn with
 * it. */
static void draw_number(struct world *w, struct request *r, uint32_t stream, uint32_t n_before)
{
    if (request_is_mixed(w, r) || one_in(w, 2))
        return;
    r->stream = one_in(w, 4) ? below(w, STREAMS) : stream;
    r->op.number = stream_id(r->stream);
    uint64_t last = stream_of(w, r)->last;
    uint32_t kind = below(w, 8);
    r->op.number.sequence = kind == 0 && last > 0 ? last
                            : kind == 1           ? last + 2 + below(w, 2)
                                                  : last + 1 + (one_in(w, 2) ? n_before : 0);
}

static bool submit_mixed(struct world *w, struct request *r)
{
    struct written *record;
    if (!request_is_mixed(w, r))
        return false;
    assert_false(world_admit(w, &r->op, &record));
    assert_int_equal(r->op.error.status, EMBD_INVALID);
    seen.mixed++;
    return true;
}

/* Is admitted; what no journal takes is applied too. True: its turn comes. */
static bool begin(struct world *w, struct request *r, struct written **record)
{
    if (submit_mixed(w, r))
        return false;
    bool is_behind_others = w->engine.n_recorded > 0;
    if (!world_admit(w, &r->op, record)) {
        compare_refused(w, r, is_behind_others);
        return false;
    }
    if (*record != NULL)
        return true;
    world_apply(w, &r->op, NULL);
    compare_applied(w, r, false);
    return false;
}

void deed_push(struct world *w)
{
    struct written *records[TOGETHER];
    bool waits[TOGETHER], is_refused[TOGETHER];
    uint32_t n = one_in(w, 4) ? 1 + below(w, TOGETHER) : 1, stream = below(w, STREAMS);
    for (uint32_t i = 0, n_before = 0; i < n; i++) {
        struct request *r = &requests[i];
        request_draw_tables(w, r, true);
        request_draw(w, r, OP_PUSH);
        if (r->n_parts > 0)
            draw_number(w, r, stream, n_before);
        n_before += r->op.number.sequence > 0;
        waits[i] = r->n_parts > 0 && begin(w, r, &records[i]);
        is_refused[i] = r->n_parts > 0 && !waits[i] && world_is_journaled(w, r->tables[0]);
        w->engine.n_recorded += waits[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        if (waits[i]) {
            w->engine.n_recorded--;
            world_apply(w, &requests[i].op, records[i]);
            compare_applied(w, &requests[i], n > 1);
        } else if (is_refused[i]) {
            compare_refused_in_turn(w, &requests[i]);
        }
        request_done(&requests[i]);
    }
}

/* ---- an erase ---- */

void deed_erase(struct world *w)
{
    struct request *r = &requests[0];
    request_draw_tables(w, r, false);
    request_draw(w, r, OP_ERASE);
    bool is_done = r->n_parts > 0 && !submit_mixed(w, r);
    if (is_done)
        world_submit(w, &r->op);
    for (uint32_t i = 0; i < r->n_parts && is_done; i++) {
        uint8_t statuses[KEYS_MOST];
        uint32_t n = model_erase(w->tables[r->tables[i]].model, &r->batches[i].in, statuses);
        assert_int_equal(r->op.error.status, EMBD_OK);
        assert_int_equal(r->op.parts[i].n_erased, n);
        request_compare_statuses(r, i, statuses);
        seen.erased += n;
    }
    request_done(r);
}

/* ---- wrong input ---- */

/* Breaks the last part, and says with which status it is refused; EMBD_OK: it is not broken. */
static int spoil(struct world *w, struct request *r)
{
    uint32_t last = r->n_parts - 1;
    struct part *part = &r->op.parts[last].in;
    const embd_schema *s = &w->tables[r->tables[last]].schema.s;
    if (one_in(w, 4)) {
        part->table ^= 1;
        return EMBD_UNKNOWN_TABLE;
    }
    if (part->n_rows > 0 && one_in(w, 2)) {
        static const uint32_t infinite[] = {0x7f800000, 0xff800000, 0x7fc00000};
        part->dtype = EMBD_DTYPE_F32;
        part->grads = r->wire[last];
        part->grads_bytes = 4 * (uint64_t)part->n_rows * s->dim;
        memset(r->wire[last], 0, part->grads_bytes);
        memcpy(r->wire[last] + 4 * below(w, part->n_rows * s->dim), &infinite[below(w, 3)], 4);
        return s->admit_nonfinite ? EMBD_OK : EMBD_NOT_FINITE;
    }
    if (r->batches[last].slots != NULL && part->n_rows > 0) {
        r->batches[last].slots[below(w, part->n_rows)] = (uint16_t)s->slots;
        return EMBD_INVALID;
    }
    if (s->slot_sizes != NULL && part->n_keys > 0) {
        r->batches[last].keys[below(w, part->n_keys)] = 1u << 20;
        return EMBD_INVALID;
    }
    part->grads_bytes += 4;
    return EMBD_MALFORMED;
}

void deed_wrong(struct world *w)
{
    struct request *r = &requests[0];
    struct embd__error e = {.status = EMBD_OK};
    request_draw_tables(w, r, true);
    request_draw(w, r, OP_PUSH);
    if (r->n_parts > 0) {
        uint32_t last = r->n_parts - 1;
        struct op_part *part = &r->op.parts[last];
        int expected = spoil(w, r);
        if (check_part(&w->engine.tables, &part->in, last, &part->table, &e) == EMBD_OK)
            check_grads(part->table, &part->in, last, 0, &e);
        assert_int_equal(e.status, expected);
        seen.wrong += expected != EMBD_OK;
        e.status = EMBD_OK;
        if (r->n_parts > 1) {
            r->op.parts[last].table = r->op.parts[0].table;
            assert_int_equal(check_tables_differ(&r->op, &e), EMBD_INVALID);
        }
    }
    request_done(r);
}
