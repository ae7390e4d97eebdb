"""Files of well-known data sets, as their publishers distribute them, to batches. Nothing is downloaded.

Values become keys without a dictionary: a hexadecimal value is that number, a decimal one that number. Keys of
different slots overlap, so a table for all of them has partition "slot"; or each slot has a table of its own."""
from __future__ import annotations

import csv
import gzip
import math
import os
from collections.abc import Iterator
from typing import Any, NoReturn, Optional, TextIO, Union

from .. import errors
from .._native import lib
from .batch import Batch, Sample, Shape, Source, batches

Path = Union[str, "os.PathLike[str]"]


def _open(path: str) -> TextIO:
    if path.endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return open(path, encoding="utf-8", newline="")


class _Lines(Source):
    """A text file with a sample a line. `missing`: the key of an absent value; None: its slot is empty."""

    what = ""

    def __init__(self, path: Path, *, batch_samples: int = 1024, missing: Optional[int] = None):
        self.path = os.fspath(path)
        self.batch_samples = batch_samples
        self.missing = missing

    def __iter__(self) -> Iterator[Batch]:
        return batches(self._samples(), self.shape, self.batch_samples)

    def _samples(self) -> Iterator[Sample]:
        number = 0
        with _open(self.path) as file:
            try:
                for number, fields in enumerate(self._rows(file), 1):
                    yield self._sample(fields)
            except (ValueError, csv.Error, EOFError, gzip.BadGzipFile) as error:
                self._refuse(number, str(error))

    def _refuse(self, number: int, reason: str) -> NoReturn:
        raise errors.make(lib.EMBD_CORRUPT, f"{self.path}: sample {number} is not of {self.what}: {reason}") from None

    def _rows(self, file: TextIO) -> Iterator[list[str]]:
        raise NotImplementedError

    def _sample(self, fields: list[str]) -> Sample:
        raise NotImplementedError

    def _keys(self, texts: list[str], base: int) -> list[list[int]]:
        absent = [] if self.missing is None else [self.missing]
        return [[int(text, base)] if text else absent for text in texts]


def _expect(fields: list[str], n: int) -> None:
    if len(fields) != n:
        raise ValueError(f"it has {len(fields)} fields, {n} are expected")


class Criteo(_Lines):
    """The Criteo click logs (Kaggle's train.txt, the terabyte's day_N, also .gz): a label, 13 integers, 26 hexadecimal
    values, separated by tabs. Dense values are log(x + 1), 0 where x is absent or negative. Lines without the label
    (Kaggle's test.txt) have the label 0."""

    what = "a Criteo log"
    shape = Shape(1, 13, 26)

    def _rows(self, file: TextIO) -> Iterator[list[str]]:
        return (line.rstrip("\r\n").split("\t") for line in file)

    def _sample(self, fields: list[str]) -> Sample:
        if len(fields) == 39:
            fields = ["0", *fields]
        _expect(fields, 40)
        dense = [math.log1p(max(0, int(text))) if text else 0.0 for text in fields[1:14]]
        return Sample([float(fields[0])], dense, self._keys(fields[14:], 16))


class Avazu(_Lines):
    """Avazu's train.csv (or test.csv, whose labels are 0 here), also .gz. Slots are the 22 columns after id, click:
    `hour` (YYMMDDHH) becomes the hour of the day, columns of hexadecimal names and decimal C columns are numbers."""

    what = "the Avazu log"
    decimal = ("C1", "banner_pos", "device_type", "device_conn_type", *(f"C{i}" for i in range(14, 22)))
    hexadecimal = ("site_id", "site_domain", "site_category", "app_id", "app_domain", "app_category", "device_id",
                   "device_ip", "device_model")
    columns = ("hour", "C1", "banner_pos", "site_id", "site_domain", "site_category", "app_id", "app_domain",
               "app_category", "device_id", "device_ip", "device_model", "device_type", "device_conn_type",
               *(f"C{i}" for i in range(14, 22)))
    shape = Shape(1, 0, len(columns))

    def _rows(self, file: TextIO) -> Iterator[list[str]]:
        rows = csv.reader(file)
        header: list[str] = next(rows, [])
        absent = [name for name in self.columns if name not in header]
        if absent:
            raise ValueError(f"the header has no column {', '.join(absent)}")
        self._at = [header.index(name) for name in self.columns]
        self._label = header.index("click") if "click" in header else None
        self._n = len(header)
        return rows

    def _sample(self, fields: list[str]) -> Sample:
        _expect(fields, self._n)
        keys = []
        for name, at in zip(self.columns, self._at):
            text = fields[at][-2:] if name == "hour" else fields[at]
            keys += self._keys([text], 16 if name in self.hexadecimal else 10)
        label = 0.0 if self._label is None else float(fields[self._label])
        return Sample([label], [], keys)


class MovieLens(_Lines):
    """Ratings of MovieLens: the folder or the file of ml-100k (u.data), ml-1m and ml-10m (ratings.dat), ml-20m and
    later (ratings.csv). Slots are user and movie; the label is the rating, or, with `positive_from`, whether it is
    at least that."""

    what = "MovieLens ratings"
    shape = Shape(1, 0, 2)
    files = {"ratings.csv": ",", "ratings.dat": "::", "u.data": "\t"}

    def __init__(self, path: Path, *, positive_from: Optional[float] = None, **options: Any):
        path = os.fspath(path)
        if os.path.isdir(path):
            found = [name for name in self.files if os.path.isfile(os.path.join(path, name))]
            if not found:
                raise errors.make(lib.EMBD_INVALID, f"{path}: has none of {', '.join(self.files)}")
            path = os.path.join(path, found[0])
        super().__init__(path, **options)
        self.positive_from = positive_from
        self._separator = self.files.get(os.path.basename(path).removesuffix(".gz"), ",")

    def _rows(self, file: TextIO) -> Iterator[list[str]]:
        if self._separator == ",":
            header = next(file, "").rstrip("\r\n")
            if not header.startswith("userId,movieId,rating"):
                raise ValueError(f"the header is {header!r}, not userId,movieId,rating,timestamp")
        return (line.rstrip("\r\n").split(self._separator) for line in file)

    def _sample(self, fields: list[str]) -> Sample:
        _expect(fields, 4)
        rating = float(fields[2])
        label = rating if self.positive_from is None else float(rating >= self.positive_from)
        return Sample([label], [], self._keys(fields[:2], 10))
