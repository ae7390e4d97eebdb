/* own_frame.c - pieces of a message are head, bin, head, bin, ... head: the scanner sees the heads.
 */
#include "server/shard/own_frame.h"

int own_frame_scan(struct own_frame *own, struct msg *msg, struct embd__error *e)
{
    if (embd__msg_end(msg) != EMBD_OK)
        return embd__error_set(e, msg->status, "a request for the journal could not be built");
    uint32_t n = embd__msg_n_pieces(msg);
    embd__frame_init(&own->frame, own->head, sizeof own->head, LIMIT_FRAME_BYTES);
    for (uint32_t i = 0; i < n && e->status == EMBD_OK; i++) {
        struct msg_piece piece = embd__msg_piece(msg, i);
        size_t used;
        if (i % 2 == 0)
            embd__frame_scan(&own->frame, piece.data, (size_t)piece.bytes, &used, e);
        else
            own->frame.bins[own->frame.n_bins - 1].data = (uint8_t *)(uintptr_t)piece.data;
    }
    return e->status;
}
