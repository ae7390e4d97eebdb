/* table.c - embctl table list, describe, create and drop. */
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/embctl/embctl.h"
#include "client/embctl/figures.h"
#include "client/embctl/listing.h"
#include "client/embctl/settings.h"
#include "embd/hugectr.h"
#include "embd/admin.h"

/* ---- list ---- */

struct names {
    char (*list)[EMBD_NAME_MAX + 1];
    size_t n;
};

static int add_name(void *arg, const char *name)
{
    struct names *names = arg;
    void *grown = reallocarray(names->list, names->n + 1, sizeof *names->list);
    if (!grown)
        return EMBD_NO_MEMORY;
    names->list = grown;
    snprintf(names->list[names->n++], sizeof *names->list, "%s", name);
    return 0;
}

static int add_table(struct listing *l, embd_client *client, const struct figures *f,
                     const char *name)
{
    embd_table *table;
    int status = embd_table_open(client, name, &table);
    if (status)
        return status;
    const embd_schema *s = embd_table_schema(table);
    listing_row(l);
    listing_text(l, 0, name);
    listing_uint(l, 1, s->dim);
    listing_uint(l, 2, s->slots);
    listing_text(l, 3, embd_combiner_name(s->combiner));
    listing_text(l, 4, embd_optimizer_name(s->optimizer.kind));
    listing_text(l, 5, embd_dtype_name(s->dtype));
    listing_uint(l, 6, figures_sum(f, figures_find(f, name, "rows")).total);
    listing_uint(l, 7, figures_table_memory(f, name));
    listing_uint(l, 8, figures_sum(f, figures_find(f, name, "steps")).most);
    return EMBD_OK;
}

int command_table_list(int argc, char **argv)
{
    static const struct column columns[] = {
        {"name", CELL_TEXT},     {"dim", CELL_NUMBER},         {"slots", CELL_NUMBER},
        {"combiner", CELL_TEXT}, {"optimizer", CELL_TEXT},     {"dtype", CELL_TEXT},
        {"rows", CELL_COUNT},    {"memory_bytes", CELL_BYTES}, {"steps", CELL_COUNT}};
    struct names names = {0};
    struct listing l;
    struct figures f;
    embd_client *client;
    parse_no_arguments("Lists the tables of the cluster: definition, rows on all shards, memory, "
                       "and pushes seen.\v"
                       "Examples:\n"
                       "  embctl table list\n"
                       "  embctl table list -o json | jq -r '.tables[].name'",
                       argc, argv);
    int status = connect_servers(&client);
    if (status)
        return status;
    listing_init(&l, "tables", columns, 9);
    status = figures_read(client, NULL, &f);
    if (status == EMBD_OK)
        status = embd_table_list(client, add_name, &names);
    for (size_t i = 0; i < names.n && status == EMBD_OK; i++)
        status = add_table(&l, client, &f, names.list[i]);
    figures_free(&f);
    if (status == EMBD_OK)
        listing_print(&l);
    listing_fini(&l);
    free(names.list);
    return end_client(client, status);
}

/* ---- describe ---- */

