"""Bags as an operator of PyTorch's, embd::bags, where torch.library has custom_op (PyTorch 2.4 and later): a model
that is compiled keeps them in one graph.

To the compiler the operators are functions: embd::bags of its inputs, which gives the bags and the number of their pull, and embd::push
of a gradient. The gradient of
the anchor, a tensor without elements, is what embd::push returns, so that no pass finds it without a use and drops it.
Modules are passed by name, because operators take tensors, numbers and text, and the compiler takes numbers that
change from call to call for sizes."""
from __future__ import annotations

import itertools
import weakref
from typing import TYPE_CHECKING, Any, Optional

import torch

if TYPE_CHECKING:
    from .modules import EmbeddingBag

HAS_OPERATORS = hasattr(torch.library, "custom_op")

_numbers = itertools.count()
_modules: weakref.WeakValueDictionary[str, EmbeddingBag] = weakref.WeakValueDictionary()


def register(module: "EmbeddingBag") -> str:
    """The name by which the operators know a module."""
    name = f"{module.table.name}-{next(_numbers)}"
    _modules[name] = module
    return name


def is_compiling() -> bool:
    return HAS_OPERATORS and torch.compiler.is_compiling()


if HAS_OPERATORS:
    @torch.library.custom_op("embd::bags", mutates_args=())
    def bags(anchor: torch.Tensor, input: torch.Tensor, offsets: Optional[torch.Tensor],
             weights: Optional[torch.Tensor], module: str) -> tuple[torch.Tensor, torch.Tensor]:
        ticket = _modules[module].started(input, offsets, weights)
        rows, = ticket.wait()
        return ticket.layout(rows), torch.tensor(ticket.number)

    @bags.register_fake
    def _(anchor: torch.Tensor, input: torch.Tensor, offsets: Optional[torch.Tensor],
          weights: Optional[torch.Tensor], module: str) -> tuple[torch.Tensor, torch.Tensor]:
        bag = _modules[module]
        n_bags = input.shape[0] if offsets is None else offsets.shape[0] - int(bag.include_last_offset)
        pooled = torch.empty((n_bags, bag.embedding_dim), dtype=torch.float32, device=bag.device_of(input))
        return pooled, torch.empty((), dtype=torch.int64)

    @torch.library.custom_op("embd::push", mutates_args=())
    def push(gradient: torch.Tensor, input: torch.Tensor, offsets: Optional[torch.Tensor],
             weights: Optional[torch.Tensor], number: torch.Tensor, module: str) -> torch.Tensor:
        _modules[module].push_pooled(gradient, input, offsets, weights, int(number))
        return torch.empty(0)

    @push.register_fake
    def _(gradient: torch.Tensor, input: torch.Tensor, offsets: Optional[torch.Tensor],
          weights: Optional[torch.Tensor], number: torch.Tensor, module: str) -> torch.Tensor:
        return torch.empty(0)

    def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
        _, input, offsets, weights, ctx.module = inputs
        ctx.save_for_backward(input, offsets, weights, output[1])

    def _backward(ctx: Any, gradient: torch.Tensor, _: Any) -> tuple[Any, ...]:
        return push(gradient, *ctx.saved_tensors, ctx.module), None, None, None, None

    bags.register_autograd(_backward, setup_context=_remember)
