/* fuzz_frame.c - any bytes, in pieces of any size, then read as every kind of message.
 *
 * The first two bytes of the input choose the piece size and the limits. Checked besides memory:
 * how a message is split changes nothing about the outcome. */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/golden_messages.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void read_as_everything(struct received *r)
{
    struct reader reader;
    for (uint32_t i = 0; i < n_goldens; i++) {
        memset(&r->error, 0, sizeof r->error);
        if (received_read(r, &reader) == EMBD_OK)
            goldens[i].read(&reader);
    }
}

/* The outcome of a scan, as far as it must not depend on the splits. */
static void check_same(const struct received *a, const struct received *b)
{
    bool same = a->event == b->event && a->scanner.n_bins == b->scanner.n_bins &&
                a->scanner.head_bytes == b->scanner.head_bytes &&
                a->scanner.type == b->scanner.type && a->scanner.msgid == b->scanner.msgid &&
                a->error.status == b->error.status &&
                memcmp(a->head, b->head, a->scanner.head_bytes) == 0;
    if (!same)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct received whole, pieces;
    if (n < 2)
        return 0;
    uint32_t head_capacity = 1u + 16u * data[1];
    received_init(&whole, head_capacity, n / 2);
    received_init(&pieces, head_capacity, n / 2);
    received_feed(&whole, data + 2, n - 2, 0);
    received_feed(&pieces, data + 2, n - 2, 1u + data[0] % 16);
    check_same(&whole, &pieces);
    if (whole.event == FRAME_DONE)
        read_as_everything(&whole);
    received_fini(&whole);
    received_fini(&pieces);
    return 0;
}