static const struct column describe_columns[] = {
    {"name", CELL_TEXT},
    {"dim", CELL_NUMBER},
    {"slots", CELL_NUMBER},
    {"slot_sizes", CELL_NUMBERS},
    {"partition", CELL_TEXT},
    {"combiner", CELL_TEXT},
    {"dtype", CELL_TEXT},
    {"optimizer", CELL_TEXT},
    {"optimizer.update", CELL_TEXT},
    {"optimizer.lr", CELL_FLOAT},
    {"optimizer.scaler", CELL_FLOAT},
    {"optimizer.momentum", CELL_FLOAT},
    {"optimizer.beta1", CELL_FLOAT},
    {"optimizer.beta2", CELL_FLOAT},
    {"optimizer.eps", CELL_FLOAT},
    {"optimizer.initial_accumulator", CELL_FLOAT},
    {"optimizer.beta", CELL_FLOAT},
    {"optimizer.l1", CELL_FLOAT},
    {"optimizer.l2", CELL_FLOAT},
    {"optimizer.clip_value", CELL_FLOAT},
    {"optimizer.clip_norm", CELL_FLOAT},
    {"optimizer.weight_decay", CELL_FLOAT},
    {"optimizer.decay", CELL_TEXT},
    {"optimizer.max_norm", CELL_FLOAT},
    {"optimizer.weight_min", CELL_FLOAT},
    {"optimizer.weight_max", CELL_FLOAT},
    {"optimizer.lr_decay", CELL_FLOAT},
    {"optimizer.counter_halflife", CELL_FLOAT},
    {"initializer", CELL_TEXT},
    {"initializer.a", CELL_FLOAT},
    {"initializer.b", CELL_FLOAT},
    {"seed", CELL_NUMBER},
    {"capacity", CELL_COUNT},
    {"table_capacity", CELL_COUNT},
    {"on_full", CELL_TEXT},
    {"ttl", CELL_NUMBER},
    {"ttl_seconds", CELL_NUMBER},
    {"lfu_half_life", CELL_NUMBER},
    {"lfu_occurrences", CELL_FLAG},
    {"admit_after", CELL_NUMBER},
    {"create_on", CELL_TEXT},
    {"admit_nonfinite", CELL_FLAG},
    {"durability", CELL_TEXT},
    {"rounding", CELL_TEXT},
    {"rows", CELL_COUNT},
    {"candidates", CELL_COUNT},
    {"memory_bytes", CELL_BYTES},
    {"steps", CELL_COUNT},
    {"shard_steps", CELL_NUMBERS},
};
#define N_DESCRIBE_COLUMNS (sizeof describe_columns / sizeof describe_columns[0])

static size_t column_of(const char *name)
{
    size_t i = 0;
    while (strcmp(describe_columns[i].name, name))
        i++;
    return i;
}

static void put_text(struct listing *l, const char *name, const char *text)
{
    listing_text(l, column_of(name), text ? text : "unknown");
}

static void put_uint(struct listing *l, const char *name, uint64_t value)
{
    listing_uint(l, column_of(name), value);
}

static void put_float(struct listing *l, const char *name, bool applies, float value)
{
    if (applies)
        listing_float(l, column_of(name), value);
}

/* Only the parameters that the kind has; see embd_optimizer_kind. */
static void put_optimizer(struct listing *l, const embd_optimizer *o)
{
    bool has_momentum = o->kind == EMBD_OPTIMIZER_MOMENTUM || o->kind == EMBD_OPTIMIZER_NESTEROV;
    bool has_accumulator =
        o->kind == EMBD_OPTIMIZER_ADAGRAD || o->kind == EMBD_OPTIMIZER_ROWWISE_ADAGRAD;
    bool is_adam = o->kind == EMBD_OPTIMIZER_ADAM || o->kind == EMBD_OPTIMIZER_AMSGRAD ||
                   o->kind == EMBD_OPTIMIZER_PARTIAL_ROWWISE_ADAM || o->kind == EMBD_OPTIMIZER_LAMB,
         is_rmsprop = o->kind == EMBD_OPTIMIZER_RMSPROP, is_ftrl = o->kind == EMBD_OPTIMIZER_FTRL,
         is_counter = o->kind == EMBD_OPTIMIZER_COUNTER_ADAGRAD;
    put_text(l, "optimizer", embd_optimizer_name(o->kind));
    put_text(l, "optimizer.update", embd_update_name(o->update));
    put_float(l, "optimizer.lr", true, o->lr);
    put_float(l, "optimizer.scaler", true, o->scaler);
    put_float(l, "optimizer.momentum", has_momentum, o->momentum);
    put_float(l, "optimizer.beta1", is_adam, o->beta1);
    put_float(l, "optimizer.beta2", is_adam || is_rmsprop, o->beta2);
    put_float(l, "optimizer.eps", has_accumulator || is_adam || is_rmsprop || is_ftrl || is_counter,
              o->eps);
    put_float(l, "optimizer.initial_accumulator", has_accumulator, o->initial_accumulator);
    put_float(l, "optimizer.beta", is_ftrl, o->beta);
    put_float(l, "optimizer.l1", is_ftrl, o->l1);
    put_float(l, "optimizer.l2", is_ftrl, o->l2);
}

