/* Backups that are made one behind the other: a clock that is a number, and a catalog in memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/backup/sequence.h"

#define MOST     4096u
#define KNOWN    7u /* cuts that a server knows: server/snapshot/cuts_known.h */
#define EVERY_S  60u
#define BEGIN_S  1800000000u
#define HOUR_S   3600u
#define BASE_MIB 1000u

static const struct table_scope usual = {.job = BACKUP_JOB};
static const struct backup_sequence sequence = {.base_s = 86400, .recent_s = 3600, .days = 7};

struct world {
    struct catalog c; /* its entries have room for MOST */
    uint64_t now_s, next_id;
    uint64_t known[KNOWN]; /* ids of the last ones that were made, the newest last */
    uint32_t n_bases, n_steps;
    const struct backup_sequence *sequence;
    bool is_due;
};

static void open_world(struct world *w)
{
    *w = (struct world){.now_s = BEGIN_S, .next_id = 1, .sequence = &sequence};
    w->c.entries = calloc(MOST, sizeof *w->c.entries);
    assert_non_null(w->c.entries);
}

static struct catalog_entry *add(struct world *w, const struct table_scope *scope,
                                 const struct catalog_entry *upon, uint64_t bytes)
{
    struct embd__error e = {0};
    const struct catalog_entry base =
        upon == NULL ? (struct catalog_entry){.has_record = 0} : *upon;
    assert_true(w->c.n < MOST);
    struct catalog_entry *entry = &w->c.entries[w->c.n++];
    *entry = (struct catalog_entry){.has_record = true, .state = BACKUP_WHOLE};
    struct record *r = &entry->record;
    r->id = w->next_id++;
    r->base_id = base.record.id;
    r->time_s = w->now_s;
    r->scope = *scope;
    snprintf(entry->name, sizeof entry->name, "b%llu", (unsigned long long)r->id);
    memcpy(r->name, entry->name, sizeof r->name);
    memcpy(r->base, base.name, sizeof r->base);
    assert_int_equal(record_add(r, "0/x", bytes, 0, &e), EMBD_OK);
    memmove(w->known, w->known + 1, (KNOWN - 1) * sizeof *w->known);
    w->known[KNOWN - 1] = r->id;
    w->n_bases += upon == NULL;
    return entry;
}

static bool is_known(const struct world *w, uint64_t id)
{
    for (uint32_t i = 0; i < KNOWN; i++)
        if (w->known[i] == id)
            return true;
    return false;
}

static void thin(struct world *w)
{
    uint8_t marks[MOST];
    uint32_t n = 0;
    sequence_thin(&w->c, &usual, &sequence, w->now_s, marks);
    for (uint32_t i = 0; i < w->c.n; i++)
        if (marks[i] & SEQUENCE_STAYS)
            w->c.entries[n++] = w->c.entries[i];
        else
            record_fini(&w->c.entries[i].record);
    w->c.n = n;
}

static const struct catalog_entry *upon_now(const struct world *w, bool *is_due_out)
{
    return sequence_upon(&w->c, &usual, w->sequence, w->now_s, is_due_out);
}

static const struct catalog_entry *make_next(struct world *w, uint64_t bytes)
{
    const struct catalog_entry *upon = upon_now(w, &w->is_due);
    if (upon != NULL)
        assert_true(is_known(w, upon->record.id));
    return add(w, &usual, upon, upon == NULL ? (uint64_t)BASE_MIB << 20 : bytes);
}

static void close_world(struct world *w)
{
    for (uint32_t i = 0; i < w->c.n; i++)
        record_fini(&w->c.entries[i].record);
    free(w->c.entries);
}

/* ---- what has to hold after each step ---- */

