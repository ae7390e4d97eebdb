"""Other frameworks' sparse batches as the CSR batch of a call: rows of a fixed number of keys, and COO tensors."""
from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import arrays

U64s = NDArray[np.uint64]


def csr_of(batch: Any) -> tuple[U64s, U64s]:
    """(keys, offsets) of a batch whose last dimension is the keys of a row; the dimensions before it are the rows, so that
    [samples, slots, keys] gives row sample * slots + slot. `batch` is

    - an array or tensor [..., k] of keys: each row has k;
    - a COO tensor of torch (torch.sparse_coo_tensor), tensorflow (tf.SparseTensor) or scipy (coo_matrix, coo_array) whose
      values are keys. Entries may stand in any order. A row's keys come in the order of their columns, those of one column in
      the order they stand in. A row without entries has no keys.

        keys, offsets = embd.csr_of(torch.sparse_coo_tensor([[0, 0, 2], [0, 1, 0]], [7, 9, 7], (3, 2)))
        table.pull(keys, offsets)  # the rows {7, 9}, {} and {7}"""
    found = _coo(batch)
    if found is None:
        keys = arrays.unsigned("keys", batch)
        if keys.ndim < 2 or keys.shape[-1] == 0:
            raise ValueError(f"keys are {keys.shape}; [rows, k] with one key a row or more is expected")
        return keys.reshape(-1), np.arange(0, keys.size + 1, keys.shape[-1], dtype=np.uint64)
    places, values, shape = found
    keys = arrays.unsigned("keys", values)
    if len(shape) < 2 or places.shape != (len(shape), keys.size) or keys.ndim != 1:
        raise ValueError(f"a COO batch has {places.shape} places, {keys.shape} keys and the shape {shape}; [rows, k] with one key "
                         "for each place is expected")
    for axis, size in enumerate(shape):
        if keys.size and not (0 <= places[axis].min() and places[axis].max() < size):
            raise ValueError(f"a COO batch has places {places[axis].min()} to {places[axis].max()} in dimension {axis}, whose size "
                             f"is {size}")
    rows = np.ravel_multi_index(tuple(places[:-1]), shape[:-1]) if keys.size else np.zeros(0, np.int64)
    order = np.lexsort((places[-1], rows))
    counts = np.bincount(rows, minlength=int(np.prod(shape[:-1])))
    return keys[order], arrays.offsets_of(counts)


def _coo(batch: Any) -> Any:
    """(places [dimensions, n], values [n], shape) of a COO tensor; None: it is none. torch would add the keys of one place up
    (coalesce), so they are taken as they stand."""
    if getattr(batch, "is_sparse", False):
        return np.asarray(batch._indices()), np.asarray(batch._values()), tuple(batch.shape)
    if hasattr(batch, "dense_shape"):
        return np.asarray(batch.indices).T, np.asarray(batch.values), tuple(int(size) for size in np.asarray(batch.dense_shape))
    if all(hasattr(batch, name) for name in ("row", "col", "data")):
        return np.stack([np.asarray(batch.row), np.asarray(batch.col)]), np.asarray(batch.data), tuple(batch.shape)
    return None
