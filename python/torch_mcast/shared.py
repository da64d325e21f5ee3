"""Tensors in memory that the ranks of a host share: results of Allgathers, once a host."""

from __future__ import annotations

import ctypes
import time
import weakref
from datetime import timedelta

import torch

from . import errors
from .group import SLICE_MS, Group


def reserve(group: Group, numel: int, dtype: torch.dtype, timeout: timedelta) -> torch.Tensor | None:
    """Return a tensor for the result of the next Allgather, in memory that ranks of a host share.

    All ranks of the group reserve the same in the same order, and gather into the reserved tensors, each
    once. This rank may write its own shard there, and only before; all others see the rest. The place is
    given back when the last tensor over it is gone.

    Args:
        group: of the Allgather.
        numel: elements of the whole result, a multiple of the group's ranks.
        dtype: of the elements.
        timeout: for how long other ranks may hold what was there before; then WaitTimeoutError says which.

    Returns:
        A flat tensor; None where memory of this rank has to do: MCAST_OUTPUTS is not set, or less than twice
        as large, or a rank held older results for too long.
    """
    lib = group.lib
    output = lib.reserve(group.live(), numel * dtype.itemsize // group.size)
    if not output:
        return None
    deadline = time.monotonic() + timeout.total_seconds()
    while True:
        try:
            address = lib.place(output, SLICE_MS)
            break
        except errors.WaitTimeoutError:
            if time.monotonic() > deadline:
                lib.release(output)
                raise
        except BaseException:
            lib.release(output)
            raise
    if address is None:
        return None
    memory = (ctypes.c_char * (numel * dtype.itemsize)).from_address(address)
    weakref.finalize(memory, lib.release, output).atexit = False
    return torch.frombuffer(memory, dtype=dtype)
