"""Memory of a GPU that servers on this host write rows into and take gradients out of, for the tensors of modules.

Each source and GPU has one allocation of its own, for all of its tables, beside PyTorch's memory: the servers see that and nothing
else. Each shard takes the keys that are its own. Keys and gradients are copied into it, rows out of it, on the GPU and in the
current stream, which takes some microseconds. Calls, one for each table, take their turn in that stream, by a gate (embd/device.h), and
the host waits for nobody. The host waits for the stream before each call, and for the call, where the client has no thread of its own,
the server shares no memory of the host or is in this process, and where there are several shards: keys may move between them, and
only a call that the host waits for can be made again by the new map.

Where a server cannot (another host, no GPU), None says so once, and tensors go by pinned memory."""
from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Union

import numpy as np
import torch

from ..device import (ALIGNMENT, GATE_BYTES, GATE_DONE, GATE_MOST, GATE_READY, HANDLE_BYTES, UUID_BYTES, DeviceCall, DeviceMemory)
from ..errors import Error, Status, UnsupportedError

if TYPE_CHECKING:
    from ..client import Client
    from ..table import Table

LEAST_KEYS = 4096
NO_LIMIT = 2**63 - 1


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


class Turns:
    """Numbers of calls at the gates of all shards: which of them a stream waits for."""

    def __init__(self) -> None:
        self.number = 0  # of the last call
        self._last: list[int] = []  # of each shard, the last call that went to it

    def take(self, shards: int) -> None:
        """The next number is of a call that went to so many shards."""
        self.number += 1
        self._last += [0] * (shards - len(self._last))
        self._last[:shards] = [self.number] * shards

    def due(self, number: int) -> list[tuple[int, int]]:
        """The gate and number of each shard, at which calls up to `number` have ended. No gate has a number that never comes."""
        return [(shard, min(number, last)) for shard, last in enumerate(self._last)]