/* Only what is not its default. */
static void put_regularization(struct listing *l, const embd_regularization *r)
{
    put_float(l, "optimizer.clip_value", r->clip_value != 0.0f, r->clip_value);
    put_float(l, "optimizer.clip_norm", r->clip_norm != 0.0f, r->clip_norm);
    put_float(l, "optimizer.weight_decay", r->weight_decay != 0.0f, r->weight_decay);
    if (r->weight_decay != 0.0f || r->decay != EMBD_DECAY_L2)
        put_text(l, "optimizer.decay", embd_decay_name(r->decay));
    put_float(l, "optimizer.max_norm", r->max_norm != 0.0f, r->max_norm);
    put_float(l, "optimizer.weight_min", r->weight_min != -FLT_MAX, r->weight_min);
    put_float(l, "optimizer.weight_max", r->weight_max != FLT_MAX, r->weight_max);
    put_float(l, "optimizer.lr_decay", r->lr_decay != 0.0f, r->lr_decay);
    put_float(l, "optimizer.counter_halflife", r->counter_halflife != 0.0f, r->counter_halflife);
}

static void put_initializer(struct listing *l, const embd_initializer *i)
{
    bool has_b = i->kind == EMBD_INITIALIZER_UNIFORM || i->kind == EMBD_INITIALIZER_NORMAL;
    put_text(l, "initializer", embd_initializer_name(i->kind));
    put_float(l, "initializer.a", has_b || i->kind == EMBD_INITIALIZER_CONSTANT, i->a);
    put_float(l, "initializer.b", has_b, i->b);
}

static void put_schema(struct listing *l, const embd_schema *s)
{
    put_text(l, "name", s->name);
    put_uint(l, "dim", s->dim);
    put_uint(l, "slots", s->slots);
    if (s->slot_sizes)
        listing_uints(l, column_of("slot_sizes"), s->slot_sizes, s->slots);
    put_text(l, "partition", embd_partition_name(s->partition));
    put_text(l, "combiner", embd_combiner_name(s->combiner));
    put_text(l, "dtype", embd_dtype_name(s->dtype));
    put_optimizer(l, &s->optimizer);
    put_regularization(l, &s->regularization);
    put_initializer(l, &s->initializer);
    put_uint(l, "seed", s->seed);
    put_uint(l, "capacity", s->capacity);
    put_text(l, "on_full", embd_on_full_name(s->on_full));
    if (s->on_full == EMBD_ON_FULL_EVICT_TTL && s->ttl_seconds > 0)
        put_uint(l, "ttl_seconds", s->ttl_seconds);
    else if (s->on_full == EMBD_ON_FULL_EVICT_TTL)
        put_uint(l, "ttl", s->ttl);
    if (s->on_full == EMBD_ON_FULL_EVICT_LFU) {
        put_uint(l, "lfu_half_life", s->lfu_half_life);
        listing_flag(l, column_of("lfu_occurrences"), s->lfu_occurrences);
    }
    put_uint(l, "admit_after", s->admit_after);
    put_text(l, "create_on", embd_create_on_name(s->create_on));
    listing_flag(l, column_of("admit_nonfinite"), s->admit_nonfinite);
    put_text(l, "durability", embd_durability_name(s->durability));
    put_text(l, "rounding", embd_rounding_name(s->rounding));
}

