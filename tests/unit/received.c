#include "tests/unit/received.h"

#include <stdlib.h>
#include <string.h>

void received_init(struct received *r, uint32_t head_capacity, uint64_t frame_limit)
{
    memset(r, 0, sizeof *r);
    r->head = malloc(head_capacity);
    embd__frame_init(&r->scanner, r->head, head_capacity, frame_limit);
    r->scanner.takes_shared = true;
    msgpack_zone_init(&r->zone, 1024);
}

void received_fini(struct received *r)
{
    for (uint32_t i = 0; i < r->scanner.n_bins; i++)
        free(r->scanner.bins[i].data);
    msgpack_zone_destroy(&r->zone);
    free(r->head);
}

/* Takes a bin's payload out of the stream; false when the stream ends inside it. */
static bool take_payload(struct received *r, const uint8_t *p, size_t n)
{
    struct frame_bin *bin = &r->scanner.bins[r->scanner.n_bins - 1];
    if (n - r->used < bin->bytes)
        return false;
    bin->data = malloc(bin->bytes ? bin->bytes : 1);
    memcpy(bin->data, p + r->used, bin->bytes);
    r->used += bin->bytes;
    return true;
}

enum { MOST_SHARED_BYTES = 1 << 20 };

/* A bin of zeros; false: more than any test shares. */
static bool make_shared(struct received *r)
{
    struct frame_bin *bin = &r->scanner.bins[r->scanner.n_bins - 1];
    if (bin->bytes > MOST_SHARED_BYTES)
        return false;
    bin->data = calloc(1, bin->bytes + 1u);
    return true;
}

int received_feed(struct received *r, const uint8_t *p, size_t n, size_t piece)
{
    for (;;) {
        size_t left = n - r->used, used;
        size_t give = piece != 0 && left > piece ? piece : left;
        r->event = embd__frame_scan(&r->scanner, p + r->used, give, &used, &r->error);
        r->used += used;
        if (r->event == FRAME_BIN && take_payload(r, p, n))
            continue;
        if (r->event == FRAME_SHARED && make_shared(r))
            continue;
        if (r->event == FRAME_BIN || r->event == FRAME_SHARED)
            r->event = FRAME_MORE;
        else if (r->event == FRAME_MORE && r->used < n)
            continue;
        return r->event;
    }
}

int received_read(struct received *r, struct reader *reader)
{
    return embd__reader_init(reader, &r->scanner, &r->zone, &r->error);
}

uint8_t *flatten(const struct msg *m, size_t *bytes_out)
{
    uint8_t *out = malloc(embd__msg_bytes(m) + 1), *end = out;
    for (uint32_t i = 0; i < embd__msg_n_pieces(m); i++) {
        struct msg_piece piece = embd__msg_piece(m, i);
        if (piece.data != NULL)
            memcpy(end, piece.data, piece.bytes);
        else
            memset(end, 0, piece.bytes);
        end += piece.bytes;
    }
    *bytes_out = (size_t)(end - out);
    return out;
}
