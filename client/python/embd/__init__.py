"""embd for Python: embedding rows from a cluster of parameter servers, as numpy arrays.

    import embd, numpy as np

    with embd.connect("127.0.0.1:7700") as client:
        items = client.create_table("items", dim=16, optimizer=embd.Optimizer("adagrad", lr=0.1))
        rows = items.pull([7, 9, 7], lengths=[2, 1])      # two bags: {7, 9} and {7}
        items.push([7, 9, 7], np.ones_like(rows), lengths=[2, 1])
        call = items.pull_start(np.arange(1000))          # on its way
        rows = call.wait()

`python -m embd` shows it on a server of its own. PyTorch modules are in embd.torch, data sets in embd.data, files
of dumps in embd.stored. A call that fails raises an embd.Error."""
from __future__ import annotations

import enum

from . import stored
from ._native import ffi as _ffi
from ._native import lib as _lib
from .arrays import jagged
from .changes import Round, follow
from .client import Client, Latency, RebalanceReport, ShardFigures, ShardStats, SnapshotStatus, connect
from .clock import Clock, ClockReport, WorkerWarning
from .csr import Csr
from .errors import (ClosedError, CorruptError, DeadlineError, Error, ExistsError, FullError, InvalidError,
                     LateError, NoMemoryError, RollbackWarning, Status, StorageError, UnknownTableError, UnreachableError, UnsupportedError)
from .job import Checkpoint, Job
from .pusher import Pusher
from .schema import Initializer, Optimizer, Schema
from .sparse import csr_of
from .stored import DumpReport, StoredTable, TableDigest, verify
from .structs import enum_values as _enum_values
from .table import Call, Part, Table
from .tensors import load_safetensors, save_safetensors

__version__: str = _ffi.string(_lib.embd_version()).decode()

KeyStatus = enum.IntEnum("KeyStatus", {name.upper(): number  # type: ignore[misc]
                                       for name, number in _enum_values("embd_key_status").items()})
KeyStatus.__doc__ = "What became of a key: the values of `statuses`."

__all__ = [
    "Call", "Checkpoint", "Client", "Clock", "ClockReport", "ClosedError", "CorruptError", "Csr", "DeadlineError", "DumpReport", "Error",
    "ExistsError", "FullError", "Initializer", "InvalidError", "Job", "KeyStatus", "Latency", "LateError", "NoMemoryError", "Optimizer", "Part", "Pusher",
    "RebalanceReport", "RollbackWarning", "Round", "Schema",
    "ShardFigures", "ShardStats", "SnapshotStatus", "Status", "StorageError", "StoredTable", "Table", "TableDigest", "UnknownTableError", "UnreachableError",
    "UnsupportedError", "WorkerWarning", "connect", "csr_of", "follow", "jagged", "load_safetensors", "save_safetensors", "stored", "verify",
]
