"""Bags of single rows, summed by PyTorch where the rows are.

pool() has the bits of servers that combine rows (proto/SEMANTICS.md, pooling and gradients): a sum begins with the first key of its
bag and follows their order, a product with a weight is rounded before it is added, and a mean is divided once. combine() has
those of torch.nn."""
from __future__ import annotations

from typing import Any, NamedTuple, Optional

import torch
from torch.nn import functional


class Bags(NamedTuple):
    """The keys of bags, without padding."""

    keys: torch.Tensor  # [n], 64 bits
    ends: torch.Tensor  # [bags + 1], from 0 to n
    weights: Optional[torch.Tensor]  # [n]

    def spread(self, gradient: torch.Tensor, mode: str) -> torch.Tensor:
        """Of bags [bags, dim], to their keys [n, dim]."""
        if mode == "mean":
            gradient = gradient * self._divisors().reciprocal()
        counts = self.ends[1:] - self.ends[:-1]
        bag_of = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts, output_size=len(self.keys))
        rows = gradient.index_select(0, bag_of)
        return rows if self.weights is None else rows * self.weights.to(rows.dtype).unsqueeze(1)

    def sums(self, rows: torch.Tensor, mode: str) -> torch.Tensor:
        """Of rows [n, dim], a bag each."""
        if self.weights is not None:
            rows = rows * self.weights.to(rows.dtype).unsqueeze(1)
        sums = combine(rows, self.ends, "sum", None)
        return sums / self._divisors() if mode == "mean" else sums

    def _divisors(self) -> torch.Tensor:
        return (self.ends[1:] - self.ends[:-1]).clamp(min=1).to(torch.float32).unsqueeze(1)


def made(keys: torch.Tensor, offsets: Optional[torch.Tensor], weights: Optional[torch.Tensor], include_last_offset: bool,
         padding_idx: Optional[int]) -> Bags:
    """Of what torch.nn.EmbeddingBag takes, on the device of its indices. The caller may change its tensors afterwards, but weights
    that want gradients."""
    device = keys.device
    if offsets is None:
        ends = torch.arange(0, keys.numel() + 1, keys.shape[1], device=device)
    else:
        ends = offsets.to(device, torch.int64, copy=True)
        if not include_last_offset:
            ends = torch.cat([ends, ends.new_full((1,), keys.numel())])
    keys = keys.detach().reshape(-1)
    if weights is not None:
        weights = weights.to(device, copy=not weights.requires_grad).reshape(-1)
    if padding_idx is not None:
        kept = keys != padding_idx
        ends = torch.cat([ends.new_zeros(1), kept.cumsum(0)])[ends]
        places = torch.nonzero(kept).reshape(-1)
        keys = keys[places]
        weights = None if weights is None else weights[places]
    return Bags(keys, ends, weights)


def are_in_order(offsets: Optional[torch.Tensor], n: int, include_last_offset: bool) -> bool:
    """Whether bags are where offsets say. The host waits for the stream that they come from."""
    if offsets is None:
        return True
    if offsets.dim() != 1 or not offsets.numel() or offsets.dtype not in (torch.int64, torch.int32):
        return False
    falls = (offsets[1:] < offsets[:-1]).any()
    first, last, falling = torch.stack([offsets[0], offsets[-1], falls.to(offsets.dtype)]).tolist()
    return bool(first == 0 and not falling and (last == n if include_last_offset else last <= n))


class _Pooled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, bags: Bags, mode: str) -> torch.Tensor:
        ctx.bags, ctx.mode = bags, mode
        return bags.sums(rows, mode)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return ctx.bags.spread(gradient, ctx.mode), None, None


def pool(rows: torch.Tensor, bags: Bags, mode: str) -> torch.Tensor:
    """Bags of rows [n, dim] of bags.keys, as servers make them."""
    pooled: torch.Tensor = _Pooled.apply(rows, bags, mode)
    return pooled


def combine(rows: torch.Tensor, offsets: torch.Tensor, mode: str, weights: Optional[torch.Tensor]) -> torch.Tensor:
    """Bags of single rows, as torch.nn makes them: offsets [bags + 1]."""
    if len(rows) == 0:
        return rows.new_zeros((len(offsets) - 1, rows.shape[1])) + rows.sum()
    each = torch.arange(len(rows), device=rows.device)
    return functional.embedding_bag(each, rows, offsets, mode=mode, include_last_offset=True,
                                    per_sample_weights=None if weights is None else weights.to(rows.device, rows.dtype))
