"""Batches, tables and calls in flight."""
from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, Iterator, Optional, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import arrays, rows, structs
from ._native import ffi, lib
from .arrays import Floats, Keys
from .errors import LateError, RollbackWarning
from .schema import Schema, from_c

if TYPE_CHECKING:
    from .client import Client

T = TypeVar("T")


class Part:
    """One table's share of a call: a batch and the matrix that belongs to it.

    keys      [n_keys] any 64-bit integers
    offsets   [n_rows + 1]: row r holds keys[offsets[r] : offsets[r + 1]]; or
    lengths   [n_rows]: how many keys each row holds. With neither, every key is a row
    values    push: the gradient of what such a pull returned. pull: the array to fill (None: a new one).
              [n_rows, dim] where the table combines and not `raw`; otherwise [n_keys, dim]
    weights   [n_keys] float32, or None: all 1
    statuses  [n_keys] uint8, filled with embd.KeyStatus; or None
    raw       rows of single keys although the table combines
    lr        push: the learning rate of this step; None: the table's
    scores    push: [n_keys] float32, for tables with on_full="evict_score": the largest of a key's scores in the push becomes
              its row's. -inf gives the key none; None: no key

    In a table of several slots row r is of sample r // slots and slot r % slots."""

    __slots__ = ("table", "keys", "offsets", "weights", "values", "statuses", "raw", "lr", "scores", "shape",
                 "_pointers")

    def __init__(self, table: "Table", keys: Keys, offsets: Optional[ArrayLike] = None, *,
                 lengths: Optional[ArrayLike] = None, weights: Optional[ArrayLike] = None,
                 values: Optional[ArrayLike] = None, statuses: Optional[NDArray[np.uint8]] = None,
                 raw: bool = False, lr: Optional[float] = None, scores: Optional[ArrayLike] = None):
        self.table = table
        self.lr = lr
        self.keys = arrays.unsigned("keys", keys)
        if lengths is not None:
            if offsets is not None:
                raise TypeError("a batch has offsets or lengths, not both")
            offsets = arrays.offsets_of(lengths)
        self.offsets = None if offsets is None else arrays.unsigned("offsets", offsets)
        self.raw = raw
        n_keys = self.keys.size
        if self.offsets is None or not table.combines or raw:
            self.shape = (*self.keys.shape, table.dim)
        else:
            self.shape = (self.offsets.size - 1, table.dim)
        if self.offsets is not None and self.offsets.size == 0:
            raise ValueError("offsets are empty; n rows have n + 1")
        self.weights = None if weights is None else arrays.floats("weights", weights, n_keys)
        self.scores = None if scores is None else arrays.floats("scores", scores, n_keys)
        self.statuses = None if statuses is None else arrays.output("statuses", statuses, np.uint8, n_keys)
        self.values = values

    def write_to(self, c_part: Any, values: Optional[Floats]) -> None:
        """Fills an embd_part that is all zero. The part keeps what it points to."""
        keep = [arrays.u64(self.keys)]
        c_part.table = self.table.c
        c_part.n_keys = self.keys.size
        c_part.keys = keep[0]
        if values is not None:
            keep.append(arrays.f32(values))
            c_part.values = keep[-1]
        if self.offsets is not None:
            keep.append(arrays.u64(self.offsets))
            c_part.n_rows = self.offsets.size - 1
            c_part.offsets = keep[-1]
        if self.weights is not None:
            keep.append(arrays.f32(self.weights))
            c_part.weights = keep[-1]
        if self.statuses is not None:
            keep.append(arrays.u8(self.statuses))
            c_part.statuses = keep[-1]
        if self.raw:
            c_part.raw = True
        if self.lr is not None:
            c_part.lr = arrays.rate("lr", self.lr)
        if self.scores is not None:
            keep.append(arrays.f32(self.scores))
            c_part.scores = keep[-1]
        self._pointers = keep

    def output(self) -> Floats:
        """The matrix that a pull fills."""
        if self.values is None:
            return np.empty(self.shape, np.float32)
        size = int(np.prod(self.shape))
        return cast(Floats, arrays.output("out", self.values, np.float32, size))

    def gradient(self) -> Floats:
        """The matrix that a push reads."""
        if self.values is None:
            raise TypeError(f"a push to {self.table.name} needs values, the gradient")
        return arrays.floats("gradients", self.values, int(np.prod(self.shape)))


class Call(Generic[T]):
    """A pull or push on its way. wait() ends it and returns what the blocking call would, or raises."""

    def __init__(self, handle: Any, flight: Any, result: T, clock: Any = None):
        self._clock = clock  # of the round that a push is for
        self._handle = handle
        self._flight = flight
        self._result = result

    def wait(self) -> T:
        try:
            self._handle.finish(self._flight)
        except LateError as error:
            self._clock.late(error)
        rolled_back, self._flight.rolled_back = self._flight.rolled_back, []
        warn_of_rollback(rolled_back)
        return self._result

    def done(self) -> bool:
        """Whether wait() would return at once. Moves bytes, so polling makes progress."""
        return bool(self._handle.is_done(self._flight))

    def __del__(self) -> None:
        if hasattr(self, "_flight"):
            self._handle.leave(self._flight)


