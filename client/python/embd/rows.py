"""Rows of a table by their keys, as the servers store them, with their optimizer state: embd/rows.h."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator, NamedTuple, Optional

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import arrays, structs
from ._native import ffi, lib
from .arrays import Floats, Keys

if TYPE_CHECKING:
    from .table import Table


class Rows(NamedTuple):
    """values [n_keys, dim] float32; states [n_keys, Table.state_floats] float32, or None where they were not asked for;
    found [n_keys] bool. Without a row both are zeros."""

    values: Floats
    states: Optional[Floats]
    found: NDArray[np.bool_]


class Scanned(NamedTuple):
    """Some rows of a table: keys [n] uint64; slots [n] uint16 in tables with partition "slot", else None; values [n, dim] and
    states [n, Table.state_floats] float32, or None where they were not asked for."""

    keys: NDArray[np.uint64]
    slots: Optional[NDArray[np.uint16]]
    values: Optional[Floats]
    states: Optional[Floats]


_KEYS_MOST = 131072  # of one answer


def get(table: "Table", keys: Keys, slots: Optional[ArrayLike], states: bool) -> Rows:
    c_rows, keys, keep = _begin(table, keys, slots)
    values = np.zeros((keys.size, table.dim), np.float32)
    statuses = np.zeros(keys.size, np.uint8)
    found_states = np.zeros((keys.size, table.state_floats), np.float32) if states else None
    keep += _point(c_rows, values, found_states)
    c_rows.statuses = arrays.u8(statuses)
    with table.client.handle as c:
        table.client.handle.check(lib.embd_get(c, c_rows))
    return Rows(values.reshape(*keys.shape, table.dim), found_states, statuses == lib.EMBD_KEY_HIT)


def put(table: "Table", keys: Keys, values: ArrayLike, states: Optional[ArrayLike], slots: Optional[ArrayLike],
        step: int) -> int:
    c_rows, keys, keep = _begin(table, keys, slots)
    c_rows.step = step
    n_floats = table.state_floats
    floats = arrays.floats("values", values, keys.size * table.dim)
    own = None if states is None else arrays.floats("states", states, keys.size * n_floats)
    keep += _point(c_rows, floats, own)
    out = ffi.new("uint64_t *")
    with table.client.handle as c:
        table.client.handle.check(lib.embd_put(c, c_rows, out))
    return int(out[0])


def keys(table: "Table", batch: int) -> Iterator[tuple[NDArray[np.uint64], Optional[NDArray[np.uint16]]]]:
    """Batches of keys, and in tables with partition "slot" of their slots."""
    if not 1 <= batch < 2**32:
        raise ValueError(f"batch is {batch}; it is a number of keys from 1 to {2**32 - 1}")
    listed, capacity = structs.new("embd_key_list"), min(batch, _KEYS_MOST)
    space, narrow = np.empty(capacity, np.uint64), np.empty(capacity, np.uint16)
    has_slots = table.schema.partition == "slot"
    keep = [arrays.u64(space), ffi.from_buffer("uint16_t[]", narrow)]
    listed.table, listed.capacity, listed.keys = table.c, capacity, keep[0]
    if has_slots:
        listed.slots = keep[1]
    while not listed.is_done:
        with table.client.handle as c:
            table.client.handle.check(lib.embd_list_keys(c, listed))
        n = listed.n_keys
        if n > 0:
            yield space[:n].copy(), narrow[:n].copy() if has_slots else None


def scan(table: "Table", batch: int, values: bool, states: bool) -> Iterator[Scanned]:
    """Batches of keys with their rows; without those that went between the two requests."""
    for found, slots in keys(table, batch):
        if not (values or states):
            yield Scanned(found, slots, None, None)
            continue
        got = get(table, found, slots, states)
        has = got.found
        if has.any():
            yield Scanned(found[has], None if slots is None else slots[has], got.values[has] if values else None,
                          got.states[has] if got.states is not None else None)


def _begin(table: "Table", keys: Keys, slots: Optional[ArrayLike]) -> tuple[Any, NDArray[np.uint64], list[Any]]:
    c_rows = structs.new("embd_rows")
    keys = arrays.unsigned("keys", keys)
    c_rows.table = table.c
    c_rows.n_keys = keys.size
    keep: list[Any] = [keys, arrays.u64(keys)]
    c_rows.keys = keep[-1]
    if slots is not None:
        narrow = np.ascontiguousarray(np.broadcast_to(np.asarray(slots), keys.shape)).astype(np.uint16, casting="unsafe")
        if not np.array_equal(narrow, np.broadcast_to(np.asarray(slots), keys.shape)):
            raise ValueError("slots are whole numbers from 0 to 65535")
        keep += [narrow, ffi.from_buffer("uint16_t[]", narrow)]
        c_rows.slots = keep[-1]
    return c_rows, keys, keep


def _point(c_rows: Any, values: Floats, states: Optional[Floats]) -> list[Any]:
    keep: list[Any] = [values, states, arrays.f32(values)]
    c_rows.values = keep[-1]
    if states is not None:
        keep.append(arrays.f32(states))
        c_rows.states = keep[-1]
    return keep
