/* foreigndynamicemb.c - folders of DynamicEmbDump (recsys-examples, format 2), whose files are
 *
 *     TABLE_emb_keys.rank_R.world_size_W       int64
 *     TABLE_emb_values.rank_R.world_size_W     float32 [dim], whatever the table's dtype
 *     TABLE_emb_scores.rank_R.world_size_W     int64, of eviction; two a row for (TIMESTAMP, LFU)
 *     TABLE_emb_opt_values.rank_R.world_size_W float32, the state
 *     TABLE_opt_args.json                      optimizer and its parameters, what scores say
 *
 * R counts from 0 to W - 1. Counters of admission (TABLE_counter_...) are not read. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/embctl/embctl.h"
#include "client/embctl/foreignfiles.h"

#define KEYS_MARK   "_emb_keys.rank_"
#define VALUES_MARK "_emb_values.rank_"

struct ranked {
    char *table;
    uint64_t rank, world_size;
};

/* NAME_emb_keys.rank_R.world_size_W. */
static bool parse_name(struct foreign_folder *f, const char *name, struct ranked *out)
{
    const char *mark = strstr(name, KEYS_MARK);
    unsigned long long rank, size;
    char rest;
    if (!mark || mark == name ||
        sscanf(mark + strlen(KEYS_MARK), "%7llu.world_size_%7llu%c", &rank, &size, &rest) != 2)
        return false;
    out->table = foreign_text(f, "%.*s", (int)(mark - name), name);
    out->rank = rank;
    out->world_size = size;
    return out->table != NULL;
}

static struct foreign_table *find(struct foreign_folder *f, const char *name)
{
    for (size_t i = 0; i < f->job.n_tables; i++)
        if (!strcmp(f->tables[i].name, name))
            return &f->tables[i];
    return NULL;
}

/* Paths of a table's files of one kind, one a rank. */
static const char **paths_of(struct foreign_folder *f, const struct foreign_table *t,
                             const char *kind)
{
    const char **list = foreign_memory(f, t->n_files * sizeof *list);
    for (uint32_t i = 0; list && i < t->n_files && f->status == EMBD_OK; i++)
        list[i] = foreign_text(f, "%s/%s_%s.rank_%" PRIu32 ".world_size_%" PRIu32, f->a->folder,
                               t->name, kind, i, t->n_files);
    return list;
}

/* Whether a rank has a file of the kind: then all must. */
static bool has_kind(struct foreign_folder *f, const struct foreign_table *t, const char *kind)
{
    bool has = false;
    for (uint32_t i = 0; i < t->n_files && !has && f->status == EMBD_OK; i++) {
        char *name = foreign_text(f, "%s_%s.rank_%" PRIu32 ".world_size_%" PRIu32, t->name, kind, i,
                                  t->n_files);
        has = name && foreign_has(f, name);
    }
    return has;
}

/* ---- the optimizer ---- */

/* Fields that are numbers of the same meaning there and here. */
static const struct {
    const char *there, *here;
} numbers[] = {{"lr", "optimizer.lr"},
               {"eps", "optimizer.eps"},
               {"beta1", "optimizer.beta1"},
               {"beta2", "optimizer.beta2"},
               {"initial_accumulator_value", "optimizer.initial_accumulator"}};
static const struct {
    const char *there, *here;
} optimizers[] = {{"sgd", "sgd"},
                  {"adam", "adam"},
                  {"exact_adagrad", "adagrad"},
                  {"exact_row_wise_adagrad", "rowwise_adagrad"}};

static void set_optimizer(struct foreign_folder *f, struct foreign_table *t, const json_t *args)
{
    const char *there = json_string_value(json_object_get(args, "opt_type")), *here = NULL;
    for (size_t i = 0; there && i < sizeof optimizers / sizeof *optimizers; i++)
        if (!strcmp(optimizers[i].there, there))
            here = optimizers[i].here;
    if (here)
        foreign_set(f, t, "optimizer", "%s", here);
    else if (!f->a->skips_state)
        foreign_fail(f, EMBD_UNSUPPORTED,
                     "%s_opt_args.json: opt_type is '%.40s', expected sgd, adam, exact_adagrad or "
                     "exact_row_wise_adagrad; use --no-optimizer-state and --optimizer",
                     t->name, there ? there : "(none)");
    for (size_t i = 0; here && i < sizeof numbers / sizeof *numbers; i++) {
        const json_t *value = json_object_get(args, numbers[i].there);
        if (json_is_number(value))
            foreign_set(f, t, numbers[i].here, "%.9g", json_number_value(value));
    }
    t->has_lr = here && json_is_number(json_object_get(args, "lr"));
}

/* Its decay is w -= lr * weight_decay * w, beside the step. */
static void set_decay(struct foreign_folder *f, struct foreign_table *t, const json_t *args)
{
    double decay = json_number_value(json_object_get(args, "weight_decay"));
    if (decay <= 0)
        return;
    foreign_set(f, t, "optimizer.decay", "decoupled");
    foreign_set(f, t, "optimizer.weight_decay", "%.9g", decay);
}

static uint64_t count_of(struct foreign_folder *f, const struct foreign_table *t,
                         const json_t *args, const char *name)
{
    const json_t *value = json_object_get(args, name);
    if (value && (!json_is_integer(value) || json_integer_value(value) < 0))
        foreign_fail(f, EMBD_CORRUPT, "%s_opt_args.json: %s is not a whole number from 0 on",
                     t->name, name);
    return (uint64_t)json_integer_value(value);
}

