/* sequence.c - see sequence.h. */
#include "client/backup/sequence.h"

#include <stdio.h>
#include <string.h>

#include <xxhash.h>

static bool is_of(const struct catalog_entry *entry, const struct table_scope *scope)
{
    return entry->state == BACKUP_WHOLE && embd__scope_is_same(&entry->record.scope, scope);
}

/* ---- the next one ---- */

static uint32_t n_upon(const struct catalog *c, const struct catalog_entry *base)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n; i++)
        n += c->entries[i].state == BACKUP_WHOLE && c->entries[i].record.base_id == base->record.id;
    return n;
}

/* Whether a restore would read too much. */
static bool is_long(const struct catalog *c, const struct catalog_entry *entry)
{
    uint64_t bytes = 0, most;
    uint32_t n = 1;
    for (const struct catalog_entry *base; (base = catalog_base(c, entry)) != NULL; n++) {
        bytes += record_bytes(&entry->record);
        entry = base;
    }
    most = record_bytes(&entry->record);
    return n >= SEQUENCE_CHAIN ||
           bytes >= (most > SEQUENCE_CHAIN_BYTES ? most : SEQUENCE_CHAIN_BYTES);
}

const struct catalog_entry *sequence_upon(const struct catalog *catalog,
                                          const struct table_scope *scope,
                                          const struct backup_sequence *sequence, uint64_t now_s)
{
    const struct catalog_entry *newest = catalog_newest(catalog, scope, NULL, UINT64_MAX);
    if (newest == NULL || now_s >= catalog_root(catalog, newest)->record.time_s + sequence->base_s)
        return NULL;
    const struct catalog_entry *upon = catalog_base(catalog, newest);
    if (upon == NULL || n_upon(catalog, upon) >= SEQUENCE_UPON)
        upon = newest;
    return is_long(catalog, upon) ? NULL : upon;
}

/* ---- which ones go ---- */

/* Of the entries from the newest on. */
struct thinning {
    const struct catalog *catalog;
    const struct backup_sequence *sequence;
    uint64_t now_s;
    uint8_t *marks;
    uint32_t n_roots; /* that were met */
    uint64_t day;     /* of the base that was met last; 0: none */
};

static uint64_t age(const struct thinning *t, const struct catalog_entry *entry)
{
    return t->now_s > entry->record.time_s ? t->now_s - entry->record.time_s : 0;
}

/* Whether it is the newest one upon its base. */
static bool is_last(struct thinning *t, const struct catalog_entry *entry)
{
    const struct catalog_entry *root = catalog_root(t->catalog, entry);
    uint8_t *mark = &t->marks[root - t->catalog->entries];
    bool is_last = !(*mark & SEQUENCE_MET);
    *mark |= SEQUENCE_MET;
    t->n_roots += is_last;
    return is_last;
}

static bool is_last_of_day(struct thinning *t, const struct catalog_entry *entry)
{
    uint64_t day = entry->record.time_s / SEQUENCE_DAY_S + 1;
    bool is_last = day != t->day;
    t->day = day;
    return is_last;
}

static bool has_use(struct thinning *t, const struct catalog_entry *entry)
{
    bool is_last_one = is_last(t, entry);
    bool is_of_a_day = entry->record.base_id == 0 && is_last_of_day(t, entry);
    if (age(t, entry) < t->sequence->recent_s)
        return true;
    if (is_last_one && (t->n_roots <= 2 || age(t, entry) < SEQUENCE_DAY_S))
        return true;
    return is_of_a_day && age(t, entry) < t->sequence->days * SEQUENCE_DAY_S;
}

void sequence_thin(const struct catalog *catalog, const struct table_scope *scope,
                   const struct backup_sequence *sequence, uint64_t now_s, uint8_t *marks)
{
    struct thinning t = {catalog, sequence, now_s, marks, 0, 0};
    memset(marks, 0, catalog->n * sizeof *marks);
    for (uint32_t i = catalog->n; i-- > 0;) {
        const struct catalog_entry *entry = &catalog->entries[i], *base;
        if (!is_of(entry, scope) || has_use(&t, entry))
            marks[i] |= SEQUENCE_STAYS;
        if (is_of(entry, scope) && (marks[i] & SEQUENCE_STAYS) &&
            (base = catalog_base(catalog, entry)) != NULL)
            marks[base - catalog->entries] |= SEQUENCE_STAYS;
    }
}

/* ---- names ---- */

void sequence_prefix(const struct table_scope *scope, char out[SEQUENCE_PREFIX_BYTES])
{
    struct table_scope usual = {.job = BACKUP_JOB};
    uint32_t number = (uint32_t)XXH3_64bits(scope, sizeof *scope);
    if (embd__scope_is_same(scope, &usual))
        snprintf(out, SEQUENCE_PREFIX_BYTES, "archive-");
    else
        snprintf(out, SEQUENCE_PREFIX_BYTES, "archive-%08x-", number);
}

bool sequence_is_name(const struct table_scope *scope, const char *name)
{
    static const char form[] = "00000000-000000-000";
    char prefix[SEQUENCE_PREFIX_BYTES];
    sequence_prefix(scope, prefix);
    size_t n = strlen(prefix);
    bool is = strncmp(name, prefix, n) == 0 && strlen(name + n) == strlen(form);
    for (size_t i = 0; is && form[i] != '\0'; i++)
        is = form[i] == '-' ? name[n + i] == '-' : name[n + i] >= '0' && name[n + i] <= '9';
    return is;
}
