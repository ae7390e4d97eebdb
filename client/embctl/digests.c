/* digests.c - see digests.h. */
#include "client/embctl/digests.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/embctl/listing.h"

#define SHOWN_PARTS 16u /* of a table that differs, in a table for people */

struct kept_digest {
    char name[EMBD_NAME_MAX + 1];
    uint64_t rows, candidates, step, digest;
    uint64_t parts[EMBD_DIGEST_PARTS], part_rows[EMBD_DIGEST_PARTS];
    uint32_t part_shards[EMBD_DIGEST_PARTS];
    uint64_t *positions; /* [n_positions] malloc'd */
    uint32_t n_positions;
};

void digests_fini(struct digests *digests)
{
    for (size_t i = 0; i < digests->n; i++)
        free(digests->list[i].positions);
    free(digests->list);
}

int digests_add(void *arg, const embd_table_digest *table)
{
    struct digests *digests = arg;
    struct kept_digest *grown = realloc(digests->list, (digests->n + 1) * sizeof *grown);
    if (grown == NULL)
        return EMBD_NO_MEMORY;
    digests->list = grown;
    struct kept_digest *kept = &grown[digests->n];
    memset(kept, 0, sizeof *kept);
    kept->positions = malloc((table->n_positions + 1) * sizeof *kept->positions);
    if (kept->positions == NULL)
        return EMBD_NO_MEMORY;
    digests->n++;
    snprintf(kept->name, sizeof kept->name, "%s", table->name);
    kept->rows = table->rows;
    kept->candidates = table->candidates;
    kept->step = table->step;
    kept->digest = table->digest;
    memcpy(kept->parts, table->parts, sizeof kept->parts);
    memcpy(kept->part_rows, table->part_rows, sizeof kept->part_rows);
    memcpy(kept->part_shards, table->part_shards, sizeof kept->part_shards);
    kept->n_positions = table->n_positions;
    if (table->n_positions > 0)
        memcpy(kept->positions, table->positions, table->n_positions * sizeof *kept->positions);
    return EMBD_OK;
}

/* ---- one side ---- */

static void set_hash(struct listing *l, size_t column, uint64_t hash)
{
    char text[17];
    snprintf(text, sizeof text, "%016" PRIx64, hash);
    listing_text(l, column, text);
}

void digests_print(const struct digests *digests)
{
    static const struct column columns[] = {{"table", CELL_TEXT},
                                            {"digest", CELL_TEXT},
                                            {"rows", CELL_COUNT},
                                            {"candidates", CELL_COUNT},
                                            {"steps", CELL_COUNT}};
    struct listing l;
    listing_init(&l, "tables", columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < digests->n; i++) {
        const struct kept_digest *kept = &digests->list[i];
        listing_row(&l);
        listing_text(&l, 0, kept->name);
        set_hash(&l, 1, kept->digest);
        listing_uint(&l, 2, kept->rows);
        listing_uint(&l, 3, kept->candidates);
        listing_uint(&l, 4, kept->step);
    }
    listing_print(&l);
    listing_fini(&l);
}

/* ---- both sides ---- */

static const struct kept_digest *find(const struct digests *digests, const char *name)
{
    for (size_t i = 0; i < digests->n; i++)
        if (strcmp(digests->list[i].name, name) == 0)
            return &digests->list[i];
    return NULL;
}

static bool is_part_same(const struct kept_digest *a, const struct kept_digest *b, uint32_t part)
{
    return a->parts[part] == b->parts[part] && a->part_rows[part] == b->part_rows[part];
}

static uint32_t count_other_parts(const struct kept_digest *a, const struct kept_digest *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < EMBD_DIGEST_PARTS; i++)
        n += !is_part_same(a, b, i);
    return n;
}

static bool is_same(const struct kept_digest *a, const struct kept_digest *b)
{
    return a != NULL && b != NULL && a->rows == b->rows && a->candidates == b->candidates &&
           a->step == b->step && count_other_parts(a, b) == 0;
}

/* The columns of one side: every second one. NULL: the table is not there. */
static void set_side(struct listing *l, size_t first, const struct kept_digest *kept)
{
    if (kept == NULL)
        return;
    set_hash(l, first, kept->digest);
    listing_uint(l, first + 2, kept->rows);
    listing_uint(l, first + 4, kept->candidates);
    listing_uint(l, first + 6, kept->step);
    listing_uints(l, first + 8, kept->positions, kept->n_positions);
}

static void add_pair(struct listing *l, const char *name, const struct kept_digest *here,
                     const struct kept_digest *there)
{
    listing_row(l);
    listing_text(l, 0, name);
    listing_flag(l, 1, is_same(here, there));
    set_side(l, 2, here);
    set_side(l, 3, there);
}

