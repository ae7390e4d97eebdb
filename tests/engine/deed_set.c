/* deed_set.c - fields of a table are set between its pushes. The model's definition is changed by
 * assignment; whether a field may be set is said here once more, in the plainest way. */
#include "tests/engine/deeds.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static bool is_one_of(const embd_optimizer *o, embd_optimizer_kind a, embd_optimizer_kind b)
{
    return o->kind == a || o->kind == b;
}

static bool is_adagrad(const embd_schema *s)
{
    return is_one_of(&s->optimizer, EMBD_OPTIMIZER_ADAGRAD, EMBD_OPTIMIZER_ROWWISE_ADAGRAD);
}

/* The parameter of that number, where the optimizer has it, else NULL; and its name. */
static float *parameter(embd_schema *s, uint32_t i, const char **name_out)
{
    embd_optimizer *o = &s->optimizer;
    embd_regularization *r = &s->regularization;
    bool is_adam = o->kind == EMBD_OPTIMIZER_ADAM ||
                   (o->kind >= EMBD_OPTIMIZER_AMSGRAD && o->kind <= EMBD_OPTIMIZER_LAMB),
         is_ftrl = o->kind == EMBD_OPTIMIZER_FTRL,
         is_counter = o->kind == EMBD_OPTIMIZER_COUNTER_ADAGRAD,
         decays = is_adam || o->kind == EMBD_OPTIMIZER_RMSPROP,
         is_local = o->update == EMBD_UPDATE_LOCAL;
    const struct {
        const char *name;
        float *value;
    } all[] = {
        {"optimizer.lr", &o->lr},
        {"optimizer.scaler", &o->scaler},
        {"optimizer.momentum",
         is_one_of(o, EMBD_OPTIMIZER_MOMENTUM, EMBD_OPTIMIZER_NESTEROV) ? &o->momentum : NULL},
        {"optimizer.beta1", is_adam ? &o->beta1 : NULL},
        {"optimizer.beta2", decays ? &o->beta2 : NULL},
        {"optimizer.eps", is_adagrad(s) || decays || is_ftrl || is_counter ? &o->eps : NULL},
        {"optimizer.initial_accumulator", is_adagrad(s) ? &o->initial_accumulator : NULL},
        {"optimizer.beta", is_ftrl ? &o->beta : NULL},
        {"optimizer.l1", is_ftrl ? &o->l1 : NULL},
        {"optimizer.l2", is_ftrl ? &o->l2 : NULL},
        {"optimizer.clip_norm", is_local ? &r->clip_norm : NULL},
        {"optimizer.weight_decay", is_local ? &r->weight_decay : NULL},
        {"optimizer.max_norm", is_local ? &r->max_norm : NULL},
        {"optimizer.lr_decay", is_adagrad(s) ? &r->lr_decay : NULL},
        {"initializer.a",
         s->initializer.kind != EMBD_INITIALIZER_UNIFORM_SLOT ? &s->initializer.a : NULL},
    };
    *name_out = all[i].name;
    return all[i].value;
}
enum { PARAMETERS = 15 };

/* ---- bounds ---- */

static void add(struct schema_change *change, const char *field, const char *value)
{
    struct embd__error e = {.status = EMBD_OK};
    assert_int_equal(embd__schema_change_add(change, field, value, &e), EMBD_OK);
}

static void add_number(struct schema_change *change, const char *field, uint64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    add(change, field, text);
}

/* Which policies need the same of each row: none, the step of the last push, that and a count, or
 * its second, or the step and a score. */
static int use_of(const embd_schema *s)
{
    static const int uses[] = {0, 0, 1, 2, 1, 4};
    return s->on_full == EMBD_ON_FULL_EVICT_TTL && s->ttl_seconds > 0 ? 3 : uses[s->on_full];
}

/* capacity with grow is room that is there already. */
static int expect_bound(const struct world *w, struct pair *pair, const embd_schema *s)
{
    struct store_stats stats;
    const embd_schema *was = &pair->schema.s;
    w->ops->stats(pair->store, &stats);
    uint64_t room = was->on_full == EMBD_ON_FULL_GROW && was->capacity > stats.capacity
                        ? was->capacity
                        : stats.capacity;
    if (use_of(s) != use_of(was))
        return EMBD_UNSUPPORTED;
    if (s->on_full == EMBD_ON_FULL_GROW && s->capacity > room)
        return EMBD_INVALID;
    uint64_t n_before = pair->model->n_rows;
    int status = model_bound(pair->model, s);
    seen.shrunk += n_before - pair->model->n_rows;
    seen.unshrunk += status == EMBD_FULL;
    return status;
}

/* capacity, on_full, or both. */
static int draw_bound(struct world *w, struct pair *pair, embd_schema *s,
                      struct schema_change *change)
{
    if (one_in(w, 2)) {
        s->on_full = (embd_on_full)below(w, 6);
        add(change, "on_full", embd_on_full_name(s->on_full));
    }
    bool has_capacity = change->named == 0 || one_in(w, 2) || s->capacity == 0;
    if (has_capacity) {
        s->capacity = one_in(w, 20) ? 1u << 30 : 1 + below(w, 30);
        s->capacity = s->on_full < EMBD_ON_FULL_EVICT_LRU && one_in(w, 4) ? 0 : s->capacity;
        add_number(change, "capacity", s->capacity);
    }
    if (s->on_full != EMBD_ON_FULL_EVICT_TTL) {
        s->ttl = s->ttl_seconds = 0;
    } else if (s->ttl_seconds > 0) {
        s->ttl_seconds = 1 + below(w, 6);
        add_number(change, "ttl_seconds", s->ttl_seconds);
    } else {
        s->ttl = 1 + below(w, 6);
        add_number(change, "ttl", s->ttl);
    }
    return expect_bound(w, pair, s);
}

