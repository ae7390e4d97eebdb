"""Pulled rows as part of an autograd graph: forward hands them over, backward pushes their gradient.

A Source is what a module pulls and pushes through. A Ticket is one pull on its way; it may be started long before
the forward that uses it. Where a backward leaves its gradient depends on the source: it is pushed at once, or held
until accumulate() ends, and then pushed with the others as one step of each table."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Optional, Union

import numpy as np
import torch

from ..client import Client
from ..clock import Clock
from ..device import DeviceCall
from ..table import Call, Part, Table
from . import copies
from .captured import Captured, Capturing
from .lent import Keys, Lending, Lent

if TYPE_CHECKING:
    from .jagged import JaggedThere
    from .rates import TableOptimizer

PUSHES_IN_FLIGHT = 4


class AnyTicket:
    """A pull on its way, and what a forward needs to know to make use of it."""

    source: "Source"
    layout: Any
    number = 0  # of the pull, in memory that is lent

    def wait(self) -> tuple[torch.Tensor, ...]:
        """One matrix for each part, on the device."""
        raise NotImplementedError

    def take(self, gradients: Sequence[Optional[torch.Tensor]]) -> None:
        """Those of a backward, one for each part."""
        raise NotImplementedError

    def rows(self, push: bool) -> tuple[torch.Tensor, ...]:
        """One matrix for each part, as a node of the graph when gradients are to be pushed."""
        anchor = self.source.anchor if push else self.source.anchor.detach()
        rows: tuple[torch.Tensor, ...] = _Rows.apply(anchor, self)
        return rows


class Ticket(AnyTicket):
    """One that goes by the host."""

    def __init__(self, source: "Source", parts: list[Part], landings: list[torch.Tensor], device: torch.device, layout: Any):
        self.source = source
        self.parts = parts
        self.landings = landings
        self.device = device
        self.layout = layout
        self.call: Call[Any] = source.client.pull_start(parts)

    def wait(self) -> tuple[torch.Tensor, ...]:
        self.call.wait()
        return tuple(copies.landed(rows, self.device) for rows in self.landings)

    def take(self, gradients: Sequence[Optional[torch.Tensor]]) -> None:
        self.source.take(parts_with(self.parts, gradients))


class Pulled:
    """What a push of gradients has to know of the pull of their rows, which stay on a GPU."""

    def __init__(self, lent: Lent, keys: Keys, number: int):
        self.lent = lent
        self.keys = keys
        self.number = number  # of the first pull, in that memory; 0: it has ended

    def needed_by(self, lent: Lent) -> int:
        """The number of the first pull, for pushes through the same memory."""
        return self.number if lent is self.lent else 0

    def end(self) -> None:
        """Raises what the pulls failed with."""
        self.lent.settle(all=True)


class LentTicket(Pulled, AnyTicket):
    """A pull of single keys of the source's tables that stays on a GPU: lent.py. What the current stream does next has its rows."""

    is_wide = False

    def __init__(self, source: "Source", lent: Lent, keys: Keys, limits: Sequence[Optional[int]], layout: Any, once: bool):
        self.source = source
        self.layout = layout
        self.once = once  # it is used by one forward
        self._rows, number = lent.pull(keys, limits, self.is_wide)
        super().__init__(lent, keys, number)

    def wait(self) -> tuple[torch.Tensor, ...]:
        return tuple(self._rows if self.once else (rows.clone() for rows in self._rows))

    def take(self, gradients: Sequence[Optional[torch.Tensor]]) -> None:
        given = [None if gradient is None else gradient.detach().to(torch.float32) for gradient in gradients]
        if any(gradient is not None for gradient in given):
            self.source.take_lent(self, given)


class WideTicket(LentTicket):
    """One whose rows, of all tables, are made what the forward gives in one go: a matrix for each feature."""

    is_wide = True
    layout: "JaggedThere"

    def wait(self) -> tuple[torch.Tensor, ...]:
        rows, = super().wait()
        return self.layout.matrices(rows)

    def take(self, gradients: Sequence[Optional[torch.Tensor]]) -> None:
        whole = self.layout.gradient(gradients)
        wanted = self.layout.tables_with(gradients)
        if any(wanted):
            each = whole.split(self.keys.counts)
            self.source.take_lent(self, [rows if is_wanted else None for rows, is_wanted in zip(each, wanted)], whole)


