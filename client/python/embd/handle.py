"""The C handle of a client: one thread at a time, no use after close or fork, calls in flight kept alive.

libembd's handles belong to one thread at a time, and cffi lets go of Python's lock during a call; so every call
into C holds the handle's own lock. Arrays of a started call must stay until it has ended: the handle keeps them,
whether or not anybody still holds the Call. A child that was forked has the parent's sockets but must not speak
on them: its handles fail."""
from __future__ import annotations

import contextlib
import os
import threading
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

from . import errors
from ._native import ffi, lib


class Flight:
    """A started call in C and what it reads and writes."""

    __slots__ = ("c_call", "keep", "status", "sentence", "rolled_back")

    def __init__(self, c_call: Any, keep: Any):
        self.c_call = c_call
        self.keep = keep
        self.status: int | None = None
        self.sentence = ""
        self.rolled_back: Any = []  # tables


class Handle:
    def __init__(self, c_client: Any):
        self.c = c_client
        self._lock = threading.Lock()
        self._open_lock = threading.Lock()  # behind the other one; nothing is closed while it is held
        self._owner = 0
        self.kept: dict[Any, Any] = {}  # by the C object of the server's that uses it
        self._flights: set[Flight] = set()
        self._left: list[Flight] = []  # their Call is gone; appended to by destructors
        _living.add(self)

    def __enter__(self) -> Any:
        me = threading.get_ident()
        if self._owner == me:
            raise RuntimeError("a callback of a client may not call the client")
        self._lock.acquire()
        if self.c is None:
            self._lock.release()
            raise errors.make(lib.EMBD_CLOSED, "the client is closed, or the process was forked since it connected")
        self._owner = me
        return self.c

    def __exit__(self, *what: Any) -> None:
        self._owner = 0
        self._lock.release()

    @contextlib.contextmanager
    def reading(self) -> Iterator[Any]:
        """For functions that any thread may call while another one is in a call."""
        with self._open_lock:
            if self.c is None:
                raise errors.make(lib.EMBD_CLOSED, "the client is closed, or the process was forked since it connected")
            yield self.c

    def check(self, status: int) -> None:
        """To be called with the lock held."""
        if status:
            raise errors.make(status, errors.last_sentence())

    # ---- calls in flight ----

    def begin(self, start: Any, parts: Any, n_parts: int, options: Any, keep: Any) -> Flight:
        out = ffi.new("embd_call **")
        with self as c:
            self._reap()
            self.check(start(c, parts, n_parts, options, out))
            flight = Flight(out[0], keep)
            self._flights.add(flight)
        return flight

    def finish(self, flight: Flight) -> None:
        """Waits for the call; its failure is raised, also when asked again."""
        if flight.status is None:
            with self:
                if flight.status is None:
                    self._wait(flight)
        if flight.status:
            raise errors.make(flight.status, flight.sentence)

    def settle(self) -> None:
        """Waits for all calls in flight."""
        with self:
            for flight in list(self._flights):
                self._wait(flight)

    def is_done(self, flight: Flight) -> bool:
        if flight.status is not None:
            return True
        with self:
            return flight.status is not None or bool(lib.embd_is_done(flight.c_call))

    def leave(self, flight: Flight) -> None:
        """Nobody will wait for it; called by a destructor, so nothing is locked here."""
        if flight.status is None:
            self._left.append(flight)

    def _wait(self, flight: Flight) -> None:
        flight.status = lib.embd_wait(flight.c_call)
        if flight.status:
            flight.sentence = errors.last_sentence()
        else:
            flight.rolled_back = flight.keep.rolled_back()
        self._flights.discard(flight)
        flight.c_call = flight.keep = None

    def _reap(self) -> None:
        """Ends calls that were dropped and are done."""
        for _ in range(len(self._left)):
            flight = self._left.pop(0)
            if flight.status is not None:
                continue
            if not lib.embd_is_done(flight.c_call):
                self._left.append(flight)
                continue
            self._wait(flight)
            if flight.status:
                warnings.warn(f"a call that nobody waited for failed: {errors.text(flight.status)}: "
                              f"{flight.sentence}", ResourceWarning, stacklevel=4)

    # ---- the end ----

    def close(self) -> None:
        with self._lock:
            if self.c is None:
                return
            with self._open_lock:
                c, self.c = self.c, None
            lib.embd_close(c)
            for flight in self._flights:
                flight.status, flight.sentence = lib.EMBD_CLOSED, "the client was closed before the call ended"
                flight.c_call = flight.keep = None
            self._flights.clear()
            self._left.clear()

    def abandon(self) -> None:
        """In a forked child: the connections and the thread are the parent's."""
        self._lock = threading.Lock()
        self._open_lock = threading.Lock()
        self._owner = 0
        self.c = None

    def __del__(self) -> None:
        c = getattr(self, "c", None)  # without one where __init__ raised
        if c is not None:
            lib.embd_close(c)


_living: weakref.WeakSet[Handle] = weakref.WeakSet()


def _after_fork() -> None:
    for handle in list(_living):
        handle.abandon()


os.register_at_fork(after_in_child=_after_fork)
