/* tablekeys.c - embctl table keys: which keys of a table have rows. They are printed as they come,
 * so that a table of any size can be listed. */
#include <stdio.h>
#include <stdlib.h>

#include "client/embctl/embctl.h"
#include "client/embctl/listing.h"
#include "embd/rows.h"

#define KEYS_AT_A_TIME 65536u

struct keys {
    struct words words;
    uint64_t most; /* keys to print */
};

static const struct argp_option options[] = {
    {"limit", 'n', "N", 0, "Print at most N keys (default: all)", 0},
    {0},
};

static int parse(int key, char *arg, struct argp_state *state)
{
    struct keys *keys = state->input;
    if (key != 'n')
        return parse_words(key, arg, state);
    keys->most = parse_uint(state, "--limit", arg, 1, UINT64_MAX);
    return 0;
}

/* JSON is one object, as of other commands. */
static void print_key(const embd_key_list *list, uint32_t i, bool is_first)
{
    unsigned long long key = list->keys[i];
    unsigned slot = list->slots != NULL ? list->slots[i] : 0;
    if (globals.json)
        printf(list->slots != NULL ? "%s{\"key\":%llu,\"slot\":%u}" : "%s{\"key\":%llu}",
               is_first ? "" : ",", key, slot);
    else if (list->slots != NULL)
        printf("%llu %u\n", key, slot);
    else
        printf("%llu\n", key);
}

static int print_keys(embd_client *client, embd_key_list *list, uint64_t most)
{
    uint64_t n = 0;
    int status = EMBD_OK;
    while (status == EMBD_OK && !list->is_done && n < most) {
        status = embd_list_keys(client, list);
        for (uint32_t i = 0; status == EMBD_OK && i < list->n_keys && n < most; i++)
            print_key(list, i, n++ == 0);
    }
    return status;
}

static int list_keys(embd_client *client, const char *name, uint64_t most)
{
    embd_key_list list = EMBD_KEY_LIST(.capacity = KEYS_AT_A_TIME);
    int status = embd_table_open(client, name, &list.table);
    if (status != EMBD_OK)
        return status;
    list.keys = calloc(list.capacity, sizeof *list.keys);
    if (embd_table_schema(list.table)->partition == EMBD_PARTITION_SLOT)
        list.slots = calloc(list.capacity, sizeof *list.slots);
    printf("%s", globals.json ? "{\"keys\":[" : "");
    status = list.keys != NULL ? print_keys(client, &list, most) : EMBD_NO_MEMORY;
    printf("%s", globals.json ? "]}\n" : "");
    free(list.keys);
    free(list.slots);
    return status;
}

int command_table_keys(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "TABLE",
        .doc = "Prints the keys of a table that have a row, one a line, shard after shard, without "
               "an order. In tables with partition slot the key's slot follows it.\v"
               "The table may change meanwhile: a key that has its row all the time is printed, "
               "by servers with GPUs perhaps more than once; one that gets or loses its row is "
               "printed or not. Keys are stored keys: in tables with slot_sizes they have the "
               "offset of their slot.\n"
               "\n"
               "Examples:\n"
               "  embctl table keys items | wc -l\n"
               "  embctl table keys --limit 10 items\n"
               "  embctl get items $(embctl table keys -n 5 items)"};
    struct keys keys = {.words = {.min = 1, .max = 1, .wanted = "name a table"},
                        .most = UINT64_MAX};
    embd_client *client;
    parse_command(&argp, argc, argv, &keys);
    int code = connect_servers(&client);
    return code ? code : end_client(client, list_keys(client, keys.words.list[0], keys.most));
}
