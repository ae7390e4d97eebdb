"""Norm and Raw data sets through the readers and writers of libembd, whose threads decode ahead.

Batches are the reader's own memory, seen through numpy: nothing is copied, and a batch lives as long as an array of
it does. Destructors may run at any moment and on any thread, so they only note what is to be given back; the reader
takes it with its next call."""
from __future__ import annotations

import os
import struct
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Optional, Union

import numpy as np
from numpy.typing import ArrayLike

from .. import arrays, errors, structs
from .._native import ffi, lib
from .batch import Batch, Input, Shape, Source, SparseInput

Path = Union[str, "os.PathLike[str]"]
Paths = Union[Path, Sequence[Path]]


class Counts(NamedTuple):
    samples: int
    bad_samples: int
    files: int
    bad_files: int


class _Reader:
    """An embd_reader; closed when the last of its batches is gone."""

    def __init__(self, paths: list[str], c_shape: Any, inputs: tuple[SparseInput, ...], options: dict[str, Any]):
        c_options = structs.new("embd_reader_options")
        c_paths = [ffi.new("char[]", os.fsencode(path)) for path in paths]
        c_inputs = [(one.slots, one.max_keys, one.fixed_length) for one in inputs]
        keep: list[Any] = []
        structs.fill(c_options, {**options, "inputs": c_inputs, "n_inputs": len(inputs)}, keep)
        out = ffi.new("embd_reader **")
        errors.check(lib.embd_reader_open_lists(c_paths, len(paths), c_shape, c_options, out))
        self.c = out[0]
        self.lock = threading.Lock()
        self.given_back: list[Any] = []

    def next(self) -> Any:
        out = ffi.new("embd_batch **")
        with self.lock:
            while self.given_back:
                lib.embd_reader_release(self.c, self.given_back.pop())
            status = lib.embd_reader_next(self.c, out)
            errors.check(status)
        return out[0]

    def fault(self) -> str:
        sentence: str = ffi.string(lib.embd_reader_fault(self.c)).decode(errors="replace")
        return sentence

    def counts(self) -> Counts:
        out = ffi.new("embd_reader_counts *")
        with self.lock:
            lib.embd_reader_count(self.c, out)
        return Counts(**structs.read(out))

    def __del__(self) -> None:
        if hasattr(self, "c"):
            lib.embd_reader_close(self.c)


class _Lease:
    """A batch of a reader, until its last array is gone."""

    def __init__(self, reader: _Reader, c_batch: Any):
        self.reader = reader
        self.c = c_batch

    def __del__(self) -> None:
        self.reader.given_back.append(self.c)


def _batch(lease: _Lease, shape: Shape) -> Batch:
    c, n = lease.c, int(lease.c.n_samples)
    inputs = {one.name: _input(lease, c.inputs[i]) for i, one in enumerate(shape.inputs)}
    return Batch(arrays.lent(lease, c.labels, np.float32, (n, shape.label_dim)),
                 arrays.lent(lease, c.dense, np.float32, (n, shape.dense_dim)),
                 arrays.lent(lease, c.offsets, np.uint64, (int(c.n_rows) + 1,)),
                 arrays.lent(lease, c.keys, np.uint64, (int(c.n_keys),)), shape.slots, inputs)


def _input(lease: _Lease, c_input: Any) -> Input:
    return Input(arrays.lent(lease, c_input.keys, np.uint64, (int(c_input.n_keys),)),
                 arrays.lent(lease, c_input.offsets, np.uint64, (int(c_input.n_rows) + 1,)))


class _Native(Source):
    """What both formats share. After or during an iteration `counts` and `first_fault` tell of it."""

    def __init__(self, path: Paths, shape: Shape, flags: dict[str, Any], options: dict[str, Any]):
        self.paths = path_list(path)
        self.shape = shape
        self._flags = flags
        self._options = options
        self._reader: Optional[_Reader] = None

    def __iter__(self) -> Iterator[Batch]:
        reader = self._reader = _Reader(self.paths, _c_shape(self.shape, self._flags), self.shape.inputs,
                                        self._options)
        while True:
            c_batch = reader.next()
            if c_batch == ffi.NULL:
                return
            yield _batch(_Lease(reader, c_batch), self.shape)

    @property
    def counts(self) -> Counts:
        """Samples and files so far, good and bad ones."""
        return self._reader.counts() if self._reader else Counts(0, 0, 0, 0)

    @property
    def first_fault(self) -> str:
        """The first fault that was counted, with file and sample; "" while there is none."""
        return self._reader.fault() if self._reader else ""


def _c_shape(shape: Shape, flags: dict[str, Any]) -> Any:
    c_shape = structs.new("embd_data_shape")
    structs.fill(c_shape, {"label_dim": shape.label_dim, "dense_dim": shape.dense_dim, "slots": shape.slots, **flags},
                 [])
    return c_shape


def path_list(path: Paths) -> list[str]:
    """One path or several, as a list."""
    paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    if not paths:
        raise ValueError("no path is given")
    return [os.fspath(one) for one in paths]


