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

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional, Union

from . import errors, stored, structs
from ._native import ffi, lib
from .client import Client
from .stored import DumpReport, Path
from .table import Table

STEP, DENSE = "embd-step", "embd-torch"  # blobs


class Checkpoint(NamedTuple):
    name: str  # of the snapshot
    step: int
    blobs: dict[str, bytes]  # those of the caller


class Job:
    """`directory`: the data directory of the servers, as this host reads it; of several server processes a sequence of
    theirs, with failover also of those that follow. `keep`: how many checkpoints stay in each."""

    def __init__(self, client: Client, name: str, directory: Union[Path, Sequence[Path]], *, keep: int = 2):
        self.client, self.name, self.keep = client, name, keep
        paths = [directory] if isinstance(directory, (str, os.PathLike)) else directory
        self.directories = [os.fspath(path) for path in paths]
        self.prefix = self.table_name("")

    def table(self, name: str, dim: int, **fields: Any) -> Table:
        """Creates or opens the job's table; its name on the servers is JOB--NAME. As Client.create_table."""
        return self.client.create_table(self.table_name(name), dim, **fields)

    def table_name(self, name: str) -> str:
        """JOB--NAME, as the servers have it."""
        out = ffi.new("char[]", lib.EMBD_NAME_MAX + 1)
        job, held = self._c()
        errors.check(lib.embd_job_table_name(job, name.encode(), out))
        del held
        found: str = ffi.string(out).decode()
        return found

    def tables(self) -> list[str]:
        """Names of its tables, as the servers have them."""
        return [name for name in self.client.tables() if name.startswith(self.prefix)]

    def _c(self) -> tuple[Any, list[Any]]:
        """(embd_job, what has to live as long)."""
        job, name = structs.new("embd_job"), ffi.new("char[]", self.name.encode())
        paths = [ffi.new("char[]", os.fsencode(path)) for path in self.directories]
        c_paths = ffi.new("const char *[]", paths or 1)
        job.name, job.keep, job.directories, job.n_directories = name, self.keep, c_paths, len(paths)
        return job, [name, paths, c_paths]

    # ---- making one ----

    def checkpoint(self, step: int, model: Any = None, optimizer: Any = None,
                   blobs: Optional[Mapping[str, bytes]] = None) -> DumpReport:
        """One cut of the job's tables, with the state of a torch model and optimizer and with `blobs`; the `keep` newest
        stay. Call it while no worker of the job has a push under way."""
        files = dict(blobs or {})
        if model is not None or optimizer is not None:
            files[DENSE] = _dense(model, optimizer)
        report = ffi.new("embd_dump_report *")
        blobs_c, n, held = stored.c_blobs(files)
        job, held_too = self._c()
        with self.client.handle as c:
            self.client.handle.check(lib.embd_job_checkpoint(c, job, step, blobs_c, n, report))
        del held, held_too
        return DumpReport(**structs.read(report))

    # ---- going back ----

    def resume(self, model: Any = None, optimizer: Any = None) -> Optional[Checkpoint]:
        """Puts the tables of the newest complete checkpoint back in their place, loads the dense state, and returns it.
        Tables that the job made since are dropped; those of others are not touched. A worker of the job that still pushes
        gets an Error. None, and nothing is changed, if there is no checkpoint. InvalidError, and nothing is changed, if there
        are some behind step 0 and none is complete in the directories. Where a call fails otherwise, call it again."""
        at = structs.new("embd_checkpoint")
        job, held = self._c()
        with self.client.handle as c:
            self.client.handle.check(lib.embd_job_resume(c, job, at))
        del held
        if not at.is_there:
            return None
        path = os.fsdecode(ffi.string(at.path))
        blobs = {blob: stored.blob(path, blob) for blob in stored.blobs(path) if blob != STEP}
        dense = blobs.pop(DENSE, None)
        if dense is not None:
            _load_dense(dense, model, optimizer)
        return Checkpoint(ffi.string(at.name).decode(), at.step, blobs)


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
