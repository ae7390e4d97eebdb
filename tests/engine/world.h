/* world.h - an engine under test, and beside it what it must be: a model of each table, and the
 * positions of each stream.
 *
 * Operations reach the engine as a service submits them: admitted, written as a record where a
 * journal takes them, applied. Each record is replayed in a copy right away, and all of them in
 * another one at the end. */
#ifndef EMBD_TESTS_ENGINE_WORLD_H
#define EMBD_TESTS_ENGINE_WORLD_H

#include "tests/engine/records.h"
#include "tests/store/pair.h"

enum { TABLES = 5, STREAMS = 6, JOBS = 3, KINDS = OP_PREPARE + 1 };

/* A stream of numbered pushes, as the model has it. */
struct stream {
    bool is_open;
    uint64_t principal, last;
    uint32_t tables; /* bits of those it has pushed to */
};
#define ANY_TABLE (1u << 31) /* it is not known which */

/* How often it came to what. */
struct seen {
    uint64_t operations, recorded[KINDS];
    uint64_t full, full_of_several, full_pulls, full_loads, gaps, forgotten, again;
    uint64_t again_in_turn, gaps_in_turn; /* of pushes that were recorded with others */
    uint64_t evicted, filtered, rows_made, joined, erased, gone, steps_set;
    uint64_t put, put_without_states, full_puts, puts_numbered, puts_again, puts_refused, put_steps;
    uint64_t swept; /* tables, behind an operation */
    uint64_t rounds, late, withdrawn, mixed, wrong, unequal, replaced_streams, other_rates;
    uint64_t set, unset;       /* fields of tables: set, refused */
    uint64_t shrunk, unshrunk; /* rows that went for a lower capacity; such that were refused */
    uint64_t replaced, unfit, unstaged, rolled, kept, forgotten_with_tables, brought;
    uint64_t prepared, not_made; /* replacements; those that were withdrawn then */
};

struct world {
    struct dice dice;
    const struct store_ops *ops;
    struct engine engine;
    struct pair tables[TABLES]; /* the engine's table beside its model; model NULL: none */
    struct pair staged[TABLES]; /* likewise, of those that are to replace them */
    uint64_t staged_id, n_sets; /* of these; ids so far */
    uint64_t n_decisions;
    struct stream streams[2][STREAMS]; /* [1]: of journaled tables */
    uint64_t clocks[JOBS];
    uint64_t now_ns, seconds;
    struct records records;
    struct copy copy;
};

extern struct seen seen;

void world_open(struct world *w, const struct store_ops *ops, uint64_t seed);
void world_close(struct world *w);

uint32_t below(struct world *w, uint32_t n);
bool one_in(struct world *w, uint32_t n);

bool world_has(const struct world *w, uint32_t table);
/* One that is there; TABLES: none is. */
uint32_t world_draw_table(struct world *w);
struct table *world_table(const struct world *w, uint32_t table);
bool world_is_journaled(const struct world *w, uint32_t table);

/* The models of staged tables go. */
void world_unstage(struct world *w);

/* The models go by the time of this operation. */
void world_tell_time(struct world *w, const struct op *op);

/* Gives the operation its time, admits it, and has it written where a journal takes it. False: it
 * was refused, or is a push that was applied before. */
bool world_admit(struct world *w, struct op *op, struct written **record_out);
/* Applies what was admitted, waits for its end, and has its record replayed. */
void world_apply(struct world *w, struct op *op, struct written *record);
/* Both. */
void world_submit(struct world *w, struct op *op);

/* The stream i of this kind. */
struct push_number stream_id(uint32_t i);

#endif
