"""Bags as an operator of PyTorch's, embd::bags, where torch.library has custom_op (PyTorch 2.4 and later): a model
that is compiled keeps them in one graph.

To the compiler the operators are functions: embd::bags of its inputs, and embd::push of a gradient. The gradient of
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
    from .rows import parts_with

    @torch.library.custom_op("embd::bags", mutates_args=())
    def bags(anchor: torch.Tensor, input: torch.Tensor, offsets: Optional[torch.Tensor],
             weights: Optional[torch.Tensor], module: str) -> torch.Tensor:
        return _modules[module].prefetch(input, offsets, weights).wait()[0]

    @bags.register_fake
    def _(anchor: torch.Tensor, input: torch.Tensor, offsets: Optional[torch.Tensor],
          weights: Optional[torch.Tensor], module: str) -> torch.Tensor:
        bag = _modules[module]
        n_bags = input.shape[0] if offsets is None else offsets.shape[0] - int(bag.include_last_offset)
        return torch.empty((n_bags, bag.embedding_dim), dtype=torch.float32, device=bag.device_of(input))

    @torch.library.custom_op("embd::push", mutates_args=())
    def push(gradient: torch.Tensor, input: torch.Tensor, offsets: Optional[torch.Tensor],
             weights: Optional[torch.Tensor], module: str) -> torch.Tensor:
        bag = _modules[module]
        bag.source.take(parts_with([bag.pooled_part(input, offsets, weights)], [gradient]))
        return torch.empty(0)

    @push.register_fake
    def _(gradient: torch.Tensor, input: torch.Tensor, offsets: Optional[torch.Tensor],
          weights: Optional[torch.Tensor], module: str) -> torch.Tensor:
        return torch.empty(0)

    def _remember(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        _, input, offsets, weights, ctx.module = inputs
        ctx.save_for_backward(input, offsets, weights)

    def _backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        return push(gradient, *ctx.saved_tensors, ctx.module), None, None, None, None

    bags.register_autograd(_backward, setup_context=_remember)
