/* transfer.c - a long operation between a cluster and a directory: what all of them have around
 * them. */
#include <time.h>

#include "client/embctl/progress.h"
#include "client/embctl/report.h"
#include "client/embctl/transfer.h"
#include "embd/admin.h"

/* Asks again, soon enough to keep its turn. */
static int run_in_turn(const struct transfer *t, embd_client *client, void *arg,
                       struct progress *progress, embd_dump_report *report)
{
    static const struct timespec pause = {0, 200000000};
    int status = t->run(client, arg, progress_report, progress, report);
    while (status == EMBD_BUSY && t->wait_s > 0 &&
           progress_wait(progress, "waits for another snapshot, dump or load", t->wait_s)) {
        nanosleep(&pause, NULL);
        status = t->run(client, arg, progress_report, progress, report);
    }
    return status;
}

int transfer_run(const struct transfer *t, void *arg)
{
    struct progress progress;
    embd_dump_report report;
    embd_client *client = NULL;
    int code = t->is_offline ? EXIT_DONE
               : t->is_ahead ? connect_servers_ahead(&client)
                             : connect_servers(&client);
    if (code)
        return code;
    progress_begin(&progress, t->label, t->next_label);
    int status = run_in_turn(t, client, arg, &progress, &report);
    uint64_t elapsed_us = progress_end(&progress);
    if (status == EMBD_OK)
        report_print(t->what, t->place, &report, elapsed_us, t->has_pause);
    return t->is_offline ? end_with(status, "") : end_client(client, status);
}