/* One of both, or both: of steps or of seconds, as the table has it. */
static int draw_ttl(struct world *w, embd_schema *s, struct schema_change *change)
{
    bool is_ttl = s->on_full == EMBD_ON_FULL_EVICT_TTL, is_timed = s->ttl_seconds > 0;
    bool sets_seconds = one_in(w, 2), sets_both = one_in(w, 3);
    uint64_t to = 1 + below(w, 6);
    add_number(change, sets_seconds ? "ttl_seconds" : "ttl", to);
    if (sets_both)
        add_number(change, sets_seconds ? "ttl" : "ttl_seconds", 0);
    if (is_ttl && sets_seconds == is_timed)
        *(is_timed ? &s->ttl_seconds : &s->ttl) = to;
    if (is_ttl && sets_seconds == is_timed)
        return EMBD_OK;
    return is_ttl && sets_both ? EMBD_UNSUPPORTED : EMBD_INVALID;
}

/* How pushes count for evict_lfu. */
static int draw_counting(struct world *w, embd_schema *s, struct schema_change *change)
{
    uint64_t half_life = below(w, 5);
    bool counts = one_in(w, 2), has_both = one_in(w, 2);
    if (has_both || counts)
        add_number(change, "lfu_half_life", half_life);
    if (has_both || !counts)
        add(change, "lfu_occurrences", counts ? "true" : "false");
    if (s->on_full != EMBD_ON_FULL_EVICT_LFU)
        return EMBD_INVALID;
    s->lfu_half_life = has_both || counts ? half_life : s->lfu_half_life;
    s->lfu_occurrences = has_both || !counts ? counts : s->lfu_occurrences;
    return EMBD_OK;
}

/* Sets one field of *s and of the change. Returns what the engine should say. */
static int draw_field(struct world *w, embd_schema *s, struct schema_change *change)
{
    struct embd__error e = {.status = EMBD_OK};
    const char *name;
    char text[32];
    uint32_t i = below(w, PARAMETERS + 6);
    if (i < PARAMETERS) {
        float *to = parameter(s, i, &name), value = 0.015625f * (float)(1 + below(w, 60));
        value = i == PARAMETERS - 1 ? -value : value;
        snprintf(text, sizeof text, "%.9g", (double)value);
        assert_int_equal(embd__schema_change_add(change, name, text, &e), EMBD_OK);
        if (to != NULL)
            *to = value;
        return to != NULL ? EMBD_OK : EMBD_INVALID;
    }
    if (i == PARAMETERS)
        return draw_ttl(w, s, change);
    if (i == PARAMETERS + 4)
        return draw_counting(w, s, change);
    if (i == PARAMETERS + 1) {
        s->create_on = one_in(w, 2) ? EMBD_CREATE_ON_PULL : EMBD_CREATE_ON_PUSH;
        assert_int_equal(
            embd__schema_change_add(change, "create_on", embd_create_on_name(s->create_on), &e),
            EMBD_OK);
        bool is_allowed =
            s->create_on == EMBD_CREATE_ON_PUSH || s->durability == EMBD_DURABILITY_SNAPSHOT;
        return is_allowed ? EMBD_OK : EMBD_UNSUPPORTED;
    }
    if (i == PARAMETERS + 2) { /* gradients here are finite: it has no effect */
        s->admit_nonfinite = one_in(w, 2);
        assert_int_equal(embd__schema_change_add(change, "admit_nonfinite",
                                                 s->admit_nonfinite ? "true" : "false", &e),
                         EMBD_OK);
        return EMBD_OK;
    }
    if (i == PARAMETERS + 3) {
        s->admit_after = below(w, 5);
        add_number(change, "admit_after", s->admit_after);
        return EMBD_OK;
    }
    assert_int_equal(embd__schema_change_add(change, "optimizer.scaler", "0", &e), EMBD_OK);
    return EMBD_INVALID;
}

void deed_set(struct world *w)
{
    struct op op = {.engine = NULL};
    uint32_t i = world_draw_table(w);
    if (i == TABLES)
        return;
    struct pair *pair = &w->tables[i];
    embd_schema s = pair->schema.s;
    op_begin(&op, &w->engine, OP_TABLE_SET);
    op.as.set.table = world_table(w, i);
    embd__schema_change_init(&op.as.set.change);
    int wanted = one_in(w, 3) ? draw_bound(w, pair, &s, &op.as.set.change)
                              : draw_field(w, &s, &op.as.set.change);
    world_submit(w, &op);
    assert_int_equal(op.error.status, wanted);
    seen.set += wanted == EMBD_OK;
    seen.unset += wanted != EMBD_OK;
    if (wanted == EMBD_OK)
        pair->schema.s = s;
    if (wanted == EMBD_OK)
        model_admit_after(pair->model, s.admit_after);
    if (wanted == EMBD_OK)
        pair->model->schema = s;
    op_fini(&op);
}
