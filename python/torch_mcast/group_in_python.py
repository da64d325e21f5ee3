"""What stands between torch and the backend before torch 2.14: a process group in Python.

torch 2.14 takes a backend that is written in Python. Older ones let the creator of a backend return a whole
process group instead, which Python may write. It has one backend for all devices, and is that itself.
"""

from __future__ import annotations

from types import WrapperDescriptorType
from typing import Any

import torch
from torch._C._distributed_c10d import Backend, ProcessGroup

# Before torch 2.14 the C++ class of backends has no constructor for Python.
TAKES_BACKENDS = not isinstance(Backend.__init__, WrapperDescriptorType)


class GroupInPython(ProcessGroup):
    """A process group with operations that are methods of a class in Python."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self._group_name = ""
        self._group_desc = ""

    def _get_backend(self, _device: torch.device) -> Any:
        """Return the backend of a device: this."""
        return self

    def getBackendName(self) -> str:
        """Return the backend's name."""
        raise NotImplementedError

    def _get_backend_name(self) -> str:
        return self.getBackendName()

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu"), torch.device("cuda")]

    def _set_group_name(self, name: Any) -> None:
        """Take torch's name of the group, by which functional collectives find it."""
        super()._set_group_name(name)
        self._group_name = name
        self._set_group_uid(name)

    def _set_group_uid(self, uid: str) -> None:
        """Take the name; a backend does more."""

    def getGroupName(self) -> str:
        """Return torch's name of the group."""
        return self._group_name

    def _set_group_desc(self, desc: str) -> None:
        self._group_desc = desc

    def getGroupDesc(self) -> str:
        """Return what the group is for."""
        return self._group_desc

    group_desc = property(getGroupDesc)

    def _start_coalescing(self, _device: torch.device) -> None:
        self.start_coalescing()

    def _end_coalescing(self, _device: torch.device) -> Any:
        return self.end_coalescing()

    def start_coalescing(self) -> None:
        """Gather works until end_coalescing."""
        raise NotImplementedError

    def end_coalescing(self) -> Any:
        """Return the works since start_coalescing as one."""
        raise NotImplementedError


Base: Any = Backend if TAKES_BACKENDS else GroupInPython
