"""The state of torch's optimizers, and of FBGEMM's fused ones, as the state beside a table's rows, and back.

A state dict of an optimizer does not say which optimizer it is of. So the table's own optimizer says what is expected, and
what the state dict has must be that: the same tensors, the same parameters, the same rule for rows without a gradient.
Anything else is refused by name, before a row is written."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

import numpy as np
import torch
from numpy.typing import NDArray

from ..arrays import Floats
from .base import Weight


class Rule(NamedTuple):
    """What an optimizer of torch keeps for a parameter, and the table that goes on with it."""

    torch: str  # class of torch.optim
    update: str  # of the table: whether rows without a gradient step too
    states: tuple[str, ...]  # in the order in which they stand beside a row
    same: dict[str, str]  # parameter of the group: that of the table, which has to be equal
    unset: tuple[str, ...] = ()  # parameters of the group without a counterpart
    fixed: dict[str, Any] = {}


_PLAIN = ("weight_decay", "maximize")
_MOMENTUM = Rule("SGD", "global", ("momentum_buffer",), {"momentum": "momentum"}, (*_PLAIN, "dampening"), {"nesterov": False})
RULES = {
    "sgd": Rule("SGD", "local", (), {}, (*_PLAIN, "momentum")),
    "momentum": _MOMENTUM,
    "nesterov": _MOMENTUM._replace(fixed={"nesterov": True}),
    "adagrad": Rule("Adagrad", "local", ("sum",), {"eps": "eps", "lr_decay": "lr_decay"}, _PLAIN),
    "adam": Rule("SparseAdam", "local", ("exp_avg", "exp_avg_sq"), {"betas": "beta1 and beta2", "eps": "eps"},
                 (*_PLAIN, "amsgrad")),
    "rmsprop": Rule("RMSprop", "global", ("square_avg",), {"alpha": "beta2", "eps": "eps"}, (*_PLAIN, "momentum", "centered")),
}
# States of fused optimizers, by what follows the last dot of their names; True: one number a row.
FUSED = {"adagrad": {"momentum1": False}, "rowwise_adagrad": {"momentum1": True},
         "partial_rowwise_adam": {"momentum1": False, "momentum2": True}, "lamb": {"momentum1": False, "momentum2": False}}
_FUSED_NAMES = {"momentum1": "momentum1", "momentum2": "momentum2", "exp_avg": "momentum1", "exp_avg_sq": "momentum2"}
# Parameters of a table that torch's optimizers do not have.
_OWN = {"scaler": 1.0, "clip_value": 0.0, "clip_norm": 0.0, "weight_decay": 0.0, "max_norm": 0.0}


class State(NamedTuple):
    """Of the rows 0, 1, ... of a table: floats beside each, and the table's step; None: as of new rows."""

    floats: Optional[Floats]
    step: int


NEW = State(None, 0)


