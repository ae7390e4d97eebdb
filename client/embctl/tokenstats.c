/* tokenstats.c - embctl stats --tokens: what the tables under a token's prefixes take on each
 * shard, and may take, and the snapshots of its jobs in each data directory. */
#include <string.h>

#include "client/embctl/embctl.h"
#include "client/embctl/listing.h"
#include "client/embctl/tokenstats.h"
#include "embd/admin.h"

/* Figures are named as their columns. */
static const struct column columns[] = {
    {"token", CELL_TEXT},           {"shard", CELL_NUMBER},
    {"tables", CELL_COUNT},         {"tables_limit", CELL_COUNT},
    {"row_bytes", CELL_BYTES},      {"row_bytes_limit", CELL_BYTES},
    {"snapshots", CELL_COUNT},      {"snapshots_limit", CELL_COUNT},
    {"snapshot_bytes", CELL_BYTES}, {"snapshot_bytes_limit", CELL_BYTES}};
#define N_COLUMNS (sizeof columns / sizeof *columns)

struct reading {
    struct listing listing;
    uint32_t shard;
    char token[EMBD_NAME_MAX + 1]; /* of the last row */
    bool has_row;
};

static int on_figure(void *arg, const char *token, const char *name, uint64_t value)
{
    struct reading *reading = arg;
    if (!reading->has_row || strcmp(reading->token, token) != 0) {
        listing_row(&reading->listing);
        listing_text(&reading->listing, 0, token);
        listing_uint(&reading->listing, 1, reading->shard);
        strcpy(reading->token, token);
        reading->has_row = true;
    }
    for (size_t i = 2; i < N_COLUMNS; i++)
        if (strcmp(columns[i].name, name) == 0)
            listing_uint(&reading->listing, i, value);
    return 0;
}

int show_token_stats(embd_client *client)
{
    struct reading reading = {.shard = 0};
    int result = EMBD_OK;
    listing_init(&reading.listing, "tokens", columns, N_COLUMNS);
    for (; reading.shard < embd_shard_count(client) && result != EMBD_NO_MEMORY; reading.shard++) {
        reading.has_row = false;
        int status = embd_token_stats(client, reading.shard, on_figure, &reading);
        if (status != EMBD_OK)
            result = status == EMBD_NO_MEMORY ? status : end_silent();
    }
    if (result != EMBD_NO_MEMORY)
        listing_print(&reading.listing);
    listing_fini(&reading.listing);
    return result;
}
