/* foreigntfra.c - folders of TensorFlow Recommenders Addons: de.Variable.save_to_file_system, and
 * the TFRADynamicEmbedding folder of a checkpoint. A variable's files are
 *
 *     NAME_mht_<I>of<N>-keys       NAME_mht_<I>of<N>-values             one of N tables
 *     NAME_mht_<I>of<N>_rank<R>_size<S>-keys, ...-values                of S processes
 *
 * with keys (int64 or int32) and values (float32, float16 or bfloat16 [dim]), one row after the
 * other. A state of an optimizer is a variable of its own, with its own keys: NAME, '_', perhaps
 * the optimizer's name and '_', and the slot ("m"). No file says dim or dtypes. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/embctl/foreignfiles.h"

static const char *const slots[] = {
    "m",   "v",  "vhat",     "accumulator", "accum",      "linear",          "momentum",
    "rms", "mg", "velocity", "accum_var",   "accum_grad", "accumulated_grad"};
#define N_SLOTS (sizeof slots / sizeof *slots)

/* A variable: of its first file, how many there are. */
struct variable {
    char *name;
    unsigned n_tables, n_ranks;
    bool has_ranks;
    const struct variable *owner; /* that it is a state of, by its name; NULL: of none */
    const char *slot;             /* then which one */
};

struct reading {
    struct foreign_folder *f;
    struct variable *list; /* [n], by name */
    size_t n;
};

/* ---- names ---- */

/* The part of the name behind _mht_; table and rank are of this file. */
static bool parse_end(const char *end, struct variable *v, unsigned *table, unsigned *rank)
{
    int used = 0;
    v->has_ranks = sscanf(end, "%5uof%5u_rank%5u_size%5u-keys%n", table, &v->n_tables, rank,
                          &v->n_ranks, &used) == 4;
    if (v->has_ranks)
        return used > 0 && end[used] == '\0';
    *rank = 0;
    v->n_ranks = 1;
    return sscanf(end, "%5uof%5u-keys%n", table, &v->n_tables, &used) == 2 && used > 0 &&
           end[used] == '\0';
}

/* NAME_mht_...-keys; NULL: no such name. */
static const char *find_mark(const char *name)
{
    const char *mark = NULL;
    for (const char *at = name; (at = strstr(at, "_mht_")) != NULL; at++)
        mark = at;
    return mark == name ? NULL : mark;
}

static void add_variable(struct reading *r, const char *name, const struct variable *v)
{
    struct foreign_folder *f = r->f;
    struct variable *last = r->n > 0 ? &r->list[r->n - 1] : NULL;
    if (!last || strcmp(last->name, v->name) != 0)
        r->list[r->n++] = *v;
    else if (last->n_tables != v->n_tables || last->n_ranks != v->n_ranks ||
             last->has_ranks != v->has_ranks)
        foreign_fail(f, EMBD_CORRUPT,
                     "%s: is of %u tables and %u ranks, other files of '%s' are of %u and %u", name,
                     v->n_tables, v->n_ranks, v->name, last->n_tables, last->n_ranks);
}

/* Files of one variable follow each other, since names are sorted. */
static void take_name(struct reading *r, const char *name)
{
    struct foreign_folder *f = r->f;
    struct variable v = {0};
    unsigned table, rank;
    const char *mark = find_mark(name), *stem = foreign_stem(f, name, "-values");
    if (!stem && (!mark || !parse_end(mark + strlen("_mht_"), &v, &table, &rank))) {
        foreign_ignore(f, "%s", name);
        return;
    }
    if (stem || !(v.name = foreign_text(f, "%.*s", (int)(mark - name), name)))
        return;
    uint64_t n = (uint64_t)v.n_tables * v.n_ranks;
    if (n < 1 || n > EMBD_ARRAYS_FILES_MAX || table < 1 || table > v.n_tables || rank >= v.n_ranks)
        foreign_fail(f, EMBD_CORRUPT,
                     "%s: expected table 1 to N of N, rank 0 to S - 1 of S, and at most %d files",
                     name, EMBD_ARRAYS_FILES_MAX);
    else
        add_variable(r, name, &v);
}

/* Paths of all files that end in -`kind`, table after table of rank after rank. */
static const char **paths_of(struct foreign_folder *f, const struct variable *v, const char *kind)
{
    unsigned n = v->n_tables * v->n_ranks;
    const char **list = foreign_memory(f, n * sizeof *list);
    for (unsigned i = 0; list && i < n; i++) {
        unsigned table = i % v->n_tables + 1, rank = i / v->n_tables;
        list[i] = v->has_ranks ? foreign_text(f, "%s/%s_mht_%uof%u_rank%u_size%u-%s", f->a->folder,
                                              v->name, table, v->n_tables, rank, v->n_ranks, kind)
                               : foreign_text(f, "%s/%s_mht_%uof%u-%s", f->a->folder, v->name,
                                              table, v->n_tables, kind);
    }
    return list;
}

