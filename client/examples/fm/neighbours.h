/* neighbours.h - what the model has learned, for people: packages whose factors point the same
 * way. */
#ifndef FM_NEIGHBOURS_H
#define FM_NEIGHBOURS_H

#include "client/examples/fm/trainer.h"

/* Prints the nearest neighbours of five well-known packages by the cosine of their factors,
 * among packages that enough others depend on. False with a sentence on stderr. */
bool neighbours_print(trainer *t, const features *f);

#endif
