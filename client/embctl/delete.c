/* delete.c - embctl delete: keys and their rows go. */
#include "client/embctl/chosen.h"
#include "client/embctl/embctl.h"
#include "client/embctl/listing.h"

static const struct argp_option options[] = {CHOSEN_SLOT, {0}};

static int parse(int key, char *arg, struct argp_state *state)
{
    return chosen_parse(state->input, key, arg, state);
}

static void print(const struct chosen *chosen, const uint8_t *statuses)
{
    static const struct column columns[] = {
        {"key", CELL_NUMBER}, {"slot", CELL_NUMBER}, {"status", CELL_TEXT}};
    struct listing l;
    listing_init(&l, "keys", columns, 3);
    for (size_t i = 0; i < chosen->n; i++) {
        listing_row(&l);
        listing_uint(&l, 0, chosen->keys[i]);
        listing_uint(&l, 1, chosen->slot);
        listing_text(&l, 2, statuses[i] == EMBD_KEY_EVICTED ? "deleted" : "missing");
    }
    listing_print(&l);
    listing_fini(&l);
}

static int erase(embd_client *client, embd_part *part, const void *chosen)
{
    int status = embd_erase(client, part, 1, NULL);
    if (status == EMBD_OK)
        print(chosen, part->statuses);
    return status;
}

int command_delete(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "TABLE KEY...",
        .doc = "Erases keys: their rows, optimizer state, and how often they were seen. Status "
               "'deleted': the key had a row; 'missing': it had none.\v"
               "A key that is pushed again gets a new row. Missing keys are not an error.\n"
               "\n"
               "Examples:\n"
               "  embctl delete items 17 42 0xdeadbeef\n"
               "  embctl delete --slot 3 ads 9"};
    struct chosen chosen = {0};
    parse_command(&argp, argc, argv, &chosen);
    int code = chosen_run(&chosen, erase, &chosen);
    chosen_fini(&chosen);
    return code;
}
