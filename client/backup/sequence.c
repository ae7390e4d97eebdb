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

/* Whether a restore would read so many times too much. */
static bool is_long(const struct catalog *c, const struct catalog_entry *entry, uint32_t times)
{
    uint64_t bytes = 0, most;
    uint32_t n = 1;
    for (const struct catalog_entry *base; (base = catalog_base(c, entry)) != NULL; n++) {
        bytes += record_bytes(&entry->record);
        entry = base;
    }
    most = record_bytes(&entry->record);
    most = most > SEQUENCE_CHAIN_BYTES ? most : SEQUENCE_CHAIN_BYTES;
    return n >= times * SEQUENCE_CHAIN || bytes >= times * most;
}

static const struct catalog_entry *newest_root(const struct catalog *c,
                                               const struct table_scope *scope)
{
    const struct catalog_entry *entry = c->entries + c->n;
    while (entry-- > c->entries)
        if (is_of(entry, scope) && entry->record.base_id == 0)
            break;
    return entry;
}

static uint32_t n_newer(const struct catalog *c, const struct table_scope *scope,
                        const struct catalog_entry *than)
{
    uint32_t n = 0;
    for (const struct catalog_entry *entry = than + 1; entry < c->entries + c->n; entry++)
        n += is_of(entry, scope);
    return n;
}

/* Of the increments upon one backup the last has the next ones upon it. A base that was copied
 * while increments upon the one before were made is older than these. */
static const struct catalog_entry *next_upon(const struct catalog *c,
                                             const struct table_scope *scope,
                                             const struct catalog_entry *newest)
{
    const struct catalog_entry *upon = catalog_base(c, newest), *root = newest_root(c, scope);
    if (root > catalog_root(c, newest))
        return root;
    bool is_over = upon == NULL || n_upon(c, upon) >= SEQUENCE_UPON ||
                   n_newer(c, scope, upon) >= SEQUENCE_KNOWN;
    return is_over ? newest : upon;
}

const struct catalog_entry *sequence_upon(const struct catalog *catalog,
                                          const struct table_scope *scope,
                                          const struct backup_sequence *sequence, uint64_t now_s,
                                          bool *is_due_out)
{
    const struct catalog_entry *newest = catalog_newest(catalog, scope, NULL, UINT64_MAX);
    *is_due_out = true;
    if (newest == NULL)
        return NULL;
    const struct catalog_entry *upon = next_upon(catalog, scope, newest);
    uint64_t base_s = catalog_root(catalog, upon)->record.time_s, every_s = sequence->base_s;
    *is_due_out = now_s >= base_s + every_s || is_long(catalog, upon, 1);
    bool has_to = now_s >= base_s + 2 * every_s || is_long(catalog, upon, 2);
    return has_to || (*is_due_out && !sequence->defers) ? NULL : upon;
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
