"""The C library's batch builder: rows and keys one by one, with samples that can be taken back."""
from __future__ import annotations

from typing import Any, Optional

import numpy as np

from . import errors, structs
from ._native import ffi, lib
from .table import Part, Table


class Csr:
    """A batch for at most `max_rows` rows and `max_keys` keys. part() copies what is there by then.

        csr = embd.Csr(2, 8)
        csr.row(); csr.push(7); csr.push(9, weight=0.5)
        table.client.pull([csr.part(table)])"""

    def __init__(self, max_rows: int, max_keys: int):
        out = ffi.new("embd_csr **")
        errors.check(lib.embd_csr_new(max_rows, max_keys, out))
        self._c = ffi.gc(out[0], lib.embd_csr_free)

    def row(self) -> None:
        """Begins a row."""
        errors.check(lib.embd_csr_row(self._c))

    def push(self, key: int, weight: Optional[float] = None) -> None:
        """Adds a key to the last row."""
        key &= 2**64 - 1
        if weight is None:
            errors.check(lib.embd_csr_push(self._c, key))
        else:
            errors.check(lib.embd_csr_push_weighted(self._c, key, weight))

    def check_point(self) -> None:
        lib.embd_csr_check_point(self._c)

    def roll_back(self) -> None:
        """Back to the last check point."""
        lib.embd_csr_roll_back(self._c)

    def reset(self) -> None:
        lib.embd_csr_reset(self._c)

    def part(self, table: Table, **more: Any) -> Part:
        """The batch as a Part of `table`; `more`: values, statuses, raw."""
        c_part = structs.new("embd_part")
        lib.embd_csr_part(self._c, c_part)

        def copy(pointer: Any, dtype: Any, n: int) -> Any:
            if pointer == ffi.NULL or n == 0:
                return np.zeros(n, dtype)
            return np.frombuffer(ffi.buffer(pointer, n * np.dtype(dtype).itemsize), dtype).copy()

        weights = None if c_part.weights == ffi.NULL else copy(c_part.weights, np.float32, c_part.n_keys)
        return Part(table, copy(c_part.keys, np.uint64, c_part.n_keys),
                    copy(c_part.offsets, np.uint64, c_part.n_rows + 1), weights=weights, **more)
