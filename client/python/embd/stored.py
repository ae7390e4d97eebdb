"""Dumps, snapshots and model folders on disk: progress, verification, and their rows as numpy arrays."""
from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any, Callable, NamedTuple, Optional, Union

import numpy as np
from numpy.typing import NDArray

from . import errors, structs, tensors
from ._native import ffi, lib
from .arrays import Floats
from .schema import Schema, from_c

Path = Union[str, "os.PathLike[str]"]
Progress = Callable[[int, int, int], Any]


class DumpReport(NamedTuple):
    rows: int
    bytes: int
    pause_us: int  # how long pushes waited


class StoredTable(NamedTuple):
    """A table of a directory, and its first rows where they were asked for."""

    kind: str
    name: Optional[str]
    schema: Optional[Schema]
    dim: int
    has_slots: bool
    rows: int
    bytes: int
    step: int
    keys: NDArray[np.uint64]
    slots: NDArray[np.uint32]
    values: Floats
    job: Optional[str] = None  # whose snapshot it is


class TableDigest(NamedTuple):
    """What a table holds as checksums, which are the same on any number of shards: see Client.digest."""

    name: str
    rows: int
    candidates: int  # keys that wait for admission
    step: int  # not in the digest
    digest: int
    parts: NDArray[np.uint64]  # [1024] of the rows by the upper ten bits of their keys' hash
    part_rows: NDArray[np.uint64]  # [1024] rows and candidates of each part


class _Watch:
    """A progress function of the caller's; what it raises is kept and raised once C has returned."""

    def __init__(self, function: Progress):
        self.function = function
        self.raised: Optional[BaseException] = None


@contextlib.contextmanager
def progress_callback(function: Optional[Progress]) -> Iterator[tuple[Any, Any]]:
    """(callback, argument) for C. An exception of the function takes the place of the error that it causes."""
    if function is None:
        yield ffi.NULL, ffi.NULL
        return
    watch = _Watch(function)
    arg = ffi.new_handle(watch)
    try:
        yield lib.embd_python_on_progress, arg
    finally:
        if watch.raised is not None:
            raise watch.raised


@ffi.def_extern()  # type: ignore[untyped-decorator]
def embd_python_on_progress(arg: Any, rows_done: int, rows_total: int, bytes_done: int) -> int:
    watch: _Watch = ffi.from_handle(arg)
    try:
        return 1 if watch.function(rows_done, rows_total, bytes_done) else 0
    except BaseException as raised:  # noqa: BLE001 - it is raised again on the other side of C
        watch.raised = raised
        return 1


def verify(directory: Path, progress: Optional[Progress] = None) -> DumpReport:
    """Checks a directory without a server: manifest, sizes, checksums, structure. Raises CorruptError."""
    report = ffi.new("embd_dump_report *")
    with progress_callback(progress) as (callback, arg):
        errors.check(lib.embd_verify(os.fsencode(directory), callback, arg, report))
    return DumpReport(**structs.read(report))


@ffi.def_extern()  # type: ignore[untyped-decorator]
def embd_python_on_digest(arg: Any, table: Any) -> int:
    parts, part_rows = (np.frombuffer(ffi.buffer(p, 8 * lib.EMBD_DIGEST_PARTS), np.uint64).copy()
                        for p in (table.parts, table.part_rows))
    ffi.from_handle(arg).append(TableDigest(ffi.string(table.name).decode(), table.rows, table.candidates, table.step,
                                            table.digest, parts, part_rows))
    return 0


def digest(directory: Path, table: Optional[str] = None, progress: Optional[Progress] = None) -> list[TableDigest]:
    """The digest of one table of a dump or whole snapshot, or of all, as Client.digest has it. Needs no server."""
    found: list[TableDigest] = []
    me = ffi.new_handle(found)
    name = ffi.NULL if table is None else table.encode()
    with progress_callback(progress) as (callback, arg):
        errors.check(lib.embd_digest_directory(os.fsencode(directory), name, lib.embd_python_on_digest, me, callback, arg))
    return found


def _room(dim: int, n_rows: int) -> tuple[NDArray[np.uint64], NDArray[np.uint32], Floats]:
    return np.empty(n_rows, np.uint64), np.empty(n_rows, np.uint32), np.empty((n_rows, dim), np.float32)


@ffi.def_extern()  # type: ignore[untyped-decorator]
def embd_python_on_table(arg: Any, table: Any) -> int:
    schema = None if table.schema == ffi.NULL else from_c(table.schema)
    name = None if table.name == ffi.NULL else ffi.string(table.name).decode()
    dim = schema.dim if schema else table.dim
    ffi.from_handle(arg).append(StoredTable(ffi.string(table.kind).decode(), name, schema, dim, table.has_slots,
                                            table.rows, table.bytes, table.step, *_room(dim, 0),
                                            None if table.job == ffi.NULL else ffi.string(table.job).decode() or None))
    return 0


