/* redefine.c - see redefine.h. Which fields a load may set is said here once more, plainly. */
#include "tests/history/redefine.h"

#include <inttypes.h>
#include <stdio.h>

#include "tests/history/request.h"

static void add(struct redefinition *out, const char *field, const char *format, double value)
{
    snprintf(out->values[out->n], sizeof out->values[0], format, value);
    out->fields[out->n].field = field;
    out->fields[out->n].value = out->values[out->n];
    out->n++;
}

static void add_name(struct redefinition *out, const char *field, const char *value)
{
    out->fields[out->n++] = (embd_field){field, value};
}

static void draw_values(struct world *w, struct redefinition *out, embd_schema *s)
{
    if (s->dim < DIM_TOP && !one_in(w, 3)) {
        s->dim += 1 + draw(w, DIM_TOP - s->dim);
        add(out, "dim", "%.0f", s->dim);
    }
    if (s->rounding == EMBD_ROUNDING_MASTER && one_in(w, 2)) {
        s->rounding = EMBD_ROUNDING_NEAREST;
        add_name(out, "rounding", "nearest");
    }
    if (s->rounding == EMBD_ROUNDING_NEAREST && one_in(w, 2)) {
        bool is_local = s->optimizer.update == EMBD_UPDATE_LOCAL;
        s->dtype = (embd_dtype)draw(w, (is_local ? EMBD_DTYPE_E4M3 : EMBD_DTYPE_BF16) + 1);
        if (s->dtype == EMBD_DTYPE_I4) /* not of rows */
            s->dtype = EMBD_DTYPE_I8;
        add_name(out, "dtype", embd_dtype_name(s->dtype));
    }
    if (s->dtype != EMBD_DTYPE_F32 && one_in(w, 3)) {
        s->rounding = EMBD_ROUNDING_MASTER;
        add_name(out, "rounding", "master");
    }
    if (one_in(w, 3)) {
        s->admit_after = draw(w, 4);
        add(out, "admit_after", "%.0f", s->admit_after);
    }
    if (one_in(w, 3)) {
        s->seed = 9;
        add(out, "seed", "%.0f", 9);
    }
}

static void draw_optimizer(struct world *w, struct redefinition *out, embd_schema *s)
{
    embd_optimizer *o = &s->optimizer;
    if (o->update == EMBD_UPDATE_LOCAL && one_in(w, 3)) {
        embd_optimizer_init(o, (embd_optimizer_kind)draw(w, EMBD_OPTIMIZER_FTRL + 1), o->lr);
        add_name(out, "optimizer", embd_optimizer_name(o->kind));
        if (o->kind == EMBD_OPTIMIZER_ADAGRAD) {
            o->initial_accumulator = 0.25f;
            add(out, "optimizer.initial_accumulator", "%g", 0.25);
        }
    }
    if (one_in(w, 2)) {
        o->lr = 0.125f;
        add(out, "optimizer.lr", "%g", 0.125);
    }
}

static void draw_bound(struct world *w, struct redefinition *out, embd_schema *s)
{
    if (s->on_full == EMBD_ON_FULL_GROW && one_in(w, 2))
        return;
    s->on_full = (embd_on_full)draw(w, EMBD_ON_FULL_EVICT_SCORE + 1);
    s->capacity = s->on_full == EMBD_ON_FULL_GROW ? 0 : 200 + draw(w, 400);
    s->ttl = s->on_full == EMBD_ON_FULL_EVICT_TTL ? 3 : 0;
    s->lfu_half_life = s->on_full == EMBD_ON_FULL_EVICT_LFU ? s->lfu_half_life : 0;
    s->lfu_occurrences = s->on_full == EMBD_ON_FULL_EVICT_LFU && s->lfu_occurrences;
    add_name(out, "on_full", embd_on_full_name(s->on_full));
    add(out, "capacity", "%.0f", (double)s->capacity);
    if (s->ttl > 0)
        add(out, "ttl", "%.0f", (double)s->ttl);
}

void redefinition_draw(struct world *w, struct redefinition *out, embd_schema *s)
{
    out->n = 0;
    draw_values(w, out, s);
    draw_optimizer(w, out, s);
    draw_bound(w, out, s);
    s->changed = 0;
    tell(w, "\nredefine %s:", s->name);
    for (uint32_t i = 0; i < out->n; i++)
        tell(w, " %s=%s", out->fields[i].field, out->fields[i].value);
}
