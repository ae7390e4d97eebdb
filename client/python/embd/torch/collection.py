"""Many features over many tables, pulled in one call and pushed in one call.

The input has TorchRec's layout: `features` names, and `lengths` [features * samples], feature after feature, how many
of `values` (and `weights`) belong to each sample. Any object with keys(), values(), lengths() and weights_or_none()
will do in their place, such as TorchRec's KeyedJaggedTensor. Features may share a table: they take one step of it
together."""
from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Optional, Union

import numpy as np
import torch
from torch import nn

from ..client import Client, connect
from ..schema import Initializer, Optimizer
from ..table import Part, Table
from .rows import Source, Ticket, to_numpy


@dataclasses.dataclass
class TableConfig:
    """A table of a collection and the features that look into it. `fields` are others of its definition."""

    name: str
    embedding_dim: int
    features: Sequence[str]
    mode: str = "sum"
    optimizer: Union[Optimizer, str] = "sgd"
    initializer: Union[Initializer, str] = Initializer("uniform", -0.05, 0.05)
    fields: dict[str, Any] = dataclasses.field(default_factory=dict)


class EmbeddingBagCollection(nn.Module):
    """Pooled embeddings of all features: {feature: [samples, dim]}, in the order of the tables' features."""

    def __init__(self, tables: Sequence[TableConfig], *, client: Union[Client, str, None] = None):
        super().__init__()
        self.client = client if isinstance(client, Client) else connect(client)
        self.tables: list[Table] = []
        self.features: list[list[str]] = []
        for config in tables:
            self.tables.append(self.client.create_table(
                config.name, config.embedding_dim, combiner=config.mode, optimizer=config.optimizer,
                initializer=config.initializer, **config.fields))
            self.features.append(list(config.features))
        every = [feature for features in self.features for feature in features]
        if len(set(every)) < len(every):
            raise ValueError("a feature is named by two tables")
        self.source = Source(self.client)

    @property
    def feature_names(self) -> list[str]:
        return [feature for features in self.features for feature in features]

    def prefetch(self, features: Any, values: Optional[torch.Tensor] = None,
                 lengths: Optional[torch.Tensor] = None, weights: Optional[torch.Tensor] = None) -> Ticket:
        """Starts the pull of a forward to come; give the ticket to forward in the place of its arguments. It does
        not see pushes that are started later."""
        if values is None:
            jagged = features
            features, values, lengths = jagged.keys(), jagged.values(), jagged.lengths()
            weights = jagged.weights_or_none() if hasattr(jagged, "weights_or_none") else None
        if lengths is None:
            raise TypeError("values need lengths")
        batch = _Jagged(list(features), to_numpy(values), to_numpy(lengths),
                        None if weights is None else to_numpy(weights.to(torch.float32)))
        parts = [batch.part(table, wanted) for table, wanted in zip(self.tables, self.features)]
        return self.source.start(parts, values.device, batch.samples)

    def forward(self, features: Any, values: Optional[torch.Tensor] = None,
                lengths: Optional[torch.Tensor] = None,
                weights: Optional[torch.Tensor] = None) -> dict[str, torch.Tensor]:
        ticket = features if isinstance(features, Ticket) else self.prefetch(features, values, lengths, weights)
        out: dict[str, torch.Tensor] = {}
        for wanted, rows in zip(self.features, ticket.rows(self.training and torch.is_grad_enabled())):
            pieces = rows.split(ticket.layout) if ticket.layout else [rows] * len(wanted)
            out.update(zip(wanted, pieces))
        return out

    def flush(self) -> None:
        """Waits until the gradients of every backward so far have been applied; raises what failed."""
        self.source.flush()

    def extra_repr(self) -> str:
        return ", ".join(f"{table.name}[{table.dim}]: {' '.join(features)}"
                         for table, features in zip(self.tables, self.features))


class _Jagged:
    """Features, values and lengths, checked, with where each feature begins."""

    def __init__(self, features: list[str], values: Any, lengths: Any, weights: Any):
        if not features or lengths.size % len(features):
            raise ValueError(f"{lengths.size} lengths are no whole number of samples of {len(features)} features")
        self.samples = lengths.size // len(features)
        self.lengths = lengths.reshape(len(features), self.samples).astype(np.int64)
        if self.lengths.size and self.lengths.min() < 0:
            raise ValueError(f"lengths: the least is {self.lengths.min()}")
        self.starts = np.append(0, np.cumsum(self.lengths.sum(axis=1)))
        if self.starts[-1] != values.size:
            raise ValueError(f"lengths sum to {self.starts[-1]}, there are {values.size} values")
        if weights is not None and weights.size != values.size:
            raise ValueError(f"there are {weights.size} weights and {values.size} values")
        self.numbers = {feature: i for i, feature in enumerate(features)}
        self.values = values
        self.weights = weights

    def part(self, table: Table, features: list[str]) -> Part:
        """The features of one table, one after the other."""
        missing = [feature for feature in features if feature not in self.numbers]
        if missing:
            raise KeyError(f"features of table {table.name} are missing: {', '.join(missing)}")
        numbers = [self.numbers[feature] for feature in features]
        spans = [slice(self.starts[i], self.starts[i + 1]) for i in numbers]
        weights = None if self.weights is None else np.concatenate([self.weights[span] for span in spans])
        if weights is not None and table.schema.combiner != "sum":
            raise ValueError(f"table {table.name} takes the mean; weights belong to sums")
        return Part(table, np.concatenate([self.values[span] for span in spans]),
                    lengths=self.lengths[numbers], weights=weights)
