"""Features, values and lengths of a batch as TorchRec has them, and results in its types."""
from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional, Union

import numpy as np
import torch

from ..table import Part, Table
from .bags import Bags, pool
from .copies import to_device, to_numpy


class Batch(NamedTuple):
    """As it was given: lengths [features * samples], feature after feature: how many of values, and weights, each sample has."""

    features: Sequence[str]
    values: torch.Tensor
    lengths: torch.Tensor
    weights: Optional[torch.Tensor]
    types: Any  # the module of TorchRec's KeyedJaggedTensor, where that was given; or None


class Jagged:
    """A batch whose values go to servers from the host."""

    def __init__(self, batch: Batch):
        self.types = batch.types
        self.device = batch.values.device
        weights = batch.weights
        flat: Any
        self.values, flat, *more = to_numpy(batch.values, batch.lengths, *(() if weights is None else (weights.to(torch.float32),)))
        self.weights = more[0] if more else None
        if not batch.features or flat.size % len(batch.features):
            raise ValueError(f"{flat.size} lengths are no whole number of samples of {len(batch.features)} features")
        self.samples = flat.size // len(batch.features)
        self.lengths = flat.reshape(len(batch.features), self.samples).astype(np.int64)
        if self.lengths.size and self.lengths.min() < 0:
            raise ValueError(f"lengths: the least is {self.lengths.min()}")
        self.starts = np.append(0, np.cumsum(self.lengths.sum(axis=1)))
        if self.starts[-1] != self.values.size:
            raise ValueError(f"lengths sum to {self.starts[-1]}, there are {self.values.size} values")
        if self.weights is not None and self.weights.size != self.values.size:
            raise ValueError(f"there are {self.weights.size} weights and {self.values.size} values")
        self.numbers = {feature: i for i, feature in enumerate(batch.features)}

    def count(self, feature: str) -> int:
        return int(self.lengths[self.numbers[feature]].sum())

    def lengths_of(self, feature: str) -> torch.Tensor:
        return to_device(self.lengths[self.numbers[feature]], self.device)

    def values_of(self, feature: str) -> torch.Tensor:
        number = self.numbers[feature]
        return to_device(self.values[self.starts[number]:self.starts[number + 1]], self.device)

    def pooled(self, number: int, rows: torch.Tensor) -> torch.Tensor:
        """Of a table: servers pooled them."""
        return rows

    def part(self, table: Table, features: list[str], num_embeddings: Optional[int]) -> Part:
        """The features of one table, one after the other: pooled where the table combines, else row by row."""
        missing = [feature for feature in features if feature not in self.numbers]
        if missing:
            raise KeyError(f"features of table {table.name} are missing: {', '.join(missing)}")
        numbers = [self.numbers[feature] for feature in features]
        spans = [slice(self.starts[i], self.starts[i + 1]) for i in numbers]
        keys = np.concatenate([self.values[span] for span in spans])
        if num_embeddings is not None and keys.size and (keys.min() < 0 or keys.max() >= num_embeddings):
            raise IndexError(f"table {table.name}: indices are {keys.min()} to {keys.max()}, "
                             f"num_embeddings is {num_embeddings}")
        if not table.combines:
            return Part(table, keys)
        weights = None if self.weights is None else np.concatenate([self.weights[span] for span in spans])
        if weights is not None and table.schema.combiner != "sum":
            raise ValueError(f"table {table.name} takes the mean; weights belong to sums")
        return Part(table, keys, lengths=self.lengths[numbers], weights=weights)


