/* import.c - memory of a device that another process has, or another part of this one (device.h).
 * Legacy handles: PyTorch and every CUDA program can make them, of what cudaMalloc or cuMemAlloc
 * gave.
 *
 * The handle, or address, and the number of bytes come from a peer. The driver looks at them: a
 * kernel that leaves the memory would fail the device for all tables of the process. */
#include <string.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "server/store/cuda/device.h"

_Static_assert(sizeof(cudaIpcMemHandle_t) == DEVICE_HANDLE, "a handle has 64 bytes");

typedef CUresult (*range_function)(CUdeviceptr *, size_t *, CUdeviceptr);

static range_function find_range(void)
{
    void *found = NULL;
    range_function range;
    cudaError_t error;
#if CUDART_VERSION >= 12050
    enum cudaDriverEntryPointQueryResult result;
    error = cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &found, 12000,
                                             cudaEnableDefault, &result);
#else
    error = cudaGetDriverEntryPoint("cuMemGetAddressRange", &found, cudaEnableDefault);
#endif
    memcpy(&range, &found, sizeof range);
    return error == cudaSuccess ? range : NULL;
}

/* Bytes behind the address; 0: not known. */
static uint64_t bytes_at(void *memory)
{
    CUdeviceptr base = 0, at = (CUdeviceptr)(uintptr_t)memory;
    size_t bytes = 0;
    range_function range = find_range();
    if (range == NULL || range(&base, &bytes, at) != CUDA_SUCCESS || at - base > bytes)
        return 0;
    return bytes - (at - base);
}

#define MPS_ENABLED 133 /* cudaDevAttrMpsEnabled, which older headers lack */

bool device_takes_turns(const uint8_t uuid[DEVICE_UUID])
{
    struct cudaDeviceProp properties;
    int device = 0, mps = 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaGetDeviceProperties(&properties, device) != cudaSuccess ||
        memcmp(properties.uuid.bytes, uuid, DEVICE_UUID) != 0)
        return false;
    if (cudaDeviceGetAttribute(&mps, (enum cudaDeviceAttr)MPS_ENABLED, device) != cudaSuccess)
        cudaGetLastError(); /* an older driver does not know */
    return mps == 0;
}

int device_import(const uint8_t handle[DEVICE_HANDLE], void **memory_out, uint64_t *bytes_out)
{
    cudaIpcMemHandle_t ipc;
    memcpy(&ipc, handle, sizeof ipc);
    cudaError_t error = cudaIpcOpenMemHandle(memory_out, ipc, cudaIpcMemLazyEnablePeerAccess);
    if (error != cudaSuccess) {
        cudaGetLastError(); /* not a lasting error: clears it */
        return (int)error;
    }
    *bytes_out = bytes_at(*memory_out);
    return 0;
}

void device_unimport(void *memory)
{
    if (memory != NULL && cudaIpcCloseMemHandle(memory) != cudaSuccess)
        cudaGetLastError();
}

int device_reach(void *memory, uint64_t bytes)
{
    struct cudaPointerAttributes attributes;
    int device = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess)
        error = cudaPointerGetAttributes(&attributes, memory);
    if (error == cudaSuccess && attributes.type != cudaMemoryTypeDevice)
        error = cudaErrorInvalidDevicePointer;
    if (error == cudaSuccess && attributes.device != device)
        error = cudaDeviceEnablePeerAccess(attributes.device, 0);
    if (error != cudaSuccess)
        cudaGetLastError(); /* not a lasting error: clears it */
    if (error != cudaSuccess && error != cudaErrorPeerAccessAlreadyEnabled)
        return (int)error;
    return bytes_at(memory) < bytes ? DEVICE_TOO_SMALL : 0;
}

int device_fetch(void *to, const void *from, uint64_t bytes)
{
    return (int)cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost);
}
