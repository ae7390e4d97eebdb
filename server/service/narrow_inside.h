/* narrow_inside.h - what the files of a replica with narrow rows share: narrow.c, which asks and
 * takes answers in their order; narrow_sweep.c, which has the tables and rounds of a sweep;
 * narrow_asks.c, the questions as messages; narrow_tables.c, which changes tables;
 * narrow_serving.c, which answers. */
#ifndef EMBD_SERVICE_NARROW_INSIDE_H
#define EMBD_SERVICE_NARROW_INSIDE_H

#include "proto/changes.h"
#include "proto/placement.h"
#include "server/follow/follower.h"
#include "server/service/metrics/stages.h"
#include "server/service/narrow.h"
#include "server/service/state.h"

/* One part of a round, until it is applied. Malloc'd with its arrays. */
struct narrow_part {
    struct narrow_part *next;
    uint64_t bytes, step;
    bool is_last;
    uint32_t n_gone;
    const uint64_t *gone_keys;
    const uint16_t *gone_slots;
    struct row_block block;
};

/* One table of the server that is followed. */
struct narrow_table {
    char name[EMBD_NAME_MAX + 1];
    uint32_t id;                /* there, and here */
    struct table_schema schema; /* that it has here, or is to have; no name: not known yet */
    bool is_listed;             /* by the last list */
    bool is_shown;              /* the engine has it */
    bool is_left_out;           /* it cannot be had: the log says why */
    bool is_changing;           /* some of a round is in its rows, and not all */
    bool is_other;              /* its schema has changed: the subscription is to end */
    bool renews;                /* the round under way has all rows, which go into a staged table */
    bool is_staged;             /* that is there */
    bool is_whole;              /* the round's last part has come */
    uint64_t subscription, part, chain;
    uint64_t again_ns;     /* a refusal: its round is not asked for before; 0: there was none */
    uint64_t described_ns; /* its schema was asked for then */
    uint64_t cut_ns;       /* the same of the round under way: nothing before its cut is lacking */
    uint64_t fresh_ns;     /* the same of the round that is shown */
    uint64_t n_rows, n_queued; /* of the round; bytes of its parts that wait */
    struct narrow_part *first, **last;
};

struct narrow_listed {
    char name[EMBD_NAME_MAX + 1];
    uint32_t id;
};

/* A question and its answer. The follower's thread has it while it is asked. */
struct narrow_question {
    struct follower_question as;  /* first */
    uint32_t n_shards;            /* expected */
    struct placement map;         /* of `cluster` */
    struct narrow_listed *listed; /* [n_listed] of `tables`, malloc'd */
    uint32_t n_listed;
    char name[EMBD_NAME_MAX + 1]; /* of `table_describe` */
    struct table_schema schema;   /* likewise, as it is there */
    struct changes_ask ask;       /* of `changes` */
    uint32_t dim;                 /* expected */
    bool has_slots;               /* likewise */
    struct changes_answer answer; /* without its arrays */
    struct narrow_part *part;     /* which has them; NULL: none came */
};

enum narrow_step {
    NARROW_MAP,      /* of keys; then: */
    NARROW_LIST,     /* of tables; then of each: */
    NARROW_DESCRIBE, /* its schema */
    NARROW_ROUND,    /* the next part of its round */
    NARROW_CONFIRM,  /* the map is still the one that its rows go by */
};

struct narrow {
    struct follower *follower;
    embd_dtype dtype;
    enum narrow_step step;
    struct narrow_question question;
    bool has_asked;
    bool rests;        /* the next question comes after a pause */
    uint64_t began_ns; /* the sweep; of its rounds: */
    uint64_t swept_rows, swept_bytes;
    bool empties; /* the map has changed: all tables go */
    bool has_map, is_ready;
    bool lacks;                   /* the sweep has met a table that is not shown and may come */
    struct narrow_table **tables; /* [n] malloc'd each */
    uint32_t n, at;               /* at: that is asked for */
    struct narrow_table *changes; /* whose parts are being applied; NULL: none */
    struct narrow_table *of[LIMIT_TABLES]; /* those that are shown, by the table's number */
    uint64_t listed_ns;                    /* the last list was asked for then; 0: never */
    char address[128];                     /* of the server; "": not known */
    bool is_connected, is_told, is_lost;
    char lost_why[160];
    struct histogram freshness, before[2]; /* before: a window ago, and up to two */
    uint64_t turned_ns;
};

/* ---- narrow_sweep.c ---- */

void narrow_begin_sweep(struct narrow *n);
/* What the server has answered. */
void narrow_take_list(struct shard *shard, uint64_t sent_ns);
void narrow_take_schema(struct shard *shard, struct narrow_table *t, uint64_t sent_ns);
void narrow_take_round(struct shard *shard, struct narrow_table *t);
void narrow_take_shown(struct shard *shard, struct narrow_table *t);
/* Applies parts of n->changes. True: there is more to apply. */
bool narrow_go_through(struct shard *shard);
/* The next sweep asks for the rest of the round again. */
void narrow_skip(struct shard *shard, struct narrow_table *t);
/* The log has each new reason, once. */
void narrow_lose(struct shard *shard, const char *why);
void narrow_leave_out(struct shard *shard, struct narrow_table *t, const char *why);

/* ---- narrow_asks.c ---- */

/* Fill in the question, for follower_ask_else. */
void narrow_ask_map(struct narrow_question *q, uint32_t n_shards);
void narrow_ask_list(struct narrow_question *q);
void narrow_ask_table(struct narrow_question *q, const char *name);
void narrow_ask_round(struct narrow_question *q, const struct narrow_table *t);
/* Frees what came and was not taken. */
void narrow_question_fini(struct narrow_question *q);

/* ---- narrow_tables.c ---- */

/* The schema of a table here. */
void narrow_schema(embd_schema *schema, embd_dtype dtype);
/* Frees one that is not shown. */
void narrow_table_free(struct shard *shard, struct narrow_table *t);
/* What came of the round does not count any more. */
void narrow_end_round(struct shard *shard, struct narrow_table *t);
/* The next part into the rows, which are staged or shown. */
int narrow_apply(struct shard *shard, struct narrow_table *t, struct embd__error *e);
/* The staged table takes the place of the one that is shown. */
int narrow_show(struct shard *shard, struct narrow_table *t, struct embd__error *e);
/* It is shown no more. */
int narrow_hide(struct shard *shard, struct narrow_table *t, struct embd__error *e);

#endif
