"""Failures: one exception class a kind of status, each with the status, the server and the cause."""
from __future__ import annotations

import enum
import re
from typing import Any

from ._native import ffi, lib
from .structs import enum_values

Status = enum.IntEnum("Status", {name.upper(): number for name, number in enum_values("embd_status").items()})  # type: ignore[misc]
Status.__doc__ = "What became of a call; the negative numbers of embd_status."

_SERVER = re.compile(r"(\[[^\]]+\]:\d+|[^\s:]+:\d+|\S+\.sock): (.*)", re.S)


class Error(Exception):
    """A call failed. `status` says how, `server` who said so ("127.0.0.1:7700", or None when no server was
    asked), `cause` why."""

    def __init__(self, status: int, sentence: str):
        super().__init__(sentence)
        self.status = Status(status)
        found = _SERVER.fullmatch(sentence)
        self.server: str | None = found[1] if found else None
        self.cause: str = found[2] if found else sentence

    def __str__(self) -> str:
        return f"{text(self.status)}: {self.args[0]}"

    def __reduce__(self) -> Any:
        return type(self), (int(self.status), self.args[0])


class InvalidError(Error, ValueError):
    """An argument is refused; nothing has changed."""


class UnknownTableError(Error, LookupError):
    """There is no such table."""


class ExistsError(Error):
    """It exists already, with another definition."""


class FullError(Error):
    """A table is full."""


class UnsupportedError(Error):
    """This version or this store cannot do that."""


class NoMemoryError(Error, MemoryError):
    """There is no memory for it, here or on the server."""


class UnreachableError(Error, ConnectionError):
    """No server answers."""


class ClosedError(Error, ConnectionError):
    """The connection ended during the call; a push may or may not have been applied."""


class DeadlineError(Error, TimeoutError):
    """The call did not end within its deadline."""


class CorruptError(Error):
    """Stored data is damaged."""


class StorageError(Error, OSError):
    """Input or output failed."""

    def __init__(self, status: int, sentence: str):
        Error.__init__(self, status, sentence)


class RollbackWarning(UserWarning):
    """A shard came back with less of a table than it had acknowledged, or may have: see Table.rollbacks. Once for each
    time, at a pull. warnings.simplefilter("error", embd.RollbackWarning) makes it an exception; the pull's rows are lost
    then, and the next pull goes on."""


class LateError(Error):
    """This worker was dropped from its job, which has gone on without it. `clock` is where the job is, and where the
    worker takes part again; None where it has not joined yet."""

    clock: int | None = None


_CLASSES: dict[str, type[Error]] = {
    "INVALID": InvalidError, "UNKNOWN_TABLE": UnknownTableError, "EXISTS": ExistsError, "FULL": FullError,
    "UNSUPPORTED": UnsupportedError, "NO_MEMORY": NoMemoryError, "UNREACHABLE": UnreachableError,
    "CLOSED": ClosedError, "DEADLINE": DeadlineError, "CORRUPT": CorruptError, "IO": StorageError,
    "LATE": LateError,
}


def text(status: int) -> str:
    sentence: str = ffi.string(lib.embd_status_text(status)).decode()
    return sentence


def make(status: int, sentence: str) -> Error:
    """The exception of a status."""
    return _CLASSES.get(Status(status).name, Error)(status, sentence)


def last_sentence() -> str:
    """Of this thread's last call into C that failed."""
    sentence: str = ffi.string(lib.embd_error_text()).decode(errors="replace")
    return sentence


def check(status: int) -> None:
    """Raises the failure of a call into C that this thread made just now."""
    if status:
        raise make(status, last_sentence())
