/* deeds.h - random operations. Each is done by the engine and by the models, and what came of it is
 * compared: values, statuses, counts, steps and errors. */
#ifndef EMBD_TESTS_ENGINE_DEEDS_H
#define EMBD_TESTS_ENGINE_DEEDS_H

#include "tests/engine/world.h"

/* Frees what deeds keep from one to the next. */
void deeds_fini(void);

/* deed_push.c: pushes of one to three parts, numbered ones too, some recorded before the one before
 * them is applied. */
void deed_push(struct world *w);
void deed_erase(struct world *w);
/* Input that check.h refuses. */
void deed_wrong(struct world *w);

/* deed_pull.c */
void deed_pull(struct world *w);

/* deed_round.c: pushes of a job's workers become one step. */
void deed_round(struct world *w);

/* deed_set.c: fields of a table are set, others are refused. */
void deed_set(struct world *w);

/* deed_stage.c: tables are loaded, and take the places of others. */
void deed_stage(struct world *w);
void deed_load_staged(struct world *w);
void deed_unstage(struct world *w);
void deed_replace(struct world *w);

/* deed_load.c: a load of the table; `staged`: as in struct load_fields. */
void deeds_load(struct world *w, struct pair *pair, struct table *table, uint64_t staged);
void deed_load(struct world *w);
void deed_put(struct world *w);

/* deed_table.c */
embd_schema deeds_draw_schema(struct world *w, uint32_t table);
/* Of the engine's table, which is new. */
struct pair deeds_pair(struct world *w, const struct table *table);
void deed_create(struct world *w);
void deed_drop(struct world *w);
void deed_open_stream(struct world *w);
void deed_set_streams(struct world *w);

#endif
