"""Memory of a GPU that a server on this host writes rows into and takes gradients out of, for the tensors of modules.

Each source and GPU has one allocation of its own, beside PyTorch's memory: the server sees that and nothing else. Keys and
gradients are copied into it, rows out of it, on the GPU and in the current stream, which takes some microseconds. The host
waits for the stream before each call, since the server does not see streams.

Where the server cannot (another host, several shards, no GPU), None says so once, and tensors go by pinned memory."""
from __future__ import annotations

import ctypes
import functools
import warnings
from typing import TYPE_CHECKING, Any, Optional

import torch

from ..device import ALIGNMENT, HANDLE_BYTES, UUID_BYTES, DeviceMemory
from ..errors import Error

if TYPE_CHECKING:
    from ..table import Table

LEAST_KEYS = 4096


class NoMemory(Exception):
    """CUDA gives none that can be lent."""


def _driver() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise NoMemory(str(error)) from error


def _checked(what: str, status: int) -> None:
    if status:
        raise NoMemory(f"{what}: CUDA error {status}")


class _Allocation:
    """Memory of the driver's, as PyTorch takes it (__cuda_array_interface__). The device's context is current."""

    def __init__(self, n_bytes: int, device: int):
        self._driver = _driver()
        pointer, number = ctypes.c_uint64(), ctypes.c_int()
        handle, uuid = (ctypes.c_ubyte * HANDLE_BYTES)(), (ctypes.c_ubyte * UUID_BYTES)()
        _checked("cuCtxGetDevice", self._driver.cuCtxGetDevice(ctypes.byref(number)))
        _checked("cuDeviceGetUuid", self._driver.cuDeviceGetUuid(uuid, number))
        _checked("cuMemAlloc", self._driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(n_bytes)))
        self.pointer = pointer.value
        self.device = device
        _checked("cuIpcGetMemHandle", self._driver.cuIpcGetMemHandle(handle, ctypes.c_uint64(self.pointer)))
        self.handle, self.uuid = bytes(handle), bytes(uuid)
        self.__cuda_array_interface__ = {"version": 3, "typestr": "|u1", "shape": (n_bytes,), "data": (self.pointer, False),
                                         "strides": None}

    def __del__(self) -> None:
        if getattr(self, "pointer", 0):
            with torch.cuda.device(self.device):
                self._driver.cuMemFree_v2(ctypes.c_uint64(self.pointer))


class Lent:
    """Room for the keys and rows of one batch at a time, on one GPU."""

    def __init__(self, table: "Table", device: torch.device, n_keys: int):
        self.table = table
        self.device = device
        self.n_keys = max(LEAST_KEYS, 1 << (n_keys - 1).bit_length())
        self.rows_at = 8 * self.n_keys
        n_bytes = self.rows_at + 4 * self.n_keys * table.dim
        assert self.rows_at % ALIGNMENT == 0
        with torch.cuda.device(device):
            torch.cuda.current_stream().synchronize()  # makes the context current, too
            allocation = _Allocation(n_bytes, torch.cuda.current_device())
            bytes_ = torch.as_tensor(allocation, device=device)
        self.memory = DeviceMemory(table.client, allocation.handle, allocation.uuid, n_bytes)
        self._keys = bytes_[:self.rows_at].view(torch.int64)
        self._rows = bytes_[self.rows_at:].view(torch.float32).view(self.n_keys, table.dim)
        self._stream = torch.cuda.current_stream(device)  # that used the memory last
        self._bounds = torch.empty(2, dtype=torch.int64, pin_memory=True)

    def _take(self, keys: torch.Tensor) -> None:
        """Into the memory, once those of another stream have left it."""
        stream = torch.cuda.current_stream(self.device)
        if stream != self._stream:
            stream.wait_stream(self._stream)
            self._stream = stream
        self._keys[:keys.numel()].copy_(keys)

    def _wait(self) -> None:
        self._stream.synchronize()

    def pull(self, keys: torch.Tensor, limit: Optional[int]) -> torch.Tensor:
        """The rows of [n] keys. IndexError: one is not below `limit`."""
        n = keys.numel()
        if limit is not None and n:
            self._bounds.copy_(torch.stack(torch.aminmax(keys)).to(torch.int64), non_blocking=True)
        self._take(keys)
        self._wait()
        if limit is not None and n:
            low, high = self._bounds.tolist()
            if low < 0 or high >= limit:
                raise IndexError(f"index out of range: {low} to {high}, num_embeddings is {limit}")
        self.memory.pull(self.table, n, 0, self.rows_at)
        return self._rows[:n].clone()

    def push(self, keys: torch.Tensor, gradient: torch.Tensor, lr: Optional[float]) -> None:
        n = keys.numel()
        self._take(keys)
        self._rows[:n].copy_(gradient.reshape(n, self.table.dim))
        self._wait()
        self.memory.push(self.table, n, 0, self.rows_at, lr=lr)


class Lending:
    """What a source has lent, a GPU each; None for those that cannot be."""

    def __init__(self, table: "Table"):
        self.table = table
        self._by_device: dict[torch.device, Optional[Lent]] = {}

    def of(self, device: torch.device, n_keys: int) -> Optional[Lent]:
        if device.type != "cuda":
            return None
        lent = self._by_device.get(device)
        if lent is None and device in self._by_device:
            return None
        if lent is None or lent.n_keys < n_keys:
            if lent is not None:
                lent.memory.close()
            lent = self._by_device[device] = self._lend(device, n_keys)
        return lent

    def end(self, device: torch.device) -> None:
        """The server takes it no more: it was started again, without a GPU, or the client came to another host's."""
        self._by_device[device] = None

    def _lend(self, device: torch.device, n_keys: int) -> Optional[Lent]:
        if self.table.schema.partition == "slot" or self.table.schema.slots != 1:
            return None
        try:
            lent = Lent(self.table, device, n_keys)
        except (Error, NoMemory):
            return None
        if lent.memory.takes_turns:
            _warn_of_turns()
        return lent


@functools.lru_cache(maxsize=None)
def _warn_of_turns() -> None:
    """Once."""
    warnings.warn("the server of embd works on this GPU as another process, without MPS: the GPU serves one of them at a time, and "
                  "a pull takes milliseconds while kernels run; start nvidia-cuda-mps-control before both, or give the server a "
                  "GPU of its own", RuntimeWarning, stacklevel=2)
