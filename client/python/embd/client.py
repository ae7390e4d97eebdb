"""A connection to a cluster: tables, calls over several tables, operating the cluster."""
from __future__ import annotations

import itertools
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple, Optional, Union

import numpy as np
from numpy.typing import NDArray

from . import errors, stored, structs
from ._native import ffi, lib
from .arrays import Floats
from .handle import Flight, Handle
from .schema import CFields, CSchema
from .stored import DumpReport, Progress, TableDigest, progress_callback
from .table import Batch, Call, Part, Table, call_options, warn_of_rollback

Servers = Union[str, Sequence[str]]
Path = Union[str, "os.PathLike[str]"]


class ShardStats(NamedTuple):
    """Figures of a shard by name; names and units are those of proto/PROTOCOL.md."""

    shard: dict[str, int]
    tables: dict[str, dict[str, int]]


class Latency(NamedTuple):
    """How long requests took. `buckets` maps a bound in seconds to the requests that took so long at most; each has
    those of the smaller bounds too, and math.inf all."""

    n: int  # requests
    sum: float  # seconds
    buckets: dict[float, int]

    def quantile(self, share: float) -> float:
        """A bound in seconds that a `share` of the requests did not pass; nan where there was none."""
        wanted = share * self.n
        return next((bound for bound, n in self.buckets.items() if n >= wanted), math.inf) if self.n else math.nan


class ShardFigures(NamedTuple):
    """What this client has seen of a shard since it connected: embd_shard_figures of embd/admin.h."""

    address: str
    is_connected: bool
    connections: int
    bytes_sent: int
    bytes_received: int
    repeats: int
    failures: int
    unnumbered: int
    pulls: Latency
    pushes: Latency
    restarts: int
    rollbacks: int
    is_local: bool  # connected by the server's data socket on this host, not by TCP


class HotKeys(NamedTuple):
    keys: NDArray[np.uint64]  # most frequent first
    counts: NDArray[np.uint32]  # how often each is among the samples
    samples: int
    taken: int
    stride: int  # about one key in so many is sampled


class Trace(NamedTuple):
    method: str
    age: float  # seconds since the answer's last byte was sent
    bytes: int
    stages: tuple[float, ...]  # seconds in queue, decode, store, encode, send


class SnapshotStatus(NamedTuple):
    """A snapshot or dump that shard 0's server makes, or has made: embd_snapshot_report of embd/admin.h."""

    name: str
    is_running: bool
    status: errors.Status  # of one that has ended
    error: str  # what went wrong; "": nothing did
    phase: str  # that it is in, or was in last
    shards_done: int
    rows: int
    bytes: int
    pause: float  # seconds that pushes waited
    elapsed: float  # seconds
    rate: int  # of keys that move: bytes a second at most; 0: no limit
    expected_rows: int  # of keys that move: that will be copied, about; 0: not known
    expected_bytes: int


class RebalanceReport(NamedTuple):
    """Keys that moved: embd_rebalance_report of embd/admin.h."""

    vshards: int  # of 1024, that are on other shards now
    version: int  # of the map of keys to shards
    rows: int  # that were copied, also those that were copied again
    bytes: int
    pause: float  # seconds that pushes waited
    elapsed: float  # seconds


def connect(servers: Optional[Servers] = None, *, own_thread: bool = True, **options: Any) -> "Client":
    """Connects to the cluster that one of `servers` ("host:port,...", or a sequence; "dns://name:port" and
    "dns://_service._proto.name" are looked up) belongs to; or starts a server in this process, with the data directory DIR
    or without one ("inproc:DIR?shards=2", "inproc:"); without it to $EMBD_SERVERS, else to 127.0.0.1:7700.

    own_thread     the library moves bytes on a thread of its own, so that started calls make progress
    deadline       seconds, of every call that names none (30)
    reconnect_min, reconnect_max   seconds between attempts to connect again
    unnumbered     pushes have no numbers, and are not sent again when a connection breaks (False)
    readers        addresses of replicas that answer pulls, too; max_behind: seconds that they may be behind, 0: any (0)
    and whatever else embd_options has. Raises UnreachableError and others of embd.Error."""
    if servers is None:
        servers = os.environ.get("EMBD_SERVERS", "127.0.0.1:7700")
    if not isinstance(servers, str):
        servers = ",".join(servers)
    c_options = structs.new("embd_options")
    keep: list[Any] = []
    structs.fill(c_options, {"own_thread": own_thread, **options}, keep)
    out = ffi.new("embd_client **")
    errors.check(lib.embd_connect(servers.encode(), c_options, out))
    return Client(Handle(out[0]), servers, {"own_thread": own_thread, **options})


