"""python -m embd convert SOURCE TARGET: writes one kind of data set as another.

A source or target is KIND:PATH. The target is there complete, or not at all."""
from __future__ import annotations

from typing import Any, Union

from .batch import Shape, Source
from .layouts import Avazu, Criteo, MovieLens
from .native import Norm, Raw, Writer
from .parquet import Parquet, ParquetWriter

SOURCES = ("norm", "raw", "parquet", "criteo", "avazu", "movielens")
TARGETS = ("norm", "raw", "parquet")

EPILOG = """examples:
  python -m embd convert criteo:train.txt norm:criteo/train
  python -m embd convert --key-bits 64 norm:criteo/train parquet:criteo/parquet
  python -m embd convert parquet:day0 norm:day0.norm --checksum --file-samples 1000000
  python -m embd convert raw:train.bin norm:train --label-dim 1 --dense-dim 13 --slots 26 --integers"""


def add_to(commands: Any) -> None:
    import argparse
    parser = commands.add_parser("convert", help="write one kind of data set as another", description=__doc__,
                                 epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_source(parser)
    parser.add_argument("target", metavar="TARGET", help=f"KIND:PATH, KIND one of {', '.join(TARGETS)}")
    parser.add_argument("--to-key-bits", type=int, choices=(32, 64), default=64, help="of a norm target (64)")
    parser.add_argument("--checksum", action="store_true", help="a norm target has checksums")
    parser.add_argument("--file-samples", type=int, default=0, metavar="N", help="samples of a target's file (all)")
    parser.set_defaults(run=run)


def add_source(parser: Any) -> None:
    """Arguments that name a source, for open_source."""
    parser.add_argument("source", metavar="SOURCE", help=f"KIND:PATH, KIND one of {', '.join(SOURCES)}")
    parser.add_argument("--batch", type=int, default=4096, metavar="N", help="samples at a time (4096)")
    parser.add_argument("--key-bits", type=int, choices=(32, 64), default=32, help="of a norm source (32)")
    parser.add_argument("--label-dim", type=int, default=1, metavar="N", help="of a raw source (1)")
    parser.add_argument("--dense-dim", type=int, default=0, metavar="N", help="of a raw source (0)")
    parser.add_argument("--slots", type=int, default=1, metavar="N", help="of a raw source (1)")
    parser.add_argument("--integers", action="store_true", help="a raw source or target has int32 labels, dense values")
    parser.add_argument("--missing", type=int, metavar="KEY", help="the key where a source has no value")
    parser.add_argument("--positive-from", type=float, metavar="RATING", help="movielens: the label is 1 from here on")


def _split(what: str, text: str, kinds: tuple[str, ...]) -> tuple[str, str]:
    kind, colon, path = text.partition(":")
    if not colon or kind not in kinds or not path:
        raise ValueError(f"{what} '{text}' is no KIND:PATH with a KIND of {', '.join(kinds)}")
    return kind, path


def open_source(a: Any) -> Source:
    kind, path = _split("source", a.source, SOURCES)
    if kind == "norm":
        return Norm(path, batch_samples=a.batch, i64_keys=a.key_bits == 64, max_bad_samples=0, max_bad_files=0)
    if kind == "raw":
        return Raw(path, Shape(a.label_dim, a.dense_dim, a.slots), integers=a.integers, batch_samples=a.batch,
                   max_bad_samples=0, max_bad_files=0)
    options = {"batch_samples": a.batch, "missing": a.missing}
    if kind == "parquet":
        return Parquet(path, **options)
    if kind == "movielens":
        return MovieLens(path, positive_from=a.positive_from, **options)
    return Criteo(path, **options) if kind == "criteo" else Avazu(path, **options)


def _target(a: Any, shape: Shape) -> Union[Writer, ParquetWriter]:
    kind, path = _split("target", a.target, TARGETS)
    if kind == "parquet":
        return ParquetWriter(path, shape, file_samples=a.file_samples)
    if kind == "raw":
        return Writer(path, "raw", shape, integers=a.integers)
    return Writer(path, "norm", shape, file_samples=a.file_samples, checksum=a.checksum, i64_keys=a.to_key_bits == 64)


def run(arguments: Any) -> int:
    _split("target", arguments.target, TARGETS)
    source = open_source(arguments)
    n = 0
    with _target(arguments, source.shape) as target:
        for batch in source:
            target.add(batch)
            n += batch.n_samples
    shape = source.shape
    print(f"{n:,} samples: {shape.label_dim} labels, {shape.dense_dim} dense values, {shape.slots} slots")
    return 0