class JaggedThere:
    """A batch whose values stay on a GPU. The host knows how many of them each feature has."""

    def __init__(self, batch: Batch, lengths: torch.Tensor, counts: Sequence[int]):
        self.types = batch.types
        self.samples = lengths.shape[1]
        self.numbers = {feature: i for i, feature in enumerate(batch.features)}
        self._values = batch.values.detach()
        self._weights = None if batch.weights is None else batch.weights.detach().to(torch.float32)
        self._lengths = lengths  # [features, samples]
        self._counts = counts
        self._starts = [0, *itertools.accumulate(counts)]
        self._bags: list[tuple[Bags, str]] = []  # of each table, or one of all
        self._tables: list[list[str]] = []  # the features of each, of a wide ticket

    def count(self, feature: str) -> int:
        return self._counts[self.numbers[feature]]

    def lengths_of(self, feature: str) -> torch.Tensor:
        return self._lengths[self.numbers[feature]]

    def values_of(self, feature: str) -> torch.Tensor:
        return self._of(self._values, [feature]).clone()

    def _of(self, tensor: torch.Tensor, features: Sequence[str]) -> torch.Tensor:
        numbers = [self.numbers[feature] for feature in features]
        spans = [tensor[self._starts[i]:self._starts[i + 1]] for i in numbers]
        return spans[0] if len(spans) == 1 else torch.cat(spans)

    def keys(self, features: Sequence[str]) -> torch.Tensor:
        """Of one table: its features' values, one feature after the other."""
        return self._of(self._values, features)

    def make_bags(self, keys: torch.Tensor, features: Sequence[str], mode: str) -> None:
        """Of the next table."""
        lengths = torch.cat([self.lengths_of(feature) for feature in features])
        ends = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        weights = None if self._weights is None else self._of(self._weights, features).clone()
        self._bags.append((Bags(keys, ends, weights), mode))

    # Of all tables together, for a wide ticket: a matrix for each feature, one table after the other.

    def widen(self, tables: list[list[str]], mode: Optional[str]) -> None:
        """The features of each table; None: single rows."""
        self._tables = tables
        if mode is not None:
            features = [feature for each in tables for feature in each]
            self.make_bags(self._of(self._values, features), features, mode)

    def _sizes(self) -> list[int]:
        return [self.samples if self._bags else self.count(feature) for features in self._tables for feature in features]

    def matrices(self, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """rows: [n, dim] of all keys."""
        for made, mode in self._bags:
            rows = made.sums(rows, mode)
        each: tuple[torch.Tensor, ...] = rows.split(self._sizes())
        return each

    def gradient(self, gradients: Sequence[Optional[torch.Tensor]]) -> torch.Tensor:
        """Of all keys [n, dim], by those of the matrices; zeros where there is none."""
        given = next((gradient for gradient in gradients if gradient is not None), None)
        if given is None:
            return self._values.new_zeros(0, 0, dtype=torch.float32)
        whole = torch.cat([given.new_zeros(n, given.shape[1]) if gradient is None else gradient.detach()
                           for gradient, n in zip(gradients, self._sizes())]).to(torch.float32)
        for made, mode in self._bags:
            whole = made.spread(whole, mode)
        return whole

    def tables_with(self, gradients: Sequence[Optional[torch.Tensor]]) -> list[bool]:
        """Which tables have a gradient."""
        given = iter(gradients)
        return [any([next(given) is not None for _ in features]) for features in self._tables]

    def pooled(self, number: int, rows: torch.Tensor) -> torch.Tensor:
        """Of a table, as servers pool them; single rows are as they are."""
        return pool(rows, *self._bags[number]) if self._bags else rows


def there(batch: Batch) -> Optional[JaggedThere]:
    """None: the batch is on no GPU, or the road through the host says what is wrong. Waits for the stream that lengths come from."""
    n_features, tensors = len(batch.features), [batch.values, batch.lengths]
    if any(tensor.device != batch.values.device or tensor.dtype not in (torch.int64, torch.int32) for tensor in tensors):
        return None
    if not n_features or not batch.lengths.numel() or batch.lengths.numel() % n_features or batch.values.dim() != 1:
        return None
    if batch.weights is not None and (batch.weights.device != batch.values.device or batch.weights.shape != batch.values.shape):
        return None
    lengths = batch.lengths.detach().to(torch.int64, copy=True).reshape(n_features, -1)
    *counts, least = torch.cat([lengths.sum(1), lengths.min().reshape(1)]).tolist()
    return JaggedThere(batch, lengths, counts) if least >= 0 and sum(counts) == batch.values.numel() else None


def captured(batch: Batch, kept: Callable[[torch.Tensor], torch.Tensor]) -> JaggedThere:
    """A batch that a CUDA graph captures: its lengths, on the host, are those of every replay. `kept` has them on the GPU as well."""
    n_features, lengths = len(batch.features), batch.lengths.detach().to(torch.int64)
    if lengths.device.type != "cpu":
        raise RuntimeError("a CUDA graph takes a collection whose lengths are on the host, and are the same at every replay")
    if not n_features or lengths.numel() % n_features or (lengths < 0).any() or int(lengths.sum()) != batch.values.numel():
        raise ValueError(f"{lengths.numel()} lengths of {n_features} features sum to {int(lengths.sum())}, "
                         f"there are {batch.values.numel()} values")
    lengths = lengths.reshape(n_features, -1)
    return JaggedThere(batch, kept(lengths), lengths.sum(1).tolist())


def batch_of(features: Any, values: Optional[torch.Tensor], lengths: Optional[torch.Tensor],
             weights: Optional[torch.Tensor], is_weighted: bool) -> Batch:
    """Of names, values, lengths and weights; or of one KeyedJaggedTensor, or anything with its methods."""
    batch = _batch_of(features, values, lengths, weights, is_weighted)
    if is_weighted and batch.weights is None:
        raise ValueError("the collection's is_weighted is True, but the batch has no weights")
    return batch


def _batch_of(features: Any, values: Optional[torch.Tensor], lengths: Optional[torch.Tensor],
              weights: Optional[torch.Tensor], is_weighted: bool) -> Batch:
    if values is not None:
        if lengths is None:
            raise TypeError("values need lengths")
        if weights is not None and not is_weighted:
            raise ValueError("weights are given, but the collection's is_weighted is False")
        return Batch(list(features), values, lengths, weights, None)
    types = sys.modules.get("torchrec.sparse.jagged_tensor")
    if types is not None and isinstance(features, types.KeyedJaggedTensor):
        if features.variable_stride_per_key() or features.inverse_indices_or_none() is not None:
            raise NotImplementedError("features differ in their number of samples (stride_per_key); embd.torch has "
                                      "one number for all")
    else:
        types = None
    # As TorchRec: weights of a batch count only where the collection is weighted.
    return Batch(features.keys(), features.values(), features.lengths(),
                 features.weights_or_none() if is_weighted else None, types)


def pooled(types: Any, names: list[str], rows: list[torch.Tensor]) -> Any:
    """rows: [samples, dim] of each name. A KeyedTensor, or {name: rows}."""
    if types is None:
        return dict(zip(names, rows))
    return types.KeyedTensor(names, [each.shape[1] for each in rows], torch.cat(rows, 1))


def unpooled(batch: Union[Jagged, JaggedThere], feature: str, rows: torch.Tensor, need_indices: bool) -> Any:
    """rows: [values of the feature, dim]. A JaggedTensor, or the rows."""
    if batch.types is None:
        return rows
    return batch.types.JaggedTensor(rows, lengths=batch.lengths_of(feature),
                                    weights=batch.values_of(feature) if need_indices else None)
