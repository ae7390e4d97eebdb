"""Parquet data sets as HugeCTR has them: a folder of files and `_metadata.json`, and often `_file_list.txt`.

    {"file_stats": [{"file_name": "0.parquet", "num_rows": 1000}, ...],
     "labels": [{"col_name": "label", "index": 0}], "conts": [...], "cats": [...]}

The metadata says which columns are labels, dense values and slots, by name or by number. A slot has one integer; there are no nulls and no nested columns. Needs the package pyarrow."""
from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Optional, Union, cast

import numpy as np

from .. import errors
from .._native import lib
from .batch import Batch, Shape, Source, SparseInput, single_keys
from .native import Paths, listed_paths, path_list

Path = Union[str, "os.PathLike[str]"]
METADATA = "_metadata.json"
GROUPS = ("labels", "conts", "cats")


def _pyarrow() -> Any:
    try:
        import pyarrow  # type: ignore[import-untyped]
        import pyarrow.parquet  # type: ignore[import-untyped]
    except ImportError as error:
        raise ImportError(f"Parquet needs the package pyarrow ({error}): pip install pyarrow, beside numpy 1 "
                          "'pyarrow<20'") from None
    return pyarrow


def _corrupt(path: str, what: str) -> errors.Error:
    return errors.make(lib.EMBD_CORRUPT, f"{path}: {what}")


class _Column(NamedTuple):
    name: str
    number: Optional[int]  # in the file


