"""Embedding and EmbeddingBag with the signatures of torch.nn, over a table of embd.

Where the table combines rows as the module does, servers answer sums and take gradients of sums. Otherwise, and where
weights of samples want gradients, single rows travel and PyTorch combines them, so that the results are
PyTorch's own."""
from __future__ import annotations

import functools
from typing import Any, NoReturn, Optional, Union

import numpy as np
import torch

from ..errors import InvalidError, Status, UnsupportedError
from ..schema import Initializer, Optimizer
from ..table import Part, Table
from . import bags, op
from .base import Reference, Weight
from .captured import is_capturing
from .home import Home, open_home
from .checkpoints import put_weight
from .copies import Device, device_named, to_device, to_numpy
from .lent import Lent, keys_of
from .rows import AnyTicket, LentTicket, Pulled, Source, Ticket, parts_with

NORMAL = Initializer("normal", 0.0, 1.0)  # what torch.nn draws from


def _refuse(module: str, option: str, reason: str) -> NoReturn:
    raise NotImplementedError(f"embd.torch.{module} has no {option}: {reason}")


def _shape_of(embeddings: torch.Tensor) -> tuple[int, int]:
    if embeddings.dim() != 2:
        raise ValueError(f"embeddings have {embeddings.dim()} dimensions; 2 are expected")
    return len(embeddings), embeddings.shape[1]


def _check_integers(indices: torch.Tensor) -> None:
    if indices.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"indices are {indices.dtype}; int64 or int32 is expected")


class _Rows(Reference):
    """What the modules share: a table, keys that are checked, a source."""

    def __init__(self, num_embeddings: Optional[int], embedding_dim: int, combiner: str, padding_idx: Optional[int],
                 unsupported: dict[str, Any], device: Device, dtype: Optional[torch.dtype], client: Home,
                 name: Optional[str], table: Optional[Table], optimizer: Union[Optimizer, str],
                 initializer: Union[Initializer, str], fields: dict[str, Any]):
        super().__init__()
        for option, value in unsupported.items():
            if value is not None and value is not False:
                _refuse(type(self).__name__, option, "rows and their optimizer live on servers")
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = self._padding(padding_idx)
        self.device = device_named(device)
        self.dtype = dtype or torch.float32
        if table is None:
            if name is None:
                raise TypeError(f"embd.torch.{type(self).__name__} needs name=, or table=")
            _, create = open_home(client)
            table = create(name, embedding_dim, combiner=combiner, optimizer=optimizer, initializer=initializer, **fields)
        if table.dim != embedding_dim:
            raise ValueError(f"table {table.name} has {table.dim} columns, embedding_dim is {embedding_dim}")
        if table.schema.slots != 1:
            raise ValueError(f"table {table.name} has {table.schema.slots} slots; a module has one")
        self.table = table
        self.source = Source(table.client, [table])

    def _padding(self, padding_idx: Optional[int]) -> Optional[int]:
        if padding_idx is None or padding_idx >= 0 or self.num_embeddings is None:
            return padding_idx
        return padding_idx + self.num_embeddings

    def _keys(self, tensor: torch.Tensor) -> Any:
        _check_integers(tensor)
        keys, = to_numpy(tensor)
        if self.num_embeddings is not None and keys.size and (keys.min() < 0 or keys.max() >= self.num_embeddings):
            raise IndexError(f"index out of range: {keys.min()} to {keys.max()}, num_embeddings is {self.num_embeddings}")
        return keys

    def device_of(self, input: torch.Tensor) -> torch.device:
        """Where the rows of a forward are."""
        return self.device or input.device

    def _lent(self, input: torch.Tensor, scores: Optional[torch.Tensor]) -> Optional[Lent]:
        """Memory of a GPU where the pull and the push of these indices can stay."""
        if not input.is_cuda or scores is not None or self.device_of(input) != input.device:
            return None
        return self.source.lent(input.device, [input.numel()])

    def _capture(self, input: torch.Tensor, keys: torch.Tensor, scores: Optional[torch.Tensor], layout: Any) -> AnyTicket:
        """The pull of keys [n] as a node of the CUDA graph that is captured. Nobody looks at them: the host is not there."""
        if self.padding_idx is not None or scores is not None or self.device_of(input) != input.device:
            raise RuntimeError("a CUDA graph takes no padding_idx, no scores and no other device's rows: the host has to see the indices")
        _check_integers(input)
        return self.source.capture([keys], layout)

    def _scores(self, input: torch.Tensor, scores: torch.Tensor, kept: Any) -> Any:
        """[n_keys] of the keys that are not padding, which `kept` selects; None: all."""
        if self.table.schema.on_full != "evict_score":
            raise ValueError(f"scores are given, but table {self.table.name} has on_full {self.table.schema.on_full!r}; "
                             "scores need 'evict_score'")
        if scores.shape != input.shape:
            raise ValueError(f"scores are {tuple(scores.shape)}, input is {tuple(input.shape)}")
        flat: Any = to_numpy(scores.detach().to(torch.float32))[0].reshape(-1)
        return flat if kept is None else flat[kept]

    @property
    def _pushes(self) -> bool:
        return bool(self.training and torch.is_grad_enabled())

    @property
    def weight(self) -> torch.Tensor:
        """A copy of the rows 0 to num_embeddings - 1 as the servers have them."""
        if self.num_embeddings is None:
            raise AttributeError  # said by __getattr__, which comes next
        self.source.flush()
        return torch.from_numpy(self.table.pull(np.arange(self.num_embeddings), raw=True))

    def weights(self) -> list[Weight]:
        return [Weight("weight", self.table, self.num_embeddings)]

    def _put(self, embeddings: torch.Tensor, freeze: bool) -> None:
        put_weight("embeddings", embeddings, self.weights()[0])
        self.requires_grad_(not freeze)

    def __getattr__(self, name: str) -> Any:
        if name == "weight":
            raise AttributeError("weight: num_embeddings is None, any 64-bit integer is a row; pull keys of the table")
        return super().__getattr__(name)

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}, table={self.table.name}"
        return text if self.padding_idx is None else f"{text}, padding_idx={self.padding_idx}"


