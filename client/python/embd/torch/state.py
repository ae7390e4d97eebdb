"""State dicts as bytes, and back: the tensors in torch's format, the rest as JSON. Reading them runs no code of theirs."""
from __future__ import annotations

import io
import json
from typing import Any

import torch


def pack(tree: Any) -> bytes:
    """Of dicts, lists, tuples, tensors, numbers, text, bool and None."""
    tensors: list[torch.Tensor] = []
    text = json.dumps(_fold(tree, tensors)).encode()
    file = io.BytesIO()
    torch.save(tensors, file)
    return b"%d\n%s%s" % (len(text), text, file.getvalue())


def unpack(data: bytes) -> Any:
    head, _, rest = data.partition(b"\n")
    n = int(head)
    tensors = torch.load(io.BytesIO(rest[n:]), weights_only=True)
    return _unfold(json.loads(rest[:n]), tensors)


def _fold(tree: Any, tensors: list[torch.Tensor]) -> Any:
    """[kind, content]: JSON alone has neither keys that are numbers nor tuples."""
    if isinstance(tree, torch.Tensor):
        tensors.append(tree.detach())
        return ["tensor", len(tensors) - 1]
    if isinstance(tree, dict):
        return ["dict", [[_fold(key, tensors), _fold(value, tensors)] for key, value in tree.items()]]
    if isinstance(tree, (list, tuple)):
        return ["tuple" if isinstance(tree, tuple) else "list", [_fold(item, tensors) for item in tree]]
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return ["value", tree]
    raise TypeError(f"a checkpoint takes no {type(tree).__name__}; give it as a blob of your own")


def _unfold(node: Any, tensors: list[torch.Tensor]) -> Any:
    kind, content = node
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {_unfold(key, tensors): _unfold(value, tensors) for key, value in content}
    if kind in ("list", "tuple"):
        items = [_unfold(item, tensors) for item in content]
        return tuple(items) if kind == "tuple" else items
    return content
