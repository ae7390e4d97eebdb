/* resized.c - see resized.h. */
#include "client/backup/resized.h"

#include <string.h>

/* A later map has one bin, of streams: pushes are passed over by their headers. */
static void read_header(struct resized *r)
{
    struct archived_record record;
    embd__archived_header(r->head, &record);
    uint64_t body = record.bytes - ARCHIVED_RECORD_BYTES;
    uint64_t n = (uint64_t)8 * record.n_bins + record.head_bytes;
    bool is_short = record.n_bins <= 1 && record.head_bytes <= LIMIT_HEADER_BYTES && n <= body;
    r->left = body;
    r->n_kept = is_short ? ARCHIVED_RECORD_BYTES + n : 0;
}

/* What is no map is nobody's here: a restore looks at it. */
static void read_record(const struct resized *r, struct archived_deed *out)
{
    struct archived_record record;
    struct embd__error ignored = {0};
    embd__archived_header(r->head, &record);
    if (r->n_head < r->n_kept || r->n_kept == 0 ||
        embd__archived_deed(r->head, &record, out, &ignored) != EMBD_OK)
        out->move = MOVE_NONE;
}

static void keep(struct resized *r, const uint8_t *bytes, uint64_t n, uint64_t most)
{
    uint64_t room = r->n_head < most ? most - r->n_head : 0;
    n = n < room ? n : room;
    memcpy(r->head + r->n_head, bytes, n);
    r->n_head += n;
}

uint64_t resized_take(struct resized *r, const uint8_t *bytes, uint64_t n,
                      struct archived_deed *out)
{
    bool is_header = r->left == 0;
    uint64_t wanted = is_header ? ARCHIVED_RECORD_BYTES - r->n_head : r->left;
    uint64_t taken = n < wanted ? n : wanted;
    out->move = MOVE_NONE;
    keep(r, bytes, taken, is_header ? ARCHIVED_RECORD_BYTES : r->n_kept);
    r->left -= is_header ? 0 : taken;
    if (taken < wanted)
        return taken;
    if (is_header)
        read_header(r);
    if (r->left > 0)
        return taken;
    read_record(r, out);
    r->n_head = 0;
    return taken;
}