/* The meaning of scores, by the policy: counts, steps of the table, or times or a caller's own. */
static void set_score(struct foreign_folder *f, struct foreign_table *t, const json_t *args)
{
    const char *policy = json_string_value(json_object_get(args, "evict_strategy"));
    bool counts = policy && !strcmp(policy, "EvictStrategy.KLfu");
    t->score_now = count_of(f, t, args, "step_score");
    bool is_step = policy && !strcmp(policy, "EvictStrategy.KCustomized") && t->score_now > 0;
    t->has_score_kind = counts || is_step;
    t->score = counts ? EMBD_ARRAYS_COUNT : EMBD_ARRAYS_STEP;
}

static void read_args(struct foreign_folder *f, struct foreign_table *t)
{
    char *name = foreign_text(f, "%s_opt_args.json", t->name);
    struct job_reading r = f->r;
    int status = EMBD_OK;
    r.path = name ? foreign_path(f, name) : NULL;
    json_t *args = r.path ? job_load(&r, &status) : NULL;
    if (!args) {
        f->status = f->status ? f->status : status; /* job_load has written the sentence */
        return;
    }
    if (!json_is_object(args))
        foreign_fail(f, EMBD_CORRUPT, "%s: not an object", name);
    set_optimizer(f, t, args);
    set_decay(f, t, args);
    set_score(f, t, args);
    t->step = count_of(f, t, args, "iters");
    if (!json_object_get(args, "iters"))
        t->step = t->has_score_kind && t->score == EMBD_ARRAYS_STEP ? t->score_now : 0;
    json_decref(args);
}

/* ---- tables ---- */

static void read_scores(struct foreign_folder *f, struct foreign_table *t)
{
    uint64_t bytes = 0, sum = 0;
    if (!has_kind(f, t, "emb_scores"))
        return;
    t->scores = paths_of(f, t, "emb_scores");
    for (uint32_t i = 0; i < t->n_files && f->status == EMBD_OK; i++)
        if (foreign_size(f, t->scores[i], &bytes))
            sum += bytes;
    if (t->n_rows > 0 && sum == 16 * t->n_rows)
        t->has_score_kind = false; /* two scores a row, in an order that no file says */
}

static void read_states(struct foreign_folder *f, struct foreign_table *t)
{
    if (f->a->skips_state || !has_kind(f, t, "emb_opt_values"))
        return;
    struct foreign_slot *slot = &t->slots[0];
    *slot = (struct foreign_slot){.name = "", .values = paths_of(f, t, "emb_opt_values")};
    slot->width = f->status == EMBD_OK ? foreign_width(f, t, slot) : 0;
    t->n_slots = slot->width > 0;
}

static void read_table(struct foreign_folder *f, const struct ranked *ranked)
{
    struct foreign_table *t = foreign_add(f, ranked->table);
    if (!t)
        return;
    t->n_files = (uint32_t)ranked->world_size;
    t->keys = paths_of(f, t, "emb_keys");
    t->values = paths_of(f, t, "emb_values");
    foreign_measure(f, t);
    if (f->status == EMBD_OK)
        read_args(f, t);
    if (f->status == EMBD_OK)
        read_scores(f, t);
    if (f->status == EMBD_OK)
        read_states(f, t);
}

static void take_name(struct foreign_folder *f, const char *name)
{
    struct ranked ranked;
    if (!parse_name(f, name, &ranked) || !foreign_wants(f, ranked.table))
        return;
    const struct foreign_table *t = find(f, ranked.table);
    if (ranked.world_size < 1 || ranked.world_size > EMBD_ARRAYS_FILES_MAX)
        foreign_fail(f, EMBD_CORRUPT, "%s: the world size is %" PRIu64 ", it can be 1 to %d", name,
                     ranked.world_size, EMBD_ARRAYS_FILES_MAX);
    else if (ranked.rank >= ranked.world_size || (t && t->n_files != ranked.world_size))
        foreign_fail(f, EMBD_CORRUPT,
                     "%s: rank %" PRIu64 " of %" PRIu64 "; expected ranks 0 to %" PRIu64
                     " of one world size",
                     name, ranked.rank, ranked.world_size,
                     (t ? t->n_files : ranked.world_size) - 1);
    else if (!t)
        read_table(f, &ranked);
}

/* Values: a table without its keys would be left out unseen. */
static void check_keys(struct foreign_folder *f, const char *name)
{
    const char *mark = strstr(name, VALUES_MARK);
    char *table = mark ? foreign_text(f, "%.*s", (int)(mark - name), name) : NULL;
    if (table && foreign_wants(f, table))
        foreign_beside(f, foreign_text(f, "%s%s%s", table, KEYS_MARK, mark + strlen(VALUES_MARK)),
                       name);
}

void foreign_read_dynamicemb(struct foreign_folder *f)
{
    for (size_t i = 0; i < f->n_names && f->status == EMBD_OK; i++) {
        if (strstr(f->names[i], "_counter_keys.rank_"))
            foreign_ignore(f, "%s: counters of admission", f->names[i]);
        take_name(f, f->names[i]);
        check_keys(f, f->names[i]);
    }
}