class OptimizerState:
    """A state dict of an optimizer, looked up by the names of weights. `parameters`: the names in the order in which the
    optimizer got them, where the state dict has numbers."""

    def __init__(self, state_dict: Mapping[str, Any], parameters: Optional[Sequence[str]], step: Optional[int]):
        if not {"state", "param_groups"} <= set(state_dict):
            raise KeyError("an optimizer's state dict has 'state' and 'param_groups'")
        self.state, self.groups, self.step = dict(state_dict["state"]), list(state_dict["param_groups"]), step
        named = [name for group in self.groups for name in group["params"]]
        if parameters is None and any(not isinstance(name, str) for name in named):
            raise ValueError("the optimizer's state has numbers for parameters: pass parameters=[...], their names in the order "
                             "in which the optimizer got them")
        if parameters is not None and len(parameters) != len(named):
            raise ValueError(f"parameters has {len(parameters)} names; the optimizer has {len(named)} parameters")
        self.numbers = dict(zip(parameters if parameters is not None else named, named))

    def of(self, name: str, weight: Weight, n: int) -> State:
        if name not in self.numbers:
            raise KeyError(f"the optimizer has no parameter {name}; it has {', '.join(map(str, self.numbers))}")
        number = self.numbers[name]
        entry = self.state.get(number) or {}
        group = next(group for group in self.groups if number in group["params"])
        fused = {key.rsplit(".", 1)[1]: value for key, value in entry.items() if "." in key}
        if not entry:
            return NEW  # it has made no step
        if fused:
            return self._fused(name, weight, n, {_FUSED_NAMES.get(key, key): value for key, value in fused.items()})
        return self._plain(name, weight, n, entry, group)

    def _plain(self, name: str, weight: Weight, n: int, entry: Mapping[str, Any], group: Mapping[str, Any]) -> State:
        rule = _rule(name, weight)
        wanted, got = set(rule.states), {key for key, value in entry.items() if key != "step" and value is not None}
        if wanted != got:
            raise ValueError(f"{name}: the optimizer's state has {_list(got)}; table {weight.table.name} takes that of "
                             f"torch.optim.{rule.torch}, {_list(wanted)}")
        _check_group(name, weight, rule, group)
        columns = [_floats(f"{name}: {key}", entry[key], (n, weight.table.dim)) for key in rule.states]
        if rule.torch == "SGD":
            columns = [column * np.float32(-float(group["lr"])) for column in columns]
        step = entry.get("step", self.step)
        if step is None and (rule.states == () or rule.torch == "SGD"):
            step = 0  # which its steps do not depend on
        return _state(name, weight, n, columns, step)

    def _fused(self, name: str, weight: Weight, n: int, entry: Mapping[str, Any]) -> State:
        table = weight.table
        kind = table.schema.optimizer.kind
        if kind == "adam":
            raise ValueError(f"{name}: FBGEMM's Adam adds eps behind the bias correction, table {table.name}'s before it: their steps "
                             "differ")
        wanted = FUSED.get(kind)
        if wanted is None or set(wanted) != set(entry) - {"step"}:
            raise ValueError(f"{name}: the fused optimizer's state has {_list(set(entry))}; table {table.name} has the optimizer "
                             f"{kind}, which takes {_list(set(wanted or ()))}")
        _check_table(name, weight)
        columns = [_floats(f"{name}: {key}", entry[key], (n, 1) if is_number else (n, table.dim))
                   for key, is_number in wanted.items()]
        step = entry.get("step", self.step)
        if step is None and kind in ("adagrad", "rowwise_adagrad"):
            step = 0
        return _state(name, weight, n, columns, step)


def torch_state(weight: Weight, name: str, floats: Floats, step: int) -> tuple[dict[str, torch.Tensor], dict[str, Any], bool]:
    """The entry and the group of an optimizer's state dict, and whether that is a fused one's."""
    table = weight.table
    optimizer, dim = table.schema.optimizer, table.dim
    if optimizer.kind not in RULES and optimizer.kind in FUSED:
        _check_table(name, weight)
        entry, at = {}, 0
        for key, is_number in FUSED[optimizer.kind].items():
            width = 1 if is_number else dim
            entry[f"{table.name}.{key}"] = torch.from_numpy(np.ascontiguousarray(floats[:, at:at + width]).reshape(
                (-1,) if is_number else (-1, dim)))
            at += width
        return entry, {"lr": optimizer.lr}, True
    rule = _rule(name, weight)
    group = _group(rule, optimizer)
    entry = {key: torch.from_numpy(floats[:, i * dim:(i + 1) * dim].copy()) for i, key in enumerate(rule.states)}
    if rule.torch == "SGD":
        entry = {key: tensor / -float(np.float32(optimizer.lr)) for key, tensor in entry.items()}
    elif rule.torch == "SparseAdam":
        entry["step"] = step  # type: ignore[assignment]
    else:
        entry["step"] = torch.tensor(float(step))
    return entry, group, False


def _group(rule: Rule, optimizer: Any) -> dict[str, Any]:
    """The parameters that an optimizer of the class has, with those of the table."""
    given = {"lr": float(optimizer.lr), **rule.fixed}
    for theirs, ours in rule.same.items():
        given[theirs] = (optimizer.beta1, optimizer.beta2) if theirs == "betas" else getattr(optimizer, ours)
    one = getattr(torch.optim, rule.torch)([torch.nn.Parameter(torch.zeros(1))], **given)
    return {key: value for key, value in one.state_dict()["param_groups"][0].items() if key != "params"}


def _rule(name: str, weight: Weight) -> Rule:
    optimizer = weight.table.schema.optimizer
    rule = RULES.get(optimizer.kind)
    if rule is None:
        raise ValueError(f"{name}: table {weight.table.name} has the optimizer {optimizer.kind}, which no optimizer of torch is")
    if optimizer.kind != "sgd" and optimizer.update != rule.update:
        raise ValueError(f"{name}: table {weight.table.name} has {optimizer.kind} with update: {optimizer.update}; "
                         f"torch.optim.{rule.torch} steps as update: {rule.update} does")
    _check_table(name, weight)
    return rule


