/* transfer.c - a long operation between a cluster and a directory: what all of them have around
 * them. */
#include "client/embctl/progress.h"
#include "client/embctl/report.h"
#include "client/embctl/transfer.h"
#include "embd/admin.h"

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
    int status = t->run(client, arg, progress_report, &progress, &report);
    uint64_t elapsed_us = progress_end(&progress);
    if (status == EMBD_OK)
        report_print(t->what, t->place, &report, elapsed_us, t->has_pause);
    return t->is_offline ? end_with(status, "") : end_client(client, status);
}
