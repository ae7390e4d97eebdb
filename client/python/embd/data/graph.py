"""The data layer of a HugeCTR model's graph file, as `model.graph_to_json` writes it."""
from __future__ import annotations

import json
import os
from typing import Any, Union

from .. import errors
from .._native import lib
from .batch import Shape, SparseInput


def graph_shape(path: Union[str, "os.PathLike[str]"]) -> Shape:
    """The shape of a model's samples, whose inputs have the names that its embeddings know them by:

        shape = embd.data.graph_shape("wdl.json")
        for batch in embd.data.Norm("wdl/file_list.txt", shape):
            wide = tables["sparse_embedding2"].pull(*batch.inputs["wide_data"])

    Slots of one input that have different greatest numbers of keys share the greatest, and no fixed length."""
    layer = _data_layer(os.fspath(path))
    try:
        inputs = [_input(item) for item in layer["sparse"]]
        return Shape(_sum(layer["label"]["label_dim"]), int(layer["dense"]["dense_dim"]), sum(one.slots for one in inputs),
                     tuple(inputs))
    except (KeyError, TypeError, ValueError) as error:
        raise errors.make(lib.EMBD_CORRUPT, f"{os.fspath(path)}: the data layer: {error!r}") from None


def _data_layer(path: str) -> Any:
    with open(path, encoding="utf-8") as file:
        try:
            layers = json.load(file)["layers"]
            found = [layer for layer in layers if layer["type"] == "Data"]
        except (KeyError, TypeError, ValueError) as error:
            raise errors.make(lib.EMBD_CORRUPT, f"{path}: not a graph of a model: {error!r}") from None
    if len(found) != 1:
        raise errors.make(lib.EMBD_CORRUPT, f"{path}: has {len(found)} layers of type Data; one is expected")
    return found[0]


def _input(item: dict[str, Any]) -> SparseInput:
    most = item["nnz_per_slot"]
    numbers = [int(n) for n in most] if isinstance(most, list) else [int(most)]
    return SparseInput(item["top"], int(item["slot_num"]), max(numbers),
                       bool(item["is_fixed_length"]) and min(numbers) == max(numbers))


def _sum(value: Any) -> int:
    return sum(int(n) for n in value) if isinstance(value, list) else int(value)
