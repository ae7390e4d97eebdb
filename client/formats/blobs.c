/* blobs.c - the trainer's own files in a snapshot: sent with it, listed and read back.
 *
 * A blob travels in pieces of PARTFILE_BLOCK_BYTES; the last one carries the checksum of the whole,
 * computed over the caller's memory. The server compares it with what arrived, the manifest keeps
 * it, and every reader compares it again: from the trainer's memory back into it, no byte can
 * change unseen. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "client/formats/admin.h"
#include "client/formats/blobs.h"
#include "client/core/client.h"
#include "embd/admin.h"

/* ---- sending ---- */

static int check_blob(const embd_blob *blobs, uint32_t i, struct embd__error *e)
{
    char file[MANIFEST_BLOB_FILE];
    const embd_blob *blob = &blobs[i];
    if (!blob->name || !embd__manifest_blob_file(file, blob->name))
        return embd__error_set(e, EMBD_INVALID,
                               "blob name: '%.64s' is not of the form [a-z0-9][a-z0-9_-]{0,62}",
                               blob->name ? blob->name : "NULL");
    if (blob->bytes > EMBD_BLOB_BYTES_MAX)
        return embd__error_set(e, EMBD_TOO_LARGE,
                               "blob '%s' has %" PRIu64 " bytes, the limit is %llu", blob->name,
                               blob->bytes, EMBD_BLOB_BYTES_MAX);
    if (!blob->data && blob->bytes)
        return embd__error_set(e, EMBD_INVALID,
                               "blob '%s' has %" PRIu64 " bytes, but its data is NULL", blob->name,
                               blob->bytes);
    for (uint32_t j = 0; j < i; j++)
        if (!strcmp(blobs[j].name, blob->name))
            return embd__error_set(e, EMBD_EXISTS, "blob '%s' is given twice", blob->name);
    return EMBD_OK;
}

int embd__blobs_check(const embd_blob *blobs, uint32_t n, struct embd__error *e)
{
    if (n > EMBD_BLOBS_MAX)
        return embd__error_set(e, EMBD_TOO_LARGE, "%" PRIu32 " blobs, the limit is %d", n,
                               EMBD_BLOBS_MAX);
    if (n && !blobs)
        return embd__error_set(e, EMBD_INVALID, "%" PRIu32 " blobs, but they are NULL", n);
    for (uint32_t i = 0; i < n; i++)
        if (check_blob(blobs, i, e))
            return e->status;
    return EMBD_OK;
}

static int send_piece(embd_client *client, const char *name, const embd_blob *blob, uint64_t at,
                      uint64_t bytes, const uint64_t *xxh3)
{
    struct answer *answer;
    struct msg *m = embd__admin_begin(client, METHOD_SNAPSHOT);
    embd__msg_map(m, xxh3 ? 5 : 4);
    embd__msg_field_str(m, "name", name);
    embd__msg_field_str(m, "phase", "blob");
    embd__msg_field_str(m, "blob", blob->name);
    embd__msg_field_uint(m, "offset", at);
    if (xxh3)
        embd__msg_field_uint(m, "xxh3", *xxh3);
    embd__msg_bin(m, bytes ? (const uint8_t *)blob->data + at : (const uint8_t *)"", bytes);
    int status = embd__request(client, 0, LISTENER_ADMIN, &answer);
    return status ? status : embd__admin_end(client, 0, METHOD_SNAPSHOT, answer);
}

int embd__blob_send(embd_client *client, const char *name, const embd_blob *blob)
{
    uint64_t at = 0, xxh3 = XXH3_64bits(blob->data, (size_t)blob->bytes);
    bool is_last = false;
    for (int status = EMBD_OK; !is_last;) {
        uint64_t bytes = blob->bytes - at;
        is_last = bytes <= PARTFILE_BLOCK_BYTES;
        if (!is_last)
            bytes = PARTFILE_BLOCK_BYTES;
        status = send_piece(client, name, blob, at, bytes, is_last ? &xxh3 : NULL);
        if (status)
            return status;
        at += bytes;
    }
    return EMBD_OK;
}

/* ---- reading ---- */

EMBD_API int embd_blob_list(const char *dir,
                            int (*visit)(void *arg, const char *name, uint64_t bytes), void *arg)
{
    struct embd__error e = {0};
    struct dump_dir d;
    int stop = embd__dumpdir_open(dir, &d, &e);
    for (uint32_t i = 0; i < d.n_shares && !stop; i++) {
        const struct manifest *m = &d.shares[i].manifest;
        for (uint32_t j = 0; j < m->n_blobs && !stop; j++)
            stop = visit(arg, m->blobs[j].name, m->blobs[j].bytes);
    }
    embd__dumpdir_fini(&d);
    return embd__error_keep(&e, stop);
}

static void *find_and_read(const struct dump_dir *d, const char *name, uint64_t *bytes_out,
                           struct embd__error *e)
{
    for (uint32_t i = 0; i < d->n_shares; i++) {
        const struct manifest *m = &d->shares[i].manifest;
        for (uint32_t j = 0; j < m->n_blobs; j++)
            if (!strcmp(m->blobs[j].name, name)) {
                *bytes_out = m->blobs[j].bytes;
                return embd__blob_read(&d->shares[i], &m->blobs[j], e);
            }
    }
    embd__error_set(e, EMBD_INVALID, "%s: has no blob '%s'", d->path, name);
    return NULL;
}

EMBD_API int embd_blob_read(const char *dir, const char *name, void **data_out, uint64_t *bytes_out)
{
    struct embd__error e = {0};
    struct dump_dir d;
    uint64_t bytes = 0;
    void *data = NULL;
    if (embd__dumpdir_open(dir, &d, &e) == EMBD_OK)
        data = find_and_read(&d, name, &bytes, &e);
    embd__dumpdir_fini(&d);
    if (data) {
        *data_out = data;
        *bytes_out = bytes;
    }
    return embd__error_keep(&e, e.status);
}