static void check_bases(const struct world *w)
{
    for (uint32_t i = 0; i < w->c.n; i++) {
        const struct catalog_entry *entry = &w->c.entries[i], *base = catalog_base(&w->c, entry);
        uint64_t bytes = 0;
        uint32_t n = 1;
        assert_true(entry->record.base_id == 0 || (base != NULL && base < entry));
        for (; base != NULL; base = catalog_base(&w->c, base), n++)
            bytes += base->record.base_id == 0 ? 0 : record_bytes(&base->record);
        assert_true(n <= SEQUENCE_CHAIN + 1);
        assert_true(bytes <= (uint64_t)2 * BASE_MIB << 20);
    }
}

/* Seconds from one backup to the next are no more than `most_s`, from `from_s` on. */
static void check_gaps(const struct world *w, uint64_t from_s, uint64_t most_s)
{
    uint64_t before_s = from_s > BEGIN_S ? from_s : BEGIN_S;
    for (uint32_t i = 0; i < w->c.n; i++) {
        uint64_t time_s = w->c.entries[i].record.time_s;
        if (time_s < before_s)
            continue;
        assert_true(time_s - before_s <= most_s);
        before_s = time_s;
    }
    assert_true(w->now_s - before_s <= most_s);
}

static bool has_base_of(const struct world *w, uint64_t day)
{
    for (uint32_t i = 0; i < w->c.n; i++) {
        const struct record *r = &w->c.entries[i].record;
        if (r->base_id == 0 && r->time_s / SEQUENCE_DAY_S == day)
            return true;
    }
    return false;
}

static void run_for(struct world *w, uint64_t seconds, uint64_t every_s, uint64_t bytes)
{
    for (uint64_t end_s = w->now_s + seconds; w->now_s < end_s; w->now_s += every_s) {
        uint64_t newest_s = make_next(w, bytes)->record.time_s;
        thin(w);
        assert_int_equal(w->c.entries[w->c.n - 1].record.time_s, newest_s);
        if (++w->n_steps % 23 != 0)
            continue;
        check_bases(w);
        check_gaps(w, w->now_s - HOUR_S + 1, every_s);
        check_gaps(w, w->now_s - SEQUENCE_DAY_S + 1, (SEQUENCE_UPON + 1) * every_s);
    }
}

/* ---- tests ---- */

/* A little changes: the bases are those of each day. */
static void test_days(void **state)
{
    struct world w;
    (void)state;
    open_world(&w);
    run_for(&w, 8 * SEQUENCE_DAY_S, 4 * EVERY_S, 64u << 10);
    assert_true(w.n_bases >= 8 && w.n_bases <= 8 + 8 * 86400 / (256 * 4 * 4 * EVERY_S));
    for (uint64_t day = 1; day < 7; day++)
        assert_true(has_base_of(&w, w.now_s / SEQUENCE_DAY_S - day));
    assert_false(has_base_of(&w, BEGIN_S / SEQUENCE_DAY_S));
    assert_true(w.c.n < 60 + 2 * 86400 / (SEQUENCE_UPON * EVERY_S) + 20);
    close_world(&w);
}

/* Much changes: a restore never reads more than twice the rows and one increment. */
static void test_bytes(void **state)
{
    struct world w;
    (void)state;
    open_world(&w);
    run_for(&w, SEQUENCE_DAY_S, EVERY_S, 100u << 20);
    uint64_t n_steps = SEQUENCE_DAY_S / EVERY_S;
    assert_true(w.n_bases >= n_steps / 60 && w.n_bases <= n_steps / 20);
    close_world(&w);
}

/* The base is put among the increments that were made while it was copied. */
static void put_base(struct world *w, const struct catalog_entry *base)
{
    uint32_t at = w->c.n;
    assert_true(w->c.n < MOST);
    for (; at > 0 && w->c.entries[at - 1].record.time_s > base->record.time_s; at--)
        w->c.entries[at] = w->c.entries[at - 1];
    w->c.entries[at] = *base;
    w->c.n++;
}

