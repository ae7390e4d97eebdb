"""Training loops: the next batch pulled while this one is computed, and several backward passes as one step."""
from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Callable, TypeVar

from torch import nn

from ..clock import Clock
from .rates import sources_of
from .rows import Ticket

B = TypeVar("B")


def ahead(batches: Iterable[B], prefetch: Callable[[B], Ticket]) -> Iterator[tuple[B, Ticket]]:
    """Every batch with its ticket; the pull of the one after it is on its way by then.

        for batch, ticket in embd.torch.ahead(loader, lambda b: bag.prefetch(b.keys, b.offsets)):
            loss = model(bag(ticket), batch)

    A batch is pulled before the push of the one before it: its rows miss that one step, always the same one."""
    waiting: list[tuple[B, Ticket]] = []
    for batch in batches:
        waiting.append((batch, prefetch(batch)))
        if len(waiting) == 2:
            yield waiting.pop(0)
    yield from waiting


@contextlib.contextmanager
def accumulate(model: nn.Module) -> Iterator[None]:
    """Gradients of every backward within are added up and are one step of each table when the block ends: as with
    torch.nn, where one optimizer step follows several passes, or one module is used twice in a model. When the block
    fails, they are dropped."""
    sources = sources_of(model)
    for source in sources:
        source.is_holding = True
    try:
        yield
        for source in sources:
            source.push_held()
    finally:
        for source in sources:
            source.is_holding = False
            source.drop_held()


def synchronous(model: nn.Module, clock: Clock) -> None:
    """From now on the pushes of all workers of the clock's job make one step together, with the mean of their
    gradients; the bits do not depend on which came first. Every worker runs the same modules in the same order, on a
    client of its own, and ticks after each iteration."""
    for source in sources_of(model):
        source.round = clock


def flush(model: nn.Module) -> None:
    """Waits until the gradients of every backward so far have been applied; raises what failed."""
    for source in sources_of(model):
        source.flush()
