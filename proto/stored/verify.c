/* verify.c - see verify.h.
 *
 * Manifests first (chain.h), then every blob, list of streams and part file from its first to its
 * last byte (partread.h). The first difference ends it: damaged data is not used, however little of
 * it is damaged. */
#include <stdlib.h>

#include "proto/stored/partread.h"
#include "proto/stored/streamsread.h"
#include "proto/stored/verify.h"

int embd__verify_part(const struct dump_share *share, const struct manifest_part *part,
                      const embd_schema *schema, struct ticker *ticker, struct embd__error *e)
{
    struct part_reader reader;
    struct row_block block;
    if (embd__partread_open(&reader, share->path, part, schema, e))
        return e->status;
    uint64_t at = 0;
    while (embd__partread_next(&reader, &block, e) > 0) {
        if (embd__ticker_add(ticker, block.n_rows, reader.at - at, e))
            break;
        at = reader.at;
    }
    ticker->bytes_done += reader.at - at;
    embd__partread_close(&reader);
    return e->status;
}

static int verify_blobs(const struct dump_share *share, struct ticker *ticker,
                        struct embd__error *e)
{
    for (uint32_t i = 0; i < share->manifest.n_blobs; i++) {
        const struct manifest_blob *blob = &share->manifest.blobs[i];
        void *data = embd__blob_read(share, blob, e);
        free(data);
        if (!data || embd__ticker_add(ticker, 0, blob->bytes, e))
            return e->status;
    }
    return EMBD_OK;
}

int embd__verify_others(const struct dump_share *share, struct ticker *ticker,
                        struct embd__error *e)
{
    return verify_blobs(share, ticker, e) ? e->status : embd__streams_verify(share, e);
}

static int verify_share(const struct dump_share *share, const char *only, struct ticker *ticker,
                        struct embd__error *e)
{
    if (!only && embd__verify_others(share, ticker, e))
        return e->status;
    for (uint32_t i = 0; i < share->manifest.n_tables; i++) {
        const struct manifest_table *table = &share->manifest.tables[i];
        if (only && embd__dumpdir_table(share, only) != table)
            continue;
        for (uint32_t j = 0; j < table->n_parts; j++)
            if (embd__verify_part(share, &table->parts[j], &table->schema.s, ticker, e))
                return e->status;
    }
    return EMBD_OK;
}

static int verify_parts(const struct dump_dir *dir, const char *only, struct ticker *ticker,
                        struct embd__error *e)
{
    for (uint32_t i = 0; i < dir->n_shares; i++)
        if (verify_share(&dir->shares[i], only, ticker, e))
            return e->status;
    return embd__ticker_end(ticker, e);
}

int embd__verify_chain(const struct dump_chain *chain, const char *only, struct ticker *ticker,
                       struct embd__error *e)
{
    for (uint32_t i = 0; i < chain->n; i++)
        if (verify_parts(&chain->dirs[i], only, ticker, e))
            return e->status;
    return EMBD_OK;
}
