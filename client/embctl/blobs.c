/* blobs.c - embctl blobs: the files that a trainer gave to a snapshot; and those that snapshot
 * --blob gives. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/embctl/blobs.h"
#include "client/embctl/embctl.h"
#include "client/embctl/listing.h"
#include "embd/admin.h"

/* ---- NAME=FILE ---- */

static int cannot(const char *what, const char *path)
{
    fprintf(stderr, "embctl: %s: cannot %s: %s\n", path, what, strerror(errno));
    return EXIT_FAILED;
}

/* All of a file, however long it says it is. */
static int read_stream(FILE *in, const char *path, char **data_out, uint64_t *bytes_out)
{
    char *data = NULL, chunk[65536];
    size_t n, bytes = 0;
    FILE *to = open_memstream(&data, &bytes);
    if (!to)
        return cannot("read", path);
    while ((n = fread(chunk, 1, sizeof chunk, in)) > 0 && (size_t)ftell(to) <= EMBD_BLOB_BYTES_MAX)
        fwrite(chunk, 1, n, to);
    int failed = ferror(in) | ferror(to);
    if (fclose(to) || failed) {
        free(data);
        return cannot("read", path);
    }
    *data_out = data;
    *bytes_out = bytes;
    return EXIT_DONE;
}

int blob_from_file(const char *text, embd_blob *blob_out)
{
    const char *equals = strchr(text, '=');
    char *name = equals ? strndup(text, (size_t)(equals - text)) : NULL, *data = NULL;
    uint64_t bytes = 0;
    if (!name) {
        fprintf(stderr, "embctl: --blob is '%s'; expected NAME=FILE\n", text);
        return EXIT_USAGE;
    }
    FILE *in = fopen(equals + 1, "re");
    int code = in ? read_stream(in, equals + 1, &data, &bytes) : cannot("open", equals + 1);
    if (in)
        fclose(in);
    *blob_out = (embd_blob){.name = name, .data = data, .bytes = bytes};
    if (code)
        blob_fini(blob_out);
    return code;
}

void blob_fini(embd_blob *blob)
{
    free((void *)(uintptr_t)blob->name);
    free((void *)(uintptr_t)blob->data);
    *blob = (embd_blob){0};
}

/* ---- embctl blobs ---- */

static int add_blob(void *arg, const char *name, uint64_t bytes)
{
    struct listing *l = arg;
    listing_row(l);
    listing_text(l, 0, name);
    listing_uint(l, 1, bytes);
    return 0;
}

static int list_blobs(const char *dir)
{
    static const struct column columns[] = {{"blob", CELL_TEXT}, {"bytes", CELL_BYTES}};
    struct listing l;
    listing_init(&l, "blobs", columns, 2);
    int status = embd_blob_list(dir, add_blob, &l);
    if (status == EMBD_OK)
        listing_print(&l);
    listing_fini(&l);
    return end_with(status, "");
}

static int print_blob(const char *dir, const char *name)
{
    void *data = NULL;
    uint64_t bytes = 0;
    int status = embd_blob_read(dir, name, &data, &bytes);
    if (status == EMBD_OK)
        fwrite(data, 1, (size_t)bytes, stdout);
    free(data);
    return end_with(status, "");
}

int command_blobs(int argc, char **argv)
{
    static const struct argp argp = {
        .parser = parse_words,
        .args_doc = "DIR [NAME]",
        .doc = "Lists the files that a trainer gave to a snapshot, or prints one of them on the "
               "standard output. Needs no server.\v"
               "A file is checked against the snapshot's manifest before it is printed.\n"
               "\n"
               "Examples:\n"
               "  embctl blobs /var/lib/embd/nightly\n"
               "  embctl blobs /var/lib/embd/nightly dense > dense.npz"};
    struct words words = {.min = 1, .max = 2, .wanted = "name a snapshot directory"};
    parse_command(&argp, argc, argv, &words);
    return words.n == 2 ? print_blob(words.list[0], words.list[1]) : list_blobs(words.list[0]);
}
