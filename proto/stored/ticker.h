/* ticker.h - calls a progress function a few times a second, however often work is done. */
#ifndef EMBD_STORED_TICKER_H
#define EMBD_STORED_TICKER_H

#include "proto/errors.h"
#include "embd/admin.h"

struct ticker {
    embd_progress *progress; /* may be NULL */
    void *arg;
    uint64_t rows_done, rows_total, bytes_done;
    uint64_t next_ns; /* monotonic; 0: at once */
};

void embd__ticker_begin(struct ticker *ticker, embd_progress *progress, void *arg,
                        uint64_t rows_total);

/* Counts work done and reports it when it is time. EMBD_IO: the progress function asked to stop. */
int embd__ticker_add(struct ticker *ticker, uint64_t rows, uint64_t bytes, struct embd__error *e);

/* Reports the final figures. */
int embd__ticker_end(struct ticker *ticker, struct embd__error *e);

#endif
