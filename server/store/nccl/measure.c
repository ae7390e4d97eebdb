/* measure.c - measures how long it takes to move bytes from every device to every other, by peer
 * access and by NCCL. By peer access a kernel of each device stores them at their destination; by
 * NCCL they are sent. Bytes that stay on their device are copied. */
#include "server/store/nccl/wire.h"

#include <string.h>
#include <time.h>

#include "server/store/cuda/device.h"
#include "server/store/nccl/kernels/move.h"

#define PIECE WIRE_MEASURED_BYTES
#define TURNS 6 /* the shortest counts: the first ones open connections */

struct rig {
    uint32_t n;
    void *streams[WIRE_MAX], *from[WIRE_MAX], *to[WIRE_MAX];
};

static int rig_open(struct rig *rig)
{
    int status = 0;
    memset(rig, 0, sizeof *rig);
    rig->n = wire_devices();
    for (uint32_t d = 0; d < rig->n && status == 0; d++) {
        status = device_use((int)d);
        if (status == 0)
            status = device_stream_new(&rig->streams[d]);
        if (status == 0)
            status = wire_memory_new(&rig->from[d], rig->n * PIECE);
        if (status == 0)
            status = wire_memory_new(&rig->to[d], rig->n * PIECE);
    }
    return status;
}

static void rig_close(struct rig *rig)
{
    for (uint32_t d = 0; d < rig->n; d++) {
        device_use((int)d);
        wire_memory_free(rig->from[d]);
        wire_memory_free(rig->to[d]);
        device_stream_free(rig->streams[d]);
    }
}

static int move_by_peer(const struct rig *rig)
{
    int status = 0;
    for (uint32_t d = 0; d < rig->n && status == 0; d++) {
        struct device_places p = {.n = rig->n, .first = d};
        struct moves moves = {.n = 0, .most_blocks = PEER_BLOCKS};
        for (uint32_t e = 0; e < rig->n; e++) {
            p.at[e] = (uint8_t *)rig->to[e] + d * PIECE;
            p.starts.at[e + 1] = (e + 1) * (uint32_t)(PIECE / 256);
        }
        moves_add(&moves, &p, NULL, rig->from[d], 256);
        status = device_use((int)d);
        if (status == 0)
            status = launch_move(&moves, true, rig->streams[d]);
    }
    return status;
}

static int move_by_nccl(const struct rig *rig)
{
    struct wire_lane lane;
    int status = 0;
    for (uint32_t d = 0; d < rig->n && status == 0; d++) {
        lane.from[d] = rig->from[d];
        lane.to[d] = rig->to[d];
        for (uint32_t e = 0; e < rig->n; e++)
            lane.counts[d][e] = PIECE;
        status = device_use((int)d);
        if (status == 0)
            status = device_copy(lane.to[d] + d * PIECE, lane.from[d] + d * PIECE, PIECE,
                                 rig->streams[d]);
    }
    return status ? status : wire_all_to_all(WIRE_OUT, rig->streams, &lane, 1);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t wire_measure(enum wire_way way)
{
    struct rig rig;
    uint64_t best = UINT64_MAX;
    int status = rig_open(&rig);
    for (int turn = 0; turn < TURNS && status == 0; turn++) {
        uint64_t start = now_ns();
        status = way == WIRE_BY_PEER ? move_by_peer(&rig) : move_by_nccl(&rig);
        for (uint32_t d = 0; d < rig.n && status == 0; d++)
            status = device_stream_wait(rig.streams[d]);
        uint64_t ns = now_ns() - start;
        best = status == 0 && ns < best ? ns : best;
    }
    rig_close(&rig);
    return best;
}
