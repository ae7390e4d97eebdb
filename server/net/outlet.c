/* outlet.c - see outlet.h.
 *
 * Position: `piece` and `offset` say which byte of the first ready answer comes next into a batch.
 * They move when a batch is put together, not when it is sent: made bytes exist once, in the
 * batch's chunk. */
#include "server/net/outlet.h"

#include "proto/assert.h"

#include <sys/mman.h>

/* Made bytes; the next spare one stands in its first bytes. Mapped, for as long as it is there: in
 * the heap the hole that it leaves would be memory that is taken and charged to nobody. */
struct chunk {
    struct chunk *next;
};

enum { MAX_SPARE_CHUNKS = 4 };

/* ---- chunks ---- */

static size_t chunk_bytes(const struct shard_io *io)
{
    size_t bytes = shard_fill_bytes(io->shard);
    return bytes < LIMIT_FILL_BYTES ? LIMIT_FILL_BYTES : bytes;
}

static struct chunk *chunk_new(struct shard_io *io, int *status_out)
{
    size_t bytes = (chunk_bytes(io) + 63) / 64 * 64;
    *status_out = EMBD_BUSY;
    if (!quota_take_answer(io->pool.quota, bytes))
        return NULL;
    void *chunk = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (chunk == MAP_FAILED) {
        *status_out = EMBD_NO_MEMORY;
        quota_give(io->pool.quota, bytes);
        return NULL;
    }
    *status_out = EMBD_OK;
    return chunk;
}

static void chunk_free(struct shard_io *io, struct chunk *chunk)
{
    size_t bytes = (chunk_bytes(io) + 63) / 64 * 64;
    quota_give(io->pool.quota, bytes);
    munmap(chunk, bytes);
}

static struct chunk *chunk_take(struct shard_io *io, int *status_out)
{
    struct chunk *chunk = io->spare_chunks;
    if (chunk == NULL)
        return chunk_new(io, status_out);
    io->spare_chunks = chunk->next;
    io->n_spare_chunks--;
    return chunk;
}

static void chunk_give(struct shard_io *io, struct chunk *chunk)
{
    if (io->n_spare_chunks == MAX_SPARE_CHUNKS) {
        chunk_free(io, chunk);
        return;
    }
    chunk->next = io->spare_chunks;
    io->spare_chunks = chunk;
    io->n_spare_chunks++;
}

void outlet_trim(struct shard_io *io)
{
    while (io->spare_chunks != NULL) {
        struct chunk *chunk = io->spare_chunks;
        io->spare_chunks = chunk->next;
        chunk_free(io, chunk);
    }
    io->n_spare_chunks = 0;
}

/* ---- life ---- */

void outlet_init(struct outlet *out)
{
    *out = (struct outlet){.most = OUTLET_BATCH_BYTES};
    STAILQ_INIT(&out->ready);
    STAILQ_INIT(&out->gathered);
}

void outlet_fini(struct outlet *out, struct shard_io *io)
{
    if (out->chunk != NULL)
        chunk_give(io, out->chunk);
    outlet_init(out);
}

/* ---- putting a batch together ---- */

static void put(struct outlet *out, const void *data, size_t bytes)
{
    if (bytes == 0)
        return;
    out->bufs[out->n++] = uv_buf_init((char *)(uintptr_t)data, (unsigned)bytes);
    out->batch_bytes += bytes;
}

static void next_piece(struct outlet *out)
{
    out->piece++;
    out->offset = 0;
}

/* Puts as much of a piece in memory, whose first `made` bytes are there, as a batch takes; false:
 * none. */
static bool put_memory(struct outlet *out, const struct msg_piece *piece, uint64_t made)
{
    uint64_t rest = made - out->offset, room = out->most - out->batch_bytes;
    uint64_t bytes = rest < room ? rest : room;
    put(out, (const uint8_t *)piece->data + out->offset, bytes);
    out->offset += bytes;
    if (out->offset == piece->bytes)
        next_piece(out);
    return bytes > 0;
}

/* Bytes of the next piece that are there. */
static uint64_t made_of(const struct outlet *out, struct exchange *x, const struct msg_piece *piece)
{
    bool is_bin = out->piece % 2 == 1;
    return x->request.is_partial && is_bin ? shard_made(&x->request, out->piece / 2) : piece->bytes;
}