/* Each base is copied while five increments are made; then the next ones are upon it. */
static void test_beside(void **state)
{
    static const struct backup_sequence deferring = {
        .base_s = 7200, .recent_s = 3600, .days = 7, .defers = true};
    struct world w;
    struct catalog_entry base = {.has_record = false};
    uint32_t n_beside = 0;
    uint64_t root = 0; /* of what is made */
    (void)state;
    open_world(&w);
    w.sequence = &deferring;
    for (uint64_t end_s = w.now_s + 2 * SEQUENCE_DAY_S; w.now_s < end_s; w.now_s += EVERY_S) {
        const struct catalog_entry *made = make_next(&w, 1u << 20);
        root = root == 0 ? made->record.id : root;
        assert_int_equal(catalog_root(&w.c, made)->record.id, root);
        if (base.has_record && ++n_beside == BACKUP_BESIDE) {
            put_base(&w, &base);
            root = base.record.id;
            base.has_record = false;
            n_beside = 0;
        } else if (w.is_due && !base.has_record) {
            w.now_s++; /* its cut is behind that of the increment */
            base = *add(&w, &usual, NULL, (uint64_t)BASE_MIB << 20);
            w.c.n--;
        }
        thin(&w);
        check_bases(&w);
    }
    assert_true(w.n_bases >= 2 * SEQUENCE_DAY_S / 7200 - 3);
    if (base.has_record)
        record_fini(&base.record);
    close_world(&w);
}

/* The archive stood still for ever: the newest stays, and what it is upon. */
static void test_rest(void **state)
{
    struct world w;
    (void)state;
    open_world(&w);
    run_for(&w, 20 * EVERY_S, EVERY_S, 64u << 10);
    uint64_t newest = w.c.entries[w.c.n - 1].record.id;
    w.now_s += 100 * SEQUENCE_DAY_S;
    thin(&w);
    assert_true(w.c.n >= 2 && w.c.entries[w.c.n - 1].record.id == newest);
    check_bases(&w);
    assert_null(upon_now(&w, &w.is_due)); /* a new base is due */
    make_next(&w, 0);
    thin(&w);
    assert_true(w.c.entries[w.c.n - 2].record.id == newest); /* the chain before the new base */
    w.now_s += EVERY_S;
    make_next(&w, 0);
    thin(&w);
    assert_non_null(catalog_find(&w.c, w.c.entries[0].name));
    close_world(&w);
}

/* Others' backups, and damaged ones, are left alone, and nothing is upon them. */
static void test_others(void **state)
{
    struct world w;
    struct table_scope other = {.job = BACKUP_JOB "-b"};
    (void)state;
    open_world(&w);
    add(&w, &other, NULL, 1);
    assert_null(upon_now(&w, &w.is_due));
    make_next(&w, 0);
    make_next(&w, 0);
    w.c.entries[2].state = BACKUP_DAMAGED;
    w.c.entries[0].state = BACKUP_WHOLE;
    assert_ptr_equal(upon_now(&w, &w.is_due), &w.c.entries[1]);
    w.now_s += 100 * SEQUENCE_DAY_S;
    thin(&w);
    assert_int_equal(w.c.n, 3);
    close_world(&w);
}

static void test_names(void **state)
{
    char prefix[SEQUENCE_PREFIX_BYTES];
    const struct table_scope other = {.job = BACKUP_JOB "-b"};
    (void)state;
    assert_true(sequence_is_name(&usual, "archive-20261128-034300-765"));
    assert_false(sequence_is_name(&usual, "archive-20261128-034300-76x"));
    assert_false(sequence_is_name(&usual, "archive-20261128-034300-7655"));
    assert_false(sequence_is_name(&usual, "backup-20261128-034300-765"));
    assert_false(sequence_is_name(&other, "archive-20261128-034300-765"));
    sequence_prefix(&other, prefix);
    char name[64];
    snprintf(name, sizeof name, "%s20261128-034300-765", prefix);
    assert_true(sequence_is_name(&other, name));
    assert_false(sequence_is_name(&usual, name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_days), cmocka_unit_test(test_bytes),  cmocka_unit_test(test_beside),
        cmocka_unit_test(test_rest), cmocka_unit_test(test_others), cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