class _Metadata:
    """_metadata.json, checked."""

    def __init__(self, folder: Path):
        self.path = os.path.join(folder, METADATA)
        try:
            with open(self.path, encoding="utf-8") as file:
                found = json.load(file)
        except OSError as error:
            raise errors.make(lib.EMBD_IO, f"{self.path}: cannot open: {error.strerror}") from None
        except ValueError as error:
            raise _corrupt(self.path, f"is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise _corrupt(self.path, "is not a JSON object")
        self.columns = {group: self._columns(found.get(group, []), group) for group in GROUPS}
        self.files = [self._file(item) for item in self._list(found.get("file_stats"), "file_stats")]
        names = [column.name for group in GROUPS for column in self.columns[group]]
        if len(set(names)) < len(names):
            raise _corrupt(self.path, "names a column twice")
        if not self.columns["cats"]:
            raise _corrupt(self.path, "names no cats")

    def _list(self, value: Any, name: str) -> list[Any]:
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise _corrupt(self.path, f"{name} is not a list of objects")
        return value

    def _columns(self, value: Any, group: str) -> list[_Column]:
        items = self._list(value, group)
        if not all(isinstance(item.get("col_name"), str) for item in items):
            raise _corrupt(self.path, f"a column of {group} has no col_name")
        wrong = [item["index"] for item in items if not isinstance(item.get("index", 0), int) or item.get("index", 0) < 0]
        if wrong:
            raise _corrupt(self.path, f"a column of {group} has the index {wrong[0]!r}")
        return [_Column(item["col_name"], item.get("index")) for item in items]

    def _file(self, item: dict[str, Any]) -> tuple[str, int]:
        name, n_rows = item.get("file_name"), item.get("num_rows")
        if not isinstance(name, str) or os.path.basename(name) != name or name in ("", ".", ".."):
            raise _corrupt(self.path, f"file_name {name!r} is not the name of a file in this folder")
        if not isinstance(n_rows, int) or n_rows < 0:
            raise _corrupt(self.path, f"num_rows of {name} is {n_rows!r}")
        return name, n_rows


def _files_of(path: str, base: str) -> list[tuple[str, int, _Metadata]]:
    """(path, rows, metadata) of each file of a folder or list."""
    if os.path.isdir(path):
        metadata = _Metadata(path)
        return [(os.path.join(path, name), n_rows, metadata) for name, n_rows in metadata.files]
    files = listed_paths(path, base)
    metadata = _Metadata(os.path.dirname(files[0]))
    known = dict(metadata.files)
    absent = [file for file in files if os.path.basename(file) not in known]
    if absent:
        raise _corrupt(metadata.path, f"has no file_stats of {absent[0]}, which {path} names")
    return [(file, known[os.path.basename(file)], metadata) for file in files]


class Parquet(Source):
    """A folder of Parquet files, or its `_file_list.txt`, or several of either. The files of a list lie beside one
    `_metadata.json`.

    missing: the key where a slot is null; None: a null is an error. columns: "name" finds columns by `col_name`,
    "index" by their number in the file, as HugeCTR does. slot_sizes: a key of slot s must be below slot_sizes[s].
    inputs: sparse inputs (SparseInput) by which batches are divided. paths: what paths in a list are relative to, as
    for Norm."""

    def __init__(self, source: Paths, *, batch_samples: int = 1024, missing: Optional[int] = None,
                 columns: str = "name", slot_sizes: Optional[Sequence[int]] = None, inputs: Sequence[SparseInput] = (),
                 paths: str = "found"):
        if columns not in ("name", "index"):
            raise ValueError(f"columns is {columns!r}; it can be name or index")
        self.paths = path_list(source)
        self.batch_samples = batch_samples
        self.missing = missing
        self._by_index = columns == "index"
        self._files = [file for path in self.paths for file in _files_of(path, paths)]
        widths = {tuple(len(found.columns[group]) for group in GROUPS) for _, _, found in self._files} or {
            tuple(len(_Metadata(self.paths[0]).columns[group]) for group in GROUPS)}
        if len(widths) > 1:
            raise _corrupt(", ".join(self.paths), f"have samples of different shapes: {sorted(widths)}")
        label_dim, dense_dim, slots = widths.pop()
        self.shape = Shape(label_dim, dense_dim, slots, tuple(inputs))
        self.slot_sizes = None if slot_sizes is None else np.asarray(slot_sizes, np.uint64)
        if self.slot_sizes is not None and self.slot_sizes.shape != (self.shape.slots,):
            raise ValueError(f"slot_sizes has {self.slot_sizes.size} sizes, and a sample has {self.shape.slots} slots")

    def __iter__(self) -> Iterator[Batch]:
        """Batches do not run across the ends of files."""
        for path, n_rows, metadata in self._files:
            try:
                yield from self._read(path, n_rows, metadata)
            except OSError as error:
                raise _corrupt(path, str(error)) from None

    def _read(self, path: str, n_rows: int, metadata: _Metadata) -> Iterator[Batch]:
        arrow = _pyarrow()
        try:
            file = arrow.parquet.ParquetFile(path)
            if file.metadata.num_rows != n_rows:
                raise _corrupt(path, f"has {file.metadata.num_rows} rows, {METADATA} says {n_rows}")
            columns = {group: [self._name_of(path, column, file.schema_arrow) for column in metadata.columns[group]]
                       for group in GROUPS}
            self._check_columns(path, file.schema_arrow, columns, arrow)
            for table in file.iter_batches(self.batch_samples, columns=[n for group in GROUPS for n in columns[group]]):
                batch = self._batch(path, table, columns)
                yield batch.divided(self.shape.inputs) if self.shape.inputs else batch
        except arrow.ArrowInvalid as error:
            raise _corrupt(path, str(error)) from None

    def _name_of(self, path: str, column: _Column, schema: Any) -> str:
        if not self._by_index:
            return column.name
        if column.number is None or column.number >= len(schema.names):
            raise _corrupt(path, f"has {len(schema.names)} columns; column '{column.name}' has the index {column.number}")
        name: str = schema.names[column.number]
        return name

    def _check_columns(self, path: str, schema: Any, columns: dict[str, list[str]], arrow: Any) -> None:
        cats = set(columns["cats"])
        for name in (name for group in GROUPS for name in columns[group]):
            number = schema.get_field_index(name)
            if number < 0:
                raise _corrupt(path, f"has no column '{name}'")
            kind = schema.field(number).type
            is_good = arrow.types.is_integer(kind) or (name not in cats and arrow.types.is_floating(kind))
            if not is_good:
                raise _corrupt(path, f"column '{name}' is {kind}; {'an integer' if name in cats else 'a float'} is expected")

    def _column(self, path: str, table: Any, name: str, dtype: Any) -> Any:
        column = table.column(name)
        if column.null_count:
            if dtype != np.int64 or self.missing is None:
                raise _corrupt(path, f"column '{name}' has {column.null_count} nulls")
            column = column.fill_null(self.missing)
        return column.to_numpy(zero_copy_only=False).astype(dtype, copy=False)

    def _check_range(self, path: str, keys: Any) -> None:
        beyond = np.argwhere(keys >= self.slot_sizes)
        if beyond.size:
            slot, sizes = int(beyond[0][1]), cast(Any, self.slot_sizes)
            raise _corrupt(path, f"slot {slot} has key {keys[tuple(beyond[0])]}; its size is {sizes[slot]}")

    def _batch(self, path: str, table: Any, columns: dict[str, list[str]]) -> Batch:
        n = table.num_rows

        def matrix(group: str, dtype: Any) -> Any:
            out = np.empty((n, len(columns[group])), dtype)
            for i, name in enumerate(columns[group]):
                out[:, i] = self._column(path, table, name, dtype)
            return out

        keys = matrix("cats", np.int64).view(np.uint64)
        if self.slot_sizes is not None:
            self._check_range(path, keys)
        keys = keys.reshape(-1)
        return Batch(matrix("labels", np.float32), matrix("conts", np.float32), np.arange(keys.size + 1, dtype=np.uint64),
                     keys, self.shape.slots)


class ParquetWriter:
    """Writes a folder of Parquet files of `file_samples` samples (0: one file), and `_metadata.json` last. Columns are
    called label0.., dense0.., slot0.. . Written under another name and renamed when it is whole."""

    def __init__(self, folder: Path, shape: Shape, *, file_samples: int = 0):
        _pyarrow()
        self.path = os.fspath(folder)
        self.shape = shape
        self._file_samples = file_samples or 2**63
        self._room = 0  # samples that the open file still takes
        self._file: Any = None
        self._stats: list[dict[str, Any]] = []
        self._names = {group: [f"{word}{i}" for i in range(n)] for group, word, n in
                       zip(GROUPS, ("label", "dense", "slot"), (shape.label_dim, shape.dense_dim, shape.slots))}
        if os.path.lexists(self.path):
            raise errors.make(lib.EMBD_EXISTS, f"{self.path}: is there already")
        self._work = f"{self.path}.tmp-{os.getpid()}"
        os.mkdir(self._work)

    def add(self, batch: Batch) -> None:
        keys = single_keys(batch, "a Parquet data set").view(np.int64)
        first = 0
        while first < batch.n_samples:
            if self._room == 0:
                self._next_file()
            end = min(batch.n_samples, first + self._room)
            self._write(batch.labels[first:end], batch.dense[first:end], keys[first:end])
            self._room -= end - first
            self._stats[-1]["num_rows"] += end - first
            first = end

    def _next_file(self) -> None:
        self._end_file()
        arrow = _pyarrow()
        fields = [(name, arrow.int64() if group == "cats" else arrow.float32())
                  for group in GROUPS for name in self._names[group]]
        name = f"{len(self._stats)}.parquet"
        self._file = arrow.parquet.ParquetWriter(os.path.join(self._work, name), arrow.schema(fields))
        self._stats.append({"file_name": name, "num_rows": 0})
        self._room = self._file_samples

    def _write(self, *matrices: Any) -> None:
        arrow = _pyarrow()
        columns = [arrow.array(np.ascontiguousarray(matrix[:, i])) for matrix in matrices for i in range(matrix.shape[1])]
        self._file.write_table(arrow.Table.from_arrays(columns, schema=self._file.schema))

    def _end_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def close(self) -> None:
        """Completes the data set."""
        if self._file is None and not self._stats:
            self._next_file()
        self._end_file()
        number = 0
        found: dict[str, Any] = {"file_stats": self._stats}
        for group in GROUPS:
            found[group] = [{"col_name": name, "index": number + i} for i, name in enumerate(self._names[group])]
            number += len(self._names[group])
        with open(os.path.join(self._work, METADATA), "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)
        os.rename(self._work, self.path)

    def __enter__(self) -> "ParquetWriter":
        return self

    def __exit__(self, kind: Any, *what: Any) -> None:
        if kind is None:
            self.close()
            return
        self._end_file()
        for name in os.listdir(self._work):
            os.unlink(os.path.join(self._work, name))
        os.rmdir(self._work)
