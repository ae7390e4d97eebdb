/* tables.h - the tables of one shard: by name for people, by id for pulls and pushes. */
#ifndef EMBD_ENGINE_TABLES_H
#define EMBD_ENGINE_TABLES_H

#include "server/engine/hot.h"
#include "server/engine/row_memory.h"
#include "proto/schema_change.h"
#include "server/engine/table_set.h"
#include "server/store/store.h"

/* Why rows of a table went, counted since it was opened: also by a start that applies its records.
 */
struct row_losses {
    uint64_t evicted[EMBD_ON_FULL_EVICT_SCORE + 1]; /* for others, by its policy then */
    uint64_t shrunk;                                /* because its capacity was set below them */
    uint64_t erased;                                /* by requests */
};

/* Owner: the shard's thread. Never moves, so that its store may point to the schema. */
struct table {
    uint32_t id;       /* embd__table_id(schema.s.name), unless another table had it */
    uint32_t number;   /* no other table's while it is there; a table that replaces it takes it */
    uint64_t instance; /* no other table's of this shard since its start, whatever its name */
    struct table_schema schema;
    struct store *store;
    struct hot hot;
    struct row_losses lost;
    uint64_t counted_bytes; /* of memory, when they were last counted; in tables->memory too */
    /* its last push was refused for lack of room: the next one is checked before its record is
     * written */
    bool was_full;
    bool is_swept; /* its last push has rows left to step, or rows go: tables_sweep */
    bool is_late;  /* a push to it is applied in slices, and has not ended */
    bool is_long;  /* its last push had: its rows take longer than other tables are to wait */
    uint64_t look; /* the last that came to it, and at which part: tables_first */
    uint32_t look_at;
    /* It becomes so once a base has its rows: joining.h. SNAPSHOT: nothing is under way. */
    embd_durability joins;
    uint32_t n_sources_before; /* clients that had ever pushed when it was replaced: went_back.h */
    uint64_t joining;          /* no other attempt's */
    char joining_why[160];     /* the last one came to nothing; "": it did not */
};

/* Also while a base is made of it. */
static inline embd_durability table_durability(const struct table *table)
{
    return table->joins != EMBD_DURABILITY_SNAPSHOT ? table->joins : table->schema.s.durability;
}

static inline bool table_is_journaled(const struct table *table)
{
    return table_durability(table) != EMBD_DURABILITY_SNAPSHOT;
}

/* Tables that are being loaded, to replace others all at once: staged.h. */
#define STAGED_SETS 16
struct staged {
    uint64_t id; /* of the replacement; not 0 */
    uint32_t n;
    struct table *list[LIMIT_TABLES]; /* in the order they were made */
};

/* A table that records are read without: `embd --drop-table`. */
struct left_out {
    const char *name;
    uint32_t id, staged_id; /* as the records read so far have them; 0: it is not there */
    uint64_t staged_set;    /* that has it as staged_id */
    bool is_found;          /* a record or a snapshot names it */
    uint64_t rows;          /* that came by bases, loads and snapshots */
    uint64_t pushed_keys;   /* and these by pushes */
};
#define LEFT_OUT_MAX 16u

/* A table that is named in a journal, but not to be had from it. */
struct apart_table {
    uint32_t id;
    char name[EMBD_NAME_MAX + 1];
};

struct apart {
    uint32_t n;
    struct apart_table list[LIMIT_TABLES];
};

#define TABLES_PLACES (2 * LIMIT_TABLES)

struct tables {
    const struct store_ops *ops;
    struct left_out left_out[LEFT_OUT_MAX]; /* [n_left_out] */
    uint32_t n_left_out;
    struct row_memory *memory; /* the owner's; NULL: rows may take what there is */
    uint64_t n_refused;        /* requests that needed more of it than was left */
    uint32_t n;
    uint32_t n_swept, sweep_at;    /* tables that are swept; the place in by_name of the next one */
    uint32_t n_late;               /* tables that are late */
    uint64_t n_sweeps;             /* that have ended */
    struct table_setting *setting; /* of the table whose rows go; NULL: none do */
    uint32_t n_creating;           /* tables whose rows are created by pulls */
    struct table *by_name[LIMIT_TABLES]; /* ascending */
    struct table *by_id[TABLES_PLACES];  /* a hash table: from place id % TABLES_PLACES on */
    struct table *prepared;              /* the next table, created but not visible yet; or NULL */
    struct table_set numbers;            /* that tables have */
    uint64_t n_opened;                   /* tables since the start */
    uint64_t n_looks;                    /* through the parts of operations: tables_first */
    struct staged *staged[STAGED_SETS];  /* malloc'd; NULL: none */
    uint32_t n_staged;                   /* of them, not NULL */
    struct table *staged_prepared;       /* the next, not in its set's list yet; or NULL */
    uint32_t n_joining;                  /* tables that join the journal */
    struct apart apart;                  /* while a journal is read: joining.h */
};