def _inspect(directory: Path, n_rows: int, on_table: Any, on_row: Any, arg: Any) -> None:
    path = os.fsencode(directory)
    inspect = lib.embd_hugectr_inspect if lib.embd_hugectr_is_folder(path) else lib.embd_inspect
    status = inspect(path, n_rows, on_table, on_row, arg)
    if status > 0:
        raise errors.make(lib.EMBD_CORRUPT, f"{os.fspath(directory)}: changed while it was read")
    errors.check(status)


def tables(directory: Path) -> list[StoredTable]:
    """The tables of a dump, a snapshot or a model folder of HugeCTR, without their rows. Needs no server."""
    found: list[StoredTable] = []
    me = ffi.new_handle(found)
    _inspect(directory, 0, lib.embd_python_on_table, ffi.NULL, me)
    return found


def read(directory: Path, table: Optional[str] = None, first: Optional[int] = None) -> list[StoredTable]:
    """The tables of a directory with their rows as float32, or the one called `table`; of each the `first` rows
    (None: all), in the order of the files."""
    found = tables(directory)
    wanted = [table is None or stored.name == table for stored in found]
    if not any(wanted):
        raise errors.make(lib.EMBD_UNKNOWN_TABLE, f"{os.fspath(directory)}: holds no table {table or ''}")
    counts = [min(stored.rows, stored.rows if first is None else first) if want else 0
              for stored, want in zip(found, wanted)]
    rooms = [_room(stored.dim, count) for stored, count in zip(found, counts)]
    takers = ffi.new("row_taker[]", len(found))
    for taker, stored, count, (keys, slots, values) in zip(takers, found, counts, rooms):
        taker.room, taker.dim = count, stored.dim
        taker.keys = ffi.cast("uint64_t *", keys.ctypes.data)
        taker.slots = ffi.cast("uint32_t *", slots.ctypes.data)
        taker.values = ffi.cast("float *", values.ctypes.data)
    all_takers = ffi.new("row_takers *", {"n_takers": len(found), "takers": takers})
    _inspect(directory, max(counts), ffi.addressof(lib, "embd_python_next_table"),
             ffi.addressof(lib, "embd_python_take_row"), all_takers)
    if [taker.n_rows for taker in takers] != counts:
        raise errors.make(lib.EMBD_CORRUPT, f"{os.fspath(directory)}: changed while it was read")
    return [stored._replace(keys=room[0], slots=room[1], values=room[2])
            for stored, room, want in zip(found, rooms, wanted) if want]


@ffi.def_extern()  # type: ignore[untyped-decorator]
def embd_python_on_blob(arg: Any, name: Any, n_bytes: int) -> int:
    ffi.from_handle(arg)[ffi.string(name).decode()] = n_bytes
    return 0


def c_blobs(given: Optional[Mapping[str, bytes]]) -> tuple[Any, int, list[Any]]:
    """(embd_blob[n], n, what has to live as long)."""
    found, held = ffi.new("embd_blob[]", max(1, len(given or {}))), []
    for c_blob, (name, data) in zip(found, (given or {}).items()):
        held += [ffi.new("char[]", name.encode()), ffi.from_buffer(data)]
        c_blob.name, c_blob.data, c_blob.bytes = held[-2], held[-1], len(held[-1])
    return found, len(given or {}), held


def blobs(directory: Path) -> dict[str, int]:
    """Names and sizes of the trainer's own files in a snapshot directory. Needs no server."""
    found: dict[str, int] = {}
    me = ffi.new_handle(found)
    errors.check(lib.embd_blob_list(os.fsencode(directory), lib.embd_python_on_blob, me))
    return found


def blob(directory: Path, name: str) -> bytes:
    """One of them, as it was given; its checksum is verified."""
    data, size = ffi.new("void **"), ffi.new("uint64_t *")
    errors.check(lib.embd_blob_read(os.fsencode(directory), name.encode(), data, size))
    try:
        return bytes(ffi.buffer(data[0], size[0]))
    finally:
        lib.free(data[0])


def _arrays(directory: Path, table: str) -> dict[str, NDArray[Any]]:
    """keys, values and, where rows belong to (slot, key), slots; in ascending order of slot and key."""
    stored, = read(directory, table)
    if stored.kind == "changes":
        raise ValueError(f"{os.fsdecode(directory)} has what changed since another snapshot alone: load it, and dump the table")
    by: tuple[Any, ...] = (stored.keys, stored.slots) if stored.has_slots else (stored.keys,)
    order = np.lexsort(by)
    out: dict[str, NDArray[Any]] = {"keys": stored.keys[order], "values": stored.values[order]}
    if stored.has_slots:
        out["slots"] = stored.slots[order]
    return out


def to_npz(directory: Path, table: str, file: Path) -> None:
    """Writes a table of a dump as an .npz file that numpy.load reads: keys, values, and slots of slot tables."""
    np.savez(os.fspath(file), **_arrays(directory, table))


def to_safetensors(directory: Path, table: str, file: Path) -> None:
    """The same as a .safetensors file, whose keys are int64: the same 64 bits. Needs the package safetensors."""
    numpy = tensors.package()
    found = _arrays(directory, table)
    found["keys"] = found["keys"].view(np.int64)
    whole = {name: np.ascontiguousarray(array) for name, array in found.items()}
    tensors.write(os.fspath(file), lambda name: numpy.save_file(whole, name))