class Gate:
    """For each shard two words of memory of the host that this process and the server share, and that streams write and wait for.
    The device's context is current."""

    def __init__(self, client: "Client"):
        self._driver = driver()
        self._device = torch.cuda.current_device()
        n_bytes = -(-GATE_BYTES * len(client.shards) // PAGE_BYTES) * PAGE_BYTES
        self.words = client.buffer(n_bytes // 4, np.uint32)
        self.turns = Turns()
        if not client.is_shared(self.words):
            raise NoMemory("the server shares no memory with this process")
        address, at = ctypes.c_void_p(self.words.ctypes.data), ctypes.c_uint64()
        checked("cuMemHostRegister", self._driver.cuMemHostRegister_v2(address, ctypes.c_size_t(n_bytes), PORTABLE_AND_MAPPED))
        self._registered = address
        checked("cuMemHostGetDevicePointer", self._driver.cuMemHostGetDevicePointer_v2(ctypes.byref(at), address, 0))
        self._at = at.value
        self._write, self._wait = self._driver.cuStreamWriteValue32_v2, self._driver.cuStreamWaitValue32_v2
        for function in self._write, self._wait:
            function.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint]

    @property
    def number(self) -> int:
        """Of the last call."""
        return self.turns.number

    def reach(self, stream: torch.cuda.Stream, call: DeviceCall) -> None:
        """The servers may begin the call, of the next number, when the stream has come here."""
        self.turns.take(call.shards)
        for shard in range(call.shards):
            checked("cuStreamWriteValue32",
                    self._write(stream.cuda_stream, self._at + shard * GATE_BYTES + GATE_READY, self.number, 0))

    def wait(self, stream: torch.cuda.Stream, number: int) -> None:
        """The stream goes on when the calls up to that one have ended."""
        for shard, last in self.turns.due(number):
            checked("cuStreamWaitValue32",
                    self._wait(stream.cuda_stream, self._at + shard * GATE_BYTES + GATE_DONE, last, AT_LEAST))

    def __del__(self) -> None:
        if getattr(self, "_registered", None) is not None:
            _freed(self._device, functools.partial(_unregister, self._driver, self._registered, self.words))


class Keys(NamedTuple):
    """Of one batch: those of each table one after the other, each at an even place."""

    all: torch.Tensor  # [n], 64 bits; nobody changes them
    counts: tuple[int, ...]

    def places(self) -> list[int]:
        return _starts(_even(n) for n in self.counts)

    def each(self) -> list[torch.Tensor]:
        return [self.all[at:at + n] for at, n in zip(self.places(), self.counts)]


def keys_of(tables: Sequence[torch.Tensor]) -> Keys:
    """A copy of the keys [n] of each table."""
    counts = tuple(keys.numel() for keys in tables)
    if len(tables) == 1:
        return Keys(tables[0].to(torch.int64, copy=True), counts)
    padding = tables[0].new_zeros(1, dtype=torch.int64)
    pieces = [piece for keys in tables for piece in ((keys, padding) if keys.numel() % 2 else (keys,))]
    return Keys(torch.cat([piece.to(torch.int64) for piece in pieces]), counts)


def _even(n: int) -> int:
    return n + n % 2


def _starts(sizes: Iterable[int]) -> list[int]:
    return list(itertools.accumulate(sizes, initial=0))[:-1]


class Lent:
    """Room for the keys and rows of one batch of some tables at a time, on one GPU."""

    def __init__(self, tables: Sequence["Table"], device: torch.device, counts: Sequence[int]):
        self.tables = tables
        self.device = device
        n = sum(_even(count) for count in counts)
        self.n_keys = max(LEAST_KEYS, 1 << (n - 1).bit_length()) if n else LEAST_KEYS
        self.rows_at = 8 * self.n_keys
        n_bytes = self.rows_at + 4 * self.n_keys * max(table.dim for table in tables) + ALIGNMENT * len(tables)
        assert self.rows_at % ALIGNMENT == 0
        client = tables[0].client
        with torch.cuda.device(device):
            torch.cuda.current_stream().synchronize()  # makes the context current, too
            allocation = Allocation(n_bytes, torch.cuda.current_device())
            bytes_ = torch.as_tensor(allocation, device=device)
        self.memory = DeviceMemory(client, allocation.lent_to(client), allocation.uuid, n_bytes, allocation)
        self._keys = bytes_[:self.rows_at].view(torch.int64)
        self._rows = bytes_[self.rows_at:].view(torch.float32)
        self._stream = torch.cuda.current_stream(device)  # that used the memory last
        self._bounds = torch.empty(2 * len(tables), dtype=torch.int64, pin_memory=True)
        self._gate: Optional[Gate] = None
        self._pulls: list[DeviceCall] = []  # that may not have ended
        self._in_use = 0  # the number of a push that reads the memory
        self._held: Optional[torch.Tensor] = None  # whose keys are there; nobody changes them
        if client.has_thread and not client.is_inproc and len(client.shards) == 1:
            with torch.cuda.device(device), contextlib.suppress(NoMemory):
                self._gate = Gate(client)

    def _row_sizes(self, counts: Sequence[int]) -> list[int]:
        """Of each table's matrix, in floats, so that the next one is aligned."""
        return [-(-n * table.dim // 4) * 4 for n, table in zip(counts, self.tables)]

    def holds(self, counts: Sequence[int]) -> bool:
        return sum(_even(count) for count in counts) <= self.n_keys

    def _enter(self) -> None:
        """What follows is of the current stream, behind what others did with the memory."""
        stream = torch.cuda.current_stream(self.device)
        if stream != self._stream:
            stream.wait_stream(self._stream)
            self._stream = stream

    def _take(self, keys: Keys) -> None:
        """Into the memory, once the last push has read it."""
        if self._gate is not None and self._in_use:
            self._gate.wait(self._stream, self._in_use)
            self._in_use = 0
        if keys.all is not self._held:
            self._keys[:keys.all.numel()].copy_(keys.all)
            self._held = keys.all

    def _wait(self) -> None:
        self._stream.synchronize()

    def _check(self, keys: Keys, limits: Sequence[Optional[int]]) -> None:
        """IndexError: a key is not below the limit of its table. The host waits for the stream."""
        bounded = [(table, each, limit) for table, each, limit in zip(self.tables, keys.each(), limits)
                   if limit is not None and each.numel()]
        if not bounded or (len(self.tables) > 1 and not self._are_beyond(keys, limits)):
            return
        bounds = torch.cat([torch.stack(torch.aminmax(each)) for _, each, _ in bounded])
        self._bounds[:len(bounds)].copy_(bounds, non_blocking=True)
        self._wait()
        found = self._bounds.tolist()
        for (table, _, limit), low, high in zip(bounded, found[::2], found[1::2]):
            if low < 0 or high >= limit:
                raise IndexError(f"index out of range: {low} to {high}, num_embeddings is {limit}" if len(self.tables) == 1 else
                                 f"table {table.name}: indices are {low} to {high}, num_embeddings is {limit}")

    def _are_beyond(self, keys: Keys, limits: Sequence[Optional[int]]) -> bool:
        """Any of them, of all tables at once."""
        most = torch.tensor([NO_LIMIT if limit is None else limit - 1 for limit in limits], device=self.device)
        counts = torch.tensor([_even(n) for n in keys.counts], device=self.device)
        each = torch.repeat_interleave(most, counts, output_size=keys.all.numel())
        least = torch.where(each == NO_LIMIT, -NO_LIMIT - 1, 0)
        return bool(((keys.all > each) | (keys.all < least)).any())

    def _make_room(self, n_calls: int) -> None:
        """The next calls have numbers of one gate."""
        if self._gate is not None and self._gate.number > GATE_MOST - n_calls:
            self._wait()
            with torch.cuda.device(self.device):
                self._gate = Gate(self.tables[0].client)

    def _start(self, start: Callable[..., DeviceCall], *place: Any, **options: Any) -> DeviceCall:
        """Begins a call when the stream comes here. After an error no stream waits."""
        gate = self._gate
        assert gate is not None
        call = start(*place, gate.words, gate.number + 1, **options)
        gate.reach(self._stream, call)
        return call

    def close(self) -> None:
        self.settle(all=True)
        self._wait()
        self.memory.close()

    def settle(self, all: bool = False) -> None:
        """Raises what pulls failed with that nobody has asked for."""
        while self._pulls and (all or self._pulls[0].done()):
            self._pulls.pop(0).wait()

    def _places(self, keys: Keys) -> list[tuple["Table", int, int, int]]:
        """Table, number of keys, and where keys and rows are, in bytes."""
        return [(table, n, 8 * key, self.rows_at + 4 * row)
                for table, n, key, row in zip(self.tables, keys.counts, keys.places(), _starts(self._row_sizes(keys.counts)))]

    def _matrices(self, keys: Keys) -> list[torch.Tensor]:
        return [self._rows[at:at + n * table.dim].view(n, table.dim)
                for table, n, at in zip(self.tables, keys.counts, _starts(self._row_sizes(keys.counts)))]

    def is_wide(self) -> bool:
        """Whether the rows of all tables make one matrix."""
        return len(self.tables) > 1 and len({table.dim for table in self.tables}) == 1 and self.tables[0].dim % 4 == 0

    def _matrix(self, keys: Keys) -> torch.Tensor:
        dim = self.tables[0].dim
        return self._rows[:sum(keys.counts) * dim].view(-1, dim)

    def pull(self, keys: Keys, limits: Sequence[Optional[int]], is_wide: bool = False) -> tuple[list[torch.Tensor], int]:
        """The rows of each table's keys, or of all together, and the number of the first call, 0 if they have ended."""
        self.settle()
        self._enter()
        self._check(keys, limits)
        self._take(keys)
        first = self._begin_pulls(keys) if self._is_in_stream() else self._pull_now(keys)
        return [rows.clone() for rows in ([self._matrix(keys)] if is_wide else self._matrices(keys))], first

    def _is_in_stream(self) -> bool:
        """Not any more, once the cluster has several shards."""
        if self._gate is not None and len(self.tables[0].client.shards) > 1:
            self.settle(all=True)
            self._wait()
            self._gate = None
        return self._gate is not None

    def _pull_now(self, keys: Keys) -> int:
        self._wait()
        for place in self._places(keys):
            self.memory.pull(*place)
        return 0

    def _begin_pulls(self, keys: Keys) -> int:
        self._make_room(len(self.tables))
        gate = self._gate
        assert gate is not None
        before = gate.number
        try:
            for place in self._places(keys):
                self._pulls.append(self._start(self.memory.pull_start, *place))
        finally:
            if gate.number > before:
                gate.wait(self._stream, gate.number)
        return before + 1

    def push(self, keys: Keys, gradients: Sequence[Optional[torch.Tensor]], rates: Sequence[Optional[float]], needs: int,
             calls: list[Any], whole: Optional[torch.Tensor] = None) -> int:
        """A step of each table that has a gradient. Adds calls that have not ended to `calls`. `needs`: what pull() gave with the
        rows. `whole`: the gradients of all tables as one matrix. How many of the tables are done: all, unless the server takes no
        more."""
        self.settle()
        self._enter()
        self._take(keys)
        self._make_room(len(self.tables))
        for rows, gradient in [(self._matrix(keys), whole)] if whole is not None else zip(self._matrices(keys), gradients):
            if gradient is not None:
                rows.copy_(gradient.reshape(rows.shape))
        if self._gate is None:
            self._wait()
        for i, (place, gradient, rate) in enumerate(zip(self._places(keys), gradients, rates)):
            try:
                if gradient is not None:
                    self._push(place, rate, needs + i if needs else 0, calls)
            except UnsupportedError:
                return i
        return len(gradients)

    def _push(self, place: tuple["Table", int, int, int], rate: Optional[float], needs: int, calls: list[Any]) -> None:
        if self._gate is None:
            self.memory.push(*place, lr=rate)
            return
        calls.append(self._start(self.memory.push_start, *place, lr=rate, needs=needs if needs <= self._gate.number else 0))
        self._in_use = self._gate.number


class Lending:
    """What a source has lent, a GPU each; None for those that cannot be."""

    def __init__(self, tables: Sequence["Table"]):
        self.tables = tables
        self._by_device: dict[torch.device, Optional[Lent]] = {}

    def is_refused(self, device: torch.device) -> bool:
        """Whether it is known that the server takes none."""
        return device.type != "cuda" or self._by_device.get(device, True) is None

    def of(self, device: torch.device, counts: Sequence[int]) -> Optional[Lent]:
        """Room for so many keys of each table."""
        if self.is_refused(device):
            return None
        lent = self._by_device.get(device)
        if lent is None or not lent.holds(counts):
            if lent is not None:
                lent.close()
                del self._by_device[device]
            lent = self._lend(device, counts)
        return lent

    def settle(self) -> None:
        for lent in self._by_device.values():
            if lent is not None:
                lent.settle(all=True)

    def end(self, device: torch.device) -> None:
        """A server takes it no more: it was started again, without a GPU, or the client came to another host's."""
        self._by_device[device] = None

    def _lend(self, device: torch.device, counts: Sequence[int]) -> Optional[Lent]:
        if any(table.schema.partition == "slot" or table.schema.slots != 1 for table in self.tables):
            self.end(device)
            return None
        try:
            lent = self._by_device[device] = Lent(self.tables, device, counts)
        except (Error, NoMemory) as error:
            if isinstance(error, (UnsupportedError, NoMemory)) or error.status == Status["UNKNOWN_METHOD"]:
                self.end(device)  # else the next batch tries again
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