class Client:
    """A connected cluster; made by connect(). Any thread may use it, one call at a time: a second thread waits
    for the first one's call, so that threads that are to overlap take a client each, or started calls."""

    def __init__(self, handle: Handle, servers: str, options: dict[str, Any]):
        self.handle = handle
        self._servers = servers
        self._options = options

    def __deepcopy__(self, memo: Any) -> "Client":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle has what connect() was given; where it is read a client connects."""
        if self._options.get("token") is not None:
            raise TypeError("the client was given a token, which a pickle would disclose; give token_file, or EMBD_TOKEN_FILE")
        return _connected, (self._servers, self._options)

    def again(self, **options: Any) -> "Client":
        """Another client of the same cluster, with connections of its own: what connect() was given, and `options`."""
        return connect(self._servers, **{**self._options, **options})

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *what: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<embd client of {', '.join(self.shards)}>" if self.handle.c else "<embd client, closed>"

    def close(self) -> None:
        """Abandons calls in flight and closes the connections."""
        self.handle.close()

    @property
    def is_inproc(self) -> bool:
        """Whether the server is in this process."""
        return self._servers.startswith("inproc:")

    @property
    def shards(self) -> list[str]:
        """Addresses of all shards, as far as the client knows: it hears of added ones with a call that meets them."""
        with self.handle as c:
            return [ffi.string(lib.embd_shard_address(c, i)).decode() for i in range(lib.embd_shard_count(c))]

    def ping(self, shard: int = 0) -> float:
        """Seconds of a round trip."""
        out = ffi.new("uint64_t *")
        with self.handle as c:
            self.handle.check(lib.embd_ping(c, shard, out))
        return float(out[0]) / 1e6

    # ---- tables ----

    def create_table(self, name: str, dim: int, *, table_capacity: Optional[int] = None, **fields: Any) -> Table:
        """Creates a table on every shard and opens it; the same definition again is no error.

        `fields` are those of embd_schema: optimizer ("adam", or Optimizer("adam", lr=0.01)), initializer
        (Initializer("normal", 0, 0.1)), slots, slot_sizes, partition, combiner ("sum", "mean", "sqrtn",
        "concat"), dtype, seed, capacity, on_full, ttl, ttl_seconds, lfu_half_life, lfu_occurrences, admit_after, create_on,
        admit_nonfinite, durability, rounding. One that is not given has the default of embd_schema_init. `table_capacity` is
        a bound for the rows of all shards together; `capacity` becomes the share of each shard."""
        c_schema = CSchema(name, dim, fields)
        if table_capacity is not None and "capacity" in fields:
            raise ValueError("table_capacity and capacity are both given; capacity is each shard's share of it")
        with self.handle as c:
            if table_capacity is not None:
                c_schema.schema.capacity = lib.embd_capacity_share(c_schema.schema, lib.embd_shard_count(c), table_capacity)
            self.handle.check(lib.embd_table_create(c, c_schema.schema))
        return self.table(name)

    def table(self, name: str) -> Table:
        """Opens a table."""
        out = ffi.new("embd_table **")
        with self.handle as c:
            self.handle.check(lib.embd_table_open(c, name.encode(), out))
            return Table(self, out[0])

    def tables(self) -> list[str]:
        """Names of all tables."""
        names: list[str] = []
        me = ffi.new_handle(names)
        with self.handle as c:
            self.handle.check(lib.embd_table_list(c, lib.embd_python_on_name, me))
        return names

    def set_table(self, name: str, fields: Optional[Mapping[str, Any]] = None, **more: Any) -> list[int]:
        """Sets fields of a table while it lives, as embd_table_set does: set_table("items", {"optimizer.lr": 0.05}),
        set_table("items", optimizer={"lr": 0.05}, ttl=9). Returns the pushes that each shard had applied before."""
        c_fields = CFields({**(fields or {}), **more})
        with self.handle as c:
            steps = ffi.new("uint64_t[]", lib.embd_shard_count(c))
            self.handle.check(lib.embd_table_set(c, name.encode(), c_fields.fields, c_fields.n, steps))
            return list(steps)

    def drop_table(self, name: str) -> None:
        with self.handle as c:
            self.handle.check(lib.embd_table_drop(c, name.encode()))

    # ---- calls ----

    def pull(self, parts: Sequence[Part], **options: Any) -> list[Floats]:
        """Pulls all parts in one call: one matrix for each."""
        batch = Batch(list(parts), False)
        self._call(lib.embd_pull, batch, options)
        return batch.matrices

    def push(self, parts: Sequence[Part], **options: Any) -> None:
        """Pushes the gradients of all parts in one call, which is one step of every table it names."""
        try:
            self._call(lib.embd_push, Batch(list(parts), True), options)
        except errors.LateError as error:
            options["round"].late(error)

    def erase(self, parts: Sequence[Part], **options: Any) -> None:
        """Erases the keys of all parts; their values and weights are not looked at."""
        c_parts = structs.new_array("embd_part", len(parts))
        for c_part, part in zip(c_parts, parts):
            part.write_to(c_part, None)
        with self.handle as c:
            self.handle.check(lib.embd_erase(c, c_parts, len(parts), call_options(options)))

    def pull_start(self, parts: Sequence[Part], **options: Any) -> Call[list[Floats]]:
        """As pull, but returns once the call is on its way. The arrays must not be changed until it has ended."""
        flight, batch = self.start(False, list(parts), options)
        return Call(self.handle, flight, batch.matrices)

    def push_start(self, parts: Sequence[Part], **options: Any) -> Call[None]:
        """As push, but returns once the call is on its way."""
        flight, _ = self.start(True, list(parts), options)
        return Call(self.handle, flight, None, options.get("round"))

    def settle(self) -> None:
        """Waits until every started call has ended. Failures are raised by the calls' own wait()."""
        self.handle.settle()

    def start(self, is_push: bool, parts: list[Part], options: dict[str, Any]) -> tuple[Flight, Batch]:
        batch = Batch(parts, is_push)
        start = lib.embd_push_start if is_push else lib.embd_pull_start
        return self.handle.begin(start, batch.c_parts, batch.n, call_options(options), batch), batch

    def _call(self, function: Any, batch: Batch, options: dict[str, Any]) -> None:
        c_options = call_options(options) if options else ffi.NULL
        with self.handle as c:
            self.handle.check(function(c, batch.c_parts, batch.n, c_options))
            rolled_back = batch.rolled_back()
        warn_of_rollback(rolled_back)

    # ---- operating ----

    def stats(self) -> list[ShardStats]:
        """Figures of every shard and of its tables."""
        return [self._shard_stats(shard) for shard in range(len(self.shards))]

    @property
    def has_thread(self) -> bool:
        """own_thread: what is under way moves on while Python does other things."""
        return bool(self._options.get("own_thread"))

    def buffer(self, shape: int | tuple[int, ...], dtype: Any = np.float32) -> NDArray[Any]:
        """An array of zeros for rows (``out=``) and gradients, which servers on this host share with the client: rows of
        a cluster of one shard come into it without another copy. Elsewhere it is an array like any other. It may
        outlive the client."""
        kind = np.dtype(dtype)
        if kind.hasobject:
            raise TypeError(f"a buffer of {kind}: expected numbers")
        count = math.prod(shape) if isinstance(shape, tuple) else shape
        if count <= 0:
            return np.zeros(shape, kind)
        out, n_bytes = ffi.new("void **"), count * kind.itemsize
        with self.handle as c:
            self.handle.check(lib.embd_buffer_new(c, n_bytes, out))
        memory = ffi.gc(out[0], lib.embd_buffer_free, size=n_bytes)
        return np.frombuffer(ffi.buffer(memory, n_bytes), kind, count).reshape(shape)

    def is_shared(self, array: NDArray[Any]) -> bool:
        """Whether servers on this host share this array of `buffer` now."""
        with self.handle as c:
            return bool(lib.embd_buffer_is_shared(c, ffi.from_buffer(array)))

    def figures(self) -> list[ShardFigures]:
        """What this client has seen of each shard: times of pulls and pushes, bytes, reconnects, repeats, failures. Any
        thread may ask; it does not wait for another one's call. embd.prometheus exports them."""
        with self.handle.reading() as c:
            return [_shard_figures(c, shard) for shard in range(lib.embd_shard_count(c))]

    def _shard_stats(self, shard: int) -> ShardStats:
        out = ShardStats({}, {})
        me = ffi.new_handle(out)
        with self.handle as c:
            self.handle.check(lib.embd_stats(c, shard, lib.embd_python_on_figure, me))
        return out

    def dump(self, directory: Path, table: Optional[str] = None,
             progress: Optional[Progress] = None) -> DumpReport:
        """Writes a table, or all, as one consistent cut into a new directory of this machine. `progress` is called
        with (rows done, rows in all, bytes); when it returns something true, or raises, the dump stops."""
        return self._copy(lib.embd_dump, directory, table, progress)

    def load(self, directory: Path, table: Optional[str] = None, progress: Optional[Progress] = None, *,
             tables: Sequence[str] = (), replace: bool = False,
             set: Optional[Mapping[str, Any]] = None) -> DumpReport:
        """Creates the tables of a dump or snapshot (all, or `table` and `tables`) and fills them, bit for bit, on any
        number of shards. With `replace` tables that exist become those of the directory, on all shards at once, with the
        streams of numbered pushes; other tables stay as they are. Without it they must be empty. With `set` the tables
        get another definition: set={"dim": 64, "optimizer.lr": 0.001}."""
        report, options = ffi.new("embd_dump_report *"), structs.new("embd_load_options")
        names = [ffi.new("char[]", name.encode()) for name in [*([table] if table is not None else []), *tables]]
        c_names = ffi.new("char *[]", names)
        c_set = CFields(set or {})
        options.tables, options.n_tables, options.replace = c_names, len(names), replace
        options.set, options.n_set = c_set.fields, c_set.n
        with progress_callback(progress) as (callback, arg), self.handle as c:
            options.progress, options.arg = callback, arg
            self.handle.check(lib.embd_load_tables(c, os.fsencode(directory), options, report))
        return DumpReport(**structs.read(report))

    def _copy(self, function: Callable[..., int], directory: Path, table: Optional[str],
              progress: Optional[Progress]) -> DumpReport:
        report = ffi.new("embd_dump_report *")
        name = ffi.NULL if table is None else table.encode()
        with progress_callback(progress) as (callback, arg), self.handle as c:
            self.handle.check(function(c, name, os.fsencode(directory), callback, arg, report))
        return DumpReport(**structs.read(report))

    def digest(self, table: Optional[str] = None, progress: Optional[Progress] = None) -> list[TableDigest]:
        """Checksums of one table, or of all, of one consistent cut: of keys, rows as they are stored, optimizer state, and keys
        that wait for admission. Tables with the same digest hold the same, on any number of shards and in any store. The
        shards make them; no rows travel. embd.stored.digest is the same of a directory."""
        found: list[TableDigest] = []
        me = ffi.new_handle(found)
        name = ffi.NULL if table is None else table.encode()
        with progress_callback(progress) as (callback, arg), self.handle as c:
            self.handle.check(lib.embd_digest(c, name, lib.embd_python_on_digest, me, callback, arg))
        return found

    def snapshot(self, name: str, blobs: Optional[Mapping[str, bytes]] = None, keep: int = 0,
                 base: Optional[str] = None, job: Optional[str] = None, tables: Sequence[str] = ()) -> DumpReport:
        """Has every server process write its state under its data directory, one cut over all. `blobs` are files of
        the trainer's own that go along: dense weights, a step; embd.stored.blob reads them. With `base` it has what
        changed since that one alone. With `tables` it has these tables alone: names, or prefixes as "rec-*". `job` is
        whose snapshot it is. With `keep` all complete snapshots of the same job, or of none, whose tables this one
        covers are removed afterwards, but the newest so many."""
        report, options = ffi.new("embd_dump_report *"), structs.new("embd_snapshot_options")
        options.blobs, options.n_blobs, held = stored.c_blobs(blobs)
        options.keep = keep
        c_base = ffi.NULL if base is None else ffi.new("char[]", base.encode())
        options.base = c_base
        c_job = ffi.NULL if job is None else ffi.new("char[]", job.encode())
        names = [ffi.new("char[]", table.encode()) for table in tables]
        c_tables = ffi.new("const char *[]", names or 1)
        options.job, options.tables, options.n_tables = c_job, c_tables, len(names)
        with self.handle as c:
            self.handle.check(lib.embd_snapshot(c, name.encode(), options, report))
        del held
        return DumpReport(**structs.read(report))

    def snapshot_status(self, name: Optional[str] = None) -> SnapshotStatus:
        """How far a snapshot is, or the newest one, of the last eight that shard 0's server was asked for. Raises
        InvalidError where there is none."""
        report = structs.new("embd_snapshot_report")
        with self.handle as c:
            self.handle.check(lib.embd_snapshot_status(c, ffi.NULL if name is None else name.encode(), report))
        members = structs.read(report)
        members["status"] = errors.Status(members["status"])
        return SnapshotStatus(pause=members.pop("pause_us") / 1e6, elapsed=members.pop("elapsed_us") / 1e6, **members)

    def snapshot_cancel(self, name: str) -> None:
        """Ends a snapshot, whoever asked for it, and removes what all servers have of it. A complete one stays."""
        with self.handle as c:
            self.handle.check(lib.embd_snapshot_cancel(c, name.encode()))

    def rebalance(self, weights: Sequence[int], plan: bool = False, rate: int = 0) -> RebalanceReport:
        """Moves keys between shards while trainers pull and push, so that each has its weight's share: one number of
        `weights` for each shard; 0 leaves it none. As few keys move as possible. With `plan` nothing moves, and the
        report says what would. With `rate` rows are copied at so many bytes a second at most, 1 MiB or more; no pull or push
        waits for that. It needs an admin's rights."""
        options, report = structs.new("embd_rebalance_options"), structs.new("embd_rebalance_report")
        with self.handle as c:
            n = lib.embd_shard_count(c)
            if len(weights) != n:
                raise ValueError(f"{len(weights)} weights; the cluster has {n} shards")
            c_weights = ffi.new("uint32_t[]", list(weights))
            options.weights, options.is_plan, options.rate = c_weights, plan, rate
            self.handle.check(lib.embd_rebalance(c, options, report))
        return _rebalanced(report)

    def move_vshards(self, first: int, n: int, shard: int, plan: bool = False, rate: int = 0) -> RebalanceReport:
        """Moves the keys of n vshards from `first` on to a shard, as rebalance does; all others stay."""
        options, report = structs.new("embd_rebalance_options"), structs.new("embd_rebalance_report")
        options.first_vshard, options.n_vshards, options.to_shard, options.is_plan, options.rate = first, n, shard, plan, rate
        with self.handle as c:
            self.handle.check(lib.embd_rebalance(c, options, report))
        return _rebalanced(report)

    def rebalance_rate(self, rate: int) -> None:
        """Rows of the move that runs are copied at so many bytes a second at most from now on; 0: no limit. Raises InvalidError
        where no keys are being moved. It needs an admin's rights."""
        with self.handle as c:
            self.handle.check(lib.embd_rebalance_rate(c, rate))

    def add_shard(self, address: str) -> None:
        """Makes the server at `address`, started with --join, a member of the cluster while trainers go on. Its shards have no
        keys until rebalance. It needs an admin's rights."""
        with self.handle as c:
            self.handle.check(lib.embd_shard_add(c, address.encode(), ffi.NULL))

    def retire_shard(self, shard: int) -> None:
        """The server whose first shard this is leaves the cluster for good while trainers go on. Its shards are the last
        ones, and have no keys: rebalance with weight 0 before. Afterwards it can be ended. It needs an admin's rights."""
        with self.handle as c:
            self.handle.check(lib.embd_shard_retire(c, shard, ffi.NULL))

    def vshards(self) -> list[int]:
        """Of 1024, the vshards whose keys each shard has."""
        with self.handle as c:
            out = ffi.new("uint32_t[]", lib.embd_shard_count(c))
            self.handle.check(lib.embd_vshards(c, out))
            return list(out)[:lib.embd_shard_count(c)]

    def vshard_shards(self) -> list[int]:
        """The shard of each of the 1024 vshards."""
        out = ffi.new("uint32_t[]", lib.EMBD_VSHARDS)
        with self.handle as c:
            self.handle.check(lib.embd_vshard_shards(c, out))
        return list(out)

    def drain(self, shard: Optional[int] = None) -> None:
        """Asks every server process, or the one that `shard` belongs to, to finish what it has begun and exit."""
        with self.handle as c:
            self.handle.check(lib.embd_drain(c) if shard is None else lib.embd_drain_shard(c, shard))

    def hot(self, table: str, shard: int = 0, max_keys: int = 10) -> HotKeys:
        """The keys that a shard is asked for most, from a sample of those last pulled and pushed."""
        keys, counts = np.empty(max(max_keys, 1), np.uint64), np.empty(max(max_keys, 1), np.uint32)
        report = ffi.new("embd_hot_report *")
        with self.handle as c:
            self.handle.check(lib.embd_hot(c, shard, table.encode(), max_keys, ffi.from_buffer("uint64_t[]", keys),
                                           ffi.from_buffer("uint32_t[]", counts), report))
        n = report.n_keys
        return HotKeys(keys[:n], counts[:n], report.samples, report.taken, report.stride)

    def trace(self, shard: int = 0) -> list[Trace]:
        """Where the time of a shard's last pulls and pushes went, the newest first."""
        found: list[Trace] = []
        me = ffi.new_handle(found)
        with self.handle as c:
            self.handle.check(lib.embd_trace(c, shard, lib.embd_python_on_trace, me))
        return found

    # ---- model folders of HugeCTR ----

    def export_hugectr(self, table: str, folder: Path, progress: Optional[Progress] = None,
                       **options: Any) -> DumpReport:
        """Writes a table as a model folder of HugeCTR. Options are the members of embd_hugectr_options."""
        return self._hugectr(lib.embd_hugectr_export, table.encode(), folder, progress, options)

    def import_hugectr(self, table: str, dim: int, folder: Path, *, schema: Optional[dict[str, Any]] = None,
                       progress: Optional[Progress] = None, **options: Any) -> DumpReport:
        """Creates a table (`schema`: fields as of create_table) and fills it from a model folder of HugeCTR."""
        c_schema = CSchema(table, dim, schema or {})
        return self._hugectr(lib.embd_hugectr_import, c_schema.schema, folder, progress, options)

    def _hugectr(self, function: Callable[..., int], what: Any, folder: Path, progress: Optional[Progress],
                 options: dict[str, Any]) -> DumpReport:
        c_options = structs.new("embd_hugectr_options")
        keep: list[Any] = []
        structs.fill(c_options, options, keep)
        report = ffi.new("embd_dump_report *")
        with progress_callback(progress) as (callback, arg), self.handle as c:
            self.handle.check(function(c, what, os.fsencode(folder), c_options, callback, arg, report))
        return DumpReport(**structs.read(report))


