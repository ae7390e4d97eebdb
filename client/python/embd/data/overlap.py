"""python -m embd overlap SOURCE: keys that several slots of a data set have.

Such keys share a row of a table that is not partitioned by slot, which HugeCTR leaves undefined. Exit status 1 if there
are any. Needs 8 bytes of memory for each distinct key of each slot."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .batch import Batch


class Overlap(NamedTuple):
    """Two slots, the number of keys that both have, and the least of these."""

    slots: tuple[int, int]
    n_keys: int
    example: int


def overlaps(batches: Iterable[Batch]) -> list[Overlap]:
    """All pairs of slots that have keys in common, in the order of the slots."""
    known = _keys_of_slots(batches)
    found = []
    for a, keys in enumerate(known):
        for b in range(a + 1, len(known)):
            common = np.intersect1d(keys, known[b], assume_unique=True)
            if common.size:
                found.append(Overlap((a, b), int(common.size), int(common[0])))
    return found


def _keys_of_slots(batches: Iterable[Batch]) -> list[NDArray[np.uint64]]:
    """The distinct keys of each slot, ascending."""
    known: list[NDArray[np.uint64]] = []
    for batch in batches:
        known = known or [np.empty(0, np.uint64) for _ in range(batch.slots)]
        slots = np.repeat(np.tile(np.arange(batch.slots), batch.n_samples), batch.lengths.reshape(-1))
        order = np.argsort(slots, kind="stable")
        ends = np.searchsorted(slots[order], np.arange(1, batch.slots))
        for slot, keys in enumerate(np.split(batch.keys[order], ends)):
            known[slot] = np.union1d(known[slot], keys)
    return known


def add_to(commands: Any) -> None:
    import argparse

    from . import convert
    parser = commands.add_parser("overlap", help="name the keys that several slots of a data set have",
                                 description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    convert.add_source(parser)
    parser.set_defaults(run=run)


def run(arguments: Any) -> int:
    from . import convert
    found = overlaps(convert.open_source(arguments))
    for one in found:
        print(f"slots {one.slots[0]} and {one.slots[1]}: {one.n_keys:,} keys, the least is {one.example}")
    if not found:
        print("no key is in two slots")
    return 1 if found else 0
