/* settings.c - a table's definition on the command line.
 *
 * Options are only collected while they are parsed; settings_apply sets the fields in the end,
 * those first that reset others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/embctl/embctl.h"
#include "client/embctl/settings.h"

/* Options that are names for --set FIELD=...; key = OPTION_FIRST + index. */
enum { OPTION_FIRST = 0x2000 };
static const struct argp_option options[] = {
    {"dim", OPTION_FIRST + 0, "N", 0, "Columns of a row (required)", 0},
    {"slots", OPTION_FIRST + 1, "N", 0, "Slots of a sample (default: 1)", 0},
    {"slot-sizes", OPTION_FIRST + 2, "N,N...", 0,
     "Keys of each slot, which are then numbered from 0", 0},
    {"partition", OPTION_FIRST + 3, "NAME", 0, "hash, modulo or slot (default: hash)", 0},
    {"combiner", OPTION_FIRST + 4, "NAME", 0, "sum, mean, sqrtn or concat (default: sum)", 0},
    {"dtype", OPTION_FIRST + 5, "NAME", 0, "f32, f16, bf16, i8 or e4m3 (default: f32)", 0},
    {"optimizer", OPTION_FIRST + 6, "NAME", 0,
     "sgd, momentum, nesterov, adagrad, rowwise_adagrad, adam, rmsprop, ftrl, amsgrad, "
     "partial_rowwise_adam, lamb or counter_adagrad (default: sgd)",
     0},
    {"lr", OPTION_FIRST + 7, "X", 0, "Learning rate (default: 0.01)", 0},
    {"initializer", OPTION_FIRST + 8, "NAME", 0,
     "uniform, uniform_slot, normal or constant (default: uniform, -0.05 to 0.05)", 0},
    {"seed", OPTION_FIRST + 9, "N", 0, "Seed of initial row values (default: 0)", 0},
    {"capacity", OPTION_FIRST + 10, "ROWS", 0,
     "Rows a shard has room for at first; --on-full says what happens beyond it (default: 0)", 0},
    {"on-full", OPTION_FIRST + 11, "NAME", 0,
     "Beyond the capacity: grow, error, or evict rows of other keys: evict_lru, evict_lfu, "
     "evict_ttl, or evict_score, by scores that pushes give (default: grow)",
     0},
    {"admit-after", OPTION_FIRST + 12, "N", 0,
     "A key gets a row in the N-th request that would create it (default: 0, the first)", 0},
    {"create-on", OPTION_FIRST + 13, "NAME", 0,
     "push or pull: which requests create rows (default: push)", 0},
    {"ttl", OPTION_FIRST + 14, "N", 0,
     "evict_ttl: a row may be evicted after this many pushes of its table without its key; "
     "--set ttl_seconds=N: after N seconds",
     0},
    {"durability", OPTION_FIRST + 15, "NAME", 0,
     "What a push survives: snapshot, buffered (the server's death), durable (a power cut), "
     "replicated and replicated_durable (also the loss of the server, where a follower is "
     "promoted), or auto: "
     "durable where servers have a data directory (default: auto)",
     0},
    {"set", OPTION_FIRST + 16, "FIELD=VALUE", 0,
     "Any field of the definition, as 'table describe' names it", 0},
    {0},
};
/* In the order of the options. */
static const char *const fields[] = {"dim",         "slots",     "slot_sizes", "partition",
                                     "combiner",    "dtype",     "optimizer",  "optimizer.lr",
                                     "initializer", "seed",      "capacity",   "on_full",
                                     "admit_after", "create_on", "ttl",        "durability"};
#define N_FIELDS (sizeof fields / sizeof fields[0])
_Static_assert(sizeof options / sizeof options[0] == N_FIELDS + 2,
               "a field for every option but --set");

void settings_add(struct settings *s, struct argp_state *state, const char *field,
                  const char *value)
{
    struct setting *grown = reallocarray(s->list, s->n + 1, sizeof *grown);
    if (!grown)
        argp_failure(state, EXIT_FAILED, 0, "out of memory");
    s->list = grown;
    s->list[s->n++] = (struct setting){field, value};
}

static void add_pair(struct settings *s, struct argp_state *state, char *pair)
{
    char *equals = strchr(pair, '=');
    if (!equals)
        argp_error(state, "--set is '%s'; it has the form FIELD=VALUE", pair);
    *equals = '\0';
    settings_add(s, state, pair, equals + 1);
}

static int parse(int key, char *arg, struct argp_state *state)
{
    if (key < OPTION_FIRST || key > OPTION_FIRST + (int)N_FIELDS)
        return ARGP_ERR_UNKNOWN;
    if (key == OPTION_FIRST + (int)N_FIELDS)
        add_pair(state->input, state, arg);
    else
        settings_add(state->input, state, fields[key - OPTION_FIRST], arg);
    return 0;
}

const struct argp settings_argp = {.options = options, .parser = parse};

/* "optimizer" and "initializer" reset their parameters to defaults, and "on_full" decides which
 * parameters exist, so they are set before these; "slot_sizes" set slots, which must then be the
 * same. */
static bool sets_kind(const struct setting *s)
{
    return !strcmp(s->field, "optimizer") || !strcmp(s->field, "initializer") ||
           !strcmp(s->field, "on_full") || !strcmp(s->field, "slot_sizes");
}

static bool is_set(const struct settings *s, const char *field)
{
    for (size_t i = 0; i < s->n; i++)
        if (!strcmp(s->list[i].field, field))
            return true;
    return false;
}

int settings_apply(const struct settings *s, const char *name, embd_schema *schema,
                   uint64_t *storage, char *why, size_t why_bytes)
{
    embd_schema_init(schema);
    int status = embd_schema_set(schema, "name", name, storage);
    for (int kinds = 1; kinds >= 0; kinds--)
        for (size_t i = 0; i < s->n && status == EMBD_OK; i++)
            if (sets_kind(&s->list[i]) == (kinds == 1))
                status = embd_schema_set(schema, s->list[i].field, s->list[i].value, storage);
    if (status == EMBD_OK && schema->dim == 0 && !is_set(s, "dim")) {
        snprintf(why, why_bytes, "a table needs --dim N, the columns of its rows");
        return EMBD_INVALID;
    }
    if (status == EMBD_OK)
        status = embd_schema_check(schema);
    if (status != EMBD_OK)
        snprintf(why, why_bytes, "%s", embd_error_text());
    return status;
}

void settings_fini(struct settings *settings)
{
    free(settings->list);
}
