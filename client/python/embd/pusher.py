"""Pushes that are applied once also by a trainer that was restarted. A client numbers its other pushes itself.

    pusher = embd.Pusher(client, id=0x1d3c..., stream=0)   # the same in every run of this trainer
    for n in range(pusher.last()[0] + 1, steps + 1):
        ...
        table.push(keys, gradients, pusher=pusher, sequence=n)"""
from __future__ import annotations

from typing import Optional

from ._native import ffi, lib
from .client import Client


class Pusher:
    """Who pushes: an id of 128 bits, drawn where none is given, and one of its streams. Its pushes are numbered 1, 2, ...;
    an embd.Error with Status.UNANSWERED says that the deadline passed and the push may have been applied or not: it may be made
    again, with the same number and gradients. Status.FORGOTTEN says that a shard does not know the stream, or not any more:
    whether the push was applied there is not known. A stream that has not pushed for 10 minutes may be forgotten for another."""

    def __init__(self, client: Client, id: Optional[int] = None, stream: int = 0):
        self.client = client
        self.c = ffi.new("embd_pusher *")
        if id is None:
            client.handle.check(lib.embd_pusher_new(self.c))
        else:
            self.c.high, self.c.low = id >> 64, id & (2**64 - 1)
        self.c.stream = stream

    @property
    def id(self) -> int:
        return int(self.c.high) << 64 | int(self.c.low)

    def last(self) -> tuple[int, int]:
        """The last push applied, on the shard that is furthest behind and on the one furthest ahead."""
        least, greatest = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        with self.client.handle as c:
            self.client.handle.check(lib.embd_pusher_last(c, self.c, least, greatest))
        return int(least[0]), int(greatest[0])
