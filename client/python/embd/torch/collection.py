"""Many features over many tables, pulled in one call and pushed in one call, with the signatures of TorchRec. Where rows stay on a GPU
beside the server it is a call for each table.

A batch is TorchRec's KeyedJaggedTensor, and results have TorchRec's types then. Without TorchRec it is `features`
names, `values` and `lengths` (and `weights`), and results are dicts of tensors. Features may share a table: they take
one step of it together. A feature that several tables have is named feature@table in results."""
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Optional, Union

import torch

from ..errors import UnsupportedError
from ..schema import Initializer, Optimizer
from ..table import Table
from .base import Reference, Weight
from .captured import is_capturing
from .home import Home, open_home
from .config import definition, features_of
from .jagged import Batch, Jagged, JaggedThere, batch_of, captured, pooled, there, unpooled
from .copies import Device, device_named
from .lent import Lent, keys_of
from .rows import AnyTicket, LentTicket, Source, WideTicket


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

    def _start(self, batch: Batch, once: bool) -> AnyTicket:
        """`once`: one forward uses it."""
        ticket = self._start_there(batch, once)
        if ticket is not None:
            return ticket
        made = Jagged(batch)
        parts = [made.part(table, features, config.num_embeddings)
                 for table, features, config in zip(self.tables, self.features, self.configs)]
        return self.source.start(parts, self.device or made.device, made)

    def _start_there(self, batch: Batch, once: bool) -> Optional[AnyTicket]:
        """Where values and rows can stay on a GPU."""
        device = batch.values.device
        if is_capturing(batch.values):
            return self._capture(batch)
        if self.device not in (None, device) or self.source.lending.is_refused(device) or not self._fits(batch):
            return None
        made = there(batch)
        lent = None if made is None else self.source.lent(device, [sum(made.count(feature) for feature in features)
                                                                   for features in self.features])
        if made is None or lent is None:
            return None
        try:
            return self._pull_there(made, lent, once)
        except UnsupportedError:
            self.source.end_lending(device)
            return None

    def _capture(self, batch: Batch) -> AnyTicket:
        """The pulls as nodes of the CUDA graph that is captured. Nobody looks at the indices: the host is not there."""
        device = batch.values.device
        if self.device not in (None, device) or not self._fits(batch):
            raise RuntimeError("a CUDA graph takes a collection whose features are all there, with weights for sums alone, and whose rows "
                               "are on the GPU of its values")
        made = captured(batch, lambda lengths: self.source.capturing.keep(lengths, device))
        keys = [made.keys(features) for features in self.features]
        self._make_bags(made, keys)
        return self.source.capture(keys, made)

    def _make_bags(self, made: JaggedThere, keys: Sequence[torch.Tensor]) -> None:
        for table, mine, features in zip(self.tables, keys, self.features):
            if table.combines:
                made.make_bags(mine, features, table.schema.combiner)

    def _fits(self, batch: Batch) -> bool:
        """Otherwise the road through the host says what is wrong."""
        has_all = all(feature in batch.features for features in self.features for feature in features)
        return has_all and (batch.weights is None or all(table.schema.combiner == "sum" for table in self.tables))

    def _pull_there(self, made: JaggedThere, lent: Lent, once: bool) -> AnyTicket:
        keys = keys_of([made.keys(features) for features in self.features])
        limits = [config.num_embeddings for config in self.configs]
        modes = {table.schema.combiner if table.combines else None for table in self.tables}
        if lent.is_wide() and len(modes) == 1:
            made.widen(self.features, modes.pop())
            return WideTicket(self.source, lent, keys, limits, made, once)
        self._make_bags(made, keys.each())
        return LentTicket(self.source, lent, keys, limits, made, once)

    def _matrices(self, ticket: AnyTicket) -> list[torch.Tensor]:
        """Of each feature, one table after the other."""
        batch: Union[Jagged, JaggedThere] = ticket.layout
        tables = self._rows(ticket)
        if isinstance(ticket, WideTicket):
            return list(tables)
        return [rows for number, (features, whole) in enumerate(zip(self.features, tables))
                for rows in self._split(batch, features, batch.pooled(number, whole))]

    def _split(self, batch: Union[Jagged, JaggedThere], features: list[str], rows: torch.Tensor) -> Sequence[torch.Tensor]:
        raise NotImplementedError

    def _rows(self, ticket: AnyTicket) -> tuple[torch.Tensor, ...]:
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
                 lengths: Optional[torch.Tensor] = None, weights: Optional[torch.Tensor] = None) -> AnyTicket:
        """Starts the pull of a forward to come; give the ticket to forward in the place of its arguments. It does
        not see pushes that are started later."""
        return self._start(batch_of(features, values, lengths, weights, self._is_weighted), False)

    def forward(self, features: Any, values: Optional[torch.Tensor] = None,
                lengths: Optional[torch.Tensor] = None, weights: Optional[torch.Tensor] = None) -> Any:
        """A KeyedTensor for a KeyedJaggedTensor; else {feature: [samples, dim]}, in the order of the tables'
        features."""
        ticket = features if isinstance(features, AnyTicket) else self._start(
            batch_of(features, values, lengths, weights, self._is_weighted), True)
        return pooled(ticket.layout.types, [name for names in self.names for name in names], self._matrices(ticket))

    def _split(self, batch: Union[Jagged, JaggedThere], features: list[str], rows: torch.Tensor) -> Sequence[torch.Tensor]:
        each: Sequence[torch.Tensor] = rows.split(batch.samples) if batch.samples else [rows] * len(features)
        return each


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
                 lengths: Optional[torch.Tensor] = None) -> AnyTicket:
        """As EmbeddingBagCollection's."""
        return self._start(batch_of(features, values, lengths, None, False), False)

    def forward(self, features: Any, values: Optional[torch.Tensor] = None,
                lengths: Optional[torch.Tensor] = None) -> dict[str, Any]:
        """{feature: JaggedTensor} for a KeyedJaggedTensor; else {feature: [values of the feature, dim]}."""
        ticket = features if isinstance(features, AnyTicket) else self._start(
            batch_of(features, values, lengths, None, False), True)
        features_of_all = [feature for each in self.features for feature in each]
        names = [name for each in self.names for name in each]
        return {name: unpooled(ticket.layout, feature, rows, self._need_indices)
                for feature, name, rows in zip(features_of_all, names, self._matrices(ticket))}

    def _split(self, batch: Union[Jagged, JaggedThere], features: list[str], rows: torch.Tensor) -> Sequence[torch.Tensor]:
        each: Sequence[torch.Tensor] = rows.split([batch.count(feature) for feature in features])
        return each
