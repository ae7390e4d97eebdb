"""Pulls and pushes as nodes of a CUDA graph: what is captured once is done by every replay, in the order of its stream.

Each forward that is captured has memory of a GPU of its own, lent to the servers, and each module a connection for its nodes, since
CUDA makes their calls in a thread of its own. The stream waits there for the servers. What fails is raised by flush(), and a push
whose rows were not pulled is not made."""
from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Optional

import torch

from ..client import Client, connect
from ..device import ALIGNMENT, DeviceMemory, DeviceNode
from ..errors import Error
from .lent import Allocation, NoMemory, checked, driver

if TYPE_CHECKING:
    from ..table import Table

RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
MEMORIES = 16  # that a connection has


def is_capturing(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_cuda and torch.cuda.is_current_stream_capturing())


@contextlib.contextmanager
def _while_capturing() -> Iterator[None]:
    """This thread may do what is no part of the graph."""
    mode, library = ctypes.c_int(RELAXED), driver()
    checked("cuThreadExchangeStreamCaptureMode", library.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode)))
    try:
        yield
    finally:
        library.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))


def _other_stream(device: torch.device) -> torch.cuda.Stream:
    """Not the one that captures: PyTorch has some streams, and gives each of them again and again."""
    while True:
        stream = torch.cuda.Stream(device)
        if stream.cuda_stream != torch.cuda.current_stream(device).cuda_stream:
            return stream


class Captured:
    """One forward of a graph, and its backwards: keys [n] and rows [n, dim] in memory of their own."""

    def __init__(self, table: "Table", device: torch.device, n_keys: int):
        self.table, self.device, self.n_keys = table, device, n_keys
        rows_at = -(-8 * n_keys // ALIGNMENT) * ALIGNMENT
        n_bytes = max(rows_at + 4 * n_keys * table.dim, ALIGNMENT)
        allocation = self._allocate(n_bytes)
        bytes_ = torch.as_tensor(allocation, device=device)
        self.memory = DeviceMemory(table.client, allocation.lent_to(table.client), allocation.uuid, n_bytes, allocation)
        self._keys = bytes_[:8 * n_keys].view(torch.int64)
        self._rows = bytes_[rows_at:rows_at + 4 * n_keys * table.dim].view(torch.float32).view(n_keys, table.dim)
        self._rows_at = rows_at
        self._pull = self.memory.pull_node(table, n_keys, 0, rows_at)
        self._pushes: list[DeviceNode] = []

    def _allocate(self, n_bytes: int) -> Any:
        with torch.cuda.device(self.device):
            return Allocation(n_bytes, torch.cuda.current_device())

    def _launch(self, node: DeviceNode) -> None:
        stream = torch.cuda.current_stream(self.device).cuda_stream
        checked("cuLaunchHostFunc", driver().cuLaunchHostFunc(ctypes.c_void_p(stream), ctypes.c_void_p(node.function),
                                                              ctypes.c_void_p(node.argument)))

    def pull(self, keys: torch.Tensor) -> torch.Tensor:
        """The rows of keys [n], by every replay."""
        self._keys.copy_(keys)
        self._launch(self._pull)
        return self._rows.clone()

    def push(self, gradient: torch.Tensor, lr: Optional[float]) -> None:
        """A step with gradients [n, dim] of those keys, by every replay."""
        self._rows.copy_(gradient)
        node = self.memory.push_node(self.table, self.n_keys, 0, self._rows_at, self._pull, lr=lr)
        self._pushes.append(node)
        self._launch(node)

    def settle(self) -> None:
        """Raises what replays failed with. The stream has ended."""
        for node in [self._pull, *self._pushes]:
            node.check()


class Capturing:
    """What graphs have captured of one source, whose tables these are."""

    def __init__(self, tables: Sequence["Table"]):
        self._tables = tables
        self._client: Optional[Client] = None
        self._made: list[Captured] = []
        self._kept: list[torch.Tensor] = []

    def keep(self, tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
        """What a tensor of the host has now, on the device, for as long as there are graphs."""
        with _while_capturing(), torch.cuda.stream(_other_stream(device)):
            self._kept.append(tensor.to(device))
        return self._kept[-1]

    def make(self, number: int, device: torch.device, n_keys: int) -> Captured:
        """Of the table of that number."""
        try:
            with _while_capturing():
                if self._client is None or len(self._made) % MEMORIES == 0:
                    self._client = self._tables[number].client.again(own_thread=False)
                made = Captured(self._client.table(self._tables[number].name), device, n_keys)
        except (Error, NoMemory) as error:
            raise RuntimeError("a CUDA graph takes embd's modules where all shards are on this host and have GPUs that reach "
                               f"this one: {error}") from error
        self._made.append(made)
        return made

    def settle(self) -> None:
        for device in {made.device for made in self._made}:
            torch.cuda.synchronize(device)
        for made in self._made:
            made.settle()