class Batch:
    """The parts of one call as C takes them."""

    __slots__ = ("c_parts", "n", "parts", "matrices", "is_push")

    def __init__(self, parts: list[Part], is_push: bool):
        self.n = len(parts)
        self.parts = parts
        self.is_push = is_push
        self.c_parts = structs.new_array("embd_part", self.n)
        self.matrices = [part.gradient() if is_push else part.output() for part in parts]
        for i, part in enumerate(parts):
            part.write_to(self.c_parts[i], self.matrices[i])


    def rolled_back(self) -> list["Table"]:
        """Tables of a pull that went back since they were last looked at. With the client's lock held."""
        return [] if self.is_push else [part.table for part in self.parts if part.table.look_for_rollbacks()]


def warn_of_rollback(tables: list["Table"]) -> None:
    for table in tables:
        warnings.warn(f"a server came back, and table '{table.name}' (durability '{table.schema.durability}') is as of an "
                      "earlier moment, or may be: see embd.Table.rollbacks", RollbackWarning, stacklevel=4)


def call_options(options: dict[str, Any]) -> Any:
    """An embd_call_options, or NULL where nothing was asked for."""
    wanted = {name: value for name, value in options.items() if value is not None}
    if not wanted:
        return ffi.NULL
    struct = structs.new("embd_call_options")
    clock = wanted.pop("round", None)
    if clock is not None:
        struct.round, struct.round_clock = clock.c, clock.value
    pusher = wanted.pop("pusher", None)
    if pusher is not None:
        struct.pusher = pusher.c
    structs.fill(struct, wanted, [])
    return struct


