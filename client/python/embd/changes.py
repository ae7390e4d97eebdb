"""What changes in a table, round after round: embd_changes of embd/rows.h."""
from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Iterator, NamedTuple, Optional, Union

import numpy as np
from numpy.typing import NDArray

from . import structs
from ._native import ffi, lib
from .arrays import Floats
from .errors import ClosedError, Error, Status

if TYPE_CHECKING:
    from .client import Client
    from .table import Table

_DTYPES = {"f32": lib.EMBD_DTYPE_F32, "f16": lib.EMBD_DTYPE_F16, "i8": lib.EMBD_DTYPE_I8}
_INTERVAL_MOST = 30.0  # seconds: servers forget who asks nothing for 60


class Round(NamedTuple):
    """What changed in a table since the round before.

    keys    [n] uint64: whose rows changed, each once
    rows    [n, dim] float32
    gone    [m] uint64: keys that were erased or evicted. One that is in `keys` too has a row again: remove, then write
    step    of the table, at the cut: the least over the shards
    steps   of each shard. With this round applied the receiver equals each shard at its step
    all     these are all rows of the table: forget what there was
    slots, gone_slots   [n], [m] uint16 in tables with partition "slot", else None
    bytes   of keys and rows, as they travelled"""

    keys: NDArray[np.uint64]
    rows: Floats
    gone: NDArray[np.uint64]
    step: int
    steps: list[int]
    all: bool
    slots: Optional[NDArray[np.uint16]]
    gone_slots: Optional[NDArray[np.uint16]]
    bytes: int


class _Share:
    """One shard's share of a round."""

    def __init__(self, dim: int):
        self.keys, self.rows = [np.empty(0, np.uint64)], [np.empty((0, dim), np.float32)]
        self.gone, self.slots, self.gone_slots = [np.empty(0, np.uint64)], [np.empty(0, np.uint16)], [np.empty(0, np.uint16)]
        self.step = 0

    def add(self, part: Any, dim: int) -> None:
        self.step = int(part.step)
        self.keys.append(_copy(part.keys, part.n_rows, np.uint64))
        self.rows.append(_copy(part.values, part.n_rows * dim, np.float32).reshape(-1, dim))
        self.gone.append(_copy(part.gone_keys, part.n_gone, np.uint64))
        if part.slots:
            self.slots.append(_copy(part.slots, part.n_rows, np.uint16))
            self.gone_slots.append(_copy(part.gone_slots, part.n_gone, np.uint16))


def _copy(pointer: Any, n: int, dtype: Any) -> Any:
    if n == 0:
        return np.empty(0, dtype)
    return np.frombuffer(ffi.buffer(pointer, n * np.dtype(dtype).itemsize), dtype).copy()


def follow(client: "Client", table: Union[str, "Table"], *, interval: float = 1.0, since_now: bool = False,
           dtype: str = "f32") -> Iterator[Round]:
    """Rounds of what changes in a table, without an end, one each `interval` seconds at most. The first one has all rows; with
    since_now it has none. When a server was started again a round with all rows comes by itself. `dtype` is what rows travel
    as: "f32", "f16" or "i8".

        for keys, rows, gone, step, *_ in embd.follow(client, "items", interval=0.5):
            ...

    Raises embd.Error as pulls do, and of status PROTOCOL where a part was lost or changed on its way; then follow again."""
    if not 0 <= interval <= _INTERVAL_MOST:
        raise ValueError(f"interval is {interval}; it is 0 to {_INTERVAL_MOST:g} seconds")
    if dtype not in _DTYPES:
        raise ValueError(f"dtype is {dtype!r}; it is one of {', '.join(_DTYPES)}")
    opened = client.table(table) if isinstance(table, str) else table
    return _rounds(opened, interval, since_now, _DTYPES[dtype])


def _rounds(table: "Table", interval: float, since_now: bool, dtype: int) -> Iterator[Round]:
    handle, out = table.client.handle, ffi.new("embd_changes **")
    with handle as c:
        handle.check(lib.embd_changes_open(c, table.c, dtype, since_now, out))
    before = 0
    try:
        while True:
            began = time.monotonic()
            round_, before = _round(table, out[0], before)
            yield round_
            time.sleep(max(0.0, began + interval - time.monotonic()))
    finally:
        try:
            with handle:
                lib.embd_changes_close(out[0])
        except ClosedError:
            pass  # its memory went with the client's


def _next(table: "Table", changes: Any, part: Any) -> None:
    while True:
        try:
            with table.client.handle:
                table.client.handle.check(lib.embd_changes_next(changes, part))
            return
        except Error as e:
            if e.status != Status["BUSY"]:  # the table is frozen for a snapshot that takes longer than the deadline
                raise


def _round(table: "Table", changes: Any, before: int) -> tuple[Round, int]:
    part = structs.new("embd_changes_part")
    shares: dict[int, _Share] = {}
    while not part.is_last:
        _next(table, changes, part)
        if part.is_first:
            shares = {}
        if part.is_shard_first or part.shard not in shares:
            shares[part.shard] = _Share(table.dim)
        shares[part.shard].add(part, table.dim)
    has_slots, steps = table.schema.partition == "slot", [shares[s].step for s in sorted(shares)]

    def joined(name: str) -> Any:
        return np.concatenate([a for s in sorted(shares) for a in getattr(shares[s], name)])

    return Round(joined("keys"), joined("rows"), joined("gone"), min(steps), steps, bool(part.has_all),
                 joined("slots") if has_slots else None, joined("gone_slots") if has_slots else None,
                 int(part.wire_bytes) - before), int(part.wire_bytes)