/* ---- which variables are states ---- */

/* The slot whose name `variable` ends in, after the name of the variable `of`; else NULL. */
static const char *slot_in(const char *variable, const char *of)
{
    size_t n = strlen(of), n_variable = strlen(variable);
    if (n_variable <= n + 1 || strncmp(variable, of, n) != 0 || variable[n] != '_')
        return NULL;
    for (size_t i = 0; i < N_SLOTS; i++) {
        size_t n_slot = strlen(slots[i]);
        if (n_variable > n + n_slot && !strcmp(variable + n_variable - n_slot, slots[i]) &&
            variable[n_variable - n_slot - 1] == '_')
            return slots[i];
    }
    return NULL;
}

/* The longest name counts. A table that was asked for by its name is not a state. */
static void find_owner(const struct reading *r, struct variable *v)
{
    const char *only = r->f->a->only;
    for (size_t i = 0; i < r->n && !(only && !strcmp(only, v->name)); i++) {
        const struct variable *of = &r->list[i];
        const char *slot = slot_in(v->name, of->name);
        if (slot && (!v->owner || strlen(of->name) > strlen(v->owner->name))) {
            v->owner = of;
            v->slot = slot;
        }
    }
}

/* Whether it is a state, which is read with its owner: one of a state would be neither table nor
 * state. Where states are not read, the user sees what was taken for one. */
static bool is_state(struct foreign_folder *f, const struct variable *v)
{
    const struct variable *of = v->owner;
    if (!of)
        return false;
    if (of->owner && !f->a->only)
        foreign_fail(f, EMBD_INVALID,
                     "'%s' has the name of a state of '%s', and that of a state of '%s'; choose "
                     "each table with --only NAME",
                     v->name, of->name, of->owner->name);
    else if (f->a->skips_state && foreign_wants(f, of->name))
        foreign_ignore(f, "'%s': its name is that of the state %s of '%s'; import it with --only",
                       v->name, v->slot, of->name);
    return true;
}

static void add_slot(struct foreign_folder *f, struct foreign_table *t, const struct variable *v)
{
    if (t->n_slots == FOREIGN_SLOTS_MAX || v->n_tables * v->n_ranks != t->n_files) {
        foreign_fail(f, EMBD_CORRUPT,
                     "'%s' is state %zu of '%s' and has %u files; expected at most %d states, and "
                     "%" PRIu32 " files as the table has",
                     v->name, t->n_slots + 1, t->name, v->n_tables * v->n_ranks, FOREIGN_SLOTS_MAX,
                     t->n_files);
        return;
    }
    t->slots[t->n_slots++] = (struct foreign_slot){.name = v->slot,
                                                   .values = paths_of(f, v, "values"),
                                                   .keys = paths_of(f, v, "keys"),
                                                   .dtype = f->a->dtype};
}

/* ---- tables ---- */

static void read_table(const struct reading *r, const struct variable *v)
{
    struct foreign_folder *f = r->f;
    struct foreign_table *t = foreign_add(f, v->name);
    if (!t)
        return;
    t->n_files = v->n_tables * v->n_ranks;
    t->key = f->a->key;
    t->dtype = f->a->dtype;
    t->keys = paths_of(f, v, "keys");
    t->values = paths_of(f, v, "values");
    foreign_measure(f, t);
    for (size_t i = 0; i < r->n && !f->a->skips_state && f->status == EMBD_OK; i++)
        if (r->list[i].owner == v)
            add_slot(f, t, &r->list[i]);
}

/* Of a file of values: a variable without its keys would be left out unseen. */
static void check_keys(struct foreign_folder *f, const char *name)
{
    const char *only = f->a->only, *mark = find_mark(name);
    char *stem = mark ? foreign_stem(f, name, "-values") : NULL;
    if (stem && (!only || !strncmp(name, only, strlen(only))))
        foreign_beside(f, foreign_text(f, "%s-keys", stem), name);
}

void foreign_read_tfra(struct foreign_folder *f)
{
    struct reading r = {.f = f, .list = foreign_memory(f, f->n_names * sizeof *r.list)};
    for (size_t i = 0; i < f->n_names && f->status == EMBD_OK; i++)
        take_name(&r, f->names[i]);
    for (size_t i = 0; i < f->n_names && f->status == EMBD_OK; i++)
        check_keys(f, f->names[i]);
    for (size_t i = 0; i < r.n; i++)
        find_owner(&r, &r.list[i]);
    for (size_t i = 0; i < r.n && f->status == EMBD_OK; i++)
        if (!is_state(f, &r.list[i]) && foreign_wants(f, r.list[i].name))
            read_table(&r, &r.list[i]);
}
