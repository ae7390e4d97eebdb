/* snapshot_files.c - see snapshot_files.h.
 *
 * The happy path: one request of the phase `fetch`, one answer with a bin. What can fail: the
 * server reads a piece for somebody else (then it is asked again), has no such file, or is of an
 * earlier version, which does not know the phase. */
#include "client/formats/snapshot_files.h"

#include <string.h>
#include <time.h>

#include "client/core/client.h"
#include "client/formats/admin.h"

#define PAUSE_NS 20000000

static int name_old_server(embd_client *client)
{
    struct embd__error *e = embd__client_error(client), inner = *e;
    if (e->status != EMBD_INVALID || strstr(e->text, "phase") == NULL)
        return e->status;
    *e = (struct embd__error){0};
    return embd__error_set(e, EMBD_UNSUPPORTED,
                           "%.200s; the server's version has no files to fetch: upgrade it first",
                           inner.text);
}

static int ask(embd_client *client, uint32_t shard, const char *snapshot, const char *file,
               uint64_t at, struct answer **out)
{
    struct msg *m = embd__admin_begin(client, METHOD_SNAPSHOT);
    embd__msg_map(m, 4);
    embd__msg_field_str(m, "name", snapshot);
    embd__msg_field_str(m, "phase", "fetch");
    embd__msg_field_str(m, "file", file);
    embd__msg_field_uint(m, "offset", at);
    return embd__request(client, shard, LISTENER_ADMIN, out);
}

/* Until the client's deadline. */
static int ask_until_free(embd_client *client, uint32_t shard, const char *snapshot,
                          const char *file, uint64_t at, struct answer **out)
{
    struct embd__error *e = embd__client_error(client);
    uint64_t end_ns = uv_hrtime() + UINT64_C(1000000) * client->options.deadline_ms;
    int status = ask(client, shard, snapshot, file, at, out);
    while (status == EMBD_BUSY && uv_hrtime() < end_ns) {
        *e = (struct embd__error){0};
        nanosleep(&(struct timespec){0, PAUSE_NS}, NULL);
        status = ask(client, shard, snapshot, file, at, out);
    }
    return status == EMBD_OK ? EMBD_OK : name_old_server(client);
}

EMBD_API int embd__copy_file_piece(embd_client *client, uint32_t shard, const char *snapshot,
                                   const char *file, uint64_t at, struct file_piece *out)
{
    struct embd__error *e = embd__client_error(client);
    struct fields f;
    *out = (struct file_piece){.answer = NULL};
    *e = (struct embd__error){0};
    if (ask_until_free(client, shard, snapshot, file, at, &out->answer) != EMBD_OK)
        return e->status;
    embd__read_fields(&f, &out->answer->reader, "snapshot fetch");
    out->file_bytes = embd__field_uint(&f, "bytes", 0, UINT64_MAX, FIELD_REQUIRED);
    embd__fields_end(&f);
    out->data = embd__read_bin_any(&out->answer->reader, "snapshot fetch", 1, LIMIT_FRAME_BYTES,
                                   &out->bytes);
    embd__reader_end(&out->answer->reader);
    return e->status ? embd__admin_end(client, shard, METHOD_SNAPSHOT, out->answer) : EMBD_OK;
}

EMBD_API void embd__copy_piece_free(struct file_piece *piece)
{
    if (piece->answer != NULL)
        embd__answer_free(piece->answer);
    *piece = (struct file_piece){.answer = NULL};
}

EMBD_API int embd__copy_lineage(embd_client *client, uint64_t *lineage_out)
{
    struct embd__error *e = embd__client_error(client);
    struct answer *answer;
    struct fields f;
    *e = (struct embd__error){0};
    struct msg *m = embd__admin_begin(client, METHOD_IDENTITY);
    embd__msg_map(m, 1);
    embd__msg_field_uint(m, "shard", 0);
    if (embd__request(client, 0, LISTENER_ADMIN, &answer) != EMBD_OK)
        return e->status;
    embd__read_fields(&f, &answer->reader, "identity");
    *lineage_out = embd__field_uint(&f, "lineage", 0, UINT64_MAX, 0);
    return embd__admin_end(client, 0, METHOD_IDENTITY, answer);
}