def _connected(servers: str, options: dict[str, Any]) -> Client:
    return connect(servers, **options)


def _rebalanced(report: Any) -> RebalanceReport:
    members = structs.read(report)
    return RebalanceReport(pause=members.pop("pause_us") / 1e6, elapsed=members.pop("elapsed_us") / 1e6, **members)


def _latency(c_latency: Any) -> Latency:
    bounds = [2.0**i / 1e6 for i in range(len(c_latency.buckets) - 1)] + [math.inf]
    return Latency(c_latency.count, c_latency.sum_ns / 1e9, dict(zip(bounds, itertools.accumulate(c_latency.buckets))))


def _shard_figures(c: Any, shard: int) -> ShardFigures:
    out = structs.new("embd_shard_figures")
    errors.check(lib.embd_figures(c, shard, out))
    numbers = {name: getattr(out, name) for name in ShardFigures._fields[1:] if name not in ("pulls", "pushes")}
    return ShardFigures(ffi.string(lib.embd_shard_address(c, shard)).decode(), **numbers, pulls=_latency(out.pulls),
                        pushes=_latency(out.pushes))


@ffi.def_extern()  # type: ignore[untyped-decorator]
def embd_python_on_name(arg: Any, name: Any) -> int:
    ffi.from_handle(arg).append(ffi.string(name).decode())
    return 0


@ffi.def_extern()  # type: ignore[untyped-decorator]
def embd_python_on_figure(arg: Any, table: Any, name: Any, value: int) -> int:
    stats: ShardStats = ffi.from_handle(arg)
    figures = stats.shard if table == ffi.NULL else stats.tables.setdefault(ffi.string(table).decode(), {})
    figures[ffi.string(name).decode()] = value
    return 0


@ffi.def_extern()  # type: ignore[untyped-decorator]
def embd_python_on_trace(arg: Any, trace: Any) -> int:
    stages = tuple(ns / 1e9 for ns in trace.stage_ns)
    ffi.from_handle(arg).append(Trace(ffi.string(trace.method).decode(), trace.age_us / 1e6, trace.bytes, stages))
    return 0
