"""Memory that an RDMA device sends from, without a copy."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch

from . import errors
from .group import Group


class Registration:
    """A tensor in memory that is registered with a group; see torch_mcast.register_memory."""

    def __init__(self, group: Group, tensor: torch.Tensor) -> None:
        if not isinstance(tensor, torch.Tensor):
            raise errors.ArgumentError(f"register_memory: want a tensor, got {type(tensor).__name__}")
        if tensor.device.type != "cpu" or not tensor.is_contiguous() or tensor.nbytes == 0:
            kind = "contiguous" if tensor.is_contiguous() else "not contiguous"
            raise errors.ArgumentError(
                f"register_memory: a tensor of {tensor.nbytes} bytes on {tensor.device}, {kind}: "
                "want a contiguous one on the CPU, of 1 byte at least"
            )
        handle = group.lib.register(group.live(), tensor.data_ptr(), tensor.nbytes)
        # The storage is kept until the device has let go of the memory, even if the tensor is gone.
        self._end = weakref.finalize(self, _end, group.lib.deregister, handle, tensor.untyped_storage())
        self._end.atexit = False

    def release(self) -> None:
        """Take the memory from the device. No operation that uses it is in flight. Again: nothing happens."""
        self._end()


def _end(deregister: Callable[[int], None], handle: int, storage: torch.UntypedStorage) -> None:
    deregister(handle)
    del storage
