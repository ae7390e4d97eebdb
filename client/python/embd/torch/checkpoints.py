"""State dicts as torch.nn and TorchRec have them, with rows: into tables, and out of them.

A state_dict() of this package's modules refers to tables. These functions are for checkpoints of models that had their rows
as parameters, and for models that shall have them so."""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

import numpy as np
import torch
from torch import nn

from .base import Reference, Weight
from .copies import to_numpy
from .states import NEW, OptimizerState, State, torch_state, with_masters


def import_state_dict(model: nn.Module, state_dict: Mapping[str, Any], strict: bool = True, *,
                      optimizer: Optional[Mapping[str, Any]] = None, parameters: Optional[Sequence[str]] = None,
                      optimizer_step: Optional[int] = None) -> None:
    """Loads a state dict of torch.nn or TorchRec, as torch.load or safetensors.torch.load_file return it: tables get the rows of
    their weights, with the state of new rows, and other parameters are loaded. Names are those of the model that was saved: for an
    EmbeddingBag at `bag` "bag.weight"; for a table `items` of an EmbeddingBagCollection at `ebc`
    "ebc.embedding_bags.items.weight", of an EmbeddingCollection "ebc.embeddings.items.weight". All weights are checked before the
    first is written. With strict=False names may lack on either side. Of several workers one calls it, while none pushes.

    `optimizer` is the state dict of the optimizer that trained the rows: rows get its state, tables its step, and training goes on
    as before. torch.optim.SparseAdam is "adam" here, Adagrad "adagrad", SGD with momentum "momentum" or "nesterov" and RMSprop
    "rmsprop", these with update="global". FBGEMM's states (TorchRec's fused optimizer: "items.momentum1") go to "adagrad",
    "rowwise_adagrad", "partial_rowwise_adam" and "lamb". All parameters but lr have to equal the table's; what differs is refused
    by name. If the optimizer's state has numbers for parameters, `parameters` has their names in the order in which the optimizer got
    them: [name for name, _ in model.named_parameters()] of the model that was saved. `optimizer_step` is the step of states without
    one. Entries of dense parameters are left to the dense optimizer."""
    rest, found = dict(state_dict), []
    states = None if optimizer is None else OptimizerState(optimizer, parameters, optimizer_step)
    names = dict(_weights(model))
    missing = [name for name in names if name not in rest]
    if missing and strict:
        raise KeyError(f"the state dict has no {', '.join(missing)}")
    for name, weight in names.items():
        if name in rest:
            matrix = _matrix(name, rest.pop(name), weight)
            found.append((name, matrix, weight, NEW if states is None else states.of(name, weight, len(matrix))))
    for _, _, weight, state in found:
        _check_step(weight, state)
    references = {key: value for key, value in model.state_dict().items() if key.endswith("_extra_state")}
    model.load_state_dict({**references, **rest}, strict=strict)
    for name, matrix, weight, state in found:
        put_weight(name, matrix, weight, state)


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


def export_optimizer_state(model: nn.Module, parameters: Optional[Sequence[str]] = None) -> dict[str, Any]:
    """A state dict as of the optimizer that would train these rows in torch. It is for load_state_dict of a torch.optim.SparseAdam
    (tables with "adam"), Adagrad, SGD or RMSprop, as import_state_dict says. Parameters have the numbers of their names in
    `parameters`, or else in export_state_dict; those of dense layers have no state. If only FBGEMM has the optimizer, names and
    states are those of TorchRec's fused optimizers."""
    for module in model.modules():
        if isinstance(module, Reference):
            module.flush()
    weights = dict(_weights(model))
    names = list(weights) if parameters is None else list(parameters)
    missing = [name for name in weights if name not in names]
    if missing:
        raise KeyError(f"parameters has no {', '.join(missing)}")
    state: dict[Any, Any] = {}
    groups: list[dict[str, Any]] = []
    for name, weight in weights.items():
        entry, group, is_fused = torch_state(weight, name, _states(name, weight), weight.table.step)
        state[name if is_fused else names.index(name)] = entry
        if group not in groups:
            groups.append(group)
    if len(groups) != 1:
        raise ValueError("the tables have optimizers of several kinds or parameters; export the modules one by one")
    numbers: Sequence[Any] = names if is_fused else range(len(names))
    return {"state": state, "param_groups": [{**groups[0], "params": list(numbers)}]}


def put_weight(name: str, matrix: torch.Tensor, weight: Weight, state: State = NEW) -> None:
    """Writes the rows 0, 1, ... of a table, with their state, and its step where the state has one."""
    values, = to_numpy(_matrix(name, matrix, weight).to(torch.float32))
    state = with_masters(weight, values, state)
    weight.table.put(np.arange(len(values)), values, state.floats, step=state.step)


def _check_step(weight: Weight, state: State) -> None:
    if state.step > 0 and weight.table.step > state.step:
        raise ValueError(f"table {weight.table.name} has made {weight.table.step} steps, the optimizer {state.step}: a table's step does not "
                         "go back, so import into a new table")


def _states(name: str, weight: Weight) -> Any:
    """Floats beside the rows 0, 1, ...; those of keys without a row are those of a new row."""
    if weight.n is None:
        raise ValueError(f"{name}: num_embeddings is None, so any 64-bit integer is a row")
    rows = weight.table.get(np.arange(weight.n), states=True)
    assert rows.states is not None
    if weight.table.schema.optimizer.kind in ("adagrad", "rowwise_adagrad"):
        rows.states[~rows.found] = weight.table.schema.optimizer.initial_accumulator
    return rows.states


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
