/* load.h - what loads share, whether their tables are new or replace others: the directory, the
 * tables that were asked for, and the rows on their way to the shards. */
#ifndef EMBD_FORMATS_LOAD_H
#define EMBD_FORMATS_LOAD_H

#include "client/formats/redefine.h"
#include "client/formats/scatter.h"
#include "client/formats/streams.h"
#include "embd/admin.h"
#include "proto/stored/chain.h"
#include "proto/stored/ticker.h"

/* The definition that a table gets. */
struct definition {
    const struct manifest_table *table;
    embd_schema schema;
    uint64_t bound; /* rows of all shards, where its capacity is a share of them; else 0 */
};

struct load {
    embd_client *client;
    struct embd__error *e;     /* the client's */
    const char *const *tables; /* [n_tables], the caller's; of none: all */
    uint32_t n_tables;
    const embd_field *set; /* [n_set], the caller's */
    uint32_t n_set;
    struct definition *definitions; /* [n_definitions]; of none: as in the directory */
    uint32_t n_definitions;
    bool is_open; /* the chain is */
    struct dump_chain chain;
    const struct dump_dir *dir; /* the last of it */
    uint32_t n_shards;
    struct ticker ticker;
    embd_dump_report totals; /* of the tables */
    const char **created;    /* [n_created] names in the chain */
    uint32_t n_created;
    const char *replicated; /* one of these that is; NULL: none */
    uint64_t staged; /* id of the set of staged tables that is filled; 0: tables are created */
    struct streams_staged *streams; /* that go with these */
    /* The table being filled. */
    const embd_schema *schema; /* in the directory */
    const embd_schema *to;     /* here */
    struct redefining redefining;
    struct scatter scatter;
    unsigned kinds; /* of the tables here */
};

/* Opens and verifies the directory; `client`, `e` and the tables are set. */
int embd__load_open(struct load *l, const char *dir, embd_progress *progress, void *arg);
/* Frees, also after a failure. Returns `status`, as the client's last error. */
int embd__load_end(struct load *l, int status, embd_dump_report *report_out);

/* The table's definition here. */
const embd_schema *embd__load_schema(const struct load *l, const struct manifest_table *table);
/* Whether the caller has set the field. */
bool embd__load_sets(const struct load *l, const char *field);

/* Calls `fn` with the load and each of its tables, until it returns nonzero. */
int embd__load_each(struct load *l, int (*fn)(void *arg, const struct manifest_table *table));
/* Whether its tables are all of the directory. */
bool embd__load_has_all(struct load *l);
/* All rows of a table, and its steps; `arg`: the load. */
int embd__load_table(void *arg, const struct manifest_table *table);

/* From the first step to the last, of tables that are not there, or empty. */
int embd__load_new(struct load *l, const char *dir, embd_progress *progress, void *arg);

#endif
