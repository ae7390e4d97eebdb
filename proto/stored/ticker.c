/* ticker.c - calls a progress function a few times a second, however often work is done. */
#include <time.h>

#include "proto/stored/ticker.h"
#include "embd/admin.h"

#define INTERVAL_NS 200000000u

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void embd__ticker_begin(struct ticker *ticker, embd_progress *progress, void *arg,
                        uint64_t rows_total)
{
    *ticker = (struct ticker){.progress = progress, .arg = arg, .rows_total = rows_total};
}

int embd__ticker_end(struct ticker *ticker, struct embd__error *e)
{
    if (ticker->progress &&
        ticker->progress(ticker->arg, ticker->rows_done, ticker->rows_total, ticker->bytes_done))
        return embd__error_set(e, EMBD_IO, "stopped by the caller after %llu of %llu rows",
                               (unsigned long long)ticker->rows_done,
                               (unsigned long long)ticker->rows_total);
    return EMBD_OK;
}

int embd__ticker_add(struct ticker *ticker, uint64_t rows, uint64_t bytes, struct embd__error *e)
{
    ticker->rows_done += rows;
    ticker->bytes_done += bytes;
    uint64_t now = now_ns();
    if (now < ticker->next_ns)
        return EMBD_OK;
    ticker->next_ns = now + INTERVAL_NS;
    return embd__ticker_end(ticker, e);
}
