/* intake.c - see intake.h. The scanner knows the stream's position; this file only moves payload.
 */
#include "server/net/intake.h"

#include <assert.h>
#include <string.h>

void intake_begin(struct intake *in, struct exchange *x)
{
    assert(in->arriving == NULL);
    *in = (struct intake){.arriving = x};
}

struct exchange *intake_take(struct intake *in)
{
    struct exchange *x = in->arriving;
    *in = (struct intake){0};
    return x;
}

static size_t eat_payload(struct intake *in, const uint8_t *p, size_t n)
{
    size_t take = n < in->bin_left ? n : in->bin_left;
    if (in->bin != NULL && take > 0) {
        memcpy(in->bin, p, take);
        in->bin += take;
    }
    in->bin_left -= (uint32_t)take;
    return take;
}

int intake_eat(struct intake *in, struct hub *hub, const uint8_t *p, size_t n, size_t *used_out,
               struct embd__error *e)
{
    struct frame_scanner *frame = &in->arriving->frame;
    size_t used = 0;
    *used_out = 0;
    if (in->arriving->is_waiting)
        in->bin = exchange_place_bin(hub, in->arriving);
    while (!in->arriving->is_waiting) {
        used += eat_payload(in, p + used, n - used);
        *used_out = used;
        if (in->bin_left > 0)
            return INTAKE_MORE;
        size_t scanned;
        int event = embd__frame_scan(frame, p + used, n - used, &scanned, e);
        used += scanned;
        *used_out = used;
        if (event < 0)
            return event;
        if (event == FRAME_DONE)
            return INTAKE_FRAME;
        if (event == FRAME_MORE)
            return INTAKE_MORE;
        in->bin_left = frame->bin_bytes;
        in->bin = exchange_place_bin(hub, in->arriving);
    }
    return INTAKE_WAIT;
}

uint8_t *intake_direct(const struct intake *in, size_t *bytes_out)
{
    if (in->bin == NULL || in->bin_left == 0)
        return NULL;
    *bytes_out = in->bin_left < INTAKE_DIRECT_BYTES ? in->bin_left : INTAKE_DIRECT_BYTES;
    return in->bin;
}

void intake_landed(struct intake *in, size_t n)
{
    assert(n <= in->bin_left);
    in->bin += n;
    in->bin_left -= (uint32_t)n;
}

struct request *intake_ending(const struct intake *in, uint64_t *arrived_out)
{
    if (in->arriving == NULL || in->bin == NULL || in->bin_left == 0 ||
        in->arriving->frame.depth > 0)
        return NULL;
    *arrived_out = in->arriving->frame.bin_bytes - in->bin_left;
    return &in->arriving->request;
}