def listed_paths(path: str, base: str = "found") -> list[str]:
    """The files that a list names, as this process opens them: embd_data_paths of include/embd/data.h."""
    with open(path, encoding="utf-8") as listing:
        names = [line.strip() for line in listing.readlines()[1:] if line.strip()]
    if not names:
        raise errors.make(lib.EMBD_CORRUPT, f"{path}: names no file")
    beside = [os.path.join(os.path.dirname(path), name) for name in names]
    if base == "found":
        base = _base_of(path, names, beside)
    return names if base == "working_directory" else beside


def _base_of(path: str, names: list[str], beside: list[str]) -> str:
    """Where the first file lies that is there."""
    for here, there in zip(names, beside):
        if os.path.exists(here) and os.path.exists(there) and not os.path.samefile(here, there):
            raise ValueError(f"{path} names '{here}', which is one file in the working directory and another in the list's "
                             "folder: set the option 'paths' to working_directory or list")
        if os.path.exists(here) or os.path.exists(there):
            return "list" if os.path.exists(there) else "working_directory"
    return "list"


def _norm_header(path: str, base: str) -> tuple[Shape, bool]:
    """Shape and checksums of a norm data set, as its first file has them."""
    first = listed_paths(path, base)[0]
    with open(first, "rb") as file:
        head = file.read(68)
    checksum = head[:4] == struct.pack("<i", 64)
    words = head[4:68] if checksum else head[:64]
    if len(words) < 64:
        raise errors.make(lib.EMBD_CORRUPT, f"{first}: has no header")
    _, _, label_dim, dense_dim, slots, *_ = struct.unpack("<8q", words)
    return Shape(label_dim, dense_dim, slots), checksum


class Norm(_Native):
    """Binary files named by a list, or by several, one after the other. Shape and checksums are taken from the first file where they are not given;
    no file says whether keys have 64 bits (`i64_keys`) or 32. Options are those of embd_reader_options:
    batch_samples, threads, batches_ahead, slot_sizes, refuse_overlap, max_bad_samples, max_bad_files, share
    ("files" or "batches"), worker, workers, paths ("found", "list" or "working_directory": what paths in lists are
    relative to)."""

    def __init__(self, path: Paths, shape: Optional[Shape] = None, *, i64_keys: bool = False,
                 checksum: Optional[bool] = None, **options: Any):
        if shape is None or checksum is None:
            found = _norm_header(path_list(path)[0], options.get("paths", "found"))
            shape = found[0] if shape is None else shape
            checksum = found[1] if checksum is None else checksum
        super().__init__(path, shape, {"format": "norm", "i64_keys": i64_keys, "checksum": checksum}, options)


class Raw(_Native):
    """One file without a header: 32-bit keys, one for each slot. `integers`: labels and dense values are int32, and a
    dense x is read as log(x + 1). Options as for Norm."""

    def __init__(self, path: Path, shape: Shape, *, integers: bool = False, **options: Any):
        super().__init__(path, shape, {"format": "raw", "integers": integers}, options)


class Writer:
    """Writes a Norm or Raw data set. `format` is "norm" or "raw"; flags: checksum, i64_keys, integers. It is there
    when close() has returned, or the with block has ended well; otherwise what was written is removed."""

    def __init__(self, path: Path, format: str, shape: Shape, *, file_samples: int = 0, **flags: Any):
        self.shape = shape
        out = ffi.new("embd_writer **")
        errors.check(lib.embd_writer_open(os.fsencode(path), _c_shape(shape, {"format": format, **flags}),
                                          file_samples, out))
        self._c = out[0]
        self._path = os.fspath(path)
        self._is_norm = format == "norm"

    def add(self, batch: Batch) -> None:
        self.add_arrays(batch.labels, batch.dense, batch.offsets, batch.keys)

    def add_arrays(self, labels: ArrayLike, dense: ArrayLike, offsets: ArrayLike, keys: ArrayLike) -> None:
        """Samples as Batch has them."""
        ends, all_keys = arrays.unsigned("offsets", offsets), arrays.unsigned("keys", keys)
        if ends.size == 0 or (ends.size - 1) % self.shape.slots:
            raise ValueError(f"{ends.size} offsets are not those of whole samples of {self.shape.slots} slots")
        if ends.max() > all_keys.size:
            raise ValueError(f"offsets go to {ends.max()}, there are {all_keys.size} keys")
        n = (ends.size - 1) // self.shape.slots
        c_labels = arrays.floats("labels", labels, n * self.shape.label_dim)
        c_dense = arrays.floats("dense values", dense, n * self.shape.dense_dim)
        if self._c is None:
            raise ValueError("the writer is closed")
        errors.check(lib.embd_writer_add(self._c, n, arrays.f32(c_labels), arrays.f32(c_dense), arrays.u64(ends),
                                         arrays.u64(all_keys)))

    def close(self) -> None:
        """Completes the data set."""
        c, self._c = self._c, None
        if c is not None:
            errors.check(lib.embd_writer_close(c))

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, kind: Any, *what: Any) -> None:
        is_open = self._c is not None
        self.close()
        if kind is not None and is_open:
            self._remove()

    def _remove(self) -> None:
        """What is there of a data set that is not whole."""
        if self._is_norm:
            with open(self._path, encoding="utf-8") as listing:
                for name in listing.read().splitlines()[1:]:
                    os.unlink(os.path.join(os.path.dirname(self._path), name))
        os.unlink(self._path)
