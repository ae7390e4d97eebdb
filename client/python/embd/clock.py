"""Several trainers in step: bulk-synchronous, stale-synchronous or asynchronous.

    with embd.Clock(client, "job", worker=rank, workers=4) as clock:
        for step in clock.steps(1000):                  # nobody is more than `staleness` steps behind
            ...                                         # pull, compute
            table.push(keys, gradients, round=clock)    # one step of the table, of all workers' gradients

A worker that dies or stops is dropped after its lease; the others are warned (WorkerWarning) and go on without it. One
that comes back too late for a step goes on with the job's next one."""
from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple, Optional

from . import structs
from ._native import ffi, lib
from .client import Client
from .errors import Error, LateError


class WorkerWarning(UserWarning):
    """A worker of a job was dropped, or this one came late and goes on elsewhere."""


class ClockReport(NamedTuple):
    """How far a job is. `slowest` is the least clock of its live workers, 0 until all have joined."""

    slowest: int
    live: int
    dropped: list[int]  # workers that were not heard of for their lease; the first 16


class Clock:
    """This worker's clock: iterations it has finished. `staleness` None: wait() does not wait (asynchronous);
    0: bulk-synchronous; s: up to s iterations ahead of the slowest. `lease`: seconds after which others stop waiting for
    a worker that is not heard of; while its process runs, the client gives signs of life by itself. `start`: the clock
    to begin with, of a job that is resumed: Job.resume ends clocks whose rounds pushed to its tables."""

    def __init__(self, client: Client, job: str, *, worker: int, workers: int, staleness: Optional[int] = 0,
                 lease: float = 10.0, start: int = 0):
        self.client = client
        self.staleness = staleness
        self.value = start
        self.job = job
        self._drops_late = False  # within steps()
        self._dropped: set[int] = set()
        self._job = ffi.new("char[]", job.encode())
        self.c = structs.new("embd_clock")
        self.c.job = self._job
        structs.fill(self.c, {"worker": worker, "n_workers": workers, "lease": lease,
                              "asynchronous": staleness is None}, [])

    def __enter__(self) -> "Clock":
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        if kind is None:
            self.leave()
            return
        with contextlib.suppress(Error):
            self.leave()

    def steps(self, n: int, deadline: Optional[float] = None) -> Iterator[int]:
        """The clocks below n that this worker takes part in: waits before each, and ticks after it. A worker that comes
        late is warned, its pushes of that clock are in no step, and it goes on with the job's next one."""
        self._drops_late = True
        try:
            while self.value < n:
                with contextlib.suppress(LateError):
                    self.wait(deadline)
                    step = self.value
                    yield step
                    if self.value == step:
                        self.tick()
        finally:
            self._drops_late = False

    def renew(self) -> ClockReport:
        """Tells the clock as it is, and how far the job is."""
        report = ffi.new("embd_clock_report *")
        self._call(lambda c: lib.embd_tick(c, self.c, self.value, report))
        return self._read(report)

    def tick(self) -> ClockReport:
        """One more iteration is done. Waits first until every started call of the client has ended, so that others
        that go on see its pushes. Raises LateError as wait does."""
        self.client.settle()
        self.value += 1
        return self.renew()

    def wait(self, deadline: Optional[float] = None) -> ClockReport:
        """Waits until this worker may begin its next iteration; `deadline` in seconds. Raises LateError where the job has
        gone on without this worker: `value` is then the clock it goes on with."""
        if self.staleness is None:
            return self.renew()
        report = ffi.new("embd_clock_report *")
        milliseconds = 0 if deadline is None else max(1, round(deadline * 1000))
        self._call(lambda c: lib.embd_tick_wait(c, self.c, self.value, self.staleness, milliseconds, report))
        return self._read(report)

    def leave(self) -> None:
        """This worker is done; nobody waits for it any more."""
        with self.client.handle as c:
            self.client.handle.check(lib.embd_tick_leave(c, self.c, self.value))

    def rejoin(self) -> int:
        """Sets `value` to the clock that the job is at, and takes part from there."""
        value = ffi.new("uint64_t *", self.value)
        with self.client.handle as c:
            self.client.handle.check(lib.embd_tick_rejoin(c, self.c, value, ffi.NULL))
        self.value = int(value[0])
        return self.value

    def late(self, error: LateError) -> None:
        """A call of this worker came late: goes on where the job is, and raises unless steps() sees to the rest."""
        error.clock = self.rejoin()
        if not self._drops_late:
            raise error
        warnings.warn(f"{error.cause}; it goes on at {self.value}", WorkerWarning, stacklevel=4)

    def _call(self, function: Any) -> None:
        try:
            with self.client.handle as c:
                self.client.handle.check(function(c))
        except LateError as error:
            self.late(error)
            raise

    def _read(self, report: Any) -> ClockReport:
        n = min(report.n_dropped, lib.EMBD_DROPPED_MAX)
        dropped = list(report.dropped[0:n])
        for worker in sorted(set(dropped) - self._dropped):
            warnings.warn(f"worker {worker} of job '{self.job}' was dropped: not heard of for its lease; "
                          f"{report.n_live} go on without it", WorkerWarning, stacklevel=4)
        self._dropped = set(dropped)
        return ClockReport(report.slowest, report.n_live, dropped)
