"""A job: tables under one name, and checkpoints of these with the trainer's own state.

    job = embd.Job(client, "ranker", "/var/lib/embd")
    at = job.resume(model, optimizer)                  # tables and dense state go back together; None: begin
    items = job.table("items", dim=16)
    if at is None:
        job.checkpoint(0, model, optimizer)            # before the first push
    for step in range(at.step if at else 0, 1000):
        ...                                            # pull, compute, push
        if (step + 1) % 100 == 0:
            job.checkpoint(step + 1, model, optimizer)

A trainer that was killed anywhere, or whose servers were, resumes and ends with the rows of an undisturbed run. Of several
workers one makes the checkpoint, while the others wait."""
from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, NamedTuple, Optional, TypeVar, Union

from . import stored
from .client import Client
from .errors import Error, ExistsError, Status
from .stored import DumpReport, Path
from .table import Table

STEP, DENSE = "embd-step", "embd-torch"  # blobs
PATIENCE_S = 60.0  # for another snapshot, or what a trainer that died has begun
ATTEMPTS = 100

T = TypeVar("T")


class Checkpoint(NamedTuple):
    name: str  # of the snapshot
    step: int
    blobs: dict[str, bytes]  # those of the caller


class Job:
    """`directory`: the data directory of the servers, as this host reads it; of several server processes a sequence of
    theirs. `keep`: how many checkpoints stay."""

    def __init__(self, client: Client, name: str, directory: Union[Path, Sequence[Path]], *, keep: int = 2):
        if "--" in name or name.endswith("-"):
            raise ValueError(f"job {name!r}: '--' separates its name from those of its tables")
        self.client, self.name, self.keep = client, name, keep
        self.prefix = f"{name}--"
        paths = [directory] if isinstance(directory, (str, os.PathLike)) else directory
        self.directories = [os.fspath(path) for path in paths]

    def table(self, name: str, dim: int, **fields: Any) -> Table:
        """Creates or opens the job's table; its name on the servers is JOB--NAME. As Client.create_table."""
        return self.client.create_table(self.prefix + name, dim, **fields)

    def tables(self) -> list[str]:
        """Names of its tables, as the servers have them."""
        return [name for name in self.client.tables() if name.startswith(self.prefix)]

    # ---- making one ----

    def checkpoint(self, step: int, model: Any = None, optimizer: Any = None,
                   blobs: Optional[Mapping[str, bytes]] = None) -> DumpReport:
        """One cut of the job's tables, with the state of a torch model and optimizer and with `blobs`; the `keep` newest
        stay. Call it while no worker of the job has a push under way."""
        files = {**(blobs or {}), STEP: b"%d" % step}
        if model is not None or optimizer is not None:
            files[DENSE] = _dense(model, optimizer)
        for attempt in range(ATTEMPTS):
            name = f"{self.name}-{step}" + (f"-r{attempt}" if attempt else "")
            with contextlib.suppress(_Exists):
                return self._snapshot(name, files)
        raise ValueError(f"job {self.name!r} has {ATTEMPTS} checkpoints of step {step}; remove them")

    def _snapshot(self, name: str, files: Mapping[str, bytes]) -> DumpReport:
        """A killed server may have left the name: then that is removed. What is complete somewhere keeps it."""
        for is_last in (False, True):
            try:
                return _patiently(lambda: self.client.snapshot(name, files, keep=self.keep, job=self.name,
                                                               tables=[self.prefix + "*"]))
            except ExistsError as failed:
                if is_last:
                    raise _Exists from failed
                _patiently(lambda: self.client.snapshot_cancel(name))
        raise AssertionError

    # ---- going back ----

    def resume(self, model: Any = None, optimizer: Any = None) -> Optional[Checkpoint]:
        """Puts the tables of the newest complete checkpoint back in their place, loads the dense state, and returns it.
        Tables that the job made since are dropped; those of others are not touched. A worker of the job that still pushes
        gets an Error. None, and nothing is changed, if there is no checkpoint. Where a call fails, call it again."""
        name = self._newest()
        if name is None:
            return None
        with self._gathered(name) as path:
            there = {table.name for table in stored.tables(path)}
            for extra in sorted(set(self.tables()) - there):
                self.client.drop_table(extra)
            _patiently(lambda: self.client.load(path, replace=True))
            blobs = {blob: stored.blob(path, blob) for blob in stored.blobs(path)}
        dense = blobs.pop(DENSE, None)
        if dense is not None:
            _load_dense(dense, model, optimizer)
        return Checkpoint(name, int(blobs.pop(STEP)), blobs)

    def _newest(self) -> Optional[str]:
        """Complete in all directories."""
        found: list[tuple[int, str]] = []
        for name in os.listdir(self.directories[0]):
            manifests = [_manifest(os.path.join(path, name)) for path in self.directories]
            first = manifests[0]
            if first.get("job") == self.name and all(m.get("id") == first["id"] for m in manifests):
                found.append((int(first.get("sequence", 0)), name))
        return max(found)[1] if found else None

    @contextlib.contextmanager
    def _gathered(self, name: str) -> Iterator[str]:
        """One directory with the shares of all processes."""
        if len(self.directories) == 1:
            yield os.path.join(self.directories[0], name)
            return
        with tempfile.TemporaryDirectory(prefix="embd-job-") as gathered:
            for i, path in enumerate(self.directories):
                os.symlink(os.path.abspath(os.path.join(path, name)), os.path.join(gathered, str(i)))
            yield gathered


class _Exists(Exception):
    """A snapshot of that name is complete."""


def _manifest(path: str) -> dict[str, Any]:
    """{}: it is no complete snapshot."""
    try:
        with open(os.path.join(path, "manifest.json"), encoding="utf-8") as file:
            read = json.load(file)
    except (OSError, ValueError):
        return {}
    return read if isinstance(read, dict) and not path.endswith((".tmp", ".gone")) else {}


def _patiently(act: Callable[[], T]) -> T:
    """Again while the servers make or load another snapshot."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            return act()
        except Error as failed:
            if failed.status != Status["BUSY"] or time.monotonic() > end:
                raise
        time.sleep(0.05)


def _dense(model: Any, optimizer: Any) -> bytes:
    from .torch import flush, state  # pylint: disable=import-outside-toplevel
    if model is not None:
        flush(model)
    return state.pack([None if of is None else of.state_dict() for of in (model, optimizer)])


def _load_dense(data: bytes, model: Any, optimizer: Any) -> None:
    from .torch import state  # pylint: disable=import-outside-toplevel
    for of, its in zip((model, optimizer), state.unpack(data)):
        if of is not None and its is not None:
            of.load_state_dict(its)
