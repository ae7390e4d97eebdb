"""Memory of a GPU that a server on this host writes rows into and takes gradients out of, for the tensors of modules.

Each source and GPU has one allocation of its own, beside PyTorch's memory: the server sees that and nothing else. Keys and
gradients are copied into it, rows out of it, on the GPU and in the current stream, which takes some microseconds. Calls take
their turn in that stream, by a gate (embd/device.h), and the host waits for nobody. Where the client has no thread of its own,
the server shares no memory of the host, or it is in this process, the host waits for the stream before each call, and for the call.

Where the server cannot (another host, several shards, no GPU), None says so once, and tensors go by pinned memory."""
from __future__ import annotations

import contextlib
import ctypes
import functools
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Optional, Union

import numpy as np
import torch

from ..device import (ALIGNMENT, GATE_DONE, GATE_MOST, GATE_READY, HANDLE_BYTES, UUID_BYTES, DeviceCall, DeviceMemory)
from ..errors import Error

if TYPE_CHECKING:
    from ..client import Client
    from ..table import Table

LEAST_KEYS = 4096


class NoMemory(Exception):
    """CUDA gives none that can be lent."""


def driver() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise NoMemory(str(error)) from error


def checked(what: str, status: int) -> None:
    if status:
        raise NoMemory(f"{what}: CUDA error {status}")


_unfreed: list[Callable[[], None]] = []


def _freed(device: int, free: Callable[[], None]) -> None:
    """At once; or, where this thread captures a graph, which that would end, with what is freed next."""
    _unfreed.append(free)
    with torch.cuda.device(device):
        while _unfreed and not torch.cuda.is_current_stream_capturing():
            _unfreed.pop()()


class Allocation:
    """Memory of the driver's, as PyTorch takes it (__cuda_array_interface__). The device's context is current."""

    def __init__(self, n_bytes: int, device: int):
        self._driver = driver()
        pointer, number = ctypes.c_uint64(), ctypes.c_int()
        handle, uuid = (ctypes.c_ubyte * HANDLE_BYTES)(), (ctypes.c_ubyte * UUID_BYTES)()
        checked("cuCtxGetDevice", self._driver.cuCtxGetDevice(ctypes.byref(number)))
        checked("cuDeviceGetUuid", self._driver.cuDeviceGetUuid(uuid, number))
        checked("cuMemAlloc", self._driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(n_bytes)))
        self.pointer = pointer.value
        self.device = device
        checked("cuIpcGetMemHandle", self._driver.cuIpcGetMemHandle(handle, ctypes.c_uint64(self.pointer)))
        self.handle, self.uuid = bytes(handle), bytes(uuid)
        self.__cuda_array_interface__ = {"version": 3, "typestr": "|u1", "shape": (n_bytes,), "data": (self.pointer, False),
                                         "strides": None}

    def lent_to(self, client: "Client") -> Union[bytes, int]:
        """What the server knows it by."""
        return self.pointer if client.is_inproc else self.handle

    def __del__(self) -> None:
        if getattr(self, "pointer", 0):
            _freed(self.device, functools.partial(self._driver.cuMemFree_v2, ctypes.c_uint64(self.pointer)))


PAGE_BYTES = 4096
PORTABLE_AND_MAPPED = 3  # CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP
AT_LEAST = 0  # CU_STREAM_WAIT_VALUE_GEQ


def _unregister(library: Any, address: Any, words: Any) -> None:
    """`words` stay until then."""
    library.cuCtxSynchronize()  # streams may still write there
    library.cuMemHostUnregister(address)


