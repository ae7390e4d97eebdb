"""What the tables of a collection are: TorchRec's EmbeddingBagConfig and EmbeddingConfig, or the classes here, which have
their fields and need no TorchRec."""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NoReturn, Optional, Union

from torch import nn

from ..schema import Initializer, Optimizer

DTYPES = {"fp32": "f32", "fp16": "f16", "bf16": "bf16"}


@dataclasses.dataclass
class EmbeddingConfig:
    """A table of an EmbeddingCollection.

    num_embeddings     indices are 0 to num_embeddings - 1; None: any 64-bit integer is one
    embedding_dim      columns of a row
    name               of the table; it is created where it is not there
    data_type          "FP32", "FP16" or "BF16", of the rows on the servers
    feature_names      the features that look into it; none: one of the table's name
    weight_init_min, weight_init_max   first values are uniform between them, by default -/+ sqrt(1 / num_embeddings)

    and what TorchRec's has not:

    optimizer, initializer   this table's; None: the collection's
    fields                   others of the table's definition, such as durability or capacity"""

    num_embeddings: Optional[int]
    embedding_dim: int
    name: str = ""
    data_type: Any = "FP32"
    feature_names: Sequence[str] = ()
    weight_init_max: Optional[float] = None
    weight_init_min: Optional[float] = None
    optimizer: Union[Optimizer, str, None] = None
    initializer: Union[Initializer, str, None] = None
    fields: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class EmbeddingBagConfig(EmbeddingConfig):
    """A table of an EmbeddingBagCollection. pooling: "SUM" or "MEAN"."""

    pooling: Any = "SUM"


UNDERSTOOD = {field.name for field in dataclasses.fields(EmbeddingBagConfig)} | {"init_fn"}


def features_of(config: Any) -> list[str]:
    return list(config.feature_names) or [config.name]


def definition(config: Any, combiner: Optional[str], given: dict[str, Any]) -> dict[str, Any]:
    """create_table's keywords, but name and dim. combiner None: the config's pooling; given: the collection's."""
    _refuse_others(config)
    made: dict[str, Any] = {**given, **getattr(config, "fields", {})}
    made["combiner"] = combiner or _choice(config, "pooling", {"sum": "sum", "mean": "mean"})
    made["dtype"] = _choice(config, "data_type", DTYPES)
    made["optimizer"] = getattr(config, "optimizer", None) or given["optimizer"]
    made["initializer"] = getattr(config, "initializer", None) or given["initializer"] or _first_values(config)
    return made


def _refuse(config: Any, field: str, reason: str) -> NoReturn:
    raise NotImplementedError(f"table {config.name}: {field} is {getattr(config, field)!r}; {reason}")


def _refuse_others(config: Any) -> None:
    """Fields of a TorchRec to come may change what rows are: none is passed over."""
    for field in dataclasses.fields(config):
        if field.name in UNDERSTOOD:
            continue
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if getattr(config, field.name) != default:
            _refuse(config, field.name, "embd.torch has nothing of that name")


def _choice(config: Any, field: str, known: dict[str, str]) -> str:
    value = getattr(config, field)
    name = str(getattr(value, "value", value)).lower()
    if name not in known:
        _refuse(config, field, f"embd.torch has {', '.join(known)}")
    return known[name]


def _first_values(config: Any) -> Initializer:
    """Uniform, as TorchRec has it; other functions cannot run on servers."""
    made = getattr(config, "init_fn", None)
    if made is not None:
        if getattr(made, "func", None) is not nn.init.uniform_ or set(made.keywords) != {"a", "b"}:
            _refuse(config, "init_fn", "servers make first values: give the collection an initializer=")
        return Initializer("uniform", made.keywords["a"], made.keywords["b"])
    bound = math.sqrt(1 / config.num_embeddings) if config.num_embeddings else 0.05
    least, most = config.weight_init_min, config.weight_init_max
    return Initializer("uniform", -bound if least is None else least, bound if most is None else most)
