/* deeds.h - what a history does to its tables: drawn, done to the cluster and to the image, answers
 * compared. */
#ifndef EMBD_TESTS_DEEDS_H
#define EMBD_TESTS_DEEDS_H

#include "tests/history/world.h"

void deed_create(struct world *w); /* where there is a name left */
void deed_drop(struct world *w);
void deed_set(struct world *w); /* a field of a table, which it keeps from then on */
void deed_replace(struct world *w);
void deed_push(struct world *w);
/* The server is killed beneath a numbered push, which is sent again to its successor. */
void deed_push_and_kill(struct world *w);
void deed_erase(struct world *w);
/* Rows with given values, of a table that has room for any. */
void deed_put(struct world *w);
void deed_pull(struct world *w);
/* Many keys of all slots. */
void deed_fill(struct world *w, uint32_t table);

#endif
