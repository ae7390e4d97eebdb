/* chosen.c - see chosen.h. */
#include "client/embctl/chosen.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/embctl/embctl.h"

static void add_key(struct chosen *chosen, struct argp_state *state, const char *text)
{
    uint64_t key;
    if (!read_uint(text, UINT64_MAX, &key))
        argp_error(state, "key is '%s'; it can be 0 to 18446744073709551615, or 0x and hex digits",
                   text);
    uint64_t *grown = reallocarray(chosen->keys, chosen->n + 1, sizeof *grown);
    if (!grown)
        argp_failure(state, EXIT_FAILED, 0, "out of memory");
    chosen->keys = grown;
    chosen->keys[chosen->n++] = key;
}

int chosen_parse(struct chosen *chosen, int key, char *arg, struct argp_state *state)
{
    switch (key) {
    case 'S':
        if (!read_uint(arg, EMBD_SLOTS_MAX - 1, &chosen->slot))
            argp_error(state, "--slot is '%s'; it can be 0 to %d", arg, EMBD_SLOTS_MAX - 1);
        return 0;
    case ARGP_KEY_ARG:
        if (chosen->table)
            add_key(chosen, state, arg);
        else
            chosen->table = arg;
        return 0;
    case ARGP_KEY_END:
        if (chosen->n == 0)
            argp_error(state, "name a table and one or more keys");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* One sample: all keys in row `slot`, the other rows empty. */
static int act_on(const struct chosen *chosen, embd_client *client, embd_table *table,
                  int (*act)(embd_client *, embd_part *, const void *), const void *arg)
{
    uint32_t slots = embd_table_schema(table)->slots;
    uint64_t *offsets = calloc(slots + 1u, sizeof *offsets);
    uint8_t *statuses = calloc(chosen->n, 1);
    int status = EMBD_NO_MEMORY;
    if (offsets && statuses) {
        for (uint64_t r = chosen->slot + 1; r <= slots; r++)
            offsets[r] = chosen->n;
        embd_part part = EMBD_PART(.table = table, .n_rows = slots, .offsets = offsets,
                                   .n_keys = chosen->n, .keys = chosen->keys, .statuses = statuses);
        status = act(client, &part, arg);
    }
    free(offsets);
    free(statuses);
    return status;
}

int chosen_run(const struct chosen *chosen,
               int (*act)(embd_client *client, embd_part *part, const void *arg), const void *arg)
{
    embd_client *client;
    embd_table *table;
    int code = chosen->takes_part ? connect_servers_partly(&client) : connect_servers(&client);
    if (code)
        return code;
    int status = embd_table_open(client, chosen->table, &table);
    if (status)
        return end_client(client, status);
    uint32_t slots = embd_table_schema(table)->slots;
    if (chosen->slot >= slots) {
        fprintf(stderr, "embctl: --slot is %" PRIu64 ", table '%s' has slots 0 to %" PRIu32 "\n",
                chosen->slot, chosen->table, slots - 1);
        embd_close(client);
        return EXIT_USAGE;
    }
    status = act_on(chosen, client, table, act, arg);
    return status == CHOSEN_TOLD ? end_told(client, EMBD_UNREACHABLE) : end_client(client, status);
}

void chosen_fini(struct chosen *chosen)
{
    free(chosen->keys);
}
