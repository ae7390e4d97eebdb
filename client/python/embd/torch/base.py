"""What all modules here are: references to tables of a cluster. Their copies, pickles and state_dicts name the tables,
and have none of their rows."""
from __future__ import annotations

from typing import Any, NamedTuple, Optional, TypeVar

from torch import nn

from ..table import Table
from .rows import Source

M = TypeVar("M", bound="Reference")


class Weight(NamedTuple):
    """A matrix that torch.nn or TorchRec would have as a parameter, and the table that has it here."""

    name: str  # within its module
    table: Table
    n: Optional[int]  # rows 0 to n - 1; None: any 64-bit integer is a row
    zeros: Optional[int] = None  # a row that is zeros


class Reference(nn.Module):
    """A module whose rows are in the tables of its source."""

    source: Source

    def requires_grad_(self: M, requires_grad: bool = True) -> M:
        """False: the rows are frozen, and nothing is pushed. To be called of this module: its rows are no parameters,
        so that requires_grad_() of a model around it does not reach them."""
        self.source.anchor.requires_grad_(requires_grad)
        return self

    def flush(self) -> None:
        """Waits until the gradients of every backward so far have been applied; raises what failed."""
        self.source.flush()

    def weights(self) -> list[Weight]:
        """What import_state_dict and export_state_dict call the tables' rows."""
        raise NotImplementedError

    def get_extra_state(self) -> dict[str, Any]:
        """What a state_dict has of this module: names and columns of its tables. Rows are in the servers' snapshots."""
        return {"tables": [{"name": table.name, "dim": table.dim} for table in self.source.tables]}

    def set_extra_state(self, state: Any) -> None:
        mine = self.get_extra_state()
        if state != mine:
            raise ValueError(f"the state refers to {_tables(state)}, this module to {_tables(mine)}; rows are not in it")


def _tables(state: Any) -> str:
    return ", ".join(f"table {table['name']} of {table['dim']} columns" for table in state["tables"])