/* Steps of each shard are shown only where they differ. */
static void put_figures(struct listing *l, const struct figures *f, const char *table)
{
    static const char *const counts[] = {"rows", "candidates"};
    const struct figure *steps = figures_find(f, table, "steps");
    struct sums sums = figures_sum(f, steps);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        put_uint(l, counts[i], figures_sum(f, figures_find(f, table, counts[i])).total);
    put_uint(l, "memory_bytes", figures_table_memory(f, table));
    put_uint(l, "steps", sums.most);
    if (sums.least != sums.most)
        listing_uints(l, column_of("shard_steps"), steps->values, f->n_shards);
}

static int print_description(embd_client *client, const char *name)
{
    struct listing l;
    struct figures f;
    embd_table *table;
    int status = embd_table_open(client, name, &table);
    if (status)
        return status;
    status = figures_read(client, name, &f);
    if (status == EMBD_OK) {
        listing_init(&l, "table", describe_columns, N_DESCRIBE_COLUMNS);
        listing_row(&l);
        put_schema(&l, embd_table_schema(table));
        put_uint(&l, "table_capacity",
                 embd_table_capacity(embd_table_schema(table), embd_shard_count(client)));
        put_figures(&l, &f, name);
        listing_print_fields(&l);
        listing_fini(&l);
    }
    figures_free(&f);
    return status;
}

#define ONE_TABLE                                                                                  \
    {                                                                                              \
        .min = 1, .max = 1, .wanted = "name a table"                                               \
    }

int command_table_describe(int argc, char **argv)
{
    static const struct argp argp = {
        .parser = parse_words,
        .args_doc = "TABLE",
        .doc = "Shows a table's whole definition, and what it holds on all shards.\v"
               "The fields are those that 'embctl table create --set' takes. Parameters that the "
               "optimizer or initializer does not have are left out; in JSON they are null. "
               "'steps' is the greatest of the shards; where some shards refused a push that "
               "others applied, 'shard_steps' has those of each. 'capacity' is each shard's; "
               "'table_capacity' is that of the table, as 'embctl table create --table-capacity' "
               "takes it.\n"
               "\n"
               "Examples:\n"
               "  embctl table describe items\n"
               "  embctl table describe items -o json | jq '.table[0].dim'"};
    struct words words = ONE_TABLE;
    embd_client *client;
    parse_command(&argp, argc, argv, &words);
    int code = connect_servers(&client);
    return code ? code : end_client(client, print_description(client, words.list[0]));
}

/* ---- create ---- */

struct create {
    struct words words;
    struct settings settings;
    uint64_t workspace_mb, n_gpus; /* 0: no workspace */
    uint64_t table_capacity;       /* 0: not given */
};

enum { OPTION_WORKSPACE = 0x3000, OPTION_GPUS, OPTION_TABLE_CAPACITY };
static const struct argp_option create_options[] = {
    {"table-capacity", OPTION_TABLE_CAPACITY, "ROWS", 0,
     "Rows of all shards together: capacity becomes the share of each", 0},
    {"workspace-mb", OPTION_WORKSPACE, "MB", 0,
     "Bound the table by HugeCTR's workspace_size_per_gpu_in_mb: capacity becomes the rows that "
     "MB MiB have room for on each of --gpus N, divided by the shards; on_full becomes error",
     0},
    {"gpus", OPTION_GPUS, "N", 0, "GPUs of --workspace-mb (default: 1)", 0},
    {0},
};

static int parse_create(int key, char *arg, struct argp_state *state)
{
    struct create *c = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[1] = &c->settings;
        return 0;
    case OPTION_WORKSPACE:
        c->workspace_mb = parse_uint(state, "--workspace-mb", arg, 1, UINT32_MAX);
        return 0;
    case OPTION_TABLE_CAPACITY:
        c->table_capacity = parse_uint(state, "--table-capacity", arg, 1, UINT64_MAX);
        settings_add(&c->settings, state, "capacity", "1"); /* until the shards are known */
        return 0;
    case OPTION_GPUS:
        c->n_gpus = parse_uint(state, "--gpus", arg, 1, 1024);
        return 0;
    default:
        return parse_words(key, arg, state);
    }
}

