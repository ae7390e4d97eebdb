/* redefine.h - definitions that tables are loaded into: fields as text, and what they make. */
#ifndef EMBD_TESTS_REDEFINE_H
#define EMBD_TESTS_REDEFINE_H

#include "tests/history/world.h"

struct redefinition {
    uint32_t n;
    embd_field fields[10]; /* [n], into: */
    char values[10][32];
};

/* Draws fields that a load may set of this definition, and sets them. */
void redefinition_draw(struct world *w, struct redefinition *out, embd_schema *s);

#endif
