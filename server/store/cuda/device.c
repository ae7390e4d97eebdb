/* device.c - see device.h. No other C file but import.c calls CUDA. Ranges use the driver's virtual
 * memory functions, found at run time, so that a program with this file starts without a driver. */
#include "server/store/cuda/device.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

static int status_of(cudaError_t error)
{
    if (error == cudaSuccess)
        return 0;
    if (error != cudaErrorMemoryAllocation)
        return (int)error;
    cudaGetLastError(); /* not a lasting error: clears it */
    return DEVICE_NO_MEMORY;
}

const char *device_text(int status)
{
    return status == DEVICE_NO_MEMORY ? "out of device memory"
                                      : cudaGetErrorString((cudaError_t)status);
}

/* ---- devices ---- */

int device_count(const char **why_out)
{
    int n = 0;
    cudaError_t error = cudaGetDeviceCount(&n);
    *why_out = error != cudaSuccess ? cudaGetErrorString(error) : n == 0 ? "no device" : NULL;
    return error == cudaSuccess ? n : 0;
}

int device_of_thread(void)
{
    static atomic_uint next;
    static _Thread_local int device = -1;
    const char *why;
    if (device < 0) {
        int n = device_count(&why);
        device = n > 0 ? (int)(atomic_fetch_add(&next, 1) % (unsigned)n) : 0;
    }
    return device;
}

/* Freed memory stays in the pool for the next request instead of going back at every wait; see
 * make_room. A stream never waits for another to reuse what that one freed. */
static int keep_pool(int device)
{
    static atomic_uint kept;
    cudaMemPool_t pool;
    uint64_t keep = UINT64_MAX;
    if (atomic_fetch_or(&kept, 1u << device % 32) >> device % 32 & 1)
        return 0;
    int waits = 0;
    cudaError_t error = cudaDeviceGetDefaultMemPool(&pool, device);
    if (error == cudaSuccess)
        error = cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep);
    if (error == cudaSuccess)
        error = cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowInternalDependencies, &waits);
    return status_of(error);
}

int device_use(int device)
{
    int status = status_of(cudaSetDevice(device));
    return status ? status : keep_pool(device);
}

uint64_t device_memory(void)
{
    size_t unused = 0, total = 0;
    return cudaMemGetInfo(&unused, &total) == cudaSuccess ? total : 0;
}

uint64_t device_memory_free(void)
{
    size_t left = 0, total = 0;
    return cudaMemGetInfo(&left, &total) == cudaSuccess ? left : 0;
}

/* ---- streams and events ---- */

int device_stream_new(void **stream_out)
{
    return status_of(cudaStreamCreateWithFlags((cudaStream_t *)stream_out, cudaStreamNonBlocking));
}

int device_urgent_stream_new(void **stream_out)
{
    int least = 0, most = 0;
    int status = status_of(cudaDeviceGetStreamPriorityRange(&least, &most));
    return status ? status
                  : status_of(cudaStreamCreateWithPriority((cudaStream_t *)stream_out,
                                                           cudaStreamNonBlocking, most));
}

void device_stream_free(void *stream)
{
    if (stream != NULL)
        cudaStreamDestroy(stream);
}

int device_stream_wait(void *stream)
{
    return status_of(cudaStreamSynchronize(stream));
}

int device_event_new(void **event_out)
{
    return status_of(cudaEventCreateWithFlags((cudaEvent_t *)event_out, cudaEventDisableTiming));
}

void device_event_free(void *event)
{
    if (event != NULL)
        cudaEventDestroy(event);
}

int device_event_record(void *event, void *stream)
{
    return status_of(cudaEventRecord(event, stream));
}

int device_event_query(void *event, int *error_out)
{
    cudaError_t error = cudaEventQuery(event);
    *error_out = error == cudaErrorNotReady ? 0 : status_of(error);
    return error == cudaErrorNotReady ? DEVICE_PENDING : DEVICE_DONE;
}

/* ---- memory ---- */

int device_new(void **memory_out, uint64_t bytes, void *stream)
{
    return status_of(cudaMallocAsync(memory_out, bytes, stream));
}

void device_free(void *memory, void *stream)
{
    if (memory != NULL)
        cudaFreeAsync(memory, stream);
}

int device_copy(void *to, const void *from, uint64_t bytes, void *stream)
{
    return bytes ? status_of(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream)) : 0;
}

int device_copy_rows(void *to, uint64_t to_stride, const void *from, uint64_t from_stride,
                     uint64_t bytes, uint64_t n, void *stream)
{
    if (to_stride == bytes && from_stride == bytes)
        return device_copy(to, from, bytes * n, stream);
    return n ? status_of(cudaMemcpy2DAsync(to, to_stride, from, from_stride, bytes, n,
                                           cudaMemcpyDefault, stream))
             : 0;
}