class Gate:
    """Two words of memory of the host that this process and the server share, and that streams write and wait for. The device's
    context is current."""

    def __init__(self, client: "Client"):
        self._driver = driver()
        self._device = torch.cuda.current_device()
        self.words = client.buffer(PAGE_BYTES // 4, np.uint32)
        self.number = 0
        if not client.is_shared(self.words):
            raise NoMemory("the server shares no memory with this process")
        address, at = ctypes.c_void_p(self.words.ctypes.data), ctypes.c_uint64()
        checked("cuMemHostRegister", self._driver.cuMemHostRegister_v2(address, ctypes.c_size_t(PAGE_BYTES), PORTABLE_AND_MAPPED))
        self._registered = address
        checked("cuMemHostGetDevicePointer", self._driver.cuMemHostGetDevicePointer_v2(ctypes.byref(at), address, 0))
        self._at = at.value
        self._write, self._wait = self._driver.cuStreamWriteValue32_v2, self._driver.cuStreamWaitValue32_v2
        for function in self._write, self._wait:
            function.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint]

    def reach(self, stream: torch.cuda.Stream, number: int) -> None:
        """The server may begin when the stream has come here."""
        checked("cuStreamWriteValue32", self._write(stream.cuda_stream, self._at + GATE_READY, number, 0))

    def wait(self, stream: torch.cuda.Stream, number: int) -> None:
        """The stream goes on when that call has ended."""
        checked("cuStreamWaitValue32", self._wait(stream.cuda_stream, self._at + GATE_DONE, number, AT_LEAST))

    def __del__(self) -> None:
        if getattr(self, "_registered", None) is not None:
            _freed(self._device, functools.partial(_unregister, self._driver, self._registered, self.words))


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
            allocation = Allocation(n_bytes, torch.cuda.current_device())
            bytes_ = torch.as_tensor(allocation, device=device)
        self.memory = DeviceMemory(table.client, allocation.lent_to(table.client), allocation.uuid, n_bytes, allocation)
        self._keys = bytes_[:self.rows_at].view(torch.int64)
        self._rows = bytes_[self.rows_at:].view(torch.float32).view(self.n_keys, table.dim)
        self._stream = torch.cuda.current_stream(device)  # that used the memory last
        self._bounds = torch.empty(2, dtype=torch.int64, pin_memory=True)
        self._gate: Optional[Gate] = None
        self._pulls: list[DeviceCall] = []  # that may not have ended
        self._in_use = 0  # the number of a push that reads the memory
        self._held: Optional[torch.Tensor] = None  # whose keys are there; nobody changes them
        if table.client.has_thread and not table.client.is_inproc:
            with torch.cuda.device(device), contextlib.suppress(NoMemory):
                self._gate = Gate(table.client)

    def _enter(self) -> None:
        """What follows is of the current stream, behind what others did with the memory."""
        stream = torch.cuda.current_stream(self.device)
        if stream != self._stream:
            stream.wait_stream(self._stream)
            self._stream = stream

    def _take(self, keys: torch.Tensor) -> None:
        """Into the memory, once the last push has read it."""
        if self._gate is not None and self._in_use:
            self._gate.wait(self._stream, self._in_use)
            self._in_use = 0
        if keys is not self._held:
            self._keys[:keys.numel()].copy_(keys)
            self._held = keys

    def _wait(self) -> None:
        self._stream.synchronize()

    def _check(self, keys: torch.Tensor, limit: Optional[int]) -> None:
        """IndexError: a key is not below `limit`. The host waits for the stream."""
        if limit is None or not keys.numel():
            return
        self._bounds.copy_(torch.stack(torch.aminmax(keys)).to(torch.int64), non_blocking=True)
        self._wait()
        low, high = self._bounds.tolist()
        if low < 0 or high >= limit:
            raise IndexError(f"index out of range: {low} to {high}, num_embeddings is {limit}")

    def _start(self, start: Callable[..., DeviceCall], n: int, **options: Any) -> DeviceCall:
        """Begins a call when the stream comes here. After an error no stream waits."""
        gate = self._gate
        assert gate is not None
        if gate.number == GATE_MOST:
            self._wait()
            with torch.cuda.device(self.device):
                gate = self._gate = Gate(self.table.client)
        call = start(self.table, n, 0, self.rows_at, gate.words, gate.number + 1, **options)
        gate.number += 1
        gate.reach(self._stream, gate.number)
        return call

    def close(self) -> None:
        self.settle(all=True)
        self._wait()
        self.memory.close()

    def settle(self, all: bool = False) -> None:
        """Raises what pulls failed with that nobody has asked for."""
        while self._pulls and (all or self._pulls[0].done()):
            self._pulls.pop(0).wait()

    def pull(self, keys: torch.Tensor, limit: Optional[int]) -> tuple[torch.Tensor, int]:
        """The rows of [n] keys, and the number of the call, 0 if it has ended."""
        n = keys.numel()
        self.settle()
        self._enter()
        self._check(keys, limit)
        self._take(keys)
        if self._gate is None:
            self._wait()
            self.memory.pull(self.table, n, 0, self.rows_at)
            return self._rows[:n].clone(), 0
        self._pulls.append(self._start(self.memory.pull_start, n))
        self._gate.wait(self._stream, self._gate.number)
        return self._rows[:n].clone(), self._gate.number

    def push(self, keys: torch.Tensor, gradient: torch.Tensor, lr: Optional[float], needs: int) -> Optional[DeviceCall]:
        """A step; None: it is applied. `needs`: what pull() gave with the rows."""
        n = keys.numel()
        self.settle()
        self._enter()
        self._take(keys)
        self._rows[:n].copy_(gradient.reshape(n, self.table.dim))
        if self._gate is None:
            self._wait()
            self.memory.push(self.table, n, 0, self.rows_at, lr=lr)
            return None
        call = self._start(self.memory.push_start, n, lr=lr, needs=needs if needs <= self._gate.number else 0)
        self._in_use = self._gate.number
        return call


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
                lent.close()
            lent = self._by_device[device] = self._lend(device, n_keys)
        return lent

    def settle(self) -> None:
        for lent in self._by_device.values():
            if lent is not None:
                lent.settle(all=True)

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
