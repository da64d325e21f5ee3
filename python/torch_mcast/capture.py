"""CUDA graphs that are being recorded: what cannot be in one, and what goes on beside one."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator
from typing import Any

import torch

from . import errors

_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


def refuse(device: torch.device, what: str, instead: str) -> None:
    """Raise an error while the device's current stream records a graph, before the graph has anything of it."""
    if recording(device):
        raise errors.ArgumentError(f"the current stream is recording a CUDA graph, which cannot {what}: {instead}")


def recording(device: torch.device) -> bool:
    """Say whether the device's current stream records a graph."""
    if torch.cuda.current_device() == device.index:  # to change devices takes ten times as long
        return torch.cuda.is_current_stream_capturing()
    with torch.cuda.device(device):
        return torch.cuda.is_current_stream_capturing()


@contextlib.contextmanager
def beside() -> Iterator[None]:
    """Let this thread ask a device and wait for it, of what is in no graph, whatever thread records one.

    Otherwise the driver refuses that, and ends the graph. torch's own watchdog of NCCL does the same.
    """
    if torch.version.hip:
        yield
        return
    mode = ctypes.c_int(_RELAXED)
    _exchange()(ctypes.byref(mode))
    try:
        yield
    finally:
        _exchange()(ctypes.byref(mode))


@functools.cache
def _exchange() -> Any:
    """Return the driver's function that sets a thread's mode, and gives back the one before."""
    return ctypes.PyDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode
