/* verify.c - embctl verify: whether a dump, a snapshot or the backups of a place are whole. */
#include "client/embctl/embctl.h"
#include "client/embctl/places.h"
#include "client/embctl/progress.h"
#include "client/embctl/report.h"
#include "client/embctl/transfer.h"
#include "embd/admin.h"

struct verify_arguments {
    struct words words; /* the directory or place */
    struct backup_where where;
};

static const struct argp_option options[] = {S3_OPTIONS, {0}};

static int parse(int key, char *arg, struct argp_state *state)
{
    struct verify_arguments *a = state->input;
    switch (key) {
    case 'e':
        a->where.endpoint = arg;
        return 0;
    case 'g':
        a->where.region = arg;
        return 0;
    default:
        return parse_words(key, arg, state);
    }
}

static int verify_directory(embd_client *client, void *arg, embd_progress *progress, void *told,
                            embd_dump_report *report)
{
    const struct verify_arguments *a = arg;
    (void)client;
    return embd_verify(a->words.list[0], progress, told, report);
}

static int verify_place(const struct backup_where *where)
{
    struct progress progress;
    embd_dump_report report;
    struct backup_why why;
    progress_begin(&progress, "verify", NULL);
    int status = backup_verify(where, NULL, progress_report, &progress, &report, &why);
    uint64_t elapsed_us = progress_end(&progress);
    if (status == EMBD_OK)
        report_print("verify", where->url, &report, elapsed_us, false);
    return end_with(status, why.text);
}

int command_verify(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "DIR|PLACE",
        .doc = "Checks a dump or snapshot directory, or all backups of a place: manifests, sizes, "
               "checksums of files and blocks, counts. Asks no server.\v" PLACES
               "Exit code 6 if something is damaged; the message names the file and the "
               "difference.\n"
               "\n"
               "Examples:\n"
               "  embctl verify ./everything\n"
               "  embctl verify -o json ./everything\n"
               "  embctl verify s3://backups/shop"};
    struct verify_arguments a = {
        .words = {.min = 1, .max = 1, .wanted = "name a directory, or a place of backups"}};
    parse_command(&argp, argc, argv, &a);
    const struct transfer transfer = {.what = "verify",
                                      .place = a.words.list[0],
                                      .label = "verify",
                                      .is_offline = true,
                                      .run = verify_directory};
    a.where.url = a.words.list[0];
    bool is_place;
    struct backup_why why;
    int status = backup_is_place(a.where.url, &is_place, &why);
    if (status != EMBD_OK)
        return end_with(status, why.text);
    return is_place ? verify_place(&a.where) : transfer_run(&transfer, &a);
}
