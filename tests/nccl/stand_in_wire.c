/* stand_in_wire.c - wire.h in one process without a device: all devices' memory is the host's, so
 * peers reach it, and what NCCL would send is copied. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/store/cuda/device.h"
#include "tests/nccl/stand_in_wire.h"
#include "server/store/nccl/wire.h"

uint32_t stand_in_devices = 1, stand_in_aborts;
bool stand_in_peer, stand_in_lost;
uint64_t stand_in_messages;
void (*stand_in_watch)(uint32_t device, const uint8_t *sent, uint64_t sent_bytes,
                       const uint8_t *got, uint64_t got_bytes);

int wire_open(enum wire_way way, const char **why_out)
{
    (void)way;
    *why_out = "";
    return 0;
}

void wire_close(void)
{
}

uint32_t wire_devices(void)
{
    return stand_in_devices;
}

bool wire_is_peer(void)
{
    return stand_in_peer;
}

int wire_memory_new(void **memory_out, uint64_t bytes)
{
    return device_new(memory_out, bytes, NULL);
}

void wire_memory_free(void *memory)
{
    device_free(memory, NULL);
}

int wire_wait_event(void *stream, void *event)
{
    (void)stream;
    (void)event;
    return 0;
}

static void send_lane(const struct wire_lane *lane)
{
    uint64_t got[WIRE_MAX] = {0}, sent[WIRE_MAX] = {0};
    for (uint32_t d = 0; d < stand_in_devices; d++)
        for (uint32_t e = 0; e < stand_in_devices; e++) {
            uint64_t bytes = lane->counts[d][e];
            if (bytes && d != e)
                memcpy(lane->to[e] + got[e], lane->from[d] + sent[d], bytes);
            stand_in_messages += d != e && bytes != 0;
            sent[d] += bytes;
            got[e] += bytes;
        }
}

struct heap {
    uint8_t *bytes;
    uint64_t n;
};

static void append(struct heap *heap, const uint8_t *bytes, uint64_t n)
{
    heap->bytes = realloc(heap->bytes, heap->n + n + 1);
    if (n)
        memcpy(heap->bytes + heap->n, bytes, n);
    heap->n += n;
}

/* What went to others, and came from them, without a device's own between it. */
static void show_lane(const struct wire_lane *lane, uint32_t device)
{
    const uint8_t *from = lane->from[device], *to = lane->to[device];
    struct heap sent = {NULL, 0}, got = {NULL, 0};
    for (uint32_t other = 0; other < stand_in_devices; other++) {
        uint64_t out = lane->counts[device][other], in = lane->counts[other][device];
        append(&sent, from, other == device ? 0 : out);
        append(&got, to, other == device ? 0 : in);
        from += out;
        to += in;
    }
    stand_in_watch(device, sent.bytes, sent.n, got.bytes, got.n);
    free(sent.bytes);
    free(got.bytes);
}

int wire_all_to_all(enum wire_bound bound, void *const streams[], const struct wire_lane lanes[],
                    uint32_t n_lanes)
{
    (void)bound;
    (void)streams;
    for (uint32_t i = 0; i < n_lanes; i++) {
        send_lane(&lanes[i]);
        for (uint32_t d = 0; d < stand_in_devices && stand_in_watch != NULL; d++)
            show_lane(&lanes[i], d);
    }
    return 0;
}

int wire_check(void)
{
    return stand_in_lost ? WIRE_LOST : 0;
}

void wire_abort(void)
{
    stand_in_aborts++;
}

const char *wire_why(void)
{
    return "the stand-in was told to lose a device";
}

uint64_t wire_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}
