"""The learning rates of tables, as an optimizer of PyTorch's that its schedulers drive.

A backward pushes gradients, and servers make the step. So the optimizer here holds one thing, the rate of each table,
which every push of the table's modules carries from then on. As long as a rate is the table's own, pushes carry none."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Callable, Optional

import numpy as np
import torch
from torch import nn

from ..table import Table
from .rows import Source

SMALLEST = float(np.finfo(np.float32).tiny)  # stands for 0, which no push can carry


class TableOptimizer(torch.optim.Optimizer):
    """Has one of param_groups for each table: its "name", "lr" and "initial_lr", and no parameters. Made by
    embd.torch.optimizer()."""

    def __init__(self, sources: Iterable[Source]):
        self._tables: list[Table] = []
        for source in sources:
            self._tables += [table for table in source.tables if self._number(table) is None]
            source.optimizer = self
        if not self._tables:
            raise ValueError("no module of embd.torch is among the modules")
        super().__init__([_group(table) for table in self._tables], {})

    def _number(self, table: Table) -> Optional[int]:
        """Handles of one table may differ."""
        same = (i for i, known in enumerate(self._tables) if known.client is table.client and known.name == table.name)
        return next(same, None)

    def rate(self, table: Table) -> Optional[float]:
        """What a push of the table carries now; None: nothing."""
        number = self._number(table)
        if number is None:
            return None
        # A push is a step. Schedulers look at these, and warn where no step came before theirs.
        self._step_count, self._opt_called = 1, True
        lr = float(self.param_groups[number]["lr"])
        if lr == 0.0:
            return self._nothing(table)
        return None if np.float32(lr) == np.float32(table.schema.optimizer.lr) else lr

    @staticmethod
    def _nothing(table: Table) -> float:
        if table.schema.optimizer.kind == "ftrl":
            raise ValueError(f"table {table.name}: lr is 0, and ftrl divides by it")
        return SMALLEST

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:  # type: ignore[override]
        """Calls the closure, if there is one, and does nothing else: backward has pushed the gradients already."""
        if closure is None:
            return None
        with torch.enable_grad():
            return closure()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes the rates of the same tables. Rows and their optimizer state stay on the servers."""
        names = [group.get("name") for group in state_dict["param_groups"]]
        own = [table.name for table in self._tables]
        if names != own:
            raise ValueError(f"the state is of the tables {names}, this optimizer has {own}")
        super().load_state_dict(state_dict)


def _group(table: Table) -> dict[str, Any]:
    lr = float(str(np.float32(table.schema.optimizer.lr)))  # 0.1, where float32 has 0.100000001
    return {"params": [], "name": table.name, "lr": lr, "initial_lr": lr}


def sources_of(model: nn.Module) -> list[Source]:
    """Of the modules of embd.torch in a model."""
    found = (getattr(module, "source", None) for module in model.modules())
    return [source for source in found if isinstance(source, Source)]


def optimizer(*models: nn.Module) -> TableOptimizer:
    """An optimizer that holds the learning rates of all tables in the models, for torch.optim.lr_scheduler.

        rates = embd.torch.optimizer(model)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(rates, T_max=1000)
        for batch in batches:
            loss(model(batch)).backward()    # pushes with the rate of now
            schedule.step()

    A push carries rates["lr"] as it is when backward ends, or when accumulate() does. zero_grad() and step() change
    nothing: no gradient stays, and the step is the push. state_dict() has the rates. Schedulers that cycle the momentum
    need cycle_momentum=False: a push carries no momentum."""
    return TableOptimizer([source for model in models for source in sources_of(model)])