class Embedding(_Rows):
    """torch.nn.Embedding over a table. `num_embeddings` None: any 64-bit integer is an index. A row at
    padding_idx is zeros and stays so.

    client, name    where the table is and what it is called; it is created if it is not there. Of a Job the table is one
                    of its own. Or table=
    device          where rows are handed over; None: where the indices are. Indices of the CPU need no wait for a GPU
    optimizer       of the table: "sgd", or embd.Optimizer(...)
    initializer     normal with mean 0 and deviation 1, as torch.nn has it
    and other fields of a table's definition."""

    def __init__(self, num_embeddings: Optional[int], embedding_dim: int, padding_idx: Optional[int] = None,
                 max_norm: Optional[float] = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
                 sparse: bool = False, _weight: Optional[torch.Tensor] = None, device: Device = None,
                 dtype: Optional[torch.dtype] = None, *, client: Home = None,
                 name: Optional[str] = None, table: Optional[Table] = None,
                 optimizer: Union[Optimizer, str] = "sgd", initializer: Union[Initializer, str] = NORMAL,
                 **fields: Any):
        super().__init__(num_embeddings, embedding_dim, "concat", padding_idx,
                         {"max_norm": max_norm, "scale_grad_by_freq": scale_grad_by_freq, "_weight": _weight},
                         device, dtype, client, name, table, optimizer, initializer, fields)

    @classmethod
    def from_pretrained(cls, embeddings: torch.Tensor, freeze: bool = True, padding_idx: Optional[int] = None,
                        max_norm: Optional[float] = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
                        sparse: bool = False, **keywords: Any) -> "Embedding":
        """torch.nn.Embedding.from_pretrained: the rows of the table 0, 1, ... become those of `embeddings`, also where it had
        others; with `freeze` nothing is pushed. The row at padding_idx has to be zeros. Of several workers one calls it.
        Keywords as of Embedding: client, name, table, optimizer, dtype and others."""
        module = cls(*_shape_of(embeddings), padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, **keywords)
        module._put(embeddings, freeze)
        return module

    def weights(self) -> list[Weight]:
        return [Weight("weight", self.table, self.num_embeddings, self.padding_idx)]

    def _prefetch_lent(self, lent: Lent, input: torch.Tensor, once: bool) -> LentTicket:
        _check_integers(input)
        keys, kept = input.detach().reshape(-1), None
        if self.padding_idx is not None:
            kept = torch.nonzero(keys != self.padding_idx).reshape(-1)
            keys = keys[kept]
        return LentTicket(self.source, lent, keys_of([keys]), [self.num_embeddings], (input.shape, kept), once)

    def prefetch(self, input: torch.Tensor, *, scores: Optional[torch.Tensor] = None) -> AnyTicket:
        """Starts the pull of a forward to come; give the ticket to forward in the place of the indices. It does
        not see pushes that are started later. `scores`, shaped as the indices, go with the gradient: see
        embd.Part."""
        return self._prefetched(input, scores, False)

    def _prefetched(self, input: torch.Tensor, scores: Optional[torch.Tensor], once: bool) -> AnyTicket:
        if is_capturing(input):
            return self._capture(input, input.detach().reshape(-1), scores, (input.shape, None))
        lent = self._lent(input, scores)
        if lent is not None:
            try:
                return self._prefetch_lent(lent, input, once)
            except UnsupportedError:
                self.source.end_lending(input.device)
        keys = self._keys(input).reshape(-1)
        kept = None
        if self.padding_idx is not None:
            kept = np.flatnonzero(keys != self.padding_idx)
            keys = keys[kept]
        part = Part(self.table, keys, raw=True,
                    scores=None if scores is None else self._scores(input, scores, kept))
        return self.source.start([part], self.device_of(input), (input.shape, kept))

    def forward(self, input: Union[torch.Tensor, AnyTicket], *, scores: Optional[torch.Tensor] = None) -> torch.Tensor:
        ticket = input if isinstance(input, AnyTicket) else self._prefetched(input, scores, True)
        shape, kept = ticket.layout
        rows, = ticket.rows(self._pushes)
        if kept is not None:
            out = rows.new_zeros((shape.numel(), self.embedding_dim))
            rows = out.index_copy(0, kept if isinstance(kept, torch.Tensor) else to_device(kept, rows.device), rows)
        return rows.reshape(*shape, self.embedding_dim).to(self.dtype)


