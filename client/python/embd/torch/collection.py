"""Many features over many tables, pulled in one call and pushed in one call, with the signatures of TorchRec.

A batch is TorchRec's KeyedJaggedTensor, and results have TorchRec's types then. Without TorchRec it is `features`
names, `values` and `lengths` (and `weights`), and results are dicts of tensors. Features may share a table: they take
one step of it together. A feature that several tables have is named feature@table in results."""
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Optional, Union

import torch

from ..schema import Initializer, Optimizer
from ..table import Table
from .base import Reference, Weight
from .home import Home, open_home
from .config import definition, features_of
from .jagged import Jagged, jagged_of, pooled, unpooled
from .copies import Device, device_named
from .rows import Source, Ticket


class _Collection(Reference):
    """What collections share: tables, their features, a source."""

    def __init__(self, configs: Sequence[Any], combiner: Optional[str], device: Device, client: Home,
                 given: dict[str, Any]):
        super().__init__()
        self.device = device_named(device)
        self.client, create = open_home(client)
        self.configs = list(configs)
        names = Counter(config.name for config in configs)
        twice = [name for name, n in names.items() if n > 1]
        if twice:
            raise ValueError(f"tables have one name: {', '.join(twice)}")
        made = [definition(config, combiner, given) for config in configs]
        self.tables: list[Table] = [create(config.name, config.embedding_dim, **fields)
                                    for config, fields in zip(configs, made)]
        self.features: list[list[str]] = [features_of(config) for config in configs]
        shared = Counter(feature for features in self.features for feature in features)
        self.names: list[list[str]] = [
            [f"{feature}@{config.name}" if shared[feature] > 1 else feature for feature in features]
            for config, features in zip(configs, self.features)]
        self.source = Source(self.client, self.tables)

    @property
    def feature_names(self) -> list[str]:
        return [feature for features in self.features for feature in features]

    _folder: str  # of its tables in a state_dict of TorchRec

    def weights(self) -> list[Weight]:
        return [Weight(f"{self._folder}.{config.name}.weight", table, config.num_embeddings)
                for table, config in zip(self.tables, self.configs)]

    def _start(self, batch: Jagged) -> Ticket:
        parts = [batch.part(table, features, config.num_embeddings)
                 for table, features, config in zip(self.tables, self.features, self.configs)]
        return self.source.start(parts, self.device or batch.device, batch)

    def _rows(self, ticket: Ticket) -> tuple[torch.Tensor, ...]:
        return ticket.rows(self.training and torch.is_grad_enabled())

    def extra_repr(self) -> str:
        return ", ".join(f"{table.name}[{table.dim}]: {' '.join(features)}"
                         for table, features in zip(self.tables, self.features))


class EmbeddingBagCollection(_Collection):
    """TorchRec's EmbeddingBagCollection: the rows of each feature's samples, pooled.

    tables       EmbeddingBagConfig, TorchRec's or this package's
    is_weighted  whether the weights of a batch count
    device       where rows are handed over; None: where the batch is
    client       where the tables are; they are created where they are not there. Of a Job the tables are its own
    optimizer, initializer, and other fields of a definition: of tables whose config says nothing else"""

    _folder = "embedding_bags"

    def __init__(self, tables: Sequence[Any], is_weighted: bool = False, device: Device = None, *, client: Home = None,
                 optimizer: Union[Optimizer, str] = "sgd", initializer: Union[Initializer, str, None] = None,
                 **fields: Any):
        super().__init__(tables, None, device, client, {"optimizer": optimizer, "initializer": initializer, **fields})
        self._is_weighted = is_weighted

    def is_weighted(self) -> bool:
        return self._is_weighted

    def embedding_bag_configs(self) -> list[Any]:
        return self.configs

    def prefetch(self, features: Any, values: Optional[torch.Tensor] = None,
                 lengths: Optional[torch.Tensor] = None, weights: Optional[torch.Tensor] = None) -> Ticket:
        """Starts the pull of a forward to come; give the ticket to forward in the place of its arguments. It does
        not see pushes that are started later."""
        return self._start(jagged_of(features, values, lengths, weights, self._is_weighted))

    def forward(self, features: Any, values: Optional[torch.Tensor] = None,
                lengths: Optional[torch.Tensor] = None, weights: Optional[torch.Tensor] = None) -> Any:
        """A KeyedTensor for a KeyedJaggedTensor; else {feature: [samples, dim]}, in the order of the tables'
        features."""
        ticket = features if isinstance(features, Ticket) else self.prefetch(features, values, lengths, weights)
        batch: Jagged = ticket.layout
        rows: list[torch.Tensor] = []
        for features_of_one, matrix in zip(self.features, self._rows(ticket)):
            rows += matrix.split(batch.samples) if batch.samples else [matrix] * len(features_of_one)
        return pooled(batch.types, [name for names in self.names for name in names], rows)


class EmbeddingCollection(_Collection):
    """TorchRec's EmbeddingCollection: the rows of each feature's values, one by one.

    tables        EmbeddingConfig, TorchRec's or this package's; all of one embedding_dim
    device        as EmbeddingBagCollection's
    need_indices  JaggedTensors of results have the indices as weights, as TorchRec's

    and keywords as EmbeddingBagCollection."""

    _folder = "embeddings"

    def __init__(self, tables: Sequence[Any], device: Device = None, need_indices: bool = False, *, client: Home = None,
                 optimizer: Union[Optimizer, str] = "sgd", initializer: Union[Initializer, str, None] = None,
                 **fields: Any):
        dims = sorted({config.embedding_dim for config in tables})
        if len(dims) > 1:
            raise ValueError(f"tables of an EmbeddingCollection have one embedding_dim, here {dims}")
        super().__init__(tables, "concat", device, client, {"optimizer": optimizer, "initializer": initializer, **fields})
        self._need_indices = need_indices

    def need_indices(self) -> bool:
        return self._need_indices

    def embedding_dim(self) -> int:
        return self.tables[0].dim

    def embedding_configs(self) -> list[Any]:
        return self.configs

    def embedding_names_by_table(self) -> list[list[str]]:
        return self.names

    def prefetch(self, features: Any, values: Optional[torch.Tensor] = None,
                 lengths: Optional[torch.Tensor] = None) -> Ticket:
        """As EmbeddingBagCollection's."""
        return self._start(jagged_of(features, values, lengths, None, False))

    def forward(self, features: Any, values: Optional[torch.Tensor] = None,
                lengths: Optional[torch.Tensor] = None) -> dict[str, Any]:
        """{feature: JaggedTensor} for a KeyedJaggedTensor; else {feature: [values of the feature, dim]}."""
        ticket = features if isinstance(features, Ticket) else self.prefetch(features, values, lengths)
        batch: Jagged = ticket.layout
        out: dict[str, Any] = {}
        for wanted, names, matrix in zip(self.features, self.names, self._rows(ticket)):
            counts = [int(batch.lengths[batch.numbers[feature]].sum()) for feature in wanted]
            for feature, name, rows in zip(wanted, names, matrix.split(counts)):
                out[name] = unpooled(batch, feature, rows, self._need_indices)
        return out