int device_fill(void *memory, int byte, uint64_t bytes, void *stream)
{
    return bytes ? status_of(cudaMemsetAsync(memory, byte, bytes, stream)) : 0;
}

void *pinned_new(size_t bytes)
{
    void *memory = NULL;
    if (status_of(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped)) != 0)
        return NULL;
    return memory;
}

void pinned_free(void *memory)
{
    if (memory != NULL)
        cudaFreeHost(memory);
}

enum memory_kind memory_kind(const void *memory)
{
    struct cudaPointerAttributes a;
    if (cudaPointerGetAttributes(&a, memory) != cudaSuccess || a.type == cudaMemoryTypeUnregistered)
        return MEMORY_HOST;
    return a.type == cudaMemoryTypeHost ? MEMORY_PINNED : MEMORY_DEVICE;
}

/* ---- the driver ---- */

/* The driver's functions, by the names and versions of their types. */
static struct driver {
    CUresult (*granularity)(size_t *, const CUmemAllocationProp *,
                            CUmemAllocationGranularity_flags);
    CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
    CUresult (*unreserve)(CUdeviceptr, size_t);
    CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                       unsigned long long);
    CUresult (*release)(CUmemGenericAllocationHandle);
    CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
    CUresult (*unmap)(CUdeviceptr, size_t);
    CUresult (*set_access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
    CUresult (*write_value)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
} driver;
static atomic_int
    driver_state; /* 0: not looked for, 1: found; several threads may look at once, alike */

static bool find_function(const char *name, void *out)
{
    void *function = NULL;
    cudaError_t error;
#if CUDART_VERSION >= 12050
    enum cudaDriverEntryPointQueryResult result;
    error = cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &result);
#else
    error = cudaGetDriverEntryPoint(name, &function, cudaEnableDefault);
#endif
    memcpy(out, &function, sizeof function);
    return error == cudaSuccess && function != NULL;
}

static bool find_driver(void)
{
    struct driver d;
    if (atomic_load(&driver_state) == 1)
        return true;
    bool found = find_function("cuMemGetAllocationGranularity", &d.granularity) &&
                 find_function("cuMemAddressReserve", &d.reserve) &&
                 find_function("cuMemAddressFree", &d.unreserve) &&
                 find_function("cuMemCreate", &d.create) &&
                 find_function("cuMemRelease", &d.release) && find_function("cuMemMap", &d.map) &&
                 find_function("cuMemUnmap", &d.unmap) &&
                 find_function("cuMemSetAccess", &d.set_access) &&
                 find_function("cuStreamWriteValue32", &d.write_value);
    if (found) {
        driver = d;
        atomic_store(&driver_state, 1);
    }
    return found;
}

/* ---- flags ---- */

/* A word of pinned memory that a stream sets to the number of the raise. */
struct device_flag {
    _Atomic uint32_t *word;
    uint32_t number;
    void *stream;
    uint32_t n_queries; /* since then */
};
#define QUERIES_AN_ASK 256u /* a call of the driver: some tenths of a millisecond */

#define WORD_BYTES    64u /* apart, so that threads share no cache line */
#define WORDS_AT_ONCE 64u

/* Words that are free. Their memory is never given back. */
static struct free_word {
    struct free_word *next;
} * free_words;
static pthread_mutex_t words_lock = PTHREAD_MUTEX_INITIALIZER;

static void give_word(void *memory)
{
    struct free_word *word = memory;
    pthread_mutex_lock(&words_lock);
    word->next = free_words;
    free_words = word;
    pthread_mutex_unlock(&words_lock);
}

static void *take_word(void)
{
    pthread_mutex_lock(&words_lock);
    struct free_word *word = free_words;
    if (word != NULL)
        free_words = word->next;
    pthread_mutex_unlock(&words_lock);
    if (word != NULL)
        return word;
    uint8_t *block = pinned_new((size_t)WORD_BYTES * WORDS_AT_ONCE);
    for (uint32_t i = 1; block != NULL && i < WORDS_AT_ONCE; i++)
        give_word(block + (size_t)i * WORD_BYTES);
    return block;
}

int device_flag_new(struct device_flag **flag_out)
{
    struct device_flag *flag = calloc(1, sizeof *flag);
    if (flag == NULL || !find_driver() || (flag->word = take_word()) == NULL) {
        free(flag);
        return DEVICE_NO_MEMORY;
    }
    atomic_store_explicit(flag->word, 0, memory_order_relaxed);
    *flag_out = flag;
    return 0;
}

void device_flag_free(struct device_flag *flag)
{
    if (flag == NULL)
        return;
    give_word((void *)flag->word);
    free(flag);
}

