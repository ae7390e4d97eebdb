/* known.c - answers that were read before. With many shards most answers of a call have the same
 * head, byte for byte but for the msgid, as an earlier one to a message that expected the same:
 * what was found right then is right now, and is not unpacked again. Bins are compared with what is
 * expected as they come. An answer that has come whole is not even scanned: its bytes are compared
 * where they are. */
#include "client/call/call.h"

#include <string.h>

/* What the reading of an answer about one part depends on. */
static struct known_expected expected_of(const struct message *message)
{
    const struct slice *slice = &message->slices[0];
    return (struct known_expected){
        .kind = message->call->kind,
        .wire = message->call->wire,
        .n_keys = slice->n_keys,
        .n_rows = slice->n_rows,
        .dim = message->call->works[slice->work].dim,
        .has_status = slice->has_status,
    };
}

static bool is_same(const struct known_expected *a, const struct known_expected *b)
{
    return a->kind == b->kind && a->wire == b->wire && a->n_keys == b->n_keys &&
           a->n_rows == b->n_rows && a->dim == b->dim && a->has_status == b->has_status;
}

/* Where the msgid ends; 0: it is written in another way than packers do. */
static uint32_t end_of_msgid(const uint8_t *head)
{
    enum { MSGID_AT = 2, FIXNUM_MOST = 0x7f, UINT8 = 0xcc, UINT16 = 0xcd, UINT32 = 0xce };
    uint8_t first = head[MSGID_AT];
    uint32_t bytes = first <= FIXNUM_MOST ? 1
                     : first == UINT8     ? 2
                     : first == UINT16    ? 3
                     : first == UINT32    ? 5
                                          : 0;
    return bytes > 0 ? MSGID_AT + bytes : 0;
}

/* The head from its msgid's end on; NULL: it is not worth it. */
static const uint8_t *tail_of(const struct frame_scanner *frame, uint32_t *bytes_out)
{
    enum { LEAST = 8, OF_FOUR = 0x94, ANSWER = 1 };
    const uint8_t *head = frame->head;
    if (frame->head_bytes < LEAST || head[0] != OF_FOUR || head[1] != ANSWER)
        return NULL;
    uint32_t at = end_of_msgid(head);
    *bytes_out = frame->head_bytes - at;
    return at > 0 && *bytes_out <= KNOWN_BYTES ? head + at : NULL;
}

/* Of a message that may have one; NULL: it does not. */
static struct known_answer *place_of(const struct message *message)
{
    struct known_answer *known = message->call->client->known;
    if (known == NULL || message->n_slices != 1 || message->call->replica > 0)
        return NULL;
    return &known[message->slices[0].n_keys % KNOWN_ANSWERS];
}

bool embd__message_knows(struct exchange *x, const struct frame_scanner *frame)
{
    const struct message *message = (const void *)x;
    const struct known_answer *known = place_of(message);
    uint32_t bytes;
    const uint8_t *tail = known != NULL ? tail_of(frame, &bytes) : NULL;
    if (tail == NULL || known->bytes != bytes || memcmp(known->tail, tail, bytes) != 0)
        return false;
    struct known_expected expected = expected_of(message);
    return is_same(&known->expected, &expected);
}

/* The length that a bin has in front of it. */
static uint64_t length_of(const uint8_t *p, uint32_t bytes)
{
    uint64_t length = 0;
    for (uint32_t i = 0; i < bytes; i++)
        length = length << 8 | p[i];
    return length;
}

/* The payload of the answer's bin, the first that the message expects. */
static void take_bin(const struct message *message, uint8_t *p)
{
    const struct slice *slice = &message->slices[0];
    const struct work *work = &message->call->works[slice->work];
    const struct answer_bin *bin = &message->bins[0];
    if (bin->unit == 0) {
        memcpy(bin->to, p, bin->bytes);
        return;
    }
    size_t shift = message->call->wire == EMBD_DTYPE_F32 ? 0 : (uintptr_t)p % sizeof(float);
    if (shift > 0) /* into the answer's head */
        p = memmove(p - shift, p, bin->bytes);
    embd__pull_place(message->call, work, &work->shares[message->shard], p, slice->first,
                     slice->n_rows);
}

size_t embd__message_take_known(struct exchange *x, uint8_t *p, size_t n)
{
    const struct message *message = (const void *)x;
    const struct known_answer *known = place_of(message);
    if (known == NULL || !known->is_plain || n < known->bytes ||
        message->n_bins != (known->length_bytes > 0))
        return 0;
    uint32_t at = known->bytes - known->length_bytes;
    uint64_t payload = known->length_bytes > 0 ? message->bins[0].bytes : 0;
    struct known_expected expected = expected_of(message);
    if (memcmp(known->tail, p, at) != 0 || length_of(p + at, known->length_bytes) != payload ||
        n - known->bytes < payload || !is_same(&known->expected, &expected))
        return 0;
    if (payload > 0)
        take_bin(message, p + known->bytes);
    return known->bytes + payload;
}

/* Bytes of the length in front of the only bin, which ends the frame; -1: it has another form. */
static int length_at_end(const struct frame_scanner *frame)
{
    const struct frame_bin *bin = &frame->bins[0];
    static const uint8_t types[] = {0, 0xc4, 0xc5, 0, 0xc6};
    if (frame->n_bins == 0)
        return 0;
    if (frame->n_bins > 1 || bin->at != frame->head_bytes)
        return -1;
    for (uint32_t bytes = 1; bytes <= 4; bytes *= 2)
        if (frame->head[bin->at - bytes - 1] == types[bytes] &&
            length_of(frame->head + bin->at - bytes, bytes) == 0)
            return (int)bytes;
    return -1;
}

void embd__message_keep_known(const struct message *message, const struct frame_scanner *frame)
{
    struct known_answer *known = place_of(message);
    uint32_t bytes;
    const uint8_t *tail = known != NULL ? tail_of(frame, &bytes) : NULL;
    if (tail == NULL)
        return;
    known->expected = expected_of(message);
    known->bytes = bytes;
    int length = length_at_end(frame);
    known->is_plain = length >= 0;
    known->length_bytes = length > 0 ? (uint32_t)length : 0;
    memcpy(known->tail, tail, bytes);
}