class EmbeddingBag(_Rows):
    """torch.nn.EmbeddingBag over a table, with mode "sum" or "mean". `num_embeddings` None: any 64-bit integer is an
    index. Keywords beyond those of torch.nn are as for Embedding."""

    def __init__(self, num_embeddings: Optional[int], embedding_dim: int, max_norm: Optional[float] = None,
                 norm_type: float = 2.0, scale_grad_by_freq: bool = False, mode: str = "mean",
                 sparse: bool = False, _weight: Optional[torch.Tensor] = None,
                 include_last_offset: bool = False, padding_idx: Optional[int] = None, device: Device = None,
                 dtype: Optional[torch.dtype] = None, *, client: Home = None,
                 name: Optional[str] = None, table: Optional[Table] = None,
                 optimizer: Union[Optimizer, str] = "sgd", initializer: Union[Initializer, str] = NORMAL,
                 **fields: Any):
        if mode not in ("sum", "mean"):
            _refuse("EmbeddingBag", f"mode {mode!r}", "servers combine rows by sum or mean")
        super().__init__(num_embeddings, embedding_dim, mode, padding_idx,
                         {"max_norm": max_norm, "scale_grad_by_freq": scale_grad_by_freq, "_weight": _weight},
                         device, dtype, client, name, table, optimizer, initializer, fields)
        self.mode = mode
        self.include_last_offset = include_last_offset
        self._operand = op.register(self)

    @classmethod
    def from_pretrained(cls, embeddings: torch.Tensor, freeze: bool = True, max_norm: Optional[float] = None,
                        norm_type: float = 2.0, scale_grad_by_freq: bool = False, mode: str = "mean",
                        sparse: bool = False, include_last_offset: bool = False, padding_idx: Optional[int] = None,
                        **keywords: Any) -> "EmbeddingBag":
        """torch.nn.EmbeddingBag.from_pretrained, as Embedding.from_pretrained."""
        module = cls(*_shape_of(embeddings), max_norm, norm_type, scale_grad_by_freq, mode, sparse,
                     include_last_offset=include_last_offset, padding_idx=padding_idx, **keywords)
        module._put(embeddings, freeze)
        return module

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Of a copy, or from a pickle."""
        super().__setstate__(state)
        self._operand = op.register(self)

    def _offsets(self, input: torch.Tensor, offsets: Optional[torch.Tensor]) -> Any:
        """[bags + 1] as embd has them."""
        if input.dim() == 2:
            if offsets is not None:
                raise ValueError("a 2-dimensional input has no offsets: its rows are bags")
            return np.arange(0, input.numel() + 1, input.shape[1]) if input.shape[1] else np.zeros(len(input) + 1)
        if input.dim() != 1:
            raise ValueError(f"input has {input.dim()} dimensions; 1 or 2 are expected")
        if offsets is None or offsets.dim() != 1:
            raise ValueError("a 1-dimensional input needs 1-dimensional offsets")
        starts, = to_numpy(offsets)
        if starts.size and starts[0] != 0:
            raise ValueError(f"offsets start at {starts[0]}, not at 0")
        wrong = np.flatnonzero((starts > len(input)) | (np.diff(starts, prepend=0) < 0))
        if wrong.size:
            raise InvalidError(Status["INVALID"], f"offset {wrong[0]} is {starts[wrong[0]]}; expected offsets that do not fall, up to the "
                                                  f"{len(input)} indices")
        if not self.include_last_offset:
            return np.append(starts, len(input))
        if not starts.size or starts[-1] != len(input):
            raise ValueError("with include_last_offset the last of the offsets is the number of indices")
        return starts

    def prefetch(self, input: torch.Tensor, offsets: Optional[torch.Tensor] = None,
                 per_sample_weights: Optional[torch.Tensor] = None, *, scores: Optional[torch.Tensor] = None) -> AnyTicket:
        """Starts the pull of a forward to come; give the ticket to forward in the place of its arguments. It does
        not see pushes that are started later. `scores`, shaped as the indices, go with the gradient: see
        embd.Part."""
        return self.started(input, offsets, per_sample_weights, scores, False)

    def started(self, input: torch.Tensor, offsets: Optional[torch.Tensor], per_sample_weights: Optional[torch.Tensor],
                scores: Optional[torch.Tensor] = None, once: bool = True) -> AnyTicket:
        """`once`: one forward uses it. The layout of the ticket makes bags of what it pulls."""
        if is_capturing(input):
            made, layout = self._made(input, offsets, per_sample_weights)
            return self._capture(input, made.keys, scores, layout)
        lent = self._lent(input, scores)
        if lent is not None and self._are_bags(input, offsets):
            try:
                return self._started_lent(lent, input, offsets, per_sample_weights, once)
            except UnsupportedError:
                self.source.end_lending(input.device)
        return self._started(input, offsets, per_sample_weights, scores)

    def _started(self, input: torch.Tensor, offsets: Optional[torch.Tensor], per_sample_weights: Optional[torch.Tensor],
                 scores: Optional[torch.Tensor]) -> Ticket:
        flat = None if scores is None else self._scores(input, scores, self._kept(input))
        if self._pools(per_sample_weights):
            part = self.pooled_part(input, offsets, per_sample_weights, flat)
            return self.source.start([part], self.device_of(input), _as_they_are)
        keys, ends, weights = self._batch(input, offsets, per_sample_weights)
        device = self.device_of(input)
        layout = functools.partial(bags.combine, offsets=to_device(ends, device), mode=self.mode, weights=weights)
        return self.source.start([Part(self.table, keys, raw=True, scores=flat)], device, layout)

    def _are_bags(self, input: torch.Tensor, offsets: Optional[torch.Tensor]) -> bool:
        """Otherwise the road through the host says what is wrong."""
        if offsets is None:
            return bool(input.dim() == 2 and input.shape[1] > 0)
        return bool(input.dim() == 1 and bags.are_in_order(offsets, input.numel(), self.include_last_offset))

    def _started_lent(self, lent: Lent, input: torch.Tensor, offsets: Optional[torch.Tensor],
                      per_sample_weights: Optional[torch.Tensor], once: bool) -> LentTicket:
        _check_integers(input)
        made, layout = self._made(input, offsets, per_sample_weights)
        return LentTicket(self.source, lent, keys_of([made.keys]), [self.num_embeddings], layout, once)

    def _made(self, input: torch.Tensor, offsets: Optional[torch.Tensor],
              per_sample_weights: Optional[torch.Tensor]) -> tuple[bags.Bags, Any]:
        """The bags on the GPU, and what makes them of single rows."""
        weights = self._weights(input, per_sample_weights)
        made = bags.made(input, offsets, weights, self.include_last_offset, self.padding_idx)
        if self._pools(weights):
            return made, functools.partial(bags.pool, bags=made, mode=self.mode)
        return made, functools.partial(bags.combine, offsets=made.ends, mode=self.mode, weights=made.weights)

    def push_pooled(self, gradient: torch.Tensor, input: torch.Tensor, offsets: Optional[torch.Tensor],
                    weights: Optional[torch.Tensor], number: int) -> None:
        """The gradient of bags that servers pool, or that are pooled as servers do. `number`: of the pull."""
        if is_capturing(input):
            raise RuntimeError("a CUDA graph takes no compiled model: capture the model itself")
        lent = self._lent(input, None)
        if lent is None:
            self.source.take(parts_with([self.pooled_part(input, offsets, weights)], [gradient]))
            return
        made = bags.made(input, offsets, weights, self.include_last_offset, self.padding_idx)
        self.source.take_lent(Pulled(lent, keys_of([made.keys]), number), [made.spread(gradient.to(torch.float32), self.mode)])

    def _kept(self, input: torch.Tensor) -> Any:
        """[n_indices], true where there is no padding; None: there is none."""
        return None if self.padding_idx is None else self._keys(input).reshape(-1) != self.padding_idx

    def _pools(self, weights: Optional[torch.Tensor]) -> bool:
        """Whether servers combine the rows."""
        return self.table.schema.combiner == self.mode and not (weights is not None and weights.requires_grad)

    def pooled_part(self, input: torch.Tensor, offsets: Optional[torch.Tensor],
                    weights: Optional[torch.Tensor], scores: Any = None) -> Part:
        """The batch of a forward, to be combined by servers."""
        keys, ends, kept_weights = self._batch(input, offsets, weights)
        return Part(self.table, keys, ends, weights=None if kept_weights is None else to_numpy(kept_weights)[0],
                    scores=scores)

    def _batch(self, input: torch.Tensor, offsets: Optional[torch.Tensor],
               weights: Optional[torch.Tensor]) -> tuple[Any, Any, Optional[torch.Tensor]]:
        """(keys, offsets [bags + 1], weights) without the keys of padding."""
        ends = self._offsets(input, offsets).astype(np.int64)
        keys = self._keys(input).reshape(-1)
        weights = self._weights(input, weights)
        if self.padding_idx is not None:
            kept = keys != self.padding_idx
            ends = np.append(0, np.cumsum(kept))[ends]
            keys = keys[kept]
            weights = None if weights is None else weights[to_device(kept, weights.device)]
        return keys, ends, weights

    def _weights(self, input: torch.Tensor, weights: Optional[torch.Tensor]) -> Optional[torch.Tensor]:
        if weights is None:
            return None
        if self.mode != "sum":
            _refuse("EmbeddingBag", f"per_sample_weights with mode {self.mode!r}", "torch.nn has none either")
        if weights.shape != input.shape:
            raise ValueError(f"per_sample_weights are {tuple(weights.shape)}, input is {tuple(input.shape)}")
        return weights.reshape(-1)

    def forward(self, input: Union[torch.Tensor, AnyTicket], offsets: Optional[torch.Tensor] = None,
                per_sample_weights: Optional[torch.Tensor] = None, *,
                scores: Optional[torch.Tensor] = None) -> torch.Tensor:
        is_ticket = isinstance(input, AnyTicket)
        if op.is_compiling() and not is_ticket and scores is None and self._pools(per_sample_weights):
            anchor = self.source.anchor if self._pushes else self.source.anchor.detach()
            pooled: torch.Tensor = op.bags(anchor, input, offsets, per_sample_weights, self._operand)[0]
            return pooled.to(self.dtype)
        ticket = input if isinstance(input, AnyTicket) else self.started(input, offsets, per_sample_weights, scores)
        rows, = ticket.rows(self._pushes)
        made: torch.Tensor = ticket.layout(rows)
        return made.to(self.dtype)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, mode={self.mode}"


def _as_they_are(rows: torch.Tensor) -> torch.Tensor:
    return rows
