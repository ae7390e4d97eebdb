"""Table definitions: what create_table takes and what an open table shows."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import structs
from ._native import ffi, lib
from .errors import check


class _Group:
    """A kind and its parameters; those not given take the kind's defaults."""

    def __init__(self, kind: str, **parameters: Any):
        self.kind = kind
        self.parameters = parameters

    def __repr__(self) -> str:
        inner = "".join(f", {name}={value:.7g}" if isinstance(value, float) else f", {name}={value!r}"
                        for name, value in self.parameters.items())
        return f"{type(self).__name__}({self.kind!r}{inner})"

    def __getattr__(self, name: str) -> Any:
        parameters = self.__dict__.get("parameters", {})
        if name in parameters:
            return parameters[name]
        raise AttributeError(f"{type(self).__name__} has no parameter {name!r}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and (self.kind, self.parameters) == (other.kind, other.parameters)

    def __hash__(self) -> int:
        return hash((self.kind, tuple(sorted(self.parameters.items()))))


class Optimizer(_Group):
    """How a push steps rows: "sgd", "momentum", "nesterov", "adagrad", "rowwise_adagrad", "adam", "rmsprop", "ftrl",
    "amsgrad", "partial_rowwise_adam", "lamb" or "counter_adagrad", by the formulas in schema.h. Parameters: lr, scaler,
    momentum, beta1, beta2, eps, initial_accumulator, beta, l1, l2, update, lr_decay, counter_halflife; and with every
    optimizer clip_value, clip_norm, weight_decay, decay ("l2", "decoupled", "decoupled_global"), max_norm, weight_min,
    weight_max. AdamW is Optimizer("adam", weight_decay=0.01, decay="decoupled")."""

    def __init__(self, kind: str, lr: float | None = None, **parameters: Any):
        super().__init__(kind, **({} if lr is None else {"lr": lr}), **parameters)


class Initializer(_Group):
    """A row's first value: "uniform" in [a, b), "uniform_slot", "normal" with mean a and deviation b, "constant" a."""

    def __init__(self, kind: str, a: float | None = None, b: float | None = None):
        super().__init__(kind, **{name: value for name, value in (("a", a), ("b", b)) if value is not None})


class Schema:
    """The definition of a table, as its servers have it. Every member of embd_schema is an attribute."""

    name: str
    dim: int
    slots: int
    slot_sizes: list[int] | None
    partition: str
    combiner: str
    dtype: str
    optimizer: Optimizer
    initializer: Initializer
    seed: int
    capacity: int
    on_full: str
    admit_after: int
    create_on: str
    admit_nonfinite: bool
    durability: str
    ttl: int
    rounding: str
    lfu_half_life: int
    lfu_occurrences: bool
    ttl_seconds: int

    def __init__(self, members: dict[str, Any]):
        self.__dict__.update(members)

    def __repr__(self) -> str:
        return "Schema(" + ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items()) + ")"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.__dict__ == other.__dict__

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a table definition has no member {name!r}")


def from_c(c_schema: Any) -> Schema:
    members = structs.read(c_schema)
    sizes = c_schema.slot_sizes
    del members["changed"]
    members["slot_sizes"] = None if sizes == ffi.NULL else list(ffi.unpack(sizes, c_schema.slots))
    optimizer, initializer = members["optimizer"], members["initializer"]
    members["optimizer"] = Optimizer(optimizer.pop("kind"), **optimizer, **members.pop("regularization"))
    members["initializer"] = Initializer(initializer.pop("kind"), **initializer)
    return Schema(members)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(str(int(item)) for item in value)
    if isinstance(value, float):
        return repr(float(value))
    return str(value)


def _fields(fields: dict[str, Any]) -> list[tuple[str, str]]:
    """(name, text) of each field, a kind before its parameters, on_full before ttl, slot_sizes before slots."""
    out = []
    for name, value in sorted(fields.items(), key=lambda field: field[0] not in ("on_full", "slot_sizes")):
        if isinstance(value, _Group):
            out.append((name, value.kind))
            out += [(f"{name}.{parameter}", _text(v)) for parameter, v in value.parameters.items()]
        elif value is not None:
            out.append((name, _text(value)))
    return out


class CFields:
    """Fields of a definition and their values as an array of embd_field, and the memory it points to."""

    def __init__(self, fields: Mapping[str, Any]):
        pairs = [pair for name, value in fields.items() for pair in _pairs(name, value)]
        self.texts = [(ffi.new("char[]", name.encode()), ffi.new("char[]", value.encode())) for name, value in pairs]
        self.n = len(pairs)
        self.fields = ffi.new("embd_field[]", self.texts)


def _pairs(name: str, value: Any) -> list[tuple[str, str]]:
    if isinstance(value, Mapping):
        return [(f"{name}.{parameter}", _text(v)) for parameter, v in value.items()]
    return [(name, _text(value))]


class CSchema:
    """An embd_schema from keywords, and the memory it points to."""

    def __init__(self, name: str, dim: int, fields: dict[str, Any]):
        self.schema = structs.new("embd_schema")
        self.storage = ffi.new("uint64_t[]", lib.EMBD_SLOTS_MAX)
        for field, value in [("name", name), ("dim", _text(dim)), *_fields(fields)]:
            check(lib.embd_schema_set(self.schema, field.encode(), value.encode(), self.storage))