class CapturedTicket(AnyTicket):
    """A pull that every replay of a CUDA graph makes: captured.py. `keys` of each table."""

    def __init__(self, source: "Source", captured: Sequence[Captured], keys: Sequence[torch.Tensor], layout: Any):
        self.source = source
        self.layout = layout
        self._captured = captured
        self._rows = [each.pull(mine) for each, mine in zip(captured, keys)]

    def wait(self) -> tuple[torch.Tensor, ...]:
        return tuple(rows.clone() for rows in self._rows)

    def take(self, gradients: Sequence[Optional[torch.Tensor]]) -> None:
        for table, captured, gradient in zip(self.source.tables, self._captured, gradients):
            if gradient is not None:
                self.source.take_captured(table, captured, gradient.detach().to(torch.float32))


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, ticket: AnyTicket) -> tuple[torch.Tensor, ...]:
        ctx.ticket = ticket
        ctx.set_materialize_grads(False)
        return ticket.wait()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Optional[torch.Tensor]) -> tuple[None, None]:
        ticket: AnyTicket = ctx.ticket
        ticket.take(gradients)
        return None, None


def parts_with(parts: Sequence[Part], gradients: Sequence[Optional[torch.Tensor]]) -> list[Part]:
    """The parts of a push that answers the pull of `parts`; without those that have no gradient."""
    answered = [(part, gradient.to(torch.float32).contiguous()) for part, gradient in zip(parts, gradients)
                if gradient is not None]
    arrays = copies.to_numpy(*(gradient for _, gradient in answered))
    return [Part(part.table, part.keys, part.offsets, weights=part.weights, values=values, raw=part.raw, scores=part.scores)
            for (part, _), values in zip(answered, arrays)]


