/* get.c - embctl get: the rows of keys. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "embctl.h"
#include "key_list.h"
#include "listing.h"

#define FLOATS_SHOWN 8

struct get {
    const char *table;
    struct key_list keys;
    uint64_t slot;
    bool full, zero, vector;
};

static const struct argp_option options[] = {
    {"slot", 'S', "N", 0, "Slot the keys belong to (default: 0)", 0},
    {"full", 'f', NULL, 0, "All values of a row, not the first 8 (JSON always has all)", 0},
    {"vector", 'v', NULL, 0, "The values alone, exact, a row a line: what numpy.loadtxt reads", 0},
    {"zero", 'z', NULL, 0,
     "Zeros for a key without a row, instead of the value it would start with", 0},
    {0},
};

static int parse(int key, char *arg, struct argp_state *state)
{
    struct get *get = state->input;
    switch (key) {
    case 'S':
        if (!read_uint(arg, EMBD_SLOTS_MAX - 1, &get->slot))
            argp_error(state, "--slot is '%s'; it can be 0 to %d", arg, EMBD_SLOTS_MAX - 1);
        return 0;
    case 'f':
        get->full = true;
        return 0;
    case 'v':
        get->vector = true;
        return 0;
    case 'z':
        get->zero = true;
        return 0;
    case ARGP_KEY_ARG:
        if (get->table)
            key_list_add(&get->keys, state, arg);
        else
            get->table = arg;
        return 0;
    case ARGP_KEY_END:
        if (get->keys.n == 0)
            argp_error(state, "name a table and one or more keys");
        if (get->vector && globals.json)
            argp_error(state, "--vector is text; JSON has all values without it");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const char *status_name(uint8_t status)
{
    static const char *const names[] = {
        [EMBD_KEY_HIT] = "hit",         [EMBD_KEY_INSERTED] = "inserted",
        [EMBD_KEY_MISSING] = "missing", [EMBD_KEY_FILTERED] = "filtered",
        [EMBD_KEY_EVICTED] = "evicted", [EMBD_KEY_FULL] = "full",
    };
    return status <= EMBD_KEY_FULL ? names[status] : "unknown";
}

static void print(const struct get *get, const float *values, const uint8_t *statuses, uint32_t dim)
{
    static const struct column columns[] = {{"key", CELL_NUMBER},
                                            {"slot", CELL_NUMBER},
                                            {"status", CELL_TEXT},
                                            {"values", CELL_FLOATS}};
    struct listing l;
    listing_init(&l, "rows", columns, 4);
    l.floats_shown = get->full ? 0 : FLOATS_SHOWN;
    for (size_t i = 0; i < get->keys.n; i++) {
        listing_row(&l);
        listing_uint(&l, 0, get->keys.keys[i]);
        listing_uint(&l, 1, get->slot);
        listing_text(&l, 2, status_name(statuses[i]));
        listing_floats(&l, 3, values + i * dim, dim);
    }
    listing_print(&l);
    listing_fini(&l);
}

static void print_vectors(const float *values, size_t n, uint32_t dim)
{
    for (size_t i = 0; i < n; i++)
        for (uint32_t c = 0; c < dim; c++)
            printf("%.9g%c", (double)values[i * dim + c], c + 1 < dim ? ' ' : '\n');
}

/* One sample: all keys in row `slot`, the other rows empty. */
static int pull(embd_client *client, const struct get *get, embd_table *table)
{
    const embd_schema *schema = embd_table_schema(table);
    uint64_t *offsets = calloc(schema->slots + 1u, sizeof *offsets);
    float *values = calloc(get->keys.n, schema->dim * sizeof *values);
    uint8_t *statuses = calloc(get->keys.n, 1);
    int status = EMBD_NO_MEMORY;
    if (offsets && values && statuses) {
        for (uint64_t r = get->slot + 1; r <= schema->slots; r++)
            offsets[r] = get->keys.n;
        embd_part part = {.table = table,
                          .n_rows = schema->slots,
                          .offsets = offsets,
                          .n_keys = get->keys.n,
                          .keys = get->keys.keys,
                          .values = values,
                          .statuses = statuses,
                          .raw = true};
        embd_call_options call = {.zero_missing = get->zero};
        status = embd_pull(client, &part, 1, &call);
        if (status == EMBD_OK && get->vector)
            print_vectors(values, get->keys.n, schema->dim);
        else if (status == EMBD_OK)
            print(get, values, statuses, schema->dim);
    }
    free(offsets);
    free(values);
    free(statuses);
    return status;
}

static int get_rows(const struct get *get)
{
    embd_client *client;
    embd_table *table;
    int code = connect_servers(&client);
    if (code)
        return code;
    int status = embd_table_open(client, get->table, &table);
    if (status)
        return end_client(client, status);
    uint32_t slots = embd_table_schema(table)->slots;
    if (get->slot >= slots) {
        fprintf(stderr, "embctl: --slot is %" PRIu64 ", table '%s' has slots 0 to %" PRIu32 "\n",
                get->slot, get->table, slots - 1);
        embd_close(client);
        return EXIT_USAGE;
    }
    return end_client(client, pull(client, get, table));
}

int command_get(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "TABLE KEY...",
        .doc =
            "Shows the rows of keys. Status 'hit': the key has a row; 'missing': it has none, and "
            "the value shown "
            "is the one it would start with.\v"
            "Looking does not change a table, unless the table was created with create_on = pull.\n"
            "\n"
            "Examples:\n"
            "  embctl get items 17 42 0xdeadbeef\n"
            "  embctl get --slot 3 --full ads 9\n"
            "  embctl get --vector items 17 42 >rows.txt      # numpy.loadtxt('rows.txt')\n"
            "  embctl get -o json items 17 | jq '.rows[0].values'"};
    struct get get = {0};
    parse_command(&argp, argc, argv, &get);
    int code = get_rows(&get);
    free(get.keys.keys);
    return code;
}
