/* compare.h - an engine beside the models, and beside an engine that was made of its records. Each
 * fails the test where they differ. */
#ifndef EMBD_TESTS_ENGINE_COMPARE_H
#define EMBD_TESTS_ENGINE_COMPARE_H

#include "tests/engine/world.h"

/* All rows, states, candidates, steps, and streams. */
void compare_with_models(struct world *w);
/* Of journaled tables and their streams, in their order. */
void compare_with_copy(struct world *w, struct copy *copy);

#endif