class Source:
    """The way to the servers of one module."""

    def __init__(self, client: Client, tables: Sequence[Table]):
        self.client = client
        self.tables = tables
        self.optimizer: Optional[TableOptimizer] = None
        # Has no elements; only makes autograd call backward. No Parameter, so that no optimizer finds it.
        self.anchor = torch.empty(0, requires_grad=True)
        self.is_holding = False
        self.round: Optional[Clock] = None
        self.lending = Lending(tables)
        self.capturing = Capturing(tables)
        self._held: list[Part] = []
        self._pushes: list[Union[Call[None], DeviceCall]] = []

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy refers to the same tables, and has no round, rates or gradients of its own yet."""
        return _source, (self.client, list(self.tables), self.anchor.requires_grad)

    def start(self, parts: list[Part], device: torch.device, layout: Any = None) -> Ticket:
        self._settle(PUSHES_IN_FLIGHT)
        landings = [copies.landing(part.shape, device) for part in parts]
        for part, rows in zip(parts, landings):
            part.values = rows.numpy()
        return Ticket(self, parts, landings, device, layout)

    def lent(self, device: torch.device, counts: Sequence[int]) -> Optional[Lent]:
        """Memory of the GPU that the server takes, with room for so many keys of each table; None: it takes none."""
        return self.lending.of(device, counts)

    def end_lending(self, device: torch.device) -> None:
        """From now on tensors of the GPU go by the host."""
        self.lending.end(device)

    def take_lent(self, ticket: Pulled, gradients: Sequence[Optional[torch.Tensor]], whole: Optional[torch.Tensor] = None) -> None:
        """The gradients of a LentTicket, also as one matrix. What waits for others, and steps of several workers, go by the host."""
        keys, device = ticket.keys, ticket.keys.all.device
        lent = None if self.is_holding or self.round is not None else self.lent(device, keys.counts)
        if lent is None or not ticket.needed_by(lent):
            ticket.end()
        if lent is None:
            self._take_by_host(keys, gradients, 0)
            return
        rates = [None if self.optimizer is None else self.optimizer.rate(table) for table in self.tables]
        self._settle(PUSHES_IN_FLIGHT * len(self.tables))
        n_done = lent.push(keys, gradients, rates, ticket.needed_by(lent), self._pushes, whole)
        if n_done < len(gradients):
            self.end_lending(device)
            ticket.end()
            self._take_by_host(keys, gradients, n_done)

    def _take_by_host(self, keys: Keys, gradients: Sequence[Optional[torch.Tensor]], first: int) -> None:
        """Those of the tables from `first` on."""
        left = list(zip(self.tables, keys.each(), gradients))[first:]
        given = [(table, each, gradient.contiguous()) for table, each, gradient in left if gradient is not None]
        arrays = copies.to_numpy(*(tensor for _, each, gradient in given for tensor in (each, gradient)))
        self.take([Part(table, numbers, values=values, raw=True)
                   for (table, _, _), numbers, values in zip(given, arrays[::2], arrays[1::2])])

    def capture(self, keys: Sequence[torch.Tensor], layout: Any) -> CapturedTicket:
        """The pull of keys [n] of each table by every replay of the graph that is captured."""
        made = [self.capturing.make(number, mine.device, mine.numel()) for number, mine in enumerate(keys)]
        return CapturedTicket(self, made, keys, layout)

    def take_captured(self, table: Table, captured: Captured, gradient: torch.Tensor) -> None:
        """The gradient of a CapturedTicket, of one of its tables."""
        if self.is_holding or self.round is not None:
            raise RuntimeError("a CUDA graph steps at each backward: capture it outside of accumulate() and synchronous()")
        captured.push(gradient, None if self.optimizer is None else self.optimizer.rate(table))

    def take(self, parts: list[Part]) -> None:
        """Gradients of a backward."""
        self._held += parts
        if not self.is_holding:
            self.push_held()

    def push_held(self) -> None:
        parts = merged(self._held)
        self._held = []
        if self.optimizer is not None:
            for part in parts:
                part.lr = self.optimizer.rate(part.table)
        if parts:
            self._pushes.append(self.client.push_start(parts, round=self.round))

    def drop_held(self) -> None:
        self._held = []

    def flush(self) -> None:
        """Waits until every push has been applied; raises what failed."""
        self._settle(0)
        self.lending.settle()
        self.capturing.settle()

    def _settle(self, n_left: int) -> None:
        while self._pushes and (len(self._pushes) > n_left or self._pushes[0].done()):
            self._pushes.pop(0).wait()


def _source(client: Client, tables: Sequence[Table], requires_grad: bool) -> Source:
    source = Source(client, tables)
    source.anchor.requires_grad_(requires_grad)
    return source


def merged(parts: Sequence[Part]) -> list[Part]:
    """One part for each table, because a push has one: its batches one after the other, in their order."""
    by_table: dict[str, list[Part]] = {}
    for part in parts:
        by_table.setdefault(part.table.name, []).append(part)
    return [group[0] if len(group) == 1 else _joined(group) for group in by_table.values()]


def _offsets(part: Part) -> Any:
    """Of the rows that the part's gradient has: single keys are rows of one key, which no combiner changes."""
    if part.offsets is None or part.raw:
        return np.arange(part.keys.size + 1, dtype=np.uint64)
    return part.offsets


def _weights(part: Part) -> Any:
    """Gradients of single rows are unweighted."""
    if part.weights is None or part.raw:
        return np.ones(part.keys.size, np.float32)
    return part.weights


def _scores(parts: Sequence[Part]) -> Any:
    """None where no key has a score."""
    if all(part.scores is None for part in parts):
        return None
    return np.concatenate([np.full(part.keys.size, -np.inf, np.float32) if part.scores is None else part.scores.reshape(-1)
                           for part in parts])


def _joined(parts: list[Part]) -> Part:
    table: Table = parts[0].table
    keys = np.concatenate([part.keys.reshape(-1) for part in parts])
    values = np.concatenate([part.gradient().reshape(-1, table.dim) for part in parts])
    scores = _scores(parts)
    if not table.combines:
        return Part(table, keys, values=values, scores=scores)
    offsets, base = [np.zeros(1, np.uint64)], 0
    for part in parts:
        offsets.append(_offsets(part)[1:] + np.uint64(base))
        base += part.keys.size
    weighted = any(part.weights is not None and not part.raw for part in parts)
    weights = np.concatenate([_weights(part) for part in parts]) if weighted else None
    return Part(table, keys, np.concatenate(offsets), weights=weights, values=values, scores=scores)
