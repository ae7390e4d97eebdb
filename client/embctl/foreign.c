/* foreign.c - embctl import --format: makes and fills tables from a folder of another system.
 *
 * The happy path: read names and sizes of the folder's files; work out each table's definition;
 * choose the states that its optimizer has; check all files; import table after table. What can
 * fail: anything before the first import, and then nothing has changed; or an import, and then the
 * tables that this command made are dropped again. */
#include "client/embctl/foreign.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/embctl/embctl.h"
#include "client/embctl/foreignfiles.h"
#include "client/embctl/importall.h"
#include "client/embctl/progress.h"

struct moving {
    struct import_table to;
    embd_arrays arrays;
    embd_arrays_state states[EMBD_ARRAYS_STATES_MAX];
};

struct run {
    const struct foreign_arguments *a;
    struct foreign_folder folder;
    embd_client *client;
    struct moving *tables; /* [folder.job.n_tables] */
    bool fills_existing;   /* a table is there already, and cannot be dropped again */
    char why[1024];
};

/* ---- states ---- */

/* Optimizers whose step is the same there, and what there their states are called, in our order. */
static const struct rule {
    embd_optimizer_kind kind;
    const char *slots[2], *also[2]; /* another name of each; NULL: none */
} rules[] = {
    {EMBD_OPTIMIZER_ADAM, {"m", "v"}, {NULL, NULL}},
    {EMBD_OPTIMIZER_ADAGRAD, {"accumulator", NULL}, {NULL, NULL}},
    {EMBD_OPTIMIZER_FTRL, {"accumulator", "linear"}, {"accum", NULL}},
    {EMBD_OPTIMIZER_MOMENTUM, {"momentum", NULL}, {NULL, NULL}},
    {EMBD_OPTIMIZER_NESTEROV, {"momentum", NULL}, {NULL, NULL}},
};
#define N_RULES (sizeof rules / sizeof *rules)

static const struct foreign_slot *find_slot(const struct foreign_table *t, const struct rule *rule,
                                            size_t i)
{
    for (size_t k = 0; k < t->n_slots && rule->slots[i]; k++)
        if (!strcmp(t->slots[k].name, rule->slots[i]) ||
            (rule->also[i] && !strcmp(t->slots[k].name, rule->also[i])))
            return &t->slots[k];
    return NULL;
}

/* Whether the table has exactly the states of the rule. */
static bool fits(const struct foreign_table *t, const struct rule *rule)
{
    size_t n = 0;
    for (size_t i = 0; i < 2 && rule->slots[i]; i++, n++)
        if (!find_slot(t, rule, i))
            return false;
    return n == t->n_slots;
}

/* An optimizer by the names of the states, where no file and no option says it. */
static void guess_optimizer(struct run *r, struct foreign_table *t)
{
    for (size_t i = 0; i < N_RULES; i++)
        if (fits(t, &rules[i])) {
            foreign_set(&r->folder, t, "optimizer", "%s", embd_optimizer_name(rules[i].kind));
            return;
        }
}

static void take_slot(struct moving *m, const struct foreign_slot *slot)
{
    m->states[m->arrays.n_states++] =
        (embd_arrays_state)EMBD_ARRAYS_STATE(.width = slot->width ? slot->width : m->to.schema.dim,
                                             .dtype = slot->dtype, .values = slot->values,
                                             .keys = slot->keys);
    m->to.state_file = m->to.state_file ? m->to.state_file : slot->values[0];
}

/* The states of the table's optimizer; others than these are refused by name. */
static int choose_states(struct run *r, struct moving *m, const struct foreign_table *t)
{
    embd_optimizer_kind kind = m->to.schema.optimizer.kind;
    m->arrays.states = m->states;
    if (t->n_slots == 1 && !t->slots[0].name[0]) {
        take_slot(m, &t->slots[0]);
        return EMBD_OK;
    }
    for (size_t i = 0; i < N_RULES; i++)
        if (rules[i].kind == kind && fits(t, &rules[i])) {
            for (size_t k = 0; k < 2 && rules[i].slots[k]; k++)
                take_slot(m, find_slot(t, &rules[i], k));
            return EMBD_OK;
        }
    char names[200] = "";
    for (size_t i = 0; i < t->n_slots; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? ", " : "",
                 t->slots[i].name);
    return t->n_slots == 0
               ? EMBD_OK
               : foreign_fail(&r->folder, EMBD_UNSUPPORTED,
                              "'%s' has the states %s, which are not those of %s; set --optimizer, "
                              "or use --no-optimizer-state to begin with new states",
                              t->name, names, embd_optimizer_name(kind));
}

/* ---- definitions ---- */

static bool has_field(const struct settings *s, const char *field)
{
    for (size_t i = 0; i < s->n; i++)
        if (!strcmp(s->list[i].field, field))
            return true;
    return false;
}

/* The files' fields, then those of the command line. */
static int apply_settings(struct run *r, struct moving *m, const struct job_table *table)
{
    const struct settings *given = &r->a->settings;
    struct settings *all = &m->to.all;
    all->list = calloc(table->n_own + given->n + 1, sizeof *all->list);
    if (!all->list)
        return foreign_fail(&r->folder, EMBD_NO_MEMORY, "no memory");
    for (size_t i = 0; i < table->n_own; i++)
        all->list[all->n++] = (struct setting){table->own[i].field, table->own[i].value};
    for (size_t i = 0; i < given->n; i++)
        all->list[all->n++] = given->list[i];
    return settings_apply(all, table->name, &m->to.schema, m->to.slot_sizes, r->why, sizeof r->why);
}

