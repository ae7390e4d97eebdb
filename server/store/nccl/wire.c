/* wire.c - see wire.h. The one file of this folder that calls CUDA and NCCL. NCCL is loaded at run
 * time: without libnccl the program starts all the same and uses peer access. */
#include "server/store/nccl/wire.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cuda_runtime_api.h>
#ifdef EMBD_NCCL_HEADER
#include <nccl.h>
#endif

#include "server/store/cuda/device.h"
#include "server/store/nccl/kernels/move.h"

#define ABORT_PATIENCE_MS 2000

/* The result of the first wire_open is kept for the process: communicators take long to create. */
static struct wire {
    unsigned opens;
    pthread_t owner;
    enum wire_way way;
    uint32_t n;
    bool can_peer, has_nccl, is_peer, is_lost;
    char why[200];
} wire;

static int status_of(cudaError_t error)
{
    if (error == cudaSuccess)
        return 0;
    if (error != cudaErrorMemoryAllocation)
        return (int)error;
    cudaGetLastError();
    return DEVICE_NO_MEMORY;
}

/* ---- NCCL ---- */

#ifdef EMBD_NCCL_HEADER
static struct nccl {
    ncclResult_t (*init_all)(ncclComm_t *, int, const int *);
    ncclResult_t (*abort)(ncclComm_t);
    ncclResult_t (*async_error)(ncclComm_t, ncclResult_t *);
    ncclResult_t (*group_start)(void);
    ncclResult_t (*group_end)(void);
    ncclResult_t (*send)(const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
    ncclResult_t (*receive)(void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
    const char *(*text)(ncclResult_t);
    ncclComm_t comms[WIRE_BOUNDS][WIRE_MAX];
} nccl;

static bool find(void *library, const char *name, void *out)
{
    void *function = dlsym(library, name);
    memcpy(out, &function, sizeof function);
    return function != NULL;
}

static bool find_all(void *library)
{
    return find(library, "ncclCommInitAll", &nccl.init_all) &&
           find(library, "ncclCommAbort", &nccl.abort) &&
           find(library, "ncclCommGetAsyncError", &nccl.async_error) &&
           find(library, "ncclGroupStart", &nccl.group_start) &&
           find(library, "ncclGroupEnd", &nccl.group_end) &&
           find(library, "ncclSend", &nccl.send) && find(library, "ncclRecv", &nccl.receive) &&
           find(library, "ncclGetErrorString", &nccl.text);
}

/* The first error sets the reason. */
static bool nccl_failed(ncclResult_t result)
{
    if (result == ncclSuccess)
        return false;
    if (!wire.is_lost)
        snprintf(wire.why, sizeof wire.why, "NCCL: %.150s", nccl.text(result));
    wire.is_lost = true;
    return true;
}

static bool nccl_open(void)
{
    static void *library;
    if (library == NULL)
        library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL || !find_all(library)) {
        snprintf(wire.why, sizeof wire.why, "libnccl.so.2 is not found");
        return false;
    }
    setenv("NCCL_NVLS_ENABLE", "0", 0); /* point-to-point sends do not use multicast */
    bool failed = false;
    for (int bound = 0; bound < WIRE_BOUNDS && !failed; bound++)
        failed = nccl_failed(nccl.init_all(nccl.comms[bound], (int)wire.n, NULL));
    if (failed)
        wire.is_lost = false;
    return !failed;
}

static int check_communicator(ncclComm_t comm)
{
    ncclResult_t result = ncclSuccess;
    if (nccl_failed(nccl.async_error(comm, &result)))
        return WIRE_LOST;
    return result != ncclInProgress && nccl_failed(result) ? WIRE_LOST : 0;
}

static int nccl_check(void)
{
    int status = 0;
    for (int bound = 0; bound < WIRE_BOUNDS; bound++)
        for (uint32_t d = 0; d < wire.n && wire.has_nccl && status == 0; d++)
            status = check_communicator(nccl.comms[bound][d]);
    return status;
}

static atomic_bool is_aborting;

static void *abort_all(void *arg)
{
    struct nccl *given_up = arg;
    for (int bound = 0; bound < WIRE_BOUNDS; bound++)
        for (uint32_t d = 0; d < WIRE_MAX; d++)
            if (given_up->comms[bound][d] != NULL)
                given_up->abort(given_up->comms[bound][d]);
    free(given_up);
    atomic_store(&is_aborting, false);
    return NULL;
}

/* At exit: libraries must not be unloaded while a thread is inside them, and a thread that waits
 * for a lost device cannot be joined. The process then ends without running further exit handlers.
 */
static void end_abort(int status, void *unused)
{
    (void)unused;
    for (int ms = 0; ms < ABORT_PATIENCE_MS && atomic_load(&is_aborting); ms++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    if (!atomic_load(&is_aborting))
        return;
    fflush(NULL);
    _Exit(status);
}

/* Aborting may wait for the lost device, so it has a thread of its own. */
static void nccl_abort(void)
{
    pthread_t thread;
    struct nccl *given_up = malloc(sizeof *given_up);
    if (!wire.has_nccl || given_up == NULL || on_exit(end_abort, NULL) != 0) {
        free(given_up);
        return;
    }
    *given_up = nccl;
    wire.has_nccl = false;
    atomic_store(&is_aborting, true);
    if (pthread_create(&thread, NULL, abort_all, given_up) == 0) {
        pthread_detach(thread);
    } else {
        atomic_store(&is_aborting, false);
        free(given_up);
    }
}

static bool send_piece(enum wire_bound bound, void *const streams[], uint32_t from, uint32_t to,
                       const uint8_t *at, uint8_t *place, uint64_t bytes)
{
    const ncclComm_t *comms = nccl.comms[bound];
    return nccl_failed(
               nccl.send(at, bytes, ncclInt8, (int)to, comms[from], (cudaStream_t)streams[from])) ||
           nccl_failed(nccl.receive(place, bytes, ncclInt8, (int)from, comms[to],
                                    (cudaStream_t)streams[to]));
}

static bool send_lane(enum wire_bound bound, void *const streams[], const struct wire_lane *lane)
{
    uint64_t got[WIRE_MAX] = {0};
    bool failed = false;
    for (uint32_t d = 0; d < wire.n && !failed; d++) {
        const uint8_t *at = lane->from[d];
        for (uint32_t e = 0; e < wire.n && !failed; e++) {
            uint64_t bytes = lane->counts[d][e];
            uint8_t *place = lane->to[e] + got[e];
            if (bytes != 0 && d != e)
                failed = send_piece(bound, streams, d, e, at, place, bytes);
            at += bytes;
            got[e] += bytes;
        }
    }
    return failed;
}

int wire_all_to_all(enum wire_bound bound, void *const streams[], const struct wire_lane lanes[],
                    uint32_t n_lanes)
{
    bool failed = nccl_failed(nccl.group_start());
    for (uint32_t i = 0; i < n_lanes && !failed; i++)
        failed = send_lane(bound, streams, &lanes[i]);
    return nccl_failed(nccl.group_end()) || failed ? WIRE_LOST : 0;
}
#else
static bool nccl_open(void)
{
    snprintf(wire.why, sizeof wire.why, "NCCL is not compiled in");
    return false;
}

static int nccl_check(void)
{
    return 0;
}

static void nccl_abort(void)
{
}

int wire_all_to_all(enum wire_bound bound, void *const streams[], const struct wire_lane lanes[],
                    uint32_t n_lanes)
{
    (void)bound;
    (void)streams;
    (void)lanes;
    (void)n_lanes;
    return WIRE_LOST;
}
#endif

/* ---- peers ---- */

static bool reaches_all(int device)
{
    bool reaches = cudaSetDevice(device) == cudaSuccess;
    for (int peer = 0; peer < (int)wire.n && reaches; peer++) {
        int can = 0;
        if (peer == device)
            continue;
        cudaError_t error = cudaDeviceCanAccessPeer(&can, device, peer);
        if (error == cudaSuccess && can)
            error = cudaDeviceEnablePeerAccess(peer, 0);
        if (error == cudaErrorPeerAccessAlreadyEnabled)
            error = (cudaGetLastError(), cudaSuccess);
        reaches = error == cudaSuccess && can;
    }
    return reaches;
}

static bool peers_open(void)
{
    bool reaches = true;
    for (int device = 0; device < (int)wire.n && reaches; device++)
        reaches = reaches_all(device);
    return reaches;
}

/* ---- open and close ---- */

static bool open_ways(const char **why_out)
{
    bool wants_nccl = wire.way == WIRE_BY_NCCL || (wire.way == WIRE_AUTOMATIC && wire.n > 1);
    wire.can_peer = wire.way != WIRE_BY_NCCL && peers_open();
    wire.has_nccl = wants_nccl && nccl_open();
    *why_out = wire.why;
    if (wire.way == WIRE_BY_PEER && !wire.can_peer)
        *why_out = "a GPU cannot reach the memory of another";
    wire.is_peer = wire.can_peer;
    if (wire.can_peer && wire.has_nccl)
        wire.is_peer = wire_measure(WIRE_BY_PEER) <= wire_measure(WIRE_BY_NCCL);
    return wire.can_peer || wire.has_nccl;
}

int wire_open(enum wire_way way, const char **why_out)
{
    if (wire.opens > 0 && !pthread_equal(wire.owner, pthread_self())) {
        *why_out = "another shard of this process has them; one shard spans all GPUs";
        return WIRE_LOST;
    }
    if (wire.is_lost) {
        *why_out = wire.why;
        return WIRE_LOST;
    }
    if (wire.opens == 0 && wire.n == 0) {
        int n = device_count(why_out);
        wire.n = n > (int)WIRE_MAX ? WIRE_MAX : (uint32_t)n;
        wire.way = way;
        if (n == 0 || !open_ways(why_out)) {
            wire.n = 0;
            return WIRE_LOST;
        }
    }
    wire.owner = pthread_self();
    wire.opens++;
    return 0;
}

void wire_close(void)
{
    wire.opens--;
}

uint32_t wire_devices(void)
{
    return wire.n;
}

bool wire_is_peer(void)
{
    return wire.is_peer;
}

/* ---- memory, events, failures ---- */

/* Returns what the pools of streams keep to the device, if that helps. */
static int take_back(void **memory_out, uint64_t bytes)
{
    cudaMemPool_t pool;
    int device;
    cudaDeviceSynchronize();
    if (cudaGetDevice(&device) == cudaSuccess &&
        cudaDeviceGetDefaultMemPool(&pool, device) == cudaSuccess)
        cudaMemPoolTrimTo(pool, 0);
    return status_of(cudaMalloc(memory_out, bytes));
}

int wire_memory_new(void **memory_out, uint64_t bytes)
{
    int status = status_of(cudaMalloc(memory_out, bytes ? bytes : 1));
    return status == DEVICE_NO_MEMORY ? take_back(memory_out, bytes) : status;
}

void wire_memory_free(void *memory)
{
    if (memory != NULL)
        cudaFree(memory);
}

int wire_wait_event(void *stream, void *event)
{
    return status_of(cudaStreamWaitEvent(stream, event, 0));
}

int wire_check(void)
{
    return wire.is_lost ? WIRE_LOST : nccl_check();
}

void wire_abort(void)
{
    if (!wire.is_lost)
        snprintf(wire.why, sizeof wire.why, "it was given up after a call failed");
    wire.is_lost = true;
    nccl_abort();
}

const char *wire_why(void)
{
    return wire.why;
}

uint64_t wire_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}
