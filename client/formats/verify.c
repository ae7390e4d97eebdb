/* verify.c - embd_verify: checks a dump or snapshot directory without a server. */
#include <stdio.h>

#include "proto/stored/verify.h"
#include "embd/admin.h"

static int verify_directory(const char *path, embd_progress *progress, void *arg,
                            embd_dump_report *report_out, struct embd__error *e)
{
    struct dump_chain chain;
    embd_dump_report totals;
    struct ticker ticker;
    if (embd__chain_open(path, &chain, e))
        return e->status;
    embd__chain_totals(&chain, NULL, &totals);
    embd__ticker_begin(&ticker, progress, arg, totals.rows);
    embd__verify_chain(&chain, NULL, &ticker, e);
    embd__chain_fini(&chain);
    if (e->status == EMBD_OK && report_out)
        *report_out = totals;
    return e->status;
}

EMBD_API int embd_verify(const char *dir, embd_progress *progress, void *arg,
                         embd_dump_report *report_out)
{
    struct embd__error e = {0};
    int status = verify_directory(dir, progress, arg, report_out, &e);
    return embd__error_keep(&e, status);
}
