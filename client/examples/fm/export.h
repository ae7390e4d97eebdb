/* export.h - the example's samples as data sets, for trainers that are written in another language.
 */
#ifndef FM_EXPORT_H
#define FM_EXPORT_H

#include "client/examples/fm/sampler.h"

/* Writes what `samples` yields as the norm data set `path`: one label, no dense values, SLOTS slots
 * of 64-bit keys. False with a sentence on stderr. */
bool export_samples(const char *path, sampler *samples);

#endif
