"""Features, values and lengths of a batch as TorchRec has them, and results in its types."""
from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Optional

import numpy as np
import torch

from ..table import Part, Table
from .copies import to_device, to_numpy


class Jagged:
    """lengths [features * samples], feature after feature: how many of values, and weights, each sample has.

    types: the module of TorchRec's KeyedJaggedTensor, where that was given; or None."""

    def __init__(self, features: Sequence[str], values: torch.Tensor, lengths: torch.Tensor,
                 weights: Optional[torch.Tensor], is_weighted: bool, types: Any = None):
        if is_weighted and weights is None:
            raise ValueError("the collection's is_weighted is True, but the batch has no weights")
        self.types = types
        self.device = values.device
        flat: Any
        self.values, flat, *more = to_numpy(values, lengths, *(() if weights is None else (weights.to(torch.float32),)))
        self.weights = more[0] if more else None
        if not features or flat.size % len(features):
            raise ValueError(f"{flat.size} lengths are no whole number of samples of {len(features)} features")
        self.samples = flat.size // len(features)
        self.lengths = flat.reshape(len(features), self.samples).astype(np.int64)
        if self.lengths.size and self.lengths.min() < 0:
            raise ValueError(f"lengths: the least is {self.lengths.min()}")
        self.starts = np.append(0, np.cumsum(self.lengths.sum(axis=1)))
        if self.starts[-1] != self.values.size:
            raise ValueError(f"lengths sum to {self.starts[-1]}, there are {self.values.size} values")
        if self.weights is not None and self.weights.size != self.values.size:
            raise ValueError(f"there are {self.weights.size} weights and {self.values.size} values")
        self.numbers = {feature: i for i, feature in enumerate(features)}

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


def jagged_of(features: Any, values: Optional[torch.Tensor], lengths: Optional[torch.Tensor],
              weights: Optional[torch.Tensor], is_weighted: bool) -> Jagged:
    """Of names, values, lengths and weights; or of one KeyedJaggedTensor, or anything with its methods."""
    if values is not None:
        if lengths is None:
            raise TypeError("values need lengths")
        if weights is not None and not is_weighted:
            raise ValueError("weights are given, but the collection's is_weighted is False")
        return Jagged(list(features), values, lengths, weights, is_weighted)
    types = sys.modules.get("torchrec.sparse.jagged_tensor")
    if types is not None and isinstance(features, types.KeyedJaggedTensor):
        if features.variable_stride_per_key() or features.inverse_indices_or_none() is not None:
            raise NotImplementedError("features differ in their number of samples (stride_per_key); embd.torch has "
                                      "one number for all")
    else:
        types = None
    # As TorchRec: weights of a batch count only where the collection is weighted.
    return Jagged(features.keys(), features.values(), features.lengths(),
                  features.weights_or_none() if is_weighted else None, is_weighted, types)


def pooled(types: Any, names: list[str], rows: list[torch.Tensor]) -> Any:
    """rows: [samples, dim] of each name. A KeyedTensor, or {name: rows}."""
    if types is None:
        return dict(zip(names, rows))
    return types.KeyedTensor(names, [each.shape[1] for each in rows], torch.cat(rows, 1))


def unpooled(batch: Jagged, feature: str, rows: torch.Tensor, need_indices: bool) -> Any:
    """rows: [values of the feature, dim]. A JaggedTensor, or the rows."""
    if batch.types is None:
        return rows
    number = batch.numbers[feature]
    indices = batch.values[batch.starts[number]:batch.starts[number + 1]]
    return batch.types.JaggedTensor(rows, lengths=to_device(batch.lengths[number], batch.device),
                                    weights=to_device(indices, batch.device) if need_indices else None)
