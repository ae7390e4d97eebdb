/* names.h - the names of each public enum's values, in order, ended by NULL. */
#ifndef EMBD_PROTO_NAMES_H
#define EMBD_PROTO_NAMES_H

#include "embd/embd.h"

extern const char *const embd__partition_names[];
extern const char *const embd__combiner_names[];
extern const char *const embd__dtype_names[];
extern const char *const embd__rounding_names[];
extern const char *const embd__optimizer_names[];
extern const char *const embd__update_names[];
extern const char *const embd__decay_names[];
extern const char *const embd__initializer_names[];
extern const char *const embd__on_full_names[];
extern const char *const embd__create_on_names[];
extern const char *const embd__durability_names[];

int embd__names_count(const char *const *names);

#endif