void tables_init(struct tables *tables, const struct store_ops *ops);
void tables_fini(struct tables *tables);

/* NULL: none. */
static inline struct table *tables_by_id(const struct tables *tables, uint32_t id)
{
    for (uint32_t i = id % TABLES_PLACES; tables->by_id[i] != NULL; i = (i + 1) % TABLES_PLACES)
        if (tables->by_id[i]->id == id)
            return tables->by_id[i];
    return NULL;
}

/* Which part of an operation was the table's first: `part`, if no other was in this look
 * (op_look). */
static inline uint32_t tables_first(struct table *table, uint64_t look, uint32_t part)
{
    if (table->look != look)
        table->look_at = part;
    table->look = look;
    return table->look_at;
}

/* The place in by_name of the first table whose name is not below `name`. */
uint32_t tables_from(const struct tables *tables, const char *name);

/* As tables_by_id, with an error: EMBD_UNKNOWN_TABLE naming it. */
struct table *tables_find(const struct tables *tables, const char *name, struct embd__error *e);

/* Whether no table of another name has that id. */
bool tables_id_is_free(const struct tables *tables, uint32_t id, const char *name);

/* A new empty table, or the one there is when its definition is equal. It has the id `id` if that
 * is free; 0, or one that is not: the first of its name that no table has, and no staged one.
 * EMBD_EXISTS naming the field that differs, EMBD_TOO_LARGE, EMBD_NO_MEMORY, EMBD_UNSUPPORTED:
 * nothing changed. */
int tables_create(struct tables *tables, const embd_schema *schema, uint32_t id, struct table **out,
                  bool *created_out, struct embd__error *e);

/* The first half of tables_create, which cannot fail afterwards: sets `prepared` if the table does
 * not exist yet. Errors as above. */
int tables_prepare(struct tables *tables, const embd_schema *schema, uint32_t id,
                   struct embd__error *e);
/* The id of the table of that name, which is there or prepared. */
uint32_t tables_id_of(const struct tables *tables, const char *name);
/* It will not be created. */
void tables_give_up(struct tables *tables);

/* The table of that id, or name, that is left out; NULL: none is. */
struct left_out *tables_left_out(struct tables *tables, uint32_t id);
struct left_out *tables_left_out_name(struct tables *tables, const char *name);
/* Whether records of the table are, for this reason or because it is apart. */
bool tables_skip(struct tables *tables, uint32_t id);
bool tables_skip_name(struct tables *tables, const char *name);

/* Counts the bytes that the table takes now; the second: its stats are known. */
void tables_count(struct tables *tables, struct table *table);
static inline void tables_count_as(struct tables *tables, struct table *table,
                                   const struct store_stats *stats)
{
    if (tables->memory != NULL)
        row_memory_count(tables->memory, &table->counted_bytes, stats->memory_bytes);
    else
        table->counted_bytes = stats->memory_bytes;
}
void tables_count_all(struct tables *tables);
/* A push was applied that left so many slices (store_stats) of its work for tables_sweep
 * (table_setting.h), or took so many itself if it was late. Returns how many. */
static inline uint64_t tables_note_push(struct tables *tables, struct table *table, uint64_t left,
                                        uint64_t own)
{
    table->is_long = left > 0;
    tables->n_swept += table->is_long && !table->is_swept;
    table->is_swept |= table->is_long;
    return table->is_late ? own : left;
}
/* A push to it has not returned: tables_sweep has the store go on with it, and nobody reads the
 * table until it has. A device's store is asked to go on anyway. */
static inline void tables_begin_late(struct tables *tables, struct table *table)
{
    if (tables->ops->caps.is_async || table->is_late)
        return;
    tables->n_swept += !table->is_swept;
    tables->n_late++;
    table->is_swept = table->is_late = true;
}
static inline void tables_end_late(struct tables *tables, struct table *table)
{
    tables->n_late -= table->is_late;
    table->is_late = false;
}
/* store_ops.freeze, with what is left for copies. */
int tables_freeze(const struct tables *tables, struct table *table, struct store_cut *cut,
                  struct embd__error *e);

/* Ends the table and its rows. No store call may be in flight. */
void tables_drop(struct tables *tables, struct table *table);

/* ---- for staged.c ---- */

/* A table that is in no list. NULL: EMBD_NO_MEMORY, EMBD_UNSUPPORTED. */
struct table *tables_open_table(struct tables *tables, const embd_schema *schema, uint32_t id,
                                struct embd__error *e);
/* Ends one; NULL is allowed. */
void tables_close_table(struct tables *tables, struct table *table);
/* The table becomes the one of its name; the one that was ends, and leaves it its id. There is room
 * for it. */
void tables_put(struct tables *tables, struct table *table);
/* NULL: none. */
struct table *tables_by_name(const struct tables *tables, const char *name);

#endif
