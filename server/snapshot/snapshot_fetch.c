/* snapshot_fetch.c - see snapshot_fetch.h. */
#include "server/snapshot/snapshot_fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/files/safe_open.h"
#include "server/files/errand.h"

/* Owner: the shard's thread, but for what `run` sets while it runs. */
struct snapshot_fetch {
    struct shard *shard;
    struct request *request; /* NULL: it is gone */
    struct errand *errand;   /* NULL: nobody wakes this shard, and it ran at once */
    char name[SNAPSHOT_NAME_MAX + 1], file[FETCH_FILE_MAX + 1];
    uint64_t offset;
    uint8_t *to; /* [FETCH_PIECE_BYTES], of the request's answer */
    /* set by run */
    uint64_t bytes, file_bytes;
    struct embd__error error;
};

/* ---- on the thread ---- */

static int fail(struct snapshot_fetch *fetch, const char *what)
{
    return embd__error_set(&fetch->error, EMBD_IO, "snapshot '%s': cannot %s %s: %s", fetch->name,
                           what, fetch->file, strerror(errno));
}

static void read_piece(struct snapshot_fetch *fetch, int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        fail(fetch, "look at");
        return;
    }
    fetch->file_bytes = (uint64_t)st.st_size;
    while (fetch->bytes < FETCH_PIECE_BYTES) {
        ssize_t n = pread(fd, fetch->to + fetch->bytes, FETCH_PIECE_BYTES - fetch->bytes,
                          (off_t)(fetch->offset + fetch->bytes));
        if (n < 0 && errno != EINTR)
            fail(fetch, "read");
        if (n == 0 || fetch->error.status != EMBD_OK)
            return;
        fetch->bytes += n > 0 ? (uint64_t)n : 0;
    }
}

static void run(void *arg)
{
    struct snapshot_fetch *fetch = arg;
    int dir = safe_open(fetch->shard->data_dir, fetch->name, O_RDONLY | O_DIRECTORY, 0);
    if (dir < 0 && errno == ENOENT) {
        embd__error_set(&fetch->error, EMBD_UNSUPPORTED,
                        "snapshot fetch: there is no complete snapshot '%s' here", fetch->name);
        return;
    }
    int fd = dir < 0 ? -1 : safe_open(dir, fetch->file, O_RDONLY, 0);
    if (fd < 0)
        fail(fetch, "open");
    else
        read_piece(fetch, fd);
    if (fd >= 0)
        close(fd);
    if (dir >= 0)
        close(dir);
}

/* ---- on the shard's ---- */

static int check(struct call *call, const char *file, uint64_t offset)
{
    struct embd__error *e = &call->error;
    size_t n = strlen(file);
    if (n == 0 || n > FETCH_FILE_MAX || strchr(file, '/') != NULL || file[0] == '.')
        return embd__error_set(e, EMBD_MALFORMED,
                               "snapshot fetch: '%.100s' is not the name of a file of a snapshot",
                               file);
    if (offset > INT64_MAX - FETCH_PIECE_BYTES)
        return embd__error_set(e, EMBD_MALFORMED,
                               "snapshot fetch 'offset' is %llu, the limit is 2^63 - 2^22 - 1",
                               (unsigned long long)offset);
    if (call->shard->fetch != NULL)
        return embd__error_set(e, EMBD_BUSY,
                               "snapshot fetch: another piece is being read; try again");
    return EMBD_OK;
}

static int start(struct snapshot_fetch *fetch, struct embd__error *e)
{
    struct shard *shard = fetch->shard;
    const struct errand_config errand = {run, fetch, shard->config.wake, shard->config.wake_arg};
    shard->fetch = fetch;
    if (shard->config.wake == NULL) {
        run(fetch);
        snapshot_fetch_close(shard);
        return CALL_LATER;
    }
    fetch->errand = errand_start(&errand);
    if (fetch->errand != NULL)
        return CALL_LATER;
    shard->fetch = NULL;
    free(fetch);
    return embd__error_set(e, EMBD_NO_MEMORY, "no thread for snapshot fetch");
}

int snapshot_fetch(struct call *call, const char *name, const char *file, uint64_t offset)
{
    if (check(call, file, offset) != EMBD_OK)
        return call->error.status;
    struct snapshot_fetch *fetch = calloc(1, sizeof *fetch);
    uint8_t *to = fetch == NULL ? NULL : embd__msg_own(call->answer, FETCH_PIECE_BYTES);
    if (to == NULL) {
        free(fetch);
        return embd__error_set(&call->error, EMBD_NO_MEMORY, "no memory for snapshot fetch");
    }
    fetch->shard = call->shard;
    fetch->request = call->request;
    memcpy(fetch->name, name, strlen(name)); /* their lengths were checked */
    memcpy(fetch->file, file, strlen(file));
    fetch->offset = offset;
    fetch->to = to;
    return start(fetch, &call->error);
}

static void write_answer(const struct snapshot_fetch *fetch, struct request *request)
{
    struct msg *m = &request->answer;
    embd__msg_result(m, request->frame->msgid);
    embd__msg_map(m, 1);
    embd__msg_field_uint(m, "bytes", fetch->file_bytes);
    embd__msg_bin(m, fetch->to, fetch->bytes);
    embd__msg_end(m);
}

void snapshot_fetch_close(struct shard *shard)
{
    struct snapshot_fetch *fetch = shard->fetch;
    if (fetch == NULL)
        return;
    if (fetch->errand != NULL)
        errand_end(fetch->errand);
    shard->fetch = NULL;
    if (fetch->request != NULL) {
        if (fetch->error.status == EMBD_OK)
            write_answer(fetch, fetch->request);
        call_answer(shard, fetch->request, &fetch->error);
    }
    free(fetch);
}

void snapshot_fetch_collect(struct shard *shard)
{
    if (shard->fetch != NULL && errand_is_over(shard->fetch->errand))
        snapshot_fetch_close(shard);
}

void snapshot_fetch_forget(struct shard *shard, const struct request *request)
{
    if (shard->fetch == NULL || shard->fetch->request != request)
        return;
    shard->fetch->request = NULL;
    snapshot_fetch_close(shard);
}
