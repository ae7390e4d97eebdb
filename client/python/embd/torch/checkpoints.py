"""State dicts as torch.nn and TorchRec have them, with rows: into tables, and out of them.

A state_dict() of this package's modules refers to tables. These functions are for checkpoints of models that had their rows
as parameters, and for models that shall have them so."""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from .base import Reference, Weight
from .rows import to_numpy


def import_state_dict(model: nn.Module, state_dict: Mapping[str, Any], strict: bool = True) -> None:
    """Loads a state dict of torch.nn or TorchRec, as torch.load or safetensors.torch.load_file give it: tables get the rows of
    their weights, with the state of new rows, and other parameters are loaded. Names are those of the model that was saved: for an
    EmbeddingBag at `bag` "bag.weight"; for a table `items` of an EmbeddingBagCollection at `ebc`
    "ebc.embedding_bags.items.weight", of an EmbeddingCollection "ebc.embeddings.items.weight". All weights are checked before the
    first is written. With strict=False names may lack on either side. Of several workers one calls it, while none pushes."""
    rest, found = dict(state_dict), []
    names = dict(_weights(model))
    missing = [name for name in names if name not in rest]
    if missing and strict:
        raise KeyError(f"the state dict has no {', '.join(missing)}")
    for name, weight in names.items():
        if name in rest:
            found.append((name, _matrix(name, rest.pop(name), weight), weight))
    references = {key: value for key, value in model.state_dict().items() if key.endswith("_extra_state")}
    model.load_state_dict({**references, **rest}, strict=strict)
    for name, matrix, weight in found:
        put_weight(name, matrix, weight)


def export_state_dict(model: nn.Module) -> dict[str, torch.Tensor]:
    """The state dict that the model would have with torch.nn's or TorchRec's modules in the place of this package's, with copies of
    all rows 0 to num_embeddings - 1; keys without a row have their first value."""
    out = {key: value for key, value in model.state_dict().items() if not key.endswith("_extra_state")}
    for module in model.modules():
        if isinstance(module, Reference):
            module.flush()
    for name, weight in _weights(model):
        if weight.n is None:
            raise ValueError(f"{name}: num_embeddings is None, so any 64-bit integer is a row; get keys of the table instead")
        rows = weight.table.pull(np.arange(weight.n), raw=True)
        if weight.zeros is not None:
            rows[weight.zeros] = 0
        out[name] = torch.from_numpy(rows)
    return out


def put_weight(name: str, matrix: torch.Tensor, weight: Weight) -> None:
    """Writes the rows 0, 1, ... of a table."""
    values = to_numpy(_matrix(name, matrix, weight).to(torch.float32))
    weight.table.put(np.arange(len(values)), values)


def _weights(model: nn.Module) -> Iterator[tuple[str, Weight]]:
    for path, module in model.named_modules():
        if isinstance(module, Reference):
            for weight in module.weights():
                yield f"{path}.{weight.name}" if path else weight.name, weight


def _matrix(name: str, matrix: Any, weight: Weight) -> torch.Tensor:
    if type(matrix) not in (torch.Tensor, nn.Parameter):
        raise TypeError(f"{name} is a {type(matrix).__name__}; a whole tensor is expected, gather a sharded one first")
    shape = tuple(matrix.shape)
    if len(shape) != 2 or shape[1] != weight.table.dim or (weight.n is not None and shape[0] != weight.n):
        rows = "any number of" if weight.n is None else weight.n
        raise ValueError(f"{name} is {shape}; table {weight.table.name} has {rows} rows of {weight.table.dim} columns")
    if not weight.table.schema.admit_nonfinite and not torch.isfinite(matrix).all():
        raise ValueError(f"{name} has values that are not finite; table {weight.table.name} admits finite ones only")
    if weight.zeros is not None and matrix[weight.zeros].any():
        raise ValueError(f"{name}: row {weight.zeros} is padding_idx, which has to be zeros")
    return matrix.detach()
