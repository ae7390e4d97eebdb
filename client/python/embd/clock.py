"""Several trainers in step: bulk-synchronous, stale-synchronous or asynchronous.

    clock = embd.Clock(client, "job", worker=rank, workers=4, staleness=0)
    for batch in data:
        clock.wait()          # nobody is more than `staleness` iterations behind
        ...                   # pull, compute, push
        clock.tick()          # after the pushes of this iteration have been applied
    clock.leave()"""
from __future__ import annotations

from typing import Any, NamedTuple, Optional

from . import structs
from ._native import ffi, lib
from .client import Client


class ClockReport(NamedTuple):
    """How far a job is. `slowest` is the least clock of its live workers, 0 until all have been seen."""

    slowest: int
    live: int
    dropped: list[int]  # workers whose lease ran out; the first 16


class Clock:
    """This worker's clock: iterations it has finished. `staleness` None: wait() does not wait (asynchronous);
    0: bulk-synchronous; s: up to s iterations ahead of the slowest. `lease`: seconds without a sign of life after
    which others stop waiting for this worker. `start`: the clock to begin with, for a worker that comes back."""

    def __init__(self, client: Client, job: str, *, worker: int, workers: int, staleness: Optional[int] = 0,
                 lease: float = 10.0, start: int = 0):
        self.client = client
        self.staleness = staleness
        self.value = start
        self._job = ffi.new("char[]", job.encode())
        self.c = ffi.new("embd_clock *", {"job": self._job})
        structs.fill(self.c, {"worker": worker, "n_workers": workers, "lease": lease}, [])

    def renew(self) -> ClockReport:
        """A sign of life, between ticks that are further apart than the lease."""
        report = ffi.new("embd_clock_report *")
        with self.client.handle as c:
            self.client.handle.check(lib.embd_tick(c, self.c, self.value, report))
        return _read(report)

    def tick(self) -> ClockReport:
        """One more iteration is done. Waits first until every started call of the client has ended, so that others
        that go on see its pushes."""
        self.client.settle()
        self.value += 1
        return self.renew()

    def wait(self, deadline: Optional[float] = None) -> ClockReport:
        """Waits until this worker may begin its next iteration; `deadline` in seconds."""
        if self.staleness is None:
            return self.renew()
        report = ffi.new("embd_clock_report *")
        milliseconds = 0 if deadline is None else max(1, round(deadline * 1000))
        with self.client.handle as c:
            self.client.handle.check(lib.embd_tick_wait(c, self.c, self.value, self.staleness, milliseconds, report))
        return _read(report)

    def leave(self) -> None:
        """This worker is done; nobody waits for it any more."""
        with self.client.handle as c:
            self.client.handle.check(lib.embd_tick_leave(c, self.c, self.value))


def _read(report: Any) -> ClockReport:
    n = min(report.n_dropped, lib.EMBD_DROPPED_MAX)
    return ClockReport(report.slowest, report.n_live, list(report.dropped[0:n]))
