/* movewatch.c - see movewatch.h. */
#include "client/embctl/movewatch.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/embctl/listing.h"
#include "client/embctl/moves.h"

#define LOOK_S     0.2
#define SHOW_AFTER 2000000u /* microseconds of the move */

static void show(const embd_snapshot_report *r)
{
    char rows[32], bytes[32], speed[32], line[256];
    uint64_t left_s = move_left_us(r) / 1000000;
    listing_format(rows, sizeof rows, CELL_COUNT, r->rows);
    listing_format(bytes, sizeof bytes, CELL_BYTES, r->bytes);
    listing_format(speed, sizeof speed, CELL_BYTES, move_speed(r));
    snprintf(line, sizeof line, "%s %s  %s rows  %s  %s/s  %d:%02d left", r->name, r->phase, rows,
             bytes, speed, (int)(left_s / 60), (int)(left_s % 60));
    fprintf(stderr, "\r\033[K%s", line);
}

static void *watch_move(void *arg)
{
    struct move_watch *watch = arg;
    embd_client *client = NULL;
    embd_options options;
    embd_options_init(&options);
    int status = embd_connect(globals.servers, &options, &client);
    while (status == EMBD_OK && !atomic_load(&watch->ends)) {
        embd_snapshot_report report = {.struct_bytes = sizeof report};
        bool is_told = embd_snapshot_status(client, NULL, &report) == EMBD_OK;
        if (is_told && report.is_running && report.elapsed_us > SHOW_AFTER &&
            strncmp(report.name, "move-", 5) == 0)
            show(&report);
        wait_seconds(LOOK_S);
    }
    if (client != NULL)
        embd_close(client);
    return NULL;
}

void move_watch_begin(struct move_watch *watch)
{
    atomic_init(&watch->ends, false);
    watch->runs = isatty(STDERR_FILENO) && !globals.json &&
                  pthread_create(&watch->thread, NULL, watch_move, watch) == 0;
}

void move_watch_end(struct move_watch *watch)
{
    if (!watch->runs)
        return;
    atomic_store(&watch->ends, true);
    pthread_join(watch->thread, NULL);
    fputs("\r\033[K", stderr);
}