def _check_table(name: str, weight: Weight) -> None:
    table = weight.table
    optimizer = table.schema.optimizer
    wrong = [field for field, value in _OWN.items() if getattr(optimizer, field) != value]
    if wrong:
        raise ValueError(f"{name}: table {table.name} sets {', '.join(wrong)}, which the state's optimizer does not have")
    if table.state_floats != _width(weight) + _masters(weight):
        raise ValueError(f"{name}: table {table.name} keeps more beside a row than its optimizer's state (on_full "
                         f"{table.schema.on_full}, update {optimizer.update})")


def _width(weight: Weight) -> int:
    """Floats of the optimizer's own state beside a row."""
    dim = weight.table.dim
    width = {"sgd": 0, "rowwise_adagrad": 1, "partial_rowwise_adam": dim + 1, "adam": 2 * dim, "lamb": 2 * dim}
    return width.get(weight.table.schema.optimizer.kind, dim)


def _masters(weight: Weight) -> int:
    return weight.table.dim if weight.table.schema.rounding == "master" else 0


def with_masters(weight: Weight, values: NDArray[np.float32], state: State) -> State:
    """The state with the rows' values as master values, where the table has them and nothing else stands beside its rows."""
    if not _masters(weight) or weight.table.state_floats != _width(weight) + weight.table.dim:
        return state
    optimizer = weight.table.schema.optimizer
    floats = state.floats
    if floats is None:
        first = optimizer.initial_accumulator if optimizer.kind in ("adagrad", "rowwise_adagrad") else 0
        floats = np.full((len(values), _width(weight)), first, np.float32)
    return State(np.concatenate([floats, values], 1), state.step)


def _check_group(name: str, weight: Weight, rule: Rule, group: Mapping[str, Any]) -> None:
    optimizer, table = weight.table.schema.optimizer, weight.table.name
    for field in rule.unset:
        if group.get(field):
            raise ValueError(f"{name}: {field} is {group[field]!r}; table {table} steps without it")
    if rule.torch == "SparseAdam" and "amsgrad" in group:  # which SparseAdam does not have
        raise ValueError(f"{name}: torch's Adam steps all rows; table {table} steps those that are pushed, as torch's SparseAdam")
    for field, value in rule.fixed.items():
        if bool(group.get(field, value)) != value:
            raise ValueError(f"{name}: {field} is {group[field]!r}; table {table} has the optimizer {optimizer.kind}")
    for field, ours in rule.same.items():
        mine = (optimizer.beta1, optimizer.beta2) if field == "betas" else (getattr(optimizer, ours),)
        theirs = group.get(field, mine)
        theirs = tuple(theirs) if isinstance(theirs, (tuple, list)) else (theirs,)
        if not np.array_equal(np.asarray(theirs, np.float32), np.asarray(mine, np.float32)):
            raise ValueError(f"{name}: {field} is {group[field]}; table {table} has {ours} {', '.join(f'{v:.7g}' for v in mine)}")


def _floats(what: str, tensor: Any, shape: tuple[int, int]) -> NDArray[np.float32]:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise TypeError(f"{what} is a {type(tensor).__name__}; a whole tensor is expected, gather a sharded one first")
    whole = tensor.detach().to_dense() if tensor.is_sparse else tensor.detach()
    if tuple(whole.shape) not in (shape, shape[:1] if shape[1] == 1 else shape):
        raise ValueError(f"{what} is {tuple(whole.shape)}; {shape} is expected")
    return np.asarray(whole.to(torch.float32).cpu().numpy()).reshape(shape)


def _state(name: str, weight: Weight, n: int, columns: Sequence[Floats], step: Any) -> State:
    if step is None:
        raise ValueError(f"{name}: the state does not have its number of steps: pass optimizer_step=")
    step = int(step)
    if step < 0:
        raise ValueError(f"{name}: the step is {step}; 0 or more is expected")
    floats = np.ascontiguousarray(np.concatenate(columns, 1)) if columns else np.zeros((n, 0), np.float32)
    if not weight.table.schema.admit_nonfinite and not np.isfinite(floats).all():
        raise ValueError(f"{name}: the optimizer's state has values that are not finite")
    return State(floats if weight.table.state_floats else None, step)


def _list(names: Any) -> str:
    return ", ".join(sorted(map(str, names))) or "nothing"
