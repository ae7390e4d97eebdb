"""Data sets as batches: Norm and Raw through the C readers, Parquet, and the files of well-known data sets.

    shape = embd.data.Shape(label_dim=1, dense_dim=13, slots=26)
    for batch in embd.data.Norm("log/train", shape, batch_samples=4096):
        rows = table.pull(batch.keys, batch.offsets)
        # batch.labels [n, 1], batch.dense [n, 13]

Every source is iterable, again and again, and has `shape`. `python -m embd convert` writes one as another."""
from __future__ import annotations

from .batch import Batch, Input, Shape, SparseInput
from .graph import graph_shape
from .layouts import Avazu, Criteo, MovieLens
from .native import Counts, Norm, Raw, Writer
from .overlap import Overlap, overlaps
from .parquet import Parquet, ParquetWriter

__all__ = ["Avazu", "Batch", "Counts", "Criteo", "Input", "MovieLens", "Norm", "Overlap", "Parquet", "ParquetWriter",
           "Raw", "Shape", "SparseInput", "Writer", "graph_shape", "overlaps"]