static bool has_capacity_twice(const struct settings *s)
{
    int n = 0;
    for (size_t i = 0; i < s->n; i++)
        n += strcmp(s->list[i].field, "capacity") == 0;
    return n > 1;
}

/* The capacity that the workspace has room for. */
static int bound(const struct create *c, embd_client *client, embd_schema *schema)
{
    uint64_t gpu_rows, shards = embd_shard_count(client);
    int status = embd_hugectr_gpu_rows(schema, c->workspace_mb, &gpu_rows);
    if (status != EMBD_OK)
        return status;
    schema->capacity = (gpu_rows * c->n_gpus + shards - 1) / shards;
    if (schema->on_full == EMBD_ON_FULL_GROW)
        schema->on_full = EMBD_ON_FULL_ERROR;
    return embd_schema_check(schema);
}

static int create_table(const struct create *c)
{
    static uint64_t slot_sizes[EMBD_SLOTS_MAX];
    char why[512] = "";
    embd_schema schema;
    embd_client *client;
    int status =
        settings_apply(&c->settings, c->words.list[0], &schema, slot_sizes, why, sizeof why);
    if (status)
        return end_with(status, why);
    if (c->table_capacity > 0 && (c->workspace_mb > 0 || has_capacity_twice(&c->settings)))
        return end_with(EMBD_INVALID, "--table-capacity bounds the table: remove --capacity and "
                                      "--workspace-mb");
    if (c->workspace_mb > 0 && schema.capacity > 0)
        return end_with(EMBD_INVALID, "both --workspace-mb and --capacity bound the table: remove "
                                      "one of them");
    int code = connect_servers(&client);
    if (code != EXIT_DONE)
        return code;
    if (c->workspace_mb > 0)
        status = bound(c, client, &schema);
    if (c->table_capacity > 0)
        schema.capacity = embd_capacity_share(&schema, embd_shard_count(client), c->table_capacity);
    return end_client(client, status ? status : embd_table_create(client, &schema));
}

int command_table_create(int argc, char **argv)
{
    static const struct argp_child children[] = {{&settings_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {
        .options = create_options,
        .parser = parse_create,
        .children = children,
        .args_doc = "TABLE",
        .doc =
            "Creates a table on every shard. A table of the same name and definition is left as "
            "it is; one of another definition is refused (exit code 5).\v"
            "A name is 1 to 63 characters of a-z, 0-9, '-' and '_', and begins with a letter or "
            "digit.\n"
            "\n"
            "Examples:\n"
            "  embctl table create items --dim 16\n"
            "  embctl table create ads --dim 64 --slots 26 --combiner mean --lr 0.05 \\\n"
            "      --optimizer adagrad\n"
            "  embctl table create words --dim 32 --optimizer adam \\\n"
            "      --set optimizer.beta2=0.99 --initializer normal --set initializer.b=0.01\n"
            "  embctl table create recent --dim 32 --on-full evict_lru --table-capacity 1000000\n"
            "  embctl table create deep --dim 16 --optimizer adam --workspace-mb 358 --gpus 8"};
    struct create c = {.words = ONE_TABLE, .n_gpus = 1};
    parse_command(&argp, argc, argv, &c);
    int code = create_table(&c);
    settings_fini(&c.settings);
    return code;
}

/* ---- drop ---- */

int command_table_drop(int argc, char **argv)
{
    static const struct argp argp = {
        .parser = parse_words,
        .args_doc = "TABLE",
        .doc = "Drops a table and its rows on every shard. Only a dump or snapshot brings it "
               "back.\v"
               "Examples:\n"
               "  embctl dump items ./items-last && embctl table drop items"};
    struct words words = ONE_TABLE;
    embd_client *client;
    parse_command(&argp, argc, argv, &words);
    int code = connect_servers(&client);
    return code ? code : end_client(client, embd_table_drop(client, words.list[0]));
}
