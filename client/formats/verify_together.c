/* verify_together.c - see verify_together.h.
 *
 * The happy path: the parts are listed; this thread verifies them from the first on, a helper from
 * the last on, until they meet. What can fail: a part, then both end, and the error of the earlier
 * part counts; the progress function, which this thread calls alone, stops both. Without a thread,
 * or for little, this one does all. */
#include "client/formats/verify_together.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "proto/stored/verify.h"

#define WORTH_BYTES (8u << 20) /* a thread costs less than it takes to read so many */

struct part_job {
    const struct dump_share *share;
    const struct manifest_part *part;
    const embd_schema *schema;
    atomic_bool is_taken;
};

struct verifying {
    struct part_job *jobs; /* [n] */
    uint32_t n, capacity;
    uint64_t bytes;
    atomic_bool stops;
    struct ticker ticker; /* the helper's */
    struct embd__error e;
    uint32_t failed; /* the job that the helper's error is of */
};

/* ---- which ---- */

static int add(struct verifying *v, const struct dump_share *share,
               const struct manifest_table *table, struct embd__error *e)
{
    if (v->n + table->n_parts > v->capacity) {
        uint32_t capacity = 2 * v->capacity + table->n_parts;
        struct part_job *grown = realloc(v->jobs, capacity * sizeof *grown);
        if (grown == NULL)
            return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a list of parts");
        v->jobs = grown;
        v->capacity = capacity;
    }
    for (uint32_t i = 0; i < table->n_parts; i++) {
        struct part_job *job = &v->jobs[v->n++];
        *job =
            (struct part_job){.share = share, .part = &table->parts[i], .schema = &table->schema.s};
        v->bytes += table->parts[i].bytes;
    }
    return EMBD_OK;
}

static int add_share(struct verifying *v, const struct dump_share *share, const char *only,
                     struct ticker *ticker, struct embd__error *e)
{
    if (only == NULL && embd__verify_others(share, ticker, e) != EMBD_OK)
        return e->status;
    for (uint32_t i = 0; i < share->manifest.n_tables; i++) {
        const struct manifest_table *table = &share->manifest.tables[i];
        bool is_wanted = only == NULL || embd__dumpdir_table(share, only) == table;
        if (is_wanted && add(v, share, table, e) != EMBD_OK)
            return e->status;
    }
    return EMBD_OK;
}

static int list(struct verifying *v, const struct dump_chain *chain, const char *only,
                struct ticker *ticker, struct embd__error *e)
{
    for (uint32_t i = 0; i < chain->n; i++)
        for (uint32_t k = 0; k < chain->dirs[i].n_shares; k++)
            if (add_share(v, &chain->dirs[i].shares[k], only, ticker, e) != EMBD_OK)
                return e->status;
    return EMBD_OK;
}

/* ---- both ---- */

static int verify(struct verifying *v, uint32_t at, struct ticker *ticker, struct embd__error *e)
{
    struct part_job *job = &v->jobs[at];
    if (atomic_exchange(&job->is_taken, true))
        return EMBD_OK;
    return embd__verify_part(job->share, job->part, job->schema, ticker, e);
}

static int on_progress(void *arg, uint64_t rows_done, uint64_t rows_total, uint64_t bytes_done)
{
    const struct verifying *v = arg;
    (void)rows_done, (void)rows_total, (void)bytes_done;
    return atomic_load(&v->stops);
}

static void *help(void *arg)
{
    struct verifying *v = arg;
    embd__ticker_begin(&v->ticker, on_progress, v, 0);
    for (uint32_t i = v->n; i-- > 0 && !atomic_load(&v->stops);) {
        if (verify(v, i, &v->ticker, &v->e) == EMBD_OK)
            continue;
        v->failed = i;
        atomic_store(&v->stops, true);
    }
    return NULL;
}

/* False: without one. The program's signals are for its own threads. */
static bool begin_helper(struct verifying *v, pthread_t *out)
{
    sigset_t all, before;
    if (v->n < 2 || v->bytes < WORTH_BYTES)
        return false;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool is_begun = pthread_create(out, NULL, help, v) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return is_begun;
}

static void verify_all(struct verifying *v, struct ticker *ticker, struct embd__error *e)
{
    pthread_t helper;
    uint32_t at = 0;
    bool is_helped = begin_helper(v, &helper);
    for (; at < v->n && e->status == EMBD_OK && !atomic_load(&v->stops); at++)
        verify(v, at, ticker, e);
    if (e->status != EMBD_OK)
        atomic_store(&v->stops, true);
    if (is_helped)
        pthread_join(helper, NULL);
    ticker->rows_done += v->ticker.rows_done;
    ticker->bytes_done += v->ticker.bytes_done;
    bool was_stopped = v->e.status == EMBD_IO && e->status != EMBD_OK;
    if (v->e.status != EMBD_OK && !was_stopped && (e->status == EMBD_OK || v->failed < at))
        *e = v->e;
}

int embd__verify_together(const struct dump_chain *chain, const char *only, struct ticker *ticker,
                          struct embd__error *e)
{
    struct verifying v = {.n = 0};
    if (list(&v, chain, only, ticker, e) == EMBD_OK)
        verify_all(&v, ticker, e);
    free(v.jobs);
    return e->status != EMBD_OK ? e->status : embd__ticker_end(ticker, e);
}
