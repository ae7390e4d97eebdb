/* delete.c - embctl delete: keys and their rows go. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "embctl.h"
#include "key_list.h"
#include "listing.h"

struct deletion {
    const char *table;
    struct key_list keys;
    uint64_t slot;
};

static const struct argp_option options[] = {
    {"slot", 'S', "N", 0, "Slot the keys belong to (default: 0)", 0},
    {0},
};

static int parse(int key, char *arg, struct argp_state *state)
{
    struct deletion *deletion = state->input;
    switch (key) {
    case 'S':
        if (!read_uint(arg, EMBD_SLOTS_MAX - 1, &deletion->slot))
            argp_error(state, "--slot is '%s'; it can be 0 to %d", arg, EMBD_SLOTS_MAX - 1);
        return 0;
    case ARGP_KEY_ARG:
        if (deletion->table)
            key_list_add(&deletion->keys, state, arg);
        else
            deletion->table = arg;
        return 0;
    case ARGP_KEY_END:
        if (deletion->keys.n == 0)
            argp_error(state, "name a table and one or more keys");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void print(const struct deletion *deletion, const uint8_t *statuses)
{
    static const struct column columns[] = {
        {"key", CELL_NUMBER}, {"slot", CELL_NUMBER}, {"status", CELL_TEXT}};
    struct listing l;
    listing_init(&l, "keys", columns, 3);
    for (size_t i = 0; i < deletion->keys.n; i++) {
        listing_row(&l);
        listing_uint(&l, 0, deletion->keys.keys[i]);
        listing_uint(&l, 1, deletion->slot);
        listing_text(&l, 2, statuses[i] == EMBD_KEY_EVICTED ? "deleted" : "missing");
    }
    listing_print(&l);
    listing_fini(&l);
}

/* One sample: all keys in row `slot`, the other rows empty. */
static int erase(embd_client *client, const struct deletion *deletion, embd_table *table)
{
    const embd_schema *schema = embd_table_schema(table);
    uint64_t *offsets = calloc(schema->slots + 1u, sizeof *offsets);
    uint8_t *statuses = calloc(deletion->keys.n, 1);
    int status = EMBD_NO_MEMORY;
    if (offsets && statuses) {
        for (uint64_t r = deletion->slot + 1; r <= schema->slots; r++)
            offsets[r] = deletion->keys.n;
        embd_part part = {.table = table,
                          .n_rows = schema->slots,
                          .offsets = offsets,
                          .n_keys = deletion->keys.n,
                          .keys = deletion->keys.keys,
                          .statuses = statuses};
        status = embd_erase(client, &part, 1, NULL);
        if (status == EMBD_OK)
            print(deletion, statuses);
    }
    free(offsets);
    free(statuses);
    return status;
}

static int delete_rows(const struct deletion *deletion)
{
    embd_client *client;
    embd_table *table;
    int code = connect_servers(&client);
    if (code)
        return code;
    int status = embd_table_open(client, deletion->table, &table);
    if (status)
        return end_client(client, status);
    uint32_t slots = embd_table_schema(table)->slots;
    if (deletion->slot >= slots) {
        fprintf(stderr, "embctl: --slot is %" PRIu64 ", table '%s' has slots 0 to %" PRIu32 "\n",
                deletion->slot, deletion->table, slots - 1);
        embd_close(client);
        return EXIT_USAGE;
    }
    return end_client(client, erase(client, deletion, table));
}

int command_delete(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "TABLE KEY...",
        .doc = "Erases keys: their rows, optimizer state, and how often they were seen. Status "
               "'deleted': the key had a row; 'missing': it had none.\v"
               "A key that is pushed again starts anew. A key there is not is no error.\n"
               "\n"
               "Examples:\n"
               "  embctl delete items 17 42 0xdeadbeef\n"
               "  embctl delete --slot 3 ads 9"};
    struct deletion deletion = {0};
    parse_command(&argp, argc, argv, &deletion);
    int code = delete_rows(&deletion);
    free(deletion.keys.keys);
    return code;
}
