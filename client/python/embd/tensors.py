"""Tables as safetensors files: their keys, rows and optimizer state as tensors, for tools of any framework.

A file has the tensors "keys" [n] (int64, the 64 bits of each key), "values" [n, dim] (float32), in tables with partition "slot"
"slots" [n] (int32), and with their state "states" [n, state_floats] (float32), in the order of PROTOCOL.md, "Rows in bulk". Its
metadata has the table's name, optimizer and step. The package safetensors reads and writes them: pip install safetensors."""
from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Any, Optional, Union

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .table import Table

Path = Union[str, "os.PathLike[str]"]
_FORMAT = "embd.table.1"
_KEYS = ("int64", "uint64")
_STEP_MOST = 2**47
_LARGEST = {"f32": 3.4028235e38, "f16": 65519.996, "bf16": 3.3961775e38}  # that are not rounded to infinity


def save_safetensors(table: "Table", path: Path, *, states: bool = True) -> int:
    """Writes a table's rows into a file; a file of that name is replaced when the new one is whole. Returns how many rows. This
    process holds all of them in memory. If others push meanwhile, rows are of different moments (Table.scan)."""
    numpy = package()
    step = table.step
    parts = list(table.scan(values=True, states=states))
    tensors = {"keys": _joined([part.keys.view(np.int64) for part in parts], np.zeros(0, np.int64)),
               "values": _joined([part.values for part in parts], np.zeros((0, table.dim), np.float32))}
    if table.schema.partition == "slot":
        tensors["slots"] = _joined([part.slots for part in parts], np.zeros(0, np.uint16)).astype(np.int32)
    if states:
        tensors["states"] = _joined([part.states for part in parts], np.zeros((0, table.state_floats), np.float32))
    about = {"format": _FORMAT, "table": table.name, "optimizer": table.schema.optimizer.kind, "step": str(step)}
    write(os.fspath(path), lambda name: numpy.save_file(tensors, name, metadata=about))
    return len(tensors["keys"])


def load_safetensors(table: "Table", path: Path) -> int:
    """Puts the rows of a file into a table: of save_safetensors, or any with "keys" (int64 or uint64) and "values" (float32, float16).
    Rows without "states" get the state of new rows. With states the table needs the same optimizer, and its step becomes the
    file's, if that is higher. All of it is checked before the first row is written. Returns how many keys had no row before."""
    package()
    from safetensors import safe_open
    with safe_open(os.fspath(path), framework="numpy") as file:
        about = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    keys, values, states, slots = _checked(table, os.fspath(path), tensors)
    step = 0
    if states is not None and about.get("format") == _FORMAT:
        kind = about.get("optimizer")
        if kind != table.schema.optimizer.kind:
            raise ValueError(f"{path}: states are of the optimizer {kind}; table {table.name} has {table.schema.optimizer.kind}")
        step = max(_step(path, about.get("step", "0")), table.step)
    return table.put(keys.view(np.uint64), values, states, slots=slots, step=step)


def _step(path: Path, text: str) -> int:
    if not text.isdecimal() or int(text) > _STEP_MOST:
        raise ValueError(f"{path}: step is {text[:40]!r}; a whole number up to {_STEP_MOST} is expected")
    return int(text)


def package() -> Any:
    """safetensors.numpy, or an ImportError that says how to get it."""
    try:
        from safetensors import numpy
    except ImportError:
        raise ImportError("safetensors files need the package safetensors: pip install 'embd[safetensors]', or pip install "
                          "safetensors") from None
    return numpy


def _joined(parts: list[Any], none: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(np.concatenate(parts)) if parts else none


def write(path: str, write: Any) -> None:
    """Into a file beside it, which is on the disk before it gets its name."""
    folder = os.path.dirname(path) or "."
    handle, name = tempfile.mkstemp(prefix=f".{os.path.basename(path)}.", dir=folder)
    try:
        os.close(handle)
        write(name)
        with open(name, "rb") as file:
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _checked(table: "Table", path: str, tensors: dict[str, NDArray[Any]]
             ) -> tuple[NDArray[Any], NDArray[np.float32], Optional[NDArray[np.float32]], Optional[NDArray[Any]]]:
    unknown = set(tensors) - {"keys", "values", "states", "slots"}
    has_slots = table.schema.partition == "slot"
    if unknown or "keys" not in tensors or "values" not in tensors or ("slots" in tensors) != has_slots:
        wanted = "keys, values" + (", slots" if has_slots else "") + " and perhaps states"
        raise ValueError(f"{path} has the tensors {', '.join(sorted(tensors)) or 'none'}; table {table.name} takes {wanted}")
    keys, values, states = tensors["keys"], tensors["values"], tensors.get("states")
    if keys.ndim != 1 or keys.dtype.name not in _KEYS:
        raise ValueError(f"{path}: keys is {keys.dtype.name} {keys.shape}; int64 or uint64 of one dimension is expected")
    _check_shape(path, "values", values, (len(keys), table.dim))
    if states is not None:
        _check_shape(path, "states", states, (len(keys), table.state_floats))
        states = states.astype(np.float32)
    slots = tensors.get("slots")
    if slots is not None and slots.shape != keys.shape:
        raise ValueError(f"{path}: slots is {slots.shape}; {keys.shape} is expected")
    values = values.astype(np.float32)
    if not table.schema.admit_nonfinite:
        _check_finite(path, "values", keys, values, _LARGEST.get(table.schema.dtype, _LARGEST["f32"]))
        if states is not None:
            _check_finite(path, "states", keys, states, _LARGEST["f32"])
    return keys, values, states, slots


def _check_finite(path: str, name: str, keys: NDArray[Any], tensor: NDArray[np.float32], most: float) -> None:
    bad = ~(np.abs(tensor) <= np.float32(most))
    if bad.any():
        row, column = (int(at[0]) for at in np.nonzero(bad))
        raise ValueError(f"{path}: {name}: key {keys.view(np.uint64)[row]}, column {column} is {tensor[row, column]}; the table admits finite numbers "
                         f"up to {most:.8g}")


def _check_shape(path: str, name: str, tensor: NDArray[Any], shape: tuple[int, int]) -> None:
    if tensor.shape != shape or tensor.dtype.name not in ("float32", "float16"):
        raise ValueError(f"{path}: {name} is {tensor.dtype.name} {tensor.shape}; float32 or float16 {shape} is expected")
