/* data_set.h - samples that come from a data set instead of the graph, as --export writes them. */
#ifndef FM_DATA_SET_H
#define FM_DATA_SET_H

#include "client/examples/fm/sampler.h"

/* The samples of the data set `name`, norm:LIST: one label, no dense values, SLOTS slots of 64-bit
 * keys. It is read once here, to count them. False with a sentence on stderr. */
bool data_set_samples(sampler *s, const char *name);

#endif
