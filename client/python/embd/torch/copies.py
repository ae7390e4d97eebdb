"""Tensors of a device as the arrays that keys, rows and gradients travel in, and back.

A GPU copies by itself from and to pinned memory. Other memory the driver copies a second time, while the host waits. PyTorch
keeps pinned memory for the next use, and hands it out once the GPU has done with it. Tensors of the CPU are not copied."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional, Union

import torch

Device = Union[torch.device, str, int, None]


def device_named(device: Device) -> Optional[torch.device]:
    return None if device is None else torch.device(device)


def _is_pinned(device: torch.device) -> bool:
    return bool(device.type == "cuda")


def _started(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    if not _is_pinned(tensor.device):
        return tensor.cpu()
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return host.copy_(tensor, non_blocking=True)


def to_numpy(*tensors: torch.Tensor) -> list[Any]:
    """An array of each tensor: a view where it is on the CPU. Waits for all copies of a GPU together."""
    copies = [_started(tensor) for tensor in tensors]
    for device in {tensor.device for tensor in tensors if _is_pinned(tensor.device)}:
        torch.cuda.current_stream(device).synchronize()
    return [copy.numpy() for copy in copies]


def landing(shape: Sequence[int], device: torch.device) -> torch.Tensor:
    """Where float32 rows arrive that are for `device`: on the host."""
    return torch.empty(tuple(shape), dtype=torch.float32, pin_memory=_is_pinned(device))


def landed(rows: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The rows of a landing, on `device`. A GPU copies them in its current stream; the host does not wait."""
    return rows.to(device, non_blocking=True) if _is_pinned(device) else rows.detach().to(device)


def to_device(array: Any, device: torch.device) -> torch.Tensor:
    """An array as a tensor of `device`, as landed()."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if _is_pinned(device) else tensor.to(device)
