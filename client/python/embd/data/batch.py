"""What every source yields: labels, dense values, and the keys of all slots as CSR."""
from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Optional

import numpy as np
from numpy.typing import NDArray

from ..arrays import Floats


@dataclasses.dataclass(frozen=True)
class SparseInput:
    """Consecutive slots whose keys belong to one table: HugeCTR's DataReaderSparseParam.

    A sample with more than `max_keys` keys in one of the slots is bad (0: any number is good), and with `fixed_length`
    one with fewer as well."""

    name: str
    slots: int
    max_keys: int = 0
    fixed_length: bool = False


@dataclasses.dataclass(frozen=True)
class Shape:
    """Of a sample: so many labels, dense values, and slots of keys, and which slots belong to which sparse input."""

    label_dim: int
    dense_dim: int
    slots: int
    inputs: tuple[SparseInput, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", tuple(self.inputs))
        names = [one.name for one in self.inputs]
        if len(set(names)) < len(names):
            raise ValueError(f"two inputs have the same name: {', '.join(names)}")
        if self.inputs and sum(one.slots for one in self.inputs) != self.slots:
            raise ValueError(f"inputs have {sum(one.slots for one in self.inputs)} slots, and a sample has {self.slots}")


class Input(NamedTuple):
    """The keys of one sparse input of a batch, for a pull or push of its table; row = sample * its slots + slot."""

    keys: NDArray[np.uint64]
    offsets: NDArray[np.uint64]


class Batch:
    """Samples in their order. Row sample * slots + slot of the CSR holds the keys of one slot of one sample.

    labels [n, label_dim], dense [n, dense_dim] float32; offsets [n * slots + 1], keys [n_keys] uint64. `inputs` has the
    keys of each sparse input of the shape, by its name."""

    __slots__ = ("labels", "dense", "offsets", "keys", "slots", "inputs")

    def __init__(self, labels: Floats, dense: Floats, offsets: NDArray[np.uint64], keys: NDArray[np.uint64],
                 slots: int, inputs: Optional[dict[str, Input]] = None):
        self.labels = labels
        self.dense = dense
        self.offsets = offsets
        self.keys = keys
        self.slots = slots
        self.inputs = inputs or {}

    @property
    def n_samples(self) -> int:
        return len(self.labels)

    def __len__(self) -> int:
        return self.n_samples

    @property
    def lengths(self) -> NDArray[np.int64]:
        """[n, slots]: how many keys each slot of each sample has."""
        return np.diff(self.offsets.astype(np.int64)).reshape(self.n_samples, self.slots)

    def by_slot(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(values, lengths [slots * n]) slot after slot, as embd.torch.EmbeddingBagCollection and TorchRec take them."""
        lengths = self.lengths
        starts = self.offsets[:-1].astype(np.int64).reshape(lengths.shape)
        lengths, starts = lengths.T.reshape(-1), starts.T.reshape(-1)
        first = np.repeat(np.cumsum(lengths) - lengths, lengths)
        where = np.arange(lengths.sum()) - first + np.repeat(starts, lengths)
        return self.keys[where].view(np.int64), lengths


    def divided(self, inputs: tuple[SparseInput, ...]) -> "Batch":
        """This batch with `inputs` of its own."""
        first, out = 0, {}
        for one in inputs:
            out[one.name] = self._slots(first, one.slots)
            first += one.slots
        return Batch(self.labels, self.dense, self.offsets, self.keys, self.slots, out)

    def _slots(self, first: int, slots: int) -> Input:
        lengths = self.lengths[:, first:first + slots].reshape(-1)
        starts = self.offsets[:-1].astype(np.int64).reshape(self.n_samples, self.slots)[:, first:first + slots].reshape(-1)
        ends = np.append(0, np.cumsum(lengths))
        where = np.arange(ends[-1]) + np.repeat(starts - ends[:-1], lengths)
        return Input(self.keys[where], ends.astype(np.uint64))


class Sample(NamedTuple):
    """One sample of a text file: keys of each slot, none where a value is missing."""

    labels: list[float]
    dense: list[float]
    keys: list[list[int]]


def batches(samples: Iterable[Sample], shape: Shape, batch_samples: int) -> Iterator[Batch]:
    """Batches of so many samples, and the rest."""
    gathered: list[Sample] = []
    for sample in samples:
        gathered.append(sample)
        if len(gathered) == batch_samples:
            yield _batch(gathered, shape)
            gathered = []
    if gathered:
        yield _batch(gathered, shape)


def _batch(samples: list[Sample], shape: Shape) -> Batch:
    n = len(samples)
    lengths = np.fromiter((len(keys) for sample in samples for keys in sample.keys), np.uint64, n * shape.slots)
    offsets = np.zeros(n * shape.slots + 1, np.uint64)
    np.cumsum(lengths, out=offsets[1:])
    mask = 2**64 - 1
    keys = np.fromiter((key & mask for sample in samples for slot in sample.keys for key in slot), np.uint64,
                       int(offsets[-1]))
    return Batch(np.array([sample.labels for sample in samples], np.float32).reshape(n, shape.label_dim),
                 np.array([sample.dense for sample in samples], np.float32).reshape(n, shape.dense_dim),
                 offsets, keys, shape.slots)


class Source:
    """Something with samples: iterable, again and again."""

    shape: Shape

    def __iter__(self) -> Iterator[Batch]:
        raise NotImplementedError

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if not name.startswith("_"))
        return f"{type(self).__name__}({inner})"


def single_keys(batch: Batch, what: str) -> Any:
    """[n, slots] of a batch whose slots hold one key each; for formats that can hold nothing else."""
    lengths = batch.lengths
    if lengths.size and (lengths != 1).any():
        sample, slot = np.argwhere(lengths != 1)[0]
        raise ValueError(f"sample {sample} of a batch has {lengths[sample, slot]} keys in slot {slot}; {what} has one "
                         "key a slot")
    return batch.keys.reshape(batch.n_samples, batch.slots)
