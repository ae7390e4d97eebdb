"""Parquet data sets as HugeCTR has them: a folder of files and `_metadata.json`.

    {"file_stats": [{"file_name": "0.parquet", "num_rows": 1000}, ...],
     "labels": [{"col_name": "label", "index": 0}], "conts": [...], "cats": [...]}

The metadata says which columns are labels, dense values and slots; their order in the files does not matter. A slot
has one integer; there are no nulls and no nested columns. Needs the package pyarrow."""
from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, Optional, Union

import numpy as np

from .. import errors
from .._native import lib
from .batch import Batch, Shape, Source, single_keys

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


class _Metadata:
    """_metadata.json, checked."""

    def __init__(self, folder: Path):
        self.path = os.path.join(folder, METADATA)
        with open(self.path, encoding="utf-8") as file:
            try:
                found = json.load(file)
            except ValueError as error:
                raise _corrupt(self.path, f"is no JSON: {error}") from None
        if not isinstance(found, dict):
            raise _corrupt(self.path, "is no JSON object")
        self.columns = {group: self._columns(found.get(group, []), group) for group in GROUPS}
        self.files = [self._file(item) for item in self._list(found.get("file_stats"), "file_stats")]
        names = [name for group in GROUPS for name in self.columns[group]]
        if len(set(names)) < len(names):
            raise _corrupt(self.path, "names a column twice")
        if not self.columns["cats"]:
            raise _corrupt(self.path, "names no cats")

    def _list(self, value: Any, name: str) -> list[Any]:
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise _corrupt(self.path, f"{name} is no list of objects")
        return value

    def _columns(self, value: Any, group: str) -> list[str]:
        items = self._list(value, group)
        if not all(isinstance(item.get("col_name"), str) for item in items):
            raise _corrupt(self.path, f"a column of {group} has no col_name")
        return [item["col_name"] for item in items]

    def _file(self, item: dict[str, Any]) -> tuple[str, int]:
        name, n_rows = item.get("file_name"), item.get("num_rows")
        if not isinstance(name, str) or os.path.basename(name) != name or name in ("", ".", ".."):
            raise _corrupt(self.path, f"file_name {name!r} is no name of a file in this folder")
        if not isinstance(n_rows, int) or n_rows < 0:
            raise _corrupt(self.path, f"num_rows of {name} is {n_rows!r}")
        return name, n_rows


class Parquet(Source):
    """A folder of Parquet files. `missing`: the key where a slot is null; None: a null is an error."""

    def __init__(self, folder: Path, *, batch_samples: int = 1024, missing: Optional[int] = None):
        self.path = os.fspath(folder)
        self.batch_samples = batch_samples
        self.missing = missing
        self._metadata = _Metadata(folder)
        columns = self._metadata.columns
        self.shape = Shape(*(len(columns[group]) for group in GROUPS))

    def __iter__(self) -> Iterator[Batch]:
        """Batches do not run across the ends of files."""
        for name, n_rows in self._metadata.files:
            yield from self._read(os.path.join(self.path, name), n_rows)

    def _read(self, path: str, n_rows: int) -> Iterator[Batch]:
        arrow = _pyarrow()
        try:
            file = arrow.parquet.ParquetFile(path)
        except arrow.ArrowInvalid as error:
            raise _corrupt(path, str(error)) from None
        if file.metadata.num_rows != n_rows:
            raise _corrupt(path, f"has {file.metadata.num_rows} rows, {METADATA} says {n_rows}")
        wanted = [name for group in GROUPS for name in self._metadata.columns[group]]
        self._check_columns(path, file.schema_arrow, wanted, arrow)
        for table in file.iter_batches(self.batch_samples, columns=wanted):
            yield self._batch(path, table)

    def _check_columns(self, path: str, schema: Any, wanted: list[str], arrow: Any) -> None:
        cats = set(self._metadata.columns["cats"])
        for name in wanted:
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

    def _batch(self, path: str, table: Any) -> Batch:
        columns, n = self._metadata.columns, table.num_rows

        def matrix(group: str, dtype: Any) -> Any:
            out = np.empty((n, len(columns[group])), dtype)
            for i, name in enumerate(columns[group]):
                out[:, i] = self._column(path, table, name, dtype)
            return out

        keys = matrix("cats", np.int64).reshape(-1).view(np.uint64)
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
