/* foreignhkv.c - files of HierarchicalKV's LocalKVFile: keys (int64 or uint64), values (float32,
 * float16 or bfloat16 [dim]) and scores (uint64), one row after the other, under names that the
 * program chose. Read are the names of its own tests,
 *
 *     NAME.keys  NAME.values  NAME.scores
 *
 * and NAME.0.keys, NAME.1.keys, ... of a table on several GPUs. No file says dim or dtypes. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/embctl/embctl.h"
#include "client/embctl/foreignfiles.h"

/* How many of NAME.0.keys, NAME.1.keys, ... there are, without a gap. */
static uint32_t count_files(struct foreign_folder *f, const char *name)
{
    uint32_t n = 0;
    for (;; n++) {
        char *keys = foreign_text(f, "%s.%" PRIu32 ".keys", name, n);
        if (!keys || n == EMBD_ARRAYS_FILES_MAX || !foreign_has(f, keys))
            return n;
    }
}

/* Paths of NAME.ENDING, or of NAME.0.ENDING and so on. */
static const char **paths_of(struct foreign_folder *f, const struct foreign_table *t,
                             bool is_numbered, const char *ending)
{
    const char **list = foreign_memory(f, t->n_files * sizeof *list);
    for (uint32_t i = 0; list && i < t->n_files; i++)
        list[i] = is_numbered
                      ? foreign_text(f, "%s/%s.%" PRIu32 ".%s", f->a->folder, t->name, i, ending)
                      : foreign_text(f, "%s/%s.%s", f->a->folder, t->name, ending);
    return list;
}

/* Whether one of the files is there: then all must be. */
static bool has_one(struct foreign_folder *f, const char **paths, uint32_t n)
{
    bool has = false;
    for (uint32_t i = 0; i < n && !has && f->status == EMBD_OK; i++)
        has = foreign_has(f, strrchr(paths[i], '/') + 1);
    return has;
}

static void read_table(struct foreign_folder *f, const char *name, bool is_numbered)
{
    struct foreign_table *t = foreign_add(f, name);
    if (!t)
        return;
    t->n_files = is_numbered ? count_files(f, name) : 1;
    t->key = f->a->key;
    t->dtype = f->a->dtype;
    t->keys = paths_of(f, t, is_numbered, "keys");
    t->values = paths_of(f, t, is_numbered, "values");
    t->scores = paths_of(f, t, is_numbered, "scores");
    if (f->status == EMBD_OK && !has_one(f, t->scores, t->n_files))
        t->scores = NULL;
    t->has_score_kind = f->a->counts;
    t->score = EMBD_ARRAYS_COUNT;
    foreign_measure(f, t);
}

/* NAME of NAME.<number>; NULL: no number. Of "0" and "00" only the first is one of a list. */
static char *numbered(struct foreign_folder *f, const char *stem, uint64_t *number_out)
{
    const char *dot = strrchr(stem, '.');
    if (!dot || dot == stem || (dot[1] == '0' && dot[2] != '\0') ||
        !read_uint(dot + 1, EMBD_ARRAYS_FILES_MAX, number_out))
        return NULL;
    return foreign_text(f, "%.*s", (int)(dot - stem), stem);
}

static void take_stem(struct foreign_folder *f, const char *stem)
{
    uint64_t number = 0;
    const char *name = numbered(f, stem, &number);
    if (!foreign_wants(f, name ? name : stem))
        return;
    char *before = foreign_text(f, "%s.%" PRIu64 ".keys", name ? name : "", number - 1);
    if (name && number > 0 && before && !foreign_has(f, before))
        foreign_fail(f, EMBD_CORRUPT, "%s: is missing, %s.keys is there", before, stem);
    else if (!name || number == 0)
        read_table(f, name ? name : stem, name != NULL);
}

/* Values or scores: a table without its keys would be left out unseen. */
static void check_keys(struct foreign_folder *f, const char *stem, const char *name)
{
    uint64_t number;
    const char *table = numbered(f, stem, &number);
    if (foreign_wants(f, table ? table : stem))
        foreign_beside(f, foreign_text(f, "%s.keys", stem), name);
}

void foreign_read_hkv(struct foreign_folder *f)
{
    static const char *const others[] = {".values", ".scores"};
    for (size_t i = 0; i < f->n_names && f->status == EMBD_OK; i++) {
        const char *stem = foreign_stem(f, f->names[i], ".keys"), *other = NULL;
        for (size_t k = 0; k < 2 && !other; k++)
            other = foreign_stem(f, f->names[i], others[k]);
        if (stem)
            take_stem(f, stem);
        else if (other)
            check_keys(f, other, f->names[i]);
        else
            foreign_ignore(f, "%s", f->names[i]);
    }
}