static void set_shard(struct listing *l, size_t column, uint32_t shard)
{
    if (shard != EMBD_DIGEST_NO_SHARD)
        listing_uint(l, column, shard);
}

static void add_part(struct listing *l, const struct kept_digest *here,
                     const struct kept_digest *there, uint32_t part)
{
    listing_row(l);
    listing_text(l, 0, here->name);
    listing_uint(l, 1, part);
    set_shard(l, 2, here->part_shards[part]);
    set_shard(l, 3, there->part_shards[part]);
    listing_uint(l, 4, here->part_rows[part]);
    listing_uint(l, 5, there->part_rows[part]);
    set_hash(l, 6, here->parts[part]);
    set_hash(l, 7, there->parts[part]);
}

static void add_parts(struct listing *l, const struct kept_digest *here,
                      const struct kept_digest *there)
{
    uint32_t shown = 0;
    uint32_t most = globals.json ? EMBD_DIGEST_PARTS : SHOWN_PARTS;
    for (uint32_t i = 0; i < EMBD_DIGEST_PARTS && shown < most; i++)
        if (!is_part_same(here, there, i)) {
            add_part(l, here, there, i);
            shown++;
        }
}

/* One line for each table that differs. */
static void tell(const struct kept_digest *here, const struct kept_digest *there)
{
    uint32_t n = count_other_parts(here, there);
    fprintf(stderr,
            "embctl: table '%s' differs in %u vshards: %" PRIu64 " rows and %" PRIu64
            " steps here, %" PRIu64 " rows and %" PRIu64 " steps there%s\n",
            here->name, n, here->rows, here->step, there->rows, there->step,
            n > SHOWN_PARTS && !globals.json ? "; -o json has all vshards" : "");
}

static void tell_one_side(const char *name, bool is_here)
{
    fprintf(stderr, "embctl: table '%s' is only %s\n", name, is_here ? "here" : "there");
}

/* Of two with as many shards, which may be a server and its follower. */
static void tell_positions(const struct kept_digest *here, const struct kept_digest *there)
{
    if (here->n_positions != there->n_positions)
        return;
    for (uint32_t i = 0; i < here->n_positions; i++)
        if (here->positions[i] != there->positions[i]) {
            fprintf(stderr,
                    "embctl: table '%s': the journal of shard %u had %" PRIu64
                    " records here, %" PRIu64
                    " there: if one follows the other, compare again when both have as many\n",
                    here->name, i, here->positions[i], there->positions[i]);
            return;
        }
}

static bool compare_tables(const struct digests *here, const struct digests *there,
                           struct listing *tables, struct listing *parts)
{
    bool differs = false;
    for (size_t i = 0; i < here->n; i++) {
        const struct kept_digest *a = &here->list[i], *b = find(there, a->name);
        add_pair(tables, a->name, a, b);
        if (is_same(a, b))
            continue;
        differs = true;
        if (b == NULL) {
            tell_one_side(a->name, true);
            continue;
        }
        add_parts(parts, a, b);
        tell(a, b);
        tell_positions(a, b);
    }
    for (size_t i = 0; i < there->n; i++)
        if (find(here, there->list[i].name) == NULL) {
            add_pair(tables, there->list[i].name, NULL, &there->list[i]);
            tell_one_side(there->list[i].name, false);
            differs = true;
        }
    return differs;
}

int digests_compare(const struct digests *here, const struct digests *there)
{
    static const struct column table_columns[] = {
        {"table", CELL_TEXT},        {"same", CELL_FLAG},
        {"digest", CELL_TEXT},       {"digest_there", CELL_TEXT},
        {"rows", CELL_COUNT},        {"rows_there", CELL_COUNT},
        {"candidates", CELL_COUNT},  {"candidates_there", CELL_COUNT},
        {"steps", CELL_COUNT},       {"steps_there", CELL_COUNT},
        {"positions", CELL_NUMBERS}, {"positions_there", CELL_NUMBERS},
    };
    static const struct column part_columns[] = {
        {"table", CELL_TEXT},         {"vshard", CELL_NUMBER},  {"shard", CELL_NUMBER},
        {"shard_there", CELL_NUMBER}, {"rows", CELL_COUNT},     {"rows_there", CELL_COUNT},
        {"sum", CELL_TEXT},           {"sum_there", CELL_TEXT},
    };
    struct listing tables, parts;
    listing_init(&tables, "tables", table_columns, sizeof table_columns / sizeof table_columns[0]);
    listing_init(&parts, "differences", part_columns, sizeof part_columns / sizeof part_columns[0]);
    bool differs = compare_tables(here, there, &tables, &parts);
    listing_print_pair(&tables, &parts);
    listing_fini(&tables);
    listing_fini(&parts);
    return differs ? EXIT_DIFFERS : EXIT_DONE;
}