/* The existing table's definition, where no option gives another. */
static int define(struct run *r, struct moving *m, size_t i)
{
    struct foreign_table *t = &r->folder.tables[i];
    struct job_table *table = &r->folder.job.tables[i];
    embd_table *existing;
    if (r->a->settings.n == 0 && embd_table_open(r->client, table->name, &existing) == EMBD_OK) {
        m->to.schema = *embd_table_schema(existing);
        return EMBD_OK;
    }
    if (t->n_slots > 0 && t->slots[0].name[0] && !has_field(&r->a->settings, "optimizer"))
        guess_optimizer(r, t);
    if (t->n_slots > 0 && !t->has_lr && !has_field(&r->a->settings, "optimizer.lr"))
        return foreign_fail(&r->folder, EMBD_INVALID,
                            "no file has the learning rate of '%s': set --lr X", t->name);
    return apply_settings(r, m, table);
}

static int check_dim(struct run *r, const struct moving *m, const struct foreign_table *t)
{
    if (t->dim == 0 || t->dim == m->to.schema.dim)
        return EMBD_OK;
    return foreign_fail(&r->folder, EMBD_INVALID,
                        "'%s' has rows of %" PRIu32 " values, the table's dim is %" PRIu32, t->name,
                        t->dim, m->to.schema.dim);
}

/* Scores that the table has a place for. */
static void choose_scores(struct run *r, struct moving *m, const struct foreign_table *t)
{
    embd_on_full on_full = m->to.schema.on_full;
    bool evicts = on_full != EMBD_ON_FULL_GROW && on_full != EMBD_ON_FULL_ERROR &&
                  m->to.schema.ttl_seconds == 0;
    bool is_kept = t->score == EMBD_ARRAYS_COUNT ? on_full == EMBD_ON_FULL_EVICT_LFU : evicts;
    if (!t->scores)
        return;
    if (t->has_score_kind && is_kept)
        m->arrays.scores = t->scores;
    else if (t->has_score_kind)
        foreign_ignore(&r->folder,
                       "scores of '%s': they are %s, which a table with on_full = %s does not keep",
                       t->name, t->score == EMBD_ARRAYS_COUNT ? "counts" : "steps",
                       embd_on_full_name(on_full));
    else
        foreign_ignore(&r->folder, "scores of '%s': they are neither counts nor steps of a table",
                       t->name);
    m->arrays.score = t->score;
    m->arrays.score_now = t->score_now;
}

static void look_for_existing(struct run *r, const char *table)
{
    embd_table *existing;
    r->fills_existing |= embd_table_open(r->client, table, &existing) == EMBD_OK;
}

static int prepare_one(struct run *r, size_t i)
{
    struct moving *m = &r->tables[i];
    int status = define(r, m, i);
    const struct foreign_table *t = &r->folder.tables[i];
    if (status != EMBD_OK || (status = check_dim(r, m, t)) != EMBD_OK)
        return status;
    m->arrays =
        (embd_arrays)EMBD_ARRAYS(.n_files = t->n_files, .keys = t->keys, .values = t->values,
                                 .key = t->key, .dtype = t->dtype, .head_bytes = t->head_bytes,
                                 .step = r->a->has_step ? r->a->step : t->step);
    m->to.place = t->keys[0];
    m->to.n_gpus = t->n_files;
    look_for_existing(r, m->to.schema.name);
    choose_scores(r, m, t);
    return choose_states(r, m, t);
}

static int prepare(void *arg)
{
    struct run *r = arg;
    size_t n = r->folder.job.n_tables;
    int status = EMBD_OK;
    r->tables = calloc(n + 1, sizeof *r->tables);
    if (!r->tables)
        return foreign_fail(&r->folder, EMBD_NO_MEMORY, "no memory");
    for (size_t i = 0; i < n && status == EMBD_OK; i++)
        status = prepare_one(r, i);
    return status == EMBD_OK ? r->folder.status : status;
}

/* ---- import ---- */

static struct import_table *table_of(void *arg, size_t i)
{
    return &((struct run *)arg)->tables[i].to;
}

static int run_one(void *arg, size_t i, bool checks, embd_dump_report *report, uint64_t *elapsed_us)
{
    struct run *r = arg;
    struct moving *m = &r->tables[i];
    struct progress progress;
    m->arrays.check_only = checks;
    m->arrays.check_values = r->a->is_dry || r->fills_existing;
    m->arrays.is_checked = !checks;
    progress_begin(&progress, "check", "import");
    int status = embd_arrays_import(r->client, &m->to.schema, &m->arrays, progress_report,
                                    &progress, report);
    *elapsed_us = progress_end(&progress);
    return status;
}

static int import_tables(struct run *r)
{
    const struct import_all all = {.client = r->client,
                                   .path = r->a->folder,
                                   .file = &r->folder.job,
                                   .is_dry = r->a->is_dry,
                                   .prepare = prepare,
                                   .table = table_of,
                                   .run = run_one,
                                   .arg = r,
                                   .why = r->why,
                                   .why_bytes = sizeof r->why};
    return import_all(&all);
}

static void fini(struct run *r)
{
    for (size_t i = 0; r->tables && i < r->folder.job.n_tables; i++)
        settings_fini(&r->tables[i].to.all);
    free(r->tables);
    foreign_folder_fini(&r->folder);
}

int foreign_import(const struct foreign_arguments *a)
{
    struct run r = {.a = a};
    int status = foreign_folder_read(&r.folder, a, r.why, sizeof r.why);
    int code = status == EMBD_OK ? connect_servers(&r.client) : end_with(status, r.why);
    if (code == EXIT_DONE) {
        code = end_with(import_tables(&r), r.why);
        embd_close(r.client);
    }
    fini(&r);
    return code;
}
