/* snapshot_blob.c - blobs: the files that a trainer gives to a snapshot, so that one directory
 * resumes its job. They arrive in pieces, one blob after the other, on the shard that will commit.
 *
 * Nothing about them is believed: a piece must begin where the last one ended, and the received
 * bytes must have the checksum that the trainer computed over its own memory. Commit checks again
 * that each file is in the directory that gets the manifest. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/files/safe_open.h"
#include "embd/admin.h"
#include "server/snapshot/snapshot.h"

static int fail(const char *file, const char *what, struct embd__error *e)
{
    return embd__error_set(e, EMBD_IO, "snapshot '%s': cannot %s: %s", file, what, strerror(errno));
}

/* ---- in turn? ---- */

static bool is_there(const struct snapshot_parts *parts, const char *name)
{
    for (uint32_t i = 0; i < parts->n_blobs; i++)
        if (strcmp(parts->blobs[i].name, name) == 0)
            return true;
    return false;
}

/* A new blob's place in the list. */
static int begin_blob(struct snapshot_parts *parts, const char *name, struct embd__error *e)
{
    if (parts->blob_hash != NULL)
        return embd__error_set(e, EMBD_INVALID, "snapshot blob '%s': '%s' is not complete yet",
                               name, parts->blobs[parts->n_blobs - 1].name);
    if (is_there(parts, name))
        return embd__error_set(e, EMBD_EXISTS, "snapshot blob '%s' exists already", name);
    if (parts->n_blobs == EMBD_BLOBS_MAX)
        return embd__error_set(e, EMBD_TOO_LARGE,
                               "snapshot blob '%s' is one more than the limit of %d", name,
                               EMBD_BLOBS_MAX);
    parts->blob_hash = XXH3_createState();
    if (parts->blob_hash == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for snapshot blob '%s'", name);
    XXH3_64bits_reset(parts->blob_hash);
    struct manifest_blob *blob = &parts->blobs[parts->n_blobs++];
    *blob = (struct manifest_blob){.bytes = 0};
    strcpy(blob->name, name); /* its form, and so its length, was checked */
    return EMBD_OK;
}

static int go_on(const struct snapshot_parts *parts, const struct snapshot_piece *piece,
                 struct embd__error *e)
{
    const struct manifest_blob *blob =
        parts->n_blobs == 0 ? NULL : &parts->blobs[parts->n_blobs - 1];
    if (parts->blob_hash == NULL || blob == NULL || strcmp(blob->name, piece->blob) != 0)
        return embd__error_set(e, EMBD_INVALID, "snapshot blob '%s' was not begun", piece->blob);
    if (piece->offset != blob->bytes)
        return embd__error_set(e, EMBD_INVALID,
                               "snapshot blob '%s' offset: %" PRIu64 ", it has %" PRIu64
                               " bytes so far",
                               piece->blob, piece->offset, blob->bytes);
    return EMBD_OK;
}

static int check_turn(struct snapshot_parts *parts, const struct snapshot_piece *piece,
                      struct embd__error *e)
{
    if (piece->offset > EMBD_BLOB_BYTES_MAX || piece->bytes > EMBD_BLOB_BYTES_MAX - piece->offset)
        return embd__error_set(e, EMBD_TOO_LARGE,
                               "snapshot blob '%s' bytes: %" PRIu64 " from %" PRIu64
                               " on, the limit is %llu",
                               piece->blob, piece->bytes, piece->offset, EMBD_BLOB_BYTES_MAX);
    if (snapshot_quota_check(parts, piece->bytes, e) != EMBD_OK)
        return e->status;
    return piece->offset == 0 ? begin_blob(parts, piece->blob, e) : go_on(parts, piece, e);
}

/* ---- taking it ---- */

static int write_piece(int fd, const char *file, const struct snapshot_piece *piece,
                       struct embd__error *e)
{
    const uint8_t *data = piece->data;
    for (uint64_t done = 0; done < piece->bytes;) {
        ssize_t n = pwrite(fd, data + done, piece->bytes - done, (off_t)(piece->offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail(file, "write", e);
        done += (uint64_t)n;
    }
    return !piece->is_last || fsync(fd) == 0 ? EMBD_OK : fail(file, "sync", e);
}

int snapshot_blob_write(int dir, const char *file, const struct snapshot_piece *piece,
                        struct embd__error *e)
{
    bool is_new = piece->offset == 0;
    int fd = safe_open(dir, file, O_WRONLY | (is_new ? O_CREAT | O_EXCL : 0), is_new ? 0644 : 0);
    if (fd < 0)
        return fail(file, is_new ? "create" : "open", e);
    write_piece(fd, file, piece, e);
    if (close(fd) != 0)
        fail(file, "close", e);
    return e->status;
}

static int end_blob(struct snapshot_parts *parts, uint64_t xxh3, struct embd__error *e)
{
    struct manifest_blob *blob = &parts->blobs[parts->n_blobs - 1];
    blob->xxh3 = XXH3_64bits_digest(parts->blob_hash);
    if (blob->xxh3 != xxh3)
        return embd__error_set(e, EMBD_CORRUPT,
                               "snapshot blob '%s' arrived with the checksum %016" PRIx64
                               ", it was sent with %016" PRIx64,
                               blob->name, blob->xxh3, xxh3);
    XXH3_freeState(parts->blob_hash);
    parts->blob_hash = NULL;
    return EMBD_OK;
}

int snapshot_blob_begin(struct snapshot_parts *parts, const struct snapshot_piece *piece,
                        char *file_out, struct embd__error *e)
{
    if (!embd__manifest_blob_file(file_out, piece->blob))
        return embd__error_set(e, EMBD_INVALID,
                               "snapshot blob: '%.64s' is not of the form [a-z0-9][a-z0-9_-]{0,62}",
                               piece->blob);
    return check_turn(parts, piece, e);
}

int snapshot_blob_end(struct snapshot_parts *parts, const struct snapshot_piece *piece,
                      struct embd__error *e)
{
    XXH3_64bits_update(parts->blob_hash, piece->data, (size_t)piece->bytes);
    parts->blobs[parts->n_blobs - 1].bytes += piece->bytes;
    return piece->is_last ? end_blob(parts, piece->xxh3, e) : EMBD_OK;
}

/* ---- at commit ---- */

int snapshot_check_blobs(const struct snapshot_parts *parts, int dir, struct embd__error *e)
{
    for (uint32_t i = 0; i < parts->n_blobs; i++) {
        const struct manifest_blob *blob = &parts->blobs[i];
        char file[MANIFEST_BLOB_FILE];
        struct stat st;
        embd__manifest_blob_file(file, blob->name);
        if (parts->blob_hash != NULL && i + 1 == parts->n_blobs)
            return embd__error_set(e, EMBD_INVALID, "snapshot blob '%s' is not complete",
                                   blob->name);
        if (fstatat(dir, file, &st, AT_SYMLINK_NOFOLLOW) != 0)
            return fail(file, "look at it", e);
        if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != blob->bytes)
            return embd__error_set(e, EMBD_INVALID,
                                   "snapshot blob '%s' has %lld bytes, it had %" PRIu64, blob->name,
                                   (long long)st.st_size, blob->bytes);
    }
    return EMBD_OK;
}
