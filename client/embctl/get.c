/* get.c - embctl get: the rows of keys. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/embctl/chosen.h"
#include "client/embctl/embctl.h"
#include "client/embctl/listing.h"

#define FLOATS_SHOWN 8

struct get {
    struct chosen chosen;
    bool full, zero, vector;
};

static const struct argp_option options[] = {
    CHOSEN_SLOT,
    {"full", 'f', NULL, 0, "All values of a row, not the first 8 (JSON always has all)", 0},
    {"vector", 'v', NULL, 0,
     "Only the values, exact, one row per line, as numpy.loadtxt reads them", 0},
    {"zero", 'z', NULL, 0, "Zeros for a key without a row, instead of its first value", 0},
    {0},
};

static int parse(int key, char *arg, struct argp_state *state)
{
    struct get *get = state->input;
    switch (key) {
    case 'f':
        get->full = true;
        return 0;
    case 'v':
        get->vector = true;
        return 0;
    case 'z':
        get->zero = true;
        return 0;
    case ARGP_KEY_END:
        if (get->vector && globals.json)
            argp_error(state, "--vector is text; JSON has all values without it");
        break;
    default:
        break;
    }
    return chosen_parse(&get->chosen, key, arg, state);
}

#define KEY_SILENT UINT8_MAX /* its shard does not answer */

static const char *status_name(uint8_t status)
{
    if (status == KEY_SILENT)
        return "silent";
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
    for (size_t i = 0; i < get->chosen.n; i++) {
        listing_row(&l);
        listing_uint(&l, 0, get->chosen.keys[i]);
        listing_uint(&l, 1, get->chosen.slot);
        listing_text(&l, 2, status_name(statuses[i]));
        if (statuses[i] != KEY_SILENT)
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

/* ---- where a shard does not answer ---- */

/* A call for each key, so that those of other shards are answered. */
struct single {
    embd_part part;
    embd_call *call; /* NULL: not started */
    int status;
};

static void start_single(embd_client *client, const embd_part *all, const uint64_t *offsets,
                         size_t i, const embd_call_options *how, struct single *single)
{
    size_t dim = embd_table_schema(all->table)->dim;
    single->part = *all;
    single->part.n_keys = 1;
    single->part.keys = all->keys + i;
    single->part.offsets = offsets;
    single->part.statuses = all->statuses + i;
    single->part.values = all->values + i * dim;
    single->status = embd_pull_start(client, &single->part, 1, how, &single->call);
}

/* Each sentence once: it names the shard's address. */
static void tell(char *told, size_t told_bytes)
{
    if (!strcmp(told, embd_error_text()))
        return;
    snprintf(told, told_bytes, "%s", embd_error_text());
    fprintf(stderr, "embctl: %s\n", told);
}

static void end_single(const embd_part *all, size_t i, struct single *single, char *told,
                       size_t told_bytes)
{
    if (single->status == EMBD_OK)
        single->status = embd_wait(single->call);
    if (single->status == EMBD_OK)
        return;
    all->statuses[i] = KEY_SILENT;
    tell(told, told_bytes);
}

static int pull_singly(embd_client *client, const embd_part *all, embd_call_options how)
{
    char told[512] = "";
    struct single *singles = calloc(all->n_keys, sizeof *singles);
    uint64_t *offsets = calloc(all->n_rows + 1, sizeof *offsets);
    bool has_room = singles && offsets;
    how.deadline_ms = 1000; /* what does not answer has had its time */
    for (size_t r = 0; has_room && r <= all->n_rows; r++)
        offsets[r] = all->offsets[r] > 0;
    for (size_t i = 0; has_room && i < all->n_keys; i++)
        start_single(client, all, offsets, i, &how, &singles[i]);
    for (size_t i = 0; has_room && i < all->n_keys; i++)
        end_single(all, i, &singles[i], told, sizeof told);
    free(singles);
    free(offsets);
    return has_room ? EMBD_UNREACHABLE : EMBD_NO_MEMORY;
}

static bool is_silence(int status)
{
    return status == EMBD_UNREACHABLE || status == EMBD_DEADLINE || status == EMBD_CLOSED ||
           status == EMBD_LOADING || status == EMBD_DRAINING;
}

/* ---- the command ---- */

static int pull(embd_client *client, embd_part *part, const void *arg)
{
    const struct get *get = arg;
    const embd_call_options call = EMBD_CALL_OPTIONS(.zero_missing = get->zero);
    uint32_t dim = embd_table_schema(part->table)->dim;
    part->raw = true;
    part->values = calloc(part->n_keys, dim * sizeof *part->values);
    int status = part->values ? embd_pull(client, part, 1, &call) : EMBD_NO_MEMORY;
    bool is_partly = is_silence(status) && !get->vector;
    if (is_partly)
        status = pull_singly(client, part, call);
    if (status == EMBD_OK && get->vector)
        print_vectors(part->values, part->n_keys, dim);
    else if (status == EMBD_OK || (is_partly && status == EMBD_UNREACHABLE))
        print(get, part->values, part->statuses, dim);
    free(part->values);
    return is_partly && status == EMBD_UNREACHABLE ? CHOSEN_TOLD : status;
}

int command_get(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "TABLE KEY...",
        .doc =
            "Shows the rows of keys. Status 'hit': the key has a row; 'missing': it has none, and "
            "its first value is shown.\v"
            "This changes a table only if it was created with create_on = pull.\n"
            "Status 'silent': the key's shard does not answer within --deadline (default here: 5); "
            "stderr names it, and the exit code is 3.\n"
            "\n"
            "Examples:\n"
            "  embctl get items 17 42 0xdeadbeef\n"
            "  embctl get --slot 3 --full ads 9\n"
            "  embctl get --vector items 17 42 >rows.txt      # numpy.loadtxt('rows.txt')\n"
            "  embctl get -o json items 17 | jq '.rows[0].values'"};
    struct get get = {.chosen.takes_part = true};
    parse_command(&argp, argc, argv, &get);
    int code = chosen_run(&get.chosen, pull, &get);
    chosen_fini(&get.chosen);
    return code;
}
