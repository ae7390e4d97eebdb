/* names.c - enums as they stand on the wire, in configuration and in files; statuses; the version.
 */
#include "proto/names.h"

#include <stddef.h>

#include "proto/reading.h"

const char *const embd__partition_names[] = {"hash", "modulo", "slot", NULL};
const char *const embd__combiner_names[] = {"concat", "sum", "mean", "sqrtn", NULL};
const char *const embd__dtype_names[] = {"f32", "f16", "bf16", "i8", "i4", "e4m3", NULL};
const char *const embd__rounding_names[] = {"nearest", "stochastic", "master", NULL};
const char *const embd__optimizer_names[] = {
    "sgd",  "momentum",        "nesterov", "adagrad", "rowwise_adagrad",
    "adam", "rmsprop",         "ftrl",     "amsgrad", "partial_rowwise_adam",
    "lamb", "counter_adagrad", NULL};
const char *const embd__update_names[] = {"local", "global", "lazy_global", NULL};
const char *const embd__decay_names[] = {"l2", "decoupled", "decoupled_global", NULL};
const char *const embd__initializer_names[] = {"uniform", "uniform_slot", "normal", "constant",
                                               NULL};
const char *const embd__on_full_names[] = {"grow",      "error",       "evict_lru", "evict_lfu",
                                           "evict_ttl", "evict_score", NULL};
const char *const embd__create_on_names[] = {"push", "pull", NULL};
const char *const embd__durability_names[] = {"snapshot",   "buffered",           "durable", "auto",
                                              "replicated", "replicated_durable", NULL};

int embd__names_count(const char *const *names)
{
    int n = 0;
    while (names[n] != NULL)
        n++;
    return n;
}

static const char *name_of(const char *const *names, unsigned value)
{
    return value < (unsigned)embd__names_count(names) ? names[value] : NULL;
}

const char *embd_partition_name(embd_partition value)
{
    return name_of(embd__partition_names, value);
}

const char *embd_combiner_name(embd_combiner value)
{
    return name_of(embd__combiner_names, value);
}

const char *embd_dtype_name(embd_dtype value)
{
    return name_of(embd__dtype_names, value);
}

const char *embd_rounding_name(embd_rounding value)
{
    return name_of(embd__rounding_names, value);
}

const char *embd_optimizer_name(embd_optimizer_kind value)
{
    return name_of(embd__optimizer_names, value);
}

const char *embd_update_name(embd_update value)
{
    return name_of(embd__update_names, value);
}

const char *embd_decay_name(embd_decay value)
{
    return name_of(embd__decay_names, value);
}

const char *embd_initializer_name(embd_initializer_kind value)
{
    return name_of(embd__initializer_names, value);
}

const char *embd_on_full_name(embd_on_full value)
{
    return name_of(embd__on_full_names, value);
}

const char *embd_create_on_name(embd_create_on value)
{
    return name_of(embd__create_on_names, value);
}

const char *embd_durability_name(embd_durability value)
{
    return name_of(embd__durability_names, value);
}

bool embd__status_is_known(int status)
{
    switch (status) {
#define STATUS_CASE(name, number, text) case -(number):
        EMBD_STATUS_LIST(STATUS_CASE)
#undef STATUS_CASE
        return true;
    default:
        return false;
    }
}

const char *embd_status_text(int status)
{
    switch (status) {
    case EMBD_OK:
        return "ok";
#define STATUS_TEXT(name, number, text)                                                            \
    case -(number):                                                                                \
        return text;
        EMBD_STATUS_LIST(STATUS_TEXT)
#undef STATUS_TEXT
    default:
        return "unknown status";
    }
}

const char *embd_version(void)
{
    return EMBD_VERSION;
}