int device_flag_raise(struct device_flag *flag, void *stream)
{
    flag->stream = stream;
    flag->number++;
    flag->n_queries = 0;
    return (int)driver.write_value(stream, (CUdeviceptr)(uintptr_t)flag->word, flag->number,
                                   CU_STREAM_WRITE_VALUE_DEFAULT);
}

uint32_t device_flag_left(const struct device_flag *flag)
{
    return flag->number - atomic_load_explicit(flag->word, memory_order_acquire);
}

/* After an error the stream never sets the word: ask the driver. */
int device_flag_query(struct device_flag *flag, int *error_out)
{
    *error_out = 0;
    if (atomic_load_explicit(flag->word, memory_order_acquire) == flag->number)
        return DEVICE_DONE;
    if (++flag->n_queries % QUERIES_AN_ASK != 0)
        return DEVICE_PENDING;
    cudaError_t error = cudaStreamQuery(flag->stream);
    if (error == cudaSuccess || error == cudaErrorNotReady)
        return DEVICE_PENDING;
    *error_out = status_of(error);
    return DEVICE_DONE;
}

/* ---- ranges ---- */

struct device_piece {
    CUmemGenericAllocationHandle handle;
    uint64_t at, bytes;
};

static CUmemAllocationProp properties(void)
{
    CUmemAllocationProp p;
    int device = 0;
    memset(&p, 0, sizeof p);
    cudaGetDevice(&device);
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    p.location.id = device;
    return p;
}

static uint64_t round_to_pages(uint64_t bytes)
{
    CUmemAllocationProp p = properties();
    size_t page = 0;
    if (driver.granularity(&page, &p, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) != CUDA_SUCCESS ||
        page == 0)
        page = (size_t)2 << 20;
    return (bytes + page - 1) / page * page;
}

int device_range_open(struct device_range *range, uint64_t most_bytes)
{
    CUdeviceptr base = 0;
    memset(range, 0, sizeof *range);
    if (!find_driver())
        return (int)cudaErrorNotSupported;
    uint64_t bytes = round_to_pages(most_bytes ? most_bytes : 1);
    if (driver.reserve(&base, bytes, 0, 0, 0) != CUDA_SUCCESS)
        return DEVICE_NO_MEMORY;
    range->base = (uint8_t *)(uintptr_t)base;
    range->reserved = bytes;
    return 0;
}

void device_range_close(struct device_range *range)
{
    CUdeviceptr base = (CUdeviceptr)(uintptr_t)range->base;
    for (uint32_t i = 0; i < range->n_pieces; i++) {
        driver.unmap(base + range->pieces[i].at, range->pieces[i].bytes);
        driver.release(range->pieces[i].handle);
    }
    free(range->pieces);
    if (range->reserved)
        driver.unreserve(base, range->reserved);
    memset(range, 0, sizeof *range);
}

/* Returns what the pool keeps to the device. */
static void make_room(void)
{
    cudaMemPool_t pool;
    int device;
    cudaDeviceSynchronize();
    if (cudaGetDevice(&device) == cudaSuccess &&
        cudaDeviceGetDefaultMemPool(&pool, device) == cudaSuccess)
        cudaMemPoolTrimTo(pool, 0);
}

static int map_piece(struct device_range *range, uint64_t bytes)
{
    CUmemAllocationProp p = properties();
    CUmemAccessDesc access = {p.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)range->base + range->bytes;
    CUmemGenericAllocationHandle handle;
    if (driver.create(&handle, bytes, &p, 0) != CUDA_SUCCESS)
        return DEVICE_NO_MEMORY;
    if (driver.map(at, bytes, 0, handle, 0) != CUDA_SUCCESS) {
        driver.release(handle);
        return DEVICE_NO_MEMORY;
    }
    if (driver.set_access(at, bytes, &access, 1) != CUDA_SUCCESS) {
        driver.unmap(at, bytes);
        driver.release(handle);
        return DEVICE_NO_MEMORY;
    }
    range->pieces[range->n_pieces++] = (struct device_piece){handle, range->bytes, bytes};
    range->bytes += bytes;
    return 0;
}

int device_range_grow(struct device_range *range, uint64_t bytes)
{
    if (bytes <= range->bytes)
        return 0;
    uint64_t more = round_to_pages(bytes - range->bytes);
    if (range->bytes + more > range->reserved)
        return DEVICE_NO_MEMORY;
    if (range->n_pieces == range->pieces_capacity) {
        uint32_t capacity = range->pieces_capacity ? 2 * range->pieces_capacity : 8;
        struct device_piece *pieces = realloc(range->pieces, capacity * sizeof *pieces);
        if (pieces == NULL)
            return DEVICE_NO_MEMORY;
        range->pieces = pieces;
        range->pieces_capacity = capacity;
    }
    if (map_piece(range, more) == 0)
        return 0;
    make_room();
    return map_piece(range, more);
}