class Table:
    """A table of a client. Options of every call: plan "auto", "pooled" or "rows"; wire "f32", "f16", "bf16", "i8" or "i4";
    deadline in seconds; for pulls zero_missing; for pushes round, an embd.Clock: the workers of its job make one step
    together, with the mean of their gradients, and pusher, an embd.Pusher, with sequence, its number of the push; and whatever else embd_call_options has."""

    def __init__(self, client: "Client", c_table: Any):
        self.client = client
        self.c = c_table
        self.schema: Schema = from_c(lib.embd_table_schema(c_table))
        self.name: str = self.schema.name
        self.dim: int = self.schema.dim
        self.combines: bool = self.schema.combiner != "concat"
        self._rollbacks: int = lib.embd_table_rollbacks(c_table)

    @property
    def rollbacks(self) -> int:
        """How often shards came back with less of the table than they had acknowledged, or may have: embd_table_rollbacks
        of embd/embd.h. A pull warns of it once, with embd.RollbackWarning."""
        with self.client.handle.reading():
            return int(lib.embd_table_rollbacks(self.c))

    def look_for_rollbacks(self) -> bool:
        n = lib.embd_table_rollbacks(self.c)
        if n == self._rollbacks:
            return False
        self._rollbacks = n
        return True

    def __repr__(self) -> str:
        return f"<embd table {self.name}, dim {self.dim}, {self.schema.optimizer.kind}>"

    def __deepcopy__(self, memo: Any) -> "Table":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle has the client and the name; where it is read the table is opened."""
        return _opened, (self.client, self.name, self.dim)

    @property
    def table_capacity(self) -> int:
        """The rows that the table has room for on all shards; `schema.capacity` is each shard's share. 0: it has no capacity."""
        with self.client.handle as c:
            return int(lib.embd_table_capacity(lib.embd_table_schema(self.c), lib.embd_shard_count(c)))

    def describe(self) -> Schema:
        """The definition as the servers have it now."""
        return self.client.table(self.name).schema

    def set(self, fields: Optional[Mapping[str, Any]] = None, **more: Any) -> list[int]:
        """Sets fields while the table lives: table.set(optimizer={"lr": 0.05}). See Client.set_table."""
        steps = self.client.set_table(self.name, fields, **more)
        self.schema = from_c(lib.embd_table_schema(self.c))
        return steps

    def drop(self) -> None:
        """Drops the table on every shard, its rows with it."""
        self.client.drop_table(self.name)

    def pull(self, keys: Keys, offsets: Optional[ArrayLike] = None, *, lengths: Optional[ArrayLike] = None,
             weights: Optional[ArrayLike] = None, out: Optional[Floats] = None,
             statuses: Optional[NDArray[np.uint8]] = None, raw: bool = False, **options: Any) -> Floats:
        """The rows of a batch, as Part describes it."""
        part = Part(self, keys, offsets, lengths=lengths, weights=weights, values=out, statuses=statuses, raw=raw)
        return self.client.pull([part], **options)[0]

    def push(self, keys: Keys, gradients: ArrayLike, offsets: Optional[ArrayLike] = None, *,
             lengths: Optional[ArrayLike] = None, weights: Optional[ArrayLike] = None,
             statuses: Optional[NDArray[np.uint8]] = None, raw: bool = False, lr: Optional[float] = None,
             scores: Optional[ArrayLike] = None, **options: Any) -> None:
        """One optimizer step for every key of the batch, with the learning rate `lr`, or else the table's. `scores` say which
        rows an evict_score table keeps: those with the largest."""
        self.client.push([Part(self, keys, offsets, lengths=lengths, weights=weights, values=gradients,
                               statuses=statuses, raw=raw, lr=lr, scores=scores)], **options)

    def erase(self, keys: Keys, offsets: Optional[ArrayLike] = None, *, lengths: Optional[ArrayLike] = None,
              statuses: Optional[NDArray[np.uint8]] = None, **options: Any) -> None:
        """Erases keys, their rows and optimizer state; one that is pushed again starts from its first value. Statuses become EVICTED,
        or MISSING where there was no row. In slot tables the rows of the batch say which slots keys belong to."""
        self.client.erase([Part(self, keys, offsets, lengths=lengths, statuses=statuses)], **options)

    @property
    def state_floats(self) -> int:
        """Floats that stand beside a row: its optimizer state, and what eviction and lazy_global keep there, in the order of
        PROTOCOL.md, "Rows in bulk"."""
        return int(lib.embd_table_state_floats(self.c))

    @property
    def step(self) -> int:
        """How many pushes the table has had: the most of its shards."""
        return max(int(shard.tables[self.name]["steps"]) for shard in self.client.stats())

    def get(self, keys: Keys, *, slots: Optional[ArrayLike] = None, states: bool = False) -> rows.Rows:
        """The rows of keys as they are stored: values, states where asked for, and whether each key has a row. Makes no row,
        and counts for neither admit_after nor eviction. Keys are stored keys, with the offset of their slot; `slots` are for
        tables with partition "slot"."""
        return rows.get(self, keys, slots, states)

    def put(self, keys: Keys, values: ArrayLike, states: Optional[ArrayLike] = None, *,
            slots: Optional[ArrayLike] = None, step: int = 0) -> int:
        """Writes rows: values [n_keys, dim], and states [n_keys, state_floats], or those of a new row. Keys without a row get
        one. A put counts as no step. `step`, if it is not 0, sets how many steps the table has made, which optimizers such as adam count;
        no fewer than it has made. Returns how many keys had no row before."""
        return rows.put(self, keys, values, states, slots, step)

    def keys(self, *, batch: int = 65536) -> Iterator[NDArray[np.uint64]]:
        """The keys that have a row, shard after shard, in batches of at most `batch`, without an order. The table may change
        meanwhile: a key that keeps its row comes once, from servers with GPUs once or more; one that gets or loses its row
        comes or does not. If a server restarts, or the table is restored or created anew, it raises InvalidError. Keys are
        stored keys; `scan` gives their slots too."""
        for keys, _ in rows.keys(self, batch):
            yield keys

    def scan(self, *, values: bool = True, states: bool = False, batch: int = 65536) -> Iterator[rows.Scanned]:
        """The rows as they are stored, in batches, by `keys` and `get`, with the rules of `keys`. Each row is of one moment,
        but rows may be of different moments; Client.dump gives all rows of one moment."""
        return rows.scan(self, batch, values, states)

    def pull_start(self, keys: Keys, offsets: Optional[ArrayLike] = None, *,
                   lengths: Optional[ArrayLike] = None, weights: Optional[ArrayLike] = None,
                   out: Optional[Floats] = None, statuses: Optional[NDArray[np.uint8]] = None,
                   raw: bool = False, **options: Any) -> Call[Floats]:
        """As pull, but returns once the call is on its way. The arrays must not be changed until it has ended."""
        part = Part(self, keys, offsets, lengths=lengths, weights=weights, values=out, statuses=statuses, raw=raw)
        flight, batch = self.client.start(False, [part], options)
        return Call(self.client.handle, flight, batch.matrices[0])

    def push_start(self, keys: Keys, gradients: ArrayLike, offsets: Optional[ArrayLike] = None, *,
                   lengths: Optional[ArrayLike] = None, weights: Optional[ArrayLike] = None,
                   statuses: Optional[NDArray[np.uint8]] = None, raw: bool = False, lr: Optional[float] = None,
                   scores: Optional[ArrayLike] = None, **options: Any) -> Call[None]:
        """As push, but returns once the call is on its way."""
        return self.client.push_start([Part(self, keys, offsets, lengths=lengths, weights=weights,
                                            values=gradients, statuses=statuses, raw=raw, lr=lr,
                                            scores=scores)], **options)


def _opened(client: "Client", name: str, dim: int) -> Table:
    table = client.table(name)
    if table.dim != dim:
        raise ValueError(f"table {name} has {table.dim} columns, the pickled one had {dim}")
    return table
