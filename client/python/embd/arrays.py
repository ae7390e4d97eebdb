"""numpy arrays as the C library takes them: contiguous, of its types, not copied when they are so already.

Keys may be int64 as well as uint64: the same 64 bits. What has another type is converted, which is a copy; an
array that is written to is never converted, but refused. Sizes are checked here against the batch, because the
C library has no way to know how long an array is."""
from __future__ import annotations

from typing import Any, Optional, Union

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._native import ffi

Keys = Union[NDArray[np.uint64], NDArray[np.int64], ArrayLike]
Floats = NDArray[np.float32]

_U64 = np.dtype(np.uint64)
_F32 = np.dtype(np.float32)


def unsigned(name: str, values: Any) -> NDArray[np.uint64]:
    """Keys, offsets or lengths as uint64."""
    array = np.asarray(values)
    if array.dtype is not _U64:
        if array.dtype.kind == "i":
            array = array.astype(np.int64, copy=False).view(_U64)
        elif array.dtype.kind == "u":
            array = array.astype(_U64, copy=False)
        elif array.size == 0:
            array = np.empty(array.shape, _U64)
        else:
            raise TypeError(f"{name} are {array.dtype}; 64-bit integers are expected")
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def offsets_of(lengths: Any) -> NDArray[np.uint64]:
    """[n + 1] offsets of rows of the given lengths."""
    array = np.asarray(lengths)
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"lengths are {array.dtype}; integers are expected")
    if array.dtype.kind == "i" and array.size and array.min() < 0:
        raise ValueError(f"lengths: the least is {array.min()}")
    out = np.zeros(array.size + 1, _U64)
    np.cumsum(array.reshape(-1), out=out[1:], dtype=_U64)
    return out


def floats(name: str, values: Any, size: int) -> Floats:
    """An input of float32."""
    array = np.asarray(values)
    if array.dtype is not _F32:
        if array.dtype.kind not in "fiu":
            raise TypeError(f"{name} are {array.dtype}; float32 is expected")
        array = array.astype(_F32, copy=False)
    if array.size != size:
        raise ValueError(f"{name} have {array.size} elements, the batch has room for {size}")
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def rate(name: str, value: float) -> float:
    """A learning rate that float32 can hold."""
    with np.errstate(over="ignore", under="ignore"):
        lr = float(np.float32(value))
    if not 0 < lr < np.inf:
        raise ValueError(f"{name} is {value}; a finite float32 above 0 is expected")
    return lr


def output(name: str, array: Any, dtype: Any, size: int) -> Any:
    """An array that C writes to."""
    if not isinstance(array, np.ndarray) or array.dtype != dtype:
        raise TypeError(f"{name} must be an array of {np.dtype(dtype)}")
    if array.size != size:
        raise ValueError(f"{name} has {array.size} elements, {size} are expected")
    if not array.flags.c_contiguous or not array.flags.writeable:
        raise ValueError(f"{name} must be contiguous and writable")
    return array


def u64(array: NDArray[np.uint64]) -> Any:
    return ffi.from_buffer("uint64_t[]", array)


def f32(array: Floats) -> Any:
    return ffi.from_buffer("float[]", array)


def u8(array: NDArray[np.uint8]) -> Any:
    return ffi.from_buffer("uint8_t[]", array)


class _Lent:
    """Memory of the library's as numpy sees it: keeps the owner alive as long as an array looks at it."""

    def __init__(self, owner: Any, pointer: Any, dtype: Any, shape: tuple[int, ...]):
        self._owner = owner
        address = int(ffi.cast("uintptr_t", pointer))
        self.__array_interface__ = {"version": 3, "typestr": np.dtype(dtype).str, "shape": shape,
                                    "data": (address, True), "strides": None}


def lent(owner: Any, pointer: Any, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """A read-only array over memory that belongs to `owner`; nothing is copied."""
    if pointer == ffi.NULL or 0 in shape:
        return np.zeros(shape, dtype)
    return np.asarray(_Lent(owner, pointer, dtype, shape))


def jagged(rows: Any) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """(keys, lengths) of a list of lists of keys."""
    lists = [unsigned("keys", row).reshape(-1) for row in rows]
    keys = np.concatenate(lists) if lists else np.empty(0, _U64)
    return keys, np.array([len(row) for row in lists], _U64)


OptionalFloats = Optional[Floats]