/* Makes the next bytes of a piece that is not in memory; false: the chunk is too full for it, or
 * there is none. */
static bool put_made(struct outlet *out, struct shard_io *io, struct exchange *x,
                     const struct msg_piece *piece, int *status_out)
{
    if (out->chunk == NULL && (out->chunk = chunk_take(io, status_out)) == NULL)
        return false;
    uint64_t rest = piece->bytes - out->offset;
    size_t all = chunk_bytes(io), room = all - out->chunk_used;
    if (room < rest && room < LIMIT_FILL_BYTES)
        return false;
    uint8_t *to = (uint8_t *)out->chunk + out->chunk_used;
    size_t bytes =
        shard_fill(io->shard, &x->request, out->piece / 2, to, room < rest ? room : rest);
    EMBD_ASSERT(bytes > 0 && bytes <= rest);
    put(out, to, bytes);
    size_t end = out->chunk_used + (bytes + 63) / 64 * 64;
    out->chunk_used = end < all ? end : all;
    out->offset += bytes;
    if (bytes == rest)
        next_piece(out);
    return true;
}

static bool has_room(const struct outlet *out)
{
    return out->n < OUTLET_BUFS && out->batch_bytes < out->most;
}

/* Adds pieces of the first ready answer; false: the batch is full, the rest is not made yet, or
 * there is no memory to go on. */
static bool put_answer(struct outlet *out, struct shard_io *io, struct exchange *x, int *status_out)
{
    const struct msg *answer = &x->request.answer;
    uint32_t n_pieces = embd__msg_n_pieces(answer);
    while (out->piece < n_pieces) {
        struct msg_piece piece = embd__msg_piece(answer, out->piece);
        if (piece.bytes == 0) { /* in a full batch too, where nothing else would end the answer */
            next_piece(out);
            continue;
        }
        if (!has_room(out))
            return false;
        if (piece.data != NULL ? !put_memory(out, &piece, made_of(out, x, &piece))
                               : !put_made(out, io, x, &piece, status_out))
            return false;
    }
    out->piece = 0;
    return true;
}

/* Of the next answer rows are to be made, and the time for that is over. */
static bool is_late(const struct outlet *out, const struct exchange *next, uint64_t until_ns)
{
    return out->chunk_used > 0 && next->request.work != NULL && uv_hrtime() >= until_ns;
}

bool outlet_gather(struct outlet *out, struct shard_io *io, uint64_t until_ns, int *status_out)
{
    *status_out = EMBD_OK;
    if (out->batch_bytes > 0)
        return true;
    out->first = out->n = 0;
    out->chunk_used = 0;
    struct exchange *x;
    while ((x = STAILQ_FIRST(&out->ready)) != NULL) {
        if (is_late(out, x, until_ns) || !put_answer(out, io, x, status_out))
            break;
        STAILQ_REMOVE_HEAD(&out->ready, in_queue);
        STAILQ_INSERT_TAIL(&out->gathered, x, in_queue);
    }
    if (out->batch_bytes > 0)
        *status_out = EMBD_OK; /* what there is goes first */
    return out->batch_bytes > 0;
}

size_t outlet_put(const struct outlet *out, struct ring *ring)
{
    size_t n = 0, put;
    for (uint32_t i = out->first; i < out->n; i++) {
        n += put = embd__ring_put(ring, out->bufs[i].base, out->bufs[i].len);
        if (put < out->bufs[i].len)
            break;
    }
    return n;
}

/* ---- after sending ---- */

void outlet_sent(struct outlet *out, struct shard_io *io, uint64_t n)
{
    EMBD_ASSERT(n <= out->batch_bytes);
    out->batch_bytes -= n;
    while (n > 0) {
        uv_buf_t *buf = &out->bufs[out->first];
        size_t take = n < buf->len ? (size_t)n : buf->len;
        buf->base += take;
        buf->len -= take;
        n -= take;
        if (buf->len == 0)
            out->first++;
    }
    if (out->batch_bytes == 0 && out->chunk != NULL) {
        chunk_give(io, out->chunk);
        out->chunk = NULL;
    }
}
