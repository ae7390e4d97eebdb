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

/* deed_table.c */
void deed_create(struct world *w);
void deed_drop(struct world *w);
void deed_load(struct world *w);
void deed_open_stream(struct world *w);
void deed_set_streams(struct world *w);

#endif
