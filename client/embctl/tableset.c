/* tableset.c - embctl table set. */
#include <stdlib.h>
#include <string.h>

#include "client/embctl/embctl.h"
#include "client/embctl/listing.h"

struct set {
    const char *table;
    embd_field *fields; /* [n] */
    uint32_t n;
};

embd_field parse_field(struct argp_state *state, char *pair)
{
    char *equals = strchr(pair, '=');
    if (equals == NULL)
        argp_error(state, "'%s': expected FIELD=VALUE", pair);
    *equals = '\0';
    return (embd_field){pair, equals + 1};
}

static void add(struct set *s, struct argp_state *state, char *pair)
{
    embd_field *grown = reallocarray(s->fields, s->n + 1u, sizeof *grown);
    if (grown == NULL)
        argp_failure(state, EXIT_FAILED, 0, "out of memory");
    s->fields = grown;
    s->fields[s->n++] = parse_field(state, pair);
}

static int parse(int key, char *arg, struct argp_state *state)
{
    struct set *s = state->input;
    switch (key) {
    case ARGP_KEY_ARG:
        if (s->table == NULL)
            s->table = arg;
        else
            add(s, state, arg);
        return 0;
    case ARGP_KEY_END:
        if (s->n == 0)
            argp_error(state, "name a table and at least one FIELD=VALUE");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void print_steps(const embd_client *client, const uint64_t *steps)
{
    static const struct column columns[] = {{"shard", CELL_NUMBER}, {"step", CELL_COUNT}};
    struct listing l;
    listing_init(&l, "set", columns, 2);
    for (uint32_t shard = 0; shard < embd_shard_count(client); shard++) {
        listing_row(&l);
        listing_uint(&l, 0, shard);
        listing_uint(&l, 1, steps[shard]);
    }
    listing_print(&l);
    listing_fini(&l);
}

static int set(embd_client *client, const struct set *s)
{
    uint64_t *steps = calloc(embd_shard_count(client), sizeof *steps);
    if (steps == NULL)
        return EMBD_NO_MEMORY;
    int status = embd_table_set(client, s->table, s->fields, s->n, steps);
    if (status == EMBD_OK)
        print_steps(client, steps);
    free(steps);
    return status;
}

int command_table_set(int argc, char **argv)
{
    static const struct argp argp = {
        .parser = parse,
        .args_doc = "TABLE FIELD=VALUE...",
        .doc =
            "Sets fields of a table's definition on every shard while it is pushed and pulled. "
            "All shards check all fields first: then all of them set all fields, or none does. "
            "Shows the pushes that each shard had applied before; the later ones go by the new "
            "values.\v"
            "Fields are named as 'embctl table describe' names them. These may be set: all "
            "parameters of the optimizer but its kind, update and decay; initializer.a, "
            "initializer.b, capacity, on_full, ttl, ttl_seconds, lfu_half_life, "
            "lfu_occurrences, admit_after, create_on, admit_nonfinite, durability. Rows keep their "
            "values; "
            "what new rows begin with (initializer, optimizer.initial_accumulator) affects rows "
            "made later. A capacity below the table's rows evicts rows by on_full, or is "
            "refused. Keys that wait for their row keep their count when admit_after changes; 0 "
            "and 1 forget them. With any durability but snapshot the command ends when the "
            "journals have the table's rows; with durability=snapshot the next start has the table "
            "from the newest snapshot. If a server is lost meanwhile, run the command again: it "
            "sets "
            "all shards to the same.\n"
            "\n"
            "'embctl table create' and trainers that create the table again do not compare "
            "fields that were set.\n"
            "\n"
            "Examples:\n"
            "  embctl table set items optimizer.lr=0.05\n"
            "  embctl table set words optimizer.lr=1e-4 optimizer.beta2=0.99\n"
            "  embctl table set recent ttl=1000\n"
            "  embctl table set recent capacity=2000000\n"
            "  embctl table set items durability=durable"};
    struct set s = {.table = NULL};
    embd_client *client;
    parse_command(&argp, argc, argv, &s);
    int code = connect_servers(&client);
    code = code ? code : end_client(client, set(client, &s));
    free(s.fields);
    return code;
}
